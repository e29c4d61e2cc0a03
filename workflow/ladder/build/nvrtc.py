"""NVRTC: kernels of one source to a cubin and its facts; a compile error is data, not an exception."""

import contextlib
import functools
import os
import re
import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from cuda.bindings import nvrtc

from ladder.build.cubin import (
    FACTS_VERSION,
    kernel_names,
    machine_code_digest,
    parameter_bytes,
    resources,
)
from ladder.build.ptx import tables
from ladder.build.sources import (
    header_folders,
    include_closure,
    read_source,
    without_comments,
)
from ladder.model.errors import LadderError, refuse
from ladder.model.files import digest_json, sha256

_PROPERTIES = r"^ptxas info +: Function properties for {}\nptxas +\. +"
"""How the lines of ptxas about a symbol begin."""
_LIST_FILES = "-Xcudafe=--trace_includes"
"""The front end's option that lists the files it opens on standard error, indented by depth."""
_BUILT_IN = "__nv_"
_PTXAS = re.compile(r"ptxas +(?:fatal|error|warning|info) *:")
"""How a message of ptxas begins, which it writes to standard error where it cannot go on."""
_NO_MEMORY = re.compile("out of memory|Memory allocation failure")
_IGNORED = re.compile(r"\(?\b(C7508|C7511|C7515)\b\)?")
"""ptxas warnings that setmaxnreg was ignored or wgmma serialised: the kernel is not what its source says."""


_NOT_OF_THE_FILES = re.compile(
    r"\b__(?:DATE|TIME|TIMESTAMP)__|\b__has_include(?:_next)?\b"
)
"""Words by which one source becomes another machine code: at another time, and where a host has other files."""

_NOT_IN_NVRTC = re.compile(
    r'cannot open source file|considered a host function|identifier "(?:[A-Z_]+|u?int\d*_t|uint|printf)" is undefined'
)
_NO_ENTRY = re.compile(r'__nv_name_map\(\d+\): error: identifier "(\w+)" is undefined')
_NO_INSTANCE = re.compile(
    r'__nv_name_map\(\d+\): error: cannot determine which instance of function template "(\w+)"'
    r".*?#pragma nv_mangled_name ([^\n]+)",
    re.DOTALL,
)
_KERNEL = re.compile(r"\b__global__\s+void\s+(?:__\w+__\s*\([^()]*\)\s*)*(\w+)\s*\(")
_HINT = "NVRTC has no headers of the host and no host code: see 'From nvcc to NVRTC' in docs/add-a-kernel.md"


class CompileError(LadderError):
    """The compiler refuses a source or an option. Other errors are mistakes of the set-up."""


def _succeeded(result: tuple[Any, ...]) -> Any:
    """The last value of (status, value…) of an nvrtc call. Raises LadderError for a status other than success."""
    if result[0] != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise LadderError(f"NVRTC: {result[0].name}")
    return result[-1]


def _output(program: Any, kind: str) -> bytes:
    """What a program has made: its ProgramLog, CUBIN or PTX."""
    size: int = _succeeded(getattr(nvrtc, f"nvrtcGet{kind}Size")(program))
    data = b" " * size
    _succeeded(getattr(nvrtc, f"nvrtcGet{kind}")(program, data))
    return data


def nvrtc_version() -> str:
    """Version of the NVRTC library that is loaded, such as 13.0."""
    _, major, minor = nvrtc.nvrtcVersion()
    return f"{major}.{minor}"


