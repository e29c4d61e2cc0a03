"""A number that is missing costs the sentence that needs it: report and page are written, whichever column is empty."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping

import pandas as pd
import pytest
from checkout import PUBLISHED, loaded, published_of
from ladder.model.schemas import SCHEMAS, SIZE_COLUMNS
from ladder.page.data import run
from ladder.page.document import page
from ladder.report.document import render
from ladder.results import statistics as stats
from ladder.results.run_data import RunData
from rendering import LEFT_BEHIND

pytestmark = pytest.mark.slow

SWEEPS = "fp32_ladder fp32_buffering hopper_dtypes triton_gemm reduction attention_libraries bank_column stencil_reach"
"""One of each chapter, and of each kind of finding."""
IN_EVERY_ROW = {
    "timings": """sweep kernel variant params dtype status regime samples median_us median_us_low median_us_high
    reference reference_median_us speedup speedup_low speedup_high""",
    "sessions": """sweep variant dtype regime session samples median_us reference reference_median_us
    speedup speedup_low speedup_high""",
    "components": "class deviation",
    "coverage": "left_out part cells readings covered",
    "unseen": "part gpus cells readings covered",
    "metrics": "sweep variant metric",
    "resources": """sweep kernel variant params dtype arch status registers shared_bytes_static shared_bytes_dynamic
    threads_per_block instructions""",
    "claims": "id part source statement verdict evidence advice",
    "notes": "stage",
    "jobs": "sweep",
}
"""Table -> the columns that records always fill, in rows with a result. The others may be empty in any row."""


@functools.cache
def a_run() -> RunData:
    """What is published of SWEEPS, at the size that each is about."""
    whole = published_of(*SWEEPS.split())
    frames = dict(whole.frames)
    for table in ("timings", "sessions", "metrics"):
        own = frames[table].groupby("sweep", sort=False)
        frames[table] = pd.concat(
            [stats.at_size(rows, whole.parts[str(name)].size) for name, rows in own]
        )
    return RunData(whole.sweeps, frames, whole.environment)


def may_be_empty(table: str) -> list[str]:
    """Columns of a table in which a value may be missing. What a problem's size has is told by the problem."""
    kept = {*SIZE_COLUMNS, *IN_EVERY_ROW[table].split()}
    return [name for name in SCHEMAS[table] if name not in kept]


def rounds() -> list[dict[str, str]]:
    """Table -> a column, so that each column of each table that may be empty is in one of them."""
    columns = [[(table, name) for name in may_be_empty(table)] for table in SCHEMAS]
    return [dict(filter(None, one)) for one in itertools.zip_longest(*columns)]


def emptied(rows: pd.DataFrame, column: str, every: int) -> pd.DataFrame:
    """Rows without the values of a column in every row, or every second one."""
    keep = pd.Series([place % every != 0 for place in range(len(rows))], rows.index)
    return rows.assign(**{column: rows[column].where(keep)})


def written(frames: Mapping[str, pd.DataFrame]) -> dict[str, str]:
    """Name of each page of the report, and of the page of a browser's cards, with what it says."""
    data = RunData(a_run().sweeps, frames, a_run().environment)
    pages = {path.name: text for path, text in render(PUBLISHED, data, loaded().plans)}
    own = run(PUBLISHED, data, "a run")
    page({"runs": [own], "kernels": {}, "docs": ""})
    return pages | {"cards": str(own["cards"]).replace("None", "")}


@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize("empty", rounds(), ids=lambda empty: empty["timings"])
def test_a_report_is_written_whichever_columns_are_empty(
    empty: dict[str, str], every: int
) -> None:
    frames = dict(a_run().frames)
    for table, column in empty.items():
        frames[table] = emptied(frames[table], column, every)
    for name, text in written(frames).items():
        assert not (found := LEFT_BEHIND.search(text)), (name, found[0], empty)
