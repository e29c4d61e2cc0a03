"""A published folder is replaced as a whole: by one process at a time, and a kill at any moment loses nothing."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from killing import calls_of
from ladder.results import replacing
from ladder.results.replacing import replaced

OLD, NEW = {"a": "old", "records/b": "old"}, {"a": "new", "records/c": "new"}


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def read(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()
    }


@contextmanager
def child(work: Callable[[], None]) -> Iterator[int]:
    """A forked process that does `work`; it is waited for at the end of the block."""
    if (pid := os.fork()) == 0:
        try:
            work()
        finally:
            os._exit(0)
    yield pid
    os.waitpid(pid, 0)


def replace(target: Path, files: dict[str, str]) -> None:
    with replaced(target) as fresh:
        write(fresh, files)


class Stop(Exception):
    pass


def stop(target: Path) -> None:
    """Begin to replace a folder, and give up."""
    with replaced(target):
        raise Stop


@pytest.mark.parametrize("exchanges", [True, False])
def test_a_kill_ahead_of_any_call_loses_nothing(
    tmp_path: Path, exchanges: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not exchanges:  # as on a file system without it
        monkeypatch.setattr(replacing, "_exchange", lambda one, other: False)
    write(tmp_path / "0" / "nvidia-h200", OLD)
    calls, outcomes = calls_of(lambda: replace(tmp_path / "0" / "nvidia-h200", NEW)), []
    assert calls > 20
    for count in range(1, calls + 1):
        target = tmp_path / str(count) / "nvidia-h200"
        write(target, OLD)
        assert not calls_of(lambda target=target: replace(target, NEW), kill_at=count), "it is killed"
        if exchanges:
            assert read(target) in (OLD, NEW), f"the folder is whole after a kill at call {count}"
        with pytest.raises(Stop):
            stop(target)  # the next one puts in order what is left
        assert read(target) in (OLD, NEW), f"nothing is lost after a kill at call {count}"
        outcomes.append(read(target) == NEW)
        assert [path.name for path in target.parent.iterdir()] == [target.name], "nothing is left beside it"
        replace(target, {"a": "later"})
        assert read(target) == {"a": "later"}
    assert outcomes == sorted(outcomes), "old until one call, new from then on"
    assert not outcomes[0]
    assert outcomes[-1]


def test_two_at_once_wait_for_each_other(tmp_path: Path) -> None:
    target = tmp_path / "nvidia-h200"
    write(target, OLD)

    def add(name: str) -> None:
        with replaced(target) as fresh:
            write(fresh, read(target))
            time.sleep(0.2)
            write(fresh, {name: name})

    with child(lambda: add("x")), child(lambda: add("y")), child(lambda: add("z")):
        pass
    assert read(target) == OLD | {"x": "x", "y": "y", "z": "z"}
    assert [path.name for path in tmp_path.iterdir()] == [target.name]


def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    target = tmp_path / "nvidia-h200"
    write(target, OLD)

    def hold() -> None:
        with replaced(target), child(lambda: time.sleep(60)):
            os.kill(os.getpid(), signal.SIGKILL)

    with child(hold):
        pass
    began = time.monotonic()
    replace(target, NEW)
    assert time.monotonic() - began < 10, "a child of the killed process does not hold it"
    assert read(target) == NEW


def test_another_devices_leftovers_are_not_touched(tmp_path: Path) -> None:
    others = {".nvidia-h200.5.1.new/a": "of nvidia-h200.5", ".nvidia-h100.1.old/a": "of nvidia-h100"}
    write(tmp_path, others)
    replace(tmp_path / "nvidia-h200", NEW)
    assert read(tmp_path) == others | {f"nvidia-h200/{name}": text for name, text in NEW.items()}
