"""Placement: which sharding each array of a loaded object gets, and putting it there.

The argument ``shardings=`` of a load is one sharding, a tree of them that is a prefix of the object, or a
function of path and array; an array or a ``jax.ShapeDtypeStruct`` means its own sharding. The decoder
(``codecs/jax.py``) reads shards straight to the devices that :func:`targets_of` returns.

Example:
    >>> import jax.numpy as jnp
    >>> here = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    >>> placed({"w": jnp.ones(2), "step": 3}, here)["w"].sharding == here
    True
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

import jax

from neuralqx_struct.errors import within_stack
from neuralqx_struct.paths import format_path
from neuralqx_struct.trees import leaves_with_paths


def targets_of(shapes: Any, met: Mapping[int, Any], shardings: Any) -> dict[int, Any]:
    """The shardings of leaves that are about to be read.

    Args:
        shapes: The object with ``jax.ShapeDtypeStruct`` in the place of arrays.
        met: The same leaves by any key.
        shardings: The argument of the load.

    Returns:
        The shardings by those keys, without those that do not fit their array: :func:`placed` reports them.
    """
    try:
        leaves, _, wanted = _wanted(shapes, shardings)
    except ValueError:
        return {}
    pairs = zip(leaves, wanted, strict=True)
    homes = {id(leaf): sharding for leaf, sharding in pairs if _fits(leaf, sharding)}
    return {key: homes[id(leaf)] for key, leaf in met.items() if id(leaf) in homes}


def placed(value: Any, shardings: Any) -> Any:
    """The value with its JAX arrays in their shardings; all else stays the same.

    Raises:
        ValueError: ``shardings`` is no prefix of the value, or one of them does not fit its array.
    """
    leaves, structure, wanted = _wanted(value, shardings)
    paths = (path for path, _ in leaves_with_paths(value))
    return jax.tree.unflatten(structure, map(_put, paths, leaves, wanted))


@within_stack
def _wanted(value: Any, shardings: Any) -> tuple[list[Any], Any, list[Any]]:
    """The leaves of a value, its structure, and a sharding or None for each leaf."""
    leaves, structure = jax.tree.flatten(value)
    jax.tree.leaves(shardings)  # too deep a tree fails here; see trees.flattened
    wanted: list[Any] = []
    if callable(shardings):
        wanted = all_of(
            lambda path, leaf: (
                shardings(path, leaf)
                if isinstance(leaf, (jax.Array, jax.ShapeDtypeStruct))
                else None
            ),
            leaves_with_paths(value),
        )
    else:
        try:
            jax.tree.map(
                lambda sharding, part: wanted.extend([sharding] * len(jax.tree.leaves(part))),
                shardings,
                value,
                is_leaf=lambda item: item is None,
            )
        except ValueError as error:
            raise ValueError(
                f"shardings=: expected one sharding or a prefix of the tree, got another tree\n{error}"
            ) from None
    return leaves, structure, [getattr(each, "sharding", each) for each in wanted]


def all_of(
    sharding: Callable[[tuple[Hashable, ...], Any], Any],
    leaves: Iterable[tuple[tuple[Hashable, ...], Any]],
) -> list[Any]:
    """The sharding of each leaf by a function of path and leaf.

    Raises:
        ValueError: The function refused some of them; with all of its messages.
    """
    found: list[Any] = []
    refused: list[ValueError] = []
    for path, leaf in leaves:
        try:
            found.append(sharding(path, leaf))
        except ValueError as error:
            refused.append(error)
    if refused:
        raise ValueError("\n".join(map(str, refused))) from refused[0]
    return found


def _fits(leaf: Any, sharding: Any) -> bool:
    if not isinstance(sharding, jax.sharding.Sharding) or not isinstance(
        leaf, jax.ShapeDtypeStruct
    ):
        return False
    try:
        sharding.shard_shape(leaf.shape)
    except (ValueError, IndexError):  # too few dimensions are the latter
        return False
    return True


def _put(path: tuple[Hashable, ...], leaf: Any, sharding: Any) -> Any:
    if sharding is None or (isinstance(leaf, jax.Array) and leaf.sharding == sharding):
        return leaf
    try:
        if isinstance(leaf, jax.ShapeDtypeStruct):
            make: Any = jax.ShapeDtypeStruct  # JAX leaves its constructor untyped
            return make(leaf.shape, leaf.dtype, sharding=sharding, weak_type=leaf.weak_type)
        if not isinstance(leaf, jax.Array):
            return leaf
        if getattr(sharding, "is_fully_addressable", True) or not leaf.is_fully_addressable:
            return jax.device_put(leaf, sharding)
        return jax.make_array_from_callback(
            leaf.shape, sharding, leaf.__getitem__
        )  # every host has the same
    except ValueError as error:
        raise ValueError(
            f"shardings=: {format_path(path)}: expected a sharding that fits\n{error}"
        ) from None
