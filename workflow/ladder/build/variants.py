"""Variants and the compiler: what it must compile for one, and what its facts say."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ladder.build.cache import Compilable
from ladder.build.cubin_request import CubinRequest
from ladder.build.nvrtc import Request
from ladder.build.occupancy import occupancy
from ladder.build.parameters import hidden_pointers, other_parameters
from ladder.build.sources import source_digest
from ladder.build.triton_request import TritonRequest, compiler
from ladder.model.architecture import TUNED_FOR, limits_of
from ladder.model.cell import External
from ladder.model.expressions import whole
from ladder.model.files import file_sha256
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
    compiled: Mapping[str, Any],
    reserved: Collection[str] = (),
) -> dict[str, Any]:
    """Facts of a variant from those of its request: a row of resources.csv.

    `reserved` are symbols of the harness, by which timestamps tell its kernels from others.
    """
    facts = _about(variant, request.arch) | {"cubin": request.key, **compiled}
    if facts.get("status") != "ok":
        return facts
    kernel = variant.kernel
    spilled = facts["spill_store_bytes"]
    # What was published before parameters were looked at has none.
    takes = facts.get("parameter_bytes")
    refused = "" if takes is None else other_parameters(kernel, takes)
    if taken := {*facts["symbols"].values()} & {*reserved}:
        refused = f"the symbol {min(taken)} is that of a kernel of the harness; accepted: any other name"
    elif spilled and kernel.spills == "never" and request.arch == TUNED_FOR:
        refused = f"spills {spilled} bytes of registers, and {kernel.path.name} does not say `spills: allowed`"
    if refused:
        return facts | {"status": "compile_error", "reason": refused}
    if takes is not None and kernel.triton:
        facts["hidden_pointers"] = hidden_pointers(kernel, takes)
    # Block and shared memory do not depend on the size.
    geometry = variant.geometry(dict.fromkeys(kernel.problem.size_fields, 4096))
    threads = facts.get("threads") or math.prod(geometry.block)
    dynamic = facts.get("shared_bytes", geometry.shared_bytes)
    facts |= {"threads_per_block": threads, "shared_bytes_dynamic": dynamic}
    if limits := limits_of(request.arch):
        shared_bytes = facts["shared_bytes_static"] + dynamic
        most = limits.block_shared_bytes
        if shared_bytes > most:
            reason = f"needs {shared_bytes} bytes of shared memory per block, {request.arch} has {most}"
            return facts | {"status": "unsupported", "reason": reason}
        facts |= occupancy(limits, threads, facts["registers"], shared_bytes)
    return facts


def launcher_facts(variant: Variant, arch: str) -> dict[str, Any]:
    """Facts of a variant that a launcher launches: nothing of it is compiled or looked into here."""
    launcher = variant.kernel.launcher
    file = variant.kernel.source
    assert launcher is not None
    external = External(
        kind="python" if file.suffix == ".py" else "shared_object",
        file=str(file.resolve()),
        entry=variant.entry,
        setup=launcher.setup,
        sha256=file_sha256(file),
    )
    facts = {"status": "ok", "machine_code": external.digest}
    return _about(variant, arch) | facts | {"launcher": asdict(external)}


def kernel_digest(kernel: Kernel, include: Path) -> str:
    """SHA-256 over all files of a kernel. Raises LadderError for one that is missing, or that no digest would hold."""
    folders = kernel.includes if kernel.triton else (include, *kernel.includes)
    return source_digest(kernel.source, *(() if kernel.cubin else folders))


def _type(argument: Argument, variant: Variant) -> str:
    """An argument's type as Triton names it."""
    if argument.kind == "scalar":
        return _SCALARS[argument.type or ""]
    dtype = variant.kernel.dtypes[variant.dtype].get(argument.name, variant.dtype)
    element = "fp32" if argument.workspace else _TYPES.get(dtype, dtype)
    if argument.kind != "tensor_map":
        return f"*{element}"
    box = ",".join(str(whole(extent, variant.names())) for extent in argument.box or ())
    return f"tensordesc<{element}[{box}]>"


