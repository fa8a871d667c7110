"""The table of filters: one record for each class, with its text form, literals, Flax twin and report.

Also finds the parts of a filter that match none of some leaves, with a likely correction.

Example:
    >>> leaves = [(("params", "kernel"), 1.5), (("params", "bias"), 0.5)]
    >>> [part] = unmatched_parts(PathGlob("params/kernal"), leaves)
    >>> part.expected, part.hint
    ("a leaf whose path matches 'params/kernal'", "did you mean 'params/kernel'?")
"""

from __future__ import annotations

import re
import typing
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from operator import attrgetter
from typing import Final, NamedTuple, TypeAlias

from neuralqx_struct.errors import MOST_HINTS, closest, did_you_mean
from neuralqx_struct.filters.predicates import (
    DType,
    Everything,
    Kind,
    Nothing,
    OfType,
    PathContains,
    PathGlob,
    PathIn,
    TypeName,
    WithTag,
    classes_of,
    dtype_name,
    innermost_kind,
    tags_of,
)
from neuralqx_struct.filters.records import (
    FILTERS,
    All,
    Any,
    FilterKind,
    Leaves,
    Literal,
    Matcher,
    Not,
    Predicate,
    TextForm,
    checked_function,
    is_constant,
    is_rest,
    kind_of,
    shown,
    type_error,
)
from neuralqx_struct.paths import Path, format_path, match_glob
from neuralqx_struct.printing import listed

Report: TypeAlias = tuple[str, str]

_LISTED: Final = 8
_REPORTED: Final = 20  # each compares its name with those of all leaves
_CORRECTED: Final = 20  # parts of a glob

# --- unmatched parts ----------------------------------------------------------------------------------------------


class Unmatched(NamedTuple):
    """A part of a filter that matches no leaf.

    Attributes:
        expected: The expected leaf in words.
        hint: A likely correction, or the names that exist.
        excluded: True if the filter asks for leaves that do *not* match the part.
    """

    expected: str
    hint: str
    excluded: bool = False


def unmatched_parts(filter: Predicate, leaves: Leaves) -> Iterator[Unmatched]:  # noqa: A002
    """Yields the parts of a filter that match no leaf; a join alone if each of its parts matches some.

    Args:
        filter: A predicate from :func:`~neuralqx_struct.filters.to_predicate`.
        leaves: All leaves that were tested, with their paths. The first 20 parts are reported.
    """
    parts = list(islice(_unmatched(filter, leaves, excluded=False), _REPORTED))
    yield from parts
    if not isinstance(filter, Matcher) or is_constant(filter):
        return
    if all(part.excluded for part in parts) and not _matches(filter, leaves):
        hint = "its parts match leaves, but no leaf as they are joined"
        yield Unmatched(f"a leaf that {shown(filter)} matches", hint)


def _matches(predicate: Predicate, leaves: Leaves) -> bool:
    return any(predicate(path, leaf) for path, leaf in leaves)


def _unmatched(part: Predicate, leaves: Leaves, *, excluded: bool) -> Iterator[Unmatched]:
    kind = kind_of(part)
    for inner in kind.parts(part):
        yield from _unmatched(inner, leaves, excluded=excluded != kind.negates)
    if kind.unmatched is not None and not _matches(part, leaves):
        yield Unmatched(*kind.unmatched(part, leaves), excluded)


def _listed(noun: str, names: Collection[str]) -> str:
    """The names that exist, or the first of them."""
    if not names:
        return f"no leaf here has a {noun}"
    exist = f"there is the {noun}" if len(names) == 1 else f"there are the {noun}s"
    return f"{exist} {listed(names, _LISTED)}"


def _by_name(
    noun: str, wanted: str, names_of: Callable[[Path, object], Iterable[str]], *, free: bool = True
) -> Callable[[typing.Any, Leaves], Report]:
    """The report for a filter by name; only free names can be misspelt, others are checked."""

    def report(filter: typing.Any, leaves: Leaves) -> Report:  # noqa: A002
        value = getattr(filter, wanted)
        name = value.__name__ if isinstance(value, type) else str(value)
        known = sorted({other for path, leaf in leaves for other in names_of(path, leaf)})
        hint = did_you_mean(name, known) if free else None
        return f"a leaf with the {noun} {name!r}", hint or _listed(noun, known)

    return report


def type_names(path: Path, value: object) -> Iterator[str]:
    """Yields the short names of a leaf's classes, except the base that all have."""
    yield from (cls.__name__ for cls in classes_of(path, value) if cls is not object)


def _kind_names(path: Path, _value: object) -> list[str]:
    kind = innermost_kind(path)
    return [] if kind is None else [kind]


def _dtype_names(_path: Path, value: object) -> list[str]:
    name = dtype_name(value)
    return [] if name is None else [name]


_named_tag: Final = _by_name("tag", "tag", tags_of)


def _tag(filter: WithTag, leaves: Leaves) -> Report:  # noqa: A002
    expected, hint = _named_tag(filter, leaves)
    tag = filter.tag
    if any(tag in path for path, _ in leaves):
        hint = f"a tag is not a key of the path: for that write PathContains({tag!r}), or path:**/{tag} in text"
    elif not set(tag).isdisjoint("&|!"):
        hint = f"a str is one tag: for text with & | ! write filters.parse({tag!r})"
    return expected, hint


def _keys(leaves: Leaves) -> dict[str, typing.Any]:
    return {str(key): key for path, _ in leaves for key in path}


