"""The foreign format ``safetensors``: one file, or a folder of shards with an index, as Hugging Face writes them.

The file is mapped: opening it reads the header, an array is a view. Needs no package.

Example:
    >>> SAFETENSORS.recognises(Candidate(Path("model.safetensors"), None, b"", 0))
    True
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from neuralqx_struct.dtypes import dtype_named
from neuralqx_struct.errors import Diagnostic, IntegrityError, SerializationError
from neuralqx_struct.formats.table import (
    Candidate,
    ForeignArray,
    ForeignFile,
    Format,
    Reading,
    mapped,
)
from neuralqx_struct.stores.safetensors import CODES, Header, Tensor, read_header
from neuralqx_struct.stores.store import about, about_each, require_possible

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

_SUFFIX: Final = ".safetensors"
_INDEX: Final = ".safetensors.index.json"


def _recognises(found: Candidate) -> bool:
    if found.names is not None:
        return any(name.endswith((_SUFFIX, _INDEX)) for name in found.names)
    if found.path.name.endswith((_SUFFIX, _INDEX)):
        return True
    header = int.from_bytes(found.start[:8], "little")
    return found.start[8:9] == b"{" and header <= found.size - 8


def _opened(path: Path, reading: Reading) -> ForeignFile:  # noqa: ARG001 - it has no nested names
    view = mapped(path)
    header = read_header(view, len(view))
    arrays = _arrays(view, header)
    return ForeignFile(
        path=str(path), format=SAFETENSORS.name, arrays=arrays, metadata=header.metadata
    )


def _arrays(view: memoryview, header: Header) -> dict[str, ForeignArray]:
    """The arrays of one file, in the order of its header.

    Raises:
        IntegrityError: The sizes of some do not agree with their dtypes and shapes: all problems.
    """
    found: list[Diagnostic] = []
    arrays: dict[str, ForeignArray] = {}
    for name, tensor in header.tensors.items():
        try:
            arrays[name] = _array(view, name, tensor)
        except SerializationError as error:
            found += about_each(name, error)
    if found:
        raise IntegrityError(found)
    return arrays


def _array(view: memoryview, name: str, tensor: Tensor) -> ForeignArray:
    code, shape, start, end = tensor
    logical = CODES.get(code)
    if logical is None:
        return ForeignArray(code, tuple(shape), _unreadable(name, code))
    dtype = dtype_named(logical)
    require_possible(shape, dtype.itemsize)
    nbytes = prod(shape) * dtype.itemsize
    if end - start != nbytes:
        message = f"expected {nbytes} bytes for {code}{shape}, got {end - start}"
        raise IntegrityError(message, code="NQX408")

    def read() -> Array:
        import numpy as np

        if not nbytes:
            made = np.empty(shape, dtype)
            made.flags.writeable = False
            return made
        return np.ndarray(shape, dtype, view, start)

    return ForeignArray(logical, tuple(shape), read)


def _unreadable(name: str, code: str) -> Callable[[], Array]:
    """The ``read`` of an array whose dtype has no name here."""

    def read() -> Array:
        known = ", ".join(code for code, logical in CODES.items() if logical)
        message = f"expected a dtype among {known}, got {code[:60]}"
        hint = "convert the array to one of these with the program that wrote the file"
        raise SerializationError(about("NQX411", name, message, hint))

    return read


SAFETENSORS: Final = Format(
    name="safetensors",
    title="a safetensors file",
    extra=None,
    recognises=_recognises,
    opened=_opened,
    write=None,
    folder=None,
    metadata=True,
)
