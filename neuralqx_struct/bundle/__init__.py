"""Bundles: a folder, or a zip of the same members, that holds ``manifest.json`` and the array files.

Reading checks everything before it is used; writing is atomic. ``storage.py`` opens folders and zips,
``reading.py`` and ``writing.py`` read and write bundles, ``atomic.py`` replaces targets, ``conversion.py``
writes a bundle in another form, ``background.py`` writes one while the program goes on. Manifests are read
without numpy.

Example:
    >>> import tempfile
    >>> from neuralqx_struct.manifest.payload import Payload
    >>> path = write(f"{tempfile.mkdtemp()}/ckpt", Payload({"version": 1, "manifest": 5, "arrays": {}}, {}))
    >>> read(path).document["manifest"], verify(path)
    (5, [])
"""

from neuralqx_struct.bundle.atomic import BundleExistsError, BundleWriteError
from neuralqx_struct.bundle.reading import OpenBundle, opened, read, read_manifest, survey, verify
from neuralqx_struct.bundle.storage import BundleMissingError
from neuralqx_struct.bundle.writing import require_apart, seal, write, write_linked

__all__ = [
    "BundleExistsError",
    "BundleMissingError",
    "BundleWriteError",
    "OpenBundle",
    "opened",
    "read",
    "read_manifest",
    "require_apart",
    "seal",
    "survey",
    "verify",
    "write",
    "write_linked",
]
