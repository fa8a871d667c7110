"""Expressions: the small subset of Python that dims, constraints and derived fields of a schema are written in.

Owns parsing (``ast.parse`` behind a scanner and an allow-list), the canonical text, evaluation with a step budget and
the solving of linear expressions for one unknown. Text comes from files that nobody vouches for: nothing is compiled,
no attribute of a value is reachable, no operator of an object that is neither builtin nor an array is called, and size,
depth, steps and numbers are bounded. Does not know where an expression stands: callers add path, file and line.

Example:
    >>> expression = parse("(2*n)+1")
    >>> expression.text, sorted(expression.names)
    ('2 * n + 1', ['n'])
    >>> evaluate(expression, {"n": 4})
    9
    >>> linear_unknown(expression, "n", {}, 9)
    4
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple, NoReturn

from neuralqx_struct.errors import Diagnostic, SchemaError, did_you_mean

__all__ = ["Expression", "evaluate", "from_ast", "linear_form", "linear_unknown", "parse"]

MAX_TEXT = 4096
MAX_DEPTH = 50
MAX_NODES = 500
MAX_BITS = 256
MAX_EXPONENT = 64
MAX_BROADCAST = 65536


@dataclass(frozen=True, slots=True)
class Expression:
    """A checked expression; equal to every expression of the same canonical text.

    Attributes:
        text: Canonical form: minimal parentheses, single spaces; ``parse(e.text) == e``. The same on every Python.
        names: The names it reads (fields and dims), functions excluded.
    """

    text: str
    names: frozenset[str] = field(repr=False, compare=False)
    _tree: ast.expr = field(repr=False, compare=False)

    def __str__(self) -> str:
        return self.text


# ---------------------------------------------------------------------------------------------------------------------
# The subset, as tables. Precedences grow with the strength of the binding.

_IF, _OR, _AND, _NOT, _COMPARISON, _SUM, _PRODUCT, _SIGN, _POWER, _ATOM = range(10)


class _Operator(NamedTuple):
    symbol: str
    binding: int
    apply: Callable[..., Any]


_BINARY: Mapping[type[ast.operator], _Operator] = {
    ast.Add: _Operator("+", _SUM, operator.add),
    ast.Sub: _Operator("-", _SUM, operator.sub),
    ast.Mult: _Operator("*", _PRODUCT, operator.mul),
    ast.Div: _Operator("/", _PRODUCT, operator.truediv),
    ast.FloorDiv: _Operator("//", _PRODUCT, operator.floordiv),
    ast.Mod: _Operator("%", _PRODUCT, operator.mod),
    ast.Pow: _Operator("**", _POWER, operator.pow),
}
_UNARY: Mapping[type[ast.unaryop], _Operator] = {
    ast.USub: _Operator("-", _SIGN, operator.neg),
    ast.UAdd: _Operator("+", _SIGN, operator.pos),
    ast.Not: _Operator("not ", _NOT, operator.not_),
}
_BOOLEAN: Mapping[type[ast.boolop], _Operator] = {
    ast.Or: _Operator("or", _OR, operator.or_),
    ast.And: _Operator("and", _AND, operator.and_),
}
_COMPARE: Mapping[type[ast.cmpop], _Operator] = {
    ast.Eq: _Operator("==", _COMPARISON, operator.eq),
    ast.NotEq: _Operator("!=", _COMPARISON, operator.ne),
    ast.Lt: _Operator("<", _COMPARISON, operator.lt),
    ast.LtE: _Operator("<=", _COMPARISON, operator.le),
    ast.Gt: _Operator(">", _COMPARISON, operator.gt),
    ast.GtE: _Operator(">=", _COMPARISON, operator.ge),
    ast.In: _Operator("in", _COMPARISON, operator.eq),
    ast.NotIn: _Operator("not in", _COMPARISON, operator.eq),
}

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
_SHORTEN = "split it into derived fields or several constraints"

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


def _refuse(code: str, message: str, hint: str | None = None) -> NoReturn:
    raise SchemaError(message, code=code, hint=hint)


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
            _refuse("NQX114", f"expected an expression, got {bad!r} at column {column}", hint)
        position = token.end()
        if token.lastgroup == "space":
            continue
        previous = token.lastgroup or ""
        prefixes = prefixes + 1 if token.group() in _PREFIXES else 0
        if previous == "open":
            brackets.append((token.group(), column))
        elif previous == "close" and (not brackets or _PAIRS[brackets.pop()[0]] != token.group()):
            _refuse("NQX114", f"expected balanced brackets, got {token.group()!r} at column {column}")
        if len(brackets) > MAX_DEPTH or prefixes > MAX_DEPTH:
            message = f"expected at most {MAX_DEPTH} levels of nesting, got more at column {column}"
            _refuse("NQX117", message, _SHORTEN)
    if brackets:
        bracket, column = brackets[-1]
        _refuse("NQX114", f"expected balanced brackets, got {bracket!r} without an end at column {column}")


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
        _refuse("NQX114", f"expected an expression as text, got {type(text).__name__}", "put it in quotes")
    if len(text) > MAX_TEXT:
        _refuse("NQX117", f"expected at most {MAX_TEXT} characters, got {len(text)} at column {MAX_TEXT + 1}", _SHORTEN)
    _scan(text)
    source = text.translate({9: " ", 10: " ", 13: " "})
    indent = len(source) - len(source.lstrip(" "))
    try:
        tree = ast.parse(source[indent:], mode="eval").body
    except SyntaxError as error:
        column = indent + error.offset if error.offset else len(text) + 1
        rest = text[column - 1 :].strip()
        found = repr(rest if len(rest) <= 20 else f"{rest[:20]}...") if rest else "nothing more"
        _refuse("NQX114", f"expected an expression, got {found} at column {column}", _SUBSET)
    except (RecursionError, MemoryError):  # how the parser says that its stack is full
        _refuse("NQX117", f"expected at most {MAX_DEPTH} levels of nesting, got more at column 1", _SHORTEN)
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
        if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
            first, steps = _spine(node)
            parts = steps
            children = [first, *(step.right for step in steps)]
        nodes += len(parts)
        at = column(node)
        if depth > MAX_DEPTH:
            _refuse("NQX117", f"expected at most {MAX_DEPTH} levels of nesting, got more at column {at}", _SHORTEN)
        if nodes > MAX_NODES:
            _refuse("NQX117", f"expected at most {MAX_NODES} parts, got more at column {at}", _SHORTEN)
        for part in parts:
            at = column(part)
            for code, message, hint in _objections(part):
                problems.append((at, Diagnostic(code, "error", f"{message} at column {at}", hint=hint)))
        if isinstance(node, ast.Name):
            names.add(node.id)
        stack += [(child, depth + 1) for child in children]
    if problems:
        raise SchemaError(problem for _, problem in sorted(problems, key=lambda pair: pair[0]))
    text = _format(tree)
    if len(text) > MAX_TEXT:
        _refuse("NQX117", f"expected at most {MAX_TEXT} characters in canonical form, got {len(text)}", _SHORTEN)
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
        case ast.BinOp(op=op) if type(op) in _BINARY:
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
                if type(relation) not in _COMPARE:
                    found = _FORBIDDEN[type(relation)]
                    yield "NQX114", f"expected a comparison, got `{found}`", _ADVICE[found]
                elif isinstance(relation, ast.In | ast.NotIn) and not (
                    isinstance(right, ast.Tuple | ast.List) and all(map(_is_constant, right.elts))
                ):
                    symbol = _COMPARE[type(relation)].symbol
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
    known = ", ".join(_FUNCTIONS)
    if not isinstance(node.func, ast.Name):
        yield "NQX114", "expected the name of a function before (, got another expression", f"functions: {known}"
    elif (function := _FUNCTIONS.get(node.func.id)) is None:
        hint = did_you_mean(node.func.id, _FUNCTIONS) or f"functions: {known}"
        yield "NQX116", f"expected a known function, got {node.func.id!r}", hint
    elif node.keywords:
        yield "NQX114", f"expected arguments without names for {node.func.id}(), got name=value", None
    elif not node.args or (function.single and len(node.args) > 1):
        wanted = "one argument" if function.single else "at least one argument"
        yield "NQX114", f"expected {wanted} for {node.func.id}(), got {len(node.args)}", None


def _is_constant(node: ast.AST) -> bool:
    signed = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
    return isinstance(node.operand if isinstance(node, ast.UnaryOp) and signed else node, ast.Constant)


# ---------------------------------------------------------------------------------------------------------------------
# Printing: the inverse of parsing. Not ast.unparse, which differs between Python versions: fingerprints contain it.

# Escaped in strings, always the same set: controls, quotes, and what is invisible or changes the direction of text.
_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\xa0\xad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\\']")


def _escape(found: re.Match[str]) -> str:
    code = ord(found.group())
    return f"\\{found.group()}" if found.group() in "\\'" else f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def _spine(node: ast.BinOp) -> tuple[ast.expr, list[ast.BinOp]]:
    """The first operand of ``a + b - c * d`` and the operations that follow it, without what needs parentheses."""
    steps = [node]
    while (
        isinstance(left := steps[-1].left, ast.BinOp)
        and not isinstance(steps[-1].op, ast.Pow)
        and type(left.op) in _BINARY
        and _BINARY[type(left.op)].binding >= _BINARY[type(steps[-1].op)].binding
    ):
        steps.append(left)
    return steps[-1].left, steps[::-1]


def _format(node: ast.expr, needed: int = _IF) -> str:
    text, binding = _text(node)
    return text if binding >= needed else f"({text})"


def _text(node: ast.AST) -> tuple[str, int]:
    match node:
        case ast.Constant(value=str(value)):
            return f"'{_UNSAFE.sub(_escape, value)}'", _ATOM
        case ast.Constant(value=value):
            text = repr(value)
            return text, _SIGN if text.startswith("-") else _ATOM
        case ast.Name(id=name):
            return name, _ATOM
        case ast.BinOp():
            first, steps = _spine(node)
            bottom = _BINARY[type(steps[0].op)].binding
            parts = [_format(first, _ATOM if bottom == _POWER else bottom)]
            for step in steps:
                symbol, binding, _ = _BINARY[type(step.op)]
                parts += [symbol, _format(step.right, _SIGN if binding == _POWER else binding + 1)]
            return " ".join(parts), _BINARY[type(node.op)].binding
        case ast.UnaryOp(op=op, operand=operand):
            symbol, binding, _ = _UNARY[type(op)]
            return symbol + _format(operand, binding), binding
        case ast.BoolOp(op=op, values=values):
            symbol, binding, _ = _BOOLEAN[type(op)]
            return f" {symbol} ".join(_format(value, binding) for value in values), binding
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            parts = [_format(left, _SUM)]
            for relation, right in zip(ops, comparators, strict=True):
                parts += [_COMPARE[type(relation)].symbol, _format(right, _SUM)]
            return " ".join(parts), _COMPARISON
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return f"{_format(body, _OR)} if {_format(test, _OR)} else {_format(orelse)}", _IF
        case ast.Tuple(elts=elements):
            return f"({', '.join(map(_format, elements))}{',' if len(elements) == 1 else ''})", _ATOM
        case ast.List(elts=elements):
            return f"[{', '.join(map(_format, elements))}]", _ATOM
        case ast.Call(func=ast.Name(id=name), args=args):
            return f"{name}({', '.join(map(_format, args))})", _ATOM
        case ast.Subscript(value=value, slice=index):
            return f"{_format(value)}[{_format(index)}]", _ATOM
    raise AssertionError(ast.dump(node))  # pragma: no cover - _objections let it through


# ---------------------------------------------------------------------------------------------------------------------
# Evaluation.

_NUMBERS = (bool, int, float, complex)
_SCALARS = frozenset({*_NUMBERS, str, bytes, type(None)})
_SIZED = (str, bytes, tuple, list, dict, set, frozenset)
# Subclasses (IntEnum, StrEnum, numpy's float64) become the builtin they extend, past whatever they override.
_EXACT: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (int, int.__int__),
    (float, float.__float__),
    (complex, complex.__complex__),
    (str, str.__str__),
)
# What operators of numbers and arrays raise; RuntimeWarning where warnings are errors.
_FAILURES = (ArithmeticError, TypeError, ValueError, RuntimeWarning)


def evaluate(expression: Expression, names: Mapping[str, Any], *, budget: int = 10_000) -> Any:
    """Compute the value of an expression.

    Numbers, strings, tuples, lists and arrays (objects with ``shape`` and ``dtype``) behave as in Python; a chain of
    comparisons of arrays is taken element by element. Operators of any other object are never called: such a value can
    only be compared with None.

    Args:
        expression: What to compute.
        names: The values of its names.
        budget: The most steps it may take; an element of a sequence is a step, an operation on an array also.

    Returns:
        The value; an array where arrays were combined.

    Raises:
        SchemaError: NQX115 operands of the wrong type, a division by zero, an ambiguous array; NQX116 an unknown
            name; NQX507 more steps, larger numbers or larger arrays than allowed. What an array's own operator
            raised is the ``__cause__``.

    Example:
        >>> evaluate(parse("0 < alpha <= 8 and init in ('normal', 'zeros')"), {"alpha": 2, "init": "zeros"})
        True
    """
    return _Evaluation(names, budget).value(expression._tree)  # noqa: SLF001 - the tree is private to this module


def _is_array(value: Any) -> bool:
    return not issubclass(type(value), type) and hasattr(value, "shape") and hasattr(value, "dtype")


def _describe(value: Any) -> str:
    if type(value) not in _SCALARS and _is_array(value):
        return f"{value.dtype}{list(value.shape) if isinstance(value.shape, tuple) else value.shape}"
    return "None" if value is None else type(value).__name__


class _Evaluation:
    """One run over a tree: the values of names and what is left of the budget."""

    __slots__ = ("names", "steps")

    def __init__(self, names: Mapping[str, Any], steps: int) -> None:
        self.names = names
        self.steps = steps

    def fail(self, node: ast.AST, message: str, *, code: str = "NQX115", hint: str | None = None) -> NoReturn:
        text = _text(node)[0]
        _refuse(code, f"{message}\nin `{text if len(text) <= 80 else text[:77] + '...'}`", hint)

    def spend(self, node: ast.AST, steps: int = 1) -> None:
        self.steps -= steps
        if self.steps < 0:
            self.fail(node, "expected an expression within its budget, got more steps", code="NQX507", hint=_SHORTEN)

    def value(self, node: ast.AST) -> Any:
        self.spend(node)
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                return self.name(node, name)
            case ast.BinOp():
                first, steps = _spine(node)
                self.spend(node, len(steps) - 1)
                left = self.value(first)
                for step in steps:
                    left = self.binary(step, left, self.value(step.right))
                return left
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return not self.truth(node, self.value(operand))
            case ast.UnaryOp(op=op, operand=operand):
                return self.elementwise(node, _UNARY[type(op)].apply, self.value(operand))
            case ast.BoolOp(op=op, values=values):
                for inner in values[:-1]:
                    value = self.value(inner)
                    if self.truth(node, value) is isinstance(op, ast.Or):
                        return value
                return self.value(values[-1])
            case ast.Compare():
                return self.chain(node)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self.value(body if self.truth(node, self.value(test)) else orelse)
            case ast.Tuple(elts=elements):
                return tuple(map(self.value, elements))
            case ast.List(elts=elements):
                return list(map(self.value, elements))
            case ast.Call(func=ast.Name(id=name), args=args):
                return _FUNCTIONS[name].call(self, node, *map(self.value, args))
            case ast.Subscript(value=inner, slice=index):
                shape = self.value(inner)
                axis = self.value(index)
                if not -len(shape) <= axis < len(shape):
                    self.fail(node, f"expected an array with an axis {axis}, got {len(shape)} axes")
                return shape[axis]
        raise AssertionError(ast.dump(node))  # pragma: no cover - _objections let it through

    def name(self, node: ast.AST, name: str) -> Any:
        try:
            value = self.names[name]
        except KeyError:
            known = sorted(map(str, self.names))
            hint = did_you_mean(name, known) or (f"known names: {', '.join(known[:20])}" if known else None)
            self.fail(node, f"expected a known name, got {name!r}", code="NQX116", hint=hint)
        if type(value) in _SCALARS:
            return value
        return next((exact(value) for base, exact in _EXACT if issubclass(type(value), base)), value)

    def apply(self, node: ast.AST, function: Callable[..., Any], *operands: Any) -> Any:
        try:
            return function(*operands)
        except ZeroDivisionError:
            self.fail(node, "expected a divisor other than zero, got 0")
        except _FAILURES as error:
            found = " and ".join(map(_describe, operands))
            message = f"expected operands that fit together, got {found}"
            raise SchemaError(f"{message}\nin `{_text(node)[0][:80]}`: {error}", code="NQX115") from error

    def array(self, node: ast.AST, value: Any) -> Any:
        """The array itself, if its operators are its library's: elements that are Python objects bring their own."""
        if getattr(value.dtype, "kind", "") == "O":
            self.fail(node, "expected an array of numbers, got one of Python objects")
        return value

    def shape(self, node: ast.AST, value: Any) -> tuple[int, ...]:
        if type(value) in _NUMBERS:
            return ()
        for kind in _SIZED:
            if issubclass(type(value), kind):
                return (kind.__len__(value),)
        shape = value.shape if _is_array(value) else None
        if not isinstance(shape, tuple) or not all(issubclass(type(size), int) for size in shape):
            self.fail(node, f"expected an array, a sequence or a number, got {_describe(value)}")
        return tuple(map(int.__int__, shape))

    def truth(self, node: ast.AST, value: Any) -> bool:
        if type(value) in _SCALARS:
            return bool(value)
        for kind in _SIZED:
            if issubclass(type(value), kind):
                return bool(kind.__len__(value))
        if not _is_array(value):
            self.fail(node, f"expected a value that is true or false, got {_describe(value)}")
        shape = self.shape(node, value)
        if math.prod(shape) != 1:
            message = f"expected one truth value, got {_describe(value)}"
            self.fail(node, message, hint="say which elements must hold: all(...) or any(...)")
        return bool(self.apply(node, bool, self.array(node, value)))

    def plain(self, node: ast.AST, value: Any, depth: int = 0) -> Any:
        """The value as builtins all the way down, safe to compare and to join."""
        if type(value) in _SCALARS:
            return value
        for base, exact in _EXACT:
            if issubclass(type(value), base):
                return exact(value)
        kind: Any = tuple if issubclass(type(value), tuple) else list
        if not issubclass(type(value), kind) or depth >= MAX_DEPTH:
            self.fail(node, f"expected numbers, strings, sequences or arrays, got {_describe(value)}")
        self.spend(node, 1 + kind.__len__(value))
        return kind(self.plain(node, item, depth + 1) for item in kind.__iter__(value))

    def elementwise(self, node: ast.AST, function: Callable[..., Any], *operands: Any) -> Any:
        """Apply an operator to numbers and arrays only; what it makes may not be larger than what it was given."""
        if all(type(operand) in _NUMBERS for operand in operands):
            for operand in operands:
                self.bounded(node, operand)
            return self.bounded(node, self.apply(node, function, *operands))
        shapes = []
        for operand in operands:
            if type(operand) not in _NUMBERS:
                if type(operand) in _SCALARS or not _is_array(operand):
                    found = " and ".join(map(_describe, operands))
                    self.fail(node, f"expected numbers or arrays, got {found}")
                self.array(node, operand)
            shapes.append(self.shape(node, operand))
        rank = max(map(len, shapes))
        padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
        if math.prod(map(max, zip(*padded, strict=True))) > max(MAX_BROADCAST, *map(math.prod, shapes)):
            found = " and ".join(map(_describe, operands))
            self.fail(
                node, f"expected arrays of one shape, got {found}, whose outer product is too large", code="NQX507"
            )
        return self.apply(node, function, *operands)

    def bounded(self, node: ast.AST, value: Any) -> Any:
        if type(value) is int and value.bit_length() > MAX_BITS:
            message = f"expected whole numbers of at most {MAX_BITS} bits, got {value.bit_length()} bits"
            self.fail(node, message, code="NQX507")
        return value

    def binary(self, node: ast.BinOp, left: Any, right: Any) -> Any:
        joins = (str, bytes, tuple, list)
        if isinstance(node.op, ast.Add) and any(issubclass(type(left), kind) for kind in joins):
            left, right = self.plain(node, left), self.plain(node, right)
            if type(left) is not type(right):
                self.fail(node, f"expected two operands of one type, got {_describe(left)} and {_describe(right)}")
            self.spend(node, len(left) + len(right))
            return left + right
        if isinstance(node.op, ast.Pow) and type(right) is int and abs(right) > MAX_EXPONENT:
            self.fail(node, f"expected an exponent of at most {MAX_EXPONENT}, got a larger one", code="NQX507")
        return self.elementwise(node, _BINARY[type(node.op)].apply, left, right)

    def compare(self, node: ast.AST, op: Callable[..., Any], left: Any, right: Any) -> Any:
        if left is None or right is None:
            if op not in {operator.eq, operator.ne}:
                self.fail(node, f"expected two values to order, got {_describe(left)} and {_describe(right)}")
            return (left is right) is (op is operator.eq)
        for value in (left, right):
            if type(value) not in _SCALARS and _is_array(value):
                return self.elementwise(node, op, left, right)
        return self.apply(node, op, self.plain(node, left), self.plain(node, right))

    def chain(self, node: ast.Compare) -> Any:
        left = self.value(node.left)
        result: Any = True
        for op, comparator in zip(node.ops, node.comparators, strict=True):
            right = self.value(comparator)
            if isinstance(op, ast.In | ast.NotIn):
                found = any(self.truth(node, self.compare(node, operator.eq, left, item)) for item in right)
                held: Any = found is isinstance(op, ast.In)
            else:
                held = self.compare(node, _COMPARE[type(op)].apply, left, right)
            result = held if result is True else self.elementwise(node, operator.and_, result, held)
            if result is False:
                return False
            left = right
        return result

    def items(self, node: ast.AST, value: Any) -> Sequence[Any]:
        if not any(issubclass(type(value), kind) for kind in (str, tuple, list)):
            self.fail(node, f"expected an array or a sequence, got {_describe(value)}")
        items: Sequence[Any] = self.plain(node, value)
        if type(items) is str:
            self.spend(node, len(items))
        return items

    def extreme(self, node: ast.AST, op: Callable[..., Any], method: str, *values: Any) -> Any:
        if len(values) == 1:
            if type(values[0]) not in _SCALARS and _is_array(values[0]):
                return self.apply(node, getattr(self.array(node, values[0]), method))
            values = tuple(self.items(node, values[0]))
            if not values:
                self.fail(node, "expected at least one element, got an empty sequence")
        best = values[0]
        for value in values[1:]:
            best = value if self.truth(node, self.compare(node, op, value, best)) else best
        return best

    def reduce(self, node: ast.AST, method: str, fold: Callable[[Sequence[Any]], Any], value: Any) -> Any:
        if type(value) not in _SCALARS and _is_array(value):
            return self.apply(node, getattr(self.array(node, value), method))
        return fold(self.items(node, value))

    def total(self, node: ast.AST, items: Sequence[Any]) -> Any:
        result: Any = 0
        for item in items:
            result = self.elementwise(node, operator.add, result, item)
        return result

    def finite(self, node: ast.AST, value: Any) -> Any:
        if type(value) in {bool, int}:
            return True
        if type(value) is float:
            return math.isfinite(value)
        if type(value) is complex:
            return math.isfinite(value.real) and math.isfinite(value.imag)
        if type(value) in _SCALARS or not _is_array(value):
            self.fail(node, f"expected a number or an array, got {_describe(value)}")
        return self.apply(node, _isfinite, self.array(node, value))

    def length(self, node: ast.AST, value: Any) -> int:
        shape = self.shape(node, value)
        if not shape:
            self.fail(node, f"expected a sequence or an array with an axis, got {_describe(value)}")
        return shape[0]


