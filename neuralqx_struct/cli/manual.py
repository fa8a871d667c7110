"""Help texts: usage, arguments, options and examples of a command, and the list of the commands of a group.

They are made from the table of commands, so that every version of typer prints the same. No summary is cut: lines are
wrapped at the width of the terminal, and at 100 columns in wider ones.

Example:
    >>> from neuralqx_struct.cli.table import COMMANDS
    >>> usage(COMMANDS["infer"])
    'neuralqx-struct infer SRC [--out DST] [--overwrite] [--id ID]...'
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from typing import Final

from neuralqx_struct.cli.arguments import COMMON, HELP, SETUP, Argument
from neuralqx_struct.cli.commands import EXIT_CODES, Command

PROGRAM: Final = "neuralqx-struct"
_WIDEST = 100
_INDENT = "  "
_LEFT = 28  # columns of a name; the help of a longer one begins below it


def usage(command: Command) -> str:
    """The command with its arguments, as help and documentation show it."""
    return " ".join([PROGRAM, command.name, *_pieces(command)])


def group_usage(name: str) -> str:
    """The words before a command of a group."""
    return " ".join([PROGRAM, *name.split(), "COMMAND [ARGUMENTS]"])


def command_help(command: Command, width: int | None = None) -> str:
    """The help of one command, in lines of at most ``width`` columns."""
    width = width or _terminal_width()
    needs = " Needs JAX." if command.needs_jax else ""
    positions = [argument for argument in command.arguments if not argument.flag]
    options = [argument for argument in command.arguments if argument.flag]
    blocks = [
        _filled([f"Usage: {PROGRAM} {command.name}", *_pieces(command)], width, "", " " * 7),
        _filled(f"{command.help}{needs}".split(), width, _INDENT, _INDENT),
        _section("Arguments", map(_row, positions), width),
        _section("Options", map(_row, options), width),
        _section("Options of every command", map(_row, (*COMMON, HELP)), width),
        "\n".join(["Examples:", *(f"{_INDENT}{PROGRAM} {call}" for call in command.examples)]),
    ]
    return "\n\n".join(filter(None, blocks))


def group_help(
    name: str,
    groups: Mapping[str, str],
    commands: Mapping[str, Command],
    width: int | None = None,
) -> str:
    """The help of a group: a sentence about each of its commands; the root names the groups, too."""
    width = width or _terminal_width()
    own = {
        command.name.rpartition(" ")[2]: command.summary
        for command in commands.values()
        if command.name.rpartition(" ")[0] == name
    }
    if not name:
        own |= {group: about for group, about in groups.items() if group}
    codes = ", ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items())
    end = f"--help after a command shows its arguments and examples. Exit codes: {codes}."
    blocks = [
        f"Usage: {group_usage(name)}",
        _filled(groups[name].split(), width, _INDENT, _INDENT),
        _section("Commands", own.items(), width),
        _section("Options", map(_row, (HELP,) if name else (*SETUP, HELP)), width),
        _filled(end.split(), width, _INDENT, _INDENT),
    ]
    return "\n\n".join(blocks)


def _terminal_width() -> int:
    return max(40, min(_WIDEST, shutil.get_terminal_size((80, 24)).columns))


def _pieces(command: Command) -> list[str]:
    """The arguments of a command in its usage: those by position first."""
    ordered = sorted(command.arguments, key=lambda argument: bool(argument.flag))
    return [argument.in_usage for argument in ordered]


def _row(argument: Argument) -> tuple[str, str]:
    """The name of an argument with its value, and its help with the facts that the record has."""
    names = ", ".join(filter(None, [argument.short, argument.flag, argument.off]))
    value = "" if argument.type is bool else argument.metavar
    facts = []
    if argument.required and argument.flag:
        facts.append("required")
    if argument.many and argument.flag:
        facts.append("may be repeated")
    if argument.default and isinstance(argument.default, str):
        facts.append(f"default: {argument.default}")
    known = f" [{'; '.join(facts)}]" if facts else ""
    return " ".join(filter(None, [names, value])), f"{argument.help}{known}"


def _section(title: str, rows: Iterable[tuple[str, str]], width: int) -> str:
    """A title, and below it a line for each name with its help; empty without rows."""
    rows = [*rows]
    if not rows:
        return ""
    left = min(_LEFT, max(len(name) for name, _ in rows) + 2)
    hanging = _INDENT + " " * left
    lines = [f"{title}:"]
    for name, text in rows:
        begin = f"{_INDENT}{name.ljust(left)}"
        if len(name) > left - 2:
            lines.append(f"{_INDENT}{name}")
            begin = hanging
        lines.append(_filled(text.split(), width, begin, hanging))
    return "\n".join(lines)


def _filled(parts: Iterable[str], width: int, begin: str, hanging: str) -> str:
    """Parts in lines of at most ``width`` columns, after ``begin`` in the first and ``hanging`` in the others."""
    lines: list[str] = []
    line, empty = begin, True
    for part in parts:
        if not empty and len(line) + 1 + len(part) > width:
            lines.append(line)
            line, empty = hanging, True
        line = f"{line}{part}" if empty else f"{line} {part}"
        empty = False
    return "\n".join([*lines, line])
