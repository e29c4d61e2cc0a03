"""Kernels as their descriptions say, and variants: kernels with every parameter fixed."""

import functools
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)

from ladder.model.architecture import (
    MOST_CLUSTER,
    MOST_SHARED_BYTES,
    lacking,
    limits_of,
)
from ladder.model.cell import size_label
from ladder.model.document import (
    Arch,
    Condition,
    Document,
    Expression,
    Name,
    Number,
    Some,
    Text,
    Value,
    matching,
    not_accepted,
)
from ladder.model.errors import LadderError, refuse, refuse_unknown, within
from ladder.model.expressions import evaluate, holds, names_in, whole
from ladder.model.plan import Geometry
from ladder.model.problem import ELEMENT_BYTES, WEIGHTS, ParamValue, Problem, Size

_MOST = {
    "grid": (2**31 - 1, 65535, 65535),
    "block": (1024, 1024, 64),
    "cluster": (MOST_CLUSTER,) * 3,
}
"""Most in x, y and z, and in all as many as in x."""
_MEMORY = Condition(
    expr=f"launch.shared_bytes <= {MOST_SHARED_BYTES}",
    reason=f"a block has at most {MOST_SHARED_BYTES >> 10} KiB of shared memory, on any architecture",
)
SCALAR_BYTES = {"int32": 4, "int64": 8, "float32": 4}
"""Bytes of a scalar argument, by its type."""
_MOST_FLOAT32 = (2 - 2**-23) * 2.0**127
Dims = Annotated[list[Expression], Field(min_length=1, max_length=3)]
Identifier = Annotated[str, *matching(r"[A-Za-z_]\w*", "a name of Python")]


class Parameter(Document):
    """One axis of a kernel's space."""

    values: Some[Value]
    """accepted values, in the order of the figures"""
    default: Value
    """value when a sweep names none"""
    unit: str = ""
    """unit of the value"""
    description: Text
    """what it changes"""
    added: bool = False
    """added after the kernel was measured: where it has its default, cells are recorded as before it came"""


_FORMS = (
    {"pointer"},
    {"scalar", "type"},
    {"tensor_map", "box", "swizzle"},
    {"tensor_map", "box", "shape"},
    {"workspace", "bytes"},
)
_FORMS_IN_WORDS = (
    "{pointer: NAME}, {workspace: zeroed|scratch, bytes: ...}, {scalar: EXPRESSION, type: int32|int64|float32} "
    "or {tensor_map: NAME, box: [...], swizzle: ...}, in Triton with shape in place of swizzle"
)


class Argument(Document):
    """One kernel argument: a pointer to a buffer of the problem or a workspace, a scalar, or a TMA tensor map.

    In Triton a tensor map is a tensor descriptor.
    """

    pointer: str | None = None
    """buffer of the problem"""
    scalar: Number | None = None
    """scalar of the problem (alpha or beta of a GEMM), or an expression over the size and parameters, such as m * n"""
    type: Literal["int32", "int64", "float32"] | None = None
    """a scalar's type in the kernel"""
    divisible_by: Expression = 1
    """of a whole number in Triton: 16 where the compiler may rely on it, 1 where not; at other sizes a cell is
    unsupported"""
    tensor_map: str | None = None
    """buffer of the problem"""
    box: Dims | None = None
    """box of one TMA copy in elements, outermost first; of a tensor descriptor its block"""
    shape: Dims | None = None
    """of a tensor descriptor: extents of the buffer, outermost first; rows lie one behind the other"""
    swizzle: Literal["none", "32B", "64B", "128B", "rows"] | None = None
    """shared-memory swizzle of a tensor map; rows: as wide as the box's rows"""
    l2_promotion: Text = "none"
    """of a tensor map: none, 64B, 128B, 256B, or a parameter with such values"""
    workspace: Literal["zeroed", "scratch"] | None = None
    """memory of the launch's own; zeroed: holds zeros ahead of it, and must after it; scratch: holds anything"""
    bytes: Expression | None = None
    """of a workspace"""

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        optional = "divisible_by" if self.scalar is not None else "l2_promotion"
        if self.model_fields_set - {optional} not in _FORMS:
            raise not_accepted(_FORMS_IN_WORDS)
        return self

    @functools.cached_property
    def kind(self) -> str:
        kinds = ("pointer", "workspace", "scalar", "tensor_map")
        return next(kind for kind in kinds if getattr(self, kind) is not None)

    @functools.cached_property
    def name(self) -> str:
        return str(getattr(self, self.kind))

    def value(self, names: Mapping[str, Any]) -> int | float:
        """Of a scalar that is an expression. Raises LadderError where its type does not hold it."""
        if self.type == "float32":
            value = evaluate(self.name, names)
            if isinstance(value, bool) or abs(value) > _MOST_FLOAT32:
                raise LadderError(
                    f"expression {self.name!r}: gave {value!r}, a float32 is needed"
                )
            return float(value)
        number = whole(self.name, names)
        most = 2 ** (8 * SCALAR_BYTES[self.type or ""] - 1)
        if not -most <= number < most:
            raise LadderError(
                f"expression {self.name!r}: gave {number}, an {self.type} is needed"
            )
        return number


