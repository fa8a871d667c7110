"""Trials: lint evaluates expressions on sample values, of the types that the document declares.

An operation is a finding if it has a value for none of the samples, one for each combination of the options of unions. A name of
which nothing is known, such as one of a `pytree`, leaves the operations on it undecided, and so does a failure that other numbers would
not have: a division by zero, or unequal numbers of items.

Example:
    >>> trial = Trial(v3, "VMCState", ["n_sites"])
    >>> [problem.message for problem in trial.problems(parse("alpha > 'x'"), single=True)]
    ["expected operands that fit together, got int and str in `alpha > 'x'`"]
"""

from __future__ import annotations

import ast
import math
from collections.abc import Container, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple, NoReturn, Self, TypeVar

from neuralqx_struct.errors import Diagnostic, SchemaError, Severity
from neuralqx_struct.expressions import Expression
from neuralqx_struct.expressions.evaluation import evaluate_tree
from neuralqx_struct.expressions.functions import Items, StructValue, is_a_struct, is_array
from neuralqx_struct.expressions.grammar import inside, names_in, steps_of
from neuralqx_struct.expressions.items import UnequalItemsError
from neuralqx_struct.expressions.operators import shown, spine
from neuralqx_struct.schema.model import Document, FieldDeclaration
from neuralqx_struct.types import Type
from neuralqx_struct.types.text import constant_size

_T = TypeVar("_T")

_MOST_SAMPLES = 64
_MOST_ITEMS = 64
_DEEPEST = 40
_MOST_AXES = 8  # of an array of which not even their number is declared
_NUMBER = 7  # small, and neither 0 nor 1, which are special

_NUMBERS = (bool, int, float, complex)
_WHICH = "say which elements must hold: all(...) or any(...)"


class UndecidedError(Exception):
    """The value of an operation depends on what the document does not declare."""


class _Size(int):
    """The size of an axis, which messages show as it is declared."""

    text: str

    def __new__(cls, value: int, text: str) -> Self:
        """A size with its text."""
        made = super().__new__(cls, value)
        made.text = text
        return made

    def __repr__(self) -> str:
        return self.text


def _calculated(self: SampleArray, other: Any = None) -> SampleArray:
    """The array that an operator makes of two."""
    sizes: list[int] = []
    for one, two in zip_longest(self.shape[::-1], getattr(other, "shape", ())[::-1], fillvalue=1):
        if 1 not in (one, two) and one != two:
            raise ValueError("the shapes do not fit together")
        sizes.append(two if one == 1 else one)
    return SampleArray(self.dtype, tuple(sizes[::-1]))


def _reduced(self: SampleArray) -> SampleArray:
    """The single value that a method makes of all elements."""
    return SampleArray(self.dtype, ())


class SampleArray:
    """An array in samples, of which only shape and dtype count."""

    def __init__(self, dtype: str, shape: tuple[int, ...]) -> None:
        self.dtype, self.shape = dtype, shape

    __hash__ = None  # type: ignore[assignment]


for _name in (
    *(
        [
            "add",
            "radd",
            "sub",
            "rsub",
            "mul",
            "rmul",
            "truediv",
            "rtruediv",
            "floordiv",
            "rfloordiv",
            "mod",
            "rmod",
            "pow",
            "rpow",
        ]
    ),
    *(["and", "rand", "or", "ror", "lt", "le", "gt", "ge", "eq", "ne", "neg", "pos", "abs"]),
):
    setattr(SampleArray, f"__{_name}__", _calculated)
for _name in ("sum", "min", "max", "all", "any"):
    setattr(SampleArray, _name, _reduced)


def _refuse(*_: Any) -> NoReturn:
    raise TypeError("it has no operators")


class _SampleKey:
    """A random key in samples, which has a shape and no operators."""

    dtype = "prng_key"

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape

    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = __bool__ = _refuse
    __hash__ = None  # type: ignore[assignment]


class _Word:
    """A path or a dtype in samples, which are compared with None alone."""


_SINGLES: dict[str, Any] = {
    "bool": True,
    "int": _NUMBER,
    "float": 0.5,
    "complex": 1j,
    "bytes": b"a",
    "path": _Word(),
    "dtype": _Word(),
}


class _Choices:
    """Counts through the combinations of choices with which values are made."""

    def __init__(self) -> None:
        self._made: list[tuple[int, int]] = []  # the position and the number of the options
        self._next = 0

    def one_of(self, options: Sequence[_T]) -> _T:
        """The option of this combination."""
        if self._next == len(self._made):
            self._made.append((0, len(options)))
        place, _ = self._made[self._next]
        self._next += 1
        return options[place]

    def advance(self) -> bool:
        """Goes to the next combination; False after the last one."""
        self._next = 0
        while self._made:
            place, count = self._made.pop()
            if place + 1 < count:
                self._made.append((place + 1, count))
                return True
        return False


