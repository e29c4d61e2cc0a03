"""What documents are made of: fields that are checked, described, and say in words what they accept."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar

from annotated_types import Predicate
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from ladder.model.errors import LadderError, refuse

NOT_ACCEPTED, NO_FIELD = "not_accepted", "no_field"
"""Types of errors: the context says what is accepted, or the fields that there are."""


class Document(BaseModel):
    """Part of a document: every field is known, nothing changes once it is read."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        arbitrary_types_allowed=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )

    @model_validator(mode="before")
    @classmethod
    def _fields_are_known(cls, given: Any) -> Any:
        for name in given if isinstance(given, Mapping) else ():
            if name not in cls.model_fields:
                known = {"name": name, "fields": sorted(cls.model_fields)}
                raise PydanticCustomError(NO_FIELD, "no such field", known)
        return given


def saying(accepted: str) -> Any:
    """What a field is annotated with to say in words what it takes, in errors and in the reference of fields."""

    def check(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
        try:
            return validate(value)
        except ValidationError:
            context = {"accepted": accepted}
            raise PydanticCustomError(NOT_ACCEPTED, "{accepted}", context) from None

    return WrapValidator(check), Field(json_schema_extra={"x-accepted": accepted})


def matching(pattern: str, accepted: str) -> Any:
    """What a text field is annotated with that must match a pattern from end to end."""
    fits = re.compile(pattern).fullmatch
    return Predicate(lambda text: fits(text) is not None), *saying(accepted)


Item = TypeVar("Item")
Some = Annotated[list[Item], Field(min_length=1)]
Text = Annotated[str, Field(min_length=1)]
Share = Annotated[float, Field(gt=0, le=0.5)]
_VALUE = "a whole number or a word, of printable characters"
Value = Annotated[
    int | Annotated[str, Predicate(str.isprintable)],
    *saying(_VALUE),
]
_OVER = "an expression over parameters, sizes and ceil_div, align_up, min, max, gcd"
Expression = Annotated[int | Text, *saying(f"a whole number or {_OVER}")]
Number = Annotated[int | float | Text, *saying(f"a number or {_OVER}")]
Name = Annotated[
    str, *matching(r"[a-z][a-z0-9_]*", "a name in lower case, digits and underscores")
]
ARCH = r"sm_[0-9]{2,3}a?"
AN_ARCH = "an architecture such as sm_80 or sm_90a, no family such as sm_120f"
Arch = Annotated[str, *matching(ARCH, AN_ARCH)]


class Condition(Document):
    """An expression that must hold, and why."""

    expr: Text
    """an expression that must be true"""
    reason: Text
    """why, as the report prints it"""


@contextmanager
def reading(file: Path | str) -> Iterator[None]:
    """What is read inside may hold anything: a field that is missing or of another type is a mistake in `file`."""
    try:
        yield
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "the document"
        raise refuse(file, field, first["input"], first["msg"]) from error
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise LadderError(
            f"{file}: a field is missing or of another type: {error!r}"
        ) from error
