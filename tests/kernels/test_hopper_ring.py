"""The ring of stages: which stage and which parity each step waits for. Races are for the GPU tests to find."""

from __future__ import annotations

from emulator.hopper import hold


def test_the_ring_walks_stages_and_parities_in_order() -> None:
    walk = """
#include "schedule/ring.cuh"
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
