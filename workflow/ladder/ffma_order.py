"""A pass over machine code: FFMAs in an order in which the reuse cache saves them the most register reads.

An FFMA reads three registers, and Hopper's two banks give one each a cycle, so that it takes two cycles unless one
factor is still in the reuse cache from the instruction before and the other two operands lie in different banks
(`sass.ffma_share` has the rule). ptxas chooses registers by that rule and the order less so. The pass keeps registers
and all other instructions, and looks for the order of the FFMAs between them that costs the fewest cycles.

Places keep their stall, yield and scoreboards; which operands are kept for the next instruction is set anew. FFMAs move
where registers, waits and latencies allow it, and `same_program` proves each result. What reordering can gain was first
shown by the assembler maxas (Scott Gray); order and search here are our own.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from ladder import sass
from ladder.same_program import FFMA_LATENCY, LONGEST_LATENCY, cycles_apart, mistakes, same_program, stretches

BEAM = 12
"""Orders that the search follows at a time."""

BRANCHES = 5
"""Continuations that it tries of each."""


@dataclass(frozen=True)
class _Zone:
    """FFMAs that may change places: no wait, label or impassable instruction lies between them.

    Members are numbered from 0; sets of them are bit masks.
    """

    places: tuple[int, ...]
    words: tuple[int, ...]
    allowed: tuple[int, ...]
    """For each place the members that may stand there."""
    due: tuple[tuple[tuple[int, int], ...], ...]
    """For each place pairs (members that may stand no further down than a later place, places left until there)."""
    after: tuple[int, ...]
    """For each member those that must come before it."""
    cheap: tuple[int, ...]
    """For each member those that cost one cycle right behind it."""
    entered: tuple[int, ...]
    """For each member those that it costs one cycle right behind."""


@dataclass(slots=True)
class _Order:
    """One order of the FFMAs so far, as a linked list, newest first."""

    cycles: int
    stranded: int
    """Members left that cost one cycle behind no other that is left."""
    remaining: int
    """Members of the zone that have no place yet."""
    member: int
    """The newest; -1 where it is of another zone."""
    place: int
    word: int
    recent: tuple[tuple[int, int], ...]
    """(cycle of issue, instruction) of FFMAs whose results are not there yet."""
    previous: _Order | None


def _bits(mask: int) -> Iterator[int]:
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def _kept_between(first: int, second: int) -> int:
    """Mask of the operands that `second` reads in the same place as `first`, which does not overwrite them."""
    written = sass.registers(first)[0]
    pairs = zip(sass.operands(first), sass.operands(second), strict=True)
    return sum(
        1 << place
        for place, (held, wanted) in enumerate(pairs)
        if held == wanted and held not in (sass.RZ, written)
    )


def _cycles_behind(first: int | None, second: int) -> int:
    """Cycles of `second` right behind the FFMA `first`, with everything kept that helps; None: something else."""
    if first is None:
        return sass.issue_cycles(second, sass.NOTHING_KEPT)
    return sass.issue_cycles(second, sass.kept_by(sass.with_reuse(first, _kept_between(first, second))))


def _zone_ranges(words: Sequence[int]) -> Iterator[range]:
    """Parts of the loops' straight stretches from one wait to the next."""
    looped = {index for body in sass.loops(words) for index in body}
    for stretch in stretches(words):
        first = stretch.start
        for index in [*stretch, stretch.stop]:
            if index == stretch.stop or (index > first and sass.waits(words[index])):
                if first in looped:
                    yield range(first, index)
                first = index


def _movable(word: int) -> bool:
    """Whether an FFMA may leave its place; one with a longer stall is there for a reason that is not ours to know."""
    return sass.is_register_ffma(word) and sass.stall(word) == 1


def _span(words: Sequence[int], issue: Sequence[int], zone: range, index: int) -> tuple[int, int]:
    """First and last place that the FFMA at `index` may take, by the instructions that stay where they are."""
    word = words[index]
    first, last = zone.start, zone.stop - 1
    near = range(max(0, zone.start - LONGEST_LATENCY), min(len(words), zone.stop + FFMA_LATENCY))
    for other in near:
        if _movable(words[other]) or not sass.depend(word, words[other]):
            continue
        if other < index:
            needed = min(cycles_apart(words[other], word), issue[index] - issue[other])
            while first <= other or issue[first] - issue[other] < needed:
                first += 1
        elif other > index:
            needed = min(cycles_apart(word, words[other]), issue[other] - issue[index])
            while last >= other or issue[other] - issue[last] < needed:
                last -= 1
    return first, last


