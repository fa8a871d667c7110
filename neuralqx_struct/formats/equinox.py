"""The foreign format ``equinox``: files of ``equinox.tree_serialise_leaves``, one ``.npy`` record after the other.

Such a file has no names. ``like`` gives them: the model, or an array, a ``jax.ShapeDtypeStruct``, a pair of dtype and shape,
or a plain number for each leaf, by name, in the order of the leaves. Other leaves, such as functions, are not in files. Without ``like``
the names are the positions, and arrays of dtypes that ``.npy`` cannot name are not readable, except for bfloat16.

Example:
    >>> import pathlib, tempfile
    >>> import numpy as np
    >>> from neuralqx_struct import formats
    >>> path = pathlib.Path(tempfile.mkdtemp(), "model.eqx")
    >>> with path.open("wb") as file:
    ...     np.save(file, np.ones((2, 3)))
    ...     np.save(file, 5)
    >>> with formats.opened(path, like={"weight": ("float64", (2, 3)), "steps": 0}) as file:
    ...     file.arrays["weight"].shape, file.values
    ((2, 3), {'steps': 5})
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod
from typing import Any, Final

from neuralqx_struct.dtypes import ML_DTYPES, dtype_name, dtype_named
from neuralqx_struct.errors import READ_MORE, SerializationError, StructError, within_stack
from neuralqx_struct.formats.npz import (
    MAGIC,
    Parsed,
    file_of,
    found_array,
    header_size,
    parse_header,
    stored_dtype,
)
from neuralqx_struct.formats.ranges import StoredArray, View
from neuralqx_struct.formats.table import (
    Candidate,
    ForeignFile,
    Format,
    Plain,
    Reading,
    checked,
    joined,
    ranges_of,
)
from neuralqx_struct.manifest import Findings, raise_findings
from neuralqx_struct.paths import FieldName
from neuralqx_struct.places.requests import Blocks
from neuralqx_struct.places.urls import Place
from neuralqx_struct.printing import brief

_SUFFIX: Final = ".eqx"
_MOST_HEADER: Final = 1 << 16
_HEADER: Final = 128  # bytes of most headers, which numpy pads to a multiple of 64
#: The kinds of numpy's dtypes for plain numbers.
_KINDS: Final = {bool: "b", int: "iu", float: "f"}
_STORED: Final = {bool: "bool", int: "int64", float: "float64"}
_Wanted = tuple[str, tuple[int, ...]] | bool | int | float
"""Dtype and shape of an array, or a number."""
_CALL: Final = (
    "pass the model, jax.eval_shape of the function that makes it, or arrays, shapes or numbers by name in the order of the leaves: "
    "like={'layers.0.weight': jax.ShapeDtypeStruct((4, 3), 'float32'), ...}"
)


def _records(view: View, most: int) -> Iterator[StoredArray]:
    """The records that fill a file.

    Raises:
        IntegrityError: The file ends inside one, or there are other bytes.
        SerializationError: There are more than the limit.
    """
    at = count = 0
    while at < len(view):
        count += 1
        if count > most:
            message = f"expected at most {most} arrays in a file of Equinox, got more"
            raise SerializationError(message, code="NQX005", hint=READ_MORE)
        parsed = _header(view, at)
        place = at + parsed.size
        nbytes = prod(parsed.shape) * stored_dtype(parsed.descr).itemsize
        at = place + nbytes
        yield found_array(parsed, min(nbytes, len(view) - place), place, None, None)


def _header(view: View, at: int) -> Parsed:
    """The header of the record at a place; of a file behind a URL no more than a block is fetched for most of them."""
    data = memoryview(view[at : at + _HEADER])
    whole = header_size(data)
    return parse_header(data if whole <= len(data) else view[at : at + min(whole, _MOST_HEADER)])


def _places(like: Mapping[str, _Wanted]) -> Iterator[tuple[int, int]]:
    """Yields where the headers of a file start and end if they are as long as most of them."""
    at = 0
    for wanted in like.values():
        dtype, shape = wanted if isinstance(wanted, tuple) else (_STORED[type(wanted)], ())
        yield at, at + _HEADER
        at += _HEADER + prod(shape) * dtype_named(dtype).itemsize


@within_stack
def _leaves_of(like: Any, separator: str) -> Any:
    """The leaves of a model by name; anything else as it is.

    Only programs that have imported JAX have models, so that it is not imported here.
    """
    jax = sys.modules.get("jax")
    is_flat = isinstance(like, Mapping) and not any(
        isinstance(leaf, (Mapping, list)) for leaf in like.values()
    )
    if is_flat or jax is None:
        return like
    leaves = jax.tree_util.tree_flatten_with_path(like)[0]
    if not all(keys for keys, _ in leaves):  # it is no tree
        return like
    return {joined(map(_key, keys), separator): leaf for keys, leaf in leaves}


def _key(entry: Any) -> str:
    """The text of a key of JAX: a field, a key of a dict, or an index."""
    return str(next(getattr(entry, n) for n in ("name", "key", "idx") if hasattr(entry, n)))


def _descriptions(given: Any, separator: str) -> dict[str, _Wanted]:
    """The leaves of ``like`` that files have: dtype and shape of arrays, and plain numbers.

    Raises:
        SerializationError: It does not describe leaves by name: all problems.
    """
    like = _leaves_of(given, separator)
    if not isinstance(like, Mapping):
        message = f"expected like= with arrays, shapes or numbers by name, got {brief(like)}"
        raise SerializationError(message, code="NQX612", hint=_CALL)
    found = Findings()
    made: dict[str, _Wanted] = {}
    for name, leaf in like.items():
        try:
            described = _described(leaf)
        except (StructError, TypeError, ValueError):
            message = (
                f"expected an array, a pair of dtype and shape, or a number, got {brief(leaf)}"
            )
            found.add("NQX612", [FieldName("like"), FieldName(str(name))], message, _CALL)
            continue
        if described is not None:
            made[str(name)] = described
    raise_findings(found)
    return made


def _described(leaf: Any) -> _Wanted | None:
    """Dtype and shape of an array, a number, or None for a leaf that files do not have."""
    import numpy as np

    if type(leaf) in _KINDS:
        number: _Wanted = leaf
        return number
    if type(leaf) is complex:
        return "complex128", ()
    if isinstance(leaf, tuple):
        dtype, shape = leaf
    elif hasattr(leaf, "dtype") and hasattr(leaf, "shape"):
        dtype, shape = leaf.dtype, leaf.shape
    elif isinstance(leaf, (Mapping, list)):
        raise TypeError
    else:
        return None
    named = dtype_named(dtype) if isinstance(dtype, str) else np.dtype(dtype)
    return dtype_name(named), tuple(int(size) for size in shape)


def _matched(records: list[StoredArray], like: Mapping[str, _Wanted]) -> dict[str, StoredArray]:
    """The records by the names of ``like``.

    Raises:
        IntegrityError: They do not agree: all problems.
    """
    found = Findings()
    if len(records) != len(like):
        code = "NQX410" if len(records) > len(like) else "NQX409"
        message = f"expected {len(like)} arrays and numbers as in like=, got {len(records)}"
        found.add(
            code, "$.arrays", message, "pass the model that was saved, with its static fields"
        )
    made: dict[str, StoredArray] = {}
    for (name, wanted), record in zip(like.items(), records, strict=False):
        made[name] = _fitted(name, wanted, record, found)
    raise_findings(found)
    return made


def _fitted(name: str, wanted: _Wanted, record: StoredArray, found: Findings) -> StoredArray:
    """The record with the dtype of a leaf, if ``.npy`` cannot name that."""
    path = [FieldName("arrays"), FieldName(name)]
    dtype, shape = stored_dtype(record.dtype), record.shape
    got = f"{record.dtype}{list(shape)}"
    if not isinstance(wanted, tuple):
        if shape or dtype.kind not in _KINDS[type(wanted)]:
            found.add("NQX411", path, f"expected a number like {wanted!r}, got {got}")
        return record
    expected = f"{wanted[0]}{list(wanted[1])}"
    named = dtype_named(wanted[0])
    if dtype.char == "V" and dtype.itemsize == named.itemsize and wanted[0] in ML_DTYPES:
        record = record._replace(dtype=wanted[0])
    elif dtype != named:
        found.add("NQX411", path, f"expected {expected} as in like=, got {got}")
    if shape != wanted[1]:
        found.add("NQX412", path, f"expected {expected} as in like=, got {got}")
    return record


def _guessed(record: StoredArray) -> StoredArray:
    """The record as bfloat16 if it has two bytes that ``.npy`` cannot name: JAX has no other such dtype."""
    dtype = stored_dtype(record.dtype)
    if dtype.char != "V" or dtype.itemsize != 2:
        return record
    return record._replace(dtype="bfloat16")


def _opened(path: Place, reading: Reading) -> ForeignFile:
    data = ranges_of(path)
    like = None if reading.like is None else _descriptions(reading.like, reading.separator)
    if like is not None and isinstance(data.view, Blocks):
        data.view.fetch(
            _places(like)
        )  # the headers together; those that are elsewhere are fetched one by one
    records = list(_records(data.view, reading.limits.nodes))
    if like is None:
        numbered = {str(place): _guessed(record) for place, record in enumerate(records)}
        file = file_of(path, EQUINOX, data, numbered, hint=_CALL)
        return replace(file, metadata={"names": "the positions of the leaves; like= gives others"})
    file = file_of(path, EQUINOX, data, _matched(records, like))
    values: dict[str, Plain] = {}
    for name, wanted in like.items():
        if not isinstance(wanted, tuple):
            values[name] = checked(name, file.arrays[name]).item()
    arrays = {name: array for name, array in file.arrays.items() if name not in values}
    return replace(file, arrays=arrays, values=values)


def _recognises(found: Candidate) -> bool:
    """Whether a file has the suffix of Equinox, or more than one ``.npy`` record."""
    if found.names is not None:
        return False
    if found.path.name.endswith(_SUFFIX):
        return True
    if found.path.name.endswith(".npy") or not found.start.startswith(MAGIC):
        return False
    try:
        parsed = parse_header(memoryview(found.start))
        size = prod(parsed.shape) * stored_dtype(parsed.descr).itemsize
    except SerializationError:
        return False
    return parsed.size + size < found.size


EQUINOX: Final = Format(
    name="equinox",
    title="a file of equinox.tree_serialise_leaves",
    suffix=_SUFFIX,
    recognises=_recognises,
    opened=_opened,
    write=None,
    folder=lambda _: False,
    metadata=True,
)
