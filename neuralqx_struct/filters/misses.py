"""Misses: what filters that match no leaf were looking for, and what there is instead.

Owns what is said of a misspelt tag, name or path. Decides nothing: whether a filter without leaves is an error, a warning or
what was wanted is known to those who ask.

Example:
    >>> tree = [(("params", "kernel"), 1.5), (("params", "bias"), 0.5)]
    >>> [miss] = misses(PathGlob("params/kernal"), tree)
    >>> miss.expected, miss.hint
    ("a leaf whose path matches 'params/kernal'", "did you mean 'params/kernel'?")
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any as AnyValue
from typing import Final, NamedTuple, TypeAlias

from neuralqx_struct.errors import closest, did_you_mean
from neuralqx_struct.filters.algebra import All, Any, Everything, Matcher, Not, Nothing, Predicate, shown
from neuralqx_struct.filters.places import PathContains, PathGlob, PathIn
from neuralqx_struct.filters.values import (
    DType,
    Kind,
    OfType,
    TypeName,
    WithTag,
    dtype_name,
    innermost_kind,
    tags_of,
    type_names,
)
from neuralqx_struct.paths import Path, format_path, match_glob

__all__ = ["Miss", "misses"]

Leaves: TypeAlias = Sequence[tuple[Path, object]]

_LISTED: Final = 8


class Miss(NamedTuple):
    """A part of a filter that matches no leaf.

    Attributes:
        expected: What it looks for, in words.
        hint: What was probably meant, or what there is.
        excluded: True where the filter asks for leaves that do *not* match it.
    """

    expected: str
    hint: str
    excluded: bool = False


def misses(filter: Predicate, leaves: Leaves) -> Iterator[Miss]:  # noqa: A002
    """The parts of a filter that match none of the leaves; a join alone is one if each of its parts matches some.

    Args:
        filter: A predicate, as :func:`~neuralqx_struct.filters.to_predicate` gives it.
        leaves: All leaves that it was asked for, with their paths.
    """
    parts = list(_misses(filter, leaves))
    yield from parts
    if isinstance(filter, Matcher) and all(part.excluded for part in parts) and not _matches(filter, leaves):
        yield Miss(f"a leaf that {shown(filter)} matches", "its parts match leaves, but no leaf as they are joined")


def _matches(predicate: Predicate, leaves: Leaves) -> bool:
    return any(predicate(path, leaf) for path, leaf in leaves)


def _misses(part: Predicate, leaves: Leaves, *, excluded: bool = False) -> Iterator[Miss]:
    match part:
        case Any(predicates=inner) | All(predicates=inner):
            for predicate in inner:
                yield from _misses(predicate, leaves, excluded=excluded)
        case Not(predicate=inner):
            yield from _misses(inner, leaves, excluded=not excluded)
        case Everything() | Nothing():
            return  # nobody misspells these
        case _ if not _matches(part, leaves):
            say = _SAYINGS.get(type(part), _other)
            yield Miss(*say(part, leaves), excluded)


def _other(predicate: Predicate, _leaves: Leaves) -> tuple[str, str]:
    return f"a leaf for which {shown(predicate)} is true", "look at what it asks of paths and values"


def _named(
    what: str, name: str, of: Callable[[Path, object], Iterable[str]], term: AnyValue, leaves: Leaves
) -> tuple[str, str]:
    """What is said of a filter by name: ``of`` tells the names that a leaf has."""
    meant = getattr(term, name)
    meant = meant.__name__ if isinstance(meant, type) else str(meant)
    known = sorted({other for path, leaf in leaves for other in of(path, leaf)})
    return f"a leaf with the {what} {meant!r}", _guess(what, meant, known) or _listed(what, known)


def _guess(what: str, meant: str, known: Collection[str]) -> str | None:
    """What was probably meant; words that cannot be misspelt, as they are checked, are no guess."""
    return None if what in ("dtype", "kind") else did_you_mean(meant, known)


def _listed(what: str, names: Collection[str]) -> str:
    """The names that there are, or the first of them."""
    if not names:
        return f"no leaf here has a {what}"
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    there = f"there is the {what}" if len(names) == 1 else f"there are the {what}s"
    return f"{there} {', '.join(islice(names, _LISTED))}{more}"


def _tag(term: WithTag, leaves: Leaves) -> tuple[str, str]:
    expected, hint = _named("tag", "tag", tags_of, term, leaves)
    if any(term.tag in path for path, _ in leaves):
        hint = (
            f"a tag is not a key of the path: for that write PathContains({term.tag!r}), or path:**/{term.tag} in text"
        )
    elif not set(term.tag).isdisjoint("&|!"):
        hint = f"a str is one tag: for text with & | ! write filters.parse({term.tag!r})"
    return expected, hint


def _key(term: PathContains, leaves: Leaves) -> tuple[str, str]:
    keys = {str(key): key for path, _ in leaves for key in path}
    same = keys.get(str(term.key))
    hint = did_you_mean(str(term.key), keys) if same is None else f"did you mean {same!r}?"
    return f"a leaf with {term.key!r} in its path", hint or _listed("key", sorted(keys))


def _glob(term: PathGlob, leaves: Leaves) -> tuple[str, str]:
    expected = f"a leaf whose path matches {term.glob!r}"
    for wider in (f"**/{term.glob}", f"{term.glob}/**", f"**/{term.glob}/**"):
        if any(match_glob(wider, path) for path, _ in leaves):
            return expected, f"did you mean {wider!r}? ** is any number of keys"
    keys = {str(key): None for path, _ in leaves for key in path}
    parts = term.glob.split("/")
    meant = "/".join(part if "*" in part or "?" in part else closest(part, keys) or part for part in parts)
    if meant != term.glob and any(match_glob(meant, path) for path, _ in leaves):
        return expected, f"did you mean {meant!r}?"
    return expected, _listed("path", ["/".join(map(str, path)) for path, _ in leaves])


def _paths(term: PathIn, leaves: Leaves) -> tuple[str, str]:
    wanted, known = sorted(map(format_path, term.paths)), [format_path(path) for path, _ in leaves]
    hints = (did_you_mean(path, known) for path in wanted)
    return f"a leaf at {' or '.join(wanted) or 'no path'}", next(filter(None, hints), None) or _listed("path", known)


_SAYINGS: Final[dict[type, Callable[[AnyValue, Leaves], tuple[str, str]]]] = {
    DType: partial(_named, "dtype", "name", lambda _path, value: filter(None, [dtype_name(value)])),
    Kind: partial(_named, "kind", "kind", lambda path, _value: filter(None, [innermost_kind(path)])),
    OfType: partial(_named, "type", "type", type_names),
    TypeName: partial(_named, "type", "name", type_names),
    WithTag: _tag,
    PathContains: _key,
    PathGlob: _glob,
    PathIn: _paths,
}
