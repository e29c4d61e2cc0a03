"""Tables as frames: made from rows, written as CSV with parquet beside it, and read back."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from pandas import DataFrame
from pyarrow import csv as arrow

from ladder.model import schemas
from ladder.model.errors import LadderError
from ladder.model.files import replace_file
from ladder.model.schemas import Fields
from ladder.results.counters import TIMES_AND_COUNTERS

Frames = dict[str, DataFrame]
"""Tables by name."""

_KINDS: dict[str, Any] = {
    "text": pd.StringDtype("python"),
    "float": np.dtype("float64"),
    "int": pd.Int64Dtype(),
    "bool": pd.BooleanDtype(),
}
"""As objects: finding a type by its name takes longer than making a short column."""
SCHEMAS: Mapping[str, Mapping[str, str]] = {
    **schemas.SCHEMAS,
    "times_and_counters": TIMES_AND_COUNTERS,
}
_FORMULA = r"^([=+@\t-])"
_DTYPES: dict[str, dict[str, Any]] = {
    table: {name: _KINDS[kind] for name, kind in SCHEMAS[table].items()}
    for table in SCHEMAS
}


def frame(table: str, rows: Sequence[Fields]) -> DataFrame:
    """A frame of `table`'s schema from what rows say of its columns; absent columns are empty."""
    columns = {
        name: pd.array([row.get(name) for row in rows], kind)
        for name, kind in _DTYPES[table].items()
    }
    return DataFrame(columns)


def write(frames: Frames, folder: Path) -> None:
    """Write each frame as FOLDER/NAME.csv and .parquet, each file replaced whole."""
    for name, data in frames.items():
        ordered = data[list(SCHEMAS[name])]
        text = _marked(ordered).to_csv(index=False, float_format="%.7g")
        text = text.replace("\r", " ")  # pandas does not quote it
        replace_file(folder / f"{name}.csv", text.encode("utf-8"))
        replace_file(folder / f"{name}.parquet", ordered.to_parquet(None, index=False))


def _marked(data: DataFrame) -> DataFrame:
    """The columns with an apostrophe before each text that a spreadsheet would take for a formula."""
    texts: DataFrame = data.select_dtypes("string")
    marked = texts.apply(lambda text: text.str.replace(_FORMULA, r"'\1", regex=True))
    return data.assign(**marked)


def read(table: str, folder: Path, required: bool = True) -> DataFrame:
    """Read `folder`/TABLE.csv; empty where it is missing and not required.

    Raises LadderError where it must be there, its columns are not the schema's, a line or value is damaged, or
    its rows are not as many as those of the parquet beside it.
    """
    path = folder / f"{table}.csv"
    if not path.is_file():
        if required:
            raise LadderError(f"{path}: the table is missing")
        return frame(table, [])
    beside = path.with_suffix(".parquet")
    try:
        rows = _parsed(table, path.read_bytes())
        number = pq.read_metadata(beside).num_rows if beside.is_file() else len(rows)
        if number != len(rows):
            raise ValueError(f"{len(rows)} rows, and {number} in {beside.name}")
    except (TypeError, ValueError, OverflowError) as error:
        raise LadderError(f"{path}: not a CSV table of {table}: {error}") from error
    columns = list(SCHEMAS[table])
    if list(rows) != columns:
        differing = sorted({*rows} ^ {*columns}) or ["their order"]
        raise LadderError(
            f"{path}: the columns are not those of {table}: {', '.join(differing)}"
        )
    # In a copy columns of one kind lie together: selecting rows takes half the time.
    return rows.copy()


def _parsed(table: str, data: bytes) -> DataFrame:
    """Rows of a CSV file. Raises ValueError, TypeError or OverflowError where a line or value is damaged."""
    # Arrow counts the fields of each line, which pandas fills up.
    whole = arrow.ReadOptions(block_size=len(data) + 1)
    arrow.read_csv(io.BytesIO(data), whole, arrow.ParseOptions(newlines_in_values=True))
    rows = pd.read_csv(
        io.BytesIO(data), dtype=_DTYPES[table], keep_default_na=False, na_values=[""]
    )
    if not data.endswith(b"\n"):
        raise ValueError("its last line is cut short")
    return rows


def of_sweep(frames: Frames, sweep: str, names: Sequence[str]) -> Frames:
    """Rows of a sweep, of some tables by name."""
    return {name: frames[name][frames[name]["sweep"] == sweep] for name in names}


def concat(frames: Sequence[DataFrame], table: str) -> DataFrame:
    """Frames of one table below one another."""
    return pd.concat([frame(table, []), *frames], ignore_index=True)
