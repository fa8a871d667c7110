"""The folder of an Orbax checkpoint: found again while its bundle changes its name, and opened by tensorstore.

Example:
    >>> ocdbt("/runs/1/arrays.orbax")
    {'driver': 'ocdbt', 'base': {'driver': 'file', 'path': '/runs/1/arrays.orbax/'}}
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from neuralqx_struct.errors import Diagnostic, IntegrityError, StructError, UntrustedError
from neuralqx_struct.stores.store import BundleReadError, about

_DESCRIPTORS: Final = "/proc/self/fd"
#: The errors that tensorstore raises for damaged files.
_FAULTS: Final = (ValueError, KeyError, OSError, RuntimeError, NotImplementedError, TypeError)


class OpenFolder(os.PathLike[str]):
    """A folder in an open bundle, found again by the descriptor of the bundle while the bundle changes its name.

    Args:
        bundle: The descriptor of the bundle, of which this object keeps a copy, and so its lock.
        place: The path of the folder in it.
        locked: No writer removes its files.

    Attributes:
        stable: Its files are found, and those of the bundle, whatever writers do.
    """

    def __init__(self, bundle: int, place: Path, *, locked: bool) -> None:
        self._place = place
        self._descriptor = os.dup(bundle)
        path = Path(_DESCRIPTORS, str(self._descriptor), place.name)
        by_descriptor = path.is_dir()
        self._path = path if by_descriptor else place
        self.stable = by_descriptor and locked

    def __fspath__(self) -> str:
        return str(self._path)

    def __str__(self) -> str:
        return str(self._place)

    def require_same(self, *, failed: bool) -> None:
        """Checks that the files are still those of the bundle that was opened.

        Args:
            failed: Reading failed; else files that were found by descriptor, under a lock, are the same.

        Raises:
            BundleReadError: A writer has replaced the bundle, or it was removed.
        """
        if self.stable and not failed:
            return
        with suppress(FileNotFoundError):
            if os.path.samestat(self._place.parent.stat(), os.fstat(self._descriptor)):
                return
        message = "expected the bundle to stay while it is read, got it replaced or removed"
        raise BundleReadError(message, file=str(self._place.parent), hint="read it again")

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):
            os.close(self._descriptor)


def ocdbt(root: os.PathLike[str]) -> dict[str, Any]:
    """The description of the key-value store of a checkpoint for tensorstore."""
    return {"driver": "ocdbt", "base": {"driver": "file", "path": f"{driver_path(root)}/"}}


def driver_path(root: os.PathLike[str]) -> str:
    """A path as tensorstore takes it: absolute, and without ``..``."""
    path = Path(root).absolute()
    return os.path.realpath(path) if ".." in path.parts else str(path)


@contextmanager
def faults_named(root: os.PathLike[str], name: str | None = None) -> Iterator[None]:
    """Raises errors of tensorstore as errors about an array, or about the checkpoint."""
    fault: Exception | None = None
    try:
        yield
    except StructError:
        raise
    except _FAULTS as error:
        fault = error
    if isinstance(root, OpenFolder):
        root.require_same(failed=fault is not None)
    if fault is not None:
        subject = "a checkpoint" if name is None else "an array"
        reason = str(fault).partition("\n")[0].replace(os.fspath(root), str(root))
        message = f"expected {subject} that tensorstore reads, got: {reason[:300]}"
        problem = Diagnostic("NQX408", "error", message, hint="restore it from a copy")
        if name is not None:
            problem = about(problem.code, name, message, problem.hint)
        raise IntegrityError(problem) from fault


def require_plain_files(root: os.PathLike[str]) -> int:
    """Checks that a checkpoint holds only files and folders.

    Returns:
        The size of all files.

    Raises:
        UntrustedError: It holds a link or a device.
    """
    total = 0
    for folder, folders, files in os.walk(root):
        for entry in (*folders, *files):
            found = os.lstat(os.path.join(folder, entry))  # noqa: PTH118 - one call a file
            if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
                hint = "bundles and checkpoints hold plain files only, no links"
                message = f"expected plain files, got {entry!r} that is none"
                raise UntrustedError(message, code="NQX504", hint=hint)
            total += found.st_size
    return total
