"""Two sets of records side by side: what got faster or slower beyond noise, what appeared, what broke."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ladder.measure.plan_records import standing
from ladder.measure.store import Records
from ladder.model.cell import COUNTERS, cell_name
from ladder.model.record import Record
from ladder.results.collect import summarised
from ladder.results.run_data import mean
from ladder.results.statistics import Estimate

UNKNOWN, OTHER_LIBRARY = "unknown GPU", "over another library"
WITHIN_A_GPU, BETWEEN_GPUS = 0.005, 0.025
"""Shares within which speed-ups agree from session to session, on one GPU and between GPUs of a model.

Seen on H200s: of 1,496 cells measured on two cards 99 % agree within 2.45 %, 95 % within 1.8 %.
"""


@dataclass(frozen=True)
class Change:
    """One matched cell: how much faster B is than A, as a share (0.02 is 2 % faster)."""

    name: str
    before: Estimate
    after: Estimate
    faster: float
    beyond_noise: bool


@dataclass(frozen=True)
class Comparison:
    """Everything that differs between two sets of records, on one GPU or pooled, and what was matched."""

    where: str
    margin: float
    changes: Sequence[Change]
    others: Mapping[str, Sequence[str]]
    broken: frozenset[str]
    """Ids of the cells that were ok and no longer are."""
    """Cells that cannot be compared: `broken` and `repaired` with their statuses, `missing in B`, `new in B`.

    And where A and B have no speed-up over the same library, since either took the one that was faster there.
    """

    def beyond_noise(self) -> tuple[list[Change], list[Change]]:
        """(slower, faster) cells, the greatest difference first."""
        found = [change for change in self.changes if change.beyond_noise]
        found.sort(key=lambda change: -abs(change.faster))
        return [one for one in found if one.faster < 0], [one for one in found if one.faster > 0]


Latest = dict[str, dict[str, Record]]  # by cell and GPU the record that stands


def latest(records: Records) -> Latest:
    """The record that stands for a cell on a GPU, of those made under the conditions of the latest."""

    def gpu_of(record: Record) -> str:
        session = records.sessions.get(record.session)
        return str(session.gpu.get("uuid") or UNKNOWN) if session else UNKNOWN

    last = {
        (one.cell.id, gpu_of(one)): one for one in records if one.cell.kernel and one.cell.regime != COUNTERS
    }
    found: Latest = {}
    for (cell, gpu), record in last.items():
        alike = [one for one in records.same_conditions(record) if gpu_of(one) == gpu]
        found.setdefault(cell, {})[gpu] = standing(alike)
    return found


def _compared(where: str, share: float, old: Latest, new: Latest) -> Comparison:
    """Cells of both, each with its records of one or more GPUs; a cell is ok where any of them is."""
    shown = {cell: next(iter(given.values())) for cell, given in {**old, **new}.items()}
    names = {cell: cell_name(one.variant, one.cell) for cell, one in shown.items()}
    changes, broken = [], set[str]()
    others: dict[str, list[str]] = {"broken": [], "repaired": [], OTHER_LIBRARY: []}
    for cell in (cell for cell in old if cell in new):
        sides = [list(side[cell].values()) for side in (old, new)]
        ok = [[one for one in side if one.status == "ok"] for side in sides]
        over = [{str(one.result["reference"]) for one in side} for side in ok]
        if all(ok) and not (alike := over[0] & over[1]):
            others[OTHER_LIBRARY].append(
                f"{names[cell]}: {' -> '.join(', '.join(sorted(one)) for one in over)}"
            )
        elif all(ok):
            ok = [[one for one in side if one.result["reference"] in alike] for side in ok]
            before, after = (mean([summarised(one.result) for one in side]).measured for side in ok)
            faster = after.value / before.value - 1
            apart = after.low > before.high or after.high < before.low
            changes.append(Change(names[cell], before, after, faster, apart and abs(faster) > share))
        elif any(ok):
            states = ["ok" if good else side[0].status for good, side in zip(ok, sides, strict=True)]
            others["broken" if ok[0] else "repaired"].append(f"{names[cell]}: {' -> '.join(states)}")
            if ok[0]:
                broken.add(cell)
    others["missing in B"] = [names[cell] for cell in old if cell not in new]
    others["new in B"] = [names[cell] for cell in new if cell not in old]
    return Comparison(where, share, changes, others, frozenset(broken))


def compare(before: Records, after: Records) -> list[Comparison]:
    """Comparisons of speed-ups on each GPU that both have measured, then of all GPUs pooled.

    A change is beyond noise where the 95 % intervals do not overlap and it exceeds the share for one GPU, or several.
    """
    old, new = latest(before), latest(after)
    cards = [{gpu for given in side.values() for gpu in given} for side in (old, new)]
    several = len(cards[0] | cards[1]) > 1
    found = []
    for gpu in sorted((cards[0] & cards[1]) - {UNKNOWN}) if several else ():
        there = [{cell: {gpu: on[gpu]} for cell, on in side.items() if gpu in on} for side in (old, new)]
        found.append(_compared(gpu, WITHIN_A_GPU, *there))
    same = cards[0] == cards[1] and UNKNOWN not in cards[0]
    where = f"{len(cards[0])} and {len(cards[1])} GPUs pooled" if several else "one GPU"
    return [*found, _compared(where, WITHIN_A_GPU if same else BETWEEN_GPUS, old, new)]
