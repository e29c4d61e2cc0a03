"""Slots of results: what a check leaves is taken only with the tag that follows from its key (gpu/harness.cuh)."""

from __future__ import annotations

import math
import struct
from typing import Any

import pytest
from ladder.gpu.device import RESULT_SLOTS, CheckResultSlot, Harness

BASE = 0x7000_0000
RUNNING = 16  # bytes of the maximum and the count of `reduce` ahead of it
SHARED = 32  # bytes of the maximum, the number of blocks and the sum that blocks share
KEYS = (0, 1, 2**62 - 1, 0x0123_4567_89AB_CDEF)


def word(number: int) -> int:
    """As unsigned long long holds it."""
    return number & 0xFFFF_FFFF_FFFF_FFFF


def mixed(seed: int, index: int) -> int:
    """`mixed` of gpu/harness.cuh, one operation a line, each cut to 64 bits."""
    index_after = word(index + 1)
    z = word(seed * 0xD1342543DE82EF95)
    z = word(z + word(index_after * 0x9E3779B97F4A7C15))
    z = word((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9)
    z = word((z ^ (z >> 27)) * 0x94D049BB133111EB)
    return z ^ (z >> 31)


def bits(value: float) -> int:
    found: int = struct.unpack("<Q", struct.pack("<d", value))[0]
    return found


class FakeGpu:
    """Device memory of the harness's scratch, from BASE on."""

    def __init__(self) -> None:
        self.memory = bytearray(RUNNING + SHARED + 16 * RESULT_SLOTS)

    def download(self, pointer: int, size: int) -> bytes:
        found = bytes(self.memory[pointer - BASE : pointer - BASE + size])
        assert len(found) == size
        return found

    def zero(self, pointer: int, size: int) -> None:
        assert pointer - BASE + size <= len(self.memory)
        self.memory[pointer - BASE : pointer - BASE + size] = bytes(size)

    def write(self, pointer: int, *words: int) -> None:
        struct.pack_into(f"<{len(words)}Q", self.memory, pointer - BASE, *words)

    def check(self, slot: CheckResultSlot, error: float) -> None:
        """What the last block of `write_check_result` writes."""
        self.write(slot.result, bits(error), mixed(slot.key, bits(error)))


@pytest.fixture
def gpu() -> FakeGpu:
    return FakeGpu()


@pytest.fixture
def harness(gpu: Any) -> Harness:
    """Without its kernels."""
    made = object.__new__(Harness)
    made._gpu, made.maximum = gpu, BASE
    return made


def test_mixing_is_that_of_the_device() -> None:
    # SplitMix64's first outputs for the state 0 (Steele, Lea, Flood 2014; as in xoshiro's test vectors).
    assert mixed(0, 0) == 0xE220A8397B1DCDAF
    assert mixed(0, 1) == 0x6E789E6AA1B965F4


@pytest.mark.parametrize("error", [0.0, 2.0**-24, 0.5, 1e300, math.inf])
def test_errors_come_back_in_the_order_of_their_slots(
    gpu: FakeGpu, harness: Harness, error: float
) -> None:
    errors = [error, 0.25, error, 0.0]
    for index, (key, found) in enumerate(zip(KEYS, errors, strict=True)):
        gpu.check(harness.result_slot(index, key), found)
    assert harness.read_check_results(KEYS) == errors


@pytest.mark.parametrize("of_word", [0, 1])
@pytest.mark.parametrize("bit", [0, 31, 52, 63])
def test_a_result_that_was_tampered_with_is_infinite(
    gpu: FakeGpu, harness: Harness, of_word: int, bit: int
) -> None:
    """A bit of the maximum or of its tag; the other checks are what they were."""
    for index, key in enumerate(KEYS):
        gpu.check(harness.result_slot(index, key), 0.125)
    at = harness.result_slot(2, KEYS[2]).result - BASE + 8 * of_word + bit // 8
    gpu.memory[at] ^= 1 << bit % 8
    assert harness.read_check_results(KEYS) == [0.125, 0.125, math.inf, 0.125]


def test_the_result_of_another_check_is_none(gpu: FakeGpu, harness: Harness) -> None:
    gpu.check(harness.result_slot(0, 7), 0.0)
    there = harness.result_slot(0, 7).result
    copied = struct.unpack("<2Q", gpu.download(there, 16))
    gpu.write(harness.result_slot(1, 8).result, *copied)
    assert harness.read_check_results([7, 8]) == [0.0, math.inf]


@pytest.mark.parametrize("key", KEYS)
def test_a_check_that_never_ran_is_infinite(harness: Harness, key: int) -> None:
    """Not even where memory holds zeros."""
    assert harness.read_check_results([key]) == [math.inf]


def test_a_result_counts_once(gpu: FakeGpu, harness: Harness) -> None:
    gpu.check(harness.result_slot(0, 7), 0.0)
    assert harness.read_check_results([7]) == [0.0]
    assert not any(gpu.memory[RUNNING:])
    assert harness.read_check_results([7]) == [math.inf]


def test_what_is_left_of_a_check_that_did_not_end_is_cleared(
    gpu: FakeGpu, harness: Harness
) -> None:
    gpu.write(harness.result_slot(0, 7).running, bits(3.0), 12, bits(0.5))
    gpu.write(BASE, bits(9.0), 4)
    harness.read_check_results([])
    assert not any(gpu.memory[RUNNING:])
    assert any(gpu.memory[:RUNNING]), "the result of `reduce` is another's"


def test_slots_do_not_overlap_and_all_have_room(gpu: FakeGpu, harness: Harness) -> None:
    results = [harness.result_slot(index, 1).result for index in range(RESULT_SLOTS)]
    running = harness.result_slot(0, 1).running
    assert running == BASE + RUNNING
    assert results == list(
        range(running + SHARED, running + SHARED + 16 * RESULT_SLOTS, 16)
    )
    assert results[-1] + 16 == BASE + len(gpu.memory)
