"""Samples: random valid payloads of a document, with shapes but no bytes, and the sizes that each of them shows.

The first ones are the smallest: their lists and dicts are empty, what may be null is null, and sizes are zero; then all have
one item, and so on. The others are random.

Example:
    >>> sample = samples_of(v3).at(2)
    >>> sample.payload.document["manifest"]["type"]
    'neuralqx.vmc_state@3:VMCState'
"""

from __future__ import annotations

import math
import random
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Lock
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

from neuralqx_struct.dtypes import dtype_named
from neuralqx_struct.errors import SchemaError, has_errors
from neuralqx_struct.expressions import Expression
from neuralqx_struct.expressions.evaluation import evaluate
from neuralqx_struct.manifest.kinds import ARRAY, DICT, LIST, PRNG_KEY, STRUCT, TUPLE, Node
from neuralqx_struct.manifest.payload import HeldArrays, Payload
from neuralqx_struct.schema.bounds import length_misses, scalar_misses
from neuralqx_struct.schema.conformance import conform_node
from neuralqx_struct.schema.field_draws import FieldDraws, UnfitError
from neuralqx_struct.schema.field_paths import once
from neuralqx_struct.schema.lock import payload_fingerprint
from neuralqx_struct.schema.model import Document, FieldDeclaration
from neuralqx_struct.schema.sizes import ANY
from neuralqx_struct.schema.sizes.scopes import given_sizes
from neuralqx_struct.types import Array, Extent, Type, walk_type
from neuralqx_struct.types.records import type_of_class
from neuralqx_struct.types.scalars import Scalar

_DEEPEST = 4  # structs inside structs; deeper, lists of structs are empty
_MOST = 24  # items of a list, structs inside structs, and dims that follow from each other
_LARGEST = 10_000  # structs and arrays in a payload
_NUMBERS = 1 << 22  # in an array, as some steps read them
_FAR = (10, 99)
_SMALL = 2  # the first samples have no size, and no list, above their number up to this one
_LONGEST = 1000  # least length of text, a list or a dict
_PLAIN = (bool, int, float, complex, str, bytes)


class Place(NamedTuple):
    """Sizes in the type of a field."""

    schema: str
    struct: str
    field: str
    sizes: tuple[str, ...]


def places_of(document: Document) -> set[Place]:
    """The places of sizes in payloads."""
    found: set[Place] = set()
    seen: set[tuple[str, str]] = set()
    waiting = [(document, document.root)]
    while waiting:
        owner, name = waiting.pop()
        if name not in owner.structs or (owner.id, name) in seen:
            continue
        seen.add((owner.id, name))
        for key, declaration in owner.structs[name].stored.items():
            for part in walk_type(declaration.declared):
                waiting.append(owner.place_of(part.refers))
                for sizes in filter(None, (part.extents, part.arguments)):
                    found.add(Place(owner.id, name, key, tuple(map(str, sizes))))
    return found


class Sample(NamedTuple):
    """One draw.

    Attributes:
        payload: A valid payload; None if the sizes and values that were drawn make none.
        places: The places of the sizes that it shows.
        size: The number of structs and arrays.
        reason: The reason why there is no payload.
    """

    payload: Payload | None
    places: set[Place]
    size: int
    reason: str | None = None


class Samples:
    """The samples of a document by number, each of which is drawn once.

    Args:
        document: The schema.
    """

    def __init__(self, document: Document) -> None:
        self._document = weakref.ref(document)
        self._drawn: list[Sample] = []
        self._lock = Lock()

    def at(self, number: int) -> Sample:
        """A sample; the first are small, and of the others those with odd numbers may have sizes far from zero."""
        document = self._document()
        assert document is not None
        with self._lock:
            while len(self._drawn) <= number:
                self._drawn.append(_sampled(document, len(self._drawn)))
        return self._drawn[number]


@once
def samples_of(document: Document) -> Samples:
    """The samples of a document, which are kept as long as it exists."""
    return Samples(document)


class _Random(random.Random):
    """The part of a generator of numpy that examples use, without its import."""

    def integers(self, low: int, high: int | None = None) -> int:
        """A whole number below ``high``, or with one argument below that."""
        return self.randrange(low) if high is None else self.randrange(low, high)


def _sampled(document: Document, number: int) -> Sample:
    small = number if number <= _SMALL else None
    draw = _Draw(document, _Random(number), number % 2 == 1, number % 4 == 3, small)
    payload = None
    with suppress(UnfitError):
        tree = draw.struct(document.root, {})
        if not has_errors(conform_node(document, tree)):
            payload = _payload(document, tree)
    return Sample(payload, draw.places, _LARGEST - draw.left[0])


def _payload(document: Document, tree: Node) -> Payload:
    identity = {"id": document.id, "version": document.version}
    identity["fingerprint"] = payload_fingerprint(document)
    records = {
        node["name"]: {"dtype": node["dtype"], "shape": node["shape"]}
        for _, node in ARRAY.within(tree)
    }
    manifest = {"version": 1, "schema": identity, "manifest": tree, "arrays": records}
    made = {name: partial(_zeros, record) for name, record in records.items()}
    return Payload(manifest, HeldArrays({}, made=made, names=made))


