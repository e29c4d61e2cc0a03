"""What a speed-up reads elsewhere: components of its variance, intervals for another GPU, and whether they hold.

The logarithm of a speed-up, read in one session, is taken as the cell's own value plus independent deviations: of the
kind of host (hosts with one number of GPUs), of the GPU in it, of the session on that GPU, and a residual within the
session. Cells of a class share the variances of these; `prepare_sessions` says what a class is.

Events add to a launch that is timed alone: the clock's floor, the time of an empty kernel, less what that kernel itself
takes. It is more on another kind of host; a device clock adds nothing. Readings are compared as if each had the same
added.

Frames about classes have the class as their index, those about cells the cell; rows of sessions name both.
"""

import functools
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from itertools import chain, pairwise
from multiprocessing import get_context
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import digamma, ndtri, polygamma, stdtrit

from ladder.measure.process_lifetime import die_with_parent
from ladder.model.schemas import TableRow
from ladder.results import tables
from ladder.results.hosts import host_deviation
from ladder.results.statistics import BOTH, CELL, FEW, OVER, records
from ladder.results.verdicts import LIBRARIES, NORMAL, SESSION

Frame = pd.DataFrame

_TIMES = ["median_us", "reference_median_us"]
_EDGES_US = (20, 100, 1000)
_COMPONENTS = ["residual", "session", "gpu", "host"]
_PREDICTED = ["predicted_low", "predicted_high"]
_MODELLED = ["cell", "kind", "class", "regime", "gpu", "host", "session", "started", *_TIMES]
_MODELLED += ["speedup_low", "speedup_high", "log", "level", "alone", "shift", "unshifted", "variance"]
"""What of sessions the model reads: copies without the rest are quicker."""
_LAUNCHED_ALONE = ("cold",)
_FLOORS_APART_US = 1.8
"""How far apart the clock's floors of two kinds of host may be.

Source: the first release's sessions of seven H200s, whose short cells read 1.66 to 1.79 us longer on hosts with two or
more GPUs than on hosts with one.
"""
_CHAINS_APART_US = 0.1
"""How far apart launches of a chain may be on two kinds of host.

Source: 61 chains of launches of 3 to 30 us of the third publication. On H200s alone in their host they took 0.1 us less
(median) than on one of two. So its coverage of such cells without a kind of host is no independent test.
"""
_EMPTY_US = 0.7
"""What an empty kernel takes itself, of the clock's floor.

Source: 73 cells of the third publication, read by both clocks. By events they take the floor less 0.7 us (median) more.
"""
_EITHER_CLOCK_US = (63, 71)
"""How long launches take that either clock may time: about 70 us by events, below which the timer takes the device
clock.

Source: the same 73 cells.
"""
_OF_HOSTS = 0.90
"""Half of all hosts are taken to be of a kind that a cell was read on. The interval then needs no more of the others
than 90 %, to hold 95 % of both.
"""
PRIOR_CELLS = 20
"""How many cells a class's prior counts as: the pool of its kind of reference, and for hosts earlier sessions."""
_ROUNDING = 1e-9
"""Shares, and squares over what is expected of them, that differ by less are equal: processors round differently."""
_TOO_FEW = "too few sessions of a cell: what another GPU reads takes two GPUs and its check three"


def _classes(rows: Frame) -> Frame:
    """`kind` of reference, `bound` of the pair, and `class` with both, how long the shorter side takes, and the regime.

    Libraries choose among algorithms, and may choose another one next time. A copy does not, and counts as a kernel.
    `rows` has the columns of sessions.csv and `cell`; a pair of which nothing says what binds it counts as "compute".
    """
    shorter = rows.groupby("cell")[_TIMES].transform("median").min(axis=1)
    between = [f"{low} to {high} us" for low, high in pairwise(_EDGES_US)]
    lasting = np.array([f"below {_EDGES_US[0]} us", *between, f"over {_EDGES_US[-1]} us"])
    spans = lasting[np.searchsorted(_EDGES_US, shorter)]
    kinds = np.where(rows["reference"].isin(LIBRARIES), "library", "kernel")
    bounds = rows["bound"].fillna("compute").to_numpy(object)
    words = zip(kinds, bounds, spans, rows["regime"], strict=True)
    return Frame({"kind": kinds, "bound": bounds, "class": [", ".join(each) for each in words]}, dtype=object)


