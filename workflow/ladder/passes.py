"""Passes over machine code that a kernel's YAML may ask for, by name."""

from __future__ import annotations

from collections.abc import Callable

from ladder.ffma_order import sort_ffmas

PASSES: dict[str, Callable[[bytes], bytes]] = {"sort_ffmas": sort_ffmas}
"""Name -> cubin to cubin. A pass raises LadderError where it cannot work, which becomes a compile error."""
