"""Machine code of sm_90: decoding held to nvdisasm, the order of FFMAs, and the proof that a program stays the same."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from conftest import ROOT
from cuda.pathfinder import find_nvidia_binary_utility
from hypothesis import given, settings
from hypothesis import strategies as st
from ladder import sass
from ladder.catalog import load_kernel
from ladder.compiler import compile_source, compile_variant
from ladder.errors import LadderError
from ladder.ffma_order import sort_ffmas, sorted_words
from ladder.passes import PASSES
from ladder.same_program import FFMA_LATENCY, mistakes, same_program

STAGED = ROOT / "kernels/gemm/simt/gemm_staged.yaml"
LARGE = {
    "bk": 8,
    "loader": "async",
    "stages": 5,
    "buffers": 2,
    "bn": 256,
    "tn": 16,
    "min_blocks": 1,
    "walk": "columns",
    "vector": 0,
}
COPY = 'extern "C" __global__ void copy(const float* in, float* out) { out[threadIdx.x] = in[threadIdx.x]; }'

_LINE = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;\s+/\* 0x([0-9a-f]{16}) \*/")
_SECOND = re.compile(r"^\s*/\* 0x([0-9a-f]{16}) \*/", re.MULTILINE)


@pytest.fixture(scope="module")
def large() -> bytes:
    """The widest rung of the FP32 ladder, as the compiler orders it."""
    cubin, facts = compile_variant(
        load_kernel(STAGED).variant(LARGE, "fp32"), ROOT / "kernels/include", "sm_90a"
    )
    assert facts["status"] == "ok", facts["reason"]
    return cubin


@pytest.fixture(scope="module")
def words(large: bytes) -> tuple[int, ...]:
    (code,) = sass.machine_code(large)
    return code.words


@pytest.fixture(scope="module")
def ordered(words: tuple[int, ...]) -> list[int]:
    return sorted_words(words)


@pytest.fixture(scope="module")
def listing(
    large: bytes, tmp_path_factory: pytest.TempPathFactory
) -> tuple[list[tuple[str, int]], dict[str, int]]:
    """Text and word of every instruction, and the index of every label, by nvdisasm."""
    path = tmp_path_factory.mktemp("sass") / "kernel.cubin"
    path.write_bytes(large)
    tool = find_nvidia_binary_utility("nvdisasm")
    assert tool is not None, "a dependency of this project"
    text = subprocess.run(
        [tool, "-c", "-ndf", "-hex", str(path)], capture_output=True, text=True, check=True
    ).stdout
    found, places = [], {}
    for line in text.splitlines():
        if label := re.match(r"\s*(\.L_x_\d+):", line):
            places[label[1]] = len(found)
        elif first := _LINE.search(line):
            found.append((first[2], int(first[3], 16)))
        elif (second := _SECOND.match(line)) and found:
            name, low = found.pop()
            found.append((name, low | int(second[1], 16) << 64))
    return found, places


def _mnemonic(text: str) -> str:
    return re.sub(r"^@!?U?P\w+\s+", "", text).split()[0].split(".")[0]


def test_words_registers_and_reuse_are_those_that_the_disassembler_prints(
    words: tuple[int, ...], listing: tuple[list[tuple[str, int]], dict[str, int]]
) -> None:
    lines, _ = listing
    assert [word for _, word in lines] == list(words)
    ffmas = 0
    for text, word in lines:
        name = _mnemonic(text)
        assert sass.is_ffma(word) == (name == "FFMA"), text
        known = {**{key: value[0] for key, value in sass.PASSABLE.items()}, **sass.STAYING}
        if sass.known(word):
            assert known[sass.family(word)] == name, text
            written, read = sass.accesses(word)
            named = {int(number) for number in re.findall(r"\bR(\d+)", text)}
            assert named <= written | read, f"{text}: a register it names is not among its accesses"
        if match := re.fullmatch(r"FFMA (R\w+), (R\w+)(\.reuse)?, (R\w+)(\.reuse)?, (R\w+)(\.reuse)?", text):
            d, a, kept_a, b, kept_b, c, kept_c = match.groups()
            numbers = tuple(sass.RZ if name == "RZ" else int(name[1:]) for name in (d, a, b, c))
            assert sass.registers(word) == numbers
            assert sass.reuse(word) == bool(kept_a) + 2 * bool(kept_b) + 4 * bool(kept_c)
            assert sass.is_register_ffma(word)
            ffmas += 1
    assert ffmas > 1000


def test_branches_lead_where_the_disassembler_says(
    words: tuple[int, ...], listing: tuple[list[tuple[str, int]], dict[str, int]]
) -> None:
    lines, labels = listing
    checked = 0
    for index, (text, word) in enumerate(lines):
        if _mnemonic(text) in ("BRA", "BSSY"):
            label = re.search(r"`\((\.L_x_\d+)\)", text)
            assert label is not None
            assert sass.branch_target(index, word) == labels[label[1]], text
            checked += 1
        else:
            assert sass.branch_target(index, word) is None
    assert checked > 100
    body = sass.hottest_loop(words)
    assert body is not None
    assert sum(map(sass.is_ffma, words[body.start : body.stop])) == 1024


def _ffma(d: int, a: int, b: int, c: int, *, reuse: int = 0, wait: int = 0, stall: int = 1) -> int:
    """An FFMA as ptxas would write it: no predicate, no scoreboard, round to nearest."""
    control = stall | 1 << 4 | 7 << 5 | 7 << 8 | wait << 11 | reuse << 17
    return 0x7223 | d << 16 | a << 24 | b << 32 | c << 64 | control << 105


def _branch(offset: int) -> int:
    """BRA over `offset` instructions behind itself."""
    steps = offset * 4 & (1 << 56) - 1
    control = 5 | 1 << 4 | 7 << 5 | 7 << 8
    return 0x7947 | (steps & 0xFF) << 16 | steps >> 8 << 34 | 7 << 87 | control << 105


def _other(d: int = sass.RZ, a: int = sass.RZ, *, scoreboard: int = 7) -> int:
    """LDS.128 of four registers from `d` on, from the address in `a`."""
    control = 1 | 1 << 4 | scoreboard << 5 | 7 << 8
    return 0x7984 | d << 16 | a << 24 | control << 105


def _loop(*body: int) -> tuple[int, ...]:
    return (*body, _branch(-len(body) - 1), 0x794D)


def test_an_ffma_costs_by_banks_and_by_what_is_kept() -> None:
    assert sass.issue_cycles(_ffma(8, 0, 1, 8), sass.NOTHING_KEPT) == 2, "two even registers"
    assert sass.issue_cycles(_ffma(8, 0, 2, 8), sass.NOTHING_KEPT) == 3, "three even registers"
    assert sass.issue_cycles(_ffma(9, 0, 0, 9), sass.NOTHING_KEPT) == 1, "one register is read once"
    assert sass.issue_cycles(_ffma(9, 0, 1, 9), (sass.RZ, 1, sass.RZ)) == 1, "one of each bank is left"
    assert sass.issue_cycles(_ffma(8, 0, 1, 8), (sass.RZ, 1, sass.RZ)) == 2
    assert sass.issue_cycles(_ffma(8, 0, 1, 8), (1, sass.RZ, sass.RZ)) == 2, "kept for another operand"
    first, second = _ffma(9, 0, 1, 9, reuse=2), _ffma(11, 2, 1, 11)
    assert sass.loop_cycles([first, second]) == 2 + 1
    assert sass.loop_cycles([first, _other(), second]) == 2 + 1 + 2, "another instruction empties the cache"
    assert sass.loop_cycles([sass.with_reuse(first, 0), second]) == 2 + 2


def test_sorting_lowers_the_cycles_of_the_widest_rung(large: bytes, ordered: list[int]) -> None:
    before = sass.ffma_share(large)
    after_cubin = sort_ffmas(large)
    after = sass.ffma_share(after_cubin)
    assert before is not None
    assert after is not None
    assert after > before + 0.03
    assert len(after_cubin) == len(large)
    assert list(sass.machine_code(after_cubin)[0].words) == ordered, "the same order every time"
    assert (sass.ffma_share(sort_ffmas(after_cubin)) or 0) >= after


def _swapped(words: Sequence[int], first: int, second: int) -> list[int]:
    """Two FFMAs in each other's place, control fields left where they are, nothing kept."""
    result = list(words)
    for to, source in ((first, second), (second, first)):
        control = words[to] & sass.CONTROL_BITS
        result[to] = sass.with_reuse(words[source] & ~sass.CONTROL_BITS | control, 0)
    return result


