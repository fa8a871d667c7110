"""Checks of one schema document as a whole: names, types, kinds, sizes and expressions that must fit together.

Owns :class:`Finding` and one generator for each kind of mistake; a new check is a generator and a row of :data:`CHECKS`.
Expressions are the business of ``expression_checks.py``. Values that a document gives (defaults, bounds, choices) are the business of ``defaults.py``; what several versions mean
together, and the place of a finding in its file, of ``lint.py``.

Example:
    >>> from neuralqx_struct.schema.loader import read_text
    >>> from neuralqx_struct.schema.reading import parse_document
    >>> text = '{"language": "1", "schema": "a", "version": 1, "root": "B", "structs": {"A": {"fields": {}}}}'
    >>> [finding.code for check in CHECKS for finding in check(parse_document(read_text(text)))]
    ['NQX101']
"""

from __future__ import annotations

import difflib
import keyword
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from neuralqx_struct.errors import SchemaError, Severity, did_you_mean
from neuralqx_struct.fieldspec import RESERVED_NAMES
from neuralqx_struct.schema.evaluation import evaluate
from neuralqx_struct.schema.expressions import Expression
from neuralqx_struct.schema.linear import linear_form
from neuralqx_struct.schema.model import Document, FieldDeclaration
from neuralqx_struct.schema.types import (
    DTYPES,
    TYPE_NAMES,
    Array,
    DictOf,
    Key,
    ListOf,
    Named,
    Scalar,
    TupleOf,
    Type,
    Union,
    format_type,
    walk_type,
)

__all__ = ["CHECKS", "Finding", "Findings", "fields_of", "listed", "root_ints", "sizes_of"]

_COUNTERS = ("step", "steps", "n_iter", "iteration", "epoch", "counter")
_ANY_SIZE = "_"

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


class Finding(NamedTuple):
    """A finding that knows its place in the document, not yet in a file.

    Attributes:
        code: Such as ``NQX104``.
        path: Keys from the root of the document.
        message: ``expected X, got Y``.
        hint: What to do about it.
        severity: ``error``, ``warning`` or ``info``.
        key: True if the key at ``path`` is at fault rather than its value.
    """

    code: str
    path: tuple[str | int, ...]
    message: str
    hint: str | None = None
    severity: Severity = "error"
    key: bool = False


Findings = Iterator[Finding]


# ---------------------------------------------------------------------------------------------------------------------
# What checks share.


def fields_of(document: Document) -> Iterator[tuple[tuple[str, ...], str, str, FieldDeclaration]]:
    """Every field with its path, its struct and its name."""
    for struct_name, struct in document.structs.items():
        for name, declaration in struct.fields.items():
            yield ("structs", struct_name, "fields", name), struct_name, name, declaration


def _extents(declaration: FieldDeclaration) -> Iterator[Expression]:
    for inner in walk_type(declaration.declared):
        if isinstance(inner, (Array, Key)):
            yield from (extent for extent in inner.shape if isinstance(extent, Expression))


def _arguments(declaration: FieldDeclaration, is_struct: Callable[[str], bool] | None = None) -> Iterator[Expression]:
    """Sizes that a type hands to parameters: of structs, or of whatever it names."""
    for inner in walk_type(declaration.declared):
        if isinstance(inner, Named) and (is_struct is None or is_struct(inner.name)):
            yield from inner.args


def root_ints(document: Document) -> set[str]:
    """The static ints of the root, which ``equals`` and the root's own shapes may name."""
    root = document.structs.get(document.root)
    fields = root.fields.items() if root else ()
    return {name for name, d in fields if d.kind == "static" and Scalar("int") in walk_type(d.declared)}


def sizes_of(document: Document, struct_name: str) -> set[str]:
    """The sizes that a struct's arrays, its parameters and the document give a name to."""
    struct = document.structs[struct_name]
    own = {name for d in struct.fields.values() for extent in _extents(d) for name in extent.names}
    shared = root_ints(document) if struct_name == document.root else set()
    return (own | shared | {*document.dims, *struct.params}) - {_ANY_SIZE}


def listed(words: Iterable[str], what: str) -> str | None:
    """A hint that lists what there is, or None if there is nothing."""
    shown = sorted(words)
    return f"{what}: {', '.join(shown[:20])}{', ...' if len(shown) > 20 else ''}" if shown else None


# ---------------------------------------------------------------------------------------------------------------------
# Names.


