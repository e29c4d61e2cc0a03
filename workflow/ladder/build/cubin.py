"""Facts of a cubin without a GPU: instruction counts from its SASS, and a digest of what it makes the GPU do."""

import functools
import hashlib
import io
import itertools
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence

from cuda.pathfinder import find_nvidia_binary_utility
from elftools.elf.elffile import ELFFile

from ladder.model.errors import LadderError

_INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(.+?)\s*;", re.MULTILINE)
_OPCODE = re.compile(r"(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)")
_INSTRUCTION_BYTES = 16  # of every architecture since sm_70
_ARITHMETIC = ("ffma", "hmma", "hgmma")
_MOVES = ("ldsm", "sts", "ldg", "stg", "ldgsts", "utmaldg", "shfl", "bar", "ldl", "stl")
COUNTED = {name: (name.upper(),) for name in (*_ARITHMETIC, *_MOVES)} | {"hgmma": ("HGMMA", "QGMMA", "IGMMA")}
"""Table column -> SASS opcodes counted in it."""

_PARTS = re.compile(r"(\.rela)?(\.text|\.nv\.(?:constant\d+|shared|global\.init|global|info))(?=\.|$)")
"""Sections of instructions, constants, memory and launch attributes; not of names, debug information and notes."""


@functools.cache
def _disassembler() -> str:
    if found := find_nvidia_binary_utility("nvdisasm") or shutil.which("nvdisasm"):
        return str(found)
    raise LadderError("no nvdisasm was found: install nvidia-cuda-nvdisasm or a CUDA toolkit")


def _code(cubin: bytes) -> bytes:
    """The machine code of all its functions."""
    sections = ELFFile(io.BytesIO(cubin)).iter_sections()
    return b"".join(section.data() for section in sections if section.name.startswith(".text"))


def disassemble(cubins: Sequence[bytes], arch: str) -> list[list[str]]:
    """SASS instructions of each cubin, in one run of nvdisasm: its start takes longer than a kernel.

    Raises LadderError where there is no disassembler or it fails.
    """
    codes = [_code(cubin) for cubin in cubins]
    lengths = [len(code) // _INSTRUCTION_BYTES for code in codes]
    if not any(lengths):
        return [[] for _ in codes]
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"".join(codes))
        file.flush()
        command = [_disassembler(), "-b", arch.replace("sm_", "SM"), "-ndf", file.name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = _INSTRUCTION.findall(done.stdout)
    if done.returncode != 0 or len(found) != sum(lengths):
        why = done.stderr.strip()[:400] or f"{len(found)} instructions of {sum(lengths)}"
        raise LadderError(f"{_disassembler()} failed: {why}")
    left = iter(found)
    return [list(itertools.islice(left, length)) for length in lengths]


def instruction_counts(instructions: Iterable[str]) -> dict[str, int]:
    """Static counts of the instructions that matter, by table column; `instructions` counts all but NOP."""
    counts = dict.fromkeys(["instructions", "lds_32", "lds_64", "lds_128", *COUNTED], 0)
    opcodes = (match[1] for line in instructions if (match := _OPCODE.match(line)))
    for opcode, number in Counter(opcodes).items():
        base, *modifiers = opcode.split(".")
        if base == "NOP":
            continue
        counts["instructions"] += number
        if base == "LDS":
            width = next((word for word in ("64", "128") if word in modifiers), "32")
            counts[f"lds_{width}"] += number
        for column, names in COUNTED.items():
            counts[column] += number if base in names else 0
    return counts


def machine_code_digest(cubin: bytes) -> str:
    """SHA-256 of instructions, constants, resources and launch attributes; names of symbols do not count."""
    total = hashlib.sha256()
    for section in ELFFile(io.BytesIO(cubin)).iter_sections():
        if part := _PARTS.match(section.name):
            total.update(f"{part[0]}\0{section['sh_flags']}\0{section['sh_size']}\0".encode())
            total.update(section.data() if section["sh_type"] != "SHT_NOBITS" else b"")
    return total.hexdigest()
