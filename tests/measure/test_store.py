"""Records and their store: what a key depends on, that lines survive kills, copies and newer versions."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factory import SESSION, Lab
from ladder.measure.store import Records, appending, read_store
from ladder.model.cell import COUNTERS, Cell, Reference
from ladder.model.errors import LadderError
from ladder.model.record import SCHEMA, Conditions, Record
from ladder.results.published_records import public, read_archive, write_archive

OLDEST = Path(__file__).parents[1] / "records"
"""Records as each schema wrote them: a store and an archive. They are never rewritten."""

CELL = Cell(
    "tile",
    {"bm": 64, "bk": 8},
    "fp32",
    "NN",
    {"m": 64, "n": 32, "k": 16},
    "dirty",
    Reference(("cublas",)),
)
CONDITIONS = Conditions(
    {"code": "c0de", "settings": {"seed": 1}}, {"gpu": "NVIDIA H200", "driver": "580"}
)
RESULT = {
    "variant_us": [1.0, 2.0, 3.0],
    "reference_us": [2.0, 4.0, 6.0],
    "speedup": 2.0,
    "speedup_low": 1.9,
    "speedup_high": 2.1,
    "reference": "cublas",
}
RECORD = Record(
    CELL,
    CONDITIONS,
    "tile-fp32",
    "tiles",
    SESSION.id,
    "2026-11-20T10:00:01Z",
    "ok",
    result=RESULT,
)


def test_cells_differ_in_everything_that_is_asked_for() -> None:
    other_tile = Reference(kernel="tile", params={"bm": 64})
    changes: list[dict[str, Any]] = [
        {"kernel": "other"},
        {"params": {"bm": 64, "bk": 16}},
        {"params": {"bm": 64, "bk": 8, "stages": 1}},
        {"dtype": "fp16"},
        {"layout": "TN"},
        {"size": {"m": 64, "n": 32, "k": 8}},
        {"regime": "cold"},
        {"reference": Reference(("cublas", "cublaslt"))},
        {"reference": other_tile},
        {"reference": replace(other_tile, params={"bm": 128})},
        {"reference": replace(other_tile, kernel="other")},
    ]
    cells = [CELL, *(replace(CELL, **change) for change in changes)]
    assert len({cell.id for cell in cells}) == len(cells)
    reordered = replace(CELL, params={"bk": 8, "bm": 64})
    assert reordered.id == CELL.id


def test_counters_are_of_a_kernel_whatever_it_is_timed_against() -> None:
    other = replace(CELL, reference=Reference(kernel="tile", params={"bm": 128}))
    assert other.in_regime(COUNTERS) == CELL.in_regime(COUNTERS) != CELL
    assert other.in_regime("warm") != CELL.in_regime("warm")


@pytest.mark.parametrize(
    "conditions",
    [
        replace(CONDITIONS, tree={"code": "other", "settings": {"seed": 1}}),
        replace(CONDITIONS, tree={"code": "c0de", "settings": {"seed": 2}}),
        replace(CONDITIONS, host={"gpu": "NVIDIA H100", "driver": "580"}),
        replace(CONDITIONS, host={"gpu": "NVIDIA H200", "driver": "590"}),
    ],
)
def test_a_key_is_a_cell_under_conditions_whoever_measured_it(
    conditions: Conditions,
) -> None:
    assert replace(RECORD, conditions=conditions).key != RECORD.key
    assert (
        replace(RECORD, session="other", time="later", sweep="other", result={}).key
        == RECORD.key
    )


def written(folder: Path, *records: Record, word: str = "tiles") -> Path:
    """A store's file with a session and some records."""
    with appending(folder, word) as append:
        for one in (SESSION, *records):
            append(one)
    return max(folder.glob("*.jsonl"), key=lambda path: path.stat().st_mtime_ns)


