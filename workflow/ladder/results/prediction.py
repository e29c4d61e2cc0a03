"""What a speed-up reads elsewhere: components of its variance, intervals for another GPU, and whether they hold.

The logarithm of a speed-up, read in one session, is taken as the cell's own value plus independent deviations: of the
kind of host (hosts with one number of GPUs), of the GPU, of the session, and a residual within the session. Cells of a
class share the variances of these.

The clock's floor, the time of an empty kernel, is part of every launch that is timed alone, and is another one on
another kind of host. Where sessions know theirs, readings are compared as if all had the same.
"""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import brentq
from scipy.special import digamma, polygamma, stdtrit

from ladder.model.schemas import SIZE_COLUMNS
from ladder.results import tables
from ladder.results.statistics import records
from ladder.results.verdicts import LIBRARIES, NORMAL, SESSION

Frame = pd.DataFrame
Row = dict[str, Any]

OVER = ("over_cublas", "over_cublaslt")
"""Columns of the speed-up over one library alone."""
_BOTH = [name.removeprefix("over_") for name in OVER]
_OPERANDS = ["dtype", "layout", *SIZE_COLUMNS, "regime"]
_ALIKE = 0.005
"""Sessions on one GPU agree within so much (logarithms of speed-ups): libraries that are no further apart tie."""
_EDGES_US = (20, 100, 1000)
_LAUNCHED_ALONE = ("cold", "dirty")

_CELL = ["sweep", "variant", "baseline", "dtype", "layout", *SIZE_COLUMNS, "regime"]
_TIMES = ["median_us", "reference_median_us"]
_POOLED_CELLS, _POOLED_SESSIONS, _ASSUMED_HOSTS = 20, 4, 1
"""How many cells, sessions and kinds of host the pooled or assumed values count as."""
_FREEDOM = (0.5, 1000.0)  # of cells of a class, from nothing in common to all alike
_FLOORS_APART_US = 1.8
"""How far apart the clock's floors of two kinds of host may be: on H200s 1.66 to 1.79 us were seen."""

_COMPONENTS = ["residual", "session", "gpu", "host"]
_TOO_FEW = "too few sessions of a cell: what another GPU reads takes two GPUs and its check three"


def _classes(found: Frame) -> Frame:
    """`kind` of reference, and `class`: kind, how long the shorter of the two takes, and the regime.

    Libraries choose among algorithms, and may choose another one next time. A copy does not, and counts as a kernel.
    """
    shorter = found[_TIMES].min(axis=1).groupby(found["cell"]).median().reindex(found["cell"])
    between = [f"{low} to {high} us" for low, high in pairwise(_EDGES_US)]
    spans = [f"below {_EDGES_US[0]} us", *between, f"over {_EDGES_US[-1]} us"]
    kinds = np.where(found["reference"].isin(LIBRARIES), "library", "kernel")
    lasting = np.take(spans, np.searchsorted(_EDGES_US, shorter))
    named = [", ".join(words) for words in zip(kinds, lasting, found["regime"], strict=True)]
    return Frame({"kind": kinds, "class": named}, found.index)


def _lengthened(times: Frame, shift_us: Any) -> Any:
    """Change of the log speed-up where launches of both sides take `shift_us` longer; no floor is half of a time."""
    own, other = (np.log1p((shift_us / times[name]).clip(lower=-0.5)) for name in _TIMES)
    return other - own


def read(sessions: Frame) -> Frame:
    """The rows of sessions.csv, one per cell and session, with what the model needs.

    `log`: of the speed-up. `level`: the same if the session had the median floor. `shift`: its floor less the median
    one, us, of launches timed alone and by events. `variance`: of the session's median. A GPU that is not known is the
    session's own. A session that chose the cell as one of the fastest is left out: that number is too high by chance.
    """
    found = (
        sessions[~sessions["chose"].fillna(False)]
        .dropna(subset=["speedup", *_TIMES])
        .drop_duplicates([*_CELL, "session"], keep="last", ignore_index=True)
    )
    found["cell"] = found.groupby(_CELL, dropna=False).ngroup()
    found[["kind", "class"]] = _classes(found)
    found["gpu"] = found["gpu_uuid"].fillna(found["session"]).astype(str)
    found["host"] = found["host_gpus"].astype(float).fillna(0.0)
    found["log"] = np.log(found["speedup"])
    found["variance"] = (np.log(found["speedup_high"] / found["speedup_low"]) / 2 / NORMAL) ** 2
    floor = found["clock_floor_us"]
    by_events = found["regime"].isin(_LAUNCHED_ALONE) & ~found["clock"].eq("device").fillna(False)
    found["alone"] = by_events.astype(float)
    found["shift"] = (floor - floor.median()).fillna(0.0) * found["alone"]
    found["level"] = found["log"] + _lengthened(found, -found["shift"])
    return found


