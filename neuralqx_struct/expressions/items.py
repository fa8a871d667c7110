"""Paths and items in evaluation: fields of structs, items of tuples and lists, and operations on all items of a collection.

Owns :class:`Items <neuralqx_struct.expressions.functions.Items>` semantics: which operand is taken item by item, and what becomes of null.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from neuralqx_struct.errors import SchemaError, closest
from neuralqx_struct.expressions.functions import (
    Items,
    field_of_struct,
    fields_of_struct,
    is_a_struct,
    is_array,
    items_of,
)
from neuralqx_struct.expressions.operators import MAX_DEPTH, SHORTEN, refuse, shown
from neuralqx_struct.printing import brief_leaf

#: Builtin types of single values.
SCALARS = frozenset({bool, int, float, complex, str, bytes, type(None)})


def describe(value: Any) -> str:
    """The sort of a value in messages."""
    if value is None:
        return "None"
    if type(value) is Items:
        return "a value for each item"
    if is_a_struct(value):
        return "a struct"
    if type(value) in SCALARS or not is_array(value):
        return type(value).__name__
    return brief_leaf(value)


#: The most steps of one expression.
MOST = 10_000


class Budget:
    """Steps that several evaluations share."""

    __slots__ = ("steps",)

    def __init__(self, steps: int) -> None:
        self.steps = steps


#: The most steps of one expression, or those that it shares with others.
Steps = int | Budget


class UnequalItemsError(SchemaError):
    """Operands have different numbers of items."""


class StepsError(SchemaError):
    """An expression takes more steps than it may."""


class ItemEvaluation:
    """The part of an evaluation that knows structs and collections.

    Args:
        budget: The steps that it may take, or those that it shares with others.
    """

    def __init__(self, budget: Steps) -> None:
        self.shared = budget if isinstance(budget, Budget) else Budget(budget)
        self.steps = min(self.shared.steps, MOST)

    @staticmethod
    def describe(value: Any) -> str:
        """The sort of a value in messages."""
        return describe(value)

    @staticmethod
    def is_array(value: Any) -> bool:
        """True for an array."""
        return type(value) not in SCALARS and is_array(value)

    def fail(
        self, node: ast.AST, message: str, *, code: str = "NQX115", hint: str | None = None
    ) -> NoReturn:
        """Raises the problem of a part."""
        refuse(code, f"{message}\nin `{shown(node)}`", hint)

    def spend(self, node: ast.AST, steps: int = 1) -> None:
        """Takes steps from the budget."""
        self.steps -= steps
        self.shared.steps -= steps
        if self.steps < 0:
            message = "expected an expression within its budget, got more steps"
            raise StepsError(f"{message}\nin `{shown(node)}`", code="NQX507", hint=SHORTEN)

    def step(self, node: ast.AST, value: Any, step: str | int, path: str, depth: int = 0) -> Any:
        """The field or the item of a value; of a collection the field of each item, and of null null."""
        self.spend(node)
        if value is None:
            return None
        inside = items_of(value)
        if inside is not None and (isinstance(step, str) or type(value) is Items):
            if depth > MAX_DEPTH:
                self.fail(node, f"expected at most {MAX_DEPTH} levels of lists, got more")
            made = [self.step(node, item, step, path, depth + 1) for item in inside]
            flat: list[Any] = []
            for item, one in zip(inside, made, strict=True):
                nested = items_of(item) is not None and isinstance(step, str)
                flat += one.values if nested else [one]
            return Items(flat)
        if isinstance(step, str):
            return self.field(node, value, step, path)
        if inside is None or not issubclass(type(value), (tuple, list)):
            wanted = f"a list or a tuple at {path}"
            hint = f"all items are read together, as in len({path})" if inside is not None else None
            self.fail(node, f"expected {wanted}, got {describe(value)}", hint=hint)
        if not -len(inside) <= step < len(inside):
            hint = (
                f"write {path}[{len(inside) - 1}], the last one" if inside else f"see len({path})"
            )
            message = f"expected an item {step} of {path}, got {len(inside)} items"
            self.fail(node, message, hint=hint)
        return inside[step]

    def field(self, node: ast.AST, value: Any, name: str, path: str) -> Any:
        """The field of a struct."""
        if not is_a_struct(value):
            self.fail(node, f"expected a struct with fields at {path}, got {describe(value)}")
        known = fields_of_struct(value)
        if name not in known:
            near = closest(name, known)
            listed = ", ".join(f"{path}.{each}" for each in sorted(known)[:20])
            hint = f"did you mean '{path}.{near}'?" if near else f"fields: {listed}"
            message = f"expected a field of {path}, got {name!r}"
            self.fail(node, message, code="NQX116", hint=hint)
        return field_of_struct(value, name)

    @staticmethod
    def spread_alone(source: ast.AST, value: Any) -> Any:
        """The collection that a path names as its items; other values as they are."""
        inside = items_of(value) if isinstance(source, ast.Name) else None
        return value if inside is None else Items(inside)

    def spread(self, source: ast.AST, left: Any, other: ast.AST, right: Any) -> tuple[Any, Any]:
        """Two operands, of which a collection that a path names is its items beside a single value or other items."""
        alone = [items_of(value) is None or type(value) is Items for value in (left, right)]
        if alone[1] and right is not None:
            left = self.spread_alone(source, left)
        if alone[0] and left is not None:
            right = self.spread_alone(other, right)
        return left, right

    def each(
        self,
        node: Any,
        function: Callable[..., Any],
        *operands: Any,
        nulls: bool = False,
        deep: int = MAX_DEPTH,
    ) -> Any:
        """The result of a function, for each item where operands are items.

        Args:
            node: The operation.
            function: Takes the operation and one value of each operand.
            operands: The operands.
            nulls: Whether the function takes null items; else they give null.
            deep: The levels of collections inside collections of which it takes the items.
        """
        many = [operand for operand in operands if type(operand) is Items]
        if not many:
            return function(node, *operands)
        counts = {len(each.values) for each in many}
        single = all(type(each) is Items or items_of(each) is None for each in operands)
        if len(counts) > 1:
            found = " and ".join(map(str, sorted(counts)))
            message = f"expected equal numbers of items, got {found}\nin `{shown(node)}`"
            raise UnequalItemsError(message, code="NQX115")
        self.spend(node, max(counts))
        made: list[Any] = []
        for place in range(max(counts)):
            items = [each.values[place] for each in many]
            row = [each.values[place] if type(each) is Items else each for each in operands]
            if not nulls and any(item is None for item in items):
                made.append(None)
                continue
            if deep and single:
                inside = [items_of(one) for one in row]
                pairs = zip(row, inside, strict=True)
                row = [one if held is None else Items(held) for one, held in pairs]
            made.append(self.each(node, function, *row, nulls=nulls, deep=max(deep - 1, 0)))
        return Items(made)

    def leaves(
        self, node: ast.AST, value: Any, reduce: Callable[[Any], Any], depth: int = 0
    ) -> Iterator[Any]:
        """Yields the single values in a collection without null, each array reduced to one."""
        self.spend(node)
        inside = items_of(value)
        if inside is not None and depth <= MAX_DEPTH:
            for item in inside:
                yield from self.leaves(node, item, reduce, depth + 1)
        elif value is not None:
            yield reduce(value)
