"""The catalogue: kernels as described by their YAML files, and variants with every parameter fixed."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Formatter
from typing import Any

from ladder import documents
from ladder.errors import LadderError, refuse
from ladder.expressions import evaluate, evaluate_int

ParamValue = int | str
Size = Mapping[str, int]

_INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
_ID_LIMIT = 150
L2_PROMOTIONS = ("none", "64B", "128B", "256B")
"""What the L2 may fetch from memory for a TMA copy that asks for less."""


@dataclass(frozen=True)
class Parameter:
    """One axis of a kernel's space."""

    name: str
    values: tuple[ParamValue, ...]
    default: ParamValue
    description: str
    unit: str = ""


@dataclass(frozen=True)
class Condition:
    """An expression that must hold, and why."""

    expr: str
    reason: str


@dataclass(frozen=True)
class Argument:
    """One kernel argument: a pointer to a buffer of the problem, a scalar, or a TMA tensor map."""

    kind: str
    name: str
    type: str = ""
    box: tuple[int | str, ...] = ()
    swizzle: str = "none"
    l2_promotion: str = "none"


@dataclass(frozen=True)
class Launch:
    """Launch geometry as expressions over parameters, dtype bytes and the size."""

    grid: tuple[int | str, ...]
    block: tuple[int | str, ...]
    cluster: tuple[int | str, ...]
    shared_bytes: int | str


@dataclass(frozen=True)
class Geometry:
    """Launch geometry with numbers in it: blocks, threads, bytes of dynamic shared memory."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int] | None
    shared_bytes: int


@dataclass(frozen=True, eq=False)
class Kernel:
    """A CUDA source with parameters, as its YAML file describes it."""

    name: str
    path: Path
    source: Path
    summary: str
    problem: str
    rows: tuple[str, ...]
    origin: tuple[str, ...]
    entry: str
    dtypes: Mapping[str, Mapping[str, str]]
    layouts: tuple[str, ...]
    min_arch: str
    parameters: Mapping[str, Parameter]
    constraints: tuple[Condition, ...]
    sizes: tuple[Condition, ...]
    launch: Launch
    arguments: tuple[Argument, ...]
    spills_allowed: bool
    work: str | None = None

    def variant(
        self,
        params: Mapping[str, ParamValue],
        dtype: str,
        layout: str | None = None,
        *,
        where: str = "",
        file: Path | str | None = None,
        excluded: bool = False,
    ) -> Variant:
        """The variant with `params` fixed and the rest at their defaults; one that breaks a constraint if `excluded`.

        Raises LadderError naming `file`, the field under `where`, the value and what is accepted.
        """
        file = file or self.path
        for name, value in params.items():
            if name not in self.parameters:
                raise refuse(
                    file, f"{where}params", name, self.parameters, why=f"{self.name} has no such parameter"
                )
            accepted = self.parameters[name].values
            if value not in accepted or isinstance(value, bool):
                raise refuse(file, f"{where}params.{name}", value, accepted)
        if dtype not in self.dtypes:
            raise refuse(file, f"{where}dtype", dtype, self.dtypes, why=f"{self.name} is not written for it")
        layout = layout or self.layouts[0]
        if layout not in self.layouts:
            raise refuse(file, f"{where}layout", layout, self.layouts)
        fixed = {name: params.get(name, axis.default) for name, axis in self.parameters.items()}
        variant = Variant(self, fixed, dtype, layout)
        if not excluded and (broken := variant.excluded()) is not None:
            raise LadderError(
                f"{file}: {where}params: {dict(params)!r} is not accepted: {broken.reason} "
                f"({self.path.name} demands {broken.expr})"
            )
        return variant


@dataclass(frozen=True, eq=False)
class Variant:
    """A kernel with every parameter, the dtype and the layout fixed: one cubin."""

    kernel: Kernel
    params: Mapping[str, ParamValue]
    dtype: str
    layout: str

    @functools.cached_property
    def id(self) -> str:
        """File-name safe and readable: kernel, dtype, then the parameters that differ from their default."""
        parts = [self.kernel.name, self.dtype]
        if self.layout != self.kernel.layouts[0]:
            parts.append(self.layout)
        parts += [
            f"{name}={value}"
            for name, value in self.params.items()
            if value != self.kernel.parameters[name].default
        ]
        text = "-".join(parts)
        if len(text) <= _ID_LIMIT:
            return text
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        return f"{text[: _ID_LIMIT - 13]}-{digest}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Variant) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def names(self, size: Size | None = None) -> dict[str, Any]:
        """Names an expression of this variant may use: parameters, layout, element_bytes, the size's fields."""
        from ladder.problems import problem_named

        problem = problem_named(self.kernel.problem)
        return {
            **self.params,
            "layout": self.layout,
            "element_bytes": problem.element_bytes(self.dtype),
            **(dict(size) if size else {}),
        }

    @property
    def entry(self) -> str:
        """NVRTC name expression with parameters and dtype substitutions filled in."""
        substitutions = {**self.kernel.dtypes[self.dtype], **self.params, "layout": self.layout}
        return self.kernel.entry.format(**substitutions)

    def excluded(self) -> Condition | None:
        """The first constraint this combination breaks, if any."""
        names = self.names()
        for condition in self.kernel.constraints:
            if not evaluate(condition.expr, names):
                return condition
        return None

    def unsupported(self, size: Size) -> str | None:
        """Why this variant is not right at `size` or at none at all, or None where it is."""
        names = self.names(size)
        for condition in (*self.kernel.constraints, *self.kernel.sizes):
            if not evaluate(condition.expr, names):
                return condition.reason
        return None

    def geometry(self, size: Size) -> Geometry:
        """Launch geometry at `size`. Raises LadderError where an expression gives no whole positive number."""
        names = self.names(size)

        def dims(field: str, expressions: tuple[int | str, ...]) -> tuple[int, int, int]:
            values = [evaluate_int(expression, names) for expression in expressions]
            values += [1] * (3 - len(values))
            if min(values) < 1:
                raise refuse(self.kernel.path, f"launch.{field}", values, "whole numbers >= 1")
            return values[0], values[1], values[2]

        launch = self.kernel.launch
        shared = evaluate_int(launch.shared_bytes, names)
        if shared < 0:
            raise refuse(self.kernel.path, "launch.shared_bytes", shared, "a whole number >= 0")
        cluster = dims("cluster", launch.cluster) if launch.cluster else (1, 1, 1)
        alone = cluster == (1, 1, 1)
        return Geometry(
            dims("grid", launch.grid), dims("block", launch.block), None if alone else cluster, shared
        )


