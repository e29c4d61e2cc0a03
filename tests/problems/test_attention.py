"""The problem attention, without a GPU: which outputs its bound accepts, and what its check works out."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
from covering import all_pairs
from emulator.attention_rule import errors_over_bound, given, logits, rms_of_errors
from emulator.formats import e4m3
from emulator.hopper_ptx import truncated_sum
from emulator.inputs import value
from emulator.ptx import Array
from emulator.tensor_ptx import to_bits
from ladder.gpu.device import CheckResultSlot, _mixed
from ladder.model.problem import C_TYPES, INPUTS
from ladder.problems.attention import PROBLEM, output_dtype
from ladder.problems.attention.bounds import allowance, promotion_factor, rms_bound
from ladder.problems.attention.instance import AttentionInstance
from problems.check_kernels import KEY, SECRET, EmulatedHarness

SINGLE = np.float32
GROUP = 4  # rows that the check takes together
Inputs = tuple[Array, Array, Array]


def rounded(x: Array, dtype: str) -> Array:
    """Bits of fp32 numbers in a narrow type."""
    if dtype == "fp8":
        return e4m3(x.astype(SINGLE))
    return to_bits(x.astype(SINGLE), dtype)


def narrow(x: Array, dtype: str) -> Array:
    return value(rounded(x, dtype), dtype).astype(SINGLE)


def as_output(x: Array, dtype: str) -> Array:
    """Bits of an output."""
    return rounded(x, output_dtype(dtype))


def as_weights(x: Array, dtype: str) -> Array:
    """Exponentials up to 1 as the weights that are multiplied: those of fp8 are scaled by 2^8."""
    return (
        narrow(x * SINGLE(256), dtype) / SINGLE(256)
        if dtype == "fp8"
        else narrow(x, dtype)
    )


def exponential(x: Array) -> Array:
    """In fp32 as ex2.approx: off by 2^-22, but of 0."""
    off = np.where(x == 0, 1.0, 1 + 2.0**-22)
    return np.asarray(np.exp2(x.astype(np.float64)) * off).astype(SINGLE)


def numbers(inputs: Inputs, dtype: str) -> list[Array]:
    """Q, K and V in fp64."""
    return [value(bits, dtype) for bits in inputs]


def cut(x: Array) -> Array:
    """Of fp32, as tensor cores add: a bit less, and towards zero."""
    return (x.view(np.uint32) & np.uint32(0xFFFFFFFE)).view(SINGLE)


def product(left: Array, right: Array, dtype: str, total: Array | None = None) -> Array:
    """Of fp32 matrices, as tensor cores add it to a total: 16 terms at a time, or 32 of fp8 in 14 bits."""
    if total is None:
        total = np.zeros((*left.shape[:2], right.shape[2]), SINGLE)
    together = 32 if dtype == "fp8" else 16
    for at in range(0, left.shape[2], together):
        rows, columns = left[:, :, at : at + together], right[:, at : at + together]
        if dtype == "fp8":
            # fp32 holds products of e4m3, and sums of some in units of 14 bits.
            by_depth = np.moveaxis(rows, 2, 0)[..., None]
            terms = by_depth * np.moveaxis(columns, 1, 0)[:, :, None]
            total = truncated_sum(np.concatenate([total[None], terms]), 14)
        else:
            exact_sum = total + rows.astype(np.float64) @ columns.astype(np.float64)
            total = cut(exact_sum.astype(SINGLE))
    return total


def online(
    inputs: Inputs,
    dtype: str,
    causal: int = 0,
    tile: int = 64,
    weights: Callable[[Array], Array] | None = None,
    total: Callable[[Array], Array] = lambda x: x,
    promoted: int = 0,
) -> Array:
    """Bits of the output of a fused kernel: tiles of keys, a maximum and a sum that are rescaled.

    `weights` and `total` are what else it does with these. Tensor cores sum so many keys at a time, or a tile.
    """
    q, k, v = (one.astype(SINGLE) for one in numbers(inputs, dtype))
    rows, keys, scale = (
        q.shape[1],
        k.shape[1],
        SINGLE(1.4426950408889634 / math.sqrt(q.shape[2])),
    )
    made, top = np.zeros(q.shape, SINGLE), np.full((*q.shape[:2], 1), -np.inf, SINGLE)
    part, sums = np.zeros_like(made), np.zeros_like(top)
    for begin in range(0, keys, tile):
        s = product(q, np.swapaxes(k[:, begin : begin + tile], 1, 2), dtype)
        unseen = np.arange(begin, begin + s.shape[2])[None] > np.arange(rows)[:, None]
        s = np.where(unseen & bool(causal), SINGLE(-np.inf), s)
        larger = np.maximum(top, s.max(axis=2, keepdims=True))
        p = exponential(s * scale - larger * scale)
        again = exponential((top - larger) * scale)
        sums = total(sums * again + p.sum(axis=2, keepdims=True, dtype=SINGLE))
        p = (weights or (lambda x: as_weights(x, dtype)))(p)
        part = product(p, v[:, begin : begin + tile], dtype, part * again)
        made, top = made * again, larger
        if (begin + tile) % (promoted or tile) == 0:
            made, part = made + part, np.zeros_like(part)
    return as_output((made + part) / sums, dtype)


def largest(made: Array, inputs: Inputs, dtype: str, causal: int, kind: str) -> float:
    return float(errors_over_bound(made, inputs, dtype, causal, kind).max())


@pytest.mark.parametrize(
    ("kind", "dtype", "causal"), all_pairs(PROBLEM.inputs, PROBLEM.dtypes, (0, 1))
)
def test_a_fused_kernel_lies_within_the_bound(
    kind: str, dtype: str, causal: int
) -> None:
    """Though its products are cut and every exponential errs by the most, in the same direction."""
    for shape, tile in (
        ((3, 1, 64), 64),
        ((3, 2, 64), 64),
        ((2, 65, 64), 64),
        ((2, 191, 128), 128),
        ((1, 330, 64), 80),
    ):
        inputs = given(dtype, shape, kind, KEY)
        with np.errstate(all="ignore"):
            made = online(inputs, dtype, causal, tile)
            assert largest(made, inputs, dtype, causal, kind) < 0.85, shape
            together = rms_of_errors(made, inputs, dtype, causal, kind)
            assert together < 0.95 * rms_bound(kind, shape[0] * shape[1]), shape


# Cheats and mistakes, as bits of outputs. Those of `exact` are in fp64 but for what they do wrong.


def exact(
    inputs: Inputs,
    dtype: str,
    keep: slice = slice(None),
    weights: Callable[[Array], Array] = lambda e: e,
) -> Array:
    q, k, v = numbers(inputs, dtype)
    s = logits(q, k, 0)[:, :, keep]
    e = weights(np.exp(s - s.max(axis=2, keepdims=True))).astype(np.float64)
    made = e @ v[:, keep] / e.sum(axis=2, keepdims=True)
    return as_output(made, dtype)


def without_maximum(inputs: Inputs, dtype: str, least: float = np.inf) -> Array:
    """Or with one that begins at `least`, from where on: at 0 and not at -inf all weights may be 0."""
    q, k, v = (one.astype(SINGLE) for one in numbers(inputs, dtype))
    s = logits(q, k, 0)
    maximum = 0 if least == np.inf else np.maximum(s.max(axis=2, keepdims=True), least)
    e = np.exp((s - maximum).astype(SINGLE))
    made = as_weights(e, dtype) @ v
    return as_output(made / e.sum(axis=2, keepdims=True), dtype)


def other_scale(inputs: Inputs, dtype: str) -> Array:
    q, k, v = inputs
    return exact((rounded(value(q, dtype) * 1.01, dtype), k, v), dtype)


def too_narrow(x: Array, dtype: str) -> Array:
    """To 4 bits, as e4m3 has; where these are right to 2, as no type has but fp4."""
    if dtype != "fp8":
        return value(e4m3(x.astype(SINGLE)), "fp8")
    mantissa, exponent = np.frexp(x)
    return np.asarray(np.ldexp(np.round(mantissa * 4) / 4, exponent))


Cheat = Callable[[Inputs, str], Array]
CHEATS: dict[str, tuple[str, tuple[str, ...], Cheat]] = {
    "without the maximum": ("spikes", PROBLEM.dtypes, without_maximum),
    # fp8's wide inputs are not so wide.
    "a maximum that begins at 0": (
        "wide",
        ("bf16", "fp16"),
        partial(without_maximum, least=0),
    ),
    "the last key is left out": (
        "equal",
        PROBLEM.dtypes,
        partial(exact, keep=slice(-1)),
    ),
    "weights of too few bits": (
        "uniform",
        PROBLEM.dtypes,
        lambda x, of: online(x, of, weights=lambda p: too_narrow(p, of)),
    ),
    "a sum in the type of the weights": (
        "positive",
        PROBLEM.dtypes,
        lambda x, of: online(x, of, total=lambda s: narrow(s, of)),
    ),
    # Weights of 4 bits hide it.
    "a scale of 1.01": ("spikes", ("bf16", "fp16"), other_scale),
}
"""What comes nearest to the bound of its kind of inputs; other keys, masks, rows and heads are far beyond it."""


@pytest.mark.parametrize(
    ("cheat", "dtype"),
    [(cheat, dtype) for cheat, (_, dtypes, _) in CHEATS.items() for dtype in dtypes],
)
def test_what_is_no_attention_leaves_the_bound(cheat: str, dtype: str) -> None:
    """At one of the edges, where keys are many, or one."""
    kind, _, way = CHEATS[cheat]
    shape = (67, 1, 64) if kind == "wide" else (2, 1031, 64)
    assert dict(zip(("heads", "sequence", "d"), shape, strict=True)) in itertools.chain(
        *PROBLEM.edges({})
    )
    q, k, v = given(dtype, shape, kind, KEY)
    # Rows are alike, and most cheats show in any of them.
    inputs = (q if kind == "uniform" else q[:, -64:], k, v)
    with np.errstate(all="ignore"):
        assert not largest(way(inputs, dtype), inputs, dtype, 0, kind) <= 1


LEFT_OUT: dict[str, tuple[str, tuple[str, ...], Cheat]] = {
    "without 64 keys": ("uniform", ("bf16", "fp16"), partial(exact, keep=slice(-64))),
    "without 512 keys": ("uniform", ("fp8",), partial(exact, keep=slice(-512))),
    "weights in e4m3": (
        "uniform",
        ("bf16", "fp16"),
        partial(exact, weights=lambda e: value(e4m3(e.astype(SINGLE)), "fp8")),
    ),
    "weights that are alike": (
        "uniform",
        PROBLEM.dtypes,
        partial(exact, weights=np.ones_like),
    ),
    "without promotion": ("positive", ("fp8",), partial(online, tile=16384)),
    "a sum in bf16": (
        "positive",
        ("fp8",),
        partial(online, tile=128, total=lambda s: narrow(s, "bf16")),
    ),
}


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [(dtype, "uniform") for dtype in PROBLEM.dtypes] + [("fp8", "positive")],
)
def test_what_a_long_launch_may_leave_out_is_what_its_bound_says(
    dtype: str, kind: str
) -> None:
    """Some rows of 16384 keys; of values of one sign fp8's sums must be promoted."""
    _, k, v = given(dtype, (1, 16384, 64), kind, KEY)
    inputs = (given(dtype, (1, 8, 64), kind, KEY + 9)[0], k, v)
    assert largest(online(inputs, dtype, 0, 128), inputs, dtype, 0, kind) < 0.85
    for name, (of_kind, dtypes, cheat) in LEFT_OUT.items():
        if of_kind == kind and dtype in dtypes:
            made = cheat(inputs, dtype)
            assert largest(made, inputs, dtype, 0, kind) > 1, name


