"""Variants compiled here and now, for tests that look at machine code."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ladder.build.cubin import disassemble, instruction_counts
from ladder.build.nvrtc import Request
from ladder.build.sources import source_digest
from ladder.build.variants import variant_facts
from ladder.model.kernel import Variant


def instructions(cubin: bytes, arch: str) -> list[str]:
    """SASS of a cubin, one instruction a line."""
    return disassemble([cubin], arch)[0]


def opcodes(cubin: bytes, arch: str) -> list[str]:
    """Opcodes with modifiers of a cubin's instructions, in their order."""
    return [re.sub(r"^@!?U?P\w+\s+", "", line).split()[0] for line in instructions(cubin, arch)]


def compile_variant(
    variant: Variant, include: Path, arch: str, options: Sequence[str] = ()
) -> tuple[bytes, dict[str, Any]]:
    """(cubin, facts) of one variant."""
    source = variant.kernel.source
    request = Request(source, source_digest(source, include), include, (variant.entry,), arch, tuple(options))
    cubin, found = request.compile()
    if cubin:
        found |= instruction_counts(instructions(cubin, arch))
    facts = variant_facts(variant, request, found)
    return cubin if facts["status"] == "ok" else b"", facts
