"""Kernels in Triton: what is refused before anything runs, the process that compiles, and what a launch becomes.

What compiles is skipped where Triton is not installed; CI has it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from checkout import published_facts
from compiling import kept_cache
from conftest import GEMMS, ROOT, edit, edit_yaml
from ladder.build.cache import Cache
from ladder.build.nvrtc import Request
from ladder.build.sources import source_digest
from ladder.build.triton_request import MISSING, TritonRequest, compiler
from ladder.build.triton_sources import import_closure
from ladder.build.variants import CompileRequests, variant_facts, variant_request
from ladder.catalogue.kernels import load_kernel
from ladder.catalogue.plans import plan_edges, plan_sweep
from ladder.catalogue.settings import read_settings
from ladder.catalogue.sweeps import make_sweep
from ladder.model.errors import LadderError
from ladder.model.folders import Project
from ladder.model.plan import Plan
from ladder.model.plan_file import read_plan, to_json

GEMM = ROOT / "kernels/gemm/triton/triton_gemm.yaml"
INCLUDE = ROOT / "kernels/include"
ARCH = "sm_90a"
ELSEWHERE = "triton 3.6.0 of another host"
needs_triton = pytest.mark.skipif(not compiler(), reason="Triton is not installed")

SMALL = """
import triton
import triton.language as tl


@triton.jit
def small(a, b, c, m, n, k, alpha, beta, TILE: tl.constexpr):
    places = tl.program_id(0) * TILE + tl.arange(0, TILE)
    tl.store(c + places, tl.load(a + places) * alpha, mask=places < m * n)
"""
"""No product, but a kernel that compiles in a second."""
DOCUMENT: dict[str, Any] = yaml.safe_load(GEMM.read_text())
DOCUMENT |= {
    "entry": "small",
    "triton": {"num_warps": 4, "constants": {"TILE": "tile"}},
    "constraints": [],
}
DOCUMENT |= {
    "parameters": {
        "tile": {
            "values": [128, 256],
            "default": 128,
            "description": "elements of a block",
        }
    }
}
DOCUMENT |= {"launch": {"grid": ["ceil_div(m * n, tile)"]}, "dtypes": {"fp16": {}}}
for one in DOCUMENT["arguments"]:
    one.pop("divisible_by", None)


class Workshop:
    """A kernel in Triton in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.source, self.description = folder / "small.py", folder / "small.yaml"
        self.cache = Cache(folder.parent / "cache")
        self.source.parent.mkdir()
        self.source.write_text(SMALL)
        self.description.write_text(yaml.safe_dump(DOCUMENT))

    def request(self, **params: int) -> TritonRequest:
        variant = load_kernel(self.description).variant(params, "fp16")
        found = variant_request(variant, INCLUDE, ARCH)
        assert isinstance(found, TritonRequest)
        return found

    def facts(self, timeout_s: float = 60) -> dict[str, Any]:
        request = self.request()
        found = self.cache.fill([request], 1, timeout_s)
        return variant_facts(
            load_kernel(self.description).variant({}, "fp16"),
            request,
            found[request.key],
        )


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path / "own")


def in_source(old: str, new: str) -> Callable[[Workshop], None]:
    return lambda workshop: edit(workshop.source, old, new)


def in_document(
    change: Callable[[dict[str, Any]], object],
) -> Callable[[Workshop], None]:
    return lambda workshop: edit_yaml(workshop.description, change)


def argument(index: int, **fields: Any) -> Callable[[Workshop], None]:
    return in_document(lambda document: document["arguments"][index].update(fields))


def descriptor(**fields: Any) -> Callable[[Workshop], None]:
    return in_document(
        lambda document: document["arguments"].__setitem__(
            0, {"tensor_map": "a", **fields}
        )
    )


