"""Claims decided: verdicts, and the sentences that carry them."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import pandas as pd

from ladder.claims import evidence
from ladder.claims.ledger import Claim
from ladder.claims.rows import Tables
from ladder.claims.verdicts import carry_out, combine, take, together
from ladder.results import tables


def decide(claim: Claim, data: Tables) -> dict[str, object]:
    """The row of claims.csv for one claim."""
    outcomes = [carry_out(test, data) for test in claim.tests]
    groups = together(claim.tests, outcomes)
    verdicts = [outcome.verdict for outcome in outcomes]
    # Tests that hold at different values each hold together at none.
    verdicts += [combine(list(found.values()), "any") for found in groups.values()]
    told = [evidence.sentence(test, outcome) for test, outcome in zip(claim.tests, outcomes, strict=True)]
    if claim.because:
        beside = "; ".join(evidence.measured(measure, *take(measure, data)) for measure in claim.because)
        told.append(f"Counted beside it: {beside}")
    return claim.model_dump(include={"id", "source", "statement"}) | {
        "verdict": combine(verdicts, "all"),
        "evidence": " ".join(f"{text.rstrip('.')}." for text in told),
        "where": "; ".join(evidence.where_sentence(*found) for found in groups.items()) or None,
    }


def decide_tables(
    claims: Sequence[Claim], folder: Path, variants: Mapping[str, Collection[str]]
) -> pd.DataFrame:
    """Decide the claims over the tables in a folder and write claims.csv beside them.

    `variants` names the compiled variants of each sweep that the tables are about.
    """
    frames = {name: tables.read(name, folder) for name in ("timings", "resources", "metrics", "notes")}
    data = Tables(**frames, variants=variants)
    decided = tables.frame("claims", [decide(claim, data) for claim in claims])
    tables.write("claims", decided, folder)
    return decided
