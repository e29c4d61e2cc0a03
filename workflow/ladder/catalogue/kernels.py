"""Kernels from their YAML files, held to their model, their problem and their own defaults."""

import keyword
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from ladder.build.triton_sources import function, parameters
from ladder.catalogue.documents import documents_in, parse, read_yaml
from ladder.model.errors import LadderError, refuse, refuse_unknown, within
from ladder.model.expressions import FUNCTIONS, evaluate, whole, words
from ladder.model.kernel import Argument, Kernel, Variant
from ladder.model.plan import L2_PROMOTIONS
from ladder.model.problem import ELEMENT_BYTES, WEIGHTS
from ladder.problems.registry import PROBLEMS


def load_kernel(path: Path) -> Kernel:
    """Read NAME.yaml. Raises LadderError for the first mistake."""
    kernel = parse(Kernel, read_yaml(path), path, problems=PROBLEMS)
    if not kernel.source.is_file():
        language = "Triton" if kernel.triton else "CUDA"
        raise LadderError(
            f"{path}: the {language} source {kernel.source.name} is missing beside it"
        )
    _check_fields(kernel)
    for index, argument in enumerate(kernel.arguments):
        _check_argument(kernel, argument, f"arguments[{index}]")
    _try_expressions(kernel)
    _check_complete(kernel)
    _check_language(kernel)
    return kernel


def _check_fields(kernel: Kernel) -> None:
    """Hold dtypes, layouts, parameters and entry to the problem and to one another."""
    path, problem = kernel.path, kernel.problem
    for name, meaning in problem.parameters.items():
        if name not in kernel.parameters:
            needed = (
                f"the problem {problem.name} needs a parameter {name!r} ({meaning})"
            )
            raise LadderError(f"{path}: parameters: {needed}")
    for dtype, substitutions in kernel.dtypes.items():
        refuse_unknown(
            path, "dtypes", dtype, problem.dtypes, why=f"the problem {problem.name}"
        )
        known = [*substitutions, *kernel.parameters, "layout"]
        for field in re.findall(r"\{(\w+)\}", kernel.entry):
            refuse_unknown(path, f"entry (for {dtype})", field, known)
    # What the compiler says may quote a header: no file of the host is one.
    beside = path.resolve().parent.parent
    for index, (name, folder) in enumerate(
        zip(kernel.include, kernel.includes, strict=True)
    ):
        inside = beside != beside.parent and folder.resolve().is_relative_to(beside)
        if not (inside and folder.is_dir()):
            raise refuse(
                path,
                f"include[{index}]",
                name,
                f"a folder in {path.parent} or beside it, as ../headers",
            )
    for index, layout in enumerate(kernel.layouts):
        refuse_unknown(path, f"layouts[{index}]", layout, problem.layouts)
    taken = {*problem.size_fields, *problem.scalars, *FUNCTIONS, *keyword.kwlist}
    taken |= {"layout", "element_bytes", "kernel", "dtype", "rung"}
    for name, axis in kernel.parameters.items():
        if name in taken:
            raise refuse(
                path,
                "parameters",
                name,
                "a name without another meaning in expressions",
            )
        refuse_unknown(path, f"parameters.{name}.default", axis.default, axis.values)
        if len({*map(str, axis.values)}) < len(axis.values):
            accepted = "each value once, be it a number or the same as a word"
            raise refuse(path, f"parameters.{name}.values", axis.values, accepted)


def _check_language(kernel: Kernel) -> None:
    """Refuse what only CUDA or only Triton has, where the kernel is in the other language."""
    path, launch = kernel.path, kernel.launch
    if kernel.triton is not None:
        for field in sorted({"block", "shared_bytes"} & launch.model_fields_set):
            given = getattr(launch, field)
            raise refuse(
                path,
                f"launch.{field}",
                given,
                "none, with `triton`: its compiler says it",
            )
        _check_triton(kernel)
        return
    if launch.block is None:
        raise LadderError(f"{path}: launch: the field 'block' is missing")
    for index, argument in enumerate(kernel.arguments):
        for field in sorted({"shape", "divisible_by"} & argument.model_fields_set):
            why = "it is for kernels in Triton"
            raise refuse(
                path,
                f"arguments[{index}]",
                field,
                "a description with `triton`",
                why=why,
            )


