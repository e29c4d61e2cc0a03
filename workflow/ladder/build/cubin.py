"""Facts of a cubin without a GPU: instruction counts from its SASS, and a digest of what it makes the GPU do."""

import hashlib
import io
import itertools
import re
import shutil
import struct
import subprocess
import tempfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from cuda.pathfinder import find_nvidia_binary_utility
from elftools.elf.elffile import ELFFile

from ladder.model.errors import LadderError

FACTS_VERSION = 1
"""Raise it when the same source, compiler and options give another cubin, or other facts of one: all compile again."""

_INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(.+?)\s*;", re.MULTILINE)
_OPCODE = re.compile(r"(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)")
_LOCAL = re.compile(r"\b(STL|LDL)\b(?:\.[A-Z]\w*)*(?:\.(64|128))?")
_ADDRESS = re.compile(r"c\[0x4\]\[(\w+)")
_RELOCATED = re.compile(r"\.rela?\.(?:nv\.constant(\d+)|text\.)")
_CONSTANTS = re.compile(r"c\[0x0\]\[0x(?:50|d0|120)\]")
"""The constants that hold the address of constant memory: before sm_90, on sm_90, and later."""
_ARGUMENTS, _ATTRIBUTES = ".nv.constant0.", ".nv.info."
"""Sections of a kernel: the constant bank of its arguments, and what the driver must know of it."""
_STACK, _PARAMETER, _REGISTERS = 0x11, 0x17, 0x2F
"""Attributes: EIATTR_FRAME_SIZE, EIATTR_KPARAM_INFO, EIATTR_REGCOUNT."""
_WITH_VALUE = 4  # the form of an attribute whose value follows its head
_RESERVED, _RESERVED_BYTES = ".nv.shared.reserved.0", 1024
"""The section of a cubin whose blocks begin with shared memory of the driver, and that in each block's."""
_SYSTEM_CALLS = ("__cuda_syscall_cp_async_bulk",)
"""How begin the names of the driver's functions that carry out one instruction: on sm_120 a bulk copy to a cluster."""
_ABI_OF_CUDA_13 = 8
_INSTRUCTION_BYTES = 16  # of every architecture since sm_70
_COLUMNS = "ffma hmma hgmma ldsm sts ldg stg ldgsts utmaldg shfl bar ldl stl"
COUNTED = {name: (name.upper(),) for name in _COLUMNS.split()} | {
    "hgmma": ("HGMMA", "QGMMA", "IGMMA")
}
"""Table column -> SASS opcodes counted in it."""

_RESOURCES = (
    r"(?P<local_bytes>\d+) bytes stack frame, (?P<spill_store_bytes>\d+) bytes spill stores, "
    r"(?P<spill_load_bytes>\d+) bytes spill loads\n"
    r".*: Used (?P<registers>\d+) registers(?:.*?, (?P<shared_bytes_static>\d+) bytes smem)?"
)
"""Lines of ptxas about a kernel, by facts; those of a kernel without static shared memory do not name any."""
_PARTS = re.compile(
    r"(\.rela)?(\.text|\.nv\.(?:constant\d+|shared|global\.init|global|info))(?=\.|$)"
)
"""Sections of instructions, constants, memory and launch attributes; not of names, debug information and notes."""


class NoDisassembler(LadderError):
    """The set-up is at fault, and no cubin."""


def _elf(cubin: bytes) -> Any:
    return ELFFile(io.BytesIO(cubin))


