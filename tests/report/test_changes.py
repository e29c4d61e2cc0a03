"""Two publications side by side, as release notes say what changed: made from their tables alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from checkout import PUBLISHED, published_of
from conftest import ROOT
from ladder.cli.app import main
from ladder.report.changes import changes
from ladder.report.choices import choices
from ladder.report.markdown import spread
from ladder.report.words import ends
from ladder.results.run_data import RunData
from rendering import made


def rows_of(text: str, heading: str) -> dict[str, list[str]]:
    """First cell of each row below a heading -> the others."""
    lines = text.partition(f"## {heading}\n")[2].partition("\n## ")[0].splitlines()
    cells = [
        [cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines if line.startswith("|")
    ]
    return {first: rest for first, *rest in cells[2:]}


def test_what_moved_is_said_with_both_ranges_and_what_did_not_is_the_same() -> None:
    old = published_of("fp32_ladder", "hopper_dtypes")
    frames = {table: rows.copy() for table, rows in old.frames.items() if len(rows)}
    claims, timings = frames["claims"], frames["timings"]
    first = claims["id"][0]
    claims.loc[claims["id"] == first, "verdict"] = "undecided"
    moved = next(one for one in choices(old) if (one.kind, one.size) == ("bf16", 4096))
    faster = (
        timings["variant"].eq(moved.row["variant"]) & timings["m"].eq(4096) & timings["regime"].eq("cold")
    )
    for name in ("speedup", "speedup_low", "speedup_high", "predicted_low", "predicted_high"):
        timings.loc[faster, name] *= 1.2
    text = changes(PUBLISHED, old, PUBLISHED, RunData(old.sweeps, frames, old.environment))
    fastest = rows_of(text, "The fastest GEMMs")
    before, now, kernel = fastest.pop(f"bf16 {moved.layout} at 4096, cold")
    assert before == f"{spread(moved.gain.measured, 3)}, {ends(moved.gain.predicted)}"
    assert float(now.split()[0]) == pytest.approx(1.2 * moved.gain.value, abs=0.01)
    assert kernel == "the same, outside what was predicted"
    assert fastest
    assert all(cells[0] == cells[1] and cells[2] == "the same" for cells in fastest.values())
    answers = rows_of(text, "Answers")
    assert answers["Which FP32 GEMM is fastest?"][1] == "the same"
    before, now = answers["Which bf16 GEMM is fastest?"]
    assert "faster than cuBLAS" in before
    assert now not in ("the same", before)
    (name,) = rows_of(text, "Claims with another verdict")
    assert name == f"`{first}`"


def test_nothing_changed_since_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    lab = made(tmp_path, ["fp32_ladder"])
    folder = str(lab.folder.root)
    assert main(["--root", str(lab.root), "changes", folder, folder]) == 0
    text = capsys.readouterr().out
    assert {cells[1] for cells in rows_of(text, "Answers").values()} == {"the same"}
    assert text.rstrip().endswith("None.")
    rows = rows_of(text, "The fastest GEMMs")
    assert {cells[2] for cells in rows.values()} == {"the same"}
    assert rows
    assert main(["--root", str(lab.root), "changes", folder, str(ROOT / "docs")]) == 2
    assert f"error: command line: AFTER: '{ROOT / 'docs'}' is not accepted" in caplog.text
