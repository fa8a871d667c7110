"""Defaults of schema-made classes: the values of files as arguments of ``field()``."""

from __future__ import annotations

import functools
from typing import Any

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.expressions.evaluation import evaluate
from neuralqx_struct.schema.lint.values import is_too_large
from neuralqx_struct.schema.model import Document, FieldDeclaration
from neuralqx_struct.types import Array, PyTree, Type
from neuralqx_struct.types.text import LiveBuilder, format_type, read_value


def default_of(document: Document, declaration: FieldDeclaration) -> dict[str, Any]:
    """The default as an argument of ``field()``: a factory for values that instances must not share."""
    value, builder = declaration.default, LiveBuilder(document)
    declared: Type = declaration.declared
    try:
        made = read_value(value, declared, builder)
    except SchemaError:
        if declaration.kind != "opaque":
            raise
        declared = PyTree()  # an opaque field holds any value
        made = read_value(value, declared, builder)
    if builder.shared:
        return {"default": made}
    builder.make_array = _default_array
    return {"default_factory": functools.partial(read_value, value, declared, builder)}


def _default_array(declared: Array, value: Any) -> Any:
    """The default of an array field: the numbers of the file; one number fills a shape without symbols."""
    import jax.numpy as jnp

    if is_too_large(declared):  # for documents of bundles, which are not linted
        raise SchemaError(
            f"expected a default that fits into memory, got one for {format_type(declared)}",
            code="NQX109",
        )
    array = jnp.asarray(value, declared.made_as)
    if isinstance(value, list):
        declared.check_shape(array.shape)
    sizes = [None if size is ... or size.names else evaluate(size, {}) for size in declared.shape]
    return array if None in sizes else jnp.broadcast_to(array, tuple(sizes))
