"""Sweeps from their YAML files, held to the schema and to the catalogue."""

import itertools
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from ladder.catalogue.documents import documents_in, parse, parse_size, read_yaml
from ladder.model.cell import SUSTAINED, External
from ladder.model.document import A_VALUE, Document, Share, Some, Text, Value, is_parameter, matching, taking
from ladder.model.errors import LadderError, refuse, refuse_unknown, within
from ladder.model.expressions import evaluate
from ladder.model.files import file_sha256
from ladder.model.kernel import Kernel, ProblemName, Variant
from ladder.model.problem import Size
from ladder.model.sweep import Entry, Figure, Reference, Selection, SizeText, Sweep
from ladder.problems.registry import PROBLEMS


def _is_axis(value: Any) -> bool:
    return all(map(is_parameter, value if isinstance(value, list) and value else [value]))


Axis = Annotated[Value | list[Value], *taking(f"{A_VALUE}, or a list of them", _is_axis)]
_PREDICTED = "two numbers from 0 to 1, the lower first"


def _is_prediction(value: Any) -> bool:
    numbers = isinstance(value, list) and all(type(one) in (int, float) for one in value)
    return numbers and len(value) == 2 and 0 <= value[0] <= value[1] <= 1


Slug = Annotated[str, *matching(r"[a-z0-9][a-z0-9-]*", "the slug of a GPU such as nvidia-h200")]
Predicted = Annotated[list[float], *taking(_PREDICTED, _is_prediction)]
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
    rung: Annotated[str, Field(min_length=1, max_length=60)] | None = None
    """name of the step on a ladder (single combinations only)"""
    technique: Text | None = None
    """what the rung adds over the one below"""
    predicted: Predicted | None = None
    """share of the peak rate, of the memory or of arithmetic, whichever bounds the problem: the lowest and the highest
    that were expected before it was measured, on the GPU of `predicted_for`"""
    baseline: Text | None = None
    """rung of the sweep that this one changes, with which it is paired directly as well"""
    where: Text | None = None
    """expression over parameters and the size; where it is false the sweep does not have the variant, and there is
    no row, unless a reason is given"""
    reason: Text | None = None
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


_A_NAME = "letters, digits and any of _ . : + -, a letter or digit first"
_FUNCTION = r"([A-Za-z_]|\{(dtype|layout)\})([A-Za-z0-9_]|\{(dtype|layout)\})*"
_Function = Annotated[
    str, *matching(_FUNCTION, "the name of a function; {dtype} and {layout} stand for the cell's")
]


class ExternalDocument(Document):
    """A reference of one's own (docs/references.md)."""

    shared_object: Annotated[str, *matching(r".*\.so(\.\d+)*", "a file name that ends in .so")] | None = None
    """shared object with a C entry; a path relative to the project"""
    python: Annotated[str, *matching(r".*\.py", "a file name that ends in .py")] | None = None
    """Python file with a callable; a path relative to the project"""
    entry: _Function
    """its function; in that of a shared object {dtype} and {layout} stand for the cell's"""
    setup: _Function | None = None
    """function of the shared object that is called once a size, untimed"""
    name: Annotated[str, *matching(r"[A-Za-z0-9][A-Za-z0-9_.:+-]*", _A_NAME)] | None = None
    """its name in tables (default FILE:ENTRY, the file without folder and ending)"""

    @property
    def file(self) -> str:
        return self.shared_object or self.python or ""

    @property
    def usual_name(self) -> str:
        return f"{Path(self.file).name.partition('.')[0]}:{self.entry}"


def _kind(value: Any) -> str | None:
    """The tag of a union: in brackets, so that errors leave it out of the name of the field."""
    if isinstance(value, str):
        return "[library]"
    given = value if isinstance(value, Mapping) else {}
    kinds = {"kernel": "[kernel]", "shared_object": "[external]", "python": "[external]"}
    return next((kind for field, kind in kinds.items() if field in given), None)


