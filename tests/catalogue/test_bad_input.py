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
    """A change to a file and the fragments its error must hold, in this order."""

    name: str
    change: Callable[[Path], object]
    says: tuple[str, ...]


def in_file(file: str) -> Callable[..., Mistake]:
    """A mistake by another text in a file, which the message names first. It `says` the words between dots."""
    return lambda name, old, new, says: Mistake(
        name, text(file, old, new), (file, *says.split(" … "))
    )


def in_document(file: str) -> Callable[..., Mistake]:
    """The same by another value in a YAML document."""
    return lambda name, change, says: Mistake(
        name, document(file, change), (file, *says.split(" … "))
    )


def document(
    file: str, change: Callable[[dict[str, Any]], object]
) -> Callable[[Path], object]:
    return lambda project: edit_yaml(project / file, change)


def text(file: str, old: str, new: str) -> Callable[[Path], object]:
    return lambda project: edit(project / file, old, new)


in_sweep, in_kernel, in_config = in_file(SWEEP), in_file(KERNEL), in_file(CONFIG)
sweep_with, kernel_with, config_with = (
    in_document(SWEEP),
    in_document(KERNEL),
    in_document(CONFIG),
)


def kept_where(expression: str) -> Callable[[Path], object]:
    """Let an expression decide which combinations of the sweep stay."""
    return text(
        SWEEP,
        "    params: {radius: [2, 4]}",
        f"    params: {{radius: [2, 4]}}\n    where: {expression}",
    )


def parameter(name: str) -> Callable[[Path], object]:
    return document(KERNEL, lambda kernel: kernel["parameters"].update({name: axis(1)}))


def argument(given: dict[str, object]) -> Callable[[Path], object]:
    return document(KERNEL, lambda kernel: kernel["arguments"].append(given))


def alike(project: Path) -> None:
    """Two variants of one name: one value holds what ends another."""
    axes = {"aa": axis(0, 1, "1-bb=2"), "bb": axis(0, 2)}
    edit_yaml(project / KERNEL, lambda kernel: kernel["parameters"].update(axes))
    params = [{"aa": 1, "bb": 2}, {"aa": "1-bb=2"}]
    variants = [{"kernel": "alone", "params": one} for one in params]
    edit_yaml(project / SWEEP, lambda sweep: sweep.update(variants=variants))


def setting(field: str, value: object) -> Callable[[Path], object]:
    def change(config: dict[str, Any]) -> None:
        *parents, last = field.split(".")
        for name in parents:
            config = config[name]
        config[last] = value

    return document(CONFIG, change)


def results_are_a_file(project: Path) -> None:
    shutil.rmtree(project / "results", ignore_errors=True)
    (project / "results").write_text("")


def launch(**fields: object) -> Callable[[Path], object]:
    return document(KERNEL, lambda kernel: kernel["launch"].update(fields))


def entry(name: str) -> Callable[[Path], object]:
    return document(KERNEL, lambda kernel: kernel.update(entry=name))


def copied(file: str, name: str) -> Callable[[Path], object]:
    return lambda project: shutil.copy(project / file, (project / file).with_name(name))


