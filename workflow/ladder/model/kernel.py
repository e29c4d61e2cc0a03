"""Kernels as their descriptions say, and variants: kernels with every parameter fixed."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ladder.model.arch import CLUSTERS_FROM, arch_number, runs_on
from ladder.model.errors import LadderError, refuse
from ladder.model.expressions import evaluate, evaluate_int, words
from ladder.model.problem import ParamValue, Problem, Size

_ID_LIMIT = 150


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
class LaunchRule:
    """Launch geometry as expressions over parameters, dtype bytes and the size."""

    grid: tuple[int | str, ...]
    block: tuple[int | str, ...]
    cluster: tuple[int | str, ...] = ()
    shared_bytes: int | str = 0


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
    problem: Problem
    rows: tuple[str, ...]
    origin: tuple[str, ...]
    entry: str
    dtypes: Mapping[str, Mapping[str, str]]
    layouts: tuple[str, ...]
    min_arch: str
    parameters: Mapping[str, Parameter]
    constraints: tuple[Condition, ...]
    """What must hold for a variant to exist; those that name a field of the size, for it to be right there."""
    launch: LaunchRule
    arguments: tuple[Argument, ...]
    spills_allowed: bool

    @functools.cached_property
    def _of_parameters(self) -> tuple[Condition, ...]:
        """Constraints that hold or fail whatever the size."""
        fields = set(self.problem.size_fields)
        return tuple(one for one in self.constraints if words(one.expr)[0].isdisjoint(fields))

    def broken(self, names: Mapping[str, Any], *, at_a_size: bool) -> Condition | None:
        """The first constraint that does not hold, if any; without a size, of those on parameters alone."""
        conditions = self.constraints if at_a_size else self._of_parameters
        return next((one for one in conditions if not evaluate(one.expr, names)), None)

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
                why = f"{self.name} has no such parameter"
                raise refuse(file, f"{where}params", name, self.parameters, why=why)
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
        if not excluded and (broken := self.broken(variant.names(), at_a_size=False)) is not None:
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
        """File-name safe and readable: kernel, dtype, then the parameters that differ from their default.

        It tells the variants of one checkout apart. Records say all parameters, since a default may change.
        """
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
        element_bytes = self.kernel.problem.element_bytes(self.dtype)
        return {**self.params, "layout": self.layout, "element_bytes": element_bytes, **(size or {})}

    @property
    def entry(self) -> str:
        """NVRTC name expression with parameters and dtype substitutions filled in."""
        substitutions = {**self.kernel.dtypes[self.dtype], **self.params, "layout": self.layout}
        return self.kernel.entry.format(**substitutions)

    def absent(self, size: Size | None = None, arch: str = "") -> str | None:
        """Why there is no such variant, at `size` or at none at all, or on `arch`; None where there is."""
        kernel = self.kernel
        if arch and not runs_on(kernel.min_arch, arch):
            return f"needs {kernel.min_arch}, the device is {arch}"
        if (broken := kernel.broken(self.names(size), at_a_size=size is not None)) is not None:
            return broken.reason
        if arch and size and self.geometry(size).cluster and arch_number(arch) < CLUSTERS_FROM:
            return f"clusters of blocks need sm_{CLUSTERS_FROM}, the device is {arch}"
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
        together = None if cluster == (1, 1, 1) else cluster
        return Geometry(dims("grid", launch.grid), dims("block", launch.block), together, shared)
