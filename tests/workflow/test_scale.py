"""What many cells and devices cost, small: docs/cluster.md has the numbers of 50,000 cells and 20 devices."""

from __future__ import annotations

from pathlib import Path

import pytest
from scale import costs, make_run

SECONDS = {"first parse": 20.0, "collect": 20.0, "report": 15.0}
"""Several times what 2,000 cells take."""


@pytest.mark.slow
def test_two_thousand_cells_and_five_devices_are_parsed_collected_and_reported_in_seconds(
    tmp_path: Path,
) -> None:
    lab = make_run(tmp_path / "project", 2000)
    found = dict(costs(lab, 5, [*SECONDS]))
    assert [step for step, used in found.items() if used.seconds > SECONDS[step]] == []
    assert max(used.gib for used in found.values()) < 1.0, found
    report = lab.folder.report.read_text()
    assert sum(line.startswith("| Other ") for line in report.splitlines()) == 5
    assert "| NVIDIA H200 | 2000 | 2000 | 1.00 | 1.00 |" in report
