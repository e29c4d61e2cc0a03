"""Every target that the pages give to snakemake is one of its rules."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from conftest import ROOT, run_snakemake

PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
]
TAUGHT = {"sweep_gemm_mine"}
"""Of the sweep that a reader of add-a-kernel writes."""
_FENCED = re.compile(r"^```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_VALUES = re.compile(
    r"--cores \w+|--\w[\w-]*method \w+|(?:'[^']*'|\S)+=(?:'[^']*'|\S)*"
)
"""Values of options that look like names of rules."""


def commands(page: str) -> Iterator[str]:
    """What follows snakemake in the code of a page; and of a row of a table, what follows `…` for the same command."""
    for block in _FENCED.findall(page):
        yield from re.findall(r"\bsnakemake (.*)", block.replace("\\\n", " "))
    for line in _FENCED.sub("", page).splitlines():
        spans = re.findall(r"`([^`]+)`", line)
        yield from (
            span.removeprefix("snakemake ")
            for span in spans
            if span.startswith("snakemake ")
        )
        if "`snakemake " in line:
            yield from (
                span.removeprefix("… ") for span in spans if span.startswith("… ")
            )


def targets(command: str) -> list[str]:
    """Names of rules in a command; NAME stands for a sweep."""
    words = _VALUES.sub("", command.partition("#")[0]).split()
    return [
        word.replace("NAME", "fp32_ladder")
        for word in words
        if re.fullmatch(r"[a-z][a-z0-9_]*(NAME)?", word)
    ]


def test_targets_are_found_and_values_of_options_are_none() -> None:
    page = "`snakemake --cores all a`, `… b` and `x c`\n```\nsnakemake --cores 4 \\\n  d --config e='{f: g}' h=i\n```\n"
    assert [name for command in commands(page) for name in targets(command)] == [
        "d",
        "a",
        "b",
    ]


@pytest.mark.slow
def test_every_target_on_a_page_is_a_rule() -> None:
    outcome = run_snakemake(
        ROOT, "--list", "--config", "device=nvidia-h200", "arch=sm_90a"
    )
    assert outcome.code == 0, outcome.text
    rules = {
        line.split()[0]
        for line in outcome.text.splitlines()
        if re.match(r"[a-z]", line)
    }
    assert {"all", "report", "sweep_fp32_ladder", "measure_hopper_small"} <= rules
    found = set[str]()
    for path in PAGES:
        for command in commands(path.read_text()):
            for target in targets(command):
                assert target in rules | TAUGHT, (path.name, command)
                found.add(target)
    assert {"compile", "report", "sanitize", "publish", "time_sweep"} <= found
