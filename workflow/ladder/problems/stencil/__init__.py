"""1-D stencil: output[i] = mean(input[i .. i + 2 radius]) for i < elements - 2 radius; 2 radius + 1 taps."""

from collections.abc import Sequence

from ladder.model.problem import ELEMENT_BYTES, Params, Problem, Size, Work


def halo(params: Params) -> int:
    """Inputs of an output beside the first: `radius` of them on each side of the middle one."""
    return 2 * int(params["radius"])


class Stencil(Problem):
    """Moving mean over a line; a kernel's parameter `radius` is k of the k-stencil of register-cache."""

    name = "stencil"
    check_version = 1
    place = 3
    size_fields = ("elements",)
    dtypes = ("int32", "fp32")
    buffers = ("input", "output")
    libraries = ("copy",)
    check_kernels = ("compare_stencil", "check_stretches")
    parameters = {"radius": "neighbours on each side; taps are 2 radius + 1"}

    def edges(self, params: Params, dtype: str = "") -> Sequence[Sequence[Size]]:
        """One output, two, a prime, one more and one less than blocks of outputs, or whole blocks instead."""
        more = halo(params)
        groups = [
            (more + 1,),
            (more + 2,),
            (1031 + more,),
            (4097, 4096),
            (8191 + more, 8192 + more, 8192),
        ]
        return [[{"elements": count} for count in group] for group in groups]

    def taps(self, params: Params) -> int | None:
        return halo(params) + 1

    def work(self, size: Size, dtype: str, params: Params) -> Work:
        """One addition a tap; every input read once and every output written once."""
        inputs, more = size["elements"], halo(params)
        outputs = max(inputs - more, 0)
        moved = (inputs + outputs) * ELEMENT_BYTES[dtype]
        return Work(float(outputs * (more + 1)), float(moved))

    def device_bytes(self, size: Size, dtype: str) -> int:
        """Input, two outputs, and the copy's target."""
        return 4 * size["elements"] * ELEMENT_BYTES[dtype]


PROBLEM = Stencil()
