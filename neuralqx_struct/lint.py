"""Lint: everything that can be said about a schema without data, all at once, each finding with its place.

Owns what a document means as a whole (do the names exist, can the sizes be found, do defaults fit, is each expression
closed) and what its versions mean together (gaps, reserved names, the lock file, the proof of each migration). One
check is one generator and a row of a table: for one version in ``schema/checks.py``, ``schema/expression_checks.py``
and ``schema/defaults.py``, here for two. Unknown members and malformed types have been found before, by ``schema/reading.py``.

A comment ``# nqx: ignore[NQX104]`` on the line of a warning silences it. Errors cannot be silenced: what reads the
schema relies on them not being there.

Example:
    >>> from neuralqx_struct.schema.series import load_series
    >>> text = '''
    ... language: "1"
    ... schema: lab.point
    ... version: 1
    ... root: Point
    ... structs:
    ...   Point: {fields: {x: "flaot32[n]"}}
    ... '''
    >>> print(lint_series(load_series(text))[0])
    <text>:7:23: NQX102 expected a dtype or a struct, got 'flaot32'
      did you mean 'float32'?
"""

from __future__ import annotations

import copy
import importlib
import re
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from neuralqx_struct.errors import Diagnostic, SchemaError, StructError, has_errors
from neuralqx_struct.paths import parse_path
from neuralqx_struct.schema import limits
from neuralqx_struct.schema.advice import ADVICE
from neuralqx_struct.schema.checks import CHECKS
from neuralqx_struct.schema.defaults import VALUE_CHECKS
from neuralqx_struct.schema.expression_checks import EXPRESSION_CHECKS
from neuralqx_struct.schema.findings import Finding, Findings
from neuralqx_struct.schema.loader import Source, read_file
from neuralqx_struct.schema.model import Document, StructDeclaration
from neuralqx_struct.schema.reading import parse_document
from neuralqx_struct.schema.series import (
    LOCK_NAME,
    SchemaMissingError,
    Series,
    load_series,
    lock_entry,
    read_lock,
    refuse_bundle,
)
from neuralqx_struct.schema.uses import among, beside

__all__ = ["lint", "lint_document", "lint_series"]

_DOCUMENT_CHECKS = (*CHECKS, *EXPRESSION_CHECKS, *VALUE_CHECKS, *ADVICE)
_SUFFIXES = (".yaml", ".yml", ".json")

# ---------------------------------------------------------------------------------------------------------------------
# Entry points.


def lint(path: str | Path) -> list[Diagnostic]:
    """Check a schema file, a folder with the versions of one schema, or a folder of such folders.

    Args:
        path: What to check. A file is checked by itself, without the versions beside it.

    Returns:
        Every finding, by file and line; files that cannot be read are findings too.

    Raises:
        SchemaMissingError: There is nothing at ``path``.

    Example:
        >>> lint("schemas/vmc_state")
        []
    """
    where = Path(path)
    if not where.exists():
        raise SchemaMissingError.at(path)
    try:
        refuse_bundle(where)
    except SchemaError as error:
        return list(error.diagnostics)
    if where.is_dir() and not _schema_files(where):
        folders = [inner for inner in sorted(where.iterdir()) if inner.is_dir() and _is_schema_folder(inner)]
        if folders:
            return _sorted(finding for folder in folders for finding in lint(folder))
    try:
        return lint_series(load_series(where))
    except SchemaError as error:
        broken = {d.file for d in error.diagnostics}
        return _sorted({*error.diagnostics, *_readable_parts(where, broken)})


def _schema_files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.suffix in _SUFFIXES and p.is_file())


def _is_schema_folder(folder: Path) -> bool:
    """True for a folder with files named after versions; published JSON Schemas lie in folders without."""
    return any(re.fullmatch(r"v\d+", file.stem) for file in _schema_files(folder))


