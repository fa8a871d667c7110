"""Hooks: how many arguments the functions that users hand in can be called with.

Owns the rule of arity, which is applied once per class, and the check of declarations against it. When hooks run is
``lifecycle.py``.

Example:
    >>> value_hook(int)(None, "3"), value_hook(lambda self, value: value)(None, "3")
    (3, '3')
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["check_hooks", "derive_hook", "required_positional", "value_hook"]

_BUILTIN_CALLABLES = (
    type,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.MethodWrapperType,
)


def required_positional(function: Callable[..., Any]) -> int:
    """How many arguments ``function`` cannot do without; builtins and classes count as one.

    The arity of hooks is decided by this number alone, once per class: two or more means that the hook wants the
    instance before the value.

    Example:
        >>> required_positional(int), required_positional(lambda self, value: value)
        (1, 2)
    """
    if isinstance(function, _BUILTIN_CALLABLES):
        return 1
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # compiled callables without a readable signature
        return 1
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in positional and p.default is inspect.Parameter.empty for p in parameters)


def _takes(function: Callable[..., Any], count: int) -> bool:
    """Whether a hook can be called with so many arguments; True where nobody can say."""
    if isinstance(function, _BUILTIN_CALLABLES):
        return True
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(*[None] * count)
    except TypeError:
        return False
    return True


def value_hook(function: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    """The hook as ``hook(instance, value)``, its arity decided once."""
    if required_positional(function) >= 2:
        return function
    return lambda _instance, value: function(value)


def derive_hook(function: Callable[..., Any]) -> Callable[[Any], Any]:
    """The derived function as ``derive(instance)``."""
    return function if required_positional(function) >= 1 else lambda _instance: function()


def check_hooks(
    where: str,
    converter: Callable[..., Any] | None,
    validators: Sequence[Callable[..., Any]],
    derived: Callable[..., Any] | None,
    default_factory: Any,
) -> None:
    """See that the hooks of a field can be called as they will be.

    Raises:
        TypeError: One of them takes other arguments; the message names ``where`` and says which would do.
    """
    values = [("converter", converter), *(("validator", each) for each in validators)]
    hooks = [(role, hook, "value", 1) for role, hook in values] + [("derived", derived, "", 0)]
    for role, hook, value, least in hooks:
        if hook is not None and not _takes(hook, least + (required_positional(hook) > least)):
            both = f"{role}({value}) or {role}({', '.join(filter(None, ('self', value)))})"
            raise TypeError(
                f"{where}: expected {both}, got {inspect.signature(hook)}; give the other arguments defaults"
            )
    if callable(default_factory) and not _takes(default_factory, 0):
        raise TypeError(
            f"{where}: expected a default_factory without arguments, got {inspect.signature(default_factory)}; what "
            "depends on other fields is set in __post_init__, or derived"
        )
