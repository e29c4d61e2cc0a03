"""A description with `cubin:`: machine code of another compiler is held to what sources are held to.

NVRTC stands in for the other compiler, so that facts of a cubin can be compared with those of its source.
"""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from compiling import compile_ptx, compile_text
from conftest import ROOT, make_project
from elftools.elf.elffile import ELFFile
from ladder.build.cache import Cache
from ladder.build.variants import variant_request
from ladder.catalogue.kernels import load_kernel
from ladder.cli.app import main
from ladder.model.errors import LadderError
from measuring import on_hopper

EXPLOITS = ROOT / "tests/exploits"
PAGE = (ROOT / "docs/cubins.md").read_text()
ARCH = "sm_90a"
HONEST = '#include "honest.cuh"\nEXPLOIT { honest(ARGUMENTS); }\n'
SPILLING = """extern "C" __global__ void __maxnreg__(32)
exploit(const float* a, const float* b, float* c, int m, int n, int k, float alpha, float beta)"""
FACTS = "registers local_bytes shared_bytes_static spill_store_bytes spill_load_bytes parameter_bytes"
Place = Callable[..., Path]
Facts = dict[str, Any]


def cubin_of(source: str, arch: str = ARCH, entry: str = "exploit") -> bytes:
    return compile_text(source, [entry], [EXPLOITS], arch)


def text_of(exploit: str) -> str:
    return (EXPLOITS / f"{exploit}.cu").read_text()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Writes a cubin and its description, by default that of the exploits, with other fields: the description."""

    def write(code: bytes, description: str = "exploit", **fields: str) -> Path:
        text = (EXPLOITS / f"{description}.yaml").read_text()
        for name, value in {"cubin": "mine.cubin", **fields}.items():
            text = re.sub(rf"(?m)^{name}: .*\n", "", text) + f"{name}: {value}\n"
        (tmp_path / "mine.cubin").write_bytes(code)
        (tmp_path / "mine.yaml").write_text(text)
        return tmp_path / "mine.yaml"

    return write


def facts_of(path: Path, arch: str = ARCH) -> Facts:
    """What is found of a description's only variant, in an empty cache."""
    kernel = load_kernel(path)
    request = variant_request(kernel.variant({}, "fp32"), EXPLOITS, arch)
    answers = Cache(path.parent / "cache").fill([request], 1, 60)
    return answers[request.key]


SOURCES = {name: text_of(name) for name in ("honest", "big_stack")}
SOURCES["spilling"] = HONEST.replace("EXPLOIT", SPILLING)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_120"])
@pytest.mark.parametrize("name", SOURCES)
def test_the_facts_of_a_cubin_are_those_of_its_source(
    name: str, arch: str, place: Place, tmp_path: Path
) -> None:
    path = place(cubin_of(SOURCES[name], arch))
    shutil.copy(EXPLOITS / "exploit.yaml", tmp_path / "source.yaml")
    (tmp_path / "source.cu").write_text(SOURCES[name])
    of_cubin = facts_of(path, arch)
    of_source = facts_of(tmp_path / "source.yaml", arch)
    assert of_cubin["status"] == "ok", of_cubin["reason"]
    names = FACTS.split()
    assert (of_source["spill_store_bytes"] > 0) == (name == "spilling")
    if name == "big_stack":  # an array, whose accesses no log counts
        names = names[:3]
        assert of_cubin["spill_store_bytes"] > of_source["spill_store_bytes"]
    assert [of_cubin[name] for name in names] == [of_source[name] for name in names]
    assert of_cubin["ffma"] == of_source["ffma"] > 0


def for_the_host(cubin: bytes) -> bytes:
    """The same file, which says that it is for another machine: e_machine lies at byte 18."""
    return cubin[:18] + (62).to_bytes(2, "little") + cubin[20:]


def damaged(section: str, word: bytes) -> bytes:
    """The cubin, with another word again and again where a section begins."""
    cubin = cubin_of(HONEST)
    begin = ELFFile(io.BytesIO(cubin)).get_section_by_name(section)["sh_offset"]
    return cubin[:begin] + 16 * word + cubin[begin + 64 :]


