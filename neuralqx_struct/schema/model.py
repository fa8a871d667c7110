"""Schema documents: the Pydantic models of one file.

Owns :class:`Document` and its parts. ``reading.py`` makes a document from a file, ``language.py`` publishes the JSON
Schema of the models, ``lint/`` checks the document as a whole, and ``types/`` reads its types.
"""

from __future__ import annotations

import functools
import re
import weakref
from collections.abc import Callable, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    Field,
    GetCoreSchemaHandler,
    GetPydanticSchema,
    PrivateAttr,
    StrictBool,
    StrictInt,
    StrictStr,
    model_validator,
)

from neuralqx_struct.dtypes import DTYPES, FAMILIES, dtypes_of
from neuralqx_struct.errors import SchemaError
from neuralqx_struct.expressions import Expression, parse_equation
from neuralqx_struct.expressions import parse as parse_expression
from neuralqx_struct.references import IDENTITY, SchemaRef
from neuralqx_struct.schema.migration import MODES, Declaration, Migration, Name, Step
from neuralqx_struct.types import TYPES, Type, walk_type
from neuralqx_struct.types.arrays import array_value
from neuralqx_struct.types.scalars import Scalar
from neuralqx_struct.types.text import Choices, format_type, parse_type

_T = TypeVar("_T")

#: The name of a compatibility mode.
Compatibility = Annotated[str, GetPydanticSchema(lambda _, handler: handler(Literal[tuple(MODES)]))]
Number = StrictInt | float
#: The members of a field that give its type.
TYPE_MEMBERS = {"type", "dtype", "shape", "impl"}
#: Member -> the code of an error about it, and the types that have it.
_TYPES_WITH = {
    "dtype": ("NQX101", "array"),
    "shape": ("NQX101", "array", "prng_key"),
    "impl": ("NQX126", "prng_key"),
}
_IDENTITY = f"^{IDENTITY.pattern}"

#: Examples that editors offer after ``type:``; they know the structs and enums of the file themselves.
TYPE_EXAMPLES = [
    *("array", "float32[n]"),
    *(record.name for record in TYPES.values() if isinstance(record, Scalar)),
    *("prng_key[threefry2x32]", "list[float]", "tuple[int, ...]"),
    *("dict[str, float]", "float | null"),
    *('literal["a", "b"]', "pytree"),
]


class DimDeclaration(Declaration):
    """A size shared by the whole instance tree."""

    min: StrictInt | None = Field(None, ge=0)
    max: StrictInt | None = Field(None, ge=0)
    equals: StrictStr | StrictInt | None = Field(
        None, description="Expression over dims, and static ints that the root holds."
    )
    doc: StrictStr = ""

    @cached_property
    def equation(self) -> Expression | None:
        """``equals`` as an expression."""
        return None if self.equals is None else parse_equation(str(self.equals))


class Listed(Declaration):
    """A declaration whose short form is the list of its members."""

    @model_validator(mode="before")
    @classmethod
    def _shorthand(cls, data: Any) -> Any:
        return {"members": data} if isinstance(data, list) else data


class EnumDeclaration(Listed):
    """A closed set of names."""

    members: list[Name] = Field(min_length=1)
    default: Name | None = Field(
        None, description="The member that unknown names of newer payloads become."
    )
    aliases: dict[Name, list[Name]] = Field(
        default_factory=dict,
        description="Former names by member, for payloads without a migration.",
    )
    doc: StrictStr = ""

    @property
    def former(self) -> dict[str, str]:
        """The members by their former names."""
        return {alias: name for name, aliases in self.aliases.items() for alias in aliases}


class DtypeDeclaration(Listed):
    """A choice of dtypes: all arrays of an instance tree that name it have the same one."""

    members: list[StrictStr] = Field(min_length=1, examples=[["float32", "bfloat16"]])
    doc: StrictStr = ""


