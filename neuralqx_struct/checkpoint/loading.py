"""Loads objects from bundles (:func:`load`) and from state dicts in memory (:func:`from_state_dict`).

A payload is brought to the schema version of the reader by ``evolution/`` and decoded by ``codecs/``, with
the classes of the reader.

Example:
    >>> from neuralqx_struct.checkpoint import to_state_dict
    >>> from_state_dict(to_state_dict([1, 2.5]))
    [1, 2.5]
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar, Unpack, overload

from neuralqx_struct import bundle
from neuralqx_struct.checkpoint.meshes import Placement, Rules, by_axes, check_rules
from neuralqx_struct.checkpoint.options import (
    LoadKeywords,
    LoadOptions,
    ReadKeywords,
    ReadOptions,
    decode_options,
    require_like,
    shardings_like,
    with_code,
    with_reason,
)
from neuralqx_struct.checkpoint.versions import in_versions_of_reader
from neuralqx_struct.codecs.classes import DecodeOptions, Unknown
from neuralqx_struct.codecs.jax import StructDecoder, abstract_leaf, explicit_transfers
from neuralqx_struct.errors import (
    Diagnostic,
    SerializationError,
    StructError,
    did_you_mean,
    has_errors,
    within_stack,
)
from neuralqx_struct.fieldspec import Specs, Values, is_struct
from neuralqx_struct.filters import FilterError
from neuralqx_struct.filters.partition import Selection
from neuralqx_struct.formats.store import Progress
from neuralqx_struct.manifest import Limits, collector_paused, raise_findings
from neuralqx_struct.manifest.check import check_values
from neuralqx_struct.manifest.kinds import ARRAY, PRNG_KEY
from neuralqx_struct.manifest.payload import Payload, StoredArrays, check
from neuralqx_struct.places.urls import Options, Place, place_of
from neuralqx_struct.references import (
    class_ref,
    defined_again,
    find_class,
)
from neuralqx_struct.tools.leaves import nodes_with_declarations

__all__ = ["from_state_dict", "load"]

_LOG = logging.getLogger("neuralqx_struct")
T = TypeVar("T")


@overload
def from_state_dict(
    payload: Values, *, load_cls: type[T], **options: Unpack[ReadKeywords]
) -> T: ...
@overload
def from_state_dict(
    payload: Values, *, load_cls: None = None, **options: Unpack[ReadKeywords]
) -> Any: ...
def from_state_dict(
    payload: Values,
    *,
    load_cls: type | None = None,
    **options: Unpack[ReadKeywords],
) -> Any:
    """The object of a state dict; the inverse of :func:`to_state_dict`.

    Args:
        payload: The result of :func:`to_state_dict`.
        load_cls: The class that the root must be.
        **options: ``select``, ``abstract``, ``as_numpy``, ``unknown``, ``fill``, ``trust``, ``limits``, ``report``, ``raw``,
            ``dtype``, ``like`` and ``shardings`` of :func:`load`.

    Raises:
        SerializationError: The payload is malformed or does not fit, with every problem.
    """
    if not isinstance(payload, Mapping) or not isinstance(payload.get("array_data"), Mapping):
        message = "expected a state dict with the member 'array_data', got something else"
        hint = "pass the result of to_state_dict"
        raise SerializationError(message, code="NQX401", hint=hint)
    document = {name: value for name, value in payload.items() if name != "array_data"}
    wanted = ReadOptions(load_cls=load_cls, **options)
    return of_payload(Payload(document, payload["array_data"]), wanted)


def of_payload(held: Payload, wanted: ReadOptions) -> Any:
    """The object of a payload in memory, as :func:`from_state_dict` returns it."""
    raise_findings(check_values(held.document, limits=wanted.most) or check(held, wanted.most))
    # The caller can write into the arrays of the payload, so the result gets copies.
    given = replace(decode_options(wanted), copies=not isinstance(held.arrays, StoredArrays))
    shardings = shardings_like(given.like, wanted)
    placement = None if shardings is None else Placement(shardings)
    value = _restored(held, given, placement)
    return value if placement is None else placement.place(value)


@overload
def load(path: str | Place, *, load_cls: type[T], **options: Unpack[LoadKeywords]) -> T: ...
@overload
def load(path: str | Place, *, load_cls: None = None, **options: Unpack[LoadKeywords]) -> Any: ...
@bundle.read_again
@collector_paused()  # the document is freed before the collector runs again
def load(
    path: str | Place,
    *,
    load_cls: type | None = None,
    select: Any = None,
    abstract: bool = False,
    mmap: bool = True,
    verify: bool = True,
    as_numpy: bool = False,
    shardings: Any = None,
    mesh: Any = None,
    rules: Rules | None = None,
    unknown: Unknown = "error",
    fill: Values | None = None,
    trust: Sequence[str] = (),
    limits: Limits | None = None,
    report: list[Diagnostic] | None = None,
    progress: Progress | None = None,
    raw: bool = False,
    dtype: Any = None,
    like: Any = None,
    storage_options: Options | None = None,
) -> Any:
    """Loads a bundle.

    Args:
        path: The directory or zip file, a path or a URL such as ``s3://bucket/ckpt`` (with the extra ``remote``), of which
            the manifest and the arrays that are wanted are fetched.
        load_cls: The class that the root must be; a payload of an older version of its schema is migrated.
        select: A filter, also in its text form ``"tag:trainable"``; array leaves that it does not match are
            None and not read. Numbers and text are in the manifest and are kept. A filter that matches no
            array is an error that lists the arrays; a part of one that matches nothing is noted in ``report``.
        abstract: Return ``jax.ShapeDtypeStruct`` in place of arrays; no array is read, no hook runs.
        mmap: Map the arrays instead of reading them into memory.
        verify: Check every byte against its checksum.
        as_numpy: Return numpy arrays also where JAX arrays were saved.
        shardings: A sharding for all JAX arrays, a tree of them that is a prefix of the object, or a function
            of path and array that returns one. An array or a ``jax.ShapeDtypeStruct`` means its own sharding,
            None leaves an array where it is. Each shard is read straight to its devices. Numpy arrays and
            numbers stay the same. With ``abstract`` the shardings are in the ``jax.ShapeDtypeStruct``.
        mesh: A ``jax.sharding.Mesh``, in place of ``shardings``: arrays are divided by the names of their axes, as
            :func:`~neuralqx_struct.shardings` does.
        rules: The axis of the mesh for each name, such as ``{"embed": "model"}``; without it, all arrays are on every
            device of the mesh.
        unknown: How to treat stored fields that the class lacks: ``error``, ``warn`` or ``drop``.
        fill: Values by field name for fields that were not saved and have no default.
        trust: Packages whose classes may be imported.
        limits: Sizes above which the bundle is refused.
        report: A list that receives the defaulted, dropped and cast items.
        progress: Called with bytes read and bytes in all.
        raw: Return nested dicts, lists and arrays, without classes and without a schema: the fields of a Struct, a
            dataclass or a namedtuple are a dict; tuples, sets and deques are lists, and as keys of dicts they are tuples.
            ``load_cls``, ``unknown``, ``fill`` and ``like`` then have no effect, but ``report`` warns of another version than that
            of the class.
        dtype: A dtype for all floating arrays, or a mapping from dtypes or families (``floating``, ``integer``) to
            dtypes, such as ``{"float32": "bfloat16"}``. Arrays are converted after the steps of migrations; ``report``
            receives each. Floating and complex numbers are rounded, whole numbers that do not fit are an error. Random
            keys and Python numbers stay as they are. The result has to match its declaration: one of ``float32[n]`` alone
            cannot be loaded as bfloat16, one of ``floating[n]`` can.
        like: An object of the wanted structure, such as a new state; arrays may be ``jax.ShapeDtypeStruct``. It gives the
            values of fields that were not saved, and the shardings unless ``shardings`` does. Other classes, keys, shapes
            or dtypes than its own are errors, all at once. Of a Struct, it gives ``load_cls`` too.
        storage_options: Options of fsspec for a URL, such as keys.

    Returns:
        The object.

    Raises:
        SerializationError: The path is no bundle, or its content does not fit, with every problem.
        IntegrityError: Stored bytes are damaged.
        UntrustedError: The bundle names a class that is not known here and not trusted.
        FilterError: ``select`` cannot be read, or matches none of the arrays; it is a ValueError.
        ValueError: ``shardings`` is no prefix of the object, or one of them, or a rule, does not fit its array.
    """
    options = LoadOptions(
        load_cls=load_cls,
        select=select,
        abstract=abstract,
        mmap=mmap,
        verify=verify,
        as_numpy=as_numpy,
        shardings=shardings,
        mesh=mesh,
        rules=rules,
        unknown=unknown,
        fill=fill,
        trust=trust,
        limits=limits,
        report=report,
        progress=progress,
        raw=raw,
        dtype=dtype,
        like=like,
        storage_options=storage_options,
    )
    return _loaded(path, options)


def _loaded(path: str | Place, options: LoadOptions) -> Any:
    """As :func:`load`."""
    path = place_of(path, options.storage_options)
    if options.mesh is not None or options.rules is not None:
        options = replace(options, shardings=_by_axes(options))
    given: DecodeOptions | None = None
    try:
        held = bundle.read(
            path,
            verify=options.verify and not options.abstract,
            mmap=options.mmap,
            limits=options.limits,
            progress=options.progress,
            part=options.select is not None,
        )
        given = decode_options(options)
        shardings = shardings_like(given.like, options)
        placement = None if shardings is None else Placement(shardings)
        value = _restored(held, given, placement)
        if options.progress is not None:  # not all bytes need have been read
            total = sum(record.get("nbytes", 0) for record in held.document["arrays"].values())
            options.progress(total, total)
    except StructError as error:
        raise with_reason(error, given).in_file(str(path)) from error.__cause__
    if options.rules:
        check_rules(options.rules, value)
    return value if placement is None else placement.place(value)


def _by_axes(options: LoadOptions) -> Any:
    """The arguments ``mesh`` and ``rules`` of a load as its argument ``shardings``."""
    if options.mesh is None:
        raise ValueError("rules=: expected mesh= beside it, got none")
    if options.shardings is not None:
        raise ValueError("mesh=: expected either mesh= or shardings=, got both")
    return by_axes(options.mesh, options.rules or {})


@within_stack
def _restored(payload: Payload, options: DecodeOptions, placement: Placement | None = None) -> Any:
    """The object of a sound payload.

    Args:
        payload: The manifest and the arrays.
        options: The load options.
        placement: The shardings, if there are some.

    Raises:
        SerializationError: The payload does not fit, with every problem.
    """
    reported = len(options.report)
    payload, options = in_versions_of_reader(payload, options)
    if not options.abstract and isinstance(payload.arrays, StoredArrays) and payload.arrays.far:
        payload.arrays.expect(_names(payload.document, options))
    if placement is not None:
        options = replace(options, target=placement.target)
    decoder = StructDecoder(payload.arrays, options)
    with collector_paused(), explicit_transfers():
        value = decoder.decode(payload.document["manifest"])
    decoder.finish()
    if options.like is not None and options.select is None:
        value = with_code(value, options.like, options.report)
    if isinstance(options.select, Selection):
        found = options.select.findings("select=")
        if has_errors(found):
            raise FilterError(found)
        options.report.extend(found)
    for diagnostic in options.report[reported:]:
        level = logging.WARNING if diagnostic.severity == "warning" else logging.INFO
        _LOG.log(level, "%s", diagnostic)
    _require_class(value, options.root)
    if options.like is not None:
        require_like(value, options.like, whole=options.select is None)
    for name in options.fill.keys() - decoder.seen_fields:
        message = (
            f"expected names of fields in fill=, got {name!r}, which no class of this payload has"
        )
        hint = did_you_mean(name, decoder.seen_fields) or "leave it out"
        raise SerializationError(message, path="$", code="NQX415", hint=hint)
    return value


def _require_class(value: Any, load_cls: Any) -> None:
    """Checks that the loaded object is of the requested class.

    Raises:
        SerializationError: It is of another class.
    """
    if load_cls is None or isinstance(value, load_cls):
        return
    got = class_ref(type(value)) if is_struct(value) else f"a {type(value).__name__}"
    hint = (
        "load it with the class that wrote it, or with neuralqx_struct.load(path); "
        "warm_start fills an object of another class"
    )
    hint = defined_again(type(value), load_cls) or hint
    message = f"expected {class_ref(load_cls)} or a subclass of it, got {got}"
    raise SerializationError(message, path="$", code="NQX401", hint=hint)


def _names(document: Values, options: DecodeOptions) -> Iterable[str]:
    """The names of the arrays that decoding will read, in their order; fetched ahead, so one too few costs time only."""
    if not isinstance(options.select, Selection):
        return dict.fromkeys(node["name"] for _, node in ARRAY.within(document["manifest"]))

    def fields_of(ref: str) -> Specs:
        cls: Any = options.build_class(ref) or find_class(ref, trust=options.trust)
        return getattr(cls, "__nqx_fields__", {})

    found: dict[str, None] = {}
    with suppress(Exception):  # of a filter, which the decoder asks again
        for path, node in nodes_with_declarations(document, fields_of):
            leaf = abstract_leaf(node)
            if leaf is not None and options.select.predicate(path, leaf):
                found[(node["data"] if PRNG_KEY.matches(node) else node)["name"]] = None
    return found
