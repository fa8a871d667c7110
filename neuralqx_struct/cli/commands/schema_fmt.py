"""The command ``schema fmt``: writes schema files in their canonical layout."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from neuralqx_struct.cli.arguments import SCHEMA_PATHS, switch
from neuralqx_struct.cli.command import Command
from neuralqx_struct.cli.named import existing
from neuralqx_struct.cli.report import Report, each
from neuralqx_struct.errors import Diagnostic, printable, shell_word


def run(paths: Sequence[Path], *, check: bool) -> Report:
    """Writes the files that are in another layout, or reports them."""
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
    return done._replace(text="\n".join(lines) or done.text, members=members)


COMMAND = Command(
    name="schema fmt",
    function="neuralqx_struct.tools.formatting.format_schema",
    run=run,
    help="Write schema files in one layout. Comments are kept.",
    arguments=(
        SCHEMA_PATHS,
        switch("check", "Write nothing; files in another layout are findings."),
    ),
    examples=("schema fmt", "schema fmt schemas/vmc_state --check"),
    members=("paths", "changed"),
)