class Constraint(Declaration):
    """A condition on the fields of one struct."""

    expr: StrictStr
    message: StrictStr = ""

    @cached_property
    def expression(self) -> Expression:
        """``expr`` parsed."""
        return parse_expression(self.expr)


def _is_array(text: Any) -> bool:
    """True if the text of a type starts with that of an array."""
    word = text.partition("[")[0].strip() if isinstance(text, str) else ""
    return word == "array" or dtypes_of(word) != ()


class FieldDeclaration(Declaration):
    """One field: ``{type: array, dtype: float32, shape: [n]}`` or the shorthand ``float32[n]``."""

    type: StrictStr | None = Field(
        None,
        description="array, int, float | null, list[Layer], a struct, an enum ...",
        examples=TYPE_EXAMPLES,
    )
    dtype: StrictStr | None = Field(
        None, description="With type: array.", examples=[*DTYPES, *FAMILIES]
    )
    shape: list[StrictInt | StrictStr] | None = Field(
        None, description="With type: array or prng_key; sizes or dims."
    )
    impl: StrictStr | None = Field(
        None, description="With type: prng_key.", examples=["threefry2x32", "rbg", "unsafe_rbg"]
    )
    kind: Literal["node", "static", "opaque"] = "node"
    default: Any = Field(
        None,
        description="For arrays: zeros, ones, {eye: n}, a number that fills it, or its numbers in lists.",
    )
    derived: StrictStr | None = Field(
        None, description="Expression that computes the field; it is never stored."
    )
    serialize: StrictBool | None = None
    reset: StrictBool = Field(
        False, description="Opaque fields: back to the default inside transformations."
    )
    doc: StrictStr = ""
    unit: StrictStr | None = None
    tags: list[StrictStr] = Field(default_factory=list)
    axes: list[Name] | None = Field(
        None,
        description="Names of the axes of an array, for shardings.",
        examples=[["batch", "embed"]],
    )
    aliases: list[Name] = Field(
        default_factory=list, description="Former names, for payloads without a migration."
    )
    deprecated: StrictBool | StrictStr = False
    examples: list[Any] = Field(default_factory=list)
    converter: StrictStr | None = Field(None, description="Registered name of a Python function.")
    validator: StrictStr | None = Field(None, description="Registered name of a Python function.")
    ge: Number | None = None
    gt: Number | None = None
    le: Number | None = None
    lt: Number | None = None
    multiple_of: Number | None = None
    min_length: StrictInt | None = Field(None, ge=0)
    max_length: StrictInt | None = Field(None, ge=0)
    pattern: StrictStr | None = None
    choices: list[Any] | None = None
    finite: StrictBool = False

    _dtypes: Choices = PrivateAttr(())

    @model_validator(mode="before")
    @classmethod
    def _shorthand(cls, data: Any) -> Any:
        if isinstance(data, dict) and _is_array(data.get("type")) and "default" in data:
            is_bool = "bool" in (data.get("dtype"), data["type"].partition("[")[0])
            return {**data, "default": array_value(data["default"], is_bool=is_bool)}
        return {"type": data} if isinstance(data, str) else data

    @property
    def has_default(self) -> bool:
        """True if the file gives a default, null included."""
        return "default" in self.model_fields_set

    @cached_property
    def stored(self) -> bool:
        """True if payloads hold the field."""
        if self.derived is not None:
            return False
        return self.kind != "opaque" if self.serialize is None else self.serialize

    @property
    def text(self) -> str:
        """The type in its text form, with the members ``dtype``, ``shape`` and ``impl``."""
        extents = ", ".join(map(str, self.shape or ()))
        if self.type == "array":
            return f"{self.dtype}[{'...' if self.shape is None else extents}]"
        if self.type == "prng_key" and (self.impl or extents):
            return f"prng_key[{', '.join(filter(None, [self.impl or '_', extents]))}]"
        return "pytree" if self.type is None else self.type

    @cached_property
    def declared(self) -> Type:
        """The type as a record.

        Raises:
            SchemaError: NQX101 or NQX102: the type is malformed.
        """
        if self.type == "array" and self.dtype is None:
            message = "expected a dtype beside type: array, got none"
            raise SchemaError(message, code="NQX102", hint="such as dtype: float32")
        for member, (code, *types) in _TYPES_WITH.items():
            if getattr(self, member) is not None and self.type not in types:
                message = f"expected type: {types[0]} beside {member}, got type: {self.type}"
                raise SchemaError(message, code=code)
        if self.type is None and self.kind != "opaque" and self.derived is None:
            hint = "only opaque and derived fields may lack one"
            raise SchemaError("expected a type, got none", code="NQX101", hint=hint)
        return parse_type(self.text, self._dtypes)

    # Steps and suggestions make many documents that share their fields, so facts about a field are kept with it.

    @cached_property
    def refers(self) -> tuple[str, ...]:
        """The structs and enums that its type names."""
        return tuple({inner.refers: None for inner in self.named})

    @cached_property
    def named(self) -> tuple[Type, ...]:
        """The types inside its type that name a struct or an enum."""
        return tuple(inner for inner in walk_type(self.declared) if inner.refers)

    @cached_property
    def is_open(self) -> bool:
        """True if values may hold any struct, as in a pytree."""
        return any(inner.takes_all for inner in walk_type(self.declared))

    @cached_property
    def sizes(self) -> frozenset[str]:
        """The names in its sizes: of shapes, lengths and arguments."""
        inside = walk_type(self.declared)
        sizes = (size for inner in inside for size in (*inner.extents, *inner.arguments))
        return frozenset[str]().union(*(size.names for size in sizes if size is not ...))

    @cached_property
    def is_int(self) -> bool:
        """True for a static int that payloads hold: it may be a size of its name."""
        if not self.stored or self.kind != "static":
            return False
        return not {"int", ""}.isdisjoint(branch.meaning for branch in self.declared.branches)

    @cached_property
    def derivation(self) -> Expression | None:
        """``derived`` as an expression."""
        return None if self.derived is None else parse_expression(self.derived)

    def with_type(self, declared: Type) -> FieldDeclaration:
        """The declaration with another type."""
        kept = {name: getattr(self, name) for name in self.model_fields_set - TYPE_MEMBERS}
        return self.of_type(declared, **kept)

    @classmethod
    def of_type(cls, declared: Type, **members: Any) -> FieldDeclaration:
        """A declaration of a type, with other members."""
        made = cls.model_validate({**members, "type": format_type(declared)})
        arrays = (inner for inner in walk_type(declared) if inner.choice)
        return made.choosing({array.element: array.choice for array in arrays})

    def choosing(self, dtypes: Mapping[str, tuple[str, ...]]) -> FieldDeclaration:
        """The declaration, with the choices of dtypes that its type may name."""
        named = dtypes.keys() & set(re.findall(r"\w+", self.text)) if dtypes else ()
        self._dtypes = tuple((name, dtypes[name]) for name in sorted(named))
        return self


