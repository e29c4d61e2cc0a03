"""The pages of ladders: every rung is on its page, and all pages together can be read."""

from __future__ import annotations

import re

import pytest
import text_pages
from checkout import every_sweep
from conftest import ROOT

PAGES = ROOT / "docs/ladders"
SWEEPS = {
    "tensor-cores": ["tensor_ladder_bf16", "hopper_ladder"],
    "fp32": ["fp32_ladder"],
    "attention": ["attention", "attention_64"],
    "softmax": ["softmax_fp32", "softmax_bf16"],
    "memory-bound": [
        "reduction",
        "transpose_fp32",
        "transpose_bf16",
        "gemv_fp32",
        "gemv_bf16",
    ],
}
MOST_WORDS = 6000
_CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def read(page: str) -> str:
    return (PAGES / f"{page}.md").read_text()


def test_each_page_has_a_template_and_is_in_the_contents() -> None:
    templates = {path.name.partition(".")[0] for path in text_pages.LADDERS.iterdir()}
    assert templates == {*SWEEPS, "README"}
    assert {path.stem for path in PAGES.glob("*.md")} == templates
    assert all(f"({page}.md)" in read("README") for page in SWEEPS)


@pytest.mark.parametrize("page", SWEEPS)
def test_a_page_has_every_rung_of_its_ladders(page: str) -> None:
    text, sweeps = read(page), every_sweep()
    rungs = [entry.rung for name in SWEEPS[page] for entry in sweeps[name].entries]
    assert [rung for rung in rungs if f"**{rung}**" not in text] == []


def test_all_pages_can_be_read_in_half_an_hour() -> None:
    words = 0
    for path in PAGES.glob("*.md"):
        text = _CODE.sub("", path.read_text())
        words += len(text.split())
    assert words < MOST_WORDS
