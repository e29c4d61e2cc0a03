"""Kernels from their YAML files, held to their model, their problem and their own defaults."""

import keyword
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ladder.build.triton_sources import function, parameters
from ladder.catalogue.documents import documents_in, parse, read_yaml
from ladder.catalogue.plans import launch_of
from ladder.model.definition import Definition
from ladder.model.errors import LadderError, refuse, refuse_unknown, within
from ladder.model.expressions import FUNCTIONS, evaluate
from ladder.model.kernel import Argument, Kernel, Variant
from ladder.model.plan import L2_PROMOTIONS
from ladder.model.problem import ELEMENT_BYTES, WEIGHTS
from ladder.model.schemas import SIZE_COLUMNS
from ladder.problems.registry import problem_of


def load_kernel(path: Path) -> Kernel:
    """Read NAME.yaml. Raises LadderError for the first mistake."""
    fields = read_yaml(path)
    if "problem" in fields:
        fields["problem"] = problem_name(fields["problem"], path.parent)
    return make_kernel(path, fields)


def problem_name(given: Any, folder: Path) -> Any:
    """A problem's name; that of a document of one's own, NAME.yaml in `folder`, is its path. Raises LadderError."""
    if not str(given).endswith(".yaml"):
        return given
    path = Path(os.path.abspath(folder / given))
    definition = parse(Definition, read_yaml(path), path)
    for field in definition.size:
        refuse_unknown(path, "size", field, SIZE_COLUMNS)
    for name in definition.outputs:
        if name in definition.inputs:
            raise refuse(path, "outputs", name, "a name that no input has")
    module = path.parent / definition.module
    if not module.is_file():
        accepted = "a file, relative to the document"
        raise refuse(path, "module", definition.module, accepted)
    definition = definition.model_copy(update={"module": str(module)})
    with within(str(path)):
        return problem_of(str(path), definition).name


def make_kernel(path: Path, fields: Mapping[str, Any]) -> Kernel:
    """The kernel that the fields of a description at `path` say, held to its files and its problem.

    Raises LadderError for the first mistake.
    """
    kernel = parse(Kernel, fields, path)
    if not kernel.source.is_file():
        if kernel.file:
            field = "launcher.file" if kernel.launcher else "cubin"
            accepted = "a file, relative to the description"
            raise refuse(path, field, kernel.file, accepted, "there is no such file")
        language = "Triton" if kernel.triton else "CUDA"
        raise LadderError(
            f"{path}: the {language} source {kernel.source.name} is missing beside it"
        )
    _check_fields(kernel)
    for index, argument in enumerate(kernel.arguments):
        _check_argument(kernel, argument, f"arguments[{index}]")
    _check_complete(kernel)
    _try_expressions(kernel)
    _check_language(kernel)
    return kernel


def _check_fields(kernel: Kernel) -> None:
    """Hold dtypes, layouts, parameters and entry to the problem and to one another."""
    path, problem = kernel.path, kernel.problem
    for name, meaning in problem.parameters.items():
        if name not in kernel.parameters:
            why = f"the problem {problem.name} needs a parameter {name!r} ({meaning})"
            raise LadderError(f"{path}: parameters: {why}")
    for dtype, substitutions in kernel.dtypes.items():
        why = f"the problem {problem.name}"
        refuse_unknown(path, "dtypes", dtype, problem.dtypes, why)
        names = [*substitutions, *kernel.parameters, "layout", "dtype"]
        for name in re.findall(r"\{(\w+)\}", kernel.entry):
            refuse_unknown(path, f"entry (for {dtype})", name, names)
    # What the compiler says may quote a header: no file of the host is one.
    beside = path.resolve().parent.parent
    for index, folder in enumerate(kernel.includes):
        inside = beside != beside.parent and folder.resolve().is_relative_to(beside)
        if not (inside and folder.is_dir()):
            accepted = f"a folder in {path.parent} or beside it, as ../headers"
            given = kernel.include[index]
            raise refuse(path, f"include[{index}]", given, accepted)
    for index, layout in enumerate(kernel.layouts):
        refuse_unknown(path, f"layouts[{index}]", layout, problem.layouts)
    taken = {*problem.size_fields, *problem.scalars, *FUNCTIONS, *keyword.kwlist}
    taken |= {"layout", "element_bytes", "kernel", "dtype", "rung"}
    for name, axis in kernel.parameters.items():
        field = f"parameters.{name}"
        if name in taken:
            accepted = "a name without another meaning in expressions"
            raise refuse(path, "parameters", name, accepted)
        refuse_unknown(path, f"{field}.default", axis.default, axis.values)
        if len({*map(str, axis.values)}) < len(axis.values):
            accepted = "each value once, be it a number or the same as a word"
            raise refuse(path, f"{field}.values", axis.values, accepted)


