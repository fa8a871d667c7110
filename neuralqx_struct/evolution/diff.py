"""Differences between two versions: what changed, whom it breaks, and how badly.

Owns :class:`Change` and the comparison of two documents (codes NQX2xx). A change says what it breaks without a step; one
that a declared step names is told as ``info``. Whether the steps suffice is judged by ``rules.py`` and proven by
``proof.py``.

Example:
    >>> for change in diff("schemas/vmc_state/v1.yaml", "schemas/vmc_state/v2.yaml"):  # doctest: +SKIP
    ...     print(change)
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from neuralqx_struct.bundle import read_manifest
from neuralqx_struct.errors import Diagnostic, SchemaError, Severity
from neuralqx_struct.evolution.casts import promotes
from neuralqx_struct.evolution.sizes import constant, equations, readable_as, same_size, same_type
from neuralqx_struct.paths import FieldName, format_path
from neuralqx_struct.schema.expressions import Expression
from neuralqx_struct.schema.fingerprint import full_fingerprint, payload_fingerprint
from neuralqx_struct.schema.migration import Rename
from neuralqx_struct.schema.model import Document, FieldDeclaration, StructDeclaration, document_from_data
from neuralqx_struct.schema.series import Series, load_series, series_of
from neuralqx_struct.schema.types import DTYPES, Array, Extent, Key, Named, Null, PyTree, Type, Union, format_type

__all__ = ["Change", "carried_series", "diff", "diff_documents", "document_of", "probable_renames"]

Direction = Literal["backward", "forward", "both", "none"]
Category = Literal["payload", "manifest"]


@dataclass(frozen=True, slots=True)
class Change:
    """One difference between two versions.

    Attributes:
        code: Stable identifier, NQX2xx.
        direction: Which reading it breaks without a step: ``backward`` the new version reads old payloads, ``forward``
            the old version reads new ones.
        category: ``payload`` if it concerns what is stored, ``manifest`` for everything beside it.
        path: Where in the schema, such as ``$.structs.Layer.fields.w``.
        message: What changed, in one line.
        old: The old value in text form, or None.
        new: The new value in text form, or None.
        severity: ``error`` if it breaks reading old payloads, ``warning`` if it breaks the old reader or other tools,
            ``info`` if nothing breaks.
    """

    code: str
    direction: Direction
    category: Category
    path: str
    message: str
    old: str | None = None
    new: str | None = None
    severity: Severity = "info"

    def __str__(self) -> str:
        breaks = "" if self.direction == "none" else f" (breaks {self.direction})".replace("both", "both directions")
        return f"{self.path}: {self.message}{breaks} [{self.code}]"

    def to_diagnostic(self, hint: str | None = None) -> Diagnostic:
        """The change as a diagnostic."""
        return Diagnostic(self.code, self.severity, self.message, path=self.path, hint=hint)

    def to_json(self) -> dict[str, Any]:
        """The record as plain JSON values."""
        return asdict(self)


#: Direction, category and severity by code: the columns of the list of codes.
_RULES: Mapping[str, tuple[Direction, Category, Severity]] = {
    "NQX201": ("none", "payload", "warning"),
    "NQX202": ("backward", "payload", "error"),
    "NQX203": ("forward", "payload", "warning"),
    "NQX204": ("both", "payload", "error"),
    "NQX205": ("backward", "payload", "error"),
    "NQX206": ("backward", "payload", "warning"),
    "NQX207": ("backward", "payload", "warning"),
    "NQX208": ("none", "payload", "info"),
    "NQX210": ("both", "payload", "error"),
    "NQX211": ("forward", "payload", "info"),
    "NQX212": ("backward", "payload", "error"),
    "NQX213": ("both", "payload", "error"),
    "NQX214": ("both", "payload", "error"),
    "NQX215": ("both", "payload", "error"),
    "NQX220": ("both", "payload", "error"),
    "NQX221": ("none", "manifest", "info"),
    "NQX222": ("backward", "payload", "error"),
    "NQX223": ("backward", "payload", "error"),
    "NQX230": ("none", "manifest", "warning"),
    "NQX231": ("none", "manifest", "info"),
    "NQX232": ("none", "manifest", "warning"),
    "NQX234": ("none", "manifest", "info"),
    "NQX240": ("backward", "payload", "warning"),
    "NQX241": ("backward", "payload", "warning"),
    "NQX250": ("backward", "payload", "error"),
    "NQX251": ("forward", "payload", "warning"),
    "NQX260": ("backward", "payload", "error"),
    "NQX261": ("forward", "payload", "warning"),
    "NQX262": ("backward", "payload", "error"),
    "NQX263": ("forward", "payload", "warning"),
    "NQX270": ("backward", "payload", "error"),
    "NQX271": ("forward", "payload", "warning"),
    "NQX280": ("both", "payload", "error"),
    "NQX281": ("both", "payload", "error"),
    "NQX283": ("backward", "payload", "error"),
    "NQX284": ("none", "payload", "info"),
    "NQX290": ("both", "payload", "error"),
    "NQX291": ("backward", "manifest", "warning"),
    "NQX292": ("none", "manifest", "warning"),
}


def _change(code: str, path: tuple[str, ...], message: str, old: Any = None, new: Any = None, **other: Any) -> Change:
    direction, category, severity = _RULES[code]
    where = format_path(map(FieldName, path))
    before, after = (None if value is None else str(value) for value in (old, new))
    return Change(
        code,
        other.get("direction", direction),
        category,
        where,
        message,
        before,
        after,
        other.get("severity", severity),
    )


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
        >>> diff("schemas/vmc_state/v2.yaml", "schemas/vmc_state")[0].severity  # doctest: +SKIP
        'error'
    """
    return diff_documents(document_of(old), document_of(new))


