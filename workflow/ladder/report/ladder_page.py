"""docs/ladder.md: each ladder as a table, and the files that spell its rungs out, with what was measured of both."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ladder.model.folders import RunFolder
from ladder.model.kernel import Kernel, Variant
from ladder.model.schemas import TableRow
from ladder.model.sweep import Sweep
from ladder.report.code_links import (
    CodeLink,
    changed_lines,
    code_links,
    file_before,
    file_link,
    file_of,
    is_file_of_a_rung,
    new_code,
)
from ladder.report.ladder_steps import Step, steps
from ladder.report.markdown import number
from ladder.report.shares import Shares, shares_of
from ladder.results import statistics as stats
from ladder.results.run_data import RunData
from ladder.results.statistics import Estimate, records
from ladder.results.sweep_data import SweepData
from ladder.results.templates import TEMPLATES
from ladder.results.verdicts import NO_GAIN, TIED, Gain, gain_over

PRODUCTS = (
    "fp32_ladder",
    "tensor_ladder_bf16",
    "tensor_ladder_fp16",
    "tensor_ladder_tf32",
    "hopper_ladder",
)
"""The ladders of matrix products, in the page's order."""
FILES = {"fp32_ladder": "fp32_files", "hopper_ladder": "hopper_files"}
"""Of a ladder with a file a rung the sweep that measures files of which the ladder has parameterised kernels."""
_REGIMES = {"cold": "cold: the L2 is flushed before each launch", "warm": "warm"}
_DECIMALS = (0.1, 10)  # between these a number has three decimals

_PLAIN_A = "4_register_tile"  # the file of rung 5 of FP32, where A is not volatile


@dataclass(frozen=True)
class File:
    """A file that spells a rung out, what was measured of it, and what it gains over the file before."""

    code: CodeLink
    kernel: Kernel
    rung: str  # that it spells out, as the ladder or the sweep of files names it
    before: Variant | None
    over: str  # what the file before is called; with its rung where that is not the file at its defaults
    lines: Sequence[CodeLink]  # that the file before lacks
    row: TableRow | None  # against a library; None where it was not measured
    gain: Gain = NO_GAIN
    direct: bool = False  # whether the two were launched in turn; else it is the quotient of two speeds

    @property
    def tie(self) -> bool:
        return self.gain.verdict == TIED


def decimals(value: Any) -> str:
    """A number with three decimals, where it is small or large with some digits; empty where it is unknown."""
    low, high = _DECIMALS
    if value is None:
        return ""
    return (
        f"{value:.3f}"
        if low <= value < high
        else number(value, 4 if value >= high else 3)
    )


def interval(value: Estimate) -> str:
    """[0.989, 1.030], an end that reads as 1.000 with more decimals; empty where it is unknown."""
    if not value.known:
        return ""
    ends = [
        f"{end:.5f}" if decimals(end) == "1.000" else decimals(end)
        for end in (value.low, value.high)
    ]
    return f"[{', '.join(ends)}]"


def _from_to(values: Sequence[float], unit: str) -> str:
    low, high = min(values), max(values)
    ends = f"{low:.0f}" if round(low) == round(high) else f"{low:.0f} to {high:.0f}"
    return f"{ends} {unit}" + ("s" if unit != "MHz" and round(high) != 1 else "")


def conditions(data: SweepData, rows: Sequence[TableRow], each: str = "rung") -> str:
    """How rows of a sweep were measured: sizes, dtype, layout, state of the caches, clock, and on how many GPUs."""
    layouts = sorted({str(row["layout"]) for row in rows if row["layout"] is not None})
    facts = [
        data.size_text,
        ", ".join(data.sweep.dtypes),
        *(f"layout {layout}" for layout in layouts),
    ]
    facts.append(_REGIMES[data.regime])
    if rows:
        clocks = [
            row["sm_clock_mhz"] for row in rows if row["sm_clock_mhz"] is not None
        ]
        facts += [f"SM clock {_from_to(clocks, 'MHz')}"] if clocks else []
        counts = [
            (row["gpus"], row["sessions"]) for row in rows if row["gpus"] is not None
        ]
        if counts:
            gpus, sessions = zip(*counts, strict=True)
            facts.append(
                f"each {each} measured in {_from_to(sessions, 'session')}, on {_from_to(gpus, 'GPU')}"
            )
    return "; ".join(facts)


def _file_before(
    own: Kernel, data: SweepData, files: SweepData, all_data: RunData
) -> Variant | None:
    """By the sweep of files, where that names a file as the baseline; else by the ladder."""
    for entry in files.sweep.entries:
        if entry.variant.kernel is own and entry.baseline:
            below = entry.baseline.variant
            if is_file_of_a_rung(below.kernel):
                return below
    rungs = [one for one in data.sweep.entries if file_of(one, all_data.sweeps) is own]
    return file_before(rungs[0], data.sweep, all_data.sweeps) if rungs else None


def _over(before: Variant | None, sweep: Sweep) -> str:
    """6_tma_store, or 6_tma_store (rung 6b) of a variant that is not the file at its defaults."""
    if before is None:
        return ""
    name = before.kernel.name
    if before.id == before.kernel.variant({}, before.dtype).id:
        return name
    rungs = [
        one.rung.partition(" ")[0]
        for one in sweep.entries
        if one.variant.id == before.id
    ]
    return f"{name} (rung {rungs[0]})"


