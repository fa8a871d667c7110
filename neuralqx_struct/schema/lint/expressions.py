"""Checks of the expressions and sizes of one document: are their names known, do their types fit, can they be computed.

Covers the expressions of dims, derived fields and constraints. The rules of types are
``expressions/inference.py``; the syntax was checked when the file was read.

Example:
    >>> from neuralqx_struct.schema.text.loader import read_text
    >>> from neuralqx_struct.schema.reading import parse_document
    >>> text = '{"language": "1", "schema": "a", "version": 1, "root": "A", "structs": {"A": {"fields": %s}}}'
    >>> document = parse_document(read_text(text % '{"x": "str", "y": {"type": "int", "derived": "x + 1"}}'))
    >>> [finding.message for check in EXPRESSION_CHECKS for finding in check(document)]
    ['expected operands that fit together, got text and an int in `x + 1`']

The checks of sizes cover dims, the sizes in shapes and those passed to parameters: are the dims known, used and possible,
and can each size be determined.
"""

from __future__ import annotations

import ast
import functools
import re
from collections import ChainMap, Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.expressions import Expression
from neuralqx_struct.expressions.evaluation import evaluate
from neuralqx_struct.expressions.functions import Problem, Sorts, named
from neuralqx_struct.expressions.inference import infer
from neuralqx_struct.schema.lint import (
    ANY_SIZE,
    Check,
    Findings,
    Speller,
    arguments_of,
    cycles,
    extents_of,
    fields_of,
    finding,
    root_ints,
    shown_cycle,
    sizes_of,
    unknown,
)
from neuralqx_struct.schema.model import Document, FieldDeclaration, StructDeclaration
from neuralqx_struct.schema.sizes import linear_form

_INT: Sorts = frozenset({"int"})
_CAN_FAIL = re.compile(r"""[^-+*\w ]|\*\*|\d\.""")  # sums and products of whole numbers cannot


def _check_equations(document: Document) -> Findings:
    known: dict[str, Sorts] = dict.fromkeys({*document.dims, *root_ints(document)}, _INT)
    wanted = "a size", frozenset({"int", "float"}), "an equation gives a whole number"
    for name, dim in document.dims.items():
        if dim.equation is not None:
            yield from _typed(("dims", name, "equals"), dim.equation, known, wanted)


def _check_shapes(document: Document) -> Findings:
    """Sizes that no names make possible; :func:`_impossible` checks those without names."""
    wanted = "a size", frozenset({"int", "float"}), "an axis has a whole number of entries"
    for path, _, _, declaration in fields_of(document):
        for extent in (*extents_of(declaration), *arguments_of(declaration)):
            if extent.names and _CAN_FAIL.search(extent.text):
                yield from _typed(
                    (*path, "type"), extent, dict.fromkeys(extent.names, _INT), wanted
                )


def _check_derived(document: Document) -> Findings:
    speller = Speller()
    for struct_name, struct in document.structs.items():
        at = ("structs", struct_name, "fields")
        derived = {
            name: d.derivation for name, d in struct.fields.items() if d.derivation is not None
        }
        if not derived:
            continue
        sizes = sizes_of(document, struct_name)
        known = _sorts(document, struct)
        for name, expression in derived.items():
            where, declaration = (*at, name, "derived"), struct.fields[name]
            for name_in in unknown(expression.names, struct.fields):
                is_size = name_in in sizes
                message = f"expected a field of {struct_name}, got {name_in!r}" + (
                    ", which is a dim" if is_size else ""
                )
                hint = None if is_size else speller.hint(name_in, struct.fields, label="fields")
                hint = "read sizes from a field: shape(x)[0]" if is_size else hint
                yield finding("NQX116", where, message, hint)
            declared = _declared_sorts(document, declaration)
            wanted = declaration.text, None if declared is None else _widened(declared), None
            yield from _typed(where, expression, known, wanted)
        for cycle in cycles(
            {
                n: frozenset(other for other in e.names if other in derived)
                for n, e in derived.items()
            }
        ):
            message = f"expected derived fields in some order, got the cycle {shown_cycle(cycle)}"
            yield finding(
                "NQX112",
                (*at, cycle[0], "derived"),
                message,
                "derive one of them from stored fields",
            )


def _check_constraints(document: Document) -> Findings:
    speller = Speller()
    dims: dict[str, Sorts] = dict.fromkeys(document.dims, _INT)
    for struct_name, struct in document.structs.items():
        if not struct.constraints:
            continue
        sizes = sizes_of(document, struct_name)
        own: dict[str, Sorts] = dict.fromkeys(sizes.maps[0], _INT)
        known: Mapping[str, Sorts] = ChainMap(_sorts(document, struct), own, dims)
        for index, constraint in enumerate(struct.constraints):
            where = ("structs", struct_name, "constraints", index, "expr")
            for name_in in unknown(constraint.expression.names, struct.fields, sizes):
                hint = speller.hint(name_in, struct.fields, sizes, label="fields", first=1)
                message = f"expected a field or dim of {struct_name}, got {name_in!r}"
                yield finding("NQX116", where, message, hint)
            wanted = (
                "a condition",
                frozenset({"bool", "array"}),
                "compare it with something, as in `size(x) > 0`",
            )
            yield from _typed(where, constraint.expression, known, wanted)
            for problem in _members(document, struct, constraint.expression, speller):
                yield finding(problem.code, where, problem.message, problem.hint)


