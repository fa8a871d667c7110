"""The command ``diff``: compares two schemas, or the schemas or the values of two bundles."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from neuralqx_struct.cli.arguments import LIMITS, TRUST, path, switch
from neuralqx_struct.cli.command import Command
from neuralqx_struct.cli.named import existing
from neuralqx_struct.cli.report import Report
from neuralqx_struct.manifest import Limits

_MOST: Final = 20  # differences of values, of two lines each


def run(
    old: Path, new: Path, *, values: bool, trust: Sequence[str], limits: Limits | None
) -> Report:
    """Lists the differences."""
    if values:
        from neuralqx_struct.tools.value_differences import diff_values

        found = diff_values(old, new, trust=trust, limits=limits)
        members = {"values": found.to_json()}
        return Report(found.summary, tuple(found.findings), members, layout="verdict", most=_MOST)
    from neuralqx_struct.evolution.diff import diff

    given = (existing(each) if isinstance(each, Path) else each for each in (old, new))
    changes = diff(*given, limits=limits)
    text = "\n".join(map(str, changes)) or "no changes"
    return Report(text, members={"changes": [change.to_json() for change in changes]})


COMMAND = Command(
    name="diff",
    function="neuralqx_struct.diff",
    run=run,
    help="Compare two schemas or bundles. A folder means its newest version.",
    arguments=(
        path("old", "A schema or bundle.", "A", schema=True),
        path("new", "The one to compare it with.", "B", schema=True),
        switch("values", "Compare the arrays and values of two bundles or foreign files."),
        TRUST,
        LIMITS,
    ),
    examples=(
        "diff schemas/vmc_state@2 schemas/vmc_state",
        "diff runs/a runs/b --values",
    ),
    members=("changes", "values"),
)