def _zone(words: Sequence[int], issue: Sequence[int], stretch: range) -> _Zone | None:
    """The zone of a range of instructions; None where it has fewer than two FFMAs to move."""
    places = [index for index in stretch if sass.is_register_ffma(words[index])]
    if sum(_movable(words[index]) for index in places) < 2:
        return None
    own = tuple(words[index] for index in places)
    spans = [
        _span(words, issue, stretch, index) if _movable(words[index]) else (index, index) for index in places
    ]
    after, cheap, entered = [0] * len(own), [0] * len(own), [0] * len(own)
    for second, word in enumerate(own):
        for first, other in enumerate(own):
            if first == second:
                continue
            if first < second and sass.depend(other, word):
                after[second] |= 1 << first
            if _kept_between(other, word) and _cycles_behind(other, word) == 1:
                cheap[first] |= 1 << second
                entered[second] |= 1 << first
    # What must come before another is due before it.
    for second in reversed(range(len(own))):
        end = places[bisect_left(places, spans[second][1]) - 1] if after[second] else 0
        for first in _bits(after[second]):
            spans[first] = spans[first][0], min(spans[first][1], end)
    allowed = tuple(
        sum(1 << member for member, (first, last) in enumerate(spans) if first <= place <= last)
        for place in places
    )
    ends = sorted({last for _, last in spans if last < places[-1]})
    bound = [(end, sum(1 << member for member, (_, last) in enumerate(spans) if last <= end)) for end in ends]
    due = tuple(
        tuple(
            (members, sum(place <= other <= end for other in places))
            for end, members in bound
            if end >= place
        )
        for place in places
    )
    return _Zone(tuple(places), own, allowed, due, tuple(after), tuple(cheap), tuple(entered))


def _candidates(zone: _Zone, step: int, order: _Order, behind: int | None, cycle: int) -> list[int]:
    """Members that may take the next place, most promising first: cheap ones, then those that few others lead to.

    `behind` is the FFMA just before, if there is one.
    """
    remaining = order.remaining
    choice = remaining & zone.allowed[step]
    for members, left in zone.due[step]:
        if (remaining & members).bit_count() >= left:
            choice &= members
            break
    ready = [member for member in _bits(choice) if not zone.after[member] & remaining]
    early = {
        member
        for member in ready
        if any(cycle - issued < cycles_apart(other, zone.words[member]) for issued, other in order.recent)
    }
    # Where all come too early they may have done so before; `same_program` knows.
    ready = [member for member in ready if member not in early] or ready
    if behind is not None and order.member >= 0 and order.place == zone.places[step] - 1:
        cheap = [member for member in ready if zone.cheap[order.member] >> member & 1]
        ready = cheap or ready

    def promise(member: int) -> tuple[int, int, int]:
        cycles = _cycles_behind(behind, zone.words[member])
        return cycles, (zone.entered[member] & remaining).bit_count(), member

    return sorted(ready, key=promise)[:BRANCHES]


def _placed(zone: _Zone, step: int, order: _Order, behind: int | None, member: int, cycle: int) -> _Order:
    """`order` with `member` at the next place, which issues at `cycle`."""
    word = zone.words[member]
    remaining = order.remaining & ~(1 << member)
    recent = tuple(entry for entry in order.recent if cycle - entry[0] < FFMA_LATENCY)
    cycles = order.cycles + _cycles_behind(behind, word)
    stranded = order.stranded - (not zone.entered[member] & order.remaining)
    stranded += sum(not zone.entered[other] & remaining for other in _bits(zone.cheap[member] & remaining))
    return _Order(
        cycles, stranded, remaining, member, zone.places[step], word, (*recent, (cycle, word)), order
    )


