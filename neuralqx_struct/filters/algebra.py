"""The algebra of filters: what a record is, how records combine, and which record a literal stands for.

Owns the base of all records with its operators, the constants, the joins, and :func:`predicate_of`, the table of literals
by their type. What is asked of one leaf stands in ``values.py`` and ``places.py``; they also register the
literals that stand for their records, as operators make records of literals and so know of all of them.

Example:
    >>> to_predicate((..., None))
    Any(Everything(), Nothing())
"""

from __future__ import annotations

import dataclasses
import inspect
import reprlib
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import singledispatch
from types import EllipsisType
from typing import ClassVar, Final, TypeAlias

from neuralqx_struct.errors import StructError
from neuralqx_struct.filters.syntax import quoted
from neuralqx_struct.paths import Path

__all__ = [
    "FOREIGN",
    "All",
    "Any",
    "Everything",
    "Filter",
    "FilterError",
    "Matcher",
    "Not",
    "Nothing",
    "Predicate",
    "Term",
    "filters_to_predicates",
    "predicate_of",
    "shown",
    "to_predicate",
    "type_error",
]

Predicate: TypeAlias = Callable[[Path, object], bool]
Filter: TypeAlias = "type | str | Predicate | EllipsisType | bool | tuple[Filter, ...] | list[Filter] | None"


class FilterError(StructError, ValueError):
    """A filter that cannot be read, or filters that do not fit together or do not fit the tree."""

    default_code = "NQX010"


def shown(predicate: Predicate) -> str:
    """A predicate in a message: records as text where they have one, functions by name."""
    return str(predicate) if isinstance(predicate, Matcher) else getattr(predicate, "__qualname__", repr(predicate))


def type_error(where: str, expected: str, got: object, hint: str = "") -> TypeError:
    """The error for an argument of the wrong type."""
    shown = f"{type(got).__name__} {reprlib.repr(got)}"
    return TypeError(f"{where}: expected {expected}, got {shown}" + (f"\n  {hint}" if hint else ""))


class Matcher(ABC):
    """What all filter records share: frozen, compared by value, combined with ``&``, ``|`` and ``~``.

    The operators take every filter literal on their other side: ``WithTag("a") | None``.
    """

    __slots__ = ()

    @abstractmethod
    def _matches(self, path: Path, value: object, /) -> bool: ...

    def _text(self) -> str | None:
        return None

    def __call__(self, path: Path, value: object) -> bool:
        """True if the leaf ``value`` at ``path`` is meant."""
        return self._matches(path, value)

    @property
    def text(self) -> str | None:
        """The text form, from which :func:`parse` makes an equal filter; None where text cannot say it."""
        return self._text()

    def __str__(self) -> str:
        text = self.text
        return repr(self) if text is None else text

    def __repr__(self) -> str:
        arguments = (repr(getattr(self, field.name)) for field in dataclasses.fields(self))  # type: ignore[arg-type]
        return f"{type(self).__name__}({', '.join(arguments)})"

    def __and__(self, other: Filter) -> All:
        return All(*_operands(All, self), *_operands(All, other))

    def __rand__(self, other: Filter) -> All:
        return All(*_operands(All, other), *_operands(All, self))

    def __or__(self, other: Filter) -> Any:
        return Any(*_operands(Any, self), *_operands(Any, other))

    def __ror__(self, other: Filter) -> Any:
        return Any(*_operands(Any, other), *_operands(Any, self))

    def __invert__(self) -> Not:
        return Not(self)


def _operands(joined: type[All | Any], filter: Filter) -> Sequence[Filter]:  # noqa: A002
    """What ``filter`` contributes to a join, so that ``a & b & c`` is one record of three."""
    return filter.predicates if isinstance(filter, joined) else (filter,)


class Term(Matcher):
    """A filter that text says as ``word:value``, where the value is its only field."""

    __slots__ = ()
    word: ClassVar[str]

    def _text(self) -> str:
        (only,) = dataclasses.fields(self)  # type: ignore[arg-type]
        return f"{self.word}:{quoted(str(getattr(self, only.name)))}"


@dataclass(frozen=True, slots=True, repr=False)
class Everything(Matcher):
    """All leaves; the literals ``...`` and ``True``."""

    def _matches(self, _path: Path, _value: object, /) -> bool:
        return True

    def _text(self) -> str:
        return "all"


@dataclass(frozen=True, slots=True, repr=False)
class Nothing(Matcher):
    """No leaf; the literals ``None`` and ``False``."""

    def _matches(self, _path: Path, _value: object, /) -> bool:
        return False

    def _text(self) -> str:
        return "none"


@dataclass(frozen=True, slots=True, repr=False, init=False)
class _Joined(Matcher):
    predicates: tuple[Predicate, ...]

    def __init__(self, *filters: Filter) -> None:
        predicates = (predicate_of(f, f"{type(self).__name__}[{i}]") for i, f in enumerate(filters))
        object.__setattr__(self, "predicates", tuple(predicates))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.predicates))})"

    def _joined_text(self, symbol: str, *wrapped: type[Matcher]) -> str | None:
        if len(self.predicates) < 2:  # text has no join of one or none
            return None
        parts = [_wrapped(predicate, *wrapped) for predicate in self.predicates]
        return None if None in parts else f" {symbol} ".join(filter(None, parts))


