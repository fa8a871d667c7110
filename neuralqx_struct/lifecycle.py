"""The life of an instance: convert, derive, ``__post_init__``, derive, validate, freeze.

Owns what runs between the arguments of a constructor and a frozen instance, and what is made later, when a field is
first read. Works on any class that ``definition.py`` has completed; how the result is stored is ``pytree.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax

from neuralqx_struct.errors import Diagnostic, ValidationError
from neuralqx_struct.fieldspec import MISSING
from neuralqx_struct.printing import brief
from neuralqx_struct.pytree import load_pair, store_pair

__all__ = ["build", "convert", "derive_all", "finish", "holds_tracer", "read_missing"]

Hook = Callable[[Any, Any], Any]

CONCRETIZATION_ERRORS = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
)


class UnsetError(AttributeError):
    """A field was read before it has a value, while its instance is still being made."""


def build(self: Any, given: Mapping[str, Any], init_vars: Mapping[str, Any]) -> None:
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
        values[name] = convert(self, name, converters[name], value) if name in converters else value
    finish(self, init_vars)


def convert(self: Any, name: str, hook: Hook, value: Any) -> Any:
    """Apply a converter; an error of it propagates with a note that names class and field."""
    try:
        return hook(self, value)
    except Exception as error:
        error.add_note(f"while converting {type(self).__name__}.{name}")
        raise


def finish(self: Any, init_vars: Mapping[str, Any], *, loading: bool = False) -> None:
    """Steps 2 to 6: derive, ``__post_init__``, derive, validate, freeze."""
    cls = type(self)
    values = self.__dict__
    post_init = None if loading else getattr(self, "__post_init__", None)
    for name, spec in cls.__nqx_fields__.items() if not cls.__nqx_generated_init__ and not loading else ():
        if name not in values and spec.has_default:
            values[name] = spec.make_default()
    if post_init is not None:
        derive_all(self, tolerant=True)
        post_init(*init_vars.values())
    derive_all(self, tolerant=False)
    require_all(self)
    pair = cls.__nqx_layout__.pair(values, cls.__name__)
    _validate(self)
    store_pair(self, pair)
    if cls.__nqx_derive__ and holds_tracer(pair[0]):
        for name in cls.__nqx_derive__:
            values.pop(name, None)


def derive_all(self: Any, *, tolerant: bool) -> None:
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
            except UnsetError:
                if not tolerant:
                    raise
            except CONCRETIZATION_ERRORS:
                if not holds_tracer(values):
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


def require_all(self: Any) -> None:
    """Complain about every field that has no value yet."""
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
        except CONCRETIZATION_ERRORS:
            if not holds_tracer(self.__dict__):
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


def holds_tracer(tree: Any) -> bool:
    """True if a leaf of these values is a tracer."""
    leaves = tree.values() if isinstance(tree, dict) else tree
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree_util.tree_leaves(list(leaves)))


def read_missing(self: Any, name: str) -> Any:
    """``__getattr__`` of Structs: fill the instance from its pair, or make a derived or reset field."""
    # Python comes here only for what is neither in __dict__ nor in the class: fields not filled in yet.
    cls = type(self)
    if name == "_nqx_pair":  # JAX meets an instance that is still being made
        require_all(self)
        return cls.__nqx_layout__.pair(self.__dict__, cls.__name__)
    spec = cls.__nqx_fields__.get(name)
    if spec is None:
        raise AttributeError(f"{cls.__name__!r} object has no attribute {name!r}", name=name, obj=self)
    values = self.__dict__
    try:
        pair = load_pair(self)
    except AttributeError:
        if spec.is_derived:
            return _derive(self, name)
        raise UnsetError(f"{cls.__name__}.{name} is read before it has a value", name=name, obj=self) from None
    if not spec.is_derived and not spec.reset:
        cls.__nqx_layout__.fill(values, pair)
    elif spec.reset:
        values.setdefault(name, spec.make_default())
    elif holds_tracer(pair[0]):
        value = _derive(self, name)
        del values[name]
        return value
    else:
        with jax.ensure_compile_time_eval():
            return _derive(self, name)
    return values[name]
