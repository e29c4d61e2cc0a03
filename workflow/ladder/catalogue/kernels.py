"""Kernels from their YAML files, held to the schema, their problem and their own defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Formatter
from typing import Any

from ladder.catalogue import documents
from ladder.catalogue.sizes import parse_size
from ladder.model.errors import LadderError, refuse
from ladder.model.kernel import Argument, Condition, Kernel, LaunchRule, Parameter, Variant
from ladder.model.plan import L2_PROMOTIONS
from ladder.model.problem import Problem
from ladder.problems.registry import PROBLEMS


def conditions(given: Sequence[Mapping[str, str]]) -> tuple[Condition, ...]:
    """Conditions with their reasons, as kernels and sweeps write them."""
    return tuple(Condition(entry["expr"], entry["reason"]) for entry in given)


def _parameters(path: Path, document: Mapping[str, Any], problem: Problem) -> dict[str, Parameter]:
    parameters = {
        name: Parameter(
            name, tuple(axis["values"]), axis["default"], axis["description"], axis.get("unit", "")
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
    return parameters


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


def _arguments(
    path: Path, given: Sequence[Mapping[str, Any]], problem: Problem, parameters: Mapping[str, Parameter]
) -> tuple[Argument, ...]:
    arguments = tuple(_argument(entry) for entry in given)
    for index, argument in enumerate(arguments):
        named = parameters.get(argument.l2_promotion)
        for promotion in named.values if named else [argument.l2_promotion]:
            if promotion not in L2_PROMOTIONS:
                accepted = [*L2_PROMOTIONS, *parameters]
                raise refuse(path, f"arguments[{index}].l2_promotion", promotion, accepted)
        known = (
            [*problem.scalars, *problem.size_fields, *parameters]
            if argument.kind == "scalar"
            else list(problem.buffers)
        )
        if argument.name not in known:
            raise refuse(path, f"arguments[{index}].{argument.kind}", argument.name, known)
    return arguments


def _check_entry(path: Path, document: Mapping[str, Any], parameters: Mapping[str, Parameter]) -> None:
    """Every field of the name expression must be a parameter, or a substitution of each dtype."""
    for dtype, substitutions in document["dtypes"].items():
        known = [*substitutions, *parameters, "layout"]
        for _, field, _, _ in Formatter().parse(document["entry"]):
            if field is not None and field not in known:
                raise refuse(path, f"entry (for {dtype})", "{" + field + "}", known)


def load_kernel(path: Path) -> Kernel:
    """Read NAME.yaml. Raises LadderError for the first mistake."""
    document = documents.load(path, "kernel")
    source = path.with_suffix(".cu")
    if not source.is_file():
        raise LadderError(f"{path}: the CUDA source {source.name} is missing beside it")
    if document["problem"] not in PROBLEMS:
        raise refuse(path, "problem", document["problem"], PROBLEMS)
    problem = PROBLEMS[document["problem"]]
    for dtype in document["dtypes"]:
        if dtype not in problem.dtypes:
            raise refuse(path, "dtypes", dtype, problem.dtypes, why=f"the problem {problem.name}")
    parameters = _parameters(path, document, problem)
    _check_entry(path, document, parameters)
    launch = document["launch"]
    kernel = Kernel(
        name=path.stem,
        path=path,
        source=source,
        summary=document["summary"],
        problem=problem,
        rows=tuple(document["rows"]),
        origin=tuple(document["origin"]),
        entry=document["entry"],
        dtypes=document["dtypes"],
        layouts=tuple(document.get("layouts", problem.layouts[:1])),
        min_arch=document["min_arch"],
        parameters=parameters,
        constraints=conditions(document.get("constraints", [])),
        launch=LaunchRule(
            tuple(launch["grid"]),
            tuple(launch["block"]),
            tuple(launch.get("cluster", ())),
            launch.get("shared_bytes", 0),
        ),
        arguments=_arguments(path, document["arguments"], problem, parameters),
        spills_allowed=document.get("spills", "never") == "allowed",
    )
    _try_expressions(kernel)
    return kernel


def _try_expressions(kernel: Kernel) -> None:
    """Evaluate every expression once at the defaults, so that a misspelt name fails here, naming its field."""
    defaults = {name: axis.default for name, axis in kernel.parameters.items()}
    variant = Variant(kernel, defaults, next(iter(kernel.dtypes)), kernel.layouts[0])
    size = parse_size(kernel.problem, 4096, str(kernel.path), "sizes")
    try:
        broken = kernel.broken(variant.names(), at_a_size=False)
        if broken is None:
            variant.absent(size)
    except LadderError as error:
        raise LadderError(f"{kernel.path}: constraints: {error}") from error
    if broken is not None:
        raise LadderError(f"{kernel.path}: parameters: the defaults break the constraint {broken.expr}")
    try:
        variant.geometry(size)
    except LadderError as error:
        if str(kernel.path) in str(error):
            raise
        raise LadderError(f"{kernel.path}: launch: {error}") from error


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
