"""Field types: the values that a declaration holds, such as ``Array("float32", shape)``, and their records.

A *type* is a frozen value; its *record* has every fact about its sort (:class:`TypeRecord`).
:mod:`neuralqx_struct.types` fills the table of records.

Example:
    >>> from neuralqx_struct.types.text import parse_type
    >>> declared = parse_type("list[float32[n]] | null")
    >>> declared.nullable, [branch.record.name for branch in declared.branches]
    (True, ['list', 'null'])
"""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from types import EllipsisType
from typing import TYPE_CHECKING, Any, ClassVar

from neuralqx_struct.expressions import Expression
from neuralqx_struct.fieldspec import MISSING

if TYPE_CHECKING:
    from neuralqx_struct.types.text import Builder

#: One axis of a shape: a size expression, or ``...`` for any number of axes.
Extent = Expression | EllipsisType
#: A manifest node.
Node = Any
#: A rule of a JSON Schema.
Rule = dict[str, Any]
#: The sorts of the values of a type; None where nothing is known.
Sorts = frozenset[str] | None
#: Sorts that JAX takes as leaves or looks into.
JAX_SORTS = frozenset(
    {"bool", "int", "float", "complex", "null", "tuple", "list", "dict", "array", "key", "struct"}
)


class Type:
    """A declared type; a frozen value."""

    __slots__ = ()
    #: Name of the record.
    sort: ClassVar[str]

    @property
    def record(self) -> TypeRecord:
        """Everything that is known of types of this sort."""
        return TYPES[self.sort]

    @property
    def parts(self) -> tuple[Type, ...]:
        """The types directly inside."""
        return self.record.parts(self)

    @property
    def branches(self) -> tuple[Type, ...]:
        """The options of a union; the type alone if it is no union."""
        return self.record.branches(self)

    @property
    def nullable(self) -> bool:
        """True if null is a value of the type."""
        return Null() in self.branches

    @property
    def solid(self) -> tuple[Type, ...]:
        """The branches without null."""
        return tuple(branch for branch in self.branches if branch != Null())

    @property
    def extents(self) -> tuple[Extent, ...]:
        """The sizes of the axes that stored values show."""
        return self.record.extents(self)

    @property
    def arguments(self) -> tuple[Expression, ...]:
        """The sizes for the parameters of a struct."""
        return self.record.arguments(self)

    @property
    def refers(self) -> str:
        """The struct or enum that the type names; empty if it names none."""
        return self.record.refers(self)


@dataclass(frozen=True, slots=True)
class Scalar(Type):
    """A Python value such as int, str or path; its name is that of its record."""

    name: str

    @property
    def sort(self) -> str:  # type: ignore[override]
        """Name of the record."""
        return self.name


@dataclass(frozen=True, slots=True)
class Null(Type):
    """None."""

    sort = "null"


@dataclass(frozen=True, slots=True)
class PyTree(Type):
    """Any tree of values that can be stored."""

    sort = "pytree"


@dataclass(frozen=True, slots=True)
class Array(Type):
    """An array of one dtype; the shape ``(...,)`` is any shape, ``()`` an array without axes."""

    sort = "array"
    dtype: str
    shape: tuple[Extent, ...] = (...,)


@dataclass(frozen=True, slots=True)
class Key(Type):
    """Typed random keys of one implementation (None: any), usually a single one."""

    sort = "prng_key"
    impl: str | None = None
    shape: tuple[Extent, ...] = ()


@dataclass(frozen=True, slots=True)
class Named(Type):
    """A struct or an enum, with sizes for the struct's parameters; of another schema with its identity before it."""

    sort = "struct"
    name: str
    args: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class LiteralOf(Type):
    """One of some strings, numbers or booleans."""

    sort = "literal"
    values: tuple[str | int | float | bool, ...]


@dataclass(frozen=True, slots=True)
class ListOf(Type):
    """A list of any length."""

    sort = "list"
    item: Type


@dataclass(frozen=True, slots=True)
class TupleOf(Type):
    """A tuple: one type for each item, or with ``variadic`` one type for any number of items."""

    sort = "tuple"
    items: tuple[Type, ...]
    variadic: bool = False