def _isfinite(array: Any) -> Any:
    """By the array's own library where it says which one that is, else by comparison."""
    if hasattr(array, "__array_namespace__"):
        return array.__array_namespace__().isfinite(array)
    if getattr(array.dtype, "kind", "") == "c":
        return _isfinite(array.real) & _isfinite(array.imag)
    return (array < math.inf) & (array > -math.inf)


class _Function(NamedTuple):
    single: bool
    call: Callable[..., Any]


_FUNCTIONS: Mapping[str, _Function] = {
    "len": _Function(True, _Evaluation.length),
    "size": _Function(True, lambda run, node, value: math.prod(run.shape(node, value))),
    "shape": _Function(True, _Evaluation.shape),
    "ndim": _Function(True, lambda run, node, value: len(run.shape(node, value))),
    "min": _Function(False, lambda run, node, *values: run.extreme(node, operator.lt, "min", *values)),
    "max": _Function(False, lambda run, node, *values: run.extreme(node, operator.gt, "max", *values)),
    "abs": _Function(True, lambda run, node, value: run.elementwise(node, operator.abs, value)),
    "sum": _Function(
        True, lambda run, node, value: run.reduce(node, "sum", lambda items: run.total(node, items), value)
    ),
    "all": _Function(
        True,
        lambda run, node, value: run.reduce(node, "all", lambda items: all(run.truth(node, i) for i in items), value),
    ),
    "any": _Function(
        True,
        lambda run, node, value: run.reduce(node, "any", lambda items: any(run.truth(node, i) for i in items), value),
    ),
    "isfinite": _Function(True, _Evaluation.finite),
}


