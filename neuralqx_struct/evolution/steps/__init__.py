"""Migration steps: the table of their records, and the builders for Python.

Contains :data:`STEPS`, one record per step. A new step is a model and a member of ``StepItem`` in
``schema/migration.py``, a module with its record, and a row here. :func:`stages_of` applies steps to a declaration one after the
other, :func:`undone` leads back.

``rename``, ``move``, ``inline`` and ``rename_struct`` change no value, so equations of dims and constraints follow them: after
``rename: {field: config, to: settings}`` an equation ``n: {equals: 4 * config.n_heads}`` names ``settings.n_heads``, as the new
version does (:func:`with_moved_values`).

Example:
    >>> from neuralqx_struct.evolution import steps
    >>> steps.migration(1, [steps.rename(field="rng", to="key")]).steps[0].name
    'rename'
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from neuralqx_struct.errors import Diagnostic, SchemaError
from neuralqx_struct.evolution.payload_tree import Workspace
from neuralqx_struct.evolution.steps.additions import ADD, REMOVE, add, remove
from neuralqx_struct.evolution.steps.arrays import (
    CAST,
    RESHAPE,
    TRANSPOSE,
    cast,
    reshape,
    transpose,
)
from neuralqx_struct.evolution.steps.conversions import CONVERT, convert
from neuralqx_struct.evolution.steps.fields import FILL, MAP_ENUM, fill, map_enum
from neuralqx_struct.evolution.steps.keys import UNWRAP_KEY, WRAP_KEY, unwrap_key, wrap_key
from neuralqx_struct.evolution.steps.operations import (
    Candidate,
    Cost,
    Edit,
    Gap,
    Scope,
    Stage,
    StepKind,
)
from neuralqx_struct.evolution.steps.parts import MERGE, SPLIT, merge, split
from neuralqx_struct.evolution.steps.python import PYTHON, function, python
from neuralqx_struct.evolution.steps.renames import RENAME, RENAME_PATH, rename, rename_path
from neuralqx_struct.evolution.steps.stacks import STACK, UNSTACK, stack, unstack
from neuralqx_struct.evolution.steps.structs import (
    INLINE,
    MOVE,
    RENAME_STRUCT,
    inline,
    move,
    rename_struct,
)
from neuralqx_struct.expressions import parse
from neuralqx_struct.expressions.grammar import is_given, steps_of
from neuralqx_struct.expressions.renamed_words import renamed_text
from neuralqx_struct.paths import FieldName, format_path
from neuralqx_struct.printing import brief
from neuralqx_struct.schema.field_paths import Places, fields_on, moved
from neuralqx_struct.schema.migration import Migration, Step, StepItem
from neuralqx_struct.schema.model import DimDeclaration, Document, FieldDeclaration
from neuralqx_struct.schema.sizes.scopes import int_field, sizes_of_struct, start_of
from neuralqx_struct.schema.text.yaml_writer import flow

__all__ = [
    "add",
    "apply_to_document",
    "apply_to_workspace",
    "cast",
    "convert",
    "copied_fields",
    "cost",
    "fill",
    "function",
    "inline",
    "inverse",
    "map_enum",
    "merge",
    "migration",
    "move",
    "python",
    "remove",
    "rename",
    "rename_path",
    "rename_struct",
    "reshape",
    "split",
    "stack",
    "step_name",
    "step_text",
    "transpose",
    "unstack",
    "unwrap_key",
    "wrap_key",
]


def with_moved_values(before: Document, after: Document, owner: str, places: Places) -> Document:
    """The declaration after a step, with equations that name values at their new places.

    Args:
        before: The declaration before the step.
        after: The one that the step declares.
        owner: The struct whose fields have other places.
        places: The places.
    """
    if all(dim.equals is None for dim in before.dims.values()):
        return after
    names = {path: moved(before, before.root, path, owner, places) for path in _paths(before)}
    names = {path: new for path, new in names.items() if _is_free(before, path, new)}
    if not names:
        return after
    dims = dict(after.dims)
    for name, dim in before.dims.items():
        if dim.equals is not None:
            text = renamed_text(parse(str(dim.equals)), names)
            if text != str(dim.equals):
                dims[name] = DimDeclaration.model_validate({**dim.model_dump(), "equals": text})
    made = after.model_copy(update={"dims": dims})
    if before.tied is None or after.tied is None:
        return made
    tied = dict(after.tied)
    for path, new in names.items():
        known = _fields(before, path)
        if known and all(before.tied.get(key) is field for key, field in known.items()):
            tied |= _fields(made, new)
    return made.stage({}, tied)


def _paths(document: Document) -> Iterator[str]:
    """Yields the paths, and the static ints of the root, that equations of dims name."""
    for dim in document.dims.values():
        for name in dim.equation.names if dim.equation else ():
            if is_given(name):
                yield from parse(name).names
            elif name not in document.dims and int_field(document, name):
                yield name


def _is_free(document: Document, path: str, new: str) -> bool:
    """True if equations may name a value by its new path: names of sizes have a meaning, and keep it."""
    if steps_of(new):
        return True
    sizes = sizes_of_struct(document, document.root)
    return path not in sizes and new not in {*sizes, *document.dims, *_paths(document)}


def _fields(document: Document, path: str) -> dict[str, FieldDeclaration]:
    """The declarations of the fields on the way of a path; of a static int of the root under the name of its size."""
    field = int_field(document, path)
    return {path: field} if field else fields_on(document, path)


#: All steps by name. Suggestions for a field of another type are tried in this order.
STEPS: dict[str, StepKind[Any]] = {
    kind.model.name: kind
    for kind in (
        FILL,
        RENAME_STRUCT,
        WRAP_KEY,
        UNWRAP_KEY,
        CAST,
        CONVERT,
        TRANSPOSE,
        RESHAPE,
        MAP_ENUM,
        RENAME,
        RENAME_PATH,
        ADD,
        REMOVE,
        MOVE,
        INLINE,
        SPLIT,
        MERGE,
        STACK,
        UNSTACK,
        PYTHON,
    )
}
if STEPS.keys() != StepItem.model_fields.keys():
    lacking = sorted(STEPS.keys() ^ StepItem.model_fields.keys())
    raise ImportError(f"expected each step in StepItem and in STEPS, got one without: {lacking}")


def kind(step: Step) -> StepKind[Any]:
    """The record of a step."""
    return STEPS[step.name]


#: Every step copies the fields of its struct, and a chain of steps keeps every declaration in between.
_MOST_COPIES = 16_000_000


def copied_fields(document: Document) -> int:
    """The number of fields that a step copies at most."""
    return max(len(struct.fields) for struct in document.structs.values())


def require_bounded(steps: int, old: Document, new: Document) -> None:
    """Checks that steps are few enough for the size of the two declarations.

    Raises:
        SchemaError: NQX321.
    """
    fields = max(copied_fields(old), copied_fields(new))
    if steps * fields > _MOST_COPIES:
        most = _MOST_COPIES // fields
        message = f"expected at most {most} steps or differences for a struct of {fields} fields, got {steps}"
        hint = "let some fields be structs of their own, or go there in several versions"
        raise SchemaError(message, code="NQX321", path="$.migrations", hint=hint)


def apply_to_document(document: Document, step: Step, target: Document) -> Document:
    """The declaration after a step.

    Args:
        document: The declaration before it.
        step: The step.
        target: The version that the migration leads to: it declares the fields that ``add`` adds, and docs, tags and
            defaults of results.

    Raises:
        SchemaError: The step does not apply; the path of the diagnostic is ``$.<step>.<member>``.

    Example:
        >>> "h" in apply_to_document(v1, rename(field="h", to="transverse_field"), v2).structs["VMCState"].fields
        False
    """
    record = kind(step)
    made = record.declare(step, Scope.of(step, document, target))
    places = record.places(step)
    if places or record.renames_struct:
        return with_moved_values(document, made, step.within or document.root, places)
    return made


def staged(document: Document, step: Step, target: Document) -> Stage:
    """The step with its record, and the declarations around it; as :func:`apply_to_document`."""
    return Stage(step, kind(step), document, apply_to_document(document, step, target))


def apply_to_workspace(workspace: Workspace, step: Step, before: Document, after: Document) -> None:
    """Applies a step to every instance of its struct in a payload.

    Args:
        workspace: The payload's private copy.
        step: The step.
        before: The declaration that the payload conforms to.
        after: The declaration after the step, as :func:`apply_to_document` returns it.

    Raises:
        MigrationError: The payload does not hold the fields that its version declares, or a value refuses the step.
            A value that a cast cannot hold is found when the array is read.
    """
    found = kind(step)
    for struct in found.structs(step, before):
        places = workspace.instances(struct, before, after)
        if found.cost == "opaque":
            # A function makes new structs of what it reads, so those inside are done before it reads them.
            for place in reversed(places):
                workspace.rewrite(place.node, found.rewrite(step, place))
            continue
        made = [found.rewrite(step, place) for place in places]
        for place, node in zip(places, made, strict=True):
            workspace.rewrite(place.node, node)
    workspace.end_step(forget=found.checks_values or found.cost == "opaque")


def inverse(step: Step, before: Document, after: Document) -> list[Step]:
    """The steps that undo a step; none where ``after`` can be read as ``before`` as it is stored.

    Args:
        step: The step.
        before: The declaration that it was applied to.
        after: The declaration after it.

    Raises:
        SchemaError: NQX307: nothing declares the former state; NQX423: the step gave up downgrades with ``lossy: true``.

    Example:
        >>> [step_text(step) for step in inverse(rename(field="h", to="field"), v1, v2)]
        ['- rename: {field: field, to: h}']
    """
    found = kind(step).inverse(step, Scope.of(step, before, after), after)
    if step.within is None:
        return found
    return [back.model_copy(update={"within": step.within}) for back in found]


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


def cost(step: Step) -> Cost:
    """The bytes that a step moves: those of the manifest alone, or those of arrays, too."""
    record = kind(step)
    return "manifest" if record.spares_arrays(step) else record.cost


def step_name(step: Step) -> str:
    """The step's name in schema files, such as ``rename``."""
    return step.name


