"""The command ``convert``: writes a bundle in another form or store, or from and to a foreign file; and whole runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from neuralqx_struct.cli.arguments import (
    LIMITS,
    OUT,
    OVERWRITE,
    REQUIRED,
    SCHEMA,
    SOURCE,
    TRUST,
    VALUES,
    option,
    parse_bytes,
    parse_store,
    switch,
)
from neuralqx_struct.cli.command import Command
from neuralqx_struct.cli.named import schemas_of
from neuralqx_struct.cli.report import Report, require_free
from neuralqx_struct.cli.terminal import progress_bar
from neuralqx_struct.errors import Diagnostic


def run(source: Path, out: Path, *, schema: Any, overwrite: bool, **options: Any) -> Report:
    """Writes the other form."""
    from neuralqx_struct.bundle.runs import holds_bundles
    from neuralqx_struct.layouts.conversion import convert

    if not (isinstance(source, Path) and holds_bundles(source)):  # a run goes on in its folder
        require_free(out, overwrite=overwrite)
    found: list[Diagnostic] = []
    with progress_bar("converting") as advance:
        done = convert(
            source,
            out,
            schema=schemas_of(schema),
            overwrite=overwrite,
            report=found,
            progress=advance,
            **options,
        )
    members: dict[str, Any] = {name: getattr(done, name) for name in _MEMBERS}
    failures: tuple[Diagnostic, ...] = ()
    if done.run is not None:
        members["steps"] = done.run.states
        found, failures = [*done.run.findings], done.run.refusals
    return Report(str(done), tuple(found), members, failures, "verdict")


_MEMBERS = ("out", "store", "arrays", "nbytes", "dropped", "linked")

COMMAND = Command(
    name="convert",
    function="neuralqx_struct.convert",
    run=run,
    help="Write a bundle in another form or store, or from or to a foreign file. Takes runs, too.",
    arguments=(
        SOURCE,
        OUT._replace(help="Path of the new one; with .zip one file.", default=REQUIRED),
        OVERWRITE,
        option(
            "store",
            "npz, safetensors or orbax; as in SRC if left out.",
            "STORE",
            parse=parse_store,
            project="store",
        ),
        switch("compress", "Smaller files that cannot be mapped."),
        switch("compact", "Leave out arrays that a migration left unused."),
        SCHEMA,
        option(
            "layout",
            "Names and forms of a foreign file: a name in the schema's layouts/, or a file.",
            "LAYOUT",
        ),
        VALUES,
        option(
            "max_shard_size",
            "Write a folder of files of this size, such as 5GB.",
            "SIZE",
            parse=parse_bytes,
        ),
        TRUST,
        LIMITS,
    ),
    examples=(
        "convert ckpt --out ckpt.zip --compress",
        "convert ckpt --out other --store safetensors --overwrite",
        "convert model.safetensors --out net --schema model --layout hf",
        "convert runs --out typed_runs --schema schemas/vmc_state",
    ),
    members=(*_MEMBERS, "steps"),
)
