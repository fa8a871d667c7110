"""Field types: the class of all types, their table, and walks over types.

A type is a frozen value such as ``Array("float32", shape)``; its class has every fact about its sort. For Python scalars the facts are
data, so each is an instance of one class. :mod:`neuralqx_struct.types` has the classes and fills the table.

Example:
    >>> from neuralqx_struct.types.text import parse_type
    >>> declared = parse_type("list[float32[n]] | null")
    >>> declared.nullable, [branch.sort for branch in declared.branches]
    (True, ['list', 'null'])
"""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import lru_cache
from types import EllipsisType
from typing import TYPE_CHECKING, Any

from neuralqx_struct.errors import did_you_mean
from neuralqx_struct.expressions import Expression
from neuralqx_struct.fieldspec import MISSING
from neuralqx_struct.paths import Path

if TYPE_CHECKING:
    from neuralqx_struct.types.text import Builder

#: One axis of a shape: a size expression, or ``...`` for any number of axes.
Extent = Expression | EllipsisType
#: A manifest node.
Node = Any
#: A rule of a JSON Schema.
Rule = dict[str, Any]
#: Returned by :meth:`Type.neutral` where a file cannot write any value of the type.
NO_VALUE: Any = object()


class Type(ABC):
    """A declared type: a frozen value, whose class is the record of its sort."""

    __slots__ = ()

    # --- text ------------------------------------------------------------------------------------------------------

    #: Name of the sort.
    sort: str = ""
    #: All words that start such a type in files; no struct may have one as its name.
    words: tuple[str, ...] = ()

    @classmethod
    def parse(cls, word: str, args: list[ast.expr] | None, text: str) -> Type:
        """The type for ``word[args]``; by default the struct of that name.

        Args:
            word: One of ``words``.
            args: None without brackets.
            text: The whole text, for messages.
        """
        named: Type = TYPES["struct"].parse(word, args, text)
        return named

    @abstractmethod
    def format(self) -> str:
        """The canonical text, which fingerprints contain."""

    # --- structure -------------------------------------------------------------------------------------------------

    @property
    def parts(self) -> tuple[Type, ...]:
        """The types directly inside."""
        return ()

    #: The number of items of every value, if it is the same.
    count: int | None = None

    @property
    def fixed_parts(self) -> tuple[Type, ...]:
        """The types of which every value has one inside."""
        return ()

    def with_parts(self, parts: tuple[Type, ...]) -> Type:
        """The type with other types inside."""
        return self

    def item_at(self, index: int) -> Type | None:
        """The type of the item at a position, which may count from the end; None if values have none there."""
        return None

    @property
    def branches(self) -> tuple[Type, ...]:
        """The options of a union; the type alone if it is no union."""
        return (self,)

    @property
    def nullable(self) -> bool:
        """True if null is a value of the type."""
        return any(branch.sort == "null" for branch in self.branches)

    @property
    def solid(self) -> tuple[Type, ...]:
        """The branches without null."""
        return tuple(branch for branch in self.branches if branch.sort != "null")

    #: The sizes that stored values show: of axes, and of lists.
    extents: tuple[Extent, ...] = ()
    #: The sizes for the parameters of a struct.
    arguments: tuple[Expression, ...] = ()
    #: The struct or enum that the type names; empty if it names none.
    refers: str = ""
    #: The dtype of an array type, or the name of a family or a choice of dtypes; else empty.
    element: str = ""
    #: The dtypes that arrays of the type have: one, or those of a family or a choice.
    dtypes: tuple[str, ...] = ()
    #: The dtypes of a choice, of which all arrays that name it have the same one.
    choice: tuple[str, ...] = ()
    #: The implementation of random keys, ``_`` for any; empty for other types.
    key_impl: str = ""
    #: Families of the dtypes of numbers that the values are, or that they are made of; empty for other types.
    families: tuple[str, ...] = ()
    #: The axes of those numbers, 0 for a single one; None for other types and where values differ.
    axes: int | None = None
    #: True if the arrays of the one type inside have axes of their own in front.
    stacks: bool = False
    #: The type of the values under keys that payloads choose.
    below: Type | None = None

    def parts_for(self, count: int) -> tuple[Type, ...] | None:
        """The type of each of so many values inside; None if there cannot be so many."""
        return None

    def with_sizes(self, change: Callable[[Any], Any]) -> Type:
        """The type with every size replaced by ``change(size)``."""
        return self

    def with_axes(self, axes: tuple[Expression, ...]) -> Type:
        """The type of the same value of several instances, stacked: arrays have these axes in front."""
        return self.with_parts(tuple(part.with_axes(axes) for part in self.parts))

    def stacked(self, size: Expression) -> Type | None:
        """The type of the items of a list as one struct or array with a leading axis, if that exists."""
        return None

    #: The type of the layers of a stacked struct, or of an array, as a list of them.
    listed: Type | None = None

    def with_texts(self, names: Mapping[str, str]) -> Type:
        """The type with other strings in place of its own, as in literals."""
        return self

    # --- checking values, live or stored -----------------------------------------------------------------------------

    #: The sort of values in views.
    meaning: str = ""

    def operands(self, document: Any) -> frozenset[str]:
        """The kinds of operands that values are in expressions, by their sorts in views; empty where nothing is known."""
        return frozenset({self.meaning} - {""})

    def accepts(self, document: Any, seen: Any) -> bool:
        """True if a union takes this type for a value; its parts may still be wrong."""
        return bool(seen.sort == self.meaning)

    def check(self, walk: Any, seen: Any, path: tuple[Hashable, ...], dims: Any) -> None:
        """Reports to ``walk`` everything that is wrong with a value, and its sizes to ``dims``."""
        if not self.accepts(walk.document, seen):
            walk.mismatch(self, seen, path)

    def picks(self, document: Any) -> bool:
        """True if some values of a Python type are accepted, and others of the same type are not."""
        return False

    def readable_as(self, want: Any, compare: Any) -> bool:
        """True if every value is one of ``want``, of the same sort; ``compare`` knows sizes."""
        return True

    #: True if any value is one of the type.
    takes_all: bool = False

    def widened(self) -> Type:
        """A type of another sort that holds all values."""
        return self

    # --- stored nodes ------------------------------------------------------------------------------------------------

    def children(self, node: Node) -> list[tuple[Any, Type, Node]]:
        """Returns key, type and node of each value inside a node; none if the node is of another sort."""
        return []

    def with_children(self, node: Node, made: list[Node]) -> Node:
        """A node with other children, in the order of :meth:`children`."""
        return node

    def lay_out(self, table: Any, row: Any) -> Any:
        """The entry of a value in the table of a layout; ``row`` has its names in files."""
        return table.plain(self, row)

    # --- nodes of trees without classes: dicts, lists, objects of other libraries ------------------------------------

    def gathered(self, node: Node, fit: Any) -> Node:
        """The node of a container in the kind that values of the type have; other nodes stay."""
        return fit.unboxed(node)

    def fitted(self, node: Node, fit: Any) -> Node:
        """As :meth:`gathered`, for all nodes inside too."""
        made = self.gathered(node, fit)
        children = self.children(made)
        if not children:
            return made
        return self.with_children(made, [part.fitted(each, fit) for _, part, each in children])

    def suits(self, node: Node, fit: Any) -> bool:
        """True if a union takes this type for a node of such a tree."""
        return self.accepts(fit.document, fit.read(self.gathered(node, fit)))

    # --- values in files ---------------------------------------------------------------------------------------------

    @abstractmethod
    def read(self, value: Any, builder: Builder) -> Any:
        """A plain value of YAML or JSON as ``builder`` makes it: a node or a Python value.

        Raises:
            SchemaError: NQX107: it is no value of the type.
        """

    @classmethod
    def holds(cls, value_class: type) -> bool:
        """True if the instances of a class are values of the sort, whichever type it is."""
        return False

    def to_plain(self, value: Any) -> Any:
        """A value of a class that :meth:`holds` as a file writes it, or MISSING."""
        return MISSING

    #: A plain value to suggest as default, or :data:`NO_VALUE`.
    suggestion: Any = NO_VALUE

    def neutral(self, document: Any) -> Any:
        """A plain value to suggest as default, or :data:`NO_VALUE`."""
        return self.suggestion

    # --- lint --------------------------------------------------------------------------------------------------------

    #: Groups of constraints that fields of the type take: ``number``, ``text`` and ``length``.
    bounds: tuple[str, ...] = ()

    def outside_jax(self, document: Any) -> bool:
        """True if some values are leaves that JAX refuses."""
        return False

    def only_in_nodes(self, document: Any) -> bool:
        """True if nodes alone hold the values, or nothing is known of them."""
        return False

    def texts(self, document: Any) -> list[str] | None:
        """The only strings that are values; None if others are too."""
        return None

    def meant(self, text: str, document: Any) -> str | None:
        """A hint with the string of the type that a former name means, or the one most like a text."""
        return did_you_mean(text, self.texts(document) or ())

    def spelled(self, document: Any) -> Mapping[str, Any] | None:
        """The values by their texts, where they are few and all text, integers or booleans; None otherwise."""
        texts = self.texts(document)
        return None if texts is None else {text: text for text in texts}

    #: Why static fields cannot hold a value, in words; ``{}`` is the type.
    unhashable: str = ""
    #: The collection that static fields can hold in its place, in words.
    hashable_form: str = ""

    def ends(self, ends: Callable[[Any], bool]) -> bool:
        """True if a finite value exists, given which other types have one."""
        return True

    def looks_like(self) -> frozenset[Hashable]:
        """Values that two options of a union must not have in common."""
        return frozenset([self.sort if self.alone else self])

    #: True if a union has at most one option of the sort, as readers do not look inside.
    alone: bool = False
    #: Its multiplicity, for values that hold several others.
    many: str = ""

    def objections(self, document: Any) -> Iterator[tuple[str, str]]:
        """Yields ``X, got Y`` and a fix for each reason why a document cannot use the type."""
        return iter(())

    def advice(self) -> tuple[str, str, str] | None:
        """Returns code, message and hint of a warning about the type."""
        return None

    # --- exports -----------------------------------------------------------------------------------------------------

    @abstractmethod
    def rule(self, document: Any) -> Rule:
        """The JSON Schema of nodes."""

    def outline(self, document: Any) -> Rule:
        """The JSON Schema by which a union takes this type for a node."""
        return self.rule(document)

    @abstractmethod
    def annotation(self, owner: Any, stub: Any) -> str:
        """The annotation in stubs."""

    def argument(self, owner: Any, stub: Any) -> str:
        """The annotation of constructor arguments, where it is wider."""
        return self.annotation(owner, stub)

    @abstractmethod
    def example(self, sample: Any) -> Any:
        """A random value that keeps the constraints of ``sample.field``."""


#: The table by name: the class of each sort, and for Python scalars the type itself.
TYPES: dict[str, Any] = {}


@lru_cache(maxsize=256)
def type_of_class(value_class: type) -> Type | None:
    """The scalar type whose values are the instances of a class."""
    return next((record for record in TYPES.values() if record.holds(value_class)), None)


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
    return declared.with_parts(tuple(map_type(part, change) for part in declared.parts))


def map_sizes(declared: Type, change: Callable[[Any], Any]) -> Type:
    """The type with ``change`` applied to every size, also of the types inside."""
    parts = tuple(map_sizes(part, change) for part in declared.parts)
    return declared.with_parts(parts).with_sizes(change)


def map_leaves(
    node: Node, declared: Type, change: Callable[[Node, Type, Path], Node], at: Path = ()
) -> Node:
    """A node with every node in it changed that contains no others.

    Args:
        node: The node.
        declared: Its type.
        change: Called with the inner node, its type and its path.
        at: The path of the node.
    """
    children = declared.children(node)
    if children:
        made = [map_leaves(each, part, change, (*at, key)) for key, part, each in children]
        return declared.with_children(node, made)
    return change(node, declared, at)
