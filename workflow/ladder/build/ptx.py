"""Global variables that PTX only reads: tables of constants, which are no state though their memory can be written.

A `constexpr` array that is indexed at run time lies in global memory, as the tables of sinf do. C++ may cast its
constness away, and inline PTX may name any table. So what decides is how the PTX uses it from which the cubin was made:
its address may be copied, added to and loaded from. A variable with which anything else is done is no table.
"""

import re
from collections.abc import Iterator, Sequence

_UNREAD = re.compile(r'"[^"\n]*"|//[^\n]*')
"""Text in quotes, and comments."""
_UNUSUAL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\\]|/\*")
_UNCLEAR = re.compile(r'["#]|[^\x00-\x7f]')
"""What the compiler does not write, in all of PTX and outside of quotes and comments: ptxas may read it otherwise."""
_GROUP = re.compile(r"\{([^{};]*)\}")
"""Operands or initial values in braces, not statements."""
_NAME = re.compile(r"[%\w$]+")
_VARIABLE = re.compile(
    r"""(?:\s*\.(?:version|target|address_size|file)\b[^\n]*\n)* \s*
        \.global \s+ \.align\s+\d+ \s+ \.\w+ \s+ (?P<name> [\w$]+) (?:\[\d+\])?
        (?:\s*=\s* (?:<[-\d\s,]*>|-?\d+))? \s*""",
    re.VERBOSE,
)
"""A variable of the module. One whose initial value has names may hold addresses, and does not match."""
_INNER = re.compile(r"(?<![\w:])\.global\b")
"""A variable of a function, to which ptxas may give the name of another one."""
_INSTRUCTION = re.compile(
    r"""(?P<before> (?:\s*(?:[\w$]+:|\.loc\s[^\[\]<>\n]*\n))* \s* (?:@!?[%\w$]+\s+)? )
        (?P<name> [a-z]\w*(?:\.[\w:]+)*) \s+ (?P<target> [%\w$]+ | <[^<>]*>) \s*,\s* (?P<sources> .*)""",
    re.VERBOSE | re.DOTALL,
)
"""An instruction behind labels, a line number and its predicate."""
_COPY = re.compile(
    r"(?:mov|add|sub|selp|mad\.lo|mad\.wide|cvta\.global|cvta\.to\.global)\.[subf]\d\d"
)
"""Instructions whose result may be an address if a source is one. No flag or predicate tells anything of it."""
_LOAD, _PLACE = re.compile(r"ld(?:\.[\w:]+)*"), re.compile(r"\[[^\[\]]*\]\s*")


def _names(text: str) -> set[str]:
    return set(_NAME.findall(text))


def _parts(text: str) -> Iterator[tuple[bool, str]]:
    """A module in parts: whether one is the body of a function, and its text."""
    depth, begin = 0, 0
    for brace in re.finditer(r"[{}]", text):
        before, depth = depth, depth + (1 if brace[0] == "{" else -1)
        if before == 0 or depth == 0:
            yield before > 0, text[begin : brace.start()]
            begin = brace.end()
    yield False, text[begin:]


def _result(statement: str, addresses: set[str]) -> str | None:
    """Of a statement that names addresses the register that holds one behind it, "" for none; None if it is refused."""
    instruction = _INSTRUCTION.fullmatch(statement)
    if instruction is None or addresses & _names(instruction["before"]):
        return None
    name, target, sources = instruction.group("name", "target", "sources")
    if _LOAD.fullmatch(name) and _PLACE.fullmatch(sources):
        return ""
    *factors, _ = sources.split(",")
    multiplied = name.startswith("mad") and addresses & _names(",".join(factors))
    if multiplied or not _COPY.fullmatch(name) or not _NAME.fullmatch(target):
        return None
    return target if addresses & _names(sources) else ""


def _only_read(variable: str, statements: Sequence[str]) -> bool:
    """Whether a function does no more with a variable, and with all that may be its address, than to copy and load."""
    addresses, looked_at = {variable}, 0
    while looked_at < len(addresses):
        looked_at = len(addresses)
        for statement in statements:
            if addresses.isdisjoint(_names(statement)):
                continue
            if (result := _result(statement, addresses)) is None:
                return False
            addresses |= {result} - {""}
    return True


def tables(ptx: str) -> list[str]:
    """Names of the global variables of a module that its code reads and does no more with, sorted."""
    text = _UNREAD.sub("", ptx)
    if _UNUSUAL.search(ptx) or _UNCLEAR.search(text):
        return []
    parts = [*_parts(_GROUP.sub(r"<\1>", text))]
    bodies = [part for is_body, part in parts if is_body]
    if any(map(_INNER.search, bodies)):
        return []
    variables, others = set[str](), set[str]()
    outside = ";".join(part for is_body, part in parts if not is_body)
    for statement in outside.split(";"):
        if variable := _VARIABLE.fullmatch(statement):
            variables.add(variable["name"])
        else:
            others |= _names(statement)
    used = (variables - others) & _names("\n".join(bodies))
    functions = [re.split("[;{}]", body) for body in bodies] if used else []
    return sorted(
        name for name in used if all(_only_read(name, body) for body in functions)
    )
