"""The options of loads: their names and types, their values as the decoder takes them, and the check of ``like=``.

Example:
    >>> conversions({"float32": "bfloat16", "integer": "int16"})["int64"]
    'int16'
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, TypedDict

import jax
import numpy as np
from jax.tree_util import default_registry

from neuralqx_struct.bundle.writing import WriteOptions
from neuralqx_struct.codecs.classes import DecodeOptions, Unknown
from neuralqx_struct.codecs.external import external_name
from neuralqx_struct.dtypes import DTYPES, FAMILIES, dtypes_of
from neuralqx_struct.errors import (
    READ_MORE,
    Diagnostic,
    Hint,
    SerializationError,
    StructError,
    did_you_mean,
)
from neuralqx_struct.fieldspec import Values, is_struct
from neuralqx_struct.filters import parse
from neuralqx_struct.filters.partition import Selection
from neuralqx_struct.formats.store import Progress
from neuralqx_struct.manifest import DEFAULT_LIMITS, Limits
from neuralqx_struct.paths import format_path
from neuralqx_struct.places.urls import Options
from neuralqx_struct.printing import brief
from neuralqx_struct.trees import beside, flattened, is_none, leaves_with_paths, paths_of
from neuralqx_struct.types.arrays import DtypeHint

if TYPE_CHECKING:
    from neuralqx_struct.checkpoint.replay import Replay

__all__ = [
    "ExportKeywords",
    "ExportOptions",
    "LoadKeywords",
    "LoadOptions",
    "ReadKeywords",
    "ReadOptions",
    "conversions",
    "decode_options",
    "with_reason",
]


_HINT = "pass an object of the structure that was saved, or migrate the payload"
_CONVERT = (
    "pass another like=; dtype= converts arrays, and warm_start fills an object of another class"
)


_MOST = 10_000  # differences that are listed


def _require_bounded(like: Any, options: ReadOptions) -> None:
    """Checks that JAX can flatten an object: it visits shared parts once for each place, and cycles without an end.

    Raises:
        SerializationError: NQX005: it has too many nodes, or is nested too deeply.
    """
    limits = options.most
    left = limits.nodes
    waiting = [(0, iter((like,)))]
    while waiting:
        depth, nodes = waiting[-1]
        node = next(nodes, waiting)
        if node is waiting:
            waiting.pop()
            continue
        left -= 1
        if left < 0 or depth > limits.depth:
            what = f"at most {limits.nodes} nodes" if left < 0 else f"at most {limits.depth} levels"
            message = f"like=: expected an object of {what}, got more"
            hint = Hint(READ_MORE, "; a part that is shared counts at each of its places")
            raise SerializationError(message, code="NQX005", path="$", hint=hint)
        try:
            flat = default_registry.flatten_one_level(node)
        except ValueError:  # keys without an order; they are named when the object is flattened
            continue
        if flat is not None:
            waiting.append((depth + 1, iter(flat[0])))


def require_like(value: Any, like: Any, *, whole: bool) -> None:
    """Checks that an object has the structure of another.

    Raises:
        SerializationError: It has another one, with every difference, or the first ones of very many.
    """
    differing = (
        each.finding("like=", _CONVERT if each.verdict == "mistyped" else _HINT)
        for each in beside(value, like)
        if each.verdict != "fits" and (whole or each.have is not None)
    )
    found = [*islice(differing, _MOST + 1)]
    if len(found) > _MOST:
        message = f"expected the structure of like=, got more than {_MOST} differences"
        found[-1] = Diagnostic("NQX411", "error", message, "$", hint=_HINT)
    if found:
        raise SerializationError(found)


def with_code(value: Any, like: Any, report: list[Diagnostic]) -> Any:
    """The object with the code of another in place of None: it was saved without, as filters of Equinox leave it."""
    leaves, structure = flattened(value, is_none)
    wanted, other = flattened(like, is_none)
    pairs = enumerate(zip(leaves, wanted, strict=False))
    places = [n for n, (held, code) in pairs if held is None and external_name(code) is not None]
    if not places or structure != other:
        return value
    paths = [*paths_of(like, is_none)]
    for place in places:
        leaves[place] = wanted[place]
        path = format_path(paths[place])
        report.append(
            Diagnostic("NQX425", "info", "took the value of like=, the payload has none", path)
        )
    return jax.tree.unflatten(structure, leaves)


def shardings_like(like: Any, options: ReadOptions) -> Any:
    """The shardings of a load: those given, else a function that returns those of ``like``; None without any.

    Arrays that JAX placed by itself may lie anywhere.

    Raises:
        SerializationError: NQX005: ``like`` has too many nodes, or is nested too deeply.
    """
    if like is None:
        return options.shardings
    _require_bounded(like, options)
    if options.shardings is not None:
        return options.shardings
    found = {path: leaf.sharding for path, leaf in leaves_with_paths(like) if _is_placed(leaf)}
    return (lambda path, _: found.get(tuple(path))) if found else None


def _is_placed(leaf: Any) -> bool:
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return leaf.sharding is not None
    return isinstance(leaf, jax.Array) and leaf.committed


class ReadKeywords(TypedDict, total=False):
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


class LoadKeywords(ReadKeywords, total=False):
    """The options of :func:`load` but ``load_cls``, for type checkers."""

    mmap: bool
    verify: bool
    mesh: Any
    rules: Values | None
    progress: Progress | None
    storage_options: Options | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions(WriteOptions):
    """The arguments of :func:`~neuralqx_struct.export` but the object and its path, passed whole to all that save."""

    metadata: Values | None = None
    asynchronous: bool = False
    check: bool = True
    storage_options: Options | None = None
    replay: Mapping[str, Replay] | None = None


class ExportKeywords(TypedDict, total=False):
    """The keyword arguments of :func:`~neuralqx_struct.export` but ``asynchronous``, for type checkers."""

    overwrite: bool
    store: str
    compress: bool
    metadata: Values | None
    progress: Progress | None
    check: bool
    limits: Limits | None
    storage_options: Options | None
    replay: Mapping[str, Replay] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """The arguments of :func:`~neuralqx_struct.from_state_dict` but the payload, passed whole to all that read."""

    load_cls: Any = None
    select: Any = None
    abstract: bool = False
    as_numpy: bool = False
    unknown: Unknown = "error"
    fill: Values | None = None
    trust: Sequence[str] = ()
    limits: Limits | None = None
    report: list[Diagnostic] | None = None
    raw: bool = False
    dtype: Any = None
    like: Any = None
    shardings: Any = None

    @property
    def most(self) -> Limits:
        """The limits, by default those of every reader."""
        return self.limits or DEFAULT_LIMITS


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions(ReadOptions):
    """The arguments of :func:`~neuralqx_struct.load` but the path, passed whole to all that read."""

    mmap: bool = True
    verify: bool = True
    mesh: Any = None
    rules: Any = None
    progress: Progress | None = None
    storage_options: Options | None = None


def decode_options(given: ReadOptions) -> DecodeOptions:
    """The options as the decoder takes them; the package of the requested class is trusted."""
    load_cls, fill, like = given.load_cls, given.fill, given.like
    trust, select, unknown, raw = given.trust, given.select, given.unknown, given.raw
    if unknown not in ("error", "warn", "drop"):
        raise ValueError(f"unknown=: expected 'error', 'warn' or 'drop', got {unknown!r}")
    if raw:
        fill, like = None, None
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
        report=[] if given.report is None else given.report,
        raw=raw,
        abstract=given.abstract,
        as_numpy=given.as_numpy,
        conversions={} if given.dtype is None else conversions(given.dtype),
        like=like,
    )


def with_reason(error: StructError, options: DecodeOptions | None) -> StructError:
    """The error of a load, which names ``dtype=`` where that made arrays that the schema does not allow."""
    if options is None or not options.conversions:
        return error
    made = {*options.conversions.values()}

    def explained(found: Diagnostic) -> Diagnostic:
        hint = found.hint
        if not isinstance(hint, DtypeHint) or hint.dtype not in made:
            return found
        return replace(found, hint=f"{_MADE}, or {hint.allowed or _BOTH}")

    return type(error)(map(explained, error.diagnostics))


_MADE = "dtype= made it so; leave that out, load with raw=True"
_BOTH = "declare both dtypes, as floating[n] does, or compute[n] with `dtypes: {compute: [float32, bfloat16]}`"


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
