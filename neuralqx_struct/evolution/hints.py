"""The steps to propose for what differs between two versions, as hints that can be pasted into a schema file.

Owns :func:`proposals`. Every step that it writes was applied to the declaration first, so none is refused when pasted;
where no step fits, words say what is needed. Two rules keep data: a field that goes is never told to be removed without
asking whether a new field of its type is the same one, and no step is written twice. What differs is found by
``differences.py``.

Example:
    >>> proposals(v1, v1, {})
    {}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.evolution import steps as build
from neuralqx_struct.evolution.diff import probable_renames
from neuralqx_struct.evolution.sizes import constant, readable_as, same_size, same_type, substitute
from neuralqx_struct.evolution.steps import apply_to_document, step_text
from neuralqx_struct.schema.expressions import Expression
from neuralqx_struct.schema.fingerprint import reachable
from neuralqx_struct.schema.migration import Step
from neuralqx_struct.schema.model import Document, FieldDeclaration, StructDeclaration
from neuralqx_struct.schema.types import (
    DTYPES,
    Array,
    DictOf,
    Key,
    ListOf,
    LiteralOf,
    Named,
    Null,
    PyTree,
    Scalar,
    TupleOf,
    Type,
    Union,
    format_type,
    walk_type,
)

__all__ = [
    "Pairing",
    "Versions",
    "candidates",
    "moves",
    "proposals",
    "renames",
    "renaming",
    "root_hint",
    "shown_steps",
    "values_for",
]

#: Struct and field; a name may be in both versions, so that what goes and what comes have hints of their own.
_Field = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Versions:
    """What all proposals look at."""

    have: Document
    want: Document
    known: Mapping[str, Expression]

    def within(self, struct: str) -> str | None:
        """The ``in`` of a step on a struct; none is needed for the root."""
        return None if struct == self.have.root == self.want.root else struct

    def after(self, steps: Sequence[Step]) -> Document | None:
        """The declaration behind some steps, or None if one of them is refused."""
        document = self.have
        for step in steps:
            try:
                document = apply_to_document(document, step, self.want)
            except SchemaError:
                return None
        return document


@dataclass(frozen=True, slots=True)
class Pairing:
    """A struct of both versions, its fields that only one of them stores, and the hints for them so far."""

    name: str
    old: StructDeclaration
    new: StructDeclaration
    gone: dict[str, FieldDeclaration]
    come: dict[str, FieldDeclaration]
    hints: dict[_Field, str] = field(default_factory=dict)


def proposals(have: Document, want: Document, known: Mapping[str, Expression]) -> dict[_Field, str]:
    """Hints for all stored fields that differ, by struct and field.

    Args:
        have: What the steps start from.
        want: What they should lead to.
        known: What names of sizes stand for.

    Returns:
        No entry where no step and no words would help.
    """
    versions = Versions(have, want, known)
    old, new = reachable(have)[0], reachable(want)[0]
    hints: dict[_Field, str] = {}
    for hint in _moves(versions, [name for name in new if name in old]):
        hints.update({at: text for at, text in hint.items() if at not in hints})
    written = {shown_steps([build.rename_struct(struct=have.root, to=want.root)]): "root"}
    for name in [name for name in new if name in old]:
        before, after = have.structs[name], want.structs[name]
        gone = {f: d for f, d in before.stored.items() if f not in after.stored and (name, f) not in hints}
        come = {f: d for f, d in after.stored.items() if f not in before.stored and (name, f) not in hints}
        struct = Pairing(name, before, after, gone, come)
        _pair(struct, versions)
        hints.update(struct.hints)
        for both, declaration in after.stored.items():
            if both in before.stored:
                text = _mending(name, both, before.fields[both].declared, declaration.declared, versions, written)
                if text is not None:
                    hints[name, both] = text
    return hints


def shown_steps(steps: Sequence[Step]) -> str:
    """Steps inside a sentence."""
    return ", then ".join(f"`{step_text(step)}`" for step in steps)


# ---------------------------------------------------------------------------------------------------------------------
# Fields that go and fields that come.


def _pair(struct: Pairing, versions: Versions) -> None:
    """Hints for what goes and what comes: the same field under a new name, or two of them."""
    pairs = renames(struct, versions)
    partners = {b: a for a, (b, _) in pairs.items()}
    for name, declaration in struct.gone.items():
        lost = _removal(struct.name, name, declaration, versions)
        if name in pairs:
            hint = f"was it renamed? {shown_steps(pairs[name][1])}; if not, {lost}"
        elif others := _alike(declaration, struct.come, versions):
            hint = f"was it renamed to {_listed(others)}? then write a `rename` step; if not, {lost}"
        else:
            hint = f"mend it with {lost}"
        struct.hints[struct.name, name] = hint
    for name, declaration in struct.come.items():
        made = _addition(struct.name, name, declaration, versions)
        if name in partners:
            hint = f"was it renamed from {partners[name]}? see the step there; if not, {made}"
        elif others := _alike(declaration, struct.gone, versions):
            hint = f"was it renamed from {_listed(others)}? then write a `rename` step; if not, {made}"
        else:
            hint = f"mend it with {made}" if made.startswith("`") else made
        struct.hints[struct.name, name] = hint


def _alike(declaration: FieldDeclaration, others: Mapping[str, FieldDeclaration], versions: Versions) -> list[str]:
    return [n for n, d in others.items() if same_type(d.declared, declaration.declared, versions.known)]


def _listed(names: Sequence[str], limit: int = 4) -> str:
    more = [f"one of {len(names) - limit} others"] if len(names) > limit else []
    return " or ".join([*names[:limit], *more])


def renames(struct: Pairing, versions: Versions) -> dict[str, tuple[str, list[Step]]]:
    """New name and steps by old name: an alias, a likely name, or the only partner that there is, in this order."""
    old, new = ({**struct.gone}, {**struct.come})
    found: dict[str, tuple[str, list[Step]]] = {}

    def take(a: str, b: str) -> None:
        if a in old and b in new and (steps := renaming(struct.name, a, b, versions)):
            found[a] = b, steps
            del old[a], new[b]

    for b, declaration in struct.come.items():
        for alias in declaration.aliases:
            take(alias, b)
    for a, b, _ in probable_renames(struct.old, struct.new, versions.known):
        take(a, b)
    # An only partner of the same type before one of another dtype.
    for alike in (_same, _castable):
        only = {a: [b for b in new if alike(old[a].declared, new[b].declared, versions.known)] for a in old}
        for a, partners in only.items():
            if len(partners) == 1 and sum(partners == others for others in only.values()) == 1:
                take(a, partners[0])
    return found


def _same(a: Type, b: Type, known: Mapping[str, Expression]) -> bool:
    return same_type(a, b, known)


def _castable(a: Type, b: Type, known: Mapping[str, Expression]) -> bool:
    return isinstance(a, Array) and isinstance(b, Array) and same_type(Array(b.dtype, a.shape), b, known)


def renaming(struct: str, a: str, b: str, versions: Versions) -> list[Step]:
    """The steps that give a field its new name, and its new dtype where that changed too; none if they are refused."""
    within = versions.within(struct)
    steps: list[Step] = [build.rename(field=a, to=b, within=within)]
    have, want = (d.structs[struct].fields[n].declared for d, n in ((versions.have, a), (versions.want, b)))
    if not readable_as(have, want, versions.known):
        if not isinstance(want, Array):
            return []
        steps.append(build.cast(field=b, dtype=want.dtype, within=within))
    return steps if versions.after(steps) is not None else []


def _removal(struct: str, name: str, declaration: FieldDeclaration, versions: Versions) -> str:
    within = versions.within(struct)
    for value in values_for(declaration, versions.have):
        step = build.remove(field=name, undo_default=value, within=within)
        if versions.after([step]) is not None:
            return shown_steps([step])
    return f"{shown_steps([build.remove(field=name, lossy=True, within=within)])}, which gives up downgrades"


def _addition(struct: str, name: str, declaration: FieldDeclaration, versions: Versions) -> str:
    for value in values_for(declaration, versions.want):
        step = build.add(field=name, default=value, within=versions.within(struct))
        if versions.after([step]) is not None:
            return shown_steps([step])
    shown = format_type(declaration.declared)
    return (
        f"no value of {shown} can be written in a step: let the type be `{shown} | null`, or take it from other fields"
    )


# ---------------------------------------------------------------------------------------------------------------------
# Values to propose; the author of the schema knows better.

_NONE = object()
_NEUTRAL: Mapping[str, Any] = {
    "bool": False,
    "int": 0,
    "float": 0.0,
    "complex": 0,
    "str": "",
    "path": ".",
    "dtype": "float32",
}


def values_for(declaration: FieldDeclaration, document: Document) -> Iterator[Any]:
    """The declared default, then a neutral value of the type, as far as there are such."""
    if declaration.has_default:
        yield declaration.default
    value = _neutral(declaration.declared, document)
    if value is not _NONE:
        yield value


def _neutral(declared: Type, document: Document) -> Any:
    match declared:
        case Null() | PyTree():
            return None
        case Union(options):
            values = [None] if Null() in options else [_neutral(option, document) for option in options]
            return next((value for value in values if value is not _NONE), _NONE)
        case Scalar(name):
            return _NEUTRAL.get(name, _NONE)
        case LiteralOf(values):
            return values[0]
        case Array(dtype, shape) if ... not in shape:
            return False if DTYPES[dtype].family == "bool" else 0
        case ListOf() | TupleOf(_, True):
            return []
        case TupleOf(items):
            made = [_neutral(item, document) for item in items]
            return _NONE if _NONE in made else made
        case DictOf():
            return {}
        case Named(name) if name in document.enums:
            return document.enums[name].members[0]
        case _:
            return _NONE


# ---------------------------------------------------------------------------------------------------------------------
# Fields that moved between a struct and one nested in it.


def _moves(versions: Versions, names: Sequence[str]) -> Iterator[dict[_Field, str]]:
    """One hint for all fields that moved together, on the first of them; the others name that one."""
    for step, (first, *rest) in moves(versions, names):
        where = f"structs.{first[0]}.fields.{first[1]}"
        others = dict.fromkeys(rest, f"it moves with the step that mends {where}")
        yield {**others, first: f"mend it with {shown_steps([step])}"}


def moves(versions: Versions, names: Sequence[str]) -> Iterator[tuple[Step, list[_Field]]]:
    """Steps for fields that are in a struct in one version and in one nested in it in the other, with what they mend."""
    have, want = versions.have, versions.want
    for name in names:
        old, new = have.structs[name].stored, want.structs[name].stored
        for into, inner in _nested(new, want):
            there = have.structs[inner.name].stored if into in old and inner.name in have.structs else {}
            fields = _common(old, new, want, inner, there, versions)
            step: Step
            if fields:
                step = build.move(fields=fields, into=into, struct=inner.name, within=versions.within(name))
                ends = [(name, f) for f in fields] + [(inner.name, f) for f in fields]
                if versions.after([step]) is not None:
                    yield step, ends + ([] if into in old else [(name, into)])
        for source, inner in _nested(old, have):
            left = want.structs[inner.name].stored if source in new and inner.name in want.structs else {}
            fields = _common(new, old, have, inner, left, versions)
            if fields:
                step = build.inline(field=source, fields=fields, within=versions.within(name))
                whole = source not in new
                ends = [(inner.name, f) for f in fields] + [(name, f) for f in fields]
                if versions.after([step]) is not None:
                    yield step, [(name, source), *ends] if whole else ends


def _nested(fields: Mapping[str, FieldDeclaration], document: Document) -> Iterator[tuple[str, Named]]:
    for name, declaration in fields.items():
        declared = declaration.declared
        if isinstance(declared, Named) and declared.name in document.structs:
            yield name, declared


def _common(  # noqa: PLR0917 - the two sides of a move
    outer: Mapping[str, FieldDeclaration],
    without: Mapping[str, FieldDeclaration],
    document: Document,
    inner: Named,
    taken: Mapping[str, FieldDeclaration],
    versions: Versions,
) -> list[str]:
    """Fields that one version has in the outer struct and the other in the inner one, with the same type."""
    struct = document.structs[inner.name]
    bind = dict(zip(struct.params, inner.args, strict=False))
    return [
        name
        for name, declaration in outer.items()
        if name not in without
        and name not in taken
        and name in struct.stored
        and same_type(declaration.declared, substitute(struct.stored[name].declared, bind), versions.known)
    ]


# ---------------------------------------------------------------------------------------------------------------------
# Fields of another type, and the root.


def _mending(  # noqa: PLR0917 - a field and its two types
    struct: str, name: str, have: Type, want: Type, versions: Versions, written: dict[str, str]
) -> str | None:
    """What turns one type into another, if one step does."""
    if readable_as(have, want, versions.known):
        return None
    for step in candidates(name, have, want, versions, versions.within(struct)):
        after = versions.after([step])
        if after is None or not readable_as(after.structs[struct].fields[name].declared, want, versions.known):
            continue
        text, at = shown_steps([step]), f"structs.{struct}.fields.{name}"
        if text in written:  # a renamed struct is used in many places
            return f"the step that mends {written[text]} mends it too"
        written[text] = at
        return f"mend it with {text}"
    if isinstance(have, Array) and isinstance(want, Array) and have.dtype == want.dtype:
        return (
            "no step turns one shape into the other, as they are not of one size for all dims; "
            "declare `equals:` under dims if they are"
        )
    renamed = [
        (a.name, b.name)
        for a, b in zip(walk_type(have), walk_type(want), strict=False)
        if isinstance(a, Named) and isinstance(b, Named) and a.name in versions.have.enums and a != b
    ]
    if renamed and renamed[0][1] in versions.want.enums:
        old, new = renamed[0]
        return f"no step renames an enum: keep the name {old}, or make the field of {new} with a `python` step"
    return "no other step turns one type into the other: make the new values with a `python` step"


def candidates(name: str, have: Type, want: Type, versions: Versions, within: str | None) -> Iterator[Step]:
    """Steps that may turn one type into another; whether they do is checked by applying them."""
    if isinstance(have, Union) and Null() in have.options:
        value = _neutral(want, versions.want)
        if value is not _NONE:
            yield build.fill(field=name, value=value, within=within)
    for a, b in zip(walk_type(have), walk_type(want), strict=False):
        if isinstance(a, Named) and isinstance(b, Named) and _renamed(a.name, b.name, versions):
            yield build.rename_struct(struct=a.name, to=b.name)
    if isinstance(want, Key) and want.impl is not None:
        yield build.wrap_key(field=name, impl=want.impl, within=within)
    if isinstance(have, Key):
        yield build.unwrap_key(field=name, within=within)
    dtypes = {inner.dtype for inner in walk_type(want) if isinstance(inner, Array)}
    if len(dtypes) == 1:
        yield build.cast(field=name, dtype=dtypes.pop(), within=within)
    if isinstance(have, Array) and isinstance(want, Array) and ... not in (*have.shape, *want.shape):
        if len(have.shape) == len(want.shape) > 1:
            yield build.transpose(field=name, axes=_order(have.shape, want.shape, versions.known), within=within)
        texts = [number if (number := constant(size)) is not None else str(size) for size in want.shape]
        yield build.reshape(field=name, shape=texts, within=within)


def _renamed(old: str, new: str, versions: Versions) -> bool:
    # What another schema declares (lab.optim.Adam) cannot be renamed from here.
    own = old in versions.have.structs and new in versions.want.structs
    return own and old not in versions.want.structs and new not in versions.have.structs


def _order(shape: Sequence[Any], wanted: Sequence[Any], known: Mapping[str, Expression]) -> list[int]:
    left, order = list(range(len(shape))), []
    for size in wanted:
        axis = next((i for i in left if same_size(shape[i], size, known)), left[0])
        left.remove(axis)
        order.append(axis)
    return order


def root_hint(have: Document, want: Document) -> str:
    """What to do about another root struct."""
    if _renamed(have.root, want.root, Versions(have, want, {})):
        return f"mend it with {shown_steps([build.rename_struct(struct=have.root, to=want.root)])}"
    return f"no step makes another struct the root: let it be {have.root}, or give the struct that was it another name"
