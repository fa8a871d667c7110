"""Values that are no data: functions, classes, modules, loggers, transformations of optax, modules of Flax Linen.

A file holds their names, for people. Nothing is imported or called by such a name: a load takes the value from the object
``like``, or the default of the class that holds it.

Example:
    >>> external_name(lambda x: x), external_name(1.5)
    ('neuralqx_struct.codecs.external:<lambda>', None)
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import logging
import types
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.tree_util import PyTreeDef, default_registry

from neuralqx_struct.codecs.nodes import Codec, Encoder
from neuralqx_struct.errors import Diagnostic, SerializationError, printable
from neuralqx_struct.manifest.kinds import EXTERNAL
from neuralqx_struct.paths import FieldName, Path, format_path
from neuralqx_struct.struct.pytree import path_part

if TYPE_CHECKING:
    from neuralqx_struct.codecs.classes import ClassDecoder

Node = Any
Members = Mapping[str, Node]

_CODE = (
    type,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.ModuleType,
    inspect.Signature,
    logging.Logger,
    np.ufunc,
    jax.custom_jvp,
    jax.custom_vjp,
    type(jax.jit(abs)),  # of all jitted functions; JAX has no public name for it
    type(functools.cache(abs)),
)
_METHODS = (types.MethodType, types.BuiltinFunctionType)
#: Classes of libraries whose instances are code: the package, and the class or one that it derives from. Their modules have
#: moved between releases.
_LIBRARY_CODE = {
    ("equinox.nn", "SharedNode"),
    ("flax.linen", "Module"),
    ("flax.nnx", "GraphDef"),
    ("optax", "GradientTransformation"),
    ("optax", "MultiSteps"),
}


@functools.lru_cache(maxsize=1024)
def _is_library_code(cls: type) -> bool:
    named = [(f"{base.__module__}.", base.__qualname__) for base in cls.__mro__]
    return any(
        name == known and module.startswith(f"{package}.")
        for module, name in named
        for package, known in _LIBRARY_CODE
    )


def external_name(value: Any) -> str | None:
    """The name of a value that is no data; None for data, and for code that holds arrays, such as a method of a module."""
    if type(value) is functools.partial:
        return None if _holds_arrays([value.args, value.keywords]) else external_name(value.func)
    if isinstance(value, types.ModuleType):
        return printable(value.__name__)
    if _is_library_code(type(value)):  # type: ignore[arg-type]
        # A bound module of Linen holds its variables.
        held = _holds_arrays([getattr(value, "__dict__", {})])
        return None if held else _named(type(value))
    if not isinstance(value, _CODE):
        return None
    if isinstance(value, _METHODS) and _holds_arrays([value.__self__]):
        return None
    return _named(value if isinstance(getattr(value, "__qualname__", None), str) else type(value))


def _named(value: Any) -> str:
    return printable(f"{getattr(value, '__module__', None) or 'builtins'}:{value.__qualname__}")


def _holds_arrays(inside: list[Any]) -> bool:
    """True if an array is anywhere in these values: in containers, registered objects, or attributes of others."""
    seen: dict[int, Any] = {}  # keeps the objects, so that no two have one id
    while inside:
        value = inside.pop()
        if isinstance(value, (np.ndarray, jax.Array)):
            return True
        if id(value) in seen:
            continue
        seen[id(value)] = value
        if isinstance(value, Mapping):
            inside += value.values()
        elif isinstance(value, (list, tuple, set, frozenset)):
            inside += value
        elif external_name(value) is None:
            parts = default_registry.flatten_one_level(value)
            inside += vars(value).values() if parts is None and hasattr(value, "__dict__") else ()
            inside += () if parts is None else (*parts[0], parts[1])
    return False


def _encode_external(value: Any, _: Encoder) -> Members:
    return {"name": external_name(value)}


def _decode_external(node: Members, decoder: ClassDecoder) -> Any:
    held = value_in_like(decoder)
    if held:
        return held[0]
    if decoder.options.select is not None:  # a part of the object is wanted, as with arrays
        return None
    message = f"expected like= with the value of {node['name']}, which is code, got none"
    hint = (
        "pass like=, an object of the same structure that has it, such as a new state; a field of a Struct may "
        "have it as its default or in fill="
    )
    raise SerializationError(message, code="NQX414", hint=hint)


def decode_member(cls: type, name: Hashable, node: Node, decoder: ClassDecoder) -> Any:
    """The value of a member of an instance; in place of code, as :func:`given_value`."""
    given = given_value(cls, name, decoder) if EXTERNAL.matches(node) else ()
    return given[0] if given else decoder.decode(node, name)


def given_value(cls: type, name: Hashable, decoder: ClassDecoder) -> tuple[Any, ...]:
    """The value of a field of a dataclass or namedtuple that the payload lacks, or has as code, in a tuple.

    The caller gives it, or it is the default of the class; the tuple is empty without either.
    """
    declared = getattr(cls, "__dataclass_fields__", {}).get(name)
    default: Callable[[], Any] | None = None
    if declared is not None and declared.default is not dataclasses.MISSING:
        default = lambda: declared.default  # noqa: E731
    elif declared is not None and declared.default_factory is not dataclasses.MISSING:
        default = declared.default_factory
    elif name in getattr(cls, "_field_defaults", {}):
        default = lambda: cls._field_defaults[name]  # type: ignore[attr-defined]  # noqa: E731
    return given_or_default(name, decoder, default)


def given_or_default(
    name: Hashable, decoder: ClassDecoder, default: Callable[[], Any] | None, *, noted: bool = True
) -> tuple[Any, ...]:
    """The value of a field that the payload lacks: of ``fill``, of ``like``, or its default; in a tuple, which may be empty.

    Args:
        name: The field.
        decoder: The decoder, at the object with the field.
        default: Makes the default; None if the field has none.
        noted: Whether the report has a line, if neither ``fill`` nor the payload has the value.
    """
    options = decoder.options
    if name in options.fill:
        return (options.fill[name],)  # type: ignore[index]
    message = "took the value of like=, the payload has none"
    held = value_in_like(decoder, name)
    if not held and default is not None:
        message = "took the default, the payload has no value"
        held = (default(),)
    if held and noted:
        path = format_path((*decoder.path, name))
        options.report.append(Diagnostic("NQX425", "info", message, path))
    return held


# ----------------------------------------------------------------------------------------------------------------------
# Places in objects.

#: The part of a path that leads to the auxiliary data of a registered object.
AUX = "aux"


def child_keys(value: Any, count: int) -> Sequence[Hashable]:
    """The keys that JAX has for the children of a registered value, or their positions."""
    pairs = (default_registry.flatten_one_level_with_keys(value) or ((), None))[0]
    keys = [position if key is None else path_part(key) for position, (key, _) in enumerate(pairs)]
    return keys if len(keys) == count else range(count)


def value_in_like(decoder: ClassDecoder, *keys: Hashable) -> tuple[Any, ...]:
    """The value of ``like`` at ``keys`` below the current place, in a tuple; an empty one if there is none."""
    like = decoder.options.like
    return () if like is None else value_at(like, (*decoder.path, *keys))


def value_at(value: Any, path: Path) -> tuple[Any, ...]:
    """The value at a path of an object, in a tuple; an empty one if there is none."""
    for part in path:
        try:
            value = _inside(value, part)
        except (AttributeError, TypeError, LookupError, ValueError):
            return ()
    return (value,)


def tree_of(structure: PyTreeDef) -> Any:
    """The tree of a structure, with 0 for each leaf, as which it is saved."""
    return structure.unflatten([0] * structure.num_leaves)


def _inside(value: Any, part: Hashable) -> Any:
    if isinstance(value, PyTreeDef):
        value = tree_of(value)
    if isinstance(part, FieldName):
        return getattr(value, part)
    if isinstance(value, (Mapping, Sequence)):
        return value[part]  # type: ignore[call-overload]
    flat = default_registry.flatten_one_level(value)
    if flat is None:
        raise LookupError(part)
    children, aux = list(flat[0]), flat[1]
    keys = [*child_keys(value, len(children))]
    return aux if part == AUX and part not in keys else children[keys.index(part)]


EXTERNAL_CODEC = Codec(
    EXTERNAL,
    (),
    _encode_external,
    _decode_external,
    lambda value: external_name(value) is not None,
    lambda node, _: node["name"],
)
