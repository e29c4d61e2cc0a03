"""What a user gets wrong in a file: each mistake names file, field, value and what is accepted, before any job starts.

A mistake is a change to one file of a working project. What only a compiler can see is recorded instead (see
test_workflow.py); what only a launch can see needs a GPU.
"""

from __future__ import annotations

import functools
import math
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import assert_says, edit, edit_yaml, run_snakemake
from factory import axis
from ladder.build.nvrtc import refuse_options
from ladder.cli.app import main

CONFIG = "config/config.yaml"
SWEEP = "config/sweeps/alone.yaml"
KERNEL = "kernels/stencil/alone.yaml"
SOURCE = "kernels/stencil/with_headers.cu"


_accepted = functools.cache(refuse_options)
"""Raises again each time; what NVRTC takes is compiled once, not in each test."""


@pytest.fixture(autouse=True)
def options_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "ladder.build.nvrtc.refuse_options",
        lambda arch, options: _accepted(arch, tuple(options)),
    )


@dataclass(frozen=True)
class Mistake:
    """A change to a project, and what its error must say: the fragments between dots, in this order."""

    name: str
    change: Callable[[Path], object]
    says: str


def text(file: str, old: str, new: str) -> Callable[[Path], object]:
    return lambda project: edit(project / file, old, new)


def put(file: str, field: str, value: object) -> Callable[[Path], object]:
    """Another value of a field of a document, such as launch.block."""

    def change(document: dict[str, Any]) -> None:
        *parents, last = field.split(".")
        for name in parents:
            document = document[name]
        document[last] = value

    return lambda project: edit_yaml(project / file, change)


def in_text(file: str) -> Callable[[str, str, str, str], Mistake]:
    """A mistake by another text in a file, which the message names first."""
    return lambda name, old, new, says: Mistake(
        name, text(file, old, new), f"{file} … {says}"
    )


def in_field(file: str) -> Callable[[str, str, object, str], Mistake]:
    """The same by another value of a field."""
    return lambda name, field, value, says: Mistake(
        name, put(file, field, value), f"{file} … {says}"
    )


in_sweep, in_kernel, in_config = in_text(SWEEP), in_text(KERNEL), in_text(CONFIG)
sweep_with, kernel_with, config_with = (
    in_field(SWEEP),
    in_field(KERNEL),
    in_field(CONFIG),
)


def argument(name: str, given: dict[str, object], says: str) -> Mistake:
    """A mistake by one more argument of the kernel."""

    def change(project: Path) -> None:
        edit_yaml(project / KERNEL, lambda kernel: kernel["arguments"].append(given))

    return Mistake(name, change, f"{KERNEL}: arguments[3]{says}")


def alike(project: Path) -> None:
    """Two variants of one name: one value holds what ends another."""
    axes = {"aa": axis(0, 1, "1-bb=2"), "bb": axis(0, 2)}
    edit_yaml(project / KERNEL, lambda kernel: kernel["parameters"].update(axes))
    params = [{"aa": 1, "bb": 2}, {"aa": "1-bb=2"}]
    variants = [{"kernel": "alone", "params": one} for one in params]
    put(SWEEP, "variants", variants)(project)


def copied(file: str, name: str) -> Callable[[Path], object]:
    return lambda project: shutil.copy(project / file, (project / file).with_name(name))


def source(line: str) -> Callable[[Path], object]:
    def change(project: Path) -> None:
        path = project / SOURCE
        path.write_bytes(f"{line}\n{path.read_text()}".encode("latin-1"))

    return change


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]\n"
    for level in range(1, 12)
)
MERGES = "m0: &m0 {x: 1}\n" + "".join(
    f"m{level}: &m{level} {{<<: [*m{level - 1}, *m{level - 1}]}}\n"
    for level in range(1, 20)
)
SO = "shared_object: lib.so, entry: f"
REFERENCES = [
    (
        "nothing",
        "{entry: f}",
        "references[0] … is not accepted … {python: FILE.py, entry: NAME}",
    ),
    (
        "no file",
        f"{{{SO}}}",
        "references[0].shared_object … 'lib.so' … lib.so is no file … relative to the project",
    ),
    (
        "a folder",
        "copy, {python: ., entry: f}",
        "references[1].python … '.' … a file name that ends in .py",
    ),
    (
        "an entry that is none",
        "{shared_object: lib.so, entry: f()}",
        "references[0].entry … 'f()' … a function",
    ),
    (
        "a dtype in Python",
        "{python: a.py, entry: 'f_{dtype}'}",
        "references[0].entry … of the module",
    ),
    (
        "setup in Python",
        "{python: a.py, entry: f, setup: g}",
        "references[0] … 'setup' … no such field … entry, name, python",
    ),
    (
        "both",
        f"{{{SO}, python: a.py}}",
        "references[0] … 'python' … no such field … setup, shared_object",
    ),
    (
        "a library's name",
        f"{{{SO}, name: copy}}",
        "references[0].name … 'copy' … no other reference has",
    ),
    (
        "beside a kernel",
        "{kernel: alone}, {python: workflow/ladder/__init__.py, entry: f}",
        "references … 'alone' … or one kernel",
    ),
]
LIMITS = [
    ("block", [64, 32], "1024 in all"),
    ("block", [1, 1, 128], "(1024, 1024, 64)"),
    ("grid", [1, 1, 65536], "65535, 65535)"),
    ("grid", [2**31], "(2147483647,"),
    ("cluster", [4, 5], "16 in all"),
]

