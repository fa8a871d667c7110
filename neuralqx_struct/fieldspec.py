"""Fields: how one attribute of a Struct is declared, and how declarations are collected from a class body.

Owns :class:`FieldKind`, :class:`FieldSpec`, :func:`field` and the reading of annotations (``ClassVar``, ``InitVar``,
``KW_ONLY``, postponed ones too). Struct-ness is the class attribute ``__nqx_fields__``; :func:`is_struct` asks for it,
so that nothing has to import ``struct.py``. Does not build classes and knows nothing of JAX.

Example:
    >>> spec = field(static=True, default=3)
    >>> spec.kind, spec.default
    (<FieldKind.STATIC: 'static'>, 3)
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, TypedDict, TypeVar, Unpack, overload

from neuralqx_struct.hooks import check_hooks

__all__ = [
    "MISSING",
    "RESERVED_NAMES",
    "FieldKind",
    "FieldSpec",
    "Missing",
    "field",
    "is_struct",
    "own_fields",
    "tagged",
]


class FieldKind(enum.StrEnum):
    """How a field takes part in the pytree.

    Attributes:
        NODE: A child: JAX traces, differentiates and batches it.
        STATIC: Part of the treedef: hashable, array-free, every distinct value is compiled for itself.
        OPAQUE: Not a leaf: a handle, cache or logger that JAX carries along or resets.
    """

    NODE = "node"
    STATIC = "static"
    OPAQUE = "opaque"


class Missing(enum.Enum):
    """The type of :data:`MISSING`, which says that no value was given (None is a value)."""

    MISSING = "MISSING"

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = Missing.MISSING

#: The methods of Struct. They are final: what comes later is a function, so that no field has to give way to it.
RESERVED_NAMES: Final = frozenset(
    {
        "derived_fields",
        "export",
        "fields",
        "from_state_dict",
        "load",
        "node_fields",
        "opaque_fields",
        "rederive",
        "replace",
        "static_fields",
        "to_dict",
        "to_state_dict",
        "tree_size",
    }
)

T = TypeVar("T")

# Said with its arguments, so that type checkers know what the parameters of a lambda are.
ValueHook = Callable[[Any], Any] | Callable[[Any, Any], Any]
DeriveHook = Callable[[Any], Any] | Callable[[], Any]

_EMPTY: Mapping[str, Any] = types.MappingProxyType({})


@dataclass(frozen=True, slots=True, eq=False)
class FieldSpec:
    """The declaration of one field; made by :func:`field`, completed when its class is defined.

    Attributes:
        name: The attribute's name; empty until the class is defined.
        kind: Node, static or opaque.
        default: Default value or MISSING.
        default_factory: Called for a fresh default each time, or MISSING.
        init: Whether the constructor takes it.
        repr: Whether ``repr`` shows it.
        compare: Whether ``==`` and ``hash`` look at it.
        serialize: Saved or not; None leaves it to the kind.
        kw_only: Whether the constructor takes it by keyword only.
        doc: What the field means.
        metadata: Free, read-only mapping for tools; ``tags`` is read by filters.
        converter: ``converter(value)`` or ``converter(self, value)``, or None.
        validators: Each ``validator(value)`` or ``validator(self, value)``.
        derived: ``derived(self)`` or ``derived()``, or None.
        reset: For opaque fields: back to the default on unflatten instead of preserved by identity.
        aliases: Former names under which old payloads may hold the field.
        type: The annotation as written (postponed ones are strings), or the type of a schema.
        tags: The tags in ``metadata["tags"]``, where one tag may be given as a plain string.
    """

    name: str = ""
    kind: FieldKind = FieldKind.NODE
    default: Any = MISSING
    default_factory: Callable[[], Any] | Missing = MISSING
    init: bool = True
    repr: bool = True
    compare: bool = True
    serialize: bool | None = None
    kw_only: bool = False
    doc: str | None = None
    metadata: Mapping[str, Any] = dataclasses.field(default_factory=lambda: _EMPTY)
    converter: Callable[..., Any] | None = None
    validators: tuple[Callable[..., Any], ...] = ()
    derived: Callable[..., Any] | None = None
    reset: bool = False
    aliases: tuple[str, ...] = ()
    type: Any = MISSING
    tags: frozenset[str] = dataclasses.field(init=False, repr=False)

    def __post_init__(self) -> None:
        tags = self.metadata.get("tags", ())
        object.__setattr__(self, "tags", frozenset([tags] if isinstance(tags, str) else tags))

    @property
    def has_default(self) -> bool:
        """True if the constructor can do without a value."""
        return self.default is not MISSING or self.default_factory is not MISSING

    @property
    def is_derived(self) -> bool:
        """True if the value is computed from other fields."""
        return self.derived is not None

    @property
    def should_serialize(self) -> bool:
        """True if the field is saved: nodes and statics unless told otherwise, derived fields never."""
        if self.is_derived:
            return False
        return self.kind is not FieldKind.OPAQUE if self.serialize is None else self.serialize

    def make_default(self) -> Any:
        """A default value; call only where :attr:`has_default` is true."""
        return self.default if self.default_factory is MISSING else self.default_factory()

    def outline(self) -> FieldSpec:
        """What filters ask of the declaration, its name, kind and tags, and nothing that might not pickle."""
        return FieldSpec(name=self.name, kind=self.kind, metadata={"tags": tuple(sorted(self.tags))})

    def __reduce__(self) -> tuple[Any, ...]:
        """As the arguments that make it again; hooks are pickled as functions are, by name."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.init}
        return _made, ({**values, "metadata": dict(self.metadata)},)