def _readable_parts(where: Path, broken: Container[str | None]) -> Iterator[Diagnostic]:
    """Findings in the files of a broken series, and in what is left of a file without its malformed fields."""
    for file in _schema_files(where) if where.is_dir() else [where]:
        if str(file) in broken and file.stat().st_size > limits.MAX_SECOND_LOOK:
            continue  # it would take as long as the first one
        try:
            source = read_file(file)
        except SchemaError:
            continue  # these findings are what the series was refused for
        try:
            yield from lint_document(parse_document(source), source)
        except SchemaError as error:
            yield from _rest(source, error)


#: What is wrong with a field whatever became of the fields around it.
_OF_ONE_FIELD = {"NQX101", "NQX102", "NQX107", "NQX108", "NQX110", "NQX111", "NQX113", "NQX115", "NQX118", "NQX125"}

_OF_MEMBERS = {"NQX107", "NQX115"}  # those of them for which the members of an enum have to be known


def _rest(source: Source, error: SchemaError) -> Iterator[Diagnostic]:
    """What the sound fields of a file mean, where other parts of it are malformed."""
    data: Any = copy.deepcopy(source.data)
    told = _OF_ONE_FIELD
    for found in error.diagnostics:
        path = [part if isinstance(part, int) else str(part) for part in parse_path(found.path or "$")]
        dropped = _without(path, found.code)
        if dropped is None:
            return
        holder = data
        for part in dropped[:-1]:
            holder = holder.get(part, {}) if isinstance(holder, dict) else {}
        if isinstance(holder, dict):
            holder.pop(dropped[-1], None)
            if dropped[0] == "enums" and found.code != "NQX118":
                holder[dropped[-1]] = ["unknown"]  # fields of it are sound, whatever its members are
                told = told - _OF_MEMBERS
    try:
        document = parse_document(replace(source, data=data))
    except SchemaError:
        return
    yield from (d for d in lint_document(document, source) if d.code in told)


def _without(path: list[str | int], code: str) -> list[str | int] | None:
    """What to leave out for a file to be read without what is wrong at ``path``; None if others need it."""
    match path:
        case ["structs", _, "fields", _, *_]:
            return path[:4]
        case ["structs", _, "constraints", *_]:
            return path[:3]
        case ["structs", _] if code == "NQX118":
            return path
        case ["dims" | "enums", _, *_]:
            return path[:2]
        case ["migrations", *_]:
            return path[:1]
        case _:
            return path if code == "NQX009" else None


def lint_series(series: Series) -> list[Diagnostic]:
    """Check every version of a schema, and each version against the one before it.

    Args:
        series: The versions, as ``load_series`` read them.

    Returns:
        Every finding, by file and line.
    """
    found: list[Diagnostic] = []
    sound: set[int] = set()
    used: Used = set()
    for version, document in series.documents.items():
        own = _lint_document(document, _source(series, version), used)
        if not has_errors(own):
            sound.add(version)
        found += own
    for older, newer in pairwise(series.documents.values()):
        source = _source(series, newer.version)
        pair = [_placed(source, finding) for check in _PAIR_CHECKS for finding in check(older, newer)]
        if newer.version == older.version + 1 and {older.version, newer.version} <= sound:
            # What the steps mean is asked only of documents that mean something; imported late, few callers get here.
            prove = importlib.import_module("neuralqx_struct.evolution.migrations").prove
            pair += [_relocated(source, finding) for finding in prove(older, newer)]
            pair += [_placed(source, finding) for finding in _check_reads(older, newer)]
            if newer.uses:
                nested = importlib.import_module("neuralqx_struct.evolution.nested")
                find = beside(series.folder) if series.folder is not None else among(())
                skew = [*nested.skew_within(newer), *nested.skew_between(older, newer, find)]
                pair += [_placed(source, finding) for finding in skew]
        found += _unsuppressed(pair, source, used)
    for version in series.documents:
        found += _unsuppressed(_misnamed(series, version), _source(series, version), used)
    if not has_errors(found):  # what is wrong hides what the comments are for
        found += [d for version in series.documents for d in _unused(_source(series, version), used)]
    if series.folder is not None:
        found += _lock_findings(series, series.folder)
    return _sorted(dict.fromkeys(found))


