"""The command ``schema history``: lists the versions of a schema with date, changes and steps."""

from __future__ import annotations

from pathlib import Path

from neuralqx_struct.cli.arguments import SCHEMA_FOLDER
from neuralqx_struct.cli.command import Command
from neuralqx_struct.cli.report import Report


def run(path: Path) -> Report:
    """Lists the versions of a schema."""
    from neuralqx_struct.tools.history import history

    releases = history(path)
    members = {"releases": [release.to_json() for release in releases]}
    return Report("\n".join(map(str, releases)), members=members)


COMMAND = Command(
    name="schema history",
    function="neuralqx_struct.tools.history.history",
    run=run,
    help="List the versions of a schema with date, changes and steps.",
    arguments=(SCHEMA_FOLDER,),
    examples=("schema history schemas/vmc_state",),
    members=("releases",),
)