def _made(arguments: dict[str, Any]) -> FieldSpec:
    """The inverse of pickling."""
    return FieldSpec(**arguments | {"metadata": types.MappingProxyType(arguments["metadata"])})


def tagged(spec: FieldSpec, tags: Iterable[str]) -> FieldSpec:
    """The declaration with more tags, for a field whose instances have tags of their own."""
    more = frozenset(tags)
    return dataclasses.replace(spec, metadata={**spec.metadata, "tags": spec.tags | more}) if more - spec.tags else spec


class _Options(TypedDict, total=False):
    """The arguments of :func:`field` that do not decide about its type."""

    static: bool
    pytree: bool
    repr: bool
    compare: bool
    serialize: bool | None
    kw_only: bool
    doc: str | None
    metadata: Mapping[str, Any] | None
    validator: ValueHook | Iterable[ValueHook] | None
    reset: bool
    aliases: Iterable[str]


# A derived field is no argument of the constructor, a converter takes defaults of other types: checkers are to know.
@overload
def field(*, derived: DeriveHook, init: Literal[False] = False, **options: Unpack[_Options]) -> Any: ...
@overload
def field(
    *,
    converter: ValueHook,
    default: Any = MISSING,
    default_factory: Callable[[], Any] | Missing = MISSING,
    init: bool = True,
    **options: Unpack[_Options],
) -> Any: ...
@overload
def field(*, default: T, init: bool = True, converter: None = None, **options: Unpack[_Options]) -> T: ...
@overload
def field(
    *, default_factory: Callable[[], T], init: bool = True, converter: None = None, **options: Unpack[_Options]
) -> T: ...
@overload
def field(*, init: bool = True, converter: None = None, derived: None = None, **options: Unpack[_Options]) -> Any: ...
def field(
    *,
    static: bool = False,
    pytree: bool = True,
    default: Any = MISSING,
    default_factory: Callable[[], Any] | Missing = MISSING,
    init: bool = True,
    repr: bool = True,  # noqa: A002 - the names of dataclasses.field
    compare: bool = True,
    serialize: bool | None = None,
    kw_only: bool = False,
    doc: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    converter: ValueHook | None = None,
    validator: ValueHook | Iterable[ValueHook] | None = None,
    derived: DeriveHook | None = None,
    reset: bool = False,
    aliases: Iterable[str] = (),
) -> Any:
    """Declare how a field of a Struct behaves.

    Args:
        static: True makes it :attr:`FieldKind.STATIC`.
        pytree: False makes it :attr:`FieldKind.OPAQUE`.
        default: The value where none is given; excludes ``default_factory``.
        default_factory: Called without arguments for a fresh default, as mutable defaults need.
        init: Whether the constructor takes the field.
        repr: Whether ``repr`` shows it.
        compare: Whether ``==`` and ``hash`` look at it.
        serialize: Saved or not; None: nodes and statics are, opaque fields are not.
        kw_only: Whether the constructor takes it by keyword only.
        doc: What the field means.
        metadata: Free mapping for tools; ``{"tags": [...]}`` is read by filters.
        converter: Applied to every value that is assigned: ``converter(value)`` or ``converter(self, value)``.
            It must be idempotent.
        validator: One or several of ``validator(value)`` or ``validator(self, value)``; False is a failure.
        derived: Computes the field from the others: ``derived(self)`` or ``derived()``. Never stored, never a leaf.
        reset: With ``pytree=False``: a fresh default after every unflatten, and no part of the jit cache key.
        aliases: Former names, under which old payloads may hold the field.

    Returns:
        A :class:`FieldSpec` (typed as the value, so that ``x: int = field(default=1)`` type-checks).

    Raises:
        TypeError: The arguments contradict each other; the message says which, and in which class.

    Example:
        >>> field(pytree=False, default_factory=dict).kind
        <FieldKind.OPAQUE: 'opaque'>
    """
    if not (metadata is None or isinstance(metadata, Mapping)):
        raise TypeError(f"{_caller()}: expected a mapping as metadata, got {metadata!r}")
    if not (validator is None or callable(validator) or isinstance(validator, Iterable)):
        raise TypeError(
            f"{_caller()}: expected a function or several as validator, got {validator!r}, which is not callable"
        )
    names: tuple[Any, ...] = (
        tuple(aliases) if isinstance(aliases, Iterable) and not isinstance(aliases, str) else (None,)
    )
    validators = (validator,) if callable(validator) else tuple(validator or ())
    conflicts = {
        "static=True and pytree=False: a field is static or opaque, not both": static and not pytree,
        "default and default_factory: give one of them": default is not MISSING and default_factory is not MISSING,
        "derived with a default: a derived field is always computed": derived is not None
        and (default is not MISSING or default_factory is not MISSING),
        "derived on a node field: make it static=True or pytree=False": derived is not None and not static and pytree,
        "derived with serialize=True: a derived field is recomputed, never stored": derived is not None
        and serialize is True,
        "derived with a converter: convert inside the derived function": derived is not None and converter is not None,
        "reset=True on a field that is not opaque: reset needs pytree=False": reset and pytree,
        "reset=True without a default: there is nothing to reset to": reset
        and default is MISSING
        and default_factory is MISSING,
        "a converter, default_factory or derived that is not callable": any(
            hook is not None and hook is not MISSING and not callable(hook)
            for hook in (converter, default_factory, derived)
        ),
        'metadata["tags"] that is neither text nor a collection of texts': not _are_tags(
            (metadata or {}).get("tags", ())
        ),
        "aliases that are no collection of names": not all(isinstance(name, str) for name in names),
        "a validator that is not callable": not all(callable(v) for v in validators),
    }
    for message, conflict in conflicts.items():
        if conflict:
            raise TypeError(f"{_caller()}: expected arguments that agree, got {message}")
    kind = FieldKind.STATIC if static else FieldKind.NODE if pytree else FieldKind.OPAQUE
    return FieldSpec(
        kind=kind,
        default=default,
        default_factory=default_factory,
        init=init and derived is None,
        repr=repr,
        compare=compare,
        serialize=serialize,
        kw_only=kw_only,
        doc=doc,
        metadata=types.MappingProxyType(dict(metadata or {})),
        converter=converter,
        validators=validators,
        derived=derived,
        reset=reset,
        aliases=names,
    )