ALL = 1 << 20
"""More keys than there are: sums are never promoted."""


@pytest.mark.parametrize("kind", PROBLEM.inputs)
@pytest.mark.parametrize("sequence", [300, 8192])
def test_sums_that_are_promoted_seldom_lie_within_their_own_bound(
    kind: str, sequence: int
) -> None:
    """Of values of both signs they are no worse; of one sign they lose more, the longer they are."""
    _, k, v = given("fp8", (1, sequence, 64), kind, KEY)
    inputs = (given("fp8", (1, 8, 64), kind, KEY + 9)[0], k, v)
    size = {"heads": 1, "sequence": sequence, "d": 64}
    errors = []
    for keys in (128, 256, 512, ALL):
        with np.errstate(all="ignore"):
            made = online(inputs, "fp8", 0, 128, promoted=keys)
        factor = promotion_factor(size, kind, keys)
        errors.append(largest(made, inputs, "fp8", 0, kind))
        together = rms_of_errors(made, inputs, "fp8", 0, kind)
        assert errors[-1] < 0.5 * factor, keys
        assert together < 0.9 * factor * rms_bound(kind, 8), keys
    if kind != "positive":
        assert max(errors) < 1.2 * errors[0]
    elif sequence == 8192:
        assert errors[2] > 1.5 * errors[0]
        assert errors[3] > 5


