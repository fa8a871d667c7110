"""Defaults of schema-made classes: the values of files as arguments of ``field()``.

The sizes of an array such as ``float32[n]``, and the dtype of a choice, are those that the other fields of an instance fix:
:class:`SizedDefault` takes the place of its default until they are known.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.schema.model import Document, FieldDeclaration
from neuralqx_struct.schema.sizes.solver import Solver
from neuralqx_struct.types import Array, PyTree, Type
from neuralqx_struct.types.arrays import is_identity
from neuralqx_struct.types.builders import LiveBuilder, require_room
from neuralqx_struct.types.text import format_type, read_value


@dataclass(frozen=True, slots=True, eq=False)
class SizedDefault:
    """The default of a field whose sizes, or dtype, the other fields of an instance fix.

    Attributes:
        make: Returns the value for the sizes of an instance.
    """

    make: Callable[[Solver], Any]

    def __call__(self) -> SizedDefault:
        """Itself, as a factory."""
        return self


def default_of(document: Document, declaration: FieldDeclaration) -> dict[str, Any]:
    """The default as an argument of ``field()``: a factory for values that instances must not share."""
    value, builder = declaration.default, LiveBuilder(document)
    declared: Type = declaration.declared
    arrays: list[Array] = []
    builder.make_array = lambda array, _: arrays.append(array)
    try:
        made = read_value(value, declared, builder)
    except SchemaError:
        if declaration.kind != "opaque":
            raise
        declared = PyTree()  # an opaque field holds any value
        made = read_value(value, declared, builder)
    if builder.shared:
        return {"default": made}

    def make(sizes: Solver) -> Any:
        sized = LiveBuilder(document, make_array=functools.partial(_array, sizes))
        return read_value(value, declared, sized)

    names = [size.names for array in arrays for size in array.shape if size is not ...]
    is_sized = any(names) and not isinstance(value, list)
    if is_sized or any(array.choice for array in arrays):
        return {"default_factory": SizedDefault(make)}
    return {"default_factory": functools.partial(make, Solver({}))}


def sized_fields(namespace: Mapping[str, Any]) -> dict[str, Callable[[Solver], Any]]:
    """The fields of a class in the making whose defaults are sized, with the function that makes each."""
    found: dict[str, Callable[[Solver], Any]] = {}
    for name, spec in namespace.items():
        factory = getattr(spec, "default_factory", None)
        if isinstance(factory, SizedDefault):
            hooks = [spec.converter] if spec.converter is not None else []
            found[name] = functools.partial(_converted, factory.make, hooks)
    return found


def _converted(
    make: Callable[[Solver], Any], hooks: list[Callable[[Any], Any]], sizes: Solver
) -> Any:
    value = make(sizes)
    for hook in hooks:
        value = hook(value)
    return value


def _array(known: Solver, declared: Array, value: Any) -> Any:
    """An array of a file: its numbers, one number in every place, or an identity matrix."""
    import jax.numpy as jnp

    declared = declared.as_chosen(known.chosen)
    sizes = [None if extent is ... else known.size(extent) for extent in declared.shape]
    require_room(declared, [each for each in sizes if each is not None])
    if is_identity(value):
        return jnp.eye(_known(sizes, declared)[0], dtype=declared.made_as)
    array = jnp.asarray(value, declared.made_as)
    if isinstance(value, list):
        declared.check_shape(array.shape)
        return array
    if ... in declared.shape:
        return array
    return jnp.broadcast_to(array, _known(sizes, declared))


def _known(sizes: list[int | None], declared: Array) -> tuple[int, ...]:
    known = tuple(size for size in sizes if size is not None and size >= 0)
    if len(known) < len(sizes):
        message = f"expected fields that fix the sizes of the default {format_type(declared)}, got some that do not"
        raise SchemaError(message, code="NQX108", hint="pass the array")
    return known
