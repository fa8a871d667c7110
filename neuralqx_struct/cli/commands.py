"""Records of commands and their arguments, functions that make frequent arguments, and plain calls.

The records themselves are in ``table.py``. A call is plain if it has only arguments, options in full with their values as
next words, and no mistake. All others (help, completion, ``--format=json``) need the parser: importing typer takes as
long as checking a small bundle.

Example:
    >>> choice("of", "The drawing.", "structs", "versions").convert("versions")
    'versions'
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from neuralqx_struct.cli.reports import (
    FORMATS,
    REPORT_VERSION,
    ArgumentError,
    Output,
    Report,
    failure,
    run,
)

EXIT_CODES: Final = {0: "clean", 1: "findings of severity error", 2: "could not run"}
REQUIRED: Final[Any] = object()
_STDIN: Final = Path("-")
_MOST_INPUT = 2**28  # bytes; a manifest may have as many


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument or option of a command.

    Attributes:
        name: The parameter of the command's function.
        help: Help in one sentence.
        metavar: The value in help and errors.
        flag: The option, such as ``--schema``; empty for an argument by position.
        short: The option in one letter, such as ``-q``.
        type: ``Path``, ``str`` or ``bool``.
        default: The value if it is left out, or ``REQUIRED``.
        many: True if it may be given several times.
        choices: The only values, if they are fixed.
        check: Raises ValueError for a value that is refused.
        reads: True for the path of a file or bundle that is read: ``-`` is the standard input.
        imports: True if it names a module: those of the working directory are found, as with ``python -m``.
    """

    name: str
    help: str
    metavar: str = ""
    flag: str = ""
    short: str = ""
    type: Any = Path
    default: Any = REQUIRED
    many: bool = False
    choices: tuple[str, ...] = ()
    check: Callable[[str], None] | None = None
    reads: bool = False
    imports: bool = False

    @property
    def required(self) -> bool:
        """True if it may not be left out."""
        return self.default is REQUIRED

    def convert(self, word: str) -> Any:
        """The value of a word; raises ValueError if it is refused."""
        if self.choices and word not in self.choices:
            *most, last = self.choices
            raise ValueError(f"expected {', '.join(most)} or {last}, got {word!r}")
        if self.check is not None:
            self.check(word)
        return self.type(word)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """All facts about one command.

    Attributes:
        name: Its words, such as ``schema lint``.
        function: The public function that does the same in Python.
        run: Called with the arguments; returns the report.
        help: Help in one sentence.
        arguments: Its arguments and options, besides those of every command.
        members: The members of its JSON results, besides those of every report.
        needs_jax: True if it always imports JAX.
    """

    name: str
    function: str
    run: Callable[..., Report]
    help: str
    arguments: tuple[Argument, ...]
    members: tuple[str, ...]
    needs_jax: bool = False

    @property
    def all_arguments(self) -> tuple[Argument, ...]:
        """The arguments of the command and of every command."""
        return (*self.arguments, *COMMON)

    def call(self, values: dict[str, Any]) -> int:
        """Runs the command and prints its report; returns the exit code."""
        output = Output(**{argument.name: values.pop(argument.name) for argument in COMMON})
        if any(argument.imports and values[argument.name] for argument in self.arguments):
            here = str(Path.cwd())
            if "" not in sys.path and here not in sys.path:
                sys.path.insert(0, here)
        reading = [each for each in self.arguments if each.reads and _has_input(values[each.name])]
        if not reading:
            return run(self.name, output, lambda: self.run(**values))
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            place = _stored_input(Path(folder))
            if place is None:
                message = f"expected at most {_MOST_INPUT:,} bytes on standard input, got more"
                return run(self.name, output, lambda: failure("NQX400", message))
            for argument in reading:
                given = values[argument.name]
                values[argument.name] = place
                if argument.many:
                    values[argument.name] = [place if path == _STDIN else path for path in given]
            return run(self.name, output, lambda: self.run(**values), {str(place): "<stdin>"})


def _has_input(value: Any) -> bool:
    return value == _STDIN or (isinstance(value, list) and _STDIN in value)


def _stored_input(folder: Path) -> Path | None:
    """The standard input as a file whose name shows its kind; None if it is too long."""
    data = sys.stdin.buffer.read(_MOST_INPUT + 1)
    if len(data) > _MOST_INPUT:
        return None
    name = "stdin.yaml"
    if data.startswith(b"PK"):
        name = "stdin.zip"
    elif data.lstrip().startswith(b"{") and b'"manifest"' in data:
        name = "manifest.json"
    place = folder / name
    place.write_bytes(data)
    return place


# --- frequent arguments -------------------------------------------------------------------------------------------


