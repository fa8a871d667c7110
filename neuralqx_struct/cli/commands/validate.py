"""The command ``validate``: checks manifests against the published format and their schemas."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from neuralqx_struct.cli.arguments import BUNDLES, LIMITS, SCHEMA, option, path_or_url
from neuralqx_struct.cli.command import Command
from neuralqx_struct.cli.named import schemas_of
from neuralqx_struct.cli.report import Report, each
from neuralqx_struct.errors import Diagnostic
from neuralqx_struct.manifest import Limits


def run(
    paths: Sequence[Path], schema: Any, json_schema: Path | None, limits: Limits | None
) -> Report:
    """Checks manifests; the arrays are not read."""
    from neuralqx_struct.tools import validation

    known = schemas_of(schema)

    def check(path: Path) -> list[Diagnostic]:
        return validation.validate(path, known, json_schema=json_schema, limits=limits)

    return each(paths, check, "valid (arrays not read: verify reads them)")


COMMAND = Command(
    name="validate",
    function="neuralqx_struct.validate",
    run=run,
    help="Check manifests against the format and their schemas. Arrays are not read.",
    arguments=(
        BUNDLES,
        SCHEMA,
        option(
            "json_schema",
            "JSON Schema that manifests must match too.",
            "FILE",
            parse=path_or_url,
            reads=True,
        ),
        LIMITS,
    ),
    examples=("validate ckpt", "validate runs/a runs/b --schema schemas/vmc_state"),
    members=("paths",),
)