class StructDeclaration(Declaration):
    """One struct: its fields in order, and conditions on them."""

    doc: StrictStr = ""
    params: list[Name] = Field(
        default_factory=list, description="Dims that a use binds, as in Dense[d, ff]."
    )
    reserved: list[Name] = Field(default_factory=list, description="Names that may not come back.")
    aliases: list[Name] = Field(default_factory=list, description="Former names of the struct.")
    fields: dict[Name, FieldDeclaration]
    constraints: list[Constraint] = Field(default_factory=list)

    @cached_property
    def stored(self) -> Mapping[str, FieldDeclaration]:
        """The fields that payloads hold."""
        return MappingProxyType({name: d for name, d in self.fields.items() if d.stored})

    def held(self, name: str) -> FieldDeclaration | None:
        """A field that payloads hold, for steps: each makes another struct, whose ``stored`` it need not compute."""
        found = self.fields.get(name)
        return found if found is not None and found.stored else None

    @cached_property
    def refers(self) -> frozenset[str]:
        """The structs and enums that the types of its fields name."""
        return frozenset(
            name for d in self.fields.values() if d.type is not None for name in d.refers
        )

    @cached_property
    def sizes(self) -> frozenset[str]:
        """The names in the sizes of its fields: of shapes, lengths and arguments."""
        return frozenset[str]().union(*(d.sizes for d in self.stored.values()))

    @cached_property
    def conditions(self) -> tuple[Expression, ...]:
        """The expressions that the constraints depend on: their own, and those of derived fields."""
        if not self.constraints:
            return ()
        return (*(constraint.expression for constraint in self.constraints), *self.derivations)

    @cached_property
    def derivations(self) -> tuple[Expression, ...]:
        """The expressions of the derived fields."""
        return tuple(d.derivation for d in self.fields.values() if d.derivation is not None)


