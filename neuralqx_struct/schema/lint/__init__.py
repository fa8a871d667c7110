"""Checks of schema documents: how a check reports, and the walks over fields and sizes that several checks share.

A check is a generator of diagnostics that know their path in the document; ``tools/linting.py`` adds file, line and
column. The checks are in the tables of ``document.py``, ``types.py``, ``expressions.py`` and ``values.py``.

A comment such as ``# nqx: ignore[NQX104]`` silences a warning on its line. Errors cannot be silenced.
"""

from __future__ import annotations

import itertools
from collections import ChainMap
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

from neuralqx_struct.errors import Diagnostic, Severity, closest
from neuralqx_struct.expressions import Expression
from neuralqx_struct.matching import without_value
from neuralqx_struct.printing import listed
from neuralqx_struct.schema.field_paths import given_values
from neuralqx_struct.schema.graph import graph_of
from neuralqx_struct.schema.model import Document, FieldDeclaration
from neuralqx_struct.schema.text import KeyPath, Source, path_text
from neuralqx_struct.types import INT, walk_type

#: A size without a name.
ANY_SIZE = "_"
#: Codes of findings about a name: they point at the key of their path rather than at its value.
ABOUT_KEYS = {
    *("NQX104", "NQX118", "NQX119", "NQX120", "NQX125", "NQX201", "NQX205", "NQX206", "NQX317")
}

Findings = Iterator[Diagnostic]


class Problem(NamedTuple):
    """A finding about a part of a value.

    Attributes:
        code: The code.
        message: The message.
        hint: The likely fix.
        severity: The severity.
    """

    code: str
    message: str
    hint: str | None = None
    severity: Severity = "error"


Check = Callable[[Document], Findings]


def finding(
    code: str, path: KeyPath, message: str, hint: str | None = None, severity: Severity = "error"
) -> Diagnostic:
    """A finding about the value at ``path`` of a document, not yet in a file.

    Args:
        code: The code, such as ``NQX104``.
        path: Keys from the root of the document.
        message: ``expected X, got Y``.
        hint: The likely fix.
        severity: ``error``, ``warning`` or ``info``.
    """
    return Diagnostic(code, severity, message, path_text(path), hint=hint)


def fields_of(document: Document) -> Iterator[tuple[tuple[str, ...], str, str, FieldDeclaration]]:
    """Yields every field with its path, its struct and its name."""
    for struct_name, struct in document.structs.items():
        for name, declaration in struct.fields.items():
            yield ("structs", struct_name, "fields", name), struct_name, name, declaration


def fields_without_value(
    document: Document, roots: Iterable[str] | None = None, severity: Severity = "warning"
) -> Findings:
    """Yields the fields for which no load has a value: payloads do not hold them, and they have no default.

    Args:
        document: The declaration.
        roots: The structs that payloads hold; by default its root.
        severity: The severity.
    """
    for name in graph_of(document).reached(roots)[0]:
        for key, declaration in document.structs[name].fields.items():
            given = declaration.stored or declaration.has_default or declaration.derived is not None
            if not given:
                hint = f"give the field a default, or pass fill={{{key!r}: ...}} to each load"
                yield without_value(path_text(("structs", name, "fields", key)), hint, severity)


def extents_of(declaration: FieldDeclaration) -> Iterator[Expression]:
    """Yields the sizes in the shapes of a field's type."""
    for inner in walk_type(declaration.declared):
        yield from (extent for extent in inner.extents if isinstance(extent, Expression))


def arguments_of(
    declaration: FieldDeclaration, is_struct: Callable[[str], bool] | None = None
) -> Iterator[Expression]:
    """Yields the sizes that a type passes to parameters: of structs, or of every name."""
    for inner in walk_type(declaration.declared):
        if is_struct is None or is_struct(inner.refers):
            yield from inner.arguments


def root_ints(document: Document) -> set[str]:
    """The static ints of the root, which ``equals`` and the root's own shapes may name."""
    root = document.structs.get(document.root)
    static = {n: d for n, d in root.fields.items() if d.kind == "static"} if root else {}
    return {name for name, d in static.items() if INT in d.declared.branches}


def sizes_of(document: Document, struct_name: str) -> ChainMap[str, Any]:
    """The named sizes of a struct, as keys: its arrays' and parameters' first, then the document's."""
    struct = document.structs[struct_name]
    own = set(struct.params)
    for declaration in struct.fields.values():
        own.update(*(extent.names for extent in extents_of(declaration)))
    if struct_name == document.root:
        own |= root_ints(document)
    # A chain, as a file can have thousands of dims and of structs.
    return ChainMap(dict.fromkeys(own - {ANY_SIZE}), cast("dict[str, Any]", document.dims))


def passed_on(document: Document, struct_name: str) -> set[str]:
    """The names of sizes that a struct passes to the structs in its fields."""
    fields = document.structs[struct_name].fields.values()
    sizes = (size for field in fields for size in arguments_of(field, document.is_struct))
    return {name for size in sizes for name in size.names} - {ANY_SIZE}


