"""Samples: random valid payloads of a document, the sizes that each of them shows, and arrays that are made when they are read.

The first ones are the smallest: their lists and dicts are empty, what may be null is null, and numbers and sizes are zero; then
all are one, and so on. The others are random; among the first 25 each member of an enum, choice, branch of a union and limit
is drawn at least once where there are not too many.

Example:
    >>> sample = samples_of(v3).at(2)
    >>> sample.payload.document["manifest"]["type"]
    'neuralqx.vmc_state@3:VMCState'
"""

from __future__ import annotations

import random
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, NamedTuple

from neuralqx_struct.errors import has_errors
from neuralqx_struct.expressions.functions import StructValue
from neuralqx_struct.manifest.kinds import ARRAY, DICT, LIST, PRNG_KEY, STRUCT, TUPLE, Node
from neuralqx_struct.manifest.payload import HeldArrays, Payload
from neuralqx_struct.schema.conditions import Stored
from neuralqx_struct.schema.conformance import conform_node
from neuralqx_struct.schema.drawing import Decks, Draw, UnfitError
from neuralqx_struct.schema.drawing.plans import bounds_of
from neuralqx_struct.schema.drawing.values import DrawnKey
from neuralqx_struct.schema.graph import structs_across
from neuralqx_struct.schema.lock import payload_fingerprint
from neuralqx_struct.schema.model import Document, once
from neuralqx_struct.types import Extent, Type, walk_type
from neuralqx_struct.types.records import type_of_class
from neuralqx_struct.types.scalars import Scalar

_MOST = 24  # items of a list, and structs inside structs
_LARGEST = 10_000  # structs and arrays in all attempts at a payload
_NUMBERS = 1 << 22  # in an array, as some steps read them
_FAR = (10, 99)
_SMALL = 2  # the first samples have no size, and no list, above their number up to this one
_LONGEST = 1000  # least length of text, a list or a dict
_ATTEMPTS = 12
_IN_VAIN = 6  # samples without a payload, after which there is none


class Place(NamedTuple):
    """Sizes in the type of a field."""

    schema: str
    struct: str
    field: str
    sizes: tuple[str, ...]


def places_of(document: Document) -> set[Place]:
    """The places of sizes in payloads."""
    found: set[Place] = set()
    for owner, name in structs_across(document, [document.root]):
        for key, declaration in owner.structs[name].stored.items():
            for part in walk_type(declaration.declared):
                for sizes in filter(None, (part.extents, part.arguments)):
                    found.add(Place(owner.id, name, key, tuple(map(str, sizes))))
    return found


class Sample(NamedTuple):
    """One draw.

    Attributes:
        payload: A valid payload, whose arrays are made when they are read; None if none could be drawn.
        places: The places of the sizes that it shows: those where none is zero.
        size: The number of structs and arrays that were made.
        reason: The requirement of the schema that nothing met; None if there is a payload.
    """

    payload: Payload | None
    places: set[Place]
    size: int
    reason: str | None = None


class Samples:
    """The samples of a document by number, each of which is drawn once.

    Args:
        document: The schema.
        near: Another version, whose limits are drawn as far as the document allows them.
    """

    def __init__(self, document: Document, near: Document | None = None) -> None:
        self._document = weakref.ref(document)
        self._near = weakref.ref(near or document)
        self._decks = Decks()
        self._drawn: list[Sample] = []
        self._lock = Lock()

    def at(self, number: int) -> Sample:
        """A sample; the first are small, and of the others those with odd numbers may have sizes far from zero."""
        document, near = self._document(), self._near()
        assert document is not None
        with self._lock:
            while len(self._drawn) <= number:
                if len(self._drawn) == _IN_VAIN and not any(each.payload for each in self._drawn):
                    return self._drawn[-1]
                self._drawn.append(_sampled(document, near, self._decks, len(self._drawn)))
        return self._drawn[number]


@once
def _samples(document: Document) -> dict[int, tuple[Samples, weakref.ref[Document] | None]]:
    """The samples of a document by the identity of the other version."""
    return {0: (Samples(document), None)}


def samples_of(document: Document, near: Document | None = None) -> Samples:
    """The samples of a document, which are kept as long as it exists.

    Args:
        document: The schema.
        near: Another version: its limits are drawn too where the document allows them, with the numbers beside them.
    """
    known = _samples(document)
    if near is None or bounds_of(near) <= bounds_of(document):
        return known[0][0]
    found, other = known.get(id(near), (None, None))
    if found is None or other is None or other() is not near:
        found = Samples(document, near)
        known[id(near)] = found, weakref.ref(near)
    return found


def _sampled(document: Document, near: Document | None, decks: Decks, number: int) -> Sample:
    """Draws a payload, more than once if need be."""
    left = [_LARGEST, _LARGEST]
    places: set[Place] = set()
    reason = ""
    for attempt in range(_ATTEMPTS):
        decks.drop()
        draw = _Draw(
            document=document,
            near=near,
            random=random.Random(number + 1000 * attempt),  # noqa: S311
            decks=decks,
            left=left,
            most_numbers=_NUMBERS,
            most_items=_MOST,
            turn=number,
            attempt=attempt,
            small=number if number <= _SMALL else None,
            alike=number % 4 in (1, 2),
        )
        try:
            tree = draw.struct(document.root, {})
            payload = _payload(document, tree)
        except UnfitError as error:
            reason = _described(document, error)
            if min(left) <= 0:
                break
            continue
        problems = conform_node(document, payload.document["manifest"], payload.arrays)
        if not has_errors(problems):
            decks.keep()
            return Sample(payload, draw.places, _LARGEST - left[0])
        problem = next(each for each in problems if each.severity == "error")
        reason = f"{problem.path}: {problem.message}"
    return Sample(None, places, _LARGEST - left[0], reason)


