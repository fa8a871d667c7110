"""The disk: errors of what the system refuses, and flushes.

Example:
    >>> with refusals_named(Path("ckpt")):
    ...     raise OSError(28, "No space left on device")
    Traceback (most recent call last):
    neuralqx_struct.bundle.disk.BundleWriteError: ckpt: expected to write the bundle, got: No space left on device [NQX406]
      the old bundle is untouched; free space or choose a folder that can be written, then retry
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

from neuralqx_struct.errors import SerializationError, path_meant
from neuralqx_struct.stores.store import BundleReadError

_E = TypeVar("_E", bound=OSError)
_NO_SYNC: Final = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS)


class BundleExistsError(SerializationError, FileExistsError):
    """The target of a write exists."""

    default_code = "NQX431"


class BundleMissingError(SerializationError, FileNotFoundError):
    """There is nothing at the path of a bundle."""

    default_code = "NQX401"


class BundleReplacedError(BundleReadError):
    """Another program replaced or removed a bundle behind a URL before all of it had been fetched."""


class BundleWriteError(SerializationError, OSError):
    """The system refused a write, such as for a full disk or a read-only folder."""

    default_code = "NQX406"


def numbered(error: _E, number: int | None, path: object) -> _E:
    """The error with the attributes that callers expect of an OSError."""
    error.errno, error.filename = number, str(path)
    error.strerror = None if number is None else os.strerror(number)
    return error


def missing(path: object, got: str) -> BundleMissingError:
    """The error for a path without a bundle."""
    hint = path_meant(path)
    error = BundleMissingError(f"expected a bundle, got {got}", file=str(path), hint=hint)
    return numbered(error, errno.ENOENT, path)


def refused_reading(error: OSError, path: object) -> SerializationError:
    """An error of the system as one that names the bundle."""
    if isinstance(error, FileNotFoundError):
        return missing(path, "a link that leads to nothing")
    message = f"expected to read the bundle, got: {error.strerror or error}"
    if error.filename is not None and os.fspath(error.filename) != str(path):
        message += f"\nthe system refused {os.fsdecode(error.filename)}"
    hint = "check the owner and the mode of the file, or the disk"
    return numbered(BundleReadError(message, file=str(path), hint=hint), error.errno, path)


@contextmanager
def refusals_named(target: Path, kind: str = "bundle") -> Iterator[None]:
    """Raises errors of the system, which name a temporary file or none, as errors about the target.

    Raises:
        BundleWriteError: In place of any other OSError.
    """
    try:
        yield
    except OSError as error:
        if isinstance(error, SerializationError):
            raise
        message = f"expected to write the {kind}, got: {error.strerror or error}"
        if error.filename is not None and os.fspath(error.filename) != os.fspath(target):
            message += f"\nthe system refused {os.fsdecode(error.filename)}"
        hint = f"the old {kind} is untouched; free space or choose a folder that can be written, then retry"
        refused = BundleWriteError(message, file=str(target), hint=hint)
        raise numbered(refused, error.errno, target) from error


def sync_folder(path: Path) -> None:
    """Flushes the names in a folder to the disk, if the system can."""
    if os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise
    finally:
        os.close(descriptor)


def sync_place(target: Path) -> None:
    """Flushes the name of a new bundle to the disk.

    Raises:
        BundleWriteError: The system refused; the bundle is in place all the same.
    """
    try:
        sync_folder(target.parent)
    except OSError as error:
        message = f"expected to flush the name of the new bundle to the disk, got: {error.strerror or error}"
        hint = "the new bundle is in place, but a power cut may lose it: check the disk, then write it again"
        refused = BundleWriteError(message, file=str(target), hint=hint)
        raise numbered(refused, error.errno, target) from error