def disassemble(cubins: Sequence[bytes], arch: str) -> list[list[str]]:
    """SASS instructions of each cubin, by one run of nvdisasm, which starts slowly.

    Raises NoDisassembler without it, LadderError if it fails.
    """
    codes = list[bytes]()
    for cubin in cubins:
        sections = _elf(cubin).iter_sections()
        texts = [each.data() for each in sections if each.name.startswith(".text")]
        codes.append(b"".join(texts))
    lengths = [len(code) // _INSTRUCTION_BYTES for code in codes]
    if not any(lengths):
        return [[] for _ in codes]
    tool = find_nvidia_binary_utility("nvdisasm") or shutil.which("nvdisasm")
    if tool is None:
        raise NoDisassembler(
            "no nvdisasm was found: install nvidia-cuda-nvdisasm or a CUDA toolkit"
        )
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"".join(codes))
        file.flush()
        command = [tool, "-b", arch.replace("sm_", "SM"), "-ndf", file.name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    instructions = _INSTRUCTION.findall(done.stdout)
    if done.returncode != 0 or len(instructions) != sum(lengths):
        why = (
            done.stderr.strip()[:400]
            or f"{len(instructions)} instructions of {sum(lengths)}"
        )
        raise LadderError(f"{tool} failed: {why}")
    left = iter(instructions)
    return [list(itertools.islice(left, length)) for length in lengths]


def resources(log: str, before: str = "") -> dict[str, int]:
    """Facts of a kernel from the log of ptxas, whose line about it begins with what matches `before`.

    Raises LadderError where it has none.
    """
    # The last ones: a warning of the front end, which comes first, may quote anything.
    lines = [*re.finditer(before + _RESOURCES, log, re.MULTILINE)]
    if not lines:
        raise LadderError(f"the compiler's log has no resource lines: {log[:400]}")
    facts = lines[-1].groupdict("0")
    return {fact: int(number) for fact, number in facts.items()}


def kernel_names(cubin: bytes) -> list[str]:
    """Symbols of the kernels in a cubin, each of which has a section of arguments."""
    names = [section.name for section in _elf(cubin).iter_sections()]
    return [
        name.removeprefix(_ARGUMENTS) for name in names if name.startswith(_ARGUMENTS)
    ]


def _attributes(elf: Any, name: str) -> Iterator[tuple[int, bytes]]:
    """Attributes in a section that have a value behind their head."""
    section = elf.get_section_by_name(name)
    data, place = section.data() if section else b"", 0
    while place < len(data):
        form, attribute, length = struct.unpack_from("<BBH", data, place)
        place += 4
        if form == _WITH_VALUE:
            yield attribute, data[place : place + length]
            place += length


def parameter_bytes(cubin: bytes, kernel: str) -> list[int]:
    """Bytes of each parameter of a kernel, by its symbol, in order."""
    sizes = dict[int, int]()
    for attribute, value in _attributes(_elf(cubin), _ATTRIBUTES + kernel):
        if attribute == _PARAMETER:
            _, number, _, layout = struct.unpack_from("<IHHI", value)
            sizes[number] = layout >> 18
    return [sizes[number] for number in sorted(sizes)]


def launch_resources(cubin: bytes, kernel: str) -> dict[str, int]:
    """Facts of a kernel, by its symbol, that `resources` has from a log, but for spills. Raises LadderError."""
    elf = _elf(cubin)
    symbols = elf.get_section_by_name(".symtab")
    numbers = {_STACK: 0}
    for attribute, value in _attributes(elf, ".nv.info"):
        if attribute in (_STACK, _REGISTERS):
            symbol, number = struct.unpack_from("<II", value)
            if symbols.get_symbol(symbol).name == kernel:
                numbers[attribute] = number
    if _REGISTERS not in numbers:
        raise LadderError(f"the cubin does not say how many registers {kernel} has")
    shared = elf.get_section_by_name(f".nv.shared.{kernel}")
    reserved = _RESERVED_BYTES if elf.get_section_by_name(_RESERVED) else 0
    return {
        "registers": numbers[_REGISTERS],
        "local_bytes": numbers[_STACK],
        "shared_bytes_static": max(shared["sh_size"] - reserved, 0) if shared else 0,
    }


def local_traffic(instructions: Iterable[str]) -> dict[str, int]:
    """Bytes that instructions move to and from local memory, each counted once: of spills, and of arrays there."""
    moved = Counter[str]()
    for opcode, bits in _LOCAL.findall("\n".join(instructions)):
        moved[opcode] += int(bits or 32) // 8
    return {"spill_store_bytes": moved["STL"], "spill_load_bytes": moved["LDL"]}


def arch_of(cubin: bytes) -> int:
    """The architecture that an ELF file is for, such as 90. Raises LadderError for a file of others, or cut short."""
    try:
        elf = _elf(cubin)
        has_symbols = elf.get_section_by_name(".symtab") is not None
    except Exception as error:  # the reader of ELF files raises anything
        raise LadderError("it is cut short or damaged") from error
    header = elf.header
    for table in ("e_sh", "e_ph"):  # one of which is the last of the file
        length = header[f"{table}num"] * header[f"{table}entsize"]
        if header[f"{table}off"] + length > len(cubin):
            raise LadderError("it is cut short")
    if header["e_machine"] != "EM_CUDA" or not has_symbols:
        raise LadderError(f"it is for {header['e_machine']}, which is no GPU")
    # Before CUDA 13 the flags began with it.
    before = header["e_ident"]["EI_ABIVERSION"] < _ABI_OF_CUDA_13
    return int(header["e_flags"] >> (0 if before else 8)) & 0xFF


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


def persistent_symbols(
    cubin: bytes, instructions: Sequence[str], tables: Collection[str] = ()
) -> list[str]:
    """What a cubin's code uses that outlives a launch: names of global variables and device functions.

    `tables`: global variables that are only read, which are no state (ptx.py finds them).
    """
    elf = _elf(cubin)
    symbols = elf.get_section_by_name(".symtab")
    functions = set[str]()
    for symbol in symbols.iter_symbols():
        is_function = symbol["st_info"]["type"] == "STT_FUNC"
        if is_function and symbol["st_shndx"] == "SHN_UNDEF":
            functions.add(symbol.name)
    calls = [name for name in functions if not name.startswith(_SYSTEM_CALLS)]
    if calls:
        return sorted(calls)
    variables = global_variables(cubin)
    addresses, used = dict[int, str](), set[str]()
    for section in elf.iter_sections():
        if (bank := _RELOCATED.match(section.name)) is None:
            continue
        for relocation in section.iter_relocations():
            name = symbols.get_symbol(relocation["r_info_sym"]).name
            # Code takes addresses from constant bank 4, and constants of other banks may be addresses themselves. Some
            # compilers put them into the code.
            if bank[1] == "4":
                addresses[relocation["r_offset"]] = name
            elif bank[1] or name in variables:
                used.add(name)
    if any(_CONSTANTS.search(line) for line in instructions):
        used.add("constant memory by its address")
    listing = "\n".join(instructions)
    for name in _ADDRESS.findall(listing):
        offset = name.replace("RZ", "0x0")
        if not offset.startswith("0x"):  # a computed index may be of any
            used.update(addresses.values())
            continue
        # An address is two words.
        used.add(addresses.get(int(offset, 16) & ~7, "an address of its own"))
    return sorted(used.difference(functions, tables))


def global_variables(cubin: bytes) -> set[str]:
    """Names of what lies in a cubin's global memory."""
    elf, variables = _elf(cubin), set[str]()
    names = [section.name for section in elf.iter_sections()]
    for symbol in elf.get_section_by_name(".symtab").iter_symbols():
        place = symbol["st_shndx"]
        if isinstance(place, int) and names[place].startswith(".nv.global"):
            variables.add(symbol.name)
    return variables


def machine_code_digest(cubin: bytes) -> str:
    """SHA-256 of instructions, constants, resources and launch attributes; names of symbols do not count."""
    total = hashlib.sha256()
    for section in _elf(cubin).iter_sections():
        if part := _PARTS.match(section.name):
            total.update(
                f"{part[0]}\0{section['sh_flags']}\0{section['sh_size']}\0".encode()
            )
            total.update(section.data() if section["sh_type"] != "SHT_NOBITS" else b"")
    return total.hexdigest()
