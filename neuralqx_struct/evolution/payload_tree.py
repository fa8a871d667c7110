"""The payload side of migration steps: a private copy of the manifest, and new arrays that are computed when they are read.

Contains :class:`Workspace` (one hop over one payload), :class:`Place` (one struct instance in it, the argument of every step)
and the walks of entries inside fields. Arrays that no step touches keep their names and are not read. A new array lives only
as long as its reader holds it, so a checkpoint larger than memory migrates.

Example:
    >>> from neuralqx_struct.manifest.lazy_reading import MigratedArrays
    >>> tree = {"__kind__": "struct", "type": "neuralqx.vmc_state@1:VMCState", "fields": {}}
    >>> [place.path for place in Workspace(v1, tree, MigratedArrays({}), v1).instances("VMCState", v1, v1)]
    [()]
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from neuralqx_struct.dtypes import dtype_named
from neuralqx_struct.errors import Diagnostic, MigrationError, SchemaError, did_you_mean
from neuralqx_struct.expressions import Expression
from neuralqx_struct.manifest.kinds import (
    ARRAY,
    DICT,
    ENUM,
    FIELDS,
    FULL,
    MANY,
    NUMPY_SCALAR,
    ONE,
    PAIRS,
    STRUCT,
    elements_of,
    iter_nodes,
    kind_of,
    marks_of,
    parts_of,
    shown_node,
)
from neuralqx_struct.manifest.lazy_arrays import LazyArray, Operation, Part
from neuralqx_struct.manifest.payload import ForeignArray
from neuralqx_struct.matching import missing_field
from neuralqx_struct.paths import FieldName, Path, array_name, format_path
from neuralqx_struct.references import is_schema_ref
from neuralqx_struct.schema.conformance import see_node, size_scopes
from neuralqx_struct.schema.graph import graph_of
from neuralqx_struct.schema.migration import Add, Remove, RenamePath
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.sizes.solver import Solver
from neuralqx_struct.types import Node, Type
from neuralqx_struct.types.builders import NodeBuilder
from neuralqx_struct.types.records import map_leaves
from neuralqx_struct.types.text import number_node, number_value, read_value

if TYPE_CHECKING:
    import numpy as np

    from neuralqx_struct.manifest.lazy_reading import MigratedArrays

Thunk = Callable[[], "np.ndarray"]

#: The hint about a payload that is not as its version declares.
_VALIDATE = "check the checkpoint with `neuralqx-struct validate`"
_INVALID = frozenset({"NQX411", "NQX412", "NQX420"})
#: The hint about sizes that a payload does not show.
CHOOSES = "a `python` step in place of this one can choose the size"
#: The hint about a valid payload that a step does not take.
TAKES = "a `python` step in place of this one can take such payloads, too"


def copied(tree: Node) -> Node:
    """A deep copy of plain JSON values, without recursion."""
    root = [tree]
    stack: list[Any] = [root]
    while stack:
        container = stack.pop()
        items = container.items() if isinstance(container, dict) else enumerate(container)
        for key, value in list(items):
            if isinstance(value, (dict, list)):
                container[key] = value.copy()
                stack.append(container[key])
    return root[0]


#: Every hop copies the nodes of a payload, and every step looks at them.
_MOST_VISITS = 100_000_000


def require_few_visits(root: Node, passes: int) -> None:
    """Checks that steps and versions are few enough for the size of a payload.

    Raises:
        MigrationError: NQX321.
    """
    if passes < 10:  # spares the count
        return
    nodes = sum(1 for _ in iter_nodes(root))
    if passes * nodes > _MOST_VISITS:
        most = _MOST_VISITS // nodes
        message = f"expected at most {most} steps and versions for a payload of {nodes} nodes, got {passes}"
        hint = "load it with a program that has a version in between, and export it there"
        raise MigrationError(message, code="NQX321", hint=hint)


def map_texts(
    node: Node, declared: Type, change: Callable[[str, Type, Path], str], at: Path = ()
) -> Node:
    """As :func:`map_leaves`, for strings, those of numpy too, and for the names of enum members."""

    def changed(node: Node, declared: Type, at: Path) -> Node:
        if isinstance(node, str):
            return change(node, declared, at)
        if ENUM.matches(node):  # a member of a Python class; schemas write its name
            return {**node, "name": change(node["name"], declared, at)}
        if NUMPY_SCALAR.matches(node) and isinstance(node["value"], str):
            text = change(node["value"], declared, at)
            return {**node, "dtype": f"<U{max(len(text), 1)}", "value": text}
        return node

    return map_leaves(node, declared, changed, at)


def free_name(name: str, *taken: Container[str]) -> str:
    """The name, or the first of ``name~2``, ``name~3``, ... that is not taken."""
    count, free = 1, name
    while any(free in names for names in taken):
        count += 1
        free = f"{name}~{count}"
    return free


def _no_function(name: str) -> Callable[[Mapping[str, Any]], Any]:
    message = f"expected steps that run no function, got one that runs {name!r}"
    raise MigrationError(message, code="NQX312")


class EntryError(MigrationError):
    """A value whose entries no version declares, such as a ``pytree``, is not as a step needs it."""


@dataclass(eq=False)
class Workspace:
    """One hop over one payload, which is not changed.

    Attributes:
        document: The declaration that the payload conforms to when the hop starts.
        original: The payload's manifest.
        arrays: The payload's arrays.
        target: The declaration that the hop leads to.
        report: Receives a diagnostic for every value that is defaulted, dropped or cast.
        function: Returns the function of a ``python`` step, if it may run.
    """

    document: Document
    original: Node
    arrays: MigratedArrays
    target: Document
    report: list[Diagnostic] = field(default_factory=list)
    function: Callable[[str], Callable[[Mapping[str, Any]], Any]] = _no_function

    def __post_init__(self) -> None:
        self.tree: Node = copied(self.original)
        self.made: dict[str, LazyArray] = {}
        self._shared: dict[tuple[Any, ...], str] = {}
        self._final: dict[str, str] = {}
        self._taken: set[str] = set()
        # By the identity of the node, which stays the same where a step gives the instance another place.
        self._sizes: dict[int, tuple[Node, Solver]] = {}
        self._are_new = False  # the sizes were found after the last step
        self._structs: list[tuple[Path, Node]] | None = None

    def structs(self) -> list[tuple[Path, Node]]:
        """Every struct instance with its path, outermost first; looked for again once a step moved one."""
        if self._structs is None:
            self._structs = STRUCT.within(self.tree)
        return self._structs

    def rewrite(self, node: Node, made: Node) -> None:
        """Makes an instance what a step made of it."""
        before, after = node["fields"], made["fields"]
        if before is not after:
            left = [each for name, each in before.items() if after.get(name) is not each]
            came = [each for name, each in after.items() if before.get(name) is not each]
            if any(map(STRUCT.leads_to, left + came)):
                self._structs = None
        node.update(made)

    def instances(self, struct: str, before: Document, after: Document) -> list[Place]:
        """Every instance of a struct of ``before``, outermost first."""
        reference = before.ref(struct)
        return [
            Place(self, path, node, struct, before, after)
            for path, node in self.structs()
            if node["type"] == reference
        ]

    def sizes(self, node: Node, document: Document) -> Solver:
        """The sizes that an instance sees, before any instance is changed by the step that asks."""
        if id(node) not in self._sizes:
            self._find_sizes(document)
        return self._sizes[id(node)][1]

    def _find_sizes(self, document: Document) -> None:
        prefix = f"{document.id}@{document.version}:"
        instances = dict(self.structs())
        found: set[Path] = set()
        for at, node in instances.items():
            struct = node["type"].removeprefix(prefix)
            # Those inside another instance of the document are found with it, unless a pytree is in between.
            if struct in document.structs and at not in found:
                for inner, known in size_scopes(document, struct, node, see_node).items():
                    path = (*at, *inner)
                    if path not in found:
                        found.add(path)
                        self._sizes[id(instances[path])] = instances[path], known
        self._are_new = True

    def find_again(self, node: Node, document: Document) -> Solver | None:
        """The sizes of an instance with those that came with the last steps; None if they are these already."""
        if self._are_new:
            return None
        self._sizes = {}
        return self.sizes(node, document)

    def end_step(self, *, forget: bool) -> None:
        """Lets sizes that are unknown be looked for again, and with ``forget`` all, and the dtypes of choices."""
        self._are_new = False
        if forget:
            self._sizes = {}

    def store(self, array: LazyArray, made_of: tuple[Any, ...]) -> Node:
        """A node for a new array.

        Args:
            array: The array.
            made_of: Its sources and the operation. Equal ones are one array, so shared arrays stay shared.
        """
        key = (*made_of, array.dtype, *array.shape)
        # No stored name has such a character; `final_name` gives it another one.
        name = self._shared.setdefault(key, f"\n{len(self._shared)}")
        self.made.setdefault(name, array)
        return ARRAY.node(name=name, dtype=array.dtype, shape=[*array.shape])

    def final_name(self, name: str, path: Path, kept: Container[str]) -> str:
        """The name of a new array in the result, which is that of its first place in the tree."""
        if name not in self._final:
            self._final[name] = free_name(array_name(path), self._taken, kept)
            self._taken.add(self._final[name])
        return self._final[name]

    def results(self, names: Iterable[str]) -> MigratedArrays:
        """The arrays after the last step; nothing is read.

        Args:
            names: The names of all arrays that are still used, in their order.
        """
        made = {final: self.made[name] for name, final in self._final.items()}
        return self.arrays.followed(made, names)


class Place(NamedTuple):
    """One struct instance, as steps see it.

    Attributes:
        workspace: The hop.
        path: The path of the instance.
        node: Its node.
        struct: Its name before the step.
        before: The declaration that the tree conforms to.
        after: The declaration that it will conform to after the step.
    """

    workspace: Workspace
    path: Path
    node: Node
    struct: str
    before: Document
    after: Document

    def at(self, *parts: Hashable) -> Path:
        """The path of a field of the instance, or of a value inside it."""
        return (*self.path, *(FieldName(str(part)) for part in parts[:1]), *parts[1:])

    def note(self, message: str, *parts: Hashable) -> str:
        """Reports a value that the step defaults, drops or casts; returns its path."""
        found = Diagnostic("NQX425", "info", message, path=format_path(self.at(*parts)))
        self.workspace.report.append(found)
        return found.path

    def error(
        self, code: str, message: str, *parts: Hashable, hint: str | None = None
    ) -> MigrationError:
        """An error about a field of the instance, or about a value inside it.

        Without a hint, that of a payload which is not as its version declares, for the codes of such payloads.
        """
        if hint is None and code in _INVALID:
            hint = _VALIDATE
        return MigrationError(message, code=code, path=format_path(self.at(*parts)), hint=hint)

    def entry_error(self, code: str, message: str, *parts: Hashable, hint: str) -> EntryError:
        """An error about an entry of a value whose entries no version declares."""
        return EntryError(self.error(code, message, *parts, hint=hint).diagnostics)

    def field(self, name: str) -> Node:
        """The node of a field.

        Raises:
            MigrationError: NQX414: the payload does not hold it, so it is not of the version that it claims.
        """
        fields = self.node["fields"]
        if name not in fields:
            declared = f"{name} of version {self.before.version}"
            raise MigrationError(missing_field(format_path(self.at(name)), declared, _VALIDATE))
        return fields[name]

    def inside(self, name: str) -> Place:
        """The struct that a field holds.

        Raises:
            MigrationError: NQX414: it holds something else.
        """
        node = self.field(name)
        if not STRUCT.matches(node):
            raise self.error(
                "NQX414", f"expected a struct, got {shown_node(node)}", name, hint=_VALIDATE
            )
        return Place(self.workspace, self.at(name), node, self.struct, self.before, self.after)

    def with_fields(self, fields: Mapping[str, Node]) -> Node:
        """The node of the instance with some fields replaced."""
        return {**self.node, "fields": {**self.node["fields"], **fields}}

    def swapped(self, leaving: tuple[str, ...], coming: Mapping[str, Node]) -> Node:
        """The node of the instance with some fields replaced by others.

        Args:
            leaving: Names of the fields that leave; the new ones take the place of the first, or come last.
            coming: The new fields.

        Raises:
            MigrationError: NQX415: there is a field of a new one's name.
        """
        fields: dict[str, Node] = {}
        for name, held in self.node["fields"].items():
            if leaving and name == leaving[0]:
                fields |= coming
            if name in leaving:
                continue
            if name in coming:
                version = self.before.version
                message = f"expected no stored field of this name in version {version}, got one"
                raise self.error("NQX415", message, name)
            fields[name] = held
        return {**self.node, "fields": fields if leaving else {**fields, **coming}}

    def each_array(self, name: str, change: Callable[[Node, Path], Node]) -> Node:
        """The instance with every array inside one field changed, also in lists, tuples and dicts.

        Args:
            name: The field.
            change: Called with the node of an array, spelled out or constant, and its path from the instance.
        """

        def changed(node: Node, _: Type, at: Path) -> Node:
            return change(node, at) if elements_of(node) else node

        declared = self.before.structs[self.struct].fields[name].declared
        return self.with_fields({name: map_leaves(self.field(name), declared, changed, (name,))})

    def known_size(self, extent: Expression) -> int | None:
        """The number that an extent is at this instance; None if no array in the payload fixes it."""
        found = self.sizes.size(extent)
        if found is None:  # the name may be one that came with a step before
            again = self.workspace.find_again(self.node, self.before)
            found = None if again is None else again.size(extent)
        return found

    @property
    def sizes(self) -> Solver:
        """The sizes that the instance sees."""
        return self.workspace.sizes(self.node, self.before)

    @property
    def lead(self) -> tuple[int, ...]:
        """The sizes of the axes in front of those that arrays of the instance declare; it is a stacked one if there are any."""
        if self.struct not in graph_of(self.before).stacked:
            return ()
        return tuple(map(self.size, self.sizes.axes))

    def size(self, extent: Expression, *parts: Hashable) -> int:
        """As :meth:`known_size`, for the field that needs the size, or a value inside it.

        Raises:
            MigrationError: NQX413: no array in the payload fixes it.
        """
        found = self.known_size(extent)
        if found is None:
            message = f"expected a payload that shows the size {extent.text}, got one that does not"
            why = "lists, dicts and arrays that show it in other payloads are empty or null in this one"
            raise self.error("NQX413", f"{message}\n{why}", *parts, hint=CHOOSES)
        return found

    def _size_for(self, name: str, extent: Expression) -> int:
        return self.size(extent, name)

    def value(self, name: str, value: Any, declared: Type | None = None) -> Node:
        """A plain value as the node that the field ``name`` has after the step.

        Args:
            name: The field.
            value: The value.
            declared: The type, if not that of the field.

        Raises:
            MigrationError: NQX107: it is no value of the type, or not of the sizes of this payload.
        """

        def store(dtype: str, array: np.ndarray) -> Node:
            made = computed(dtype, array.shape, lambda: array)
            return self.workspace.store(made, ("value", id(array)))

        declared = declared or self.after.structs[self.struct].fields[name].declared
        chosen = self.sizes.chosen if self.before.dtypes else {}  # sizes take a walk
        size = partial(self._size_for, name)
        builder = NodeBuilder(self.after, size=size, store=store, lead=self.lead, chosen=chosen)
        try:
            return read_value(value, declared, builder)
        except SchemaError as error:
            raise MigrationError(error.diagnostics) from None

    def shape(self, node: Node, *parts: Hashable) -> list[int]:
        """The shape of a node that is an array, spelled out or constant; without the leading axes of stacked instances.

        Raises:
            MigrationError: NQX411: it is of another kind.
        """
        if not elements_of(node):
            raise self.error("NQX411", f"expected an array, got {shown_node(node)}", *parts)
        return list(node.get("shape", ()))[len(self.lead) :]

    def load(self, node: Node) -> LazyArray:
        """The elements of an array node."""
        dtype, shape = node["dtype"], node.get("shape", ())
        if elements_of(node) != "stored":
            return computed(dtype, shape, lambda: constant(dtype, shape, node["value"]))
        name = node["name"]
        made = self.workspace.made.get(name)
        return self.workspace.arrays.lazy(name, dtype, shape) if made is None else made

    def identity(self, node: Node) -> tuple[Any, ...]:
        """A key that two array nodes share if their elements are known to be the same."""
        if elements_of(node) == "stored":
            return ("array", node["name"])
        return ("full", node["dtype"], tuple(node.get("shape", ())), repr(node["value"]))

    def derive(self, node: Node, operation: Operation) -> Node:
        """A new array made of one; its elements are computed when they are read.

        Args:
            node: The array, or a constant one, which stays constant.
            operation: The operation; of stacked instances that on the array of each of them.
        """
        operation = operation.behind(self.lead)
        shape = operation.shape(tuple(node.get("shape", ())))
        dtype = operation.dtype_of(node["dtype"])
        marks = marks_of(node, ("leaf", "weak_type") if dtype == node["dtype"] else ("leaf",))
        if elements_of(node) == "stored":
            array = self.load(node).changed(operation)
            return {**self.workspace.store(array, (operation, self.identity(node))), **marks}
        value = node["value"]
        if dtype != node["dtype"] and not all(shape):
            value = 0  # there is no element that the new dtype may not hold
        elif dtype != node["dtype"]:
            value = _single(operation.of(constant(node["dtype"], (1,), value)))
        if not FULL.matches(node) and not shape:  # a scalar of numpy
            return {**node, "dtype": dtype, "value": value}
        return {**FULL.node(dtype=dtype, shape=[*shape], value=value), **marks}


def computed(dtype: str, shape: Iterable[int], read: Thunk) -> LazyArray:
    """An array that a function returns."""
    return Part.of(ForeignArray(dtype, tuple(shape), read))


def constant(dtype: str, shape: Iterable[int], value: Node) -> np.ndarray:
    """An array of one number."""
    import numpy as np

    return np.full(tuple(shape), number_value(value), dtype_named(dtype))


def _single(array: np.ndarray) -> Node:
    """The node of the number in an array of one element."""
    one = array.astype("complex128") if array.dtype.kind == "c" else array
    value = number_node(one.tolist()[0])
    # The scalars of ml_dtypes have no plain form of their own.
    return value if isinstance(value, (bool, int, float, dict)) else number_node(float(value))


# ---------------------------------------------------------------------------------------------------------------------
# Entries inside one field, which the schema does not name: in dicts, Params, optimiser states, modules of other libraries.
# A path leads through dicts by key, through namedtuples and dataclasses by field, and through sequences and the children of
# registered classes by position. It starts at the field, or with ``of`` at every instance of a class in it.

#: The struct that has a dict of its own below its node; see ``params``.
_PARAMS = "neuralqx_struct.params:Params"

Change = Callable[[Node, Path], Node]


class Entry(NamedTuple):
    """The place of an entry: a member of a node, how that holds nodes, and the key in it."""

    member: str
    holds: str
    key: Any


def _entries(node: Node) -> dict[str, Entry]:
    """The entries of a node by their names in paths; none of a node that the schema describes."""
    found: dict[str, Entry] = {}
    for member, holds in _parts(node):
        held = node[member]
        if holds == ONE:
            found[member] = Entry(member, holds, None)
        elif holds == PAIRS:
            for at, (key, _) in enumerate(held):
                if isinstance(key, str):
                    found[key] = Entry(member, holds, at)
        else:
            keys = range(len(held)) if holds == MANY else held
            found |= {str(key): Entry(member, holds, key) for key in keys}
    return found


def _parts(node: Node) -> Sequence[tuple[str, str]]:
    kind = kind_of(node)
    if kind is None or kind.leaf or (STRUCT.matches(node) and is_schema_ref(node["type"])):
        return ()
    return parts_of(node)


def _child(node: Node, entry: Entry) -> Node:
    held = node[entry.member]
    if entry.holds == ONE:
        return held
    return held[entry.key][1] if entry.holds == PAIRS else held[entry.key]


def _replaced(node: Node, entry: Entry, child: Node) -> Node:
    if entry.holds == ONE:
        return {**node, entry.member: child}
    held = node[entry.member].copy()
    held[entry.key] = [held[entry.key][0], child] if entry.holds == PAIRS else child
    return {**node, entry.member: held}


def _without(node: Node, entry: Entry) -> Node:
    held = node[entry.member].copy()
    del held[entry.key]
    return {**node, entry.member: held}


def _extended(node: Node, key: str, child: Node) -> Node | None:
    """The node with one entry more; None if it takes none of that name."""
    for member, holds in _parts(node):
        held = node[member]
        if holds == PAIRS:
            return {**node, member: [*held, [key, child]]}
        if holds == FIELDS:
            return {**node, member: {**held, key: child}}
        if holds == MANY and key.isdecimal() and len(key) < 9 and int(key) <= len(held):
            return {**node, member: [*held[: int(key)], child, *held[int(key) :]]}
    return None


def is_params(node: Node) -> bool:
    """True for Params, whose entries are those of one dict below the node."""
    return STRUCT.matches(node) and bool(node["type"] == _PARAMS)


def _open(node: Node, at: Path, change: Change) -> Node:
    """The node with a change to the one that has its entries, which may be one right below it."""
    if is_params(node):
        inner = change(node["fields"]["tree"], (*at, FieldName("tree")))
        return {**node, "fields": {**node["fields"], "tree": inner}}
    kind = kind_of(node)
    inline = "" if kind is None else kind.inline
    if inline and (inline, ONE) in _parts(node):
        return {**node, inline: change(node[inline], at)}
    return change(node, at)


def _found(node: Node, key: str, place: Place, at: Path) -> Entry:
    """An entry of a node.

    Raises:
        EntryError: NQX414: it has none of that name.
    """
    entries = _entries(node)
    if not entries and not _parts(node):
        message = f"expected a dict, a list or an instance of a class, got {shown_node(node)}"
        raise place.entry_error("NQX414", message, *at, hint=TAKES)
    if key not in entries:
        hint = did_you_mean(key, entries) or TAKES
        raise place.entry_error("NQX414", "expected a stored entry, got none", *at, key, hint=hint)
    return entries[key]


def entry_at(node: Node, keys: tuple[str, ...], place: Place, at: Path) -> Node:
    """The node at a path; raises EntryError NQX414 if there is none."""
    found: list[Node] = []

    def look(node: Node, at: Path) -> Node:
        found.append(_child(node, _found(node, keys[0], place, at)))
        return node

    _open(node, at, look)
    return found[0] if len(keys) == 1 else entry_at(found[0], keys[1:], place, (*at, keys[0]))


def taken(
    node: Node, keys: tuple[str, ...], place: Place, at: Path, *, flat: bool = False
) -> tuple[Node, Node]:
    """The value at a path, and the node without it.

    Args:
        node: The node.
        keys: The path.
        place: The struct instance.
        at: The path of the node.
        flat: Drop the dicts that the value leaves empty: inside of Params, whose parameters alone have paths.
    """
    moved: list[Node] = []
    flat = flat or is_params(node)

    def take(node: Node, at: Path) -> Node:
        head, *rest = keys
        entry = _found(node, head, place, at)
        child = _child(node, entry)
        if not rest:
            moved.append(child)
            return _without(node, entry)
        inner, left = taken(child, tuple(rest), place, (*at, head), flat=flat)
        moved.append(inner)
        if flat and holds_only(left, ()):
            return _without(node, entry)
        return _replaced(node, entry, left)

    left = _open(node, at, take)
    return moved[0], left


def holds_only(node: Node, keys: tuple[str, ...]) -> bool:
    """True for a plain dict that holds nothing but dicts, one in another, under these keys."""
    if not DICT.matches(node) or len(node["items"]) != len(keys[:1]):
        return False
    return not keys or holds_only(node["items"][0][1], keys[1:])


def put(node: Node, keys: tuple[str, ...], child: Node, place: Place, at: Path) -> Node:
    """The node with a value at a path where there was none; raises NQX414 and NQX415."""

    def insert(node: Node, at: Path) -> Node:
        head, *rest = keys
        entries = _entries(node)
        entry = entries.get(head)
        if rest and entry is not None:
            made = put(_child(node, entry), tuple(rest), child, place, (*at, head))
            return _replaced(node, entry, made)
        if entry is not None and entry.holds != MANY:
            raise place.entry_error(
                "NQX415", "expected no stored entry there, got one", *at, head, hint=TAKES
            )
        made = child
        if rest:
            if not any(holds == PAIRS for _, holds in _parts(node)):
                _found(node, head, place, at)
            made = put(DICT.node(items=[]), tuple(rest), child, place, (*at, head))
        extended = _extended(node, head, made)
        if extended is None:
            _found(node, head, place, at)
        return extended

    return _open(node, at, insert)


def at_each(step: RenamePath | Add | Remove, place: Place, change: Change) -> Node:
    """The instance with a change to the value of the step's field, or to every instance of a class in it."""
    held = place.field(step.field)
    if held is None:
        return place.node
    if step.of is None:
        return place.with_fields({step.field: change(held, (step.field,))})
    tree = [copied(held)] if isinstance(held, dict) else [held]
    inside = [*iter_nodes(tree[0])]
    instances = [(path, node) for path, node in inside if _is_instance(node, step.of)]
    if not instances:
        classes = dict.fromkeys(
            node["type"].rpartition(":")[2] for _, node in inside if _has_class(node)
        )
        got = ", ".join([*classes][:8]) or "none"
        hint = did_you_mean(step.of, classes) or "name one of the classes of the values"
        message = f"expected instances of {step.of}, got {got}"
        raise place.entry_error("NQX414", message, step.field, hint=hint)
    for path, node in reversed(instances):
        made = change(node, (step.field, *path))
        node.clear()
        node.update(made)
    return place.with_fields({step.field: tree[0]})


def _has_class(node: Node) -> bool:
    """True if a node is an instance of a class that the schema does not describe."""
    return kind_of(node) is not None and bool(_parts(node)) and "type" in node


def _is_instance(node: Node, name: str) -> bool:
    """True if a node is an instance of a class, named with or without its module."""
    return _has_class(node) and name in (node["type"], node["type"].rpartition(":")[2])
