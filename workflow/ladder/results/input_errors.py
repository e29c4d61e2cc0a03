"""The largest errors of kernels and of their references, by kind of inputs."""

from collections.abc import Iterator
from dataclasses import dataclass

from pandas import DataFrame

from ladder.model.problem import ERROR_INPUTS
from ladder.model.record import NO_NUMBER
from ladder.model.schemas import TableRow
from ladder.results.statistics import cell_of, metric_table, records


@dataclass(frozen=True)
class InputErrors:
    """The largest errors of a kernel and its reference with one kind of inputs; None where the error is no number."""

    row: TableRow
    inputs: str
    kernel: float
    reference: float | None

    @property
    def ratio(self) -> float | None:
        """The kernel's error over the reference's."""
        return self.kernel / self.reference if self.reference else None


def errors_by_inputs(timings: DataFrame, metrics: DataFrame) -> Iterator[InputErrors]:
    """Errors of the cells in `timings` whose sweep has `errors`.

    Columns of timings: those of a cell; of metrics as in `metric_table`.
    """
    by_cell = metric_table(metrics[metrics["metric"].str.contains("max_error_")])
    for row in records(timings):
        errors = by_cell.get(cell_of(row), {})
        for inputs in ERROR_INPUTS:
            kernel = errors.get(f"max_error_{inputs}")
            reference = errors.get(f"reference_max_error_{inputs}")
            if kernel is not None and reference is not None:
                yield InputErrors(
                    row, inputs, kernel, reference if reference < NO_NUMBER else None
                )
