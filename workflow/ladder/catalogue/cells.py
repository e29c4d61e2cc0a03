"""Cells as people write them: VARIANT@SIZE:REGIME, such as gemm_naive-fp32-mapping=flat@4096:dirty."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ladder.catalogue.documents import parse_size
from ladder.model.cell import Cell
from ladder.model.errors import LadderError, refuse
from ladder.model.kernel import Kernel, Variant
from ladder.model.problem import ParamValue, Size
from ladder.model.schemas import REGIMES

_FORM = "VARIANT@SIZE:REGIME such as gemm_naive-fp32-mapping=flat@4096:dirty; size and regime may be left out"


@dataclass(frozen=True)
class Wanted:
    """The cells of a variant, at one size or all, in one regime or all, against any reference."""

    variant: Variant
    size: Size | None
    regime: str | None

    def __call__(self, cell: Cell) -> bool:
        """Whether a cell is among them. Its parameters count as they were, whatever the defaults are now."""
        variant = self.variant
        own = (variant.kernel.name, dict(variant.params), variant.dtype, variant.layout)
        return (
            own == (cell.kernel, dict(cell.params), cell.dtype, cell.layout)
            and self.size in (None, dict(cell.size))
            and self.regime in (None, cell.regime)
        )


def _value(text: str, accepted: Sequence[ParamValue]) -> ParamValue:
    return next((value for value in accepted if str(value) == text), text)


def _variant(text: str, catalog: Mapping[str, Kernel]) -> Variant:
    name, _, rest = text.partition("-")
    if name not in catalog:
        raise refuse("command line", "CELL", name, catalog, why="no such kernel")
    kernel = catalog[name]
    dtype, *words = rest.split("-") if rest else [next(iter(kernel.dtypes))]
    layout = words.pop(0) if words and words[0] in kernel.problem.layouts else None
    params: dict[str, ParamValue] = {}
    for word in words:
        axis, equals, value = word.partition("=")
        if not equals:
            raise refuse("command line", "CELL", text, _FORM)
        values = kernel.parameters[axis].values if axis in kernel.parameters else ()
        params[axis] = _value(value, values)
    return kernel.variant(params, dtype, layout, file="command line", where="CELL ", excluded=True)


def parse_cell(text: str, catalog: Mapping[str, Kernel]) -> Wanted:
    """Raises LadderError for a kernel, parameter, size or regime that there is not."""
    variant_text, _, place = text.partition("@")
    size_text, _, regime = place.partition(":")
    variant = _variant(variant_text, catalog)
    if regime and regime not in REGIMES:
        raise refuse("command line", "CELL", regime, REGIMES, why="no such regime")
    size = None
    if size_text:
        problem = variant.kernel.problem
        parts = size_text.replace("^", "**").split("x")
        if len(parts) not in (1, len(problem.size_fields)):
            raise LadderError(f"command line: CELL: {size_text!r} is not accepted; accepted: {_FORM}")
        given = parts[0] if len(parts) == 1 else dict(zip(problem.size_fields, parts, strict=True))
        size = parse_size(problem, given, "command line", "CELL")
    return Wanted(variant, size, regime or None)
