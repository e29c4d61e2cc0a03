"""The references of sums, softmax and attention: CUB, torch and cuDNN, as far as they go without a GPU."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import ROOT
from ladder.gpu.external import Array
from ladder.problems.reduction import PROBLEM
from ladder.problems.softmax import PROBLEM as SOFTMAX
from scipy import special

NVCC = shutil.which("nvcc")
BUFFERS = {"input": Array(256, (1031,), "fp32"), "output": Array(8192, (1,), "fp32")}
SIZES = {"elements": 1031}


def module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        name, ROOT / "config/references" / f"{name}.py"
    )
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.mark.slow
@pytest.mark.skipif(NVCC is None, reason="needs nvcc")
def test_cub_is_compiled_once_with_an_entry_for_each_dtype() -> None:
    cub = module("cub_sum")
    made = cub.compiled("sm_90")
    library = ctypes.CDLL(str(made))
    for dtype in PROBLEM.dtypes:
        assert hasattr(library, f"prepare_{dtype}")
        assert hasattr(library, f"sum_{dtype}")
    assert cub.compiled("sm_90") == made


@pytest.mark.skipif(NVCC is None, reason="needs nvcc")
def test_what_nvcc_says_is_the_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cub = module("cub_sum")
    monkeypatch.setattr(cub, "KEPT", tmp_path)
    monkeypatch.setattr(cub, "SOURCE", "#error no sums today")
    with pytest.raises(RuntimeError, match="no sums today"):
        cub.compiled("sm_90")
    assert not list(tmp_path.iterdir())


def test_without_nvcc_there_is_no_cub(monkeypatch: pytest.MonkeyPatch) -> None:
    cub = module("cub_sum")
    monkeypatch.setattr(cub.shutil, "which", lambda _: None)
    with pytest.raises(FileNotFoundError, match="nvcc"):
        cub.compiled("sm_90")


class FakeLibrary:
    """Notes what its functions are called with."""

    def __init__(self, *_: Any) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def __getattr__(self, name: str) -> Any:
        def function(*given: Any) -> int:
            self.calls.append(
                (name, tuple(getattr(one, "value", one) for one in given))
            )
            return 0

        return function


@pytest.mark.parametrize("dtype", PROBLEM.dtypes)
def test_cub_has_storage_of_its_own_for_a_size_and_gets_the_buffers(
    monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    cub, library = module("cub_sum"), FakeLibrary()
    monkeypatch.setattr(cub, "_LIBRARY", [library])
    for _ in range(2):
        cub.total(SimpleNamespace(dtype=dtype), BUFFERS, SIZES, {}, 7)()
    prepared, *launches = (one for one in library.calls)
    assert (prepared[0], prepared[1][1]) == (f"prepare_{dtype}", 1031)
    assert [(name, given[1:]) for name, given in launches] == [
        (f"sum_{dtype}", (256, 8192, 1031, 7))
    ] * 2


class Tensor(np.ndarray):
    """An array as a tensor of torch, as far as references use one."""

    def copy_(self, other: Any) -> None:
        self[...] = other


class FakeTorch(SimpleNamespace):
    """Types, arrays and streams of torch. bf16 is played by fp16."""

    def __init__(self, **functions: Any) -> None:
        super().__init__(
            float32=np.float32,
            float16=np.float16,
            bfloat16=np.float16,
            streams=[],
            **functions,
        )
        self.cuda = SimpleNamespace(
            stream=self._on, ExternalStream=lambda pointer: pointer
        )

    @contextlib.contextmanager
    def _on(self, queue: int) -> Iterator[None]:
        self.streams.append(queue)
        yield

    def as_tensor(self, array: Any, device: str) -> Any:
        return array.view(Tensor)


def played(monkeypatch: pytest.MonkeyPatch, **functions: Any) -> FakeTorch:
    fake = FakeTorch(**functions)
    monkeypatch.setitem(sys.modules, "torch", fake)  # type: ignore[arg-type]
    return fake


CASES = [
    *(("sum", "total", dtype) for dtype in PROBLEM.dtypes),
    *(("softmax", "along_rows", dtype) for dtype in SOFTMAX.dtypes),
]


@pytest.mark.parametrize(("name", "entry", "dtype"), CASES)
def test_torch_adds_up_in_fp32_or_makes_softmax_of_rows_on_the_stream(
    monkeypatch: pytest.MonkeyPatch, name: str, entry: str, dtype: str
) -> None:
    kind = np.float32 if dtype == "fp32" else np.float16
    rows, output = np.arange(6, dtype=kind).reshape(2, 3), np.zeros((2, 3), kind)
    if name == "sum":
        rows, output = rows.reshape(6), np.zeros(1, np.float32)

    def total(x: Any, *, dim: int, keepdim: bool, **given: Any) -> None:
        np.sum(x, axis=dim, keepdims=keepdim, **given)

    def softmax(x: Any, *, dim: int, out: Any) -> None:
        out[:] = special.softmax(x, axis=dim)

    fake = played(monkeypatch, sum=total, softmax=softmax)
    buffers = {"input": rows, "output": output}
    if dtype == "bf16":
        buffers["input"] = rows.view(np.int16)
        if name == "softmax":
            buffers["output"] = output.view(np.int16)
    function = getattr(module(f"torch_{name}"), entry)
    sizes = {"m": 2, "n": 3, "elements": 6}
    launch = function(SimpleNamespace(dtype=dtype), buffers, sizes, {}, 7)
    assert not output.any()
    launch()
    assert fake.streams == [7]
    assert output.sum(axis=-1) == pytest.approx(15 if name == "sum" else 1, rel=1e-3)


def attended(q: Any, k: Any, v: Any, *, is_causal: bool) -> Any:
    """What torch makes of queries, keys and values: (2, 5, 4) each."""
    s = q.astype(float) @ k.astype(float).swapaxes(1, 2) / 2
    s[:, np.triu(np.ones((5, 5), bool), 1) & is_causal] = -np.inf
    return special.softmax(s, axis=2) @ v


def play_torch(monkeypatch: pytest.MonkeyPatch) -> FakeTorch:
    """torch, which notes the backends that it is asked for."""
    fake = played(monkeypatch, backends=[])

    @contextlib.contextmanager
    def kernel(backend: str) -> Iterator[None]:
        fake.backends.append(backend)
        yield

    def attention(*of_a_batch: Any, is_causal: bool) -> Any:
        assert fake.streams == [7]
        return attended(*(one[0] for one in of_a_batch), is_causal=is_causal)

    fake.nn = SimpleNamespace(
        functional=SimpleNamespace(scaled_dot_product_attention=attention)
    )
    backends = SimpleNamespace(
        SDPBackend=SimpleNamespace(FLASH_ATTENTION="flash"), sdpa_kernel=kernel
    )
    for name, part in (("torch.nn", fake.nn), ("torch.nn.attention", backends)):
        monkeypatch.setitem(sys.modules, name, part)  # type: ignore[arg-type]
    return fake


@pytest.mark.parametrize("causal", [0, 1])
def test_torch_attends_by_its_backend_flash(
    monkeypatch: pytest.MonkeyPatch, causal: int
) -> None:
    fake, random = play_torch(monkeypatch), np.random.default_rng(3)
    q, k, v = random.normal(size=(3, 2, 5, 4)).astype(np.float16)
    o = np.full_like(q, np.nan)
    buffers = {"q": q, "k": k, "v": v, "o": o}
    words = {name: array.view(np.int16) for name, array in buffers.items()}
    launch = module("torch_attention").flash(
        SimpleNamespace(dtype="fp16"), words, {"causal": causal}, {}, 7
    )
    assert np.isnan(o).all()
    launch()
    right = attended(q, k, v, is_causal=bool(causal))
    assert o == pytest.approx(right, abs=1e-3)
    assert fake.backends == ["flash"]
