"""Checks of the names of a document: are they free, told apart, known and not taken twice.

Owns what may be a name of a struct, a field, an enum or a dim, and what reserved names and aliases may be.
"""

from __future__ import annotations

import keyword
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from neuralqx_struct.fieldspec import RESERVED_NAMES
from neuralqx_struct.schema.findings import Finding, Findings, Speller, fields_of
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.types import TYPE_NAMES

__all__ = ["NAME_CHECKS"]


def _check_root(document: Document) -> Findings:
    if document.root not in document.structs:
        hint = Speller().hint(document.root, document.structs, what="structs")
        yield Finding("NQX101", ("root",), f"expected one of the structs, got {document.root!r}", hint)


def _check_names(document: Document) -> Findings:
    speller = Speller()
    for section in ("structs", "enums", "dims"):
        names: Mapping[str, Any] = getattr(document, section)
        for name in names:
            if keyword.iskeyword(name):
                yield _bad_name((section, name), name, "a keyword of Python")
            elif section != "dims" and name in TYPE_NAMES:
                yield _bad_name((section, name), name, "a built-in type")
        yield from _alike((section,), names)
    for name in document.enums.keys() & document.structs.keys():
        yield _bad_name(("enums", name), name, "the name of a struct too")
    for path, _, name, _ in fields_of(document):
        if keyword.iskeyword(name):
            yield _bad_name(path, name, "a keyword of Python")
        elif name in RESERVED_NAMES:
            yield _bad_name(path, name, "a method of every Struct")
        elif name.startswith(("__", "_nqx")):
            yield _bad_name(path, name, "a name of Struct's own")
    for struct_name, struct in document.structs.items():
        yield from _alike(("structs", struct_name, "fields"), struct.fields)
        for index, name in enumerate(struct.params):
            if keyword.iskeyword(name):
                yield _bad_name(("structs", struct_name, "params", index), name, "a keyword of Python")
    for name, enum in document.enums.items():
        repeated = [member for member, count in Counter(enum.members).items() if count > 1]
        if repeated:
            message = f"expected each member once, got {', '.join(map(repr, repeated))} again"
            yield Finding("NQX002", ("enums", name), message, "remove the repetition")
        if enum.default is not None and enum.default not in enum.members:
            hint = speller.hint(enum.default, enum.members)
            message = f"expected one of {', '.join(enum.members)}, got {enum.default!r}"
            yield Finding("NQX107", ("enums", name, "default"), message, hint)
        elif enum.default is None and document.compatibility.startswith(("forward", "full")):
            message = (
                f"expected a default of enum {name}, got none\nolder readers cannot read members that are added later"
            )
            yield Finding("NQX133", ("enums", name), message, "add `default:` with one of the members", "warning")


def _bad_name(path: tuple[str | int, ...], name: str, why: str) -> Finding:
    return Finding("NQX118", path, f"expected a name that is free, got {name!r}, which is {why}", "rename it", key=True)


def _alike(path: tuple[str, ...], names: Iterable[str]) -> Findings:
    first: dict[str, str] = {}
    for name in names:
        other = first.setdefault(name.lower(), name)
        if other != name:
            message = f"expected names that differ in more than case, got {other!r} and {name!r}"
            yield Finding("NQX119", (*path, name), message, "rename one of the two", "warning", key=True)


def _check_reserved_and_aliases(document: Document) -> Findings:
    for struct_name, struct in document.structs.items():
        at = ("structs", struct_name)
        for name in struct.fields:
            if name in struct.reserved:
                message = (
                    f"expected a name that is not reserved, got {name!r}\nold payloads hold it with another meaning"
                )
                yield Finding("NQX125", (*at, "fields", name), message, "choose another name", key=True)
        yield from _aliases(
            [(("fields", n), d.aliases) for n, d in struct.fields.items()], struct.fields, "a field", at
        )
    structs = [((name,), struct.aliases) for name, struct in document.structs.items()]
    yield from _aliases(structs, document.structs, "a struct", ("structs",))


def _aliases(
    owners: Iterable[tuple[tuple[str, ...], list[str]]], current: Mapping[str, Any], what: str, at: tuple[str, ...]
) -> Findings:
    taken: dict[str, str] = {}
    for owner, aliases in owners:
        for index, alias in enumerate(aliases):
            path: tuple[str | int, ...] = (*at, *owner, "aliases", index)
            if alias in current:
                message = f"expected a former name, got {alias!r}, which is {what} of this version"
                yield Finding("NQX124", path, message, "remove the alias")
            elif alias in taken:
                message = f"expected each alias once, got {alias!r}, which {taken[alias]} has too"
                yield Finding("NQX123", path, message, "remove one of the two")
            taken.setdefault(alias, owner[-1])


NAME_CHECKS: tuple[Callable[[Document], Findings], ...] = (_check_root, _check_names, _check_reserved_and_aliases)
