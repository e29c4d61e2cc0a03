"""Talking to one GPU: memory, launches, timing, vendor libraries, clocks and power."""
