"""The program that measures on one GPU what no sweep does: errors against fp64, and C = A B + C.

A task of `ladder.measure.process`, whose request has `accuracy` and `accumulation`, indices of tasks, and `inputs`,
kinds of inputs. It returns rows by table.
"""

import contextlib
import ctypes
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ladder.gpu import libraries
from ladder.gpu.device import Launcher
from ladder.gpu.libraries import Gemm
from ladder.gpu.timing import StoppingRule, TimesDisagree
from ladder.measure.bench import REFERENCE, Bench, CellOutcome
from ladder.measure.extras import EXACT, TABLES, Row
from ladder.measure.watch import Watch
from ladder.measure.worker import stopping_rule
from ladder.model.cell import cell_name
from ladder.model.errors import LadderError
from ladder.model.intervals import median
from ladder.model.plan import Plan, Task
from ladder.model.problem import C_TYPES
from ladder.problems.gemm.instance import GemmInstance

_BETAS = (0.0, 1.0)
_FAILURES = (CellOutcome, LadderError, TimesDisagree)


def _gemm(bench: Bench, task: Task, dtype: str) -> GemmInstance:
    """The instance of a task with inputs of a dtype."""
    instance = bench.instance(replace(task.cell, dtype=dtype))
    assert isinstance(instance, GemmInstance)
    return instance


def shares(c: Any, product: Any, magnitude: Any) -> Row:
    """The largest and the root mean square of |c - product| / magnitude, elements as arrays in fp64.

    Raises LadderError where one is not finite.
    """
    found = np.abs(c.astype(np.float64) - product) / magnitude
    if not np.isfinite(found).all():
        raise LadderError("an error that is not finite")
    return {"max_error": float(found.max()), "rms_error": float(np.sqrt(np.mean(found**2)))}


def exact(instance: GemmInstance) -> tuple[Any, Any]:
    """A B and |A||B| in fp64, of all elements of C."""
    gpu, size, found = instance.gpu, (instance.m, instance.n, instance.k), list[Any]()
    for absolute in (False, True):
        out, wide = gpu.allocate(8 * instance.m * instance.n), []
        for tensor in (instance.tensors[name] for name in "ab"):
            rows, columns = tensor.shape
            wide.append(gpu.allocate(8 * rows * columns))
            given = (int(wide[-1].handle), tensor.pointer, rows, columns, columns, 1)
            entry = f"widen<{C_TYPES[instance.input]}>"
            gpu.harness.run(entry, rows * columns, *given, ctypes.c_int32(absolute))
        pointers = (int(wide[0].handle), int(wide[1].handle), int(out.handle))
        instance.libraries.cublas(Gemm(pointers, size, "fp64", instance.layout))()
        found.append(np.frombuffer(gpu.download(pointers[2], 8 * instance.m * instance.n), np.float64))
        for buffer in (*wide, out):
            buffer.close(gpu.stream)
    return found[0], found[1]


def _libraries(instance: GemmInstance, names: Sequence[str], dtypes: Sequence[str]) -> dict[Any, Launcher]:
    """Libraries on the operands of an instance, taken as those of each dtype, by dtype and name."""
    pointers = instance.pointer("a"), instance.pointer("b"), instance.pointer("c")
    size, found = (instance.m, instance.n, instance.k), dict[Any, Launcher]()
    for dtype in dtypes:
        gemm = Gemm(pointers, size, dtype, instance.layout)
        if "cublas" in names:
            found[dtype, "cublas"] = instance.libraries.cublas(gemm)
        if "cublaslt" in names:
            found[dtype, "cublaslt"] = instance.libraries.cublaslt(gemm)[0]
    return found