def _check_root(document: Document) -> Findings:
    if document.root not in document.structs:
        hint = did_you_mean(document.root, document.structs) or listed(document.structs, "structs")
        yield Finding("NQX101", ("root",), f"expected one of the structs, got {document.root!r}", hint)


def _check_names(document: Document) -> Findings:
    for section in ("structs", "enums", "dims"):
        names: Mapping[str, Any] = getattr(document, section)
        for name in names:
            if keyword.iskeyword(name):
                yield _bad_name((section, name), name, "a keyword of Python")
            elif section != "dims" and name in TYPE_NAMES:
                yield _bad_name((section, name), name, "a built-in type")
        yield from _alike((section,), names)
    for name in document.enums.keys() & document.structs.keys():
        yield _bad_name(("enums", name), name, "the name of a struct too")
    for path, _, name, _ in fields_of(document):
        if keyword.iskeyword(name):
            yield _bad_name(path, name, "a keyword of Python")
        elif name in RESERVED_NAMES:
            yield _bad_name(path, name, "a method of every Struct")
        elif name.startswith(("__", "_nqx")):
            yield _bad_name(path, name, "a name of Struct's own")
    for struct_name, struct in document.structs.items():
        yield from _alike(("structs", struct_name, "fields"), struct.fields)
        for index, name in enumerate(struct.params):
            if keyword.iskeyword(name):
                yield _bad_name(("structs", struct_name, "params", index), name, "a keyword of Python")
    for name, enum in document.enums.items():
        repeated = [member for member, count in Counter(enum.members).items() if count > 1]
        if repeated:
            message = f"expected each member once, got {', '.join(map(repr, repeated))} again"
            yield Finding("NQX002", ("enums", name), message, "remove the repetition")
        if enum.default is not None and enum.default not in enum.members:
            hint = did_you_mean(enum.default, enum.members)
            message = f"expected one of {', '.join(enum.members)}, got {enum.default!r}"
            yield Finding("NQX107", ("enums", name, "default"), message, hint)
        elif enum.default is None and document.compatibility.startswith(("forward", "full")):
            message = (
                f"expected a default of enum {name}, got none\nolder readers cannot read members that are added later"
            )
            yield Finding("NQX133", ("enums", name), message, "add `default:` with one of the members", "warning")


def _bad_name(path: tuple[str | int, ...], name: str, why: str) -> Finding:
    return Finding("NQX118", path, f"expected a name that is free, got {name!r}, which is {why}", "rename it", key=True)


def _alike(path: tuple[str, ...], names: Iterable[str]) -> Findings:
    first: dict[str, str] = {}
    for name in names:
        other = first.setdefault(name.lower(), name)
        if other != name:
            message = f"expected names that differ in more than case, got {other!r} and {name!r}"
            yield Finding("NQX119", (*path, name), message, "rename one of the two", "warning", key=True)


def _check_reserved_and_aliases(document: Document) -> Findings:
    for struct_name, struct in document.structs.items():
        at = ("structs", struct_name)
        for name in struct.fields:
            if name in struct.reserved:
                message = (
                    f"expected a name that is not reserved, got {name!r}\nold payloads hold it with another meaning"
                )
                yield Finding("NQX125", (*at, "fields", name), message, "choose another name", key=True)
        yield from _aliases(
            [(("fields", n), d.aliases) for n, d in struct.fields.items()], struct.fields, "a field", at
        )
    structs = [((name,), struct.aliases) for name, struct in document.structs.items()]
    yield from _aliases(structs, document.structs, "a struct", ("structs",))


def _aliases(
    owners: Iterable[tuple[tuple[str, ...], list[str]]], current: Mapping[str, Any], what: str, at: tuple[str, ...]
) -> Findings:
    taken: dict[str, str] = {}
    for owner, aliases in owners:
        for index, alias in enumerate(aliases):
            path: tuple[str | int, ...] = (*at, *owner, "aliases", index)
            if alias in current:
                message = f"expected a former name, got {alias!r}, which is {what} of this version"
                yield Finding("NQX124", path, message, "remove the alias")
            elif alias in taken:
                message = f"expected each alias once, got {alias!r}, which {taken[alias]} has too"
                yield Finding("NQX123", path, message, "remove one of the two")
            taken.setdefault(alias, owner[-1])


# ---------------------------------------------------------------------------------------------------------------------
# Types.