def test_a_bound_grows_with_the_keys_that_a_kernel_says_it_sums() -> None:
    """And with no other parameter, and in fp8 alone; fewer keys than 128, or than there are, change nothing."""

    def bound(dtype: str = "fp8", inputs: str = "positive", **params: int) -> float:
        instance = object.__new__(AttentionInstance)
        instance.dtype, instance.inputs = dtype, inputs
        instance.size = {"heads": 1, "sequence": 4096, "d": 64}
        return instance.error_bound({"causal": 0, **params})

    assert bound() == bound(every=64) == bound(every=128) == bound("bf16", every=0) == 1
    bounds = [bound(every=keys) for keys in (128, 256, 512, 4096)]
    assert bounds == sorted(set(bounds))
    assert bound(every=0) == bound(every=8192) == bounds[-1]
    assert max(bound(inputs=kind, every=512) for kind in ("uniform", "wide")) < 1.01


def test_wide_inputs_are_held_to_the_bound_where_fp32_tells_the_largest_key() -> None:
    """In most rows: there the output is a row of V, and no other one."""
    inputs = given("bf16", (1, 191, 64), "wide", KEY)
    with np.errstate(all="ignore"):
        right = exact(inputs, "bf16")
        errors = errors_over_bound(
            np.roll(right, 1, axis=1), inputs, "bf16", 0, "wide"
        ).max(axis=(0, 2))
    assert np.mean(errors > 1) > 0.9


