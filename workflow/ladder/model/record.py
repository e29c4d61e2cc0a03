"""Records: what was measured, under which conditions, in which session. They are appended and never rewritten."""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Annotated, Any, NotRequired

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    GetPydanticSchema,
    TypeAdapter,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)
from typing_extensions import TypedDict

from ladder.model.cell import COUNTERS, Cell
from ladder.model.document import reading
from ladder.model.errors import LadderError, refuse, refuse_unknown
from ladder.model.files import digest_json
from ladder.model.schemas import STATUSES

SCHEMA = 2  # version of the records that this code writes; it reads all up to this one
NO_NUMBER = 1e300
"""The error of a result that is no number, as checks say it; also in place of infinity, which JSON does not have."""

_TIME = "%Y-%m-%dT%H:%M:%SZ"


def _check_time(text: str) -> str:
    if datetime.strptime(text, _TIME).strftime(_TIME) != text:
        raise ValueError(
            f"a UTC time such as 2026-11-20T10:00:00Z is expected, not {text!r}"
        )
    return text


# Records are merged by copying files, so that those of others are read too: nothing in them may serve as a path.
Time = Annotated[str, AfterValidator(_check_time)]
Name = Annotated[
    str, Field(max_length=200, pattern=r"^[^./\x00-\x1f\x7f-][^/\x00-\x1f\x7f]*$")
]
_Hex = Annotated[str, Field(pattern=r"^[0-9a-f]{7,64}$")]
_Line = Annotated[str, Field(max_length=1000, pattern=r"^[^\x00-\x1f\x7f]+$")]
_Words = Annotated[str, Field(max_length=1000)]
# Wide bounds: what lies outside was never measured, and would overflow where it is squared, counted or scaled.
_Us = Annotated[float, Field(ge=1e-6, le=1e12)]
_Times = Annotated[list[_Us], Field(min_length=1)]
_Ratio = Annotated[float, Field(ge=1e-9, le=1e9)]
_Number = Annotated[float, Field(ge=-1e18, le=1e18)] | None
_Amount = Annotated[float, Field(ge=0, le=1e18)] | None
_Error = Annotated[float, Field(ge=0, le=NO_NUMBER)] | None
_Count = Annotated[int, Field(ge=0, le=2**53)]
_Few = Annotated[int, Field(ge=0, le=2**15 - 1)]


def _held_to(kind: type) -> Any:
    """What a mapping is annotated with to have the fields of a TypedDict. It stays as it was written."""

    def check(mapping: Any, validate: ValidatorFunctionWrapHandler) -> Any:
        validate(mapping)
        return mapping

    return GetPydanticSchema(lambda _, schema_of: schema_of(kind)), WrapValidator(check)


class _Open(TypedDict):
    """Some fields, besides what another version adds."""

    __pydantic_config__ = ConfigDict(  # type: ignore[misc]
        extra="allow", strict=True, allow_inf_nan=False
    )


class Tree(_Open, total=False):
    """The checkout a session ran from: digest of its files, the commit, and whether all is committed."""

    digest: _Hex | None
    commit: _Hex | None
    clean: bool | None


class Card(_Open, total=False):
    """What is known of a GPU, besides what another version adds."""

    name: _Line | None
    uuid: Name | None
    sms: _Few | None
    memory_bytes: _Amount
    l2_bytes: _Amount
    boost_clock_mhz: _Amount
    sm_clock_max_mhz: _Amount
    power_limit_w: _Amount
    copy_gbytes_per_s: _Amount
    memory_peak_gbytes_per_s: _Amount
    fp32_peak_tflops: _Amount
    tensor_peak_tflops: dict[str, _Amount] | None


class Host(_Open, total=False):
    """What is known of a host, besides what another version adds; `gpus` counts all that it has."""

    cpu: _Words | None
    cores: _Few | None
    memory_bytes: _Amount
    gpus: _Few | None