def document_of(source: Any) -> Document:
    """The document that :func:`diff` means by an argument.

    Raises:
        SchemaError: It is no schema and no bundle with one.
    """
    if isinstance(source, Document):
        return source
    if isinstance(source, Series):
        return source.head
    held = getattr(source, "document", None)  # the Schema of users, which stands below this module
    if isinstance(held, Document):
        return held
    path = Path(source)
    if not (path.suffix == ".zip" or (path / "manifest.json").exists() or path.name == "manifest.json"):
        return load_series(source).head
    manifest = read_manifest(path)
    written = manifest.get("schema")
    series = carried_series(manifest).get(str(written["id"])) if isinstance(written, dict) else None
    if series is None or not isinstance(written, dict):
        raise SchemaError("expected a bundle that holds its schema, got one without", code="NQX404", file=str(path))
    return series.at(written["version"])


def carried_series(manifest: Mapping[str, Any]) -> dict[str, Series]:
    """The schema documents that travel in a manifest, as series by identity.

    Raises:
        SchemaError: One of them is no schema document.
    """
    documents = [document_from_data(data, f"schemas[{i}]") for i, data in enumerate(manifest.get("schemas", ()))]
    return {identity: series_of(d for d in documents if d.id == identity) for identity in {d.id for d in documents}}


_ORDER = {"error": 0, "warning": 1, "info": 2}