@dataclass(frozen=True, slots=True)
class DictOf(Type):
    """A dict with str keys."""

    sort = "dict"
    value: Type


@dataclass(frozen=True, slots=True)
class Union(Type):
    """One of several types; ``T | null`` is optional."""

    sort = "union"
    options: tuple[Type, ...]


#: Returned by :meth:`TypeRecord.neutral` where a file cannot write any value of the type.
NO_VALUE: Any = object()


@dataclass(frozen=True, kw_only=True)
class TypeRecord(ABC):
    """Every fact about one sort of field type.

    ``declared`` is a type of this sort in all members. A class without an abstract member is an error at import.

    Attributes:
        name: The word that names the sort in files.
    """

    name: str

    # --- text ------------------------------------------------------------------------------------------------------

    @property
    def words(self) -> tuple[str, ...]:
        """All words that start such a type in files, for suggestions; no struct may have one as its name."""
        return (self.name,)

    @abstractmethod
    def parse(self, word: str, args: list[ast.expr] | None, text: str) -> Type:
        """The type for ``word[args]``; ``args`` is None without brackets, ``text`` the whole for messages."""

    @abstractmethod
    def format(self, declared: Any) -> str:
        """The canonical text, which fingerprints contain."""

    # --- structure -------------------------------------------------------------------------------------------------

    def parts(self, declared: Any) -> tuple[Type, ...]:
        """The types directly inside."""
        return ()

    def with_parts(self, declared: Any, parts: tuple[Type, ...]) -> Type:
        """The type with other types inside."""
        return declared  # type: ignore[no-any-return]

    def branches(self, declared: Any) -> tuple[Type, ...]:
        """The alternatives that a value may have."""
        return (declared,)

    def extents(self, declared: Any) -> tuple[Extent, ...]:
        """The sizes of axes."""
        return ()

    def arguments(self, declared: Any) -> tuple[Expression, ...]:
        """The sizes for parameters."""
        return ()

    def with_sizes(self, declared: Any, change: Callable[[Any], Any]) -> Type:
        """The type with every size replaced by ``change(size)``."""
        return declared  # type: ignore[no-any-return]

    def refers(self, declared: Any) -> str:
        """The name of a struct or an enum, or an empty string."""
        return ""

    def element(self, declared: Any) -> str:
        """The dtype of an array type, or an empty string."""
        return ""

    # --- checking values, live or stored -----------------------------------------------------------------------------

    #: The sort of values in expressions and views.
    meaning: ClassVar[str] = ""

    def accepts(self, declared: Any, document: Any, seen: Any) -> bool:
        """True if a union takes this type for a value; its parts may still be wrong."""
        return bool(seen.sort == self.meaning)

    def check(
        self, declared: Any, walk: Any, seen: Any, path: tuple[Hashable, ...], dims: Any
    ) -> None:
        """Reports to ``walk`` everything that is wrong with a value, and its sizes to ``dims``."""
        if not self.accepts(declared, walk.document, seen):
            walk.mismatch(declared, seen, path)

    def picks(self, declared: Any, document: Any) -> bool:
        """True if some values of a Python type are accepted, and others of the same type are not."""
        return False

    def readable_as(self, have: Any, want: Any, compare: Any) -> bool:
        """True if every value of ``have`` is one of ``want``, of the same sort; ``compare`` knows sizes."""
        return True

    #: True if any value is one of the type.
    takes_all: ClassVar[bool] = False

    def widened(self, declared: Any) -> Type:
        """A type of another sort that holds all values."""
        return declared  # type: ignore[no-any-return]

    # --- stored nodes ------------------------------------------------------------------------------------------------

    def children(self, declared: Any, node: Node) -> list[tuple[Any, Type, Node]]:
        """Returns key, type and node of each value inside a node; none if the node is of another sort."""
        return []

    def with_children(self, declared: Any, node: Node, made: list[Node]) -> Node:
        """A node with other children, in the order of :meth:`children`."""
        return node

    def shown_sizes(self, declared: Any, node: Node) -> Iterator[tuple[Expression, int]]:
        """Yields the sizes that a node shows, each with its declaration."""
        return iter(())

    # --- values in files ---------------------------------------------------------------------------------------------

    @abstractmethod
    def read(self, declared: Any, value: Any, builder: Builder) -> Any:
        """A plain value of YAML or JSON as ``builder`` makes it: a node or a Python value.

        Raises:
            SchemaError: NQX107: it is no value of the type.
        """

    def holds(self, cls: type) -> bool:
        """True if the instances of a class are values of the sort, whichever type it is."""
        return False

    def to_plain(self, value: Any) -> Any:
        """A value of a class that :meth:`holds` as a file writes it, or MISSING."""
        return MISSING

    #: A plain value to suggest as default, or :data:`NO_VALUE`.
    suggestion: ClassVar[Any] = NO_VALUE

    def neutral(self, declared: Any, document: Any) -> Any:
        """A plain value to suggest as default, or :data:`NO_VALUE`."""
        return self.suggestion

    # --- lint --------------------------------------------------------------------------------------------------------

    #: Groups of constraints that fields of the type take: ``number``, ``text`` and ``length``.
    bounds: ClassVar[tuple[str, ...]] = ()

    def sorts(self, declared: Any, document: Any) -> Sorts:
        """The sorts of values."""
        return frozenset({self.meaning}) if self.meaning else None

    def texts(self, declared: Any, document: Any) -> list[str] | None:
        """The only strings that are values; None if others are too."""
        return None

    #: Why static fields cannot hold a value, in words; ``{}`` is the type.
    unhashable: ClassVar[str] = ""

    def ends(self, declared: Any, ends: Callable[[Any], bool]) -> bool:
        """True if a finite value exists, given which other types have one."""
        return True

    def looks_like(self, declared: Any) -> Hashable:
        """A value that two options of a union must not have in common."""
        return self.name if self.alone else declared

    #: True if a union has at most one option of the sort, as readers do not look inside.
    alone: ClassVar[bool] = False
    #: Multiplicity in diagrams.
    many: ClassVar[str] = ""

    def advice(self, declared: Any) -> tuple[str, str, str] | None:
        """Returns code, message and hint of a warning about the type."""
        return None

    # --- exports -----------------------------------------------------------------------------------------------------

    @abstractmethod
    def rule(self, declared: Any, document: Any) -> Rule:
        """The JSON Schema of nodes."""

    def outline(self, declared: Any, document: Any) -> Rule:
        """The JSON Schema by which a union takes this type for a node."""
        return self.rule(declared, document)

    @abstractmethod
    def annotation(self, declared: Any, owner: Any, stub: Any) -> str:
        """The annotation in stubs."""

    def argument(self, declared: Any, owner: Any, stub: Any) -> str:
        """The annotation of constructor arguments, where it is wider."""
        return self.annotation(declared, owner, stub)

    @abstractmethod
    def example(
        self, declared: Any, sample: Any, field: Any, local: dict[str, int], depth: int
    ) -> Any:
        """A random value that keeps the constraints of ``field``."""


#: The table of records by name; :mod:`neuralqx_struct.types` fills it.
TYPES: dict[str, TypeRecord] = {}


@lru_cache(maxsize=256)
def record_of_class(cls: type) -> TypeRecord | None:
    """The record whose values are the instances of a class."""
    return next((record for record in TYPES.values() if record.holds(cls)), None)


def type_names() -> list[str]:
    """Every word that starts a built-in type, for suggestions."""
    return [word for record in TYPES.values() for word in record.words]


def walk_type(declared: Type) -> Iterator[Type]:
    """Yields the type and every type inside it, outermost first."""
    yield declared
    for part in declared.parts:
        yield from walk_type(part)


def map_type(declared: Type, change: Callable[[Type], Type]) -> Type:
    """The type with ``change`` applied to every type inside that holds no other; unions stay flat."""
    if not declared.parts:
        return change(declared)
    parts = tuple(map_type(part, change) for part in declared.parts)
    return declared.record.with_parts(declared, parts)
