"""Publishing merges a run's records into what is published of its device: nothing else changes, and never by halves."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pandas as pd
import pytest
from conftest import ROOT, edit_yaml
from factory import DEVICE, ENDS, SESSION, Fields, Lab, failed, make_facts
from ladder.build.triton_request import MISSING
from ladder.build.variants import CompileRequests
from ladder.catalogue.settings import set_up
from ladder.cli.app import main
from ladder.model.errors import LadderError
from ladder.model.files import replace_file, tree_digest, write_json
from ladder.model.intervals import abba_ratios, median, median_interval
from ladder.model.kernel import Variant
from ladder.model.plan import tasks_as_compiled
from ladder.model.plan_file import facts_to_json, read_facts, read_plan, to_json
from ladder.results import tables
from ladder.results.collect import OTHER_CODE
from ladder.results.publish import follows, replaced
from ladder.results.published_records import read_archive
from ladder.results.run_data import RunData

SWEEPS = ["tensor_ladder", "bank_stride"]
SECOND = {"id": "session-2", "started": "2026-11-21T09:00:00Z"}


def settled(record: Fields | None) -> Fields | None:
    """A record whose times give its speed-up, and the interval that they give."""
    for regime in (record or {"regimes": {}})["regimes"].values():
        scale = (
            median(abba_ratios(regime["variant_us"], regime["reference_us"]))
            / regime["speedup"]
        )
        regime["variant_us"] = [one * scale for one in regime["variant_us"]]
        ratios = abba_ratios(regime["variant_us"], regime["reference_us"])
        regime["speedup_low"], regime["speedup_high"] = median_interval(ratios)
    return record


def unchanged(_: Any, record: Fields) -> Fields:
    return record


class Run(Lab):
    """A project of two sweeps, under git, and a run that was measured from its commit."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for path in self.project.sweeps.glob("*.yaml"):
            if path.stem not in SWEEPS:
                path.unlink()
        self.project.config.joinpath("config.yaml").write_text(
            (ROOT / "config/config.yaml").read_text()
        )
        edit_yaml(self.project.config / "config.yaml", self.configure)
        if not (self.root / ".git").exists():
            self.git("init", "-q")
            self.git("add", "kernels", "config")
            self.git("commit", "-qm", "all")

    def configure(self, config: Fields) -> None:
        config.update(device=DEVICE, arch="sm_90a", sweeps="all")

    def git(self, *words: str) -> str:
        author = ["-c", "user.name=n", "-c", "user.email=e"]
        command = ["git", "-C", str(self.root), *author, *words]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def measure(
        self,
        names: list[str] | None = None,
        change: Any = unchanged,
        recorded: Mapping[str, Any] = MappingProxyType({}),
        **session: Any,
    ) -> None:
        """A finished run of some sweeps, made by the tree as it stands."""
        commit = self.git("rev-parse", "HEAD")
        here = {"digest": tree_digest(self.root), "commit": commit, "clean": True}
        self.session = replace(SESSION, **({"tree": here} | session))
        self.record(names or SWEEPS, change, **recorded)

    def record(
        self, names: Any = None, change: Any = unchanged, *rest: Any, **more: Any
    ) -> None:
        """Records whose speed-ups are those of their times."""
        super().record(
            names, lambda place, record: settled(change(place, record)), *rest, **more
        )

    def publish(self, *options: str) -> int:
        root = str(self.root)
        return main(["--root", root, "publish", self.run, self.device, *options])

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
    """Two thirds of publishing are verdicts, figures, report and page, which few tests look at.

    Whether the compiler knows the options is a question of no publication.
    """
    monkeypatch.setattr("ladder.build.nvrtc.refuse_options", lambda *_: None)
    drawn = (test_publishing_again_adds_nothing, test_a_subset_replaces_nothing_else)
    told = test_counters_of_other_code_are_named_with_their_date
    if request.function not in drawn:
        monkeypatch.setattr("ladder.cli.publish.draw_sweeps", lambda *_: [])
    if request.function not in (*drawn, told):
        for name in ("decide_tables", "titles", "write"):
            monkeypatch.setattr(f"ladder.cli.publish.{name}", lambda *_: {})
        monkeypatch.setattr("ladder.cli.publish.render", lambda *_: "")
        monkeypatch.setattr(
            "ladder.cli.publish.RunData.read", lambda *_: RunData({}, {})
        )


