"""One cell over time: every record of it, by commit, driver and GPU."""

from collections.abc import Mapping
from fnmatch import fnmatchcase

from tabulate import tabulate

from ladder.measure.store import Records
from ladder.model.cell import COUNTERS, Cell, cell_name
from ladder.model.record import Record, Session
from ladder.results.collect import times

_COLUMNS = ["time", "commit", "driver", "GPU", "speed-up [95 %]", "time us", "from"]


def _row(record: Record, session: Session, place: str) -> list[str]:
    tree, result = session.tree, record.result
    speed, middle = record.status, ""
    if record.status == "ok":
        speed = f"{result['speedup']:.4f} [{result['speedup_low']:.4f}, {result['speedup_high']:.4f}]"
        middle = f"{times(result)['median_us']:.6g}"
    commit = str(tree.get("commit") or tree.get("digest") or "unknown")[:12]
    driver = session.versions.get("driver") or record.conditions.host.get("driver") or "unknown"
    gpu = str(session.gpu.get("uuid") or session.note or "unknown")[:24]
    return [record.time or session.started, commit, str(driver), gpu, speed, middle, place]


def _head(name: str, cell: Cell) -> str:
    """What the name leaves out: all parameters, and what the cell is timed against."""
    params = ", ".join(f"{axis} = {value}" for axis, value in cell.params.items())
    against = cell.reference.kernel or " or ".join(cell.reference.libraries)
    return f"{name} ({params}) against {against}"


def history(sources: Mapping[str, Records], pattern: str) -> list[str]:
    """A table as text of each cell whose name matches: its records, the oldest first, those that several hold once.

    `sources` are records by where they are from; names are those that records were made under. Size and regime may be
    left out of `pattern`.
    """
    pattern += "" if "@" in pattern else "@*"
    pattern += "" if ":" in pattern else ":*"
    found: dict[str, dict[tuple[str, str, str], list[str]]] = {}
    for place, records in sources.items():
        for record in records:
            name = cell_name(record.variant, record.cell)
            if record.cell.regime != COUNTERS and fnmatchcase(name, pattern):
                session = records.sessions.get(record.session, Session(record.session, ""))
                rows = found.setdefault(_head(name, record.cell), {})
                rows.setdefault((record.key, record.session, record.time), _row(record, session, place))
    return [
        f"{head}\n{tabulate(sorted(rows.values()), _COLUMNS, 'plain', disable_numparse=True)}"
        for head, rows in sorted(found.items())
    ]
