"""New bundles of the bytes of old ones: migrations of the manifest alone, and the digest after an edit by hand.

Owns :func:`write_linked` and :func:`seal`.

Example:
    >>> import tempfile
    >>> from neuralqx_struct.bundle import read_manifest, write
    >>> path = write(f"{tempfile.mkdtemp()}/ckpt", Payload({"version": 1, "manifest": 5, "arrays": {}}, {}))
    >>> read_manifest(write_linked(path, f"{path}2", {"version": 1, "manifest": 6, "arrays": {}}))["manifest"]
    6
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neuralqx_struct.arrays import HeldArrays, ListedArrays
from neuralqx_struct.bundle.filling import new_bundle, replace_manifest
from neuralqx_struct.bundle.forms import MANIFEST, Zip, manifest_bytes, opened_bundle
from neuralqx_struct.bundle.manifests import around, naming, sound_document
from neuralqx_struct.bundle.reading import read, ticking
from neuralqx_struct.bundle.writing import OF_BYTES, formatted, recorded, signed, write
from neuralqx_struct.manifest import DEFAULT_FILE, DEFAULT_LIMITS, check_manifest
from neuralqx_struct.manifest_text import reseal
from neuralqx_struct.payload import Payload, check_arrays, raise_findings
from neuralqx_struct.stores import Progress, about, store_of_file

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

__all__ = ["seal", "write_linked"]


def write_linked(
    source: str | Path,
    target: str | Path,
    document: Mapping[str, Any],
    *,
    changed: Mapping[str, Array] | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Path:
    """Write a bundle whose arrays are mostly those of another one, without writing their bytes again.

    In folders the array files get a second name (a hard link; a copy where the system has none), so the cost does not
    depend on their size. Arrays of the source that the document has no record for stay in the file and are recorded as
    unused, unless nothing in their file is used any more.

    Args:
        source: The bundle that has the bytes.
        target: The new bundle.
        document: Its manifest. Records of arrays taken over need only ``dtype`` and ``shape``.
        changed: New arrays, and those that replace one of the same name; they go into a file of their own.
        overwrite: As for :func:`write`.
        progress: Called with (bytes done, bytes in all) of the arrays in ``changed``.

    Raises:
        SerializationError: The document names arrays that neither the source nor ``changed`` has, or is not sound.
    """
    source, target, changed = Path(source), Path(target), changed or {}
    with naming(source), opened_bundle(source) as held:
        original = sound_document(manifest_bytes(held, DEFAULT_LIMITS), DEFAULT_LIMITS)["arrays"]
        if not all("crc32" in record for record in original.values()):
            return _write_rest(source, target, document, changed, overwrite=overwrite, progress=progress)
        records, files = _carried(document, original, changed)
        fresh = _free_name({record.get("file", DEFAULT_FILE) for record in original.values()})
        probe = {**records, **{name: document["arrays"][name] for name in changed if name in document["arrays"]}}
        judged = {**document, "arrays": probe}
        raise_findings(check_manifest(judged) or check_arrays(Payload(judged, ListedArrays(probe))), str(target))
        with new_bundle(target, overwrite=overwrite) as new:
            for file in files:
                new.take(held, file)
            if changed:
                tick = ticking(progress, {name: probe[name] for name in changed if name in probe})
                written = new.put(fresh, lambda place: store_of_file(fresh).write(place, changed, tick=tick))
                given = document["arrays"]
                records |= {name: recorded(given.get(name, {}), own, fresh) for name, own in written.items()}
            made = signed(document, records)
            raise_findings(check_arrays(Payload(made, ListedArrays(records))), str(target))
            new.finish(formatted(made))
    return target


def _write_rest(
    source: Path,
    target: Path,
    document: Mapping[str, Any],
    changed: Mapping[str, Array],
    *,
    overwrite: bool,
    progress: Progress | None,
) -> Path:
    """Write everything: neuraLQX's bundles have no checksums to carry over."""
    arrays = read(source).arrays
    names = {name: name for name in document["arrays"] if name in arrays or name in changed}
    wanted = HeldArrays(names, lambda name: changed[name] if name in changed else arrays[name])  # one at a time
    return write(target, Payload(dict(document), wanted), overwrite=overwrite, progress=progress)


def _carried(
    document: Mapping[str, Any], original: Mapping[str, Any], changed: Mapping[str, Array]
) -> tuple[dict[str, Any], list[str]]:
    """Records of the arrays taken over, those left unused included, and the files that hold the used ones."""
    records: dict[str, Any] = {}
    found = []
    for name, record in document["arrays"].items():
        if name in changed:
            continue
        if name not in original:
            found.append(about("NQX409", name, "expected an array of the source or a changed one, got neither"))
            continue
        place = {key: original[name][key] for key in OF_BYTES if key in original[name]}
        kept = {key: value for key, value in record.items() if key not in OF_BYTES}
        records[name] = {**kept, **place}
        if (kept.get("dtype"), kept.get("shape")) != (original[name]["dtype"], original[name]["shape"]):
            message = (
                f"expected {original[name]['dtype']}{original[name]['shape']} as in the source, got another record"
            )
            found.append(about("NQX412", name, message, "an array whose bytes change belongs into changed="))
    raise_findings(found)
    files = list(dict.fromkeys(r.get("file", DEFAULT_FILE) for r in records.values() if "unused" not in r))
    rest = {n: {**r, "unused": True} for n, r in original.items() if n not in records and n not in changed}
    held = {n: r for n, r in {**records, **rest}.items() if r.get("file", DEFAULT_FILE) in files}
    return held, files


def _free_name(taken: set[str]) -> str:
    if DEFAULT_FILE not in taken:
        return DEFAULT_FILE
    number = 1
    while f"arrays-{number}.npz" in taken:
        number += 1
    return f"arrays-{number}.npz"


def seal(path: str | Path) -> None:
    """Recompute the digest of a manifest that was edited by hand. Nothing else is changed, and nothing else is checked.

    Args:
        path: A folder, a zip, or a ``manifest.json``.

    Raises:
        SerializationError: There is no manifest, or it is not even JSON.
    """
    path = Path(path)
    with naming(path):
        path = around(path)
        with opened_bundle(path) as held:
            data = reseal(manifest_bytes(held, DEFAULT_LIMITS))
            if isinstance(held, Zip):
                with new_bundle(path, overwrite=True) as new:
                    for name in held.names():
                        if name != MANIFEST:
                            new.take(held, name)
                    new.finish(data)
                return
        replace_manifest(path, data)
