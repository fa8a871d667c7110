"""What is drawn: structs as expressions see them, random keys, and changed copies of values.

Example:
    >>> held = Drawn({"a": 1, "b": [2]}, None)
    >>> held["b"], len(held)
    ([2], 2)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from neuralqx_struct.expressions.functions import StructValue
from neuralqx_struct.expressions.items import Budget
from neuralqx_struct.schema.conditions import Known, Shaped, Stored, derived_value
from neuralqx_struct.schema.model import Document, FieldDeclaration

_STEPS = 100_000  # of the evaluation of the constraints of one struct


class DrawnKey(Shaped):
    """Random keys of an implementation, with their words."""

    def __init__(self, impl: str, words: Stored) -> None:
        super().__init__("", words.shape[:-1])
        self.impl, self.words = impl, words


class Drawn(Known):
    """The fields of a struct that was drawn, as its expressions see them.

    Args:
        values: Those that are stored.
        draw: Where they were drawn, which knows the sizes.
        numbers: Whether arrays are those of numpy.
        ref: The document and the name of the struct.
        sizes: Whether sizes are names too.
    """

    def __init__(
        self,
        values: dict[str, Any],
        draw: Any,
        *,
        numbers: bool = False,
        ref: tuple[Document, str] | None = None,
        sizes: bool = False,
    ) -> None:
        self.stored, self.ref = values, ref
        self.draw, self._numbers, self._sizes = draw, numbers, sizes
        self._budget = Budget(_STEPS)

    @property
    def _fields(self) -> Mapping[str, FieldDeclaration]:
        if self.ref is None:
            return {}
        document, name = self.ref
        return document.structs[name].fields

    def __getitem__(self, name: str) -> Any:
        if name in self.stored:
            value = self.stored[name]
            return with_numbers(value) if self._numbers else value
        declaration = self._fields.get(name)
        if declaration is None:
            return self.draw.size_named(name) if self._sizes else self.stored[name]
        if declaration.derivation is None:
            return None  # payloads do not hold it
        known = Drawn(self.stored, self.draw, numbers=self._numbers, ref=self.ref, sizes=True)
        known._budget = self._budget
        return derived_value(declaration.derivation, known)

    def __iter__(self) -> Iterator[str]:
        return iter({**self.stored, **self._fields})

    def __len__(self) -> int:
        return len({**self.stored, **self._fields})

    @property
    def budget(self) -> Budget:
        """The steps that the expressions of a struct share."""
        return self._budget

    def with_numbers(self) -> Drawn | None:
        """The same with arrays of numpy; None if they are already."""
        if self._numbers:
            return None
        made = Drawn(self.stored, self.draw, numbers=True, ref=self.ref, sizes=self._sizes)
        made._budget = self._budget
        return made


def with_numbers(value: Any) -> Any:
    """A value with arrays of numpy."""
    if isinstance(value, Stored):
        return value.read()
    if type(value) is StructValue:
        return StructValue(value.fields.with_numbers() or value.fields, value.nodes)  # type: ignore[attr-defined]
    return mapped(with_numbers, value) if isinstance(value, (list, tuple, dict)) else value


def mapped(function: Callable[[Any], Any], value: Any) -> Any:
    """A collection with other items."""
    if isinstance(value, dict):
        return {key: function(item) for key, item in value.items()}
    return type(value)(map(function, value))


def exchanged(value: Any, steps: Sequence[str | int], new: Any) -> Any:
    """A value with another one where a path leads: in each item, where it names all items."""
    if not steps and not isinstance(value, (list, tuple, dict)):
        return float(new) if isinstance(value, float) and type(new) is int else new
    if type(value) is StructValue:
        held: Any = value.fields
        head = str(steps[0])
        inner = exchanged(held.stored[head], steps[1:], new)
        made = Drawn({**held.stored, head: inner}, held.draw, ref=held.ref)
        return StructValue(made, value.nodes)
    if steps and isinstance(steps[0], int):
        place = range(len(value))[steps[0]]
        return type(value)(
            exchanged(item, steps[1:], new) if each == place else item
            for each, item in enumerate(value)
        )
    return mapped(lambda item: exchanged(item, steps, new), value)
