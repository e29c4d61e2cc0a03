"""Records of a folder, be it a run's or a published one."""

from __future__ import annotations

from pathlib import Path

from ladder.measure.store import Records, read_store
from ladder.model.errors import LadderError
from ladder.model.folders import RunFolder
from ladder.results.archive import read_archive


def read_records(folder: Path) -> Records:
    """Every record under results/RUN/DEVICE or results/published/DEVICE. Raises LadderError where there is none."""
    records = RunFolder(folder).records
    if not records.is_dir():
        raise LadderError(f"{folder}: no records in it; a run is results/RUN/DEVICE")
    return read_archive(records, into=read_store(records))


def every_folder(results: Path, device: str) -> list[Path]:
    """Folders of a device that hold records: the published one first, then the runs'."""
    folders = [path.parent for path in sorted(results.glob(f"*/{device}/records"))]
    return sorted(folders, key=lambda folder: folder.parent.name != "published")
