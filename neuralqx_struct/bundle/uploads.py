"""New bundles behind URLs: the manifest is the commit; who stops leaves the old bundle or the new one.

Example:
    >>> from neuralqx_struct.places.urls import located
    >>> place = located("memory://docs/uploads/ckpt")
    >>> with new_remote(place, overwrite=True) as new:
    ...     new.finish(b"{}")
    >>> sorted(place.names())
    ['manifest.json']
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar, cast

from neuralqx_struct.bundle.members import OURS, NewBundle, foreign_names
from neuralqx_struct.bundle.remote import Remote
from neuralqx_struct.bundle.storage import Opened
from neuralqx_struct.errors import OVERWRITE, StructError
from neuralqx_struct.formats.store import file_of
from neuralqx_struct.manifest import MANIFEST, Limits
from neuralqx_struct.manifest.text import parse_manifest
from neuralqx_struct.places.disk import (
    BundleExistsError,
    BundleMissingError,
    BundleWriteError,
    Target,
    link_tree,
    scratch_folder,
)
from neuralqx_struct.places.names import shown_names
from neuralqx_struct.places.requests import download_tree
from neuralqx_struct.places.uploads import uploaded
from neuralqx_struct.places.urls import Place, RemotePath

_T = TypeVar("_T")
#: Bytes of a manifest that is replaced or removed, which may be above the limits of readers.
_MOST: Final = 16 << 30


@contextmanager
def new_remote(place: RemotePath, *, overwrite: bool) -> Iterator[NewBundle]:
    """Yields a new bundle behind a URL; :meth:`NewRemote.finish` lets it replace an old one."""
    _refuse(place, _present(place), overwrite=overwrite)
    with scratch_folder() as stage:
        new = NewRemote(place, Path(stage), overwrite=overwrite)
        try:
            yield new
        finally:
            new.withdraw()


@contextmanager
def new_remote_zip(place: RemotePath, *, overwrite: bool) -> Iterator[NewBundle]:
    """Yields a new zip behind a URL, which is uploaded when it is complete."""

    def foreign(target: RemotePath) -> str | None:
        return None if target.opening(2) == b"PK" else "another file"

    with (
        uploaded(place, folder=False, overwrite=overwrite, foreign=foreign) as stage,
        NewBundle(stage, folder=False) as new,
    ):
        yield new


def copy_tree(source: Place, target: Place, without: Collection[str] = ()) -> None:
    """Copies the files of a folder into another one, but for those at or below some names in it.

    On a disk they become hard links. A file that is behind the URL of the target stays, so that a copy that was
    stopped goes on; files of inner folders come first, and so those by which Orbax knows a step last.
    """
    if isinstance(target, Path):
        if isinstance(source, Path):
            link_tree(source, target, without)
        else:
            download_tree(source, target, without)
        return
    with scratch_folder() as folder:
        if isinstance(source, RemotePath) and source.files is not target.files:
            download_tree(source, Path(folder), without)
            source = Path(folder)
        below = _names_below(source) if isinstance(source, Path) else source.files_below()
        wanted = {name for name in below if name.partition("/")[0] not in without}
        missing = wanted.difference(target.files_below())
        for name in sorted(missing, key=lambda name: (name.count("/"), name), reverse=True):
            file = source / name
            if isinstance(file, Path):
                (target / name).put(file)
            else:
                (target / name).copy(file)


def _names_below(folder: Path) -> Iterator[str]:
    """Yields the plain files in a folder and below it, by relative path."""
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            yield path.relative_to(folder).as_posix()


def _present(place: RemotePath) -> Mapping[str, Mapping[str, Any]]:
    try:
        return place.listing()
    except BundleMissingError:
        return {}


def _refuse(
    place: RemotePath, present: Mapping[str, Mapping[str, Any]], *, overwrite: bool
) -> None:
    """Raises if a folder may not be written."""
    shown = shown_names(present)
    leftovers = all(OURS.fullmatch(name) for name in shown) and MANIFEST not in shown
    if leftovers:  # nothing, or array files of a writer that was stopped
        return
    reason = foreign_names(present, lambda: (place / MANIFEST).opening(_MOST))
    if overwrite and reason is None:
        return
    wanted = "a bundle to overwrite" if overwrite else "a path where nothing is"
    message = f"expected {wanted}, got {reason or 'an existing one'}"
    hint = "choose another path, or remove it yourself" if reason else OVERWRITE
    raise BundleExistsError(message, file=str(place), hint=hint)


class NewRemote(NewBundle):
    """The files of a new bundle behind a URL: each is written on the disk first, and then uploaded.

    Args:
        place: The bundle.
        stage: A folder on the disk.
        overwrite: Replace an existing bundle.
    """

    def __init__(self, place: RemotePath, stage: Path, *, overwrite: bool) -> None:
        super().__init__(stage, folder=True)
        self._place, self._overwrite = place, overwrite
        self._begun: list[str] = []

    def named(self, file: str) -> str:
        """A name for an array file that no file has: readers of the old manifest go on."""
        return f"arrays-{os.urandom(6).hex()}.{file.rpartition('.')[2]}"

    def take(self, held: Opened, file: str) -> str:
        """Takes over a file of another bundle; the server copies it if it has it."""
        if not isinstance(held, Remote) or held.path.files is not self._place.files:
            return super().take(held, file)
        named = self.named(file)
        self._begun.append(named)
        held.reading(file, lambda: (self._place / named).copy(held.path / file))
        return named

    def put(self, file: str, fill: Callable[[Target], _T]) -> _T:
        """Uploads a file that ``fill`` writes, if there is an array in it; returns its result."""
        stage = self._stage / file
        with stage.open("x+b", buffering=0) as out:
            result = fill(cast("BinaryIO", out))
        if result == {}:
            return result
        self._begun.append(file)
        (self._place / file).put(stage)
        stage.unlink()
        return result

    def finish(self, manifest: bytes) -> None:
        """Replaces the manifest, and removes the array files of the old one."""
        target = self._place / MANIFEST
        old = b""
        with suppress(BundleMissingError):
            old = target.opening(_MOST)
        if old and not self._overwrite:
            _refuse(self._place, {MANIFEST: {}}, overwrite=False)
        begun, self._begun = self._begun, []
        try:
            target.pipe(manifest, new=not self._overwrite)
        except BundleExistsError:
            # A client asks again when an answer is lost; the manifest that it finds then is its own.
            there = target.opening(len(manifest) + 1)
            if there != manifest:
                self._begun = begun
                raise
        except BundleWriteError as error:
            self._require_written(manifest, error)
        for name in _array_files(old) - set(begun):
            self._remove(name)

    def _require_written(self, manifest: bytes, error: BundleWriteError) -> None:
        """Raises the error of a commit, unless the server has done it all the same.

        The array files stay: the server may do it yet.
        """
        with suppress(StructError):
            if (self._place / MANIFEST).opening(len(manifest) + 1) == manifest:
                return
        hint = "the old bundle or the new one is there, whole: write it again"
        message = error.diagnostics[0].message
        raise BundleWriteError(message, file=str(self._place), hint=hint) from None

    def withdraw(self) -> None:
        """Removes the files of a bundle that was given up."""
        for name in self._begun:
            self._remove(name)

    def _remove(self, name: str) -> None:
        try:
            (self._place / name).remove()
        except BundleMissingError:
            return
        except StructError as error:
            import logging

            log, found = logging.getLogger("neuralqx_struct"), error.diagnostics[0].message
            log.warning("%s: expected to remove it, got: %s", self._place / name, found)


def remove_remote(place: RemotePath) -> None:
    """Removes a bundle: first the manifest, then the array files that it names.

    Raises:
        BundleMissingError: There is none.
        BundleWriteError: The server refused.
    """
    target = place / MANIFEST
    files = _array_files(target.opening(_MOST))
    target.remove()
    for name in files:
        (place / name).remove()


def _array_files(manifest: bytes) -> set[str]:
    """The array files that a manifest names, none outside of its folder."""
    try:
        records = (
            parse_manifest(manifest, limits=Limits(manifest_bytes=_MOST))["arrays"]
            if manifest
            else {}
        )
        names = {file_of(record) for record in records.values()}
    except (StructError, AttributeError, KeyError, TypeError):  # damaged: its files are left alone
        return set()
    return {name for name in names if name != MANIFEST and OURS.fullmatch(name)}
