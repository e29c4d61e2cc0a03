"""The tutorial, done word for word in a copy of the project; and what README refers to."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from compiling import compile_variant
from conftest import ROOMS, ROOT, edit, run_snakemake
from emulator.launching import product, shapes_of
from ladder.catalogue.kernels import load_kernel
from ladder.cli.app import STEPS
from ladder.model.kernel import Kernel

README = (ROOT / "README.md").read_text()
RUN = (ROOT / "docs/run.md").read_text()
TUTORIAL = (ROOT / "docs/add-a-kernel.md").read_text()


def tutorial_files(folder: str) -> dict[str, str]:
    """The files of a folder that it shows: a path in backquotes with a colon, then the file as a code block."""
    found = re.findall(
        r"^`([\w./]+)`:\n\n```\w+\n(.*?)^```$", TUTORIAL, re.MULTILINE | re.DOTALL
    )
    return {name: text for name, text in found if name.startswith(folder)}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The project as a user has it, whose run needs no GPU."""
    folder = tmp_path / "copy"
    folder.mkdir()
    for room in ("kernels", "config"):
        shutil.copytree(ROOT / room, folder / room)
    for room in ROOMS:
        (folder / room).symlink_to(ROOT / room)
    edit(folder / "config/config.yaml", "device: auto", "device: none")
    return folder


def test_the_tests_and_lists_that_it_names_are_there() -> None:
    rows = re.findall(
        r"^\| `(tests/[\w/]+\.py)`, `(\w+)` \| (.*)", TUTORIAL, re.MULTILINE
    )
    assert len(rows) == 10
    for file, test, asked in rows:
        text = (ROOT / file).read_text()
        assert f"\ndef {test}(" in text
        assert [
            name
            for name in re.findall(r"`([A-Z]+)` of this file", asked)
            if f"\n{name}: " not in text
        ] == []


@pytest.mark.slow
def test_the_tutorial_adds_its_kernel_by_two_files_and_a_sweep_that_names_it(
    copy: Path,
) -> None:
    kernel = {
        f"kernels/gemm/simt/{Path(name).name}": text
        for name, text in tutorial_files("mine/").items()
    }
    files = kernel | tutorial_files("config/")
    assert [Path(name).suffix for name in files] == [".cu", ".yaml", ".yaml"]
    for name, text in files.items():
        assert not (copy / name).exists()
        (copy / name).write_text(text)

    outcome = run_snakemake(copy, "sweep_gemm_mine")
    assert outcome.code == 0, outcome.text

    folder = copy / "results/main/no-gpu/sweeps/gemm_mine"
    resources = pd.read_csv(folder / "resources.csv")
    assert set(resources["kernel"]) == {"gemm_mine"}
    assert set(resources["status"]) == {"ok"}
    # Two tiles in shared memory, one output a thread.
    tiles = resources["params"].map(lambda params: json.loads(params)["tile"])
    assert sorted(tiles) == [16, 32]
    assert (resources["threads_per_block"] == tiles**2).all()
    assert (resources["shared_bytes_static"] == 2 * 4 * tiles**2).all()
    assert (folder / "gemm_mine-1-curves.png").is_file()


@pytest.fixture
def own_gemm(tmp_path: Path) -> Kernel:
    """The GEMM that it begins with, outside of the project."""
    for name, text in tutorial_files("mine/").items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return load_kernel(tmp_path / "mine/gemm_mine.yaml")


def test_its_gemm_compiles_in_all_its_variants(own_gemm: Kernel) -> None:
    for tile in (16, 32):
        facts = compile_variant(
            own_gemm.variant({"tile": tile}, "fp32"), ROOT / "kernels/include", "sm_90a"
        )[1]
        assert (facts["status"], facts["reason"]) == ("ok", "")
        assert facts["threads_per_block"] == tile * tile


@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 0.0), (0.75, -1.5), (0.0, 0.5)])
@pytest.mark.parametrize("size", [(1, 17, 3), (33, 1, 17), (35, 50, 40)])
def test_its_gemm_is_right_also_with_alpha_zero(
    own_gemm: Kernel, size: tuple[int, int, int], alpha: float, beta: float
) -> None:
    """By the emulator; where alpha is 0 A and B hold NaN, where beta is 0 C does."""
    random = np.random.default_rng(1)
    a, b, c = (
        random.uniform(-1, 1, shape).astype(np.float32) for shape in shapes_of(size)
    )
    spoilt = np.float32(np.nan if alpha == 0 else 0)
    one = own_gemm.variant({}, "fp32")
    made, _ = product(one, (a + spoilt, b + spoilt, c), beta, alpha)
    expected = alpha * (a.astype(np.float64) @ b) + beta * c
    np.testing.assert_allclose(made, expected, atol=1e-5)


def test_the_pages_name_the_steps_there_are() -> None:
    for step in re.findall(
        r"(?:^|`)ladder (\w+)", README + RUN + TUTORIAL, re.MULTILINE
    ):
        assert step in STEPS
