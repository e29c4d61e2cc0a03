"""The configuration of a run, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ladder.catalogue import documents


@dataclass(frozen=True)
class MeasureConfig:
    """The measuring protocol's settings; see config.schema.yaml for units."""

    precision: float
    min_pairs: int
    max_pairs: int
    cell_seconds: float
    warm_below_us: float
    deadline_s: float
    throttle_share: float
    busy: str
    lock_clocks: int | None
    lt_heuristics: int
    remeasure: bool
    seed: int


@dataclass(frozen=True)
class ProfileConfig:
    """Settings of the profiler step."""

    enabled: bool
    timeout_s: float


@dataclass(frozen=True)
class ClockConfig:
    """Settings of the checks of the timer."""

    enabled: bool
    sweep: str
    trials: int


@dataclass(frozen=True)
class Config:
    """A run."""

    run: str
    device: str
    arch: str
    sweeps: tuple[str, ...] | None
    compile_options: tuple[str, ...]
    measure: MeasureConfig
    profile: ProfileConfig
    clock: ClockConfig
    published: str


def parse_config(document: Mapping[str, Any], file: Path | str) -> Config:
    """Check a merged configuration. Raises LadderError naming file, field, value and what is accepted."""
    documents.check(document, "config", file)
    return Config(
        run=document["run"],
        device=document["device"],
        arch=document["arch"],
        sweeps=None if document["sweeps"] == "all" else tuple(document["sweeps"]),
        compile_options=tuple(document["compile"]["options"]),
        measure=MeasureConfig(**document["measure"]),
        profile=ProfileConfig(**document["profile"]),
        clock=ClockConfig(**document["clock"]),
        published=document["published"],
    )


def load_config(path: Path) -> Config:
    """Read one complete configuration file."""
    return parse_config(documents.load(path, "config"), path)