_AGAINST = (
    "a library of the problem, {kernel: NAME, params: {...}}, {shared_object: FILE.so, entry: NAME} "
    "or {python: FILE.py, entry: NAME}"
)
_ANY = (
    Annotated[str, Tag("[library]")]
    | Annotated[ReferenceDocument, Tag("[kernel]")]
    | Annotated[ExternalDocument, Tag("[external]")]
)
Against = Annotated[_ANY, Discriminator(_kind), *taking(_AGAINST, lambda value: _kind(value) is not None)]


class SelectionDocument(Document):
    """some of the sweep's cells"""

    sizes: Some[SizeText] | None = None
    """sizes (default the first)"""
    where: Text | None = None
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
    predicted_for: Slug | None = None
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
    about = {"kernel": entry.variant.kernel.name, "dtype": entry.variant.dtype, "rung": entry.rung}
    return about | entry.variant.names(size)


class _SweepFile:
    """One sweep, the `fields` of the file at `path`, checked part by part against the catalogue.

    Raises LadderError for the first mistake.
    """

    def __init__(
        self, path: Path, fields: Mapping[str, Any], catalog: Mapping[str, Kernel], root: Path
    ) -> None:
        self.root, document = root, parse(SweepDocument, fields, path, problems=PROBLEMS)
        self.path, self.catalog, self.document, self.problem = path, catalog, document, document.problem
        for index, dtype in enumerate(document.dtypes):
            refuse_unknown(path, f"dtypes[{index}]", dtype, self.problem.dtypes)
        if document.layout is not None and document.layout not in self.problem.layouts:
            raise refuse(path, "layout", document.layout, [name for name in self.problem.layouts if name])
        self.sizes: list[Size] = []
        for index, text in enumerate(document.sizes):
            size = parse_size(self.problem, text, path, f"sizes[{index}]")
            if size in self.sizes:
                raise refuse(path, f"sizes[{index}]", size, "each size once")
            self.sizes.append(size)
        if len(set(document.regimes)) < len(document.regimes):
            raise refuse(path, "regimes", document.regimes, "each regime once")
        predicting = any(entry.predicted for entry in document.variants)
        if predicting != (document.predicted_for is not None):
            accepted = "the slug of a GPU, such as nvidia-h200, where a variant has `predicted`, and nothing elsewhere"
            raise refuse(path, "predicted_for", document.predicted_for, accepted)
        self._refuse_too_many()
        self.excluded = 0
        self.entries: dict[Variant, Entry] = {}
        ids = dict[str, Variant]()
        for index, given in enumerate(document.variants):
            for entry in self._entries(index, given):
                if entry.variant in self.entries:
                    raise refuse(path, f"variants[{index}]", entry.variant.id, "each variant once")
                self.entries[entry.variant] = entry
                if (same := ids.setdefault(entry.variant.id, entry.variant)) is not entry.variant:
                    both = f"{dict(same.params)} and {dict(entry.variant.params)} have one name, {entry.variant.id}"
                    raise refuse(
                        path, f"variants[{index}].params", both, "values that lead to different names"
                    )
        self._pair_rungs()
        asked = [size for entry in self.entries.values() for size in entry.sizes]
        self.sizes_with_cells = tuple(size for size in self.sizes if size in asked)

    def _refuse_too_many(self) -> None:
        """Raises LadderError where all entries together stand for more than can be looked at in half a minute."""
        count = 0
        for given in self.document.variants:
            axes = [len(value) for value in given.params.values() if isinstance(value, list)]
            count += math.prod(axes) * len(given.dtypes or self.document.dtypes) * len(self.sizes)
        if count > _MOST_CELLS:
            raise LadderError(
                f"{self.path}: variants: {count} combinations of parameters, dtypes and sizes; accepted: at most "
                f"{_MOST_CELLS} in a sweep"
            )

    def _pair_rungs(self) -> None:
        """Give each rung that names a baseline the entry of that rung in its dtype."""
        rungs = {(entry.rung, entry.variant.dtype): entry for entry in self.entries.values() if entry.rung}
        for index, given in enumerate(self.document.variants):
            if given.baseline is not None:
                field, others = f"variants[{index}].baseline", {rung for rung, _ in rungs} - {given.rung}
                if given.rung is None:
                    raise refuse(self.path, field, given.baseline, "a baseline beside `rung` only")
                refuse_unknown(self.path, field, given.baseline, sorted(others), "the sweep has no such rung")
                for dtype in self.document.dtypes:
                    entry, baseline = rungs.get((given.rung, dtype)), rungs.get((given.baseline, dtype))
                    if entry is not None:
                        self.entries[entry.variant] = replace(entry, baseline=baseline)

    def _kernel(self, field: str, name: str) -> Kernel:
        """A kernel of the sweep's problem, named in `field`."""
        refuse_unknown(self.path, field, name, self.catalog, why="no such kernel")
        kernel = self.catalog[name]
        if kernel.problem is not self.problem:
            same = [other.name for other in self.catalog.values() if other.problem is self.problem]
            refuse_unknown(self.path, field, name, same, why=f"its problem is {kernel.problem.name}")
        return kernel

    def _size(self, size: Any, where: str) -> Size:
        """A size of the sweep, as `where` in the file gives it."""
        parsed = parse_size(self.problem, size, self.path, where)
        if parsed not in self.sizes_with_cells:
            why = "no variant is asked for there" if parsed in self.sizes else ""
            raise refuse(self.path, where, size, "one of the sweep's sizes", why=why)
        return parsed

    def _variants(self, where: str, kernel: Kernel, given: EntryDocument) -> list[Variant]:
        """Variants of one entry, with the excluded ones if there are several combinations or they are recorded."""
        axes = [value if isinstance(value, list) else [value] for value in given.params.values()]
        for place, dtype in enumerate(given.dtypes or ()):
            why = "the sweep has no such dtype"
            refuse_unknown(self.path, f"{where}dtypes[{place}]", dtype, self.document.dtypes, why=why)
        dtypes = given.dtypes or self.document.dtypes
        combinations = [dict(zip(given.params, values, strict=True)) for values in itertools.product(*axes)]
        if given.rung and len(combinations) > 1:
            accepted = "a rung for one combination of parameters only"
            raise refuse(self.path, f"{where}rung", given.rung, accepted)
        lenient = len(combinations) > 1 or given.unsupported == "record"
        layout = self.document.layout
        return [
            kernel.variant(params, dtype, layout, where=where, file=self.path, excluded=lenient)
            for dtype in dtypes
            for params in combinations
        ]

    def _entries(self, index: int, given: EntryDocument) -> list[Entry]:
        """Entries that one item of `variants` stands for; the combinations that it drops are counted."""
        path, where, record = self.path, f"variants[{index}].", given.unsupported == "record"
        kernel = self._kernel(f"{where}kernel", given.kernel)
        if given.reason and not given.where:
            raise refuse(path, f"{where}reason", given.reason, "a reason beside `where` only")
        variants = self._variants(where, kernel, given)
        texts = [text or "" for text in (given.rung, given.technique, given.where, given.reason)]
        low_high = (given.predicted[0], given.predicted[1]) if given.predicted else None
        kept = [
            Entry(variant, *texts, predicted=low_high)
            for variant in variants
            if record or variant.absent() is None
        ]
        with within(f"{path}: {where}where"):
            asked = [
                tuple(size for size in self.sizes if entry.excluded_by_where(size) != "") for entry in kept
            ]
        kept = [replace(entry, sizes=sizes) for entry, sizes in zip(kept, asked, strict=True) if sizes]
        if not kept:
            why = "no combination is left after the constraints and where"
            raise LadderError(f"{path}: {where}params: {why}")
        if all(entry.excluded_by_where(size) for entry in kept for size in entry.sizes):
            raise refuse(path, f"{where}where", given.where, "an expression that keeps a size")
        for place, size in enumerate(self.sizes):
            reasons = [entry.variant.absent(size) for entry in kept if size in entry.sizes]
            if reasons and all(reasons) and not record:
                accepted = "a size it supports, or `unsupported: record` at that entry"
                why = f"no variant of variants[{index}] ({kernel.name}) supports it: {reasons[0]}"
                raise refuse(path, f"sizes[{place}]", dict(size), accepted, why=why)
        self.excluded += len(variants) - len(kept)
        return kept

    def _external(self, given: ExternalDocument, where: str) -> External:
        """A reference of one's own, whose file is there; what it does is seen where it is launched."""
        if given.shared_object is not None and given.python is not None:
            raise refuse(self.path, f"{where}.python", given.python, "shared_object or python, not both")
        if given.python is not None and given.setup is not None:
            raise refuse(self.path, f"{where}.setup", given.setup, "a setup entry of a shared object only")
        kind: Literal["shared_object", "python"] = "shared_object" if given.python is None else "python"
        if given.python is not None and not given.entry.isidentifier():
            raise refuse(self.path, f"{where}.entry", given.entry, "the name of a function of the module")
        file = self.root / given.file
        if not file.is_file():
            why = f"{file} is no file"
            raise refuse(self.path, f"{where}.{kind}", given.file, "a file, relative to the project", why=why)
        return External(kind, os.path.abspath(file), given.entry, given.setup or "", file_sha256(file))

    def _reference(self) -> Reference:
        path, listed = self.path, self.document.references
        kernels = [one for one in listed if isinstance(one, ReferenceDocument)]
        names, external = list[str](), dict[str, External]()
        for index, one in enumerate(listed):
            where = f"references[{index}]"
            if isinstance(one, ReferenceDocument):
                continue
            if isinstance(one, str):
                name = one
                refuse_unknown(path, where, name, self.problem.libraries, why=f"problem {self.problem.name}")
            else:
                name = one.name or one.usual_name
                if name in (*self.problem.libraries, *names):
                    raise refuse(path, f"{where}.name", name, "a name that no other reference has")
                external[name] = self._external(one, where)
            names.append(name)
        if (names and kernels) or len(kernels) > 1:
            both = [*names, *(one.kernel for one in kernels)]
            raise refuse(path, "references", both, "libraries and references of one's own, or one kernel")
        if names:
            return Reference(libraries=tuple(names), external=external)
        kernel, params = self._kernel("references[0].kernel", kernels[0].kernel), kernels[0].params
        # Its own parameters first, so that a mistake in them names this file.
        kernel.variant(params, next(iter(kernel.dtypes)), where="references[0].", file=path, excluded=True)
        reference = Reference(kernel=kernel, params=params)
        with within(f"{path}: references[0]"):
            for variant in self.entries:
                if variant.absent() is None:
                    reference.variant_for(variant)
        return reference

    def _selected(self, given: SelectionDocument | None, field: str) -> Selection:
        """The cells that `where` keeps at the sizes, which are the first one where none is named."""
        if given is None:
            return ()
        listed = enumerate(given.sizes or ())
        sizes = [
            self._size(size, f"{field}.sizes[{index}]") for index, size in listed
        ] or self.sizes_with_cells[:1]
        entries = [entry for entry in self.entries.values() if entry.variant.absent() is None]
        asked = [(entry, size) for entry in entries for size in sizes if size in entry.sizes]
        if given.where is not None:
            with within(f"{self.path}: {field}.where"):
                asked = [one for one in asked if evaluate(given.where, _names_of(*one))]
            if not asked:
                accepted = "an expression that keeps a variant asked for at one of these sizes"
                raise refuse(self.path, f"{field}.where", given.where, accepted)
        return tuple((entry.variant, size) for entry, size in asked)

    def _figure(self, index: int, figure: Figure) -> Figure:
        axes = sorted({name for variant in self.entries for name in variant.params})
        for axis in ("x", "y", "hue"):
            if (name := getattr(figure, axis)) is not None:
                refuse_unknown(self.path, f"figures[{index}].{axis}", name, axes)
        at = None if figure.at is None else self._size(figure.at, f"figures[{index}].at")
        return figure.model_copy(update={"at": at})

    def sweep(self) -> Sweep:
        document = self.document
        return Sweep(
            name=self.path.stem,
            title=document.title,
            question=document.question,
            problem=self.problem,
            dtypes=tuple(document.dtypes),
            sizes=self.sizes_with_cells,
            sizes_without_cells=tuple(size for size in self.sizes if size not in self.sizes_with_cells),
            entries=tuple(self.entries.values()),
            excluded=self.excluded,
            reference=self._reference(),
            precision=document.precision,
            regimes=tuple(document.regimes),
            counted=self._selected(document.counters, "counters"),
            counter_groups=tuple(document.counters.groups) if document.counters else (),
            sustained=self._selected(document.sustained, "sustained"),
            repeated=self._selected(document.repeated, "repeated"),
            errors=self._selected(document.errors, "errors"),
            tuning=document.tuning,
            predicted_for=document.predicted_for or "",
            figures=tuple(self._figure(index, figure) for index, figure in enumerate(document.figures)),
        )


