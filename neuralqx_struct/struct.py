"""Struct: the immutable, typed container that is a JAX pytree.

Owns the methods: replace, equality, printing, copying, introspection, and the promotion of plain classes. What happens
when a class is defined is ``definition.py``, when an instance is made ``lifecycle.py``, when it is flattened
``pytree.py``, when it is saved ``checkpoint.py``.

An instance is frozen once it has its attribute ``_nqx_pair``; until then its fields may be assigned. After an unflatten
the pair is all it has: the first read of a field makes attributes of all that the pair holds, and a derived or reset
field is made when it is read.

Example:
    >>> class State(Struct):
    ...     w: object
    ...     step: int = field(static=True, default=0)
    >>> State(w=1.0).replace(step=1)
    State(w=1.0, step=1)
"""

from __future__ import annotations

import dataclasses
import inspect
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, Unpack, cast, dataclass_transform, overload

import jax

from neuralqx_struct import checkpoint
from neuralqx_struct.definition import StructABCMeta, StructMeta
from neuralqx_struct.display import Displayed
from neuralqx_struct.errors import FrozenStructError, did_you_mean
from neuralqx_struct.fieldspec import MISSING, FieldKind, FieldSpec, field, is_struct
from neuralqx_struct.lifecycle import build, convert, derive_all, drop_traced, evaluation, finish, read_missing
from neuralqx_struct.path_tree import PathTree
from neuralqx_struct.pending import PendingBundle
from neuralqx_struct.pytree import is_frozen, put, store_pair

__all__ = [
    "Struct",
    "dataclass",
    "derived_fields",
    "fields",
    "node_fields",
    "opaque_fields",
    "register_class",
    "static_fields",
]

T = TypeVar("T")


