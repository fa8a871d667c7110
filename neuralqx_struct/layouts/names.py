"""Names of arrays in a file, joined along the nesting of structs.

A name is counted where a rule has ``{i}`` or ``{key}``.

Example:
    >>> names = Names(["h.0.w", "h.1.w", "h.1.b", "norm.w"])
    >>> names.numbers("h.", ""), names.keys("", "", "."), names.any_below("norm")
    ({0, 1}, ['h', 'norm'], True)
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase

from neuralqx_struct.errors import SchemaError

#: Starts a name that the prefix and the names around it are not part of.
ABSOLUTE = "/"
#: Around the place of a slot; no name of a layout may have a control character.
_SLOT = "\0"
#: Ends a name.
END = "\n"
#: Names that one file may be searched for.
_MOST_LOOKS = 20_000_000
#: Characters that make a name a pattern.
_MAGIC = frozenset("*?[")
_DIGITS = re.compile(r"(0|[1-9][0-9]{0,8})(?![0-9A-Za-z_])")


def joined(base: str, part: str, separator: str) -> str:
    """The name of a part inside of another one.

    Example:
        >>> joined("encoder", "layer.{i}", "."), joined("encoder", "/head", "."), joined("encoder", "", ".")
        ('encoder.layer.{i}', '/head', 'encoder')
    """
    if part.startswith(ABSOLUTE) or not base:
        return part
    if not part:
        return base
    return f"{base}{part}" if base == ABSOLUTE else f"{base}{separator}{part}"


def slot(place: int) -> str:
    """The text that stands for a number or a key in a name, by its place among those around; no layout can have it."""
    return f"{_SLOT}{place}{_SLOT}"


def shown(name: str) -> str:
    """A name with slots in messages."""
    return "*".join(name.split(_SLOT)[::2])


class Pattern:
    """A name with slots for numbers and keys.

    Args:
        text: The name; with a leading / the prefix is not part of it.
        is_end: It is the end of a name, which may have a leading / too.

    Example:
        >>> pattern = Pattern(f"h.{slot(0)}.{slot(2)}")
        >>> pattern.name("model.", ["4", "", "key"]), Pattern("/head").name("model.")
        ('model.h.4.key', 'head')
    """

    def __init__(self, text: str, *, is_end: bool = False) -> None:
        self._is_whole = is_end or text.startswith(ABSOLUTE)
        texts = (text if is_end else text.removeprefix(ABSOLUTE)).split(_SLOT)
        self._text = "%s".join(each.replace("%", "%%") for each in texts[::2])
        self._slots = [*map(int, texts[1::2])]

    def name(self, prefix: str = "", keys: Sequence[str] = ()) -> str:
        """The name in a file, from the numbers and keys around."""
        made = self._text % tuple([keys[place] for place in self._slots])
        return made if self._is_whole else f"{prefix}{made}"


def _over_budget(what: str, hint: str) -> SchemaError:
    message = f"expected names that are found within the budget, got too many {what}"
    return SchemaError(message, code="NQX507", hint=hint)


class Ignored:
    """The names that a layout ignores.

    Args:
        patterns: Names, or patterns, behind the prefix; those that start with / are whole names.
        prefix: The prefix.
    """

    def __init__(self, patterns: Iterable[str], prefix: str) -> None:
        self._left = _MOST_LOOKS
        self._prefix = prefix
        self._exact: dict[bool, set[str]] = {True: set(), False: set()}
        self._patterns: dict[bool, list[str]] = {True: [], False: []}
        for each in dict.fromkeys(patterns):
            whole = each.startswith(ABSOLUTE)
            text = each[1:] if whole else each
            if _MAGIC.isdisjoint(text):
                self._exact[whole].add(text)
            else:
                self._patterns[whole].append(text)

    def __contains__(self, name: str) -> bool:
        forms = ((True, name), (False, name.removeprefix(self._prefix)))
        if any(text in self._exact[whole] for whole, text in forms):
            return True
        return any(
            self._matches(text, each) for whole, text in forms for each in self._patterns[whole]
        )

    def _matches(self, text: str, pattern: str) -> bool:
        self._left -= 1 + len(text) * len(pattern) // 100  # the work that the worst pattern makes
        if self._left < 0:
            raise _over_budget(
                "patterns under `ignore:`", "ignore fewer patterns, such as pooler.*"
            )
        return fnmatchcase(text, pattern)


class Names:
    """The names of the arrays in a file, which are searched by their beginnings."""

    def __init__(self, names: Iterable[str]) -> None:
        self._left = _MOST_LOOKS
        self._sorted = sorted(names)
        self._known = frozenset(self._sorted)

    def __contains__(self, name: object) -> bool:
        return name in self._known

    def __len__(self) -> int:
        return len(self._sorted)

    def __iter__(self) -> Iterator[str]:
        return iter(self._sorted)

    def below(self, start: str) -> Iterator[str]:
        """Yields the names that start with a text, without it."""
        for place in range(bisect_left(self._sorted, start), len(self._sorted)):
            name = self._sorted[place]
            if not name.startswith(start):
                return
            self._left -= 1
            if self._left < 0:
                hint = "give lists and dicts names of their own in the layout"
                raise _over_budget("lists", hint)
            yield name[len(start) :]

    def any_below(self, start: str) -> bool:
        """True if a name starts with a text."""
        return next(self.below(start), None) is not None

    def numbers(self, before: str, behind: str) -> set[int]:
        """The numbers between two texts."""
        found = set[int]()
        for rest in self.below(before):
            match = _DIGITS.match(rest)
            if match is not None and rest.startswith(behind, match.end()):
                found.add(int(match[1]))
        return found

    def keys(self, before: str, behind: str, separator: str) -> list[str]:
        """The texts without a separator between two others; with ``END`` behind, whole names."""
        found = dict[str, None]()
        for rest in self.below(before):
            if behind == END:
                found[rest] = None
                continue
            key, found_separator, tail = rest.partition(separator)
            if not behind or (found_separator + tail).startswith(behind):
                found[key] = None
        return [*found]
