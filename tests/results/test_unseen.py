"""How often ranges held on GPUs that were new to a publication: the table, and what answers make of it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pandas as pd
import pytest
from conftest import ROOT
from factory import ONE_CELL, Lab
from ladder.model.folders import Project
from ladder.report.lookups import Lookups
from ladder.results import tables
from ladder.results.published_records import read_archive
from ladder.results.run_data import RunData
from unseen import main, readings, unseen, when_new

PUBLISHED = Project(ROOT).published("nvidia-h200")

NEEDS_HISTORY = pytest.mark.skipif(
    (ROOT / ".git/shallow").exists(),
    reason="the clone is shallow: git does not know what was published before",
)
AUTHOR = ["-c", "user.name=Test", "-c", "user.email=test@example.com"]


def timings(*rows: dict[str, object]) -> pd.DataFrame:
    return tables.frame("timings", [ONE_CELL | row for row in rows])


def sessions(*rows: dict[str, object]) -> pd.DataFrame:
    usual = {
        "reference": "cublas",
        "gpu_uuid": "GPU-new",
        "started": "2026-11-23T10:00:00Z",
    }
    return tables.frame("sessions", [ONE_CELL | usual | row for row in rows])


def test_a_reading_counts_once_where_it_has_a_range_and_says_something() -> None:
    held = readings(
        sessions(
            {"speedup": 1.0, "host_gpus": 1},
            {"speedup": 1.2, "gpu_uuid": "GPU-other", "host_gpus": 2},
            {"speedup": 1.0, "chose": True},
            {"speedup": 1.0, "reference": "v"},
            {"speedup": 1.0, "variant": "without a range"},
            {"speedup": 0.98, "m": 2, "reference": "w"},
        ),
        timings(
            {"predicted_low": 0.99, "predicted_high": 1.01},
            {"variant": "without a range"},
            {"m": 2, "predicted_low": 0.97, "predicted_high": 0.99},
        ),
    )
    found = unseen(held, sessions())
    numbers = {
        row.part: (row.gpus, row.cells, row.readings, row.covered)
        for row in found.itertuples()
    }
    assert numbers["all"] == (2, 2, 3, pytest.approx(2 / 3))
    assert numbers["library"] == (2, 1, 2, 0.5)
    assert numbers["kernel"] == (1, 1, 1, 1.0)
    assert numbers["s"] == numbers["all"]
    assert found.set_index("part").loc["all", "host_gpus"] == "1 or 2"
    for part in ("GPUs of the host: 1", "GPUs of the host: 2"):
        assert numbers[part][2] == 1


def commit(folder: Path, readings: pd.DataFrame, high: float) -> None:
    tables.write(
        {
            "sessions": readings,
            "timings": timings({"predicted_low": 0.9, "predicted_high": high}),
        },
        folder,
    )
    for command in (["add", "."], ["commit", "-qm", "publish"]):
        subprocess.run(["git", "-C", str(folder), *AUTHOR, *command], check=True)


def test_each_gpu_is_held_against_the_ranges_of_the_last_publication_without_it(
    tmp_path: Path,
) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    old = {"speedup": 1.0, "gpu_uuid": "GPU-old"}
    commit(tmp_path, sessions(old), 1.1)
    with pytest.raises(ValueError, match="git knows no publication before its GPUs"):
        when_new(tmp_path)
    commit(tmp_path, sessions(old, {"speedup": 1.2}), 1.3)
    # Again, without another GPU.
    commit(tmp_path, sessions(old, {"speedup": 1.2}, {"speedup": 1.0}), 1.4)
    newer = {"speedup": 1.35, "gpu_uuid": "GPU-newer"}
    commit(tmp_path, sessions(old, {"speedup": 1.2}, {"speedup": 1.0}, newer), 1.5)
    main(tmp_path, tmp_path / "unseen")
    found = tables.read("unseen", tmp_path / "unseen").set_index("part").loc["all"]
    assert (found["gpus"], found["readings"], found["covered"]) == (
        2,
        3,
        pytest.approx(2 / 3),
    )


def test_trust_is_of_the_published_ranges_alone(tmp_path: Path) -> None:
    """A run of one's own on the same GPU has ranges of its own."""
    lab = Lab(tmp_path)
    lab.record_and_collect(["fp32_ladder"])
    held = tables.frame("unseen", [{"part": "all"}])
    tables.write({"unseen": held}, lab.folder.unseen(lab.device))
    read = RunData.read(lab.folder, lab.sweeps(["fp32_ladder"])).frames["unseen"]
    assert read.empty


@NEEDS_HISTORY
@pytest.mark.published
def test_the_table_is_of_the_ranges_that_were_published_before(tmp_path: Path) -> None:
    main(PUBLISHED.root, tmp_path)
    made, kept = (
        tables.read("unseen", folder)
        for folder in (tmp_path, PUBLISHED.unseen("nvidia-h200"))
    )
    assert made.equals(kept), "run tests/unseen.py again"


