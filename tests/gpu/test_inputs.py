"""Inputs: drawn by a keyed generator, the same on the host and on the device, and nothing that one can foretell."""

from __future__ import annotations

import ctypes
import itertools
import math
from functools import partial
from typing import Any

import numpy as np
import pytest
from emulator.check_ptx import CheckMachine, check_program
from emulator.inputs import drawn, philox, value
from emulator.ptx import Array, Memory
from fake_gpu import fake_instance
from ladder.build.variants import harness
from ladder.gpu import instance as instances
from ladder.gpu.device import Gpu
from ladder.gpu.timing import Timer
from ladder.model.folders import PACKAGE
from ladder.model.problem import C_TYPES, INPUTS
from ladder.problems.gemm.instance import GemmInstance
from ladder.problems.registry import PROBLEMS
from measuring import GPUS, on_gpu

KEY = 0x0123_4567_89AB_CDEF
CHECK = PACKAGE / "problems/stencil/check.cu"
TYPES = ("fp32", "tf32", "fp16", "bf16", "fp8", "int32")
WORD: dict[str, Any] = {
    "fp32": np.float32,
    "tf32": np.float32,
    "int32": np.int32,
    "fp8": np.uint8,
}


def test_the_generator_is_philox() -> None:
    """Known answers of Random123 for 10 rounds of four words (its file kat_vectors)."""
    (words,) = philox(0, np.array([0], np.uint64))
    assert [f"{word:08x}" for word in words] == [
        "6627e8d5",
        "e169c58d",
        "bc57ac4c",
        "9b00dbd8",
    ]


