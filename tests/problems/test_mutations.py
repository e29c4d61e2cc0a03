"""Wrong results of GEMM, which its two checks must reject: each way of being wrong, per dtype and depth.

What a mutation adds to C is a sum of some products, of root mean square R = 1/3 each for uniform inputs, and
|A||B| is about K / 4. From that `size` says how large a mutation is, and `seen` where the check of all elements
must reject it.
"""

from __future__ import annotations

import contextlib
import functools
import math
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest
from compiling import compile_text
from conftest import ROOT
from cuda.core import Kernel, LaunchConfig, ObjectCode, launch
from emulator.hopper_ptx import truncated_sum
from emulator.inputs import value
from emulator.ptx import Array
from ladder.build.nvrtc import compile_source
from ladder.build.variants import harness
from ladder.gpu.device import Gpu, Harness, Launcher
from ladder.gpu.instance import Maker
from ladder.gpu.timing import Timer
from ladder.measure.watch import CheckedSide, LaunchChecker
from ladder.model.errors import LadderError
from ladder.model.folders import PACKAGE
from ladder.model.problem import C_TYPES
from ladder.problems.gemm import PROBLEM, input_dtype, output_dtype
from ladder.problems.gemm.bounds import (
    ROUNDING,
    accumulation_bound,
    chance_factor,
    rms_bound,
    row_tolerance,
)
from ladder.problems.gemm.instance import INSTANCE, GemmInstance
from measuring import GPUS, on_gpu
from problems.check_kernels import EmulatedProduct, emulate_products, signs

DTYPES = PROBLEM.dtypes
DEPTHS = [64, 256, 1024, 4096, 16384]
TILE = 128
R = 1 / 3
BITS = {"fp32": 24, "tf32": 11, "fp16": 11, "bf16": 8, "fp8": 4}
"""Of an input's mantissa, the leading one counted."""
NARROWER = {"fp32": 11, "tf32": 8, "fp16": 8, "fp16_acc16": 8, "bf16": 4, "fp8": 3}
"""Those of a type that inputs may be rounded to: TF32 for fp32, bf16 for tf32 and fp16, e4m3 for bf16."""
MUTATIONS = (
    "zeros",
    "last_product",
    "dropped_tile",
    "doubled_tile",
    "last_quarter",
    "half_sums",
    "narrower",
    "swapped_rows",
    "one_element",
)


def mutations(dtype: str) -> list[str]:
    """Those that are wrong in a dtype."""
    return [one for one in MUTATIONS if (one, dtype) != ("half_sums", "fp16_acc16")]


def roundoff(dtype: str) -> float:
    """Unit roundoff of the output."""
    return ROUNDING[output_dtype(dtype)]


def size(mutation: str, dtype: str, k: int) -> float:
    """Root mean square of what a mutation adds to an element that it touches; half_sums: of sums in fp16."""
    return {
        "zeros": R * math.sqrt(k),
        "last_product": R,
        "dropped_tile": R * math.sqrt(min(TILE, k)),
        "doubled_tile": R * math.sqrt(min(TILE, k)),
        "last_quarter": R * math.sqrt(k / 4),
        "half_sums": 0.2 * 2**-10 * k / 4,
        "narrower": 0.53 * 2.0 ** -NARROWER[dtype] * R * math.sqrt(k),
        "swapped_rows": R * math.sqrt(2 * k),
        "one_element": R * math.sqrt(k),
    }[mutation]


def seen(mutation: str, dtype: str, k: int, times: float) -> bool:
    """Whether an error `times` its root mean square, less what rounding explains, exceeds 1.2 bounds."""
    rounding = roundoff(dtype) * R * math.sqrt(k)
    return (
        times * size(mutation, dtype, k) - rounding
        > 1.2 * accumulation_bound(dtype, k) * k / 4
    )


def largest(mutation: str) -> float:
    """The largest error of 256 x 256 elements, or those it touches, is this many root mean squares at least."""
    return {"swapped_rows": 2.0, "one_element": 1.0, "last_product": 2.7}.get(
        mutation, 3.5
    )


@pytest.mark.published
def test_every_result_that_was_published_lies_within_its_bound() -> None:
    for path in sorted((ROOT / "results/published").glob("*/timings.parquet")):
        rows = pd.read_parquet(path)
        rows = rows[
            (rows.problem == "gemm") & (rows.status == "ok") & rows.max_error.notna()
        ]
        cells = zip(rows.max_error, rows["dtype"], rows.k, strict=True)
        share = [
            float(error) / accumulation_bound(str(dtype), int(k))
            for error, dtype, k in cells
        ]
        # fp32 comes nearest: 0.53 among 17 million sums of 1019 products.
        assert max(share) < 0.6


