"""Differences between two documents that make stored data unreadable, and changes outside of structs.

:func:`differences` decides whether steps lead where they should. All changes, also those that readers do not notice, are
listed by ``diff.py``, of which the comparison of headers, enums and dims is here; the steps that resolve differences are
proposed by ``suggestions.py``.

Example:
    >>> differences(v1, v2)[0].message
    'expected a stored field kernel: complex64[n_sites, n_hidden], got none'
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import starmap
from typing import Any, NamedTuple

from neuralqx_struct.errors import Diagnostic, Severity
from neuralqx_struct.evolution.changes import BOTH, FORWARD, Changes, Entry, shown
from neuralqx_struct.evolution.declared_sizes import mixed_dtypes, new_sizes, size_names
from neuralqx_struct.expressions import Expression, parse
from neuralqx_struct.expressions.grammar import head_of
from neuralqx_struct.expressions.polynomials import polynomial
from neuralqx_struct.matching import missing_field
from neuralqx_struct.schema.field_paths import given_fields, given_values
from neuralqx_struct.schema.graph import graph_of
from neuralqx_struct.schema.lock import full_fingerprint, same_payloads
from neuralqx_struct.schema.migration import MODES
from neuralqx_struct.schema.model import DimDeclaration, Document, StructDeclaration
from neuralqx_struct.schema.sizes import ANY_SIZE
from neuralqx_struct.schema.sizes.comparison import constant, equations, readable_as, same_size
from neuralqx_struct.schema.sizes.scopes import (
    given_sizes,
    hiding_params,
    int_fields,
    shared_sizes,
    shown_places,
    start_of,
)
from neuralqx_struct.schema.text import path_text
from neuralqx_struct.types import Extent, Type, map_sizes
from neuralqx_struct.types.text import format_type


class Difference(NamedTuple):
    """One reason why payloads of ``have`` are not payloads of ``want``.

    Attributes:
        path: Keys from the document.
        message: The expected declaration and the found one.
        hint: The step or the edit that resolves it.
        missing: True if ``have`` lacks a field that is wanted.
        extra: True if ``have`` has a field that is not wanted.
        of_sizes: True if the types of the field would agree with other sizes.
    """

    path: tuple[str, ...]
    message: str
    hint: str | None = None
    missing: bool = False
    extra: bool = False
    of_sizes: bool = False

    @property
    def struct(self) -> str:
        """The struct, if the difference is about a field."""
        return self.path[1] if self.path[2:3] == ("fields",) else ""

    @property
    def field(self) -> str:
        """The field, if the difference is about one."""
        return self.path[3] if self.struct else ""

    def to_diagnostic(self, code: str, severity: Severity = "error") -> Diagnostic:
        """The difference as a diagnostic."""
        return Diagnostic(code, severity, self.message, path=path_text(self.path), hint=self.hint)


def differences(have: Document, want: Document) -> list[Difference]:
    """The reasons why payloads of ``have`` are not, as they are stored, payloads of ``want``.

    Types may widen (``T`` is readable as ``T | null``), sizes may be spelled otherwise, and a size may have a new name
    where that has one meaning; stored names may not differ at all.

    Args:
        have: The declaration that payloads conform to.
        want: The declaration of their reader.
    """
    have = have if have.tied is not None else start_of(have, want)
    new = new_sizes(have, want)
    found: list[Difference] = []
    if have.root != want.root:
        hint = (
            f"no step makes another struct the root: let it be {have.root}, "
            "or give the struct that was it another name"
        )
        message = f"expected root {want.root}, got {have.root}"
        found.append(Difference(("root",), message, hint))
    (have_structs, have_enums), (want_structs, want_enums) = (
        graph_of(have).reached(),
        graph_of(want).reached(),
    )
    outside = frozenset(want.dims).union(new, *(size.names for size in new.values()))
    scopes: dict[tuple[bool, frozenset[str], frozenset[str]], dict[str, Expression]] = {}
    for name in want_structs:
        if name in have_structs:
            struct = want.structs[name]
            inside = outside.intersection(hiding_params(want, name))
            scope = (name == want.root, outside.intersection(struct.params), inside)
            if scope not in scopes:
                named = {n: size for n, size in new.items() if inside.isdisjoint({n, *size.names})}
                scopes[scope] = named | equations(want, have, struct=name)
            known = {**scopes[scope], **new_sizes(have, want, name)}
            found += _in_struct(name, have.structs[name], struct, known)
    found += starmap(Difference, mixed_dtypes(have, want))
    for name in want_enums:
        if name in have_enums:
            found += _in_enum(name, have, want)
    return found


def _of_any_size(declared: Type) -> Type:
    """A type with any sizes."""

    def any_size(size: Extent) -> Extent:
        return size if size is ... else ANY_SIZE

    return map_sizes(declared, any_size)


def doubts(have: Document, want: Document) -> Iterator[Difference]:
    """Yields what ``want`` demands of sizes and ``have`` does not declare; whether it refuses any, payloads tell.

    Equal declarations demand the same, and looser ones less; nothing is concluded from others.
    """
    have = have if have.tied is not None else start_of(have, want)
    new = new_sizes(have, want)
    known = {name: dim.equation for name, dim in have.dims.items() if dim.equation} | new
    for name, structs in shared_sizes(want).items():
        own = new.get(name, parse(name))
        # A static int of the root gives the size of its name in the root alone; elsewhere only a dim is one for all.
        of_root = int_fields(have).keys() if structs <= {want.root} else set[str]()
        if not own.names <= have.dims.keys() | of_root:
            message = f"expected one size {name} for the whole tree, got one for each instance"
            hint = f"keep {name} a size of each instance: declare the dim under another name"
            yield Difference(("dims", name), message, hint)
            continue
        for demanded, got in _tighter(want.dims[name], own, have, known):
            message = f"expected {name} {demanded}, got {got}"
            hint = "keep it, or put the sizes that are meant into arrays of a new name"
            yield Difference(("dims", name), message, hint)
    tied, now = have.tied or {}, given_fields(have, want)
    for name, expression in given_values(want).items():
        paths = {path for path in given_fields(want) if head_of(path) in expression.heads}
        if any(path not in now or tied.get(path) is not now[path] for path in paths):
            message = f"expected {name} to have the value that it had, got another field"
            hint = "keep the names on its way, or give the dim another name"
            yield Difference(("structs", want.root, "fields", head_of(name)), message, hint)
    for name in sorted(given_sizes(want) - _given_to(have, new)):
        message = f"expected {name} to be the size of that name, got any int"
        hint = "rename the field or the size: a static int of the root gives the size of its name"
        yield Difference(("structs", want.root, "fields", name), message, hint)


def _tighter(
    dim: DimDeclaration, own: Expression, have: Document, known: Mapping[str, Expression]
) -> Iterator[tuple[str, str]]:
    """Yields the equation and the bounds of a dim that its size before, ``own``, need not keep, and what that keeps."""
    form = polynomial(own, known)
    before = have.dims.get(own.text, DimDeclaration())
    if dim.equation is not None and form != polynomial(dim.equation, known):
        yield f"= {dim.equation.text}", before.equation.text if before.equation else "any size"
    number = constant(own)
    least, most = (before.min or 0, before.max) if number is None else (number, number)
    if dim.min and dim.min > least:
        yield f">= {dim.min}", f">= {least}"
    if dim.max is not None and (most is None or most > dim.max):
        yield f"<= {dim.max}", "any size" if most is None else f"<= {most}"


def _given_to(have: Document, new: Mapping[str, Expression]) -> set[str]:
    """The static ints of the root that are the sizes of their names, once sizes have their new names."""
    tied = (have.tied or {}).items()
    sizes = {id(field): size for size, field in tied if size.isidentifier()}
    found: set[str] = set()
    for name, field in have.structs[have.root].stored.items():
        size = new[name].text if name in new else name
        if sizes.get(id(field)) == size:
            found.add(name)
    return found


def _in_enum(name: str, have: Document, want: Document) -> Iterator[Difference]:
    old, new = have.enums[name], want.enums[name]
    kept = {*new.members}
    gone = [member for member in old.members if member not in kept]
    if gone and new.default is None:
        members = f"expected the members {', '.join(old.members)}, got none named {', '.join(gone)}"
        hint = "keep the members, or give the enum a `default:` member"
        yield Difference(("enums", name), members, hint)


def _in_struct(
    name: str, old: StructDeclaration, new: StructDeclaration, known: Mapping[str, Expression]
) -> Iterator[Difference]:
    at = ("structs", name, "fields")
    for field, declaration in new.stored.items():
        wanted = format_type(declaration.declared)
        if field not in old.stored:
            message = missing_field("", f"{field}: {wanted}").message
            yield Difference((*at, field), message, missing=True)
            continue
        have = old.fields[field].declared
        if not readable_as(have, declaration.declared, known):
            of_sizes = readable_as(_of_any_size(have), _of_any_size(declaration.declared), {})
            message = f"expected {wanted}, got {format_type(have)}"
            yield Difference((*at, field), message, of_sizes=of_sizes)
    for field, declaration in old.stored.items():
        if field not in new.stored:
            shown = format_type(declaration.declared)
            message = f"expected no stored field {field}, got {shown}"
            yield Difference((*at, field), message, extra=True)
    if old.params != new.params:
        message = f"expected parameters {new.params}, got {old.params}"
        hint = "give the struct another name to change its parameters"
        yield Difference(("structs", name, "params"), message, hint)


# ---------------------------------------------------------------------------------------------------------------------
# Members of enums that are gone, where others become the default.


def defaulted(have: Document, want: Document) -> Iterator[Diagnostic]:
    """Yields NQX250 for members of enums that become the default."""
    for name, enum in want.enums.items():
        members = have.enums[name].members if name in have.enums else []
        kept = {*enum.members}
        gone = [member for member in members if member not in kept]
        if gone and enum.default is not None:
            path = path_text(("enums", name))
            message = f"expected the members {', '.join(members)}, got none named {', '.join(gone)}"
            why = f"stored values {', '.join(gone)} become {enum.default!r}, the default"
            hint = "fine if that is meant"
            if have.version < want.version:  # no step adds members on the way back
                values = ", ".join(f"{member}: {enum.default}" for member in gone)
                undo = f"undo: {{{enum.default}: {enum.default}}}"
                hint += f"; a step states it: `- map_enum: {{enum: {name}, values: {{{values}}}, {undo}}}`"
            yield Diagnostic("NQX250", "warning", f"{message}\n{why}", path=path, hint=hint)


def settled(have: Document, want: Document) -> Document:
    """Returns a document whose enums have the members that are left where others become the default of ``want``."""
    enums = dict(have.enums)
    for name, enum in want.enums.items():
        if name in enums:
            left = {m if m in enum.members else enum.default for m in enums[name].members}
            members = [member for member in enum.members if member in left]
            enums[name] = enums[name].model_copy(update={"members": members})
    return have.model_copy(update={"enums": enums})


# ---------------------------------------------------------------------------------------------------------------------
# Structs and fields that were probably renamed.


def renamed_structs(old: Document, new: Document) -> Iterator[tuple[str, str]]:
    """Yields the old and the new names of structs that were probably renamed, each at most once.

    An alias, the place as root and equal fields are the signs, in this order.
    """
    gone = [name for name in old.structs if name not in new.structs]
    forms = {name: _form(old.structs[name]) for name in gone}
    for name, struct in new.structs.items():
        if name in old.structs:
            continue
        candidates = [alias for alias in struct.aliases if alias in gone]
        if name == new.root and old.root in gone:
            candidates.append(old.root)
        form = _form(struct)
        candidates += [former for former in gone if forms[former] == form and form[0]]
        if candidates:
            gone.remove(candidates[0])
            yield candidates[0], name


def _form(struct: StructDeclaration) -> tuple[dict[str, str], list[str]]:
    """The types of the stored fields of a struct, and its parameters."""
    return {n: format_type(d.declared) for n, d in struct.stored.items()}, struct.params


# ---------------------------------------------------------------------------------------------------------------------
# Headers, enums and dims.


def compare_headers(found: Changes, old: Document, new: Document) -> None:
    """Adds changes of identity, version, root, promises, used schemas and doc."""
    version = old.version
    if old.id != new.id:
        found.add("NQX283", ("schema",), f"schema {old.id} became {new.id}", old.id, new.id)
    if version == new.version and full_fingerprint(old) != full_fingerprint(new):
        code, message = "NQX291", f"version {version} was edited"
        if not same_payloads(old, new):
            code = "NQX290"
            message = f"version {version} holds something else, but its number is the same"
        found.add(code, ("version",), message, version, version)
    if old.root != new.root:
        renamed = new.root in new.structs and old.root in new.structs[new.root].aliases
        code = "NQX284" if renamed else "NQX280"
        found.add(code, ("root",), f"root {old.root} became {new.root}", old.root, new.root)
    before, after = old.compatibility, new.compatibility
    if before != after:
        lowered = MODES[after].strictness < MODES[before].strictness
        message = f"compatibility was {'lowered' if lowered else 'raised'} from {before} to {after}"
        found.add("NQX292" if lowered else "NQX234", ("compatibility",), message, before, after)
    _compare_uses(found, old.used_versions, new.used_versions)
    found.members(("doc",), old, new, "doc")


def compare_choices(found: Changes, old: Document, new: Document) -> None:
    """Adds changes of choices of dtypes; fields that name one change with its members."""
    for name in {**new.dtypes, **old.dtypes}:
        at, a, b = ("dtypes", name), old.dtypes.get(name), new.dtypes.get(name)
        if a is None or b is None:
            how = "declared" if a is None else "removed"
            found.add(
                "NQX284", at, f"the choice of dtypes {name} was {how}", a and name, b and name
            )
            continue
        found.members(at, a, b, "members", "doc")
    for path, message, _ in mixed_dtypes(old, new):
        found.add("NQX260", path, message)
    for path, message, _ in mixed_dtypes(new, old):
        found.add("NQX261", path, message)


def _compare_uses(found: Changes, old: Mapping[str, int], new: Mapping[str, int]) -> None:
    at = ("uses",)
    for name in {**new, **old}:
        a, b = old.get(name), new.get(name)
        moved = f"from version {a} to {b}; its own steps"
        if a is None:
            found.add("NQX284", at, f"{name}@{b} is used now", None, b)
        elif b is None:
            found.add("NQX284", at, f"{name}@{a} is no longer used", a)
        elif b > a:
            found.add("NQX285", at, f"{name} moved {moved} run first", a, b)
        elif b < a:
            message = f"{name} moved back {moved} are undone first"
            found.add("NQX285", at, message, a, b, **BOTH)


def compare_enum(found: Changes, name: str, old: Document, new: Document) -> None:
    """Adds changes of members of an enum and of its default, or that it comes or goes."""
    at = ("enums", name)
    before, after = old.enums.get(name), new.enums.get(name)
    if before is None or after is None:
        code, how = ("NQX284", "added") if before is None else ("NQX280", "removed")
        found.add(code, at, f"enum {name} was {how}", before and name, after and name)
        return
    a, b = before.default, after.default
    removed: Entry = ("NQX250", "member {} was removed", {})
    added: Entry = ("NQX251", "member {} was added", {})
    if b is not None:
        removed = (*removed[:2], {"direction": "none", "severity": "warning"})
    if a is not None:
        added = (*added[:2], {"direction": "none", "severity": "info"})
    former = after.former
    renamed = {each: former[each] for each in before.members if each in former}
    for each, member in renamed.items():
        found.add(added[0], at, f"member {each} was renamed to {member}", each, member, **added[2])
    ours = [each for each in before.members if each not in renamed]
    named = {*renamed.values()}.difference(before.members)
    found.entries(at, ours, [each for each in after.members if each not in named], removed, added)
    gone: Entry = ("NQX207", "alias {} was removed", {})
    come: Entry = ("NQX234", "alias {} was added", {})
    found.entries(at, before.former, [each for each in former if each not in renamed], gone, come)
    members = before.members, after.members
    if members[0] != members[1] and sorted(members[0]) == sorted(members[1]):
        found.add("NQX234", at, "the order of members changed", *members)
    if a != b:
        code = "NQX241" if b is None else "NQX240"
        message = f"the member for unknown names changed from {shown(a)} to {shown(b)}"
        found.add("NQX284" if a is None else code, at, message, a, b)
    found.members(at, before, after, "doc")


def compare_dims(found: Changes, old: Document, new: Document) -> None:
    """Adds changes of the equations and bounds of dims, and of dims that come or go."""
    renamed = {name: found.sizes[name].text for name in new.dims if name in found.sizes}
    for name in {**new.dims, **old.dims}:
        if name in {*renamed.values()} - new.dims.keys():
            continue
        former = renamed.get(name, name)
        _compare_dim(found, name, former, old, new)


def _compare_dim(found: Changes, name: str, former: str, old: Document, new: Document) -> None:
    at = ("dims", name)
    a, b = old.dims.get(former), new.dims.get(name)
    if a is None and former in _local_sizes(old):
        found.add("NQX270", at, f"{name} is one size for the whole tree now", None, name)
    elif a is None:
        found.add("NQX284", at, f"dim {name} was declared", None, name)
    if b is None and name in _local_sizes(new):
        found.add("NQX271", at, f"{name} is a size of each instance now", name)
    elif b is None:
        found.add("NQX284", at, f"dim {name} is no longer declared", name)
    if name == former and not (name in size_names(old) and name in size_names(new)):
        return  # a size that only one version has
    if a is not None and b is not None:
        found.members(at, a, b, "doc")
    before, after = a or DimDeclaration(), b or DimDeclaration()
    one, other = before.equation, after.equation
    same = one == other
    breaks: Mapping[str, Any] = {}
    if one is not None:
        breaks = {"direction": "both"} if other is not None else FORWARD
        known = {n: size for n, size in found.known.items() if n not in (name, former)}
        same = other is not None and same_size(one, other, known)
    if not same:
        texts = [None if size is None else size.text for size in (one, other)]
        found.add("NQX223", at, f"equals of {name} changed", *texts, **breaks)
    found.bounds(at, before, after, {"min": 1, "max": -1})


def _local_sizes(document: Document) -> set[str]:
    """The names of sizes that a payload may show more than once, each with a value of its own."""
    holders: dict[str, set[str]] = {}
    for place in shown_places(document):
        holders.setdefault(place.size, set()).add(place.struct)
    graph = graph_of(document)
    return {size for size, structs in holders.items() if not graph.holds_once(structs)}
