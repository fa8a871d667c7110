"""The commands: one module each, named after it, with its function and its record; this is the table of them.

The command line, its help and completion, the formats of results and the checks of the documentation are made from it.

Example:
    >>> COMMANDS["verify"].members
    ('paths',)
"""

from __future__ import annotations

from typing import Final

from neuralqx_struct.cli.command import Command
from neuralqx_struct.cli.commands import (
    breaking,
    convert,
    demo,
    diff,
    explain,
    infer,
    inspect,
    migrate,
    report,
    schema_export,
    schema_fmt,
    schema_freeze,
    schema_history,
    schema_json_schema,
    schema_lint,
    schema_list,
    schema_new,
    schema_revision,
    schema_show,
    schema_stub,
    validate,
    verify,
)

#: The groups of commands with their help; a command of a group has its name as first word.
GROUPS: Final = {
    "": "Declarative schemas for JAX checkpoints: validate, inspect, compare and migrate bundles.",
    "schema": "Check and show schema files.",
}

#: All commands by name, in the order of the help.
COMMANDS: Final[dict[str, Command]] = {
    module.COMMAND.name: module.COMMAND
    for module in (
        demo,
        validate,
        inspect,
        report,
        verify,
        diff,
        breaking,
        migrate,
        convert,
        infer,
        explain,
        schema_lint,
        schema_fmt,
        schema_list,
        schema_show,
        schema_history,
        schema_json_schema,
        schema_new,
        schema_freeze,
        schema_export,
        schema_stub,
        schema_revision,
    )
}
