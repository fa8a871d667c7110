"""The command ``schema new``: writes the first version of a new schema, or a layout of one that exists."""

from __future__ import annotations

from pathlib import Path

from neuralqx_struct.cli.arguments import FOLDER, Argument, option
from neuralqx_struct.cli.command import Command
from neuralqx_struct.cli.named import sound_series
from neuralqx_struct.cli.report import Report
from neuralqx_struct.errors import printable, shell_word


def run(identity: str, folder: Path, layout: str | None) -> Report:
    """Writes the file, and proposes the command that checks it."""
    from neuralqx_struct.schema.language import new_schema

    if layout is None:
        file = new_schema(identity, folder)
        checked = file.parent
    else:
        from neuralqx_struct.layouts.drafts import new_layout
        from neuralqx_struct.schema.catalogue import Catalogue

        file = checked = new_layout(sound_series(Catalogue(folder).find(identity)), layout)
    command = f"neuralqx-struct schema lint {shell_word(checked)}"
    text = f"written to {printable(file)}\nchange it, then: {command}"
    return Report(text, members={"file": file}, layout="verdict")


COMMAND = Command(
    name="schema new",
    function="neuralqx_struct.schema.language.new_schema",
    run=run,
    help="Write the first version of a new schema. Edit it then.",
    arguments=(
        Argument("identity", "Such as lab.train_state.", "ID"),
        FOLDER._replace(flag="--in"),
        option("layout", "Write a layout of that name for the schema.", "NAME"),
    ),
    examples=("schema new lab.state", "schema new neuralqx.vmc_state --layout hf"),
    members=("file",),
)
