"""For rows of earlier records: speed-ups over the slower of two libraries, turned into those over the faster one.

A session chose its library by a few launches of each, before the choice had a record of its own, and at times chose the
slower one; then the speed-up is too high. Kernels that some sessions timed against the one and others against the other
say which is the faster, by operands and regime, and how far the two are apart.
"""

from typing import Any

import numpy as np
import pandas as pd

from ladder.model.schemas import SIZE_COLUMNS

Frame = pd.DataFrame

CELL = ["sweep", "variant", "baseline", "dtype", "layout", *SIZE_COLUMNS, "regime", "beta"]
"""Columns that say which cell a row is about."""
OVER = ("over_cublas", "over_cublaslt")
"""Columns of the speed-up over one library alone."""
BOTH = [name.removeprefix("over_") for name in OVER]
"""These libraries: the faster of the two is what a choice is over."""
_OPERANDS = ["dtype", "layout", *SIZE_COLUMNS, "regime", "beta"]
_ALIKE = 0.005
"""Sessions on one GPU agree within so much (logarithms of speed-ups): libraries that are no further apart tie."""


def _faster_libraries(sessions: Frame) -> Frame:
    """A row for each of `_OPERANDS` where the two do not tie: `slower`, `faster`, and how far `apart`, in logarithms.

    `sessions` are rows of sessions.csv whose sweeps had the choice between both.
    """
    logs = np.log(sessions["speedup"].where(~sessions["chose"].fillna(False)))
    means = logs.groupby(
        [sessions[name] for name in (*_OPERANDS, "variant", "reference")], dropna=False
    ).mean()
    both = Frame(means.unstack("reference")).reindex(columns=BOTH)
    apart = (both[BOTH[0]] - both[BOTH[1]]).dropna().groupby(_OPERANDS, dropna=False).mean().rename("apart")
    known = apart[apart.abs() > _ALIKE].reset_index()
    order = np.where(known["apart"] > 0, *np.reshape([BOTH, BOTH[::-1]], (2, 2, 1)))
    return known.assign(slower=order[0], faster=order[1], apart=known["apart"].abs())


def _converted(rows: Frame, libraries: Frame) -> tuple[Frame, Any]:
    """Rows over the faster library, of those with a true `choice`; and which of them were over the slower one.

    These are less sure, by `_ALIKE`. Speed-ups over the slower alone become `OVER` columns, where rows have these.
    """
    rows = rows.reset_index(drop=True)
    about = rows[_OPERANDS].merge(libraries, "left", _OPERANDS)
    turned = rows["choice"] & about["slower"].eq(rows["reference"]).fillna(False).astype(bool)
    ratio = np.exp(about["apart"]).where(turned, 1.0)
    low, high = rows["speedup_low"], rows["speedup_high"]
    middle, half = np.sqrt(low * high) / ratio, np.exp(np.hypot(np.log(high / low) / 2, _ALIKE))
    found = {name: rows[name] / ratio for name in ("speedup", "reference_median_us")}
    found |= {
        "speedup_low": low.mask(turned, middle / half),
        "speedup_high": high.mask(turned, middle * half),
    }
    found["reference"] = rows["reference"].mask(turned, about["faster"])
    for name, column in zip(BOTH, OVER, strict=True):
        if column in rows:
            far = np.exp(about["apart"]).where(about["slower"].eq(name).fillna(False), 1.0)
            found[column] = rows[column].mask(rows["choice"] & about["apart"].notna(), found["speedup"] * far)
    return rows.assign(**found).drop(columns="choice"), turned


def over_the_faster(timings: Frame, sessions: Frame) -> tuple[Frame, Frame, list[dict[str, str]]]:
    """timings.csv and sessions.csv over the faster library where a cell had the choice, and a note if any was not.

    A cell had the choice if its row says how fast it is over either library, and no record of a choice decided.
    """
    undecided = timings[list(OVER)].notna().all(axis=1) & timings["reference_is"].isna()
    if not undecided.any():
        return timings, sessions, []
    both = timings[CELL].assign(choice=undecided).drop_duplicates(CELL)
    choices = [rows.merge(both, "left", CELL) for rows in (timings, sessions)]
    choices = [rows.assign(choice=rows["choice"].fillna(False).astype(bool)) for rows in choices]
    libraries = _faster_libraries(choices[1][choices[1]["choice"]])
    (timings, _), (sessions, turned) = (_converted(rows, libraries) for rows in choices)
    reason = f"{turned.sum()} of {len(turned)} readings were over the slower library, and are converted"
    note = {"stage": "reference", "subject": " and ".join(BOTH), "reason": reason}
    return timings, sessions, [note] if turned.any() else []