def _check_triton(kernel: Kernel) -> None:
    """Hold element types and arguments to what Triton takes."""
    path = kernel.path
    for dtype, types in kernel.dtypes.items():
        for buffer in types.keys() & {*kernel.problem.buffers}:
            refuse_unknown(
                path, f"dtypes.{dtype}.{buffer}", types[buffer], ELEMENT_BYTES
            )
    for index, argument in enumerate(kernel.arguments):
        if argument.swizzle or "l2_promotion" in argument.model_fields_set:
            raise refuse(
                path,
                f"arguments[{index}]",
                argument.name,
                "box and shape: Triton chooses the rest",
            )
        axis = kernel.parameters.get(str(argument.divisible_by))
        for value in axis.values if axis else [argument.divisible_by]:
            refuse_unknown(path, f"arguments[{index}].divisible_by", value, (1, 16))
    for dtype in kernel.dtypes:
        _check_triton_function(kernel, kernel.variant({}, dtype, excluded=True))


def _check_triton_function(kernel: Kernel, variant: Variant) -> None:
    """Hold constants and arguments to the parameters of the function that a variant runs."""
    path, entry, constants = kernel.path, variant.entry, variant.constants
    declared = parameters(function(kernel.source, entry))
    for name in constants:
        refuse_unknown(
            path, "triton.constants", name, declared, f"{entry} has no such parameter"
        )
    if missing := [
        name
        for name, constant in declared.items()
        if constant and name not in constants
    ]:
        raise LadderError(
            f"{path}: triton.constants: {', '.join(missing)}: no value is given"
        )
    others = [name for name in declared if name not in constants]
    if len(others) != len(kernel.arguments):
        wanted = f"{entry} has {len(others)} that are no constants: {', '.join(others)}"
        raise LadderError(
            f"{path}: arguments: there are {len(kernel.arguments)}, but {wanted}"
        )


def _check_argument(kernel: Kernel, argument: Argument, where: str) -> None:
    """Hold one argument to the problem's buffers and scalars, and the kernel's parameters."""
    problem, parameters = kernel.problem, kernel.parameters
    named = parameters.get(argument.l2_promotion)
    for promotion in named.values if named else [argument.l2_promotion]:
        if promotion not in L2_PROMOTIONS:
            raise refuse(
                kernel.path,
                f"{where}.l2_promotion",
                promotion,
                [*L2_PROMOTIONS, *parameters],
            )
    if argument.kind == "workspace":
        return
    if argument.kind == "scalar":
        _check_scalar(kernel, argument, where)
    else:
        refuse_unknown(
            kernel.path, f"{where}.{argument.kind}", argument.name, problem.buffers
        )


def _check_scalar(kernel: Kernel, argument: Argument, where: str) -> None:
    """Hold a scalar's type to what it is, and the values of a parameter to the type."""
    path, problem, name = kernel.path, kernel.problem, argument.name
    if name in problem.scalars and argument.type != "float32":
        raise refuse(
            path,
            f"{where}.type",
            argument.type,
            "float32",
            why=f"{name} is a number of fp32",
        )
    if name in problem.size_fields and argument.type == "float32":
        raise refuse(
            path,
            f"{where}.type",
            argument.type,
            "int32, int64",
            why=f"{name} is a size",
        )
    for value in kernel.parameters[name].values if name in kernel.parameters else ():
        if isinstance(value, str) or abs(value) >= 2**31:
            raise refuse(
                path, f"parameters.{name}.values", value, f"an int32, for {where}"
            )


def _check_weights(kernel: Kernel, scalars: Collection[str]) -> None:
    """Raises LadderError where `weights: none` is said in vain: of a problem without any, or beside them."""
    if kernel.weights is None:
        return
    weights = [name for name in kernel.problem.scalars if name in WEIGHTS]
    why = "" if weights else f"{kernel.problem.name} has no {' and '.join(WEIGHTS)}"
    if taken := [name for name in weights if name in scalars]:
        why = f"the arguments have {', '.join(taken)}"
    if why:
        accepted = (
            "no such field, or a problem with alpha and beta and arguments without them"
        )
        raise refuse(kernel.path, "weights", kernel.weights, accepted, why=why)