# The check's kernels, by the emulator.


def compared(
    name: str,
    dtype: str,
    outputs: Sequence[Array],
    kind: str,
    causal: int,
    keys: Sequence[int] = (),
    blocks: int = 2,
    rms_scale: float = 0.0,
    groups: int = 2,
) -> list[float]:
    """The largest error that one of them finds in bits of each output, by a launch each; of timed ones in `groups`.

    `rms_scale` times the root of the sum of the errors' squares is one of these; `keys` are those of slots.
    """
    heads, sequence, d = outputs[0].shape
    allowed = allowance(dtype, {"heads": heads, "sequence": sequence, "d": d}, kind)
    kinds = [INPUTS.index(kind), INPUTS.index("uniform" if kind == "equal" else kind)]
    about = [heads, sequence, causal, *range(KEY, KEY + 3), *kinds, *allowed]
    on = EmulatedHarness("attention")
    slots = list[CheckResultSlot]()
    launches = list[list[Any]]()
    for launch, output in enumerate(outputs):
        slot = on.slot(keys[launch] if keys else SECRET, launch)
        given = [on.put(output, launch), *about]
        slots.append(slot)
        if name == "check_rows":
            launches.append([slot, *given, rms_scale, tile_of(sequence), groups])
        else:
            launches.append([slot.result, slot.result + 8, *given])
    types = f"{C_TYPES[dtype]}, {C_TYPES[output_dtype(dtype)]}, {d}"
    on.launch(f"{name}<{types}>", blocks, *launches)
    if name == "check_rows":
        return [on.error_at(slot) for slot in slots]
    found = [on.view(slot.result, 2, np.float64) for slot in slots]
    return [max(worst, rms_scale * math.sqrt(squares)) for worst, squares in found]


