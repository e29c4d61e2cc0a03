"""What one set of tables answers beside another: the numbers of release notes, none of which is typed."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ladder.claims.primitives import NOT_MEASURED
from ladder.model.folders import RunFolder
from ladder.report import markdown, words
from ladder.report.answers import Answer, answers
from ladder.report.choices import choices
from ladder.report.document import claim_lines
from ladder.report.links import Links
from ladder.results.run_data import Row, RunData
from ladder.results.templates import TEMPLATES
from ladder.results.verdicts import gain

TEMPLATES.filters |= {"unlinked": markdown.unlinked, "ends": words.ends}


@dataclass(frozen=True)
class Moved:
    """The fastest configuration of a dtype and layout at a size, in single launches or for seconds, then and now."""

    kind: str
    layout: str
    size: int
    regime: str
    old: Row | None
    new: Row | None

    @property
    def expected(self) -> bool | None:
        """Whether the new speed-up lies where the old tables predicted another GPU; None where they did not, or the
        configuration is another one.
        """
        if self.old is None or self.new is None or self.old["variant"] != self.new["variant"]:
            return None
        predicted, now = gain(self.old).predicted, gain(self.new).value
        return predicted.low <= now <= predicted.high if predicted.known else None


def _moved(before: RunData, after: RunData) -> Iterator[Moved]:
    """Every place of `choices` in either, the order of the new one first."""
    rows = [
        {(one.kind, one.layout, one.size, row["regime"]): row for one in choices(data) for row in one.rows}
        for data in (before, after)
    ]
    for place in dict.fromkeys([*rows[1], *rows[0]]):
        yield Moved(*place, rows[0].get(place), rows[1].get(place))


def _claims(before: RunData, after: RunData) -> Iterator[dict[str, Any]]:
    """Claims whose verdict is another one, with its line then and now; None where there was no such claim."""
    lines = [{line["id"]: line for line in claim_lines(data.frames["claims"])} for data in (before, after)]
    for name in dict.fromkeys([*lines[1], *lines[0]]):
        old, new = (of.get(name) for of in lines)
        verdicts = [line["verdict"] if line else NOT_MEASURED for line in (old, new)]
        if verdicts[0] != verdicts[1]:
            yield {"id": name, "old": old, "new": new}


def changes(before: RunFolder, old: RunData, after: RunFolder, new: RunData) -> str:
    """Each answer of two folders of tables, each configuration to use with its ranges, and the claims that changed."""
    answered = [
        {one.name: one for one in answers(data, Links(folder, folder.root, data))}
        for folder, data in ((before, old), (after, new))
    ]
    pairs: list[tuple[Answer, Answer]] = [(answered[0][name], one) for name, one in answered[1].items()]
    said = {
        "sides": (old, new),
        "answers": pairs,
        "moved": [*_moved(old, new)],
        "claims": [*_claims(old, new)],
    }
    return TEMPLATES.get_template("changes.md.j2").render(said)
