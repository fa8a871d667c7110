"""The command ``migrate``: writes a bundle, or every bundle of a folder, in another version."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neuralqx_struct.cli.arguments import (
    LIMITS,
    OUT,
    OVERWRITE,
    SCHEMA,
    TRUST,
    Argument,
    option,
    parse_version,
    path_or_url,
    switch,
)
from neuralqx_struct.cli.command import Command
from neuralqx_struct.cli.named import schemas_of
from neuralqx_struct.cli.report import Report, UsageError, failure, require_free
from neuralqx_struct.cli.terminal import progress_bar
from neuralqx_struct.errors import printable
from neuralqx_struct.manifest import Limits

if TYPE_CHECKING:
    from neuralqx_struct.bundle.runs import RunResult
    from neuralqx_struct.evolution.plans import Plan


def run(
    source: Path,
    *,
    out: Path | None,
    overwrite: bool,
    to: str | int,
    schema: Any,
    dry_run: bool,
    trust: Sequence[str],
    limits: Limits | None,
) -> Report:
    """Plans the migration, and writes its result unless it is a dry run."""
    if out is None and not dry_run:
        raise UsageError("expected --out DST, or --dry-run, got neither")
    from neuralqx_struct.bundle.runs import holds_bundles
    from neuralqx_struct.tools.migration import migrate, migrate_all

    target = out or source.parent / f"{source.name}-migrated"
    options: dict[str, Any] = {
        "to": to,
        "schema": schemas_of(schema),
        "dry_run": dry_run,
        "overwrite": overwrite,
        "trust": trust,
        "limits": limits,
    }
    members: dict[str, Any] = {"out": None if dry_run else target, "dry_run": dry_run}
    end = "nothing was written (--dry-run)" if dry_run else f"written to {printable(target)}"
    if holds_bundles(source):
        with progress_bar("migrating bundles") as advance:
            folder = migrate_all(source, target, **options, progress=advance)
        return _of_folder(folder, end, members)
    if not dry_run:
        require_free(target, overwrite=overwrite)
    if not isinstance(schema, Path) and to == "head":
        planned = migrate(source, target, **{**options, "dry_run": True})
        if not planned.plan.hops and (schema is None or schema.get(planned.plan.id) is None):
            return _without_schema(planned.plan, source)
    with progress_bar("migrating") as advance:
        done = migrate(source, target, **options, progress=advance)
    members["plan"] = _plan(done.plan)
    return Report(f"{done.plan}\n{end}", done.report, members, layout="verdict")


def _without_schema(plan: Plan, source: Path) -> Report:
    """The report about a bundle at the newest version that it knows itself."""
    message = f"expected a schema with newer versions, got only version {plan.to_version} of {plan.id} in the bundle"
    hint = "pass the folder of the schema: --schema SCHEMA, or name it in a project file"
    return failure("NQX400", message, hint, str(source))


def _plan(plan: Plan) -> dict[str, Any]:
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


def _of_folder(done: RunResult, end: str, members: dict[str, Any]) -> Report:
    if all(item.state in ("failed", "waiting") for item in done.items):
        end = "nothing was written"
    plans = {str(item.plan): _plan(item.plan) for item in done.items if item.plan is not None}
    members["plans"] = [*plans.values()]
    members["bundles"] = done.states
    return Report(f"{done}\n{end}", done.findings, members, done.refusals, "verdict")


COMMAND = Command(
    name="migrate",
    function="neuralqx_struct.migrate",
    run=run,
    help="Write a bundle in another schema version. Takes folders of bundles, too.",
    arguments=(
        Argument(
            "source",
            "The bundle, or a folder of bundles; it is not changed.",
            "SRC",
            parse=path_or_url,
        ),
        OUT._replace(help="Path of the new bundle; not needed with --dry-run."),
        OVERWRITE,
        option(
            "to",
            "A version, or how many to go back.",
            "N|head|-1",
            default="head",
            parse=parse_version,
        ),
        SCHEMA,
        switch("dry_run", "Plan and check, but write nothing."),
        TRUST,
        LIMITS,
    ),
    examples=(
        "migrate ckpt --out new --schema schemas/vmc_state",
        "migrate runs --out new_runs --to 2 --schema schemas/vmc_state",
        "migrate ckpt --dry-run --schema schemas/vmc_state",
    ),
    members=("plan", "plans", "bundles", "out", "dry_run"),
)
