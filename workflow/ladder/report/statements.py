"""Statements of the sources, a line each: what fails first, and what another GPU's numbers say is apart."""

from pandas import DataFrame

from ladder.claims.ledger import overall
from ladder.claims.primitives import (
    EQUIVALENT,
    HOLDS,
    MORE,
    NOT_MEASURED,
    ONLY_WHERE,
    REFUTED,
    UNDECIDED,
)
from ladder.model.schemas import Fields, TableRow
from ladder.report.markdown import number
from ladder.results.statistics import records

OTHER_GPU = ("hip-gemm", "harris-reduction", "flash-attention-3")
"""The sources that measured another GPU than any that is published here: an AMD MI100, a G80, an H100."""
NOT_HERE = "does not hold here"
"""Verdict of a refuted statement of a source that measured another one."""
_WORST_FIRST = (
    REFUTED,
    NOT_HERE,
    ONLY_WHERE,
    UNDECIDED,
    EQUIVALENT,
    HOLDS,
    MORE,
    NOT_MEASURED,
)


def claim_lines(claims: DataFrame) -> list[TableRow]:
    """A line a claim, what fails first: `id`, `source` (the text), `statement`, `verdict`, and the `number`.

    The verdict and the number are those of its worst part, and `where` says at which values it holds only there.
    Columns: id, verdict, source, statement, where, part, effect.
    """
    worst = claims[claims["verdict"] == claims["id"].map(overall(claims))]
    lines = []
    for part in records(worst.drop_duplicates("id")):
        verdict = part["verdict"]
        text, _, _ = part["source"].partition(" ")
        elsewhere = verdict == REFUTED and text in OTHER_GPU
        line = {
            "id": part["id"],
            "source": text,
            "statement": part["statement"],
            "verdict": NOT_HERE if elsewhere else verdict,
            "where": _where(part) if verdict == ONLY_WHERE else "",
            "number": _number(part),
        }
        lines.append(line)
    return sorted(lines, key=lambda line: _WORST_FIRST.index(line["verdict"]))


def _where(part: Fields) -> str:
    """n = 1024, 2048: at which values a part holds that is refuted at others."""
    places = []
    for verdicts in (part["where"] or "").split("; "):
        verdict, _, place = verdicts.partition(" at ")
        if verdict in (HOLDS, MORE):
            places.append(place)
    return ", ".join(places)


def _number(part: Fields) -> str:
    """1.50 x speed over plain A: the number of a part, and what it is of."""
    if part["effect"] is None:
        return ""
    label, _, _ = part["part"].rpartition(": ")
    unit = "x " if " over " in label else ""
    return f"{number(part['effect'], 3)} {unit}{label}"
