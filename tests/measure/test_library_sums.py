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

NVCC = shutil.which("nvcc")
BUFFERS = {"input": Array(256, (1031,), "fp32"), "output": Array(8192, (1,), "fp32")}
SIZES = {"elements": 1031}


def module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        name, ROOT / "config" / "references" / f"{name}.py"
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


def test_what_is_compiled_lies_in_the_cache_of_the_project() -> None:
    assert module("cub_sum").KEPT.is_relative_to(ROOT / ".cache")
    assert "/.cache/" in (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()


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


class FakeTensor:
    def __init__(self, words: Any) -> None:
        self.words = words

    def view(self, kind: Any) -> FakeTensor:
        return FakeTensor(self.words.view(kind))


class FakeTorch(SimpleNamespace):
    """Types, arrays and streams of torch. bf16 is played by fp16."""

    def __init__(self, **functions: Any) -> None:
        super().__init__(
            float32=np.float32, bfloat16=np.float16, streams=[], **functions
        )
        self.cuda = SimpleNamespace(
            stream=self._on, ExternalStream=lambda pointer: pointer
        )

    @contextlib.contextmanager
    def _on(self, queue: int) -> Iterator[None]:
        self.streams.append(queue)
        yield

    def as_tensor(self, array: Any, device: str) -> FakeTensor:
        return FakeTensor(array)


def played(monkeypatch: pytest.MonkeyPatch, **functions: Any) -> FakeTorch:
    fake = FakeTorch(**functions)
    monkeypatch.setitem(sys.modules, "torch", fake)  # type: ignore[arg-type]
    return fake


@pytest.mark.parametrize("dtype", PROBLEM.dtypes)
def test_torch_adds_up_in_fp32_on_the_stream(
    monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    numbers = {
        "input": np.arange(5, dtype=np.float32),
        "output": np.full(1, np.nan, np.float32),
    }
    if dtype == "bf16":
        numbers["input"] = np.arange(5, dtype=np.float16).view(np.int16)

    def add(
        x: FakeTensor, *, dim: int, keepdim: bool, dtype: Any, out: FakeTensor
    ) -> None:
        assert fake.streams == [7]
        out.words[:] = x.words.sum(axis=dim, keepdims=keepdim, dtype=dtype)

    fake = played(monkeypatch, sum=add)
    launch = module("torch_sum").total(
        SimpleNamespace(dtype=dtype), numbers, SIZES, {}, 7
    )
    assert np.isnan(numbers["output"][0])
    launch()
    assert numbers["output"][0] == 10


@pytest.mark.parametrize("dtype", PROBLEM.dtypes)
def test_torch_makes_softmax_of_rows_in_the_output_on_the_stream(
    monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    kind = np.float16 if dtype == "bf16" else np.float32
    rows = np.arange(6, dtype=kind).reshape(2, 3)
    output = np.full((2, 3), np.nan, kind)
    buffers = {"input": rows, "output": output}
    if dtype == "bf16":
        buffers = {name: words.view(np.int16) for name, words in buffers.items()}

    def softmax(x: FakeTensor, *, dim: int, out: FakeTensor) -> None:
        assert fake.streams == [7]
        e = np.exp(x.words)
        out.words[:] = e / e.sum(axis=dim, keepdims=True)

    fake = played(monkeypatch, softmax=softmax)
    sizes = {"m": 2, "n": 3}
    launch = module("torch_softmax").along_rows(
        SimpleNamespace(dtype=dtype), buffers, sizes, {}, 7
    )
    assert np.isnan(output).all()
    launch()
    assert output.sum(axis=1) == pytest.approx([1, 1], rel=1e-3)


class Attention(SimpleNamespace):
    """Queries, keys, values and an output, and what torch or cuDNN makes of them."""

    def __init__(self) -> None:
        random = np.random.default_rng(3)
        super().__init__(
            **{name: random.normal(size=(2, 5, 4)).astype(np.float16) for name in "qkv"}
        )
        self.o = np.full((2, 5, 4), np.nan, np.float16)
        self.buffers = {name: getattr(self, name).view(np.int16) for name in "qkvo"}

    def right(self, causal: int) -> Any:
        s = self.q.astype(float) @ self.k.astype(float).swapaxes(1, 2) / 2
        s[:, np.triu(np.ones((5, 5), bool), 1) & bool(causal)] = -np.inf
        return np.exp(s) @ self.v / np.exp(s).sum(axis=2, keepdims=True)


class Words(FakeTensor):
    """A tensor of torch, as far as references of attention use one."""

    def view(self, kind: Any) -> Words:
        return Words(self.words.view(kind))

    def __getitem__(self, at: None) -> Words:
        assert at is None
        return Words(self.words.reshape(1, *self.words.shape))

    def copy_(self, other: Any) -> None:
        self.words[...] = other

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.words.shape)

    def stride(self) -> tuple[int, ...]:
        return tuple(one // 2 for one in self.words.strides)


def play_torch(monkeypatch: pytest.MonkeyPatch) -> FakeTorch:
    """torch, which notes the backends that it is asked for."""
    fake = played(monkeypatch, float16=np.float16, uint8="uint8", backends=[])
    fake.as_tensor = lambda array, device: Words(array)

    @contextlib.contextmanager
    def kernel(backend: str) -> Iterator[None]:
        fake.backends.append(backend)
        yield

    def attention(q: Words, k: Words, v: Words, *, is_causal: bool) -> Any:
        assert fake.streams == [7]
        made = Attention()
        made.q, made.k, made.v = (one.words[0] for one in (q, k, v))
        return made.right(is_causal)

    fake.nn = SimpleNamespace(
        functional=SimpleNamespace(scaled_dot_product_attention=attention)
    )
    fake.empty = lambda size, device, dtype: ("workspace", size)
    names = ("FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION")
    backends = SimpleNamespace(
        SDPBackend=SimpleNamespace(**{one: one for one in names}), sdpa_kernel=kernel
    )
    for name, part in (("torch.nn", fake.nn), ("torch.nn.attention", backends)):
        monkeypatch.setitem(sys.modules, name, part)  # type: ignore[arg-type]
    return fake


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("entry", ["flash", "efficient", "cudnn"])
def test_torch_attends_by_the_backend_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, entry: str, causal: int
) -> None:
    fake, given = play_torch(monkeypatch), Attention()
    function = getattr(module("torch_attention"), entry)
    launch = function(
        SimpleNamespace(dtype="fp16"), given.buffers, {"d": 4, "causal": causal}, {}, 7
    )
    assert np.isnan(given.o).all()
    launch()
    assert given.o == pytest.approx(given.right(causal), abs=1e-3)
    assert [one.split("_")[0].lower() for one in fake.backends] == [entry]


class Graph:
    """cuDNN's, which is executed with what it was built for."""

    def __init__(self, **types: Any) -> None:
        assert types["handle"] == "handle"
        assert (types["io_data_type"], types["compute_data_type"]) == ("half", "float")
        self.steps: list[str] = []

    def tensor_like(self, tensor: Words) -> str:
        assert tensor.shape == (1, 2, 5, 4)
        return f"tensor {id(tensor)}"

    def sdpa(
        self,
        *,
        q: str,
        k: str,
        v: str,
        attn_scale: float,
        use_causal_mask: bool,
        **more: Any,
    ) -> Any:
        assert (attn_scale, more["is_inference"]) == (0.5, True)
        self.places, self.causal = (q, k, v), use_causal_mask
        output = SimpleNamespace(
            set_output=lambda yes: output, set_dim=lambda dim: output
        )
        output.set_stride = lambda stride: self.steps.append(str(stride))
        self.output = Output(output)
        return self.output, None

    def __getattr__(self, step: str) -> Any:
        return lambda *_: self.steps.append(step)

    def get_workspace_size(self) -> int:
        return 64

    def execute(self, tensors: dict[Any, Words], workspace: Any, handle: str) -> None:
        steps = [
            "[40, 20, 4, 1]",
            "validate",
            "build_operation_graph",
            "create_execution_plans",
        ]
        assert (self.steps, handle) == (
            [*steps, "check_support", "build_plans"],
            "handle",
        )
        assert workspace == ("workspace", 64)
        made = Attention()
        made.q, made.k, made.v = (tensors[one].words[0] for one in self.places)
        tensors[self.output].copy_(made.right(self.causal))


class Output:
    """By which a graph knows its output."""

    def __init__(self, about: Any) -> None:
        self.set_output = about.set_output


@pytest.mark.parametrize("causal", [0, 1])
def test_cudnn_attends_by_a_graph_that_is_built_once(
    monkeypatch: pytest.MonkeyPatch, causal: int
) -> None:
    play_torch(monkeypatch)
    streams: dict[str, int] = {}
    fake = SimpleNamespace(
        pygraph=Graph,
        data_type=SimpleNamespace(HALF="half", BFLOAT16="bfloat16", FLOAT="float"),
        heur_mode=SimpleNamespace(A=1, FALLBACK=2),
        create_handle=lambda: "handle",
        set_stream=lambda handle, stream: streams.update({handle: stream}),
    )
    monkeypatch.setitem(sys.modules, "cudnn", fake)  # type: ignore[arg-type]
    given = Attention()
    sizes = {"heads": 2, "sequence": 5, "d": 4, "causal": causal}
    launch = module("cudnn_attention").forward(
        SimpleNamespace(dtype="fp16"), given.buffers, sizes, {}, 7
    )
    assert np.isnan(given.o).all()
    for _ in range(2):
        launch()
    assert given.o == pytest.approx(given.right(causal), abs=1e-3)
    assert streams == {"handle": 7}
