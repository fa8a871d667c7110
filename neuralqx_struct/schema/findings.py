"""Findings: what a check says of a schema document, and what checks ask of a document again and again.

Owns :class:`Finding` and the walks over fields and sizes that several checks share. The checks themselves are in
``name_checks.py``, ``type_checks.py``, ``size_checks.py``, ``expression_checks.py`` and ``defaults.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from neuralqx_struct.errors import Severity
from neuralqx_struct.schema.expressions import Expression
from neuralqx_struct.schema.model import Document, FieldDeclaration
from neuralqx_struct.schema.types import Array, Key, Named, Scalar, walk_type

__all__ = [
    "ANY_SIZE",
    "Finding",
    "Findings",
    "arguments_of",
    "extents_of",
    "fields_of",
    "listed",
    "root_ints",
    "sizes_of",
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


def sizes_of(document: Document, struct_name: str) -> set[str]:
    """The sizes that a struct's arrays, its parameters and the document give a name to."""
    struct = document.structs[struct_name]
    own = {name for d in struct.fields.values() for extent in extents_of(d) for name in extent.names}
    shared = root_ints(document) if struct_name == document.root else set()
    return (own | shared | {*document.dims, *struct.params}) - {ANY_SIZE}


def listed(words: Iterable[str], what: str) -> str | None:
    """A hint that lists what there is, or None if there is nothing."""
    shown = sorted(words)
    return f"{what}: {', '.join(shown[:20])}{', ...' if len(shown) > 20 else ''}" if shown else None