EXPRESSION_CHECKS: tuple[Callable[[Document], Findings], ...] = (
    _check_equations,
    _check_shapes,
    _check_derived,
    _check_constraints,
)


def _declared_sorts(document: Document, declaration: FieldDeclaration) -> Sorts:
    """The sorts that the type of a field allows; None without a type."""
    declared = declaration.declared
    return None if declaration.type is None else declared.record.sorts(declared, document)


def _sorts(document: Document, struct: StructDeclaration) -> dict[str, Sorts]:
    """The sorts of every field: as declared, or as its expression gives them."""
    known: dict[str, Sorts] = {
        name: _declared_sorts(document, d) for name, d in struct.fields.items()
    }
    for name, declaration in struct.fields.items():
        if declaration.type is None and declaration.derivation is not None:
            known[name] = infer(declaration.derivation.tree, known, [])
    return known


def _widened(sorts: frozenset[str]) -> frozenset[str]:
    """The sorts that fields accept: ints for floats, and arrays without axes for numbers."""
    more = {
        "int": {"bool", "array"},
        "float": {"bool", "int", "array"},
        "complex": {"bool", "int", "float", "array"},
    }
    more |= {"bool": {"array"}, "array": {"bool", "int", "float", "complex"}}
    return sorts.union(*(more.get(sort, set()) for sort in sorts))


def _typed(
    where: tuple[str | int, ...],
    expression: Expression,
    known: Mapping[str, Sorts],
    wanted: tuple[str, Sorts, str | None],
) -> Findings:
    """Finds errors inside an expression; without any, a result of the wrong sort."""
    problems: list[Problem] = []
    found = infer(expression.tree, known, problems)
    for problem in dict.fromkeys(problems):
        yield finding(problem.code, where, problem.message, problem.hint)
    words, accepted, hint = wanted
    if not problems and found is not None and accepted is not None and not found & accepted:
        yield finding("NQX115", where, f"expected {words}, got {named(found)}", hint)


def _members(
    document: Document, struct: StructDeclaration, expression: Expression, speller: Speller
) -> Iterator[Problem]:
    """Texts that are compared with an enum or a literal, and are none of its members."""
    for node in ast.walk(expression.tree):
        if (
            not isinstance(node, ast.Compare)
            or not isinstance(node.left, ast.Name)
            or node.left.id not in struct.fields
        ):
            continue
        field = struct.fields[node.left.id]
        members = (
            None if field.type is None else field.declared.record.texts(field.declared, document)
        )
        for right in node.comparators if members is not None else ():
            for item in right.elts if isinstance(right, (ast.Tuple, ast.List)) else [right]:
                if (
                    isinstance(item, ast.Constant)
                    and isinstance(item.value, str)
                    and item.value not in (members or ())
                ):
                    message = f"expected one of {', '.join(members or ())}, got {item.value!r}"
                    yield Problem("NQX115", message, speller.hint(item.value, members or ()))


_Path = tuple[str, ...]


def _names(expressions: Iterable[Expression]) -> set[str]:
    return set().union(*(expression.names for expression in expressions))


def _check_dims(document: Document) -> Findings:
    speller = Speller()
    ints = root_ints(document)
    equations = {n: d.equation for n, d in document.dims.items() if d.equation is not None}
    used = _names(equations.values())
    for struct in document.structs.values():
        used |= _names(constraint.expression for constraint in struct.constraints)
        for declaration in struct.fields.values():
            used |= _names(extents_of(declaration)) | _names(arguments_of(declaration))
    for name, dim in document.dims.items():
        path = ("dims", name)
        if name not in used and not (name in equations and name in ints):
            message = f"expected a dim that some shape uses, got {name!r}, which none does"
            yield finding("NQX104", path, message, "remove it", "warning")
        if dim.min is not None and dim.max is not None and dim.min > dim.max:
            message = f"expected a size that exists, got one from {dim.min} to {dim.max}"
            yield finding("NQX105", path, message, "exchange min and max")
    for name, equation in equations.items():
        at = ("dims", name, "equals")
        for inner in unknown(equation.names, document.dims, ints):
            hint = speller.hint(inner, document.dims, ints) or "declare it under `dims:`"
            message = f"expected a dim or a static int of the root, got {inner!r}"
            yield finding("NQX103", at, message, hint)
        if name in equation.names:
            message = f"expected other dims, got {name!r} itself"
            yield finding("NQX105", at, message, "name the dims that it follows from")
    graph = {
        name: frozenset(n for n in equation.names if n in equations and n != name)
        for name, equation in equations.items()
    }
    for cycle in cycles(graph):
        message = (
            f"expected dims of which one follows from the other, got the cycle {shown_cycle(cycle)}"
        )
        hint = "leave out the `equals:` of one of them: an equation is solved for either side"
        yield finding("NQX105", ("dims", cycle[0], "equals"), message, hint)


