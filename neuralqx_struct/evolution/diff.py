"""Differences between two versions: changes with their codes, directions and severities.

Contains :func:`diff` and the comparison of documents and structs (codes NQX2xx); single fields are compared in
``changes.py``. A change is judged without steps; one that a declared step makes has the severity ``info``. Whether the
steps suffice is judged by ``compatibility.py`` and proven by ``proof.py``.

Example:
    >>> {change.code for change in diff("schemas/vmc_state/v1.yaml", "schemas/vmc_state/v2.yaml")} >= {"NQX202", "NQX203"}
    True
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path as FilePath
from typing import Any

from neuralqx_struct.errors import Diagnostic, SchemaError
from neuralqx_struct.evolution.changes import (
    Change,
    Changes,
    Entry,
    Path,
    Position,
    compare_fields,
)
from neuralqx_struct.evolution.declared_sizes import new_sizes
from neuralqx_struct.evolution.differences import (
    compare_choices,
    compare_dims,
    compare_enum,
    compare_headers,
)
from neuralqx_struct.evolution.following import follow_aliases, follow_steps, follow_structs, holds
from neuralqx_struct.evolution.limits import compared_limits, is_tighter, limits_on
from neuralqx_struct.evolution.origins import Following, conditions
from neuralqx_struct.evolution.steps import kind, step_name
from neuralqx_struct.evolution.steps.operations import LIKELY, MOST_PAIRS, likeness
from neuralqx_struct.expressions import Expression
from neuralqx_struct.manifest import Limits
from neuralqx_struct.places.urls import Options
from neuralqx_struct.printing import escaped, notebook_table
from neuralqx_struct.schema.model import Document, FieldDeclaration, StructDeclaration
from neuralqx_struct.schema.series import Series, carried_series, load_series
from neuralqx_struct.schema.sizes.comparison import equations, same_type
from neuralqx_struct.schema.text import Source, path_keys, path_text

__all__ = ["Change", "Diff", "Position", "diff", "diff_documents"]


class Diff(list[Change]):
    """The changes between two versions; notebooks show them as a table."""

    def _repr_html_(self) -> str:
        cells = ((each.path, each.message, each.severity, each.code) for each in self)
        return notebook_table(
            ("path", "change", "severity", "code"), ([*map(escaped, row)] for row in cells)
        )


def diff(
    old: Any,
    new: Any,
    *,
    limits: Limits | None = None,
    storage_options: Options | None = None,
) -> Diff:
    """Compares two versions of a schema.

    Args:
        old: A Document, a Series (its newest version), or the path of a schema file, a schema folder or a bundle; of a
            bundle also a URL.
        new: Likewise. Versions between the two are found beside them, with the steps that they declare.
        limits: Sizes above which a bundle is refused.
        storage_options: Options of fsspec for URLs, such as keys.

    Returns:
        Every difference, breaking ones first.

    Raises:
        SchemaError: A path holds no schema.

    Example:
        >>> print(diff("schemas/vmc_state/v2.yaml", "schemas/vmc_state")[0])
        $.doc: doc changed [NQX234]
    """
    before, after = (_given(each, limits, storage_options) for each in (old, new))
    between = [*before.documents.values(), *after.documents.values()]
    found = Diff()
    for change in diff_documents(before.head, after.head, between):
        old_at = _position(before.sources.get(before.head.version), change.old_path)
        new_at = _position(after.sources.get(after.head.version), change.path)
        found.append(replace(change, old_at=old_at, new_at=new_at))
    return found


def _given(given: Any, limits: Limits | None, options: Options | None) -> Series:
    """The series whose newest version is the one that an argument of :func:`diff` names.

    Raises:
        SchemaError: It is no schema and no bundle with one.
    """
    if isinstance(given, Series):
        return given
    held = given if isinstance(given, Document) else getattr(given, "document", None)
    if isinstance(held, Document):  # also the Schema of users, whose class is above this module
        series = getattr(given, "series", None)
        return _up_to(series or Series(held.id, {held.version: held}), held.version)
    # Imported late: lint compares limits, and bundles are slow to import.
    from neuralqx_struct.bundle import read_manifest
    from neuralqx_struct.bundle.storage import names_at
    from neuralqx_struct.places.urls import place_of

    path = place_of(given, options)
    if (
        not isinstance(path, FilePath)
        or path.suffix == ".zip"
        or "manifest.json" in (path.name, *names_at(path))
    ):
        manifest = read_manifest(path, limits=limits)
        written = manifest.get("schema") or {}
        series = carried_series(manifest).get(str(written.get("id")))
        if series is None:
            message = "expected a bundle that holds its schema, got one without"
            raise SchemaError(message, code="NQX404", file=str(path))
        return _up_to(series, written["version"])
    series = load_series(given)
    if not path.is_file():
        return series
    try:
        folder = load_series(path.parent)
    except SchemaError:  # other files there have errors
        return series
    same = folder.documents.get(series.head.version) == series.head
    return _up_to(folder, series.head.version) if same else series


def _up_to(series: Series, version: int) -> Series:
    known = {v: document for v, document in series.documents.items() if v <= version}
    return replace(series, documents=known)


def _position(source: Source | None, path: str) -> Position | None:
    mark = None if source is None else source.mark(path_keys(path), key=True)
    return None if source is None or mark is None else Position(source.name, *mark)


_MOST_LINES = 22
_ORDER = {"error": 0, "warning": 1, "info": 2}

#: Other names of sizes, which fingerprints tell apart.
_NAMES = "NQX221"
#: The codes that steps resolve: changes of fields and structs.
_BY_STEPS = frozenset(
    f"NQX{n}" for n in (202, 203, 210, 211, 212, 213, 214, 215, 220, 222, 260, 262, 280, 281)
)


def diff_documents(old: Document, new: Document, between: Iterable[Document] = ()) -> list[Change]:
    """Compares two documents of one schema; see :func:`diff`.

    Args:
        old: The old version.
        new: The new version.
        between: Versions whose steps lead from one to the other; others are ignored.
    """
    found = Changes(equations(new, old), new_sizes(old, new), new_sizes(new, old))
    following, changed = follow_steps(found, old, new, between)
    by_step = {*map(path_text, changed)}
    compare_headers(found, old, new)
    _compare_structs(found, old, new)
    _compare_limits(found, following, old, new)
    for name in {**new.enums, **old.enums}:
        compare_enum(found, name, old, new)
    compare_dims(found, old, new)
    compare_choices(found, old, new)
    _add_computed(found, following, new)
    changes = [
        replace(change, severity="info", message=f"{change.message}, by a step")
        if change.code in _BY_STEPS and {change.path, change.old_path} & by_step
        else change
        for change in found.changes
    ]
    return sorted(changes, key=lambda change: _ORDER[change.severity])


def _add_computed(found: Changes, following: Following, new: Document) -> None:
    """Adds the fields that steps give other values, and whose declaration is the same."""
    known = {change.path for change in found.changes}
    for struct, origins in following.origins.items():
        for name, origin in origins.items():
            path = ("structs", struct, "fields", name)
            step = origin.step
            if step is None or not (origin.is_lost or getattr(step, "field", None)):
                continue  # other names of the members of an enum are a change of the enum
            if holds(new, path) and path_text(path) not in known:
                words = " ".join([step_name(step), *kind(step).functions(step)])
                found.add("NQX209", path, f"a step gives it other values: {words}")


def _compare_limits(found: Changes, following: Following, old: Document, new: Document) -> None:
    """Adds changes of the limits on fields and structs, once all renames are known."""
    for name, struct in new.structs.items():
        for key, declaration in struct.fields.items():
            here: Path = ("structs", name, "fields", key)
            was = found.former_path(here)
            origin = following.origin(name, key)
            changed = origin.step or origin.written
            if holds(old, was) and not (changed and limits_on(declaration)):
                before = old.structs[was[1]].fields[was[3]]
                for member in {**limits_on(before), **limits_on(declaration)}:
                    limits = getattr(before, member), getattr(declaration, member)
                    tighter = is_tighter(member, declaration, before)
                    looser = is_tighter(member, before, declaration)
                    found.limit(here, member, *limits, tighter=tighter, looser=looser)
    for broken in compared_limits(old, new, following):
        owner, key = broken.place
        at: Path = ("structs", owner, "fields", key) if key else ("structs", owner, "constraints")
        if broken.why or not broken.member:
            found.add("NQX270", at, broken.message(upgrade=True), None, broken.limit)
    _compare_constraints(found, following, old, new)


def _compare_constraints(
    found: Changes, following: Following, old: Document, new: Document
) -> None:
    """Adds the constraints that are gone, and those with another message."""
    for (struct, text), now in following.constraints.items():
        messages = {c.expression.text: c.message for c in old.structs[struct].constraints}
        name, kept = (struct, text) if now is None else now
        if text not in messages or name not in new.structs:
            continue  # one of a struct inside
        at = ("structs", name, "constraints")
        after = {c.expression.text: c.message for c in new.structs[name].constraints}
        if now is None or kept not in {*conditions(new, name)}:
            found.add("NQX271", at, f"constraint {kept} was removed", kept)
        elif after.get(kept, messages[text]) != messages[text]:
            message = f"the message of constraint {kept} changed"
            found.add("NQX234", at, message, messages[text], after[kept])


def edited_version(written: Mapping[str, Any], reader: Series, own: Series | None) -> Diagnostic:
    """The finding about a payload whose version number means something else to its reader, with the differences.

    Args:
        written: The member ``schema`` of the payload.
        reader: The versions that the reader goes by.
        own: Those that the payload carries.
    """
    version, fingerprint = written["version"], written["fingerprint"]
    expected, declared = reader.fingerprints[version], reader.documents[version]
    stored = None if own is None else own.documents.get(version)
    whose = "the bundle's own document" if stored == declared else "the given schema"
    lines = [
        f"expected version {version} of {reader.id} to be {expected[:19]}..., got {fingerprint[:19]}...",
        f"{whose} declares something else under the same version number",
    ]
    if stored is not None and stored != declared:
        changes: dict[Any, Change] = {}
        for c in diff_documents(stored, declared):
            if (c.category == "payload" or c.code == _NAMES) and c.path != "$.version":
                changes.setdefault((c.path, c.old, c.new), c)
        lines += [f"{c.path}: {c.message}" for c in changes.values()]
    return Diagnostic(
        "NQX405",
        "error",
        "\n".join(lines[:_MOST_LINES]),
        "$.schema.fingerprint",
        hint="published versions are never edited: give the changed schema a new version number and a migration",
    )


def _compare_structs(found: Changes, old: Document, new: Document) -> None:
    follow_structs(found, old, new)
    kept: dict[str, str] = {}
    for name, struct in new.structs.items():
        at = ("structs", name)
        former = found.former_path(at)[1]
        if former not in old.structs:
            found.add("NQX284", at, f"struct {name} was added", None, name)
            continue
        kept[former] = name
        if former != name:
            code = "NQX284" if former in struct.aliases else "NQX281"
            found.add(code, at, f"struct {former} was renamed to {name}", former, name)
        _compare_struct(found, at, old.structs[former], struct)
    for name in old.structs:
        if name not in kept:
            found.add("NQX280", ("structs", name), f"struct {name} was removed", name)


def _compare_struct(
    found: Changes, at: Path, old: StructDeclaration, new: StructDeclaration
) -> None:
    fields = (*at, "fields")
    _compare_names(found, fields, old, new)
    for name, declaration in new.fields.items():
        former = found.former_path((*fields, name))[-1]
        if former in old.fields:
            compare_fields(found, (*fields, name), old.fields[former], declaration)
    if [n for n in old.fields if n in new.fields] != [n for n in new.fields if n in old.fields]:
        message = "the order of fields changed, and with it that of the leaves"
        found.add("NQX231", fields, message)
    before = [name for name in old.reserved if name not in new.fields]
    after = [name for name in new.reserved if name not in old.fields]
    freed: Entry = ("NQX206", "{} is no longer reserved", {})
    found.entries((*at, "reserved"), before, after, freed, ("NQX234", "{} is reserved now", {}))
    found.aliases(at, old.aliases, new.aliases)
    if old.params != new.params:
        message = f"parameters changed from {old.params} to {new.params}"
        found.add("NQX210", (*at, "params"), message, old.params, new.params)
    found.members((*at, "doc"), old, new, "doc")


def _compare_names(
    found: Changes, at: Path, old: StructDeclaration, new: StructDeclaration
) -> None:
    """Adds changes of fields that only one version has."""
    followed = follow_aliases(found, at, old, new)
    gone = [name for name in old.fields if name not in new.fields]
    come = [name for name in new.fields if name not in old.fields]
    owner = found.former_path(at)
    for name, former in followed.items():
        message = f"field {former} was renamed to {name}"
        found.add("NQX208", (*at, name), message, former, name, direction="forward")
        gone.remove(former)
    likely: set[str] = set()
    for a, b, score in probable_renames(old, new, found.known):
        if a in gone and (*at, b) not in found.former:
            words = "with the same type: renamed?"
            message = f"field {a} was removed and {b} added, {words} (score {score:.2f})"
            found.add("NQX204", (*at, b), message, a, b, old_path=path_text((*owner, a)))
            gone.remove(a)
            likely.add(b)
    for name in gone:
        _add_removed(found, (*at, name), old.fields[name], reserved=name in new.reserved)
    for name in come:
        here, declaration = (*at, name), new.fields[name]
        if name in old.reserved:
            place = path_text((*owner[:-1], "reserved"))
            message = f"field {name} uses a reserved name"
            found.add("NQX205", here, message, None, declaration.text, old_path=place)
        known = found.former.get(here)
        if (known is None or known[:-1] != owner) and name not in likely:
            _add_added(found, here, declaration)


def _add_added(found: Changes, at: Path, new: FieldDeclaration) -> None:
    safe = new.has_default or not new.stored
    how = (
        f" with{'' if new.has_default else 'out'} a default" if new.stored else "; it is not stored"
    )
    found.add("NQX208" if safe else "NQX202", at, f"field {at[-1]} was added{how}", None, new.text)


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


def probable_renames(
    old: StructDeclaration, new: StructDeclaration, known: Mapping[str, Expression]
) -> list[tuple[str, str, float]]:
    """Returns pairs of a removed and an added stored field that are probably one field under a new name.

    Returns:
        Old name, new name, score from 0 to 1; each name at most once, best pairs first. Only fields of the same type
        are paired; the score is how alike the names are, raised where tags or docs agree.
    """
    removed = {name: d for name, d in old.stored.items() if name not in new.fields}
    added = {name: d for name, d in new.stored.items() if name not in old.fields}
    if len(removed) * len(added) > MOST_PAIRS:
        return []
    scored = [(-likeness(a, removed[a], b, added[b]), a, b) for a, b in product(removed, added)]
    found: list[tuple[str, str, float]] = []
    for score, a, b in sorted(scored):
        if -score < LIKELY:
            break
        free = a in removed and b in added
        if free and same_type(removed[a].declared, added[b].declared, known):
            found.append((a, b, -score))
            del removed[a], added[b]
    return found