def _lengthened(times: Frame, shift_us: Any) -> Any:
    """Change of the log speed-up where launches of both sides take `shift_us` longer; no floor is half of a time."""
    own, other = (np.log1p(np.maximum(shift_us / times[name], -0.5)) for name in _TIMES)
    return other - own


def _added_by_clock(found: Frame) -> Frame:
    """What the clock adds to launches that are timed alone, by its floor.

    alone: 1 for cells that events time, else 0. shift: what it adds less what events with the median floor do, us.
    unshifted: the shift of a reading by the device clock, in cells that either clock may time, else 0.
    """
    single, floor = found["regime"].isin(_LAUNCHED_ALONE), found["clock_floor_us"].astype(float)
    events = single & ~found["clock"].eq("device").fillna(False).astype(bool)
    usual = floor.median() - _EMPTY_US
    added = (floor - _EMPTY_US).fillna(usual).where(events, 0.0)
    lasting = (found[_TIMES].min(axis=1) - added).groupby(found["cell"]).transform("median")
    either = single & lasting.between(*_EITHER_CLOCK_US)
    alone, shift = (events | either).astype(float), (added - usual).fillna(0.0)
    return Frame({"alone": alone, "shift": shift * alone, "unshifted": -usual * either}).fillna(0.0)


def prepare_sessions(sessions: Frame) -> Frame:
    """The rows of sessions.csv, one per cell and session, with what the model needs besides their columns:

    cell: a number for each value of `CELL`. kind, bound, class: texts, see `_classes`. gpu: text; one that is
    not known is the session's own. host: the number of its GPUs, 0 where unknown. log: of the speed-up. level: the same
    if the session had the median floor. alone, shift, unshifted: see `_added_by_clock`. variance: of the session's
    median, by its interval.

    A session that chose the cell as one of the fastest is left out: that number is too high by chance.
    """
    kept = sessions[~sessions["chose"].fillna(False)].dropna(subset=["speedup", *_TIMES])
    found = kept.drop_duplicates([*CELL, "session"], keep="last", ignore_index=True)
    found["cell"] = found.groupby(CELL, dropna=False).ngroup()
    found = found.drop(columns="bound").join(_classes(found))
    found["gpu"] = found["gpu_uuid"].fillna(found["session"]).astype(str)
    found["host"] = found["host_gpus"].astype(float).fillna(0.0)
    found["log"] = np.log(found["speedup"])
    found["variance"] = (np.log(found["speedup_high"] / found["speedup_low"]) / 2 / NORMAL) ** 2
    found = found.join(_added_by_clock(found))
    found["level"] = found["log"] + _lengthened(found, -found["shift"])
    return found


def counted_once(found: Frame) -> Frame:
    """The same rows for what is estimated of many cells: one that several sweeps name is one cell, and counts once."""
    partner = found["reference"].replace(dict.fromkeys(BOTH, "the faster of both"))
    same = [found[name] for name in CELL if name not in ("sweep", "baseline")]
    rows = found.assign(cell=found.groupby([*same, partner], dropna=False).ngroup())
    rows = rows.drop_duplicates(["cell", "session"], ignore_index=True)
    return rows.drop(columns=["kind", "bound", "class"]).join(_classes(rows))[_MODELLED]


