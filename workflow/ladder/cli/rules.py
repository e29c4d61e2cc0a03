"""What decides that a rule runs again: its inputs that come from documents and code, and every digest of code."""

from pathlib import Path
from typing import Any

from ladder.build.variants import CompileRequests
from ladder.catalogue.runs import Run, external_files, load
from ladder.catalogue.settings import Setup
from ladder.claims.ledger import check_claims
from ladder.cli.app import STEPS
from ladder.measure.conditions import code_versions
from ladder.model.cell import COUNTERS
from ladder.model.code import PACKAGE, closure, digest
from ladder.model.files import digest_json, sha256
from ladder.model.plan_file import to_json
from ladder.model.sweep import Sweep

_LAUNCHED: Any = {"constraints": {"__all__": {"expr"}}, "launch": True, "arguments": True}


STEP_MODULES = {
    "collect": """measure.store measure.plan_records model.plan results.published_records results.collect
        results.publish results.tables""",
    "claims": "catalogue.kernels catalogue.sweeps claims.ledger model.folders results.statistics",
    "figures": """catalogue.kernels catalogue.sweeps report.answers report.figures.registry report.links
        results.environment results.published_records results.run_data results.sweep_data results.tables""",
}
"""Step of a rule -> modules that it runs, with all that they import: the rule runs again when one of these changes."""


def step_files(step: str) -> list[Path]:
    """Files of the package that a step runs: those of its modules, and its own."""
    own = [PACKAGE / "cli" / f"{STEPS[step]}.py"]
    return [*own, *closure(f"ladder.{module}" for module in STEP_MODULES[step].split())]


def step_code(step: str) -> str:
    """Digest of all that the files of a step say, comments included."""
    return digest_json([sha256(path.read_bytes()) for path in step_files(step)])


def _sweep(run: Run, sweep: Sweep) -> dict[str, Any]:
    wanted = CompileRequests(sweep, run.project.include, run.arch, run.config.compile.options)
    keys = {variant.id: request.key for variant, request in wanted.variants.items()}
    harness = [one.key for one in wanted.harness.values()]
    given = run.plans[sweep.name]
    plan, facts = sha256(to_json(given)), digest("ladder.build.variants")
    # At sizes that the plan does not have, a variant is verified as well.
    launched = {one.kernel.name: one.kernel.model_dump_json(include=_LAUNCHED) for one in sweep.variants}
    return {
        "title": sweep.title,
        "question": sweep.question,
        "problem": sweep.problem.name,
        "figures": sweep.figure_names(),
        "variants": len(sweep.variants),
        "counted": bool(sweep.counter_groups),
        "code": {one: code_versions(sweep.problem.name, one) for one in (*given.regimes, COUNTERS)},
        # Of what its plan says, and of everything that its cubins and their facts depend on.
        "digest": digest_json([plan, harness, keys, facts, launched]),
    }


def rule_inputs(setup: Setup) -> dict[str, Any]:
    """As JSON: every sweep, names of those chosen, digests of code by step, files of other folders with theirs.

    Raises LadderError for any mistake in a document.
    """
    run = load(setup)
    check_claims(run.sweeps, run.config.measure.precision)
    sweeps = {name: _sweep(run, sweep) for name, sweep in {**run.every_sweep, **run.sweeps}.items()}
    steps = {step: step_code(step) for step in STEP_MODULES}
    return {
        "sweeps": sweeps,
        "chosen": list(run.sweeps),
        "code": steps,
        "external": external_files(run.plans),
    }
