"""Proof that machine code with its FFMAs in another order is the same program, from decoded instructions alone.

It knows nothing of how the order was found. Code is taken as stretches of instructions that only run from the first to
the last: what begins at a label or behind a branch. In each of them, before and after:

- everything but FFMAs of registers stands where it stood, bit for bit;
- the FFMAs are the same ones, and each place keeps its stall, yield and scoreboards;
- every register sees the same writes in the same order, and the same reads between them, so that each operand is the
  result that it was;
- no FFMA stands ahead of a wait that it stood behind, and none has passed an instruction outside of `sass.PASSABLE`;
- dependent instructions are as far apart as they were, or far enough for any fixed latency, on every path;
- an operand is kept for the next instruction only where that one reads it in the same place.
"""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from ladder import sass
from ladder.errors import LadderError

FFMA_LATENCY = 6
"""Cycles after which the result of an FFMA is there: 4 on sm_90, and two to spare."""

OTHER_LATENCY = 16
"""Cycles after which the result of any other known instruction is there that sets no scoreboard."""

LONGEST_LATENCY = 64
"""The same for what is not known, such as matrix instructions."""


@functools.cache
def cycles_apart(first: int, second: int) -> int:
    """Cycles after which `second` may issue behind `first` where nothing but the distance protects it; 0 for any."""
    if not sass.depend(first, second):
        return 0
    if not sass.known(first):
        return LONGEST_LATENCY
    if sass.write_scoreboard(first) is not None:
        return 0
    if not sass.is_register_ffma(first):
        return OTHER_LATENCY
    if sass.known(second) and sass.accesses(first)[0].isdisjoint(frozenset().union(*sass.accesses(second))):
        # Only `second` writes. Instructions read their operands in order, long before the next one's result is there.
        return 1 if sass.is_register_ffma(second) else 2
    return FFMA_LATENCY


def labels(words: Sequence[int]) -> set[int]:
    """Indices that a branch leads to."""
    found = (sass.branch_target(index, word) for index, word in enumerate(words))
    return {target for target in found if target is not None}


def stretches(words: Sequence[int]) -> Iterator[range]:
    """Ranges of instructions that are entered only at the first; whatever is not in `sass.PASSABLE` ends one."""
    entered = labels(words)
    first = 0
    for index, word in enumerate(words):
        if index in entered and index > first:
            yield range(first, index)
            first = index
        if sass.family(word) not in sass.PASSABLE:
            yield range(first, index + 1)
            first = index + 1
    if first < len(words):
        yield range(first, len(words))


def _distances(words: Sequence[int], index: int, limit: int) -> dict[int, int]:
    """Instructions that can issue less than `limit` cycles after the one at `index`, and the cycles until they do."""
    found: dict[int, int] = {}
    todo = [(index, 0)]
    while todo:
        at, cycles = todo.pop()
        cycles += sass.stall(words[at])
        if cycles >= limit:
            continue
        for following in sass.successors(at, words[at]):
            if 0 <= following < len(words) and cycles < found.get(following, limit):
                found[following] = cycles
                todo.append((following, cycles))
    return found


def _places(before: Sequence[int], after: Sequence[int]) -> list[int] | None:
    """Where each instruction of `after` stood; None where they are not the same ones. Equal FFMAs keep their order."""
    stood: defaultdict[int, list[int]] = defaultdict(list)
    for index in reversed(range(len(before))):
        stood[before[index] & ~sass.CONTROL_BITS].append(index)
    places = []
    for word in after:
        known = stood[word & ~sass.CONTROL_BITS]
        if not known:
            return None
        places.append(known.pop())
    return places


def _histories(
    words: Sequence[int], places: Sequence[int]
) -> dict[int, list[tuple[int | None, Counter[int]]]]:
    """Of each register, the writes in order, and the reads that follow each of them before the next."""
    seen: defaultdict[int, list[tuple[int | None, Counter[int]]]] = defaultdict(lambda: [(None, Counter())])
    for word, place in zip(words, places, strict=True):
        written, read = sass.accesses(word)
        for register in read:
            seen[register][-1][1][place] += 1
        for register in written:
            seen[register].append((place, Counter()))
    return seen


