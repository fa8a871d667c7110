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
from collections.abc import Callable, Iterator, Mapping

from neuralqx_struct.errors import did_you_mean
from neuralqx_struct.schema.expressions import Expression
from neuralqx_struct.schema.findings import Finding, Findings, listed, root_ints, sizes_of
from neuralqx_struct.schema.model import Document, StructDeclaration
from neuralqx_struct.schema.static_types import Problem, Sorts, infer, named, sorts_of
from neuralqx_struct.schema.types import LiteralOf, Named, Null, Type, Union

__all__ = ["EXPRESSION_CHECKS"]

_INT: Sorts = frozenset({"int"})


def _check_equations(document: Document) -> Findings:
    for name, dim in document.dims.items():
        if dim.equation is not None:
            known: dict[str, Sorts] = dict.fromkeys({*document.dims, *root_ints(document)}, _INT)
            wanted = "a size", frozenset({"int", "float"}), "an equation gives a whole number"
            yield from _typed(("dims", name, "equals"), dim.equation, known, wanted)


def _check_derived(document: Document) -> Findings:
    for struct_name, struct in document.structs.items():
        at = ("structs", struct_name, "fields")
        sizes = sizes_of(document, struct_name)
        known = _sorts(document, struct)
        derived = {name: d.derivation for name, d in struct.fields.items() if d.derivation is not None}
        for name, expression in derived.items():
            where, declaration = (*at, name, "derived"), struct.fields[name]
            for unknown in sorted(expression.names - struct.fields.keys()):
                is_size = unknown in sizes
                message = f"expected a field of {struct_name}, got {unknown!r}" + (
                    ", which is a dim" if is_size else ""
                )
                hint = "read sizes from a field: shape(x)[0]" if is_size else did_you_mean(unknown, struct.fields)
                yield Finding("NQX116", where, message, hint or listed(struct.fields, "fields"))
            declared = None if declaration.type is None else sorts_of(declaration.declared, document.is_struct)
            wanted = declaration.text, None if declared is None else _widened(declared), None
            yield from _typed(where, expression, known, wanted)
        for cycle in _cycles({n: e.names & derived.keys() for n, e in derived.items()}):
            shown = cycle if len(cycle) <= 8 else (*cycle[:6], "...", cycle[-1])
            message = f"expected derived fields in some order, got the cycle {' -> '.join((*shown, cycle[0]))}"
            yield Finding("NQX112", (*at, cycle[0], "derived"), message, "derive one of them from stored fields")


def _check_constraints(document: Document) -> Findings:
    for struct_name, struct in document.structs.items():
        sizes = sizes_of(document, struct_name)
        known = {**dict.fromkeys(sizes, _INT), **_sorts(document, struct)}
        for index, constraint in enumerate(struct.constraints):
            where = ("structs", struct_name, "constraints", index, "expr")
            for unknown in sorted(constraint.expression.names - struct.fields.keys() - sizes):
                hint = did_you_mean(unknown, {*struct.fields, *sizes}) or listed(struct.fields, "fields")
                message = f"expected a field or dim of {struct_name}, got {unknown!r}"
                yield Finding("NQX116", where, message, hint)
            wanted = "a condition", frozenset({"bool", "array"}), "compare it with something, as in `size(x) > 0`"
            yield from _typed(where, constraint.expression, known, wanted)
            for problem in _members(document, struct, constraint.expression):
                yield Finding(problem.code, where, problem.message, problem.hint)


EXPRESSION_CHECKS: tuple[Callable[[Document], Findings], ...] = (_check_equations, _check_derived, _check_constraints)


def _sorts(document: Document, struct: StructDeclaration) -> dict[str, Sorts]:
    """The sorts of every field: as declared, or as its expression gives them."""
    known: dict[str, Sorts] = {
        name: None if d.type is None else sorts_of(d.declared, document.is_struct) for name, d in struct.fields.items()
    }
    for name, declaration in struct.fields.items():
        if declaration.type is None and declaration.derivation is not None:
            known[name] = infer(declaration.derivation.tree, {**known, name: None}, [])
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


def _members(document: Document, struct: StructDeclaration, expression: Expression) -> Iterator[Problem]:
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
                    yield Problem("NQX115", message, did_you_mean(item.value, members or ()))


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


def _cycles(graph: Mapping[str, frozenset[str]]) -> Iterator[tuple[str, ...]]:
    """One cycle for each knot of the graph, starting at its first node."""
    done: set[str] = set()
    for start in graph:
        path: list[str] = []
        stack = [(start, iter(sorted(graph[start])))] if start not in done else []
        while stack:
            node, below = stack[-1]
            if len(path) < len(stack):
                path.append(node)
            following = next(below, None)
            if following is None:
                done.add(node)
                stack.pop()
                path.pop()
            elif following in path:
                yield tuple(path[path.index(following) :])
                done |= {*path}
            elif following not in done:
                stack.append((following, iter(sorted(graph[following]))))
