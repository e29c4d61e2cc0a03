"""The ring of stages, with barriers as the PTX ISA describes them and threads in any order."""

from __future__ import annotations

import functools
import random
from typing import Any

import pytest
from emulator.hopper import hold


class Barrier:
    """An mbarrier: the phase flips when all arrivals are there; a wait for a parity passes once that phase ended."""

    def __init__(self, arrivals: int) -> None:
        self.arrivals = self.pending = arrivals
        self.phase = 0

    def arrive(self) -> None:
        assert self.pending > 0, "more arrivals than the phase expects"
        self.pending -= 1
        if self.pending == 0:
            self.phase, self.pending = self.phase + 1, self.arrivals

    def passes(self, parity: int) -> bool:
        return self.phase & 1 != parity


def run_ring(
    stages: int, steps: int, readers: int, blocks: int, seed: int, flip: int = 1, stagger: int = 0
) -> None:
    """Blocks of a cluster, each with a producer that writes a part of every block's stage, and readers.

    A reader begins when the one before it has started `stagger` steps. Fails where a stage is written while somebody
    reads it, a reader finds another round's data, or nobody can go on.
    """
    chance = random.Random(seed)
    full = [[Barrier(blocks) for _ in range(stages)] for _ in range(blocks)]
    empty = [[Barrier(blocks * readers) for _ in range(stages)] for _ in range(blocks)]
    held = [[[-1] * blocks for _ in range(stages)] for _ in range(blocks)]
    reading = [[0] * stages for _ in range(blocks)]
    producers, consumers = [0] * blocks, [[0] * readers for _ in range(blocks)]

    def produce(block: int) -> bool:
        step = producers[block]
        stage, parity = step % stages, step // stages % 2
        if step == steps or not empty[block][stage].passes(parity ^ flip):
            return False
        for target in range(blocks):
            assert reading[target][stage] == 0, "written while it is read"
            held[target][stage][block] = step
            full[target][stage].arrive()
        producers[block] += 1
        return True

    def consume(block: int, reader: int) -> bool:
        # Even moments start reading, odd ones release: the stage is in use in between.
        moment = consumers[block][reader]
        step = moment // 2
        stage, parity = step % stages, step // stages % 2
        if step == steps:
            return False
        if moment == 0 and reader > 0 and consumers[block][reader - 1] < 2 * min(stagger, steps) - 1:
            return False
        if moment % 2 == 0:
            if not full[block][stage].passes(parity):
                return False
            assert held[block][stage] == [step] * blocks, "another round's data"
            reading[block][stage] += 1
        else:
            reading[block][stage] -= 1
            for target in range(blocks):
                empty[target][stage].arrive()
        consumers[block][reader] += 1
        return True

    actors: list[Any] = [functools.partial(produce, block) for block in range(blocks)]
    actors += [functools.partial(consume, b, r) for b in range(blocks) for r in range(readers)]
    while producers != [steps] * blocks or any(count != [2 * steps] * readers for count in consumers):
        chance.shuffle(actors)
        moved = [actor() for actor in actors[: chance.randint(1, len(actors))]]
        if not any(moved):
            assert any(actor() for actor in actors), "nobody can go on"


def test_the_ring_walks_stages_and_parities_as_simulated() -> None:
    walk = """
#include "ring.cuh"
template <int Stages>
__host__ __device__ constexpr bool walks() {
    RingPosition<Stages> at;
    for (int step = 0; step < 5 * Stages; ++step, at.advance()) {
        if (at.stage != step % Stages || at.parity != step / Stages % 2) return false;
    }
    return true;
}
"""
    hold(walk, "walks<2>()", "walks<3>()", "walks<4>()", "walks<7>()")


@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize("stages", [1, 2, 3, 4])
def test_no_stage_is_written_while_it_is_read(stages: int, blocks: int) -> None:
    for seed in range(20):
        run_ring(stages, steps=23, readers=3, blocks=blocks, seed=seed)


@pytest.mark.parametrize("steps", [1, 2, 23])
@pytest.mark.parametrize("stagger", [1, 2, 3])
def test_consumers_may_run_ahead_as_far_as_there_are_stages(stagger: int, steps: int) -> None:
    for seed in range(10):
        run_ring(stagger, steps, readers=3, blocks=2, seed=seed, stagger=stagger)
    if steps > stagger:
        with pytest.raises(AssertionError, match="nobody can go on"):
            run_ring(stagger, steps, readers=3, blocks=1, seed=0, stagger=stagger + 1)


def test_a_producer_with_the_wrong_parity_is_caught() -> None:
    with pytest.raises(AssertionError, match="nobody can go on"):
        run_ring(3, steps=23, readers=3, blocks=1, seed=0, flip=0)
