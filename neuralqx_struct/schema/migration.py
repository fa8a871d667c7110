"""Migration steps as written under ``migrations:`` in a schema file, one Pydantic model per step, and compatibility modes.

Contains the arguments of each step. Its effect on declarations and payloads and its inverse are in its record in the
table of ``evolution/steps``, which fails at import if a model here has no record there.

Example:
    >>> StepItem.model_validate({"rename": {"field": "rng", "to": "key"}}).step
    Rename(field='rng', to='key')
"""

# Without annotations as text: pydantic would compile each of two hundred again, at the start of every command.
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self, TypeVar, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetPydanticSchema,
    StrictBool,
    StrictInt,
    StrictStr,
    model_serializer,
    model_validator,
)

_T = TypeVar("_T")

#: A name of a field, a struct, a dim or a layout.
NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")
Name = Annotated[str, Field(strict=True, pattern=f"^{NAME.pattern}$")]
Size = StrictInt | StrictStr
#: A list; type checkers accept any sequence, as the builders in ``evolution/steps`` do.
Listed = Annotated[
    Sequence[_T], GetPydanticSchema(lambda source, handler: handler(list[get_args(source)]))  # type: ignore[misc]
]


class Declaration(BaseModel):
    """Base of all models of schema files: frozen, refuses unknown members, compiled on first use."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", populate_by_name=True, defer_build=True, allow_inf_nan=False
    )

    def __copy__(self) -> Self:
        """A copy without cached properties, because the members of the copy may differ."""
        copied = super().__copy__()
        for name in copied.__dict__.keys() - type(self).model_fields.keys():
            del copied.__dict__[name]
        return copied

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        """The members that were given; most declarations leave most members out."""
        return [
            (name, getattr(self, name))
            for name in type(self).model_fields
            if name in self.model_fields_set
        ]


class Step(Declaration):
    """Base of all steps: a step applies to the root struct, or with ``in`` to every instance of a struct."""

    #: The step in schema files and the builder in Python: the name of the class in snake case.
    name: ClassVar[str] = ""

    # No plain alias: type checkers would take it for the name of the parameter, and `in` is a keyword.
    within: Name | None = Field(
        default=None,
        validation_alias="in",
        serialization_alias="in",
        description="Name of the struct, if not the root.",
    )

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", cls.__name__).lower()


class Rename(Step):
    """A field gets another name."""

    field: Name
    to: Name


#: Keys with slashes between them, or a list of any names.
KeyPath = StrictStr | Listed[StrictStr]
_CLASS = "A class in the field, such as ScaleByAdamState: every path starts at each instance of it."
_ENTRY = "An entry inside the field: keys, fields of classes and positions, with slashes between them, or a list."


class RenamePath(Step):
    """An entry inside one field, such as a part of Params or of an optimiser state, gets another path."""

    field: Name
    path: KeyPath = Field(min_length=1, description=_ENTRY)
    to: KeyPath = Field(min_length=1, description="As path; there must be no entry.")
    of: StrictStr | None = Field(default=None, description=_CLASS)


_LIKE = (
    "A field of the struct, or with path an entry, whose structure, dtypes and shapes the new one has; "
    "the number beside it fills its arrays."
)


class Add(Step):
    """A field, or with ``path`` an entry inside of one, appears; old payloads get ``default``, or a copy of another field."""

    field: Name
    path: KeyPath | None = Field(default=None, min_length=1, description=_ENTRY)
    like: KeyPath | None = Field(default=None, min_length=1, description=_LIKE)
    of: StrictStr | None = Field(default=None, description=_CLASS)
    default: Any = Field(
        default=None,
        description="The value in payloads that lack the field; a number fills an array.",
    )
    # Not `copy`: that is a method of every model.
    copy_of: Name | None = Field(
        default=None,
        validation_alias="copy",
        serialization_alias="copy",
        description="In place of default: a field of the same type in the struct, whose value the new one gets.",
    )

    @model_serializer(mode="wrap")
    def _with_null(self, handler: Callable[[Self], dict[str, Any]]) -> dict[str, Any]:
        """The members, ``default: null`` too where members with their default are left out: it is a value of its own."""
        data = handler(self)
        return data | {"default": self.default} if "default" in self.model_fields_set else data


class Remove(Step):
    """A field, or with ``path`` an entry inside of one, goes away; downgrades get ``undo_default``, or a copy of another field.

    ``lossy`` gives up downgrades.
    """

    field: Name
    path: KeyPath | None = Field(default=None, min_length=1, description=_ENTRY)
    like: KeyPath | None = Field(
        default=None, min_length=1, description="With undo_default, as in add."
    )
    of: StrictStr | None = Field(default=None, description=_CLASS)
    undo_default: Any = None
    undo_copy: Name | None = Field(
        default=None, description="In place of undo_default, as copy in add."
    )
    lossy: StrictBool = False


class Cast(Step):
    """An array changes its dtype, exactly unless ``exact: false``."""

    field: Name
    dtype: StrictStr
    exact: StrictBool = Field(
        default=True, description="Refuse arrays with a value that the new dtype cannot hold."
    )
    lossy: StrictBool = Field(default=False, description="Needed beside exact: false.")


class Convert(Step):
    """Numbers change their form: int, float, list of numbers or array, exactly unless ``exact: false``; or text: str, enum, literals."""

    field: Name
    to: StrictStr = Field(
        description="The new type, such as float, float32[], float64[n], list[int], str or the name of an enum."
    )
    exact: StrictBool = Field(
        default=True, description="Refuse a number that the new type cannot hold."
    )
    lossy: StrictBool = Field(default=False, description="Needed beside exact: false.")


class Transpose(Step):
    """The axes of an array change their order."""

    field: Name
    axes: Listed[StrictInt] | None = Field(
        default=None, description="As in numpy.transpose; reversed if absent."
    )


class Reshape(Step):
    """An array changes its shape, not its elements or their order (C order)."""

    field: Name
    shape: Listed[Size]


#: The ways in which several fields are one.
How = Literal["concat", "stack", "complex", "list", "tuple", "dict"]


class Split(Step):
    """One array becomes several along an axis, or real and imaginary part; or the values of a list, tuple or dict become fields."""

    field: Name
    axis: StrictInt = 0
    into: dict[Name, Size] | Listed[Name] = Field(
        description="Sizes by name; two names with how: complex; names with how: stack, list, tuple or dict."
    )
    how: How = "concat"


class Merge(Step):
    """Several arrays become one: joined along an axis, stacked along a new one, or as real and imaginary part; or several fields one list, tuple or dict."""

    fields: Listed[Name] = Field(min_length=1)
    into: Name
    how: How
    axis: StrictInt = 0


class Move(Step):
    """Fields move into a nested struct, which is made if it is not there."""

    fields: Listed[Name] = Field(min_length=1)
    into: Name
    struct: Name


class Inline(Step):
    """Fields of a nested struct move up; the nested struct goes away once it is empty."""

    field: Name
    fields: Listed[Name] = Field(min_length=1)


class Stack(Step):
    """A list of structs becomes one struct whose arrays have a leading axis, for scan over layers."""

    field: Name
    size: Size | None = Field(
        default=None, description="The number of layers, where the list declares no length."
    )


class Unstack(Step):
    """A stacked struct becomes a list of structs."""

    field: Name


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

    enum: Name | None = Field(
        default=None, description="The enum; every value of it in a payload is renamed."
    )
    field: Name | None = Field(
        default=None, description="The field of literal strings, where it is not an enum."
    )
    values: dict[str, StrictStr] = Field(
        min_length=1, description="New names by old; the others stay."
    )
    undo: dict[str, StrictStr] = Field(
        default_factory=dict, description="Old names by new, where several old ones became one."
    )
    lossy: StrictBool = Field(
        default=False, description="Admits that a downgrade cannot separate merged members."
    )


class Python(Step):
    """A registered function computes fields from fields; for changes that no other step can make."""

    function: StrictStr = Field(
        min_length=1, description="The name under which Python code registers it."
    )
    reads: Listed[Name] = Field(min_length=1, description="Fields that it is given.")
    writes: Listed[Name] = Field(
        min_length=1, description="Fields that it gives, as the new version declares them."
    )
    inverse: StrictStr | None = Field(default=None, description="The function that leads back.")
    lossy: StrictBool = Field(
        default=False, description="Gives up downgrades, where there is no inverse."
    )


class StepItem(Declaration):
    """One entry of ``steps:``: a mapping with one member, the step's name."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})

    rename: Rename | None = None
    add: Add | None = None
    remove: Remove | None = None
    cast: Cast | None = None
    convert: Convert | None = None
    transpose: Transpose | None = None
    reshape: Reshape | None = None
    split: Split | None = None
    merge: Merge | None = None
    stack: Stack | None = None
    unstack: Unstack | None = None
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
            raise ValueError(
                f"exactly one step in each entry, got {sorted(self.model_fields_set) or 'none'}"
            )
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


# ---------------------------------------------------------------------------------------------------------------------
# Compatibility modes: Confluent's seven, under their names.


class Mode(NamedTuple):
    """One compatibility mode.

    Attributes:
        name: Its name in schema files and on the command line.
        directions: The readings that have to work: ``backward``, the new version reads payloads of the one before;
            ``forward``, the one before reads payloads of the new version.
        transitive: True if they have to work with all earlier versions.
        strictness: A larger one promises more; lowering it is reported.
    """

    name: str
    directions: tuple[str, ...]
    transitive: bool
    strictness: int


#: All modes by name.
MODES = {
    mode.name: mode
    for mode in (
        Mode("none", (), transitive=False, strictness=0),
        Mode("backward", ("backward",), transitive=False, strictness=3),
        Mode("backward-transitive", ("backward",), transitive=True, strictness=4),
        Mode("forward", ("forward",), transitive=False, strictness=1),
        Mode("forward-transitive", ("forward",), transitive=True, strictness=2),
        Mode("full", ("backward", "forward"), transitive=False, strictness=5),
        Mode("full-transitive", ("backward", "forward"), transitive=True, strictness=6),
    )
}
