"""The chapter on attention, of records that are made up: its answer, and the claims that its rungs decide."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from checkout import PUBLISHED, every_sweep, published_of
from factory import Fields
from ladder.claims.attention import (
    masked_tiles_are_skipped,
    overlap_in_a_warpgroup,
    scores_on_chip,
    warp_specialisation_of_attention,
)
from ladder.claims.ledger import CLAIMS, decided
from ladder.claims.primitives import HOLDS, REFUTED, Parts
from ladder.model.sweep import Entry, Sweep
from ladder.problems.attention import PROBLEM
from ladder.report.chapters import title_of
from ladder.report.document import render
from ladder.report.ladder_steps import path_to_fastest
from ladder.results.run_data import RunData
from rendering import answer_of, cells, section, with_frames
from test_chapters import ladder_rows, timing, with_rows

PEAK = 989.0
RATES = {
    "1": 90,
    "2": 300,
    "3": 350,
    "4": 400,
    "5": 540,
    "6": 625,
    "6b": 320,
    "7": 560,
    "7b": 635,
    "7c": 575,
    "8": 640,
    "8b": 580,
    "9": 650,
    "9b": 590,
}
"""TFLOP/s of the rungs, at any length."""


def rung(
    sweep: Sweep, entry: Entry, size: Mapping[str, int], against: Entry | None
) -> Fields:
    """A row of a rung, timed against the sweep's reference or against the rung that it changes."""
    usual = "6b" if entry.variant.params["causal"] else "6"
    other = RATES[against.rung.split()[0] if against else usual]
    rate = RATES[entry.rung.split()[0]]
    return at_rate(sweep, entry, size, rate, against or "6_overlap", other)


def at_rate(
    sweep: Sweep,
    entry: Entry,
    size: Mapping[str, int],
    rate: float,
    against: Entry | str,
    other: float,
) -> Fields:
    variant = entry.variant
    work = PROBLEM.work(size, variant.dtype, variant.params).operations / 1e6
    row = timing(sweep, entry, size, work / rate, (against, work / other))
    return row | {"peak_fraction": rate / PEAK, "memory_fraction": 0.1}


CHAPTERS = ("Memory-bound kernels", "Attention")


@pytest.fixture(scope="module")
def data() -> RunData:
    """What is published of two chapters, with made-up rows of the ladder of attention alone."""
    known = published_of(
        *(name for name, one in every_sweep().items() if title_of(one) in CHAPTERS)
    )
    rows = ladder_rows(known.sweeps["attention"], rung)
    return with_rows(known, rows, "attention")


def of_peak(rate: float) -> str:
    return f"{rate} TFLOP/s ({100 * rate / PEAK:.0f} % of peak)"


FILE = "[9_no_maxima](kernels/attention/9_no_maxima.cu)"


def test_the_answer_names_the_fastest_rungs_and_their_rates(data: RunData) -> None:
    answer = answer_of(data, "attention_speed")
    at = data.parts["attention"].size["sequence"]
    assert (
        answer.headline
        == f"{FILE} (no maxima) reaches {of_peak(650)} in bf16 over {at} keys of 128 elements."
    )
    assert answer.also == f"Causal: {of_peak(590)}."
    assert answer.exceptions == "Libraries were not timed beside it."
    lengths = sorted({size["sequence"] for size in data.sweeps["attention"].sizes})
    table = cells(answer.table)
    assert [(line["mask"], line["keys"]) for line in table] == [
        (mask, str(length)) for mask in ("none", "causal") for length in lengths
    ]
    assert {line["TFLOP/s"] for line in table} == {"650", "590"}
    assert {line["fastest"] for line in table} == {
        f"{FILE} (no maxima)",
        f"{FILE} (causal, no maxima)",
    }
    assert {line["library"] for line in table} == {""}


BESIDE, CAUSAL, IN_TRITON = 600, 700, 800
"""TFLOP/s beside libraries; what is in Triton has an answer of its own."""


