"""A kernel that another compiler has made: what NVRTC's kernels are held to, by the cubin alone; a refusal is data."""

from dataclasses import dataclass
from typing import Any

from ladder.build.cubin import (
    NoDisassembler,
    arch_of,
    disassemble,
    kernel_names,
    launch_resources,
    local_traffic,
    parameter_bytes,
    persistent_symbols,
)
from ladder.build.nvrtc import Request
from ladder.model.architecture import arch_number
from ladder.model.errors import LadderError, refuse_unknown
from ladder.model.files import read_bytes, sha256

_A_CUBIN = "a whole file of one GPU's machine code, as `nvcc -cubin` writes it"
_ONE = "one with the described kernel alone"
_NO_STATE = "a kernel whose tables are __constant__ and that calls no function of the device's runtime"


@dataclass(frozen=True)
class CubinRequest(Request):
    """The kernel of a cubin: its entry is its symbol."""

    def _refusal(self, accepted: str, why: str) -> LadderError:
        return LadderError(f"{self.source.name}: {why}; accepted: {accepted}")

    def compile(self) -> tuple[bytes, dict[str, Any]]:
        """(cubin, facts) without compiling; no bytes of what is no cubin, or of another GPU or kernel."""
        cubin = read_bytes(self.source)
        (entry,) = self.entries
        facts: dict[str, Any] = {
            "status": "ok",
            "reason": "",
            "source_sha256": self.source_sha256,
            "symbols": {entry: entry},
        }
        try:
            self._refuse_unfit(cubin, entry)
            return cubin, facts | self._read(cubin, entry)
        except NoDisassembler:
            raise
        except LadderError as error:
            return b"", facts | {"status": "compile_error", "reason": str(error)}

    def _read(self, cubin: bytes, entry: str) -> dict[str, Any]:
        """What is only known of a cubin by reading it. Raises LadderError for a damaged one."""
        try:
            (instructions,) = disassemble([cubin], self.arch)
            facts: dict[str, Any] = launch_resources(cubin, entry)
            facts["parameter_bytes"] = parameter_bytes(cubin, entry)
            state = persistent_symbols(cubin, instructions)
        except (NoDisassembler, OSError, MemoryError):
            raise
        except Exception as error:  # the reader of ELF files raises anything
            raise self._refusal(_A_CUBIN, f"it is damaged: {error}") from error
        # Nothing says of a global variable that it is only read.
        if state:
            why = f"it uses what outlives a launch: {', '.join(state)}"
            reason = str(self._refusal(_NO_STATE, why))
            facts |= {"status": "stateful", "reason": reason}
        # Spills and arrays in local memory alike: no log says which.
        facts |= local_traffic(instructions)
        facts["cubin_sha256"] = facts["machine_code"] = sha256(cubin)
        return facts

    def _refuse_unfit(self, cubin: bytes, entry: str) -> None:
        """Raises LadderError for what is no cubin for the architecture with this kernel and no other."""
        if not cubin.startswith(b"\x7fELF"):
            is_ptx = b".version" in cubin[:4096]
            why = "it is PTX" if is_ptx else "it is no ELF file"
            raise self._refusal(_A_CUBIN, why)
        try:
            arch = arch_of(cubin)
            kernels = kernel_names(cubin)
        except LadderError as error:
            raise self._refusal(_A_CUBIN, str(error)) from error
        if arch != arch_number(self.arch):
            raise self._refusal(f"one for {self.arch}", f"it is for sm_{arch}")
        if not kernels:
            why = "it has no kernel: of a template only what is launched in its file, or instantiated there, is one"
            raise self._refusal(_ONE, why)
        refuse_unknown(self.source.name, "entry", entry, kernels)
        kernels.remove(entry)
        if kernels:
            others = ", ".join(kernels)
            raise self._refusal(_ONE, f"it has other kernels: {others}")
