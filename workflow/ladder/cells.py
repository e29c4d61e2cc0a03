"""The record of a sweep's measured cells: a JSON line per cell, appended when done, keyed by what it depends on."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ladder.digest import sha256


def cell_key(
    cell: Mapping[str, Any], plan: Mapping[str, Any], cubins: Mapping[str, str], host: Mapping[str, str]
) -> str:
    """Digest of everything a cell's measurement depends on.

    `cubins` maps variants to their cubins' SHA-256; `host` holds the GPU model, driver and library versions.
    """
    used = [cell["launch"], *(reference for reference in cell["references"] if "variant" in reference)]
    parts = {
        "cell": cell,
        "cubins": {launch["variant"]: cubins[launch["variant"]] for launch in used},
        "problem": plan["problem"],
        "protocol": plan["protocol"],
        "regimes": plan["regimes"],
        "settings": plan["settings"],
        "host": dict(host),
    }
    return sha256(json.dumps(parts, sort_keys=True).encode())


def read_records(path: Path) -> list[dict[str, Any]]:
    """Records of a JSON-lines file; a last line cut short by a killed run is left out."""
    if not path.is_file():
        return []
    records = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return records


class RecordFile:
    """Appends records so that a killed run loses at most the cell in flight."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        # A line cut short by a kill must not swallow the next record.
        cut = path.is_file() and path.stat().st_size > 0 and not path.read_bytes().endswith(b"\n")
        self._file = path.open("a", encoding="utf-8")
        if cut:
            self._file.write("\n")

    def append(self, record: Mapping[str, Any]) -> None:
        """Write one record through to the disk."""
        self._file.write(json.dumps(record) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def write_records(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Replace the file by these records, atomically."""
    from ladder.tables import replace_file

    replace_file(path, "".join(json.dumps(record) + "\n" for record in records).encode("utf-8"))
