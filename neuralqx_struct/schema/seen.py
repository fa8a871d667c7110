"""What stands at a place of an instance or a payload, in the words of the schema language.

Owns :class:`Seen`, the reader of manifest nodes :func:`see_node`, and :class:`Shaped`, which stands for arrays whose
numbers are not at hand. Whether what is seen conforms is ``conform.py``; the reader of instances is ``instances.py``.

Example:
    >>> see_node({"__kind__": "array", "name": "w", "dtype": "float32", "shape": [3]}).text
    'float32[3]'
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from neuralqx_struct.decimals import read_decimal
from neuralqx_struct.paths import FieldName
from neuralqx_struct.schema.bounds import shown_scalar

__all__ = ["NeedsDataError", "Reader", "Seen", "Shaped", "see_node"]


class NeedsDataError(Exception):
    """An expression wants the numbers of an array of which only shape and dtype are known."""


class Shaped:
    """Stands for an array in expressions when only its shape and dtype are known."""

    def __init__(self, dtype: str, shape: Iterable[int]) -> None:
        self.dtype = dtype
        self.shape = tuple(shape)
        self.ndim = len(self.shape)
        self.size = math.prod(self.shape)
        self.asked = False  # whether an expression wanted its numbers


def _needs_data(*operands: Any) -> Any:
    for operand in operands:
        if isinstance(operand, Shaped):
            operand.asked = True
    raise NeedsDataError


_OPERATORS = (
    *("add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "floordiv", "mod", "pow", "rpow"),
    *("neg", "pos", "abs", "lt", "le", "gt", "ge", "eq", "ne", "bool"),
)
for _name in _OPERATORS:
    setattr(Shaped, f"__{_name}__", _needs_data)
for _name in ("sum", "min", "max", "all", "any"):
    setattr(Shaped, _name, _needs_data)
Shaped.__hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class Seen:
    """What stands at a place, in the words of the schema language.

    Attributes:
        sort: ``array``, ``key``, ``null``, ``scalar``, ``list``, ``tuple``, ``dict``, ``struct`` or ``other``.
        text: How a message names it.
        dtype: Of arrays; the implementation of keys.
        shape: Of arrays and keys.
        value: Of scalars, and of arrays for expressions: the value itself or a :class:`Shaped`.
        type_name: Of scalars: bool, int, float, complex, str, bytes, path or dtype.
        refs: Of structs: the class references that the value answers to.
        items: What is inside, by key.
        loose: True if 64-bit dtypes may have been narrowed (under JAX tracing).
    """

    sort: str
    text: str
    dtype: str = ""
    shape: tuple[int, ...] = ()
    value: Any = None
    type_name: str = ""
    refs: tuple[str, ...] = ()
    items: Mapping[Any, Any] = field(default_factory=dict)
    loose: bool = False


Reader = Callable[[Any], Seen]

# ---------------------------------------------------------------------------------------------------------------------
# Reading manifest nodes.

_SCALAR_NODES = {
    "complex": "complex",
    "float": "float",
    "bigint": "int",
    "bytes": "bytes",
    "path": "path",
    "dtype": "dtype",
}
_SEQUENCES = ("list", "tuple", "set", "frozenset")


def see_node(node: Any) -> Seen:
    """Read a manifest node; array bytes are not looked at."""
    if node is None:
        return Seen("null", "null")
    if not isinstance(node, dict):
        return Seen("scalar", shown_scalar(node), value=node, type_name=type(node).__name__)
    kind = node["__kind__"]
    if kind in ("array", "full"):
        dtype, shape = node["dtype"], tuple(node["shape"])
        return Seen("array", _array_text(dtype, shape), dtype, shape, Shaped(dtype, shape))
    if kind == "prng-key":
        data = node["data"]
        shape = tuple(data["shape"][:-1])
        if data["dtype"] != "uint32":
            return Seen("other", f"prng_key[{node['impl']}] of {data['dtype']} numbers")
        return Seen("key", f"prng_key[{node['impl']}]", node["impl"], shape)
    if kind in _SCALAR_NODES:
        value = float(node["value"]) if kind == "float" else read_decimal(node["value"]) if kind == "bigint" else node
        return Seen("scalar", f"a {kind}", value=value, type_name=_SCALAR_NODES[kind])
    if kind in _SEQUENCES:
        return Seen(kind, f"a {kind}", items=dict(enumerate(node["items"])))
    if kind in ("dict", "ordered-dict"):
        if all(isinstance(key, str) for key, _ in node["items"]):
            return Seen("dict", "a dict", items=dict(node["items"]))
        return Seen("other", "a dict with keys that are not str")
    if kind == "enum":
        return Seen("scalar", repr(node["name"]), value=node["name"], type_name=kind)
    if kind == "struct":
        fields = {FieldName(name): child for name, child in node["fields"].items()}
        return Seen("struct", node["type"].rpartition(":")[2], refs=(node["type"],), items=fields)
    return Seen("other", f"a {kind}")


def _array_text(dtype: str, shape: Iterable[int]) -> str:
    return f"{dtype}[{', '.join(map(str, shape))}]"