def beside_libraries(sweep: Sweep, library: float) -> list[Fields]:
    """Rows of a sweep against libraries, the faster of which has this many TFLOP/s, half as many at 16384 keys."""
    rows = []
    for entry, size in sweep.cells:
        rate = CAUSAL if entry.variant.params["causal"] else BESIDE
        rate = IN_TRITON if entry.variant.kernel.triton else rate
        other = library / (2 if size["sequence"] == 16384 else 1)
        rows.append(at_rate(sweep, entry, size, rate, "cuDNN", other))
    return rows


@pytest.mark.parametrize(
    "names",
    [["attention_libraries"], ["attention_libraries", "attention_libraries_64"]],
)
def test_beside_libraries_it_says_how_much_faster_they_are_at_which_lengths(
    data: RunData, names: list[str]
) -> None:
    rows = [row for name in names for row in beside_libraries(data.sweeps[name], 650)]
    answer = answer_of(with_rows(data, rows), "attention_speed")
    said = (
        f"{of_peak(600)} in bf16 over 8192 keys of 128 elements, 8 % slower than cuDNN."
    )
    assert answer.headline == f"{FILE} (no maxima) reaches {said}", (
        "without what is in Triton"
    )
    range_ = "-8 to +85 %; causal +8 % to 2.2 times."
    at_length = f"Causal: {of_peak(700)}, 8 % faster than cuDNN."
    assert answer.also == at_length
    assert answer.exceptions.endswith(f"Over all lengths at d = 128: {range_}")
    table = cells(answer.table)
    depths = {line["elements in a row"] for line in table}
    assert depths == ({"128", "64"} if len(names) == 2 else {"128"})
    assert {line["library"] for line in table} == {"cuDNN"}
    names_of_rungs = {
        line["fastest"] for line in cells(answer_of(data, "attention_speed").table)
    }
    fastest = {line["fastest"] for line in table if line["elements in a row"] == "128"}
    assert fastest == names_of_rungs, "as its ladder has it"


def test_its_path_is_that_of_attention_without_a_mask_though_causal_takes_half_the_time(
    data: RunData,
) -> None:
    assert [
        entry.rung.split()[0]
        for entry in path_to_fastest(data.parts["attention"]).values()
    ] == [
        *"123456",
        "7b",
        "8",
        "9",
    ]


def test_its_chapter_has_its_ladder_and_its_answer(data: RunData) -> None:
    _, report = next(render(PUBLISHED, data, {}))
    chapter = section(report, "Attention")
    assert (
        "at sequence\u00a0=\u00a08192, heads\u00a0=\u00a032, d\u00a0=\u00a0128, bf16."
        in chapter
    )
    assert (
        chapter.count(
            "|rung|it adds|predicted|measured|it brings|\n|---|---|--:|--:|--:|\n|1 scores"
        )
        == 1
    )
    assert "- How fast is attention? **[9_no_maxima](" in chapter
    assert report.count("How fast is attention?") == 1
    memory = section(report, "Memory-bound kernels")
    assert memory.count("|rung|it adds|") == 1, (
        "of the other problems the sweeps' pages have them"
    )
    assert "[Its rungs](sweeps/softmax_bf16.md)" in memory


@pytest.mark.parametrize(
    "claim",
    [
        scores_on_chip,  # 300 / 90
        masked_tiles_are_skipped,  # 560 / 320
        warp_specialisation_of_attention,  # 350 / 300
        overlap_in_a_warpgroup,  # 625 / 540
    ],
)
def test_what_texts_say_of_attention_is_decided_from_pairs_of_rungs(
    data: RunData, claim: Callable[[RunData], Parts]
) -> None:
    (one,) = (each for each in CLAIMS if each.decide is claim)

    def verdicts(of: RunData) -> list[str]:
        return [part.verdict for part in decided(one, of)[0]]

    assert {*verdicts(data)} == {HOLDS}
    timings = data.frames["timings"]
    own = timings["sweep"] == "attention"
    ends = ["speedup", "speedup_low", "speedup_high"]
    slower = timings.copy()
    slower.loc[own & timings["baseline"].notna(), ends] *= 0.8
    assert REFUTED in verdicts(with_frames(data, timings=slower))
