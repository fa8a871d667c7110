"""Checks of the expressions of one document: are their names known, do their types fit, can they be computed at all.

Owns what is expected of the expressions of dims, derived fields and constraints. The rules of types are
``static_types.py``; the syntax was checked when the file was read.

Example:
    >>> from neuralqx_struct.schema.loader import read_text
    >>> from neuralqx_struct.schema.reading import parse_document
    >>> text = '{"language": "1", "schema": "a", "version": 1, "root": "A", "structs": {"A": {"fields": %s}}}'
    >>> document = parse_document(read_text(text % '{"x": "str", "y": {"type": "int", "derived": "x + 1"}}'))
    >>> [finding.message for check in EXPRESSION_CHECKS for finding in check(document)]
    ['expected operands that fit together, got text and an int in `x + 1`']
"""

from __future__ import annotations

import ast
import re
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping

from neuralqx_struct.schema.expressions import Expression
from neuralqx_struct.schema.findings import (
    Finding,
    Findings,
    Speller,
    arguments_of,
    cycles,
    extents_of,
    fields_of,
    root_ints,
    shown_cycle,
    sizes_of,
    unknown,
)
from neuralqx_struct.schema.model import Document, StructDeclaration
from neuralqx_struct.schema.static_types import Problem, Sorts, infer, named, sorts_of
from neuralqx_struct.schema.types import LiteralOf, Named, Null, Type, Union

__all__ = ["EXPRESSION_CHECKS"]

_INT: Sorts = frozenset({"int"})
_CAN_FAIL = re.compile(r"""[^-+*\w ]|\*\*|\d\.""")  # sums and products of whole numbers cannot


def _check_equations(document: Document) -> Findings:
    known: dict[str, Sorts] = dict.fromkeys({*document.dims, *root_ints(document)}, _INT)
    wanted = "a size", frozenset({"int", "float"}), "an equation gives a whole number"
    for name, dim in document.dims.items():
        if dim.equation is not None:
            yield from _typed(("dims", name, "equals"), dim.equation, known, wanted)


def _check_shapes(document: Document) -> Findings:
    """Sizes that no names make possible; those without names are the business of ``size_checks.py``."""
    wanted = "a size", frozenset({"int", "float"}), "an axis has a whole number of entries"
    for path, _, _, declaration in fields_of(document):
        for extent in (*extents_of(declaration), *arguments_of(declaration)):
            if extent.names and _CAN_FAIL.search(extent.text):
                yield from _typed((*path, "type"), extent, dict.fromkeys(extent.names, _INT), wanted)


def _check_derived(document: Document) -> Findings:
    speller = Speller()
    for struct_name, struct in document.structs.items():
        at = ("structs", struct_name, "fields")
        derived = {name: d.derivation for name, d in struct.fields.items() if d.derivation is not None}
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
                hint = None if is_size else speller.hint(name_in, struct.fields, what="fields")
                hint = "read sizes from a field: shape(x)[0]" if is_size else hint
                yield Finding("NQX116", where, message, hint)
            declared = None if declaration.type is None else sorts_of(declaration.declared, document.is_struct)
            wanted = declaration.text, None if declared is None else _widened(declared), None
            yield from _typed(where, expression, known, wanted)
        for cycle in cycles({n: frozenset(other for other in e.names if other in derived) for n, e in derived.items()}):
            message = f"expected derived fields in some order, got the cycle {shown_cycle(cycle)}"
            yield Finding("NQX112", (*at, cycle[0], "derived"), message, "derive one of them from stored fields")


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
                hint = speller.hint(name_in, struct.fields, sizes, what="fields", first=1)
                message = f"expected a field or dim of {struct_name}, got {name_in!r}"
                yield Finding("NQX116", where, message, hint)
            wanted = "a condition", frozenset({"bool", "array"}), "compare it with something, as in `size(x) > 0`"
            yield from _typed(where, constraint.expression, known, wanted)
            for problem in _members(document, struct, constraint.expression, speller):
                yield Finding(problem.code, where, problem.message, problem.hint)


EXPRESSION_CHECKS: tuple[Callable[[Document], Findings], ...] = (
    _check_equations,
    _check_shapes,
    _check_derived,
    _check_constraints,
)


def _sorts(document: Document, struct: StructDeclaration) -> dict[str, Sorts]:
    """The sorts of every field: as declared, or as its expression gives them."""
    known: dict[str, Sorts] = {
        name: None if d.type is None else sorts_of(d.declared, document.is_struct) for name, d in struct.fields.items()
    }
    for name, declaration in struct.fields.items():
        if declaration.type is None and declaration.derivation is not None:
            known[name] = infer(declaration.derivation.tree, known, [])
    return known


def _widened(sorts: frozenset[str]) -> frozenset[str]:
    """What fields of these sorts take: whole numbers where floats stand, and arrays without axes as numbers."""
    more = {"int": {"bool", "array"}, "float": {"bool", "int", "array"}, "complex": {"bool", "int", "float", "array"}}
    more |= {"bool": {"array"}, "array": {"bool", "int", "float", "complex"}}
    return sorts.union(*(more.get(sort, set()) for sort in sorts))


def _typed(
    where: tuple[str | int, ...],
    expression: Expression,
    known: Mapping[str, Sorts],
    wanted: tuple[str, Sorts, str | None],
) -> Findings:
    """What is wrong inside an expression, else whether it is what stands there."""
    problems: list[Problem] = []
    found = infer(expression.tree, known, problems)
    for problem in dict.fromkeys(problems):
        yield Finding(problem.code, where, problem.message, problem.hint)
    words, accepted, hint = wanted
    if not problems and found is not None and accepted is not None and not found & accepted:
        yield Finding("NQX115", where, f"expected {words}, got {named(found)}", hint)


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
        members = None if field.type is None else _texts(document, field.declared)
        for right in node.comparators if members is not None else ():
            for item in right.elts if isinstance(right, (ast.Tuple, ast.List)) else [right]:
                if isinstance(item, ast.Constant) and isinstance(item.value, str) and item.value not in (members or ()):
                    message = f"expected one of {', '.join(members or ())}, got {item.value!r}"
                    yield Problem("NQX115", message, speller.hint(item.value, members or ()))


def _texts(document: Document, declared: Type) -> list[str] | None:
    """All texts that values of a type can be, or None if there is no end to them."""
    found: list[str] = []
    for option in declared.options if isinstance(declared, Union) else (declared,):
        match option:
            case Named(name) if (members := document.members_of(name)) is not None:
                found += members
            case LiteralOf(values):
                found += [value for value in values if isinstance(value, str)]
            case Null():
                pass
            case _:
                return None
    return found
