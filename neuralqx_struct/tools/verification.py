"""Verification of checkpoints of any kind: bundles, and files of other programs.

Example:
    >>> import tempfile
    >>> import numpy as np
    >>> path = f"{tempfile.mkdtemp()}/weights.npz"
    >>> np.savez(path, w=np.ones(2))
    >>> verify(path)
    []
"""

from __future__ import annotations

from neuralqx_struct import bundle, formats
from neuralqx_struct.bundle.urls import Options, Place, place_of
from neuralqx_struct.errors import Diagnostic
from neuralqx_struct.manifest import Limits
from neuralqx_struct.stores.store import Progress

__all__ = ["verify"]


def verify(
    path: str | Place,
    *,
    limits: Limits | None = None,
    progress: Progress | None = None,
    storage_options: Options | None = None,
) -> list[Diagnostic]:
    """Every damage in a bundle or a foreign file, at once; reads every byte that has a checksum.

    Args:
        path: A path or a URL: of a bundle (folder or zip), the ``manifest.json`` in a folder, or a file of another program such as
            ``model.safetensors``, of which sizes and places are checked too.
        limits: Sizes above which it is refused.
        progress: Called with bytes verified and bytes in all.
        storage_options: Options of fsspec for a URL, such as keys.

    Returns:
        The findings: ``info`` for unused arrays, ``warning`` for files that the manifest does not name and for arrays
        of dtypes that cannot be read.
    """
    path = place_of(path, storage_options)
    if formats.is_foreign(path):
        return formats.verify(
            path, limits=limits, progress=progress, storage_options=storage_options
        )
    return bundle.verify(path, limits=limits, progress=progress)
