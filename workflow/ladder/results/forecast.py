"""What a run would measure, and for how long: from its plans, what is compiled so far, and the records there are."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from ladder.catalogue.runs import Run
from ladder.gpu.discovery import driver_version, find_gpus
from ladder.measure.conditions import host_conditions
from ladder.measure.plan_records import PlanRecords
from ladder.measure.schedule import Schedule
from ladder.measure.store import Records, read_store
from ladder.model.cell import cell_name
from ladder.model.record import Record
from ladder.results.published_records import read_archive
from ladder.results.templates import TEMPLATES


@dataclass(frozen=True)
class Forecast:
    """Cells of a sweep that a run would measure, and the seconds it takes; None where no record says how long.

    `again`: at most so many of them are the fastest and are measured again. Which, is not known yet.
    Where something must be compiled first they are the most: machine code may come out as it was.
    """

    sweep: str
    cells: list[str]
    again: int
    seconds: float | None
    compiled: bool


def durations(records: Iterable[Record]) -> tuple[Mapping[str, float], Mapping[str, float]]:
    """Seconds that cells took by their ids, as their latest records say, and the mean by regime, or that of all.

    Both are empty where no record says how long it took.
    """
    known, by_regime = dict[str, float](), dict[str, list[float]]()
    for one in records:
        if (spent := one.result.get("spent") or {}).get("wall_s"):
            known[one.cell.id] = spent["wall_s"] / spent["regimes"]
            by_regime.setdefault(one.cell.regime, []).append(known[one.cell.id])
    overall = fmean(known.values()) if known else 0.0
    means = {regime: fmean(seconds) for regime, seconds in by_regime.items()}
    return known, defaultdict(lambda: overall, means)


def forecasts(run: Run) -> Iterator[Forecast]:
    """The cells of each sweep that a run would measure; none where there is no GPU to measure on."""
    from ladder.build.cache import Cache  # and with it CUDA, which tables are made without
    from ladder.build.variants import CompileRequests

    if not run.measures:
        return
    gpu = next((gpu for gpu in find_gpus() if gpu.slug == run.device), None)
    store = read_store(run.folder.records)
    published = read_archive(run.project.published(run.device).records)
    known, usual = durations(Records().add((*published, *store)))
    cache = Cache(run.project.root / run.config.compile.cache)
    for name, plan in ((name, run.plans[name]) for name in run.sweeps):
        on = host_conditions(plan.problem, gpu.name, driver_version()) if gpu else None
        wanted = CompileRequests(run.sweeps[name], run.project.include, run.arch, run.config.compile.options)
        # What is not compiled has no status and no machine code, so that no record is of it.
        made = wanted.planned(plan, {one.key: cache.facts(one) or {} for one in wanted.requests})
        view = PlanRecords(made, Records() if plan.job["remeasure"] else store)
        schedule, uuid = Schedule(view, on), gpu.uuid if gpu else None
        due, again = schedule.due(uuid=uuid), schedule.most_again(uuid)
        named, regimes_of = dict[str, str](), dict[str, str]()
        for task, regime in ((plan.tasks[index], regime) for index, regimes in due for regime in regimes):
            cell, against = task.cell.in_regime(regime), f" against {task.baseline}" if task.baseline else ""
            named[cell.id], regimes_of[cell.id] = cell_name(task.variant, cell) + against, regime
        for choice in (plan.choices[index] for index in schedule.choices(due)):
            named[choice.id] = cell_name(" or ".join(choice.reference.libraries), choice)
            regimes_of[choice.id] = choice.regime
        seconds = None
        if usual:
            seconds = sum(known.get(cell, usual[regime]) for cell, regime in regimes_of.items())
            seconds += again * usual[plan.regimes[0]]
        ready = all("status" in facts for facts in (*made.harness.values(), *made.variants.values()))
        yield Forecast(name, list(named.values()), again, seconds, ready)


def summary(found: Sequence[Forecast], cells: bool = False) -> str:
    """The forecast in words, with the names of the cells if wanted."""
    busy = [one for one in found if one.cells]
    return TEMPLATES.get_template("forecast.j2").render(busy=busy, cells=cells)
