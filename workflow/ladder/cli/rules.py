"""What the rules read of documents: sweeps with all that their plans and cubins follow from, and external files."""

from typing import Any

from ladder.catalogue.runs import Run, load
from ladder.catalogue.settings import Setup
from ladder.claims.ledger import check_claims
from ladder.measure.conditions import code_versions
from ladder.model.cell import COUNTERS
from ladder.model.files import digest_files, digest_json, sha256
from ladder.model.folders import PACKAGE
from ladder.model.plan_file import to_json
from ladder.model.sweep import Sweep

_LAUNCHED: Any = {
    "constraints": {"__all__": {"expr"}},
    "launch": True,
    "arguments": True,
}


def _prepare_digest(run: Run, sweep: Sweep) -> str:
    """Digest of the plan of a sweep, and of everything that its cubins and their facts depend on."""
    requests = run.requests(sweep)
    keys = {variant.id: request.key for variant, request in requests.variants.items()}
    harness = [request.key for request in requests.harness.values()]
    plan = sha256(to_json(run.plans[sweep.name]))
    code = [*PACKAGE.glob("build/*.py"), *PACKAGE.glob("model/*.py")]
    compiler = digest_files(code, PACKAGE)
    # A variant is verified at further sizes too, of which the plan says nothing.
    kernels = {variant.kernel.name: variant.kernel for variant in sweep.variants}
    launches = {
        name: kernel.model_dump_json(include=_LAUNCHED)
        for name, kernel in kernels.items()
    }
    return digest_json([plan, harness, keys, compiler, launches])


def _sweep(run: Run, sweep: Sweep) -> dict[str, Any]:
    regimes, problem = run.plans[sweep.name].regimes, sweep.problem.name
    code = {regime: code_versions(problem, regime) for regime in (*regimes, COUNTERS)}
    return {
        "title": sweep.title,
        "question": sweep.question,
        "problem": problem,
        "figures": sweep.figure_names(),
        "variants": len(sweep.variants),
        "counted": bool(sweep.counter_groups),
        "code": code,
        "digest": _prepare_digest(run, sweep),
    }


def rule_inputs(setup: Setup) -> dict[str, Any]:
    """As JSON: every sweep, names of those chosen, files of other folders with their digests.

    Raises LadderError for any mistake in a document.
    """
    run = load(setup)
    check_claims(run.sweeps, run.config.measure.precision)
    sweeps = {**run.every_sweep, **run.sweeps}
    # Files of external references may lie in any folder.
    external = dict[str, str]()
    for plan in run.plans.values():
        for reference in plan.external.values():
            external[reference.file] = reference.sha256
    return {
        "sweeps": {name: _sweep(run, sweep) for name, sweep in sweeps.items()},
        "chosen": list(run.sweeps),
        "external": external,
    }
