"""Sweeps from their YAML files, held to the schema and to the catalogue."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ladder.catalogue import documents
from ladder.catalogue.sizes import parse_size
from ladder.model.errors import LadderError, refuse
from ladder.model.expressions import evaluate, refuse_unknown
from ladder.model.kernel import Kernel, Variant
from ladder.model.problem import ParamValue, Problem, Size
from ladder.model.sweep import Counters, Entry, Figure, Reference, Sweep
from ladder.problems.registry import PROBLEMS

DEFAULT_REGIMES = ("dirty", "warm")


@dataclass(frozen=True)
class _Given:
    """What the parts of one sweep file are checked against."""

    path: Path
    catalog: Mapping[str, Kernel]
    problem: Problem
    dtypes: tuple[str, ...]
    layout: str | None
    sizes: tuple[Size, ...]

    def kernel(self, field: str, name: str) -> Kernel:
        """A kernel of the sweep's problem. Raises LadderError naming `field` for another."""
        if name not in self.catalog:
            raise refuse(self.path, field, name, self.catalog, why="no such kernel")
        kernel = self.catalog[name]
        if kernel.problem is not self.problem:
            same = [other.name for other in self.catalog.values() if other.problem is self.problem]
            raise refuse(self.path, field, name, same, why=f"its problem is {kernel.problem.name}")
        return kernel


def _combinations(params: Mapping[str, Any]) -> list[dict[str, ParamValue]]:
    axes = [value if isinstance(value, list) else [value] for value in params.values()]
    return [dict(zip(params, values, strict=True)) for values in itertools.product(*axes)]


def _variants(
    given: _Given, where: str, kernel: Kernel, document: Mapping[str, Any]
) -> tuple[list[Variant], int]:
    """Variants of one entry, and how many combinations a constraint of the kernel drops."""
    combinations = _combinations(document.get("params", {}))
    if "rung" in document and len(combinations) > 1:
        accepted = "a rung for one combination of parameters only"
        raise refuse(given.path, f"{where}rung", document["rung"], accepted)
    record = document.get("unsupported") == "record"
    lenient = len(combinations) > 1 or record
    found = [
        kernel.variant(params, dtype, given.layout, where=where, file=given.path, excluded=lenient)
        for dtype in given.dtypes
        for params in combinations
    ]
    kept = [variant for variant in found if record or variant.absent() is None]
    return kept, len(found) - len(kept)


def _check_where(given: _Given, where: str, entry: Entry) -> None:
    """Raises LadderError where the entry's expression cannot be evaluated."""
    try:
        refuse_unknown(entry.where or "1", entry.variant.names(given.sizes[0]))
        for size in given.sizes:
            entry.asks(size)
    except LadderError as error:
        raise LadderError(f"{given.path}: {where}where: {error}") from error


def _entries(given: _Given, index: int, document: Mapping[str, Any]) -> tuple[list[Entry], int]:
    """Entries that one item of `variants` stands for, and how many combinations are dropped."""
    where = f"variants[{index}]."
    kernel = given.kernel(f"{where}kernel", document["kernel"])
    if "reason" in document and "where" not in document:
        raise refuse(given.path, f"{where}reason", document["reason"], "a reason beside `where` only")
    variants, dropped = _variants(given, where, kernel, document)
    texts = [document.get(field, "") for field in ("rung", "technique", "where", "reason")]
    entries = [Entry(variant, *texts) for variant in variants]
    for entry in entries:
        _check_where(given, where, entry)
    kept = [entry for entry in entries if any(entry.asks(size) for size in given.sizes)]
    if not kept:
        raise LadderError(
            f"{given.path}: {where}params: no combination is left after the constraints and where"
        )
    if all(entry.left_out(size) for entry in kept for size in given.sizes if entry.asks(size)):
        raise refuse(given.path, f"{where}where", document["where"], "an expression that keeps a size")
    if document.get("unsupported") != "record":
        _check_sizes(given, index, kernel, kept)
    return kept, dropped + len(entries) - len(kept)


def _check_sizes(given: _Given, index: int, kernel: Kernel, entries: Sequence[Entry]) -> None:
    """Raises LadderError for a size that none of the entries that are asked for there supports."""
    for position, size in enumerate(given.sizes):
        reasons = [entry.variant.absent(size) for entry in entries if entry.asks(size)]
        if reasons and all(reasons):
            raise refuse(
                given.path,
                f"sizes[{position}]",
                dict(size),
                "a size it supports, or `unsupported: record` at that entry",
                why=f"no variant of variants[{index}] ({kernel.name}) supports it: {reasons[0]}",
            )


def _all_entries(given: _Given, documents_: Sequence[Mapping[str, Any]]) -> tuple[tuple[Entry, ...], int]:
    entries: dict[Variant, Entry] = {}
    excluded = 0
    for index, document in enumerate(documents_):
        more, dropped = _entries(given, index, document)
        for entry in more:
            if entry.variant in entries:
                raise refuse(given.path, f"variants[{index}]", entry.variant.id, "each variant once")
            entries[entry.variant] = entry
        excluded += dropped
    return tuple(entries.values()), excluded


