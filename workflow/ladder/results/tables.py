"""Tables as frames: made from rows, written as CSV with parquet beside it, and read back."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from ladder.model.errors import LadderError
from ladder.model.files import replace_file
from ladder.model.schemas import SCHEMAS

_KINDS = {"text": "string", "float": "float64", "int": "Int64", "bool": "boolean"}

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
    series = {
        name: pd.Series([row.get(name) for row in rows], dtype=_KINDS[kind]) for name, kind in columns.items()
    }
    return pd.DataFrame(series)


def write(table: str, data: pd.DataFrame, folder: Path) -> None:
    """Write `folder`/TABLE.csv and TABLE.parquet, each replaced whole."""
    ordered = data[list(SCHEMAS[table])]
    replace_file(folder / f"{table}.csv", ordered.to_csv(index=False, float_format="%.7g").encode("utf-8"))
    buffer = io.BytesIO()
    ordered.to_parquet(buffer, index=False)
    replace_file(folder / f"{table}.parquet", buffer.getvalue())


def write_all(frames: Mapping[str, pd.DataFrame], folder: Path) -> None:
    """Write every frame as FOLDER/NAME.csv and .parquet."""
    for name, data in frames.items():
        write(name, data, folder)


def exists(table: str, folder: Path) -> bool:
    return (folder / f"{table}.csv").is_file()


def read(table: str, folder: Path) -> pd.DataFrame:
    """Read `folder`/TABLE.csv. Raises LadderError where it is missing or its columns are not the schema's."""
    path = folder / f"{table}.csv"
    columns = SCHEMAS[table]
    if not path.is_file():
        raise LadderError(f"{path}: the table is missing")
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
