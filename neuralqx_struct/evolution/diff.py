"""Differences between two versions: changes with their codes, directions and severities.

Contains :func:`diff` and the comparison of documents and structs (codes NQX2xx); single fields are compared in
``changes.py``. A change is judged without steps; one that a declared step names has the severity ``info``. Whether the
steps suffice is judged by ``compatibility.py`` and proven by ``proof.py``.

Example:
    >>> {change.code for change in diff("schemas/vmc_state/v1.yaml", "schemas/vmc_state/v2.yaml")} >= {"NQX202", "NQX203"}
    True
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Any

from neuralqx_struct.bundle import read_manifest
from neuralqx_struct.errors import SchemaError
from neuralqx_struct.evolution.changes import (
    Change,
    Changes,
    Path,
    Position,
    compare_fields,
)
from neuralqx_struct.evolution.differences import (
    compare_dims,
    compare_enums,
    compare_headers,
    probable_renames,
)
from neuralqx_struct.evolution.sizes import equations
from neuralqx_struct.evolution.steps import kind
from neuralqx_struct.paths import FieldName, format_path
from neuralqx_struct.schema.model import (
    Document,
    FieldDeclaration,
    StructDeclaration,
)
from neuralqx_struct.schema.series import Series, carried_series, load_series
from neuralqx_struct.schema.text import Source, path_keys
from neuralqx_struct.types.text import format_type

__all__ = ["Change", "Position", "diff", "diff_documents"]


def diff(old: Any, new: Any) -> list[Change]:
    """Compares two versions of a schema.

    Args:
        old: A Document, a Series (its newest version), or the path of a schema file, a schema folder or a bundle.
        new: Likewise.

    Returns:
        Every difference, breaking ones first.

    Raises:
        SchemaError: A path holds no schema.

    Example:
        >>> print(diff("schemas/vmc_state/v2.yaml", "schemas/vmc_state")[0])
        $.doc: doc changed [NQX234]
    """
    (before, old_source), (after, new_source) = _document_of(old), _document_of(new)
    return [
        replace(
            change,
            old_at=_position(old_source, change.old_path),
            new_at=_position(new_source, change.path),
        )
        for change in diff_documents(before, after)
    ]


def _document_of(given: Any) -> tuple[Document, Source | None]:
    """The document that an argument of :func:`diff` names, and the file that it was read from.

    Raises:
        SchemaError: It is no schema and no bundle with one.
    """
    if isinstance(given, Document):
        return given, None
    if isinstance(given, Series):
        return given.head, given.sources.get(given.head.version)
    held = getattr(given, "document", None)  # the Schema of users, whose class is above this module
    if isinstance(held, Document):
        series = getattr(given, "series", None)
        return held, series.sources.get(held.version) if isinstance(series, Series) else None
    path = FilePath(given)
    is_manifest = path.name == "manifest.json" or (path / "manifest.json").exists()
    if path.suffix != ".zip" and not is_manifest:
        return _document_of(load_series(given))
    manifest = read_manifest(path)
    written = manifest.get("schema") or {}
    series = carried_series(manifest).get(str(written.get("id")))
    if series is None:
        message = "expected a bundle that holds its schema, got one without"
        raise SchemaError(message, code="NQX404", file=str(path))
    return series.at(written["version"]), None


def _position(source: Source | None, path: str) -> Position | None:
    mark = None if source is None else source.mark(path_keys(path), key=True)
    return None if source is None or mark is None else Position(source.name, *mark)


_ORDER = {"error": 0, "warning": 1, "info": 2}

#: The codes that steps resolve: changes of fields and structs.
_BY_STEPS = frozenset(
    f"NQX{n}" for n in (202, 203, 210, 211, 212, 213, 214, 215, 220, 222, 260, 262, 280, 281)
)


def diff_documents(old: Document, new: Document) -> list[Change]:
    """Compares two documents of one schema; see :func:`diff`.

    Example:
        >>> diff_documents(v1, v1)
        []
    """
    found = Changes(equations(new, old))
    compare_headers(found, old, new)
    _compare_structs(found, old, new)
    compare_enums(found, old, new)
    compare_dims(found, old, new)
    by_step = _named_by_steps(old, new)
    for index, change in enumerate(found.changes):
        if change.code in _BY_STEPS and change.path in by_step:
            message = f"{change.message}, by a step"
            found.changes[index] = replace(change, severity="info", message=message)
    return sorted(found.changes, key=lambda change: _ORDER[change.severity])


def _steps(old: Document, new: Document) -> list[Any]:
    migration = new.migration_from(old.version)
    return [item.step for item in migration.steps] if migration is not None else []


def _named_by_steps(old: Document, new: Document) -> set[str]:
    """The paths of the fields and structs that the declared steps name."""
    found: set[Path] = set()
    for step in _steps(old, new):
        given = step.model_dump()
        structs = {given.get("struct"), given.get("to")} - {None}
        owners = {step.within or new.root, old.root, given.get("struct") or new.root}
        into = given.get("into", ())
        fields = {given.get("field"), given.get("to"), *given.get("fields", ())} - {None}
        fields |= {into} if isinstance(into, str) else set(into)
        found |= {("structs", owner, "fields", field) for owner in owners for field in fields}
        found |= {("structs", name) for name in structs}
    return {format_path(map(FieldName, path)) for path in found}


# ---------------------------------------------------------------------------------------------------------------------
# Structs.


def _compare_structs(found: Changes, old: Document, new: Document) -> None:
    gone = old.structs.keys() - new.structs.keys()
    for name, struct in new.structs.items():
        at: Path = ("structs", name)
        renamed = _declared_renames(old, new, name)
        if name in old.structs:
            _compare_struct(found, at, old.structs[name], struct, renamed)
            continue
        aliases = [alias for alias in struct.aliases if alias in gone]
        former = next(iter(aliases), None) or _same_struct(old, gone, struct)
        if former is None:
            found.add("NQX284", at, f"struct {name} was added", None, name)
            continue
        gone = gone - {former}
        was, code = ("structs", former), "NQX284" if aliases else "NQX281"
        found.add(code, at, f"struct {former} was renamed to {name}", former, name, was=was)
        start = len(found.changes)
        _compare_struct(found, at, old.structs[former], struct, renamed, former)
        _set_former(found, start, at, was)
    for name in [name for name in old.structs if name in gone]:
        found.add("NQX280", ("structs", name), f"struct {name} was removed", name)


def _set_former(found: Changes, start: int, at: Path, was: Path) -> None:
    """Sets the old paths of the changes from a position on, which are inside something that was renamed."""
    here, there = (format_path(map(FieldName, path)) for path in (at, was))
    for index, change in enumerate(found.changes[start:], start):
        former = f"{there}{change.old_path.removeprefix(here)}"
        found.changes[index] = replace(change, old_path=former)


def _declared_renames(old: Document, new: Document, struct: str) -> dict[str, str]:
    """The old names of fields by the new ones, as steps declare them."""
    steps = [step for step in _steps(old, new) if kind(step).renames_field]
    return {step.to: step.field for step in steps if (step.within or new.root) == struct}


def _same_struct(old: Document, gone: set[str], struct: StructDeclaration) -> str | None:
    """A removed struct with the same fields, which was probably renamed."""

    def form(declaration: StructDeclaration) -> dict[str, str]:
        return {name: format_type(field.declared) for name, field in declaration.stored.items()}

    return next((name for name in sorted(gone) if form(old.structs[name]) == form(struct)), None)


def _compare_struct(  # noqa: PLR0917 - two declarations, their place, and their names
    found: Changes,
    at: Path,
    old: StructDeclaration,
    new: StructDeclaration,
    declared: Mapping[str, str],
    former: str = "",
) -> None:
    _compare_names(found, (*at, "fields"), old, new, declared)
    for name in [name for name in new.fields if name in old.fields]:
        compare_fields(found, (*at, "fields", name), old.fields[name], new.fields[name])
    orders = [[name for name in a if name in b] for a, b in _both(old.fields, new.fields)]
    if orders[0] != orders[1]:
        message = "the order of fields changed, and with it that of the leaves"
        found.add("NQX231", (*at, "fields"), message)
    before, after = ([n for n in a.reserved if n not in b.fields] for a, b in _both(old, new))
    gone, come = ("NQX206", "{} is no longer reserved"), ("NQX234", "{} is reserved now")
    found.entries((*at, "reserved"), before, after, gone, come)
    found.aliases(at, old.aliases, [alias for alias in new.aliases if alias != former])
    _compare_constraints(found, (*at, "constraints"), old, new)
    if old.params != new.params:
        message = f"parameters changed from {old.params} to {new.params}"
        found.add("NQX210", (*at, "params"), message, old.params, new.params)
    found.members((*at, "doc"), old, new, "doc")


def _both(old: Any, new: Any) -> Iterator[tuple[Any, Any]]:
    yield old, new
    yield new, old


def _compare_names(
    found: Changes,
    at: Path,
    old: StructDeclaration,
    new: StructDeclaration,
    declared: Mapping[str, str],
) -> None:
    """Adds changes of fields that only one version has."""
    removed = {name: d for name, d in old.fields.items() if name not in new.fields}
    added = {name: d for name, d in new.fields.items() if name not in old.fields}
    aliased = {alias: name for name, d in added.items() for alias in d.aliases if alias in removed}
    aliased |= {a: b for b, a in declared.items() if b in added and a in removed}
    pairs = probable_renames(old, new, found.known)
    likely = {a: (b, score) for a, b, score in pairs if a not in aliased}
    for a, b in aliased.items():
        here, was, start = (*at, b), (*at, a), len(found.changes) + 1
        message = f"field {a} was renamed to {b}"
        found.add("NQX208", here, message, a, b, direction="forward", was=was)
        kept = added[b].model_copy(update={"aliases": [n for n in added[b].aliases if n != a]})
        compare_fields(found, here, removed[a], kept)
        _set_former(found, start, here, was)
    for a, (b, score) in likely.items():
        message = (
            f"field {a} was removed and {b} added, with the same type: renamed? (score {score:.2f})"
        )
        found.add("NQX204", (*at, b), message, a, b, was=(*at, a))
    for name, declaration in removed.items():
        if name not in aliased and name not in likely:
            _add_removed(found, (*at, name), declaration, reserved=name in new.reserved)
    renamed = {*aliased.values(), *(b for b, _ in likely.values())}
    for name, declaration in added.items():
        here, text = (*at, name), declaration.text
        if name in old.reserved:
            message, was = f"field {name} uses a reserved name", (*at[:-1], "reserved")
            found.add("NQX205", here, message, None, text, was=was)
        if name in renamed:
            continue
        code, message = "NQX202", f"field {name} was added without a default"
        if declaration.has_default:
            code, message = "NQX208", f"field {name} was added with a default"
        if not declaration.stored:
            code, message = "NQX208", f"field {name}, which is not stored, was added"
        found.add(code, here, message, None, text)


def _add_removed(found: Changes, at: Path, old: FieldDeclaration, *, reserved: bool) -> None:
    name = at[-1]
    if not old.stored:
        found.add("NQX208", at, f"field {name}, which was not stored, was removed", old.text)
        return
    if not old.has_default:
        found.add("NQX203", at, f"field {name}, which has no default, was removed", old.text)
    if not reserved:
        message = f"field {name} was removed, but its name is not reserved"
        found.add("NQX201", at, message, old.text)
    elif old.has_default:
        found.add("NQX208", at, f"field {name} was removed", old.text)


def _compare_constraints(
    found: Changes, at: Path, old: StructDeclaration, new: StructDeclaration
) -> None:
    before, after = (
        {c.expression.text: c.message for c in each.constraints} for each in (old, new)
    )
    for text in sorted(after.keys() & before.keys()):
        if after[text] != before[text]:
            message = f"the message of constraint {text} changed"
            found.add("NQX234", at, message, before[text], after[text])
    gone, come = ("NQX271", "constraint {} was removed"), ("NQX270", "constraint {} was added")
    found.entries(at, sorted(before), sorted(after), gone, come)
