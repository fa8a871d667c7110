"""The definition of a Struct class: what is decided once, when the class body has run.

Owns the metaclasses, the checks of a declaration, and the generated constructor. What happens to each instance is
``lifecycle.py``.
"""

from __future__ import annotations

import copyreg
import functools
import gc
import inspect
import sys
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import InitVar
from textwrap import indent
from typing import TYPE_CHECKING, Any, Protocol, cast, dataclass_transform

from neuralqx_struct.errors import Diagnostic
from neuralqx_struct.fieldspec import (
    MISSING,
    RESERVED_NAMES,
    FieldKind,
    FieldSpec,
    field,
    own_fields,
)
from neuralqx_struct.hooks import derive_hook, required_positional, value_hook
from neuralqx_struct.identity import (
    EXACT_TYPES,
    OpaqueRef,
    are_exact,
    same_object,
    same_static,
    same_value,
    static_hash,
    static_key,
    value_hash,
)
from neuralqx_struct.lifecycle import (
    IN_INIT,
    INIT_VARS,
    Hook,
    assign,
    build,
    fill,
    finish,
    is_false,
    note_converter,
    read_missing,
    refuse_frozen,
    settle,
    untraced,
)
from neuralqx_struct.printing import Text
from neuralqx_struct.pytree import Layout, Pair, put, register_struct
from neuralqx_struct.registry import register_ref
from neuralqx_struct.schema.migration import Migration
from neuralqx_struct.versioned import Claim, claim, refuse_keywords, register_claim

__all__ = ["StructABCMeta", "StructMeta"]


# What ``==`` asks of two values of a field, and what the hash takes of one. Looked up once: in Python 3.11 the members of
# an enumeration are slow to read and to hash.
_COMPARED: Mapping[FieldKind, tuple[Callable[[Any, Any], bool], Callable[[Any], int] | None]] = {
    FieldKind.NODE: (same_value, value_hash),
    FieldKind.STATIC: (same_static, static_hash),
    FieldKind.OPAQUE: (same_object, None),
}


