"""The command ``schema json-schema``: prints one of the published JSON Schemas, or that of one schema's manifests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from neuralqx_struct.cli.arguments import Argument
from neuralqx_struct.cli.command import Command
from neuralqx_struct.cli.named import sound_series
from neuralqx_struct.cli.report import REPORT_VERSION, Report

_Schema = dict[str, Any]


def _language() -> _Schema:
    from neuralqx_struct.schema.language import language_schema

    return language_schema()


def _layout() -> _Schema:
    from neuralqx_struct.layouts.drafts import layout_schema

    return layout_schema()


def _warm() -> _Schema:
    from neuralqx_struct.layouts.warm_rules import warm_schema

    return warm_schema()


def _manifest() -> _Schema:
    from neuralqx_struct.schema.export import manifest_schema

    return manifest_schema()


def _of_manifests(path: Path) -> _Schema:
    from neuralqx_struct.schema.export import payload_schema

    return payload_schema(sound_series(path).head)


def report_schema() -> _Schema:
    """The JSON Schema of results in JSON, published as ``schemas/report/1.json``."""
    from neuralqx_struct.cli.commands import COMMANDS, GROUPS

    text = {"type": "string"}
    maybe_text = {"type": ["string", "null"]}
    number = {"type": ["integer", "null"], "minimum": 1}
    diagnostic = {
        "code": {"type": "string", "pattern": "^NQX[0-9]{3}$"},
        "severity": {"enum": ["error", "warning", "info"]},
        "message": text,
        "path": text,
        "file": maybe_text,
        "line": number,
        "column": number,
        "hint": maybe_text,
    }
    members = {name: command.members for name, command in COMMANDS.items()}
    result = {
        "version": {"const": REPORT_VERSION},
        "command": {"enum": [*GROUPS, *members]},
        "ok": {"type": "boolean"},
        "diagnostics": {"type": "array", "items": {"$ref": "#/definitions/diagnostic"}},
    }
    members_of_each = [
        {
            "if": {"properties": {"command": {"const": name}}},
            "then": {"propertyNames": {"enum": [*result, *own]}},
        }
        for name, own in members.items()
    ]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "https://neuralqx.github.io/neuralqx-struct/schemas/report/1.json",
        "title": "Results of a neuralqx-struct command (--format json)",
        "type": "object",
        "required": [*result],
        "properties": result,
        "allOf": members_of_each,
        "definitions": {
            "diagnostic": {
                "type": "object",
                "required": [*diagnostic],
                "properties": diagnostic,
                "additionalProperties": False,
            }
        },
    }


_PUBLISHED = {
    "language": _language,
    "layout": _layout,
    "warm": _warm,
    "manifest": _manifest,
    "report": report_schema,
}


def run(which: str) -> Report:
    """Prints a published JSON Schema, or that of the manifests of a schema."""
    schema = _PUBLISHED[which]() if which in _PUBLISHED else _of_manifests(Path(which))
    return Report(json.dumps(schema, indent=2), members={"json_schema": schema})


COMMAND = Command(
    name="schema json-schema",
    function="neuralqx_struct.schema.export.payload_schema",
    run=run,
    help="Print a JSON Schema, for editors and validators.",
    arguments=(
        Argument(
            "which",
            "language: of schema files; layout: of layouts; warm: of rules of warm starts; manifest: of manifest.json; report: of JSON results; a schema folder, file, ID or ID@3: of the manifests of one schema.",
            "WHICH",
            default="language",
            schema=True,
            also=tuple(_PUBLISHED),
        ),
    ),
    examples=("schema json-schema manifest", "schema json-schema neuralqx.vmc_state@3"),
    members=("json_schema",),
)
