"""New bundles of old ones: in another form or store, with the same files, or with a new digest.

:func:`convert` keeps all values. :func:`write_linked` takes over the files of another bundle, as a migration
of the manifest alone does. :func:`seal` repairs the digest after an edit by hand.

Bundles of neuraLQX become bundles of this library. Arrays pass one at a time, each verified; if no byte of
them would change, their files get a second name instead. No class is looked up: a bundle is converted
without the code that wrote it. ``evolution/migrations.py`` changes schema versions.

Example:
    >>> import tempfile
    >>> source = write(f"{tempfile.mkdtemp()}/ckpt", Payload({"version": 1, "manifest": 5, "arrays": {}}, {}))
    >>> convert(source, f"{tempfile.mkdtemp()}/ckpt.zip").out.name
    'ckpt.zip'
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from neuralqx_struct.bundle.forms import form_of, new_bundle
from neuralqx_struct.bundle.members import formatted, recorded, signed
from neuralqx_struct.bundle.reading import OpenBundle, around, naming, opened
from neuralqx_struct.bundle.runs import RunResult
from neuralqx_struct.bundle.storage import FOREIGN_MEMBERS
from neuralqx_struct.bundle.writing import WriteOptions, write
from neuralqx_struct.errors import StructError, printable
from neuralqx_struct.formats.store import (
    Progress,
    Records,
    Store,
    file_of,
    store_of,
    store_of_file,
    ticking,
    total_bytes,
)
from neuralqx_struct.manifest import MANIFEST, Limits, raise_findings
from neuralqx_struct.manifest.check import check_manifest
from neuralqx_struct.manifest.kinds import FLOAT
from neuralqx_struct.manifest.payload import HeldArrays, Payload, check_arrays
from neuralqx_struct.manifest.text import reseal
from neuralqx_struct.places.atomic import staged
from neuralqx_struct.places.disk import BundleExistsError
from neuralqx_struct.places.urls import Place, place_of

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

Edited = tuple[dict[str, Any], dict[str, str] | None]

__all__ = ["Converted", "convert", "require_apart", "seal", "write_linked"]


@dataclass(frozen=True, slots=True)
class Converted:
    """The result of :func:`convert`.

    Attributes:
        out: The new bundle.
        store: The store of its arrays.
        arrays: The number of its arrays.
        nbytes: Their bytes.
        dropped: Unused arrays that were left out.
        linked: True if the array files were not written again, but got a second name.
        run: The result of each checkpoint, if the source was a run; the numbers are then those of all.
    """

    out: Path
    store: str
    arrays: int
    nbytes: int
    dropped: tuple[str, ...]
    linked: bool
    run: RunResult | None = None

    def __str__(self) -> str:
        if self.run is not None:
            made = any(item.state in ("typed", "skipped") for item in self.run.items)
            end = f"written to {printable(self.out)}" if made else "nothing was written"
            return f"{self.run}\n{end}"
        how = "the files of the source got a second name" if self.linked else f"store {self.store}"
        plural = "" if self.arrays == 1 else "s"
        text = f"written to {printable(self.out)}: {self.arrays} array{plural}, {self.nbytes} bytes ({how})"
        return f"{text}\nleft out {printable(', '.join(self.dropped))}" if self.dropped else text


def convert(
    source: str | Place,
    out: str | Place,
    *,
    store: str | None = None,
    compress: bool = False,
    compact: bool = False,
    overwrite: bool = False,
    limits: Limits | None = None,
    progress: Progress | None = None,
    edited: Callable[[dict[str, Any]], Edited] = lambda manifest: (manifest, None),
) -> Converted:
    """Writes a bundle in another form: folder or zip, another store, compressed or not, without unused arrays.

    The values and all else in the manifest stay the same, unless ``edited``. The source is never changed. A bundle of
    neuraLQX becomes one of this library, with checksums.

    Args:
        source: The bundle, a folder or a zip.
        out: The target; with the suffix ``.zip`` one file.
        store: The store of the arrays; None for that of the source.
        compress: Compress the arrays; without it they are written so that they can be mapped.
        compact: Leave out the arrays that a migration left unused, and write the others into one file.
        overwrite: Replace an existing bundle, which may be the source itself.
        limits: Sizes above which the source is refused.
        progress: Called with bytes done and bytes in all.
        edited: Returns the manifest of the new bundle, which names the same arrays, and what it shares with others, as for
            :func:`~neuralqx_struct.bundle.writing.written`.

    Returns:
        The new bundle and its sizes. From folder to folder, if nothing about the arrays changes, the files
        are hard links and their bytes are not read, so not verified either.

    Raises:
        SerializationError: The source is no sound bundle, or the target exists (then also a FileExistsError).
        IntegrityError: Bytes of the source are damaged; nothing was written.
    """
    source, out = place_of(source), place_of(out)
    with opened(source, limits) as held:
        payload = held.payload()
        foreign = payload.document.keys() == FOREIGN_MEMBERS
        document, shared = edited(payload.document)
        records = document["arrays"]
        chosen = store or store_of(records).name
        unused = tuple(name for name, record in records.items() if compact and "unused" in record)
        kept = {name: record for name, record in records.items() if name not in unused}
        nbytes = total_bytes(kept)
        joined = compact and (bool(unused) or len(set(map(file_of, kept.values()))) > 1)
        linked = (
            held.held.is_folder
            and form_of(out) is form_of(held.path)
            and not (compress or joined or foreign)
            and all(_unchanged(record, chosen) for record in kept.values())
        )
        if linked:
            write_linked(held, out, document, overwrite=overwrite, shared=shared)
            if progress is not None:
                progress(nbytes, nbytes)
            return Converted(cast("Path", out), chosen, len(kept), nbytes, unused, linked)
        require_apart(held.path, out)
        if foreign:
            document = {**document, "manifest": _with_strict_numbers(document["manifest"])}
        written = Payload({**document, "arrays": kept}, HeldArrays(payload.arrays, names=kept))
        options: dict[str, Any] = {"overwrite": overwrite, "store": chosen, "compress": compress}
        try:
            write(out, written, progress=progress, **options)
        except StructError as error:
            raise error.in_file(str(source)) from error.__cause__
    return Converted(cast("Path", out), chosen, len(kept), nbytes, unused, linked)


def _unchanged(record: Mapping[str, Any], store: str) -> bool:
    """True if an array is in this store already, uncompressed."""
    own = store_of_file(file_of(record))
    return own.name == store and not own.compressed(record)


def _with_strict_numbers(root: Any) -> Any:
    """A tree of nodes in which NaN and infinities, bare tokens of neuraLQX, are nodes of their own."""
    top = [root]
    stack: list[Any] = [top]
    while stack:
        held = stack.pop()
        for key, value in list(held.items() if isinstance(held, dict) else enumerate(held)):
            if isinstance(value, float) and not math.isfinite(value):
                held[key] = FLOAT.node(value=str(value))
            elif isinstance(value, dict | list):
                held[key] = value.copy()
                stack.append(held[key])
    return top[0]


# The files of another bundle


def write_linked(
    source: OpenBundle,
    target: str | Place,
    document: Mapping[str, Any],
    *,
    changed: Mapping[str, Array] | None = None,
    shared: dict[str, str] | None = None,
    **options: Any,
) -> Path:
    """Writes a bundle of the array files of another one, without writing their bytes again.

    In folders the array files get a second name (a hard link; a copy if the system has none), so the cost
    does not depend on their size. Arrays of the source without a record in the document stay in their files
    and are recorded as unused, unless no array of the source is used any more.

    Args:
        source: The bundle that has the bytes.
        target: The new bundle.
        document: Its manifest. Arrays that are taken over keep their records.
        changed: New arrays, and those that replace one of the same name; they go into a file of their
            own, in the store of the source.
        shared: As for :func:`~neuralqx_struct.bundle.writing.written`.
        **options: ``overwrite``, ``progress`` (of the arrays in ``changed``) and ``limits`` of
            :class:`~neuralqx_struct.bundle.writing.WriteOptions`.

    Raises:
        SerializationError: The document names arrays that neither the source nor ``changed`` has, or is not sound.
    """
    target, changed, chosen = place_of(target), changed or {}, WriteOptions(**options)
    given = document["arrays"]
    original = source.sound_document()["arrays"]
    records = _carried(document, original, changed)
    files = [*dict.fromkeys(map(file_of, records.values()))]
    store = store_of(original)
    free = _free_name(store, set(map(file_of, original.values())))
    added = {name: given[name] for name in changed if name in given}
    sound = {**document, "arrays": {**records, **added}}
    if not shared:
        raise_findings(check_manifest(sound, limits=chosen.most), str(target))
    require_apart(source.path, target)
    for file in files:
        form_of(target).require(store_of_file(file))
    with new_bundle(target, overwrite=chosen.overwrite) as new:
        names = {file: new.take(source.held, file) for file in files}
        records = {name: _moved(record, names) for name, record in records.items()}
        if changed:
            fresh = new.named(free)
            tick = ticking(chosen.progress, added)
            written = new.put(fresh, lambda place: store.write(place, changed, tick=tick))
            for name, record in written.items():
                records[name] = recorded(given.get(name, {}), record, fresh)
        made = signed(document, records)
        raise_findings(
            check_arrays(Payload(made, HeldArrays(records)), chosen.most.full_bytes), str(target)
        )
        new.finish(formatted(made, chosen.most.manifest_bytes, shared))
    return cast("Path", target)


def _moved(record: Mapping[str, Any], names: Mapping[str, str]) -> Mapping[str, Any]:
    """A record with the new name of its file."""
    file = file_of(record)
    return record if names[file] == file else {**record, "file": names[file]}


def require_apart(source: Place, target: Place, *, itself: bool = True) -> None:
    """Checks that a new bundle is not written into the folder that it is made from.

    Args:
        source: The folder.
        target: The new bundle.
        itself: True if the new bundle may replace its source.

    Raises:
        SerializationError: It is.
    """
    inside = same = False
    if isinstance(source, Path) and isinstance(target, Path):
        above, below = Path(os.path.realpath(source)), Path(os.path.realpath(target))
        inside, same = above in below.parents, above == below
    elif not (isinstance(source, Path) or isinstance(target, Path)):
        inside, same = target.is_below(source), str(target) == str(source)
    if inside or (same and not itself):
        got = "one inside" if inside else "the same"
        message = f"expected a target outside of {source}, got {got}"
        hint = "the input is never changed: choose another path"
        raise BundleExistsError(message, file=str(target), hint=hint)


def _carried(
    document: Mapping[str, Any], original: Records, changed: Mapping[str, Array]
) -> dict[str, Any]:
    """The records of the arrays that are taken over; unused ones too, if any is used.

    An array that the document lacks keeps its record: its file may replace an older array of that name in
    another file, which nothing else accounts for.
    """
    given = document["arrays"]
    kept = {name: record for name, record in original.items() if name not in changed}
    if not any(name in given and "unused" not in record for name, record in kept.items()):
        return {}
    for name, record in kept.items():
        if name not in given:
            kept[name] = {**record, "unused": True}
    return kept


def _free_name(store: Store, taken: set[str]) -> str:
    """A name for a further array file of a store."""
    name, number = store.file, 0
    while name in taken:
        number += 1
        name = f"arrays-{number}.{store.suffix}"
    return name


def seal(path: str | Place) -> None:
    """Recomputes the digest of a manifest that was edited by hand; changes and checks nothing else.

    Args:
        path: A folder, a zip, or a ``manifest.json``.

    Raises:
        SerializationError: There is no manifest, or it is not even JSON.
    """
    path = around(path)
    with opened(path) as source:
        with naming(path):
            data = reseal(source.data)
        if source.held.is_folder:
            _replace_manifest(path, data)
            return
        with new_bundle(path, overwrite=True) as new:
            for name in source.held.names():
                if name != MANIFEST:
                    new.take(source.held, name)
            new.finish(data)


def _replace_manifest(folder: Place, data: bytes) -> None:
    """Replaces the manifest alone, in one step."""
    if not isinstance(folder, Path):
        (folder / MANIFEST).pipe(data, new=False)
        return
    target = folder / MANIFEST
    with staged(
        target, folder=False, overwrite=True, foreign=lambda _: None, kind="manifest"
    ) as stage:
        stage.write_bytes(data)
