"""The archive of published records: a parquet file a publication, none of them ever rewritten."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from ladder.measure.store import Records, read_store
from ladder.model.errors import LadderError
from ladder.model.files import replace_file
from ladder.model.folders import PublishedFolder, RunFolder
from ladder.model.plan import Plan
from ladder.model.record import Record, Session, from_text
from ladder.model.schemas import SIZE_COLUMNS

_SAMPLES = ("variant_us", "reference_us")
_UUID_LETTERS = 12
"""Characters of a UUID that are published, GPU- included: enough to distinguish GPUs."""

_COLUMNS = ["kernel", "variant", "sweep", "session", "time", "status", "record"]
_TEXTS = [(name, pa.string()) for name in _COLUMNS]
_SCHEMA = pa.schema([*_TEXTS, *((name, pa.list_(pa.float64())) for name in _SAMPLES)])
"""A row a record. `record` is its line of a store without the times, which have columns of their own; the texts before
it are for queries. The sessions' lines are in the file's metadata.
"""


def public_uuid(uuid: str) -> str:
    """A GPU's UUID as it is published."""
    return uuid[:_UUID_LETTERS]


def public(session: Session) -> Session:
    """A session as it is published: the UUID shortened, the host known by its kind only."""
    uuid = session.gpu.get("uuid")
    return replace(session, gpu={**session.gpu, "uuid": public_uuid(uuid)}) if uuid else session


def write_archive(path: Path, records: Sequence[Record], sessions: Iterable[Session]) -> None:
    """Write one publication. Raises LadderError where the file exists: an archive only grows."""
    if path.exists():
        raise LadderError(f"{path}: exists already; published records are never rewritten")
    ordered = sorted(records, key=lambda record: (record.cell.kernel, record.variant, record.time))
    listed = json.dumps([public(session).to_json() for session in sessions])
    schema = _SCHEMA.with_metadata({"sessions": listed})
    rows = []
    for record in ordered:
        line, result = record.to_json(), dict(record.result)
        known = line["record"] | {"kernel": record.cell.kernel}
        known |= {name: result.pop(name, None) for name in _SAMPLES}
        rows.append(known | {"record": json.dumps({**line, "record": {**line["record"], "result": result}})})
    table = pa.Table.from_pylist(rows, schema=schema)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", compression_level=19)
    replace_file(path, sink.getvalue())


def read_archive(folder: Path, kernels: Iterable[str] | None = None) -> Records:
    """Published records, of some kernels or all; none where there is no such folder.

    Raises LadderError for a file that is damaged, or newer than this version.
    """
    every, wanted = Records(), sorted(set(kernels)) if kernels is not None else None
    for path in sorted(folder.glob("*.parquet")):
        one = read_archive_file(path, wanted)
        every.add((*one.sessions.values(), *one))
    return every


def read_archive_file(path: Path, kernels: Sequence[str] | None = None) -> Records:
    """Records of one publication, of some kernels or all. Raises LadderError as read_archive."""
    found: list[Record | Session] = []
    chosen = [("kernel", "in", ["", *kernels])] if kernels is not None else None
    try:
        sessions = json.loads(pq.read_schema(path).metadata[b"sessions"])
        rows = pq.read_table(path, columns=["record", *_SAMPLES], filters=chosen).to_pylist()
        found += [from_text(json.dumps(session), str(path)) for session in sessions]
        for number, row in enumerate(rows, 1):
            text = row.pop("record")
            times = {name: us for name, us in row.items() if us is not None}
            found.append(from_text(text, f"{path}: row {number}", **times))
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError, RecursionError) as error:
        raise LadderError(f"{path}: not an archive of records: {error}") from error
    return Records().add(found)


_OF_SAMPLES = pa.schema(
    [
        *((name, pa.string()) for name in ("cell", "variant", "session", "regime")),
        *((name, pa.int64()) for name in SIZE_COLUMNS),
        *(("order", pa.int32()), ("side", pa.string()), ("us", pa.float64())),
    ]
)
_AT_ONCE = 2000  # records whose samples are in memory as a table


def _samples(records: Sequence[Record]) -> pa.Table:
    rows = list[dict[str, Any]]()
    for record in records:
        about = {**vars(record), **record.cell.size, "cell": record.cell.id, "regime": record.cell.regime}
        for side, name in enumerate(_SAMPLES):
            us = record.result.get(name) or ()
            group, second = np.divmod(np.arange(len(us)), 2)
            order = 4 * group + np.where((group + side) % 2, 1 + second, 3 * second)
            rows.append({**about, "order": order, "side": name.removesuffix("_us"), "us": us})
    sampled = pd.DataFrame(rows, columns=_OF_SAMPLES.names).explode(["order", "us"]).dropna(subset="us")
    table = pa.Table.from_pandas(sampled, _OF_SAMPLES, preserve_index=False)
    return table.replace_schema_metadata()


def write_samples(path: Path, records: Iterable[Record]) -> None:
    """Write every raw time of records as a row: its cell (digest), session, and place among the launches of both sides.

    `order` counts from 0 in groups of four launches: variant, reference, reference, variant in even groups, and
    reference, variant, variant, reference in odd ones. `side` is variant or reference; `us` is the time.
    """
    every, sink = list(records), pa.BufferOutputStream()
    with pq.ParquetWriter(sink, _OF_SAMPLES, compression="zstd") as writer:
        for begin in range(0, len(every), _AT_ONCE):
            writer.write_table(_samples(every[begin : begin + _AT_ONCE]))
    replace_file(path, sink.getvalue())


def read_records(folder: Path) -> Records:
    """Every record under results/RUN/DEVICE or results/published/DEVICE. Raises LadderError where there is none."""
    given = RunFolder(folder).records
    if not given.is_dir():
        raise LadderError(f"{folder}: no records in it; a run is results/RUN/DEVICE")
    archive, store = read_archive(given), read_store(given)
    for place in store.unreadable:
        raise LadderError(f"{place}: not a record: it is no JSON")
    return store.add([*archive, *archive.sessions.values()])


def records_of(folder: RunFolder, published: Path | None, plans: Iterable[Plan]) -> Records:
    """The run's store, or where nothing is measured the published sessions with the records of the plans' kernels."""
    if published is None:
        return read_store(folder.records)
    kernels = {task.cell.kernel for plan in plans for task in plan.tasks}
    return read_archive(PublishedFolder(published).records, kernels)
