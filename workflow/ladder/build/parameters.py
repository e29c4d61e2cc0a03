"""A kernel's arguments as its description says, held against the parameters that its cubin takes."""

from collections.abc import Sequence

from ladder.model.kernel import SCALAR_BYTES, Kernel

_POINTER_BYTES = 8
_MAP_BYTES = 128
_FIT = {
    4: "int32 or float32",
    _POINTER_BYTES: "int64, a pointer or a workspace",
    _MAP_BYTES: "a tensor map",
}
"""What an argument may be, by the bytes of its parameter."""


def _described(kernel: Kernel) -> list[tuple[int, int]]:
    """Of each parameter that a description leads to the argument's number and the bytes."""
    described = []
    for number, argument in enumerate(kernel.arguments):
        if argument.kind == "scalar":
            sizes = [SCALAR_BYTES[argument.type or ""]]
        elif argument.kind == "tensor_map":
            # In Triton extents and strides follow a descriptor.
            rank = len(argument.box or ()) if kernel.triton else 0
            sizes = [_MAP_BYTES, *[4] * rank, *[8] * rank]
        else:
            sizes = [_POINTER_BYTES]
        described += [(number, size) for size in sizes]
    return described


def hidden_pointers(kernel: Kernel, takes: Sequence[int]) -> int:
    """How many pointers Triton has put behind the arguments, to memory that no kernel here needs."""
    return len(takes) - len(_described(kernel))


def other_parameters(kernel: Kernel, takes: Sequence[int]) -> str:
    """Why the bytes of the parameters that a cubin `takes` are not those that are described; empty where they are."""
    described = _described(kernel)
    has = [size for _, size in described]
    hidden = [_POINTER_BYTES] * (len(takes) - len(has)) if kernel.triton else []
    if [*takes] == has + hidden:
        return ""
    if len(has) < len(takes):
        advice = f"add {len(takes) - len(has)}, in the order of the source"
    elif len(has) > len(takes):
        advice = f"leave out {len(has) - len(takes)}"
    else:
        differing = [place for place, size in enumerate(takes) if size != has[place]]
        advice = _differs(kernel, described[differing[0]][0], takes[differing[0]])
    source = f"{kernel.entry.partition('<')[0]} takes {_counted(takes)}"
    return f"{kernel.path.name}: arguments: {source}; the description has {_counted(has)}: {advice}"


def _differs(kernel: Kernel, number: int, size: int) -> str:
    """What to do about the argument in whose place a kernel takes `size` bytes."""
    argument = kernel.arguments[number]
    kind = f"{argument.kind} {argument.name}" + (
        f" as {argument.type}" if argument.type else ""
    )
    accepted = _FIT.get(size, "none, so that the source must take another type")
    return f"arguments[{number}] is the {kind}; accepted, of {size} bytes: {accepted}"


def _counted(sizes: Sequence[int]) -> str:
    """Such as: 3 arguments of 8, 8, 4 bytes."""
    return (
        f"{len(sizes)} arguments of {', '.join(map(str, sizes))} bytes"
        if sizes
        else "no arguments"
    )
