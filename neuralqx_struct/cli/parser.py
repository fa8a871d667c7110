"""The command line on argparse, made from the table of commands: the values of a call, its mistakes, and completion.

The first words of a call name its command; the others are parsed once, by the parser of that command.

Example:
    >>> values_of(COMMANDS["schema fmt"], ["schemas", "--check"])["check"]
    True
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final, NoReturn

from neuralqx_struct.cli.arguments import COMMON, REQUIRED, Argument, path_or_url
from neuralqx_struct.cli.command import Command
from neuralqx_struct.cli.commands import COMMANDS, GROUPS
from neuralqx_struct.cli.help import (
    PROGRAM,
    Help,
    described,
    group_usage,
    texts_of,
    texts_of_group,
    usage_lines,
)
from neuralqx_struct.cli.printing import show
from neuralqx_struct.cli.report import UsageError, failure
from neuralqx_struct.cli.terminal import Output
from neuralqx_struct.errors import closest, did_you_mean, printable

#: Those whose completion can be printed.
SHELLS: Final = ("bash", "zsh", "fish", "tcsh")


def run(words: Sequence[str]) -> int:
    """Runs a call; returns the exit code."""
    command, rest = find_command(words)
    try:
        if command is None:
            return _run_group(words)
        return command.call(values_of(command, rest), shlex.join([PROGRAM, *words]))
    except UsageError as error:
        return _refuse(words, str(error))
    except Printed:
        return 0


def find_command(words: Sequence[str]) -> tuple[Command | None, Sequence[str]]:
    """The command that the first words name, if any, and the words behind them."""
    length = 2 if words[:1] and words[0] in GROUPS else 1
    return COMMANDS.get(" ".join(words[:length])), words[length:]


def values_of(command: Command, words: Sequence[str]) -> dict[str, Any]:
    """The values of the arguments of a command.

    Raises:
        UsageError: An option is not known, a value is refused, or a required argument is missing.
    """
    parser = command_parser(command)
    # Before Python 3.13 the second of the two takes words behind `--` for options.
    mixed = parser.parse_known_args if "--" in words else parser.parse_known_intermixed_args
    given, unknown = mixed(words)
    if unknown:
        raise UsageError(_unexpected(command, unknown[0]))
    values = vars(given)
    missing = [each for each in command.arguments if values[each.name] is REQUIRED]
    if missing:
        names = ", ".join(each.in_usage for each in missing)
        raise UsageError(f"expected {names}, got none")
    for argument in command.arguments:
        if argument.collect is not None:
            values[argument.name] = argument.collect(values[argument.name])
    return values


def _unexpected(command: Command, word: str) -> str:
    """The message about a word that no argument takes."""
    name = word.partition("=")[0]
    if not name.startswith("-"):
        return f"expected no further argument, got {word!r}"
    known = [flag for each in command.all_arguments for flag in each.flags]
    return _not_known("option", name, known)


def _not_known(kind: str, word: str, known: Iterable[str]) -> str:
    meant = did_you_mean(word, known)
    return f"no such {kind}: {printable(word)}{f'; {meant}' if meant else ''}"


def _refuse(words: Sequence[str], message: str) -> int:
    """Prints the report of a call with wrong arguments, in the format that it asks for; returns the exit code."""
    command, _ = find_command(words)
    group = words[0] if words[:1] and words[0] in GROUPS else ""
    name = group if command is None else command.name
    output = _output_of(words)
    if output.format == "text":
        shown = group_usage(group) if command is None else usage_lines(command)
        sys.stderr.write(f"usage: {shown}\n\n")
    hint = f"{' '.join([PROGRAM, *name.split()])} --help lists the arguments"
    return show(name, output, lambda: failure("NQX400", message, hint))


def _output_of(words: Sequence[str]) -> Output:
    """The options of printing in a call with wrong arguments."""
    parser = Parser(PROGRAM)
    for argument in COMMON:
        add_argument(parser, argument)
    try:
        given, _ = parser.parse_known_args(words)
    except UsageError:
        return Output()
    return Output(**vars(given))


# --- calls without a command --------------------------------------------------------------------------------------


def _run_group(words: Sequence[str]) -> int:
    """Runs a call that names no command: an option of the program, or a mistake."""
    group = words[0] if words[:1] and words[0] in GROUPS else ""
    rest = words[1:] if group else words
    parser = program_parsers()[group]
    if not rest:
        parser.print_help(sys.stderr)
        return 2
    if not rest[0].startswith("-"):
        raise UsageError(_no_command(group, rest[0]))
    _, unknown = parser.parse_known_args(rest)
    raise UsageError(_not_known("option", unknown[0] if unknown else rest[0], ["--help"]))


def _no_command(group: str, word: str) -> str:
    """The message about a word that names no command; the one meant may be in another group."""
    parts = {name: name.rpartition(" ") for name in [*COMMANDS, *GROUPS]}
    known = {word: f"{PROGRAM} {name}" for name, (_, _, word) in parts.items()}
    known |= {word: word for inside, _, word in parts.values() if inside == group}
    meant = closest(word, known)
    hint = "" if meant is None else f"; did you mean {known[meant]!r}?"
    return f"no such command: {printable(word)}{hint}"


# --- parsers ------------------------------------------------------------------------------------------------------


class Printed(Exception):
    """Ends a call that has printed the help, the version or a completion."""


class Parser(argparse.ArgumentParser):
    """A parser of argparse without its abbreviations, which raises errors and has our layout of help."""

    def __init__(self, prog: str, **facts: Any) -> None:
        super().__init__(prog, add_help=False, allow_abbrev=False, formatter_class=Help, **facts)

    def error(self, message: str) -> NoReturn:
        """Raises the error of wrong arguments."""
        raise UsageError(message)

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """Ends the call after its help or version."""
        del status, message
        raise Printed


class _PrintCompletion(argparse.Action):
    """Prints the completion of a shell and ends the program."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: Any,
        values: Any,
        option_string: Any = None,
    ) -> None:
        """Prints the completion of the whole program for the shell that is named."""
        del namespace, option_string
        import shtab  # few calls need it

        sys.stdout.write(shtab.complete(program_parsers(files=shtab.FILE)[""], values))
        parser.exit()