def _pairs(words: Sequence[int]) -> list[tuple[int, int]]:
    body = sass.hottest_loop(words)
    assert body is not None
    return [
        (first, second)
        for first in body
        if sass.is_register_ffma(words[first])
        for second in range(first + 1, first + 12)
        if all(sass.is_register_ffma(word) for word in words[first : second + 1])
    ]


def test_a_dependent_pair_in_the_other_order_is_found(ordered: list[int]) -> None:
    dependent = [pair for pair in _pairs(ordered) if sass.depend(ordered[pair[0]], ordered[pair[1]])]
    assert dependent
    for first, second in dependent:
        assert mistakes(ordered, _swapped(ordered, first, second)), (first, second)


def test_an_ffma_ahead_of_its_wait_is_found(ordered: list[int]) -> None:
    waiting = [
        (first, second)
        for first, second in _pairs(ordered)
        if sass.waits(ordered[second]) and not sass.depend(ordered[first], ordered[second])
    ]
    assert waiting
    found = [mistakes(ordered, _swapped(ordered, first, second)) for first, second in waiting]
    assert all(found)
    assert any("ahead of a wait" in reason for reasons in found for _, reason in reasons)


def test_other_planted_mistakes_are_found(ordered: list[int]) -> None:
    index = next(
        first
        for first, second in _pairs(ordered)
        if second == first + 1
        and sass.operands(ordered[first])[0] != sass.operands(ordered[second])[0]
        and not sass.reuse(ordered[first])
    )
    changes = {
        "kept (.reuse)": sass.with_reuse(ordered[index], 1),
        "not the same ones": ordered[index] ^ 1 << 16,
        "moved from their place": ordered[index] ^ 1 << 109,
        "no FFMA of registers": 0x7918 | ordered[index] & sass.CONTROL_BITS,
    }
    for reason, word in changes.items():
        wrong = [*ordered[:index], word, *ordered[index + 1 :]]
        assert any(reason in text for _, text in mistakes(ordered, wrong)), reason
    assert mistakes(ordered, ordered[:-1])


