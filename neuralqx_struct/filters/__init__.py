"""Filters: choose leaves of a tree by literals, by classes that combine with ``& | ~``, or by text.

A predicate is any ``(path, value) -> bool``; a filter is a predicate or one of the literals that :func:`to_predicate`
converts to one. The literals and classes of Flax NNX keep their meaning; :class:`PathGlob`, :class:`Kind`,
:class:`DType`, :class:`TypeName`, tags of fields, operators and text are added.

Example:
    >>> trained = parse("tag:trainable & !path:**/bias")
    >>> trained
    All(WithTag('trainable'), Not(PathGlob('**/bias')))
    >>> trained == WithTag("trainable") & ~PathGlob("**/bias")
    True
    >>> str(trained)
    'tag:trainable & !path:**/bias'
"""

from __future__ import annotations

import typing
from collections.abc import Iterable, Mapping

import neuralqx_struct.filters.table  # noqa: F401 - fills the table of filters
from neuralqx_struct.errors import Diagnostic
from neuralqx_struct.filters.predicates import (
    DType,
    Everything,
    Kind,
    Nothing,
    OfType,
    PathContains,
    PathGlob,
    PathIn,
    TypeName,
    WithTag,
)
from neuralqx_struct.filters.records import (
    All,
    Any,
    Filter,
    FilterError,
    Matcher,
    Not,
    Predicate,
    filters_to_predicates,
    to_predicate,
)
from neuralqx_struct.filters.text import parse

__all__ = [
    "All",
    "Any",
    "DType",
    "Everything",
    "Filter",
    "FilterError",
    "Kind",
    "Matcher",
    "Not",
    "Nothing",
    "OfType",
    "PathContains",
    "PathGlob",
    "PathIn",
    "Predicate",
    "TypeName",
    "WithTag",
    "axes",
    "filters_to_predicates",
    "parse",
    "to_predicate",
]


def axes(
    obj: typing.Any,
    groups: Mapping[Filter, typing.Any] | Iterable[tuple[Filter, typing.Any]],
    *,
    report: list[Diagnostic] | None = None,
) -> typing.Any:
    """Builds ``in_axes`` or ``out_axes`` of :func:`jax.vmap` for an object: each leaf gets the axis of its first filter.

    Args:
        obj: A Struct or any pytree, as it will be given to the mapped function.
        groups: An axis, or None for leaves that are not mapped, by filter, as a mapping or as pairs; ``...`` last is for
            the rest. For other transformations any value will do, such as a ``PartitionSpec``.
        report: Gets filters that matched nothing and filters that overlap.

    Returns:
        An object of the same structure with the axes in place of the leaves.

    Raises:
        ValueError: A leaf matches no filter; names all such paths.
        TypeError: ``groups`` is neither a mapping nor pairs.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> model = {"w": jnp.ones((3, 2)), "scale": jnp.ones(2)}
        >>> in_axes = axes(model, {PathContains("w"): 0, ...: None})
        >>> in_axes
        {'scale': None, 'w': 0}
        >>> jax.vmap(lambda m: m["w"] * m["scale"], in_axes=(in_axes,))(model).shape
        (3, 2)
    """
    # The public functions on trees need JAX; the root package imports them when they are first used.
    from neuralqx_struct import merge, split

    items = groups.items() if isinstance(groups, Mapping) else groups
    pairs = list(items) if isinstance(items, Iterable) else [None]
    if not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
        raise TypeError(
            "axes(): expected a mapping from filters to axes, {A: 0, ...: None}, or such pairs, "
            f"got a {type(groups).__name__}"
        )
    definition, *states = split(obj, *(given for given, _ in pairs), report=report)
    values = [axis for _, axis in pairs]
    return merge(definition, *map(dict.fromkeys, states, values))