MISTAKES = [
    *(
        Mistake(
            f"sweep called {name}",
            copied(SWEEP, f"{name}.yaml"),
            f"{name}.yaml: file name … of letters",
        )
        for name in ("$(touch P)y", "ü")
    ),
    Mistake(
        "source alone",
        copied(SOURCE, "more.cu"),
        "more.cu … the description more.yaml is missing",
    ),
    *(
        kernel_with(
            f"parameter called {name}",
            f"parameters.{name}",
            axis(1),
            f"parameters … {name!r} … without another",
        )
        for name in ("elements", "layout", "if")
    ),
    *(
        kernel_with(f"entry {name}", "entry", name, f"entry … {name!r} … {{NAME}}")
        for name in ("alone<{T[0]}>", "alone<T}>")
    ),
    *(
        kernel_with(
            f"{field} of {values}",
            f"launch.{field}",
            values,
            f"launch.{field} at 4096 … {values} … {most} … a constraint",
        )
        for field, values, most in LIMITS
    ),
    kernel_with(
        "shared bytes", "launch.shared_bytes", 2**31, "launch.shared_bytes … <= 232448"
    ),
    *(
        in_sweep(
            f"size {size}", "2**16", size, f"sizes[0].elements … '{size}' … {says}"
        )
        for size, says in (("2^16", "2**24"), ("2**31", "< 2**31"))
    ),
    in_kernel(
        "constraint that divides by zero at one value",
        "threads * radius <= 2048",
        "threads // (radius - 4) != 0",
        "constraints … threads // (radius - 4) … zero",
    ),
    in_kernel(
        "misspelt name in a constraint after one that a small size breaks",
        "launch:",
        "  - {expr: elements > 4096, reason: it is}\n"
        "  - {expr: elments > 1, reason: it is}\nlaunch:",
        "constraints[3].expr … 'elments' … did you mean 'elements'",
    ),
    argument(
        "box that is too large",
        {"tensor_map": "input", "swizzle": "none", "box": ["threads + 1"]},
        ".box … [257] … extents from 1 to 256",
    ),
    Mistake(
        "aliases of aliases",
        lambda project: (project / SWEEP).write_text(f"{BOMB}title: x\n"),
        f"{SWEEP} … no such field",
    ),
    Mistake(
        "merges of merges",
        lambda project: (project / SWEEP).write_text(f"{MERGES}title: x\n"),
        f"{SWEEP} … line 11 … a mapping of 1024 fields … at most 1000",
    ),
    in_sweep("long text", "The mean", "x" * 3001, "line 1 … 3000 characters"),
    in_sweep(
        "mapping as a key", "title:", "? {a: b}\n: 1\ntitle:", "line 1 … unhashable key"
    ),
    in_sweep(
        "number in quotes",
        "[2, 4]",
        "'2'",
        "params.radius … '2' is not accepted (it is text)",
    ),
    *(
        config_with(f"{field} of {value!r}", field, value, f"{field} … {says}")
        for field, value, says in [
            ("measure.precision", "0.1 %", "'0.1 %' … a valid number"),
            ("measure.cell_seconds", math.nan, "nan … a finite number"),
            ("measure.seed", True, "True is not accepted … a valid integer"),
            ("measure.busy", "refuze", "did you mean 'refuse' … refuse, mark"),
            ("measure.sessions", 100_000, "less than or equal to 1000"),
            ("published", "/etc", "a folder name under results/published"),
            ("run", "published", "'published' … other than published"),
            ("run", "r" * 300, "up to 100 letters"),
            ("run", None, "other than published and null"),
            ("compile.cache", "a\0b", "a folder"),
            (
                "arch",
                "gfx90a",
                "auto or an architecture such as sm_80 or sm_90a, no family such as sm_120f",
            ),
        ]
    ),
    Mistake(
        "more pairs at least than at most",
        put(CONFIG, "measure.min_pairs", 2000),
        "measure.min_pairs … 2000 is not accepted … max_pairs, which is 1000",
    ),
    Mistake(
        "architecture there is none of",
        put(CONFIG, "arch", "sm_999"),
        "compile … does not take … sm_999",
    ),
    *(
        config_with(
            f"option {option}",
            "compile.options",
            ["-lineinfo", option],
            f"compile.options[1] … '{option}' is not accepted … -lineinfo, --use_fast_math … (-dlto",
        )
        for option in ("-G", "-arch=sm_80", "-rdc=true")
    ),
    Mistake(
        "source that is not UTF-8",
        source("// Größe"),
        f"{SOURCE} … not UTF-8 … 0xf6",
    ),
    in_config(
        "misspelt key of the configuration",
        "precision:",
        "precison:",
        "measure … 'precison' is not accepted … did you mean 'precision' … no such field … seed",
    ),
    in_config(
        "missing field",
        "  enabled: true",
        "",
        "profile: the field 'enabled' is missing",
    ),
    in_sweep(
        "prediction for no GPU",
        "kernel: alone",
        "kernel: alone\n    predicted: [0.1, 0.2]",
        "predicted_for … None is not accepted … such as nvidia-h200, where a variant has `predicted`",
    ),
    sweep_with(
        "GPU of no prediction",
        "predicted_for",
        "nvidia-h200",
        "predicted_for … 'nvidia-h200' is not accepted … nothing elsewhere",
    ),
    Mistake(
        "unknown sweep",
        put(CONFIG, "sweeps", ["alnoe"]),
        "configuration … sweeps … 'alnoe' … did you mean 'alone' … alone, with_headers",
    ),
    *(
        Mistake(
            f"choice of cells {choice}",
            put(CONFIG, "sweeps", choice),
            f"configuration: sweeps.alone … {says}",
        )
        for choice, says in [
            (
                {"alone": "elements == 3"},
                "'elements == 3' … an expression that keeps a cell",
            ),
            ({"alone": "size == 4096"}, "'size' … not defined; accepted … regime"),
        ]
    ),
    *(
        config_with(
            f"choice of cells {choice}",
            "sweeps",
            choice,
            "all, a list of sweep names, or a mapping of sweep names to expressions",
        )
        for choice in ({"alone": 4096}, {})
    ),
    in_sweep(
        "a key given twice",
        "problem: stencil",
        "problem: stencil\nproblem: gemm",
        'line 4 … found duplicate key "problem"',
    ),
    Mistake(
        "empty file",
        lambda project: (project / SWEEP).write_text(""),
        f"{SWEEP} … a mapping of fields is expected",
    ),
    Mistake(
        "missing configuration",
        lambda project: (project / CONFIG).unlink(),
        "folder:  … accepted: a checkout",
    ),
    in_sweep(
        "unknown kernel",
        "kernel: alone",
        "kernel: alon",
        "variants[0].kernel … 'alon' … did you mean 'alone' … no such kernel … with_headers",
    ),
    in_sweep(
        "unknown parameter",
        "params: {radius:",
        "params: {reach:",
        "variants[0].params … 'reach' … alone has no such parameter … radius, threads",
    ),
    in_sweep(
        "dtype of an entry that the sweep does not have",
        "kernel: alone",
        "kernel: alone\n    dtypes: [int32]",
        "variants[0].dtypes[0] … 'int32' … the sweep has no such dtype … fp32",
    ),
    in_sweep(
        "combination the constraints exclude",
        "radius: [2, 4]",
        "radius: 8, threads: 512",
        "variants[0].params … no more than 2048 loads a block … threads * radius <= 2048",
    ),
    in_sweep(
        "combinations of which nothing is left",
        "kernel: alone",
        "kernel: alone\n    where: radius > 4",
        "variants[0].params … no combination is left after the constraints and where",
    ),
    in_sweep(
        "unknown name in the expression that keeps a combination",
        "kernel: alone",
        "kernel: alone\n    where: elments > 4",
        "variants[0].where … 'elments' … not defined; accepted … elements … layout … radius",
    ),
    in_sweep(
        "size no variant supports",
        "2**20",
        "2**20 + 1",
        "sizes[1] … 1048577 … elements are a multiple of 256 … unsupported: record",
    ),
    in_sweep(
        "reason for nothing",
        "kernel: alone",
        "kernel: alone\n    reason: none",
        "variants[0].reason … 'none' … a reason beside `where` only",
    ),
    in_sweep(
        "unknown dtype",
        "dtypes: [fp32]",
        "dtypes: [fp64]",
        "dtypes[0] … 'fp64' … int32, fp32",
    ),
    in_sweep(
        "dtype the kernel is not written for",
        "dtypes: [fp32]",
        "dtypes: [int32]",
        "dtype … 'int32' … alone is not written for it … fp32",
    ),
    in_sweep(
        "unknown problem",
        "problem: stencil",
        "problem: stencils",
        "problem … 'stencils' … did you mean 'stencil' … gemm",
    ),
    in_sweep(
        "unknown reference",
        "references: [copy]",
        "references: [cublas]",
        "references[0] … 'cublas' … copy",
    ),
    *(
        in_sweep(
            f"reference: {name}", "references: [copy]", f"references: [{given}]", says
        )
        for name, given, says in REFERENCES
    ),
    in_sweep(
        "figure over a parameter that does not exist",
        "kind: curves,",
        "kind: heatmap, x: reach, y: radius,",
        "figures[0].x … 'reach' … radius, threads",
    ),
    in_sweep(
        "heatmap of one parameter",
        "kind: curves,",
        "kind: heatmap, x: radius,",
        "figures[0].y … None … radius, threads",
    ),
    in_sweep(
        "banks in a sweep of another problem",
        "kind: curves,",
        "kind: banks,",
        "figures[0].kind … 'banks' … a kind for this problem",
    ),
    in_sweep(
        "counters of no variant",
        "figures:",
        "counters: {groups: [memory], where: radius > 4}\nfigures:",
        "counters.where … 'radius > 4' … an expression that keeps a variant",
    ),
    in_sweep(
        "counters at a size where nothing is asked for",
        "    params: {radius: [2, 4]}",
        "    where: elements > 2**18\ncounters: {groups: [memory], sizes: [2**16]}",
        "counters.sizes[0] … '2**16' … no variant is asked for there … one of the sweep's sizes",
    ),
    in_sweep(
        "variant named twice",
        "radius: [2, 4]",
        "radius: [2, 2]",
        "variants[0] … 'alone-fp32' … each variant once",
    ),
    Mistake(
        "missing CUDA source",
        lambda project: (project / "kernels/stencil/alone.cu").unlink(),
        f"{KERNEL} … the CUDA source alone.cu is missing beside it",
    ),
    in_kernel(
        "misspelt name in an expression",
        "ceil_div(elements - 2 * radius, threads)",
        "ceil_div(elments - 2 * radius, threads)",
        "launch.grid … ceil_div(elments … 'elments' is not accepted (did you mean 'elements'?); it is not defined",
    ),
    in_kernel(
        "an expression cut at its comma",
        '["ceil_div(elements - 2 * radius, threads)"]',
        "[ceil_div(elements - 2 * radius, threads)]",
        "launch.grid at 4096: expression 'ceil_div(elements - 2 * radius' … quote it",
    ),
    in_kernel(
        "a number for a list",
        "block: [threads]",
        "block: threads",
        "launch.block: 'threads' is not accepted; accepted: a list, as ['threads']",
    ),
    in_kernel(
        "C's word for int32",
        "elements, type: int32",
        "elements, type: int",
        "arguments[2].type: 'int' … did you mean 'int32'",
    ),
    in_kernel(
        "default outside the values",
        "default: 2,",
        "default: 3,",
        "parameters.radius.default … 3 is not accepted … 2, 4, 8",
    ),
    in_kernel(
        "a size as a float",
        "elements, type: int32",
        "elements, type: float32",
        "arguments[2].type … 'float32' … elements is a size … int32, int64",
    ),
    *(
        argument(
            f"the scalar {given}", {"scalar": given, "type": "int32"}, f".scalar{says}"
        )
        for given, says in {
            "elments": " … 'elments' … did you mean 'elements'",
            "elements / 3": " … gave 1365.3 … accepted: a // b and ceil_div(a, b)",
        }.items()
    ),
    in_kernel(
        "unknown argument",
        "pointer: input",
        "pointer: in",
        "arguments[0].pointer … 'in' … input, output",
    ),
    in_kernel(
        "substitution the entry does not have",
        "alone<{T}, {radius}>",
        "alone<{type}, {radius}>",
        "entry (for fp32) … 'type' … T, radius, threads",
    ),
    in_kernel(
        "parameter the problem's check needs",
        "  radius: {values",
        "  reach: {values",
        "parameters … needs a parameter 'radius'",
    ),
    kernel_with(
        "a value as a number and as a word",
        "parameters.radius.values",
        [2, 4, "4"],
        "parameters.radius.values: [2, 4, '4'] is not accepted … each value once",
    ),
    Mistake(
        "two variants of one name",
        alike,
        f"{SWEEP} … variants[1].params … 'alone-fp32-aa=1-bb=2' is not accepted; another variant has this name",
    ),
    *(
        argument(
            f"a workspace of {size} bytes",
            {"workspace": "zeroed", "bytes": size},
            ": bytes … accepted: a whole number",
        )
        for size in (-1, "2**60")
    ),
    *(
        argument(f"a workspace of {given}", {"workspace": "zeroed", **given}, says)
        for given, says in [
            ({}, " … {workspace: zeroed|scratch, bytes: ...}"),
            ({"workspace": "random", "bytes": 4}, ".workspace … zeroed, scratch"),
            ({"bytes": "4 * mm"}, ".bytes … '4 * mm' … 'mm' is not accepted"),
        ]
    ),
    in_kernel(
        "no block",
        "  block: [threads]\n",
        "",
        "launch: the field 'block' is missing",
    ),
    in_kernel(
        "a hint of Triton's",
        "type: int32",
        "type: int32, divisible_by: 16",
        "arguments[2]: 'divisible_by' … a description with `triton`",
    ),
    sweep_with(
        "entries that stand for too much together",
        "variants",
        [{"kernel": "alone", "params": {"radius": [2] * 1000}}] * 101,
        "variants: 202000 combinations … accepted: at most 200000 in a sweep",
    ),
    Mistake(
        "a million brackets",
        lambda project: (project / SWEEP).write_text("[" * 900_000),
        f"{SWEEP} … line 1: over 50 levels",
    ),
    Mistake(
        "results that are a file",
        lambda project: (project / "results").write_text(""),
        "results: a folder is expected",
    ),
    Mistake(
        "two kernels of one name",
        lambda project: shutil.copytree(
            project / "kernels/stencil", project / "kernels/another"
        ),
        f"{KERNEL} … the name 'alone' is taken by … kernels/another/alone.yaml",
    ),
]


