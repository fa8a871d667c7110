"""Short text forms of values, for ``repr`` and messages: never long, never slow, never failing.

Containers are looked into as far as there is room on a line, so that a dict of 100,000 arrays costs as much as its first
six. Objects that show themselves by their fields say which in :class:`Shown`; what rich and notebooks make of the same
parts is ``display.py``.

Example:
    >>> brief(list(range(100)))
    '[0, 1, 2, ..., 99]'
"""

from __future__ import annotations

import collections
import dataclasses
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from neuralqx_struct.path_tree import PathTree

__all__ = ["UNLABELLED", "Parts", "Shown", "Text", "brief", "brief_array", "parts_of"]

_MANY = 6
_LONG = 200
_SHORTEST = 40
_DEEP = 8


class Shown:
    """Base of objects whose text form is ``Name(field=value, ...)``."""

    __slots__ = ()

    def __nqx_shown__(self) -> tuple[str, Iterable[tuple[str, Any]]]:
        """The name, and what is shown by label; computes nothing that is not there."""
        return type(self).__name__, ()

    def __repr__(self) -> str:
        name, entries = self.__nqx_shown__()
        return f"{name}({', '.join(f'{label}={brief(value)}' for label, value in entries)})"


class Text:
    """Stands for a value in a printed tree: its ``repr`` is the text."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


#: The label of an item that has none; None may be a key.
UNLABELLED = Text("")


@dataclass(frozen=True, slots=True)
class Parts:
    """What a text form shows of a container.

    Attributes:
        name: As in ``Name(...)``; empty for the containers that Python writes by braces alone.
        braces: Such as ``[]``; empty for objects that show fields.
        entries: Labels (keys of a mapping, names of fields, or ``UNLABELLED``) and values; a :class:`Text` stands for those left out.
    """

    name: str
    braces: str
    entries: Iterable[tuple[Any, Any]]


def parts_of(value: Any, many: int = _MANY) -> Parts | None:
    """The parts of a value that can be looked into, at most about ``many``; None for others, and where it has a ``repr`` of its own."""
    kind: Any = type(value)
    if isinstance(value, Shown):
        name, entries = value.__nqx_shown__()
        return Parts(name, "", entries) if kind.__repr__ is Shown.__repr__ else None
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return Parts(kind.__name__, "", zip(kind._fields, value, strict=False))
    for base, braces, listed in _CONTAINERS:
        # As pprint does: a subclass that writes itself differently is left to do so.
        if issubclass(kind, base) and kind.__repr__ is base.__repr__:
            return Parts("" if kind is base and kind in _PLAIN else kind.__name__, braces, listed(value, many))
    if dataclasses.is_dataclass(kind) and "__create_fn__" in getattr(
        getattr(kind.__repr__, "__wrapped__", None), "__qualname__", ""
    ):
        names = [f.name for f in dataclasses.fields(kind) if f.repr]
        return Parts(type(value).__name__, "", [(name, getattr(value, name)) for name in names])
    return None


def _left_out(count: int, many: int) -> Text:
    return Text("..." if many == _MANY else f"... {count:,} more")


def _sequence(value: Any, many: int) -> Iterator[tuple[Any, Any]]:
    if len(value) <= many:
        yield from ((UNLABELLED, item) for item in value)
        return
    yield from ((UNLABELLED, item) for item in islice(value, many // 2))
    yield UNLABELLED, _left_out(len(value) - many // 2 - 1, many)
    yield UNLABELLED, value[-1]


def _set(value: Any, many: int) -> Iterator[tuple[Any, Any]]:
    yield from ((UNLABELLED, item) for item in islice(value, many))
    if len(value) > many:
        yield UNLABELLED, _left_out(len(value) - many, many)


def _mapping(value: Any, many: int) -> Iterator[tuple[Any, Any]]:
    yield from islice(value.items(), many)
    if len(value) > many:
        yield UNLABELLED, _left_out(len(value) - many, many)


_Entries = Callable[[Any, int], Iterator[tuple[Any, Any]]]
_CONTAINERS: tuple[tuple[Any, str, _Entries], ...] = (
    (list, "[]", _sequence),
    (tuple, "()", _sequence),
    (collections.OrderedDict, "{}", _mapping),
    (collections.defaultdict, "{}", _mapping),
    (dict, "{}", _mapping),
    (types.MappingProxyType, "{}", _mapping),
    (PathTree, "{}", _mapping),
    (set, "{}", _set),
    (frozenset, "{}", _set),
    (collections.deque, "[]", _sequence),
)
_PLAIN = frozenset({list, tuple, dict, set, frozenset, PathTree})
# What most fields hold, and what there is nothing to look into.
_SCALARS = frozenset({int, float, bool, complex, type(None)})


def brief_array(value: Any) -> str:
    """``complex64[12, 48]``: dtype and shape of anything that has both."""
    return f"{value.dtype}[{', '.join(map(str, value.shape))}]"


def brief(value: Any) -> str:
    """A text form of a value that fits on a line: arrays by dtype and shape, long containers shortened.

    Small concrete arrays show their numbers. No user code but ``repr`` of leaves runs, and its failures are shown.
    """
    return _brief(value, _LONG, _DEEP)


def _brief(value: Any, room: int, depth: int) -> str:
    try:
        if type(value) in _SCALARS:
            return _cut(repr(value), room)
        if type(value) is str:
            return _cut(repr(value[:_LONG]), room)
        parts = parts_of(value)
        text = _leaf(value, room) if parts is None else _joined(parts, room, depth)
    except Exception as error:  # noqa: BLE001 - a message must not fail because a value cannot be printed
        return f"<{type(value).__name__} whose repr fails: {type(error).__name__}>"
    return text


def _joined(parts: Parts, room: int, depth: int) -> str:
    texts: list[str] = []
    is_mapping = parts.braces == "{}"
    for label, value in parts.entries if depth else [(UNLABELLED, Text("..."))]:
        if room <= 0:
            texts.append("...")
            break
        key = f"{_brief(label, room, depth - 1)}: " if is_mapping else f"{label}="
        texts.append(("" if label is UNLABELLED else key) + _brief(value, room, depth - 1))
        room -= len(texts[-1]) + 2
    tail = "," if parts.braces == "()" and len(texts) == 1 else ""
    opening, closing = parts.braces[:1], parts.braces[1:]
    inner = f"{opening}{', '.join(texts)}{tail}{closing}"
    return f"{parts.name}({inner})" if parts.name else inner


def _leaf(value: Any, room: int) -> str:
    if not isinstance(value, type) and hasattr(value, "dtype") and hasattr(value, "shape"):
        text = _brief_tensor(value)
    elif type(value) is bytes and len(value) > _LONG:
        text = repr(value[:_LONG])
    else:
        text = repr(value)
    return _cut(text, room)


def _cut(text: str, room: int) -> str:
    if len(text) <= _SHORTEST:
        return text
    longest = max(room, _SHORTEST)
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def _brief_tensor(value: Any) -> str:
    text = brief_array(value)
    try:
        small = value.size <= _MANY and "key<" not in text and getattr(value, "is_fully_addressable", True)
        return f"{text}({value.tolist()})" if small else text
    except Exception:  # noqa: BLE001 - tracers, deleted and abstract arrays have no numbers to show
        return text
