"""Checks of the expressions and sizes of one document: are their names known, and can they be computed.

Covers the expressions of dims, derived fields and constraints; their syntax was checked when the file was read. An
expression with a part that fails whatever its names are is an error.

Example:
    >>> from neuralqx_struct.schema.text.loader import read_text
    >>> from neuralqx_struct.schema.reading import parse_document
    >>> text = '{"language": "1", "schema": "a", "version": 1, "root": "A", "structs": {"A": {"fields": %s}}}'
    >>> document = parse_document(read_text(text % '{"x": "int", "y": {"type": "int", "derived": "x / 0"}}'))
    >>> [finding.message for check in EXPRESSION_CHECKS for finding in check(document)]
    ['expected a divisor other than zero, got 0 in `x / 0`']

The checks of sizes cover dims, the sizes in shapes and those passed to parameters: are the dims known, used and possible,
and can each size be determined.
"""

from __future__ import annotations

import ast
import functools
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import cast

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.expressions import Expression
from neuralqx_struct.expressions.evaluation import evaluate, evaluate_tree
from neuralqx_struct.expressions.grammar import has_names, head_of, inside, path_of, steps_of
from neuralqx_struct.expressions.items import describe
from neuralqx_struct.expressions.operators import operator_of, shown
from neuralqx_struct.printing import listed
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
    passed_on,
    root_ints,
    shown_by,
    shown_cycle,
    sizes_of,
    solved_names,
    unknown,
)
from neuralqx_struct.schema.lint.names import Names
from neuralqx_struct.schema.lint.samples import UndecidedError, can_be
from neuralqx_struct.schema.lint.values import EquationNames
from neuralqx_struct.schema.model import Document, FieldDeclaration, StructDeclaration
from neuralqx_struct.schema.sizes import linear_form
from neuralqx_struct.schema.sizes.feasibility import impossible_sizes
from neuralqx_struct.schema.text import KeyPath


def _check_equations(document: Document) -> Findings:
    for name, dim in document.dims.items():
        if dim.equation is not None:
            yield from _impossible_parts(("dims", name, "equals"), dim.equation)


def _check_shapes(document: Document) -> Findings:
    """Checks sizes with names; :func:`_impossible` checks those without."""
    for path, _, _, declaration in fields_of(document):
        for extent in (*extents_of(declaration), *arguments_of(declaration)):
            if extent.names:
                yield from _impossible_parts((*path, "type"), extent)


def _check_derived(document: Document) -> Findings:
    speller = Speller()
    nullable: dict[str, list[str]] = {}
    for _, struct_name, name, declaration in fields_of(document):
        if declaration.type is not None and declaration.declared.nullable:
            nullable.setdefault(name, []).append(struct_name)
    for struct_name, struct in document.structs.items():
        at = ("structs", struct_name, "fields")
        derived: dict[str, Expression] = {}
        for name, declaration in struct.fields.items():
            if declaration.derivation is not None:
                derived[name] = declaration.derivation
        if not derived:
            continue
        names = names_of(document, struct_name, speller)
        sizes = names.sizes
        sizes_shown: set[str] | None = None
        for name, expression in derived.items():
            where = (*at, name, "derived")
            found = [*_problems(where, names, expression, single=False)]
            yield from found
            if not found:
                yield from _other_type(where, names, struct.fields[name], expression)
                yield from _of_null(where, names, expression, nullable)
            named = [h for h in sorted(expression.heads) if h in sizes and h not in struct.fields]
            if named and sizes_shown is None:
                sizes_shown = shown_by(document, struct_name)
            for inner in unknown(named, sizes_shown or ()):
                message = f"expected a size that the arrays of {struct_name} show, got {inner!r}"
                hint = f"derive it in a struct that holds an array with the size {inner}"
                yield finding("NQX116", where, message, hint)
        graph = {name: expression.heads & derived.keys() for name, expression in derived.items()}
        for cycle in cycles(graph):
            message = f"expected derived fields in some order, got the cycle {shown_cycle(cycle)}"
            hint = "derive one of them from stored fields"
            yield finding("NQX112", (*at, cycle[0], "derived"), message, hint)


