"""The command ``breaking``: checks whether changes of schemas make earlier checkpoints, or earlier readers, fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from neuralqx_struct.cli.arguments import (
    LIMITS,
    REQUIRED,
    TRIES,
    Argument,
    choice,
    option,
    parse_mode,
    path_or_url,
)
from neuralqx_struct.cli.command import Command
from neuralqx_struct.cli.named import existing
from neuralqx_struct.cli.report import Report
from neuralqx_struct.errors import StructError, has_errors, printable
from neuralqx_struct.manifest import Limits


def run(path: Path, against: str, *, limits: Limits | None, **options: Any) -> Report:
    """Compares schemas with an earlier state of them."""
    from neuralqx_struct.evolution.against import baseline
    from neuralqx_struct.evolution.compatibility import breaking

    path = existing(path)
    try:
        before = baseline(str(against), path, limits=limits)
    except StructError as error:  # nothing can be compared
        return Report(failures=error.diagnostics)
    found = breaking(path, against=before, **options)
    lines = [printable(str(each)) for each in found.comparisons]
    if not has_errors(found):
        is_compared = any(each.writer is not None for each in found.comparisons)
        what = "compatible" if is_compared else "nothing was compared"
        lines.insert(0, f"{printable(path)}: {what} with {printable(against)}")
    comparisons = [each.to_dict() for each in found.comparisons]
    members = {"path": path, "against": against, "comparisons": comparisons}
    return Report("\n".join(lines), tuple(found), members, layout="verdict")


COMMAND = Command(
    name="breaking",
    function="neuralqx_struct.breaking",
    run=run,
    help="Check that changes of schemas break no checkpoint and no reader.",
    arguments=(
        option(
            "against",
            "A path, git:REVISION, a schema.lock, or a bundle.",
            "REF",
            default=REQUIRED,
            schema=True,
        ),
        Argument(
            "path",
            "A schema file, folder or ID, or the folder of all schemas.",
            "SCHEMA",
            parse=path_or_url,
            default=None,
            schema=True,
            project="schemas",
        ),
        option(
            "mode",
            "Such as full-transitive; by default each schema's own.",
            "MODE",
            parse=parse_mode,
            project="mode",
        ),
        choice("unknown", "The load policy to judge by.", "error", "warn", "drop"),
        choice(
            "category",
            "Payloads alone, or everything that readers of manifests see.",
            "payload",
            "manifest",
        ),
        option(
            "waivers",
            "Findings accepted for a reason.",
            "FILE",
            parse=path_or_url,
            reads=True,
            project="waivers",
        ),
        TRIES,
        LIMITS,
    ),
    examples=(
        "breaking --against git:HEAD",
        "breaking schemas/vmc_state --against ckpt --mode full",
    ),
    members=("path", "against", "comparisons"),
)
