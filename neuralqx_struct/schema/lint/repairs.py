"""Repairs: the hints about texts that are no expressions, each with an expression that passes the checks of its place.

:func:`nearest` proposes expressions that a text of Python, of C or with a slip may mean; each is checked against the names and types
of its place before it is named.

Example:
    >>> Repairs(v3).hint(("structs", "VMCState", "constraints", 0, "expr"), "alpha > 0 && x.alpha < 8")
    'write `alpha > 0 and alpha < 8`'
    >>> [*nearest("all(b.width > 0 for b in blocks) && !flag")]
    ['all(blocks.width > 0) and not flag']
"""

from __future__ import annotations

import ast
import contextlib
import copy
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import islice
from typing import Any

from neuralqx_struct.errors import SchemaError, closest
from neuralqx_struct.expressions import Expression, parse, parse_equation
from neuralqx_struct.expressions.functions import FUNCTIONS
from neuralqx_struct.expressions.grammar import is_path
from neuralqx_struct.expressions.operators import format_tree, parse_tree
from neuralqx_struct.schema.field_paths import PathError
from neuralqx_struct.schema.lint import Speller
from neuralqx_struct.schema.lint.expressions import names_of
from neuralqx_struct.schema.lint.paths import Names
from neuralqx_struct.schema.lint.values import EquationNames
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.text import KeyPath

_LONGEST = 500
_MOST_CHOICES = 3  # readings of one part of a text
_MOST_READINGS = 6  # of a whole text
_MOST_TEXTS = 30  # of one file

#: Returns the number of items of a tuple that a path names, if it is fixed.
Count = Callable[[str], int | None]

# Functions of Python and numpy that people try, with the expressions that come closest.
_INSTEAD: Mapping[str, tuple[str, ...]] = {
    "mean": ("sum(x) / size(x)", "sum(x) / len(x)"),
    "average": ("sum(x) / size(x)", "sum(x) / len(x)"),
    "sqrt": ("x ** 0.5",),
    "square": ("x ** 2",),
    "pow": ("x ** y",),
    "power": ("x ** y",),
    "isnan": ("any(x != x)",),
    "isinf": ("not all(isfinite(x))",),
    "isclose": ("abs(x - y) < 1e-06", "all(abs(x - y) < 1e-06)"),
    "allclose": ("all(abs(x - y) < 1e-06)", "abs(x - y) < 1e-06"),
    "equal": ("x == y",),
    "array_equal": ("all(x == y)", "x == y"),
    "norm": ("sum(abs(x) ** 2) ** 0.5",),
    "float": ("x",),
    "asarray": ("x",),
    "array": ("x",),
    "list": ("x",),
    "tuple": ("x",),
    "int": ("x // 1",),
    "floor": ("x // 1",),
    "ceil": ("-(-x // 1)",),
    "round": ("(x + 0.5) // 1",),
    "absolute": ("abs(x)",),
    "fabs": ("abs(x)",),
    "amax": ("max(x)",),
    "amin": ("min(x)",),
    "maximum": ("max(x, y)",),
    "minimum": ("min(x, y)",),
    "rank": ("ndim(x)",),
    "numel": ("size(x)",),
    "count": ("len(x)",),
    "length": ("len(x)",),
}
_PRODUCTS = ("prod", "product")
_MODULES = ("math", "np", "numpy", "jnp", "jax", "linalg")

_STRINGS = re.compile(r"""('[^'\\\n]*'|"[^"\\\n]*")""")
_SLIPS = (
    (re.compile(r"=>"), ">="),
    (re.compile(r"=<"), "<="),
    (re.compile(r"<>"), "!="),
    (re.compile(r":="), "=="),
    (re.compile(r"===+"), "=="),
    (re.compile(r"&&?"), " and "),
    (re.compile(r"\|\|?"), " or "),
    (re.compile(r"!(?!=)"), " not "),
    (re.compile(r"\^"), "**"),
    (re.compile(r"(\d)\s*%(?=\s*(?:$|\)|and\b|or\b))"), r"\1 / 100"),
)
#: Text that the parser of Python warns about.
_WARNED = re.compile(r"\\|[0-9](?:and|or|not|in|is|if|else|for)\b")
_ASSIGNED = re.compile(r"(?<![=<>!])=(?!=)")
_OPEN_END = re.compile(r"(?:,|\b(?:and|or|not))\s*$")


