"""Headers of the kernels: each stands alone, the index says who uses it, lines are short."""

from __future__ import annotations

import functools
import io
import re
from fnmatch import fnmatch
from pathlib import Path

import pytest
from checkout import catalog, in_sweeps
from compiling import compile_request, compile_text
from conftest import ROOT
from elftools.elf.elffile import ELFFile
from ladder.build.sources import include_closure
from ladder.build.variants import variant_request
from ladder.model.architecture import lacking
from ladder.model.kernel import Kernel, Variant

KERNELS = ROOT / "kernels"
INCLUDE = KERNELS / "include"
HEADERS = sorted(
    path.relative_to(INCLUDE).as_posix() for path in INCLUDE.rglob("*.cuh")
)
SOURCES = sorted(KERNELS.rglob("*.cu"))
LAYERS = [
    "types",
    "ptx",
    "layout",
    "copy",
    "mma",
    "epilogue",
    "schedule",
    "simt",
    "probe",
]
"""Folders of headers, the lowest first: a header includes only from its own and from lower ones."""
WIDTH = 110


def index() -> dict[str, list[str]]:
    """Header -> kernels that use it, as kernels/include/README.md says; a pattern with a `/` is one of FOLDER/NAME."""
    found = dict[str, list[str]]()
    for line in (INCLUDE / "README.md").read_text().splitlines():
        if not line.startswith("| `"):
            continue
        header, purpose, kernels = (
            field.strip() for field in line.strip("|").split("|")
        )
        assert purpose, line
        assert header.strip("`") not in found, line
        patterns = re.findall(r"`([^`]+)`", kernels)
        matched = [
            [
                one.stem
                for one in SOURCES
                if fnmatch(f"{one.parent.name}/{one.stem}", f"*{pattern}")
            ]
            if "/" in pattern
            else [one.stem for one in SOURCES if fnmatch(one.stem, pattern)]
            for pattern in patterns
        ]
        assert all(matched), f"{line}: a pattern that no kernel has"
        found[header.strip("`")] = sorted(name for names in matched for name in names)
    return found


@functools.cache
def users() -> dict[str, list[str]]:
    """Header -> kernels that include it, themselves or through another header."""
    found: dict[str, list[str]] = {header: [] for header in HEADERS}
    for source in SOURCES:
        for path in include_closure(source, INCLUDE):
            if path.suffix == ".cuh":
                found[path.relative_to(INCLUDE).as_posix()].append(source.stem)
    return {header: sorted(names) for header, names in found.items()}


def test_headers_lie_in_folders() -> None:
    assert {header.partition("/")[0] for header in HEADERS} == set(LAYERS)
    assert all(header.count("/") == 1 for header in HEADERS)
    assert len(HEADERS) > 30


def test_the_index_has_every_header_with_the_kernels_that_include_it() -> None:
    assert index() == users(), (
        f"{INCLUDE / 'README.md'} names the kernels that include a header"
    )


def upward_includes(include: Path) -> list[str]:
    """HEADER -> HEADER of every include that climbs from a layer into a higher one."""
    found = []
    for path in sorted(include.rglob("*.cuh")):
        header = path.relative_to(include).as_posix()
        for name in re.findall(r'#include "(.+)"', path.read_text()):
            layers = [LAYERS.index(each.partition("/")[0]) for each in (header, name)]
            if layers[1] > layers[0]:
                found.append(f"{header} -> {name}")
    return found


def test_no_header_includes_from_a_layer_above_its_own() -> None:
    assert upward_includes(INCLUDE) == []


def test_an_include_that_climbs_is_found(tmp_path: Path) -> None:
    (tmp_path / "ptx").mkdir()
    (tmp_path / "ptx/tma.cuh").write_text(
        '#include "ptx/mbarrier.cuh"\n#include "mma/operand_tile.cuh"\n'
    )
    assert upward_includes(tmp_path) == ["ptx/tma.cuh -> mma/operand_tile.cuh"]


def test_every_header_has_a_user() -> None:
    assert [header for header, names in users().items() if not names] == []


def test_includes_name_folder_and_header() -> None:
    files = [*SOURCES, *INCLUDE.rglob("*.cuh")]
    included = {
        name
        for path in files
        for name in re.findall(r'#include "(.+)"', path.read_text())
    }
    assert included <= set(HEADERS)


@pytest.mark.parametrize("header", HEADERS)
def test_a_header_includes_what_it_uses(header: str) -> None:
    """Its templates are not instantiated, but names that do not depend on their arguments must be known."""
    text = f'#include "{header}"\n__global__ void kernel() {{}}\n'
    compile_text(text, ["kernel"], [INCLUDE], "sm_90a")


def test_lines_of_kernels_are_short() -> None:
    files = [
        path
        for path in KERNELS.rglob("*")
        if path.suffix in {".cu", ".cuh", ".py", ".yaml"}
    ]
    assert len(files) > 60
    long = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in sorted(files)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if len(line) > WIDTH
    ]
    assert long == [], f"lines have at most {WIDTH} characters"


def test_lines_of_kernels_to_copy_are_short() -> None:
    """Those of tests/axpy, and those that the page shows."""
    page = (ROOT / "docs/add-a-kernel.md").read_text()
    texts = re.findall(r"^```(?:cuda|yaml)\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(texts) == 3
    texts += [path.read_text() for path in (ROOT / "tests/axpy/kernels").iterdir()]
    assert [
        line for text in texts for line in text.splitlines() if len(line) > WIDTH
    ] == []


BULK_COPIES = {"bulk_copy.cuh", "tma.cuh"}


def copies_in_bulk_on_sm_120(kernel: Kernel) -> bool:
    """Whether it may run there, and copies to shared memory in bulk."""
    if kernel.triton is not None or lacking(kernel.min_arch, "sm_120a") is not None:
        return False
    files = include_closure(kernel.source, INCLUDE, *kernel.includes)
    return bool(BULK_COPIES & {path.name for path in files})


def launched_on_sm_120(name: str) -> Variant | None:
    """The first variant of the sweeps that is launched there: of some kernels every block needs more shared memory."""
    for sweep, variant in in_sweeps(name):
        if variant not in sweep.never_launched("sm_120a"):
            return variant
    return None


def test_on_sm_120_a_bulk_copy_calls_nothing_of_the_system() -> None:
    """ptxas guards copies to the shared memory of a cluster there by a call, which makes a kernel `stateful`."""
    kernels = [
        kernel.name for kernel in catalog().values() if copies_in_bulk_on_sm_120(kernel)
    ]
    variants = [
        variant for name in kernels if (variant := launched_on_sm_120(name)) is not None
    ]
    assert len(variants) > 5
    for variant in variants:
        cubin, facts = compile_request(variant_request(variant, INCLUDE, "sm_120a"))
        assert facts["status"] == "ok", facts["reason"]
        symbols = (
            ELFFile(io.BytesIO(cubin)).get_section_by_name(".symtab").iter_symbols()
        )
        assert not [symbol.name for symbol in symbols if "syscall" in symbol.name], (
            variant.id
        )