class _Sample(Mapping[str, Any]):
    """The values of the fields of a struct, each made when it is read, and of sizes.

    Args:
        document: The document that declares the struct.
        fields: Its fields.
        choices: Makes choices between the options of unions.
        size: The size of all axes that have names.
        items: The length of lists and dicts.
        levels: The levels of structs inside, below which lists are empty.
        sizes: The names of sizes, beside those of fields.
        stacked: Whether the struct is stacked, so that the axes of its arrays are unknown.
    """

    def __init__(
        self,
        document: Document,
        fields: Mapping[str, FieldDeclaration],
        choices: _Choices,
        *,
        size: int,
        items: int,
        levels: int,
        sizes: Container[str] = (),
        stacked: bool = False,
    ) -> None:
        self._document, self._fields, self._choices = document, fields, choices
        self._size, self._items, self._levels = size, items, levels
        self._sizes, self._stacked = sizes, stacked
        self._known: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._known:
            field = self._fields.get(name)
            if field is None and name not in self._sizes:
                raise KeyError(name)
            self._known[name] = _NUMBER if field is None else self._of_field(field)
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def _of_field(self, field: FieldDeclaration) -> Any:
        if field.type is None:
            raise UndecidedError
        return self._of(self._document, field.declared)

    def _of(self, owner: Document, declared: Type) -> Any:
        """A value of a type."""
        if not declared.solid:
            raise UndecidedError
        if self._levels < 0 and declared.nullable:
            return None
        option = self._choices.one_of(declared.solid)
        stacked, option = (True, option.parts[0]) if option.stacks else (self._stacked, option)
        kinds = sorted(option.operands(owner))
        if not kinds:
            raise UndecidedError
        return self._of_kind(owner, option, self._choices.one_of(kinds), stacked=stacked)

    def _of_kind(self, owner: Document, option: Type, kind: str, *, stacked: bool) -> Any:
        match kind:
            case "text":
                return next(iter(option.texts(owner) or ()), "a")
            case "array":
                return SampleArray(option.element, self._shape(option, stacked=stacked))
            case "key":
                return _SampleKey(self._shape(option, stacked=stacked))
            case "list" | "tuple" | "dict":
                return self._collection(owner, option, kind)
            case "struct":
                return self._struct(owner, option, stacked=stacked)
        if kind not in _SINGLES:
            raise UndecidedError
        return _SINGLES[kind]

    def _shape(self, option: Type, *, stacked: bool) -> tuple[int, ...]:
        if stacked or ... in option.extents:
            return (_Size(1, "..."),) * _MOST_AXES
        sizes = [(constant_size(each), str(each)) for each in option.extents if each is not ...]
        return tuple(_Size(self._size if known is None else known, text) for known, text in sizes)

    def _collection(self, owner: Document, option: Type, kind: str) -> Any:
        if option.fixed_parts:
            items = [self._of(owner, part) for part in option.fixed_parts]
        elif self._levels < 0:
            items = []
        else:  # the same item several times
            items = [self._of(owner, self._choices.one_of(option.parts))] * self._items
        if kind == "dict":
            return {str(place): item for place, item in enumerate(items)}
        return items if kind == "list" else tuple(items)

    def _struct(self, owner: Document, option: Type, *, stacked: bool) -> StructValue:
        where, name = owner.place_of(option.refers)
        if name not in where.structs or self._levels < -_DEEPEST:
            raise UndecidedError
        declared = where.structs[name]
        made = _Sample(
            where,
            declared.fields,
            self._choices,
            size=self._size,
            items=self._items,
            levels=self._levels - 1,
            stacked=stacked,
        )
        return StructValue(made, [n for n, each in declared.stored.items() if each.kind == "node"])


def _depends(error: SchemaError) -> bool:
    """True for a failure that other numbers may not have."""
    arithmetic = isinstance(error.__context__, ArithmeticError)
    return arithmetic or isinstance(error, UnequalItemsError) or error.code == "NQX507"


class Problem(NamedTuple):
    """An operation that has no value.

    Attributes:
        message: The message.
        hint: The likely fix, if one is known.
        severity: A warning about an array that may have one element.
    """

    message: str
    hint: str | None
    severity: Severity = "error"