def test_what_is_appended_is_read_back_whole(tmp_path: Path) -> None:
    timeout = replace(
        RECORD,
        status="timeout",
        reason="no result\nwithin 60 s, µs",
        limit_s=60.0,
        result={},
    )
    counters = replace(
        RECORD, cell=CELL.in_regime(COUNTERS), result={"observations": []}
    )
    against = replace(
        RECORD,
        cell=replace(CELL, reference=Reference(kernel="tile", params={"bm": 128})),
    )
    path = written(tmp_path, RECORD, timeout, counters, against)
    assert len(path.read_text().splitlines()) == 5, "a line each"
    store = read_store(tmp_path)
    assert store.of(CELL) == [RECORD, timeout]
    assert store.of(counters.cell) == [counters]
    assert store.of(against.cell) == [against]
    assert store.sessions == {SESSION.id: SESSION}


def test_a_record_is_on_the_disk_before_the_next_cell_begins(tmp_path: Path) -> None:
    with appending(tmp_path, "tiles") as append:
        append(RECORD)
        assert read_store(tmp_path).of(CELL) == [RECORD], (
            "without closing or flushing the file"
        )


@pytest.mark.parametrize("kept", [0.2, 0.5, 0.9, 0.99])
def test_a_last_line_cut_short_is_left_out_and_is_no_damage(
    tmp_path: Path, kept: float
) -> None:
    path = written(tmp_path, RECORD)
    whole = path.read_bytes()
    last = len(whole.rstrip(b"\n").rpartition(b"\n")[2]) + 1
    path.write_bytes(whole[: len(whole) - last + int(kept * last)])
    store = read_store(tmp_path)
    assert (store.of(CELL), store.unreadable) == ([], [])
    written(tmp_path, RECORD)
    assert read_store(tmp_path).of(CELL) == [RECORD], (
        "a later job writes a file of its own"
    )


@pytest.mark.parametrize(
    "damage", ["", "{", "\0" * 40, "[" * 100_000, '{"schema": 1, "record": {"cell": 3}']
)
def test_damage_in_the_middle_is_counted_and_swallows_nothing(
    tmp_path: Path, damage: str
) -> None:
    path = written(tmp_path, RECORD, RECORD)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:2], damage, *lines[2:]]) + "\n")
    store = read_store(tmp_path)
    assert (len(store.of(CELL)), store.unreadable) == (2, [f"{path}: line 3"])


def changed(*place: str, value: Any) -> Any:
    """A record's line with another value at a place."""
    line = json.loads(json.dumps(RECORD.to_json()))
    *parents, last = place
    inner = line
    for name in parents:
        inner = inner[name]
    inner[last] = value
    return line


NOW = "2026-11-20T10:00:00Z"


def of_session(**fields: Any) -> Any:
    """A session's line with other fields."""
    return {"schema": 1, "session": {"id": "a", "started": NOW} | fields}


def of_result(name: str, value: Any) -> Any:
    """A record's line with another value in its result."""
    return changed("record", "result", name, value=value)


WRONG: list[tuple[Any, str]] = [
    ([1, 2], "TypeError"),
    ({}, "a field is missing or of another type: KeyError('schema')"),
    (changed("schema", value="one"), "TypeError"),
    ({"schema": 1}, "KeyError('record')"),
    (changed("record", "cell", value=3), "cell: 3 is not accepted"),
    (
        changed("record", "cell", "size", "m", value="x"),
        "cell.size.m: 'x' is not accepted",
    ),
    (
        changed("record", "status", value="fine"),
        "status: 'fine' is not accepted; accepted: ok, compile_error",
    ),
    (changed("record", "result", value={}), "result: the field 'speedup' is missing"),
    (of_result("speedup", float("nan")), "result.speedup: nan is not accepted"),
    (of_result("speedup", "2"), "result.speedup: '2' is not accepted"),
    (
        of_result("variant_us", [1.0, float("nan")]),
        "variant_us[1]: nan is not accepted",
    ),
    (of_result("check", {"max_error": "0"}), "result.check.max_error: '0' is not"),
    (of_session(id="../a"), "id: '../a' is not accepted"),
    (of_session(started="yesterday"), "started: 'yesterday' is not accepted"),
    (of_session(tree={"commit": "../../pwn"}), "tree.commit: '../../pwn' is not"),
    (of_session(gpu={"uuid": "../x"}), "gpu.uuid: '../x' is not accepted"),
    (changed("record", "time", value="2026-13-01T00:00:00Z"), "time: '2026-13-01"),
    (changed("record", "sweep", value="../x"), "sweep: '../x' is not accepted"),
    (changed("record", "session", value="../x"), "session: '../x' is not accepted"),
    (changed("record", "variant", value="a\nb"), "variant: 'a\\nb' is not accepted"),
]


