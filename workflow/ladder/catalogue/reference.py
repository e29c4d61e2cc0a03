"""The field reference of a document kind, as Markdown, from its schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ladder.catalogue.documents import schema

KINDS = {
    "config": "config/config.yaml",
    "sweep": "config/sweeps/NAME.yaml",
    "kernel": "kernels/…/NAME.yaml",
    "claims": "config/claims.yaml",
}
"""Document kinds and where such documents stand."""

BEGIN = "<!-- reference: written by `make reference`, from the schemas -->"
"""The mark in a file from which on the reference stands."""

Schema = Mapping[str, Any]


def _resolved(part: Schema, root: Schema) -> Schema:
    """`part` with its $ref into the schema's own definitions followed; fields beside the $ref win."""
    if "$ref" not in part:
        return part
    target: Schema = root
    for name in part["$ref"].removeprefix("#/").split("/"):
        target = target[name]
    return {**target, **{key: value for key, value in part.items() if key != "$ref"}}


def _bounds(part: Schema) -> str:
    signs = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}
    return ", ".join(f"{sign} {part[key]}" for key, sign in signs.items() if key in part)


def accepted(part: Schema, root: Schema) -> str:
    """What a field takes, in words."""
    part = _resolved(part, root)
    if "x-accepted" in part:
        return str(part["x-accepted"])
    if "const" in part:
        return f"`{part['const']}`"
    if "enum" in part:
        return ", ".join(f"`{value}`" for value in part["enum"])
    if "anyOf" in part and "type" not in part:
        return " or ".join(accepted(branch, root) for branch in part["anyOf"])
    kinds = part.get("type", "any value")
    names = {"integer": "whole number", "string": "text", "boolean": "true or false", "null": "null"}
    words = " or ".join(names.get(kind, kind) for kind in ([kinds] if isinstance(kinds, str) else kinds))
    if kinds == "array":
        words = f"list of: {accepted(part['items'], root)}"
    elif kinds == "object":
        keys = part.get("propertyNames", {}).get("enum")
        words = "mapping" + (" with the keys " + ", ".join(f"`{key}`" for key in keys) if keys else "")
    bounds = _bounds(part)
    return f"{words} {bounds}".strip()


def _inner(part: Schema, root: Schema) -> tuple[str, list[Schema]]:
    """Mappings below a field that have fields of their own (several where it takes one of several forms)."""
    suffix = ""
    if part.get("type") == "array":
        suffix, part = "[]", _resolved(part["items"], root)
    elif isinstance(values := part.get("additionalProperties"), Mapping):
        suffix, part = ".NAME", _resolved(values, root)
    return suffix, [form for form in (part, *part.get("anyOf", ())) if "properties" in form]


def rows(part: Schema, root: Schema, path: str = "") -> Iterator[tuple[str, str, str, str]]:
    """(field, accepted, required or optional, meaning) of every field below `part`, in the schema's order."""
    required = part.get("required", ())
    for name, given in part["properties"].items():
        field = _resolved(given, root)
        where = f"{path}.{name}" if path else name
        need = "required" if name in required else "optional"
        yield where, accepted(field, root), need, str(field.get("description", ""))
        suffix, forms = _inner(field, root)
        for form in forms:
            yield from rows(form, root, where + suffix)


def field_reference(kind: str) -> str:
    """Markdown section of one document kind: heading, description and a table of its fields."""
    root = schema(kind)
    lines = [
        f"## {kind}: `{KINDS[kind]}`",
        "",
        str(root["description"]).strip(),
        "",
        "| field | takes | | meaning |",
        "|---|---|---|---|",
    ]
    for field, takes, need, meaning in rows(root, root):
        cells = [f"`{field}`", takes, need, meaning]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"
