"""Samples of structs, on which lint evaluates expressions: which operation has a value for none of them?

A sample has for each name a value of its declared type: arrays with a shape and no numbers, other values that are not special.
A union has one sample for each combination of options (:class:`Choices`). An operation is a finding if it has a value for none
of the samples. A name of which nothing is known, such as one of a `pytree`, leaves the operations on it undecided, and so does a
failure that other numbers would not have: a division by zero, or unequal numbers of items. What is undecided because samples are
limited is noted (NQX139).

Example:
    >>> sample = Sample(v3, "VMCState", Choices())
    >>> sample["alpha"], sample["kernel"].dtype, sample["kernel"].shape
    (7, 'complex64', (n_sites, n_hidden))
    >>> from neuralqx_struct.expressions import parse
    >>> samples = SampleEvaluation(v3, "VMCState", ["n_sites"])
    >>> [problem.message for problem in samples.problems(parse("alpha > 'x'"), single=True)]
    ["expected operands that fit together, got int and str in `alpha > 'x'`"]
"""

from __future__ import annotations

import ast
import math
from bisect import bisect_left
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, zip_longest
from typing import Any, NoReturn, Self, TypeVar

from neuralqx_struct.errors import Diagnostic, SchemaError
from neuralqx_struct.expressions import Expression, parse
from neuralqx_struct.expressions.evaluation import evaluate_tree
from neuralqx_struct.expressions.exact import limits_of
from neuralqx_struct.expressions.functions import Items, StructValue, is_a_struct, is_array
from neuralqx_struct.expressions.grammar import has_names, inside, names_in, steps_of
from neuralqx_struct.expressions.items import Budget, StepsError, UnequalItemsError
from neuralqx_struct.expressions.operators import shown, spine
from neuralqx_struct.schema.lint import Problem
from neuralqx_struct.schema.model import Document
from neuralqx_struct.types import Type
from neuralqx_struct.types.text import constant_size

_T = TypeVar("_T")

_DEEPEST = 40
_MOST_AXES = 8  # of an array of which not even their number is declared
_NUMBER = 7  # small, and neither 0 nor 1, which are special


class UndecidedError(Exception):
    """It is not known whether an expression has a value.

    Attributes:
        limit: The limit of lint that is the reason; empty if the value depends on what the document does not declare.
    """

    def __init__(self, limit: str = "") -> None:
        super().__init__(limit)
        self.limit = limit


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


class SampleArray:
    """An array of which only shape and dtype count."""

    def __init__(self, dtype: str, shape: tuple[int, ...]) -> None:
        self.dtype, self.shape = dtype, shape

    def _combined(self, other: Any = None) -> SampleArray:
        """The array that an operator makes of one array, or two."""
        shapes = self.shape[::-1], getattr(other, "shape", ())[::-1]
        sizes: list[int] = []
        for one, two in zip_longest(*shapes, fillvalue=1):
            if 1 not in (one, two) and one != two:
                raise ValueError("the shapes do not fit together")
            sizes.append(two if one == 1 else one)
        return SampleArray(self.dtype, tuple(sizes[::-1]))

    def _total(self) -> Any:
        """A number of the dtype."""
        if limits_of(self.dtype) is not None:
            return _NUMBER
        return 1j if "complex" in self.dtype else 0.5

    def _extreme(self) -> Any:
        """A number for whole elements, else an array without axes."""
        whole = limits_of(self.dtype) is not None
        return _NUMBER if whole else SampleArray(self.dtype, ())

    def _truth(self) -> bool:
        """A truth value."""
        return True

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _combined
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = _combined
    __pow__ = __rpow__ = __neg__ = __pos__ = __abs__ = _combined
    __and__ = __rand__ = __or__ = __ror__ = _combined
    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = _combined  # type: ignore[assignment]
    sum, min, max, all, any = _total, _extreme, _extreme, _truth, _truth
    __hash__ = None  # type: ignore[assignment]


class _SampleKey:
    """A random key, which has a shape and no operators."""

    dtype = "prng_key"

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape

    def _refuse(self, *_: Any) -> NoReturn:
        raise TypeError("it has no operators")

    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = __bool__ = _refuse
    __hash__ = None  # type: ignore[assignment]