@pytest.fixture
def run(measured_once: Run, tmp_path: Path) -> Run:
    return copied(measured_once, tmp_path)


@pytest.fixture
def released(published_once: Run, tmp_path: Path) -> Run:
    """The run as it was published, to publish from again."""
    return copied(published_once, tmp_path)


@pytest.fixture
def without_gpu(released: Run) -> Run:
    """A run without a GPU of what is published."""
    here = Run(released.root, device="no-gpu")
    for sweep in here.sweeps().values():
        here.compile(sweep)
    return here


def test_a_run_is_published_whole(published_once: Run) -> None:
    run = published_once
    names = {
        path.relative_to(run.target).as_posix()
        for path in run.target.rglob("*")
        if path.is_file()
    }
    made = """timings.csv timings.parquet sessions.csv claims.csv jobs.csv facts.json environment.json index.html
    report.md figures/tensor_ladder-1-ladder.png"""
    assert {*made.split()} <= names
    assert len(list(run.target.glob("records/*"))) == 1
    assert [path.name for path in run.target.parent.iterdir()] == [DEVICE], (
        "nothing is left beside it"
    )
    environment = json.loads((run.target / "environment.json").read_text())
    assert (environment["timings_from"], environment["gpu"]["uuid"]) == (
        "measured",
        "GPU-1",
    )
    assert environment["tree"]["commit"] == run.git("rev-parse", "HEAD")
    assert set(run.published()["sweep"]) == set(SWEEPS)


def test_publishing_again_adds_nothing(released: Run) -> None:
    before = released.files()
    assert released.publish() == 0
    differing = {
        name for name, data in released.files().items() if before.get(name) != data
    }
    assert released.files().keys() == before.keys()
    assert differing <= {f"{DEVICE}/environment.json", f"{DEVICE}/methodology.md"}, (
        "which say when it was analysed"
    )


def slower(_: Any, record: Fields) -> Fields:
    for regime in record["regimes"].values():
        regime["speedup"] = 0.01
    return record


def test_a_subset_replaces_nothing_else(released: Run) -> None:
    before = released.published()
    released.run, released.finished = "subset", "2026-11-21T10:00:00Z"
    released.measure(["tensor_ladder"], slower, **SECOND)
    assert released.publish("--config", "sweeps=[tensor_ladder]") == 0
    after = released.published()
    measured = after["sweep"] == "tensor_ladder"
    assert set(after[measured]["sessions"]) == {2}, (
        "the code is the same, so that both sessions count"
    )
    assert list(after[measured]["speedup"]) == pytest.approx(
        list((before[measured]["speedup"] * 0.01) ** 0.5)
    )
    pd.testing.assert_frame_equal(before[~measured], after[~measured])
    assert len(list((released.target / "records").iterdir())) == 2
    assert "](sweeps/bank_stride.md)" in (released.target / "report.md").read_text()


def measure_next_commit(
    lab: Run, names: list[str] | None = None, **session: Any
) -> None:
    """A run that is measured again, a day later, from another commit."""
    lab.finished = (
        f"{date.fromisoformat(lab.finished[:10]) + timedelta(days=1)}T10:00:00Z"
    )
    shutil.rmtree(lab.folder.root)
    with (lab.project.kernels / "changes.md").open("a") as changes:
        changes.write("next\n")
    lab.git("add", "kernels")
    lab.git("commit", "-q", "-m", "next")
    given = SECOND | {"versions": {"driver": "590.1"}} | session
    lab.measure(names, slower, **given)


def replacing(
    lab: Run, names: list[str] | None = None, only: str = "HEAD", **session: Any
) -> int:
    """Publish such a run, in place of what is published where `only` names its commit."""
    measure_next_commit(lab, names, **session)
    return lab.publish(*(["--only", only] if only else []))


