"""Compatibility: would the new version of a schema still read old payloads, and the old version new ones?

Contains :func:`verdict`, which judges versions by a mode of ``schema/migration.py``, and :func:`breaking`, the command for CI:
it compares the schemas of a folder with earlier ones and applies waivers. A verdict uses the same plans as loading
(``plans.py``), so it predicts loading exactly.

Example:
    >>> verdict(v2, v3, "backward")
    []

:func:`skew_within` and :func:`skew_between` check the schemas inside schemas: do the versions under ``uses:`` fit
together, and is there a way between them? Lint reports the answers (NQX316). When a schema moves from ``lab.optim@2`` to
``lab.optim@4``, loading runs the steps of ``lab.optim`` first; these checks find beforehand whether they are there. How
documents are found is for ``schema/uses.py``, how they are applied for ``plans.py``.

    >>> [*skew_within(v3)], [*skew_between(v2, v3, lambda identity, version: None)]
    ([], [])
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from neuralqx_struct.errors import (
    Diagnostic,
    MigrationError,
    SchemaError,
    StructError,
    has_errors,
)
from neuralqx_struct.evolution.against import (
    Accepted,
    Baseline,
    baseline,
    is_schema_folder,
    schemas_below,
    with_moved,
)
from neuralqx_struct.evolution.diff import diff_documents
from neuralqx_struct.evolution.differences import differences
from neuralqx_struct.evolution.plans import Unknown, plan
from neuralqx_struct.evolution.refusals import Reading, held_structs, unread_structs
from neuralqx_struct.evolution.suggestions import explained
from neuralqx_struct.evolution.trial import IN_VERDICTS, Effort
from neuralqx_struct.manifest import Limits
from neuralqx_struct.printing import listed
from neuralqx_struct.schema.comparisons import Compared, Comparison
from neuralqx_struct.schema.lint import Findings, finding
from neuralqx_struct.schema.lock import edit_since, lock_entry, payload_fingerprint, same_payloads
from neuralqx_struct.schema.migration import MODES
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.series import Series, series_of, undo_hint
from neuralqx_struct.schema.uses import Find

_MOST = 1000  # versions that are looked for between two


def skew_within(document: Document) -> Findings:
    """Yields findings about two versions of one schema in one document, whose payloads would be confused."""
    for index, use in enumerate(document.uses_refs):
        identity, version = use.id, use.version
        for other in document.closure():
            within = other.used.get(identity)
            if other is not document and within is not None and within.version != version:
                message = (
                    f"expected one version of {identity}, got {version} here and {within.version}\n"
                    f"{other.id}@{other.version} uses {identity}@{within.version}"
                )
                hint = f"use {identity}@{within.version} here too, or a version of {other.id} that uses {use}"
                yield finding("NQX316", ("uses", index), message, hint)


def skew_between(older: Document, newer: Document, find: Find) -> Findings:
    """Yields findings about used schemas whose version changed without steps between the versions."""
    before = older.used_versions
    for index, use in enumerate(newer.uses_refs):
        identity, end = use.id, use.version
        start = before.get(identity, end)
        low, high = sorted((start, end))
        if low == high or identity not in newer.used or identity not in older.used:
            continue
        known = {start: older.used[identity], end: newer.used[identity]}
        try:
            between = [find(identity, number) for number in range(low + 1, min(high, low + _MOST))]
            known |= {document.version: document for document in between if document is not None}
            held = held_structs(newer, known[end])
            for hop in plan(series_of(known.values()), start, end).hops:
                refused = [*unread_structs(hop.result, hop.new, "error", held)]
                if refused and start < end:
                    raise MigrationError(refused)
        except StructError as error:
            first, *others = error.diagnostics
            more = f"\nand {len(others)} more problems" if others else ""
            message = f"expected a way for {identity} from version {start} to {end}, got none\n{first.message}{more}"
            hint = first.remedy or f"add the missing file of {identity}"
            yield finding("NQX316", ("uses", index), message, hint)


# ---------------------------------------------------------------------------------------------------------------------
# The verdict on one version.


def verdict(
    old: Document | Series | Iterable[Document],
    new: Document | Series,
    mode: str | None = None,
    *,
    unknown: Unknown = "error",
    steps: bool = True,
    tries: int | None = None,
) -> Compared:
    """Judges a new version against earlier ones.

    Args:
        old: The earlier versions, or one of them.
        new: The version to judge; of a Series its newest, while the others must be unchanged.
        mode: One of Confluent's seven; by default the one that the new version declares.
        unknown: The load policy for stored fields that a reader lacks; Confluent's table is that of ``drop``.
        steps: Count declared steps. Without them each pair of versions is judged alone, by aliases, defaults and exact
            promotion.
        tries: How many payloads are tried for each two versions and direction; by default 25.

    Returns:
        Empty if compatible. Otherwise every finding: which version cannot read which, where, why, and the step that
        would resolve it. Warnings are about what only payloads with something empty, or without an entry that a step
        names, meet, and members of enums that become the default. The attribute ``comparisons`` has the number of payloads that were tried.

    Raises:
        SchemaError: ``mode`` is unknown.

    Example:
        >>> verdict(series, v3, "full-transitive")
        []
    """
    own = new if isinstance(new, Series) else Series(new.id, {new.version: new})
    head = own.head
    chosen = MODES.get(mode or head.compatibility)
    if chosen is None:
        raise SchemaError(f"expected one of {', '.join(MODES)}, got {mode!r}", code="NQX010")
    earlier = {document.version: document for document in _documents(old)}
    found = Compared()
    for document in earlier.values():
        if document.id != head.id:
            message = f"expected versions of {head.id}, got one of {document.id}"
            found.append(Diagnostic("NQX283", "error", message, path="$.schema"))
            return found
    if not chosen.directions:
        reason = f"the mode {chosen.name} asks for nothing"
        found.comparisons.append(Comparison(head.id, None, head.version, reason=reason))
        return found
    found += _edited(own, {v: lock_entry(document) for v, document in earlier.items()}, earlier)
    others = sorted(earlier.keys() - {head.version}, reverse=True)
    judged_ones = others if chosen.transitive else others[:1]
    known = own.merged(earlier.values())
    # Payloads of a version that was edited are refused, whatever the steps are.
    edited = {v for v, d in earlier.items() if not same_payloads(d, known.at(v))}
    effort = IN_VERDICTS if tries is None else Effort.of(tries)
    for direction in chosen.directions if head.version not in edited else ():
        for version in judged_ones:
            if version in edited:
                continue
            writer, reader = head, earlier[version]
            if direction == "backward":
                writer, reader = reader, writer
            pair = f"version {reader.version} cannot read payloads of version {writer.version}"
            problems, comparison = _judged_pair(
                known, writer, reader, unknown, steps=steps, effort=effort
            )
            found.comparisons.append(comparison)
            for each in problems:
                # Members of an enum that become its default are read, with another meaning.
                is_read = each.code == "NQX250"
                text = each.message if is_read else f"{each.message}\n{direction}: {pair}"
                found.append(replace(each, message=text))
    if not found.comparisons:
        before = None if edited else head.version
        reason = "it was edited" if edited else "it is unchanged"
        comparison = Comparison(head.id, before, head.version, not edited, reason=reason)
        found.comparisons.append(comparison)
    found[:] = dict.fromkeys(found)
    return found


def _judged_pair(
    known: Series,
    writer: Document,
    reader: Document,
    unknown: Unknown,
    *,
    steps: bool,
    effort: Effort,
) -> tuple[list[Diagnostic], Comparison]:
    """The reasons why payloads of one version cannot be loaded by another one, and how they were compared."""
    if not steps:
        alone = [each.model_copy(update={"migrations": []}) for each in (writer, reader)]
        documents = {each.version: each for each in sorted(alone, key=lambda each: each.version)}
        known, (writer, reader) = replace(known, documents=documents), alone
    reading = Reading(known, writer, reader, unknown, explain=explained)
    reading.compare()
    tried = reading.tried(effort)
    return [*reading.found, *reading.limits, *tried], reading.comparison


def _documents(source: Document | Series | Iterable[Document]) -> Iterable[Document]:
    if isinstance(source, Document):
        return [source]
    return source.documents.values() if isinstance(source, Series) else source


def _edited(
    series: Series, published: Mapping[int, Mapping[str, str]], documents: Mapping[int, Document]
) -> Iterator[Diagnostic]:
    """Yields findings about versions that were edited since: no step can tell their payloads apart."""
    for version, entry in published.items():
        now = series.documents.get(version)
        if now is None or not (edit := edit_since(now, entry)).parts:
            continue
        wanted = f"expected version {version} as it was published"
        hint = undo_hint(series)
        if payload_fingerprint(now) == entry["payload"]:
            got = f"another {' and '.join(edit.parts)}" if edit.corrects else "edited text"
            hint = "fine: a published version may correct these" if edit.corrects else hint
            message = f"{wanted}, got {got}; payloads stay readable"
            found = Diagnostic("NQX291", "warning", message, path="$.version", hint=hint)
        else:
            message = f"{wanted}, got one that declares something else"
            before = documents.get(version)
            for first in differences(now, before)[:1] if before is not None else ():
                message += f"\n{'.'.join(first.path)}: {first.message}"
            found = Diagnostic("NQX290", "error", message, path="$.version", hint=hint)
        source = series.sources.get(version)
        yield found if source is None else source.located(found)


# ---------------------------------------------------------------------------------------------------------------------
# The verdict on all schemas of a folder.


def breaking(
    path: str | Path = "schemas",
    *,
    against: str | Path | Baseline,
    mode: str | None = None,
    unknown: Unknown = "error",
    category: Literal["payload", "manifest"] = "payload",
    waivers: str | Path | None = None,
    tries: int | None = None,
    limits: Limits | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Compared:
    """The changes of schemas that break reading payloads of earlier versions, or earlier readers.

    Args:
        path: A schema file, a schema folder, or a folder of them.
        against: The earlier schemas: a path, ``git:REVISION``, a lock file, or a bundle, also behind a URL.
        mode: One of Confluent's seven; by default the one that each schema declares.
        unknown: The load policy to judge by, as for :func:`~neuralqx_struct.load`.
        category: ``payload`` asks whether payloads can be read; ``manifest`` also for changes that other readers of
            manifests would notice, such as tags and kinds.
        waivers: A file of waivers; by default ``waivers.yaml`` beside the schemas' folders, if it is there.
        tries: How many payloads are tried for each two versions and direction; by default 25.
        limits: Sizes above which a bundle is refused.
        storage_options: Options of fsspec for the URL of a bundle, such as keys.

    Returns:
        Findings with their places; those that a waiver covers are of severity ``info``. Empty if nothing breaks. The
        attribute ``comparisons`` names the versions that were compared, and the schemas that are new; if nothing was
        compared, that is a warning.

    Raises:
        SchemaError: The schemas, the reference or the waivers cannot be read; ``mode`` is unknown.

    Example:
        >>> breaking("schemas/vmc_state", against="tests/golden/format-1/vmc_state_1", mode="full")
        []
    """
    path = Path(path)
    if unknown not in ("error", "warn", "drop") or category not in ("payload", "manifest"):
        got = f"{unknown!r} and {category!r}"
        raise ValueError(f"breaking(): expected a known policy and category, got {got}")
    before = against
    if not isinstance(before, Baseline):
        before = baseline(str(against), path, limits=limits, storage_options=storage_options)
    now = schemas_below(path)
    before = with_moved(before, path, now)
    accepted = Accepted.read(path, waivers)
    found = Compared()
    for identity, series in now.items():
        source = series.sources.get(series.head.version)
        own = _judged(before, series, category, mode=mode, unknown=unknown, tries=tries)
        found.comparisons += own.comparisons
        for each in own:
            located = each if source is None or each.file else source.located(each)
            found.append(accepted.waived(located, identity))
    whole = path.is_dir() and not is_schema_folder(path)  # one schema need not be all there are
    for identity in before.series if whole or before.series.keys().isdisjoint(now) else ():
        if identity not in now:
            message = f"expected the schema {identity}, which {before.name} has, got {listed(now)}"
            hint = "keep its files and its identity: payloads need them to be read"
            gone = Diagnostic("NQX404", "error", message, file=str(path), hint=hint)
            found.append(accepted.waived(gone, identity))
    found += accepted.unused(now)
    is_known = before.locked or before.series.keys() & now.keys()
    if not is_known and not has_errors(found):
        message = f"expected an earlier version of {listed(now)}, got none at {before.name}"
        hint = "fine for new schemas; else compare with a revision, folder or bundle that has them"
        found.append(Diagnostic("NQX296", "warning", message, file=str(path), hint=hint))
    return found


def _judged(before: Baseline, series: Series, category: str, **options: Any) -> Compared:
    """The findings about one schema."""
    found, reader = Compared(), series.head.version
    for version in before.locked.keys() - series.documents.keys():
        message = f"expected the file of the frozen version {version}, got none"
        hint = "restore the file: payloads need it to be read"
        found.append(Diagnostic("NQX291", "error", message, hint=hint))
    found += _edited(series, before.locked, {})
    earlier = before.series.get(series.id)
    if earlier is None:
        is_frozen = reader in before.locked and not has_errors(found)
        reason = "a lock file has only fingerprints" if before.locked else "it is new"
        writer = reader if is_frozen else None
        found.comparisons.append(Comparison(series.id, writer, reader, is_frozen, reason=reason))
        return found
    own = verdict(earlier, series, **options)
    found += own
    found.comparisons += own.comparisons
    for change in diff_documents(earlier.head, series.head):
        if change.code == "NQX292":
            found.append(change.to_diagnostic())
        elif category == change.category == "manifest" and change.severity != "info":
            hint = "readers of manifests see it; waive it with a reason"
            found.append(replace(change.to_diagnostic(hint), severity="error"))
    return found