def _zeros(record: Mapping[str, Any]) -> Any:
    import numpy as np

    return np.broadcast_to(np.zeros((), dtype_named(record["dtype"])), record["shape"])


@once
def _given(document: Document) -> list[str]:
    """The static ints of the root that are sizes."""
    return sorted(given_sizes(document))


class _Made(NamedTuple):
    """A node among plain values."""

    node: Node


@dataclass
class _Draw(FieldDraws):
    """A payload in the making; types draw their values from it, as examples do.

    Attributes:
        document: The declaration.
        random: Source of all choices.
        far: Whether sizes may be far from zero.
        loose: Whether equations of dims are left out: a payload need not keep one whose other names it does not show.
        small: The largest size and length, where nothing demands a larger one; None for random ones.
        classes: None of Python.
        dims: Sizes of declared dims.
        ints: Sizes of the root, which equations of dims name.
        solving: The dims whose equations are being computed, which may name them.
        chosen: Dtypes of choices.
        places: The places with sizes.
        left: How many structs and arrays the payload may still have.
        local: Other sizes of the instance.
        struct_name: Its struct.
        name: The field.
        field: Its declaration.
        lead: The sizes of the axes in front of those that arrays declare.
        depth: The number of structs around it.
        outermost: Whether no struct of the document is around it.
    """

    document: Document
    random: Any
    far: bool
    loose: bool = False
    small: int | None = None
    classes: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    dims: dict[str, int] = field(default_factory=dict)
    ints: dict[str, int] = field(default_factory=dict)
    solving: frozenset[str] = frozenset()
    chosen: dict[str, str] = field(default_factory=dict)
    places: set[Place] = field(default_factory=set)
    left: list[int] = field(default_factory=lambda: [_LARGEST])
    local: dict[str, int] = field(default_factory=dict)
    struct_name: str = ""
    name: str = ""
    field: Any = None
    lead: tuple[int, ...] = ()
    depth: int = 0
    outermost: bool = True

    # --- sizes -----------------------------------------------------------------------------------------------------

    def take(self) -> int:
        """Counts a struct or an array of the payload; returns how many may follow."""
        self.left[0] -= 1
        if self.left[0] < 0 or self.depth > _MOST:
            raise UnfitError
        return self.left[0]

    def show(self, sizes: Sequence[Extent]) -> None:
        """Notes a place with sizes."""
        self.places.add(
            Place(self.document.id, self.struct_name, self.name, tuple(map(str, sizes)))
        )

    def any_size(self, least: int = 0, most: int | None = None) -> int:
        """A size: a small one, one far from zero, or one near the largest."""
        if self.small is not None:
            return max(least, self.small if most is None else min(self.small, most))
        turn = self.between(0, 3)
        if most is not None and turn == 0:
            return max(least, most - self.between(0, 1))
        found = least + (self.between(*_FAR) if self.far and turn > 1 else self.between(0, 3))
        return found if most is None else min(found, most)

    def named(self, name: str) -> int:
        """The number of a name in this instance."""
        if name in self.local:
            return self.local[name]
        if name not in self.document.dims:
            return self.local.setdefault(name, self.any_size())
        if name not in self.dims:
            dim = self.document.dims[name]
            if dim.equation is None or self.loose or name in self.solving:
                self.dims[name] = self.any_size(dim.min or 0, dim.max)
            elif len(self.solving) < _MOST:
                solving = self.solving | {name}
                root = replace(self, local=self.ints, solving=solving)
                self.dims[name] = root.number(dim.equation)
            else:
                raise UnfitError
        return self.dims[name]

    def number(self, size: Expression) -> int:
        """The number of a size."""
        if size.text == ANY:
            return self.any_size()
        try:
            found = evaluate(size, {name: self.named(name) for name in sorted(size.names)})
        except SchemaError:
            raise UnfitError from None
        if found < 0 or found != int(found):
            raise UnfitError
        return int(found)

    def shape(self, extents: Sequence[Extent]) -> list[int]:
        """The sizes of a shape."""
        self.show(extents)
        sizes = [*self.lead]
        for extent in extents:
            if extent is ...:
                sizes += [self.any_size() for _ in range(self.between(0, 2))]
            else:
                sizes.append(self.number(extent))
        return sizes

    def count_of(self, size: Expression) -> int:
        """The length of a list of a declared length."""
        self.show([size])
        count = self.number(size)
        if count > _MOST:
            raise UnfitError
        return count

    def length(self, item: Type) -> int:
        """The length of a list or dict, of which only the outermost has limits."""
        least = self.field.min_length or 0
        deep = self.depth >= _DEEPEST and self.holds_structs(item)
        if self.small is not None:
            return max(least, 0 if deep else self.small)
        return self.between(0, max(least, 0 if deep else 2))

    # --- structs ---------------------------------------------------------------------------------------------------

    def struct(self, name: str, bound: Mapping[str, int]) -> Node:
        """The node of a struct."""
        self.take()
        is_root = self.outermost and name == self.document.root
        local = self.ints if is_root else {}
        local |= bound
        made = replace(self, local=local, struct_name=name, depth=self.depth + 1, outermost=False)
        declared = self.document.structs[name].stored
        ints = _given(self.document) if is_root else ()
        fields: dict[str, Node] = {key: made.given(key, declared[key]) for key in ints}
        for key, each in declared.items():
            if key not in fields:
                made.name, made.field = key, each
                fields[key] = made.value()
        ordered = {key: fields[key] for key in declared}
        return STRUCT.node(type=self.document.ref(name), fields=ordered)

    def given(self, name: str, declaration: FieldDeclaration) -> Node:
        """The value of a static int that is the size of its name."""
        if declaration.declared.nullable and self.between(0, 3) == 0:
            return None
        if self.loose and name not in self.document.dims:
            self.local.setdefault(
                name, self.between(-2, 3)
            )  # an int may be negative where no array has its size
        for turn in range(20):
            small = None if self.small is None else self.small + turn
            found = replace(self, small=small).named(name)
            if not scalar_misses(declaration, found):
                return found
            if name in self.dims and self.document.dims[name].equation is not None:
                break
            self.local.pop(name, None)
            self.dims.pop(name, None)
        raise UnfitError

    def value(self) -> Node:
        """The node of the field."""
        declaration: FieldDeclaration = self.field
        if (declaration.min_length or 0) > _LONGEST:
            raise UnfitError
        for _ in range(20):
            value = declaration.declared.example(self)
            if isinstance(value, _PLAIN) and declaration.choices:
                value = self.one_of(declaration.choices)
            if isinstance(value, (list, dict)):
                misses = length_misses(declaration, len(value), "items")
            else:
                misses = scalar_misses(declaration, value) if isinstance(value, _PLAIN) else []
            if not misses:
                return node_of(value)
        raise UnfitError

    def inner_struct(self, declared: Type) -> _Made:
        """An instance of the struct that a type names."""
        owner, name = self.document.place_of(declared.refers)
        if name not in owner.structs:
            raise UnfitError
        self.show(declared.arguments)
        sizes = map(self.number, declared.arguments)
        bound = dict(zip(owner.structs[name].params, sizes, strict=False))
        inside = self
        if owner is not self.document:  # its sizes are its own
            inside = replace(self, document=owner, dims={}, ints={}, chosen={}, outermost=True)
        return _Made(inside.struct(name, bound))

    def stacked(self, item: Type, axes: Sequence[Expression]) -> _Made:
        """Instances of the struct that a type names, stacked along some axes."""
        return replace(self, lead=tuple(self.shape(axes))).inner_struct(item)

    def branch(self, options: tuple[Type, ...]) -> Type:
        """One option of a union; deep inside one without structs."""
        deep = self.depth >= _DEEPEST
        simple = [option for option in options if deep and not self.holds_structs(option)]
        if self.small is not None and not simple:
            simple = [option for option in options if option.nullable is (self.small == 0)]
        return self.one_of(simple or options)

    def holds_structs(self, declared: Type) -> bool:
        """True if a type names a struct."""
        return any(self.document.is_struct(inner.refers) for inner in walk_type(declared))

    # --- values ----------------------------------------------------------------------------------------------------

    def dtype(self, declared: Array) -> str:
        """The dtype of an array: one of its family, or that of its choice in the payload."""
        if not declared.choice:
            return self.one_of(declared.dtypes)
        return self.chosen.setdefault(declared.element, self.one_of(declared.choice))

    def array(self, dtype: str, shape: Sequence[int]) -> _Made:
        """The node of an array."""
        name = str(self.take())
        if math.prod(shape) > _NUMBERS:
            raise UnfitError
        return _Made(ARRAY.node(name=name, dtype=dtype, shape=[*shape], leaf="numpy"))

    def key(self, impl: str | None, shape: Sequence[int]) -> _Made:
        """The node of random keys."""
        impl = impl or "threefry2x32"
        words = 2 if impl == "threefry2x32" else 4
        data = self.array("uint32", [*shape, words]).node
        return _Made(PRNG_KEY.node(impl=impl, data=data))


def node_of(value: Any) -> Node:
    """The node of a value that was drawn."""
    if isinstance(value, _Made):
        return value.node
    if isinstance(value, list):
        return LIST.node(items=[*map(node_of, value)])
    if isinstance(value, tuple):
        return TUPLE.node(items=[*map(node_of, value)])
    if isinstance(value, dict):
        return DICT.node(items=[[key, node_of(each)] for key, each in value.items()])
    kind: Any = type(value)
    record = type_of_class(kind)
    return record.node(record.to_plain(value)) if isinstance(record, Scalar) else value
