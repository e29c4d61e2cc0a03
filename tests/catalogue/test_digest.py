"""Digests: what ties a run's numbers to the tree, a cell to its parameters, and what leaves them alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import edit_yaml, make_project
from ladder.catalogue.runs import load
from ladder.catalogue.settings import set_up
from ladder.model.files import tree_digest

FILES = {
    "kernels/gemm/naive.cu": "kernel",
    "kernels/include/tile.cuh": "header",
    "workflow/Snakefile": "rules",
    "workflow/ladder/plan.py": "plan",
    "config/config.yaml": "run: test",
    "config/sweeps/tiles.yaml": "sizes: [4096]",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A project of six files."""
    for name, text in FILES.items():
        write(tmp_path / name, text)
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize("name", FILES)
def test_every_file_of_the_three_rooms_counts(tree: Path, name: str) -> None:
    before = tree_digest(tree)
    write(tree / name, FILES[name] + " changed")
    changed = tree_digest(tree)
    (tree / name).unlink()
    removed = tree_digest(tree)
    assert len({before, changed, removed}) == 3


@pytest.mark.parametrize(
    "change",
    [
        lambda tree: (tree / "config/config.yaml").rename(tree / "config/other.yaml"),
        lambda tree: (tree / "config/config.yaml").rename(tree / "kernels/config.yaml"),
    ],
)
def test_a_renamed_or_moved_file_counts(
    tree: Path, change: Callable[[Path], object]
) -> None:
    before = tree_digest(tree)
    change(tree)
    assert tree_digest(tree) != before


@pytest.mark.parametrize(
    "name",
    [
        "workflow/ladder/__pycache__/plan.cpython-311.pyc",
        "workflow/ladder/__pycache__/note.txt",
        "workflow/kernel_ladder.egg-info/PKG-INFO",
        "README.md",
        "tests/test_plan.py",
        "results/test/report.md",
        ".git/HEAD",
    ],
)
def test_what_no_number_depends_on_does_not_count(tree: Path, name: str) -> None:
    before = tree_digest(tree)
    write(tree / name, "something")
    assert tree_digest(tree) == before


def test_a_touched_tree_and_a_copy_elsewhere_have_the_same_digest(
    tree: Path, tmp_path: Path
) -> None:
    before = tree_digest(tree)
    for name in FILES:
        (tree / name).touch()
    copy = tmp_path / "elsewhere"
    for name, text in reversed(FILES.items()):
        write(copy / name, text)
    assert tree_digest(tree) == before == tree_digest(copy)


def test_a_parameter_that_was_added_later_leaves_cells_alone_where_it_has_its_default(
    tmp_path: Path,
) -> None:
    project = make_project(tmp_path / "project")

    def cells() -> dict[str, set[str]]:
        plan = load(set_up(project, over={"device": "none"})).plans["alone"]
        found: dict[str, set[str]] = {}
        for task in plan.tasks:
            found.setdefault(task.variant, set()).add(task.cell.id)
        return found

    def add(**more: object) -> dict[str, set[str]]:
        axis = {"values": [1, 2], "default": 1, "description": "twice as much", **more}
        edit_yaml(
            project / "kernels/stencil/alone.yaml",
            lambda kernel: kernel["parameters"].update(twice=axis),
        )
        return cells()

    before = cells()
    assert before == add(added=True)
    assert all(before[name].isdisjoint(ids) for name, ids in add().items())
    edit_yaml(
        project / "config/sweeps/alone.yaml",
        lambda sweep: sweep["variants"][0]["params"].update(twice=[1, 2]),
    )
    after = add(added=True)
    assert {name: after.pop(name) for name in before} == before
    assert len(after) == len(before)
    assert set().union(*after.values()).isdisjoint(set().union(*before.values()))