HEAD = '#include "honest.cuh"\n'
STATE = f"__device__ int seen;\n{HEAD}EXPLOIT {{ if (!seen++) honest(ARGUMENTS); }}"
TABLE = f"""{HEAD}
__device__ const float table[4] = {{1, 2, 3, 4}};
EXPLOIT {{ honest(a, b, c, m, n, k, table[k % 4], beta); }}
"""
OTHER = 'extern "C" __global__ void other(float* a) { a[0] = 1; }\n'
TWO = f"{HEAD}{OTHER}EXPLOIT {{ honest(ARGUMENTS); }}"
MISTAKES: dict[str, tuple[Callable[[], bytes], str, str]] = {
    "architecture": (
        lambda: cubin_of(HONEST, "sm_80"),
        "compile_error",
        "mine.cubin: it is for sm_80; accepted: one for sm_90a",
    ),
    "entry": (
        lambda: cubin_of(OTHER, entry="other"),
        "compile_error",
        "mine.cubin: entry: 'exploit' is not accepted; accepted: other",
    ),
    "no kernel": (
        lambda: compile_text("template <int> __global__ void f() {}", [], [], ARCH),
        "compile_error",
        "mine.cubin: it has no kernel: of a template only what is launched",
    ),
    "two kernels": (
        lambda: cubin_of(TWO),
        "compile_error",
        "it has other kernels: other; accepted: one with the described kernel alone",
    ),
    "state": (
        lambda: cubin_of(STATE),
        "stateful",
        "it uses what outlives a launch: seen; accepted: a kernel whose tables",
    ),
    "table": (lambda: cubin_of(TABLE), "stateful", "outlives a launch: table; acc"),
    "constant memory": (
        lambda: cubin_of(text_of("constant_pointer")),
        "stateful",
        "outlives a launch",
    ),
    "cut short": (
        lambda: cubin_of(HONEST)[:-100],
        "compile_error",
        "it is cut short",
    ),
    "head": (lambda: cubin_of(HONEST)[:20], "compile_error", "it is cut short"),
    "instructions": (
        lambda: damaged(".text.exploit", b"\xff\xff\xff\xff"),
        "compile_error",
        "it is damaged: ",
    ),
    "attributes": (
        lambda: damaged(".nv.info.exploit", b"\x04\x17\0\0"),
        "compile_error",
        "it is damaged: ",
    ),
    "empty": (lambda: b"", "compile_error", "it is no ELF file; accepted: a whole"),
    "PTX": (
        lambda: compile_ptx(EXPLOITS / "honest.cu", "exploit", []).encode(),
        "compile_error",
        "it is PTX; accepted: a whole file of one GPU's machine code",
    ),
    "host": (
        lambda: for_the_host(cubin_of(HONEST)),
        "compile_error",
        "it is for EM_X86_64, which is no GPU",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_is_refused_names_the_file_and_what_is_accepted(
    mistake: str, place: Place
) -> None:
    make, status, says = MISTAKES[mistake]
    facts = facts_of(place(make()))
    assert facts["status"] == status
    assert says in facts["reason"]
    if mistake != "constant memory":
        assert facts["reason"].startswith("mine.cubin: ")


@pytest.fixture
def compiled_alone(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Path], tuple[int, Facts]]:
    """Judges a description without a launch: the exit code and the first cell."""
    root = make_project(tmp_path_factory.mktemp("judge") / "project")

    def judge(path: Path) -> tuple[int, Facts]:
        file = tmp_path / "verdict.json"
        words = ["--compile-only", "--arch", ARCH, "--json", str(file)]
        code = main(["--root", str(root), "judge", str(path), *words])
        return code, json.loads(file.read_text())["cells"][0]

    return judge


def test_arguments_spills_and_launches_are_those_of_the_description(
    place: Place, compiled_alone: Callable[[Path], tuple[int, Facts]]
) -> None:
    code, cell = compiled_alone(place(cubin_of(HONEST)))
    assert (code, cell["status"], cell["shared_bytes_static"]) == (0, "ok", 8448)
    fewer = HONEST.replace(
        "EXPLOIT { honest(ARGUMENTS)",
        'extern "C" __global__ void exploit(const float* a, float* c) { c[0] = a[0]',
    )
    code, cell = compiled_alone(place(cubin_of(fewer)))
    assert (code, cell["status"]) == (4, "compile_error")
    assert "takes 2 arguments of 8, 8 bytes; the description has 8" in cell["reason"]
    stack = cubin_of(text_of("big_stack"))
    code, cell = compiled_alone(place(stack, spills="never"))
    assert (code, cell["status"]) == (4, "compile_error")
    assert "and mine.yaml does not say `spills: allowed`" in cell["reason"]
    assert compiled_alone(place(stack))[0] == 0


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        (
            {"cubin": "none.cubin"},
            "cubin: 'none.cubin' is not accepted; there is no such file; accepted: a file, relative to the description",
        ),
        ({"cubin": "''"}, "cubin: '' is not accepted"),
        (
            {"include": "[.]"},
            "include: ['.'] is not accepted; accepted: none, with `cubin`",
        ),
        ({"triton": "{}"}, "triton: "),
    ],
)
def test_a_description_has_one_kernel_in_one_form(
    fields: dict[str, str], says: str, place: Place
) -> None:
    path = place(cubin_of(HONEST), **fields)
    with pytest.raises(LadderError) as caught:
        load_kernel(path)
    assert str(caught.value).startswith(f"{path}: {says}")


