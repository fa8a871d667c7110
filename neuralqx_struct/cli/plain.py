"""Plain calls of commands, which need no parser of options: importing typer takes as long as checking a small bundle.

A call is plain if it has only arguments, options in full with their values as next words, and no mistake. All others
(help, completion, ``--format=json``) go to the parser.

Example:
    >>> command, values = plain_call(["schema", "lint", "schemas", "--golden"])
    >>> command.name, values["golden"]
    ('schema lint', True)
    >>> plain_call(["schema", "lint", "--help"])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neuralqx_struct.cli.commands import Command
from neuralqx_struct.cli.reports import ArgumentError
from neuralqx_struct.cli.table import COMMANDS, GROUPS


def run_plain(words: Sequence[str]) -> int | None:
    """Runs a plain call; returns the exit code, or None for a call that needs the parser."""
    call = plain_call(words)
    if call is None:
        return None
    command, values = call
    try:
        return command.call(values)
    except ArgumentError:
        return None


def plain_call(words: Sequence[str]) -> tuple[Command, dict[str, Any]] | None:
    """The command of a plain call with its arguments, or None if the call is not plain."""
    length = 2 if words[:1] and words[0] in GROUPS else 1
    command = COMMANDS.get(" ".join(words[:length]))
    if command is None:
        return None
    arguments = command.all_arguments
    options = {argument.flag: argument for argument in arguments if argument.flag}
    positions = [argument for argument in arguments if not argument.flag]
    values: dict[str, Any] = {}
    rest = iter(words[length:])
    for word in rest:
        argument = options.get(word)
        value = word
        if argument is None and positions:
            argument = positions[0] if positions[0].many else positions.pop(0)
        elif argument is not None and argument.type is not bool:
            value = next(rest, "")
        if argument is None or (value[:1] in ("", "-") and argument.type is not bool):
            return None
        try:
            given = argument.convert(value)
        except ValueError:
            return None
        values[argument.name] = [*values.get(argument.name, ()), given] if argument.many else given
    if any(argument.required and argument.name not in values for argument in arguments):
        return None
    return command, {a.name: values.get(a.name, a.default) for a in arguments}
