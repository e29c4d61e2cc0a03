"""What a text that a person wrote looks up in the tables: rows, speeds, counters, and whether a sentence still holds.

Templates of workflow/report/answers and of tools/texts call these methods by name. What the tables lack raises
Unmeasured: it costs the sentence that needs the number.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from pandas import DataFrame

from ladder.claims.counters import conflicts, stalled
from ladder.claims.primitives import NOT_MEASURED
from ladder.model.errors import LadderError
from ladder.model.schemas import Fields, TableRow
from ladder.report.causes import busy
from ladder.report.choices import Choice, choices
from ladder.report.ladder_steps import Step, climb, steps
from ladder.report.statements import OTHER_GPU, claim_lines
from ladder.results import statistics as stats
from ladder.results.counters import CYCLES
from ladder.results.input_errors import errors_by_inputs
from ladder.results.run_data import Row, Rows, RunData, Unmeasured, Value, best
from ladder.results.sweep_data import plain
from ladder.results.verdicts import Gain


class Lookups:
    """The tables of a run as texts read them. `unsaid`: sentences whose numbers no longer say what they conclude."""

    LEAST_READINGS = 30
    """Of fewer readings it says little how many of them a sweep's ranges hold."""

    def __init__(self, data: RunData) -> None:
        self.data = data
        self.unsaid: list[str] = []

    def expect(self, holds: Any, sentence: str) -> str:
        """The sentence where what it concludes from holds, else nothing; then it is `unsaid`."""
        if holds:
            return sentence
        self.unsaid.append(sentence)
        return ""

    # Rows.

    def only(self, sweep: str, kernel: Any = None, **wanted: Any) -> Row:
        """The one row with these columns and parameters, in the sweep's first regime.

        Raises Unmeasured without any, and LadderError where several fit: a text means one.
        """
        rows = self.data.rows(sweep, kernel, **wanted)
        if len(rows) > 1:
            raise LadderError(
                f"{sweep}, {kernel or 'any kernel'}, {wanted}: {len(rows)} rows; accepted: one"
            )
        return rows[0]

    def row(self, sweep: str, rung: Any, n: int = 4096, **wanted: Any) -> Row:
        """The one row of a rung of GEMM at a size."""
        return self.only(sweep, rung=rung, n=n, **wanted)

    def fastest(self, sweep: str, kernel: Any = None, **wanted: Any) -> Row:
        """The fastest over the sweep's reference of the rows with these columns and parameters."""
        return best(self.data.rows(sweep, kernel, **wanted))

    def fastest_each(
        self, by: Sequence[str], sweep: str, kernel: Any = None, **wanted: Any
    ) -> list[Row]:
        """The fastest row for each value of columns or parameters, in their order."""
        rows = self.data.rows(sweep, kernel, **wanted)
        groups = stats.grouped(rows, lambda row: tuple(row[name] for name in by))
        return [best(groups[place]) for place in sorted(groups)]

    def fastest_shapes(self, sweep: str, thin: float = math.inf) -> list[Row]:
        """The fastest row at each shape whose M, N or K is at most `thin`, the least speed-up first."""
        rows = self.fastest_each(["dtype", "m", "n", "k"], sweep)
        rows = [row for row in rows if min(row.size.values()) <= thin]
        if not rows:
            raise Unmeasured(
                f"no shape of {sweep} with a dimension of at most {thin} has a result"
            )
        return sorted(rows, key=lambda row: float(row["speedup"]))

    def accesses(self, sweep: str | None = None) -> DataFrame:
        """Accesses to shared memory: `cycles`, those that the `model` of the banks predicts, and the share `off` it.

        Of one sweep, or of all about banks. Raises Unmeasured where none was timed.
        """
        timed = []
        for name, part in self.data.parts.items():
            if sweep in (None, name) and part.sweep.problem.name == "banks":
                costs = stats.access_costs(part.ok, part.metrics)
                timed += stats.records(costs.dropna(subset=["cycles", "model"]))
        if not timed:
            raise Unmeasured("no access to shared memory was timed")
        return DataFrame(timed)

    def ladder_tops(self, ladders: Mapping[str, str], share: str) -> dict[str, Row]:
        """Name -> the rung of its ladder with the largest `share`, at the size that the sweep is about.

        Ladders without a result are left out. Raises Unmeasured where none has one.
        """
        tops = {}
        for name, sweep in ladders.items():
            part = self.data.parts.get(sweep)
            timed = self.data.timed(sweep, **part.size).rows if part else []
            rows = [row for row in timed if share in row]
            if rows:
                tops[name] = max(rows, key=lambda row: row[share])
        if not tops:
            raise Unmeasured(f"no ladder of {', '.join(ladders)} has a result")
        return tops

    def in_triton(self, kernel: str) -> bool:
        """Whether a kernel is written in Triton, as a condition on rows."""
        return kernel.startswith("triton_")

    def in_cuda(self, kernel: str) -> bool:
        return not self.in_triton(kernel)

    # Speeds.

    def gains(self, sweep: str, rung: Any, below: Any) -> dict[int, Gain]:
        """Size n -> speed of a rung over another one, at the sizes that both have."""
        rows, others = (self.data.timed(sweep, rung=name) for name in (rung, below))
        gains = self.data.speeds_over(rows, others, "n")
        if not gains.values:
            both = f"{sweep} has no size with both {rung} and {below}"
            raise Unmeasured(gains.why or both)
        return {gain.row["n"]: gain for gain in gains.values}

    def beside(
        self, by: Sequence[str], sweep: str, kernel: Any, other: Any, **wanted: Any
    ) -> Sequence[Value]:
        """For each value of columns the speed of the fastest row of a kernel over the fastest of another one."""
        rows, others = (
            Rows(sweep, self.fastest_each(by, sweep, name, **wanted), "")
            for name in (kernel, other)
        )
        return self.data.speeds_over(rows, others, *by).values

    def choices(self, kind: str) -> list[Choice]:
        """The recommended configurations of a kind of GEMM, every layout and square size."""
        return [choice for choice in choices(self.data) if choice.kind == kind]

    def choice(self, kind: str, size: int = 4096) -> Choice:
        """The fastest configuration of a kind at a size, whatever its layout."""
        here = [choice for choice in self.choices(kind) if choice.size == size]
        if not here:
            raise Unmeasured(f"no {kind} GEMM at {size} has a result against a library")
        return max(here, key=lambda choice: choice.gain.value)

    def slowed(self) -> list[Choice]:
        """The choices at whose place a configuration was timed both once and for seconds."""
        pairs = [choice for choice in choices(self.data) if choice.slowed]
        if not pairs:
            raise Unmeasured("no GEMM was timed both once and for seconds")
        return pairs

    # Ladders.

    def step(self, sweep: str, rung: str) -> Step:
        """The step to a rung, named without its number, from the rung that it changes."""
        for step in steps(self.data.part(sweep)):
            if plain(step.entry.rung) == rung and step.gain.known:
                return step
        raise Unmeasured(
            f"the rung {rung} of {sweep} has no result beside the rung that it changes"
        )

    def climb(self, sweep: str) -> list[Step]:
        """The rungs that lead to the fastest, each over the one before it."""
        path = climb(self.data.part(sweep))
        if sum(step.gain.known for step in path) < 2:
            raise Unmeasured(
                f"fewer than two rungs of {sweep} have a result beside the rung that they change"
            )
        return path

    # Counters, machine code, and the GPU.

    def waits(self, reason: str, row: Row) -> float:
        """Cycles an instruction that warps wait for a reason, such as long_scoreboard."""
        return stalled(reason)(row)

    conflicts = staticmethod(conflicts)

    def error_ratios(self, sweep: str) -> dict[str, list[float]]:
        """Kind of inputs -> the largest errors of a sweep's kernels over those of its reference, the least first."""
        part = self.data.part(sweep)
        ratios = defaultdict[str, list[float]](list)
        for error in errors_by_inputs(part.ok, part.metrics):
            if error["ratio"] is not None:
                ratios[error["inputs"]].append(error["ratio"])
        if not ratios:
            raise Unmeasured(
                "errors by kind of inputs were not measured here: they take a GPU"
            )
        return {inputs: sorted(numbers) for inputs, numbers in ratios.items()}

    def busy(self, row: Row) -> dict[str, float]:
        """Unit -> the share of the time that it works, the busiest first."""
        if not row.metrics:
            raise Unmeasured(f"{row['variant']} was not counted")
        return busy(row, row.metrics, self.data.gpu)

    def clock(self, row: Row) -> float:
        """GHz during a launch: the cycles that the profiler counted, over the time without it."""
        return float(row.metric(CYCLES) / self.gpu("sms") / row["median_us"] / 1000)

    def as_many_cycles(self, row: Row, other: Row) -> bool:
        """Whether two launches take the same cycles, within half a percent."""
        return math.isclose(row.metric(CYCLES), other.metric(CYCLES), rel_tol=0.005)

    def gpu(self, *fact: str) -> float:
        """A fact of the GPU, such as fp32_peak_tflops, or tensor_peak_tflops and tf32."""
        value: Any = self.data.gpu
        for name in fact:
            value = (value or {}).get(name)
        if not value:
            raise Unmeasured(f"{' of '.join(fact)} of the GPU is not known")
        return float(value)

    # Claims.

    def part(self, claim: str, words_of_it: str) -> Fields:
        """The part of a claim whose label has these words: part, verdict, where, effect, effect_low, effect_high."""
        claims = self.data.frames["claims"]
        parts = claims[claims["id"] == claim]
        fitting = parts[parts["part"].str.contains(words_of_it, regex=False)]
        if len(fitting) != 1:
            raise LadderError(
                f"{claim}: {len(fitting)} parts have {words_of_it!r}; accepted: one"
            )
        return stats.records(fitting)[0]

    def decided(self, elsewhere: bool = False) -> list[TableRow]:
        """Statements that were decided, as `claim_lines` has them: about any GPU, or of texts that measured another."""
        lines = []
        for line in claim_lines(self.data.frames["claims"]):
            of_these = (line["source"] in OTHER_GPU) == elsewhere
            if of_these and line["verdict"] != NOT_MEASURED:
                lines.append(line)
        if not lines:
            raise Unmeasured("no claim was decided")
        return lines

    # Ranges.

    def held(self, part: str) -> Fields:
        """The row of `unseen` of a part: how often readings on new GPUs fell into ranges printed before."""
        rows = self.data.frames["unseen"]
        rows = rows[rows["part"] == part]
        if rows.empty:
            raise Unmeasured(
                "too few cells were measured on several GPUs to test the ranges"
            )
        return stats.records(rows)[0]

    def worst_sweep(self) -> Fields:
        """The row of `unseen` of the sweep whose ranges held the smallest share of LEAST_READINGS or more."""
        rows = self.data.frames["unseen"]
        rows = rows[
            rows["part"].isin(list(self.data.sweeps))
            & (rows["readings"] >= self.LEAST_READINGS)
        ]
        if rows.empty:
            raise Unmeasured("no sweep was read on new GPUs")
        return stats.records(rows.nsmallest(1, "covered"))[0]


def names(lookups: Lookups) -> Fields:
    """The methods and tables of `lookups` by the names that templates call them."""
    public = [name for name in dir(lookups) if not name.startswith("_")]
    return {name: getattr(lookups, name) for name in public}