def nearest(text: str, count: Count = lambda _: None) -> Iterator[str]:
    """Yields expressions that a text may mean, the nearest first.

    Args:
        text: The text, which may not be an expression.
        count: Returns the number of items of a tuple that a path names.
    """
    done: set[str] = set()
    odd = len(text) > _LONGEST or _WARNED.search(text)
    for source in () if odd else _sources(text):
        try:
            tree = parse_tree(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        if _INFINITE & {*map(str, _constants(tree))}:  # a number that is too large
            continue
        for choice in range(_MOST_CHOICES):
            try:
                made = _Nearest(count, choice).visit(copy.deepcopy(tree))
                found = parse(format_tree(made))
            except (
                SchemaError,
                AttributeError,
                KeyError,
                TypeError,
                RecursionError,
            ):  # other parts
                continue
            if found.names and found.text not in done:
                done.add(found.text)
                yield found.text


_INFINITE = frozenset({"inf", "infj"})


def _constants(tree: ast.AST) -> Iterator[object]:
    return (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))


def _sources(text: str) -> Iterator[str]:
    """Yields the text as Python may read it, after common slips."""
    parts = _STRINGS.split(" ".join(text.split()))
    for place in range(0, len(parts), 2):  # the others are strings
        for slip, instead in _SLIPS:
            parts[place] = slip.sub(instead, parts[place])
    for assigned in ("=", "=="):
        made = "".join(
            part if place % 2 else _ASSIGNED.sub(assigned, part) for place, part in enumerate(parts)
        )
        made = _balanced(made).strip()
        while end := _OPEN_END.search(made):
            made = made[: end.start()].rstrip()
        yield made
        if " if " in made and " else " not in made:
            yield f"{made} else True"


def _balanced(text: str) -> str:
    """The text without brackets that close nothing, and with those that are missing at its end."""
    pairs = {"(": ")", "[": "]", "{": "}"}
    made: list[str] = []
    waiting: list[str] = []
    for part in _STRINGS.split(text):
        for character in [part] if part[:1] in ("'", '"') else part:
            if character in pairs:
                waiting.append(pairs[character])
            elif character in pairs.values():
                if waiting[-1:] != [character]:
                    continue
                waiting.pop()
            made.append(character)
    return "".join([*made, *reversed(waiting)])


class _Replace(ast.NodeTransformer):
    """Puts trees in place of names."""

    def __init__(self, trees: Mapping[str, ast.expr]) -> None:
        self.trees = trees

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return copy.deepcopy(self.trees.get(node.id, node))


class _Nearest(ast.NodeTransformer):
    """Rewrites the parts of a tree that the subset lacks.

    Args:
        count: As for :func:`nearest`.
        choice: The number of the reading where a part has several.
    """

    def __init__(self, count: Count, choice: int) -> None:
        self.count, self.choice = count, choice

    def one_of(self, *readings: Any) -> Any:
        """The reading of this choice."""
        return readings[min(self.choice, len(readings) - 1)]

    def filled(self, template: str, arguments: Sequence[ast.expr]) -> Any:
        """The tree of a template with arguments in place of x and y."""
        return _Replace(dict(zip("xy", arguments, strict=False))).visit(parse_tree(template))

    def visit_Call(self, node: ast.Call) -> ast.expr:
        arguments = [*node.args]
        name = getattr(node.func, "id", "")
        if isinstance(node.func, ast.Attribute):
            name, owner = node.func.attr, node.func.value
            if getattr(owner, "attr", getattr(owner, "id", "")) not in _MODULES:
                arguments.insert(0, owner)
        if name == "values" and len(arguments) == 1:
            return self.visited(arguments[0])
        arguments = [self.visited(argument) for argument in arguments]
        record = FUNCTIONS.get(name)
        if record is None and arguments and (name in _INSTEAD or name in _PRODUCTS):
            if name in _PRODUCTS:
                return self.product(arguments[0])
            made: ast.expr = self.filled(self.one_of(*_INSTEAD[name]), arguments)
            return made
        if record is not None and record.single and len(arguments) > 1:
            joins = {"all": ast.And(), "any": ast.Or()}.get(name)
            if joins is not None and not node.keywords and self.choice:
                return ast.BoolOp(joins, arguments)
            arguments = arguments[:1]
        if record is None:
            name = closest(name, FUNCTIONS) or name or "f"
        return ast.Call(ast.Name(name, ast.Load()), arguments, [])

    def visited(self, node: ast.expr) -> ast.expr:
        made: ast.expr = self.visit(node)
        return made

    def product(self, node: ast.expr) -> ast.expr:
        """The product of the items of a shape, or of a tuple."""
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "shape":
            return ast.Call(ast.Name("size", ast.Load()), node.args, [])
        items: list[ast.expr] = getattr(node, "elts", [])
        if is_path(node):
            count = self.count(format_tree(node)) or 0
            items = [ast.Subscript(node, ast.Constant(i), ast.Load()) for i in range(count)]
        if not items:
            return ast.Call(ast.Name("prod", ast.Load()), [node], [])
        return reduce(lambda left, right: ast.BinOp(left, ast.Mult(), right), items)

    def loop(self, node: Any) -> ast.expr:
        """The body of a loop, which takes the items of a path one by one."""
        (first, *others) = node.generators
        path = self.visited(first.iter)
        if others or first.ifs or not is_path(path) or not isinstance(first.target, ast.Name):
            return node  # type: ignore[no-any-return]
        body = _Replace({first.target.id: path}).visit(node.elt)
        return self.visit(body)  # type: ignore[no-any-return]

    visit_GeneratorExp = visit_ListComp = visit_SetComp = loop  # noqa: N815 - names of ast

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if node.attr in FUNCTIONS and self.choice:
            return ast.Call(ast.Name(node.attr, ast.Load()), [self.visit(node.value)], [])
        value = self.visit(node.value)
        return ast.Attribute(value, node.attr, ast.Load()) if is_path(value) else value

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        value = self.visit(node.value)
        index = getattr(node.slice, "operand", node.slice)
        number = getattr(index, "value", None)
        if type(number) is int:
            return ast.Subscript(value, node.slice, ast.Load())
        if isinstance(number, str) and number.isidentifier():
            return self.one_of(ast.Attribute(value, number, ast.Load()), value)  # type: ignore[no-any-return]
        return value  # type: ignore[no-any-return]

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        left, *rights = [self.visit(each) for each in (node.left, *node.comparators)]
        same = {ast.Is: ast.Eq(), ast.IsNot: ast.NotEq()}
        made = [same.get(type(relation), relation) for relation in node.ops]
        member = isinstance(made[0], (ast.In, ast.NotIn)) and len(made) == 1
        if member and is_path(rights[0]):
            call, relation = (
                ("any", ast.Eq()) if isinstance(made[0], ast.In) else ("all", ast.NotEq())
            )
            compared = ast.Compare(rights[0], [relation], [left])
            return ast.Call(ast.Name(call, ast.Load()), [compared], [])
        items = getattr(rights[0], "elts", None)
        if member and items and not all(isinstance(each, ast.Constant) for each in items):
            joins = ast.Or() if isinstance(made[0], ast.In) else ast.And()
            relation = ast.Eq() if isinstance(made[0], ast.In) else ast.NotEq()
            return ast.BoolOp(joins, [ast.Compare(left, [relation], [each]) for each in items])
        return ast.Compare(left, made, rights)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        operand = self.visit(node.operand)
        return ast.UnaryOp(ast.Not() if isinstance(node.op, ast.Invert) else node.op, operand)

    def visit_Set(self, node: ast.Set) -> ast.expr:
        return ast.Tuple([self.visit(each) for each in node.elts], ast.Load())


