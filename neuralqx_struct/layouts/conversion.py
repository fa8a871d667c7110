"""Conversion: a bundle in another form or store, a foreign file as a bundle, and a bundle as a foreign file.

Arrays pass one at a time, and nothing is looked up but the schema and the layout. ``bundle/conversion.py`` converts from
bundle to bundle.

Example:
    >>> import numpy as np, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> from neuralqx_struct.schema.series import load_series
    >>> net = load_series('''
    ... {language: "1", schema: lab.net, version: 1, root: Net, structs: {Net: {fields: {kernel: "float32[n]"}}}}''')
    >>> layout = {"language": "1", "layout": "hf", "of": "lab.net@1", "structs": {"Net": {"kernel": "weight"}}}
    >>> source = formats.write(f"{folder}/model.npz", "npz", {"weight": np.ones(3, "float32")})
    >>> made = convert(source, f"{folder}/ckpt", schema=net, layout=layout)
    >>> convert(made.out, f"{folder}/again.npz", schema=net, layout=layout).arrays
    1
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from neuralqx_struct import bundle, formats
from neuralqx_struct.bundle import conversion
from neuralqx_struct.bundle.conversion import Converted, Edited, require_apart
from neuralqx_struct.bundle.reading import opened as opened_bundle
from neuralqx_struct.bundle.runs import (
    Found,
    Item,
    checkpoints_of,
    each_checkpoint,
    is_bundle,
    is_there,
)
from neuralqx_struct.bundle.writing import WriteOptions, written
from neuralqx_struct.errors import (
    Diagnostic,
    Hint,
    Keyword,
    MigrationError,
    SerializationError,
    StructError,
    has_errors,
)
from neuralqx_struct.evolution.migrations import resolve_by_plan
from neuralqx_struct.formats import FORMATS, ForeignArray, ForeignFile
from neuralqx_struct.formats.store import Progress, store_of, total_bytes
from neuralqx_struct.formats.table import Writing
from neuralqx_struct.layouts import read_layout
from neuralqx_struct.layouts.payloads import (
    adopted,
    described_by,
    foreign_of,
    named_tree,
    naming,
    open_source,
    released,
    sound_table,
)
from neuralqx_struct.manifest import Limits
from neuralqx_struct.manifest.lazy_reading import LazyArrays
from neuralqx_struct.manifest.payload import Payload
from neuralqx_struct.places.urls import Options, Place, place_of
from neuralqx_struct.schema.catalogue import Catalogue, schemas_given
from neuralqx_struct.schema.series import Series
from neuralqx_struct.schema.stamping import stamped

#: Checkpoints of a run that are under way at a time.
_WORKERS: Final = 8
#: Descriptions of files, and manifests, that are remembered, as there are kinds of items in a step.
_MOST_KNOWN: Final = 8
#: Codes of a tree whose names are not those of the fields.
_NAMES: Final = frozenset({"NQX404", "NQX414", "NQX415"})


@bundle.read_again
def convert(
    source: str | Place,
    out: str | Place,
    *,
    schema: Any = None,
    layout: Any = None,
    values: Mapping[str, Any] | None = None,
    max_shard_size: int | None = None,
    store: str | None = None,
    compress: bool = False,
    compact: bool = False,
    overwrite: bool = False,
    trust: Iterable[str] = (),
    limits: Limits | None = None,
    progress: Progress | None = None,
    report: list[Diagnostic] | None = None,
    storage_options: Options | None = None,
) -> Converted:
    """Writes a bundle in another form or store, a foreign file or a whole run as bundles, or a bundle as a foreign file.

    The source is never changed. Between bundles the values and all else in the manifest stay the same; a bundle of
    neuraLQX becomes one of this library, with checksums. A plain tree comes under a schema: it becomes a bundle of the newest
    version that it conforms to. A foreign file needs a schema, and a layout if its names are not those of the fields.

    With a schema, a folder of checkpoints on a disk is a run: a Series, the folder of a manager of Orbax, a folder of files or of
    bundles. Each becomes a bundle of the schema; plain bundles are read by the layout too, if there is one. One that is refused does
    not stop the others. Calling it again goes on: what is there, and complete, is left alone. Other items of a manager's steps, such
    as metrics, are kept.

    Args:
        source: A bundle, or a file or folder that another program wrote, or the URL of one; or the folder of a run.
        out: The target, a path or a URL; with the suffix ``.zip`` one file. With a layout and the suffix of a foreign format,
            such as ``.safetensors``, a foreign file.
        schema: The schema of a foreign file or of a plain tree: a Series or Schema, or the path of a schema.
        layout: The name of one of its layouts, or the path or text of one.
        values: Values and sizes that the foreign file does not show.
        max_shard_size: Bytes of arrays in one file; the target is then a folder of safetensors files.
        store: The store of the arrays; None for that of the source.
        compress: Compress the arrays; without it they are written so that they can be mapped.
        compact: Leave out the arrays that a migration left unused, and write the others into one file.
        overwrite: Replace an existing target, which may be the source itself.
        trust: Modules with the functions of ``python`` steps between the version of the layout and the other one.
        limits: Sizes above which the source is refused.
        progress: Called with bytes done and bytes in all; of a run, with checkpoints.
        report: Receives a diagnostic for every default, and for every array that the layout ignores; of a run, also the
            reasons of those that were refused.
        storage_options: Options of fsspec for URLs, such as keys.

    Returns:
        The new bundle or file and its sizes; of a run, also the result of each checkpoint, as ``run``. From bundle folder to
        bundle folder, if nothing about the arrays changes, the files are hard links and their bytes are not read, so not
        verified either.

    Raises:
        SerializationError: The source is not sound or does not fit, or the target exists (then also a FileExistsError).
        SchemaError: The schema or the layout has errors.
        IntegrityError: Bytes of the source are damaged; nothing was written.
    """
    source, out = place_of(source, storage_options), place_of(out, storage_options)
    wanted = _format_of(out, max_shard_size)
    options: dict[str, Any] = {
        "layout": layout,
        "values": values,
        "store": store,
        "compress": compress,
        "compact": compact,
        "overwrite": overwrite,
        "trust": trust,
        "limits": limits,
    }
    found = [] if schema is None or not isinstance(source, Path) else checkpoints_of(source)
    if found and isinstance(source, Path):
        series = _series(schema, layout, source)
        _refuse_target(wanted, out)
        require_apart(source, out, itself=False)
        return _converted_run(
            found, source, out, series, options=options, report=report, progress=progress
        )
    foreign = _is_foreign(source)
    if not foreign and layout is None and max_shard_size is None:
        given = schemas_given(schema)
        one = given if isinstance(given, Series) else None  # a project's catalogue chooses none
        return _of_bundle(source, out, one, options, {}, report=report, progress=progress)
    series = _series(schema, layout, source)
    require_apart(source, out)
    if foreign:
        _refuse_target(wanted, out)
        return _of_foreign(
            source,
            out,
            _Files(series, options),
            report=report,
            progress=progress,
            storage_options=storage_options,
        )
    if layout is None:
        raise _missing(["layout"], source)
    if wanted is None:
        known = ", ".join(each.suffix for each in FORMATS.values() if each.write and each.suffix)
        message = f"expected a foreign file as target, got {str(out)!r}"
        raise SerializationError(message, code="NQX614", hint=f"name it {known}")
    with opened_bundle(source, limits) as held:
        payload = held.payload()
        facts = foreign_of(payload)
        table = sound_table(layout, series)
        try:
            arrays = released(payload, series, table, values, report=report, trust=trust)
        except StructError as error:
            raise error.in_file(str(source)) from error.__cause__
        same = facts.get("format") == wanted
        form = facts.get("form") if same else None
        formats.write(
            out,
            wanted,
            _counted(arrays, progress),
            metadata=_texts(facts.get("metadata") if same else None),
            form=form if isinstance(form, Mapping) else None,
            separator=table.layout.separator,
            overwrite=overwrite,
            max_shard_size=max_shard_size,
        )
    nbytes = sum(array.nbytes for array in arrays.values())
    return Converted(cast("Path", out), wanted, len(arrays), nbytes, (), linked=False)


def _is_foreign(source: Place) -> bool:
    if isinstance(source, Path):
        return not is_bundle(source) and formats.recognised(source) is not None
    return formats.is_foreign(source)


def _of_bundle(
    source: Place,
    out: Place,
    series: Series | None,
    options: Mapping[str, Any],
    stamps: dict[str, _Stamp],
    *,
    report: list[Diagnostic] | None,
    progress: Progress | None = None,
) -> Converted:
    """A bundle as another one; ``stamps`` has the manifests that came under the schema so far."""
    names = ("store", "compress", "compact", "overwrite", "limits")
    return conversion.convert(
        source,
        out,
        progress=progress,
        edited=lambda manifest: _under_schema(manifest, series, source, stamps, report),
        **{name: options[name] for name in names},
    )


def _of_foreign(
    source: Place,
    out: Place,
    files: _Files,
    *,
    report: list[Diagnostic] | None,
    progress: Progress | None = None,
    storage_options: Options | None = None,
) -> Converted:
    """A foreign file as a bundle."""
    payload, shared = files.payload(source, report, storage_options)
    options = files.options
    store = options["store"] or store_of({}).name
    how = {name: options[name] for name in ("overwrite", "compress")}
    written(out, payload, WriteOptions(store=store, progress=progress, **how), shared)
    records = payload.document["arrays"]
    nbytes = total_bytes(records)
    return Converted(cast("Path", out), store, len(records), nbytes, (), linked=False)


class _Files:
    """Foreign files as payloads of a schema; without a layout their names are those of the fields.

    What depends on the description of a file alone is made once for the files that share it, as the steps of a run do.

    Args:
        series: The schema.
        options: Those of :func:`convert`.
    """

    def __init__(self, series: Series, options: Mapping[str, Any]) -> None:
        layout = options["layout"]
        self._series, self.options = series, options
        self._table = None if layout is None else sound_table(layout, series)
        self._known: dict[str, _Known] = {}

    def payload(
        self, source: Place, report: list[Diagnostic] | None, storage_options: Options | None
    ) -> tuple[Payload, dict[str, str] | None]:
        """The payload of a file, whose arrays are read when they are asked for.

        Returns:
            The payload, and the texts that its manifest shares with others, as for ``written``.

        Raises:
            SerializationError: It does not fit, with every problem.
        """
        table, limits = self._table, self.options["limits"]
        if table is None and self.options["values"]:
            raise _missing(["layout"], source)
        separator = "." if table is None else table.layout.separator
        with naming(str(source)):
            file = open_source(source, separator, limits, storage_options=storage_options)
            try:
                key = described_by(file, table)
                known = self._known.get(key)
                if known is None:
                    return self._planned(file, key, report)
            except BaseException:
                file.close()
                raise
        if report is not None:
            report += (replace(d, file=d.file and file.path) for d in known.notes)
        own = map(id, known.sources)
        arrays = known.arrays.of_others(dict(zip(own, file.arrays.values(), strict=True)))
        weakref.finalize(arrays, file.close)  # which stays open as long as they are
        return Payload(known.document, arrays), known.shared

    def _planned(
        self, file: ForeignFile, key: str, report: list[Diagnostic] | None
    ) -> tuple[Payload, dict[str, str] | None]:
        """The payload of a file of an unknown description, which is known from now on."""
        table, values = self._table, self.options["values"]
        notes: list[Diagnostic] = []
        if table is None:
            made = named_tree(file)
        else:
            made = adopted(self._series, table, file, values, report=notes)
        try:
            trust = self.options["trust"]
            payload, way = resolve_by_plan(made, self._series, to="head", report=notes, trust=trust)
        except StructError as error:
            if table is None:
                error = MigrationError(map(_with_layout, error.diagnostics))
            raise error from error.__cause__
        arrays = cast("LazyArrays", made.arrays)
        weakref.finalize(arrays, file.close)
        if report is not None:
            report += notes
        if way.hops:  # their steps may look at the elements of arrays
            return payload, None
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        sources = [*file.arrays.values()]
        known = self._known[key] = _Known(payload.document, arrays, sources, notes, {})
        return payload, known.shared


class _Known(NamedTuple):
    """What files of one description share: the manifest, and the arrays of the first of them, by its sources."""

    document: dict[str, Any]
    arrays: LazyArrays
    sources: list[ForeignArray]
    notes: list[Diagnostic]
    shared: dict[str, str]


def _with_layout(found: Diagnostic) -> Diagnostic:
    """The finding of a file whose names are not those of the fields, with the way to name them."""
    if found.code not in _NAMES:
        return found
    first = "without a layout, names in the file are those of the fields: pass "
    return replace(
        found, hint=Hint(first, Keyword("layout"), ", which `neuralqx-struct infer FILE` drafts")
    )


# ---------------------------------------------------------------------------------------------------------------------
# Runs.


def _converted_run(
    found: list[Found],
    source: Path,
    out: Place,
    series: Series,
    *,
    options: Mapping[str, Any],
    report: list[Diagnostic] | None,
    progress: Progress | None,
) -> Converted:
    """Every checkpoint of a run as a bundle of a schema."""
    options = {**options, "trust": tuple(options["trust"])}
    files = _Files(series, options)
    work = partial(_typed, series=series, options=options, files=files, stamps={})
    done = each_checkpoint(
        found, source, out, work, noun="step", workers=_WORKERS, progress=progress
    )
    if report is not None:
        report += done.diagnostics
    made: list[Converted] = [item.made for item in done.items if item.made is not None]
    return Converted(
        cast("Path", out),
        ", ".join(sorted({each.store for each in made})),
        sum(each.arrays for each in made),
        sum(each.nbytes for each in made),
        tuple(dict.fromkeys(name for each in made for name in each.dropped)),
        linked=bool(made) and all(each.linked for each in made),
        run=done,
    )


def _typed(
    path: Path,
    out: Place,
    series: Series,
    options: Mapping[str, Any],
    *,
    files: _Files,
    stamps: dict[str, _Stamp],
) -> Item:
    """One checkpoint of a run as a bundle of a schema; one that is there is left alone."""
    if is_there(out) and not options["overwrite"]:
        _require_made(out, bundle.survey(out, limits=options["limits"]), series)
        return Item(path, cast("Path", out), "skipped")
    found: list[Diagnostic] = []
    if not is_bundle(path):
        made = _of_foreign(path, out, files, report=found)
    else:
        with bundle.kept(path, options["limits"]):
            written = bundle.read_manifest(path, limits=options["limits"]).get("schema")
            _require_schema(written, series)
            if written is None and options["layout"] is not None:
                made = _of_foreign(path, out, files, report=found)
            else:
                made = _of_bundle(path, out, series, options, stamps, report=found)
    return Item(path, cast("Path", out), "typed", report=tuple(found), made=made)


def _require_schema(written: Mapping[str, Any] | None, series: Series) -> None:
    """Checks that a bundle is of a schema, or of none yet.

    Raises:
        MigrationError: It is of another one.
    """
    if written is not None and written["id"] != series.id:
        message = f"expected a bundle of {series.id} or of no schema, got one of {written['id']}"
        raise MigrationError(message, code="NQX404", path="$.schema.id")


def _require_made(out: Place, survey: bundle.Survey, series: Series) -> None:
    """Checks that a target is a whole bundle of a schema, by its manifest and the sizes of its files.

    Raises:
        BundleExistsError: It is another one.
    """
    document, found, _ = survey
    if document is not None and not has_errors(found):
        written = document.get("schema") or {"id": None}
        if written["id"] == series.id and written["version"] in series.documents:
            return
    got = "a damaged bundle" if document is None or has_errors(found) else "another bundle"
    message = f"expected nothing or a bundle of {series.id}, got {got}"
    hint = Hint("remove it, choose another folder, or pass ", Keyword("overwrite", True))
    raise bundle.BundleExistsError(message, file=str(out), hint=hint)


class _Stamp(NamedTuple):
    """What plain bundles share whose manifests differ in the records of their arrays alone."""

    document: dict[str, Any]
    notes: list[Diagnostic]
    shared: dict[str, str]


def _under_schema(
    manifest: dict[str, Any],
    series: Series | None,
    source: Place,
    stamps: dict[str, _Stamp],
    report: list[Diagnostic] | None,
) -> Edited:
    if series is None or "schema" in manifest:
        return manifest, None
    key = repr([item for item in manifest.items() if item[0] not in ("arrays", "digest")])
    stamp = stamps.get(key)
    if stamp is None:
        notes: list[Diagnostic] = []
        try:
            made = stamped(manifest, series, notes)
        except StructError as error:
            raise error.in_file(str(source)) from error.__cause__
        if len(stamps) >= _MOST_KNOWN:
            stamps.clear()
        stamp = stamps[key] = _Stamp(made, notes, {})
    if report is not None:
        report += stamp.notes
    return {**stamp.document, "arrays": manifest["arrays"]}, stamp.shared


def _format_of(out: Place, max_shard_size: int | None) -> str | None:
    """The foreign format that a target is named for; None for a bundle."""
    for each in FORMATS.values():
        if each.write is not None and each.suffix and out.name.endswith(each.suffix):
            return each.name
    if max_shard_size is None:
        return None
    shards = Writing(max_shard_size=max_shard_size)
    folders = (each.name for each in FORMATS.values() if each.write and each.folder(shards))
    return next(folders, None)


def _refuse_target(wanted: str | None, out: Place) -> None:
    if wanted is not None:
        message = f"expected a bundle as target, got {wanted} files at {str(out)!r}"
        hint = "a foreign file becomes a bundle first; the bundle then becomes another file"
        raise SerializationError(message, code="NQX614", hint=hint)


def _missing(names: Iterable[str], source: Place) -> SerializationError:
    message = f"expected a {' and a '.join(names)} for a foreign file or a run, got none"
    both = Keyword("schema"), " and ", Keyword("layout")
    hint = Hint("`neuralqx-struct infer FILE` drafts both; pass ", *both)
    return SerializationError(message, code="NQX708", file=str(source), hint=hint)


def _series(schema: Any, layout: Any, source: Place) -> Series:
    """The schema of a foreign file or of a run."""
    if schema is None:
        raise _missing(["schema"] if layout is not None else ["schema", "layout"], source)
    given = schemas_given(schema)
    if isinstance(given, Catalogue):
        if layout is None:
            raise _missing(["schema"], source)
        read, _ = read_layout(layout)
        found = given.get(read.ref.id)
        if found is None:
            message = f"expected a schema with the identity {read.ref.id}, got none"
            raise SerializationError(message, code="NQX404", hint=Hint("pass ", Keyword("schema")))
        return found
    assert given is not None  # by the check above
    return given


def _texts(metadata: Any) -> dict[str, str]:
    """The texts by name that a bundle has about a file; a bundle can hold anything there."""
    items = metadata.items() if isinstance(metadata, Mapping) else ()
    return {name: text for name, text in items if isinstance(text, str)}


def _counted(
    arrays: Mapping[str, ForeignArray], progress: Progress | None
) -> Mapping[str, ForeignArray]:
    """The arrays, with a call of ``progress`` for each that is read."""
    if progress is None:
        return arrays
    total = sum(array.nbytes for array in arrays.values())
    done = 0

    def counted(array: ForeignArray) -> ForeignArray:
        def read() -> Any:
            nonlocal done
            made = array.read()
            done = min(done + made.nbytes, total)
            progress(done, total)
            return made

        return array._replace(read=read)

    return {name: counted(array) for name, array in arrays.items()}
