"""Manifests: the format version, its constants, and the limits of readers.

``models.py`` declares the document, ``text.py`` parses and writes it, ``check.py`` validates it, ``payload.py`` joins it with
its arrays, and ``kinds.py`` has the table of node kinds.

Example:
    >>> Limits(depth=300).nodes
    1000000
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

FORMAT_VERSION: Final = 1
SCHEMA_URL: Final = "https://neuralqx.github.io/neuralqx-struct/schemas/manifest/1.json"
WRITER: Final[Mapping[str, str]] = {"name": "neuralqx-struct", "version": "0.1.0"}
DEFAULT_FILE: Final = "arrays.npz"
MOST_FINDINGS: Final = 1000


@dataclass(frozen=True, slots=True)
class Limits:
    """Largest manifest that a reader accepts; pass a record of your own as ``limits=`` for larger checkpoints.

    Attributes:
        manifest_bytes: Size of ``manifest.json``.
        depth: Nodes inside nodes.
        nodes: Nodes in all.
        full_bytes: Size of all arrays and scalars that nodes describe without storing them, together.
    """

    manifest_bytes: int = 256 << 20
    depth: int = 200
    nodes: int = 1_000_000
    full_bytes: int = 1 << 30


DEFAULT_LIMITS: Final = Limits()


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pauses the garbage collector, which would visit a growing document again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