# ---------------------------------------------------------------------------------------------------------------------
# Solving for one unknown, in exact arithmetic.


def linear_form(
    expression: Expression, unknown: frozenset[str], names: Mapping[str, Any]
) -> tuple[Fraction, Fraction] | None:
    """Write an expression as ``slope * x + offset``, exactly.

    Args:
        expression: A dim expression.
        unknown: The names that all stand for ``x``; empty for the exact value of a known expression.
        names: The values of its other names.

    Returns:
        Slope and offset; None where the expression is not linear, not exact (floats) or cannot be computed.

    Example:
        >>> linear_form(parse("n / 2 + k"), frozenset({"n"}), {"k": 3})
        (Fraction(1, 2), Fraction(3, 1))
    """
    return _linear(expression._tree, unknown, names)  # noqa: SLF001 - the tree is private to this module


def linear_unknown(expression: Expression, unknown: str, names: Mapping[str, Any], value: int) -> int | None:
    """Solve ``expression == value`` for one name.

    Args:
        expression: A dim expression.
        unknown: The name to solve for.
        names: The values of its other names.
        value: What the expression is equal to.

    Returns:
        The one whole number that solves it; None where there is none or the expression is not linear in the name.

    Example:
        >>> linear_unknown(parse("2*n + 1"), "n", {}, 9)
        4
    """
    form = linear_form(expression, frozenset({unknown}), names)
    if form is None or form[0] == 0:
        return None
    solution = (value - form[1]) / form[0]
    return int(solution) if solution.denominator == 1 else None