class Trial:
    """Evaluates the expressions of a struct.

    Args:
        document: The document.
        struct: The struct.
        sizes: Names of sizes.
    """

    def __init__(self, document: Document, struct: str, sizes: Container[str]) -> None:
        self._document, self._struct, self._sizes = document, struct, sizes
        self._items = self._levels = 1

    def problems(self, expression: Expression, *, single: bool) -> Iterator[Problem]:
        """Yields the problems of the operations of an expression whose names reach something.

        Args:
            expression: The expression.
            single: Whether its value has to be one truth value.
        """
        if self._prepared(expression):
            yield from self._judged(expression.tree, single=single)

    def value(self, expression: Expression) -> Any:
        """The value of an expression for a sample.

        Raises:
            UndecidedError: It is not known, or it has none.
        """
        if not self._prepared(expression):
            raise UndecidedError
        try:
            return evaluate_tree(expression.tree, self._sample(_Choices(), 1))
        except SchemaError as error:
            raise UndecidedError from error

    def _prepared(self, expression: Expression) -> bool:
        """Sizes samples for the paths of an expression; False if they had too many items."""
        steps = [steps_of(name) for name in expression.names]
        indices = [abs(step) for path in steps for step in path if isinstance(step, int)]
        self._items = 1 + max(indices, default=0)
        self._levels = 2 + max(map(len, steps), default=0)
        return self._items <= _MOST_ITEMS

    def _sample(self, choices: _Choices, size: int) -> _Sample:
        fields = self._document.structs[self._struct].fields
        return _Sample(
            self._document,
            fields,
            choices,
            size=size,
            items=self._items,
            levels=self._levels,
            sizes=self._sizes,
        )

    def _judged(self, node: ast.expr, *, single: bool = False) -> Iterator[Problem]:
        """Yields the problems of a part: those of the parts inside, else its own."""
        if not any(True for _ in names_in(node)):
            return  # lint computes parts without names
        wrong, decided = self._failure(node, single=single)
        if wrong is None and decided and not _hides_parts(node):
            if single and self._has_elements(node):
                message = f"expected one truth value, got one for each element in `{shown(node)}`"
                yield Problem(message, _WHICH, "warning")
            return
        found = False
        for part, is_single in _parts_of(node):
            for problem in self._judged(part, single=is_single):
                found = True
                yield problem
        if wrong is not None and not found:
            steps = spine(node)[1] if isinstance(node, ast.BinOp) else [node]
            for step in steps:
                why, _ = self._failure(step, single=single and step is node)
                if why is not None:
                    message = why.message.partition("\n")[0]
                    yield Problem(f"{message} in `{shown(step)}`", why.hint)
                    return

    def _failure(self, node: ast.expr, *, single: bool) -> tuple[Diagnostic | None, bool]:
        """Why a part has no value for any sample, and whether that is known."""
        tree = ast.UnaryOp(ast.Not(), node) if single else node
        choices, wrong = _Choices(), None
        for _ in range(_MOST_SAMPLES):
            try:
                evaluate_tree(tree, self._sample(choices, 1))
            except UndecidedError:
                return None, False
            except SchemaError as error:
                if _depends(error):
                    return None, False
                wrong = wrong or error.diagnostics[0]
            else:
                return None, True
            if not choices.advance():
                return wrong, True
        return None, False

    def _has_elements(self, node: ast.expr) -> bool:
        """True for arrays with several elements where named sizes are not 1."""
        try:
            value = evaluate_tree(node, self._sample(_Choices(), 2))
        except (SchemaError, UndecidedError):
            return False
        return type(value) is SampleArray and math.prod(value.shape) > 1


def _parts_of(node: ast.expr) -> Iterator[tuple[ast.expr, bool]]:
    """Yields the parts of a part, and whether each has to be one truth value."""
    match node:
        case ast.BoolOp():
            yield from ((value, True) for value in node.values)
        case ast.IfExp():
            yield from ((node.test, True), (node.body, False), (node.orelse, False))
        case ast.UnaryOp(op=ast.Not()):
            yield node.operand, True
        case ast.Compare() if len(node.ops) > 1:
            operands = [node.left, *node.comparators]
            yield from ((operand, False) for operand in operands)
            for left, relation, right in zip(operands, node.ops, operands[1:], strict=False):
                yield ast.Compare(left, [relation], [right]), False
        case _:
            yield from ((part, False) for part in inside(node)[1] if isinstance(part, ast.expr))


def _hides_parts(tree: ast.expr) -> bool:
    """True if the value of an expression may not need all of its parts."""
    return any(
        isinstance(node, (ast.BoolOp, ast.IfExp))
        or (isinstance(node, ast.Compare) and len(node.ops) > 1)
        for node in ast.walk(tree)
    )


#: The sorts of values of which one may be given for another, by the kinds of operands of types.
_SORTS = {
    **dict.fromkeys(("bool", "int", "float", "complex", "array"), "number"),
    **dict.fromkeys(("text", "bytes", "path", "dtype"), "text"),
    **dict.fromkeys(("list", "tuple"), "list"),
}


def can_be(value: Any, declared: Type, document: Document) -> bool:
    """True if a value of a sample may be one of a declared type."""
    wanted = {_SORTS.get(kind, kind) for each in declared.solid for kind in each.operands(document)}
    known = all(each.operands(document) for each in declared.solid)
    if declared.nullable:
        wanted.add("null")
    return not known or _sort_of(value) in wanted


def _sort_of(value: Any) -> str:
    if value is None:
        return "null"
    if type(value) in _NUMBERS or type(value) is SampleArray:
        return "number"
    if isinstance(value, (str, bytes, _Word)):
        return "text"
    if isinstance(value, (list, tuple, Items)):
        return "list"
    if isinstance(value, dict):
        return "dict"
    return "struct" if is_a_struct(value) else "key" if is_array(value) else ""
