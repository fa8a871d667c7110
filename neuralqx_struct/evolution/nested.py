"""Schemas inside schemas over time: do the versions under ``uses:`` fit together, and is there a way between them?

Owns what lint says about that (NQX316). When a schema moves from ``lab.optim@2`` to ``lab.optim@4``, loading runs the
steps of ``lab.optim`` first; this module asks beforehand whether they are there. How documents are found is for
``schema/uses.py``, how they are applied for ``plans.py``.

Example:
    >>> [*skew_within(v3)], [*skew_between(v2, v3, lambda identity, version: None)]
    ([], [])
"""

from __future__ import annotations

from neuralqx_struct.errors import StructError
from neuralqx_struct.evolution.plans import plan
from neuralqx_struct.schema.findings import Finding, Findings
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.series import series_of
from neuralqx_struct.schema.uses import Find

__all__ = ["skew_between", "skew_within"]

_MOST = 1000  # versions that are looked for between two


def skew_within(document: Document) -> Findings:
    """Two versions of one schema in one document: payloads of one would be taken for the other's."""
    for index, use in enumerate(document.uses):
        identity, _, version = use.partition("@")
        for other in document.closure():
            within = other.used.get(identity)
            if other is not document and within is not None and str(within.version) != version:
                message = (
                    f"expected one version of {identity}, got {version} here and {within.version}\n"
                    f"{other.id}@{other.version} uses {identity}@{within.version}"
                )
                hint = f"use {identity}@{within.version} here too, or a version of {other.id} that uses {use}"
                yield Finding("NQX316", ("uses", index), message, hint)


def skew_between(older: Document, newer: Document, find: Find) -> Findings:
    """Used schemas that moved, without a way between their versions."""
    before = dict(use.split("@") for use in older.uses)
    for index, use in enumerate(newer.uses):
        identity, _, version = use.partition("@")
        start, end = int(before.get(identity, version)), int(version)
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
            yield Finding("NQX316", ("uses", index), message, first.remedy or f"add the missing file of {identity}")