class Struct(Displayed, metaclass=StructMeta):
    """Base class of all Structs: subclass it and annotate the fields.

    Instances are frozen, hashable, compared by value, and pytrees: node fields are children, static fields are part of
    the treedef, opaque fields are carried along. See :func:`~neuralqx_struct.field`.

    Raises:
        TypeError: The declaration cannot work: a mutable default, a field named as a method, and the like; raised
            where the class is defined.
        ValidationError: A value does not do; raised where the instance is made, with every such value.

    Example:
        >>> class Rate(Struct):
        ...     lr: float = field(validator=lambda lr: lr > 0)
        >>> Rate(lr=0.1)
        Rate(lr=0.1)
    """

    if TYPE_CHECKING:  # code about any Struct class calls it with arguments that only the class knows

        def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    # --- the life of an instance -------------------------------------------------------------------------------

    def replace(self, /, **changes: Any) -> Self:
        """A new instance with some fields changed; runs converters, ``__post_init__``, derivation and validation.

        Args:
            **changes: New values by field name, and values of ``InitVar`` arguments without a default.

        Raises:
            TypeError: A name is no field, or is a derived one: change what it is derived from.

        Example:
            >>> class State(Struct):
            ...     step: int = 0
            >>> State().replace(step=1)
            State(step=1)
        """
        cls = type(self)
        if cls.__nqx_plain__ and changes.keys() <= cls.__nqx_fields__.keys():
            # Nothing to convert, derive or check: the pair of the new instance is all there is to make.
            new = object.__new__(cls)
            pair = getattr(self, "_nqx_pair")  # noqa: B009 - type checkers shall not see it as an attribute of users
            store_pair(new, cls.__nqx_layout__.changed(pair, changes, cls.__name__))
            return new
        if cls.__nqx_sound__ is not None and changes.keys() <= cls.__nqx_fields__.keys():
            pair = cls.__nqx_layout__.changed(getattr(self, "_nqx_pair"), changes, cls.__name__)  # noqa: B009
            if cls.__nqx_sound__(cls, pair):
                new = object.__new__(cls)
                store_pair(new, pair)
                return new
        given = {name: getattr(self, name) for name, spec in cls.__nqx_fields__.items() if not spec.is_derived}
        init_vars = {name: changes.pop(name, spec.default) for name, spec in cls.__nqx_init_vars__.items()}
        for name in changes:
            spec = cls.__nqx_fields__.get(name)
            if spec is None:
                hint = did_you_mean(name, cls.__nqx_fields__)
                raise TypeError(
                    f"{cls.__name__}.replace(): expected a field, got {name!r}{f'; {hint}' if hint else ''}"
                )
            if spec.is_derived:
                raise TypeError(
                    f"{cls.__name__}.replace(): expected a field that is stored, got {name!r}, which is derived; "
                    "replace the fields that it is computed from"
                )
        missing = [name for name, value in init_vars.items() if value is MISSING]
        if missing:
            raise TypeError(f"{cls.__name__}.replace(): expected values for the InitVar arguments {', '.join(missing)}")
        new = object.__new__(cls)
        build(new, given | changes, init_vars)
        return new

    def rederive(self) -> None:
        """Compute the derived fields anew, after a mutable container inside a node field has changed in place."""
        before = {name: self.__dict__[name] for name in type(self).__nqx_derive__ if name in self.__dict__}
        try:
            with evaluation(self):
                derive_all(self, tolerant=False)
        except BaseException:
            self.__dict__.update(before)
            raise
        drop_traced(self)

    @classmethod
    def __nqx_restore__(cls, values: Mapping[str, Any]) -> Self:
        """Make an instance from stored values: converters, derivation and validation run, ``__post_init__`` does not."""
        new = object.__new__(cls)
        converters = cls.__nqx_converters__
        for name, value in values.items():
            new.__dict__[name] = convert(new, name, converters[name], value) if name in converters else value
        finish(new, {}, loading=True)
        return new

    @classmethod
    def __nqx_assemble__(cls, values: Mapping[str, Any]) -> Self:
        """Make an instance from field values as they are; runs no hook. For copies, pickles and abstract loads."""
        new = object.__new__(cls)
        new.__dict__.update(values)
        store_pair(new, cls.__nqx_layout__.pair(new.__dict__, cls.__name__))
        return new

    if not TYPE_CHECKING:  # or every misspelt attribute would look right to an editor
        __getattr__ = read_missing

    def __setattr__(self, name: str, value: Any) -> None:
        cls = type(self)
        if is_frozen(self):
            raise FrozenStructError(
                f"expected no assignment to a frozen Struct, got one to {name!r}",
                path=f"{cls.__name__}.{name}",
                hint=f"make a changed copy: obj.replace({name}=...)",
            )
        if name not in cls.__nqx_fields__:
            hint = did_you_mean(name, cls.__nqx_fields__)
            raise TypeError(
                f"{cls.__name__}.{name}: expected a declared field, got an assignment to an undeclared attribute, which "
                f"would be lost on tree_map and load; declare it as a field{f'; {hint}' if hint else ''}"
            )
        self.__dict__[name] = value

    def __dir__(self) -> list[str]:
        # An instance that JAX has made gets its fields when the first of them is read; completion asks before.
        return sorted({*super().__dir__(), *type(self).__nqx_fields__})

    def __delattr__(self, name: str) -> None:
        if is_frozen(self):
            raise FrozenStructError(
                f"expected no deletion from a frozen Struct, got one of {name!r}", path=f"{type(self).__name__}.{name}"
            )
        if name not in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
        del self.__dict__[name]

    # --- equality, printing, copying ---------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        if self is other:
            return True
        for name, same, _ in type(self).__nqx_compared__:
            a, b = getattr(self, name), getattr(other, name)
            if a is not b and not same(a, b):
                return False
        return True

    def __hash__(self) -> int:
        marks: list[Any] = [type(self)]
        for name, _, mark in type(self).__nqx_compared__:
            if mark is not None:
                marks.append(mark(getattr(self, name)))
        return hash(tuple(marks))

    def __nqx_shown__(self) -> tuple[str, list[tuple[str, Any]]]:
        """The class's name and the fields that ``repr`` and notebooks show."""
        # getattr would compute what is pending; showing never computes.
        values = dict(self.__dict__)
        if (pair := values.get("_nqx_pair")) is not None:
            values.update(type(self).__nqx_layout__.values(pair))
        shown = [(name, values[name]) for name in type(self).__nqx_printed__ if name in values]
        return type(self).__qualname__.rsplit(".", 1)[-1], shown

    def _nqx_values(self) -> dict[str, Any]:
        fields = type(self).__nqx_fields__.items()
        return {n: getattr(self, n) for n, s in fields if not s.is_derived and (not s.reset or n in self.__dict__)}

    def __reduce__(self) -> tuple[Any, ...]:
        # As after an unflatten: what is reset has a fresh default in the other process, as locks and connections must.
        specs = type(self).__nqx_fields__
        kept = {n: v for n, v in self._nqx_values().items() if not specs[n].reset or specs[n].should_serialize}
        return _assemble, (type(self), kept)

    def __copy__(self) -> Self:
        cls = type(self)
        new = object.__new__(cls)
        for name, spec in cls.__nqx_fields__.items():
            if spec.reset and name in self.__dict__:
                put(new, name, self.__dict__[name])
        store_pair(new, getattr(self, "_nqx_pair"))  # noqa: B009 - as in replace
        return new

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        from copy import deepcopy

        specs = type(self).__nqx_fields__
        # Opaque objects are handles: a copy of one would be another handle, and part of another treedef.
        kept = {n: v if specs[n].kind is FieldKind.OPAQUE else deepcopy(v, memo) for n, v in self._nqx_values().items()}
        return type(self).__nqx_assemble__(kept)

    def __replace__(self, /, **changes: Any) -> Self:
        return self.replace(**changes)

    # --- what it is made of ------------------------------------------------------------------------------------

    @classmethod
    def fields(cls) -> OrderedDict[str, FieldSpec]:
        """The declarations of all fields by name, in order."""
        return OrderedDict(cls.__nqx_fields__)

    @classmethod
    def node_fields(cls) -> tuple[str, ...]:
        """Names of the node fields."""
        return _of_kind(cls, FieldKind.NODE)

    @classmethod
    def static_fields(cls) -> tuple[str, ...]:
        """Names of the static fields, derived ones among them."""
        return _of_kind(cls, FieldKind.STATIC)

    @classmethod
    def opaque_fields(cls) -> tuple[str, ...]:
        """Names of the opaque fields, derived ones among them."""
        return _of_kind(cls, FieldKind.OPAQUE)

    @classmethod
    def derived_fields(cls) -> tuple[str, ...]:
        """Names of the derived fields."""
        return tuple(cls.__nqx_derive__)

    def tree_size(self) -> int:
        """The number of leaves."""
        return len(jax.tree_util.tree_leaves(self))

    def to_dict(self, *, recursive: bool = False, include_opaque: bool = True) -> dict[str, Any]:
        """The fields as a dict, for logs and debugging; to save, use :meth:`export`.

        Args:
            recursive: Turn Structs inside fields and containers into dicts too.
            include_opaque: Whether opaque fields are in it.
        """
        return {
            name: _plain(getattr(self, name), include_opaque=include_opaque) if recursive else getattr(self, name)
            for name, spec in type(self).__nqx_fields__.items()
            if include_opaque or spec.kind is not FieldKind.OPAQUE
        }

    # --- saving ------------------------------------------------------------------------------------------------

    def to_state_dict(self) -> dict[str, Any]:
        """The instance as plain values and numpy arrays; see :func:`neuralqx_struct.to_state_dict`."""
        return checkpoint.to_state_dict(self)

    @classmethod
    def from_state_dict(cls, payload: Mapping[str, Any], **options: Unpack[checkpoint.ReadOptions]) -> Self:
        """The inverse of :meth:`to_state_dict`; see :func:`neuralqx_struct.from_state_dict`."""
        given = _wanted(cls, options)
        return cast("Self", checkpoint.from_state_dict(payload, **given))

    @overload
    def export(
        self, path: str | Path, *, asynchronous: Literal[True], **options: Unpack[checkpoint.ExportOptions]
    ) -> PendingBundle: ...
    @overload
    def export(
        self, path: str | Path, *, asynchronous: Literal[False] = False, **options: Unpack[checkpoint.ExportOptions]
    ) -> Path: ...
    def export(
        self, path: str | Path, *, asynchronous: Any = False, **options: Unpack[checkpoint.ExportOptions]
    ) -> Path | PendingBundle:
        """Save the instance as a bundle; see :func:`neuralqx_struct.export`."""
        written: Path | PendingBundle = checkpoint.export(self, path, asynchronous=asynchronous, **options)
        return written

    @classmethod
    def load(cls, path: str | Path, **options: Unpack[checkpoint.LoadOptions]) -> Self:
        """Load a bundle of this class; see :func:`neuralqx_struct.load`."""
        given = _wanted(cls, options)
        return cast("Self", checkpoint.load(path, **given))