def _check_types(document: Document) -> Findings:
    for path, _, _, declaration in fields_of(document):
        for inner in walk_type(declaration.declared):
            if isinstance(inner, Named):
                yield from _named(document, path, declaration, inner)
            elif isinstance(inner, Key) and inner.impl is None:
                message = "expected prng_key with its implementation, got prng_key\nits words mean nothing without it"
                yield Finding("NQX126", (*path, "type"), message, "write prng_key[threefry2x32]", "warning")
            elif isinstance(inner, Union):
                yield from _options(document, path, inner)


def _named(document: Document, path: tuple[str, ...], declaration: FieldDeclaration, named: Named) -> Findings:
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
        known = (*owner.structs, *owner.enums)
        hint = did_you_mean(name, known) or listed(known, "it declares")
        message = f"expected a struct or an enum of {owner.id}@{owner.version}, got {name!r}"
        yield Finding("NQX101", (*path, "type"), message, hint)
    elif "." in named.name:
        identity = named.name.rpartition(".")[0]
        uses = [use.partition("@")[0] for use in document.uses]
        if identity not in uses:  # else it was not found, which is told of where it is named
            hint = did_you_mean(identity, uses) or f"add {identity}@1, or the version that you mean, to `uses:`"
            yield Finding("NQX101", (*path, "type"), f"expected a schema named under uses, got {identity!r}", hint)
    elif named.name in _PLATFORM and (named.args or declaration.dtype):
        member = "dtype" if declaration.dtype else "type"
        message = f"expected a dtype that is the same everywhere, got {named.name!r}"
        hint = f"its size depends on the platform: write {_PLATFORM[named.name]}"
        yield Finding("NQX127", (*path, member), message, hint)
    elif named.name == declaration.dtype or (named.args and _is_dtype_like(document, named.name)):
        member = "dtype" if declaration.dtype else "type"
        wanted = "a dtype" if declaration.dtype else "a dtype or a struct"
        hint = did_you_mean(named.name, DTYPES) or listed(DTYPES, "dtypes")
        yield Finding("NQX102", (*path, member), f"expected {wanted}, got {named.name!r}", hint)
    else:
        elsewhere = [f"{used.id}.{inner}" for used in document.used.values() for inner in (*used.structs, *used.enums)]
        known = (*document.structs, *document.enums, *TYPE_NAMES, *elsewhere)
        hint = next((f"did you mean {full!r}?" for full in elsewhere if full.endswith(f".{named.name}")), None)
        hint = hint or _ELSEWHERE.get(named.name)
        hint = hint or did_you_mean(named.name, known) or listed({*document.structs, *document.enums}, "declared here")
        yield Finding("NQX101", (*path, "type"), f"expected a type, got {named.name!r}", hint)


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


def _is_dtype_like(document: Document, name: str) -> bool:
    close = difflib.get_close_matches(name, (*document.structs, *DTYPES), n=1)
    return bool(close) and close[0] in DTYPES


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


# ---------------------------------------------------------------------------------------------------------------------
# Sizes.


def _check_dims(document: Document) -> Findings:
    ints = root_ints(document)
    used = {name for d in document.dims.values() if d.equation is not None for name in d.equation.names}
    for struct in document.structs.values():
        used |= {n for d in struct.fields.values() for e in (*_extents(d), *_arguments(d)) for n in e.names}
        used |= {n for constraint in struct.constraints for n in constraint.expression.names}
    for name, dim in document.dims.items():
        if name not in used and not (dim.equation is not None and name in ints):
            message = f"expected a dim that some shape uses, got {name!r}, which none does"
            yield Finding("NQX104", ("dims", name), message, "remove it", "warning", key=True)
        if dim.min is not None and dim.max is not None and dim.min > dim.max:
            message = f"expected a size that exists, got one from {dim.min} to {dim.max}"
            yield Finding("NQX105", ("dims", name), message, "exchange min and max")
        for unknown in sorted(dim.equation.names - document.dims.keys() - ints if dim.equation is not None else ()):
            hint = did_you_mean(unknown, {*document.dims, *ints}) or "declare it under `dims:`"
            message = f"expected a dim or a static int of the root, got {unknown!r}"
            yield Finding("NQX103", ("dims", name, "equals"), message, hint)
        if dim.equation is not None and name in dim.equation.names:
            message = f"expected other dims, got {name!r} itself"
            yield Finding("NQX105", ("dims", name, "equals"), message, "name what it follows from")