class _Bare:
    """What an instance of a plain class takes: one that takes more has storage besides its attributes."""


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
    __nqx_pure__: bool  # all derived fields are such that nobody can tell how often they are computed
    __nqx_steps__: tuple[tuple[str, Hook | None, Callable[[], Any] | None], ...]
    __nqx_stored__: frozenset[str]
    __nqx_compared__: tuple[tuple[str, Callable[[Any, Any], bool], Callable[[Any], int] | None], ...]
    __nqx_printed__: tuple[str, ...]
    __nqx_check__: Callable[[Any], list[Diagnostic]] | None
    __nqx_generated_init__: bool
    __nqx_plain__: bool
    __nqx_sound__: Callable[[type, Pair], bool] | None  # of classes with a check and without other hooks
    __nqx_value_hooks__: bool
    __nqx_own_init_vars__: Mapping[str, FieldSpec]
    __nqx_own_order__: tuple[str, ...]
    __nqx_order__: tuple[str, ...]
    __nqx_claim__: Claim
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
            name: As for every class.
            bases: Likewise.
            namespace: Likewise.
            kw_only: Whether the constructor takes the fields by name only.
            schema: The identity of the schema that the class is a version of, such as ``"lab.train_state"``. A subclass
                does not inherit it.
            version: Which version, 1 if nothing is said.
            migrations: How payloads of the version before become payloads of this one, ``[s.steps.migration(1, [...])]``;
                in front of that one the migrations of earlier versions, each to the version behind it.
            **kwargs: Those of ``__init_subclass__``.
        """
        refuse_keywords(name, bases, kwargs)
        said = claim(name, schema, version, migrations)
        slots = namespace.get("__slots__", ())
        if slots:
            raise TypeError(f"{name}: expected no __slots__, got {slots!r}: Struct stores its fields itself")
        cls = super().__new__(mcs, name, bases, namespace, **kwargs)
        if cls.__basicsize__ > _Bare.__basicsize__ or cls.__itemsize__:
            raise TypeError(
                f"{name}: expected bases that store nothing themselves, got one with __slots__ or a builtin such as dict: "
                "Struct stores its fields itself; drop slots=True, or hold the builtin in a field"
            )
        if said is not None:
            cls.__nqx_claim__ = said
            cls.__nqx_ref__ = register_claim(cls, said)
        _complete(cls, kw_only=kw_only)
        return cls


if TYPE_CHECKING:  # what type checkers take for the metaclass of protocols, which has no public name
    from abc import ABCMeta as _ProtocolMeta
else:
    _ProtocolMeta = type(Protocol)


@dataclass_transform(field_specifiers=(field,), frozen_default=True)  # mypy and pyright do not inherit it
class StructABCMeta(StructMeta, _ProtocolMeta):
    """The metaclass of Structs that are abstract, or that inherit from an ABC or a Protocol."""

    # Protocol's metaclass asks every class of its own for this; those that are no protocols do not have it.
    _is_protocol = False


def _complete(cls: StructMeta, *, kw_only: bool) -> None:
    """Everything that is decided at class definition."""
    promoted: type = cls.__dict__.get("__nqx_promoted__", cls)
    own, init_vars = own_fields(promoted, kw_only=kw_only)
    collected: dict[str, FieldSpec] = {}
    all_init_vars: dict[str, FieldSpec] = {}
    order: dict[str, None] = {}
    for base in reversed(cls.__mro__[1:]):
        fields_there, init_vars_there, order_there = _declared_by(cls, base)
        collected |= fields_there
        all_init_vars |= init_vars_there
        order |= dict.fromkeys(order_there)
    _check_names(cls, own, collected)
    collected |= own
    for name in {*own, *init_vars} if promoted is cls else ():
        if name in cls.__dict__:
            delattr(cls, name)
    shadowed = {name for name in collected if any(name in vars(base) for base in cls.__mro__ if base is not object)}
    for name in shadowed:
        type.__setattr__(cls, name, _Unfilled(name))
    cls.__nqx_own__ = types.MappingProxyType(own)
    cls.__nqx_own_init_vars__ = init_vars
    cls.__nqx_own_order__ = tuple(n for n in inspect.get_annotations(promoted) if n in own or n in init_vars)
    cls.__nqx_init_vars__ = {n: s for n, s in (all_init_vars | init_vars).items() if n not in own}
    cls.__nqx_fields__ = types.MappingProxyType({n: s for n, s in collected.items() if n not in init_vars})
    collected = dict(cls.__nqx_fields__)
    cls.__nqx_order__ = tuple(order | dict.fromkeys(cls.__nqx_own_order__))
    cls.__nqx_layout__ = Layout.of(collected)
    specs = collected.values()
    cls.__nqx_converters__ = {s.name: value_hook(s.converter) for s in specs if s.converter is not None}
    cls.__nqx_steps__ = tuple(
        (
            s.name,
            cls.__nqx_converters__.get(s.name),
            (s.make_default if s.default_factory is MISSING else s.default_factory) if s.has_default else None,
        )
        for s in specs
        if not s.is_derived
    )
    cls.__nqx_stored__ = frozenset(s.name for s in specs if not s.is_derived and not s.reset)
    cls.__nqx_compared__ = tuple(
        (s.name, *_COMPARED[s.kind]) for s in specs if s.compare and s.name in cls.__nqx_stored__
    )
    cls.__nqx_printed__ = tuple(s.name for s in specs if s.repr)
    cls.__nqx_validators__ = tuple((s.name, value_hook(v), v) for s in specs for v in s.validators)
    cls.__nqx_derive__ = {s.name: derive_hook(s.derived) for s in specs if s.derived is not None}
    cls.__nqx_pure__ = all(getattr(s.derived, "__nqx_pure__", False) for s in specs if s.derived is not None)
    if "__nqx_check__" not in cls.__dict__:
        cls.__nqx_check__ = getattr(cls, "__nqx_check__", None)
    cls.__nqx_value_hooks__ = _has_value_hooks(cls)
    hooks = cls.__nqx_converters__, cls.__nqx_validators__, cls.__nqx_check__
    cls.__nqx_plain__ = cls.__nqx_value_hooks__ and not any(hooks)
    cls.__nqx_sound__ = (
        getattr(hooks[-1], "sound_pair", None) if cls.__nqx_value_hooks__ and not any(hooks[:-1]) else None
    )
    _install_init(cls, own)
    cls.__match_args__ = tuple(s.name for s in specs if s.init and not s.kw_only)  # type: ignore[attr-defined,misc]
    _keep_getattr(cls)
    register_struct(cls, collected, cls.__nqx_layout__)
    # What a schema file made is found through the schema, not by its name.
    if "__nqx_ref__" not in cls.__dict__ or "__nqx_claim__" in cls.__dict__:
        register_ref(cls)


def _declared_by(cls: type, base: type) -> tuple[Mapping[str, FieldSpec], Mapping[str, FieldSpec], Iterable[str]]:
    """The fields and InitVars that a base class brings: a Struct's own, and the annotations of a plain class.

    Those of a Protocol say what others have to bring, and what a nearer class defines as an attribute is no field.
    """
    if "__nqx_own__" in vars(base):
        known: Any = base
        return known.__nqx_own__, known.__nqx_own_init_vars__, known.__nqx_own_order__
    promoted = cls.__dict__.get("__nqx_promoted__")
    if base is promoted or getattr(base, "_is_protocol", False) or not inspect.get_annotations(base):
        return {}, {}, ()
    taken = {
        name
        for nearer in cls.__mro__[: cls.__mro__.index(base)]
        for name in vars(nearer).keys() - inspect.get_annotations(nearer).keys()
        if not isinstance(vars(nearer)[name], _Unfilled)
    }
    specs, init_vars = own_fields(base)
    specs = {name: spec for name, spec in specs.items() if name not in taken}
    _check_names(base, specs, {})
    return specs, init_vars, [name for name in inspect.get_annotations(base) if name in specs or name in init_vars]


def _keep_getattr(cls: StructMeta) -> None:
    """Let a ``__getattr__`` of the class body or of a mixin see only what is no field."""
    own = next((vars(base)["__getattr__"] for base in cls.__mro__ if "__getattr__" in vars(base)), read_missing)
    if own is read_missing or getattr(own, "__nqx_reads_fields__", False):
        return

    def __getattr__(self: Any, name: str) -> Any:
        if name == "_nqx_pair" or name in type(self).__nqx_fields__:
            return read_missing(self, name)
        return own(self, name)

    __getattr__.__nqx_reads_fields__ = True  # type: ignore[attr-defined]
    type.__setattr__(cls, "__getattr__", __getattr__)


def _check_names(cls: type, own: Mapping[str, FieldSpec], inherited: Mapping[str, FieldSpec]) -> None:
    for name, spec in own.items():
        if spec.kind is FieldKind.STATIC and spec.converter is None and type(spec.default) not in EXACT_TYPES:
            try:
                static_key(spec.default)
            except TypeError as error:
                what = "expected a static default that has a hash and holds no array"
                raise TypeError(f"{cls.__name__}.{name}: {what}, got {error}; make it a node, or use tuples") from None
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
    promoted: type = cls.__dict__.get("__nqx_promoted__", cls)
    generated = "__dataclass_fields__" in promoted.__dict__ and vars(promoted)["__dataclass_params__"].init
    written = None if generated else promoted.__dict__.get("__init__")
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
    # Of the classes of a large schema few are made instances of, and their arguments are in no wrong order.
    init: Any = _Later(cls) if "__nqx_document__" in cls.__dict__ else generate_init(cls)
    cls.__init__ = init  # type: ignore[misc]


class _Later:
    """Stands for ``__init__`` until somebody asks for it, and puts the generated one in its place."""

    def __init__(self, cls: StructMeta) -> None:
        self.cls = cls

    def __get__(self, instance: Any, owner: type) -> Any:
        init = self.cls.__dict__["__init__"]
        if init is self:  # else another thread was faster
            init = generate_init(self.cls)
            type.__setattr__(self.cls, "__init__", init)
        return init.__get__(instance, owner)


def _finishing(written: Callable[..., None]) -> Callable[..., None]:
    """An ``__init__`` that somebody wrote, with the rest of the lifecycle behind it, if it is the outermost one.

    The instance knows whether it is. The class may not: a decorator may have put its own function around this one.
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


