"""The PyTorch extension of docs/launchers.md: with a made-up torch, and on a GPU with an extension that it loads."""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from conftest import ROOT, make_project, output_of
from ladder.cli.app import main
from measuring import PACKAGES, on_gpu

PAGE = (ROOT / "docs/launchers.md").read_text()
(EXAMPLE,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
TORCH = """
import contextlib
from types import SimpleNamespace

streams, copied = [], []


@contextlib.contextmanager
def on(stream):
    streams.append(stream)
    yield
    streams.pop()


def as_tensor(buffer, device):
    assert device == "cuda"
    return SimpleNamespace(
        name=buffer, copy_=lambda value: copied.append((streams[-1], buffer, value))
    )


cuda = SimpleNamespace(ExternalStream=lambda address: address, stream=on)
"""
EXTENSION = """
// c10's function is at::cuda's, in a header that needs less of CUDA.
#include <c10/cuda/CUDAStream.h>
#include <torch/extension.h>

__global__ void product(const float* a, const float* b, float* c, int64_t n, int64_t k) {
    const int64_t row = blockIdx.y, column = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (column >= n) return;
    float sum = 0;
    for (int64_t i = 0; i < k; ++i) sum += a[row * k + i] * b[i * n + column];
    c[row * n + column] = sum;
}

torch::Tensor matmul(torch::Tensor a, torch::Tensor b) {
    const auto c = torch::empty({a.size(0), b.size(1)}, a.options());
    const dim3 grid((c.size(1) + 255) / 256, c.size(0));
    product<<<grid, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(
        a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), c.size(1), a.size(1));
    return c;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) { module.def("matmul", &matmul); }
"""


def test_each_launch_calls_the_extension_on_the_stream_that_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch: Any = ModuleType("torch")
    exec(TORCH, vars(torch))

    def matmul(a: Any, b: Any) -> tuple[Any, ...]:
        return torch.streams[-1], a.name, b.name

    def load(name: str, sources: list[str]) -> SimpleNamespace:
        assert (name, sources) == ("mine", ["mine.cu"])
        return SimpleNamespace(matmul=matmul)

    monkeypatch.setitem(sys.modules, "torch", torch)
    for name in ("torch.utils", "torch.utils.cpp_extension"):
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(load=load))
    example: dict[str, Any] = {}
    exec(EXAMPLE, example)
    launch = example["matmul"](None, {name: name for name in "abc"}, {}, {}, 5)
    assert torch.copied == []
    launch()
    launch()
    assert torch.copied == [(5, "c", (5, "a", "b"))] * 2


@on_gpu
@pytest.mark.skipif(
    importlib.util.find_spec("torch") is None
    or not (shutil.which("nvcc") and shutil.which("ninja")),
    reason="needs torch, ninja and nvcc",
)
def test_on_a_gpu_an_extension_is_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Built ahead, as the page says."""
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "built"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.cu").write_text(EXTENSION)
    (tmp_path / "mine.py").write_text(EXAMPLE)
    output_of([sys.executable, "mine.py"], tmp_path, PYTHONPATH=PACKAGES)
    project = ["--root", str(make_project(tmp_path / "project"))]
    judge = ["judge", "mine.py", "--entry", "matmul", "--problem", "gemm"]
    more = ["--size", "256", "--config", "measure={busy: mark}"]
    assert main([*project, *judge, *more]) <= 2, "it is right"