class Repairs:
    """Finds the expressions that texts of one document may mean.

    Args:
        document: The document without these texts.
    """

    def __init__(self, document: Document) -> None:
        self.document = document
        self._left = _MOST_TEXTS
        self._speller = Speller()

    def hint(self, path: KeyPath, text: str) -> str | None:
        """The hint about the text of an expression; None if nothing better than the parser's is known.

        Args:
            path: The place of the text: the `equals` of a dim, the `derived` of a field, the `expr` of a constraint.
            text: The text.
        """
        self._left -= 1
        if self._left < 0:
            return None
        with contextlib.suppress(SchemaError, PathError, KeyError):  # other parts have faults too
            found = self._equation(text) if path[0] == "dims" else self._of_fields(path, text)
            return found and f"write `{found}`"
        return None

    def names(self, path: KeyPath) -> str:
        """The names and functions that an expression at a place may have."""
        functions = f"functions: {', '.join(FUNCTIONS)}"
        with contextlib.suppress(SchemaError, PathError, KeyError):
            if path[0] == "dims":
                return f"{EquationNames(self.document, self._speller).known()}; {functions}"
            return f"{self._names(path).known_names()}; {functions}"
        return functions

    def _names(self, path: KeyPath) -> Names:
        whole = "" if path[-1] == "derived" else "all"
        return names_of(self.document, str(path[1]), self._speller, whole=whole)

    def _of_fields(self, path: KeyPath, text: str) -> str | None:
        names = self._names(path)
        return self._first(text, names, names.repaired)

    def _equation(self, text: str) -> str | None:
        values = EquationNames(self.document, self._speller)
        known = {*self.document.dims, *values.ints}

        def repaired(expression: Expression) -> str | None:
            equation = parse_equation(expression.text)
            plain = {name for name in equation.names if not values.knows(name)}
            fine = plain <= known and not any(values.problems(equation))
            return equation.text if fine else None

        return self._first(text, values.names, repaired)

    def _first(
        self, text: str, names: Names, repaired: Callable[[Expression], str | None]
    ) -> str | None:
        """The first reading of a text that can be repaired."""

        def count(path: str) -> int | None:
            if not names.is_field(path):
                return None
            counts = {len(option.fixed_parts) for _, option in names.reach(path).options}
            return counts.pop() if len(counts) == 1 else None

        readings = map(parse, islice(nearest(text, count), _MOST_READINGS))
        return next(filter(None, map(repaired, readings)), None)
