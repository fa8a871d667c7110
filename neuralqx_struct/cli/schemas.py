"""Functions of the commands about schema files; each returns a report."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from neuralqx_struct.cli.arguments import parse_limits, parse_value
from neuralqx_struct.cli.reports import each
from neuralqx_struct.cli.results import Report, failure, require_free, written
from neuralqx_struct.errors import (
    Diagnostic,
    SchemaError,
    did_you_mean,
    has_errors,
    printable,
    shell_word,
)
from neuralqx_struct.references import shipped

# --- reading ------------------------------------------------------------------------------------------------------


def existing(path: Path) -> Path:
    """The path of a schema.

    Raises:
        SchemaMissingError: It does not exist.
    """
    if not path.exists():
        from neuralqx_struct.schema.series import SchemaMissingError

        raise SchemaMissingError.at(path)
    return path


def lint(
    paths: Sequence[Path],
    *,
    golden: bool,
    trust: Sequence[str],
    file: Path | None,
    values: Sequence[str],
    limits: Sequence[str],
) -> Report:
    """Checks schemas and layouts, and on request their golden payloads or a foreign file."""

    def check(path: Path) -> list[Diagnostic]:
        from neuralqx_struct.tools.linting import lint as check_schema

        found = check_schema(path)
        if file is not None and not has_errors(found):
            from neuralqx_struct.layouts.payloads import check_file

            # The file can show the values that the layout lacks; if it does not, that is an error about the file.
            found = [each for each in found if each.code != "NQX707"]
            found += check_file(
                path, file, dict(map(parse_value, values)), limits=parse_limits(limits)
            )
        # Payloads are compared with schemas without errors only.
        if golden and not has_errors(found):
            from neuralqx_struct.tools.history import check_golden

            found += check_golden(path, trust=trust)
        return found

    return each(paths, check, "no errors")


def _series_without_errors(path: Path) -> Any:
    """The versions of a schema, the newest of which has no errors.

    Raises:
        SchemaError: It cannot be read, or has errors.
    """
    from neuralqx_struct.schema.series import load_series

    series = load_series(path)
    _without_errors(series, series.head)
    return series


def _without_errors(series: Any, document: Any) -> Any:
    from neuralqx_struct.tools.linting import lint_document

    found = lint_document(document, series.sources[document.version])
    if has_errors(found):
        raise SchemaError([finding for finding in found if finding.severity == "error"])
    return document


def show(path: Path) -> Report:
    """Shows a schema as an outline."""
    from neuralqx_struct.schema.export import outline
    from neuralqx_struct.schema.lock import full_fingerprint

    series = _series_without_errors(path)
    document = series.head
    fingerprints = {
        "payload": series.fingerprints[document.version],
        "full": full_fingerprint(document),
    }
    members = {
        "schema": document.id,
        "schema_version": document.version,
        "versions": list(series.versions),
        "fingerprints": fingerprints,
        "document": document.to_data(),
    }
    versions = ", ".join(map(str, series.versions))
    lines = [f"{document.id} version {document.version} (of {versions})"]
    if document.doc:
        lines.append(f"doc: {' '.join(document.doc.split())}")
    lines += [f"{name} fingerprint {value}" for name, value in fingerprints.items()]
    lines += outline(document)
    return Report("\n".join(lines), members=members, layout="outline")


def graph(path: Path, of: str) -> Report:
    """Draws the structs of a schema, or its versions."""
    from neuralqx_struct.schema.export import struct_diagram, version_diagram

    series = _series_without_errors(path)
    text = struct_diagram(series.head) if of == "structs" else version_diagram(series)
    return Report(text, members={"mermaid": text})


def history(path: Path) -> Report:
    """Lists the versions of a schema."""
    from neuralqx_struct.tools.history import history as read_history

    releases = read_history(path)
    members = {"releases": [release.to_json() for release in releases]}
    return Report("\n".join(map(str, releases)), members=members)


def list_schemas(folder: Path) -> Report:
    """Lists the schemas of a folder."""
    from neuralqx_struct.evolution.against import schemas_below

    schemas = []
    lines = []
    for identity, series in schemas_below(folder).items():
        versions = ", ".join(map(str, series.versions))
        lines.append(f"{identity}  versions {versions}  {printable(series.folder)}")
        schemas.append({"id": identity, "versions": series.versions, "folder": series.folder})
    return Report("\n".join(lines), members={"schemas": schemas})


def json_schema(which: str) -> Report:
    """Prints one of the published JSON Schemas, or that of the manifests of one schema."""
    schema = _published(which)
    return Report(json.dumps(schema, indent=2), members={"json_schema": schema})


def _published(which: str) -> dict[str, Any]:
    if which == "language":
        from neuralqx_struct.schema.language import language_schema

        return language_schema()
    if which == "layout":
        from neuralqx_struct.layouts.drafts import layout_schema

        return layout_schema()
    if which == "manifest":
        from neuralqx_struct.schema.export import manifest_schema

        return manifest_schema()
    if which == "report":
        schema: dict[str, Any] = json.loads(shipped("schemas/report/1.json").read_text("utf-8"))
        return schema
    from neuralqx_struct.schema.export import payload_schema

    return payload_schema(_series_without_errors(Path(which)).head)


def _refused(message: str, hint: str | None) -> SchemaError:
    return SchemaError(message, code="NQX400", hint=hint)


# --- writing ------------------------------------------------------------------------------------------------------


def new(identity: str, folder: Path, layout: str | None) -> Report:
    """Writes the first version of a new schema, or a layout of one that exists."""
    from neuralqx_struct.schema.language import new_schema

    if layout is None:
        file = new_schema(identity, folder)
        checked = file.parent
    else:
        from neuralqx_struct.layouts.drafts import new_layout
        from neuralqx_struct.schema.catalogue import Catalogue

        series = _series_without_errors(Catalogue(folder).find(identity))
        file = checked = new_layout(series, layout)
    command = f"neuralqx-struct schema lint {shell_word(checked)}"
    text = f"written to {printable(file)}\nchange it, then: {command}"
    return Report(text, members={"file": file}, layout="verdict")


def fmt(paths: Sequence[Path], check: bool) -> Report:
    """Writes schema files in their canonical layout."""
    from neuralqx_struct.schema.series import schema_folders, version_files
    from neuralqx_struct.schema.text.loader import replace_text
    from neuralqx_struct.tools.formatting import format_schema

    changed: list[Path] = []

    def rewrite(path: Path) -> list[Diagnostic]:
        found: list[Diagnostic] = []
        for folder in schema_folders(existing(path)):
            for file in version_files(folder) if folder.is_dir() else [folder]:
                text = file.read_text(encoding="utf-8-sig")
                made = format_schema(text, str(file))
                if made == text:
                    continue
                if check:
                    message = "expected the canonical layout, got another"
                    hint = f"neuralqx-struct schema fmt {shell_word(file)}"
                    found.append(Diagnostic("NQX016", "error", message, file=str(file), hint=hint))
                else:
                    replace_text(file, made)
                changed.append(file)
        return found

    done = each(paths, rewrite, "in the canonical layout")
    lines = [f"written to {printable(file)}" for file in changed if not check]
    members = {**done.members, "changed": changed}
    return replace(done, text="\n".join(lines) or done.text, members=members)


def freeze(path: Path, golden: bool, trust: Sequence[str]) -> Report:
    """Freezes versions, and on request writes their golden payloads; all of it or nothing."""
    from neuralqx_struct.tools.history import freeze as lock

    golden_bundles: list[Path] = []
    if golden:
        lock(path, dry_run=True)
        from neuralqx_struct.checkpoint.golden import write_golden

        golden_bundles = write_golden(path, trust=trust)
    done = lock(path)
    members = {**asdict(done), "golden": golden_bundles}
    lines = [str(done), *(f"written to {printable(place)}" for place in golden_bundles)]
    return Report("\n".join(lines), members=members, layout="verdict")


def export(name: str, identity: str | None, out: Path | None, *, overwrite: bool) -> Report:
    """Writes the schema of a Struct class."""
    require_free(out, overwrite=overwrite)
    from neuralqx_struct.classes.documents import class_schema, dump_schema

    found: list[Diagnostic] = []
    document = class_schema(_imported(name), schema=identity, report=found)
    members = {"schema": document.id, "schema_version": document.version}
    return written(dump_schema(document), out, found=found, **members)


def _imported(name: str) -> type:
    """Imports the Struct class that a command line names."""
    from neuralqx_struct.fieldspec import is_struct
    from neuralqx_struct.references import import_trusted

    module_name, _, qualname = name.partition(":")
    if not module_name or not qualname:
        raise _refused(f"expected MODULE:CLASS, got {name!r}", "such as lab.model:TrainState")
    if not import_trusted(module_name, SchemaError, "NQX400"):
        message = (
            f"expected a module that can be imported, got {module_name!r}, which does not exist"
        )
        raise _refused(message, "install it, or run the command in the folder that has it")
    found: Any = sys.modules[module_name]
    for part in qualname.split("."):
        if not hasattr(found, part):
            members = vars(found).items()
            classes = [
                key for key, value in members if isinstance(value, type) and is_struct(value)
            ]
            message = f"expected a class in {module_name}, got {qualname!r}"
            raise _refused(message, did_you_mean(part, classes))
        found = getattr(found, part)
    if not isinstance(found, type) or not is_struct(found):
        hint = "name a subclass of neuralqx_struct.Struct"
        raise _refused(f"expected a Struct class, got {name}", hint)
    return found


def stub(path: Path, out: Path | None, *, overwrite: bool) -> Report:
    """Writes a Python module with the classes of a schema."""
    require_free(out, overwrite=overwrite)
    from neuralqx_struct.schema.stubs import stub_module

    series = _series_without_errors(path)
    base = Path.cwd() if out is None else out.absolute().parent
    where = os.path.relpath(path.absolute(), base).replace(os.sep, "/")
    return written(stub_module(series.head, where), out)


def revision(
    path: Path,
    *,
    name: str | None,
    edited: Path | None,
    against: str,
    out: Path | None,
    dry_run: bool,
) -> Report:
    """Writes the next version of an edited schema."""
    from neuralqx_struct.evolution.revision import revise
    from neuralqx_struct.schema.text.loader import read_text

    if name is not None and edited is not None:
        raise _refused("expected --from or --edited, got both", "name one edited schema")
    found: list[Diagnostic] = []
    given: Any = edited
    if name is not None:
        from neuralqx_struct.classes.documents import class_schema
        from neuralqx_struct.schema.series import load_series

        given = class_schema(_imported(name), schema=load_series(path).id, report=found)
    made = revise(path, edited=given, against=against)
    where = str(out or made.file)
    if not dry_run:
        made.write(out)
    try:
        read_text(made.text, where)
    except SchemaError as error:  # the questions, with their places
        found += error.diagnostics
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


# --- documentation of codes and results ---------------------------------------------------------------------------


def explain(code: str) -> Report:
    """The page about a diagnostic code, or a list of all codes."""
    pages = {page.stem: page for page in sorted(shipped("docs/diagnostics").glob("NQX*.md"))}
    wanted = f"NQX{code}" if code.isdecimal() else code.upper()
    if not code:
        texts = [page.read_text(encoding="utf-8") for page in pages.values()]
        titles = [text.partition("\n")[0].removeprefix("# ") for text in texts]
        return Report("\n".join(titles), members={"codes": [*pages]}, layout="document")
    if wanted in pages:
        text = pages[wanted].read_text(encoding="utf-8").strip()
        return Report(text, members={"code": wanted, "text": text}, layout="document")
    # A code differs from its neighbours in one digit: only those of the same hundred are likely corrections.
    near = [known for known in pages if known[:4] == wanted[:4]]
    hint = did_you_mean(wanted, near) or "`neuralqx-struct explain` lists all codes"
    return failure("NQX400", f"expected a documented code, got {code!r}", hint)