def measure(**fields: object) -> Callable[[Path], object]:
    return document(CONFIG, lambda config: config["measure"].update(fields))


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
NONE = '#include "none.cuh"'
MAP = {"tensor_map": "input", "swizzle": "none"}
NAMES = ["$(touch P)y", "ü"]
TAKEN = ["elements", "layout", "if"]
ENTRIES = ["alone<{T[0]}>", "alone<T}>"]
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
        "no entry",
        "{shared_object: lib.so}",
        "references[0] … the field 'entry' is missing",
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
        "misspelt field",
        f"{{{SO}, nmae: mine}}",
        "references[0] … 'nmae' … did you mean 'name'",
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
            (f"{name}.yaml: file name", "of letters"),
        )
        for name in NAMES
    ),
    Mistake(
        "source alone",
        copied(SOURCE, "more.cu"),
        ("more.cu", "the description more.yaml is missing"),
    ),
    *(
        Mistake(
            f"parameter called {name}",
            parameter(name),
            (KERNEL, "parameters", repr(name), "without another"),
        )
        for name in TAKEN
    ),
    *(
        Mistake(f"entry {name}", entry(name), (KERNEL, "entry", repr(name), "{NAME}"))
        for name in ENTRIES
    ),
    *(
        Mistake(
            f"{field} of {values}",
            launch(**{field: values}),
            (KERNEL, f"launch.{field} at 4096", str(values), most, "a constraint"),
        )
        for field, values, most in LIMITS
    ),
    Mistake(
        "shared bytes",
        launch(shared_bytes=2**31),
        (KERNEL, "launch.shared_bytes", "<= 232448"),
    ),
    Mistake(
        "no finite number",
        launch(grid=["0 + 1e400"]),
        (KERNEL, "launch", "'0 + 1e400'", "gives inf"),
    ),
    *(
        Mistake(
            f"size {size}",
            text(SWEEP, "2**16", size),
            (SWEEP, "sizes[0].elements", *says),
        )
        for size, says in {
            "2^16": ("'2^16'", "2**24"),
            "10**400": ("'10**400'", "too large"),
            "2**31": ("'2**31'", "< 2**31"),
            "0 + 1e400": ("'0 + 1e400'", "inf"),
            "'elements'": ("'elements'", "not defined"),
        }.items()
    ),
    in_kernel(
        "constraint that divides by zero at one value",
        "threads * radius <= 2048",
        "threads // (radius - 4) != 0",
        "constraints … threads // (radius - 4) … zero",
    ),
    kernel_with(
        "misspelt name in a constraint after one that a small size breaks",
        lambda kernel: kernel["constraints"].extend(
            [
                {"expr": expr, "reason": "it is"}
                for expr in ("elements > 4096", "elments > 1")
            ]
        ),
        "constraints[3].expr … 'elments' … did you mean 'elements'",
    ),
    kernel_with(
        "box that is too large",
        lambda kernel: kernel["arguments"].append({**MAP, "box": ["threads + 1"]}),
        "arguments[3].box … [257] … extents from 1 to 256",
    ),
    Mistake(
        "aliases of aliases",
        lambda project: (project / SWEEP).write_text(f"{BOMB}title: x\n"),
        (SWEEP, "no such field"),
    ),
    Mistake(
        "merges of merges",
        lambda project: (project / SWEEP).write_text(f"{MERGES}title: x\n"),
        (SWEEP, "line 11", "a mapping of 1024 fields", "at most 1000"),
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
        Mistake(
            f"{field} of {value!r}",
            measure(**{field: value}),
            (CONFIG, f"measure.{field}", *says),
        )
        for field, value, says in [
            ("precision", "0.1 %", ["'0.1 %'", "a valid number"]),
            ("cell_seconds", math.inf, ["finite"]),
            ("cell_seconds", math.nan, ["nan", "a finite number"]),
            ("seed", True, ["True is not accepted", "a valid integer"]),
            ("busy", "refuze", ["'refuze'", "did you mean 'refuse'", "refuse, mark"]),
        ]
    ),
    Mistake(
        "more pairs at least than at most",
        measure(min_pairs=50, max_pairs=20),
        ("measure.min_pairs", "50 is not accepted", "max_pairs, which is 20"),
    ),
    Mistake(
        "architecture there is none of",
        document(CONFIG, lambda config: config.update(arch="sm_999")),
        ("compile", "does not take", "sm_999"),
    ),
    *(
        config_with(
            f"option {option}",
            lambda config, option=option: config["compile"].update(
                options=["-lineinfo", option]
            ),
            f"compile.options[1] … '{option}' is not accepted … -lineinfo, --use_fast_math … (-dlto",
        )
        for option in ("-G", "-arch=sm_80", "-rdc=true")
    ),
    Mistake(
        "source that is not UTF-8", source("// Größe"), (SOURCE, "not UTF-8", "0xf6")
    ),
    in_config(
        "misspelt key of the configuration",
        "precision:",
        "precison:",
        "measure … 'precison' is not accepted … did you mean 'precision' … no such field … seed",
    ),
    config_with(
        "missing section",
        lambda config: config.pop("profile"),
        "the field 'profile' is missing",
    ),
    config_with(
        "architecture of another vendor",
        lambda config: config.update(arch="gfx90a"),
        "arch … 'gfx90a' … auto or an architecture such as sm_80 or sm_90a, no family such as sm_120f",
    ),
    sweep_with(
        "prediction for no GPU",
        lambda sweep: sweep["variants"][0].update(predicted=[0.1, 0.2]),
        "predicted_for … None is not accepted … such as nvidia-h200, where a variant has `predicted`",
    ),
    sweep_with(
        "GPU of no prediction",
        lambda sweep: sweep.update(predicted_for="nvidia-h200"),
        "predicted_for … 'nvidia-h200' is not accepted … nothing elsewhere",
    ),
    config_with(
        "run named like the published folder",
        lambda config: config.update(run="published"),
        "run … 'published' … other than published",
    ),
    Mistake(
        "unknown sweep",
        document(CONFIG, lambda config: config.update(sweeps=["alnoe"])),
        (
            "configuration",
            "sweeps",
            "'alnoe'",
            "did you mean 'alone'",
            "alone, with_headers",
        ),
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
        (SWEEP, "a mapping of fields is expected"),
    ),
    Mistake(
        "missing configuration",
        lambda project: (project / CONFIG).unlink(),
        ("folder: ", "accepted: a checkout"),
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
        "    params: {radius: [2, 4]}",
        "    params: {radius: [2, 4]}\n    dtypes: [int32]",
        "variants[0].dtypes[0] … 'int32' … the sweep has no such dtype … fp32",
    ),
    in_sweep(
        "combination the constraints exclude",
        "radius: [2, 4]",
        "radius: 8, threads: 512",
        "variants[0].params … no more than 2048 loads a block … threads * radius <= 2048",
    ),
    Mistake(
        "combinations of which nothing is left",
        kept_where("radius > 4"),
        (
            SWEEP,
            "variants[0].params",
            "no combination is left after the constraints and where",
        ),
    ),
    Mistake(
        "unknown name in the expression that keeps a combination",
        kept_where("elments > 4"),
        (
            SWEEP,
            "variants[0].where",
            "'elments'",
            "not defined; accepted",
            "elements",
            "layout",
            "radius",
        ),
    ),
    in_sweep(
        "size no variant supports",
        "2**20",
        "2**20 + 1",
        "sizes[1] … 1048577 … elements are a multiple of 256 … unsupported: record",
    ),
    in_sweep(
        "reason for nothing",
        "    params: {radius: [2, 4]}",
        "    params: {radius: [2, 4]}\n    reason: none",
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
        (KERNEL, "the CUDA source alone.cu is missing beside it"),
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
        "expression that reaches for Python",
        "threads * radius <= 2048",
        "threads.__class__ == 1",
        "constraints[0].expr … threads.__class__ == 1 … Attribute is not available",
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
        Mistake(
            f"the scalar {given}",
            document(
                KERNEL,
                lambda kernel, given=given: kernel["arguments"].append(
                    {"scalar": given, "type": "int32"}
                ),
            ),
            (KERNEL, "arguments[3].scalar", *says),
        )
        for given, says in {
            "elments": ("'elments'", "did you mean 'elements'"),
            "elements * reach": ("'elements * reach'", "'reach'", "radius, threads"),
            "elements / 3": ("gave 1365.3", "accepted: a // b and ceil_div(a, b)"),
            "elements *": ("expression 'elements *'",),
            "'a'": ("expression \"'a'\"", "not str"),
            0.5: ("gave 0.5, a whole number is needed",),
            "elements ** 2": ("gave 4294967296, an int32 is needed",),
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
        lambda kernel: kernel["parameters"]["radius"].update(values=[2, 4, "4"]),
        "parameters.radius.values: [2, 4, '4'] is not accepted … each value once",
    ),
    Mistake(
        "two variants of one name",
        alike,
        (
            SWEEP,
            "variants[1].params",
            "'alone-fp32-aa=1-bb=2' is not accepted; another variant has this name",
        ),
    ),
    *[
        kernel_with(
            f"a workspace of {size} bytes",
            lambda kernel, size=size: kernel["arguments"].append(
                {"workspace": "zeroed", "bytes": size}
            ),
            "bytes … accepted: a whole number",
        )
        for size in (-1, "2**60")
    ],
    kernel_with(
        "no block",
        lambda kernel: kernel["launch"].pop("block"),
        "launch: the field 'block' is missing",
    ),
    kernel_with(
        "a hint of Triton's",
        lambda kernel: kernel["arguments"][2].update(divisible_by=16),
        "arguments[2]: 'divisible_by' … a description with `triton`",
    ),
    sweep_with(
        "entries that stand for too much together",
        lambda sweep: sweep.update(
            variants=[{"kernel": "alone", "params": {"radius": [2] * 1000}}] * 101
        ),
        "variants: 202000 combinations … accepted: at most 200000 in a sweep",
    ),
    Mistake(
        "a million brackets",
        lambda project: (project / SWEEP).write_text("[" * 900_000),
        (SWEEP, "line 1: over 50 levels"),
    ),
    Mistake(
        "results that are a file",
        results_are_a_file,
        ("results: a folder is expected",),
    ),
    *[
        Mistake(f"{field} of {value!r}", setting(field, value), (CONFIG, field, says))
        for field, value, says in (
            ("measure.sessions", 100_000, "less than or equal to 1000"),
            ("measure.lt_heuristics", 10**30, ""),
            ("published", "/etc", "a folder name under results/published"),
            ("run", "r" * 300, "up to 100 letters"),
            ("run", None, "other than published and null"),
            ("compile.cache", "a\0b", "a folder"),
        )
    ],
    Mistake(
        "two kernels of one name",
        lambda project: shutil.copytree(
            project / "kernels/stencil", project / "kernels/another"
        ),
        (KERNEL, "the name 'alone' is taken by", "kernels/another/alone.yaml"),
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
    assert_says(record.getMessage(), ("error: ", *mistake.says))
    assert len(record.getMessage()) < 2100


@pytest.mark.parametrize("line", ['#include "cuda_fp16.h"', NONE])
def test_a_header_that_is_missing_is_the_compilers_to_report(
    line: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It alone knows which conditions hold."""
    monkeypatch.chdir(project)
    source(line)(project)
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
