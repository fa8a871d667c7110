"""Checks of classes with ``schema=``, as schema-made classes have them.

Structs inside a class with ``schema=`` belong to its document under the names of their classes, and members of an Enum are
the texts that a bundle has.

Example:
    >>> from neuralqx_struct.struct import Struct
    >>> class Net(Struct, schema="lab.checked"):
    ...     steps: int
    >>> check_of_class(Net, ("steps",)).document.structs["Net"].fields["steps"].text
    'int'
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from neuralqx_struct.classes.documents import bound_document
from neuralqx_struct.classes.instance_checks import InstanceCheck
from neuralqx_struct.classes.live_values import see_value
from neuralqx_struct.fieldspec import Names
from neuralqx_struct.references import stored_class
from neuralqx_struct.schema.conformance import Seen
from neuralqx_struct.struct.binding import ClassDocument


def check_of_class(cls: type, fields: Names) -> InstanceCheck:
    """The check of a class that is bound to a schema itself, with the fields whose values it gets.

    Raises:
        SchemaError: The class has no valid document.
    """
    bound = bound_document(cls)
    assert bound is not None  # the metaclass asks for bound classes alone
    return InstanceCheck(bound.document, bound.document.root, _reader(bound), fields)


def _reader(bound: ClassDocument) -> Callable[[Any], Seen]:
    """Reads live values by the names that a document has for their classes."""
    enums = {member for members in bound.enums.values() for member in members.values()}

    def see(value: Any) -> Seen:
        if type(value) in enums:
            return see_value(value.name)
        seen = see_value(value)
        if seen.sort != "struct":
            return seen
        ref = bound.refs.get(stored_class(type(value)))
        return seen if ref is None else seen._replace(refs=(ref, *seen.refs))

    return see
