"""Publishing: a run's tables, figures, report and environment into results/published, all or nothing."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from ladder import tables
from ladder.catalog import load_catalog
from ladder.collect import read_json
from ladder.digest import tree_digest
from ladder.environment import tree
from ladder.errors import LadderError
from ladder.layout import Project, RunFolder
from ladder.markdown import count
from ladder.report import render
from ladder.statistics import records, size_label, size_of
from ladder.sweeps import load_sweeps

NEEDED = ("timings", "resources", "metrics", "claims", "notes", "jobs")
OPTIONAL = ("clock_nvbench", "clock_aa")
SHOWN = 5


def objections(project: Project, folder: RunFolder) -> list[str]:
    """Why this run should not be published; empty where nothing speaks against it.

    Raises LadderError where something is missing that a published run consists of.
    """
    environment = read_json(folder.environment)
    if environment is None:
        raise LadderError(f"{folder.environment}: missing; the run is not complete")
    if not folder.report.is_file():
        raise LadderError(f"{folder.report}: missing; make the report first")
    found = []
    source = environment.get("timings_from")
    if source != "measured":
        found.append(f"its timings are not its own: environment.json says timings_from = {source!r}")
    recorded, now = (environment.get("tree") or {}).get("digest"), tree_digest(project.root)
    if recorded != now:
        found.append(
            f"the tree (kernels/, workflow/, config/) has digest {now[:16]}, "
            f"the run was made by {str(recorded)[:16]}"
        )
    timings = tables.read("timings", folder.tables)
    wrong = timings[(timings["status"] == "incorrect").fillna(False)]
    unchecked = timings[((timings["status"] == "ok") & timings["max_error"].isna()).fillna(False)]
    for rows, what in ((wrong, "with an incorrect result"), (unchecked, "timed but not verified")):
        if len(rows):
            cells = [
                f"{row['sweep']}: {row['variant']} at {size_label(size_of(row))}" for row in records(rows)
            ]
            more = f" and {len(cells) - SHOWN} more" if len(cells) > SHOWN else ""
            found.append(f"{count(len(cells), 'cell')} {what}: {'; '.join(cells[:SHOWN])}{more}")
    if not len(timings):
        found.append("it has no timings at all")
    return found


def name_commit(project: Project, folder: RunFolder) -> bool:
    """Name this checkout's commit in a run that was made from the same tree where no commit held that tree.

    That is a host without git, or a checkout with local changes. The digests prove that the trees are the same; a
    checkout that is not clean names none. The report is written anew, since its first lines say the commit.
    """
    found = read_json(folder.environment) or {}
    recorded, here = found.get("tree") or {}, tree(project.root)
    known = recorded.get("commit") and recorded.get("clean")
    if known or recorded.get("digest") != here["digest"] or not here["clean"]:
        return False
    found["tree"] = here
    tables.replace_file(folder.environment, (json.dumps(found, indent=1) + "\n").encode())
    measured = set(tables.read("timings", folder.tables)["sweep"])
    sweeps = load_sweeps(project.sweeps, load_catalog(project.kernels), None)
    chosen = {name: sweep for name, sweep in sweeps.items() if name in measured}
    tables.replace_file(folder.report, render(folder, chosen).encode())
    return True


def _copy_into(folder: RunFolder, target: Path) -> None:
    for name in (*NEEDED, *OPTIONAL):
        for ending in ("csv", "parquet"):
            source = folder.tables / f"{name}.{ending}"
            if source.is_file():
                shutil.copyfile(source, target / source.name)
            elif name in NEEDED:
                raise LadderError(f"{source}: missing; the run is not complete")
    if (figures := folder.root / "figures").is_dir():
        (target / "figures").mkdir()
        for picture in sorted(figures.glob("*.png")):
            shutil.copyfile(picture, target / "figures" / picture.name)
    for path in (folder.environment, folder.root / "throughput.json"):
        if path.is_file():
            shutil.copyfile(path, target / path.name)
    # Published tables lie beside the report, not in a folder below it.
    report = folder.report.read_text(encoding="utf-8").replace("](tables/", "](")
    (target / "report.md").write_text(report, encoding="utf-8")


def publish(project: Project, run: str, device: str, *, force: bool = False) -> Path:
    """Copy results/RUN/DEVICE to results/published/DEVICE and return that folder.

    The new folder is built beside the old one and takes its place by renaming: nobody ever reads half of it.
    Raises LadderError with every objection unless forced, and where the run is not complete.
    """
    folder = project.run(run, device)
    if not folder.root.is_dir():
        raise LadderError(f"{folder.root}: no such run")
    against = objections(project, folder)
    if against and not force:
        raise LadderError(f"{folder.root} is not published (--force overrides): " + "; ".join(against))
    name_commit(project, folder)
    target = project.published(device)
    fresh = target.with_name(f".{target.name}.{os.getpid()}.new")
    old = target.with_name(f".{target.name}.{os.getpid()}.old")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    try:
        _copy_into(folder, fresh)
        if target.exists():
            target.rename(old)
        try:
            fresh.rename(target)
        except OSError:
            if old.exists():
                old.rename(target)
            raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
        if target.exists():
            shutil.rmtree(old, ignore_errors=True)
    return target
