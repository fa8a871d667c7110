"""The commands ``schema ...``: about schema files themselves."""

from __future__ import annotations

import enum
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from neuralqx_struct.cli.reporters import Format, Report, each, run

if TYPE_CHECKING:
    from neuralqx_struct.schema.model import Document, FieldDeclaration

__all__ = ["schema_app"]

schema_app = typer.Typer(help="Check and show schema files.", no_args_is_help=True, rich_markup_mode=None)

Style = Annotated[Format, typer.Option("--format", help="How to print the results.")]


class Published(enum.StrEnum):
    """The JSON Schemas that editors and other tools use."""

    LANGUAGE = "language"
    MANIFEST = "manifest"


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
    """Show a schema: its structs, fields, sizes and fingerprints."""

    def body() -> Report:
        from neuralqx_struct.lint import lint_document
        from neuralqx_struct.schema.fingerprint import full_fingerprint
        from neuralqx_struct.schema.series import load_series

        series = load_series(path)
        document = series.head
        found = [d for d in lint_document(document, series.sources[document.version]) if d.severity == "error"]
        if found:
            return Report("schema show", tuple(found))
        fingerprints = {"payload": series.fingerprints[document.version], "full": full_fingerprint(document)}
        members = {
            "schema": document.id,
            "schema_version": document.version,
            "versions": list(series.versions),
            "fingerprints": fingerprints,
            "document": document.to_data(),
        }
        return Report(
            "schema show", text="\n".join(_described(document, series.versions, fingerprints)), members=members
        )

    raise typer.Exit(run("schema show", style, body))


def _described(document: Document, versions: tuple[int, ...], fingerprints: dict[str, str]) -> list[str]:
    lines = [f"{document.id} version {document.version} (of {', '.join(map(str, versions))})"]
    lines += [f"  {document.doc}"] if document.doc else []
    lines += [f"  {name} fingerprint {value}" for name, value in fingerprints.items()]
    for name, dim in document.dims.items():
        bounds = [f"min {dim.min}" if dim.min is not None else "", f"max {dim.max}" if dim.max is not None else ""]
        said = "; ".join(filter(None, [f"= {dim.equation}" if dim.equation else "", *bounds, dim.doc]))
        lines.append(f"dim {name}: {said}".rstrip(": "))
    lines += [f"enum {name}: {', '.join(enum.members)}" for name, enum in document.enums.items()]
    for name, struct in document.structs.items():
        params = f"[{', '.join(struct.params)}]" if struct.params else ""
        lines.append(f"struct {name}{params}{' (root)' if name == document.root else ''}")
        width = max(map(len, struct.fields), default=0)
        types = {field: declaration.text for field, declaration in struct.fields.items()}
        type_width = min(max(map(len, types.values()), default=0), 40)
        for field, declaration in struct.fields.items():
            said = "; ".join(_facts(declaration))
            lines.append(f"  {field:<{width}}  {types[field]:<{type_width}}  {said}".rstrip())
        lines += [f"  constraint {constraint.expr}" for constraint in struct.constraints]
        lines += [f"  reserved {', '.join(struct.reserved)}"] if struct.reserved else []
    for migration in document.migrations:
        lines.append(f"migration from {migration.from_version}: {', '.join(item.name for item in migration.steps)}")
    return lines


def _facts(declaration: FieldDeclaration) -> list[str]:
    facts: list[Any] = [declaration.kind if declaration.kind != "node" else ""]
    facts += [f"= {declaration.derived}"] if declaration.derived is not None else []
    facts += [f"default {json.dumps(declaration.default)}"] if declaration.has_default else []
    facts += [f"tags {', '.join(declaration.tags)}"] if declaration.tags else []
    return [str(fact) for fact in (*facts, declaration.doc) if fact]


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
