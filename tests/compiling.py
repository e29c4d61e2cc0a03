"""Kernels compiled here and now, for tests that look at machine code or run PTX.

The output of the compiler is kept in .cache/tests by all that it is made from: the source with the headers it includes,
entries, architecture, options, the version of NVRTC and our own code around it. Beside it lies what runs of the
emulator came to (emulator/outcomes.py). `make clean` empties it.
"""

import contextlib
import functools
import gzip
import os
import pickle
import re
import shutil
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import closures
from ladder.build.cache import Cache, Compilable
from ladder.build.cubin import disassemble, instruction_counts
from ladder.build.cubin import parameter_bytes as parameters_of
from ladder.build.nvrtc import Request, compile_source, nvrtc_version
from ladder.build.variants import variant_facts, variant_request
from ladder.model.files import digest_json, replace_file, sha256
from ladder.model.kernel import Variant

_ROOT = Path(__file__).resolve().parents[1]
KEPT = _ROOT / ".cache" / "tests"
DAYS = 30
"""How long what no test uses is kept."""

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<](.+?)[">]', re.MULTILINE)


def _kept_in(made_from: Sequence[Any]) -> Path:
    versions = [
        nvrtc_version(),
        closures.digest("ladder.build.nvrtc"),
        sha256(Path(__file__).read_bytes()),
    ]
    return KEPT / f"{digest_json([*versions, *made_from])}.gz"


def _read(path: Path) -> Any:
    """What was kept; None where it must be made, as where its file was cut short."""
    with contextlib.suppress(OSError, EOFError, zlib.error):
        found = pickle.loads(gzip.decompress(path.read_bytes()))
        os.utime(path)
        return found
    return None


def _keep(path: Path, made: Any) -> None:
    replace_file(path, gzip.compress(pickle.dumps(made), 1))


def kept(
    made_from: Sequence[Any],
    make: Callable[[], Any],
    keep: Callable[[Any], bool] = bool,
) -> Any:
    """What `make` returned for the same `made_from`, plain data for JSON, here or in another process."""
    path = _kept_in(made_from)
    if (found := _read(path)) is None and keep(found := make()):
        _keep(path, found)
    return found


def kept_cache() -> Cache:
    """The workflow's own cache of cubins and facts, kept as long as the code that fills it is the same."""
    folder = KEPT / f"cubins-{closures.digest('ladder.build.cache')[:16]}"
    folder.mkdir(parents=True, exist_ok=True)
    os.utime(folder)
    return Cache(folder)


def forget_unused(days: float = DAYS) -> None:
    """Delete what was not used for so long."""
    for path in KEPT.glob("*"):
        with contextlib.suppress(OSError):  # another process was faster
            if time.time() - path.stat().st_mtime > days * 86400:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


_included = functools.cache(_INCLUDE.findall)
"""Names of the headers in a source."""


def _with_headers(text: str, folders: Sequence[Path]) -> list[list[str]]:
    """Digests of a source and of all the headers that it includes, wherever they lie; sorted."""
    everywhere = [os.fspath(one) for one in folders]
    digests = {("", sha256(text.encode()))}
    read = set[str]()
    todo = [(text, everywhere)]
    while todo:
        source, places = todo.pop()
        for name in _included(source):
            paths = (os.path.normpath(os.path.join(one, name)) for one in places)
            path = next(filter(os.path.isfile, paths), None)
            if path is None or path in read:
                continue  # CUDA's own belong to NVRTC's version.
            read.add(path)
            included = Path(path).read_text(encoding="utf-8")
            digests.add((name, sha256(included.encode())))
            todo.append((included, [os.path.dirname(path), *everywhere]))
    return sorted(map(list, digests))


def compile_text(
    text: str, entries: Sequence[str], includes: Sequence[Path], arch: str
) -> bytes:
    """Cubin of `entries`, name expressions. Raises CompileError with the compiler's message."""

    def make() -> bytes:
        return compile_source(text, "text.cu", list(entries), list(includes), arch)[0]

    made_from = ["cubin", _with_headers(text, includes), list(entries), arch]
    return bytes(kept(made_from, make))


def compile_request(request: Compilable) -> tuple[bytes, dict[str, Any]]:
    """(cubin, facts) of a request; what does not compile is compiled each time, since messages name folders."""
    cubin, facts = kept(
        ["request", request.key],
        request.compile,
        keep=lambda made: made[1]["status"] == "ok",
    )
    return cubin, facts


def compile_variants(
    variants: Sequence[Variant], include: Path, arch: str
) -> list[tuple[bytes, dict[str, Any]]]:
    """(cubin, facts) of each; no cubin unless its status is ok. The disassembler, which starts slowly, runs once."""
    requests = [variant_request(one, include, arch) for one in variants]
    answers = [compile_request(one) for one in requests]
    listed = iter(listings([cubin for cubin, _ in answers if cubin], arch))
    found = []
    for variant, request, (cubin, answer) in zip(
        variants, requests, answers, strict=True
    ):
        counts = instruction_counts(next(listed)) if cubin else {}
        facts = variant_facts(variant, request, answer | counts)
        found.append((cubin if facts["status"] == "ok" else b"", facts))
    return found


def compile_variant(
    variant: Variant, include: Path, arch: str
) -> tuple[bytes, dict[str, Any]]:
    """(cubin, facts) of one variant; no cubin unless its status is ok."""
    return compile_variants([variant], include, arch)[0]


def compiled_without_spills(variants: Sequence[Variant]) -> list[bytes]:
    """Cubins of variants for Hopper."""
    found = compile_variants(variants, _ROOT / "kernels" / "include", "sm_90a")
    for variant, (_, facts) in zip(variants, found, strict=True):
        assert facts["status"] == "ok", (variant.id, facts["reason"])
        assert (facts["spill_store_bytes"], facts["local_bytes"]) == (0, 0), variant.id
    return [cubin for cubin, _ in found]


def compile_ptx(
    source: Path, entry: str, includes: Sequence[Path], text: str | None = None
) -> str:
    """PTX of one instance of a template for compute_90; `text` stands in for the source."""
    source_text = text or source.read_text(encoding="utf-8")
    folders = [source.parent, *includes]

    def make() -> str:
        made = compile_source(source_text, source.name, [entry], folders, "compute_90")
        return made.ptx

    return str(kept(["ptx", _with_headers(source_text, folders), entry], make))


def parameter_bytes(request: Request) -> dict[str, list[int]]:
    """Bytes of each parameter of the entries."""
    code, facts = compile_request(request)
    symbols = facts["symbols"].items()
    return {entry: parameters_of(code, symbol) for entry, symbol in symbols}


def listings(cubins: Sequence[bytes], arch: str) -> list[list[str]]:
    """SASS of each cubin, one instruction a line; all that are missing by one run of the disassembler."""
    paths = [_kept_in(["sass", sha256(cubin), arch]) for cubin in cubins]
    found = [_read(path) for path in paths]
    missing = [at for at, one in enumerate(found) if one is None]
    made = disassemble([cubins[at] for at in missing], arch) if missing else []
    for at, listing in zip(missing, made, strict=True):
        found[at] = listing
        _keep(paths[at], listing)
    return found


def instructions(cubin: bytes, arch: str) -> list[str]:
    """SASS of one cubin."""
    return listings([cubin], arch)[0]


def opcodes(cubin: bytes, arch: str) -> list[str]:
    """Opcodes with modifiers of a cubin's instructions, in their order."""
    return [
        re.sub(r"^@!?U?P\w+\s+", "", line).split()[0]
        for line in instructions(cubin, arch)
    ]
