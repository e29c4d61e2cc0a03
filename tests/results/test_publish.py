"""Publishing merges a run's records into what is published of its device: nothing else changes, and never by halves."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from conftest import ROOT, edit_yaml
from factory import DEVICE, SESSION, Lab, failed, make_facts
from killing import calls_of
from ladder.build.triton_request import MISSING
from ladder.build.variants import CompileRequests
from ladder.cli.app import main
from ladder.gpu.timing import Blocks, Pairs
from ladder.measure.worker import _result as recorded
from ladder.model.files import replace_file, tree_digest, write_json
from ladder.model.intervals import abba_ratios, median, median_interval
from ladder.model.kernel import Variant
from ladder.model.plan import tasks_as_compiled
from ladder.model.plan_file import facts_to_json, read_facts, read_plan, to_json
from ladder.results import publish as publishing
from ladder.results import tables
from ladder.results.collect import OTHER_CODE
from ladder.results.published_records import read_archive
from ladder.results.run_data import RunData, read_frames

SWEEPS = ["tensor_ladder", "bank_stride"]


def settled(record: dict[str, Any] | None) -> dict[str, Any] | None:
    """A record whose times give its speed-up, and the interval that they give."""
    for regime in (record or {"regimes": {}})["regimes"].values():
        scale = median(abba_ratios(regime["variant_us"], regime["reference_us"])) / regime["speedup"]
        regime["variant_us"] = [one * scale for one in regime["variant_us"]]
        ratios = abba_ratios(regime["variant_us"], regime["reference_us"])
        regime["speedup_low"], regime["speedup_high"] = median_interval(ratios)
    return record


class Run(Lab):
    """A project of two sweeps, under git, and a run that was measured from its commit."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for path in self.project.sweeps.glob("*.yaml"):
            if path.stem not in SWEEPS:
                path.unlink()
        self.project.config.joinpath("config.yaml").write_text((ROOT / "config" / "config.yaml").read_text())
        edit_yaml(self.project.config / "config.yaml", self.configure)
        if not (self.root / ".git").exists():
            self.git("init", "-q")
            self.git("add", "kernels", "config")
            self.git("commit", "-qm", "all")

    def configure(self, config: dict[str, Any]) -> None:
        config.update(device=DEVICE, arch="sm_90a", sweeps="all")

    def git(self, *words: str) -> str:
        command = ["git", "-C", str(self.root), "-c", "user.name=n", "-c", "user.email=e", *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    def measure(
        self,
        names: list[str] | None = None,
        change: Any = lambda _, record: record,
        facts: Any = lambda _, given: given,
        **session: Any,
    ) -> None:
        """A finished run of some sweeps, made by the tree as it stands."""
        here = {"digest": tree_digest(self.root), "commit": self.git("rev-parse", "HEAD"), "clean": True}
        self.session = replace(SESSION, **({"tree": here} | session))
        self.record(names or SWEEPS, change, facts)

    def record(
        self, names: Any = None, change: Any = lambda _, record: record, *rest: Any, **more: Any
    ) -> None:
        """Records whose speed-ups are those of their times."""
        super().record(names, lambda place, record: settled(change(place, record)), *rest, **more)

    def publish(self, *options: str) -> int:
        return main(["--root", str(self.root), "publish", self.run, self.device, *options])

    @property
    def target(self) -> Path:
        return self.project.published(DEVICE).root

    def published(self, table: str = "timings") -> pd.DataFrame:
        return tables.read(table, self.target)

    def files(self) -> dict[str, bytes]:
        found = self.target.parent.rglob("*")
        return {
            path.relative_to(self.target.parent).as_posix(): path.read_bytes()
            for path in found
            if path.is_file()
        }


@pytest.fixture(scope="module")
def measured_once(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run; shared, so look at it only."""
    lab = Run(tmp_path_factory.mktemp("measured"))
    lab.measure()
    return lab


@pytest.fixture(scope="module")
def published_once(measured_once: Run, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The run after it was published; shared, so look at it only."""
    lab = copied(measured_once, tmp_path_factory.mktemp("published"))
    assert lab.publish() == 0
    return lab


def copied(lab: Run, folder: Path) -> Run:
    """The same project in another folder, to change."""
    shutil.copytree(lab.root, folder, symlinks=True, dirs_exist_ok=True)
    return replace(lab, root=folder)


@pytest.fixture(autouse=True)
def untold(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two thirds of publishing are verdicts, figures, report and page, which few tests look at."""
    drawn = (test_publishing_again_adds_nothing, test_a_subset_replaces_nothing_else)
    told = (
        test_each_sweep_keeps_the_resources_of_its_own_code,
        test_two_gpus_stand_in_one_publication,
        test_counters_of_other_code_are_named_with_their_date,
        test_a_publication_that_is_killed_loses_nothing,
    )
    if request.function not in drawn:
        monkeypatch.setattr("ladder.cli.publish.draw_sweeps", lambda *_: [])
    if request.function not in (*drawn, *told):
        for name in ("decide_tables", "titles", "write"):
            monkeypatch.setattr(f"ladder.cli.publish.{name}", lambda *_: {})
        monkeypatch.setattr("ladder.cli.publish.render", lambda *_: "")
        monkeypatch.setattr("ladder.cli.publish.RunData.read", lambda *_: RunData({}, {}))


@pytest.fixture
def run(measured_once: Run, tmp_path: Path) -> Run:
    return copied(measured_once, tmp_path)


@pytest.fixture
def released(published_once: Run, tmp_path: Path) -> Run:
    """The run as it was published, to publish from again."""
    return copied(published_once, tmp_path)


def test_a_run_is_published_whole(published_once: Run) -> None:
    run = published_once
    names = {path.relative_to(run.target).as_posix() for path in run.target.rglob("*") if path.is_file()}
    assert {"timings.csv", "timings.parquet", "sessions.csv", "claims.csv", "jobs.csv", "facts.json"} <= names
    assert {"environment.json", "index.html", "figures/tensor_ladder-1-ladder.png"} <= names
    assert {"report.md", "methodology.md", "sweeps/tensor_ladder.md", "sweeps/bank_stride.md"} <= names
    assert len([name for name in names if name.startswith("records/")]) == 1
    assert [path.name for path in run.target.parent.iterdir()] == [DEVICE], "nothing is left beside it"
    environment = json.loads((run.target / "environment.json").read_text())
    assert (environment["timings_from"], environment["gpu"]["uuid"]) == ("measured", "GPU-1")
    assert environment["tree"]["commit"] == run.git("rev-parse", "HEAD")
    assert "](sweeps/tensor_ladder.md)" in (run.target / "report.md").read_text()
    assert set(run.published()["sweep"]) == set(SWEEPS)


def test_publishing_again_adds_nothing(released: Run) -> None:
    before = released.files()
    assert released.publish() == 0
    differing = {name for name, data in released.files().items() if before.get(name) != data}
    assert released.files().keys() == before.keys()
    assert differing <= {f"{DEVICE}/environment.json", f"{DEVICE}/methodology.md"}, (
        "which say when it was analysed"
    )


def slower(_: Any, record: dict[str, Any]) -> dict[str, Any]:
    for regime in record["regimes"].values():
        regime["speedup"] = 0.01
    return record


def test_a_subset_replaces_nothing_else(released: Run) -> None:
    before, figure = released.published(), released.target / "figures" / "bank_stride-1-banks.png"
    picture = figure.read_bytes()
    released.run, released.finished = "subset", "2026-11-21T10:00:00Z"
    edit_yaml(released.project.config / "config.yaml", lambda config: config.update(sweeps=["tensor_ladder"]))
    released.git("commit", "-qam", "A subset")
    released.measure(["tensor_ladder"], slower, id="session-2", started="2026-11-21T09:00:00Z")
    assert released.publish() == 0
    after = released.published()
    both = [table.query("sweep == 'tensor_ladder'").reset_index() for table in (before, after)]
    assert set(both[1]["sessions"]) == {2}, "the code is the same, so that both sessions count"
    assert list(both[1]["speedup"]) == pytest.approx(list((both[0]["speedup"] * 0.01) ** 0.5))
    others = [table[table["sweep"] != "tensor_ladder"].reset_index(drop=True) for table in (before, after)]
    pd.testing.assert_frame_equal(*others)
    assert figure.read_bytes() == picture
    assert len(list((released.target / "records").iterdir())) == 2
    assert "](sweeps/bank_stride.md)" in (released.target / "report.md").read_text()


def test_each_sweep_keeps_the_resources_of_its_own_code(tmp_path: Path) -> None:
    run = Run(tmp_path)
    again, kernel = run.project.sweeps / "tensor_again.yaml", "wmma_tile-fp16"
    shutil.copy(run.project.sweeps / "tensor_ladder.yaml", again)
    edit_yaml(again, lambda sweep: sweep.update(title="Again"))
    run.project.sweeps.joinpath("bank_stride.yaml").unlink()
    run.git("add", "config")
    run.git("commit", "-qm", "A sweep of the same variants, and no other")
    run.measure(["tensor_ladder", again.stem])
    assert run.publish() == 0
    run.run, run.finished = "subset", "2026-11-21T10:00:00Z"
    edit_yaml(run.project.config / "config.yaml", lambda config: config.update(sweeps=["tensor_ladder"]))
    run.git("commit", "-qam", "A subset")
    edited = {"registers": 99, "machine_code": "new", "cubin_sha256": "b" * 64}
    run.measure(["tensor_ladder"], id="session-2", facts=lambda _, facts: facts | edited)
    assert run.publish() == 0
    published = run.published("resources").query(f"variant == '{kernel}'").set_index("sweep")["registers"]
    assert published.to_dict() == {"tensor_ladder": 99, "tensor_again": 36}
    data = RunData(run.sweeps(), read_frames(run.target))
    for sweep, registers in published.items():
        for rows in (data.compiled(str(sweep), variant=kernel), data.timed(str(sweep), variant=kernel)):
            assert {row["registers"] for row in rows.rows} == {registers}
    for name, registers in (("tensor_ladder", 99), (again.stem, 36)):
        assert f"WMMA tile | {registers} |" in (run.target / "sweeps" / f"{name}.md").read_text()


def test_what_was_published_before_stays_as_history(
    released: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    (first,) = (released.target / "records").iterdir()
    data = first.read_bytes()
    released.finished = "2026-11-21T10:00:00Z"
    released.measure(
        change=slower, id="session-2", started="2026-11-21T09:00:00Z", versions={"driver": "590.1"}
    )
    assert released.publish() == 0
    assert first.read_bytes() == data
    archive = read_archive(released.target / "records")
    assert set(archive.sessions) == {SESSION.id, "session-2"}
    capsys.readouterr()
    assert main(["--root", str(released.root), "history", "wmma_tile-fp16@4096:cold"]) == 0
    name, head, *rows = capsys.readouterr().out.splitlines()
    assert name == "wmma_tile-fp16@4096:cold (warps = 2) against cublas"
    assert head.split()[:4] == ["time", "commit", "driver", "GPU"]
    commit = released.git("rev-parse", "HEAD")[:12]
    assert [[row.split()[0][:10], *row.split()[1:5]] for row in rows] == [
        ["2026-11-20", commit, "580.95", "GPU-1", "0.3100"],
        ["2026-11-21", commit, "590.1", "GPU-1", "0.0100"],
    ], "a record that run and archive hold is shown once"


def measure_next_commit(lab: Run, names: list[str] | None = None, **session: Any) -> None:
    """A run that is measured again, a day later, from another commit."""
    lab.finished = f"{date.fromisoformat(lab.finished[:10]) + timedelta(days=1)}T10:00:00Z"
    shutil.rmtree(lab.folder.root)
    with (lab.project.kernels / "changes.md").open("a") as changes:
        changes.write("next\n")
    lab.git("add", "kernels")
    lab.git("commit", "-q", "-m", "next")
    given = {"id": "session-2", "started": "2026-11-21T09:00:00Z", "versions": {"driver": "590.1"}}
    lab.measure(names, slower, **given | session)


def replacing(lab: Run, names: list[str] | None = None, **session: Any) -> int:
    """Publish such a run in place of what is published."""
    measure_next_commit(lab, names, **session)
    return lab.publish("--only", "HEAD")


def test_a_publication_of_one_commit_holds_its_run_alone_and_the_others_history(
    released: Run, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    sanitized = tables.frame(
        "sanitizer", [{"problem": "gemm", "kernel": "k", "variant": "k", "tool": "racecheck"}]
    )
    tables.write({"sanitizer": sanitized}, released.target)
    assert replacing(released) == 2
    assert "sanitizer: published, and not in" in caplog.text
    assert released.publish("--only", "HEAD", "--force") == 0
    assert set(read_archive(released.target / "records").sessions) == {"session-2"}
    assert {*released.published("sessions")["session"]} == {"session-2"}
    assert len([*(released.target / "records").iterdir()]) == 1
    assert not (released.target / "sanitizer.csv").exists(), "nothing of another commit stays"
    (kept,) = (released.target / "history").iterdir()
    assert kept.name == "20261120T102000Z.parquet", "when the last of them was measured"
    data = kept.read_bytes()

    def shown() -> list[list[str]]:
        capsys.readouterr()
        assert main(["--root", str(released.root), "history", "wmma_tile-fp16@4096:cold"]) == 0
        name, _, *rows = capsys.readouterr().out.splitlines()
        assert name == "wmma_tile-fp16@4096:cold (warps = 2) against cublas"
        return [[row.split()[0][:10], *row.split()[2:5], row.split()[-1]] for row in rows]

    old = ["2026-11-20", "580.95", "GPU-1", "0.3100", kept.stem]
    assert shown() == [old, ["2026-11-21", "590.1", "GPU-1", "0.0100", "published"]]
    assert released.publish() == 0
    assert kept.read_bytes() == data, "the next publication leaves it as it is"
    assert replacing(released, id="session-3") == 0
    assert [row[-1] for row in shown()] == [kept.stem, "20261121T100000Z", "published"]
    kept.write_bytes(data[:-9])
    assert main(["--root", str(released.root), "history", "wmma_tile-fp16@4096:cold"]) == 2


@pytest.mark.parametrize(
    ("names", "session", "why"),
    [
        (["tensor_ladder"], {}, "bank_stride: published, and not a sweep of this run: its rows would go"),
        (None, {"tree": {"clean": False}}, "the session(s) session-2 are not of"),
        (None, {"tree": {"clean": True, "commit": "f" * 40}}, "the session(s) session-2 are not of"),
    ],
)
def test_what_would_leave_a_gap_or_is_of_no_commit_replaces_nothing(
    released: Run,
    names: list[str] | None,
    session: dict[str, Any],
    why: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = released.files()
    if names:
        edit_yaml(released.project.config / "config.yaml", lambda config: config.update(sweeps=names))
    if session:
        session = {
            "tree": {"digest": "0" * 64, "commit": released.git("rev-parse", "HEAD")} | session["tree"]
        }
    assert replacing(released, names, **session) == 2
    assert why in caplog.text
    assert released.files() == before


def test_what_one_commit_measured_piece_by_piece_replaces_the_rest_without_a_gpu(
    released: Run, caplog: pytest.LogCaptureFixture
) -> None:
    """Each sweep was measured and published on its own; the last publication needs neither run nor GPU."""
    first = released.git("rev-parse", "HEAD")
    measure_next_commit(released, ["tensor_ladder"])
    commit = released.git("rev-parse", "HEAD")
    only = {"sweeps": ["tensor_ladder"]}
    edit_yaml(released.project.config / "config.yaml", lambda config: config.update(only))
    assert released.publish() == 0
    edit_yaml(released.project.config / "config.yaml", lambda config: config.update(sweeps="all"))
    here = Run(released.root, device="no-gpu")
    for sweep in here.sweeps().values():
        here.compile(sweep)
    assert here.publish("--only", commit) == 2
    assert "bank_stride" in caplog.text
    assert "not measured by this checkout" in caplog.text
    assert replacing_with(released, "bank_stride", commit) == 0
    notes = released.published("jobs")
    assert here.publish("--only", commit) == 0
    assert {*released.published("sessions")["session"]} == {"session-2", "session-3"}
    assert {*released.published("sessions")["commit"]} == {commit}
    assert {*released.published()["sweep"]} == {*SWEEPS}
    pd.testing.assert_frame_equal(released.published("jobs"), notes)
    (kept,) = (released.target / "history").iterdir()
    assert {*pd.read_parquet(kept)["commit"]} == {first[:12]}
    files = released.files()
    assert here.publish("--only", commit) == 0
    assert released.files() == files, "what is all of one commit stays as it is"


def test_without_an_account_notes_are_made_from_records_but_for_what_the_profiler_said(released: Run) -> None:
    said = {"sweep": "bank_stride", "stage": "profile", "reason": "for a reason"}
    stale = [said | {"stage": "measure", "subject": "a cell"}, said | {"subject": OTHER_CODE}]
    kept = said | {"subject": "Nsight Compute"}
    before = released.published("notes")
    changed = tables.concat([before, tables.frame("notes", [*stale, kept])], "notes")
    tables.write({"notes": changed}, released.target)
    for name in SWEEPS:
        for account in ("measured", "profiled"):
            released.folder.account(account, name).unlink()
    assert main(["--root", str(released.root), "publish", "main", DEVICE, "--only", "HEAD"]) == 0
    found = released.published("notes")
    assert ("Nsight Compute", "for a reason") in {*zip(found["subject"], found["reason"], strict=True)}
    assert not {"a cell", OTHER_CODE} & {*found["subject"]}


def replacing_with(lab: Run, sweep: str, commit: str) -> int:
    """Measure one sweep from a commit, and add it to what is published."""
    edit_yaml(lab.project.config / "config.yaml", lambda config: config.update(sweeps=[sweep]))
    shutil.rmtree(lab.folder.root)
    lab.finished = "2026-11-21T12:00:00Z"
    tree = {"digest": "1" * 64, "commit": commit, "clean": True}
    lab.measure([sweep], id="session-3", started="2026-11-21T11:00:00Z", tree=tree)
    done = lab.publish()
    edit_yaml(lab.project.config / "config.yaml", lambda config: config.update(sweeps="all"))
    return done


def test_a_commit_that_is_not_there_is_refused(released: Run, caplog: pytest.LogCaptureFixture) -> None:
    assert released.publish("--only", "v7") == 2
    assert "--only: 'v7' is not accepted; accepted: a commit or a tag" in caplog.text


def test_history_of_a_pattern_and_of_one_name_with_two_defaults(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    edit_yaml(
        run.project.kernels / "wmma_tile.yaml",
        lambda kernel: kernel["parameters"]["warps"].update(default=4),
    )
    run.record(["tensor_ladder"])
    assert main(["--root", str(run.root), "history", "wmma_*"]) == 0
    names = [line for line in capsys.readouterr().out.splitlines() if " against " in line]
    assert names == [
        "wmma_naive-fp16@4096:cold () against cublas",
        "wmma_naive-fp16@4096:warm () against cublas",
        *[f"wmma_tile-fp16@4096:cold (warps = {warps}) against cublas" for warps in (2, 4)],
        *[f"wmma_tile-fp16@4096:warm (warps = {warps}) against cublas" for warps in (2, 4)],
    ]
    assert main(["--root", str(run.root), "history", "wmma_*:cold"]) == 0
    cold = [line for line in capsys.readouterr().out.splitlines() if " against " in line]
    assert cold == [name for name in names if ":cold" in name], "the size alone may be left out"


@pytest.mark.parametrize("cell", ["wmma_tiel-fp16", "wmma_tile-fp16@512", "wmma_tile-fp16@4096:hot"])
def test_a_cell_there_is_nothing_of_is_refused(run: Run, cell: str, caplog: pytest.LogCaptureFixture) -> None:
    assert main(["--root", str(run.root), "history", cell]) == 2
    assert f"CELL: '{cell}': no record of it" in caplog.text


def test_two_gpus_stand_in_one_publication(run: Run) -> None:
    run.measure(["tensor_ladder"], id="session-2", gpu={**SESSION.gpu, "uuid": "GPU-22222222-3333"})
    assert run.publish() == 0
    sessions = run.published("sessions").query("sweep == 'tensor_ladder' and regime == 'cold'")
    assert set(sessions["gpu_uuid"]) == {"GPU-1", "GPU-22222222"}, "shortened, as in the archive"
    environment = json.loads((run.target / "environment.json").read_text())
    assert {gpu["uuid"] for gpu in environment["gpus"]} == {"GPU-1", "GPU-22222222"}
    assert "with 2 GPUs" in (run.target / "report.md").read_text()
    assert "GPU-2" in (run.target / "methodology.md").read_text()


def test_counters_of_other_code_are_named_with_their_date(released: Run) -> None:
    run, said = released, "Counters of 1 sweep (bank_stride) were read with other code"
    assert "other code" not in (run.target / "report.md").read_text()
    run.session, run.finished = replace(run.session, id="session-2"), "2026-11-21T10:00:00Z"
    run.record(["bank_stride"], facts=lambda _, facts: facts | {"machine_code": "new"}, metrics=False)
    assert run.publish() == 0
    for name in ("report.md", "index.html"):
        assert said in (run.target / name).read_text(), name


def test_tables_of_earlier_releases_name_gpus_as_sessions_do(run: Run) -> None:
    named = {"accuracy": "who"}
    for name, column in named.items():
        cell = {"m": 8, "n": 8, "k": 8, "dtype": "fp32", "layout": "TN", "inputs": "uniform"}
        rows = [{"gpu_uuid": "GPU-22222222-3333", column: "one"}, {column: "of no known GPU"}]
        rows = [cell | row for row in rows]
        tables.write({name: tables.frame(name, rows)}, run.folder.tables)
    assert run.publish() == 0
    for name, column in named.items():
        published = run.published(name)
        assert list(published["gpu_uuid"].fillna("")) == ["GPU-22222222", ""]
        assert list(published[column]) == ["one", "of no known GPU"]
        assert len(pd.read_parquet(run.target / f"{name}.parquet")) == 2


def test_what_another_checkout_measured_is_not_published(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    edit_yaml(run.project.sweeps / "tensor_ladder.yaml", lambda sweep: sweep.update(precision=0.01))
    run.compile(run.sweeps()["tensor_ladder"])
    assert run.publish() == 2
    assert "2 cell(s) not measured by this checkout" in caplog.text
    assert "tensor_ladder: wmma_naive-fp16 at" in caplog.text
    assert not run.target.exists()
    assert run.publish("--force") == 0


def test_a_plan_that_is_not_its_files_is_refused(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    edit_yaml(run.project.sweeps / "tensor_ladder.yaml", lambda sweep: sweep.update(sizes=[4096, 2048]))
    assert run.publish() == 2
    assert "the plan of tensor_ladder is not that of its file" in caplog.text


def test_a_plan_with_launches_as_tritons_compiler_wants_them_is_that_of_its_file(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    path = run.folder.plan("tensor_ladder")
    plan, known = (
        read_plan(path),
        {"hidden_pointers": 2, "tensor_maps": [], "threads": 384, "shared_bytes": 0},
    )
    facts = {name: {**of, **known} for name, of in plan.variants.items()}
    replace_file(path, to_json(replace(plan, variants=facts, tasks=tasks_as_compiled(plan.tasks, facts))))
    assert run.publish() == 2
    assert "not measured by this checkout" in caplog.text, "the records are of other launches"
    assert "not that of its file" not in caplog.text
    caplog.clear()
    replace_file(path, to_json(replace(plan, variants=facts)))
    assert run.publish() == 2
    assert "the plan of tensor_ladder is not that of its file" in caplog.text


def test_a_tree_of_no_commit_is_refused_by_its_digest(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    run.measure(tree={"digest": "f" * 64, "commit": None, "clean": None}, id="session-2")
    assert run.publish() == 2
    assert "no commit is known for the tree of digest ffffffffffffffff" in caplog.text


@pytest.mark.parametrize("known", [{"commit": None, "clean": None}, {"commit": "0" * 40, "clean": False}])
def test_a_run_of_no_commit_gets_the_commit_of_the_very_same_tree(
    known: dict[str, Any], tmp_path: Path
) -> None:
    run = Run(tmp_path)
    run.measure(tree={"digest": tree_digest(tmp_path), **known})
    assert run.publish() == 0
    environment = json.loads((run.target / "environment.json").read_text())
    assert environment["tree"]["commit"] == run.git("rev-parse", "HEAD")
    assert set(run.published("sessions")["commit"]) == {run.git("rev-parse", "HEAD")}


def test_a_run_gets_the_commit_of_its_tree_also_from_a_later_one(tmp_path: Path) -> None:
    """A host without git measured a commit; until it is published, another one changed what sessions know it by."""
    run = Run(tmp_path)
    commit = run.git("rev-parse", "HEAD")
    run.measure(tree={"digest": tree_digest(tmp_path), "commit": None, "clean": None})
    (run.project.kernels / "changes.md").write_text("a word on it")
    run.git("add", "kernels")
    run.git("commit", "-q", "-m", "next")
    assert run.publish() == 0
    assert set(run.published("sessions")["commit"]) == {commit}
    (run.root / "README.md").write_text("what it says of the numbers")
    run.git("add", "README.md")
    run.git("commit", "-q", "-m", "what was published")
    assert run.publish("--only", commit) == 0
    assert set(run.published("sessions")["commit"]) == {commit}


def test_a_tree_that_is_published_is_known_however_old_its_commit_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path)
    old = {"digest": tree_digest(tmp_path), "commit": None, "clean": None}
    commit = run.git("rev-parse", "HEAD")
    run.measure(tree=old)
    assert run.publish() == 0
    (run.project.kernels / "changes.md").write_text("a word on it")
    run.git("add", "kernels")
    run.git("commit", "-q", "-m", "next")
    run.finished = "2026-11-21T10:00:00Z"
    run.measure(tree=old, id="session-2", started="2026-11-21T09:00:00Z")
    monkeypatch.setattr("ladder.measure.host._SEARCHED", 0)
    assert run.publish() == 0
    sessions = run.published("sessions")
    assert set(sessions["commit"]) == {commit}
    assert set(sessions["session"]) == {"session-1", "session-2"}


def test_a_later_commit_with_the_same_tree_counts_as_the_one_that_is_asked_for(tmp_path: Path) -> None:
    run = Run(tmp_path)
    commit = run.git("rev-parse", "HEAD")
    (run.root / "README.md").write_text("of a tree that is the same")
    run.git("add", "README.md")
    run.git("commit", "-q", "-m", "next")
    run.measure(tree={"digest": tree_digest(tmp_path), "commit": run.git("rev-parse", "HEAD"), "clean": True})
    assert run.publish("--only", commit) == 0


def test_an_incorrect_cell_is_refused_by_name(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = Run(tmp_path)
    run.measure(["tensor_ladder"], lambda _, record: failed("incorrect", "wrong")(record))
    run.measure(["bank_stride"], lambda _, record: record | {"check": None})
    assert run.publish() == 2
    assert "cell(s) with an incorrect result: wmma_naive-fp16@4096:cold" in caplog.text
    assert "33 cell(s) timed but not verified: bank_stride-int32@1024:cold" in caplog.text
    assert "and 28 more" in caplog.text


def forge(run: Run, kind: str, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change every line of a kind in the run's store."""
    for path in run.folder.records.iterdir():
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for line in lines:
            if kind in line:
                change(line[kind])
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def ten_times_faster(record: dict[str, Any]) -> None:
    for name in ("speedup", "speedup_low", "speedup_high"):
        if name in record["result"]:
            record["result"][name] *= 10


def surer(record: dict[str, Any]) -> None:
    if "speedup" in record["result"]:
        record["result"]["speedup_low"] = record["result"]["speedup"] * 0.9999


FORGED: list[tuple[str, Callable[[dict[str, Any]], Any], str]] = [
    (
        "record",
        ten_times_faster,
        "cell(s) whose speed-up is not that of its times: wmma_naive-fp16@4096:cold",
    ),
    ("record", surer, "cell(s) whose speed-up is not that of its times"),
    (
        "record",
        lambda one: one["result"].update(check={"max_error": 1e9, "error_bound": 1e-5}),
        "cell(s) with an error above its bound",
    ),
    ("record", lambda one: one.update(time="2999-01-01T00:00:00Z"), "cell(s) with a time in the future"),
    ("session", lambda one: one.update(started="2999-01-01T00:00:00Z"), "began in the future, at 2999"),
    (
        "session",
        lambda one: one["tree"].update(commit="f" * 40),
        f"the commit(s) {'f' * 40} are not in the git",
    ),
    (
        "session",
        lambda one: one["gpu"].update(name="NVIDIA L4"),
        "is on 'NVIDIA L4', which is not nvidia-h200",
    ),
]


@pytest.mark.parametrize(("kind", "change", "says"), FORGED, ids=map(str, range(len(FORGED))))
def test_what_does_not_follow_from_what_was_measured_is_refused(
    run: Run, kind: str, change: Callable[[dict[str, Any]], Any], says: str, caplog: pytest.LogCaptureFixture
) -> None:
    forge(run, kind, change)
    assert run.publish() == 2
    assert says in caplog.text
    assert not run.target.exists()


def test_a_run_of_another_gpu_is_refused(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    other = Run(run.root, device="nvidia-l4")
    shutil.copytree(run.folder.root, other.folder.root)
    assert other.publish("--config", "device=nvidia-l4") == 2
    assert "is on 'NVIDIA H200', which is not nvidia-l4" in caplog.text


def test_a_failed_variant_alone_is_no_objection(tmp_path: Path) -> None:
    def change(place: Any, record: dict[str, Any]) -> dict[str, Any]:
        return failed("timeout", "60 s")(record) if place.variant.kernel.name == "wmma_naive" else record

    run = Run(tmp_path)
    run.measure(change=change)
    assert run.publish() == 0
    assert "timeout" in set(run.published()["status"])


def test_an_incomplete_run_is_refused_even_when_forced(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    run.folder.account("measured", "bank_stride").unlink()
    assert run.publish("--force") == 2
    assert "the sweep bank_stride is not measured; the run is not complete" in caplog.text
    run.run = "other"
    assert run.publish("--force") == 2
    assert "no such run" in caplog.text


@pytest.mark.parametrize(
    ("name", "device"),
    [("../main", DEVICE), ("main", "."), ("main", ".."), ("main", "../x"), ("main", "a/../b"), ("", DEVICE)],
)
def test_no_folder_outside_is_replaced(
    run: Run, name: str, device: str, caplog: pytest.LogCaptureFixture
) -> None:
    before = sorted(run.root.rglob("*"))
    assert main(["--root", str(run.root), "publish", name, device, "--force"]) == 2
    assert "a name of letters, digits" in caplog.text
    assert sorted(run.root.rglob("*")) == before


def test_nothing_is_not_published_even_when_forced(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = Run(tmp_path)
    run.measure(change=lambda _, record: None)
    assert run.publish() == 2
    assert "it has no timings at all" in caplog.text
    assert run.publish("--force") == 2
    assert "no cell of its sweeps has a result" in caplog.text
    assert not list(run.target.parent.iterdir())


def test_a_device_folder_may_be_a_link(run: Run, tmp_path: Path) -> None:
    place = tmp_path / "elsewhere" / "h200"
    place.mkdir(parents=True)
    run.target.parent.mkdir(parents=True)
    run.target.symlink_to(place)
    for _ in range(2):
        assert run.publish() == 0
        assert run.target.is_symlink()
        assert (place / "timings.csv").is_file()
        for folder, name in ((run.target, DEVICE), (place, "h200")):
            assert [path.name for path in folder.parent.iterdir()] == [name], "nothing is left beside it"


@pytest.fixture
def without_gpu(released: Run) -> Run:
    """A run without a GPU of what is published."""
    here = Run(released.root, device="no-gpu")
    for sweep in here.sweeps().values():
        here.compile(sweep)
    return here


def test_without_a_gpu_there_is_nothing_new_to_publish(
    without_gpu: Run, caplog: pytest.LogCaptureFixture
) -> None:
    before = without_gpu.files()
    assert without_gpu.publish() == 2
    assert "nothing new to publish: a run without a GPU adds no record" in caplog.text
    assert "(--force overrides)" in caplog.text
    assert without_gpu.files() == before


def test_without_a_gpu_the_published_tables_are_made_anew_where_that_is_asked_for(without_gpu: Run) -> None:
    before = without_gpu.published()
    tables.write({"timings": before.assign(speedup=1.0)}, without_gpu.target)
    assert without_gpu.publish("--force") == 0
    pd.testing.assert_frame_equal(without_gpu.published(), before)
    assert len(list((without_gpu.target / "records").iterdir())) == 1


WITHOUT_COMPILER = {"status": "unsupported", "reason": MISSING}
NUMBERS = ["registers", "instructions", "cubin_sha256"]
"""What the compiler says of a variant, beside its own names and keys."""


def test_what_is_published_of_variants_stays_where_their_compiler_is_missing(released: Run) -> None:
    """As on a host with a GPU and without Triton, which measures the others."""
    kernel = "wmma_tile-fp16"
    of = (released.sweeps()["tensor_ladder"], released.project.include, "sm_90a", ())
    known = {
        request.key: {**make_facts(variant), "symbols": {}}
        for variant, request in CompileRequests(*of).variants.items()
    }
    replace_file(released.target / "facts.json", facts_to_json(known))
    before = released.published("resources").query(f"variant == '{kernel}'")
    timed = released.published().query(f"variant == '{kernel}'")
    released.run, released.finished = "without", "2026-11-21T10:00:00Z"

    def facts(variant: Variant, given: dict[str, Any]) -> dict[str, Any]:
        if variant.id != kernel:
            return given
        return {name: of for name, of in given.items() if name not in NUMBERS} | WITHOUT_COMPILER

    released.measure(facts=facts, id="session-2", started="2026-11-21T09:00:00Z")
    assert released.publish() == 0
    after = released.published("resources").query(f"variant == '{kernel}'")
    assert after[["status", *NUMBERS]].to_dict("records") == before[["status", *NUMBERS]].to_dict("records")
    still = released.published().query(f"variant == '{kernel}'")
    assert still[["status", "sessions", "speedup"]].to_dict("records") == (
        timed[["status", "sessions", "speedup"]].to_dict("records")
    )
    assert set(read_facts(released.target / "facts.json")) >= set(known)


def test_what_the_compiler_said_is_published_and_stays_without_the_cache(released: Run) -> None:
    requests = [
        request
        for sweep in released.sweeps().values()
        for request in CompileRequests(sweep, released.project.include, "sm_90a", ()).requests
    ]
    cache = released.root / ".cache" / "cubins"
    for request in requests:
        write_json(cache / f"{request.key}.json", {"status": "compile_error", "reason": "of a test"})
        replace_file(cache / f"{request.key}.cubin", b"")
    for _ in range(2):
        assert released.publish() == 0
        assert read_facts(released.target / "facts.json").keys() == {one.key for one in requests}
        shutil.rmtree(cache, ignore_errors=True)


@pytest.mark.parametrize("failing", ["write_archive", "merge", "copy_checks"])
def test_a_failure_in_the_middle_leaves_the_old_one_whole(
    released: Run, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    before = released.files()
    released.finished = "2026-11-21T10:00:00Z"
    released.measure(change=slower, id="session-2", started="2026-11-21T09:00:00Z")

    def full_disk(*_: Any, **__: Any) -> Any:
        raise OSError("no space left on device")

    monkeypatch.setattr(publishing, failing, full_disk)
    monkeypatch.setattr(f"ladder.cli.publish.{failing}", full_disk, raising=False)
    assert released.publish() == 2
    assert released.files() == before
    assert [path.name for path in released.target.parent.iterdir()] == [DEVICE]


def test_a_failed_swap_puts_the_old_one_back(released: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    before, real = released.files(), Path.rename

    def refuse(self: Path, destination: Path) -> Path:
        if self.name.endswith(".new"):
            raise OSError("device busy")
        return real(self, destination)

    monkeypatch.setattr(Path, "rename", refuse)
    monkeypatch.setattr("ladder.results.replacing._exchange", lambda one, other: False)
    assert released.publish() == 2
    assert released.files() == before


def test_the_place_that_is_full_is_named(
    released: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    released.finished = "2026-11-21T10:00:00Z"
    released.measure(change=slower, id="session-2", started="2026-11-21T09:00:00Z")

    def full_disk(source: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(source), None, str(target))

    monkeypatch.setattr(shutil, "copyfile", full_disk)
    assert released.publish() == 2
    (archived,) = (released.target / "records").iterdir()
    assert f"{archived.name}: No space left on device" in caplog.text
    assert str(archived) not in caplog.text


@pytest.mark.parametrize("part", ["timings.csv", "jobs.csv", "records", "environment.json"])
def test_a_published_folder_that_lacks_a_part_is_refused(
    released: Run, part: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = released.target / part
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    before = released.files()
    assert released.publish("--force") == 2
    said = "records/*.parquet" if part == "records" else part
    assert f"{released.target}: half a publication: {said} missing. Restore it" in caplog.text
    assert released.files() == before


def test_an_archive_that_lacks_published_sessions_is_refused(
    released: Run, caplog: pytest.LogCaptureFixture
) -> None:
    released.finished = "2026-11-21T10:00:00Z"
    released.measure(["tensor_ladder"], id="session-2", started="2026-11-21T09:00:00Z")
    assert released.publish() == 0
    first = min((released.target / "records").iterdir())
    first.unlink()
    assert released.publish("--force") == 2
    assert f"the sessions {SESSION.id} of" in caplog.text


def test_a_published_sweep_without_a_file_is_refused_by_name(
    released: Run, caplog: pytest.LogCaptureFixture
) -> None:
    (released.project.sweeps / "bank_stride.yaml").unlink()
    released.git("commit", "-qam", "One less")
    released.measure(["tensor_ladder"])
    assert released.publish() == 2
    assert "bank_stride: published, without a file in" in caplog.text
    assert released.publish("--force") == 0
    assert set(released.published()["sweep"]) == {"tensor_ladder"}


def measure_another_sweep(run: Run) -> Run:
    """A second run of the same project, of one sweep in a later session."""
    other = Run(run.root, run="other", finished="2026-11-21T10:00:00Z")
    other.measure(["bank_stride"], id="session-2", started="2026-11-21T09:00:00Z")
    return other


def publish_apart(run: Run, sweep: str) -> subprocess.Popen[str]:
    """Publishing one sweep of a run, in a process of its own."""
    command = [sys.executable, "-m", "ladder", "--root", str(run.root), "publish", run.run, DEVICE]
    command += ["--config", f"sweeps=[{sweep}]"]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "workflow")}
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_two_that_publish_at_once_lose_nothing(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.measure(["tensor_ladder"])
    both = [publish_apart(run, "tensor_ladder"), publish_apart(measure_another_sweep(run), "bank_stride")]
    said = [one.communicate()[1] for one in both]
    assert [one.returncode for one in both] == [0, 0], said
    assert any("waiting until another process is done" in one for one in said)
    assert set(run.published()["sweep"]) == set(SWEEPS)
    assert set(read_archive(run.target / "records").sessions) == {SESSION.id, "session-2"}
    assert [path.name for path in run.target.parent.iterdir()] == [DEVICE]


@pytest.mark.slow
@pytest.mark.parametrize("kill_at", [40, 100, 160, 220])
def test_a_publication_that_is_killed_loses_nothing(released: Run, kill_at: int) -> None:
    """Kills in its last part, where folders are swapped, are those of test_replacing."""
    other = measure_another_sweep(released)

    def publish() -> int:
        return other.publish("--config", "sweeps=[bank_stride]")

    before = released.files()
    assert not calls_of(publish, kill_at), "it is killed"
    now = released.files()
    assert {name: now[name] for name in before} == before
    assert publish() == 0
    assert set(released.published()["sweep"]) == set(SWEEPS)
    assert set(read_archive(released.target / "records").sessions) == {SESSION.id, "session-2"}
    assert [path.name for path in released.target.parent.iterdir()] == [DEVICE], "nothing is left beside it"


@pytest.mark.parametrize("kind", [Pairs, Blocks])
def test_what_a_worker_records_follows_from_its_times(kind: type[Pairs]) -> None:
    random_numbers = random.Random(1)
    own, reference = ([random_numbers.gauss(us, 0.05) for _ in range(12)] for us in (3.0, 4.0))
    pairs = kind(own, reference, "blocks" if kind is Blocks else "precision")
    result = recorded(pairs, {})
    assert publishing.follows(result)
    assert not publishing.follows(result | {"speedup": result["speedup"] * 1.01})
    assert not publishing.follows(result | {"variant_us": result["variant_us"][:-2]})


def test_a_choice_by_too_few_times_does_not_follow_from_them() -> None:
    candidates = [
        {"reference": name, "algorithm": "", "us": [us, us]} for name, us in (("one", 1.0), ("other", 2.0))
    ]
    assert not publishing.follows({"candidates": candidates, "reference": "one", "algorithm": ""})
