"""The lifecycle of an instance: convert, derive, ``__post_init__``, derive, validate, freeze.

Owns the steps between the arguments of a constructor and a frozen instance, the first read of a field after an unflatten,
and derived fields: a pending one is cached only when no leaf is a tracer. Works on any class that ``meta.py`` has
completed; the stored pair is ``pytree.py``.
"""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
from jax.core import Tracer

from neuralqx_struct.documents.instances import MARK, Pair
from neuralqx_struct.errors import Diagnostic, StructError, ValidationError
from neuralqx_struct.fieldspec import MISSING, FieldKind, Values
from neuralqx_struct.printing import brief
from neuralqx_struct.struct.equality import EXACT_TYPES, static_key
from neuralqx_struct.struct.pytree import load_pair, store_pair

try:  # JAX has no public function that returns whether it is tracing
    from jax._src.core import trace_state_clean
except ImportError:

    def trace_state_clean() -> bool:
        """False costs time and nothing else."""
        return False


#: True if JAX is known not to trace.
untraced = trace_state_clean

CONCRETIZATION_ERRORS = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.NonConcreteBooleanIndexError,
)

# The derived fields that this thread is computing: other threads may read the same ones.
_DERIVING = threading.local()
_AS_IT_IS = nullcontext()
_SCALARS = frozenset({int, float, bool, complex, str, bytes, type(None)})
_PLAIN_STATICS = EXACT_TYPES | {float, complex}


class NeedsValuesError(StructError, jax.errors.ConcretizationTypeError):
    """A derived field that needs concrete values was read while JAX traces."""

    default_code = "NQX416"

    def __init__(self, path: str) -> None:
        hint = (
            "use jax.numpy in place of float, int and numpy in the derived function, "
            "or read the field outside of jit, grad and vmap"
        )
        message = "expected concrete values to derive the field from, got tracers: JAX is tracing"
        self.diagnostics = (Diagnostic(self.default_code, "error", message, path, hint=hint),)
        TypeError.__init__(self, path)  # JAX's own constructor takes a tracer


class UnsetError(AttributeError):
    """A field was read before it has a value, while its instance is still being made."""


def _note_hook(error: Exception, during: str, alternative: str) -> None:
    """Add the place where a hook failed, and an alternative if it needs values that tracers do not have."""
    error.add_note(f"while {during}")
    if isinstance(error, CONCRETIZATION_ERRORS):
        error.add_note(
            f"it needs concrete values, and JAX is tracing; use {alternative}, or call it outside of jit, grad and vmap"
        )


# ---------------------------------------------------------------------------------------------------------------------
# Construction.


def build(self: Any, given: Values, init_vars: Values) -> None:
    """Steps 1 to 6 for the arguments of the constructor, or for the fields that a user's ``__init__`` has assigned."""
    values = self.__dict__
    for name, make_default in type(self).__nqx_steps__:
        value = given.get(name, MISSING)
        if value is MISSING:
            if make_default is None:
                continue  # init=False: __post_init__ sets it, or finish complains
            value = make_default()
        values[name] = convert(self, name, value)
    finish(self, init_vars)


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
    _note_hook(error, where, "a converter that keeps arrays, such as jnp.asarray")


def finish(self: Any, init_vars: Values, *, loading: bool = False) -> None:
    """Steps 2 to 6: derive, ``__post_init__``, derive, validate, freeze."""
    cls = type(self)
    if cls.__nqx_sized__ is not None:
        cls.__nqx_sized__(self.__dict__)
    post_init = None if loading else getattr(cls, "__post_init__", None)
    # Twice, also without __post_init__, as documented; only expressions can be computed once without a difference.
    if cls.__nqx_derive__ and not loading and not (cls.__nqx_pure__ and post_init is None):
        with _evaluation(self):
            _derive_all(self, tolerant=True)
    if post_init is not None:
        arguments = _bound(cls, init_vars) if init_vars or cls.__nqx_init_vars__ else ()
        try:
            self.__post_init__(*arguments)
        except CONCRETIZATION_ERRORS as error:
            where = f"running {cls.__name__}.__post_init__"
            _note_hook(error, where, "jax.numpy in place of if, float, int and numpy")
            raise
    store_pair(self, checked(self))
    _drop_traced(self)


def checked(self: Any) -> Pair:
    """Derive all fields and run the checks of construction; returns the pair of the instance.

    Raises:
        ValidationError: A static value has no hash or holds an array, a validator fails, or the class's check does.
    """
    cls = type(self)
    values = self.__dict__
    with _evaluation(self):
        if cls.__nqx_derive__:
            _derive_all(self, tolerant=False)
        require_all(self)
        pair: Pair = cls.__nqx_layout__.pair(values, cls.__name__)
        _check_values(self)
    return pair


def verify(self: Any) -> None:
    """Run the checks that a load of the instance would run; it stays as it is.

    Raises:
        ValidationError: A load would refuse the values, also after the converters.
    """
    cls = type(self)
    load_pair(self)  # an instance that is still being made has none
    values = self._nqx_values()  # also those that object.__setattr__ changed
    known_pair = cls.__nqx_known_pair__
    if cls.__nqx_plain__ or known_pair is not None:
        pair = cls.__nqx_layout__.pair(values, cls.__name__)
        if known_pair is None or known_pair(cls, pair) is not None:
            return
    sample = object.__new__(cls)
    sample.__dict__.update(values)
    try:
        finish(sample, {}, loading=True)
    except ValidationError:
        if not cls.__nqx_converters__:
            raise
        cls.__nqx_restore__(values)


