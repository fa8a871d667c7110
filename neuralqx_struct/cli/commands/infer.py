"""The command ``infer``: writes a first schema from the contents of a bundle or a foreign file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from neuralqx_struct.cli.arguments import IDENTITY, LIMITS, OUT, OVERWRITE, SOURCE
from neuralqx_struct.cli.command import Command
from neuralqx_struct.cli.report import Report, UsageError, require_free, written
from neuralqx_struct.errors import printable
from neuralqx_struct.manifest import Limits


def run(
    source: Path,
    identity: str | None,
    out: Path | None,
    *,
    overwrite: bool,
    limits: Limits | None,
) -> Report:
    """Writes the schema, and a layout for a foreign file."""
    from neuralqx_struct.tools.inference import infer

    is_file = out is not None and out.suffix in (".yaml", ".yml")
    if is_file:
        require_free(out, overwrite=overwrite)
    found = infer(source, schema=identity, limits=limits)
    members: dict[str, Any] = {"text": found.schema, "layout": found.layout or None, "out": out}
    if out is None:
        text = "\n".join(filter(None, [found.schema, found.layout]))
        return written(text, None, found=found.findings)._replace(members=members)
    if is_file:
        if found.layout:
            message = f"expected a folder as --out, got the file {out}"
            raise UsageError(f"{message}: a schema and a layout are two files")
        return written(found.schema, out, found=found.findings)._replace(members=members)
    files = ", ".join(map(printable, found.write(out, overwrite=overwrite)))
    return Report(f"written to {files}", found.findings, members, layout="verdict")


COMMAND = Command(
    name="infer",
    function="neuralqx_struct.infer",
    run=run,
    help="Write a first schema from a bundle or a foreign file. A TODO marks each unknown part.",
    arguments=(
        SOURCE,
        OUT._replace(help="A folder, or a YAML file; printed if left out."),
        OVERWRITE,
        IDENTITY,
        LIMITS,
    ),
    examples=(
        "infer ckpt",
        "infer model.safetensors --out schemas/drafted --id lab.net",
    ),
    members=("text", "layout", "out"),
)
