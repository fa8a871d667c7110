"""Limits on the values of one field that its other declaration keeps anyway, so that they refuse nothing.

``gt: -1`` of an int means the same as ``ge: 0``, and ``choices: [2, 4]`` keeps ``multiple_of: 2``. A verdict asks for each limit of a
reader whether it refuses a value that the writer allows (:func:`refuses`).

Constraints on all elements of a value are implied likewise: they hold for each part of it, and for a value whose parts they all
hold for (:func:`passed_on`).

Example:
    >>> one, other = (FieldDeclaration.model_validate({"type": "int", **limit}) for limit in ({"gt": -1}, {"ge": 0}))
    >>> refuses("gt", one, other), refuses("ge", other, one)
    (False, False)
    >>> from neuralqx_struct.expressions import parse
    >>> sorted(passed_on([parse("all(w >= 0)"), parse("sum(w) == 1")], ["w"], ["a", "b"], v1.structs["VMCState"]))
    ['all(a >= 0)', 'all(b >= 0)']
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cache
from itertools import chain, islice
from typing import Any

from neuralqx_struct.evolution.steps import renamed_text
from neuralqx_struct.expressions import Expression, parse
from neuralqx_struct.expressions.functions import FUNCTIONS
from neuralqx_struct.expressions.grammar import head_of, path_of, steps_of
from neuralqx_struct.expressions.operators import format_tree
from neuralqx_struct.schema.bounds import (
    Limits,
    bounded,
    inside,
    limits_of,
    live_value,
    scalar_misses,
)
from neuralqx_struct.schema.model import Document, FieldDeclaration, StructDeclaration
from neuralqx_struct.types import Array, Type, walk_type

_ALL = "all"


def passed_on(
    conditions: Iterable[Expression],
    sources: Sequence[str],
    results: Sequence[str],
    struct: StructDeclaration,
    *,
    items: bool = False,
) -> set[str]:
    """The texts of conditions that hold for the results of a step, as they held for what it was made of.

    Args:
        conditions: The conditions of the struct before the step.
        sources: The fields before the step; one of them, or one result, is the whole.
        results: The fields after it.
        struct: The struct of these conditions.
        items: Whether the parts are the items of a collection, and not arrays.
    """
    known = [*conditions]
    texts = {condition.text for condition in known}
    found: set[str] = set()
    if len(sources) == 1:
        for condition in known:
            if _is_everywhere(condition, sources[0], struct):
                for text in _plain(condition) if items else (condition.text,):
                    found |= {_of(parse(text), sources[0], result) for result in results}
        return found
    for condition in known:
        wrapped = parse(f"{_ALL}({condition.text})") if items else condition
        if not _is_everywhere(wrapped, sources[0], struct):
            continue
        if all(_of(condition, sources[0], source) in texts for source in sources):
            found |= {_of(wrapped, sources[0], result) for result in results}
    return found


def _plain(condition: Expression) -> tuple[str, ...]:
    """The condition, and without ``all`` around it, as one item needs no more."""
    call = condition.tree
    inside = format_tree(call.args[0]) if isinstance(call, ast.Call) else condition.text
    return condition.text, inside


def _is_everywhere(condition: Expression, name: str, struct: StructDeclaration) -> bool:
    """True for a condition that looks at each element of a field alone: ``all(...)`` of it and of single numbers."""
    tree = condition.tree
    outer = isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and tree.func.id == _ALL
    if not outer or not isinstance(tree, ast.Call):
        return False
    for node in ast.walk(tree.args[0]):
        if isinstance(node, ast.Call):
            function = FUNCTIONS.get(getattr(node.func, "id", ""))
            if function is None or function.folds or function.measures:
                return False
    own = [path for path in condition.names if head_of(path) == name]
    whole = all(not isinstance(step, int) for path in own for step in steps_of(path)[:1])
    return bool(own) and whole and all(_is_single(p, struct) for p in condition.names - {*own})


def _is_single(path: str, struct: StructDeclaration) -> bool:
    """True for a dim, or a field that is one number."""
    field = struct.fields.get(path)
    if field is None or field.type is None:
        return field is None and path == head_of(path)
    return field.declared.axes == 0


def _of(condition: Expression, name: str, other: str) -> str:
    """The text of a condition on another field."""
    paths = {
        path: path_of(other, steps_of(path)) for path in condition.names if head_of(path) == name
    }
    return renamed_text(condition, paths)


def for_items(declaration: FieldDeclaration, items: tuple[int, int | None]) -> FieldDeclaration:
    """The declaration without limits on the length of a collection that a least and a largest number of items keep."""
    (least, most), kept = items, dict[str, None]()
    if declaration.min_length is not None and declaration.min_length <= least:
        kept["min_length"] = None
    limit = declaration.max_length
    if most is not None and limit is not None and most <= limit:
        kept["max_length"] = None
    return declaration.model_copy(update=kept) if kept else declaration


def bounded_fields(
    document: Document, roots: Iterable[str] | None = None
) -> Callable[[tuple[str, ...]], FieldDeclaration]:
    """A function of the path of a field: its declaration with the bounds that constraints give it.

    Those are the constraints of its struct and, if nothing else holds the struct, of those around it.

    Args:
        document: The version.
        roots: The structs that payloads hold, by the names in this or the other version; by default its root.
    """
    starts = {document.root} if roots is None else {*roots}
    known = starts if starts <= document.structs.keys() else document.structs
    places = {name: [("", "")] for name in known}
    for owner in document.structs:
        for field, declaration in document.structs[owner].stored.items():
            for inner in walk_type(declaration.declared):
                held = document.structs if inner.takes_all else [inner.refers]
                for name in held:
                    places.setdefault(name, []).append((owner, field))

    def limits(name: str, within: tuple[str, ...]) -> Limits:
        struct, around = document.structs[name], Limits()
        (owner, field), *others = places.get(name, [("", "")])
        if owner and not others and name not in within:
            walked = walk_type(document.structs[owner].fields[field].declared)
            if not any(inner.sort == "dict" for inner in walked):  # a name may be that of an entry
                around = inside(limits(owner, (*within, name)), field)
        every = [c for c in struct.constraints if not any(map(_is_of_item, c.expression.names))]
        return limits_of(struct.model_copy(update={"constraints": every}), around)

    @cache
    def fields(name: str) -> dict[str, FieldDeclaration]:
        return bounded(document.structs[name], limits(name, ()))

    return lambda path: fields(path[1])[path[3]]


def _is_of_item(path: str) -> bool:
    return any(isinstance(step, int) for step in steps_of(path))


_MOST = 256  # values that are tried one by one
_WHOLE = frozenset(("integer", "unsigned"))

#: A bound with whether values are beyond it; of two that hold, the larger one counts.
_End = tuple[float, bool]


def refuses(name: str, reader: FieldDeclaration, writer: FieldDeclaration) -> bool:
    """Whether a limit refuses a value of another declaration, as far as limits show.

    Args:
        name: The member that holds the limit.
        reader: The declaration with the limit.
        writer: The declaration whose values are judged, of the same type or a narrower one.
    """
    limit = getattr(reader, name)
    if limit is None or limit is False or limit == getattr(writer, name):
        return False
    if name in _OF_NUMBERS and all(map(_has_axes, reader.declared.solid)):
        return False  # NQX131: bounds do not check the numbers of arrays
    if name in _IMPLIED and _IMPLIED[name](limit, writer):
        return False
    values = _values(writer, name)
    if values is None:
        return True
    others = dict.fromkeys([*_IMPLIED, "pattern", "validator"], None)
    alone = reader.model_copy(update={**others, "finite": False, name: limit})
    return name == "validator" or any(scalar_misses(alone, value) for value in values)


def refused_words(
    reader: FieldDeclaration,
    writer: FieldDeclaration,
    document: Document,
    renames: Iterable[Callable[[Any], Any]] | None,
) -> set[str]:
    """The limits of a field that refuse a value of its other declaration, once steps renamed the strings.

    Args:
        reader: The declaration with the limits.
        writer: The other one.
        document: That of the writer.
        renames: What each step does to a value; None if that is not known.
    """
    wanted = {name for name in _OF_TEXTS if getattr(reader, name) is not None}
    found = {name for name in {*_IMPLIED} - {*_OF_TEXTS} if refuses(name, reader, writer)}
    solid = writer.declared.solid
    if any(option.many for option in solid):
        return found | {name for name in wanted if refuses(name, reader, writer)}
    listed = [option.listed_values or option.texts(document) or () for option in solid]
    if renames is None or not (all(listed) or writer.choices is not None):
        return found | wanted
    values: Iterable[Any] = chain.from_iterable(listed) if all(listed) else writer.choices or ()
    held = [value for value in values if not scalar_misses(writer, value)]
    for rename in renames:
        held = [rename(value) for value in held]
    others = dict.fromkeys([*_IMPLIED, *_OF_TEXTS])
    for name in wanted:
        alone = reader.model_copy(update={**others, "finite": False, name: getattr(reader, name)})
        if name == "validator" or any(scalar_misses(alone, value) for value in held):
            found.add(name)
    return found


def _has_axes(option: Type) -> bool:
    """True for an array that has an axis in any case, and so is no number."""
    return isinstance(option, Array) and option.shape not in ((), (...,))


def _values(writer: FieldDeclaration, name: str) -> list[Any] | None:
    """All values that a limit is about, null aside; None where they are not known, or too many."""
    found: Any
    listed = [option.listed_values for option in writer.declared.solid]
    if all(listed) or writer.choices is not None:
        given = chain.from_iterable(listed) if all(listed) else writer.choices or ()
        found = [*islice(given, _MOST + 1)]
        if len(found) > _MOST:
            return None
        if not all(listed):
            found = [live_value(writer, each) for each in found]
    else:
        (low, _), (high, _) = _low(writer), _high(writer)
        if not _is_about_ints(writer, name) or -math.inf in (low, high) or -high - low >= _MOST:
            return None
        found = range(int(low), int(-high) + 1)
    return [value for value in found if not scalar_misses(writer, value)]


def _is_about_ints(writer: FieldDeclaration, name: str) -> bool:
    """True if a limit is about whole numbers alone: about all values in ``choices``, about numbers in bounds."""
    solid = writer.declared.solid
    if name == "choices":  # True and False are equal to 1 and 0
        return all(option.families and {*option.families} <= _WHOLE | {"bool"} for option in solid)
    return name in _OF_NUMBERS and _is_whole(writer)


def _is_whole(declaration: FieldDeclaration) -> bool:
    """True if all numbers among the values are whole."""
    solid = declaration.declared.solid
    numbers = [option for option in solid if option.families or "number" in option.bounds]
    return all(option.families and {*option.families} <= _WHOLE | {"bool"} for option in numbers)


def _low(declaration: FieldDeclaration) -> _End:
    return _end(declaration, declaration.ge, declaration.gt)


def _high(declaration: FieldDeclaration) -> _End:
    """The upper end, as the lower end of the negative numbers."""
    upper = (declaration.le, declaration.lt)
    return _end(declaration, *(None if bound is None else -bound for bound in upper))


def _end(declaration: FieldDeclaration, closed: float | None, beyond: float | None) -> _End:
    """The lower end of numbers with two bounds; that of whole numbers is one of them."""
    ends = [(closed, False), (beyond, True)]
    end = max(
        ((bound, far) for bound, far in ends if bound is not None), default=(-math.inf, False)
    )
    if end[0] == -math.inf or not _is_whole(declaration):
        return end
    first = math.floor(end[0]) + 1 if end[1] else math.ceil(end[0])
    step = declaration.multiple_of
    if step and step == int(step):
        first = -(-first // abs(int(step))) * abs(int(step))
    return first, False


def _is_finite(writer: FieldDeclaration) -> bool:
    """True if no value is infinite or NaN, which no bound and no multiple accepts."""
    ends = (_low(writer), _high(writer))
    closed = all(bound > -math.inf for bound, _ in ends)
    return closed or _is_whole(writer) or writer.multiple_of is not None


def _is_multiple(limit: float, writer: FieldDeclaration) -> bool:
    steps: list[float] = [1] if _is_whole(writer) else []
    if writer.multiple_of is not None:
        steps.append(writer.multiple_of)
    return limit != 0 and any(Fraction(step) % Fraction(limit) == 0 for step in steps)


def _lengths(writer: FieldDeclaration) -> tuple[int, float]:
    """The least and the largest length of a value."""
    least, most = writer.min_length or 0, math.inf
    if writer.max_length is not None:
        most = writer.max_length
    counts = [option.count for option in writer.declared.solid if "length" in option.bounds]
    fixed = [count for count in counts if count is not None]
    if fixed and len(fixed) == len(counts):
        least, most = max(least, min(fixed)), min(most, max(fixed))
    return least, most


def _are_among(limit: Iterable[Any], writer: FieldDeclaration) -> bool:
    """True if all choices are among others; a search for each would take the square of the time."""
    if writer.choices is None:
        return False
    known = [*limit]
    try:
        return {*writer.choices} <= {*known}
    except TypeError:  # lists
        return {*map(repr, writer.choices)} <= {*map(repr, known)}


#: Whether a limit holds of all values of a declaration because of its other limits, by member.
_IMPLIED: Mapping[str, Callable[[Any, FieldDeclaration], bool]] = {
    "ge": lambda limit, writer: _low(writer) >= (limit, False),
    "gt": lambda limit, writer: _low(writer) >= (limit, True),
    "le": lambda limit, writer: _high(writer) >= (-limit, False),
    "lt": lambda limit, writer: _high(writer) >= (-limit, True),
    "finite": lambda _, writer: _is_finite(writer),
    "multiple_of": _is_multiple,
    "min_length": lambda limit, writer: _lengths(writer)[0] >= limit,
    "max_length": lambda limit, writer: _lengths(writer)[1] <= limit,
    "choices": _are_among,
}
_OF_TEXTS = ("min_length", "max_length", "pattern", "validator", "choices")
_OF_NUMBERS = frozenset(("ge", "gt", "le", "lt", "finite", "multiple_of"))