def _key(filter: PathContains, leaves: Leaves) -> Report:  # noqa: A002
    keys = _keys(leaves)
    wanted = str(filter.key)
    hint = f"did you mean {keys[wanted]!r}?" if wanted in keys else did_you_mean(wanted, keys)
    return f"a leaf with {filter.key!r} in its path", hint or _listed("key", sorted(keys))


def _glob(filter: PathGlob, leaves: Leaves) -> Report:  # noqa: A002
    glob = filter.glob
    paths = [path for path, _ in leaves]
    keys = _keys(leaves)
    parts = glob.split("/")
    for place, part in enumerate(parts[:_CORRECTED]):
        if "*" not in part and "?" not in part:
            parts[place] = closest(part, keys) or part
    hint = _listed("path", ["/".join(map(str, path)) for path in paths])
    for meant in (f"**/{glob}", f"{glob}/**", f"**/{glob}/**", "/".join(parts)):
        if any(match_glob(meant, path) for path in paths):
            more = "? ** is any number of keys" if meant.count("**") > glob.count("**") else "?"
            hint = f"did you mean {meant!r}{more}"
            break
    return f"a leaf whose path matches {glob!r}", hint


def _paths(filter: PathIn, leaves: Leaves) -> Report:  # noqa: A002
    wanted = sorted(map(format_path, filter.paths))
    known = [format_path(path) for path, _ in leaves]
    hints = [did_you_mean(path, known) for path in wanted[:MOST_HINTS]]
    hint = next((hint for hint in hints if hint), None) or _listed("path", known)
    return f"a leaf at {' or '.join(wanted) or 'no path'}", hint


def _function(predicate: Predicate, _leaves: Leaves) -> Report:
    return (
        f"a leaf for which {shown(predicate)} is true",
        "look at what it asks of paths and values",
    )


# --- literals -----------------------------------------------------------------------------------------------------


def _tag_of_text(tag: str, where: str) -> Predicate:
    forms = [kind.text for kind in FILTERS.values() if kind.text is not None]
    words = [form.symbol for form in forms if form.shape == "term"]
    if re.match(rf"[!(\s]*(?:{'|'.join(words)}):", tag):
        hint = f"a str is one tag: write filters.parse({tag!r}), or WithTag({tag!r}) if the tag is called that"
        raise type_error(where, "a tag", tag, hint)
    return WithTag(tag)


# --- the table ----------------------------------------------------------------------------------------------------

_ROWS: Final = (
    FilterKind(
        cls=Everything,
        text=TextForm("constant", "all"),
        literal=Literal(is_rest, lambda _filter, _where: Everything()),
        flax=True,
        unmatched=None,
    ),
    FilterKind(
        cls=Nothing,
        text=TextForm("constant", "none"),
        literal=Literal(lambda f: f is None or f is False, lambda _filter, _where: Nothing()),
        flax=True,
        unmatched=None,
    ),
    FilterKind(
        cls=DType,
        text=TextForm("term", "dtype"),
        literal=None,
        flax=False,
        unmatched=_by_name("dtype", "name", _dtype_names, free=False),
    ),
    FilterKind(
        cls=Kind,
        text=TextForm("term", "kind"),
        literal=None,
        flax=False,
        unmatched=_by_name("kind", "kind", _kind_names, free=False),
    ),
    FilterKind(
        cls=PathGlob, text=TextForm("term", "path"), literal=None, flax=False, unmatched=_glob
    ),
    FilterKind(
        cls=WithTag,
        text=TextForm("term", "tag"),
        literal=Literal(lambda f: isinstance(f, str), _tag_of_text),
        flax=True,
        unmatched=_tag,
    ),
    FilterKind(
        cls=TypeName,
        text=TextForm("term", "type"),
        literal=None,
        flax=False,
        unmatched=_by_name("type", "name", type_names),
    ),
    FilterKind(
        cls=OfType,
        text=None,
        literal=Literal(lambda f: isinstance(f, type), lambda cls, _where: OfType(cls)),
        flax=True,
        unmatched=_by_name("type", "type", type_names),
    ),
    FilterKind(
        cls=PathContains,
        text=None,
        literal=None,
        flax=True,
        unmatched=_key,
    ),
    FilterKind(
        cls=PathIn,
        text=None,
        literal=None,
        flax=True,
        unmatched=_paths,
    ),
    FilterKind(
        cls=Any,
        text=TextForm("binary", "|", 1, "or"),
        literal=Literal(
            lambda it: isinstance(it, (tuple, list)) and not callable(it),
            lambda filters, _where: Any(*filters),
        ),
        flax=True,
        unmatched=None,
        parts=attrgetter("predicates"),
    ),
    FilterKind(
        cls=All,
        text=TextForm("binary", "&", 2, "and"),
        literal=None,
        flax=True,
        unmatched=None,
        parts=attrgetter("predicates"),
    ),
    FilterKind(
        cls=Not,
        text=TextForm("unary", "!", 3, "not"),
        literal=None,
        flax=True,
        unmatched=None,
        parts=lambda filter: (filter.predicate,),  # noqa: A006
        negates=True,
    ),
    FilterKind(
        cls=typing.cast("type", Callable),
        text=None,
        literal=Literal(callable, checked_function),
        flax=False,
        unmatched=_function,
    ),
)
FILTERS.update({kind.cls: kind for kind in _ROWS})
