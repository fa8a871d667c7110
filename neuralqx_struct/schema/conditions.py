"""Conditions: the constraints of structs, and the values that their expressions see.

Values come from a reader of live instances or of manifests, when an expression asks for them. Of arrays in manifests, and of tracers, only shape and dtype
are known: :class:`Shaped` takes the place of such an array, and a condition that needs its numbers is left undecided.

Example:
    >>> array = Shaped("float32", [3, 2])
    >>> array.ndim, array.size
    (2, 6)
"""

from __future__ import annotations

import ast
import contextlib
import copy
import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from neuralqx_struct.errors import Diagnostic, SchemaError, printable
from neuralqx_struct.expressions import Expression
from neuralqx_struct.expressions.evaluation import evaluate, evaluate_tree
from neuralqx_struct.expressions.exact import number_of
from neuralqx_struct.expressions.functions import Items, StructValue, calls
from neuralqx_struct.expressions.grammar import head_of
from neuralqx_struct.expressions.items import Budget
from neuralqx_struct.expressions.operators import format_tree
from neuralqx_struct.paths import FieldName, Path, format_path
from neuralqx_struct.printing import brief_scalar
from neuralqx_struct.references import SchemaRef
from neuralqx_struct.schema.model import Document, FieldDeclaration, StructDeclaration
from neuralqx_struct.schema.sizes.solver import Solver
from neuralqx_struct.schema.stacks import Axes, layers

_DEEPEST = 20  # collections inside collections that expressions see
_MOST_SHOWN = 8  # items in messages

#: The unit of the length of a collection.
ENTRIES = {"list": "items", "tuple": "items", "dict": "entries"}


class NeedsDataError(Exception):
    """An expression needs the numbers of an array of which only shape and dtype are known."""


class Shaped:
    """An array in expressions of which only shape and dtype are known."""

    def __init__(self, dtype: str, shape: Iterable[int]) -> None:
        self.dtype = dtype
        self.shape = tuple(shape)
        self.asked = False  # whether an expression needed its numbers

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    def layer(self, axes: int) -> Shaped:
        """One of the arrays that are stacked along the first axes."""
        return _Layer(self, self.shape[axes:])


class Stored(Shaped):
    """An array whose numbers can be read.

    Args:
        dtype: Its dtype.
        shape: Its sizes.
        read: Returns it as an array of numpy.
    """

    def __init__(self, dtype: str, shape: Iterable[int], read: Callable[[], Any]) -> None:
        super().__init__(dtype, shape)
        self.read = read


class _Layer(Shaped):
    """One of stacked arrays; whether its numbers were needed is known of all of them."""

    def __init__(self, whole: Shaped, shape: Iterable[int]) -> None:
        super().__init__(whole.dtype, shape)
        self.whole = whole


class _Unmeasured:
    """An object in a manifest of which expressions know nothing but that it is there."""

    @property
    def shape(self) -> Any:
        """Leaves the expression undecided."""
        raise NeedsDataError


def _needs_data(*operands: Any) -> Any:
    for operand in operands:
        if isinstance(operand, Shaped):
            operand.asked = True
        if isinstance(operand, _Layer):
            operand.whole.asked = True
    raise NeedsDataError


_ARITHMETIC = "add radd sub rsub mul rmul truediv rtruediv floordiv mod pow rpow matmul rmatmul"
_OTHERS = "neg pos abs lt le gt ge eq ne bool"
for _name in f"{_ARITHMETIC} {_OTHERS}".split():
    setattr(Shaped, f"__{_name}__", _needs_data)
for _name in ("sum", "min", "max", "all", "any"):
    setattr(Shaped, _name, _needs_data)
Shaped.__hash__ = None  # type: ignore[assignment]


class Instance(NamedTuple):
    """An instance whose constraints are checked once all sizes are known."""

    document: Document
    declaration: StructDeclaration
    seen: Any
    path: Path
    dims: Solver
    axes: Axes


