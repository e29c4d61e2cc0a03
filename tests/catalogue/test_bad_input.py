"""What a user gets wrong in a file: each mistake names file, field, value and what is accepted, before any job starts.

A mistake is a change to one file of a working project. What only a compiler can see is recorded instead (see
test_workflow.py); what only a launch can see needs a GPU.
"""

from __future__ import annotations

import functools
import math
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import assert_says, edit, edit_yaml, run_snakemake
from ladder.build.nvrtc import refuse_options
from ladder.build.sources import _direct_includes
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
        "ladder.build.nvrtc.refuse_options", lambda arch, options: _accepted(arch, tuple(options))
    )


@dataclass(frozen=True)
class Mistake:
    """A change to a file and the fragments its error must hold, in this order."""

    name: str
    change: Callable[[Path], object]
    says: tuple[str, ...]


def document(file: str, change: Callable[[dict[str, Any]], object]) -> Callable[[Path], object]:
    """Change a YAML document."""
    return lambda project: edit_yaml(project / file, change)


def text(file: str, old: str, new: str) -> Callable[[Path], object]:
    """Change a file's text."""
    return lambda project: edit(project / file, old, new)


def kept_where(expression: str) -> Callable[[Path], object]:
    """Let an expression decide which combinations of the sweep stay."""
    return text(
        SWEEP, "    params: {radius: [2, 4]}", f"    params: {{radius: [2, 4]}}\n    where: {expression}"
    )


def parameter(name: str) -> Callable[[Path], object]:
    """Give the kernel another parameter."""
    axis = {"values": [1], "default": 1, "description": "more"}
    return document(KERNEL, lambda kernel: kernel["parameters"].update({name: axis}))


def argument(given: dict[str, object]) -> Callable[[Path], object]:
    """Give the kernel another argument."""
    return document(KERNEL, lambda kernel: kernel["arguments"].append(given))


def axis(*values: object) -> dict[str, Any]:
    """An axis of a kernel."""
    return {"values": list(values), "default": values[0], "description": "an axis"}


def alike(project: Path) -> None:
    """Two variants of one name: one value holds what ends another."""
    axes = {"aa": axis(0, 1, "1-bb=2"), "bb": axis(0, 2)}
    edit_yaml(project / KERNEL, lambda kernel: kernel["parameters"].update(axes))
    params = [{"aa": 1, "bb": 2}, {"aa": "1-bb=2"}]
    variants = [{"kernel": "alone", "params": one} for one in params]
    edit_yaml(project / SWEEP, lambda sweep: sweep.update(variants=variants))


def setting(field: str, value: object) -> Callable[[Path], object]:
    """Change one setting of the configuration."""

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
    """Change the launch of the kernel."""
    return document(KERNEL, lambda kernel: kernel["launch"].update(fields))


def entry(name: str) -> Callable[[Path], object]:
    """Change the name expression of the kernel."""
    return document(KERNEL, lambda kernel: kernel.update(entry=name))


def copied(file: str, name: str) -> Callable[[Path], object]:
    """Copy a file beside itself."""
    return lambda project: shutil.copy(project / file, (project / file).with_name(name))


def measure(**fields: object) -> Callable[[Path], object]:
    """Change the measuring protocol."""
    return document(CONFIG, lambda config: config["measure"].update(fields))


