"""The command ``verify``: reads every byte and compares it with its checksum."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from neuralqx_struct.cli.arguments import BUNDLES, LIMITS
from neuralqx_struct.cli.command import Command
from neuralqx_struct.cli.report import Report, each
from neuralqx_struct.cli.terminal import progress_bar
from neuralqx_struct.errors import Diagnostic, has_errors
from neuralqx_struct.manifest import Limits


def run(paths: Sequence[Path], limits: Limits | None) -> Report:
    """Reads the arrays of bundles and foreign files."""
    from neuralqx_struct.bundle import BundleMissingError
    from neuralqx_struct.tools import validation

    def check(path: Path) -> list[Diagnostic]:
        with progress_bar(f"verifying {path.name}") as advance:
            found = validation.verify(path, limits=limits, progress=advance)
        if has_errors(found) and isinstance(path, Path) and not os.path.lexists(path):
            raise BundleMissingError(found)
        return found

    return each(paths, check, "intact")


COMMAND = Command(
    name="verify",
    function="neuralqx_struct.verify",
    run=run,
    help="Read every byte and compare it with its checksum.",
    arguments=(BUNDLES, LIMITS),
    examples=("verify ckpt", "verify runs/a runs/b --format json"),
    members=("paths",),
)