def _check_language(kernel: Kernel) -> None:
    """Refuse what only CUDA or only Triton has, where the kernel is in the other language."""
    path, launch = kernel.path, kernel.launch
    if kernel.cubin:
        for field in sorted({"triton", "include"} & kernel.model_fields_set):
            raise refuse(path, field, getattr(kernel, field), "none, with `cubin`")
    if kernel.triton:
        for field in sorted({"block", "shared_bytes"} & launch.model_fields_set):
            accepted = "none, with `triton`: its compiler says it"
            raise refuse(path, f"launch.{field}", getattr(launch, field), accepted)
        _check_triton(kernel)
        return
    if launch.block is None:
        raise LadderError(f"{path}: launch: the field 'block' is missing")
    for index, argument in enumerate(kernel.arguments):
        for field in sorted({"shape", "divisible_by"} & argument.model_fields_set):
            accepted, why = "a description with `triton`", "it is for kernels in Triton"
            raise refuse(path, f"arguments[{index}]", field, accepted, why)


def _check_triton(kernel: Kernel) -> None:
    """Hold element types and arguments to what Triton takes."""
    path = kernel.path
    for dtype, types in kernel.dtypes.items():
        for buffer in types.keys() & {*kernel.problem.buffers}:
            field = f"dtypes.{dtype}.{buffer}"
            refuse_unknown(path, field, types[buffer], ELEMENT_BYTES)
        _check_triton_function(kernel, kernel.variant({}, dtype, excluded=True))
    for index, argument in enumerate(kernel.arguments):
        field = f"arguments[{index}]"
        if argument.swizzle or "l2_promotion" in argument.model_fields_set:
            accepted = "box and shape: Triton chooses the rest"
            raise refuse(path, field, argument.name, accepted)
        axis = kernel.parameters.get(str(argument.divisible_by))
        for value in axis.values if axis else [argument.divisible_by]:
            refuse_unknown(path, f"{field}.divisible_by", value, (1, 16))


def _check_triton_function(kernel: Kernel, variant: Variant) -> None:
    """Hold constants and arguments to the parameters of the function that a variant runs."""
    path, entry, constants = kernel.path, variant.entry, variant.constants
    declared = parameters(function(kernel.source, entry))
    for name in constants:
        why = f"{entry} has no such parameter"
        refuse_unknown(path, "triton.constants", name, declared, why)
    others = [name for name in declared if name not in constants]
    if missing := [name for name in others if declared[name]]:
        why = f"{', '.join(missing)}: no value is given"
        raise LadderError(f"{path}: triton.constants: {why}")
    if len(others) != len(kernel.arguments):
        wanted = f"{entry} has {len(others)} that are no constants: {', '.join(others)}"
        raise LadderError(
            f"{path}: arguments: there are {len(kernel.arguments)}, but {wanted}"
        )


def _check_argument(kernel: Kernel, argument: Argument, where: str) -> None:
    """Hold one argument to the problem's buffers and scalars, and the kernel's parameters."""
    path, promotion = kernel.path, argument.l2_promotion
    axis = kernel.parameters.get(promotion)
    for value in axis.values if axis else [promotion]:
        accepted = [*L2_PROMOTIONS, *kernel.parameters]
        if value not in L2_PROMOTIONS:
            raise refuse(path, f"{where}.l2_promotion", value, accepted)
    if argument.kind == "scalar":
        _check_scalar(kernel, argument, where)
    elif argument.kind != "workspace":
        buffers = kernel.problem.buffers
        refuse_unknown(path, f"{where}.{argument.kind}", argument.name, buffers)


