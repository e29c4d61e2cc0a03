"""A run, loaded and checked as a whole: configuration, catalogue, sweeps and the device it is for."""

from collections.abc import Mapping
from dataclasses import dataclass

from ladder.catalogue.kernels import load_kernels
from ladder.catalogue.plans import plan_sweep
from ladder.catalogue.settings import Setup
from ladder.catalogue.sweeps import chosen_cells, load_sweeps, named
from ladder.model.kernel import Kernel
from ladder.model.plan import Plan
from ladder.model.sweep import Sweep


@dataclass(frozen=True)
class Run(Setup):
    """Everything that can be known before the first job.

    `sweeps` are the chosen ones, with the chosen of their cells. Every sweep is checked and planned, because claims and
    targets may name any.
    """

    catalog: Mapping[str, Kernel]
    sweeps: Mapping[str, Sweep]
    every_sweep: Mapping[str, Sweep]
    plans: Mapping[str, Plan]


def load(setup: Setup) -> Run:
    """Load and check everything a run reads. Raises LadderError for the first mistake found."""
    # CUDA, which those do without who are given a run.
    from ladder.build.nvrtc import refuse_options
    from ladder.build.variants import kernel_digest

    project, config, arch = setup.project, setup.config, setup.arch
    refuse_options(arch, config.compile.options)
    catalog = load_kernels(project.kernels)
    for kernel in catalog.values():
        kernel_digest(kernel, project.include)
    every = load_sweeps(project.sweeps, catalog, None)
    chosen = every if isinstance(config.sweeps, str) else named([*config.sweeps], every)
    chosen = {
        name: chosen_cells(sweep, config.sweeps) for name, sweep in chosen.items()
    }
    plans = {
        name: plan_sweep(sweep, config, arch)
        for name, sweep in {**every, **chosen}.items()
    }
    return Run(project, config, setup.device, arch, catalog, chosen, every, plans)
