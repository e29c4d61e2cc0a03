"""Memory beside C for kernels that ask for it, and what keeps it from telling one launch of another.

A kernel's argument {workspace: zeroed} is memory that holds zeros ahead of the first launch, and must hold zeros after
each; {workspace: scratch} is memory that holds NaN ahead of each launch that is timed alone or verified.

Run as `python -m ladder.measure.workspace PROCESS …`: the process `ladder.measure.PROCESS` of a plan with such kernels.
Apart from the bench, so that records of kernels without a workspace stay valid.
"""

import ctypes
import importlib
import struct
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ladder.gpu.device import Seal
from ladder.gpu.instance import Instance
from ladder.gpu.launching import Loaded
from ladder.measure import bench
from ladder.model.plan import Launch, Plan
from ladder.model.problem import ELEMENT_BYTES, GUARD, Params

_WORD = "fp32"  # of which workspaces are whole numbers
_NAN = b"\xff"
_THREADS = 4096


class WithWorkspace(Instance):
    """Adds workspaces to an instance, by the name and bytes of a kernel's arguments."""

    def __init__(self, *given: Any) -> None:
        self._scratch: list[str] = []
        self._zeroed: dict[str, Any] = {}  # tables of a guard's form, with room for what is found
        super().__init__(*given)

    def provide(self, argument: Mapping[str, Any]) -> None:
        """Allocate a workspace, unless it is there. Raises OutOfDeviceMemory."""
        name, size = argument["pointer"], int(argument["bytes"])
        if name in self.tensors:
            return
        self.add_buffer(name, (max(1, size // ELEMENT_BYTES[_WORD]),), _WORD)
        tensor = self.tensors[name]
        if argument["workspace"] == "scratch":
            self._scratch.append(name)
            self._spoil()
        else:
            tensor.buffer.fill(b"\0", stream=self.gpu.stream)
            row = struct.pack("3q", tensor.pointer, tensor.buffer.size, 0)
            self._zeroed[name] = self.gpu.upload(row + bytes(16))

    def _spoil(self) -> None:
        for name in self._scratch:
            self.tensors[name].buffer.fill(_NAN, stream=self.gpu.stream)

    def _look(self) -> None:
        """Enqueue a count of the bytes that are not zero where zeros must be; it adds to earlier counts."""
        for table in self._zeroed.values():
            row, found = int(table.handle), int(table.handle) + 24
            zero = ctypes.c_int32(0)
            self.gpu.harness.run(GUARD, _THREADS, found, found + 8, row, 1, zero)

    def poison_outputs(self) -> None:
        super().poison_outputs()  # type: ignore[safe-super]
        self._spoil()

    def refresh(self, seed: int) -> None:
        super().refresh(seed)
        self._spoil()

    def inspect(self, params: Params, seal: Seal) -> None:
        super().inspect(params, seal)  # type: ignore[safe-super]
        self._look()

    def damage(self) -> tuple[str, str] | None:
        """(status, reason) also where a launch left other than zeros in a workspace that must hold zeros."""
        if (found := super().damage()) is not None:
            return found
        self._look()
        for name, table in self._zeroed.items():
            (changed,) = struct.unpack("Q", self.gpu.download(int(table.handle) + 24, 8))
            if changed:
                return "stateful", f"{changed} bytes of the {name}, which launches must leave zero, were not"
        return None

    def close(self) -> None:
        self._scratch, self._zeroed = [], {}
        super().close()


class WorkspaceBench(bench.Bench):
    """A bench whose instances have workspaces."""

    def __init__(self, plan: Plan, cubins: Path, traced: bool = False) -> None:
        super().__init__(plan, cubins, traced)
        kind = importlib.import_module(f"ladder.problems.{plan.problem}.instance").INSTANCE
        own: type[Instance] = type(kind.__name__, (WithWorkspace, kind), {})
        self._create = own.maker(self.timer, plan.settings)

    def load(self, launch: Launch, instance: Instance) -> Loaded:
        """A kernel, ready to launch, with its workspaces. Raises CellOutcome, OutOfDeviceMemory."""
        assert isinstance(instance, WithWorkspace)
        for argument in launch.arguments:
            if "workspace" in argument:
                instance.provide(argument)
        return super().load(launch, instance)


def main() -> int:
    process = importlib.import_module(f"ladder.measure.{sys.argv.pop(1)}")
    process.Bench = WorkspaceBench  # type: ignore[attr-defined]
    return process.main()  # type: ignore[no-any-return]


if __name__ == "__main__":
    sys.exit(main())
