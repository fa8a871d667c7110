r"""Short texts of values for ``repr``, messages and HTML: never long, never slow, never failing.

Only the items of a container that fit on a line are looked at, so a dict of 100,000 arrays costs as much as its first six.
Objects with fields inherit from :class:`Shown`. ``struct/display.py`` shows the same parts in rich and in notebooks.

Integers of any size have decimal digits here too: Python's own conversion refuses more than 4300 digits.

HTML of reports and notebooks is made here as well: everything that comes from a file goes through :func:`escaped`.

Example:
    >>> brief(list(range(100)))
    '[0, 1, 2, ..., 99]'
    >>> read_decimal(write_decimal(-(10**5000))) == -(10**5000)
    True
    >>> print(escaped("<b>\u202e"))
    &lt;b&gt;\u202e
"""

from __future__ import annotations

import collections
import dataclasses
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from neuralqx_struct.errors import printable

_MANY = 6
_LONG = 200
_SHORTEST = 40
_DEEP = 8


class Shown:
    """Base of objects whose text form is ``Name(field=value, ...)``."""

    __slots__ = ()

    def __nqx_shown__(self) -> tuple[str, Iterable[tuple[str, Any]]]:
        """The name and the shown values by label; computes no pending field."""
        return type(self).__name__, ()

    def __repr__(self) -> str:
        name, entries = self.__nqx_shown__()
        return f"{name}({', '.join(f'{label}={brief(value)}' for label, value in entries)})"


