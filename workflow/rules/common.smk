"""The run, loaded and checked once for all rules, and the small functions that rules share."""

import json
import re
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace

from snakemake.exceptions import WorkflowError
from snakemake.shell import shell

# Relative, so that commands, logs and errors read alike on every machine.
WORKFLOW = Path("workflow")
sys.path.insert(0, str(WORKFLOW.resolve()))

from ladder.catalogue.settings import parse_over, set_up
from ladder.gpu.discovery import driver_version
from ladder.measure.conditions import host_conditions
from ladder.model.cell import TIMING_VERSION
from ladder.model.errors import LadderError
from ladder.model.files import digest_json, sha256, tree_digest
from ladder.model.schemas import COLLECTED, SAMPLES


def _rule_inputs():
    from ladder.cli.rules import (
        rule_inputs,
    )  # slow to import, and needed only where something changed

    return rule_inputs(RUN)


try:
    # As they were written: snakemake has made a number of a run's name such as 2026_11_29.
    WORDS = [*workflow.config_settings.config_args]
    RUN = set_up(
        Path(),
        [Path(file) for file in workflow.overwrite_configfiles],
        over=parse_over(WORDS),
    )
    FOLDER = RUN.folder.root.as_posix()
    RULE_INPUTS = SimpleNamespace(**RUN.cached_on_disk(_rule_inputs))
    RULE_INPUTS.sweeps = {
        name: SimpleNamespace(**sweep) for name, sweep in RULE_INPUTS.sweeps.items()
    }
    # Without a GPU the steps that read measurements are given the folder of published ones, if there is one.
    STANDS_IN = (
        [f"--published {shlex.quote(RUN.published.root.as_posix())}"]
        if RUN.published
        else []
    )
except LadderError as error:
    raise WorkflowError(str(error)) from None

if workflow.output_settings.dryrun and RUN.measures:
    from ladder.catalogue.runs import load
    from ladder.results.forecast import forecast

    print(forecast(load(RUN)), file=sys.stderr)

# Rules say `ladder …`, a line that runs by hand as well. Here the very interpreter that runs snakemake runs it, and finds
# the package without an installation. The command is the first line of each log: it repeats the step.
PYTHON = shlex.quote(sys.executable)
shell.prefix(
    "export PYTHONPATH={WORKFLOW}${{PYTHONPATH:+:$PYTHONPATH}}; "
    """ladder() {{ printf '%q ' ladder "$@"; echo; exec {PYTHON} -m ladder "$@"; }}; """
)

# GPUs to share out. On a host with four: snakemake --cores all --resources gpu=4
# In profiles/default this would overrule every other profile.
if "gpu" not in workflow.global_resources:
    workflow.register_resource("gpu", 1)

# Analysis takes less than a minute: all of its steps run again after any change of kernels, package or documents.
TREE = tree_digest(Path())

LOGS = f"{FOLDER}/logs"
FORMATS = ["csv", "parquet"]


wildcard_constraints:
    sweep="|".join(map(re.escape, RULE_INPUTS.sweeps)),


def contents(files):
    """Digest of what files say: for params, since a copied or unpacked file may have any time."""
    return digest_json([sha256(Path(file).read_bytes()) for file in files])


def run_folder(wildcards):
    """results/RUN/DEVICE."""
    return FOLDER


def cores(wildcards):
    """1 where no jobs run, as of --unlock and --summary, and on a cluster, whose profile sets threads.

    There it is called again inside the job, on a node of other cores, and must say the same.
    """
    return 1 if workflow.remote_exec else workflow.global_resources["_cores"].value or 1


