"""1-D stencil: output[i] = mean(input[i .. i+k]) for i < elements - k; k + 1 taps."""

from collections.abc import Sequence

from ladder.model.problem import C_TYPES, ELEMENT_BYTES, Params, Problem, Size, Work


class Stencil(Problem):
    """Moving mean over a line; a kernel's parameter `k` says how far it reaches."""

    name = "stencil"
    check_version = 1
    place = 3
    size_fields = ("elements",)
    dtypes = ("int32", "fp32")
    buffers = ("input", "output")
    libraries = ("copy",)
    parameters = {"k": "reach; taps are k + 1"}

    def edges(self, params: Params) -> Sequence[Sequence[Size]]:
        """One output, two, a prime, one more and one less than blocks of outputs, or whole blocks instead."""
        k = int(params["k"])
        groups = [(k + 1,), (k + 2,), (1031 + k,), (4097, 4096), (8191 + k, 8192 + k, 8192)]
        return [[{"elements": count} for count in group] for group in groups]

    def harness(self, dtype: str) -> tuple[str, ...]:
        return tuple(f"{name}<{C_TYPES[dtype]}>" for name in ("compare_stencil", "check_stretches"))

    def taps(self, params: Params) -> int | None:
        return int(params["k"]) + 1

    def work(self, size: Size, dtype: str, params: Params) -> Work:
        """One addition a tap; every input read once and every output written once."""
        n, k = size["elements"], int(params["k"])
        outputs = max(n - k, 0)
        return Work(float(outputs * (k + 1)), float((n + outputs) * ELEMENT_BYTES[dtype]))

    def device_bytes(self, size: Size, dtype: str) -> int:
        """Input, two outputs, and the copy's target."""
        return 4 * size["elements"] * ELEMENT_BYTES[dtype]


PROBLEM = Stencil()
