"""The metaclass of Structs: everything that is decided once, when a class body has run.

Owns the metaclasses, the collection of inherited fields and the checks of a declaration. ``constructor.py`` generates the
constructor; each instance goes through ``lifecycle.py``.
"""

from __future__ import annotations

import copyreg
import functools
import inspect
import types
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, dataclass_transform

from neuralqx_struct.errors import Diagnostic
from neuralqx_struct.fieldspec import MISSING, RESERVED_NAMES, FieldKind, FieldSpec, field
from neuralqx_struct.references import register_ref
from neuralqx_struct.schema.migration import Migration
from neuralqx_struct.struct.binding import SchemaBinding, bind, check_keywords, schema_binding
from neuralqx_struct.struct.constructor import generate_init, is_straight
from neuralqx_struct.struct.declarations import (
    check_static_default,
    derive_hook,
    own_fields,
    value_hook,
)
from neuralqx_struct.struct.equality import (
    same_object,
    same_static,
    same_value,
    static_hash,
    value_hash,
)
from neuralqx_struct.struct.lifecycle import (
    IN_INIT,
    INIT_VARS,
    Hook,
    fill,
    finish,
    read_missing,
    refuse_frozen,
)
from neuralqx_struct.struct.pytree import Layout, Pair, register_struct

__all__ = ["StructABCMeta", "StructMeta"]


# How == compares two values of a field, and how they are hashed. In Python 3.11 the members of an enumeration are slow to
# read, so each class looks them up once.
_COMPARED: Mapping[FieldKind, tuple[Callable[[Any, Any], bool], Callable[[Any], int] | None]] = {
    FieldKind.NODE: (same_value, value_hash),
    FieldKind.STATIC: (same_static, static_hash),
    FieldKind.OPAQUE: (same_object, None),
}


class _Bare:
    """The baseline size of instances; a larger one means ``__slots__`` or a builtin base."""


