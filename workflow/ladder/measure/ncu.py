"""Nsight Compute counters of cells: one `ncu` process a sweep. As a program it prints what REPORT says of METRIC…."""

import importlib.util
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ladder.measure.gpu_job import GpuProgram
from ladder.measure.host import find_tool
from ladder.model.errors import LadderError

Metric = dict[str, Any]  # metric, unit and value
Note = dict[str, str]  # subject and reason of something that could not be had

_STALLS = """long_scoreboard short_scoreboard mio_throttle lg_throttle math_pipe_throttle dispatch_stall
    no_instruction barrier wait gmma not_selected"""
METRIC_GROUPS: dict[str, str] = {
    "banks": """l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum
        l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum
        l1tex__data_pipe_lsu_wavefronts_mem_shared.sum l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum
        l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum
        smsp__inst_executed_op_shared_ld.sum smsp__inst_executed_op_shared_st.sum""",
    "memory": """dram__bytes_read.sum dram__bytes_write.sum lts__t_sector_hit_rate.pct
        l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum
        l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum""",
    "compute": """sm__cycles_elapsed.sum sm__throughput.avg.pct_of_peak_sustained_elapsed
        sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active
        sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active
        smsp__sass_thread_inst_executed_op_ffma_pred_on.sum
        smsp__issue_active.avg.pct_of_peak_sustained_active""",
    # What a kernel on the CUDA cores keeps busy: issue slots, ALU, the pipe of loads and shuffles and its way back.
    "pipes": """smsp__inst_executed.sum smsp__inst_executed_op_shared_ld.sum
        smsp__sass_thread_inst_executed_op_inter_thread_communication_pred_on.sum
        smsp__issue_active.avg.pct_of_peak_sustained_active
        sm__inst_executed_pipe_alu.avg.pct_of_peak_sustained_active
        sm__inst_executed_pipe_lsu.avg.pct_of_peak_sustained_active
        sm__mio2rf_writeback_active.avg.pct_of_peak_sustained_elapsed
        dram__throughput.avg.pct_of_peak_sustained_elapsed""",
    # Cycles of a warp for each instruction: all, and those that it waits for a reason.
    "stalls": " ".join(
        ["smsp__average_warp_latency_per_inst_issued.ratio"]
        + [
            f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio"
            for reason in _STALLS.split()
        ]
    ),
    "occupancy": """sm__warps_active.avg.pct_of_peak_sustained_active launch__waves_per_multiprocessor
        launch__registers_per_thread launch__occupancy_limit_registers launch__occupancy_limit_shared_mem
        launch__occupancy_limit_warps launch__occupancy_limit_blocks""",
}
"""Counters by question; see also Nsight Compute's Profiling Guide, "Metrics Reference"."""

_UNKNOWN_METRIC = re.compile(r"[Ff]ailed to find metric[s]?[:\s]+([\w.,\s]+)")
_NO_PERMISSION = "ERR_NVGPUCTRPERM"


def wanted_metrics(groups: Sequence[str]) -> list[str]:
    """Metrics of the groups, without repetition, in order."""
    metrics = " ".join(METRIC_GROUPS[group] for group in groups)
    return list(dict.fromkeys(metrics.split()))


class ProfilerUnavailable(LadderError):
    """No counters can be had here; the message is the recorded reason."""