def _caller() -> str:
    """``Model: field()`` for a call in the body of a class, which knows its own name but not yet that of the field."""
    body = sys._getframe(2).f_locals  # noqa: SLF001 - the way of namedtuple and TypeVar
    where = body.get("__qualname__") if "__module__" in body else None
    return "field()" if where is None else f"{where.rpartition('.')[2]}: field()"


def _are_tags(tags: Any) -> bool:
    if isinstance(tags, str):
        return True
    return isinstance(tags, (list, tuple, set, frozenset)) and all(isinstance(tag, str) for tag in tags)


def is_struct(value: Any) -> bool:
    """True if ``value`` is a Struct class or an instance of one."""
    cls = value if isinstance(value, type) else type(value)
    return "__nqx_fields__" in cls.__dict__ or hasattr(cls, "__nqx_fields__")


# What another library declares its fields with, by the type of the declaration.
_FOREIGN: Mapping[tuple[str, str], str] = {
    ("dataclasses", "Field"): "dataclasses, flax or equinox",
    ("attr._make", "_CountingAttr"): "attrs",
    ("pydantic.fields", "FieldInfo"): "Pydantic",
}
_DESCRIPTORS = (property, classmethod, staticmethod, functools.cached_property)


def _check_default(cls: type, name: str, value: Any) -> None:
    """What the class body assigns to a field is a value, and nothing that only looks like one."""
    where, kind = f"{cls.__name__}.{name}", type(value)
    library = _FOREIGN.get((kind.__module__, kind.__name__))
    if library is not None:
        raise TypeError(
            f"{where}: expected a default or neuralqx_struct.field(...), got a field of {library}; "
            "of that, static or pytree_node=False is field(static=True) here"
        )
    if isinstance(value, _DESCRIPTORS) or (
        isinstance(value, types.FunctionType) and value.__qualname__ == f"{cls.__qualname__}.{name}"
    ):
        raise TypeError(
            f"{where}: expected a default, got a {kind.__name__} of the same name, which the body defines too; rename one "
            "of them, or leave the annotation out"
        )


