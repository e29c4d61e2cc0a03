"""The step that searches for the fastest variant of a kernel."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from ladder.catalogue.documents import parse_size, parse_yaml
from ladder.catalogue.kernels import Catalog
from ladder.catalogue.settings import choose_device, read_settings
from ladder.catalogue.space import Space
from ladder.catalogue.sweeps import load_sweeps, make_sweep
from ladder.cli.judge import (
    LINE,
    Description,
    References,
    Words,
    described,
    measured,
    parameters,
    reference_of,
    the_gpu,
    usual_size,
)
from ladder.cli.load import settings_of
from ladder.cli.options import Config, project
from ladder.gpu.discovery import slug_of
from ladder.measure.plan_records import FASTEST, PlanRecords
from ladder.model.cell import REGIMES, SUSTAINED, size_label
from ladder.model.errors import LadderError, refuse_unknown
from ladder.model.folders import Project
from ladder.model.kernel import Kernel, Variant
from ladder.model.sweep import Sweep
from ladder.results import tuning
from ladder.results.judgement import cells_of, components_for
from ladder.results.templates import TEMPLATES

_BATCH, _BATCH_SUSTAINED = 32, 4
"""Variants that are compiled and measured at a time: what comes next goes by them. A sustained one takes 20 s."""


def _known(own: Project, kernel: Kernel) -> tuple[Kernel, list[Sweep]]:
    """The kernel of the catalogue that a description is, with the project's sweeps; itself where it is none of them."""
    catalog = Catalog(own.kernels)
    same = catalog.get(kernel.name)
    if same is None or not same.path.samefile(kernel.path):
        return kernel, []
    return same, [*load_sweeps(own.sweeps, catalog, None).values()]


def tune(
    context: typer.Context,
    path: Description,
    minutes: Annotated[
        float, typer.Option(min=0.01, help="For the search; what wins is then measured again.")
    ] = 5,
    size: Annotated[str | None, typer.Option(help="As in a sweep (default: a usual one).")] = None,
    dtype: Annotated[str | None, typer.Option(help="Dtype (default: the description's first).")] = None,
    layout: Annotated[str | None, typer.Option(help="Layout of a GEMM (default: its first).")] = None,
    regime: Annotated[str, typer.Option(help="The one in which it is to be fast.")] = "cold",
    param: Annotated[Words, typer.Option(metavar="NAME=VALUE", help="Not searched; may be repeated.")] = None,
    reference: References = None,
    seed: Annotated[int, typer.Option(min=0, help="Of what is drawn.")] = 1,
    arch: Annotated[str | None, typer.Option(help="Architecture (default: the GPU's).")] = None,
    config: Config = None,
) -> None:
    """Search the values that a kernel's description declares for the fastest variant at a size in a regime.

    It begins with what sweeps list there. Every variant is verified and timed as in a tuning sweep, whose race ends
    those that cannot win. At the end the three fastest are measured again, and the best of these in pairs with the best
    listed one. Records go to results/tune/DEVICE, so that the same command goes on where it was ended.
    """
    own = Project(Path(os.path.abspath(project(context).root)))
    kernel, sweeps = _known(own, described(path, "KERNEL.yaml"))
    references, catalog = reference_of(kernel, own, reference)
    refuse_unknown(LINE, "--regime", regime, REGIMES)
    dtype = dtype or next(iter(kernel.dtypes))
    given = parse_yaml(size, f"{LINE}: --size") if size else usual_size(kernel.problem)
    gpu = the_gpu()
    over = {"run": "tune"} | settings_of(config, arch=arch) | {"device": "auto"}
    settings = read_settings(own, (), over)
    settings = settings.model_copy(update={"measure": settings.measure.model_copy(update={"split": 1})})
    device, architecture = choose_device(settings)
    folder = own.run(settings.run, device)
    where = parse_size(kernel.problem, given, LINE, "--size")
    space = Space(kernel, dtype, layout, where, architecture, parameters(param))

    def sweep(variants: Sequence[Variant], against: Sequence[object]) -> Sweep:
        fields = {
            "title": kernel.name,
            "question": "Which variant is the fastest?",
            "problem": kernel.problem.name,
            "dtypes": [dtype],
            "layout": layout,
            "sizes": [dict(where)],
            "variants": [{"kernel": kernel.name, "params": dict(one.params)} for one in variants],
            "references": against,
            "regimes": [regime],
            "tuning": True,
        }
        # Two searches at a time keep apart.
        name = "-".join(filter(None, (kernel.name, dtype, layout, size_label(where), regime)))
        return replace(make_sweep(LINE, fields, catalog, own.root), name=name)

    def measure(
        variants: Sequence[Variant], against: Sequence[object] = references, share: int = 1
    ) -> PlanRecords:
        return measured(own, sweep(variants, against), settings, architecture, folder, share)

    listed = tuning.listed_variants(sweeps, space, regime)
    search = tuning.Search(space, listed, measure, seed, _BATCH_SUSTAINED if regime == SUSTAINED else _BATCH)
    search.run(60 * minutes)
    known = {"kernel": kernel, "space": space, "regime": regime, "device": gpu.name}
    tried = sorted(search.tried.values(), key=lambda one: one.rank)
    print(TEMPLATES.get_template("tune.j2").render(known, tried=tried))
    if not search.fastest:
        raise LadderError(f"{kernel.path}: none of {len(tried)} variants gave a result; their rows say why")
    components = components_for(own.publications(), slug_of(gpu.name))
    # Without a share: the job measures the fastest again, in a process of their own.
    view = tuning.measured_again(measure([one.variant for one in search.fastest[:FASTEST]], share=0))
    again = zip(view.plan.tasks, cells_of(view, components), strict=True)
    task, cell = max(again, key=lambda one: one[1]["speedup"] or 0.0)
    winner = next(one.variant for one in search.fastest if one.variant.id == task.variant)
    best = next((one.variant for one in search.fastest if one.variant in listed), None)
    paired = None
    if best is not None and best is not winner:
        over_best = [{"kernel": kernel.name, "params": dict(best.params)}]
        (paired,) = cells_of(measure([winner], over_best), components)
    words = {"winner": winner, "cell": cell, "best": best, "paired": paired}
    print(TEMPLATES.get_template("tune_winner.j2").render(words, entry=tuning.entry(winner, space)))
