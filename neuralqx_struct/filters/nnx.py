"""The filters of Flax NNX as records of ours, so that they see tags of fields and what holds a value, and print as text.

Flax is not imported: its classes are known by name.

Example:
    >>> FOREIGN["flax.nnx.filterlib.Not"](Not("dropout"))
    Not(WithTag('dropout'))
"""

from __future__ import annotations

from neuralqx_struct.filters.algebra import FOREIGN, All, Any, Everything, Not, Nothing
from neuralqx_struct.filters.places import PathContains, PathIn
from neuralqx_struct.filters.values import OfType, WithTag

__all__: list[str] = []

FOREIGN.update(
    {
        "flax.nnx.filterlib.All": lambda theirs: All(*theirs.predicates),
        "flax.nnx.filterlib.Any": lambda theirs: Any(*theirs.predicates),
        "flax.nnx.filterlib.Everything": lambda _: Everything(),
        "flax.nnx.filterlib.Not": lambda theirs: Not(theirs.predicate),
        "flax.nnx.filterlib.Nothing": lambda _: Nothing(),
        "flax.nnx.filterlib.OfType": lambda theirs: OfType(theirs.type),
        "flax.nnx.filterlib.PathContains": lambda theirs: PathContains(theirs.key, theirs.exact),
        "flax.nnx.filterlib.PathIn": lambda theirs: PathIn(*theirs.paths),
        "flax.nnx.filterlib.WithTag": lambda theirs: WithTag(theirs.tag),
    }
)
