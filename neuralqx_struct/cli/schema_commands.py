"""The commands ``schema ...``: about schema files themselves."""

from __future__ import annotations

import enum
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from neuralqx_struct.cli.reporters import Format, Report, each, run

if TYPE_CHECKING:
    from neuralqx_struct.schema.series import Series

__all__ = ["schema_app", "sound_series"]

schema_app = typer.Typer(help="Check and show schema files.", no_args_is_help=True, rich_markup_mode=None)

Style = Annotated[Format, typer.Option("--format", help="How to print the results.")]


class Published(enum.StrEnum):
    """The JSON Schemas that editors and other tools use."""

    LANGUAGE = "language"
    MANIFEST = "manifest"


class Drawing(enum.StrEnum):
    """What a diagram shows."""

    STRUCTS = "structs"
    VERSIONS = "versions"


def sound_series(path: Path) -> Series:
    """The versions of a schema, the newest of which has no errors.

    Raises:
        SchemaError: It cannot be read, or has errors.
    """
    from neuralqx_struct.errors import SchemaError
    from neuralqx_struct.lint import lint_document
    from neuralqx_struct.schema.series import load_series

    series = load_series(path)
    found = [d for d in lint_document(series.head, series.sources[series.head.version]) if d.severity == "error"]
    if found:
        raise SchemaError(found)
    return series


@schema_app.command()
def lint(
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH...", help="Schema files, schema folders, or their parent.")
    ],
    style: Style = Format.TEXT,
) -> None:
    """Check schemas: every finding at once, the proof of their migrations included."""

    def body() -> Report:
        from neuralqx_struct.lint import lint as check

        return each("schema lint", paths, check, "no errors")

    raise typer.Exit(run("schema lint", style, body))


@schema_app.command()
def show(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A schema folder (its newest version) or file.")],
    style: Style = Format.TEXT,
) -> None:
    """Show a schema: its structs, fields, sizes and fingerprints; on a terminal as a tree."""

    def body() -> Report:
        from neuralqx_struct.schema.drawings import outline
        from neuralqx_struct.schema.fingerprint import full_fingerprint

        series = sound_series(path)
        document = series.head
        fingerprints = {"payload": series.fingerprints[document.version], "full": full_fingerprint(document)}
        members = {
            "schema": document.id,
            "schema_version": document.version,
            "versions": list(series.versions),
            "fingerprints": fingerprints,
            "document": document.to_data(),
        }
        lines = [f"{document.id} version {document.version} (of {', '.join(map(str, series.versions))})"]
        lines += [f"doc: {document.doc}"] if document.doc else []
        lines += [f"{name} fingerprint {value}" for name, value in fingerprints.items()]
        return Report("schema show", text="\n".join([*lines, *outline(document)]), members=members, layout="outline")

    raise typer.Exit(run("schema show", style, body))


@schema_app.command()
def graph(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A schema folder (its newest version) or file.")],
    of: Annotated[
        Drawing, typer.Option("--of", help="Structs and what they hold, or versions and their steps.")
    ] = Drawing.STRUCTS,
    style: Style = Format.TEXT,
) -> None:
    """Draw a schema as a Mermaid diagram."""

    def body() -> Report:
        from neuralqx_struct.schema.drawings import struct_diagram, version_diagram

        series = sound_series(path)
        text = struct_diagram(series.head) if of is Drawing.STRUCTS else version_diagram(series)
        return Report("schema graph", text=text, members={"mermaid": text})

    raise typer.Exit(run("schema graph", style, body))


@schema_app.command("json-schema")
def json_schema(
    which: Annotated[
        Published, typer.Argument(help="Of schema files (language) or of manifest.json (manifest).")
    ] = Published.LANGUAGE,
    style: Style = Format.TEXT,
) -> None:
    """Print a published JSON Schema, for editors and validators."""

    def body() -> Report:
        if which is Published.LANGUAGE:
            from neuralqx_struct.schema.model import language_schema as published
        else:
            from neuralqx_struct.manifest_schema import manifest_schema as published
        schema = published()
        return Report("schema json-schema", text=json.dumps(schema, indent=2), members={"json_schema": schema})

    raise typer.Exit(run("schema json-schema", style, body))
