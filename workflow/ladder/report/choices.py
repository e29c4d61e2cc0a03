"""What to use: of each dtype and layout the configuration that is fastest at a square size."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from ladder.claims.primitives import Row
from ladder.model.problem import ELEMENT_BYTES
from ladder.model.schemas import SUSTAINED
from ladder.report.evidence import Evidence, Gain, gain, is_cube

PRODUCTS_SWEEP = "fp32_tensor"  # GEMMs with FP32 accuracy by three products of TF32
THREE_PRODUCTS = "fp32 by 3xTF32"
_CLOSE = 0.005  # share of the speed by which single sessions differ
_DTYPES = tuple(ELEMENT_BYTES)  # the widest first


@dataclass(frozen=True)
class Held:
    """A configuration launched for seconds without a pause, and the same one in single launches."""

    row: Row
    cold: Row

    @property
    def gain(self) -> Gain:
        return gain(self.row.names)

    @property
    def loss(self) -> float:
        """Share of its speed that it loses so."""
        return float(1 - self.row["tflops"] / self.cold["tflops"])


@dataclass(frozen=True)
class Choice:
    """The fastest configuration over the libraries at M = N = K = `size` in single launches.

    `held` is the fastest of those that were also launched for seconds; None where none was.
    """

    kind: str  # dtype, or THREE_PRODUCTS
    layout: str
    size: int
    row: Row
    held: Held | None

    @property
    def gain(self) -> Gain:
        return gain(self.row.names)

    @property
    def same(self) -> bool:
        """Whether both are one configuration."""
        return self.held is not None and self.held.row["variant"] == self.row["variant"]


def choices(data: Evidence) -> list[Choice]:
    """Every dtype, layout and square size with a result against libraries, the widest dtype first.

    Of a tuning sweep only what was measured again after the choice counts, of one configuration the row with the most
    sessions, and of configurations that are as fast within half a percent the one with the most.
    """
    counts = Counter(sweep.regimes[0] for sweep in data.against_libraries)
    regime = max(counts, key=lambda one: counts[one], default="")
    cold, held = _by_place(data, regime), _by_place(data, SUSTAINED)
    found = []
    for place, rows in sorted(cold.items(), key=lambda one: (_DTYPES.index(one[0][0].split()[0]), one[0])):
        kind, layout, size = place
        top = _surest(data.over_most_libraries(rows))
        by_variant = {row["variant"]: row for row in rows}
        later = data.over_most_libraries(held.get(place, []))
        pairs = [Held(row, by_variant[row["variant"]]) for row in later if row["variant"] in by_variant]
        found.append(
            Choice(kind, layout, size, top, max(pairs, key=lambda one: one.row["speedup"], default=None))
        )
    return found


def _surest(rows: list[Row]) -> Row:
    """The fastest; of those that are as fast within _CLOSE the one with the most sessions."""
    top = max(row["speedup"] for row in rows)
    close = [row for row in rows if row["speedup"] >= top * (1 - _CLOSE)]
    return max(close, key=lambda row: (row.names.get("sessions", 1), row["speedup"]))


def _by_place(data: Evidence, regime: str) -> dict[tuple[str, str, int], list[Row]]:
    """Rows of square GEMMs by kind, layout and size, one a configuration."""
    best: dict[tuple[Any, ...], Row] = {}
    for sweep in data.against_libraries:
        for row in data.tables.timed(sweep.name, regime=regime).found:
            if not is_cube(row) or (
                sweep.tuning and regime != SUSTAINED and row.names.get("fresh") is not True
            ):
                continue
            kind = THREE_PRODUCTS if sweep.name == PRODUCTS_SWEEP else row["dtype"]
            place = kind, row.names.get("layout", ""), row["m"], row["variant"]
            sessions = row.names.get("sessions", 1)
            if place not in best or sessions > best[place].names.get("sessions", 1):
                best[place] = row
    found: dict[tuple[str, str, int], list[Row]] = {}
    for (*where, _), row in best.items():
        found.setdefault((where[0], where[1], where[2]), []).append(row)
    return found
