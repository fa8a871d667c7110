"""The grammar of expressions: the nodes of Python's grammar that they have, and paths, the names of values inside fields.

To allow another node, put its check into :data:`OBJECTIONS`.

Paths are names such as ``optimizer.step``, ``extent[0]`` and ``layers[-1].width``. The parser makes each whole path one
``ast.Name`` with its canonical text as ``id``, so that everything that reads, compares, solves or replaces names does so with
paths. This module alone looks inside that text.

Example:
    >>> head_of("layers[-1].width"), steps_of("layers[-1].width")
    ('layers', (-1, 'width'))
    >>> path_of("layers", (-1, "width"))
    'layers[-1].width'
"""

from __future__ import annotations

import ast
import copy
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from neuralqx_struct.errors import did_you_mean
from neuralqx_struct.expressions.functions import FUNCTIONS
from neuralqx_struct.expressions.operators import (
    MAX_BITS,
    MAX_EXPONENT,
    OPERATORS,
    format_tree,
    spine,
)

#: The name of a field, or the position of an item.
PathStep = str | int

_STEP = re.compile(r"\.([^.\[]+)|\[(-?\d+)\]")


@lru_cache(maxsize=4096)
def _parts(path: str) -> tuple[str, tuple[PathStep, ...]]:
    end = min((place for place in map(path.find, ".[") if place > 0), default=len(path))
    steps = _STEP.findall(path, end)
    return path[:end], tuple(name or int(item) for name, item in steps)


def head_of(path: str) -> str:
    """The first name of a path: a field or a dim."""
    return _parts(path)[0]


def steps_of(path: str) -> tuple[PathStep, ...]:
    """The steps behind the first name; empty for a plain name."""
    return _parts(path)[1]


def path_of(head: str, steps: Iterable[PathStep]) -> str:
    """The text of a path; the inverse of :func:`head_of` and :func:`steps_of`."""
    texts = [f".{step}" if isinstance(step, str) else f"[{step}]" for step in steps]
    return "".join([head, *texts])


def is_given(name: str) -> bool:
    """True for a name in an equation that only fields give a value: a path, or a function such as ``sum(sizes)``."""
    return not {*name}.isdisjoint(".[(")


def is_path(node: ast.AST) -> bool:
    """True for a name with any number of fields and items behind it."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return isinstance(node, ast.Name)


class _Fold(ast.NodeTransformer):
    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        return ast.copy_location(ast.Name(format_tree(node), ast.Load()), node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        if is_path(node):
            return ast.copy_location(ast.Name(format_tree(node), ast.Load()), node)
        node.value = self.visit(node.value)  # a shape
        return node


def folded(tree: ast.expr) -> ast.expr:
    """The tree of a checked expression with one name in place of each path."""
    made: ast.expr = _Fold().visit(tree)
    return made


def names_in(tree: ast.AST) -> Iterator[ast.Name]:
    """Yields the names and paths of a folded tree, without those of functions."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Name):
            yield node
        elif isinstance(node, ast.Call):
            waiting += node.args
        else:
            waiting += ast.iter_child_nodes(node)


def has_names(tree: ast.AST) -> bool:
    """True for a folded tree whose value depends on a name."""
    return next(names_in(tree), None) is not None


