"""Predicates: filters for one property of a leaf, such as its tag, type, dtype, kind or path.

Values are only asked for attributes (``tag``, ``tags``, ``type``, ``dtype``): stubs of arrays are filtered like arrays.

Example:
    >>> OfType(int)((), 1), PathGlob("params/**/bias")(("params", "layers", 0, "bias"), 1.0)
    (True, True)

The tags of parameters, ``trainable`` and those in their metadata, are read from a Param and from its node in a manifest, so
a filter selects the same of both.

    >>> sorted(param_tags(trainable=True, metadata={"tag": "lora", "tags": ("adapter", "small")}))
    ['adapter', 'lora', 'small', 'trainable']
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from neuralqx_struct.errors import did_you_mean
from neuralqx_struct.fieldspec import FieldKind
from neuralqx_struct.filters.records import FilterError, Matcher, type_error
from neuralqx_struct.manifest.kinds import DICT
from neuralqx_struct.paths import FieldName, Path, match_glob

# --- properties of leaves -----------------------------------------------------------------------------------------


def tags_of(path: Path, value: object) -> Iterator[str]:
    """Yields the tags of a leaf: its own, and those of all fields on its path."""
    tag = getattr(value, "tag", None)
    if isinstance(tag, str):
        yield tag
    tags = getattr(value, "tags", None)
    if isinstance(tags, str):
        yield tags
    elif isinstance(tags, (AbstractSet, Sequence)):
        yield from (tag for tag in tags if isinstance(tag, str))
    for key in path:
        if isinstance(key, FieldName) and key.spec is not None:
            yield from key.spec.tags


def classes_of(path: Path, value: object) -> Iterator[type]:
    """Yields the classes of a leaf with their bases: its own, its attribute ``type``, and holders of the value."""
    for cls in (type(value), *_declared_types(path, value)):
        yield from cls.__mro__


def _declared_types(path: Path, value: object) -> list[type]:
    found = [getattr(value, "type", None)]
    found += [key.holder for key in path if isinstance(key, FieldName)]
    return [declared for declared in found if isinstance(declared, type)]


def innermost_kind(path: Path) -> FieldKind | None:
    """The kind of the innermost field on a path, or None if it is not declared."""
    for key in reversed(path):
        if isinstance(key, FieldName):
            return None if key.spec is None else key.spec.kind
    return None


def dtype_name(value: object) -> str | None:
    """The name of a leaf's dtype, or None if it has none."""
    dtype = getattr(value, "dtype", None)
    return _name_of(dtype) if isinstance(dtype, Hashable) else None


def _name_of(dtype: object) -> str | None:
    name = dtype
    if not isinstance(name, str):
        name = getattr(dtype, "name", getattr(dtype, "__name__", None))
    return _KEY_DTYPES.get(name, name) if isinstance(name, str) else None


# Families by the names of their members, so that no array library is needed, and ml_dtypes' members are in.
_FAMILIES: Final = {
    "bool": re.compile("bool"),
    "complexfloating": re.compile(r"b?complex\d+"),
    "floating": re.compile(r"b?float[1-9]\w*"),
    "integer": re.compile(r"u?int\d+"),
    "prng_key": re.compile(r"key<\w+>"),
}
_OTHER_DTYPES: Final = re.compile(
    r"object|(?:void|str|bytes)\d*|(?:datetime64|timedelta64)(?:\[\w+\])?"
)
_COMMON_DTYPES: Final = "float32 float64 bfloat16 int32 int64 complex64 complex128".split()  # noqa: SIM905
_DTYPE_WORDS: Final = {
    "complex": "complexfloating",
    "float": "floating",
    "int": "integer",
    "key": "prng_key",
    "uint": "integer",
}
# JAX prints the longer name of a key's dtype; bundles store the name of its implementation.
_KEY_DTYPES: Final = {"key<threefry2x32>": "key<fry>", "key<unsafe_rbg>": "key<urbg>"}


@lru_cache(maxsize=1024)  # numpy computes a dtype's name anew each time
def _is_dtype(dtype: object, wanted: str) -> bool:
    name = _name_of(dtype)
    if name is None:
        return False
    family = _FAMILIES.get(wanted)
    if family is None:
        return name == _KEY_DTYPES.get(wanted, wanted)
    return family.fullmatch(name) is not None


