"""Conformance: does a value have the type that a schema declares, and do all its sizes agree?

One walk serves both places where the question comes up: a manifest that was never turned into values (``validate``,
migrations; read by ``seen.py``) and an instance under construction (``compiler.py`` brings its own
reader). A reader turns whatever stands at a place into a ``Seen``. The table ``_CHECKS`` has one row per type.

Example:
    >>> see_node({"__kind__": "array", "name": "w", "dtype": "float32", "shape": [3]}).text
    'float32[3]'
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Callable, Hashable, Mapping
from typing import Any

from neuralqx_struct.errors import Diagnostic, SchemaError, did_you_mean
from neuralqx_struct.paths import FieldName, format_path
from neuralqx_struct.schema.bounds import length_misses, scalar_misses, shown_scalar
from neuralqx_struct.schema.dims import Dim, Solver
from neuralqx_struct.schema.evaluation import evaluate, evaluate_tree
from neuralqx_struct.schema.expressions import Expression
from neuralqx_struct.schema.model import Constraint, Document, FieldDeclaration, StructDeclaration
from neuralqx_struct.schema.seen import NeedsDataError, Reader, Seen, Shaped, see_node
from neuralqx_struct.schema.syntax import format_tree
from neuralqx_struct.schema.types import (
    DTYPES,
    Array,
    DictOf,
    Key,
    ListOf,
    LiteralOf,
    Named,
    Null,
    PyTree,
    Scalar,
    TupleOf,
    Type,
    Union,
    format_type,
)

__all__ = ["Condition", "Reader", "Seen", "Shaped", "conform", "see_node", "shown_scalar"]

# ---------------------------------------------------------------------------------------------------------------------
# The walk.


def conform(document: Document, struct: str, value: Any, read: Reader, *, closed: bool = True) -> list[Diagnostic]:
    """Check a value against a struct of a document: types, sizes, constraints; everything that is wrong at once.

    Args:
        document: The schema.
        struct: Name of the struct that ``value`` must be.
        value: A manifest node, or whatever ``read`` understands.
        read: Turns what stands at a place into a :class:`Seen`.
        closed: Whether fields that the struct does not declare are a problem.

    Returns:
        Diagnostics with paths that start at ``$``, the value.
    """
    walk = _Walk(document, read, closed=closed)
    walk.struct(struct, read(value), (), walk.dims, outermost=True)
    return [*walk.found, *walk.dims.solve(), *walk.constraints()]


def _dims_of(document: Document) -> dict[str, Dim]:
    return {name: Dim(name, d.min, d.max, d.equation, d.doc) for name, d in document.dims.items()}


class _Walk:
    """One check of one instance tree."""

    def __init__(self, document: Document, read: Reader, *, closed: bool) -> None:
        self.document = document
        self.read = read
        self.closed = closed
        self.found: list[Diagnostic] = []
        self.dims = Solver(_dims_of(document))
        self._conditions: list[tuple[StructDeclaration, Mapping[str, Any], tuple[Hashable, ...], Solver]] = []

    def report(self, code: str, path: tuple[Hashable, ...], message: str, hint: str | None = None) -> None:
        self.found.append(Diagnostic(code, "error", message, path=format_path(path), hint=hint))

    def struct(
        self, name: str, seen: Seen, path: tuple[Hashable, ...], dims: Solver, *, outermost: bool = False
    ) -> None:
        """Check one struct of the document; ``outermost``: nothing of the document is around it."""
        declaration = self.document.structs[name]
        # Inside another struct, only what is saved as this struct is one; at the root a subclass may add to it.
        wanted = self.document.ref(name)
        if seen.sort != "struct" or wanted not in (seen.refs[:1] if path else seen.refs):
            got = seen.refs[0] if seen.refs else seen.text
            hint: str | None = "give a value of the declared type, or declare the type that it has"
            if wanted in seen.refs:
                hint = "a subclass that adds fields is no struct of the schema; add them to the schema, or keep them beside it"
            self.report(
                "NQX412" if seen.sort == "array" else "NQX411",
                path,
                f"expected a struct {wanted}, got {got}",
                hint,
            )
            return
        values: dict[str, Any] = {}
        for field_name, field_declaration in declaration.fields.items():
            if field_name not in seen.items:
                if field_declaration.stored and self.closed:
                    hint = did_you_mean(field_name, [str(n) for n in seen.items if n not in declaration.fields])
                    self.report(
                        "NQX414",
                        (*path, FieldName(field_name)),
                        f"expected {field_declaration.text}, got nothing",
                        hint,
                    )
                continue
            here = self.read(seen.items[field_name])
            if field_name in declaration.compared:
                values[field_name] = _known(self.read, here)
            where = (*path, FieldName(field_name))
            self.field(field_declaration, here, where, dims)
            if outermost and field_declaration.kind == "static" and isinstance(here.value, int):
                dims.know(field_name, here.value, format_path(where))
        for unknown in seen.items if self.closed else ():
            if unknown not in declaration.fields:
                hint = did_you_mean(str(unknown), declaration.fields)
                self.report("NQX415", (*path, unknown), f"expected a field of {name}, got {str(unknown)!r}", hint)
        if declaration.constraints:
            self._conditions.append((declaration, values, path, dims))

    def field(self, declaration: FieldDeclaration, seen: Seen, path: tuple[Hashable, ...], dims: Solver) -> None:
        if declaration.type is None or declaration.derived is not None:
            return
        before = len(self.found)
        self.value(declaration.declared, seen, path, dims)
        if len(self.found) == before and seen.sort == "scalar":
            for message in scalar_misses(declaration, seen.value):
                self.report("NQX416", path, message)
        elif len(self.found) == before and seen.sort in _ENTRIES:
            for message in length_misses(declaration, len(seen.items), _ENTRIES[seen.sort]):
                self.report("NQX416", path, message)

    def value(self, declared: Type, seen: Seen, path: tuple[Hashable, ...], dims: Solver) -> None:
        _CHECKS[type(declared)](self, declared, seen, path, dims)

    def mismatch(self, declared: Type, seen: Seen, path: tuple[Hashable, ...], code: str = "NQX411") -> None:
        hint = None
        if code == "NQX411":
            is_list = isinstance(declared, Array) and seen.sort in ("list", "tuple")
            what = "make it an array of that dtype" if is_list else "give a value of the declared type"
            hint = f"{what}, or declare the type that it has"
        self.report(code, path, f"expected {format_type(declared)}, got {seen.text}", hint)

    def constraints(self) -> list[Diagnostic]:
        found: list[Diagnostic] = []
        for declaration, values, path, dims in self._conditions:
            known = {name: binding.size for name, binding in dims.sizes().items()} | dict(values)
            for constraint in declaration.constraints:
                for name in constraint.expression.names:
                    _derive(declaration, name, known)
                verdict = _holds(constraint.expression, known)
                if isinstance(verdict, str):
                    reads = _read_by(constraint.expression, known) or "a value that fails it"
                    message = f"expected {constraint.expression.text}, got {reads}{verdict}"
                    found.append(
                        Diagnostic("NQX416", "error", message, path=format_path(path), hint=constraint.message or None)
                    )
        return found


def _known(read: Reader, seen: Seen, depth: int = 0) -> Any:
    """What expressions know of a value; None where they can say nothing, as of lists inside themselves."""
    if depth > _DEEPEST:
        return None
    match seen.sort:
        case "scalar" | "array":
            return seen.value
        case "list" | "tuple":
            items = [_known(read, read(item), depth + 1) for item in seen.items.values()]
            return items if seen.sort == "list" else tuple(items)
        case "dict":
            return {key: _known(read, read(item), depth + 1) for key, item in seen.items.items()}
        case "struct" | "key" | "other":
            return Shaped("", seen.shape)
        case _:
            return None


def _derive(declaration: StructDeclaration, name: str, known: dict[str, Any]) -> None:
    """Add the value of a derived field, as far as it can be computed here; payloads do not hold it."""
    field_declaration = declaration.fields.get(name)
    expression = None if field_declaration is None else field_declaration.derivation
    if expression is None or name in known:
        return
    known[name] = None  # until it is known, and where it needs itself
    for inner in expression.names:
        _derive(declaration, inner, known)
    if all(known.get(inner) is not None for inner in expression.names):
        with contextlib.suppress(NeedsDataError, SchemaError):  # told of where the field itself is read
            known[name] = evaluate(expression, known)


def _holds(expression: Expression, known: Mapping[str, Any]) -> bool | str:
    """True if the condition holds or cannot be decided here; else what to add to the message."""
    if any(name not in known or known[name] is None for name in expression.names):
        return True
    try:
        verdict = evaluate(expression, known)
        if getattr(verdict, "shape", ()) and verdict.size != 1:
            return f"\n{expression.text} says something of each element; write all({expression.text})"
        return bool(verdict) or ""
    except NeedsDataError:
        return True
    except SchemaError as error:
        return f"\n{error.diagnostics[0].message}"


class Condition:
    """One constraint of a struct, to be asked of one instance after the other whose types and sizes are sound.

    Args:
        declaration: The struct.
        constraint: One of its constraints.
        read: Reads the values of fields.
    """

    __slots__ = ("_declaration", "_read", "expression", "fields", "names")

    def __init__(self, declaration: StructDeclaration, constraint: Constraint, read: Reader) -> None:
        self._declaration, self.expression, self._read = declaration, constraint.expression, read
        names: set[str] = set()
        todo = [*constraint.expression.names]
        while todo:
            name = todo.pop()
            if name not in names:
                names.add(name)
                derivation = declaration.fields[name].derivation if name in declaration.fields else None
                todo += derivation.names if derivation is not None else ()
        derived = {
            name for name in names if name in declaration.fields and declaration.fields[name].derived is not None
        }
        #: All that has to be known: fields that are not derived, and sizes.
        self.names = frozenset(names - derived)
        #: Those of them that are fields.
        self.fields = self.names & declaration.fields.keys()

    def __call__(self, fields: Mapping[str, Any], sizes: Mapping[str, int | None]) -> bool:
        """True if it holds, or if nobody could decide it, as of tracers.

        Args:
            fields: The values of :attr:`fields`.
            sizes: All other :attr:`names`; None for a size that the instance does not show.
        """
        if None in sizes.values():  # what is around the instance may show it
            return False
        known: dict[str, Any] = {name: _known(self._read, self._read(value)) for name, value in fields.items()}
        known = {**sizes, **known}
        for name in self.expression.names:
            _derive(self._declaration, name, known)
        return _holds(self.expression, known) is True


def _read_by(expression: Expression, known: Mapping[str, Any]) -> str:
    """The numbers that a condition compared: its names that are some, and what it counted or reduced to one."""
    shown: dict[str, str] = {}
    for node in ast.walk(expression.tree):
        if isinstance(node, ast.Name) and isinstance(known.get(node.id), (int, float, str)):
            shown[node.id] = shown_scalar(known[node.id])
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _NUMBERING:
            with contextlib.suppress(NeedsDataError, SchemaError):
                value = evaluate_tree(node, known)
                shown[format_tree(node)] = shown_scalar(value) if isinstance(value, (int, float, tuple)) else str(value)
    return ", ".join(f"{text} = {value}" for text, value in sorted(shown.items()))


#: Functions whose result says more than that the condition fails.
_NUMBERING = ("len", "size", "shape", "ndim", "min", "max", "sum")

_DEEPEST = 20  # containers inside containers that expressions see

#: What the length of a container counts.
_ENTRIES = {"list": "items", "tuple": "items", "dict": "entries"}


# ---------------------------------------------------------------------------------------------------------------------
# One row per type: (walk, declared, seen, path, dims).

Check = Callable[[_Walk, Any, Seen, tuple[Hashable, ...], Solver], None]

#: JAX without x64 holds these in half the bits.
_NARROWED = {"int64": "int32", "uint64": "uint32", "float64": "float32", "complex128": "complex64"}


def _same_dtype(declared: str, seen: Seen) -> bool:
    return seen.dtype == declared or (seen.loose and seen.dtype == _NARROWED.get(declared))


def _check_array(walk: _Walk, declared: Array, seen: Seen, path: tuple[Hashable, ...], dims: Solver) -> None:
    if seen.sort != "array":
        walk.mismatch(declared, seen, path)
        return
    if not _same_dtype(declared.dtype, seen):
        hint = f"convert it with astype({declared.dtype!r})" if seen.dtype in DTYPES else None
        walk.report("NQX411", path, f"expected {format_type(declared)}, got {seen.text}", hint)
    walk.found += dims.unify(declared.shape, seen.shape, format_path(path), seen.dtype)


def _check_key(walk: _Walk, declared: Key, seen: Seen, path: tuple[Hashable, ...], dims: Solver) -> None:
    if seen.sort != "key" or declared.impl not in (None, seen.dtype):
        walk.mismatch(declared, seen, path, "NQX420")
        return
    walk.found += dims.unify(declared.shape, seen.shape, format_path(path), "prng_key")


#: Which scalars and which array dtypes without axes stand for a scalar; jit turns Python numbers into such arrays.
_ACCEPTS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "bool": (("bool",), ("bool",)),
    "int": (("int",), ("integer", "unsigned")),
    "float": (("float", "int"), ("floating",)),
    "complex": (("complex", "float", "int"), ("complex",)),
    "str": (("str",), ()),
    "bytes": (("bytes",), ()),
    "path": (("path",), ()),
    "dtype": (("dtype",), ()),
}


def _is_scalar(declared: Scalar, seen: Seen) -> bool:
    names, families = _ACCEPTS[declared.name]
    if seen.sort == "array":
        return seen.shape == () and seen.dtype in DTYPES and DTYPES[seen.dtype].family in families
    return seen.sort == "scalar" and seen.type_name in names


def _check_scalar(walk: _Walk, declared: Scalar, seen: Seen, path: tuple[Hashable, ...], _: Solver) -> None:
    if not _is_scalar(declared, seen):
        walk.mismatch(declared, seen, path)


def _check_null(walk: _Walk, declared: Null, seen: Seen, path: tuple[Hashable, ...], _: Solver) -> None:
    if seen.sort != "null":
        walk.mismatch(declared, seen, path)


def _check_literal(walk: _Walk, declared: LiteralOf, seen: Seen, path: tuple[Hashable, ...], _: Solver) -> None:
    if seen.sort != "scalar" or (type(seen.value), seen.value) not in [(type(v), v) for v in declared.values]:
        walk.mismatch(declared, seen, path)


def _check_named(walk: _Walk, declared: Named, seen: Seen, path: tuple[Hashable, ...], dims: Solver) -> None:
    document = walk.document
    owner, name = document.place_of(declared.name)
    enum = owner.enums.get(name)
    if enum is not None:
        if seen.sort != "scalar" or seen.value not in enum.members:
            hint = did_you_mean(str(seen.value), enum.members)
            walk.report("NQX421", path, f"expected one of {', '.join(enum.members)}, got {seen.text}", hint)
        return
    if name not in owner.structs:
        walk.report("NQX404", path, f"expected a schema that declares {name}, got none", "pass the folder it lies in")
        return
    bound = dict(zip(owner.structs[name].params, declared.args, strict=False))
    if owner is document:
        walk.struct(name, seen, path, dims.scope(bound))
        return
    walk.document = owner
    walk.struct(name, seen, path, dims.scope(bound, _dims_of(owner)), outermost=True)
    walk.document = document


def _check_list(walk: _Walk, declared: ListOf, seen: Seen, path: tuple[Hashable, ...], dims: Solver) -> None:
    if seen.sort != "list":
        walk.mismatch(declared, seen, path)
        return
    for key, item in seen.items.items():
        walk.value(declared.item, walk.read(item), (*path, key), dims)


def _check_tuple(walk: _Walk, declared: TupleOf, seen: Seen, path: tuple[Hashable, ...], dims: Solver) -> None:
    items = declared.items * len(seen.items) if declared.variadic else declared.items
    if seen.sort != "tuple" or len(items) != len(seen.items):
        walk.mismatch(declared, seen, path)
        return
    for (key, item), inner in zip(seen.items.items(), items, strict=True):
        walk.value(inner, walk.read(item), (*path, key), dims)


def _check_dict(walk: _Walk, declared: DictOf, seen: Seen, path: tuple[Hashable, ...], dims: Solver) -> None:
    if seen.sort != "dict":
        walk.mismatch(declared, seen, path)
        return
    for key, item in seen.items.items():
        walk.value(declared.value, walk.read(item), (*path, key), dims)


def _check_union(walk: _Walk, declared: Union, seen: Seen, path: tuple[Hashable, ...], dims: Solver) -> None:
    # The first option of the right sort is the one that is meant; its problems are the ones to tell.
    meant = next((option for option in declared.options if _is_meant(walk.document, option, seen)), None)
    if meant is None and seen.type_name == "str":  # a misspelt member of the only enum that it can be of
        enums = [o for o in declared.options if isinstance(o, Named) and walk.document.members_of(o.name)]
        meant = enums[0] if len(enums) == 1 and len(declared.options) == 2 and Null() in declared.options else None
    if meant is None:
        walk.mismatch(declared, seen, path)
    else:
        walk.value(meant, seen, path, dims)


def _is_meant(document: Document, option: Type, seen: Seen) -> bool:
    match option:
        case Named(name):
            owner, inner = document.place_of(name)
            if inner in owner.enums:
                return seen.sort == "scalar" and seen.value in owner.enums[inner].members
            return document.ref(name) in seen.refs[:1]
        case Scalar():
            return _is_scalar(option, seen)
        case Array(dtype, shape):
            ranks = ... in shape or len(shape) == len(seen.shape)
            return seen.sort == "array" and _same_dtype(dtype, seen) and ranks
        case LiteralOf(values):
            return seen.sort == "scalar" and (type(seen.value), seen.value) in [(type(v), v) for v in values]
        case _:
            return seen.sort == _SORTS.get(type(option), seen.sort)


_SORTS: Mapping[type, str] = {Null: "null", Key: "key", ListOf: "list", TupleOf: "tuple", DictOf: "dict"}

_CHECKS: Mapping[type, Check] = {
    Array: _check_array,
    Key: _check_key,
    Scalar: _check_scalar,
    Null: _check_null,
    LiteralOf: _check_literal,
    Named: _check_named,
    ListOf: _check_list,
    TupleOf: _check_tuple,
    DictOf: _check_dict,
    Union: _check_union,
    PyTree: lambda *_: None,
}
