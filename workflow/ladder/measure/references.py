"""What a cell is timed against: the fastest of some libraries, or another kernel."""

from ladder.gpu.device import Launcher
from ladder.gpu.instance import Instance
from ladder.measure.bench import Bench, CellOutcome
from ladder.model.errors import LadderError
from ladder.model.plan import Task


def references(bench: Bench, task: Task, instance: Instance) -> dict[str, Launcher]:
    """Launchers of a task's references by name; a library that lacks one is left out, with a note.

    Each is made once for an instance. Raises CellOutcome where there is none, or the reference kernel is wrong.
    """
    known = bench.known
    if task.reference is not None:
        name = task.reference.variant
        if name not in known:
            known[name] = bench.verified(task.reference, instance, f"the reference {name}: ")[0]
        return {name: known[name]}
    for name in task.cell.reference.libraries:
        if name not in known:
            try:
                known[name] = instance.library(name)
            except LadderError as error:
                known[name] = None
                known["note", name] = str(error)
    found = {name: known[name] for name in task.cell.reference.libraries if known[name] is not None}
    if not found:
        raise CellOutcome("unsupported", "no reference: " + "; ".join(notes(bench)))
    return found


def notes(bench: Bench) -> list[str]:
    """Which libraries have nothing for the current instance, and why."""
    return [f"{key[1]}: {text}" for key, text in bench.known.items() if isinstance(key, tuple)]


def fastest(bench: Bench, launchers: dict[str, Launcher]) -> tuple[str, dict[str, float]]:
    """The name of the fastest, and the times (us) that it was chosen by."""
    key = "times of " + ", ".join(launchers)
    if key not in bench.known:
        bench.known[key] = dict(zip(launchers, bench.timer.quick(list(launchers.values())), strict=True))
    times: dict[str, float] = bench.known[key]
    return min(times, key=lambda name: times[name]), times


def copy_us(bench: Bench, instance: Instance) -> float | None:
    """Time (us) of a copy of the instance's data, for problems that have one as a library."""
    if "copy" in bench.problem.libraries and "copy_us" not in bench.known:
        bench.known["copy_us"] = bench.timer.quick([instance.library("copy")])[0]
    return bench.known.get("copy_us")
