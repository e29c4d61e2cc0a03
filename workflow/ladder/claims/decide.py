"""Claims decided: a row of claims.csv for each. Its sentences stand in evidence.j2 and where.j2 of workflow/report."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ladder.claims.ledger import Claim, Measure
from ladder.claims.verdicts import Row, Tables, carry_out, combine, numbers, together
from ladder.model.cell import count_label
from ladder.model.sweep import Sweep
from ladder.results import tables
from ladder.results.templates import TEMPLATES


def number(value: float) -> str:
    """Four significant digits, no exponent for everyday magnitudes."""
    if value and not 1e-4 <= abs(value) < 1e7:
        return f"{value:.3e}"
    return f"{value:.4g}" if abs(value) < 10_000 else f"{value:.0f}"


def show(value: Any) -> str:
    """A value of a column or parameter that a test depends on."""
    value = int(value) if isinstance(value, float) and value.is_integer() else value
    return count_label(value) if isinstance(value, int) and value > 0 else str(value)


TEMPLATES.filters |= {"number": number, "show": show}
TEMPLATES.globals["most_shown"] = 6


def _sortable(key: Iterable[Any]) -> tuple[Any, ...]:
    return tuple((isinstance(value, str), value) for value in key)


def _place(found: tuple[Row, Any]) -> tuple[Any, ...]:
    row = found[0]
    return row.names["kernel"], _sortable(row.params.values()), *row.size.values()


def _counted(measure: Measure, data: Tables) -> tuple[Measure, list[tuple[Row, list[float]]], str]:
    """A measure's numbers, by what its rows differ in; or why there are none."""
    found, missing = numbers(measure, data)
    return measure, sorted(found, key=_place), "" if found else data.why_empty(measure.sweep, missing)


def decide(claim: Claim, data: Tables) -> dict[str, object]:
    """The row of claims.csv for one claim."""
    outcomes = [carry_out(test, data) for test in claim.tests]
    groups = together(claim.tests, outcomes)
    verdicts = [outcome.verdict for outcome in outcomes]
    # Tests that hold at different values each hold together at none.
    verdicts += [combine(list(found.values()), "any") for found in groups.values()]
    evidence, where = (TEMPLATES.get_template(name) for name in ("evidence.j2", "where.j2"))
    tested = list(zip(claim.tests, outcomes, strict=True))
    counted = [_counted(measure, data) for measure in claim.because]
    ordered = {per: {key: own[key] for key in sorted(own, key=_sortable)} for per, own in groups.items()}
    return claim.model_dump(include={"id", "source", "statement"}) | {
        "verdict": combine(verdicts, "all"),
        "evidence": evidence.render(tested=tested, counted=counted),
        "where": "; ".join(where.render(per=per, verdicts=found) for per, found in ordered.items()) or None,
    }


def decide_tables(claims: Sequence[Claim], folder: Path, sweeps: Mapping[str, Sweep]) -> pd.DataFrame:
    """Decide the claims over the tables in a folder, which are about `sweeps`, and write claims.csv beside them."""
    data = Tables(folder, sweeps)
    decided = tables.frame("claims", [decide(claim, data) for claim in claims])
    tables.write({"claims": decided}, folder)
    return decided