# An annotation written as text: an optional module, then the name that decides. Annotated[...] is looked through, and so
# are the quotes of text inside postponed annotations.
_HEAD = re.compile(r"[\s'\"]*(?:(?:\w+\.)?Annotated\s*\[[\s'\"]*)?(?:(\w+)\s*\.\s*)?(\w+)")
# For names that the module does not have, because they were imported inside a function.
_FORMS: Mapping[str, Any] = {"ClassVar": ClassVar, "InitVar": dataclasses.InitVar, "KW_ONLY": dataclasses.KW_ONLY}


def _special_form(annotation: Any, module: str) -> Any:
    """ClassVar, InitVar or KW_ONLY if the annotation is one of them, else None."""
    if isinstance(annotation, str):
        found = _HEAD.match(annotation)
        namespace = vars(sys.modules[module]) if module in sys.modules else {}
        if not found:
            return None
        if found[1]:
            owner = namespace.get(found[1])
            namespace = vars(owner) if isinstance(owner, types.ModuleType) else {}
        annotation = namespace.get(found[2], _FORMS.get(found[2]))
    while typing.get_origin(annotation) is typing.Annotated:
        annotation = typing.get_args(annotation)[0]
    if isinstance(annotation, typing.ForwardRef):
        return _special_form(annotation.__forward_arg__, module)
    if annotation is ClassVar or typing.get_origin(annotation) is ClassVar:
        return ClassVar
    if annotation is dataclasses.InitVar or isinstance(annotation, dataclasses.InitVar):
        return dataclasses.InitVar
    return dataclasses.KW_ONLY if annotation is dataclasses.KW_ONLY else None


def _is_mutable(value: Any) -> bool:
    # JAX arrays have no hash but cannot change; asking for their type's marks needs no import of JAX.
    return type(value).__hash__ is None and not hasattr(type(value), "addressable_shards")


def _default_in_body(cls: type, name: str) -> Any:
    """What the class body assigns to ``name``; for stdlib dataclasses, what their field declaration says."""
    declared = cls.__dict__.get("__dataclass_fields__", {}).get(name)
    if declared is None:
        return cls.__dict__.get(name, MISSING)
    absent = dataclasses.MISSING
    make: Callable[..., Any] = field  # the overloads are for what users write
    return make(
        default=MISSING if declared.default is absent else declared.default,
        default_factory=MISSING if declared.default_factory is absent else declared.default_factory,
        init=declared.init,
        repr=declared.repr,
        compare=declared.compare,
        kw_only=declared.kw_only is True,
        metadata=declared.metadata,
    )


def own_fields(cls: type, *, kw_only: bool = False) -> tuple[dict[str, FieldSpec], dict[str, FieldSpec]]:
    """Read the fields that the body of ``cls`` itself declares.

    Args:
        cls: The class, already created; its annotations are read unevaluated.
        kw_only: Whether the fields are keyword-only unless they say otherwise.

    Returns:
        The field declarations by name, and those of the ``InitVar`` pseudo-fields.

    Raises:
        TypeError: A mutable default, or a ``field()`` without annotation; names class and field.
    """
    specs: dict[str, FieldSpec] = {}
    init_vars: dict[str, FieldSpec] = {}
    annotations = inspect.get_annotations(cls)
    for name, annotation in annotations.items():
        form = _special_form(annotation, cls.__module__)
        if form is ClassVar:
            continue
        if form is dataclasses.KW_ONLY:
            kw_only = True
            continue
        value = _default_in_body(cls, name)
        if isinstance(value, types.MemberDescriptorType):
            raise TypeError(
                f"{cls.__name__}.{name}: expected no __slots__ entry for a field: Struct stores its fields itself"
            )
        _check_default(cls, name, value)
        spec = value if isinstance(value, FieldSpec) else FieldSpec(default=value)
        check_hooks(f"{cls.__name__}.{name}", spec.converter, spec.validators, spec.derived, spec.default_factory)
        if spec.default is not MISSING and _is_mutable(spec.default):
            raise TypeError(
                f"{cls.__name__}.{name}: expected an immutable default, got a {type(spec.default).__name__}, which all "
                f"instances would share; use field(default_factory={type(spec.default).__name__})"
            )
        if form is dataclasses.InitVar and spec.default_factory is not MISSING:
            raise TypeError(f"{cls.__name__}.{name}: expected a default for an InitVar, got a default_factory")
        kept = init_vars if form is dataclasses.InitVar else specs
        kept[name] = dataclasses.replace(spec, name=name, type=annotation, kw_only=spec.kw_only or kw_only)
    for name, value in cls.__dict__.items():
        if isinstance(value, FieldSpec) and name not in annotations:
            raise TypeError(
                f"{cls.__name__}.{name}: expected an annotation beside field(); write `{name}: object = ...`"
            )
    return specs, init_vars