#: The most steps that the constraints of one instance tree may take together.
_MOST_STEPS = 10_000_000
_MOST_FAILURES = 10_000
_TOO_MANY = Diagnostic(
    "NQX507",
    "error",
    f"expected constraints that are checked within {_MOST_STEPS:,} steps, got more",
    path="$",
    hint="check fewer values by constraints, or hold fewer",
)


#: A check of the result of a derived field, in its document.
CheckResult = Callable[[Document, FieldDeclaration, Any], Iterable[Diagnostic]]


def failures(
    values: Values, instances: Iterable[Instance], *, derived: CheckResult | None
) -> list[Diagnostic]:
    """The constraints that fail, and with ``derived`` the derived fields that have no value, or a wrong one.

    The last finding is NQX507 if there are too many to check. A load derives nothing in stacked structs.
    """
    found: list[Diagnostic] = []
    for document, declaration, seen, path, dims, axes in instances:
        if values.budget.steps < 0 or len(found) > _MOST_FAILURES:
            return [*found[:_MOST_FAILURES], _TOO_MANY]
        values.budget.steps -= len(declaration.constraints)
        names, at = values.names(declaration, seen, path), format_path(path)
        if axes and values.numbers:
            names = names.with_numbers() or names
        if derived and not axes:
            found += _wrong_results(partial(derived, document), declaration, names, path)
        if not axes or not declaration.constraints:
            found += _broken(declaration, names, at)
            continue
        lengths = [dims.size(axis) or 0 for axis in axes]
        heads = set[str]().union(*(each.heads for each in declaration.conditions))
        held = {name: names[name] for name in sorted(heads & seen.items.keys())}
        try:
            for layer in layers(held, lengths):
                problems = [*_broken(declaration, names.of_layer(layer), at)]
                found += problems
                if problems:
                    break
        except SchemaError as error:
            found += [replace(each, path=at) for each in error.diagnostics]
    if values.budget.steps < 0:
        found = [*found[:_MOST_FAILURES], _TOO_MANY]
    return found


def _wrong_results(
    check: Callable[[FieldDeclaration, Any], Iterable[Diagnostic]],
    declaration: StructDeclaration,
    names: Names,
    path: Path,
) -> Iterator[Diagnostic]:
    """Yields why derived fields have no value, or which has one of another type."""
    for name, field in declaration.fields.items() if declaration.derivations else ():
        if field.derivation is None:
            continue
        try:
            value = _evaluated(field.derivation, names)
        except SchemaError as error:
            yield from (replace(each, path=format_path(path)) for each in error.diagnostics)
            continue
        if value is not None:
            at = format_path((*path, FieldName(name)))
            yield from (replace(each, path=at) for each in check(field, value))


def _broken(declaration: StructDeclaration, names: Names, at: str) -> Iterator[Diagnostic]:
    """Yields a finding for each constraint that fails."""
    for constraint in declaration.constraints:
        expression = constraint.expression
        why = failure(expression, names)
        if names.budget.steps < 0:
            return  # it may hold
        if why is not None:
            compared = _compared(expression, names) or "a value that fails it"
            message = f"expected {expression.text}, got {compared}{why}"
            hint = printable(constraint.message or "") or None
            yield Diagnostic("NQX416", "error", message, path=at, hint=hint)


class Known(Mapping[str, Any]):
    """The values of the names that an expression uses."""

    @property
    @abstractmethod
    def budget(self) -> Budget:
        """The steps that expressions may take together."""

    @abstractmethod
    def with_numbers(self) -> Known | None:
        """The same with the numbers of arrays; None where they are not at hand, or there already."""


#: Returns the values inside an object of another library; None for other values.
Inside = Callable[[Any], list[Any] | None]


