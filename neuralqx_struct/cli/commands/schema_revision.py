"""The command ``schema revision``: writes the next version of an edited schema."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from neuralqx_struct.cli.arguments import OUT, SCHEMA_PATH, option, path_or_url, switch
from neuralqx_struct.cli.command import Command
from neuralqx_struct.cli.named import refused, struct_class
from neuralqx_struct.cli.report import Report
from neuralqx_struct.errors import Diagnostic, SchemaError, printable


def run(
    path: Path,
    *,
    name: str | None,
    edited: Path | None,
    against: str,
    out: Path | None,
    dry_run: bool,
) -> Report:
    """Writes the file with its steps, or with questions about them."""
    from neuralqx_struct.evolution.revision import revise
    from neuralqx_struct.schema.text.loader import read_text

    if name is not None and edited is not None:
        raise refused("expected --from or --edited, got both", "name one edited schema")
    found: list[Diagnostic] = []
    given: Any = edited
    if name is not None:
        from neuralqx_struct.classes.documents import class_schema
        from neuralqx_struct.schema.series import load_series

        given = class_schema(struct_class(name), schema=load_series(path).id, report=found)
    made = revise(path, edited=given, against=against)
    where = str(out or made.file)
    if not dry_run:
        made.write(out)
    try:
        read_text(made.text, where)
    except SchemaError as error:  # the questions, with their places
        found += error.diagnostics
    else:
        if out is None and not dry_run:
            found += _stops(made.file)
    members = {
        "text": made.text,
        "out": None if dry_run else where,
        "schema": made.id,
        "schema_version": made.version,
        "steps": [*made.steps],
        "questions": [*made.questions],
    }
    if dry_run:
        return Report(made.text.rstrip("\n"), tuple(found), members, layout="document")
    return Report(f"written to {printable(where)}", tuple(found), members, layout="verdict")


def _stops(file: Path) -> list[Diagnostic]:
    """The steps of a written version that stop at some payloads, which later calls of lint leave out."""
    from neuralqx_struct.tools.linting import lint

    return [each for each in lint(file.parent) if each.code == "NQX320" and each.file == str(file)]


COMMAND = Command(
    name="schema revision",
    function="neuralqx_struct.revise",
    run=run,
    help="Write the next version of an edited schema. Adds its steps, or questions about them.",
    arguments=(
        SCHEMA_PATH,
        option(
            "name",
            "The edited schema is that of a Struct class.",
            "MODULE:CLASS",
            flag="--from",
            imports=True,
        ),
        option("edited", "The edited schema is in a file.", "FILE", parse=path_or_url, reads=True),
        option(
            "against",
            "The newest file before it was edited in place.",
            "REF",
            default="git:HEAD",
        ),
        OUT._replace(help="A new file; by default that of the next version."),
        switch("dry_run", "Print the file and write nothing."),
    ),
    examples=(
        "schema revision schemas/train_state --dry-run",
        "schema revision lab.train_state --from lab.model:TrainState",
    ),
    members=("text", "out", "schema", "schema_version", "steps", "questions"),
)