_Form = tuple[Fraction, Fraction]


def _linear(node: ast.expr, unknown: frozenset[str], names: Mapping[str, Any]) -> _Form | None:
    match node:
        case ast.Name(id=name) if name in unknown:
            return Fraction(1), Fraction(0)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            form = _linear(operand, unknown, names)
            return form and (-form[0], -form[1])
        case ast.BinOp():
            first, steps = _spine(node)
            form = _linear(first, unknown, names)
            for step in steps:
                right = form and _linear(step.right, unknown, names)
                form = _LINEAR[type(step.op)](form, right) if form and right else None
            return form
    if unknown & _reads(node):
        return None
    try:
        value = _Evaluation(names, 10_000).value(node)
    except SchemaError:  # evaluate() says so where the value is needed
        return None
    return (Fraction(0), Fraction(value)) if type(value) is int else None


def _reads(node: ast.AST) -> frozenset[str]:
    return frozenset(inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name))


def _times(left: _Form, right: _Form) -> _Form | None:
    if left[0] and right[0]:
        return None
    return left[0] * right[1] + right[0] * left[1], left[1] * right[1]


def _whole(function: Callable[[Fraction, Fraction], Any]) -> Callable[[_Form, _Form], _Form | None]:
    """For operators that are not linear: on two known sides only."""

    def combine(left: _Form, right: _Form) -> _Form | None:
        known = not left[0] and not right[0] and right[1]
        return (Fraction(0), Fraction(function(left[1], right[1]))) if known else None

    return combine


def _power(left: _Form, right: _Form) -> _Form | None:
    base, exponent = left[1], right[1]
    if left[0] or right[0] or exponent not in range(MAX_EXPONENT + 1) or base.denominator != 1:
        return None
    return (Fraction(0), base ** int(exponent)) if base.numerator.bit_length() <= MAX_BITS else None


_LINEAR: Mapping[type[ast.operator], Callable[[_Form, _Form], _Form | None]] = {
    ast.Add: lambda left, right: (left[0] + right[0], left[1] + right[1]),
    ast.Sub: lambda left, right: (left[0] - right[0], left[1] - right[1]),
    ast.Mult: _times,
    ast.Div: lambda left, right: None if right[0] or not right[1] else (left[0] / right[1], left[1] / right[1]),
    ast.FloorDiv: _whole(operator.floordiv),
    ast.Mod: _whole(operator.mod),
    ast.Pow: _power,
}
