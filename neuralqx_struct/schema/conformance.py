"""Conformance: whether a value has the type that a schema declares, and whether all its sizes agree.

One walk serves manifests that were never turned into values and instances under construction: a reader turns a node or a
live value into a :class:`~neuralqx_struct.schema.conformance.Seen`, and the records of types check it.

Owns :class:`Seen` and the reader of manifest nodes :func:`see_node`; ``conditions.py`` checks constraints.

Example:
    >>> see_node({"__kind__": "array", "name": "w", "dtype": "float32", "shape": [3]}).text
    'float32[3]'
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

from neuralqx_struct.dtypes import DTYPES
from neuralqx_struct.errors import Diagnostic, SchemaError, SerializationError, ValidationError
from neuralqx_struct.expressions import Expression
from neuralqx_struct.expressions.evaluation import evaluate
from neuralqx_struct.expressions.exact import number_of, numbers_in, plain_number
from neuralqx_struct.expressions.functions import Items, is_array, items_of
from neuralqx_struct.expressions.grammar import head_of
from neuralqx_struct.manifest.kinds import KINDS, STRUCT, Node
from neuralqx_struct.matching import match, missing_field, unknown_field
from neuralqx_struct.paths import FieldName, format_path
from neuralqx_struct.printing import brief_array, brief_scalar
from neuralqx_struct.references import SchemaRef
from neuralqx_struct.schema.bounds import is_limited, length_misses, scalar_misses
from neuralqx_struct.schema.conditions import (
    ENTRIES,
    Inside,
    Instance,
    NeedsDataError,
    Shaped,
    Stored,
    Values,
    failures,
)
from neuralqx_struct.schema.field_paths import given_values
from neuralqx_struct.schema.model import Document, FieldDeclaration, StructDeclaration, once
from neuralqx_struct.schema.results import as_declared
from neuralqx_struct.schema.sizes import ANY_SIZE
from neuralqx_struct.schema.sizes.scopes import int_fields
from neuralqx_struct.schema.sizes.solver import Solver
from neuralqx_struct.schema.stacks import Axes, inner_axes, names_inside
from neuralqx_struct.types import Extent, Type, type_of_class, walk_type
from neuralqx_struct.types.arrays import DtypeHint
from neuralqx_struct.types.scalars import scalar_of_kind
from neuralqx_struct.types.text import format_type


class Seen(NamedTuple):
    """One value, live or stored.

    Attributes:
        sort: ``array``, ``key``, ``null``, ``scalar``, ``list``, ``tuple``, ``dict``, ``struct`` or ``other``.
        name: Its name in messages; empty if :attr:`text` makes it from the rest.
        dtype: Of arrays; the implementation of keys.
        shape: Of arrays and keys.
        value: Of scalars, and of arrays for expressions: the value itself or a :class:`Shaped`.
        single: Of numpy's scalars, which are arrays without axes: the number or text as Python has it.
        type_name: Of scalars: bool, int, float, complex, str, bytes, path or dtype.
        refs: Of structs: the class references of its class and of schema-made base classes.
        items: Of collections and structs: the values inside, by key.
        loose: True if 64-bit dtypes may have been narrowed (under JAX tracing).
    """

    sort: str
    name: str
    dtype: str = ""
    shape: tuple[int, ...] = ()
    value: Any = None
    single: Any = None
    type_name: str = ""
    refs: tuple[str, ...] = ()
    items: Mapping[Any, Any] = MappingProxyType({})
    loose: bool = False

    @property
    def text(self) -> str:
        """Its name in messages, which few values need."""
        if self.name:
            return self.name
        if self.sort == "struct":
            return self.refs[0].rpartition(":")[2]
        return brief_scalar(self.value) if self.sort == "scalar" else brief_array(self)

    @property
    def held(self) -> Any:
        """The number or text of a scalar, also of numpy's, as Python has it; None for other values."""
        return self.value if self.sort == "scalar" else self.single


Reader = Callable[[Any], Seen]

# ---------------------------------------------------------------------------------------------------------------------
# Reading manifest nodes.


_NULL = Seen("null", "null")


