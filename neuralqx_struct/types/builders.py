"""Values of files as manifest nodes and as Python values: the builders that :func:`~neuralqx_struct.types.text.read_value` takes.

Example:
    >>> from neuralqx_struct.types.text import parse_type, plain_value, read_value
    >>> read_value("a/b", parse_type("path"), NodeBuilder(None))
    {'__kind__': 'path', 'value': 'a/b'}
    >>> plain_value(read_value(["a/b"], parse_type("tuple[path]"), LiveBuilder(None)))
    ['a/b']
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from neuralqx_struct.dtypes import DTYPES, dtype_named
from neuralqx_struct.errors import SchemaError
from neuralqx_struct.expressions import Expression
from neuralqx_struct.paths import Path
from neuralqx_struct.types.records import Node
from neuralqx_struct.types.text import Builder, format_type, not_a_value, number_node

_MOST_BYTES = 4 << 30


def require_room(declared: Any, sizes: Iterable[int]) -> None:
    """Refuses a value of a file for an array that is larger than any should be (NQX109): one word makes it."""
    if math.prod(sizes) * DTYPES[declared.made_as].bits > 8 * _MOST_BYTES:
        most = _MOST_BYTES >> 30
        message = f"expected a default of at most {most} GiB, got one for {format_type(declared)}"
        raise SchemaError(message, code="NQX109", hint="check the sizes, or set it in Python")


@dataclass(eq=False)
class NodeBuilder(Builder):
    """Makes manifest nodes.

    Attributes:
        size: Returns the number of an extent in the payload; -1 if it is unknown.
        store: Stores an array beside the manifest and returns its node.
        lead: The sizes of the axes in front of those that arrays declare.
        chosen: The dtype, and an array of it, of each choice of dtypes in the payload.
    """

    structs: bool = True
    size: Callable[[Expression], int] = lambda _: -1
    store: Callable[[str, Any], Node] = lambda _dtype, _array: None
    lead: tuple[int, ...] = ()
    chosen: Mapping[str, tuple[str, Path]] = field(default_factory=dict)

    def stacked(self, axes: tuple[Expression, ...]) -> Builder:
        """The builder for a struct whose arrays have these axes in front."""
        return replace(self, lead=(*self.lead, *map(self.size, axes)))

    def scalar(self, record: Any, value: Any) -> Node:
        """The node of a scalar."""
        return record.node(value)

    def number(self, value: Any) -> Node:
        """The node of a number or of text."""
        return number_node(value)

    def sequence(self, kind: str, items: list[Node]) -> Node:
        """The node of a list or a tuple."""
        return {"__kind__": kind, "items": items}

    def mapping(self, items: dict[str, Node]) -> Node:
        """The node of a dict."""
        return {"__kind__": "dict", "items": [[key, item] for key, item in items.items()]}

    def array(self, declared: Any, value: Any) -> Node:
        """The node of a constant array, or of a stored one."""
        declared = declared.as_chosen(self.chosen)
        if isinstance(value, list):
            return self._stored(declared, value)
        if ... in declared.shape:
            message = (
                f"expected a list of numbers for {format_type(declared)}, got {value!r}\n"
                "`...` leaves the number of axes open"
            )
            raise SchemaError(message, code="NQX107")
        sizes = [self.size(extent) for extent in declared.shape if extent is not ...]
        if isinstance(value, dict):
            return self._identity(declared, sizes)
        family = DTYPES[declared.made_as].family
        number = {"floating": float, "complex": complex}.get(family, lambda plain: plain)(value)
        shape = [*self.lead, *sizes]
        constant = {"dtype": declared.made_as, "shape": shape, "value": number_node(number)}
        return {"__kind__": "full", **constant}

    def _identity(self, declared: Any, sizes: list[int]) -> Node:
        import numpy as np

        if min(sizes) < 0:  # unknown, as in a check without a payload
            return {"__kind__": "full", "dtype": declared.made_as, "shape": sizes, "value": 0}
        require_room(declared, sizes)
        eye = np.eye(sizes[0], dtype=dtype_named(declared.made_as))
        return self.store(declared.made_as, np.broadcast_to(eye, (*self.lead, *sizes)))

    def _stored(self, declared: Any, value: list[Any]) -> Node:
        import numpy as np

        try:
            array = np.array(value, dtype=dtype_named(declared.made_as))
        except (TypeError, ValueError, OverflowError):
            raise not_a_value(value, declared) from None
        declared.check_shape(array.shape)
        return self.store(declared.made_as, np.broadcast_to(array, (*self.lead, *array.shape)))

    def struct(self, name: str, fields: dict[str, Node]) -> Node:
        """The node of a struct."""
        return {"__kind__": "struct", "type": self.document.ref(name), "fields": fields}


@dataclass(eq=False)
class LiveBuilder(Builder):
    """Makes Python values.

    Attributes:
        make_array: Returns the array of a type and a plain value.
        shared: False once a value was made that one instance could change under another.
    """

    make_array: Callable[[Any, Any], Any] = lambda _declared, value: value
    shared: bool = True

    def scalar(self, record: Any, value: Any) -> Any:
        """The value of a scalar."""
        return record.live(value)

    def sequence(self, kind: str, items: list[Any]) -> Any:
        """A list or a tuple."""
        if kind == "tuple":
            return tuple(items)
        self.shared = False
        return items

    def mapping(self, items: dict[str, Any]) -> Any:
        """A dict."""
        self.shared = False
        return items

    def array(self, declared: Any, value: Any) -> Any:
        """An array."""
        self.shared = False
        return self.make_array(declared, value)
