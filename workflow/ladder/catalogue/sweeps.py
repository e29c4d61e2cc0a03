"""Sweeps from their YAML files, held to the schema and to the catalogue."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from ladder.catalogue.documents import parse, parse_size, read_yaml
from ladder.model.document import Document, Share, Some, Text, Value, taking
from ladder.model.errors import LadderError, refuse, within
from ladder.model.expressions import evaluate, refuse_unknown
from ladder.model.kernel import Kernel, Variant
from ladder.model.problem import Problem, Size
from ladder.model.sweep import Counters, Entry, Figure, Reference, SizeText, Sweep
from ladder.problems.registry import PROBLEMS


def _is_axis(value: Any) -> bool:
    given = value if isinstance(value, list) and value else [value]
    return all(isinstance(one, int | str) and not isinstance(one, bool) for one in given)


Axis = Annotated[Value | list[Value], *taking("a whole number, a word, or a list of them", _is_axis)]


class EntryDocument(Document):
    """Variants of one kernel."""

    kernel: str
    """kernel of the catalogue"""
    params: dict[str, Axis] = {}
    """parameter values; lists are axes, which are multiplied out"""
    rung: Text | None = None
    """name of the step on a ladder (single combinations only)"""
    technique: Text | None = None
    """what the rung adds over the one below"""
    where: Text | None = None
    """expression over parameters and the size; where it is false the sweep does not ask for the variant, and there is
    no row, unless a reason is given"""
    reason: Text | None = None
    """why `where` leaves out what it does: there is an unsupported row with it"""
    unsupported: Literal["refuse", "record"] = "refuse"
    """what a constraint of the kernel excludes: refuse (default; of a product such combinations are dropped, and a size
    that none supports is a mistake) or record as unsupported rows with the reason"""


class ReferenceDocument(Document):
    """A kernel that cells are timed against."""

    kernel: str
    """kernel of the same problem"""
    params: dict[str, Value] = {}
    """its parameters; those not named are the variant's"""


def _is_reference(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, Mapping) and "kernel" in value)


_AGAINST = "a library of the problem, or {kernel: NAME, params: {...}}"
Against = Annotated[str | ReferenceDocument, *taking(_AGAINST, _is_reference)]


class CountersDocument(Document):
    """profiler metrics to collect"""

    groups: Some[Literal["banks", "memory", "compute", "pipes", "stalls", "occupancy"]]
    """groups of metrics"""
    sizes: Some[SizeText] | None = None
    """sizes to profile (default the first)"""
    where: Text | None = None
    """expression over parameters that keeps a variant to profile"""


class SweepDocument(Document):
    """One question, and the variants and sizes that answer it (config/sweeps/NAME.yaml)."""

    title: Text
    """heading in the report"""
    question: Text
    """the question in one sentence"""
    problem: str
    """problem of all its kernels, such as gemm"""
    dtypes: Some[str]
    """dtypes it runs in"""
    layout: str | None = None
    """layout of a GEMM, NN (default) or TN"""
    sizes: Some[SizeText]
    """sizes: a number (all fields alike), an expression such as 2**28, or a mapping of size fields"""
    variants: Some[EntryDocument]
    """kernels and their parameters"""
    references: Some[Against]
    """what cells are timed against: libraries, of which the fastest counts, or one kernel"""
    precision: Share | None = None
    """half-width of the speed-up's interval to reach, as a share (default the configuration's)"""
    regimes: Some[Literal["cold", "dirty", "warm"]] = ["dirty", "warm"]
    """cold: operands outside the L2, and nothing in it left to be written to memory; dirty: L2 flushed by a memset, as
    NVBench does it; warm: back to back in a CUDA graph (default dirty and warm); figures and findings speak of
    the first"""
    counters: CountersDocument | None = None
    figures: list[Figure] = []
    """figures drawn from this sweep"""


@dataclass(frozen=True)
class _Given:
    """What the parts of one sweep file are checked against."""

    path: Path
    catalog: Mapping[str, Kernel]
    problem: Problem
    document: SweepDocument
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

    def one_of(self, asked: Sequence[Size], size: Any, where: str) -> Size:
        """A size that the sweep asks for, as `where` in the file gives it."""
        parsed = parse_size(self.problem, size, str(self.path), where)
        if parsed not in asked:
            why = "no variant is asked for there" if parsed in self.sizes else ""
            raise refuse(self.path, where, size, "one of the sweep's sizes", why=why)
        return parsed


