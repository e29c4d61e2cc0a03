"""Without a GPU: every call of a harness kernel has the arguments that the kernel takes, by number and size."""

from __future__ import annotations

import ctypes
import functools
import io
import itertools
import struct
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile
from ladder.build.variants import harness
from ladder.gpu import instance as instances
from ladder.gpu.device import Seal
from ladder.model.problem import INPUTS
from ladder.problems.banks.instance import BanksInstance
from ladder.problems.gemm import instance as gemm
from ladder.problems.registry import PROBLEMS
from ladder.problems.stencil.instance import StencilInstance

ARCH = "sm_90a"
_PARAMETER = 0x1704  # EIATTR_KPARAM_INFO: its format and its number


def parameter_sizes(cubin: bytes) -> dict[str, list[int]]:
    """Bytes of each parameter by kernel: ordinal and size stand in the sections .nv.info.KERNEL."""
    found = {}
    for section in ELFFile(io.BytesIO(cubin)).iter_sections():
        if not section.name.startswith(".nv.info."):
            continue
        data, at, sizes = section.data(), 0, dict[int, int]()
        while at < len(data):
            form, attribute, length = struct.unpack_from("<BBH", data, at)
            if attribute << 8 | form == _PARAMETER:
                _, ordinal, _, flags = struct.unpack_from("<IHHI", data, at + 4)
                sizes[ordinal] = flags >> 18
            at += 4 + (length if form == 4 else 0)
        found[section.name.removeprefix(".nv.info.")] = [sizes[one] for one in sorted(sizes)]
    return found


@functools.cache
def kernels(problem: str, dtype: str) -> dict[str, list[int]]:
    """Bytes of the parameters of each harness kernel, by name expression."""
    cubin, facts = harness(PROBLEMS[problem], dtype, ARCH).compile()
    assert facts["status"] == "ok", facts["reason"]
    sizes = parameter_sizes(cubin)
    return {entry: sizes[name] for entry, name in facts["symbols"].items()}


class FakeBuffer:
    def __init__(self, size: int, handle: int) -> None:
        self.size, self.handle = size, handle

    @staticmethod
    def from_handle(pointer: int, size: int, owner: Any) -> FakeBuffer:
        assert owner.handle <= pointer
        assert pointer + size <= owner.handle + owner.size
        return FakeBuffer(size, pointer)

    def close(self, *_: Any) -> None:
        pass

    def fill(self, value: int | bytes, stream: Any) -> None:
        assert isinstance(value, int) or self.size % len(value) == 0


class FakeGpu:
    """Memory that is only counted, and a harness that holds calls to the parameters of its kernels."""

    sms, full_rate_fp64, stream = 132, True, None
    maximum, count = 64, 72

    def __init__(self, problem: str, dtype: str) -> None:
        self.sizes = kernels(problem, dtype)
        self.harness, self.called = self, set[str]()
        self._free = itertools.count(2**40, 2**34)

    def allocate(self, size: int) -> FakeBuffer:
        return FakeBuffer(-(-size // 16) * 16, next(self._free))

    def upload(self, data: bytes) -> FakeBuffer:
        return self.allocate(len(data))

    def zero(self, pointer: int, size: int) -> None:
        assert pointer > 0 < size

    def copy(self, target: int, source: int, size: int) -> None:
        assert target > 0 < source

    def download(self, pointer: int, size: int) -> bytes:
        return bytes(size)

    def run(self, entry: str, elements: int, *arguments: Any) -> None:
        given = [8 if isinstance(one, int | float) else ctypes.sizeof(one) for one in arguments]
        assert given == self.sizes[entry], entry
        assert elements > 0
        self.called.add(entry.split("<")[0])

    def reduce(self, entry: str, elements: int, *arguments: Any) -> tuple[float, int]:
        self.run(entry, elements, *arguments)
        return 0.0, 0


class FakeLibraries:
    def cublas(self, problem: Any) -> Any:
        return lambda: None


@pytest.fixture(autouse=True)
def fake_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instances, "Buffer", FakeBuffer)


def use(made: instances.Instance, params: dict[str, Any]) -> None:
    """All that a worker does with an instance, but for launching kernels."""
    made.fill_inputs(3)
    for place in (0, 1, 5):
        with made.writing_to(place):
            made.poison_outputs()
            made.check(params)
            made.refresh(4)
            made.inspect(params, Seal(1, 2, 3))
    assert made.damage() is None


@pytest.mark.parametrize("layout", ["NN", "TN"])
@pytest.mark.parametrize("dtype", PROBLEMS["gemm"].dtypes)
def test_calls_of_gemm(dtype: str, layout: str) -> None:
    gpu: Any = FakeGpu("gemm", dtype)
    libraries: Any = FakeLibraries()
    made = gemm.GemmInstance(libraries, gpu, {"m": 33, "n": 17, "k": 65}, dtype, layout)
    use(made, {})
    made.use_scalars(0.5, -1.5)
    made.poison_outputs()
    made.check({})
    other = "columns" if layout == "NN" else "rows"
    unused = {entry.split("<")[0] for entry in gpu.sizes} - gpu.called
    assert unused == {
        "gate",
        "nothing",
        "read_through",
        "scrub_shared",
        "read_clocks",
        f"multiply_{other}_by_signs",
    }


@pytest.mark.parametrize("dtype", PROBLEMS["stencil"].dtypes)
def test_calls_of_the_stencil(dtype: str) -> None:
    gpu: Any = FakeGpu("stencil", dtype)
    use(StencilInstance(gpu, {"elements": 1031}, dtype, ""), {"k": 3})
    assert {"compare_stencil", "check_stretches"} <= gpu.called


def test_calls_of_the_banks(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu: Any = FakeGpu("banks", "int32")
    monkeypatch.setattr(BanksInstance, "_offsets", lambda self: [(0,) * 32])
    monkeypatch.setattr(BanksInstance, "_read", lambda self, name, form: (1,) * 32)
    made = BanksInstance(gpu, {"elements": 64}, "int32", "")
    monkeypatch.setattr("ladder.problems.banks.instance.expected_sums", lambda *_: [1] * 32)
    use(made, {"warps": 1})
    assert "compare_words" in gpu.called


def test_inputs_are_held_to_the_kind_that_they_were_drawn_as(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu: Any = FakeGpu("gemm", "fp32")
    libraries: Any = FakeLibraries()
    made = gemm.GemmInstance(libraries, gpu, {"m": 33, "n": 17, "k": 65}, "fp32", "NN")
    compared = []
    monkeypatch.setattr(gpu, "reduce", lambda *given: compared.append(given[-1].value) or (0.0, 0))
    with made.given("positive"):
        made.refresh(4)
    assert made.damage() is None
    assert compared == [INPUTS.index("positive")] * 2


def test_a_call_with_an_argument_less_is_seen() -> None:
    gpu: Any = FakeGpu("stencil", "fp32")
    with pytest.raises(AssertionError):
        gpu.run("compare_stencil<float>", 1, 64)
