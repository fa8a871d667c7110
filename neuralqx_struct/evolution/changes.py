"""Changes: the record of one difference between two versions, and what can change about one field.

Owns :class:`Change`, the table of what each code breaks, and :func:`field_changes`. Structs and whole documents are
compared in ``diff.py``. A new kind of change is a row of the table and the place that yields it.

Example:
    >>> alpha = v1.structs["VMCState"].fields["alpha"]
    >>> list(field_changes(("structs", "VMCState", "fields", "alpha"), alpha, alpha, {}))
    []
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from neuralqx_struct.errors import Diagnostic, Severity
from neuralqx_struct.evolution.casts import promotes
from neuralqx_struct.evolution.sizes import constant, readable_as, same_size, same_type
from neuralqx_struct.paths import FieldName, format_path
from neuralqx_struct.schema.expressions import Expression
from neuralqx_struct.schema.model import FieldDeclaration
from neuralqx_struct.schema.types import (
    DTYPES,
    Array,
    DictOf,
    Extent,
    Key,
    ListOf,
    Named,
    Null,
    PyTree,
    TupleOf,
    Type,
    Union,
    format_type,
)

__all__ = [
    "Category",
    "Change",
    "Direction",
    "Position",
    "alias_changes",
    "bounds_changes",
    "field_changes",
    "make_change",
]

Direction = Literal["backward", "forward", "both", "none"]
Category = Literal["payload", "manifest"]


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a schema file; ``str()`` is what editors and terminals turn into a link."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


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
        old_path: Where in the old schema; another path than ``path`` for what has, or stands in something that has,
            another name.
        old_at: Where in the old file, if it was read from one; what is new has the place of what it stands in.
        new_at: Likewise in the new file.
    """

    code: str
    direction: Direction
    category: Category
    path: str
    message: str
    old: str | None = None
    new: str | None = None
    severity: Severity = "info"
    old_path: str = ""
    old_at: Position | None = field(default=None, compare=False)
    new_at: Position | None = field(default=None, compare=False)

    def __str__(self) -> str:
        breaks = "" if self.direction == "none" else f" (breaks {self.direction})".replace("both", "both directions")
        return f"{self.path}: {self.message}{breaks} [{self.code}]"

    def to_diagnostic(self, hint: str | None = None) -> Diagnostic:
        """The change as a diagnostic, at its place in the new file."""
        at = {} if self.new_at is None else asdict(self.new_at)
        return Diagnostic(self.code, self.severity, self.message, path=self.path, hint=hint, **at)

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
    "NQX285": ("forward", "payload", "info"),
    "NQX290": ("both", "payload", "error"),
    "NQX291": ("backward", "manifest", "warning"),
    "NQX292": ("none", "manifest", "warning"),
}


def make_change(
    code: str, path: tuple[str, ...], message: str, old: Any = None, new: Any = None, **other: Any
) -> Change:
    """A change with what its code breaks; ``direction`` and ``severity`` may say otherwise, ``was`` is the old path."""
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
        format_path(map(FieldName, other.get("was", path))),
    )


def bounds_changes(at: tuple[str, ...], bounds: Mapping[str, tuple[Any, Any, int]]) -> Iterator[Change]:
    """Bounds by name: old, new, and 1 if a larger number is tighter."""
    for name, (old, new, sign) in bounds.items():
        if old == new:
            continue
        tighter = new is not None and (old is None or (new - old) * sign > 0)
        code = "NQX270" if tighter else "NQX271"
        yield make_change(code, at, f"{name} changed from {_absent(old)} to {_absent(new)}", old, new)


def _absent(value: Any) -> str:
    return "none" if value is None else str(value)


