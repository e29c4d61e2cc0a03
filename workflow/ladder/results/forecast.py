"""How many cells a run would measure, and for about how long."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from statistics import fmean

from ladder.catalogue.runs import Run
from ladder.gpu.discovery import driver_version, find_gpus
from ladder.measure.conditions import host_conditions
from ladder.measure.plan_records import PlanRecords
from ladder.measure.schedule import Schedule
from ladder.measure.store import read_store
from ladder.model.record import Record
from ladder.results.published_records import read_archive
from ladder.results.statistics import count


def usual_seconds(records: Iterable[Record]) -> Mapping[str, float]:
    """Mean seconds of a cell by regime, and the mean of all for other regimes; empty where no record has a time."""
    seconds = defaultdict[str, list[float]](list)
    for record in records:
        spent = record.result.get("spent") or {}
        if spent.get("wall_s"):
            seconds[record.cell.regime].append(spent["wall_s"] / spent["regimes"])
    if not seconds:
        return {}
    overall = fmean(second for cells in seconds.values() for second in cells)
    return defaultdict(
        lambda: overall, {regime: fmean(cells) for regime, cells in seconds.items()}
    )


def forecast(run: Run) -> str:
    """A line such as `12 cells due, about 3 minutes`; without minutes where no record has a time.

    It says `at most` where a kernel is not compiled, since machine code may come out as it was.
    """
    # With the bindings of CUDA, which tables are made without.
    from ladder.build.cache import Cache

    gpu = next((gpu for gpu in find_gpus() if gpu.slug == run.device), None)
    store = read_store(run.folder.records)
    cache = Cache(run.project.root / run.config.compile.cache)
    due, compiled = Counter[str](), True
    for name, sweep in run.sweeps.items():
        requests = run.requests(sweep)
        facts = {
            request.key: cache.facts(request) or {} for request in requests.requests
        }
        compiled = compiled and all(facts.values())
        plan = requests.planned(run.plans[name], facts)
        on = host_conditions(plan.problem, gpu.name, driver_version()) if gpu else None
        schedule = Schedule(PlanRecords(plan, store, on=on))
        tasks = schedule.due(uuid=gpu.uuid if gpu else None)
        for _, regimes in tasks:
            due.update(regimes)
        due.update(plan.choices[index].regime for index in schedule.choices(tasks))
    text = f"{count(due.total(), 'cell')} due"
    if not compiled:
        text = f"at most {text}"
    usual_s = usual_seconds(
        [*read_archive(run.project.published(run.device).records), *store]
    )
    if not usual_s:
        return text
    seconds = sum(cells * usual_s[regime] for regime, cells in due.items())
    return f"{text}, about {count(math.ceil(seconds / 60), 'minute')}"
