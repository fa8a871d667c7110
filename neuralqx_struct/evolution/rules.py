"""Compatibility: would the new version of a schema still read old payloads, and the old version new ones?

Owns :func:`verdict`, with the seven modes of Confluent's Schema Registry under their names: ``backward`` the new version
reads payloads of the one before, ``forward`` the one before reads payloads of the new version, ``full`` both,
``-transitive`` the same against every earlier version, ``none``. A verdict is what the resolver itself would say
(``plans.py``), so it cannot promise what loading does not keep.

Example:
    >>> verdict(v2, v3, "backward")
    []
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import get_args

from neuralqx_struct.errors import Diagnostic, MigrationError, SchemaError
from neuralqx_struct.evolution.diff import diff_documents
from neuralqx_struct.evolution.differences import Difference, differences
from neuralqx_struct.evolution.plans import Unknown, plan
from neuralqx_struct.evolution.proof import resolved
from neuralqx_struct.schema.fingerprint import full_fingerprint, payload_fingerprint
from neuralqx_struct.schema.model import Compatibility, Document
from neuralqx_struct.schema.series import Series, series_of

__all__ = ["MODES", "verdict"]

#: The modes: which directions must work. Each also with ``-transitive``: against all versions, not the latest alone.
MODES: Mapping[str, tuple[str, ...]] = {
    "none": (),
    "backward": ("backward",),
    "forward": ("forward",),
    "full": ("backward", "forward"),
}


def verdict(
    old: Document | Series | Iterable[Document],
    new: Document | Series,
    mode: str | None = None,
    *,
    unknown: Unknown = "error",
    steps: bool = True,
) -> list[Diagnostic]:
    """Judge a new version against earlier ones.

    Args:
        old: The earlier versions, or one of them.
        new: The version to judge; of a Series its newest, while the others must be what they were.
        mode: One of Confluent's seven; by default what the new version says of itself.
        unknown: The load policy for stored fields that a reader lacks; Confluent's table is that of ``drop``.
        steps: Count declared steps. Without them each pair of versions is judged alone, by aliases, defaults and exact
            promotion.

    Returns:
        Empty if compatible. Otherwise every finding: which version cannot read which, where, why, and the step that
        would mend it.

    Raises:
        SchemaError: ``mode`` is unknown.

    Example:
        >>> verdict(series, v3, "full-transitive")
        []
    """
    head = new.head if isinstance(new, Series) else new
    mode = mode or head.compatibility
    directions = MODES.get(mode.removesuffix("-transitive"))
    if directions is None or mode == "none-transitive":
        raise SchemaError(f"expected one of {', '.join(get_args(Compatibility))}, got {mode!r}", code="NQX010")
    earlier = sorted(_documents(old), key=lambda document: -document.version)
    others = [document for document in earlier if document.id != head.id]
    if others:
        message = f"expected versions of {head.id}, got one of {others[0].id}"
        return [Diagnostic("NQX283", "error", message, path="$.schema")]
    news = {document.version: document for document in _documents(new)}
    found = [*_edited(earlier, news)] if directions else []
    before = [document for document in earlier if document.version != head.version]
    judged = before if mode.endswith("-transitive") else before[:1]
    known = series_of([*news.values(), *(document for document in earlier if document.version not in news)])
    for direction in directions:
        for document in judged:
            writer, reader = (document, head) if direction == "backward" else (head, document)
            problems = _by_steps(known, writer, reader, unknown) if steps else _alone(writer, reader, head, unknown)
            found += [_told(problem, direction, writer, reader) for problem in problems]
    return list(dict.fromkeys(found))


def _documents(source: Document | Series | Iterable[Document]) -> list[Document]:
    if isinstance(source, Document):
        return [source]
    return list(source.documents.values()) if isinstance(source, Series) else list(source)


def _edited(earlier: Sequence[Document], news: Mapping[int, Document]) -> Iterable[Diagnostic]:
    """Versions that mean something else than they did: no step can tell their payloads apart."""
    for document in earlier:
        now = news.get(document.version)
        if now is None or full_fingerprint(now) == full_fingerprint(document):
            continue
        if payload_fingerprint(now) != payload_fingerprint(document):
            first = next(iter((*differences(now, document), *differences(document, now))), None)
            where = "" if first is None else f"\n{'.'.join(map(str, first.path))}: {first.message}"
            message = f"expected version {document.version} to be what it was, got another content{where}"
            hint = (
                f"give the changed schema the version {document.version + 1}, and a migration from {document.version};"
                " `neuralqx-struct schema revision` writes both"
            )
            yield Diagnostic("NQX290", "error", message, path="$.version", hint=hint)
        else:
            message = f"expected version {document.version} to be what it was, got edited text; payloads stay readable"
            yield Diagnostic(
                "NQX291", "warning", message, path="$.version", hint="add a version instead of editing one"
            )


def _told(problem: Diagnostic, direction: str, writer: Document, reader: Document) -> Diagnostic:
    why = f"{direction}: version {reader.version} cannot read payloads of version {writer.version}"
    return replace(problem, severity="error", message=f"{problem.message}\n{why}")


def _by_steps(known: Series, writer: Document, reader: Document, unknown: Unknown) -> list[Diagnostic]:
    try:
        way = plan(known, writer.version, reader.version, unknown=unknown)
    except (MigrationError, SchemaError) as error:
        return list(error.diagnostics)
    found: list[Diagnostic] = []
    for hop in way.hops:
        # A downgrade may still be refused by the data, where the newer version allows more values.
        result = hop.stages[-1].after if hop.stages else hop.old
        found += [problem.to_diagnostic("NQX307") for problem in differences(result, hop.new)]
    return found


def _alone(writer: Document, reader: Document, head: Document, unknown: Unknown) -> list[Diagnostic]:
    """The verdict on two documents without any steps: Avro's resolution, with exact promotion alone."""
    problems = resolved(writer, reader, drop=unknown != "error").problems
    old = writer if reader is head else reader
    codes: dict[str, str] = {}
    for change in diff_documents(old, head):
        if change.direction != "none":
            codes.setdefault(change.path, change.code)
    return [_coded(problem, codes, backward=reader is head) for problem in problems]


def _coded(problem: Difference, codes: Mapping[str, str], *, backward: bool) -> Diagnostic:
    fallback = ("NQX202" if backward else "NQX203") if problem.missing else "NQX415" if problem.extra else "NQX210"
    found = problem.to_diagnostic(fallback)
    return found if problem.extra else replace(found, code=codes.get(found.path, fallback))