def field_changes(
    at: tuple[str, ...], old: FieldDeclaration, new: FieldDeclaration, known: Mapping[str, Expression]
) -> Iterator[Change]:
    """What changed about one field.

    Args:
        at: Where the field stands in the document.
        old: Its old declaration.
        new: Its new declaration.
        known: What names of dims stand for.
    """
    if old.stored and new.stored:
        if not same_type(old.declared, new.declared, known):
            yield from _type_changes(at, old.declared, new.declared, known)
        elif old.declared != new.declared:
            message = f"the size is spelled {new.text} instead of {old.text}"
            yield make_change("NQX221", at, message, old.text, new.text)
    elif old.stored and not new.stored:
        yield make_change("NQX203", at, "the field is no longer stored", old.text, new.text)
    elif new.stored and not old.stored:
        code = "NQX208" if new.has_default else "NQX202"
        yield make_change(code, at, "the field is stored now", old.text, new.text)
    if old.kind != new.kind:
        yield make_change("NQX230", at, f"kind {old.kind} became {new.kind}", old.kind, new.kind)
    for tag in old.tags:
        if tag not in new.tags:
            yield make_change("NQX232", at, f"tag {tag} was removed", tag, None)
    for tag in new.tags:
        if tag not in old.tags:
            yield make_change("NQX234", at, f"tag {tag} was added", None, tag)
    yield from alias_changes(at, old.aliases, new.aliases)
    if old.has_default and not new.has_default:
        yield make_change("NQX241", at, "the default was removed", old.default, None)
    elif new.has_default and not old.has_default:
        yield make_change("NQX208", at, f"the default {new.default!r} was given", None, new.default)
    elif old.has_default and (type(old.default), old.default) != (type(new.default), new.default):
        yield make_change(
            "NQX240", at, f"the default changed from {old.default!r} to {new.default!r}", old.default, new.default
        )
    yield from bounds_changes(
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
            yield make_change(
                "NQX271" if wider else "NQX270", at, f"{name} changed from {_absent(a)} to {_absent(b)}", a, b
            )
    for name in ("doc", "unit", "deprecated", "examples", "converter", "validator", "reset"):
        a, b = getattr(old, name), getattr(new, name)
        if a != b:
            yield make_change("NQX234", at, f"{name} changed", a, b)
    if old.derived is not None and new.derived is not None and old.derived != new.derived:
        yield make_change("NQX234", at, "the expression that derives it changed", old.derived, new.derived)
    if not old.stored and not new.stored and old.text != new.text:
        yield make_change("NQX234", at, f"type {old.text} became {new.text}", old.text, new.text)


def alias_changes(at: tuple[str, ...], old: Iterable[str], new: Iterable[str]) -> Iterator[Change]:
    """Former names of a field or a struct that are no longer known, or known now."""
    for alias in old:
        if alias not in new:
            yield make_change("NQX207", at, f"alias {alias} was removed", alias, None)
    for alias in new:
        if alias not in old:
            yield make_change("NQX234", at, f"alias {alias} was added", None, alias)


def _type_changes(at: tuple[str, ...], old: Type, new: Type, known: Mapping[str, Expression]) -> Iterator[Change]:
    texts = format_type(old), format_type(new)
    first, second = _options(old), _options(new)
    if Null() in first and Null() not in second:
        yield make_change("NQX262", at, f"null is no longer allowed: {texts[0]} became {texts[1]}", *texts)
    elif Null() in second and Null() not in first:
        yield make_change("NQX263", at, f"null is allowed now: {texts[0]} became {texts[1]}", *texts)
    first, second = [t for t in first if t != Null()], [t for t in second if t != Null()]
    if len(first) == len(second) == 1:
        yield from _one_type(at, first[0], second[0], known)
        return
    for option in first:
        if not any(readable_as(option, other, known) for other in second):
            yield make_change(
                "NQX260", at, f"{format_type(option)} is no longer one of the types", format_type(option), None
            )
    for option in second:
        if not any(readable_as(option, other, known) for other in first):
            yield make_change("NQX261", at, f"{format_type(option)} is now one of the types", None, format_type(option))


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
                yield make_change(
                    "NQX215", at, f"the key's implementation {impl} became {other}", impl, other, **breaks
                )
            yield from _shape_changes(at, shape, wanted, known)
        case Named(name, args), Named(other, others) if name == other:
            yield make_change(
                "NQX222", at, f"the arguments of {name} changed", [a.text for a in args], [a.text for a in others]
            )
        case (ListOf(item), ListOf(wanted_item)) | (DictOf(item), DictOf(wanted_item)):
            yield from _type_changes(at, item, wanted_item, known)
        case TupleOf(items, many), TupleOf(wanted_items, more) if many == more and len(items) == len(wanted_items):
            for pair in zip(items, wanted_items, strict=True):
                yield from _type_changes(at, *pair, known)
        case _, PyTree():
            yield make_change("NQX261", at, f"{texts[0]} became pytree", *texts)
        case _ if readable_as(old, new, known):
            yield make_change("NQX261", at, f"{texts[0]} was widened to {texts[1]}", *texts)
        case _ if readable_as(new, old, known):
            yield make_change("NQX260", at, f"{texts[0]} was narrowed to {texts[1]}", *texts)
        case _:
            yield make_change("NQX210", at, f"the type {texts[0]} became {texts[1]}", *texts)


def _dtype_changes(at: tuple[str, ...], old: str, new: str) -> Iterator[Change]:
    if old == new:
        return
    message = f"dtype {old} became {new}"
    if promotes(old, new):
        gradients = DTYPES[new].family == "complex" and DTYPES[old].family != "complex"
        why = ", which changes gradients and the optimiser's state" if gradients else ", which holds all its values"
        yield make_change("NQX211", at, message + why, old, new)
    elif DTYPES[old].family == "complex" and DTYPES[new].family != "complex":
        yield make_change("NQX214", at, f"{message}: imaginary parts are lost", old, new)
    elif promotes(new, old):
        yield make_change("NQX212", at, f"{message}, which does not hold all its values", old, new)
    else:
        yield make_change("NQX213", at, f"{message}: neither holds all values of the other", old, new)


def _shape_changes(
    at: tuple[str, ...], old: tuple[Extent, ...], new: tuple[Extent, ...], known: Mapping[str, Expression]
) -> Iterator[Change]:
    texts = [f"[{', '.join('...' if e is ... else e.text for e in shape)}]" for shape in (old, new)]
    if ... in new and readable_as(Array("bool", old), Array("bool", new), known):
        if old != new:
            yield make_change(
                "NQX222", at, f"shape {texts[0]} became {texts[1]}", *texts, direction="forward", severity="warning"
            )
        return
    if len(old) != len(new) or (... in old) != (... in new):
        yield make_change("NQX220", at, f"shape {texts[0]} became {texts[1]}", *texts)
        return
    for axis, (a, b) in enumerate(zip(old, new, strict=True)):
        if same_size(a, b, known) or a is ... or b is ...:
            continue
        simple = a.text.isidentifier() and b.text.isidentifier()
        code = "NQX221" if simple and a.text not in known and b.text not in known else "NQX222"
        free = code == "NQX222" and constant(a) is not None and b.text.isidentifier()
        breaks = {"direction": "forward", "severity": "warning"} if free else {}
        yield make_change(code, at, f"axis {axis} is {b.text} instead of {a.text}", a.text, b.text, **breaks)
