"""Derived fields: when they are computed, and which values outlive a trace of JAX.

Owns the evaluation of derived functions at construction and on the first read after an unflatten. A pending field is
cached only when no leaf is a tracer. The order of construction is ``lifecycle.py``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
from jax.core import Tracer

from neuralqx_struct.errors import Diagnostic, StructError, ValidationError
from neuralqx_struct.fieldspec import FieldKind
from neuralqx_struct.struct.equality import EXACT_TYPES, static_key
from neuralqx_struct.struct.pytree import load_pair

try:  # JAX has no public function that returns whether it is tracing
    from jax._src.core import trace_state_clean
except ImportError:

    def trace_state_clean() -> bool:
        """False costs time and nothing else."""
        return False


#: True if JAX is known not to trace.
untraced: Callable[[], bool] = trace_state_clean


# The derived fields that this thread is computing: other threads may read the same ones.
_DERIVING = threading.local()

CONCRETIZATION_ERRORS = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.NonConcreteBooleanIndexError,
)

_AS_IT_IS = nullcontext()
_SCALARS = frozenset({int, float, bool, complex, str, bytes, type(None)})
_PLAIN_STATICS = EXACT_TYPES | {float, complex}


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
        TypeError.__init__(self, path)  # JAX's own constructor takes a tracer


class UnsetError(AttributeError):
    """A field was read before it has a value, while its instance is still being made."""


def note_hook(error: Exception, during: str, alternative: str) -> None:
    """Add the place where a hook failed, and an alternative if it needs values that tracers do not have."""
    error.add_note(f"while {during}")
    if isinstance(error, CONCRETIZATION_ERRORS):
        error.add_note(
            f"it needs concrete values, and JAX is tracing; use {alternative}, or call it outside of jit, grad and vmap"
        )


def holds_tracer(tree: Any) -> bool:
    """True if a leaf of these values is a tracer."""
    values = tree.values() if isinstance(tree, dict) else tree
    leaves = [value for value in values if type(value) not in _SCALARS]
    if not leaves:
        return False
    try:
        found = jax.tree_util.tree_leaves(leaves)
    except ValueError:  # a dict with keys that have no order: JAX could not have traced it
        return False
    return any(isinstance(leaf, Tracer) for leaf in found)


def evaluation(self: Any) -> AbstractContextManager[Any]:
    """A context that computes with concrete numbers if the instance holds nothing else, also inside a trace.

    Otherwise a derived value would be a tracer that outlives its trace, and a validator would get tracers.
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
        if name in values:
            continue
        try:
            derive_field(self, name)
        except UnsetError:
            if not tolerant:
                raise
        except CONCRETIZATION_ERRORS:
            if not holds_tracer(values):
                raise


def derive_field(self: Any, name: str) -> Any:
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
        note_hook(error, f"deriving {where}", "jax.numpy in place of float, int and numpy")
        raise
    finally:
        deriving.discard((id(self), name))
    # Threads that read a pending field at once all get the value of the first.
    return self.__dict__.setdefault(name, value)


def derive_pending(self: Any, name: str, leaves: Any) -> Any:
    """A derived field of a frozen instance; stores it unless a leaf is a tracer."""
    if not holds_tracer(leaves):
        with jax.ensure_compile_time_eval():
            return derive_field(self, name)
    try:
        value = derive_field(self, name)
    except NeedsValuesError:  # of a Struct inside
        raise
    except CONCRETIZATION_ERRORS as error:
        raise NeedsValuesError(f"{type(self).__name__}.{name}") from error
    self.__dict__.pop(name, None)  # another thread may have read it too
    return value


def drop_traced(self: Any) -> None:
    """Remove values that were derived from tracers: they must not outlive their trace."""
    derive = type(self).__nqx_derive__
    if derive and holds_tracer(load_pair(self)[0]):
        for name in derive:
            self.__dict__.pop(name, None)


def check_derived(self: Any) -> None:
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