def _check_sizes(document: Document) -> Findings:
    ints = root_ints(document)
    for struct_name, struct in document.structs.items():
        at = ("structs", struct_name, "fields")
        given = {*document.dims, *struct.params, _ANY_SIZE} | (ints if struct_name == document.root else set())
        extents = [(name, extent) for name, d in struct.fields.items() for extent in _extents(d)]
        counted = Counter(name for _, extent in extents for name in extent.names)
        for name, extent in extents:
            yield from _impossible((*at, name), struct.fields[name], extent)
            for local in sorted(extent.names - given):
                close = difflib.get_close_matches(local, document.dims, n=1, cutoff=0.85)
                if close and counted[local] == 1:
                    message = f"expected a dim that is declared, got {local!r}, which is a size of this array alone"
                    yield Finding("NQX103", (*at, name, "type"), message, f"did you mean {close[0]!r}?", "warning")
        yield from _unsolvable(at, extents, given)
        bound = sizes_of(document, struct_name) | {_ANY_SIZE}
        for name, declaration in struct.fields.items():
            for unbound in sorted({n for e in _arguments(declaration, document.is_struct) for n in e.names} - bound):
                hint = did_you_mean(unbound, bound) or "declare it under `dims:`, or use it in a shape of this struct"
                message = f"expected a size known in {struct_name}, got {unbound!r}"
                yield Finding("NQX103", (*at, name, "type"), message, hint)
        passed = {n for d in struct.fields.values() for e in _arguments(d) for n in e.names}
        for index, param in enumerate(struct.params):
            if param not in counted and param not in passed:
                message = f"expected a parameter that some shape uses, got {param!r}, which none does"
                yield Finding("NQX104", ("structs", struct_name, "params", index), message, "remove it", "warning")


def _impossible(at: tuple[str, ...], declaration: FieldDeclaration, extent: Expression) -> Findings:
    """A size without names is a number, and no axis has fewer than no entries."""
    if extent.names:
        return
    where, hint = (*at, "type" if declaration.shape is None else "shape"), None
    try:
        size = evaluate(extent, {})
    except SchemaError as error:
        got = f"{extent.text}\n{error.diagnostics[0].message.partition(chr(10))[0]}"
    else:
        if type(size) is int and size >= 0:
            return
        got, hint = extent.text, "name it, or write how many entries there are"
    yield Finding("NQX105", where, f"expected a size >= 0, got {got}", hint)


def _unsolvable(at: tuple[str, ...], extents: list[tuple[str, Expression]], given: set[str]) -> Findings:
    """Sizes that cannot be read off any shape, alone or one after the other."""
    known = given | {extent.text for _, extent in extents if extent.text in extent.names}
    while solved := {
        unknown
        for _, extent in extents
        for unknown in [*(extent.names - known)][:1]
        if len(extent.names - known) == 1 and _is_linear(extent, unknown)
    }:
        known |= solved
    for name, extent in extents:
        for unknown in sorted(extent.names - known):
            message = f"expected a size that follows from the shapes, got {unknown!r} in {extent.text}"
            hint = f"declare {unknown} under `dims:`, or give it an axis of its own"
            yield Finding("NQX105", (*at, name, "type"), message, hint, "warning")


def _is_linear(extent: Expression, unknown: str) -> bool:
    # The other names are known by then; which numbers they are does not matter for the form.
    form = linear_form(extent, frozenset({unknown}), dict.fromkeys(extent.names - {unknown}, 1))
    return form is not None and form[0] != 0


def _check_migrations(document: Document) -> Findings:
    seen: set[int] = set()
    whole = document.migration_from(document.version - 1) is not None
    for index, migration in enumerate(document.migrations):
        path, origin = ("migrations", index, "from"), migration.from_version
        if origin in seen:
            message = f"expected one migration from each version, got another from {origin}"
            yield Finding("NQX303", path, message, "join the two lists of steps")
        elif origin >= document.version:
            message = f"expected a migration from version {document.version - 1}, got one from {origin}"
            yield Finding("NQX302", path, message, "migrations lead from the version before to this one")
        elif (
            not whole
        ):  # beside the step from the version before there may be ways from where that version is not at hand
            message = f"expected a migration from version {document.version - 1}, got one from {origin}"
            yield Finding("NQX301", path, message, "payloads move one version at a time; put it in that version's file")
        seen.add(origin)


CHECKS: tuple[Callable[[Document], Findings], ...] = (
    _check_root,
    _check_names,
    _check_reserved_and_aliases,
    _check_types,
    _check_uses,
    _check_recursion,
    _check_kinds,
    _check_dims,
    _check_sizes,
    _check_migrations,
)
