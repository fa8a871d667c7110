"""Differences between two versions: what changed, whom it breaks, and how badly.

Owns the comparison of two documents (codes NQX2xx); single fields are compared in ``changes.py``, all that is no struct in
``document_changes.py``. A change says what it breaks without a step; one that a declared step names is told as ``info``.
Whether the steps suffice is judged by ``rules.py`` and proven by ``proof.py``.

Example:
    >>> {change.code for change in diff("schemas/vmc_state/v1.yaml", "schemas/vmc_state/v2.yaml")} >= {"NQX202", "NQX203"}
    True
"""

from __future__ import annotations

import difflib
import heapq
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from neuralqx_struct.bundle import read_manifest
from neuralqx_struct.errors import SchemaError
from neuralqx_struct.evolution.changes import (
    Change,
    Position,
    alias_changes,
    field_changes,
    make_change,
)
from neuralqx_struct.evolution.document_changes import dim_changes, document_changes, enum_changes
from neuralqx_struct.evolution.sizes import equations, same_type
from neuralqx_struct.paths import FieldName, format_path, parse_path
from neuralqx_struct.schema.expressions import Expression
from neuralqx_struct.schema.migration import Rename
from neuralqx_struct.schema.model import Document, FieldDeclaration, StructDeclaration
from neuralqx_struct.schema.series import Series, carried_series, load_series
from neuralqx_struct.schema.source import Source
from neuralqx_struct.schema.types import format_type

__all__ = ["Change", "Position", "diff", "diff_documents", "probable_renames"]


