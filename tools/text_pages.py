"""The pages of docs/texts: what each of the five texts says, its kernel here, what an H200 reads, the verdict and why.

`PYTHONPATH=workflow python tools/text_pages.py` writes docs/texts/*.md from the templates tools/texts/*.md.j2, and the
figures beside them. Numbers and verdicts come from the published tables; a sentence that concludes from numbers is
wrapped in `expect`; where they no longer say so, no page is written.
"""

import csv
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
from ladder.build.banks import BANKS, LANES, served, wavefronts
from ladder.catalogue.kernels import Catalog
from ladder.catalogue.sweeps import load_sweeps
from ladder.claims.counters import per_request
from ladder.claims.ledger import overall
from ladder.claims.primitives import REFUTED
from ladder.model.errors import LadderError
from ladder.model.expressions import whole
from ladder.model.folders import Project
from ladder.report import words
from ladder.report.lookups import Lookups, names
from ladder.results.run_data import RunData
from ladder.results.templates import TEMPLATES
from ladder.results.verdicts import Gain

ROOT = Path(__file__).resolve().parents[1]
PAGES, TEXTS = ROOT / "docs/texts", Path(__file__).with_name("texts")
UP = "../../"
"""From a page to the root of the checkout."""


class Numbers(Lookups):
    """What a page looks up beside what answers do."""

    def __init__(self, data: RunData, project: Project) -> None:
        super().__init__(data)
        self.project = project
        self.whole = overall(data.frames["claims"])
        launches = (PAGES / "launches.csv").open(encoding="utf-8", newline="")
        self.launches = {
            (row["what"], row["size"]): row for row in csv.DictReader(launches)
        }

    # Claims.

    def verdict(self, claim: str) -> str:
        """The verdict of a claim in bold, with a link to all its numbers."""
        said = self.whole[claim].replace(REFUTED, "does not hold here")
        return f"[**{said}**]({UP}results/published/nvidia-h200/evidence.md#{claim})"

    # Times.

    def tflops(self, sweep: str, rung: Any, n: int = 4096, **wanted: Any) -> str:
        return f"{self.row(sweep, rung, n, **wanted)['tflops']:.3g}"

    def gain(self, sweep: str, rung: Any, below: Any, n: int = 4096) -> Gain:
        """Speed of a rung over another one at a size, of pairs where they were launched in turn."""
        return self.data.over(self.row(sweep, rung, n), self.row(sweep, below, n))

    def shown(self, gain: Gain) -> str:
        """Such as 1.23 (1.21 to 1.25): a speed, and the range that another GPU of the model should show."""
        ends = gain.predicted if gain.predicted.known else gain.measured
        return f"{gain.value:.2f} ({ends.low:.2f} to {ends.high:.2f})"

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

    # What a page shows.

    def kernel(self, name: str) -> str:
        """A link to a kernel's source."""
        path = next(self.project.kernels.rglob(f"{name}.cu"))
        return f"[{name}]({UP}{path.relative_to(ROOT).as_posix()})"

    def sweep(self, name: str) -> str:
        """A link to the page of a sweep."""
        if name not in self.data.sweeps:
            raise LadderError(f"the sweep {name!r} does not exist")
        return f"[{name}]({UP}results/published/nvidia-h200/sweeps/{name}.md)"

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
    sweeps = load_sweeps(project.sweeps, Catalog(project.kernels), None)
    return Numbers(RunData.read(project.published("nvidia-h200"), sweeps), project)


def rendered(found: Numbers, template: Path) -> str:
    """The text of a page."""
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"gain": TEMPLATES.filters["gain"], "change": words.change}
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
    for template in sorted(TEXTS.glob("*.md.j2")):
        name = template.name.removesuffix(".md.j2")
        if not only or name in only:
            (PAGES / f"{name}.md").write_text(
                rendered(found, template), encoding="utf-8"
            )


if __name__ == "__main__":
    main(sys.argv[1:])
