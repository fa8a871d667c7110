"""The commands: one module each, named after it, with its function and its record; this is the table of them.

The command line, its help and completion, the formats of results and the checks of the documentation are made from it.

Example:
    >>> COMMANDS["verify"].members
    ('paths',)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Final

from neuralqx_struct.cli.command import Command

#: The groups of commands with their help; a command of a group has its name as first word.
GROUPS: Final = {
    "": "Declarative schemas for JAX checkpoints: validate, inspect, compare and migrate bundles.",
    "schema": "Check and show schema files.",
}


class _Commands(Mapping[str, Command]):
    """The commands by name. A call needs one, so each is imported when it is asked for."""

    def __init__(self, *names: str) -> None:
        self.names = [*names]

    def __getitem__(self, name: str) -> Command:
        if name not in self.names:
            raise KeyError(name)
        module = name.replace(" ", "_").replace("-", "_")
        found: Command = import_module(f"{__name__}.{module}").COMMAND
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


#: All commands by name, in the order of the help.
COMMANDS: Final = _Commands(
    "demo",
    "validate",
    "inspect",
    "report",
    "verify",
    "replay",
    "diff",
    "breaking",
    "migrate",
    "convert",
    "infer",
    "explain",
    "schema lint",
    "schema fmt",
    "schema list",
    "schema show",
    "schema history",
    "schema json-schema",
    "schema new",
    "schema freeze",
    "schema export",
    "schema stub",
    "schema revision",
)
