"""Reading YAML documents and holding them to their models, with errors a person can act on."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from ruamel.yaml import YAML
from ruamel.yaml.constructor import ConstructorError, SafeConstructor
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.events import CollectionEndEvent, CollectionStartEvent
from ruamel.yaml.nodes import MappingNode

from ladder.model.document import Document, reading
from ladder.model.errors import File, LadderError, refuse, refuse_unknown, within
from ladder.model.expressions import whole
from ladder.model.files import read_text
from ladder.model.problem import Problem
from ladder.problems.registry import PROBLEMS

_MOST_FIELDS, _MOST_CHARACTERS, _MOST_LEVELS, _LONGEST = 1000, 1_000_000, 50, 3000
Kind = TypeVar("Kind", bound=Document)


class _Constructor(SafeConstructor):
    def flatten_mapping(self, node: MappingNode) -> Any:
        """Merge what `<<` names: merges of merges are copied, so that each level may double their number."""
        merged_keys = super().flatten_mapping(node)
        if (count := len(node.value)) > _MOST_FIELDS:
            wrong = f"a mapping of {count} fields; accepted: at most {_MOST_FIELDS}"
            raise ConstructorError(None, None, wrong, node.start_mark)
        return merged_keys


_Constructor.add_constructor(
    "tag:yaml.org,2002:timestamp", SafeConstructor.construct_yaml_str
)


def _refuse_hostile(text: str) -> None:
    """Raises ValueError for what a parser would crash on: it recurses, in C."""
    if len(text) > _MOST_CHARACTERS:
        raise ValueError(
            f"{len(text)} characters; accepted: at most {_MOST_CHARACTERS}"
        )
    depth = 0
    for event in YAML(typ="safe").parse(text):
        if isinstance(event, CollectionStartEvent):
            depth += 1
        if isinstance(event, CollectionEndEvent):
            depth -= 1
        if depth > _MOST_LEVELS or len(getattr(event, "value", "")) > _LONGEST:
            line = event.start_mark.line + 1
            raise ValueError(
                f"line {line}: over {_MOST_LEVELS} levels or {_LONGEST} characters"
            )


def parse_yaml(text: str, where: File, as_written: bool = False) -> Any:
    """The data of a YAML 1.2 text, of a date text. Raises LadderError, after `where`, for malformed text.

    `as_written`: every scalar is text, also 0123 and 2026_11_29, of which YAML makes numbers.
    """
    loader = YAML(typ="base" if as_written else "safe")
    if not as_written:
        loader.Constructor = _Constructor
    try:
        _refuse_hostile(text)
        return loader.load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark
        line = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise LadderError(f"{where}: {line}not valid YAML: {error.problem}") from error
    except Exception as error:  # a parser in C raises anything
        raise LadderError(f"{where}: not valid YAML: {error}") from error


def refuse_name(path: Path) -> None:
    """Raises LadderError for a document's name that is not fit for paths, commands and a terminal."""
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]*\.yaml", path.name):
        accepted = "NAME.yaml, of letters, digits, '_' and '-'"
        raise refuse(path, "file name", path.name, accepted)


def documents_in(folder: Path, pattern: str) -> Iterator[Path]:
    """YAML files in a folder, sorted, but for those that are hidden. Raises LadderError as refuse_name."""
    for path in sorted(folder.glob(pattern)):
        if "/." not in f"/{path.relative_to(folder)}" and (
            path.suffix.lower() in (".yaml", ".yml")
        ):
            refuse_name(path)
            yield path


def read_yaml(path: Path) -> dict[str, Any]:
    """Parse one YAML file. Raises LadderError where it is missing, unreadable, malformed or no mapping."""
    document = parse_yaml(read_text(path), path)
    if not isinstance(document, dict):
        raise LadderError(
            f"{path}: a mapping of fields is expected, found {type(document).__name__}"
        )
    return document


def parse(kind: type[Kind], document: Mapping[str, Any], file: File) -> Kind:
    """Hold a document to its model. Raises LadderError for the first mistake."""
    context = {"file": file, "problems": PROBLEMS}
    with reading(file):
        return kind.model_validate(document, context=context)


def parse_size(problem: Problem, given: Any, file: Path, where: str) -> dict[str, int]:
    """A size from a number (all fields alike), an expression or a mapping. Raises LadderError naming `where`."""
    fields = problem.size_fields
    if not isinstance(given, Mapping):
        given = dict.fromkeys(fields, given)
    for key in given:
        refuse_unknown(file, where, key, fields, "no such size field")
    size = {}
    for key in fields:
        if key not in given:
            raise LadderError(f"{file}: {where}: the size field {key!r} is missing")
        field = f"{where}.{key}"
        with within(f"{file}: {field}"):
            size[key] = whole(given[key], {})
        if not 1 <= size[key] < 2**31:
            raise refuse(file, field, given[key], "a whole number >= 1 and < 2**31")
    return size