class _Word:
    """A path or a dtype, which are compared with None alone."""


_SINGLES: dict[str, Any] = {
    "bool": True,
    "float": 0.5,
    "complex": 1j,
    "bytes": b"a",
    "path": _Word(),
    "dtype": _Word(),
}


class Choices:
    """Counts through the combinations of choices with which samples are made.

    Attributes:
        numbers: Yields whole numbers, each once, as equal ones may be special.
    """

    def __init__(self) -> None:
        self.numbers = count(_NUMBER)
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
            place, options = self._made.pop()
            if place + 1 < options:
                self._made.append((place + 1, options))
                return True
        return False


@dataclass(frozen=True, eq=False)
class Sample(Mapping[str, Any]):
    """The values of the fields of a struct, each made when it is read, and of sizes.

    Reading a value of which nothing is known raises :class:`UndecidedError`.

    Attributes:
        document: The document that declares the struct.
        struct: Its name.
        choices: Makes the choices between the options of unions.
        sizes: The names of sizes, beside those of fields.
        axis: The size of all axes that have names.
        length: The number of items of lists and dicts.
        levels: The levels of structs inside, below which lists are empty.
        stacked: Whether the struct is stacked, so that the axes of its arrays are unknown.
        null: The struct and the name of a field that is null; no field is one if left out.
    """

    document: Document
    struct: str
    choices: Choices
    sizes: Container[str] = ()
    axis: int = 1
    length: int = 1
    levels: int = 2
    stacked: bool = False
    null: tuple[str, str] | None = None
    _known: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        if name not in self._known:
            declaration = self.document.structs[self.struct].fields.get(name)
            if declaration is None and name not in self.sizes:
                raise KeyError(name)
            if declaration is not None and declaration.type is None:
                raise UndecidedError
            if declaration is None:
                made = _NUMBER
            elif (self.struct, name) == self.null:
                made = None
            else:
                made = self.value_of(self.document, declaration.declared)
            self._known[name] = made
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.document.structs[self.struct].fields)

    def __len__(self) -> int:
        return len(self.document.structs[self.struct].fields)

    def value_of(self, owner: Document, declared: Type) -> Any:
        """A value of a type."""
        if self.levels < 0 and declared.nullable:
            return None
        option = self.choices.one_of(declared.solid) if declared.solid else None
        if option is None or not option.operands(owner):
            raise UndecidedError
        if option.stacks:
            return replace(self, stacked=True).value_of(owner, option.parts[0])
        kind = self.choices.one_of(sorted(option.operands(owner)))
        match kind:
            case "int":
                return next(self.choices.numbers)
            case "text":
                return next(iter(option.texts(owner) or ()), "a")
            case "array":
                return SampleArray(option.element, self._shape(option))
            case "key":
                return _SampleKey(self._shape(option))
            case "list" | "tuple" | "dict":
                return self._collection(owner, option, kind)
            case "struct":
                return self._struct(*owner.place_of(option.refers))
        if kind not in _SINGLES:
            raise UndecidedError
        return _SINGLES[kind]

    def _shape(self, option: Type) -> tuple[int, ...]:
        if self.stacked or ... in option.extents:
            return (_Size(1, "..."),) * _MOST_AXES
        sizes = [(constant_size(each), str(each)) for each in option.extents if each is not ...]
        return tuple(_Size(self.axis if known is None else known, text) for known, text in sizes)

    def _collection(self, owner: Document, option: Type, kind: str) -> Any:
        if option.fixed_parts:
            items = [self.value_of(owner, part) for part in option.fixed_parts]
        elif self.levels < 0:
            items = []
        else:  # the same item several times
            items = [self.value_of(owner, self.choices.one_of(option.parts))] * self.length
        if kind == "dict":
            return {str(place): item for place, item in enumerate(items)}
        return items if kind == "list" else tuple(items)

    def _struct(self, owner: Document, name: str) -> StructValue:
        if name not in owner.structs or self.levels < -_DEEPEST:
            raise UndecidedError
        levels = self.levels - 1
        made = replace(self, document=owner, struct=name, sizes=(), levels=levels, _known={})
        stored = owner.structs[name].stored
        return StructValue(made, [name for name, each in stored.items() if each.kind == "node"])


