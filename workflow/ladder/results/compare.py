"""Two sets of records side by side: what got faster or slower beyond noise, what appeared, what broke."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import geometric_mean

from ladder.measure.store import Records
from ladder.model.cell import COUNTERS
from ladder.model.record import Record
from ladder.results.collect import times
from ladder.results.noise import margin
from ladder.results.statistics import Estimate, size_label

UNKNOWN = "unknown GPU"


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
    changes: tuple[Change, ...]
    broken: tuple[str, ...] = ()
    repaired: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    new: tuple[str, ...] = ()

    def faster(self) -> list[Change]:
        """Cells faster beyond noise, the greatest gain first."""
        found = [change for change in self.changes if change.beyond_noise and change.faster > 0]
        return sorted(found, key=lambda change: -change.faster)

    def slower(self) -> list[Change]:
        """Cells slower beyond noise, the greatest loss first."""
        found = [change for change in self.changes if change.beyond_noise and change.faster < 0]
        return sorted(found, key=lambda change: change.faster)

    def regressions(self, threshold: float) -> list[Change]:
        """Cells slower by more than `threshold` (a share), beyond noise."""
        return [change for change in self.slower() if -change.faster > threshold]


Latest = dict[str, dict[str, Record]]
"""By cell and GPU the latest record."""


def latest(records: Records) -> Latest:
    """The latest timing of every cell on every GPU."""
    found: Latest = {}
    for record in records:
        if record.cell.regime != COUNTERS:
            session = records.sessions.get(record.session)
            gpu = str(session.gpu.get("uuid") or UNKNOWN) if session else UNKNOWN
            found.setdefault(record.cell.id, {})[gpu] = record
    return found


def name_of(record: Record) -> str:
    """A cell as people write it: variant, size and regime."""
    return f"{record.variant}@{size_label(record.cell.size)}:{record.cell.regime}"


def _speed(record: Record) -> Estimate:
    result = record.result
    return Estimate(result["speedup"], result["speedup_low"], result["speedup_high"])


def _rate(record: Record) -> Estimate:
    """Launches per second, so that more is faster."""
    found = times(record.result)
    value, low, high = (found[name] for name in ("median_us", "median_us_high", "median_us_low"))
    return Estimate(1e6 / float(str(value)), 1e6 / float(str(low)), 1e6 / float(str(high)))


MEASURES: Mapping[str, tuple[Callable[[Record], Estimate], str]] = {
    "speedup": (_speed, "x"),
    "time": (_rate, " launches/s"),
}
"""What is compared, by name, and its unit."""


def _pooled(records: Iterable[Record], by: str) -> Estimate:
    """The mean over GPUs; its ends are the means of their ends."""
    found = [MEASURES[by][0](record) for record in records]
    ends = zip(*((one.value, one.low, one.high) for one in found), strict=True)
    return Estimate(*(geometric_mean(end) for end in ends))


def _compared(where: str, share: float, old: Latest, new: Latest, by: str) -> Comparison:
    """Cells of both, each with its records of one or more GPUs; a cell is ok where any of them is."""
    names = {cell: name_of(next(iter(given.values()))) for cell, given in {**old, **new}.items()}
    changes, broken, repaired = [], [], []
    for cell in (cell for cell in old if cell in new):
        ok = [[one for one in side[cell].values() if one.status == "ok"] for side in (old, new)]
        states = [next(iter(side[cell].values())).status for side in (old, new)]
        if ok[0] and ok[1]:
            before, after = _pooled(ok[0], by), _pooled(ok[1], by)
            faster = after.value / before.value - 1
            apart = after.low > before.high or after.high < before.low
            changes.append(Change(names[cell], before, after, faster, apart and abs(faster) > share))
        elif ok[0]:
            broken.append(f"{names[cell]}: ok -> {states[1]}")
        elif ok[1]:
            repaired.append(f"{names[cell]}: {states[0]} -> ok")
    missing = tuple(names[cell] for cell in old if cell not in new)
    added = tuple(names[cell] for cell in new if cell not in old)
    return Comparison(where, share, tuple(changes), tuple(broken), tuple(repaired), missing, added)


def compare(
    before: Records, after: Records, by: str = "speedup", share: float | None = None
) -> list[Comparison]:
    """Comparisons on each GPU that both have measured, then of all GPUs pooled.

    A change is beyond noise where the 95 % intervals do not overlap and it exceeds `share`, by default the noise
    model's for one GPU, or for several.
    """
    old, new = latest(before), latest(after)
    cards = [{gpu for given in side.values() for gpu in given} for side in (old, new)]
    found = []
    shared = sorted((cards[0] & cards[1]) - {UNKNOWN})
    for gpu in shared if len(cards[0] | cards[1]) > 1 else ():
        sides = [
            {cell: {gpu: given[gpu]} for cell, given in side.items() if gpu in given} for side in (old, new)
        ]
        found.append(_compared(gpu, margin(True) if share is None else share, sides[0], sides[1], by))
    same = cards[0] == cards[1] and UNKNOWN not in cards[0]
    where = f"{len(cards[0])} and {len(cards[1])} GPUs pooled" if len(cards[0] | cards[1]) > 1 else "one GPU"
    return [*found, _compared(where, margin(same) if share is None else share, old, new, by)]


def _lines(title: str, changes: list[Change], unit: str, most: int) -> list[str]:
    if not changes:
        return []
    width = max(len(change.name) for change in changes[:most])
    lines = [f"{title} ({len(changes)}):"]
    for change in changes[:most]:
        numbers = f"{change.before.value:.4g} -> {change.after.value:.4g}{unit}"
        lines.append(f"  {100 * change.faster:+7.2f} %  {change.name:<{width}}  {numbers}")
    return lines + _rest(len(changes), most)


def _rest(total: int, most: int) -> list[str]:
    return [f"  … and {total - most} more"] if total > most else []


def _listing(title: str, names: tuple[str, ...], most: int) -> list[str]:
    lines = [f"{title} ({len(names)}):", *(f"  {name}" for name in names[:most]), *_rest(len(names), most)]
    return lines if names else []


def text(result: Comparison, by: str, most: int = 40) -> str:
    """What differs, for people to read."""
    unit = MEASURES[by][1]
    same = len(result.changes) - len(result.faster()) - len(result.slower())
    lines = [f"{result.where}: changes beyond {100 * result.margin:g} % count"]
    lines += _lines("slower", result.slower(), unit, most)
    lines += _lines("faster", result.faster(), unit, most)
    lines += _listing("broken", result.broken, most)
    lines += _listing("repaired", result.repaired, most)
    lines += _listing("missing in B", result.missing, most)
    lines += _listing("new in B", result.new, most)
    lines.append(f"{len(result.changes)} cells matched, {same} of them alike within noise")
    return "\n".join(lines)


def describe(records: Records) -> str:
    """GPUs, dates and trees of a set of records, as far as they are known."""
    sessions = sorted(records.sessions.values(), key=lambda session: session.started)
    names = dict.fromkeys(str(one.gpu.get("name")) for one in sessions if one.gpu.get("name"))
    cards = {one.gpu.get("uuid") for one in sessions}
    dates = dict.fromkeys(one.started[:10] for one in sessions if one.started)
    commits = dict.fromkeys(str(one.tree["commit"])[:12] for one in sessions if one.tree.get("commit"))
    ends = [list(dates)[0], list(dates)[-1]] if dates else []
    parts = [
        *names,
        f"{len(cards)} GPUs" if len(cards) > 1 else "",
        " to ".join(dict.fromkeys(ends)),
        *commits,
    ]
    return ", ".join(part for part in parts if part) or "unknown origin"
