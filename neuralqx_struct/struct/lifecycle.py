"""The lifecycle of an instance: convert, derive, ``__post_init__``, derive, validate, freeze.

Owns the steps between the arguments of a constructor and a frozen instance, and the first read of a field after an
unflatten. Works on any class that ``meta.py`` has completed; the stored pair is ``pytree.py``.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from typing import Any

from jax.core import Tracer

from neuralqx_struct.errors import Diagnostic, FrozenStructError, ValidationError
from neuralqx_struct.fieldspec import MISSING
from neuralqx_struct.printing import brief
from neuralqx_struct.struct.derivation import (
    CONCRETIZATION_ERRORS,
    UnsetError,
    check_derived,
    derive_all,
    derive_field,
    derive_pending,
    drop_traced,
    evaluation,
    holds_tracer,
    note_hook,
)
from neuralqx_struct.struct.pytree import is_frozen, load_pair, store_pair

Hook = Callable[[Any, Any], Any]

#: The key in ``__dict__`` of the InitVars that ``super().__init__`` got, until ``__post_init__`` takes them.
INIT_VARS = "_nqx_init_vars"
#: In ``__dict__`` while a user's ``__init__`` runs: constructors that it calls are not the outermost one.
IN_INIT = "_nqx_in_init"


def refuse_frozen(self: Any) -> None:
    """Refuse a second call of a constructor, which would change a frozen instance."""
    # A new instance refers to nothing but its class; this is faster than to look for an absent attribute.
    if gc.get_referents(self) != [type(self)] and is_frozen(self):
        raise FrozenStructError(
            "expected __init__ once, got a call on an instance that is frozen",
            path=type(self).__name__,
            hint="make a changed copy: obj.replace(...), or a new instance of the class",
        )


def assign(self: Any, given: Mapping[str, Any], init_vars: Mapping[str, Any]) -> bool:
    """Step 1 for the arguments of a constructor that another ``__init__`` has called; False if there is no other.

    Raises:
        FrozenStructError: The instance is complete already.
    """
    refuse_frozen(self)
    if type(self).__nqx_generated_init__:
        return False
    if init_vars:
        self.__dict__[INIT_VARS] = {**self.__dict__.get(INIT_VARS, {}), **init_vars}
    for name, value in given.items():
        if value is not MISSING:
            self.__dict__[name] = convert(self, name, value)
    return True


def build(self: Any, given: Mapping[str, Any], init_vars: Mapping[str, Any]) -> None:
    """Steps 1 to 6 for the arguments of the constructor."""
    values = self.__dict__
    for name, make_default in type(self).__nqx_steps__:
        value = given.get(name, MISSING)
        if value is MISSING:
            if make_default is None:
                continue  # init=False: __post_init__ sets it, or finish complains
            value = make_default()
        values[name] = convert(self, name, value)
    finish(self, init_vars)


def fill(self: Any) -> None:
    """Step 1 behind a user's ``__init__``: converters for the assigned fields, defaults for the others."""
    values = self.__dict__
    for name, make_default in type(self).__nqx_steps__:
        if name not in values:
            if make_default is None:
                continue
            values[name] = make_default()
        values[name] = convert(self, name, values[name])


def settle(self: Any, values: Mapping[str, Any]) -> None:
    """Steps 2 to 6 for values that are converted."""
    self.__dict__.update(values)
    finish(self, {})


def convert(self: Any, name: str, value: Any) -> Any:
    """A value as the converter of its field makes it; an error gets a note that names class and field."""
    hook = type(self).__nqx_converters__.get(name)
    if hook is None:
        return value
    try:
        return hook(self, value)
    except Exception as error:
        note_converter(error, self, name)
        raise


def note_converter(error: Exception, self: Any, name: str) -> None:
    """Add the field whose converter failed."""
    where = f"converting {type(self).__name__}.{name}"
    note_hook(error, where, "a converter that keeps arrays, such as jnp.asarray")