@contextlib.contextmanager
def _standard_error() -> Iterator[Any]:
    """Inside, what this process writes to standard error goes to a file."""
    with tempfile.TemporaryFile() as file:
        kept = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield file
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def _refuse_other_files(
    opened: Sequence[str], files: Collection[Path], folders: Sequence[Path]
) -> None:
    """Raises CompileError for a file that was opened and is none of `files` nor CUDA's own: no digest holds it."""
    if not any(name.startswith(_BUILT_IN) for name in opened):
        raise LadderError(
            f"NVRTC {nvrtc_version()} does not list the files that it opens"
        )
    digested = {*map(_real, files)}
    ours, cuda = [*map(_real, folders)], [*map(_real, header_folders())]
    for name in opened:
        path = _real(name)
        if name.startswith(_BUILT_IN) or path in digested:
            continue
        if any(map(path.is_relative_to, cuda)):
            continue
        if any(map(path.is_relative_to, ours)):
            why = 'by an include that its digest does not follow; accepted: #include "FILE" on a line of its own'
        else:
            accepted = "the kernel's folder, of kernels/include, of folders that its description includes, and of CUDA"
            why = f"which is not accepted; accepted: files of {accepted}"
        raise CompileError(f"the compiler opens {name}, {why}")


def _refuse_words(files: Collection[Path]) -> None:
    """Raises CompileError for a word by which the same files become another machine code."""
    for file in files:
        text = read_source(file).replace("\\\n", "")  # as the compiler joins lines
        if word := _NOT_OF_THE_FILES.search(without_comments(text)):
            why = "its machine code would follow from more than the files that its digest holds"
            accepted = "a constant, or a plain #include, in its place"
            raise CompileError(f"{file.name}: {word[0]}: {why}; accepted: {accepted}")


def _real(name: Path | str) -> Path:
    return Path(os.path.realpath(name))


class Compiled(NamedTuple):
    """A cubin, symbols by name expression, the log with ptxas' resource lines, and the PTX that it was made from."""

    cubin: bytes
    symbols: dict[str, str]
    log: str
    ptx: str


def compile_source(
    text: str,
    name: str,
    entries: list[str],
    includes: list[Path],
    arch: str,
    options: tuple[str, ...] = (),
    files: Collection[Path] | None = None,
) -> Compiled:
    """`files`: all that it may open besides CUDA's headers; None where any will do.

    Raises CompileError and MemoryError.
    """
    # A cached cubin comes without the log, and with the compile time of a cache.
    flags = [f"--gpu-architecture={arch}", "--std=c++17", "--ptxas-options=-v"]
    flags += ["--no-cache", _LIST_FILES]
    flags += [f"--include-path={folder}" for folder in [*includes, *header_folders()]]
    encoded = [os.fsencode(flag) for flag in (*flags, *options)]
    created = nvrtc.nvrtcCreateProgram(text.encode(), os.fsencode(name), 0, [], [])
    program = _succeeded(created)
    try:
        for entry in entries:
            _succeeded(nvrtc.nvrtcAddNameExpression(program, entry.encode()))
        with _standard_error() as listing:
            (status,) = nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)
            listing.seek(0)
            written = listing.read().decode(errors="replace")
        opened, messages = list[str](), list[str]()
        for line in map(str.strip, written.splitlines()):
            is_message = _PTXAS.match(line) and not os.path.exists(line)
            (messages if is_message else opened).append(line)
        if files is not None and status != nvrtc.nvrtcResult.NVRTC_ERROR_INVALID_OPTION:
            # Ahead of the log, which may quote them.
            _refuse_other_files(opened, files, includes)
        # Where ptxas fails, its part of the log is joined by a NUL.
        log_bytes = _output(program, "ProgramLog").rstrip(b"\0 \n").replace(b"\0", b"")
        log = "\n".join(filter(None, [log_bytes.decode(errors="replace"), *messages]))
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            no_memory = status == nvrtc.nvrtcResult.NVRTC_ERROR_OUT_OF_MEMORY
            if no_memory or _NO_MEMORY.search(log):
                raise MemoryError(
                    ": ".join(["the compiler ran out of memory", *messages])
                )
            if missing := _NO_ENTRY.search(log):
                raise CompileError(
                    str(refuse(name, "entry", missing[1], _KERNEL.findall(text)))
                )
            if template := _NO_INSTANCE.search(log):
                accepted = f"{template[1]}<…> with every argument of the template"
                raise CompileError(
                    str(refuse(name, "entry", template[2].strip(), accepted))
                )
            raise CompileError(log or status.name)
        symbols = {}
        for entry in entries:
            lowered = _succeeded(nvrtc.nvrtcGetLoweredName(program, entry.encode()))
            symbols[entry] = lowered.decode()
        ptx = _output(program, "PTX").rstrip(b"\0").decode(errors="replace")
        return Compiled(_output(program, "CUBIN"), symbols, log, ptx)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def refuse_options(arch: str, options: Sequence[str]) -> None:
    """Raises LadderError for an architecture or an option that this NVRTC does not know."""
    text = "__global__ void empty() {}"
    try:
        compile_source(text, "empty.cu", ["empty"], [], arch, tuple(options))
    except CompileError as error:
        refused = f"NVRTC {nvrtc_version()} does not take {', '.join([arch, *options])}"
        raise LadderError(f"compile: {refused}: {error}") from error