class Text:
    """A placeholder in a printed tree; its ``repr`` is the text."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


#: The label of an item that has none; None may be a key.
UNLABELLED = Text("")


class Parts(NamedTuple):
    """The shown parts of a container.

    Attributes:
        name: As in ``Name(...)``; empty for containers that Python writes with braces alone.
        braces: Such as ``[]``; empty for objects with fields.
        entries: Labels (keys of a mapping, names of fields, or ``UNLABELLED``) and values; a :class:`Text` replaces those
            that are left out.
    """

    name: str
    braces: str
    entries: Iterable[tuple[Any, Any]]


def parts_of(value: Any, many: int = _MANY) -> Parts | None:
    """The parts of a container, at most about ``many``; None for other values, and for those with their own ``repr``."""
    kind: Any = type(value)
    if hasattr(kind, "__nqx_as_dict__"):
        return Parts("", "{}", _mapping(value, many))
    if isinstance(value, Shown):
        name, entries = value.__nqx_shown__()
        return Parts(name, "", entries) if kind.__repr__ is Shown.__repr__ else None
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return Parts(kind.__name__, "", zip(kind._fields, value, strict=False))
    for base, braces, listed in _CONTAINERS:
        # As in pprint, subclasses with their own __repr__ keep it.
        if issubclass(kind, base) and kind.__repr__ is base.__repr__:
            is_plain = kind is base and kind in _PLAIN
            return Parts("" if is_plain else kind.__name__, braces, listed(value, many))
    if dataclasses.is_dataclass(kind) and _has_generated_repr(kind):
        names = [field.name for field in dataclasses.fields(kind) if field.repr]
        return Parts(type(value).__name__, "", [(name, getattr(value, name)) for name in names])
    return None


def _has_generated_repr(cls: Any) -> bool:
    wrapped = getattr(cls.__repr__, "__wrapped__", None)
    return "__create_fn__" in getattr(wrapped, "__qualname__", "")


def _left_out(count: int, many: int) -> Text:
    return Text("..." if many == _MANY else f"... {count:,} more")


def _sequence(value: Any, many: int) -> Iterator[tuple[Any, Any]]:
    if len(value) <= many:
        yield from ((UNLABELLED, item) for item in value)
        return
    yield from ((UNLABELLED, item) for item in islice(value, many // 2))
    yield UNLABELLED, _left_out(len(value) - many // 2 - 1, many)
    yield UNLABELLED, value[-1]


def _first(entries: Iterable[Any], count: int, many: int) -> Iterator[tuple[Any, Any]]:
    yield from islice(entries, many)
    if count > many:
        yield UNLABELLED, _left_out(count - many, many)


def _set(value: Any, many: int) -> Iterator[tuple[Any, Any]]:
    return _first(((UNLABELLED, item) for item in value), len(value), many)


def _mapping(value: Any, many: int) -> Iterator[tuple[Any, Any]]:
    return _first(value.items(), len(value), many)


#: Returns the labels and values of a container, given how many to show.
_Entries = Callable[[Any, int], Iterator[tuple[Any, Any]]]
_CONTAINERS: tuple[tuple[Any, str, _Entries], ...] = (
    (list, "[]", _sequence),
    (tuple, "()", _sequence),
    (collections.OrderedDict, "{}", _mapping),
    (collections.defaultdict, "{}", _mapping),
    (dict, "{}", _mapping),
    (types.MappingProxyType, "{}", _mapping),
    (set, "{}", _set),
    (frozenset, "{}", _set),
    (collections.deque, "[]", _sequence),
)
_PLAIN = frozenset({list, tuple, dict, set, frozenset})
# The most frequent values of fields.
_SCALARS = frozenset({int, float, bool, complex, type(None)})


def array_text(dtype: object, shape: Iterable[object]) -> str:
    """A dtype and a shape as ``complex64[12, 48]``."""
    sizes = (brief_integer(size) if type(size) is int else str(size) for size in shape)
    return f"{dtype}[{', '.join(sizes)}]"


def brief_array(value: Any) -> str:
    """The dtype and the shape of an array, see :func:`array_text`."""
    return array_text(value.dtype, value.shape)


def brief_leaf(value: Any) -> str:
    """As :func:`brief`, but arrays without their numbers."""
    try:
        return brief_array(value) if _is_array(value) else brief(value)
    except Exception as error:  # noqa: BLE001 - attributes of foreign objects may raise anything
        return _failed(value, error)


def brief_repr(value: Any) -> str:
    """The ``repr`` of a value, cut where it is very long."""
    try:
        return cut(repr(value), _LONG)
    except Exception as error:  # noqa: BLE001 - a message must not fail because a value cannot be printed
        return _failed(value, error)


def _failed(value: Any, error: Exception) -> str:
    return f"<{type(value).__name__} whose repr fails: {type(error).__name__}>"


def cut(text: str, most: int = 80) -> str:
    """Text for messages, of at most so many characters.

    Example:
        >>> cut("sum(kernel) + sum(bias)", 14)
        'sum(kernel)...'
    """
    return text if len(text) <= most else f"{text[: most - 3]}..."


def first_line(text: object) -> str:
    """The first line of a text, or of an error of another library, cut at 300 characters."""
    return cut(str(text).strip().partition("\n")[0], 300)


def listed(names: Iterable[str], most: int = 20) -> str:
    """Names for a message, the first ``most`` of them.

    Example:
        >>> listed(["a", "b", "c"], 2)
        'a, b and 1 more'
    """
    known = list(names)
    more = f" and {len(known) - most} more" if len(known) > most else ""
    return f"{', '.join(known[:most])}{more}"


def brief(value: Any) -> str:
    """A text of a value that fits on a line: arrays by dtype and shape, long containers shortened.

    Small concrete arrays show their numbers. Of user code, only ``repr`` of leaves runs, and its failures are shown.
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
        return _failed(value, error)
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


def _is_array(value: Any) -> bool:
    return not isinstance(value, type) and hasattr(value, "dtype") and hasattr(value, "shape")


def _leaf(value: Any, room: int) -> str:
    if _is_array(value):
        text = _brief_tensor(value)
    elif type(value) is bytes and len(value) > _LONG:
        text = repr(value[:_LONG])
    else:
        text = repr(value)
    return _cut(text, room)


def _cut(text: str, room: int) -> str:
    if len(text) <= _SHORTEST:
        return text
    return cut(text, max(room, _SHORTEST))


def _brief_tensor(value: Any) -> str:
    text = brief_array(value)
    try:
        small = (
            value.size <= _MANY
            and "key<" not in text
            and getattr(value, "is_fully_addressable", True)
        )
        return f"{text}({value.tolist()})" if small else text
    except Exception:  # noqa: BLE001 - tracers, deleted and abstract arrays have no numbers to show
        return text


# ----------------------------------------------------------------------------------------------------------------------
# Integers of any size as decimal digits.

MOST_BITS: Final = 332_192  # an integer of so many bits has at most 100,000 digits
_CHUNK = 4000


