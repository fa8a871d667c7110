"""Files of ``flax.serialization``: one msgpack object, a tree of maps with arrays and plain values.

The reader looks at every head and at no data, within limits of size, depth and count; arrays are views of the mapped file. A
box of Flax Linen, ``{"value": array}``, is the array itself. The package ``msgpack`` writes, as Flax does; it needs the extra ``msgpack``.

The form of a file is its tree. A leaf of it is ``"array"`` for an array, ``"text:..."`` and ``"float:nan"`` for such values,
and another value itself. In forms of older releases, arrays have other words too.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from neuralqx_struct.dtypes import DTYPES
from neuralqx_struct.errors import Diagnostic, SerializationError
from neuralqx_struct.formats.msgpack_tree import ARRAY, BOX, CHUNKED, Boxed, Codes, Tree
from neuralqx_struct.formats.ranges import Ranges, StoredArray
from neuralqx_struct.formats.store import about
from neuralqx_struct.formats.table import (
    Candidate,
    ForeignFile,
    Format,
    Plain,
    Reading,
    Writing,
    arrays_of,
    checked,
    joined,
    ranges_of,
    split,
)
from neuralqx_struct.manifest.payload import ForeignArray
from neuralqx_struct.places.urls import Place
from neuralqx_struct.references import imported

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

Keys = tuple[str, ...]

_MOST_CHUNK: Final = 1 << 30  # bytes; Flax splits larger arrays
_TREE: Final = "tree"
_ARRAY_FORM: Final = "array"
_TEXT: Final = "text:"
_FLOATS: Final = {f"float:{value}": value for value in (math.nan, math.inf, -math.inf)}


# Reading


def _leaves(tree: Any, keys: Keys = ()) -> Iterator[tuple[Keys, Any]]:
    """Yields the arrays and plain values of a tree that was read, with their keys, in the order of the file."""
    if type(tree) is dict:
        for key, inner in tree.items():
            yield from _leaves(inner, (*keys, key))
    elif type(tree) is list:
        for place, inner in enumerate(tree):
            yield from _leaves(inner, (*keys, str(place)))
    else:
        yield keys, tree


def _form(item: Any) -> Any:
    """A tree as JSON."""
    if type(item) is dict:
        return {key: _form(value) for key, value in item.items()}
    if type(item) is list:
        return [_form(value) for value in item]
    if isinstance(item, Boxed):
        return {BOX: _ARRAY_FORM}
    if isinstance(item, StoredArray):
        return _ARRAY_FORM
    if type(item) is float and not math.isfinite(item):
        return f"float:{item}"
    return f"{_TEXT}{item}" if type(item) is str else item


def read_tree(
    data: Ranges, reading: Reading, keys: Keys = ()
) -> tuple[Any, dict[str, ForeignArray], dict[str, Plain]]:
    """The tree of an object of msgpack, and its arrays and plain values by name; reads its heads, its keys and its plain values.

    Args:
        data: The bytes.
        reading: Options for opening the file.
        keys: The keys in front of those of the tree.
    """
    reader = Tree(data.view, reading)
    tree = reader.whole()
    arrays: dict[str, StoredArray] = {}
    values: dict[str, Plain] = {}
    room = 0
    for place, leaf in _leaves(tree, keys):
        name = joined(place, reading.separator)
        room += len(name)
        reader.require(room, reading.limits.manifest_bytes, "bytes of names")
        if isinstance(leaf, (StoredArray, Boxed)):
            arrays[name] = leaf.array if isinstance(leaf, Boxed) else leaf
        else:
            values[name] = leaf
    return tree, arrays_of(data, arrays), values


def _opened(path: Place, reading: Reading) -> ForeignFile:
    """Opens a file."""
    tree, arrays, values = read_tree(ranges_of(path), reading)

    def form() -> dict[str, Any]:
        made = _form(tree)
        plain = _nested(dict.fromkeys(arrays, _ARRAY_FORM), reading.separator)
        plainly = not values and made == plain
        return {} if plainly else {_TREE: made}

    return ForeignFile(path=str(path), format="msgpack", arrays=arrays, values=values, form=form)


# Writing


def _is_array_form(item: Any) -> bool:
    return type(item) is str and item not in _FLOATS and not item.startswith(_TEXT)


def _plain_form(item: Any) -> Plain:
    """A plain value from its form."""
    value: Plain = item
    if type(item) is str:
        value = _FLOATS[item] if item in _FLOATS else item.removeprefix(_TEXT)
    return value


def _nested(leaves: Mapping[str, Any], separator: str) -> dict[str, Any]:
    """The tree of leaves by name.

    Raises:
        SerializationError: A name goes on from another one.
    """
    made: dict[str, Any] = {}
    for name, leaf in leaves.items():
        *outer, last = split(name, separator)
        inner = made
        for key in outer:
            inner = inner.setdefault(key, {}) if type(inner) is dict else inner
        if type(inner) is not dict or last in inner:
            message = "expected names of which none goes on from another, got one that does"
            hint = "rename it, or pass another separator"
            raise SerializationError(about("NQX614", name, message, hint))
        inner[last] = leaf
    return made


def _filled(form: Any, leaves: dict[str, Any], separator: str, keys: Keys = ()) -> Any:
    """The tree of a form with leaves in the places of its arrays; takes them out of the dict.

    Raises:
        KeyError: There is none for an array.
    """
    if type(form) is dict:
        boxed = keys and form.keys() == {BOX} and _is_array_form(form[BOX])
        return {
            key: _filled(inner, leaves, separator, keys if boxed else (*keys, key))
            for key, inner in form.items()
        }
    if type(form) is list:
        return [_filled(inner, leaves, separator, (*keys, str(n))) for n, inner in enumerate(form)]
    return leaves.pop(joined(keys, separator)) if _is_array_form(form) else _plain_form(form)


def _tree_of(writing: Writing, arrays: Mapping[str, ForeignArray]) -> Any:
    """The tree to write, with a function that reads each array: that of the form if it has exactly these arrays."""
    leaves = {name: partial(checked, name, array) for name, array in arrays.items()}
    if _TREE in writing.form:
        left: dict[str, Any] = dict(leaves)
        try:
            tree = _filled(writing.form[_TREE], left, writing.separator)
        except KeyError:
            left = leaves
        if not left:
            return tree
    return _nested(leaves, writing.separator)


def _write(stage: Path, arrays: Mapping[str, ForeignArray], writing: Writing) -> None:
    """Writes a file that Flax reads, one array at a time."""
    _require_numbers(arrays)
    msgpack = imported("msgpack", "msgpack", "writing files of msgpack")
    tree = _tree_of(writing, arrays)
    with stage.open("wb") as file:
        try:
            for part in _packed(msgpack, msgpack.Packer(), tree):
                file.write(part)
        except OverflowError as error:
            message = f"expected integers of at most 64 bits for msgpack, got: {error}"
            raise SerializationError(message, code="NQX614", hint="store them as text") from error
        file.flush()
        os.fsync(file.fileno())


def _packed(msgpack: Any, packer: Any, item: Any) -> Iterator[bytes]:
    """Yields the bytes of a tree in which functions return arrays."""
    if type(item) is dict:
        yield packer.pack_map_header(len(item))
        for key, inner in item.items():
            yield packer.pack(key)
            yield from _packed(msgpack, packer, inner)
    elif type(item) is list:
        yield packer.pack_array_header(len(item))
        for inner in item:
            yield from _packed(msgpack, packer, inner)
    elif callable(item):
        array = item()
        if array.nbytes > _MOST_CHUNK:
            yield from _packed(msgpack, packer, _chunked(array))
        else:
            parts = (array.shape, array.dtype.name, array.tobytes())
            yield packer.pack(msgpack.ExtType(ARRAY, packer.pack(parts)))
    else:
        yield packer.pack(item)


def _chunked(array: Array) -> dict[str, Any]:
    """The tree by which Flax describes an array that is too large for one object of msgpack."""

    def chunk(start: int) -> Callable[[], Array]:
        return lambda: array.reshape(-1)[start : start + step]

    step = _MOST_CHUNK // array.itemsize
    shape = {str(axis): size for axis, size in enumerate(array.shape)}
    starts = range(0, array.size, step)
    chunks = {str(place): chunk(start) for place, start in enumerate(starts)}
    return {CHUNKED: True, "shape": shape, "chunks": chunks}


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
    recognises=_recognises,
    opened=_opened,
    write=_write,
    folder=lambda writing: False,  # noqa: ARG005
    metadata=False,
)