# --- filters ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, repr=False)
class Everything(Matcher):
    """Matches all leaves; the literals are ``...`` and ``True``."""

    def __call__(self, _path: Path, _value: object, /) -> bool:
        """True."""
        return True


@dataclass(frozen=True, slots=True, repr=False)
class Nothing(Matcher):
    """Matches no leaf; the literals are ``None`` and ``False``."""

    def __call__(self, _path: Path, _value: object, /) -> bool:
        """False."""
        return False


@dataclass(frozen=True, slots=True, repr=False)
class OfType(Matcher):
    """Matches instances of ``type``, and leaves whose attribute ``type`` is it or a subclass; the literal is the class.

    The value of a Param, or of a Variable of Flax, has the type of its holder too.

    Raises:
        TypeError: ``type`` is not a class, or ``isinstance`` refuses it.
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

    def __call__(self, path: Path, value: object, /) -> bool:
        """True if the leaf ``value`` at ``path`` matches."""
        if isinstance(value, self.type):
            return True
        try:
            return any(issubclass(declared, self.type) for declared in _declared_types(path, value))
        except TypeError:  # a protocol with attributes knows instances, but no subclasses
            return False


@dataclass(frozen=True, slots=True, repr=False)
class TypeName(Matcher):
    """Matches like :class:`OfType`, for a class given by name: ``Param`` or ``flax.nnx.Param``.

    Nothing is imported: the names of the value's classes are compared, bases included.
    """

    name: str

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise type_error(
                "TypeName", "the name of a class", self.name, "for the class itself use OfType"
            )

    def __call__(self, path: Path, value: object, /) -> bool:
        """True if the leaf ``value`` at ``path`` matches."""
        return any(
            self.name == cls.__name__
            or ("." in self.name and self.name == f"{cls.__module__}.{cls.__qualname__}")
            for cls in classes_of(path, value)
        )


@dataclass(frozen=True, slots=True, repr=False)
class WithTag(Matcher):
    """Matches leaves with a tag: of the value (``tag``, ``tags``) or of any field on its path; the literal is a str.

    Example:
        >>> from neuralqx_struct.fieldspec import field
        >>> weights = FieldName("weights", field(metadata={"tags": ["trainable"]}))
        >>> WithTag("trainable")((weights, 0), 1.0)
        True
    """

    tag: str

    def __post_init__(self) -> None:
        if not isinstance(self.tag, str):
            raise type_error(
                "WithTag", "a tag (str)", self.tag, "for one of several tags use a tuple of them"
            )

    def __call__(self, path: Path, value: object, /) -> bool:
        """True if the leaf ``value`` at ``path`` matches."""
        return self.tag in tags_of(path, value)


@dataclass(frozen=True, slots=True, repr=False)
class Kind(Matcher):
    """Matches leaves whose innermost field is a node, static or opaque; leaves below no declared field have no kind.

    Raises:
        FilterError: ``kind`` is another word; it is a ValueError.
        TypeError: ``kind`` is not a str.
    """

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

    def __call__(self, path: Path, _value: object, /) -> bool:
        """True if a leaf at ``path`` matches."""
        return innermost_kind(path) == self.kind

    def __repr__(self) -> str:
        return f"Kind({self.kind.value!r})"


@dataclass(frozen=True, slots=True, repr=False)
class DType(Matcher):
    """Matches arrays by dtype: a name such as ``bfloat16``, or one of five families.

    The families are ``floating``, ``integer``, ``complexfloating``, ``bool`` and ``prng_key``. Python numbers have no
    dtype, until JAX traces them as arrays.

    Example:
        >>> import types
        >>> DType("floating")((), types.SimpleNamespace(dtype="float8_e4m3fn"))
        True

    Raises:
        FilterError: No dtype has that name; it is a ValueError.
        TypeError: ``name`` is not a str.
    """

    name: str

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise type_error(
                "DType", "the name of a dtype or family", self.name, "as in DType('float32')"
            )
        patterns = (*_FAMILIES.values(), _OTHER_DTYPES)
        if self.name in _FAMILIES or any(p.fullmatch(self.name) for p in patterns):
            return
        families = ", ".join(_FAMILIES)
        meant = _DTYPE_WORDS.get(self.name)
        known = (*_FAMILIES, *_COMMON_DTYPES)
        raise FilterError(
            f"expected a dtype name such as float32, or one of {families}, got {self.name!r}",
            path="DType",
            hint=f"did you mean {meant!r}?" if meant else did_you_mean(self.name, known),
        )

    def __call__(self, _path: Path, value: object, /) -> bool:
        """True if the leaf ``value`` matches."""
        dtype = getattr(value, "dtype", None)
        return isinstance(dtype, Hashable) and _is_dtype(dtype, self.name)


@dataclass(frozen=True, slots=True, repr=False)
class PathContains(Matcher):
    """Matches leaves with ``key`` in their path; with ``exact=False``, with ``str(key)`` in the text of a part."""

    key: Hashable
    exact: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.key, Hashable):
            raise type_error("PathContains", "one path key (hashable)", self.key)

    def __call__(self, path: Path, _value: object, /) -> bool:
        """True if a leaf at ``path`` matches."""
        if self.exact:
            return self.key in path
        return any(str(self.key) in str(part) for part in path)

    def __repr__(self) -> str:
        return f"PathContains({self.key!r}, exact={self.exact})"


@dataclass(frozen=True, slots=True, repr=False, init=False)
class PathIn(Matcher):
    """Matches leaves at exactly these paths: ``PathIn(("params", "w"), ("step",))``.

    Raises:
        TypeError: A path is not a tuple of hashable keys.
    """

    paths: frozenset[Path]

    def __init__(self, *paths: Path) -> None:
        for path in paths:
            if not isinstance(path, tuple):
                raise type_error(
                    "PathIn", "paths as tuples of keys", path, "as in PathIn(('params', 'w'))"
                )
            for key in path:
                if not isinstance(key, Hashable):
                    raise type_error("PathIn", "hashable keys in a path", key)
        object.__setattr__(self, "paths", frozenset(paths))

    def __call__(self, path: Path, _value: object, /) -> bool:
        """True if a leaf at ``path`` matches."""
        return path in self.paths

    @classmethod
    def arguments_of(cls, filter: Any) -> list[Path]:  # noqa: A002
        """The paths, in a fixed order."""
        return sorted(filter.paths, key=repr)


@dataclass(frozen=True, slots=True, repr=False)
class PathGlob(Matcher):
    """Matches leaves by a glob of :func:`~neuralqx_struct.paths.match_glob`, such as ``params/**/bias``."""

    glob: str

    def __post_init__(self) -> None:
        if not isinstance(self.glob, str):
            raise type_error("PathGlob", "a glob (str)", self.glob, "for whole paths use PathIn")
        if len(self.glob) > _LONGEST_GLOB:
            message = f"expected a glob of at most {_LONGEST_GLOB} characters, got {len(self.glob)}"
            raise FilterError(message, path="PathGlob", hint="for whole paths use PathIn")

    def __call__(self, path: Path, _value: object, /) -> bool:
        """True if a leaf at ``path`` matches."""
        return match_glob(self.glob, path)


_LONGEST_GLOB: Final = 1000
_ONLY_TRAINABLE = frozenset({"trainable"})
_NONE = frozenset[str]()


def param_tags(*, trainable: object, metadata: Mapping[str, Any]) -> frozenset[str]:
    """The tags of a parameter.

    Args:
        trainable: True adds the tag ``trainable``.
        metadata: Its members ``tag`` and ``tags`` are a tag or several.
    """
    tags = _ONLY_TRAINABLE if trainable is True else _NONE
    if not metadata:  # the most frequent case
        return tags
    for name in ("tag", "tags"):
        given = metadata.get(name, ())
        several = [given] if isinstance(given, str) else given
        if isinstance(several, (list, tuple, frozenset, set)):
            tags |= {tag for tag in several if isinstance(tag, str)}
    return tags


def node_tags(node: Mapping[str, Any]) -> frozenset[str]:
    """The tags of the parameter that a struct node stores; empty for nodes of other structs."""
    fields = node["fields"]
    metadata = fields.get("metadata")
    if type(metadata) is not dict or metadata.get("type") != "neuralqx_struct.params:Metadata":
        return _NONE
    items = _members(_members(metadata.get("payload")).get("items"))
    plain = {name: _plain(value) for name, value in items.items()}
    return param_tags(trainable=fields.get("trainable"), metadata=plain)


def _members(node: Any) -> dict[str, Any]:
    """The items of a dict node that have text as keys."""
    if not DICT.matches(node):
        return {}
    return {key: value for key, value in node.get("items", ()) if isinstance(key, str)}


def _plain(node: Any) -> Any:
    return node.get("items", ()) if type(node) is dict else node
