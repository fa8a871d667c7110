"""The table of commands: name, function, arguments, help, JSON members, and whether JAX is needed.

The command line, its help and completion, the formats of results and the checks of the documentation are made from it.
The rows of the group ``schema`` are in ``schema_table.py``.

Example:
    >>> COMMANDS["verify"].members
    ('paths',)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from neuralqx_struct.cli import bundles, schemas
from neuralqx_struct.cli.arguments import (
    JSON_SCHEMA,
    LAYOUT,
    LIMITS,
    MODE,
    OUT,
    OVERWRITE,
    PATHS,
    REQUIRED,
    SCHEMA,
    SHARDS,
    STORE,
    TRUST,
    VALUES,
    WAIVERS,
    Argument,
    check_depth,
    check_version,
    choice,
    option,
    switch,
    word,
)
from neuralqx_struct.cli.commands import Command
from neuralqx_struct.cli.schema_table import SCHEMA_COMMANDS

#: The groups of commands with their help; a command of a group has its name as first word.
GROUPS: Final = {
    "": "Declarative schemas for JAX checkpoints: validate, inspect, compare and migrate bundles.",
    "schema": "Check and show schema files.",
}

_ROWS = (
    Command(
        name="demo",
        function="neuralqx_struct.cli.demo.run",
        run=bundles.demo,
        help="Train, export, validate, migrate and resume a small simulation.",
        arguments=(
            Argument(
                "folder",
                "A new or empty folder; neuralqx-struct-demo, or the next free name, if left out.",
                "FOLDER",
                default=None,
            ),
        ),
        examples=(
            "demo",
            "demo try-it",
        ),
        members=(
            "exact",
            "trained",
            "relative_error",
            "resumed",
            "difference",
            "bundle",
            "migrated",
            "report",
            "seconds",
        ),
        needs_jax=True,
    ),
    Command(
        name="validate",
        function="neuralqx_struct.validate",
        run=bundles.validate,
        help="Check manifests against the format and their schemas. Arrays are not read.",
        arguments=(
            PATHS,
            SCHEMA,
            JSON_SCHEMA,
            LIMITS,
        ),
        examples=(
            "validate ckpt",
            "validate runs/a runs/b --schema schemas/vmc_state",
        ),
        members=("paths",),
    ),
    Command(
        name="inspect",
        function="neuralqx_struct.inspect",
        run=bundles.inspect,
        help="Show the contents of a bundle, or of a file such as model.safetensors.",
        arguments=(
            Argument("path", "A bundle, or a file of another program.", "PATH", reads=True),
            option("filter", "Such as 'tag:trainable & !path:**/bias'.", "FILTER"),
            option(
                "depth",
                "Count what is deeper in the row around it; without it, one screen is shown.",
                "N|all",
                check=check_depth,
            ),
            switch("stats", "Read the arrays: range, mean, NaN and zeros of each."),
            option("html", "Write a page with the table and the sizes.", "FILE", type=Path),
            LIMITS,
        ),
        examples=(
            "inspect ckpt",
            "inspect ckpt --filter 'tag:trainable' --stats",
            "inspect model.safetensors --depth all",
        ),
        members=("bundle", "out"),
    ),
    Command(
        name="report",
        function="neuralqx_struct.report",
        run=bundles.report,
        help="Write an HTML page about a checkpoint or a schema, or about two checkpoints.",
        arguments=(
            Argument(
                "path",
                "A bundle, a file of another program, or a schema.",
                "PATH",
                reads=True,
                schema=True,
            ),
            Argument("other", "A second checkpoint to compare.", "PATH", default=None, reads=True),
            replace(OUT, help="The page.", default=REQUIRED),
            OVERWRITE,
            LIMITS,
        ),
        examples=(
            "report ckpt --out ckpt.html",
            "report runs/a runs/b --out report.html --overwrite",
        ),
        members=("out",),
    ),
    Command(
        name="verify",
        function="neuralqx_struct.verify",
        run=bundles.verify,
        help="Read every byte and compare it with its checksum.",
        arguments=(PATHS, LIMITS),
        examples=(
            "verify ckpt",
            "verify runs/a runs/b --format json",
        ),
        members=("paths",),
    ),
    Command(
        name="diff",
        function="neuralqx_struct.diff",
        run=bundles.diff,
        help="Compare two schemas or bundles. A folder means its newest version.",
        arguments=(
            Argument("old", "A schema or bundle.", "A", reads=True, schema=True),
            Argument("new", "The one to compare it with.", "B", reads=True, schema=True),
            switch("values", "Compare the arrays and values of two bundles or foreign files."),
            LIMITS,
        ),
        examples=(
            "diff schemas/vmc_state@2 schemas/vmc_state",
            "diff runs/a runs/b --values",
        ),
        members=("changes", "values"),
    ),
    Command(
        name="breaking",
        function="neuralqx_struct.breaking",
        run=bundles.breaking,
        help="Check that changes of schemas break no checkpoint and no reader.",
        arguments=(
            option(
                "against",
                "A path, git:REVISION, a schema.lock, or a bundle.",
                "REF",
                default=REQUIRED,
                schema=True,
            ),
            Argument(
                "path",
                "A schema file, folder or ID, or the folder of all schemas.",
                "SCHEMA",
                default=None,
                schema=True,
                project="schemas",
            ),
            MODE,
            choice("unknown", "The load policy to judge by.", "error", "warn", "drop"),
            choice(
                "category",
                "Payloads alone, or everything that readers of manifests see.",
                "payload",
                "manifest",
            ),
            WAIVERS,
            LIMITS,
        ),
        examples=(
            "breaking --against git:HEAD",
            "breaking schemas/vmc_state --against ckpt --mode full",
        ),
        members=("path", "against"),
    ),
    Command(
        name="migrate",
        function="neuralqx_struct.migrate",
        run=bundles.migrate,
        help="Write a bundle in another schema version. Takes folders of bundles, too.",
        arguments=(
            Argument("source", "The bundle, or a folder of bundles; it is not changed.", "SRC"),
            replace(OUT, help="Path of the new bundle; not needed with --dry-run."),
            OVERWRITE,
            option(
                "to",
                "A version, or how many to go back.",
                "N|head|-1",
                default="head",
                check=check_version,
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
    ),
    Command(
        name="convert",
        function="neuralqx_struct.convert",
        run=bundles.convert,
        help="Write a bundle in another form or store, or from or to a foreign file.",
        arguments=(
            Argument("source", "A bundle, or a file of another program.", "SRC", reads=True),
            replace(OUT, help="Path of the new one; with .zip one file.", default=REQUIRED),
            OVERWRITE,
            STORE,
            switch("compress", "Smaller files that cannot be mapped."),
            switch("compact", "Leave out arrays that a migration left unused."),
            SCHEMA,
            LAYOUT,
            VALUES,
            SHARDS,
            TRUST,
            LIMITS,
        ),
        examples=(
            "convert ckpt --out ckpt.zip --compress",
            "convert ckpt --out other --store safetensors --overwrite",
            "convert model.safetensors --out net --schema model --layout hf",
        ),
        members=("out", "store", "arrays", "nbytes", "dropped", "linked"),
    ),
    Command(
        name="infer",
        function="neuralqx_struct.infer",
        run=bundles.infer,
        help="Write a first schema from a bundle or a foreign file. A TODO marks each unknown part.",
        arguments=(
            Argument("source", "A bundle, or a file of another program.", "SRC", reads=True),
            replace(OUT, help="A folder, or a YAML file; printed if left out."),
            OVERWRITE,
            option("identity", "Identity of the schema, such as lab.state.", "ID", flag="--id"),
            LIMITS,
        ),
        examples=(
            "infer ckpt",
            "infer model.safetensors --out schemas/drafted --id lab.net",
        ),
        members=("text", "layout", "out"),
    ),
    Command(
        name="explain",
        function="neuralqx_struct.cli.schemas.explain",
        run=schemas.explain,
        help="Explain a diagnostic code and its fix, or list all codes.",
        arguments=(word("code", "Such as NQX411.", "CODE", default=""),),
        examples=(
            "explain NQX411",
            "explain",
        ),
        members=("code", "codes", "text"),
    ),
)
COMMANDS: Final = {command.name: command for command in (*_ROWS, *SCHEMA_COMMANDS)}


def find_command(words: Sequence[str]) -> tuple[Command | None, Sequence[str]]:
    """The command that a command line names, if any, and its arguments."""
    length = 2 if words[:1] and words[0] in GROUPS else 1
    return COMMANDS.get(" ".join(words[:length])), words[length:]
