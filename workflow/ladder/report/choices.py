"""What to use: of each dtype and layout the configuration that is fastest at a square size."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ladder.model.cell import SUSTAINED
from ladder.model.problem import ELEMENT_BYTES
from ladder.results.collect import PRODUCTS_SWEEP
from ladder.results.run_data import Row, RunData
from ladder.results.verdicts import Gain, gain

THREE_PRODUCTS = "fp32 by 3xTF32"
_CLOSE = 0.005  # share of the speed by which single sessions differ
_DTYPES = tuple(ELEMENT_BYTES)  # the widest first


Place = tuple[str, str, tuple[int, ...]]
"""Kind (a dtype, or THREE_PRODUCTS), layout, and M, N and K of a GEMM."""


@dataclass(frozen=True)
class Held:
    """A configuration launched for seconds without a pause, and the same one in single launches."""

    row: Row
    single: Row

    @property
    def loss(self) -> float:
        """Share of its speed that it loses so."""
        return float(1 - self.row["tflops"] / self.single["tflops"])


@dataclass(frozen=True)
class Choice:
    """The fastest configuration over the libraries at M = N = K = `size` in single launches.

    `held` is the fastest for seconds, whichever it is, and `slowed` the fastest for seconds of those that also have a
    result in single launches; None where none was launched so.
    """

    kind: str
    layout: str
    size: int
    row: Row
    held: Row | None
    slowed: Held | None

    @property
    def gain(self) -> Gain:
        return gain(self.row)

    @property
    def same(self) -> bool:
        """Whether one configuration is the fastest both ways."""
        return self.held is not None and self.held["variant"] == self.row["variant"]


@functools.lru_cache(2)
def choices(data: RunData) -> Sequence[Choice]:
    """Every dtype, layout and square size with a result against libraries, the widest dtype first."""
    sustained = _ranked(data, SUSTAINED)
    chosen = []
    for place, rows in _ranked(data).items():
        kind, layout, size = place
        if len({*size}) > 1:
            continue
        single = {row["variant"]: row for row in rows}
        held = sustained.get(place, [])
        pairs = [
            Held(row, single[row["variant"]])
            for row in held
            if row["variant"] in single
        ]
        slowed = max(pairs, key=lambda pair: pair.row["speedup"], default=None)
        longest = held[0] if held else None
        chosen.append(Choice(kind, layout, size[0], rows[0], longest, slowed))
    return chosen


def rankings(data: RunData) -> list[tuple[Place, list[Row]]]:
    """The rows of every place and regime of GEMMs against libraries: what to use there, then the next."""
    return [*_ranked(data).items(), *_ranked(data, SUSTAINED).items()]


def _ranked(data: RunData, regime: str = "") -> Mapping[Place, list[Row]]:
    """GEMMs over most libraries in a regime, or in the first of their sweeps: the one to use ahead, then the fastest.

    Of a tuning sweep only what was measured again after the choice counts.
    """
    wanted = {"regime": regime} if regime else {}
    places: dict[Place, list[Row]] = {}
    # By name, so that the order of a run's sweeps does not matter.
    for sweep in sorted(data.against_libraries, key=lambda sweep: sweep.name):
        for row in data.timed(sweep.name, **wanted).rows:
            if sweep.tuning and not regime and row.get("fresh") is not True:
                continue
            kind = THREE_PRODUCTS if sweep.name == PRODUCTS_SWEEP else row["dtype"]
            place = kind, row.get("layout", ""), tuple(row.size.values())
            places.setdefault(place, []).append(row)
    in_order = sorted(
        places, key=lambda place: (_DTYPES.index(place[0].split()[0]), place)
    )
    return {place: _by_speed(data, places[place]) for place in in_order}


def _by_speed(data: RunData, rows: Sequence[Row]) -> list[Row]:
    """Of each configuration the row with the most sessions; the surest of the fastest ahead.

    Of configurations that are as fast within half a percent the surest is the one with the most sessions.
    """
    by_variant = dict[str, Row]()
    for row in sorted(rows, key=_sessions, reverse=True):
        by_variant.setdefault(row["variant"], row)
    ranked = data.over_most_libraries([*by_variant.values()])
    ranked.sort(key=lambda row: -row["speedup"])
    least = ranked[0]["speedup"] * (1 - _CLOSE)
    close = [row for row in ranked if row["speedup"] >= least]
    surest = max(close, key=_sessions)
    return [surest, *(row for row in ranked if row is not surest)]


def _sessions(row: Row) -> int:
    return int(row.get("sessions", 1))
