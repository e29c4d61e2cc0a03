"""What the assembly of an AMD kernel, as Clang writes it, says: registers, occupancy, and where its main loop waits."""

import functools
import math
import re
from collections.abc import Sequence
from typing import Any

SIMDS, LANES, LDS_BYTES, LDS_STEP = 4, 64, 65536, 512
"""SIMDs of a compute unit, lanes of a wave, shared memory (LDS) of a compute unit, and what a block's is rounded to."""
PASSES = 8
"""Passes of a loop in which a load must have its wait."""

_NUMBERS = {
    "vgprs": "NumVgprs",
    "agprs": "NumAgprs",
    "sgprs": "NumSgprs",
    "vgpr_spills": "vgpr_spill_count",
    "sgpr_spills": "sgpr_spill_count",
    "scratch_bytes": "private_segment_fixed_size",
    "lds_bytes": "group_segment_fixed_size",
    "waves_per_simd": "Occupancy",
}
"""Column -> the compiler's name."""


def resources(isa: str, threads: int, shared_bytes: int) -> dict[str, Any]:
    """Registers and occupancy of a block of `threads` that asks for `shared_bytes` beside static shared memory."""
    numbers = dict[str, Any]()
    for column, name in _NUMBERS.items():
        numbers[column] = int(re.findall(rf"^\W*{name}: +(\d+)", isa, re.MULTILINE)[0])
    numbers["lds_bytes"] += shared_bytes
    # The compiler's occupancy knows of no shared memory that a launch asks for, and counts parts of blocks.
    waves = math.ceil(threads / LANES)
    blocks = numbers["waves_per_simd"] * SIMDS // waves
    if numbers["lds_bytes"]:
        blocks = min(
            blocks, LDS_BYTES // (math.ceil(numbers["lds_bytes"] / LDS_STEP) * LDS_STEP)
        )
    whole = {"waves_per_simd": f"{blocks * waves / SIMDS:g}", "blocks_per_cu": blocks}
    return numbers | whole | {"threads": threads}


def fmas(line: str) -> int:
    """Products that a lane adds up by one instruction; where product and sum are two, the product counts."""
    product = re.match(r"v_(pk_)?(?:fma|fmac|mac|mad|mul)_f32", line)
    if not product:
        return 0
    return 2 if product[1] else 1


def _blocks(isa: str) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Instructions of each basic block, in the order of the listing, and the header of the innermost loop around it."""
    blocks, loops, name = dict[str, list[str]](), dict[str, str](), ""
    for line in isa.splitlines():
        if label := re.match(r"(?:\.L|; %)(BB\d+_\d+|bb\.\d+):", line):
            name = label[1]
            blocks[name] = []
        if inside := re.search(r"in Loop: Header=(\w+)|Inner Loop Header", line):
            loops[name] = inside[1] or name
        if name and (instruction := re.match(r"\t([a-z]\w+[^;]*)", line)):
            blocks[name].append(instruction[1].strip())
    return blocks, loops


def main_loop(isa: str) -> list[str]:
    """Instructions of one pass of the innermost loop with the most FMAs, in the order in which they run.

    Of the ways through the loop the longest: guards let loads pass. Empty where no loop has FMAs.
    """
    blocks, loops = _blocks(isa)
    work = dict.fromkeys(loops.values(), 0)
    for name, header in loops.items():
        work[header] += sum(map(fmas, blocks[name]))
    if not any(work.values()):
        return []
    header = max(work, key=lambda loop: work[loop])
    next_in_listing = dict(zip(blocks, [*blocks][1:], strict=False))

    @functools.cache
    def longest(name: str) -> tuple[str, ...]:
        lines = blocks[name]
        targets = re.findall(r"^s_c?branch.*\.L(\w+)$", "\n".join(lines), re.MULTILINE)
        if not lines or not lines[-1].startswith("s_branch"):
            targets.append(next_in_listing[name])
        ways = [
            longest(target)
            for target in targets
            if loops.get(target) == header != target
        ]
        return (*lines, *max(ways, key=len, default=()))

    return [*longest(header)]


def waits(path: Sequence[str]) -> dict[str, Any]:
    """Where a loop, whose pass is `path`, waits for what it loads from global memory.

    `vmcnt(n)` waits until all but the n newest accesses to memory are done. So the wait for a load is the first one
    whose n is no more than the accesses behind that load, in its own pass or in a later one.
    """
    loads = [at for at, line in enumerate(path) if line.startswith("global_load")]
    before, counts = list[int](), dict[int, str]()
    for load in loads:
        accesses = passed = 0
        for at in range(load + 1, PASSES * len(path)):
            line = path[at % len(path)]
            wait = re.match(r"s_waitcnt.*vmcnt\((\d+)\)", line)
            if wait and int(wait[1]) <= accesses:
                before.append(passed)
                counts[at % len(path)] = wait[1]
                break
            accesses += bool(
                re.match(r"(global|flat|buffer|scratch)_(load|store|atomic)", line)
            )
            passed += fmas(line)
    behind_first = [*path[min(counts, default=0) :], *path]
    users = (
        line
        for line in behind_first
        if fmas(line) or line.startswith(("ds_write", "s_barrier"))
    )
    return {
        "loop_instructions": len(path),
        "loop_fmas": sum(map(fmas, path)),
        "loop_loads": len(loads),
        "loop_flat_loads": sum(line.startswith("flat_load") for line in path),
        "vmcnt": " ".join(counts[at] for at in sorted(counts)),
        "fmas_before_wait": min(before, default=None),
        "wait_ahead_of": next(users, "").split(" ")[0] if counts else None,
    }
