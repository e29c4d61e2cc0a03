"""The ledger: every claim of the sources, and claims.csv, which says what became of each part of it."""

import inspect
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd

from ladder.claims import (
    attention,
    bank_conflicts,
    block_scales,
    double_buffering,
    gemm_practice,
    hip_gemm,
    memory_bound,
    register_cache,
)
from ladder.claims.primitives import Part, Parts, combine
from ladder.model.cell import SUSTAINED
from ladder.model.errors import LadderError, refuse_unknown, within
from ladder.model.schemas import STATUSES
from ladder.model.sweep import Sweep
from ladder.results import tables
from ladder.results.run_data import Row, Rows, RunData, Unmeasured, read_frames


@dataclass(frozen=True)
class Claim:
    """A statement of a source, and the function that decides it."""

    id: str
    source: str  # a key of docs/sources.md, and the place
    statement: str
    decide: Callable[[RunData], Parts]


def _claims(module: ModuleType) -> Iterator[Claim]:
    """The public functions of a module; a docstring holds the statement and, at its end, the source.

    Raises LadderError for one that is no claim.
    """
    for name, function in vars(module).items():
        if not inspect.isfunction(function) or name[0] == "_":
            continue
        if function.__module__ != module.__name__:
            continue
        words = " ".join((function.__doc__ or "").split())
        statement, _, source = words.partition(" Source: ")
        takes_data = [*inspect.signature(function).parameters] == ["data"]
        if not (takes_data and inspect.isgeneratorfunction(function) and source):
            raise LadderError(
                f"{inspect.getfile(function)}: {name}: it is public, and no claim; accepted: a function of `data` "
                "that yields parts and whose docstring ends with `Source: KEY (place).`, or a helper with _ ahead"
            )
        yield Claim(name.replace("_", "-"), source.rstrip("."), statement, function)


_MODULES = (
    double_buffering,
    bank_conflicts,
    hip_gemm,
    gemm_practice,
    register_cache,
    memory_bound,
    attention,
    block_scales,
)
CLAIMS = tuple(claim for module in _MODULES for claim in _claims(module))


def decided(claim: Claim, data: RunData) -> tuple[list[Part], list[str], str]:
    """The parts of the claim, each of which it gets back, its notes and its advice."""
    answer = claim.decide(data)
    parts, notes = list[Part](), list[str]()
    part: Part | str | None = None
    try:
        while True:
            part = answer.send(part)
            if isinstance(part, str):
                notes.append(part)
            else:
                parts.append(part)
    except StopIteration as end:
        return parts, notes, str(end.value)
    except Unmeasured as error:
        return parts, notes, f"No advice without measurements: {error}."


def rows_of(claim: Claim, data: RunData) -> list[dict[str, object]]:
    """A row of claims.csv for each part of the claim."""
    parts, notes, advice = decided(claim, data)
    rows = list[dict[str, object]]()
    for part in parts:
        effect, elsewhere = part.decisive.measured, part.decisive.predicted
        row: dict[str, object] = {
            "id": claim.id,
            "source": claim.source,
            "statement": claim.statement,
            "part": part.label,
            "verdict": part.verdict,
            "where": part.where or None,
            "effect": effect.value,
            "effect_low": effect.low,
            "effect_high": effect.high,
            "predicted_low": elsewhere.low,
            "predicted_high": elsewhere.high,
            "advice": advice,
            "evidence": part.evidence,
        }
        rows.append(row)
    if notes:
        rows[-1]["evidence"] = f"{rows[-1]['evidence']} Beside it: {'; '.join(notes)}."
    return rows


def decide_tables(folder: Path, sweeps: Mapping[str, Sweep]) -> pd.DataFrame:
    """Decide the claims over the tables in a folder, which are about `sweeps`, and write claims.csv beside them."""
    data = RunData(sweeps, read_frames(folder))
    rows = [row for claim in CLAIMS for row in rows_of(claim, data)]
    frame = tables.frame("claims", rows)
    tables.write({"claims": frame}, folder)
    return frame


class _WithoutRows(RunData):
    """A run that has measured nothing, and refuses names and values that no cell of a sweep has."""

    def _select(
        self, rows: Iterable[Row], sweep: str, kernel: Any, wanted: Mapping[str, Any]
    ) -> Rows:
        if sweep in self.sweeps:
            where = f"the sweep {sweep}"
            accepted = _names_and_values(self.sweeps[sweep])
            for name, asked in {"kernel": kernel or (), **wanted}.items():
                refuse_unknown(where, "what rows are selected by", name, accepted)
                values = asked if isinstance(asked, tuple) else (asked,)
                for value in values if not callable(asked) else ():
                    refuse_unknown(where, name, value, accepted[name])
        return super()._select(rows, sweep, kernel, wanted)


def _names_and_values(sweep: Sweep) -> dict[str, list[Any]]:
    """What rows of a sweep are selected by, with the values that it has: columns, parameters, fields of the size."""
    rows: list[dict[str, Any]] = [{"status": status} for status in STATUSES]
    rows += [{"regime": regime} for regime in sweep.regimes]
    rows += [{"regime": SUSTAINED}] if sweep.sustained else []
    rows += [{"rung": entry.rung} for entry in sweep.entries if entry.rung]
    rows += map(dict, sweep.sizes)
    for variant in sweep.variants:
        operands = {"dtype": variant.dtype, "layout": variant.layout}
        rows.append({"kernel": variant.kernel.name, **operands, **variant.params})
    values = defaultdict[str, dict[Any, None]](dict)
    for row in rows:
        for name, value in row.items():
            values[name][value] = None
    return {name: [*inside] for name, inside in values.items()}


def check_claims(sweeps: Mapping[str, Sweep], precision: float) -> None:
    """Raises LadderError for a claim with a margin that is smaller than the noise to which its sweep is measured."""
    _decide_all(RunData(sweeps, {}, precision=precision))


def check_names(sweeps: Mapping[str, Sweep]) -> None:
    """Raises LadderError for a claim about a rung, kernel, parameter or size that its sweep does not have.

    sweeps: whole ones, since a run may keep a part of their cells.
    """
    _decide_all(_WithoutRows(sweeps, {}))


def _decide_all(data: RunData) -> None:
    for claim in CLAIMS:
        with within(f"{claim.decide.__module__}: {claim.id}"):
            rows_of(claim, data)


def overall(decided: pd.DataFrame) -> "pd.Series[str]":
    """Verdict of each claim by its id: the worst of its parts."""
    return decided.groupby("id", sort=False)["verdict"].agg(combine)
