"""y = a*x + y, element by element."""

from ladder.model.problem import Params, Problem, Size, Work


class Axpy(Problem):
    """A vector scaled and added to another."""

    name = "axpy"
    check_version = 1
    size_fields = ("elements",)
    dtypes = ("fp32",)
    buffers = ("x", "y")
    scalars = ("a",)
    libraries = ("copy",)
    edge_sizes = [[(1,)], [(1031,)]]

    def harness(self, dtype: str) -> tuple[str, ...]:
        return ("compare_axpy", "check_axpy")

    def work(self, size: Size, dtype: str, params: Params) -> Work:
        return Work(2.0 * size["elements"], 12.0 * size["elements"])

    def device_bytes(self, size: Size, dtype: str) -> int:
        return 12 * size["elements"]


PROBLEM = Axpy()
