"""Conversion: a bundle written anew in another form or store, its values untouched.

Owns :func:`convert`. Bundles of neuraLQX become ours on the way. Arrays pass one at a time, each compared with its
checksum; where no byte of them would change, their files get a second name instead. Schema versions are
``evolution/migrations.py``'s business, and no class is looked up: a bundle is converted without the code that wrote it.

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
from math import prod
from pathlib import Path
from typing import Any

from neuralqx_struct import bundle
from neuralqx_struct.arrays import HeldArrays
from neuralqx_struct.bundle.forms import FOREIGN_MEMBERS
from neuralqx_struct.errors import StructError
from neuralqx_struct.manifest import DEFAULT_FILE, Limits
from neuralqx_struct.payload import Payload, dtype_named
from neuralqx_struct.stores import STORES, Progress

__all__ = ["Converted", "convert"]


@dataclass(frozen=True, slots=True)
class Converted:
    """What :func:`convert` did.

    Attributes:
        out: The new bundle.
        store: The store of its arrays.
        arrays: How many arrays it holds.
        nbytes: Their bytes.
        dropped: Arrays that no value uses any more and that were left out.
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
        lines = [f"written to {self.out}: {self.arrays} array{'s' * (self.arrays != 1)}, {self.nbytes} bytes ({how})"]
        lines += [f"left out {', '.join(self.dropped)}"] if self.dropped else []
        return "\n".join(lines)


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
    """Write a bundle in another form: folder or zip, another store, compressed or not, without unused arrays.

    The values stay what they are, and so does everything else that the manifest says. The source is never touched. A
    bundle of neuraLQX becomes one of ours, with checksums.

    Args:
        source: The bundle, a folder or a zip.
        out: Where the new one goes; with the suffix ``.zip`` one file.
        store: The store of the arrays; None for the one that the source has.
        compress: Deflate the arrays; without it they are written so that they can be mapped.
        compact: Leave out the arrays that a migration left unused, and write the others into one file.
        overwrite: Replace a bundle that is there, which may be the source itself.
        limits: How much to take in.
        progress: Called with bytes done and bytes in all.

    Returns:
        What was done. From folder to folder, where nothing about the arrays changes, the files are hard links and their
        bytes are not read, so not verified either.

    Raises:
        SerializationError: The source is no sound bundle, or the target exists (then also a FileExistsError).
        IntegrityError: Bytes of the source are damaged; nothing was written.
    """
    source, out = Path(source), Path(out)
    payload = bundle.read(source, limits=limits)
    document = payload.document
    records = document["arrays"]
    chosen = store or _store_of(records)
    unused = tuple(name for name, record in records.items() if compact and "unused" in record)
    kept = {name: record for name, record in records.items() if name not in unused}
    nbytes = sum(prod(record["shape"]) * dtype_named(record["dtype"]).itemsize for record in kept.values())
    linked = (
        source.is_dir()
        and out.suffix.lower() != ".zip"
        and not compress
        and not (compact and (unused or len({_file(record) for record in kept.values()}) > 1))
        and document.keys() != FOREIGN_MEMBERS
        and all(_store_of({name: record}) == chosen and _mappable(record) for name, record in kept.items())
    )
    if linked:
        bundle.write_linked(source, out, document, overwrite=overwrite)
        if progress is not None:
            progress(nbytes, nbytes)
    else:
        if document.keys() == FOREIGN_MEMBERS:
            document = {**document, "manifest": _with_strict_numbers(document["manifest"])}
        written = Payload({**document, "arrays": kept}, HeldArrays(payload.arrays, names=kept))
        try:
            bundle.write(out, written, overwrite=overwrite, store=chosen, compress=compress, progress=progress)
        except StructError as error:
            raise error.in_file(str(source)) from error.__cause__
    return Converted(out, chosen, len(kept), nbytes, unused, linked)


def _file(record: Mapping[str, Any]) -> str:
    return str(record.get("file", DEFAULT_FILE))


def _store_of(records: Mapping[str, Mapping[str, Any]]) -> str:
    """The store that most of the arrays are in."""
    suffixes = [_file(record).rpartition(".")[2] for record in records.values()]
    return max(STORES, key=suffixes.count)


def _mappable(record: Mapping[str, Any]) -> bool:
    """True unless the array is compressed, which a plain conversion undoes."""
    return "offset" in record or not _file(record).endswith(".npz")


def _with_strict_numbers(root: Any) -> Any:
    """A tree of nodes with NaN and infinities, which neuraLQX writes as bare tokens, as nodes of their own."""
    top = [root]
    stack: list[Any] = [top]
    while stack:
        held = stack.pop()
        for key, value in list(held.items() if isinstance(held, dict) else enumerate(held)):
            if isinstance(value, float) and not math.isfinite(value):
                held[key] = {"__kind__": "float", "value": str(value)}
            elif isinstance(value, dict | list):
                held[key] = copied = value.copy()
                stack.append(copied)
    return top[0]