def generate_init(cls: StructMeta) -> Callable[..., None]:
    """The constructor, with a real signature: Python itself reports missing and unexpected arguments.

    Classes without hooks, or with such alone as look at one value, store their pair at once; the others go through
    :func:`~neuralqx_struct.lifecycle.build`, and so does whatever is unusual: static values with keys of their own, a
    validator that does not say yes, hooks while JAX traces. Only names that Python
    already accepted as identifiers reach the source text; every value comes in through the namespace.
    """
    positional: list[str] = []
    keyword: list[str] = []
    namespace: dict[str, Any] = {"_nqx_missing": MISSING, "_nqx_build": build, "_nqx_put": put}
    after_default = None
    arguments = {
        name: spec
        for name in cls.__nqx_order__
        if (spec := cls.__nqx_init_vars__.get(name) or cls.__nqx_fields__[name]).init
    }
    for name, spec in arguments.items():
        if spec.has_default:
            namespace[f"_nqx_default_{name}"] = spec.default
        if not spec.kw_only:
            if spec.has_default:
                after_default = name
            elif after_default is not None:
                raise TypeError(
                    f"{cls.__name__}.{name}: expected a default, because {after_default!r} before it has one; "
                    "give it a default, move it up, or make it kw_only=True"
                )
        (keyword if spec.kw_only else positional).append(f"{name}=_nqx_default_{name}" if spec.has_default else name)
    own_self = "_nqx_self" if "self" in arguments else "self"
    signature = ", ".join([own_self, *positional, *(["*", *keyword] if keyword else [])])
    names = ", ".join(f"{name!r}: {name}" for name in arguments if name not in cls.__nqx_init_vars__)
    init_vars = ", ".join(f"{name!r}: {name}" for name in cls.__nqx_init_vars__)
    body = f"    _nqx_build({own_self}, {{{names}}}, {{{init_vars}}})\n"
    # A new instance of this class refers to nothing but its class. Whatever else comes here is an instance that is
    # frozen already, or one of a subclass whose own __init__ finishes what this one only assigns.
    outermost = (
        f"    if _nqx_referents({own_self}) != _nqx_new and _nqx_assign({own_self}, {{{names}}}, {{{init_vars}}}):\n"
        "        return\n"
    )
    namespace |= {"_nqx_type": type, "_nqx_assign": assign, "_nqx_referents": gc.get_referents, "_nqx_new": [cls]}
    if cls.__nqx_plain__ or cls.__nqx_value_hooks__:
        body = _straight(cls, own_self, namespace) + body
    lines = f"def __init__({signature}):\n{outermost}{body}return __init__"
    source = f"def _nqx_make({', '.join(namespace)}):\n{indent(lines, ' ')}"
    made: dict[str, Any] = {}
    # Its globals are those of the module, in which tools such as get_type_hints look for what annotations say as text.
    module = vars(sys.modules[cls.__module__]) if cls.__module__ in sys.modules else {}
    exec(compile(source, f"<generated __init__ of {cls.__name__}>", "exec"), module, made)  # noqa: S102
    init = cast("types.FunctionType", made["_nqx_make"](**namespace))
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__module__ = cls.__module__
    init.__annotations__ = {
        name: spec.type.type if isinstance(spec.type, InitVar) else spec.type for name, spec in arguments.items()
    } | {"return": None}
    if any(spec.default_factory is not MISSING for spec in arguments.values()):
        init.__signature__ = _signature(init, arguments)  # type: ignore[attr-defined]
    return init