def lint_document(document: Document, source: Source | None = None) -> list[Diagnostic]:
    """Check one version by itself.

    Args:
        document: The document.
        source: The file it was read from, which gives the findings their places.

    Returns:
        Every finding, what the reader of the file warned of among them.
    """
    return _lint_document(document, source or Source(f"{document.id}@{document.version}", None, {}), set())


def _lint_document(document: Document, source: Source, used: Used) -> list[Diagnostic]:
    # Whoever has a thousand errors mends those first. Warnings that are not told may not hide an error behind them.
    most = limits.MAX_PROBLEMS
    findings = (finding for check in _DOCUMENT_CHECKS for finding in check(document))
    errors: list[Finding] = []
    others: list[Finding] = []
    more = 0
    while len(errors) < most and (finding := next(findings, None)) is not None:
        if finding.severity == "error":
            errors.append(finding)
        elif len(others) < most:
            others.append(finding)
        else:
            more += 1
    found = [_placed(source, finding) for finding in (*errors, *others)]
    if len(errors) == most:
        message = f"expected fewer than {most} errors, got {most} or more"
        found.append(source.diagnostic("NQX005", (), message, hint="mend these first; others may not be listed"))
    elif more:
        message = f"expected at most {most} warnings, got {most + more}"
        hint = "the others are not listed"
        found.append(source.diagnostic("NQX005", (), message, hint=hint, severity="warning"))
    return _sorted(_unsuppressed([*source.warnings, *found], source, used))


def _source(series: Series, version: int) -> Source:
    return series.sources.get(version) or Source(f"{series.id}@{version}", None, {})


def _placed(source: Source, finding: Finding) -> Diagnostic:
    code, path, message, hint, severity, key = finding
    return source.diagnostic(code, path, message, hint=hint, severity=severity, key=key)


def _relocated(source: Source, finding: Diagnostic) -> Diagnostic:
    """A finding about a document that knows only its path, with the place in the file."""
    if finding.line is not None:
        return finding
    try:
        path = [part if isinstance(part, int) else str(part) for part in parse_path(finding.path or "$")]
    except StructError:
        path = ["migrations"]
    line, column = source.mark(path) or (None, None)
    return replace(finding, file=source.name, line=line, column=column)


#: The comments that have silenced something: file, line and code.
Used = set[tuple[str, int, str]]


def _unsuppressed(found: Iterable[Diagnostic], source: Source, used: Used) -> Iterator[Diagnostic]:
    for finding in found:
        if finding.line is None or finding.code not in source.suppressions.get(finding.line, ()):
            yield finding
            continue
        used.add((source.name, finding.line, finding.code))
        if finding.severity == "error":
            hint = f"{finding.hint}; " if finding.hint else ""
            yield replace(finding, hint=f"{hint}errors cannot be ignored by a comment")


def _unused(source: Source, used: Used) -> Iterator[Diagnostic]:
    """Comments that silence nothing, and would silence what comes to stand there."""
    for line, codes in source.suppressions.items():
        for code in sorted(codes):
            if (source.name, line, code) not in used:
                message = f"expected {code} on this line, which the comment ignores, got no such finding"
                hint = "remove the comment, or move it to the line of the finding"
                yield Diagnostic("NQX015", "warning", message, file=source.name, line=line, column=1, hint=hint)


def _sorted(found: Iterable[Diagnostic]) -> list[Diagnostic]:
    return sorted(found, key=lambda d: (d.file or "", d.line or 0, d.column or 0, d.code, d.path, d.message))


# ---------------------------------------------------------------------------------------------------------------------
# Migrations and versions.


def _check_gap(older: Document, newer: Document) -> Findings:
    if newer.version != older.version + 1:
        missing = ", ".join(map(str, range(older.version + 1, newer.version)))
        message = f"expected every version up to {newer.version}, got none between {older.version} and {newer.version}"
        yield Finding("NQX301", ("version",), message, f"add the file of version {missing}")


