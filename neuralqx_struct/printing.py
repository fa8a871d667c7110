"""Short text forms of values, for ``repr`` and messages: never long, never failing under tracing.

Example:
    >>> brief(list(range(100)))
    '[0, 1, 2, ..., 99]'
"""

from __future__ import annotations

from typing import Any

__all__ = ["brief", "brief_array"]

_MANY = 6
_LONG = 200


def brief_array(value: Any) -> str:
    """``complex64[12, 48]``: dtype and shape of anything that has both."""
    return f"{value.dtype}[{', '.join(map(str, value.shape))}]"


def brief(value: Any) -> str:
    """A text form of a value that fits on a line: arrays by dtype and shape, long containers shortened.

    Small concrete arrays show their numbers. No user code but ``repr`` of leaves runs, and its failures are shown.
    """
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return _brief_tensor(value)
    if type(value) in (list, tuple, set, frozenset):
        opening, closing = "[]" if type(value) is list else "()" if type(value) is tuple else "{}"
        items = list(value)
        shown = [brief(item) for item in (items if len(items) <= _MANY else [*items[:3], ..., items[-1]])]
        shown = ["..." if len(items) > _MANY and text == "Ellipsis" else text for text in shown]
        tail = "," if type(value) is tuple and len(items) == 1 else ""
        return f"{opening}{', '.join(shown)}{tail}{closing}"
    if type(value) is dict:
        entries = list(value.items())
        shown = [f"{brief(k)}: {brief(v)}" for k, v in entries[:_MANY]]
        return f"{{{', '.join(shown)}{', ...' if len(entries) > _MANY else ''}}}"
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001 - a message must not fail because a value cannot be printed
        return f"<{type(value).__name__} whose repr fails: {type(error).__name__}>"
    return text if len(text) <= _LONG else f"{text[: _LONG - 3]}..."


def _brief_tensor(value: Any) -> str:
    text = brief_array(value)
    try:
        small = value.size <= _MANY and "key<" not in text and getattr(value, "is_fully_addressable", True)
        return f"{text}({value.tolist()})" if small else text
    except Exception:  # noqa: BLE001 - tracers, deleted and abstract arrays have no numbers to show
        return text
