"""Chains of steps from one declaration to the next, and the steps of a hop that declares none.

Contains :func:`stages_of` (a chain of steps with the declaration between each two), its inverse :func:`undone`,
:func:`resolution` (aliases, defaults and exact promotion, expressed as steps) and :class:`Hop`, the steps from one version
to the next. Reads no payload.

Example:
    >>> [step.name for step in hop_between(v2, v3).steps][:3]
    ['split', 'split', 'wrap_key']
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from neuralqx_struct.dtypes import promotes
from neuralqx_struct.errors import Diagnostic, SchemaError
from neuralqx_struct.evolution import steps as build
from neuralqx_struct.evolution.differences import Difference, differences
from neuralqx_struct.evolution.steps import inverse, require_bounded, staged
from neuralqx_struct.evolution.steps.operations import Cost, Stage, arrays_of
from neuralqx_struct.paths import FieldName, format_path
from neuralqx_struct.schema.migration import Step
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.sizes.scopes import start_of

# ---------------------------------------------------------------------------------------------------------------------
# Chains of steps, and their inverse.


def stages_of(old: Document, steps: Sequence[Step], target: Document) -> list[Stage]:
    """Applies steps to a declaration one after the other.

    Raises:
        SchemaError: All errors of all steps, with paths ``$.migrations[i].steps[j]...`` where the target declares the
            steps. A wrong step is skipped. NQX321 for more steps than the size of the declarations allows.
    """
    require_bounded(len(steps), old, target)
    stages: list[Stage] = []
    found: list[Diagnostic] = []
    old = start_of(old, target)
    for position, step in enumerate(steps):
        try:
            stages.append(staged(old, step, target))
        except SchemaError as error:
            found += placed(error.diagnostics, step, position, old.version, target)
            continue
        old = stages[-1].after
    if found:
        raise SchemaError(found)
    return stages


def placed(
    found: Iterable[Diagnostic], step: Step, position: int, version: int, target: Document
) -> Iterator[Diagnostic]:
    """Yields findings about members of a step with the path of the step in its file."""
    at = migration_path(target, version)
    if at:
        at += [FieldName("steps"), position]
    at.append(FieldName(step.name))
    for each in found:
        member = [FieldName(each.path)] if each.path else []
        yield replace(each, path=format_path([*at, *member]))


def migration_path(target: Document, version: int) -> list[Any]:
    """The path of the migration that starts at a version; empty if the target declares none."""
    for index, migration in enumerate(target.migrations):
        if migration.from_version == version:
            return [FieldName("migrations"), index]
    return []


def undone(stages: Sequence[Stage], start: Document) -> list[Stage]:
    """The chain that leads back; the inverse of :func:`stages_of`.

    Args:
        stages: The upgrade.
        start: The version that it leads to, where the downgrade starts; it may allow more than the last stage does.

    Raises:
        SchemaError: NQX307 or NQX423 for every step that cannot be undone.
    """
    found: list[Diagnostic] = []
    back: list[Stage] = []
    document = start_of(start, stages[0].before) if stages else start
    for position in reversed(range(len(stages))):
        stage = stages[position]
        try:
            for step in inverse(stage.step, stage.before, stage.after):
                # The target of a step back is known exactly: the declaration before the step itself.
                back.append(staged(document, step, stage.before))
                document = back[-1].after
        except SchemaError as error:
            version = stage.before.version
            found += placed(error.diagnostics, stage.step, position, version, start)
            document = stage.before.model_copy(update={"version": start.version})
    if found:
        raise SchemaError(found)
    return back


# ---------------------------------------------------------------------------------------------------------------------
# A hop without declared steps.


@dataclass(slots=True, eq=False)
class Resolution:
    """Steps that bring payloads of one version to another where none are declared.

    Attributes:
        document: The declaration after the steps.
        target: The wanted version.
        stages: Renames from aliases (of members of enums too), additions of defaults, casts that hold every value, in the order to apply them.
        problems: The differences that are left.
    """

    document: Document
    target: Document
    stages: list[Stage] = field(default_factory=list)
    problems: list[Difference] = field(default_factory=list)

    def take(self, step: Step) -> bool:
        """Adds a step if it applies; else the difference is left, and reported."""
        try:
            self.stages.append(staged(self.document, step, self.target))
        except SchemaError:
            return False
        self.document = self.stages[-1].after
        return True


def resolution(old: Document, new: Document, *, drop: bool = False) -> Resolution:
    """Resolves a hop by aliases, defaults and exact promotion; by nothing else.

    Args:
        old: The declaration that payloads conform to.
        new: The wanted one.
        drop: Remove stored fields that the new version lacks, instead of reporting them.

    Raises:
        SchemaError: NQX321: there are too many differences for the size of the declarations.

    Example:
        >>> resolution(v1, v1).problems
        []
    """
    made = Resolution(start_of(old, new), new)
    for name, struct in new.structs.items():
        for alias in struct.aliases:
            known = made.document.structs
            if alias in known and name not in known and alias not in new.structs:
                made.take(build.rename_struct(struct=alias, to=name))
    for name in new.enums:
        _rename_members(name, made)
    found = differences(made.document, new)
    require_bounded(len(found), old, new)
    for difference in found:
        if difference.missing:
            _supply(difference, made)
    for difference in differences(made.document, new):
        if difference.field and not difference.missing and not difference.extra:
            _promote(difference, made)
    left = differences(made.document, new)
    for extra in [each for each in left if each.extra and drop]:
        declaration = made.document.structs[extra.struct].fields[extra.field]
        undo = {"undo_default": declaration.default} if declaration.has_default else {"lossy": True}
        made.take(build.remove(field=extra.field, within=extra.struct, **undo))
    made.problems = differences(made.document, new)
    if made.problems:  # a migration has to resolve every difference, these too
        listed = {each.path for each in made.problems}
        others = [each for each in differences(old, new) if not (drop and each.extra)]
        made.problems += [each for each in others if each.path not in listed]
    return made


def _rename_members(name: str, made: Resolution) -> None:
    """Gives the members of an enum their new names, where the wanted version knows the former ones."""
    old, new = made.document.enums.get(name), made.target.enums[name]
    names, kept = new.former, {*new.members}
    former = {} if old is None else {each: names.get(each) for each in old.members}
    values = {each: to for each, to in former.items() if to and each not in kept}
    if values:
        joined = len({*values.values()} - former.keys()) < len(values)
        made.take(build.map_enum(enum=name, values=values, lossy=joined))


def _supply(missing: Difference, made: Resolution) -> None:
    """Finds a missing field under a former name, or adds it with its default."""
    name, within = missing.field, missing.struct
    have, want = made.document.structs[within].stored, made.target.structs[within].stored
    for alias in want[name].aliases:
        step = build.rename(field=alias, to=name, within=within)
        if alias in have and alias not in want and made.take(step):
            return
    if want[name].has_default:
        made.take(build.add(field=name, default=want[name].default, within=within))


def _promote(difference: Difference, made: Resolution) -> None:
    """Casts the arrays of a field to the wanted dtype, if it holds every value of theirs."""
    name, within = difference.field, difference.struct
    old, wanted = (
        {
            dtype
            for array in arrays_of(document.structs[within].fields[name].declared)
            for dtype in array.dtypes
        }
        for document in (made.document, made.target)
    )
    if len(wanted) == 1 and all(promotes(dtype, *wanted) for dtype in old):
        made.take(build.cast(field=name, dtype=wanted.pop(), within=within))


# ---------------------------------------------------------------------------------------------------------------------
# Enums between two versions.


def defaulted(have: Document, want: Document) -> Iterator[Diagnostic]:
    """Yields NQX250 for members of enums that become the default."""
    for name, enum in want.enums.items():
        members = have.enums[name].members if name in have.enums else []
        kept = {*enum.members}
        gone = [member for member in members if member not in kept]
        if gone and enum.default is not None:
            path = format_path([FieldName("enums"), FieldName(name)])
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
# Hops.


#: Treatment of stored fields that the reader's version lacks.
Unknown = Literal["error", "warn", "drop"]


@dataclass(frozen=True, eq=False)
class Hop:
    """The steps from one version to the next, up or down: those that it declares, or those that need no declaration.

    Attributes:
        old: The version that it starts from.
        new: The version that it leads to.
        stages: Its steps, each with the declarations around it.
        declared: True if a schema file declares the steps; else they follow from aliases, defaults and promotion.
        left: The differences that the steps leave.
        own: True if the reader has the steps, False if they come out of a bundle.
        unknown: The treatment of stored fields that the new version lacks, where no steps are declared, also of used
            schemas.
    """

    old: Document
    new: Document
    stages: tuple[Stage, ...]
    declared: bool
    left: tuple[Difference, ...] = ()
    own: bool = True
    unknown: Unknown = "error"

    @property
    def direction(self) -> Literal["upgrade", "downgrade"]:
        """Whether the version grows."""
        return "upgrade" if self.new.version > self.old.version else "downgrade"

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps alone."""
        return tuple(stage.step for stage in self.stages)

    @property
    def result(self) -> Document:
        """The declaration after the steps."""
        return self.stages[-1].after if self.stages else self.old

    @property
    def cost(self) -> Cost:
        """``manifest`` if no array is read."""
        return highest(map(build.cost, self.steps))

    @cached_property
    def back(self) -> tuple[Stage, ...]:
        """The steps that lead back.

        Raises:
            SchemaError: As :func:`undone`.
        """
        return tuple(undone(self.stages, self.new))

    def __str__(self) -> str:
        how = "" if self.declared else ", by aliases, defaults and exact promotion"
        lines = [f"{self.direction} {self.old.version} -> {self.new.version} ({self.cost}{how})"]
        return "\n".join([*lines, *(f"  {build.step_text(step)}" for step in self.steps)])


