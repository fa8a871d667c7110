"""Files that commands write: whether one may be written, and writing it whole.

Example:
    >>> written("lab.state", None).text
    'lab.state'
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from neuralqx_struct.cli.results import Report
from neuralqx_struct.errors import Diagnostic


def require_free(out: Path | None, *, overwrite: bool) -> None:
    """Raises an error if ``--out`` names what exists and may not be replaced."""
    # Behind a URL the writer looks itself; a device or a pipe takes every text.
    if overwrite or not isinstance(out, Path) or not os.path.lexists(out):
        return
    if out.is_file() or out.is_dir() or out.is_symlink():
        from neuralqx_struct.bundle import BundleExistsError

        message = "expected a new path, got one that exists"
        hint = "pass --overwrite, or choose another --out"
        raise BundleExistsError(message, file=str(out), hint=hint)


def written(
    text: str, out: Path | None, *, found: Sequence[Diagnostic] = (), **members: Any
) -> Report:
    """Writes a text into a file, or prints it; returns the report."""
    members = {"text": text, "out": out, **members}
    if out is None:
        return Report(text.rstrip("\n"), tuple(found), members, layout="document")
    out.parent.mkdir(parents=True, exist_ok=True)
    if out.exists() and not out.is_file():  # a device or a pipe
        out.write_text(text, encoding="utf-8")
    else:
        replace_text(Path(os.path.realpath(out)), text)
    return Report(f"written to {out}", tuple(found), members, layout="verdict")


def replace_text(out: Path, text: str) -> None:
    """Writes a text file completely, or leaves the old one."""
    temporary = out.with_name(f".{out.name[:100]}.tmp-{os.urandom(6).hex()}")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(out)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(out)) from error
    finally:
        temporary.unlink(missing_ok=True)
