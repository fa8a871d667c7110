"""The places where bundles lie: a folder, a zip, and both behind URLs. The table of their records.

Everything that opens or makes a bundle asks :func:`form_of` for the record of its place.

Example:
    >>> form_of(Path("ckpt")).title, form_of(Path("ckpt.zip")).title, form_of(place_of("memory://ckpt")).title
    ('a folder', 'a zip', 'a folder behind a URL')
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from neuralqx_struct.bundle.members import NewBundle, foreign_reason
from neuralqx_struct.bundle.remote import Remote, RemoteZip
from neuralqx_struct.bundle.storage import Opened, open_bundle
from neuralqx_struct.bundle.uploads import new_remote, new_remote_zip
from neuralqx_struct.formats.store import Store
from neuralqx_struct.places.atomic import current, staged
from neuralqx_struct.places.disk import BundleExistsError
from neuralqx_struct.places.urls import Place, RemotePath, place_of

__all__ = ["FORMS", "Form", "form_of", "new_bundle", "place_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """A kind of place where a bundle lies.

    Attributes:
        title: Its name in messages.
        place: The class of its paths.
        zipped: True if a bundle is one file.
        folders: True if it holds array stores that are folders.
        find: Returns the place of the bundle that belongs at a path; None if there is none.
        open: Opens a bundle. Arguments: the place, the most bytes of a manifest, ``locked=`` to keep writers from removing its files.
        new: A context that yields a :class:`NewBundle`. Arguments: the place, ``overwrite=``.
    """

    title: str
    place: type[Any]
    zipped: bool
    folders: bool
    find: Callable[[Any], Place | None]
    open: Callable[..., Opened]
    new: Callable[..., AbstractContextManager[NewBundle]]

    def require(self, store: Store) -> None:
        """Checks that a bundle here can hold the files of a store.

        Raises:
            SerializationError: The store writes folders.
        """
        store.require_form(folder=self.folders, form=self.title)


@contextmanager
def _new_on_disk(path: Path, *, overwrite: bool, zipped: bool) -> Iterator[NewBundle]:
    """Yields a new folder or zip, which replaces the path when all is written."""
    with (
        staged(path, folder=not zipped, overwrite=overwrite, foreign=foreign_reason) as stage,
        NewBundle(stage, folder=not zipped) as new,
    ):
        yield new


def _open_on_disk(path: Path, _: int, *, locked: bool = False) -> Opened:
    return open_bundle(path, locked=locked)


def _open_remote(place: RemotePath, most: int, *, locked: bool = False) -> Opened:  # noqa: ARG001 - servers have no locks
    return Remote(place, most)


def _open_remote_zip(place: RemotePath, _: int, *, locked: bool = False) -> Opened:  # noqa: ARG001 - it is downloaded
    return RemoteZip(place)


def _same(place: RemotePath) -> Place | None:
    return place


FORMS: Final = (
    Form(
        title="a folder",
        place=Path,
        zipped=False,
        folders=True,
        find=current,
        open=_open_on_disk,
        new=partial(_new_on_disk, zipped=False),
    ),
    Form(
        title="a zip",
        place=Path,
        zipped=True,
        folders=False,
        find=current,
        open=_open_on_disk,
        new=partial(_new_on_disk, zipped=True),
    ),
    Form(
        title="a folder behind a URL",
        place=RemotePath,
        zipped=False,
        folders=False,
        find=_same,
        open=_open_remote,
        new=new_remote,
    ),
    Form(
        title="a zip behind a URL",
        place=RemotePath,
        zipped=True,
        folders=False,
        find=_same,
        open=_open_remote_zip,
        new=new_remote_zip,
    ),
)


def form_of(path: Place) -> Form:
    """The form of a bundle at a path."""
    zipped = path.suffix.lower() == ".zip"
    return next(form for form in FORMS if isinstance(path, form.place) and form.zipped == zipped)


def new_bundle(path: Place, *, overwrite: bool) -> AbstractContextManager[NewBundle]:
    """A context that yields a new bundle in the form that the path names; it replaces the path when all is written.

    Args:
        path: The target; a link to one is followed.
        overwrite: Replace an existing bundle; nothing but a bundle is ever replaced.
    """
    target = path
    if isinstance(path, Path) and path.name in ("", ".."):
        message = f"expected the name of a bundle, got {str(path)!r}"
        hint = f"name the folder from outside, such as {Path(os.path.realpath(path))}"
        raise BundleExistsError(message, file=str(path), hint=hint)
    if isinstance(path, Path) and os.path.islink(path):  # noqa: PTH114 - Path.is_symlink raises for long names
        target = Path(os.path.realpath(path))
    return form_of(target).new(target, overwrite=overwrite)
