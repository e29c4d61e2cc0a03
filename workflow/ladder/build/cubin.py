"""Facts of a cubin without a GPU: instruction counts from its SASS, and a digest of what it makes the GPU do."""

import hashlib
import io
import itertools
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from cuda.pathfinder import find_nvidia_binary_utility
from elftools.elf.elffile import ELFFile

from ladder.model.errors import LadderError

FACTS_VERSION = 1
"""Raise it when the same source, compiler and options give another cubin, or other facts of one: all compile again."""

_INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(.+?)\s*;", re.MULTILINE)
_OPCODE = re.compile(r"(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)")
_ADDRESS = re.compile(r"c\[0x4\]\[(\w+)")
_RELOCATED = re.compile(r"\.rela?\.nv\.constant(\d+)")
_CONSTANTS = re.compile(r"c\[0x0\]\[0x(?:50|d0|120)\]")
"""The constants that hold the address of constant memory: before sm_90, on sm_90, and later."""
_CODE = ".text."
_INSTRUCTION_BYTES = 16  # of every architecture since sm_70
_COLUMNS = "ffma hmma hgmma ldsm sts ldg stg ldgsts utmaldg shfl bar ldl stl"
COUNTED = {name: (name.upper(),) for name in _COLUMNS.split()} | {"hgmma": ("HGMMA", "QGMMA", "IGMMA")}
"""Table column -> SASS opcodes counted in it."""

_PARTS = re.compile(r"(\.rela)?(\.text|\.nv\.(?:constant\d+|shared|global\.init|global|info))(?=\.|$)")
"""Sections of instructions, constants, memory and launch attributes; not of names, debug information and notes."""


def disassemble(cubins: Sequence[bytes], arch: str) -> list[list[str]]:
    """SASS instructions of each cubin, by one run of nvdisasm, which starts slowly. Raises LadderError if it fails."""
    files = [ELFFile(io.BytesIO(cubin)).iter_sections() for cubin in cubins]
    codes = [b"".join(one.data() for one in file if one.name.startswith(".text")) for file in files]
    lengths = [len(code) // _INSTRUCTION_BYTES for code in codes]
    if not any(lengths):
        return [[] for _ in codes]
    tool = find_nvidia_binary_utility("nvdisasm") or shutil.which("nvdisasm")
    if tool is None:
        raise LadderError("no nvdisasm was found: install nvidia-cuda-nvdisasm or a CUDA toolkit")
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"".join(codes))
        file.flush()
        command = [tool, "-b", arch.replace("sm_", "SM"), "-ndf", file.name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = _INSTRUCTION.findall(done.stdout)
    if done.returncode != 0 or len(found) != sum(lengths):
        why = done.stderr.strip()[:400] or f"{len(found)} instructions of {sum(lengths)}"
        raise LadderError(f"{tool} failed: {why}")
    left = iter(found)
    return [list(itertools.islice(left, length)) for length in lengths]


def kernel_names(cubin: bytes) -> list[str]:
    """Symbols of the kernels in a cubin, each of which has a section of instructions and one of arguments."""
    names = [section.name for section in ELFFile(io.BytesIO(cubin)).iter_sections()]
    return [name.removeprefix(_CODE) for name in names if name.startswith(_CODE)]


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


def persistent_symbols(cubin: bytes, instructions: Sequence[str]) -> list[str]:
    """What a cubin's code uses that outlives a launch: names of global variables and device functions."""
    elf = ELFFile(io.BytesIO(cubin))
    symbols: Any = elf.get_section_by_name(".symtab")
    banks: dict[str, dict[int, str]] = {"4": {}}
    sections: list[Any] = [*elf.iter_sections()]
    for section in sections:
        if found := _RELOCATED.match(section.name):
            relocations = section.iter_relocations()
            names = {one["r_offset"]: symbols.get_symbol(one["r_info_sym"]).name for one in relocations}
            banks.setdefault(found[1], {}).update(names)
    # Code takes addresses from constant bank 4, and constants of other banks may be addresses themselves.
    addresses = banks.pop("4")
    used = {name for bank in banks.values() for name in bank.values()}
    if any(_CONSTANTS.search(line) for line in instructions):
        used.add("constant memory by its address")
    offsets = {found[1].replace("RZ", "0x0") for line in instructions for found in _ADDRESS.finditer(line)}
    if offsets:
        undefined = [one for one in symbols.iter_symbols() if one["st_shndx"] == "SHN_UNDEF"]
        if calls := sorted(one.name for one in undefined if one["st_info"]["type"] == "STT_FUNC"):
            return calls
        # An address is two words; a computed index may be of any.
        known = {int(offset, 16) & ~7 for offset in offsets if offset.startswith("0x")}
        used.update({addresses[offset] for offset in known} or addresses.values())
    return sorted(used)


def machine_code_digest(cubin: bytes) -> str:
    """SHA-256 of instructions, constants, resources and launch attributes; names of symbols do not count."""
    total = hashlib.sha256()
    for section in ELFFile(io.BytesIO(cubin)).iter_sections():
        if part := _PARTS.match(section.name):
            total.update(f"{part[0]}\0{section['sh_flags']}\0{section['sh_size']}\0".encode())
            total.update(section.data() if section["sh_type"] != "SHT_NOBITS" else b"")
    return total.hexdigest()
