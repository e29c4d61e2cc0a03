"""The pages that people wrote around published numbers: docs/texts, a page a text, and docs/ladders.

`PYTHONPATH=workflow python tools/text_pages.py` writes docs/texts/*.md from tools/texts/*.md.j2, and docs/ladders/*.md
from tools/ladders/*.md.j2; a name as argument writes that page alone. Numbers and verdicts come from the published
tables. A sentence that concludes from numbers is wrapped in `expect`, or its number in `won`, `tied`, `lost`, `fall`
or `rise`: where the tables no longer say so, no page is written.
"""

import csv
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from ladder.build.banks import BANKS, LANES, served, wavefronts
from ladder.catalogue.kernels import load_kernels
from ladder.catalogue.sweeps import load_sweeps
from ladder.claims.counters import per_request
from ladder.claims.ledger import overall
from ladder.claims.primitives import lanes
from ladder.model.errors import LadderError
from ladder.model.expressions import whole
from ladder.model.folders import Project
from ladder.model.kernel import Kernel
from ladder.model.sweep import Entry
from ladder.report import words
from ladder.report.causes import needs, relieved
from ladder.report.ladder_steps import Step, steps
from ladder.report.lookups import Lookups, names
from ladder.report.markdown import magnitude
from ladder.report.statements import claim_lines
from ladder.results.counters import STALL_FOR
from ladder.results.run_data import Row, RunData, Unmeasured
from ladder.results.templates import TEMPLATES
from ladder.results.verdicts import FASTER, SLOWER, TIED, Gain

ROOT = Path(__file__).resolve().parents[1]
PAGES, TEXTS = ROOT / "docs/texts", Path(__file__).with_name("texts")
LADDERS = Path(__file__).with_name("ladders")
FOLDERS = {TEXTS: PAGES, LADDERS: ROOT / "docs/ladders"}
"""Folder of templates -> folder of their pages."""
UNSEEN = ROOT / "results/unseen/nvidia-h200"
FILES = ("fp32_files", "tensor_files", "hopper_files")
"""Sweeps that time a file which reads alone beside the rung that it spells out."""
MOVED = 1.05
"""By a smaller factor no counter changes anything."""
UP = "../../"
"""From a page to the root of the checkout."""


