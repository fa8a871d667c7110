"""Structs: immutable, typed containers that are JAX pytrees.

Owns the methods: replace, equality, printing, copying and introspection. ``meta.py`` defines the class, ``lifecycle.py``
constructs instances, ``pytree.py`` flattens them, ``checkpoint/`` saves them, ``functions.py`` makes Structs of plain
classes.

An instance is frozen once it has its attribute ``_nqx_pair``; until then its fields may be assigned. An unflattened
instance has nothing else: the first read of a field makes attributes of all fields in the pair, and a derived or reset
field is made when it is read.

Example:
    >>> from neuralqx_struct import field
    >>> class State(Struct):
    ...     w: object
    ...     step: int = field(static=True, default=0)
    >>> State(w=1.0).replace(step=1)
    State(w=1.0, step=1)
"""

from __future__ import annotations

from collections import OrderedDict
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack, cast, overload

import jax

# The one import against the order of packages: the methods that save and load reach the public functions through
# the lazy names of the root package, because a Struct has these methods and whoever saves or loads needs Struct.
import neuralqx_struct
from neuralqx_struct.documents.instances import MARK, is_frozen, put
from neuralqx_struct.errors import FrozenStructError, did_you_mean
from neuralqx_struct.fieldspec import MISSING, FieldKind, FieldSpec, Names, Values, is_struct
from neuralqx_struct.paths import PathTree
from neuralqx_struct.struct.display import Displayed
from neuralqx_struct.struct.lifecycle import build, convert, finish, read_missing, rederive
from neuralqx_struct.struct.meta import StructMeta
from neuralqx_struct.struct.pytree import store_pair

if TYPE_CHECKING:
    from neuralqx_struct import checkpoint
    from neuralqx_struct.bundle.writing import PendingBundle
    from neuralqx_struct.manifest import Limits

__all__ = ["Struct"]


def fields(cls: Any) -> OrderedDict[str, FieldSpec]:
    """The field declarations of a Struct class or instance, by name and in order.

    Raises:
        TypeError: Not a Struct.
    """
    if not is_struct(cls):
        raise TypeError(f"fields(): expected a Struct class or instance, got {cls!r}")
    return OrderedDict(cls.__nqx_fields__)


def _of_kind(cls: Any, kind: FieldKind) -> Names:
    return tuple(name for name, spec in fields(cls).items() if spec.kind is kind)


def node_fields(cls: Any) -> Names:
    """The names of the node fields of a Struct class or instance."""
    return _of_kind(cls, FieldKind.NODE)


def static_fields(cls: Any) -> Names:
    """The names of the static fields of a Struct class or instance, derived ones included."""
    return _of_kind(cls, FieldKind.STATIC)


def opaque_fields(cls: Any) -> Names:
    """The names of the opaque fields of a Struct class or instance, derived ones included."""
    return _of_kind(cls, FieldKind.OPAQUE)


def derived_fields(cls: Any) -> Names:
    """The names of the derived fields of a Struct class or instance."""
    return tuple(name for name, spec in fields(cls).items() if spec.is_derived)


