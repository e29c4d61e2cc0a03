"""Mappings that are read from JSON: which fields they have, of which types, and what is said where they do not."""

from collections.abc import Collection, Mapping
from typing import Annotated, Any, TypeVar

from pydantic import (
    Field,
    GetCoreSchemaHandler,
    GetPydanticSchema,
    TypeAdapter,
    ValidationError,
    WrapValidator,
)
from pydantic_core import ErrorDetails, core_schema

from ladder.model.errors import File, LadderError, refuse

NOT_ACCEPTED, NO_FIELD = "not_accepted", "no_field"
"""Types of errors: the context says what is accepted, or the fields that there are."""

# A whole number stays one, so that digests and files stay the same.
_same = WrapValidator(lambda value, check: value if check(value) == value else None)
Number = Annotated[float, Field(strict=True, allow_inf_nan=False), _same]
_KINDS: Mapping[str, Any] = {
    "text": str | None,
    "int": int | None,
    "float": Number | None,
    "bool": bool | None,
}
Kind = TypeVar("Kind")


def fields(text: str) -> dict[str, Any]:
    """Fields by name, from words NAME, or NAME:KIND (float, int, bool; nullable) where it is no text."""
    pairs = (word.partition(":") for word in text.split())
    return {name: kind or "text" for name, _, kind in pairs}


def shaped(known: Mapping[str, Any], needed: Collection[str] = ()) -> GetPydanticSchema:
    """What a mapping is annotated with whose `known` fields have these kinds or types; the `needed` must be there."""

    def schema(_: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        types = {name: _KINDS[kind] if isinstance(kind, str) else kind for name, kind in known.items()}
        made = {
            name: core_schema.typed_dict_field(handler.generate_schema(kind), required=name in needed)
            for name, kind in types.items()
        }
        return core_schema.typed_dict_schema(made, extra_behavior="allow")

    return GetPydanticSchema(schema)


def held(kind: TypeAdapter[Kind], given: Any, file: File) -> Kind:
    """Hold what was read, or the bytes of a JSON file, to a type. Raises LadderError for the first mistake."""
    try:
        return kind.validate_json(given) if isinstance(given, bytes) else kind.validate_python(given)
    except ValidationError as error:
        raise explain(file, error.errors()[0]) from error


_TYPES = {
    "string_type": "text",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping of fields",
    "finite_number": "a finite number",
    "dataclass_type": "a mapping of fields",
    "mapping_type": "a mapping",
}
_BOUNDS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}


def _field(loc: tuple[int | str, ...]) -> str:
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc if part != "[key]")
    return "".join(parts).removeprefix(".") or "the document"


def explain(file: File, error: ErrorDetails) -> LadderError:
    """What pydantic says of one field, as the file, the field, the value and what is accepted."""
    kind, context, loc = error["type"], error.get("ctx") or {}, error["loc"]
    if kind == "json_invalid":
        return LadderError(f"{file}: not valid JSON: {context['error']}")
    if kind == "missing":
        return LadderError(f"{file}: {_field(loc[:-1])}: the field {str(loc[-1])!r} is missing")
    if kind == NO_FIELD:
        return refuse(file, _field(loc), context["name"], context["fields"], why="no such field")
    if kind == NOT_ACCEPTED:
        accepted: Any = context["accepted"]
    elif kind == "literal_error":
        accepted = [word.strip("'") for word in context["expected"].replace(" or ", ", ").split(", ")]
    elif kind == "value_error":
        accepted = str(context["error"])
    elif kind in ("too_short", "string_too_short"):
        accepted = f"at least {context['min_length']} of them"
    elif kind == "too_long":
        accepted = f"at most {context['max_length']} of them"
    else:
        bounds = (f"a number {sign} {context[name]}" for name, sign in _BOUNDS.items() if name in context)
        accepted = next(bounds, _TYPES.get(kind.replace("_parsing", "_type"), error["msg"]))
    return refuse(file, _field(loc), error["input"], accepted)