class Values:
    """The values of one instance tree.

    Args:
        document: Declares its structs.
        read: The reader of its values.
        scopes: The sizes that each instance sees, by its path.
        numbers: Whether arrays that can be read are read where an expression needs their numbers.
        inside: Returns the values inside an object of another library, or None.
    """

    def __init__(
        self,
        document: Document,
        read: Callable[[Any], Any],
        scopes: Mapping[Path, Solver],
        *,
        numbers: bool = False,
        inside: Inside | None = None,
    ) -> None:
        self.scopes = scopes
        self.read = read
        self.numbers = numbers
        self.inside = inside
        self.reading = False
        self.budget = Budget(_MOST_STEPS)
        self._structs = {
            str(SchemaRef(each.id, each.version, name)): struct
            for each in document.closure()
            for name, struct in each.structs.items()
        }

    def of(self, seen: Any, path: Path, depth: int = 0) -> Any:
        """A value for expressions; None where it is unknown, as for lists inside themselves."""
        if depth > _DEEPEST:
            return None
        if seen.sort in ("scalar", "array"):
            value = seen.value if seen.single is None else number_of(seen.single, seen.dtype)
            return value.read() if self.reading and isinstance(value, Stored) else value
        if seen.sort == "struct":
            declaration = self._structs.get(seen.refs[0]) if seen.refs else None
            if declaration is None:  # of a plain class
                found = seen.items.items()
                fields = {k: self.of(self.read(v), (*path, k), depth + 1) for k, v in found}
                return StructValue(fields, [*fields])
            nodes = [name for name, each in declaration.stored.items() if each.kind == "node"]
            return StructValue(self.names(declaration, seen, path, sizes=False), nodes)
        if seen.sort == "key":
            return Shaped("", seen.shape)
        if seen.sort == "other":  # of another library
            return _Unmeasured() if seen.value is None else seen.value
        if seen.sort not in ENTRIES:
            return None
        items = {
            key: self.of(self.read(item), (*path, key), depth + 1)
            for key, item in seen.items.items()
        }
        if seen.sort == "dict":
            return items
        return [*items.values()] if seen.sort == "list" else tuple(items.values())

    def with_numbers(self) -> Values:
        """The same, with the numbers in arrays."""
        made = copy.copy(self)
        made.numbers, made.reading = False, True
        return made

    def names(
        self, declaration: StructDeclaration, seen: Any, path: Path, *, sizes: bool = True
    ) -> Names:
        """The values of the names that expressions of an instance may use, or with ``sizes=False`` of its fields."""
        return Names(self, declaration, seen, path, sizes=sizes)


class Names(Known):
    """The fields of one instance with its sizes, each read once; None where a value is unknown.

    Args:
        values: Those of the tree.
        declaration: The struct.
        seen: The instance.
        path: Its path.
        sizes: Whether sizes are names too.
    """

    def __init__(
        self,
        values: Values,
        declaration: StructDeclaration,
        seen: Any,
        path: Path,
        *,
        sizes: bool,
    ) -> None:
        self._values, self._declaration, self._seen = values, declaration, seen
        self._path, self._with_sizes = path, sizes
        self._known: dict[str, Any] = {}
        self._sizes: Mapping[str, int] | None = None

    @property
    def inside(self) -> Inside | None:
        """Returns the values inside an object of another library."""
        return self._values.inside

    def __getitem__(self, name: str) -> Any:
        if name in self._known:
            return self._known[name]
        field = self._declaration.fields.get(name)
        if field is None:
            return self.sizes[name]
        self._known[name] = None  # also for a derived field that needs itself
        values = self._values
        if name in self._seen.items:
            read = values.read(self._seen.items[name])
            self._known[name] = values.of(read, (*self._path, FieldName(name)))
        elif field.derivation is not None:
            names = (
                self
                if self._with_sizes
                else values.names(self._declaration, self._seen, self._path)
            )
            self._known[name] = derived_value(field.derivation, names)
        return self._known[name]

    def of_layer(self, values: Mapping[str, Any]) -> Names:
        """The names of one layer of a stacked instance, with its values of the fields that are stored."""
        made = Names(self._values, self._declaration, self._seen, self._path, sizes=True)
        made._known, made._sizes = {**values}, self.sizes
        return made

    def with_numbers(self) -> Names | None:
        """The same with the numbers of arrays."""
        if not self._values.numbers:
            return None
        made = Names(
            self._values.with_numbers(),
            self._declaration,
            self._seen,
            self._path,
            sizes=self._with_sizes,
        )
        made._sizes = self._sizes
        return made

    @property
    def budget(self) -> Budget:
        """The steps that all expressions of the tree share."""
        return self._values.budget

    @property
    def sizes(self) -> Mapping[str, int]:
        """The sizes by name."""
        if self._sizes is None:
            scope = self._values.scopes.get(self._path) if self._with_sizes else None
            self._sizes = {} if scope is None else scope.sizes()
        return self._sizes

    def __iter__(self) -> Iterator[str]:
        return iter({**self._declaration.fields, **self.sizes})

    def __len__(self) -> int:
        return len({**self._declaration.fields, **self.sizes})


