"""Migrations: bringing payloads to the version that their reader wants.

Every reader calls :func:`resolve`, which goes version by version (``plans.py``). Payloads are never changed: results share every
array that no step touches, and compute the others when they are asked for.

Example:
    >>> from neuralqx_struct import bundle
    >>> payload = resolve(bundle.read("tests/golden/format-1/vmc_state_1"), series)
    >>> payload.document["schema"]["version"]
    3
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from neuralqx_struct.errors import (
    Diagnostic,
    Hint,
    Keyword,
    MigrationError,
    closest_version,
)
from neuralqx_struct.evolution.diff import edited_version
from neuralqx_struct.evolution.differences import Difference
from neuralqx_struct.evolution.plans import Plan, Unknown, apply, plan, without_unknown
from neuralqx_struct.manifest.payload import Payload
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.series import Series, carried_series
from neuralqx_struct.schema.stamping import stamped


def resolve(
    payload: Payload,
    series: Series | None = None,
    *,
    to: int | str = "head",
    unknown: Unknown = "error",
    report: list[Diagnostic] | None = None,
    others: Iterable[Series] = (),
    trust: Iterable[str] = (),
) -> Payload:
    """Brings a payload to the version that its reader wants.

    Args:
        payload: As read from a bundle; not changed. A plain tree is read by the newest version that it conforms to.
        series: The reader's versions, which win; None for those that travel in the bundle.
        to: A version, ``"head"`` (the newest of the reader), or a negative number of versions to go back.
        unknown: Treatment of stored fields that the wanted version lacks: ``error``, ``warn`` or ``drop``.
        report: Receives a diagnostic for every value that is defaulted, dropped or cast.
        others: Schemas that this one uses; those in the bundle serve versions that they lack.
        trust: Packages whose functions ``python`` steps may run even where the bundle brought the steps.

    Returns:
        The payload itself if it is of that version already.

    Raises:
        MigrationError: NQX404 the payload's schema is another or unknown; NQX405 its version number is known, but meant
            something else; and everything that :func:`plan` and :func:`apply` raise.

    Example:
        >>> from neuralqx_struct import bundle
        >>> resolve(bundle.read("tests/golden/format-1/vmc_state_1"), series, to=2).document["schema"]["version"]
        2
    """
    return resolve_by_plan(
        payload, series, to=to, unknown=unknown, report=report, others=others, trust=trust
    )[0]


def resolve_by_plan(
    payload: Payload,
    series: Series | None,
    *,
    to: int | str,
    unknown: Unknown = "error",
    report: list[Diagnostic] | None = None,
    others: Iterable[Series] = (),
    trust: Iterable[str] = (),
) -> tuple[Payload, Plan]:
    """As :func:`resolve`, with the plan."""
    report = [] if report is None else report
    if series is not None and "schema" not in payload.document:
        payload = replace(payload, document=stamped(payload.document, series, report))
    carried = carried_series(payload.document)
    known = _known(payload.document, series, carried)
    written = payload.document["schema"]
    target = _target(to, written["version"], series or known, known)
    if target == written["version"]:
        return payload, Plan(known.id, target, target, ())
    rest = {**known.others, **{other.id: other for other in others}}
    used = {i: rest[i].merged(s.documents.values()) if i in rest else s for i, s in carried.items()}
    way = plan(known, written["version"], target, unknown=unknown, explain=with_hints)
    everything = {**rest, **used}
    result = apply(payload, way, others=everything, report=report, trust=trust)
    result = without_unknown(result, known.at(target), unknown, report)
    travels = [
        d.to_data()
        for s in [known, *(s for identity, s in everything.items() if identity != known.id)]
        for d in s.documents.values()
    ]
    document = {**result.document, "schemas": travels}
    return replace(result, document=document), way


def with_hints(old: Document, new: Document, left: list[Difference]) -> list[Difference]:
    """Differences with hints about steps that resolve them."""
    from neuralqx_struct.evolution.suggestions import explained  # most loads need none of it

    return explained(old, new, left)


def target_version(document: Mapping[str, Any], series: Series | None, to: int | str) -> int:
    """The version that :func:`resolve` would bring a payload to.

    Raises:
        MigrationError: As :func:`resolve`.
    """
    known = _known(document, series, carried_series(document))
    return _target(to, document["schema"]["version"], series or known, known)


def _known(
    document: Mapping[str, Any], series: Series | None, carried: Mapping[str, Series]
) -> Series:
    written = document.get("schema")
    if not isinstance(written, Mapping):
        raise MigrationError(
            "expected a payload that names its schema, got one without",
            code="NQX404",
            path="$.schema",
            hint="it was saved from plain Python objects; pass the schema of its tree, or load it with the class that wrote it",
        )
    return _known_versions(written, series, carried)


def _known_versions(
    written: Mapping[str, Any], series: Series | None, carried: Mapping[str, Series]
) -> Series:
    """Every version that the reader or the bundle knows, the reader's first, and the writer's checked."""
    identity, version = written["id"], written["version"]
    if series is not None and series.id != identity:
        raise MigrationError(
            f"expected a payload of {series.id}, got one of {identity}",
            code="NQX404",
            path="$.schema.id",
            hint=f"load it with the schema {identity}",
        )
    own = carried.get(identity)
    if series is None and own is None:
        raise MigrationError(
            f"expected the documents of {identity} in the bundle, got none",
            code="NQX404",
            path="$.schemas",
            hint=Hint("pass the schema, such as ", Keyword("schema", "schemas/...")),
        )
    known = own if series is None or own is None else series.merged(own.documents.values())
    known = series if known is None else known
    assert known is not None
    if version not in known.documents:
        raise MigrationError(
            f"expected one of the versions {', '.join(map(str, known.versions))} of {identity}, got {version}",
            code="NQX404",
            path="$.schema.version",
            hint="a newer release wrote this: upgrade, or ask for a bundle that holds its schema documents",
        )
    if not known.wrote(version, written["fingerprint"]):
        raise MigrationError(edited_version(written, known, own))
    return known


def _target(to: int | str, written: int, reader: Series, known: Series) -> int:
    if isinstance(to, str) and to.lstrip("-").isdecimal():
        to = int(to)
    if to == "head":
        return reader.versions[-1]
    if isinstance(to, bool) or not isinstance(to, int) or to == 0:
        raise MigrationError(
            f"expected a version, 'head' or a negative number, got {to!r}", code="NQX422"
        )
    if to > 0:
        if to in known.documents:
            return to
        versions = ", ".join(map(str, known.versions))
        message = f"expected one of the versions {versions} of {known.id}, got {to}"
        hint = f"did you mean {closest_version(to, known.versions)}? Otherwise add its file, or upgrade"
        raise MigrationError(message, code="NQX422", hint=hint)
    older = [version for version in known.versions if version < written]
    if -to > len(older):
        message = f"expected at least {-to} versions before {written}, got {len(older)}"
        hint = f"known versions of {known.id}: {', '.join(map(str, known.versions))}"
        raise MigrationError(message, code="NQX422", hint=hint)
    return older[to]
