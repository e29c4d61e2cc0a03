"""The cache of compiled kernels: what is requested twice is compiled once, and one bad source harms no other."""

import os
import re
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ladder.build import cubin
from ladder.build.cache import Cache
from ladder.build.nvrtc import Request
from ladder.build.sources import source_digest, source_files
from ladder.model.errors import LadderError

GOOD = "template <int k> __global__ void kernel(float* out) { out[threadIdx.x] = k; }"
ENDLESS = """
template <int depth, long m>
struct Tree { static constexpr long value = Tree<depth - 1, 2 * m>::value + Tree<depth - 1, 2 * m + 1>::value; };
template <long m> struct Tree<0, m> { static constexpr long value = m; };
template <int k> __global__ void kernel(float* out) { out[threadIdx.x] = Tree<30, k>::value; }
"""
"""A thousand million instantiations."""


class Noted(Request):
    """A request that writes its source's name down in the process that compiles, and ends one for `crash.cu`."""

    def compile(self) -> tuple[bytes, dict[str, Any]]:
        with (self.source.parent / "log").open("a") as file:
            file.write(f"{self.source.stem}\n")
        if self.source.stem == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        return super().compile()


class Saved(Request):
    """A request whose files are saved by another program when its compiler begins, and by an undo when it ends."""

    def compile(self) -> tuple[bytes, dict[str, Any]]:
        other, undo = (self.source.parent / name for name in ("other", "undo"))
        files = source_files(self.source, *self.includes)
        for path in files:
            if path.suffix == ".cuh" or len(files) == 1:
                before = path.read_text()
                path.write_text(other.read_text())
                try:
                    return super().compile()
                finally:
                    if undo.exists():
                        path.write_text(before)
        raise AssertionError


@pytest.fixture
def request_of(tmp_path: Path) -> Any:
    def request(name: str, text: str = GOOD, k: int = 1) -> Request:
        source = tmp_path / f"{name}.cu"
        source.write_text(text)
        return Noted(
            source,
            source_digest(source, tmp_path),
            (tmp_path,),
            (f"kernel<{k}>",),
            "sm_90a",
        )

    return request


@pytest.fixture
def compiled(tmp_path: Path) -> Any:
    """Names of the sources that were handed to the compiler, in any process."""
    log = tmp_path / "log"
    log.touch()
    return lambda: sorted(log.read_text().split())


def test_what_was_compiled_is_not_compiled_again(
    tmp_path: Path, request_of: Any, compiled: Any
) -> None:
    cache = Cache(tmp_path / "cache")
    requests = [request_of("a"), request_of("b", k=2), request_of("a")]
    found = cache.fill(requests, 1, 60)
    assert {facts["status"] for facts in found.values()} == {"ok"}
    assert compiled() == ["a", "b"]
    assert (
        (cache.folder / f"{requests[0].key}.cubin").read_bytes().startswith(b"\x7fELF")
    )
    assert Cache(tmp_path / "cache").fill(requests, 1, 60) == found
    assert compiled() == ["a", "b"]


def test_what_is_published_of_a_kernel_is_not_compiled_and_of_a_changed_one_it_is(
    tmp_path: Path, request_of: Any, compiled: Any
) -> None:
    published = {
        request_of(name).key: {"status": "ok", "cubin_sha256": "of another host"}
        for name in "ab"
    }
    cache = Cache(tmp_path / "cache", published)
    requests = [request_of("a"), request_of("b", GOOD.replace("= k", "= k + 1"))]
    found = cache.fill(requests, 1, 60)
    assert compiled() == ["b"]
    assert found[requests[0].key] == published[requests[0].key]
    assert len(found[requests[1].key]["cubin_sha256"]) == 64
    assert [path.stem for path in cache.folder.glob("*.cubin")] == [requests[1].key]


def test_the_key_follows_source_entry_architecture_and_options(request_of: Any) -> None:
    one = request_of("a")
    keys = [
        one.key,
        request_of("a", k=2).key,
        replace(one, arch="sm_80").key,
        replace(one, options=("--use_fast_math",)).key,
        request_of("a", GOOD + "// more").key,
    ]
    assert len(set(keys)) == 5
    assert request_of("a").key == one.key


FOUR = "__device__ const int four = 4;\n"
INCLUDED = '#include "four.cuh"\n' + GOOD.replace("= k", "= k + four")


@pytest.mark.parametrize("undo", [True, False])
@pytest.mark.parametrize(
    ("text", "other"),
    [
        (GOOD, GOOD.replace("= k", "= k + 7")),
        (GOOD, "half of a file"),
        (INCLUDED, FOUR.replace("4;", "7;")),
    ],
)
def test_code_that_was_saved_after_the_digest_is_never_kept_under_it(
    text: str, other: str, undo: bool, tmp_path: Path, request_of: Any
) -> None:
    """Nor is an error that it has. Others' answers are, and the right code the next time, once the text is back."""
    source, cache = tmp_path / "own.cu", Cache(tmp_path / "cache")
    source.write_text(text)
    (tmp_path / "four.cuh").write_text(FOUR)
    (tmp_path / "other").write_text(other)
    if undo:
        (tmp_path / "undo").touch()
    given = (source, source_digest(source, tmp_path), (tmp_path,), ("kernel<1>",))
    with pytest.raises(
        LadderError, match=r"own\.cu: it or a file that it includes was saved"
    ):
        cache.fill([Saved(*given, "sm_90a"), request_of("another")], 1, 60)
    assert [path.stem for path in cache.folder.glob("*.json")] == [
        request_of("another").key
    ]
    source.write_text(text)
    (tmp_path / "four.cuh").write_text(FOUR)
    request = Request(*given, "sm_90a")
    (facts,) = cache.fill([request], 1, 60).values()
    assert facts["status"] == "ok"
    assert facts["cubin_sha256"] == request.compile()[1]["cubin_sha256"]