def test_results_are_not_read_earlier_than_they_are_there_also_around_the_loop() -> None:
    spread = [_ffma(20 + 2 * n, 1 + 2 * n, 3, 20 + 2 * n) for n in range(12)]
    first, last = _ffma(60, 5, 7, 61), _ffma(61, 5, 7, 61)
    far = _loop(last, *spread[:8], first, *spread[8:])
    near = _loop(last, *spread[:3], first, *spread[3:])
    assert any("4 cycles away instead of 6" in text for _, text in mistakes(far, near))
    assert not mistakes(near, far)
    # Around the loop: the branch takes five cycles, so that one FFMA behind `last` makes the distance long enough.
    behind = _loop(*spread[:1], first, *spread[1:], last)
    turned = _loop(first, *spread, last)
    assert not mistakes(behind, turned), "six cycles"
    quick = {_branch(-15): _branch(-15) & ~(0xF << 105) | 2 << 105}
    spaced, quick_turned = (tuple(quick.get(word, word) for word in loop) for loop in (behind, turned))
    assert any("3 cycles away instead of 4" in text for _, text in mistakes(spaced, quick_turned))


def test_bytes_outside_of_instructions_and_other_cubins_are_refused(large: bytes) -> None:
    same_program(large, large)
    (code,) = sass.machine_code(large)
    end = code.offset + 16 * len(code.words)
    with pytest.raises(LadderError, match="outside of their instructions"):
        same_program(large, large[:end] + bytes([large[end] ^ 1]) + large[end + 1 :])
    with pytest.raises(LadderError, match="in size"):
        same_program(large, large + b"\0")


def test_another_architecture_is_refused_and_what_is_no_cubin() -> None:
    older, _, _ = compile_source(COPY, "copy.cu", ["copy"], [], "sm_80")
    assert sass.arch_number(older) == 80
    assert sass.ffma_share(older) is None
    with pytest.raises(LadderError, match="machine code of sm_80: only sm_90 is known"):
        sort_ffmas(older)
    with pytest.raises(LadderError, match="not a cubin"):
        sort_ffmas(b"\x7fELF")


def test_a_kernel_without_ffmas_stays_as_it_is() -> None:
    cubin, _, _ = compile_source(COPY, "copy.cu", ["copy"], [], "sm_90a")
    assert sort_ffmas(cubin) == cubin
    assert sass.ffma_share(cubin) is None


REGISTERS = st.integers(0, 23)
FFMAS = st.builds(
    _ffma,
    REGISTERS,
    REGISTERS,
    REGISTERS,
    REGISTERS,
    wait=st.sampled_from([0, 0, 0, 0, 1]),
    stall=st.sampled_from([1, 1, 1, 6]),
)
# Sums in 12 registers from factors in 12 others: an order with reuse exists, as in an outer product.
PRODUCTS = st.builds(
    lambda a, b, c, wait: _ffma(c, a, b, c, wait=wait),
    st.integers(24, 29), st.integers(30, 35), st.integers(0, 23), st.sampled_from([0] * 12 + [2]),
)  # fmt: skip
OTHERS = st.builds(_other, st.integers(0, 35), st.just(sass.RZ), scoreboard=st.sampled_from([0, 1, 7]))


