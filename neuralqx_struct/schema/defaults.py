"""Values that a schema document gives: do defaults, choices and bounds fit the types of their fields.

Owns what a value in a schema file may be for each type. What a pattern may be is ``patterns.py``'s; whether a
value keeps its bounds is ``bounds.py``'s.

Example:
    >>> from neuralqx_struct.schema.loader import read_text
    >>> from neuralqx_struct.schema.reading import parse_document
    >>> text = '{"language": "1", "schema": "a", "version": 1, "root": "A", "structs": {"A": {"fields": %s}}}'
    >>> document = parse_document(read_text(text % '{"n": {"type": "int", "default": 0.5}}'))
    >>> [finding.message for check in VALUE_CHECKS for finding in check(document)]
    ['expected a default of type int, got 0.5']
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from neuralqx_struct.errors import did_you_mean
from neuralqx_struct.schema.bounds import scalar_misses
from neuralqx_struct.schema.claims import exact
from neuralqx_struct.schema.expressions import Expression
from neuralqx_struct.schema.findings import Finding, Findings, fields_of
from neuralqx_struct.schema.model import Document, FieldDeclaration
from neuralqx_struct.schema.patterns import objection_to
from neuralqx_struct.schema.types import (
    DTYPES,
    Array,
    DictOf,
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

__all__ = ["VALUE_CHECKS", "is_too_large"]

_MANY = 1000
_MOST_BYTES = 4 << 30

#: Python types of the YAML values that stand for each scalar.
_WRITTEN: Mapping[str, tuple[type, ...]] = {
    "bool": (bool,),
    "int": (int,),
    "float": (int, float),
    "complex": (int, float),
    "str": (str,),
    "path": (str,),
    "bytes": (),
    "dtype": (str,),
}


def _fits(document: Document, declared: Type, value: Any) -> bool:
    """True if a value as a file holds it is of the type; of arrays only the numbers are looked at, not the shape."""
    match declared:
        case Scalar("dtype"):
            return value in DTYPES
        case Scalar(name):
            return type(value) in _WRITTEN[name]
        case Null():
            return value is None
        case PyTree():
            return True
        case Array(dtype):
            return dtype not in DTYPES or all(_is_element(dtype, number) for number in _numbers(value))
        case Named(name) if (members := document.members_of(name)) is not None:
            return value in members
        case LiteralOf(values):
            return (type(value), value) in [(type(v), v) for v in values]
        case ListOf(item):
            return isinstance(value, list) and all(_fits(document, item, v) for v in value)
        case TupleOf(items, variadic):
            wanted = items * len(value) if variadic and isinstance(value, list) else items
            return (
                isinstance(value, list)
                and len(wanted) == len(value)
                and all(_fits(document, t, v) for t, v in zip(wanted, value, strict=True))
            )
        case DictOf(item):
            return isinstance(value, dict) and all(_fits(document, item, v) for v in value.values())
        case Union(options):
            return any(_fits(document, option, value) for option in options)
        case _:  # structs and keys have no written form
            return isinstance(declared, Named) and not document.is_struct(declared.name)


def _numbers(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        for item in value:
            yield from _numbers(item)
    else:
        yield value


def _is_element(dtype: str, number: Any) -> bool:
    kind = DTYPES[dtype]
    if kind.family == "bool":
        return type(number) is bool
    if kind.family in ("integer", "unsigned"):
        low = 0 if kind.family == "unsigned" else -(2 ** (kind.bits - 1))
        return type(number) is int and low <= number < low + 2**kind.bits
    return type(number) in (int, float)


def _shape_of(value: Any) -> tuple[int, ...] | None:
    """The shape of nested lists; None where they are ragged."""
    if not isinstance(value, list):
        return ()
    inner = {_shape_of(item) for item in value}
    below = next(iter(inner), ())
    return None if len(inner) > 1 or below is None else (len(value), *below)


def _texts(document: Document, declared: Type) -> list[str]:
    """The texts that a type allows: members of enums, texts of literals."""
    found: list[str] = []
    for option in _branches(declared):
        if isinstance(option, Named):
            found += document.members_of(option.name) or ()
        elif isinstance(option, LiteralOf):
            found += [value for value in option.values if isinstance(value, str)]
    return found


def _check_defaults(document: Document) -> Findings:
    for path, _, _, declaration in fields_of(document):
        declared, where = declaration.declared, (*path, "default")
        if declaration.has_default and declaration.derived is None and declaration.kind != "opaque":
            value = declaration.default
            if not _fits(document, declared, value):
                hint = f'write type: "{declaration.text} | null"' if value is None else None
                if value is not None and any(isinstance(option, Array) for option in _branches(declared)):
                    hint = "write zeros, ones, a number that fills it, {fill: 0.5}, or its numbers as [1, 2, 3]"
                if isinstance(value, str) and (members := _texts(document, declared)):
                    hint = did_you_mean(value, members) or f"one of {', '.join(members)}"
                message = f"expected a default of type {declaration.text}, got {_shown(value)}"
                yield Finding("NQX107", where, message, hint)
            elif value is not None and _can_be_asked(declaration) and (misses := scalar_misses(declaration, value)):
                hint = "nobody can leave the field out: change the default or the bound"
                yield Finding("NQX107", where, "; ".join(misses), hint, "warning")
            elif sum(1 for _ in _numbers(value)) > _MANY:
                message = f"expected a default of at most {_MANY} numbers, got more"
                yield Finding("NQX109", where, message, "set it in Python", "warning")
            arrays = [option for option in _branches(declared) if isinstance(option, Array)]
            if value is not None and arrays and not isinstance(value, (str, dict)):
                yield from _default_shape(where, arrays[0], value)
        for index, choice in enumerate(declaration.choices or ()):
            if not _fits(document, declared, choice):
                message = f"expected a choice of type {declaration.text}, got {_shown(choice)}"
                yield Finding("NQX107", (*path, "choices", index), message)


def _can_be_asked(declaration: FieldDeclaration) -> bool:
    """False where a bound is itself a finding, or a pattern would take long."""
    pattern, multiple = declaration.pattern, declaration.multiple_of
    return (multiple is None or multiple > 0) and (pattern is None or not objection_to(pattern))


def _branches(declared: Type) -> tuple[Type, ...]:
    return declared.options if isinstance(declared, Union) else (declared,)


def _default_shape(where: tuple[str | int, ...], array: Array, value: Any) -> Findings:
    symbolic = [extent.text for extent in array.shape if isinstance(extent, Expression) and extent.names]
    if symbolic:
        message = f"expected a default only where all sizes are numbers, got one for {format_type(array)}"
        hint = f"{symbolic[0]} is known only from an instance; remove the default, or allow null"
        yield Finding("NQX108", where, message, hint)
    elif is_too_large(array):
        message = f"expected a default of at most {_MOST_BYTES >> 30} GiB, got one for {format_type(array)}"
        yield Finding("NQX109", where, message, "check the sizes, or set it in Python")
    elif isinstance(value, list) and ... not in array.shape:
        shape = _shape_of(value)
        if shape is None or [str(size) for size in shape] != [e.text for e in array.shape if isinstance(e, Expression)]:
            got = "lists of different lengths" if shape is None else f"shape {list(shape)}"
            yield Finding("NQX108", where, f"expected a default for {format_type(array)}, got {got}")


def is_too_large(array: Array) -> bool:
    """True if an array without symbolic sizes is larger than any default may be: one word of a file makes it."""
    sizes = [exact(extent, {}) for extent in array.shape if isinstance(extent, Expression) and not extent.names]
    known = [abs(size) for size in sizes if size is not None]
    return array.dtype in DTYPES and math.prod(known) * DTYPES[array.dtype].bits > 8 * _MOST_BYTES


def _shown(value: Any) -> str:
    text = "null" if value is None else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


#: What each bound is for, in words, and the types that have it.
_NUMBER = "a number", lambda t: t in (Scalar("int"), Scalar("float"), PyTree()) or isinstance(t, LiteralOf)
_TEXT = "text", lambda t: t in (Scalar("str"), PyTree())
_LENGTH = (
    "text, bytes, a list, a tuple or a dict",
    lambda t: t in (Scalar("str"), Scalar("bytes"), PyTree()) or isinstance(t, (ListOf, TupleOf, DictOf)),
)
_BOUNDS: Mapping[str, tuple[str, Callable[[Type], bool]]] = {
    **dict.fromkeys(("ge", "gt", "le", "lt", "multiple_of", "finite"), _NUMBER),
    "pattern": _TEXT,
    **dict.fromkeys(("min_length", "max_length"), _LENGTH),
}
#: A bound of a number as a condition on all numbers of an array.
_SAID: Mapping[str, str] = {
    "ge": "all({name} >= {value})",
    "gt": "all({name} > {value})",
    "le": "all({name} <= {value})",
    "lt": "all({name} < {value})",
    "multiple_of": "all({name} % {value} == 0)",
    "finite": "all(isfinite({name}))",
}


def _check_bounds(document: Document) -> Findings:
    for path, _, _, declaration in fields_of(document):
        branches = _branches(declaration.declared)
        given = {member: getattr(declaration, member) for member in _BOUNDS}
        for member in (m for m, value in given.items() if value is not None and value is not False):
            wanted, has_it = _BOUNDS[member]
            if any(map(has_it, branches)):
                continue
            message = f"expected {member} on {wanted}, got it on {declaration.text}"
            if wanted == "a number" and any(isinstance(b, Array) for b in branches):
                why = "\na bound does not check the numbers of an array"
                say = _SAID[member].format(name=path[-1], value=given[member])
                hint = f"put a condition under `constraints:` of the struct, such as `{{expr: {say}}}`"
                yield Finding("NQX131", (*path, member), message + why, hint, "warning")
            else:
                yield Finding("NQX115", (*path, member), message, "remove it")
        if declaration.multiple_of is not None and declaration.multiple_of <= 0:
            message = f"expected a positive number, got {declaration.multiple_of}"
            yield Finding("NQX115", (*path, "multiple_of"), message)
        lows = [bound for bound in (declaration.ge, declaration.gt) if bound is not None]
        highs = [bound for bound in (declaration.le, declaration.lt) if bound is not None]
        if lows and highs and max(lows) > min(highs):
            message = f"expected bounds that some number keeps, got {max(lows)} to {min(highs)}"
            yield Finding("NQX115", path, message, "exchange the bounds")
        shortest, longest = declaration.min_length, declaration.max_length
        if shortest is not None and longest is not None and shortest > longest:
            message = f"expected lengths that some value has, got {shortest} to {longest}"
            yield Finding("NQX115", (*path, "min_length"), message, "exchange min_length and max_length")
        if declaration.pattern is not None and (objection := objection_to(declaration.pattern)):
            code, message = objection
            hint = "use literals, character classes and one quantifier after another, each on a single character"
            yield Finding(code, (*path, "pattern"), message, hint)


VALUE_CHECKS: tuple[Callable[[Document], Findings], ...] = (_check_defaults, _check_bounds)
