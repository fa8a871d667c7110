"""The payload side of steps: a private copy of the manifest, and new arrays that are computed when they are asked for.

Owns :class:`Workspace` (one hop over one payload) and :class:`Place` (one struct instance in it, what step functions are
given). Arrays that no step touches keep their names and are not read; a new array lives only
as long as its reader holds it, so a checkpoint larger than memory migrates.

Example:
    >>> workspace = Workspace(v1, {"__kind__": "struct", "type": "neuralqx.vmc_state@1:VMCState", "fields": {}}, {}, v1)
    >>> [place.path for place in workspace.instances("VMCState", v1, v1)]
    [()]
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from neuralqx_struct.errors import Diagnostic, MigrationError, SchemaError
from neuralqx_struct.evolution.measure import measure, solved_size
from neuralqx_struct.evolution.values import Node, Shelf, number_node, number_value
from neuralqx_struct.paths import FieldName, Path, array_name, format_path
from neuralqx_struct.payload import dtype_named, iter_nodes
from neuralqx_struct.schema.expressions import Expression
from neuralqx_struct.schema.model import Document

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Place", "Workspace", "kind_of"]

Thunk = Callable[[], "np.ndarray"]


def kind_of(node: Node) -> str:
    """The tag of a node; ``null``, ``bool``, ... for plain values."""
    if isinstance(node, dict):
        return str(node["__kind__"])
    return "null" if node is None else type(node).__name__


def _copied(tree: Node) -> Node:
    """A deep copy of plain JSON values, without recursion."""
    root = [tree]
    stack: list[Any] = [root]
    while stack:
        container = stack.pop()
        for key, value in list(container.items() if isinstance(container, dict) else enumerate(container)):
            if isinstance(value, (dict, list)):
                container[key] = value = value.copy()  # noqa: PLW2901
                stack.append(value)
    return root[0]


def _free(name: str, *taken: Container[str]) -> str:
    """The name, or the first ``name~2``, ``name~3`` that is not taken."""
    count, free = 1, name
    while any(free in names for names in taken):
        count += 1
        free = f"{name}~{count}"
    return free


def _no_function(name: str) -> Callable[[Mapping[str, Any]], Any]:
    raise MigrationError(f"expected steps that run no function, got one that runs {name!r}", code="NQX312")


@dataclass
class Workspace:
    """One hop over one payload; the payload itself is not changed.

    Attributes:
        document: The declaration that the payload conforms to when the hop starts.
        original: The payload's manifest.
        stored: The payload's arrays.
        target: The declaration that the hop leads to: names of dims that only it has may be used too.
        report: Gets what was defaulted, dropped and cast.
        function: Finds the function that a ``python`` step names, if it may run.
    """

    document: Document
    original: Node
    stored: Mapping[str, np.ndarray]
    target: Document
    report: list[Diagnostic] = field(default_factory=list)
    function: Callable[[str], Callable[[Mapping[str, Any]], Any]] = _no_function

    def __post_init__(self) -> None:
        self.tree: Node = _copied(self.original)
        self.made: dict[str, Thunk] = {}
        self.taken: set[str] = set(self.stored)
        self._shared: dict[tuple[Any, ...], str] = {}
        self._final: dict[str, str] = {}

    @cached_property
    def dims(self) -> Mapping[str, int]:
        """Sizes of the dims that the whole tree shares, found when a step first asks."""
        return measure(self.document, self.original, self.target)

    def instances(self, struct: str, before: Document, after: Document) -> list[Place]:
        """Every instance of a struct of ``before``, outermost first."""
        reference = before.ref(struct)
        return [
            Place(self, path, node, struct, before, after)
            for path, node in iter_nodes(self.tree)
            if isinstance(node, dict) and node["__kind__"] == "struct" and node["type"] == reference
        ]

    def store(self, path: Path, dtype: str, shape: Iterable[int], thunk: Thunk, made_of: tuple[Any, ...]) -> Node:
        """A node for a new array.

        Args:
            path: Where it stands; gives its name.
            dtype: Its dtype.
            shape: Its shape.
            thunk: Computes it.
            made_of: What it is computed from and how: equal makings are one array, as shared arrays were before.
        """
        key = (*made_of, dtype, tuple(shape))
        name = self._shared.get(key)
        if name is None:
            name = self._shared[key] = _free(array_name(path), self.taken)
            self.taken.add(name)
            self.made[name] = thunk
        return {"__kind__": "array", "name": name, "dtype": dtype, "shape": list(shape)}

    def stored_names(self) -> frozenset[str]:
        """Names of the arrays that are still used as they are stored."""
        nodes = (node for _, node in iter_nodes(self.tree) if isinstance(node, dict) and node["__kind__"] == "array")
        return frozenset(node["name"] for node in nodes) - self.made.keys()

    def final_name(self, name: str, path: Path, kept: Container[str]) -> str:
        """The name that a new array keeps: that of the place where it ended up."""
        if name not in self._final:
            self._final[name] = _free(array_name(path), {*self._final.values()}, kept)
        return self._final[name]

    def results(self) -> dict[str, Thunk]:
        """The new arrays that are still used, by their final names."""
        return {final: self.made[name] for name, final in self._final.items()}

    def note(self, code: str, message: str, path: str) -> None:
        """Tell the user of something that the hop did."""
        self.report.append(Diagnostic(code, "info", message, path=path))

    def array(self, name: str) -> np.ndarray:
        """An array of this hop or of the payload it started from."""
        return self.made[name]() if name in self.made else self.stored[name]


@dataclass(frozen=True)
class Place:
    """One struct instance, as step functions see it.

    Attributes:
        workspace: The hop.
        path: Where the instance stands.
        node: Its node.
        struct: Its name before the step.
        before: The declaration that the tree conforms to.
        after: The declaration that it will conform to behind the step.
    """

    workspace: Workspace
    path: Path
    node: Node
    struct: str
    before: Document
    after: Document

    def at(self, *parts: str | int) -> Path:
        """The path of a field of the instance, or of something inside it."""
        first, *rest = parts
        return (*self.path, FieldName(str(first)), *rest)

    def text(self, *parts: str | int) -> str:
        """As :meth:`at`, for messages."""
        return format_path(self.at(*parts))

    def field(self, name: str) -> Node:
        """The node of a field.

        Raises:
            MigrationError: NQX414: the payload does not hold it, so it was not of the version that it claims.
        """
        fields = self.node["fields"]
        if name not in fields:
            raise MigrationError(
                f"expected a stored field that version {self.before.version} declares, got none",
                code="NQX414",
                path=self.text(name),
                hint="check the checkpoint with `neuralqx-struct validate`",
            )
        return fields[name]

    @cached_property
    def sizes(self) -> Mapping[str, int]:
        """Dims of the tree, and the names that are local to the instance."""
        return measure(self.before, self.node, self.after, known=self.workspace.dims)

    def size(self, extent: Expression) -> int:
        """The number that an extent is at this instance.

        Raises:
            MigrationError: NQX413: nothing in the payload says how large it is.
        """
        try:
            return solved_size(extent, self.sizes)
        except SchemaError as error:
            raise MigrationError(
                f"expected a payload that fixes the size {extent.text}, got one that does not\n{error.diagnostics[0].message}",
                code="NQX413",
                path=format_path(self.path),
                hint="declare `equals:` for the dim, or write the size as a number in the step",
            ) from None

    def shelf(self, name: str) -> Shelf:
        """What :func:`~.values.value_node` needs to make the value of the field ``name``."""

        def store(dtype: str, array: np.ndarray) -> Node:
            return self.workspace.store(self.at(name), dtype, array.shape, lambda: array, ("value", id(array)))

        # What is added may be of an enum or a struct that only the new version has; no step makes those.
        after, new = self.after, self.workspace.target
        known = after.model_copy(
            update={"enums": {**new.enums, **after.enums}, "structs": {**new.structs, **after.structs}}
        )
        return Shelf(known.linked({**new.used, **after.used}, after.unusable), self.size, store)

    def shape(self, node: Node, path: Path) -> list[int]:
        """The shape of a node that is an array, spelled out or constant.

        Raises:
            MigrationError: NQX411: it is something else.
        """
        if kind_of(node) in ("array", "full"):
            return list(node["shape"])
        if kind_of(node) == "numpy-scalar":
            return []
        raise MigrationError(
            f"expected an array, got a node of kind {kind_of(node)}", code="NQX411", path=format_path(path)
        )

    def load(self, node: Node) -> Thunk:
        """Gives the elements of an array node, when they are wanted."""
        if node["__kind__"] == "array":
            name = node["name"]
            return lambda: self.workspace.array(name)

        def constant() -> np.ndarray:
            import numpy as np

            return np.full(node.get("shape", ()), number_value(node["value"]), dtype_named(node["dtype"]))

        return constant

    def identity(self, node: Node) -> tuple[Any, ...]:
        """What tells whether two array nodes have the same elements because they are the same array."""
        if node["__kind__"] == "array":
            return ("array", node["name"])
        return ("full", node["dtype"], tuple(node.get("shape", ())), repr(node["value"]))

    def derive(
        self,
        node: Node,
        path: Path,
        how: tuple[Any, ...],
        compute: Callable[[np.ndarray], np.ndarray],
        *,
        shape: Iterable[int],
        dtype: str | None = None,
    ) -> Node:
        """A new array made of one: its elements are computed when they are asked for.

        Args:
            node: The array, or a constant one, which stays constant.
            path: Where the new one stands.
            how: Names the making and its arguments.
            compute: Makes it.
            shape: Its shape.
            dtype: Its dtype if it is another; ``compute`` must then work element by element.
        """
        marks = {
            mark: node[mark] for mark in ("leaf", "weak_type") if mark in node and (mark == "leaf" or dtype is None)
        }
        if node["__kind__"] == "array":
            load = self.load(node)
            made = self.workspace.store(
                path, dtype or node["dtype"], shape, lambda: compute(load()), (how, self.identity(node))
            )
            return {**made, **marks}
        value = node["value"]
        if dtype is not None:
            one = compute(self.load({**node, "shape": [1]})())
            value = number_node(one.astype("complex128" if one.dtype.kind == "c" else one.dtype).tolist()[0])
            # ml_dtypes' scalars have no plain form of their own.
            value = value if isinstance(value, (bool, int, float, dict)) else number_node(float(value))
        if node["__kind__"] == "numpy-scalar" and not list(shape):
            return {**node, "dtype": dtype or node["dtype"], "value": value}
        return {"__kind__": "full", "dtype": dtype or node["dtype"], "shape": list(shape), "value": value, **marks}
