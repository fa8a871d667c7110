"""The command ``schema freeze``: freezes versions in schema.lock, and writes their golden payloads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from neuralqx_struct.cli.arguments import SCHEMA_FOLDER, TRUST, switch
from neuralqx_struct.cli.command import Command
from neuralqx_struct.cli.report import Report
from neuralqx_struct.errors import printable


def run(path: Path, *, golden: bool, trust: Sequence[str]) -> Report:
    """Freezes versions, and on request writes their golden payloads; all of it or nothing."""
    from neuralqx_struct.tools.history import freeze

    golden_bundles: list[Path] = []
    if golden:
        freeze(path, dry_run=True)
        from neuralqx_struct.checkpoint.golden import write_golden

        golden_bundles = write_golden(path, trust=trust)
    done = freeze(path)
    members = {**asdict(done), "golden": golden_bundles}
    lines = [str(done), *(f"written to {printable(place)}" for place in golden_bundles)]
    return Report("\n".join(lines), members=members, layout="verdict")


COMMAND = Command(
    name="schema freeze",
    function="neuralqx_struct.tools.history.freeze",
    run=run,
    help="Freeze versions in schema.lock. Lint refuses later edits of them.",
    arguments=(
        SCHEMA_FOLDER,
        switch(
            "golden",
            "Also write a tiny bundle of each version that has none (imports JAX).",
            project="golden",
        ),
        TRUST,
    ),
    examples=("schema freeze schemas/vmc_state", "schema freeze schemas/vmc_state --golden"),
    members=("lock", "added", "kept", "corrected", "golden"),
)
