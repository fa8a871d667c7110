"""Checks of the sizes of a document: are the dims known, used and possible, can what has a name be found.

Owns what is expected of dims, of the sizes in shapes and of those that are handed to parameters. The types of the
expressions of dims are ``expression_checks.py``'s.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Container

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.schema.evaluation import evaluate
from neuralqx_struct.schema.expressions import Expression
from neuralqx_struct.schema.findings import (
    ANY_SIZE,
    Finding,
    Findings,
    Speller,
    arguments_of,
    cycles,
    extents_of,
    root_ints,
    shown_cycle,
    sizes_of,
    unknown,
)
from neuralqx_struct.schema.linear import linear_form
from neuralqx_struct.schema.model import Document, FieldDeclaration

__all__ = ["SIZE_CHECKS"]


def _check_dims(document: Document) -> Findings:
    speller = Speller()
    ints = root_ints(document)
    used = {name for d in document.dims.values() if d.equation is not None for name in d.equation.names}
    for struct in document.structs.values():
        used |= {n for d in struct.fields.values() for e in (*extents_of(d), *arguments_of(d)) for n in e.names}
        used |= {n for constraint in struct.constraints for n in constraint.expression.names}
    for name, dim in document.dims.items():
        if name not in used and not (dim.equation is not None and name in ints):
            message = f"expected a dim that some shape uses, got {name!r}, which none does"
            yield Finding("NQX104", ("dims", name), message, "remove it", "warning", key=True)
        if dim.min is not None and dim.max is not None and dim.min > dim.max:
            message = f"expected a size that exists, got one from {dim.min} to {dim.max}"
            yield Finding("NQX105", ("dims", name), message, "exchange min and max")
        for name_in in unknown(dim.equation.names if dim.equation is not None else (), document.dims, ints):
            hint = speller.hint(name_in, document.dims, ints) or "declare it under `dims:`"
            message = f"expected a dim or a static int of the root, got {name_in!r}"
            yield Finding("NQX103", ("dims", name, "equals"), message, hint)
        if dim.equation is not None and name in dim.equation.names:
            message = f"expected other dims, got {name!r} itself"
            yield Finding("NQX105", ("dims", name, "equals"), message, "name what it follows from")
    equations = {name: dim.equation.names for name, dim in document.dims.items() if dim.equation is not None}
    for cycle in cycles(
        {name: frozenset(n for n in names if n in equations and n != name) for name, names in equations.items()}
    ):
        message = f"expected dims of which one follows from the other, got the cycle {shown_cycle(cycle)}"
        hint = "leave out the `equals:` of one of them: what is equal is solved for either side"
        yield Finding("NQX105", ("dims", cycle[0], "equals"), message, hint)


def _check_sizes(document: Document) -> Findings:
    speller = Speller()
    alike = functools.cache(functools.partial(Speller(most=300).closest, cutoff=0.85))  # the same few in all structs
    dims = tuple(document.dims)
    ints = root_ints(document)
    for struct_name, struct in document.structs.items():
        at = ("structs", struct_name, "fields")
        given = document.dims, {*struct.params, ANY_SIZE, *(ints if struct_name == document.root else ())}
        extents = [(name, extent) for name, d in struct.fields.items() for extent in extents_of(d)]
        counted = Counter(name for _, extent in extents for name in extent.names)
        for name, extent in extents:
            yield from _impossible((*at, name), struct.fields[name], extent)
            for local in unknown(extent.names, *given):
                close = alike(local, dims) if counted[local] == 1 else None
                if close is not None:
                    message = f"expected a dim that is declared, got {local!r}, which is a size of this array alone"
                    yield Finding("NQX103", (*at, name, "type"), message, f"did you mean {close!r}?", "warning")
        yield from _unsolvable(at, extents, given)
        bound = sizes_of(document, struct_name)
        for name, declaration in struct.fields.items():
            handed = {n for e in arguments_of(declaration, document.is_struct) for n in e.names}
            for unbound in unknown(handed, bound, (ANY_SIZE,)):
                hint = speller.hint(unbound, bound) or "declare it under `dims:`, or use it in a shape of this struct"
                message = f"expected a size known in {struct_name}, got {unbound!r}"
                yield Finding("NQX103", (*at, name, "type"), message, hint)
        passed = {n for d in struct.fields.values() for e in arguments_of(d) for n in e.names}
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


def _unsolvable(
    at: tuple[str, ...], extents: list[tuple[str, Expression]], given: tuple[Container[str], ...]
) -> Findings:
    """Sizes that cannot be read off any shape, alone or one after the other."""
    read = {extent.text for _, extent in extents if extent.text in extent.names}
    missing = [{*unknown(extent.names, *given, read)} for _, extent in extents]
    waiting: dict[str, list[int]] = {}  # the sizes that a name is missing in
    for place, names in enumerate(missing):
        for name in names:
            waiting.setdefault(name, []).append(place)
    ready = [place for place, names in enumerate(missing) if len(names) == 1]
    while ready:
        place = ready.pop()
        if len(missing[place]) == 1 and _is_linear(extents[place][1], solved := next(iter(missing[place]))):
            for other in waiting[solved]:
                missing[other].discard(solved)
            ready += waiting.pop(solved)
    for (name, extent), names in zip(extents, missing, strict=True):
        for open_name in sorted(names):
            message = f"expected a size that follows from the shapes, got {open_name!r} in {extent.text}"
            hint = f"declare {open_name} under `dims:`, or give it an axis of its own"
            yield Finding("NQX105", (*at, name, "type"), message, hint, "warning")


def _is_linear(extent: Expression, unknown: str) -> bool:
    # The other names are known by then; which numbers they are does not matter for the form.
    form = linear_form(extent, frozenset({unknown}), dict.fromkeys(extent.names - {unknown}, 1))
    return form is not None and form[0] != 0


SIZE_CHECKS: tuple[Callable[[Document], Findings], ...] = (_check_dims, _check_sizes)