class Any(_Joined):
    """Leaves that match at least one of ``filters``; the literals are tuple and list."""

    __slots__ = ()

    def _matches(self, path: Path, value: object, /) -> bool:
        return any(predicate(path, value) for predicate in self.predicates)

    def _text(self) -> str | None:
        return self._joined_text("|", Any)


class All(_Joined):
    """Leaves that match every one of ``filters``."""

    __slots__ = ()

    def _matches(self, path: Path, value: object, /) -> bool:
        return all(predicate(path, value) for predicate in self.predicates)

    def _text(self) -> str | None:
        return self._joined_text("&", Any, All)


@dataclass(frozen=True, slots=True, repr=False)
class Not(Matcher):
    """Leaves that do not match ``predicate``, which may be given as any filter."""

    predicate: Predicate

    def __init__(self, filter: Filter, /) -> None:  # noqa: A002
        object.__setattr__(self, "predicate", predicate_of(filter, "Not"))

    def _matches(self, path: Path, value: object, /) -> bool:
        return not self.predicate(path, value)

    def _text(self) -> str | None:
        inner = _wrapped(self.predicate, Any, All)
        return None if inner is None else f"!{inner}"


def to_predicate(filter: Filter) -> Predicate:  # noqa: A002
    """The predicate that a filter stands for.

    Args:
        filter: A predicate ``(path, value) -> bool``, also a filter of Flax NNX; ``...`` or True (all); None or False (none); a class
            (:class:`OfType`); a str (:class:`WithTag`; text such as ``tag:a & tag:b`` is read by :func:`parse`); a
            tuple or list of filters (:class:`Any`).

    Raises:
        TypeError: ``filter`` is none of these, or a callable that does not take a path and a value.

    Example:
        >>> to_predicate((int, "dropout"))
        Any(OfType(<class 'int'>), WithTag('dropout'))
    """
    return predicate_of(filter, "filter")


def filters_to_predicates(filters: Sequence[Filter]) -> tuple[Predicate, ...]:
    """The predicates of several filters, of which the first match wins.

    Args:
        filters: Filters as :func:`to_predicate` takes them; ``...`` and True only at the end.

    Raises:
        FilterError: A filter stands behind ``...`` or True, where nothing is left for it; it is a ValueError.
        TypeError: One of them is not a filter; the message says which.
    """
    if isinstance(filters, str) or not isinstance(filters, Sequence):
        raise type_error("filters", "a sequence of filters", filters, "for one filter use to_predicate")
    predicates = tuple(predicate_of(f, f"filters[{i}]") for i, f in enumerate(filters))
    rest = [f is ... or f is True for f in filters]
    if True in rest and not all(rest[rest.index(True) :]):
        first = rest.index(True)
        raise FilterError(
            f"expected {filters[first]!r} only as the last filter, got {len(filters) - first - 1} behind it",
            path=f"filters[{first}]",
            hint="the first match wins: move the filter for the rest to the end",
        )
    return predicates


#: Filters of other libraries by the names of their classes, and what makes them records of ours.
FOREIGN: Final[dict[str, Callable[[typing.Any], Matcher]]] = {}


@singledispatch
def predicate_of(filter: object, where: str) -> Predicate:  # noqa: A002
    """The predicate that a filter stands for; ``where`` is its place in messages.

    A type of literals is one more function: ``@predicate_of.register``.

    Raises:
        TypeError: ``filter`` stands for none.
    """
    if typing.get_origin(filter) is not None:
        raise type_error(where, "a plain class", filter, "values do not know their parameters; for a union use a tuple")
    cls = type(filter)
    if (ours := FOREIGN.get(f"{cls.__module__}.{cls.__qualname__}")) is not None:
        return ours(filter)
    if callable(filter):
        return _checked(filter, where)
    raise type_error(where, "a class, tag, predicate, tuple or list of these, bool, ... or None", filter)


@predicate_of.register
def _(filter: Matcher, where: str) -> Predicate:  # noqa: A002, ARG001
    return filter


@predicate_of.register(bool)
@predicate_of.register(EllipsisType)
@predicate_of.register(type(None))
def _(filter: bool | EllipsisType | None, where: str) -> Predicate:  # noqa: A002, ARG001
    return Everything() if filter else Nothing()


@predicate_of.register(tuple)
@predicate_of.register(list)
def _(filter: Sequence[Filter], where: str) -> Predicate:  # noqa: A002
    return _checked(filter, where) if callable(filter) else Any(*filter)


def _checked(predicate: Predicate, where: str) -> Predicate:
    try:
        signature = inspect.signature(predicate)
    except (TypeError, ValueError):  # compiled callables without a readable signature
        return predicate
    if not _takes(signature, 2):
        name = getattr(predicate, "__name__", "predicate")
        alone = f"lambda path, value: {'f' if name == '<lambda>' else name}(value)"
        hint = f"for a function of the value alone write {alone}" if _takes(signature, 1) else f"it takes {signature}"
        raise type_error(where, "a predicate that is called as predicate(path, value)", predicate, hint)
    return predicate


def _takes(signature: inspect.Signature, arguments: int) -> bool:
    try:
        signature.bind(*[None] * arguments)
    except TypeError:
        return False
    return True


def _wrapped(predicate: Predicate, *wrapped: type[Matcher]) -> str | None:
    text = predicate.text if isinstance(predicate, Matcher) else None
    return f"({text})" if text is not None and isinstance(predicate, wrapped) else text
