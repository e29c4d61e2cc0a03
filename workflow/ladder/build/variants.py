"""Variants and the compiler: what it must compile for one, and what its facts say."""

import functools
import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from ladder.build.nvrtc import Request
from ladder.build.occupancy import occupancy
from ladder.build.sources import source_digest
from ladder.model.architecture import TUNED_FOR, limits_of
from ladder.model.code import PACKAGE
from ladder.model.kernel import Variant
from ladder.model.problem import HARNESS, Problem
from ladder.model.sweep import Sweep


def _about(variant: Variant, arch: str) -> dict[str, Any]:
    about: dict[str, Any] = {"variant": variant.id, "kernel": variant.kernel.name}
    about |= {"params": dict(variant.params), "dtype": variant.dtype, "layout": variant.layout}
    return about | {"arch": arch, "entry": variant.entry}


def variant_facts(
    variant: Variant, request: Request, found: Mapping[str, Any], reserved: Collection[str] = ()
) -> dict[str, Any]:
    """Facts of a variant from what was `found` out about its machine code: a row of resources.csv.

    `reserved` are symbols of the harness, by which timestamps tell its kernels from others.
    """
    facts: dict[str, Any] = {**_about(variant, request.arch), "cubin": request.key, **found}
    if found.get("status") != "ok":
        return facts
    if taken := sorted({*found["symbols"].values()} & {*reserved}):
        reason = f"the symbol {taken[0]} is that of a kernel of the harness; accepted: any other name"
        return facts | {"status": "compile_error", "reason": reason}
    unexpected = variant.kernel.spills == "never" and request.arch == TUNED_FOR
    if found["spill_store_bytes"] and unexpected:
        why = f"{variant.kernel.path.name} does not say `spills: allowed`"
        reason = f"spills {found['spill_store_bytes']} bytes of registers, and {why}"
        return facts | {"status": "compile_error", "reason": reason}
    # Block and shared memory do not depend on the size.
    geometry = variant.geometry(dict.fromkeys(variant.kernel.problem.size_fields, 4096))
    threads, dynamic = math.prod(geometry.block), geometry.shared_bytes
    facts |= {"threads_per_block": threads, "shared_bytes_dynamic": dynamic}
    if limits := limits_of(request.arch):
        shared_bytes = found["shared_bytes_static"] + dynamic
        facts |= occupancy(limits, threads, found["registers"], shared_bytes)
    return facts


def harness(problem: Problem, dtype: str, arch: str) -> Request:
    """Our own device kernels for cells of a dtype: those of gpu/harness.cuh, and of the problem's check.cu."""
    include, source = PACKAGE / "gpu", PACKAGE / "problems" / problem.name / "check.cu"
    return Request(
        source, source_digest(source, include), (include,), (*HARNESS, *problem.harness(dtype)), arch
    )


class CompileRequests:
    """What a sweep needs compiled: a harness for each dtype, and the variants that it launches on `arch`.

    Raises LadderError for a missing header.
    """

    def __init__(self, sweep: Sweep, include: Path, arch: str, options: Sequence[str]) -> None:
        digest, absent = functools.cache(source_digest), sweep.never_launched(arch)
        launched = [one for one in sweep.variants if one not in absent]
        dtypes = sorted({one.dtype for one in launched})
        self.harness = {dtype: harness(sweep.problem, dtype, arch) for dtype in dtypes}
        self.variants = {
            one: Request(source, digest(source, *includes), includes, (one.entry,), arch, tuple(options))
            for one, source, includes in (
                (variant, variant.kernel.source, (include, *variant.kernel.includes)) for variant in launched
            )
        }
        self.absent = {
            one.id: {**_about(one, arch), "status": "unsupported", "reason": why}
            for one, why in absent.items()
        }
        self.requests = [*self.harness.values(), *self.variants.values()]

    def facts(self, found: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """The fields `harness` and `variants` of a plan, from the facts `found` by key."""
        reserved = {
            symbol for one in self.harness.values() for symbol in found[one.key].get("symbols", {}).values()
        }
        own = {
            one.id: variant_facts(one, given, found[given.key], reserved)
            for one, given in self.variants.items()
        }
        harness = {dtype: {**found[one.key], "cubin": one.key} for dtype, one in self.harness.items()}
        return {"harness": harness, "variants": own | self.absent}