def files_of(
    data: SweepData, files: SweepData, all_data: RunData, root: Path
) -> list[File]:
    """The files of a ladder in the order of their names."""
    rungs: dict[str, tuple[Kernel, str]] = {}
    for part in (data, files):
        for entry in part.sweep.entries:
            own = (
                file_of(entry, all_data.sweeps)
                if part is data
                else entry.variant.kernel
            )
            if own is not None and is_file_of_a_rung(own):
                rungs.setdefault(own.name, (own, entry.rung))
    usual = {
        name: own.variant({}, data.sweep.dtypes[0]).id
        for name, (own, _) in rungs.items()
    }
    here, pairs = dict[str, TableRow](), dict[tuple[str, str], TableRow]()
    for part in (files, data):  # what the ladder measured itself goes before
        size = data.size
        here |= {row["variant"]: row for row in records(stats.at_size(part.ok, size))}
        direct = stats.at_size(stats.ok_rows(part.pairs, part.regime), size)
        pairs |= {(row["variant"], row["reference"]): row for row in records(direct)}
    found = []
    for name, (own, rung) in sorted(rungs.items()):
        before = _file_before(own, data, files, all_data)
        row, other = here.get(usual[name]), here.get(before.id) if before else None
        pair = pairs.get((usual[name], before.id)) if before else None
        gain = (
            NO_GAIN if row is None or other is None else gain_over(pair or row, other)
        )
        lines = changed_lines(own, before.kernel, root) if before else []
        code, over = file_link(own, root), _over(before, data.sweep)
        found.append(
            File(code, own, rung, before, over, lines, row, gain, pair is not None)
        )
    return found


@dataclass(frozen=True)
class Ladder:
    """A ladder of the page. By the id of a rung's variant: `steps`, `code`, `lines`, `as_file`."""

    data: SweepData
    steps: Mapping[str, Step]
    code: Mapping[str, Sequence[CodeLink]]
    lines: Mapping[str, Sequence[CodeLink]]  # what is new in the file of a rung
    as_file: Mapping[
        str, CodeLink
    ]  # of a rung whose kernel has parameters, the file that spells it out
    files: Sequence[File]  # where a sweep measures files of their own
    shares: Shares | None  # of the peak rate, where the sweep predicts them

    @property
    def conditions(self) -> str:
        return conditions(self.data, [step.row for step in self.steps.values()])

    @property
    def reference(self) -> str:
        """What speeds are over: a library, a copy, or a rung by its number."""
        against = self.data.sweep.reference
        if against.kernel is None:
            return "copy" if against.libraries == ("copy",) else "library"
        rungs = [
            entry
            for entry in self.data.sweep.entries
            if entry.variant.kernel is against.kernel
        ]
        return (
            f"rung {rungs[0].rung.partition(' ')[0]}" if rungs else against.kernel.name
        )

    @property
    def shared(self) -> list[str]:
        """Parameters that a rung as reference has from the row beside it."""
        against = [
            self.data.sweep.reference.variant_for(entry.variant)
            for entry in self.data.sweep.entries
        ]
        return stats.changing([one.params for one in against if one])

    @property
    def files_sweep(self) -> str:
        return FILES[self.data.sweep.name]

    @property
    def files_conditions(self) -> str:
        return conditions(
            self.data, [one.row for one in self.files if one.row is not None], "file"
        )


def _ladder(data: SweepData, all_data: RunData, root: Path) -> Ladder:
    entries, sweeps = data.sweep.entries, all_data.sweeps
    files = {entry.variant.id: file_of(entry, sweeps) for entry in entries}
    return Ladder(
        data=data,
        steps={step.entry.variant.id: step for step in steps(data)},
        code={
            entry.variant.id: code_links(entry, data.sweep, root) for entry in entries
        },
        lines={
            entry.variant.id: new_code(entry, data.sweep, sweeps, root)
            for entry in entries
        },
        as_file={
            entry.variant.id: file_link(file, root)
            for entry in entries
            if (file := files[entry.variant.id]) is not None
            and file is not entry.variant.kernel
        },
        files=files_of(data, all_data.parts[FILES[data.sweep.name]], all_data, root)
        if data.sweep.name in FILES
        else [],
        shares=shares_of(data),
    )


def names_of(sweeps: Mapping[str, Sweep]) -> list[str]:
    """The sweeps of the page: matrix products, then the ladders that predict shares of a peak rate; fp32 first."""
    predicted = [
        one
        for one in sweeps.values()
        if all(entry.rung and entry.predicted for entry in one.entries)
    ]
    predicted.sort(
        key=lambda one: (one.problem.place, "fp32" not in one.dtypes, one.name)
    )
    return [*PRODUCTS, *(one.name for one in predicted)]


def ladders(published: RunFolder, data: RunData, root: Path) -> str:
    """The page of a project that lies at `root`, from what is published of a device."""
    shown = [_ladder(data.parts[name], data, root) for name in names_of(data.sweeps)]
    paired = steps(data.parts["fp32_files"])
    plain = next(
        (step for step in paired if step.entry.variant.kernel.name == _PLAIN_A), None
    )
    figures = published.figures.relative_to(root).as_posix()
    known = {
        "ladders": shown,
        "figures": figures,
        "plain": plain,
        "plain_a": _PLAIN_A,
        "device": data.name,
    }
    helpers = {"decimals": decimals, "interval": interval}
    return TEMPLATES.get_template("ladders.md.j2").render(**known, **helpers)
