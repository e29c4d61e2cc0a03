"""Triton: a kernel to a cubin and its facts, in a process of its own; a compile error is data, not an exception."""

import functools
import importlib.metadata
import importlib.util
import json
import os
import re
import site
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field

from ladder.build import triton_compiler as program
from ladder.build.cubin import (
    FACTS_VERSION,
    kernel_names,
    machine_code_digest,
    parameter_bytes,
    resources,
)
from ladder.build.triton_sources import import_closure
from ladder.model.architecture import arch_number
from ladder.model.errors import LadderError
from ladder.model.files import digest_json, file_sha256, sha256

MISSING = "Triton is not installed: pip install -e '.[triton]', or compile on a host that has it and copy the cache"
_SWIZZLES = ("none", "32B", "64B", "128B")
_CHANGED = (
    "{}: while it was compiled, {} changed, which every Python of this environment runs: nothing is measured in it; "
    "accepted: a kernel that writes no files. Delete that file or install the environment anew"
)
_LONGEST = 4000  # of a message of the compiler
_KEPT = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH")
"""What of the environment the compiler is given."""

Count = Annotated[int, Field(ge=0, lt=2**31)]


class _TensorMap(BaseModel):
    box: Annotated[
        list[Annotated[int, Field(ge=1, le=256)]], Field(min_length=1, max_length=3)
    ]
    swizzle: Annotated[int, Field(ge=0, lt=len(_SWIZZLES))]


class _Answer(BaseModel):
    """What triton_compiler leaves, which the kernel's file has had a hand in."""

    symbol: str
    threads: Annotated[int, Field(ge=32, le=1024)]
    shared_bytes: Count
    tensor_maps: list[_TensorMap]


@functools.cache
def compiler() -> str:
    """Versions of Triton and of each ptxas that it brings, such as "triton 3.6.0, ptxas 12.8.93"; empty without it."""
    try:
        versions = [f"triton {importlib.metadata.version('triton')}"]
    except importlib.metadata.PackageNotFoundError:
        return ""
    spec = importlib.util.find_spec("triton")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for tool in sorted(Path(folder, "backends", "nvidia", "bin").glob("ptxas*")):
            done = subprocess.run(
                [tool, "--version"], capture_output=True, text=True, check=False
            )
            for number in re.findall(r"\bV(\d[\d.]*)", done.stdout):
                versions.append(f"{tool.name} {number}")
    return ", ".join(versions)


def _run_by_every_python() -> dict[str, str]:
    """SHA-256 of each file that a Python of this environment runs before anything else, by its path."""
    names = ("*.pth", "sitecustomize.py", "usercustomize.py")
    files = dict[str, str]()
    for folder in {*sys.path, site.getusersitepackages()}:
        for name in names:
            for file in Path(folder).glob(name):
                files[str(file)] = file_sha256(file)
    return files


