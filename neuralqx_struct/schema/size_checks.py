"""Checks of the sizes of a document: are the dims known, used and possible, can what has a name be found.

Owns what is expected of dims, of the sizes in shapes and of those that are handed to parameters. The types of the
expressions of dims are ``expression_checks.py``'s.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable

from neuralqx_struct.errors import SchemaError, did_you_mean
from neuralqx_struct.schema.evaluation import evaluate
from neuralqx_struct.schema.expressions import Expression
from neuralqx_struct.schema.findings import ANY_SIZE, Finding, Findings, arguments_of, extents_of, root_ints, sizes_of
from neuralqx_struct.schema.linear import linear_form
from neuralqx_struct.schema.model import Document, FieldDeclaration

__all__ = ["SIZE_CHECKS"]


def _check_dims(document: Document) -> Findings:
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
        given = {*document.dims, *struct.params, ANY_SIZE} | (ints if struct_name == document.root else set())
        extents = [(name, extent) for name, d in struct.fields.items() for extent in extents_of(d)]
        counted = Counter(name for _, extent in extents for name in extent.names)
        for name, extent in extents:
            yield from _impossible((*at, name), struct.fields[name], extent)
            for local in sorted(extent.names - given):
                close = difflib.get_close_matches(local, document.dims, n=1, cutoff=0.85)
                if close and counted[local] == 1:
                    message = f"expected a dim that is declared, got {local!r}, which is a size of this array alone"
                    yield Finding("NQX103", (*at, name, "type"), message, f"did you mean {close[0]!r}?", "warning")
        yield from _unsolvable(at, extents, given)
        bound = sizes_of(document, struct_name) | {ANY_SIZE}
        for name, declaration in struct.fields.items():
            for unbound in sorted({n for e in arguments_of(declaration, document.is_struct) for n in e.names} - bound):
                hint = did_you_mean(unbound, bound) or "declare it under `dims:`, or use it in a shape of this struct"
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


SIZE_CHECKS: tuple[Callable[[Document], Findings], ...] = (_check_dims, _check_sizes)
