"""The claims ledger as plain data: config/claims.yaml, held to its model and to the sweeps it speaks of.

How a verdict comes about. Row: the value's 95 % interval, widened by the noise margin, lies inside the condition (holds),
outside (refuted) or across its edge (inconclusive). Group: the rows alike in the `per` columns, joined by `require`. Test:
its groups; without `per` there is one. With `per` the claim depends on those columns: `scope: somewhere` (default) makes
the test hold where any group holds, `everywhere` where all do, and the column `where` names the groups where all tests of
the claim hold, tests without `per` included, and those where one is refuted. Claim: all its tests must hold, and tests
that depend on the same columns together in one group at least; one refuted test refutes it; a test without data leaves it
not measured unless another refutes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from ladder.catalogue.documents import parse, read_yaml
from ladder.model.document import Document, Text, matching, taking
from ladder.model.errors import LadderError, refuse
from ladder.model.expressions import FUNCTIONS, words
from ladder.model.schemas import SCHEMAS
from ladder.model.sweep import Sweep
from ladder.results.noise import BETWEEN_GPUS

DEFAULT_NOISE_PERCENT = 100 * BETWEEN_GPUS
"""A claim speaks of the model, not of one card."""
OTHER = "other_"
CONDITIONS = ("at_least", "at_most", "equals")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | str) and not isinstance(value, bool) and value != ""


Expression = Annotated[
    str | int | float,
    *taking(
        'a number or an expression over columns, parameters and metric("NAME")',
        _is_number,
        {"anyOf": [{"type": "number"}, {"type": "string"}]},
    ),
]


class Against(Document):
    """A partner row for each row; its columns, parameters and metrics are other_NAME, other_metric."""

    sweep: str | None = Field(None, description="sweep of the partner (default the row's)")
    kernel: str | None = Field(None, description="kernel of the partner")
    where: Text | None = Field(None, description="expression that keeps a partner")
    match: list[str] = Field(description="columns and parameters in which both agree")
    pick: Text | None = Field(
        None, description="of several partners, the one where this expression is greatest"
    )


class Measure(Document):
    """One number from each of some rows of a sweep."""

    label: Text = Field(description="what the value is, as the evidence names it")
    unit: str = Field("", description="unit of the value, such as x or wavefronts")
    sweep: str = Field(description="sweep whose rows are tested")
    rows: Literal["timings", "cells", "resources"] = Field(
        "timings",
        description="timings (default): cells with status ok; cells: with any status; resources: compiled variants, which "
        "needs no GPU",
    )
    regime: Literal["cold", "dirty", "warm"] = Field(
        "dirty", description="regime of the timings (default dirty)"
    )
    kernel: str | None = Field(None, description="only rows of this kernel")
    where: Text | None = Field(None, description="expression that keeps a row")
    against: Against | None = Field(None, description="how the partner of a row is found")
    value: Expression = Field(description="the number asked for")

    @property
    def partner_sweep(self) -> str:
        return (self.against.sweep if self.against else None) or self.sweep


class Test(Measure):
    """One decidable question over the rows of a sweep."""

    low: Expression | None = Field(None, description="lower end of its 95 % interval (default the value)")
    high: Expression | None = Field(None, description="upper end of its 95 % interval (default the value)")
    at_least: Expression | None = Field(None, description="holds from this threshold up")
    at_most: Expression | None = Field(None, description="holds up to this threshold")
    equals: Expression | None = Field(None, description="holds within the tolerance around this number")
    tolerance: Expression = Field(0, description="reach of equals, in the value's unit (default 0)")
    noise_percent: Annotated[float, Field(ge=0, le=100)] = Field(
        DEFAULT_NOISE_PERCENT,
        description="run-to-run margin that widens the interval, in percent of the value (default 2.5, within which 99 % of "
        "speed-ups agree from GPU to GPU; 0 for counts)",
    )
    per: list[str] = Field([], description="columns or parameters the claim depends on, such as n")
    require: Literal["all", "any"] = Field("all", description="rows of a group that must hold (default all)")
    scope: Literal["somewhere", "everywhere"] = Field(
        "somewhere", description="groups that must hold (default somewhere)"
    )

    @model_validator(mode="after")
    def _one_condition(self) -> Test:
        if len(self.model_fields_set & set(CONDITIONS)) != 1:
            raise ValueError("exactly one of at_least, at_most and equals")
        return self

    @property
    def condition(self) -> str:
        return next(name for name in CONDITIONS if name in self.model_fields_set)

    @property
    def threshold(self) -> str | int | float:
        given: str | int | float = getattr(self, self.condition)
        return given


class Claim(Document):
    """A statement of a source, the tests that decide it, and the measures that tell why it came out so."""

    id: Annotated[str, *matching(r"[a-z0-9]+(-[a-z0-9]+)*", "lower-case words joined by hyphens")] = Field(
        description="name of the claim"
    )
    source: Text = Field(description="text or reference that states it")
    statement: Text = Field(description="the statement in one sentence")
    decided_by: Text = Field(description="what decides it, in words")
    tests: list[Test] = Field(min_length=1, description="all of them must hold")
    because: list[Measure] = Field(
        [],
        description="measures told with the evidence, such as the counters that say why the hardware answers so; they decide "
        "nothing",
    )


class ClaimsDocument(Document):
    """The ledger (config/claims.yaml): statements of the sources and the tests that decide them."""

    claims: list[Claim] = Field(min_length=1, description="the statements, in the order of the report")


def _columns(sweep: Sweep, rows: str, kernel: str | None) -> set[str]:
    """Names an expression over rows of this sweep may use."""
    columns = set(SCHEMAS["resources"]) | (set() if rows == "resources" else {*SCHEMAS["timings"]})
    for variant in sweep.variants:
        if kernel in (None, variant.kernel.name):
            columns |= set(variant.params)
    return columns - {"params"}


class _Checker:
    """Holds one measure or test to the sweeps there are; `where` is its place in the file."""

    def __init__(self, file: Path, where: str, sweeps: Mapping[str, Sweep]) -> None:
        self.file, self.where, self.sweeps = file, where, sweeps

    def sweep(self, field: str, name: str) -> Sweep:
        if name not in self.sweeps:
            raise refuse(self.file, f"{self.where}.{field}", name, self.sweeps, why="no such sweep")
        return self.sweeps[name]

    def kernel(self, field: str, name: str | None, sweep: Sweep) -> None:
        kernels = sorted({variant.kernel.name for variant in sweep.variants})
        if name is not None and name not in kernels:
            raise refuse(self.file, f"{self.where}.{field}", name, kernels, why=f"sweep {sweep.name}")

    def expression(
        self, field: str, given: Expression | None, names: Iterable[str], functions: Iterable[str]
    ) -> None:
        if given is None:
            return
        try:
            used, called = words(given)
        except LadderError as error:
            raise LadderError(f"{self.file}: {self.where}.{field}: {error}") from error
        names, functions = sorted(names), sorted([*FUNCTIONS, *functions])
        for word in sorted(used - set(names)):
            raise refuse(self.file, f"{self.where}.{field}", word, names, why=f"no such name, in {given!r}")
        for word in sorted(called - set(functions)):
            raise refuse(
                self.file, f"{self.where}.{field}", word, functions, why=f"no such function, in {given!r}"
            )

    def columns(self, field: str, given: Iterable[str], known: set[str]) -> None:
        for name in given:
            if name not in known:
                raise refuse(self.file, f"{self.where}.{field}", name, sorted(known), why="no such column")

    def measure(self, measure: Measure) -> tuple[set[str], list[str]]:
        """Names and functions that expressions about a row and its partner may use."""
        sweep = self.sweep("sweep", measure.sweep)
        self.kernel("kernel", measure.kernel, sweep)
        own = _columns(sweep, measure.rows, measure.kernel)
        self.expression("where", measure.where, own, ["metric"])
        names, functions = own, ["metric"]
        if measure.against is not None:
            partner = self.sweep("against.sweep", measure.partner_sweep)
            self.kernel("against.kernel", measure.against.kernel, partner)
            other = _columns(partner, measure.rows, measure.against.kernel)
            self.expression("against.where", measure.against.where, other, ["metric"])
            self.expression("against.pick", measure.against.pick, other, ["metric"])
            self.columns("against.match", measure.against.match, own & other)
            names = own | {OTHER + name for name in other}
            functions = ["metric", OTHER + "metric"]
        self.expression("value", measure.value, names, functions)
        return names, functions

    def test(self, test: Test) -> None:
        names, functions = self.measure(test)
        self.columns("per", test.per, _columns(self.sweeps[test.sweep], test.rows, test.kernel))
        for field, given in [
            ("low", test.low),
            ("high", test.high),
            (test.condition, test.threshold),
            ("tolerance", test.tolerance),
        ]:
            self.expression(field, given, names, functions)


def load_claims(path: Path, sweeps: Mapping[str, Sweep]) -> tuple[Claim, ...]:
    """Read the ledger and check it against every sweep of the project.

    Raises LadderError naming file, field, value and what is accepted, for a field, sweep, kernel, column
    or expression that is not right.
    """
    claims = parse(ClaimsDocument, read_yaml(path), path).claims
    for index, claim in enumerate(claims):
        if any(claim.id == other.id for other in claims[:index]):
            raise refuse(path, f"claims[{index}].id", claim.id, "each id once")
        for position, test in enumerate(claim.tests):
            _Checker(path, f"claims[{index}].tests[{position}]", sweeps).test(test)
        for position, measure in enumerate(claim.because):
            _Checker(path, f"claims[{index}].because[{position}]", sweeps).measure(measure)
    return tuple(claims)