def see_node(node: Any, arrays: Mapping[str, Any] | None = None) -> Seen:
    """Reads a manifest node, but no bytes of arrays.

    Args:
        node: The node.
        arrays: The arrays by name, for expressions that need their numbers; each is read when one does.
    """
    if node is None:
        return _NULL
    if not isinstance(node, dict):
        return Seen("scalar", "", value=node, type_name=type(node).__name__)
    kind = KINDS[node["__kind__"]]
    name = f"a {kind.tag}"
    match kind.sort:
        case "array":
            dtype, shape = node["dtype"], tuple(node["shape"])
            value = Shaped(dtype, shape)
            if arrays is not None and node.get("name") in arrays:
                value = Stored(dtype, shape, partial(arrays.__getitem__, node["name"]))
            return Seen("array", "", dtype, shape, value)
        case "number":  # of numpy; it is an array without axes, as it is in memory
            return _see_number(node)
        case "key":
            return _see_key(node)
        case "name":
            return Seen("scalar", repr(node["name"]), value=node["name"], type_name=kind.tag)
        case "list" | "tuple":
            return Seen(kind.sort, name, items=dict(enumerate(node["items"])))
        case "dict":
            named = all(isinstance(key, str) for key, _ in node["items"])
            return Seen("dict", "a dict", items=dict(node["items"])) if named else _OTHER_KEYS
        case "struct":
            return Seen("struct", "", refs=(node["type"],), items=node["fields"])
    scalar = scalar_of_kind(kind.tag)
    if scalar is None:
        return Seen("other", name)
    try:
        return Seen("scalar", name, value=scalar.stored(node), type_name=scalar.name)
    except (SerializationError, ValueError):
        return Seen("other", f"{name} that cannot be read")


_OTHER_KEYS = Seen("other", "a dict with keys that are not str")


def _see_number(node: Node) -> Seen:
    dtype, value = node["dtype"], see_node(node["value"]).value
    is_plain = dtype in DTYPES or isinstance(value, (str, bytes))  # dates are stored as numbers
    text = brief_scalar(value) if isinstance(value, (str, bytes)) else ""
    return Seen("array", text, dtype, (), value, value if is_plain else None)


def _see_key(node: Node) -> Seen:
    words = node["data"]
    text = f"prng_key[{node['impl']}]"
    if words["dtype"] != "uint32":
        return Seen("other", f"{text} of {words['dtype']} numbers")
    return Seen("key", text, node["impl"], tuple(words["shape"][:-1]))


def see_result(value: Any) -> Seen:
    """Reads what an expression is."""
    if value is None:
        return _NULL
    inside = items_of(value)
    if inside is not None:
        sort = next(each for each in ("dict", "list", "tuple") if isinstance(value, _SORTS[each]))
        items = value if sort == "dict" else dict(enumerate(inside))
        return Seen(sort, f"a {sort} of {len(inside)}", items=items)
    if is_array(value):
        return Seen("array", "", str(value.dtype), tuple(value.shape), value)
    kind: Any = type(value)
    record = type_of_class(kind)
    if record is None:
        return Seen("other", f"a {type(value).__name__}")
    return Seen("scalar", "", value=value, type_name=record.sort)


_SORTS = {"dict": dict, "list": list, "tuple": tuple}


def _wrong_result(
    document: Document, declaration: FieldDeclaration, value: Any
) -> list[Diagnostic]:
    """The problem of a derived field whose value is not of its type."""
    value = tuple(value.values) if type(value) is Items else value
    value = plain_number(value) if declaration.kind == "static" else value
    try:
        as_declared(document, declaration, see_result)(value)
    except ValidationError as error:
        return [*error.diagnostics]
    return []


def _limited(seen: Seen, axes: Axes) -> Sequence[Any]:
    """The values that the limits of a field compare: a scalar, or the numbers of an array without axes of its own.

    They may be unknown, as those of arrays in manifests; then there are none.
    """
    if seen.sort == "scalar":
        return (seen.value,)
    if seen.sort != "array" or len(seen.shape) not in (0, len(axes)):
        return ()
    if seen.single is not None:
        return (number_of(seen.single, seen.dtype),)
    if isinstance(seen.value, Shaped):
        seen.value.asked = True
        return ()
    return numbers_in(seen.value)


Path = tuple[Hashable, ...]

_DECLARE = "give a value of the declared type, or declare the type that it has"
_SUBCLASS = "a subclass that adds fields is no struct of the schema; add them to the schema, or keep them beside it"


def conform(
    document: Document,
    struct: str,
    value: Any,
    read: Reader,
    *,
    closed: bool = True,
    inside: Inside | None = None,
) -> list[Diagnostic]:
    """Checks types, sizes and constraints of a value against a struct of a document.

    Args:
        document: The schema.
        struct: Name of the struct that ``value`` must be.
        value: A manifest node, or whatever ``read`` understands.
        read: Turns a value into a :class:`~neuralqx_struct.schema.conformance.Seen`.
        closed: Whether fields that the struct does not declare are a problem, and derived fields without a value.
        inside: Returns the values inside an object of another library, or None.

    Returns:
        All problems, with paths that start at ``$``, the value.
    """
    return _findings(_Walk(document, read, closed=closed, inside=inside), struct, value)


def _findings(walk: _Walk, struct: str, value: Any) -> list[Diagnostic]:
    walk.outermost(struct, value)
    values = walk.values(walk.scopes, numbers=walk.numbers)
    found = [*walk.found, *walk.dims.solve()]
    # Of an object, its constructor computes them.
    derived = _wrong_result if walk.closed and not found else None
    return [*found, *failures(values, walk.constrained, derived=derived)]


