"""Bundles: a folder, or a zip of the same members, that holds ``manifest.json`` and the array files.

Reading checks everything before it is used, writing does all or nothing. ``manifests.py`` reads a manifest by itself,
``reading.py`` with its arrays, ``writing.py`` writes new bundles, ``relinking.py`` makes new ones of the bytes of old ones;
``forms.py`` knows folders and zips that are there, ``filling.py`` those that are being made. Atomic replacement is
``replacement.py``'s, what a manifest may hold ``manifest.py``'s, the array files are the stores'. Reads manifests without numpy.

Example:
    >>> import tempfile
    >>> from neuralqx_struct.payload import Payload
    >>> path = write(f"{tempfile.mkdtemp()}/ckpt", Payload({"version": 1, "manifest": 5, "arrays": {}}, {}))
    >>> read(path).document["manifest"], verify(path)
    (5, [])
"""

from neuralqx_struct.bundle.forms import BundleMissingError
from neuralqx_struct.bundle.manifests import read_manifest, survey
from neuralqx_struct.bundle.reading import read, ticking, verify
from neuralqx_struct.bundle.relinking import seal, write_linked
from neuralqx_struct.bundle.writing import unfinished, write
from neuralqx_struct.replacement import BundleExistsError, BundleWriteError

__all__ = [
    "BundleExistsError",
    "BundleMissingError",
    "BundleWriteError",
    "read",
    "read_manifest",
    "seal",
    "survey",
    "ticking",
    "unfinished",
    "verify",
    "write",
    "write_linked",
]
