"""The claims ledger as plain data: config/claims.yaml, held to its model and to the sweeps it speaks of.

How a verdict comes about. Row: the value's 95 % interval, widened by the noise margin, lies inside the condition
(holds), outside (refuted) or across its edge (inconclusive). Group: the rows alike in the `per` columns, joined by
`require`. Test: its groups; without `per` there is one. With `per` the claim depends on those columns: `scope:
somewhere` (default) makes the test hold where any group holds, `everywhere` where all do, and the column `where` names
the groups where all tests of the claim hold, tests without `per` included, and those where one is refuted. Claim: all
its tests must hold, and tests that depend on the same columns together in one group at least; one refuted test refutes
it; a test without data leaves it not measured unless another refutes it.
"""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from ladder.catalogue.documents import parse, read_yaml
from ladder.model.document import Document, Text, is_value, matching, taking
from ladder.model.errors import refuse, within
from ladder.model.expressions import FUNCTIONS, words
from ladder.model.schemas import SCHEMAS
from ladder.model.sweep import Sweep
from ladder.results.noise import BETWEEN_GPUS

DEFAULT_NOISE_PERCENT = 100 * BETWEEN_GPUS  # a claim speaks of the GPU's model, not of one card
OTHER = "other_"
CONDITIONS = ("at_least", "at_most", "equals")

_EXPRESSION = 'a finite number or an expression over columns, parameters and metric("NAME")'
Expression = Annotated[
    str | int | float,
    *taking(
        _EXPRESSION, lambda one: math.isfinite(one) if isinstance(one, float) else is_value(one) and one != ""
    ),
]
Id = Annotated[str, *matching(r"[a-z0-9]+(-[a-z0-9]+)*", "lower-case words joined by hyphens")]


class Against(Document):
    """A partner row for each row; its columns, parameters and metrics are other_NAME, other_metric."""

    sweep: str | None = Field(None, description="sweep of the partner (default the row's)")
    kernel: str | None = Field(None, description="kernel of the partner")
    where: Text | None = Field(None, description="expression that keeps a partner")
    match: list[str] = Field(description="columns and parameters in which both agree")
    pick: Text | None = Field(None, description="of several partners, the one where this is greatest")


class Measure(Document):
    """One number from each of some rows of a sweep."""

    label: Text = Field(description="what the value is, as the evidence names it")
    unit: str = Field("", description="unit of the value, such as x or wavefronts")
    sweep: str = Field(description="sweep whose rows are tested")
    rows: Literal["timings", "cells", "resources"] = Field(
        "timings",
        description="timings (default): cells with status ok; cells: with any status; resources: compiled variants, "
        "which needs no GPU",
    )
    regime: Literal["cold", "dirty", "warm"] = Field("dirty", description="regime of rows (default dirty)")
    kernel: str | None = Field(None, description="only rows of this kernel")
    where: Text | None = Field(None, description="expression that keeps a row")
    against: Against | None = Field(None, description="how the partner of a row is found")
    value: Expression = Field(description="the number asked for")


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
        description="run-to-run margin that widens the interval, in percent of the value (default 2.5, within which "
        "99 % of speed-ups agree from GPU to GPU; 0 for counts)",
    )
    per: list[str] = Field([], description="columns or parameters the claim depends on, such as n")
    require: Literal["all", "any"] = Field("all", description="rows of a group that must hold (default all)")
    scope: Literal["somewhere", "everywhere"] = Field(
        "somewhere", description="groups that must hold (default somewhere)"
    )

    @model_validator(mode="after")
    def _one_condition(self) -> Self:
        if len(self.model_fields_set & set(CONDITIONS)) != 1:
            raise ValueError("exactly one of at_least, at_most and equals")
        return self

    @property
    def condition(self) -> str:
        return next(name for name in CONDITIONS if name in self.model_fields_set)

    @property
    def threshold(self) -> Any:
        return getattr(self, self.condition)


class Claim(Document):
    """A statement of a source, the tests that decide it, and the measures that say why."""

    id: Id = Field(description="name of the claim")
    source: Text = Field(description="text or reference that states it")
    statement: Text = Field(description="the statement in one sentence")
    decided_by: Text = Field(description="what decides it, in words")
    tests: list[Test] = Field(min_length=1, description="all of them must hold")
    because: list[Measure] = Field([], description="measures printed with the evidence; they decide nothing")


class ClaimsDocument(Document):
    """The ledger (config/claims.yaml): statements of the sources and the tests that decide them."""

    claims: list[Claim] = Field(min_length=1, description="the statements, in the order of the report")


def _check(measure: Measure, sweeps: Mapping[str, Sweep], file: Path, where: str) -> None:
    """Hold a measure to the sweeps there are; `where` is its place in the file."""

    def known(field: str, given: Iterable[str], accepted: Iterable[str], why: str) -> None:
        accepted = sorted(accepted)
        for name in sorted(set(given).difference(accepted)):
            raise refuse(file, f"{where}.{field}", name, accepted, why=why)

    def expression(field: str, given: Any, names: set[str], functions: set[str]) -> None:
        with within(f"{file}: {where}.{field}"):
            used, called = words(0 if given is None else given)
        known(field, used, names, f"no such name, in {given!r}")
        known(field, called, {*FUNCTIONS, *functions}, f"no such function, in {given!r}")

    def rows(place: str, sweep: str, kernel: str | None) -> set[str]:
        """Names of what rows of a sweep, or of one kernel of it, have."""
        known(f"{place}sweep", [sweep], sweeps, "no such sweep")
        variants = sweeps[sweep].variants
        kernels = {variant.kernel.name for variant in variants}
        known(f"{place}kernel", [] if kernel is None else [kernel], kernels, f"sweep {sweep}")
        params = (variant.params for variant in variants if kernel in (None, variant.kernel.name))
        columns = {*SCHEMAS["resources"], *(SCHEMAS["timings"] if measure.rows != "resources" else ())}
        return columns.union(*params) - {"params"}

    own = rows("", measure.sweep, measure.kernel)
    names, functions = own, {"metric"}
    expression("where", measure.where, own, functions)
    if (against := measure.against) is not None:
        other = rows("against.", against.sweep or measure.sweep, against.kernel)
        expression("against.where", against.where, other, functions)
        expression("against.pick", against.pick, other, functions)
        known("against.match", against.match, own & other, "no such column")
        names, functions = own | {OTHER + name for name in other}, {"metric", OTHER + "metric"}
    fields = ["value"]
    if isinstance(measure, Test):
        known("per", measure.per, own, "no such column")
        fields += ["low", "high", measure.condition, "tolerance"]
    for field in fields:
        expression(field, getattr(measure, field), names, functions)


def load_claims(path: Path, sweeps: Mapping[str, Sweep]) -> tuple[Claim, ...]:
    """Read the ledger and check it against every sweep of the project.

    Raises LadderError naming file, field, value and what is accepted, for a field, sweep, kernel, column
    or expression that is not right.
    """
    claims = parse(ClaimsDocument, read_yaml(path), path).claims
    for index, claim in enumerate(claims):
        if any(claim.id == other.id for other in claims[:index]):
            raise refuse(path, f"claims[{index}].id", claim.id, "each id once")
        for field, measures in (("tests", claim.tests), ("because", claim.because)):
            for position, measure in enumerate(measures):
                _check(measure, sweeps, path, f"claims[{index}].{field}[{position}]")
    return tuple(claims)