def _check_complete(kernel: Kernel) -> None:
    """Raises LadderError where no argument names a buffer or a scalar of the problem, unless it is a weight that the
    kernel does without."""
    problem = kernel.problem
    scalars = [
        argument.name for argument in kernel.arguments if argument.kind == "scalar"
    ]
    buffers = [
        argument.name
        for argument in kernel.arguments
        if argument.kind in ("pointer", "tensor_map")
    ]
    _check_weights(kernel, scalars)
    needed = [
        name
        for name in problem.scalars
        if kernel.weights is None or name not in WEIGHTS
    ]
    missing = {
        name: f"{{pointer: {name}}}" for name in problem.buffers if name not in buffers
    }
    missing |= {
        name: f"{{scalar: {name}, type: float32}}"
        for name in needed
        if name not in scalars
    }
    if not missing:
        return
    wanted = f"add {', '.join(missing.values())}, to the parameters of {kernel.source.name} as well"
    if missing.keys() <= {*WEIGHTS}:
        wanted += "; or say `weights: none`, for a kernel that computes with alpha = 1 and beta = 0 alone"
    names = ", ".join(missing)
    raise LadderError(
        f"{kernel.path}: arguments: {names} of {problem.name}: no argument names it: {wanted}"
    )


def _expressions(kernel: Kernel) -> Iterator[tuple[str, str]]:
    """The field of each expression besides those of the launch, and its text."""
    for index, condition in enumerate(kernel.constraints):
        yield f"constraints[{index}].expr", condition.expr
    for index, argument in enumerate(kernel.arguments):
        field = f"arguments[{index}]"
        for extent in argument.box or ():
            yield f"{field}.box", str(extent)
        for extent in argument.shape or ():
            yield f"{field}.shape", str(extent)
        if argument.kind == "workspace":
            yield f"{field}.bytes", str(argument.bytes)
        if argument.kind == "scalar":
            yield f"{field}.scalar", argument.name
    if triton := kernel.triton:
        for name, value in triton.constants.items():
            yield f"triton.constants.{name}", str(value)
        yield "triton.num_warps", str(triton.num_warps)
        yield "triton.num_stages", str(triton.num_stages)


def _try_expressions(kernel: Kernel) -> None:
    """Look up the names in every expression, and evaluate it once at the defaults; a mistake names its field."""
    path, size = kernel.path, dict.fromkeys(kernel.problem.size_fields, 4096)
    names = [*kernel.parameters, "layout", "element_bytes", *size, *FUNCTIONS]
    for field, expression in _expressions(kernel):
        with within(f"{path}: {field}"):
            used = frozenset.union(*words(expression))
        known = (
            [*kernel.problem.scalars, *names] if field.endswith(".scalar") else names
        )
        for name in sorted(used):
            refuse_unknown(
                path, field, name, known, why=f"no such name, in {expression!r}"
            )
    variant = kernel.variant({}, next(iter(kernel.dtypes)), excluded=True)
    if (broken := variant.broken()) is not None:
        raise LadderError(
            f"{kernel.path}: parameters: the defaults break the constraint {broken.expr}"
        )
    variant.broken(size)
    variant.geometry(size)
    for index, argument in enumerate(kernel.arguments):
        if argument.kind == "scalar" and argument.name not in kernel.problem.scalars:
            value_of = evaluate if argument.type == "float32" else whole
            with within(f"{path}: arguments[{index}].scalar"):
                value_of(
                    argument.name, variant.names(size)
                )  # a plan also holds it to its type, at its sizes


class Catalog(Mapping[str, Kernel]):
    """Kernels by name, each read when it is first asked for: most commands need few of them.

    Raises LadderError for a name that two descriptions have, and for a source without one; of a kernel that is asked
    for, for the first mistake in its description.
    """

    def __init__(self, root: Path) -> None:
        self._paths: dict[str, Path] = {}
        for path in documents_in(root, "**/*.[yY]*[mM][lL]"):
            if (taken := self._paths.setdefault(path.stem, path)) != path:
                raise LadderError(f"{path}: the name {path.stem!r} is taken by {taken}")
        if not self._paths:
            raise LadderError(
                f"{root}: no kernel (NAME.yaml beside NAME.cu or NAME.py) found"
            )
        for source in sorted(root.rglob("*.cu")):
            if source.with_suffix(".yaml") not in self._paths.values():
                raise LadderError(
                    f"{source}: the description {source.stem}.yaml is missing beside it"
                )
        self._read: dict[str, Kernel] = {}

    def __getitem__(self, name: str) -> Kernel:
        if name not in self._read:
            self._read[name] = load_kernel(self._paths[name])
        return self._read[name]

    def __contains__(self, name: object) -> bool:
        return name in self._paths

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)
