"""Stream-K: the division of the work among blocks, and what the head of the Hopper file says of it."""

from __future__ import annotations

import re

import pytest
from emulator.hopper import HOPPER, hold

pytestmark = pytest.mark.slow

DIVISION = """#include "schedule/stream_k.cuh"
// Every step of every tile once, in parts that meet: whose beginning is left to the next block, if not whole.
__host__ __device__ constexpr bool divides(int tiles, int steps, int blocks) {
    const StreamK schedule(tiles, steps, blocks);
    int done = 0, longest = 0;
    for (int block = 0; block < blocks; ++block) {
        int left = 0, taken = 0, own = 0;
        for (auto work = schedule.first(block); work.steps > 0; work = schedule.after(work, block)) {
            if (work.tile < 0 || work.tile >= tiles || work.first < 0 || work.first + work.steps > steps) return false;
            own += work.steps;
            left += !work.has_last_step(steps);
            taken += !work.has_first_step();
            if (!work.has_first_step() && !work.has_last_step(steps)) return false;  // three blocks have one tile
            if (!work.has_last_step(steps)) {  // comes first, ahead of what waits; the rest is the next block's last
                if (taken > 0 || block + 1 == blocks) return false;
                auto last = schedule.first(block + 1);
                for (auto next = last; next.steps > 0; next = schedule.after(next, block + 1)) last = next;
                if (last.tile != work.tile || last.first != work.steps || !last.has_last_step(steps)) return false;
            }
        }
        if (left > 1 || taken > 1) return false;
        done += own;
        longest = own > longest ? own : longest;
    }
    const int even = (tiles * steps + blocks - 1) / blocks;
    return done == tiles * steps && (tiles < blocks ? longest == steps : longest == even);
}
// Tiles that two blocks have parts of.
__host__ __device__ constexpr int cut(int tiles, int steps, int blocks) {
    const StreamK schedule(tiles, steps, blocks);
    int found = 0;
    for (int block = 0; block < blocks; ++block) {
        for (auto work = schedule.first(block); work.steps > 0; work = schedule.after(work, block)) {
            found += !work.has_last_step(steps);
        }
    }
    return found;
}"""


def test_each_step_is_one_blocks_and_shares_are_even() -> None:
    """Of few tiles, and of sizes that are measured."""
    hold(
        DIVISION,
        *(
            f"divides({tiles}, {steps}, 4)"
            for tiles in (1, 3, 5, 8, 29)
            for steps in (1, 2, 3, 7, 16)
        ),
        "divides(512, 64, 132)",
        "divides(137, 33, 132)",
        "divides(40, 9, 132)",
    )


def test_the_head_of_the_hopper_file_counts_tiles_and_steps_at_4096() -> None:
    head = (HOPPER / "8_stream_k.cu").read_text().replace("\n// ", " ")
    ((rest, steps),) = re.findall(r"other (\d+) tiles have (\d+) steps of K each", head)
    ((blocks, share, longer),) = re.findall(
        r"cut into (\d+) shares of (\d+) or (\d+)", head
    )
    (cut,) = re.findall(r"each of the (\d+) tiles that are cut", head)
    schedule = f"StreamK(512, {steps}, {blocks})"
    hold(
        DIVISION,
        f"{schedule}.whole == 512 - {rest}",
        f"{schedule}.share == {share} && {schedule}.longer > 0 && {share} + 1 == {longer}",
        f"cut(512, {steps}, {blocks}) == {cut}",
    )
