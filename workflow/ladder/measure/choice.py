"""The choice of a reference: which of several libraries and algorithms is the fastest, and what ties with it.

Its record holds the times of all that were close, from interleaved groups. So the choice has an interval, and every
session that is held against these operands has the same partner.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ladder.model.cell import Partner
from ladder.model.intervals import abba_ratios, median, ratio_interval

CLOSE = 0.02
"""What takes longer than the fastest by a greater share is out of the running."""
SESSION = 0.0059
"""Standard deviation of log speed-ups over libraries from session to session on one GPU: what is closer is a tie.

Source: the published sessions of H200s, 653 pairs of sessions on one GPU, by `prediction.components` over all classes.
"""

Estimate = tuple[float, float, float]
"""A ratio with its 95 % interval: (value, low, high)."""


def longer(us: Sequence[float], fastest_us: Sequence[float]) -> Estimate:
    """By which factor a candidate takes longer than the fastest, over the groups that both were timed in."""
    both = min(len(us), len(fastest_us))
    return ratio_interval(abba_ratios(fastest_us[:both], us[:both]))


def ties(ratio: Estimate) -> bool:
    """Whether a candidate that takes so many times as long as the fastest may be the faster one in the next session."""
    value, low, _ = ratio
    return low <= 1.0 or math.log(value) < SESSION


def decide(candidates: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What a record says of its candidates, each with `reference`, `algorithm` and its times `us`, two a group.

    `reference` and `algorithm` of the winner; `runner_up`, None if it is alone, with by which factor it takes
    longer and the interval of that (`longer`, `longer_low`, `longer_high`); `tied`: all that tie with the winner.
    """
    ordered = sorted(candidates, key=lambda one: median(one["us"]))
    winner, *others = ordered
    ratios = [longer(one["us"], winner["us"]) for one in others]
    found: dict[str, Any] = {name: winner[name] for name in ("reference", "algorithm")}
    found["runner_up"] = None
    if others:
        value, low, high = ratios[0]
        second = {name: others[0][name] for name in ("reference", "algorithm")}
        found["runner_up"] = {**second, "longer": value, "longer_low": low, "longer_high": high}
    found["tied"] = [
        {name: one[name] for name in ("reference", "algorithm")}
        for one, ratio in zip(others, ratios, strict=True)
        if ties(ratio)
    ]
    return found


def library_times(result: Mapping[str, Any]) -> dict[str, float]:
    """The time in us of each library by its fastest algorithm; of those that were not close a quick one."""
    close = dict[str, float]()
    for one in result["candidates"]:
        close[one["reference"]] = min(median(one["us"]), close.get(one["reference"], math.inf))
    return {**result["references"], **close}


def partners(result: Mapping[str, Any]) -> list[Partner]:
    """The winner of a choice and what ties with it; either may be a cell's reference."""
    return [Partner(one["reference"], one["algorithm"]) for one in (result, *result["tied"])]


def choice_in_words(result: Mapping[str, Any]) -> str:
    """The winner of a choice, for a person, and how far behind the next one is."""
    winner, *tied = partners(result)
    if (second := result["runner_up"]) is None:
        return f"{winner}, which is alone"
    behind = f"{Partner(second['reference'], second['algorithm'])} takes {second['longer']:.4f} times as long"
    return f"{winner}, {behind}" + (f", {len(tied)} tied" if tied else "")
