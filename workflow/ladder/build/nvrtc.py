"""NVRTC: one variant to a cubin and its facts; a compile error is data, not an exception."""

import functools
import math
import os
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cuda.bindings import nvrtc
from cuda.pathfinder import locate_nvidia_header_directory

from ladder.build.cubin import instruction_counts, machine_code_digest, sass
from ladder.build.occupancy import occupancy, sm_limits
from ladder.build.sources import source_digest
from ladder.model.errors import LadderError
from ladder.model.files import sha256
from ladder.model.kernel import Variant, arch_number

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


@functools.cache
def header_folders() -> tuple[str, ...]:
    """Folders of CUDA's headers (cuda_fp16.h, mma.h), wheels before a toolkit. Raises LadderError without any."""
    # Wheels may lie in more than one site folder, and each holds only some of the headers.
    candidates = [Path(entry) / "nvidia" / "cu13" / "include" for entry in sys.path if entry]
    found = locate_nvidia_header_directory("cudart")
    candidates += [Path(found.abs_path)] if found else []
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    candidates += [Path(home) / "include" for home in homes if home]
    folders = list(dict.fromkeys(folder for folder in candidates if folder.is_dir()))
    for needed in ("cuda_fp16.h", "crt/mma.h"):
        if not any((folder / needed).is_file() for folder in folders):
            wheels = "nvidia-cuda-runtime, nvidia-cuda-crt and nvidia-cuda-cccl"
            raise LadderError(f"CUDA's {needed} is missing: install {wheels}, or set CUDA_HOME to a toolkit")
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
    """Compile CUDA C++ to (cubin, symbol of each entry, log with ptxas' resource lines).

    `entries` are name expressions of kernels. Raises LadderError with the compiler's messages.
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
        names = [_succeeded(nvrtc.nvrtcGetLoweredName(program, entry.encode())) for entry in entries]
        return cubin, {entry: name.decode() for entry, name in zip(entries, names, strict=True)}, log
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _resources(log: str) -> dict[str, int]:
    """Registers, static shared memory and spills from ptxas' lines; a cubin here holds one kernel."""
    found = {fact: re.search(pattern, log) for fact, pattern in _RESOURCES.items()}
    if any(one is None for fact, one in found.items() if fact != "shared_bytes_static"):
        raise LadderError(f"the compiler's log has no resource lines: {log[:400]}")
    return {fact: int(one[1]) if one else 0 for fact, one in found.items()}


def _block_facts(variant: Variant, arch: str, facts: dict[str, Any]) -> dict[str, Any]:
    """Threads, dynamic shared bytes and theoretical occupancy; launch bounds do not depend on the size."""
    geometry = variant.geometry(dict.fromkeys(variant.kernel.problem.size_fields, 4096))
    threads, dynamic = math.prod(geometry.block), geometry.shared_bytes
    found = {"threads_per_block": threads, "shared_bytes_dynamic": dynamic}
    limits = sm_limits(arch_number(arch))
    if limits is None:
        return found
    held = occupancy(limits, threads, facts["registers"], facts["shared_bytes_static"] + dynamic)
    return found | asdict(held)


def _asked(variant: Variant, arch: str, options: Sequence[str]) -> dict[str, Any]:
    facts = {"variant": variant.id, "kernel": variant.kernel.name, "params": dict(variant.params)}
    facts |= {"dtype": variant.dtype, "layout": variant.layout, "arch": arch, "entry": variant.entry}
    return facts | {"nvrtc": nvrtc_version(), "options": list(options)}


def made_from(variant: Variant, include: Path, arch: str, options: Sequence[str]) -> dict[str, Any]:
    """What a cubin depends on, as its facts say it. Raises LadderError for a header that is missing."""
    return _asked(variant, arch, options) | {"source_sha256": source_digest(variant.kernel.source, include)}


def compile_variant(
    variant: Variant, include: Path, arch: str, options: tuple[str, ...] = ()
) -> tuple[bytes, dict[str, Any]]:
    """Compile one variant. Returns (cubin, facts); on a compile error the cubin is empty and the facts say why."""
    source, facts = variant.kernel.source, _asked(variant, arch, options) | {"status": "ok", "reason": ""}
    start = time.perf_counter()
    try:
        facts["source_sha256"] = source_digest(source, include)
        text, includes = source.read_text(encoding="utf-8"), [source.parent, include]
        cubin, _, log = compile_source(text, source.name, [variant.entry], includes, arch, options)
        facts["compile_s"] = round(time.perf_counter() - start, 3)
        if ignored := _IGNORED.search(log):
            raise LadderError(f"{ignored[1]}: the compiler did not do what the source asks: {log[:2000]}")
        facts |= _resources(log)
        if facts["spill_store_bytes"] and variant.kernel.spills == "never":
            why = f"{variant.kernel.path.name} does not say `spills: allowed`"
            raise LadderError(f"spills {facts['spill_store_bytes']} bytes of registers, and {why}")
    except LadderError as error:
        facts |= {"status": "compile_error", "reason": str(error)}
        facts.setdefault("compile_s", round(time.perf_counter() - start, 3))
        return b"", facts
    facts |= _block_facts(variant, arch, facts)
    facts |= instruction_counts(sass(cubin))
    return cubin, facts | {"cubin_sha256": sha256(cubin), "machine_code": machine_code_digest(cubin)}


def compile_harness(
    source: Path, entries: list[str], include: Path, arch: str
) -> tuple[dict[str, Any], bytes]:
    """(symbols by entry and digests, cubin) of the kernels in `source`. Raises LadderError."""
    cubin, symbols, _ = compile_source(source.read_text("utf-8"), source.name, entries, [include], arch)
    digests = {"machine_code": machine_code_digest(cubin), "source_sha256": source_digest(source, include)}
    return {"symbols": symbols, **digests}, cubin
