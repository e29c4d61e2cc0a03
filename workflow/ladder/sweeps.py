"""Sweeps: the variants and sizes that answer one question, as config/sweeps/*.yaml describes them."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ladder import documents
from ladder.catalog import Condition, Kernel, ParamValue, Size, Variant
from ladder.choices import load_choices
from ladder.errors import LadderError, refuse
from ladder.expressions import evaluate, refuse_unknown, words
from ladder.problems import PROBLEMS, problem_named
from ladder.problems.base import Problem

DEFAULT_REGIMES = ("cold", "warm")


@dataclass(frozen=True)
class Reference:
    """What a cell is timed against: a library, or a kernel whose unnamed parameters are the variant's own."""

    library: str = ""
    kernel: Kernel | None = None
    params: tuple[tuple[str, ParamValue], ...] = ()

    def variant_for(self, variant: Variant) -> Variant:
        """The reference kernel's variant that `variant` is timed against."""
        assert self.kernel is not None
        shared = {name: value for name, value in variant.params.items() if name in self.kernel.parameters}
        return self.kernel.variant({**shared, **dict(self.params)}, variant.dtype, variant.layout)


@dataclass(frozen=True)
class Entry:
    """A variant as a sweep names it, with its place on the ladder."""

    variant: Variant
    rung: str
    technique: str
    sizes: tuple[Condition, ...] = ()
    only: tuple[Size, ...] | None = None
    """Sizes the sweep asks for it at, so that it has no cell elsewhere; None: any.

    They are those at which `where` is true, or which it was chosen for (`params: best`).
    """
    where: str = ""

    @property
    def conditions(self) -> str:
        """One expression for what `where` and `sizes` demand, over parameters and the size; empty: nothing."""
        demanded = [self.where, *(one.expr for one in self.sizes)]
        return " and ".join(f"({expr})" for expr in demanded if expr)

    def asks(self, size: Size) -> bool:
        """Whether the sweep asks for it at `size`."""
        return self.only is None or size in self.only

    def unsupported(self, size: Size) -> str | None:
        """Why there is nothing to measure at `size`: the variant is not right there, or left out; else None."""
        return self.variant.unsupported(size) or self.left_out(size)

    def left_out(self, size: Size) -> str | None:
        """Why the sweep leaves `size` out although it asks for it there (`sizes`), or None."""
        names = self.variant.names(size)
        return next((one.reason for one in self.sizes if not evaluate(one.expr, names)), None)


@dataclass(frozen=True)
class Cell:
    """One variant at one size."""

    entry: Entry
    size: Mapping[str, int]

    @property
    def variant(self) -> Variant:
        return self.entry.variant

    @property
    def unsupported(self) -> str | None:
        """Why there is nothing to measure, or None."""
        return self.entry.unsupported(self.size)


@dataclass(frozen=True)
class Figure:
    """A figure the sweep asks for."""

    kind: str
    caption: str
    at: Mapping[str, int] | None = None
    x: str | None = None
    y: str | None = None
    hue: str | None = None


@dataclass(frozen=True)
class Sweep:
    """Variants x sizes that answer one question; of the sizes given, those at which it asks for a variant."""

    name: str
    path: Path
    title: str
    question: str
    problem: Problem
    dtypes: tuple[str, ...]
    layout: str | None
    sizes: tuple[Mapping[str, int], ...]
    """Those at which some variant is asked for; the others are `unasked`."""
    unasked: tuple[Mapping[str, int], ...]
    entries: tuple[Entry, ...]
    excluded: int
    references: tuple[Reference, ...]
    precision: float | None
    regimes: tuple[str, ...]
    counter_groups: tuple[str, ...]
    counter_sizes: tuple[Mapping[str, int], ...]
    counter_variants: tuple[Variant, ...]
    figures: tuple[Figure, ...]

    @functools.cached_property
    def variants(self) -> tuple[Variant, ...]:
        """Every variant to compile, those of reference kernels included, without repetition."""
        own = [entry.variant for entry in self.entries if entry.variant.excluded() is None]
        wanted = list(own)
        for reference in self.references:
            if reference.kernel is not None:
                wanted += [reference.variant_for(variant) for variant in own]
        return tuple(dict.fromkeys(wanted))

    def shapes(self) -> list[tuple[str, Size]]:
        """Every dtype with every size at which the sweep asks for a variant in it."""
        return [
            (dtype, size)
            for dtype in self.dtypes
            for size in self.sizes
            if any(entry.variant.dtype == dtype and entry.asks(size) for entry in self.entries)
        ]

    def cells(self) -> Iterator[Cell]:
        """Cells in measuring order: by dtype and size, so that inputs and reference are made once."""
        for dtype in self.dtypes:
            for size in self.sizes:
                for entry in self.entries:
                    if entry.variant.dtype == dtype and entry.asks(size):
                        yield Cell(entry, size)


