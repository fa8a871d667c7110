"""Changes: the record of one difference between two versions, and the comparison of two fields.

Contains :class:`Change`, the table :data:`RULES` of the readings that each code breaks, and :class:`Changes`, to which
comparisons add. Structs and whole documents are compared in ``diff.py``. A new kind of change is a row of the table and
the place that adds it.

Example:
    >>> alpha = v1.structs["VMCState"].fields["alpha"]
    >>> found = Changes({})
    >>> compare_fields(found, ("structs", "VMCState", "fields", "alpha"), alpha, alpha)
    >>> found.changes
    []
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from neuralqx_struct.dtypes import DTYPES, promotes
from neuralqx_struct.errors import Diagnostic, Severity
from neuralqx_struct.expressions import Expression
from neuralqx_struct.schema.model import FieldDeclaration
from neuralqx_struct.schema.sizes.comparison import readable_as, same_size, same_type, sized_alike
from neuralqx_struct.schema.text import path_text
from neuralqx_struct.types import Array, Extent, Key, Type
from neuralqx_struct.types.text import format_extents, format_type

Direction = Literal["backward", "forward", "both", "none"]
Category = Literal["payload", "manifest"]
#: Keys from the document.
Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a schema file; ``str()`` is a link in editors and terminals."""

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
        category: ``payload`` if it concerns stored data, ``manifest`` for everything else.
        path: Where in the schema, such as ``$.structs.Layer.fields.w``.
        message: The change, in one line.
        old: The old value in text form, or None.
        new: The new value in text form, or None.
        severity: ``error`` if it breaks reading old payloads, ``warning`` if it breaks the old reader or other tools,
            ``info`` if nothing breaks.
        old_path: Where in the old schema; another path than ``path`` inside something that was renamed.
        old_at: Where in the old file, if it was read from one; something new has the place of its parent.
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
        breaks = f" (breaks {_BREAKS[self.direction]})" if self.direction in _BREAKS else ""
        return f"{self.path}: {self.message}{breaks} [{self.code}]"

    def breaks(self, direction: str) -> bool:
        """True if it breaks a reading without a step."""
        return self.direction in (direction, "both")

    def to_diagnostic(self, hint: str | None = None) -> Diagnostic:
        """The change as a diagnostic, at its place in the new file."""
        at = {} if self.new_at is None else asdict(self.new_at)
        return Diagnostic(self.code, self.severity, self.message, path=self.path, hint=hint, **at)

    def to_json(self) -> dict[str, Any]:
        """The record as plain JSON values."""
        return asdict(self)


_BREAKS = {"backward": "backward", "forward": "forward", "both": "both directions"}

#: The numbers of the codes by direction, category and severity.
_NUMBERS: Mapping[tuple[Direction, Category, Severity], tuple[int, ...]] = {
    ("both", "payload", "error"): (204, 210, 213, 214, 215, 220, 280, 281, 290),
    ("backward", "payload", "error"): (202, 205, 212, 222, 223, 250, 260, 262, 270, 283),
    ("backward", "payload", "warning"): (206, 207, 241),
    ("backward", "manifest", "warning"): (291,),
    ("forward", "payload", "warning"): (203, 251, 261, 263, 271),
    ("forward", "payload", "info"): (211, 285),
    ("none", "payload", "warning"): (201,),
    ("none", "payload", "info"): (208, 209, 240, 284),
    ("none", "manifest", "warning"): (230, 232, 292),
    ("none", "manifest", "info"): (221, 231, 234),
}
#: Direction, category and severity by code.
RULES = {f"NQX{number}": rule for rule, numbers in _NUMBERS.items() for number in numbers}

#: A code, a message with ``{}`` for an entry of a list, and members that are not those of the code.
Entry = tuple[str, str, Mapping[str, Any]]
#: Codes of limits on values: no step removes them, whatever the direction.
LIMITS = frozenset(("NQX223", "NQX270", "NQX271"))

#: Breaks the old reader of new payloads alone, or both readers; a warning.
FORWARD: Mapping[str, Any] = {"direction": "forward", "severity": "warning"}
BOTH: Mapping[str, Any] = {"direction": "both", "severity": "warning"}