def _check_reads(older: Document, newer: Document) -> Findings:
    """Steps that run on whole values on every load; the others wait until an array is asked for."""
    for at, migration in enumerate(newer.migrations):
        for number, item in enumerate(migration.steps if migration.from_version == older.version else ()):
            if item.python is not None:
                message = (
                    f"expected steps that wait until an array is asked for, got a function of {', '.join(item.python.reads)}\n"
                    f"each load of version {older.version} reads them whole and runs it"
                )
                hint = "fine; `neuralqx-struct migrate` does it once for all loads"
                yield Finding("NQX317", ("migrations", at, "steps", number, "python"), message, hint, "info", key=True)


def _check_reserved(older: Document, newer: Document) -> Findings:
    former = {alias: name for name, struct in newer.structs.items() for alias in struct.aliases}
    renamed = {
        item.rename_struct.struct: item.rename_struct.to
        for migration in newer.migrations
        for item in migration.steps
        if item.rename_struct is not None
    }
    moved = _moved(newer)
    for old_name, old in older.structs.items():
        name = old_name if old_name in newer.structs else renamed.get(old_name, former.get(old_name, ""))
        if name not in newer.structs:
            continue
        yield from _reserved_pair(older, old, newer, name, moved)


def _reserved_pair(older: Document, old: StructDeclaration, newer: Document, name: str, moved: set[str]) -> Findings:
    new, at = newer.structs[name], ("structs", name)
    for word in old.reserved:
        if word in new.fields and word not in new.reserved:
            message = f"expected a name that is not reserved, got {word!r}\nversion {older.version} reserves it"
            yield Finding("NQX205", (*at, "fields", word), message, "choose another name", key=True)
        elif word not in new.reserved:
            message = f"expected the reserved names of version {older.version}, got none for {word!r}"
            yield Finding("NQX206", (*at, "reserved"), message, f"add {word} to `reserved:`", key=True)
    for word in old.stored:
        if word not in new.fields and word not in new.reserved and word not in moved:
            message = f"expected the removed field {word} to be reserved, got no such entry"
            hint = f"add {word} to `reserved:`, so that it cannot come back with another meaning"
            yield Finding("NQX201", at, message, hint, "warning", key=True)


def _moved(document: Document) -> set[str]:
    """Fields that the document's migration gives another name or place: the new one holds the same values."""
    moved: set[str] = set()
    for item in (item for migration in document.migrations for item in migration.steps):
        if item.rename is not None:
            moved |= {item.rename.field, item.rename.to}
        moved |= {*(item.move.fields if item.move is not None else ())}
        moved |= {item.inline.field} if item.inline is not None else set()
    moved |= {alias for struct in document.structs.values() for d in struct.fields.values() for alias in d.aliases}
    return moved


def _misnamed(series: Series, version: int) -> Iterator[Diagnostic]:
    source = _source(series, version)
    named = re.fullmatch(r"v(\d+)", Path(source.name).stem)
    if named and int(named[1]) != version:
        message = f"expected version {int(named[1])}, as the file is named, got {version}"
        finding = Finding("NQX303", ("version",), message, f"rename the file to v{version}", "warning")
        yield _placed(source, finding)


def _lock_findings(series: Series, folder: Path) -> Iterator[Diagnostic]:
    try:
        lock = read_lock(folder)
    except SchemaError as error:
        yield from error.diagnostics
        return
    whole = len(series.sources) == len(_schema_files(folder)) if lock else False
    for version, frozen in lock.items():
        if version in series.documents:
            entry = lock_entry(series.documents[version])
            if entry != frozen:
                what = "payloads mean" if entry["payload"] != frozen["payload"] else "it says"
                message = (
                    f"expected version {version} as it was frozen, got one that was edited\n{what} something else now"
                )
                hint = f"undo the edit and make it version {series.head.version + 1}; `schema revision` does both"
                yield _placed(_source(series, version), Finding("NQX291", ("version",), message, hint))
        elif whole:
            message = f"expected the file of the frozen version {version}, got none"
            yield Diagnostic("NQX291", "error", message, file=str(folder / LOCK_NAME), hint="restore the file")


_PAIR_CHECKS: tuple[Callable[[Document, Document], Findings], ...] = (_check_gap, _check_reserved)
