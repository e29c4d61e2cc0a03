"""The step that plans a sweep, where what is published of its kernels stands in for the compiler."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from checkout import PUBLISHED, loaded
from conftest import edit, make_project, run_snakemake
from ladder.build.cache import Cache
from ladder.build.triton_request import compiler
from ladder.build.variants import CompileRequests
from ladder.cli.app import main
from ladder.model.plan_file import facts_to_json, read_facts
from ladder.model.schemas import SWEEP_TABLES


def prepare(project: Path, run: str, *options: str) -> int:
    return main(
        [
            "--root",
            str(project),
            "prepare",
            str(project / "results" / run),
            "alone",
            *options,
        ]
    )


@pytest.fixture(scope="module")
def published_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a publication that has the facts of the kernels of `alone`, whose cubins are gone."""
    project = make_project(tmp_path_factory.mktemp("published") / "project")
    assert prepare(project, "first/no-gpu") == 0
    cache, folder = (
        project / ".cache/cubins",
        project / "results/published/h200",
    )
    folder.mkdir(parents=True)
    facts = {path.stem: json.loads(path.read_text()) for path in cache.glob("*.json")}
    (folder / "facts.json").write_bytes(facts_to_json(facts))
    shutil.rmtree(cache)
    for name in (
        *(f"{table}.csv" for table in SWEEP_TABLES),
        "environment.json",
        "records/of_a_test.parquet",
    ):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).touch()
    return project


@pytest.fixture
def project(published_once: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(published_once, tmp_path / "project", symlinks=True))


@pytest.fixture
def published(project: Path) -> Path:
    return project / "results/published/h200"


def test_published_facts_give_the_plan_that_the_compiler_gave(
    project: Path, published: Path
) -> None:
    assert prepare(project, "second/no-gpu", "--published", str(published)) == 0
    plans = [
        project / "results" / run / "no-gpu/plans/alone.json"
        for run in ("first", "second")
    ]
    assert plans[0].read_bytes() == plans[1].read_bytes()
    assert not [*project.glob(".cache/cubins/*.cubin")]


def test_a_kernel_that_changed_since_is_compiled(
    project: Path, published: Path
) -> None:
    edit(project / "kernels/stencil/alone.cu", "T sum = 0;", "T sum = 1;")
    assert prepare(project, "second/no-gpu", "--published", str(published)) == 0
    plan = json.loads((project / "results/second/no-gpu/plans/alone.json").read_text())
    cubins = {path.stem for path in project.glob(".cache/cubins/*.cubin")}
    assert cubins == {facts["cubin"] for facts in plan["variants"].values()}, (
        "the harness is the published one"
    )


STEPS = (
    ["prepare", "results/second/no-gpu", "alone"],
    ["collect", "results/second/no-gpu", "alone"],
    ["environment", "results/second/no-gpu", "--arch", "sm_90a"],
    ["figures", "results/second/no-gpu", "alone"],
)


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step[0])
@pytest.mark.parametrize(
    "part", ["environment.json", "timings.csv", "records/of_a_test.parquet"]
)
def test_half_a_publication_is_refused_by_the_step_that_would_use_it(
    project: Path,
    published: Path,
    step: list[str],
    part: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (published / part).unlink()
    assert main(["--root", str(project), *step, "--published", str(published)]) == 2
    says = f"{published}: half a publication: {part.replace('of_a_test', '*')} missing. Restore it"
    assert says in caplog.text


def test_half_a_publication_is_refused_before_any_job_of_a_run(
    project: Path, published: Path
) -> None:
    edit(
        project / "config/config.yaml",
        "published: nvidia-h200",
        f"published: {published.name}",
    )
    (published / "environment.json").unlink()
    outcome = run_snakemake(project, "-n")
    assert outcome.code == 1
    assert (
        f"{published.name}: half a publication: environment.json missing"
        in outcome.text
    )
    assert not outcome.jobs


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[]", "a JSON object is expected"),
        ("{", "not valid JSON"),
        ('{"key": {"status": "fine"}}', "key"),
        (
            '{"key": {"status": "ok", "registers": 1, "spill_store_bytes": 0, "shared_bytes_static": 0}}',
            "symbols",
        ),
        ('{"key": {"status": "compile_error"}}', "reason"),
    ],
)
def test_a_file_that_holds_no_facts_is_refused_by_its_name(
    project: Path,
    published: Path,
    text: str,
    says: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (published / "facts.json").write_text(text)
    assert prepare(project, "second/no-gpu", "--published", str(published)) == 2
    assert str(published / "facts.json") in caplog.text
    assert says in caplog.text


@pytest.mark.published
def test_what_is_published_of_kernels_is_what_the_compiler_says(tmp_path: Path) -> None:
    run, published = loaded(), read_facts(PUBLISHED.facts)
    of = (run.project.include, run.arch, run.config.compile.options)
    every = [
        request
        for sweep in run.sweeps.values()
        for variant, request in CompileRequests(sweep, *of).variants.items()
        if not variant.kernel.triton or compiler()
    ]
    some = [one for one in every if one.key in published][::60]
    assert len(some) > 10, (
        "so many kernels changed since that `make` compiles them all; publish again"
    )
    for key, facts in Cache(tmp_path).fill(some, 2, 300).items():
        # Older facts have fewer fields: what is not published was not looked at then.
        said, known = ({**one, "compile_s": 0} for one in (facts, published[key]))
        assert {name: said[name] for name in known} == known