def _search(words: Sequence[int], zones: Sequence[_Zone], issue: Sequence[int]) -> dict[int, int] | None:
    """The cheapest order found for neighbouring zones: instruction by place. None where all came to a dead end."""
    beam = [_Order(0, 0, 0, -1, -1, 0, (), None)]
    for zone in zones:
        everything = (1 << len(zone.places)) - 1
        stranded = sum(not entered for entered in zone.entered)
        beam = [
            replace(order, remaining=everything, stranded=stranded, member=-1, previous=order)
            for order in beam
        ]
        starts = sum(not sass.is_register_ffma(words[place - 1]) for place in zone.places)
        for step, place in enumerate(zone.places):
            first_of_run = not sass.is_register_ffma(words[place - 1])
            starts -= first_of_run
            found: dict[tuple[int, int], tuple[tuple[int, int], _Order]] = {}
            for order in beam:
                behind = (
                    None if first_of_run else order.word if order.place == place - 1 else words[place - 1]
                )
                for member in _candidates(zone, step, order, behind, issue[place]):
                    follows = _placed(zone, step, order, behind, member, issue[place])
                    # What is stranded costs a cycle more, except at the start of a run, which costs it anyway.
                    rank = (follows.cycles + max(0, follows.stranded - starts), follows.stranded)
                    key = (follows.remaining, member)
                    if key not in found or rank < found[key][0]:
                        found[key] = rank, follows
            beam = [order for _, order in sorted(found.values(), key=lambda entry: entry[0])[:BEAM]]
    if not beam:
        return None
    chosen: dict[int, int] = {}
    last: _Order | None = min(beam, key=lambda order: order.cycles)
    while last is not None and last.place >= 0:
        chosen[last.place] = last.word
        last = last.previous
    return chosen


def _keep_anew(before: Sequence[int], after: list[int]) -> None:
    """Set which operands are kept in every run of FFMAs that changed, and nowhere else."""
    index = 0
    while index < len(after):
        first = index
        while index < len(after) and sass.is_register_ffma(after[index]):
            index += 1
        if list(before[first:index]) != after[first:index]:
            for at in range(first, index):
                kept = _kept_between(after[at], after[at + 1]) if at + 1 < index else 0
                after[at] = sass.with_reuse(after[at], kept)
        index = max(index, first + 1)


def _reordered(words: Sequence[int], chosen: dict[int, int]) -> list[int]:
    """Instructions with those of `chosen` at their places, whose control fields stay."""
    after = list(words)
    for place, word in chosen.items():
        if word != words[place]:
            after[place] = word & ~sass.CONTROL_BITS | words[place] & sass.CONTROL_BITS
    _keep_anew(words, after)
    return after


def sorted_words(words: Sequence[int]) -> list[int]:
    """Instructions of a kernel with the FFMAs of its loops sorted; what does not get cheaper stays as it is."""
    result = list(words)
    if sass.jumps_indirectly(words):
        return result
    issue = [0, *accumulate(map(sass.stall, words))]
    by_stretch: dict[int, list[_Zone]] = {}
    starts = sorted(stretch.start for stretch in stretches(words))
    for part in _zone_ranges(words):
        if (zone := _zone(words, issue, part)) is not None:
            by_stretch.setdefault(starts[bisect_right(starts, part.start) - 1], []).append(zone)
    for zones in by_stretch.values():
        while zones:
            chosen = _search(words, zones, issue)
            if chosen is None:
                break
            after = _reordered(words, chosen)
            wrong = {index for index, _ in mistakes(words, after)}
            if not wrong:
                span = slice(zones[0].places[0], zones[-1].places[-1] + 2)
                if sass.loop_cycles(after[span]) < sass.loop_cycles(words[span]):
                    result[span] = after[span]
                break
            # The end of one zone and the start of another are too near: both stay as they are.
            kept = [zone for zone in zones if wrong.isdisjoint(zone.places)]
            zones = kept if len(kept) < len(zones) else []
    return result


def sort_ffmas(cubin: bytes) -> bytes:
    """The cubin with the FFMAs of its loops in the cheapest order found; the same bytes where none is cheaper.

    Raises LadderError for another architecture than sm_90, and where the result would not be the same program.
    """
    after = cubin
    for code in sass.machine_code(cubin):
        after = sass.with_words(after, code, sorted_words(code.words))
    same_program(cubin, after)
    return after