def source(line: str) -> Callable[[Path], object]:
    """Put a line before the CUDA source."""

    def change(project: Path) -> None:
        path = project / SOURCE
        path.write_bytes(f"{line}\n{path.read_text()}".encode("latin-1"))
        _direct_includes.cache_clear()

    return change


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]\n" for level in range(1, 12)
)
MERGES = "m0: &m0 {x: 1}\n" + "".join(
    f"m{level}: &m{level} {{<<: [*m{level - 1}, *m{level - 1}]}}\n" for level in range(1, 20)
)
NONE = '#include "none.cuh"'
MAP = {"tensor_map": "input", "swizzle": "none"}
NAMES = ["$(touch P)y", "a b", "{sweep}", "'q'", "-x", "a.b", "ü"]
TAKEN = ["elements", "layout", "element_bytes", "min", "if"]
ENTRIES = [
    "alone<{T:d}>",
    "alone<{T!r}>",
    "alone<{T[0]}>",
    "alone<{T}, {radius>",
    "alone<T}>",
    "alone<{T:{radius}}>",
]
SO = "shared_object: lib.so, entry: f"
REFERENCES: list[tuple[str, str, tuple[str, ...]]] = [
    ("nothing", "{entry: f}", ("references[0]", "is not accepted", "{python: FILE.py, entry: NAME}")),
    (
        "no file",
        f"{{{SO}}}",
        ("references[0].shared_object", "'lib.so'", "lib.so is no file", "relative to the project"),
    ),
    (
        "a folder",
        "copy, {python: ., entry: f}",
        ("references[1].python", "'.'", "a file name that ends in .py"),
    ),
    (
        "another ending",
        "{shared_object: lib.a, entry: f}",
        ("references[0].shared_object", "'lib.a'", "ends in .so"),
    ),
    ("no entry", "{shared_object: lib.so}", ("references[0]", "the field 'entry' is missing")),
    (
        "an entry that is none",
        "{shared_object: lib.so, entry: f()}",
        ("references[0].entry", "'f()'", "a function"),
    ),
    ("a method", "{python: a.py, entry: f.g}", ("references[0].entry", "'f.g'", "a function")),
    ("a dtype in Python", "{python: a.py, entry: 'f_{dtype}'}", ("references[0].entry", "of the module")),
    (
        "setup in Python",
        "{python: a.py, entry: f, setup: g}",
        ("references[0].setup", "'g'", "of a shared object only"),
    ),
    ("both", f"{{{SO}, python: a.py}}", ("references[0].python", "'a.py'", "not both")),
    ("misspelt field", f"{{{SO}, nmae: mine}}", ("references[0]", "'nmae'", "did you mean 'name'")),
    ("a library's name", f"{{{SO}, name: copy}}", ("references[0].name", "'copy'", "no other reference has")),
    ("a name with a bar", f"{{{SO}, name: 'a|b'}}", ("references[0].name", "'a|b'", "letters, digits")),
    (
        "beside a kernel",
        "{kernel: alone}, {python: workflow/ladder/__init__.py, entry: f}",
        ("references", "'alone'", "or one kernel"),
    ),
]
LIMITS: list[tuple[str, list[int], str]] = [
    ("block", [2048], "1024 in all"),
    ("block", [64, 32], "1024 in all"),
    ("block", [1, 1, 128], "(1024, 1024, 64)"),
    ("grid", [1, 65536], "65535, 65535)"),
    ("grid", [1, 1, 65536], "65535, 65535)"),
    ("grid", [2**31], "(2147483647,"),
    ("cluster", [9], "8 in all"),
    ("cluster", [4, 4], "8 in all"),
    ("cluster", [4, 8], "8 in all"),
]

