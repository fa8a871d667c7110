"""Migration steps: the table of what each one does, and the builders for Python.

Owns the one table from step models (``schema/migration.py``) to :class:`Operation` records. A new step is a model
there, three functions side by side in one of the ``*_steps.py``, and a row here.

Example:
    >>> from neuralqx_struct.evolution import steps
    >>> steps.migration(1, [steps.rename(field="rng", to="key")]).steps[0].name
    'rename'
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar

from pydantic import ValidationError

from neuralqx_struct.evolution import (
    array_steps,
    enum_steps,
    field_steps,
    key_steps,
    part_steps,
    path_steps,
    python_steps,
    struct_steps,
)
from neuralqx_struct.evolution.edits import Cost, Operation, target_struct
from neuralqx_struct.evolution.python_steps import Function, function, name_of
from neuralqx_struct.evolution.tree import Workspace
from neuralqx_struct.printing import brief
from neuralqx_struct.schema.migration import (
    Add,
    Cast,
    Fill,
    Inline,
    MapEnum,
    Merge,
    Migration,
    Move,
    Python,
    Remove,
    Rename,
    RenamePath,
    RenameStruct,
    Reshape,
    Split,
    Step,
    StepItem,
    Transpose,
    UnwrapKey,
    WrapKey,
)
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.scalars import number, plain, quoted

__all__ = [
    "OPERATIONS",
    "add",
    "apply_to_document",
    "apply_to_workspace",
    "cast",
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
    "step_name",
    "step_text",
    "transpose",
    "unwrap_key",
    "wrap_key",
]

_S = TypeVar("_S", bound=Step)

OPERATIONS: Mapping[type[Step], Operation] = {
    Rename: field_steps.RENAME,
    RenamePath: path_steps.RENAME_PATH,
    Add: field_steps.ADD,
    Remove: field_steps.REMOVE,
    Fill: field_steps.FILL,
    Move: struct_steps.MOVE,
    Inline: struct_steps.INLINE,
    RenameStruct: struct_steps.RENAME_STRUCT,
    MapEnum: enum_steps.MAP_ENUM,
    Python: python_steps.PYTHON,
    Cast: array_steps.CAST,
    Transpose: array_steps.TRANSPOSE,
    Reshape: array_steps.RESHAPE,
    Split: part_steps.SPLIT,
    Merge: part_steps.MERGE,
    WrapKey: key_steps.WRAP_KEY,
    UnwrapKey: key_steps.UNWRAP_KEY,
}

_NAMES: Mapping[type[Step], str] = {
    Rename: "rename",
    RenamePath: "rename_path",
    Add: "add",
    Remove: "remove",
    Fill: "fill",
    Move: "move",
    Inline: "inline",
    RenameStruct: "rename_struct",
    MapEnum: "map_enum",
    Python: "python",
    Cast: "cast",
    Transpose: "transpose",
    Reshape: "reshape",
    Split: "split",
    Merge: "merge",
    WrapKey: "wrap_key",
    UnwrapKey: "unwrap_key",
}


def apply_to_document(document: Document, step: Step, target: Document) -> Document:
    """The declaration behind a step.

    Args:
        document: The declaration before it.
        step: The step.
        target: The version that the migration leads to: it declares what ``add`` adds, and docs, tags and defaults of
            results.

    Returns:
        A document of the old version with the changed structs.

    Raises:
        SchemaError: The step does not apply; the path of the diagnostic is ``$.<step>.<member>``.

    Example:
        >>> "h" in apply_to_document(v1, rename(field="h", to="transverse_field"), v2).structs["VMCState"].fields
        False
    """
    return OPERATIONS[type(step)].declare(step, document, target)


def apply_to_workspace(workspace: Workspace, step: Step, before: Document, after: Document) -> None:
    """Apply a step to every instance of its struct in a payload.

    Args:
        workspace: The payload's private copy.
        step: The step.
        before: The declaration that the payload conforms to.
        after: The declaration behind the step, as :func:`apply_to_document` gives it.

    Raises:
        MigrationError: The payload does not hold what its version declares, or a value does not allow the step.
            A value that a cast cannot hold is found when the array is asked for.
    """
    rewrite = OPERATIONS[type(step)].rewrite
    for struct in _structs_of(step, before):
        for place in workspace.instances(struct, before, after):
            changed = rewrite(step, place)
            place.node.update(changed)


def _structs_of(step: Step, before: Document) -> Sequence[str]:
    """The structs whose instances a step changes."""
    match step:
        case RenameStruct(struct=struct):
            return (struct,)
        case MapEnum(enum=str(enum)):
            return enum_steps.structs_with(enum, before)
        case _:
            return (target_struct(step, before),)


def inverse(step: Step, before: Document, after: Document) -> list[Step]:
    """The steps that undo a step.

    Args:
        step: The step.
        before: The declaration that it was applied to.
        after: The declaration behind it.

    Returns:
        Steps that lead from ``after`` to ``before``; none where ``after`` can be read as ``before`` as it is stored.

    Raises:
        SchemaError: NQX307 nothing says what to go back to; NQX423 the step gave up downgrades with ``lossy: true``.

    Example:
        >>> [step_text(step) for step in inverse(rename(field="h", to="field"), v1, v2)]
        ['- rename: {field: field, to: h}']
    """
    return OPERATIONS[type(step)].inverse(step, before, after)


def cost(step: Step) -> Cost:
    """Whether a step touches the manifest alone or streams array bytes."""
    return OPERATIONS[type(step)].cost


def step_name(step: Step) -> str:
    """The step's name in schema files, such as ``rename``."""
    return _NAMES[type(step)]


