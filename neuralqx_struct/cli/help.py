"""The texts of help: usage, descriptions and examples, made from the table of commands.

Example:
    >>> usage(COMMANDS["infer"])
    'neuralqx-struct infer SRC [--out DST] [--overwrite] [--id ID] [--limits NAME=N]'
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterable
from typing import Any, Final

from neuralqx_struct.cli.arguments import Argument
from neuralqx_struct.cli.command import Command
from neuralqx_struct.cli.commands import COMMANDS, GROUPS
from neuralqx_struct.cli.terminal import columns

PROGRAM: Final = "neuralqx-struct"
EXIT_CODES: Final = {0: "clean", 1: "findings of severity error", 2: "could not run"}
_LEFT: Final = 30  # columns of a name; the help of a longer one begins below it
_SAMPLE: Final = 3  # commands that the help of a group has an example of


class Help(argparse.HelpFormatter):
    """Help in lines of the width of the terminal; indented lines, which are examples, stay as they are."""

    def __init__(self, prog: str, **facts: Any) -> None:
        super().__init__(prog, max_help_position=_LEFT, width=columns(), **facts)

    def _format_action(self, action: argparse.Action) -> str:
        """An argument with its help; commands begin where options do, without a line that they share."""
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            return "".join(map(super()._format_action, action._get_subactions()))  # noqa: SLF001
        return super()._format_action(action)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        lines = text.splitlines()
        return "\n".join(
            line if line.startswith(" ") else textwrap.fill(line, width, subsequent_indent=indent)
            for line in lines
        )


# --- usage --------------------------------------------------------------------------------------------------------


def usage(command: Command) -> str:
    """The command with its arguments, as help and documentation show it."""
    return " ".join([PROGRAM, command.name, *_pieces(command)])


def usage_lines(command: Command) -> str:
    """The usage in lines of the width of the terminal; an option and its value stay in one line."""
    joined = [piece.replace(" ", "\N{NO-BREAK SPACE}") for piece in _pieces(command)]
    text = " ".join([PROGRAM, command.name, *joined])
    width = columns() - len("usage: ")
    lines = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
    return "\n       ".join(lines).replace("\N{NO-BREAK SPACE}", " ")


def group_usage(group: str) -> str:
    """The words before a command of a group."""
    return " ".join([PROGRAM, *group.split(), "COMMAND [ARGUMENTS]"])


def _pieces(command: Command) -> list[str]:
    """The arguments of a command in its usage: those by position first."""
    ordered = sorted(command.arguments, key=lambda argument: bool(argument.flag))
    return [argument.in_usage for argument in ordered]


# --- texts around and beside the arguments ------------------------------------------------------------------------


def texts_of(command: Command) -> dict[str, str]:
    """The texts of a command's help around its arguments."""
    needs = " Needs JAX." if command.needs_jax else ""
    return {
        "prog": f"{PROGRAM} {command.name}",
        "usage": usage_lines(command),
        "description": f"{command.help}{needs}",
        "epilog": _examples(command.examples),
    }


def texts_of_group(group: str) -> dict[str, str]:
    """The texts of a group's help around its commands."""
    codes = ", ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items())
    end = f"--help after a command shows its arguments and examples. Exit codes: {codes}."
    inside = [command for command in COMMANDS.values() if command.group == group]
    examples = _examples(command.examples[0] for command in inside[:_SAMPLE])
    return {
        "prog": " ".join([PROGRAM, *group.split()]),
        "usage": group_usage(group),
        "description": GROUPS[group],
        "epilog": f"{end}\n\n{examples}",
    }


def described(argument: Argument) -> str:
    """The help of an argument with the facts that its record has."""
    facts = []
    if argument.is_required and argument.flag:
        facts.append("required")
    if argument.many and argument.flag:
        facts.append("may be repeated")
    if argument.default and isinstance(argument.default, str):
        facts.append(f"default: {argument.default}")
    return f"{argument.help} [{'; '.join(facts)}]" if facts else argument.help


def _examples(calls: Iterable[str]) -> str:
    return "\n".join(["Examples:", *(f"  {PROGRAM} {call}" for call in calls)])
