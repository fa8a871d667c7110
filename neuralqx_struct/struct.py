"""Struct: the immutable, typed container that is a JAX pytree.

Owns the metaclasses, the life of an instance (convert, derive, ``__post_init__``, derive, validate, freeze), equality,
printing and copying. How instances are flattened is ``pytree.py``; how they are saved is ``checkpoint.py``.

An instance is frozen once its slot ``_nqx_pair`` is filled; until then its fields live in ``__dict__`` and may be
assigned. After an unflatten only the slot is filled: the first read of a field fills ``__dict__``, and a derived or
reset field is made when it is read.

Example:
    >>> class State(Struct):
    ...     w: object
    ...     step: int = field(static=True, default=0)
    >>> State(w=1.0).replace(step=1)
    State(w=1.0, step=1)
"""

from __future__ import annotations

import copyreg
import types
from abc import ABCMeta
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self, TypeVar, cast, dataclass_transform, overload

import jax

from neuralqx_struct import checkpoint
from neuralqx_struct.errors import Diagnostic, FrozenStructError, ValidationError, did_you_mean
from neuralqx_struct.fieldspec import (
    MISSING,
    RESERVED_NAMES,
    FieldKind,
    FieldSpec,
    field,
    is_struct,
    own_fields,
    required_positional,
)
from neuralqx_struct.identity import EXACT_TYPES, same_value, value_hash
from neuralqx_struct.printing import brief
from neuralqx_struct.pytree import Layout, register_struct
from neuralqx_struct.registry import register_ref

__all__ = [
    "Struct",
    "StructABCMeta",
    "StructMeta",
    "dataclass",
    "derived_fields",
    "fields",
    "node_fields",
    "opaque_fields",
    "register_class",
    "static_fields",
]

T = TypeVar("T")
Hook = Callable[[Any, Any], Any]

_CONCRETIZATION_ERRORS = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
)


class _Unset(AttributeError):
    """A field was read before it has a value, while its instance is still being made."""