def _variants(
    given: _Given, where: str, kernel: Kernel, document: EntryDocument
) -> tuple[list[Variant], int]:
    """Variants of one entry, and how many combinations a constraint of the kernel drops."""
    axes = [value if isinstance(value, list) else [value] for value in document.params.values()]
    combinations = [dict(zip(document.params, values, strict=True)) for values in itertools.product(*axes)]
    if document.rung and len(combinations) > 1:
        accepted = "a rung for one combination of parameters only"
        raise refuse(given.path, f"{where}rung", document.rung, accepted)
    record, layout = document.unsupported == "record", given.document.layout
    lenient = len(combinations) > 1 or record
    found = [
        kernel.variant(params, dtype, layout, where=where, file=given.path, excluded=lenient)
        for dtype in given.document.dtypes
        for params in combinations
    ]
    kept = [variant for variant in found if record or variant.absent() is None]
    return kept, len(found) - len(kept)


def _entries(given: _Given, index: int, document: EntryDocument) -> tuple[list[Entry], int]:
    """Entries that one item of `variants` stands for, and how many combinations are dropped."""
    path, where = given.path, f"variants[{index}]."
    kernel = given.kernel(f"{where}kernel", document.kernel)
    if document.reason and not document.where:
        raise refuse(path, f"{where}reason", document.reason, "a reason beside `where` only")
    variants, dropped = _variants(given, where, kernel, document)
    texts = [text or "" for text in (document.rung, document.technique, document.where, document.reason)]
    entries = [Entry(variant, *texts) for variant in variants]
    with within(f"{path}: {where}where"):
        for entry in entries:
            refuse_unknown(entry.where or "1", entry.variant.names(given.sizes[0]))
        asks = [[entry.asks(size) for size in given.sizes] for entry in entries]
        kept = [entry for entry, sizes in zip(entries, asks, strict=True) if any(sizes)]
    if not kept:
        raise LadderError(f"{path}: {where}params: no combination is left after the constraints and where")
    if all(entry.left_out(size) for entry in kept for size in given.sizes if entry.asks(size)):
        raise refuse(path, f"{where}where", document.where, "an expression that keeps a size")
    for place, size in enumerate(given.sizes):
        reasons = [entry.variant.absent(size) for entry in kept if entry.asks(size)]
        if reasons and all(reasons) and document.unsupported == "refuse":
            accepted = "a size it supports, or `unsupported: record` at that entry"
            why = f"no variant of variants[{index}] ({kernel.name}) supports it: {reasons[0]}"
            raise refuse(path, f"sizes[{place}]", dict(size), accepted, why=why)
    return kept, dropped + len(entries) - len(kept)


def _all_entries(given: _Given) -> tuple[tuple[Entry, ...], int]:
    entries: dict[Variant, Entry] = {}
    excluded = 0
    for index, document in enumerate(given.document.variants):
        more, dropped = _entries(given, index, document)
        excluded += dropped
        for entry in more:
            if entry.variant in entries:
                raise refuse(given.path, f"variants[{index}]", entry.variant.id, "each variant once")
            entries[entry.variant] = entry
    return tuple(entries.values()), excluded


def _reference(given: _Given, entries: Sequence[Entry]) -> Reference:
    path, problem, listed = given.path, given.problem, given.document.references
    names = [one for one in listed if isinstance(one, str)]
    kernels = [one for one in listed if isinstance(one, ReferenceDocument)]
    for index, name in enumerate(names):
        if name not in problem.libraries:
            raise refuse(path, f"references[{index}]", name, problem.libraries, why=f"problem {problem.name}")
    if (names and kernels) or len(kernels) > 1:
        both = [*names, *(one.kernel for one in kernels)]
        raise refuse(path, "references", both, "libraries, or one kernel")
    if names:
        return Reference(libraries=tuple(names))
    kernel, params = given.kernel("references[0].kernel", kernels[0].kernel), kernels[0].params
    # Its own parameters first, so that a mistake in them is told as one of this file.
    kernel.variant(params, next(iter(kernel.dtypes)), where="references[0].", file=path, excluded=True)
    reference = Reference(kernel=kernel, params=params)
    with within(f"{path}: references[0]"):
        for entry in entries:
            if entry.variant.absent() is None:
                reference.variant_for(entry.variant)
    return reference


