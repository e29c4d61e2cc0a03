"""Where a run keeps its files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

NO_GPU = "no-gpu"
"""Device folder of a run on a host without a GPU: its timings are published ones."""


@dataclass(frozen=True)
class Project:
    """A checkout (or a user's copy of its rooms)."""

    root: Path

    @property
    def kernels(self) -> Path:
        return self.root / "kernels"

    @property
    def include(self) -> Path:
        return self.root / "kernels" / "include"

    @property
    def config(self) -> Path:
        return self.root / "config"

    @property
    def sweeps(self) -> Path:
        return self.root / "config" / "sweeps"

    @property
    def best(self) -> Path:
        return self.root / "config" / "best"

    @property
    def results(self) -> Path:
        return self.root / "results"

    def published(self, device: str) -> Path:
        return self.results / "published" / device

    def run(self, run: str, device: str) -> RunFolder:
        return RunFolder(self.results / run / device)


@dataclass(frozen=True)
class RunFolder:
    """results/RUN/DEVICE."""

    root: Path

    def cubin(self, variant: str) -> Path:
        return self.root / "cubins" / f"{variant}.cubin"

    def facts(self, variant: str) -> Path:
        return self.root / "cubins" / f"{variant}.json"

    def plan(self, sweep: str) -> Path:
        return self.root / "plans" / f"{sweep}.json"

    def sweep(self, sweep: str) -> Path:
        return self.root / "sweeps" / sweep

    def cells(self, sweep: str) -> Path:
        return self.sweep(sweep) / "cells.jsonl"

    def profile(self, sweep: str) -> Path:
        return self.sweep(sweep) / "profile.jsonl"

    def figure(self, sweep: str, name: str) -> Path:
        return self.root / "figures" / f"{sweep}-{name}.png"

    @property
    def tables(self) -> Path:
        return self.root / "tables"

    @property
    def environment(self) -> Path:
        return self.root / "environment.json"

    @property
    def report(self) -> Path:
        return self.root / "report.md"
