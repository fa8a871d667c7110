"""Payloads of foreign files, and the arrays of foreign files from payloads; without JAX and without classes.

Example:
    >>> import numpy as np
    >>> from neuralqx_struct.schema.series import load_series
    >>> net = load_series('''
    ... {language: "1", schema: lab.net, version: 1, root: Net, structs: {Net: {fields: {kernel: "float32[n, m]"}}}}''')
    >>> layout = {"language": "1", "layout": "hf", "of": "lab.net@1", "structs": {"Net": {"kernel": "weight"}}}
    >>> payload = adopted(net, layout, {"weight": np.ones((2, 3), "float32")})
    >>> payload.arrays["kernel"].shape, [*released(payload, net, layout)]
    ((2, 3), ['weight'])
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from neuralqx_struct import bundle
from neuralqx_struct.bundle.runs import is_bundle
from neuralqx_struct.codecs.nodes import Encoder
from neuralqx_struct.codecs.plain import PLAIN_CODECS
from neuralqx_struct.errors import (
    Diagnostic,
    Hint,
    Keyword,
    SchemaError,
    SerializationError,
    StructError,
    has_errors,
    within_stack,
)
from neuralqx_struct.evolution.migrations import resolve
from neuralqx_struct.formats import ForeignArray, ForeignFile, joined, opened, split
from neuralqx_struct.formats.table import described
from neuralqx_struct.layouts import Layout, read_layout
from neuralqx_struct.layouts.adoption import AdoptionPlan
from neuralqx_struct.layouts.lint import check_layout
from neuralqx_struct.layouts.places import NOTHING, Values
from neuralqx_struct.layouts.release import ReleasePlan
from neuralqx_struct.layouts.table import Table
from neuralqx_struct.manifest import FORMAT_VERSION, SCHEMA_URL, WRITER, Limits, collector_paused
from neuralqx_struct.manifest.kinds import ARRAY, DICT, iter_nodes
from neuralqx_struct.manifest.lazy_arrays import LazyArray, Part
from neuralqx_struct.manifest.lazy_reading import LazyArrays, Order
from neuralqx_struct.manifest.payload import Payload
from neuralqx_struct.matching import match
from neuralqx_struct.places.urls import Place, RemotePath
from neuralqx_struct.printing import brief, first_line
from neuralqx_struct.schema.lock import schema_member
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.series import Series, layout_files, load_series
from neuralqx_struct.schema.text import MAX_BYTES, Source
from neuralqx_struct.schema.text.loader import read_file, read_text

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

#: The member of a bundle's metadata with the facts about the file that it was made from.
FOREIGN = "foreign"
_NONE: Mapping[str, Any] = MappingProxyType({})
_LAYOUT: Final = "pass a layout; `neuralqx-struct infer FILE` drafts one"


@collector_paused()
def adopted(
    series: Series,
    layout: Any,
    source: Any,
    values: Mapping[str, Any] | None = None,
    *,
    report: list[Diagnostic] | None = None,
    limits: Limits | None = None,
    like: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    order: Order = "file",
) -> Payload:
    """The payload of a foreign file; only its header is read.

    Args:
        series: The schema.
        layout: A name, the path or the text of a layout, a :class:`~neuralqx_struct.layouts.Layout`, or its table if many
            files are read by it.
        source: The path or URL of the file or folder, an open one, a mapping of names to arrays, or the path of a bundle,
            whose arrays and plain values are named by their paths.
        values: Values and sizes that the file does not show, by path; they win over those of the layout.
        report: Receives a diagnostic for every default, and for every array that the layout ignores.
        limits: Sizes above which the file is refused.
        like: The object that was saved, or its leaves by name, for formats without names.
        storage_options: Options of fsspec for a URL, such as keys.
        order: Which arrays will be asked for.

    Returns:
        The payload, of the version of the layout. Its arrays are made when they are asked for.

    Raises:
        SchemaError: The layout has errors.
        SerializationError: The file does not fit, with every problem.
    """
    table = sound_table(layout, series)
    with naming(source):
        file = open_source(source, table.layout.separator, limits, like, storage_options)
        try:
            made, arrays = _adopted(series, table, file, values or _NONE, report)
        except BaseException:
            file.close()
            raise
        if file is not source:  # a file that was opened here stays open as long as its arrays
            weakref.finalize(arrays, file.close)
        arrays.order = order
        return Payload(made, arrays)


def described_by(file: ForeignFile, table: Table | None) -> str:
    """All by which a file is adopted but the elements of its arrays; equal texts make equal manifests."""
    arrays = [(name, array.dtype, array.shape) for name, array in file.arrays.items()]
    values = {} if table is None else _read_values(table.layout, file)
    facts = dict(file.values), dict(file.metadata), file.form()
    return repr((file.format, arrays, values, facts))


def _adopted(
    series: Series,
    table: Table,
    file: ForeignFile,
    values: Mapping[str, Any],
    report: list[Diagnostic] | None,
) -> tuple[dict[str, Any], LazyArrays]:
    """The manifest document and the arrays of an open file."""
    layout = table.layout
    given = Values([_keyed(values), layout.values, _read_values(layout, file)], file.values)
    plan = AdoptionPlan(table, file.arrays, given)
    _require_used(values, given, table)
    if report is not None:
        notes = [*plan.walk.notes, *map(_left_out, plan.unused)]
        report += [each.in_file(file.path) for each in notes] if file.path else notes
    arrays = plan.arrays
    foreign = {
        "layout": layout.layout,
        "format": file.format,
        "names": [*file.arrays],
        "metadata": dict(file.metadata),
        "form": file.form(),
    }
    made = {
        "$schema": SCHEMA_URL,
        "version": FORMAT_VERSION,
        "schema": schema_member(table.document),
        "schemas": [*carried(series)],
        "manifest": plan.node,
        "arrays": {name: arrays.lazy(name).record for name in arrays},
        "metadata": {FOREIGN: foreign},
        "writer": dict(WRITER),
    }
    return made, arrays


@within_stack
def named_tree(file: ForeignFile) -> Payload:
    """The payload of an open foreign file as a plain tree: nested dicts by the parts of its names.

    A schema with the same names reads it without a layout.

    Raises:
        SerializationError: A name goes on from another one.
    """
    encoder = Encoder(PLAIN_CODECS)
    root: dict[str, Any] = {}
    problems: list[Diagnostic] = []
    arrays: dict[str, LazyArray] = {}
    leaves: dict[str, Any] = {name: encoder.encode(value) for name, value in file.values.items()}
    for name, array in file.arrays.items():
        arrays[name] = Part.of(array)
        leaves[name] = ARRAY.node(name=name, leaf="numpy", **arrays[name].record)
    for name, node in leaves.items():
        *outer, last = split(name)
        inner: Any = root
        for key in outer:
            inner = inner.setdefault(key, {}) if type(inner) is dict else inner
        if type(inner) is not dict or last in inner:
            message = "expected names of which none goes on from another, got one that does"
            problems.append(Diagnostic("NQX614", "error", message, path=name, hint=_LAYOUT))
        else:
            inner[last] = _Leaf(node)
    if problems:
        raise SerializationError(problems).in_file(file.path)
    document = {
        "$schema": SCHEMA_URL,
        "version": FORMAT_VERSION,
        "manifest": _nodes_of(root),
        "arrays": {name: array.record for name, array in arrays.items()},
        "writer": dict(WRITER),
    }
    return Payload(document, LazyArrays(arrays))


class _Leaf(NamedTuple):
    """A node at the end of a name."""

    node: Any


def _nodes_of(tree: Any) -> Any:
    """A tree of dicts as nodes."""
    if type(tree) is _Leaf:
        return tree.node
    return DICT.node(items=[[key, _nodes_of(inner)] for key, inner in tree.items()])


def check_file(
    layout: str | Path,
    file: str | Path,
    values: Mapping[str, Any] | None = None,
    *,
    limits: Limits | None = None,
) -> list[Diagnostic]:
    """Checks a foreign file against a layout in the folder of its schema; only its header is read.

    Args:
        layout: The path of the layout.
        file: The foreign file.
        values: As for :func:`adopted`.
        limits: As for :func:`adopted`.

    Returns:
        Every finding.

    Raises:
        SchemaError: The path is that of no layout, or the schema or the layout has errors.
    """
    path = Path(layout).absolute()
    if path not in layout_files(path.parent.parent).values():
        message = "expected a layout in the folder of its schema, got another path"
        hint = "such as schemas/minilm/layouts/hf.yaml"
        raise SchemaError(message, code="NQX708", file=str(layout), hint=hint)
    report: list[Diagnostic] = []
    try:
        adopted(load_series(path.parent.parent), path, file, values, report=report, limits=limits)
    except SerializationError as error:
        report += error.diagnostics
    return [each.in_file(str(file)) for each in report]


@collector_paused()
def released(
    payload: Payload,
    series: Series,
    layout: Any,
    values: Mapping[str, Any] | None = None,
    *,
    like: Any = None,
    report: list[Diagnostic] | None = None,
    trust: Iterable[str] = (),
) -> Mapping[str, ForeignArray]:
    """The arrays of the foreign file that a payload makes; the inverse of :func:`adopted`.

    Args:
        payload: The payload, of any version that leads to that of the layout.
        series: The schema.
        layout: As for :func:`adopted`.
        values: As for :func:`adopted`.
        like: A foreign file, or names, whose order the result has.
        report: Receives a diagnostic for every value that a migration defaults, drops or casts.
        trust: Modules with the functions of ``python`` steps that lead to the version of the layout.

    Returns:
        The arrays by their names in the file, computed when they are read. Arrays that the layout ignores are left out.

    Raises:
        SchemaError: The layout has errors.
        SerializationError: The payload does not fit, with every problem.
    """
    table = sound_table(layout, series)
    payload = resolve(payload, series, to=table.document.version, report=report, trust=trust)
    given = Values([_keyed(values or _NONE), table.layout.values])
    names = foreign_of(payload).get("names", ())
    if like is not None:
        with open_source(like, table.layout.separator) as file:
            names = [*file.arrays]
    return ReleasePlan(table, payload, given, names).files


def sound_table(where: Any, series: Series) -> Table:
    """The table of a layout without errors.

    Raises:
        SchemaError: Every error.
    """
    if isinstance(where, Table):
        return where
    layout, source = read_layout(where, series)
    table = Table(series.at(layout.ref.version), layout)
    found = check_layout(table, source)
    if has_errors(found):
        raise SchemaError(each for each in found if each.severity == "error")
    return table


def foreign_of(payload: Payload) -> Mapping[str, Any]:
    """The facts about the file that a bundle was made from; empty for others."""
    metadata = payload.document.get("metadata")
    found = metadata.get(FOREIGN) if isinstance(metadata, Mapping) else None
    if not isinstance(found, Mapping):
        return _NONE
    names = found.get("names")
    sound = isinstance(names, list) and all(isinstance(name, str) for name in names)
    return found if sound else _NONE


def carried(series: Series) -> Iterator[dict[str, Any]]:
    """Yields the documents of a schema, and those that they use."""
    found: dict[tuple[str, int], Document] = {}
    for document in (*series.documents.values(), *series.earlier):
        for each in document.closure():
            found.setdefault((each.id, each.version), each)
    for document in found.values():
        yield document.to_data()


def _left_out(name: str) -> Diagnostic:
    message = f"the layout ignores the array {name!r}; it was left out"
    return Diagnostic("NQX425", "info", message)


# ---------------------------------------------------------------------------------------------------------------------
# Sources.


@contextmanager
def naming(source: Any) -> Iterator[None]:
    """Names the file in errors that do not."""
    try:
        yield
    except StructError as error:
        if not isinstance(source, (str, os.PathLike)):
            raise
        raise error.in_file(str(source)) from error.__cause__


def open_source(
    source: Any,
    separator: str,
    limits: Limits | None = None,
    like: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> ForeignFile:
    """An open file of a path, or of arrays in memory; the other arguments are those of :func:`adopted`."""
    if isinstance(source, ForeignFile):
        return source
    if isinstance(source, Mapping):
        return ForeignFile(path="", format="", arrays=_arrays(source))
    if not isinstance(source, (str, os.PathLike, RemotePath)):
        message = f"expected a path or a mapping of names to arrays, got {brief(source)}"
        raise SerializationError(message, code="NQX401", hint="such as 'model.safetensors'")
    if isinstance(source, (str, Path)) and is_bundle(Path(source)):
        path = Path(source)
        return _file_of_bundle(path, bundle.read(path, limits=limits), separator)
    return opened(
        source if isinstance(source, RemotePath) else os.fspath(source),
        separator=separator,
        limits=limits,
        like=like,
        storage_options=storage_options,
    )


def _file_of_bundle(path: Path, payload: Payload, separator: str) -> ForeignFile:
    """A bundle, whatever schema it has, as a file of arrays and plain values that are named by their paths."""
    arrays: dict[str, ForeignArray] = {}
    values: dict[str, Any] = {}
    for keys, node in iter_nodes(payload.document["manifest"]):
        name = joined(map(str, keys), separator)
        if ARRAY.matches(node):
            read = partial(payload.arrays.__getitem__, node["name"])
            arrays[name] = ForeignArray(node["dtype"], tuple(node["shape"]), read)
        elif isinstance(node, (bool, int, float, str)):
            values[name] = node
    return ForeignFile(path=str(path), format="bundle", arrays=arrays, values=values)


def _arrays(source: Mapping[Any, Any]) -> dict[str, ForeignArray]:
    """The arrays of a mapping, of numpy or of any library whose arrays numpy reads."""
    found: dict[str, ForeignArray] = {}
    problems: list[Diagnostic] = []
    for name, value in source.items():
        try:
            made = value if isinstance(value, ForeignArray) else described(value)
        except (SerializationError, TypeError, ValueError) as error:
            first = first_line(error)
            message = f"expected an array that numpy reads, got {brief(value)}\n{first}"
            problems.append(Diagnostic("NQX430", "error", message, path=str(name)))
            continue
        found[str(name)] = made
    if problems:
        raise SerializationError(problems)
    return found


# ---------------------------------------------------------------------------------------------------------------------
# Values.


def _keyed(values: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(values, Mapping) or not all(isinstance(key, str) for key in values):
        message = f"expected values by name, got {brief(values)}"
        raise SerializationError(
            message, code="NQX701", hint=Hint("such as ", Keyword("values", {"n_heads": 12}))
        )
    return dict(values)


def _read_values(layout: Layout, file: ForeignFile) -> dict[str, Any]:
    """The values in JSON files beside a foreign file."""
    found: dict[str, Any] = {}
    if not (file.path and layout.values_from):
        return found
    place = file.place or Path(file.path)
    folder = place if place.is_dir() else place.parent
    problems: list[Diagnostic] = []
    for name, wanted in layout.values_from.items():
        if Path(name).name != name or Path(name).suffix != ".json":
            message = f"expected the name of a JSON file beside the source, got {name!r}"
            problems.append(Diagnostic("NQX503", "error", message, path="$.values_from"))
            continue
        beside = folder / name
        if not beside.is_file():
            continue  # the values that only it has are reported as missing
        try:
            data = _json(beside).data
        except SchemaError as error:
            problems += error.diagnostics
            continue
        for key, path in wanted.items():
            value: Any = data
            for part in path.split("."):
                value = value.get(part, NOTHING) if isinstance(value, dict) else NOTHING
            if value is not NOTHING:
                found[key] = value
    if problems:
        raise SerializationError(problems)
    return found


def _json(place: Place) -> Source:
    """The content of a JSON file on a disk or behind a URL."""
    if isinstance(place, Path):
        return read_file(place)
    return read_text(place.content(MAX_BYTES + 1), str(place), format="json")


def _require_used(values: Mapping[str, Any], given: Values, table: Table) -> None:
    """Checks that every value of the caller has a field or a size."""
    unused = [key for key in values if key not in given.used]
    names = match(unused, table.value_names if unused else ())
    problems = []
    for key in names.having("extra"):
        message = f"expected a field or a size in values=, got {key!r}, which is neither"
        hint = names.meant(key) or "leave it out"
        problems.append(Diagnostic("NQX701", "error", message, hint=hint))
    if problems:
        raise SerializationError(problems)