def on_device(dtype: str, count: int, kind: str, key: int = KEY) -> Array:
    """What `fill` leaves in a buffer, by the emulator."""
    of = WORD.get(dtype, np.uint16)
    memory = Memory()
    words = -(-count * np.dtype(of).itemsize // 4)
    place = memory.buffer(0, np.full(words, 0xA5A5A5A5, np.uint32), writable=True)
    program = check_program(CHECK, f"fill<{C_TYPES[dtype]}>", PACKAGE / "gpu")
    CheckMachine(program, memory, 1, [place, count, key, INPUTS.index(kind)]).run()
    return np.asarray(memory.words[place // 4 :].view(of)[:count])


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("dtype", TYPES)
def test_host_and_device_agree_bit_for_bit(dtype: str, kind: str) -> None:
    for count in (2000, 13):
        own = on_device(dtype, count, kind)
        assert own.tobytes() == drawn(dtype, count, KEY, kind).tobytes(), (
            dtype,
            kind,
            count,
        )


@pytest.mark.parametrize("dtype", TYPES)
def test_inputs_are_uniform_in_their_range_and_neighbours_are_unrelated(
    dtype: str,
) -> None:
    number, scale = 400_000, 1000.0 if dtype == "int32" else 1.0
    for kind, low in (("uniform", -1.0), ("positive", 0.0)):
        x = value(drawn(dtype, number, KEY, kind), dtype) / scale
        assert low <= x.min() <= low + 0.01
        assert 0.99 <= x.max() <= 1.0
        middle, spread = (1 + low) / 2, (1 - low) / math.sqrt(12)
        # What cutting to whole numbers, to tf32 or to 8 bits moves.
        step = {"int32": 0.5 / scale, "fp8": 2.0**-8}.get(dtype, 2.0**-11)
        assert abs(x.mean() - middle) < 6 * spread / math.sqrt(number) + step
        assert x.std() == pytest.approx(spread, rel=0.01)
        centred = (x - x.mean()) / x.std()
        for lag in range(1, 40):
            apart = centred[:-lag] @ centred[lag:] / number
            assert abs(apart) < 6 / math.sqrt(number), lag


def test_another_key_or_a_neighbour_changes_half_of_the_bits() -> None:
    counters = np.arange(2000, dtype=np.uint64)
    own = philox(KEY, counters)
    for other in (
        *(philox(KEY ^ 1 << bit, counters) for bit in (0, 31, 32, 63)),
        philox(KEY, counters + np.uint64(1)),
    ):
        share = np.unpackbits((own ^ other).view(np.uint8)).mean()
        assert abs(share - 0.5) < 6 * 0.5 / math.sqrt(own.size * 32)


_DRAWN_PER_NS = 600
"""Elements, at least, where memory is no bound; twice as many of uniform inputs, which are those of timed launches."""


@on_gpu
def test_a_gpu_draws_the_same_and_as_fast_as_its_memory_takes_it() -> None:
    cubin, facts = harness(PROBLEMS["gemm"], "fp32", GPUS[0].arch).compile()
    gpu = Gpu(cubin, facts["symbols"])
    timer, count = Timer(gpu), 2**28
    buffer = gpu.allocate(4 * count)
    for dtype in TYPES:
        size = np.dtype(WORD.get(dtype, np.uint16)).itemsize
        for kind in INPUTS:
            given = (
                int(buffer.handle),
                count,
                ctypes.c_uint64(KEY),
                ctypes.c_int32(INPUTS.index(kind)),
            )
            (us,) = timer.quick_medians(
                [partial(gpu.harness.run, f"fill<{C_TYPES[dtype]}>", count, *given)]
            )
            rate = size * count / us / 1e3
            print(f"{dtype} {kind}: {rate:.0f} GB/s")
            own = gpu.download(int(buffer.handle), 100_000 * size)
            assert own == drawn(dtype, 100_000, KEY, kind).tobytes(), (dtype, kind)
            by_philox = _DRAWN_PER_NS * size * (2 if kind == "uniform" else 1)
            assert rate > min(0.3 * gpu.memory_bytes_per_us / 1e3, by_philox)
    buffer.close(gpu.stream)


# Keys and places.


@pytest.fixture
def made(fake_buffers: None) -> GemmInstance:
    size = {"m": 64, "n": 96, "k": 256}
    found: GemmInstance = fake_instance("gemm", "bf16", size, "TN")
    return found


def keys(of: instances.Instance) -> set[int]:
    return {tensor.key.value for _, tensor in of._buffers() if tensor.kind.value >= 0}


def test_each_launch_has_keys_of_its_own_and_a_seed_gives_the_same_again(
    made: GemmInstance,
) -> None:
    seen = set[int]()
    for seed in range(200):
        made.refresh(seed)
        assert len(keys(made)) == 2, "one of A and one of B"
        assert not keys(made) & seen
        seen |= keys(made)
    made.refresh(7)
    again = keys(made)
    made.refresh(8)
    made.fill_inputs(7)
    assert keys(made) == again <= seen


def test_another_instance_has_other_keys(made: GemmInstance) -> None:
    other = GemmInstance(made.libraries, made.gpu, made.size, made.dtype, made.layout)
    for one in (made, other):
        one.refresh(1)
    assert not keys(made) & keys(other)


def places(of: instances.Instance, number: int) -> list[tuple[tuple[int, ...], ...]]:
    """Of each place, and of each shifted input there, which buffer it is in and at which byte it begins."""
    found = []
    for place in range(2, number + 2):
        with of.writing_to(place):
            tensors = [of.tensors[name] for name in of.shifted_inputs]
            found.append(
                tuple(
                    (int(one.whole.handle), one.pointer - int(one.whole.handle))
                    for one in tensors
                )
            )
    return found


@pytest.mark.parametrize("k", [8, 64, 100, 256, 1000, 4096])
@pytest.mark.parametrize("layout", ["NN", "TN"])
def test_no_answer_of_a_chain_holds_rows_or_columns_of_another(
    k: int, layout: str, made: GemmInstance
) -> None:
    """Two answers have common parts where both inputs are the same copies and their products meet again in order."""
    chain = GemmInstance(
        made.libraries, made.gpu, {"m": 64, "n": 4096, "k": k}, "bf16", layout
    )
    found = places(chain, 100)
    assert len(set(found)) == 100
    for (a, b), (other_a, other_b) in itertools.combinations(found, 2):
        if (a[0], b[0]) != (other_a[0], other_b[0]):
            continue
        along_k = (a[1] - other_a[1]) // 2 % k
        assert b[1] == other_b[1], "B is never shifted"
        assert along_k != 0, "or rows of the one are rows of the other"
    copies = len({a[0] for a, _ in found} | {b[0] for _, b in found})
    assert copies <= 2 * math.ceil(
        math.sqrt(100 / max(1, math.lcm(2 * k, 256) // 256)) + 1
    )


def test_a_chain_of_stencils_has_another_input_at_each_place(
    fake_buffers: None,
) -> None:
    chain = fake_instance("stencil", "fp32", {"elements": 4096})
    found = places(chain, 100)
    assert len({buffer for ((buffer, _),) in found}) == 100, (
        "a moved input has the moved answer"
    )
    assert chain.place_bytes() == sum(
        chain.tensors[name].guarded.size for name in ("input", "output")
    )


def test_all_copies_of_a_chain_are_drawn_anew_and_looked_at(
    made: GemmInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    places(made, 100)
    with made.writing_to(2):
        made.renew(1)
    first, count = keys(made), len(made._copies)
    assert len(first) == count > 4
    with made.writing_to(2):
        made.renew(2)
    assert len(keys(made)) == count
    assert not keys(made) & first
    looked: list[str] = []
    monkeypatch.setattr(
        made.gpu, "reduce", lambda entry, *given: looked.append(entry) or (0.0, 0)
    )
    assert made.memory_violation() is None
    assert len(looked) == count


def test_the_inputs_of_the_check_of_all_elements_are_not_those_of_a_chain(
    made: GemmInstance,
) -> None:
    """Or the launch ahead of a chain would leave the answer of its first one."""
    first = [made.tensors[name].pointer for name in made.shifted_inputs]
    with made.writing_to(2):
        assert [made.tensors[name].pointer for name in made.shifted_inputs] != first
