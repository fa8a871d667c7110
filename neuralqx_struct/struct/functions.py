"""Functions on classes: introspection of Structs, and promotion of plain classes and dataclasses to Structs.

Example:
    >>> @register_class
    ... class Params:
    ...     weights: object
    >>> Params(weights=1.0).replace(weights=2.0)
    Params(weights=2.0)
"""

from __future__ import annotations

import dataclasses
import inspect
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform, overload

from neuralqx_struct.fieldspec import FieldKind, FieldSpec, field, is_struct
from neuralqx_struct.struct import Struct
from neuralqx_struct.struct.meta import StructABCMeta, StructMeta

__all__ = [
    "dataclass",
    "derived_fields",
    "fields",
    "node_fields",
    "opaque_fields",
    "register_class",
    "static_fields",
]

T = TypeVar("T")


def fields(cls: Any) -> OrderedDict[str, FieldSpec]:
    """The field declarations of a Struct class or instance, by name and in order.

    Raises:
        TypeError: Not a Struct.
    """
    if not is_struct(cls):
        raise TypeError(f"fields(): expected a Struct class or instance, got {cls!r}")
    return OrderedDict(cls.__nqx_fields__)


def _names(cls: Any, kind: FieldKind) -> tuple[str, ...]:
    return tuple(name for name, spec in fields(cls).items() if spec.kind is kind)


def node_fields(cls: Any) -> tuple[str, ...]:
    """The names of the node fields of a Struct class or instance."""
    return _names(cls, FieldKind.NODE)


def static_fields(cls: Any) -> tuple[str, ...]:
    """The names of the static fields of a Struct class or instance, derived ones included."""
    return _names(cls, FieldKind.STATIC)


def opaque_fields(cls: Any) -> tuple[str, ...]:
    """The names of the opaque fields of a Struct class or instance, derived ones included."""
    return _names(cls, FieldKind.OPAQUE)


def derived_fields(cls: Any) -> tuple[str, ...]:
    """The names of the derived fields of a Struct class or instance."""
    return tuple(name for name, spec in fields(cls).items() if spec.is_derived)


@overload
def register_class(cls: type[T], /, *, name: str | None = None) -> type[T]: ...
@overload
def register_class(
    cls: None = None, /, *, name: str | None = None
) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform(field_specifiers=(field,), frozen_default=True)
def register_class(cls: Any = None, /, *, name: str | None = None) -> Any:
    """Promote a plain annotated class to a Struct, as a decorator or by a direct call.

    The result is a new class that precedes the original in the MRO, so that the original's methods and its ``super()``
    calls keep working.

    Args:
        cls: The class; its annotations become fields.
        name: Name of the new class, if not the original's.

    Example:
        >>> @register_class
        ... class Params:
        ...     weights: object
        ...     bias: float = 0.0
        >>> Params(weights=1.0).replace(bias=2.0)
        Params(weights=1.0, bias=2.0)
    """
    if cls is None:
        return lambda original: register_class(original, name=name)
    if not isinstance(cls, type) or is_struct(cls):
        raise TypeError(f"register_class(): expected a plain class, got {cls!r}")
    title = name or cls.__name__
    qualname = ".".join([*cls.__qualname__.split(".")[:-1], title])
    namespace: dict[str, Any] = {
        "__module__": cls.__module__,
        "__qualname__": qualname,
        "__doc__": cls.__doc__,
        "__nqx_promoted__": cls,
        # A frozen dataclass has its own, which would refuse the assignments of the lifecycle.
        "__setattr__": Struct.__setattr__,
        "__delattr__": Struct.__delattr__,
    }
    if dataclasses.is_dataclass(cls):
        # Methods that the decorator made are replaced, written ones stay.
        namespace |= {
            name: getattr(Struct, name) for name in _DATACLASS_MADE if _made_by_dataclass(cls, name)
        }
    meta = StructMeta if type(cls) is type else StructABCMeta
    if not issubclass(meta, type(cls)):
        raise TypeError(
            f"register_class(): expected a class whose metaclass is type or ABCMeta, got {cls.__name__} with the metaclass "
            f"{type(cls).__name__}; use register_pytree_type for it"
        )
    promoted: Any = meta(title, (cls, Struct), namespace)
    if "__parameters__" in vars(cls):  # typing finds no type parameters among the bases
        promoted.__parameters__ = vars(cls)["__parameters__"]
    return promoted


_DATACLASS_MADE = ("__eq__", "__hash__", "__repr__", "__reduce__", "__replace__")


def _made_by_dataclass(cls: type, name: str) -> bool:
    """True if a method of ``cls`` was generated, and not written in a class body."""
    found = next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)
    code = getattr(inspect.unwrap(found) if callable(found) else found, "__code__", None)
    return code is None or code.co_filename in ("<string>", dataclasses.__file__)


if TYPE_CHECKING:  # mypy does not see through the assignment
    from neuralqx_struct.struct.functions import register_class as dataclass
else:
    dataclass = register_class
