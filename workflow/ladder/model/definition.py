"""What a document says of a problem of one's own: docs/own-problems.md."""

from typing import Annotated, Literal

from pydantic import Field

from ladder.model.document import Document, Expression, Name, Some, Text

Shapes = Annotated[dict[Name, list[Expression]], Field(min_length=1)]
Share = Annotated[float, Field(ge=0, lt=1)]


class Tolerance(Document):
    """A result may lie atol + rtol |expected| off."""

    rtol: Share
    atol: Share


class Definition(Document):
    """A problem whose answer a Python module knows, in fp64."""

    module: Text
    """Python file, relative to the document; its function `answer` is a Python callable as docs/references.md has them,
    which is asked for dtype fp64 with buffers in fp64"""
    size: Annotated[dict[Name, int], Field(min_length=1)]
    """fields of the size, each with its usual value"""
    inputs: Shapes
    """shapes by name, outermost extent first, of fields of the size; a kernel reads all of each"""
    outputs: Shapes
    dtype: Literal["fp32", "fp16", "bf16", "fp8"] = "fp32"
    """of all buffers"""
    kinds: Some[Literal["uniform", "positive", "integers", "wide", "equal", "spikes"]]
    """of inputs, see docs/judge.md; the first is timed"""
    tolerance: Tolerance