def diff_documents(old: Document, new: Document) -> list[Change]:
    """Compare two documents of one schema; see :func:`diff`.

    Example:
        >>> diff_documents(document, document)  # doctest: +SKIP
        []
    """
    found = [
        *_document_changes(old, new),
        *_struct_changes(old, new),
        *_enum_changes(old, new),
        *_dim_changes(old, new),
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


_MODES = ("none", "forward", "backward", "full")


def _document_changes(old: Document, new: Document) -> Iterator[Change]:
    if old.id != new.id:
        yield _change("NQX283", ("schema",), f"schema {old.id} became {new.id}", old.id, new.id)
    if old.version == new.version and full_fingerprint(old) != full_fingerprint(new):
        if payload_fingerprint(old) != payload_fingerprint(new):
            message = f"version {old.version} holds something else, but its number is the same"
            yield _change("NQX290", ("version",), message, old.version, new.version)
        else:
            yield _change("NQX291", ("version",), f"version {old.version} was edited", old.version, new.version)
    if old.root != new.root:
        renamed = new.root in new.structs and old.root in new.structs[new.root].aliases
        code = "NQX284" if renamed else "NQX280"
        yield _change(code, ("root",), f"root {old.root} became {new.root}", old.root, new.root)
    if _strictness(new.compatibility) < _strictness(old.compatibility):
        message = f"compatibility was lowered from {old.compatibility} to {new.compatibility}"
        yield _change("NQX292", ("compatibility",), message, old.compatibility, new.compatibility)
    if old.doc != new.doc:
        yield _change("NQX234", ("doc",), "doc changed", old.doc, new.doc)


def _strictness(mode: str) -> tuple[int, bool]:
    return _MODES.index(mode.removesuffix("-transitive")), mode.endswith("-transitive")


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
            yield _change("NQX284", ("structs", name), f"struct {name} was added", None, name)
            continue
        gone = gone - {former}
        code = "NQX284" if former in struct.aliases else "NQX281"
        yield _change(code, ("structs", name), f"struct {former} was renamed to {name}", former, name)
        yield from _compare_struct(
            ("structs", name), old.structs[former], struct, known, _declared_renames(old, new, name)
        )
    for name in old.structs:
        if name in gone:
            yield _change("NQX280", ("structs", name), f"struct {name} was removed", name, None)


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
) -> Iterator[Change]:
    removed = {name: d for name, d in old.fields.items() if name not in new.fields}
    added = {name: d for name, d in new.fields.items() if name not in old.fields}
    aliased = {alias: name for name, d in added.items() for alias in d.aliases if alias in removed}
    aliased |= {former: name for name, former in declared.items() if name in added and former in removed}
    likely = {a: (b, score) for a, b, score in probable_renames(old, new, known) if a not in aliased}
    for alias, name in aliased.items():
        yield _change(
            "NQX208", (*at, "fields", name), f"field {alias} was renamed to {name}", alias, name, direction="forward"
        )
        yield from _compare_field((*at, "fields", name), removed[alias], added[name], known)
    for name, (to, score) in likely.items():
        message = f"field {name} was removed and {to} added, with the same type: renamed? (score {score:.2f})"
        yield _change("NQX204", (*at, "fields", to), message, name, to)
    for name, declaration in removed.items():
        if name not in aliased and name not in likely:
            yield from _removed(at, name, declaration, new)
    renamed_to = {*aliased.values(), *(to for to, _ in likely.values())}
    for name, declaration in added.items():
        where = (*at, "fields", name)
        if name in old.reserved:
            yield _change("NQX205", where, f"field {name} uses a reserved name", None, declaration.text)
        if name in renamed_to or not declaration.stored:
            continue
        if declaration.has_default:
            yield _change("NQX208", where, f"field {name} was added with a default", None, declaration.text)
        else:
            yield _change("NQX202", where, f"field {name} was added without a default", None, declaration.text)
    for name in new.fields.keys() & old.fields.keys():
        yield from _compare_field((*at, "fields", name), old.fields[name], new.fields[name], known)
    common = [name for name in old.fields if name in new.fields]
    if common != [name for name in new.fields if name in old.fields]:
        yield _change("NQX231", (*at, "fields"), "the order of fields changed, and with it that of the leaves")
    for name in old.reserved:
        if name not in new.reserved and name not in new.fields:
            yield _change("NQX206", (*at, "reserved"), f"{name} is no longer reserved", name, None)
    yield from _compare_constraints(at, old, new)
    if old.params != new.params:
        message = f"parameters changed from {old.params} to {new.params}"
        yield _change("NQX210", (*at, "params"), message, old.params, new.params)
    if old.doc != new.doc:
        yield _change("NQX234", (*at, "doc"), "doc changed", old.doc, new.doc)