def _asked(rows: Frame, timings: Frame) -> Any:
    """Whether the reference of each row's cell is the faster of two libraries, each of which was timed."""
    both = timings[_CELL].assign(asked=timings[list(OVER)].notna().all(axis=1)).drop_duplicates(_CELL)
    asked = rows[_CELL].merge(both, "left", _CELL)["asked"]
    return asked.fillna(False).astype(bool).set_axis(rows.index)


def _libraries(sessions: Frame) -> Frame:
    """Which of cuBLAS and cuBLASLt is the faster, by operands and regime, and how far `apart` they are, in logarithms.

    By the kernels that some of these sessions timed against the one and others against the other. A session chooses by
    a few launches of each; where these are short, or the power cap lowers the clock, it may choose the slower one, and
    then the speed-up is too high.
    """
    logs = np.log(sessions["speedup"].where(~sessions["chose"].fillna(False)))
    means = logs.groupby(
        [sessions[name] for name in (*_OPERANDS, "variant", "reference")], dropna=False
    ).mean()
    both = Frame(means.unstack("reference")).reindex(columns=_BOTH)
    apart = (both[_BOTH[0]] - both[_BOTH[1]]).dropna().groupby(_OPERANDS, dropna=False).mean().rename("apart")
    known = apart[apart.abs() > _ALIKE].reset_index()
    order = np.where(known["apart"] > 0, *np.reshape([_BOTH, _BOTH[::-1]], (2, 2, 1)))
    return known.assign(slower=order[0], faster=order[1], apart=known["apart"].abs())


def _over_the_faster(rows: Frame, libraries: Frame, asked: Any) -> tuple[Frame, Any]:
    """Rows over the faster library, of those where both were `asked` for; and which of them were over the slower one.

    These are less sure, by `_ALIKE`. Speed-ups over the slower alone become `OVER` columns, where rows have these.
    """
    about = rows[_OPERANDS].merge(libraries, "left", _OPERANDS).set_axis(rows.index)
    turned = asked & about["slower"].eq(rows["reference"]).fillna(False).astype(bool)
    ratio = np.exp(about["apart"]).where(turned, 1.0)
    low, high = rows["speedup_low"], rows["speedup_high"]
    middle, half = np.sqrt(low * high) / ratio, np.exp(np.hypot(np.log(high / low) / 2, _ALIKE))
    found = {name: rows[name] / ratio for name in ("speedup", "reference_median_us")}
    found |= {
        "speedup_low": low.mask(turned, middle / half),
        "speedup_high": high.mask(turned, middle * half),
    }
    found["reference"] = rows["reference"].mask(turned, about["faster"])
    for name, column in zip(_BOTH, OVER, strict=True):
        if column in rows:
            far = np.exp(about["apart"]).where(about["slower"].eq(name).fillna(False), 1.0)
            found[column] = rows[column].mask(asked & about["apart"].notna(), found["speedup"] * far)
    return rows.assign(**found), turned


def _spread(pairs: Frame) -> float:
    """Variance of one reading by differences of two: from their 95th percentile, as if they were normal.

    A few outliers do not move a quantile of pairwise differences (Rousseeuw & Croux 1993; Genton 1998), and this one is
    what a 95 % interval needs, whatever the tails. Each cell counts once.
    """
    weights = 1 / pairs.groupby("cell")["cell"].transform("size")
    apart = np.quantile(pairs["apart"], 0.95, weights=weights, method="inverted_cdf")
    return float(apart / NORMAL) ** 2 / 2


