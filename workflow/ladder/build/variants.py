"""Variants and the compiler: what it must compile for one, and what its facts say."""

import functools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ladder.build.cache import Compilable
from ladder.build.nvrtc import Request
from ladder.build.occupancy import occupancy
from ladder.build.parameters import hidden_pointers, other_parameters
from ladder.build.sources import include_closure, source_digest
from ladder.build.triton_request import TritonRequest, compiler
from ladder.build.triton_sources import import_closure, import_digest
from ladder.model.architecture import TUNED_FOR, limits_of
from ladder.model.expressions import whole
from ladder.model.folders import PACKAGE
from ladder.model.kernel import Argument, Kernel, Variant
from ladder.model.plan import Plan, as_compiled, tasks_as_compiled
from ladder.model.problem import HARNESS, Problem
from ladder.model.sweep import Sweep

_TYPES = {"tf32": "fp32", "fp16_acc16": "fp16", "fp8": "fp8e4nv", "int32": "i32"}
_SCALARS = {"int32": "i32", "int64": "i64", "float32": "fp32"}
"""Triton's names of types, by dtype and by a scalar's type."""


def _about(variant: Variant, arch: str) -> dict[str, Any]:
    return {
        "variant": variant.id,
        "kernel": variant.kernel.name,
        "params": dict(variant.params),
        "dtype": variant.dtype,
        "layout": variant.layout,
        "arch": arch,
        "entry": variant.entry,
    }


def variant_facts(
    variant: Variant,
    request: Compilable,
    found: Mapping[str, Any],
    reserved: Collection[str] = (),
) -> dict[str, Any]:
    """Facts of a variant from what was `found` out about its machine code: a row of resources.csv.

    `reserved` are symbols of the harness, by which timestamps tell its kernels from others.
    """
    facts: dict[str, Any] = {
        **_about(variant, request.arch),
        "cubin": request.key,
        **found,
    }
    if found.get("status") != "ok":
        return facts
    kernel, takes = variant.kernel, found.get("parameter_bytes")
    spilled = found["spill_store_bytes"]
    refused = ""
    if taken := sorted({*found["symbols"].values()} & {*reserved}):
        refused = f"the symbol {taken[0]} is that of a kernel of the harness; accepted: any other name"
    elif takes is not None and (differ := other_parameters(kernel, takes)):
        refused = differ
    elif spilled and kernel.spills == "never" and request.arch == TUNED_FOR:
        refused = f"spills {spilled} bytes of registers, and {kernel.path.name} does not say `spills: allowed`"
    if refused:
        return facts | {"status": "compile_error", "reason": refused}
    # What was published before parameters were looked at has none.
    if takes is not None and kernel.triton:
        facts["hidden_pointers"] = hidden_pointers(kernel, takes)
    # Block and shared memory do not depend on the size.
    geometry = variant.geometry(dict.fromkeys(kernel.problem.size_fields, 4096))
    threads = found.get("threads") or math.prod(geometry.block)
    dynamic = found.get("shared_bytes", geometry.shared_bytes)
    facts |= {"threads_per_block": threads, "shared_bytes_dynamic": dynamic}
    if limits := limits_of(request.arch):
        shared_bytes = found["shared_bytes_static"] + dynamic
        if shared_bytes > (most := limits.block_shared_bytes):
            reason = f"needs {shared_bytes} bytes of shared memory per block, {request.arch} has {most}"
            return facts | {"status": "unsupported", "reason": reason}
        facts |= occupancy(limits, threads, found["registers"], shared_bytes)
    return facts


def source_files(kernel: Kernel, include: Path) -> list[Path]:
    """All files of a kernel. Raises LadderError for one that is missing, or that no digest would hold."""
    if kernel.triton:
        return import_closure(kernel.source, *kernel.includes)
    return include_closure(kernel.source, include, *kernel.includes)


