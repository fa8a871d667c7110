"""The command ``replay``: runs the functions in a bundle and compares their outputs with the golden ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from neuralqx_struct.cli.arguments import LIMITS, TRUST, option, parse_rtol, path
from neuralqx_struct.cli.command import Command
from neuralqx_struct.cli.report import Report
from neuralqx_struct.manifest import Limits


def run(bundle: Path, *, rtol: float | None, trust: Sequence[str], limits: Limits | None) -> Report:
    """Compares the outputs."""
    from neuralqx_struct.checkpoint.replay import replayed

    found = replayed(bundle, rtol=rtol, trust=trust, limits=limits)
    members = {"replay": found.to_json()}
    return Report(str(found), tuple(found.findings), members)


COMMAND = Command(
    name="replay",
    function="neuralqx_struct.replayed",
    run=run,
    help="Run the functions in a bundle and compare their outputs with the golden ones.",
    arguments=(
        path("bundle", "A bundle that was exported with replay=.", "BUNDLE"),
        option(
            "rtol", "Tolerance, times the largest golden value of an output.", "X", parse=parse_rtol
        ),
        TRUST,
        LIMITS,
    ),
    examples=("replay kept", "replay kept --rtol 1e-6"),
    members=("replay",),
    needs_jax=True,
)
