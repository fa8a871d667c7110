"""Declarations of migrations: one model per step, as written under ``migrations:`` in a schema file.

Owns what a step says (its arguments), not what it does: ``evolution/steps.py`` holds for each of these models what it
does to a declaration and to a payload, and its inverse. A new step is a model and a member of :class:`StepItem` here,
and a row in the table there.

Example:
    >>> StepItem.model_validate({"rename": {"field": "rng", "to": "key"}}).step
    Rename(field='rng', to='key')
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr, model_validator

__all__ = [
    "Add",
    "Cast",
    "Declaration",
    "Fill",
    "Inline",
    "MapEnum",
    "Merge",
    "Migration",
    "Move",
    "Python",
    "Remove",
    "Rename",
    "RenamePath",
    "RenameStruct",
    "Reshape",
    "Split",
    "Step",
    "StepItem",
    "Transpose",
    "UnwrapKey",
    "WrapKey",
]

Name = Annotated[str, Field(strict=True, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
Size = StrictInt | StrictStr


class Declaration(BaseModel):
    """Base of everything that a schema file declares: frozen, strict about members, built when first used."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, defer_build=True, allow_inf_nan=False)

    def __copy__(self) -> Self:
        """A copy without what was computed from the original's members: the copy's may be other ones."""
        copied = super().__copy__()
        for name in copied.__dict__.keys() - type(self).model_fields.keys():
            del copied.__dict__[name]
        return copied

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        """Only what was said: most members are left out in most declarations."""
        return [(name, getattr(self, name)) for name in type(self).model_fields if name in self.model_fields_set]


class Step(Declaration):
    """What all steps share: they apply to the root struct, or with ``in`` to every instance of a struct."""

    within: Name | None = Field(None, alias="in", description="Name of the struct, if not the root.")


class Rename(Step):
    """A field gets another name."""

    field: Name
    to: Name


class RenamePath(Step):
    """What stands under a path of dict keys inside one field gets another path, whole: a subtree of Params, say."""

    field: Name
    path: StrictStr | list[StrictStr] = Field(min_length=1, description="Keys with slashes between them, or a list.")
    to: StrictStr | list[StrictStr] = Field(min_length=1, description="As path; nothing may stand there.")


class Add(Step):
    """A field appears; old payloads get ``default``."""

    field: Name
    default: Any = Field(..., description="The value in payloads that lack the field; a number fills an array.")


class Remove(Step):
    """A field goes away; a downgrade puts ``undo_default`` in its place, or ``lossy`` admits that it cannot."""

    field: Name
    undo_default: Any = None
    lossy: StrictBool = False


class Cast(Step):
    """An array changes its dtype, exactly unless said otherwise."""

    field: Name
    dtype: StrictStr
    exact: StrictBool = Field(True, description="Refuse arrays with a value that the new dtype cannot hold.")
    lossy: StrictBool = Field(False, description="Needed beside exact: false.")


class Transpose(Step):
    """The axes of an array change their order."""

    field: Name
    axes: list[StrictInt] | None = Field(None, description="As in numpy.transpose; reversed if absent.")


class Reshape(Step):
    """An array changes its shape, not its elements or their order (C order)."""

    field: Name
    shape: list[Size]


class Split(Step):
    """One array becomes several along an axis, or a complex array its real and imaginary parts."""

    field: Name
    axis: StrictInt = 0
    into: dict[Name, Size] | list[Name] = Field(
        description="Sizes by name; two names with how: complex; names with how: stack."
    )
    how: Literal["concat", "stack", "complex"] = "concat"


class Merge(Step):
    """Several arrays become one: joined along an axis, stacked along a new one, or as real and imaginary part."""

    fields: list[Name] = Field(min_length=2)
    into: Name
    how: Literal["concat", "stack", "complex"]
    axis: StrictInt = 0


class Move(Step):
    """Fields move into a nested struct, which is made if it is not there."""

    fields: list[Name] = Field(min_length=1)
    into: Name
    struct: Name


class Inline(Step):
    """Fields of a nested struct move up; the nested struct goes away once it is empty."""

    field: Name
    fields: list[Name] = Field(min_length=1)


class Fill(Step):
    """Null becomes a value, for fields that are no longer optional."""

    field: Name
    value: Any


class WrapKey(Step):
    """The raw words of a random key become a typed key."""

    field: Name
    impl: StrictStr


class UnwrapKey(Step):
    """A typed random key becomes its raw words."""

    field: Name


class RenameStruct(Step):
    """A struct gets another name."""

    struct: Name
    to: Name


class MapEnum(Step):
    """Members of an enum, or of one field with literal strings, get other names."""

    enum: Name | None = Field(None, description="The enum; every value of it in a payload is renamed.")
    field: Name | None = Field(None, description="The field of literal strings, where it is not an enum.")
    values: dict[str, StrictStr] = Field(min_length=1, description="New names by old; the others stay.")
    undo: dict[str, StrictStr] = Field(
        default_factory=dict, description="Old names by new, where several old ones became one."
    )
    lossy: StrictBool = Field(False, description="Admits that a downgrade cannot tell merged members apart.")


class Python(Step):
    """A registered function computes fields from fields; for what no other step can say."""

    function: StrictStr = Field(min_length=1, description="The name under which Python code registers it.")
    reads: list[Name] = Field(min_length=1, description="Fields that it is given.")
    writes: list[Name] = Field(min_length=1, description="Fields that it gives, as the new version declares them.")
    inverse: StrictStr | None = Field(None, description="The function that leads back.")
    lossy: StrictBool = Field(False, description="Gives up downgrades, where there is no inverse.")


class StepItem(Declaration):
    """One entry of ``steps:``: a mapping with one member, the step's name."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})

    rename: Rename | None = None
    add: Add | None = None
    remove: Remove | None = None
    cast: Cast | None = None
    transpose: Transpose | None = None
    reshape: Reshape | None = None
    split: Split | None = None
    merge: Merge | None = None
    move: Move | None = None
    inline: Inline | None = None
    fill: Fill | None = None
    wrap_key: WrapKey | None = None
    unwrap_key: UnwrapKey | None = None
    rename_struct: RenameStruct | None = None
    rename_path: RenamePath | None = None
    map_enum: MapEnum | None = None
    python: Python | None = None

    @model_validator(mode="after")
    def _one_step(self) -> Self:
        if len(self.model_fields_set) != 1 or self.step is None:
            raise ValueError(f"exactly one step in each entry, got {sorted(self.model_fields_set) or 'none'}")
        return self

    @property
    def name(self) -> str:
        """The step's name in schema files, such as ``rename``."""
        return next(iter(self.model_fields_set))

    @property
    def step(self) -> Step:
        """The step that the entry holds."""
        step: Step = getattr(self, self.name)
        return step


class Migration(Declaration):
    """How payloads of version ``from`` become payloads of the version whose file this is."""

    from_version: StrictInt = Field(alias="from", ge=1)
    steps: list[StepItem]
