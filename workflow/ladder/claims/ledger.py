"""The claims ledger as plain data: config/claims.yaml, held to its schema and to the sweeps it speaks of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ladder.catalogue import documents
from ladder.model.errors import LadderError, refuse
from ladder.model.expressions import FUNCTIONS, words
from ladder.model.schemas import RESOURCES, TIMINGS
from ladder.model.sweep import Sweep
from ladder.results.noise import BETWEEN_GPUS

DEFAULT_NOISE_PERCENT = 100 * BETWEEN_GPUS
"""A claim speaks of the model, not of one card."""
OTHER = "other_"
CONDITIONS = ("at_least", "at_most", "equals")

Expression = str | int | float


@dataclass(frozen=True)
class Against:
    """How the partner of a row is found."""

    sweep: str
    kernel: str | None
    where: str | None
    match: tuple[str, ...]
    pick: str | None


@dataclass(frozen=True)
class Measure:
    """One number from each of some rows of a sweep."""

    label: str
    unit: str
    sweep: str
    rows: str
    regime: str
    kernel: str | None
    where: str | None
    against: Against | None
    value: Expression


@dataclass(frozen=True)
class Test(Measure):
    """One decidable question over the rows of a sweep."""

    low: Expression
    high: Expression
    condition: str
    threshold: Expression
    tolerance: Expression
    noise: float
    per: tuple[str, ...]
    require: str
    scope: str


@dataclass(frozen=True)
class Claim:
    """A statement of a source, the tests that decide it, and the measures that tell why it came out so."""

    id: str
    source: str
    statement: str
    decided_by: str
    tests: tuple[Test, ...]
    because: tuple[Measure, ...]


def _against(document: Mapping[str, Any] | None, sweep: str) -> Against | None:
    if document is None:
        return None
    return Against(
        document.get("sweep", sweep),
        document.get("kernel"),
        document.get("where"),
        tuple(document["match"]),
        document.get("pick"),
    )


def _measure(document: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a Measure."""
    return {
        "label": document["label"],
        "unit": document.get("unit", ""),
        "sweep": document["sweep"],
        "rows": document.get("rows", "timings"),
        "regime": document.get("regime", "dirty"),
        "kernel": document.get("kernel"),
        "where": document.get("where"),
        "against": _against(document.get("against"), document["sweep"]),
        "value": document["value"],
    }


def _test(document: Mapping[str, Any]) -> Test:
    condition = next(name for name in CONDITIONS if name in document)
    return Test(
        **_measure(document),
        low=document.get("low", document["value"]),
        high=document.get("high", document["value"]),
        condition=condition,
        threshold=document[condition],
        tolerance=document.get("tolerance", 0),
        noise=document.get("noise_percent", DEFAULT_NOISE_PERCENT) / 100,
        per=tuple(document.get("per", ())),
        require=document.get("require", "all"),
        scope=document.get("scope", "somewhere"),
    )


def _columns(sweep: Sweep, rows: str, kernel: str | None) -> set[str]:
    """Names an expression over rows of this sweep may use."""
    columns = set(RESOURCES) | (set() if rows == "resources" else {*TIMINGS})
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

    def columns(self, field: str, given: tuple[str, ...], known: set[str]) -> None:
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
            partner = self.sweep("against.sweep", measure.against.sweep)
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
    document = documents.load(path, "claims")
    claims: list[Claim] = []
    for index, given in enumerate(document["claims"]):
        if any(claim.id == given["id"] for claim in claims):
            raise refuse(path, f"claims[{index}].id", given["id"], "each id once")
        tests = tuple(_test(test) for test in given["tests"])
        for position, test in enumerate(tests):
            _Checker(path, f"claims[{index}].tests[{position}]", sweeps).test(test)
        because = tuple(Measure(**_measure(measure)) for measure in given.get("because", ()))
        for position, measure in enumerate(because):
            _Checker(path, f"claims[{index}].because[{position}]", sweeps).measure(measure)
        words_of_it = (given["id"], given["source"], given["statement"], given["decided_by"])
        claims.append(Claim(*words_of_it, tests, because))
    return tuple(claims)
