"""The command ``schema stub``: writes the classes of a schema as a module for type checkers."""

from __future__ import annotations

import os
from pathlib import Path

from neuralqx_struct.cli.arguments import OUT, OVERWRITE, SCHEMA_PATH
from neuralqx_struct.cli.command import Command
from neuralqx_struct.cli.named import sound_series
from neuralqx_struct.cli.report import Report, require_free, written


def run(path: Path, out: Path | None, *, overwrite: bool) -> Report:
    """Writes the module, which finds the schema relative to where it lies itself."""
    require_free(out, overwrite=overwrite)
    from neuralqx_struct.schema.stubs import stub_module

    series = sound_series(path)
    base = Path.cwd() if out is None else out.absolute().parent
    where = os.path.relpath(path.absolute(), base).replace(os.sep, "/")
    return written(stub_module(series.head, where), out)


COMMAND = Command(
    name="schema stub",
    function="neuralqx_struct.schema.stubs.stub_module",
    run=run,
    help="Write the classes of a schema as a module for type checkers.",
    arguments=(SCHEMA_PATH, OUT, OVERWRITE),
    examples=("schema stub schemas/vmc_state --out vmc_state.py --overwrite",),
    members=("text", "out"),
)
