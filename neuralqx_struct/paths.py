"""Key paths: the place of a value inside a tree, as text ``$.params['w'][0]`` and as a tuple of keys.

A path is a tuple of plain keys: ``str`` for dict keys, ``int`` for positions, and :class:`FieldName` (a ``str``) for
fields of Structs, which carries the field's declaration. Owns parsing and formatting (inverse functions), glob matching,
the percent-encoded array names of a bundle, and :class:`PathTree`. Does not import JAX.

Example:
    >>> format_path((FieldName("params"), "w", 0))
    "$.params['w'][0]"
    >>> parse_path("$.params['w'][0]")
    ('params', 'w', 0)
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import compress, islice
from typing import Any, Final, Self
from urllib.parse import quote

from neuralqx_struct.errors import StructError
from neuralqx_struct.printing import brief_repr

Path = tuple[Hashable, ...]

_LONGEST_NAME = 1000
_MOST_KEYS = 32  # whole names of a deep nest would grow with the square of its depth
_PLAIN_KEYS = (str, int, float, complex, bytes, type(None))
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ATTRIBUTE = re.compile(r"\.([A-Za-z_][A-Za-z0-9_]*)")
_SUBSCRIPT = re.compile(r"""\[(?P<key>-?\d{1,999}|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")\]""")


class FieldName(str):
    """A path part that is a field of a Struct: equal to the plain name, but carries the field's declaration.

    Attributes:
        spec: The :class:`~neuralqx_struct.fieldspec.FieldSpec`, or None where only the name is known.
        holder: The class, if its instances only wrap this one value, as a Param does: filters by type match it too; else
            None.
    """

    __slots__ = ("holder", "spec")
    spec: Any
    holder: type | None

    def __new__(cls, name: str, spec: Any = None, holder: type | None = None) -> Self:
        """Make the name; ``spec`` is the declaration of the field."""
        self = super().__new__(cls, name)
        self.spec = spec
        self.holder = holder
        return self

    def __copy__(self) -> Self:
        """The name itself: it is immutable, and declarations compare by identity."""
        return self

    def __deepcopy__(self, _memo: object) -> Self:
        """As :meth:`__copy__`, so that states can be copied."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the part of the declaration that filters read: hooks and defaults belong to the class."""
        return type(self), (
            str(self),
            None if self.spec is None else self.spec.outline(),
            self.holder,
        )


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
            parts.append(f"[{repr(key) if isinstance(key, str) else brief_repr(key)}]")
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
            keys.append(_key(found["key"]))
        else:
            raise StructError(
                f"expected .name, [position] or ['key'] at character {position + 1}, got {text[position:]!r}",
                code="NQX010",
                path=text,
                hint="write a key path as $.params['w'][0]",
            )
        position = found.end()
    return tuple(keys)


_ESCAPE = re.compile(
    r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U00(?:0[0-9a-fA-F]|10)[0-9a-fA-F]{4}|.)", re.DOTALL
)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r"}


def _key(text: str) -> str | int:
    """The key that a subscript writes: a position, or text as ``repr`` writes it.

    Python's own parser is not used here: two threads in that of Python 3.11 can fail.
    """
    return _ESCAPE.sub(_character, text[1:-1]) if text[0] in "'\"" else int(text)


def _character(escape: re.Match[str]) -> str:
    code = escape.group()[1:]
    return chr(int(code[1:], 16)) if len(code) > 1 else _ESCAPED.get(code, code)


def array_name(path: Iterable[Hashable]) -> str:
    """The name under which a bundle stores the array at ``path``: percent-encoded keys joined by ``/``.

    Example:
        >>> array_name(("params", "a/b", 0))
        'params/a%2Fb/0'
    """
    keys = list(islice(path, _MOST_KEYS + 1))
    name = "/".join(map(_name_part, keys)) or "value"
    short = len(keys) <= _MOST_KEYS and len(name) <= _LONGEST_NAME
    return name if short else f"{name[:_LONGEST_NAME]}~"


def _name_part(key: Hashable) -> str:
    """One key, percent-encoded; by its kind alone where its text could differ from run to run or be of any length."""
    if isinstance(key, str) and key.isascii() and key.isalnum():
        return key  # most keys need no escape
    if isinstance(key, int) and -(2**200) < key < 2**200:
        return str(key)
    if isinstance(key, tuple):
        return quote(f"({','.join(map(_name_part, key))})", safe="%")
    if not isinstance(key, _PLAIN_KEYS) or isinstance(key, int):
        return type(key).__name__
    text = key if isinstance(key, str) else repr(key)
    quoted = quote(text, safe="", errors="surrogatepass") or "%00"
    return quoted.replace(".", "%2E") if quoted in (".", "..") else quoted


# In globs and matched paths alike, only separators are escaped.
def _escaped(key: str) -> str:
    return key.replace("%", "%25").replace("/", "%2F")


_ANY_KEYS = "(?:[^/]*/)*"


@lru_cache(maxsize=20_000)  # a filter may join so many, and asks for all of them at each leaf
def _glob_pattern(glob: str) -> re.Pattern[str]:
    blocks: list[str] = [""]
    for part in glob.split("/"):
        if part == "**":
            blocks.append("")
        else:
            blocks[-1] += _key_pattern(part)
    return re.compile(_leftmost(blocks, _ANY_KEYS), re.DOTALL)


def _key_pattern(part: str) -> str:
    escaped = re.escape(part.replace("%", "%25")).replace(r"\?", "[^/]")
    return _leftmost(re.sub(r"(\\\*)+", "*", escaped).split("*"), "[^/]*") + "/"