def pairs_of(found: Frame) -> Frame:
    """Every two sessions of a cell: cell, kind, class, how far `apart` their levels are, and what they differ in, `of`.

    "session": only that, both are on one GPU; "gpu": on two in hosts of one kind; "host": in hosts of two kinds.
    Columns: kind, class, cell, session, gpu, host, level.
    """
    about = ["cell", "session", "gpu", "host", "level"]
    pairs = found[["kind", "class", *about]].merge(found[about], on="cell", suffixes=("", "_2"))
    pairs = pairs[pairs["session"] < pairs["session_2"]]
    same = [pairs["gpu"] == pairs["gpu_2"], pairs["host"] == pairs["host_2"]]
    of = np.select(same, ["session", "gpu"], "host")
    return pairs.assign(apart=(pairs["level"] - pairs["level_2"]).abs(), of=of)[
        ["cell", "kind", "class", "apart", "of"]
    ]


def _sizes(group: Any) -> Any:
    """How many rows the group of each row has."""
    return np.bincount(group)[group]


def _spreads(pairs: Frame, by: str | list[str], share: float = 0.95) -> "pd.Series[float]":
    """Of each group variance of one reading by differences of two: from a quantile of these, as if they were normal.

    A few outliers do not move a quantile of pairwise differences (Rousseeuw & Croux 1993; Genton 1998), and that of
    95 % is what a 95 % interval needs, whatever the tails. Each cell counts once.
    """
    pairs = pairs.sort_values("apart")
    group = pairs.groupby(by).ngroup()
    grouped = pd.Series(1 / _sizes(pairs.groupby([group, "cell"]).ngroup()), pairs.index).groupby(group)
    # Of two values that a share lies between, the smaller one.
    reached = grouped.cumsum() / grouped.transform("sum") >= share - _ROUNDING
    normal: float = ndtri((1 + share) / 2)
    return (pairs[reached].drop_duplicates(by).set_index(by)["apart"] / normal) ** 2 / 2


def between_hosts(pairs: Frame, by: str) -> Frame:
    """Of each group of `pairs_of` with pairs on two kinds of host and others: how many `cells` were read on two, and
    the `variance` that the kind adds.

    By the quantile that the interval needs, `_OF_HOSTS`.
    """
    two = pairs["of"] == "host"
    alike, other = (_spreads(own, by, _OF_HOSTS) for own in (pairs[~two], pairs[two]))
    cells = pairs[two].groupby(by)["cell"].nunique()
    return Frame({"cells": cells, "variance": (other - alike).clip(lower=0.0)}).dropna()


def components(found: Frame) -> Frame:
    """Variances of log speed-ups by `class`: residual, session, gpu, host; and freedom, scale of its cells.

    Sessions on one GPU differ by what sessions add, those on two GPUs in hosts of one kind also by what GPUs add, those
    in two kinds of host by all. So the differences of these sums are the components, 0 at least (moments, as in
    Henderson 1953 for unbalanced data). Each sum is shrunk towards that of all classes with this kind of reference,
    which counts as 20 cells (Smyth 2004); what hosts add towards that of sessions that ended before, `host_deviation`.
    Without pairs on one GPU, `gpu` holds what sessions add; gpu and host are NaN where no two GPUs were compared over
    this kind of reference.
    """
    pairs = pairs_of(found)
    pooled: dict[Any, float] = _spreads(pairs, ["kind", "of"]).to_dict()
    counts = pairs.groupby(["class", "of"])["cell"].nunique().to_dict()
    of_class = _spreads(pairs, ["class", "of"]).to_dict()
    of_hosts = between_hosts(pairs, "class").T.to_dict()
    compared = {kind for kind, of in pooled if of != "session"}
    began = str(found["started"].min())
    rows = []
    residuals: dict[Any, float] = found.groupby(["kind", "class"])["variance"].median().to_dict()
    for (kind, name), below in residuals.items():
        row: TableRow = {"class": name, "residual": below}
        for of in ("session", "gpu"):
            cells, spread = counts.get((name, of), 0), of_class.get((name, of), 0.0)
            total = (cells * spread + PRIOR_CELLS * pooled.get((kind, of), np.nan)) / (cells + PRIOR_CELLS)
            row[of] = np.maximum(total - below, 0.0)
            below = float(np.fmax(total, below))
        apart = of_hosts.get(name, {"cells": 0, "variance": 0.0})
        prior = host_deviation(str(name), began) ** 2
        total = (apart["cells"] * apart["variance"] + PRIOR_CELLS * prior) / (apart["cells"] + PRIOR_CELLS)
        row["host"] = total if kind in compared else np.nan
        rows.append(row)
    known = Frame(rows, columns=["class", *_COMPONENTS]).set_index("class").astype(float)
    return known.join(_scales(found, known))


