"""One cell over time: every record of it, by commit, driver and GPU."""

from collections.abc import Mapping
from fnmatch import fnmatchcase

from tabulate import tabulate

from ladder.measure.choice import choice_in_words
from ladder.measure.store import Records
from ladder.model.cell import COUNTERS, cell_name
from ladder.model.record import Session
from ladder.results.collect import summarised
from ladder.results.statistics import estimate

_COLUMNS = ["time", "commit", "driver", "GPU", "speed-up [95 %]", "time us", "from"]


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
            cell, name = record.cell, cell_name(record.variant, record.cell)
            if cell.regime == COUNTERS or not fnmatchcase(name, pattern):
                continue
            # A name leaves out parameters that have their default, which may have been another one.
            params = ", ".join(f"{axis} = {value}" for axis, value in cell.params.items())
            against = cell.reference.kernel or " or ".join(cell.reference.libraries)
            session = records.sessions.get(record.session, Session(record.session, ""))
            commit = str(session.tree.get("commit") or session.tree.get("digest") or "unknown")[:12]
            driver = session.versions.get("driver") or record.conditions.host.get("driver") or "unknown"
            gpu = str(session.gpu.get("uuid") or session.note or "unknown")[:24]
            speed, middle = record.status, ""
            if record.status == "ok" and not cell.kernel:
                speed = choice_in_words(record.result)
            elif record.status == "ok":
                read = summarised(record.result)
                ratio = estimate(read, "speedup")
                speed = f"{ratio.value:.4f} [{ratio.low:.4f}, {ratio.high:.4f}]"
                middle = f"{read['median_us']:.6g}"
            row = [record.time or session.started, commit, str(driver), gpu, speed, middle, place]
            rows = found.setdefault(f"{name} ({params}) against {against}", {})
            rows.setdefault((record.key, record.session, record.time), row)
    return [
        f"{head}\n{tabulate(sorted(rows.values()), _COLUMNS, 'plain', disable_numparse=True)}"
        for head, rows in sorted(found.items())
    ]
