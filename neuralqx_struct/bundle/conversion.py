"""Conversion: writes a bundle in another form or store; its values stay the same.

Bundles of neuraLQX become bundles of this library. Arrays pass one at a time, each verified; if no byte of
them would change, their files get a second name instead. No class is looked up: a bundle is converted
without the code that wrote it. ``evolution/migrations.py`` changes schema versions.

Example:
    >>> import tempfile
    >>> source = bundle.write(f"{tempfile.mkdtemp()}/ckpt", Payload({"version": 1, "manifest": 5, "arrays": {}}, {}))
    >>> convert(source, f"{tempfile.mkdtemp()}/ckpt.zip").out.name
    'ckpt.zip'
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neuralqx_struct import bundle
from neuralqx_struct.bundle.storage import FOREIGN_MEMBERS, is_folder_path
from neuralqx_struct.errors import StructError
from neuralqx_struct.manifest import Limits
from neuralqx_struct.manifest.kinds import FLOAT
from neuralqx_struct.manifest.payload import HeldArrays, Payload
from neuralqx_struct.stores.store import (
    Progress,
    file_of,
    store_of,
    store_of_file,
    total_bytes,
)

__all__ = ["Converted", "convert"]


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
    """

    out: Path
    store: str
    arrays: int
    nbytes: int
    dropped: tuple[str, ...]
    linked: bool

    def __str__(self) -> str:
        how = "the files of the source got a second name" if self.linked else f"store {self.store}"
        plural = "" if self.arrays == 1 else "s"
        text = f"written to {self.out}: {self.arrays} array{plural}, {self.nbytes} bytes ({how})"
        return f"{text}\nleft out {', '.join(self.dropped)}" if self.dropped else text


def convert(
    source: str | Path,
    out: str | Path,
    *,
    store: str | None = None,
    compress: bool = False,
    compact: bool = False,
    overwrite: bool = False,
    limits: Limits | None = None,
    progress: Progress | None = None,
) -> Converted:
    """Writes a bundle in another form: folder or zip, another store, compressed or not, without unused arrays.

    The values and all else in the manifest stay the same. The source is never changed. A bundle of
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

    Returns:
        The new bundle and its sizes. From folder to folder, if nothing about the arrays changes, the files
        are hard links and their bytes are not read, so not verified either.

    Raises:
        SerializationError: The source is no sound bundle, or the target exists (then also a FileExistsError).
        IntegrityError: Bytes of the source are damaged; nothing was written.
    """
    source, out = Path(source), Path(out)
    with bundle.opened(source, limits) as held:
        payload = held.payload()
        document = payload.document
        records = document["arrays"]
        chosen = store or store_of(records).name
        unused = tuple(name for name, record in records.items() if compact and "unused" in record)
        kept = {name: record for name, record in records.items() if name not in unused}
        nbytes = total_bytes(kept)
        joined = compact and (bool(unused) or len(set(map(file_of, kept.values()))) > 1)
        foreign = document.keys() == FOREIGN_MEMBERS
        linked = (
            held.held.is_folder
            and is_folder_path(out)
            and not (compress or joined or foreign)
            and all(_unchanged(record, chosen) for record in kept.values())
        )
        if linked:
            bundle.write_linked(held, out, document, overwrite=overwrite)
            if progress is not None:
                progress(nbytes, nbytes)
            return Converted(out, chosen, len(kept), nbytes, unused, linked)
        bundle.require_apart(held.path, out)
        if foreign:
            document = {**document, "manifest": _with_strict_numbers(document["manifest"])}
        written = Payload({**document, "arrays": kept}, HeldArrays(payload.arrays, names=kept))
        options: dict[str, Any] = {"overwrite": overwrite, "store": chosen, "compress": compress}
        try:
            bundle.write(out, written, progress=progress, **options)
        except StructError as error:
            raise error.in_file(str(source)) from error.__cause__
    return Converted(out, chosen, len(kept), nbytes, unused, linked)


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
