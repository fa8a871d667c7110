"""Foreign files: checkpoints that other programs wrote, read and written as named arrays. The table of their kinds.

A kind is found by the names and the first bytes of a file or folder. Opening reads what describes the arrays; each array
is read on access. Nothing is unpickled, and no file outside the path is opened. A new kind takes one module with a
:class:`~neuralqx_struct.formats.table.Format` record, and one row here.

Example:
    >>> import tempfile
    >>> import numpy as np
    >>> path = write(f"{tempfile.mkdtemp()}/m.safetensors", "safetensors", {"a.w": np.ones(2)})
    >>> recognised(path).title, verify(path)
    ('a safetensors file', [])
    >>> with opened(path) as file:
    ...     [(name, array.dtype, array.shape) for name, array in file.arrays.items()]
    [('a.w', 'float64', (2,))]
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final, cast

from neuralqx_struct.errors import (
    Diagnostic,
    SerializationError,
    Severity,
    StructError,
    did_you_mean,
)
from neuralqx_struct.formats.store import STORES, Progress, Store, about_each
from neuralqx_struct.formats.table import (
    FORMATS,
    Candidate,
    ForeignFile,
    Format,
    Reading,
    Writing,
    candidate,
    described,
    joined,
    native,
    remote_candidate,
    require_separator,
    split,
)
from neuralqx_struct.manifest import DEFAULT_LIMITS, MANIFEST, Limits
from neuralqx_struct.manifest.payload import ForeignArray
from neuralqx_struct.places.atomic import staged
from neuralqx_struct.places.names import entries
from neuralqx_struct.places.uploads import uploaded
from neuralqx_struct.places.urls import Options, Place, RemotePath, is_url, place_of
from neuralqx_struct.printing import brief_scalar, is_unicode, listed

__all__ = [
    "FORMATS",
    "ForeignArray",
    "ForeignFile",
    "Format",
    "is_foreign",
    "is_url",
    "joined",
    "opened",
    "recognised",
    "split",
    "verify",
    "write",
]

# Each kind: its name, the module and the name of its record, and whether it has a store. A module is imported when its record is
# first asked for, as all of them are by a file of no kind. Other packages add theirs by `register`.
_ROWS: Final = (
    ("nqxpack", "nqxpack", "NQXPACK", False),  # whose files can look like those of npz
    ("npz", "npz", "NPZ", True),
    ("safetensors", "safetensors", "SAFETENSORS", True),
    ("equinox", "equinox", "EQUINOX", False),
    ("npy", "npz", "NPY", False),
    ("msgpack", "msgpack", "MSGPACK", False),
    ("orbax", "orbax", "ORBAX", True),
    ("hdf5", "hdf5", "HDF5", False),
    ("torch", "torch", "TORCH", False),
)


def _format(module: str, name: str) -> Format:
    found: Format = getattr(import_module(f"{__name__}.{module}"), name)
    return found


def _store(name: str) -> Store:
    store = FORMATS[name].store
    assert store is not None
    return store


for _name, _module, _record, _has_store in _ROWS:
    FORMATS.later(_name, partial(_format, _module, _record))
    if _has_store:
        STORES.later(_name, partial(_store, _name))


def recognised(path: str | Place) -> Format | None:
    """The kind of a foreign file or folder, found by its names and first bytes alone; None for bundles and all else.

    Raises:
        BundleMissingError: There is nothing at the path.
        BundleReadError: The system refuses to read it.
    """
    return _kind_of(_candidate(path))


def _candidate(path: str | Place, options: Options | None = None) -> Candidate:
    """The file or folder at a path or behind a URL, with the facts by which its kind is found."""
    place = place_of(path, options)
    return candidate(place) if isinstance(place, Path) else remote_candidate(place)


def _kind_of(found: Candidate) -> Format | None:
    if found.names is not None and MANIFEST in found.names:
        return None
    return next((each for each in FORMATS.values() if each.recognises(found)), None)


def is_foreign(path: str | Place) -> bool:
    """True for a foreign file, and a file of an unknown kind; False for bundles and what else only they can be.

    That is a folder, a zip, a ``manifest.json``, or nothing. Behind a URL everything without a manifest is foreign.
    """
    place = place_of(path)
    if isinstance(place, RemotePath):
        return _is_foreign_remote(place)
    try:
        found = candidate(place)
    except SerializationError:  # a bundle that cannot be read, or nothing
        return False
    if _kind_of(found) is not None:
        return True
    is_zip = found.path.suffix.lower() == ".zip" or found.start[:2] == b"PK"
    return found.names is None and not is_zip and found.path.suffix != ".json"


def _is_foreign_remote(place: RemotePath) -> bool:
    if place.suffix.lower() == ".zip" or place.name == MANIFEST:
        return False
    return has_suffix(place.name) or not (place / MANIFEST).is_file()


def has_suffix(name: str) -> bool:
    """True for a name with the suffix of a kind of foreign files."""
    return any(each.suffix and name.endswith(each.suffix) for each in FORMATS.values())


def opened(
    path: str | Place,
    *,
    separator: str = ".",
    limits: Limits | None = None,
    like: Any = None,
    storage_options: Options | None = None,
) -> ForeignFile:
    """Opens a foreign file; reads only what describes its arrays.

    Args:
        path: The file or folder, or a URL such as ``hf://``, ``s3://`` or ``https://``, of which the header and the
            arrays that are read are fetched.
        separator: The character between the keys of nested files; see :func:`split`.
        limits: Sizes above which it is refused.
        like: An object of the structure of the file, for formats that have none of their own.
        storage_options: Options of fsspec for the URL, such as keys.

    Raises:
        SerializationError: It is of no kind that is known, or cannot be read.
        IntegrityError: It is damaged: all problems.
        UntrustedError: Reading it would run code of the file, or take far more memory than the file.
    """
    require_separator(separator)
    found = _candidate(path, storage_options)
    place, kind = found.path, _kind_of(found)
    if kind is None:
        raise _unknown(found)
    reading = Reading(separator=separator, limits=limits or DEFAULT_LIMITS, like=like)
    try:
        file = kind.opened(place, reading)
        arrays = {name: native(array) for name, array in file.arrays.items()}
        return replace(file, arrays=arrays, place=place if isinstance(place, RemotePath) else None)
    except StructError as error:
        raise error.in_file(str(place)) from error.__cause__


def write(
    path: str | Place,
    format: str,  # noqa: A002
    arrays: Mapping[str, Any],
    *,
    metadata: Mapping[str, str] | None = None,
    overwrite: bool = False,
    separator: str = ".",
    max_shard_size: int | None = None,
    form: Mapping[str, Any] | None = None,
    storage_options: Options | None = None,
) -> Path:
    """Writes a foreign file, completely or not at all; one array after the other is read.

    Args:
        path: The new file, or its URL; the folder of all shards with ``max_shard_size`` or the form of such a folder.
        format: The name of the kind.
        arrays: Arrays by name: those of an open file, numpy arrays, or others that numpy takes.
        metadata: Free text of the file, if files of this kind have any.
        overwrite: Replace a foreign file.
        separator: The character between the keys of nested files.
        max_shard_size: Bytes of arrays in one shard.
        form: The result of :attr:`ForeignFile.form`, to make the bytes of that file again.
        storage_options: Options of fsspec for the URL, such as keys.

    Returns:
        The path, or the place of the URL.

    Raises:
        SerializationError: The kind cannot be written, or cannot hold these arrays or metadata.
        BundleExistsError: The path exists and ``overwrite`` is not given, or it is no foreign file.
        BundleWriteError: The system refused.
    """
    require_separator(separator)
    kind = FORMATS.get(format)
    if kind is None or kind.write is None:
        kinds = ", ".join(each.name for each in FORMATS.values() if each.write is not None)
        message = f"expected a kind of file to write among {kinds}, got {format!r}"
        raise SerializationError(message, code="NQX614", hint=did_you_mean(str(format), FORMATS))
    place = place_of(path, storage_options)
    single = place.name.endswith(kind.suffix)
    writing = Writing(
        separator=separator,
        metadata=metadata or {},
        form=form or {},
        max_shard_size=max_shard_size,
    )
    if single and max_shard_size is None and kind.folder(writing):
        writing = replace(writing, form={})  # one file of what were shards
    given = _foreign_arrays(arrays)
    found = [*_unfit(kind, writing, single=single)]
    if found:
        raise SerializationError(problem.in_file(str(place)) for problem in found)
    options: dict[str, Any] = {
        "folder": kind.folder(writing),
        "overwrite": overwrite,
        "foreign": _kept,
    }
    if isinstance(place, RemotePath):
        making = uploaded(place, **options)
    else:
        target = Path(os.path.realpath(place)) if os.path.islink(place) else place  # noqa: PTH114 - Path.is_symlink raises for long names
        making = staged(target, **options, kind="file")
    with making as stage:
        kind.write(stage, given, writing)
    return cast("Path", place)


def _unfit(kind: Format, writing: Writing, *, single: bool) -> Iterator[Diagnostic]:
    """Yields a finding for each option that files of a kind cannot have."""
    metadata, most = writing.metadata, writing.max_shard_size
    if metadata and not kind.metadata:
        message = f"expected no metadata for {kind.title}, got {listed(metadata)}"
        yield Diagnostic("NQX614", "error", message)
    if any(type(text) is not str for pair in metadata.items() for text in pair):
        message = "expected text by name as metadata, got other values"
        yield Diagnostic("NQX612", "error", message)
    if most is None:
        return
    if not kind.folder(writing):
        message = f"expected no max_shard_size for {kind.title}, got {most!r}"
        yield Diagnostic("NQX614", "error", message, hint="leave it out")
    elif type(most) is not int or most < 1:
        message = f"expected a number of bytes as max_shard_size, got {most!r}"
        yield Diagnostic("NQX614", "error", message)
    elif single:
        message = (
            f"expected the path of a new folder for shards, got one that ends in {kind.suffix}"
        )
        yield Diagnostic("NQX614", "error", message, hint="leave the suffix out")


def _foreign_arrays(arrays: Mapping[str, Any]) -> dict[str, ForeignArray]:
    """The arrays to write; nothing of lazy ones is read.

    Raises:
        SerializationError: Names or dtypes cannot be written: all problems.
    """
    found: list[Diagnostic] = []
    made: dict[str, ForeignArray] = {}
    for name, array in arrays.items():
        if type(name) is not str or not is_unicode(name):
            message = f"expected names that are text, got {brief_scalar(name)}"
            found.append(Diagnostic("NQX612", "error", message))
            continue
        try:
            made[name] = array if isinstance(array, ForeignArray) else described(array)
        except SerializationError as error:
            found += about_each(name, error)
    if found:
        raise SerializationError(found)
    return made


def _kept(path: Place) -> str | None:
    """The reason why a path is not overwritten: it is no foreign file, nor a folder of nothing else."""
    if not path.is_dir():
        return "another file" if recognised(path) is None else None
    for place in entries(path) if isinstance(path, Path) else path.iterdir():
        if not place.is_file() or recognised(place) is None:
            return f"a folder with {place.name} in it"
    return None


def _unknown(found: Candidate) -> SerializationError:
    """The error for a file or folder of no kind."""
    got, hint = "another file", "convert it with the program that wrote it"
    if found.names is not None:
        got = f"a folder with {listed(sorted(found.names), 8) or 'nothing'} in it"
    if found.names is not None and MANIFEST in found.names:
        got, hint = "a bundle", "load it with neuralqx_struct.load"
    kinds = f"the kinds are {', '.join(FORMATS)}, beside bundles"
    message = f"expected a file or folder of a known kind, got {got}\n{kinds}"
    return SerializationError(message, code="NQX620", file=str(found.path), hint=hint)


def verify(
    path: str | Place,
    *,
    limits: Limits | None = None,
    progress: Progress | None = None,
    storage_options: Options | None = None,
) -> list[Diagnostic]:
    """Every damage in a foreign file that can be found: sizes, places, checksums where the format has them.

    Args:
        path: The file or folder.
        limits: Sizes above which it is refused.
        progress: Called with bytes verified and bytes in all.
        storage_options: Options of fsspec for a URL, such as keys.
    """
    found: list[Diagnostic] = []
    done = 0
    try:
        with opened(path, limits=limits, storage_options=storage_options) as file:
            total = sum(array.nbytes for array in file.arrays.values())
            for name, array in file.arrays.items():
                found += _damage(file, name, array)
                done += array.nbytes
                if progress is not None:
                    progress(done, total)
    except StructError as error:
        found += error.diagnostics
    return [problem.in_file(str(path)) for problem in found]


def _damage(file: ForeignFile, name: str, array: ForeignArray) -> list[Diagnostic]:
    """The damage of one array; a warning about one that cannot be read, damaged or not."""
    problem = None if file.check is None else file.check(name)
    if problem is not None:
        return [problem]
    if file.check is not None and array.readable:
        return []
    try:
        array.read()
    except StructError as error:
        severity: Severity = "error" if array.readable else "warning"
        return [replace(each, severity=severity) for each in error.diagnostics]
    return []