def _argument(document: Mapping[str, Any]) -> Argument:
    if "pointer" in document:
        return Argument("pointer", document["pointer"])
    if "scalar" in document:
        return Argument("scalar", document["scalar"], type=document["type"])
    return Argument(
        "tensor_map",
        document["tensor_map"],
        box=tuple(document["box"]),
        swizzle=document["swizzle"],
        l2_promotion=document.get("l2_promotion", "none"),
    )


def _conditions(documents_: list[dict[str, str]]) -> tuple[Condition, ...]:
    return tuple(Condition(entry["expr"], entry["reason"]) for entry in documents_)


def load_kernel(path: Path) -> Kernel:
    """Read NAME.yaml and hold it to the schema, its problem and its own defaults."""
    from ladder.problems import PROBLEMS, problem_named

    document = documents.load(path, "kernel")
    source = path.with_suffix(".cu")
    if not source.is_file():
        raise LadderError(f"{path}: the CUDA source {source.name} is missing beside it")
    if document["problem"] not in PROBLEMS:
        raise refuse(path, "problem", document["problem"], PROBLEMS)
    problem = problem_named(document["problem"])
    for dtype in document["dtypes"]:
        if dtype not in problem.dtypes:
            raise refuse(path, "dtypes", dtype, problem.dtypes, why=f"the problem {problem.name}")
    parameters = {
        name: Parameter(
            name,
            tuple(axis["values"]),
            axis["default"],
            axis["description"],
            axis.get("unit", ""),
        )
        for name, axis in document.get("parameters", {}).items()
    }
    for name, axis in parameters.items():
        if axis.default not in axis.values:
            raise refuse(path, f"parameters.{name}.default", axis.default, axis.values)
    try:
        problem.check_parameters(parameters)
    except LadderError as error:
        raise LadderError(f"{path}: parameters: {error}") from error
    arguments = tuple(_argument(entry) for entry in document["arguments"])
    for index, argument in enumerate(arguments):
        named = parameters.get(argument.l2_promotion)
        for promotion in named.values if named else [argument.l2_promotion]:
            if promotion not in L2_PROMOTIONS:
                accepted = [*L2_PROMOTIONS, *parameters]
                raise refuse(path, f"arguments[{index}].l2_promotion", promotion, accepted)
        if argument.kind == "scalar":
            known = [*problem.scalars, *problem.size_fields, *parameters]
        else:
            known = list(problem.buffers)
        if argument.name not in known:
            raise refuse(path, f"arguments[{index}].{argument.kind}", argument.name, known)
    for dtype, substitutions in document["dtypes"].items():
        known = [*substitutions, *parameters, "layout"]
        for _, field, _, _ in Formatter().parse(document["entry"]):
            if field is not None and field not in known:
                raise refuse(path, f"entry (for {dtype})", "{" + field + "}", known)
    launch = document["launch"]
    kernel = Kernel(
        name=path.stem,
        path=path,
        source=source,
        summary=document["summary"],
        problem=document["problem"],
        rows=tuple(document["rows"]),
        origin=tuple(document["origin"]),
        entry=document["entry"],
        dtypes=document["dtypes"],
        layouts=tuple(document.get("layouts", problem.layouts[:1])),
        min_arch=document["min_arch"],
        parameters=parameters,
        constraints=_conditions(document.get("constraints", [])),
        sizes=_conditions(document.get("sizes", [])),
        launch=Launch(
            tuple(launch["grid"]),
            tuple(launch["block"]),
            tuple(launch.get("cluster", ())),
            launch.get("shared_bytes", 0),
        ),
        arguments=arguments,
        spills_allowed=document.get("spills", "never") == "allowed",
        work=document.get("work"),
    )
    _try_expressions(kernel)
    return kernel


