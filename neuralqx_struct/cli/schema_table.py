"""The rows of the group ``schema`` in the table of commands.

Example:
    >>> [command.name for command in SCHEMA_COMMANDS][:3]
    ['schema lint', 'schema fmt', 'schema list']
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from neuralqx_struct.cli import schemas
from neuralqx_struct.cli.arguments import (
    FOLDER,
    FOREIGN,
    LIMITS,
    OUT,
    OVERWRITE,
    SCHEMA_FOLDER,
    SCHEMA_PATH,
    SCHEMA_PATHS,
    TRUST,
    VALUES,
    choice,
    option,
    switch,
    word,
)
from neuralqx_struct.cli.commands import Command

SCHEMA_COMMANDS: Final = (
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
            LIMITS,
        ),
        examples=(
            "schema lint",
            "schema lint schemas/vmc_state --format github",
            "schema lint - < schemas/vmc_state/v1.yaml",
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
        examples=(
            "schema fmt",
            "schema fmt schemas/vmc_state --check",
        ),
        members=("paths", "changed"),
    ),
    Command(
        name="schema list",
        function="neuralqx_struct.evolution.against.schemas_below",
        run=schemas.list_schemas,
        help="List the schemas of a folder with their versions.",
        arguments=(FOLDER,),
        examples=(
            "schema list",
            "schema list schemas --format json",
        ),
        members=("schemas",),
    ),
    Command(
        name="schema show",
        function="neuralqx_struct.schema.export.outline",
        run=schemas.show,
        help="Show structs, fields, sizes and fingerprints of a schema.",
        arguments=(SCHEMA_PATH,),
        examples=(
            "schema show schemas/vmc_state",
            "schema show neuralqx.vmc_state@2",
        ),
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
        examples=(
            "schema graph schemas/vmc_state",
            "schema graph schemas/vmc_state --of versions",
        ),
        members=("mermaid",),
    ),
    Command(
        name="schema history",
        function="neuralqx_struct.tools.history.history",
        run=schemas.history,
        help="List the versions of a schema with date, changes and steps.",
        arguments=(SCHEMA_FOLDER,),
        examples=("schema history schemas/vmc_state",),
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
                "WHICH",
                default="language",
                schema=True,
                also=("language", "layout", "manifest", "report"),
            ),
        ),
        examples=(
            "schema json-schema manifest",
            "schema json-schema neuralqx.vmc_state@3",
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
            replace(FOLDER, flag="--in"),
            option("layout", "Write a layout of that name for the schema.", "NAME"),
        ),
        examples=(
            "schema new lab.state",
            "schema new neuralqx.vmc_state --layout hf",
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
        examples=(
            "schema freeze schemas/vmc_state",
            "schema freeze schemas/vmc_state --golden",
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
            OUT,
            OVERWRITE,
            option("identity", "Identity of the schema, such as lab.state.", "ID", flag="--id"),
        ),
        examples=(
            "schema export lab.model:TrainState",
            "schema export lab.model:TrainState --id lab.train_state",
        ),
        members=("text", "out", "schema", "schema_version"),
        needs_jax=True,
    ),
    Command(
        name="schema stub",
        function="neuralqx_struct.schema.stubs.stub_module",
        run=schemas.stub,
        help="Write the classes of a schema as a module for type checkers.",
        arguments=(SCHEMA_PATH, OUT, OVERWRITE),
        examples=("schema stub schemas/vmc_state --out vmc_state.py --overwrite",),
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
            replace(OUT, help="A new file; by default that of the next version."),
            switch("dry_run", "Print the file and write nothing."),
        ),
        examples=(
            "schema revision schemas/train_state --dry-run",
            "schema revision lab.train_state --from lab.model:TrainState",
        ),
        members=("text", "out", "schema", "schema_version", "steps", "questions"),
    ),
)
