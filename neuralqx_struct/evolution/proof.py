"""The proof that steps lead from one version to the next, and what resolves a hop for which no steps are declared.

Owns :func:`stages_of` (a chain of steps with the declaration between each two), its inverse :func:`undone`,
:func:`resolved` (aliases, defaults and exact promotion, expressed as
steps) and :func:`prove`, which lint shows. Touches no payload.

Example:
    >>> prove(v1, v2)
    []
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from neuralqx_struct.errors import Diagnostic, SchemaError
from neuralqx_struct.evolution import steps as build
from neuralqx_struct.evolution.casts import promotes
from neuralqx_struct.evolution.differences import Difference, differences
from neuralqx_struct.evolution.steps import apply_to_document, inverse, step_name
from neuralqx_struct.paths import FieldName, format_path
from neuralqx_struct.schema.migration import Add, Step
from neuralqx_struct.schema.model import Document, FieldDeclaration
from neuralqx_struct.schema.types import Array, walk_type

__all__ = ["Resolution", "Stage", "prove", "resolved", "stages_of", "undone"]


@dataclass(frozen=True, slots=True)
class Stage:
    """One step with the declarations before and behind it."""

    step: Step
    before: Document
    after: Document


# ---------------------------------------------------------------------------------------------------------------------
# Chains of steps, and their inverse.


def stages_of(old: Document, steps: Sequence[Step], target: Document) -> list[Stage]:
    """Apply steps to a declaration one after the other.

    Raises:
        SchemaError: Everything that is wrong with any step, with paths ``$.migrations[i].steps[j]...`` where the target
            declares the steps. A wrong step counts as none for those behind it.
    """
    stages: list[Stage] = []
    found: list[Diagnostic] = []
    for position, step in enumerate(steps):
        try:
            after = apply_to_document(old, step, target)
        except SchemaError as error:
            found += _placed(error, step, position, old.version, target)
            continue
        stages.append(Stage(step, old, after))
        old = after
    if found:
        raise SchemaError(found)
    return stages


def _placed(error: SchemaError, step: Step, position: int, version: int, target: Document) -> Iterator[Diagnostic]:
    """Findings about a member of a step, with the place of the step in its file."""
    which = next((i for i, m in enumerate(target.migrations) if m.from_version == version), None)
    at: list[Any] = [] if which is None else [FieldName("migrations"), which, FieldName("steps"), position]
    for found in error.diagnostics:
        path = format_path([*at, FieldName(step_name(step)), *([FieldName(found.path)] if found.path else [])])
        yield Diagnostic(found.code, found.severity, found.message, path=path, hint=found.hint)


def undone(stages: Sequence[Stage], start: Document) -> list[Stage]:
    """The chain that leads back: the inverse of :func:`stages_of`.

    Args:
        stages: The way up.
        start: The version that it leads to, from which the way back starts; it may allow more than the last stage does.

    Raises:
        SchemaError: NQX307 or NQX423 for every step without a way back.
    """
    found: list[Diagnostic] = []
    back: list[Stage] = []
    document = start
    for position in reversed(range(len(stages))):
        stage = stages[position]
        try:
            for step in inverse(stage.step, stage.before, stage.after):
                # What a step back leads to is known to the last detail: the declaration before the step itself.
                after = apply_to_document(document, step, stage.before)
                back.append(Stage(step, document, after))
                document = after
        except SchemaError as error:
            found += _placed(error, stage.step, position, stage.before.version, start)
            document = stage.before.model_copy(update={"version": start.version})
    if found:
        raise SchemaError(found)
    return back


# ---------------------------------------------------------------------------------------------------------------------
# A hop without declared steps.


@dataclass(frozen=True, slots=True)
class Resolution:
    """What brings payloads of one version to another without declared steps.

    Attributes:
        steps: Renames from aliases, additions of defaults, casts that hold every value, in the order to apply them.
        problems: What they do not resolve.
        dropped: Stored fields that the new version lacks, as struct and field.
    """

    steps: tuple[Step, ...]
    problems: tuple[Difference, ...]
    dropped: tuple[tuple[str, str], ...]


def resolved(old: Document, new: Document, *, drop: bool = False) -> Resolution:
    """Resolve a hop by aliases, defaults and exact promotion; by nothing else.

    Args:
        old: What payloads conform to.
        new: What is wanted.
        drop: Remove stored fields that the new version lacks, in place of reporting them as problems.

    Example:
        >>> resolved(v1, v1).problems
        ()
    """
    steps: list[Step] = []
    document = old

    def take(step: Step) -> bool:
        nonlocal document
        try:
            document = apply_to_document(document, step, new)
        except SchemaError:
            return False  # then the difference stays, and is reported with its own words
        steps.append(step)
        return True

    for name, struct in new.structs.items():
        for alias in struct.aliases:
            if alias in document.structs and name not in document.structs and alias not in new.structs:
                take(build.rename_struct(struct=alias, to=name))
    for difference in differences(document, new, hints=False):
        if difference.missing:
            wanted = new.structs[difference.struct].fields[difference.field]
            _supply(difference, wanted, document, new, take)
    for difference in differences(document, new, hints=False):
        if difference.field and not difference.missing and not difference.extra:
            dtype = _promotion(difference, document, new)
            if dtype is not None:
                take(build.cast(field=difference.field, dtype=dtype, within=difference.struct))
    left = differences(document, new, hints=False)
    extra = tuple((d.struct, d.field) for d in left if d.extra)
    for struct_name, field in extra if drop else ():
        declaration = document.structs[struct_name].fields[field]
        undo = {"undo_default": declaration.default} if declaration.has_default else {"lossy": True}
        take(build.remove(field=field, within=struct_name, **undo))
    return Resolution(tuple(steps), tuple(_hinted(document, old, new)), extra)


def _hinted(resolved: Document, old: Document, new: Document) -> Iterator[Difference]:
    """What is left with the steps that a migration needs: it starts from the old version, without what was resolved."""
    left = differences(resolved, new)
    hints = {(d.path, d.message): d.hint for d in differences(old, new)} if left else {}
    for difference in left:
        yield replace(difference, hint=hints.get((difference.path, difference.message), difference.hint))


def _supply(difference: Difference, wanted: FieldDeclaration, document: Document, new: Document, take: Any) -> None:
    """Find a missing field under a former name, or give it its default."""
    have, want = document.structs[difference.struct].stored, new.structs[difference.struct].stored
    for alias in wanted.aliases:
        if (
            alias in have
            and alias not in want
            and take(build.rename(field=alias, to=difference.field, within=difference.struct))
        ):
            return
    if wanted.has_default:
        take(build.add(field=difference.field, default=wanted.default, within=difference.struct))


def _promotion(difference: Difference, document: Document, new: Document) -> str | None:
    """The dtype that a field's arrays can be cast to without a loss, so that its type is the wanted one."""
    have = document.structs[difference.struct].fields[difference.field].declared
    want = new.structs[difference.struct].fields[difference.field].declared
    old = {inner.dtype for inner in walk_type(have) if isinstance(inner, Array)}
    wanted = {inner.dtype for inner in walk_type(want) if isinstance(inner, Array)}
    if len(wanted) != 1 or not all(promotes(dtype, *wanted) for dtype in old):
        return None
    return wanted.pop()


