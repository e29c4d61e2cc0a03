"""Sweeps from their YAML files, held to the schema and to the catalogue."""

import itertools
import math
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Predicate
from pydantic import BeforeValidator, Discriminator, Field, Tag

from ladder.catalogue.documents import documents_in, parse, parse_size, read_yaml
from ladder.model.cell import SUSTAINED, External
from ladder.model.document import (
    NOT_ACCEPTED,
    Document,
    Share,
    Some,
    Text,
    Value,
    matching,
    saying,
)
from ladder.model.errors import LadderError, refuse, refuse_unknown, within
from ladder.model.expressions import holds
from ladder.model.files import file_sha256
from ladder.model.kernel import Kernel, ProblemName, Variant
from ladder.model.problem import Size
from ladder.model.sweep import Entry, Figure, Reference, Selection, SizeText, Sweep
from ladder.problems.registry import PROBLEMS

Slug = Annotated[
    str, *matching(r"[a-z0-9][a-z0-9-]*", "the slug of a GPU such as nvidia-h200")
]
Axis = Annotated[
    Some[Value],
    BeforeValidator(
        lambda axis: axis if isinstance(axis, list) else [axis],
        json_schema_input_type=Value | Some[Value],
    ),
    *saying("a whole number or a word, of printable characters, or a list of them"),
]
Predicted = Annotated[
    list[Annotated[float, Field(ge=0, le=1)]],
    Field(min_length=2, max_length=2),
    Predicate(lambda pair: pair[0] <= pair[1]),
    *saying("two numbers from 0 to 1, the lower first"),
]
_MOST_CELLS = 200_000
"""Most combinations of a sweep, with those that constraints exclude: to look at so many takes half a minute."""


class EntryDocument(Document):
    """Variants of one kernel."""

    kernel: str
    """kernel of the catalogue"""
    params: dict[str, Axis] = {}
    """parameter values; lists are axes, which are multiplied out"""
    dtypes: Some[str] | None = None
    """those of the sweep's dtypes that it runs in (default all)"""
    rung: Annotated[str, Field(min_length=1, max_length=60)] = ""
    """name of the step on a ladder (single combinations only)"""
    technique: Text = ""
    """what the rung adds over the one below"""
    predicted: Predicted | None = None
    """share of the peak rate, of the memory or of arithmetic, whichever bounds the problem: the lowest and the highest
    that were expected before it was measured, on the GPU of `predicted_for`"""
    baseline: Text = ""
    """rung above it in the list that this one changes, with which it is paired directly as well"""
    where: Text = ""
    """expression over parameters and the size; where it is false the sweep does not have the variant, and there is
    no row, unless a reason is given"""
    reason: Text = ""
    """why `where` leaves out what it does: there is an unsupported row with it"""
    unsupported: Literal["refuse", "record"] = "refuse"
    """how to treat combinations that a constraint excludes. refuse (default): an error for a single combination; in a
    product they are dropped, and it is an error if no combination supports a size. record: a row with the status
    unsupported and the reason"""


class ReferenceDocument(Document):
    """A kernel that cells are timed against."""

    kernel: str
    """kernel of the same problem"""
    params: dict[str, Value] = {}
    """its parameters; those not named are the variant's"""


_Function = Annotated[
    str,
    *matching(
        r"([A-Za-z_]|\{(dtype|layout)\})([A-Za-z0-9_]|\{(dtype|layout)\})*",
        "the name of a function; {dtype} and {layout} stand for the cell's",
    ),
]
_A_NAME = "letters, digits and any of _ . : + -, a letter or digit first"


class ExternalDocument(Document):
    """A reference of one's own (docs/references.md)."""

    name: Annotated[str, *matching("[A-Za-z0-9][A-Za-z0-9_.:+-]*", _A_NAME)] = ""
    """its name in tables (default FILE:ENTRY, the file without folder and ending)"""


class SharedObjectDocument(ExternalDocument):
    """A C entry of a shared object."""

    shared_object: Annotated[
        str, *matching(r".*\.so(\.\d+)*", "a file name that ends in .so")
    ]
    """shared object with a C entry; a path relative to the project"""
    entry: _Function
    """its function; in that of a shared object {dtype} and {layout} stand for the cell's"""
    setup: _Function = ""
    """function of the shared object that is called once a size, untimed"""


