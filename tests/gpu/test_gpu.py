"""What only a GPU can show: statuses of kernels that go wrong, tensor maps, and runs killed while they measure."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, output_of
from ladder.measure.host import find_tool
from ladder.measure.sanitizer import TOOLS
from ladder.model.files import read_json
from ladder.model.folders import RunFolder
from ladder.model.record import Record
from ladder.problems.registry import PROBLEMS
from measuring import GPUS, PACKAGES, gpu_project, ladder, measured

__all__ = ["gpu_project"]

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not GPUS, reason="needs a GPU")]

SIZE = {"m": 64, "n": 96, "k": 32}
Measure = Callable[..., list[Record]]


def outcomes(records: list[Record], regime: str) -> dict[Any, tuple[str, str]]:
    """Status and reason of each cell in a regime."""
    return {
        (record.variant, *record.cell.size.values()): (record.status, record.reason)
        for record in records
        if record.cell.regime == regime
    }


@pytest.fixture
def measure(gpu_project: Path) -> Measure:
    """Measures variants of the tests' own kernels: the record of each cell in cold, to which warm adds nothing."""

    def run(
        kernel: str,
        params: list[dict[str, Any]],
        sizes: list[Any],
        deadline_s: float = 10,
    ) -> list[Record]:
        variants = [{"kernel": kernel, "params": given} for given in params]
        settings = f"{{deadline_s: {deadline_s}}}"
        records = measured(gpu_project, variants, sizes, settings)
        assert outcomes(records, "cold") == outcomes(records, "warm")
        return [record for record in records if record.cell.regime == "cold"]

    return run


def by_fault(records: list[Record]) -> dict[Any, Record]:
    return {record.cell.params["fault"]: record for record in records}


def test_each_way_of_going_wrong_gets_its_status_and_the_run_goes_on(
    measure: Measure,
) -> None:
    expected = {
        "endless": ("timeout", "5 s"),
        "illegal": ("launch_error", "illegal"),
        "misaligned": ("launch_error", "misaligned"),
        "trap": ("launch_error", ""),
        "zeros": ("incorrect", "root mean square of all errors"),
        "unwritten": ("incorrect", "at 1x257x131"),
        "ignores_beta": ("incorrect", "beta = 0.5"),
        "multiplies_by_zero": (
            "incorrect",
            "with alpha = 0 the result must be beta * C even where A and B",
        ),
        "before": (
            "out_of_bounds",
            "4 bytes around c were written, the nearest 1 bytes before the start",
        ),
        "behind": (
            "out_of_bounds",
            "4 bytes around c were written, the nearest 0 bytes behind the end",
        ),
        "far": ("out_of_bounds", "the nearest 799997 bytes before the start"),
        "input": ("incorrect", "elements of the input a were written"),
    }
    params = [{"fault": fault} for fault in (*expected, "none")]
    found = by_fault(measure("faulty", params, [SIZE], deadline_s=5))
    assert found["none"].status == "ok"
    for fault, (status, reason) in expected.items():
        assert found[fault].status == status, found[fault]
        assert reason.upper() in found[fault].reason.upper()
    assert "outputs were not written" in found["unwritten"].reason
    hint = "say `nan_at_alpha_zero: true` in faulty.yaml"
    assert hint in found["multiplies_by_zero"].reason


def test_a_workspace_keeps_nothing_from_launch_to_launch(measure: Measure) -> None:
    faults = ["none", "dirty", "counts", "behind", "replays"]
    params = [{"fault": fault} for fault in faults]
    found = by_fault(measure("workspace", params, [SIZE], deadline_s=5))
    assert found["none"].status == "ok", found["none"].reason
    assert found["dirty"].status in ("stateful", "incorrect"), found["dirty"]
    assert found["counts"].status == "stateful", found["counts"]
    assert "zeroed workspace of" in found["counts"].reason
    assert "which launches must leave zero" in found["counts"].reason
    assert found["behind"].status == "out_of_bounds", found["behind"]
    assert "around zeroed workspace of" in found["behind"].reason
    assert found["replays"].status in ("stateful", "incorrect"), found["replays"]


def test_what_the_device_cannot_hold_is_said_with_its_numbers(measure: Measure) -> None:
    huge = {"m": 400_000, "n": 400_000, "k": 16}
    records = measure("faulty", [{}], [SIZE, huge])
    small, large = sorted(records, key=lambda record: record.cell.size["m"])
    assert large.status == "unsupported"
    needed = PROBLEMS["gemm"].device_bytes(huge, "fp32")
    assert f"{needed} bytes of device memory" in large.reason
    assert small.status == "ok"


def test_a_kernel_gets_tensor_maps_of_its_operands(measure: Measure) -> None:
    odd = {"m": 33, "n": 44, "k": 76}
    records = measure("tma_tile", [{}], [SIZE, odd])
    assert [record.status for record in records] == ["ok", "ok"], records


