"""Answers of the compiler by what they are made from: one folder for every run of a checkout."""

import contextlib
import logging
import multiprocessing
import resource
import tempfile
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import TimeoutError
from pathlib import Path
from typing import Any

from pebble import ProcessExpired, ProcessPool

from ladder.build.cubin import (
    disassemble,
    global_variables,
    instruction_counts,
    persistent_symbols,
)
from ladder.build.nvrtc import Request
from ladder.build.sources import source_digest, source_files
from ladder.build.triton_request import TritonRequest
from ladder.model.errors import LadderError, refuse
from ladder.model.files import read_json, replace_file, sha256, write_json

# Of one compiler: templates that grow exponentially must not take the host down.
_MEMORY_BYTES = 8 * 2**30

_BATCH = 32  # cubins at most that one run of the disassembler counts


Compilable = Request | TritonRequest
_Answer = tuple[Compilable, bytes, dict[str, Any]]
"""A request, its cubin, which is empty where it does not compile, and its facts."""


def _state(cubin: bytes, listing: Sequence[str], tables: Collection[str]) -> str:
    """What a kernel uses that outlives a launch, and what it may use instead; empty without anything."""
    names = persistent_symbols(cubin, listing, tables)
    reason = f"uses what outlives a launch: {', '.join(names)}" if names else ""
    if global_variables(cubin).intersection(names):
        accepted = "__constant__ memory, an array inside the kernel, or a table that is only read"
        reason += f"; in place of a global variable accepted: {accepted}"
    return reason


def _answer(request: Compilable) -> tuple[bytes, dict[str, Any]]:
    """The answer to a request. Raises LadderError where a file was saved since its digest was taken.

    Its answer would be kept as that of the text before, also where that text comes back.
    """
    folders = (request.source, *request.includes)
    saved = [file.stat().st_ctime_ns for file in source_files(*folders)]
    answer = request.compile()
    as_saved = [file.stat().st_ctime_ns for file in source_files(*folders)] == saved
    if not as_saved or source_digest(*folders) != request.source_sha256:
        why = "it or a file that it includes was saved after this step had read it"
        raise LadderError(f"{request.source}: {why}; nothing is kept: start it again")
    return answer


class Cache:
    """A folder of cubins and facts, named by the keys of requests. It may be deleted at any time.

    `published`: facts by the last of a request's keys, for those who need no cubins: what is published of a request is
    not compiled, and known where its compiler is missing.
    """

    def __init__(
        self, folder: Path, published: Mapping[str, dict[str, Any]] | None = None
    ) -> None:
        self.folder = folder
        self.published = published or {}

    def facts(self, request: Compilable) -> dict[str, Any] | None:
        """The facts of a request; None where it must be compiled, as after its files were deleted or cut short."""
        with contextlib.suppress(LadderError, OSError, KeyError):
            facts = read_json(self.folder / f"{request.key}.json") or {}
            cubin = (self.folder / f"{request.key}.cubin").read_bytes()
            if facts["status"] == "compile_error":
                return facts
            # Facts of older releases lack the parameters.
            if facts["cubin_sha256"] == sha256(cubin) and "parameter_bytes" in facts:
                return facts
        return self.published.get(request.keys[-1])

    def _keep(self, answers: Sequence[_Answer]) -> None:
        """Count the instructions of cubins for one architecture, and write all down."""
        cubins = [cubin for _, cubin, _ in answers if cubin]
        listings = iter(disassemble(cubins, answers[0][0].arch))
        for request, cubin, facts in answers:
            if cubin:
                listing = next(listings)
                facts |= instruction_counts(listing)
                reason = _state(cubin, listing, facts.get("tables", ()))
                if reason and facts["status"] == "ok":
                    facts |= {"status": "stateful", "reason": reason}
            log = facts.pop("log", "").encode()
            for key in request.keys:
                replace_file(self.folder / f"{key}.log", log)
                replace_file(self.folder / f"{key}.cubin", cubin)
                write_json(self.folder / f"{key}.json", facts)

    def _refuse_if_not_writable(self) -> None:
        """Raises LadderError where nothing can be kept: before anything is compiled in vain."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder):
                pass
        except OSError as error:
            accepted = "a folder to write to"
            why = f"no file can be written there ({error.strerror})"
            place = str(self.folder)
            raise refuse(
                "configuration", "compile.cache", place, accepted, why
            ) from error

    def fill(
        self, requests: Sequence[Compilable], jobs: int, timeout_s: float
    ) -> dict[str, dict[str, Any]]:
        """Facts by key; what is missing is compiled, `jobs` at once. All are for one architecture.

        A compiler that crashes, takes longer than `timeout_s` or needs too much memory costs its own request alone, and
        that is not kept; nor is that Triton is missing. Raises LadderError where something of the set-up is missing.
        """
        by_key = {request.key: request for request in requests}
        facts = {key: self.facts(request) for key, request in by_key.items()}
        missing = list[Compilable]()
        for key, request in by_key.items():
            if facts[key] is None and request.missing:
                facts[key] = {"status": "unsupported", "reason": request.missing}
            elif facts[key] is None:
                missing.append(request)
        if missing:
            self._refuse_if_not_writable()
            facts |= self._compile(missing, min(jobs, len(missing)), timeout_s)
        return {key: facts[key] or self.facts(by_key[key]) or {} for key in facts}

    def _compile(
        self, missing: Sequence[Compilable], jobs: int, timeout_s: float
    ) -> dict[str, dict[str, Any]]:
        """Keep the answers; facts of those without one, which are not kept.

        Raises the last LadderError of a compiler, behind what the others answer.
        """
        without = {}
        answers = list[_Answer]()
        mistake: LadderError | None = None
        memory = f"{_MEMORY_BYTES >> 30} GiB"
        # Not forked: the pool replaces a crashed process while this one has threads, and a lock that one of them holds
        # would stay locked in the fork. No fork server: its socket fails under a long TMPDIR.
        context = multiprocessing.get_context("spawn")
        limit = (resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
        with ProcessPool(jobs, 0, resource.setrlimit, limit, context) as pool:
            results = pool.map(_answer, missing, timeout=timeout_s).result()
            for done, request in enumerate(missing, 1):
                reason = ""
                try:
                    answers.append((request, *next(results)))
                except LadderError as error:
                    mistake = error
                except TimeoutError:
                    reason = f"the compiler took longer than {timeout_s:g} s (compile.timeout_s)"
                except MemoryError as error:
                    reason = f"{error} (of {memory})"
                except (ProcessExpired, ChildProcessError) as error:
                    code = getattr(error, "exitcode", error)
                    reason = (
                        f"the compiler crashed (exit code {code}); it may use {memory}"
                    )
                if reason:
                    without[request.key] = {"status": "compile_error", "reason": reason}
                logging.info("[%d/%d] %s", done, len(missing), request.entries[0])
                if len(answers) == _BATCH:
                    self._keep(answers)
                    answers = []
        if answers:
            self._keep(answers)
        if mistake is not None:
            raise mistake
        return without