def _results(words: Sequence[int], passes: int = 2) -> dict[int, object]:
    """Registers after some passes of a loop, each as the expression that it holds; unequal work gives unequal ones."""
    held: dict[int, object] = {register: ("initial", register) for register in range(64)}
    loads = 0
    for _ in range(passes):
        for word in words:
            d, a, b, c = sass.registers(word)
            if sass.is_register_ffma(word):
                held[d] = hash((held[a], held[b], held[c]))
            elif sass.family(word) == sass.family(_other()):
                for register in range(d, min(d + 4, 64)):
                    held[register] = ("loaded", loads, register - d)
                loads += 1
    return held


def _shortest_wait(words: Sequence[int]) -> dict[int, int]:
    """Distance in cycles from each FFMA to the first instruction that reads its result, by place, within one pass."""
    found = {}
    for index, word in enumerate(words):
        if sass.is_register_ffma(word):
            cycles = 0
            for other in range(index + 1, len(words)):
                cycles += sass.stall(words[other - 1])
                if sass.is_register_ffma(words[other]) and sass.registers(word)[0] in sass.operands(
                    words[other]
                ):
                    found[index] = cycles
                    break
                if sass.registers(word)[0] in sass.accesses(words[other])[0]:
                    break
    return found


@settings(max_examples=150)
@given(st.lists(st.one_of(PRODUCTS, PRODUCTS, PRODUCTS, FFMAS, OTHERS), min_size=4, max_size=48))
def test_any_loop_computes_the_same_after_sorting_and_costs_no_more(body: list[int]) -> None:
    before = _loop(*body)
    after = sorted_words(before)
    assert _results(after) == _results(before)
    assert sass.loop_cycles(after) <= sass.loop_cycles(before)
    assert not mistakes(before, after)
    nearest = min(_shortest_wait(before).values(), default=FFMA_LATENCY)
    assert all(cycles >= min(FFMA_LATENCY, nearest) for cycles in _shortest_wait(after).values())
    for old, new in zip(before, after, strict=True):
        assert (old ^ new) & sass.FIXED_CONTROL_BITS == 0


def test_an_outer_product_is_sorted_to_one_cycle_each() -> None:
    """4 x 4 sums whose parity lets each row be entered from the last: only the first reads three registers."""
    sums = {(row, column): 40 + 8 * row + 2 * column + 1 - row % 2 for row in range(4) for column in range(4)}
    products = [_ffma(c, row, 20 + 2 * column, c) for (row, column), c in sums.items()]
    shuffled = [products[5 * n % 16] for n in range(16)]
    before = _loop(*shuffled)
    after = sorted_words(before)
    assert sass.loop_cycles(after[:16]) < sass.loop_cycles(before[:16]) - 8
    assert sorted(word & ~sass.CONTROL_BITS for word in after) == sorted(
        word & ~sass.CONTROL_BITS for word in before
    )


def test_a_kernel_file_asks_for_passes_by_name_and_condition(tmp_path: Path) -> None:
    kernel = load_kernel(STAGED)
    assert kernel.variant({}, "fp32").passes == ()
    assert kernel.variant({"ffma_order": "banks"}, "fp32").passes == ("sort_ffmas",)
    assert set(PASSES) == {"sort_ffmas"}
    text = STAGED.read_text(encoding="utf-8")
    (tmp_path / "gemm_staged.cu").touch()
    path = tmp_path / "gemm_staged.yaml"
    path.write_text(text.replace("name: sort_ffmas", "name: sort_ffma"), encoding="utf-8")
    with pytest.raises(
        LadderError, match=r"gemm_staged.yaml: passes\[0\].name: 'sort_ffma' .*did you mean 'sort_ffmas'"
    ):
        load_kernel(path)
    path.write_text(text.replace("ffma_order == 'banks'", "ffma_ordr == 'banks'"), encoding="utf-8")
    with pytest.raises(LadderError, match=r"gemm_staged.yaml: passes: .*ffma_ordr"):
        load_kernel(path)


def test_a_pass_is_in_the_facts_and_refuses_what_it_does_not_know(large: bytes) -> None:
    variant = load_kernel(STAGED).variant(LARGE | {"ffma_order": "banks"}, "fp32")
    cubin, facts = compile_variant(variant, ROOT / "kernels/include", "sm_90a")
    assert facts["status"] == "ok", facts["reason"]
    assert cubin == sort_ffmas(large)
    assert facts["ffma_share"] == sass.ffma_share(cubin)
    small = {"bm": 32, "bn": 64, "tm": 4, "tn": 4, "bk": 32, "ffma_order": "banks"}
    variant = load_kernel(STAGED).variant(small, "fp32")
    cubin, facts = compile_variant(variant, ROOT / "kernels/include", "sm_80")
    assert (cubin, facts["status"]) == (b"", "compile_error")
    assert "only sm_90 is known" in facts["reason"]