@dataclass(frozen=True)
class Request:
    """What to compile: the kernels `entries` (name expressions) of one source, for an architecture.

    `includes` are folders of headers besides the source's own.
    """

    source: Path
    source_sha256: str
    includes: tuple[Path, ...]
    entries: tuple[str, ...]
    arch: str
    options: tuple[str, ...] = ()
    missing: ClassVar[str] = ""
    """Why nothing is compiled here: without NVRTC nothing of this package runs."""

    @functools.cached_property
    def key(self) -> str:
        """Digest of all that the answer depends on."""
        given = [self.entries, self.arch, self.options, self.source_sha256]
        return digest_json([*given, nvrtc_version(), FACTS_VERSION])[:32]

    @property
    def keys(self) -> tuple[str, ...]:
        """What an answer is kept as."""
        return (self.key,)

    def compile(self) -> tuple[bytes, dict[str, Any]]:
        """(cubin, facts); no bytes if it does not compile. Raises LadderError without CUDA's headers, MemoryError."""
        facts: dict[str, Any] = {
            "status": "ok",
            "reason": "",
            "nvrtc": nvrtc_version(),
            "source_sha256": self.source_sha256,
            "options": self.options,
        }
        files = include_closure(self.source, *self.includes)
        start = time.perf_counter()
        try:
            _refuse_words(files)
            made = compile_source(
                read_source(self.source),
                self.source.name,
                list(self.entries),
                [self.source.parent, *self.includes],
                self.arch,
                self.options,
                files,
            )
            self._refuse_other(made)
        except CompileError as error:
            hint = f"\n{_HINT}" if _NOT_IN_NVRTC.search(str(error)) else ""
            facts |= {"status": "compile_error", "reason": f"{error}{hint}"}
            return b"", facts
        finally:
            facts["compile_s"] = round(time.perf_counter() - start, 3)
        symbol = made.symbols[self.entries[0]]
        facts["symbols"] = made.symbols
        facts |= resources(made.log, _PROPERTIES.format(re.escape(symbol)))
        facts["cubin_sha256"] = sha256(made.cubin)
        facts["machine_code"] = machine_code_digest(made.cubin)
        facts["parameter_bytes"] = parameter_bytes(made.cubin, symbol)
        facts["tables"] = tables(made.ptx)
        facts["log"] = made.log
        return made.cubin, facts

    def _refuse_other(self, made: Compiled) -> None:
        """Raises CompileError for machine code that is not what the source says, or another kernel beside it."""
        if ignored := _IGNORED.search(made.log):
            why = "the compiler did not do what the source says"
            raise CompileError(f"{ignored[1]}: {why}: {made.log[:2000]}")
        described = [*made.symbols.values()]
        kernels = kernel_names(made.cubin)
        if len(self.entries) == 1 and kernels != described:
            others = ", ".join(name for name in kernels if name not in described)
            why = f"{self.entries[0]} is the kernel that is described; accepted: one __global__ function a file"
            raise CompileError(f"{self.source.name} has other kernels, {others}: {why}")
