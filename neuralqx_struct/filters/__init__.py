"""Filters: which leaves of a tree are meant, as literals, as records that combine with ``& | ~``, and as text.

A predicate is any ``(path, value) -> bool``; a filter is a predicate or one of the literals that
:func:`to_predicate` turns into one. The literals and classes of Flax NNX keep their meaning; :class:`PathGlob`,
:class:`Kind`, :class:`DType`, :class:`TypeName`, tags of fields, operators and text are added. Values are only asked
for attributes (``tag``, ``tags``, ``type``, ``dtype``), so that a stub of an array is filtered like the array. Does
not walk or group: ``leaves.py`` does.

Example:
    >>> trained = parse("tag:trainable & !path:**/bias")
    >>> trained
    All(WithTag('trainable'), Not(PathGlob('**/bias')))
    >>> trained == WithTag("trainable") & ~PathGlob("**/bias")
    True
    >>> str(trained)
    'tag:trainable & !path:**/bias'
"""

from __future__ import annotations

import importlib
import typing

import neuralqx_struct.filters.nnx  # noqa: F401 - makes the filters of Flax known
from neuralqx_struct.filters.algebra import (
    All,
    Any,
    Everything,
    Filter,
    FilterError,
    Matcher,
    Not,
    Nothing,
    Predicate,
    filters_to_predicates,
    to_predicate,
)
from neuralqx_struct.filters.places import PathContains, PathGlob, PathIn
from neuralqx_struct.filters.text import parse
from neuralqx_struct.filters.values import DType, Kind, OfType, TypeName, WithTag

if typing.TYPE_CHECKING:
    from neuralqx_struct.trees import axes

__all__ = [
    "All",
    "Any",
    "DType",
    "Everything",
    "Filter",
    "FilterError",
    "Kind",
    "Matcher",
    "Not",
    "Nothing",
    "OfType",
    "PathContains",
    "PathGlob",
    "PathIn",
    "Predicate",
    "TypeName",
    "WithTag",
    "axes",
    "filters_to_predicates",
    "parse",
    "to_predicate",
]


def __getattr__(name: str) -> object:
    if name == "axes":  # a function on whole objects: it lives where JAX is known, and is found here by its users
        return importlib.import_module("neuralqx_struct.trees").axes
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