class LaunchRule(Document):
    """launch geometry: expressions over parameters, element_bytes and the size's fields"""

    grid: Dims
    """blocks"""
    block: Dims | None = None
    """threads; of Triton's kernels 32 for each warp"""
    cluster: Dims | None = None
    """blocks per cluster"""
    shared_bytes: Expression = 0
    """dynamic shared memory in bytes; of Triton's kernels what its compiler says"""


class Triton(Document):
    """Of a kernel in Triton: what its compiler is given."""

    num_warps: Expression = 4
    """warps a block"""
    num_stages: Expression = 3
    """stages of its pipelined loops"""
    constants: dict[Identifier, Expression] = {}
    """parameters of the function that are constants, all of tl.constexpr among them -> a parameter, `layout`, or an
    expression over parameters"""


class LauncherRule(Document):
    """what launches the kernel in place of `entry`, `launch` and `arguments`, for `judge` alone (docs/launchers.md)"""

    file: Annotated[
        str, *matching(r".*\.(py|so(\.\d+)*)", "a file that ends in .so or .py")
    ]
    """shared object or Python file; a path relative to the description"""
    entry: Annotated[str, *matching(r"([^{}]|\{\w+\})+", "the name of a function")]
    """its function; {name} is replaced by a parameter, dtype, layout or a dtype substitution"""
    setup: str = ""
    """function of a shared object that is called once a size, untimed; {dtype} and {layout} are replaced"""


def _problem(name: Any, info: ValidationInfo) -> Any:
    context: Any = info.context
    refuse_unknown(context["file"], "problem", name, context["problems"])
    return context["problems"][name]


ProblemName = Annotated[
    Problem, BeforeValidator(_problem), WithJsonSchema({"type": "string"})
]
"""A problem, by its name in the `problems` of the validation's context."""


_NOT_OF_A_LAUNCHER = [
    "arguments",
    "cubin",
    "entry",
    "include",
    "launch",
    "spills",
    "triton",
]
"""Fields for which a launcher stands."""


def _with_or_without_launcher(schema: dict[str, Any]) -> None:
    """Put both forms of a description into its JSON schema."""
    compiled = ["entry", "launch", "arguments"]
    schema["required"] = [name for name in schema["required"] if name not in compiled]
    schema["oneOf"] = [
        {"required": compiled, "properties": {"launcher": False}},
        {
            "required": ["launcher"],
            "properties": dict.fromkeys(_NOT_OF_A_LAUNCHER, False),
        },
    ]


