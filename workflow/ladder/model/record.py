"""Records: what was measured, under which conditions, in which session. They are appended and never rewritten."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from pydantic import TypeAdapter

from ladder.model.cell import COUNTERS, Cell
from ladder.model.document import reading
from ladder.model.errors import LadderError, refuse, refuse_unknown
from ladder.model.files import digest_json
from ladder.model.schemas import STATUSES

SCHEMA = 1  # version of the records that this code writes and reads


@dataclass(frozen=True)
class Conditions:
    """What a measurement depends on besides its cell; empty where it is unknown.

    tree: digests of machine code, measuring code and device kernels, the launch, the settings that count. host: GPU
    model, driver and library versions.
    """

    tree: Mapping[str, Any] = field(default_factory=dict)
    host: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Session:
    """One measuring process on one GPU: the card, the host, the software, and the checkout it ran from.

    gpu: name, uuid, sms, peaks, copy rate, power limit and so on. host: CPU, cores, memory, GPUs. tree: digest, and
    commit where known. clock_floor_us: an empty kernel, timed as cells are. note: such as that it was imported.
    """

    id: str
    started: str
    gpu: Mapping[str, Any] = field(default_factory=dict)
    host: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, Any] = field(default_factory=dict)
    tree: Mapping[str, Any] = field(default_factory=dict)
    clock_floor_us: float | None = None
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """The session as a line of a store."""
        return {"schema": SCHEMA, "session": asdict(self)}


@dataclass(frozen=True)
class Record:
    """What became of one cell: status, reason and result, and what it takes to know where they come from.

    `sweep` is the one it was measured for; `limit_s` is the deadline of a timeout. result: `variant_us`, `reference_us`
    in the order taken (or a `summary`), `reference` (which library) and its `algorithm` (of cuBLASLt, else ""),
    `references` (times to choose by) with their `algorithms`, `speedup` with its interval, `stopped_by`, `check`,
    `device` (clock, power, temperature), `observations`, `copy_us`, `built` (digests of source and cubin).
    """

    cell: Cell
    conditions: Conditions
    variant: str
    sweep: str
    session: str
    time: str
    status: str
    reason: str = ""
    limit_s: float | None = None
    result: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Digest of cell and conditions: two records with one key may stand for each other."""
        return digest_json([self.cell.id, dict(self.conditions.tree), dict(self.conditions.host)])

    def to_json(self) -> dict[str, Any]:
        """The record as a line of a store."""
        cell = {name: value for name, value in vars(self.cell).items() if name != "id"}
        cell["reference"] = {name: value for name, value in vars(self.cell.reference).items() if value}
        given = {**vars(self), "key": self.key, "cell": cell, "conditions": vars(self.conditions)}
        return {"schema": SCHEMA, "record": given}


_SESSION, _RECORD = TypeAdapter(Session), TypeAdapter(Record)


def from_json(line: Any, where: str) -> Record | Session:
    """A line of a store, which is at `where`. Raises LadderError for a newer schema, or where it is no such line."""
    with reading(where):
        if line["schema"] > SCHEMA:
            wanted = f"this version reads up to {SCHEMA}; update it"
            raise LadderError(f"{where}: records of schema {line['schema']}: {wanted}")
        if "session" in line:
            return _SESSION.validate_python(line["session"])
        record = _RECORD.validate_python(line["record"])
        refuse_unknown(where, "status", record.status, STATUSES)
        if record.status == "ok" and record.cell.regime != COUNTERS:
            known = {"speedup_low": 1, "speedup_high": 1, **record.result, **record.result.get("summary", {})}
            times = ["median_us"] if "summary" in known else ["variant_us", "reference_us"]
            for name in ("speedup", "speedup_low", "speedup_high", *times):
                numbers = known[name] if name in ("variant_us", "reference_us") else [known[name]]
                if not (numbers and all(0 < each < math.inf for each in numbers)):
                    raise refuse(where, f"result.{name}", known[name], "numbers above 0")
    return record
