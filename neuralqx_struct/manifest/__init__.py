"""Manifests: the format version, its constants, the limits of readers, and the findings of checks.

``models.py`` declares the document, ``text.py`` parses and writes it, ``check.py`` validates it, ``payload.py`` joins it with
its arrays, ``lazy_arrays.py`` and ``lazy_reading.py`` have those that steps and layouts make of others, and ``kinds.py`` has the
table of node kinds.

Example:
    >>> Limits(depth=300).nodes
    1000000
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from neuralqx_struct.errors import (
    Diagnostic,
    IntegrityError,
    SerializationError,
    UntrustedError,
    did_you_mean,
)
from neuralqx_struct.paths import FieldName, format_path
from neuralqx_struct.printing import brief_plain

FORMAT_VERSION: Final = 1
SCHEMA_URL: Final = "https://neuralqx.github.io/neuralqx-struct/schemas/manifest/1.json"
WRITER: Final[Mapping[str, str]] = {"name": "neuralqx-struct", "version": "0.1.0"}
MANIFEST: Final = "manifest.json"
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
    """Pauses the garbage collector, which would visit a growing document again and again.

    Other threads than the main one, which write in the background, leave it to the program.
    """
    enabled = gc.isenabled() and threading.current_thread() is threading.main_thread()
    if enabled:
        gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


Keys = tuple[Any, ...]


class Findings(list[Diagnostic]):
    """Problems found so far, at most 1,000.

    Args:
        ignored: A code whose findings are none.
    """

    def __init__(self, ignored: str | None = None) -> None:
        super().__init__()
        self._ignored = ignored

    @property
    def full(self) -> bool:
        """Whether there are so many that no more are added."""
        return len(self) >= MOST_FINDINGS

    def add(
        self, code: str, place: str | Iterable[Any], message: str, hint: str | None = None
    ) -> None:
        """Adds an error, unless there are very many already.

        Args:
            code: The code.
            place: Its path as text, or as keys of the document.
            message: The message.
            hint: The likely fix.
        """
        if self.full or code == self._ignored:
            return
        path = place
        if not isinstance(path, str):
            path = format_path(FieldName(key) if isinstance(key, str) else key for key in path)
        self.append(Diagnostic(code, "error", message, path, hint=hint))

    def add_unknown(self, keys: Keys, known: Iterable[str], *, newer: bool) -> None:
        """Adds a member that is neither known nor an extension to be passed over.

        Args:
            keys: Path of the member.
            known: Members that are known.
            newer: Whether a reader must understand the member.
        """
        name = keys[-1]
        if type(name) is not str:
            message = f"expected member names to be strings, got {brief_plain(name)}"
            self.add("NQX006", keys[:-1], message)
        elif newer:
            hint = "a newer version wrote this; upgrade neuralqx-struct to read it"
            self.add(
                "NQX403", keys, f"expected members that this version knows, got {name!r}", hint
            )
        else:
            hint = did_you_mean(name, known) or f"known members: {', '.join(known)}"
            self.add("NQX611", keys, f"expected no such member, got {name!r}", hint)


_CLASSES: Final = {
    "NQX5": UntrustedError,
    "NQX407": IntegrityError,
    "NQX408": IntegrityError,
    "NQX409": IntegrityError,
    "NQX41": IntegrityError,
}


def raise_findings(findings: Iterable[Diagnostic], file: str | None = None) -> None:
    """Raises the errors among ``findings`` in one exception, of the class of the worst.

    Raises:
        UntrustedError: A file requires an unsafe operation (NQX5xx).
        IntegrityError: Bytes, sizes, dtypes or shapes do not agree (NQX407 to NQX412).
        SerializationError: Anything else.
    """
    errors = [d.in_file(file) if file is not None else d for d in findings if d.severity == "error"]
    if not errors:
        return
    for prefix, kind in _CLASSES.items():
        if any(d.code.startswith(prefix) for d in errors):
            raise kind(errors)
    raise SerializationError(errors)
