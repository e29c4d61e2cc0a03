"""Facts of a cubin without a GPU: instruction counts from its SASS, and a digest of what it makes the GPU do."""

import functools
import hashlib
import io
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

from cuda.pathfinder import find_nvidia_binary_utility
from elftools.elf.elffile import ELFFile

from ladder.model.errors import LadderError

_INSTRUCTION = re.compile(r"^\s+(?:/\*[0-9a-f]+\*/)?\s*(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)\b", re.MULTILINE)
_ARITHMETIC = ("ffma", "hmma", "hgmma")
_MOVES = ("ldsm", "sts", "ldg", "stg", "ldgsts", "utmaldg", "shfl", "bar", "ldl", "stl")
COUNTED = {name: (name.upper(),) for name in (*_ARITHMETIC, *_MOVES)} | {"hgmma": ("HGMMA", "QGMMA", "IGMMA")}
"""Table column -> SASS opcodes counted in it."""

_PARTS = re.compile(r"(\.rela)?(\.text|\.nv\.(?:constant\d+|shared|global\.init|global|info))(?=\.|$)")
"""Sections of instructions, constants, memory and launch attributes; not of names, debug information and notes."""


@functools.cache
def _disassembler() -> list[str]:
    for name, options in (("nvdisasm", ["-c", "-ndf"]), ("cuobjdump", ["--dump-sass"])):
        if found := find_nvidia_binary_utility(name) or shutil.which(name):
            return [str(found), *options]
    raise LadderError("no nvdisasm or cuobjdump was found: install nvidia-cuda-nvdisasm or a CUDA toolkit")


def sass(cubin: bytes) -> str:
    """SASS text of a cubin. Raises LadderError where no disassembler exists or it fails."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        done = subprocess.run([*_disassembler(), str(path)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LadderError(f"{_disassembler()[0]} failed: {done.stderr.strip()[:400]}")
    return done.stdout


def instruction_counts(text: str) -> dict[str, int]:
    """Static counts of the instructions that matter, by table column; `instructions` counts all but NOP."""
    counts = dict.fromkeys(["instructions", "lds_32", "lds_64", "lds_128", *COUNTED], 0)
    for opcode, number in Counter(_INSTRUCTION.findall(text)).items():
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
