"""History of a schema: freezing its published versions, and checking their golden payloads.

:func:`freeze` writes ``schema.lock``, :func:`history` lists when each version came and its changes, and
:func:`check_golden` reads the small bundles beside a schema, one for each version, as every later release
must be able to. ``checkpoint/golden.py`` writes them; nothing here needs JAX.

Example:
    >>> [(release.version, len(release.steps)) for release in history("schemas/vmc_state")]
    [(1, 0), (2, 12), (3, 8)]
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from neuralqx_struct import bundle
from neuralqx_struct.errors import (
    Diagnostic,
    SchemaError,
    StructError,
    has_errors,
    printable,
    shell_word,
)
from neuralqx_struct.evolution.against import ask_git
from neuralqx_struct.evolution.changes import Change
from neuralqx_struct.evolution.diff import diff
from neuralqx_struct.evolution.steps import step_text
from neuralqx_struct.schema.lock import LOCK_NAME, format_lock, lock_entry, read_lock
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.series import SchemaMissingError, Series, load_series, schema_folders
from neuralqx_struct.schema.text.loader import replace_text
from neuralqx_struct.tools.linting import lint_series
from neuralqx_struct.tools.migration import migrate
from neuralqx_struct.tools.validation import validate

__all__ = ["Frozen", "Release", "check_golden", "freeze", "history"]


@dataclass(frozen=True, slots=True)
class Frozen:
    """The result of :func:`freeze`; ``str()`` is its text.

    Attributes:
        lock: The lock file.
        added: Versions that were frozen now.
        kept: Versions that were frozen before.
        corrected: Those of them whose doc, unit, examples, tags or axes were corrected since.
    """

    lock: Path
    added: tuple[int, ...]
    kept: tuple[int, ...]
    corrected: tuple[int, ...] = ()

    def __str__(self) -> str:
        added = f"froze {_listed(self.added)}" if self.added else "nothing to freeze"
        if self.corrected:
            added += f"; recorded corrections of {_listed(self.corrected)}"
        kept = f"; frozen before: {_listed(self.kept)}" if self.kept else ""
        return f"{printable(self.lock)}: {added}{kept}"


def _listed(versions: tuple[int, ...]) -> str:
    plural = "" if len(versions) == 1 else "s"
    return f"version{plural} {', '.join(map(str, versions))}"


def freeze(path: str | Path, *, dry_run: bool = False) -> Frozen:
    """Freezes versions of a schema: from now on lint refuses edits of them.

    Args:
        path: A schema folder, for all its versions; the file of a version, for that one.
        dry_run: Check everything, and write nothing.

    Returns:
        The frozen versions. An existing entry of the lock file is changed only if its version corrects its doc, unit,
        examples, tags or axes.

    Raises:
        SchemaMissingError: There is nothing at ``path``.
        SchemaError: The schema has errors, an edited frozen version among them; the lock file is of another schema.
    """
    where = Path(path)
    if not where.exists():
        raise SchemaMissingError.at(path)
    folder = _folder(where)
    series = load_series(folder)
    found = lint_series(series)
    if has_errors(found):
        raise SchemaError(d for d in found if d.severity == "error")
    lock = read_lock(folder)
    file = folder / LOCK_NAME
    owner = json.loads(file.read_text(encoding="utf-8")).get("schema") if lock else series.id
    if owner != series.id:
        message = f"expected the lock file of {series.id}, got one of {owner}"
        hint = "restore it from version control"
        raise SchemaError(message, code="NQX291", file=str(file), hint=hint)
    wanted = series.versions if where.is_dir() else load_series(where).versions
    added = tuple(version for version in wanted if version not in lock)
    # Lint has refused all edits but corrections, so that these are all that can differ.
    now = {version: lock_entry(series.at(version)) for version in wanted}
    entries = lock | now
    if entries != lock and not dry_run:
        replace_text(file, format_lock(series.id, entries))
    corrected = tuple(v for v in wanted if v in lock and lock[v]["full"] != now[v]["full"])
    return Frozen(file, added, tuple(sorted(lock)), corrected)


def _folder(path: Path) -> Path:
    """The schema folder that a path belongs to."""
    return path if path.is_dir() else path.parent


@dataclass(frozen=True, slots=True)
class Release:
    """One version in the history of its schema; ``str()`` is its paragraph.

    Attributes:
        version: Its number.
        file: Its file.
        date: The date of its file.
        dated_by: ``git`` for the commit that added the file, ``file`` for the time of its last change.
        frozen: Whether the lock file has it.
        changes: The differences from the version before it.
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
        date = f"{self.date:%Y-%m-%d %H:%M} ({self.dated_by}{frozen})"
        lines = [f"version {self.version}  {date}  {printable(self.file)}"]
        counts = Counter((change.severity, change.code) for change in self.changes)
        for severity, meaning in _MEANING.items():
            codes = []
            for (own, code), number in sorted(counts.items()):
                if own == severity:
                    codes.append(f"{number} x {code}" if number > 1 else code)
            if codes:
                lines.append(f"  {meaning}: {', '.join(codes)}")
        lines += [f"  step {step}" for step in self.steps]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """The record as plain JSON values."""
        return {
            **{field.name: getattr(self, field.name) for field in fields(self)},
            "date": self.date.isoformat(),
            "changes": [change.to_json() for change in self.changes],
            "steps": list(self.steps),
        }


