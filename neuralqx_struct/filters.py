"""Filters: which leaves of a tree are meant, as literals, as records that combine with ``& | ~``, and as text.

A predicate is any ``(path, value) -> bool``; a filter is a predicate or one of the literals that
:func:`to_predicate` turns into one. The literals and classes of Flax NNX keep their meaning; :class:`PathGlob`,
:class:`Kind`, :class:`DType`, :class:`TypeName`, tags of fields, operators and text are added. Values are only asked
for attributes (``tag``, ``tags``, ``type``, ``dtype``), so that a stub of an array is filtered like the array. Does
not walk or group: ``leaves.py`` does. The syntax of the text form stands in ``filter_text.py``; the words are here.

The records stay in one file although it is long: operators make records of literals, literals make records, and so all of
them refer to each other.

Example:
    >>> trained = parse("tag:trainable & !path:**/bias")
    >>> trained
    All(WithTag('trainable'), Not(PathGlob('**/bias')))
    >>> trained == WithTag("trainable") & ~PathGlob("**/bias")
    True
    >>> str(trained)
    'tag:trainable & !path:**/bias'
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
import reprlib
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import lru_cache
from types import EllipsisType
from typing import ClassVar, Final, TypeAlias

from neuralqx_struct.errors import StructError, did_you_mean
from neuralqx_struct.fieldspec import FieldKind
from neuralqx_struct.filter_text import Language, quoted, read
from neuralqx_struct.paths import FieldName, Path, match_glob

__all__ = [
    "All",
    "Any",
    "DType",
    "Everything",
    "Filter",
    "FilterError",
    "Kind",
    "Matcher",
    "Not",
    "Nothing",
    "OfType",
    "PathContains",
    "PathGlob",
    "PathIn",
    "Predicate",
    "TypeName",
    "WithTag",
    "axes",
    "filters_to_predicates",
    "parse",
    "to_predicate",
]

if typing.TYPE_CHECKING:
    from neuralqx_struct.trees import axes

Predicate: TypeAlias = Callable[[Path, object], bool]
Filter: TypeAlias = "type | str | Predicate | EllipsisType | bool | tuple[Filter, ...] | list[Filter] | None"


class FilterError(StructError, ValueError):
    """A filter that cannot be read, or filters that do not fit together or do not fit the tree."""

    default_code = "NQX010"


def _type_error(where: str, expected: str, got: object, hint: str = "") -> TypeError:
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


class _Term(Matcher):
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


def _declared_types(path: Path, value: object) -> list[type]:
    """The types that a leaf counts as, besides its own: that of its attribute ``type``, and of what only holds it."""
    found = [getattr(value, "type", None), *(key.holder for key in path if isinstance(key, FieldName))]
    return [declared for declared in found if isinstance(declared, type)]


@dataclass(frozen=True, slots=True, repr=False)
class OfType(Matcher):
    """Leaves that are instances of ``type``, or whose attribute ``type`` is it or a subclass; the literal is the class.

    The value of a Param, or of a Variable of Flax, counts as what holds it.

    Raises:
        TypeError: ``type`` is not a class, or one that ``isinstance`` refuses.
    """

    type: type

    def __post_init__(self) -> None:
        expected = "a class that isinstance() accepts"
        if not isinstance(self.type, type):
            raise _type_error("OfType", expected, self.type)
        try:
            isinstance(None, self.type)
        except TypeError as error:
            raise _type_error("OfType", expected, self.type, str(error)) from None

    def _matches(self, path: Path, value: object, /) -> bool:
        if isinstance(value, self.type):
            return True
        try:
            return any(issubclass(declared, self.type) for declared in _declared_types(path, value))
        except TypeError:  # a protocol with attributes knows instances, but no subclasses
            return False


@dataclass(frozen=True, slots=True, repr=False)
class TypeName(_Term):
    """Like :class:`OfType`, for text: a class by its name, ``Param`` or ``flax.nnx.Param`` as its module says.

    Nothing is imported: the names of the value's classes are compared, bases included.
    """

    word: ClassVar = "type"
    name: str

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise _type_error("TypeName", "the name of a class", self.name, "for the class itself use OfType")

    def _matches(self, path: Path, value: object, /) -> bool:
        classes = (base for cls in (type(value), *_declared_types(path, value)) for base in cls.__mro__)
        return any(self.name in (cls.__name__, f"{cls.__module__}.{cls.__qualname__}") for cls in classes)


@dataclass(frozen=True, slots=True, repr=False)
class WithTag(_Term):
    """Leaves with a tag: of the value (``tag``, or one of ``tags``) or of any field on the way to it; the literal is str.

    Example:
        >>> from neuralqx_struct.fieldspec import field
        >>> weights = FieldName("weights", field(metadata={"tags": ["trainable"]}))
        >>> WithTag("trainable")((weights, 0), 1.0)
        True
    """

    word: ClassVar = "tag"
    tag: str

    def __post_init__(self) -> None:
        if not isinstance(self.tag, str):
            raise _type_error("WithTag", "a tag (str)", self.tag, "for one of several tags use a tuple of them")

    def _matches(self, path: Path, value: object, /) -> bool:
        tag = getattr(value, "tag", None)
        if isinstance(tag, str) and tag == self.tag:
            return True
        tags = getattr(value, "tags", None)
        if isinstance(tags, str):
            tags = (tags,)
        if isinstance(tags, (AbstractSet, Sequence)) and self.tag in tags:
            return True
        return any(isinstance(key, FieldName) and key.spec is not None and self.tag in key.spec.tags for key in path)


@dataclass(frozen=True, slots=True, repr=False)
class PathContains(Matcher):
    """Leaves with ``key`` in their path; with ``exact=False``, with ``str(key)`` inside the text of one part."""

    key: Hashable
    exact: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.key, Hashable):
            raise _type_error("PathContains", "one path key (hashable)", self.key)

    def _matches(self, path: Path, _value: object, /) -> bool:
        return self.key in path if self.exact else any(str(self.key) in str(part) for part in path)

    def __repr__(self) -> str:
        return f"PathContains({self.key!r}, exact={self.exact})"


@dataclass(frozen=True, slots=True, repr=False, init=False)
class PathIn(Matcher):
    """Leaves at exactly these paths: ``PathIn(("params", "w"), ("step",))``.

    Raises:
        TypeError: A path is not a tuple of hashable keys.
    """

    paths: frozenset[Path]

    def __init__(self, *paths: Path) -> None:
        for path in paths:
            if not isinstance(path, tuple):
                raise _type_error("PathIn", "paths as tuples of keys", path, "as in PathIn(('params', 'w'))")
            for key in path:
                if not isinstance(key, Hashable):
                    raise _type_error("PathIn", "hashable keys in a path", key)
        object.__setattr__(self, "paths", frozenset(paths))

    def _matches(self, path: Path, _value: object, /) -> bool:
        return path in self.paths

    def __repr__(self) -> str:
        return f"PathIn({', '.join(sorted(map(repr, self.paths)))})"


@dataclass(frozen=True, slots=True, repr=False)
class PathGlob(_Term):
    """Leaves whose path matches a glob of :func:`~neuralqx_struct.paths.match_glob`, such as ``params/**/bias``."""

    word: ClassVar = "path"
    glob: str

    def __post_init__(self) -> None:
        if not isinstance(self.glob, str):
            raise _type_error("PathGlob", "a glob (str)", self.glob, "for whole paths use PathIn")

    def _matches(self, path: Path, _value: object, /) -> bool:
        return match_glob(self.glob, path)


@dataclass(frozen=True, slots=True, repr=False)
class Kind(_Term):
    """Leaves whose innermost field is a node, static or opaque; leaves below no declared field are of no kind.

    Raises:
        FilterError: ``kind`` is a word that is no kind; it is a ValueError.
        TypeError: ``kind`` is not a str.
    """

    word: ClassVar = "kind"
    kind: FieldKind

    def __post_init__(self) -> None:
        if not isinstance(self.kind, str):
            raise _type_error("Kind", "node, static or opaque", self.kind)
        if self.kind not in FieldKind.__members__.values():
            raise FilterError(
                f"expected node, static or opaque, got {self.kind!r}",
                path="Kind",
                hint=did_you_mean(self.kind, map(str, FieldKind)),
            )
        object.__setattr__(self, "kind", FieldKind(self.kind))

    def _matches(self, path: Path, _value: object, /) -> bool:
        innermost = next((key for key in reversed(path) if isinstance(key, FieldName)), None)
        return innermost is not None and innermost.spec is not None and innermost.spec.kind == self.kind

    def __repr__(self) -> str:
        return f"Kind({self.kind.value!r})"


# Families by the names of their members, so that no array library is needed, and ml_dtypes' members are in.
_FAMILIES: Final = {
    "bool": re.compile("bool"),
    "complexfloating": re.compile(r"b?complex\d+"),
    "floating": re.compile(r"b?float[1-9]\w*"),
    "integer": re.compile(r"u?int\d+"),
}
_OTHER_DTYPES: Final = re.compile(r"key<\w+>|object|(?:void|str|bytes)\d*|(?:datetime64|timedelta64)(?:\[\w+\])?")
_DTYPE_WORDS: Final = {"float": "floating", "int": "integer", "uint": "integer", "complex": "complexfloating"}


@dataclass(frozen=True, slots=True, repr=False)
class DType(_Term):
    """Arrays by dtype: a name such as ``bfloat16``, or ``floating``, ``integer``, ``complexfloating``, ``bool``.

    Example:
        >>> import types
        >>> DType("floating")((), types.SimpleNamespace(dtype="float8_e4m3fn"))
        True

    Raises:
        FilterError: No dtype can have that name; it is a ValueError.
        TypeError: ``name`` is not a str.
    """

    word: ClassVar = "dtype"
    name: str

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise _type_error("DType", "the name of a dtype or family", self.name, "as in DType('float32')")
        patterns = (*_FAMILIES.values(), _OTHER_DTYPES)
        if self.name not in _FAMILIES and not any(pattern.fullmatch(self.name) for pattern in patterns):
            meant = _DTYPE_WORDS.get(self.name)
            known = (*_FAMILIES, "float32", "float64", "bfloat16", "int32", "int64", "complex64", "complex128")
            raise FilterError(
                f"expected a dtype name such as float32, or one of {', '.join(_FAMILIES)}, got {self.name!r}",
                path="DType",
                hint=f"did you mean {meant!r}?" if meant else did_you_mean(self.name, known),
            )

    def _matches(self, _path: Path, value: object, /) -> bool:
        dtype = getattr(value, "dtype", None)
        if dtype is None or not isinstance(dtype, Hashable):
            return False
        return _is_dtype(dtype, self.name)


@lru_cache(maxsize=1024)  # numpy works a dtype's name out anew each time it is asked
def _is_dtype(dtype: object, wanted: str) -> bool:
    name = dtype if isinstance(dtype, str) else getattr(dtype, "name", getattr(dtype, "__name__", None))
    if not isinstance(name, str):
        return False
    family = _FAMILIES.get(wanted)
    return name == wanted if family is None else family.fullmatch(name) is not None


@dataclass(frozen=True, slots=True, repr=False, init=False)
class _Joined(Matcher):
    predicates: tuple[Predicate, ...]

    def __init__(self, *filters: Filter) -> None:
        predicates = (_to_predicate(f, f"{type(self).__name__}[{i}]") for i, f in enumerate(filters))
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
        object.__setattr__(self, "predicate", _to_predicate(filter, "Not"))

    def _matches(self, path: Path, value: object, /) -> bool:
        return not self.predicate(path, value)

    def _text(self) -> str | None:
        inner = _wrapped(self.predicate, Any, All)
        return None if inner is None else f"!{inner}"


def to_predicate(filter: Filter) -> Predicate:  # noqa: A002
    """The predicate that a filter stands for.

    Args:
        filter: A predicate ``(path, value) -> bool``; ``...`` or True (all); None or False (none); a class
            (:class:`OfType`); a str (:class:`WithTag`; text such as ``tag:a & tag:b`` is read by :func:`parse`); a
            tuple or list of filters (:class:`Any`).

    Raises:
        TypeError: ``filter`` is none of these, or a callable that does not take a path and a value.

    Example:
        >>> to_predicate((int, "dropout"))
        Any(OfType(<class 'int'>), WithTag('dropout'))
    """
    return _to_predicate(filter, "filter")


def filters_to_predicates(filters: Sequence[Filter]) -> tuple[Predicate, ...]:
    """The predicates of several filters, of which the first match wins.

    Args:
        filters: Filters as :func:`to_predicate` takes them; ``...`` and True only at the end.

    Raises:
        FilterError: A filter stands behind ``...`` or True, where nothing is left for it; it is a ValueError.
        TypeError: One of them is not a filter; the message says which.
    """
    if isinstance(filters, str) or not isinstance(filters, Sequence):
        raise _type_error("filters", "a sequence of filters", filters, "for one filter use to_predicate")
    predicates = tuple(_to_predicate(f, f"filters[{i}]") for i, f in enumerate(filters))
    rest = [f is ... or f is True for f in filters]
    if True in rest and not all(rest[rest.index(True) :]):
        first = rest.index(True)
        raise FilterError(
            f"expected {filters[first]!r} only as the last filter, got {len(filters) - first - 1} behind it",
            path=f"filters[{first}]",
            hint="the first match wins: move the filter for the rest to the end",
        )
    return predicates


def _to_predicate(filter: Filter, where: str) -> Predicate:  # noqa: A002
    if isinstance(filter, str):
        if filter.startswith(("tag:", "path:", "kind:", "dtype:", "type:")):
            hint = f"a str is one tag: write filters.parse({filter!r})"
            raise _type_error(where, "a tag", filter, f"{hint}, or WithTag({filter!r}) if the tag is called that")
        return WithTag(filter)
    if isinstance(filter, type) and typing.get_origin(filter) is None:
        return OfType(filter)
    if filter is ... or filter is True:
        return Everything()
    if filter is None or filter is False:
        return Nothing()
    if isinstance(filter, Matcher):
        return filter
    if typing.get_origin(filter) is not None:
        raise _type_error(
            where, "a plain class", filter, "values do not know their parameters; for a union use a tuple"
        )
    if callable(filter):
        return _checked(filter, where)
    if isinstance(filter, (tuple, list)):
        return Any(*filter)
    raise _type_error(where, "a class, tag, predicate, tuple or list of these, bool, ... or None", filter)


def _checked(predicate: Predicate, where: str) -> Predicate:
    try:
        signature = inspect.signature(predicate)
    except (TypeError, ValueError):  # compiled callables without a readable signature
        return predicate
    try:
        signature.bind((), None)
    except TypeError as error:
        raise _type_error(
            where, "a predicate that is called as predicate(path, value)", predicate, str(error)
        ) from None
    return predicate


def _wrapped(predicate: Predicate, *wrapped: type[Matcher]) -> str | None:
    text = predicate.text if isinstance(predicate, Matcher) else None
    return f"({text})" if text is not None and isinstance(predicate, wrapped) else text


_TERMS: Final = typing.cast(
    "dict[str, Callable[[str], Matcher]]", {term.word: term for term in (DType, Kind, PathGlob, WithTag, TypeName)}
)
_LANGUAGE: Final = Language(
    terms=_TERMS,
    constants={"all": Everything, "none": Nothing},
    negation=Not,
    conjunction=All,
    disjunction=Any,
    error=FilterError,
)


def parse(text: str) -> Matcher:
    """Read the text form of a filter; the inverse of ``str`` for filters that have one.

    Args:
        text: Such as ``tag:trainable & !path:*/bias``; :mod:`~neuralqx_struct.filter_text` says more.

    Raises:
        FilterError: ``text`` is not a filter; all unknown names, and the first place where the grammar breaks.
            It is a ValueError.
        TypeError: ``text`` is not a str.

    Example:
        >>> parse("dtype:floating | kind:static")
        Any(DType('floating'), Kind('static'))
    """
    if not isinstance(text, str):
        raise _type_error("parse", "the text of a filter (str)", text)
    return read(text, _LANGUAGE)


def __getattr__(name: str) -> object:
    if name == "axes":  # a function on whole objects: it lives where JAX is known, and is found here by its users
        return importlib.import_module("neuralqx_struct.trees").axes
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
