"""Field declarations: :class:`FieldKind`, :class:`FieldSpec` and :func:`field`.

The class attribute ``__nqx_fields__`` marks a class as a Struct; :func:`is_struct` looks for it, so that no module has to
import ``struct/``. Class bodies are read by ``struct/declarations.py``. Does not import JAX.

Example:
    >>> spec = field(static=True, default=3)
    >>> spec.kind, spec.default
    (<FieldKind.STATIC: 'static'>, 3)
"""

from __future__ import annotations

import dataclasses
import enum
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, TypeAlias, TypedDict, TypeVar, Unpack, overload

__all__ = ["MISSING", "FieldKind", "FieldSpec", "field"]


class ConflictError(ValueError, TypeError):
    """Arguments of :func:`field` that contradict each other; also a TypeError, for callers that catch that."""


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
    """The type of :data:`MISSING`, the mark of an absent value (None is a value)."""

    MISSING = "MISSING"

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = Missing.MISSING

#: The methods of Struct. They are final: later API is functions, so that it cannot collide with fields.
RESERVED_NAMES: Final = frozenset(
    [
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
    ]
)

T = TypeVar("T")

#: Values by the names of fields, attributes or options.
Values: TypeAlias = Mapping[str, Any]
Names: TypeAlias = tuple[str, ...]
#: A function that a user gives; its arity is resolved once per class.
Hook: TypeAlias = Callable[..., Any]
Factory: TypeAlias = Callable[[], Any] | Missing

# With arguments, so that type checkers infer the parameters of a lambda.
ValueHook = Callable[[Any], Any] | Callable[[Any, Any], Any]
DeriveHook = Callable[[Any], Any] | Callable[[], Any]

_EMPTY: Values = types.MappingProxyType({})


