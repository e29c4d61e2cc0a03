"""The store of records: a folder of JSON-lines files, one a measuring job, which are appended to and never rewritten.

A folder copied or merged with another is a store as well, and several jobs may write at once.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ladder.model.cell import Cell
from ladder.model.errors import LadderError
from ladder.model.record import Record, Session, from_json


@dataclass
class Records:
    """Records by cell, in the order of their times, and the sessions they are from."""

    by_cell: dict[str, list[Record]] = field(default_factory=dict)
    sessions: dict[str, Session] = field(default_factory=dict)
    unreadable: int = 0
    """Lines that could not be read. A last line cut short by a kill is no damage and does not count."""

    def add(self, one: Record | Session) -> None:
        """Take in a record or a session."""
        if isinstance(one, Session):
            self.sessions[one.id] = one
        else:
            self.by_cell.setdefault(one.cell.id, []).append(one)

    def sort(self) -> None:
        """Put the records of each cell in the order of their times."""
        for records in self.by_cell.values():
            records.sort(key=lambda record: record.time)

    def __iter__(self) -> Iterator[Record]:
        return (record for records in self.by_cell.values() for record in records)

    def of(self, cell: Cell) -> list[Record]:
        """Every record of a cell, the latest last."""
        return self.by_cell.get(cell.id, [])

    def latest(
        self, cell: Cell, tree: Mapping[str, Any], host: Mapping[str, Any] | None = None
    ) -> Record | None:
        """The latest record of a cell under these conditions; of any host where `host` is None."""
        for record in reversed(self.of(cell)):
            if record.conditions.tree == tree and host in (None, record.conditions.host):
                return record
        return None


def _lines(path: Path) -> Iterator[dict[str, Any] | None]:
    """Documents of a file, None for a line that is none."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    for number, line in enumerate(lines, 1):
        try:
            document = json.loads(line)
        except ValueError:
            if number < len(lines):
                yield None
            continue
        yield document if isinstance(document, dict) else None


def read_store(folder: Path, into: Records | None = None) -> Records:
    """Every record of a store; none where there is no such folder. Raises LadderError for records of a newer
    version.
    """
    found = Records() if into is None else into
    for path in sorted(folder.glob("*.jsonl")):
        for document in _lines(path):
            try:
                if document is None:
                    raise ValueError
                found.add(from_json(document))
            except LadderError as error:
                raise LadderError(f"{path}: {error}") from error
            except (KeyError, TypeError, ValueError):
                found.unreadable += 1
    found.sort()
    return found


def new_name(word: str) -> str:
    """A name that no other job or session has: what it is for, when, and chance."""
    return f"{word}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{secrets.token_hex(3)}"


class Appender:
    """Appends to a file of its own, each line on the disk before the next cell begins."""

    def __init__(self, folder: Path, word: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{new_name(word)}.jsonl"
        self._file = self.path.open("x", encoding="utf-8")

    def append(self, one: Record | Session) -> None:
        """Write one line through to the disk."""
        self._file.write(json.dumps(one.to_json()) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def append_all(folder: Path, word: str, given: Iterable[Record | Session]) -> None:
    """Append several at once."""
    appender = Appender(folder, word)
    for one in given:
        appender.append(one)
    appender.close()
