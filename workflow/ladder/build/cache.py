"""Answers of the compiler by what they are made from: one folder for every run of a checkout."""

import logging
import multiprocessing
import resource
from collections.abc import Sequence
from concurrent.futures import Future, TimeoutError, as_completed
from pathlib import Path
from typing import Any

from pebble import ProcessExpired, ProcessPool

from ladder.build.cubin import disassemble, instruction_counts
from ladder.build.nvrtc import Request
from ladder.model.files import read_json, replace_file, write_json

_MEMORY_BYTES = 16 * 2**30
"""Of one compiler: templates that grow exponentially must not take the host down."""


_BATCH = 32
"""Cubins that one run of the disassembler counts."""


def _limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))


def _compile(request: Request) -> tuple[bytes, dict[str, Any]]:
    return request.compile()


class Cache:
    """A folder of cubins and facts, named by the keys of requests. It may be deleted at any time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def facts(self, request: Request) -> dict[str, Any] | None:
        """What is known of a request; None where it must be compiled."""
        return read_json(self.folder / f"{request.key}.json")

    def _keep(self, answers: Sequence[tuple[Request, bytes, dict[str, Any]]]) -> None:
        """Count the instructions of cubins for one architecture, and write all down."""
        listings = disassemble([cubin for _, cubin, _ in answers if cubin], answers[0][0].arch)
        counts = iter([instruction_counts(listing) for listing in listings])
        for request, cubin, facts in answers:
            replace_file(self.folder / f"{request.key}.cubin", cubin)
            write_json(self.folder / f"{request.key}.json", facts | (next(counts) if cubin else {}))

    def fill(self, requests: Sequence[Request], jobs: int, timeout_s: float) -> dict[str, dict[str, Any]]:
        """Facts by key; what is missing is compiled, `jobs` at once. All are for one architecture.

        A compiler that crashes, takes longer than `timeout_s` or runs out of memory costs its own request alone, and
        the cache does not keep that. Raises LadderError where the set-up lacks something.
        """
        asked = {request.key: request for request in requests}
        missing = [request for request in asked.values() if self.facts(request) is None]
        lost = dict[str, dict[str, Any]]()
        answers = list[tuple[Request, bytes, dict[str, Any]]]()
        # Forked, so that nothing is imported anew: the processes only compile.
        fork = multiprocessing.get_context("fork")
        with ProcessPool(min(jobs, len(missing)) or 1, initializer=_limit_memory, context=fork) as pool:
            futures: dict[Future[tuple[bytes, dict[str, Any]]], Request] = {
                pool.schedule(_compile, args=[request], timeout=timeout_s): request for request in missing
            }
            for done, future in enumerate(as_completed(futures), 1):
                request, reason = futures[future], ""
                try:
                    answers.append((request, *future.result()))
                except TimeoutError:
                    reason = f"the compiler took longer than {timeout_s:g} s (compile.timeout_s)"
                except MemoryError as error:
                    reason = f"{error} (of {_MEMORY_BYTES >> 30} GiB)"
                except ProcessExpired as error:
                    limit = f"it may use {_MEMORY_BYTES >> 30} GiB"
                    reason = f"the compiler crashed (exit code {error.exitcode}); {limit}"
                if reason:
                    lost[request.key] = {"status": "compile_error", "reason": reason}
                logging.info("[%d/%d] %s", done, len(missing), request.entries[0])
                if answers and (len(answers) == _BATCH or done == len(missing)):
                    self._keep(answers)
                    answers.clear()
        return {key: lost.get(key) or self.facts(request) or {} for key, request in asked.items()}
