"""TMA tensor maps of a problem's buffers, made by cuda.core."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from cuda.core import Buffer
from cuda.core._tensor_map import TensorMapDataType, TensorMapL2Promotion, TensorMapSwizzle
from cuda.core.utils import StridedMemoryView

from ladder.model.errors import LadderError
from ladder.model.problem import ELEMENT_BYTES

_DATA_TYPES = {"fp16": "FLOAT16", "bf16": "BFLOAT16", "fp8": "UINT8", "int32": "INT32"}  # others: FLOAT32
_WIDTHS = ("32B", "64B", "128B")


@dataclass(frozen=True)
class Tensor:
    """A dense row-major buffer with its shape, outermost extent first, and element dtype."""

    buffer: Buffer
    shape: tuple[int, ...]
    dtype: str


def tensor_map(tensor: Tensor, box: list[int], swizzle: str, l2_promotion: str) -> Any:
    """The descriptor of tiled copies of `box` elements, outermost extent first; swizzle "rows" is as wide as its rows.

    Elements outside the tensor read as zero. Raises LadderError where the driver refuses, such as for rows that are
    no multiple of 16 bytes.
    """
    if len(box) != len(tensor.shape):
        raise LadderError(f"a box of {len(box)} extents for a tensor of {len(tensor.shape)}")
    size = ELEMENT_BYTES[tensor.dtype]
    width = f"{box[-1] * size}B" if swizzle == "rows" else swizzle
    if width not in ("none", *_WIDTHS):
        raise LadderError(f"no swizzle is {width} wide, as rows of the box {box} are: 32B, 64B and 128B are")
    kind = np.dtype(f"u{size}")
    view = StridedMemoryView.from_buffer(tensor.buffer, tensor.shape, itemsize=size, dtype=kind)
    try:
        return view.as_tensor_map(
            tuple(box),
            data_type=TensorMapDataType[_DATA_TYPES.get(tensor.dtype, "FLOAT32")],
            swizzle=TensorMapSwizzle["NONE" if width == "none" else f"SWIZZLE_{width}"],
            l2_promotion=TensorMapL2Promotion["NONE" if l2_promotion == "none" else f"L2_{l2_promotion}"],
        )
    except (ValueError, RuntimeError) as error:
        raise LadderError(f"no tensor map for a box {box} of a tensor {tensor.shape}: {error}") from error
