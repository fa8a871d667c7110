"""The command line as a typer application, and its help texts, made from the table of commands.

All uses of typer are here. Wrong arguments are reported on stderr, or as a report on stdout if the call asks for JSON.

Help does not depend on the version of typer. No summary is cut: lines are
wrapped at the width of the terminal, and at 100 columns in wider ones.

Example:
    >>> from neuralqx_struct.cli.table import COMMANDS
    >>> usage(COMMANDS["infer"])
    'neuralqx-struct infer SRC [--out DST] [--overwrite] [--id ID]...'
"""

from __future__ import annotations

import inspect
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from neuralqx_struct.cli.arguments import COMMON, HELP, SETUP, Argument
from neuralqx_struct.cli.commands import EXIT_CODES, Command
from neuralqx_struct.cli.reports import FORMATS, plain
from neuralqx_struct.cli.results import ArgumentError, failure
from neuralqx_struct.cli.table import COMMANDS, GROUPS
from neuralqx_struct.errors import closest, printable

PROGRAM: Final = "neuralqx-struct"
_WIDEST = 100
_INDENT = "  "
_SAMPLE = 3  # commands that the help of a group has an example of
_LEFT = 28  # columns of a name; the help of a longer one begins below it


def usage(command: Command) -> str:
    """The command with its arguments, as help and documentation show it."""
    return " ".join([PROGRAM, command.name, *_pieces(command)])


def usage_lines(command: Command, width: int | None = None) -> str:
    """The usage in lines of at most ``width`` columns, as help and errors show it."""
    begin = f"Usage: {PROGRAM} {command.name}"
    return _filled([begin, *_pieces(command)], width or _terminal_width(), "", " " * 7)


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
        usage_lines(command, width),
        _filled(f"{command.help}{needs}".split(), width, _INDENT, _INDENT),
        _section("Arguments", map(_row, positions), width),
        _section("Options", map(_row, options), width),
        _section("Options of every command", map(_row, (*COMMON, HELP)), width),
        _examples(command.examples),
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
    inside = [each for each in commands.values() if each.name.rpartition(" ")[0] == name]
    own = {command.name.rpartition(" ")[2]: command.summary for command in inside}
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
        _examples(call for command in inside[:_SAMPLE] for call in command.examples[:1]),
    ]
    return "\n\n".join(blocks)


def _examples(calls: Iterable[str]) -> str:
    return "\n".join(["Examples:", *(f"{_INDENT}{PROGRAM} {call}" for call in calls)])


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


class Group(TyperGroup):
    """A group of commands that proposes the command meant by a word, also one of another group."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the first word names."""
        try:
            return super().resolve_command(ctx, args)
        except Exception as error:
            if _is_of_click(error) and not hasattr(error, "option_name"):
                known = {name.rpartition(" ")[2]: name for name in COMMANDS}
                known |= {name: name for name in self.commands}
                meant = closest(args[0], known)
                hint = "" if meant is None else f"; did you mean {known[meant]!r}?"
                error.message = f"no such command: {printable(args[0])}{hint}"  # type: ignore[attr-defined]
            raise


class Commands(Group):
    """The group of all commands; prints errors about arguments in the format that the call asks for."""

    def main(  # type: ignore[override]
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **options: Any
    ) -> Any:
        """Parses arguments and runs a command; exits, unless ``standalone_mode`` is off."""
        standalone = options.pop("standalone_mode", True)
        options |= {"args": args, "prog_name": prog_name, "standalone_mode": False}
        try:
            code = super().main(**options)
        except Exception as error:
            if not standalone or not _is_of_click(error):
                raise
            code = _refuse(error, sys.argv[1:] if args is None else args)
        if standalone:
            sys.exit(code)
        return code


def _is_of_click(error: Exception) -> bool:
    return hasattr(error, "format_message")


