"""What the commands about bundles do, as reports; no option parser is needed for it.

``commands.py`` gives them a command line, and ``__init__.py`` a short way past it for plain calls.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from neuralqx_struct.cli.reporters import Report, each
from neuralqx_struct.errors import Diagnostic, has_errors

__all__ = ["convert", "inspect", "migrate", "present", "validate", "verify"]


def present(path: Path) -> Path:
    """The path of a schema, which must exist.

    Raises:
        SchemaMissingError: There is nothing.
    """
    if not path.exists():
        from neuralqx_struct.schema.series import SchemaMissingError

        raise SchemaMissingError.at(path)
    return path


def validate(paths: Sequence[Path], schema: Path | None = None) -> Report:
    """Check manifests against the published format and their schemas."""
    from neuralqx_struct import validation

    wanted: Any = None
    if schema is not None:
        from neuralqx_struct.schema.series import load_series

        wanted = load_series(present(schema))
    return each(
        "validate", paths, lambda path: validation.validate(path, wanted), "valid (arrays not read: verify reads them)"
    )


def verify(paths: Sequence[Path]) -> Report:
    """Read every byte and compare it with its checksum."""
    from neuralqx_struct import bundle
    from neuralqx_struct.cli.progress import progress_bar

    def check(path: Path) -> list[Diagnostic]:
        with progress_bar(f"verifying {path.name}") as advance:
            found = bundle.verify(path, progress=advance)
        if has_errors(found) and not os.path.lexists(path):
            raise bundle.BundleMissingError(found)
        return found

    return each("verify", paths, check, "intact")


def convert(source: Path, out: Path, **how: Any) -> Report:
    """Write a bundle in another form or store."""
    from neuralqx_struct import conversion
    from neuralqx_struct.bundle import BundleExistsError
    from neuralqx_struct.cli.progress import progress_bar

    if os.path.lexists(out) and not how.get("overwrite"):
        message = "expected a new path, got one that exists"
        raise BundleExistsError(message, file=str(out), hint="pass --overwrite, or choose another DST")
    with progress_bar("converting") as advance:
        done = conversion.convert(source, out, **how, progress=advance)
    members = {
        "out": str(done.out),
        "store": done.store,
        "arrays": done.arrays,
        "nbytes": done.nbytes,
        "dropped": list(done.dropped),
        "linked": done.linked,
    }
    return Report("convert", text=str(done), members=members)


def migrate(source: Path, out: Path, **how: Any) -> Report:
    """Write a bundle, or every bundle of a folder, in another version."""
    from neuralqx_struct.bundle import BundleExistsError
    from neuralqx_struct.cli.progress import progress_bar
    from neuralqx_struct.evolution import folders, migrations

    if source.is_dir() and not folders.is_bundle(source):
        with progress_bar("migrating bundles") as advance:
            folder = folders.migrate_all(source, out, **how, progress=advance)
        return _of_folder(folder, out, dry_run=how["dry_run"])
    if not how["dry_run"] and os.path.lexists(out):
        message = "expected a new path, got one that exists"
        raise BundleExistsError(message, file=str(out), hint="remove it, or choose another --out")
    with progress_bar("migrating") as advance:
        done = migrations.migrate(source, out, **how, progress=advance)
    written = "nothing was written (--dry-run)" if done.out is None else f"written to {done.out}"
    members = {"plan": _plan(done.plan), "out": None if done.out is None else str(done.out), "dry_run": how["dry_run"]}
    note = ""
    if not done.plan.hops and how["schema"] is None and how["to"] == "head":
        note = " (the newest version that the bundle knows; --schema names the folder with newer ones)"
    return Report("migrate", done.report, f"{done.plan}{note}\n{written}", members)


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


def _of_folder(done: Any, out: Path, *, dry_run: bool) -> Report:
    from neuralqx_struct.cli.reporters import could_not_write

    written = "nothing was written (--dry-run)" if dry_run else f"written to {out}"
    items = [{"path": str(i.path), "out": str(i.out), "state": i.state} for i in done.items]
    plans = {str(item.plan): _plan(item.plan) for item in done.items if item.plan is not None}
    members = {"plans": [*plans.values()], "bundles": items, "out": None if dry_run else str(out), "dry_run": dry_run}
    failures = tuple(found for found in done.diagnostics if could_not_write(found))
    found = tuple(finding for finding in done.diagnostics if finding not in failures)
    return Report("migrate", found, f"{done}\n{written}", members, failures)


def inspect(path: Path, chosen: str | None = None) -> Report:
    """Show what is in a bundle."""
    from neuralqx_struct import inspection
    from neuralqx_struct.filters import FilterError

    found: list[Diagnostic] = []
    try:
        seen = inspection.inspect(path, chosen, report=found)
    except FilterError as error:
        if error.code == "NQX426":  # it was looked for and is not there
            return Report("inspect", error.diagnostics)
        return Report("inspect", failures=error.diagnostics)  # what to look for cannot be read
    return Report("inspect", tuple(found), text=str(seen), members={"bundle": seen.to_json()})
