"""The metaclass of Structs: everything that is decided once, when a class body has run.

Owns the metaclasses, the collection of inherited fields and the checks of a declaration. ``constructor.py`` generates the
constructor; each instance goes through ``lifecycle.py``.
"""

from __future__ import annotations

import copyreg
import functools
import types
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, dataclass_transform

from neuralqx_struct.documents.binding import (
    SchemaBinding,
    check_keywords,
    schema_binding,
)
from neuralqx_struct.documents.bound_checks import BoundCheck
from neuralqx_struct.documents.hints import annotations_in
from neuralqx_struct.errors import Diagnostic
from neuralqx_struct.fieldspec import (
    MISSING,
    RESERVED_NAMES,
    FieldKind,
    FieldSpec,
    Hook,
    Specs,
    field,
)
from neuralqx_struct.references import bind, register_ref
from neuralqx_struct.schema.migration import Migration
from neuralqx_struct.struct.constructor import INIT_VARS, generate_init, is_straight, refuse_frozen
from neuralqx_struct.struct.declarations import (
    InitVarSpec,
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
from neuralqx_struct.struct.lifecycle import build, read_missing
from neuralqx_struct.struct.pytree import Layout, register_struct

__all__ = ["StructABCMeta", "StructMeta"]

#: In ``__dict__`` while a user's ``__init__`` runs: constructors that it calls are not the outermost one.
IN_INIT = "_nqx_in_init"

#: How ``==`` compares two values of a field, and how they are hashed.
Comparison: TypeAlias = tuple[Hook, Hook | None]

# In Python 3.11 the members of an enumeration are slow to read, so each class looks them up once.
_COMPARED: Mapping[FieldKind, Comparison] = {
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
    __nqx_fields__: Specs
    __nqx_own__: Specs  # of the class body, with its InitVars
    __nqx_init_vars__: Specs
    __nqx_arguments__: Specs  # fields and InitVars in the order of the constructor
    __nqx_layout__: Layout
    __nqx_converters__: Mapping[str, Hook]
    __nqx_validators__: tuple[tuple[str, Hook, Hook], ...]
    __nqx_derive__: Mapping[str, Hook]
    # All derived fields are expressions, which can be computed once or twice without a difference.
    __nqx_pure__: bool
    __nqx_steps__: tuple[tuple[str, Hook | None], ...]
    __nqx_compared__: tuple[tuple[str, Hook, Hook | None], ...]
    __nqx_check__: Callable[[Any], list[Diagnostic]] | None
    __nqx_stacked__: frozenset[str] = frozenset()  # fields that hold stacked structs
    # Makes the defaults whose sizes other fields fix, in the values of an instance.
    __nqx_sized__: Callable[[dict[str, Any]], None] | None = None
    __nqx_generated_init__: bool
    __nqx_straight__: bool  # constructed by straight-line code
    __nqx_plain__: bool  # without any hook
    __nqx_known_pair__: Hook | None  # the memo of the check, of classes without other hooks
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
            cls.__nqx_check__ = BoundCheck(cls)
            cls.__nqx_ref__ = bind(cls, binding.id, binding.version)
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
    _collect_fields(cls, promoted, kw_only=kw_only)
    fields = cls.__nqx_fields__
    specs = fields.values()
    layout = cls.__nqx_layout__ = Layout.of(fields)
    cls.__nqx_compared__ = tuple(
        (s.name, *_COMPARED[s.kind]) for s in specs if s.compare and s.name in layout.places
    )
    cls.__match_args__ = tuple(s.name for s in specs if s.init and not s.kw_only)  # type: ignore[attr-defined,misc]
    _collect_hooks(cls, specs)
    _install_init(cls, promoted)
    _keep_getattr(cls)
    register_struct(cls, fields, layout)
    # Classes made from a schema file are found through the schema, not by name.
    if "__nqx_ref__" not in cls.__dict__ or "__nqx_binding__" in cls.__dict__:
        register_ref(cls)


def _collect_fields(cls: StructMeta, promoted: type, *, kw_only: bool) -> None:
    """Collect own and inherited fields and InitVars."""
    own = own_fields(promoted, kw_only=kw_only)
    declared: dict[str, FieldSpec] = {}
    for base in reversed(cls.__mro__[1:]):
        declared |= _declared_by(cls, base)
    _check_names(cls, own, declared)
    for name in own if promoted is cls else ():
        if name in cls.__dict__:
            delattr(cls, name)
    declared |= own
    shadowing = set[str]().union(*(vars(base) for base in cls.__mro__ if base is not object))
    init_vars = {name: spec for name, spec in declared.items() if isinstance(spec, InitVarSpec)}
    fields = {name: spec for name, spec in declared.items() if name not in init_vars}
    for name in shadowing & fields.keys():
        type.__setattr__(cls, name, _Unfilled(name))
    cls.__nqx_own__ = own
    cls.__nqx_init_vars__ = init_vars
    cls.__nqx_arguments__ = {name: spec for name, spec in declared.items() if spec.init}
    cls.__nqx_fields__ = types.MappingProxyType(fields)


def _collect_hooks(cls: StructMeta, specs: Iterable[FieldSpec]) -> None:
    """Resolve the hooks of all fields, and decide how instances are constructed and replaced."""
    converters: dict[str, Hook] = {}
    validators: list[tuple[str, Hook, Hook]] = []
    steps: list[tuple[str, Hook | None]] = []
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


def _declared_by(cls: type, base: type) -> Specs:
    """The fields and InitVars of a base class: a Struct's own ones, or the annotations of a plain class.

    The annotations of a Protocol are requirements, and an annotation is no field if a nearer class defines the attribute.
    """
    known: Any = base
    if "__nqx_own__" in vars(base):
        own: Specs = known.__nqx_own__
        return own
    promoted = cls.__dict__.get("__nqx_promoted__")
    if base is promoted or getattr(base, "_is_protocol", False):
        return {}
    if not annotations_in(base):
        return {}
    defined: set[str] = set()
    for nearer in cls.__mro__[: cls.__mro__.index(base)]:
        names = vars(nearer).keys() - annotations_in(nearer).keys()
        defined |= {name for name in names if not isinstance(vars(nearer)[name], _Unfilled)}
    specs = own_fields(base)
    kept = {n: s for n, s in specs.items() if n not in defined or isinstance(s, InitVarSpec)}
    _check_names(base, kept, {})
    return kept


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


def _check_names(cls: type, own: Specs, inherited: Specs) -> None:
    for name, spec in own.items():
        if isinstance(spec, InitVarSpec):
            continue
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


def _install_init(cls: StructMeta, promoted: type) -> None:
    """Generate ``__init__``, or wrap the one of the class body so that it ends in a frozen instance."""
    written = vars(promoted).get("__init__")
    if "__dataclass_fields__" in vars(promoted) and vars(promoted)["__dataclass_params__"].init:
        written = None
    inherits_written = not getattr(cls, "__nqx_generated_init__", True)
    if written is None and inherits_written:
        own = [name for name, spec in cls.__nqx_own__.items() if not isinstance(spec, InitVarSpec)]
        if own:
            raise TypeError(
                f"{cls.__name__}: expected an __init__, got new fields {', '.join(own)} below a class with an __init__ of "
                "its own, which cannot set them; write one that calls super().__init__"
            )
        written = cls.__init__  # type: ignore[misc]
    cls.__nqx_generated_init__ = written is None
    if written is not None:
        cls.__init__ = _finishing(written)  # type: ignore[misc]
        return
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


def _finishing(written: Hook) -> Hook:
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
        init_vars = values.pop(INIT_VARS, {})
        build(self, dict(values), init_vars)

    return __init__


def _reduce_class(cls: StructMeta) -> Any:
    """Pickle a class by name; a schema-made one by its documents, which rebuild it."""
    rebuild: Callable[[], tuple[Any, ...]] | None = cls.__dict__.get("__nqx_rebuild__")
    return cls.__qualname__ if rebuild is None else rebuild()


copyreg.pickle(StructMeta, _reduce_class)
