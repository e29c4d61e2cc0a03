"""Several GPU models in one dataset: report and page set them side by side, also one on which nothing is measured."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from checkout import every_sweep
from conftest import ROOT
from ladder.model.folders import Project, PublishedFolder
from ladder.model.sweep import Sweep
from ladder.page.document import render as render_page
from ladder.report.document import render
from ladder.results import tables
from ladder.results.run_data import RunData

OWN = Project(ROOT)
PUBLISHED = OWN.published("nvidia-h200")
NAMES = ("timings", "resources", "sessions", "metrics", "claims", "notes", "jobs")

pytestmark = pytest.mark.skipif(not PUBLISHED.root.is_dir(), reason="nothing is published")


@pytest.fixture(scope="module")
def sweeps() -> dict[str, Sweep]:
    return {name: every_sweep()[name] for name in ("fp32_ladder", "bank_stride")}


def device(root: Path, name: str, times: float | None) -> PublishedFolder:
    """The published tables under another GPU's name, so many times as fast; with None nothing has a result."""
    made = PublishedFolder(root / name)
    frames = {table: tables.read(table, PUBLISHED.tables) for table in NAMES}
    timings, claims = frames["timings"], frames["claims"]
    if times is None:
        timings["status"], timings["reason"], claims["verdict"] = "unsupported", "no", "not measured"
    else:
        timings["median_us"] /= times
        timings["speedup"] *= 1.25
        claims.loc[claims["id"] == claims["id"][0], "verdict"] = "undecided"
    tables.write(frames, made.tables)
    about = json.loads(PUBLISHED.environment.read_text())
    about |= {"device": name, "gpu": {**about["gpu"], "name": name.upper()}}
    made.environment.write_text(json.dumps(about))
    return made


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> list[PublishedFolder]:
    root = tmp_path_factory.mktemp("published")
    return [device(root, "nvidia-fast", 2.0), device(root, "nvidia-none", None)]


@pytest.mark.slow
def test_the_report_compares_the_cells_that_devices_share_and_names_one_without_measurements(
    sweeps: dict[str, Sweep], others: list[PublishedFolder]
) -> None:
    text = render(PUBLISHED, RunData.read(PUBLISHED, sweeps), {}, beside=others)[PUBLISHED.report]
    section = text.partition("## Devices\n")[2].partition("\n## ")[0]
    rows = {line.split(" | ")[0].strip("| "): line.strip("| ").split(" | ") for line in section.splitlines()}
    timings, claims = (tables.read(name, PUBLISHED.tables) for name in ("timings", "claims"))
    cells = str(((timings["status"] == "ok") & timings["baseline"].isna() & timings["beta"].isna()).sum())
    assert rows["NVIDIA H200"][1:5] == [cells, cells, "1.00", "1.00"]
    assert rows["NVIDIA-FAST"][1:5] == [cells, cells, "2.00", "1.25"]
    assert rows["NVIDIA-NONE"][1].strip() == "nothing is measured"
    (differing,) = [line for line in section.splitlines() if line.startswith("- ")]
    first = claims["id"][0]
    assert differing.startswith(f"- `{first}`: ")
    assert "undecided on NVIDIA-FAST" in differing
    assert "NVIDIA-NONE" not in differing
    assert "## Devices" not in render(PUBLISHED, RunData.read(PUBLISHED, sweeps), {})[PUBLISHED.report]


@pytest.mark.slow
def test_the_page_has_every_device_and_says_which_has_no_measurements(
    sweeps: dict[str, Sweep], others: list[PublishedFolder]
) -> None:
    text = render_page(PUBLISHED, RunData.read(PUBLISHED, sweeps), ROOT, others)
    found = re.search(r'id="data">(.*?)</script>', text, re.DOTALL)
    assert found
    runs = json.loads(found[1])["runs"]
    assert [(run["gpu"], run["measured"]) for run in runs] == [
        ("NVIDIA H200", True),
        ("NVIDIA-FAST", True),
        ("NVIDIA-NONE", False),
    ]


@pytest.mark.slow
def test_the_first_screen_sets_this_gpu_beside_those_that_were_measured(
    sweeps: dict[str, Sweep], others: list[PublishedFolder]
) -> None:
    data = RunData.read(PUBLISHED, sweeps)
    report = render(PUBLISHED, data, {}, beside=others)[PUBLISHED.report]
    first = report.partition("## What to use")[0]
    assert re.search(r"\| question \| NVIDIA H200, here \| NVIDIA-FAST \(published\d+\) \|\n", first)
    (steps,) = [line for line in first.splitlines() if line.startswith("| Which three steps")]
    assert "| Coalesced loads (12 times), then" in steps, "here"
    assert "| Coalesced loads (15 times), then" in steps, "whose steps are made 1.25 times as large"
    assert "| Does double buffering pay?" not in first, "no sweep of it is part of this run"
    assert "here |" not in render(PUBLISHED, data, {})[PUBLISHED.report]
    page = render_page(PUBLISHED, data, ROOT, others)
    card = page.partition('data-name="three_steps"')[2].partition("</article>")[0]
    assert re.search(r'class="muted">NVIDIA-FAST \(published\d+\): <p>Coalesced', card)
    assert "NVIDIA-NONE" not in card


def test_what_is_published_of_other_devices_is_found(tmp_path: Path, others: list[PublishedFolder]) -> None:
    for one in others:
        shutil.copytree(one.root, tmp_path / "results/published" / one.root.name)
    found = [one.root.name for one in Project(tmp_path).publications()]
    assert found == ["nvidia-fast", "nvidia-none"]
