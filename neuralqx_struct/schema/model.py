"""Schema documents: the Pydantic models of one file.

Owns what a document says (:class:`Document` and its parts) and the published JSON Schema. The way from a file to a
validated document is ``reading.py``; what a document means as a whole (do the names exist, do the steps prove) is
``lint.py``; what a type says is ``types.py``.

Example:
    >>> from neuralqx_struct.schema.loader import read_text
    >>> from neuralqx_struct.schema.reading import parse_document
    >>> text = '''
    ... language: "1"
    ... schema: lab.point
    ... version: 1
    ... root: Point
    ... structs:
    ...   Point: {fields: {x: "float32[n]", label: {type: str, kind: static, default: ""}}}
    ... '''
    >>> document = parse_document(read_text(text))
    >>> document.structs["Point"].fields["x"].text
    'float32[n]'
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import Field, PrivateAttr, StrictBool, StrictInt, StrictStr, model_validator

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.schema.expressions import Expression
from neuralqx_struct.schema.expressions import parse as parse_expression
from neuralqx_struct.schema.migration import Declaration, Migration, Name
from neuralqx_struct.schema.types import DTYPES, Array, Key, Type, format_type, parse_type, walk_type

__all__ = [
    "Compatibility",
    "Constraint",
    "DimDeclaration",
    "Document",
    "EnumDeclaration",
    "FieldDeclaration",
    "StructDeclaration",
    "language_schema",
    "language_schema_twin",
]

LANGUAGE_SCHEMA_ID = "https://neuralqx.github.io/neuralqx-struct/schemas/struct-schema/1.json"

Compatibility = Literal[
    "none", "backward", "backward-transitive", "forward", "forward-transitive", "full", "full-transitive"
]
Number = StrictInt | float

#: What editors offer after ``type:``; structs and enums of the file are for its author to name.
_TYPE_EXAMPLES = [
    *("array", "float32[n]", "bool", "int", "float", "complex", "str", "bytes", "path", "dtype"),
    *("prng_key[threefry2x32]", "list[float]", "tuple[int, ...]", "dict[str, float]", "float | null"),
    *('literal["a", "b"]', "pytree"),
]


class DimDeclaration(Declaration):
    """A size shared by the whole instance tree."""

    min: StrictInt | None = Field(None, ge=0)
    max: StrictInt | None = Field(None, ge=0)
    equals: StrictStr | StrictInt | None = Field(None, description="Expression over dims and static ints of the root.")
    doc: StrictStr = ""

    @cached_property
    def equation(self) -> Expression | None:
        """``equals`` as an expression."""
        return None if self.equals is None else parse_expression(str(self.equals))


class EnumDeclaration(Declaration):
    """A closed set of names."""

    members: list[Name] = Field(min_length=1)
    default: Name | None = Field(None, description="The member that unknown names of newer payloads become.")
    doc: StrictStr = ""

    @model_validator(mode="before")
    @classmethod
    def _shorthand(cls, data: Any) -> Any:
        return {"members": data} if isinstance(data, list) else data


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
    return isinstance(text, str) and (text == "array" or text.partition("[")[0].strip() in DTYPES)


def _array_default(value: Any, *, is_bool: bool) -> Any:
    """The words for defaults of arrays as the numbers they stand for, which is what everything else knows."""
    match value:
        case "zeros" | "ones":
            return (value == "ones") if is_bool else int(value == "ones")
        case {"fill": inner} | {"value": inner} if len(value) == 1:
            return inner
        case _:
            return value


class FieldDeclaration(Declaration):
    """One field: ``{type: array, dtype: float32, shape: [n]}`` or the shorthand ``float32[n]``."""

    type: StrictStr | None = Field(
        None, description="array, int, float | null, list[Layer], a struct, an enum ...", examples=_TYPE_EXAMPLES
    )
    dtype: StrictStr | None = Field(None, description="With type: array.", examples=[*DTYPES])
    shape: list[StrictInt | StrictStr] | None = Field(None, description="With type: array or prng_key; sizes or dims.")
    impl: StrictStr | None = Field(
        None, description="With type: prng_key.", examples=["threefry2x32", "rbg", "unsafe_rbg"]
    )
    kind: Literal["node", "static", "opaque"] = "node"
    default: Any = Field(None, description="For arrays: zeros, ones, a number that fills it, or its numbers in lists.")
    derived: StrictStr | None = Field(None, description="Expression that computes the field; it is never stored.")
    serialize: StrictBool | None = None
    reset: StrictBool = Field(False, description="Opaque fields: back to the default inside transformations.")
    doc: StrictStr = ""
    unit: StrictStr | None = None
    tags: list[StrictStr] = Field(default_factory=list)
    aliases: list[Name] = Field(default_factory=list, description="Former names, for payloads without a migration.")
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

    @model_validator(mode="before")
    @classmethod
    def _shorthand(cls, data: Any) -> Any:
        if isinstance(data, dict) and _is_array(data.get("type")) and "default" in data:
            is_bool = "bool" in (data.get("dtype"), data["type"].partition("[")[0])
            return {**data, "default": _array_default(data["default"], is_bool=is_bool)}
        return {"type": data} if isinstance(data, str) else data

    @property
    def has_default(self) -> bool:
        """True if the file gives a default, null included."""
        return "default" in self.model_fields_set

    @property
    def stored(self) -> bool:
        """True if payloads hold the field."""
        if self.derived is not None:
            return False
        return self.kind != "opaque" if self.serialize is None else self.serialize

    @property
    def text(self) -> str:
        """The type in its text form, the members ``dtype``, ``shape`` and ``impl`` worked in."""
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
            raise SchemaError(
                "expected a dtype beside type: array, got none", code="NQX102", hint="such as dtype: float32"
            )
        if self.type != "array" and self.dtype is not None:
            raise SchemaError(f"expected type: array beside dtype, got type: {self.type}", code="NQX101")
        if self.type not in ("array", "prng_key") and self.shape is not None:
            raise SchemaError(f"expected type: array beside shape, got type: {self.type}", code="NQX101")
        if self.type != "prng_key" and self.impl is not None:
            raise SchemaError(f"expected type: prng_key beside impl, got type: {self.type}", code="NQX126")
        if self.type is None and self.kind != "opaque" and self.derived is None:
            raise SchemaError(
                "expected a type, got none", code="NQX101", hint="only opaque and derived fields may lack one"
            )
        return parse_type(self.text)

    @cached_property
    def derivation(self) -> Expression | None:
        """``derived`` as an expression."""
        return None if self.derived is None else parse_expression(self.derived)

    def with_type(self, declared: Type) -> FieldDeclaration:
        """The same declaration with another type, in whichever form the type is written."""
        drop = {"type", "dtype", "shape", "impl"}
        kept = {name: getattr(self, name) for name in self.model_fields_set - drop}
        return FieldDeclaration.model_validate({**kept, "type": format_type(declared)})


class StructDeclaration(Declaration):
    """One struct: its fields in order, and conditions on them."""

    doc: StrictStr = ""
    params: list[Name] = Field(default_factory=list, description="Dims that a use binds, as in Dense[d, ff].")
    reserved: list[Name] = Field(default_factory=list, description="Names that may not come back.")
    aliases: list[Name] = Field(default_factory=list, description="Former names of the struct.")
    fields: dict[Name, FieldDeclaration]
    constraints: list[Constraint] = Field(default_factory=list)

    @cached_property
    def stored(self) -> Mapping[str, FieldDeclaration]:
        """The fields that payloads hold."""
        return MappingProxyType({name: declaration for name, declaration in self.fields.items() if declaration.stored})

    @cached_property
    def sizes(self) -> frozenset[frozenset[str]]:
        """The names in each size of the arrays and keys that payloads hold."""
        return frozenset(
            size.names
            for declaration in self.stored.values()
            for inner in walk_type(declaration.declared)
            if isinstance(inner, (Array, Key))
            for size in inner.shape
            if size is not ...
        )

    @cached_property
    def compared(self) -> frozenset[str]:
        """Names that the constraints depend on, also through derived fields."""
        if not self.constraints:
            return frozenset()
        derived = {name for d in self.fields.values() if d.derivation is not None for name in d.derivation.names}
        return frozenset(derived.union(*(constraint.expression.names for constraint in self.constraints)))


def _short(declared: dict[str, Any], only: str) -> Any:
    return declared[only] if declared.keys() == {only} and declared[only] is not None else declared


class Document(Declaration):
    """One version of one schema: the content of one file."""

    language: Literal["1"]
    id: Annotated[str, Field(strict=True, pattern=r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$")] = Field(
        alias="schema", description="The identity, the same in every version."
    )
    version: StrictInt = Field(ge=1)
    doc: StrictStr = ""
    root: Name
    compatibility: Compatibility = "backward-transitive"
    uses: list[
        Annotated[
            str, Field(strict=True, pattern=r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*@[1-9][0-9]{0,8}$")
        ]
    ] = Field(default_factory=list, description="Other schemas; types name their structs as in lab.optim.Adam.")
    dims: dict[Name, DimDeclaration] = Field(default_factory=dict)
    enums: dict[Name, EnumDeclaration] = Field(default_factory=dict)
    structs: dict[Name, StructDeclaration] = Field(min_length=1)
    migrations: list[Migration] = Field(default_factory=list)

    _used: Mapping[str, Document] = PrivateAttr(default_factory=dict)
    _unusable: Mapping[int, SchemaError] = PrivateAttr(default_factory=dict)

    @property
    def used(self) -> Mapping[str, Document]:
        """The documents that ``uses`` names, by identity, as far as they were found."""
        return self._used

    @property
    def unusable(self) -> Mapping[int, SchemaError]:
        """Why documents that ``uses`` names were not found, by position."""
        return self._unusable

    def linked(self, used: Mapping[str, Document], unusable: Mapping[int, SchemaError]) -> Document:
        """The same document with the documents that it uses."""
        copy = self.model_copy()
        copy._used, copy._unusable = used, unusable  # noqa: SLF001 - the same class
        return copy

    def place_of(self, name: str) -> tuple[Document, str]:
        """The document that declares a struct or an enum, and its name there: ``lab.optim.Adam`` is one of another.

        A name that nothing declares stays with this document.
        """
        identity, _, inner = name.rpartition(".")  # most names have no dot, and asking for a private attribute is slow
        return (self._used[identity], inner) if identity and identity in self._used else (self, name)

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
            if found.setdefault((document.id, document.version), document) is document:
                todo += document.used.values()
        return [*found.values()]

    def ref(self, struct: str) -> str:
        """The class reference of a struct, as manifests hold it: ``neuralqx.vmc_state@3:VMCState``."""
        owner, name = self.place_of(struct)
        return f"{owner.id}@{owner.version}:{name}"

    def migration_from(self, version: int) -> Migration | None:
        """The declared migration from ``version``, or None."""
        return next((m for m in self.migrations if m.from_version == version), None)

    def to_data(self) -> dict[str, Any]:
        """The document as plain values: what a file of it holds, without what was left to defaults."""
        data: dict[str, Any] = self.model_dump(mode="json", by_alias=True, exclude_unset=True)
        return data

    def to_shorthand(self) -> dict[str, Any]:
        """As :meth:`to_data`, with the shorthands of fields and enums, which mean the same."""
        data = self.to_data()
        for struct in data["structs"].values():
            struct["fields"] = {name: _short(declared, "type") for name, declared in struct["fields"].items()}
        if "enums" in data:
            data["enums"] = {name: _short(declared, "members") for name, declared in data["enums"].items()}
        return data


#: What is no :data:`~neuralqx_struct.schema.migration.Name`.
_NO_NAME = "^$|^[0-9]|[^A-Za-z0-9_]"


def language_schema() -> dict[str, Any]:
    """The JSON Schema of schema files, published as ``schemas/struct-schema/1.json``; for editors and validators.

    Written in the keywords that draft-07 and 2020-12 share, because many editors read the older one.
    """
    schema = Document.model_json_schema(by_alias=True, mode="validation")
    for name, shorthand in {
        "FieldDeclaration": {
            "type": "string",
            "description": "A type, such as float32[n].",
            "examples": _TYPE_EXAMPLES,
        },
        "EnumDeclaration": {"type": "array", "items": {"type": "string"}, "minItems": 1},
    }.items():
        long = schema["$defs"][name]
        schema["$defs"][name] = {"description": long.get("description", ""), "anyOf": [shorthand, long]}
    for step in schema["$defs"]["StepItem"]["properties"].values():
        # "absent" is how a file leaves a step out; null is not a step.
        (reference,) = [option for option in step.pop("anyOf") if option.get("type") != "null"]
        step.clear()
        step.update(reference)
    _tidy(schema)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": LANGUAGE_SCHEMA_ID, **schema}


def language_schema_twin() -> dict[str, Any]:
    """The same in draft-07, for validators that know no other: ``schemas/struct-schema/1.draft-07.json``."""
    schema = {key: value for key, value in language_schema().items() if key not in ("$schema", "$id")}
    definitions = {"definitions" if key == "$defs" else key: value for key, value in schema.items()}
    twin: dict[str, Any] = _with_references(definitions, "#/$defs/", "#/definitions/")
    identity = LANGUAGE_SCHEMA_ID.replace("1.json", "1.draft-07.json")
    return {"$schema": "http://json-schema.org/draft-07/schema#", "$id": identity, **twin}


def _with_references(schema: Any, old: str, new: str) -> Any:
    """The schema with references that start with ``old`` starting with ``new``."""
    if isinstance(schema, dict):
        return {
            key: value.replace(old, new, 1)
            if key == "$ref" and isinstance(value, str)
            else _with_references(value, old, new)
            for key, value in schema.items()
        }
    return [_with_references(value, old, new) for value in schema] if isinstance(schema, list) else schema


def _tidy(schema: Any) -> None:
    """Drop generated titles and nulls, which editors show and insert, and allow no names but those that are meant."""
    if isinstance(schema, dict):
        if "anyOf" in schema and schema.get("default", ...) is None:
            del schema["default"]
        if isinstance(schema.get("title"), str):
            del schema["title"]
        if "patternProperties" in schema:  # Pydantic says which names are meant, and not that there are no others
            # Said the other way around, as editors complete the values of additional properties alone.
            (value,) = schema["patternProperties"].values()
            schema |= {"patternProperties": {_NO_NAME: False}, "additionalProperties": value}
        for value in schema.values():
            _tidy(value)
    elif isinstance(schema, list):
        for value in schema:
            _tidy(value)