_MEANING = {
    "error": "breaks reading old payloads",
    "warning": "breaks old readers",
    "info": "breaks nothing",
}


def history(path: str | Path) -> list[Release]:
    """The versions of a schema, oldest first, with their dates, changes and steps.

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
        changes: tuple[Change, ...] = ()
        steps: tuple[str, ...] = ()
        if before is not None:
            changes = tuple(diff(before, document))
            migration = document.migration_from(before.version)
            items = () if migration is None else migration.steps
            steps = tuple(step_text(item.step).removeprefix("- ") for item in items)
        releases.append(Release(version, str(file), *_dated(file), version in lock, changes, steps))
        before = document
    return releases


def _dated(file: Path) -> tuple[datetime, str]:
    """The date of the commit that added a file, or of its last change if git does not have it."""
    words = ("log", "--follow", "--diff-filter=A", "--format=%aI", "--", file.name)
    try:
        dates = ask_git(file.absolute().parent, *words).decode().split()
    except SchemaError:  # no git, or no repository
        dates = []
    if dates:
        return datetime.fromisoformat(dates[-1]), "git"
    return datetime.fromtimestamp(file.stat().st_mtime, UTC), "file"


def golden_place(folder: Path, version: int) -> Path:
    """The path of the golden payload of a version."""
    return folder / "golden" / f"v{version}"


def check_golden(path: str | Path, *, trust: Iterable[str] = ()) -> list[Diagnostic]:
    """Checks that the golden payload of each version is intact, is of its version, and migrates to the newest.

    Args:
        path: A schema folder, or a folder of such folders.
        trust: Packages whose registered functions ``python`` steps may run; they are imported.

    Returns:
        NQX314 for a version without golden payload, NQX315 for each problem of one.

    Raises:
        SchemaError: A schema cannot be read.
    """
    trusted = tuple(trust)
    found: list[Diagnostic] = []
    for folder in schema_folders(Path(path)):
        series = load_series(_folder(folder))
        for version in series.versions:
            found += golden_findings(series, version, trusted)
    return found


def golden_findings(
    series: Series, version: int, trust: Iterable[str] = (), new: Path | None = None
) -> list[Diagnostic]:
    """The problems of the golden payload of one version, or of a new one before it gets to its place."""
    folder = series.folder or Path()
    place = golden_place(folder, version)
    held = new or place
    if not held.exists():
        message = f"expected a golden payload of version {version} at {place}, got none"
        hint = f"`neuralqx-struct schema freeze {shell_word(folder)} --golden` writes it"
        file = series.sources[version].name
        return [Diagnostic("NQX314", "warning", message, file=file, hint=hint)]
    found = _problems(series, version, held, trust)
    return [_failed(place, d) for d in found if d.severity == "error"]


def _problems(series: Series, version: int, place: Path, trust: Iterable[str]) -> list[Diagnostic]:
    try:
        damage = (replace(each, hint=each.remedy) for each in bundle.verify(place))
        found = [*damage, *validate(place, series)]
        if has_errors(found):
            return found
        written = bundle.read_manifest(place)["schema"]["version"]
        if written != version:
            message = f"expected a payload of version {version}, got one of version {written}"
            return [Diagnostic("NQX404", "error", message, "$.schema.version")]
        if version == series.head.version:
            return []
        with tempfile.TemporaryDirectory() as scratch:
            migrated = migrate(place, Path(scratch) / "head", schema=series, trust=trust).out
            return [] if migrated is None else validate(migrated, series)
    except StructError as error:
        return list(error.diagnostics)


def _failed(place: Path, finding: Diagnostic) -> Diagnostic:
    message = f"{finding.message} [{finding.code}]\nthe golden payload can no longer be read"
    hint = finding.hint or "undo the change of its meaning; golden payloads are never written anew"
    return Diagnostic("NQX315", "error", message, finding.path, str(place), hint=hint)
