"""Models of ``manifest.json``: the document, its array records, and one class for each node kind.

Pydantic validates manifests with these classes, strictly: ``1.0`` or ``true`` is no integer. They are TypedDicts, because a
validated manifest stays a dict. A member that no class lists is an extension: readers ignore it if it has
``"must_understand": false``, and refuse it otherwise.

Example:
    >>> sorted(ArrayNode.__required_keys__)
    ['__kind__', 'dtype', 'name', 'shape']
"""

from typing import Annotated, Any, Final, Literal, NotRequired

from annotated_types import Ge, Le, MaxLen, MinLen
from typing_extensions import TypedDict, get_original_bases, is_typeddict

from neuralqx_struct.manifest.constraints import (
    Base64,
    ClassName,
    ClassRef,
    Decimal,
    Digest,
    Exactly,
    FileName,
    Finite,
    Name,
    Place,
)

MOST_DIMS: Final = 64


# Values of members.


class Extension(TypedDict, extra_items=Any):  # type: ignore[call-arg]
    """A member that a reader may pass over."""

    must_understand: Annotated[Literal[False], Exactly("false", bool)]


class Record(TypedDict, extra_items=Extension):  # type: ignore[call-arg]
    """An object whose other members are extensions."""


TrueOnly = Annotated[Literal[True], Exactly("true", bool)]
Size = Annotated[int, Ge(0), Le(2**63 - 1)]
Shape = Annotated[list[Size], MaxLen(MOST_DIMS)]
Count = Annotated[int, Ge(0)]
Checksum = Annotated[int, Ge(0), Le(2**32 - 1)]
Leaf = Literal["jax", "numpy"]
Node = Annotated[Any, Place("Node", "a node", (str, None, bool, int, Finite), None)]
Pair = Annotated[list[Node], MinLen(2), MaxLen(2)]


class ArrayNode(Record):
    """An array that the bundle stores under a name."""

    __kind__: Literal["array"]
    name: str
    dtype: Name
    shape: Shape
    leaf: NotRequired[Leaf]
    weak_type: NotRequired[TrueOnly]


class FloatNode(Record):
    """A float that JSON cannot express."""

    __kind__: Literal["float"]
    value: Literal["nan", "inf", "-inf"]


class BigintNode(Record):
    """An integer outside of 64 bits, in decimal digits."""

    __kind__: Literal["bigint"]
    value: Decimal


class BytesNode(Record):
    """Bytes."""

    __kind__: Literal["bytes"]
    base64: Base64


Part = Annotated[
    Any, Place("Part", "a number or a node of kind float", (int, Finite), (FloatNode,))
]
Integer = Annotated[
    Any, Place("Integer", "a number or a node of kind bigint", (int, Finite), (BigintNode,))
]
Length = Annotated[Any, Place("Length", "a number or null", (None, int, Finite), ())]
KeyData = Annotated[Any, Place("KeyData", "a node of kind array", (), (ArrayNode,))]


class ComplexNode(Record):
    """A complex number."""

    __kind__: Literal["complex"]
    real: Part
    imag: Part


Scalar = Annotated[
    Any,
    Place(
        "Scalar",
        "a plain value or a node of kind bigint, bytes, complex or float",
        (str, None, bool, int, Finite),
        (BigintNode, BytesNode, ComplexNode, FloatNode),
    ),
]


class FullNode(Record):
    """An array of one value, which the bundle does not store."""

    __kind__: Literal["full"]
    dtype: Name
    shape: Shape
    value: Scalar
    leaf: NotRequired[Leaf]
    weak_type: NotRequired[TrueOnly]


class NumpyScalarNode(Record):
    """A numpy scalar."""

    __kind__: Literal["numpy-scalar"]
    dtype: Name
    value: Scalar


class PrngKeyNode(Record):
    """A random key of JAX."""

    __kind__: Literal["prng-key"]
    impl: Name
    data: KeyData


class BytearrayNode(Record):
    """A bytearray."""

    __kind__: Literal["bytearray"]
    base64: Base64


class DatetimeNode(Record):
    """A date, a time, both, or a difference of two."""

    __kind__: Literal["datetime"]
    type: Literal["datetime", "date", "time", "timedelta"]
    value: Name


class DtypeNode(Record):
    """A numpy dtype."""

    __kind__: Literal["dtype"]
    value: Name


class PathNode(Record):
    """A file path."""

    __kind__: Literal["path"]
    value: str
    pure: NotRequired[Literal["posix", "windows"]]


class RangeNode(Record):
    """A range."""

    __kind__: Literal["range"]
    start: Integer
    stop: Integer
    step: Integer


