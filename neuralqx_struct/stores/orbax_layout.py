"""How arrays are named and described in an Orbax checkpoint, for the two halves of the ``orbax`` store.

Owns keys (an array's name with everything but letters, digits and ``_.-~`` percent-encoded), what stands for dtypes that zarr
has no name for (bytes), and getting at the packages of the extra ``orbax``.

Example:
    >>> key_of("layers[0]/w"), stored_as("complex64", [2]), stored_as("<U2", [3])
    ('layers%5B0%5D%2Fw', ('complex64', (2,)), ('uint8', (3, 8)))
"""

from __future__ import annotations

import importlib
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from neuralqx_struct.errors import SerializationError
from neuralqx_struct.payload import dtype_named

if TYPE_CHECKING:
    import numpy as np

__all__ = ["bytes_of", "key_of", "package", "stored_as"]

_NATIVE: Final = frozenset(
    [
        "bool",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "float16",
        "bfloat16",
        "float32",
        "float64",
        "complex64",
        "complex128",
    ]
)


def package(name: str) -> Any:
    """A module of the extra.

    Raises:
        SerializationError: NQX615: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        hint = "pip install 'neuralqx-struct[orbax]'; or convert the bundle where it is installed"
        message = f"expected the package {name} for store 'orbax', got none"
        raise SerializationError(message, code="NQX615", hint=hint) from error


def key_of(name: str) -> str:
    """What an array is called in the checkpoint."""
    return quote(name, safe="") or "%"


def stored_as(logical: str, shape: Collection[int]) -> tuple[str, tuple[int, ...]]:
    """The dtype and shape in zarr for an array; always of exactly as many bytes."""
    if logical in _NATIVE:
        return logical, tuple(shape)
    itemsize = dtype_named(logical).itemsize
    return "uint8", tuple(shape) if itemsize == 1 else (*shape, itemsize)


def bytes_of(array: np.ndarray[Any, Any]) -> memoryview | bytes:
    """The values as bytes in C order, of which the checksums are."""
    import numpy as np

    return np.asarray(array, order="C").reshape(-1).view(np.uint8).data if array.nbytes else b""