def _try_expressions(kernel: Kernel) -> None:
    """Evaluate every expression once at the defaults, so that a misspelt name fails here, naming its field."""
    from ladder.problems import problem_named

    problem = problem_named(kernel.problem)
    variant = Variant(
        kernel,
        {name: axis.default for name, axis in kernel.parameters.items()},
        next(iter(kernel.dtypes)),
        kernel.layouts[0],
    )
    try:
        broken = variant.excluded()
    except LadderError as error:
        raise LadderError(f"{kernel.path}: constraints: {error}") from error
    if broken is not None:
        raise LadderError(f"{kernel.path}: parameters: the defaults break the constraint {broken.expr}")
    size = problem.parse_size(4096, str(kernel.path), "sizes")
    try:
        variant.unsupported(size)
        variant.geometry(size)
    except LadderError as error:
        if str(kernel.path) in str(error):
            raise
        raise LadderError(f"{kernel.path}: launch or sizes: {error}") from error
    if kernel.work is not None:
        try:
            evaluate(kernel.work, variant.names(size))
        except LadderError as error:
            raise LadderError(f"{kernel.path}: work: {error}") from error


def load_catalog(root: Path) -> dict[str, Kernel]:
    """Every kernel under `root`, by name."""
    catalog: dict[str, Kernel] = {}
    for path in sorted(root.rglob("*.yaml")):
        kernel = load_kernel(path)
        if kernel.name in catalog:
            raise LadderError(f"{path}: the name {kernel.name!r} is taken by {catalog[kernel.name].path}")
        catalog[kernel.name] = kernel
    if not catalog:
        raise LadderError(f"{root}: no kernel (NAME.yaml beside NAME.cu) found")
    return catalog


@functools.cache
def _direct_includes(path: Path) -> tuple[str, ...]:
    return tuple(_INCLUDE.findall(path.read_text(encoding="utf-8")))


def include_closure(source: Path, include_dir: Path) -> list[Path]:
    """`source` and every project header it includes with quotes, recursively, sorted, without repetition.

    Raises LadderError for a quoted header that is neither beside its includer nor in `include_dir`.
    """
    found: dict[Path, None] = {}
    todo = [source]
    while todo:
        path = todo.pop()
        if path in found:
            continue
        found[path] = None
        for name in _direct_includes(path):
            candidates = [path.parent / name, include_dir / name]
            header = next((candidate for candidate in candidates if candidate.is_file()), None)
            if header is None:
                raise LadderError(f'{path}: #include "{name}": not found in {path.parent} or {include_dir}')
            todo.append(header)
    return sorted(found)
