"""The commands: one module each, named after it, with its function and its record; this is the table of them.

The command line, its help and completion, the formats of results and the checks of the documentation are made from it.

Example:
    >>> COMMANDS["verify"].members
    ('paths',)
"""

from __future__ import annotations

from typing import Any, Final

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
from neuralqx_struct.cli.commands.schema_json_schema import report_schema

#: The groups of commands with their help; a command of a group has its name as first word.
GROUPS: Final = {
    "": "Declarative schemas for JAX checkpoints: validate, inspect, compare and migrate bundles.",
    "schema": "Check and show schema files.",
}


def _report_schema() -> dict[str, Any]:
    return report_schema(COMMANDS.values(), GROUPS)


_ROWS = (
    demo.COMMAND,
    validate.COMMAND,
    inspect.COMMAND,
    report.COMMAND,
    verify.COMMAND,
    diff.COMMAND,
    breaking.COMMAND,
    migrate.COMMAND,
    convert.COMMAND,
    infer.COMMAND,
    explain.COMMAND,
    schema_lint.COMMAND,
    schema_fmt.COMMAND,
    schema_list.COMMAND,
    schema_show.COMMAND,
    schema_history.COMMAND,
    schema_json_schema.command(_report_schema),
    schema_new.COMMAND,
    schema_freeze.COMMAND,
    schema_export.COMMAND,
    schema_stub.COMMAND,
    schema_revision.COMMAND,
)
#: All commands by name, in the order of the help.
COMMANDS: Final = {command.name: command for command in _ROWS}
