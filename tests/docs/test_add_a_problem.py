"""The page about problems names files that are there, and all that a problem must have."""

from __future__ import annotations

import re
from glob import has_magic

from conftest import ROOT
from ladder.gpu.instance import Instance
from ladder.model.problem import Problem

PAGE = (ROOT / "docs/add-a-problem.md").read_text()


def test_files_that_it_names_are_there() -> None:
    named = [
        one
        for one in re.findall(r"`([\w./*-]+/[\w./*-]+\.\w+)`", PAGE)
        if not one.startswith("results/main")
    ]
    assert len(named) > 10
    assert [
        one
        for one in named
        if not (any(ROOT.glob(one)) if has_magic(one) else (ROOT / one).is_file())
    ] == []


def test_it_names_every_method_that_a_problem_and_its_instance_must_have() -> None:
    demanded = Problem.__abstractmethods__ | Instance.__abstractmethods__
    assert len(demanded) >= 5
    assert [name for name in demanded if f"`{name}`" not in PAGE] == []