MISTAKES = [
    *(
        Mistake(
            f"sweep called {name}", copied(SWEEP, f"{name}.yaml"), (f"{name}.yaml: file name", "of letters")
        )
        for name in NAMES
    ),
    Mistake("kernel called $(y)", copied(KERNEL, "$(y).yaml"), ("$(y).yaml: file name", "of letters")),
    Mistake("sweep with another ending", copied(SWEEP, "more.yml"), ("more.yml: file name", "NAME.yaml")),
    Mistake("kernel with another ending", copied(KERNEL, "more.yml"), ("more.yml: file name", "NAME.yaml")),
    Mistake("source alone", copied(SOURCE, "more.cu"), ("more.cu", "the description more.yaml is missing")),
    *(
        Mistake(
            f"parameter called {name}", parameter(name), (KERNEL, "parameters", repr(name), "without another")
        )
        for name in TAKEN
    ),
    *(Mistake(f"entry {name}", entry(name), (KERNEL, "entry", repr(name), "{NAME}")) for name in ENTRIES),
    *(
        Mistake(
            f"{field} of {values}", launch(**{field: values}), (KERNEL, f"launch.{field}", str(values), most)
        )
        for field, values, most in LIMITS
    ),
    Mistake("shared bytes", launch(shared_bytes=2**31), (KERNEL, "launch.shared_bytes", "<= 232448")),
    Mistake("text for a number", launch(grid=["'a'"]), (KERNEL, "launch", "'a'", "not str")),
    Mistake("no finite number", launch(grid=["0 + 1e400"]), (KERNEL, "launch", "'0 + 1e400'", "gives inf")),
    *(
        Mistake(f"size {size}", text(SWEEP, "2**16", size), (SWEEP, "sizes[0].elements", *says))
        for size, says in {
            "2^16": ("'2^16'", "2**24"),
            "10**400": ("'10**400'", "too large"),
            "2**31": ("'2**31'", "< 2**31"),
            "0 + 1e400": ("'0 + 1e400'", "inf"),
            "'elements'": ("'elements'", "not defined"),
        }.items()
    ),
    Mistake("xor", kept_where("elements < 2^24"), (SWEEP, "variants[0].where", "written 2**24")),
    Mistake("condition of text", kept_where("layout"), (SWEEP, "variants[0].where", "'layout'", "not str")),
    Mistake(
        "constraint of text",
        text(KERNEL, "threads * radius <= 2048", "'yes'"),
        (KERNEL, "constraints", "not str"),
    ),
    Mistake(
        "constraint that divides by zero at one value",
        text(KERNEL, "threads * radius <= 2048", "threads // (radius - 4)"),
        (KERNEL, "constraints", "threads // (radius - 4)", "zero"),
    ),
    Mistake(
        "misspelt name in a constraint after one that a small size breaks",
        document(
            KERNEL,
            lambda kernel: kernel["constraints"].extend(
                [{"expr": expr, "reason": "it is"} for expr in ("elements > 4096", "elments > 1")]
            ),
        ),
        (KERNEL, "constraints[3].expr", "'elments'", "did you mean 'elements'"),
    ),
    Mistake(
        "misspelt name in a box",
        document(KERNEL, lambda kernel: kernel["arguments"].append({**MAP, "box": ["thread"]})),
        (KERNEL, "arguments[3].box", "'thread'", "did you mean 'threads'"),
    ),
    Mistake(
        "box that is too large",
        document(KERNEL, lambda kernel: kernel["arguments"].append({**MAP, "box": ["threads + 1"]})),
        (KERNEL, "arguments[3].box", "[257]", "extents from 1 to 256"),
    ),
    Mistake(
        "text handed to the kernel as a number",
        document(
            KERNEL,
            lambda kernel: (
                kernel["parameters"].update(way={"values": ["a"], "default": "a", "description": "more"}),
                kernel["arguments"].append({"scalar": "way", "type": "int32"}),
            ),
        ),
        (KERNEL, "parameters.way.values", "'a'", "int32"),
    ),
    Mistake(
        "aliases of aliases",
        lambda project: (project / SWEEP).write_text(f"{BOMB}title: x\n"),
        (SWEEP, "no such field"),
    ),
    Mistake(
        "aliases of aliases as a value",
        lambda project: (project / SWEEP).write_text(
            BOMB.replace("a0:", "question:").replace("a11:", "problem:")
        ),
        (SWEEP,),
    ),
    Mistake(
        "merges of merges",
        lambda project: (project / SWEEP).write_text(f"{MERGES}title: x\n"),
        (SWEEP, "line 11", "a mapping of 1024 fields", "at most 1000"),
    ),
    Mistake(
        "list for a name", text(SWEEP, "problem: stencil", "problem: [stencil]"), (SWEEP, "problem", "gemm")
    ),
    Mistake(
        "millions of combinations",
        document(
            SWEEP,
            lambda sweep: sweep["variants"][0].update(params={"radius": [2] * 1000, "threads": [128] * 1000}),
        ),
        (SWEEP, "variants: 2000000 combinations", "at most 200000"),
    ),
    Mistake("long text", text(SWEEP, "The mean", "x" * 3001), (SWEEP, "line 1", "3000 characters")),
    Mistake("depth", text(SWEEP, "[fp32]", "[" * 40000 + "]" * 40000), (SWEEP, "line 4", "50 levels")),
    Mistake(
        "list as a key", text(SWEEP, "title:", "? [a, b]\n: 1\ntitle:"), (SWEEP, "('a', 'b')", "no such")
    ),
    Mistake(
        "mapping as a key",
        text(SWEEP, "title:", "? {a: b}\n: 1\ntitle:"),
        (SWEEP, "line 1", "unhashable key"),
    ),
    Mistake(
        "number in quotes",
        text(SWEEP, "[2, 4]", "'2'"),
        (SWEEP, "params.radius", "'2' is not accepted (it is text)"),
    ),
    *(
        Mistake(f"{field} of {value!r}", measure(**{field: value}), (CONFIG, f"measure.{field}", *says))
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
        "newline after a name",
        document(CONFIG, lambda config: config.update(run="test\n")),
        (CONFIG, "run", "'test\\n'", "a folder name"),
    ),
    Mistake(
        "newline after an architecture",
        document(KERNEL, lambda kernel: kernel.update(min_arch="sm_80\n")),
        (KERNEL, "min_arch", "'sm_80\\n'", "an architecture"),
    ),
    *(
        Mistake(
            f"{value} as precision",
            text(SWEEP, "title:", f"precision: {value}\ntitle:"),
            (SWEEP, "precision", says),
        )
        for value, says in (
            (".nan", "nan is not accepted; accepted: a finite number"),
            (".inf", "inf is not accepted"),
        )
    ),
    *(
        Mistake(
            f"{value} as a size", text(SWEEP, "2**16", value), (SWEEP, "sizes[0]", says, "a whole number")
        )
        for value, says in ((".nan", "nan is not accepted"), (".inf", "inf is not accepted"))
    ),
    Mistake(
        "architecture there is none of",
        document(CONFIG, lambda config: config.update(arch="sm_999")),
        ("compile", "takes no", "sm_999"),
    ),
    Mistake(
        "option there is none of",
        document(CONFIG, lambda config: config["compile"].update(options=["--fast"])),
        ("compile", "takes no", "--fast"),
    ),
    *(
        Mistake(
            f"option {option}",
            document(
                CONFIG, lambda config, option=option: config["compile"].update(options=["-lineinfo", option])
            ),
            (
                CONFIG,
                "compile.options[1]",
                f"'{option}' is not accepted",
                "-lineinfo, --use_fast_math",
                "(-dlto",
            ),
        )
        for option in ("-G", "-dlto", "--gpu-architecture=sm_100", "-arch=sm_80", "-rdc=true", "--optix-ir")
    ),
    Mistake(
        "a NUL in the name of a header",
        source('#include "a\0.cuh"'),
        (SOURCE, "line 1: a NUL character", "text without one"),
    ),
    Mistake("source that is not UTF-8", source("// Größe"), (SOURCE, "not UTF-8", "0xf6")),
    Mistake(
        "header by its whole path",
        source('#include "/etc/passwd"'),
        (SOURCE, '"/etc/passwd"', "not found in"),
    ),
    Mistake(
        "header outside the kernels",
        source('#include "../../config/config.yaml"'),
        (SOURCE, "config.yaml", "not found in"),
    ),
    *(
        Mistake(
            f"missing header after {before!r}", source(f"{before}\n{NONE}\n#endif"), ("none.cuh", "not found")
        )
        for before in ("#if 0 || 1", "#if 0\n#if 0\n#endif\n#else", "#if 0\n#elif 1", "#if 0\n#endif\n#if 1")
    ),
    Mistake("missing header without a space", source(NONE.replace(" ", "")), ("none.cuh", "not found")),
    Mistake(
        "misspelt key of the configuration",
        text(CONFIG, "precision:", "precison:"),
        (
            CONFIG,
            "measure",
            "'precison' is not accepted",
            "did you mean 'precision'",
            "no such field",
            "seed",
        ),
    ),
    Mistake(
        "wrong type",
        text(CONFIG, "min_pairs: ", "min_pairs: few #"),
        (CONFIG, "measure.min_pairs", "'few'", "a valid integer"),
    ),
    Mistake(
        "letters that are not UTF-8",
        lambda project: (project / SWEEP).write_bytes("title: Größe".encode("latin-1")),
        (SWEEP, "not UTF-8", "0xf6"),
    ),
    Mistake(
        "missing section",
        document(CONFIG, lambda config: config.pop("profile")),
        (CONFIG, "the field 'profile' is missing"),
    ),
    Mistake(
        "architecture of another vendor",
        document(CONFIG, lambda config: config.update(arch="gfx90a")),
        (
            CONFIG,
            "arch",
            "'gfx90a'",
            "auto or an architecture such as sm_80 or sm_90a, no family such as sm_120f",
        ),
    ),
    Mistake(
        "architecture of a family",
        document(CONFIG, lambda config: config.update(arch="sm_120f")),
        (CONFIG, "arch", "'sm_120f'", "no family such as sm_120f"),
    ),
    Mistake(
        "prediction for no GPU",
        document(SWEEP, lambda sweep: sweep["variants"][0].update(predicted=[0.1, 0.2])),
        (
            SWEEP,
            "predicted_for",
            "None is not accepted",
            "such as nvidia-h200, where a variant has `predicted`",
        ),
    ),
    Mistake(
        "GPU of no prediction",
        document(SWEEP, lambda sweep: sweep.update(predicted_for="nvidia-h200")),
        (SWEEP, "predicted_for", "'nvidia-h200' is not accepted", "nothing elsewhere"),
    ),
    Mistake(
        "run named like the published folder",
        document(CONFIG, lambda config: config.update(run="published")),
        (CONFIG, "run", "'published'", "other than published"),
    ),
    Mistake(
        "unknown sweep",
        document(CONFIG, lambda config: config.update(sweeps=["alnoe"])),
        ("configuration", "sweeps", "'alnoe'", "did you mean 'alone'", "alone, with_headers"),
    ),
    Mistake(
        "YAML syntax",
        text(SWEEP, "sizes: [", "sizes: [["),
        (SWEEP, "line ", "column ", "not valid YAML"),
    ),
    Mistake(
        "a key given twice",
        text(SWEEP, "problem: stencil", "problem: stencil\nproblem: gemm"),
        (SWEEP, "line 4", 'found duplicate key "problem"'),
    ),
    Mistake(
        "empty file",
        lambda project: (project / SWEEP).write_text(""),
        (SWEEP, "a mapping of fields is expected"),
    ),
    Mistake(
        "missing configuration",
        lambda project: (project / CONFIG).unlink(),
        (CONFIG, "cannot be read: No such file"),
    ),
    Mistake(
        "no sweep at all",
        lambda project: [path.unlink() for path in (project / "config/sweeps").glob("*")],
        ("config/sweeps", "no sweep (*.yaml) found"),
    ),
    Mistake(
        "unknown kernel",
        text(SWEEP, "kernel: alone", "kernel: alon"),
        (SWEEP, "variants[0].kernel", "'alon'", "did you mean 'alone'", "no such kernel", "with_headers"),
    ),
    Mistake(
        "unknown parameter",
        text(SWEEP, "params: {radius:", "params: {reach:"),
        (SWEEP, "variants[0].params", "'reach'", "alone has no such parameter", "radius, threads"),
    ),
    Mistake(
        "value outside the declared ones",
        text(SWEEP, "radius: [2, 4]", "radius: [2, 3]"),
        (SWEEP, "variants[0].params.radius", "3 is not accepted", "2, 4, 8"),
    ),
    Mistake(
        "dtype of an entry that the sweep does not have",
        text(SWEEP, "    params: {radius: [2, 4]}", "    params: {radius: [2, 4]}\n    dtypes: [int32]"),
        (SWEEP, "variants[0].dtypes[0]", "'int32'", "the sweep has no such dtype", "fp32"),
    ),
    Mistake(
        "combination the constraints exclude",
        text(SWEEP, "radius: [2, 4]", "radius: 8, threads: 512"),
        (SWEEP, "variants[0].params", "no more than 2048 loads a block", "threads * radius <= 2048"),
    ),
    Mistake(
        "combinations of which nothing is left",
        kept_where("radius > 4"),
        (SWEEP, "variants[0].params", "no combination is left after the constraints and where"),
    ),
    Mistake(
        "combinations of which nothing is left at any size",
        kept_where("radius * elements > 2**22"),
        (SWEEP, "variants[0].params", "no combination is left after the constraints and where"),
    ),
    Mistake(
        "unknown name in the expression that keeps a combination",
        kept_where("elments > 4"),
        (SWEEP, "variants[0].where", "'elments'", "known names", "elements", "layout", "radius"),
    ),
    Mistake(
        "unknown name that no size and no combination leads to",
        kept_where("elements > 4 or reach > 4"),
        (SWEEP, "variants[0].where", "'reach'", "known names", "elements", "layout", "radius"),
    ),
    Mistake(
        "unknown function in the expression that keeps a combination",
        kept_where("radius > 1 or root(radius) > 4"),
        (SWEEP, "variants[0].where", "'root'", "known names", "log2"),
    ),
    Mistake(
        "no expression",
        kept_where("elements >"),
        (SWEEP, "variants[0].where", "'elements >'"),
    ),
    Mistake(
        "size no variant that is asked for there supports",
        text(
            SWEEP,
            "sizes: [2**16, 2**20]\nvariants:\n  - kernel: alone\n    params: {radius: [2, 4]}",
            "sizes: [2**16, 2**20 + 1]\nvariants:\n  - kernel: alone\n    params: {radius: [2, 4]}\n"
            "    where: radius == 2 or elements == 2**16",
        ),
        (SWEEP, "sizes[1]", "1048577", "no variant of variants[0]", "elements are a multiple of 256"),
    ),
    Mistake(
        "variant of two entries, though at different sizes",
        text(
            SWEEP,
            "    params: {radius: [2, 4]}",
            "    where: elements < 2**18\n  - kernel: alone\n    where: elements > 2**18",
        ),
        (SWEEP, "variants[1]", "'alone-fp32'", "each variant once"),
    ),
    Mistake(
        "size no variant supports",
        text(SWEEP, "2**20", "2**20 + 1"),
        (SWEEP, "sizes[1]", "1048577", "elements are a multiple of 256", "unsupported: record"),
    ),
    Mistake(
        "entry that keeps no size",
        text(
            SWEEP,
            "    params: {radius: [2, 4]}",
            "    params: {radius: [2, 4]}\n    where: radius > 4\n    reason: none",
        ),
        (SWEEP, "variants[0].where", "radius > 4", "an expression that keeps a size"),
    ),
    Mistake(
        "reason for nothing",
        text(SWEEP, "    params: {radius: [2, 4]}", "    params: {radius: [2, 4]}\n    reason: none"),
        (SWEEP, "variants[0].reason", "'none'", "a reason beside `where` only"),
    ),
    Mistake(
        "negative size",
        text(SWEEP, "2**20", "0 - 5"),
        (SWEEP, "sizes[1].elements", "'0 - 5'", "a whole number >= 1"),
    ),
    Mistake(
        "unknown dtype",
        text(SWEEP, "dtypes: [fp32]", "dtypes: [fp64]"),
        (SWEEP, "dtypes[0]", "'fp64'", "int32, fp32"),
    ),
    Mistake(
        "dtype the kernel is not written for",
        text(SWEEP, "dtypes: [fp32]", "dtypes: [int32]"),
        (SWEEP, "dtype", "'int32'", "alone is not written for it", "fp32"),
    ),
    Mistake(
        "unknown problem",
        text(SWEEP, "problem: stencil", "problem: stencils"),
        (SWEEP, "problem", "'stencils'", "did you mean 'stencil'", "gemm"),
    ),
    Mistake(
        "unknown reference",
        text(SWEEP, "references: [copy]", "references: [cublas]"),
        (SWEEP, "references[0]", "'cublas'", "copy"),
    ),
    *(
        Mistake(
            f"reference: {name}", text(SWEEP, "references: [copy]", f"references: [{given}]"), (SWEEP, *says)
        )
        for name, given, says in REFERENCES
    ),
    Mistake(
        "figure over a parameter that does not exist",
        text(SWEEP, "kind: curves,", "kind: heatmap, x: reach, y: radius,"),
        (SWEEP, "figures[0].x", "'reach'", "radius, threads"),
    ),
    Mistake(
        "counters of no variant",
        text(SWEEP, "figures:", "counters: {groups: [memory], where: radius > 4}\nfigures:"),
        (SWEEP, "counters.where", "'radius > 4'", "an expression that keeps a variant"),
    ),
    Mistake(
        "counters at a size where nothing is asked for",
        text(
            SWEEP,
            "    params: {radius: [2, 4]}",
            "    where: elements > 2**18\ncounters: {groups: [memory], sizes: [2**16]}",
        ),
        (SWEEP, "counters.sizes[0]", "'2**16'", "no variant is asked for there", "one of the sweep's sizes"),
    ),
    Mistake(
        "counters at a size of another sweep",
        text(SWEEP, "figures:", "counters: {groups: [memory], sizes: [2**18]}\nfigures:"),
        (SWEEP, "counters.sizes[0]", "'2**18' is not accepted; accepted: one of the sweep's sizes"),
    ),
    Mistake(
        "figure of a size where nothing is asked for",
        lambda project: (
            edit(project / SWEEP, "    params: {radius: [2, 4]}", "    where: elements > 2**18"),
            edit(project / SWEEP, "kind: curves,", "kind: ladder, at: 2**16,"),
        ),
        (SWEEP, "figures[0].at", "'2**16'", "no variant is asked for there", "one of the sweep's sizes"),
    ),
    Mistake(
        "counters of variants that are not asked for at the size to profile",
        text(
            SWEEP,
            "    params: {radius: [2, 4]}",
            "    params: {radius: [2, 4]}\n    where: radius == 2 or elements > 2**18\n"
            "counters: {groups: [memory], where: radius == 4}",
        ),
        (SWEEP, "counters.where", "'radius == 4'", "a variant asked for at one of these sizes"),
    ),
    Mistake(
        "counters of variants by a name that does not exist",
        text(SWEEP, "figures:", "counters: {groups: [memory], where: reach > 4}\nfigures:"),
        (SWEEP, "counters.where", "reach", "known names"),
    ),
    Mistake(
        "variant named twice",
        text(SWEEP, "radius: [2, 4]", "radius: [2, 2]"),
        (SWEEP, "variants[0]", "'alone-fp32'", "each variant once"),
    ),
    Mistake(
        "misspelt key of a kernel file",
        text(KERNEL, "min_arch:", "min_arhc:"),
        (KERNEL, "'min_arhc' is not accepted", "did you mean 'min_arch'"),
    ),
    Mistake(
        "missing CUDA source",
        lambda project: (project / "kernels/stencil/alone.cu").unlink(),
        (KERNEL, "the CUDA source alone.cu is missing beside it"),
    ),
    Mistake(
        "missing header",
        lambda project: (project / "kernels/include/window.cuh").unlink(),
        ("kernels/include/mean.cuh", '#include "window.cuh"', "not found in"),
    ),
    Mistake(
        "misspelt name in an expression",
        text(KERNEL, "ceil_div(elements - 2 * radius, threads)", "ceil_div(elments - 2 * radius, threads)"),
        (
            KERNEL,
            "launch",
            "ceil_div(elments - 2 * radius, threads)",
            "'elments' is not defined",
            "known names: ",
            "elements",
        ),
    ),
    Mistake(
        "unknown function in an expression",
        text(KERNEL, "ceil_div(", "round_up("),
        (KERNEL, "launch", "round_up", "known names: ", "ceil_div"),
    ),
    Mistake(
        "expression that reaches for Python",
        text(KERNEL, "threads * radius <= 2048", "threads.__class__ == 1"),
        (KERNEL, "constraints[0].expr", "threads.__class__ == 1", "Attribute is not available"),
    ),
    Mistake(
        "default outside the values",
        text(KERNEL, "default: 2,", "default: 3,"),
        (KERNEL, "parameters.radius.default", "3 is not accepted", "2, 4, 8"),
    ),
    Mistake(
        "unknown argument",
        text(KERNEL, "pointer: input", "pointer: in"),
        (KERNEL, "arguments[0].pointer", "'in'", "input, output"),
    ),
    Mistake(
        "an output that no argument names",
        document(KERNEL, lambda kernel: kernel["arguments"].pop(1)),
        (KERNEL, "arguments", "output of stencil", "add {pointer: output}", "alone.cu as well"),
    ),
    Mistake(
        "weights of a problem without any",
        document(KERNEL, lambda kernel: kernel.update(weights="none")),
        (KERNEL, "weights: 'none' is not accepted", "stencil has no alpha and beta"),
    ),
    Mistake(
        "a size as a float",
        text(KERNEL, "elements, type: int32", "elements, type: float32"),
        (KERNEL, "arguments[2].type", "'float32'", "elements is a size", "int32, int64"),
    ),
    *(
        Mistake(
            f"the scalar {given}",
            document(
                KERNEL,
                lambda kernel, given=given: kernel["arguments"].append({"scalar": given, "type": "int32"}),
            ),
            (KERNEL, "arguments[3].scalar", *says),
        )
        for given, says in {
            "elments": ("'elments'", "did you mean 'elements'", "in 'elments'"),
            "elements * reach": ("'reach'", "in 'elements * reach'", "radius, threads"),
            "elements / 3": ("gave 1365.3", "a whole number is needed"),
            "elements *": ("expression 'elements *'",),
            "'a'": ("expression \"'a'\"", "not str"),
            0.5: ("gave 0.5, a whole number is needed",),
            "elements ** 2": ("gave 4294967296, an int32 is needed",),
        }.items()
    ),
    Mistake(
        "substitution the entry does not have",
        text(KERNEL, "alone<{T}, {radius}>", "alone<{type}, {radius}>"),
        (KERNEL, "entry (for fp32)", "'type'", "T, radius, threads"),
    ),
    Mistake(
        "launch geometry that is none at one of the sizes",
        text(KERNEL, "ceil_div(elements - 2 * radius, threads)", "max(0, 1 - elements // 2**18)"),
        (KERNEL, "launch.grid", "[0] is not accepted", "whole numbers >= 1"),
    ),
    Mistake(
        "parameter the problem's check needs",
        text(KERNEL, "  radius: {values", "  reach: {values"),
        (KERNEL, "parameters", "needs a parameter 'radius'"),
    ),
    Mistake(
        "a value as a number and as a word",
        document(KERNEL, lambda kernel: kernel["parameters"]["radius"].update(values=[2, 4, "4"])),
        (KERNEL, "parameters.radius.values: [2, 4, '4'] is not accepted", "each value once"),
    ),
    Mistake(
        "a value three times",
        document(KERNEL, lambda kernel: kernel["parameters"]["radius"].update(values=[2, 2, 4])),
        (KERNEL, "parameters.radius.values: [2, 2, 4] is not accepted", "each value once"),
    ),
    Mistake(
        "two variants of one name",
        alike,
        (SWEEP, "variants[1].params", "have one name, alone-fp32-aa=1-bb=2"),
    ),
    Mistake(
        "a line break in a value",
        document(KERNEL, lambda kernel: kernel["parameters"].update(word=axis("a\nb"))),
        (KERNEL, "parameters.word.values", "a whole number or a word, of printable characters"),
    ),
    *[
        Mistake(
            f"a parameter called {name}", parameter(name), (KERNEL, f"parameters: '{name}' is not accepted")
        )
        for name in ("rung", "dtype", "kernel")
    ],
    *[
        Mistake(
            f"a workspace of {size} bytes",
            document(
                KERNEL,
                lambda kernel, size=size: kernel["arguments"].append({"workspace": "zeroed", "bytes": size}),
            ),
            (KERNEL, "bytes", "accepted: a whole number"),
        )
        for size in (-1, "2**60")
    ],
    Mistake(
        "4000 arguments",
        document(KERNEL, lambda kernel: kernel.update(arguments=kernel["arguments"] * 4000)),
        (KERNEL, "arguments", "at most 128 items"),
    ),
    Mistake(
        "a number with colons",
        text(KERNEL, "grid: [", "grid: [1:30:00, "),
        (KERNEL, "line 15", "not valid YAML", "unexpected ':'"),
    ),
    Mistake("a sweep in capitals", copied(SWEEP, "MORE.YAML"), ("MORE.YAML: file name", "NAME.yaml")),
    Mistake(
        "a title of 2900 characters",
        document(SWEEP, lambda sweep: sweep.update(title="t" * 2900)),
        (SWEEP, "title: 'ttt", "at most 200"),
    ),
    Mistake(
        "too many sizes",
        document(SWEEP, lambda sweep: sweep.update(sizes=[2**20 + 256 * i for i in range(1001)])),
        (SWEEP, "sizes", "at most 1000 items"),
    ),
    Mistake(
        "entries that stand for too much together",
        document(
            SWEEP,
            lambda sweep: sweep.update(
                variants=[{"kernel": "alone", "params": {"radius": [2] * 1000}}] * 101
            ),
        ),
        (SWEEP, "variants: 202000 combinations", "accepted: at most 200000 in a sweep"),
    ),
    Mistake(
        "a million brackets",
        lambda project: (project / SWEEP).write_text("[" * 900_000),
        (SWEEP, "line 1: over 50 levels"),
    ),
    Mistake(
        "a sweep of two megabytes",
        lambda project: (project / SWEEP).write_text("# more\n" * 300_000),
        (SWEEP, "accepted: at most 1000000"),
    ),
    Mistake(
        "a pipe among sweeps",
        lambda project: os.mkfifo(project / "config/sweeps/pipe.yaml"),
        ("pipe.yaml: cannot be read: it is no regular file",),
    ),
    Mistake(
        "a sweep that is a link to a device",
        lambda project: (project / "config/sweeps/zero.yaml").symlink_to("/dev/zero"),
        ("zero.yaml: cannot be read: it is no regular file",),
    ),
    Mistake("results that are a file", results_are_a_file, ("results: a folder is expected",)),
    *[
        Mistake(f"{field} of {value!r}", setting(field, value), (CONFIG, field, says))
        for field, value, says in (
            ("measure.sessions", 100_000, "less than or equal to 1000"),
            ("measure.max_pairs", 10**30, ""),
            ("measure.lt_heuristics", 10**30, ""),
            ("measure.lock_clocks", 10**30, ""),
            ("published", "/etc", "a folder name under results/published"),
            ("run", "r" * 300, "up to 100 letters"),
            ("run", None, "other than published and null"),
            ("device", "d" * 300, "of up to 100 letters"),
            ("compile.cache", "a\0b", "a folder"),
            ("compile.options", ["--time=/x"], "concerns no other file"),
            ("compile.options", ["-create-pch=/x"], "concerns no other file"),
            ("compile.options", ["--fdevice-time-trace=/x"], "concerns no other file"),
        )
    ],
    Mistake(
        "a rung of 104 letters",
        document(SWEEP, lambda sweep: sweep["variants"][0].update(params={"k": 2}, rung="r" * 104)),
        (SWEEP, "variants[0].rung", "at most 60 characters"),
    ),
    Mistake(
        "two kernels of one name",
        lambda project: shutil.copytree(project / "kernels/stencil", project / "kernels/another"),
        (KERNEL, "the name 'alone' is taken by", "kernels/another/alone.yaml"),
    ),
]