def test_without_a_disassembler_no_cubin_is_blamed(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = load_kernel(place(cubin_of(HONEST)))
    request = variant_request(kernel.variant({}, "fp32"), EXPLOITS, ARCH)
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr(
        "ladder.build.cubin.find_nvidia_binary_utility", lambda name: None
    )
    with pytest.raises(LadderError, match="no nvdisasm was found"):
        request.compile()


def test_a_cubin_of_other_bytes_is_another_version_of_the_kernel(place: Place) -> None:
    cubin = cubin_of(HONEST)
    facts = facts_of(place(cubin))
    assert facts == facts_of(place(cubin))
    other = facts_of(place(cubin + b"\0"))
    for name in ("machine_code", "source_sha256", "cubin_sha256"):
        assert facts[name] != other[name]
    assert facts["registers"] == other["registers"]


MAKERS = {
    "nvcc_softmax": (
        shutil.which("nvcc"),
        re.findall(r"&& (nvcc .*)\)$", PAGE, re.M)[0],
    ),
    "cute_gemm": (find_spec("cutlass"), f"{sys.executable} cute_gemm.py"),
    "tile_gemm": (find_spec("tilelang"), f"{sys.executable} tile_gemm.py"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MAKERS)
def test_the_examples_of_the_page_are_cubins_that_are_judged(
    name: str, tmp_path: Path, compiled_alone: Callable[[Path], tuple[int, Facts]]
) -> None:
    there, command = MAKERS[name]
    if not there:
        pytest.skip(f"what {command} needs is not installed")
    for file in (ROOT / "docs/cubins").glob(f"{name}.*"):
        shutil.copy(file, tmp_path)
    subprocess.run(command.split(), cwd=tmp_path, check=True)
    code, cell = compiled_alone(tmp_path / f"{name}.yaml")
    assert (code, cell["status"]) == (0, "ok"), cell["reason"]


SOFTMAX = """#include "softmax.cuh"
extern "C" __global__ void exploit(const float* input, float* output, long long columns) {
  const float* row = input + blockIdx.x * columns;
  const float maximum = maximum_of(row, columns);
  write_row(row, output + blockIdx.x * columns, columns, maximum, sum_of(row, columns, maximum));
}
"""
RIGHT, WRONG = (0, 1, 2), (3,)


@on_hopper
@pytest.mark.parametrize(
    ("source", "description", "codes"),
    [
        (HONEST, "exploit", RIGHT),
        (text_of("skip_when_done"), "exploit", WRONG),
        (text_of("reads_beyond"), "exploit", WRONG),
        (SOFTMAX, "softmax", RIGHT),
        (text_of("softmax_sum_skips_column"), "softmax", WRONG),
    ],
    ids=["right", "stale", "beyond", "softmax", "wrong_softmax"],
)
def test_on_a_gpu_a_cubin_gets_the_verdict_of_its_source(
    source: str,
    description: str,
    codes: tuple[int, ...],
    place: Place,
    tmp_path: Path,
) -> None:
    path = place(cubin_of(source), description)
    file = tmp_path / "verdict.json"
    words = ["--size", "512", "--regime", "cold", "--json", str(file)]
    if description != "exploit":
        words += ["--reference", "{kernel: 1_three_passes}"]
    code = main(["--root", str(ROOT), "judge", str(path), *words])
    document = json.loads(file.read_text())
    assert code in codes, document
    (cell,) = document["cells"]
    if codes == RIGHT:
        assert cell["launches"] > 0
        assert cell["sm_clock_mhz"] > 0
        assert cell["throttled"] in (True, False)
