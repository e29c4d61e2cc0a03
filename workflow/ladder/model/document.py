"""What documents are made of: fields that are checked, described, and say in words what they accept."""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
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
from pydantic_core import ErrorDetails, PydanticCustomError

from ladder.model.errors import File, LadderError, refuse

NOT_ACCEPTED = "not_accepted"
"""Type of an error whose context says what is accepted, and for another value than the input which one and why."""


def not_accepted(accepted: str | list[str], **of_value: str) -> PydanticCustomError:
    """What a validator raises; `of_value` may have `value` and `why`."""
    context: Any = {"accepted": accepted, **of_value}
    return PydanticCustomError(NOT_ACCEPTED, "{accepted}", context)


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
                fields = sorted(cls.model_fields)
                raise not_accepted(fields, value=name, why="no such field")
        return given


def saying(accepted: str) -> Any:
    """What a field is annotated with to say in words what it takes, in errors and in the reference of fields."""

    def check(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
        try:
            return validate(value)
        except ValidationError:
            raise not_accepted(accepted) from None

    return WrapValidator(check), Field(json_schema_extra={"x-accepted": accepted})


def matching(pattern: str, accepted: str) -> Any:
    """What a text field is annotated with that must match a pattern from end to end."""
    fits = re.compile(pattern).fullmatch
    return Predicate(lambda text: fits(text) is not None), *saying(accepted)


Item = TypeVar("Item")
Some = Annotated[list[Item], Field(min_length=1)]
Text = Annotated[str, Field(min_length=1)]
Share = Annotated[float, Field(gt=0, le=0.5)]
Value = Annotated[
    int | Annotated[str, Predicate(str.isprintable)],
    *saying("a whole number or a word, of printable characters"),
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


_SAID_ANYWAY = re.compile(
    r"^(Input should be|(List|String) should have) |( after validation)?, not .*$"
)
"""What a message of pydantic says around what it accepts."""


def _field(loc: Iterable[int | str]) -> str:
    """A place in a document, such as variants[0].params. Tags of unions, in brackets, are no part of it."""
    field = ""
    for part in loc:
        if isinstance(part, int):
            field += f"[{part}]"
        elif not str(part).startswith("["):
            field += f".{part}"
    return field.removeprefix(".") or "the document"


def _explain(file: File, error: ErrorDetails) -> LadderError:
    """An error of pydantic as ours: file, field, value and what is accepted."""
    kind, loc = error["type"], error["loc"]
    context = error.get("ctx", {})
    if kind == "missing":
        *above, name = loc
        return LadderError(f"{file}: {_field(above)}: the field {name!r} is missing")
    if kind == NOT_ACCEPTED:
        return refuse(file, _field(loc), **{"value": error["input"], **context})
    accepted: Any = _SAID_ANYWAY.sub("", error["msg"])
    if kind == "literal_error":
        accepted = re.findall("'(.*?)'", context["expected"])
    elif kind == "model_type":  # its own message names a class
        accepted = "a mapping of fields"
    elif kind == "list_type" and isinstance(error["input"], str | int | float):
        accepted = f"a list, as [{error['input']!r}]"
    return refuse(file, _field(loc), error["input"], accepted)


@contextmanager
def reading(file: File) -> Iterator[None]:
    """What is read inside may hold anything: a field that is missing or of another type is a mistake in `file`."""
    try:
        yield
    except ValidationError as error:
        raise _explain(file, error.errors()[0]) from error
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise LadderError(
            f"{file}: a field is missing or of another type: {error!r}"
        ) from error
