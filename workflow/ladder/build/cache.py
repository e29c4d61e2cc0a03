"""Answers of the compiler by what they are made from: one folder for every run of a checkout."""

import logging
import multiprocessing
import resource
from collections.abc import Iterable
from concurrent.futures import Future, TimeoutError, as_completed
from pathlib import Path
from typing import Any

from pebble import ProcessExpired, ProcessPool

from ladder.build.nvrtc import Request
from ladder.model.files import read_json, replace_file, write_json

_MEMORY_BYTES = 16 * 2**30
"""Of one compiler: templates that grow exponentially must not take the host down."""


def _limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))


class Cache:
    """A folder of cubins and facts, named by the keys of requests. It may be deleted at any time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def facts(self, request: Request) -> dict[str, Any] | None:
        """What is known of a request; None where it must be compiled."""
        return read_json(self.folder / f"{request.key}.json")

    def compile(self, request: Request) -> None:
        """Compile a request and keep the answer."""
        cubin, facts = request.compile()
        replace_file(self.folder / f"{request.key}.cubin", cubin)
        write_json(self.folder / f"{request.key}.json", facts)

    def fill(self, requests: Iterable[Request], jobs: int, timeout_s: float) -> dict[str, dict[str, Any]]:
        """Facts by key; what is missing is compiled, `jobs` at once.

        Each is compiled in a process of its own: a compiler that crashes or takes longer than `timeout_s` harms no
        other, and is asked again the next time.
        """
        asked = {request.key: request for request in requests}
        missing = [request for request in asked.values() if self.facts(request) is None]
        lost = dict[str, dict[str, Any]]()
        # Forked, so that nothing is imported anew: the processes only compile.
        fork = multiprocessing.get_context("fork")
        with ProcessPool(min(jobs, len(missing)) or 1, initializer=_limit_memory, context=fork) as pool:
            futures: dict[Future[None], Request] = {
                pool.schedule(self.compile, args=[request], timeout=timeout_s): request for request in missing
            }
            for done, future in enumerate(as_completed(futures), 1):
                request, reason = futures[future], ""
                try:
                    future.result()
                except TimeoutError:
                    reason = f"the compiler took longer than {timeout_s:g} s (compile.timeout_s)"
                except ProcessExpired as error:
                    reason = f"the compiler crashed (exit code {error.exitcode})"
                if reason:
                    lost[request.key] = {"status": "compile_error", "reason": reason}
                logging.info("[%d/%d] %s", done, len(missing), request.entries[0])
        return {key: lost.get(key) or self.facts(request) or {} for key, request in asked.items()}
