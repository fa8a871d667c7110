"""Steps between the raw words of a random key and a typed key: wrap_key and unwrap_key. The words stay where they are.

For each step three functions stand side by side: what it does to a declaration, to one struct instance of a payload,
and the steps that lead back. ``steps.py`` has the table of them all.

Example:
    >>> WRAP_KEY.declare(WrapKey(field="rng", impl="threefry2x32"), v2, v3).structs["VMCState"].fields["rng"].text
    'prng_key[threefry2x32]'
"""

from __future__ import annotations

from collections.abc import Mapping

from neuralqx_struct.errors import MigrationError, did_you_mean
from neuralqx_struct.evolution.edits import (
    Operation,
    array_branch,
    declared_type,
    each_node,
    key_branch,
    refuse,
    retyped,
)
from neuralqx_struct.evolution.sizes import constant, extent
from neuralqx_struct.evolution.tree import Place, kind_of
from neuralqx_struct.evolution.values import Node
from neuralqx_struct.paths import format_path
from neuralqx_struct.schema.migration import Step, UnwrapKey, WrapKey
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.types import Array, Key, format_type

__all__ = ["KEY_WORDS", "UNWRAP_KEY", "WRAP_KEY"]

#: How many uint32 words a key of each implementation has (jax.random.key_impl, JAX documentation "Random numbers").
KEY_WORDS: Mapping[str, int] = {"threefry2x32": 2, "rbg": 4, "unsafe_rbg": 4}


# ---------------------------------------------------------------------------------------------------------------------
# wrap_key and unwrap_key


def _wrap_key(step: WrapKey, document: Document, target: Document) -> Document:
    if step.impl not in KEY_WORDS:
        hint = did_you_mean(step.impl, KEY_WORDS) or f"known: {', '.join(KEY_WORDS)}"
        refuse("NQX420", "impl", f"expected an implementation of random keys, got {step.impl!r}", hint)
    array, rebuilt = array_branch(declared_type(step, document), "field")
    words = KEY_WORDS[step.impl]
    last = array.shape[-1] if array.shape else None
    if array.dtype != "uint32" or last is None or (last is not ... and constant(last) != words):
        refuse(
            "NQX420",
            "field",
            f"expected uint32[..., {words}], the words of a {step.impl} key, got {format_type(array)}",
        )
    lead = array.shape if last is ... else array.shape[:-1]
    return retyped(step, document, target, rebuilt(Key(step.impl, lead)))


def _wrap_key_payload(step: WrapKey, place: Place) -> Node:
    def change(node: Node, at: tuple[str | int, ...]) -> Node:
        shape = place.shape(node, place.at(*at))
        if node["dtype"] != "uint32" or not shape or shape[-1] != KEY_WORDS[step.impl]:
            raise MigrationError(
                f"expected uint32[..., {KEY_WORDS[step.impl]}], the words of a {step.impl} key, got {node['dtype']}{shape}",
                code="NQX420",
                path=format_path(place.at(*at)),
            )
        if node["__kind__"] == "full":  # a key's words are an array of their own, never a constant
            load, leaf = place.load(node), {"leaf": node["leaf"]} if "leaf" in node else {}
            made = place.workspace.store(place.at(*at), "uint32", shape, load, ("words", place.identity(node)))
            node = {**made, **leaf}
        return {"__kind__": "prng-key", "impl": step.impl, "data": node}

    return each_node(place, step.field, change)


def _wrap_key_back(step: WrapKey, before: Document, after: Document) -> list[Step]:
    del before, after
    return [UnwrapKey(within=step.within, field=step.field)]


WRAP_KEY = Operation(_wrap_key, _wrap_key_payload, _wrap_key_back, "manifest")


def _unwrap_key(step: UnwrapKey, document: Document, target: Document) -> Document:
    key, rebuilt = key_branch(declared_type(step, document), "field")
    if key.impl not in KEY_WORDS:
        refuse(
            "NQX420", "field", f"expected a key of a known implementation, got {format_type(key)}", "declare `impl:`"
        )
    return retyped(step, document, target, rebuilt(Array("uint32", (*key.shape, extent(KEY_WORDS[str(key.impl)])))))


def _unwrap_key_payload(step: UnwrapKey, place: Place) -> Node:
    node = place.field(step.field)
    if node is not None and kind_of(node) != "prng-key":
        raise MigrationError(
            f"expected a random key, got a node of kind {kind_of(node)}", code="NQX420", path=place.text(step.field)
        )
    return {**place.node, "fields": {**place.node["fields"], step.field: None if node is None else node["data"]}}


def _unwrap_key_back(step: UnwrapKey, before: Document, after: Document) -> list[Step]:
    del after
    key, _ = key_branch(declared_type(step, before), "field")
    return [WrapKey(within=step.within, field=step.field, impl=str(key.impl))]


UNWRAP_KEY = Operation(_unwrap_key, _unwrap_key_payload, _unwrap_key_back, "manifest")
