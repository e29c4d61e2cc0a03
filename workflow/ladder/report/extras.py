"""What the report says of the step `extras`: errors of FP32 GEMMs by kind of inputs, and C = A B + C."""

from collections.abc import Mapping, Sequence
from typing import Any

from ladder.claims.primitives import Unmeasured
from ladder.model.cell import size_label
from ladder.report.evidence import Evidence, Gain, ends, proper, span
from ladder.report.markdown import code, figure, share, spread, text
from ladder.results import statistics as stats
from ladder.results.verdicts import in_one_session

_UNIT = 2.0**-24
_STEP = "; python -m ladder extras does that, on a GPU"

Said = tuple[list[str], list[list[tuple[str, str]]]]
"""Sentences, and lines of a table: each cell with its head."""


_HEADS = (
    *("kernel", "dtype", "M = N = K", "speed over the faster library [95 %], C = A B", "C = A B + C"),
    *("library", "kernel takes longer by", "library by"),
)


def _rows(data: Evidence, table: str, what: str) -> list[dict[str, Any]]:
    if not (rows := stats.records(data.frames[table])):
        raise Unmeasured(f"{what} were not measured here{_STEP}")
    return rows


def _name(row: Mapping[str, Any]) -> str:
    """Of a kernel its rung, of a library its own name."""
    return text(row["rung"]) if row["who"] == "kernel" else proper(text(row["who"]))


def accuracy(data: Evidence) -> Said:
    """Each kernel's largest errors over those of cuBLAS in FP32, and the errors themselves at the largest K."""
    rows = _rows(data, "accuracy", "errors by kind of inputs")
    kinds, depths = list(dict.fromkeys(row["inputs"] for row in rows)), sorted({row["k"] for row in rows})
    place = ("layout", "k", "inputs")
    known = {
        (row["dtype"], *(row[name] for name in place)): row["max_error"]
        for row in rows
        if row["who"] == "cublas"
    }
    ratios, alike = dict[str, dict[str, list[float]]](), dict[str, list[float]]()
    for row in (row for row in rows if row["who"] == "kernel"):
        name, at = f"{code(row['sweep'])} in {row['dtype']}", tuple(row[one] for one in place)
        if base := known.get(("fp32", *at)):
            ratios.setdefault(name, {}).setdefault(row["inputs"], []).append(row["max_error"] / base)
        if row["dtype"] != "fp32" and (base := known.get((row["dtype"], *at))):
            alike.setdefault(name, []).append(row["max_error"] / base)
    each = [
        f"{name} {', '.join(f'{ends(min(of), max(of))} x with {kind} inputs' for kind, of in by_kind.items())}"
        + (
            f", and {ends(min(alike[name]), max(alike[name]))} x that of cuBLAS in its type"
            if name in alike
            else ""
        )
        for name, by_kind in ratios.items()
    ]
    size = f"M = N = {rows[0]['m']}"
    said = [
        f"Largest error over that of cuBLAS in FP32, K from {depths[0]} to {depths[-1]}: {'; '.join(each)}."
    ]
    said.append(
        f"All multiply the same fp32 numbers; the table has the largest error against fp64, and in brackets the"
        f" root mean square, in units of 2^-24 |A||B|, at {size}, K = {depths[-1]}. At the sizes that are timed"
        " a library may take another kernel, with other errors."
    )
    groups = dict[tuple[str, ...], dict[str, str]]()
    for row in (row for row in rows if row["k"] == depths[-1]):
        shown = " ".join((figure(row["max_error"] / _UNIT, 3), f"({figure(row['rms_error'] / _UNIT, 2)})"))
        groups.setdefault((_name(row), str(row["dtype"]), str(row["layout"])), {})[row["inputs"]] = shown
    return said, [
        [
            *zip(("who", "dtype", "layout"), of, strict=True),
            *((kind, by_kind.get(kind, "")) for kind in kinds),
        ]
        for of, by_kind in groups.items()
    ]


def _faster(rows: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The row against the faster library."""
    return min(rows, key=lambda row: float(row["reference_median_us"]))


def accumulation(data: Evidence) -> Said:
    """Each kernel against the faster library with beta = 0 and with beta = 1, and what reading C costs both."""
    groups = dict[tuple[Any, ...], dict[float, list[dict[str, Any]]]]()
    for row in _rows(data, "accumulation", "launches with beta = 1"):
        key = (row["variant"], row["rung"], row["dtype"], size_label(stats.size_of(row)))
        groups.setdefault(key, {}).setdefault(row["beta"], []).append(row)
    gains, shown = dict[str, list[Gain]](), list[list[tuple[str, str]]]()
    longer: tuple[list[float], list[float]] = ([], [])
    lacking = list[str]()
    for (_, rung, dtype, size), by_beta in groups.items():
        if {*by_beta} != {0.0, 1.0}:
            lacking.append(f"“{text(rung)}” in {dtype} at {size}")
            continue
        without, added = _faster(by_beta[0.0]), _faster(by_beta[1.0])
        gain = Gain(in_one_session(added))
        gains.setdefault(gain.verdict, []).append(gain)
        costs = [added[name] / without[name] - 1 for name in ("median_us", "reference_median_us")]
        for place, cost in enumerate(costs):
            longer[place].append(cost)
        speeds = [spread(stats.estimate(one, "speedup"), 3) for one in (without, added)]
        takes = [share(cost, "+.1f") for cost in costs]
        cells = [text(rung), str(dtype), size, *speeds, proper(text(added["reference"])), *takes]
        shown.append([*zip(_HEADS, cells, strict=True)])
    if not shown:
        raise Unmeasured(f"no kernel was timed with beta = 0 and 1{_STEP}")
    own, others = (f"{share(min(of), '+.1f')} to {share(max(of), '+.1f')}" for of in longer)
    found = ", ".join(f"{name} in {len(of)} ({span(of)})" for name, of in sorted(gains.items()))
    said = [
        f"With C = A B + C, of {len(shown)} kernels and sizes the kernel against the faster library is {found}.",
        f"To read C changes the time of the kernels by {own}, that of the libraries by {others}.",
    ]
    if lacking:
        said.append(
            f"Left out, since the kernel or both libraries are not within the error bound with beta = 1:"
            f" {', '.join(lacking)}."
        )
    return said, shown
