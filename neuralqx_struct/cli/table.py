"""The table of commands: name, function, arguments, help, JSON members, and whether JAX is needed.

The command line, its help and completion, the formats of results and the checks of the documentation are made from it.

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
    FOLDER,
    FOREIGN,
    JSON_SCHEMA,
    LAYOUT,
    LIMITS,
    MODE,
    OUT,
    PATHS,
    REQUIRED,
    SCHEMA,
    SCHEMA_FOLDER,
    SCHEMA_PATH,
    SCHEMA_PATHS,
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
            Argument(
                "other", "A second checkpoint to compare.", "[PATH]", default=None, reads=True
            ),
            option("out", "The page.", "FILE", type=Path, default=REQUIRED),
        ),
        members=("out",),
    ),
    Command(
        name="verify",
        function="neuralqx_struct.verify",
        run=bundles.verify,
        help="Read every byte and compare it with its checksum.",
        arguments=(PATHS,),
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
        ),
        members=("path", "against"),
    ),
    Command(
        name="migrate",
        function="neuralqx_struct.migrate",
        run=bundles.migrate,
        help="Write a bundle in another schema version. Takes folders of bundles, too.",
        arguments=(
            Argument("bundle", "The bundle, or a folder of bundles; it is not changed.", "BUNDLE"),
            option(
                "to",
                "A version, or how many to go back.",
                "N|head|-1",
                default="head",
                check=check_version,
            ),
            option("out", "Path of the new bundle.", "PATH", type=Path),
            SCHEMA,
            switch("dry_run", "Plan and check, but write nothing."),
            TRUST,
            LIMITS,
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
            option(
                "out",
                "Path of the new one; with .zip one file.",
                "DST",
                type=Path,
                default=REQUIRED,
            ),
            STORE,
            switch("compress", "Smaller files that cannot be mapped."),
            switch("compact", "Leave out arrays that a migration left unused."),
            switch("overwrite", "Replace the bundle at --out."),
            SCHEMA,
            LAYOUT,
            VALUES,
            SHARDS,
            TRUST,
        ),
        members=("out", "store", "arrays", "nbytes", "dropped", "linked"),
    ),
    Command(
        name="infer",
        function="neuralqx_struct.infer",
        run=bundles.infer,
        help="Write a first schema from a bundle or a foreign file. A TODO marks each unknown part.",
        arguments=(
            Argument("bundle", "A bundle, or a file of another program.", "PATH", reads=True),
            option("identity", "Identity of the schema, such as lab.state.", "ID", flag="--id"),
            option("out", "A folder, or a YAML file; printed if left out.", "PATH", type=Path),
        ),
        members=("text", "layout", "out"),
    ),
    Command(
        name="explain",
        function="neuralqx_struct.cli.schemas.explain",
        run=schemas.explain,
        help="Explain a diagnostic code and its fix, or list all codes.",
        arguments=(word("code", "Such as NQX411.", "[CODE]", default=""),),
        members=("code", "codes", "text"),
    ),
    Command(
        name="schema lint",
        function="neuralqx_struct.tools.linting.lint",
        run=schemas.lint,
        help="Check schemas and prove their migrations. Lists all findings at once.",
        arguments=(
            SCHEMA_PATHS,
            switch(
                "golden",
                "Also check that the golden payload of each version is still read.",
                project="golden",
            ),
            TRUST,
            FOREIGN,
            VALUES,
        ),
        members=("paths",),
    ),
    Command(
        name="schema fmt",
        function="neuralqx_struct.tools.formatting.format_schema",
        run=schemas.fmt,
        help="Write schema files in one layout. Comments are kept.",
        arguments=(
            SCHEMA_PATHS,
            switch("check", "Write nothing; files in another layout are findings."),
        ),
        members=("paths", "changed"),
    ),
    Command(
        name="schema list",
        function="neuralqx_struct.evolution.against.schemas_below",
        run=schemas.list_schemas,
        help="List the schemas of a folder with their versions.",
        arguments=(FOLDER,),
        members=("schemas",),
    ),
    Command(
        name="schema show",
        function="neuralqx_struct.schema.export.outline",
        run=schemas.show,
        help="Show structs, fields, sizes and fingerprints of a schema.",
        arguments=(SCHEMA_PATH,),
        members=("schema", "schema_version", "versions", "fingerprints", "document"),
    ),
    Command(
        name="schema graph",
        function="neuralqx_struct.schema.export.struct_diagram",
        run=schemas.graph,
        help="Draw a schema as a Mermaid diagram.",
        arguments=(
            SCHEMA_PATH,
            choice(
                "of",
                "Structs and their fields, or versions and their steps.",
                "structs",
                "versions",
            ),
        ),
        members=("mermaid",),
    ),
    Command(
        name="schema history",
        function="neuralqx_struct.tools.history.history",
        run=schemas.history,
        help="List the versions of a schema with date, changes and steps.",
        arguments=(SCHEMA_FOLDER,),
        members=("releases",),
    ),
    Command(
        name="schema json-schema",
        function="neuralqx_struct.schema.export.payload_schema",
        run=schemas.json_schema,
        help="Print a JSON Schema, for editors and validators.",
        arguments=(
            word(
                "which",
                "language: of schema files; layout: of layouts; manifest: of manifest.json; report: of JSON results; a schema folder, file, ID or ID@3: of the manifests of one schema.",
                "[WHICH]",
                default="language",
                schema=True,
                also=("language", "layout", "manifest", "report"),
            ),
        ),
        members=("json_schema",),
    ),
    Command(
        name="schema new",
        function="neuralqx_struct.schema.language.new_schema",
        run=schemas.new,
        help="Write the first version of a new schema. Edit it then.",
        arguments=(
            word("identity", "Such as lab.train_state.", "ID"),
            replace(FOLDER, flag="--in", metavar="FOLDER"),
            option("layout", "Write a layout of that name for the schema.", "NAME"),
        ),
        members=("file",),
    ),
    Command(
        name="schema freeze",
        function="neuralqx_struct.tools.history.freeze",
        run=schemas.freeze,
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
        members=("lock", "added", "kept", "corrected", "golden"),
    ),
    Command(
        name="schema export",
        function="neuralqx_struct.schema_of",
        run=schemas.export,
        help="Write the schema of a Struct class. Reports parts that no schema can express.",
        arguments=(
            word("name", "A Struct class; its module is imported.", "MODULE:CLASS", imports=True),
            option("identity", "Identity of the schema.", "ID", flag="--id"),
            OUT,
        ),
        members=("text", "out", "schema", "schema_version"),
        needs_jax=True,
    ),
    Command(
        name="schema stub",
        function="neuralqx_struct.schema.stubs.stub_module",
        run=schemas.stub,
        help="Write the classes of a schema as a module for type checkers.",
        arguments=(SCHEMA_PATH, OUT),
        members=("text", "out"),
    ),
    Command(
        name="schema revision",
        function="neuralqx_struct.revise",
        run=schemas.revision,
        help="Write the next version of an edited schema. Adds its steps, or questions about them.",
        arguments=(
            SCHEMA_PATH,
            option(
                "name",
                "The edited schema is that of a Struct class.",
                "MODULE:CLASS",
                flag="--from",
                imports=True,
            ),
            option("edited", "The edited schema is in a file.", "FILE", type=Path, reads=True),
            option(
                "against",
                "The newest file before it was edited in place.",
                "REF",
                default="git:HEAD",
            ),
            option("out", "By default the next version's file.", "FILE", type=Path),
            switch("dry_run", "Print the file and write nothing."),
        ),
        members=("text", "out", "schema", "schema_version", "steps", "questions"),
    ),
)
COMMANDS: Final = {command.name: command for command in _ROWS}


def find_command(words: Sequence[str]) -> tuple[Command | None, Sequence[str]]:
    """The command that a command line names, if any, and its arguments."""
    length = 2 if words[:1] and words[0] in GROUPS else 1
    return COMMANDS.get(" ".join(words[:length])), words[length:]
