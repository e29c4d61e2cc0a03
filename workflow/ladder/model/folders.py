"""Where a run keeps its files."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from ladder.model.errors import refuse

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
    def claims(self) -> Path:
        return self.root / "config" / "claims.yaml"

    @property
    def results(self) -> Path:
        return self.root / "results"

    def published(self, device: str) -> PublishedFolder:
        """Raises LadderError for a device that is no plain name: nothing beside its folder may be replaced."""
        return PublishedFolder(self.results / "published" / _plain("device", device))

    def run(self, run: str, device: str) -> RunFolder:
        """Raises LadderError where run or device is no plain name."""
        return RunFolder(self.results / _plain("run", run) / _plain("device", device))


def _plain(field: str, name: str) -> str:
    """A name that is one folder's and no other's."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise refuse("configuration", field, name, "a name of letters, digits, '.', '_' and '-'")
    return name


@dataclass(frozen=True)
class RunFolder:
    """results/RUN/DEVICE."""

    root: Path

    @property
    def cubins(self) -> Path:
        return self.root / "cubins"

    def cubin(self, variant: str) -> Path:
        return self.cubins / f"{variant}.cubin"

    def facts(self, variant: str) -> Path:
        return self.cubins / f"{variant}.json"

    def harness(self, problem: str) -> Path:
        return self.cubins / f"harness-{problem}.bin"

    def plan(self, sweep: str) -> Path:
        return self.root / "plans" / f"{sweep}.json"

    def sweep(self, sweep: str) -> Path:
        return self.root / "sweeps" / sweep

    def measured(self, sweep: str) -> Path:
        """What the measuring job of a sweep did."""
        return self.sweep(sweep) / "measured.json"

    def profiled(self, sweep: str) -> Path:
        """What the profiling job of a sweep did, and what it could not have."""
        return self.sweep(sweep) / "profiled.json"

    @property
    def records(self) -> Path:
        """The store: a file a measuring job, appended to and never rewritten."""
        return self.root / "records"

    def figure(self, sweep: str, name: str) -> Path:
        return self.root / "figures" / f"{sweep}-{name}.png"

    @property
    def tables(self) -> Path:
        return self.root / "tables"

    @property
    def environment(self) -> Path:
        return self.root / "environment.json"

    @property
    def throughput(self) -> Path:
        return self.root / "throughput.json"

    @property
    def report(self) -> Path:
        return self.root / "report.md"


@dataclass(frozen=True)
class PublishedFolder(RunFolder):
    """results/published/DEVICE: like a run's, but its tables lie beside the report, and its records in an archive."""

    @property
    def tables(self) -> Path:
        return self.root

    @property
    def archive(self) -> Path:
        """Published records: a parquet file a publication, none of them ever rewritten."""
        return self.root / "records"
