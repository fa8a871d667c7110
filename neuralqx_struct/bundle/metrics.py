"""Metrics of steps: real numbers by name, in the metadata of a bundle.

Example:
    >>> metrics_of_plain(metrics_to_plain({"energy": -1.5, "error": math.inf}))
    {'energy': -1.5, 'error': inf}
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from neuralqx_struct import bundle
from neuralqx_struct.bundle.urls import Place
from neuralqx_struct.errors import StructError, has_errors
from neuralqx_struct.manifest import Limits
from neuralqx_struct.printing import brief
from neuralqx_struct.stores.store import BundleReadError

Metrics = Mapping[str, float]
#: The member of the metadata.
METRICS: Final = "metrics"


@bundle.read_again
def metrics_at(path: Place, limits: Limits | None = None) -> Metrics | None:
    """The metrics of a step; None if it is not complete, or above the limits.

    Raises:
        BundleReadError: The system or the server refuses to read it, complete or not.
    """
    try:
        with bundle.opened(path, limits, alone=True) as found:
            if has_errors(found.findings) or has_errors(found.size_findings()):
                return None
            return metrics_of_plain(found.document.get("metadata", {}).get(METRICS))
    except BundleReadError:
        raise
    except StructError:
        return None


def metrics_to_plain(metrics: Mapping[str, Any]) -> dict[str, float | str]:
    """Metrics as values of JSON: numbers, and text for NaN and the infinite ones.

    Raises:
        ValueError: A name is no text, or a value no real number; lists all of them.
        TypeError: It is no mapping.

    Example:
        >>> metrics_to_plain({"energy": -1.5, "error": math.nan})
        {'energy': -1.5, 'error': 'nan'}
    """
    if not isinstance(metrics, Mapping):
        raise TypeError(f"metrics=: expected a mapping of real numbers, got {brief(metrics)}")
    plain: dict[str, float | str] = {}
    wrong = []
    for name, value in metrics.items():
        try:
            if not isinstance(name, str) or isinstance(value, str) or not _is_real(value):
                raise TypeError
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            wrong.append(f"{brief(name)}: {brief(value)}")
            continue
        plain[name] = number if math.isfinite(number) else str(number)
    if wrong:
        message = f"metrics=: expected real numbers by name, got {', '.join(wrong)}"
        raise ValueError(f"{message}; of complex numbers pass the real part")
    return plain


def _is_real(value: Any) -> bool:
    import numpy as np

    return np.ndim(value) == 0 and not np.iscomplexobj(value)


def metrics_of_plain(plain: Any) -> Metrics:
    """The inverse of :func:`metrics_to_plain`; leaves out members of other programs.

    Example:
        >>> metrics_of_plain({"energy": -1.5, "error": "nan", "note": "good"})
        {'energy': -1.5, 'error': nan}
    """
    found: dict[str, float] = {}
    for name, value in plain.items() if isinstance(plain, Mapping) else ():
        if type(value) in (int, float) or value in ("nan", "inf", "-inf"):
            try:
                found[name] = float(value)
            except OverflowError:
                continue
    return found