@dataclass(frozen=True)
class Profiler:
    """ncu over the program that launches the tasks at `indices` of a plan on one GPU."""

    program: GpuProgram
    indices: list[int]
    timeout_s: float

    def _run(self, command: list[str]) -> str:
        """What ncu prints. Raises ProfilerUnavailable where it fails for another reason than an unknown metric."""
        try:
            done = self.program.run(
                self.indices,
                under=command,
                capture_output=True,
                text=True,
                timeout=self.timeout_s,
            )
        except subprocess.TimeoutExpired as error:
            why = f"ncu did not finish within {self.timeout_s:g} s"
            raise ProfilerUnavailable(why) from error
        output: str = done.stdout + done.stderr
        if _NO_PERMISSION in output:
            why = "this user may not read the GPU's counters"
            option = "see the driver's option NVreg_RestrictProfilingToAdminUsers"
            raise ProfilerUnavailable(f"{_NO_PERMISSION}: {why}; {option}")
        if done.returncode != 0 and not _UNKNOWN_METRIC.search(output):
            end = f"ended with exit code {done.returncode}: {output.strip()[-800:]}"
            raise ProfilerUnavailable(f"ncu {end}")
        return output

    def _report(self, metrics: list[str], folder: Path) -> tuple[Path, list[str]]:
        """Run ncu. Returns (report, metrics that it accepts). Raises ProfilerUnavailable."""
        ncu = find_tool("ncu")
        report = folder / "report.ncu-rep"
        if ncu is None:
            why = "ncu (Nsight Compute) was not found; it comes with the CUDA toolkit"
            raise ProfilerUnavailable(why)
        if importlib.util.find_spec("ncu_report") is None:
            why = "ncu_report, which reads what ncu writes, was not found"
            raise ProfilerUnavailable(f"{why}: pip install ncu-report")
        # Clocks stay as the user set them; caches are flushed by ncu before each pass.
        options = "--clock-control none --profile-from-start off --force-overwrite"
        accepted = metrics
        while accepted:
            command = [ncu, *options.split(), "--metrics", ",".join(accepted)]
            output = self._run([*command, "--export", str(report)])
            unknown = _UNKNOWN_METRIC.search(output)
            if unknown is None:
                if not report.is_file():
                    why = f"ncu wrote no report: {output.strip()[-800:]}"
                    raise ProfilerUnavailable(why)
                return report, accepted
            refused = {*re.split(r"[,\s]+", unknown[1])}
            if not refused.intersection(accepted):
                why = f"ncu refused a metric: {output.strip()[-400:]}"
                raise ProfilerUnavailable(why)
            accepted = [metric for metric in accepted if metric not in refused]
        raise ProfilerUnavailable("this ncu knows none of the metrics")

    def count(self, metrics: list[str]) -> tuple[list[list[Metric]], list[Note]]:
        """Counters: the metrics of each task, and notes. Raises ProfilerUnavailable."""
        with tempfile.TemporaryDirectory() as folder:
            report, accepted = self._report(metrics, Path(folder))
            launches = read_report(report, metrics)
        if len(launches) != len(self.indices):
            seen = f"{len(launches)} launches where {len(self.indices)} were wanted"
            raise ProfilerUnavailable(f"ncu saw {seen}")
        reasons = dict.fromkeys(metrics, "this ncu does not know the metric")
        reasons |= dict.fromkeys(accepted, "the report has no value for this GPU")
        for launch in launches:
            for metric in launch:
                reasons.pop(metric["metric"], None)
        return launches, [
            {"subject": name, "reason": reason} for name, reason in reasons.items()
        ]


def read_report(report: Path, metrics: Sequence[str]) -> list[list[Metric]]:
    """As `launches`, in a process of its own: the reader's native library and the driver's do not share one well."""
    command = [sys.executable, "-m", "ladder.measure.ncu", str(report), *metrics]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        why = f"(exit code {done.returncode}): {done.stderr.strip()[-400:]}"
        raise ProfilerUnavailable(f"the profiler's report could not be read {why}")
    return list(json.loads(done.stdout))


def launches(report: Path, metrics: Sequence[str]) -> list[list[Metric]]:
    """Per profiled launch of a report, in order, its metrics, without those that the report does not have."""
    import ncu_report  # in the process that reads alone

    context = ncu_report.load_report(str(report))
    return [
        list(_metrics(launch, metrics)) for profiled in context for launch in profiled
    ]


def _metrics(launch: Any, wanted: Sequence[str]) -> Iterator[Metric]:
    """Those of the wanted metrics that have a value; `launch` maps names to metrics."""
    names = set(launch)
    for name in wanted:
        value = launch[name].value() if name in names else None
        if value is not None:
            unit = launch[name].unit() or ""
            yield {"metric": name, "unit": unit, "value": float(value)}


if __name__ == "__main__":
    print(json.dumps(launches(Path(sys.argv[1]), sys.argv[2:])))
