"""The commands ``schema ...`` that write something: files of schemas, and what follows from them."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from neuralqx_struct.cli.reporters import Format, Report, run
from neuralqx_struct.cli.schema_commands import Style, schema_app, sound_series
from neuralqx_struct.errors import Diagnostic, SchemaError, did_you_mean

__all__ = ["Out", "schema_app", "written"]

Out = Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Where it goes; printed if left out.")]
SchemaPath = Annotated[Path, typer.Argument(metavar="PATH", help="A schema folder (its newest version) or file.")]


def written(command: str, text: str, out: Path | None, *, found: tuple[Diagnostic, ...] = (), **members: Any) -> Report:
    """The report of a command that wrote a text: into a file, or as its result."""
    if out is None:
        return Report(command, found, text.rstrip("\n"), {"text": text, "out": None, **members}, layout="document")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text, encoding="utf-8")
    return Report(command, found, f"written to {out}", {"text": text, "out": str(out), **members})


@schema_app.command()
def new(
    identity: Annotated[str, typer.Argument(metavar="ID", help="Such as lab.train_state.")],
    *,
    folder: Annotated[Path, typer.Option("--in", metavar="FOLDER", help="Where the folders of schemas lie.")] = Path(
        "schemas"
    ),
    style: Style = Format.TEXT,
) -> None:
    """Write the first version of a new schema, to be changed by its author."""

    def body() -> Report:
        from neuralqx_struct.schema.drafts import new_schema

        file = new_schema(identity, folder)
        text = f"written to {file}\nchange it, then: neuralqx-struct schema lint {file.parent}"
        return Report("schema new", text=text, members={"file": str(file)})

    raise typer.Exit(run("schema new", style, body))


@schema_app.command()
def freeze(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A schema folder, or the file of one version.")],
    *,
    golden: Annotated[
        bool, typer.Option("--golden", help="Also write a tiny bundle of each version that has none (imports JAX).")
    ] = False,
    style: Style = Format.TEXT,
) -> None:
    """Freeze versions in schema.lock: from now on lint refuses edits of them."""

    def body() -> Report:
        from neuralqx_struct.releases import freeze as lock

        done = lock(path)
        written: list[Path] = []
        if golden:
            from neuralqx_struct.golden import write_golden

            written = write_golden(path)
        text = "\n".join([str(done), *(f"written to {place}" for place in written)])
        members = {"lock": str(done.lock), "added": list(done.added), "kept": list(done.kept)}
        return Report("schema freeze", text=text, members=members | {"golden": [str(place) for place in written]})

    raise typer.Exit(run("schema freeze", style, body))


@schema_app.command()
def export(
    name: Annotated[str, typer.Argument(metavar="MODULE:CLASS", help="A Struct class; its module is imported.")],
    *,
    identity: Annotated[str | None, typer.Option("--id", metavar="ID", help="Identity of the schema.")] = None,
    out: Out = None,
    style: Style = Format.TEXT,
) -> None:
    """Write the schema of a Struct class defined in Python; tells what a schema cannot say."""

    def body() -> Report:
        from neuralqx_struct.writer import dump_schema, schema_of

        cls = _imported(name)
        found: list[Diagnostic] = []
        document = schema_of(cls, schema=identity, report=found)
        members = {"schema": document.id, "schema_version": document.version}
        return written("schema export", dump_schema(document), out, found=tuple(found), **members)

    raise typer.Exit(run("schema export", style, body))


def _imported(name: str) -> type:
    """The Struct class that a command line names; the caller says by naming it that it may be imported."""
    from neuralqx_struct.fieldspec import is_struct

    module_name, _, qualname = name.partition(":")
    if not module_name or not qualname:
        raise _unusable(f"expected MODULE:CLASS, got {name!r}", "such as lab.model:TrainState")
    if "" not in sys.path:  # as `python -m` does: modules of the current folder are found
        sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = importlib.import_module(module_name)
    except ImportError as error:
        raise _unusable(f"expected a module that can be imported, got {module_name!r}: {error}", None) from error
    for part in qualname.split("."):
        if not hasattr(found, part):
            classes = [word for word, value in vars(found).items() if isinstance(value, type) and is_struct(value)]
            raise _unusable(f"expected a class in {module_name}, got {qualname!r}", did_you_mean(part, classes))
        found = getattr(found, part)
    if not isinstance(found, type) or not is_struct(found):
        raise _unusable(f"expected a Struct class, got {name}", "name a subclass of neuralqx_struct.Struct")
    return found


def _unusable(message: str, hint: str | None) -> SchemaError:
    return SchemaError(message, code="NQX400", hint=hint)


@schema_app.command()
def stub(path: SchemaPath, *, out: Out = None, style: Style = Format.TEXT) -> None:
    """Write a Python module in which editors and type checkers see the classes of a schema."""

    def body() -> Report:
        from neuralqx_struct.schema.stubs import stub_module

        series = sound_series(path)
        base = Path.cwd() if out is None else out.absolute().parent
        where = os.path.relpath(path.absolute(), base).replace(os.sep, "/")
        return written("schema stub", stub_module(series.head, where), out)

    raise typer.Exit(run("schema stub", style, body))


@schema_app.command()
def revision(
    path: SchemaPath,
    *,
    name: Annotated[
        str | None, typer.Option("--from", metavar="MODULE:CLASS", help="The edited schema is that of a Struct class.")
    ] = None,
    edited: Annotated[
        Path | None, typer.Option("--edited", metavar="FILE", help="The edited schema is in a file.")
    ] = None,
    against: Annotated[
        str, typer.Option("--against", metavar="REF", help="What the newest file was, if it was edited in place.")
    ] = "git:HEAD",
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="By default the next version's file.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the file and write nothing.")] = False,
    style: Style = Format.TEXT,
) -> None:
    """Write the next version of an edited schema: its steps, and questions where only you know."""

    def body() -> Report:
        from neuralqx_struct.errors import SchemaError
        from neuralqx_struct.evolution.revision import revise
        from neuralqx_struct.schema.loader import read_text

        if name is not None and edited is not None:
            raise _unusable("expected --from or --edited, got both", "name one edited schema")
        found: list[Diagnostic] = []
        given: Any = edited
        if name is not None:
            from neuralqx_struct.schema.series import load_series
            from neuralqx_struct.writer import schema_of

            given = schema_of(_imported(name), schema=load_series(path).id, report=found)
        made = revise(path, edited=given, against=against)
        where = str(out or made.file)
        if not dry_run:
            made.write(out)
        try:
            read_text(made.text, where)
        except SchemaError as error:  # the questions, where they stand
            found += error.diagnostics
        members = {
            "schema": made.id,
            "schema_version": made.version,
            "steps": [*made.steps],
            "questions": [*made.questions],
        }
        text = made.text.rstrip("\n") if dry_run else f"written to {where}"
        layout: Any = {"layout": "document"} if dry_run else {}
        return Report(
            "schema revision",
            tuple(found),
            text,
            {"text": made.text, "out": None if dry_run else where, **members},
            **layout,
        )

    raise typer.Exit(run("schema revision", style, body))