class _Unfilled:
    """Shadows the attribute of a plain base class that has the name of a field: fills the instance on the first read.

    Not a data descriptor, so that the instance's ``__dict__`` wins from then on.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            raise AttributeError(
                f"{owner.__name__}.{self.name} is a field; read it from an instance"
            )
        return instance.__getattr__(self.name)


@dataclass_transform(field_specifiers=(field,), frozen_default=True)
class StructMeta(type):
    """Metaclass of Struct: collects the fields, checks the declaration, registers the class as a pytree."""

    # Set on every Struct class; the double underscore keeps them apart from fields.
    __nqx_fields__: Mapping[str, FieldSpec]
    __nqx_own__: Mapping[str, FieldSpec]
    __nqx_layout__: Layout
    __nqx_init_vars__: Mapping[str, FieldSpec]
    __nqx_converters__: Mapping[str, Hook]
    __nqx_validators__: tuple[tuple[str, Hook, Callable[..., Any]], ...]
    __nqx_derive__: Mapping[str, Callable[[Any], Any]]
    # All derived fields are expressions, which can be computed once or twice without a difference.
    __nqx_pure__: bool
    __nqx_steps__: tuple[tuple[str, Callable[[], Any] | None], ...]
    __nqx_stored__: frozenset[str]
    __nqx_compared__: tuple[
        tuple[str, Callable[[Any, Any], bool], Callable[[Any], int] | None], ...
    ]
    __nqx_printed__: tuple[str, ...]
    __nqx_check__: Callable[[Any], list[Diagnostic]] | None
    __nqx_generated_init__: bool
    __nqx_straight__: bool  # constructed by straight-line code
    __nqx_plain__: bool  # without any hook
    # The memo of the check, of classes without other hooks.
    __nqx_known_pair__: Callable[[type, Pair], object] | None
    __nqx_own_init_vars__: Mapping[str, FieldSpec]
    __nqx_own_order__: tuple[str, ...]
    __nqx_order__: tuple[str, ...]
    __nqx_binding__: SchemaBinding
    __nqx_ref__: str

    def __new__(
        mcs,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        kw_only: bool = False,
        schema: str | None = None,
        version: int | None = None,
        migrations: Iterable[Migration] | None = None,
        **kwargs: Any,
    ) -> StructMeta:
        """Create the class, then read its annotations and register it.

        Args:
            name: As for every class, like ``bases`` and ``namespace``.
            bases: Likewise.
            namespace: Likewise.
            kw_only: Whether the constructor takes the fields by name only.
            schema: The identity of the schema that the class is a version of, such as ``"lab.train_state"``. A subclass
                does not inherit it.
            version: The version, by default 1.
            migrations: The migration of payloads of the version before, ``[s.steps.migration(1, [...])]``, optionally
                preceded by those of earlier versions, each to the version behind it.
            **kwargs: Those of ``__init_subclass__``.
        """
        check_keywords(name, bases, kwargs)
        binding = schema_binding(name, schema, version, migrations)
        slots = namespace.get("__slots__", ())
        if slots:
            raise TypeError(
                f"{name}: expected no __slots__, got {slots!r}: Struct stores its fields itself"
            )
        cls = super().__new__(mcs, name, bases, namespace, **kwargs)
        if cls.__basicsize__ > _Bare.__basicsize__ or cls.__itemsize__:
            raise TypeError(
                f"{name}: expected bases that store nothing themselves, got one with __slots__ or a builtin such as dict: "
                "Struct stores its fields itself; drop slots=True, or hold the builtin in a field"
            )
        if binding is not None:
            cls.__nqx_binding__ = binding
            cls.__nqx_ref__ = bind(cls, binding)
        _complete(cls, kw_only=kw_only)
        return cls


if TYPE_CHECKING:  # the metaclass of protocols has no public name
    from abc import ABCMeta as _ProtocolMeta
else:
    _ProtocolMeta = type(Protocol)


@dataclass_transform(
    field_specifiers=(field,), frozen_default=True
)  # mypy and pyright do not inherit it
class StructABCMeta(StructMeta, _ProtocolMeta):
    """The metaclass of Structs that are abstract, or that inherit from an ABC or a Protocol."""

    # Protocol's metaclass reads this from every class with it; those that are no protocols lack it.
    _is_protocol = False


def _complete(cls: StructMeta, *, kw_only: bool) -> None:
    """Set everything that is decided at class definition."""
    promoted: type = cls.__dict__.get("__nqx_promoted__", cls)
    own = _collect_fields(cls, promoted, kw_only=kw_only)
    fields = dict(cls.__nqx_fields__)
    specs = fields.values()
    cls.__nqx_layout__ = Layout.of(fields)
    cls.__nqx_stored__ = frozenset(s.name for s in specs if not s.is_derived and not s.reset)
    cls.__nqx_compared__ = tuple(
        (s.name, *_COMPARED[s.kind]) for s in specs if s.compare and s.name in cls.__nqx_stored__
    )
    cls.__nqx_printed__ = tuple(s.name for s in specs if s.repr)
    cls.__match_args__ = tuple(s.name for s in specs if s.init and not s.kw_only)  # type: ignore[attr-defined,misc]
    _collect_hooks(cls, specs)
    _install_init(cls, promoted, own)
    _keep_getattr(cls)
    register_struct(cls, fields, cls.__nqx_layout__)
    # Classes made from a schema file are found through the schema, not by name.
    if "__nqx_ref__" not in cls.__dict__ or "__nqx_binding__" in cls.__dict__:
        register_ref(cls)


def _collect_fields(cls: StructMeta, promoted: type, *, kw_only: bool) -> Mapping[str, FieldSpec]:
    """Collect own and inherited fields; returns the own ones."""
    own, own_init_vars = own_fields(promoted, kw_only=kw_only)
    inherited: dict[str, FieldSpec] = {}
    init_vars: dict[str, FieldSpec] = {}
    order: dict[str, None] = {}
    for base in reversed(cls.__mro__[1:]):
        base_fields, base_init_vars, base_order = _declared_by(cls, base)
        inherited |= base_fields
        init_vars |= base_init_vars
        order |= dict.fromkeys(base_order)
    _check_names(cls, own, inherited)
    for name in {*own, *own_init_vars} if promoted is cls else ():
        if name in cls.__dict__:
            delattr(cls, name)
    fields = inherited | own
    for name in fields:
        if any(name in vars(base) for base in cls.__mro__ if base is not object):
            type.__setattr__(cls, name, _Unfilled(name))
    cls.__nqx_own__ = types.MappingProxyType(own)
    cls.__nqx_own_init_vars__ = own_init_vars
    annotated = inspect.get_annotations(promoted)
    cls.__nqx_own_order__ = tuple(n for n in annotated if n in own or n in own_init_vars)
    cls.__nqx_order__ = tuple(order | dict.fromkeys(cls.__nqx_own_order__))
    init_vars |= own_init_vars
    cls.__nqx_init_vars__ = {n: spec for n, spec in init_vars.items() if n not in own}
    kept = {n: spec for n, spec in fields.items() if n not in own_init_vars}
    cls.__nqx_fields__ = types.MappingProxyType(kept)
    return own


def _collect_hooks(cls: StructMeta, specs: Iterable[FieldSpec]) -> None:
    """Resolve the hooks of all fields, and decide how instances are constructed and replaced."""
    converters: dict[str, Hook] = {}
    validators: list[tuple[str, Hook, Callable[..., Any]]] = []
    steps: list[tuple[str, Callable[[], Any] | None]] = []
    for spec in specs:
        for hook, function in spec.value_hooks():
            called = value_hook(function)
            if not hook.converts:
                validators.append((spec.name, called, function))
            elif spec.name in converters:
                converters[spec.name] = _chained(converters[spec.name], called)
            else:
                converters[spec.name] = called
        if not spec.is_derived:
            factory = spec.default_factory
            make_default = spec.make_default if factory is MISSING else factory
            steps.append((spec.name, make_default if spec.has_default else None))
    cls.__nqx_converters__ = converters
    cls.__nqx_validators__ = tuple(validators)
    cls.__nqx_steps__ = tuple(steps)
    derived = {spec.name: spec.derived for spec in specs if spec.derived is not None}
    cls.__nqx_derive__ = {name: derive_hook(function) for name, function in derived.items()}
    cls.__nqx_pure__ = all(getattr(each, "__nqx_pure__", False) for each in derived.values())
    if "__nqx_check__" not in cls.__dict__:
        cls.__nqx_check__ = getattr(cls, "__nqx_check__", None)
    cls.__nqx_straight__ = is_straight(cls)
    only_check = cls.__nqx_straight__ and not converters and not validators
    cls.__nqx_plain__ = only_check and cls.__nqx_check__ is None
    cls.__nqx_known_pair__ = None
    if only_check and cls.__nqx_check__ is not None:
        cls.__nqx_known_pair__ = cls.__nqx_check__.known_pair  # type: ignore[attr-defined]


def _chained(first: Hook, then: Hook) -> Hook:
    return lambda instance, value: then(instance, first(instance, value))


def _declared_by(
    cls: type, base: type
) -> tuple[Mapping[str, FieldSpec], Mapping[str, FieldSpec], Iterable[str]]:
    """The fields and InitVars of a base class: a Struct's own ones, or the annotations of a plain class.

    The annotations of a Protocol are requirements, and an annotation is no field if a nearer class defines the attribute.
    """
    if "__nqx_own__" in vars(base):
        known: Any = base
        return known.__nqx_own__, known.__nqx_own_init_vars__, known.__nqx_own_order__
    annotations = inspect.get_annotations(base)
    promoted = cls.__dict__.get("__nqx_promoted__")
    if base is promoted or getattr(base, "_is_protocol", False) or not annotations:
        return {}, {}, ()
    defined: set[str] = set()
    for nearer in cls.__mro__[: cls.__mro__.index(base)]:
        names = vars(nearer).keys() - inspect.get_annotations(nearer).keys()
        defined |= {name for name in names if not isinstance(vars(nearer)[name], _Unfilled)}
    specs, init_vars = own_fields(base)
    specs = {name: spec for name, spec in specs.items() if name not in defined}
    _check_names(base, specs, {})
    order = [name for name in annotations if name in specs or name in init_vars]
    return specs, init_vars, order


def _keep_getattr(cls: StructMeta) -> None:
    """Call the ``__getattr__`` of the class body or of a mixin only for names that are no fields."""
    found = (vars(base)["__getattr__"] for base in cls.__mro__ if "__getattr__" in vars(base))
    own = next(found, read_missing)
    if own is read_missing or getattr(own, "__nqx_reads_fields__", False):
        return

    def __getattr__(self: Any, name: str) -> Any:
        if name == "_nqx_pair" or name in type(self).__nqx_fields__:
            return read_missing(self, name)
        return own(self, name)

    __getattr__.__nqx_reads_fields__ = True  # type: ignore[attr-defined]
    type.__setattr__(cls, "__getattr__", __getattr__)


def _check_names(
    cls: type, own: Mapping[str, FieldSpec], inherited: Mapping[str, FieldSpec]
) -> None:
    for name, spec in own.items():
        check_static_default(f"{cls.__name__}.{name}", spec)
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


def _install_init(cls: StructMeta, promoted: type, own: Mapping[str, FieldSpec]) -> None:
    """Generate ``__init__``, or wrap the one of the class body so that it ends in a frozen instance."""
    is_dataclass = "__dataclass_fields__" in promoted.__dict__
    written = promoted.__dict__.get("__init__")
    if is_dataclass and vars(promoted)["__dataclass_params__"].init:
        written = None
    if written is not None:
        cls.__init__ = _finishing(written)  # type: ignore[misc]
        cls.__nqx_generated_init__ = False
        return
    if not getattr(cls, "__nqx_generated_init__", True):
        if own:
            raise TypeError(
                f"{cls.__name__}: expected an __init__, got new fields {', '.join(own)} below a class with an __init__ of "
                "its own, which cannot set them; write one that calls super().__init__"
            )
        cls.__init__ = _finishing(cls.__init__)  # type: ignore[misc]
        return
    cls.__nqx_generated_init__ = True
    # A large schema has many classes, few of which are instantiated; their fields are keyword-only and need no check of
    # their order.
    made_from_schema = "__nqx_document__" in cls.__dict__
    cls.__init__ = _LateInit(cls) if made_from_schema else generate_init(cls)  # type: ignore[misc]


class _LateInit:
    """An ``__init__`` that is generated on first use."""

    def __init__(self, cls: StructMeta) -> None:
        self.cls = cls

    def __get__(self, instance: Any, owner: type) -> Any:
        init = self.cls.__dict__["__init__"]
        if init is self:  # else another thread was faster
            init = generate_init(self.cls)
            type.__setattr__(self.cls, "__init__", init)
        return init.__get__(instance, owner)


def _finishing(written: Callable[..., None]) -> Callable[..., None]:
    """A user's ``__init__`` with the rest of the lifecycle behind it, if it is the outermost call.

    The instance records whether it is. The class cannot: a decorator may have put its own function around this one.
    """

    @functools.wraps(written)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        refuse_frozen(self)
        values = self.__dict__
        if IN_INIT in values:
            written(self, *args, **kwargs)
            return
        values[IN_INIT] = True
        try:
            written(self, *args, **kwargs)
        finally:
            del values[IN_INIT]
        fill(self)
        finish(self, values.pop(INIT_VARS, {}))

    return __init__


def _reduce_class(cls: StructMeta) -> Any:
    """Pickle a class by name; a schema-made one by its documents, which rebuild it."""
    rebuild: Callable[[], tuple[Any, ...]] | None = cls.__dict__.get("__nqx_rebuild__")
    return cls.__qualname__ if rebuild is None else rebuild()


copyreg.pickle(StructMeta, _reduce_class)
