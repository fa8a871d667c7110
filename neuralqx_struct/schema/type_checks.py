"""Checks of the types of a document: do the names exist, can the options be told apart, do the structs end.

Owns what types may stand where, of which kind a field may be, and which documents types may name. Sizes are
``size_checks.py``'s.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

from neuralqx_struct.schema.findings import Finding, Findings, Speller, fields_of
from neuralqx_struct.schema.model import Document, FieldDeclaration
from neuralqx_struct.schema.types import (
    DTYPES,
    TYPE_NAMES,
    Array,
    DictOf,
    Key,
    ListOf,
    Named,
    TupleOf,
    Type,
    Union,
    format_type,
    walk_type,
)

__all__ = ["TYPE_CHECKS"]

_COUNTERS = ("step", "steps", "n_iter", "iteration", "epoch", "counter")

#: What the types of other languages are here.
_ELSEWHERE: Mapping[str, str] = {
    **dict.fromkeys(("Optional", "optional"), "write `T | null`, such as `float | null`"),
    "None": "write null",
    "NoneType": "write null",
    "Any": "write pytree, which takes whatever JAX takes",
    **dict.fromkeys(
        ("ndarray", "Array", "ArrayLike", "tensor", "Tensor"), "write the dtype and the shape: float32[n, 3]"
    ),
    **dict.fromkeys(("key", "PRNGKey", "KeyArray", "rng"), "write prng_key[threefry2x32]"),
    **dict.fromkeys(("double", "number"), "write float, or an array such as float64[n]"),
    **dict.fromkeys(("Literal", "enum", "Enum"), 'write literal["a", "b"], or name an enum of `enums:`'),
    "object": "write a struct of its own, or pytree",
}

#: numpy's names for dtypes that are not the same on every platform, or mean another one than they say.
_PLATFORM: Mapping[str, str] = {
    **dict.fromkeys(("int_", "intp", "intc", "long", "longlong", "short"), "int32 or int64"),
    **dict.fromkeys(("uint", "uint_", "uintp", "uintc", "ulong", "ulonglong", "ushort"), "uint32 or uint64"),
    **dict.fromkeys(("float_", "single", "double", "half"), "float32 or float64"),
    **dict.fromkeys(("longdouble", "longfloat", "float96", "float128"), "float64"),
    **dict.fromkeys(("complex_", "csingle", "cdouble", "singlecomplex"), "complex64 or complex128"),
    **dict.fromkeys(("clongdouble", "clongfloat", "longcomplex", "complex192", "complex256"), "complex128"),
    "bool_": "bool",
}


def _check_types(document: Document) -> Findings:
    speller = Speller()
    for path, _, _, declaration in fields_of(document):
        for inner in walk_type(declaration.declared):
            if isinstance(inner, Named):
                yield from _named(document, path, declaration, inner, speller)
            elif isinstance(inner, Key) and inner.impl is None:
                message = "expected prng_key with its implementation, got prng_key\nits words mean nothing without it"
                yield Finding("NQX126", (*path, "type"), message, "write prng_key[threefry2x32]", "warning")
            elif isinstance(inner, Union):
                yield from _options(document, path, inner)


def _named(
    document: Document, path: tuple[str, ...], declaration: FieldDeclaration, named: Named, speller: Speller
) -> Findings:
    owner, name = document.place_of(named.name)
    if name in owner.structs:
        params = owner.structs[name].params
        if len(params) != len(named.args):
            wanted = f"{named.name}[{', '.join(params)}]" if params else named.name
            message = f"expected {wanted}, got {format_type(named)}\n{named.name} has {len(params)} parameters"
            yield Finding("NQX103", (*path, "type"), message, "give every parameter a size")
    elif name in owner.enums:
        if named.args:
            message = f"expected {named.name} without [...], got {format_type(named)}\nit is an enum"
            yield Finding("NQX101", (*path, "type"), message)
    elif owner is not document:
        hint = speller.hint(name, owner.structs, owner.enums, what="it declares")
        message = f"expected a struct or an enum of {owner.id}@{owner.version}, got {name!r}"
        yield Finding("NQX101", (*path, "type"), message, hint)
    elif "." in named.name:
        identity = named.name.rpartition(".")[0]
        uses = [use.partition("@")[0] for use in document.uses]
        if identity not in uses:  # else it was not found, which is told of where it is named
            hint = speller.hint(identity, uses) or f"add {identity}@1, or the version that you mean, to `uses:`"
            yield Finding("NQX101", (*path, "type"), f"expected a schema named under uses, got {identity!r}", hint)
    elif named.name in _PLATFORM and (named.args or declaration.dtype):
        member = "dtype" if declaration.dtype else "type"
        message = f"expected a dtype that is the same everywhere, got {named.name!r}"
        hint = f"its size depends on the platform: write {_PLATFORM[named.name]}"
        yield Finding("NQX127", (*path, member), message, hint)
    elif named.name == declaration.dtype or (named.args and _is_dtype_like(document, named.name, speller)):
        member = "dtype" if declaration.dtype else "type"
        wanted = "a dtype" if declaration.dtype else "a dtype or a struct"
        hint = speller.hint(named.name, DTYPES, what="dtypes")
        yield Finding("NQX102", (*path, member), f"expected {wanted}, got {named.name!r}", hint)
    else:
        hint = _elsewhere(document, named.name)
        if hint is None:
            others = (f"{used.id}.{each}" for used in document.used.values() for each in (*used.structs, *used.enums))
            known = (document.structs, document.enums, TYPE_NAMES, others)
            hint = speller.hint(named.name, *known, what="declared here", first=2)
        yield Finding("NQX101", (*path, "type"), f"expected a type, got {named.name!r}", hint)


def _is_dtype_like(document: Document, name: str, speller: Speller) -> bool:
    near = speller.closest(name, DTYPES)
    return near is not None and speller.closest(name, document.structs, (near,)) == near


def _options(document: Document, path: tuple[str, ...], union: Union) -> Findings:
    """Two options of a union that a reader cannot tell apart: it would always take the first."""
    first: dict[Hashable, Type] = {}
    for option in union.options:
        sort: Any = option
        if isinstance(option, Array):
            sort = (option.dtype, "..." if ... in option.shape else len(option.shape))
        elif isinstance(option, (ListOf, TupleOf, DictOf, Key)):
            sort = type(option)
        elif isinstance(option, Named) and document.is_struct(option.name):
            sort = option.name
        other = first.setdefault(sort, option)
        if other is not option:
            message = f"expected options that can be told apart, got {format_type(other)} and {format_type(option)}"
            hint = "put what differs into structs of their own"
            yield Finding("NQX132", (*path, "type"), message, hint)


def _elsewhere(document: Document, name: str) -> str | None:
    """A hint for a name that a used document has, or another language."""
    used = next((used for used in document.used.values() if name in used.structs or name in used.enums), None)
    return _ELSEWHERE.get(name) if used is None else f"did you mean '{used.id}.{name}'?"


def _check_uses(document: Document) -> Findings:
    """Documents that are named and cannot be used, named twice, or not needed."""
    named = {
        inner.name.rpartition(".")[0]
        for _, _, _, declaration in fields_of(document)
        for inner in walk_type(declaration.declared)
        if isinstance(inner, Named)
    }
    first: dict[str, str] = {}
    for index, use in enumerate(document.uses):
        identity = use.partition("@")[0]
        if identity in first:
            message = f"expected each schema once, got {use} beside {first[identity]}"
            yield Finding("NQX002", ("uses", index), message, "remove one of the two")
        elif index in document.unusable:
            for found in document.unusable[index].diagnostics:
                place = f"{found.file}:{found.line}: " if found.file and found.line else ""
                yield Finding(found.code, ("uses", index), f"{found.message}", place + (found.hint or "") or None)
        elif identity not in named:
            message = f"expected a schema that some type names, got {use}, which none does"
            hint = f"write types such as {identity}.Name, or remove it"
            yield Finding("NQX104", ("uses", index), message, hint, "warning")
        first.setdefault(identity, use)


def _check_recursion(document: Document) -> Findings:
    """Find structs that no finite instance has: the least set of structs that can be built lacks them."""
    finite: set[str] = set()
    holders: dict[str, set[str]] = {name: set() for name in document.structs}
    for _, struct_name, _, declaration in fields_of(document):
        for inner in walk_type(declaration.declared):
            if isinstance(inner, Named) and inner.name in holders:
                holders[inner.name].add(struct_name)
    waiting = [*document.structs]
    while waiting:
        name = waiting.pop()
        if name not in finite and all(_finite(document, d, finite) for d in document.structs[name].fields.values()):
            finite.add(name)
            waiting += holders[name]  # what holds it is asked again
    for path, struct_name, _, declaration in fields_of(document):
        if struct_name not in finite and not _finite(document, declaration, finite):
            message = f"expected a struct that ends, got {struct_name}, which needs another {declaration.text} inside"
            hint = f'write "{declaration.text} | null" or list[{declaration.text}]'
            yield Finding("NQX106", (*path, "type"), message, hint)


def _finite(document: Document, declaration: FieldDeclaration, finite: set[str]) -> bool:
    def can_be_built(declared: Type) -> bool:
        match declared:
            case Named(name):
                return name in finite or name not in document.structs
            case Union(options):
                return any(map(can_be_built, options))
            case TupleOf(items, variadic):
                return variadic or all(map(can_be_built, items))
            case _:
                return True

    return declaration.kind == "opaque" or declaration.derived is not None or can_be_built(declaration.declared)


def _check_kinds(document: Document) -> Findings:
    for path, _, name, declaration in fields_of(document):
        if declaration.derived is not None:
            if declaration.kind == "node" and "kind" in declaration.model_fields_set:
                message = "expected a derived field to be static or opaque, got kind: node\nit is computed, not a leaf"
                yield Finding("NQX111", (*path, "kind"), message, "remove `kind: node`")
            for member in ("serialize", "default"):
                if member in declaration.model_fields_set and (member == "default" or declaration.serialize):
                    message = f"expected a derived field without {member}, got one\nit is computed anew on every load"
                    yield Finding("NQX113", (*path, member), message, f"remove `{member}:`")
        elif declaration.kind == "static":
            held = _unhashable(document, declaration.declared)
            if held is not None:
                message = f"expected a static field of hashable values, got {declaration.text}, which holds {held}"
                hint = "remove `kind: static`" + (", or use a tuple" if held == "a list" else "")
                yield Finding("NQX110", (*path, "type"), message, hint)
            elif declaration.text == "int" and name in _COUNTERS:
                message = f"expected a counter to be a node, got the static field {name}\nevery new value compiles anew"
                yield Finding("NQX130", (*path, "kind"), message, "remove `kind: static`", "warning")
        elif declaration.kind == "opaque" and declaration.serialize:
            if _unhashable(document, declaration.declared) == "a dict":  # no other kind takes it under jit, too
                continue
            message = "expected an opaque field to be left out of payloads, got serialize: true"
            yield Finding("NQX129", (*path, "serialize"), message, "make it static if it is a setting", "warning")


def _unhashable(document: Document, declared: Type) -> str | None:
    """What a static value may not hold anywhere, in words."""
    todo, seen = [(document, declared)], set[str]()
    while todo:
        here, of_it = todo.pop()
        for inner in walk_type(of_it):
            match inner:
                case Array() | Key():
                    return f"an array ({format_type(inner)})"
                case ListOf():
                    return "a list"
                case DictOf():
                    return "a dict"
                case Named(name) if here.is_struct(name) and here.ref(name) not in seen:
                    seen.add(here.ref(name))
                    owner, own_name = here.place_of(name)
                    todo += [(owner, d.declared) for d in owner.structs[own_name].stored.values()]
                case _:
                    pass
    return None


TYPE_CHECKS: tuple[Callable[[Document], Findings], ...] = (
    _check_types,
    _check_uses,
    _check_recursion,
    _check_kinds,
)
