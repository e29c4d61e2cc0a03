"""Variants compiled here and now, for tests that look at machine code."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ladder.build.nvrtc import Request
from ladder.build.sources import source_digest
from ladder.build.variants import variant_facts
from ladder.model.kernel import Variant


def compile_variant(
    variant: Variant, include: Path, arch: str, options: Sequence[str] = ()
) -> tuple[bytes, dict[str, Any]]:
    """(cubin, facts) of one variant."""
    source = variant.kernel.source
    request = Request(source, source_digest(source, include), include, (variant.entry,), arch, tuple(options))
    cubin, found = request.compile()
    facts = variant_facts(variant, request, found)
    return cubin if facts["status"] == "ok" else b"", facts