def _combinations(params: Mapping[str, Any]) -> list[dict[str, ParamValue]]:
    axes = [value if isinstance(value, list) else [value] for value in params.values()]
    return [dict(zip(params, values, strict=True)) for values in itertools.product(*axes)]


def _kept(expression: str, variant: Variant, sizes: tuple[Size, ...]) -> tuple[Size, ...]:
    """Sizes at which `where` is true of a variant: all or none where it names no field of the size."""
    names = variant.names(sizes[0])
    refuse_unknown(expression, names)
    if words(expression)[0].isdisjoint(sizes[0]):
        return sizes if evaluate(expression, names) else ()
    return tuple(size for size in sizes if evaluate(expression, variant.names(size)))


def _chosen(
    path: Path,
    where: str,
    document: Mapping[str, Any],
    kernel: Kernel,
    dtypes: tuple[str, ...],
    layout: str | None,
    sizes: tuple[Size, ...],
    others: list[Entry],
) -> list[Entry]:
    """One entry for each configuration that config/best chooses for some of `sizes`, in the order of the sizes.

    A size is left to the one of `others` that measures the configuration chosen for it.
    """
    for field in ("where", "rung", "sizes"):
        if field in document:
            raise refuse(path, f"{where}{field}", document[field], "nothing beside `params: best`")
    choices = load_choices(path.parent.parent / "best" / f"{kernel.name}.yaml", kernel)
    measured = {other.variant: other for other in others}
    chosen: dict[Variant, list[Size]] = {}
    for dtype in dtypes:
        for size in sizes:
            variant = choices.at(size, dtype, layout)
            other = measured.get(variant)
            if other is None or not other.asks(size) or other.left_out(size):
                chosen.setdefault(variant, []).append(size)
    return [
        Entry(variant, "", document.get("technique", ""), only=tuple(own)) for variant, own in chosen.items()
    ]


def _entries(
    path: Path,
    index: int,
    document: Mapping[str, Any],
    catalog: Mapping[str, Kernel],
    problem: Problem,
    dtypes: tuple[str, ...],
    layout: str | None,
    sizes: tuple[Size, ...],
    others: list[Entry],
) -> tuple[list[Entry], int]:
    where = f"variants[{index}]."
    name = document["kernel"]
    if name not in catalog:
        raise refuse(path, f"{where}kernel", name, catalog, why="no such kernel")
    kernel = catalog[name]
    if kernel.problem != problem.name:
        same = [other.name for other in catalog.values() if other.problem == problem.name]
        raise refuse(path, f"{where}kernel", name, same, why=f"its problem is {kernel.problem}")
    if document.get("params") == "best":
        return _chosen(path, where, document, kernel, dtypes, layout, sizes, others), 0
    combinations = _combinations(document.get("params", {}))
    rung = document.get("rung", "")
    if rung and len(combinations) > 1:
        raise refuse(path, f"{where}rung", rung, "a rung for one combination of parameters only")
    conditions = tuple(Condition(one["expr"], one["reason"]) for one in document.get("sizes", ()))
    record = document.get("excluded", "drop") == "record"
    entries, excluded = [], 0
    for dtype in dtypes:
        for params in combinations:
            for key in params:
                # Checked before the constraints, so that a misspelt axis is never mistaken for an excluded one.
                kernel_values = kernel.parameters.get(key)
                if kernel_values is None or params[key] not in kernel_values.values:
                    kernel.variant(params, dtype, layout, where=where, file=path)
            several = len(combinations) > 1
            variant = kernel.variant(
                params, dtype, layout, where=where, file=path, excluded=several or record
            )
            if not record and variant.excluded() is not None:
                excluded += 1
                continue
            only = None
            if "where" in document:
                try:
                    only = _kept(document["where"], variant, sizes)
                except LadderError as error:
                    raise LadderError(f"{path}: {where}where: {error}") from error
                if not only:
                    excluded += 1
                    continue
            technique, expression = document.get("technique", ""), document.get("where", "")
            entries.append(Entry(variant, rung, technique, conditions, only, expression))
    if not entries:
        raise LadderError(f"{path}: {where}params: no combination is left after the constraints and where")
    return entries, excluded


