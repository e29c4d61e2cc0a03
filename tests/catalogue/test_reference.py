"""What is written by `make reference`: fields, schemas, and the numbers of README."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace

import jsonschema
import pytest
import yaml
from checkout import PUBLISHED, catalog, published_data
from conftest import ROOT
from ladder.catalogue.field_docs import BEGIN, END, field_reference
from ladder.cli.app import main
from ladder.cli.inspect import KINDS
from ladder.report.choices import choices
from ladder.report.document import learnt, running


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_of_every_document_is_described(kind: str) -> None:
    schema = KINDS[kind][1].model_json_schema()
    assert schema["description"]
    for line in field_reference(kind, *KINDS[kind]).splitlines():
        if line.startswith("| `"):
            assert line.split("|")[-2].strip(), f"no description: {line}"


def between_marks(readme: Path) -> str:
    return readme.read_text().partition(BEGIN)[2].partition(END)[0].strip()


def test_the_numbers_of_readme_are_those_of_the_published_tables() -> None:
    lines = learnt(PUBLISHED, published_data(), ROOT).strip()
    assert between_marks(ROOT / "README.md") == lines, "run `make reference`"


def test_readme_leads_to_the_page_in_its_third_line_and_from_its_answers() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    page = PUBLISHED.page.relative_to(ROOT)
    assert f"]({page})" in text.splitlines()[2]
    data = published_data()
    places = [("chart", name) for name in data.parts]
    places += [("use", choice.kind) for choice in choices(data)]
    known = {"claims", *(f"{kind}={name}" for kind, name in places)}
    linked = re.findall(rf"\[Page\]\({page}#(.*?)\)", text)
    assert {"use=bf16", "chart=reduction", "claims"} <= {*linked} <= known


def test_run_says_how_many_kernels_run_on_which_card() -> None:
    lines = running(catalog(), ROOT / "kernels").strip()
    assert between_marks(ROOT / "docs/run.md") == lines, "run `make reference`"
    kernels = {
        f"kernel {arch}": SimpleNamespace(
            source=ROOT / "kernels/gemm/simt/kernel.cu", min_arch=arch
        )
        for arch in ("sm_70", "sm_80", "sm_90", "sm_90a")
    }
    head, _, row = running(kernels, ROOT / "kernels").strip().splitlines()  # type: ignore[arg-type]
    assert head == "|kernels|in all|A100|RTX 4090|H100, H200|B200|RTX 5090|"
    assert row == "|[gemm/simt](../kernels/gemm/simt)|4|2|2|4|3|3|"


def test_the_readme_holds_the_reference_the_schemas_give(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["reference"]) == 0
    printed = capsys.readouterr().out
    assert between_marks(ROOT / "config/README.md") == printed.strip(), (
        "run `make reference`"
    )
    assert printed == "\n".join(field_reference(kind, *KINDS[kind]) for kind in KINDS)


FILES = {
    "config": ["config/config.yaml"],
    "sweep": ["config/sweeps/*.yaml"],
    "kernel": ["kernels/**/*.yaml"],
}


@pytest.mark.parametrize("kind", KINDS)
def test_editors_find_the_schema_of_every_document(kind: str) -> None:
    schema = json.loads((ROOT / "config/schemas" / f"{kind}.json").read_text())
    assert schema == KINDS[kind][1].model_json_schema(), "run `make reference`"
    checked = jsonschema.Draft202012Validator(schema)
    files = [path for pattern in FILES[kind] for path in ROOT.glob(pattern)]
    assert files
    for path in files:
        document = yaml.safe_load(path.read_text())
        assert not list(checked.iter_errors(document)), path
        assert list(checked.iter_errors({**document, "misspelt": 1})), path
    editor = json.loads((ROOT / ".vscode/settings.json").read_text())["yaml.schemas"]
    assert editor[f"config/schemas/{kind}.json"] == FILES[kind][0]


def test_a_kernel_is_described_with_its_launch_or_by_a_launcher() -> None:
    schema = json.loads((ROOT / "config/schemas/kernel.json").read_text())
    checked = jsonschema.Draft202012Validator(schema)
    path = ROOT / "kernels/gemm/fp32/4_register_tile.yaml"
    with_launch = yaml.safe_load(path.read_text())
    launcher = {"file": "mine.so", "entry": "f"}
    alone = {name: with_launch[name] for name in ("summary", "problem", "origin")}
    alone |= {"dtypes": {"fp32": {}}, "min_arch": "sm_80", "launcher": launcher}
    assert checked.is_valid(with_launch)
    assert checked.is_valid(alone)
    assert not checked.is_valid(with_launch | {"launcher": launcher})
    assert not checked.is_valid(alone | {"cubin": "mine.cubin"})
    for name in ("entry", "launch", "arguments"):
        assert not checked.is_valid(alone | {name: with_launch[name]})
        del with_launch[name]
        assert not checked.is_valid(with_launch)