def conform_node(
    document: Document, root: Node, arrays: Mapping[str, Any] | None = None
) -> list[Diagnostic]:
    """Checks a struct node as loads do, with the structs in its pytrees, each of which is an instance tree of its own.

    Args:
        document: The schema; structs of those that it uses are checked too.
        root: The node, of one of its structs.
        arrays: The arrays by name, if constraints on their numbers are checked too; each is read where one needs it.

    Returns:
        As :func:`conform`.
    """
    documents = {(each.id, each.version): each for each in document.closure()}
    read: Reader = see_node
    if arrays is not None and any(_reads_values(each) for each in documents.values()):
        read = partial(see_node, arrays=arrays)
    found: list[Diagnostic] = []
    known = set[Path]()
    # Without a pytree the walk from the root sees all structs; a search for them takes time in a large manifest.
    inside = any(_has_pytrees(each) for each in documents.values())
    for path, node in STRUCT.within(root) if inside else [((), root)]:
        ref = SchemaRef.parse(node["type"])
        owner = None if ref is None or path in known else documents.get(ref[:2])
        if ref is None or owner is None:
            continue
        if ref.name not in owner.structs:
            message = f"expected a struct of {ref.id} version {ref.version}, got {ref.name!r}"
            found.append(Diagnostic("NQX411", "error", message, format_path(path)))
            continue
        walk = _Walk(owner, read, closed=True, numbers=arrays is not None)
        problems = _findings(walk, ref.name, node)
        place = format_path(path)
        found += (dataclasses.replace(d, path=place + d.path.removeprefix("$")) for d in problems)
        known |= {(*path, *inner) for inner in walk.scopes}
    return found


@once
def _has_pytrees(document: Document) -> bool:
    fields = (field for struct in document.structs.values() for field in struct.stored.values())
    return any(inner.takes_all for field in fields for inner in walk_type(field.declared))


@once
def _reads_values(document: Document) -> bool:
    """True if an expression may read the values of fields."""
    return any(struct.constraints or struct.derivations for struct in document.structs.values())


def size_scopes(
    document: Document, struct: str, value: Any, read: Reader, axes: Axes = ()
) -> dict[Path, Solver]:
    """The sizes that each instance of a valid value sees, by its path; sizes of one are not those of another.

    Args:
        document: As for :func:`conform`, like the next two.
        struct: Name of the struct.
        value: The value.
        read: Its reader.
        axes: The axes that arrays have in front of those that they declare, as in stacked instances.
    """
    walk = _Walk(document, read, closed=False)
    walk.outermost(struct, value, axes)
    walk.dims.solve()
    return walk.scopes


class _Field(NamedTuple):
    """A field as values of it are checked."""

    name: FieldName
    declaration: FieldDeclaration
    checked: bool
    limited: bool


@once
def _fields(document: Document) -> dict[str, list[_Field]]:
    """The fields of each struct."""
    return {
        name: [
            _Field(
                FieldName(key), each, each.type is not None and not each.derived, is_limited(each)
            )
            for key, each in struct.fields.items()
        ]
        for name, struct in document.structs.items()
    }