def _references(
    path: Path, given: list[Any], catalog: Mapping[str, Kernel], problem: Problem
) -> tuple[Reference, ...]:
    references = []
    for index, entry in enumerate(given):
        where = f"references[{index}]"
        if isinstance(entry, str):
            if entry not in problem.libraries:
                raise refuse(path, where, entry, problem.libraries, why=f"problem {problem.name}")
            references.append(Reference(library=entry))
            continue
        if entry["kernel"] not in catalog:
            raise refuse(path, f"{where}.kernel", entry["kernel"], catalog, why="no such kernel")
        kernel = catalog[entry["kernel"]]
        if kernel.problem != problem.name:
            raise refuse(path, f"{where}.kernel", kernel.name, f"a kernel of the problem {problem.name}")
        params = entry.get("params", {})
        for name, value in params.items():
            if name not in kernel.parameters:
                raise refuse(path, f"{where}.params", name, kernel.parameters)
            if value not in kernel.parameters[name].values:
                raise refuse(path, f"{where}.params.{name}", value, kernel.parameters[name].values)
        references.append(Reference(kernel=kernel, params=tuple(params.items())))
    return tuple(references)


def _counted(
    path: Path, expression: str | None, entries: list[Entry], sizes: tuple[Size, ...]
) -> tuple[Variant, ...]:
    """Variants to profile at `sizes`: all, or those that `counters.where` keeps."""
    kept = [entry for entry in entries if entry.variant.excluded() is None]
    if expression is not None:
        try:
            kept = [entry for entry in kept if evaluate(expression, entry.variant.names())]
        except LadderError as error:
            raise LadderError(f"{path}: counters.where: {error}") from error
        if not any(entry.asks(size) for entry in kept for size in sizes):
            accepted = "an expression that keeps a variant asked for at a size to profile"
            raise refuse(path, "counters.where", expression, accepted)
    return tuple(entry.variant for entry in kept)


