"""The manifest of a bundle: read and judged by itself, without numpy, and looked at again where a writer came between.

Owns :func:`read_manifest` and :func:`survey`, and what every reader of a bundle does first.

Example:
    >>> import tempfile
    >>> from neuralqx_struct.bundle import write
    >>> from neuralqx_struct.payload import Payload
    >>> path = write(f"{tempfile.mkdtemp()}/ckpt", Payload({"version": 1, "manifest": 5, "arrays": {}}, {}))
    >>> read_manifest(path)["manifest"]
    5
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from neuralqx_struct.bundle.forms import (
    FOREIGN_MEMBERS,
    MANIFEST,
    BundleMissingError,
    Opened,
    Text,
    manifest_bytes,
    opened_bundle,
    refused_reading,
)
from neuralqx_struct.errors import Diagnostic, IntegrityError, SerializationError, StructError, has_errors
from neuralqx_struct.manifest import DEFAULT_FILE, DEFAULT_LIMITS, Limits, check_manifest
from neuralqx_struct.manifest_text import check_digest, parse_manifest
from neuralqx_struct.payload import raise_findings
from neuralqx_struct.replacement import standing
from neuralqx_struct.stores import about

__all__ = ["around", "examined", "naming", "read_manifest", "require_standing", "settled", "sound_document", "survey"]

_ATTEMPTS = 16


_T = TypeVar("_T")


def settled(path: Path, look: Callable[[Opened], _T]) -> _T:
    """What ``look`` makes of a bundle; looked at again if a writer put another in its place meanwhile."""
    left = _ATTEMPTS
    while True:
        left -= 1
        try:
            with opened_bundle(path) as held:
                try:
                    return look(held)
                except (StructError, OSError):
                    if not left or not _outlived(held, path):
                        raise
        except FileNotFoundError:  # between two renames nothing stands at the path
            if not left or standing(path) is None:
                raise


def _outlived(held: Opened, path: Path) -> bool:
    """True if a bundle was replaced, or kept from a replacement that is done by now: its files are being removed."""
    return held.moved() or (held.path != path and path.exists())


def require_standing(held: Opened, path: Path, found: list[Diagnostic]) -> None:
    """Raise findings that may be about files that were just being removed: they call for another look."""
    if has_errors(found) and _outlived(held, path):
        raise IntegrityError(found)


def examined(data: bytes, limits: Limits) -> tuple[dict[str, Any], list[Diagnostic]]:
    """The document, and everything wrong with it that can be told without the arrays."""
    try:
        document = parse_manifest(data, limits=limits)
    except SerializationError as error:
        if (problem := check_digest(data)) is not None and b'"digest"' in data[-200:]:
            raise IntegrityError([*error.diagnostics, problem]) from error.__cause__
        raise
    found = check_manifest(document, limits=limits)
    if any(d.code == "NQX402" for d in found) or document.keys() == FOREIGN_MEMBERS:
        return document, found  # another format's digest is its own affair, and neuraLQX writes none
    if (problem := check_digest(data)) is not None:
        found.append(problem)
    records = document.get("arrays")
    for name, record in records.items() if type(records) is dict else ():
        if type(record) is dict and not ("crc32" in record and "nbytes" in record):
            found.append(about("NQX407", name, "expected crc32 and nbytes in the record, got a record without"))
    return document, found


def sound_document(data: bytes, limits: Limits) -> dict[str, Any]:
    """The document, if nothing is wrong with it that can be told without the arrays."""
    document, found = examined(data, limits)
    raise_findings(found)
    return document


def read_manifest(path: str | Path, *, limits: Limits | None = None) -> dict[str, Any]:
    """The manifest of a bundle, checked by itself; neither numpy nor an array file is touched.

    Args:
        path: A folder, a zip, or a ``manifest.json``.
        limits: How much to take in.

    Raises:
        SerializationError: There is no manifest, or something is wrong with it: every problem.
        IntegrityError: Its bytes are not those that were written.
    """
    path, limits = Path(path), limits or DEFAULT_LIMITS
    with naming(path):
        return settled(path, lambda held: sound_document(manifest_bytes(held, limits), limits))


def survey(path: str | Path, *, limits: Limits | None = None) -> tuple[dict[str, Any] | None, list[Diagnostic]]:
    """The manifest and everything wrong with it and with the sizes of the array files, in one look; no array is read.

    Args:
        path: A folder, a zip, or a ``manifest.json``, beside which no file is looked for.
        limits: How much to take in.

    Returns:
        The document, also where only its digest is wrong, as after an edit by hand; None if it is no manifest. And the
        findings.

    Raises:
        BundleMissingError: There is nothing at the path.
        SerializationError: There is no manifest.
    """
    path, limits = Path(path), limits or DEFAULT_LIMITS

    def look(held: Opened) -> tuple[dict[str, Any] | None, list[Diagnostic]]:
        document, found = examined(manifest_bytes(held, limits), limits)
        if any(d.code != "NQX407" for d in found):
            raise_findings(found)
        if not isinstance(held, Text):
            found += _size_findings(held, path, document)
        require_standing(held, path, found)
        return document, found

    try:
        with naming(path):
            return settled(path, look)
    except BundleMissingError:
        raise
    except StructError as error:
        return None, list(error.diagnostics)


def _named(error: StructError, path: Path) -> StructError:
    """The error with the file that its problems are in: those that have a line are about the text of the manifest."""
    if all(d.file is not None for d in error.diagnostics):
        return error
    text = path / MANIFEST if os.path.isdir(path) else path  # noqa: PTH112 - Path.is_dir raises where it may not look
    return type(error)(d.in_file(str(path if d.line is None else text)) for d in error.diagnostics)


def _size_findings(held: Opened, path: Path, document: Mapping[str, Any]) -> list[Diagnostic]:
    """Whether the array files are there and long enough for what the manifest says; none of them is read."""
    needed: dict[str, int] = {}
    for record in document["arrays"].values():
        file = record.get("file", DEFAULT_FILE)
        nbytes = record.get("nbytes", 1)
        least = record["offset"] + nbytes if "offset" in record else min(nbytes, 1)  # compressed ones have no place
        needed[file] = max(needed.get(file, 0), least)
    found: list[Diagnostic] = []
    for file, least in needed.items():
        where = str(path / file)
        try:
            size = held.size(file)
        except StructError as error:
            found += error.diagnostics
            continue
        if size is None:
            found.append(Diagnostic("NQX409", "error", f"expected the array file {file}, got none", file=where))
        elif size < least:
            message = f"expected a file of at least {least} bytes, got {size}"
            found.append(Diagnostic("NQX408", "error", message, file=where))
    return found


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name the path in the errors of what is done inside."""
    try:
        yield
    except StructError as error:
        raise _named(error, path) from error.__cause__
    except OSError as error:
        raise refused_reading(error, path) from error


def around(path: Path) -> Path:
    """The bundle that a path means: a ``manifest.json`` stands for the folder that it is in."""
    return path.parent if path.suffix == ".json" and os.path.isfile(path) else path  # noqa: PTH113 - see _named