def test_a_sweep_may_be_called_sweep(project: Path) -> None:
    shutil.copy(project / SWEEP, project / "config/sweeps/sweep.yaml")
    outcome = run_snakemake(
        project, "-n", "measure_sweep", "--config", "device=nvidia-h200", "arch=sm_90a"
    )
    assert outcome.code == 0, outcome.text
    assert outcome.jobs == ["Preparing sweep", "Measuring sweep"]


def test_without_a_mistake_nothing_is_said(
    project: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(project)
    assert main(["check"]) == 0
    assert caplog.records == []


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_a_mistake_names_file_field_value_and_what_is_accepted(
    mistake: Mistake,
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.chdir(project)
    mistake.change(project)
    assert main(["check"]) == 2
    (record,) = caplog.records
    assert_says(record.getMessage(), ("error: ", *mistake.says.split(" … ")))
    assert len(record.getMessage()) < 2100


@pytest.mark.parametrize("header", ["cuda_fp16.h", "none.cuh"])
def test_a_header_that_is_missing_is_the_compilers_to_report(
    header: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It alone knows which conditions hold."""
    monkeypatch.chdir(project)
    source(f'#include "{header}"')(project)
    assert main(["check"]) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "arguments", "says"),
    [
        (
            text(SWEEP, "radius: [2, 4]", "radius: [2, 3]"),
            (),
            (
                "WorkflowError",
                SWEEP,
                "variants[0].params.radius",
                "3 is not accepted",
                "2, 4, 8",
            ),
        ),
        (
            lambda project: None,
            ("sweep_alnoe",),
            ("MissingRuleException", "No rule to produce sweep_alnoe"),
        ),
        (
            lambda project: None,
            ("--config", "device=nvidia-b200"),
            (
                "WorkflowError",
                "configuration",
                "arch",
                "this host has no nvidia-b200",
                "such as sm_90a",
            ),
        ),
        (
            lambda project: (project / "layer.yaml").write_text("run: a\nrun: b\n"),
            ("--configfile", "layer.yaml"),
            ("WorkflowError", "layer.yaml", "line 2", 'found duplicate key "run"'),
        ),
    ],
    ids=[
        "value outside",
        "unknown target",
        "device without architecture",
        "key given twice",
    ],
)
def test_snakemake_ends_with_the_message_before_any_job_starts(
    change: Callable[[Path], object],
    arguments: tuple[str, ...],
    says: tuple[str, ...],
    project: Path,
) -> None:
    change(project)
    outcome = run_snakemake(project, *arguments)
    assert outcome.code == 1
    assert_says(outcome.text, says)
    assert "Traceback" not in outcome.text
    assert outcome.jobs == []
    assert not (project / "results").exists()
