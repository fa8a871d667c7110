r"""Small values as plain JSON, for the metadata of a bundle: the encoding of a bundle with its arrays as base64.

Example:
    >>> data = packed({"seen": 7, "buffer": b"\x00", "order": np.arange(3)})
    >>> unpacked(data)
    {'seen': 7, 'buffer': b'\x00', 'order': array([0, 1, 2])}
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np

from neuralqx_struct.checkpoint.loading import from_state_dict
from neuralqx_struct.checkpoint.payloads import to_state_dict
from neuralqx_struct.dtypes import dtype_named

__all__ = ["packed", "unpacked"]


def packed(value: Any) -> dict[str, Any]:
    """A value as plain JSON.

    Raises:
        SerializationError: NQX430, it holds something that cannot be saved.
    """
    data = to_state_dict(value)
    held = {
        name: base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
        for name, array in data["array_data"].items()
    }
    return {**data, "array_data": held}


def unpacked(data: Any, *, raw: bool = False, trust: Sequence[str] = ()) -> Any:
    """The inverse of :func:`packed`; ``raw`` and ``trust`` are those of a load.

    Raises:
        SerializationError: The parts of it do not agree.
        KeyError, TypeError, ValueError: It is no result of :func:`packed`.
    """
    records = data["arrays"]
    held = {
        name: np.frombuffer(
            base64.b64decode(text, validate=True), dtype_named(records[name]["dtype"])
        ).reshape(records[name]["shape"])
        for name, text in data["array_data"].items()
    }
    return from_state_dict({**data, "array_data": held}, raw=raw, trust=trust)
