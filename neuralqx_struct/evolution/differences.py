"""Differences between two documents: those that make stored data unreadable, probable renames, and changes of headers.

:func:`differences` decides whether steps lead where they should. All changes, also those that readers do not notice, are
listed by ``diff.py``; the steps that resolve differences are proposed by ``suggestions.py``.

Example:
    >>> differences(v1, v2)[0].message
    'expected a stored field kernel: complex64[n_sites, n_hidden], got none'

:func:`compare_headers`, :func:`compare_enums` and :func:`compare_dims` list the changes of a document besides its structs:
identity, promises, used schemas, enums, dims. Structs are compared in ``diff.py``, single fields in ``changes.py``, which
has the table of codes.

    >>> found = Changes({})
    >>> compare_headers(found, v1, v2)
    >>> [change.code for change in found.changes]
    ['NQX234']
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from neuralqx_struct.errors import Diagnostic, Severity
from neuralqx_struct.evolution.changes import BOTH, FORWARD, Changes, shown
from neuralqx_struct.evolution.sizes import equations, readable_as, same_size, same_type
from neuralqx_struct.expressions import Expression, parse
from neuralqx_struct.paths import FieldName, format_path
from neuralqx_struct.schema.lock import full_fingerprint, payload_fingerprint, reachable
from neuralqx_struct.schema.model import (
    DimDeclaration,
    Document,
    FieldDeclaration,
    StructDeclaration,
)
from neuralqx_struct.schema.modes import MODES
from neuralqx_struct.types.records import walk_type
from neuralqx_struct.types.text import format_type


@dataclass(frozen=True, slots=True)
class Difference:
    """One reason why payloads of ``have`` are not payloads of ``want``.

    Attributes:
        path: Keys from the document.
        message: The expected declaration and the found one.
        hint: The step or the edit that resolves it.
        missing: True if ``have`` lacks a field that is wanted.
        extra: True if ``have`` has a field that is not wanted.
    """

    path: tuple[str, ...]
    message: str
    hint: str | None = None
    missing: bool = False
    extra: bool = False

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
        path = format_path(map(FieldName, self.path))
        return Diagnostic(code, severity, self.message, path=path, hint=self.hint)


def differences(have: Document, want: Document) -> list[Difference]:
    """The reasons why payloads of ``have`` are not, as they are stored, payloads of ``want``.

    Types may widen (``T`` is readable as ``T | null``), sizes may be spelled otherwise and dims renamed where the old
    name is gone and the new one is new; stored names may not differ at all.

    Args:
        have: The declaration that payloads conform to.
        want: The declaration of their reader.
    """
    known = {**_renamed_dims(have, want), **equations(want, have)}
    found: list[Difference] = []
    if have.root != want.root:
        hint = (
            f"no step makes another struct the root: let it be {have.root}, "
            "or give the struct that was it another name"
        )
        message = f"expected root {want.root}, got {have.root}"
        found.append(Difference(("root",), message, hint))
    (have_structs, have_enums), (want_structs, want_enums) = reachable(have), reachable(want)
    for name in want_structs:
        if name in have_structs:
            found += _in_struct(name, have.structs[name], want.structs[name], known)
    for name in [name for name in want_enums if name in have_enums]:
        old, new = have.enums[name], want.enums[name]
        gone = [member for member in old.members if member not in new.members]
        if gone and new.default is None:
            listed = f"expected the members {', '.join(old.members)}"
            hint = "keep the members, or give the enum a `default:` member"
            message = f"{listed}, got none named {', '.join(gone)}"
            found.append(Difference(("enums", name), message, hint))
    return found


def _renamed_dims(have: Document, want: Document) -> dict[str, Expression]:
    """Returns names of sizes that are gone, with the new names in all their places.

    Only names that are gone and names that are new: ``[n, m]`` and ``[m, n]`` stay different.
    """
    used = [_size_names(have), _size_names(want)]
    pairs: dict[str, set[str]] = {}
    back: dict[str, set[str]] = {}
    for name in have.structs.keys() & want.structs.keys():
        old, new = have.structs[name].stored, want.structs[name].stored
        for field in old.keys() & new.keys():
            for a, b in _facing(old[field], new[field]):
                pairs.setdefault(a, set()).add(b)
                back.setdefault(b, set()).add(a)
    return {
        a: parse(b)
        for a, (b, *others) in pairs.items()
        if not others and back[b] == {a} and a not in used[1] and b not in used[0]
    }


def _size_names(document: Document) -> set[str]:
    """The names of all sizes of a document."""
    found = set(document.dims)
    for struct in document.structs.values():
        for names in struct.sizes:
            found |= names
    return found


def _facing(have: FieldDeclaration, want: FieldDeclaration) -> Iterator[tuple[str, str]]:
    """Yields the names of sizes at the same place of two types."""
    for a, b in zip(walk_type(have.declared), walk_type(want.declared), strict=False):
        if a.sort == b.sort and len(a.extents) == len(b.extents):
            for x, y in zip(a.extents, b.extents, strict=True):
                names = [str(size) for size in (x, y) if size is not ...]
                if len(names) == 2 and all(map(str.isidentifier, names)):
                    yield names[0], names[1]


def _in_struct(
    name: str, old: StructDeclaration, new: StructDeclaration, known: Mapping[str, Expression]
) -> Iterator[Difference]:
    at = ("structs", name, "fields")
    for field, declaration in new.stored.items():
        wanted = format_type(declaration.declared)
        if field not in old.stored:
            message = f"expected a stored field {field}: {wanted}, got none"
            yield Difference((*at, field), message, missing=True)
            continue
        have = old.fields[field].declared
        if not readable_as(have, declaration.declared, known):
            yield Difference((*at, field), f"expected {wanted}, got {format_type(have)}")
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
# Fields that were probably renamed.

#: The lowest score of two names of one field.
_LIKELY = 0.6


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
    letters: dict[tuple[str, int], int] = {}
    masks = {name: _letters(name, letters) for name in (*removed, *added)}
    # Comparing names is slow, and a bound is enough for most pairs: the exact score of a pair is computed when no other
    # pair can have a higher one, and not at all for names that are paired already.
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
    """One bit for each letter and its count: the bits that two names share bound their likeness."""
    mask, counts = 0, dict.fromkeys(name.lower(), 0)
    for letter in name.lower():
        mask |= 1 << known.setdefault((letter, counts[letter]), len(known))
        counts[letter] += 1
    return mask


def _agreement(old: FieldDeclaration, new: FieldDeclaration) -> float:
    """The score that equal tags and docs add to that of the names."""
    return 0.1 * bool(old.tags and old.tags == new.tags) + 0.4 * bool(
        old.doc and old.doc == new.doc
    )


def _likeness(a: str, old: FieldDeclaration, b: str, new: FieldDeclaration) -> float:
    return min(1.0, SequenceMatcher(None, a.lower(), b.lower()).ratio() + _agreement(old, new))


def compare_headers(found: Changes, old: Document, new: Document) -> None:
    """Adds changes of identity, version, root, promises, used schemas and doc."""
    version = old.version
    if old.id != new.id:
        found.add("NQX283", ("schema",), f"schema {old.id} became {new.id}", old.id, new.id)
    if version == new.version and full_fingerprint(old) != full_fingerprint(new):
        code, message = "NQX291", f"version {version} was edited"
        if payload_fingerprint(old) != payload_fingerprint(new):
            code = "NQX290"
            message = f"version {version} holds something else, but its number is the same"
        found.add(code, ("version",), message, version, version)
    if old.root != new.root:
        renamed = new.root in new.structs and old.root in new.structs[new.root].aliases
        code = "NQX284" if renamed else "NQX280"
        found.add(code, ("root",), f"root {old.root} became {new.root}", old.root, new.root)
    if old.compatibility != new.compatibility:
        before, after = old.compatibility, new.compatibility
        lowered = MODES[after].strictness < MODES[before].strictness
        how = "lowered" if lowered else "raised"
        message = f"compatibility was {how} from {before} to {after}"
        found.add("NQX292" if lowered else "NQX234", ("compatibility",), message, before, after)
    _compare_uses(found, old, new)
    found.members(("doc",), old, new, "doc")


def _compare_uses(found: Changes, old: Document, new: Document) -> None:
    before, after, at = old.used_versions, new.used_versions, ("uses",)
    for name, version in after.items():
        former = before.get(name)
        moved = f"from version {former} to {version}; its own steps"
        if former is None:
            found.add("NQX284", at, f"{name}@{version} is used now", None, version)
        elif version > former:
            found.add("NQX285", at, f"{name} moved {moved} run first", former, version)
        elif version < former:
            message = f"{name} moved back {moved} are undone first"
            found.add("NQX285", at, message, former, version, **BOTH)
    for name, version in before.items():
        if name not in after:
            found.add("NQX284", at, f"{name}@{version} is no longer used", version)


def compare_enums(found: Changes, old: Document, new: Document) -> None:
    """Adds changes of members of enums, of their defaults, and of enums that come or go."""
    gone, come = ("NQX280", "enum {} was removed"), ("NQX284", "enum {} was added")
    for name in {**new.enums, **old.enums}:
        at = ("enums", name)
        if name not in old.enums or name not in new.enums:
            found.entries(at, {name} & old.enums.keys(), {name} & new.enums.keys(), gone, come)
            continue
        before, after = old.enums[name], new.enums[name]
        a, b = before.default, after.default
        for member in [member for member in before.members if member not in after.members]:
            breaks: dict[str, Any] = (
                {} if b is None else {"direction": "none", "severity": "warning"}
            )
            found.add("NQX250", at, f"member {member} was removed", member, **breaks)
        for member in [member for member in after.members if member not in before.members]:
            breaks = {} if a is None else {"direction": "none", "severity": "info"}
            found.add("NQX251", at, f"member {member} was added", None, member, **breaks)
        members = before.members, after.members
        if members[0] != members[1] and sorted(members[0]) == sorted(members[1]):
            found.add("NQX234", at, "the order of members changed", *members)
        if a != b:
            code = "NQX241" if b is None else "NQX240"
            message = f"the member for unknown names changed from {shown(a)} to {shown(b)}"
            found.add("NQX284" if a is None else code, at, message, a, b)
        found.members(at, before, after, "doc")


def compare_dims(found: Changes, old: Document, new: Document) -> None:
    """Adds changes of equations and bounds of dims, and of dims that come or go."""
    for name in [name for name in new.dims if name not in old.dims]:
        # Without a declaration each instance has a size of this name to itself.
        shared = name in _sizes(old, root=False)
        message = (
            f"{name} is one size for the whole tree now" if shared else f"dim {name} was declared"
        )
        found.add("NQX270" if shared else "NQX284", ("dims", name), message, None, name)
    for name in [name for name in old.dims if name not in new.dims]:
        shared = name in _sizes(new, root=False)
        message = (
            f"{name} is a size of each instance now"
            if shared
            else f"dim {name} is no longer declared"
        )
        found.add("NQX271" if shared else "NQX284", ("dims", name), message, name)
    nothing = DimDeclaration()
    for name in {**new.dims, **old.dims}:
        in_old, in_new = name in old.dims, name in new.dims
        if (not in_old and name not in _sizes(old)) or (not in_new and name not in _sizes(new)):
            continue  # a size that only one version has
        at, a, b = ("dims", name), old.dims.get(name, nothing), new.dims.get(name, nothing)
        if in_old and in_new:
            found.members(at, a, b, "doc")
        texts = [None if dim.equation is None else dim.equation.text for dim in (a, b)]
        breaks: Mapping[str, Any] = {"direction": "both"}
        same = texts[0] == texts[1]
        if a.equation is None:
            breaks = {}
        elif b.equation is None:
            breaks = FORWARD
        else:
            same = same_size(a.equation, b.equation, {})
        if not same:
            found.add("NQX223", at, f"equals of {name} changed", *texts, **breaks)
        found.bounds(at, a, b, {"min": 1, "max": -1})


def _sizes(document: Document, *, root: bool = True) -> set[str]:
    """The names of sizes; without ``root`` those of structs of which a payload may hold several instances."""
    return {
        name
        for struct, declaration in document.structs.items()
        if root or struct != document.root
        for names in declaration.sizes
        for name in names - {*declaration.params}
    }
