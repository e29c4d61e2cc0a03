"""The choice of a reference: which of several libraries and algorithms is the fastest, and what ties with it.

Its record holds the times of all that were close, in pairs with the winner. So the choice has an interval, and every
session that is held against these operands has the same partner.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ladder.model.cell import Partner
from ladder.model.intervals import abba_ratios, median, ratio_interval

CLOSE = 0.02
"""What takes longer than the fastest by a greater share is out of the running."""
SESSION = 0.0059
"""Standard deviation of log speed-ups over libraries from session to session on one GPU: what is closer is a tie.

Source: the published sessions of H200s, 653 pairs of sessions on one GPU, over all classes.
"""

Candidate = Mapping[str, Any]
"""`reference` and `algorithm`, its times `us`, two a group, and the winner's in pairs with them (`fastest_us`).

Earlier records lack `fastest_us`: there all candidates were in the same groups.
"""


def _fastest_us(candidate: Candidate, winner: Candidate) -> list[float]:
    """The winner's times in pairs with this candidate."""
    return [*candidate.get("fastest_us", winner["us"])]


def _longer(candidate: Candidate, winner: Candidate) -> tuple[float, float, float]:
    """By which factor a candidate takes longer than the winner, with its 95 % interval: (value, low, high).

    It is over the groups that both were timed in.
    """
    fastest_us = _fastest_us(candidate, winner)
    both = min(len(candidate["us"]), len(fastest_us))
    return ratio_interval(abba_ratios(fastest_us[:both], candidate["us"][:both]))


def _share(candidate: Candidate, winner: Candidate) -> float:
    """How many times as long as the winner a candidate takes, by medians."""
    us: float = median(candidate["us"])
    return us / median(_fastest_us(candidate, winner))


def _winner(candidates: Sequence[Candidate]) -> Candidate:
    """The one that all others were paired with, in earlier records the one with the least median."""
    unpaired = [candidate for candidate in candidates if "fastest_us" not in candidate]
    return min(unpaired, key=lambda candidate: median(candidate["us"]))


def partner(candidate: Candidate) -> Partner:
    """What a candidate, or a result, names; it has no reference where none was to be had."""
    algorithm = candidate.get("algorithm") or ""
    return Partner(candidate.get("reference", ""), algorithm)


def decide(candidates: Sequence[Candidate]) -> dict[str, Any]:
    """What a record says of its candidates.

    `reference` and `algorithm` of the winner; `runner_up`, None if it is alone, with by which factor it takes
    longer and the interval of that (`longer`, `longer_low`, `longer_high`); `tied`: all that may be the faster ones in
    the next session.
    """
    winner = _winner(candidates)
    others = [candidate for candidate in candidates if candidate is not winner]
    others.sort(key=lambda candidate: _share(candidate, winner))
    runner_up = None
    tied = []
    for candidate in others:
        value, low, high = _longer(candidate, winner)
        name = asdict(partner(candidate))
        if runner_up is None:
            interval = {"longer": value, "longer_low": low, "longer_high": high}
            runner_up = name | interval
        if low <= 1.0 or math.log(value) < SESSION:
            tied.append(name)
    return asdict(partner(winner)) | {"runner_up": runner_up, "tied": tied}


def library_times(result: Mapping[str, Any]) -> dict[str, float]:
    """The time in us of each library by its fastest algorithm; of those that were not close a quick one."""
    winner = _winner(result["candidates"])
    winner_us = median(winner["us"])
    close = dict[str, float]()
    for candidate in result["candidates"]:
        name = candidate["reference"]
        us = winner_us * _share(candidate, winner)
        close[name] = min(us, close.get(name, math.inf))
    return {**result["references"], **close}


def partners(result: Mapping[str, Any]) -> list[Partner]:
    """The winner of a choice and what ties with it; either may be a cell's reference."""
    return [partner(candidate) for candidate in (result, *result["tied"])]


def choice_in_words(result: Mapping[str, Any]) -> str:
    """The winner of a choice, for a person, and how far behind the next one is."""
    second = result["runner_up"]
    if second is None:
        return f"{partner(result)}, which is alone"
    behind = f"{partner(second)} takes {second['longer']:.4f} times as long"
    tied = f", {len(result['tied'])} tied" if result["tied"] else ""
    return f"{partner(result)}, {behind}{tied}"
