"""Variants and the compiler: what is asked for one, and what its facts say."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ladder.build.nvrtc import Request
from ladder.build.occupancy import occupancy, sm_limits
from ladder.model.kernel import Variant, arch_number


def _block_facts(variant: Variant, arch: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Threads, dynamic shared bytes and theoretical occupancy; launch bounds do not depend on the size."""
    geometry = variant.geometry(dict.fromkeys(variant.kernel.problem.size_fields, 4096))
    threads, dynamic = math.prod(geometry.block), geometry.shared_bytes
    found = {"threads_per_block": threads, "shared_bytes_dynamic": dynamic}
    limits = sm_limits(arch_number(arch))
    if limits is None:
        return found
    held = occupancy(limits, threads, facts["registers"], facts["shared_bytes_static"] + dynamic)
    return found | asdict(held)


def request_of(variant: Variant, include: Path, arch: str, options: Sequence[str] = ()) -> Request:
    """What is asked of the compiler for a variant."""
    return Request(variant.kernel.source, include, (variant.entry,), arch, tuple(options))


def variant_facts(variant: Variant, request: Request, found: Mapping[str, Any]) -> dict[str, Any]:
    """Facts of a variant from what was `found` out about its machine code: a row of resources.csv."""
    facts = {"variant": variant.id, "kernel": variant.kernel.name, "params": dict(variant.params)}
    facts |= {"dtype": variant.dtype, "layout": variant.layout, "arch": request.arch}
    facts |= {"entry": variant.entry, "cubin": request.key}
    facts |= found
    if found.get("status") != "ok":
        return facts
    if found["spill_store_bytes"] and variant.kernel.spills == "never":
        why = f"{variant.kernel.path.name} does not say `spills: allowed`"
        reason = f"spills {found['spill_store_bytes']} bytes of registers, and {why}"
        return facts | {"status": "compile_error", "reason": reason}
    return facts | _block_facts(variant, request.arch, found)


def compile_variant(
    variant: Variant, include: Path, arch: str, options: Sequence[str] = ()
) -> tuple[bytes, dict[str, Any]]:
    """(cubin, facts) of one variant, compiled here and now."""
    request = request_of(variant, include, arch, options)
    cubin, found = request.compile()
    facts = variant_facts(variant, request, found)
    return cubin if facts["status"] == "ok" else b"", facts