def _cells(found: Frame, known: Frame) -> Frame:
    """By cell: what its sessions say, and what the components of its class lead to expect.

    kind, class. count: of sessions. log, level, alone and times: means. freedom: sessions less kinds of host. squares:
    of deviations from the mean of their kind of host, over what is expected of one.
    mean, more: variance expected of the mean of the sessions, and of one more reading about it, without hosts.
    hosts: variance that another host adds to that. The class's columns of `known` are named class_NAME.
    """
    ids, first, cell = np.unique(found["cell"], return_index=True, return_inverse=True)
    count, level = np.bincount(cell), found["level"].to_numpy()
    in_kind, on_gpu, in_both = (
        found.groupby(["cell", *names]).ngroup().to_numpy() for names in (["host"], ["gpu"], ["host", "gpu"])
    )
    apart = level - (np.bincount(in_kind, level) / np.bincount(in_kind))[in_kind]
    alike = _sizes(in_both) / _sizes(in_kind)
    columns = {
        name: found[name].to_numpy()[first]
        for name in ("kind", "class", "regime", "speedup_low", "speedup_high")
    }
    columns |= {
        name: np.bincount(cell, found[name]) / count
        for name in ("log", "level", "alone", "unshifted", *_TIMES)
    }
    cells = Frame(columns, pd.Index(ids, name="cell")).join(known.add_prefix("class_"), on="class")
    within = cells["class_residual"] + cells["class_session"].fillna(0.0)
    gpu = cells["class_gpu"].fillna(0.0)
    kinds = np.bincount(cell[np.unique(in_kind, return_index=True)[1]])
    cells["count"], cells["freedom"] = count, count - kinds
    gpu_freedom = np.bincount(cell, 1 - alike) / np.maximum(count - kinds, 1)
    cells["squares"] = np.bincount(cell, apart**2) / (within + gpu * gpu_freedom)
    gpu_share, host_share = (np.bincount(cell, _sizes(own)) / count**2 for own in (on_gpu, in_kind))
    cells["mean"] = within / cells["count"] + gpu * gpu_share
    cells["more"] = cells["mean"] + within + gpu
    cells["hosts"] = cells["class_host"] * (1 + host_share)
    return cells


def _scales(found: Frame, known: Frame) -> Frame:
    """`freedom` and `scale` of each class: how much its cells vary between sessions, relative to its components.

    Some cells of a class vary far more from session to session than others. Cells whose sessions all read the same
    number are left out, since a logarithm is taken. A class with too few cells in several sessions takes those of all
    with this kind of reference; NaN without these.
    """
    cells = _cells(found, known)[["kind", "class", "freedom", "squares"]]
    read = cells[(cells["freedom"] > 0) & (cells["squares"] > _ROUNDING)]
    of_class, of_kind = (
        {name: _moderation(own) for name, own in read.groupby(by) if len(own) >= PRIOR_CELLS}
        for by in ("class", "kind")
    )
    unknown = (np.nan, np.nan)
    rows = [
        (name, *of_class.get(name, of_kind.get(kind, unknown)))
        for kind, name in cells[["kind", "class"]].drop_duplicates().itertuples(index=False)
    ]
    return Frame(rows, columns=["class", "freedom", "scale"]).set_index("class").astype(float)


