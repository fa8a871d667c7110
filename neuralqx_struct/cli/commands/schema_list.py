"""The command ``schema list``: lists the schemas of a folder with their versions."""

from __future__ import annotations

from pathlib import Path

from neuralqx_struct.cli.arguments import FOLDER
from neuralqx_struct.cli.command import Command
from neuralqx_struct.cli.report import Report
from neuralqx_struct.errors import printable


def run(folder: Path) -> Report:
    """Lists the schemas of a folder."""
    from neuralqx_struct.evolution.against import schemas_below

    schemas = []
    lines = []
    for identity, series in schemas_below(folder).items():
        versions = ", ".join(map(str, series.versions))
        lines.append(f"{identity}  versions {versions}  {printable(series.folder)}")
        schemas.append({"id": identity, "versions": series.versions, "folder": series.folder})
    return Report("\n".join(lines), members={"schemas": schemas})


COMMAND = Command(
    name="schema list",
    function="neuralqx_struct.evolution.against.schemas_below",
    run=run,
    help="List the schemas of a folder with their versions.",
    arguments=(FOLDER,),
    examples=("schema list", "schema list schemas --format json"),
    members=("schemas",),
)
