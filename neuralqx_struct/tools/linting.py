"""Lint: every finding about a schema that needs no data, with its position in a file.

Owns the entry points, the checks of two versions (gaps, reserved names, the proof of each migration) and of the lock
file, and comments that silence warnings. The checks of one version are in ``schema/lint/``. Unknown members and
malformed types are reported by ``schema/reading.py``.

A comment ``# nqx: ignore[NQX104]`` on the line of a warning silences it. Errors cannot be silenced: readers of the
schema rely on their absence.

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
import re
from collections.abc import Container, Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from neuralqx_struct.errors import Diagnostic, SchemaError, StructError, has_errors, shell_word
from neuralqx_struct.schema import text as limits
from neuralqx_struct.schema.comparisons import Compared
from neuralqx_struct.schema.lint import (
    ABOUT_KEYS,
    Findings,
    comments_in,
    finding,
    in_order,
    place_of,
    unused_comment,
    without_silenced,
)
from neuralqx_struct.schema.lint.document import ALL_CHECKS
from neuralqx_struct.schema.lock import LOCK_NAME, Edit, edit_since, read_lock
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.reading import parse_document
from neuralqx_struct.schema.series import (
    SchemaMissingError,
    Series,
    layout_files,
    load_series,
    refuse_bundle,
    schema_folders,
    undo_hint,
    version_files,
    warm_files,
)
from neuralqx_struct.schema.text import KeyPath, Source, path_keys
from neuralqx_struct.schema.text.loader import read_file
from neuralqx_struct.schema.uses import among, beside

__all__ = ["lint", "lint_document", "lint_series"]

# ---------------------------------------------------------------------------------------------------------------------
# Entry points.


def lint(path: str | Path, *, tries: int | None = None) -> Compared:
    """Checks a schema file, a folder with the versions of one schema, or a folder of such folders.

    Args:
        path: The file or folder. A file is checked by itself, without the versions beside it.
        tries: How many payloads are tried for each two versions; by default 12.

    Returns:
        Every finding, by file and line; files that cannot be read are findings too. The attribute ``comparisons`` has the
        number of payloads that were tried.

    Raises:
        SchemaMissingError: There is nothing at ``path``.

    Example:
        >>> lint("schemas/transformer")
        []
    """
    where = Path(path)
    if not where.exists():
        raise SchemaMissingError.at(path)
    found = Compared()
    try:
        refuse_bundle(where)
    except SchemaError as error:
        found += error.diagnostics
        return found
    if where in _files_beside(where.parent.parent):
        found += _lint_beside(where.parent.parent, [where])
        return found
    folders = schema_folders(where)
    if folders != [where]:
        for folder in folders:
            own = lint(folder, tries=tries)
            found += own
            found.comparisons += own.comparisons
        found[:] = in_order(found)
        return found
    try:
        found = lint_series(load_series(where), tries=tries)
        if not has_errors(found):
            found += _lint_beside(where, _files_beside(where))
    except SchemaError as error:
        broken = {d.file for d in error.diagnostics}
        found[:] = in_order({*error.diagnostics, *_readable_parts(where, broken)})
    return found


def _files_beside(folder: Path) -> list[Path]:
    """The layouts and the rules of warm starts of a schema folder."""
    return [*layout_files(folder).values(), *warm_files(folder).values()]


def _lint_beside(folder: Path, paths: Iterable[Path]) -> list[Diagnostic]:
    """The findings about layouts and rules of warm starts of a schema folder."""
    if not paths:
        return []  # spares the imports
    from neuralqx_struct.layouts.lint import lint_layout
    from neuralqx_struct.layouts.warm_rules import lint_rules

    series = load_series(folder)
    warm = [*warm_files(folder).values()]
    return [
        found
        for path in paths
        for found in (lint_rules if path in warm else lint_layout)(path, series)
    ]


def lint_series(series: Series, *, tries: int | None = None) -> Compared:
    """Checks every version of a schema, and each version against the one before it.

    Args:
        series: The versions, as ``load_series`` read them.
        tries: How many payloads are tried for each two versions; by default 12.

    Returns:
        Every finding, by file and line, and the comparisons.
    """
    compared = Compared()
    sources = {version: _source(series, version) for version in series.documents}
    found: list[Diagnostic] = []
    without_errors: set[int] = set()
    for version, source in sources.items():
        own = _findings(series.documents[version], source)
        if not has_errors(own):
            without_errors.add(version)
        found += own
        found += _located(_check_file_name(source, version), source)
    for older, newer in pairwise(series.documents.values()):
        pair = [*_check_gap(older, newer), *_check_reserved(older, newer)]
        neighbours = newer.version == older.version + 1
        if neighbours and {older.version, newer.version} <= without_errors:
            own = _check_migration(older, newer, series, tries)
            pair += own
            compared.comparisons += own.comparisons
        found += _located(pair, sources[newer.version])
    comments = comments_in(sources.values())
    kept = [*without_silenced(found, comments)]
    if not has_errors(kept):  # an error hides the findings that comments silence
        unused = comments.difference(map(place_of, found))
        kept += map(unused_comment, unused)
    if series.folder is not None:
        kept += _check_lock(series, series.folder)
    compared += in_order(dict.fromkeys(kept))
    return compared


def lint_document(document: Document, source: Source | None = None) -> list[Diagnostic]:
    """Checks one version by itself.

    Args:
        document: The document.
        source: The file it was read from, for the positions of the findings.

    Returns:
        Every finding, with the warnings of the reader of the file.
    """
    source = source or Source(f"{document.id}@{document.version}")
    found = _findings(document, source)
    return in_order(without_silenced(found, comments_in([source])))


def _findings(document: Document, source: Source) -> list[Diagnostic]:
    """The findings about one version, also those that a comment silences."""
    most = limits.MAX_PROBLEMS
    errors: list[Diagnostic] = []
    others: list[Diagnostic] = []  # capped apart, so that warnings never hide an error
    checks = (*ALL_CHECKS, _check_used)
    for each in (found for check in checks for found in check(document)):
        (errors if each.severity == "error" else others).append(each)
        if len(errors) == most:
            message = f"expected fewer than {most} errors, got {most} or more"
            errors.append(finding("NQX005", (), message, limits.FIX_THESE_FIRST))
            break
    else:
        if len(others) > most:
            message = f"expected at most {most} warnings, got {len(others)}"
            hint = "the others are not listed"
            errors.append(finding("NQX005", (), message, hint, "warning"))
    return [*source.warnings, *_located([*errors, *others[:most]], source)]


def _check_used(document: Document) -> Findings:
    """Errors in the declarations that one uses: a load builds their classes too; proofs judge their migrations."""
    checked = set()
    for index, ref in enumerate(document.uses_refs):
        used = document.used.get(ref.id)
        for each in () if used is None else used.closure():
            ref_text = f"{each.id}@{each.version}"
            if ref_text in checked:
                continue
            checked.add(ref_text)
            for found in (problem for check in ALL_CHECKS for problem in check(each)):
                if found.severity == "error" and not found.path.startswith("$.migrations"):
                    message = f"{found.message}\n{found.path} of {ref_text}"
                    yield replace(found, path=f"$.uses[{index}]", message=message)


def _source(series: Series, version: int) -> Source:
    return series.sources.get(version) or Source(f"{series.id}@{version}")


def _located(found: Iterable[Diagnostic], source: Source) -> Iterator[Diagnostic]:
    """Yields the findings with the line and column of their paths."""
    for each in found:
        try:
            yield source.located(each, key=each.code in ABOUT_KEYS)
        except StructError:  # the path of a step is not one of the document
            block = source.located(replace(each, path="$.migrations"))
            yield replace(block, path=each.path)


# ---------------------------------------------------------------------------------------------------------------------
# Folders and files that cannot be read as a whole.


def _readable_parts(where: Path, broken: Container[str | None]) -> Iterator[Diagnostic]:
    """Yields the findings in the other files of a broken series, and in the valid fields of a broken file."""
    for file in version_files(where) if where.is_dir() else [where]:
        if str(file) in broken and file.stat().st_size > limits.MAX_SECOND_LOOK:
            continue
        try:
            source = read_file(file)
        except SchemaError:
            continue  # these errors are known
        try:
            yield from lint_document(parse_document(source), source)
        except SchemaError as error:
            yield from _rest(source, error)


#: Errors of one field that do not depend on other parts of the file; the second set depends on the members of enums.
_OF_ONE_FIELD = {
    *("NQX101", "NQX102", "NQX107", "NQX108", "NQX110", "NQX111", "NQX113", "NQX115", "NQX118", "NQX125")
}  # fmt: skip
_OF_MEMBERS = {"NQX107", "NQX115"}
# In place of malformed declarations that types may name.
_STAND_INS = {"enums": ["unknown"], "dtypes": ["float32"]}


def _rest(source: Source, error: SchemaError) -> Iterator[Diagnostic]:
    """Yields the findings in the valid fields of a file that has malformed parts."""
    data: Any = copy.deepcopy(source.data)
    reported = _OF_ONE_FIELD
    for found in error.diagnostics:
        *holders, name = _removable(path_keys(found.path), found.code) or [None]
        if name is None:
            return
        holder = data
        for part in holders:
            holder = holder.get(part, {}) if isinstance(holder, dict) else {}
        if isinstance(holder, dict):
            holder.pop(name, None)
            if holders and holders[0] in _STAND_INS and found.code != "NQX118":
                holder[name] = _STAND_INS[holders[0]]
                reported = reported - _OF_MEMBERS
    try:
        document = parse_document(replace(source, data=data))
    except SchemaError:
        return
    yield from (d for d in lint_document(document, source) if d.code in reported)


def _removable(path: KeyPath, code: str) -> KeyPath | None:
    """The path of the part to remove with an error at ``path``; None if other parts need it."""
    match path:
        case ("structs", _, "fields", _, *_):
            return path[:4]
        case ("structs", _, "constraints", *_):
            return path[:3]
        case ("structs", _) if code == "NQX118":
            return path
        case ("dims" | "enums" | "dtypes", _, *_):
            return path[:2]
        case ("migrations", *_):
            return path[:1]
        case _:
            return path if code == "NQX009" else None


# ---------------------------------------------------------------------------------------------------------------------
# Checks of two versions, and of files.


def _check_gap(older: Document, newer: Document) -> Findings:
    if newer.version != older.version + 1:
        missing = ", ".join(map(str, range(older.version + 1, newer.version)))
        message = f"expected every version up to {newer.version}, got none between {older.version} and {newer.version}"
        yield finding("NQX301", ("version",), message, f"add the file of version {missing}")


def _check_migration(
    older: Document, newer: Document, series: Series, tries: int | None
) -> Compared:
    """Checks the steps between two valid versions, and the versions of the schemas that they use."""
    # Imported late: evolution is slow to import, and most schemas have one version.
    from neuralqx_struct.evolution.proof import prove
    from neuralqx_struct.evolution.refusals import stops
    from neuralqx_struct.evolution.trial import IN_LINT, Effort

    made = Compared()
    made += prove(older, newer)
    if newer.uses:
        from neuralqx_struct.evolution import compatibility

        find = beside(series.folder) if series.folder else among(())
        made += compatibility.skew_within(newer)
        made += compatibility.skew_between(older, newer, find)
    effort = IN_LINT if tries is None else Effort.of(tries)
    found, comparisons = stops(series, older, newer, made, effort)
    made += found
    made.comparisons += comparisons
    return made


def _check_reserved(older: Document, newer: Document) -> Findings:
    """Checks that removed fields are reserved, and that reserved names stay so."""
    new_names = {alias: name for name, struct in newer.structs.items() for alias in struct.aliases}
    moved: set[str] = set()
    if newer.migrations:
        # Imported late: evolution is slow to import, and most schemas have one version.
        from neuralqx_struct.evolution.steps import kind

        steps: list[Any] = [item.step for each in newer.migrations for item in each.steps]
        moved.update(name for step in steps for name in kind(step).carried(step))
        new_names |= {step.struct: step.to for step in steps if kind(step).renames_struct}
    for struct in newer.structs.values():
        moved.update(*(declaration.aliases for declaration in struct.fields.values()))
    for old_name, old in older.structs.items():
        name = old_name if old_name in newer.structs else new_names.get(old_name, "")
        if name not in newer.structs:
            continue
        new, path = newer.structs[name], ("structs", name)
        reserved = {*new.reserved}
        for word in old.reserved:
            if word in reserved:
                continue
            if word in new.fields:
                message = f"expected a name that is not reserved, got {word!r}\nversion {older.version} reserves it"
                yield finding("NQX205", (*path, "fields", word), message, "choose another name")
            else:
                message = (
                    f"expected the reserved names of version {older.version}, got none for {word!r}"
                )
                hint = f"add {word} to `reserved:`"
                yield finding("NQX206", (*path, "reserved"), message, hint)
        for word in old.stored.keys() - new.fields.keys() - reserved - moved:
            message = f"expected the removed field {word} to be reserved, got no such entry"
            hint = f"add {word} to `reserved:`, so that it cannot come back with another meaning"
            yield finding("NQX201", path, message, hint, "warning")


def _check_file_name(source: Source, version: int) -> Findings:
    named = re.fullmatch(r"v(\d+)(\.struct)?", Path(source.name).stem)
    if named and int(named[1]) != version:
        message = f"expected version {int(named[1])}, as the file is named, got {version}"
        hint = f"rename the file to v{version}"
        yield finding("NQX303", ("version",), message, hint, "warning")


def _check_lock(series: Series, folder: Path) -> Iterator[Diagnostic]:
    """Checks that frozen versions are there and were not edited, and that the newest one is frozen."""
    try:
        lock = read_lock(folder)
    except SchemaError as error:
        yield from error.diagnostics
        return
    is_whole = len(series.sources) == len(version_files(folder))
    refused = False
    for version, entry in lock.items():
        if version not in series.documents:
            if is_whole:
                refused = True
                message = f"expected the file of the frozen version {version}, got none"
                file = str(folder / LOCK_NAME)
                yield Diagnostic("NQX291", "error", message, file=file, hint="restore the file")
            continue
        edit = edit_since(series.documents[version], entry)
        if edit.parts:
            refused |= not edit.corrects
            yield from _located([_edited(series, version, edit)], _source(series, version))
    head = series.head.version
    # A schema without a lock file is under development.
    if lock and is_whole and not refused and head not in lock:
        message = f"expected the newest version to be frozen, got version {head}, which is not"
        hint = f"once checkpoints of it exist: `neuralqx-struct schema freeze {shell_word(folder)}`"
        found = finding("NQX295", ("version",), message, hint, "info")
        yield from _located([found], _source(series, head))


def _edited(series: Series, version: int, edit: Edit) -> Diagnostic:
    """The finding about a frozen version that was edited."""
    parts = " and ".join(edit.parts)
    if edit.corrects:
        message = f"expected version {version} as it was frozen, got one with another {parts}\na frozen version may correct these"
        folder = shell_word(series.folder)
        hint = f"`neuralqx-struct schema freeze {folder}` writes the correction into the lock file"
        return finding("NQX294", ("version",), message, hint, "info")
    message = f"expected version {version} as it was frozen, got one that was edited\nthe edit changes the meaning of {parts}"
    return finding("NQX291", ("version",), message, undo_hint(series))