def components(found: Frame) -> Frame:
    """Variances of log speed-ups by class: `residual`, `session`, `gpu`, `host`; NaN where no pair shows it.

    Pairs of sessions on one GPU, on two of one kind of host, and on two kinds give sums of components; their
    differences are the components, 0 at least (moments, as in Henderson 1953 for unbalanced data). Each sum is shrunk
    towards that of all classes with this kind of reference, which counts as 20 cells (Smyth 2004). Without pairs on one
    GPU, `gpu` holds what sessions add; without pairs of one kind of host, `host` holds both. Kinds of host are few: one
    more is assumed, which differs by as much as GPUs, sessions and residuals together do. Where there is only one kind,
    this assumption is all there is.

    `freedom` and `scale`: of cells of the class, some of which vary far more from session to session than others.
    """
    about = ["session", "gpu", "host", "level"]
    pairs = found[["cell", "kind", "class", *about]].merge(
        found[["cell", *about]], on="cell", suffixes=("", "_2")
    )
    pairs = pairs[pairs["session"] < pairs["session_2"]]
    pairs["apart"] = (pairs["level"] - pairs["level_2"]).abs()
    same = [pairs[name] == pairs[f"{name}_2"] for name in ("gpu", "host")]
    pairs["of"] = np.select(same, ["session", "gpu"], "host")
    pooled = {key: _spread(own) for key, own in pairs.groupby(["kind", "of"])}
    of_class = {key: (own["cell"].nunique(), _spread(own)) for key, own in pairs.groupby(["class", "of"])}
    rows, kinds = {}, found["host"].nunique()
    for (kind, name), own in found.groupby(["kind", "class"]):
        below = own["variance"].median()
        row = {"residual": below}
        for of in ("session", "gpu", "host"):
            count, spread = of_class.get((name, of), (0, 0.0))
            pool = pooled.get((kind, of), np.nan)
            total = (count * spread + _POOLED_CELLS * pool) / (count + _POOLED_CELLS)
            row[of] = np.maximum(total - below, 0.0)
            below = np.fmax(total, below)
        alike = np.nansum([row[of] for of in ("residual", "session", "gpu")])
        seen = (
            row["gpu"] * 0 if np.isnan(row["host"]) else row["host"]
        )  # NaN where no GPU was compared with another
        apart = (kinds - 1) * seen + _ASSUMED_HOSTS * alike
        rows[name] = row | {"host": apart / (kinds - 1 + _ASSUMED_HOSTS)}
    known = Frame.from_dict(rows, "index", columns=_COMPONENTS, dtype=float)
    return known.join(_scales(found, known))


def _moderation(scale: Any, freedom: Any) -> tuple[float, float]:
    """Degrees of freedom and scale that cells of a class count as, by how their own sample variances spread.

    Logarithms of sample variances spread by trigamma(freedom / 2) where all cells vary alike, and by trigamma of half
    the answer more where they do not (Smyth 2004).
    """
    half = freedom / 2
    logs = np.log(scale) - digamma(half) + np.log(half)
    most, least = _FREEDOM[1] / 2, _FREEDOM[0] / 2
    excess = float(np.clip(logs.var() - polygamma(1, half).mean(), polygamma(1, most), polygamma(1, least)))
    own = brentq(lambda x: polygamma(1, x) - excess, least * 0.99, most * 1.01)
    return 2 * own, float(np.exp(logs.mean() + digamma(own) - np.log(own)))


def _expected(found: Frame, known: Frame) -> Frame:
    """By cell what its components say: the variance `of` its sample of sessions, and of one `more` about their mean."""
    cells = found.groupby("cell")
    count = cells.size()
    own = known.reindex(cells["class"].first()).set_index(count.index)
    within = own["residual"] + own["session"].fillna(0.0)
    sample, more = (
        within,
        within * (1 + 1 / count),
    )  # both the new reading and the mean of the old ones deviate
    for name, deviation in (("gpu", own["gpu"].fillna(0.0)), ("host", own["host"])):
        shares = ((found.groupby(["cell", name]).size() / count) ** 2).groupby("cell").sum()
        sample = sample + deviation * (1 - shares) * count / (count - 1).clip(lower=1)
        more = more + deviation * (1 + shares)
    return Frame({"of": sample, "more": more})


