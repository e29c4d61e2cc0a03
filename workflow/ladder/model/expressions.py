"""Arithmetic in kernel and sweep files (launch geometry, constraints, shared bytes), evaluated safely by simpleeval.

There are numbers, strings, the names given and a few integer functions, and no way to reach Python itself.
"""

import ast
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

from simpleeval import DEFAULT_OPERATORS, InvalidExpression, SimpleEval

from ladder.model.errors import LadderError, refuse


def ceil_div(numerator: int, denominator: int) -> int:
    """Smallest integer not below numerator / denominator."""
    return -(-numerator // denominator)


def align_up(value: int, multiple: int) -> int:
    """Smallest multiple of `multiple` not below `value`."""
    return ceil_div(value, multiple) * multiple


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "abs": abs,
    "align_up": align_up,
    "ceil_div": ceil_div,
    "gcd": math.gcd,
    "is_power_of_two": lambda value: value > 0 and value & (value - 1) == 0,
    "log2": math.log2,
    "max": max,
    "min": min,
}
_POWER_BITS = 1024  # of a power: products of them stay small


def _power(base: float, exponent: float) -> Any:
    """Raises ValueError for a power that would take long, as 9**3999999 does, before it is worked out."""
    if math.log2(max(abs(base), 2)) * exponent > _POWER_BITS:
        raise ValueError(f"a power is too large; accepted: below 2**{_POWER_BITS}")
    return base**exponent


# % would format text.
_OPERATORS = {
    **DEFAULT_OPERATORS,
    ast.Mod: lambda left, right: divmod(left, right)[1],
    ast.Pow: _power,
}
_NODES = (
    ast.BinOp,
    ast.BoolOp,
    ast.Call,
    ast.Compare,
    ast.Constant,
    ast.IfExp,
    ast.Name,
    ast.UnaryOp,
)


@functools.cache
def _parsed(expression: str) -> tuple[ast.expr, frozenset[str]]:
    """Syntax tree of an expression, and the names in it, but for FUNCTIONS."""
    try:
        if len(expression) > 1000:
            raise ValueError("longer than 1000 characters")
        if expression.count("(") > expression.count(")"):
            raise ValueError(
                "a ) is missing; in a list of YAML it ends at a comma: quote it"
            )
        # SimpleEval.parse takes assignments and several statements too, and evaluates the first.
        tree = ast.parse(expression.strip(), mode="eval").body
        nodes = list(ast.walk(tree))
        for node in nodes:
            if isinstance(node, ast.BitXor):
                raise ValueError("^ is not available; a power is written 2**24")
            is_value = isinstance(node, ast.expr | ast.keyword)
            if is_value and not isinstance(node, _NODES):
                raise ValueError(f"{type(node).__name__} is not available")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise LadderError(f"expression {expression!r}: {error}") from error
    names = frozenset(node.id for node in nodes if isinstance(node, ast.Name))
    return tree, names - FUNCTIONS.keys()


def names_in(expression: str | float) -> frozenset[str]:
    """Names that an expression uses, but for FUNCTIONS. Raises LadderError where it is none."""
    return _parsed(str(expression))[1]


@functools.cache
def _value(expression: str, *values: Any) -> Any:
    """Value for just the names it uses."""
    tree, used = _parsed(expression)
    names = dict(zip(used, values, strict=True))
    return SimpleEval(_OPERATORS, FUNCTIONS, names).eval(expression, tree)


def evaluate(expression: str | float, names: Mapping[str, Any]) -> Any:
    """Number or truth value over `names`. Raises LadderError for any other, and for an unknown name, reached or not."""
    if isinstance(expression, int | float):
        return expression
    used = names_in(expression)
    for name in used - names.keys():
        where, accepted = f"expression {expression!r}", sorted({*names, *FUNCTIONS})
        raise refuse(where, "name", name, accepted, "it is not defined")
    try:
        value = _value(expression, *[names[name] for name in used])
        if not math.isfinite(value):
            raise ValueError(f"gives {value}")
        return value
    except (
        InvalidExpression,
        ArithmeticError,
        TypeError,
        ValueError,
        RecursionError,
    ) as error:
        raise LadderError(f"expression {expression!r}: {error}") from error


def holds(expression: str, names: Mapping[str, Any]) -> bool:
    """The value of a condition. Raises LadderError where it is a number, and as `evaluate`."""
    value = evaluate(expression, names)
    if not isinstance(value, bool):
        raise LadderError(
            f"expression {expression!r}: gave {value!r}, true or false is needed; "
            "accepted: a comparison, such as n % 128 == 0"
        )
    return value


def whole(expression: str | int, names: Mapping[str, Any]) -> int:
    """The value of an expression that counts. Raises LadderError where it is no whole number, as `evaluate` does."""
    value = evaluate(expression, names)
    if isinstance(value, bool) or value != int(value):
        raise LadderError(
            f"expression {expression!r}: gave {value!r}, a whole number is needed; "
            "accepted: a // b and ceil_div(a, b) in place of a / b"
        )
    return int(value)
