"""Compatibility: would the new version of a schema still read old payloads, and the old version new ones?

Contains :func:`verdict`, which judges versions by a mode of ``schema/modes.py``, and :func:`breaking`, the command for CI:
it compares the schemas of a folder with earlier ones and applies waivers. A verdict uses the same plans as loading
(``plans.py``), so it predicts loading exactly.

A waiver accepts one finding for a reason that everybody can read. ``waivers.yaml`` is beside the schemas' folders::

    waivers:
      - {code: NQX415, schema: lab.net, path: $.structs.Net.fields.b, reason: version 2 was never released}

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

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StrictStr, ValidationError

from neuralqx_struct.errors import Diagnostic, MigrationError, SchemaError, StructError
from neuralqx_struct.evolution.against import Baseline, baseline, folder_of_schemas, schemas_below
from neuralqx_struct.evolution.diff import diff_documents
from neuralqx_struct.evolution.differences import Difference, differences
from neuralqx_struct.evolution.plans import Unknown, plan
from neuralqx_struct.evolution.proof import resolved, result_of
from neuralqx_struct.evolution.suggestions import explained
from neuralqx_struct.schema.lint import Findings, finding
from neuralqx_struct.schema.lock import full_fingerprint, lock_entry, payload_fingerprint
from neuralqx_struct.schema.migration import Declaration
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.modes import MODES
from neuralqx_struct.schema.series import Series, series_of
from neuralqx_struct.schema.text.loader import read_file
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
            plan(series_of(known.values()), start, end)
        except StructError as error:
            first, *others = error.diagnostics
            more = f"\nand {len(others)} more problems" if others else ""
            message = f"expected a way for {identity} from version {start} to {end}, got none\n{first.message}{more}"
            yield finding(
                "NQX316",
                ("uses", index),
                message,
                first.remedy or f"add the missing file of {identity}",
            )


WAIVERS_NAME = "waivers.yaml"

# ---------------------------------------------------------------------------------------------------------------------
# The verdict on one version.


def verdict(
    old: Document | Series | Iterable[Document],
    new: Document | Series,
    mode: str | None = None,
    *,
    unknown: Unknown = "error",
    steps: bool = True,
) -> list[Diagnostic]:
    """Judges a new version against earlier ones.

    Args:
        old: The earlier versions, or one of them.
        new: The version to judge; of a Series its newest, while the others must be unchanged.
        mode: One of Confluent's seven; by default the one that the new version declares.
        unknown: The load policy for stored fields that a reader lacks; Confluent's table is that of ``drop``.
        steps: Count declared steps. Without them each pair of versions is judged alone, by aliases, defaults and exact
            promotion.

    Returns:
        Empty if compatible. Otherwise every finding: which version cannot read which, where, why, and the step that
        would resolve it.

    Raises:
        SchemaError: ``mode`` is unknown.

    Example:
        >>> verdict(series, v3, "full-transitive")
        []
    """
    head = new.head if isinstance(new, Series) else new
    chosen = MODES.get(mode or head.compatibility)
    if chosen is None:
        raise SchemaError(f"expected one of {', '.join(MODES)}, got {mode!r}", code="NQX010")
    earlier = sorted(_documents(old), key=lambda document: -document.version)
    for document in earlier:
        if document.id != head.id:
            message = f"expected versions of {head.id}, got one of {document.id}"
            return [Diagnostic("NQX283", "error", message, path="$.schema")]
    if not chosen.directions:
        return []
    news = {document.version: document for document in _documents(new)}
    found = [*_edited(earlier, news)]
    before = [document for document in earlier if document.version != head.version]
    known = series_of([*news.values(), *(d for d in earlier if d.version not in news)])
    for direction in chosen.directions:
        for document in before if chosen.transitive else before[:1]:
            backward = direction == "backward"
            writer, reader = (document, head) if backward else (head, document)
            if steps:
                problems = _by_steps(known, writer, reader, unknown)
            else:
                problems = list(_alone(writer, reader, unknown, backward=backward))
            pair = f"version {reader.version} cannot read payloads of version {writer.version}"
            for each in problems:
                message = f"{each.message}\n{direction}: {pair}"
                found.append(replace(each, severity="error", message=message))
    return list(dict.fromkeys(found))


def _documents(source: Document | Series | Iterable[Document]) -> list[Document]:
    if isinstance(source, Document):
        return [source]
    return list(source.documents.values()) if isinstance(source, Series) else list(source)


def _edited(earlier: Sequence[Document], news: Mapping[int, Document]) -> Iterable[Diagnostic]:
    """Yields findings about versions that were edited: no step can tell their payloads apart."""
    for document in earlier:
        now, version = news.get(document.version), document.version
        if now is None or full_fingerprint(now) == full_fingerprint(document):
            continue
        if payload_fingerprint(now) == payload_fingerprint(document):
            message = f"expected version {version} to be what it was, got edited text; payloads stay readable"
            hint = "add a version instead of editing one"
            yield Diagnostic("NQX291", "warning", message, path="$.version", hint=hint)
            continue
        first = next(iter((*differences(now, document), *differences(document, now))), None)
        where = "" if first is None else f"\n{'.'.join(map(str, first.path))}: {first.message}"
        message = f"expected version {version} to be what it was, got another content{where}"
        hint = (
            f"give the changed schema the version {version + 1}, and a migration from {version};"
            " `neuralqx-struct schema revision` writes both"
        )
        yield Diagnostic("NQX290", "error", message, path="$.version", hint=hint)


def _by_steps(
    known: Series, writer: Document, reader: Document, unknown: Unknown
) -> list[Diagnostic]:
    try:
        hops = plan(known, writer.version, reader.version, unknown=unknown).hops
    except (MigrationError, SchemaError) as error:
        return list(error.diagnostics)
    found: list[Diagnostic] = []
    for hop in hops:
        # A downgrade may still be refused by the data, where the newer version allows more values.
        result = result_of(hop.stages, hop.old)
        problems = explained(result, hop.new, differences(result, hop.new))
        found += [problem.to_diagnostic("NQX307") for problem in problems]
    return found


def _alone(
    writer: Document, reader: Document, unknown: Unknown, *, backward: bool
) -> Iterator[Diagnostic]:
    """Yields the findings about two documents without any steps: Avro's resolution, with exact promotion alone."""
    old, new = (writer, reader) if backward else (reader, writer)
    codes: dict[str, str] = {}
    for change in diff_documents(old, new):
        if change.direction != "none":
            codes.setdefault(change.path, change.code)
    for problem in resolved(writer, reader, drop=unknown != "error").problems:
        found = problem.to_diagnostic("NQX415")
        if not problem.extra:
            code = _code(problem, backward=backward)
            found = replace(found, code=codes.get(found.path, code))
        yield found