def _check_stretch(before: Sequence[int], after: Sequence[int], first: int) -> Iterator[tuple[int, str]]:
    """Mistakes within one stretch that begins at `first`."""
    for index, (old, new) in enumerate(zip(before, after, strict=True)):
        if old == new:
            continue
        if not (sass.is_register_ffma(old) and sass.is_register_ffma(new)):
            yield first + index, "an instruction changed that is no FFMA of registers"
            return
        if (old ^ new) & sass.FIXED_CONTROL_BITS:
            yield first + index, "stall, yield or scoreboards moved from their place"
    places = _places(before, after)
    if places is None:
        yield first, "the FFMAs are not the same ones"
        return
    old_histories, new_histories = _histories(before, range(len(before))), _histories(after, places)
    for register, history in old_histories.items():
        if new_histories[register] != history:
            moved = next(
                index
                for index, place in enumerate(places)
                if index != place and _touches(after[index], register)
            )
            yield first + moved, f"R{register} is written or read in another order"
    passed = [0]
    for word in before:
        passed.append(passed[-1] + (sass.waits(word) != 0))
    for index, place in enumerate(places):
        if passed[index + 1] < passed[place + 1]:
            yield first + index, "an FFMA comes ahead of a wait that it stood behind"


def _touches(word: int, register: int) -> bool:
    written, read = sass.accesses(word)
    return register in written or register in read


def mistakes(before: Sequence[int], after: Sequence[int]) -> list[tuple[int, str]]:
    """What is wrong with `after`: (index of an instruction, reason). Empty where it is the same program as `before`."""
    if len(before) != len(after):
        return [(0, "the number of instructions differs")]
    before, after = tuple(before), tuple(after)
    found: list[tuple[int, str]] = []
    places = list(range(len(before)))
    changed: set[int] = set()
    for stretch in stretches(before):
        old, new = before[stretch.start : stretch.stop], after[stretch.start : stretch.stop]
        if old == new:
            continue
        changed.update(stretch)
        wrong = list(_check_stretch(old, new, stretch.start))
        found += wrong
        if not wrong:
            own = _places(old, new) or []
            places[stretch.start : stretch.stop] = [stretch.start + place for place in own]
    if found:
        return found
    if sass.jumps_indirectly(before) and changed:
        return [(min(changed), "labels are not all known where a jump goes through a register")]
    return [*_nearer(before, after, places, changed), *_kept_for_nobody(before, after, changed)]


def _nearer(
    before: Sequence[int], after: Sequence[int], places: Sequence[int], changed: set[int]
) -> Iterator[tuple[int, str]]:
    """Dependent pairs that are nearer than they were, and than the first one's latency, on any path."""
    moved = {index for index in changed if places[index] != index}
    near = {at + reach for at in changed for reach in range(-LONGEST_LATENCY, 1)}
    near |= {
        index - back
        for index, word in enumerate(before)
        if (target := sass.branch_target(index, word)) is not None and target in near
        for back in range(LONGEST_LATENCY)
    }
    for index in sorted(at for at in near if 0 <= at < len(after)):
        first = after[index]
        limit = FFMA_LATENCY if sass.is_register_ffma(first) else LONGEST_LATENCY
        old_distances: dict[int, int] | None = None
        for other, cycles in _distances(after, index, limit).items():
            if index not in moved and other not in moved:
                continue
            needed = cycles_apart(first, after[other])
            if cycles >= needed:
                continue
            if old_distances is None:
                old_distances = _distances(before, places[index], limit)
            old = min(needed, old_distances.get(places[other], needed))
            if cycles < old:
                which = index if index in moved else other
                yield which, f"a dependent instruction is {cycles} cycles away instead of {old}"


def _kept_for_nobody(
    before: Sequence[int], after: Sequence[int], changed: set[int]
) -> Iterator[tuple[int, str]]:
    """FFMAs whose own or next instruction changed and that keep an operand which the next one does not read there."""
    for index in sorted(changed):
        word = after[index]
        if not sass.is_register_ffma(word) or before[index : index + 2] == after[index : index + 2]:
            continue
        following = after[index + 1] if index + 1 < len(after) else 0
        read = sass.operands(following) if sass.is_ffma(following) else sass.NOTHING_KEPT
        for place, (kept, wanted) in enumerate(zip(sass.kept_by(word), read, strict=True)):
            if kept != sass.RZ and (kept != wanted or kept == sass.registers(word)[0]):
                yield index, f"operand {place} is kept (.reuse) for an instruction that does not read it"
        if sass.reuse(word) & 8:
            yield index, "a fourth operand is kept (.reuse)"


def same_program(before: bytes, after: bytes) -> None:
    """Raise LadderError unless `after` is `before` with only its FFMAs in another order, and computes the same."""
    if len(before) != len(after):
        raise LadderError("the cubins differ in size")
    old_code, new_code = sass.machine_code(before), sass.machine_code(after)
    restored = after
    for old, new in zip(old_code, new_code, strict=True):
        restored = sass.with_words(restored, new, old.words)
        for index, reason in mistakes(old.words, new.words):
            raise LadderError(f"{old.section}, instruction {index} at {16 * index:#x}: {reason}")
    if restored != before:
        raise LadderError("the cubins differ outside of their instructions")
