"""The command ``schema export``: writes the schema of a Struct class."""

from __future__ import annotations

from pathlib import Path

from neuralqx_struct.cli.arguments import IDENTITY, OUT, OVERWRITE, Argument
from neuralqx_struct.cli.command import Command
from neuralqx_struct.cli.named import struct_class
from neuralqx_struct.cli.report import Report, require_free, written
from neuralqx_struct.errors import Diagnostic


def run(name: str, identity: str | None, out: Path | None, *, overwrite: bool) -> Report:
    """Imports the class and writes its schema."""
    require_free(out, overwrite=overwrite)
    from neuralqx_struct.classes.documents import class_schema, dump_schema

    found: list[Diagnostic] = []
    document = class_schema(struct_class(name), schema=identity, report=found)
    members = {"schema": document.id, "schema_version": document.version}
    return written(dump_schema(document), out, found=found, **members)


COMMAND = Command(
    name="schema export",
    function="neuralqx_struct.schema_of",
    run=run,
    help="Write the schema of a Struct class. Reports parts that no schema can express.",
    arguments=(
        Argument("name", "A Struct class; its module is imported.", "MODULE:CLASS", imports=True),
        OUT,
        OVERWRITE,
        IDENTITY,
    ),
    examples=(
        "schema export lab.model:TrainState",
        "schema export lab.model:TrainState --id lab.train_state",
    ),
    members=("text", "out", "schema", "schema_version"),
    needs_jax=True,
)
