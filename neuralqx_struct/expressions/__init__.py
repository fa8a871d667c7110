"""Expressions: the subset of Python in which schema files write sizes, constraints and derived fields.

Owns :class:`Expression` and parsing: ``ast.parse`` behind a scanner and an allow-list. The text is untrusted: nothing is
compiled, and size, depth and numbers are bounded. Callers add path, file and line to errors.

Example:
    >>> expression = parse("(2*n)+1")
    >>> expression.text, sorted(expression.names)
    ('2 * n + 1', ['n'])
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from neuralqx_struct.errors import Diagnostic, SchemaError, did_you_mean
from neuralqx_struct.expressions.functions import FUNCTIONS
from neuralqx_struct.expressions.operators import (
    MAX_BITS,
    MAX_DEPTH,
    MAX_EXPONENT,
    OPERATORS,
    SHORTEN,
    format_tree,
    refuse,
    spine,
)

MAX_TEXT = 4096
MAX_NODES = 500


@dataclass(frozen=True, slots=True)
class Expression:
    """A checked expression; equal to every expression of the same canonical text.

    Attributes:
        text: Canonical form: minimal parentheses, single spaces; ``parse(e.text) == e``. The same on every Python.
        names: The names it reads (fields and dims), functions excluded.
        tree: The checked tree, for ``evaluation.py`` and ``linear.py``; not to be changed.
    """

    text: str
    names: frozenset[str] = field(repr=False, compare=False)
    tree: ast.expr = field(repr=False, compare=False)

    def __str__(self) -> str:
        return self.text


# ---------------------------------------------------------------------------------------------------------------------
# Reading: scanner, parser, allow-list.

_ESCAPE = r"\\(?:[\\'\"abfnrtv]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})"
_PLAIN = r"\\\x00-\x1f\ud800-\udfff"
_TOKENS = (
    r"(?P<space>[ \t\r\n]+)"
    rf"|(?P<string>'(?:[^'{_PLAIN}]|{_ESCAPE})*'|\"(?:[^\"{_PLAIN}]|{_ESCAPE})*\")"
    r"|(?P<number>(?>0[xXoObB][0-9a-fA-F_]+|(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?)"
    r"(?![A-Za-z0-9_]))"
    r"|(?P<name>(?>[A-Za-z_][A-Za-z0-9_]*)(?!['\"]))"
    r"|(?P<open>[(\[])|(?P<close>[)\]])"
    r"|(?P<operator>"
)
_PAIRS = {"(": ")", "[": "]"}
_PREFIXES = frozenset({"-", "+", "not"})


def _token_pattern() -> re.Pattern[str]:
    """The pattern of one token, with the symbols of all operators; ``re`` caches it."""
    symbols = {record.symbol for record in OPERATORS.values() if not record.symbol[0].isalpha()}
    longest_first = sorted((*symbols, ","), key=len, reverse=True)
    return re.compile(_TOKENS + "|".join(map(re.escape, longest_first)) + ")")


def _scan(text: str) -> None:
    """Refuses deep nesting, odd characters and everything else that the parser would fail or warn about."""
    position, prefixes, previous = 0, 0, ""
    pattern = _token_pattern()
    brackets: list[tuple[str, int]] = []
    while position < len(text):
        column = position + 1
        token = pattern.match(text, position)
        if token is None or (token.lastgroup == "string" and previous == "string"):
            found = re.match(r"\w+['\"]?|.", text[position : position + 20], re.ASCII | re.DOTALL)
            bad = found.group() if found else ""
            hint = "put a comma or + between two strings" if token else _ADVICE.get(bad, _subset())
            refuse("NQX114", f"expected an expression, got {bad!r} at column {column}", hint)
        position = token.end()
        if token.lastgroup == "space":
            continue
        previous = token.lastgroup or ""
        prefixes = prefixes + 1 if token.group() in _PREFIXES else 0
        if previous == "open":
            brackets.append((token.group(), column))
        elif previous == "close" and (not brackets or _PAIRS[brackets.pop()[0]] != token.group()):
            refuse(
                "NQX114", f"expected balanced brackets, got {token.group()!r} at column {column}"
            )
        if len(brackets) > MAX_DEPTH or prefixes > MAX_DEPTH:
            message = f"expected at most {MAX_DEPTH} levels of nesting, got more at column {column}"
            refuse("NQX117", message, SHORTEN)
    if brackets:
        bracket, column = brackets[-1]
        refuse(
            "NQX114",
            f"expected balanced brackets, got {bracket!r} without an end at column {column}",
        )


def parse(text: str) -> Expression:
    """Read an expression.

    Args:
        text: Its text; spaces and line ends between its parts do not matter.

    Returns:
        The checked expression.

    Raises:
        SchemaError: Every problem of the text with its column: NQX114 outside of the subset, NQX116 an unknown
            function, NQX117 too long, too deep or too costly.

    Example:
        >>> parse("size(kernel)+alpha if (alpha>0) else 0").text
        'size(kernel) + alpha if alpha > 0 else 0'
    """
    if not isinstance(text, str):
        refuse(
            "NQX114",
            f"expected an expression as text, got {type(text).__name__}",
            "put it in quotes",
        )
    if len(text) > MAX_TEXT:
        refuse(
            "NQX117",
            f"expected at most {MAX_TEXT} characters, got {len(text)} at column {MAX_TEXT + 1}",
            SHORTEN,
        )
    _scan(text)
    source = text.translate({9: " ", 10: " ", 13: " "})
    indent = len(source) - len(source.lstrip(" "))
    try:
        tree = ast.parse(source[indent:], mode="eval").body
    except SyntaxError as error:
        column = indent + error.offset if error.offset else len(text) + 1
        rest = text[column - 1 :].strip()
        found = repr(rest if len(rest) <= 20 else f"{rest[:20]}...") if rest else "nothing more"
        refuse("NQX114", f"expected an expression, got {found} at column {column}", _subset())
    except (RecursionError, MemoryError):  # the stack of the parser is full
        refuse(
            "NQX117",
            f"expected at most {MAX_DEPTH} levels of nesting, got more at column 1",
            SHORTEN,
        )
    encoded = source[indent:].encode()
    return _accept(
        tree, lambda node: indent + len(encoded[: getattr(node, "col_offset", 0)].decode()) + 1
    )


def from_ast(node: ast.expr) -> Expression:
    """Check an expression that is already parsed, such as a dim inside a type.

    Args:
        node: The tree; the columns in messages are its own.

    Returns:
        The checked expression, as :func:`parse` gives it for the same text.

    Raises:
        SchemaError: As for :func:`parse`.

    Example:
        >>> from_ast(ast.parse("float32[2*n]", mode="eval").body.slice).text
        '2 * n'
    """
    return _accept(node, lambda inner: getattr(inner, "col_offset", 0) + 1)


def _accept(tree: ast.expr, column: Callable[[ast.AST], int]) -> Expression:
    problems: list[tuple[int, Diagnostic]] = []
    names: set[str] = set()
    stack: list[tuple[ast.AST, int]] = [(tree, 1)]
    nodes = 0
    while stack:
        node, depth = stack.pop()
        parts, children = _inside(node)
        nodes += len(parts)
        at = column(node)
        if depth > MAX_DEPTH:
            message = f"expected at most {MAX_DEPTH} levels of nesting, got more at column {at}"
            refuse("NQX117", message, SHORTEN)
        if nodes > MAX_NODES:
            message = f"expected at most {MAX_NODES} parts, got more at column {at}"
            refuse("NQX117", message, SHORTEN)
        for part in parts:
            at = column(part)
            for code, message, hint in _objections(part):
                problem = Diagnostic(code, "error", f"{message} at column {at}", hint=hint)
                problems.append((at, problem))
        if isinstance(node, ast.Name):
            names.add(node.id)
        stack += [(child, depth + 1) for child in children]
    if problems:
        raise SchemaError(problem for _, problem in sorted(problems, key=lambda pair: pair[0]))
    text = format_tree(tree)
    if len(text) > MAX_TEXT:
        message = f"expected at most {MAX_TEXT} characters in canonical form, got {len(text)}"
        refuse("NQX117", message, SHORTEN)
    return Expression(text, frozenset(names), tree)


# ---------------------------------------------------------------------------------------------------------------------
# The allow-list, with a hint for everything else.

# Syntax of Python or C that people try; the rest is named by its node type.
_FORBIDDEN: Mapping[type[ast.AST], str] = {
    ast.Attribute: "attribute access",
    ast.Await: "await",
    ast.Dict: "a dict",
    ast.DictComp: "a comprehension",
    ast.GeneratorExp: "a comprehension",
    ast.JoinedStr: "an f-string",
    ast.Lambda: "a lambda",
    ast.ListComp: "a comprehension",
    ast.NamedExpr: "an assignment",
    ast.Set: "a set",
    ast.SetComp: "a comprehension",
    ast.Slice: "a slice",
    ast.Starred: "unpacking with *",
    ast.Subscript: "a subscript",
    ast.Yield: "yield",
    ast.YieldFrom: "yield",
    ast.Is: "is",
    ast.IsNot: "is not",
}
_ADVICE: Mapping[str, str] = {
    "=": "compare with ==",
    "is": "compare with == or !=, also with None",
    "is not": "compare with == or !=, also with None",
    "&": "write `and`",
    "|": "write `or`",
    "!": "write `not`",
    "^": "powers are written **",
    ".": "attributes are not available; shape(x), size(x) and ndim(x) are functions",
    "attribute access": "attributes are not available; shape(x), size(x) and ndim(x) are functions",
    "a subscript": "only shapes have subscripts, with a number: shape(kernel)[0]",
}


def _subset() -> str:
    """A list of everything that expressions may have."""
    return (
        "use numbers, strings, names, + - * / // % **, comparisons, and/or/not, `x if c else y` and "
        f"the functions {' '.join(FUNCTIONS)}"
    )


_CONSTANTS = (bool, int, float, str, type(None))

#: Code, message and hint.
_Objection = tuple[str, str, str | None]


def _inside(node: ast.AST) -> tuple[Sequence[ast.AST], Sequence[ast.AST]]:
    """The operations at the top of a tree, and the nodes inside: a sum of 200 terms is long, not deep."""
    match node:
        case ast.BinOp() if type(node.op) in OPERATORS:
            first, steps = spine(node)
            return steps, [first, *(step.right for step in steps)]
        case ast.Call():
            return [node], node.args
        case ast.Subscript():
            return [node], [node.value]
        case _ if type(node) in _OBJECTIONS:
            inner = ast.iter_child_nodes(node)
            return [node], [each for each in inner if isinstance(each, ast.expr)]
    return [node], []


def _objections(node: ast.AST) -> Iterable[_Objection]:
    """The problems of a node, without those of the nodes inside."""
    return _OBJECTIONS.get(type(node), _foreign)(node)


def _none(_: ast.AST) -> Iterable[_Objection]:
    return ()


def _foreign(node: ast.AST) -> Iterable[_Objection]:
    found = _FORBIDDEN.get(type(node), type(node).__name__)
    hint = _ADVICE.get(found, _subset())
    yield "NQX114", f"expected an expression of the subset, got {found}", hint


def _constant_objections(node: ast.Constant) -> Iterable[_Objection]:
    value = node.value
    if type(value) not in _CONSTANTS:
        message = f"expected a number, string, True, False or None, got {type(value).__name__}"
        yield "NQX114", message, _subset()
    elif type(value) is float and not math.isfinite(value):
        yield "NQX114", "expected a finite number, got one that is too large for a float", None
    elif type(value) is int and value.bit_length() > MAX_BITS:
        bits = value.bit_length()
        yield "NQX117", f"expected numbers of at most {MAX_BITS} bits, got {bits} bits", None


def _name_objections(node: ast.Name) -> Iterable[_Objection]:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", node.id):
        yield "NQX114", f"expected a name of letters, digits and _, got {node.id!r}", None


def _operator_objections(node: ast.BinOp | ast.UnaryOp) -> Iterable[_Objection]:
    record = OPERATORS.get(type(node.op))
    if record is None:
        found = type(node.op).__name__
        yield "NQX114", f"expected an operator of the subset, got {found}", _subset()
    elif record.powers:
        exponent = getattr(getattr(node, "right", None), "value", None)
        if type(exponent) is int and exponent > MAX_EXPONENT:
            message = f"expected an exponent of at most {MAX_EXPONENT}, got a larger one"
            yield "NQX117", message, None


def _comparison_objections(node: ast.Compare) -> Iterable[_Objection]:
    for relation, right in zip(node.ops, node.comparators, strict=True):
        record = OPERATORS.get(type(relation))
        if record is None:
            found = _FORBIDDEN[type(relation)]
            yield "NQX114", f"expected a comparison, got `{found}`", _ADVICE[found]
        elif record.member and not _is_list_of_constants(right):
            wanted = f"a tuple or list of constants after `{record.symbol}`"
            hint = "write the choices out: x in ('a', 'b')"
            yield "NQX114", f"expected {wanted}, got another expression", hint


def _item_objections(node: ast.Subscript) -> Iterable[_Objection]:
    called = node.value.func if isinstance(node.value, ast.Call) else None
    if not isinstance(called, ast.Name) or called.id != "shape":
        yield from _foreign(node)
        return
    index = getattr(node.slice, "operand", node.slice)
    if type(getattr(index, "value", None)) is not int or not _is_constant(node.slice):
        message = "expected one whole number as subscript of a shape, got another"
        yield "NQX114", message, "write shape(x)[0]"


def _call_objections(node: ast.Call) -> Iterable[_Objection]:
    known = f"functions: {', '.join(FUNCTIONS)}"
    if not isinstance(node.func, ast.Name):
        yield "NQX114", "expected the name of a function before (, got another expression", known
        return
    name, count = node.func.id, len(node.args)
    record = FUNCTIONS.get(name)
    if record is None:
        hint = did_you_mean(name, FUNCTIONS) or known
        yield "NQX116", f"expected a known function, got {name!r}", hint
    elif node.keywords:
        yield "NQX114", f"expected arguments without names for {name}(), got name=value", None
    elif not count or (record.single and count > 1):
        wanted = "one argument" if record.single else "at least one argument"
        yield "NQX114", f"expected {wanted} for {name}(), got {count}", None


def _is_list_of_constants(node: ast.expr) -> bool:
    return isinstance(node, ast.Tuple | ast.List) and all(map(_is_constant, node.elts))


def _is_constant(node: ast.expr) -> bool:
    """True for a constant, also with a minus."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node = node.operand
    return isinstance(node, ast.Constant)


#: The nodes of the language.
_OBJECTIONS: Mapping[type[ast.AST], Callable[[Any], Iterable[_Objection]]] = {
    ast.Constant: _constant_objections,
    ast.Name: _name_objections,
    ast.BinOp: _operator_objections,
    ast.UnaryOp: _operator_objections,
    ast.BoolOp: _none,
    ast.Compare: _comparison_objections,
    ast.IfExp: _none,
    ast.Tuple: _none,
    ast.List: _none,
    ast.Call: _call_objections,
    ast.Subscript: _item_objections,
}
