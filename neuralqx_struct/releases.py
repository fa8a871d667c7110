"""Releases: what becomes of the versions of a schema once checkpoints of them exist.

Owns :func:`freeze`, which writes ``schema.lock``; :func:`history`, which tells when each version came and what it
changed; and :func:`check_golden`, which reads the small bundles that lie beside a schema, one for each version, as
every later release must be able to. They are written by ``golden.py``, which needs JAX; nothing here does. What a lock
file says is ``schema/series.py``'s, what an edit of a frozen version is called ``lint.py``'s.

Example:
    >>> [(release.version, len(release.steps)) for release in history("schemas/vmc_state")]
    [(1, 0), (2, 12), (3, 8)]
"""

from __future__ import annotations

import json
import os
import tempfile
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from neuralqx_struct import bundle
from neuralqx_struct.errors import Diagnostic, SchemaError, StructError, has_errors
from neuralqx_struct.evolution.baselines import ask_git
from neuralqx_struct.evolution.changes import Change
from neuralqx_struct.evolution.diff import diff
from neuralqx_struct.evolution.migrations import migrate
from neuralqx_struct.evolution.steps import step_text
from neuralqx_struct.lint import lint_series
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.series import (
    LOCK_NAME,
    SchemaMissingError,
    Series,
    format_lock,
    load_series,
    lock_entry,
    read_lock,
)
from neuralqx_struct.validation import validate

__all__ = ["Frozen", "Release", "check_golden", "freeze", "golden_findings", "golden_place", "history"]

# ---------------------------------------------------------------------------------------------------------------------
# Freezing.


@dataclass(frozen=True, slots=True)
class Frozen:
    """What :func:`freeze` did; ``str()`` says it.

    Attributes:
        lock: The lock file.
        added: Versions that were frozen now.
        kept: Versions that had been.
    """

    lock: Path
    added: tuple[int, ...]
    kept: tuple[int, ...]

    def __str__(self) -> str:
        added = f"froze {_listed(self.added)}" if self.added else "nothing to freeze"
        kept = f"; frozen before: {_listed(self.kept)}" if self.kept else ""
        return f"{self.lock}: {added}{kept}"


def _listed(versions: tuple[int, ...]) -> str:
    return f"version{'' if len(versions) == 1 else 's'} {', '.join(map(str, versions))}"


def freeze(path: str | Path) -> Frozen:
    """Freeze versions of a schema: from now on lint refuses edits of them.

    Args:
        path: A schema folder, for all its versions; the file of a version, for that one.

    Returns:
        What was frozen. Entries that the lock file has are never changed.

    Raises:
        SchemaMissingError: There is nothing at ``path``.
        SchemaError: The schema has errors, an edited frozen version among them; the lock file is of another schema.
    """
    where = Path(path)
    if not where.exists():
        raise SchemaMissingError.at(path)
    folder = where if where.is_dir() else where.parent
    series = load_series(folder)
    found = lint_series(series)
    if has_errors(found):
        raise SchemaError(d for d in found if d.severity == "error")
    lock = read_lock(folder)
    file = folder / LOCK_NAME
    if lock and (owner := json.loads(file.read_text(encoding="utf-8")).get("schema")) != series.id:
        message = f"expected the lock file of {series.id}, got one of {owner}"
        raise SchemaError(message, code="NQX291", file=str(file), hint="restore it from version control")
    wanted = series.versions if where.is_dir() else load_series(where).versions
    added = tuple(version for version in wanted if version not in lock)
    if added:
        entries = {**lock, **{version: lock_entry(series.at(version)) for version in added}}
        _replace(file, format_lock(series.id, entries))
    return Frozen(file, added, tuple(sorted(lock)))