def step_text(step: Step) -> str:
    """The step as one line of a schema file.

    Example:
        >>> step_text(rename(field="rng", to="key"))
        '- rename: {field: rng, to: key}'
    """
    given = step.model_dump(by_alias=True, exclude_unset=True)
    members = ", ".join(
        f"{name}: {_flow(value)}" for name, value in given.items() if not (name == "in" and value is None)
    )
    return f"- {step_name(step)}: {{{members}}}"


def _flow(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_flow(k)}: {_flow(v)}' for k, v in value.items())}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_flow, value))}]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return value if _BARE.fullmatch(value) and plain(value) == (value, None) else quoted(value)
    return number(value)


#: Text that every reader of YAML takes as it is: names, and sizes such as ``2 * n``.
_BARE = re.compile(r"(?![yYnN]\Z)[A-Za-z_]\w*([ ]?[-+*/.]{1,2}[ ]?\w+)*|\d+ [*+/-]{1,2} [\w ()*+/-]*[\w)]", re.ASCII)


# ---------------------------------------------------------------------------------------------------------------------
# Builders: `s.steps.rename(field="a", to="b")`. The schema language calls the struct `in`, a word that Python keeps.


def rename(*, field: str, to: str, within: str | None = None) -> Rename:
    """A field gets another name."""
    return _built(Rename, within, field=field, to=to)


def rename_path(
    *, field: str, path: str | Sequence[str], to: str | Sequence[str], within: str | None = None
) -> RenamePath:
    """What stands under a path of dict keys inside one field gets another path; ``net/encoder``, or a list of keys."""
    return _built(RenamePath, within, field=field, path=_listed(path), to=_listed(to))


def add(*, field: str, default: Any, within: str | None = None) -> Add:
    """A field appears; old payloads get ``default``, a number fills an array."""
    return _built(Add, within, field=field, default=default)


def remove(*, field: str, within: str | None = None, **undo: Any) -> Remove:
    """A field goes away; give ``undo_default=`` for downgrades, or ``lossy=True``."""
    return _built(Remove, within, field=field, **undo)


def cast(*, field: str, dtype: str, exact: bool = True, lossy: bool = False, within: str | None = None) -> Cast:
    """An array changes its dtype; exactly, or with ``exact=False, lossy=True`` to the nearest values."""
    loss = {} if exact is True and lossy is False else {"exact": exact, "lossy": lossy}
    return _built(Cast, within, field=field, dtype=dtype, **loss)


def transpose(*, field: str, axes: Sequence[int] | None = None, within: str | None = None) -> Transpose:
    """The axes of an array change their order; reversed without ``axes``."""
    given = {} if axes is None else {"axes": _listed(axes)}
    return _built(Transpose, within, field=field, **given)


def reshape(*, field: str, shape: Sequence[int | str], within: str | None = None) -> Reshape:
    """An array changes its shape, not its elements or their order."""
    return _built(Reshape, within, field=field, shape=_listed(shape))


def split(
    *,
    field: str,
    into: Mapping[str, int | str] | Sequence[str],
    axis: int = 0,
    how: Literal["concat", "stack", "complex"] = "concat",
    within: str | None = None,
) -> Split:
    """One array becomes several: sizes by name, or with ``how`` names alone."""
    names = dict(into) if isinstance(into, Mapping) else _listed(into)
    return _built(Split, within, field=field, axis=axis, into=names, how=how)


def merge(
    *,
    fields: Iterable[str],
    into: str,
    how: Literal["concat", "stack", "complex"],
    axis: int = 0,
    within: str | None = None,
) -> Merge:
    """Several arrays become one: joined, stacked, or as real and imaginary part."""
    return _built(Merge, within, fields=_listed(fields), into=into, how=how, axis=axis)


def move(*, fields: Iterable[str], into: str, struct: str, within: str | None = None) -> Move:
    """Fields move into a nested struct, which is made if it is not there."""
    return _built(Move, within, fields=_listed(fields), into=into, struct=struct)


