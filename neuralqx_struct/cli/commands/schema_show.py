"""The command ``schema show``: shows structs, fields, sizes and fingerprints of a schema."""

from __future__ import annotations

from pathlib import Path

from neuralqx_struct.cli.arguments import SCHEMA_PATH
from neuralqx_struct.cli.command import Command
from neuralqx_struct.cli.named import sound_series
from neuralqx_struct.cli.report import Report
from neuralqx_struct.cli.terminal import hanging


def run(path: Path) -> Report:
    """Shows the newest version of a schema as an outline."""
    from neuralqx_struct.schema.export import outline
    from neuralqx_struct.schema.lock import full_fingerprint

    series = sound_series(path)
    document = series.head
    fingerprints = {
        "payload": series.fingerprints[document.version],
        "full": full_fingerprint(document),
    }
    members = {
        "schema": document.id,
        "schema_version": document.version,
        "versions": list(series.versions),
        "fingerprints": fingerprints,
        "document": document.to_data(),
    }
    versions = ", ".join(map(str, series.versions))
    lines = [f"{document.id} version {document.version} (of {versions})"]
    if document.doc:
        lines.append(f"doc: {' '.join(document.doc.split())}")
    lines += [f"{name} fingerprint {value}" for name, value in fingerprints.items()]
    lines += outline(document)
    return Report("\n".join(map(hanging, lines)), members=members)


COMMAND = Command(
    name="schema show",
    function="neuralqx_struct.schema.export.outline",
    run=run,
    help="Show structs, fields, sizes and fingerprints of a schema.",
    arguments=(SCHEMA_PATH,),
    examples=("schema show schemas/vmc_state", "schema show neuralqx.vmc_state@2"),
    members=("schema", "schema_version", "versions", "fingerprints", "document"),
)