def _check_constraints(document: Document) -> Findings:
    speller = Speller()
    for struct_name, struct in document.structs.items():
        if not struct.constraints:
            continue
        names = names_of(document, struct_name, speller)
        for index, constraint in enumerate(struct.constraints):
            expression = constraint.expression
            where = ("structs", struct_name, "constraints", index, "expr")
            yield from _problems(where, names, expression, single=True)
            yield from _members(names, expression, where)


def _other_type(
    where: KeyPath, names: Names, declaration: FieldDeclaration, expression: Expression
) -> Findings:
    """Finds a derived field of another type than its expression."""
    if declaration.type is None:
        return
    try:
        value = names.samples.value(expression.tree)
    except (SchemaError, UndecidedError):
        return
    if not can_be(value, declaration.declared, names.document):
        got = f"{describe(value)} in `{shown(expression.tree)}`"
        message = f"expected {declaration.text}, got {got}"
        yield finding("NQX115", where, message, "declare the type that the expression has")


def _of_null(
    where: KeyPath, names: Names, expression: Expression, nullable: dict[str, list[str]]
) -> Findings:
    """Finds fields that may be null, and of which a derived field has no value then; a constraint is not checked there.

    Args:
        where: The place of the expression.
        names: The names that it may use.
        expression: The expression.
        nullable: The structs that have a field that may be null, by its name.
    """
    for path in sorted(expression.names):
        steps = steps_of(path)
        for place, name in enumerate((head_of(path), *steps)):
            for struct in nullable.get(str(name), ()):
                wrong = names.samples.without_value(expression, (struct, str(name)))
                if wrong is None:
                    continue
                reached = path_of(head_of(path), steps[:place])
                reason = wrong.message.partition("\n")[0]
                message = f"expected a value where {struct}.{name} is null, got none in `{shown(expression.tree)}`\n{reason}"
                is_given = names.samples.condition(f"{reached} != None")
                hint = (
                    f"add a condition, ... if {is_given} else ..., or declare {name} without null"
                )
                yield finding("NQX115", where, message, hint, "warning")


def names_of(document: Document, struct: str, speller: Speller) -> Names:
    """The names of the expressions of a struct."""
    sizes = sizes_of(document, struct)
    sizes = sizes.new_child(dict.fromkeys(passed_on(document, struct)))
    listed = (document.structs[struct].fields, sizes)
    return Names(document, struct, sizes, listed, "a field or dim", speller)


def _problems(where: KeyPath, names: Names, expression: Expression, *, single: bool) -> Findings:
    for code, message, hint, severity in names.problems(expression, single=single):
        yield finding(code, where, message, hint, severity)
    yield from _impossible_parts(where, expression)


EXPRESSION_CHECKS: tuple[Check, ...] = (
    _check_equations,
    _check_shapes,
    _check_derived,
    _check_constraints,
)


def _impossible_parts(where: KeyPath, expression: Expression) -> Findings:
    """Finds parts that fail whatever the values of the names are."""
    for node, part in _parts_without_names(expression.tree):
        try:
            evaluate_tree(part, {})
        except SchemaError as error:
            (problem,) = error.diagnostics
            code = "NQX117" if problem.code == "NQX507" else problem.code
            message = problem.message.partition("\n")[0]
            yield finding(code, where, f"{message} in `{shown(node)}`", problem.hint)


def _parts_without_names(tree: ast.expr) -> Iterator[tuple[ast.AST, ast.expr]]:
    """Yields the largest parts without names, and divisions by such parts, each with the expression that is computed for it."""
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop()
        if not has_names(node):
            yield node, cast("ast.expr", node)
            continue
        operations, parts = inside(node)
        todo += parts
        for step in operations:
            match step:
                case ast.BinOp(right=divisor) if operator_of(step).divides:
                    if not has_names(divisor):
                        yield step, ast.BinOp(ast.Constant(1), step.op, divisor)


