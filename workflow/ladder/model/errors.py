"""The one error a user sees: which file, which field, which value, and what would be accepted."""

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path


class LadderError(Exception):
    """A mistake in what the user gave (configuration, sweep, kernel file, command line)."""


def refuse(
    file: Path | str,
    field: str,
    value: object,
    accepted: Iterable[object] | str,
    *,
    why: str = "",
) -> LadderError:
    """Build the error for one refused value.

    `accepted` is either a sentence or the accepted values; close misspellings get a suggestion.
    """
    if isinstance(accepted, str):
        wanted, hint = accepted, ""
    else:
        names = [str(name) for name in accepted]
        wanted = ", ".join(names) if names else "nothing"
        close = difflib.get_close_matches(str(value), names, n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
    reason = f" {why};" if why else ""
    return LadderError(f"{file}: {field}: {value!r} is not accepted{hint};{reason} accepted: {wanted}")


@contextmanager
def within(where: str) -> Iterator[None]:
    """Put `where` before a mistake that is found inside."""
    try:
        yield
    except LadderError as error:
        raise LadderError(f"{where}: {error}") from error
