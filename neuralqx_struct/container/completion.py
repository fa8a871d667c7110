"""Completion: the values of all fields of a class, from those that were stored and the defaults of the others.

Example:
    >>> complete(complex, {"real": 1.5}, ["real", "imag"], ["imag"].__contains__, lambda name: 0.0)
    {'real': 1.5, 'imag': 0.0}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from neuralqx_struct.errors import Diagnostic, SerializationError, did_you_mean

__all__ = ["complete"]


def complete(
    cls: type,
    stored: Mapping[str, Any],
    known: Sequence[str],
    has_default: Callable[[str], bool],
    default: Callable[[str], Any],
) -> dict[str, Any]:
    """The values of the known fields: stored or default.

    Raises:
        SerializationError: With every stored field that is not known, and every field without a value.
    """
    problems = [
        Diagnostic(
            "NQX415",
            "error",
            f"expected a field of {cls.__name__}, got {name!r}, which it does not have",
            path=f"{cls.__name__}.{name}",
            hint=did_you_mean(str(name), known) or "keep removed fields readable until no stored object has them",
        )
        for name in stored
        if name not in known
    ]
    problems += [
        Diagnostic(
            "NQX414",
            "error",
            "expected a stored value or a default, got neither",
            path=f"{cls.__name__}.{name}",
            hint="give the field a default: objects that were stored before it was added have none",
        )
        for name in known
        if name not in stored and not has_default(name)
    ]
    if problems:
        raise SerializationError(problems)
    return {name: stored[name] if name in stored else default(name) for name in known}