def rederive(self: Any) -> None:
    """Compute the derived fields anew, and run the checks of construction; the instance is changed only if they pass.

    Values that ``object.__setattr__`` planted are checked, and then held, like those of the constructor.
    """
    cls = type(self)
    values = self.__dict__
    load_pair(self)  # an instance that is still being made has none
    values.update(self._nqx_values() | values)
    anew = (*cls.__nqx_derive__, MARK)  # a mark is of the values before
    before = {name: values.pop(name) for name in anew if name in values}
    try:
        pair = checked(self)
    except BaseException:
        for name in anew:
            values.pop(name, None)
        values.update(before)
        raise
    store_pair(self, pair)
    _drop_traced(self)


def _bound(cls: Any, given: Values) -> list[Any]:
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
    places = cls.__nqx_layout__.places
    if not places.keys() <= self.__dict__.keys():
        unset = [repr(name) for name in places if name not in self.__dict__]
        raise TypeError(
            f"{cls.__name__}: expected a value for {', '.join(unset)}, got none; "
            "set it in __post_init__ (or __init__), or give it a default"
        )


def _check_values(self: Any) -> None:
    """Run the validators and the class's check, and report all failures; a field stops at its first one.

    Raises:
        ValidationError: A value is invalid.
    """
    cls = type(self)
    _check_derived(self)
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
            return _derive_field(self, name)
        reason = "is read before it has a value; while a field is converted, only those declared above it have one"
        raise UnsetError(f"{cls.__name__}.{name} {reason}", name=name, obj=self) from None
    if spec.is_derived:
        return _derive_pending(self, name, pair[0])
    if spec.reset:
        self.__dict__.setdefault(name, spec.make_default())
    else:
        cls.__nqx_layout__.reveal(self, pair)
    return object.__getattribute__(self, name)


# ---------------------------------------------------------------------------------------------------------------------
# Derived fields.


def holds_tracer(tree: Any) -> bool:
    """True if a leaf of these values is a tracer."""
    values = tree.values() if isinstance(tree, dict) else tree
    # JAX warns of iterators, such as the loader in an opaque field, and means to refuse them.
    leaves = [
        value
        for value in values
        if type(value) not in _SCALARS and not hasattr(type(value), "__next__")
    ]
    if not leaves:
        return False
    try:
        found = jax.tree_util.tree_leaves(leaves)
    except ValueError:  # a dict with keys that have no order: JAX could not have traced it
        return False
    return any(isinstance(leaf, Tracer) for leaf in found)


def _evaluation(self: Any) -> AbstractContextManager[Any]:
    """A context that computes with concrete numbers if the instance holds nothing else, also inside a trace.

    Otherwise a derived value would be a tracer that outlives its trace, and a validator would get tracers.
    """
    cls = type(self)
    hooks = cls.__nqx_derive__ or cls.__nqx_validators__ or cls.__nqx_check__
    if not hooks or untraced() or holds_tracer(self.__dict__):
        return _AS_IT_IS
    return jax.ensure_compile_time_eval()


def _derive_all(self: Any, *, tolerant: bool) -> None:
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
        if name in values:
            continue
        try:
            _derive_field(self, name)
        except UnsetError:
            if not tolerant:
                raise
        except CONCRETIZATION_ERRORS:
            if not holds_tracer(values):
                raise


def _derive_field(self: Any, name: str) -> Any:
    """Compute a derived field and store it as an attribute."""
    where = f"{type(self).__name__}.{name}"
    deriving: set[tuple[int, str]] = _DERIVING.__dict__.setdefault("names", set())
    if (id(self), name) in deriving:
        raise TypeError(
            f"{where}: expected derived fields without a cycle, got one through {name!r}"
        )
    deriving.add((id(self), name))
    try:
        value = type(self).__nqx_derive__[name](self)
    except Exception as error:
        _note_hook(error, f"deriving {where}", "jax.numpy in place of float, int and numpy")
        raise
    finally:
        deriving.discard((id(self), name))
    # Threads that read a pending field at once all get the value of the first.
    return self.__dict__.setdefault(name, value)


def _derive_pending(self: Any, name: str, leaves: Any) -> Any:
    """A derived field of a frozen instance; stores it unless a leaf is a tracer."""
    if not holds_tracer(leaves):
        with jax.ensure_compile_time_eval():
            return _derive_field(self, name)
    try:
        value = _derive_field(self, name)
    except NeedsValuesError:  # of a Struct inside
        raise
    except CONCRETIZATION_ERRORS as error:
        raise NeedsValuesError(f"{type(self).__name__}.{name}") from error
    self.__dict__.pop(name, None)  # another thread may have read it too
    return value


def _drop_traced(self: Any) -> None:
    """Remove values that were derived from tracers: they must not outlive their trace."""
    derive = type(self).__nqx_derive__
    if derive and holds_tracer(load_pair(self)[0]):
        for name in derive:
            self.__dict__.pop(name, None)


def _check_derived(self: Any) -> None:
    """Check that known derived static fields are hashable and hold no array.

    Raises:
        ValidationError: One is not.
    """
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
