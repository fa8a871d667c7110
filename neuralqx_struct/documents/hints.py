"""The annotations of classes: as their bodies have them, and evaluated for one field.

Example:
    >>> class Net:
    ...     steps: int
    >>> sorted(annotations_in(Net))
    ['steps']
"""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Mapping
from typing import Any

from neuralqx_struct.fieldspec import FieldSpec


def annotations_in(cls: type) -> Mapping[str, Any]:
    """The annotations in the body of a class, unevaluated where a name is not defined yet, such as that of the class.

    Since Python 3.14 annotations are evaluated when they are read, and a metaclass reads them before the class has its name.
    """
    if sys.version_info >= (3, 14):
        import annotationlib

        return annotationlib.get_annotations(cls, format=annotationlib.Format.FORWARDREF)
    return inspect.get_annotations(cls)


def annotation_of(cls: type, spec: FieldSpec) -> Any:
    """The annotation of a field, evaluated in the module that declares it; unevaluated where that fails."""
    declaring = (base for base in cls.__mro__ if spec.name in base.__dict__.get("__nqx_own__", ()))
    owner = next(declaring, cls)
    namespace = {"__annotations__": {spec.name: spec.type}, "__module__": owner.__module__}
    names = {owner.__name__: owner, cls.__name__: cls}
    try:
        hints = typing.get_type_hints(type("_", (), namespace), localns=names, include_extras=True)
    except (NameError, AttributeError, SyntaxError, TypeError):  # names that only checkers import
        return spec.type
    return hints[spec.name]
