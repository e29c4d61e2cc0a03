"""NVRTC: one variant to a cubin and its facts; a compile error is data, not an exception."""

from __future__ import annotations

import functools
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

from cuda.bindings import nvrtc
from cuda.pathfinder import locate_nvidia_header_directory

from ladder.build.machine_code import machine_code_digest
from ladder.build.occupancy import occupancy, sm_limits
from ladder.build.sass import instruction_counts, sass
from ladder.build.sources import include_closure
from ladder.model.arch import arch_number
from ladder.model.errors import LadderError
from ladder.model.files import digest_files, sha256
from ladder.model.kernel import Variant

_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_IGNORED = re.compile(r"\(?\b(C7508|C7511|C7515)\b\)?")
"""ptxas warnings that setmaxnreg was ignored or wgmma serialised: the kernel is not what its source says."""


@functools.cache
def header_folders() -> tuple[str, ...]:
    """Folders of CUDA's own headers (cuda_fp16.h, mma.h): wheels first, then a toolkit.

    Raises LadderError where none is found.
    """
    # Wheels may lie in more than one site folder, and each holds only some of the headers.
    candidates = [Path(entry) / "nvidia" / "cu13" / "include" for entry in sys.path if entry]
    if found := locate_nvidia_header_directory("cudart"):
        candidates.append(Path(found.abs_path))
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if home := os.environ.get(variable):
            candidates.append(Path(home) / "include")
    candidates.append(Path("/usr/local/cuda/include"))
    folders = list(dict.fromkeys(folder for folder in candidates if folder.is_dir()))
    for needed in ("cuda_fp16.h", "crt/mma.h"):
        if not any((folder / needed).is_file() for folder in folders):
            raise LadderError(
                f"CUDA's header {needed} was not found: install nvidia-cuda-runtime, nvidia-cuda-crt and "
                "nvidia-cuda-cccl, or set CUDA_HOME to a toolkit"
            )
    with_cccl = [path for folder in folders for path in (folder, folder / "cccl") if path.is_dir()]
    return tuple(str(path) for path in with_cccl)


def _succeeded(result: tuple[Any, ...]) -> Any:
    """Unpack (status, value…) of an nvrtc call. Raises LadderError for a status other than success."""
    status, *values = result
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise LadderError(f"NVRTC: {status.name}")
    return values[0] if len(values) == 1 else tuple(values)


def nvrtc_version() -> str:
    """Version of the NVRTC library that is loaded, such as 13.0."""
    major, minor = _succeeded(nvrtc.nvrtcVersion())
    return f"{major}.{minor}"


def compile_source(
    text: str, name: str, entries: list[str], includes: list[Path], arch: str, options: tuple[str, ...] = ()
) -> tuple[bytes, dict[str, str], str]:
    """Compile CUDA C++ to a cubin that holds `entries` (name expressions).

    Returns (cubin, symbol of each entry, log with ptxas' resource lines).
    Raises LadderError with the compiler's messages.
    """
    # A cached cubin comes without the log, and would make compile times a fiction.
    flags = [f"--gpu-architecture={arch}", "--std=c++17", "--ptxas-options=-v", "--no-cache"]
    flags += [f"--include-path={folder}" for folder in [*includes, *header_folders()]]
    flags += options
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
            raise LadderError(log or status.name)
        cubin = b" " * _succeeded(nvrtc.nvrtcGetCUBINSize(program))
        _succeeded(nvrtc.nvrtcGetCUBIN(program, cubin))
        symbols = {
            entry: _succeeded(nvrtc.nvrtcGetLoweredName(program, entry.encode())).decode()
            for entry in entries
        }
        return cubin, symbols, log
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _resources(log: str) -> dict[str, int]:
    """Registers, static shared memory and spills from ptxas' lines; a cubin here holds one kernel."""
    used, shared, frame = _USED.search(log), _SHARED.search(log), _FRAME.search(log)
    if used is None or frame is None:
        raise LadderError(f"the compiler's log has no resource lines: {log[:400]}")
    return {
        "registers": int(used[1]),
        "shared_bytes_static": int(shared[1]) if shared else 0,
        "local_bytes": int(frame[1]),
        "spill_store_bytes": int(frame[2]),
        "spill_load_bytes": int(frame[3]),
    }


def _block_facts(variant: Variant, arch: str, facts: dict[str, Any]) -> dict[str, Any]:
    """Threads, dynamic shared bytes and theoretical occupancy; launch bounds do not depend on the size."""
    size = dict.fromkeys(variant.kernel.problem.size_fields, 4096)
    geometry = variant.geometry(size)
    x, y, z = geometry.block
    found: dict[str, Any] = {
        "threads_per_block": x * y * z,
        "shared_bytes_dynamic": geometry.shared_bytes,
    }
    limits = sm_limits(arch_number(arch))
    if limits is not None:
        shared = facts["shared_bytes_static"] + geometry.shared_bytes
        held = occupancy(limits, x * y * z, facts["registers"], shared)
        found |= {
            "blocks_per_sm": held.blocks_per_sm,
            "occupancy": held.occupancy,
            "occupancy_limit": held.limit,
        }
    return found


def compile_variant(
    variant: Variant, include: Path, arch: str, options: tuple[str, ...] = ()
) -> tuple[bytes, dict[str, Any]]:
    """Compile one variant. Returns (cubin, facts); on a compile error the cubin is empty and the facts say why."""
    source = variant.kernel.source
    facts: dict[str, Any] = {
        "variant": variant.id,
        "kernel": variant.kernel.name,
        "params": dict(variant.params),
        "dtype": variant.dtype,
        "layout": variant.layout,
        "arch": arch,
        "entry": variant.entry,
        "status": "ok",
        "reason": "",
        "nvrtc": nvrtc_version(),
    }
    start = time.perf_counter()
    try:
        files = include_closure(source, include)
        facts["source_sha256"] = digest_files(files, Path(os.path.commonpath([include, source.parent])))
        text = source.read_text(encoding="utf-8")
        cubin, _, log = compile_source(
            text, source.name, [variant.entry], [source.parent, include], arch, options
        )
        facts["compile_s"] = round(time.perf_counter() - start, 3)
        if ignored := _IGNORED.search(log):
            raise LadderError(f"{ignored[1]}: the compiler did not do what the source asks: {log[:2000]}")
        facts |= _resources(log)
        if facts["spill_store_bytes"] and variant.kernel.spills == "never":
            raise LadderError(
                f"spills {facts['spill_store_bytes']} bytes of registers, and {variant.kernel.path.name} "
                "does not say `spills: allowed`"
            )
    except LadderError as error:
        facts |= {"status": "compile_error", "reason": str(error)}
        facts.setdefault("compile_s", round(time.perf_counter() - start, 3))
        return b"", facts
    facts |= _block_facts(variant, arch, facts)
    facts |= instruction_counts(sass(cubin))
    facts["cubin_sha256"] = sha256(cubin)
    facts["machine_code"] = machine_code_digest(cubin)
    return cubin, facts


def compile_harness(
    source: Path, entries: list[str], includes: list[Path], arch: str
) -> tuple[dict[str, str], str, bytes]:
    """(symbols by entry, digest of the machine code, cubin) of the kernels in `source`. Raises LadderError."""
    text = source.read_text(encoding="utf-8")
    cubin, symbols, _ = compile_source(text, source.name, entries, includes, arch)
    return symbols, machine_code_digest(cubin), cubin