class _Replace(ast.NodeTransformer):
    def __init__(self, names: Mapping[str, ast.expr]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.names.get(node.id, node)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        node.args = [self.visit(argument) for argument in node.args]
        return node


def replaced(tree: ast.expr, names: Mapping[str, ast.expr]) -> ast.expr:
    """A folded tree with other trees in place of some names and paths; names of functions stay."""
    made: ast.expr = _Replace(names).visit(copy.deepcopy(tree))
    return made


# Syntax of Python or C that people try; the rest is named by its node type.
_FORBIDDEN: Mapping[type[ast.AST], str] = {
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
    ast.Yield: "yield",
    ast.YieldFrom: "yield",
    ast.Is: "is",
    ast.IsNot: "is not",
}
#: Words of Python, C, YAML and numpy that expressions have not, with what is written instead.
ADVICE: Mapping[str, str] = {
    "=": "compare with ==",
    "is": "compare with == or !=, also with None",
    "is not": "compare with == or !=, also with None",
    "&": "write `and`",
    "|": "write `or`",
    "!": "write `not`",
    "^": "powers are written **",
    "true": "write `True`",
    "false": "write `False`",
    "null": "write `None`",
    "mean": "write sum(x) / size(x)",
    "sqrt": "write x ** 0.5",
    "isnan": "write x != x",
    "prod": "the elements of x are size(x); the items of a tuple are extent[0] * extent[1]",
    "a comprehension": "operators take all items of a path: all(layers.width > 0), sum(layers.width)",
}


def subset_text() -> str:
    """A list of everything that expressions may have."""
    return (
        "use numbers, strings, names such as n, optimizer.step and extent[0], + - * / // % **, comparisons, and/or/not, `x if c else y` and "
        f"the functions {' '.join(FUNCTIONS)}"
    )


_CONSTANTS = (bool, int, float, str, type(None))

#: Code, message and hint.
_Objection = tuple[str, str, str | None]


def inside(node: ast.AST) -> tuple[Sequence[ast.AST], Sequence[ast.AST]]:
    """The operations at the top of a tree, and the nodes inside: a sum of 200 terms is long, not deep."""
    match node:
        case ast.BinOp() if type(node.op) in OPERATORS:
            first, steps = spine(node)
            return steps, [first, *(step.right for step in steps)]
        case ast.Call():
            return [node], node.args
        case ast.Attribute() | ast.Subscript():
            return [node], [node.value]
        case _ if type(node) in OBJECTIONS:
            inner = ast.iter_child_nodes(node)
            return [node], [each for each in inner if isinstance(each, ast.expr)]
    return [node], []


def objections(node: ast.AST) -> Iterable[_Objection]:
    """The problems of a node, without those of the nodes inside."""
    return OBJECTIONS.get(type(node), _foreign)(node)


def _none(_: ast.AST) -> Iterable[_Objection]:
    return ()


def _foreign(node: ast.AST) -> Iterable[_Objection]:
    found = _FORBIDDEN.get(type(node), type(node).__name__)
    hint = ADVICE.get(found, subset_text())
    yield "NQX114", f"expected an expression of the subset, got {found}", hint


def _constant_objections(node: ast.Constant) -> Iterable[_Objection]:
    value = node.value
    if type(value) not in _CONSTANTS:
        message = f"expected a number, string, True, False or None, got {type(value).__name__}"
        yield "NQX114", message, subset_text()
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
        yield "NQX114", f"expected an operator of the subset, got {found}", subset_text()
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
            yield "NQX114", f"expected a comparison, got `{found}`", ADVICE[found]
        elif record.member and not _is_list_of_constants(right):
            wanted = f"a tuple or list of constants after `{record.symbol}`"
            hint = "write the choices out, as in x in ('a', 'b'); any(sizes == n) compares the items of a list"
            yield "NQX114", f"expected {wanted}, got another expression", hint


def _field_objections(node: ast.Attribute) -> Iterable[_Objection]:
    if not is_path(node.value):
        wanted = "expected an expression of the subset, got attribute access"
        yield "NQX114", wanted, "fields of a field are read: optimizer.step, layers[0].width"
    elif node.attr.startswith("__"):
        yield (
            "NQX114",
            f"expected the name of a field after the dot, got {node.attr!r}",
            ATTRIBUTES,
        )


ATTRIBUTES = "attributes are not available; shape(x), size(x) and ndim(x) are functions"


def _item_objections(node: ast.Subscript) -> Iterable[_Objection]:
    called = node.value.func if isinstance(node.value, ast.Call) else None
    record = FUNCTIONS.get(getattr(called, "id", ""))
    if not is_path(node) and (record is None or not record.axes):
        hint = "shapes, tuples and lists have subscripts: shape(kernel)[0], extent[0]"
        yield "NQX114", "expected an expression of the subset, got a subscript", hint
        return
    index = getattr(node.slice, "operand", node.slice)
    number = getattr(index, "value", None)
    if isinstance(number, str) and number.isidentifier():
        hint = "fields of structs are behind a dot; the entries of a dict are read together, as in all(sizes > 0)"
        yield "NQX114", f"expected a field behind a dot, got the subscript {number!r}", hint
    elif type(number) is not int or not _is_constant(node.slice):
        message = "expected one whole number as subscript, got another expression"
        hint = "write shape(x)[0] or extent[0]; all(sizes > 0) and sum(sizes) read all items"
        yield "NQX114", message, hint
    elif number.bit_length() > MAX_BITS:
        yield "NQX117", f"expected numbers of at most {MAX_BITS} bits, got a larger one", None


def _call_objections(node: ast.Call) -> Iterable[_Objection]:
    known = f"functions: {', '.join(FUNCTIONS)}"
    if not isinstance(node.func, ast.Name):
        name = getattr(node.func, "attr", "")
        got = f"the method {name!r}" if name else "another expression"
        yield "NQX114", f"expected the name of a function before (, got {got}", known
        return
    name, count = node.func.id, len(node.args)
    record = FUNCTIONS.get(name)
    if record is None:
        hint = ADVICE.get(name) or did_you_mean(name, FUNCTIONS) or known
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
OBJECTIONS: Mapping[type[ast.AST], Callable[[Any], Iterable[_Objection]]] = {
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
    ast.Attribute: _field_objections,
    ast.Subscript: _item_objections,
}