def of_two_kinds() -> list[str]:
    """What the page says of GPUs that copy memory more slowly, by the rates of their sessions."""
    sessions = read_archive(PUBLISHED.records).sessions.values()
    rates = pd.DataFrame(
        [
            (session.gpu["uuid"][:12], session.gpu["copy_gbytes_per_s"])
            for session in sessions
            if session.gpu.get("copy_gbytes_per_s")
        ],
        columns=["gpu_uuid", "rate"],
    )
    timed = tables.read("sessions", PUBLISHED.root)
    published = rates[rates["gpu_uuid"].isin(timed["gpu_uuid"])]
    by_gpu = published.groupby("gpu_uuid")["rate"].median()
    slow, usual = by_gpu[by_gpu < 4265], by_gpu[by_gpu > 4265]
    assert len(slow) == 10
    kernel_6 = timed[
        (timed["sweep"] == "fp32_as_written")
        & (
            timed["variant"]
            == "gemm_staged-fp32-bk=8-lane_map=rows_2x16-split=adjacent-pad=0"
        )
        & (timed["m"] == 4096)
    ]
    is_slow = kernel_6["gpu_uuid"].isin(slow.index)
    times = kernel_6.groupby(is_slow)["median_us"].mean()
    placed = pd.read_csv(PUBLISHED.unseen("nvidia-h200") / "placement.csv")
    padded = placed[placed["sweep"] == "fp32_padding"]
    clusters = pd.read_csv(PUBLISHED.unseen("nvidia-h200") / "clusters.csv")
    assert list(clusters["copy_gbytes_per_s"] < 4265) == [False, True, True]
    assert {*clusters["parts"]} == {"18 18 16 16 16 16 16 8 2 2 2 2"}
    assert padded["covered"].all()
    assert not {*padded["gpu_uuid"]} & {*slow.index}
    return [
        f"Of the {len(by_gpu)} published GPUs ten copy memory at {slow.min():,.0f} to {slow.max():,.0f} GB/s, "
        f"the others at {usual.min():,.0f} to {usual.max():,.0f}",
        f"takes {1 - times[True] / times[False]:.1%} less time at 4096",
        f"of {len(padded)} readings of `fp32_padding` all lay in their ranges",
    ]


def test_the_page_on_trust_says_how_far_ranges_held() -> None:
    parts = tables.read("unseen", PUBLISHED.unseen("nvidia-h200")).set_index("part")
    said = " ".join((ROOT / "docs/trust.md").read_text().split())
    names = tables.read("timings", PUBLISHED.root)["sweep"].unique()
    sweeps = parts[
        parts.index.isin(names) & (parts["readings"] >= Lookups.LEAST_READINGS)
    ]
    whole, alone = parts.loc["all"], parts.loc["GPUs of the host: 1"]
    least = sweeps.loc[sweeps["covered"].idxmin()]
    assert alone["gpus"] == 13
    screen = pd.read_csv(PUBLISHED.unseen("nvidia-h200") / "first_screen.csv")
    for text in (
        f"{whole['covered']:.0%} of {whole['readings']:,} readings on {whole['gpus']} GPUs",
        f"On the thirteen GPUs alone in their host, {alone['covered']:.0%} of {alone['readings']:,} did",
        f"{screen['covered'].mean():.0%} of {len(screen):,} readings lay",
        *of_two_kinds(),
        f"`{least.name}`, the worst sweep of {Lookups.LEAST_READINGS} readings and more: "
        f"{least['covered']:.0%} of {least['readings']}",
    ):
        assert text.replace("%", " %") in said


@NEEDS_HISTORY
@pytest.mark.published
def test_the_page_on_trust_says_on_which_gpu_ranges_held_least() -> None:
    found = when_new(PUBLISHED.root).groupby("gpu_uuid")
    gpus = found["covered"].agg(["size", "mean"])
    many = gpus[gpus["size"] >= 500]
    least = many["mean"].idxmin()
    share, readings = many.loc[least, "mean"], many.loc[least, "size"]
    text = f"Of GPUs with 500 readings and more one had the lowest share: {share:.0%} of {readings:,}."
    said = " ".join((ROOT / "docs/trust.md").read_text().split())
    assert text.replace("%", " %") in said


def test_the_page_on_trust_says_what_the_start_of_a_chain_adds() -> None:
    timed = tables.read("timings", PUBLISHED.root)
    sums = timed[
        (timed["sweep"] == "reduction")
        & (timed["regime"] == "warm")
        & (timed["elements"] == 65536)
    ]
    assert set(sums["reference"]) == {"copy"}
    beside = sums.set_index("kernel")["reference_median_us"]
    said = " ".join((ROOT / "docs/trust.md").read_text().split())
    assert (
        f"a copy of 65,536 numbers takes {beside.min():.1f} to {beside.max():.1f} µs."
        in said
    )


def test_the_first_screen_names_the_share_on_gpus_that_were_new() -> None:
    data = RunData.read(PUBLISHED, {})
    whole = data.frames["unseen"].set_index("part").loc["all"]
    assert Lookups(data).held("all")["covered"] == whole["covered"]
    said = f"Of {whole['readings']:,} readings on {whole['gpus']} new GPUs, {whole['covered']:.0%}"
    assert said.replace("%", " %") in (ROOT / "README.md").read_text()
