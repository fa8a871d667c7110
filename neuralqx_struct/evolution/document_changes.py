"""What can change about a document beside its structs: identity, promises, used schemas, enums, dims.

Owns :func:`document_changes`, :func:`enum_changes` and :func:`dim_changes`. Structs are compared in ``diff.py``, single
fields in ``changes.py``, which has the table of what each code breaks.

Example:
    >>> [change.code for change in document_changes(v1, v2)]
    ['NQX234']
"""

from __future__ import annotations

from collections.abc import Iterator

from neuralqx_struct.evolution.changes import Change, bounds_changes, make_change
from neuralqx_struct.evolution.sizes import same_size
from neuralqx_struct.schema.fingerprint import full_fingerprint, payload_fingerprint
from neuralqx_struct.schema.model import DimDeclaration, Document
from neuralqx_struct.schema.types import Array, Key, walk_type

__all__ = ["dim_changes", "document_changes", "enum_changes"]

_MODES = ("none", "forward", "backward", "full")


def document_changes(old: Document, new: Document) -> Iterator[Change]:
    """Identity, version, root, promises, used schemas, doc."""
    if old.id != new.id:
        yield make_change("NQX283", ("schema",), f"schema {old.id} became {new.id}", old.id, new.id)
    if old.version == new.version and full_fingerprint(old) != full_fingerprint(new):
        if payload_fingerprint(old) != payload_fingerprint(new):
            message = f"version {old.version} holds something else, but its number is the same"
            yield make_change("NQX290", ("version",), message, old.version, new.version)
        else:
            yield make_change("NQX291", ("version",), f"version {old.version} was edited", old.version, new.version)
    if old.root != new.root:
        renamed = new.root in new.structs and old.root in new.structs[new.root].aliases
        code = "NQX284" if renamed else "NQX280"
        yield make_change(code, ("root",), f"root {old.root} became {new.root}", old.root, new.root)
    if _strictness(new.compatibility) < _strictness(old.compatibility):
        message = f"compatibility was lowered from {old.compatibility} to {new.compatibility}"
        yield make_change("NQX292", ("compatibility",), message, old.compatibility, new.compatibility)
    elif new.compatibility != old.compatibility:
        message = f"compatibility was raised from {old.compatibility} to {new.compatibility}"
        yield make_change("NQX234", ("compatibility",), message, old.compatibility, new.compatibility)
    yield from _use_changes(old, new)
    if old.doc != new.doc:
        yield make_change("NQX234", ("doc",), "doc changed", old.doc, new.doc)


def _use_changes(old: Document, new: Document) -> Iterator[Change]:
    before, after = (dict(use.rsplit("@", 1) for use in document.uses) for document in (old, new))
    for name, version in after.items():
        if name not in before:
            yield make_change("NQX284", ("uses",), f"{name}@{version} is used now", None, version)
        elif int(version) > int(before[name]):
            message = f"{name} moved from version {before[name]} to {version}; its own steps run first"
            yield make_change("NQX285", ("uses",), message, before[name], version)
        elif version != before[name]:
            message = f"{name} moved back from version {before[name]} to {version}; its own steps are undone first"
            breaks = {"direction": "both", "severity": "warning"}
            yield make_change("NQX285", ("uses",), message, before[name], version, **breaks)
    for name, version in before.items():
        if name not in after:
            yield make_change("NQX284", ("uses",), f"{name}@{version} is no longer used", version, None)


def _strictness(mode: str) -> tuple[int, bool]:
    return _MODES.index(mode.removesuffix("-transitive")), mode.endswith("-transitive")


def enum_changes(old: Document, new: Document) -> Iterator[Change]:
    """Members of enums, their defaults, and enums that come or go."""
    for name, enum in new.enums.items():
        if name not in old.enums:
            yield make_change("NQX284", ("enums", name), f"enum {name} was added", None, name)
            continue
        before = old.enums[name]
        for member in before.members:
            if member not in enum.members:
                breaks = {} if enum.default is None else {"direction": "none", "severity": "warning"}
                yield make_change("NQX250", ("enums", name), f"member {member} was removed", member, None, **breaks)
        for member in enum.members:
            if member not in before.members:
                breaks = {} if before.default is None else {"direction": "none", "severity": "info"}
                yield make_change("NQX251", ("enums", name), f"member {member} was added", None, member, **breaks)
        if before.members != enum.members and sorted(before.members) == sorted(enum.members):
            yield make_change("NQX234", ("enums", name), "the order of members changed", before.members, enum.members)
        if before.default != enum.default:
            code = "NQX284" if before.default is None else "NQX241" if enum.default is None else "NQX240"
            message = f"the member for unknown names changed from {_absent(before.default)} to {_absent(enum.default)}"
            yield make_change(code, ("enums", name), message, before.default, enum.default)
        if before.doc != enum.doc:
            yield make_change("NQX234", ("enums", name), "doc changed", before.doc, enum.doc)
    for name in old.enums:
        if name not in new.enums:
            yield make_change("NQX280", ("enums", name), f"enum {name} was removed", name, None)


def _absent(value: str | None) -> str:
    return "none" if value is None else value


def dim_changes(old: Document, new: Document) -> Iterator[Change]:
    """Equations and bounds of dims, and dims that come or go."""
    for name in [name for name in new.dims if name not in old.dims]:
        # Until now each instance had a size of this name to itself.
        shared = name in _sizes(old, root=False)
        message = f"{name} is one size for the whole tree now" if shared else f"dim {name} was declared"
        yield make_change("NQX270" if shared else "NQX284", ("dims", name), message, None, name)
    for name in [name for name in old.dims if name not in new.dims]:
        shared = name in _sizes(new, root=False)
        message = f"{name} is a size of each instance now" if shared else f"dim {name} is no longer declared"
        yield make_change("NQX271" if shared else "NQX284", ("dims", name), message, name, None)
    nothing = DimDeclaration()
    used = _sizes(old), _sizes(new)
    for name in {**new.dims, **old.dims}:
        if (name not in old.dims and name not in used[0]) or (name not in new.dims and name not in used[1]):
            continue  # what a size must be that only one version has
        a, b = old.dims.get(name, nothing), new.dims.get(name, nothing)
        if a.doc != b.doc and name in old.dims and name in new.dims:
            yield make_change("NQX234", ("dims", name), "doc changed", a.doc, b.doc)
        texts = [None if dim.equation is None else dim.equation.text for dim in (a, b)]
        if a.equation is None or b.equation is None:
            if a.equation is not b.equation:
                breaks = {} if a.equation is None else {"direction": "forward", "severity": "warning"}
                yield make_change("NQX223", ("dims", name), f"equals of {name} changed", *texts, **breaks)
        elif not same_size(a.equation, b.equation, {}):
            yield make_change("NQX223", ("dims", name), f"equals of {name} changed", *texts, direction="both")
        yield from bounds_changes(("dims", name), {"min": (a.min, b.min, 1), "max": (a.max, b.max, -1)})


def _sizes(document: Document, *, root: bool = True) -> set[str]:
    """Names that sizes have; without the root in structs of which a payload may hold several instances."""
    return {
        name
        for struct, declaration in document.structs.items()
        for field in (declaration.stored.values() if root or struct != document.root else ())
        for inner in walk_type(field.declared)
        if isinstance(inner, (Array, Key))
        for size in inner.shape
        if size is not ...
        for name in size.names
        if name not in declaration.params
    }