def accuracy(bench: Bench, tasks: Sequence[Task], inputs: Sequence[str]) -> Iterator[Row]:
    """Rows of accuracy: all kernels of a layout and size, and libraries, with the same fp32 inputs of each kind."""
    groups = dict[tuple[Any, ...], list[Task]]()
    for task in tasks:
        groups.setdefault((task.cell.layout, *task.cell.size.items()), []).append(task)
    for group in groups.values():
        instance, known = _gemm(bench, group[0], EXACT), list[tuple[Row, Launcher]]()
        place: Row = {"layout": instance.layout, **instance.size}
        dtypes = {EXACT: None}
        for task in group:
            assert task.launch is not None
            dtypes[task.cell.dtype] = None
            about: Row = {"variant": task.variant, "rung": task.rung, "dtype": task.cell.dtype}
            try:
                known.append(({**about, "who": "kernel"} | place, bench.load(task.launch, instance)))
            except CellOutcome as outcome:
                logging.warning("%s: %s", cell_name(task.variant, task.cell), outcome)
        named = group[0].cell.reference.libraries
        for (dtype, who), launcher in _libraries(instance, named, [*dtypes]).items():
            known.append(({"dtype": dtype, "who": who} | place, launcher))
        for kind in inputs:
            with instance.given(kind):
                bench.draw(instance)
            product, magnitude = exact(instance)
            for about, launcher in known:
                instance.poison_outputs()
                launcher()
                data = bench.gpu.download(instance.pointer("c"), 4 * math.prod(instance.tensors["c"].shape))
                try:
                    found = shares(np.frombuffer(data, np.float32), product, magnitude)
                except LadderError as error:
                    logging.warning("%s with %s inputs: %s", about, kind, error)
                    continue
                yield {**about, "inputs": kind, **found}
        bench.release()  # its inputs are of the last kind


@contextlib.contextmanager
def adding(dtype: str, beta: float) -> Iterator[None]:
    """Inside, libraries add beta C: they read alpha and beta on the host when a launch is enqueued."""
    scalars, _, _ = libraries._scalars(dtype)
    scalars[1] = beta
    try:
        yield
    finally:
        scalars[1] = 0


def accumulation(bench: Bench, rule: StoppingRule, tasks: Sequence[Task]) -> Iterator[Row]:
    """Rows of accumulation: each kernel against each library in turns, first with beta = 0, then with beta = 1."""
    for task in tasks:
        about: Row = {"variant": task.variant, "rung": task.rung, "dtype": task.cell.dtype}
        about |= {"layout": task.cell.layout, **task.cell.size}
        for beta in _BETAS:
            try:
                instance = _gemm(bench, task, task.cell.dtype)
                instance.use_scalars(1.0, beta)
                instance.algorithms = {}  # the fastest with this beta
                with adding(task.cell.dtype, beta):
                    for row in _against_libraries(bench, rule, task, instance):
                        yield {**about, "beta": beta, **row}
            except _FAILURES as failure:
                logging.warning("%s, beta = %g: %s", cell_name(task.variant, task.cell), beta, failure)


def _against_libraries(bench: Bench, rule: StoppingRule, task: Task, instance: GemmInstance) -> Iterator[Row]:
    """Pairs with each library that is right by the scalars that are set. All are verified once, timed launches are not.

    Ahead of each launch C is what it was: NaN with beta = 0, else the same numbers. Raises CellOutcome.
    """
    assert task.launch is not None
    watch = Watch(instance)
    kernel, _, own_us = bench.verified(task.launch, instance)
    with instance.writing_to(REFERENCE):
        elsewhere = bench.verified(task.launch, instance)[0]
    for name in task.cell.reference.libraries:
        try:
            here = instance.library(name)
            with instance.writing_to(REFERENCE):
                there = instance.library(name)
                there()  # which loads its kernel
                check, other_us = bench.check(there, {}, instance)
            if not check.correct:
                raise CellOutcome("incorrect", str(check))
        except (LadderError, CellOutcome) as error:
            logging.warning("%s: %s: %s", cell_name(task.variant, task.cell), name, error)
            continue
        bench.check(here, {}, instance)  # a library may load another kernel for another place
        sides = watch.single(kernel, None, 0), watch.single(there, None, REFERENCE)
        swapped = watch.single(elsewhere, None, REFERENCE), watch.single(here, None, 0)
        pairs = bench.timer.singly(sides, swapped, rule, "cold", min(own_us, other_us))
        speedup, low, high = pairs.speedup()
        own, other = median(pairs.variant_us), median(pairs.reference_us)
        found: Row = {"reference": name, "algorithm": instance.algorithms.get(name, ""), "clock": pairs.clock}
        found |= {"samples": len(pairs.variant_us), "median_us": own, "reference_median_us": other}
        yield found | {"speedup": speedup, "speedup_low": low, "speedup_high": high}


def extras(plan: Plan, cubins: Path, request: Mapping[str, Any]) -> dict[str, list[Row]]:
    bench = Bench(plan, cubins)
    tasks = {table: [plan.tasks[index] for index in request[table]] for table in TABLES}
    steps: tuple[Callable[[], Iterator[Row]], ...] = (
        lambda: accuracy(bench, tasks["accuracy"], request["inputs"]),
        lambda: accumulation(bench, stopping_rule(plan), tasks["accumulation"]),
    )
    return {name: [*rows()] for name, rows in zip(TABLES, steps, strict=True)}
