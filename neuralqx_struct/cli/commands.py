"""The commands, each a thin wrapper of a public function; the group ``schema`` is in ``schema_commands.py``.

Functions are imported inside the commands: reading a manifest must not pay for migrations, nor ``--help`` for anything.
"""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated

import typer

from neuralqx_struct.cli import bundles
from neuralqx_struct.cli.authoring_commands import Out, schema_app, written
from neuralqx_struct.cli.reporters import Format, Report, run
from neuralqx_struct.cli.usage import Commands
from neuralqx_struct.errors import Diagnostic, did_you_mean

__all__ = ["app"]

app = typer.Typer(
    cls=Commands,
    help="Declarative schemas for JAX checkpoints: validate, inspect, compare and migrate bundles.",
    epilog="Exit codes: 0 clean, 1 findings of severity error, 2 could not run.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.add_typer(schema_app, name="schema")

Paths = Annotated[list[Path], typer.Argument(metavar="PATH...", help="Bundles: folders, zips or manifest.json files.")]
Style = Annotated[Format, typer.Option("--format", help="How to print the results.")]
SchemaOption = Annotated[
    Path | None, typer.Option("--schema", metavar="SCHEMA", help="Schema folder or file; without it, the bundle's own.")
]


class Unknown(enum.StrEnum):
    """What happens to stored fields that a reader lacks."""

    ERROR = "error"
    WARN = "warn"
    DROP = "drop"


class Category(enum.StrEnum):
    """Who must not be broken."""

    PAYLOAD = "payload"
    MANIFEST = "manifest"


def _version(wanted: bool) -> None:
    if wanted:
        from neuralqx_struct import __version__

        typer.echo(f"neuralqx-struct {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    del version


@app.command()
def demo(
    folder: Annotated[
        Path | None,
        typer.Argument(help="A new or empty folder; neuralqx-struct-demo, or the next free name, if left out."),
    ] = None,
    style: Style = Format.TEXT,
) -> None:
    """Train, export, validate, migrate and resume a small simulation."""

    def body() -> Report:
        from neuralqx_struct.cli import demo as demonstration
        from neuralqx_struct.cli.progress import progress_bar

        target = folder or demonstration.free_folder()
        with progress_bar("demo") as advance:
            shown = demonstration.run(
                target,
                say=lambda line: typer.echo(line, err=style is not Format.TEXT),
                progress=None if advance is None else lambda done, total, _: advance(done, total),
            )
        return Report("demo", members=shown.to_json())

    raise typer.Exit(run("demo", style, body))


@app.command()
def validate(paths: Paths, schema: SchemaOption = None, style: Style = Format.TEXT) -> None:
    """Check manifests against the published format and their schemas; arrays are not read."""
    raise typer.Exit(run("validate", style, lambda: bundles.validate(paths, schema)))


@app.command()
def inspect(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A bundle.")],
    chosen: Annotated[
        str | None, typer.Option("--filter", metavar="FILTER", help="Such as 'tag:trainable & !path:**/bias'.")
    ] = None,
    style: Style = Format.TEXT,
) -> None:
    """Show what is in a bundle."""
    raise typer.Exit(run("inspect", style, lambda: bundles.inspect(path, chosen)))


@app.command()
def verify(paths: Paths, style: Style = Format.TEXT) -> None:
    """Read every byte and compare it with its checksum."""
    raise typer.Exit(run("verify", style, lambda: bundles.verify(paths)))


@app.command()
def diff(
    old: Annotated[Path, typer.Argument(metavar="A", help="A schema file, schema folder or bundle.")],
    new: Annotated[Path, typer.Argument(metavar="B", help="What to compare it with.")],
    style: Style = Format.TEXT,
) -> None:
    """Compare two schemas, or the schemas of two bundles; folders stand for their newest version."""

    def body() -> Report:
        from neuralqx_struct.evolution.diff import diff as compare

        changes = compare(bundles.present(old), bundles.present(new))
        text = "\n".join(map(str, changes)) or "no changes"
        return Report("diff", text=text, members={"changes": [change.to_json() for change in changes]})

    raise typer.Exit(run("diff", style, body))


@app.command()
def breaking(
    against: Annotated[
        str, typer.Option("--against", metavar="REF", help="A path, git:REVISION, a schema.lock, or a bundle.")
    ],
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A schema file, schema folder, or their parent.")] = Path(
        "schemas"
    ),
    *,
    mode: Annotated[
        str | None, typer.Option("--mode", metavar="MODE", help="Such as full-transitive; else what each schema says.")
    ] = None,
    unknown: Annotated[Unknown, typer.Option("--unknown", help="The load policy to judge by.")] = Unknown.ERROR,
    category: Annotated[
        Category, typer.Option("--category", help="Payloads alone, or all that readers of manifests see.")
    ] = Category.PAYLOAD,
    waivers: Annotated[
        Path | None, typer.Option("--waivers", metavar="FILE", help="Findings accepted for a reason.")
    ] = None,
    style: Style = Format.TEXT,
) -> None:
    """Tell whether schemas have changed so that earlier checkpoints, or earlier readers, break."""

    def body() -> Report:
        from neuralqx_struct.errors import has_errors
        from neuralqx_struct.evolution.breakage import breaking as judge

        found = judge(
            bundles.present(path),
            against=against,
            mode=mode,
            unknown=unknown.value,
            category=category.value,
            waivers=waivers,
        )
        text = "" if has_errors(found) else f"{path}: compatible with {against}"
        return Report("breaking", tuple(found), text, {"path": str(path), "against": against})

    raise typer.Exit(run("breaking", style, body))


@app.command()
def migrate(
    bundle: Annotated[
        Path, typer.Argument(metavar="BUNDLE", help="The bundle, or a folder of bundles; it is not touched.")
    ],
    *,
    to: Annotated[str, typer.Option("--to", metavar="N|head|-1", help="A version, or how many to go back.")] = "head",
    out: Annotated[Path | None, typer.Option("--out", metavar="PATH", help="Where the new bundle goes.")] = None,
    schema: SchemaOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Plan and check, but write nothing.")] = False,
    trust: Annotated[
        list[str] | None, typer.Option("--trust", metavar="MODULE", help="Import it and run its python steps.")
    ] = None,
    style: Style = Format.TEXT,
) -> None:
    """Write a bundle, or every bundle of a folder, in another schema version."""
    if out is None and not dry_run:
        raise typer.BadParameter("expected --out PATH, or --dry-run", param_hint="--out")
    if to != "head" and not to.removeprefix("-").isdecimal():
        raise typer.BadParameter(f"expected a version, 'head' or a negative number, got {to!r}", param_hint="--to")

    def body() -> Report:
        wanted = None if schema is None else bundles.present(schema)
        how = {"to": to if to == "head" else int(to), "schema": wanted, "dry_run": dry_run, "trust": trust or ()}
        return bundles.migrate(bundle, out or bundle.with_name(f"{bundle.name}-migrated"), **how)

    raise typer.Exit(run("migrate", style, body))


@app.command()
def convert(
    source: Annotated[Path, typer.Argument(metavar="SRC", help="A bundle, ours or neuraLQX's; it is not touched.")],
    out: Annotated[Path, typer.Argument(metavar="DST", help="Where the new one goes; with .zip one file.")],
    *,
    store: Annotated[
        str | None, typer.Option("--store", metavar="STORE", help="npz, safetensors or orbax; as in SRC if left out.")
    ] = None,
    compress: Annotated[bool, typer.Option("--compress", help="Smaller files that cannot be mapped.")] = False,
    compact: Annotated[bool, typer.Option("--compact", help="Leave out arrays that a migration left unused.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the bundle at DST.")] = False,
    style: Style = Format.TEXT,
) -> None:
    """Write a bundle in another form or store; its values stay what they are."""
    raise typer.Exit(
        run(
            "convert",
            style,
            lambda: bundles.convert(source, out, store=store, compress=compress, compact=compact, overwrite=overwrite),
        )
    )


@app.command()
def infer(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="A bundle, ours or neuraLQX's, or a manifest.json.")],
    *,
    identity: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="Identity of the schema, such as lab.state.")
    ] = None,
    out: Out = None,
    style: Style = Format.TEXT,
) -> None:
    """Write a first schema from what a bundle holds, with a TODO where it does not tell enough."""

    def body() -> Report:
        from neuralqx_struct.inference import infer as tell

        return written("infer", tell(bundle, schema=identity), out)

    raise typer.Exit(run("infer", style, body))


