"""Results of derived fields: whether one is of the declared type, and the value that the field has for it.

Classes ask when they compute a field. Checks of payloads ask, too, as they predict what classes refuse.

Example:
    >>> from neuralqx_struct.schema.conformance import see_result
    >>> from neuralqx_struct.schema.model import FieldDeclaration
    >>> shaped = as_declared(v3, FieldDeclaration(type="int"), see_result)
    >>> shaped(4 / 2)
    2
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from neuralqx_struct.errors import SchemaError, ValidationError
from neuralqx_struct.schema.model import Document, FieldDeclaration
from neuralqx_struct.types import Type
from neuralqx_struct.types.builders import LiveBuilder
from neuralqx_struct.types.collections import Collection
from neuralqx_struct.types.text import format_type, read_value

#: The sorts of values of which a result may hold any.
_KEPT = frozenset({"array", "key", "struct", "other"})


def as_declared(
    document: Document,
    declaration: FieldDeclaration,
    see: Callable[[Any], Any],
    *,
    where: str = "",
    make_array: Callable[[Any, Any], Any] = lambda _declared, value: value,
) -> Callable[[Any], Any]:
    """A function of results that gives each the containers and the numbers of the declared type.

    Arrays and structs are kept as they are; a number is an array where an array without axes is declared.

    Args:
        document: The schema.
        declaration: The field.
        see: Reads a result as a :class:`~neuralqx_struct.schema.conformance.Seen`.
        where: Its name in errors.
        make_array: Returns the array of a type and a plain value.

    Returns:
        The function. It raises ValidationError, NQX411, for a result of another type.
    """
    builder = LiveBuilder(document, make_array=make_array)

    def convert(value: Any, wanted: Type) -> Any:
        seen = see(value)
        if seen.sort in ("list", "tuple", "dict"):
            items = [*seen.items.values()]
            for branch in sorted(wanted.branches, key=lambda each: each.meaning != seen.sort):
                parts = branch.parts_for(len(items)) if isinstance(branch, Collection) else None
                if parts is None or (branch.meaning == "dict") is not (seen.sort == "dict"):
                    continue
                made = [convert(item, part) for item, part in zip(items, parts, strict=True)]
                if branch.meaning == "dict":
                    return dict(zip(seen.items, made, strict=True))
                return builder.sequence(branch.sort, made)
        accepted = any(each.accepts(document, seen) for each in wanted.branches)
        if seen.sort in _KEPT or (accepted and type(value) is not int):  # 1 is a float, as 1.0
            return value
        whole = int(value) if type(value) is float and value.is_integer() else value
        for plain in (value, whole):  # 4 // 2.0 is 2.0
            with suppress(SchemaError):
                return read_value(plain, wanted, builder)
        message = f"expected {format_type(wanted)}, got {seen.text}"
        hint = "declare the type that the expression has, or change the expression"
        raise ValidationError(f"{where}: {message}" if where else message, code="NQX411", hint=hint)

    if declaration.type is None:
        return lambda value: value
    return lambda value: convert(value, declaration.declared)
