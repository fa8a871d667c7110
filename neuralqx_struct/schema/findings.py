"""Findings: what a check says of a schema document, and what checks ask of a document again and again.

Owns :class:`Finding` and the walks over fields and sizes that several checks share. The checks themselves are in
``name_checks.py``, ``type_checks.py``, ``size_checks.py``, ``expression_checks.py`` and ``defaults.py``.
"""

from __future__ import annotations

import itertools
from collections import ChainMap
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, cast

from neuralqx_struct.errors import Severity, closest
from neuralqx_struct.schema.expressions import Expression
from neuralqx_struct.schema.model import Document, FieldDeclaration
from neuralqx_struct.schema.types import Array, Key, Named, Scalar, walk_type

__all__ = [
    "ANY_SIZE",
    "Finding",
    "Findings",
    "Speller",
    "arguments_of",
    "cycles",
    "extents_of",
    "fields_of",
    "listed",
    "root_ints",
    "shown_cycle",
    "sizes_of",
    "unknown",
]

#: A size that nothing is said about.
ANY_SIZE = "_"


class Finding(NamedTuple):
    """A finding that knows its place in the document, not yet in a file.

    Attributes:
        code: Such as ``NQX104``.
        path: Keys from the root of the document.
        message: ``expected X, got Y``.
        hint: What to do about it.
        severity: ``error``, ``warning`` or ``info``.
        key: True if the key at ``path`` is at fault rather than its value.
    """

    code: str
    path: tuple[str | int, ...]
    message: str
    hint: str | None = None
    severity: Severity = "error"
    key: bool = False


Findings = Iterator[Finding]


def fields_of(document: Document) -> Iterator[tuple[tuple[str, ...], str, str, FieldDeclaration]]:
    """Every field with its path, its struct and its name."""
    for struct_name, struct in document.structs.items():
        for name, declaration in struct.fields.items():
            yield ("structs", struct_name, "fields", name), struct_name, name, declaration


def extents_of(declaration: FieldDeclaration) -> Iterator[Expression]:
    """The sizes in the shapes of a field's type."""
    for inner in walk_type(declaration.declared):
        if isinstance(inner, (Array, Key)):
            yield from (extent for extent in inner.shape if isinstance(extent, Expression))


def arguments_of(declaration: FieldDeclaration, is_struct: Callable[[str], bool] | None = None) -> Iterator[Expression]:
    """Sizes that a type hands to parameters: of structs, or of whatever it names."""
    for inner in walk_type(declaration.declared):
        if isinstance(inner, Named) and (is_struct is None or is_struct(inner.name)):
            yield from inner.args


def root_ints(document: Document) -> set[str]:
    """The static ints of the root, which ``equals`` and the root's own shapes may name."""
    root = document.structs.get(document.root)
    fields = root.fields.items() if root else ()
    return {name for name, d in fields if d.kind == "static" and Scalar("int") in walk_type(d.declared)}


def sizes_of(document: Document, struct_name: str) -> ChainMap[str, Any]:
    """The sizes that a struct's arrays, its parameters and the document give a name to, as keys: its own first."""
    struct = document.structs[struct_name]
    own = {name for d in struct.fields.values() for extent in extents_of(d) for name in extent.names}
    own |= {*struct.params, *(root_ints(document) if struct_name == document.root else ())}
    # A file may have thousands of dims and of structs: no struct may take as long as there are dims.
    return ChainMap(dict.fromkeys(own - {ANY_SIZE}), cast("dict[str, Any]", document.dims))


class Speller:
    """Says what misspelt names were likely meant to be: of the first so many, as comparing texts takes its time.

    Whoever has fifty wrong names mends those first.

    Args:
        most: How many names it looks for.

    Example:
        >>> speller = Speller(most=1)
        >>> speller.hint("kernal", ["kernel", "bias"]), speller.hint("kernal", ["kernel", "bias"])
        ("did you mean 'kernel'?", None)
    """

    def __init__(self, most: int = 50) -> None:
        self._left = most

    def closest(self, word: str, *known: Iterable[str], cutoff: float = 0.6) -> str | None:
        """The word that is most like ``word``, if any is, and if there were not too many before."""
        self._left -= 1
        return closest(word, itertools.chain(*known), cutoff) if self._left >= 0 else None

    def hint(self, word: str, *known: Iterable[str], what: str = "", first: int | None = None) -> str | None:
        """A hint that names that word; else one that lists what there is, the ``first`` of ``known``, as ``what``."""
        if self._left <= 0:
            return None
        meant = self.closest(word, *known)
        if meant is not None:
            return f"did you mean {meant!r}?"
        return listed(itertools.chain(*known[:first]), what) if what else None


def unknown(names: Iterable[str], *known: Container[str]) -> list[str]:
    """The names that are in none of ``known``, sorted; asks for each name, as taking sets apart would ask for all."""
    return sorted(name for name in names if not any(name in each for each in known))


def cycles(graph: Mapping[str, frozenset[str]]) -> Iterator[tuple[str, ...]]:
    """One cycle for each knot of the graph, starting at its first node."""
    done: set[str] = set()
    for start in graph:
        path: dict[str, int] = {}
        stack = [(start, iter(sorted(graph[start])))] if start not in done else []
        while stack:
            node, below = stack[-1]
            path.setdefault(node, len(path))
            following = next(below, None)
            if following is None:
                done.add(node)
                stack.pop()
                del path[node]
            elif following in path:
                yield tuple([*path][path[following] :])
                done |= path.keys()
            elif following not in done:
                stack.append((following, iter(sorted(graph[following]))))


def shown_cycle(cycle: tuple[str, ...]) -> str:
    """A cycle as messages name it: ``a -> b -> a``."""
    shown = cycle if len(cycle) <= 8 else (*cycle[:6], "...", cycle[-1])
    return " -> ".join((*shown, cycle[0]))


def listed(words: Iterable[str], what: str) -> str | None:
    """A hint that lists what there is, or None if there is nothing."""
    shown = sorted(words)
    return f"{what}: {', '.join(shown[:20])}{', ...' if len(shown) > 20 else ''}" if shown else None