def _members(names: Names, expression: Expression, where: KeyPath) -> Findings:
    """Finds texts that are compared with an enum or a literal, and are none of its members."""
    for node in ast.walk(expression.tree):
        sides = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
        paths = [side.id for side in sides if isinstance(side, ast.Name)]
        members = names.texts(paths[0]) if len(paths) == 1 else None
        if members is None:
            continue
        for side in sides:
            for item in getattr(side, "elts", [side]):
                text = getattr(item, "value", None)
                if isinstance(text, str) and text not in members:
                    message = f"expected one of {listed(members)}, got {text!r}"
                    yield finding("NQX115", where, message, names.meant(paths[0], text))


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
            used |= _names(filter(None, [declaration.derivation]))
            used |= _names(extents_of(declaration)) | _names(arguments_of(declaration))
    for name in document.dims:
        path = ("dims", name)
        if name not in used and not (name in equations and name in ints):
            message = f"expected a dim that some shape uses, got {name!r}, which none does"
            yield finding("NQX104", path, message, "remove it", "warning")
    values = EquationNames(document, speller)
    for name, equation in equations.items():
        at = ("dims", name, "equals")
        for code, message, hint, severity in values.problems(equation):
            yield finding(code, at, message, hint, severity)
        plain = [inner for inner in equation.names if not values.knows(inner)]
        for inner in unknown(plain, document.dims, ints):
            hint = speller.hint(inner, document.dims, ints) or values.elsewhere(inner)
            hint = hint or f"declare it under `dims:`; {values.known()}"
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
        handed = [
            (name, size)
            for name, declaration in struct.fields.items()
            for each in arguments_of(declaration, document.is_struct)
            for size in each.names
        ]
        times = Counter(size for _, size in handed)
        for name, size in handed:
            # The arrays of the inner struct show it; a name that occurs once may be misspelt.
            if times[size] == 1 and unknown([size], bound, (ANY_SIZE,)):
                close = speller.closest(size, bound, cutoff=0.85)
                if close is not None:
                    message = f"expected a size known in {struct_name}, got {size!r}, which is passed on alone"
                    hint = f"did you mean {close!r}?"
                    yield finding("NQX103", (*at, name, "type"), message, hint, "warning")
        yield from _unused_params(("structs", struct_name, "params"), struct, counted)


def _unused_params(
    at: tuple[str, ...], struct: StructDeclaration, shaped: Container[str]
) -> Findings:
    passed = set[str]().union(*(_names(arguments_of(d)) for d in struct.fields.values()))
    for index, param in enumerate(struct.params):
        if param not in shaped and param not in passed:
            message = f"expected a parameter that some shape uses, got {param!r}, which none does"
            yield finding("NQX104", (*at, index), message, "remove it", "warning")


def _impossible(at: tuple[str, ...], declaration: FieldDeclaration, extent: Expression) -> Findings:
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
    at: tuple[str, ...], extents: Sequence[tuple[str, Expression]], given: Sequence[Container[str]]
) -> Findings:
    """Warns about sizes that no shape determines, alone or after others."""
    read = {extent.text for _, extent in extents if extent.text in extent.names}
    missing = [{*unknown(extent.names, *given, read)} for _, extent in extents]
    solved_names(missing, lambda place, name: _is_linear(extents[place][1], name))
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


def _check_feasible(document: Document) -> Findings:
    """Checks that dims have sizes with their equations and bounds, and that no size in a shape is always negative."""
    root = document.structs.get(document.root)
    ints = {name: root.fields[name] for name in root_ints(document)} if root else {}
    extents = {}
    for path, struct, _, declaration in fields_of(document):
        # A name of its own that is also one of the document has no bounds here.
        own = ints.keys() - document.dims.keys() if struct != document.root else set()
        hiding = {*own, *document.structs[struct].params}
        for extent in extents_of(declaration):
            if extent.names and hiding.isdisjoint(extent.names):
                extents[path, extent.text] = extent
    for place in impossible_sizes(document.dims, ints, extents):
        if isinstance(place, tuple):
            path, text = place
            message = f"expected a size >= 0, got {text}, which no sizes make so"
            yield finding(
                "NQX105", (*path, "type"), message, "declare sizes that an array can have"
            )
            continue
        dim = document.dims[place]
        facts = {"equals": dim.equals, "min": dim.min, "max": dim.max}
        shown = ", ".join(f"{name} {fact}" for name, fact in facts.items() if fact is not None)
        message = f"expected a size that exists, got none for {place}: {shown}"
        hint = "change the equation or the bounds, here or of the dims that it names"
        yield finding("NQX105", ("dims", place), message, hint)


SIZE_CHECKS: tuple[Check, ...] = (_check_dims, _check_sizes, _check_feasible)