@app.command()
def explain(
    code: Annotated[str, typer.Argument(metavar="CODE", help="Such as NQX411.")], style: Style = Format.TEXT
) -> None:
    """Say what a diagnostic code means and what to do about it."""

    def body() -> Report:
        import re

        from neuralqx_struct.cli.shipped import shipped

        wanted = f"NQX{code}" if re.fullmatch(r"\d{3}", code) else code.upper()
        page = shipped("docs/diagnostics.md")
        text = page.read_text(encoding="utf-8")
        sections = re.split(r"(?m)^(?=## )", text)
        for section in sections:
            if re.search(rf"\b{re.escape(wanted)}\b", section.partition("\n")[0]):
                return Report("explain", text=section.strip(), members={"code": wanted, "text": section.strip()})
        known = [found for section in sections for found in re.findall(r"\bNQX\d{3}\b", section.partition("\n")[0])]
        message = f"expected a documented code, got {code!r}"
        # A code differs from its neighbours in one digit: they are likely meant only within the same hundred.
        near = [found for found in known if found[:4] == wanted[:4]]
        hint = did_you_mean(wanted, near) or f"codes are NQX and three digits, such as NQX411; all are in {page}"
        return Report("explain", failures=(Diagnostic("NQX400", "error", message, hint=hint),))

    raise typer.Exit(run("explain", style, body))