@pytest.fixture(autouse=True)
def _fresh() -> None:
    """Every project has files of the same names."""
    _direct_includes.cache_clear()


def test_a_sweep_may_be_called_sweep(project: Path) -> None:
    shutil.copy(project / SWEEP, project / "config/sweeps/sweep.yaml")
    outcome = run_snakemake(project, "-n", "measure_sweep", "--config", "device=nvidia-h200", "arch=sm_90a")
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
    mistake: Mistake, project: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(project)
    mistake.change(project)
    assert main(["check"]) == 2
    (record,) = caplog.records
    assert_says(record.getMessage(), ("error: ", *mistake.says))
    assert len(record.getMessage()) < 2100


@pytest.mark.parametrize(
    "line",
    [
        '#include "cuda_fp16.h"',
        f"// {NONE}",
        f"/*\n{NONE}\n*/",
        f"#if 0\n{NONE}\n#endif",
        f"#if 0\n#if 1\n#else\n#endif\n{NONE}\n{NONE}\n#endif",
        f"#if 0\n#ifdef A\n{NONE}\n#else\n{NONE}\n#endif\n#else\n#endif",
        '#define NAME "//"\n#include "mean.cuh"',
    ],
)
def test_an_include_that_the_compiler_finds_or_does_not_read_is_no_mistake(
    line: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
            ("WorkflowError", SWEEP, "variants[0].params.radius", "3 is not accepted", "2, 4, 8"),
        ),
        (
            text(KERNEL, "ceil_div(elements - 2 * radius, threads)", "max(0, 1 - elements // 2**18)"),
            (),
            ("WorkflowError", KERNEL, "launch.grid", "[0] is not accepted", "whole numbers >= 1"),
        ),
        (
            lambda project: None,
            ("sweep_alnoe",),
            ("MissingRuleException", "No rule to produce sweep_alnoe"),
        ),
        (
            lambda project: None,
            ("--config", "device=nvidia-b200"),
            ("WorkflowError", "configuration", "arch", "this host has no nvidia-b200", "such as sm_90a"),
        ),
        (
            lambda project: (project / "layer.yaml").write_text("run: a\nrun: b\n"),
            ("--configfile", "layer.yaml"),
            ("WorkflowError", "layer.yaml", "line 2", 'found duplicate key "run"'),
        ),
    ],
    ids=[
        "value outside",
        "launch geometry",
        "unknown target",
        "device without architecture",
        "key given twice",
    ],
)
def test_snakemake_ends_with_the_message_before_any_job_starts(
    change: Callable[[Path], object], arguments: tuple[str, ...], says: tuple[str, ...], project: Path
) -> None:
    change(project)
    outcome = run_snakemake(project, *arguments)
    assert outcome.code == 1
    assert_says(outcome.text, says)
    assert "Traceback" not in outcome.text
    assert outcome.jobs == []
    assert not (project / "results").exists()
