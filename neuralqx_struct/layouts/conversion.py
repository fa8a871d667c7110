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

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from neuralqx_struct import bundle, formats
from neuralqx_struct.bundle import conversion
from neuralqx_struct.bundle.conversion import Converted, require_apart
from neuralqx_struct.bundle.reading import opened as opened_bundle
from neuralqx_struct.errors import Diagnostic, Hint, Keyword, SerializationError, StructError
from neuralqx_struct.bundle.runs import is_bundle
from neuralqx_struct.evolution.migrations import resolve
from neuralqx_struct.formats import FORMATS, ForeignArray
from neuralqx_struct.formats.store import Progress, store_of
from neuralqx_struct.formats.table import Writing
from neuralqx_struct.layouts import read_layout
from neuralqx_struct.layouts.payloads import adopted, foreign_of, released, sound_layout
from neuralqx_struct.manifest import Limits
from neuralqx_struct.places.urls import Options, Place, place_of
from neuralqx_struct.schema.catalogue import Catalogue, schemas_given
from neuralqx_struct.schema.series import Series
from neuralqx_struct.schema.stamping import under_schema


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
    """Writes a bundle in another form or store, a foreign file as a bundle, or a bundle as a foreign file.

    The source is never changed. Between bundles the values and all else in the manifest stay the same; a bundle of
    neuraLQX becomes one of this library, with checksums. A plain tree comes under a schema: it becomes a bundle of the newest
    version that it conforms to. A foreign file needs a schema and a layout.

    Args:
        source: A bundle, or a file or folder that another program wrote, or the URL of one.
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
        progress: Called with bytes done and bytes in all.
        report: Receives a diagnostic for every default, and for every array that the layout ignores.
        storage_options: Options of fsspec for URLs, such as keys.

    Returns:
        The new bundle or file and its sizes. From bundle folder to bundle folder, if nothing about the arrays changes,
        the files are hard links and their bytes are not read, so not verified either.

    Raises:
        SerializationError: The source is not sound or does not fit, or the target exists (then also a FileExistsError).
        SchemaError: The schema or the layout has errors.
        IntegrityError: Bytes of the source are damaged; nothing was written.
    """
    source, out = place_of(source, storage_options), place_of(out, storage_options)
    if isinstance(source, Path):
        foreign = not is_bundle(source) and formats.recognised(source) is not None
    else:
        foreign = formats.is_foreign(source)
    wanted = _format_of(out, max_shard_size)
    if not foreign and layout is None and max_shard_size is None:
        given = schemas_given(schema)
        one = given if isinstance(given, Series) else None  # a project's catalogue chooses none
        return conversion.convert(
            source,
            out,
            store=store,
            compress=compress,
            compact=compact,
            overwrite=overwrite,
            limits=limits,
            progress=progress,
            edited=lambda manifest: _under_schema(manifest, one, source),
        )
    series = _series(schema, layout, source)
    require_apart(source, out)
    if foreign:
        _refuse_target(wanted, out)
        payload = adopted(
            series,
            layout,
            source,
            values,
            report=report,
            limits=limits,
            storage_options=storage_options,
        )
        payload = resolve(payload, series, report=report, trust=trust)
        chosen: dict[str, Any] = {} if store is None else {"store": store}
        bundle.write(
            out, payload, overwrite=overwrite, compress=compress, progress=progress, **chosen
        )
        records = bundle.read_manifest(out)["arrays"]
        nbytes = sum(record["nbytes"] for record in records.values())
        return Converted(
            cast("Path", out), store_of(records).name, len(records), nbytes, (), linked=False
        )
    if wanted is None:
        known = ", ".join(each.suffix for each in FORMATS.values() if each.write and each.suffix)
        message = f"expected a foreign file as target, got {str(out)!r}"
        raise SerializationError(message, code="NQX614", hint=f"name it {known}")
    with opened_bundle(source, limits) as held:
        payload = held.payload()
        facts = foreign_of(payload)
        try:
            arrays = released(payload, series, layout, values, report=report, trust=trust)
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
            separator=sound_layout(layout, series).separator,
            overwrite=overwrite,
            max_shard_size=max_shard_size,
        )
    nbytes = sum(array.nbytes for array in arrays.values())
    return Converted(cast("Path", out), wanted, len(arrays), nbytes, (), linked=False)


def _under_schema(
    manifest: dict[str, Any], series: Series | None, source: str | Place
) -> dict[str, Any]:
    try:
        return under_schema(manifest, series)
    except StructError as error:
        raise error.in_file(str(source)) from error.__cause__


def _format_of(out: Place, max_shard_size: int | None) -> str | None:
    """The foreign format that a target is named for; None for a bundle."""
    for each in FORMATS.values():
        if each.write is not None and each.suffix and out.name.endswith(each.suffix):
            return each.name
    shards = Writing(max_shard_size=max_shard_size)
    folders = (each.name for each in FORMATS.values() if each.write and each.folder(shards))
    return next(folders, None)


def _refuse_target(wanted: str | None, out: Place) -> None:
    if wanted is not None:
        message = f"expected a bundle as target, got {str(out)!r}"
        hint = "a foreign file becomes a bundle first; the bundle then becomes another file"
        raise SerializationError(message, code="NQX614", hint=hint)


def _series(schema: Any, layout: Any, source: Place) -> Series:
    """The schema of a foreign file."""
    missing = [name for name, value in (("schema", schema), ("layout", layout)) if value is None]
    if missing:
        message = f"expected a {' and a '.join(missing)} for a foreign file, got none"
        both = Keyword("schema"), " and ", Keyword("layout")
        hint = Hint("`neuralqx-struct infer FILE` drafts both; pass ", *both)
        raise SerializationError(message, code="NQX708", file=str(source), hint=hint)
    given = schemas_given(schema)
    if isinstance(given, Catalogue):
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
