"""NVRTC: kernels of one source to a cubin and its facts; a compile error is data, not an exception."""

import functools
import os
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cuda.bindings import nvrtc
from cuda.pathfinder import find_nvidia_header_directory

from ladder.build.cubin import machine_code_digest
from ladder.model import code
from ladder.model.errors import LadderError
from ladder.model.files import digest_json, sha256

_RESOURCES = {
    "registers": r"Used (\d+) registers",
    "shared_bytes_static": r"(\d+) bytes smem",
    "local_bytes": r"(\d+) bytes stack frame",
    "spill_store_bytes": r"(\d+) bytes spill stores",
    "spill_load_bytes": r"(\d+) bytes spill loads",
}
"""Fact -> where ptxas' lines say it; those of a kernel without static shared memory do not name any."""
_IGNORED = re.compile(r"\(?\b(C7508|C7511|C7515)\b\)?")
"""ptxas warnings that setmaxnreg was ignored or wgmma serialised: the kernel is not what its source says."""


class CompileError(LadderError):
    """What the compiler says against a source or an option; other errors are of the set-up."""


@functools.cache
def header_folders() -> tuple[str, ...]:
    """Folders of CUDA's headers (cuda_fp16.h, mma.h), wheels before a toolkit. Raises LadderError without any."""
    # Wheels may lie in more than one site folder, and each holds only some of the headers.
    candidates = [Path(entry) / "nvidia" / "cu13" / "include" for entry in sys.path if entry]
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    toolkits = [find_nvidia_header_directory("cudart"), *(f"{home}/include" for home in homes if home)]
    candidates += [Path(folder) for folder in toolkits if folder]
    folders = list(dict.fromkeys(folder for folder in candidates if folder.is_dir()))
    for needed in ("cuda_fp16.h", "crt/mma.h"):
        if not any((folder / needed).is_file() for folder in folders):
            wheels = "nvidia-cuda-runtime, nvidia-cuda-crt and nvidia-cuda-cccl"
            raise LadderError(f"CUDA's {needed} is missing: install {wheels}, or set CUDA_HOME to a toolkit")
    return tuple(str(path) for folder in folders for path in (folder, folder / "cccl") if path.is_dir())


def _succeeded(result: tuple[Any, ...]) -> Any:
    """The last value of (status, value…) of an nvrtc call. Raises LadderError for a status other than success."""
    if result[0] != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise LadderError(f"NVRTC: {result[0].name}")
    return result[-1]


def nvrtc_version() -> str:
    """Version of the NVRTC library that is loaded, such as 13.0."""
    _, major, minor = nvrtc.nvrtcVersion()
    return f"{major}.{minor}"


def compile_source(
    text: str, name: str, entries: list[str], includes: list[Path], arch: str, options: tuple[str, ...] = ()
) -> tuple[bytes, dict[str, str], str]:
    """(cubin, symbols by name expression, log with ptxas' resource lines). Raises CompileError and MemoryError."""
    # A cached cubin comes without the log, and with the compile time of a cache.
    flags = [f"--gpu-architecture={arch}", "--std=c++17", "--ptxas-options=-v", "--no-cache"]
    flags += [*(f"--include-path={folder}" for folder in [*includes, *header_folders()]), *options]
    program = _succeeded(nvrtc.nvrtcCreateProgram(text.encode(), name.encode(), 0, [], []))
    try:
        for entry in entries:
            _succeeded(nvrtc.nvrtcAddNameExpression(program, entry.encode()))
        (status,) = nvrtc.nvrtcCompileProgram(program, len(flags), [flag.encode() for flag in flags])
        log_bytes = b" " * _succeeded(nvrtc.nvrtcGetProgramLogSize(program))
        _succeeded(nvrtc.nvrtcGetProgramLog(program, log_bytes))
        # Where ptxas fails, its part of the log is joined by a NUL.
        log = log_bytes.rstrip(b"\0 \n").replace(b"\0", b"").decode(errors="replace")
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            if "out of memory" in log or status == nvrtc.nvrtcResult.NVRTC_ERROR_OUT_OF_MEMORY:
                raise MemoryError("the compiler ran out of memory")
            raise CompileError(log or status.name)
        cubin = b" " * _succeeded(nvrtc.nvrtcGetCUBINSize(program))
        _succeeded(nvrtc.nvrtcGetCUBIN(program, cubin))
        names = [_succeeded(nvrtc.nvrtcGetLoweredName(program, entry.encode())) for entry in entries]
        return cubin, {entry: name.decode() for entry, name in zip(entries, names, strict=True)}, log
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def refuse_options(arch: str, options: Sequence[str]) -> None:
    """Raises LadderError for an architecture or an option that this NVRTC does not know."""
    try:
        compile_source("__global__ void empty() {}", "empty.cu", ["empty"], [], arch, tuple(options))
    except CompileError as error:
        raise LadderError(f"compile: NVRTC {nvrtc_version()} takes no {[arch, *options]}: {error}") from error


@dataclass(frozen=True)
class Request:
    """What to compile: the kernels `entries` (name expressions) of one source, for an architecture."""

    source: Path
    source_sha256: str
    include: Path
    entries: tuple[str, ...]
    arch: str
    options: tuple[str, ...] = ()

    @functools.cached_property
    def key(self) -> str:
        """Digest of all that the answer depends on."""
        given = [self.entries, self.arch, self.options, self.source_sha256]
        return digest_json([*given, nvrtc_version(), code.digest("ladder.build.nvrtc")])[:32]

    def compile(self) -> tuple[bytes, dict[str, Any]]:
        """(cubin, facts); no bytes if it does not compile. Raises LadderError without CUDA's headers, MemoryError."""
        facts: dict[str, Any] = {"status": "ok", "reason": "", "nvrtc": nvrtc_version()}
        facts |= {"source_sha256": self.source_sha256, "options": self.options}
        named = (self.source.read_text(encoding="utf-8"), self.source.name, list(self.entries))
        folders, start = [self.source.parent, self.include], time.perf_counter()
        try:
            cubin, facts["symbols"], log = compile_source(*named, folders, self.arch, self.options)
            if ignored := _IGNORED.search(log):
                why = "the compiler did not do what the source says"
                raise CompileError(f"{ignored[1]}: {why}: {log[:2000]}")
        except CompileError as error:
            cubin = b""
            facts |= {"status": "compile_error", "reason": str(error)}
        facts["compile_s"] = round(time.perf_counter() - start, 3)
        if cubin:
            found = {fact: re.search(pattern, log) for fact, pattern in _RESOURCES.items()}
            if any(one is None for fact, one in found.items() if fact != "shared_bytes_static"):
                raise LadderError(f"the compiler's log has no resource lines: {log[:400]}")
            facts |= {fact: int(one[1]) if one else 0 for fact, one in found.items()}
            facts |= {"cubin_sha256": sha256(cubin), "machine_code": machine_code_digest(cubin)}
        return cubin, facts
