"""The harness: our own device kernels (harness.cuh), in one cubin a problem, with that problem's checks."""

import json
from collections.abc import Mapping
from typing import Any

from ladder.model.problem import C_TYPES

GATE, READ, NOTHING = "gate", "read_through", "nothing"
ENTRIES = (GATE, READ, NOTHING, *(f"fill_uniform<{c_type}>" for c_type in C_TYPES.values()))
"""Name expressions of the kernels that every problem has."""


def join_harness(head: Mapping[str, Any], cubin: bytes) -> bytes:
    """One file of a harness: a JSON line with the kernels' symbols and digests, then the cubin."""
    return json.dumps(head).encode() + b"\n" + cubin
