"""Sessions of a cell: rows that ranges are made from, and tables that say what all sessions together say."""

import numpy as np
import pandas as pd
from pandas import DataFrame

from ladder.model.schemas import SIZE_COLUMNS, TableRow
from ladder.results import tables
from ladder.results.coverage import coverage
from ladder.results.prediction import class_quantiles, ranges
from ladder.results.statistics import BOTH, CELL, OVER, records
from ladder.results.verdicts import LIBRARIES

_TIMES = ["median_us", "reference_median_us"]
_EDGES_US = [0, 20, 100, 1000, np.inf]
_LENGTHS = ["below 20 us", "20 to 100 us", "100 to 1000 us", "over 1000 us"]
_ENDS = ["median_us_low", "median_us_high"]
_RATES = ["tflops", "peak_fraction", "gbytes_per_s", "copy_fraction", "memory_fraction"]
_ENERGIES = ["energy_pj_per_flop", "energy_pj_per_byte"]
_TOO_FEW = "too few sessions of a cell: a range takes two GPUs and its check three"


def _classes(rows: DataFrame) -> "pd.Series[str]":
    """The class of each row's cell: kind of reference, what binds the pair, how long the shorter side takes, regime.

    A pair of which nothing says what binds it counts as "compute".
    """
    cells = rows.groupby("cell")
    shorter = cells[_TIMES].transform("median").min(axis=1)
    lengths = pd.cut(shorter, _EDGES_US, labels=_LENGTHS).astype(object)
    bounds = cells["bound"].transform("first").fillna("compute")
    classes = rows["kind"] + ", " + bounds + ", " + lengths + ", " + rows["regime"]
    return classes.astype(object)


def prepare_sessions(sessions: DataFrame) -> DataFrame:
    """The rows of sessions.csv, one per entry and session, with these columns more:

    entry: a number for each value of `CELL`, as timings.csv has rows. cell: a number for each cell, in whatever sweep.
    partner: the reference, one name for libraries that were chosen among. library: a number for each call of a library;
    missing over a kernel. kind: library or kernel; libraries choose among algorithms, and may choose another one next
    time. class: see `_classes`. gpu: text; an unknown GPU is the session's own. host: the number of its GPUs, 0 where
    unknown. log: of the speed-up. launches: half-width of the session's own interval, as a logarithm.

    A session that chose the cell as one of the fastest is left out: its number is too high by chance.
    """
    kept = sessions[~sessions["chose"].fillna(False)]
    kept = kept.dropna(subset=["speedup", *_TIMES])
    rows = kept.drop_duplicates([*CELL, "session"], keep="last", ignore_index=True)
    rows["entry"] = rows.groupby(CELL, dropna=False).ngroup()
    rows["partner"] = rows["reference"].replace(BOTH, "the faster of both")
    call = ["dtype", "layout", *SIZE_COLUMNS, "regime", "partner"]
    rows["cell"] = rows.groupby([*call, "variant"], dropna=False).ngroup()
    is_library = rows["reference"].isin(LIBRARIES)
    # As objects: no text of an empty table could be mapped to numbers.
    rows["kind"] = is_library.map({True: "library", False: "kernel"}).astype(object)
    calls = rows.groupby(call, dropna=False).ngroup()
    rows["library"] = calls.where(is_library)
    rows["class"] = _classes(rows)
    rows["gpu"] = rows["gpu_uuid"].fillna(rows["session"]).astype(str)
    rows["host"] = rows["host_gpus"].astype(float).fillna(0.0)
    rows["log"] = np.log(rows["speedup"])
    rows["launches"] = np.log(rows["speedup_high"] / rows["speedup_low"]) / 2
    return rows


def _change(now: "pd.Series[float]", before: "pd.Series[float]") -> "pd.Series[float]":
    """now / before; 1 where both have the same seven digits, as tables do: else each publication moves the last one."""
    quotient = now / before
    return quotient.mask((quotient - 1).abs() <= 1e-6, 1.0)


def combined_timings(timings: DataFrame, rows: DataFrame) -> DataFrame:
    """timings.csv with what all sessions of its cells say; cells without a session stay as they are.

    Times are geometric means of the sessions' medians, as the speed-up is of theirs; clock and power are means. Rates
    and the ends of the median follow the time; the energy of a launch follows time and power.
    """
    logs = rows.assign(**{name: np.log(rows[name]) for name in _TIMES})
    entries = logs.groupby("entry").agg(
        **{name: (name, "first") for name in CELL},
        **{name: (name, "mean") for name in (*_TIMES, "sm_clock_mhz", "power_w")},
        sessions=("session", "size"),
        gpus=("gpu_uuid", "nunique"),
        clock_floor_us=("clock_floor_us", "median"),
    )
    entries[_TIMES] = np.exp(entries[_TIMES])
    entries["gpus"] = entries["gpus"].where(entries["gpus"] > 0)
    entries = entries.join(ranges(rows).apply(np.exp))
    names = [*entries.columns.difference(CELL)]
    updated = timings[CELL].merge(entries, "left", CELL)[names]
    updated = updated.astype(timings.dtypes[names])
    updated = updated.where(timings["status"] == "ok").fillna(timings[names])
    faster = _change(updated["speedup"], timings["speedup"])
    longer = _change(updated["median_us"], timings["median_us"])
    hotter = _change(updated["power_w"], timings["power_w"])
    energy = (longer * hotter).fillna(1.0)
    combined = timings.assign(**updated)
    combined[_RATES] = combined[_RATES].div(longer, axis=0)
    combined[_ENDS] = combined[_ENDS].mul(longer, axis=0)
    combined[_ENERGIES] = combined[_ENERGIES].mul(energy, axis=0)
    combined[OVER] = combined[OVER].mul(faster, axis=0)
    return combined


def components(rows: DataFrame) -> list[TableRow]:
    """Rows of components.csv: how far GPUs differ by class, where two GPUs read a cell with its kind of reference."""
    classes = rows.groupby("class")[["cell", "gpu", "host"]].nunique()
    classes = classes.set_axis(["cells", "gpus", "hosts"], axis=1).assign(
        deviation=class_quantiles(rows)
    )
    return records(classes.dropna(subset="deviation").reset_index())


def combine_sessions(frames: tables.Frames) -> tables.Frames:
    """Tables of all sweeps, with each cell's sessions combined in timings.csv; and components.csv and coverage.csv.

    A note says where there are too few sessions for these. Reads `timings`, `sessions` and `notes` of all sweeps at
    once, since classes reach over sweeps.
    """
    rows = prepare_sessions(frames["sessions"])
    made = {"components": components(rows), "coverage": coverage(rows)}
    missing = " and ".join(name for name in made if not made[name])
    combined = {**frames, "timings": combined_timings(frames["timings"], rows)}
    for name, table in made.items():
        combined[name] = tables.frame(name, table)
    if missing and len(rows):
        note = {"stage": "predict", "subject": missing, "reason": _TOO_FEW}
        added = tables.frame("notes", [note])
        combined["notes"] = tables.concat([frames["notes"], added], "notes")
    return combined