def inline(*, field: str, fields: Iterable[str], within: str | None = None) -> Inline:
    """Fields of a nested struct move up."""
    return _built(Inline, within, field=field, fields=_listed(fields))


def fill(*, field: str, value: Any, within: str | None = None) -> Fill:
    """Null becomes a value."""
    return _built(Fill, within, field=field, value=value)


def wrap_key(*, field: str, impl: str, within: str | None = None) -> WrapKey:
    """The raw words of a random key become a typed key."""
    return _built(WrapKey, within, field=field, impl=impl)


def unwrap_key(*, field: str, within: str | None = None) -> UnwrapKey:
    """A typed random key becomes its raw words."""
    return _built(UnwrapKey, within, field=field)


def rename_struct(*, struct: str, to: str) -> RenameStruct:
    """A struct gets another name."""
    return _built(RenameStruct, None, struct=struct, to=to)


def map_enum(
    *,
    values: Mapping[str, str],
    enum: str | None = None,
    field: str | None = None,
    undo: Mapping[str, str] | None = None,
    lossy: bool = False,
    within: str | None = None,
) -> MapEnum:
    """Members of an enum, or of a field of literal strings, get other names; ``values`` has the new ones by the old."""
    given = {"enum": enum, "field": field, "undo": undo or None, "lossy": lossy or None}
    kept = {name: value for name, value in given.items() if value is not None}
    return _built(MapEnum, within, values=values, **kept)


def python(
    *,
    function: str | Function,
    reads: Iterable[str],
    writes: Iterable[str],
    inverse: str | Function | None = None,
    lossy: bool = False,
    within: str | None = None,
) -> Python:
    """A registered function computes fields from fields; see :func:`function`.

    Raises:
        TypeError: A function is given that is not registered.
    """
    back = {} if inverse is None else {"inverse": name_of(inverse)}
    loss = {} if lossy is False else {"lossy": lossy}
    return _built(
        Python, within, function=name_of(function), reads=_listed(reads), writes=_listed(writes), **back, **loss
    )


def _built(model: type[_S], within: str | None, **given: Any) -> _S:
    """The step, or a TypeError that names each argument that is not what it must be."""
    try:
        return model(**({} if within is None else {"within": within}), **given)
    except ValidationError as error:
        found: dict[str, list[str]] = {}
        values = {"within": within, **given}
        for item in error.errors(include_url=False):
            name = str(item["loc"][0])
            message = _WANTED.get(item["type"], item["msg"].removeprefix("Input should be "))
            found.setdefault("within" if name == "in" else name, []).append(message)
        lines = [
            f"{name}=: expected {' or '.join(dict.fromkeys(wanted))}, got {brief(values[name])}"
            if name in values and wanted != [_WANTED["extra_forbidden"]]
            else f"{name}=: expected a known argument, got {name!r}; known are {', '.join(model.model_fields)}"
            for name, wanted in found.items()
        ]
        raise TypeError("\n".join(f"steps.{_NAMES[model]}(): {line}" for line in lines)) from None


#: What an argument must be, by the finding that it is not.
_WANTED = {
    "string_type": "text",
    "string_pattern_mismatch": "a name (letters, digits, _, not starting with a digit)",
    "bool_type": "True or False",
    "int_type": "a whole number",
    "list_type": "a list",
    "dict_type": "a mapping",
    "too_short": "more entries",
    "string_too_short": "text that is not empty",
    "extra_forbidden": "a known argument",
}


def _listed(given: Any) -> Any:
    """A list of what is one of many; text and what has no entries stay, and are refused."""
    return [*given] if isinstance(given, Iterable) and not isinstance(given, (str, bytes, Mapping)) else given


def migration(from_version: int, steps: Iterable[Step]) -> Migration:
    """How payloads of ``from_version`` become payloads of the version that declares this.

    Raises:
        TypeError: The version is no int that is 1 or more, or there is something else than steps.

    Example:
        >>> migration(2, [rename(field="rng", to="key")]).from_version
        2
    """
    if type(from_version) is not int or from_version < 1:
        raise TypeError(
            f"steps.migration(): expected the version before, an int that is 1 or more, got {from_version!r}"
        )
    given: Any = steps
    listed = isinstance(given, Iterable) and not isinstance(given, (str, Step))
    steps = [*given] if listed else [given]
    wrong = [step for step in steps if type(step) not in _NAMES] if listed else steps
    if wrong:
        message = f"expected a list of steps such as [s.steps.rename(field='a', to='b')], got {brief(wrong[0])}"
        raise TypeError(f"steps.migration(): {message}")
    return Migration(from_version=from_version, steps=[StepItem(**{step_name(step): step}) for step in steps])