class Numbers(Lookups):
    """What a page looks up beside what answers do."""

    def __init__(self, data: RunData, project: Project) -> None:
        super().__init__(data)
        self.project = project
        self.whole = overall(data.frames["claims"])
        self.lines = claim_lines(data.frames["claims"])
        self.said = {line["id"]: line["verdict"] for line in self.lines}
        launches = (PAGES / "launches.csv").open(encoding="utf-8", newline="")
        self.launches = {
            (row["what"], row["size"]): row for row in csv.DictReader(launches)
        }

    # Claims.

    def verdict(self, claim: str) -> str:
        """The verdict of a claim in bold, with a link to all its numbers."""
        return f"[**{self.said[claim]}**]({UP}results/published/nvidia-h200/evidence.md#{claim})"

    def verdicts_of(self, text: str) -> list[str]:
        """Those of all claims of a text."""
        return [line["verdict"] for line in self.lines if line["source"] == text]

    # Times.

    def lane_map(self, name: str, split: str, n: int = 4096, **wanted: Any) -> Row:
        """The row of a lane map, with tiles of 128 x 128 that are padded unless others are wanted."""
        (row,) = lanes(self.data, name, split, n=n, **wanted).rows
        return row

    def tflops(self, sweep: str, rung: Any, n: int = 4096, **wanted: Any) -> str:
        return f"{self.row(sweep, rung, n, **wanted)['tflops']:.3g}"

    def gain(self, sweep: str, rung: Any, below: Any, n: int = 4096) -> Gain:
        """Speed of a rung over another one at a size, of pairs where they were launched in turn."""
        return self.data.over(self.row(sweep, rung, n), self.row(sweep, below, n))

    def shown(self, gain: Gain) -> str:
        """Such as 1.23 (1.21 to 1.25): a speed, and the range that another GPU of the model should show."""
        ends = gain.predicted if gain.predicted.known else gain.measured
        return f"{gain.value:.2f} ({ends.low:.2f} to {ends.high:.2f})"

    def on_slow_gpus(self, row: Row) -> str:
        """A row's speed over its reference as GPUs that copy slowly read it: see docs/trust.md."""
        readings = pd.read_csv(UNSEEN / "first_screen.csv")
        same = ["sweep", "variant", "reference", "regime", "m", "n", "k"]
        cell = (readings[same] == pd.Series({name: row[name] for name in same})).all(
            axis=1
        )
        return f"{readings.loc[cell, 'speedup'].mean():.2f}"

    def over(self, sweep: str, rung: Any, below: Any, n: int = 4096) -> str:
        """`gain` as it is `shown`."""
        return self.shown(self.gain(sweep, rung, below, n))

    def times(
        self, sweep: str, rung: Any, below: Any, sizes: Sequence[int]
    ) -> list[str]:
        """`over` at each size."""
        return [self.over(sweep, rung, below, n) for n in sizes]

    # Counters and machine code.

    def counter(
        self, metric: str, sweep: str, rung: Any, n: int = 4096, **wanted: Any
    ) -> float:
        return self.row(sweep, rung, n, **wanted).metric(metric)

    def conflicts_of(
        self, sweep: str, n: int, access: str = "ld", **wanted: Any
    ) -> tuple[float, float]:
        """Bank conflicts, and wavefronts, for each shared load (`ld`) or store (`st`) of the one such variant."""
        row = self.only(sweep, n=n, **wanted)
        return self.conflicts(row, access), per_request(row, access)

    def bank_access(self, sweep: str, counted: str = "ld", **wanted: Any) -> str:
        """Wavefronts of a shared access by the bank model and by the profiler, and its cycles: cells of a table."""
        row = self.only(sweep, **wanted)
        model, cycles = (
            row.metric(name) for name in ("predicted_wavefronts", "cycles_per_access")
        )
        return f"{model:.3g}|{per_request(row, counted):.3g}|{cycles:.3g}"

    def code(
        self, fact: str, sweep: str, kernel: str | None = None, **wanted: Any
    ) -> Any:
        """A fact of machine code, such as registers or blocks_per_sm, of the variants with these parameters."""
        found = {row[fact] for row in self.data.compiled(sweep, kernel, **wanted).rows}
        if len(found) != 1:
            raise LadderError(
                f"{sweep}, {wanted}: {fact} has the values {sorted(found)}; accepted: one"
            )
        return found.pop()

    def launch(self, what: str, size: int | str, column: str) -> float:
        """A number of launches.csv."""
        return float(self.launches[what, str(size)][column])

    # Rungs of a ladder, by their numbers.

    def entry(self, sweep: str, number: str) -> Entry:
        """The rung of a ladder with a number, such as 1b."""
        entries = self.data.sweeps[sweep].entries
        rungs = [each for each in entries if each.rung.split(" ")[0] == number]
        if len(rungs) != 1:
            raise LadderError(
                f"{sweep}: {len(rungs)} rungs have the number {number}; accepted: one"
            )
        return rungs[0]

    def at(self, sweep: str, number: str, **size: int) -> Row:
        """The row of a rung, at the size that the ladder is about where no other one is given."""
        wanted = size or self.data.part(sweep).size
        return self.only(sweep, variant=self.entry(sweep, number).variant.id, **wanted)

    def over_rung(self, sweep: str, number: str, below: str = "", **size: int) -> Gain:
        """Speed of a rung over the rung `below`; where none is named, over the one that it changes."""
        if not below:
            changed = self.entry(sweep, number).baseline
            if changed is None:
                raise LadderError(f"{sweep}: rung {number} changes no other; name one")
            below = changed.rung.split(" ")[0]
        return self.data.over(
            self.at(sweep, number, **size), self.at(sweep, below, **size)
        )

    def won(self, sweep: str, number: str, below: str = "", **size: int) -> str:
        """15 % faster (11 to 18 %), of a rung over the one below; not said where it is not faster."""
        return self._outcome(FASTER, sweep, number, below, size)

    def tied(self, sweep: str, number: str, below: str = "", **size: int) -> str:
        """As fast (-1 to +1 %); not said where it is no tie."""
        return self._outcome(TIED, sweep, number, below, size)

    def lost(self, sweep: str, number: str, below: str = "", **size: int) -> str:
        """7 % slower (6 to 8 %); not said where it is not slower."""
        return self._outcome(SLOWER, sweep, number, below, size)

    def _outcome(
        self, verdict: str, sweep: str, number: str, below: str, size: Mapping[str, int]
    ) -> str:
        gain = self.over_rung(sweep, number, below, **size)
        said = words.speed(gain, f"rung {below}" if below else "")
        self.expect(
            gain.verdict == verdict, f"{sweep}, {number}: {verdict}, not {said}"
        )
        return said

    def count(self, name: str, row: Row) -> tuple[float, str]:
        """A counter and how it reads.

        `name`: a reason to wait, such as long_scoreboard, for cycles an instruction; a unit, such as tensor cores, for
        the share of time that it is busy; or the first words of a need, such as wavefronts, for its amount.
        """
        if STALL_FOR.format(name) in row.metrics:
            waited = self.waits(name, row)
            return waited, magnitude(waited)
        shares = self.busy(row)
        if name in shares:
            return shares[name], f"{words.percent(shares[name])} %"
        for need in needs(row, row.metrics, self.data.gpu):
            if need.words.startswith(name) and not math.isnan(need.amount):
                return need.amount, magnitude(need.amount, need.unit)
        raise Unmeasured(f"{row['variant']}: {name} was not counted")

    def counted(self, name: str, sweep: str, number: str, **size: int) -> str:
        """A counter of a rung as it reads."""
        return self.count(name, self.at(sweep, number, **size))[1]

    def moved(self, name: str, sweep: str, below: str, above: str) -> str:
        """0.36 to 0.40: a counter of two rungs, whichever way it goes."""
        return (
            f"{self.counted(name, sweep, below)} to {self.counted(name, sweep, above)}"
        )

    def fall(
        self, name: str, sweep: str, below: str | Row, above: str, **size: int
    ) -> str:
        """46.5 to 23.9: a counter of two rungs; not said where it does not fall by a twentieth."""
        return self._moved(name, sweep, (below, above), size, falls=True)

    def rise(
        self, name: str, sweep: str, below: str | Row, above: str, **size: int
    ) -> str:
        """59 % to 75 %: the same of a counter that rises."""
        return self._moved(name, sweep, (below, above), size, falls=False)

    def _moved(
        self,
        name: str,
        sweep: str,
        rungs: tuple[str | Row, str],
        size: Mapping[str, int],
        falls: bool,
    ) -> str:
        below, above = rungs
        after = self.at(sweep, above, **size)
        if isinstance(below, Row):
            before = below
        else:
            before = self.at(sweep, below, **size)
            # What is counted by a share of the time: of the time beside the other rung, as in its cause.
            gain = self.over_rung(sweep, above, below, **size)
            time = after["median_us"] * gain.value
            before = Row({**before, "median_us": time}, before.size, before.metrics)
        old, old_text = self.count(name, before)
        new, new_text = self.count(name, after)
        moved = new < old / MOVED if falls else new > old * MOVED
        said = f"{old_text} to {new_text}"
        way = "falls" if falls else "rises"
        self.expect(moved, f"{sweep}, {above}: {name} {way} from {said}")
        return said

    def why(self, sweep: str, number: str) -> str:
        """Waits at barriers fall from 11.0 to 0.468 cycles: why a rung gains, as its sweep's page says."""
        change = self._step(sweep, number).why.change
        if not change:
            raise LadderError(f"{sweep}: nothing accounts for the gain of {number}")
        return change.removesuffix(" an instruction")

    def _step(self, sweep: str, number: str) -> Step:
        variant = self.entry(sweep, number).variant.id
        taken = steps(self.data.part(sweep))
        return next(step for step in taken if step.entry.variant.id == variant)

    def _file(self, sweep: str, number: str) -> Kernel:
        """The file of a rung: one that spells it out alone, or else its kernel with parameters."""
        variant = self.entry(sweep, number).variant
        kernel = variant.kernel
        timed_beside = [] if kernel.name[0].isdigit() else FILES
        for files in timed_beside:
            for entry in self.data.sweeps[files].entries:
                if entry.baseline and entry.baseline.variant.id == variant.id:
                    kernel = entry.variant.kernel
        return kernel

    def file(self, sweep: str, number: str) -> str:
        kernel = self._file(sweep, number)
        return f"[{kernel.name}]({self._source(kernel)})"

    def files(self, sweep: str, number: str, below: str) -> str:
        return f"{self.file(sweep, number)} over {self.file(sweep, below)}"

    def line(self, sweep: str, number: str, unit: str, code: str, why: str = "") -> str:
        """A rung in the table of a page: its speed, in percent its share of the peak and how busy a unit is, and why.

        `why`: what is said in place of the cause that its sweep's page has.
        """
        row = self.at(sweep, number)
        shares = [row["peak_fraction"], self.busy(row)[unit]]
        if row["reference"].startswith("cublas"):
            shares.insert(0, row["speedup"])
        step = self._step(sweep, number)
        if step.below and not why:
            if step.gain.verdict == TIED:
                why = "as fast"
            elif step.why.change:
                why = relieved(self.why(sweep, number))
            else:
                why = "no counter explains it"
            if step.gain.verdict == SLOWER:
                why = f"slower; {why}"
        cells = [
            self.entry(sweep, number).rung,
            f"{row['tflops']:.3g}",
            *(words.percent(share) for share in shares),
            why,
            code,
        ]
        return f"|{'|'.join(cells)}|"

    def rung(self, sweep: str, number: str) -> str:
        """How a paragraph about a rung begins: its number and name, bold."""
        return f"**{self.entry(sweep, number).rung}**"

    def linked_rung(self, sweep: str, number: str) -> str:
        """The same of a rung that has a file of its own, with a link to it."""
        kernel = self._file(sweep, number)
        if not kernel.name[0].isdigit():
            raise LadderError(f"{sweep}: rung {number} has no file of its own")
        return f"[{self.rung(sweep, number)}]({self._source(kernel)})"

    # What a page shows.

    def kernel(self, name: str) -> str:
        path = next(self.project.kernels.rglob(f"{name}.cu"))
        return f"[{name}]({UP}{path.relative_to(ROOT).as_posix()})"

    def _source(self, kernel: Kernel) -> str:
        """From a page to a kernel's source."""
        return f"{UP}{kernel.source.relative_to(ROOT).as_posix()}"

    def sweep(self, name: str, said: str = "") -> str:
        """A link to the page of a sweep, with these words or its name."""
        if name not in self.data.sweeps:
            raise LadderError(f"the sweep {name!r} does not exist")
        return f"[{said or name}]({UP}results/published/nvidia-h200/sweeps/{name}.md)"

    def banks(self, offset: str, width: int = 4) -> str:
        """The picture of a read by a warp: a row a wavefront, a column a bank, in it the lane that the bank serves.

        `offset`: the bytes of a lane, an expression over `lane`; `width`: bytes a lane.
        """
        offsets = [whole(offset, {"lane": lane}) for lane in range(LANES)]
        parts, count = served(offsets, width), wavefronts(offsets, width)
        legend = "5+: lane 5 and others that want the same word"
        lines = [
            f"wavefronts {count}, conflict degree {count / len(parts):g}; {legend}"
        ]
        lines.append("bank " + "".join(f"{bank:3d}" for bank in range(BANKS)))
        for wanted in parts:
            for row in range(max(map(len, wanted.values()))):
                cells = []
                for bank in range(BANKS):
                    lanes_by_word = [*wanted.get(bank, {}).values()]
                    lanes = lanes_by_word[row] if row < len(lanes_by_word) else []
                    cells.append(
                        f"{lanes[0]}{'+' if lanes[1:] else ''}" if lanes else "."
                    )
                lines.append(
                    f"{len(lines) - 1:4d} " + "".join(f"{cell:>3s}" for cell in cells)
                )
        return "\n".join(lines)


def numbers() -> Numbers:
    """The published tables, with the sweeps of this checkout."""
    project = Project(ROOT)
    sweeps = load_sweeps(project.sweeps, load_kernels(project.kernels), None)
    return Numbers(RunData.read(project.published("nvidia-h200"), sweeps), project)


def rendered(found: Numbers, template: Path) -> str:
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "gain": TEMPLATES.filters["gain"],
        "change": words.change,
        "speed": words.speed,
        "span": words.span,
    }
    text = environment.from_string(template.read_text(encoding="utf-8")).render(
        **names(found), UP=UP
    )
    if found.unsaid:
        raise LadderError(
            f"{template.name}: the numbers no longer say: {'; '.join(found.unsaid)}"
        )
    return text


def main(only: Sequence[str]) -> None:
    found = numbers()
    for templates, pages in FOLDERS.items():
        for template in sorted(templates.glob("*.md.j2")):
            name = template.name.removesuffix(".md.j2")
            if not only or name in only:
                page = pages / f"{name}.md"
                page.write_text(rendered(found, template), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