def _type(argument: Argument, variant: Variant) -> str:
    """An argument's type as Triton names it."""
    if argument.kind == "scalar":
        return _SCALARS[argument.type or ""]
    own = variant.kernel.dtypes[variant.dtype].get(argument.name, variant.dtype)
    element = "fp32" if argument.workspace else _TYPES.get(own, own)
    if argument.kind != "tensor_map":
        return f"*{element}"
    box = ",".join(str(whole(extent, variant.names())) for extent in argument.box or ())
    return f"tensordesc<{element}[{box}]>"


def _digest(of: Callable[..., str], source: Path, folders: Sequence[Path]) -> str:
    return of(source, *folders)


def variant_request(
    variant: Variant,
    include: Path,
    arch: str,
    options: Sequence[str] = (),
    digest_by: Callable[..., str] = _digest,
) -> Compilable:
    """What the compiler is given for a variant; `options` are NVRTC's. Raises LadderError as source_files."""
    kernel = variant.kernel
    if kernel.triton is None:
        folders = (include, *kernel.includes)
        digest = digest_by(source_digest, kernel.source, folders)
        return Request(
            kernel.source, digest, folders, (variant.entry,), arch, tuple(options)
        )
    names, rule = variant.names(), kernel.triton
    pointers = ("pointer", "workspace")  # all begin at multiples of 256 bytes
    hints = [
        argument.kind in pointers or whole(argument.divisible_by, names) == 16
        for argument in kernel.arguments
    ]
    cluster = kernel.launch.cluster or ()
    asked = {
        "num_warps": whole(rule.num_warps, names),
        "num_stages": whole(rule.num_stages, names),
        "num_ctas": math.prod(whole(extent, names) for extent in cluster),
    }
    return TritonRequest(
        kernel.source,
        digest_by(import_digest, kernel.source, kernel.includes),
        kernel.includes,
        variant.entry,
        types=tuple(_type(argument, variant) for argument in kernel.arguments),
        hints=tuple(hints),
        constants=variant.constants,
        options=asked,
        arch=arch,
        compiler=compiler(),
    )


def harness(problem: Problem, dtype: str, arch: str) -> Request:
    """Our own device kernels for cells of a dtype: those of gpu/harness.cuh, and of the problem's check.cu."""
    include, source = PACKAGE / "gpu", PACKAGE / "problems" / problem.name / "check.cu"
    return Request(
        source,
        source_digest(source, include),
        (include,),
        (*HARNESS, *problem.harness(dtype)),
        arch,
    )


class CompileRequests:
    """What a sweep needs compiled: a harness for each dtype, and the variants that it launches on `arch`.

    Raises LadderError for a missing header.
    """

    def __init__(
        self, sweep: Sweep, include: Path, arch: str, options: Sequence[str]
    ) -> None:
        unlaunched = sweep.never_launched(arch)
        launched = [each for each in sweep.variants if each not in unlaunched]
        dtypes = sorted({variant.dtype for variant in launched})
        self.harness = {dtype: harness(sweep.problem, dtype, arch) for dtype in dtypes}
        given = (include, arch, options, functools.cache(_digest))
        self.variants = {each: variant_request(each, *given) for each in launched}
        self.absent = {
            variant.id: {
                **_about(variant, arch),
                "status": "unsupported",
                "reason": why,
            }
            for variant, why in unlaunched.items()
        }
        self.requests = [*self.harness.values(), *self.variants.values()]

    def planned(self, plan: Plan, found: Mapping[str, Mapping[str, Any]]) -> Plan:
        """A plan with the facts `found` by key: those of harness and variants, and launches that follow from them."""
        harness, edges = {}, {}
        reserved, facts = set[str](), dict[str, dict[str, Any]]()
        for dtype, request in self.harness.items():
            harness[dtype] = {**found[request.key], "cubin": request.key}
            reserved.update(harness[dtype].get("symbols", {}).values())
        for variant, asked in self.variants.items():
            known = found[asked.key]
            facts[variant.id] = variant_facts(variant, asked, known, reserved)
        for name, at in plan.edges.items():
            edges[name] = tuple(
                replace(edge, launch=as_compiled(edge.launch, facts[name]))
                for edge in at
            )
        return replace(
            plan,
            harness=harness,
            variants=facts | self.absent,
            tasks=tasks_as_compiled(plan.tasks, facts),
            edges=edges,
        )
