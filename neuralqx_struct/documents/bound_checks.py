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
from typing import TYPE_CHECKING, Any

from neuralqx_struct.errors import Diagnostic
from neuralqx_struct.fieldspec import Names, Specs
from neuralqx_struct.references import stored_class

if TYPE_CHECKING:
    from neuralqx_struct.documents.binding import ClassDocument
    from neuralqx_struct.documents.instance_checks import InstanceCheck
    from neuralqx_struct.schema.conformance import Seen


class BoundCheck:
    """The check of a class with ``schema=``: each instance against the document of the class.

    The document is written for the first instance, because annotations may name classes that are defined later.

    Args:
        cls: The class.
    """

    def __init__(self, cls: type) -> None:
        self._cls: Any = cls
        self._check: Any = None
        #: As of ``instance_checks.py``: the mark of an instance like one that was valid before, or None.
        self.known: Callable[..., Any] = _not_known

    @property
    def fields(self) -> Names:
        """The fields whose values :attr:`known` gets."""
        specs: Specs = self._cls.__nqx_fields__
        return tuple(name for name, spec in specs.items() if not spec.is_derived)

    def known_pair(self, cls: Any, pair: Any) -> Any:
        """The same as :attr:`known`, for an instance with such a pair."""
        return None if self._check is None else self._check.known_pair(cls, pair)

    def __call__(self, instance: Any) -> list[Diagnostic]:
        """Returns everything that is wrong with an instance."""
        if self._check is None:
            from neuralqx_struct.documents.bound_checks import (
                check_of_class,  # few classes need one
            )

            self._check = check_of_class(self._cls, self.fields)
            self.known = self._check.known
        return self._check(instance)  # type: ignore[no-any-return]


def _not_known(*_: Any) -> None:
    """No document yet, so no instance was valid before."""


def check_of_class(cls: type, fields: Names) -> InstanceCheck:
    """The check of a class that is bound to a schema itself, with the fields whose values it gets.

    Raises:
        SchemaError: The class has no valid document.
    """
    # Few classes have a document, and all programs import this module.
    from neuralqx_struct.documents.bound import bound_document
    from neuralqx_struct.documents.instance_checks import InstanceCheck

    bound = bound_document(cls)
    assert bound is not None  # the metaclass asks for bound classes alone
    return InstanceCheck(bound.document, bound.document.root, _reader(bound), fields)


def _reader(bound: ClassDocument) -> Callable[[Any], Seen]:
    """Reads live values by the names that a document has for their classes."""
    from neuralqx_struct.documents.live_values import see_value

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
