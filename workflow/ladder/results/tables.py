"""Tables as frames: made from rows, written as CSV with parquet beside it, and read back."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ladder.model.errors import LadderError
from ladder.model.files import replace_file
from ladder.model.schemas import SCHEMAS

_KINDS = {"text": "string[python]", "float": "float64", "int": "Int64", "bool": "boolean"}
_DTYPES = {table: {name: _KINDS[kind] for name, kind in SCHEMAS[table].items()} for table in SCHEMAS}


def frame(table: str, rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """A frame of `table`'s schema from what rows say of its columns; absent columns are empty."""
    return pd.DataFrame(rows, columns=list(SCHEMAS[table])).astype(_DTYPES[table])


def write(frames: Mapping[str, pd.DataFrame], folder: Path) -> None:
    """Write each frame as FOLDER/NAME.csv and .parquet, each file replaced whole."""
    for name, data in frames.items():
        ordered = data[list(SCHEMAS[name])]
        replace_file(folder / f"{name}.csv", ordered.to_csv(index=False, float_format="%.7g").encode("utf-8"))
        replace_file(folder / f"{name}.parquet", ordered.to_parquet(None, index=False))


def read(table: str, folder: Path, required: bool = True) -> pd.DataFrame:
    """Read `folder`/TABLE.csv; empty where it is missing and not required.

    Raises LadderError where it must be there, or its columns are not the schema's.
    """
    path, columns = folder / f"{table}.csv", list(SCHEMAS[table])
    if not path.is_file():
        if required:
            raise LadderError(f"{path}: the table is missing")
        return frame(table, [])
    header = [str(name) for name in pd.read_csv(path, nrows=0)]
    if header != columns:
        differing = sorted(set(header) ^ set(columns)) or ["their order"]
        raise LadderError(f"{path}: the columns are not those of {table}: {', '.join(differing)}")
    return pd.read_csv(path, dtype=_DTYPES[table], keep_default_na=False, na_values=[""])


def concat(frames: Sequence[pd.DataFrame], table: str) -> pd.DataFrame:
    """Frames of one table below one another."""
    return pd.concat([frame(table, []), *frames], ignore_index=True)
