"""Memory that ends where nothing is mapped: where buffers lie in it, and that it is given back whatever happens."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from ladder.gpu import unmapped
from ladder.gpu.unmapped import mapped
from ladder.model.errors import LadderError

PAGE, RESERVED, FINE = 2**21, 2**40, unmapped.driver.CUresult.CUDA_SUCCESS
NO_MEMORY = unmapped.driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY
CALLS = {
    "cuMemGetAllocationGranularity": PAGE,
    "cuMemAddressReserve": RESERVED,
    "cuMemCreate": "memory",
    "cuMemMap": None,
    "cuMemSetAccess": None,
    "cuMemUnmap": None,
    "cuMemRelease": None,
    "cuMemAddressFree": None,
}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Those of the driver, in order; all succeed."""
    made = list[tuple[Any, ...]]()

    def played(name: str, value: Any) -> Callable[..., tuple[Any, ...]]:
        def call(*given: Any) -> tuple[Any, ...]:
            made.append((name, *given))
            return (FINE,) if value is None else (FINE, value)

        return call

    for name, value in CALLS.items():
        monkeypatch.setattr(unmapped.driver, name, played(name, value))
    from_handle = SimpleNamespace(from_handle=buffer)
    monkeypatch.setattr(unmapped, "Buffer", from_handle)
    return made


def gpu(sync: Callable[[], None] = lambda: None) -> Any:
    return SimpleNamespace(device=SimpleNamespace(device_id=0), sync=sync)


def given_back(calls: list[tuple[Any, ...]]) -> list[str]:
    return [
        name
        for name, *_ in calls
        if name in {"cuMemUnmap", "cuMemRelease", "cuMemAddressFree"}
    ]


def buffer(begin: int, size: int) -> Any:
    return SimpleNamespace(handle=begin, size=size)


def of(calls: list[tuple[Any, ...]], name: str) -> list[tuple[Any, ...]]:
    return [given for called, *given in calls if called == name]


def test_buffers_lie_in_one_range_at_their_distances_and_far_from_both_ends_of_it(
    calls: list[tuple[Any, ...]],
) -> None:
    """The second lies ahead of the first, and within a page that is mapped as a whole."""
    buffers = [buffer(2**38, PAGE + 1), buffer(2**38 - 3 * PAGE + 512, 1024)]
    with mapped(gpu(), buffers) as (at_begin, at_end):
        assert given_back(calls) == []
    sizes = [PAGE + 1, 1024]
    assert [one.size for one in at_begin] == [one.size for one in at_end] == sizes
    first, ahead = (one.handle for one in at_begin)
    assert first - ahead == 3 * PAGE, "as far as the pages of the buffers"
    end = first + 2 * PAGE
    assert [one.handle for one in at_end] == [end - PAGE - 256, ahead + PAGE - 1024]
    ((reserved, *_),) = of(calls, "cuMemAddressReserve")
    assert ahead - RESERVED == 2**30 == RESERVED + reserved - end
    areas = [(first, 2 * PAGE), (ahead, PAGE)]
    assert [tuple(given[:2]) for given in of(calls, "cuMemMap")] == areas
    assert [tuple(given[:2]) for given in of(calls, "cuMemSetAccess")] == areas
    assert [given[0] for given in of(calls, "cuMemCreate")] == [2 * PAGE, PAGE]
    undone = ["cuMemUnmap", "cuMemRelease"]
    assert given_back(calls) == [*undone, *undone, "cuMemAddressFree"]
    assert [tuple(given) for given in of(calls, "cuMemUnmap")] == areas[::-1]
    assert of(calls, "cuMemAddressFree") == [[RESERVED, reserved]]


def test_it_is_given_back_where_the_context_is_lost_and_that_error_is_the_one_that_is_raised(
    calls: list[tuple[Any, ...]],
) -> None:
    def lost() -> None:
        raise RuntimeError("sync")

    def fail() -> None:
        raise ValueError("the kernel's")

    with (
        pytest.raises(ValueError, match="the kernel's"),
        mapped(gpu(lost), [buffer(2**38, 1)]),
    ):
        fail()
    assert len(given_back(calls)) == 3


def test_what_was_taken_before_memory_ran_out_is_given_back(
    calls: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unmapped.driver, "cuMemCreate", lambda *_: (NO_MEMORY, None))
    with (
        pytest.raises(LadderError, match="OUT_OF_MEMORY"),
        mapped(gpu(), [buffer(2**38, 1)]),
    ):
        pass
    assert given_back(calls) == ["cuMemAddressFree"]


@pytest.mark.parametrize("size", [1, 4 * 131 * 61, 4 * 256 * 96, 2**31])
def test_a_buffer_begins_at_the_first_byte_or_ends_at_the_last_as_near_as_its_alignment_lets_it(
    size: int, calls: list[tuple[Any, ...]]
) -> None:
    with mapped(gpu(), [buffer(2**38, size)]) as ((first,), (last,)):
        pass
    begin, length, *_ = of(calls, "cuMemMap")[0]
    assert first.handle == begin
    assert last.handle % 256 == 0
    left = begin + length - last.handle - size
    assert left == 0 if size % 256 == 0 else 0 < left < 256
