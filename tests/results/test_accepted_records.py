"""A record is refused by field and value, or every step behind it takes it: none ends in a traceback."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factory import Lab
from ladder.cli.app import main
from ladder.model.record import NO_NUMBER
from rendering import LEFT_BEHIND

SWEEP, LIBRARIES = "tensor_ladder", ["cublas", "cublaslt"]
Line = dict[str, Any]
Change = Callable[[Line], object]
"""Changes a line in place; one that is emptied is left out."""


@pytest.fixture(scope="module")
def recorded_once(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """A run of one sweep with records, one of them of a choice; shared, so look at it only."""
    lab = Lab(tmp_path_factory.mktemp("recorded"))
    lab.update(SWEEP, references=LIBRARIES)
    lab.record([SWEEP])
    return lab


@pytest.fixture
def recorded(recorded_once: Lab, tmp_path: Path) -> Lab:
    """The run, to change."""
    shutil.copytree(recorded_once.root, tmp_path, dirs_exist_ok=True)
    return replace(recorded_once, root=tmp_path)


def change_lines(lab: Lab, change: Change) -> None:
    """Change every line of the store."""
    for path in lab.folder.records.iterdir():
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for line in lines:
            change(line)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines if line))


def in_session(part: str, field: str, value: Any) -> Change:
    """A session in which a part (`host`, `versions`, `gpu`) says another value of a field."""

    def change(line: Line) -> None:
        if "session" in line:
            line["session"][part][field] = value

    return change


def results(line: Line, kernel: bool = True) -> list[Line]:
    """The result of a line about a kernel, or about a choice; none of other lines."""
    record = line.get("record")
    is_wanted = record and bool(record["cell"]["kernel"]) == kernel
    return [record["result"]] if is_wanted else []


def in_result(**fields: Any) -> Change:
    """Results of kernels with other fields."""
    return lambda line: [result.update(fields) for result in results(line)]


def without(field: str, kernel: bool = True) -> Change:
    """Results of kernels, or those of choices, without a field."""
    return lambda line: [result.pop(field) for result in results(line, kernel)]


def steps(lab: Lab) -> list[int]:
    """Exit codes of the steps behind the records, up to the first that fails."""
    folder, codes = str(lab.folder.root), list[int]()
    for words in (
        ["collect", folder, SWEEP],
        ["environment", folder, "--arch", "sm_90a"],
        ["claims", folder, SWEEP],
        ["figures", folder, SWEEP],
        ["report", folder, SWEEP],
    ):
        codes.append(main(["--root", str(lab.root), *words]))
        if codes[-1]:
            break
    return codes


REFUSED: list[tuple[Change, str]] = [
    (without("reference"), "result: the field 'reference' is missing"),
    (without("speedup_low"), "result: the field 'speedup_low' is missing"),
    (without("runner_up", kernel=False), "result: the field 'runner_up' is missing"),
    (in_session("host", "gpus", 10**29), "host.gpus: 1000"),
    (in_session("host", "cpu", 3), "host.cpu: 3 is not accepted"),
    (in_session("host", "memory_bytes", 1e300), "host.memory_bytes: 1e+300 is not"),
    (in_session("versions", "packages", {"a": 1}), "versions.packages.a: 1 is not"),
    (in_session("gpu", "copy_gbytes_per_s", -1.0), "gpu.copy_gbytes_per_s: -1.0 is"),
    (in_result(speedup_low=1e-300), "result.speedup_low: 1e-300 is not accepted"),
    (in_result(variant_us=[1e308] * 4), "result.variant_us[0]: 1e+308 is not accepted"),
    (in_result(check={"launches": 10**29}), "result.check.launches: 1000"),
    (in_result(a_later_field="\ud800"), "a text: '\\ud800' is not accepted"),
]


@pytest.mark.parametrize(("change", "says"), REFUSED, ids=[says for _, says in REFUSED])
def test_what_no_step_could_take_is_refused_by_line_and_field(
    recorded: Lab, change: Change, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    change_lines(recorded, change)
    assert steps(recorded) == [2]
    (path,) = recorded.folder.records.iterdir()
    assert f"error: {path}: line " in caplog.text
    assert says in caplog.text


def all_of(*changes: Change) -> Change:
    """Several changes of a line, one after another."""
    return lambda line: [change(line) for change in changes]


def empty(line: Line) -> None:
    """A session that says nothing of its host, software and GPU."""
    if "session" in line:
        line["session"] |= {"host": {}, "versions": {}, "gpu": {}}


def of_times(us: float) -> Change:
    return in_result(variant_us=[us] * 4, reference_us=[us] * 4)


def of_speedups(low: float, middle: float, high: float) -> Change:
    return in_result(speedup_low=low, speedup=middle, speedup_high=high)


OBSERVED = [
    {"metric": name, "unit": None, "value": NO_NUMBER}
    for name in ("max_error_wide", "dram__bytes_read.sum", "dram__bytes_write.sum")
]
TAKEN: dict[str, Change] = {
    "nothing is known of host, software and GPU": empty,
    "the most of everything": all_of(
        in_session("host", "gpus", 2**15 - 1),
        in_session("host", "memory_bytes", 1e18),
        in_session("gpu", "sm_clock_max_mhz", 1e18),
        of_speedups(1e9, 1e9, 1e9),
        of_times(1e12),
        in_result(
            check={"max_error": NO_NUMBER, "error_bound": NO_NUMBER},
            observations=OBSERVED,
        ),
    ),
    "the least of everything": all_of(
        in_session("host", "cpu", ""),
        in_session("versions", "packages", {"triton": None}),
        in_session("gpu", "tensor_peak_tflops", None),
        in_session("gpu", "sm_clock_max_mhz", 0),
        of_speedups(1e-9, 1e-9, 1e-9),
        of_times(1e-6),
    ),
    "one time a side, and words of a later release": all_of(
        in_result(variant_us=[1.0], reference_us=[1.0], algorithm="\U0001f600"),
        in_session("versions", "gpu", 3),
    ),
    "a store without the lines of its sessions": lambda line: (
        line.clear() if "session" in line else None
    ),
}
"""Stores are merged by copying their files, so that those with the sessions may be left behind."""


@pytest.mark.parametrize("name", TAKEN)
def test_what_is_accepted_is_reported(recorded: Lab, name: str) -> None:
    change_lines(recorded, TAKEN[name])
    assert steps(recorded) == [0] * 5
    # One time has no interval.
    nothing_to_compare = 2 if name.startswith("one time") else 0
    assert main(["compare", *[str(recorded.folder.root)] * 2]) == nothing_to_compare
    for page in recorded.folder.root.rglob("*.md"):
        found = LEFT_BEHIND.search(page.read_text())
        assert found is None, (page, found[0])


def early(line: Line) -> None:
    """As releases before v3 kept what they had imported: medians in place of times."""
    line["schema"] = 1
    for result in results(line):
        del result["variant_us"], result["reference_us"]
        result["summary"] = {"median_us": 1.0}


BEFORE_V3 = "a record of a release before v3, which this version does not read"


def test_a_store_of_a_release_before_v3_is_named_as_such(
    recorded: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    change_lines(recorded, early)
    assert steps(recorded) == [2]
    assert f"'variant_us' is missing: {BEFORE_V3}" in caplog.text