def test_a_publication_of_one_commit_holds_its_records_alone(
    released: Run,
) -> None:
    write_json(released.target / "sanitizer.json", {"wmma_tile": {}})
    assert replacing(released) == 0
    assert set(read_archive(released.target / "records").sessions) == {"session-2"}
    assert {*released.published("sessions")["session"]} == {"session-2"}
    assert len([*(released.target / "records").iterdir()]) == 1
    assert (released.target / "sanitizer.json").exists(), (
        "which names sources, and no commit"
    )


def test_what_would_leave_a_gap_replaces_nothing(
    released: Run, caplog: pytest.LogCaptureFixture
) -> None:
    before = released.files()
    measure_next_commit(released, ["tensor_ladder"])
    assert released.publish("--only", "HEAD", "--config", "sweeps=[tensor_ladder]") == 2
    assert (
        "bank_stride: published, and not a sweep of this run: its rows would go"
        in caplog.text
    )
    assert released.files() == before


def test_what_is_of_no_commit_replaces_nothing(
    released: Run, caplog: pytest.LogCaptureFixture
) -> None:
    before, commit = released.files(), released.git("rev-parse", "HEAD")
    tree = {"digest": "0" * 64, "commit": commit, "clean": False}
    assert replacing(released, tree=tree) == 2
    assert "the session(s) session-2 are not of" in caplog.text
    assert released.files() == before


def test_what_one_commit_measured_piece_by_piece_replaces_the_rest_without_a_gpu(
    released: Run, without_gpu: Run, caplog: pytest.LogCaptureFixture
) -> None:
    """Each sweep was measured and published on its own; the last publication needs neither run nor GPU."""
    measure_next_commit(released, ["tensor_ladder"])
    assert released.publish("--config", "sweeps=[tensor_ladder]") == 0
    assert without_gpu.publish("--only", "HEAD") == 2
    assert (
        "not measured by this checkout: its code, settings or kernels are others: bank_stride"
        in caplog.text
    )
    released.finished = "2026-11-21T12:00:00Z"
    released.measure(["bank_stride"], id="session-3", started="2026-11-21T11:00:00Z")
    assert released.publish("--config", "sweeps=[bank_stride]") == 0
    jobs = released.published("jobs")
    assert without_gpu.publish("--only", "HEAD") == 0
    sessions = released.published("sessions")
    assert {*sessions["session"]} == {"session-2", "session-3"}
    assert {*sessions["commit"]} == {released.git("rev-parse", "HEAD")}
    assert {*released.published()["sweep"]} == {*SWEEPS}
    pd.testing.assert_frame_equal(released.published("jobs"), jobs)


def test_without_an_account_notes_are_made_from_records_but_for_what_the_profiler_said(
    released: Run,
) -> None:
    said = {"sweep": "bank_stride", "stage": "profile", "reason": "for a reason"}
    stale = [
        said | {"stage": "measure", "subject": "a cell"},
        said | {"subject": OTHER_CODE},
    ]
    kept = said | {"subject": "Nsight Compute"}
    before = released.published("notes")
    changed = tables.concat([before, tables.frame("notes", [*stale, kept])], "notes")
    tables.write({"notes": changed}, released.target)
    for name in SWEEPS:
        for account in ("measured", "profiled"):
            released.folder.account(account, name).unlink()
    assert released.publish("--only", "HEAD") == 0
    found = released.published("notes")
    assert ("Nsight Compute", "for a reason") in {
        *zip(found["subject"], found["reason"], strict=True)
    }
    assert not {"a cell", OTHER_CODE} & {*found["subject"]}


def test_a_commit_that_is_not_there_is_refused(
    released: Run, caplog: pytest.LogCaptureFixture
) -> None:
    assert released.publish("--only", "v7") == 2
    assert "--only: 'v7' is not accepted; accepted: a commit or a tag" in caplog.text


def test_counters_of_other_code_are_named_with_their_date(released: Run) -> None:
    run, said = released, "Counters of 1 sweep (bank_stride) were read with other code"
    assert "other code" not in (run.target / "report.md").read_text()
    run.session, run.finished = (
        replace(run.session, id="session-2"),
        "2026-11-21T10:00:00Z",
    )
    run.record(
        ["bank_stride"],
        facts=lambda _, facts: facts | {"machine_code": "new"},
        metrics=False,
    )
    assert run.publish() == 0
    for name in ("report.md", "index.html"):
        assert said in (run.target / name).read_text(), name


