"""Records: what was measured, under which conditions, in which session. They are appended and never rewritten."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ladder.model.cell import Cell, Reference
from ladder.model.errors import LadderError
from ladder.model.files import digest_json

SCHEMA = 1
"""Version of the records that this code writes; older ones are brought up to it by `_UPGRADES`."""

_UPGRADES: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}
"""Version -> what makes a document of that version one of the next."""


@dataclass(frozen=True)
class Conditions:
    """What a measurement depends on besides its cell. `tree`: what follows from the checkout. `host`: the machine's
    part.

    tree: digests of the machine code of variant and reference, of the measuring code and of its device kernels; the
    launch; the settings that count. host: GPU model, driver and library versions. Both are empty where they are
    unknown.
    """

    tree: Mapping[str, Any] = field(default_factory=dict)
    host: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Session:
    """One measuring process on one GPU: the card, the host, the software, and the checkout it ran from.

    gpu: name, uuid, sms, peaks, copy rate, power limit and so on. host: CPU, cores, memory, number of GPUs.
    versions: driver, libraries, packages. tree: digest, and commit where known. clock_floor_us: an empty kernel,
    timed as cells are.
    """

    id: str
    started: str
    gpu: Mapping[str, Any] = field(default_factory=dict)
    host: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, Any] = field(default_factory=dict)
    tree: Mapping[str, Any] = field(default_factory=dict)
    clock_floor_us: float | None = None
    note: str = ""
    """What else must be known of it, such as that it was imported."""

    def to_json(self) -> dict[str, Any]:
        """The session as a line of a store."""
        return {"schema": SCHEMA, "session": asdict(self)}


@dataclass(frozen=True)
class Record:
    """What became of one cell: status, reason and result, and what it takes to know where they come from.

    result: `variant_us` and `reference_us` in the order taken (or a `summary` where raw times are not known),
    `reference` (which of the libraries), `algorithm`, `speedup` with its interval, `stopped_by`, `check`, `device`
    (clock, power, temperature), `observations`, `copy_us`, `built` (digests of source and cubin).
    """

    cell: Cell
    conditions: Conditions
    variant: str
    sweep: str
    """The sweep that asked first."""
    session: str
    time: str
    status: str
    reason: str = ""
    limit_s: float | None = None
    """The deadline that a timeout hit."""
    result: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Digest of cell and conditions: two records with one key may stand for each other."""
        return digest_json([self.cell.id, dict(self.conditions.tree), dict(self.conditions.host)])

    def to_json(self) -> dict[str, Any]:
        """The record as a line of a store."""
        document = {name: value for name, value in vars(self).items() if name not in ("cell", "conditions")}
        cell = {name: value for name, value in vars(self.cell).items() if name != "id"}
        cell["reference"] = {name: value for name, value in vars(self.cell.reference).items() if value}
        return {
            "schema": SCHEMA,
            "record": {"key": self.key, "cell": cell, "conditions": vars(self.conditions), **document},
        }


def _cell(document: Mapping[str, Any]) -> Cell:
    against = document["reference"]
    reference = Reference(**{**against, "libraries": tuple(against.get("libraries", ()))})
    return Cell(**{**document, "reference": reference})


def from_json(document: Mapping[str, Any]) -> Record | Session:
    """A line of a store. Raises LadderError for a newer schema, KeyError or TypeError where it is no such line."""
    version = document["schema"]
    if version > SCHEMA:
        raise LadderError(f"records of schema {version}: this version reads up to {SCHEMA}; update it")
    upgraded = dict(document)
    while version < SCHEMA:
        upgraded, version = _UPGRADES[version](upgraded), version + 1
    if "session" in upgraded:
        return Session(**upgraded["session"])
    given = dict(upgraded["record"])
    given.pop("key")
    conditions = Conditions(**given.pop("conditions"))
    return Record(cell=_cell(given.pop("cell")), conditions=conditions, **given)