def _scales(found: Frame, known: Frame) -> Frame:
    """By class the `freedom` and the `scale` of a cell: how many times what its components say its sessions vary.

    A class with too few cells in several sessions takes those of all with this kind of reference; NaN without these.
    """
    cells, rows = found.groupby("cell"), {}
    own = cells.agg(kind=("kind", "first"), name=("class", "first"), scale=("level", "var"))
    own["scale"] /= _expected(found, known)["of"]
    own["freedom"] = cells.size() - 1
    read = own[(own["freedom"] > 0) & (own["scale"] > 0)]
    for kind, name in own[["kind", "name"]].drop_duplicates().itertuples(index=False):
        parts = [read[read["name"] == name], read[read["kind"] == kind]]
        enough = next((part for part in parts if len(part) >= _POOLED_CELLS), None)
        rows[name] = (np.nan, np.nan) if enough is None else _moderation(enough["scale"], enough["freedom"])
    return Frame.from_dict(rows, "index", columns=["freedom", "scale"], dtype=float)


def predict(found: Frame, known: Frame) -> Frame:
    """By cell the `low` and `high` end of a 95 % prediction interval for the log speed-up of one more session.

    That session is on another GPU of a host of any kind. A cell's variance is what `known`, from `components`, says,
    times a scale of its own, which its class moderates. Floors are any between those of `found`, whose ends are taken
    to be as far apart as kinds of host may be.

    It reaches at least as far as the interval over what was measured: no further reading is surer than the mean of
    those known. A session whose own launches spread far, or a few that agree by chance, would have a narrower one.
    """
    cells = found.groupby("cell")
    count, typical = cells.size(), cells[["level", "alone", *_TIMES]].mean()
    own, expected = known.reindex(cells["class"].first()).set_index(count.index), _expected(found, known)
    freedom, shift = own["freedom"] + count - 1, found["shift"]
    squares = (count - 1) * (cells["level"].var() / expected["of"]).fillna(0.0)
    scale = (own["freedom"] * own["scale"] + squares) / freedom
    half = stdtrit(freedom, 0.975) * np.sqrt(scale * expected["more"])
    ends = (
        min(shift.min(), shift.max() - _FLOORS_APART_US),
        max(shift.max(), shift.min() + _FLOORS_APART_US),
    )
    moved = [_lengthened(typical, typical["alone"] * end) for end in ends]
    low, high = (typical["level"] + end for end in (np.minimum(*moved) - half, np.maximum(*moved) + half))
    here = measured(found, known)
    widened = {"low": np.fmin(low, here["low"]), "high": np.fmax(high, here["high"])}
    return Frame(widened).where(half.notna())


def _held_out(found: Frame, by: str) -> Iterator[tuple[str, Frame]]:
    """Readings with the intervals predicted without their GPU, or kind of host (`by`), leaving out each in turn.

    From "all" sessions of a cell, and from "one" of each drawn by chance; components are known from all of them.
    """
    for _, held in found.groupby(by):
        rest = found.drop(held.index)
        known, one = components(rest), rest.sample(frac=1, random_state=0).drop_duplicates("cell")
        for sessions, basis in (("all", rest), ("one", one)):
            yield sessions, held.join(predict(basis, known), on="cell").dropna(subset=["low", "high"])


def coverage(found: Frame) -> list[Row]:
    """Rows of coverage.csv: how often sessions that are left out fall into the intervals predicted without them.

    interval_score: the width, and 40 times the distance of what lies outside, in the mean (Winkler 1972; Gneiting &
    Raftery 2007), of logarithms, as the half-width is.
    """
    rows = []
    for by, left_out in (("gpu", "GPU"), ("host", "kind of host")):
        held_out = [*_held_out(found, by)] if found[by].nunique() > 1 else []
        for sessions in dict.fromkeys(sessions for sessions, _ in held_out):
            held = pd.concat([own for of, own in held_out if of == sessions])
            width = held["high"] - held["low"]
            outside = (held["low"] - held["log"]).clip(lower=0) + (held["log"] - held["high"]).clip(lower=0)
            held = held.assign(
                covered=outside == 0, half_width=width / 2, interval_score=width + 40 * outside
            )
            parts = {"all": held, "kernel": held[held["kind"] == "kernel"]}
            parts["library, over 50 us"] = held[(held["kind"] == "library") & (held["median_us"] > 50)]
            parts |= {str(name): own for name, own in held.groupby("class")}
            names = held["host"].map("GPUs of the host: {:g}".format) if by == "host" else held["gpu"]
            parts |= {str(name): own for name, own in held.groupby(names)}
            for part, own in parts.items():
                row = {"left_out": left_out, "sessions": sessions, "part": part, "readings": len(own)}
                row |= {"cells": own["cell"].nunique(), "covered": own["covered"].mean()}
                row |= {
                    "half_width": own["half_width"].median(),
                    "interval_score": own["interval_score"].mean(),
                }
                rows += [row] if len(own) else []
    return rows