@dataclass(frozen=True, slots=True, eq=False)
class FieldSpec:
    """The declaration of one field; made by :func:`field`, completed when its class is defined.

    Attributes:
        name: The attribute's name; empty until the class is defined.
        kind: Node, static or opaque.
        serialize: Saved or not; None leaves it to the kind.
        validators: Each ``validator(value)`` or ``validator(self, value)``.
        type: The annotation as written (postponed ones are strings), or the type of a schema.
        tags: The tags in ``metadata["tags"]``, where one tag may be given as a plain string.

    The others are the arguments of :func:`field`.
    """

    name: str = ""
    kind: FieldKind = FieldKind.NODE
    default: Any = MISSING
    default_factory: Factory = MISSING
    init: bool = True
    repr: bool = True
    compare: bool = True
    serialize: bool | None = None
    kw_only: bool = False
    doc: str | None = None
    metadata: Values = dataclasses.field(default_factory=lambda: _EMPTY)
    converter: Hook | None = None
    validators: tuple[Hook, ...] = ()
    derived: Hook | None = None
    reset: bool = False
    aliases: Names = ()
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
        """True if the field is saved: by default nodes and statics are; derived fields never are."""
        if self.is_derived:
            return False
        if self.serialize is None:
            return self.kind is not FieldKind.OPAQUE
        return self.serialize

    def make_default(self) -> Any:
        """A default value.

        Raises:
            TypeError: The field has none.
        """
        if self.default_factory is not MISSING:
            return self.default_factory()
        if self.default is MISSING:
            where = self.name or "field()"
            raise TypeError(f"{where}: expected a field with a default, got a required one")
        return self.default

    def value_hooks(self) -> Iterator[tuple[FieldHook, Hook]]:
        """The functions that run on each value of the field, in order, with their kinds."""
        for hook in VALUE_HOOKS:
            for function in hook.functions(self):
                yield hook, function

    def outline(self) -> FieldSpec:
        """The part that filters read and that always pickles: name, kind and tags."""
        tags = tuple(sorted(self.tags))
        return FieldSpec(name=self.name, kind=self.kind, metadata={"tags": tags})

    def arguments(self) -> dict[str, Any]:
        """The arguments that make this declaration."""
        return {name: getattr(self, name) for name in _ARGUMENTS}

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the arguments; hooks are pickled by name, as functions are."""
        return _made, (self.arguments() | {"metadata": dict(self.metadata)},)


_ARGUMENTS = tuple(each.name for each in dataclasses.fields(FieldSpec) if each.init)


def _made(arguments: dict[str, Any]) -> FieldSpec:
    """The inverse of ``FieldSpec.__reduce__``."""
    return FieldSpec(**arguments | {"metadata": types.MappingProxyType(arguments["metadata"])})


class FieldHook(NamedTuple):
    """One kind of function that runs on each value of a field, at construction, ``replace`` and load.

    Attributes:
        name: As an argument of :func:`field`, for messages.
        functions: Returns the functions of a field; each takes ``(value)`` or ``(self, value)``.
        converts: Whether the result replaces the value; otherwise the function checks, and False is a failure.
    """

    name: str
    functions: Callable[[FieldSpec], tuple[Hook, ...]]
    converts: bool


#: All kinds, in the order in which they run. The lifecycle, the generated constructor and the schema writer follow it.
VALUE_HOOKS: tuple[FieldHook, ...] = (
    FieldHook("converter", lambda spec: tuple(filter(callable, [spec.converter])), converts=True),
    FieldHook("validator", lambda spec: spec.validators, converts=False),
)


def tagged(spec: FieldSpec, tags: Iterable[str]) -> FieldSpec:
    """The declaration with more tags, for instances that have tags of their own."""
    more = frozenset(tags)
    if more <= spec.tags:
        return spec
    return dataclasses.replace(spec, metadata={**spec.metadata, "tags": spec.tags | more})


class _Options(TypedDict, total=False):
    """The arguments of :func:`field` that do not affect its static type."""

    static: bool
    pytree: bool
    repr: bool
    compare: bool
    serialize: bool | None
    kw_only: bool
    doc: str | None
    metadata: Values | None
    validator: ValueHook | Iterable[ValueHook] | None
    reset: bool
    aliases: Iterable[str]


# For type checkers: a derived field is no argument of the constructor; a converter takes defaults of other types.
@overload
def field(
    *, derived: DeriveHook, init: Literal[False] = False, **options: Unpack[_Options]
) -> Any: ...
@overload
def field(
    *,
    converter: ValueHook,
    default: Any = MISSING,
    default_factory: Factory = MISSING,
    init: bool = True,
    **options: Unpack[_Options],
) -> Any: ...
@overload
def field(
    *, default: T, init: bool = True, converter: None = None, **options: Unpack[_Options]
) -> T: ...
@overload
def field(
    *,
    default_factory: Callable[[], T],
    init: bool = True,
    converter: None = None,
    **options: Unpack[_Options],
) -> T: ...
@overload
def field(
    *, init: bool = True, converter: None = None, derived: None = None, **options: Unpack[_Options]
) -> Any: ...
def field(
    *,
    static: bool = False,
    pytree: bool = True,
    default: Any = MISSING,
    default_factory: Factory = MISSING,
    init: bool = True,
    repr: bool = True,  # noqa: A002 - the names of dataclasses.field
    compare: bool = True,
    serialize: bool | None = None,
    kw_only: bool = False,
    doc: str | None = None,
    metadata: Values | None = None,
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
        doc: The meaning of the field.
        metadata: Free mapping for tools; filters read ``{"tags": [...]}``, shardings ``{"axes": [...]}``.
        converter: Applied to every value that is assigned: ``converter(value)`` or ``converter(self, value)``.
            It must be idempotent.
        validator: One or several of ``validator(value)`` or ``validator(self, value)``; False is a failure.
        derived: Computes the field from the others: ``derived(self)`` or ``derived()``. Never stored, never a leaf.
        reset: With ``pytree=False``: a fresh default after every unflatten, and no part of the jit cache key.
        aliases: Former names, under which old payloads may hold the field.

    Returns:
        A :class:`FieldSpec` (typed as the value, so that ``x: int = field(default=1)`` type-checks).

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: The arguments contradict each other; the message names them and the class.

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
    names: tuple[Any, ...] = (None,)
    if isinstance(aliases, Iterable) and not isinstance(aliases, str):
        names = tuple(aliases)
    validators = (validator,) if callable(validator) else tuple(validator or ())
    given, made = default is not MISSING, default_factory is not MISSING
    is_node, is_derived = pytree and not static, derived is not None
    hooks: list[Any] = [hook for hook in (converter, derived) if hook is not None]
    if made:
        hooks.append(default_factory)
    wrong = {
        "a converter, default_factory or derived that is not callable": not all(
            map(callable, hooks)
        ),
        'metadata["tags"] that is neither text nor a collection of texts': not _are_tags(
            (metadata or {}).get("tags", ())
        ),
        "aliases that are no collection of names": not all(isinstance(name, str) for name in names),
        "a validator that is not callable": not all(map(callable, validators)),
    }
    conflicts = {
        "static=True and pytree=False: a field is static or opaque, not both": static
        and not pytree,
        "default and default_factory: give one of them": given and made,
        "derived with a default: a derived field is always computed": is_derived
        and (given or made),
        "derived on a node field: make it static=True or pytree=False": is_derived and is_node,
        "derived with serialize=True: a derived field is recomputed, never stored": is_derived
        and serialize is True,
        "derived with a converter: convert inside the derived function": is_derived
        and converter is not None,
        "reset=True on a field that is not opaque: reset needs pytree=False": reset and pytree,
        "reset=True without a default: there is nothing to reset to": reset and not (given or made),
    }
    for error, found in ((TypeError, wrong), (ConflictError, conflicts)):
        for message, holds in found.items():
            if holds:
                raise error(f"{_caller()}: expected arguments that agree, got {message}")
    kind = FieldKind.NODE if is_node else FieldKind.OPAQUE
    if static:
        kind = FieldKind.STATIC
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
    """``Model: field()`` for a call in a class body; the name of the field is not known yet."""
    body = sys._getframe(2).f_locals  # noqa: SLF001 - as namedtuple and TypeVar do
    where = body.get("__qualname__") if "__module__" in body else None
    return "field()" if where is None else f"{where.rpartition('.')[2]}: field()"


def _are_tags(tags: Any) -> bool:
    if isinstance(tags, str):
        return True
    is_collection = isinstance(tags, (list, tuple, set, frozenset))
    return is_collection and all(isinstance(tag, str) for tag in tags)


def is_struct(value: Any) -> bool:
    """True if ``value`` is a Struct class or an instance of one."""
    cls = value if isinstance(value, type) else type(value)
    return "__nqx_fields__" in cls.__dict__ or hasattr(cls, "__nqx_fields__")


#: The fields of a class by name.
Specs: TypeAlias = Mapping[str, FieldSpec]