def _removed(at: tuple[str, ...], name: str, declaration: FieldDeclaration, new: StructDeclaration) -> Iterator[Change]:
    where = (*at, "fields", name)
    if not declaration.stored:
        return
    if not declaration.has_default:
        yield _change("NQX203", where, f"field {name}, which has no default, was removed", declaration.text, None)
    if name not in new.reserved:
        yield _change(
            "NQX201", where, f"field {name} was removed, but its name is not reserved", declaration.text, None
        )
    elif declaration.has_default:
        yield _change("NQX208", where, f"field {name} was removed", declaration.text, None)


def _compare_constraints(at: tuple[str, ...], old: StructDeclaration, new: StructDeclaration) -> Iterator[Change]:
    before = {c.expression.text for c in old.constraints}
    after = {c.expression.text for c in new.constraints}
    for text in sorted(after - before):
        yield _change("NQX270", (*at, "constraints"), f"constraint {text} was added", None, text)
    for text in sorted(before - after):
        yield _change("NQX271", (*at, "constraints"), f"constraint {text} was removed", text, None)


def _enum_changes(old: Document, new: Document) -> Iterator[Change]:
    for name, enum in new.enums.items():
        if name not in old.enums:
            yield _change("NQX284", ("enums", name), f"enum {name} was added", None, name)
            continue
        before = old.enums[name]
        for member in before.members:
            if member not in enum.members:
                breaks = {} if enum.default is None else {"direction": "none", "severity": "warning"}
                yield _change("NQX250", ("enums", name), f"member {member} was removed", member, None, **breaks)
        for member in enum.members:
            if member not in before.members:
                breaks = {} if before.default is None else {"direction": "none", "severity": "info"}
                yield _change("NQX251", ("enums", name), f"member {member} was added", None, member, **breaks)
    for name in old.enums:
        if name not in new.enums:
            yield _change("NQX280", ("enums", name), f"enum {name} was removed", name, None)


def _dim_changes(old: Document, new: Document) -> Iterator[Change]:
    for name in old.dims.keys() & new.dims.keys():
        a, b = old.dims[name], new.dims[name]
        texts = [None if dim.equation is None else dim.equation.text for dim in (a, b)]
        if a.equation is None or b.equation is None:
            if a.equation is not b.equation:
                breaks = {} if a.equation is None else {"direction": "forward", "severity": "warning"}
                yield _change("NQX223", ("dims", name), f"equals of {name} changed", *texts, **breaks)
        elif not same_size(a.equation, b.equation, {}):
            yield _change("NQX223", ("dims", name), f"equals of {name} changed", *texts, direction="both")
        yield from _bounds_changes(("dims", name), {"min": (a.min, b.min, 1), "max": (a.max, b.max, -1)})


def _bounds_changes(at: tuple[str, ...], bounds: Mapping[str, tuple[Any, Any, int]]) -> Iterator[Change]:
    """Bounds by name: old, new, and 1 if a larger number is tighter."""
    for name, (old, new, sign) in bounds.items():
        if old == new:
            continue
        tighter = new is not None and (old is None or (new - old) * sign > 0)
        code = "NQX270" if tighter else "NQX271"
        yield _change(code, at, f"{name} changed from {_absent(old)} to {_absent(new)}", old, new)


def _absent(value: Any) -> str:
    return "none" if value is None else str(value)


