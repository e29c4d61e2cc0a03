"""A digest of what a cubin makes the GPU do, whatever its kernels are called."""

import hashlib
import io
import re

from elftools.elf.elffile import ELFFile

_PARTS = re.compile(r"(\.rela)?(\.text|\.nv\.(?:constant\d+|shared|global\.init|global|info))(?=\.|$)")
"""Sections of instructions, constants, memory and launch attributes; not of names, debug information and notes."""


def machine_code_digest(cubin: bytes) -> str:
    """SHA-256 of instructions, constants, resources and launch attributes; names of symbols do not count."""
    total = hashlib.sha256()
    for section in ELFFile(io.BytesIO(cubin)).iter_sections():
        if part := _PARTS.match(section.name):
            total.update(f"{part[0]}\0{section['sh_flags']}\0{section['sh_size']}\0".encode())
            total.update(section.data() if section["sh_type"] != "SHT_NOBITS" else b"")
    return total.hexdigest()
