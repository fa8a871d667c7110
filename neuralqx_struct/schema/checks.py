"""Checks of one schema document as a whole: names, types, kinds, sizes and migrations that must fit together.

Owns the table :data:`CHECKS`, in the order in which findings are made, and the check of migrations. A new check is a
generator of findings and a row of a table: in ``name_checks.py``, ``type_checks.py`` or ``size_checks.py``. Expressions
are the business of ``expression_checks.py``, values that a document gives (defaults, bounds, choices) that of
``defaults.py``; what several versions mean together, and the place of a finding in its file, of ``lint.py``.

Example:
    >>> from neuralqx_struct.schema.loader import read_text
    >>> from neuralqx_struct.schema.reading import parse_document
    >>> text = '{"language": "1", "schema": "a", "version": 1, "root": "B", "structs": {"A": {"fields": {}}}}'
    >>> [finding.code for check in CHECKS for finding in check(parse_document(read_text(text)))]
    ['NQX101']
"""

from __future__ import annotations

from collections.abc import Callable

from neuralqx_struct.schema.findings import Finding, Findings
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.name_checks import NAME_CHECKS
from neuralqx_struct.schema.size_checks import SIZE_CHECKS
from neuralqx_struct.schema.type_checks import TYPE_CHECKS

__all__ = ["CHECKS"]


def _check_migrations(document: Document) -> Findings:
    seen: set[int] = set()
    whole = document.migration_from(document.version - 1) is not None
    for index, migration in enumerate(document.migrations):
        path, origin = ("migrations", index, "from"), migration.from_version
        if origin in seen:
            message = f"expected one migration from each version, got another from {origin}"
            yield Finding("NQX303", path, message, "join the two lists of steps")
        elif origin >= document.version:
            message = f"expected a migration from version {document.version - 1}, got one from {origin}"
            yield Finding("NQX302", path, message, "migrations lead from the version before to this one")
        elif (
            not whole
        ):  # beside the step from the version before there may be ways from where that version is not at hand
            message = f"expected a migration from version {document.version - 1}, got one from {origin}"
            yield Finding("NQX301", path, message, "payloads move one version at a time; put it in that version's file")
        seen.add(origin)


CHECKS: tuple[Callable[[Document], Findings], ...] = (*NAME_CHECKS, *TYPE_CHECKS, *SIZE_CHECKS, _check_migrations)