def _compare_field(
    at: tuple[str, ...], old: FieldDeclaration, new: FieldDeclaration, known: Mapping[str, Expression]
) -> Iterator[Change]:
    if old.stored and new.stored:
        if not same_type(old.declared, new.declared, known):
            yield from _type_changes(at, old.declared, new.declared, known)
        elif old.declared != new.declared:
            message = f"the size is spelled {new.text} instead of {old.text}"
            yield _change("NQX221", at, message, old.text, new.text)
    elif old.stored and not new.stored:
        yield _change("NQX203", at, "the field is no longer stored", old.text, new.text)
    elif new.stored and not old.stored:
        code = "NQX208" if new.has_default else "NQX202"
        yield _change(code, at, "the field is stored now", old.text, new.text)
    if old.kind != new.kind:
        yield _change("NQX230", at, f"kind {old.kind} became {new.kind}", old.kind, new.kind)
    for tag in old.tags:
        if tag not in new.tags:
            yield _change("NQX232", at, f"tag {tag} was removed", tag, None)
    for tag in new.tags:
        if tag not in old.tags:
            yield _change("NQX234", at, f"tag {tag} was added", None, tag)
    for alias in old.aliases:
        if alias not in new.aliases:
            yield _change("NQX207", at, f"alias {alias} was removed", alias, None)
    if old.has_default and not new.has_default:
        yield _change("NQX241", at, "the default was removed", old.default, None)
    elif old.has_default and (type(old.default), old.default) != (type(new.default), new.default):
        yield _change(
            "NQX240", at, f"the default changed from {old.default!r} to {new.default!r}", old.default, new.default
        )
    yield from _bounds_changes(
        at,
        {
            "ge": (old.ge, new.ge, 1),
            "gt": (old.gt, new.gt, 1),
            "le": (old.le, new.le, -1),
            "lt": (old.lt, new.lt, -1),
            "min_length": (old.min_length, new.min_length, 1),
            "max_length": (old.max_length, new.max_length, -1),
            "finite": (int(old.finite), int(new.finite), 1),
        },
    )
    for name in ("multiple_of", "pattern", "choices"):
        a, b = getattr(old, name), getattr(new, name)
        if a != b:
            wider = b is None or (name == "choices" and a is not None and all(c in b for c in a))
            yield _change(
                "NQX271" if wider else "NQX270", at, f"{name} changed from {_absent(a)} to {_absent(b)}", a, b
            )
    for name in ("doc", "unit", "deprecated", "converter", "validator"):
        a, b = getattr(old, name), getattr(new, name)
        if a != b:
            yield _change("NQX234", at, f"{name} changed", a, b)


def _type_changes(at: tuple[str, ...], old: Type, new: Type, known: Mapping[str, Expression]) -> Iterator[Change]:
    texts = format_type(old), format_type(new)
    first, second = _options(old), _options(new)
    if Null() in first and Null() not in second:
        yield _change("NQX262", at, f"null is no longer allowed: {texts[0]} became {texts[1]}", *texts)
    elif Null() in second and Null() not in first:
        yield _change("NQX263", at, f"null is allowed now: {texts[0]} became {texts[1]}", *texts)
    first, second = [t for t in first if t != Null()], [t for t in second if t != Null()]
    if len(first) == len(second) == 1:
        yield from _one_type(at, first[0], second[0], known)
        return
    for option in first:
        if not any(readable_as(option, other, known) for other in second):
            yield _change(
                "NQX260", at, f"{format_type(option)} is no longer one of the types", format_type(option), None
            )
    for option in second:
        if not any(readable_as(option, other, known) for other in first):
            yield _change("NQX261", at, f"{format_type(option)} is now one of the types", None, format_type(option))


def _options(declared: Type) -> list[Type]:
    return list(declared.options) if isinstance(declared, Union) else [declared]


