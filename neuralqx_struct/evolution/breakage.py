"""Breaking changes: would schemas as they are now make earlier payloads unreadable? The question that CI asks.

Owns :func:`breaking`: which schema is compared with which, findings with their places in files, the category
``manifest``, and waivers. What is compatible is decided by ``rules.py``; what a reference means by ``baselines.py``.

A waiver accepts one finding for a reason that everybody can read. They stand in ``waivers.yaml`` beside the schemas' folders::

    waivers:
      - {code: NQX415, schema: lab.net, path: $.structs.Net.fields.b, reason: version 2 was never released}

Example:
    >>> breaking("schemas", against="schemas")
    []
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StrictStr, ValidationError

from neuralqx_struct.errors import Diagnostic, SchemaError, StructError
from neuralqx_struct.evolution.baselines import Baseline, baseline, folder_of_schemas, schemas_below
from neuralqx_struct.evolution.diff import diff_documents
from neuralqx_struct.evolution.plans import Unknown
from neuralqx_struct.evolution.rules import verdict
from neuralqx_struct.paths import parse_path
from neuralqx_struct.schema.loader import read_file
from neuralqx_struct.schema.migration import Declaration
from neuralqx_struct.schema.series import Series, lock_entry

__all__ = ["WAIVERS_NAME", "Waiver", "breaking"]

WAIVERS_NAME = "waivers.yaml"


class Waiver(Declaration):
    """One finding that is accepted."""

    code: Annotated[str, Field(strict=True, pattern=r"^NQX\d{3}$")]
    reason: Annotated[str, Field(strict=True, min_length=1)]
    schema_id: StrictStr | None = Field(None, alias="schema")
    path: StrictStr | None = None

    def covers(self, finding: Diagnostic, identity: str) -> bool:
        """Whether it is about a finding."""
        same_schema = self.schema_id is None or self.schema_id == identity
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
    """Find what in schemas would break, or be broken by, payloads of earlier versions.

    Args:
        path: A schema file, a schema folder, or a folder of them.
        against: What they were before: a path, ``git:REVISION``, a lock file, or a bundle.
        mode: One of Confluent's seven; by default what each schema says of itself.
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
        raise ValueError(f"breaking(): expected a known policy and category, got {unknown!r} and {category!r}")
    before = baseline(str(against), path)
    now = schemas_below(path)
    accepted = _Accepted.read(path, waivers)
    found: list[Diagnostic] = []
    for identity, series in now.items():
        findings = [*_judged(before, series, mode, unknown, category)]
        found += [accepted.told(finding, identity) for finding in findings]
    for identity in [i for i in before.series if i not in now]:
        gone = Diagnostic(
            "NQX404",
            "error",
            f"expected the schema {identity}, which {before.name} has, got none",
            file=str(path),
            hint="keep its files: payloads need them to be read",
        )
        # One file is not said to be all there is.
        found += [accepted.told(gone, identity)] if path.is_dir() and len(now) != 1 else []
    return [*found, *accepted.unused()]


def _judged(
    before: Baseline, series: Series, mode: str | None, unknown: Unknown, category: str
) -> Iterator[Diagnostic]:
    yield from (_placed(finding, series) for finding in _unfrozen(before.locked, series))
    earlier = before.series.get(series.id)
    if earlier is None:
        return
    told = verdict(earlier, series, mode, unknown=unknown)
    yield from (_placed(finding, series) for finding in told)
    changes = diff_documents(earlier.head, series.head)
    for change in changes:
        if change.code == "NQX292":
            yield _placed(change.to_diagnostic(), series)
        elif category == "manifest" and change.category == "manifest" and change.severity != "info":
            finding = change.to_diagnostic("readers of manifests see it; waive it with a reason")
            yield _placed(replace(finding, severity="error"), series)


def _unfrozen(locked: Mapping[int, Mapping[str, str]], series: Series) -> Iterator[Diagnostic]:
    """Frozen versions that are gone or say something else."""
    for version, frozen in locked.items():
        if version not in series.documents:
            message = f"expected the file of the frozen version {version}, got none"
            yield Diagnostic("NQX291", "error", message, hint="restore the file: payloads need it to be read")
            continue
        entry = lock_entry(series.documents[version])
        if entry["payload"] != frozen["payload"]:
            message = f"expected version {version} as it was frozen, got one that payloads mean something else by"
            hint = f"undo the edit and make it version {series.head.version + 1}; `schema revision` does both"
            yield Diagnostic("NQX290", "error", message, path="$.version", hint=hint)
        elif entry["full"] != frozen["full"]:
            message = f"expected version {version} as it was frozen, got edited text; payloads stay readable"
            yield Diagnostic("NQX291", "warning", message, path="$.version", hint="add a version instead")


def _placed(finding: Diagnostic, series: Series) -> Diagnostic:
    """The finding with the place in the newest file that its path names, where there is one."""
    source = series.sources.get(series.head.version)
    if source is None or finding.line is not None:
        return finding
    try:
        parts = [part if isinstance(part, int) else str(part) for part in parse_path(finding.path or "$")]
    except StructError:
        return replace(finding, file=source.name)
    line, column = source.mark(parts) or (None, None)
    return replace(finding, file=source.name, line=line, column=column)


# ---------------------------------------------------------------------------------------------------------------------
# Waivers.


@dataclass
class _Accepted:
    """The waivers, and which of them were needed."""

    file: str
    waivers: tuple[Waiver, ...]
    used: set[int]

    @classmethod
    def read(cls, path: Path, named: str | Path | None) -> _Accepted:
        # Every file in the folder of one schema is a version of it, so waivers lie in the folder above.
        where = Path(named) if named is not None else folder_of_schemas(path) / WAIVERS_NAME
        if named is None and not where.is_file():
            return cls("", (), set())
        source = read_file(where)
        try:
            listed = _Waivers.model_validate(source.data).waivers
        except ValidationError as error:
            raise SchemaError(
                source.diagnostic(
                    "NQX010",
                    problem["loc"],
                    f"expected waivers with a code and a reason, got: {problem['msg']}",
                    hint="waivers: [{code: NQX415, path: $.structs.A.fields.b, reason: never released}]",
                )
                for problem in error.errors()
            ) from None
        return cls(str(where), tuple(listed), set())

    def told(self, finding: Diagnostic, identity: str) -> Diagnostic:
        """The finding, as information if a waiver covers it."""
        for position, waiver in enumerate(self.waivers):
            if waiver.covers(finding, identity):
                self.used.add(position)
                return replace(finding, severity="info", message=f"{finding.message}\nwaived: {waiver.reason}")
        return finding

    def unused(self) -> Iterable[Diagnostic]:
        """Waivers that nothing needs any more."""
        for position, waiver in enumerate(self.waivers):
            if position not in self.used:
                message = f"expected a finding {waiver.code} for the waiver, got none"
                yield Diagnostic(
                    "NQX293", "warning", message, path=f"$.waivers[{position}]", file=self.file, hint="remove it"
                )