class Kernel(Document):
    """One kernel (NAME.yaml beside NAME.cu, NAME.py of Triton or a cubin) and the space of its variants."""

    model_config = ConfigDict(json_schema_extra=_with_or_without_launcher)

    _path: Path = PrivateAttr()
    _variants: dict[tuple[ParamValue, ...], "Variant"] = PrivateAttr(
        default_factory=dict
    )
    summary: Text
    """what the kernel computes and the one technique it is about"""
    problem: ProblemName
    """folder in workflow/ladder/problems, such as gemm; or NAME.yaml, relative to the description, of a problem of
    one's own (docs/own-problems.md)"""
    origin: Some[str]
    """where the idea comes from: a key of docs/sources.md, and the place in it"""
    launcher: LauncherRule | None = None
    entry: Annotated[
        str,
        *matching(r"([^{}]|\{\w+\})+", "a name expression, with parameters as {NAME}"),
    ]
    """NVRTC name expression of the kernel, the function's name in Triton, or the symbol in a cubin; {name} is replaced
    by a parameter or dtype substitution"""
    dtypes: Annotated[dict[str, dict[str, str]], Field(min_length=1)]
    """for each dtype the substitutions it adds for the entry; in Triton also the dtypes of buffers that have another"""
    layouts: list[str] = []
    """layouts it takes, of a GEMM NN (default; B is K x N row-major) and TN (B is N x K)"""
    min_arch: Arch
    """lowest architecture; a trailing a demands that very architecture family"""
    include: list[str] = []
    """folders of headers besides its own and kernels/include, in Triton of modules: in its own folder or beside it, as
    ../headers"""
    triton: Triton | None = None
    """of a kernel in Triton, whose source is NAME.py"""
    cubin: Text | None = None
    """file of machine code in place of a source, relative to the description: of one GPU architecture, with this kernel
    alone (docs/cubins.md)"""
    parameters: dict[Name, Parameter] = {}
    """name -> the values it may take"""
    constraints: list[Condition] = []
    """what must hold over the parameters for a variant to exist, or over the size for it to be right there; elsewhere a
    cell is unsupported, with the reason"""
    launch: LaunchRule
    arguments: Annotated[list[Argument], Field(min_length=1, max_length=128)]
    """the kernel's arguments in order"""
    spills: Literal["never", "allowed"] = "never"
    """whether register spills are expected on sm_90a, for variants that show them; elsewhere they are only reported"""
    weights: Literal["none"] | None = None
    """none: of a problem with alpha and beta, the kernel takes neither and computes with alpha = 1, beta = 0 alone; it
    is verified with these alone, as references are"""
    nan_at_alpha_zero: bool = False
    """whether NaN in A or B may reach C where alpha is 0; in BLAS, C = beta * C"""

    @model_validator(mode="before")
    @classmethod
    def _launched_by_the_host(cls, fields: Any, info: ValidationInfo) -> Any:
        """A launcher takes every buffer and scalar, and chooses the launch: what stands for these is no description."""
        if not isinstance(fields, Mapping):
            return fields
        context: Any = info.context
        problem = context["problems"].get(str(fields.get("problem")))
        rule = fields.get("launcher")
        if not (problem and isinstance(rule, Mapping)):
            return fields
        for name in _NOT_OF_A_LAUNCHER:
            if name in fields:
                raise not_accepted(
                    "no such field", value=name, why="the launcher stands for it"
                )
        arguments: list[dict[str, str]] = [
            {"pointer": name} for name in problem.buffers
        ]
        for name in problem.scalars:
            if not (fields.get("weights") and name in WEIGHTS):
                arguments.append({"scalar": name, "type": "float32"})
        added = {"entry": rule.get("entry"), "launch": {"grid": [1], "block": [1]}}
        return {**fields, **added, "arguments": arguments}

    def model_post_init(self, context: Any) -> None:
        self._path = context["file"]

    @property
    def path(self) -> Path:
        return self._path

    @functools.cached_property
    def name(self) -> str:
        return self._path.stem

    @property
    def file(self) -> str | None:
        """What it names in place of a source beside it."""
        return self.launcher.file if self.launcher else self.cubin

    @property
    def source(self) -> Path:
        if self.file:
            return Path(os.path.normpath(self._path.parent / self.file))
        return self._path.with_suffix(".py" if self.triton else ".cu")

    @property
    def includes(self) -> tuple[Path, ...]:
        """The folders that `include` names."""
        return tuple(
            Path(os.path.normpath(self._path.parent / folder))
            for folder in self.include
        )

    @property
    def usual_layouts(self) -> Sequence[str]:
        """The layouts that it takes, the default first."""
        return self.layouts or self.problem.layouts[:1]

    @functools.cached_property
    def block(self) -> Dims:
        """Threads of a block: expressions."""
        warps = self.triton.num_warps if self.triton else 1
        return self.launch.block or [f"32 * ({warps})"]

    @functools.cached_property
    def split_constraints(self) -> tuple[list[Condition], list[Condition]]:
        """Constraints on parameters alone, and those that depend on the size.

        That arguments are as divisible as the compiler assumes is one of them.
        """
        conditions = [*self.constraints]
        for argument in self.arguments:
            if (divisor := argument.divisible_by) != 1:
                expr = f"({argument.name}) % ({divisor}) == 0"
                reason = f"is compiled for {argument.name} divisible by {divisor}"
                conditions.append(Condition(expr=expr, reason=reason))
        fixed = list[Condition]()
        sized = list[Condition]()
        for condition in conditions:
            names = names_in(condition.expr)
            on_size = names.intersection(self.problem.size_fields)
            (sized if on_size else fixed).append(condition)
        return fixed, sized

    def variant(
        self,
        params: Mapping[str, ParamValue],
        dtype: str,
        layout: str | None = None,
        *,
        where: str = "",
        file: Path | str | None = None,
        excluded: bool = False,
    ) -> "Variant":
        """The variant with `params` fixed and the rest at their defaults; an excluded one only if `excluded`.

        Raises LadderError naming `file`, the field under `where`, the value and what is accepted.
        """
        file = file or self.path
        for name, value in params.items():
            why = f"{self.name} has no such parameter"
            refuse_unknown(file, f"{where}params", name, self.parameters, why)
            values = self.parameters[name].values
            refuse_unknown(file, f"{where}params.{name}", value, values)
        why = f"{self.name} is not written for it"
        refuse_unknown(file, f"{where}dtype", dtype, self.dtypes, why)
        layout = layout or self.usual_layouts[0]
        refuse_unknown(file, f"{where}layout", layout, self.usual_layouts)
        fixed = {
            name: params.get(name, axis.default)
            for name, axis in self.parameters.items()
        }
        variant = Variant(self, fixed, dtype, layout)
        variant = self._variants.setdefault((*fixed.values(), dtype, layout), variant)
        if not excluded and (broken := variant.broken()):
            why = f"{broken.reason} ({self.path.name} demands {broken.expr})"
            raise LadderError(
                f"{file}: {where}params: {dict(params)!r} is not accepted: {why}"
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
        """Name, unique in one checkout: kernel, dtype, and the parameters that differ from their default."""
        parts = [self.kernel.name, self.dtype]
        if self.layout != self.kernel.usual_layouts[0]:
            parts.append(self.layout)
        for name, value in self.params.items():
            if value != self.kernel.parameters[name].default:
                parts.append(f"{name}={value}")
        return "-".join(parts)

    @functools.cached_property
    def record_params(self) -> Mapping[str, ParamValue]:
        """The parameters as records hold them. One that is marked `added` is left out at its default, so that older
        records still match.
        """
        params = {**self.params}
        for name, axis in self.kernel.parameters.items():
            if axis.added and params[name] == axis.default:
                del params[name]
        return params

    def names(self, size: Size | None = None) -> dict[str, Any]:
        """Names an expression of this variant may use: parameters, layout, dtype, element_bytes, the size's fields."""
        element_bytes = ELEMENT_BYTES[self.dtype]
        fixed = {"dtype": self.dtype, "element_bytes": element_bytes}
        return {**self.params, "layout": self.layout, **fixed, **(size or {})}

    def broken(self, size: Size | None = None) -> Condition | None:
        """The first constraint that does not hold, if any; without a size, of those on parameters alone.

        That a block finds its shared memory on some architecture is one of them.
        """
        names = self.names(size)
        conditions, sized = self.kernel.split_constraints
        if size is not None:
            conditions = [*conditions, *sized]
        with within(f"{self.kernel.path}: constraints"):
            for condition in conditions:
                if not holds(condition.expr, names):
                    return condition
        shared = self.kernel.launch.shared_bytes
        if names_in(shared) <= names.keys():
            with within(f"{self.kernel.path}: launch"):
                if whole(shared, names) > MOST_SHARED_BYTES:
                    return _MEMORY
        return None

    @property
    def entry(self) -> str:
        """NVRTC name expression with parameters and dtype substitutions filled in."""
        names = self.kernel.dtypes[self.dtype] | self.names()
        return self.kernel.entry.format(**names)

    @property
    def constants(self) -> dict[str, Any]:
        """Of a kernel in Triton: the value of each constant."""
        names = self.names()
        values = dict[str, Any]()
        triton = self.kernel.triton or Triton()
        with within(f"{self.kernel.path}: triton.constants"):
            for name, text in triton.constants.items():
                values[name] = names[text] if text in names else evaluate(text, names)
        return values

    def absent(self, size: Size | None = None, arch: str = "") -> str | None:
        """Why there is no such variant, at `size` or at none at all, or on `arch`; None where there is."""
        if arch and (why := lacking(self.kernel.min_arch, arch)):
            return why
        if broken := self.broken(size):
            return broken.reason
        if size and (why := self.kernel.problem.unsupported(size, self.dtype)):
            return why
        return self._unfit(self.geometry(size), arch) if arch and size else None

    def _unfit(self, launch: Geometry, arch: str) -> str | None:
        """Which limit of `arch` a launch does not keep."""
        limits = limits_of(arch)
        if not limits:
            return None
        maps = [argument.tensor_map for argument in self.kernel.arguments]
        if "TMA" not in limits.features and any(maps):
            return f"needs TMA, the device is {arch}"
        if (blocks := math.prod(launch.cluster or ())) > max(1, limits.cluster):
            return f"needs clusters of {blocks} blocks, {arch} has {limits.cluster or 'none'}"
        if launch.shared_bytes > (most := limits.block_shared_bytes):
            return f"needs {launch.shared_bytes} bytes of shared memory per block, {arch} has {most}"
        return None

    def geometry(self, size: Size) -> Geometry:
        """Launch geometry at `size`. Raises LadderError where an expression gives no whole positive number."""
        path = self.kernel.path
        rule = self.kernel.launch
        names = self.names(size)
        given = {
            "grid": rule.grid,
            "block": self.kernel.block,
            "cluster": rule.cluster or [1],
        }
        dims = {}
        at = f"at {size_label(size)}"
        for field, texts in given.items():
            with within(f"{path}: launch.{field} {at}"):
                dims[field] = [whole(text, names) for text in texts]
        with within(f"{path}: launch.shared_bytes {at}"):
            shared = whole(rule.shared_bytes, names)
        if not 0 <= shared < 2**31:
            accepted = "a whole number >= 0 and < 2**31"
            raise refuse(path, f"launch.shared_bytes {at}", shared, accepted)
        for field, values in dims.items():
            most = _MOST[field]
            fits = all(
                1 <= value <= top for value, top in zip(values, most, strict=False)
            )
            if not fits or math.prod(values) > most[0]:
                accepted = f"whole numbers >= 1, at most {most}, and {most[0]} in all"
                accepted += "; or a constraint that rules this size out"
                raise refuse(path, f"launch.{field} {at}", values, accepted)
        grid, block, cluster = map(_in_three, dims.values())
        return Geometry(grid, block, None if cluster == (1, 1, 1) else cluster, shared)


def _in_three(values: list[int]) -> tuple[int, int, int]:
    x, y, z = [*values, 1, 1][:3]
    return x, y, z
