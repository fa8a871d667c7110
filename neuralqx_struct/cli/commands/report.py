"""The command ``report``: writes a page of HTML about a checkpoint or a schema, or about two checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from neuralqx_struct.cli.arguments import LIMITS, OUT, OVERWRITE, REQUIRED, TRUST, path
from neuralqx_struct.cli.command import Command
from neuralqx_struct.cli.report import Report, require_free, written
from neuralqx_struct.manifest import Limits


def run(
    path: Path,
    other: Path | None,
    out: Path,
    *,
    overwrite: bool,
    trust: Sequence[str],
    limits: Limits | None,
) -> Report:
    """Writes the page."""
    require_free(out, overwrite=overwrite)
    from neuralqx_struct import pages

    page = pages.report(path, other, trust=trust, limits=limits)
    return written(page, out)._replace(members={"out": out})


COMMAND = Command(
    name="report",
    function="neuralqx_struct.report",
    run=run,
    help="Write an HTML page about a checkpoint or a schema, or about two checkpoints.",
    arguments=(
        path("path", "A bundle, a file of another program, or a schema.", "PATH", schema=True),
        path("other", "A second checkpoint to compare.", "PATH", default=None),
        OUT._replace(help="The page.", default=REQUIRED),
        OVERWRITE,
        TRUST,
        LIMITS,
    ),
    examples=(
        "report ckpt --out ckpt.html",
        "report runs/a runs/b --out report.html --overwrite",
    ),
    members=("out",),
)
