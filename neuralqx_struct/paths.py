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

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ATTRIBUTE = re.compile(r"\.([A-Za-z_][A-Za-z0-9_]*)")
_SUBSCRIPT = re.compile(r"""\[(?P<key>-?\d+|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")\]""")


class FieldName(str):
    """A path part that is a field of a Struct: equal to the plain name, but carries the field's declaration.

    Attributes:
        spec: The :class:`~neuralqx_struct.fieldspec.FieldSpec`, or None where only the name is known.
    """

    __slots__ = ("spec",)
    spec: Any

    def __new__(cls, name: str, spec: Any = None) -> Self:
        """Make the name; ``spec`` is the field's declaration."""
        self = super().__new__(cls, name)
        self.spec = spec
        return self


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
            parts.append(f"[{key!r}]")
    return "".join(parts)


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
    return "/".join(quote(str(key), safe="") or "%00" for key in path) or "value"


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
