"""The configuration of a run."""

from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat

from ladder.model.document import (
    AN_ARCH,
    ARCH,
    Document,
    Share,
    Some,
    matching,
    saying,
)

Pairs = Annotated[int, Field(ge=12, le=1_000_000)]
UpTo1000 = Annotated[int, Field(ge=1, le=1000)]
_OTHER_USES = (
    "time|create-pch|pch|pch-dir|use-pch|fdevice-time-trace|gpu-architecture|arch|device-debug|G|dlink-time-opt|dlto|"
    "gen-opt-lto|optix-ir|fdevice-syntax-only|relocatable-device-code|rdc|device-c|dc|device-w|dw|"
    "extensible-whole-program|ewp"
)
Option = Annotated[
    str,
    *matching(
        rf"-(?!-?({_OTHER_USES})(?![\w-])).*",
        "an NVRTC option that begins with a dash, such as -lineinfo, --use_fast_math or --maxrregcount=64, and "
        "concerns no other file, no architecture (which is `arch`), no debugging (-G) and no linking (-dlto, -rdc)",
    ),
]
_NAME = "[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
RunName = Annotated[
    str,
    *matching(
        f"(?!(published|null)$){_NAME}",
        "a folder name of up to 100 letters, digits, '.', '_' and '-', other than published and null",
    ),
]
Device = Annotated[
    str,
    *matching(
        "[a-z0-9][a-z0-9-]{0,99}",
        "auto, none, or the slug of a GPU, of up to 100 letters, digits and '-', such as nvidia-h200",
    ),
]
Published = Annotated[
    str,
    *matching(_NAME, "a folder name under results/published, such as nvidia-h200"),
]
Chosen = Annotated[
    Literal["all"] | Some[str] | Annotated[dict[str, str], Field(min_length=1)],
    *saying(
        "all, a list of sweep names, or a mapping of sweep names to expressions that keep some of their cells"
    ),
]


class CompileConfig(Document):
    """how variants are compiled"""

    options: list[Option]
    """further NVRTC options for every variant"""
    cache: Annotated[str, *matching(r"[^\0]{1,1000}", "a folder")]
    """folder of compiled kernels, by what they are made from; all runs share it"""
    timeout_s: PositiveFloat
    """a variant whose compiler takes longer counts as one that does not compile"""


class MeasureConfig(Document):
    """the measuring protocol"""

    precision: Share
    """stop when the half-width of the 95 % interval of the speed-up falls below this share"""
    min_pairs: Pairs
    """least number of variant-reference pairs per cell"""
    max_pairs: Pairs
    """greatest number of pairs per cell"""
    cell_seconds: PositiveFloat
    """budget of timing per cell and regime in seconds"""
    warm_below_us: NonNegativeFloat
    """the warm regime is measured where a single launch takes less than this many microseconds"""
    deadline_s: PositiveFloat
    """a cell that takes longer is recorded as timeout"""
    busy: Literal["refuse", "mark"]
    """when another process uses the GPU: refuse to measure, or mark the cells"""
    lock_clocks: Annotated[int, Field(ge=1, le=100_000)] | None
    """SM clock in MHz to lock during measuring and restore after; null leaves the clocks alone"""
    lt_heuristics: UpTo1000
    """algorithms of cuBLASLt's heuristic list to try"""
    remeasure: bool
    """measure every cell again, and choose references again"""
    sessions: UpTo1000
    """processes on each GPU that measure the repeated cells of a sweep; from 2 on, each GPU that is used has as many"""
    seed: Annotated[int, Field(ge=0, lt=2**63)]
    """seed of the inputs"""


class ProfileConfig(Document):
    """Nsight Compute counters"""

    enabled: bool
    """collect counters where ncu exists; otherwise the report says why not"""
    timeout_s: PositiveFloat
    """limit of one profiler process in seconds"""


class Config(Document):
    """A run (config/config.yaml, overridden by --configfile and --config)."""

    run: RunName
    """name of the run; results go to results/RUN/DEVICE"""
    device: Device
    """GPU to measure on: auto finds it, none does without, a slug plans for one of another host (a cluster)"""
    arch: Annotated[str, *matching(f"auto|{ARCH}", f"auto or {AN_ARCH}")]
    """architecture to compile for; auto is the device's, sm_90a without one"""
    sweeps: Chosen
    """sweeps of the run, or some of their cells: an expression over parameters, kernel, dtype, rung, the size and the
    regime, such as `m == 4096 and regime == 'cold'`; a cell stays where it holds for the sweep's first regime, and is
    launched for seconds where it also holds for sustained"""
    compile: CompileConfig
    measure: MeasureConfig
    profile: ProfileConfig
    published: Published
    """device under results/published whose measurements a host without a GPU reports"""
