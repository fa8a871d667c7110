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
import copy
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

from neuralqx_struct.errors import Diagnostic, SchemaError
from neuralqx_struct.expressions.functions import with_given
from neuralqx_struct.expressions.grammar import (
    ADVICE,
    folded,
    head_of,
    inside,
    is_path,
    names_in,
    objections,
    subset_text,
)
from neuralqx_struct.expressions.operators import (
    MAX_DEPTH,
    OPERATORS,
    SHORTEN,
    format_tree,
    parse_tree,
    refuse,
)
from neuralqx_struct.printing import cut

MAX_TEXT = 4096
MAX_NODES = 500


@dataclass(frozen=True, slots=True)
class Expression:
    """A checked expression; equal to every expression of the same canonical text.

    Attributes:
        text: Canonical form: minimal parentheses, single spaces; ``parse(e.text) == e``. The same on every Python.
        names: The names it reads (fields and dims, with paths such as ``optimizer.step``), functions excluded.
        tree: The checked tree, in which each path is one name; not to be changed.
    """

    text: str
    names: frozenset[str] = field(repr=False, compare=False)
    tree: ast.expr = field(repr=False, compare=False)

    def __str__(self) -> str:
        return self.text

    @property
    def heads(self) -> frozenset[str]:
        """The fields and dims that it reads, whole or in part."""
        return frozenset(map(head_of, self.names))


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


@lru_cache(maxsize=8)
def _token_pattern(operators: frozenset[str]) -> re.Pattern[str]:
    """The pattern of one token, with the symbols of all operators."""
    symbols = {symbol for symbol in operators if not symbol[0].isalpha()}
    longest_first = sorted((*symbols, ",", "."), key=len, reverse=True)
    return re.compile(_TOKENS + "|".join(map(re.escape, longest_first)) + ")")


def _scan(text: str) -> None:
    """Refuses deep nesting, odd characters and everything else that the parser would fail or warn about."""
    position, prefixes, previous = 0, 0, ""
    pattern = _token_pattern(frozenset(record.symbol for record in OPERATORS.values()))
    brackets: list[tuple[str, int]] = []
    while position < len(text):
        column = position + 1
        token = pattern.match(text, position)
        if token is None or (token.lastgroup == "string" and previous == "string"):
            found = re.match(r"\w+['\"]?|.", text[position : position + 20], re.ASCII | re.DOTALL)
            bad = found.group() if found else ""
            hint = (
                "put a comma or + between two strings" if token else ADVICE.get(bad, subset_text())
            )
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
        tree = parse_tree(source[indent:])
    except SyntaxError as error:
        column = indent + error.offset if error.offset else len(text) + 1
        rest = text[column - 1 :].strip()
        found = repr(cut(rest, 23)) if rest else "nothing more"
        refuse("NQX114", f"expected an expression, got {found} at column {column}", subset_text())
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


def parse_equation(text: str) -> Expression:
    """Read an expression of sizes, in which a function of fields is one name.

    Example:
        >>> sorted(parse_equation("2 * n + sum(layers.width)").names)
        ['n', 'sum(layers.width)']
    """
    expression = parse(text)
    tree = with_given(copy.deepcopy(expression.tree))
    return Expression(expression.text, frozenset(name.id for name in names_in(tree)), tree)


def from_ast(node: ast.expr) -> Expression:
    """Check a size that is already parsed, such as a dim inside a type; it has no paths.

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
    return _accept(node, lambda inner: getattr(inner, "col_offset", 0) + 1, paths=False)


def _accept(tree: ast.expr, column: Callable[[ast.AST], int], *, paths: bool = True) -> Expression:
    problems: list[tuple[int, Diagnostic]] = []
    has_paths = False
    stack: list[tuple[ast.AST, int]] = [(tree, 1)]
    nodes = 0
    while stack:
        node, depth = stack.pop()
        parts, children = inside(node)
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
            for code, message, hint in objections(part):
                problem = Diagnostic(code, "error", f"{message} at column {at}", hint=hint)
                problems.append((at, problem))
        if isinstance(node, (ast.Attribute, ast.Subscript)) and not problems and is_path(node):
            has_paths = True
            if not paths:
                text = format_tree(node)
                hint = f"declare a dim with `equals: {text}`, and write its name here"
                refuse("NQX114", f"expected a size, got {text} at column {at}", hint)
        stack += [(child, depth + 1) for child in children]
    if problems:
        raise SchemaError(problem for _, problem in sorted(problems, key=lambda pair: pair[0]))
    if has_paths:
        tree = folded(tree)
    text = format_tree(tree)
    if len(text) > MAX_TEXT:
        message = f"expected at most {MAX_TEXT} characters in canonical form, got {len(text)}"
        refuse("NQX117", message, SHORTEN)
    return Expression(text, frozenset(name.id for name in names_in(tree)), tree)