def test_a_source_that_does_not_compile_is_an_answer(
    tmp_path: Path, request_of: Any, compiled: Any
) -> None:
    cache, bad = (
        Cache(tmp_path / "cache"),
        request_of("bad", "template <int k> __global__ void kernel() { nothing; }"),
    )
    for _ in range(2):
        (facts,) = cache.fill([bad], 1, 60).values()
        assert facts["status"] == "compile_error"
        assert 'identifier "nothing" is undefined' in facts["reason"]
    assert compiled() == ["bad"]


@pytest.mark.parametrize(
    ("name", "text", "seconds", "reason"),
    [
        ("crash", GOOD, 60, "the compiler crashed"),
        pytest.param(
            "endless",
            ENDLESS,
            5,
            "the compiler took longer than 5 s (compile.timeout_s)",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_compiler_that_crashes_or_does_not_end_harms_no_other(
    name: str, text: str, seconds: int, reason: str, tmp_path: Path, request_of: Any
) -> None:
    cache, bad = Cache(tmp_path / "cache"), request_of(name, text)
    begun = time.monotonic()
    good = [request_of(f"good{k}", k=k) for k in range(3)]
    found = cache.fill([bad, *good], 2, seconds)
    assert time.monotonic() - begun < 60
    assert reason in found[bad.key]["reason"]
    statuses = [found[one.key]["status"] for one in (bad, *good)]
    assert statuses == ["compile_error", "ok", "ok", "ok"]
    if name == "endless":
        assert cache.facts(bad) is None, "it is compiled again the next time"


def test_a_fault_of_the_setup_stops_the_job_and_is_not_kept(
    tmp_path: Path, request_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package that is installed later would else never be used."""
    cache, good = Cache(tmp_path / "cache"), request_of("good")

    with monkeypatch.context() as without:
        without.setattr(cubin, "find_nvidia_binary_utility", lambda name: None)
        without.setattr("shutil.which", lambda name: None)
        with pytest.raises(LadderError, match="no nvdisasm was found"):
            cache.fill([good], 1, 60)
    assert cache.facts(good) is None, "it is compiled again the next time"


COPY = """
template <int k> __global__ void kernel(const float* in, float* out) {
  __shared__ alignas(128) float tile[1024];
  __shared__ alignas(8) unsigned long long barrier;
  const unsigned to = __cvta_generic_to_shared(tile), at = __cvta_generic_to_shared(&barrier);
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               : : "r"(to), "l"(in), "r"(4096), "r"(at) : "memory");
  out[threadIdx.x] = tile[threadIdx.x];
}
"""
LUT = "constexpr float lut[4] = {1, 2, 3, 4};\n" + GOOD.replace(
    "= k;", "= lut[int(out[k]) & 3];"
)


def test_a_bulk_copy_is_no_state_also_where_the_driver_has_a_function_for_it(
    tmp_path: Path, request_of: Any
) -> None:
    request = replace(request_of("copies", COPY), arch="sm_120a")
    (facts,) = Cache(tmp_path / "cache").fill([request], 1, 60).values()
    assert facts["status"] == "ok", facts["reason"]
    cubin = (tmp_path / "cache" / f"{request.key}.cubin").read_bytes()
    assert b"__cuda_syscall_cp_async_bulk" in cubin


def test_state_is_named_with_what_is_accepted_in_its_place(
    tmp_path: Path, request_of: Any
) -> None:
    cache = Cache(tmp_path / "cache")
    asked = {
        "read": request_of("read", LUT),
        "write": request_of(
            "write",
            "__device__ " + LUT.replace("constexpr", "").replace("= lut", "= ++lut"),
        ),
        "heap": request_of(
            "heap",
            "template <int k> __global__ void kernel(int** out) { *out = new int[k]; }",
        ),
    }
    found = cache.fill([*asked.values()], 1, 60)
    reasons = {name: found[one.key]["reason"] for name, one in asked.items()}
    accepted = (
        "__constant__ memory, an array inside the kernel, or a table that is only read"
    )
    assert reasons == {
        "read": "",
        "write": f"uses what outlives a launch: lut; in place of a global variable accepted: {accepted}",
        "heap": "uses what outlives a launch: malloc",
    }
    assert found[asked["read"].key]["tables"] == ["lut"]


@pytest.mark.parametrize("place", ["/proc/nope", "file"])
def test_a_folder_that_cannot_be_written_is_said_before_anything_is_compiled(
    place: str, tmp_path: Path, request_of: Any, compiled: Callable[[], list[str]]
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(
        LadderError,
        match=r"compile.cache: '.*' is not accepted; no file can be written there \(",
    ):
        Cache(tmp_path / place).fill([request_of("a")], 1, 60)
    assert compiled() == []


def test_the_assembler_that_runs_out_of_memory_is_quoted_and_no_file(
    tmp_path: Path, request_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ptxas then writes to where the compiler lists the files that it opens."""
    monkeypatch.setattr("ladder.build.cache._MEMORY_BYTES", 2 * 2**30)
    big = "__constant__ char big[10000000000];\n" + GOOD.replace(
        "= k;", "= big[int(out[k])];"
    )
    cache, request = Cache(tmp_path / "cache"), request_of("big", big)
    facts = cache.fill([request], 1, 100)[request.key]
    assert facts["status"] == "compile_error"
    assert re.fullmatch(
        r"the compiler ran out of memory: ptxas fatal +: Memory allocation failure \(of 2 GiB\)",
        facts["reason"],
    )
    assert cache.facts(request) is None, "it is compiled again where there is more"