def load_sweep(path: Path, catalog: Mapping[str, Kernel]) -> Sweep:
    """Read one sweep and check it against the catalogue. Raises LadderError for the first mistake."""
    document = documents.load(path, "sweep")
    if document["problem"] not in PROBLEMS:
        raise refuse(path, "problem", document["problem"], PROBLEMS)
    problem = problem_named(document["problem"])
    for index, dtype in enumerate(document["dtypes"]):
        if dtype not in problem.dtypes:
            raise refuse(path, f"dtypes[{index}]", dtype, problem.dtypes)
    dtypes = tuple(document["dtypes"])
    layout = document.get("layout")
    if layout is not None and layout not in problem.layouts:
        raise refuse(path, "layout", layout, [name for name in problem.layouts if name])
    sizes = tuple(
        problem.parse_size(given, str(path), f"sizes[{index}]")
        for index, given in enumerate(document["sizes"])
    )
    for index, size in enumerate(sizes):
        if size in sizes[:index]:
            raise refuse(path, f"sizes[{index}]", dict(size), "each size once")
    entries: list[Entry] = []
    others: list[Entry] = []
    places: dict[Variant, int] = {}
    excluded = 0
    # `params: best` comes last, for it leaves sizes to the other entries.
    for best, index in sorted(
        (given.get("params") == "best", index) for index, given in enumerate(document["variants"])
    ):
        given = document["variants"][index]
        more, dropped = _entries(path, index, given, catalog, problem, dtypes, layout, sizes, others)
        for entry in more:
            if entry.variant in places:
                why = (
                    f"variants[{places[entry.variant]}] has it, and not at every size it is chosen for"
                    if best
                    else ""
                )
                raise refuse(path, f"variants[{index}]", entry.variant.id, "each variant once", why=why)
            places[entry.variant] = index
            entries.append(entry)
        if not best:
            others += more
        try:
            nowhere = all(entry.left_out(size) for entry in more for size in sizes if entry.asks(size))
        except LadderError as error:
            raise LadderError(f"{path}: variants[{index}].sizes: {error}") from error
        if nowhere and "sizes" in given:
            raise refuse(path, f"variants[{index}].sizes", given["sizes"], "expressions that keep a size")
        if given.get("unsupported", "refuse") == "refuse" and given.get("excluded", "drop") == "drop":
            for position, size in enumerate(sizes):
                reasons = [entry.variant.unsupported(size) for entry in more if entry.asks(size)]
                if reasons and all(reasons):
                    raise refuse(
                        path,
                        f"sizes[{position}]",
                        dict(size),
                        "a size it supports, or `unsupported: record` at that entry",
                        why=f"no variant of variants[{index}] ({given['kernel']}) supports it: {reasons[0]}",
                    )
        excluded += dropped
    entries.sort(key=lambda entry: places[entry.variant])
    asked = tuple(size for size in sizes if any(entry.asks(size) for entry in entries))

    def one_of_them(given: Any, where: str) -> dict[str, int]:
        size = problem.parse_size(given, str(path), where)
        if size not in asked:
            why = "no variant is asked for there" if size in sizes else ""
            raise refuse(path, where, given, "one of the sweep's sizes", why=why)
        return size

    references = _references(path, document["references"], catalog, problem)
    counters = document.get("counters", {})
    counter_sizes = asked[:1]
    if "sizes" in counters:
        counter_sizes = tuple(
            one_of_them(given, f"counters.sizes[{index}]") for index, given in enumerate(counters["sizes"])
        )
    axes = {name for entry in entries for name in entry.variant.params}
    figures = []
    for index, given in enumerate(document.get("figures", [])):
        for axis in ("x", "y", "hue"):
            if axis in given and given[axis] not in axes:
                raise refuse(path, f"figures[{index}].{axis}", given[axis], sorted(axes))
        at = one_of_them(given["at"], f"figures[{index}].at") if "at" in given else None
        figures.append(
            Figure(
                given["kind"],
                given["caption"],
                at,
                given.get("x"),
                given.get("y"),
                given.get("hue"),
            )
        )
    sweep = Sweep(
        name=path.stem,
        path=path,
        title=document["title"],
        question=document["question"],
        problem=problem,
        dtypes=dtypes,
        layout=layout,
        sizes=asked,
        unasked=tuple(size for size in sizes if size not in asked),
        entries=tuple(entries),
        excluded=excluded,
        references=references,
        precision=document.get("precision"),
        regimes=tuple(document.get("regimes", DEFAULT_REGIMES)),
        counter_groups=tuple(counters.get("groups", ())),
        counter_sizes=counter_sizes,
        counter_variants=_counted(path, counters.get("where"), entries, counter_sizes),
        figures=tuple(figures),
    )
    for index, reference in enumerate(references):
        if reference.kernel is not None:
            for entry in entries:
                if entry.variant.excluded() is not None:
                    continue
                try:
                    reference.variant_for(entry.variant)
                except LadderError as error:
                    raise LadderError(f"{path}: references[{index}]: {error}") from error
    return sweep


def load_sweeps(folder: Path, catalog: Mapping[str, Kernel], chosen: list[str] | None) -> dict[str, Sweep]:
    """The chosen sweeps (all where None) of a folder, by name: as chosen, or by problem and name.

    Raises LadderError where a chosen name has no file.
    """
    paths = {path.stem: path for path in sorted(folder.glob("*.yaml"))}
    if not paths:
        raise LadderError(f"{folder}: no sweep (*.yaml) found")
    for name in chosen or ():
        if name not in paths:
            raise refuse("configuration", "sweeps", name, paths)
    if chosen is not None:
        return {name: load_sweep(paths[name], catalog) for name in dict.fromkeys(chosen)}
    sweeps = [load_sweep(path, catalog) for path in paths.values()]
    problems = list(PROBLEMS)
    sweeps.sort(key=lambda sweep: (problems.index(sweep.problem.name), sweep.name))
    return {sweep.name: sweep for sweep in sweeps}