class _Unfilled:
    """Stands in the class for a field whose name a plain base class uses too: fills the instance on the first read.

    Not a data descriptor, so that the instance's ``__dict__`` wins from then on.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            raise AttributeError(f"{owner.__name__}.{self.name} is a field; read it from an instance")
        return instance.__getattr__(self.name)


def _value_hook(function: Callable[..., Any]) -> Hook:
    """The hook as ``hook(instance, value)``, its arity decided once."""
    if required_positional(function) >= 2:
        return function
    return lambda _instance, value: function(value)


def _derive_hook(function: Callable[..., Any]) -> Callable[[Any], Any]:
    return function if required_positional(function) >= 1 else lambda _instance: function()


@dataclass_transform(field_specifiers=(field,), frozen_default=True)
class StructMeta(type):
    """Metaclass of Struct: collects the fields, checks the declaration, registers the class as a pytree."""

    # Set on every Struct class; the double underscore keeps them apart from fields.
    __nqx_fields__: Mapping[str, FieldSpec]
    __nqx_own__: Mapping[str, FieldSpec]
    __nqx_layout__: Layout
    __nqx_init_vars__: Mapping[str, Any]
    __nqx_converters__: Mapping[str, Hook]
    __nqx_validators__: tuple[tuple[str, Hook, Callable[..., Any]], ...]
    __nqx_derive__: Mapping[str, Callable[[Any], Any]]
    __nqx_check__: Callable[[Any], list[Diagnostic]] | None
    __nqx_generated_init__: bool

    def __new__(
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], *, kw_only: bool = False, **kwargs: Any
    ) -> Self:
        """Create the class, then read its annotations and register it."""
        slots = namespace.get("__slots__", ())
        if slots and bases:
            raise TypeError(f"{name}: expected no __slots__, got {slots!r}: Struct stores its fields itself")
        cls = super().__new__(mcs, name, bases, namespace, **kwargs)
        if bases:
            _complete(cls, kw_only=kw_only)
        return cls


class StructABCMeta(StructMeta, type(Protocol)):  # type: ignore[misc]
    """The metaclass of Structs that are abstract, or that inherit from an ABC or a Protocol."""


def _complete(cls: StructMeta, *, kw_only: bool) -> None:
    """Everything that is decided at class definition."""
    promoted: type = cls.__dict__.get("__nqx_promoted__", cls)
    own, init_vars = own_fields(promoted, kw_only=kw_only)
    collected: dict[str, FieldSpec] = {}
    all_init_vars: dict[str, Any] = {}
    for base in reversed(cls.__mro__[1:]):
        collected |= base.__dict__.get("__nqx_own__", {})
        all_init_vars |= base.__dict__.get("__nqx_own_init_vars__", {})
    _check_names(cls, own, collected)
    collected |= own
    for name in {*own, *init_vars} if promoted is cls else ():
        if name in cls.__dict__:
            delattr(cls, name)
    shadowed = {name for name in collected if any(name in vars(base) for base in cls.__mro__ if base is not object)}
    for name in shadowed:
        type.__setattr__(cls, name, _Unfilled(name))
    cls.__nqx_own__ = types.MappingProxyType(own)
    cls.__nqx_own_init_vars__ = init_vars  # type: ignore[attr-defined]
    cls.__nqx_init_vars__ = all_init_vars | init_vars
    cls.__nqx_fields__ = types.MappingProxyType(collected)
    cls.__nqx_layout__ = Layout.of(collected)
    specs = collected.values()
    cls.__nqx_converters__ = {s.name: _value_hook(s.converter) for s in specs if s.converter is not None}
    cls.__nqx_validators__ = tuple((s.name, _value_hook(v), v) for s in specs for v in s.validators)
    cls.__nqx_derive__ = {s.name: _derive_hook(s.derived) for s in specs if s.derived is not None}
    if "__nqx_check__" not in cls.__dict__:
        cls.__nqx_check__ = getattr(cls, "__nqx_check__", None)
    _install_init(cls, own)
    cls.__match_args__ = tuple(s.name for s in specs if s.init and not s.kw_only)  # type: ignore[attr-defined]
    register_struct(cls, collected, cls.__nqx_layout__, _store_pair)
    register_ref(cls)


def _check_names(cls: type, own: Mapping[str, FieldSpec], inherited: Mapping[str, FieldSpec]) -> None:
    for name in own:
        if name in RESERVED_NAMES or name.startswith(("_nqx", "__")):
            raise TypeError(
                f"{cls.__name__}.{name}: expected a field name that is free, got a name of Struct's own; rename it"
            )
    for name, value in cls.__dict__.items():
        if name in inherited and name not in own and not isinstance(value, _Unfilled):
            raise TypeError(
                f"{cls.__name__}.{name}: expected an annotation, got a bare assignment to an inherited field; "
                f"write `{name}: object = ...` to change its default"
            )


def _install_init(cls: StructMeta, own: Mapping[str, FieldSpec]) -> None:
    """Generate ``__init__``, or wrap the one of the class body so that it ends in a frozen instance."""
    written = cls.__dict__.get("__init__")
    if written is not None and "__nqx_promoted__" not in cls.__dict__:

        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            written(self, *args, **kwargs)
            if type(self).__init__ is __init__:
                _finish(self, {})

        __init__.__wrapped__ = written  # type: ignore[attr-defined]
        cls.__init__ = __init__  # type: ignore[misc]
        cls.__nqx_generated_init__ = False
        return
    if not getattr(cls, "__nqx_generated_init__", True):
        if own:
            raise TypeError(
                f"{cls.__name__}: expected an __init__, got new fields {', '.join(own)} below a class with an __init__ of "
                "its own, which cannot set them; write one that calls super().__init__"
            )
        inherited = cls.__init__

        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            inherited(self, *args, **kwargs)
            if type(self).__init__ is __init__:
                _finish(self, {})

        cls.__init__ = __init__  # type: ignore[misc]
        return
    cls.__nqx_generated_init__ = True
    cls.__init__ = _generate_init(cls)  # type: ignore[misc]


def _generate_init(cls: StructMeta) -> Callable[..., None]:
    """The constructor, with a real signature: Python itself reports missing and unexpected arguments.

    Classes without hooks store their pair at once; the others go through :func:`_build`. Only names that Python
    already accepted as identifiers reach the source text; every value comes in through the namespace.
    """
    positional: list[str] = []
    keyword: list[str] = []
    namespace: dict[str, Any] = {"_nqx_missing": MISSING, "_nqx_build": _build, "_nqx_put": _store_pair}
    after_default = None
    arguments = [(s.name, s.has_default, s.default, s.kw_only) for s in cls.__nqx_fields__.values() if s.init]
    arguments += [(name, default is not MISSING, default, False) for name, default in cls.__nqx_init_vars__.items()]
    for name, has_default, default, kw_only in arguments:
        if has_default:
            namespace[f"_nqx_default_{name}"] = default
        if not kw_only:
            if has_default:
                after_default = name
            elif after_default is not None:
                raise TypeError(
                    f"{cls.__name__}.{name}: expected a default, because {after_default!r} before it has one; "
                    "give it a default, move it up, or make it kw_only=True"
                )
        (keyword if kw_only else positional).append(f"{name}=_nqx_default_{name}" if has_default else name)
    own_self = "self" if not any(name == "self" for name, *_ in arguments) else "_nqx_self"
    signature = ", ".join([own_self, *positional, *(["*", *keyword] if keyword else [])])
    names = ", ".join(f"{name!r}: {name}" for name, *_ in arguments if name not in cls.__nqx_init_vars__)
    init_vars = ", ".join(f"{name!r}: {name}" for name in cls.__nqx_init_vars__)
    body = f"    _nqx_build({own_self}, {{{names}}}, {{{init_vars}}})\n"
    if _has_no_hooks(cls):
        layout = cls.__nqx_layout__
        namespace |= {"_nqx_exact": EXACT_TYPES.issuperset, "_nqx_type": type}
        statics = "".join(f"{name}, " for name in layout.statics)
        types_ = "".join(f"_nqx_type({name}), " for name in layout.statics)
        body = (
            f"    _nqx_keys = ({types_})\n"
            f"    if _nqx_exact(_nqx_keys):\n"
            f"        _nqx_put({own_self}, (({''.join(f'{name}, ' for name in layout.nodes)}), (_nqx_keys, {statics})))\n"
            f"    else:\n    {body}"
        )
    source = f"def __init__({signature}):\n{body}"
    exec(compile(source, f"<generated __init__ of {cls.__name__}>", "exec"), namespace)  # noqa: S102
    init = cast("types.FunctionType", namespace["__init__"])
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__module__ = cls.__module__
    init.__annotations__ = {s.name: s.type for s in cls.__nqx_fields__.values() if s.init} | {"return": None}
    return init


def _has_no_hooks(cls: StructMeta) -> bool:
    hooks = cls.__nqx_converters__, cls.__nqx_validators__, cls.__nqx_derive__, cls.__nqx_init_vars__, cls.__nqx_check__
    plain = all(
        s.init and s.default_factory is MISSING and s.kind is not FieldKind.OPAQUE for s in cls.__nqx_fields__.values()
    )
    return plain and not any(hooks) and not hasattr(cls, "__post_init__")


def _build(self: Any, given: Mapping[str, Any], init_vars: Mapping[str, Any]) -> None:
    """Steps 1 to 6 of the lifecycle for arguments as the constructor got them."""
    cls = type(self)
    values = self.__dict__
    converters = cls.__nqx_converters__
    for name, spec in cls.__nqx_fields__.items():
        if spec.derived is not None:
            continue
        value = given.get(name, MISSING)
        if value is MISSING:
            if not spec.has_default:
                continue  # init=False: __post_init__ sets it, or _finish complains
            value = spec.make_default()
        values[name] = _convert(self, name, converters[name], value) if name in converters else value
    _finish(self, init_vars)


def _convert(self: Any, name: str, hook: Hook, value: Any) -> Any:
    try:
        return hook(self, value)
    except Exception as error:
        error.add_note(f"while converting {type(self).__name__}.{name}")
        raise


def _finish(self: Any, init_vars: Mapping[str, Any], *, loading: bool = False) -> None:
    """Steps 2 to 6: derive, ``__post_init__``, derive, validate, freeze."""
    cls = type(self)
    values = self.__dict__
    post_init = None if loading else getattr(self, "__post_init__", None)
    for name, spec in cls.__nqx_fields__.items() if not cls.__nqx_generated_init__ and not loading else ():
        if name not in values and spec.has_default:
            values[name] = spec.make_default()
    if post_init is not None:
        _derive_all(self, tolerant=True)
        post_init(*init_vars.values())
    _derive_all(self, tolerant=False)
    _require_all(self)
    pair = cls.__nqx_layout__.pair(values, cls.__name__)
    _validate(self)
    _store_pair(self, pair)
    if cls.__nqx_derive__ and _holds_tracer(pair[0]):
        for name in cls.__nqx_derive__:
            values.pop(name, None)


def _derive_all(self: Any, *, tolerant: bool) -> None:
    """Compute every derived field anew; each may read the others in any order.

    Args:
        self: The instance.
        tolerant: Before ``__post_init__``, fields that it sets may still be missing.
    """
    values = self.__dict__
    derive = type(self).__nqx_derive__
    for name in derive:
        values.pop(name, None)
    for name in derive:
        if name not in values:
            try:
                _derive(self, name)
            except _Unset:
                if not tolerant:
                    raise
            except _CONCRETIZATION_ERRORS:
                if not _holds_tracer(values):
                    raise


def _derive(self: Any, name: str) -> Any:
    values = self.__dict__
    marker = f"_nqx_deriving_{name}"
    if marker in values:
        raise TypeError(
            f"{type(self).__name__}.{name}: expected derived fields without a cycle, got one through {name!r}"
        )
    values[marker] = True
    try:
        value = type(self).__nqx_derive__[name](self)
    finally:
        del values[marker]
    values[name] = value
    return value


def _require_all(self: Any) -> None:
    cls = type(self)
    unset = [n for n, s in cls.__nqx_fields__.items() if not s.is_derived and not s.reset and n not in self.__dict__]
    if unset:
        raise TypeError(
            f"{cls.__name__}: expected a value for {', '.join(map(repr, unset))}, got none; "
            "set it in __post_init__ (or __init__), or give it a default"
        )


def _validate(self: Any) -> None:
    """Run the validators and the class's check, and report everything that fails."""
    cls = type(self)
    problems: list[Diagnostic] = []
    for name, hook, validator in cls.__nqx_validators__:
        if name not in self.__dict__:
            continue  # a derived field that waits for concrete values
        value = self.__dict__[name]
        try:
            verdict = hook(self, value)
        except _CONCRETIZATION_ERRORS:
            if not _holds_tracer(self.__dict__):
                raise
            continue
        if _is_false(verdict):
            title = getattr(validator, "__name__", repr(validator))
            problems.append(
                Diagnostic(
                    "NQX416",
                    "error",
                    f"expected a value that satisfies {title}, got {brief(value)}",
                    path=f"{cls.__name__}.{name}",
                )
            )
    if cls.__nqx_check__ is not None:
        problems += cls.__nqx_check__(self)
    if any(d.severity == "error" for d in problems):
        raise ValidationError(problems)


