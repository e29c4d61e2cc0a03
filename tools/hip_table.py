"""The FP32 ladder and the stencils, compiled for AMD GPUs without one, as a table of what the compiler makes of them.

`PYTHONPATH=workflow python tools/hip_table.py` writes docs/texts/hip.csv and the tables of docs/texts/hip.md. The
compiler is Debian's, which apt-get downloads; it is unpacked into .cache/hip, and nothing is installed. gfx908 is the
MI100 of `hip-gemm`, gfx90a the MI200.
"""

import csv
import io
import math
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amd_isa import main_loop, resources, waits
from ladder.catalogue.kernels import load_kernels
from ladder.catalogue.sweeps import load_sweeps
from ladder.model.errors import LadderError
from ladder.model.kernel import Variant

ROOT = Path(__file__).resolve().parents[1]
TABLE, PAGE = ROOT / "docs/texts/hip.csv", ROOT / "docs/texts/hip.md"
BEGIN, END = "<!-- written by `python tools/hip_table.py` -->\n", "<!-- until here -->"
ARCHITECTURES = ("gfx908", "gfx90a")
PACKAGES = [
    "clang-15",
    "libclang-common-15-dev",
    "libclang-cpp15",
    "libllvm15",
    "rocm-device-libs",
    "libamdhip64-dev",
]
APT_OPTIONS = ["-o", "Acquire::http::Timeout=60", "-o", "Acquire::https::Timeout=60"]

SWEEPS: Mapping[str, Mapping[str, set[Any]]] = {
    "fp32_ladder": {},
    "fp32_files": {},
    "fp32_buffering": {},
    "fp32_tiles": {
        "bm": {64},
        "bn": {64},
        "bk": {16},
        "tm": {4},
        "tn": {4},
        "pad": {4},
    },
    "fp32_lane_maps": {
        "lane_map": {"rows_8x8", "rows_4x16", "zigzag_8x4"},
        "split": {"adjacent"},
    },
    "stencil_reach": {"radius": {1, 16}, "coarsen": {1, 8}},
    "stencil_coarsening": {"coarsen": {1, 8}},
    "stencil_tiles": {"radius": {16}},
    "stencil_best": {"radius": {16}, "outputs": {4}},
}
"""Sweep -> parameters of those variants that are compiled."""
UNBOUNDED = {
    "10 quadrants",
    "12 double-buffered tiles",
    "13 double-buffered fragments",
    "fp32_tiles",
}
"""Rungs, and the sweep of the text's own tile, that are compiled without launch bounds as well."""
SHOWN = {
    "vgprs": "VGPRs",
    "agprs": "AGPRs",
    "vgpr_spills": "VGPRs spilled",
    "scratch_bytes": "scratch bytes",
    "lds_bytes": "LDS bytes",
    "waves_per_simd": "waves a SIMD",
    "loop_instructions": "instructions of the loop",
    "loop_fmas": "FMAs of the loop",
    "fmas_before_wait": "FMAs before the wait",
    "wait_ahead_of": "it stands ahead of",
}
"""Columns of the page's tables."""
COPY_ASYNC = {
    "7_async_ring",
    "7b_wide_tile",
    "7c_snake",
    "7d_deep_ring",
    "gemm_short_tiles",
}
"""Kernels by cp.async that have no parameter `loader`."""


@dataclass(frozen=True)
class Job:
    """A variant to compile for an architecture, with the first sweep and rung that have it."""

    arch: str
    sweep: str
    rung: str
    variant: Variant
    bounds: bool = True

    @property
    def ptx(self) -> str:
        """The PTX without which the kernel is nothing; "" where there is none."""
        if any(argument.tensor_map for argument in self.variant.kernel.arguments):
            return "TMA and mbarriers"
        by_cp_async = (
            self.variant.params.get("loader") == "async"
            or self.variant.kernel.name in COPY_ASYNC
        )
        return "cp.async" if by_cp_async else ""


def selected() -> list[Job]:
    """Jobs of all variants that SWEEPS names, those that are PTX included."""
    jobs: dict[str, list[Job]] = {}
    sweeps = load_sweeps(
        ROOT / "config/sweeps", load_kernels(ROOT / "kernels"), [*SWEEPS]
    )
    for name, given in SWEEPS.items():
        for entry in sweeps[name].entries:
            variant, dtype = entry.variant, sweeps[name].dtypes[0]
            if variant.dtype == dtype and all(
                variant.params[key] in given[key] for key in given
            ):
                bounds = [True, False] if UNBOUNDED & {name, entry.rung} else [True]
                both = [
                    Job(arch, name, entry.rung, variant, known)
                    for known in bounds
                    for arch in ARCHITECTURES
                ]
                jobs.setdefault(variant.id, both)
    return [job for of_variant in jobs.values() for job in of_variant]


