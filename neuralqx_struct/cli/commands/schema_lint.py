"""The command ``schema lint``: checks schemas and layouts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from neuralqx_struct.cli.arguments import (
    LIMITS,
    SCHEMA_PATHS,
    TRIES,
    TRUST,
    VALUES,
    option,
    path_or_url,
    switch,
)
from neuralqx_struct.cli.command import Command
from neuralqx_struct.cli.report import Report, each
from neuralqx_struct.errors import Diagnostic, has_errors, printable
from neuralqx_struct.manifest import Limits
from neuralqx_struct.schema.comparisons import Comparison


def run(
    paths: Sequence[Path],
    *,
    golden: bool,
    tries: int | None,
    trust: Sequence[str],
    file: Path | None,
    values: dict[str, Any],
    limits: Limits | None,
) -> Report:
    """Checks schemas and layouts, and on request their golden payloads or a foreign file."""
    from neuralqx_struct.tools.linting import lint

    comparisons: list[Comparison] = []

    def check(path: Path) -> list[Diagnostic]:
        compared = lint(path, tries=tries)
        comparisons.extend(compared.comparisons)
        found: list[Diagnostic] = [*compared]
        if file is not None and not has_errors(found):
            from neuralqx_struct.layouts.payloads import check_file

            # The file can show the values that the layout lacks; if it does not, that is an error about the file.
            found = [finding for finding in found if finding.code != "NQX707"]
            found += check_file(path, file, values, limits=limits)
        # Payloads are compared with schemas without errors only.
        if golden and not has_errors(found):
            from neuralqx_struct.tools.history import check_golden

            found += check_golden(path, trust=trust)
        return found

    report = each(paths, check, "no errors")
    # Findings say more about the others.
    lines = [report.text, *(printable(str(one)) for one in comparisons if one.proved)]
    text = "\n".join(filter(None, lines))
    members = {**report.members, "comparisons": [one.to_dict() for one in comparisons]}
    return report._replace(text=text, members=members, known=frozenset({"NQX320"}))


COMMAND = Command(
    name="schema lint",
    function="neuralqx_struct.tools.linting.lint",
    run=run,
    help="Check schemas and prove their migrations. Lists all findings at once.",
    arguments=(
        SCHEMA_PATHS,
        switch(
            "golden",
            "Also check that the golden payload of each version is still read.",
            project="golden",
        ),
        TRIES,
        TRUST,
        option(
            "file",
            "Foreign file whose header is checked, too.",
            "FILE",
            parse=path_or_url,
            reads=True,
        ),
        VALUES,
        LIMITS,
    ),
    examples=(
        "schema lint",
        "schema lint schemas/vmc_state --format github",
        "schema lint - < schemas/vmc_state/v1.yaml",
    ),
    members=("paths", "comparisons"),
)
