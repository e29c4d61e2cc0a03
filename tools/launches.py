"""What a launch costs the CPU, and PyTorch's matrix product over the size, from Python and from a graph.

`python tools/launches.py` writes docs/texts/launches.csv. It needs a GPU and PyTorch, which nothing else here needs.
The text `gemm-practice` draws PyTorch's curve from 256 to 16384 and says that below 1024 the launch and the CPU's side
weigh most.
"""

import csv
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, Stream, launch

TABLE = Path(__file__).resolve().parents[1] / "docs/texts/launches.csv"
SIZES = (256, 512, 1024, 2048, 4096, 8192, 16384)
ROUNDS, IN_GRAPH, SECONDS = 7, 50, 0.1
COLUMNS = (
    "what",
    "size",
    "cpu_us",
    "python_us",
    "graph_us",
    "python_tflops",
    "graph_tflops",
    "gpu",
    "torch",
    "cuda",
)
"""`cpu_us`: until a call returns; `python_us`, `graph_us`: from launch to launch, in a loop of Python and in a graph of
up to 50. Medians of 7 rounds of a tenth of a second. The L2 is warm, as in the text's own loop."""


def seconds(call: Callable[[], Any], number: int) -> tuple[float, float]:
    """Seconds a call until it returns, and until the GPU has done it, over `number` calls one after the other."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(number):
        call()
    returned = time.perf_counter()
    torch.cuda.synchronize()
    return (returned - start) / number, (time.perf_counter() - start) / number


def timed(call: Callable[[], Any], calls: int = 1) -> tuple[float, float]:
    """Medians of `seconds`, each divided by the launches of a call."""
    seconds(call, 3)
    number = max(3, round(SECONDS / max(seconds(call, 3)[1], 1e-6)))
    # The queue of launches holds about as many; behind it a call waits for the GPU.
    number = min(number, 1000)
    rounds = [seconds(call, number) for _ in range(ROUNDS)]
    return tuple(statistics.median(side) / calls for side in zip(*rounds, strict=True))  # type: ignore[return-value]


def graph_of(call: Callable[[], Any], calls: int) -> Callable[[], None]:
    """A graph of such calls."""
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            call()
    return graph.replay


def product(size: int, tf32: bool) -> Callable[[], Any]:
    """torch.matmul of two fresh matrices, held against doubles up to 1024."""
    torch.backends.cuda.matmul.allow_tf32 = tf32
    a, b = (torch.randn(size, size, device="cuda") for _ in range(2))
    c = torch.empty_like(a)
    torch.matmul(a, b, out=c)
    if size <= 1024:
        bound = size**0.5 * (1e-2 if tf32 else 1e-5)
        assert (c.double() - a.double() @ b.double()).abs().max() < bound, size
    return lambda: torch.matmul(a, b, out=c)


def empty_kernel() -> Callable[[], Any]:
    """A kernel that does nothing, launched as our kernels are."""
    device = Device()
    device.set_current()
    source = 'extern "C" __global__ void nothing(float*) {}'
    built = Program(source, "c++", ProgramOptions(arch=f"sm_{device.arch}")).compile(
        "cubin"
    )
    kernel, config = built.get_kernel("nothing"), LaunchConfig(grid=1, block=1)

    def call() -> None:
        launch(
            Stream.from_handle(torch.cuda.current_stream().cuda_stream),
            config,
            kernel,
            0,
        )

    return call


def rows() -> Iterator[dict[str, Any]]:
    """A row a kernel and size; the empty kernel has no size and no speed."""
    about = {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
    }
    kernels: list[tuple[str, int | None, Callable[[], Any]]] = [
        ("an empty kernel", None, empty_kernel())
    ]
    kernels += [
        (f"torch {name}", size, product(size, name == "tf32"))
        for name in ("fp32", "tf32")
        for size in SIZES
    ]
    for what, size, call in kernels:
        torch.backends.cuda.matmul.allow_tf32 = what == "torch tf32"
        cpu, python = timed(call)
        calls = min(max(round(SECONDS / python), 2), IN_GRAPH)
        _, graph = timed(graph_of(call, calls), calls)
        flop = 2 * size**3 if size else None
        row = {
            "what": what,
            "size": size,
            "cpu_us": cpu * 1e6,
            "python_us": python * 1e6,
            "graph_us": graph * 1e6,
        }
        if flop:
            row |= {
                "python_tflops": flop / python / 1e12,
                "graph_tflops": flop / graph / 1e12,
            }
        yield {
            name: f"{value:.4g}" if isinstance(value, float) else value
            for name, value in row.items()
        } | about


def main() -> None:
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows())


if __name__ == "__main__":
    main()
