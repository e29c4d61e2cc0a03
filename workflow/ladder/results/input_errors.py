"""The largest errors of kernels and of their references, by kind of inputs."""

from collections.abc import Iterator

from pandas import DataFrame

from ladder.model.problem import ERROR_INPUTS
from ladder.model.record import NO_NUMBER
from ladder.model.schemas import TableRow
from ladder.results.statistics import cell_of, metric_table, records


def errors_by_inputs(timings: DataFrame, metrics: DataFrame) -> Iterator[TableRow]:
    """By `row` of timings and kind of `inputs` the largest errors of `kernel` and `reference`, and their `ratio`.

    Of cells whose sweep has `errors`. The error of a reference is None where it is no number; the ratio is None then,
    and where that error is 0. Columns of timings: those of a cell; of metrics as in `metric_table`.
    """
    by_cell = metric_table(metrics[metrics["metric"].str.contains("max_error_")])
    for row in records(timings):
        errors = by_cell.get(cell_of(row), {})
        for inputs in ERROR_INPUTS:
            kernel = errors.get(f"max_error_{inputs}")
            reference = errors.get(f"reference_max_error_{inputs}")
            if kernel is None or reference is None:
                continue
            if reference >= NO_NUMBER:
                reference = None
            ratio = kernel / reference if reference else None
            yield {
                "row": row,
                "inputs": inputs,
                "kernel": kernel,
                "reference": reference,
                "ratio": ratio,
            }
