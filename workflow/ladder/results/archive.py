"""The archive of published records: a parquet file a publication, none of them ever rewritten."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ladder.measure.store import Records
from ladder.model.errors import LadderError
from ladder.model.record import Record, Session, from_json

_SAMPLES = ("variant_us", "reference_us")
_UUID_LETTERS = 12
"""Of a published UUID, GPU- included: enough to tell GPUs apart."""

_SCHEMA = pa.schema(
    [
        ("schema", pa.int32()),
        ("key", pa.string()),
        ("kernel", pa.string()),
        ("variant", pa.string()),
        ("sweep", pa.string()),
        ("session", pa.string()),
        ("time", pa.string()),
        ("status", pa.string()),
        ("cell", pa.string()),
        ("conditions", pa.string()),
        ("rest", pa.string()),
        *((name, pa.list_(pa.float64())) for name in _SAMPLES),
    ]
)
"""A row a record. `cell`, `conditions` and `rest` are JSON; sessions are in the file's metadata."""


def public(session: Session) -> Session:
    """A session as it is published: the UUID shortened, the host known by its kind only."""
    uuid = session.gpu.get("uuid")
    gpu = {**session.gpu, "uuid": uuid[:_UUID_LETTERS]} if uuid else session.gpu
    return replace(session, gpu=gpu)


def _row(record: Record) -> dict[str, Any]:
    document = record.to_json()
    given = dict(document["record"])
    result = dict(given.pop("result"))
    samples = {name: result.pop(name, None) for name in _SAMPLES}
    row = {name: given.pop(name) for name in ("key", "variant", "sweep", "session", "time", "status")}
    texts = {name: json.dumps(given.pop(name)) for name in ("cell", "conditions")}
    rest = json.dumps({**given, "result": result})
    return {
        "schema": document["schema"],
        "kernel": record.cell.kernel,
        **row,
        **texts,
        "rest": rest,
        **samples,
    }


def write_archive(path: Path, records: Sequence[Record], sessions: Iterable[Session]) -> None:
    """Write one publication. Raises LadderError where the file exists: an archive only grows."""
    if path.exists():
        raise LadderError(f"{path}: exists already; published records are never rewritten")
    ordered = sorted(records, key=lambda record: (record.cell.kernel, record.variant, record.time))
    listed = json.dumps([asdict(public(session)) for session in sessions])
    schema = _SCHEMA.with_metadata({"sessions": listed})
    table = pa.Table.from_pylist([_row(record) for record in ordered], schema=schema)
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, compression="zstd", compression_level=19)


def _record(row: Mapping[str, Any]) -> Record:
    rest = json.loads(row["rest"])
    samples = {name: row[name] for name in _SAMPLES if row[name] is not None}
    given = {name: row[name] for name in ("key", "variant", "sweep", "session", "time", "status")}
    document = {
        "schema": row["schema"],
        "record": {
            **given,
            "cell": json.loads(row["cell"]),
            "conditions": json.loads(row["conditions"]),
            **{**rest, "result": {**rest["result"], **samples}},
        },
    }
    record = from_json(document)
    assert isinstance(record, Record)
    return record


def read_archive(folder: Path, kernels: Iterable[str] | None = None, into: Records | None = None) -> Records:
    """Published records, of some kernels or all; none where there is no such folder.

    Raises LadderError for a file that is damaged, or newer than this version.
    """
    found = Records() if into is None else into
    chosen = [("kernel", "in", sorted(set(kernels)))] if kernels is not None else None
    for path in sorted(folder.glob("*.parquet")):
        try:
            sessions = json.loads(pq.read_schema(path).metadata[b"sessions"])
            for document in sessions:
                found.add(Session(**document))
            for row in pq.read_table(path, filters=chosen).to_pylist():
                found.add(_record(row))
        except (OSError, pa.ArrowException, KeyError, TypeError, ValueError) as error:
            raise LadderError(f"{path}: not an archive of records: {error}") from error
        except LadderError as error:
            raise LadderError(f"{path}: {error}") from error
    found.sort()
    return found
