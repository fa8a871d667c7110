"""One file behind a URL, replaced so that a reader finds the old one or the new one.

It is made on this disk and uploaded beside its target under a name of its own; a copy on the server, which is one step there,
gives it the name of the target.

Example:
    >>> from neuralqx_struct.places.urls import located
    >>> target = located("memory://docs/uploads/notes")
    >>> with uploaded(target, folder=False, overwrite=True, foreign=lambda path: None) as stage:
    ...     _ = stage.write_text("new")
    >>> target.content(10)
    b'new'
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from neuralqx_struct.errors import OVERWRITE, SerializationError, StructError
from neuralqx_struct.places.disk import BundleExistsError, BundleMissingError, scratch_folder
from neuralqx_struct.places.urls import RemotePath


@contextmanager
def uploaded(
    target: RemotePath,
    *,
    folder: bool,
    overwrite: bool,
    foreign: Callable[[RemotePath], str | None],
) -> Iterator[Path]:
    """Yields a new empty file on this disk; on success it becomes the target.

    Args:
        target: The file behind a URL.
        folder: A folder is wanted, which no server can replace in one step.
        overwrite: Replace the target if it exists.
        foreign: Returns the reason why an existing file must not be replaced all the same; None if it may.

    Raises:
        SerializationError: A folder is wanted.
        BundleExistsError: The target exists, and is not to be overwritten.
        BundleWriteError: The server refused.
    """
    if folder:
        message = "expected the path of a folder of shards on a disk, got a URL"
        hint = "write it on a disk, and copy it with the tool of the server, the index last"
        raise SerializationError(message, code="NQX614", file=str(target), hint=hint)
    _refuse_existing(target, overwrite=overwrite, foreign=foreign)
    with scratch_folder() as place:
        stage = Path(place, "file")
        stage.touch()
        yield stage
        fresh = target.parent / f".{target.name}.tmp-{os.urandom(6).hex()}"
        try:
            fresh.put(stage)
            _refuse_existing(target.parent / target.name, overwrite=overwrite, foreign=foreign)
            target.copy(fresh)
        finally:
            with suppress(StructError):
                fresh.remove()


def _refuse_existing(
    target: RemotePath, *, overwrite: bool, foreign: Callable[[RemotePath], str | None]
) -> None:
    """Raises if the target may not be written."""
    try:
        is_folder = target.is_dir()
    except BundleMissingError:
        return
    reason = "a folder" if is_folder else foreign(target)
    if overwrite and reason is None:
        return
    wanted = "a file to overwrite" if overwrite else "a path where nothing is"
    message = f"expected {wanted}, got {reason or 'an existing one'}"
    hint = "choose another path, or remove it yourself" if reason else OVERWRITE
    raise BundleExistsError(message, file=str(target), hint=hint)
