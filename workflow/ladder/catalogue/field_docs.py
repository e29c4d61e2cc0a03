"""The field reference of a document kind, as Markdown, from its model: one table, with what is accepted in words.

jsonschema-markdown makes a table for each nested model, and gives bounds and patterns as the schema has them.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import permutations
from typing import Any

from ladder.model.document import Document

BEGIN = "<!-- written by `make reference` -->"
END = "<!-- until here -->"

_WORDS = {
    "integer": "whole number",
    "string": "text",
    "boolean": "true or false",
    "object": "mapping",
}
_SIGNS = {
    "minimum": ">=",
    "exclusiveMinimum": ">",
    "maximum": "<=",
    "exclusiveMaximum": "<",
}

_PAGE = re.compile(r"docs/[\w-]+\.md")  # config/README.md links it

Schema = Mapping[str, Any]


def _resolved(part: Schema, root: Schema) -> Schema:
    """`part` with its $ref into the schema's own definitions followed."""
    name = part.get("$ref", "").rpartition("/")[2]
    return root["$defs"][name] if name else part


def _branches(part: Schema, root: Schema) -> list[Schema]:
    """The types that a field accepts, except null."""
    part = _resolved(part, root)
    given = part.get("anyOf", part.get("oneOf", [part]))
    branches = [_resolved(branch, root) for branch in given]
    return [branch for branch in branches if branch.get("type") != "null"]


def accepted(part: Schema, root: Schema) -> str:
    """The values that a field accepts, in words."""
    part = _resolved(part, root)
    if "x-accepted" in part:
        return str(part["x-accepted"])
    if "anyOf" in part:
        words = " or ".join(accepted(branch, root) for branch in _branches(part, root))
        nullable = {"type": "null"} in part["anyOf"] and "default" not in part
        return f"{words} or null" if nullable else words
    if values := part.get("enum", [part["const"]] if "const" in part else []):
        return ", ".join(f"`{value}`" for value in values)
    kind = str(part.get("type", "any value"))
    words = _WORDS.get(kind, kind)
    if kind == "array":
        words = f"list of: {accepted(part['items'], root)}"
    bounds = [f"{sign} {part[key]}" for key, sign in _SIGNS.items() if key in part]
    return f"{words} {', '.join(bounds)}".strip()


def _need(name: str, part: Schema) -> str:
    """Whether a field must be there, be it in one of two forms."""
    if name in part.get("required", ()):
        return "required"
    for form, other in permutations(part.get("oneOf", ()), 2):
        if name in form["required"]:
            return f"required, or `{'`, `'.join(other['required'])}`"
    return "optional"


def _rows(part: Schema, root: Schema, path: str = "") -> Iterator[list[str]]:
    """Field, accepted, required or optional, meaning: of every field below `part`, in the model's order."""
    for name, given in part["properties"].items():
        field = f"{path}.{name}".removeprefix(".")
        need = _need(name, part)
        forms = _branches(given, root)
        meanings = [form.get("description", "") for form in (given, *forms)]
        meaning = next(filter(None, meanings), "")
        linked = _PAGE.sub(r"[\g<0>](../\g<0>)", " ".join(meaning.split()))
        yield [f"`{field}`", accepted(given, root), need, linked]
        for form in forms:
            inner, suffix = form, ""
            if "items" in form:
                inner, suffix = form["items"], "[]"
            elif isinstance(form.get("additionalProperties"), Mapping):
                inner, suffix = form["additionalProperties"], ".NAME"
            for branch in _branches(inner, root):
                if "properties" in branch:
                    yield from _rows(branch, root, field + suffix)


def field_reference(name: str, place: str, kind: type[Document]) -> str:
    """Markdown section of one document kind: heading, description and a table of its fields."""
    root = kind.model_json_schema()
    lines = [f"## {name}: `{place}`", "", " ".join(root["description"].split()), ""]
    lines += ["| field | takes | | meaning |", "|---|---|---|---|"]
    for cells in _rows(root, root):
        escaped = (cell.replace("|", "\\|") for cell in cells)
        lines.append(f"| {' | '.join(escaped)} |")
    return "\n".join(lines) + "\n"