class _Walk:
    """One check of one instance tree."""

    def __init__(
        self,
        document: Document,
        read: Reader,
        *,
        closed: bool,
        numbers: bool = False,
        inside: Inside | None = None,
    ) -> None:
        self.document = document
        self.values = partial(Values, document, read, inside=inside)
        self.numbers = numbers
        self.read = read
        self.closed = closed
        self.found: list[Diagnostic] = []
        self.dims = Solver(document.dims)
        self.scopes: dict[Path, Solver] = {}
        self.constrained: list[Instance] = []
        self.chosen: dict[str, tuple[str, Path]] = {}  # dtype and first array of each choice

    def report(self, code: str, path: Path, message: str, hint: str | None = None) -> None:
        """Adds a problem."""
        self.found.append(Diagnostic(code, "error", message, path=format_path(path), hint=hint))

    def outermost(self, struct: str, value: Any, axes: Axes = ()) -> None:
        """Checks the value that contains all others."""
        free = dict.fromkeys(self.document.structs[struct].params, ANY_SIZE)
        dims = self.dims.scope(free) if free else self.dims  # parameters hide dims of the same name
        self.struct(struct, self.read(value), (), dims, axes, outermost=True)

    def struct(
        self,
        name: str,
        seen: Seen,
        path: Path,
        dims: Solver,
        axes: Axes = (),
        *,
        outermost: bool = False,
    ) -> None:
        """Checks a struct whose arrays have ``axes`` in front; ``outermost`` if no struct of the document is around it."""
        declaration, wanted = self.document.structs[name], self.document.ref(name)
        # A subclass may add fields only at the root.
        if seen.sort != "struct" or wanted not in (seen.refs[:1] if path else seen.refs):
            got = seen.refs[0] if seen.refs else seen.text
            advice = _SUBCLASS if wanted in seen.refs else _DECLARE
            code = "NQX412" if seen.sort == "array" else "NQX411"
            self.report(code, path, f"expected a struct {wanted}, got {got}", advice)
            return
        self.scopes[path] = dims
        dims.axes, dims.chosen = axes, self.chosen
        is_root = outermost and name == self.document.root
        sizes = int_fields(self.document) if is_root else {}
        items, read = seen.items, self.read
        for field in _fields(self.document)[name]:
            field_name = field.name
            where = (*path, field_name)
            if field_name not in items:
                continue
            here = read(items[field_name])
            if field.checked:
                self.field(field, here, where, dims, axes)
            if field_name in sizes and type(here.held) is int:
                dims.know(field_name, here.held, format_path(where))
        if is_root:
            self.know_values(declaration, seen, dims)
        if self.closed and items.keys() != declaration.fields.keys():
            self.names(name, seen, path)
        if declaration.constraints or (self.closed and declaration.derivations):
            self.constrained.append(Instance(self.document, declaration, seen, path, dims, axes))

    def names(self, struct: str, seen: Seen, path: Path) -> None:
        """Reports the fields that a struct lacks, and those that are not declared."""
        fields = self.document.structs[struct].fields
        names = match(seen.items, fields)
        for name in names.having("missing", "extra"):
            if name in fields and not fields[name].stored:
                continue
            at = format_path((*path, FieldName(name)))
            hint = names.meant(name, len(self.found))
            if name in fields:
                self.found.append(missing_field(at, f"{name}: {fields[name].text}", hint))
            else:
                self.found.append(unknown_field(at, name, struct, hint))

    def know_values(self, declaration: StructDeclaration, seen: Seen, dims: Solver) -> None:
        """Gives equations the values that the fields of the root have for them."""
        given = given_values(self.document)
        if not given:
            return
        names = self.values({}).names(declaration, seen, ())
        for name, expression in given.items():
            with contextlib.suppress(NeedsDataError, SchemaError):
                value = evaluate(expression, names)
                if type(value) is int:
                    dims.know(name, value, f"$.{name}" if head_of(name).isidentifier() else name)

    def field(self, field: _Field, seen: Seen, path: Path, dims: Solver, axes: Axes) -> None:
        """Checks type and bounds of a field."""
        before, declaration = len(self.found), field.declaration
        declared = declaration.declared
        if axes and declaration.kind == "node":
            declared = declared.with_axes(axes)
        self.value(declared, seen, path, dims)
        if len(self.found) > before or not field.limited:
            return
        if seen.sort in ENTRIES:
            misses = length_misses(declaration, len(seen.items), ENTRIES[seen.sort])
        else:
            each = (scalar_misses(declaration, one) for one in _limited(seen, axes))
            misses = next(filter(None, each), [])
        for message in misses:
            self.report("NQX416", path, message)

    def value(self, declared: Type, seen: Seen, path: Path, dims: Solver) -> None:
        """Checks a value of a type."""
        declared.check(self, seen, path, dims)

    def mismatch(
        self, declared: Type, seen: Seen, path: Path, code: str = "NQX411", hint: str = _DECLARE
    ) -> None:
        """Reports a value of another type."""
        message = f"expected {format_type(declared)}, got {seen.text}"
        if seen.sort == "array":
            hint = DtypeHint(hint, seen.dtype)
        self.report(code, path, message, hint if code == "NQX411" else None)

    def unify(
        self,
        dims: Solver,
        declared: tuple[Extent, ...],
        shape: tuple[int, ...],
        path: Path,
        text: str,
    ) -> None:
        """Compares a declared shape with that of a value."""
        if not dims.confirms(declared, shape):  # most arrays show sizes that others have shown
            self.found += dims.unify(declared, shape, format_path(path), text)

    def inner_struct(
        self,
        owner: Document,
        name: str,
        seen: Seen,
        path: Path,
        dims: Solver,
        bound: Mapping[str, Expression],
        axes: Axes = (),
    ) -> None:
        """Checks a struct inside another; one of another document has dims of its own."""
        if axes:
            given, axes = inner_axes(axes, names_inside(owner, name))
            bound = {**bound, **given}
        document = self.document
        if owner is document:
            self.struct(name, seen, path, dims.scope(bound), axes)
            return
        chosen = self.chosen
        self.document, self.chosen = owner, {}
        self.struct(name, seen, path, dims.scope(bound, owner.dims), axes, outermost=True)
        self.document, self.chosen = document, chosen
