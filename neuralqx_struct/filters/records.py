"""Filter records: the base class with its operators, the joins, and conversion of filter literals.

:data:`FILTERS` holds one :class:`FilterKind` for each filter class; ``table.py`` fills it. Everything else about filters
(conversion of literals, text, reports about unmatched parts) is read from there.

Example:
    >>> to_predicate((..., None))
    Any(Everything(), Nothing())
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import Any as AnyValue
from typing import Final, TypeAlias

from neuralqx_struct.errors import StructError
from neuralqx_struct.paths import Path
from neuralqx_struct.printing import brief

Predicate: TypeAlias = Callable[[Path, object], bool]
Filter: TypeAlias = (
    "type | str | Predicate | EllipsisType | bool | tuple[Filter, ...] | list[Filter] | None"
)
Leaves: TypeAlias = Sequence[tuple[Path, object]]

#: Text that needs no quotes behind a colon.
BARE: Final = r"""[^\s&|()'"\\]+"""


class FilterError(StructError, ValueError):
    """A filter that cannot be read, or filters that do not fit together or do not fit the tree."""

    default_code = "NQX010"


# --- the table ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TextForm:
    """The text form of a class of filters.

    Attributes:
        shape: ``constant`` for a word, ``term`` for ``word:value``, ``unary`` for an operator before a filter, ``binary``
            for one between filters.
        symbol: The word or the operator.
        binds: The precedence of an operator; a higher number binds more tightly.
        english: The word that users write by mistake for an operator.
    """

    shape: typing.Literal["constant", "term", "unary", "binary"]
    symbol: str
    binds: int = 0
    english: str = ""

    def write(self, filter: Matcher) -> str | None:  # noqa: A002
        """The text of a filter, or None if one of its parts has none."""
        parts = FILTERS[type(filter)].parts(filter)
        texts = [self._part(part) for part in parts]
        joined = f" {self.symbol} ".join(map(str, texts))
        match self.shape:
            case "constant":
                return self.symbol
            case "term":
                (value,) = filter.arguments_of(filter)
                return f"{self.symbol}:{quoted(str(value))}"
            case "unary" if None not in texts:
                return f"{self.symbol}{joined}"
            case "binary" if (
                None not in texts and len(parts) > 1
            ):  # text has no join of one or none
                return joined
        return None

    def _part(self, part: Predicate) -> str | None:
        if not isinstance(part, Matcher):
            return None
        text, form = part.text, FILTERS[type(part)].text
        if form is not None and form.shape == "binary" and form.binds <= self.binds:
            return f"({text})"
        return text


@dataclass(frozen=True, slots=True)
class Literal:
    """Python values that are short for a filter.

    Attributes:
        accepts: True for a value that is such a literal.
        convert: Called with the literal and its place in messages; returns the predicate.
    """

    accepts: Callable[[AnyValue], bool]
    convert: Callable[[AnyValue, str], Predicate]


def _no_parts(_filter: AnyValue) -> tuple[Predicate, ...]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterKind:
    """All facts about one class of filters.

    Attributes:
        cls: The class; calling an instance with a path and a value tests a leaf.
        text: The text form, or None.
        literal: The literals that are short for it, or None.
        flax: True if Flax NNX has a filter of the same name and attributes.
        unmatched: For a filter that matches none of some leaves: the expected leaf in words, and a hint. None if it is
            never reported itself.
        parts: Returns the filters that a filter is made of.
        negates: True if leaves match where the parts do not.
    """

    cls: AnyValue
    text: TextForm | None
    literal: Literal | None
    flax: bool
    unmatched: Callable[[AnyValue, Leaves], tuple[str, str]] | None
    parts: Callable[[AnyValue], Sequence[Predicate]] = _no_parts
    negates: bool = False


#: One record for each class of filters; for functions, the class is ``Callable``.
FILTERS: Final[dict[type, FilterKind]] = {}


def kind_of(predicate: Predicate) -> FilterKind:
    """The record of a predicate."""
    return FILTERS.get(type(predicate)) or FILTERS[typing.cast("type", Callable)]


def is_constant(predicate: Predicate) -> bool:
    """True for filters that match every leaf or none by intention, so that matching none is no mistake."""
    kind = kind_of(predicate)
    return kind.unmatched is None and kind.parts is _no_parts


# --- filters ------------------------------------------------------------------------------------------------------


def quoted(name: str) -> str:
    """A name as written behind a colon, in quotes where needed."""
    if re.fullmatch(BARE, name):
        return name
    return "'" + re.sub(r"(['\\])", r"\\\1", name) + "'"


def shown(predicate: Predicate) -> str:
    """A predicate for a message: filters as text where they have one, functions by name."""
    if isinstance(predicate, Matcher):
        return str(predicate)
    return getattr(predicate, "__qualname__", repr(predicate))


def type_error(where: str, expected: str, got: object, hint: str = "") -> TypeError:
    """The error for an argument of the wrong type."""
    message = f"{where}: expected {expected}, got {type(got).__name__} {brief(got)}"
    return TypeError(f"{message}\n  {hint}" if hint else message)


class Matcher(ABC):
    """Base class of filters: frozen, compared by value, combined with ``&``, ``|`` and ``~``.

    The operators take every filter literal on their other side: ``WithTag("a") | None``.
    """

    __slots__ = ()

    @abstractmethod
    def __call__(self, path: Path, value: object, /) -> bool:
        """True if the leaf ``value`` at ``path`` matches."""

    @property
    def text(self) -> str | None:
        """The text form, which :func:`parse` reads as an equal filter; None for filters without one."""
        form = kind_of(self).text
        return None if form is None else form.write(self)

    def __str__(self) -> str:
        text = self.text
        return repr(self) if text is None else text

    @classmethod
    def arguments_of(cls, filter: AnyValue) -> Sequence[AnyValue]:  # noqa: A002
        """The arguments that make an equal filter of this class, from a filter of Flax too."""
        return [getattr(filter, field.name) for field in dataclasses.fields(cls)]  # type: ignore[arg-type]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.arguments_of(self)))})"

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
    """The operands of a join, so that ``a & b & c`` is one filter of three."""
    return filter.predicates if isinstance(filter, joined) else (filter,)


@dataclass(frozen=True, slots=True, repr=False, init=False)
class _Joined(Matcher):
    predicates: tuple[Predicate, ...]

    def __init__(self, *filters: Filter) -> None:
        name = type(self).__name__
        predicates = [predicate_of(f, f"{name}[{i}]") for i, f in enumerate(filters)]
        object.__setattr__(self, "predicates", tuple(predicates))

    @classmethod
    def arguments_of(cls, filter: AnyValue) -> Sequence[Predicate]:  # noqa: A002
        """The joined filters."""
        predicates: tuple[Predicate, ...] = filter.predicates
        return predicates


class Any(_Joined):
    """Matches leaves that match at least one of ``filters``; the literals are tuple and list."""

    __slots__ = ()

    def __call__(self, path: Path, value: object, /) -> bool:
        """True if the leaf ``value`` at ``path`` matches."""
        return any(predicate(path, value) for predicate in self.predicates)


class All(_Joined):
    """Matches leaves that match every one of ``filters``."""

    __slots__ = ()

    def __call__(self, path: Path, value: object, /) -> bool:
        """True if the leaf ``value`` at ``path`` matches."""
        return all(predicate(path, value) for predicate in self.predicates)


@dataclass(frozen=True, slots=True, repr=False)
class Not(Matcher):
    """Matches leaves that do not match ``predicate``, which may be given as any filter."""

    predicate: Predicate

    def __init__(self, filter: Filter, /) -> None:  # noqa: A002
        object.__setattr__(self, "predicate", predicate_of(filter, "Not"))

    def __call__(self, path: Path, value: object, /) -> bool:
        """True if the leaf ``value`` at ``path`` matches."""
        return not self.predicate(path, value)


# --- literals -----------------------------------------------------------------------------------------------------


def to_predicate(filter: Filter) -> Predicate:  # noqa: A002
    """Converts a filter or a filter literal to a predicate.

    Args:
        filter: A predicate ``(path, value) -> bool``, also a filter of Flax NNX; ``...`` or True (all); None or False
            (none); a class (:class:`OfType`); a str (:class:`WithTag`; :func:`parse` reads text such as
            ``tag:a & tag:b``); a tuple or list of filters (:class:`Any`).

    Returns:
        The predicate.

    Raises:
        TypeError: ``filter`` is none of these, or a callable that does not take a path and a value.

    Example:
        >>> to_predicate((int, "dropout"))
        Any(OfType(<class 'int'>), WithTag('dropout'))
    """
    return predicate_of(filter, "filter")


def is_rest(filter: object) -> bool:  # noqa: A002
    """True for the literals that match every leaf: ``...`` and True."""
    return filter is ... or filter is True


def filters_to_predicates(filters: Sequence[Filter]) -> tuple[Predicate, ...]:
    """Converts several filters to predicates, of which the first match wins.

    Args:
        filters: Filters as in :func:`to_predicate`; ``...`` and True only at the end.

    Returns:
        One predicate for each filter.

    Raises:
        FilterError: A filter follows ``...`` or True, which leave no leaf for it; it is a ValueError.
        TypeError: One of them is not a filter; the message has its position.
    """
    if isinstance(filters, str) or not isinstance(filters, Sequence):
        hint = "for one filter use to_predicate"
        raise type_error("filters", "a sequence of filters", filters, hint)
    predicates = tuple(predicate_of(f, f"filters[{i}]") for i, f in enumerate(filters))
    first = next((i for i, f in enumerate(filters) if is_rest(f)), len(filters))
    if not all(map(is_rest, filters[first:])):
        behind = len(filters) - first - 1
        raise FilterError(
            f"expected {filters[first]!r} only as the last filter, got {behind} behind it",
            path=f"filters[{first}]",
            hint="the first match wins: move the filter for the rest to the end",
        )
    return predicates


def predicate_of(filter: AnyValue, where: str) -> Predicate:  # noqa: A002
    """Converts a filter or literal to a predicate; ``where`` is its place in messages.

    Raises:
        TypeError: ``filter`` is neither.
    """
    if isinstance(filter, Matcher):
        return filter
    if typing.get_origin(filter) is not None:
        hint = "values do not know their parameters; for a union use a tuple"
        raise type_error(where, "a plain class", filter, hint)
    kinds = FILTERS.values()
    cls = type(filter)
    if cls.__module__ == "flax.nnx.filterlib":  # known by name: Flax is not imported
        for kind in kinds:
            if kind.flax and kind.cls.__name__ == cls.__name__:
                ours: Predicate = kind.cls(*kind.cls.arguments_of(filter))
                return ours
    for kind in kinds:
        if kind.literal is not None and kind.literal.accepts(filter):
            return kind.literal.convert(filter, where)
    expected = "a class, tag, predicate, tuple or list of these, bool, ... or None"
    raise type_error(where, expected, filter)


def checked_function(predicate: Predicate, where: str) -> Predicate:
    """A function that can be called with a path and a value.

    Raises:
        TypeError: It takes other arguments.
    """
    try:
        signature = inspect.signature(predicate)
    except (TypeError, ValueError):  # compiled callables without a readable signature
        return predicate
    if _takes(signature, 2):
        return predicate
    name = getattr(predicate, "__name__", "predicate")
    hint = f"it takes {signature}"
    if _takes(signature, 1):
        called = "f" if name == "<lambda>" else name
        hint = f"for a function of the value alone write lambda path, value: {called}(value)"
    expected = "a predicate that is called as predicate(path, value)"
    raise type_error(where, expected, predicate, hint)


def _takes(signature: inspect.Signature, arguments: int) -> bool:
    try:
        signature.bind(*[None] * arguments)
    except TypeError:
        return False
    return True