@dataclass(frozen=True)
class TritonRequest:
    """What to compile: the function `entry` of a file, for an architecture.

    `includes` are folders of modules besides the source's own. `types`, `hints`: of the arguments that are no
    constants, in order: as Triton names them, and whether each is divisible by 16. `options`: num_warps,
    num_stages, num_ctas.
    """

    source: Path
    source_sha256: str
    includes: tuple[Path, ...]
    entry: str
    types: tuple[str, ...]
    hints: tuple[bool, ...]
    constants: Mapping[str, Any]
    options: Mapping[str, int]
    arch: str
    compiler: str

    @property
    def entries(self) -> tuple[str, ...]:
        return (self.entry,)

    def _key(self, compiler: str) -> str:
        document = {**asdict(self), "compiler": compiler}
        del document["source"], document["includes"]
        return digest_json([document, FACTS_VERSION])[:32]

    @functools.cached_property
    def key(self) -> str:
        """Digest of all that the answer depends on."""
        return self._key(self.compiler)

    @property
    def keys(self) -> tuple[str, ...]:
        """What an answer is kept as: also as that of a host without Triton, which takes that of another host."""
        return (self.key, self._key(""))

    @property
    def missing(self) -> str:
        """Why nothing is compiled here, where that is so."""
        return "" if self.compiler else MISSING

    def compile(self) -> tuple[bytes, dict[str, Any]]:
        """(cubin, facts); no bytes if it does not compile. Raises ChildProcessError where the compiler crashes.

        Raises LadderError where the kernel's Python changed this environment: nothing may follow in it.
        """
        facts: dict[str, Any] = {
            "status": "ok",
            "reason": "",
            "triton": self.compiler,
            "source_sha256": self.source_sha256,
            "options": dict(self.options),
        }
        start = time.perf_counter()
        with tempfile.TemporaryDirectory(prefix="ladder-triton-") as folder:
            place = Path(folder)
            before = _run_by_every_python()
            log = self._run(place)
            changed = before.items() ^ _run_by_every_python().items()
            if changed:
                raise LadderError(_CHANGED.format(self.source, min(changed)[0]))
            facts["compile_s"] = round(time.perf_counter() - start, 3)
            try:
                answer = json.loads((place / program.ANSWER).read_bytes())
                if "error" in answer:
                    raise ValueError(answer["error"])
                cubin = (place / program.CUBIN).read_bytes()
                facts |= self._launch(_Answer.model_validate(answer), cubin)
                facts |= resources(log)
                facts["log"] = log
            except (LadderError, OSError, LookupError, ValueError, TypeError) as error:
                reason = str(error)[:_LONGEST]
                return b"", facts | {"status": "compile_error", "reason": reason}
        facts["cubin_sha256"] = sha256(cubin)
        facts["machine_code"] = machine_code_digest(cubin)
        return cubin, facts

    def _run(self, place: Path) -> str:
        """Have the program compile in an empty folder: what it prints."""
        files = import_closure(self.source, *self.includes)
        asked = asdict(self) | {
            "source": str(self.source.resolve()),
            "includes": [str(folder.resolve()) for folder in self.includes],
            "files": [str(file.resolve()) for file in files],
            "arch": arch_number(self.arch),
        }
        (place / program.REQUEST).write_text(json.dumps(asked))
        packages = map(os.path.abspath, filter(None, sys.path))
        # No GPU to look at, and nothing left behind. Line numbers would make a cubin another one in each folder.
        environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
        environment |= {
            "PYTHONPATH": os.pathsep.join(packages),
            "CUDA_VISIBLE_DEVICES": "",
            "TRITON_DUMP_PTXAS_LOG": "1",
            "TRITON_DISABLE_LINE_INFO": "1",
        }
        environment |= dict.fromkeys(("HOME", "TMPDIR", "TRITON_CACHE_DIR"), str(place))
        done = subprocess.run(
            [sys.executable, "-P", "-B", program.__file__],
            cwd=place,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            text=True,
            errors="replace",
        )
        if done.returncode:
            last = done.stderr.strip().rpartition("\n")[2]
            raise ChildProcessError(f"{done.returncode}: {last[:400]}")
        return done.stdout

    def _launch(self, answer: _Answer, cubin: bytes) -> dict[str, Any]:
        """What a launch must know. Raises ValueError for other kernels, or as many descriptors as no arguments are."""
        symbol, maps = answer.symbol, answer.tensor_maps
        if (kernels := kernel_names(cubin)) != [symbol]:
            raise ValueError(
                f"its cubin has the kernels {kernels}; accepted: one, {symbol}"
            )
        wanted = sum(kind.startswith("tensordesc") for kind in self.types)
        if wanted != len(maps):
            raise ValueError(
                f"the compiler made {len(maps)} tensor maps; accepted: {wanted}"
            )
        return {
            "symbols": {self.entry: symbol},
            "threads": answer.threads,
            "shared_bytes": answer.shared_bytes,
            "parameter_bytes": parameter_bytes(cubin, symbol),
            "tensor_maps": [
                {"box": each.box, "swizzle": _SWIZZLES[each.swizzle]} for each in maps
            ],
        }