def _is_false(verdict: Any) -> bool:
    if verdict is None or isinstance(verdict, jax.core.Tracer):
        return False
    if verdict is False:
        return True
    return getattr(verdict, "shape", None) == () and str(getattr(verdict, "dtype", "")) == "bool" and not bool(verdict)


def _holds_tracer(tree: Any) -> bool:
    leaves = tree.values() if isinstance(tree, dict) else tree
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree_util.tree_leaves(list(leaves)))


class Struct(metaclass=StructMeta):
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

    __slots__ = ("__dict__", "__weakref__", "_nqx_pair")

    __nqx_fields__: ClassVar[Mapping[str, FieldSpec]] = types.MappingProxyType({})
    __nqx_generated_init__: ClassVar[bool] = True

    # --- the life of an instance -------------------------------------------------------------------------------

    def replace(self, **changes: Any) -> Self:
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
        given = {name: getattr(self, name) for name, spec in cls.__nqx_fields__.items() if not spec.is_derived}
        init_vars = {name: changes.pop(name, default) for name, default in cls.__nqx_init_vars__.items()}
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
        _build(new, given | changes, init_vars)
        return new

    def rederive(self) -> None:
        """Compute the derived fields anew, after a mutable container inside a node field has changed in place."""
        before = {name: self.__dict__[name] for name in type(self).__nqx_derive__ if name in self.__dict__}
        try:
            _derive_all(self, tolerant=False)
        except BaseException:
            self.__dict__.update(before)
            raise

    @classmethod
    def __nqx_restore__(cls, values: Mapping[str, Any]) -> Self:
        """Make an instance from stored values: converters, derivation and validation run, ``__post_init__`` does not."""
        new = object.__new__(cls)
        converters = cls.__nqx_converters__
        for name, value in values.items():
            new.__dict__[name] = _convert(new, name, converters[name], value) if name in converters else value
        _finish(new, {}, loading=True)
        return new

    @classmethod
    def __nqx_assemble__(cls, values: Mapping[str, Any]) -> Self:
        """Make an instance from field values as they are; runs no hook. For copies, pickles and abstract loads."""
        new = object.__new__(cls)
        new.__dict__.update(values)
        _store_pair(new, cls.__nqx_layout__.pair(new.__dict__, cls.__name__))
        return new

    def __getattr__(self, name: str) -> Any:
        # Python comes here only for what is neither in __dict__ nor in the class: fields not filled in yet.
        cls = type(self)
        if name == "_nqx_pair":  # JAX meets an instance that is still being made
            _require_all(self)
            return cls.__nqx_layout__.pair(self.__dict__, cls.__name__)
        spec = cls.__nqx_fields__.get(name)
        if spec is None:
            raise AttributeError(f"{cls.__name__!r} object has no attribute {name!r}", name=name, obj=self)
        values = self.__dict__
        try:
            pair = _load_pair(self, cls)
        except AttributeError:
            if spec.is_derived:
                return _derive(self, name)
            raise _Unset(f"{cls.__name__}.{name} is read before it has a value", name=name, obj=self) from None
        if not spec.is_derived and not spec.reset:
            cls.__nqx_layout__.fill(values, pair)
        elif spec.reset:
            values.setdefault(name, spec.make_default())
        elif _holds_tracer(pair[0]):
            value = _derive(self, name)
            del values[name]
            return value
        else:
            with jax.ensure_compile_time_eval():
                return _derive(self, name)
        return values[name]

    def __setattr__(self, name: str, value: Any) -> None:
        cls = type(self)
        if _is_frozen(self):
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

    def __delattr__(self, name: str) -> None:
        if _is_frozen(self):
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
        for name, spec in type(self).__nqx_fields__.items():
            if not spec.compare or spec.is_derived or spec.reset:
                continue
            a, b = getattr(self, name), getattr(other, name)
            if spec.kind is FieldKind.OPAQUE:
                if a is not b and (a == b) is not True:
                    return False
            elif not same_value(a, b):
                return False
        return True

    def __hash__(self) -> int:
        marks: list[Any] = [type(self)]
        for name, spec in type(self).__nqx_fields__.items():
            if spec.compare and not spec.is_derived and spec.kind is not FieldKind.OPAQUE:
                value = getattr(self, name)
                marks.append(hash(value) if spec.kind is FieldKind.STATIC else value_hash(value))
        return hash(tuple(marks))

    def __repr__(self) -> str:
        # getattr would compute what is pending; repr never computes.
        values = dict(self.__dict__)
        if _is_frozen(self):
            type(self).__nqx_layout__.fill(values, _load_pair(self, type(self)))
        specs = type(self).__nqx_fields__.values()
        shown = ", ".join(f"{s.name}={brief(values[s.name])}" for s in specs if s.repr and s.name in values)
        return f"{type(self).__qualname__.rsplit('.', 1)[-1]}({shown})"

    def _nqx_values(self) -> dict[str, Any]:
        fields = type(self).__nqx_fields__.items()
        return {n: getattr(self, n) for n, s in fields if not s.is_derived and (not s.reset or n in self.__dict__)}

    def __reduce__(self) -> tuple[Any, ...]:
        return _assemble, (type(self), self._nqx_values())

    def __copy__(self) -> Self:
        return type(self).__nqx_assemble__(self._nqx_values())

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
    def from_state_dict(cls, payload: Mapping[str, Any], **options: Any) -> Self:
        """The inverse of :meth:`to_state_dict`; see :func:`neuralqx_struct.from_state_dict`."""
        return cast("Self", checkpoint.from_state_dict(payload, **{"load_cls": cls, **options}))

    def export(self, path: str | Path, **options: Any) -> Path:
        """Save the instance as a bundle; see :func:`neuralqx_struct.export`."""
        return checkpoint.export(self, path, **options)

    @classmethod
    def load(cls, path: str | Path, **options: Any) -> Self:
        """Load a bundle of this class; see :func:`neuralqx_struct.load`."""
        return cast("Self", checkpoint.load(path, **{"load_cls": cls, **options}))


