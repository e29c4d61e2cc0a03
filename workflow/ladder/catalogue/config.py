"""The configuration of a run."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from ladder.model.document import Document, matching, taking

Share = Annotated[float, Field(gt=0, le=0.5)]


def _is_choice(value: Any) -> bool:
    listed = isinstance(value, list) and bool(value) and all(isinstance(name, str) for name in value)
    return value == "all" or listed


class CompileConfig(Document):
    """How variants are compiled."""

    options: list[Annotated[str, *matching(r"-.*", "an NVRTC option that begins with a dash")]] = Field(
        description="further NVRTC options for every variant"
    )


class MeasureConfig(Document):
    """The measuring protocol."""

    precision: Share = Field(
        description="stop when the half-width of the 95 % interval of the speed-up falls below this share"
    )
    min_pairs: int = Field(ge=12, description="least number of variant-reference pairs per cell")
    max_pairs: int = Field(ge=12, description="greatest number of pairs per cell")
    cell_seconds: float = Field(gt=0, description="budget of timing per cell and regime in seconds")
    warm_below_us: float = Field(
        ge=0,
        description="the warm regime is measured where a single launch takes less than this many microseconds",
    )
    deadline_s: float = Field(gt=0, description="a cell that takes longer is recorded as timeout")
    throttle_share: float = Field(
        gt=0,
        le=1,
        description="a cell is throttled when its SM clock lies by more than this share below the first",
    )
    busy: Literal["refuse", "mark"] = Field(
        description="when another process uses the GPU: refuse to measure, or mark the cells"
    )
    lock_clocks: Annotated[int, Field(ge=1)] | None = Field(
        description="SM clock in MHz to lock during measuring and restore after; null leaves the clocks alone"
    )
    lt_heuristics: int = Field(ge=1, description="algorithms of cuBLASLt's heuristic list to try")
    remeasure: bool = Field(description="measure every cell anew")
    seed: int = Field(ge=0, description="seed of the inputs")


class ProfileConfig(Document):
    """Nsight Compute counters."""

    enabled: bool = Field(description="collect counters where ncu exists; otherwise the report says why not")
    timeout_s: float = Field(gt=0, description="limit of one profiler process in seconds")


class ClockConfig(Document):
    """Checks of the timer itself: against NVBench, and of a kernel against itself."""

    enabled: bool = Field(description="run them")
    sweep: str = Field(min_length=1, description="sweep whose measured cells serve as subjects")
    trials: int = Field(ge=10, description="trials of a kernel against itself")


class Config(Document):
    """A run (config/config.yaml, overridden by --configfile and --config)."""

    run: Annotated[
        str,
        *matching(
            r"(?!published$)[A-Za-z0-9][A-Za-z0-9._-]*",
            "a folder name of letters, digits, '.', '_' and '-', other than published",
        ),
    ] = Field(description="name of the run; results go to results/RUN/DEVICE")
    device: Annotated[
        str, *matching(r"[a-z0-9][a-z0-9-]*", "auto, none, or the slug of a GPU such as nvidia-h200")
    ] = Field(
        description="GPU to measure on: auto finds it, none does without, a slug plans for one this host lacks (a cluster)"
    )
    arch: Annotated[str, *matching(r"auto|sm_[0-9]{2,3}a?", "auto or an architecture such as sm_90a")] = (
        Field(description="architecture to compile for; auto is the device's, sm_90a without one")
    )
    sweeps: Annotated[
        str | list[str],
        *taking(
            "all, or a list of sweep names",
            _is_choice,
            {"anyOf": [{"const": "all"}, {"type": "array", "items": {"type": "string"}}]},
        ),
    ] = Field(description="sweeps of the run")
    compile: CompileConfig = Field(description="how variants are compiled")
    measure: MeasureConfig = Field(description="the measuring protocol")
    profile: ProfileConfig = Field(description="Nsight Compute counters")
    clock: ClockConfig = Field(
        description="checks of the timer itself: against NVBench, and of a kernel against itself"
    )
    published: str = Field(
        min_length=1,
        description="device under results/published whose measurements a host without a GPU reports",
    )
