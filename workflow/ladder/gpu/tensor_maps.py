"""TMA tensor maps of a problem's buffers, made by cuda.core."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from cuda.core import Buffer
from cuda.core._tensor_map import TensorMapDataType, TensorMapL2Promotion, TensorMapSwizzle
from cuda.core.utils import StridedMemoryView

from ladder.model.errors import LadderError
from ladder.model.plan import L2_PROMOTIONS
from ladder.model.problem import ELEMENT_BYTES

_DATA_TYPES = {
    "fp32": "FLOAT32",
    "tf32": "FLOAT32",
    "fp16": "FLOAT16",
    "bf16": "BFLOAT16",
    "fp8": "UINT8",
    "int32": "INT32",
}
_SWIZZLES = {"none": "NONE", "32B": "SWIZZLE_32B", "64B": "SWIZZLE_64B", "128B": "SWIZZLE_128B"}
_PROMOTIONS = {name: "NONE" if name == "none" else f"L2_{name}" for name in L2_PROMOTIONS}


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
    element = np.dtype(f"u{ELEMENT_BYTES[tensor.dtype]}")
    if swizzle == "rows":
        swizzle = f"{box[-1] * element.itemsize}B"
        if swizzle not in _SWIZZLES:
            raise LadderError(
                f"no swizzle is {swizzle} wide, as rows of the box {box} are: 32B, 64B and 128B are"
            )
    view = StridedMemoryView.from_buffer(
        tensor.buffer, tensor.shape, itemsize=element.itemsize, dtype=element
    )
    try:
        return view.as_tensor_map(
            tuple(box),
            data_type=TensorMapDataType[_DATA_TYPES[tensor.dtype]],
            swizzle=TensorMapSwizzle[_SWIZZLES[swizzle]],
            l2_promotion=TensorMapL2Promotion[_PROMOTIONS[l2_promotion]],
        )
    except (ValueError, RuntimeError) as error:
        raise LadderError(f"no tensor map for a box {box} of a tensor {tensor.shape}: {error}") from error
