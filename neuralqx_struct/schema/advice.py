"""Advice on one schema document: what works, and is likely not what was meant, or not everywhere.

Owns the checks that never refuse a document; what makes one wrong is ``checks.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from neuralqx_struct.schema.findings import Finding, Findings, Speller, fields_of
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.types import (
    DTYPES,
    Array,
    DictOf,
    Key,
    ListOf,
    LiteralOf,
    Named,
    PyTree,
    Scalar,
    Type,
    format_type,
    walk_type,
)

__all__ = ["ADVICE"]

_SHARE = 10  # a field without doc is told of where it is at most one in so many


def _check_docs(document: Document) -> Findings:
    """A field without ``doc`` where nearly all have one, so that it was likely forgotten."""
    fields = [*fields_of(document)]
    bare = [(path, name) for path, _, name, declaration in fields if not declaration.doc]
    for path, name in bare if len(bare) * _SHARE <= len(fields) else ():
        message = f"expected a doc as the other fields have, got none for {name!r}"
        yield Finding("NQX120", path, message, "say in a few words what it holds: `doc: ...`", "info", key=True)


def _check_tags(document: Document) -> Findings:
    """A tag that stands once and is nearly one that stands elsewhere: filters would pass over it."""
    tags = [(path, place, tag) for path, _, _, d in fields_of(document) for place, tag in enumerate(d.tags)]
    count = Counter(tag for *_, tag in tags)
    speller, common = Speller(most=100), [tag for tag in count if count[tag] > 1]
    for path, place, tag in tags:
        near = speller.closest(tag, common, cutoff=0.85) if count[tag] == 1 else None
        if near is not None and not _numbered(tag, near):
            message = f"expected a tag that other fields have, got {tag!r}, which stands here alone"
            yield Finding("NQX121", (*path, "tags", place), message, f"did you mean {near!r}?", "warning")


def _numbered(one: str, other: str) -> bool:
    """True for names that differ in their number, as layer_1 and layer_2 do."""
    return one.rstrip("0123456789") == other.rstrip("0123456789")


def _check_x64(document: Document) -> Findings:
    """A default that JAX cannot hold unless 64-bit numbers are switched on: construction fails without them."""
    for path, _, _, declaration in fields_of(document):
        if not declaration.has_default or declaration.default is None:
            continue
        for inner in walk_type(declaration.declared):
            wide = isinstance(inner, Array) and DTYPES[inner.dtype].bits == (
                128 if DTYPES[inner.dtype].family == "complex" else 64
            )
            if wide:
                message = (
                    f"expected a default that JAX always holds, got one of {format_type(inner)}\n"
                    "without jax_enable_x64 JAX makes 32-bit numbers of it, which the field does not take"
                )
                hint = "declare a 32-bit dtype, allow null in place of the default, or ignore this where x64 is on"
                yield Finding("NQX128", (*path, "default"), message, hint, "info")


_TEXT = {"str", "bytes", "path", "dtype"}


def _check_texts(document: Document) -> Findings:
    """Text that is a leaf: it can be saved and mapped over, and jit refuses the struct that holds it."""
    for path, _, name, declaration in fields_of(document):
        if declaration.kind != "node" or declaration.derived is not None:
            continue
        parts = [*walk_type(declaration.declared)]
        held = next((part for part in parts if _is_text(document, part)), None)
        if held is None or any(_is_for_nodes(document, part) for part in parts):
            continue
        message = (
            f"expected a node of arrays and numbers, got {format_type(held)} in {name!r}\n"
            "jax.jit and other transformations refuse a leaf that is no number"
        )
        hint = "write `kind: static`"
        if any(isinstance(part, DictOf) for part in parts):
            hint = "write `kind: opaque` and `serialize: true`, as no static value is a dict"
        elif any(isinstance(part, ListOf) for part in parts):
            hint += " and a tuple in place of the list"
        yield Finding("NQX136", (*path, "type"), message, hint, "warning")


def _is_for_nodes(document: Document, declared: Type) -> bool:
    """True for what no static field may hold, so that the text beside it stays where it is."""
    if isinstance(declared, Named):
        return document.is_struct(declared.name)
    return isinstance(declared, (Array, Key, PyTree))


def _is_text(document: Document, declared: Type) -> bool:
    match declared:
        case Scalar(name):
            return name in _TEXT
        case LiteralOf(values):
            return any(isinstance(value, str) for value in values)
        case Named(name):
            return document.members_of(name) is not None
        case _:
            return False


ADVICE: tuple[Callable[[Document], Findings], ...] = (_check_docs, _check_tags, _check_x64, _check_texts)
