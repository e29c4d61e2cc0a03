"""One cell over time: every record of it, by commit, driver and GPU, also those that left the tables."""

import json
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from tabulate import tabulate

from ladder.measure.choice import choice_in_words
from ladder.measure.store import Records
from ladder.model.cell import COUNTERS, cell_name
from ladder.model.errors import LadderError
from ladder.model.files import replace_file
from ladder.model.record import Session
from ladder.results.collect import summarised

_TEXTS = "cell params against session time commit driver gpu_uuid status said"
_SPEEDS = ["speedup", "speedup_low", "speedup_high"]
_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in _TEXTS.split()),
        *(("host_gpus", pa.int16()), ("median_us", pa.float64())),
        *((name, pa.float32()) for name in _SPEEDS),
    ]
)
"""A row a record of times, without the times. cell: its name as it was then, VARIANT@SIZE:REGIME. params: all
parameters, as JSON, since a name leaves out those with their default of then. against: kernel or libraries that it is
held against. session, gpu_uuid, host_gpus: the process, its GPU, and how many that host has. commit: digest of the tree
where no commit is known. said: of a record of a choice, which reference won. speedup with its 95 % interval.
"""
_COLUMNS = ["time", "commit", "driver", "GPU", "speed-up [95 %]", "time us", "from"]


def history_rows(records: Records, pattern: str = "*@*:*") -> pa.Table:
    """Records of times whose cell's name matches, a row each."""
    rows = []
    for record in records:
        cell, name = record.cell, cell_name(record.variant, record.cell)
        if cell.regime == COUNTERS or not fnmatchcase(name, pattern):
            continue
        session = records.sessions.get(record.session, Session(record.session, ""))
        row = {
            "cell": name,
            "params": json.dumps(dict(cell.params)),
            "against": cell.reference.kernel or " or ".join(cell.reference.libraries),
            "session": record.session,
            "time": record.time or session.started,
            "commit": str(session.tree.get("commit") or session.tree.get("digest") or "unknown")[:12],
            "driver": session.versions.get("driver") or record.conditions.host.get("driver"),
            "gpu_uuid": session.gpu.get("uuid"),
            "host_gpus": session.host.get("gpus"),
            "status": record.status,
        }
        if record.status == "ok" and not cell.kernel:
            row["said"] = choice_in_words(record.result)
        elif record.status == "ok":
            read = summarised(record.result)
            row |= {name: read.get(name) for name in ("median_us", *_SPEEDS)}
        rows.append(row)
    return pa.Table.from_pylist(rows, schema=_SCHEMA)


def write_history(path: Path, records: Records) -> None:
    """Write what is kept of records that leave the tables. Raises LadderError where the file exists."""
    if path.exists():
        raise LadderError(f"{path}: exists already; what was published is never rewritten")
    order, sink = [(name, "ascending") for name in ("cell", "time", "session")], pa.BufferOutputStream()
    pq.write_table(history_rows(records).sort_by(order), sink, compression="zstd", compression_level=19)
    replace_file(path, sink.getvalue())


def read_history(path: Path, pattern: str) -> pa.Table:
    """Rows of such a file whose cell's name matches. Raises LadderError for another file."""
    try:
        table = pq.read_table(path)
        if table.schema != _SCHEMA:
            raise ValueError(f"its columns are {', '.join(table.column_names)}")
    except (OSError, pa.ArrowException, ValueError) as error:
        raise LadderError(f"{path}: not a history of records: {error}") from error
    return table.filter(
        pa.array([fnmatchcase(name, pattern) for name in table["cell"].to_pylist()], pa.bool_())
    )


def cell_pattern(cell: str) -> str:
    """What names of cells must match: size and regime may be left out, either or both."""
    variant, colon, regime = cell.partition(":")
    variant += "" if "@" in variant else "@*"
    return variant + (colon + regime if colon else ":*")


def history(sources: Mapping[str, pa.Table]) -> list[str]:
    """A table as text of each cell: its records, the oldest first, those that several `sources` hold once.

    `sources` are rows by where they are from; names of cells are those that records were made under.
    """
    found: dict[str, dict[tuple[str, ...], list[str]]] = {}
    for place, table in sources.items():
        for row in table.to_pylist():
            params = ", ".join(f"{axis} = {value}" for axis, value in json.loads(row["params"]).items())
            said, us = row["said"] or row["status"], ""
            if (speedup := row["speedup"]) is not None:
                low, high = (row[f"speedup_{end}"] or speedup for end in ("low", "high"))
                said, us = f"{speedup:.4f} [{low:.4f}, {high:.4f}]", f"{row['median_us']:.6g}"
            gpu, driver = (row["gpu_uuid"] or "unknown")[:24], row["driver"] or "unknown"
            lines = found.setdefault(f"{row['cell']} ({params}) against {row['against']}", {})
            line = [row["time"], row["commit"], driver, gpu, said, us, place]
            lines.setdefault((row["session"], row["time"], said), line)
    return [
        f"{head}\n{tabulate(sorted(lines.values()), _COLUMNS, 'plain', disable_numparse=True)}"
        for head, lines in sorted(found.items())
    ]
