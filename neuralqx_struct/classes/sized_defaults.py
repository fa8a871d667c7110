"""Defaults whose sizes or dtype the other fields of an instance fix, made while the instance is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from neuralqx_struct.classes.defaults import SizedDefault
from neuralqx_struct.classes.live_values import see_value
from neuralqx_struct.errors import Diagnostic, SchemaError, ValidationError
from neuralqx_struct.paths import FieldName
from neuralqx_struct.schema.conformance import Seen, conform, size_scopes
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.sizes.solver import Solver


def complete(
    document: Document,
    struct: str,
    makers: Mapping[str, Callable[[Solver], Any]],
    values: dict[str, Any],
) -> None:
    """Puts values in place of the defaults of which only the sizes, or the dtype, were missing.

    Args:
        document: The schema.
        struct: The struct.
        makers: The functions that make the values for given sizes, by field.
        values: The values of the fields, with a :class:`SizedDefault` for each that is missing; it is changed.

    Raises:
        ValidationError: NQX108: the other fields do not fix the sizes of some, with every problem of those fields before it.
    """
    missing = [name for name in makers if isinstance(values.get(name), SizedDefault)]
    if not missing:
        return
    items = {FieldName(name): each for name, each in values.items() if name not in missing}
    whole = Seen("struct", struct, refs=(document.ref(struct),), items=items)

    def read(value: Any) -> Seen:
        return whole if value is values else see_value(value)

    sizes = size_scopes(document, struct, values, read)[()]
    unknown: list[Diagnostic] = []
    for name in missing:
        try:
            values[name] = makers[name](sizes)
        except SchemaError as error:
            unknown += [replace(each, path=f"$.{name}") for each in error.diagnostics]
    if unknown:  # a fault of the other fields may be the reason
        raise ValidationError([*conform(document, struct, values, read, closed=False), *unknown])
