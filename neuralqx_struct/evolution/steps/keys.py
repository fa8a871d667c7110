"""The steps wrap_key and unwrap_key, between the raw words of a random key and a typed key. The words are not moved.

Example:
    >>> step = wrap_key(field="rng", impl="threefry2x32")
    >>> WRAP_KEY.declare(step, Scope.of(step, v2, v3)).structs["VMCState"].fields["rng"].text
    'prng_key[threefry2x32]'
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from neuralqx_struct.dtypes import KEY_WORDS
from neuralqx_struct.errors import did_you_mean
from neuralqx_struct.evolution.payload_tree import TAKES, Place
from neuralqx_struct.evolution.steps.operations import (
    Gap,
    Scope,
    StepKind,
    array_branch,
    builder,
    only_branch,
    refuse,
)
from neuralqx_struct.manifest.kinds import FULL, PRNG_KEY, shown_node
from neuralqx_struct.paths import Path
from neuralqx_struct.schema.migration import Step, UnwrapKey, WrapKey
from neuralqx_struct.schema.model import Document, FieldDeclaration
from neuralqx_struct.schema.sizes.comparison import constant, extent
from neuralqx_struct.types import Array, Key, Node, Type, walk_type
from neuralqx_struct.types.text import format_type


def _wrap_key(step: WrapKey, scope: Scope) -> Document:
    if step.impl not in KEY_WORDS:
        hint = did_you_mean(step.impl, KEY_WORDS) or f"known: {', '.join(KEY_WORDS)}"
        message = f"expected an implementation of random keys, got {step.impl!r}"
        refuse("NQX420", "impl", message, hint)
    words = KEY_WORDS[step.impl]

    def wrapped(declared: Type) -> Type:
        array, rebuilt = array_branch(declared)
        last = array.shape[-1] if array.shape else None
        fits = last is ... or (last is not None and constant(last) == words)
        if array.dtype != "uint32" or not fits:
            shown = f"the words of a {step.impl} key, got {format_type(array)}"
            refuse("NQX420", "field", f"expected uint32[..., {words}], {shown}")
        return rebuilt(Key(step.impl, array.shape if last is ... else array.shape[:-1]))

    return scope.with_type(step.field, wrapped)


def _wrap_key_payload(step: WrapKey, place: Place) -> Node:
    words = KEY_WORDS[step.impl]

    def change(node: Node, at: Path) -> Node:
        shape = place.shape(node, *at)
        if node["dtype"] != "uint32" or shape[-1:] != [words]:
            shown = f"the words of a {step.impl} key, got {node['dtype']}{shape}"
            message = f"expected uint32[..., {words}], {shown}"
            raise place.error("NQX420", message, *at, hint=TAKES)
        if FULL.matches(node):  # a key's words are an array of their own, never a constant
            made = place.workspace.store(place.load(node), ("words", place.identity(node)))
            leaf = {"leaf": node["leaf"]} if "leaf" in node else {}
            node = {**made, **leaf}
        return PRNG_KEY.node(impl=step.impl, data=node)

    return place.each_array(step.field, change)


def _suggest_wrap_key(gap: Gap) -> Iterator[Step]:
    impl = gap.want.key_impl
    words = constant(gap.have.extents[-1]) if gap.have.extents else None
    impls = [impl] if impl != "_" else [name for name, n in KEY_WORDS.items() if n == words]
    for each in impls if impl else ():
        yield wrap_key(field=gap.field, impl=each, within=gap.within)


def _question(wanted: FieldDeclaration) -> str:
    keys = [inner.key_impl for inner in walk_type(wanted.declared) if inner.key_impl]
    return "which implementation of random keys are its words of?" if "_" in keys else ""


wrap_key = builder(WrapKey)
WRAP_KEY = StepKind(
    model=WrapKey,
    declare=_wrap_key,
    rewrite=_wrap_key_payload,
    inverse=lambda step, *_: [UnwrapKey(field=step.field)],
    cost="manifest",
    suggest=_suggest_wrap_key,
    question=_question,
    answer="of this one",
)


def _key_branch(declared: Type) -> tuple[Key, Callable[[Type], Type]]:
    words = "a field of type prng_key"
    return only_branch(declared, lambda one: one.key_impl, words)


def _unwrap_key(step: UnwrapKey, scope: Scope) -> Document:
    def unwrapped(declared: Type) -> Type:
        key, rebuilt = _key_branch(declared)
        words = KEY_WORDS.get(str(key.impl))
        if words is None:
            message = f"expected a key of a known implementation, got {format_type(key)}"
            refuse("NQX420", "field", message, "declare `impl:`")
        return rebuilt(Array("uint32", (*key.shape, extent(words))))

    return scope.with_type(step.field, unwrapped)


def _unwrap_key_payload(step: UnwrapKey, place: Place) -> Node:
    node = place.field(step.field)
    if node is None:
        return place.node
    if not PRNG_KEY.matches(node):
        message = f"expected a random key, got {shown_node(node)}"
        raise place.error("NQX420", message, step.field)
    return place.with_fields({step.field: node["data"]})


def _unwrap_key_back(step: UnwrapKey, scope: Scope, _: Document) -> list[Step]:
    key, _rebuilt = _key_branch(scope.type(step.field))
    return [WrapKey(field=step.field, impl=str(key.impl))]


def _suggest_unwrap_key(gap: Gap) -> Iterator[Step]:
    if gap.have.key_impl:
        yield unwrap_key(field=gap.field, within=gap.within)


unwrap_key = builder(UnwrapKey)
UNWRAP_KEY = StepKind(
    model=UnwrapKey,
    declare=_unwrap_key,
    rewrite=_unwrap_key_payload,
    inverse=_unwrap_key_back,
    cost="manifest",
    suggest=_suggest_unwrap_key,
)
