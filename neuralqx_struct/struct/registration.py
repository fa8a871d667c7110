"""Registration of classes: plain ones become Structs, others get functions that flatten, rebuild and save instances.

Structs are flattened by ``pytree.py``. Classes that others have registered with JAX are saved by ``codecs/classes.py``.

Example:
    >>> class Edge:
    ...     def __init__(self, flux, source):
    ...         self.flux, self.source = flux, source
    >>> _ = register_attrs_type(Edge, node_fields=("flux",), static_fields=("source",))
    >>> import jax
    >>> jax.tree.leaves(Edge(1.5, 0))
    [1.5]
"""

from __future__ import annotations

import dataclasses
import inspect
import threading
import types
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar, dataclass_transform, overload

from jax.tree_util import GetAttrKey, register_pytree_node, register_pytree_with_keys

from neuralqx_struct.documents.instances import Pair
from neuralqx_struct.errors import SerializationError
from neuralqx_struct.fieldspec import Hook, Names, field, is_struct
from neuralqx_struct.references import class_ref, find_class, register_ref
from neuralqx_struct.struct import Struct
from neuralqx_struct.struct.declarations import required_positional
from neuralqx_struct.struct.meta import StructABCMeta, StructMeta
from neuralqx_struct.struct.pytree import Layout

__all__ = [
    "dataclass",
    "is_registered_pytree_type",
    "register_attrs_type",
    "register_class",
    "register_pytree_type",
    "resolve_pytree_spec",
]


Flat: TypeAlias = tuple[Iterable[Any], Any]
Flatten: TypeAlias = Callable[[Any], Flat]
Unflatten: TypeAlias = Callable[[Any, Any], Any]
T = TypeVar("T")


class PyTreeSpec(NamedTuple):
    """The registration of a class that is not a Struct.

    Attributes:
        cls: The class.
        flatten: ``flatten(obj) -> (children, aux)``.
        unflatten: ``unflatten(aux, children) -> obj``.
        flatten_with_keys: As ``flatten``, with a key beside each child; or None.
        serializer: ``serializer(obj) -> payload`` of plain values and arrays, or None.
        deserializer: ``deserializer(payload)`` or ``deserializer(payload, children) -> obj``, or None.
        names: The attributes that the children of every instance are, or None.
    """

    cls: type
    flatten: Flatten
    unflatten: Unflatten
    flatten_with_keys: Flatten | None = None
    serializer: Callable[[Any], Any] | None = None
    deserializer: Hook | None = None
    names: Names | None = None

    @property
    def deserializer_takes_children(self) -> bool:
        """True for ``deserializer(payload, children)``."""
        return self.deserializer is not None and required_positional(self.deserializer) >= 2


_SPECS: dict[type, PyTreeSpec] = {}
# The arguments of register_attrs_type, which may be called with the same ones again.
_ATTRS: dict[type, tuple[Any, ...]] = {}
_REGISTERING = threading.Lock()


def _same_hook(a: Any, b: Any) -> bool:
    """True if two functions have the same code and equal values, as when the cell of a notebook runs again."""
    if a is b:
        return True
    are_functions = isinstance(a, types.FunctionType) and isinstance(b, types.FunctionType)
    return are_functions and _essence(a) == _essence(b)


def _essence(function: types.FunctionType) -> Any:
    held = [cell.cell_contents for cell in function.__closure__ or ()]
    return function.__code__, function.__defaults__, function.__kwdefaults__, held


