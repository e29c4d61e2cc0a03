"""Reading YAML documents and holding them to their models, with errors a person can act on."""

import re
from collections.abc import Hashable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from ladder.model.document import NO_FIELD, NOT_ACCEPTED, Document
from ladder.model.errors import File, LadderError, refuse, refuse_unknown, within
from ladder.model.expressions import evaluate
from ladder.model.files import read_text
from ladder.model.problem import Problem

# libyaml's parser, ten times as fast, where PyYAML was built with it.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MOST_FIELDS, _MOST_CHARACTERS = 1000, 1_000_000
Kind = TypeVar("Kind", bound=Document)


class _StrictLoader(_Loader):  # type: ignore[misc]
    """Refuses a key given twice, of which PyYAML takes the last; a mapping may repeat keys of a merged `*anchor`."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Merge what `<<` names: merges of merges are copied, so that each level may double their number."""
        super().flatten_mapping(node)
        if (count := len(node.value)) > _MOST_FIELDS:
            wrong = f"a mapping of {count} fields; accepted: at most {_MOST_FIELDS}"
            raise yaml.constructor.ConstructorError(None, None, wrong, node.start_mark)


def _mapping(loader: _StrictLoader, node: yaml.MappingNode) -> dict[Hashable, Any]:
    seen: set[Hashable] = set()
    for key_node, _ in node.value:
        if key_node.tag == "tag:yaml.org,2002:merge":
            continue
        key = loader.construct_object(key_node)
        if not isinstance(key, Hashable) or key in seen:
            wrong = f"key {key!r} is given twice" if isinstance(key, Hashable) else "a key must be one word"
            raise yaml.constructor.ConstructorError(None, None, wrong, key_node.start_mark)
        seen.add(key)
    mapping: dict[Hashable, Any] = loader.construct_mapping(node, deep=True)
    return mapping


# Not as YAML 1.1 has it, where 1:30 is 90; as YAML 1.2 does.
_StrictLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in known if tag != "tag:yaml.org,2002:int"]
    for first, known in _Loader.yaml_implicit_resolvers.items()
}
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9_]*|0x[0-9a-fA-F_]+|0b[01_]+|0[0-7_]+)$")
_StrictLoader.add_implicit_resolver("tag:yaml.org,2002:int", _INTEGER, list("-+0123456789"))
_StrictLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def parse_yaml(text: str, where: File) -> Any:
    """What YAML text says. Raises LadderError, after `where`, for malformed text."""
    depth = 0
    try:
        if len(text) > _MOST_CHARACTERS:
            raise ValueError(f"{len(text)} characters; accepted: at most {_MOST_CHARACTERS}")
        event: Any
        for event in yaml.parse(text, Loader=_Loader):  # loading recurses, and its C code crashes
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > 50 or len(getattr(event, "value", "")) > 3000:
                raise ValueError(f"line {event.start_mark.line + 1}: over 50 levels or 3000 characters")
        return yaml.load(text, Loader=_StrictLoader)
    except Exception as error:  # not only its own: 2020-13-45 is a ValueError
        mark = getattr(error, "problem_mark", None)
        line = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        problem = getattr(error, "problem", None) or str(error)
        raise LadderError(f"{where}: {line}not valid YAML: {problem}") from error


def documents_in(folder: Path, pattern: str) -> Iterator[Path]:
    """YAML files in a folder, sorted. Raises LadderError for a name that is not fit for paths and commands."""
    for path in sorted(folder.glob(pattern)):
        if path.suffix.lower() not in (".yaml", ".yml"):
            continue
        if path.suffix != ".yaml" or not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]*", path.stem):
            raise refuse(path, "file name", path.name, "NAME.yaml, of letters, digits, '_' and '-'")
        yield path


def read_yaml(path: Path) -> dict[str, Any]:
    """Parse one YAML file. Raises LadderError where it is missing, unreadable, malformed or no mapping."""
    document = parse_yaml(read_text(path), path)
    if not isinstance(document, dict):
        raise LadderError(f"{path}: a mapping of fields is expected, found {type(document).__name__}")
    return document


_TYPES = {
    "string_type": "text",
    "int_type": "a whole number",
    "float_type": "a number such as 0.001 or 1.0e-3",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping of fields",
    "finite_number": "a finite number",
}
_BOUNDS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}


def _field(loc: tuple[int | str, ...]) -> str:
    parts = (
        f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc if not str(part).startswith("[")
    )
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
        with within(f"{file}: {where}.{key}"):
            value = evaluate(given[key], {})
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 2**31:
            raise refuse(file, f"{where}.{key}", given[key], "a whole number >= 1 and < 2**31")
        size[key] = value
    return size
