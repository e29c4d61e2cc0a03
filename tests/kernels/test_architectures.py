"""Other architectures, without a GPU: what a plan refuses and why, that the rest compiles, and peaks."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from checkout import catalog, every_sweep, in_sweeps
from compiling import kept_cache
from ladder.build.triton_request import compiler
from ladder.build.variants import CompileRequests, variant_facts, variant_request
from ladder.catalogue.plans import plan_sweep
from ladder.catalogue.settings import read_settings
from ladder.model.architecture import lacking, peaks
from ladder.model.folders import Project
from ladder.model.kernel import Variant
from ladder.model.plan import Task
from ladder.model.sweep import Reference, Sweep

OWN = Project(Path(__file__).resolve().parents[2])
KERNELS = catalog()
TOO_MUCH = re.compile(r"needs \d+ bytes of shared memory per block, \w+ has \d+")
COMPILED_FOR = (
    "sm_75",
    "sm_80",
    "sm_86",
    "sm_89",
    "sm_90a",
    "sm_100a",
    "sm_103a",
    "sm_120a",
    "sm_121a",
)


def task_of(sweep: Sweep, variant: Variant, arch: str) -> Task:
    plan = plan_sweep(sweep, read_settings(OWN, [], {}), arch)
    return next(task for task in plan.tasks if task.variant == variant.id)


def largest(kernel: str, arch: str) -> tuple[Sweep, Variant]:
    """The launched variant of a kernel with the most shared memory, and its sweep."""
    known = in_sweeps(kernel)
    launched = [
        (sweep, one) for sweep, one in known if one not in sweep.never_launched(arch)
    ]
    size = dict.fromkeys(known[0][0].problem.size_fields, 4096)
    return max(launched, key=lambda pair: pair[1].geometry(size).shared_bytes)


def test_a_block_that_is_too_large_is_refused_in_the_plan_with_the_numbers_and_not_compiled() -> (
    None
):
    sweep, variant = largest("mma_staged", "sm_90a")
    task = task_of(sweep, variant, "sm_86")
    assert (
        task.absent == "needs 147456 bytes of shared memory per block, sm_86 has 101376"
    )
    assert task.launch is None
    wanted = CompileRequests(sweep, OWN.include, "sm_86", ())
    assert variant not in wanted.variants
    plan = plan_sweep(sweep, read_settings(OWN, [], {}), "sm_86")
    facts = wanted.planned(
        plan, {one.key: {"status": "compile_error"} for one in wanted.requests}
    ).variants
    assert facts[variant.id]["status"] == "unsupported"
    assert facts[variant.id]["reason"] == task.absent
    assert task_of(sweep, variant, "sm_90a").absent is None


def test_what_its_reference_cannot_do_a_cell_cannot_be_timed_against() -> None:
    """The pair would fail on the device."""
    sweep, variant = largest("mma_staged", "sm_90a")
    small = next(
        entry
        for entry in sweep.entries
        if entry.variant.absent(entry.sizes[0], "sm_86") is None
    )
    against = replace(
        sweep, reference=Reference(kernel=variant.kernel, params=variant.params)
    )
    reason = task_of(against, small.variant, "sm_86").absent
    assert str(reason).startswith(
        f"its reference {variant.id}: needs 147456 bytes of shared memory"
    )
    assert task_of(against, small.variant, "sm_90a").absent is None


@pytest.mark.parametrize(
    ("arch", "missing"),
    [
        ("sm_86", "fp8, TMA, wgmma"),
        ("sm_100a", "wgmma"),
        ("sm_120", "wgmma"),
        ("sm_90", ""),
    ],
)
def test_code_for_hopper_runs_on_nothing_else_and_the_reason_names_what_is_missing(
    arch: str, missing: str
) -> None:
    sweep = every_sweep()["hopper_ladder"]
    wanted = (
        f"needs sm_90a, the device is {arch}{', without ' * bool(missing)}{missing}"
    )
    assert {*sweep.never_launched(arch).values()} == {wanted}
    assert CompileRequests(sweep, OWN.include, arch, ()).requests == [], (
        "not even the harness"
    )


def refused(kernel: str, arch: str) -> bool:
    """Whether no variant of a kernel is launched on an architecture; then each must say why."""
    own = in_sweeps(kernel)
    assert own, f"no sweep names {kernel}"
    unlaunched = [
        why
        for sweep, one in own
        if (why := sweep.never_launched(arch).get(one)) is not None
    ]
    if (reason := lacking(KERNELS[kernel].min_arch, arch)) is not None:
        # A variant that is a reference alone has nothing that is timed against it there.
        unlaunched = [why for why in unlaunched if why != "nothing is timed against it"]
        assert {*unlaunched} == {reason}, (
            "what no plan launches has this reason in its table"
        )
        return True
    if len(unlaunched) == len(own):
        assert all(TOO_MUCH.fullmatch(why) for why in unlaunched)
        return True
    return False


@pytest.mark.parametrize(
    ("arch", "begins"),
    [
        # The ladders' files, whose names begin with a number, for the oldest of them; CI has the others, too.
        ("sm_80", "0123456789"),
        *(pytest.param(arch, "", marks=pytest.mark.slow) for arch in COMPILED_FOR),
    ],
)
def test_a_kernel_compiles_for_an_architecture_or_its_description_says_why_not(
    arch: str, begins: str
) -> None:
    """As a run compiles it, the variant of its sweeps with the most shared memory: a block of it must fit."""
    names = [
        name
        for name in KERNELS
        if (name[0] in begins or not begins) and not refused(name, arch)
    ]
    asked = [name for name in names if not KERNELS[name].triton or compiler()]
    variants = {name: largest(name, arch)[1] for name in asked}
    requests = {
        name: variant_request(one, OWN.include, arch) for name, one in variants.items()
    }
    known = kept_cache().fill([*requests.values()], os.cpu_count() or 1, 600)
    wrong = {}
    for name, request in requests.items():
        facts = variant_facts(variants[name], request, known[request.key])
        if KERNELS[name].triton and TOO_MUCH.fullmatch(facts["reason"]):
            continue  # which Triton's compiler alone tells
        if facts["status"] != "ok" or facts.get("blocks_per_sm", 1) < 1:
            wrong[variants[name].id] = (
                facts["status"],
                facts["reason"] or "no block of it can be launched",
            )
    assert wrong == {}
    assert len(requests) > 10


@pytest.mark.parametrize(
    ("number", "gpu", "sms", "mhz", "dtype", "tflops"),
    [
        (80, "NVIDIA A100-SXM4-80GB", 108, 1410, "bf16", 312),
        (86, "NVIDIA GeForce RTX 3090", 82, 1695, "fp16", 71),
        (86, "NVIDIA GeForce RTX 3090", 82, 1695, "fp16_acc16", 142),
        (86, "NVIDIA RTX A6000", 84, 1800, "bf16", 154.8),
        (86, "NVIDIA A10G", 80, 1710, "bf16", None),
        (89, "NVIDIA GeForce RTX 4090", 128, 2520, "fp8", 330.3),
        (89, "NVIDIA L40S", 142, 2490, "bf16", 362),
        (89, "NVIDIA L40S", 142, 2520, "fp32", 91.6),
        (120, "NVIDIA GeForce RTX 5090", 170, 2407, "tf32", 104.8),
        (100, "NVIDIA B200", 148, 1965, "bf16", None),
    ],
)
def test_peaks_are_those_of_data_sheets_and_unknown_where_products_differ(
    number: int, gpu: str, sms: int, mhz: int, dtype: str, tflops: float | None
) -> None:
    fp32, tensor = peaks(number, gpu, sms, mhz)
    found = {"fp32": fp32, **tensor}.get(dtype)
    assert found == (tflops and pytest.approx(tflops, rel=0.01))
    assert peaks(61, "NVIDIA TITAN Xp", 30, 1582) == (None, {})
