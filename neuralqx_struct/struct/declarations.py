"""Fields in a class body: reads annotations and defaults, and checks that the hooks can be called.

Owns :func:`own_fields` (``ClassVar``, ``InitVar`` and ``KW_ONLY`` are understood, postponed annotations too) and the
arity of hooks, which is resolved once per class. Hooks run in ``lifecycle.py``.

Example:
    >>> value_hook(int)(None, "3"), value_hook(lambda self, value: value)(None, "3")
    (3, '3')
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from neuralqx_struct.documents.hints import annotations_in
from neuralqx_struct.fieldspec import MISSING, FieldKind, FieldSpec, Hook, Values, field
from neuralqx_struct.struct.equality import EXACT_TYPES, static_key

# ---------------------------------------------------------------------------------------------------------------------
# Arity of hooks.

_BUILTIN_CALLABLES = (
    type,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.MethodWrapperType,
)


def _signature(function: Hook) -> inspect.Signature | None:
    """The signature of a hook; None for builtins, classes and compiled callables, which take one argument."""
    if isinstance(function, _BUILTIN_CALLABLES):
        return None
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def required_positional(function: Hook) -> int:
    """The number of required positional arguments of a function; builtins and classes count as one.

    The arity of a hook is decided by this number alone, once per class: a value hook with two or more takes the instance
    before the value.

    Example:
        >>> required_positional(int), required_positional(lambda self, value: value)
        (1, 2)
    """
    signature = _signature(function)
    if signature is None:
        return 1
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = signature.parameters.values()
    return sum(p.kind in positional and p.default is inspect.Parameter.empty for p in parameters)


def value_hook(function: Hook) -> Callable[[Any, Any], Any]:
    """A hook of one value as ``hook(instance, value)``."""
    if required_positional(function) >= 2:
        return function
    return lambda _instance, value: function(value)


def derive_hook(function: Hook) -> Callable[[Any], Any]:
    """A derived function as ``derive(instance)``."""
    return function if required_positional(function) >= 1 else lambda _instance: function()


def _accepts(function: Hook, count: int) -> bool:
    """True if a hook can be called with ``count`` arguments, or has no signature to check."""
    signature = _signature(function)
    if signature is None:
        return True
    try:
        signature.bind(*[None] * count)
    except TypeError:
        return False
    return True


def _check_hooks(where: str, spec: FieldSpec) -> None:
    """Check that the hooks of a field can be called as they will be; the TypeError names a signature that works."""
    hooks = [(kind.name, hook, "value", 1) for kind, hook in spec.value_hooks()]
    if spec.derived is not None:
        hooks.append(("derived", spec.derived, "", 0))
    for name, hook, value, least in hooks:
        takes_instance = required_positional(hook) > least
        if not _accepts(hook, least + takes_instance):
            both = f"{name}({value}) or {name}({', '.join(filter(None, ('self', value)))})"
            raise TypeError(
                f"{where}: expected {both}, got {inspect.signature(hook)}; give the other arguments defaults"
            )
    factory = spec.default_factory
    if callable(factory) and not _accepts(factory, 0):
        raise TypeError(
            f"{where}: expected a default_factory without arguments, got {inspect.signature(factory)}; "
            "set a value that depends on other fields in __post_init__, or derive it"
        )


# ---------------------------------------------------------------------------------------------------------------------
# Annotations.

# An annotation written as text: an optional module, then the name that decides. Annotated[...] is looked through, and so
# are the quotes of text inside postponed annotations.
_HEAD = re.compile(r"[\s'\"]*(?:(?:\w+\.)?Annotated\s*\[[\s'\"]*)?(?:(\w+)\s*\.\s*)?(\w+)")
# For names that the module does not have, because they were imported inside a function.
_FORMS: Values = {
    "ClassVar": ClassVar,
    "InitVar": dataclasses.InitVar,
    "KW_ONLY": dataclasses.KW_ONLY,
}


def _special_form(annotation: Any, module: str) -> Any:
    """Returns ClassVar, InitVar or KW_ONLY if the annotation is one of them, else None."""
    if isinstance(annotation, str):
        found = _HEAD.match(annotation)
        if not found:
            return None
        namespace = vars(sys.modules[module]) if module in sys.modules else {}
        owner, name = found.groups()
        if owner:
            owning = namespace.get(owner)
            namespace = vars(owning) if isinstance(owning, types.ModuleType) else {}
        annotation = namespace.get(name, _FORMS.get(name))
    while typing.get_origin(annotation) is typing.Annotated:
        annotation = typing.get_args(annotation)[0]
    if isinstance(annotation, typing.ForwardRef):
        return _special_form(annotation.__forward_arg__, module)
    if annotation is ClassVar or typing.get_origin(annotation) is ClassVar:
        return ClassVar
    if annotation is dataclasses.InitVar or isinstance(annotation, dataclasses.InitVar):
        return dataclasses.InitVar
    return dataclasses.KW_ONLY if annotation is dataclasses.KW_ONLY else None


# ---------------------------------------------------------------------------------------------------------------------
# Class bodies.

# Field declarations of other libraries, by their type.
_FOREIGN: Mapping[tuple[str, str], str] = {
    ("dataclasses", "Field"): "dataclasses, flax or equinox",
    ("attr._make", "_CountingAttr"): "attrs",
    ("pydantic.fields", "FieldInfo"): "Pydantic",
}
_DESCRIPTORS = (property, classmethod, staticmethod, functools.cached_property)


def _check_default(cls: type, name: str, value: Any) -> None:
    """Refuse class attributes that are no default values: foreign fields, descriptors and methods of the same name."""
    where, kind = f"{cls.__name__}.{name}", type(value)
    library = _FOREIGN.get((kind.__module__, kind.__name__))
    if library is not None:
        raise TypeError(
            f"{where}: expected a default or neuralqx_struct.field(...), got a field of {library}; "
            "of that, static or pytree_node=False is field(static=True) here"
        )
    if isinstance(value, types.MemberDescriptorType):
        raise TypeError(
            f"{where}: expected no __slots__ entry for a field: Struct stores its fields itself"
        )
    method = isinstance(value, types.FunctionType)
    if isinstance(value, _DESCRIPTORS) or (
        method and value.__qualname__ == f"{cls.__qualname__}.{name}"
    ):
        raise TypeError(
            f"{where}: expected a default, got a {kind.__name__} of the same name, which the body defines too; "
            "rename one of them, or leave the annotation out"
        )


def check_static_default(where: str, spec: FieldSpec) -> None:
    """Checks that a static default has a hash and holds no array."""
    if spec.kind is not FieldKind.STATIC or spec.converter is not None:
        return
    if type(spec.default) in EXACT_TYPES:
        return
    try:
        static_key(spec.default)
    except TypeError as error:
        expected = "expected a static default that has a hash and holds no array"
        raise TypeError(
            f"{where}: {expected}, got {error}; make it a node, or use tuples"
        ) from None


def _is_mutable(value: Any) -> bool:
    # JAX arrays have no hash but cannot change; asking for their type's marks needs no import of JAX.
    return type(value).__hash__ is None and not hasattr(type(value), "addressable_shards")


def _default_in_body(cls: type, name: str) -> Any:
    """The class attribute of a field; for stdlib dataclasses, their field declaration as one of ours."""
    declared = cls.__dict__.get("__dataclass_fields__", {}).get(name)
    if declared is None:
        return cls.__dict__.get(name, MISSING)
    absent = dataclasses.MISSING
    make: Hook = field  # the overloads are for what users write
    return make(
        default=MISSING if declared.default is absent else declared.default,
        default_factory=MISSING if declared.default_factory is absent else declared.default_factory,
        init=declared.init,
        repr=declared.repr,
        compare=declared.compare,
        kw_only=declared.kw_only is True,
        metadata=declared.metadata,
    )


class InitVarSpec(FieldSpec):
    """The declaration of an argument of the constructor that only ``__post_init__`` gets."""

    __slots__ = ()


def own_fields(cls: type, *, kw_only: bool = False) -> dict[str, FieldSpec]:
    """Read the fields that the body of ``cls`` itself declares, and its InitVars, by name and in order.

    Args:
        cls: The class, already created; its annotations are read unevaluated.
        kw_only: Whether the fields are keyword-only by default.

    Raises:
        TypeError: A mutable default, or a ``field()`` without annotation; names class and field.
    """
    specs: dict[str, FieldSpec] = {}
    annotations = annotations_in(cls)
    for name, annotation in annotations.items():
        form = _special_form(annotation, cls.__module__)
        if form is ClassVar:
            continue
        if form is dataclasses.KW_ONLY:
            kw_only = True
            continue
        value = _default_in_body(cls, name)
        _check_default(cls, name, value)
        spec = value if isinstance(value, FieldSpec) else FieldSpec(default=value)
        where = f"{cls.__name__}.{name}"
        _check_hooks(where, spec)
        if spec.default is not MISSING and _is_mutable(spec.default):
            kind = type(spec.default).__name__
            raise TypeError(
                f"{where}: expected an immutable default, got a {kind}, which all instances would share; "
                f"use field(default_factory={kind})"
            )
        if form is dataclasses.InitVar and spec.default_factory is not MISSING:
            raise TypeError(f"{where}: expected a default for an InitVar, got a default_factory")
        completed = {"name": name, "type": annotation, "kw_only": spec.kw_only or kw_only}
        make = InitVarSpec if form is dataclasses.InitVar else FieldSpec
        specs[name] = make(**spec.arguments() | completed)
    for name, value in cls.__dict__.items():
        if isinstance(value, FieldSpec) and name not in annotations:
            raise TypeError(
                f"{cls.__name__}.{name}: expected an annotation beside field(); write `{name}: object = ...`"
            )
    return specs
