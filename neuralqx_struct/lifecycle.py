"""The life of an instance: convert, derive, ``__post_init__``, derive, validate, freeze.

Owns what runs between the arguments of a constructor and a frozen instance, and what is made later, when a field is
first read. Works on any class that ``definition.py`` has completed; how the result is stored is ``pytree.py``.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
from jax._src import core as jax_core
from jax.core import Tracer

from neuralqx_struct.errors import Diagnostic, FrozenStructError, StructError, ValidationError
from neuralqx_struct.fieldspec import MISSING, FieldKind
from neuralqx_struct.identity import EXACT_TYPES, static_key
from neuralqx_struct.printing import brief
from neuralqx_struct.pytree import is_frozen, load_pair, store_pair

__all__ = [
    "INIT_VARS",
    "IN_INIT",
    "assign",
    "build",
    "convert",
    "derive_all",
    "drop_traced",
    "evaluation",
    "fill",
    "finish",
    "holds_tracer",
    "is_false",
    "note_converter",
    "read_missing",
    "refuse_frozen",
    "settle",
    "untraced",
]

Hook = Callable[[Any, Any], Any]

#: Where the InitVars that ``super().__init__`` got wait in ``__dict__`` for ``__post_init__``.
INIT_VARS = "_nqx_init_vars"
#: In ``__dict__`` while an ``__init__`` that somebody wrote runs: those that it calls are not the outermost one.
IN_INIT = "_nqx_in_init"

# Which derived fields this thread is computing: other threads may read the same ones.
_DERIVING = threading.local()

CONCRETIZATION_ERRORS = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.NonConcreteBooleanIndexError,
)


# Whether JAX traces nothing here, which it has no public question for. Not to know costs time, and nothing else.
untraced: Callable[[], bool] = getattr(jax_core, "trace_state_clean", lambda: False)

_AS_IT_IS = nullcontext()


class NeedsValuesError(StructError, jax.errors.ConcretizationTypeError):
    """A derived field that needs concrete values was read while JAX traces."""

    default_code = "NQX416"

    def __init__(self, path: str) -> None:
        self.diagnostics = (
            Diagnostic(
                self.default_code,
                "error",
                "expected concrete values to derive the field from, got tracers: JAX is tracing",
                path=path,
                hint="use jax.numpy in place of float, int and numpy in the derived function, or read the field outside of "
                "jit, grad and vmap",
            ),
        )
        # Not JAX's own, which would ask for a tracer.
        TypeError.__init__(self, path)


class UnsetError(AttributeError):
    """A field was read before it has a value, while its instance is still being made."""


def refuse_frozen(self: Any) -> None:
    """A constructor makes an instance once; called again, it would change what is frozen."""
    # A new instance refers to nothing but its class: cheaper to see than that an attribute is missing.
    if gc.get_referents(self) != [type(self)] and is_frozen(self):
        raise FrozenStructError(
            "expected __init__ once, got a call on an instance that is frozen",
            path=type(self).__name__,
            hint="make a changed copy: obj.replace(...), or a new instance of the class",
        )


def assign(self: Any, given: Mapping[str, Any], init_vars: Mapping[str, Any]) -> bool:
    """Step 1 for the arguments of a constructor that another ``__init__`` has called; False if there is no other.

    Raises:
        FrozenStructError: The instance is there already.
    """
    refuse_frozen(self)
    if type(self).__nqx_generated_init__:
        return False
    if init_vars:
        self.__dict__[INIT_VARS] = {**self.__dict__.get(INIT_VARS, {}), **init_vars}
    converters = type(self).__nqx_converters__
    for name, value in given.items():
        if value is not MISSING:
            self.__dict__[name] = convert(self, name, converters[name], value) if name in converters else value
    return True


def build(self: Any, given: Mapping[str, Any], init_vars: Mapping[str, Any]) -> None:
    """Steps 1 to 6 of the lifecycle for arguments as the constructor got them."""
    cls = type(self)
    values = self.__dict__
    for name, converter, make_default in cls.__nqx_steps__:
        value = given.get(name, MISSING)
        if value is MISSING:
            if make_default is None:
                continue  # init=False: __post_init__ sets it, or finish complains
            value = make_default()
        values[name] = value if converter is None else convert(self, name, converter, value)
    finish(self, init_vars)


def fill(self: Any) -> None:
    """Step 1 behind an ``__init__`` that somebody wrote: converters for what it assigned, defaults for what it did not."""
    values = self.__dict__
    for name, converter, make_default in type(self).__nqx_steps__:
        if name not in values:
            if make_default is None:
                continue
            values[name] = make_default()
        if converter is not None:
            values[name] = convert(self, name, converter, values[name])


def settle(self: Any, values: Mapping[str, Any]) -> None:
    """Steps 2 to 6 for values that are converted."""
    self.__dict__.update(values)
    finish(self, {})


def convert(self: Any, name: str, hook: Hook, value: Any) -> Any:
    """Apply a converter; an error of it propagates with a note that names class and field."""
    try:
        return hook(self, value)
    except Exception as error:
        note_converter(error, self, name)
        raise


def note_converter(error: Exception, self: Any, name: str) -> None:
    """Tell whose converter has failed."""
    _note(error, f"while converting {type(self).__name__}.{name}", "a converter that keeps arrays, such as jnp.asarray")


def _note(error: Exception, what: str, remedy: str) -> None:
    """Tell where a hook failed, and what to do if it failed because JAX traces and there are no values to look at."""
    error.add_note(what)
    if isinstance(error, CONCRETIZATION_ERRORS):
        error.add_note(
            f"it needs concrete values, and JAX is tracing; use {remedy}, or call it outside of jit, grad and vmap"
        )


def finish(self: Any, init_vars: Mapping[str, Any], *, loading: bool = False) -> None:
    """Steps 2 to 6: derive, ``__post_init__``, derive, validate, freeze."""
    cls = type(self)
    values = self.__dict__
    post_init = None if loading else getattr(cls, "__post_init__", None)
    # Twice, also without __post_init__: so the lifecycle is documented. Of expressions nobody can tell.
    if cls.__nqx_derive__ and not loading and not (cls.__nqx_pure__ and post_init is None):
        with evaluation(self):
            derive_all(self, tolerant=True)
    if post_init is not None:
        arguments = _bound(cls, init_vars) if init_vars or cls.__nqx_init_vars__ else ()
        try:
            self.__post_init__(*arguments)
        except CONCRETIZATION_ERRORS as error:
            _note(
                error, f"while running {cls.__name__}.__post_init__", "jax.numpy in place of if, float, int and numpy"
            )
            raise
    with evaluation(self):
        if cls.__nqx_derive__:
            derive_all(self, tolerant=False)
        if not cls.__nqx_stored__ <= values.keys():
            require_all(self)
        pair = cls.__nqx_layout__.pair(values, cls.__name__)
        if cls.__nqx_derive__:
            _check_derived(self)
        if cls.__nqx_validators__ or cls.__nqx_check__:
            _validate(self)
    store_pair(self, pair)
    if cls.__nqx_derive__:
        drop_traced(self)


def _bound(cls: Any, given: Mapping[str, Any]) -> list[Any]:
    """The arguments of ``__post_init__``, in the order in which they are declared."""
    bound = {name: spec.default for name, spec in cls.__nqx_init_vars__.items()} | dict(given)
    missing = [name for name, value in bound.items() if value is MISSING]
    if missing:
        raise TypeError(
            f"{cls.__name__}: expected values for the InitVar arguments {', '.join(missing)}, got none; pass them to "
            "super().__init__, or give them defaults"
        )
    return list(bound.values())


def drop_traced(self: Any) -> None:
    """Forget what was derived from tracers: it must not outlive their trace."""
    derive = type(self).__nqx_derive__
    if derive and holds_tracer(load_pair(self)[0]):
        for name in derive:
            self.__dict__.pop(name, None)


def evaluation(self: Any) -> AbstractContextManager[Any]:
    """Compute with concrete numbers where the instance holds nothing else, also while JAX traces around it.

    Otherwise a derived value would be a tracer that outlives its trace, and a validator could not be asked.
    """
    cls = type(self)
    hooks = cls.__nqx_derive__ or cls.__nqx_validators__ or cls.__nqx_check__
    if not hooks or untraced() or holds_tracer(self.__dict__):
        return _AS_IT_IS
    return jax.ensure_compile_time_eval()


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
    open_here: set[tuple[int, str]] = _DERIVING.__dict__.setdefault("names", set())
    if (id(self), name) in open_here:
        raise TypeError(
            f"{type(self).__name__}.{name}: expected derived fields without a cycle, got one through {name!r}"
        )
    open_here.add((id(self), name))
    try:
        value = type(self).__nqx_derive__[name](self)
    except Exception as error:
        _note(error, f"while deriving {type(self).__name__}.{name}", "jax.numpy in place of float, int and numpy")
        raise
    finally:
        open_here.discard((id(self), name))
    # Of threads that read a pending field at once, all get the value of the first.
    return self.__dict__.setdefault(name, value)


def require_all(self: Any) -> None:
    """Complain about every field that has no value yet."""
    cls = type(self)
    unset = [n for n, s in cls.__nqx_fields__.items() if not s.is_derived and not s.reset and n not in self.__dict__]
    if unset:
        raise TypeError(
            f"{cls.__name__}: expected a value for {', '.join(map(repr, unset))}, got none; "
            "set it in __post_init__ (or __init__), or give it a default"
        )


_PLAIN_STATICS = EXACT_TYPES | {float, complex}


def _check_derived(self: Any) -> None:
    """Static derived fields obey the rule of static fields, where they are known."""
    cls = type(self)
    for name in cls.__nqx_derive__:
        value = self.__dict__.get(name)
        if type(value) in _PLAIN_STATICS or cls.__nqx_fields__[name].kind is not FieldKind.STATIC:
            continue
        if holds_tracer([value]):
            continue
        try:
            static_key(value)
        except TypeError as error:
            raise ValidationError(
                f"expected a hashable value without arrays for the static derived field {name!r}, got {error}",
                code="NQX110",
                path=f"{cls.__name__}.{name}",
                hint="make the field opaque, pytree=False, or return a tuple or a number: float(...), int(...)",
            ) from None


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
        except Exception as error:
            error.add_note(f"while validating {cls.__name__}.{name}")
            raise
        if is_false(verdict):
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


def is_false(verdict: Any) -> bool:
    """True if this answer of a validator means that the value does not do."""
    if verdict is None or verdict is True or isinstance(verdict, Tracer):
        return False
    if verdict is False:
        return True
    return getattr(verdict, "shape", None) == () and str(getattr(verdict, "dtype", "")) == "bool" and not bool(verdict)


_SCALARS = frozenset({int, float, bool, complex, str, bytes, type(None)})


def holds_tracer(tree: Any) -> bool:
    """True if a leaf of these values is a tracer."""
    leaves = [value for value in (tree.values() if isinstance(tree, dict) else tree) if type(value) not in _SCALARS]
    if not leaves:
        return False
    try:
        found = jax.tree_util.tree_leaves(leaves)
    except ValueError:  # a dict with keys that have no order: JAX could not have traced it
        return False
    return any(isinstance(leaf, Tracer) for leaf in found)


def read_missing(self: Any, name: str) -> Any:
    """``__getattr__`` of Structs: fill the instance from its pair, or make a derived or reset field."""
    # Python comes here only for what is neither in __dict__ nor in the class: fields not filled in yet.
    cls = type(self)
    if name == "_nqx_pair":  # JAX meets an instance that is still being made
        require_all(self)
        return cls.__nqx_layout__.pair(self.__dict__, cls.__name__)
    spec = cls.__nqx_fields__.get(name)
    if spec is None:  # a property that failed comes here too: once more, so that its own error is seen
        return object.__getattribute__(self, name)
    try:
        pair = load_pair(self)
    except AttributeError:
        if spec.is_derived:
            return _derive(self, name)
        what = "is read before it has a value; while a field is converted, only those declared above it have one"
        raise UnsetError(f"{cls.__name__}.{name} {what}", name=name, obj=self) from None
    if not spec.is_derived and not spec.reset:
        cls.__nqx_layout__.reveal(self, pair)
    elif spec.reset:
        self.__dict__.setdefault(name, spec.make_default())
    elif holds_tracer(pair[0]):
        try:
            value = _derive(self, name)
        except NeedsValuesError:  # of a Struct inside
            raise
        except CONCRETIZATION_ERRORS as error:
            raise NeedsValuesError(f"{cls.__name__}.{name}") from error
        self.__dict__.pop(name, None)  # another thread may have read it too
        return value
    else:
        with jax.ensure_compile_time_eval():
            return _derive(self, name)
    return object.__getattribute__(self, name)
