"""Tables as frames: made from rows, written as CSV with parquet beside it, and read back."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from ladder.model.errors import LadderError
from ladder.model.files import replace_file
from ladder.model.schemas import SCHEMAS

_KINDS = {"text": "string[python]", "float": "float64", "int": "Int64", "bool": "boolean"}

Row = Mapping[str, object]


def row(table: str, *parts: Row) -> dict[str, object]:
    """What `parts` say of a table's columns; the last one wins."""
    said = {name: value for part in parts for name, value in part.items()}
    return {name: said[name] for name in SCHEMAS[table] if name in said}


def frame(table: str, rows: Sequence[Row]) -> pd.DataFrame:
    """A frame of `table`'s schema from rows; absent columns are empty. A column the schema lacks is a KeyError."""
    columns = SCHEMAS[table]
    for row in rows:
        if extra := set(row) - set(columns):
            raise KeyError(f"{table} has no column {sorted(extra)}")
    return pd.DataFrame(
        {name: pd.Series([row.get(name) for row in rows], dtype=_KINDS[kind]) for name, kind in columns.items()}
    )


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
    path = folder / f"{table}.csv"
    columns = SCHEMAS[table]
    if not path.is_file():
        if required:
            raise LadderError(f"{path}: the table is missing")
        return frame(table, [])
    header = path.read_text(encoding="utf-8").split("\n", 1)[0].split(",")
    if header != list(columns):
        differing = sorted(set(header) ^ set(columns)) or ["their order"]
        raise LadderError(f"{path}: the columns are not those of {table}: {', '.join(differing)}")
    kinds = {name: _KINDS[kind] for name, kind in columns.items()}
    return pd.read_csv(path, dtype=kinds, keep_default_na=False, na_values=[""])


def concat(frames: Sequence[pd.DataFrame], table: str) -> pd.DataFrame:
    """Frames of one table below one another."""
    filled = [one for one in frames if len(one)] or list(frames[:1])
    return pd.concat(filled, ignore_index=True) if filled else frame(table, [])