@pytest.mark.parametrize(("line", "says"), WRONG, ids=map(str, range(len(WRONG))))
def test_a_line_that_is_no_record_is_refused_by_file_line_and_field(
    tmp_path: Path, line: Any, says: str
) -> None:
    path = written(tmp_path, RECORD)
    path.write_text(path.read_text() + json.dumps(line) + "\n")
    with pytest.raises(LadderError, match=re.escape(f"{path}: line 3: ")) as error:
        read_store(tmp_path)
    assert says in str(error.value)
    assert len(str(error.value)) < 1000


def test_records_of_a_newer_version_are_refused_and_the_file_named(
    tmp_path: Path,
) -> None:
    path = written(tmp_path, RECORD)
    path.write_text(
        path.read_text().replace(f'"schema": {SCHEMA}', f'"schema": {SCHEMA + 1}')
    )
    with pytest.raises(
        LadderError,
        match=rf"{path.name}: line 1: records of schema {SCHEMA + 1}.*up to {SCHEMA}",
    ):
        read_store(tmp_path)


# The archive.


def everything(records: Records) -> list[Any]:
    return sorted(
        json.dumps(one.to_json(), sort_keys=True)
        for one in (*records, *records.sessions.values())
    )


def test_an_archive_says_what_was_written_but_the_whole_uuid(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.session = replace(
        SESSION, gpu={**SESSION.gpu, "uuid": "GPU-01234567-89ab-cdef"}
    )
    lab.record(["bank_stride", "fp32_ladder"])
    store = read_store(lab.folder.records)
    write_archive(
        tmp_path / "archive/one.parquet", list(store), store.sessions.values()
    )
    archive = read_archive(tmp_path / "archive")
    assert list(archive.sessions.values()) == [public(lab.session)]
    assert archive.sessions[SESSION.id].gpu["uuid"] == "GPU-01234567"
    store.sessions = archive.sessions
    assert everything(archive) == everything(store)
    some = read_archive(tmp_path / "archive", ["bank_stride"])
    assert {one.cell.kernel for one in some} == {"bank_stride"}


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-50], lambda data: b"no parquet", lambda data: b""]
)
def test_a_damaged_archive_is_refused_by_name(
    tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "one.parquet"
    write_archive(path, [RECORD], [SESSION])
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(LadderError, match=r"one\.parquet: not an archive of records"):
        read_archive(tmp_path)


def test_records_of_every_schema_there_was_are_read() -> None:
    """A change of the records' form keeps these files and adds one."""
    assert {path.name for path in OLDEST.iterdir()} == {
        f"schema-{version}" for version in range(1, SCHEMA + 1)
    }
    for folder, read in itertools.product(OLDEST.iterdir(), (read_store, read_archive)):
        name, records = folder.name, read(folder)
        (record,) = records
        assert record.status == "ok", name
        assert record.cell == CELL, name
        assert record.key == RECORD.key, name
        assert record.result["variant_us"] == RESULT["variant_us"], name
        assert records.sessions[record.session].gpu["name"] == "NVIDIA H200", name
