"""One cell over time: every record of it, by commit, driver and GPU."""

from collections.abc import Callable, Iterable, Mapping

from ladder.measure.store import Records
from ladder.model.cell import COUNTERS, Cell
from ladder.model.record import Record, Session
from ladder.results.collect import times

_COLUMNS = ("time", "commit", "driver", "GPU", "regime", "reference", "speed-up [95 %]", "time us", "from")


def _row(record: Record, session: Session, place: str) -> list[str]:
    tree, result = session.tree, record.result
    speed, middle = record.status, ""
    if record.status == "ok":
        speed = f"{result['speedup']:.4f} [{result['speedup_low']:.4f}, {result['speedup_high']:.4f}]"
        middle = f"{times(result)['median_us']:.6g}"
    commit = str(tree.get("commit") or tree.get("digest") or "unknown")[:12]
    driver = session.versions.get("driver") or record.conditions.host.get("driver") or "unknown"
    gpu = str(session.gpu.get("uuid") or session.note or "unknown")[:24]
    reference = result.get("reference") or record.cell.reference.kernel
    begun = record.time or session.started
    return [begun, commit, str(driver), gpu, record.cell.regime, str(reference), speed, middle, place]


def history(sources: Mapping[str, Records], wanted: Callable[[Cell], bool]) -> list[list[str]]:
    """Rows about every record of the wanted cells, the oldest first; the first row names the columns.

    `sources` are records by where they are from. A record that several hold is told once.
    """
    rows: dict[tuple[str, str, str], list[str]] = {}
    for place, records in sources.items():
        for record in records:
            if record.cell.regime != COUNTERS and wanted(record.cell):
                session = records.sessions.get(record.session, Session(record.session, ""))
                rows.setdefault((record.key, record.session, record.time), _row(record, session, place))
    return [list(_COLUMNS), *sorted(rows.values())]


def aligned(rows: Iterable[list[str]]) -> str:
    """Rows as text with their columns below one another."""
    listed = list(rows)
    widths = [max(len(row[column]) for row in listed) for column in range(len(listed[0]))]
    lines = ("  ".join(f"{text:<{width}}" for text, width in zip(row, widths, strict=True)) for row in listed)
    return "\n".join(line.rstrip() for line in lines)