def _signature(init: Callable[..., None], arguments: Mapping[str, FieldSpec]) -> inspect.Signature:
    """The signature as help shows it: as for dataclasses, a default that a factory makes is ``<factory>``."""
    plain = inspect.signature(init)
    made = {name for name, spec in arguments.items() if spec.default_factory is not MISSING}
    return plain.replace(
        parameters=[p.replace(default=_FACTORY) if name in made else p for name, p in plain.parameters.items()]
    )


_FACTORY = Text("<factory>")


def _straight(cls: StructMeta, own_self: str, namespace: dict[str, Any]) -> str:
    """The lines of ``__init__`` that make the pair from the arguments, and return if nothing is unusual.

    Validators that do not say yes run once more, for the report.
    """
    layout = cls.__nqx_layout__
    lines: list[str] = []
    for name, spec in cls.__nqx_fields__.items():
        if spec.default_factory is not MISSING:
            namespace[f"_nqx_make_{name}"] = spec.default_factory
            lines += [f"if {name} is _nqx_missing:", f"    {name} = _nqx_make_{name}()"]
        if spec.converter is not None:
            namespace[f"_nqx_convert_{name}"] = spec.converter
            lines += ["try:", f"    {name} = _nqx_convert_{name}({name})", "except _nqx_error as _nqx_e:"]
            lines += [f"    _nqx_note(_nqx_e, {own_self}, {name!r})", "    raise"]
    statics = "".join(f"_nqx_type({name}), " for name in layout.statics)
    nodes = "".join(f"{name}, " for name in layout.nodes)
    held = [*layout.statics, *(f"_nqx_ref({name}, {name!r})" for name in layout.opaques)]
    check: Any = cls.__nqx_check__
    sound = getattr(check, "sound", None)
    opaques = "".join(f"{name}, " for name in layout.opaques)
    held_values = f"{nodes}{''.join(f'{name}, ' for name in layout.statics)}{opaques}"
    verdicts = [f"_nqx_valid_{place}({name})" for place, (name, _, _) in enumerate(cls.__nqx_validators__)]
    fine = [f"((_nqx_v := {verdict}) is True or _nqx_v is None or not _nqx_is_false(_nqx_v))" for verdict in verdicts]
    if sound is not None:
        namespace |= {"_nqx_sound": sound, "_nqx_cls": cls}
        shown = f"_nqx_sound(_nqx_cls, ({held_values}))"
        if (proof := check.proof) is not None:
            namespace |= proof.namespace
            shown = f"({proof.text} or {shown})"
        fine.append(shown)
    values = "".join(f"{name}, " for name in layout.statics)
    exact = f"(_nqx_exact(_nqx_keys) or _nqx_are_exact(_nqx_keys, ({values})))" if values else "True"
    lines += [f"_nqx_keys = ({statics})", f"_nqx_fine = {' and '.join([exact, *fine])}"]
    if fine:
        lines[-1:] = ["try:", f"    {lines[-1]}", "except _nqx_error:", "    _nqx_fine = False"]
    lines += [
        "if _nqx_fine:",
        f"    _nqx_put({own_self}, '_nqx_pair', (({nodes}), (_nqx_keys, {''.join(f'{name}, ' for name in held)})))",
        "    return",
    ]
    if not cls.__nqx_plain__:
        converted = ", ".join(f"{name!r}: {name}" for name in cls.__nqx_fields__)
        lines += [f"return _nqx_settle({own_self}, {{{converted}}})"]
    if cls.__nqx_converters__ or cls.__nqx_validators__:
        lines = ["if _nqx_untraced():", *(f"    {line}" for line in lines)]
    namespace |= {
        "_nqx_exact": EXACT_TYPES.issuperset,
        "_nqx_are_exact": are_exact,
        "_nqx_ref": OpaqueRef,
        "_nqx_error": Exception,
        "_nqx_note": note_converter,
        "_nqx_is_false": is_false,
        "_nqx_settle": settle,
        "_nqx_untraced": untraced,
    }
    namespace |= {f"_nqx_valid_{place}": validator for place, (_, _, validator) in enumerate(cls.__nqx_validators__)}
    return "".join(f"    {line}\n" for line in lines)


def _has_value_hooks(cls: StructMeta) -> bool:
    """True if converters and validators are all the hooks there are, and none of them wants the instance.

    A check of the class itself may look at values as well: it remembers what it has found sound.
    """
    inherited = any(base.__dict__.get("__nqx_check__") is cls.__nqx_check__ for base in cls.__mro__[1:])
    whole = cls.__nqx_check__ is not None and (inherited or not hasattr(cls.__nqx_check__, "sound"))
    others = cls.__nqx_derive__, cls.__nqx_init_vars__, whole
    specs = cls.__nqx_fields__.values()
    if any(others) or hasattr(cls, "__post_init__") or not all(s.init and not s.reset for s in specs):
        return False
    hooks = [s.converter for s in specs if s.converter is not None] + [v for s in specs for v in s.validators]
    return all(required_positional(hook) < 2 for hook in hooks)


def _reduce_class(cls: StructMeta) -> Any:
    """Classes pickle by name, as always, except those that a schema made: they carry the way to make them again."""
    rebuild: Callable[[], tuple[Any, ...]] | None = cls.__dict__.get("__nqx_rebuild__")
    return cls.__qualname__ if rebuild is None else rebuild()


copyreg.pickle(StructMeta, _reduce_class)