def word(name: str, help: str, metavar: str, **more: Any) -> Argument:  # noqa: A002
    """An argument by position that is no path."""
    return Argument(name, help, metavar, type=str, **more)


def option(
    name: str,
    help: str,  # noqa: A002
    metavar: str,
    **more: Any,
) -> Argument:
    """An option with one value, a text unless another type is given; its flag is ``--name``."""
    facts = {"flag": f"--{name}", "type": str, "default": None, **more}
    return Argument(name, help, metavar, **facts)


def choice(name: str, help: str, *choices: str) -> Argument:  # noqa: A002
    """An option with fixed values, of which the first is the default."""
    metavar = f"[{'|'.join(choices)}]"
    return option(name, help, metavar, default=choices[0], choices=choices)


def switch(name: str, help: str, short: str = "") -> Argument:  # noqa: A002
    """An option without a value."""
    flag = "--" + name.replace("_", "-")
    return Argument(name, help, flag=flag, short=short, type=bool, default=False)


#: The options of every command; their names are the members of :class:`~neuralqx_struct.cli.reports.Output`.
COMMON: Final = (
    choice("format", "How to print the results.", *FORMATS),
    choice(
        "color", "Colours; NO_COLOR and FORCE_COLOR decide for auto.", "auto", "always", "never"
    ),
    switch("quiet", "Leave out verdicts, counts and progress bars.", "-q"),
    switch("verbose", "Print tracebacks and the time taken.", "-v"),
)

# --- plain calls --------------------------------------------------------------------------------------------------


def run_plain(command: Command | None, words: Sequence[str]) -> int | None:
    """Runs a plain call; returns the exit code, or None for a call that needs the parser."""
    values = None if command is None else plain_values(command, words)
    if command is None or values is None:
        return None
    try:
        return command.call(values)
    except ArgumentError:
        return None


def plain_values(command: Command, words: Sequence[str]) -> dict[str, Any] | None:
    """The arguments of a plain call, or None if the call is not plain.

    Example:
        >>> from neuralqx_struct.cli.table import COMMANDS
        >>> plain_values(COMMANDS["schema lint"], ["schemas", "--golden"])["golden"]
        True
        >>> plain_values(COMMANDS["schema lint"], ["--help"])
    """
    options: Mapping[str, Argument] = {each.flag: each for each in command.all_arguments}
    positions = [argument for argument in command.arguments if not argument.flag]
    values: dict[str, Any] = {}
    rest = iter(words)
    for value in rest:
        argument = options.get(value)
        if argument is not None and argument.type is bool:
            values[argument.name] = True
            continue
        if argument is not None:
            value = next(rest, "")  # noqa: PLW2901
        elif positions:
            argument = positions[0] if positions[0].many else positions.pop(0)
        if argument is None or value[:1] in ("", "-"):
            return None
        try:
            given = argument.convert(value)
        except ValueError:
            return None
        if argument.many:
            given = [*values.get(argument.name, ()), given]
        values[argument.name] = given
    for argument in command.all_arguments:
        if argument.name not in values:
            if argument.required:
                return None
            values[argument.name] = argument.default
    return values


def report_schema(commands: Mapping[str, Command], groups: Iterable[str]) -> dict[str, Any]:
    """The JSON Schema of results in JSON, published as ``schemas/report/1.json``."""
    text = {"type": "string"}
    maybe_text = {"type": ["string", "null"]}
    number = {"type": ["integer", "null"], "minimum": 1}
    diagnostic = {
        "code": {"type": "string", "pattern": "^NQX[0-9]{3}$"},
        "severity": {"enum": ["error", "warning", "info"]},
        "message": text,
        "path": text,
        "file": maybe_text,
        "line": number,
        "column": number,
        "hint": maybe_text,
    }
    result = {
        "version": {"const": REPORT_VERSION},
        "command": {"enum": [*groups, *commands]},
        "ok": {"type": "boolean"},
        "diagnostics": {"type": "array", "items": {"$ref": "#/definitions/diagnostic"}},
    }
    members = [
        {
            "if": {"properties": {"command": {"const": name}}},
            "then": {"propertyNames": {"enum": [*result, *command.members]}},
        }
        for name, command in commands.items()
    ]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "https://neuralqx.github.io/neuralqx-struct/schemas/report/1.json",
        "title": "Results of a neuralqx-struct command (--format json)",
        "type": "object",
        "required": [*result],
        "properties": result,
        "allOf": members,
        "definitions": {
            "diagnostic": {
                "type": "object",
                "required": [*diagnostic],
                "properties": diagnostic,
                "additionalProperties": False,
            }
        },
    }