class Struct(Displayed, metaclass=StructMeta):
    """Base class of all Structs: subclass it and annotate the fields.

    Instances are frozen, hashable, compared by value, and pytrees: node fields are children, static fields are part of
    the treedef, opaque fields are carried along. See :func:`~neuralqx_struct.field`.

    Raises:
        TypeError: The declaration is wrong, such as a mutable default or a field with the name of a method; raised where
            the class is defined.
        ValidationError: A value is invalid; raised where the instance is made, with every such value.

    Example:
        >>> from neuralqx_struct import field
        >>> class Rate(Struct):
        ...     lr: float = field(validator=lambda lr: lr > 0)
        >>> Rate(lr=0.1)
        Rate(lr=0.1)
    """

    if TYPE_CHECKING:  # generic code calls a Struct class with arguments that only the class knows

        def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    # --- the life of an instance -------------------------------------------------------------------------------

    def replace(self, /, **changes: Any) -> Self:
        """A new instance with some fields changed; runs converters, ``__post_init__``, derivation and validation.

        Args:
            **changes: New values by field name, and values of ``InitVar`` arguments without a default.

        Raises:
            TypeError: A name is no field, or is a derived one: change the fields that it is derived from.

        Example:
            >>> class State(Struct):
            ...     step: int = 0
            >>> State().replace(step=1)
            State(step=1)
        """
        cls = type(self)
        new = object.__new__(cls)
        known_pair = cls.__nqx_known_pair__
        direct = cls.__nqx_plain__ or known_pair is not None
        if direct and changes.keys() <= cls.__nqx_fields__.keys():
            # Nothing to convert or derive: only the pair of the new instance is made.
            pair = getattr(self, "_nqx_pair")  # noqa: B009 - type checkers shall not see it as an attribute of users
            pair = cls.__nqx_layout__.changed(pair, changes, cls.__name__)
            mark = None if known_pair is None else known_pair(cls, pair)
            if known_pair is None or mark is not None:
                store_pair(new, pair)
                if mark:
                    put(new, MARK, mark)
                return new
        fields = cls.__nqx_fields__
        given = {name: getattr(self, name) for name, spec in fields.items() if not spec.is_derived}
        init_vars = {
            name: changes.pop(name, spec.default) for name, spec in cls.__nqx_init_vars__.items()
        }
        for name in changes:
            _check_replaced(cls, name)
        missing = [name for name, value in init_vars.items() if value is MISSING]
        if missing:
            raise TypeError(
                f"{cls.__name__}.replace(): expected values for the InitVar arguments {', '.join(missing)}"
            )
        build(new, given | changes, init_vars)
        return new

    def rederive(self) -> None:
        """Compute the derived fields anew, after a mutable container inside a node field has changed in place.

        Raises:
            ValidationError: The fields fail the checks of construction; the instance stays as it was.
        """
        rederive(self)

    @classmethod
    def __nqx_restore__(cls, values: Values) -> Self:
        """An instance of stored values: converters, derivation and validation run, ``__post_init__`` does not."""
        new = object.__new__(cls)
        for name, value in values.items():
            new.__dict__[name] = convert(new, name, value)
        finish(new, {}, loading=True)
        return new

    @classmethod
    def __nqx_assemble__(cls, values: Values) -> Self:
        """An instance of field values as they are; runs no hook. For copies, pickles and abstract loads."""
        new = object.__new__(cls)
        new.__dict__.update(values)
        if cls.__nqx_sized__ is not None:
            cls.__nqx_sized__(new.__dict__)
        store_pair(new, cls.__nqx_layout__.pair(new.__dict__, cls.__name__))
        return new

    if not TYPE_CHECKING:  # else editors would accept every misspelt attribute
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
        # An unflattened instance gets its fields when the first of them is read, and completion comes before that.
        return sorted({*super().__dir__(), *type(self).__nqx_fields__})

    def __delattr__(self, name: str) -> None:
        if is_frozen(self):
            raise FrozenStructError(
                f"expected no deletion from a frozen Struct, got one of {name!r}",
                path=f"{type(self).__name__}.{name}",
            )
        if name not in self.__dict__:
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self
            )
        del self.__dict__[name]

    # --- equality, printing, copying ---------------------------------------------------------------------------

    __array_ufunc__ = (
        None  # numpy leaves `array == struct` to Python, in place of one comparison for each number
    )

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
        # Not by getattr, which computes pending fields.
        values = dict(self.__dict__)
        if (pair := values.get("_nqx_pair")) is not None:
            values.update(type(self).__nqx_layout__.values(pair))
        specs = type(self).__nqx_fields__.values()
        shown = [(s.name, values[s.name]) for s in specs if s.repr and s.name in values]
        return type(self).__qualname__.rsplit(".", 1)[-1], shown

    def _nqx_values(self) -> dict[str, Any]:
        """The stored fields, and the reset fields that were read."""
        values: dict[str, Any] = {}
        for name, spec in type(self).__nqx_fields__.items():
            if not spec.is_derived and (not spec.reset or name in self.__dict__):
                values[name] = getattr(self, name)
        return values

    def __reduce__(self) -> tuple[Any, ...]:
        # As after an unflatten: reset fields, such as locks and connections, get fresh defaults in the other process.
        specs = type(self).__nqx_fields__
        kept = {
            name: value
            for name, value in self._nqx_values().items()
            if not specs[name].reset or specs[name].should_serialize
        }
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
        specs = type(self).__nqx_fields__
        kept = self._nqx_values()
        for name, value in kept.items():
            # Opaque objects are handles: a copy of one would be another handle, and part of another treedef.
            if specs[name].kind is not FieldKind.OPAQUE:
                kept[name] = deepcopy(value, memo)
        return type(self).__nqx_assemble__(kept)

    def __replace__(self, /, **changes: Any) -> Self:
        return self.replace(**changes)

    # --- introspection -----------------------------------------------------------------------------------------

    fields = classmethod(fields)
    node_fields = classmethod(node_fields)
    static_fields = classmethod(static_fields)
    opaque_fields = classmethod(opaque_fields)
    derived_fields = classmethod(derived_fields)

    def tree_size(self) -> int:
        """The number of leaves."""
        return len(jax.tree_util.tree_leaves(self))

    def to_dict(self, *, recursive: bool = False, include_opaque: bool = True) -> dict[str, Any]:
        """The fields as a dict, for logs and debugging; to save, use :meth:`export`.

        Args:
            recursive: Turn Structs inside fields and containers into dicts too.
            include_opaque: Whether to include opaque fields.
        """
        found: dict[str, Any] = {}
        for name, spec in type(self).__nqx_fields__.items():
            if include_opaque or spec.kind is not FieldKind.OPAQUE:
                value = getattr(self, name)
                found[name] = _plain(value, include_opaque) if recursive else value
        return found

    # --- saving ------------------------------------------------------------------------------------------------

    def to_state_dict(
        self, *, check: bool = True, copy: bool = True, limits: Limits | None = None
    ) -> dict[str, Any]:
        """The instance as plain values and numpy arrays; see :func:`neuralqx_struct.to_state_dict`."""
        return neuralqx_struct.to_state_dict(self, check=check, copy=copy, limits=limits)

    @classmethod
    def from_state_dict(cls, payload: Values, **options: Unpack[checkpoint.ReadKeywords]) -> Self:
        """The inverse of :meth:`to_state_dict`; see :func:`neuralqx_struct.from_state_dict`."""
        given = _wanted(cls, options)
        return cast("Self", neuralqx_struct.from_state_dict(payload, **given))

    @overload
    def export(
        self,
        path: str | Path,
        *,
        asynchronous: Literal[True],
        **options: Unpack[checkpoint.ExportKeywords],
    ) -> PendingBundle: ...
    @overload
    def export(
        self,
        path: str | Path,
        *,
        asynchronous: Literal[False] = False,
        **options: Unpack[checkpoint.ExportKeywords],
    ) -> Path: ...
    def export(
        self,
        path: str | Path,
        *,
        asynchronous: Any = False,
        **options: Unpack[checkpoint.ExportKeywords],
    ) -> Path | PendingBundle:
        """Save the instance as a bundle; see :func:`neuralqx_struct.export`."""
        written: Path | PendingBundle = neuralqx_struct.export(
            self, path, asynchronous=asynchronous, **options
        )
        return written

    @classmethod
    def load(cls, path: str | Path, **options: Unpack[checkpoint.LoadKeywords]) -> Self:
        """Load a bundle of this class; see :func:`neuralqx_struct.load`."""
        given = _wanted(cls, options)
        return cast("Self", neuralqx_struct.load(path, **given))


def _wanted(cls: type, options: Values) -> Any:
    """The options of a load, which is for this class unless they name another; ``...`` names none."""
    named = options.get("load_cls", ...)
    return {**options, "load_cls": cls if named is ... else named}


def _assemble(cls: type[Struct], values: Values) -> Struct:
    return cls.__nqx_assemble__(values)


def _plain(value: Any, include_opaque: bool) -> Any:
    if isinstance(value, Struct):
        return value.to_dict(recursive=True, include_opaque=include_opaque)
    if isinstance(value, (dict, PathTree)):
        return {key: _plain(item, include_opaque) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        items = (_plain(item, include_opaque) for item in value)
        # Of subclasses, only the constructors of namedtuples are known.
        make: Any = getattr(value, "_make", list if isinstance(value, list) else tuple)
        return make(items)
    return value


def _check_replaced(cls: Any, name: str) -> None:
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