KEEPS = """
import ctypes, functools, sys
from pathlib import Path
from statistics import median
from cuda.core import LaunchConfig, ObjectCode, launch
from ladder.build.nvrtc import compile_source
from ladder.build.variants import harness
from ladder.gpu.device import Gpu
from ladder.gpu.timing import Timer, CheckedLaunch
from ladder.problems.stencil import PROBLEM

text = Path(sys.argv[2]).read_text()
names = [f"keeps_in_l2<{keeps}>" for keeps in ("true", "false")]
cubin, symbols, *_ = compile_source(text, "keeps.cu", names, [], sys.argv[1])
own, facts = harness(PROBLEM, "fp32", sys.argv[1]).compile()
gpu = Gpu(own, facts["symbols"])
timer, code, count = Timer(gpu), ObjectCode.from_cubin(cubin), 2**22
data, config = gpu.allocate(4 * count), LaunchConfig(grid=4 * gpu.sms, block=512)
data.fill(0, stream=gpu.stream)
arguments = (int(data.handle), ctypes.c_int64(count), int(data.handle))
kernels = [code.get_kernel(symbols[name]) for name in names]
launchers = [functools.partial(launch, gpu.stream, config, kernel, *arguments) for kernel in kernels]
for regime in ("warm", "cold"):
    for launcher in launchers:
        launcher()
        times, _ = timer.times([CheckedLaunch(launcher)] * 50, regime, twice=True)
        print(regime, median(times))
"""


def test_what_a_kernel_wants_to_keep_in_the_l2_is_gone_after_the_flush() -> None:
    printed = run_probe(KEEPS, "keeps.cu")
    (_, warm), _, *flushed = (line.split() for line in printed.splitlines())
    for (_, keeping), (regime, other) in zip(flushed[::2], flushed[1::2], strict=True):
        assert float(keeping) > 0.95 * float(other), f"{regime}: {printed}"
        assert float(keeping) > 1.2 * float(warm), (
            f"else the test sees nothing: {printed}"
        )


LEAVES = """
import ctypes, struct, sys
from pathlib import Path
from cuda.core import LaunchConfig, ObjectCode, launch
from ladder.build.nvrtc import compile_source
from ladder.build.variants import harness
from ladder.gpu.device import Gpu
from ladder.problems.stencil import PROBLEM

text = Path(sys.argv[2]).read_text()
names = [f"shared_words<{leaves}>" for leaves in ("true", "false")]
cubin, symbols, *_ = compile_source(text, "shared.cu", names, [], sys.argv[1])
own, facts = harness(PROBLEM, "fp32", sys.argv[1]).compile()
gpu = Gpu(own, facts["symbols"])
code, found, size = ObjectCode.from_cubin(cubin), gpu.allocate(16), 48 * 1024
leaves, counts = (code.get_kernel(symbols[name]) for name in names)
config = LaunchConfig(grid=4 * gpu.sms, block=256, shmem_size=size)
for scrubs in (False, True):
    gpu.zero(int(found.handle), 16)
    launch(gpu.stream, config, leaves, ctypes.c_int32(size // 4), int(found.handle))
    if scrubs:
        gpu.scrub_shared()
    launch(gpu.stream, config, counts, ctypes.c_int32(size // 4), int(found.handle))
    print(*struct.unpack("4I", gpu.download(int(found.handle), 16))[:1])
"""


def run_probe(script: str, source: str = "") -> str:
    """What a script prints that is given the architecture and a file of gpu_probes."""
    file = str(ROOT / "tests/gpu_probes" / source)
    command = [sys.executable, "-c", script, GPUS[0].arch, file]
    return output_of(command, ROOT, PYTHONPATH=PACKAGES)


def test_no_kernel_finds_what_another_left_in_shared_memory() -> None:
    left, scrubbed = map(int, run_probe(LEAVES, "shared.cu").split())
    assert left > 0, "else the test sees nothing"
    assert scrubbed == 0


@pytest.mark.skipif(
    find_tool("compute-sanitizer") is None, reason="needs compute-sanitizer"
)
def test_the_sanitizer_finds_each_fault_and_a_trap_hides_none(
    gpu_project: Path,
) -> None:
    results = RunFolder(gpu_project / "results/test" / GPUS[0].slug)
    ladder(
        gpu_project,
        "sanitize",
        str(results.root),
        "--arch",
        GPUS[0].arch,
        "--jobs",
        "4",
    )
    seen = read_json(results.sanitizer)
    assert seen is not None
    found = {
        (row["variant"], row["tool"]): row["status"]
        for entry in seen.values()
        for row in entry["others"]
    }
    faults = {
        "unsafe-fp32": "racecheck",
        "unsafe-tf32": "memcheck",
        "unsafe-fp16": "initcheck",
    }
    said = str(found)
    assert {
        variant: found[variant, tool] for variant, tool in faults.items()
    } == dict.fromkeys(faults, "errors"), said
    assert "unsafe-bf16" not in {variant for variant, _ in found}, said
    for kernel in ("faulty", "alone"):
        assert seen[kernel]["clean"] == [*TOOLS], said
    assert {found["unsafe-fp8", tool] for tool in TOOLS} <= {"launch_error", "errors"}


SLOW_LAUNCH = """
import sys, time
from ladder.gpu.device import Gpu
from ladder.model.problem import GATE
from ladder.gpu.timing import Gate
from ladder.model.errors import LadderError
from ladder.build.variants import harness
from ladder.problems.stencil import PROBLEM

cubin, facts = harness(PROBLEM, "fp32", sys.argv[1]).compile()
gpu = Gpu(cubin, facts["symbols"])
gate = Gate(gpu.stream, gpu.harness.kernels[GATE])
try:
    with gate:
        time.sleep(3.0)
except LadderError as error:
    print(error)
begun = time.monotonic()
with gate:
    pass
gpu.sync()
print("open again" if time.monotonic() - begun < 1.0 else "still closed")
"""


def test_a_launch_that_takes_too_long_to_enqueue_is_refused_and_the_next_one_is_not() -> (
    None
):
    refused, after = run_probe(SLOW_LAUNCH).splitlines()
    assert "it cannot be timed" in refused
    assert after == "open again"
