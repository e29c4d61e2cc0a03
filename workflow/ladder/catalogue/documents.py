"""Reading YAML documents and holding them to their schema, with errors a person can act on."""

from __future__ import annotations

import functools
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError, relevance

from ladder.model.errors import LadderError, refuse

SCHEMAS = Path(__file__).resolve().parents[2] / "schemas"


# libyaml's parser, ten times as fast, where PyYAML was built with it.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _StrictLoader(_Loader):  # type: ignore[misc]
    """SafeLoader that refuses a key given twice, which PyYAML would silently take as the last one.

    A mapping merged in (`<<: *anchor`) gives its keys once more by intent: the mapping's own ones win.
    """


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


def read_yaml(path: Path) -> Any:
    """Parse one YAML file. Raises LadderError for a missing, unreadable or malformed file."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise LadderError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        return yaml.load(text, Loader=_StrictLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        problem = getattr(error, "problem", None) or str(error)
        raise LadderError(f"{path}: {line}not valid YAML: {problem}") from error


@functools.cache
def schema(name: str) -> dict[str, Any]:
    """The JSON schema (draft 2020-12) of one kind of document: config, sweep, kernel or claims."""
    document: dict[str, Any] = read_yaml(SCHEMAS / f"{name}.schema.yaml")
    return document


def _field(error: ValidationError) -> str:
    text = ""
    for part in error.absolute_path:
        text += f"[{part}]" if isinstance(part, int) else (f".{part}" if text else str(part))
    return text or "the document"


def _explain(file: Path | str, error: ValidationError) -> LadderError:
    where = _field(error)
    rule: Any = error.validator_value
    rules: Any = error.schema
    match error.validator:
        case "additionalProperties":
            known = sorted(rules.get("properties", {}))
            extra = [key for key in error.instance if key not in known]
            return refuse(file, where, extra[0], known, why="no such field")
        case "required":
            missing = next(name for name in rule if name not in error.instance)
            return LadderError(f"{file}: {where}: the field {missing!r} is missing")
        case "enum":
            return refuse(file, where, error.instance, rule)
        case "type":
            kinds = rule if isinstance(rule, str) else " or ".join(rule)
            return refuse(file, where, error.instance, f"a value of type {kinds}")
        case "pattern":
            accepted = rules.get("x-accepted", f"text matching {rule}")
            return refuse(file, where, error.instance, accepted)
        case "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum":
            bounds = {"minimum": ">=", "maximum": "<=", "exclusiveMinimum": ">", "exclusiveMaximum": "<"}
            return refuse(file, where, error.instance, f"a number {bounds[error.validator]} {rule}")
        case "minItems" | "minProperties" | "minLength":
            return refuse(file, where, error.instance, f"at least {rule} of them")
    accepted = rules.get("x-accepted", error.message)
    return refuse(file, where, error.instance, accepted)


def _says(error: ValidationError) -> bool:
    """Whether the schema says in words what is accepted there."""
    return isinstance(error.schema, dict) and "x-accepted" in error.schema


def check(document: Any, kind: str, file: Path | str) -> None:
    """Hold `document` to the schema `kind`. Raises LadderError for the most telling violation."""
    errors = list(Draft202012Validator(schema(kind)).iter_errors(document))
    if not errors:
        return
    worst = max(errors, key=relevance)
    # Inside anyOf the branch of the right type says more than "is not valid under any of the schemas".
    while worst.validator in ("anyOf", "oneOf") and worst.context and not _says(worst):
        worst = max(worst.context, key=lambda error: (len(error.absolute_path), relevance(error)))
    raise _explain(file, worst)


def load(path: Path, kind: str) -> dict[str, Any]:
    """Read one YAML document and hold it to its schema."""
    document = read_yaml(path)
    if not isinstance(document, dict):
        raise LadderError(f"{path}: a mapping of fields is expected, found {type(document).__name__}")
    check(document, kind, path)
    return document