# Honest sums in NumPy: arrays of (trial, m, k) and (trial, k, n).


def narrowed(
    x: Array, bits: int, least: int = -126, to_integer: np.ufunc = np.rint
) -> Array:
    """Rounded to `bits` of mantissa, the leading one counted; normal numbers have exponents from `least` on."""
    unit = np.exp2(np.maximum(np.frexp(x)[1], least + 1) - float(bits))
    return np.asarray(to_integer(x / unit) * unit)


def drawn(random: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> Array:
    values = random.uniform(-1, 1, shape)
    return narrowed(
        values, BITS[input_dtype(dtype)], -6 if dtype == "fp8" else -126
    ).astype(np.float32)


def stored(c: Array, dtype: str) -> Array:
    """Rounded to the type of the output."""
    bits = {"fp32": 24, "fp16": 11, "bf16": 8}[output_dtype(dtype)]
    return narrowed(c.astype(np.float64), bits)


def accumulated(dtype: str, a: Array, b: Array) -> Array:
    """The sums of an honest kernel: product by product, or as tensor cores add."""
    depth = {"fp32": 1, "fp16_acc16": 1, "tf32": 8, "fp8": 32}.get(dtype, 16)
    element = np.float64 if depth in (8, 16) else np.float32
    a, b = a.astype(element), np.swapaxes(b, -1, -2).astype(element)
    total = np.zeros((*a.shape[:-1], b.shape[-2]), element)
    for first in range(0, a.shape[-1], depth):
        part = slice(first, first + depth)
        products = a[..., :, None, part] * b[..., None, :, part]
        if depth > 1:
            terms = np.concatenate([total[..., None], products], axis=-1)
            bits = 14 if dtype == "fp8" else 24
            total = truncated_sum(np.moveaxis(terms, -1, 0), bits)
        else:
            total = total + products[..., 0]
        if dtype == "fp16_acc16":
            total = total.astype(np.float16).astype(np.float32)
    return total


def normalised(error: Array, rounding: Array, magnitude: Array) -> Array:
    """The same function of check.cu."""
    return np.asarray(np.maximum(np.abs(error) - rounding, 0) / magnitude)


def errors(c: Array, a: Array, b: Array, rounding: float = 0.0) -> Array:
    """Errors of elements over |A||B|, beyond what the rounding of the output explains."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    expected = a @ b
    magnitude = np.abs(a) @ np.abs(b)
    return normalised(c - expected, rounding * np.abs(expected), magnitude)


def by_elements(c: Array, a: Array, b: Array, rounding: float) -> Array:
    """What the check of all elements finds, per trial."""
    return np.asarray(errors(c, a, b, rounding).max((-1, -2)))


def by_signs(
    c: Array, a: Array, b: Array, x: Array, rounding: float, dtype: str = "fp32"
) -> Array:
    """What check.cu finds in rows times the signs x, per trial; sums of narrow types are made in fp32."""
    sum_type: Any = (
        np.float64 if BITS[input_dtype(dtype)] == 24 or dtype == "tf32" else np.float32
    )
    y = (b.astype(sum_type) @ x.astype(sum_type)[..., None]).astype(np.float64)
    of_c = (c.astype(np.float64) @ x[..., None])[..., 0]
    of_a = (a.astype(np.float64) @ y)[..., 0]
    squares = (a.astype(np.float64) ** 2).sum(-1) * (b.astype(np.float64) ** 2).sum(
        (-1, -2)
    )[..., None]
    k, chance = a.shape[-1], chance_factor(c.shape[-2])
    rounded = chance / math.sqrt(3) * rounding * np.sqrt((c**2).sum(-1))
    scale = chance * row_tolerance(dtype, k) / accumulation_bound(dtype, k)
    return np.asarray(
        normalised(of_c - of_a, rounded, scale * np.sqrt(squares)).max(-1)
    )


def by_squares(c: Array, a: Array, b: Array, dtype: str) -> Array:
    """What both checks find in the root mean square of the errors, over what it may be, per trial."""
    squares = errors(c, a, b, roundoff(dtype)) ** 2
    allowed = rms_bound(dtype, a.shape[-1], "uniform", c[0].size)
    return np.asarray(np.sqrt(squares.mean((-1, -2))) / allowed)


@pytest.mark.parametrize("k", [64, 256, 1024])
@pytest.mark.parametrize("dtype", DTYPES)
def test_honest_sums_pass_both_checks_a_hundred_times(dtype: str, k: int) -> None:
    random = np.random.default_rng([k, DTYPES.index(dtype)])
    a = drawn(random, dtype, (100, 12, k))
    b = drawn(random, dtype, (100, k, 12))
    x = random.choice([-1.0, 1.0], (100, 12))
    bound, rounding = accumulation_bound(dtype, k), roundoff(dtype)
    c = stored(accumulated(dtype, a, b), dtype)
    assert by_elements(c, a, b, rounding).max() <= bound / 2
    assert by_signs(c, a, b, x, rounding, dtype).max() <= 0.75 * bound
    assert by_squares(c, a, b, dtype).max() <= 0.9


# The kernels of check.cu themselves, by the emulator.


@pytest.mark.parametrize(
    ("dtype", "layout", "shape"),
    [
        ("fp32", "NN", (1, 1, 1)),
        ("fp32", "NN", (17, 3, 130)),
        ("bf16", "TN", (17, 3, 130)),
        ("fp32", "TN", (130, 17, 3)),
    ],
)
def test_the_kernels_pass_a_right_product_and_see_one_wrong_element(
    dtype: str,
    layout: str,
    shape: tuple[int, int, int],
    fake_buffers: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With inputs that are moved, as in a chain."""
    m, n, k = shape
    emulate_products(monkeypatch, "gemm")
    emulated = EmulatedProduct("gemm", dtype, shape, layout)
    made = emulated.instance
    bound, rounding = accumulation_bound(dtype, k), roundoff(dtype)
    with made.writing_to(3):
        made.refresh(5)
        a, b = (value(emulated.held(name), dtype) for name in "ab")
        b = b.T if layout == "TN" else b
        assert np.isnan(value(emulated.held("c"), dtype)).all()
        assert np.abs(a).max() <= 1
        assert len({*a.reshape(-1), *b.reshape(-1)}) > min(a.size + b.size, 500) / 2
        right = stored(a @ b, dtype)
        emulated.write(right)
        assert emulated.inspected({}) <= bound
        sums = np.float64 if dtype == "fp32" else np.float32
        y = emulated.on.view(made.pointer("signed") + 16, k, sums)
        np.testing.assert_allclose(y, b @ signs(n), rtol=1e-5, atol=1e-5)

        spoilt = right.copy()
        spoilt[m // 2, n // 2] += 1 + R * math.sqrt(k)
        spoilt = stored(spoilt, dtype)
        emulated.write(spoilt)
        found = emulated.inspected({})
        assert found > bound
        rows = float(by_signs(spoilt, a, b, signs(n), rounding, dtype))
        elements = float(by_elements(spoilt, a, b, rounding))
        # A root mean square is at most the largest element.
        squares = elements * bound / rms_bound(dtype, k, "uniform", 8 * 8)
        assert rows * (1 - 1e-4) <= found <= max(rows, elements, squares) * (1 + 1e-4)

        emulated.held("a")[:] = 0
        emulated.write(np.zeros_like(right))
        why = "zeros are the product of an A that somebody cleared"
        assert emulated.inspected({}) == 1e300, why


# The same on a GPU: a kernel of the tests' own is wrong on demand, and the referee's two checks judge it.

SIDE = 256
NUMBERS = [
    "right",
    "zeros",
    "last_product",
    "dropped_tile",
    "doubled_tile",
    "last_quarter",
    "swapped_rows",
    "one_element",
]
"""As mutations.cu counts them."""
SURE = ("zeros", "dropped_tile", "doubled_tile", "last_quarter")
"""What one launch suffices for, where the bound allows it."""


@dataclass
class Bench:
    """Two checks, and the kernel that is wrong."""

    gpu: Gpu
    create: Maker
    kernels: dict[str, Kernel]
    dtype: str = ""

    def take(self, dtype: str) -> None:
        """Load what a dtype needs: the harness, and the kernel for both kinds of sums."""
        if dtype == self.dtype:
            return
        self.gpu.harness = Harness(self.gpu, *own_harness(dtype))
        cubin, symbols = own_kernels(dtype, GPUS[0].arch)
        code = ObjectCode.from_cubin(cubin)
        self.kernels = {of: code.get_kernel(symbol) for of, symbol in symbols.items()}
        self.dtype = dtype

    def launcher(self, made: GemmInstance, mutation: str) -> Launcher:
        half = (mutation == "half_sums") != (made.dtype == "fp16_acc16")
        bits = NARROWER[made.dtype] if mutation == "narrower" else 24
        number = NUMBERS.index(mutation) if mutation in NUMBERS else 0
        pointers = [made.pointer(name) for name in "cab"]
        shape = (made.m, made.n, made.k, *made._strides("b"))
        off = R * math.sqrt(made.k)
        config = LaunchConfig(grid=made.m * made.n // 128, block=128)
        kernel = self.kernels["__half" if half else "float"]
        return functools.partial(
            launch,
            self.gpu.stream,
            config,
            kernel,
            *pointers,
            *shape,
            number,
            bits,
            off,
        )

    def full(self, made: GemmInstance, run: Launcher) -> float:
        """What the check of all elements finds, over its bound."""
        made.refresh(secrets.randbits(60))
        run()
        check = made.check({})
        return check.max_error / check.error_bound

    def timed(self, made: GemmInstance, runs: Sequence[Launcher]) -> list[float]:
        """What the checks of timed launches find, over the bound."""
        watch, found = LaunchChecker(made), []
        for run in runs:
            side = CheckedSide({}, made.error_bound({}))
            watched = watch.single_launch(run, side, 0)
            watched.refresh()
            watched.launch()
            watched.inspect()
            found.append(side)
        watch.collect_results()
        assert all(side.checked == 1 for side in found)
        return [side.worst / side.bound for side in found]


@functools.cache
def own_harness(dtype: str) -> tuple[bytes, dict[str, str]]:
    cubin, facts = harness(PROBLEM, dtype, GPUS[0].arch).compile()
    return cubin, facts["symbols"]


OWN = ROOT / "tests/gpu_probes/mutations.cu"


def own_entries(dtype: str) -> dict[str, str]:
    """Of mutations.cu, by the type that sums are made in."""
    given, made = C_TYPES[input_dtype(dtype)], C_TYPES[output_dtype(dtype)]
    return {of: f"mutated<{given}, {made}, {of}>" for of in ("float", "__half")}


@functools.cache
def own_kernels(dtype: str, arch: str) -> tuple[bytes, dict[str, str]]:
    """Cubin of mutations.cu, and a symbol for each type that sums are made in."""
    entries, text = own_entries(dtype), OWN.read_text()
    cubin, symbols, *_ = compile_source(
        text, OWN.name, [*entries.values()], [PACKAGE / "gpu"], arch
    )
    return cubin, {of: symbols[entry] for of, entry in entries.items()}


def test_the_kernel_that_is_wrong_on_demand_compiles_for_all_types() -> None:
    for dtype in ("fp32", "fp8"):
        entries = [*own_entries(dtype).values()]
        assert compile_text(OWN.read_text(), entries, [PACKAGE / "gpu"], "sm_90a")


@pytest.fixture(scope="module")
def bench() -> Bench:
    gpu = Gpu(*own_harness("fp32"))
    return Bench(gpu, INSTANCE.maker(Timer(gpu), {"lt_heuristics": 8}), {})


def instances(bench: Bench, dtype: str, layout: str) -> Iterator[GemmInstance]:
    bench.take(dtype)
    for k in DEPTHS:
        made = bench.create(bench.gpu, {"m": SIDE, "n": SIDE, "k": k}, dtype, layout)
        assert isinstance(made, GemmInstance)
        yield made
        made.close()


@on_gpu
@pytest.mark.parametrize(
    ("dtype", "layout"), [(one, layout) for one in DTYPES for layout in PROBLEM.layouts]
)
def test_a_right_product_passes_both_checks(
    dtype: str, layout: str, bench: Bench
) -> None:
    for made in instances(bench, dtype, layout):
        runs = {"own": bench.launcher(made, "right")}
        for name in PROBLEM.libraries:
            with contextlib.suppress(LadderError):
                runs |= made.library(name)
        for run in runs.values():
            for kind in PROBLEM.inputs:
                with made.inputs_of_kind(kind):
                    made.refresh(secrets.randbits(60))
                    run()
                    check = made.check({})
                assert check.correct, kind
            full, timed = bench.full(made, run), max(bench.timed(made, [run] * 20))
            assert full < 1
            assert timed < 1


@on_gpu
@pytest.mark.parametrize(
    ("dtype", "layout"), [(one, layout) for one in DTYPES for layout in PROBLEM.layouts]
)
def test_each_mutation_is_rejected_on_a_gpu(
    dtype: str, layout: str, bench: Bench
) -> None:
    for made in instances(bench, dtype, layout):
        for mutation in mutations(dtype):
            run = bench.launcher(made, mutation)
            full = bench.full(made, run)
            must = seen(mutation, dtype, made.k, largest(mutation))
            share = float(
                np.mean([error > 1 for error in bench.timed(made, [run] * 50)])
            )
            where = f"{dtype} {layout} {made.k} {mutation}"
            assert full > 1 or not must, where
            # Elements are checked in every launch, of which one errs by 1.5 times the rms but for e-14.
            if mutation in SURE and seen(mutation, dtype, made.k, 1.5):
                assert share == 1.0, where
            if (
                mutation == "swapped_rows"
                and made.k <= 4096
                and dtype not in ("fp8", "fp16_acc16")
            ):
                assert share > 0.8, where
