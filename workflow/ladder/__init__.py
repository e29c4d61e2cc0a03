"""Kernel Ladder: compile, verify, time, profile and report CUDA kernel variants."""

__version__ = "0.1.0"