def register_pytree_type(
    cls: type,
    *,
    flatten: Flatten,
    unflatten: Unflatten,
    flatten_with_keys: Flatten | None = None,
    serializer: Callable[[Any], Any] | None = None,
    deserializer: Hook | None = None,
) -> type:
    """Make a class of your own or of a library a pytree whose instances can be saved.

    Args:
        cls: The class; a Struct needs no registration.
        flatten: ``flatten(obj) -> (children, aux)``; ``aux`` must be hashable.
        unflatten: ``unflatten(aux, children) -> obj``; it must not check the children.
        flatten_with_keys: As ``flatten``, with a JAX key beside each child.
        serializer: ``serializer(obj) -> payload``, where ``aux`` cannot be saved as it is.
        deserializer: ``deserializer(payload)`` or ``deserializer(payload, children)``, the inverse.

    Returns:
        ``cls``.

    Raises:
        TypeError: ``cls`` is no class, or one of the functions is none.
        ValueError: The class is registered already, with other functions or by somebody else.

    Example:
        >>> class Node:
        ...     def __init__(self, data, tag):
        ...         self.data, self.tag = data, tag
        >>> _ = register_pytree_type(Node, flatten=lambda n: ([n.data], n.tag), unflatten=lambda tag, c: Node(c[0], tag))
        >>> is_registered_pytree_type(Node)
        True
    """
    if not isinstance(cls, type):
        raise TypeError(f"register_pytree_type(): expected a class, got {cls!r}")
    spec = PyTreeSpec(cls, flatten, unflatten, flatten_with_keys, serializer, deserializer)
    for role, hook in zip(PyTreeSpec._fields[1:-1], spec[1:], strict=False):
        left_out = hook is None and role not in ("flatten", "unflatten")
        if not callable(hook) and not left_out:
            raise TypeError(f"{class_ref(cls)}: expected a function as {role}, got {hook!r}")
    with _REGISTERING:
        if cls in _SPECS and all(map(_same_hook, _SPECS[cls][:-1], spec)):
            return cls
        if cls in _SPECS or is_struct(cls):
            raise ValueError(
                f"{class_ref(cls)}: expected a class that is not registered yet, got one that is: JAX would keep the first "
                "functions while saving used the new ones; register it once, where it is defined"
            )
        try:
            if flatten_with_keys is None:
                register_pytree_node(cls, flatten, unflatten)
            else:
                register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
        except ValueError as error:
            raise ValueError(
                f"{class_ref(cls)}: expected a class that JAX does not know yet, got one that is registered with it; such "
                "classes are flattened and saved as they are, without register_pytree_type"
            ) from error
        _SPECS[cls] = spec
        register_ref(cls)
    return cls


def names_of(where: str, argument: str, given: Any) -> Names:
    """A collection of names as a tuple; raises TypeError for anything else, also for one name alone."""
    if isinstance(given, Iterable) and not isinstance(given, str):
        names = tuple(given)
        if all(isinstance(name, str) for name in names):
            return names
    raise TypeError(
        f"{where}: expected a list of attribute names as {argument}, got {given!r}; write ['name']"
    )


def _declared_names(cls: type, statics: Names) -> tuple[Names, Names]:
    """The fields that a dataclass or a class of attrs declares: the nodes, and the static ones after those given.

    Raises:
        TypeError: The class declares no fields, and none are given.
    """
    declared = getattr(cls, "__attrs_attrs__", None)  # as attrs.fields reads them
    if declared is None and dataclasses.is_dataclass(cls):
        declared = dataclasses.fields(cls)
    if declared is None:
        if statics:
            return (), statics
        raise TypeError(
            f"{class_ref(cls)}: expected a dataclass or a class of attrs, got one that declares no fields; pass its attributes "
            "as node_fields=[...] and static_fields=[...]"
        )
    others = [each for each in declared if each.name not in statics]
    static = tuple(each.name for each in others if each.metadata.get("static"))
    return tuple(each.name for each in others if each.name not in static), (*statics, *static)


