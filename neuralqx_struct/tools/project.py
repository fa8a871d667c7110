"""The project file: defaults of the command line for one repository.

Owns ``neuralqx-struct.toml`` and the table ``[tool.neuralqx-struct]`` of ``pyproject.toml``: the search upwards from the
working directory, the keys with the values that they take, and the position of each error. Only commands read it;
functions of Python take everything as arguments.

A file that came from someone else must not run code. Bundles and schemas are never asked for a project file, the trust of
a file that another user owns is not used, and trusted modules come from the folder of the file or from installed packages.

Example:
    >>> print(parse('schemas = "models"', "neuralqx-struct.toml").schemas)
    models
    >>> parse("scemas = 1", "neuralqx-struct.toml")
    Traceback (most recent call last):
    neuralqx_struct.errors.SchemaError: neuralqx-struct.toml:1:1: NQX009 expected a known key, got 'scemas'
      did you mean 'schemas'?
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from neuralqx_struct.errors import Diagnostic, Hint, Keyword, SchemaError, did_you_mean
from neuralqx_struct.printing import brief_scalar
from neuralqx_struct.schema.text import MAX_PROBLEMS, conflict_markers

if TYPE_CHECKING:
    from neuralqx_struct.schema.catalogue import Catalogue

OWN_FILE: Final = "neuralqx-struct.toml"
SHARED_FILE: Final = "pyproject.toml"
_TABLE: Final = "neuralqx-struct"
#: A line that may begin this table in TOML: its header, a dotted key, or a table ``tool``.
_OURS: Final = re.compile(
    rb"""(?m)^[ \t]*\[?[ \t]*["']?tool["']?[ \t]*(?:\.[ \t]*["']?neuralqx-struct|[]=])"""
)
#: Files beyond these limits are refused: tomllib takes time by the square of the parts of a dotted key.
_MOST_BYTES: Final = 128 << 10
_MOST_READ: Final = 1 << 20
_LONGEST_LINE: Final = 2048


class Project(NamedTuple):
    """The values of a project file, and the defaults of those that it leaves out.

    Attributes:
        file: The file; None if there is none.
        schemas: The folder of all schemas.
        trust: Modules whose ``python`` steps may run.
        store: The store of ``convert``.
        mode: The compatibility mode of ``breaking``.
        waivers: Accepted findings of ``breaking``.
        golden: Whether ``schema lint`` checks golden payloads, and ``schema freeze`` writes them.
        names_schemas: True if the file names the folder of all schemas.
        found: Warnings about the file.
    """

    file: Path | None = None
    schemas: Path = Path("schemas")
    trust: tuple[str, ...] = ()
    store: str | None = None
    mode: str | None = None
    waivers: Path | None = None
    golden: bool = False
    names_schemas: bool = False
    found: tuple[Diagnostic, ...] = ()

    @property
    def folder(self) -> Path:
        """The folder of the file, where trusted modules are imported from."""
        return Path() if self.file is None else self.file.parent

    @property
    def own_schemas(self) -> Catalogue | None:
        """The schemas that bundles are read with; None if the file names no folder."""
        return self._catalogue() if self.names_schemas else None

    def find(self, name: str | Path) -> Path:
        """The path that a schema argument names; see :meth:`Catalogue.find`."""
        return Path(name) if os.path.lexists(name) else self._catalogue().find(name)

    def _catalogue(self) -> Catalogue:
        # Imported late: it imports Pydantic, and most arguments are paths.
        from neuralqx_struct.schema.catalogue import Catalogue

        return Catalogue(self.schemas)


# ---------------------------------------------------------------------------------------------------------------------
# Keys.


class _Key(NamedTuple):
    """One key: the description of its values, whether one is valid, and its conversion."""

    wanted: Callable[[], str]
    accepts: Callable[[Any], bool]
    convert: Callable[[Any, Path], Any]


def _stores() -> list[str]:
    # Imported late: few project files choose a store.
    from neuralqx_struct.formats.store import STORES

    return [*STORES]


def _modes() -> list[str]:
    # Imported late: it imports Pydantic, and few project files choose a mode.
    from neuralqx_struct.schema.migration import MODES

    return [*MODES]


def _choice(names: Callable[[], list[str]]) -> _Key:
    return _Key(
        lambda: f"one of {', '.join(names())}",
        lambda value: isinstance(value, str) and value in names(),
        lambda value, _: value,
    )


_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


def _are_modules(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(name, str) and _MODULE.fullmatch(name) for name in value
    )


_PATH = _Key(
    lambda: "a path",
    lambda value: isinstance(value, str) and value != "" and "\0" not in value,
    lambda value, folder: folder / value,
)
_KEYS: Final[Mapping[str, _Key]] = {
    "schemas": _PATH,
    "trust": _Key(
        lambda: 'a list of modules, such as ["lab.migrations"]',
        _are_modules,
        lambda value, _: tuple(value),
    ),
    "store": _choice(_stores),
    "mode": _choice(_modes),
    "waivers": _PATH,
    "golden": _Key(
        lambda: "true or false",
        lambda value: isinstance(value, bool),
        lambda value, _: value,
    ),
}

# ---------------------------------------------------------------------------------------------------------------------
# Reading.


def find_project() -> Project:
    """The project of the working directory: that of the nearest folder, upwards, with a project file.

    Returns:
        Its values; the defaults if there is no project file.

    Raises:
        SchemaError: All errors of the file: NQX001, NQX009, NQX010, NQX017 for conflict markers, and NQX005 for a file
            that is too large.
    """
    for folder in _upwards():
        for name in (OWN_FILE, SHARED_FILE):
            project = _read(folder / name)
            if project is not None:
                return _checked_owner(project)
    return Project()


def _upwards() -> Iterator[Path]:
    """Yields the working directory and the folders above it, as relative paths."""
    try:
        levels = len(Path.cwd().parts)
    except OSError:  # it was removed
        return
    for level in range(levels):
        yield Path(*[".."] * level)


def _read(file: Path) -> Project | None:
    """The project in a file; None if there is no file, or if it is about other tools."""
    is_shared = file.name == SHARED_FILE
    try:
        if not file.is_file():
            return None
        with file.open("rb") as held:
            data = held.read(_MOST_READ)
    except OSError as error:
        if is_shared:  # it need not be ours
            return None
        message = f"expected a readable file, got: {error.strerror or error}"
        raise SchemaError(message, code="NQX001", file=str(file)) from error
    if is_shared and (_TABLE.encode() not in data or not _OURS.search(data)):
        return None  # also one that is no TOML: other programs say so
    if len(data) > _MOST_BYTES:
        raise _refused(file, "NQX005", f"expected at most {_MOST_BYTES >> 10} KiB, got more")
    return parse(_decoded(data, file), file)


def _decoded(data: bytes, file: Path) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise _refused(file, "NQX001", f"expected UTF-8, got: {error.reason}") from error


def _refused(file: Path, code: str, message: str, line: int = 1, column: int = 1) -> SchemaError:
    """The error about a text that is no project file."""
    hint = None
    if code == "NQX005" and file.name == SHARED_FILE:
        hint = f"move the table [tool.{_TABLE}] to {OWN_FILE}"
    return SchemaError(Diagnostic(code, "error", message, "", str(file), line, column, hint))


def parse(text: str, file: str | Path) -> Project | None:
    """The project in the text of a file; None for a ``pyproject.toml`` without a table for it.

    Args:
        text: The text.
        file: Its path: the name decides where the keys are, and paths in it are relative to its folder.

    Raises:
        SchemaError: Every error at once.
    """
    file = Path(file)
    positions = _Positions(text, str(file), "" if file.name == OWN_FILE else f"tool.{_TABLE}")
    table = _table(_data(text.replace("\r\n", "\n"), file), file.name, positions)
    if table is None:
        return None
    values = {}
    problems = []
    for name, value in table.items():
        key = _KEYS.get(name)
        if key is None:
            problems.append(_unknown(name, value, positions))
        elif not key.accepts(value):
            message = f"expected {key.wanted()}, got {brief_scalar(value)}"
            problems.append(positions.error("NQX010", name, message, _fix(name, key, value)))
        else:
            values[name] = key.convert(value, file.parent)
    if problems:
        raise SchemaError(sorted(problems, key=lambda found: found.line or 0)[:MAX_PROBLEMS])
    return Project(file, **values, names_schemas="schemas" in values)


def _data(text: str, file: Path) -> dict[str, Any]:
    """The values of a TOML text."""
    markers = conflict_markers(text, str(file))
    if markers:
        raise SchemaError(markers)
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > _LONGEST_LINE:
            message = f"expected lines of at most {_LONGEST_LINE} characters, got {len(line)}"
            raise _refused(file, "NQX005", message, number)
    import tomllib  # most commands find no project file

    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        reason, _, place = str(error).partition(" (at ")
        numbers = [int(number) for number in re.findall(r"\d+", place)]
        at = numbers if len(numbers) == 2 else [text.count("\n") + 1, 1]
        message = f"expected TOML, got: {reason or 'too many levels'}"
        raise _refused(file, "NQX001", message, *at) from error


def _table(data: dict[str, Any], name: str, positions: _Positions) -> dict[str, Any] | None:
    """The table of this tool, if there is one."""
    if name == OWN_FILE:
        return data
    tool = data.get("tool", {})
    table = tool.get(_TABLE) if isinstance(tool, dict) else None
    if isinstance(table, dict) or table is None:
        return table
    message = f"expected a table [tool.{_TABLE}], got {brief_scalar(table)}"
    raise SchemaError(positions.error("NQX010", "", message, None))


def _unknown(name: str, value: Any, positions: _Positions) -> Diagnostic:
    hint = did_you_mean(name, _KEYS) or f"known keys: {', '.join(_KEYS)}"
    if name == "tool" and isinstance(value, dict):
        hint = f"write the keys without [tool.{_TABLE}], which is for {SHARED_FILE}"
    return positions.error("NQX009", name, f"expected a known key, got {name[:60]!r}", hint)


def _fix(name: str, key: _Key, value: Any) -> str | None:
    """The likely fix of a value that its key refuses."""
    if key.accepts([value]):
        return f'write {name} = ["{value}"]'
    if isinstance(value, str) and value.lower() in ("true", "false") and key.accepts(True):
        return f"write {name} = {value.lower()}, without quotes"
    names = [word.strip() for word in key.wanted().removeprefix("one of ").split(",")]
    return did_you_mean(value, names) if isinstance(value, str) and len(names) > 1 else None


class _Positions:
    """The positions of keys, which tomllib does not give: the lines that begin with a key in the table of this tool."""

    def __init__(self, text: str, file: str, table: str) -> None:
        self._file = file
        self._places: dict[str, tuple[int, int]] = {}
        section = ""
        for number, line in enumerate(text.split("\n"), 1):
            plain = re.sub(r"[\s\"']", "", line.partition("#")[0])
            if plain.startswith("["):
                name = section = plain.strip("[]")
            else:
                name = f"{section}.{plain.partition('=')[0]}".strip(".")
            if plain and f"{name}.".startswith(f"{table}." if table else ""):
                key = name[len(table) :].strip(".").partition(".")[0]
                self._places.setdefault(key, (number, len(line) - len(line.lstrip()) + 1))

    def error(self, code: str, key: str, message: str, hint: str | None) -> Diagnostic:
        """An error at a key, or at the header of the table if the key has no line of its own."""
        line, column = self._places.get(key) or self._places.get("", (1, 1))
        path = f"$.{key}" if key.isidentifier() else "$"
        return Diagnostic(code, "error", message, path, self._file, line, column, hint)


# ---------------------------------------------------------------------------------------------------------------------
# Trust.


def _checked_owner(project: Project) -> Project:
    """The project without its trust if the file belongs to another user, who could run code with it."""
    file = project.file
    if file is None or not project.trust or not hasattr(os, "geteuid"):
        return project
    owner = file.stat().st_uid
    if owner in (0, os.geteuid()):
        return project
    message = f"expected a project file of your own, got one of user {owner}\nits `trust` is not used: it could run code of that user"
    hint = Hint("pass ", Keyword("trust", [*project.trust]))
    found = Diagnostic("NQX510", "warning", message, "$.trust", str(file), hint=hint)
    return project._replace(trust=(), found=(found,))
