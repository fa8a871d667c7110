"""Foreign files: checkpoints that other programs wrote, read and written as named arrays. The table of their kinds.

A kind is found by the names and the first bytes of a file or folder. Opening reads what describes the arrays; each array
is read on access. Nothing is unpickled, and no file outside the path is opened. A new kind takes one module with a
:class:`~neuralqx_struct.formats.table.Format` record, and one row here.

Example:
    >>> list(FORMATS), split("a.b")
    (['safetensors'], ['a', 'b'])
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from neuralqx_struct.errors import Diagnostic, SerializationError, StructError
from neuralqx_struct.formats.names import joined, require_separator, split
from neuralqx_struct.formats.safetensors import SAFETENSORS
from neuralqx_struct.formats.table import (
    FORMATS,
    ForeignArray,
    ForeignFile,
    Format,
    Reading,
    candidate,
    register,
)
from neuralqx_struct.manifest import DEFAULT_LIMITS, Limits
from neuralqx_struct.stores.store import about_each

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

__all__ = [
    "FORMATS",
    "ForeignArray",
    "ForeignFile",
    "Format",
    "joined",
    "opened",
    "recognised",
    "split",
    "verify",
]

register([SAFETENSORS])


def recognised(path: str | Path) -> Format | None:
    """The kind of a foreign file or folder, found by its names and first bytes alone; None if it is of no kind.

    Raises:
        BundleMissingError: There is nothing at the path.
        BundleReadError: The system refuses to read it.
    """
    found = candidate(Path(path))
    return next((each for each in FORMATS.values() if each.recognises(found)), None)


def opened(
    path: str | Path, *, separator: str = ".", limits: Limits | None = None, like: Any = None
) -> ForeignFile:
    """Opens a foreign file; reads only what describes its arrays.

    Args:
        path: The file or folder.
        separator: The character between the keys of nested files; see :func:`split`.
        limits: Sizes above which it is refused.
        like: An object of the structure of the file, for formats that have none of their own.

    Raises:
        SerializationError: It is of no kind that is known.
        IntegrityError: It is damaged: all problems.
        UntrustedError: Reading it would run code of the file, or take far more memory than the file.
    """
    require_separator(separator)
    path = Path(path)
    kind = recognised(path)
    if kind is None:
        kinds = ", ".join(each.name for each in FORMATS.values())
        message = f"expected a file or folder of a known kind, got another\nthe kinds are {kinds}"
        hint = "convert it with the program that wrote it"
        raise SerializationError(message, code="NQX620", file=str(path), hint=hint)
    try:
        return kind.opened(
            path, Reading(separator=separator, limits=limits or DEFAULT_LIMITS, like=like)
        )
    except StructError as error:
        raise error.in_file(str(path)) from error.__cause__


def verify(path: str | Path, *, limits: Limits | None = None) -> list[Diagnostic]:
    """Every damage in a foreign file that can be found: sizes, places, checksums where the format has them.

    Args:
        path: The file or folder.
        limits: Sizes above which it is refused.
    """
    found: list[Diagnostic] = []
    try:
        with opened(path, limits=limits) as file:
            for name, array in file.arrays.items():
                found += _damage(file, name, array)
    except StructError as error:
        found += error.diagnostics
    return [problem.in_file(str(path)) for problem in found]


def _damage(file: ForeignFile, name: str, array: ForeignArray) -> list[Diagnostic]:
    if file.check is not None:
        problem = file.check(name)
        return [] if problem is None else [problem]
    try:
        array.read()
    except StructError as error:
        return [each if each.path else about_each(name, error)[0] for each in error.diagnostics]
    return []