def diff(old: Any, new: Any) -> list[Change]:
    """Compare two versions of a schema.

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
    found = diff_documents(before, after)
    return [_placed(change, old_source, new_source) for change in found] if old_source or new_source else found


def _document_of(given: Any) -> tuple[Document, Source | None]:
    """The document that :func:`diff` means by an argument, and the file that it was read from.

    Raises:
        SchemaError: It is no schema and no bundle with one.
    """
    if isinstance(given, Document):
        return given, None
    if isinstance(given, Series):
        return given.head, given.sources.get(given.head.version)
    held = getattr(given, "document", None)  # the Schema of users, which stands below this module
    if isinstance(held, Document):
        series = getattr(given, "series", None)
        return held, series.sources.get(held.version) if isinstance(series, Series) else None
    path = Path(given)
    if not (path.suffix == ".zip" or (path / "manifest.json").exists() or path.name == "manifest.json"):
        return _document_of(load_series(given))
    manifest = read_manifest(path)
    written = manifest.get("schema")
    series = carried_series(manifest).get(str(written["id"])) if isinstance(written, dict) else None
    if series is None or not isinstance(written, dict):
        raise SchemaError("expected a bundle that holds its schema, got one without", code="NQX404", file=str(path))
    return series.at(written["version"]), None


def _placed(change: Change, old: Source | None, new: Source | None) -> Change:
    """The change with its places in the files that the documents were read from."""
    return replace(change, old_at=_position(old, change.old_path), new_at=_position(new, change.path))


def _position(source: Source | None, path: str) -> Position | None:
    parts = [part if isinstance(part, int) else str(part) for part in parse_path(path)]
    mark = None if source is None else source.mark(parts, key=True)
    return None if source is None or mark is None else Position(source.name, *mark)


_ORDER = {"error": 0, "warning": 1, "info": 2}


def diff_documents(old: Document, new: Document) -> list[Change]:
    """Compare two documents of one schema; see :func:`diff`.

    Example:
        >>> diff_documents(v1, v1)
        []
    """
    found = [
        *document_changes(old, new),
        *_struct_changes(old, new),
        *enum_changes(old, new),
        *dim_changes(old, new),
    ]
    mended = _mended(old, new)
    told = [_by_step(change) if change.code in _BY_STEPS and change.path in mended else change for change in found]
    return sorted(told, key=lambda change: _ORDER[change.severity])


#: What steps do: changes of fields and structs.
_BY_STEPS = frozenset(f"NQX{n}" for n in (202, 203, 210, 211, 212, 213, 214, 215, 220, 222, 260, 262, 280, 281))


def _by_step(change: Change) -> Change:
    return replace(change, severity="info", message=f"{change.message}, by a step")


def _mended(old: Document, new: Document) -> set[str]:
    """Paths of the fields and structs that the declared steps from one version to the other name."""
    migration = new.migration_from(old.version)
    found: set[tuple[str, ...]] = set()
    for item in migration.steps if migration is not None else ():
        given = item.step.model_dump()
        owners = {item.step.within or new.root, old.root, given.get("struct") or new.root}
        fields = {given.get("field"), given.get("to"), *given.get("fields", ())}
        into = given.get("into", ())
        fields |= {into} if isinstance(into, str) else set(into)
        found |= {("structs", owner, "fields", field) for owner in owners for field in fields if field}
        found |= {("structs", name) for name in (given.get("struct"), given.get("to")) if name}
    return {format_path(map(FieldName, path)) for path in found}


def _declared_renames(old: Document, new: Document, struct: str) -> dict[str, str]:
    """Old names by new name, as rename steps say."""
    migration = new.migration_from(old.version)
    steps = [item.step for item in migration.steps] if migration is not None else []
    return {step.to: step.field for step in steps if isinstance(step, Rename) and (step.within or new.root) == struct}


def _struct_changes(old: Document, new: Document) -> Iterator[Change]:
    gone = old.structs.keys() - new.structs.keys()
    known = equations(new, old)
    for name, struct in new.structs.items():
        before = old.structs.get(name)
        if before is not None:
            yield from _compare_struct(("structs", name), before, struct, known, _declared_renames(old, new, name))
            continue
        former = next((alias for alias in struct.aliases if alias in gone), None) or _same_struct(old, gone, struct)
        if former is None:
            yield make_change("NQX284", ("structs", name), f"struct {name} was added", None, name)
            continue
        gone = gone - {former}
        code = "NQX284" if former in struct.aliases else "NQX281"
        at, was = ("structs", name), ("structs", former)
        yield make_change(code, at, f"struct {former} was renamed to {name}", former, name, was=was)
        inside = _compare_struct(
            at, old.structs[former], struct, known, _declared_renames(old, new, name), former=former
        )
        yield from (_formerly(change, at, was) for change in inside)
    for name in old.structs:
        if name in gone:
            yield make_change("NQX280", ("structs", name), f"struct {name} was removed", name, None)


def _formerly(change: Change, at: tuple[str, ...], was: tuple[str, ...]) -> Change:
    """A change inside something that has another name in the old version."""
    here, there = (format_path(map(FieldName, path)) for path in (at, was))
    return replace(change, old_path=f"{there}{change.old_path.removeprefix(here)}")


def _same_struct(old: Document, gone: set[str], struct: StructDeclaration) -> str | None:
    """A removed struct with the same fields: renamed, most likely."""

    def form(declaration: StructDeclaration) -> dict[str, str]:
        return {name: format_type(field.declared) for name, field in declaration.stored.items()}

    return next((name for name in sorted(gone) if form(old.structs[name]) == form(struct)), None)


def _compare_struct(
    at: tuple[str, ...],
    old: StructDeclaration,
    new: StructDeclaration,
    known: Mapping[str, Expression],
    declared: Mapping[str, str],
    *,
    former: str = "",
) -> Iterator[Change]:
    removed = {name: d for name, d in old.fields.items() if name not in new.fields}
    added = {name: d for name, d in new.fields.items() if name not in old.fields}
    aliased = {alias: name for name, d in added.items() for alias in d.aliases if alias in removed}
    aliased |= {former: name for name, former in declared.items() if name in added and former in removed}
    likely = {a: (b, score) for a, b, score in probable_renames(old, new, known) if a not in aliased}
    for alias, name in aliased.items():
        here, was = (*at, "fields", name), (*at, "fields", alias)
        message = f"field {alias} was renamed to {name}"
        yield make_change("NQX208", here, message, alias, name, direction="forward", was=was)
        inside = field_changes(here, removed[alias], added[name], known)
        yield from (_formerly(change, here, was) for change in inside if (change.code, change.new) != ("NQX234", alias))
    for name, (to, score) in likely.items():
        message = f"field {name} was removed and {to} added, with the same type: renamed? (score {score:.2f})"
        yield make_change("NQX204", (*at, "fields", to), message, name, to, was=(*at, "fields", name))
    for name, declaration in removed.items():
        if name not in aliased and name not in likely:
            yield from _removed(at, name, declaration, new)
    renamed_to = {*aliased.values(), *(to for to, _ in likely.values())}
    for name, declaration in added.items():
        where = (*at, "fields", name)
        if name in old.reserved:
            message = f"field {name} uses a reserved name"
            yield make_change("NQX205", where, message, None, declaration.text, was=(*at, "reserved"))
        if name in renamed_to:
            continue
        if not declaration.stored:
            yield make_change("NQX208", where, f"field {name}, which is not stored, was added", None, declaration.text)
        elif declaration.has_default:
            yield make_change("NQX208", where, f"field {name} was added with a default", None, declaration.text)
        else:
            yield make_change("NQX202", where, f"field {name} was added without a default", None, declaration.text)
    for name in new.fields.keys() & old.fields.keys():
        yield from field_changes((*at, "fields", name), old.fields[name], new.fields[name], known)
    common = [name for name in old.fields if name in new.fields]
    if common != [name for name in new.fields if name in old.fields]:
        yield make_change("NQX231", (*at, "fields"), "the order of fields changed, and with it that of the leaves")
    for name in old.reserved:
        if name not in new.reserved and name not in new.fields:
            yield make_change("NQX206", (*at, "reserved"), f"{name} is no longer reserved", name, None)
    for name in new.reserved:
        if name not in old.reserved and name not in old.fields:
            yield make_change("NQX234", (*at, "reserved"), f"{name} is reserved now", None, name)
    yield from alias_changes(at, old.aliases, [alias for alias in new.aliases if alias != former])
    yield from _compare_constraints(at, old, new)
    if old.params != new.params:
        message = f"parameters changed from {old.params} to {new.params}"
        yield make_change("NQX210", (*at, "params"), message, old.params, new.params)
    if old.doc != new.doc:
        yield make_change("NQX234", (*at, "doc"), "doc changed", old.doc, new.doc)


def _removed(at: tuple[str, ...], name: str, declaration: FieldDeclaration, new: StructDeclaration) -> Iterator[Change]:
    where = (*at, "fields", name)
    if not declaration.stored:
        yield make_change("NQX208", where, f"field {name}, which was not stored, was removed", declaration.text, None)
        return
    if not declaration.has_default:
        yield make_change("NQX203", where, f"field {name}, which has no default, was removed", declaration.text, None)
    if name not in new.reserved:
        yield make_change(
            "NQX201", where, f"field {name} was removed, but its name is not reserved", declaration.text, None
        )
    elif declaration.has_default:
        yield make_change("NQX208", where, f"field {name} was removed", declaration.text, None)


def _compare_constraints(at: tuple[str, ...], old: StructDeclaration, new: StructDeclaration) -> Iterator[Change]:
    before = {c.expression.text: c.message for c in old.constraints}
    after = {c.expression.text: c.message for c in new.constraints}
    for text in sorted(after.keys() & before.keys()):
        if after[text] != before[text]:
            message = f"the message of constraint {text} changed"
            yield make_change("NQX234", (*at, "constraints"), message, before[text], after[text])
    for text in sorted(after.keys() - before.keys()):
        yield make_change("NQX270", (*at, "constraints"), f"constraint {text} was added", None, text)
    for text in sorted(before.keys() - after.keys()):
        yield make_change("NQX271", (*at, "constraints"), f"constraint {text} was removed", text, None)


#: The score from which on two names are taken for one field's.
_LIKELY = 0.6


def probable_renames(
    old: StructDeclaration, new: StructDeclaration, known: Mapping[str, Expression]
) -> list[tuple[str, str, float]]:
    """Pairs of a removed and an added stored field that are one field under a new name, most likely.

    Returns:
        Old name, new name, score from 0 to 1; each name at most once, best pairs first. Only fields of the same type
        are paired; the score is how alike the names are, raised where tags or docs agree.
    """
    removed = {name: d for name, d in old.stored.items() if name not in new.fields}
    added = {name: d for name, d in new.stored.items() if name not in old.fields}
    letters: dict[tuple[str, int], int] = {}
    masks = {name: _letters(name, letters) for name in (*removed, *added)}
    # Of most pairs a bound is enough: the best pair is compared in earnest when nothing can be better, and a name that has
    # found its partner is not compared any more.
    waiting: list[tuple[float, bool, str, str]] = []
    for a, old_field in removed.items():
        for b, new_field in added.items():
            shared = 2 * (masks[a] & masks[b]).bit_count() / (len(a) + len(b))
            bound = shared + _agreement(old_field, new_field)
            if bound >= _LIKELY and same_type(old_field.declared, new_field.declared, known):
                waiting.append((-bound, False, a, b))
    heapq.heapify(waiting)
    found: list[tuple[str, str, float]] = []
    while waiting:
        bound, exact, a, b = heapq.heappop(waiting)
        if a not in removed or b not in added:
            continue
        if exact:
            found.append((a, b, -bound))
            del removed[a], added[b]
        elif (score := _likeness(a, removed[a], b, added[b])) >= _LIKELY:
            heapq.heappush(waiting, (-score, True, a, b))
    return found


def _letters(name: str, known: dict[tuple[str, int], int]) -> int:
    """One bit for each letter and which time it comes: what two names share bounds how alike they are."""
    mask, counts = 0, dict.fromkeys(name.lower(), 0)
    for letter in name.lower():
        mask |= 1 << known.setdefault((letter, counts[letter]), len(known))
        counts[letter] += 1
    return mask


def _agreement(old: FieldDeclaration, new: FieldDeclaration) -> float:
    """What equal tags and docs add to the likeness of two names."""
    return 0.1 * bool(old.tags and old.tags == new.tags) + 0.4 * bool(old.doc and old.doc == new.doc)


def _likeness(a: str, old: FieldDeclaration, b: str, new: FieldDeclaration) -> float:
    return min(1.0, difflib.SequenceMatcher(None, a.lower(), b.lower()).ratio() + _agreement(old, new))
