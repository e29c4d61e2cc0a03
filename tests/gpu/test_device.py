"""What the GPU of this process says of itself, on a CUDA that the test plays."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
from ladder.gpu import device
from ladder.gpu.device import Gpu

RTX_4090 = {
    "multiprocessor_count": 128,
    "l2_cache_size": 75_497_472,
    "max_shared_memory_per_block_optin": 101_376,
    "memory_clock_rate": 10_501_000,
    "global_memory_bus_width": 384,
    "clock_rate": 2_520_000,
}


def gpu_of(
    monkeypatch: pytest.MonkeyPatch, name: str, capability: tuple[int, int], **over: int
) -> Gpu:
    def played(_: int) -> Any:
        return SimpleNamespace(
            name=name,
            compute_capability=capability,
            properties=SimpleNamespace(**{**RTX_4090, **over}),
            set_current=lambda: None,
            create_stream=lambda: None,
        )

    monkeypatch.setattr(device, "Device", played)
    monkeypatch.setattr(device, "Harness", lambda *_: None)
    monkeypatch.setattr(device, "L2", lambda *_: None)
    return Gpu(b"", {})


def test_peaks_are_those_of_the_data_sheet_at_the_clock_that_cuda_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """NVML's highest clock, 3105 MHz, is one that the card never runs at."""
    gpu = gpu_of(monkeypatch, "NVIDIA GeForce RTX 4090", (8, 9))
    assert gpu.boost_clock_mhz == 2520
    assert gpu.fp32_tflops == pytest.approx(82.6, rel=0.001)
    assert gpu.tensor_tflops["fp16_acc16"] == pytest.approx(330.3, rel=0.001)
    assert gpu.memory_bytes_per_us / 1e3 == pytest.approx(1008, rel=0.001)


def test_what_integrated_memory_does_not_say_is_no_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpu = gpu_of(monkeypatch, "NVIDIA GB10", (12, 1), memory_clock_rate=0, clock_rate=0)
    assert gpu.memory_bytes_per_us == math.inf
    assert (gpu.fp32_tflops, gpu.tensor_tflops) == (None, {})