def write_decimal(value: int) -> str:
    """The decimal digits of an integer."""
    sign = "-" if value < 0 else ""
    value = abs(value)
    chunks: list[str] = []
    while value >= 10**_CHUNK:
        value, low = divmod(value, 10**_CHUNK)
        chunks.append(f"{low:0{_CHUNK}d}")
    return sign + "".join([str(value), *reversed(chunks)])


def read_decimal(text: str) -> int:
    """The integer of decimal digits after an optional minus; the inverse of :func:`write_decimal`."""
    digits = text.removeprefix("-")
    value = 0
    for start in range(0, len(digits), _CHUNK):
        chunk = digits[start : start + _CHUNK]
        value = value * 10 ** len(chunk) + int(chunk)
    return -value if text.startswith("-") else value


def brief_integer(value: int) -> str:
    """The text of an integer in messages: its digits, or its number of bits if they would not fit on a line."""
    if value.bit_length() <= 190:
        return int.__repr__(value)
    return f"an int of {value.bit_length()} bits"


def brief_scalar(value: Any) -> str:
    """The text of a scalar in messages, cut at 60 characters; it never fails, as the ``repr`` of large integers does."""
    text = brief_integer(value) if type(value) is int else repr(value)
    return cut(text, 60)


_JSON_WORDS: Final = {None: "null", True: "true", False: "false"}


def brief_json(value: Any) -> str:
    """The text of a value of a schema file or a manifest in messages, cut at 60 characters."""
    if isinstance(value, (list, dict)):
        from json import dumps  # few programs show such values

        return cut(dumps(value, default=repr), 60)
    return _JSON_WORDS[value] if value is None or type(value) is bool else brief_scalar(value)


_LARGE: Final[dict[type, str]] = {dict: "an object", list: "a list"}
_SINGLE: Final = frozenset({int, float, str, bool, type(None)})


def brief_plain(value: Any) -> str:
    """As :func:`brief_json`, for values that may be large: objects and lists by these words, others by their class."""
    kind = type(value)
    return brief_json(value) if kind in _SINGLE else _LARGE.get(kind, kind.__name__)


def columns(text: str) -> int:
    """The columns of a terminal that a text takes: two for characters of East Asia and emoji, none for accents.

    Example:
        >>> columns("weights"), columns("重み")
        (7, 4)
    """
    if text.isascii():
        return len(text)
    from unicodedata import category, east_asian_width  # few names need it

    wide = sum(east_asian_width(each) in ("W", "F") for each in text)
    return len(text) + wide - sum(category(each) in ("Mn", "Me") for each in text)


def padded(text: str, width: int) -> str:
    """A text with spaces behind it up to a number of :func:`columns`."""
    return text + " " * (width - columns(text))


def is_unicode(text: str) -> bool:
    """False for text with half of a surrogate pair, which no file can hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def escaped(value: object) -> str:
    """Text as HTML: markup has no meaning, and characters that steer or reorder text are escaped."""
    from html import escape  # few programs write HTML

    return escape(printable(value))


def tag(name: str, content: str, **attributes: object) -> str:
    """An element around HTML; ``class_`` is the attribute ``class``."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escaped(value)}"'
        for key, value in attributes.items()
        if value not in (None, "")
    )
    return f"<{name}{given}>{content}</{name}>"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "") -> str:
    """A table; its cells are HTML, and a wide one scrolls inside its own frame."""
    title = tag("caption", escaped(caption)) if caption else ""
    header = "".join(tag("th", escaped(cell), scope="col") for cell in head)
    body = "".join(tag("tr", "".join(tag("td", cell) for cell in row)) for row in rows)
    inside = f"{title}<thead><tr>{header}</tr></thead><tbody>{body}</tbody>"
    return tag("div", tag("table", inside), class_="wide")


def notebook_table(head: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "") -> str:
    """A table for notebooks, which align the text of cells to the right and break it at will."""
    style = "div.wide > table :is(td, th, caption) {text-align: left; white-space: nowrap}"
    return f"<style>{style}</style>{table(head, rows, caption)}"


def items(lines: Iterable[str]) -> str:
    """A list of HTML lines."""
    return tag("ul", "".join(tag("li", line) for line in lines))