#: The sorts of values of which one may be given for another, by the kinds of operands of types.
_SORTS = {
    **dict.fromkeys(("bool", "int", "float", "complex", "array"), "number"),
    **dict.fromkeys(("text", "bytes", "path", "dtype"), "text"),
    **dict.fromkeys(("list", "tuple"), "list"),
}


def can_be(value: Any, declared: Type, document: Document) -> bool:
    """True if a value of a sample may be one of a declared type."""
    kinds = [each.operands(document) for each in declared.solid]
    wanted = {_SORTS.get(kind, kind) for each in kinds for kind in each}
    wanted |= {"null"} if declared.nullable else set()
    return not all(kinds) or _sort_of(value) in wanted


def _sort_of(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool() | int() | float() | complex() | SampleArray():
            return "number"
        case str() | bytes() | _Word():
            return "text"
        case list() | tuple() | Items():
            return "list"
        case dict():
            return "dict"
    return "struct" if is_a_struct(value) else "key" if is_array(value) else ""


_MOST_SAMPLES = 64
_MOST_ITEMS = 64
_MOST_STEPS = 500_000


@dataclass(frozen=True, eq=False)
class SampleEvaluation:
    """Evaluates the expressions of a struct on sample values.

    Attributes:
        document: The document.
        struct: The struct.
        sizes: Names of sizes.
        budget: The steps that all evaluations share; what is left then is undecided.
        limits: The limits of samples that leave operations of an expression undecided.
    """

    document: Document
    struct: str
    sizes: Container[str]
    budget: Budget = field(default_factory=lambda: Budget(_MOST_STEPS))
    limits: dict[str, None] = field(default_factory=dict)

    def value(
        self,
        tree: ast.expr,
        choices: Choices | None = None,
        axis: int = 1,
        null: tuple[str, str] | None = None,
    ) -> Any:
        """The value of an expression for one sample.

        Args:
            tree: The expression.
            choices: The options of unions that the sample has; the first ones if left out.
            axis: The size of all axes that have names.
            null: As for :class:`Sample`.

        Raises:
            SchemaError: It has none.
            UndecidedError: It is not known whether it has one.
        """
        steps = [steps_of(name.id) for name in names_in(tree)]
        indices = [abs(step) for path in steps for step in path if isinstance(step, int)]
        length = 1 + max(indices, default=0)
        if length > _MOST_ITEMS:
            raise UndecidedError(
                f"it reads item {length - 1}, and samples have {_MOST_ITEMS} items"
            )
        levels = 2 + max(map(len, steps), default=0)
        chosen = choices or Choices()
        sample = Sample(
            self.document, self.struct, chosen, self.sizes, axis, length, levels, null=null
        )
        try:
            return evaluate_tree(tree, sample, budget=self.budget)
        except StepsError as error:
            raise UndecidedError(
                f"samples of {self.struct} take more steps than lint has"
            ) from error
        except SchemaError as error:
            arithmetic = isinstance(error.__context__, ArithmeticError)
            if arithmetic or isinstance(error, UnequalItemsError) or error.code == "NQX507":
                raise UndecidedError from error
            raise

    def problems(self, expression: Expression, *, single: bool) -> Iterator[Problem]:
        """Yields the problems of the operations of an expression whose names reach something.

        Args:
            expression: The expression.
            single: Whether its value has to be one truth value.
        """
        self.limits.clear()
        yield from self._problems_of(expression.tree, single=single)
        for limit in self.limits:
            message = f"expected an expression that lint can try on samples, got one that is not judged as a whole\n{limit}"
            hint = "split it into derived fields or several constraints; loads evaluate it"
            yield Problem("NQX139", message, hint, "info")

    def _problems_of(self, node: ast.expr, *, single: bool = False) -> Iterator[Problem]:
        """Yields the problems of a part: those of the parts inside, else its own."""
        if not has_names(node):
            return  # lint computes parts without names
        wrong, decided = self._failure(node, single=single)
        if wrong is None and decided and not _hides_parts(node):
            if single and self._has_elements(node):
                message = f"expected one truth value, got one for each element in `{shown(node)}`"
                hint = "say which elements must hold: all(...) or any(...)"
                yield Problem("NQX115", message, hint, "warning")
            return
        found = [
            problem
            for part, is_single in _parts_of(node, single=single, is_fine=wrong is None)
            for problem in self._problems_of(part, single=is_single)
        ]
        yield from found
        if wrong is not None and not found:
            yield self._problem_of(node, wrong)

    def _problem_of(self, node: ast.expr, wrong: Diagnostic) -> Problem:
        """The problem of a part; of a sum of several the first one that has it."""
        if isinstance(node, ast.BinOp):
            _, steps = spine(node)
            place = bisect_left(steps, True, key=lambda step: self._wrong(step) is not None)
            if place < len(steps):  # else its truth value alone is wrong
                node = steps[place]
                wrong = self._wrong(node) or wrong
        message = wrong.message.partition("\n")[0]
        return Problem("NQX115", f"{message} in `{shown(node)}`", wrong.hint)

    def _wrong(self, node: ast.expr) -> Diagnostic | None:
        """Why an operation has no value for any sample."""
        return self._failure(node, single=False)[0]

    def without_value(self, expression: Expression, null: tuple[str, str]) -> Diagnostic | None:
        """Why an expression has no value where a field is null, whatever the others are; None if it may have one."""
        if _hides_parts(expression.tree):
            return None  # another field may tell that this one is null
        return self._failure(expression.tree, single=False, null=null)[0]

    def condition(self, text: str) -> str:
        """A comparison as one truth value: of all items, where a path has several values."""
        try:
            several = type(self.value(parse(text).tree)) is Items
        except (SchemaError, UndecidedError):
            several = False
        return f"all({text})" if several else text

    def _failure(
        self, node: ast.expr, *, single: bool, null: tuple[str, str] | None = None
    ) -> tuple[Diagnostic | None, bool]:
        """Why a part has no value for any sample, and whether that is known."""
        tree = ast.UnaryOp(ast.Not(), node) if single else node
        choices, wrong = Choices(), None
        for _ in range(_MOST_SAMPLES):
            try:
                self.value(tree, choices, null=null)
            except UndecidedError as error:
                if error.limit:
                    self.limits[error.limit] = None
                return None, False
            except SchemaError as error:
                wrong = wrong or error.diagnostics[0]
            else:
                return None, True
            if not choices.advance():
                return wrong, True
        limit = f"the unions in it have more than {_MOST_SAMPLES} combinations of options"
        self.limits[limit] = None
        return None, False

    def _has_elements(self, node: ast.expr) -> bool:
        """True for an array with several elements where named sizes are not 1."""
        try:
            value = self.value(node, axis=2)
        except (SchemaError, UndecidedError):
            return False
        return type(value) is SampleArray and math.prod(value.shape) > 1


def _parts_of(node: ast.expr, *, single: bool, is_fine: bool) -> Iterator[tuple[ast.expr, bool]]:
    """Yields the parts of an operation, and whether each has to be one truth value.

    Args:
        node: The operation.
        single: Whether its own value has to be one.
        is_fine: Whether it has a value; several arguments are then compared as one value each.
    """
    match node:
        case ast.BoolOp():
            yield from ((value, True) for value in node.values)
        case ast.IfExp():
            yield from ((node.test, True), (node.body, single), (node.orelse, single))
        case ast.UnaryOp(op=ast.Not()):
            yield node.operand, True
        case ast.Call() if is_fine and len(node.args) > 1:
            yield from ((argument, True) for argument in node.args)
        case ast.Compare() if len(node.ops) > 1:
            operands = [node.left, *node.comparators]
            yield from ((operand, False) for operand in operands)
            for left, relation, right in zip(operands, node.ops, operands[1:], strict=False):
                yield ast.Compare(left, [relation], [right]), False
        case _:
            yield from ((part, False) for part in inside(node)[1] if isinstance(part, ast.expr))


def _hides_parts(tree: ast.expr) -> bool:
    """True if the value of an expression may not need all of its parts, or compares arrays as one value."""
    for node in ast.walk(tree):
        match node:
            case ast.BoolOp() | ast.IfExp():
                return True
            case ast.Compare(ops=several) | ast.Call(args=several) if len(several) > 1:
                return True
    return False
