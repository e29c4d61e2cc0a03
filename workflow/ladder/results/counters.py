"""Nsight Compute's counters: names that several modules read, and counters beside times."""

from pandas import DataFrame

from ladder.measure.ncu import METRIC_GROUPS, wanted_metrics
from ladder.model.schemas import SIZE, SIZE_COLUMNS, columns

DRAM_READ, DRAM_WRITE = "dram__bytes_read.sum", "dram__bytes_write.sum"
SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
SHARED_WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"
SHARED_WAVEFRONTS_OF = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{}.sum"
SHARED_REQUESTS_OF = "smsp__inst_executed_op_shared_{}.sum"
"""Of loads (ld) or stores (st)."""
CYCLES = "sm__cycles_elapsed.sum"
"""Of all multiprocessors."""
STALL_FOR = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
"""Warps that wait for a reason per instruction issued."""

_TIMES = columns(
    f"""sweep problem kernel variant rung params dtype layout {SIZE}
    regime median_us:float reference speedup:float speedup_low:float speedup_high:float tflops:float
    gbytes_per_s:float"""
)
TIMES_AND_COUNTERS = {
    **_TIMES,
    **dict.fromkeys(wanted_metrics([*METRIC_GROUPS]), "float"),
}
"""Columns of times_and_counters.csv: counters are of one launch with a flushed L2, whatever the regime of the times."""


def times_and_counters(timings: DataFrame, metrics: DataFrame) -> DataFrame:
    """A row per variant, size and regime that was both timed and counted, from timings.csv and metrics.csv."""
    cell = ["sweep", "variant", *SIZE_COLUMNS]
    counted = metrics[metrics["metric"].isin(TIMES_AND_COUNTERS)]
    wide = (
        counted.groupby([*cell, "metric"], dropna=False)["value"]
        .first()
        .unstack("metric")
        .reset_index()
    )
    alone = timings["baseline"].isna() & timings["median_us"].notna()
    return timings[alone].merge(wide, on=cell).reindex(columns=list(TIMES_AND_COUNTERS))