def _has_unknown(expression: Expression, names: Known) -> bool:
    """True if the value of a name is null or unknown."""
    for name in expression.names:
        head = head_of(name)
        if head not in names or (head == name and names[name] is None):
            return True
        if head == name:
            continue
        try:
            if evaluate_tree(ast.Name(name, ast.Load()), names, budget=names.budget) is None:
                return True
        except SchemaError:
            continue  # a condition around it may guard it
    return False


def _evaluated(expression: Expression, names: Known) -> Any:
    """The value of an expression, with numbers of arrays where it needs them; None if it cannot be computed."""
    if _has_unknown(expression, names):
        return None
    try:
        return evaluate(expression, names, budget=names.budget)
    except NeedsDataError:
        read = names.with_numbers()
        return None if read is None else _evaluated(expression, read)


def derived_value(expression: Expression, names: Known) -> Any:
    """The value of a derived field, which payloads do not hold; None if it cannot be computed."""
    # The field itself reports the error when it is read.
    with contextlib.suppress(SchemaError):
        return _evaluated(expression, names)
    return None


def failure(expression: Expression, names: Known) -> str | None:
    """The end of the message for a condition that fails; None if it holds or cannot be decided."""
    try:
        verdict = _evaluated(expression, names)
        why: str | None
        if type(verdict) is Items:
            why = f"\n{expression.text} has a result for each item; write all({expression.text})"
        elif getattr(verdict, "shape", ()) and verdict.size != 1:
            why = f"\n{expression.text} has a result for each element; write all({expression.text})"
        else:
            why = None if verdict is None or verdict else ""
    except NeedsDataError:
        return None
    except SchemaError as error:
        return f"\n{error.diagnostics[0].message}"
    return why


def _compared(expression: Expression, names: Known) -> str:
    """The values that a condition compared: of names, and of functions such as ``len``."""
    shown: dict[str, str] = {}
    parts: list[Any] = [*ast.walk(expression.tree)]
    for node in parts:
        called = calls(node, "shown")
        if not called and not isinstance(node, ast.Name):
            continue
        with contextlib.suppress(NeedsDataError, SchemaError):
            value = evaluate_tree(node, names, budget=names.budget)
            text = _brief(value)
            if text is None and called and type(value) is not Items:
                text = str(value)
            if text is not None:
                shown[format_tree(node)] = text
    return ", ".join(f"{text} = {value}" for text, value in sorted(shown.items()))


def _brief(value: Any) -> str | None:
    """A value in messages; None for one that may be long."""
    if isinstance(value, (Items, list, dict)):
        items = value.values if isinstance(value, Items) else value
        items = [*items.values()] if isinstance(items, dict) else items
        texts = [_brief(item) for item in items[:_MOST_SHOWN]]
        known = [text for text in texts if text is not None]
        more = [] if len(items) == len(texts) else ["..."]
        return f"({', '.join([*known, *more])})" if len(known) == len(texts) else None
    if isinstance(value, (int, float, str, tuple)):
        return brief_scalar(value)
    if isinstance(value, Shaped):
        return None
    single = value is None or getattr(value, "shape", None) == ()
    return str(value) if single else None