def _check_sizes(document: Document) -> Findings:
    speller = Speller()
    similar = functools.cache(functools.partial(Speller(most=300).closest, cutoff=0.85))
    dims = tuple(document.dims)
    ints = root_ints(document)
    for struct_name, struct in document.structs.items():
        at = ("structs", struct_name, "fields")
        own = {*struct.params, ANY_SIZE, *(ints if struct_name == document.root else ())}
        given = (document.dims, own)
        extents = [(name, extent) for name, d in struct.fields.items() for extent in extents_of(d)]
        counted = Counter(name for _, extent in extents for name in extent.names)
        for name, extent in extents:
            path = (*at, name, "type")
            yield from _impossible((*at, name), struct.fields[name], extent)
            for local in unknown(extent.names, *given):
                close = similar(local, dims) if counted[local] == 1 else None
                if close is not None:
                    message = f"expected a dim that is declared, got {local!r}, which is a size of this array alone"
                    yield finding("NQX103", path, message, f"did you mean {close!r}?", "warning")
        yield from _unsolvable(at, extents, given)
        bound = sizes_of(document, struct_name)
        for name, declaration in struct.fields.items():
            handed = _names(arguments_of(declaration, document.is_struct))
            for unbound in unknown(handed, bound, (ANY_SIZE,)):
                hint = speller.hint(unbound, bound)
                hint = hint or "declare it under `dims:`, or use it in a shape of this struct"
                message = f"expected a size known in {struct_name}, got {unbound!r}"
                yield finding("NQX103", (*at, name, "type"), message, hint)
        yield from _unused_params(("structs", struct_name, "params"), struct, counted)


def _unused_params(at: _Path, struct: StructDeclaration, shaped: Container[str]) -> Findings:
    passed = set[str]().union(*(_names(arguments_of(d)) for d in struct.fields.values()))
    for index, param in enumerate(struct.params):
        if param not in shaped and param not in passed:
            message = f"expected a parameter that some shape uses, got {param!r}, which none does"
            yield finding("NQX104", (*at, index), message, "remove it", "warning")


def _impossible(at: _Path, declaration: FieldDeclaration, extent: Expression) -> Findings:
    """Checks that a size without names is a whole number >= 0."""
    if extent.names:
        return
    got, hint = extent.text, None
    try:
        size = evaluate(extent, {})
    except SchemaError as error:
        got = f"{got}\n{error.diagnostics[0].message.partition(chr(10))[0]}"
    else:
        if type(size) is int and size >= 0:
            return
        hint = "name it, or write how many entries there are"
    path = (*at, "type" if declaration.shape is None else "shape")
    yield finding("NQX105", path, f"expected a size >= 0, got {got}", hint)


def _unsolvable(
    at: _Path, extents: Sequence[tuple[str, Expression]], given: Sequence[Container[str]]
) -> Findings:
    """Warns about sizes that no shape determines, alone or after others."""
    read = {extent.text for _, extent in extents if extent.text in extent.names}
    missing = [{*unknown(extent.names, *given, read)} for _, extent in extents]
    waiting: dict[str, list[int]] = {}  # name -> the extents that it is unknown in
    for place, names in enumerate(missing):
        for name in names:
            waiting.setdefault(name, []).append(place)
    ready = list(range(len(missing)))
    while ready:
        place = ready.pop()
        if len(missing[place]) != 1:
            continue
        (solved,) = missing[place]
        if _is_linear(extents[place][1], solved):
            for other in waiting[solved]:
                missing[other].discard(solved)
            ready += waiting.pop(solved)
    for (name, extent), names in zip(extents, missing, strict=True):
        for unsolved in sorted(names):
            message = (
                f"expected a size that follows from the shapes, got {unsolved!r} in {extent.text}"
            )
            hint = f"declare {unsolved} under `dims:`, or give it an axis of its own"
            yield finding("NQX105", (*at, name, "type"), message, hint, "warning")


def _is_linear(extent: Expression, unknown: str) -> bool:
    # The values of the other names, which are known by then, do not matter for the form.
    others = dict.fromkeys(extent.names - {unknown}, 1)
    form = linear_form(extent, frozenset({unknown}), others)
    return form is not None and form[0] != 0


SIZE_CHECKS: tuple[Check, ...] = (_check_dims, _check_sizes)