class Versions(_Open, total=False):
    """What is known of the software, besides what another version adds; None of a package that is not installed."""

    driver: _Words | None
    cublas: _Words | None
    python: _Words | None
    packages: dict[str, _Words | None]


class _Check(_Open, total=False):
    max_error: _Error
    error_bound: _Error
    launches: _Count


class _Device(_Open, total=False):
    sm_clock_mhz: _Number
    power_w: _Number
    temperature_c: _Number
    clock_events: list[str] | None
    busy: bool | None


class _Observation(_Open):
    metric: str
    unit: str | None
    value: Annotated[float, Field(ge=-1e18, le=NO_NUMBER)] | None


class _Partner(_Open):
    reference: str
    algorithm: str


class _Candidate(_Partner):
    us: _Times
    fastest_us: NotRequired[_Times]


class _RunnerUp(_Partner):
    longer: _Ratio
    longer_low: _Ratio
    longer_high: _Ratio


class Result(_Open, total=False):
    """What became of a cell with a result, besides what another version adds; times in us.

    `variant_us` and `reference_us` are in the order taken.
    `reference` is the library or kernel, `algorithm` that of cuBLASLt, else "". `references` are times to choose by.
    Of the choice of a reference: `candidates` with their times and the winner's (`fastest_us`) in pairs with them; the
    winner is `reference` and `algorithm`; the `runner_up`, and those `tied` with the winner.
    `built`: digests of source and cubin. `transient`: of a failure that came of what else the GPU or host was used for.
    """

    variant_us: _Times
    reference_us: _Times
    speedup: _Ratio
    speedup_low: _Ratio
    speedup_high: _Ratio
    stopped_by: str
    clock: str
    reference: str
    algorithm: str | None
    references: dict[str, _Us]
    candidates: Annotated[list[_Candidate], Field(min_length=1)]
    runner_up: _RunnerUp | None
    tied: list[_Partner]
    notes: list[str]
    check: _Check | None
    device: _Device | None
    observations: list[_Observation] | None
    copy_us: _Number
    built: dict[str, str | None] | None
    sustained: dict[str, dict[str, _Number]] | None
    transient: bool


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
    commit where known. clock_floor_us: an empty kernel, timed as cells are.
    """

    id: Name
    started: Time
    gpu: Annotated[Mapping[str, Any], *_held_to(Card)] = field(default_factory=dict)
    host: Annotated[Mapping[str, Any], *_held_to(Host)] = field(default_factory=dict)
    versions: Annotated[Mapping[str, Any], *_held_to(Versions)] = field(
        default_factory=dict
    )
    tree: Annotated[Mapping[str, Any], *_held_to(Tree)] = field(default_factory=dict)
    clock_floor_us: _Amount = None

    def to_json(self) -> dict[str, Any]:
        """The session as a line of a store."""
        return {"schema": SCHEMA, "session": asdict(self)}


@dataclass(frozen=True)
class Record:
    """What became of one cell: status, reason and result, and what it takes to know where they come from.

    `sweep` is the one it was measured for; `limit_s` is the deadline of a timeout. `result` has the fields of Result.
    """

    cell: Cell
    conditions: Conditions
    variant: _Line
    sweep: Name
    session: Name
    time: Time
    status: str
    reason: str = ""
    limit_s: _Amount = None
    result: Annotated[Mapping[str, Any], *_held_to(Result)] = field(
        default_factory=dict
    )

    @property
    def key(self) -> str:
        """Digest of cell and conditions: two records with one key may stand for each other."""
        return digest_json(
            [self.cell.id, dict(self.conditions.tree), dict(self.conditions.host)]
        )

    def to_json(self) -> dict[str, Any]:
        """The record as a line of a store."""
        cell = asdict(self.cell)
        reference = cell["reference"].items()
        cell["reference"] = {name: value for name, value in reference if value}
        if not self.cell.beta:
            del cell["beta"]
        fields = {
            **vars(self),
            "key": self.key,
            "cell": cell,
            "conditions": vars(self.conditions),
        }
        return {"schema": SCHEMA, "record": fields}


_FIRST_VERSIONS = {
    "03870e8bc60d76bd",
    "3f43de215c629f5b",
    "4d589addb71eed92",
    "4e64acdcdcd904cd",
    "9b30c9da2adb5082",
    "ca172631323a85c6",
    "cd96bce3182450b3",
    "0042aeccee51c199",
    "0848006e8911590a",
    "5ad585ab3cdbb77b",
    "82cf65a9b0178f45",
    "889e42640f954692",
    "c67bfb044fdfa9d0",
    "d576e720cc918511",
    "72c671e8b9ebecef",
}
"""Digests of the code that checked and timed, in records of schema 1, that are version 1 of each."""


def _bring_up_to_date(fields: Any) -> None:
    """Change the fields of a record of schema 1 to those of schema 2.

    Versions take the place of digests of code. A digest that is not known stays: it equals no version, and the record
    stands for nothing that is measured today. The parameter k of stencils was the whole halo, and the radius is half of
    it. An odd halo has no radius: its record stays as it is, and stands for no cell.
    """
    cell = fields["cell"]
    tree = fields["conditions"].get("tree", {})
    tree.pop("harness", None)
    for name in {"check", "timing"} & tree.keys():
        if tree[name] in _FIRST_VERSIONS:
            tree[name] = 1
    if cell["regime"] == COUNTERS and tree.get("check") == 1:
        del tree["check"]

    halo = cell["params"].get("k")
    is_stencil = cell["kernel"].startswith("stencil_")
    if not is_stencil or not isinstance(halo, int) or halo % 2:
        return
    radius = halo // 2
    for side in (cell, cell["reference"]):
        params = side.get("params", {})
        if "k" in params:
            del params["k"]
            side["params"] = {"radius": radius, **params}
    for place, key in ((fields, "variant"), (fields["result"], "reference")):
        if key in place:
            name = re.sub(rf"-k={halo}(?=-|$)", f"-radius={radius}", place[key])
            place[key] = name


_SESSION = TypeAdapter(Session)
_RECORD = TypeAdapter(Record)

_NEEDED = (
    "speedup",
    "speedup_low",
    "speedup_high",
    "reference",
    "variant_us",
    "reference_us",
)
_NEEDED_OF_CHOICE = (
    "candidates",
    "reference",
    "algorithm",
    "references",
    "runner_up",
    "tied",
)


def _refuse_incomplete(record: Record, schema: int, where: str) -> None:
    """Raises LadderError for a result without a field that the steps behind it need."""
    if record.status != "ok" or record.cell.regime == COUNTERS:
        return
    needed = _NEEDED if record.cell.kernel else _NEEDED_OF_CHOICE
    early = ": a record of a release before v3, which this version does not read"
    why = early if schema == 1 else ""
    for name in needed:
        if name not in record.result:
            raise LadderError(f"{where}: result: the field {name!r} is missing{why}")


def from_text(text: str, where: str, **times: Any) -> Record | Session:
    """A line of a store, which is at `where`; `times` are fields of the result that are kept beside the text.

    Raises ValueError where it is no JSON, and LadderError for a newer schema, or where it is no such line.
    """
    line = json.loads(text)
    if "\\ud" in text.lower():  # half of a pair may stand there
        try:
            json.dumps(line, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            half = error.object[error.start]
            raise refuse(where, "a text", half, "text that UTF-8 can hold") from error
    if times:
        line["record"]["result"] |= times
    with reading(where):
        if line["schema"] > SCHEMA:
            wanted = f"this version reads up to {SCHEMA}; update it"
            raise LadderError(f"{where}: records of schema {line['schema']}: {wanted}")
        if "session" in line:
            return _SESSION.validate_python(line["session"])
        if line["schema"] == 1:
            _bring_up_to_date(line["record"])
        record = _RECORD.validate_python(line["record"])
        refuse_unknown(where, "status", record.status, STATUSES)
        _refuse_incomplete(record, line["schema"], where)
    return record
