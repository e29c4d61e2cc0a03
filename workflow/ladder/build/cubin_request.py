"""A kernel that another compiler has made: what NVRTC's kernels are held to, by the cubin alone; a refusal is data."""

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ladder.build.cubin import (
    FACTS_VERSION,
    arch_of,
    disassemble,
    kernel_names,
    launch_resources,
    local_traffic,
    parameter_bytes,
    state_of_any,
)
from ladder.model.architecture import arch_number
from ladder.model.errors import LadderError, refuse
from ladder.model.files import digest_json, read_bytes, sha256

_A_CUBIN = "a whole file of one GPU's machine code, as `nvcc -cubin` writes it"
_NO_STATE = "a kernel whose tables are __constant__ and that calls no function of the device's runtime"
_OTHERS = ((b"\x50\xed\x55\xba", "it is a fat binary"), (b"\x7fELF", ""))


@dataclass(frozen=True)
class CubinRequest:
    """The kernel `entry`, by its symbol, of a cubin that the description of a name has."""

    source: Path
    source_sha256: str
    entry: str
    arch: str
    description: str
    includes: ClassVar[tuple[Path, ...]] = ()
    missing: ClassVar[str] = ""

    @property
    def entries(self) -> tuple[str, ...]:
        return (self.entry,)

    @functools.cached_property
    def key(self) -> str:
        """Digest of all that the answer depends on, and of the names in it."""
        given = [self.description, self.source.name, self.entry, self.arch]
        return digest_json([*given, self.source_sha256, FACTS_VERSION])[:32]

    @property
    def keys(self) -> tuple[str, ...]:
        """What an answer is kept as."""
        return (self.key,)

    def _refusal(self, accepted: Iterable[str] | str, why: str) -> LadderError:
        return refuse(self.description, "cubin", self.source.name, accepted, why)

    def compile(self) -> tuple[bytes, dict[str, Any]]:
        """(cubin, facts) without compiling; no bytes of what is no cubin, or of another GPU or kernel."""
        cubin = read_bytes(self.source)
        facts: dict[str, Any] = {
            "status": "ok",
            "reason": "",
            "source_sha256": self.source_sha256,
            "symbols": {self.entry: self.entry},
        }
        try:
            self._refuse_other(cubin)
            facts |= launch_resources(cubin, self.entry)
        except LadderError as error:
            return b"", facts | {"status": "compile_error", "reason": str(error)}
        (instructions,) = disassemble([cubin], self.arch)
        # Nothing says of a global variable that it is only read.
        if state := state_of_any(cubin, instructions):
            why = f"it uses what outlives a launch: {', '.join(state)}"
            refusal = self._refusal(_NO_STATE, why)
            facts |= {"status": "stateful", "reason": str(refusal)}
        # No log tells spills from arrays.
        facts |= local_traffic(instructions)
        facts["parameter_bytes"] = parameter_bytes(cubin, self.entry)
        facts["cubin_sha256"] = facts["machine_code"] = sha256(cubin)
        return cubin, facts

    def _refuse_other(self, cubin: bytes) -> None:
        """Raises LadderError for what is no cubin for the architecture with this kernel and no other."""
        is_ptx = b".version" in cubin[:4096]
        unlike = "it is PTX" if is_ptx else "it is no ELF file"
        for magic, why in _OTHERS:
            if cubin.startswith(magic):
                unlike = why
        if unlike:
            raise self._refusal(_A_CUBIN, unlike)
        try:
            arch = arch_of(cubin)
            kernels = kernel_names(cubin)
        except LadderError as error:
            raise self._refusal(_A_CUBIN, str(error)) from error
        if arch != arch_number(self.arch):
            raise self._refusal(f"one for {self.arch}", f"it is for sm_{arch}")
        if self.entry not in kernels:
            why = f"{self.source.name} has no such kernel"
            raise refuse(self.description, "entry", self.entry, kernels, why)
        if len(kernels) > 1:
            others = ", ".join(name for name in kernels if name != self.entry)
            one = "one with the described kernel alone"
            raise self._refusal(one, f"it has other kernels: {others}")