def test_what_another_checkout_measured_is_not_published(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    run.update("tensor_ladder", precision=0.01)
    run.compile(run.sweeps()["tensor_ladder"])
    assert run.publish() == 2
    assert "2 cell(s) not measured by this checkout" in caplog.text
    assert "tensor_ladder: wmma_naive-fp16 at" in caplog.text
    assert not run.target.exists()
    assert run.publish("--force") == 0


def test_a_plan_that_is_not_its_files_is_refused(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    run.update("tensor_ladder", sizes=[4096, 2048])
    assert run.publish() == 2
    assert "the plan of tensor_ladder is not that of its file" in caplog.text


def test_a_plan_with_launches_as_tritons_compiler_wants_them_is_that_of_its_file(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    plan = read_plan(run.folder.plan("tensor_ladder"))
    compiled = {
        "hidden_pointers": 2,
        "tensor_maps": [],
        "threads": 384,
        "shared_bytes": 0,
    }
    facts = {name: {**of, **compiled} for name, of in plan.variants.items()}
    other = replace(plan, variants=facts, tasks=tasks_as_compiled(plan.tasks, facts))
    replace_file(run.folder.plan("tensor_ladder"), to_json(other))
    assert run.publish() == 2
    assert "not measured by this checkout" in caplog.text, (
        "the records are of other launches"
    )
    assert "not that of its file" not in caplog.text


def test_a_tree_of_no_commit_is_refused_by_its_digest(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    run.measure(
        tree={"digest": "f" * 64, "commit": None, "clean": None}, id="session-2"
    )
    assert run.publish() == 2
    assert "no commit is known for the tree of digest ffffffffffffffff" in caplog.text


def test_a_run_gets_the_commit_of_its_tree_also_from_a_later_one(run: Run) -> None:
    commit = run.git("rev-parse", "HEAD")
    run.measure(tree={"digest": tree_digest(run.root), "commit": None, "clean": None})
    (run.project.kernels / "changes.md").write_text("a word on it")
    run.git("add", "kernels")
    run.git("commit", "-q", "-m", "next")
    assert run.publish() == 0
    assert set(run.published("sessions")["commit"]) == {commit}
    assert run.publish("--only", commit) == 0


def test_a_tree_that_is_published_is_known_however_old_its_commit_is(
    released: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = released.git("rev-parse", "HEAD")
    old = {**released.session.tree, "commit": None, "clean": None}
    measure_next_commit(released, tree=old, versions={})
    monkeypatch.setattr("ladder.measure.host._SEARCHED", 0)
    assert released.publish() == 0
    sessions = released.published("sessions")
    assert set(sessions["commit"]) == {commit}
    assert set(sessions["session"]) == {"session-1", "session-2"}


def test_an_incorrect_cell_is_refused_by_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = Run(tmp_path)
    run.measure(
        ["tensor_ladder"], lambda _, record: failed("incorrect", "wrong")(record)
    )
    run.measure(["bank_stride"], lambda _, record: record | {"check": None})
    assert run.publish() == 2
    assert "cell(s) with an incorrect result: wmma_naive-fp16@4096:cold" in caplog.text
    assert (
        "33 cell(s) timed but not verified: bank_stride-int32@1024:cold" in caplog.text
    )
    assert "and 28 more" in caplog.text


def forge(run: Run, kind: str, change: Callable[[Fields], Any]) -> None:
    """Change every line of a kind in the run's store."""
    for path in run.folder.records.iterdir():
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for line in lines:
            if kind in line:
                change(line[kind])
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def ten_times_faster(record: Fields) -> None:
    for name in ENDS:
        if name in record["result"]:
            record["result"][name] *= 10


def surer(record: Fields) -> None:
    if "speedup" in record["result"]:
        record["result"]["speedup_low"] = record["result"]["speedup"] * 0.9999


FORGED: list[tuple[str, Callable[[Fields], Any], str]] = [
    (
        "record",
        ten_times_faster,
        "cell(s) whose speed-up is not that of its times: wmma_naive-fp16@4096:cold",
    ),
    ("record", surer, "cell(s) whose speed-up is not that of its times"),
    (
        "record",
        lambda record: record["result"].update(
            check={"max_error": 1e9, "error_bound": 1e-5}
        ),
        "cell(s) with an error above its bound",
    ),
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


@pytest.mark.parametrize(
    ("kind", "change", "says"), FORGED, ids=map(str, range(len(FORGED)))
)
def test_what_does_not_follow_from_what_was_measured_is_refused(
    run: Run,
    kind: str,
    change: Callable[[Fields], Any],
    says: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    forge(run, kind, change)
    assert run.publish() == 2
    assert says in caplog.text
    assert not run.target.exists()


def test_a_failed_variant_alone_is_no_objection(tmp_path: Path) -> None:
    def change(place: Any, record: Fields) -> Fields:
        return (
            failed("timeout", "60 s")(record)
            if place.variant.kernel.name == "wmma_naive"
            else record
        )

    run = Run(tmp_path)
    run.measure(change=change)
    assert run.publish() == 0
    assert "timeout" in set(run.published()["status"])


def test_an_incomplete_run_is_refused_even_when_forced(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    run.folder.account("measured", "bank_stride").unlink()
    assert run.publish("--force") == 2
    assert (
        "the sweep bank_stride is not measured; the run is not complete" in caplog.text
    )
    run.run = "other"
    assert run.publish("--force") == 2
    assert "no such run" in caplog.text


@pytest.mark.parametrize(
    ("name", "device"),
    [("../main", DEVICE), ("main", "a/../b")],
)
def test_no_folder_outside_is_replaced(
    run: Run, name: str, device: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert main(["--root", str(run.root), "publish", name, device, "--force"]) == 2
    assert "a name of letters, digits" in caplog.text
    assert not run.target.parent.exists()


def test_nothing_is_not_published_even_when_forced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = Run(tmp_path)
    run.measure(change=lambda _, record: None)
    assert run.publish("--force") == 2
    assert "no cell of its sweeps has a result" in caplog.text
    assert not list(run.target.parent.iterdir())


def test_a_device_folder_may_be_a_link(tmp_path: Path) -> None:
    link, place = tmp_path / DEVICE, tmp_path / "h200"
    place.mkdir()
    link.symlink_to(place)
    with replaced(link) as fresh:
        (fresh / "new").touch()
    assert {*tmp_path.rglob("*")} == {link, place, place / "new"}
    assert link.is_symlink()


def test_without_a_gpu_there_is_nothing_new_to_publish(
    without_gpu: Run, caplog: pytest.LogCaptureFixture
) -> None:
    before = without_gpu.files()
    assert without_gpu.publish() == 2
    assert "nothing new to publish: a run without a GPU adds no record" in caplog.text
    assert "(--force overrides)" in caplog.text
    assert without_gpu.files() == before


def test_without_a_gpu_the_published_tables_are_made_anew_where_that_is_asked_for(
    without_gpu: Run,
) -> None:
    before = without_gpu.published()
    tables.write({"timings": before.assign(speedup=1.0)}, without_gpu.target)
    assert without_gpu.publish("--force") == 0
    pd.testing.assert_frame_equal(without_gpu.published(), before)
    assert len(list((without_gpu.target / "records").iterdir())) == 1


NUMBERS = ["registers", "instructions", "cubin_sha256"]
"""What the compiler says of a variant, beside its own names and keys."""
WITHOUT_COMPILER = {"status": "unsupported", "reason": MISSING}
WITHOUT_COMPILER |= dict.fromkeys(NUMBERS)


def test_what_is_published_of_variants_stays_where_their_compiler_is_missing(
    released: Run,
) -> None:
    """As on a host with a GPU and without Triton, which measures the others."""
    kernel = "wmma_tile-fp16"
    of = (released.sweeps()["tensor_ladder"], released.project.include, "sm_90a", ())
    known = {
        request.key: {**make_facts(variant), "symbols": {}}
        for variant, request in CompileRequests(*of).variants.items()
    }
    replace_file(released.target / "facts.json", facts_to_json(known))

    def published(table: str, *names: str) -> list[Fields]:
        rows = released.published(table).query(f"variant == '{kernel}'")
        return rows[["status", *names]].to_dict("records")

    def rows() -> list[list[Fields]]:
        timed = published("timings", "sessions", "speedup")
        return [published("resources", *NUMBERS), timed]

    def facts(variant: Variant, given: Fields) -> Fields:
        return given | WITHOUT_COMPILER if variant.id == kernel else given

    before = rows()
    released.run, released.finished = "without", "2026-11-21T10:00:00Z"
    released.measure(recorded={"facts": facts}, **SECOND)
    assert released.publish() == 0
    assert rows() == before
    assert set(read_facts(released.target / "facts.json")) >= set(known)


def test_what_the_compiler_said_is_published_and_stays_without_the_cache(
    released: Run,
) -> None:
    requests = [
        request
        for sweep in released.sweeps().values()
        for request in CompileRequests(
            sweep, released.project.include, "sm_90a", ()
        ).requests
    ]
    cache = released.root / ".cache/cubins"
    for request in requests:
        write_json(
            cache / f"{request.key}.json",
            {"status": "compile_error", "reason": "of a test"},
        )
        replace_file(cache / f"{request.key}.cubin", b"")
    for _ in range(2):
        assert released.publish() == 0
        assert read_facts(released.target / "facts.json").keys() == {
            one.key for one in requests
        }
        shutil.rmtree(cache, ignore_errors=True)


@pytest.mark.parametrize("failing", ["write_archive", "merge", "Path.rename"])
def test_a_failure_in_the_middle_leaves_the_old_one_whole(
    released: Run, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    before, rename = released.files(), Path.rename
    measure_next_commit(released)

    def full_disk(*given: Any) -> Any:
        if failing == "Path.rename" and not given[0].name.endswith(".new"):
            return rename(*given)
        raise OSError("no space left on device")

    monkeypatch.setattr(f"ladder.results.publish.{failing}", full_disk)
    assert released.publish() == 2
    assert released.files() == before
    assert [path.name for path in released.target.parent.iterdir()] == [DEVICE]


def test_a_killed_publication_is_refused_until_its_folder_is_gone_and_loses_nothing(
    without_gpu: Run, caplog: pytest.LogCaptureFixture
) -> None:
    """Killed between the two renames, the published folder stands aside, and the new one under its own name."""
    before, target = without_gpu.files(), without_gpu.target
    aside, fresh = (target.with_name(f".{DEVICE}.{word}") for word in ("old", "new"))
    target.rename(aside)
    fresh.mkdir()
    assert without_gpu.publish("--force") == 2
    assert (
        f"{fresh}: another process publishes. If it was killed, remove this folder"
        in caplog.text
    )
    with pytest.raises(LadderError, match="half a publication"):
        set_up(without_gpu.root, (), {"device": "none"}).published  # noqa: B018
    fresh.rmdir()
    assert without_gpu.publish() == 2
    assert "nothing new to publish" in caplog.text
    assert without_gpu.files() == before


@pytest.mark.parametrize("part", ["timings.csv", "records"])
def test_a_published_folder_that_lacks_a_part_is_refused(
    released: Run, part: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = released.target / part
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    before = released.files()
    assert released.publish("--force") == 2
    said = "records/*.parquet" if part == "records" else part
    assert (
        f"{released.target}: half a publication: {said} missing. Restore it"
        in caplog.text
    )
    assert released.files() == before


def test_an_archive_that_lacks_published_sessions_is_refused(
    released: Run, caplog: pytest.LogCaptureFixture
) -> None:
    released.finished = "2026-11-21T10:00:00Z"
    released.measure(["tensor_ladder"], **SECOND)
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


def test_a_choice_by_too_few_times_does_not_follow_from_them() -> None:
    candidates = [
        {"reference": name, "algorithm": "", "us": [us, us]}
        for name, us in (("one", 1.0), ("other", 2.0))
    ]
    assert not follows({"candidates": candidates, "reference": "one", "algorithm": ""})
