"""Records of commands, the values of their arguments, and plain calls.

The records themselves are in ``table.py``, arguments in ``arguments.py``. A call is plain if it has only arguments,
options in full with their values as next words, and no mistake. All others (help, completion, ``--format=json``) need
the parser: importing typer takes as long as checking a small bundle.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from neuralqx_struct.cli.arguments import COMMON, Argument, in_options
from neuralqx_struct.cli.reports import remark, run
from neuralqx_struct.cli.results import REPORT_VERSION, ArgumentError, Output, Report, failure
from neuralqx_struct.errors import Diagnostic, SchemaError, StructError, did_you_mean, shell_word

EXIT_CODES: Final = {0: "clean", 1: "findings of severity error", 2: "could not run"}
_STDIN: Final = Path("-")
_MOST_INPUT = 2**28  # bytes; a manifest may have as many


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """All facts about one command.

    Attributes:
        name: Its words, such as ``schema lint``.
        function: The public function that does the same in Python.
        run: Called with the arguments; returns the report.
        help: Help in one sentence.
        arguments: Its arguments and options, besides those of every command.
        examples: Calls that its help shows, without the name of the program.
        members: The members of its JSON results, besides those of every report.
        needs_jax: True if it always imports JAX.
    """

    name: str
    function: str
    run: Callable[..., Report]
    help: str
    arguments: tuple[Argument, ...]
    examples: tuple[str, ...]
    members: tuple[str, ...]
    needs_jax: bool = False

    @property
    def summary(self) -> str:
        """The first sentence of its help."""
        return self.help.partition(". ")[0].removesuffix(".") + "."

    @property
    def all_arguments(self) -> tuple[Argument, ...]:
        """The arguments of the command and of every command."""
        return (*self.arguments, *COMMON)

    def call(self, values: dict[str, Any]) -> int:
        """Runs the command and prints its report; returns the exit code."""
        line = self._line(values)
        output = Output(**{argument.name: values.pop(argument.name) for argument in COMMON})
        reading = [each for each in self.arguments if each.reads and _has_input(values[each.name])]
        if not reading:
            return run(self.name, output, lambda: self._report(values), self._in_options, line=line)
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
            renamed = {str(place): "<stdin>"}
            return run(
                self.name,
                output,
                lambda: self._report(values),
                self._in_options,
                renamed,
                line=line,
            )

    def _line(self, values: Mapping[str, Any]) -> str:
        """The command line of arguments and options that are not left out."""
        words = ["neuralqx-struct", self.name]
        for argument in self.all_arguments:
            value = values[argument.name]
            if value is None or value == argument.default:
                continue
            if argument.type is bool:
                words.append(argument.flag if value else argument.off)
                continue
            for each in value if argument.many else [value]:
                words += filter(None, [argument.flag, shell_word(each)])
        return " ".join(words)

    def _in_options(self, hint: str) -> str:
        return in_options(hint, self.arguments)

    def _report(self, values: dict[str, Any]) -> Report:
        """The report of the command; values that are left out come from the project file."""
        for argument in self.arguments:
            if argument.type is Path:
                values[argument.name] = _located(values[argument.name])
        if not any(a.project or a.schema or a.imports for a in self.arguments):
            return self.run(**values)
        from neuralqx_struct.tools.project import find_project

        try:
            project = find_project()
        except StructError as error:
            return Report(failures=error.diagnostics)
        left_out = [a for a in self.arguments if a.project and values[a.name] in (None, [], ())]
        for argument in left_out:
            value = getattr(project, argument.project)
            values[argument.name] = [value] if argument.many and isinstance(value, Path) else value
        granted = [a for a in left_out if a.imports and values[a.name]]
        if granted:
            _import_from(project.folder.resolve(), only=True)
        elif any(a.imports and values[a.name] for a in self.arguments):
            _import_from(Path.cwd())
        for argument in self.arguments:
            if argument.schema and values[argument.name]:
                values[argument.name] = _found(argument, values[argument.name], project)
        notice = _Notice([name for a in granted for name in values[a.name]], project.file)
        sys.meta_path.insert(0, notice)
        try:
            report = self.run(**values)
        finally:
            sys.meta_path.remove(notice)
        return replace(report, diagnostics=(*project.found, *report.diagnostics))


class _Notice:
    """Prints that a module is trusted, and by which file, before the first line of it runs."""

    def __init__(self, modules: list[str], file: Path | None) -> None:
        self.modules, self.file = modules, file

    def find_spec(self, fullname: str, *_: object) -> None:
        """Finds nothing; a package around a trusted module runs with it."""
        for module in [name for name in self.modules if f"{name}.".startswith(f"{fullname}.")]:
            self.modules.remove(module)
            remark(f"importing {module}, which {self.file} trusts")


def _import_from(folder: Path, *, only: bool = False) -> None:
    """Lets modules of a folder be imported; with ``only`` none of the working directory, unless it is that folder."""
    here = str(Path.cwd())
    if only and here != str(folder) and sys.path[:1] in ([""], [here]):  # as `python -m` has it
        del sys.path[0]
    if str(folder) not in sys.path and not ("" in sys.path and str(folder) == here):
        sys.path.insert(0, str(folder))


def _found(argument: Argument, value: Any, project: Any) -> Any:
    """The paths that a schema argument names; raises SchemaError for all that name none."""
    if not isinstance(value, list):
        if value in argument.also or not isinstance(value, (str, Path)):
            return value
        try:
            return argument.type(project.find(value))
        except StructError as error:
            meant = did_you_mean(str(value), argument.also)
            if meant is None:
                raise
            raise SchemaError(replace(found, hint=meant) for found in error.diagnostics) from error
    paths = []
    problems: list[Diagnostic] = []
    for each in value:
        try:
            paths.append(_found(argument, each, project))
        except StructError as error:
            problems += error.diagnostics
    if problems:
        raise SchemaError(problems)
    return paths


def _located(value: Any) -> Any:
    """A value with the URLs in it as places, whose text has no passwords."""
    if isinstance(value, list):
        return [_located(each) for each in value]
    if not isinstance(value, str) or "://" not in value:
        return value
    from neuralqx_struct.places.urls import is_url, place_of

    return place_of(value) if is_url(value) else value


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
    off = {each.off: each for each in command.arguments if each.off}
    positions = [argument for argument in command.arguments if not argument.flag]
    values: dict[str, Any] = {}
    rest = iter(words)
    for value in rest:
        if value in off:
            values[off[value].name] = False
            continue
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