def _short(declared: dict[str, Any], only: str) -> Any:
    return declared[only] if declared.keys() == {only} and declared[only] is not None else declared


class Document(Declaration):
    """One version of one schema: the content of one file."""

    language: Literal["1"]
    id: Annotated[str, Field(strict=True, pattern=f"{_IDENTITY}$")] = Field(
        alias="schema", description="The identity, the same in every version."
    )
    version: StrictInt = Field(ge=1)
    doc: StrictStr = ""
    root: Name
    compatibility: Compatibility = "backward-transitive"
    uses: list[Annotated[str, Field(strict=True, pattern=f"{_IDENTITY}@[1-9][0-9]{{0,8}}$")]] = (
        Field(
            default_factory=list,
            description="Other schemas; types name their structs as in lab.optim.Adam.",
        )
    )
    dims: dict[Name, DimDeclaration] = Field(default_factory=dict)
    enums: dict[Name, EnumDeclaration] = Field(default_factory=dict)
    dtypes: dict[Name, DtypeDeclaration] = Field(
        default_factory=dict, description="Choices of dtypes, one for all arrays that name it."
    )
    structs: dict[Name, StructDeclaration] = Field(min_length=1)
    migrations: list[Migration] = Field(default_factory=list)

    _used: Mapping[str, Document] = PrivateAttr(default_factory=dict)
    _unusable: Mapping[int, SchemaError] = PrivateAttr(default_factory=dict)
    _tied: Mapping[str, FieldDeclaration] | None = PrivateAttr(None)
    _fresh: frozenset[str] = PrivateAttr(frozenset())

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> Any:
        # Models that are compiled already are taken as they are; those inside a document are used alone, too.
        for model in (*Step.__subclasses__(), *Declaration.__subclasses__()):
            if model is not cls:
                model.model_rebuild()
        return handler(source)

    @model_validator(mode="after")
    def _give_dtypes(self) -> Self:
        dtypes = {name: tuple(choice.members) for name, choice in self.dtypes.items()}
        for struct in self.structs.values():
            for field in struct.fields.values():
                field.choosing(dtypes)
        return self

    @property
    def used(self) -> Mapping[str, Document]:
        """The documents that ``uses`` names, by identity, if they were found."""
        return self._used

    @property
    def uses_refs(self) -> list[SchemaRef]:
        """The references that ``uses`` names."""
        return [ref for ref in map(SchemaRef.parse, self.uses) if ref is not None]

    @property
    def used_versions(self) -> dict[str, int]:
        """The versions that ``uses`` names, by identity."""
        return {ref.id: ref.version for ref in self.uses_refs}

    @property
    def unusable(self) -> Mapping[int, SchemaError]:
        """The errors about documents that ``uses`` names, by position."""
        return self._unusable

    def linked(self, used: Mapping[str, Document], unusable: Mapping[int, SchemaError]) -> Document:
        """The document with the documents that it uses."""
        copy = self.model_copy()
        copy._used, copy._unusable = used, unusable  # noqa: SLF001 - the same class
        return copy

    @property
    def tied(self) -> Mapping[str, FieldDeclaration] | None:
        """Between the steps of a migration, the fields that give sizes in its payloads, by size."""
        return self._tied

    @property
    def fresh(self) -> frozenset[str]:
        """Between the steps of a migration, the dims that only its target declares."""
        return self._fresh

    def stage(
        self, fresh: Mapping[str, DimDeclaration], tied: Mapping[str, FieldDeclaration]
    ) -> Document:
        """The document as the start of a migration."""
        copy = self.model_copy(update={"dims": {**self.dims, **fresh}})
        copy._tied, copy._fresh = tied, self._fresh | fresh.keys()  # noqa: SLF001 - the same class
        return copy

    def retied(self, old: FieldDeclaration, new: FieldDeclaration) -> Document:
        """The document after a step that gave a field another name, and another declaration of the same type."""
        tied = {size: new if field is old else field for size, field in (self._tied or {}).items()}
        return self if self._tied is None else self.stage({}, tied)

    def place_of(self, name: str) -> tuple[Document, str]:
        """The document that declares a struct or an enum, and its name there: ``lab.optim.Adam`` is one of another.

        A name that nothing declares stays with this document.
        """
        identity, _, inner = name.rpartition(".")
        if identity and identity in self._used:  # first the cheaper test, for most names
            return self._used[identity], inner
        return self, name

    def is_struct(self, name: str) -> bool:
        """True if a type of that name is a struct, of this document or of one that it uses."""
        owner, inner = self.place_of(name)
        return inner in owner.structs

    def members_of(self, name: str) -> list[str] | None:
        """The members of an enum, of this document or of one that it uses; None if there is no such enum."""
        owner, inner = self.place_of(name)
        return owner.enums[inner].members if inner in owner.enums else None

    def closure(self) -> list[Document]:
        """The document and all that it uses, directly or not, each once."""
        found: dict[tuple[str, int], Document] = {}
        todo = [self]
        while todo:
            document = todo.pop()
            key = (document.id, document.version)
            if key not in found:
                found[key] = document
                todo += document.used.values()
        return [*found.values()]

    def ref(self, struct: str) -> str:
        """The class reference of a struct, as in manifests: ``neuralqx.vmc_state@3:VMCState``."""
        owner, name = self.place_of(struct)
        return f"{owner.id}@{owner.version}:{name}"

    def migration_from(self, version: int) -> Migration | None:
        """The declared migration from ``version``, or None."""
        return next((m for m in self.migrations if m.from_version == version), None)

    def to_data(self) -> dict[str, Any]:
        """The document as plain values, as in a file, without members that were not given."""
        return dict(self.model_dump(mode="json", by_alias=True, exclude_unset=True))

    def to_shorthand(self) -> dict[str, Any]:
        """Returns :meth:`to_data` with the shorthands of fields and enums."""
        data = self.to_data()
        for struct in data["structs"].values():
            struct["fields"] = {n: _short(d, "type") for n, d in struct["fields"].items()}
        for section in {"enums", "dtypes"} & data.keys():
            data[section] = {n: _short(d, "members") for n, d in data[section].items()}
        return data


def once(compute: Callable[[Document], _T]) -> Callable[[Document], _T]:
    """Keeps the result for each document as long as the document exists; documents never change."""
    known: dict[int, tuple[weakref.ref[Document], _T]] = {}

    @functools.wraps(compute)
    def kept(document: Document) -> _T:
        place = id(document)
        found = known.get(place)
        if found is not None and found[0]() is document:
            return found[1]
        result = compute(document)
        known[place] = weakref.ref(document, lambda _: known.pop(place, None)), result
        return result

    return kept