def _replace(file: Path, text: str) -> None:
    """Write a file so that it is there as a whole or as it was."""
    number, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}-")
    try:
        with os.fdopen(number, "w", encoding="utf-8") as stage:
            stage.write(text)
        Path(name).chmod(0o644)
        Path(name).replace(file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


# ---------------------------------------------------------------------------------------------------------------------
# History.


@dataclass(frozen=True, slots=True)
class Release:
    """One version in the history of its schema; ``str()`` is its paragraph.

    Attributes:
        version: Its number.
        file: Its file.
        date: When it came.
        dated_by: ``git`` for the commit that added the file, ``file`` for the time of its last change.
        frozen: Whether the lock file has it.
        changes: What is different from the version before it.
        steps: The steps of its migration, in their text form.
    """

    version: int
    file: str
    date: datetime
    dated_by: str
    frozen: bool
    changes: tuple[Change, ...]
    steps: tuple[str, ...]

    def __str__(self) -> str:
        frozen = ", frozen" if self.frozen else ""
        lines = [f"version {self.version}  {self.date:%Y-%m-%d %H:%M} ({self.dated_by}{frozen})  {self.file}"]
        counts = Counter((change.severity, change.code) for change in self.changes)
        for severity in ("error", "warning", "info"):
            codes = [f"{n} x {code}" if n > 1 else code for (sev, code), n in sorted(counts.items()) if sev == severity]
            lines += [f"  {_MEANING[severity]}: {', '.join(codes)}"] if codes else []
        lines += [f"  step {step}" for step in self.steps]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """The record as plain JSON values."""
        return {
            "version": self.version,
            "file": self.file,
            "date": self.date.isoformat(),
            "dated_by": self.dated_by,
            "frozen": self.frozen,
            "changes": [change.to_json() for change in self.changes],
            "steps": list(self.steps),
        }


_MEANING = {
    "error": "breaks reading old payloads",
    "warning": "breaks old readers",
    "info": "breaks nothing",
}


def history(path: str | Path) -> list[Release]:
    """The versions of a schema, oldest first: when each came, what it changed and by which steps.

    Args:
        path: A schema folder, or the file of one version.

    Raises:
        SchemaMissingError: There is nothing at ``path``.
        SchemaError: The files cannot be read.
    """
    series = load_series(path)
    lock = {} if series.folder is None else read_lock(series.folder)
    releases = []
    before: Document | None = None
    for version, document in series.documents.items():
        file = Path(series.sources[version].name)
        date, dated_by = _dated(file)
        changes = () if before is None else tuple(diff(before, document))
        migration = None if before is None else document.migration_from(before.version)
        steps = () if migration is None else tuple(step_text(item.step).removeprefix("- ") for item in migration.steps)
        releases.append(Release(version, str(file), date, dated_by, version in lock, changes, steps))
        before = document
    return releases


def _dated(file: Path) -> tuple[datetime, str]:
    """When a file came: by the commit that added it; by its last change where git knows nothing of it."""
    words = ("log", "--follow", "--diff-filter=A", "--format=%aI", "--", file.name)
    try:
        dates = ask_git(file.absolute().parent, *words).decode().split()
    except SchemaError:  # no git, or no repository: the file has a date of its own
        dates = []
    if dates:
        return datetime.fromisoformat(dates[-1]), "git"
    return datetime.fromtimestamp(file.stat().st_mtime, UTC), "file"


# ---------------------------------------------------------------------------------------------------------------------
# Golden payloads.


def golden_place(folder: Path, version: int) -> Path:
    """Where the golden payload of a version lies."""
    return folder / "golden" / f"v{version}"


def check_golden(path: str | Path) -> list[Diagnostic]:
    """Whether the golden payload of each version is intact, is one of its version, and becomes one of the newest.

    Args:
        path: A schema folder, or a folder of such folders.

    Returns:
        NQX314 for a version without golden payload, NQX315 for what is wrong with one.

    Raises:
        SchemaError: A schema cannot be read.
    """
    where = Path(path)
    inner = [folder for folder in sorted(where.iterdir()) if any(folder.glob("v*.*"))] if where.is_dir() else []
    if inner and not any(where.glob("v*.*")):
        return [finding for folder in inner for finding in check_golden(folder)]
    series = load_series(where if where.is_dir() else where.parent)
    return [finding for version in series.versions for finding in golden_findings(series, version)]


def golden_findings(series: Series, version: int) -> list[Diagnostic]:
    """What is wrong with the golden payload of one version."""
    folder = series.folder or Path()
    place = golden_place(folder, version)
    if not place.exists():
        message = f"expected a golden payload of version {version} at {place}, got none"
        hint = f"`neuralqx-struct schema freeze {folder} --golden` writes it"
        return [Diagnostic("NQX314", "warning", message, file=series.sources[version].name, hint=hint)]
    return [_failed(place, d) for d in _wrong_with(series, version, place) if d.severity == "error"]


def _wrong_with(series: Series, version: int, place: Path) -> list[Diagnostic]:
    try:
        found = [*bundle.verify(place), *validate(place, series)]
        if has_errors(found):
            return found
        written = bundle.read_manifest(place)["schema"]["version"]
        if written != version:
            message = f"expected a payload of version {version}, got one of version {written}"
            return [Diagnostic("NQX404", "error", message, "$.schema.version")]
        with tempfile.TemporaryDirectory() as scratch:
            if version == series.head.version:
                return []
            migrated = migrate(place, Path(scratch) / "head", schema=series).out
            return [] if migrated is None else validate(migrated, series)
    except StructError as error:
        return list(error.diagnostics)


def _failed(place: Path, finding: Diagnostic) -> Diagnostic:
    message = f"{finding.message} [{finding.code}]\nthe golden payload can no longer be read"
    hint = finding.hint or "undo what changed its meaning; golden payloads are never written anew"
    return Diagnostic("NQX315", "error", message, finding.path, str(place), hint=hint)
