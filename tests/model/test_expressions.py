"""Expressions of documents: what is refused, and that the reference names every function."""

from __future__ import annotations

import re

import pytest
from conftest import ROOT
from ladder.model.errors import LadderError
from ladder.model.expressions import FUNCTIONS, evaluate, holds


@pytest.mark.parametrize(
    ("text", "why"),
    [
        *(
            (text, "")
            for text in ("m = 128", "m == 1; m == 2", "m == 1\nm == 2", "m ==", "")
        ),
        ("2^24", r"2\*\*24"),
        ("m.real", "Attribute"),
        ("f'{m:999999999}'", "JoinedStr"),
        ("name[9]", "Subscript"),
        ("max(*m)", "Starred"),
        ("'%999999999d' % m", "divmod"),
        ("name % 2", "divmod"),
        ("name", "not str"),
        ("None", "NoneType"),
        ("1e400", "inf"),
        ("1e400 - 1e400", "nan"),
        ("10**400", "too large"),
        (
            "(9**3999999) * (9**3999999)",
            r"a power is too large; accepted: below 2\*\*1024",
        ),
        ("2.0**99999", "too large"),
        ("'a'**2", "str"),
        ("10**10**8", "a power is too large"),
        ("m / 0", "zero"),
        ("log2(0)", "math domain|positive"),
        ("gcd(1.5)", "float"),
        ("is_power_of_two(name)", "not supported"),
        ("(-1)**0.5", "complex"),
        ("1(2)", "not implemented"),
        ("m + " * 250 + "1", "longer than 1000"),
        ("-" * 900 + "m", "recursion"),
        ("(" * 400 + "m" + ")" * 400, "parentheses"),
    ],
)
def test_what_is_no_one_expression_of_a_number_is_refused(text: str, why: str) -> None:
    with pytest.raises(LadderError, match=f"(?s)expression.*{why}"):
        evaluate(text, {"m": 128, "name": "NN"})


def test_a_condition_that_gives_a_number_is_refused() -> None:
    """Which is true where `n % 128 == 0` is false."""
    assert holds("n % 128 == 0 and n > 1", {"n": 256})
    assert not holds("n % 128 == 0", {"n": 100})
    with pytest.raises(LadderError, match="gave 100, true or false is needed"):
        holds("n % 128", {"n": 100})


def test_the_readme_names_every_function_of_expressions() -> None:
    readme = (ROOT / "config/README.md").read_text()
    assert set(
        re.findall(r"`(\w+)`", readme.split("The functions are")[1].split(";")[0])
    ) == set(FUNCTIONS)
