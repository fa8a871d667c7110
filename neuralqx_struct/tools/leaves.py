"""Leaves of checkpoints of any kind, with functions that read their elements: bundles and files of other programs.

:func:`nodes_with_declarations` has all nodes of a manifest, with the declarations that a schema gives their fields.

Example:
    >>> with leaves_of("tests/golden/format-1/vmc_state_1") as found:
    ...     print([leaf.text for _, leaf in found if leaf.array is not None][0])
    float32[2, 4]
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from neuralqx_struct import bundle
from neuralqx_struct.dtypes import dtype_named
from neuralqx_struct.errors import SchemaError
from neuralqx_struct.filters.predicates import node_tags
from neuralqx_struct.formats import ForeignArray, ForeignFile, is_foreign, joined, opened, split
from neuralqx_struct.manifest import Limits
from neuralqx_struct.manifest.kinds import (
    FLOAT,
    ONE,
    PRNG_KEY,
    STRUCT,
    elements_of,
    iter_nodes,
    kind_of,
    parts_of,
    show,
)
from neuralqx_struct.manifest.payload import Payload
from neuralqx_struct.paths import FieldName, Path
from neuralqx_struct.places.urls import Place
from neuralqx_struct.printing import brief_array
from neuralqx_struct.types.text import number_value

if TYPE_CHECKING:
    import numpy as np

    from neuralqx_struct.fieldspec import FieldSpec, Specs

    Array = np.ndarray[Any, Any]


class Leaf(NamedTuple):
    """A leaf of one checkpoint.

    Attributes:
        text: Its type and value in words.
        array: Its elements.
        token: Without elements, a text that only equal values share.
        random: True if the elements are the bits of random keys.
    """

    text: str
    array: ForeignArray | None = None
    token: str = ""
    random: bool = False


@contextmanager
def leaves_of(
    path: str | Place, limits: Limits | None = None
) -> Iterator[list[tuple[tuple[Any, ...], Leaf]]]:
    """The leaves of a checkpoint with their paths; no array is read."""
    if not is_foreign(path):
        yield list(leaves_of_payload(bundle.read(path, limits=limits)))
        return
    with opened(path, limits=limits) as file:
        yield leaves_in(file)


def leaves_in(file: ForeignFile) -> list[tuple[tuple[Any, ...], Leaf]]:
    """The leaves of a foreign file with their paths."""
    arrays = [(split(name), Leaf(brief_array(a), a)) for name, a in file.arrays.items()]
    values = [(split(name), _plain(value)) for name, value in file.values.items()]
    return [(tuple(keys), leaf) for keys, leaf in (*arrays, *values)]


def foreign_name(path: Iterable[Any]) -> str:
    """The name that a foreign file has for a path."""
    return joined(map(str, path))


def leaves_of_payload(payload: Payload) -> Iterator[tuple[tuple[Any, ...], Leaf]]:
    """Yields the leaves of a bundle that is read, with their paths."""
    for here, node in nodes_with_declarations(payload.document):
        kind = kind_of(node)
        if kind is not None and not kind.leaf:
            continue
        text = show(node).text
        random = PRNG_KEY.matches(node)
        stored = node["data"] if random else node
        if elements_of(stored) == "stored":
            yield here, Leaf(text, _stored(payload.arrays, stored), random=random)
        elif elements_of(stored):
            yield here, Leaf(text, _constant(stored), random=random)
        else:
            yield here, _plain(float(node["value"]) if FLOAT.matches(node) else node)


def _stored(arrays: Mapping[str, Array], node: Mapping[str, Any]) -> ForeignArray:
    name = node["name"]
    return ForeignArray(node["dtype"], tuple(node["shape"]), lambda: arrays[name])


def _constant(node: Mapping[str, Any]) -> ForeignArray:
    """An array of one value, which takes no memory."""
    shape = tuple(node.get("shape", ()))

    def read() -> Array:
        import numpy as np

        one = np.full((), number_value(node["value"]), dtype_named(node["dtype"]))
        return np.broadcast_to(one, shape)

    return ForeignArray(node["dtype"], shape, read)


def _plain(node: Any) -> Leaf:
    """A leaf without elements."""
    text, value, *_ = show(node)
    return Leaf(f"{text} = {value}" if value else text, None, json.dumps(node, sort_keys=True))


# Nodes of manifests with the declarations of their fields


class _Above(NamedTuple):
    """Facts about a node that the nodes directly below it need.

    Attributes:
        path: Its path with declarations.
        owner: The class reference, of structs.
        tags: The tags of a parameter.
        inlined: True if the node below takes its place.
    """

    path: Path = ()
    owner: str = ""
    tags: frozenset[str] = frozenset()
    inlined: bool = True


def nodes_with_declarations(
    document: Mapping[str, Any], fields_of: Callable[[str], Specs] | None = None
) -> Iterator[tuple[Path, Any]]:
    """Yields every node that represents a value, with a path whose field names have their declarations.

    Args:
        document: The manifest.
        fields_of: Returns the declarations of the fields of a struct, by its reference; by default those of the schemas in
            the manifest.
    """
    known = {} if fields_of is not None else _specs(document)
    places: dict[Path, _Above] = {}
    top = _Above()
    for path, node in iter_nodes(document["manifest"]):
        above = places.get(path[:-1]) if path else top
        if above is None:  # a part of a value
            continue
        here = above.path
        if not above.inlined:
            last = path[-1]
            if isinstance(last, FieldName):
                declared = (fields_of or known.get)(above.owner) or {}
                last = FieldName(last, _declared(last, declared.get(last), above.tags))
            here = (*here, last)
        kind = kind_of(node)
        if kind is None or kind.leaf:
            yield here, node
            continue
        inlined = (kind.inline, ONE) in parts_of(node)
        if kind is STRUCT:
            places[path] = _Above(here, node["type"], node_tags(node), inlined)
        else:
            places[path] = _Above(here, inlined=inlined)
        if above is top or not above.inlined:
            yield here, node


def _declared(name: str, spec: FieldSpec | None, tags: frozenset[str]) -> FieldSpec | None:
    """The declaration of a field in a schema, with the tags of a parameter for its value."""
    if not tags or name != "value":
        return spec
    from neuralqx_struct.fieldspec import FieldSpec, tagged

    return tagged(spec or FieldSpec(name=name), tags)


def _specs(document: Mapping[str, Any]) -> dict[str, Specs]:
    """The declarations of fields by name, for each class reference, from the schemas in the manifest."""
    if not document.get("schemas"):
        return {}
    from neuralqx_struct.fieldspec import FieldKind, FieldSpec
    from neuralqx_struct.schema.series import carried_series

    try:
        carried = carried_series(document)
    except SchemaError:  # validate() reports the problems of documents
        return {}
    return {
        held.ref(struct_name): {
            name: FieldSpec(
                name=name, kind=FieldKind(declared.kind), metadata={"tags": tuple(declared.tags)}
            )
            for name, declared in struct.fields.items()
        }
        for series in carried.values()
        for held in series.documents.values()
        for struct_name, struct in held.structs.items()
    }