def _payload(document: Document, root: StructValue) -> Payload:
    identity = {"id": document.id, "version": document.version}
    identity["fingerprint"] = payload_fingerprint(document)
    made: dict[str, Stored] = {}
    tree = _node_of(root, made)
    records = {n: {"dtype": each.dtype, "shape": [*each.shape]} for n, each in made.items()}
    manifest = {"version": 1, "schema": identity, "manifest": tree, "arrays": records}
    reads = {name: array.read for name, array in made.items()}
    return Payload(manifest, HeldArrays({}, made=reads, names=made))


def _node_of(value: Any, made: dict[str, Stored]) -> Node:
    """The node of a value that was drawn, with its arrays in ``made``."""
    if isinstance(value, Stored):
        name = str(len(made))
        made[name] = value
        return ARRAY.node(name=name, dtype=value.dtype, shape=[*value.shape], leaf="numpy")
    if isinstance(value, DrawnKey):
        return PRNG_KEY.node(impl=value.impl, data=_node_of(value.words, made))
    if type(value) is StructValue:
        drawn: Any = value.fields
        owner, name = drawn.ref
        held, stored = drawn.stored, owner.structs[name].stored
        fields = {key: _node_of(held[key], made) for key in stored}
        return STRUCT.node(type=owner.ref(name), fields=fields)
    if isinstance(value, list):
        return LIST.node(items=[_node_of(item, made) for item in value])
    if isinstance(value, tuple):
        return TUPLE.node(items=[_node_of(item, made) for item in value])
    if isinstance(value, dict):
        return DICT.node(items=[[key, _node_of(item, made)] for key, item in value.items()])
    kind: Any = type(value)
    record = type_of_class(kind)
    return record.node(record.to_plain(value)) if isinstance(record, Scalar) else value


def _described(document: Document, error: UnfitError) -> str:
    """The reason why nothing was drawn, with the schema if it is another one."""
    return str(error) if error.document is document else f"{error.document.id}: {error}"


@dataclass(kw_only=True, eq=False)
class _Draw(Draw):
    """A payload in the making.

    Attributes:
        turn: The number of the sample.
        attempt: How often one was drawn in vain.
        places: The places with sizes.
    """

    turn: int
    attempt: int
    places: set[Place] = field(default_factory=set)

    @property
    def is_loose(self) -> bool:
        """A payload need not keep an equation whose other names it does not show."""
        return self.turn % 4 == 3 and self.attempt == 0

    def show(self, sizes: Sequence[Extent], numbers: Sequence[int]) -> None:
        """Notes a place, unless one of its sizes is zero, which hides the others."""
        if all(numbers):
            place = Place(self.document.id, self.struct_name, self.name, tuple(map(str, sizes)))
            self.places.add(place)

    def any_size(self, least: int = 0, most: int | None = None, name: str = "") -> int:
        """A size: a small one, one far from zero, or one near a bound of either version."""
        if self.small is not None:
            wanted = max(least, self.small + self.between(0, self.attempt))
            return wanted if most is None else min(wanted, most)
        is_bold = self.attempt < _ATTEMPTS // 2
        is_far = is_bold and self.turn % 2 == 1 and self.between(0, 1)
        found = least + (self.between(*_FAR) if is_far else self.between(0, 3))
        found = found if most is None else min(found, most)
        dims = [
            each.dims[name] for each in (self.document, self.near) if each and name in each.dims
        ]
        ends = {end for dim in dims for end in (dim.min, dim.max) if end is not None}
        near = {n for end in ends for n in (end - 1, end, end + 1)}
        fit = sorted(n for n in near if n >= least and (most is None or n <= most))
        if fit and is_bold:
            options = [*fit, *[None] * (len(fit) + 1)]
            drawn = self.decks.pick(self.random, (self.document.id, name), options, options)
            found = found if drawn is None else drawn
        return found

    def length(self, item: Type) -> int:
        least = self.field.min_length or 0
        if least > _LONGEST:
            raise self.unfit(f"no value of at most {_LONGEST} items could be drawn")
        most = self.field.max_length
        deep = self.depth >= 4 and self.holds_structs(item)
        if deep:
            return least
        deep = self.nested > 2
        if self.small is not None:
            wanted = self.small + self.between(0, max(0, self.attempt - 3))
            wanted = min(wanted, 1) if deep else wanted
            return max(least, wanted if most is None else min(wanted, most))
        few = 1 if deep else 2
        longest = max(least, min(least + few if most is None else most, max(least, _MOST)))
        lengths = self.lengths_near(least, longest, few)
        return int(self.pick("length", lengths, lengths))

    def text_length(self, longest: int) -> int:
        if (self.field.min_length or 0) > _LONGEST:
            raise self.unfit(f"no text of at most {_LONGEST} characters could be drawn")
        return super().text_length(longest)
