"""`ladder banks`: what it prints, and how it refuses what no warp can do."""

from __future__ import annotations

import subprocess
import sys

import pytest
from conftest import ROOT, environment
from ladder.cli.app import main


def drawn(text: str) -> list[list[str]]:
    """Of each wavefront what stands under each bank."""
    rows = [line[5:] for line in text.splitlines()[2:]]
    return [[row[at : at + 3].strip() for at in range(0, len(row), 3)] for row in rows]


def test_rows_of_unit_stride_give_each_lane_its_bank(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["banks", "lane * 4"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("wavefronts 1, conflict degree 1;")
    assert text.splitlines()[1].split() == ["bank", *map(str, range(32))]
    assert drawn(text) == [[str(bank) for bank in range(32)]]


def test_a_column_of_32_words_falls_into_one_bank(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["banks", "lane * 128"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("wavefronts 32, conflict degree 32;")
    assert drawn(text) == [[str(lane), *["."] * 31] for lane in range(32)]


def test_wide_accesses_are_shown_by_quarters_of_the_warp(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["banks", "(lane % 8) * 144 + (lane // 8) * 16", "--width", "16"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("wavefronts 4, conflict degree 1;")
    shown = drawn(text)
    assert [sorted({int(lane) for lane in row}) for row in shown] == [
        list(range(start, start + 8)) for start in (0, 8, 16, 24)
    ]
    assert shown[0][4:8] == ["1"] * 4, "lane 1 starts at byte 144, word 36"


def test_lanes_of_one_word_are_marked(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["banks", "lane // 16 * 4"]) == 0
    assert drawn(capsys.readouterr().out) == [["0+", "16+", *["."] * 30]]


def test_missing_lanes_have_no_wavefront(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["banks", "lane * 8", "--width", "8", "--lanes", "16"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("wavefronts 1, conflict degree 1;")
    assert drawn(text) == [[str(bank // 2) for bank in range(32)]]


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (["lane * 4", "--lanes", "0"], ["--lanes", "0 is not accepted", "1 to 32"]),
        (["lane * 4", "--lanes", "33"], ["--lanes", "33 is not accepted", "1 to 32"]),
        (["lane * 4", "--width", "16"], ["offset 4 is not aligned to 16 bytes"]),
        (["thread * 4"], ["expression 'thread * 4'", "known names", "lane"]),
        (["lane / 3 * 4"], ["expression 'lane / 3 * 4'", "a whole number is needed"]),
        (["lane *"], ["expression 'lane *'"]),
        (["lane // 0"], ["expression 'lane // 0'", "zero"]),
    ],
)
def test_what_no_warp_can_do_is_refused(
    words: list[str], printed: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    assert main(["banks", *words]) == 2
    for part in printed:
        assert part in caplog.text


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (["--width", "12"], ["--width: 12 is not accepted", "1, 2, 4, 8, 16"]),
        (["--matrices", "3"], ["--matrices: 3 is not accepted", "1, 2, 4"]),
    ],
)
def test_a_word_that_names_nothing_is_refused(
    words: list[str], printed: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    assert main(["banks", "lane * 12", *words]) == 2
    for part in printed:
        assert part in caplog.text


def test_what_is_no_number_is_refused_by_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["banks", "lane * 4", "--width", "wide"]) == 2
    assert "'--width'" in capsys.readouterr().err


def test_rows_of_ldmatrix_are_shown_by_matrix(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["banks", "lane * 64", "--matrices", "2"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("wavefronts 8, conflict degree 4;")
    shown = drawn(text)
    assert [row[0] for row in shown[:4]] == ["0", "2", "4", "6"]
    assert [row[16] for row in shown[4:]] == ["9", "11", "13", "15"]


def test_phases_of_a_write_do_not_merge(capsys: pytest.CaptureFixture[str]) -> None:
    for words, count in ((["--write"], 4), ([], 2)):
        assert main(["banks", "0", "--width", "16", *words]) == 0
        assert capsys.readouterr().out.startswith(f"wavefronts {count}, conflict degree 1;")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_leaves_early_is_no_error(unbuffered: str) -> None:
    command = [sys.executable, "-m", "ladder", "banks", "lane * 4"]
    given = environment() | {"PYTHONPATH": str(ROOT / "workflow"), "PYTHONUNBUFFERED": unbuffered}
    with subprocess.Popen(command, env=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.close()
        assert running.stderr.read() == b""
        assert running.wait() == 0
