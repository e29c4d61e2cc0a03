"""Tables as frames: made from rows, written as CSV with parquet beside it, and read back."""

import csv
import io
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ladder.model.errors import LadderError, refuse
from ladder.model.files import replace_file
from ladder.model.schemas import SCHEMAS

_KINDS = {"text": "string[python]", "float": "float64", "int": "Int64", "bool": "boolean"}
_DTYPES = {table: {name: _KINDS[kind] for name, kind in SCHEMAS[table].items()} for table in SCHEMAS}

_WRITTEN = {
    "float": (re.compile(r"-?\d+(\.\d+)?(e[-+]?\d+)?"), "a finite number"),
    "int": (re.compile(r"-?\d+"), "a whole number"),
    "bool": (re.compile("True|False"), "True or False"),
}
"""How a value of a kind is written, as a pattern and in words."""

csv.field_size_limit(sys.maxsize)  # a compiler says a lot


def frame(table: str, rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """A frame of `table`'s schema from what rows say of its columns; absent columns are empty."""
    try:
        return pd.DataFrame(rows, columns=list(SCHEMAS[table])).astype(_DTYPES[table])
    except (TypeError, ValueError) as error:
        raise LadderError(f"{table}: a value of another kind: {error}") from error


def write(frames: Mapping[str, pd.DataFrame], folder: Path) -> None:
    """Write each frame as FOLDER/NAME.csv and .parquet, each file replaced whole."""
    for name, data in frames.items():
        ordered = data[list(SCHEMAS[name])]
        # A carriage return would end the line: pandas does not quote it.
        text = ordered.to_csv(index=False, float_format="%.7g").replace("\r", " ")
        replace_file(folder / f"{name}.csv", text.encode("utf-8"))
        replace_file(folder / f"{name}.parquet", ordered.to_parquet(None, index=False))


def read(table: str, folder: Path, required: bool = True) -> pd.DataFrame:
    """Read `folder`/TABLE.csv; empty where it is missing and not required.

    Raises LadderError where it must be there, where its columns are not the schema's, and for a line cut short or a
    value of another kind.
    """
    path, columns = folder / f"{table}.csv", dict(SCHEMAS[table])
    if not path.is_file():
        if required:
            raise LadderError(f"{path}: the table is missing")
        return frame(table, [])
    try:
        text = path.read_bytes().decode()
        header, *rows = [*csv.reader(io.StringIO(text, newline=""), strict=True)] or [[]]
    except (UnicodeDecodeError, csv.Error) as error:
        raise LadderError(f"{path}: not a CSV table in UTF-8: {error}") from error
    # Published before resources were kept by sweep: the timings say which sweeps a variant is of.
    if shared := table == "resources" and "sweep" not in header:
        del columns["sweep"]
    if header != list(columns):
        differing = sorted(set(header) ^ set(columns)) or ["their order"]
        raise LadderError(f"{path}: the columns are not those of {table}: {', '.join(differing)}")
    if not text.endswith("\n"):
        raise LadderError(f"{path}: cut short: its last line has no end")
    for number, row in enumerate(rows, 1):
        if len(row) != len(columns):
            raise LadderError(f"{path}: row {number}: {len(row)} fields, accepted: {len(columns)}")
        for (name, kind), value in zip(columns.items(), row, strict=True):
            if value and kind in _WRITTEN and not _WRITTEN[kind][0].fullmatch(value):
                raise refuse(f"{path}: row {number}", name, value, _WRITTEN[kind][1])
    found = pd.read_csv(io.StringIO(text), dtype=_DTYPES[table], keep_default_na=False, na_values=[""])
    if shared:
        uses = read("timings", folder)
        uses = pd.concat([uses, uses.assign(variant=uses["reference"])])[["sweep", "variant"]]
        found = uses.drop_duplicates().merge(found, on="variant")
    return found[list(SCHEMAS[table])]


def concat(frames: Sequence[pd.DataFrame], table: str) -> pd.DataFrame:
    """Frames of one table below one another."""
    return pd.concat([frame(table, []), *frames], ignore_index=True)
