"""What runs of a machine came to, kept in .cache/tests beside what the compiler made.

A run is a function of the machine as it is when it starts, of the code that carries it out, and of what this code runs
on. The machine is its class with all attributes: program, grid, arguments, tensor maps, the order in which loads land
and blocks arrive, and memory with who may read and write it. What is of no known type is an error. The code is that of
the machines and of the bank model. It runs on a version of Python and a build of NumPy, which chooses its functions by
what the CPU has. All of that is in the key, and `kept` adds its own.

A run that ends otherwise than by itself or with a `Fault` is not kept, nor is one of a class outside of tests/emulator.
What changes the emulator's functions while it runs is not seen: a test that does so needs such a class.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import closures
import numpy as np
from compiling import kept
from ladder.model.files import digest_json, sha256

_FOLDER = Path(__file__).parent
_MODULES = [*_FOLDER.glob("*ptx.py"), _FOLDER / "formats.py", Path(__file__)]
TEXTS = {path.stem: path.read_text(encoding="utf-8") for path in sorted(_MODULES)}
"""Of the machines, as they are imported: a file may change while tests run."""
_GIVEN = ("arguments", "memory", "program")
_NOTED = ("accesses",)
"""Attributes of a machine that has run: others are gone, so that no test sees what is not kept."""


class Fault(Exception):
    """The kernel did what hardware forbids or leaves undefined."""


@functools.cache
def carried_out_by() -> str:
    """Digest of the code of the machines, and of what that runs on."""
    numpy = np.show_config(mode="dicts")  # with the CPU's vector instructions
    package = closures.digest("ladder.build.banks")
    return digest_json([TEXTS, package, sys.version, np.__version__, numpy])


def _plain(value: Any) -> Any:
    """What JSON does not know, as data that it knows: large ones as their digests."""
    if isinstance(value, np.ndarray):
        bits = np.ascontiguousarray(value).view(f"u{value.itemsize}")
        # One value throughout, as most arrays have before a run, is found faster than digested.
        same = bits.size > 0 and bool((bits == bits.flat[0]).all())
        held = int(bits.flat[0]) if same else sha256(bits.data)
        return [value.dtype.str, value.shape, held]
    if isinstance(value, np.random.Generator):
        return value.bit_generator.state
    if dataclasses.is_dataclass(value):
        fields = [getattr(value, one.name) for one in dataclasses.fields(value)]
        return getattr(value, "digest", fields)
    raise TypeError(
        f"a machine holds a {type(value).__name__}, of which there is no digest"
    )


def run_or_recall(machine: Any, carry_out: Callable[[], None]) -> None:
    """Changes memory as the run does, and raises its Fault. A machine has run once: it is left without its threads."""
    kind = type(machine)
    if not kind.__module__.startswith("emulator."):
        carry_out()
        return
    before = machine.memory.words.copy()

    def make() -> tuple[str | None, Any, dict[str, Any]]:
        fault = None
        try:
            carry_out()
        except Fault as error:
            fault = str(error)
        noted = {name: vars(machine)[name] for name in _NOTED if name in vars(machine)}
        return fault, machine.memory.words ^ before, noted

    state = sha256(json.dumps(vars(machine), default=_plain).encode())
    made_from = ["run", kind.__qualname__, carried_out_by(), state]
    fault, changed, noted = kept(made_from, make)
    machine.memory.words[:] = before ^ changed
    machine.__dict__ = {name: vars(machine)[name] for name in _GIVEN} | noted
    if fault is not None:
        raise Fault(fault)
