"""Expressions: the small subset of Python that dims, constraints and derived fields of a schema are written in.

Owns :class:`Expression` and parsing: ``ast.parse`` behind a scanner and an allow-list. Text comes from files that nobody
vouches for: nothing is compiled, and size, depth and numbers are bounded. The tables of the language and its canonical
text are ``syntax.py``, computing values is ``evaluation.py``, solving for an unknown is ``linear.py``. Does not know
where an expression stands: callers add path, file and line.

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

from neuralqx_struct.errors import Diagnostic, SchemaError, did_you_mean
from neuralqx_struct.schema.syntax import (
    BINARY,
    COMPARISONS,
    FUNCTIONS,
    MAX_BITS,
    MAX_DEPTH,
    MAX_EXPONENT,
    SHORTEN,
    format_tree,
    refuse,
    spine,
)

__all__ = ["Expression", "from_ast", "parse"]

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
# What is not of the subset.

# What people write who know Python or C; the rest is named by its node type.
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
_SUBSET = (
    "use numbers, strings, names, + - * / // % **, comparisons, and/or/not, `x if c else y` and the functions "
    "len size shape ndim min max abs sum all any isfinite"
)

_CONSTANTS = (bool, int, float, str, type(None))


# ---------------------------------------------------------------------------------------------------------------------
# Reading: scanner, parser, allow-list.

_ESCAPE = r"\\(?:[\\'\"abfnrtv]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})"
_PLAIN = r"\\\x00-\x1f\ud800-\udfff"
_TOKEN = re.compile(
    r"(?P<space>[ \t\r\n]+)"
    rf"|(?P<string>'(?:[^'{_PLAIN}]|{_ESCAPE})*'|\"(?:[^\"{_PLAIN}]|{_ESCAPE})*\")"
    r"|(?P<number>(?>0[xXoObB][0-9a-fA-F_]+|(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?)"
    r"(?![A-Za-z0-9_]))"
    r"|(?P<name>(?>[A-Za-z_][A-Za-z0-9_]*)(?!['\"]))"
    r"|(?P<open>[(\[])|(?P<close>[)\]])"
    r"|(?P<operator>\*\*|//|[<>=!]=|[-+*/%<>,])"
)
_PAIRS = {"(": ")", "[": "]"}
_PREFIXES = frozenset({"-", "+", "not"})


def _scan(text: str) -> None:
    """Refuse what the parser must not see: deep nesting, odd characters, everything that it would warn about."""
    position, prefixes, previous = 0, 0, ""
    brackets: list[tuple[str, int]] = []
    while position < len(text):
        column = position + 1
        token = _TOKEN.match(text, position)
        if token is None or (token.lastgroup == "string" and previous == "string"):
            found = re.match(r"\w+['\"]?|.", text[position : position + 20], re.ASCII | re.DOTALL)
            bad = found.group() if found else ""
            hint = "put a comma or + between two strings" if token else _ADVICE.get(bad, _SUBSET)
            refuse("NQX114", f"expected an expression, got {bad!r} at column {column}", hint)
        position = token.end()
        if token.lastgroup == "space":
            continue
        previous = token.lastgroup or ""
        prefixes = prefixes + 1 if token.group() in _PREFIXES else 0
        if previous == "open":
            brackets.append((token.group(), column))
        elif previous == "close" and (not brackets or _PAIRS[brackets.pop()[0]] != token.group()):
            refuse("NQX114", f"expected balanced brackets, got {token.group()!r} at column {column}")
        if len(brackets) > MAX_DEPTH or prefixes > MAX_DEPTH:
            message = f"expected at most {MAX_DEPTH} levels of nesting, got more at column {column}"
            refuse("NQX117", message, SHORTEN)
    if brackets:
        bracket, column = brackets[-1]
        refuse("NQX114", f"expected balanced brackets, got {bracket!r} without an end at column {column}")


def parse(text: str) -> Expression:
    """Read an expression.

    Args:
        text: What the schema says; spaces and line ends between its parts do not matter.

    Returns:
        The checked expression.

    Raises:
        SchemaError: Every problem of the text with its column: NQX114 what is not of the subset, NQX116 an unknown
            function, NQX117 too long, too deep or too costly.

    Example:
        >>> parse("size(kernel)+alpha if (alpha>0) else 0").text
        'size(kernel) + alpha if alpha > 0 else 0'
    """
    if not isinstance(text, str):
        refuse("NQX114", f"expected an expression as text, got {type(text).__name__}", "put it in quotes")
    if len(text) > MAX_TEXT:
        refuse("NQX117", f"expected at most {MAX_TEXT} characters, got {len(text)} at column {MAX_TEXT + 1}", SHORTEN)
    _scan(text)
    source = text.translate({9: " ", 10: " ", 13: " "})
    indent = len(source) - len(source.lstrip(" "))
    try:
        tree = ast.parse(source[indent:], mode="eval").body
    except SyntaxError as error:
        column = indent + error.offset if error.offset else len(text) + 1
        rest = text[column - 1 :].strip()
        found = repr(rest if len(rest) <= 20 else f"{rest[:20]}...") if rest else "nothing more"
        refuse("NQX114", f"expected an expression, got {found} at column {column}", _SUBSET)
    except (RecursionError, MemoryError):  # how the parser says that its stack is full
        refuse("NQX117", f"expected at most {MAX_DEPTH} levels of nesting, got more at column 1", SHORTEN)
    encoded = source[indent:].encode()
    return _accept(tree, lambda node: indent + len(encoded[: getattr(node, "col_offset", 0)].decode()) + 1)


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
        # A sum of 200 terms is long, not deep: the steps of one spine stand on one level.
        parts: Sequence[ast.AST] = [node]
        children = _children(node)
        if isinstance(node, ast.BinOp) and type(node.op) in BINARY:
            first, steps = spine(node)
            parts = steps
            children = [first, *(step.right for step in steps)]
        nodes += len(parts)
        at = column(node)
        if depth > MAX_DEPTH:
            refuse("NQX117", f"expected at most {MAX_DEPTH} levels of nesting, got more at column {at}", SHORTEN)
        if nodes > MAX_NODES:
            refuse("NQX117", f"expected at most {MAX_NODES} parts, got more at column {at}", SHORTEN)
        for part in parts:
            at = column(part)
            for code, message, hint in _objections(part):
                problems.append((at, Diagnostic(code, "error", f"{message} at column {at}", hint=hint)))
        if isinstance(node, ast.Name):
            names.add(node.id)
        stack += [(child, depth + 1) for child in children]
    if problems:
        raise SchemaError(problem for _, problem in sorted(problems, key=lambda pair: pair[0]))
    text = format_tree(tree)
    if len(text) > MAX_TEXT:
        refuse("NQX117", f"expected at most {MAX_TEXT} characters in canonical form, got {len(text)}", SHORTEN)
    return Expression(text, frozenset(names), tree)


def _children(node: ast.AST) -> list[ast.expr]:
    match node:
        case ast.Call(args=args):
            return args
        case ast.Subscript(value=value):
            return [value]
        case ast.UnaryOp(operand=operand):
            return [operand]
        case ast.BoolOp(values=values):
            return values
        case ast.Compare(left=left, comparators=comparators):
            return [left, *comparators]
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return [test, body, orelse]
        case ast.Tuple(elts=elements) | ast.List(elts=elements):
            return elements
    return []


def _objections(node: ast.AST) -> Iterable[tuple[str, str, str | None]]:
    """What is wrong with this one node as (code, message, hint); its children are looked at on their own."""
    match node:
        case ast.Constant(value=value):
            if type(value) not in _CONSTANTS:
                yield "NQX114", f"expected a number, string, True, False or None, got {type(value).__name__}", _SUBSET
            elif type(value) is float and not math.isfinite(value):
                yield "NQX114", "expected a finite number, got one that is too large for a float", None
            elif type(value) is int and value.bit_length() > MAX_BITS:
                yield "NQX117", f"expected numbers of at most {MAX_BITS} bits, got {value.bit_length()} bits", None
        case ast.Name(id=name):
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                yield "NQX114", f"expected a name of letters, digits and _, got {name!r}", None
        case ast.BinOp(op=op) if type(op) in BINARY:
            exponent = node.right if isinstance(op, ast.Pow) else None
            if isinstance(exponent, ast.Constant) and type(exponent.value) is int and exponent.value > MAX_EXPONENT:
                yield "NQX117", f"expected an exponent of at most {MAX_EXPONENT}, got a larger one", None
        case (
            ast.UnaryOp(op=ast.USub() | ast.UAdd() | ast.Not()) | ast.BoolOp() | ast.IfExp() | ast.Tuple() | ast.List()
        ):
            pass
        case ast.BinOp(op=op) | ast.UnaryOp(op=op):
            yield "NQX114", f"expected an operator of the subset, got {type(op).__name__}", _SUBSET
        case ast.Compare(ops=ops, comparators=comparators):
            for relation, right in zip(ops, comparators, strict=True):
                if type(relation) not in COMPARISONS:
                    found = _FORBIDDEN[type(relation)]
                    yield "NQX114", f"expected a comparison, got `{found}`", _ADVICE[found]
                elif isinstance(relation, ast.In | ast.NotIn) and not (
                    isinstance(right, ast.Tuple | ast.List) and all(map(_is_constant, right.elts))
                ):
                    symbol = COMPARISONS[type(relation)].symbol
                    message = f"expected a tuple or list of constants after `{symbol}`, got another expression"
                    yield "NQX114", message, "write the choices out: x in ('a', 'b')"
        case ast.Call():
            yield from _call_objections(node)
        case ast.Subscript(value=ast.Call(func=ast.Name(id="shape")), slice=index):
            if type(getattr(getattr(index, "operand", index), "value", None)) is not int or not _is_constant(index):
                yield "NQX114", "expected one whole number as subscript of a shape, got another", "write shape(x)[0]"
        case _:
            found = _FORBIDDEN.get(type(node), type(node).__name__)
            yield "NQX114", f"expected an expression of the subset, got {found}", _ADVICE.get(found, _SUBSET)


def _call_objections(node: ast.Call) -> Iterable[tuple[str, str, str | None]]:
    known = ", ".join(FUNCTIONS)
    if not isinstance(node.func, ast.Name):
        yield "NQX114", "expected the name of a function before (, got another expression", f"functions: {known}"
    elif (single := FUNCTIONS.get(node.func.id)) is None:
        hint = did_you_mean(node.func.id, FUNCTIONS) or f"functions: {known}"
        yield "NQX116", f"expected a known function, got {node.func.id!r}", hint
    elif node.keywords:
        yield "NQX114", f"expected arguments without names for {node.func.id}(), got name=value", None
    elif not node.args or (single and len(node.args) > 1):
        wanted = "one argument" if single else "at least one argument"
        yield "NQX114", f"expected {wanted} for {node.func.id}(), got {len(node.args)}", None


def _is_constant(node: ast.AST) -> bool:
    signed = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
    return isinstance(node.operand if isinstance(node, ast.UnaryOp) and signed else node, ast.Constant)