def tile_of(sequence: int) -> int:
    return min(128, -(-sequence // GROUP))


def changed(output: Array, at: int, bits: int) -> Array:
    one = output.copy()
    one.reshape(-1)[at] = bits
    return one


@pytest.mark.parametrize(
    ("dtype", "kind", "causal", "shape"),
    [
        ("bf16", "uniform", 0, (2, 5, 64)),
        ("fp16", "positive", 1, (1, 9, 128)),
        ("bf16", "integers", 1, (3, 3, 64)),
        ("bf16", "wide", 1, (2, 9, 64)),
        ("fp16", "equal", 1, (2, 7, 64)),
        ("fp16", "spikes", 1, (1, 258, 64)),
        ("bf16", "spikes", 0, (1, 5, 128)),
        ("fp8", "uniform", 0, (2, 5, 64)),
        ("fp8", "positive", 1, (1, 9, 128)),
    ],
)
def test_the_check_finds_the_errors_of_rows_that_were_drawn(
    dtype: str, kind: str, causal: int, shape: tuple[int, int, int]
) -> None:
    """As worked out here: more keys than threads, groups that are not full, heads that begin elsewhere."""
    inputs = given(dtype, shape, kind, KEY)
    with np.errstate(all="ignore"):
        made = online(inputs, dtype, causal)
        made.reshape(-1)[-3] ^= 16
        expected = largest(made, inputs, dtype, causal, kind)
        assert expected > 0.1
        blocks = 65 if shape[1] > 256 else 2
        together = rms_of_errors(made, inputs, dtype, causal, kind)
        for times in (0, 10):
            (found,) = compared(
                "compare_rows",
                dtype,
                [made],
                kind,
                causal,
                blocks=blocks,
                rms_scale=times / math.sqrt(made.size),
            )
            assert found == pytest.approx(max(expected, times * together), rel=1e-6)


def test_behind_a_timed_launch_the_rows_that_are_drawn_have_a_root_mean_square() -> (
    None
):
    """Where there is one group of rows, each of two blocks draws it."""
    inputs = given("bf16", (1, 4, 64), "uniform", KEY)
    made = online(inputs, "bf16", 0)
    together = 10 * rms_of_errors(made, inputs, "bf16", 0, "uniform")
    scale = 10 / math.sqrt(2 * made.size)
    (found,) = compared("check_rows", "bf16", [made], "uniform", 0, rms_scale=scale)
    assert found == pytest.approx(together, rel=1e-6)
    assert found > largest(made, inputs, "bf16", 0, "uniform")


@pytest.mark.parametrize("causal", [0, 1])
def test_it_looks_at_every_element(causal: int) -> None:
    inputs = given("bf16", (3, 5, 64), "uniform", KEY)
    right = online(inputs, "bf16", causal)
    places = [*range(0, right.size, 241), right.size - 1]
    two = [changed(right, at, 0x4000) for at in places]  # where values are below 1
    outputs = [right, *two, changed(right, -1, 0xFFFF)]
    fine, *wrong, unwritten = compared(
        "compare_rows", "bf16", outputs, "uniform", causal
    )
    assert fine < 1 < min(wrong), dict(zip(places, wrong, strict=True))
    assert unwritten == 1e300


def test_a_timed_launch_is_held_to_rows_that_the_key_of_its_slot_draws() -> None:
    """A row is wrong: it is found where the one group is of its head, and has that row of each tile."""
    inputs = given("fp16", (2, 8, 64), "uniform", KEY)
    right = online(inputs, "fp16", 1)
    wrong = right.copy()
    wrong[1, 5] ^= 0x40  # the second row of the third tile of two
    by_draw: dict[tuple[int, int], int] = {}
    for slot in range(SECRET, SECRET + 64):
        by_draw.setdefault((_mixed(slot, -1) % 2, _mixed(slot, 0) % 2), slot)
    assert len(by_draw) == 4
    slots = [*by_draw.values()]
    fine = compared("check_rows", "fp16", [right] * 4, "uniform", 1, slots, groups=1)
    assert max(fine) < 1
    errors = compared("check_rows", "fp16", [wrong] * 4, "uniform", 1, slots, groups=1)
    assert [error > 1 for error in errors] == [draw == (1, 1) for draw in by_draw]


@pytest.mark.parametrize(("sequence", "causal"), [(3, 0), (9, 1), (13, 0)])
def test_no_tile_escapes_where_there_is_a_group_for_each_four(
    sequence: int, causal: int
) -> None:
    """The last tile of a head may have fewer rows."""
    inputs = given("bf16", (2, sequence, 64), "uniform", KEY)
    right = online(inputs, "bf16", causal)
    tile = tile_of(sequence)
    outputs = [right]
    for head in range(2):
        for first in range(0, sequence, tile):
            wrong = right.copy()
            wrong[head, first : first + tile] ^= 0x40
            outputs.append(wrong)
    slots = range(SECRET, SECRET + len(outputs))
    fine, *errors = compared("check_rows", "bf16", outputs, "uniform", causal, slots)
    assert fine < 1 < min(errors)


@pytest.mark.parametrize("dtype", PROBLEM.dtypes)
def test_it_sees_any_output_that_was_not_written(dtype: str) -> None:
    right = online(given(dtype, (2, 37, 64), "uniform", KEY), dtype, 0)
    outputs = [
        changed(right, at, 0xFFFF) for at in (0, 7, right.size // 2 + 3, right.size - 1)
    ]
    assert compared("check_rows", dtype, outputs, "uniform", 0) == [1e300] * 4


def test_work_is_what_flash_attention_counts() -> None:
    size = {"heads": 16, "sequence": 16384, "d": 128}
    whole, half = (PROBLEM.work(size, "bf16", {"causal": causal}) for causal in (0, 1))
    assert whole.operations == 4 * 16384**2 * 2048 == 2 * half.operations
    assert whole.bytes == half.bytes == 4 * 16 * 16384 * 128 * 2
    assert PROBLEM.work(size, "fp8", {"causal": 0}).bytes == (3 + 2) * 16 * 16384 * 128