_FREEDOM = (0.5, 1000.0)  # of cells of a class, from nothing in common to all alike


def _moderation(cells: Frame) -> tuple[float, float]:
    """Degrees of freedom and scale that cells of a class count as, by how their own sample variances spread.

    Logarithms of sample variances spread by trigamma(freedom / 2) where all cells vary alike, and by trigamma of half
    the answer more where they do not (Smyth 2004).
    """
    from scipy.optimize import brentq  # slow to import, and needed by one step

    half = cells["freedom"] / 2
    logs = np.log(cells["squares"] / cells["freedom"]) - digamma(half) + np.log(half)
    most, least = _FREEDOM[1] / 2, _FREEDOM[0] / 2
    excess = float(np.clip(logs.var() - polygamma(1, half).mean(), polygamma(1, most), polygamma(1, least)))
    own = brentq(lambda x: polygamma(1, x) - excess, least * 0.99, most * 1.01)
    return 2 * own, float(np.exp(logs.mean() + digamma(own) - np.log(own)))


def _scaled(cells: Frame) -> tuple[Any, Any]:
    """Of each cell the scale of its variance, moderated by its class, and the square of Student's quantile for 95 %.

    Cells of a class of which nothing says how far they differ vary as its components say.
    """
    prior = cells["class_freedom"] * cells["class_scale"]
    freedom = cells["class_freedom"] + cells["freedom"]
    quantile = pd.Series(stdtrit(freedom, 0.975), cells.index).fillna(NORMAL)
    return ((prior + cells["squares"]) / freedom).fillna(1.0), quantile**2


def _measured(cells: Frame) -> Frame:
    """By `cell` the mean log speed-up, `value`, and its 95 % interval, `low` to `high`.

    It holds what GPUs in hosts of the kinds that were read show in the mean. Sessions on one GPU share its deviation,
    however many they are. The interval of a single session is its own with what sessions and GPUs of its class differ
    by, as squares.
    """
    scale, quantile = _scaled(cells)
    several = np.sqrt(quantile * scale * cells["mean"])
    among = cells["class_session"].add(cells["class_gpu"], fill_value=0.0)
    among = among.fillna(cells["kind"].map(SESSION) ** 2)
    single = cells["count"] == 1
    ends = {}
    for end, sign in (("low", -1), ("high", 1)):
        own = np.hypot(np.log(cells[f"speedup_{end}"]) - cells["log"], NORMAL * np.sqrt(among))
        ends[end] = cells["log"] + sign * several.where(~single, own)
    return Frame({"value": cells["log"], **ends})


def predict(found: Frame, known: Frame, only: "pd.Series[int] | None" = None) -> Frame:
    """By `cell` what `_measured` says, and `predicted_low` to `predicted_high`, a 95 % prediction interval for the log
    speed-up of one more session; `only` names the cells, all where it is None.

    That session is on another GPU of a host of any kind. What sessions and GPUs add is scaled by how the cell's own
    sessions vary within kinds of host, moderated by its class. What the kind of host adds is its class's, however well
    the cell's own sessions agree: there are too few kinds for a cell to show it. The clock floor of
    the other host is assumed to lie in the range of `found`, widened to at least `_FLOORS_APART_US`. Where either clock
    may time the cell, the interval holds for both; launches of a chain may differ by `_CHAINS_APART_US`.

    It reaches at least as far as the interval over what was measured. `found` is of `prepare_sessions`, `known` of
    `components`.
    """
    cells = _cells(found if only is None else found[found["cell"].isin(only)], known)
    scale, quantile = _scaled(cells)
    half = np.sqrt(quantile * scale * cells["more"] + ndtri((1 + _OF_HOSTS) / 2) ** 2 * cells["hosts"])
    shift = found.loc[found["unshifted"] == 0, "shift"]
    least, most = np.fmin(shift.min(), 0.0), np.fmax(shift.max(), 0.0)
    chained = np.where(cells["regime"].isin(_LAUNCHED_ALONE), 0.0, _CHAINS_APART_US)
    shorter = cells["alone"] * min(least, most - _FLOORS_APART_US)
    longer = cells["alone"] * max(most, least + _FLOORS_APART_US)
    moved = [
        _lengthened(cells, np.fmin(shorter, cells["unshifted"]) - chained),
        _lengthened(cells, longer + chained),
    ]
    low = cells["level"] + np.minimum(*moved) - half
    high = cells["level"] + np.maximum(*moved) + half
    here = _measured(cells)
    ends = {"predicted_low": np.fmin(low, here["low"]), "predicted_high": np.fmax(high, here["high"])}
    return here.join(Frame(ends).where(half.notna()))