def unpack(cache: Path = ROOT / ".cache") -> Path:
    """The folder of the unpacked compiler. Raises LadderError where there is none for this host."""
    if (cache / "hip").is_dir():
        return cache / "hip"
    if not shutil.which("apt-get") or not shutil.which("dpkg"):
        raise LadderError(
            "no apt-get: the compiler for AMD GPUs comes as packages of Debian 12"
        )
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as name:
        command = ["apt-get", *APT_OPTIONS, "download", *PACKAGES]
        done = subprocess.run(
            command, cwd=name, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            why = done.stderr.strip()[-400:]
            raise LadderError(
                f"apt-get does not download the compiler for AMD GPUs, which Debian 12 has: {why}"
            )
        root, packages = Path(name) / "root", sorted(Path(name).glob("*.deb"))
        for package in packages:
            subprocess.run(["dpkg", "-x", package, root], check=True)
        versions = [
            re.sub(r"(.+)_(.+)_.+", r"\1 \2", package.stem) for package in packages
        ]
        (root / "versions").write_text(
            "\n".join(versions).replace("%3a", ":") + "\n", encoding="utf-8"
        )
        assembly(
            root,
            "gfx908",
            "__global__ void kernel() {}\n",
            "the compiler for AMD GPUs does not run here",
        )
        try:
            root.rename(cache / "hip")
        except OSError:  # another process may have been faster
            if not (cache / "hip").is_dir():
                raise
    return cache / "hip"


def compiler_of(root: Path) -> str:
    """Package and version of the compiler, the headers and the device library."""
    versions = (root / "versions").read_text(encoding="utf-8").splitlines()
    deciding = ("clang", "libamdhip64", "rocm")
    return "; ".join(version for version in versions if version.startswith(deciding))


def assembly(root: Path, arch: str, source: str, failure: str, *options: str) -> str:
    """What Clang makes of a source. Raises LadderError, which begins with `failure`."""
    library = root / "usr/lib/x86_64-linux-gnu"
    command: list[str | Path] = [
        root / "usr/lib/llvm-15/bin/clang++",
        "-x",
        "hip",
        "--cuda-device-only",
    ]
    command += [
        f"--offload-arch={arch}",
        "-std=c++17",
        "-O3",
        "-nogpuinc",
        "-D__HIP_PLATFORM_AMD__",
        *options,
    ]
    command += [
        f"--rocm-device-lib-path={library}/amdgcn/bitcode",
        "-isystem",
        root / "usr/include",
    ]
    command += [
        "-include",
        ROOT / "tools/hip_shims.h",
        f"-I{ROOT / 'kernels/include'}",
        "-S",
        "-o",
        "-",
        "-",
    ]
    environment = os.environ | {
        "LD_LIBRARY_PATH": f"{root}/usr/lib/llvm-15/lib:{library}"
    }
    done = subprocess.run(
        command,
        input=source,
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    if done.returncode != 0:
        raise LadderError(f"{failure}: {done.stderr.strip()[:800]}")
    return done.stdout


def compiled(root: Path, job: Job) -> str:
    """The assembly of a variant. Raises LadderError where it does not compile, or has PTX."""
    entry, options = (
        " ".join(job.variant.entry.split()),
        [] if job.bounds else ["-DWITHOUT_LAUNCH_BOUNDS"],
    )
    source = f'#include "{job.variant.kernel.source}"\n[[gnu::used]] static __device__ const auto use = &{entry};\n'
    isa = assembly(
        root,
        job.arch,
        source,
        f"{job.variant.id}: does not compile for {job.arch}",
        *options,
    )
    if "; PTX" in isa:
        raise LadderError(
            f"{job.variant.id}: has PTX, which {job.arch} does not execute"
        )
    return isa


def row_of(root: Path, job: Job) -> dict[str, Any]:
    """A row of the table; without values where the kernel is PTX, and those of a loop where none has FMAs."""
    row = {
        "arch": job.arch,
        "sweep": job.sweep,
        "rung": job.rung,
        "variant": job.variant.id,
    }
    row |= {"launch_bounds": "yes" if job.bounds else "no", "left_out": job.ptx}
    if job.ptx:
        return row
    isa, size = (
        compiled(root, job),
        dict.fromkeys(job.variant.kernel.problem.size_fields, 4096),
    )
    launch, path = job.variant.geometry(size), main_loop(isa)
    loop = waits(path) if path else {}
    return row | resources(isa, math.prod(launch.block), launch.shared_bytes) | loop


def table(root: Path) -> str:
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        rows = [*pool.map(lambda job: row_of(root, job), selected())]
    text, columns = io.StringIO(), [*max(rows, key=len), "compiler"]
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(row | {"compiler": compiler_of(root)} for row in rows)
    return text.getvalue()


def markdown(rows: Sequence[Mapping[str, str]], arch: str) -> str:
    """The rungs of the ladder and the text's tile on one architecture, as a table of the page."""
    lines = [["rung", *SHOWN.values()], ["---", *["--:"] * len(SHOWN)]]
    for row in rows:
        if (
            row["arch"] == arch
            and row["sweep"] in ("fp32_ladder", "fp32_tiles")
            and not row["left_out"]
        ):
            rung = row["rung"] or "the text's tile, direct"
            rung += ", no launch bounds" if row["launch_bounds"] == "no" else ""
            lines.append([rung, *(row[name] for name in SHOWN)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def page_part(text: str) -> str:
    """What the page shows of the table."""
    rows = [*csv.DictReader(text.splitlines())]
    parts = [
        f"Compiler: {rows[0]['compiler']}.",
        "### gfx908, the MI100",
        markdown(rows, "gfx908"),
    ]
    parts += [
        "### gfx90a, the MI200",
        markdown(rows, "gfx90a"),
        "### Left out: they consist of PTX",
    ]
    reasons = {row["rung"]: row["left_out"] for row in rows if row["left_out"]}
    for reason in dict.fromkeys(reasons.values()):
        parts.append(
            f"{reason}: {'; '.join(rung for rung in reasons if reasons[rung] == reason)}."
        )
    return "\n" + "\n\n".join(parts) + "\n\n"


if __name__ == "__main__":
    made = table(unpack())
    TABLE.write_text(made, encoding="utf-8")
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    PAGE.write_text(
        before + BEGIN + page_part(made) + END + rest.split(END, 1)[1], encoding="utf-8"
    )
