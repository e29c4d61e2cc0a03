"""The store of records: JSON-lines files, one a measuring job, never rewritten. Folders may be copied and merged."""

import json
import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ladder.model.cell import Cell
from ladder.model.files import read_bytes
from ladder.model.record import Record, Session, from_text

Append = Callable[[Record | Session], None]


@dataclass
class Records:
    """Records by cell, in the order of their times, and the sessions they are from."""

    by_cell: dict[str, list[Record]] = field(default_factory=dict)
    sessions: dict[str, Session] = field(default_factory=dict)
    unreadable: list[str] = field(
        default_factory=list
    )  # places of lines that are no JSON

    def add(self, given: Iterable[Record | Session]) -> "Records":
        """Take in records and sessions; returns itself."""
        grown = set()
        for one in given:
            if isinstance(one, Session):
                self.sessions[one.id] = one
            else:
                self.by_cell.setdefault(one.cell.id, []).append(one)
                grown.add(one.cell.id)
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
        return [one for one in self.of(record.cell) if one.conditions == conditions]

    def since(self, time: str) -> "Records":
        """The records from a time on, with all sessions."""
        return Records().add(
            [*self.sessions.values(), *(one for one in self if one.time >= time)]
        )

    def of_sessions(self, wanted: Callable[[Session], bool]) -> "Records":
        """The records of some sessions, with these."""
        of = {one.id: one for one in self.sessions.values() if wanted(one)}
        return Records().add(
            [*of.values(), *(one for one in self if one.session in of)]
        )

    def latest(
        self,
        cell: Cell,
        tree: Mapping[str, Any],
        host: Mapping[str, Any] | None,
        counts: Callable[[Record], bool] = lambda record: True,
    ) -> Record | None:
        """The latest record of a cell under these conditions that `counts`; of any host where `host` is None."""
        known = (one for one in reversed(self.of(cell)) if one.conditions.tree == tree)
        return next(
            (
                one
                for one in known
                if host in (None, one.conditions.host) and counts(one)
            ),
            None,
        )


def read_store(folder: Path) -> Records:
    """Every record of a store; none where there is no such folder. Raises LadderError for a newer version's."""
    found, read = Records(), list[Record | Session]()
    for path in sorted(folder.glob("*.jsonl")):
        lines = read_bytes(path).decode(errors="replace").splitlines()
        for number, line in enumerate(lines, 1):
            place = f"{path}: line {number}"
            try:
                read.append(from_text(line, place))
            except (
                ValueError,
                RecursionError,
            ):  # a last line cut short by a kill is no damage
                found.unreadable += [place] if number < len(lines) else []
    return found.add(read)


def now() -> str:
    """UTC time, ISO 8601, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def new_name(word: str) -> str:
    """A name that no other job or session has: what it is for, when to the millisecond, and chance.

    Names of one word are in the order of time, which says what is the latest of a cell.
    """
    seconds, millisecond = divmod(time.time_ns() // 10**6, 1000)
    when = time.strftime("%Y%m%dT%H%M%S", time.gmtime(seconds))
    return f"{word}-{when}.{millisecond:03d}Z-{secrets.token_hex(3)}"


@contextmanager
def appending(folder: Path, word: str) -> Iterator[Append]:
    """A new file of a store, and what appends to it: each line is on the disk before the next cell begins."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{new_name(word)}.jsonl"
    with path.open("x", encoding="utf-8") as file:

        def append(one: Record | Session) -> None:
            try:
                file.write(json.dumps(one.to_json()) + "\n")
                file.flush()
                os.fsync(file.fileno())
            except OSError as error:
                error.filename = path
                raise

        yield append
