"""The one error a user sees: which file, which field, which value, and what would be accepted."""

import difflib
import reprlib
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

File = Path | str
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 300


class LadderError(Exception):
    """A mistake in what the user gave (configuration, sweep, kernel file, command line)."""

    def __str__(self) -> str:
        text = super().__str__()
        return text if len(text) <= 2000 else f"{text[:1000]} … {text[-1000:]}"


def refuse(
    file: File, field: str, value: Any, accepted: Iterable[Any] | str, why: str = ""
) -> LadderError:
    """Build the error for one refused value; `accepted` is a sentence or the values, of which a near one is named."""
    names: list[str] = []
    if not isinstance(accepted, str):
        names = [str(name) for name in accepted]
        accepted = ", ".join(names) or "nothing"
    shown = _SHORT.repr(value)
    near = _nearest(shown.strip("'"), names)
    hint = f" (did you mean {near!r}?)" if near else ""
    if near and near == str(value):
        hint = f" (it is {'text' if isinstance(value, str) else 'no text'})"
    reason = f" {why};" if why else ""
    return LadderError(
        f"{file}: {field}: {shown} is not accepted{hint};{reason} accepted: {accepted}"
    )


def _nearest(word: str, names: list[str]) -> str | None:
    """The name that is nearest to a word; None where none is near. Of equals the first; difflib takes the last."""
    likeness = {
        name: difflib.SequenceMatcher(None, name, word).ratio() for name in names
    }
    near = max(likeness, key=likeness.__getitem__, default="")
    return near if likeness.get(near, 0.0) >= 0.6 else None


def refuse_unknown(
    file: File, field: str, value: Any, accepted: Collection[Any], why: str = ""
) -> None:
    """Raises what `refuse` builds unless the value is one of the accepted ones."""
    if value not in list(accepted):
        raise refuse(file, field, value, accepted, why=why)


@contextmanager
def within(where: str) -> Iterator[None]:
    """Put `where` before a mistake that is found inside."""
    try:
        yield
    except LadderError as error:
        raise LadderError(f"{where}: {error}") from error
