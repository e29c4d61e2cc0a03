"""Records: what was measured, under which conditions, in which session. They are appended and never rewritten."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from ladder.model.cell import COUNTERS, Cell
from ladder.model.document import taking
from ladder.model.errors import LadderError
from ladder.model.files import digest_json
from ladder.model.schemas import SCHEMAS, STATUSES
from ladder.model.shapes import Number, fields, held, shaped

SCHEMA = 1  # version of the records that this code writes and reads

_PEAKS = {"tensor_peak_tflops": Mapping[str, Number | None] | None}
_GPU = "name uuid sms:int memory_bytes:int sm_clock_max_mhz:float power_limit_w:float fp32_peak_tflops:float"
Gpu = Annotated[
    Mapping[str, Any], shaped(fields(f"{_GPU} copy_gbytes_per_s:float started finished") | _PEAKS)
]
Host = Annotated[Mapping[str, Any], shaped(fields("cpu cores:int memory_bytes:int"))]
Tree = Annotated[Mapping[str, Any], shaped(fields("digest commit clean:bool"))]
VERSIONS = fields("driver cublas nvrtc ncu python") | {"packages": Mapping[str, str | None] | None}
_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Times = Annotated[list[_Positive], Field(min_length=1)]
# What a result says of a cell becomes columns of tables.
_COLUMNS = {**SCHEMAS["sessions"], **SCHEMAS["timings"], **fields("start_clock_mhz:float")}
_COLUMNS |= dict.fromkeys(["speedup", "median_us", "reference_median_us"], _Positive | None)
_Part = Annotated[Mapping[str, Any], shaped(_COLUMNS)]
_Summary = Annotated[Mapping[str, Any], shaped(_COLUMNS, ["median_us"])]
_Metric = Annotated[Mapping[str, Any], shaped(SCHEMAS["metrics"], ["metric", "value"])]
_RESULT = {**_COLUMNS, "copy_us": "float", "variant_us": _Times, "reference_us": _Times, "summary": _Summary}
_RESULT |= dict.fromkeys(["check", "device", "built", "spent"], _Part | None)
_RESULT |= {"observations": list[_Metric] | None, "notes": list[str] | None}


@dataclass(frozen=True)
class Conditions:
    """What a measurement depends on besides its cell; empty where it is unknown.

    tree: digests of machine code, measuring code and device kernels, the launch, the settings that count. host: GPU
    model, driver and library versions.
    """

    tree: Annotated[Mapping[str, Any], shaped(fields("machine_code"))] = field(default_factory=dict)
    host: Annotated[Mapping[str, Any], shaped(fields("driver"))] = field(default_factory=dict)


@dataclass(frozen=True)
class Session:
    """One measuring process on one GPU: the card, the host, the software, and the checkout it ran from.

    gpu: name, uuid, sms, peaks, copy rate, power limit and so on. host: CPU, cores, memory, GPUs. tree: digest, and
    commit where known. clock_floor_us: an empty kernel, timed as cells are. note: such as that it was imported.
    """

    id: str
    started: str
    gpu: Gpu = field(default_factory=dict)
    host: Host = field(default_factory=dict)
    versions: Annotated[Mapping[str, Any], shaped(VERSIONS)] = field(default_factory=dict)
    tree: Tree = field(default_factory=dict)
    clock_floor_us: Number | None = None
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """The session as a line of a store."""
        return {"schema": SCHEMA, "session": asdict(self)}


@dataclass(frozen=True)
class Record:
    """What became of one cell: status, reason and result, and what it takes to know where they come from.

    `sweep` is the one it was measured for; `limit_s` is the deadline of a timeout. result: `variant_us`, `reference_us`
    in the order taken (or a `summary`), `reference` (which library), `algorithm`, `speedup` with its interval,
    `stopped_by`, `check`, `device` (clock, power, temperature), `observations`, `copy_us`, `built` (digests of source
    and cubin).
    """

    cell: Cell
    conditions: Conditions
    variant: str
    sweep: str
    session: str
    time: str
    status: Annotated[str, *taking(f"one of {', '.join(STATUSES)}", STATUSES.__contains__)]
    reason: str = ""
    limit_s: Number | None = None
    result: Annotated[Mapping[str, Any], shaped(_RESULT)] = field(default_factory=dict)

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


_KINDS: Mapping[str, TypeAdapter[Any]] = {"session": TypeAdapter(Session), "record": TypeAdapter(Record)}
_LINE = TypeAdapter(Annotated[Mapping[str, Any], shaped({"schema": int}, ["schema"])])


def from_json(line: Any, where: str) -> Record | Session:
    """A line of a store, which is at `where`. Raises LadderError for a newer schema, or where it is no such line."""
    if (schema := held(_LINE, line, where)["schema"]) > SCHEMA:
        raise LadderError(
            f"{where}: records of schema {schema}: this version reads up to {SCHEMA}; update it"
        )
    kind = "session" if "session" in line else "record"
    found: Record | Session = held(_KINDS[kind], line.get(kind), f"{where}: {kind}")
    if isinstance(found, Record) and found.status == "ok" and found.cell.regime != COUNTERS:
        times = ["summary"] if "summary" in found.result else ["variant_us", "reference_us"]
        for name in ("speedup", *times):
            if found.result.get(name) is None:
                raise LadderError(f"{where}: record: result: the field {name!r} is missing")
    return found
