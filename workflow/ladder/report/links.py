"""Where a document finds the pages of its run, the sources of its kernels, and the documentation."""

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ladder.model.architecture import lacking
from ladder.model.folders import RunFolder
from ladder.model.kernel import Kernel
from ladder.results.run_data import RunData

_CHECKOUT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class Links:
    """Links from a document in the folder `base` about the run in `folder`."""

    folder: RunFolder
    base: Path
    data: RunData

    def to(self, path: Path) -> str:
        return Path(os.path.relpath(path.resolve(), self.base.resolve())).as_posix()

    def claims(self) -> str:
        """Where the report lists them."""
        return f"{self.to(self.folder.report)}#claims"

    def doc(self, name: str) -> str:
        return self.to(_CHECKOUT / "docs" / name)

    @cached_property
    def kernels(self) -> dict[str, Kernel]:
        """The kernels of all sweeps by name."""
        kernels = dict[str, Kernel]()
        for sweep in self.data.sweeps.values():
            kernels |= sweep.kernels
        return kernels

    def source(self, kernel: str) -> str:
        """The CUDA file of a kernel; the folder of all where no sweep has the kernel."""
        described = self.kernels.get(kernel)
        return self.to(described.source if described else _CHECKOUT / "kernels")

    def needs(self, kernel: str) -> list[str]:
        """What a kernel needs of a size, and of the GPU."""
        if kernel not in self.kernels:
            return []
        described = self.kernels[kernel]
        _, of_size = described.split_constraints
        needed = [constraint.reason for constraint in of_size]
        if described.launch.cluster and lacking("sm_90", described.min_arch):
            needed.append("clusters of blocks need Hopper or later")
        return needed