def _without(found: Frame, by: str, left_out: Any) -> list[tuple[str, Frame]]:
    """Readings on one GPU, or on hosts of one kind (`by`), with the intervals predicted without them.

    From "all" sessions of a cell, and from "one" of each drawn by chance; components are known from all of them.
    """
    held, rest = found[found[by] == left_out], found[found[by] != left_out]
    known, one = components(rest), rest.sample(frac=1, random_state=0).drop_duplicates("cell")
    return [
        (
            sessions,
            held.join(predict(basis, known, held["cell"])[_PREDICTED], on="cell").dropna(subset=_PREDICTED),
        )
        for sessions, basis in (("all", rest), ("one", one))
    ]


def _held_out(found: Frame, by: str, jobs: int) -> list[tuple[str, Frame]]:
    """What `_without` says of each in turn, of `jobs` at once."""
    without, each = functools.partial(_without, found, by), sorted(found[by].unique())
    if jobs == 1:
        return [*chain.from_iterable(map(without, each))]
    # Forked, so that pandas is not imported anew.
    with ProcessPoolExecutor(jobs, get_context("fork"), die_with_parent) as pool:
        return [*chain.from_iterable(pool.map(without, each))]


def _parts(held: Frame, by: str) -> Iterator[tuple[Any, Frame]]:
    """Readings all together, by kind of reference, by class (small ones pooled), and by what was left out."""
    yield "all", held
    yield "kernel", held[held["kind"] == "kernel"]
    yield "library, over 50 us", held[(held["kind"] == "library") & (held["median_us"] > 50)]
    cells = held.groupby("class")["cell"].transform("nunique")
    yield from held[cells >= FEW].groupby("class")
    yield f"classes of fewer than {FEW} cells", held[cells < FEW]
    yield from held.groupby("gpu" if by == "gpu" else held["host"].map("GPUs of the host: {:g}".format))


def coverage(found: Frame, jobs: int = 1) -> list[TableRow]:
    """Rows of coverage.csv: how often sessions that are left out fall into the intervals predicted without them.

    `jobs`: processes at once.

    interval_score: the width, and 40 times the distance of what lies outside, in the mean (Winkler 1972; Gneiting &
    Raftery 2007), of logarithms, as the half-width is.
    """
    rows = []
    for by, left_out in (("gpu", "GPU"), ("host", "kind of host")):
        held_out = _held_out(found, by, jobs) if found[by].nunique() > 1 else []
        for sessions in dict.fromkeys(sessions for sessions, _ in held_out):
            held = pd.concat([own for of, own in held_out if of == sessions])
            low, high = (held[name] for name in _PREDICTED)
            width = high - low
            outside = (low - held["log"]).clip(lower=0) + (held["log"] - high).clip(lower=0)
            held = held.assign(outside=outside, half_width=width / 2, score=width + 40 * outside)
            for part, own in _parts(held, by):
                row: TableRow = {"left_out": left_out, "sessions": sessions, "part": str(part)}
                row |= {"cells": own["cell"].nunique(), "readings": len(own)}
                row |= {"covered": (own["outside"] == 0).mean(), "half_width": own["half_width"].median()}
                rows += [row | {"interval_score": own["score"].mean()}] if len(own) else []
    return rows