TUNED = "@triton.autotune([triton.Config({'TILE': 128})], key=['m'])\n@triton.jit"
MISTAKES: dict[str, tuple[Callable[[Workshop], object], str]] = {
    "no source": (
        lambda workshop: workshop.source.unlink(),
        "the Triton source small.py is missing beside it",
    ),
    "no Python": (in_source("def small", "def"), r"small.py: not valid Python"),
    "no function": (
        in_source("def small", "def other"),
        r"entry: 'small' .*@triton.jit; accepted: other",
    ),
    "no kernel": (in_source("@triton.jit", ""), r"no such function under @triton.jit"),
    "autotune": (
        in_source("@triton.jit", TUNED),
        r"@autotune of small is not accepted; .* which a sweep tunes",
    ),
    "unknown constant": (
        in_document(lambda document: document["triton"]["constants"].update(TILES=1)),
        r"triton.constants: 'TILES' is not accepted \(did you mean 'TILE'\?\)",
    ),
    "no value": (
        in_document(lambda document: document["triton"].update(constants={})),
        "triton.constants: TILE: no value is given",
    ),
    "unknown name": (
        in_document(lambda document: document["triton"].update(num_warps="warp")),
        r"triton.num_warps: .*'warp' is not accepted",
    ),
    "an argument too many": (
        in_document(
            lambda document: document["arguments"].append(
                {"scalar": "beta", "type": "float32"}
            )
        ),
        r"there are 9, but small has 8 that are no constants: a, b, c, m, n, k, alpha, beta",
    ),
    "block": (
        in_document(lambda d: d["launch"].update(block=[128])),
        r"launch.block: \[128\] is not accepted",
    ),
    "hint": (
        argument(4, divisible_by=8),
        r"arguments\[4\].divisible_by: 8 is not accepted; accepted: 1, 16",
    ),
    "swizzle": (
        descriptor(box=[8], swizzle="none"),
        r"arguments\[0\].* box and shape: Triton chooses the rest",
    ),
    "no shape": (descriptor(box=[8, 8]), "in Triton with shape in place of swizzle"),
    "another dtype": (
        in_document(lambda document: document.update(dtypes={"fp16": {"c": "half"}})),
        "dtypes.fp16.c: 'half' is not accepted",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_a_description_is_named_without_running_anything(
    name: str, workshop: Workshop
) -> None:
    edit(
        workshop.source,
        "import triton\n",
        "import triton\n\nraise SystemExit('it was run')\n",
    )
    change, message = MISTAKES[name]
    change(workshop)
    with pytest.raises(LadderError, match=message):
        load_kernel(workshop.description)


def test_a_hint_is_a_constraint_of_the_size(workshop: Workshop) -> None:
    argument(4, divisible_by=16)(workshop)
    variant = load_kernel(workshop.description).variant({}, "fp16")
    assert variant.absent({"m": 8, "n": 64, "k": 8}) is None
    assert (
        variant.absent({"m": 16, "n": 40, "k": 16})
        == "is compiled for n divisible by 16"
    )
    assert [
        variant.geometry({"m": 2, "n": 96, "k": 1}).block,
        workshop.request().hints,
    ] == [
        (128, 1, 1),
        (True, True, True, False, True, False, False, False),
    ]


IMPORTS = {
    "import helper": "helper.py",
    "from helper import x": "helper.py",
    "import parts.inner": "parts/inner.py",
    "from parts import inner": "parts/inner.py",
    "def late():\n    import helper": "helper.py",
}


@pytest.mark.parametrize("line", IMPORTS)
def test_the_digest_follows_what_is_imported(line: str, workshop: Workshop) -> None:
    own = workshop.source.parent
    (own / "parts").mkdir()
    for name in ("helper.py", "other.py", "parts/__init__.py", "parts/inner.py"):
        (own / name).write_text("x = 1\n")
    (own / "helper.py").write_text("import other\n")
    workshop.source.write_text(f"{SMALL}\n{line}\n")
    before, files = source_digest(workshop.source), import_closure(workshop.source)
    (own / IMPORTS[line]).write_text("x = 2\n")
    assert own / IMPORTS[line] in files
    assert (own / "other.py" in files) == (IMPORTS[line] == "helper.py")
    assert source_digest(workshop.source) != before


@pytest.mark.parametrize(
    "line",
    ["import torch", "from . import helper", "import ladder.model", "import nothing"],
)
def test_what_no_digest_holds_is_not_imported(line: str, workshop: Workshop) -> None:
    (workshop.source.parent / "helper.py").touch()
    workshop.source.write_text(f"{SMALL}\n{line}\n")
    with pytest.raises(
        LadderError,
        match=r"small.py: line \d+: the import of .* accepted: triton, Python's own",
    ):
        source_digest(workshop.source)


def test_a_kernel_is_compiled_again_for_all_that_it_is_made_of(
    workshop: Workshop,
) -> None:
    own = workshop.request()
    keys = [own.key, workshop.request(tile=256).key, replace(own, arch="sm_80").key]
    keys += [
        replace(own, compiler=ELSEWHERE).key,
        replace(own, source_sha256="other").key,
    ]
    argument(4, divisible_by=16)(workshop)
    keys.append(workshop.request().key)
    edit_yaml(
        workshop.description, lambda document: document["triton"].update(num_stages=2)
    )
    keys.append(workshop.request().key)
    assert len({*keys}) == len(keys)
    shutil.move(workshop.source.parent, workshop.source.parent.with_name("elsewhere"))
    assert replace(own, source=Path("elsewhere/small.py")).key == own.key


def without_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ladder.build.variants.compiler", lambda: "")


def test_without_triton_a_kernel_is_unsupported_and_that_is_not_kept(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_triton(monkeypatch)
    facts = workshop.facts()
    assert (facts["status"], facts["reason"]) == ("unsupported", MISSING)
    assert "pip install -e '.[triton]'" in MISSING
    assert not workshop.cache.folder.exists()


IN_PLACE_OF_TRITON = """
import json, pathlib
asked = json.loads(pathlib.Path("request.json").read_text())
exec(pathlib.Path(asked["source"]).read_text())
pathlib.Path("answer.json").write_text('{"error": "there is no compiler"}')
"""
"""It runs the kernel's Python, as Triton does, and compiles nothing."""


@pytest.mark.parametrize("name", ["x.pth", "sitecustomize.py", "usercustomize.py"])
@pytest.mark.parametrize("is_there", [True, False])
def test_a_kernel_that_changes_what_every_python_runs_ends_the_step(
    name: str,
    is_there: bool,
    workshop: Workshop,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No verdict and no measuring follow: the process that measures would run it."""
    packages = tmp_path / "packages"
    packages.mkdir()
    if is_there:
        (packages / name).write_text("import os\n")
    monkeypatch.syspath_prepend(str(packages))
    compiler = tmp_path / "compiler.py"
    compiler.write_text(IN_PLACE_OF_TRITON)
    monkeypatch.setattr("ladder.build.triton_request.program.__file__", str(compiler))
    request = workshop.request()
    workshop.source.write_text("pass")
    assert request.compile()[1]["reason"] == "there is no compiler"
    workshop.source.write_text(f"pathlib.Path({str(packages / name)!r}).write_text('')")
    with pytest.raises(LadderError, match=rf"small.py: while .*{name} changed, which"):
        request.compile()


def cubin_of(folder: Path) -> tuple[bytes, dict[str, Any]]:
    """A cubin and its facts, by NVRTC."""
    source = folder / "any.cu"
    source.write_text(
        """extern "C" __global__ void small(float* a, float* b, float* c, int m, int n, int k, float alpha, float beta,
                                         void* hidden, void* too) { *c = 1; }"""
    )
    return Request(source, source_digest(source), (), ("small",), ARCH).compile()


def test_a_host_without_triton_takes_what_another_one_compiled(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cubin, facts = cubin_of(tmp_path)
    there = replace(workshop.request(), compiler=ELSEWHERE)
    workshop.cache._keep([(there, cubin, {**facts, "triton": ELSEWHERE})])
    without_triton(monkeypatch)
    found = workshop.facts()
    assert (found["status"], found["triton"], found["hidden_pointers"]) == (
        "ok",
        ELSEWHERE,
        2,
    )
    assert (workshop.cache.folder / f"{found['cubin']}.cubin").read_bytes() == cubin
    edit(workshop.source, "* alpha", "* alpha * 2")
    assert workshop.facts()["status"] == "unsupported", (
        "what was compiled is another kernel"
    )


def planned(workshop: Workshop, **found: Any) -> Plan:
    """The plan of a sweep over the kernel at one size, for facts that are made up."""
    own, kernel = Project(ROOT), load_kernel(workshop.description)
    fields = GEMMS | {
        "layout": "TN",
        "dtypes": ["fp16"],
        "sizes": [{"m": 64, "n": 96, "k": 32}],
        "variants": [{"kernel": "small"}],
    }
    sweep = replace(
        make_sweep(Path("here"), fields, {"small": kernel}, ROOT), name="small"
    )
    asked = CompileRequests(sweep, INCLUDE, ARCH, ())
    (request,) = asked.variants.values()
    plan = plan_sweep(sweep, read_settings(own, (), {"device": "none"}), ARCH)
    plan = replace(plan, edges=plan_edges(sweep, ARCH))
    known: dict[str, Any] = {
        one.key: {"status": "ok", "symbols": {}} for one in asked.requests
    }
    known[request.key] = {
        "status": "ok",
        "symbols": {},
        "spill_store_bytes": 0,
        "registers": 32,
        **found,
    }
    return asked.planned(plan, known)


MADE_UP = {
    "shared_bytes_static": 0,
    "shared_bytes": 4096,
    "threads": 384,
    "hidden_pointers": 2,
}


def test_a_launch_is_what_the_compiler_says(workshop: Workshop, tmp_path: Path) -> None:
    descriptor(box=["tile", 64], shape=["m", "k"])(workshop)
    maps = [{"box": [64, 64], "swizzle": "128B"}]
    plan = planned(workshop, **MADE_UP, tensor_maps=maps)
    (tmp_path / "small.json").write_bytes(to_json(plan))
    (task,) = read_plan(tmp_path / "small.json").tasks
    assert task.launch is not None
    assert (task.launch.grid, task.launch.block, task.launch.shared_bytes) == (
        (48, 1, 1),
        (384, 1, 1),
        4096,
    )
    null = {"value": 0, "type": "int64"}
    assert list(task.launch.arguments) == [
        {"tensor_map": "a", "box": [64, 64], "swizzle": "128B", "l2_promotion": "128B"},
        *({"value": value, "type": "int32"} for value in (64, 32)),
        *({"value": value, "type": "int64"} for value in (32, 1)),
        {"pointer": "b"},
        {"pointer": "c"},
        *({"value": value, "type": "int32"} for value in (64, 96, 32)),
        {"scalar": "alpha", "type": "float32"},
        {"scalar": "beta", "type": "float32"},
        null,
        null,
    ]
    (edges,) = plan.edges.values()
    assert {one.launch.block for one in edges} == {(384, 1, 1)}
    assert all(one.launch.arguments[-1] == null for one in edges)


def test_a_block_that_needs_more_shared_memory_than_there_is_is_unsupported(
    workshop: Workshop,
) -> None:
    plan = planned(workshop, **MADE_UP | {"shared_bytes": 240_000}, tensor_maps=[])
    (facts,) = plan.variants.values()
    assert facts["status"] == "unsupported"
    assert (
        facts["reason"]
        == "needs 240000 bytes of shared memory per block, sm_90a has 232448"
    )


@needs_triton
@pytest.mark.parametrize("name", ["triton_gemm", "triton_persistent"])
def test_a_gemm_is_a_cubin_with_facts_like_any_other(name: str) -> None:
    """By what is published, where that is of this source."""
    kernel = load_kernel(GEMM.with_stem(name))
    cache = Cache(kept_cache().folder, published_facts())
    variant = kernel.variant({}, "bf16", "TN")
    request = variant_request(variant, INCLUDE, ARCH)
    facts = variant_facts(variant, request, cache.fill([request], 2, 120)[request.key])
    assert facts["status"] == "ok", facts["reason"]
    assert facts["threads_per_block"] == 32 * variant.params["warps"]
    assert facts["shared_bytes_static"] == 0 < facts["blocks_per_sm"]
    maps = 3 if name == "triton_persistent" else 0
    assert (facts["utmaldg"] > 0, len(facts["tensor_maps"])) == (maps > 0, maps)
    assert facts["hgmma"] > 0
    assert facts["registers"] > 128
    assert facts["cubin"] == request.key
    assert "ptxas" in facts["triton"]


@needs_triton
def test_a_cubin_does_not_depend_on_where_its_source_lies(workshop: Workshop) -> None:
    request = workshop.request()
    moved = Path(
        shutil.copytree(
            workshop.source.parent, workshop.source.parent.with_name("elsewhere")
        )
    )
    facts = [
        one.compile()[1]
        for one in (request, replace(request, source=moved / "small.py"))
    ]
    assert [one["status"] for one in facts] == ["ok", "ok"]
    assert facts[0]["cubin_sha256"] == facts[1]["cubin_sha256"]


DEVICE_MADE = "tl.make_tensor_descriptor(c, [m, n], [n, 1], [64, 64]).store([0, 0], tl.zeros((64, 64), tl.float16))"
REFUSED = {
    "an error": (("* TILE +", "* TYLE +"), "TYLE is not defined"),
    "a file": (
        ("@triton.jit", "open('{secret}').read()\n\n\n@triton.jit"),
        "opens .*secret.txt, which its dig",
    ),
    "a file that is quoted": (
        ("@triton.jit", "raise ValueError(open('{secret}').read())\n\n\n@triton.jit"),
        "opens .*secret.txt, which its digest does not follow",
    ),
    "a hidden import": (
        (
            "@triton.jit",
            "import sys\nsys.path.append('{folder}')\n__import__('stray')\n\n\n@triton.jit",
        ),
        "opens .*stray.py, which its digest does not follow",
    ),
    "a program": (
        (
            "@triton.jit",
            "import subprocess\nsubprocess.run(['cat', '{secret}'])\n\n\n@triton.jit",
        ),
        "starts .*cat, which its digest does not follow",
    ),
    "a tuner by another name": (
        (
            "\n@triton.jit",
            "\ntune = triton.autotune([triton.Config(dict(TILE=128))], key=[])\n\n\n@tune\n@triton.jit",
        ),
        "small is of type Autotuner; accepted: a function under @triton.jit and nothing else",
    ),
    "memory of the launcher": (
        ("    places = ", f"    {DEVICE_MADE}\n    places = "),
        "needs global_scratch_size = .* of Triton's launcher, which is not provided here",
    ),
}


@needs_triton
@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_compiled_or_launched_is_data_with_the_reason(
    name: str, workshop: Workshop
) -> None:
    outside = workshop.source.parent.parent
    (outside / "secret.txt").write_text("a secret\n")
    (outside / "stray.py").write_text("x = 1\n")
    (old, new), reason = REFUSED[name]
    edit(
        workshop.source, old, new.format(secret=outside / "secret.txt", folder=outside)
    )
    _, facts = workshop.request().compile()
    assert facts["status"] == "compile_error"
    assert re.search(reason, facts["reason"]), facts["reason"]
    assert "a secret" not in facts["reason"]


UNSEEN = {
    "import os; os.system('true')": "does os.system",
    "import os; os.fork() or os._exit(0)": "does os.fork",
    "import ctypes; ctypes.CDLL(None)": "does ctypes.dlopen",
    "import ctypes; ctypes.pythonapi.fopen": "does ctypes.dlsym",
    "import socket; socket.socket().connect_ex(('127.0.0.1', 1))": "does socket.connect",
}


@needs_triton
def test_other_ways_to_read_a_file_unseen_are_refused_by_their_names() -> None:
    """Each by a fresh note of what was opened, all in one process."""
    steps = [
        "import ctypes, json, socket, triton",
        "from ladder.build.triton_compiler import Opened",
        "found = []",
        *(f"one = Opened()\n{line}\nfound.append(one.refused([]))" for line in UNSEEN),
        "print(json.dumps(found))",
    ]
    own = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(steps)],
        env=own,
        capture_output=True,
        check=True,
    )
    assert json.loads(done.stdout) == [*UNSEEN.values()]


@needs_triton
def test_a_source_that_does_not_end_is_stopped_with_its_process(
    workshop: Workshop,
) -> None:
    note = workshop.source.parent.parent / "pid"
    endless = f"import os\nimport time\nopen('{note}', 'w').write(str(os.getpid()))\ntime.sleep(600)"
    edit(workshop.source, "\n\n\n@triton.jit", f"\n{endless}\n\n\n@triton.jit")
    begun = time.monotonic()
    assert (
        workshop.facts(6)["reason"]
        == "the compiler took longer than 6 s (compile.timeout_s)"
    )
    assert time.monotonic() - begun < 40
    for _ in range(50):
        if not Path(f"/proc/{note.read_text()}").exists():
            break
        time.sleep(0.1)
    else:
        pytest.fail("its process goes on")
    assert not list(workshop.cache.folder.glob("*.json")), (
        "it is compiled again the next time"
    )


@needs_triton
def test_a_source_runs_in_an_empty_folder_and_knows_no_settings(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LADDER_SECRET", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    asks = "import json\nimport os\nraise ValueError(json.dumps([os.listdir(), dict(os.environ), os.getcwd()]))"
    edit(workshop.source, "\n\n\n@triton.jit", f"\n{asks}\n\n\n@triton.jit")
    files, environment, place = json.loads(
        workshop.facts()["reason"].partition(": ")[2]
    )
    assert files == ["request.json"]
    assert "LADDER_SECRET" not in environment
    assert environment["CUDA_VISIBLE_DEVICES"] == ""
    assert environment["HOME"] == place
    assert not os.path.exists(place), "nothing is left behind"
    assert {path.name for path in workshop.source.parent.iterdir()} == {
        "small.py",
        "small.yaml",
    }