def command_parser(command: Command) -> Parser:
    """The parser of the words behind a command."""
    return fill_parser(Parser(**texts_of(command)), command)


def fill_parser(parser: Parser, command: Command, files: Any = None) -> Parser:
    """Adds the arguments of a command to its parser."""
    positions = parser.add_argument_group("Arguments")
    options = parser.add_argument_group("Options")
    for argument in command.arguments:
        add_argument(options if argument.flag else positions, argument, files)
    common = parser.add_argument_group("Options of every command")
    for argument in COMMON:
        add_argument(common, argument)
    _add_help(common)
    return parser


def _add_help(container: Any) -> None:
    container.add_argument("-h", "--help", action="help", help="Show this help and exit.")


def add_argument(container: Any, argument: Argument, files: Any = None) -> None:
    """Adds an argument to a parser, or to a group of its help.

    That a required one is given is checked behind argparse, which would report it before an option that is not known.
    """
    facts: dict[str, Any] = {"help": described(argument), "default": argument.default}
    if argument.many and not argument.is_required:
        facts["default"] = []
    if argument.flag:
        names = [*filter(None, [argument.short, argument.flag])]
        facts |= {"dest": argument.name}
    else:
        names = [argument.name]
        facts |= {"nargs": "*" if argument.many else "?"}
    if argument.is_switch:
        action: Any = argparse.BooleanOptionalAction if argument.project else "store_true"
        container.add_argument(*names, action=action, **facts)
        return
    if argument.flag and argument.many:
        facts["action"] = "append"
    facts |= {"type": partial(_read, argument), "metavar": argument.metavar}
    added = container.add_argument(*names, choices=argument.choices or None, **facts)
    if argument.parse is path_or_url:
        added.complete = files


def _read(argument: Argument, word: str) -> Any:
    try:
        return argument.read(word)
    except ValueError as error:
        raise argparse.ArgumentTypeError(printable(error)) from None


def program_parsers(files: Any = None) -> dict[str, Parser]:
    """The parsers of the groups, with all commands in them, by name; that of the program has an empty one.

    Args:
        files: The completion of paths.
    """
    parsers: dict[str, Parser] = {}
    commands: dict[str, Any] = {}
    for group, about in GROUPS.items():
        texts = texts_of_group(group)
        parser = commands[""].add_parser(group, help=about, **texts) if group else Parser(**texts)
        commands[group] = parser.add_subparsers(
            title="Commands", metavar="COMMAND", prog=texts["prog"]
        )
        for command in COMMANDS.values():
            if command.group == group:
                own = commands[group].add_parser(
                    command.word, help=command.summary, **texts_of(command)
                )
                fill_parser(own, command, files)
        _add_program_options(parser.add_argument_group("Options"), group)
        parsers[group] = parser
    return parsers


def _add_program_options(container: Any, group: str) -> None:
    if not group:
        from neuralqx_struct import __version__

        version = f"{PROGRAM} {__version__}"
        text = "Print the version and exit."
        container.add_argument("-V", "--version", action="version", version=version, help=text)
        text = f"Print the completion of a shell ({', '.join(SHELLS)}) and exit."
        container.add_argument(
            "--print-completion",
            action=_PrintCompletion,
            choices=SHELLS,
            metavar="SHELL",
            help=text,
        )
    _add_help(container)
