"""The archive of published records: a parquet file a publication, none of them ever rewritten."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pandas import DataFrame

from ladder.measure.store import Records, read_store
from ladder.model.errors import LadderError
from ladder.model.files import replace_file
from ladder.model.folders import PublishedFolder, RunFolder
from ladder.model.plan import Plan
from ladder.model.record import Record, Session, from_text
from ladder.model.schemas import SIZE_COLUMNS, TableRow

_SIDES = ("variant_us", "reference_us")
_PLACES = {"variant": np.array([0, 3, 5, 6]), "reference": np.array([1, 2, 4, 7])}
"""Where a side's launches stand among the eight of two groups."""
_UUID_LETTERS = 12
"""Characters of a UUID that are published, GPU- included: enough to distinguish GPUs."""

_TEXTS = ("kernel", "variant", "sweep", "session", "time", "status", "record")
_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in _TEXTS),
        *((side, pa.list_(pa.float64())) for side in _SIDES),
    ]
)
"""A row a record. `record` is its line of a store without the times, which have columns of their own; the texts before
it are for queries. The sessions' lines are in the file's metadata.
"""

_SAMPLES_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("cell", "variant", "session", "regime")),
        *((name, pa.int64()) for name in SIZE_COLUMNS),
        *(("order", pa.int32()), ("side", pa.string()), ("us", pa.float64())),
    ]
)
_RECORDS_AT_ONCE = 2000
"""Records whose samples are in memory as a table."""


def public_uuid(uuid: str) -> str:
    """A GPU's UUID as it is published."""
    return uuid[:_UUID_LETTERS]


def public(session: Session) -> Session:
    """A session as it is published: its UUID shortened."""
    uuid = session.gpu.get("uuid")
    if not uuid:
        return session
    return replace(session, gpu={**session.gpu, "uuid": public_uuid(uuid)})


def write_archive(
    path: Path, records: Iterable[Record], sessions: Iterable[Session]
) -> None:
    """Write one publication. Raises LadderError where the file exists: an archive only grows."""
    if path.exists():
        raise LadderError(
            f"{path}: exists already; published records are never rewritten"
        )
    records = sorted(
        records, key=lambda record: (record.cell.kernel, record.variant, record.time)
    )
    rows = []
    for record in records:
        line, result = record.to_json(), dict(record.result)
        row = {**line["record"], "kernel": record.cell.kernel}
        for side in _SIDES:
            row[side] = result.pop(side, None)
        line["record"] = {**line["record"], "result": result}
        rows.append({**row, "record": json.dumps(line)})
    lines = json.dumps([public(session).to_json() for session in sessions])
    schema = _SCHEMA.with_metadata({"sessions": lines})
    table = pa.Table.from_pylist(rows, schema=schema)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", compression_level=19)
    replace_file(path, sink.getvalue())


def read_archive(folder: Path, kernels: Iterable[str] | None = None) -> Records:
    """Published records, of some kernels or all; none where there is no such folder.

    Raises LadderError for a file that is damaged, or newer than this version.
    """
    records = Records()
    for path in sorted(folder.glob("*.parquet")):
        publication = read_archive_file(path, kernels)
        records.add((*publication.sessions.values(), *publication))
    return records


def read_archive_file(path: Path, kernels: Iterable[str] | None = None) -> Records:
    """Records of one publication, of some kernels or all. Raises LadderError as read_archive."""
    # A record of a choice among references is of no kernel.
    filters = [("kernel", "in", {"", *kernels})] if kernels is not None else None
    entries: list[Record | Session] = []
    try:
        sessions = json.loads(pq.read_schema(path).metadata[b"sessions"])
        table = pq.read_table(path, columns=["record", *_SIDES], filters=filters)
        for session in sessions:
            entries.append(from_text(json.dumps(session), str(path)))
        for number, row in enumerate(table.to_pylist(), 1):
            text = row.pop("record")
            times = {side: us for side, us in row.items() if us is not None}
            entries.append(from_text(text, f"{path}: row {number}", **times))
    except (
        OSError,
        pa.ArrowException,
        KeyError,
        TypeError,
        ValueError,
        RecursionError,
    ) as error:
        raise LadderError(f"{path}: not an archive of records: {error}") from error
    return Records().add(entries)


def _samples(records: Sequence[Record]) -> pa.Table:
    rows = list[TableRow]()
    for record in records:
        cell = record.cell
        about = {**vars(record), **cell.size, "cell": cell.id, "regime": cell.regime}
        for side, places in _PLACES.items():
            us = record.result.get(f"{side}_us") or ()
            pair, place = np.divmod(np.arange(len(us)), 4)
            order = 8 * pair + places[place]
            rows.append({**about, "order": order, "side": side, "us": us})
    samples = DataFrame(rows, columns=_SAMPLES_SCHEMA.names)
    samples = samples.explode(["order", "us"]).dropna(subset="us")
    table = pa.Table.from_pandas(samples, _SAMPLES_SCHEMA, preserve_index=False)
    return table.replace_schema_metadata()


def write_samples(path: Path, records: Iterable[Record]) -> None:
    """Write every raw time of records as a row: its cell (digest), session, and place among the launches of both sides.

    `order` counts from 0 in groups of four launches: variant, reference, reference, variant in even groups, and
    reference, variant, variant, reference in odd ones. `side` is variant or reference; `us` is the time.
    """
    records, sink = list(records), pa.BufferOutputStream()
    with pq.ParquetWriter(sink, _SAMPLES_SCHEMA, compression="zstd") as writer:
        for begin in range(0, len(records), _RECORDS_AT_ONCE):
            writer.write_table(_samples(records[begin : begin + _RECORDS_AT_ONCE]))
    replace_file(path, sink.getvalue())


def records_of(
    folder: RunFolder, published: Path | None, plans: Iterable[Plan]
) -> Records:
    """The run's store, or where nothing is measured the published sessions with the records of the plans' kernels."""
    if published is None:
        return read_store(folder.records)
    kernels = {task.cell.kernel for plan in plans for task in plan.tasks}
    return read_archive(PublishedFolder(published).records, kernels)
