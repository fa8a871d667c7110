"""Filters by value: what a leaf is, and what is declared of it.

Registers what the two literals stand for that are no records already: a class and a tag.

Example:
    >>> OfType(int)((), 1), DType("integer")((), 1)
    (True, False)
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Final

from neuralqx_struct.errors import did_you_mean
from neuralqx_struct.fieldspec import FieldKind
from neuralqx_struct.filters.algebra import FilterError, Matcher, Predicate, Term, predicate_of, type_error
from neuralqx_struct.paths import FieldName, Path

__all__ = [
    "DType",
    "Kind",
    "OfType",
    "TypeName",
    "WithTag",
    "dtype_name",
    "innermost_kind",
    "tags_of",
    "type_names",
]


def tags_of(path: Path, value: object) -> Iterator[str]:
    """The tags by which :class:`WithTag` finds a leaf."""
    tags = getattr(value, "tags", None)
    held = (tags,) if isinstance(tags, str) else tags if isinstance(tags, (AbstractSet, Sequence)) else ()
    yield from (tag for tag in (getattr(value, "tag", None), *held) if isinstance(tag, str))
    for key in path:
        if isinstance(key, FieldName) and key.spec is not None:
            yield from key.spec.tags


def type_names(path: Path, value: object) -> Iterator[str]:
    """The short names by which :class:`TypeName` finds a leaf, but for that which all have."""
    for cls in (type(value), *_declared_types(path, value)):
        yield from (base.__name__ for base in cls.__mro__ if base is not object)


def innermost_kind(path: Path) -> FieldKind | None:
    """The kind of the innermost field on the way to a leaf, if it is declared."""
    innermost = next((key for key in reversed(path) if isinstance(key, FieldName)), None)
    return None if innermost is None or innermost.spec is None else innermost.spec.kind


def dtype_name(value: object) -> str | None:
    """The name of a leaf's dtype, or None if it has none."""
    dtype = getattr(value, "dtype", None)
    return None if dtype is None or not isinstance(dtype, Hashable) else _name_of(dtype)


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
            raise type_error("OfType", expected, self.type)
        try:
            isinstance(None, self.type)
        except TypeError as error:
            raise type_error("OfType", expected, self.type, str(error)) from None

    def _matches(self, path: Path, value: object, /) -> bool:
        if isinstance(value, self.type):
            return True
        try:
            return any(issubclass(declared, self.type) for declared in _declared_types(path, value))
        except TypeError:  # a protocol with attributes knows instances, but no subclasses
            return False


@dataclass(frozen=True, slots=True, repr=False)
class TypeName(Term):
    """Like :class:`OfType`, for text: a class by its name, ``Param`` or ``flax.nnx.Param`` as its module says.

    Nothing is imported: the names of the value's classes are compared, bases included.
    """

    word: ClassVar = "type"
    name: str

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise type_error("TypeName", "the name of a class", self.name, "for the class itself use OfType")

    def _matches(self, path: Path, value: object, /) -> bool:
        classes = (base for cls in (type(value), *_declared_types(path, value)) for base in cls.__mro__)
        return any(self.name in (cls.__name__, f"{cls.__module__}.{cls.__qualname__}") for cls in classes)


@dataclass(frozen=True, slots=True, repr=False)
class WithTag(Term):
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
            raise type_error("WithTag", "a tag (str)", self.tag, "for one of several tags use a tuple of them")

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
class Kind(Term):
    """Leaves whose innermost field is a node, static or opaque; leaves below no declared field are of no kind.

    Raises:
        FilterError: ``kind`` is a word that is no kind; it is a ValueError.
        TypeError: ``kind`` is not a str.
    """

    word: ClassVar = "kind"
    kind: FieldKind

    def __post_init__(self) -> None:
        if not isinstance(self.kind, str):
            raise type_error("Kind", "node, static or opaque", self.kind)
        if self.kind not in FieldKind.__members__.values():
            raise FilterError(
                f"expected node, static or opaque, got {self.kind!r}",
                path="Kind",
                hint=did_you_mean(self.kind, map(str, FieldKind)),
            )
        object.__setattr__(self, "kind", FieldKind(self.kind))

    def _matches(self, path: Path, _value: object, /) -> bool:
        return innermost_kind(path) == self.kind

    def __repr__(self) -> str:
        return f"Kind({self.kind.value!r})"


# Families by the names of their members, so that no array library is needed, and ml_dtypes' members are in.
_FAMILIES: Final = {
    "bool": re.compile("bool"),
    "complexfloating": re.compile(r"b?complex\d+"),
    "floating": re.compile(r"b?float[1-9]\w*"),
    "integer": re.compile(r"u?int\d+"),
    "prng_key": re.compile(r"key<\w+>"),
}
_OTHER_DTYPES: Final = re.compile(r"object|(?:void|str|bytes)\d*|(?:datetime64|timedelta64)(?:\[\w+\])?")
_DTYPE_WORDS: Final = {
    "complex": "complexfloating",
    "float": "floating",
    "int": "integer",
    "key": "prng_key",
    "uint": "integer",
}
# What JAX prints of a key's dtype, and what bundles say: the name of its implementation.
_KEY_DTYPES: Final = {"key<threefry2x32>": "key<fry>", "key<unsafe_rbg>": "key<urbg>"}


@dataclass(frozen=True, slots=True, repr=False)
class DType(Term):
    """Arrays by dtype: a name such as ``bfloat16``, or ``floating``, ``integer``, ``complexfloating``, ``bool``, ``prng_key``.

    Python numbers have no dtype, until JAX traces them: then they are arrays.

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
            raise type_error("DType", "the name of a dtype or family", self.name, "as in DType('float32')")
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


def _name_of(dtype: object) -> str | None:
    name = dtype if isinstance(dtype, str) else getattr(dtype, "name", getattr(dtype, "__name__", None))
    return _KEY_DTYPES.get(name, name) if isinstance(name, str) else None


@lru_cache(maxsize=1024)  # numpy works a dtype's name out anew each time it is asked
def _is_dtype(dtype: object, wanted: str) -> bool:
    name = _name_of(dtype)
    if name is None:
        return False
    family = _FAMILIES.get(wanted)
    return name == _KEY_DTYPES.get(wanted, wanted) if family is None else family.fullmatch(name) is not None


@predicate_of.register(type)
def _(filter: type, where: str) -> Predicate:  # noqa: A002, ARG001
    return OfType(filter)


_TEXT: Final = re.compile(r"[!(\s]*(?:tag|path|kind|dtype|type):")


@predicate_of.register(str)
def _(filter: str, where: str) -> Predicate:  # noqa: A002
    if _TEXT.match(filter):
        hint = f"a str is one tag: write filters.parse({filter!r})"
        raise type_error(where, "a tag", filter, f"{hint}, or WithTag({filter!r}) if the tag is called that")
    return WithTag(filter)
