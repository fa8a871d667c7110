"""Graph: the tree of names of a model, such as ``net -> mlp -> dense1``.

Owns nodes and their paths. Holds no state, which is what ``params.py`` is for, and computes nothing: what does is bound to
a node by ``modules.py``.

Example:
    >>> graph = Graph("net")
    >>> (graph / "mlp" / "dense1").path
    ('net', 'mlp', 'dense1')
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from neuralqx_struct.errors import StructError
from neuralqx_struct.paths import format_path

if TYPE_CHECKING:
    from neuralqx_struct.modules import Module

__all__ = ["Graph", "GraphError"]

Path = tuple[str, ...]


class GraphError(StructError, ValueError):
    """A module cannot be bound to a node of a graph, or a node cannot be made."""

    default_code = "NQX118"


class Graph:
    """One node of the tree of names of a model. Nodes are compared by identity and never change their name or place.

    Args:
        name: The name of the root; any text that is not empty.
        metadata: Free mapping for tools.

    Example:
        >>> mlp = Graph("net") / "mlp"
        >>> mlp.child("dense1").path
        ('net', 'mlp', 'dense1')
    """

    __slots__ = ("__weakref__", "_children", "_metadata", "_module", "_parent", "_path")

    def __init__(self, name: str, *, metadata: Mapping[str, Any] | None = None) -> None:
        self._start(None, name, metadata)

    def _start(self, parent: Graph | None, name: str, metadata: Mapping[str, Any] | None) -> None:
        above = () if parent is None else parent.path
        if not isinstance(name, str) or not name:
            raise GraphError(f"expected a name that is text and not empty, got {name!r}", path=format_path(above))
        self._parent = parent
        self._path: Path = (*above, name)
        self._metadata = dict(metadata or {})
        self._children: dict[str, Graph] = {}
        self._module: Module | None = None

    def child(self, name: str, *, metadata: Mapping[str, Any] | None = None) -> Graph:
        """Make the node ``name`` below this one.

        Raises:
            GraphError: There is a child of this name, or the name is empty; it is a ValueError.
        """
        if name in self._children:
            raise GraphError(
                f"expected a name that is free, got {name!r}, which is a child already",
                path=format_path((*self._path, name)),
                hint="two modules at one path would share their parameters; give each a name of its own",
            )
        node = object.__new__(Graph)
        node._start(self, name, metadata)
        self._children[name] = node
        return node

    def __truediv__(self, name: str) -> Graph:
        """The same as :meth:`child`."""
        return self.child(name)

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self._path[-1]

    @property
    def path(self) -> Path:
        """All names from the root to here."""
        return self._path

    @property
    def parent(self) -> Graph | None:
        """The node above; None for a root."""
        return self._parent

    @property
    def root(self) -> Graph:
        """The node on top."""
        node = self
        while node._parent is not None:
            node = node._parent
        return node

    @property
    def children(self) -> Mapping[str, Graph]:
        """The nodes right below, by name."""
        return MappingProxyType(self._children)

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The free mapping for tools."""
        return MappingProxyType(self._metadata)

    @property
    def module(self) -> Module | None:
        """The module that is bound to this node, or None."""
        return self._module

    def walk(self) -> Iterator[tuple[Path, Module]]:
        """All modules below this node with their paths: parents first, siblings as they were made."""
        for node in self._children.values():
            if node.module is not None:
                yield node.path, node.module
            yield from node.walk()

    def __repr__(self) -> str:
        return f"Graph({'/'.join(self._path)!r})"