def _check_scalar(kernel: Kernel, argument: Argument, where: str) -> None:
    """Hold a scalar's type to what it is, and the values of a parameter to the type."""
    path, problem, name = kernel.path, kernel.problem, argument.name
    is_float = argument.type == "float32"
    if name in problem.scalars and not is_float:
        why = f"{name} is a number of fp32"
        raise refuse(path, f"{where}.type", argument.type, "float32", why)
    if name in problem.size_fields and is_float:
        why = f"{name} is a size"
        raise refuse(path, f"{where}.type", argument.type, "int32, int64", why)
    for value in kernel.parameters[name].values if name in kernel.parameters else ():
        if isinstance(value, str) or abs(value) >= 2**31:
            accepted = f"an int32, for {where}"
            raise refuse(path, f"parameters.{name}.values", value, accepted)


def _check_complete(kernel: Kernel) -> None:
    """Raises LadderError where no argument names a buffer or a scalar of the problem, unless it is a weight that the
    kernel does without; and where `weights: none` is said in vain."""
    problem, path = kernel.problem, kernel.path
    forms = {name: f"{{pointer: {name}}}" for name in problem.buffers}
    forms |= {name: f"{{scalar: {name}, type: float32}}" for name in problem.scalars}
    named = {argument.name for argument in kernel.arguments}
    missing = {name: form for name, form in forms.items() if name not in named}
    weights = [name for name in problem.scalars if name in WEIGHTS]
    if kernel.weights is not None:
        accepted = (
            "no such field, or a problem with alpha and beta and arguments without them"
        )
        if not weights:
            why = f"{problem.name} has no {' and '.join(WEIGHTS)}"
            raise refuse(path, "weights", kernel.weights, accepted, why)
        for name in weights:
            if missing.pop(name, None) is None:
                why = f"the arguments have {name}"
                raise refuse(path, "weights", kernel.weights, accepted, why)
    if not missing:
        return
    wanted = f"add {', '.join(missing.values())}, to the parameters of {kernel.source.name} as well"
    if missing.keys() <= {*WEIGHTS}:
        wanted += "; or say `weights: none`, for a kernel that computes with alpha = 1 and beta = 0 alone"
    names = f"{', '.join(missing)} of {problem.name}"
    raise LadderError(f"{path}: arguments: {names}: no argument names it: {wanted}")


def _try_expressions(kernel: Kernel) -> None:
    """Evaluate every expression once, at the defaults; a mistake names its field."""
    path, size = kernel.path, dict.fromkeys(kernel.problem.size_fields, 4096)
    variant = kernel.variant({}, next(iter(kernel.dtypes)), excluded=True)
    names = variant.names(size)
    for index, condition in enumerate(kernel.constraints):
        with within(f"{path}: constraints[{index}].expr"):
            evaluate(condition.expr, names)
    if (broken := variant.broken()) is not None:
        why = f"the defaults break the constraint {broken.expr}"
        raise LadderError(f"{path}: parameters: {why}")
    if kernel.triton:
        for field in ("num_warps", "num_stages"):
            with within(f"{path}: triton.{field}"):
                evaluate(getattr(kernel.triton, field), names)
    launch_of(variant, size)


def load_kernels(root: Path) -> dict[str, Kernel]:
    """Every kernel below a folder, by name.

    Raises LadderError for a name that two descriptions have, for a source without one, and for the first mistake.
    """
    paths: dict[str, Path] = {}
    for path in documents_in(root, "**/*.[yY]*[mM][lL]"):
        if (taken := paths.setdefault(path.stem, path)) != path:
            raise LadderError(f"{path}: the name {path.stem!r} is taken by {taken}")
    if not paths:
        accepted = "NAME.yaml beside NAME.cu or NAME.py"
        raise LadderError(f"{root}: no kernel ({accepted}) found")
    for source in sorted(root.rglob("*.cu")):
        description = source.with_suffix(".yaml")
        if description not in paths.values():
            why = f"the description {description.name} is missing beside it"
            raise LadderError(f"{source}: {why}")
    kernels = {name: load_kernel(path) for name, path in paths.items()}
    for kernel in kernels.values():
        if kernel.launcher:
            accepted = "the source of a kernel; launchers are for `ladder judge`"
            raise refuse(kernel.path, "launcher", kernel.launcher.file, accepted)
    return kernels
