"""The user's free values beside an object: plain JSON, so that any tool can read the manifest.

Example:
    >>> plain_metadata({"run": 7, "sizes": (2, 3)})
    {'run': 7, 'sizes': [2, 3]}
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from itertools import islice
from typing import Any

from neuralqx_struct.errors import Diagnostic, SerializationError
from neuralqx_struct.fieldspec import Values
from neuralqx_struct.manifest import MOST_FINDINGS
from neuralqx_struct.printing import brief
from neuralqx_struct.schema.text import KeyPath, path_text

__all__ = ["plain_metadata"]

_EXPECTED = "expected plain JSON values"
_ROOT = "metadata"  # its member of the manifest


def plain_metadata(metadata: Values) -> Any:
    """Checks that the user's metadata is strict JSON; returns a copy.

    Raises:
        SerializationError: NQX430, with the place of every value that JSON lacks, and of every key that is no text.
    """
    try:
        given = dict(metadata)
        found = [*islice(_misfits(given), MOST_FINDINGS)]
        if not found:
            return json.loads(json.dumps(given, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:  # such as a list inside itself
        found = [_misfit((_ROOT,), f"{_EXPECTED}, got others\n{error}")]
    raise SerializationError(found)


def _misfits(metadata: dict[Any, Any]) -> Iterator[Diagnostic]:
    """Yields a finding for each value that JSON lacks, and for each key that is no text."""
    todo: list[tuple[KeyPath, Any]] = [((_ROOT,), metadata)]
    met = set()
    while todo:
        path, value = todo.pop()
        if isinstance(value, (dict, list, tuple)):
            if id(value) in met:
                continue
            met.add(id(value))
            for key in value if isinstance(value, dict) else ():
                if not isinstance(key, str):  # json makes a text of it, which may be another key
                    yield _misfit(path, f"expected keys of type str, got {brief(key)}")
            items = value.items() if isinstance(value, dict) else enumerate(value)
            todo += [((*path, key), item) for key, item in items if isinstance(key, (str, int))][
                ::-1
            ]
        elif not (value is None or isinstance(value, (str, int, float))):
            yield _misfit(path, f"{_EXPECTED}, got {brief(value)}")
        elif isinstance(value, float) and not math.isfinite(value):
            yield _misfit(
                path, f"{_EXPECTED}, got {value}", "JSON has no such number: write a text, or null"
            )


def _misfit(path: KeyPath, message: str, hint: str | None = None) -> Diagnostic:
    fix = "use str, numbers, booleans, None, lists and dicts with str keys; float(x) makes a number of an array"
    return Diagnostic("NQX430", "error", message, path_text(path), hint=hint or fix)
