"""Bundles: a folder, or a zip of the same members, on a disk or behind a URL, that holds ``manifest.json`` and the array files.

Reading checks everything before it is used; writing is atomic. ``forms.py`` has the places where bundles lie,
``storage.py`` opens folders and zips, ``remote.py`` those behind URLs, ``reading.py`` and ``writing.py`` read and
write bundles, ``conversion.py`` makes new ones of old ones, ``atomic.py`` replaces targets. Manifests are read
without numpy.

Example:
    >>> import tempfile
    >>> from neuralqx_struct.manifest.payload import Payload
    >>> path = write(f"{tempfile.mkdtemp()}/ckpt", Payload({"version": 1, "manifest": 5, "arrays": {}}, {}))
    >>> read(path).document["manifest"], verify(path)
    (5, [])
"""

from typing import Any, NamedTuple

from neuralqx_struct.bundle.conversion import require_apart, seal, write_linked
from neuralqx_struct.bundle.reading import OpenBundle, around, kept, opened, read_again
from neuralqx_struct.bundle.writing import write
from neuralqx_struct.errors import Diagnostic, StructError
from neuralqx_struct.formats.store import Progress
from neuralqx_struct.manifest import Limits, collector_paused
from neuralqx_struct.manifest.payload import Payload
from neuralqx_struct.places.disk import (
    BundleBusyError,
    BundleExistsError,
    BundleMissingError,
    BundleReplacedError,
    BundleWriteError,
)
from neuralqx_struct.places.urls import Place

__all__ = [
    "BundleBusyError",
    "BundleExistsError",
    "BundleMissingError",
    "BundleReplacedError",
    "BundleWriteError",
    "OpenBundle",
    "Survey",
    "around",
    "kept",
    "opened",
    "read",
    "read_again",
    "read_manifest",
    "require_apart",
    "seal",
    "survey",
    "verify",
    "write",
    "write_linked",
]


def read_manifest(path: str | Place, *, limits: Limits | None = None) -> dict[str, Any]:
    """The checked manifest of a bundle; needs neither numpy nor the array files.

    Args:
        path: A folder, a zip, or a ``manifest.json``.
        limits: Sizes above which it is refused.

    Raises:
        SerializationError: There is no manifest, or it has problems: all of them.
        IntegrityError: Its bytes were changed.
    """
    with opened(path, limits, alone=True) as found:
        return found.sound_document()


class Survey(NamedTuple):
    """The result of :func:`survey`.

    Attributes:
        document: The manifest, also if only its digest is wrong; None if it is no manifest.
        findings: The problems.
        data: The bytes of the manifest, if there are any.
    """

    document: dict[str, Any] | None
    findings: list[Diagnostic]
    data: bytes


def survey(path: str | Place, *, limits: Limits | None = None) -> Survey:
    """The manifest, and every problem of it and of the sizes of the array files; reads no array.

    Args:
        path: A folder, a zip, or a ``manifest.json``, whose array files are then not looked for.
        limits: Sizes above which it is refused.

    Raises:
        BundleMissingError: There is nothing at the path.
    """

    @read_again
    def surveyed() -> Survey:
        data = b""
        try:
            with opened(path, limits, alone=True) as found:
                data = found.data
                if not found.is_sound:
                    found.sound_document()
                return Survey(found.document, found.findings + found.size_findings(), data)
        except (BundleMissingError, BundleReplacedError):
            raise
        except StructError as error:
            return Survey(None, list(error.diagnostics), data)

    try:
        return surveyed()
    except BundleReplacedError as error:
        return Survey(None, list(error.diagnostics), b"")


@collector_paused()
def read(
    path: str | Place,
    *,
    verify: bool = True,
    mmap: bool = True,
    limits: Limits | None = None,
    progress: Progress | None = None,
    part: bool = False,
) -> Payload:
    """Reads a bundle: the manifest now, each array on access.

    Args:
        path: The folder or zip, or the ``manifest.json`` in a folder.
        verify: Check every byte of an array when it is read.
        mmap: Map the arrays; otherwise they are copied into private memory.
        limits: Sizes above which it is refused.
        progress: Called with bytes verified and bytes in all, now and when arrays are read.
        part: Only some arrays will be read: records of the others are not validated, nor compared with the file.

    Raises:
        SerializationError: There is no bundle, or its manifest has problems: all of them.
        IntegrityError: Its parts do not agree with each other.
        UntrustedError: It holds pickles, links, or sizes that readers refuse.
    """
    with opened(path, limits, part=part and progress is None) as found:
        return found.payload(verify=verify, mmap=mmap, progress=progress)


@collector_paused()
def verify(
    path: str | Place, *, limits: Limits | None = None, progress: Progress | None = None
) -> list[Diagnostic]:
    """Every damage in a bundle, at once; reads every byte.

    Args:
        path: The folder or zip, or the ``manifest.json`` in a folder.
        limits: Sizes above which it is refused.
        progress: Called with bytes verified and bytes in all.

    Returns:
        The findings: ``info`` for unused arrays, ``warning`` for files that the manifest does not name.
    """
    path = around(path)

    @read_again
    def damages() -> list[Diagnostic]:
        with opened(path, limits) as found:
            return found.damage(progress)

    try:
        damage = damages()
    except StructError as error:
        damage = list(error.diagnostics)
    return [d.in_file(str(path)) for d in damage]
