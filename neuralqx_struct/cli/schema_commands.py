"""The commands ``schema ...``: about schema files themselves."""

from __future__ import annotations

import enum
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from neuralqx_struct.cli.reporters import Format, Report, each, run
from neuralqx_struct.errors import Diagnostic, SchemaError, did_you_mean, has_errors

if TYPE_CHECKING:
    from neuralqx_struct.schema.model import Document
    from neuralqx_struct.schema.series import Series

__all__ = ["schema_app", "sound_series"]

schema_app = typer.Typer(help="Check and show schema files.", no_args_is_help=True, rich_markup_mode=None)

Style = Annotated[Format, typer.Option("--format", help="How to print the results.")]


class Drawing(enum.StrEnum):
    """What a diagram shows."""

    STRUCTS = "structs"
    VERSIONS = "versions"


def sound_series(path: Path) -> Series:
    """The versions of a schema, the newest of which has no errors.

    Raises:
        SchemaError: It cannot be read, or has errors.
    """
    from neuralqx_struct.schema.series import load_series

    series = load_series(path)
    _sound(series, series.head)
    return series


def _sound(series: Series, document: Document) -> Document:
    from neuralqx_struct.lint import lint_document

    found = [d for d in lint_document(document, series.sources[document.version]) if d.severity == "error"]
    if found:
        raise SchemaError(found)
    return document


@schema_app.command()
def lint(
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH...", help="Schema files, schema folders, or their parent.")
    ],
    *,
    golden: Annotated[
        bool, typer.Option("--golden", help="Also check that the golden payload of each version is still read.")
    ] = False,
    style: Style = Format.TEXT,
) -> None:
    """Check schemas: every finding at once, the proof of their migrations included."""

    def check(path: Path) -> list[Diagnostic]:
        from neuralqx_struct.lint import lint as judge

        found = judge(path)
        if golden and not has_errors(found):  # what payloads are held to must be sound itself
            from neuralqx_struct.releases import check_golden

            found += check_golden(path)
        return found

    def body() -> Report:
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


@schema_app.command()
def history(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A schema folder.")],
    style: Style = Format.TEXT,
) -> None:
    """List the versions of a schema: when each came, what it changed, and its steps."""

    def body() -> Report:
        from neuralqx_struct.releases import history as tell

        releases = tell(path)
        members = {"releases": [release.to_json() for release in releases]}
        return Report("schema history", text="\n".join(map(str, releases)), members=members)

    raise typer.Exit(run("schema history", style, body))


@schema_app.command("json-schema")
def json_schema(
    which: Annotated[
        str,
        typer.Argument(
            metavar="[WHICH]",
            help="language: of schema files; manifest: of manifest.json; PATH[@VERSION] or ID@VERSION: of the manifests of one schema.",
        ),
    ] = "language",
    style: Style = Format.TEXT,
) -> None:
    """Print a JSON Schema, for editors and validators."""

    def body() -> Report:
        schema = _published(which)
        return Report("schema json-schema", text=json.dumps(schema, indent=2), members={"json_schema": schema})

    raise typer.Exit(run("schema json-schema", style, body))


def _published(which: str) -> dict[str, Any]:
    if which == "language":
        from neuralqx_struct.schema.model import language_schema

        return language_schema()
    if which == "manifest":
        from neuralqx_struct.manifest_schema import manifest_schema

        return manifest_schema()
    from neuralqx_struct.schema.payload_schema import payload_schema

    name, _, version = which.rpartition("@")
    numbered = bool(name) and version.isdecimal() and len(version) < 10 and not Path(which).exists()
    series = _found(name if numbered else which)
    document = series.at(int(version)) if numbered else series.head
    return payload_schema(_sound(series, document))


def _found(name: str) -> Series:
    """The schema at a path, or of an identity that a folder in ``schemas`` has."""
    from neuralqx_struct.evolution.baselines import schemas_below
    from neuralqx_struct.schema.series import load_series

    here = Path("schemas")
    known = schemas_below(here) if here.is_dir() and not Path(name).exists() else {}
    if name not in known and not Path(name).exists():
        message = f"expected language, manifest, the path of a schema or the identity of one in schemas/, got {name!r}"
        hint = did_you_mean(name, ["language", "manifest", *known]) or "such as schemas/vmc_state@3"
        raise SchemaError(message, code="NQX400", hint=hint)
    return known[name] if name in known else load_series(Path(name))
