"""The pages of ladders: every rung is on its page, and all pages together can be read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import text_pages
from checkout import every_sweep
from conftest import ROOT
from ladder.model.sweep import Entry
from ladder.results.run_data import Row, Unmeasured
from ladder.results.verdicts import FASTER, SLOWER

PAGES = ROOT / "docs/ladders"
SWEEPS = {
    "tensor-cores": ["tensor_ladder_bf16", "hopper_ladder"],
    "fp32": ["fp32_rungs"],
    "attention": ["attention", "attention_64"],
    "softmax": ["softmax_fp32", "softmax_bf16"],
    "memory-bound": [
        "reduction",
        "transpose_fp32",
        "transpose_bf16",
        "gemv_fp32",
        "gemv_bf16",
    ],
}
MOST_WORDS = 6000
_CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def first_line(path: Path) -> str:
    return path.read_text().partition("\n")[0]


def read(page: str) -> str:
    return (PAGES / f"{page}.md").read_text()


def test_each_page_has_a_template_and_is_in_the_contents() -> None:
    templates = {path.name.partition(".")[0] for path in text_pages.LADDERS.iterdir()}
    assert templates == {*SWEEPS, "README"}
    assert {path.stem for path in PAGES.glob("*.md")} == templates
    assert all(f"({page}.md)" in read("README") for page in SWEEPS)


@pytest.mark.parametrize("page", SWEEPS)
def test_a_page_has_every_rung_of_its_ladders(page: str) -> None:
    text, sweeps = read(page), every_sweep()
    rungs = [entry.rung for name in SWEEPS[page] for entry in sweeps[name].entries]
    assert [rung for rung in rungs if f"**{rung}**" not in text] == []


def rungs_of_files() -> Iterator[tuple[str, Entry, bool]]:
    """Sweep and entry of each rung that has a file and changes another one; and whether it is the first of its file."""
    for name, sweep in every_sweep().items():
        if name in text_pages.FILES or all(it.kind != "ladder" for it in sweep.figures):
            continue
        seen = set[str]()
        for entry in sweep.entries:
            kernel = entry.variant.kernel.name
            if entry.baseline and kernel[0].isdigit():
                yield name, entry, kernel not in seen
            seen.add(kernel)


@pytest.mark.published
def test_a_rung_that_loses_says_so_in_the_first_line_of_its_file() -> None:
    """By more than 1 % in one dtype or more, at the size that its ladder is about, else at the first that it has.

    What says so wins not each time.
    """
    numbers = text_pages.numbers()
    lost, not_won = set[str](), set[str]()
    for sweep, entry, is_first in rungs_of_files():
        kernel = entry.variant.kernel.name
        number = entry.rung.split(" ")[0]
        try:
            try:
                gain = numbers.over_rung(sweep, number)
            except Unmeasured:
                gain = numbers.over_rung(sweep, number, **entry.sizes[0])
        except Unmeasured:
            not_won.add(kernel)
            continue
        if gain.verdict != FASTER:
            not_won.add(kernel)
        if is_first and gain.verdict == SLOWER and gain.value < 0.99:
            lost.add(kernel)
    files = (ROOT / "kernels").rglob("[0-9]*.cu")
    says = {path.stem for path in files if "does not pay" in first_line(path)}
    assert lost <= says <= not_won


class Recorded(text_pages.Numbers):
    """Keeps which causes a page gives to steps, and which counters of theirs it shows, by sweep and number."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.causes: dict[tuple[str, str], str] = {}
        self.shown: list[tuple[str, str, str]] = []

    def why(self, sweep: str, number: str) -> str:
        self.causes[sweep, number] = said = super().why(sweep, number)
        return said

    def moved(self, name: str, sweep: str, below: str, above: str) -> str:
        said = super().moved(name, sweep, below, above)
        self._keep(sweep, below, above, {}, said)
        return said

    def _moved(self, *given: Any, falls: bool) -> str:
        said = super()._moved(*given, falls=falls)
        _, sweep, rungs, size = given
        self._keep(sweep, *rungs, size, said)
        return said

    def _keep(
        self,
        sweep: str,
        below: str | Row,
        above: str,
        size: Mapping[str, int],
        said: str,
    ) -> None:
        changed = self.entry(sweep, above).baseline
        if changed and changed.rung.split(" ")[0] == below and not size:
            self.shown.append((sweep, above, said))

    def on_its_sweeps_page(self, sweep: str, number: str) -> str:
        """What the published page of a sweep says of a rung."""
        page = self.project.published("nvidia-h200").root / f"sweeps/{sweep}.md"
        rung = f"- **{self.entry(sweep, number).rung}**"
        return next(
            line for line in page.read_text().splitlines() if line.startswith(rung)
        )


@pytest.mark.published
@pytest.mark.parametrize("page", SWEEPS)
def test_a_step_has_the_cause_that_the_page_of_its_sweep_gives(
    page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other counters of the step are shown with that cause beside them alone, but where no counter is the cause."""
    monkeypatch.setattr(text_pages, "Numbers", Recorded)
    numbers = text_pages.numbers()
    assert isinstance(numbers, Recorded)
    text = text_pages.rendered(numbers, text_pages.LADDERS / f"{page}.md.j2")
    assert text == read(page), "run `python tools/text_pages.py`"
    assert numbers.causes
    for (sweep, number), cause in numbers.causes.items():
        assert f"; {cause}" in numbers.on_its_sweeps_page(sweep, number)
    paragraphs = re.split(r"\n\n|\n(?=\|)", text)
    for sweep, number, moved in numbers.shown:
        said = numbers.on_its_sweeps_page(sweep, number)
        before, _, after = moved.partition(" to ")
        ways = (f"from {moved}", f"{after} of the time instead of {before}")
        if re.search(f"; a tie|not explained|{'|'.join(map(re.escape, ways))}", said):
            continue
        cause = numbers.causes.get((sweep, number), "no cause")
        beside = [one for one in paragraphs if moved in one and cause in one]
        assert beside, f"{sweep}, {number}: {moved}, but {said}"


def test_all_pages_can_be_read_in_half_an_hour() -> None:
    words = 0
    for path in PAGES.glob("*.md"):
        text = _CODE.sub("", path.read_text())
        words += len(text.split())
    assert words < MOST_WORDS