@dataclass(slots=True, eq=False)
class Changes:
    """The changes that were found so far.

    Attributes:
        known: Expressions that names of sizes are equal to.
        sizes: Old sizes by the new names that they have.
        back: New sizes by the old names that they had.
        former: The old paths of structs and fields that were renamed or moved, by their new ones.
        changes: The changes.
    """

    known: Mapping[str, Expression]
    sizes: Mapping[str, Expression] = field(default_factory=dict)
    back: Mapping[str, Expression] = field(default_factory=dict)
    former: dict[Path, Path] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)

    def add(
        self,
        code: str,
        at: Path,
        message: str,
        old: Any = None,
        new: Any = None,
        **other: Any,
    ) -> None:
        """Adds a change.

        Args:
            code: Its code, which gives direction, category and severity.
            at: Its place in the new version.
            message: The message.
            old: The old value.
            new: The new value.
            other: Members that are not those of the code or the place.
        """
        direction, category, severity = RULES[code]
        a, b = (None if value is None else str(value) for value in (old, new))
        path, former = path_text(at), path_text(self.former_path(at))
        change = Change(code, direction, category, path, message, a, b, severity, former)
        self.changes.append(replace(change, **other))

    def former_path(self, at: Path) -> Path:
        """The path in the old version."""
        for end in range(len(at), 0, -1):
            if at[:end] in self.former:
                return (*self.former[at[:end]], *at[end:])
        return at

    def members(self, at: Path, old: Any, new: Any, *names: str) -> None:
        """Adds NQX234 for each of some attributes that differs."""
        for name in names:
            a, b = getattr(old, name), getattr(new, name)
            if a != b:
                self.add("NQX234", at, f"{name} changed", a, b)

    def entries(
        self, at: Path, old: Iterable[str], new: Iterable[str], gone: Entry, come: Entry
    ) -> None:
        """Adds changes for entries of one list alone."""
        before, after = [*old], [*new]
        had, has = {*before}, {*after}
        for entry in before:
            if entry not in has:
                self.add(gone[0], at, gone[1].format(entry), entry, **gone[2])
        for entry in after:
            if entry not in had:
                self.add(come[0], at, come[1].format(entry), None, entry, **come[2])

    def aliases(self, at: Path, old: Iterable[str], new: Iterable[str]) -> None:
        """Adds changes of the former names of a field or a struct."""
        known = self.former_path(at)[-1]
        others = [alias for alias in new if alias != known]
        gone: Entry = ("NQX207", "alias {} was removed", {})
        self.entries(at, old, others, gone, ("NQX234", "alias {} was added", {}))

    def bounds(self, at: Path, old: Any, new: Any, names: Mapping[str, int]) -> None:
        """Adds changes of bounds; ``names`` has 1 for those of which a larger number is tighter."""
        for name, sign in names.items():
            a, b = getattr(old, name), getattr(new, name)
            tighter = b is not None and (a is None or (b - a) * sign > 0)
            self.limit(at, name, a, b, tighter=tighter, looser=not tighter)

    def limit(
        self, at: Path, name: str, old: Any, new: Any, *, tighter: bool, looser: bool
    ) -> None:
        """Adds the change of a limit on values, None for none.

        Args:
            at: Its place.
            name: The member that holds it.
            old: The limit in the old version.
            new: The limit in the new one.
            tighter: Whether the new one refuses values that the old version allows.
            looser: Whether the old one refuses values that the new version allows.
        """
        if old == new:
            return
        message = f"{name} changed from {shown(old)} to {shown(new)}"
        breaks = {"direction": "both"} if tighter and looser else {}
        code = "NQX270" if tighter else "NQX271" if looser else "NQX234"
        self.add(code, at, message, old, new, **breaks)


def shown(value: Any) -> str:
    """A value in a message."""
    return "none" if value is None else str(value)


_ATTRIBUTES = ("doc", "unit", "axes", "deprecated", "examples", "converter", "reset")


def compare_fields(found: Changes, at: Path, old: FieldDeclaration, new: FieldDeclaration) -> None:
    """Adds the changes of one field, but those of its limits.

    Args:
        found: Where to.
        at: The place of the field in the document.
        old: Its old declaration.
        new: Its new declaration.
    """
    texts = old.text, new.text
    if old.stored and new.stored:
        if not same_type(old.declared, new.declared, found.known):
            _compare_types(found, at, old.declared, new.declared)
        elif format_type(old.declared) != format_type(new.declared):
            found.add("NQX221", at, f"the type is spelled {new.text} instead of {old.text}", *texts)
    elif old.stored:
        found.add("NQX203", at, "the field is no longer stored", *texts)
    elif new.stored:
        code = "NQX208" if new.has_default else "NQX202"
        found.add(code, at, "the field is stored now", *texts)
    elif old.text != new.text:
        found.add("NQX234", at, f"type {old.text} became {new.text}", *texts)
    if old.kind != new.kind:
        found.add("NQX230", at, f"kind {old.kind} became {new.kind}", old.kind, new.kind)
    gone: Entry = ("NQX232", "tag {} was removed", {})
    found.entries(at, old.tags, new.tags, gone, ("NQX234", "tag {} was added", {}))
    found.aliases(at, old.aliases, new.aliases)
    _compare_defaults(found, at, old, new)
    found.members(at, old, new, *_ATTRIBUTES)
    if None not in (old.derived, new.derived) and old.derived != new.derived:
        message = "the expression that derives it changed"
        found.add("NQX234", at, message, old.derived, new.derived)


