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

Estimate = tuple[float, float, float]
"""A ratio with its 95 % interval: (value, low, high)."""


def longer(candidate: Mapping[str, Any], winner: Mapping[str, Any]) -> Estimate:
    """By which factor a candidate takes longer than the winner, over the groups that both were timed in.

    Earlier records lack `fastest_us`: there all candidates were in the same groups.
    """
    fastest_us = _fastest_us(candidate, winner)
    both = min(len(candidate["us"]), len(fastest_us))
    return ratio_interval(abba_ratios(fastest_us[:both], candidate["us"][:both]))


def _fastest_us(
    candidate: Mapping[str, Any], winner: Mapping[str, Any]
) -> Sequence[float]:
    """The winner's times in pairs with this candidate."""
    times: Sequence[float] = candidate.get("fastest_us", winner["us"])
    return times


def _share(candidate: Mapping[str, Any], winner: Mapping[str, Any]) -> float:
    """How many times as long as the winner a candidate takes, by medians."""
    share: float = median(candidate["us"]) / median(_fastest_us(candidate, winner))
    return share


def ties(ratio: Estimate) -> bool:
    """Whether a candidate that takes so many times as long as the fastest may be the faster one in the next session."""
    value, low, _ = ratio
    return low <= 1.0 or math.log(value) < SESSION


def _winner(candidates: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The one that all others were paired with, in earlier records the one with the least median."""
    unpaired = [candidate for candidate in candidates if "fastest_us" not in candidate]
    return min(unpaired, key=lambda candidate: median(candidate["us"]))


def partner(candidate: Mapping[str, Any]) -> Partner:
    """What a candidate, or a result, names."""
    return Partner(candidate["reference"], candidate["algorithm"])


def decide(candidates: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What a record says of its candidates, each with `reference`, `algorithm` and its times `us`, two a group.

    `reference` and `algorithm` of the winner; `runner_up`, None if it is alone, with by which factor it takes
    longer and the interval of that (`longer`, `longer_low`, `longer_high`); `tied`: all that tie with the winner.
    """
    winner = _winner(candidates)
    others = [candidate for candidate in candidates if candidate is not winner]
    others.sort(key=lambda candidate: _share(candidate, winner))
    runner_up, tied = None, []
    for candidate in others:
        value, low, high = longer(candidate, winner)
        name = asdict(partner(candidate))
        if runner_up is None:
            interval = {"longer": value, "longer_low": low, "longer_high": high}
            runner_up = name | interval
        if ties((value, low, high)):
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
