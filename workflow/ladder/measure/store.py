"""The store of records: JSON-lines files, one a measuring job, never rewritten. Folders may be copied and merged."""

import json
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ladder.model.cell import Cell
from ladder.model.files import read_bytes
from ladder.model.record import Record, Session, from_text


def now() -> str:
    """UTC time, ISO 8601, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass
class Account:
    """What a measuring job did: tasks of the plan, kept and measured, wall and GPU time, and when.

    It is kept beside the tables of its sweep.
    """

    cells: int = 0
    kept: int = 0
    measured: int = 0
    wall_s: float = 0.0
    gpu_s: float = 0.0
    check_s: float = 0.0
    worker_starts: int = 0
    started: str = field(default_factory=now)
    finished: str = ""


Entry = Record | Session  # a line of a store
Append = Callable[[Entry], None]


@dataclass
class Records:
    """Records by cell, in the order of their times, and the sessions they are from."""

    by_cell: dict[str, list[Record]] = field(default_factory=dict)
    sessions: dict[str, Session] = field(default_factory=dict)
    # Places of lines that are no JSON.
    unreadable: list[str] = field(default_factory=list)

    def add(self, entries: Iterable[Entry]) -> "Records":
        """Take in records and sessions; returns itself."""
        grown = set[str]()
        for entry in entries:
            if isinstance(entry, Session):
                self.sessions[entry.id] = entry
            else:
                self.by_cell.setdefault(entry.cell.id, []).append(entry)
                grown.add(entry.cell.id)
        for cell in grown:
            self.by_cell[cell].sort(key=lambda record: record.time)
        return self

    def __iter__(self) -> Iterator[Record]:
        return (record for records in self.by_cell.values() for record in records)

    def of(self, cell: Cell) -> list[Record]:
        """Every record of a cell, the latest last."""
        return self.by_cell.get(cell.id, [])

    def same_conditions(self, record: Record) -> list[Record]:
        """Records of the same cell under equal conditions, the latest last; this one alone where they are unknown."""
        conditions = record.conditions
        if not (conditions.tree and conditions.host):
            return [record]
        return [
            other for other in self.of(record.cell) if other.conditions == conditions
        ]

    def since(self, time: str) -> "Records":
        """The records from a time on, with all sessions."""
        later = Records(sessions=self.sessions)
        return later.add(record for record in self if record.time >= time)

    def of_sessions(self, wanted: Callable[[Session], bool]) -> "Records":
        """The records of some sessions, with these."""
        sessions = [each for each in self.sessions.values() if wanted(each)]
        names = {session.id for session in sessions}
        records = [record for record in self if record.session in names]
        return Records().add([*sessions, *records])

    def latest(
        self,
        cell: Cell,
        tree: Mapping[str, Any],
        host: Mapping[str, Any] | None,
        counts: Callable[[Record], bool] = lambda record: True,
    ) -> Record | None:
        """The latest record of a cell under these conditions that `counts`; of any host where `host` is None."""
        for record in reversed(self.of(cell)):
            conditions = record.conditions
            alike = conditions.tree == tree and host in (None, conditions.host)
            if alike and counts(record):
                return record
        return None


def read_store(folder: Path) -> Records:
    """Every record of a store; none where there is no such folder. Raises LadderError for a newer version's."""
    records = Records()
    entries = list[Entry]()
    for path in sorted(folder.glob("*.jsonl")):
        lines = read_bytes(path).decode(errors="replace").splitlines()
        for number, line in enumerate(lines, 1):
            place = f"{path}: line {number}"
            try:
                entries.append(from_text(line, place))
            except (ValueError, RecursionError):
                # A last line cut short by a kill is no damage.
                if number < len(lines):
                    records.unreadable.append(place)
    return records.add(entries)


def new_name(word: str) -> str:
    """A name that no other job or session has: what it is for, when to the millisecond, and chance.

    Names of one word are in the order of time, which says what is the latest of a cell.
    """
    microsecond = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")
    return f"{word}-{microsecond[:-3]}Z-{secrets.token_hex(3)}"


@contextmanager
def appending(folder: Path, word: str) -> Iterator[Append]:
    """A new file of a store, and what appends to it: each line is on the disk before the next cell begins."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{new_name(word)}.jsonl"
    with path.open("x", encoding="utf-8") as file:

        def append(entry: Entry) -> None:
            try:
                file.write(json.dumps(entry.to_json()) + "\n")
                file.flush()
                os.fsync(file.fileno())
            except OSError as error:
                error.filename = path
                raise

        yield append