def highest(costs: Iterable[Cost]) -> Cost:
    """The highest of several costs, ``manifest`` if there are none."""
    order: tuple[Cost, ...] = ("manifest", "streaming", "opaque")
    return max(costs, key=order.index, default="manifest")


_HOPS: dict[tuple[int, int, bool], Hop] = {}
_MOST_HOPS = 64


def hop_between(old: Document, new: Document, *, drop: bool = False) -> Hop:
    """The hop from one version to the next one, which may leave differences.

    The last ones are kept: lint and verdicts go both ways, and a program loads many bundles of one version.

    Args:
        old: The declaration that payloads conform to.
        new: The wanted one.
        drop: Where no steps are declared: as for :func:`resolution`.

    Raises:
        SchemaError: As :func:`stages_of` or :func:`resolution`.
    """
    migration = new.migration_from(old.version)
    key = (id(old), id(new), drop and migration is None)
    hop = _HOPS.get(key)
    if hop is None:
        if migration is None:
            made = resolution(old, new, drop=drop)
            hop = Hop(old, new, tuple(made.stages), declared=False, left=tuple(made.problems))
        else:
            stages = tuple(stages_of(old, [item.step for item in migration.steps], new))
            left = differences(stages[-1].after if stages else old, new)
            hop = Hop(old, new, stages, declared=True, left=tuple(left))
        if len(_HOPS) >= _MOST_HOPS:
            _HOPS.clear()
        _HOPS[key] = hop  # it refers to both documents, so no other has their ids
    return hop
