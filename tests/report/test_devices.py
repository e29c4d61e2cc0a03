"""Several GPU models in one dataset: report and page set them side by side, also one on which nothing is measured."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from checkout import PUBLISHED, published_of
from conftest import ROOT
from ladder.model.folders import PublishedFolder
from ladder.model.schemas import SWEEP_TABLES
from ladder.page.document import render as render_page
from ladder.report.document import render
from ladder.results import tables
from ladder.results.run_data import RunData
from rendering import cells, section


@pytest.fixture(scope="module")
def data() -> RunData:
    return published_of("fp32_rungs", "bank_stride")


def device(
    data: RunData, root: Path, name: str, times: float | None
) -> PublishedFolder:
    """Published rows under another GPU's name, so many times as fast; with None nothing has a result."""
    made = PublishedFolder(root / name)
    frames = {table: data.frames[table].copy() for table in (*SWEEP_TABLES, "claims")}
    timings, claims = frames["timings"], frames["claims"]
    if times is None:
        timings["status"], timings["reason"] = "unsupported", "no"
        claims["verdict"] = "not measured"
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
def others(
    data: RunData, tmp_path_factory: pytest.TempPathFactory
) -> list[tuple[PublishedFolder, RunData]]:
    root = tmp_path_factory.mktemp("published")
    speeds = {"nvidia-fast": 2.0, "nvidia-none": None}
    folders = [device(data, root, name, times) for name, times in speeds.items()]
    return [(one, RunData.read(one, data.sweeps)) for one in folders]


@pytest.fixture(scope="module")
def report(data: RunData, others: list[tuple[PublishedFolder, RunData]]) -> str:
    _, text = next(render(PUBLISHED, data, {}, beside=others))
    return text


@pytest.mark.slow
def test_the_report_compares_the_cells_that_devices_share_and_names_one_without_measurements(
    data: RunData, report: str
) -> None:
    part = section(report, "Devices")
    table, _, differing = part.partition("Claims with another verdict elsewhere:")
    here, fast, none = (
        [*line.values()] for line in cells(table[table.index("|") :].strip())
    )
    timings, claims = data.frames["timings"], data.frames["claims"]
    count = str(((timings["status"] == "ok") & timings["baseline"].isna()).sum())
    assert here[:5] == ["NVIDIA H200", count, count, "1.00", "1.00"]
    assert fast[:5] == ["NVIDIA-FAST", count, count, "2.00", "1.25"]
    assert none[:2] == ["NVIDIA-NONE", "nothing is measured"]
    first = claims["id"][0]
    (line,) = differing.strip().splitlines()
    assert line.startswith(f"- `{first}`: ")
    assert "undecided on NVIDIA-FAST" in line
    assert "NVIDIA-NONE" not in line
    _, alone = next(render(PUBLISHED, data, {}))
    assert "## Devices" not in alone
    assert "here |" not in alone


@pytest.mark.slow
def test_the_first_screen_sets_this_gpu_beside_those_that_were_measured(
    data: RunData, report: str, others: list[tuple[PublishedFolder, RunData]]
) -> None:
    first = report.partition("## What to use")[0]
    assert re.search(
        r"\| question \| NVIDIA H200, here \| NVIDIA-FAST \(published\d+\) \|\n", first
    )
    steps = first.partition("| Which three steps")[2].partition("\n")[0]
    assert "| Coalesced (12 times), then" in steps, "here"
    assert "| Coalesced (15 times), then" in steps, (
        "whose steps are made 1.25 times as large"
    )
    assert "| Does double buffering pay?" not in first, (
        "no sweep of it is part of this run"
    )
    page = render_page(PUBLISHED, data, ROOT, others)
    card = page.partition('data-name="three_steps"')[2].partition("</article>")[0]
    assert re.search(r'class="muted">NVIDIA-FAST \(published\d+\): <p>Coalesced', card)
    assert "NVIDIA-NONE" not in card