def _code(problem: Difference, *, backward: bool) -> str:
    if not problem.missing:
        return "NQX210"
    return "NQX202" if backward else "NQX203"


# ---------------------------------------------------------------------------------------------------------------------
# The verdict on all schemas of a folder.


class Waiver(Declaration):
    """One finding that is accepted."""

    code: Annotated[str, Field(strict=True, pattern=r"^NQX\d{3}$")]
    reason: Annotated[str, Field(strict=True, min_length=1)]
    schema_id: StrictStr | None = Field(None, alias="schema")
    path: StrictStr | None = None

    def covers(self, finding: Diagnostic, identity: str) -> bool:
        """True if it is about a finding."""
        same_schema = self.schema_id in (None, identity)
        return self.code == finding.code and same_schema and self.path in (None, finding.path)


class _Waivers(Declaration):
    waivers: list[Waiver]


def breaking(
    path: str | Path = "schemas",
    *,
    against: str | Path,
    mode: str | None = None,
    unknown: Unknown = "error",
    category: Literal["payload", "manifest"] = "payload",
    waivers: str | Path | None = None,
) -> list[Diagnostic]:
    """The changes of schemas that break reading payloads of earlier versions, or earlier readers.

    Args:
        path: A schema file, a schema folder, or a folder of them.
        against: The earlier schemas: a path, ``git:REVISION``, a lock file, or a bundle.
        mode: One of Confluent's seven; by default the one that each schema declares.
        unknown: The load policy to judge by, as for :func:`~neuralqx_struct.load`.
        category: ``payload`` asks whether payloads can be read; ``manifest`` also for changes that other readers of
            manifests would notice, such as tags and kinds.
        waivers: A file of waivers; by default ``waivers.yaml`` beside the schemas' folders, if it is there.

    Returns:
        Findings with their places; those that a waiver covers are of severity ``info``. Empty if nothing breaks.

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
    before = baseline(str(against), path)
    now = schemas_below(path)
    accepted = _Accepted.read(path, waivers)
    found: list[Diagnostic] = []
    for identity, series in now.items():
        for judged in _judged(before, series, mode, unknown, category):
            source = series.sources.get(series.head.version)
            located = judged if source is None else source.located(judged)
            found.append(accepted.waived(located, identity))
    # One file need not be all schemas that there are.
    for identity in before.series if path.is_dir() and len(now) != 1 else ():
        if identity not in now:
            message = f"expected the schema {identity}, which {before.name} has, got none"
            hint = "keep its files: payloads need them to be read"
            gone = Diagnostic("NQX404", "error", message, file=str(path), hint=hint)
            found.append(accepted.waived(gone, identity))
    return [*found, *accepted.unused()]


def _judged(
    before: Baseline, series: Series, mode: str | None, unknown: Unknown, category: str
) -> Iterator[Diagnostic]:
    yield from _unfrozen(before.locked, series)
    earlier = before.series.get(series.id)
    if earlier is None:
        return
    yield from verdict(earlier, series, mode, unknown=unknown)
    for change in diff_documents(earlier.head, series.head):
        if change.code == "NQX292":
            yield change.to_diagnostic()
        elif category == change.category == "manifest" and change.severity != "info":
            hint = "readers of manifests see it; waive it with a reason"
            yield replace(change.to_diagnostic(hint), severity="error")


def _unfrozen(locked: Mapping[int, Mapping[str, str]], series: Series) -> Iterator[Diagnostic]:
    """Yields findings about frozen versions that are gone or were edited."""
    for version, frozen in locked.items():
        if version not in series.documents:
            message = f"expected the file of the frozen version {version}, got none"
            hint = "restore the file: payloads need it to be read"
            yield Diagnostic("NQX291", "error", message, hint=hint)
            continue
        entry = lock_entry(series.documents[version])
        wanted = f"expected version {version} as it was frozen"
        if entry["payload"] != frozen["payload"]:
            hint = f"undo the edit and make it version {series.head.version + 1}; `schema revision` does both"
            message = f"{wanted}, got one that payloads mean something else by"
            yield Diagnostic("NQX290", "error", message, path="$.version", hint=hint)
        elif entry["full"] != frozen["full"]:
            message, hint = (
                f"{wanted}, got edited text; payloads stay readable",
                "add a version instead",
            )
            yield Diagnostic("NQX291", "warning", message, path="$.version", hint=hint)


@dataclass
class _Accepted:
    """The waivers, and the positions of those that were needed."""

    file: str = ""
    waivers: tuple[Waiver, ...] = ()
    used: set[int] = field(default_factory=set)

    @classmethod
    def read(cls, path: Path, named: str | Path | None) -> _Accepted:
        # Every file in the folder of one schema is a version of it, so waivers are in the folder above.
        where = Path(named) if named is not None else folder_of_schemas(path) / WAIVERS_NAME
        if named is None and not where.is_file():
            return cls()
        source = read_file(where)
        try:
            return cls(str(where), tuple(_Waivers.model_validate(source.data).waivers))
        except ValidationError as error:
            hint = "waivers: [{code: NQX415, path: $.structs.A.fields.b, reason: never released}]"
            wanted = "expected waivers with a code and a reason"
            raise SchemaError(
                source.diagnostic("NQX010", each["loc"], f"{wanted}, got: {each['msg']}", hint=hint)
                for each in error.errors()
            ) from None

    def waived(self, finding: Diagnostic, identity: str) -> Diagnostic:
        """The finding, as information if a waiver covers it."""
        for position, waiver in enumerate(self.waivers):
            if waiver.covers(finding, identity):
                self.used.add(position)
                message = f"{finding.message}\nwaived: {waiver.reason}"
                return replace(finding, severity="info", message=message)
        return finding

    def unused(self) -> Iterator[Diagnostic]:
        """Yields findings about waivers that are no longer needed."""
        for position, waiver in enumerate(self.waivers):
            if position not in self.used:
                message = f"expected a finding {waiver.code} for the waiver, got none"
                at = f"$.waivers[{position}]"
                yield Diagnostic("NQX293", "warning", message, at, self.file, hint="remove it")
