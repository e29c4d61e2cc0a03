"""Reading YAML documents and holding them to their models, with errors a person can act on."""

from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from ladder.model.document import NO_FIELD, NOT_ACCEPTED, Document
from ladder.model.errors import LadderError, refuse, refuse_unknown
from ladder.model.expressions import evaluate
from ladder.model.problem import Problem

# libyaml's parser, ten times as fast, where PyYAML was built with it.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
Kind = TypeVar("Kind", bound=Document)


class _StrictLoader(_Loader):  # type: ignore[misc]
    """Refuses a key given twice, of which PyYAML takes the last; a mapping may repeat keys of a merged `*anchor`."""


def _mapping(loader: _StrictLoader, node: yaml.MappingNode) -> dict[Hashable, Any]:
    seen: set[Hashable] = set()
    for key_node, _ in node.value:
        if key_node.tag == "tag:yaml.org,2002:merge":
            continue
        key = loader.construct_object(key_node)
        if key in seen:
            mark = key_node.start_mark
            raise yaml.constructor.ConstructorError(None, None, f"key {key!r} is given twice", mark)
        seen.add(key)
    mapping: dict[Hashable, Any] = loader.construct_mapping(node, deep=True)
    return mapping


_StrictLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def read_yaml(path: Path) -> dict[str, Any]:
    """Parse one YAML file. Raises LadderError where it is missing, unreadable, malformed or no mapping."""
    try:
        document = yaml.load(path.read_text(encoding="utf-8"), Loader=_StrictLoader)
    except OSError as error:
        raise LadderError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        where = f"byte {error.object[error.start]:#04x} at {error.start}"
        raise LadderError(f"{path}: not UTF-8: {where}") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        problem = getattr(error, "problem", None) or str(error)
        raise LadderError(f"{path}: {line}not valid YAML: {problem}") from error
    if not isinstance(document, dict):
        raise LadderError(f"{path}: a mapping of fields is expected, found {type(document).__name__}")
    return document


_TYPES = {
    "string_type": "text",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping of fields",
    "finite_number": "a finite number",
}
_BOUNDS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}


def _field(loc: tuple[int | str, ...]) -> str:
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc if part != "[key]")
    return "".join(parts).removeprefix(".") or "the document"


def _explain(file: Path | str, error: ErrorDetails) -> LadderError:
    """What pydantic says of one field, as the file, the field, the value and what is accepted."""
    kind, context, loc = error["type"], error.get("ctx") or {}, error["loc"]
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
        accepted = next(bounds, _TYPES.get(kind, error["msg"]))
    return refuse(file, _field(loc), error["input"], accepted)


def parse(kind: type[Kind], document: Mapping[str, Any], file: Path | str, **context: Any) -> Kind:
    """Hold a document to its model. Raises LadderError for the first mistake; `context` is handed to validators."""
    try:
        return kind.model_validate(document, context={"file": file, **context})
    except ValidationError as error:
        raise _explain(file, error.errors()[0]) from error


def parse_size(problem: Problem, given: Any, file: Path, where: str) -> dict[str, int]:
    """A size from a number (all fields alike), an expression or a mapping. Raises LadderError naming `where`."""
    fields = problem.size_fields
    if not isinstance(given, Mapping):
        given = dict.fromkeys(fields, given)
    for key in given:
        refuse_unknown(file, where, key, fields, why="no such size field")
    size = {}
    for key in fields:
        if key not in given:
            raise LadderError(f"{file}: {where}: the size field {key!r} is missing")
        value = evaluate(given[key], {})
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise refuse(file, f"{where}.{key}", given[key], "a whole number >= 1")
        size[key] = value
    return size