class PythonDocument(ExternalDocument):
    """A Python callable."""

    python: Annotated[str, *matching(r".*\.py", "a file name that ends in .py")]
    """Python file with a callable; a path relative to the project"""
    entry: Annotated[
        str, *matching(r"[^\W\d]\w*", "the name of a function of the module")
    ]
    """its function"""


def _tag(value: Any) -> str:
    """The tag of a union: in brackets, so that errors leave it out of the name of the field."""
    fields = value if isinstance(value, Mapping) else {"library": value}
    tags = ("kernel", "shared_object", "python", "library")
    return next((f"[{tag}]" for tag in tags if tag in fields), "")


_AGAINST = (
    "a library of the problem, {kernel: NAME, params: {...}}, {shared_object: FILE.so, entry: NAME} "
    "or {python: FILE.py, entry: NAME}"
)
Against = Annotated[
    Annotated[str, Tag("[library]")]
    | Annotated[ReferenceDocument, Tag("[kernel]")]
    | Annotated[SharedObjectDocument, Tag("[shared_object]")]
    | Annotated[PythonDocument, Tag("[python]")],
    Discriminator(_tag, NOT_ACCEPTED, "{accepted}", {"accepted": _AGAINST}),
    Field(json_schema_extra={"x-accepted": _AGAINST}),
]


class SelectionDocument(Document):
    """some of the sweep's cells"""

    sizes: Some[SizeText] | None = None
    """sizes (default the first)"""
    where: Text = ""
    """expression that keeps a cell, over parameters, kernel, dtype, rung ('' for none) and the size"""


class CountersDocument(SelectionDocument):
    """profiler metrics to collect"""

    groups: Some[Literal["banks", "memory", "compute", "pipes", "stalls", "occupancy"]]
    """groups of metrics"""


class SweepDocument(Document):
    """One question, and the variants and sizes that answer it (config/sweeps/NAME.yaml)."""

    title: Annotated[str, Field(min_length=1, max_length=200)]
    """heading in the report"""
    question: Text
    """the question in one sentence"""
    problem: ProblemName
    """problem of all its kernels, such as gemm"""
    dtypes: Some[str]
    """dtypes it runs in"""
    layout: str | None = None
    """layout of a GEMM, NN (default) or TN"""
    sizes: Annotated[list[SizeText], Field(min_length=1, max_length=1000)]
    """sizes: a number (all fields alike), an expression such as 2**28, or a mapping of size fields"""
    variants: Some[EntryDocument]
    """kernels and their parameters"""
    references: Some[Against]
    """what cells are timed against: one kernel, or libraries and references of one's own, of which the fastest
    counts"""
    precision: Share | None = None
    """half-width of the speed-up's interval to reach, as a share (default the configuration's)"""
    regimes: Some[Literal["cold", "warm", "sustained"]] = ["cold", "warm"]
    """cold: operands outside the L2, and nothing in it left to be written to memory; warm: back to back in a
    CUDA graph (default cold and warm); figures and findings speak of the first"""
    counters: CountersDocument | None = None
    predicted_for: Slug = ""
    """slug of the GPU that `predicted` speaks of, such as nvidia-h200; nothing is said of it on others"""
    sustained: SelectionDocument | None = None
    """cells to measure sustained as well: back to back for seconds, at the clock that the power limit allows"""
    repeated: SelectionDocument | None = None
    """cells that headlines and claims rest on: measured in measure.sessions sessions"""
    errors: SelectionDocument | None = None
    """cells whose largest errors are recorded by kind of inputs, with those of the reference"""
    tuning: bool = False
    """whether its question is which of many variants is the fastest (default false): the three fastest at each dtype
    and size, and with stencils at each radius, are then measured again in a fresh process, whose numbers count"""
    figures: list[Figure] = []
    """figures drawn from this sweep"""


def _names_of(entry: Entry, size: Size) -> dict[str, Any]:
    """Names that an expression which selects cells may use."""
    about = {
        "kernel": entry.variant.kernel.name,
        "dtype": entry.variant.dtype,
        "rung": entry.rung,
    }
    return about | entry.variant.names(size)