def shown_by(document: Document, struct_name: str) -> set[str]:
    """The sizes that an instance of a struct may show without the structs around it."""
    found: set[str] = set(root_ints(document)) if struct_name == document.root else set()
    for name in graph_of(document).inside(struct_name):
        hidden = set() if name == struct_name else {*document.structs[name].params}
        for declaration in document.structs[name].fields.values():
            sizes = (*extents_of(declaration), *arguments_of(declaration))
            names = {name for size in sizes for name in size.names} - hidden
            found |= names if name == struct_name else names & document.dims.keys()
    if struct_name == document.root:
        found |= given_values(document).keys()
    solve_dims(document, found)
    return found


def solve_dims(document: Document, found: set[str]) -> None:
    """Adds the dims that equations determine from known ones."""
    equations = {name: dim.equation for name, dim in document.dims.items()}
    found |= solved_names([{n, *e.names} - found for n, e in equations.items() if e is not None])


def solved_names(
    missing: Sequence[set[str]], solves: Callable[[int, str], bool] = lambda _place, _name: True
) -> set[str]:
    """The names that equations determine, one after the other.

    Args:
        missing: The unknown names of each equation; those that are determined are removed.
        solves: Whether the equation at a position determines its last unknown name.
    """
    waiting: dict[str, list[int]] = {}  # name -> the equations that it is unknown in
    for place, names in enumerate(missing):
        for name in names:
            waiting.setdefault(name, []).append(place)
    found: set[str] = set()
    ready = [*range(len(missing))]
    while ready:
        place = ready.pop()
        if len(missing[place]) != 1:
            continue
        (solved,) = missing[place]
        if solves(place, solved):
            found.add(solved)
            others = waiting.pop(solved)
            ready += others
            for other in others:
                missing[other].discard(solved)
    return found


class Speller:
    """Suggests corrections of misspelt names: of the first so many, because comparing texts is slow.

    Args:
        most: The number of names that get a suggestion.

    Example:
        >>> speller = Speller(most=1)
        >>> speller.hint("kernal", ["kernel", "bias"]), speller.hint("kernal", ["kernel", "bias"])
        ("did you mean 'kernel'?", None)
    """

    def __init__(self, most: int = 50) -> None:
        self._left = most

    def takes_one(self) -> bool:
        """Counts a suggestion; False where none is left."""
        self._left -= 1
        return self._left >= 0

    def closest(self, word: str, *known: Iterable[str], cutoff: float = 0.6) -> str | None:
        """The known word that is most like ``word``, if one is alike."""
        return closest(word, itertools.chain(*known), cutoff) if self.takes_one() else None

    def hint(
        self, word: str, *known: Iterable[str], label: str = "", first: int | None = None
    ) -> str | None:
        """A hint with the closest word; else, after ``label``, a list of the ``first`` groups of words."""
        if self._left <= 0:
            return None
        meant = self.closest(word, *known)
        if meant is not None:
            return f"did you mean {meant!r}?"
        shown = sorted(itertools.chain(*known[:first])) if label else []
        return f"{label}: {listed(shown)}" if shown else None


def unknown(names: Iterable[str], *known: Container[str]) -> list[str]:
    """The names that are in none of ``known``, sorted, without building sets of ``known``."""
    return sorted(name for name in names if not any(name in each for each in known))


def cycles(graph: Mapping[str, frozenset[str]]) -> Iterator[tuple[str, ...]]:
    """Yields one cycle of each strongly connected part of the graph, starting at its first node."""
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
    """A cycle as messages show it: ``a -> b -> a``."""
    shown = cycle if len(cycle) <= 8 else (*cycle[:6], "...", cycle[-1])
    return " -> ".join((*shown, cycle[0]))


#: File, line and code of a finding, or of a comment that silences it.
Place = tuple[str | None, int | None, str]


def place_of(found: Diagnostic) -> Place:
    """The place of a finding."""
    return found.file, found.line, found.code


def comments_in(sources: Iterable[Source]) -> set[Place]:
    """The comments of some files that silence findings."""
    return {
        (source.name, line, code)
        for source in sources
        for line, codes in source.suppressions.items()
        for code in codes
    }


def without_silenced(found: Iterable[Diagnostic], comments: set[Place]) -> Iterator[Diagnostic]:
    """Yields the findings that no comment silences."""
    for each in found:
        if place_of(each) not in comments:
            yield each
        elif each.severity == "error":
            reason = "errors cannot be ignored by a comment"
            yield replace(each, hint=f"{each.hint}; {reason}" if each.hint else reason)


def unused_comment(comment: Place) -> Diagnostic:
    """The warning about a comment that silences nothing."""
    file, line, code = comment
    message = f"expected {code} on this line, which the comment ignores, got no such finding"
    hint = "remove the comment, or move it to the line of the finding"
    return Diagnostic("NQX015", "warning", message, "", file, line, 1, hint)


def in_order(found: Iterable[Diagnostic]) -> list[Diagnostic]:
    """The findings by file and line."""
    return sorted(
        found, key=lambda d: (d.file or "", d.line or 0, d.column or 0, d.code, d.path, d.message)
    )