def _refuse(error: Any, words: Sequence[str]) -> int:
    """Prints an error about arguments; returns the exit code."""
    context = getattr(error, "ctx", None)
    if hasattr(error, "possibilities"):
        # The option is not known. Typer before 0.28 prints it as it is.
        options = [] if context is None else context.command.params
        meant = closest(error.option_name, [flag for each in options for flag in each.opts])
        hint = "" if meant is None else f"; did you mean {meant!r}?"
        error.message = f"no such option: {printable(error.option_name)}{hint}"
        error.possibilities = None
    # The parser does not know the format of a call that it refuses.
    for style in [name for name in FORMATS if name != "text"]:
        if f"--format={style}" in words or ("--format", style) in pairwise(words):
            command = "" if context is None else context.command_path.partition(" ")[2]
            report = failure("NQX400", error.format_message(), "--help lists the arguments")
            typer.echo(FORMATS[style](command, report))
            return report.exit_code
    shown = plain(error.format_message())
    error.format_message = lambda: shown
    error.show()
    return int(error.exit_code)


def _helped(kind: Any, shown: Callable[[], str], text: Callable[[], str]) -> Any:
    """A class of commands of typer with our own usage and help."""

    class Helped(kind):  # type: ignore[misc]
        def get_usage(self, ctx: Any) -> str:
            del ctx
            return shown()

        def get_help(self, ctx: Any) -> str:
            del ctx
            return text()

    return Helped


def _group(kind: Any, name: str) -> Any:
    return _helped(
        kind, lambda: f"Usage: {group_usage(name)}", partial(group_help, name, GROUPS, COMMANDS)
    )


def build_app() -> typer.Typer:
    """Makes the typer application of all commands in the table."""
    app = typer.Typer(
        cls=_group(Commands, ""),
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    groups = {"": app}
    for name in GROUPS:
        if name:
            own = _group(Group, name)
            group = typer.Typer(cls=own, no_args_is_help=True, rich_markup_mode=None)
            app.add_typer(group, name=name)
            groups[name] = group
    for command in COMMANDS.values():
        group_name, _, name = command.name.rpartition(" ")
        own = _helped(TyperCommand, partial(usage_lines, command), partial(command_help, command))
        groups[group_name].command(name, cls=own, help=command.summary)(_callback(command))
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        from neuralqx_struct import __version__

        typer.echo(f"neuralqx-struct {__version__}")
        raise typer.Exit


_VERSION = typer.Option(
    "--version", "-V", callback=_print_version, is_eager=True, help="Print the version and exit."
)


def _root(*, version: Annotated[bool, _VERSION] = False) -> None:
    del version


def _callback(command: Command) -> Callable[..., None]:
    """The function of a command that typer calls; typer reads the arguments from its signature."""

    def call(**values: Any) -> None:
        try:
            code = command.call(values)
        except ArgumentError as error:
            raise typer.BadParameter(str(error), param_hint=error.flag) from None
        raise typer.Exit(code)

    parameters = {argument.name: _parameter(argument) for argument in command.all_arguments}
    call.__signature__ = inspect.Signature([*parameters.values()])  # type: ignore[attr-defined]
    call.__annotations__ = {name: value.annotation for name, value in parameters.items()}
    return call


def _parameter(argument: Argument) -> inspect.Parameter:
    def parse(word: str) -> Any:
        try:
            return argument.convert(word)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None

    def complete(incomplete: str) -> list[str]:
        return [choice for choice in argument.choices if choice.startswith(incomplete)]

    options: dict[str, Any] = {"help": argument.help}
    if argument.type is not bool:
        options |= {"metavar": argument.metavar, "parser": parse}
    if argument.choices:
        options["autocompletion"] = complete
    # Typer before 0.29 makes a path of every word for a parameter that is a Path, of a URL too.
    single: Any = str if argument.reads or argument.type is Path else argument.type
    kind: Any = list[single] if argument.many else single
    default = inspect.Parameter.empty if argument.required else argument.default
    if default is None:
        kind |= None
    flag = f"{argument.flag}/{argument.off}" if argument.off else argument.flag
    names = filter(None, [flag, argument.short])
    declared = typer.Option(*names, **options) if argument.flag else typer.Argument(**options)
    annotation = Annotated[kind, declared]
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(argument.name, keyword, default=default, annotation=annotation)


app = build_app()