def _with_cells(sizes: Iterable[Size], entries: Collection[Entry]) -> tuple[Size, ...]:
    """Of some sizes those that entries are asked for at."""
    return tuple(
        size for size in sizes if any(size in entry.sizes for entry in entries)
    )


class _SweepFile:
    """The fields of one sweep file, checked part by part against the catalogue.

    Raises LadderError for the first mistake.
    """

    def __init__(
        self,
        path: Path,
        fields: Mapping[str, Any],
        catalog: Mapping[str, Kernel],
        root: Path,
    ) -> None:
        self.path, self.root = path, root
        self.document = parse(SweepDocument, fields, path)
        self.problem = self.document.problem
        self.kernels = {
            name: kernel
            for name, kernel in catalog.items()
            if kernel.problem is self.problem
        }
        self._check_fields()
        self.sizes = self._parse_sizes()
        self._refuse_too_many()
        self.excluded = 0
        self.entries = self._collect_entries()
        self._pair_rungs()
        self.sizes_with_cells = _with_cells(self.sizes, self.entries.values())

    def _check_fields(self) -> None:
        """Hold fields to the problem and to one another."""
        path, document, problem = self.path, self.document, self.problem
        for index, dtype in enumerate(document.dtypes):
            refuse_unknown(path, f"dtypes[{index}]", dtype, problem.dtypes)
        if document.layout is not None:
            refuse_unknown(path, "layout", document.layout, problem.layouts)
        if len(set(document.regimes)) < len(document.regimes):
            raise refuse(path, "regimes", document.regimes, "each regime once")
        predicting = any(item.predicted for item in document.variants)
        if predicting != bool(document.predicted_for):
            accepted = "the slug of a GPU, such as nvidia-h200, where a variant has `predicted`, and nothing elsewhere"
            raise refuse(
                path, "predicted_for", document.predicted_for or None, accepted
            )

    def _parse_sizes(self) -> list[Size]:
        sizes: list[Size] = []
        for index, text in enumerate(self.document.sizes):
            field = f"sizes[{index}]"
            size = parse_size(self.problem, text, self.path, field)
            if size in sizes:
                raise refuse(self.path, field, size, "each size once")
            sizes.append(size)
        return sizes

    def _refuse_too_many(self) -> None:
        """Raises LadderError where all entries together stand for more than can be looked at in half a minute."""
        count = 0
        for item in self.document.variants:
            dtypes = item.dtypes or self.document.dtypes
            lengths = [len(axis) for axis in item.params.values()]
            count += math.prod(lengths) * len(dtypes) * len(self.sizes)
        if count > _MOST_CELLS:
            raise LadderError(
                f"{self.path}: variants: {count} combinations of parameters, dtypes and sizes; accepted: at most "
                f"{_MOST_CELLS} in a sweep"
            )

    def _collect_entries(self) -> dict[Variant, Entry]:
        """The entry of each variant. Raises LadderError for two that are equal, or whose values lead to one name."""
        entries: dict[str, Entry] = {}
        for index, item in enumerate(self.document.variants):
            field = f"variants[{index}]"
            for entry in self._entries(field, item):
                name, why = entry.variant.id, "another variant has this name"
                if name in entries:
                    accepted = "each variant once, with a name of its own"
                    raise refuse(self.path, f"{field}.params", name, accepted, why)
                entries[name] = entry
        return {entry.variant: entry for entry in entries.values()}

    def _pair_rungs(self) -> None:
        """Give each rung that names a baseline the entry of that rung in its dtype."""
        rungs = {
            (entry.rung, entry.variant.dtype): entry for entry in self.entries.values()
        }
        for index, item in enumerate(self.document.variants):
            if not (name := item.baseline):
                continue
            field = f"variants[{index}].baseline"
            if not item.rung:
                raise refuse(self.path, field, name, "a baseline beside `rung` only")
            above = {other.rung for other in self.document.variants[:index]}
            why = "the sweep has no such rung above it"
            refuse_unknown(self.path, field, name, sorted(above - {"", item.rung}), why)
            for dtype in self.document.dtypes:
                if entry := rungs.get((item.rung, dtype)):
                    baseline = rungs.get((name, dtype))
                    self.entries[entry.variant] = replace(entry, baseline=baseline)

    def _kernel(self, field: str, name: str) -> Kernel:
        """A kernel of the sweep's problem, named in `field`."""
        why = f"no such kernel of {self.problem.name}"
        refuse_unknown(self.path, field, name, self.kernels, why)
        return self.kernels[name]

    def _size(self, text: Any, field: str) -> Size:
        """A size at which the sweep has a variant, as `field` gives it."""
        size = parse_size(self.problem, text, self.path, field)
        if size not in self.sizes_with_cells:
            why = "no variant is asked for there" if size in self.sizes else ""
            raise refuse(self.path, field, text, "one of the sweep's sizes", why)
        return size

    def _variants(self, field: str, item: EntryDocument) -> Iterator[Variant]:
        """Variants of one item, with the excluded ones if there are several combinations or they are recorded."""
        kernel = self._kernel(f"{field}.kernel", item.kernel)
        if item.reason and not item.where:
            accepted = "a reason beside `where` only"
            raise refuse(self.path, f"{field}.reason", item.reason, accepted)
        for index, dtype in enumerate(item.dtypes or ()):
            why = "the sweep has no such dtype"
            at = f"{field}.dtypes[{index}]"
            refuse_unknown(self.path, at, dtype, self.document.dtypes, why)
        axes = item.params.values()
        several = any(len(axis) > 1 for axis in axes)
        if item.rung and several:
            accepted = "a rung for one combination of parameters only"
            raise refuse(self.path, f"{field}.rung", item.rung, accepted)
        excluded = several or item.unsupported == "record"
        for dtype in item.dtypes or self.document.dtypes:
            for values in itertools.product(*axes):
                yield kernel.variant(
                    dict(zip(item.params, values, strict=True)),
                    dtype,
                    self.document.layout,
                    where=f"{field}.",
                    file=self.path,
                    excluded=excluded,
                )

    def _entries(self, field: str, item: EntryDocument) -> list[Entry]:
        """Entries that one item of `variants` stands for; the combinations that it drops are counted."""
        entries: list[Entry] = []
        for variant in self._variants(field, item):
            entry = Entry(
                variant,
                item.rung,
                item.technique,
                item.where,
                item.reason,
                predicted=item.predicted,
            )
            sizes: list[Size] = []
            if variant.absent() is None or item.unsupported == "record":
                with within(f"{self.path}: {field}.where"):
                    for size in self.sizes:
                        if entry.excluded_by_where(size) != "":
                            sizes.append(size)
            if sizes:
                entries.append(replace(entry, sizes=tuple(sizes)))
            else:
                self.excluded += 1
        if not entries:
            why = "no combination is left after the constraints and where"
            raise LadderError(f"{self.path}: {field}.params: {why}")
        cells = [(entry, size) for entry in entries for size in entry.sizes]
        if all(entry.excluded_by_where(size) for entry, size in cells):
            accepted = "an expression that keeps a size"
            raise refuse(self.path, f"{field}.where", item.where, accepted)
        if item.unsupported == "refuse":
            self._refuse_unsupported_sizes(field, entries)
        return entries

    def _refuse_unsupported_sizes(self, field: str, entries: Iterable[Entry]) -> None:
        """Raises LadderError for a size that no variant of an item supports, although it is asked for there."""
        for index, size in enumerate(self.sizes):
            asked = [entry.variant for entry in entries if size in entry.sizes]
            reasons = [variant.absent(size) for variant in asked]
            if reasons and all(reasons):
                accepted = "a size it supports, or `unsupported: record` at that entry"
                why = f"no variant of {field} ({asked[0].kernel.name}) supports it: {reasons[0]}"
                raise refuse(self.path, f"sizes[{index}]", dict(size), accepted, why)

    def _external(
        self,
        document: SharedObjectDocument | PythonDocument,
        field: str,
        libraries: Sequence[str],
    ) -> tuple[str, External]:
        """The name of a reference of one's own, which no library has, and the reference, whose file is there.

        What it does is seen where it is launched.
        """
        kind: Literal["shared_object", "python"] = "python"
        if isinstance(document, SharedObjectDocument):
            kind = "shared_object"
        entry, given = document.entry, getattr(document, kind)
        file = self.root / given
        name = document.name or f"{file.name.partition('.')[0]}:{entry}"
        if name in (*self.problem.libraries, *libraries):
            accepted = "a name that no other reference has"
            raise refuse(self.path, f"{field}.name", name, accepted)
        if not file.is_file():
            accepted, why = "a file, relative to the project", f"{file} is no file"
            raise refuse(self.path, f"{field}.{kind}", given, accepted, why)
        setup, path = getattr(document, "setup", ""), os.path.abspath(file)
        return name, External(kind, path, entry, setup, file_sha256(file))

    def _reference(self) -> Reference:
        """Libraries and references of one's own, or one kernel."""
        libraries, external = list[str](), dict[str, External]()
        documents = self.document.references
        for index, document in enumerate(documents):
            field, why = f"references[{index}]", f"problem {self.problem.name}"
            if isinstance(document, str):
                accepted = self.problem.libraries
                refuse_unknown(self.path, field, document, accepted, why)
                libraries.append(document)
            elif not isinstance(document, ReferenceDocument):
                name, reference = self._external(document, field, libraries)
                external[name] = reference
                libraries.append(name)
            elif len(documents) == 1:
                return self._reference_kernel(document)
            else:
                alone = "libraries and references of one's own, or one kernel"
                raise refuse(self.path, "references", document.kernel, alone)
        return Reference(tuple(libraries), external)

    def _reference_kernel(self, given: ReferenceDocument) -> Reference:
        """A kernel as the reference, which has a variant for each variant of the sweep."""
        kernel = self._kernel("references[0].kernel", given.kernel)
        # Its own parameters first, so that a mistake in them names this file.
        dtype = next(iter(kernel.dtypes))
        kernel.variant(
            given.params, dtype, where="references[0].", file=self.path, excluded=True
        )
        reference = Reference(kernel=kernel, params=given.params)
        with within(f"{self.path}: references[0]"):
            for variant in self.entries:
                if variant.absent() is None:
                    reference.variant_for(variant)
        return reference

    def _selected(self, given: SelectionDocument | None, field: str) -> Selection:
        """The cells that `where` keeps at the sizes, which are the first one where none is named."""
        if given is None:
            return ()
        sizes = [
            self._size(text, f"{field}.sizes[{index}]")
            for index, text in enumerate(given.sizes or ())
        ]
        cells: list[tuple[Variant, Size]] = []
        with within(f"{self.path}: {field}.where"):
            for variant, entry in self.entries.items():
                for size in sizes or self.sizes_with_cells[:1]:
                    if variant.absent() is not None or size not in entry.sizes:
                        continue
                    if not given.where or holds(given.where, _names_of(entry, size)):
                        cells.append((variant, size))
        if given.where and not cells:
            accepted = (
                "an expression that keeps a variant asked for at one of these sizes"
            )
            raise refuse(self.path, f"{field}.where", given.where, accepted)
        return tuple(cells)

    def _figure(self, index: int, figure: Figure) -> Figure:
        field = f"figures[{index}]"
        if figure.kind == "banks" and self.problem.name != "banks":
            accepted = "a kind for this problem; banks is for the problem banks"
            raise refuse(self.path, f"{field}.kind", figure.kind, accepted)
        parameters = sorted({name for entry in self.entries for name in entry.params})
        needed = ("x", "y") if figure.kind == "heatmap" else ()
        for axis in ("x", "y", "hue"):
            name = getattr(figure, axis)
            if name is not None or axis in needed:
                refuse_unknown(self.path, f"{field}.{axis}", name, parameters)
        at = None if figure.at is None else self._size(figure.at, f"{field}.at")
        return figure.model_copy(update={"at": at})

    def sweep(self) -> Sweep:
        document, counters = self.document, self.document.counters
        without = [size for size in self.sizes if size not in self.sizes_with_cells]
        return Sweep(
            name=self.path.stem,
            title=document.title,
            question=document.question,
            problem=self.problem,
            dtypes=tuple(document.dtypes),
            sizes=self.sizes_with_cells,
            sizes_without_cells=tuple(without),
            entries=tuple(self.entries.values()),
            excluded=self.excluded,
            reference=self._reference(),
            precision=document.precision,
            regimes=tuple(document.regimes),
            counted=self._selected(counters, "counters"),
            counter_groups=tuple(counters.groups) if counters else (),
            sustained=self._selected(document.sustained, "sustained"),
            repeated=self._selected(document.repeated, "repeated"),
            errors=self._selected(document.errors, "errors"),
            tuning=document.tuning,
            predicted_for=document.predicted_for,
            figures=tuple(itertools.starmap(self._figure, enumerate(document.figures))),
        )


