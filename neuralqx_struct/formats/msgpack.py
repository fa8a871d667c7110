"""Files of ``flax.serialization``: one msgpack object, a tree of maps with arrays and plain values.

The reader looks at every head and at no data, within limits of size, depth and count; arrays are views of the mapped file. A
box of Flax Linen, ``{"value": array}``, is the array itself. The writer gives the bytes that Flax writes.

The form of a file is its tree. A leaf of it is ``"array"``, ``"scalar"``, ``"complex"`` or ``"bytes"`` for an array,
``"chunks:N"`` for one in chunks of N elements, ``"text:..."`` and ``"float:nan"`` for such values, and another value itself.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from neuralqx_struct.bundle.urls import Place
from neuralqx_struct.dtypes import DTYPES
from neuralqx_struct.errors import Diagnostic, SerializationError
from neuralqx_struct.formats.msgpack_tree import (
    ARRAY,
    BOX,
    CHUNKED,
    COMPLEX,
    SCALAR,
    Codes,
    Leaf,
    Tree,
    head,
    plain,
    text,
)
from neuralqx_struct.formats.table import (
    Candidate,
    ForeignArray,
    ForeignFile,
    Format,
    Plain,
    Reading,
    Writing,
    checked,
    joined,
    ranges_of,
    split,
)
from neuralqx_struct.stores.store import about, bytes_of

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

Keys = tuple[str, ...]

_MOST_CHUNK: Final = 1 << 30  # bytes; Flax splits larger arrays
_TREE: Final = "tree"
_TEXT: Final = "text:"
_FLOATS: Final = {f"float:{value}": value for value in (math.nan, math.inf, -math.inf)}


class _Step(NamedTuple):
    """A step through a tree: a ``map`` or ``list`` and its length, a ``key``, or a ``leaf``; and the keys on the way."""

    kind: str
    detail: Any
    keys: Keys


def _steps(tree: Any, keys: Keys = (), *, boxes: bool = True) -> Iterator[_Step]:
    """The steps through a tree or its form, in the order of a file.

    Args:
        tree: The tree.
        keys: The keys on the way to it.
        boxes: A map with the form of a box has the keys of its array; trees that were read have none.
    """
    if type(tree) is dict:
        yield _Step("map", len(tree), keys)
        boxed = boxes and keys and tree.keys() == {BOX} and _is_array_form(tree[BOX])
        for key, inner in tree.items():
            yield _Step("text", key, keys)
            yield from _steps(inner, keys if boxed else (*keys, key), boxes=boxes)
    elif type(tree) is list:
        yield _Step("list", len(tree), keys)
        for place, inner in enumerate(tree):
            yield from _steps(inner, (*keys, str(place)), boxes=boxes)
    else:
        yield _Step("leaf", tree, keys)


def _form(item: Any) -> Any:
    """A tree as JSON."""
    if type(item) is dict:
        return {key: _form(value) for key, value in item.items()}
    if type(item) is list:
        return [_form(value) for value in item]
    if type(item) is Leaf:
        return {BOX: item.kind} if item.boxed else item.kind
    if type(item) is float and not math.isfinite(item):
        return f"float:{item}"
    return f"{_TEXT}{item}" if type(item) is str else item


def _is_array_form(item: Any) -> bool:
    return type(item) is str and item not in _FLOATS and not item.startswith(_TEXT)


def _plain_form(item: Any) -> Plain:
    """A plain value from its form."""
    value: Plain = item
    if type(item) is str:
        value = _FLOATS[item] if item in _FLOATS else item.removeprefix(_TEXT)
    return value


def _nested(names: Mapping[str, Any], separator: str) -> Any:
    """The tree that names describe.

    Raises:
        SerializationError: A name goes on from another one.
    """
    made: dict[str, Any] = {}
    for name in names:
        *outer, last = split(name, separator)
        inner = made
        for key in outer:
            inner = inner.setdefault(key, {}) if type(inner) is dict else inner
        if type(inner) is not dict or last in inner:
            message = "expected names of which none goes on from another, got one that does"
            hint = "rename it, or pass another separator"
            raise SerializationError(about("NQX614", name, message, hint))
        inner[last] = "array"
    return made


def _tree_of(writing: Writing, arrays: Mapping[str, ForeignArray]) -> Any:
    """The tree to write: that of the form if it has exactly these arrays."""
    tree = writing.form.get(_TREE)
    leaves = [step for step in _steps(tree) if step.kind == "leaf"]
    names = [joined(s.keys, writing.separator) for s in leaves if _is_array_form(s.detail)]
    same = len(names) == len(arrays) and arrays.keys() == set(names)
    return tree if _TREE in writing.form and same else _nested(arrays, writing.separator)


def _opened(path: Place, reading: Reading) -> ForeignFile:
    """Opens a file; reads its heads, its keys and its plain values."""
    data = ranges_of(path)
    reader = Tree(data.view, reading.limits)
    tree = reader.whole()
    arrays: dict[str, ForeignArray] = {}
    values: dict[str, Plain] = {}
    room = 0
    for kind, leaf, keys in _steps(tree, boxes=False):
        if kind != "leaf":
            continue
        name = joined(keys, reading.separator)
        room += len(name)
        reader.require(room, reading.limits.manifest_bytes, "bytes of names")
        if type(leaf) is Leaf:
            arrays[name] = ForeignArray(
                leaf.dtype,
                leaf.shape,
                partial(leaf.read, data),
                leaf.slices(data),
                data.cheap and len(leaf.pieces) == 1,
            )
        else:
            values[name] = leaf

    def form() -> dict[str, Any]:
        made = _form(tree)
        plainly = not values and made == _nested(arrays, reading.separator)
        return {} if plainly else {_TREE: made}

    return ForeignFile(path=str(path), format="msgpack", arrays=arrays, values=values, form=form)


def _write(stage: Path, arrays: Mapping[str, ForeignArray], writing: Writing) -> None:
    """Writes a file that Flax reads, one array at a time."""
    _require_numbers(arrays)
    with stage.open("wb") as file:
        for kind, detail, keys in _steps(_tree_of(writing, arrays)):
            if kind == "text":
                file.write(text(detail))
            elif kind != "leaf":
                file.write(head(kind, detail))
            elif _is_array_form(detail):
                name = joined(keys, writing.separator)
                for part in _parts(checked(name, arrays[name]), detail):
                    file.write(part)
            else:
                file.write(plain(_plain_form(detail)))
        file.flush()
        os.fsync(file.fileno())


def _require_numbers(arrays: Mapping[str, ForeignArray]) -> None:
    """Checks that Flax has names for all dtypes.

    Raises:
        SerializationError: It does not: all arrays.
    """
    found: list[Diagnostic] = []
    for name, array in arrays.items():
        if array.dtype not in DTYPES:
            message = f"expected an array of numbers or truth values, got {array.dtype[:60]}"
            found.append(about("NQX411", name, message, "leave it out, or convert it"))
    if found:
        raise SerializationError(found)


def _parts(array: Array, kind: str) -> Iterator[bytes | memoryview]:
    """The bytes of an array; in the form of its kind, if it has the dtype and shape for that."""
    dtype = array.dtype.name
    if kind == "complex" and (dtype, array.ndim) == ("complex128", 0):
        number = array.item()
        yield from _extension(COMPLEX, head("list", 2) + plain(number.real) + plain(number.imag))
        return
    if kind == "bytes" and (dtype, array.ndim) == ("uint8", 1):
        yield from (head("bytes", array.nbytes), bytes_of(array))
        return
    digits = kind.partition(":")[2]
    step = int(digits) if digits.isdecimal() else 0
    if not step and array.nbytes > _MOST_CHUNK:
        step = _MOST_CHUNK // array.itemsize
    if not step:
        yield from _array_parts(SCALAR if kind == "scalar" and not array.ndim else ARRAY, array)
        return
    yield from (head("map", 3), text(CHUNKED), plain(True), text("shape"))
    yield head("map", array.ndim)
    for axis, size in enumerate(array.shape):
        yield from (text(str(axis)), plain(size))
    starts = range(0, array.size, step)
    yield from (text("chunks"), head("map", len(starts)))
    for place, start in enumerate(starts):
        yield text(str(place))
        yield from _array_parts(ARRAY, array.reshape(-1)[start : start + step])


def _array_parts(code: int, array: Array) -> Iterator[bytes | memoryview]:
    data = bytes_of(array)
    sizes = b"".join(map(plain, array.shape))
    inner = head("list", 3) + head("list", array.ndim) + sizes + text(array.dtype.name)
    return _extension(code, inner + head("bytes", len(data)), data)


def _extension(
    code: int, start: bytes, data: bytes | memoryview = b""
) -> Iterator[bytes | memoryview]:
    """An object of one of Flax's own types."""
    yield head("extension", len(start) + len(data)) + bytes([code]) + start
    yield data


def _recognises(file: Candidate) -> bool:
    """Whether a file begins with a map that has text as its first key, or is named for the format."""
    if file.names is not None or not file.start:
        return False
    if file.path.suffix == MSGPACK.suffix:
        return True
    codes = Codes(memoryview(file.start))
    try:
        kind, length = codes.head()
        return kind == "map" and (codes.head()[0] == "text" if length else file.size == 1)
    except SerializationError:
        return False


MSGPACK: Final = Format(
    name="msgpack",
    title="a msgpack file of Flax",
    suffix=".msgpack",
    extra=None,
    recognises=_recognises,
    opened=_opened,
    write=_write,
    folder=lambda writing: False,  # noqa: ARG005
    metadata=False,
)
