"""What documents are made of: fields that are checked, described, and say in words what they accept."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError

from ladder.model.errors import LadderError, refuse
from ladder.model.problem import ParamValue

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


def taking(accepted: str, test: Callable[[Any], bool]) -> Any:
    """What a field is annotated with that takes values for which `test` holds; `accepted` says so in words."""

    def check(value: Any) -> Any:
        if not test(value):
            raise PydanticCustomError(
                NOT_ACCEPTED, "{accepted}", {"accepted": accepted}
            )
        return value

    return BeforeValidator(check), Field(json_schema_extra={"x-accepted": accepted})


def matching(pattern: str, accepted: str) -> Any:
    """What a text field is annotated with that must match a pattern from end to end."""
    return taking(
        accepted,
        lambda value: isinstance(value, str) and bool(re.fullmatch(pattern, value)),
    )


def is_value(value: Any) -> bool:
    """Whether it is a whole number or text, as YAML gives them."""
    return isinstance(value, int | str) and not isinstance(value, bool)


def is_parameter(value: Any) -> bool:
    """Whether it may be the value of a parameter, which stands in names of variants."""
    return is_value(value) and str(value).isprintable()


Item = TypeVar("Item")
Some = Annotated[list[Item], Field(min_length=1)]
Text = Annotated[str, Field(min_length=1)]
Share = Annotated[float, Field(gt=0, le=0.5)]
A_VALUE = "a whole number or a word, of printable characters"
Value = Annotated[ParamValue, *taking(A_VALUE, is_parameter)]
_EXPRESSION = "a whole number or an expression over parameters, sizes and ceil_div, align_up, min, max, gcd"
Expression = Annotated[
    int | str, *taking(_EXPRESSION, lambda value: is_value(value) and value != "")
]
_NUMBER = "a number or an expression over parameters, sizes and ceil_div, align_up, min, max, gcd"
Number = Annotated[
    int | float | str,
    *taking(
        _NUMBER,
        lambda value: value != "" and (isinstance(value, float) or is_value(value)),
    ),
]
Name = Annotated[
    str, *matching(r"[a-z][a-z0-9_]*", "a name in lower case, digits and underscores")
]
ARCH, AN_ARCH = (
    r"sm_[0-9]{2,3}a?",
    "an architecture such as sm_80 or sm_90a, no family such as sm_120f",
)
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