def register_attrs_type(
    cls: type,
    *,
    node_fields: Sequence[str] | None = None,
    static_fields: Sequence[str] = (),
    constructor: Callable[[dict[str, Any]], Any] | None = None,
) -> type:
    """Make a class whose state is its attributes a pytree.

    Args:
        cls: The class.
        node_fields: Attributes that are children; by default the fields of a dataclass or a class of attrs that are not static.
        static_fields: Attributes that are part of the treedef, beside fields with ``metadata={"static": True}``, as JAX has them.
        constructor: Called once per rebuild with a dict of all the attributes. Without it instances are made by
            ``object.__new__`` and the attributes are set, so that no ``__init__`` gets the placeholders of JAX.

    Returns:
        ``cls``.

    Raises:
        TypeError: ``cls`` is no class, or one that declares no fields without a list of its attributes; ``constructor`` is no
            function; or the attributes are no collection of names.
        ValueError: The class is registered already, or an attribute is named twice.
    """
    if not isinstance(cls, type):
        raise TypeError(f"register_attrs_type(): expected a class, got {cls!r}")
    statics = names_of(class_ref(cls), "static_fields", static_fields)
    if node_fields is None:
        nodes, statics = _declared_names(cls, statics)
    else:
        nodes = names_of(class_ref(cls), "node_fields", node_fields)
    if not (constructor is None or callable(constructor)):
        raise TypeError(
            f"{class_ref(cls)}: expected a function of a dict as constructor, got {constructor!r}"
        )
    known = _ATTRS.get(cls, (None, None))
    if known[0] == (nodes, statics) and _same_hook(known[1], constructor):
        return cls
    if len({*nodes, *statics}) != len(nodes) + len(statics):
        raise ValueError(
            f"{class_ref(cls)}: expected each attribute once, got {', '.join((*nodes, *statics))}"
        )
    layout = Layout(nodes, statics)
    keys = tuple(map(GetAttrKey, nodes))

    def flatten(obj: Any) -> Pair:
        return layout.pair({name: getattr(obj, name) for name in (*nodes, *statics)}, cls.__name__)

    def flatten_with_keys(obj: Any) -> Flat:
        children, aux = flatten(obj)
        return tuple(zip(keys, children, strict=True)), aux

    def unflatten(aux: Any, children: Any) -> Any:
        values = dict(layout.values((tuple(children), aux)))
        if constructor is not None:
            return constructor(values)
        obj: Any = object.__new__(cls)
        for name, value in values.items():
            object.__setattr__(obj, name, value)
        return obj

    def serialize(obj: Any) -> tuple[Any, ...]:
        return tuple(getattr(obj, name) for name in statics)

    def deserialize(held: Sequence[Any], children: Sequence[Any]) -> Any:
        values = dict(zip((*nodes, *statics), (*children, *held), strict=True))
        return unflatten(layout.pair(values, cls.__name__)[1], children)

    register_pytree_type(
        cls,
        flatten=flatten,
        unflatten=unflatten,
        flatten_with_keys=flatten_with_keys,
        serializer=serialize,
        deserializer=deserialize,
    )
    _SPECS[cls] = _SPECS[cls]._replace(names=nodes)
    _ATTRS[cls] = (nodes, statics), constructor
    return cls


def pytree_spec(cls: type) -> PyTreeSpec | None:
    """The registration of exactly this class, or None."""
    return _SPECS.get(cls)


def is_registered_pytree_type(cls: type) -> bool:
    """True if ``cls`` was registered by :func:`register_pytree_type` or :func:`register_attrs_type`."""
    return cls in _SPECS


def resolve_pytree_spec(ref: str) -> PyTreeSpec:
    """The registration of the class of a reference; imports nothing.

    Raises:
        SerializationError: No class of that reference is registered.
    """
    cls = find_class(ref) if isinstance(ref, str) else None
    if cls is None or cls not in _SPECS:
        raise SerializationError(
            f"expected a registered pytree type, got {ref!r}",
            code="NQX501",
            hint="import the module that calls register_pytree_type for it before loading",
        )
    return _SPECS[cls]


# ---------------------------------------------------------------------------------------------------------------------
# Plain classes and dataclasses as Structs.


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
        cls: The class; its annotations become fields. A Struct is returned as it is.
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
    if not isinstance(cls, type):
        raise TypeError(f"register_class(): expected a class, got {cls!r}")
    if is_struct(cls):
        return cls
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
    from neuralqx_struct.struct.registration import register_class as dataclass
else:
    dataclass = register_class