def variant_request(
    variant: Variant,
    include: Path,
    arch: str,
    options: Sequence[str] = (),
    source_sha256: str = "",
) -> Compilable:
    """What the compiler is given for a variant; `options` are NVRTC's. Raises LadderError as kernel_digest.

    `source_sha256`: kernel_digest of the variant's kernel, where that is known.
    """
    kernel = variant.kernel
    rule = kernel.triton
    digest = source_sha256 or kernel_digest(kernel, include)
    entries = (variant.entry,)
    if kernel.cubin:
        return CubinRequest(kernel.source, digest, (), entries, arch)
    if rule is None:
        folders = (include, *kernel.includes)
        return Request(kernel.source, digest, folders, entries, arch, tuple(options))
    names = variant.names()
    pointers = ("pointer", "workspace")  # all begin at multiples of 256 bytes
    hints = tuple(
        argument.kind in pointers or whole(argument.divisible_by, names) == 16
        for argument in kernel.arguments
    )
    cluster = [whole(extent, names) for extent in kernel.launch.cluster or ()]
    return TritonRequest(
        kernel.source,
        digest,
        kernel.includes,
        variant.entry,
        types=tuple(_type(argument, variant) for argument in kernel.arguments),
        hints=hints,
        constants=variant.constants,
        options={
            "num_warps": whole(rule.num_warps, names),
            "num_stages": whole(rule.num_stages, names),
            "num_ctas": math.prod(cluster),
        },
        arch=arch,
        compiler=compiler(),
    )


def harness(problem: Problem, dtype: str, arch: str) -> Request:
    """Our own device kernels for cells of a dtype: those of gpu/harness.cuh, and of the problem's check.cu."""
    include = PACKAGE / "gpu"
    source = PACKAGE / "problems" / problem.folder / "check.cu"
    entries = (*HARNESS, *problem.harness(dtype))
    digest = source_digest(source, include)
    return Request(source, digest, (include,), entries, arch)


class CompileRequests:
    """What a sweep needs compiled: a harness for each dtype, and the variants that it launches on `arch`.

    Raises LadderError for a missing header.
    """

    def __init__(
        self, sweep: Sweep, include: Path, arch: str, options: Sequence[str]
    ) -> None:
        unlaunched = sweep.never_launched(arch)
        digests = dict[str, str]()
        self.variants = dict[Variant, Compilable]()
        self.launchers = dict[str, dict[str, Any]]()
        launched = [each for each in sweep.variants if each not in unlaunched]
        for variant in launched:
            name = variant.kernel.name
            if variant.kernel.launcher is not None:
                self.launchers[variant.id] = launcher_facts(variant, arch)
                continue
            if name not in digests:
                digests[name] = kernel_digest(variant.kernel, include)
            request = variant_request(variant, include, arch, options, digests[name])
            self.variants[variant] = request
        dtypes = sorted({variant.dtype for variant in launched})
        self.harness = {dtype: harness(sweep.problem, dtype, arch) for dtype in dtypes}
        self.absent = dict[str, dict[str, Any]]()
        for variant, why in unlaunched.items():
            row = _about(variant, arch) | {"status": "unsupported", "reason": why}
            self.absent[variant.id] = row
        self.requests = [*self.harness.values(), *self.variants.values()]

    def planned(self, plan: Plan, compiled: Mapping[str, Mapping[str, Any]]) -> Plan:
        """A plan with the facts of requests, by key: those of harness and variants, and launches that follow."""
        harness = {}
        edges = {}
        reserved = set[str]()
        facts = {**self.launchers}
        for dtype, kernels in self.harness.items():
            harness[dtype] = {**compiled[kernels.key], "cubin": kernels.key}
            reserved.update(harness[dtype].get("symbols", {}).values())
        for variant, request in self.variants.items():
            answer = compiled[request.key]
            facts[variant.id] = variant_facts(variant, request, answer, reserved)
        for name, sizes in plan.edges.items():
            edges[name] = tuple(
                replace(edge, launch=as_compiled(edge.launch, facts[name]))
                for edge in sizes
            )
        return replace(
            plan,
            harness=harness,
            variants=facts | self.absent,
            tasks=tasks_as_compiled(plan.tasks, facts),
            edges=edges,
        )
