"""The options of loads: their names and types, and their values as the decoder takes them.

Example:
    >>> conversions({"float32": "bfloat16", "integer": "int16"})["int64"]
    'int16'
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypedDict

import numpy as np

from neuralqx_struct.bundle.urls import Options
from neuralqx_struct.codecs.classes import DecodeOptions, Unknown
from neuralqx_struct.dtypes import DTYPES, FAMILIES, dtypes_of
from neuralqx_struct.errors import Diagnostic, StructError, did_you_mean
from neuralqx_struct.fieldspec import Values, is_struct
from neuralqx_struct.filters import parse
from neuralqx_struct.filters.partition import Selection
from neuralqx_struct.manifest import Limits
from neuralqx_struct.printing import brief
from neuralqx_struct.stores.store import Progress

__all__ = ["LoadOptions", "ReadOptions", "conversions", "decode_options", "with_reason"]


class ReadOptions(TypedDict, total=False):
    """The options of :func:`from_state_dict` but ``load_cls``, for type checkers."""

    select: Any
    abstract: bool
    as_numpy: bool
    unknown: Unknown
    fill: Values | None
    trust: Sequence[str]
    limits: Limits | None
    report: list[Diagnostic] | None
    raw: bool
    dtype: Any
    like: Any
    shardings: Any


class LoadOptions(ReadOptions, total=False):
    """The options of :func:`load` but ``load_cls``, for type checkers."""

    mmap: bool
    verify: bool
    mesh: Any
    rules: Values | None
    progress: Progress | None
    storage_options: Options | None


def decode_options(
    load_cls: Any,
    *,
    select: Any = None,
    abstract: bool = False,
    as_numpy: bool = False,
    unknown: Unknown = "error",
    fill: Values | None = None,
    trust: Iterable[str] = (),
    report: list[Diagnostic] | None = None,
    raw: bool = False,
    dtype: Any = None,
    like: Any = None,
) -> DecodeOptions:
    """The load options as one record; the package of the requested class is trusted."""
    if unknown not in ("error", "warn", "drop"):
        raise ValueError(f"unknown=: expected 'error', 'warn' or 'drop', got {unknown!r}")
    if raw:
        load_cls, fill, like = None, None, None
    if load_cls is None and is_struct(like):
        load_cls = type(like)
    if load_cls is not None:
        if not isinstance(load_cls, type):
            raise TypeError(f"load_cls=: expected a class or None, got {load_cls!r}")
        trust = (*trust, load_cls.__module__.partition(".")[0])
    if isinstance(like, type):
        raise TypeError(f"like=: expected an object, got the class {like.__name__}")
    if select is not None:
        select = Selection(parse(select) if isinstance(select, str) else select)
    return DecodeOptions(
        trust=tuple(trust),
        select=select,
        unknown=unknown,
        fill=dict(fill or {}),
        root=load_cls,
        report=[] if report is None else report,
        raw=raw,
        abstract=abstract,
        as_numpy=as_numpy,
        conversions={} if dtype is None else conversions(dtype),
        like=like,
    )


def with_reason(error: StructError, options: DecodeOptions | None) -> StructError:
    """The error of a load, which names ``dtype=`` where that made arrays that the schema does not allow."""
    if options is None or not options.conversions:
        return error
    made = {f", got {new}[": old for old, new in options.conversions.items()}
    found = [
        replace(each, hint=f"{_MADE}, or {_ways_to_allow(each)}")
        if each.code == "NQX411" and any(text in each.message for text in made)
        else each
        for each in error.diagnostics
    ]
    return type(error)(found)


_MADE = "dtype= made it so; leave that out, load with raw=True"


def _ways_to_allow(found: Diagnostic) -> str:
    """The change of the schema that allows an array of another dtype."""
    _, known, text = (found.hint or "").partition("; or ")  # of a choice of dtypes
    if known:
        return text
    return (
        "declare both dtypes, as floating[n] does, or compute[n] with "
        "`dtypes: {compute: [float32, bfloat16]}`"
    )


def conversions(dtype: Any) -> dict[str, str]:
    """The dtypes to convert arrays to, by those that they have.

    Args:
        dtype: A floating dtype, for all floating arrays; or a mapping from dtypes and families to dtypes.

    Raises:
        ValueError: A dtype is unknown, or a conversion leads from one family into another.
    """
    given = dtype if isinstance(dtype, Mapping) else {"floating": dtype}
    pairs = [(_name(old), _name(new)) for old, new in given.items()]
    found: dict[str, str] = {}
    # A dtype's own entry takes precedence over that of its family.
    for old, new in sorted(pairs, key=lambda pair: pair[0] not in FAMILIES):
        for each in _convertible(old, new):
            found[each] = new
    return {old: new for old, new in found.items() if old != new}


def _convertible(old: str, new: str) -> tuple[str, ...]:
    """The dtypes that a name means, if arrays of all of them can become another dtype."""
    names = dtypes_of(old)
    for name, known in ((old, [*FAMILIES, *DTYPES]), (new, [*DTYPES])):
        if name not in known:
            hint = did_you_mean(name, known)
            more = f"; {hint}" if hint else ""
            raise ValueError(f"dtype=: expected a dtype, got {name!r}{more}")
    for each in names:
        if _group(each) != _group(new):
            message = f"dtype=: expected a dtype of the family of {old}, got {new!r}"
            why = "floating, complex and whole numbers stay what they are"
            raise ValueError(f"{message}; {why}: convert the arrays after the load")
    return names


def _group(name: str) -> str:
    return DTYPES[name].family.replace("unsigned", "integer")


def _name(dtype: Any) -> str:
    if isinstance(dtype, str):
        return dtype
    try:
        return str(np.dtype(dtype))
    except TypeError:
        message = f"dtype=: expected a dtype or a mapping from dtypes to dtypes, got {brief(dtype)}"
        raise TypeError(message) from None