def _one_type(at: tuple[str, ...], old: Type, new: Type, known: Mapping[str, Expression]) -> Iterator[Change]:
    texts = format_type(old), format_type(new)
    if same_type(old, new, known):
        return
    match old, new:
        case Array(), Array():
            yield from _dtype_changes(at, old.dtype, new.dtype)
            yield from _shape_changes(at, old.shape, new.shape, known)
        case Key(impl, shape), Key(other, wanted):
            if impl != other:
                breaks = {"direction": "forward", "severity": "warning"} if other is None else {}
                yield _change("NQX215", at, f"the key's implementation {impl} became {other}", impl, other, **breaks)
            yield from _shape_changes(at, shape, wanted, known)
        case Named(name, args), Named(other, others) if name == other:
            yield _change(
                "NQX222", at, f"the arguments of {name} changed", [a.text for a in args], [a.text for a in others]
            )
        case _, PyTree():
            yield _change("NQX261", at, f"{texts[0]} became pytree", *texts)
        case _ if readable_as(old, new, known):
            yield _change("NQX261", at, f"{texts[0]} was widened to {texts[1]}", *texts)
        case _ if readable_as(new, old, known):
            yield _change("NQX260", at, f"{texts[0]} was narrowed to {texts[1]}", *texts)
        case _:
            yield _change("NQX210", at, f"the type {texts[0]} became {texts[1]}", *texts)


def _dtype_changes(at: tuple[str, ...], old: str, new: str) -> Iterator[Change]:
    if old == new:
        return
    message = f"dtype {old} became {new}"
    if promotes(old, new):
        gradients = DTYPES[new].family == "complex" and DTYPES[old].family != "complex"
        why = ", which changes gradients and the optimiser's state" if gradients else ", which holds all its values"
        yield _change("NQX211", at, message + why, old, new)
    elif DTYPES[old].family == "complex" and DTYPES[new].family != "complex":
        yield _change("NQX214", at, f"{message}: imaginary parts are lost", old, new)
    elif promotes(new, old):
        yield _change("NQX212", at, f"{message}, which does not hold all its values", old, new)
    else:
        yield _change("NQX213", at, f"{message}: neither holds all values of the other", old, new)


def _shape_changes(
    at: tuple[str, ...], old: tuple[Extent, ...], new: tuple[Extent, ...], known: Mapping[str, Expression]
) -> Iterator[Change]:
    texts = [f"[{', '.join('...' if e is ... else e.text for e in shape)}]" for shape in (old, new)]
    if ... in new and readable_as(Array("bool", old), Array("bool", new), known):
        if old != new:
            yield _change(
                "NQX222", at, f"shape {texts[0]} became {texts[1]}", *texts, direction="forward", severity="warning"
            )
        return
    if len(old) != len(new) or (... in old) != (... in new):
        yield _change("NQX220", at, f"shape {texts[0]} became {texts[1]}", *texts)
        return
    for axis, (a, b) in enumerate(zip(old, new, strict=True)):
        if same_size(a, b, known) or a is ... or b is ...:
            continue
        simple = a.text.isidentifier() and b.text.isidentifier()
        code = "NQX221" if simple and a.text not in known and b.text not in known else "NQX222"
        free = code == "NQX222" and constant(a) is not None and b.text.isidentifier()
        breaks = {"direction": "forward", "severity": "warning"} if free else {}
        yield _change(code, at, f"axis {axis} is {b.text} instead of {a.text}", a.text, b.text, **breaks)


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
    scored = [
        (a, b, _likeness(a, removed[a], b, added[b]))
        for a in removed
        for b in added
        if same_type(removed[a].declared, added[b].declared, known)
    ]
    found: list[tuple[str, str, float]] = []
    taken: set[str] = set()
    for a, b, score in sorted(scored, key=lambda pair: (-pair[2], pair[:2])):
        if score >= 0.6 and not {f"-{a}", f"+{b}"} & taken:
            taken |= {f"-{a}", f"+{b}"}
            found.append((a, b, score))
    return found


def _likeness(a: str, old: FieldDeclaration, b: str, new: FieldDeclaration) -> float:
    names = difflib.SequenceMatcher(None, a.lower(), b.lower()).ratio()
    agree = [1.0 if one and one == other else 0.0 for one, other in ((old.tags, new.tags), (old.doc, new.doc))]
    return min(1.0, names + 0.1 * agree[0] + 0.4 * agree[1])