def compiling_threads(wildcards):
    """A core for each few variants. Of several sweeps none takes more than the share of one GPU, since it would wait
    until none measures; where no GPU waits, half of the cores, so that two sweeps fill each other's gaps.
    """
    few, all_cores = -(-RULE_INPUTS.sweeps[wildcards.sweep].variants // 4), cores(
        wildcards
    )
    if len(RULE_INPUTS.chosen) == 1:
        return min(few, all_cores)
    return min(
        few, measuring_threads(wildcards) if RUN.measures else max(1, all_cores // 2)
    )


def settings_of(wildcards):
    """The settings that plans and compilers follow, as the step takes them."""
    return words_for({"compile", "measure", "profile"})


def cells_of(wildcards):
    """Which cells of a sweep the configuration keeps, where it does not keep all."""
    kept, name = RUN.config.sweeps, wildcards.sweep
    return (
        setting_words({"sweeps": {name: kept[name]}})
        if isinstance(kept, dict) and name in kept
        else []
    )


def words_for(parts):
    """Parts of the configuration, as steps take them."""
    return setting_words(RUN.config.model_dump(include=parts))


def setting_words(given):
    """Settings, as steps take them."""
    return [
        f"--config {key}={shlex.quote(json.dumps(value))}"
        for key, value in given.items()
    ]


def every_gpu(wildcards):
    """As many GPUs as the run may take at a time."""
    return max(1, workflow.global_resources["gpu"].value)


def measuring_threads(wildcards):
    """The cores of one GPU's share of the host, so that nothing else runs beside a timing."""
    return max(1, cores(wildcards) // every_gpu(wildcards))


def conditions_of(sweep):
    """What a sweep's measurements depend on beside plan and cubins, as far as it is known here.

    That a job runs again for a change of it does not mean that cells are measured again: the job compares each.
    """
    known = RULE_INPUTS.sweeps[sweep]
    return digest_json(
        {"code": known.code, **host_conditions(known.problem, "", driver_version())}
    )


def published_files(*names):
    """Published files that stand in for measurements, as far as there are any."""
    if RUN.published is None:
        return []
    return [
        (RUN.published.root / name).as_posix()
        for name in names
        if (RUN.published.root / name).is_file()
    ]


def beside():
    """Published folders that report and page compare this run with: all but the one that stands in for it."""
    own = RUN.published.root if RUN.published else None
    return [
        folder.root.as_posix()
        for folder in RUN.project.publications()
        if folder.root != own
    ]


def archive():
    """Published records, where they stand in for measurements."""
    return (
        sorted(path.as_posix() for path in RUN.published.records.glob("*.parquet"))
        if RUN.published
        else []
    )


def accounts_of(sweep):
    """What the jobs that measured and profiled a sweep left behind."""
    if not RUN.measures:
        return [*archive(), *published_files("notes.csv", "jobs.csv")]
    counted = ["profiled"] if RULE_INPUTS.sweeps[sweep].counted else []
    return [RUN.folder.account(job, sweep).as_posix() for job in ("measured", *counted)]


def figures_of(sweep, folder):
    """Figures of a sweep."""
    return [f"{folder}/{name}" for name in RULE_INPUTS.sweeps[sweep].figures]


def shown(figure, sweep):
    """A figure as `snakemake --report` shows it: braces would be wildcards there, and a tag ends the page's script."""
    asked, plain = RULE_INPUTS.sweeps[sweep], str.maketrans("{}<", "()‹")
    labels = {
        "sweep": asked.title.translate(plain),
        "question": asked.question.translate(plain),
    }
    return report(figure, category="Figures", subcategory=sweep, labels=labels)


def tables_in(folder, names=COLLECTED):
    """Files of tables: CSV with parquet beside it."""
    return [f"{folder}/{name}.{format}" for name in names for format in FORMATS]


def last_line(log):
    """The last line of a job's log, which says why the job failed."""
    path = Path(log)
    lines = (
        path.read_text(encoding="utf-8", errors="replace").split("\n")
        if path.is_file()
        else []
    )
    said = [line.strip() for line in lines[1:] if line.strip()]
    return said[-1] if said else "the step ended without a word (killed?)"