def finish(self: Any, init_vars: Mapping[str, Any], *, loading: bool = False) -> None:
    """Steps 2 to 6: derive, ``__post_init__``, derive, validate, freeze."""
    cls = type(self)
    values = self.__dict__
    post_init = None if loading else getattr(cls, "__post_init__", None)
    # Twice, also without __post_init__, as documented; only expressions can be computed once without a difference.
    if cls.__nqx_derive__ and not loading and not (cls.__nqx_pure__ and post_init is None):
        with evaluation(self):
            derive_all(self, tolerant=True)
    if post_init is not None:
        arguments = _bound(cls, init_vars) if init_vars or cls.__nqx_init_vars__ else ()
        try:
            self.__post_init__(*arguments)
        except CONCRETIZATION_ERRORS as error:
            where = f"running {cls.__name__}.__post_init__"
            note_hook(error, where, "jax.numpy in place of if, float, int and numpy")
            raise
    with evaluation(self):
        if cls.__nqx_derive__:
            derive_all(self, tolerant=False)
        if not cls.__nqx_stored__ <= values.keys():
            require_all(self)
        pair = cls.__nqx_layout__.pair(values, cls.__name__)
        check_values(self)
    store_pair(self, pair)
    if cls.__nqx_derive__:
        drop_traced(self)


def _bound(cls: Any, given: Mapping[str, Any]) -> list[Any]:
    """The arguments of ``__post_init__``, in the order of declaration."""
    bound = {name: spec.default for name, spec in cls.__nqx_init_vars__.items()} | dict(given)
    missing = [name for name, value in bound.items() if value is MISSING]
    if missing:
        raise TypeError(
            f"{cls.__name__}: expected values for the InitVar arguments {', '.join(missing)}, got none; pass them to "
            "super().__init__, or give them defaults"
        )
    return list(bound.values())


def require_all(self: Any) -> None:
    """Refuse an instance with fields that have no value yet."""
    cls = type(self)
    unset = [
        name
        for name, spec in cls.__nqx_fields__.items()
        if not spec.is_derived and not spec.reset and name not in self.__dict__
    ]
    if unset:
        raise TypeError(
            f"{cls.__name__}: expected a value for {', '.join(map(repr, unset))}, got none; "
            "set it in __post_init__ (or __init__), or give it a default"
        )


def check_values(self: Any) -> None:
    """Run the validators and the class's check, and report all failures; a field stops at its first one.

    Raises:
        ValidationError: A value is invalid.
    """
    cls = type(self)
    if cls.__nqx_derive__:
        check_derived(self)
    problems: list[Diagnostic] = []
    failed: set[str] = set()
    for name, hook, validator in cls.__nqx_validators__:
        if name not in self.__dict__ or name in failed:
            continue  # a derived field that waits for concrete values
        value = self.__dict__[name]
        try:
            verdict = hook(self, value)
        except CONCRETIZATION_ERRORS:
            if not holds_tracer(self.__dict__):
                raise
            continue
        except Exception as error:
            error.add_note(f"while validating {cls.__name__}.{name}")
            raise
        if is_false(verdict):
            failed.add(name)
            title = getattr(validator, "__name__", repr(validator))
            message = f"expected a value that satisfies {title}, got {brief(value)}"
            problems.append(Diagnostic("NQX416", "error", message, path=f"{cls.__name__}.{name}"))
    if cls.__nqx_check__ is not None:
        problems += cls.__nqx_check__(self)
    if any(problem.severity == "error" for problem in problems):
        raise ValidationError(problems)


def is_false(verdict: Any) -> bool:
    """True if a validator has returned False, also as a boolean of numpy or a concrete array."""
    if verdict is None or verdict is True or isinstance(verdict, Tracer):
        return False
    if verdict is False:
        return True
    is_bool = str(getattr(verdict, "dtype", "")) == "bool"
    return is_bool and getattr(verdict, "shape", None) == () and not bool(verdict)


def read_missing(self: Any, name: str) -> Any:
    """``__getattr__`` of Structs: fill the instance from its pair, or make a derived or reset field."""
    # Python calls this only for names that are neither in __dict__ nor in the class: fields not filled in yet.
    cls = type(self)
    if name == "_nqx_pair":  # JAX meets an instance that is still being made
        require_all(self)
        return cls.__nqx_layout__.pair(self.__dict__, cls.__name__)
    spec = cls.__nqx_fields__.get(name)
    if spec is None:  # also a property that failed: read it again, so that its own error is raised
        return object.__getattribute__(self, name)
    try:
        pair = load_pair(self)
    except AttributeError:
        if spec.is_derived:
            return derive_field(self, name)
        reason = "is read before it has a value; while a field is converted, only those declared above it have one"
        raise UnsetError(f"{cls.__name__}.{name} {reason}", name=name, obj=self) from None
    if spec.is_derived:
        return derive_pending(self, name, pair[0])
    if spec.reset:
        self.__dict__.setdefault(name, spec.make_default())
    else:
        cls.__nqx_layout__.reveal(self, pair)
    return object.__getattribute__(self, name)