def _leftmost(blocks: Sequence[str], between: str) -> str:
    """A pattern of blocks with anything ``between`` them.

    If a text matches, it also does with every block but the first and the last at the leftmost place that is left. So
    these are atomic groups: the engine tries each place once.
    """
    if len(blocks) == 1:
        return blocks[0]
    first, *middle, last = blocks
    inner = "".join(f"(?>{between}?{block})" for block in middle if block)
    return f"{first}{inner}{between}{last}"


def match_glob(glob: str, path: Sequence[Hashable]) -> bool:
    """True if ``path`` matches ``glob``: ``*`` and ``?`` stay inside one key, ``**`` is any number of keys.

    A glob without ``/`` is matched against the whole path like any other: ``bias`` matches only a top-level ``bias``,
    ``**/bias`` any.

    Example:
        >>> match_glob("params/**/bias", ("params", "layers", 0, "bias"))
        True
    """
    return _glob_pattern(glob).fullmatch(_glob_text(path)) is not None


#: The path that was asked for last, which many globs are compared with, and its text.
_latest: tuple[Sequence[Hashable], str] = ((), "")


def _glob_text(path: Sequence[Hashable]) -> str:
    """The text of a path that globs are compared with."""
    global _latest  # noqa: PLW0603 - a memo
    kept, text = _latest
    if kept is not path or not isinstance(path, tuple):
        text = "".join(f"{_escaped(str(key))}/" for key in path)
        _latest = path, text
    return text


# ---------------------------------------------------------------------------------------------------------------------
# Trees of leaves by path.

#: The path of a leaf in a :class:`PathTree`: names, none of them empty.
TreePath = tuple[str, ...]

#: The key of a leaf whose path is the beginning of another's; no name is empty.
HERE: Final = ""


def is_tree_path(path: object) -> bool:
    """True for a non-empty tuple of non-empty names."""
    if not isinstance(path, tuple) or not path:
        return False
    return all(isinstance(part, str) and part for part in path)


class PathTree(Mapping[str, Any]):
    """An immutable tree of leaves by path; as a mapping it reads as nested dicts.

    ``{"net": {"w": 1}}`` holds 1 at ``("net", "w")``. Where a path is the beginning of another one, its leaf has the key
    :data:`HERE`. The tree stores two tuples, the sorted paths and their leaves, so that trees with other leaves share the
    paths, and JAX flattens it without making anything. Leaves are no mappings.

    Args:
        leaves: The leaves by path, in any order.

    Attributes:
        pair: The leaves and the paths, both sorted by path; the parts that JAX flattens the tree into.

    Example:
        >>> tree = PathTree({("net", "w"): 1, ("net",): 2})
        >>> tree
        {'net': {'': 2, 'w': 1}}
        >>> list(tree.with_entry(("a",), 3).entries())
        [(('a',), 3), (('net',), 2), (('net', 'w'), 1)]
    """

    __slots__ = ("pair",)
    __nqx_as_dict__ = True
    pair: tuple[tuple[Any, ...], tuple[TreePath, ...]]

    def __init__(self, leaves: Mapping[TreePath, Any] = {}) -> None:
        paths = tuple(sorted(leaves))
        self.pair = tuple(map(leaves.__getitem__, paths)), paths

    @classmethod
    def of(cls, paths: tuple[TreePath, ...], leaves: Any) -> Self:
        """The tree of sorted paths and their leaves; the inverse of ``pair``."""
        tree = object.__new__(cls)
        tree.pair = leaves, paths
        return tree

    # --- by path -----------------------------------------------------------------------------------------------

    def entries(self) -> Iterator[tuple[TreePath, Any]]:
        """Returns paths and leaves, sorted by path."""
        leaves, paths = self.pair
        return zip(paths, leaves, strict=True)

    def find(self, path: TreePath) -> Any:
        """The leaf at a path; None if there is none, or if ``path`` is no path."""
        leaves, paths = self.pair
        try:
            at = bisect_left(paths, path)
        except TypeError:
            return None
        return leaves[at] if at < len(paths) and paths[at] == path else None

    def with_entry(self, path: TreePath, leaf: Any) -> Self:
        """The tree with another leaf at a path, which may be new."""
        leaves, paths = list(self.pair[0]), self.pair[1]
        at = bisect_left(paths, path)
        if at < len(paths) and paths[at] == path:
            leaves[at] = leaf
        else:
            leaves.insert(at, leaf)
            paths = (*paths[:at], path, *paths[at:])
        return self.of(paths, tuple(leaves))

    def where(self, kept: Sequence[bool]) -> Self:
        """The tree of the leaves that are marked by True."""
        leaves, paths = self.pair
        return self.of(tuple(compress(paths, kept)), tuple(compress(leaves, kept)))

    def places(self) -> Iterator[TreePath]:
        """The keys of each leaf in the nested dicts: its path, and :data:`HERE` if longer paths begin with it."""
        _, paths = self.pair
        for path, following in zip(paths, (*paths[1:], ()), strict=False):
            yield (*path, HERE) if following[: len(path)] == path else path

    # --- as nested dicts ---------------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> Any:
        leaves, paths = self.pair
        if not isinstance(name, str):
            raise KeyError(name)
        if name == HERE:
            start, stop = 0, int(paths[:1] == ((),))
        else:  # no text sorts between a name and the same name with a NUL behind it
            start, stop = bisect_left(paths, (name,)), bisect_left(paths, (name + "\0",))
        if start == stop:
            raise KeyError(name)
        if stop - start == 1 and len(paths[start]) <= 1:
            return leaves[start]
        return self.of(tuple([path[1:] for path in paths[start:stop]]), leaves[start:stop])

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(path[0] if path else HERE for path in self.pair[1]))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return repr(dict(self))

    def __reduce__(self) -> tuple[Any, ...]:
        leaves, paths = self.pair
        return type(self).of, (paths, leaves)