class SliceNode(Record):
    """A slice."""

    __kind__: Literal["slice"]
    start: Node
    stop: Node
    step: Node


class ReferenceNode(Record):
    """A well-known function or class, by name."""

    __kind__: Literal["reference"]
    name: Name


class ExternalNode(Record):
    """A value that is no data, such as a function of the user: its name, which nothing imports."""

    __kind__: Literal["external"]
    name: Name


class EnumNode(Record):
    """A member of an Enum."""

    __kind__: Literal["enum"]
    type: ClassRef
    name: Name


class ListNode(Record):
    """A list."""

    __kind__: Literal["list"]
    items: list[Node]


class TupleNode(Record):
    """A tuple."""

    __kind__: Literal["tuple"]
    items: list[Node]


class SetNode(Record):
    """A set."""

    __kind__: Literal["set"]
    items: list[Node]


class FrozensetNode(Record):
    """A frozenset."""

    __kind__: Literal["frozenset"]
    items: list[Node]


class DequeNode(Record):
    """A deque."""

    __kind__: Literal["deque"]
    items: list[Node]
    maxlen: Length


class DictNode(Record):
    """A dict, as pairs of key and value."""

    __kind__: Literal["dict"]
    items: list[Pair]


class OrderedDictNode(Record):
    """An OrderedDict."""

    __kind__: Literal["ordered-dict"]
    items: list[Pair]


class DefaultdictNode(Record):
    """A defaultdict."""

    __kind__: Literal["defaultdict"]
    factory: Literal[
        "none",
        "list",
        "dict",
        "set",
        "frozenset",
        "tuple",
        "int",
        "float",
        "complex",
        "bool",
        "str",
        "bytes",
        "OrderedDict",
        "Counter",
        "deque",
    ]
    items: list[Pair]


class CounterNode(Record):
    """A Counter."""

    __kind__: Literal["counter"]
    items: list[Pair]


class MappingProxyNode(Record):
    """A read-only view of a dict."""

    __kind__: Literal["mapping-proxy"]
    items: list[Pair]


class StructNode(Record):
    """A Struct: its class, or its struct in a schema, and its fields."""

    __kind__: Literal["struct"]
    type: ClassName
    fields: dict[str, Node]


class NamedtupleNode(Record):
    """A namedtuple."""

    __kind__: Literal["namedtuple"]
    type: ClassRef
    fields: dict[str, Node]


class PytreeDataclassNode(Record):
    """A dataclass."""

    __kind__: Literal["pytree-dataclass"]
    type: ClassRef
    fields: dict[str, Node]


class RegisteredPytreeFlattenNode(Record):
    """An instance of a class registered with JAX: its children and auxiliary data."""

    __kind__: Literal["registered-pytree"]
    type: ClassRef
    mode: Literal["flatten"]
    children: list[Node]
    aux: Node


class RegisteredPytreeSerializerNode(Record):
    """An instance of a registered class, as its serializer returned it."""

    __kind__: Literal["registered-pytree"]
    type: ClassRef
    mode: Literal["serializer"]
    payload: Node


class ArrayRecord(Record):
    """Where the bundle stores an array, and its checksums."""

    dtype: Name
    shape: Shape
    crc32: NotRequired[Checksum]
    chunk: NotRequired[Shape]
    chunk_crc32: NotRequired[list[Checksum]]
    offset: NotRequired[Count]
    nbytes: NotRequired[Count]
    file: NotRequired[FileName]
    unused: NotRequired[TrueOnly]


class SchemaIdentity(Record):
    """The schema version of the root struct."""

    id: Name
    version: Annotated[int, Ge(1)]
    fingerprint: Name


class Writer(Record):
    """The program that wrote the bundle."""

    name: Name
    version: Name


_Header = TypedDict("_Header", {"$schema": NotRequired[str]})


class Manifest(_Header, Record):
    """The document ``manifest.json``."""

    version: Annotated[Literal[1], Exactly("the integer 1", int)]
    schema: NotRequired[SchemaIdentity]
    schemas: NotRequired[list[dict[str, Any]]]
    manifest: Node
    arrays: dict[str, ArrayRecord]
    metadata: NotRequired[dict[str, Any]]
    writer: NotRequired[Writer]
    digest: NotRequired[Digest]


#: A manifest whose records are validated one by one, when their arrays are read.
PartialManifest = TypedDict(  # type: ignore[misc]
    "PartialManifest",
    {**Manifest.__annotations__, "arrays": dict[str, Any]},
    extra_items=Extension,
)

# Older versions of Pydantic do not inherit extra_items, and would accept every other member.
for _model in list(globals().values()):
    if is_typeddict(_model) and Record in get_original_bases(_model):
        _model.__extra_items__ = Extension
