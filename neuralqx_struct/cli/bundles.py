"""Functions of the commands about bundles, and of those that compare schemas; each returns a report."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from neuralqx_struct.cli import reports
from neuralqx_struct.cli.arguments import parse_bytes, parse_limits, parse_value
from neuralqx_struct.cli.reports import each
from neuralqx_struct.cli.results import ArgumentError, Report, failure, require_free, written
from neuralqx_struct.cli.schemas import existing
from neuralqx_struct.errors import Diagnostic, has_errors, printable


def demo(folder: Path | None) -> Report:
    """Runs the demonstration."""
    from neuralqx_struct.cli import demo as demonstration

    with reports.progress_bar("demo") as advance:
        figures = demonstration.run(
            folder or demonstration.free_folder(),
            log=reports.narrate,
            progress=None if advance is None else lambda done, total, _: advance(done, total),
        )
    return Report(members=asdict(figures))


def _schemas(schema: Any) -> Any:
    """The schemas of ``--schema``, read once: a path, those of the project file, or None."""
    if schema is None:
        return None
    from neuralqx_struct.schema.catalogue import schemas_given

    return schemas_given(existing(schema) if isinstance(schema, Path) else schema)


def validate(
    paths: Sequence[Path], schema: Any, json_schema: Path | None, limits: Sequence[str]
) -> Report:
    """Checks manifests against the published format and their schemas."""
    from neuralqx_struct.tools import validation

    wanted, most = _schemas(schema), parse_limits(limits)
    good = "valid (arrays not read: verify reads them)"

    def check(path: Path) -> list[Diagnostic]:
        return validation.validate(path, wanted, json_schema=json_schema, limits=most)

    return each(paths, check, good)


def verify(paths: Sequence[Path], limits: Sequence[str]) -> Report:
    """Reads every byte and compares it with its checksum."""
    from neuralqx_struct.bundle import BundleMissingError
    from neuralqx_struct.tools import validation

    most = parse_limits(limits)

    def check(path: Path) -> list[Diagnostic]:
        with reports.progress_bar(f"verifying {path.name}") as advance:
            found = validation.verify(path, limits=most, progress=advance)
        if has_errors(found) and isinstance(path, Path) and not os.path.lexists(path):
            raise BundleMissingError(found)
        return found

    return each(paths, check, "intact")


_SCREEN = 40  # rows that `inspect` shows without --depth, or fewer on a lower terminal
_HEAD = 8  # lines around them
_FEWEST = 12


def inspect(
    path: Path,
    filter: str | None,  # noqa: A002
    depth: str | None,
    html: Path | None,
    *,
    stats: bool,
    limits: Sequence[str],
) -> Report:
    """Shows the contents of a bundle or a foreign file."""
    from neuralqx_struct.filters import FilterError
    from neuralqx_struct.tools import inspection

    found: list[Diagnostic] = []
    try:
        record = inspection.inspect(
            path, filter, report=found, stats=stats, limits=parse_limits(limits)
        )
    except FilterError as error:
        if error.code == "NQX426":  # nothing matches the filter
            return Report(diagnostics=error.diagnostics)
        return Report(failures=error.diagnostics)  # the filter cannot be read
    if html is not None:
        from neuralqx_struct.pages import inspection_page

        report = written(inspection_page(record), html, found=found)
        return replace(report, members={"bundle": record.to_json(), "out": html})
    if depth is None:
        size = shutil.get_terminal_size((80, _SCREEN + _HEAD))
        most = min(max(size.lines - _HEAD, _FEWEST), _SCREEN) // (1 + stats)
        note = "; --depth all shows every row" if len(record.rows) > most else ""
        text = f"{record.outline(most=most, width=max(size.columns, 80))}{note}"
    else:
        text = record.outline(None if depth == "all" else int(depth))
    return Report(text, tuple(found), {"bundle": record.to_json()})


def report(
    path: Path, other: Path | None, out: Path, *, overwrite: bool, limits: Sequence[str]
) -> Report:
    """Writes a page of HTML about a checkpoint or a schema, or about two checkpoints."""
    require_free(out, overwrite=overwrite)
    from neuralqx_struct.pages import report as page

    return replace(
        written(page(path, other, limits=parse_limits(limits)), out), members={"out": out}
    )


def diff(old: Path, new: Path, *, values: bool, limits: Sequence[str]) -> Report:
    """Compares two schemas, or the schemas or the values of two bundles."""
    most = parse_limits(limits)
    if values:
        return _diff_values(old, new, most)
    from neuralqx_struct.evolution.diff import diff as compare

    given = (existing(each) if isinstance(each, Path) else each for each in (old, new))
    changes = compare(*given, limits=most)
    text = "\n".join(map(str, changes)) or "no changes"
    return Report(text, members={"changes": [change.to_json() for change in changes]})


def _diff_values(old: Path, new: Path, limits: Any) -> Report:
    """Compares the values of two bundles or foreign files."""
    from neuralqx_struct.tools.value_differences import diff_values

    found = diff_values(old, new, limits=limits)
    return Report(
        found.summary,
        tuple(found.findings),
        {"values": found.to_json()},
        layout="verdict",
        most=_SCREEN // 2,  # of two lines each
    )


def breaking(path: Path, against: str, limits: Sequence[str], **options: Any) -> Report:
    """Checks whether changes of schemas make earlier checkpoints, or earlier readers, fail."""
    from neuralqx_struct.evolution.compatibility import breaking as check

    found = check(existing(path), against=against, limits=parse_limits(limits), **options)
    text = "" if has_errors(found) else f"{printable(path)}: compatible with {printable(against)}"
    return Report(text, tuple(found), {"path": path, "against": against}, layout="verdict")


def convert(
    source: Path,
    out: Path,
    *,
    schema: Any,
    values: Sequence[str],
    max_shard_size: str | None,
    limits: Sequence[str],
    **options: Any,
) -> Report:
    """Writes a bundle in another form or store, or from and to a foreign file."""
    from neuralqx_struct.layouts import conversion

    require_free(out, overwrite=options["overwrite"])
    found: list[Diagnostic] = []
    with reports.progress_bar("converting") as advance:
        done = conversion.convert(
            source,
            out,
            schema=_schemas(schema),
            values=dict(map(parse_value, values)),
            max_shard_size=None if max_shard_size is None else parse_bytes(max_shard_size),
            report=found,
            limits=parse_limits(limits),
            **options,
            progress=advance,
        )
    return Report(str(done), tuple(found), members=asdict(done), layout="verdict")


def infer(
    source: Path,
    identity: str | None,
    out: Path | None,
    *,
    overwrite: bool,
    limits: Sequence[str],
) -> Report:
    """Writes a first schema from the contents of a bundle or a foreign file, and a layout for the second."""
    from neuralqx_struct.tools.inference import infer as draft

    is_file = out is not None and out.suffix in (".yaml", ".yml")
    if is_file:
        require_free(out, overwrite=overwrite)
    found = draft(source, schema=identity, limits=parse_limits(limits))
    members: dict[str, Any] = {"layout": found.layout or None}
    if out is None:
        text = "\n".join(filter(None, [found.schema, found.layout]))
        report = written(text, None, found=found.findings, **members)
        return replace(report, members={**report.members, "text": found.schema})
    if is_file:
        if found.layout:
            hint = "a schema and a layout are two files: name a folder"
            raise ArgumentError(f"expected a folder, got the file {out}\n{hint}", "--out")
        return written(found.schema, out, found=found.findings, **members)
    files = ", ".join(map(printable, found.write(out, overwrite=overwrite)))
    return Report(
        f"written to {files}",
        found.findings,
        members={"text": found.schema, "out": out, **members},
        layout="verdict",
    )


def migrate(
    source: Path,
    *,
    out: Path | None,
    overwrite: bool,
    to: str,
    schema: Any,
    dry_run: bool,
    trust: Sequence[str],
    limits: Sequence[str],
) -> Report:
    """Writes a bundle, or every bundle of a folder, in another version."""
    if out is None and not dry_run:
        raise ArgumentError("expected --out DST, or --dry-run", "--out")
    from neuralqx_struct.evolution import folders, migrations

    target = out or source.parent / f"{source.name}-migrated"
    options: dict[str, Any] = {
        "to": to if to == "head" else int(to),
        "schema": _schemas(schema),
        "dry_run": dry_run,
        "overwrite": overwrite,
        "trust": trust,
        "limits": parse_limits(limits),
    }
    members: dict[str, Any] = {"out": None if dry_run else target, "dry_run": dry_run}
    end = "nothing was written (--dry-run)" if dry_run else f"written to {printable(target)}"
    if folders.holds_bundles(source):
        with reports.progress_bar("migrating bundles") as advance:
            folder = folders.migrate_all(source, target, **options, progress=advance)
        if all(item.state in ("failed", "waiting") for item in folder.items):
            end = "nothing was written"
        return _of_folder(folder, end, members)
    if not dry_run:
        require_free(target, overwrite=overwrite)
    if not isinstance(schema, Path) and to == "head":
        planned = migrations.migrate(source, target, **{**options, "dry_run": True})
        if not planned.plan.hops and (schema is None or schema.get(planned.plan.id) is None):
            message = f"expected a schema with newer versions, got only version {planned.plan.to_version} of {planned.plan.id} in the bundle"
            hint = "pass the folder of the schema: --schema SCHEMA, or name it in a project file"
            return failure("NQX400", message, hint, str(source))
    with reports.progress_bar("migrating") as advance:
        done = migrations.migrate(source, target, **options, progress=advance)
    members["plan"] = _plan(done.plan)
    return Report(f"{done.plan}\n{end}", done.report, members, layout="verdict")


def _plan(plan: Any) -> dict[str, Any]:
    hops = [
        {
            "from": hop.old.version,
            "to": hop.new.version,
            "direction": hop.direction,
            "declared": hop.declared,
            "text": str(hop),
        }
        for hop in plan.hops
    ]
    return {"id": plan.id, "from": plan.from_version, "to": plan.to_version, "hops": hops}


def _of_folder(done: Any, end: str, members: dict[str, Any]) -> Report:
    plans = {str(item.plan): _plan(item.plan) for item in done.items if item.plan is not None}
    members["plans"] = [*plans.values()]
    members["bundles"] = [
        {"path": item.path, "out": item.out, "state": item.state} for item in done.items
    ]
    # The system refused the target: such a finding is not about the input.
    failures = tuple(found for found in done.diagnostics if found.code == "NQX406")
    others = tuple(found for found in done.diagnostics if found.code != "NQX406")
    return Report(f"{done}\n{end}", others, members, failures, "verdict")
