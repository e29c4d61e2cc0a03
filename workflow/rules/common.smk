"""The run, loaded and checked once for all rules, and the small functions that rules share."""

import hashlib
import json
import re
import shlex
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.shell import shell

# Relative, so that commands, logs and errors read alike on every machine.
WORKFLOW = Path("workflow")
sys.path.insert(0, str(WORKFLOW.resolve()))

from ladder.catalog import include_closure
from ladder.digest import tree_digest
from ladder.errors import LadderError
from ladder.figures import figure_names
from ladder.imports import files_of_step
from ladder.runs import load_run

try:
    RUN = load_run(Path(), [Path(file) for file in workflow.overwrite_configfiles], over=config)
except LadderError as error:
    raise WorkflowError(str(error)) from None

# Rules say `python -m ladder …`, a line that runs by hand as well. Here python is the very interpreter that
# runs snakemake, and it finds the package without an installation.
PYTHON = shlex.quote(sys.executable)
shell.prefix(
    "export PYTHONPATH={WORKFLOW}${{PYTHONPATH:+:$PYTHONPATH}}; " 'python() {{ exec {PYTHON} "$@"; }}; '
)

FOLDER = RUN.folder.root.as_posix()
LOGS = f"{FOLDER}/logs"
TABLES = ["timings", "metrics", "resources", "notes", "jobs"]
FORMATS = ["csv", "parquet"]
# Targets may name a sweep that the configuration leaves out of the run.
VARIANTS = {variant.id: variant for sweep in RUN.every_sweep.values() for variant in sweep.variants}


wildcard_constraints:
    sweep="|".join(map(re.escape, RUN.every_sweep)),
    variant="[^/]+",


def modules(*names):
    """Named files of the package: for jobs too dear to run again for a change that does not concern them."""
    return [f"{WORKFLOW}/ladder/{name}.py" for name in names]


def code_of(step):
    """Every file of the package that a step runs."""
    return [WORKFLOW / file for file in files_of_step(step)]


def run_folder(wildcards):
    """results/RUN/DEVICE."""
    return FOLDER


def cubins_folder(wildcards):
    """Folder of every cubin of the run."""
    return f"{FOLDER}/cubins"


def variant_of(wildcards):
    """The variant a compile job is for."""
    return VARIANTS[wildcards.variant]


def sources_of(wildcards):
    """The variant's CUDA source and every header it includes."""
    return include_closure(variant_of(wildcards).kernel.source, RUN.project.include)


def layout_option(wildcards):
    """Option of the compile step where the problem has layouts."""
    layout = variant_of(wildcards).layout
    return f"--layout {layout}" if layout else ""


def cubins_of(sweep):
    """Cubins a sweep measures, those of its reference kernels included."""
    return [RUN.folder.cubin(variant.id).as_posix() for variant in RUN.every_sweep[sweep].variants]


def facts_of(sweep):
    """Facts beside those cubins."""
    return [RUN.folder.facts(variant.id).as_posix() for variant in RUN.every_sweep[sweep].variants]


def plan_digest(wildcards):
    """Digest of a sweep's plan: it is written anew only when what it says has changed."""
    return hashlib.sha256(json.dumps(RUN.plans[wildcards.sweep], sort_keys=True).encode()).hexdigest()


def plan_settings(wildcards):
    """The settings a plan takes over, as JSON in fixed order."""
    return json.dumps({"measure": RUN.plans[wildcards.sweep]["settings"]}, sort_keys=True)


def measuring_threads(wildcards):
    """The cores of one GPU's share of the host, so that nothing else runs beside a timing."""
    limits = workflow.global_resources
    gpus = limits["gpu"].value if "gpu" in limits else 1
    return max(1, (workflow.cores or 4) // max(1, gpus))


def published_files(*names):
    """Published files that stand in for measurements, as far as there are any."""
    if RUN.published is None:
        return []
    return [(RUN.published / name).as_posix() for name in names if (RUN.published / name).is_file()]


def records_of(wildcards):
    """What a sweep's tables are made from."""
    if not RUN.measures:
        return published_files("timings.csv", "metrics.csv", "notes.csv", "jobs.csv")
    folder = f"{FOLDER}/sweeps/{wildcards.sweep}"
    counters = [f"{folder}/profile.jsonl"] if RUN.every_sweep[wildcards.sweep].counter_groups else []
    return [
        f"{FOLDER}/plans/{wildcards.sweep}.json",
        f"{folder}/cells.jsonl",
        f"{folder}/job.json",
        *counters,
    ]


def figures_of(sweep):
    """Figures a sweep asks for."""
    return [RUN.folder.figure(sweep, name).as_posix() for name in figure_names(RUN.every_sweep[sweep])]


def tables_in(folder, names=TABLES):
    """Files of tables: CSV with parquet beside it."""
    return [f"{folder}/{name}.{format}" for name in names for format in FORMATS]


def clock_tables():
    """Checks of the timer, where this run makes them."""
    made = RUN.measures and RUN.config.clock.enabled
    return tables_in(f"{FOLDER}/tables", ["clock_nvbench", "clock_aa"]) if made else []


def throughput_record():
    """Timing of a whole tuning sweep, where someone made it: python -m ladder throughput."""
    record = RUN.folder.root / "throughput.json"
    return [record.as_posix()] if RUN.measures and record.is_file() else []


# Without a GPU the steps that read measurements are told where published ones are.
STANDS_IN = [] if RUN.measures else [f"--published {RUN.project.published(RUN.config.published).as_posix()}"]
