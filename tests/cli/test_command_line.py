"""The command line: what steps say of themselves and of a run, what a user gets wrong, and what the system refuses."""

from __future__ import annotations

import errno
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, assert_says, edit_yaml, environment, run_snakemake
from factory import SESSION
from ladder.catalogue.settings import parse_over, read_settings
from ladder.claims.ledger import CLAIMS
from ladder.cli.app import STEPS, main
from ladder.measure.store import appending
from ladder.model.files import write_json
from ladder.model.folders import Project
from snakemake.cli import parse_config

CONFIG = "config/config.yaml"


def test_every_step_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    for step in STEPS:
        assert re.search(rf"^  {step} +\w+", text, re.MULTILINE), "with its first line"
        assert main([step, "--help"]) == 0
        assert f"Usage: ladder {step}" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ["collcet"],
        ["collect"],
        ["collect", "--nothing"],
        ["prepare", "a", "b", "c"],
        ["prepare", "a", "b", "--jobs", "0"],
        ["figures", "a", "b", "--jobs", "-1"],
    ],
)
def test_what_the_command_line_does_not_know_is_a_mistake(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert "Usage: ladder" in capsys.readouterr().err


def test_a_crash_of_the_program_has_an_exit_code_of_its_own_and_leaves_its_traceback(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def crash(*_: Any) -> Any:
        raise RuntimeError("a bug")

    monkeypatch.setattr("ladder.cli.inspect.run_of", crash)
    assert main(["check"]) == 3
    assert "RuntimeError: a bug" in caplog.text


def test_check_says_what_a_run_would_do_and_at_which_sizes_nothing_is_asked_for(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit_yaml(
        project / "config/sweeps/alone.yaml",
        lambda sweep: sweep["variants"][0].update(where="elements > 2**16"),
    )
    assert main(["--root", str(project), "check"]) == 0
    text = capsys.readouterr().out
    assert f"2 kernels; 4 variants to compile; {len(CLAIMS)} claims" in text
    assert (
        "alone: 2 variants, 1 size, 2 cells\n    nothing is asked for at 2^16\n" in text
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["check", "--config", "{run"], ("--config", "'{run'", "KEY=VALUE")),
        (["check", "--config", "run={a"], ("--config", "not valid YAML")),
        (
            ["check", "--config", "measure={precison: 1}"],
            ("command line: measure", "'precison'", "'precision'"),
        ),
        (
            ["check", "--config", "run=null"],
            ("command line: run", "'null'", "other than published and null"),
        ),
        (
            ["check", "--config", "run="],
            ("command line: run", "None", "other than published and null"),
        ),
        (
            ["check", "--configfile", "config/none.yaml"],
            ("config/none.yaml", "cannot be read"),
        ),
        (
            ["prepare", "results/a/b", "alnoe"],
            ("configuration", "sweeps", "'alnoe'", "'alone'"),
        ),
        (["prepare", "results/a/b", "alone", "--arch", ""], ("arch", "''")),
        (
            [
                "prepare",
                "results/a/b",
                "alone",
                "--config",
                "compile={options: ['--fast']}",
            ],
            ("compile", "does not take", "--fast"),
        ),
        (
            ["collect", "results/a/b", "none"],
            ("results/a/b/plans/none.json", "No such file"),
        ),
        (["measure", CONFIG], (CONFIG, "Invalid JSON")),
        (
            ["compare", "results/none", "results/none"],
            ("RUN_A: 'results/none' is", "not accepted; accepted: results/RUN/DEVICE"),
        ),
        (
            ["environment", "results/a/b", "--arch", "banana"],
            ("--arch", "'banana'", "such as sm_80"),
        ),
        (
            ["collect", "results/a/b", "alone", "--into", CONFIG],
            ("folder", CONFIG, "a folder"),
        ),
    ],
    ids=lambda value: " ".join(value)[:40],
)
def test_a_mistake_on_the_command_line_of_a_step_is_reported_the_same_way(
    words: list[str],
    says: tuple[str, ...],
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.chdir(project)
    before = set(project.rglob("*"))
    assert main(words) == 2
    assert_says(caplog.records[-1].getMessage(), says)
    assert set(project.rglob("*")) == before


def test_settings_may_follow_one_another_as_for_snakemake(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begin = ["--root", str(project), "check"]
    words = [*begin, "--config", "run=other", "device=none", "measure={seed: 3}"]
    assert main(words) == 0
    assert "results/other/no-gpu" in capsys.readouterr().out
    assert main([*begin, "run=other"]) == 2, "only behind --config"


def test_a_root_with_dots_is_a_root(project: Path) -> None:
    assert main(["--root", f"{project}/config/..", "check"]) == 0


def test_a_closed_output_is_no_crash(project: Path) -> None:
    command = f"{shlex.quote(sys.executable)} -m ladder --root {shlex.quote(str(project))} check >&-"
    done = subprocess.run(
        command, shell=True, env=os.environ | {"PYTHONPATH": "workflow"}, check=False
    )
    assert done.returncode == 0


def test_empty_and_wrong_folders_on_the_command_line_are_refused(
    project: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    folder, root, name = str(project / "results/a/b"), ["--root", str(project)], "alone"
    for step, says in (
        (["collect", folder, name, "--into", ""], "folder: '' is not accepted"),
        (["collect", "/dev/null", name], "folder: '/dev/null' is not accepted"),
        (["report", folder, name, "--beside", "/"], "--beside: '/' is not accepted"),
        (["figures", folder, name, "--published", "nope"], "'nope' does not exist"),
    ):
        caplog.clear()
        assert main([*root, *step]) == 2, step
        said = "".join([*capsys.readouterr().err.split("\n"), caplog.text])
        assert says in re.sub(r"\W*\n\W*", " ", said), step


def test_settings_given_twice_are_merged_as_snakemake_merges_them() -> None:
    given = [
        "measure={precision: 0.01, seed: 3}",
        "run=a",
        "measure={seed: 4}",
        "run=b",
    ]
    expected = {"measure": {"precision": 0.01, "seed": 4}, "run": "b"}
    assert parse_over(given) == expected
    assert parse_config(given) == {
        **expected,
        "measure": {"precision": "0.01", "seed": "4"},
    }


NAMES = ["2026-11-29", "2026_11_29", "1.10", "0123", "true", "2026-13-45"]
"""What YAML, or snakemake, takes for a date or a number; the last is none."""


@pytest.mark.parametrize("name", NAMES)
def test_a_run_may_be_called_by_a_date_or_a_number(
    name: str, project: Path, tmp_path: Path
) -> None:
    """As a word and in a file, with quotes and without."""
    for written in (name, f"'{name}'", f'"{name}"'):
        assert (
            read_settings(Project(project), [], parse_over([f"run={written}"])).run
            == name
        )
        path = tmp_path / "own.yaml"
        path.write_text(f"run: {written}\n")
        assert read_settings(Project(project), [path], {}).run == name


@pytest.mark.slow
def test_snakemake_calls_a_run_as_the_steps_do(project: Path, tmp_path: Path) -> None:
    for word in ("run=2026_11_29", "run='2026_11_29'"):
        outcome = run_snakemake(project, "compile", "-n", "--config", word)
        assert "results/2026_11_29/no-gpu/plans/alone.json" in outcome.text
    path = tmp_path / "own.yaml"
    path.write_text("run: 2026-11-29\n")
    outcome = run_snakemake(project, "compile", "--configfile", str(path))
    assert outcome.code == 0, outcome.text
    assert (project / "results/2026-11-29/no-gpu/plans/alone.json").is_file()


def test_what_the_system_refuses_or_never_ends_is_one_line_that_names_the_file(
    project: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(project)
    folder = project / "results/a"
    (folder / "b/records").mkdir(parents=True)
    (folder / "b/records/x.jsonl").symlink_to("/dev/zero")
    for name in ("b/plans/alone.json", "c/records/x.jsonl"):
        (folder / name).mkdir(parents=True)
    (folder / "e").symlink_to("e")
    never = "cannot be read: it is no regular file"
    environment = ["environment", "--arch", "sm_90a"]
    for words, file, says in (
        (["measure"], "/dev/zero", never),
        (["check", "--configfile"], "/dev/zero", never),
        ([*environment, "results/a/b"], "results/a/b/records/x.jsonl", never),
        (
            [*environment, "results/a/c"],
            "results/a/c/records/x.jsonl",
            "Is a directory",
        ),
        (["measure"], "results/a/b/plans/alone.json", "Is a directory"),
        (["measure"], "results/a/e/f", "Too many levels of symbolic links"),
    ):
        given = words if "environment" in words else [*words, file]
        assert main(given) == 2
        assert caplog.messages[-1] == f"error: {file}: {says}"


def test_a_full_disk_is_named_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.json").write_text("old")

    def full(self: Path, data: bytes) -> None:
        self.touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match=r"No space left on device: .*a\.json"):
        write_json(tmp_path / "a.json", {})
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]
    with appending(tmp_path / "records", "a") as append:
        monkeypatch.setattr(os, "fsync", lambda _: full(tmp_path / "a.json", b""))
        with pytest.raises(
            OSError, match=r"No space left on device: .*records/a-.*\.jsonl"
        ):
            append(SESSION)


def test_a_reader_that_leaves_early_is_no_error() -> None:
    command = [sys.executable, "-m", "ladder", "reference"]
    given = environment() | {"PYTHONPATH": str(ROOT / "workflow")}
    with subprocess.Popen(
        command, env=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.close()
        assert running.stderr.read() == b""
        assert running.wait() == 0
