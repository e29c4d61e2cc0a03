"""The harness: our own device kernels (harness.cuh), in one cubin a problem, with that problem's checks."""

from ladder.model.problem import C_TYPES

GATE, READ, NOTHING = "gate", "read_through", "nothing"
ENTRIES = (GATE, READ, NOTHING, *(f"fill_uniform<{c_type}>" for c_type in C_TYPES.values()))
"""Name expressions of the kernels that every problem has."""
