"""The command ``demo``: the main job, end to end, on a real run; ``cli/demo.py`` has the run."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from neuralqx_struct.cli.arguments import Argument
from neuralqx_struct.cli.command import Command
from neuralqx_struct.cli.report import Report
from neuralqx_struct.cli.terminal import narrate, progress_bar


def run(folder: Path | None) -> Report:
    """Runs the demonstration."""
    from neuralqx_struct.cli import demo

    with progress_bar("demo") as advance:
        figures = demo.run(
            folder or demo.free_folder(),
            log=narrate,
            progress=None if advance is None else lambda done, total, _: advance(done, total),
        )
    return Report(members=asdict(figures))


COMMAND = Command(
    name="demo",
    function="neuralqx_struct.cli.demo.run",
    run=run,
    help="Train, export, validate, migrate and resume a small simulation.",
    arguments=(
        Argument(
            "folder",
            "A new or empty folder; neuralqx-struct-demo, or the next free name, if left out.",
            "FOLDER",
            parse=Path,
            default=None,
        ),
    ),
    examples=("demo", "demo try-it"),
    members=(
        "exact",
        "trained",
        "relative_error",
        "resumed",
        "difference",
        "bundle",
        "migrated",
        "report",
        "seconds",
    ),
    needs_jax=True,
)
