"""The field reference of a document kind, as Markdown, from its model: one table, with what is accepted in words.

jsonschema-markdown makes a table for each nested model, and gives bounds and patterns as the schema has them.
"""

from collections.abc import Iterator, Mapping
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

Schema = Mapping[str, Any]


def _resolved(part: Schema, root: Schema) -> Schema:
    """`part` with its $ref into the schema's own definitions followed."""
    return root["$defs"][part["$ref"].rpartition("/")[2]] if "$ref" in part else part


def _branches(part: Schema, root: Schema) -> list[Schema]:
    """The types that a field accepts, except null."""
    part = _resolved(part, root)
    given = [
        _resolved(branch, root)
        for branch in part.get("anyOf", part.get("oneOf", (part,)))
    ]
    return [branch for branch in given if branch.get("type") != "null"]


def accepted(part: Schema, root: Schema) -> str:
    """The values that a field accepts, in words."""
    part = _resolved(part, root)
    if "x-accepted" in part:
        return str(part["x-accepted"])
    if {"type": "null"} in part.get("anyOf", ()) and "default" not in part:
        return f"{accepted({**part, 'default': None}, root)} or null"
    if "const" in part or "enum" in part:
        return ", ".join(
            f"`{value}`" for value in part.get("enum", [part.get("const")])
        )
    if "anyOf" in part:
        return " or ".join(accepted(branch, root) for branch in _branches(part, root))
    kind = str(part.get("type", "any value"))
    words = (
        f"list of: {accepted(part['items'], root)}"
        if kind == "array"
        else _WORDS.get(kind, kind)
    )
    bounds = ", ".join(
        f"{sign} {part[key]}" for key, sign in _SIGNS.items() if key in part
    )
    return f"{words} {bounds}".strip()


def _rows(
    part: Schema, root: Schema, path: str = ""
) -> Iterator[tuple[str, str, str, str]]:
    """(field, accepted, required or optional, meaning) of every field below `part`, in the model's order."""
    for name, given in part["properties"].items():
        field = f"{path}.{name}".removeprefix(".")
        need = "required" if name in part.get("required", ()) else "optional"
        forms = _branches(given, root)
        meanings = [
            form["description"] for form in (given, *forms) if "description" in form
        ]
        yield (
            field,
            accepted(given, root),
            need,
            " ".join("".join(meanings[:1]).split()),
        )
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
    lines = [
        f"## {name}: `{place}`",
        "",
        " ".join(str(root["description"]).split()),
        "",
    ]
    lines += ["| field | takes | | meaning |", "|---|---|---|---|"]
    for field, *words in _rows(root, root):
        lines.append(
            "| "
            + " | ".join(cell.replace("|", "\\|") for cell in (f"`{field}`", *words))
            + " |"
        )
    return "\n".join(lines) + "\n"
