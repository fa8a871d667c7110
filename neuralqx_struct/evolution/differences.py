"""What a reader of one version finds otherwise in payloads of another, and the step that would mend it.

Owns :func:`differences`, which decides whether steps lead where they should. All that changed, what does not matter to
readers included, is told by ``diff.py``.

Example:
    >>> differences(v1, v2)[0].message
    'expected a stored field kernel: complex64[n_sites, n_hidden], got none'
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from neuralqx_struct.errors import Diagnostic, Severity
from neuralqx_struct.evolution.hints import proposals, root_hint
from neuralqx_struct.evolution.sizes import equations, readable_as
from neuralqx_struct.paths import FieldName, format_path
from neuralqx_struct.schema.expressions import Expression, parse
from neuralqx_struct.schema.fingerprint import reachable
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.types import Array, Key, Type, format_type, walk_type

__all__ = ["Difference", "differences"]


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that a reader of ``want`` finds otherwise than it is in ``have``.

    Attributes:
        path: Where, as keys from the document.
        message: What is expected and what is there.
        hint: The step that would mend it.
        struct: The struct, if it is about a field.
        field: The field.
        missing: True if ``have`` lacks the field, which is wanted.
        extra: True if ``have`` has a field that is not wanted.
    """

    path: tuple[str, ...]
    message: str
    hint: str | None = None
    struct: str = ""
    field: str = ""
    missing: bool = False
    extra: bool = False

    def to_diagnostic(self, code: str, severity: Severity = "error") -> Diagnostic:
        """The difference as a diagnostic."""
        return Diagnostic(code, severity, self.message, path=format_path(map(FieldName, self.path)), hint=self.hint)


def differences(have: Document, want: Document, *, hints: bool = True) -> list[Difference]:
    """Why payloads of ``have`` are not, as they are stored, payloads of ``want``.

    Types may widen (``T`` is readable as ``T | null``), sizes may be spelled otherwise and dims renamed where the old
    name is gone and the new one is new; stored names may not differ at all.

    Args:
        have: What payloads conform to.
        want: What their reader declares.
        hints: Say which steps would mend it, which takes longer than to find it.
    """
    known = _known(have, want)
    found: list[Difference] = []
    if have.root != want.root:
        found.append(Difference(("root",), f"expected root {want.root}, got {have.root}", root_hint(have, want)))
    steps = proposals(have, want, known) if hints else {}
    (have_structs, have_enums), (want_structs, want_enums) = reachable(have), reachable(want)
    for name in [name for name in want_structs if name in have_structs]:
        found += _struct_differences(name, have, want, known, steps)
    for name in [name for name in want_enums if name in have_enums]:
        enum = want.enums[name]
        gone = [member for member in have.enums[name].members if member not in enum.members]
        if gone and enum.default is None:
            message = f"expected the members {', '.join(have.enums[name].members)}, got none named {', '.join(gone)}"
            found.append(Difference(("enums", name), message, "keep the members, or give the enum a `default:` member"))
    return found


def _known(have: Document, want: Document) -> dict[str, Expression]:
    known = equations(want, have)
    return {**_renamed_dims(have, want), **known}


def _renamed_dims(have: Document, want: Document) -> dict[str, Expression]:
    """Names of sizes that are gone, by the new names that stand in all their places.

    Only names that are gone and names that are new: ``[n, m]`` and ``[m, n]`` stay different.
    """
    used = [_size_names(have), _size_names(want)]
    pairs: dict[str, set[str]] = {}
    back: dict[str, set[str]] = {}
    for name in have.structs.keys() & want.structs.keys():
        for field in have.structs[name].stored.keys() & want.structs[name].stored.keys():
            for a, b in _facing(have.structs[name].fields[field].declared, want.structs[name].fields[field].declared):
                pairs.setdefault(a, set()).add(b)
                back.setdefault(b, set()).add(a)
    return {
        a: parse(b)
        for a, (b, *others) in pairs.items()
        if not others and back[b] == {a} and a not in used[1] and b not in used[0]
    }


def _size_names(document: Document) -> set[str]:
    return set(document.dims) | {
        name
        for struct in document.structs.values()
        for declaration in struct.stored.values()
        for inner in walk_type(declaration.declared)
        if isinstance(inner, (Array, Key))
        for size in inner.shape
        if size is not ...
        for name in size.names
    }


def _facing(have: Type, want: Type) -> Iterator[tuple[str, str]]:
    """Names of sizes that stand at the same place of two types."""
    for a, b in zip(walk_type(have), walk_type(want), strict=False):
        if isinstance(a, (Array, Key)) and isinstance(b, (Array, Key)) and len(a.shape) == len(b.shape):
            for x, y in zip(a.shape, b.shape, strict=True):
                if x is not ... and y is not ... and x.text.isidentifier() and y.text.isidentifier():
                    yield x.text, y.text


def _struct_differences(
    name: str, have: Document, want: Document, known: Mapping[str, Expression], hints: Mapping[tuple[str, str], str]
) -> Iterator[Difference]:
    old, new = have.structs[name], want.structs[name]
    at = ("structs", name, "fields")
    for field, declaration in new.stored.items():
        if field not in old.stored:
            message = f"expected a stored field {field}: {format_type(declaration.declared)}, got none"
            yield Difference((*at, field), message, hints.get((name, field)), name, field, missing=True)
        elif not readable_as(old.fields[field].declared, declaration.declared, known):
            message = f"expected {format_type(declaration.declared)}, got {format_type(old.fields[field].declared)}"
            yield Difference((*at, field), message, hints.get((name, field)), name, field)
    for field, declaration in old.stored.items():
        if field not in new.stored:
            message = f"expected no stored field {field}, got {format_type(declaration.declared)}"
            yield Difference((*at, field), message, hints.get((name, field)), name, field, extra=True)
    if old.params != new.params:
        message = f"expected parameters {new.params}, got {old.params}"
        yield Difference(("structs", name, "params"), message, "give the struct another name to change its parameters")
