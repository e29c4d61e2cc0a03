"""Calls of the CUDA driver through its plain bindings."""

from typing import Any

from cuda.bindings import driver

from ladder.model.errors import LadderError


def checked(result: tuple[Any, ...]) -> Any:
    """Unpack (status, value…) of a driver call; None without a value. Raises LadderError naming the status."""
    status, *values = result
    if status != driver.CUresult.CUDA_SUCCESS:
        raise LadderError(f"the driver says {status.name}")
    return tuple(values) if len(values) > 1 else next(iter(values), None)
