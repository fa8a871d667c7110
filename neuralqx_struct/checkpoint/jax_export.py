"""Treedefs of Structs as bytes, for functions that `jax.export` writes.

An exported function is stored with the structure of its arguments and results. JAX asks each class how the static part
of that structure is written; :func:`register_jax_export` answers for a Struct class with the encoding of bundles, so
that reading such a file imports and runs nothing. Owns no file and no array; what is in a treedef is ``pytree.py``.

Example:
    >>> from neuralqx_struct.struct import Struct
    >>> class Model(Struct):
    ...     w: object
    >>> register_jax_export(Model, name="docs.Model") is Model
    True
"""

from __future__ import annotations

import json
import threading
from typing import Any, TypeVar

import jax.export

from neuralqx_struct.checkpoint import from_state_dict, to_state_dict
from neuralqx_struct.errors import Diagnostic, SerializationError, StructError
from neuralqx_struct.fieldspec import is_struct
from neuralqx_struct.manifest.kinds import EXTERNAL
from neuralqx_struct.paths import PathTree, TreePath, format_path
from neuralqx_struct.references import class_ref
from neuralqx_struct.struct.pytree import Layout

__all__ = ["register_jax_export"]

C = TypeVar("C", bound=type)

_NAMES: dict[type, str] = {}
_REGISTERING = threading.Lock()


def register_jax_export(cls: C, *, name: str | None = None) -> C:
    """Let functions that take or return instances of a Struct class be written by ``jax.export``.

    Needed once in the process that writes and in the one that reads, for each Struct class in the arguments and results.
    A subclass is a class of its own.

    Args:
        cls: The Struct class.
        name: What stands for the class in the file; by default its class reference, ``module:QualifiedName``.

    Returns:
        ``cls``, so that it can be used as a decorator.

    Raises:
        TypeError: Not a Struct class.
        ValueError: The class is registered under another name, or the name stands for another class.

    Example:
        >>> from neuralqx_struct.struct import Struct
        >>> @register_jax_export
        ... class Params(Struct):
        ...     w: object
    """
    if not isinstance(cls, type) or not is_struct(cls):
        raise TypeError(
            f"register_jax_export(): expected a Struct class, got {cls!r}; "
            "for other classes there is jax.export.register_pytree_node_serialization"
        )
    wanted = class_ref(cls) if name is None else name
    with _REGISTERING:
        if _NAMES.get(cls) == wanted:
            return cls
        try:
            jax.export.register_pytree_node_serialization(
                cls,
                serialized_name=wanted,
                serialize_auxdata=lambda aux: aux_to_bytes(cls, aux),
                deserialize_auxdata=lambda data: aux_from_bytes(cls, data),
            )
        except ValueError as error:
            raise ValueError(
                f"{class_ref(cls)}: expected a class and a name that jax.export does not know yet, got {wanted!r}\n{error}\n"
                "register each class once, or pass name= if a class of this name was defined before"
            ) from None
        _NAMES[cls] = wanted
    return cls


def aux_to_bytes(cls: Any, aux: tuple[Any, ...]) -> bytes:
    """The static part of a treedef node of a Struct class as bytes.

    Args:
        cls: The class.
        aux: What its flatten gives beside the children.

    Raises:
        SerializationError: NQX430 for static values that cannot be saved, and for opaque objects other than the default:
            another process does not have them.
    """
    layout: Layout = cls.__nqx_layout__
    values = dict(layout.values(((None,) * len(layout.nodes), aux)))
    foreign = [
        name for name in layout.opaques if values[name] is not cls.__nqx_fields__[name].default
    ]
    if foreign:
        raise SerializationError(
            Diagnostic(
                "NQX430",
                "error",
                "expected an opaque object that the reader has too, which is the default, got another one",
                path=f"{cls.__name__}.{name}",
                hint="declare the field with reset=True, which keeps it out of the treedef, or replace it before exporting",
            )
            for name in foreign
        )
    payload = to_state_dict({name: values[name] for name in layout.statics})
    del payload["array_data"]  # static values hold no arrays
    code = [
        Diagnostic(
            "NQX430",
            "error",
            f"expected a static value that is data, got {node['name']}, which is code",
            path=format_path(path),
            hint="give the field a default and declare it with reset=True, which keeps it out of the treedef",
        )
        for path, node in EXTERNAL.within(payload["manifest"])
    ]
    if code:  # no reader of an exported function could give it
        raise SerializationError(code)
    return json.dumps(payload).encode()


def aux_from_bytes(cls: Any, data: bytes) -> tuple[Any, ...]:
    """The inverse of :func:`aux_to_bytes`; equal to the treedef node of an instance with the same static values.

    Raises:
        SerializationError: The bytes are something else, or are of a class with other static fields.
    """
    layout: Layout = cls.__nqx_layout__
    payload = _json(data)
    if not isinstance(payload, dict):
        raise SerializationError(
            f"expected the static fields of {cls.__name__} as JSON, got something else",
            code="NQX401",
            path=cls.__name__,
            hint="the file was written by other means; register the class as it was then",
        )
    try:
        values = from_state_dict({**payload, "array_data": {}}, load_cls=dict)
    except StructError as error:
        error.add_note(f"while reading the static fields of {cls.__name__} in an exported function")
        raise
    if set(values) != set(layout.statics):
        raise SerializationError(
            f"expected the static fields {', '.join(layout.statics) or '(none)'}, got {', '.join(values) or '(none)'}",
            code="NQX414",
            path=cls.__name__,
            hint="the class has changed since the function was exported: export it again",
        )
    values |= {name: cls.__nqx_fields__[name].default for name in layout.opaques}
    return layout.pair({**dict.fromkeys(layout.nodes), **values}, cls.__name__)[1]


def _json(data: bytes) -> Any:
    """The value of a JSON text; None for other bytes."""
    try:
        return json.loads(bytes(data))
    except (ValueError, RecursionError):
        return None


def paths_from_bytes(data: bytes) -> tuple[TreePath, ...]:
    """The treedef node of a PathTree from the JSON of its paths.

    Raises:
        SerializationError: The bytes are something else.
    """
    paths = _json(data)
    lists = isinstance(paths, list) and all(isinstance(path, list) for path in paths)
    texts = lists and all(isinstance(part, str) for path in paths for part in path)
    if not texts or paths != sorted(paths):
        raise SerializationError(
            "expected the sorted paths of a PathTree as JSON, got something else",
            code="NQX401",
            path="Params",
            hint="the file was written by other means: export the function again",
        )
    return tuple(map(tuple, paths))


# The tree inside Params is no class that users know: whoever registers Params has registered it.
jax.export.register_pytree_node_serialization(
    PathTree,
    serialized_name="neuralqx_struct.path_tree:PathTree",
    serialize_auxdata=lambda paths: json.dumps(paths).encode(),
    deserialize_auxdata=paths_from_bytes,
)
