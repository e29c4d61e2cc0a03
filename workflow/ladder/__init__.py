"""Kernel Ladder: compile, verify, time, profile and report CUDA kernel variants."""

__version__ = "3.0.0"
