"""Values that a call does not spell out: the standard input, those of the project file, and schemas by identity."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from neuralqx_struct.cli.arguments import Argument
from neuralqx_struct.cli.report import UsageError
from neuralqx_struct.cli.terminal import remark
from neuralqx_struct.errors import Diagnostic, SchemaError, StructError, did_you_mean

if TYPE_CHECKING:
    from neuralqx_struct.tools.project import Project

_STDIN: Final = Path("-")
_MOST_INPUT = 2**28  # bytes; a manifest may have as many

# --- standard input -----------------------------------------------------------------------------------------------


@contextmanager
def standard_input(
    arguments: list[Argument], values: dict[str, Any]
) -> Iterator[Mapping[str, str]]:
    """Stores the standard input in a file for the arguments that name it; gives the name that messages have for it."""
    reading = [each for each in arguments if _names_input(values[each.name])]
    if not reading:
        yield {}
        return
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        place = _stored_input(Path(folder))
        for argument in reading:
            given = values[argument.name]
            if argument.many:
                values[argument.name] = [place if path == _STDIN else path for path in given]
            else:
                values[argument.name] = place
        yield {str(place): "<stdin>"}


def _names_input(value: Any) -> bool:
    return value == _STDIN or (isinstance(value, list) and _STDIN in value)


def _stored_input(folder: Path) -> Path:
    """The standard input as a file whose name shows its kind.

    Raises:
        UsageError: It is too long.
    """
    data = sys.stdin.buffer.read(_MOST_INPUT + 1)
    if len(data) > _MOST_INPUT:
        message = f"expected at most {_MOST_INPUT:,} bytes on standard input, got more"
        raise UsageError(message)
    name = "stdin.yaml"
    if data.startswith(b"PK"):
        name = "stdin.zip"
    elif data.lstrip().startswith(b"{") and b'"manifest"' in data:
        name = "manifest.json"
    place = folder / name
    place.write_bytes(data)
    return place


# --- the project file ---------------------------------------------------------------------------------------------


def fill_from_project(
    arguments: tuple[Argument, ...], values: dict[str, Any], project: Project
) -> list[str]:
    """Fills in what the project file has, and finds the schemas that arguments name.

    Returns:
        The modules that the project file trusts, for an argument that is left out.
    """
    left_out = [a for a in arguments if a.project and values[a.name] in (None, [], ())]
    for argument in left_out:
        value = getattr(project, argument.project)
        values[argument.name] = [value] if argument.many and isinstance(value, Path) else value
    granted = [name for a in left_out if a.imports for name in values[a.name]]
    if granted:
        _import_from(project.folder.resolve(), only=True)
    elif any(a.imports and values[a.name] for a in arguments):
        _import_from(Path.cwd())
    for argument in arguments:
        if argument.schema and values[argument.name]:
            values[argument.name] = _found(argument, values[argument.name], project)
    return granted


def _import_from(folder: Path, *, only: bool = False) -> None:
    """Lets modules of a folder be imported; with ``only`` none of the working directory, unless it is that folder."""
    here = str(Path.cwd())
    if only and here != str(folder) and sys.path[:1] in ([""], [here]):  # as `python -m` has it
        del sys.path[0]
    if str(folder) not in sys.path and not ("" in sys.path and str(folder) == here):
        sys.path.insert(0, str(folder))


def _found(argument: Argument, value: Any, project: Project) -> Any:
    """The paths that a schema argument names; raises SchemaError for all that name none."""
    if not isinstance(value, list):
        return _one_found(argument, value, project)
    paths = []
    problems: list[Diagnostic] = []
    for each in value:
        try:
            paths.append(_one_found(argument, each, project))
        except StructError as error:
            problems += error.diagnostics
    if problems:
        raise SchemaError(problems)
    return paths


def _one_found(argument: Argument, value: Any, project: Project) -> Any:
    if value in argument.also or not isinstance(value, (str, Path)):
        return value
    try:
        found = project.find(value)
    except StructError as error:
        meant = did_you_mean(str(value), argument.also)
        if meant is None:
            raise
        raise SchemaError(replace(each, hint=meant) for each in error.diagnostics) from error
    return str(found) if argument.parse is str else found


class _Notice:
    """A finder that finds nothing; it prints that a module is trusted before the first line of it runs."""

    def __init__(self, modules: list[str], file: Path | None) -> None:
        self.modules, self.file = modules, file

    def find_spec(self, fullname: str, *_: object) -> None:
        """Prints the trusted modules in a package or module; a package around one runs with it."""
        for module in [name for name in self.modules if f"{name}.".startswith(f"{fullname}.")]:
            self.modules.remove(module)
            remark(f"importing {module}, which {self.file} trusts")


@contextmanager
def noticed(modules: list[str], file: Path | None) -> Iterator[None]:
    """Prints which modules a project file trusts, each when it is imported."""
    notice = _Notice([*modules], file)
    sys.meta_path.insert(0, notice)
    try:
        yield
    finally:
        sys.meta_path.remove(notice)
