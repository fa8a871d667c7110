"""Key paths: the place of a value inside a tree, as text ``$.params['w'][0]`` and as a tuple of keys.

A path is a tuple of plain keys: ``str`` for dict keys, ``int`` for positions, and :class:`FieldName` (a ``str``) for
fields of Structs, which knows the field's declaration. Owns parsing and formatting (inverse to each other), glob
matching and the percent-encoded array names of a bundle. Does not walk trees: ``pytree.py`` and ``nodes.py`` do.

Example:
    >>> format_path((FieldName("params"), "w", 0))
    "$.params['w'][0]"
    >>> parse_path("$.params['w'][0]")
    ('params', 'w', 0)
"""

from __future__ import annotations

import ast
import re
from collections.abc import Hashable, Iterable, Sequence
from functools import lru_cache
from typing import Any, Self
from urllib.parse import quote

from neuralqx_struct.errors import StructError

__all__ = ["FieldName", "Path", "array_name", "format_path", "match_glob", "parse_path"]

Path = tuple[Hashable, ...]

_LONGEST = 200
_LONGEST_NAME = 1000
_PLAIN_KEYS = (str, int, float, complex, bytes, type(None))
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ATTRIBUTE = re.compile(r"\.([A-Za-z_][A-Za-z0-9_]*)")
_SUBSCRIPT = re.compile(r"""\[(?P<key>-?\d+|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")\]""")


class FieldName(str):
    """A path part that is a field of a Struct: equal to the plain name, but carries the field's declaration.

    Attributes:
        spec: The :class:`~neuralqx_struct.fieldspec.FieldSpec`, or None where only the name is known.
        holder: The class of what does nothing but hold the field, as a Param its ``value``: its type stands for that of the
            value; None for fields of other classes.
    """

    __slots__ = ("holder", "spec")
    spec: Any
    holder: type | None

    def __new__(cls, name: str, spec: Any = None, holder: type | None = None) -> Self:
        """Make the name; ``spec`` is the field's declaration."""
        self = super().__new__(cls, name)
        self.spec = spec
        self.holder = holder
        return self

    def __copy__(self) -> Self:
        """The name itself: it is immutable, and declarations are known by identity."""
        return self

    def __deepcopy__(self, _memo: object) -> Self:
        """As :meth:`__copy__`, so that states can be copied."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """With what filters ask of the declaration: the hooks and defaults of a field are of the class, and stay there."""
        return type(self), (str(self), None if self.spec is None else self.spec.outline(), self.holder)


def format_path(path: Iterable[Hashable]) -> str:
    """The path as text; fields as ``.name``, everything else as ``[key]``.

    Example:
        >>> format_path([])
        '$'
    """
    parts = ["$"]
    for key in path:
        if isinstance(key, FieldName) and _IDENTIFIER.fullmatch(key):
            parts.append(f".{key}")
        else:
            parts.append(f"[{_shown(key)}]")
    return "".join(parts)


def _shown(key: Hashable) -> str:
    """A key in a message: as Python writes it, unless that is very long, or fails as it does for huge integers."""
    try:
        text = repr(key)
    except Exception as error:  # noqa: BLE001 - a message must not fail because a key cannot be printed
        return f"<{type(key).__name__}: {type(error).__name__}>"
    return text if len(text) <= _LONGEST or isinstance(key, str) else f"{text[: _LONGEST - 3]}..."


def parse_path(text: str) -> Path:
    """The inverse of :func:`format_path`, for fields, string keys and positions.

    Args:
        text: A path such as ``$.params['w'][0]``; the leading ``$`` may be left out.

    Raises:
        StructError: ``text`` is not a path; the message points at the first bad character.
    """
    position = 1 if text.startswith("$") else 0
    keys: list[Hashable] = []
    if position == 0 and (head := _IDENTIFIER.match(text)):
        keys.append(FieldName(head.group()))
        position = head.end()
    while position < len(text):
        if found := _ATTRIBUTE.match(text, position):
            keys.append(FieldName(found.group(1)))
        elif found := _SUBSCRIPT.match(text, position):
            keys.append(ast.literal_eval(found["key"]))
        else:
            raise StructError(
                f"expected .name, [position] or ['key'] at character {position + 1}, got {text[position:]!r}",
                code="NQX010",
                path=text,
                hint="write a key path as $.params['w'][0]",
            )
        position = found.end()
    return tuple(keys)


def array_name(path: Iterable[Hashable]) -> str:
    """The name under which a bundle stores the array at ``path``: keys joined by ``/``, each percent-encoded.

    Example:
        >>> array_name(("params", "a/b", 0))
        'params/a%2Fb/0'
    """
    name = "/".join(map(_name_part, path)) or "value"
    return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}~"


def _name_part(key: Hashable) -> str:
    """One key, percent-encoded; by its kind alone where its text could differ from run to run or be of any length."""
    if isinstance(key, str) and key.isascii() and key.isalnum():
        return key  # most keys need no escape
    if isinstance(key, tuple):
        return quote(f"({','.join(map(_name_part, key))})", safe="%")
    if not isinstance(key, _PLAIN_KEYS) or (isinstance(key, int) and not -(2**200) < key < 2**200):
        return type(key).__name__
    text = quote(str(key) if isinstance(key, (str, int)) else repr(key), safe="", errors="surrogatepass") or "%00"
    return text.replace(".", "%2E") if text in (".", "..") else text


# In globs and matched paths alike, only what would be taken for a separator is escaped.
def _escaped(key: str) -> str:
    return key.replace("%", "%25").replace("/", "%2F")


@lru_cache(maxsize=512)
def _glob_pattern(glob: str) -> re.Pattern[str]:
    out: list[str] = []
    for part in glob.split("/"):
        if part == "**":
            if out[-1:] != [_ANY_KEYS]:  # a second one would match nothing more, and backtrack
                out.append(_ANY_KEYS)
        else:
            out.append(re.escape(part.replace("%", "%25")).replace(r"\*", "[^/]*").replace(r"\?", "[^/]") + "/")
    return re.compile("".join(out), re.DOTALL)


_ANY_KEYS = "(?:[^/]*/)*"


def match_glob(glob: str, path: Sequence[Hashable]) -> bool:
    """True if ``path`` matches ``glob``: ``*`` and ``?`` stay inside one key, ``**`` is any number of keys.

    A glob without ``/`` is matched against the whole path like any other: ``bias`` matches only a top-level ``bias``,
    ``**/bias`` any.

    Example:
        >>> match_glob("params/**/bias", ("params", "layers", 0, "bias"))
        True
    """
    return _glob_pattern(glob).fullmatch("".join(f"{_escaped(str(key))}/" for key in path)) is not None
