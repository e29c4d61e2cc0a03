"""Publishing: only a whole, verified run of this very tree, and never half of it."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from factory import DEVICE, Lab, failed
import ladder.results.publish as publishing
from ladder.results import tables
from ladder.model.files import tree_digest
from ladder.model.errors import LadderError
from ladder.results.publish import publish
from ladder.model.schemas import frame

SWEEP = ["tensor_ladder"]


def complete(root: Path, change: Any = lambda _, record: record) -> Lab:
    """A finished run made by the tree as it stands."""
    lab = Lab(root)
    lab.environment["tree"]["digest"] = tree_digest(root)
    lab.record(SWEEP, change)
    lab.collect(SWEEP)
    tables.write("claims", frame("claims", []), lab.folder.tables)
    lab.folder.report.write_text("# A report\n\n[rows](tables/timings.csv)\n")
    picture = lab.folder.figure("tensor_ladder", "1-ladder")
    picture.parent.mkdir()
    picture.write_bytes(b"png")
    return lab


def test_a_run_is_published_whole(tmp_path: Path) -> None:
    lab = complete(tmp_path)
    target = publish(lab.project, "main", DEVICE)
    assert target == tmp_path / "results" / "published" / DEVICE
    names = {path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_file()}
    assert {"timings.csv", "timings.parquet", "claims.csv", "jobs.csv", "environment.json"} <= names
    assert "figures/tensor_ladder-1-ladder.png" in names
    assert (target / "report.md").read_text() == "# A report\n\n[rows](timings.csv)\n"
    assert [path.name for path in target.parent.iterdir()] == [DEVICE]


def test_publishing_again_replaces_everything(tmp_path: Path) -> None:
    lab = complete(tmp_path)
    target = publish(lab.project, "main", DEVICE)
    (target / "stale.csv").write_text("old")
    publish(lab.project, "main", DEVICE)
    assert not (target / "stale.csv").exists()


def test_another_tree_is_refused(tmp_path: Path) -> None:
    lab = complete(tmp_path)
    (lab.project.kernels / "wmma_tile.cu").write_text("// edited since\n")
    with pytest.raises(LadderError, match=r"the tree .* has digest"):
        publish(lab.project, "main", DEVICE)
    assert not lab.project.published(DEVICE).exists()
    assert publish(lab.project, "main", DEVICE, force=True).is_dir()


def test_published_timings_are_not_published_again(tmp_path: Path) -> None:
    lab = complete(tmp_path)
    document = json.loads(lab.folder.environment.read_text()) | {"timings_from": "published"}
    lab.folder.environment.write_text(json.dumps(document))
    with pytest.raises(LadderError, match="its timings are not its own"):
        publish(lab.project, "main", DEVICE)


def test_an_incorrect_cell_is_refused_by_name(tmp_path: Path) -> None:
    lab = complete(tmp_path, lambda _, record: failed("incorrect", "wrong")(record))
    with pytest.raises(
        LadderError, match="2 cells with an incorrect result: tensor_ladder: wmma_naive-fp16 at 4096"
    ):
        publish(lab.project, "main", DEVICE)


def test_a_cell_timed_without_a_check_is_refused(tmp_path: Path) -> None:
    lab = complete(tmp_path, lambda _, record: record | {"check": None})
    with pytest.raises(LadderError, match="timed but not verified"):
        publish(lab.project, "main", DEVICE)


def test_a_failed_variant_alone_is_no_objection(tmp_path: Path) -> None:
    def change(cell: Any, record: dict[str, Any]) -> dict[str, Any]:
        return failed("timeout", "60 s")(record) if cell.variant.kernel.name == "wmma_naive" else record

    lab = complete(tmp_path, change)
    assert publish(lab.project, "main", DEVICE).is_dir()


def test_every_objection_is_told_at_once(tmp_path: Path) -> None:
    lab = complete(tmp_path, lambda _, record: failed("incorrect", "wrong")(record))
    (lab.project.kernels / "wmma_tile.cu").write_text("// edited since\n")
    with pytest.raises(LadderError, match=r"(?s)digest.*incorrect"):
        publish(lab.project, "main", DEVICE)


def test_an_incomplete_run_is_refused_even_when_forced(tmp_path: Path) -> None:
    lab = complete(tmp_path)
    (lab.folder.tables / "claims.csv").unlink()
    with pytest.raises(LadderError, match=r"claims.csv: missing"):
        publish(lab.project, "main", DEVICE, force=True)
    with pytest.raises(LadderError, match="no such run"):
        publish(lab.project, "other", DEVICE, force=True)


@pytest.mark.parametrize("calls", range(1, 14, 3))
def test_a_failure_in_the_middle_leaves_the_old_one_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    lab = complete(tmp_path)
    target = publish(lab.project, "main", DEVICE)
    before = {path.name: path.read_bytes() for path in target.iterdir() if path.is_file()}
    copied, real = 0, shutil.copyfile

    def full_disk(source: Any, destination: Any) -> Any:
        nonlocal copied
        copied += 1
        if copied == calls:
            raise OSError("no space left on device")
        return real(source, destination)

    monkeypatch.setattr(publishing.shutil, "copyfile", full_disk)
    with pytest.raises(OSError, match="no space"):
        publish(lab.project, "main", DEVICE)
    assert {path.name: path.read_bytes() for path in target.iterdir() if path.is_file()} == before
    assert [path.name for path in target.parent.iterdir()] == [DEVICE]


def test_a_failed_swap_puts_the_old_one_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = complete(tmp_path)
    target = publish(lab.project, "main", DEVICE)
    real = Path.rename

    def refuse(self: Path, destination: Path) -> Path:
        if self.name.endswith(".new"):
            raise OSError("device busy")
        return real(self, destination)

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(OSError, match="busy"):
        publish(lab.project, "main", DEVICE)
    assert (target / "timings.csv").is_file()
    assert [path.name for path in target.parent.iterdir()] == [DEVICE]


@pytest.mark.parametrize("tree", [{"commit": None, "clean": None}, {"commit": "0" * 40, "clean": False}])
def test_a_run_of_no_commit_gets_the_commit_of_the_very_same_tree(
    tree: dict[str, Any], tmp_path: Path
) -> None:
    lab = complete(tmp_path)
    recorded = json.loads(lab.folder.environment.read_text())
    recorded["tree"] |= tree
    lab.folder.environment.write_text(json.dumps(recorded))
    assert publishing.name_commit(lab.project, lab.folder) is False, "no git here either"
    who = ["-c", "user.name=n", "-c", "user.email=e"]
    for words in (["init", "-q"], ["add", "kernels", "config"], [*who, "commit", "-qm", "all"]):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True)
    head = subprocess.run(
        ["git", "-C", str(tmp_path), "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
    target = publish(lab.project, "main", DEVICE)
    assert json.loads((target / "environment.json").read_text())["tree"]["commit"] == head
    assert head[:12] in (target / "report.md").read_text()