def measured(found: Frame, known: Frame) -> Frame:
    """By cell the mean log speed-up over its sessions, with the 95 % interval `low` to `high` over what was measured.

    Several sessions are a sample; its variance is moderated by that of the class, which counts as four sessions (Smyth
    2004). The interval of a single session is its own and what sessions of its class differ by, as squares.
    """
    cells = found.groupby("cell")
    count, mean = cells.size(), cells["log"].mean()
    own = known.reindex(cells["class"].first()).set_index(count.index)
    usual, freedom = own[["residual", "session", "gpu"]].sum(axis=1), count - 1 + _POOLED_SESSIONS
    squares = cells["log"].var().fillna(0.0) * (count - 1) + _POOLED_SESSIONS * usual
    half = stdtrit(freedom, 0.975) * np.sqrt(squares / freedom / count)
    among = NORMAL * own["session"].pow(0.5).fillna(cells["kind"].first().map(SESSION))
    below, above = (
        np.hypot(np.log(cells[f"speedup_{end}"].first()) - mean, among) for end in ("low", "high")
    )
    return Frame(
        {
            "value": mean,
            "low": mean - half.where(count > 1, below),
            "high": mean + half.where(count > 1, above),
        }
    )


def combine(frames: Mapping[str, Frame]) -> dict[str, Frame]:
    """Tables of all sweeps, with each cell's sessions combined in timings.csv; and components.csv and coverage.csv.

    A note says where there are too few sessions for these, and how many readings were over the slower library. Classes
    and libraries reach over sweeps, hence all of them at once.
    """
    timings, sessions = frames["timings"], frames["sessions"]
    asked = [_asked(rows, timings) for rows in (timings, sessions)]
    libraries = _libraries(sessions[asked[1]])
    timings, _ = _over_the_faster(timings, libraries, asked[0])
    sessions, turned = _over_the_faster(sessions, libraries, asked[1])
    found = read(sessions)
    known = components(found)
    here, there, cells = measured(found, known), predict(found, known), found.groupby("cell")
    columns = {"speedup": np.exp(here["value"]), "speedup_low": np.exp(here["low"])}
    columns |= {"speedup_high": np.exp(here["high"]), "sessions": cells.size()}
    gpus = cells["gpu_uuid"].nunique()
    columns |= {"gpus": gpus.where(gpus > 0), "clock_floor_us": cells["clock_floor_us"].median()}
    columns |= {"predicted_low": np.exp(there["low"]), "predicted_high": np.exp(there["high"])}
    combined = (
        timings[_CELL].merge(cells[_CELL].first().assign(**columns), "left", _CELL).set_axis(timings.index)
    )
    combined = combined[list(columns)].astype(timings.dtypes[list(columns)]).where(timings["status"] == "ok")
    combined = combined.fillna(timings)
    again = combined["speedup"] / timings["speedup"]
    combined = combined.assign(**{name: timings[name] * again for name in OVER})
    pairs = known["session"].notna() | known["host"].notna()
    counted = {"cells": ("cell", "nunique"), "gpus": ("gpu", "nunique"), "hosts": ("host", "nunique")}
    deviations = (
        (known.loc[pairs, _COMPONENTS] ** 0.5)
        .join(found.groupby("class").agg(**counted))
        .rename_axis("class")
    )
    given: dict[str, list[Row]] = {
        "components": records(deviations.reset_index()),
        "coverage": coverage(found),
    }
    empty = " and ".join(name for name in given if not given[name])
    said = [{"stage": "predict", "subject": empty, "reason": _TOO_FEW}] if empty and len(found) else []
    if turned.any():
        reason = f"{turned.sum()} of {len(turned)} readings were over the slower library, and are converted"
        said.append({"stage": "reference", "subject": " and ".join(_BOTH), "reason": reason})
    notes = tables.concat([frames["notes"], tables.frame("notes", said)], "notes")
    own = {name: tables.frame(name, rows) for name, rows in given.items()}
    return {**frames, "timings": timings.assign(**combined), "notes": notes, **own}