def _compare_defaults(
    found: Changes, at: Path, old: FieldDeclaration, new: FieldDeclaration
) -> None:
    a, b = old.default, new.default
    if old.has_default and not new.has_default:
        found.add("NQX241", at, "the default was removed", a)
    elif new.has_default and not old.has_default:
        found.add("NQX208", at, f"the default {b!r} was given", None, b)
    elif old.has_default and (type(a), a) != (type(b), b):
        found.add("NQX240", at, f"the default changed from {a!r} to {b!r}", a, b)


def _compare_types(found: Changes, at: Path, old: Type, new: Type) -> None:
    texts = format_type(old), format_type(new)
    became = f"{texts[0]} became {texts[1]}"
    if old.nullable and not new.nullable:
        found.add("NQX262", at, f"null is no longer allowed: {became}", *texts)
    elif new.nullable and not old.nullable:
        found.add("NQX263", at, f"null is allowed now: {became}", *texts)
    if len(old.solid) == len(new.solid) == 1:
        _compare_branches(found, at, old.solid[0], new.solid[0])
        return
    gone, come = (
        [format_type(a) for a in one if not any(readable_as(a, b, found.known) for b in other)]
        for one, other in ((old.solid, new.solid), (new.solid, old.solid))
    )
    for text in gone:
        found.add("NQX260", at, f"{text} is no longer one of the types", text)
    for text in come:
        found.add("NQX261", at, f"{text} is now one of the types", None, text)


def _compare_branches(found: Changes, at: Path, old: Type, new: Type) -> None:
    """Adds the changes between two types that are no unions."""
    known = found.known
    if same_type(old, new, known):
        return
    texts = format_type(old), format_type(new)
    parts = len(old.parts) == len(new.parts) > 0
    single = len(old.dtypes) == len(new.dtypes) == 1
    if single or (old.dtypes and {*old.dtypes} == {*new.dtypes}):
        if single:
            _compare_dtypes(found, at, *old.dtypes, *new.dtypes)
        _compare_shapes(found, at, old.extents, new.extents)
    elif isinstance(old, Key) and isinstance(new, Key):
        if old.impl != new.impl:
            message = f"the key's implementation {old.impl} became {new.impl}"
            breaks = FORWARD if new.impl is None else {}
            found.add("NQX215", at, message, old.impl, new.impl, **breaks)
        _compare_shapes(found, at, old.extents, new.extents)
    elif old.refers and old.refers == new.refers:
        arguments = ([size.text for size in each.arguments] for each in (old, new))
        found.add("NQX222", at, f"the arguments of {old.refers} changed", *arguments)
    elif old.sort == new.sort and parts and sized_alike(old, new):
        for pair in zip(old.parts, new.parts, strict=True):
            _compare_types(found, at, *pair)
        _compare_shapes(found, at, old.extents, new.extents)
    elif readable_as(old, new, known):
        found.add("NQX261", at, f"{texts[0]} was widened to {texts[1]}", *texts)
    elif readable_as(new, old, known):
        found.add("NQX260", at, f"{texts[0]} was narrowed to {texts[1]}", *texts)
    else:
        found.add("NQX210", at, f"the type {texts[0]} became {texts[1]}", *texts)


def _compare_dtypes(found: Changes, at: Path, old: str, new: str) -> None:
    if old == new:
        return
    to_complex, was_complex = (DTYPES[dtype].family == "complex" for dtype in (new, old))
    if promotes(old, new):
        code, why = "NQX211", ", which holds all its values"
        if to_complex and not was_complex:
            why = ", which changes gradients and the optimiser's state"
    elif was_complex and not to_complex:
        code, why = "NQX214", ": imaginary parts are lost"
    elif promotes(new, old):
        code, why = "NQX212", ", which does not hold all its values"
    else:
        code, why = "NQX213", ": neither holds all values of the other"
    found.add(code, at, f"dtype {old} became {new}{why}", old, new)


def _compare_shapes(
    found: Changes, at: Path, old: tuple[Extent, ...], new: tuple[Extent, ...]
) -> None:
    known, sizes = found.known, [*zip(old, new, strict=False)]
    if len(old) != len(new) or any((a is ...) != (b is ...) for a, b in sizes):
        texts = [f"[{format_extents(shape)}]" for shape in (old, new)]
        message = f"shape {texts[0]} became {texts[1]}"
        if readable_as(Array("bool", old), Array("bool", new), known):
            found.add("NQX222", at, message, *texts, **FORWARD)
        else:
            found.add("NQX220", at, message, *texts)
        return
    for axis, (a, b) in enumerate(sizes):
        if a is ... or b is ... or same_size(a, b, known):
            continue
        reads = same_size(a, b, {**found.sizes, **known})
        read = same_size(b, a, {**found.back, **known})
        code = "NQX221" if reads and read else "NQX222"
        breaks = FORWARD if reads and not read else {}
        message = f"axis {axis} is {b.text} instead of {a.text}"
        found.add(code, at, message, a.text, b.text, **breaks)
