"""The columns of every table: NAME, or NAME:KIND (float, int, bool; nullable) where it is no text. Shares are 0..1."""

from collections.abc import Mapping
from typing import Any

from ladder.model.problem import SIZE_COLUMNS as SIZE_COLUMNS

TableRow = dict[str, Any]
"""A row of a table, by column."""
Fields = Mapping[str, Any]
"""What is known of a row, a result or a GPU, by name."""

_STATUSES = (
    "ok compile_error unsupported launch_error incorrect out_of_bounds stateful timeout"
)
STATUSES = tuple(_STATUSES.split())
"""What can become of a cell. `unmeasured` cells have no row."""

VERDICTS = (
    "holds",
    "holds and more",
    "only where",
    "refuted",
    "equivalent",
    "undecided",
    "not measured",
)
"""holds and more: better than said. only where: it holds at some values and fails at others. refuted: it fails."""

_SIZE_FIELDS = " ".join(f"{name}:int" for name in SIZE_COLUMNS)
SIZE = f"{_SIZE_FIELDS} taps:int"


def columns(text: str) -> Mapping[str, str]:
    """Columns with their kinds, from what describes a table."""
    pairs = (word.partition(":") for word in text.split())
    return {name: kind or "text" for name, _, kind in pairs}


SCHEMAS: Mapping[str, Mapping[str, str]] = {
    # fresh, of a tuning sweep in its first regime: true where the variant was one of the three fastest and its numbers
    # are of later sessions than the one that chose it, else false.
    # over_cublas, over_cublaslt: the speed-up over that library alone, where there was a choice: `speedup` times its
    # time over the reference's, from the record of the choice. They have no interval.
    # reference_is: faster, where the reference was chosen and is the fastest beyond doubt; tied, where another may be.
    # Empty where there was no choice, and in rows from before choices had records: a few launches chose there.
    # peak_fraction, memory_fraction: the least time that operations, and the bytes that the problem must move, take at
    # the GPU's peak rates, over the time. The larger one says what bounds the cell. Three TF32 products count as three.
    "timings": columns(
        f"""sweep problem kernel variant rung baseline params dtype layout {SIZE} status reason samples:int regime
        median_us:float median_us_low:float median_us_high:float cv:float reference algorithm reference_median_us:float
        speedup:float speedup_low:float speedup_high:float stopped_by tflops:float peak_fraction:float
        gbytes_per_s:float copy_fraction:float sm_clock_mhz:float power_w:float temperature_c:float throttled:bool
        energy_pj_per_flop:float energy_pj_per_byte:float busy:bool max_error:float error_bound:float
        source_sha256 cubin_sha256
        sessions:int gpus:int predicted_low:float predicted_high:float clock_floor_us:float
        clock fresh:bool over_cublas:float over_cublaslt:float reference_is
        memory_fraction:float"""
    ),
    # One row per cell and measuring session; `commit` is the digest of the tree where no commit is known. chose: the
    # session chose the cell as one of the fastest of a tuning sweep, and does not count in its speed-up. bound: what
    # binds both sides: memory, where the bytes that the problem must move take half of the time or more at the rate of
    # a copy; compute, where they do not; mixed, where one is bound by this and the other by that.
    "sessions": columns(
        f"""sweep variant baseline dtype layout {SIZE} regime session gpu_uuid started commit reference algorithm
        median_us:float reference_median_us:float speedup:float speedup_low:float speedup_high:float samples:int
        sm_clock_mhz:float power_w:float host_gpus:int clock_floor_us:float clock chose:bool bound"""
    ),
    # How far GPUs differ by class of cells, and from how many GPUs and kinds of host that is. deviation: of the GPUs
    # that read a cell 95 % are within so much of the mean of the other ones, as logarithms of speed-ups.
    "components": columns("class cells:int gpus:int hosts:int deviation:float"),
    # How often readings that are left out fall into the ranges made without them.
    "coverage": columns(
        "left_out part cells:int readings:int covered:float half_width:float interval_score:float"
    ),
    # How often sessions on GPUs that were new fell into the ranges published before them (results/unseen/DEVICE).
    "unseen": columns(
        "part gpus:int cells:int readings:int covered:float host_gpus day"
    ),
    "metrics": columns(f"sweep variant {SIZE} metric unit value:float"),
    # One row per sweep and variant: sweeps that were published apart may have compiled another code of it.
    "resources": columns(
        """sweep kernel variant params dtype layout arch status reason registers:int shared_bytes_static:int
        shared_bytes_dynamic:int local_bytes:int spill_store_bytes:int spill_load_bytes:int threads_per_block:int
        blocks_per_sm:int occupancy:float occupancy_limit compile_s:float instructions:int ffma:int hmma:int hgmma:int
        lds_32:int lds_64:int lds_128:int ldsm:int sts:int ldg:int stg:int ldgsts:int utmaldg:int shfl:int bar:int
        ldl:int stl:int source_sha256 cubin_sha256"""
    ),
    # One row per part of a statement. effect: the value that is worst for it; predicted: where another GPU's may lie.
    "claims": columns(
        """id part source statement verdict where effect:float effect_low:float effect_high:float predicted_low:float
        predicted_high:float evidence advice"""
    ),
    # What could not be had, and why: missing metrics, no profiler, a library that cannot do it.
    "notes": columns("sweep stage subject reason"),
    # One row per measuring job: the share of its wall time that the GPU worked, and the checks' share of that.
    "jobs": columns(
        """sweep cells:int kept:int measured:int wall_s:float gpu_s:float gpu_share:float check_share:float
        worker_starts:int
        started finished"""
    ),
}
"""Table -> its columns with their kinds."""

SWEEP_TABLES = ("timings", "sessions", "metrics", "resources", "notes", "jobs")
"""Tables that are made sweep by sweep."""

COLLECTED = (*SWEEP_TABLES, "times_and_counters", "components", "coverage")
"""What is made of all sweeps together."""

SAMPLES = "samples.parquet"
"""Beside the tables: every raw time."""
