"""Limits on values: bounds, patterns, choices and constraints that two versions of a schema do not share.

A limit of the reader is compared with the same member of the field from which the values come (``origins.py``), ``ge`` and
``le`` with ``gt`` and ``lt`` too: equal or looser is fine. Nothing else is concluded from one limit about another, so ``gt: -1``
of an int is no reason for ``ge: 0``. A value that a step writes is judged by the limits; of other values that a step makes
nothing is known.

Example:
    >>> [*broken_limits(v1, v2, [])]
    []
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple

from neuralqx_struct.errors import Diagnostic
from neuralqx_struct.evolution.changes import shown
from neuralqx_struct.evolution.declared_sizes import new_sizes
from neuralqx_struct.evolution.origins import FieldPlace, Following, Origin, followed, seen_from
from neuralqx_struct.evolution.steps.operations import Stage
from neuralqx_struct.expressions import parse
from neuralqx_struct.expressions.renamed_words import renamed_text
from neuralqx_struct.schema.bounds import field_limits, plain_misses, scalar_misses
from neuralqx_struct.schema.graph import graph_of
from neuralqx_struct.schema.model import Document, FieldDeclaration
from neuralqx_struct.schema.text import path_text
from neuralqx_struct.types import Type


def _is_above(limit: float, other: float | None) -> bool:
    return other is None or limit > other


def _is_below(limit: float, other: float | None) -> bool:
    return other is None or limit < other


def _lacks(limit: Iterable[Any], other: Iterable[Any] | None) -> bool:
    return other is None or not {*map(repr, other)} <= {*map(repr, limit)}


def _differs(limit: Any, other: Any) -> bool:
    return bool(limit != other)


#: Whether a limit is tighter than another one on the same values, None for none, by member.
_TIGHTER: Mapping[str, Callable[[Any, Any], bool]] = {
    "ge": _is_above,
    "gt": _is_above,
    "le": _is_below,
    "lt": _is_below,
    "min_length": _is_above,
    "max_length": _is_below,
    "finite": _differs,
    "pattern": _differs,
    "validator": _differs,
    "multiple_of": lambda limit, other: other is None or not limit or math.fmod(other, limit) != 0,
    "choices": _lacks,
}


#: The other bound on the same side, and how its number compares with one that it keeps.
_OTHER_BOUND: Mapping[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "ge": ("gt", operator.ge),
    "gt": ("ge", operator.gt),
    "le": ("lt", operator.le),
    "lt": ("le", operator.lt),
}


def limits_on(declaration: FieldDeclaration) -> dict[str, Any]:
    """The limits of a field that refuse values, by member."""
    given = field_limits(declaration).items()
    return {name: limit for name, limit in given if limit is not None and limit is not False}


def is_tighter(name: str, reader: FieldDeclaration, writer: FieldDeclaration) -> bool:
    """True if a limit of one declaration is tighter than that of another one."""
    limit, given = limits_on(reader).get(name), limits_on(writer)
    if limit is None:
        return False
    bound, keeps = _OTHER_BOUND.get(name, ("", None))
    if keeps is not None and bound in given and keeps(given[bound], limit):
        return False
    return _TIGHTER[name](limit, given.get(name))


class Broken(NamedTuple):
    """A limit of a reader that values of a writer may miss.

    Attributes:
        place: The struct, and the field or nothing for a constraint.
        before: The same in the writer; None for a value that a step made.
        limit: The limit.
        member: The member of a field with the limit; nothing for a constraint.
        other: The limit of the writer.
        why: The message where limits are not compared.
    """

    place: FieldPlace
    before: FieldPlace | None
    limit: Any
    member: str = ""
    other: Any = None
    why: str = ""

    def message(self, *, upgrade: bool) -> str:
        """The change from the older version to the newer one."""
        if self.why:
            return self.why
        if not self.member:
            return f"constraint {self.limit} was {'added' if upgrade else 'removed'}"
        old, new = (self.other, self.limit) if upgrade else (self.limit, self.other)
        return f"{self.member} changed from {shown(old)} to {shown(new)}"


def broken_limits(
    writer: Document,
    reader: Document,
    stages: Iterable[Stage],
    roots: Iterable[str] | None = None,
) -> Iterator[Diagnostic]:
    """Yields the limits of a reader that payloads of a writer need not keep.

    Args:
        writer: The version that wrote.
        reader: The version that reads.
        stages: The steps from one to the other.
        roots: The structs of the reader that payloads hold; by default its root.
    """
    structs, _ = graph_of(reader).reached(roots)
    following = followed(writer, stages)
    upgrade = reader.version > writer.version
    hint = "values outside are refused: keep the limit, or waive it with a reason"
    for broken in compared_limits(writer, reader, following):
        struct, name = broken.place if upgrade or broken.before is None else broken.before
        if broken.place[0] in structs:
            member = ("fields", name) if name else ("constraints",)
            path = path_text(("structs", struct, *member))
            code, message = "NQX270" if upgrade else "NQX271", broken.message(upgrade=upgrade)
            yield Diagnostic(code, "error", message, path, hint=hint)


def compared_limits(writer: Document, reader: Document, following: Following) -> Iterator[Broken]:
    """Yields the limits of a reader, also in structs that payloads do not hold, that values of a writer may miss."""
    for struct, declaration in reader.structs.items():
        for name, each in declaration.stored.items():
            origin = following.origin(struct, name)
            if limits_on(each):
                yield from _of_field(writer, (struct, name), each, origin)
        yield from _of_constraints(writer, reader, struct, following)


def _of_field(
    writer: Document, place: FieldPlace, reader: FieldDeclaration, origin: Origin
) -> Iterator[Broken]:
    """Yields the limits on one field that its values may miss."""
    for value in origin.written:
        for miss in plain_misses(reader, value) if value is not None else ():
            why = f"a step puts a value into {place[1]}: {miss}"
            yield Broken(place, origin.place, value, why=why)
    if origin.is_lost and origin.step is not None:
        why = f"the step {origin.step.name} may give a value beyond the limits of the field"
        yield Broken(place, origin.place, None, why=why)
    elif origin.place is not None:
        struct, name = origin.place
        before = writer.structs[struct].fields[name]
        if origin.words:
            yield from _of_words(writer, place, reader, before, origin)
            return
        for member, limit in limits_on(reader).items():
            if is_tighter(member, reader, before):
                yield Broken(place, origin.place, limit, member, getattr(before, member))


def _of_words(
    writer: Document,
    place: FieldPlace,
    reader: FieldDeclaration,
    before: FieldDeclaration,
    origin: Origin,
) -> Iterator[Broken]:
    """Yields the limits on a field that a string of it may miss under its new name."""
    values = _strings_of(before, writer)
    for words in origin.words:
        values = None if values is None else [words.renamed(value) for value in values]
    is_list = any(option.many for option in reader.declared.solid)
    for member, limit in limits_on(reader).items():
        alone = FieldDeclaration.model_validate({"type": reader.text, member: limit})
        if is_list:
            refused = is_tighter(member, reader, before)
        else:
            unknown = values is None or member == "validator"
            refused = unknown or any(scalar_misses(alone, value) for value in values or ())
        if refused:
            why = f"{member} {limit} is on strings that a step renames"
            yield Broken(place, origin.place, limit, why=why)


def _strings_of(declaration: FieldDeclaration, document: Document) -> list[str] | None:
    """The strings that a field may hold; None if they are not known."""
    listed = [_texts(option, document) for option in declaration.declared.solid]
    if all(listed):
        given: Iterable[Any] = chain.from_iterable(listed)
    elif declaration.choices is not None:
        given = declaration.choices
    else:
        return None
    return [
        value for value in given if isinstance(value, str) and not scalar_misses(declaration, value)
    ]


def _texts(option: Type, document: Document) -> list[str]:
    return option.texts(document) or []


def _of_constraints(
    writer: Document, reader: Document, struct: str, following: Following
) -> Iterator[Broken]:
    """Yields the constraints of a struct that the writer does not have, or has on other values."""
    declaration = reader.structs[struct]
    names = {size.text: name for name, size in new_sizes(writer, reader).items()}
    if not declaration.constraints or _is_constant(following, struct):
        return
    known = {renamed_text(parse(text), names) for text in following.constraints_on(struct)}
    former = following.structs.get(struct, struct)
    for constraint in declaration.constraints:
        text = constraint.expression.text
        if text not in known and not _is_known_around(reader, struct, text, following):
            place = (former, "") if former in writer.structs else None
            yield Broken((struct, ""), place, text)


def _is_constant(following: Following, struct: str) -> bool:
    """True if steps write all values of a struct: payloads that are tried show whether they keep its constraints."""
    origins = following.origins.get(struct, {}).values()
    return all(origin.place is None and origin.step is None for origin in origins)


def _is_known_around(reader: Document, struct: str, text: str, following: Following) -> bool:
    """True if each struct that holds another one in a field had the constraint, as it is from there."""
    inside = reader.structs[struct].fields
    holders = [
        (use.struct, seen_from(use.field, parse(text), inside))
        for use in graph_of(reader).users(struct)
        if use.declaration.declared is use.type
    ]
    return bool(holders) and all(seen in following.constraints_on(name) for name, seen in holders)
