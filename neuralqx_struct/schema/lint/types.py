"""Checks of the types of a document: unknown names, ambiguous unions, endless structs, kinds of fields.

Sizes are checked in ``expressions.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping

from neuralqx_struct.dtypes import DTYPES, FAMILIES
from neuralqx_struct.schema.graph import graph_of, types_across
from neuralqx_struct.schema.lint import Findings, Speller, fields_of, finding
from neuralqx_struct.schema.model import Document, FieldDeclaration
from neuralqx_struct.types import Type, type_names, walk_type
from neuralqx_struct.types.text import format_type

#: Words of names of fields that grow with each step.
_HISTORIES = frozenset(
    ["history", "hist", "histories", "log", "logs", "losses", "energies", "rewards", "records"]
)
_COUNTERS = ("step", "steps", "n_iter", "iteration", "epoch", "counter")

#: The equivalents of types of other languages.
_ELSEWHERE: Mapping[str, str] = {
    **dict.fromkeys(("Optional", "optional"), "write `T | null`, such as `float | null`"),
    "None": "write null",
    "NoneType": "write null",
    "Any": "write pytree, which takes whatever JAX takes",
    **dict.fromkeys(
        ("ndarray", "Array", "ArrayLike", "tensor", "Tensor"),
        "write the dtype and the shape: float32[n, 3]",
    ),
    **dict.fromkeys(("key", "PRNGKey", "KeyArray", "rng"), "write prng_key[threefry2x32]"),
    "double": "write float, or an array such as float64[n]",
    **dict.fromkeys(
        ("Literal", "enum", "Enum"), 'write literal["a", "b"], or name an enum of `enums:`'
    ),
    "object": "write a struct of its own, or pytree",
}

#: numpy's names for dtypes that differ between platforms, or have misleading names.
_PLATFORM: Mapping[str, str] = {
    **dict.fromkeys(("int_", "intp", "intc", "long", "longlong", "short"), "int32 or int64"),
    **dict.fromkeys(
        ("uint", "uint_", "uintp", "uintc", "ulong", "ulonglong", "ushort"), "uint32 or uint64"
    ),
    **dict.fromkeys(("float_", "single", "double", "half"), "float32 or float64"),
    **dict.fromkeys(("longdouble", "longfloat", "float96", "float128"), "float64"),
    **dict.fromkeys(("complex_", "csingle", "cdouble", "singlecomplex"), "complex64 or complex128"),
    **dict.fromkeys(
        ("clongdouble", "clongfloat", "longcomplex", "complex192", "complex256"), "complex128"
    ),
    "bool_": "bool",
}


def _check_types(document: Document) -> Findings:
    speller = Speller()
    for path, _, _, declaration in fields_of(document):
        for inner in walk_type(declaration.declared):
            advice = inner.advice()
            if inner.refers:
                yield from _named(document, path, declaration, inner, speller)
            elif advice is not None:
                code, message, hint = advice
                yield finding(code, (*path, "type"), message, hint, "warning")
            yield from _options(path, inner)
            for message, hint in inner.objections(document):
                yield finding("NQX137", (*path, "type"), f"expected {message}", hint)


def _named(
    document: Document,
    path: tuple[str, ...],
    declaration: FieldDeclaration,
    named: Type,
    speller: Speller,
) -> Findings:
    owner, name = document.place_of(named.refers)
    if name in owner.structs:
        params = owner.structs[name].params
        if len(params) != len(named.arguments):
            wanted = f"{named.refers}[{', '.join(params)}]" if params else named.refers
            message = f"expected {wanted}, got {format_type(named)}\n{named.refers} has {len(params)} parameters"
            yield finding("NQX103", (*path, "type"), message, "give every parameter a size")
    elif name in owner.enums:
        if named.arguments:
            message = (
                f"expected {named.refers} without [...], got {format_type(named)}\nit is an enum"
            )
            yield finding("NQX101", (*path, "type"), message)
    elif owner is not document:
        hint = speller.hint(name, owner.structs, owner.enums, label="it declares")
        message = f"expected a struct or an enum of {owner.id}@{owner.version}, got {name!r}"
        yield finding("NQX101", (*path, "type"), message, hint)
    elif "." in named.refers:
        identity = named.refers.rpartition(".")[0]
        uses = [*document.used_versions]
        if identity not in uses:  # else a finding under `uses` reports it
            hint = (
                speller.hint(identity, uses)
                or f"add {identity}@1, or the version that you mean, to `uses:`"
            )
            yield finding(
                "NQX101",
                (*path, "type"),
                f"expected a schema named under uses, got {identity!r}",
                hint,
            )
    elif named.refers in document.dtypes:
        message = f"expected a shape behind the choice of dtypes {named.refers}, got none"
        hint = f"write {named.refers}[] for a single number, {named.refers}[n] for a vector"
        yield finding("NQX101", (*path, "type"), message, hint)
    elif named.refers in _PLATFORM and (named.arguments or declaration.dtype):
        member = "dtype" if declaration.dtype else "type"
        message = f"expected a dtype that is the same everywhere, got {named.refers!r}"
        hint = f"its size depends on the platform: write {_PLATFORM[named.refers]}"
        yield finding("NQX127", (*path, member), message, hint)
    elif named.refers == declaration.dtype or (
        named.arguments and _is_dtype_like(document, named.refers, speller)
    ):
        member = "dtype" if declaration.dtype else "type"
        wanted = "a dtype" if declaration.dtype else "a dtype or a struct"
        hint = speller.hint(named.refers, DTYPES, FAMILIES, document.dtypes, label="dtypes")
        yield finding("NQX102", (*path, member), f"expected {wanted}, got {named.refers!r}", hint)
    else:
        hint = _elsewhere(document, named.refers)
        if hint is None:
            others = (
                f"{used.id}.{each}"
                for used in document.used.values()
                for each in (*used.structs, *used.enums)
            )
            known = (document.structs, document.enums, type_names(), others)
            hint = speller.hint(named.refers, *known, label="declared here", first=2)
        yield finding("NQX101", (*path, "type"), f"expected a type, got {named.refers!r}", hint)


def _is_dtype_like(document: Document, name: str, speller: Speller) -> bool:
    near = speller.closest(name, DTYPES)
    return near is not None and speller.closest(name, document.structs, (near,)) == near


def _options(path: tuple[str, ...], declared: Type) -> Findings:
    """Finds two options of a union that a reader cannot distinguish: it would always take the first."""
    first: dict[Hashable, Type] = {}
    for option in declared.branches:
        others = [first.setdefault(look, option) for look in option.looks_like()]
        for other in {id(other): other for other in others if other is not option}.values():
            both = f"{format_type(other)} and {format_type(option)}"
            message = f"expected options that can be told apart, got {both}"
            hint = "put what differs into structs of their own"
            yield finding("NQX132", (*path, "type"), message, hint)


def _elsewhere(document: Document, name: str) -> str | None:
    """A hint for a name that a used document has, or another language."""
    used = next(
        (used for used in document.used.values() if name in used.structs or name in used.enums),
        None,
    )
    return _ELSEWHERE.get(name) if used is None else f"did you mean '{used.id}.{name}'?"


def _check_uses(document: Document) -> Findings:
    """Documents that are named and cannot be used, named twice, or not needed."""
    named = {
        inner.refers.rpartition(".")[0]
        for _, _, _, declaration in fields_of(document)
        for inner in walk_type(declaration.declared)
    }
    first: dict[str, str] = {}
    refs = document.uses_refs
    for index, use in enumerate(document.uses):
        identity = refs[index].id
        if identity in first:
            message = f"expected each schema once, got {use} beside {first[identity]}"
            yield finding("NQX002", ("uses", index), message, "remove one of the two")
        elif index in document.unusable:
            for found in document.unusable[index].diagnostics:
                place = f"{found.file}:{found.line}: " if found.file and found.line else ""
                yield finding(
                    found.code,
                    ("uses", index),
                    f"{found.message}",
                    place + (found.hint or "") or None,
                )
        elif identity not in named:
            message = f"expected a schema that some type names, got {use}, which none does"
            hint = f"write types such as {identity}.Name, or remove it"
            yield finding("NQX104", ("uses", index), message, hint, "warning")
        first.setdefault(identity, use)


def _check_dtypes(document: Document) -> Findings:
    """Choices of dtypes with unknown or repeated dtypes, and those that no type names."""
    speller = Speller()
    named = {
        inner.element
        for _, _, _, declaration in fields_of(document)
        for inner in walk_type(declaration.declared)
    }
    for name, choice in document.dtypes.items():
        path = ("dtypes", name)
        for member in dict.fromkeys(choice.members):
            if member not in DTYPES:
                message = f"expected a dtype, got {member!r}"
                yield finding("NQX102", path, message, speller.hint(member, DTYPES, label="dtypes"))
        repeated = sorted(each for each, count in Counter(choice.members).items() if count > 1)
        if repeated:
            message = f"expected each dtype once, got {', '.join(repeated)} again"
            yield finding("NQX002", path, message, "remove the repetition")
        if name not in named:
            message = (
                f"expected a choice of dtypes that some array names, got {name}, which none does"
            )
            hint = f"write types such as {name}[n], or remove it"
            yield finding("NQX104", path, message, hint, "warning")


def _check_recursion(document: Document) -> Findings:
    """Find structs that no finite instance has: the least set of structs that can be built lacks them."""
    finite: set[str] = set()
    uses = graph_of(document).uses
    waiting = [*document.structs]
    while waiting:
        name = waiting.pop()
        if name not in finite and all(
            _finite(document, d, finite) for d in document.structs[name].fields.values()
        ):
            finite.add(name)
            waiting += {use.struct for use in uses.get(name, ())}  # check its holders again
    for path, struct_name, _, declaration in fields_of(document):
        if struct_name not in finite and not _finite(document, declaration, finite):
            message = f"expected a struct that ends, got {struct_name}, which needs another {declaration.text} inside"
            hint = f'write "{declaration.text} | null" or list[{declaration.text}]'
            yield finding("NQX106", (*path, "type"), message, hint)


def _finite(document: Document, declaration: FieldDeclaration, finite: set[str]) -> bool:
    def ends(inside: Type | str) -> bool:
        if isinstance(inside, str):
            return inside in finite or inside not in document.structs
        return inside.ends(ends)

    return (
        declaration.kind == "opaque"
        or declaration.derived is not None
        or ends(declaration.declared)
    )


def _check_kinds(document: Document) -> Findings:
    for path, _, name, declaration in fields_of(document):
        if declaration.derived is not None:
            if declaration.kind == "node" and "kind" in declaration.model_fields_set:
                message = "expected a derived field to be static or opaque, got kind: node\nit is computed, not a leaf"
                yield finding("NQX111", (*path, "kind"), message, "remove `kind: node`")
            for member in ("serialize", "default"):
                if member in declaration.model_fields_set and (
                    member == "default" or declaration.serialize
                ):
                    message = f"expected a derived field without {member}, got one\nit is computed anew on every load"
                    yield finding("NQX113", (*path, member), message, f"remove `{member}:`")
            held = None if declaration.kind == "opaque" else _held(document, declaration.declared)
            if held and (not held.hashable_form or declaration.kind == "static"):
                message = f"expected a derived field of hashable values, got {declaration.text}, which holds {_words(held)}"
                form = held.hashable_form
                hint = f"use {form}, or remove `kind: static`" if form else "add `kind: opaque`"
                yield finding("NQX110", (*path, "type"), message, hint)
        elif declaration.kind == "static":
            held = _held(document, declaration.declared)
            if held:
                message = f"expected a static field of hashable values, got {declaration.text}, which holds {_words(held)}"
                form = held.hashable_form
                hint = "remove `kind: static`" + (f", or use {form}" if form else "")
                yield finding("NQX110", (*path, "type"), message, hint)
            elif declaration.text == "int" and name in _COUNTERS:
                message = f"expected a counter to be a node, got the static field {name}\nevery new value compiles anew"
                yield finding(
                    "NQX130", (*path, "kind"), message, "remove `kind: static`", "warning"
                )
        elif declaration.kind == "opaque" and declaration.serialize:
            held = _held(document, declaration.declared)
            if held and not held.element and not held.hashable_form:
                continue  # no other kind takes it under jit
            message = "expected an opaque field to be left out of payloads, got serialize: true"
            yield finding(
                "NQX129",
                (*path, "serialize"),
                message,
                "make it static if it is a setting",
                "warning",
            )


def _held(document: Document, declared: Type) -> Type | None:
    """The first part of a type that static values cannot hold."""
    return next((inner for _, inner in types_across(document, declared) if inner.unhashable), None)


def _words(held: Type) -> str:
    """An unhashable type in words."""
    return held.unhashable.format(format_type(held))


def _check_axes(document: Document) -> Findings:
    """Reports names of axes that are not one for each axis of the arrays of a field."""
    for path, _, _, declaration in fields_of(document):
        names = declaration.axes
        if names is None:
            continue
        at = (*path, "axes")
        text = format_type(declaration.declared)
        inside = walk_type(declaration.declared)
        shaped = [each for each in inside if each.element or each.key_impl or each.stacks]
        ranks = {None if ... in each.extents else len(each.extents) for each in shaped}
        if not shaped:
            hint = "leave `axes` out; only arrays have axes"
            yield finding("NQX138", at, f"expected the type of an array, got {text}", hint)
        elif ranks != {len(names)}:
            message = f"expected a name for each axis of {text}, got {len(names)}"
            hint = "write as many names as the shape has sizes, such as `axes: [batch, embed]`"
            yield finding("NQX138", at, message, hint)
        for name in sorted({name for name in names if names.count(name) > 1}):
            message = f"expected different names, got {name!r} {names.count(name)} times"
            hint = "no two axes of an array can be divided alike: give one another name"
            yield finding("NQX138", at, message, hint)


def _check_growing(document: Document) -> Findings:
    """Reports histories that are lists of numbers: each number is a leaf, so one more is another structure."""
    for path, _, name, declaration in fields_of(document):
        grows = declaration.default == [] or not _HISTORIES.isdisjoint(name.lower().split("_"))
        least, most = declaration.min_length, declaration.max_length
        if declaration.kind != "node" or not grows or (least is not None and least == most):
            continue
        for inner in walk_type(declaration.declared):
            # Numbers in a collection of no declared size; an array of them has no parts.
            if inner.parts and inner.families and not inner.extents:
                message = (
                    f"expected a history to be an array, got {format_type(inner)}\n"
                    "each number is a leaf: jit compiles anew for each length"
                )
                hint = "write an array such as float32[n], or the length: list[float, n]"
                # Only info: a published version is never edited.
                yield finding("NQX140", (*path, "type"), message, hint, "info")


TYPE_CHECKS: tuple[Callable[[Document], Findings], ...] = (
    _check_types,
    _check_uses,
    _check_dtypes,
    _check_recursion,
    _check_kinds,
    _check_growing,
    _check_axes,
)