def load_sweep(path: Path, catalog: Mapping[str, Kernel]) -> Sweep:
    """Read one sweep of a project and check it against the catalogue. Raises LadderError for the first mistake."""
    return make_sweep(path, read_yaml(path), catalog, path.parent.parent.parent)


def make_sweep(
    path: Path, fields: Mapping[str, Any], catalog: Mapping[str, Kernel], root: Path
) -> Sweep:
    """The sweep that the fields of a sweep file describe; `path` gives its name, and mistakes name it as the file.

    Files that it names are relative to `root`.

    Raises LadderError for the first mistake.
    """
    return _SweepFile(path, fields, catalog, root).sweep()


def named(names: Sequence[str], known: Mapping[str, Any]) -> dict[str, Any]:
    """The sweeps of `known` that `names` chooses. Raises LadderError for another name."""
    for name in names:
        refuse_unknown("configuration", "sweeps", name, known)
    return {name: known[name] for name in names}


def chosen_cells(
    sweep: Sweep, choice: str | Sequence[str] | Mapping[str, str]
) -> Sweep:
    """A sweep with the cells that a configuration's `sweeps` keeps of it, which are all where it only names sweeps.

    Raises LadderError where the expression is none or keeps no cell.
    """
    if not isinstance(choice, Mapping) or sweep.name not in choice:
        return sweep
    field, where = f"sweeps.{sweep.name}", choice[sweep.name]

    def keeps(entry: Entry, size: Size, regime: str) -> bool:
        names = {**_names_of(entry, size), "regime": regime}
        with within(f"configuration: {field}"):
            return holds(where, names)

    kept: dict[Variant, Entry] = {}
    for entry in sweep.entries:
        sizes = [size for size in entry.sizes if keeps(entry, size, sweep.regimes[0])]
        if sizes:
            kept[entry.variant] = replace(entry, sizes=tuple(sizes))
    if not kept:
        raise refuse("configuration", field, where, "an expression that keeps a cell")
    for variant, entry in kept.items():
        if entry.baseline is not None:
            baseline = kept.get(entry.baseline.variant)
            kept[variant] = replace(entry, baseline=baseline)
    sustained = []
    for variant, size in sweep.sustained:
        chosen = kept.get(variant)
        if chosen and size in chosen.sizes and keeps(chosen, size, SUSTAINED):
            sustained.append((variant, size))
    entries = tuple(kept.values())
    return replace(
        sweep,
        entries=entries,
        sizes=_with_cells(sweep.sizes, entries),
        sustained=tuple(sustained),
    )


def load_sweeps(
    folder: Path, catalog: Mapping[str, Kernel], chosen: list[str] | None
) -> dict[str, Sweep]:
    """The chosen sweeps by name, or all, by problem and name. Raises LadderError where a chosen one has no file."""
    paths = {path.stem: path for path in documents_in(folder, "*.[yY]*[mM][lL]")}
    if not paths:
        raise LadderError(f"{folder}: no sweep (*.yaml) found")
    if chosen is not None:
        paths = named(chosen, paths)
    sweeps = [load_sweep(path, catalog) for path in paths.values()]
    if chosen is None:
        problems = list(PROBLEMS)
        sweeps.sort(key=lambda sweep: (problems.index(sweep.problem.name), sweep.name))
    return {sweep.name: sweep for sweep in sweeps}
