"""Arithmetic in kernel and sweep files (launch geometry, constraints, shared bytes), evaluated safely.

Only numbers, strings, names given by the caller and a few integer functions exist; there is no attribute
access and no way to reach Python itself (simpleeval walks the syntax tree).
"""

import ast
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

from simpleeval import InvalidExpression, SimpleEval

from ladder.model.errors import LadderError


def ceil_div(numerator: int, denominator: int) -> int:
    """Smallest integer not below numerator / denominator."""
    if denominator == 0:
        raise ZeroDivisionError("ceil_div by zero")
    return -(-numerator // denominator)


def align_up(value: int, multiple: int) -> int:
    """Smallest multiple of `multiple` not below `value`."""
    return ceil_div(value, multiple) * multiple


def is_power_of_two(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "align_up": align_up,
    "ceil_div": ceil_div,
    "gcd": math.gcd,
    "is_power_of_two": is_power_of_two,
    "log2": math.log2,
    "max": max,
    "min": min,
}


@functools.cache
def _parsed(expression: str) -> ast.expr:
    # SimpleEval.parse takes assignments and several statements too, and evaluates the first.
    return ast.parse(expression.strip(), mode="eval").body


@functools.cache
def _words(expression: str) -> tuple[frozenset[str], frozenset[str]]:
    """Names of values and of functions that an expression uses."""
    nodes = list(ast.walk(_parsed(expression)))
    calls = [node.func for node in nodes if isinstance(node, ast.Call)]
    called = frozenset(name.id for name in calls if isinstance(name, ast.Name))
    return frozenset({node.id for node in nodes if isinstance(node, ast.Name)} - called), called


@functools.lru_cache(maxsize=2**17)
def _value(expression: str, names: tuple[tuple[str, Any], ...]) -> Any:
    """Value over just the names it uses: most expressions do not change from cell to cell."""
    interpreter = SimpleEval(functions=FUNCTIONS, names=dict(names))
    return interpreter.eval(expression, previously_parsed=_parsed(expression))


def evaluate(
    expression: str | int | float,
    names: Mapping[str, Any],
    functions: Mapping[str, Callable[..., Any]] | None = None,
) -> Any:
    """Value of an expression over `names`; `functions` are added to the ones every expression has.

    Raises LadderError naming the expression and the names that exist.
    """
    if isinstance(expression, int | float):
        return expression
    try:
        if functions is None:
            used = tuple((name, names[name]) for name in _words(expression)[0] if name in names)
            return _value(expression, used)
        interpreter = SimpleEval(functions={**FUNCTIONS, **functions}, names=dict(names))
        return interpreter.eval(expression, previously_parsed=_parsed(expression))
    except (InvalidExpression, SyntaxError, ArithmeticError, TypeError, ValueError, KeyError) as error:
        known = ", ".join(sorted([*names, *FUNCTIONS, *(functions or {})]))
        raise LadderError(f"expression {expression!r}: {error}; known names: {known}") from error


def words(expression: str | int | float) -> tuple[frozenset[str], frozenset[str]]:
    """Names and functions an expression uses, without evaluating it.

    Raises LadderError where it is not an expression at all.
    """
    try:
        return _words(str(expression))
    except (InvalidExpression, SyntaxError, ValueError) as error:
        raise LadderError(f"expression {expression!r}: {error}") from error


def refuse_unknown(expression: str, known: Mapping[str, Any]) -> None:
    """Raises LadderError for a name or function that does not exist, also where evaluation need not come to it."""
    named, called = words(expression)
    for word in sorted((named | called) - {*known, *FUNCTIONS}):
        listed = ", ".join(sorted([*known, *FUNCTIONS]))
        raise LadderError(f"expression {expression!r}: {word!r} is not defined; known names: {listed}")


def whole(expression: str | int, value: Any) -> int:
    """The value of an expression that counts. Raises LadderError where it is no whole number."""
    if isinstance(value, bool) or value != int(value):
        raise LadderError(f"expression {expression!r}: gave {value!r}, a whole number is needed")
    return int(value)
