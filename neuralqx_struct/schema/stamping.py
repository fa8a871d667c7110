"""Bundles that name no schema, brought under one: plain trees, and Structs of plain Python classes.

A plain tree is of the newest version whose declarations it conforms to; from there on it is a payload like any other, which
``evolution/`` brings to other versions. If it conforms to none, fields whose default is null may be left out.

Example:
    >>> from neuralqx_struct.schema.series import load_series
    >>> net = load_series('''
    ... {language: "1", schema: lab.net, version: 1, root: Net, structs: {Net: {fields: {step: int}}}}''')
    >>> plain = {"version": 1, "manifest": {"__kind__": "dict", "items": [["step", 7]]}, "arrays": {}}
    >>> stamped(plain, net)["manifest"]
    {'__kind__': 'struct', 'type': 'lab.net@1:Net', 'fields': {'step': 7}}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from neuralqx_struct.errors import Diagnostic, MigrationError, has_errors
from neuralqx_struct.manifest.kinds import STRUCT, Node
from neuralqx_struct.schema.conformance import conform_node
from neuralqx_struct.schema.fitting import fitted
from neuralqx_struct.schema.lock import schema_member
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.series import Series

_FIXES = {
    "NQX414": "the bundle names no schema: declare an earlier version without the field, or make the object with from_dict, "
    "which gives defaults",
    "NQX415": "the bundle names no schema: declare an earlier version that has the field",
}


class Reading(NamedTuple):
    """A plain tree as a version of a schema reads it.

    Attributes:
        document: The version.
        root: The tree as the root struct of the version; unchanged if it is nothing like that.
        findings: What does not conform; None if the tree is nothing like the root struct.
        optional: Whether optional fields that the tree lacks are null.
    """

    document: Document
    root: Node
    findings: list[Diagnostic] | None
    optional: bool = False

    @property
    def conforms(self) -> bool:
        """Whether the tree is an instance of the version."""
        return self.findings is not None and not has_errors(self.findings)


def read_plain(root: Node, series: Series) -> Reading:
    """The reading by the newest version that a plain tree conforms to; by the newest of all if there is none."""
    # In this order: a tree of an earlier version has no null for a field that a migration fills.
    readings = (
        _reading(root, series.at(version), optional)
        for optional in (False, True)
        for version in reversed(series.versions)
    )
    found = []
    for reading in readings:
        if reading.conforms:
            return reading
        found.append(reading)
    return found[len(series.versions)]  # whose findings are about more than optional fields


def _reading(root: Node, document: Document, optional: bool) -> Reading:
    tree = fitted(document, root, optional=optional)
    is_root = STRUCT.matches(tree) and tree["type"] == document.ref(document.root)
    found = [*map(_with_fix, conform_node(document, tree))] if is_root else None
    return Reading(document, tree, found, optional)


def _with_fix(found: Diagnostic) -> Diagnostic:
    return replace(found, hint=found.hint or _FIXES.get(found.code))


def under_schema(manifest: dict[str, Any], series: Series | None) -> dict[str, Any]:
    """A manifest that names a schema; one that names none is :func:`stamped` if there is a schema to read it by."""
    if series is None or "schema" in manifest:
        return manifest
    return stamped(manifest, series)


def stamped(
    manifest: Mapping[str, Any], series: Series, report: list[Diagnostic] | None = None
) -> dict[str, Any]:
    """The manifest of a plain tree as one of the newest version of a schema that the tree conforms to.

    Args:
        manifest: The manifest.
        series: The versions of the schema.
        report: Receives a note of the version.

    Raises:
        MigrationError: It conforms to none, with the findings of the newest; NQX404: it is nothing like the root struct.
    """
    reading = read_plain(manifest["manifest"], series)
    if reading.findings is None:
        message = f"expected a tree like {reading.document.ref(reading.document.root)}, got another"
        hint = "the bundle names no schema: pass the one of its tree; `neuralqx-struct infer` drafts it"
        raise MigrationError(message, code="NQX404", path="$.manifest", hint=hint)
    if not reading.conforms:
        raise MigrationError(found for found in reading.findings if found.severity == "error")
    if report is not None:
        lacking = "; optional fields that it lacks are null" if reading.optional else ""
        message = f"the payload names no schema, it was read as {reading.root['type']}{lacking}"
        report.append(Diagnostic("NQX425", "info", message, "$"))
    versions = [each for one in series.documents.values() for each in one.closure()]
    travelling = {(each.id, each.version): each.to_data() for each in versions}
    made: dict[str, Any] = {}
    for name, value in manifest.items():
        if name == "manifest":
            made |= {"schema": schema_member(reading.document), "schemas": [*travelling.values()]}
            made["manifest"] = reading.root
        elif name != "digest":  # which is of the bytes that were read
            made[name] = value
    return made