def _reference(given: _Given, documents_: Sequence[Any], entries: Sequence[Entry]) -> Reference:
    names = [name for name in documents_ if isinstance(name, str)]
    for index, name in enumerate(documents_):
        if isinstance(name, str) and name not in given.problem.libraries:
            accepted, why = given.problem.libraries, f"problem {given.problem.name}"
            raise refuse(given.path, f"references[{index}]", name, accepted, why=why)
    if (names and len(names) < len(documents_)) or len(documents_) - len(names) > 1:
        raise refuse(given.path, "references", documents_, "libraries of the problem, or one kernel")
    if names:
        return Reference(libraries=tuple(names))
    document = documents_[0]
    kernel = given.kernel("references[0].kernel", document["kernel"])
    params = document.get("params", {})
    for name, value in params.items():
        if name not in kernel.parameters:
            raise refuse(given.path, "references[0].params", name, kernel.parameters)
        if value not in kernel.parameters[name].values:
            raise refuse(given.path, f"references[0].params.{name}", value, kernel.parameters[name].values)
    reference = Reference(kernel=kernel, params=params)
    for entry in entries:
        try:
            if entry.variant.absent() is None:
                reference.variant_for(entry.variant)
        except LadderError as error:
            raise LadderError(f"{given.path}: references[0]: {error}") from error
    return reference


def _one_of_them(given: _Given, asked: Sequence[Size], size: Any, where: str) -> Size:
    """A size that the sweep asks for, as `where` in the file gives it."""
    parsed = parse_size(given.problem, size, str(given.path), where)
    if parsed not in asked:
        why = "no variant is asked for there" if parsed in given.sizes else ""
        raise refuse(given.path, where, size, "one of the sweep's sizes", why=why)
    return parsed


def _counters(
    given: _Given, document: Mapping[str, Any], entries: Sequence[Entry], asked: Sequence[Size]
) -> Counters:
    """What to profile: the first size where none is named, and the variants that `where` keeps."""
    if not document:
        return Counters()
    sizes = tuple(
        _one_of_them(given, asked, size, f"counters.sizes[{index}]")
        for index, size in enumerate(document.get("sizes", ()))
    )
    sizes = sizes or tuple(asked[:1])
    kept = [entry for entry in entries if entry.variant.absent() is None]
    if (expression := document.get("where")) is not None:
        try:
            kept = [entry for entry in kept if evaluate(expression, entry.variant.names())]
        except LadderError as error:
            raise LadderError(f"{given.path}: counters.where: {error}") from error
        if not any(entry.asks(size) for entry in kept for size in sizes):
            accepted = "an expression that keeps a variant asked for at a size to profile"
            raise refuse(given.path, "counters.where", expression, accepted)
    return Counters(tuple(document["groups"]), sizes, tuple(entry.variant for entry in kept))


def _figures(
    given: _Given, documents_: Sequence[Mapping[str, Any]], entries: Sequence[Entry], asked: Sequence[Size]
) -> tuple[Figure, ...]:
    axes = {name for entry in entries for name in entry.variant.params}
    figures = []
    for index, document in enumerate(documents_):
        for axis in ("x", "y", "hue"):
            if axis in document and document[axis] not in axes:
                raise refuse(given.path, f"figures[{index}].{axis}", document[axis], sorted(axes))
        fields = dict(document)
        if "at" in document:
            fields["at"] = _one_of_them(given, asked, document["at"], f"figures[{index}].at")
        figures.append(Figure(**fields))
    return tuple(figures)


def load_sweep(path: Path, catalog: Mapping[str, Kernel]) -> Sweep:
    """Read one sweep and check it against the catalogue. Raises LadderError for the first mistake."""
    document = documents.load(path, "sweep")
    if document["problem"] not in PROBLEMS:
        raise refuse(path, "problem", document["problem"], PROBLEMS)
    problem = PROBLEMS[document["problem"]]
    for index, dtype in enumerate(document["dtypes"]):
        if dtype not in problem.dtypes:
            raise refuse(path, f"dtypes[{index}]", dtype, problem.dtypes)
    layout = document.get("layout")
    if layout is not None and layout not in problem.layouts:
        raise refuse(path, "layout", layout, [name for name in problem.layouts if name])
    sizes: list[Size] = []
    for index, text in enumerate(document["sizes"]):
        size = parse_size(problem, text, str(path), f"sizes[{index}]")
        if size in sizes:
            raise refuse(path, f"sizes[{index}]", size, "each size once")
        sizes.append(size)
    given = _Given(path, catalog, problem, tuple(document["dtypes"]), layout, tuple(sizes))
    entries, excluded = _all_entries(given, document["variants"])
    asked = tuple(size for size in sizes if any(entry.asks(size) for entry in entries))
    return Sweep(
        name=path.stem,
        path=path,
        title=document["title"],
        question=document["question"],
        problem=problem,
        dtypes=given.dtypes,
        sizes=asked,
        unasked=tuple(size for size in sizes if size not in asked),
        entries=entries,
        excluded=excluded,
        reference=_reference(given, document["references"], entries),
        precision=document.get("precision"),
        regimes=tuple(document.get("regimes", DEFAULT_REGIMES)),
        counters=_counters(given, document.get("counters", {}), entries, asked),
        figures=_figures(given, document.get("figures", ()), entries, asked),
    )


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
