"""What to use: of each dtype and layout the configuration that is fastest at a square size."""

import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ladder.model.cell import SUSTAINED
from ladder.model.problem import ELEMENT_BYTES
from ladder.results.run_data import Row, RunData
from ladder.results.verdicts import Gain, gain

PRODUCTS_SWEEP = "fp32_tensor"  # GEMMs with FP32 accuracy by three products of TF32
THREE_PRODUCTS = "fp32 by 3xTF32"
_CLOSE = 0.005  # share of the speed by which single sessions differ
_DTYPES = tuple(ELEMENT_BYTES)  # the widest first


Place = tuple[str, str, tuple[int, ...]]
"""Kind, layout, and M, N and K of a GEMM."""


@dataclass(frozen=True)
class Held:
    """A configuration launched for seconds without a pause, and the same one in single launches."""

    row: Row
    cold: Row

    @property
    def loss(self) -> float:
        """Share of its speed that it loses so."""
        return float(1 - self.row["tflops"] / self.cold["tflops"])


@dataclass(frozen=True)
class Choice:
    """The fastest configuration over the libraries at M = N = K = `size` in single launches.

    `held` is the fastest for seconds, whichever it is; None where none was launched so.
    """

    kind: str  # dtype, or THREE_PRODUCTS
    layout: str
    size: int
    row: Row
    held: Row | None

    @property
    def rows(self) -> list[Row]:
        return [row for row in (self.row, self.held) if row is not None]

    @property
    def gain(self) -> Gain:
        return gain(self.row)

    @property
    def same(self) -> bool:
        """Whether both are one configuration."""
        return self.held is not None and self.held["variant"] == self.row["variant"]


@functools.lru_cache(2)
def choices(data: RunData) -> Sequence[Choice]:
    """Every dtype, layout and square size with a result against libraries, the widest dtype first.

    Of a tuning sweep only what was measured again after the choice counts, of one configuration the row with the most
    sessions, and of configurations that are as fast within half a percent the one with the most.
    """
    cold, held = _by_place(data, _usual_regime(data)), _by_place(data, SUSTAINED)
    found = []
    for place, rows in _in_order(cold):
        kind, layout, (size, *others) = place
        if {size} == {size, *others}:
            longest = (
                _surest(data.over_most_libraries(held[place]))
                if place in held
                else None
            )
            found.append(
                Choice(
                    kind, layout, size, _surest(data.over_most_libraries(rows)), longest
                )
            )
    return found


def slowed(data: RunData) -> list[tuple[Choice, Held]]:
    """At each place of `choices` the fastest for seconds of those that also have a result in single launches."""
    cold, held = _by_place(data, _usual_regime(data)), _by_place(data, SUSTAINED)
    found = []
    for choice in choices(data):
        place = choice.kind, choice.layout, (choice.size,) * 3
        by_variant = {row["variant"]: row for row in cold[place]}
        later = data.over_most_libraries(held.get(place, []))
        pairs = [
            Held(row, by_variant[row["variant"]])
            for row in later
            if row["variant"] in by_variant
        ]
        if pairs:
            found.append((choice, max(pairs, key=lambda one: one.row["speedup"])))
    return found


def _usual_regime(data: RunData) -> str:
    """The regime in which most sweeps hold GEMMs against libraries first."""
    counts = Counter(sweep.regimes[0] for sweep in data.against_libraries)
    return max(sorted(counts), key=lambda one: counts[one], default="")


def rankings(data: RunData) -> list[tuple[str, str, list[Row]]]:
    """Kind, layout and rows of every size and regime of GEMMs against libraries: what to use there, then the next."""
    regimes = {
        regime
        for sweep in data.against_libraries
        for regime in (sweep.regimes[0], SUSTAINED)
    }
    found = []
    for regime in sorted(regimes):
        for (kind, layout, _), rows in _in_order(_by_place(data, regime)):
            known = data.over_most_libraries(rows)
            top = _surest(known)
            others = sorted(
                (row for row in known if row is not top),
                key=lambda row: -row["speedup"],
            )
            found.append((kind, layout, [top, *others]))
    return found


def _in_order(places: Mapping[Place, list[Row]]) -> list[tuple[Place, list[Row]]]:
    return sorted(
        places.items(), key=lambda one: (_DTYPES.index(one[0][0].split()[0]), one[0])
    )


def _surest(rows: list[Row]) -> Row:
    """The fastest; of those that are as fast within _CLOSE the one with the most sessions."""
    top = max(row["speedup"] for row in rows)
    close = [row for row in rows if row["speedup"] >= top * (1 - _CLOSE)]
    return max(close, key=lambda row: (row.get("sessions", 1), row["speedup"]))


def _by_place(data: RunData, regime: str) -> dict[Place, list[Row]]:
    """Rows of GEMMs by kind, layout and size, one a configuration: that with the most sessions.

    Of several with as many it is that of the sweep whose name comes first, in whatever order a run has its sweeps.
    """
    found: dict[Place, dict[str, Row]] = {}
    for sweep in sorted(data.against_libraries, key=lambda one: one.name):
        for row in data.timed(sweep.name, regime=regime).rows:
            if sweep.tuning and regime != SUSTAINED and row.get("fresh") is not True:
                continue
            kind = THREE_PRODUCTS if sweep.name == PRODUCTS_SWEEP else row["dtype"]
            place = kind, row.get("layout", ""), tuple(row.size.values())
            known = found.setdefault(place, {})
            other = known.get(row["variant"])
            if other is None or row.get("sessions", 1) > other.get("sessions", 1):
                known[row["variant"]] = row
    return {place: list(known.values()) for place, known in found.items()}