# ---------------------------------------------------------------------------------------------------------------------
# The proof.


def prove(old: Document, new: Document) -> list[Diagnostic]:
    """Check that the declared steps lead from one version to the next, and back.

    Args:
        old: The version that the steps start from.
        new: The version that declares them.

    Returns:
        Empty if every payload of ``old`` becomes one of ``new``. Otherwise NQX301 (no steps, and aliases, defaults and
        exact promotion do not suffice), NQX305 (the steps lead elsewhere), one diagnostic for each difference, and what
        is wrong with single steps. NQX307 (no way back) and NQX319 are warnings.

    Example:
        >>> prove(v1, v2)
        []
    """
    if old.id != new.id:
        message = f"expected two versions of {new.id}, got one of {old.id}"
        return [Diagnostic("NQX283", "error", message, path="$.schema")]
    migration = new.migration_from(old.version)
    if migration is None:
        return [_missing_step(problem, old, new) for problem in resolved(old, new).problems]
    steps = [item.step for item in migration.steps]
    try:
        stages = stages_of(old, steps, new)
    except SchemaError as error:
        return list(error.diagnostics)
    result = stages[-1].after if stages else old
    found = [problem.to_diagnostic("NQX305") for problem in differences(result, new)]
    return (
        [*found, *_other_defaults(steps, old, new)]
        if found
        else [*_other_defaults(steps, old, new), *_no_way_back(old, stages, new)]
    )


def _missing_step(problem: Difference, old: Document, new: Document) -> Diagnostic:
    found = problem.to_diagnostic("NQX301")
    why = f"\nno migration from version {old.version} to {new.version} is declared, and no alias, default or exact promotion helps"
    return Diagnostic(found.code, found.severity, found.message + why, path=found.path, hint=found.hint)


def _other_defaults(steps: Sequence[Step], old: Document, new: Document) -> Iterator[Diagnostic]:
    for position, step in enumerate(steps):
        if not isinstance(step, Add):
            continue
        struct = new.structs.get(step.within or new.root)
        declaration = struct.fields.get(step.field) if struct else None
        if declaration is None or not declaration.has_default:
            continue
        if json.dumps(declaration.default, sort_keys=True) != json.dumps(step.default, sort_keys=True):
            message = f"expected the field's default {declaration.default!r}, got {step.default!r}"
            finding = SchemaError(
                message, code="NQX319", path="default", hint="fine if old payloads meant another value"
            )
            for found in _placed(finding, step, position, old.version, new):
                yield Diagnostic(found.code, "warning", found.message, path=found.path, hint=found.hint)


def _no_way_back(old: Document, stages: Sequence[Stage], new: Document) -> list[Diagnostic]:
    """Warnings about downgrades; a step with ``lossy: true`` has admitted that there is none."""
    try:
        back = undone(stages, new)
    except SchemaError as error:
        return [
            Diagnostic(d.code, "warning", d.message, path=d.path, hint=d.hint)
            for d in error.diagnostics
            if d.code != "NQX423"
        ]
    result = back[-1].after if back else new
    return [
        Diagnostic(
            "NQX307",
            "warning",
            f"{problem.message}\na downgrade to version {old.version} is refused where a payload makes use of the difference",
            path=format_path(map(FieldName, problem.path)),
        )
        for problem in differences(result, old, hints=False)
    ]
