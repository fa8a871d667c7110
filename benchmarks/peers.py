"""One declaration in the words of every library: an inner class of five arrays and three statics, an outer one of four.

Each function imports its library, so that a missing one is only reported. chex has no static fields: its classes hold the
arrays alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

NODES, STATICS, OUTER = tuple("abcde"), {"name": "n", "size": 3, "flag": True}, tuple("abcd")
PACKAGES = ("neuralqx-struct", "jax", "flax", "equinox", "chex", "jax-dataclasses", "attrs")

Classes = tuple[type, type]


def _define(
    bases: tuple[type, ...],
    static: Callable[[Any], Any],
    decorate: Callable[[type], type] = lambda cls: cls,
) -> Classes:
    """Both classes, as class statements would make them; ``static(default)`` declares a static field."""

    def cls(name: str, nodes: Iterable[str], statics: dict[str, Any]) -> type:
        annotations = dict.fromkeys(nodes, object) | {
            name: type(default) for name, default in statics.items()
        }
        body = {"__annotations__": annotations, "__module__": __name__}
        body |= {name: static(default) for name, default in statics.items()}
        meta = type(bases[0]) if bases else type
        return decorate(meta(name, bases, body))

    return cls("Inner", NODES, STATICS), cls("Outer", OUTER, {})


def ours() -> Classes:
    import neuralqx_struct as s

    return _define((s.Struct,), lambda default: s.field(static=True, default=default))


def neuralqx() -> Classes:
    from tests.peers import neuralqx as peer

    s = peer.load()
    return _define((s.Struct,), lambda default: s.field(static=True, default=default))


def dataclass() -> Classes:
    return _define((), lambda default: default, dataclasses.dataclass(frozen=True))


def dataclass_slots() -> Classes:
    return _define((), lambda default: default, dataclasses.dataclass(frozen=True, slots=True))


def register_dataclass() -> Classes:
    import jax

    inner, outer = dataclass()
    jax.tree_util.register_dataclass(inner, NODES, tuple(STATICS))
    jax.tree_util.register_dataclass(outer, OUTER, ())
    return inner, outer


def attrs() -> Classes:
    import attr

    return _define((), lambda default: default, attr.s(auto_attribs=True, frozen=True))


def attrs_slots() -> Classes:
    import attr

    return _define((), lambda default: default, attr.s(auto_attribs=True, frozen=True, slots=True))


def flax() -> Classes:
    import flax.struct

    return _define(
        (),
        lambda default: flax.struct.field(pytree_node=False, default=default),
        flax.struct.dataclass,
    )


def equinox() -> Classes:
    import equinox

    return _define((equinox.Module,), lambda default: equinox.field(static=True, default=default))


def chex() -> Classes:
    import chex

    def cls(name: str, nodes: Iterable[str]) -> type:
        body = {"__annotations__": dict.fromkeys(nodes, object), "__module__": __name__}
        return chex.dataclass(frozen=True)(type(name, (), body))

    return cls("Inner", NODES), cls("Outer", OUTER)


def jax_dataclasses() -> Classes:
    import jax_dataclasses as jdc

    def cls(name: str, nodes: Iterable[str], statics: dict[str, Any]) -> type:
        annotations = dict.fromkeys(nodes, object) | {
            name: jdc.Static[type(d)] for name, d in statics.items()
        }
        return jdc.pytree_dataclass(
            type(name, (), {"__annotations__": annotations, "__module__": __name__, **statics})
        )

    return cls("Inner", NODES, STATICS), cls("Outer", OUTER, {})


def present(candidates: dict[str, Callable[[], Any]]) -> dict[str, Any]:
    """Returns the classes of the candidates; prints the names of those that cannot be imported."""
    made = {}
    for name, make in candidates.items():
        try:
            made[name] = make()
        except ImportError as error:
            print(f"without {name}: {error}")
    return made


def arguments(cls: type) -> str:
    """The arguments of a call of Inner: by position where the class takes that."""
    if "name" not in getattr(cls, "__annotations__", {}):
        return ", ".join(f"{name}={place + 1}" for place, name in enumerate(NODES))
    return ", ".join([*map(str, range(1, 6)), *map(repr, STATICS.values())])
