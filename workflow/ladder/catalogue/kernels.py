"""Kernels from their YAML files, held to their model, their problem and their own defaults."""

from collections.abc import Mapping
from pathlib import Path
from string import Formatter

from ladder.catalogue.documents import parse, read_yaml
from ladder.model.errors import LadderError, refuse, refuse_unknown, within
from ladder.model.kernel import Argument, Kernel
from ladder.model.plan import L2_PROMOTIONS
from ladder.problems.registry import PROBLEMS


def load_kernel(path: Path) -> Kernel:
    """Read NAME.yaml. Raises LadderError for the first mistake."""
    kernel = parse(Kernel, read_yaml(path), path, problems=PROBLEMS)
    if not kernel.source.is_file():
        raise LadderError(f"{path}: the CUDA source {kernel.source.name} is missing beside it")
    _check_fields(kernel)
    for index, argument in enumerate(kernel.arguments):
        _check_argument(kernel, argument, f"arguments[{index}]")
    _try_expressions(kernel)
    return kernel


def _check_fields(kernel: Kernel) -> None:
    """Hold dtypes, layouts, parameters and entry to the problem and to one another."""
    path, problem = kernel.path, kernel.problem
    for name, meaning in problem.parameters.items():
        if name not in kernel.parameters:
            needed = f"the problem {problem.name} needs a parameter {name!r} ({meaning})"
            raise LadderError(f"{path}: parameters: {needed}")
    for dtype, substitutions in kernel.dtypes.items():
        refuse_unknown(path, "dtypes", dtype, problem.dtypes, why=f"the problem {problem.name}")
        known = [*substitutions, *kernel.parameters, "layout"]
        for _, field, _, _ in Formatter().parse(kernel.entry):
            if field is not None and field not in known:
                raise refuse(path, f"entry (for {dtype})", "{" + field + "}", known)
    for index, layout in enumerate(kernel.layouts):
        refuse_unknown(path, f"layouts[{index}]", layout, problem.layouts)
    for name, axis in kernel.parameters.items():
        refuse_unknown(path, f"parameters.{name}.default", axis.default, axis.values)


def _check_argument(kernel: Kernel, argument: Argument, where: str) -> None:
    """Hold one argument to the problem's buffers and scalars, and the kernel's parameters."""
    problem, parameters = kernel.problem, kernel.parameters
    named = parameters.get(argument.l2_promotion)
    for promotion in named.values if named else [argument.l2_promotion]:
        if promotion not in L2_PROMOTIONS:
            raise refuse(kernel.path, f"{where}.l2_promotion", promotion, [*L2_PROMOTIONS, *parameters])
    scalars = [*problem.scalars, *problem.size_fields, *parameters]
    known = scalars if argument.kind == "scalar" else problem.buffers
    refuse_unknown(kernel.path, f"{where}.{argument.kind}", argument.name, known)


def _try_expressions(kernel: Kernel) -> None:
    """Evaluate every expression once at the defaults, so that a misspelt name fails here, naming its field."""
    variant = kernel.variant({}, next(iter(kernel.dtypes)), excluded=True)
    size = dict.fromkeys(kernel.problem.size_fields, 4096)
    with within(f"{kernel.path}: constraints"):
        broken = variant.broken()
        if broken is None:
            variant.absent(size)
    if broken is not None:
        raise LadderError(f"{kernel.path}: parameters: the defaults break the constraint {broken.expr}")
    variant.geometry(size)


def load_catalog(root: Path) -> Mapping[str, Kernel]:
    catalog: dict[str, Kernel] = {}
    for kernel in map(load_kernel, sorted(root.rglob("*.yaml"))):
        if kernel.name in catalog:
            taken = catalog[kernel.name].path
            raise LadderError(f"{kernel.path}: the name {kernel.name!r} is taken by {taken}")
        catalog[kernel.name] = kernel
    if not catalog:
        raise LadderError(f"{root}: no kernel (NAME.yaml beside NAME.cu) found")
    return catalog