def suggestions(gap: Gap) -> Iterable[Sequence[Step]]:
    """Yields steps that may turn one type into another; the caller tries each of them."""
    for record in STEPS.values():
        for found in record.suggest(gap):
            yield (found,) if isinstance(found, Step) else found


def candidates(edit: Edit, *, named: bool, undone: bool = False) -> Iterator[Candidate]:
    """Yields what may have become of the fields that only one of two versions has.

    Args:
        edit: The fields.
        named: Those that the names of fields show, or the others.
        undone: Only those of kinds that are undone to go the other way.
    """
    for record in STEPS.values():
        if record.is_undone or not undone:
            yield from record.candidates(edit, named=named)


def step_text(step: Step) -> str:
    """The step as one line of a schema file.

    Example:
        >>> step_text(rename(field="rng", to="key"))
        '- rename: {field: rng, to: key}'
    """
    given = step.model_dump(by_alias=True, exclude_unset=True)
    if step.within is None:
        given.pop("in", None)
    return f"- {step.name}: {flow(given)}"


def migration(from_version: int, steps: Iterable[Step]) -> Migration:
    """How payloads of ``from_version`` become payloads of the version that declares this.

    Raises:
        TypeError: The version is no int that is 1 or more, or there is something else than steps.

    Example:
        >>> migration(2, [rename(field="rng", to="key")]).from_version
        2
    """
    if type(from_version) is not int or from_version < 1:
        wanted = "the version before, an int that is 1 or more"
        raise TypeError(f"steps.migration(): expected {wanted}, got {from_version!r}")
    given: Any = steps
    listed = isinstance(given, Iterable) and not isinstance(given, (str, Step))
    steps = [*given] if listed else []
    wrong = [step for step in steps if not isinstance(step, Step)] if listed else [given]
    if wrong:
        wanted = "a list of steps such as [s.steps.rename(field='a', to='b')]"
        raise TypeError(f"steps.migration(): expected {wanted}, got {brief(wrong[0])}")
    items = [StepItem.model_validate({step.name: step}) for step in steps]
    return Migration(from_version=from_version, steps=items)