def load_sweep(path: Path, catalog: Mapping[str, Kernel]) -> Sweep:
    """Read one sweep of a project and check it against the catalogue. Raises LadderError for the first mistake."""
    return make_sweep(path, read_yaml(path), catalog, path.parent.parent.parent)


def make_sweep(path: Path, fields: Mapping[str, Any], catalog: Mapping[str, Kernel], root: Path) -> Sweep:
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


def chosen_cells(sweep: Sweep, choice: str | Sequence[str] | Mapping[str, str]) -> Sweep:
    """A sweep with the cells that a configuration's `sweeps` keeps of it, which are all where it only names sweeps.

    Raises LadderError where the expression is none or keeps no cell.
    """
    if not isinstance(choice, Mapping) or sweep.name not in choice:
        return sweep
    field, where = f"sweeps.{sweep.name}", choice[sweep.name]

    def keeps(entry: Entry, size: Size, regime: str) -> bool:
        with within(f"configuration: {field}"):
            return bool(evaluate(where, {**_names_of(entry, size), "regime": regime}))

    def some(selection: Selection) -> Selection:
        return tuple((one, size) for one, size in selection if one in own and size in own[one].sizes)

    first = sweep.regimes[0]
    cut = [
        replace(entry, sizes=tuple(size for size in entry.sizes if keeps(entry, size, first)))
        for entry in sweep.entries
    ]
    own = {entry.variant: entry for entry in cut if entry.sizes}
    if not own:
        raise refuse("configuration", field, where, "an expression that keeps a cell")
    paired = [
        replace(entry, baseline=own.get(entry.baseline.variant) if entry.baseline else None)
        for entry in own.values()
    ]
    return replace(
        sweep,
        entries=tuple(paired),
        sizes=tuple(size for size in sweep.sizes if any(size in entry.sizes for entry in paired)),
        counted=some(sweep.counted),
        sustained=tuple(
            (one, size) for one, size in some(sweep.sustained) if keeps(own[one], size, SUSTAINED)
        ),
        repeated=some(sweep.repeated),
        errors=some(sweep.errors),
    )


def load_sweeps(folder: Path, catalog: Mapping[str, Kernel], chosen: list[str] | None) -> dict[str, Sweep]:
    """The chosen sweeps by name, or all, by problem and name. Raises LadderError where a chosen one has no file."""
    paths = {path.stem: path for path in documents_in(folder, "*.[yY]*[mM][lL]")}
    if not paths:
        raise LadderError(f"{folder}: no sweep (*.yaml) found")
    if chosen is not None:
        return {name: load_sweep(path, catalog) for name, path in named(chosen, paths).items()}
    sweeps = [load_sweep(path, catalog) for path in paths.values()]
    problems = list(PROBLEMS)
    sweeps.sort(key=lambda sweep: (problems.index(sweep.problem.name), sweep.name))
    return {sweep.name: sweep for sweep in sweeps}
