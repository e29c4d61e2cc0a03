"""The size of the package by feature, as CONTRIBUTING prints it.

`python tests/docs/test_size.py` writes the table anew. Every module is of exactly one feature.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "workflow" / "ladder"
PAGE = ROOT / "CONTRIBUTING.md"
BEGIN, END = "<!-- written by `python tests/docs/test_size.py` -->\n", "<!-- until here -->"
STEP = 100
"""Lines are rounded to this many, so that not every change of the code changes the table."""

FEATURES = {
    "cells, records, plans, digests, errors": """__init__ __main__ model/__init__ model/cell model/code model/errors
        model/files
        model/folders model/plan model/plan_file model/problem model/record model/schemas model/architecture""",
    "kernels, sweeps and settings from YAML": """catalogue/* model/document model/expressions model/kernel model/sweep
        !catalogue/sanitizer_sweeps !catalogue/space""",
    "compiling and reading machine code": "build/* cli/build !build/banks",
    "one GPU: memory, launches, timing, libraries": "gpu/* !gpu/external !gpu/workspace !gpu/stamps !gpu/unmapped",
    "measuring: worker, supervisor, store, sessions, winners": """measure/* cli/measure model/intervals results/forecast
        !measure/beyond !measure/ncu !measure/profile_job !measure/sanitizer !measure/subjects
        !measure/timer* !measure/traced !measure/watch !measure/zeros*""",
    "problems and their checks": "problems/* !problems/banks/*",
    "accesses beyond buffers, state between launches": """measure/beyond measure/watch gpu/unmapped
        gpu/workspace""",
    "references of a user's own": "gpu/external",
    "counters by Nsight Compute": "measure/ncu measure/profile_job measure/traced",
    "checks of the timer, CUPTI's clock": "measure/timer* measure/subjects gpu/stamps",
    "zeros in place of random numbers": "measure/zeros*",
    "sanitizer": "measure/sanitizer catalogue/sanitizer_sweeps cli/sanitize",
    "model of the banks": "build/banks problems/banks/*",
    "tables, statistics, environment": """results/__init__ results/collect results/counters results/tables
        results/statistics results/verdicts results/environment results/templates results/input_errors cli/analyse""",
    "rows of the tables, for claims, report and page": "results/run_data results/sweep_data",
    "prediction for another GPU": "results/prediction results/hosts",
    "publishing, archive": "results/publish results/published_records cli/publish",
    "judge, reproduce, compare": """results/judgement results/reproduction results/compare
        cli/judge cli/inspect""",
    "search for the fastest variant": "catalogue/space results/tuning cli/tune",
    "claims": "claims/*",
    "report": "report/* cli/report !report/figures/*",
    "figures": "report/figures/*",
    "page": "page/*",
    "command line, display, inputs of rules": """cli/__init__ cli/app cli/display cli/load cli/options
        cli/rules""",
}


def modules_of(patterns: str) -> set[Path]:
    found = set[Path]()
    for word in patterns.split():
        inside = set(PACKAGE.glob(word.removeprefix("!") + ".py"))
        inside |= set(PACKAGE.glob(word.removeprefix("!") + "/**/*.py"))
        found = found - inside if word.startswith("!") else found | inside
    return found


def lines_of(patterns: str) -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in modules_of(patterns))


def table() -> str:
    sizes = {name: lines_of(patterns) for name, patterns in FEATURES.items()}
    rows = [f"| {name} | {round(lines / STEP) * STEP:,} |" for name, lines in sizes.items()]
    total = f"| all | {round(sum(sizes.values()) / STEP) * STEP:,} |"
    return "\n".join(["| feature | lines |", "|---|--:|", *rows, total]) + "\n"


def test_every_module_is_of_one_feature() -> None:
    every = sorted(path for patterns in FEATURES.values() for path in modules_of(patterns))
    assert every == sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("feature", [*FEATURES, "all"])
def test_contributing_says_how_large_a_feature_is(feature: str) -> None:
    found = re.search(
        rf"^\| {re.escape(feature)} \| ([\d,]+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    assert found, f"CONTRIBUTING.md has no row {feature!r}: run python tests/docs/test_size.py"
    lines = sum(map(lines_of, FEATURES.values())) if feature == "all" else lines_of(FEATURES[feature])
    assert abs(int(found[1].replace(",", "")) - lines) <= max(1.5 * STEP, 0.05 * lines), (
        "run python tests/docs/test_size.py"
    )


if __name__ == "__main__":
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    PAGE.write_text(before + BEGIN + "\n" + table() + "\n" + END + rest.split(END, 1)[1], encoding="utf-8")