_PAIR = cast("types.MemberDescriptorType", Struct.__dict__["_nqx_pair"])
_store_pair = _PAIR.__set__
_load_pair = _PAIR.__get__


def _is_frozen(self: Any) -> bool:
    try:
        _load_pair(self, type(self))
    except AttributeError:
        return False
    return True


# The base class itself has no fields; it is completed here because the slot did not exist while it was being made.
Struct.__nqx_own__ = types.MappingProxyType({})
Struct.__nqx_layout__ = Layout((), (), ())
Struct.__nqx_init_vars__ = {}
Struct.__nqx_converters__ = {}
Struct.__nqx_validators__ = ()
Struct.__nqx_derive__ = {}
Struct.__nqx_check__ = None


def _assemble(cls: type[Struct], values: Mapping[str, Any]) -> Struct:
    return cls.__nqx_assemble__(values)


def _plain(value: Any, *, include_opaque: bool) -> Any:
    if isinstance(value, Struct):
        return value.to_dict(recursive=True, include_opaque=include_opaque)
    if isinstance(value, dict):
        return {key: _plain(item, include_opaque=include_opaque) for key, item in value.items()}
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(_plain(item, include_opaque=include_opaque) for item in value)
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
    if "__dataclass_fields__" in vars(cls):
        namespace |= {special: getattr(Struct, special) for special in ("__eq__", "__hash__", "__repr__", "__reduce__")}
    meta = StructMeta if type(cls) is type else StructABCMeta
    return meta(title, (cls, Struct), namespace)


dataclass = register_class


def _reduce_class(cls: StructMeta) -> Any:
    """Classes pickle by name, as always, except those that a schema made: they carry the way to make them again."""
    rebuild: Callable[[], tuple[Any, ...]] | None = cls.__dict__.get("__nqx_rebuild__")
    return cls.__qualname__ if rebuild is None else rebuild()


copyreg.pickle(StructMeta, _reduce_class)  # type: ignore[arg-type]