def _wanted(cls: type, options: Mapping[str, Any]) -> Any:
    """The options of a load, which is for this class unless they name another; ``...`` names none."""
    named = options.get("load_cls", ...)
    return {**options, "load_cls": cls if named is ... else named}


def _assemble(cls: type[Struct], values: Mapping[str, Any]) -> Struct:
    return cls.__nqx_assemble__(values)


def _plain(value: Any, *, include_opaque: bool) -> Any:
    if isinstance(value, Struct):
        return value.to_dict(recursive=True, include_opaque=include_opaque)
    if isinstance(value, (dict, PathTree)):
        return {key: _plain(item, include_opaque=include_opaque) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        items = (_plain(item, include_opaque=include_opaque) for item in value)
        # Of subclasses nobody knows what their constructors take, but for namedtuples.
        make: Any = getattr(value, "_make", list if isinstance(value, list) else tuple)
        return make(items)
    return value


def _of_kind(cls: Any, kind: FieldKind) -> tuple[str, ...]:
    return tuple(name for name, spec in fields(cls).items() if spec.kind is kind)


def fields(cls: Any) -> OrderedDict[str, FieldSpec]:
    """The field declarations of a Struct class or instance, by name and in order.

    Raises:
        TypeError: Not a Struct.
    """
    if not is_struct(cls):
        raise TypeError(f"fields(): expected a Struct class or instance, got {cls!r}")
    return OrderedDict(cls.__nqx_fields__)


def node_fields(cls: Any) -> tuple[str, ...]:
    """Names of the node fields of a Struct class or instance."""
    return _of_kind(cls, FieldKind.NODE)


def static_fields(cls: Any) -> tuple[str, ...]:
    """Names of the static fields of a Struct class or instance."""
    return _of_kind(cls, FieldKind.STATIC)


def opaque_fields(cls: Any) -> tuple[str, ...]:
    """Names of the opaque fields of a Struct class or instance."""
    return _of_kind(cls, FieldKind.OPAQUE)


def derived_fields(cls: Any) -> tuple[str, ...]:
    """Names of the derived fields of a Struct class or instance."""
    return tuple(name for name, spec in fields(cls).items() if spec.is_derived)


@overload
def register_class(cls: type[T], /, *, name: str | None = None) -> type[T]: ...
@overload
def register_class(cls: None = None, /, *, name: str | None = None) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform(field_specifiers=(field,), frozen_default=True)
def register_class(cls: Any = None, /, *, name: str | None = None) -> Any:
    """Promote a plain annotated class to a Struct, as a decorator or by a direct call.

    The result is a new class that stands before the original in the MRO, so that the original's methods and its
    ``super()`` calls keep working.

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
        # A frozen dataclass brings its own; assignment must obey the Struct's life.
        "__setattr__": Struct.__setattr__,
        "__delattr__": Struct.__delattr__,
    }
    if dataclasses.is_dataclass(cls):
        # What the decorator made must give way, what somebody wrote stays.
        namespace |= {name: getattr(Struct, name) for name in _DATACLASS_MADE if _made_by_dataclass(cls, name)}
    meta = StructMeta if type(cls) is type else StructABCMeta
    if not issubclass(meta, type(cls)):
        raise TypeError(
            f"register_class(): expected a class whose metaclass is type or ABCMeta, got {cls.__name__} with the metaclass "
            f"{type(cls).__name__}; use register_pytree_type for it"
        )
    promoted: Any = meta(title, (cls, Struct), namespace)
    if "__parameters__" in vars(cls):  # typing has found no type parameters among the bases
        promoted.__parameters__ = vars(cls)["__parameters__"]
    return promoted


_DATACLASS_MADE = ("__eq__", "__hash__", "__repr__", "__reduce__", "__replace__")


def _made_by_dataclass(cls: type, name: str) -> bool:
    """True if the method that ``cls`` has under a name is not one that somebody wrote in a class body."""
    found = next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)
    code = getattr(inspect.unwrap(found) if callable(found) else found, "__code__", None)
    return code is None or code.co_filename in ("<string>", dataclasses.__file__)


if TYPE_CHECKING:  # mypy does not see through the assignment
    from neuralqx_struct.struct import register_class as dataclass
else:
    dataclass = register_class