def _counters(given: _Given, entries: Sequence[Entry], asked: Sequence[Size]) -> Counters:
    """What to profile: the first size where none is named, and the variants that `where` keeps."""
    path, document = given.path, given.document.counters
    if document is None:
        return Counters()
    listed = enumerate(document.sizes or ())
    sizes = [given.one_of(asked, size, f"counters.sizes[{index}]") for index, size in listed] or asked[:1]
    kept = [entry for entry in entries if entry.variant.absent() is None]
    if document.where is not None:
        with within(f"{path}: counters.where"):
            kept = [entry for entry in kept if evaluate(document.where, entry.variant.names())]
        if not any(entry.asks(size) for entry in kept for size in sizes):
            accepted = "an expression that keeps a variant asked for at a size to profile"
            raise refuse(path, "counters.where", document.where, accepted)
    return Counters(tuple(document.groups), tuple(sizes), tuple(entry.variant for entry in kept))


def _figures(given: _Given, entries: Sequence[Entry], asked: Sequence[Size]) -> tuple[Figure, ...]:
    axes = {name for entry in entries for name in entry.variant.params}
    figures = []
    for index, figure in enumerate(given.document.figures):
        for axis in ("x", "y", "hue"):
            if (name := getattr(figure, axis)) is not None and name not in axes:
                raise refuse(given.path, f"figures[{index}].{axis}", name, sorted(axes))
        at = None if figure.at is None else given.one_of(asked, figure.at, f"figures[{index}].at")
        figures.append(figure.model_copy(update={"at": at}))
    return tuple(figures)


def _given(path: Path, catalog: Mapping[str, Kernel]) -> _Given:
    """A sweep's document with its problem and sizes. Raises LadderError for the first mistake in them."""
    document = parse(SweepDocument, read_yaml(path), path)
    if document.problem not in PROBLEMS:
        raise refuse(path, "problem", document.problem, PROBLEMS)
    problem = PROBLEMS[document.problem]
    for index, dtype in enumerate(document.dtypes):
        if dtype not in problem.dtypes:
            raise refuse(path, f"dtypes[{index}]", dtype, problem.dtypes)
    if document.layout is not None and document.layout not in problem.layouts:
        raise refuse(path, "layout", document.layout, [name for name in problem.layouts if name])
    sizes: list[Size] = []
    for index, text in enumerate(document.sizes):
        size = parse_size(problem, text, str(path), f"sizes[{index}]")
        if size in sizes:
            raise refuse(path, f"sizes[{index}]", size, "each size once")
        sizes.append(size)
    if len(set(document.regimes)) < len(document.regimes):
        raise refuse(path, "regimes", document.regimes, "each regime once")
    return _Given(path, catalog, problem, document, tuple(sizes))


def load_sweep(path: Path, catalog: Mapping[str, Kernel]) -> Sweep:
    """Read one sweep and check it against the catalogue. Raises LadderError for the first mistake."""
    given = _given(path, catalog)
    document, (entries, excluded) = given.document, _all_entries(given)
    asked = tuple(size for size in given.sizes if any(entry.asks(size) for entry in entries))
    return Sweep(
        name=path.stem,
        path=path,
        title=document.title,
        question=document.question,
        problem=given.problem,
        dtypes=tuple(document.dtypes),
        sizes=asked,
        unasked=tuple(size for size in given.sizes if size not in asked),
        entries=entries,
        excluded=excluded,
        reference=_reference(given, entries),
        precision=document.precision,
        regimes=tuple(document.regimes),
        counters=_counters(given, entries, asked),
        figures=_figures(given, entries, asked),
    )


def named(names: Sequence[str], known: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the `known` sweeps that `names` chooses. Raises LadderError for another name."""
    for name in names:
        if name not in known:
            raise refuse("configuration", "sweeps", name, known)
    return {name: known[name] for name in names}


def load_sweeps(
    folder: Path, catalog: Mapping[str, Kernel], chosen: Sequence[str] | None
) -> dict[str, Sweep]:
    """The chosen sweeps (all where None) of a folder, by name: as chosen, or by problem and name.

    Raises LadderError where a chosen name has no file.
    """
    paths = {path.stem: path for path in sorted(folder.glob("*.yaml"))}
    if not paths:
        raise LadderError(f"{folder}: no sweep (*.yaml) found")
    if chosen is not None:
        return {name: load_sweep(path, catalog) for name, path in named(chosen, paths).items()}
    sweeps = [load_sweep(path, catalog) for path in paths.values()]
    problems = list(PROBLEMS)
    sweeps.sort(key=lambda sweep: (problems.index(sweep.problem.name), sweep.name))
    return {sweep.name: sweep for sweep in sweeps}