_RATES = ["tflops", "peak_fraction", "gbytes_per_s", "copy_fraction", "memory_fraction"]


def _change(now: "pd.Series[float]", before: "pd.Series[float]") -> "pd.Series[float]":
    """now / before, and 1 where both are the same to seven digits, as tables have them: else each publication moves the
    last one.
    """
    quotient = now / before
    return quotient.mask((quotient - 1).abs() <= 1e-6, 1.0)


def _combined(timings: Frame, found: Frame, known: Frame) -> Frame:
    """timings.csv with what all sessions of its cells say; cells without one stay as they are.

    Times are geometric means of the sessions' medians, as the speed-up is of theirs, and clock and power their means:
    so all columns of a row are of the same sessions. Rates and the ends of the median follow its time, and the energy
    of a launch time and power.
    """
    logs = found.assign(**{name: np.log(found[name]) for name in _TIMES})
    cells = logs.groupby("cell").agg(
        **{name: (name, "first") for name in CELL},
        **{name: (name, "mean") for name in (*_TIMES, "sm_clock_mhz", "power_w")},
        sessions=("session", "size"),
        gpus=("gpu_uuid", "nunique"),
        clock_floor_us=("clock_floor_us", "median"),
    )
    cells[_TIMES] = np.exp(cells[_TIMES])
    cells["gpus"] = cells["gpus"].where(cells["gpus"] > 0)
    columns = {"value": "speedup", "low": "speedup_low", "high": "speedup_high"}
    rows = cells.join(predict(found, known).apply(np.exp).rename(columns=columns))
    names = [*rows.columns.difference(CELL)]
    own = timings[CELL].merge(rows, "left", CELL)[names].astype(timings.dtypes[names])
    own = own.where(timings["status"] == "ok").fillna(timings[names])
    again, longer, hotter = (
        _change(own[name], timings[name]) for name in ("speedup", "median_us", "power_w")
    )
    energy = (longer * hotter).fillna(1.0)
    scaled = {name: timings[name] / longer for name in _RATES}
    scaled |= {name: timings[name] * longer for name in ("median_us_low", "median_us_high")}
    scaled |= {name: timings[name] * energy for name in ("energy_pj_per_flop", "energy_pj_per_byte")}
    scaled |= {name: timings[name] * again for name in OVER}
    return timings.assign(**own, **scaled)


def combine_sessions(frames: Mapping[str, Frame], jobs: int = 1) -> dict[str, Frame]:
    """Tables of all sweeps, with each cell's sessions combined in timings.csv; and components.csv and coverage.csv.

    A note says where there are too few sessions for these. Classes reach over sweeps, hence all of them at once.
    Nothing but `timings`, `sessions` and `notes` is read. `jobs`: processes for coverage.
    """
    found = prepare_sessions(frames["sessions"])
    once = counted_once(found)
    known = components(once)
    counted = {"cells": ("cell", "nunique"), "gpus": ("gpu", "nunique"), "hosts": ("host", "nunique")}
    estimated = known.loc[known["session"].notna() | known["host"].notna(), _COMPONENTS]
    deviations = (estimated**0.5).join(once.groupby("class").agg(**counted)).reset_index()
    given = {"components": records(deviations), "coverage": coverage(once, jobs)}
    empty = " and ".join(name for name in given if not given[name])
    said = [{"stage": "predict", "subject": empty, "reason": _TOO_FEW}] if empty and len(found) else []
    notes = tables.concat([frames["notes"], tables.frame("notes", said)], "notes")
    own = {name: tables.frame(name, rows) for name, rows in given.items()}
    return {**frames, "timings": _combined(frames["timings"], found, known), "notes": notes, **own}
