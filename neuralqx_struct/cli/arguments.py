"""Arguments of commands: their record, functions that make frequent kinds, and those that several commands share.

Example:
    >>> choice("of", "The drawing.", "structs", "versions").convert("versions")
    'versions'
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

from neuralqx_struct.cli.reports import FORMATS
from neuralqx_struct.errors import did_you_mean, shell_word

REQUIRED: Final[Any] = object()


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument or option of a command.

    Attributes:
        name: The parameter of the command's function.
        help: Help in one sentence.
        metavar: The value in help and errors.
        flag: The option, such as ``--schema``; empty for an argument by position.
        short: The option in one letter, such as ``-q``.
        type: ``Path``, ``str`` or ``bool``. A URL in place of a path stays a text.
        default: The value if it is left out, or ``REQUIRED``.
        many: True if it may be given several times.
        choices: The only values, if they are fixed.
        check: Raises ValueError for a value that is refused.
        reads: True for the path of a file or bundle that is read: ``-`` is the standard input.
        imports: True if it names a module: those of the working directory are found, as with ``python -m``.
        project: The member of :class:`~neuralqx_struct.tools.project.Project` that gives its value if it is left out.
        schema: True if it names a schema: the path of one, ``id`` or ``id@3``.
        also: Words that do not name a schema.
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
    project: str = ""
    schema: bool = False
    also: tuple[str, ...] = ()

    @property
    def off(self) -> str:
        """The option that overrides a switch of the project file; empty for other arguments."""
        return f"--no-{self.flag.lstrip('-')}" if self.project and self.type is bool else ""

    @property
    def in_usage(self) -> str:
        """The argument in the usage of its command: in brackets if it may be left out."""
        words = self.metavar
        if self.flag:
            names = "|".join(filter(None, [self.flag, self.off]))
            words = names if self.type is bool else f"{names} {self.metavar}"
        elif self.many:
            words = f"{self.metavar}..."
        return words if self.required else f"[{words}]"

    @property
    def required(self) -> bool:
        """True if it may not be left out."""
        return self.default is REQUIRED

    def convert(self, word: str) -> Any:
        """The value of a word; raises ValueError if it is refused."""
        if self.choices and word not in self.choices:
            *most, last = self.choices
            meant = did_you_mean(word, self.choices)
            hint = f"; {meant}" if meant else ""
            raise ValueError(f"expected {', '.join(most)} or {last}, got {word!r}{hint}")
        if self.check is not None:
            self.check(word)
        return word if self.type is Path and "://" in word else self.type(word)


# --- frequent kinds -----------------------------------------------------------------------------------------------


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
    return option(name, help, "|".join(choices), default=choices[0], choices=choices)


def switch(name: str, help: str, short: str = "", project: str = "") -> Argument:  # noqa: A002
    """An option without a value; one that the project file can set has a second flag, such as ``--no-golden``."""
    flag = "--" + name.replace("_", "-")
    default = None if project else False
    return Argument(name, help, flag=flag, short=short, type=bool, default=default, project=project)


# --- shared arguments ---------------------------------------------------------------------------------------------

#: The options of every command; their names are the members of :class:`~neuralqx_struct.cli.reports.Output`.
COMMON: Final = (
    choice("format", "How to print the results.", *FORMATS),
    choice(
        "color", "Colours; NO_COLOR and FORCE_COLOR decide for auto.", "auto", "always", "never"
    ),
    switch("quiet", "Leave out verdicts, counts and progress bars.", "-q"),
    switch("verbose", "Print tracebacks and the time taken.", "-v"),
)
#: Options that the parser adds itself: to every command, and to the program.
HELP: Final = switch("help", "Show this help and exit.", "-h")
SETUP: Final = (
    switch("version", "Print the version and exit.", "-V"),
    switch("install_completion", "Set up completion in the current shell."),
    switch("show_completion", "Print the completion of the current shell."),
)


def check_version(text: str) -> None:
    """Raises ValueError for text that is no version to migrate to."""
    if text != "head" and not text.removeprefix("-").isdecimal():
        meant = did_you_mean(text, ["head"])
        hint = f"; {meant}" if meant else ""
        raise ValueError(f"expected a version, 'head' or a negative number, got {text!r}{hint}")


def check_mode(text: str) -> None:
    """Raises ValueError for text that is no compatibility mode."""
    from neuralqx_struct.schema.migration import MODES  # it imports Pydantic

    _require_known(text, MODES)


def check_store(text: str) -> None:
    """Raises ValueError for text that is no store."""
    from neuralqx_struct.formats.store import STORES  # few calls name one

    _require_known(text, STORES)


def _require_known(text: str, known: Iterable[str]) -> None:
    names = [*known]
    if text not in names:
        hint = did_you_mean(text, names)
        listed = ", ".join(names)
        raise ValueError(f"expected one of {listed}, got {text!r}{f'; {hint}' if hint else ''}")


def check_depth(text: str) -> None:
    """Raises ValueError for text that is no depth of a tree."""
    if text != "all" and not (text.isdecimal() and len(text) < 10):
        raise ValueError(f"expected a number or 'all', got {text!r}")


def parse_limit(text: str) -> tuple[str, int]:
    """The name and value of a limit; raises ValueError for other text.

    Example:
        >>> parse_limit("nodes=2_000_000")
        ('nodes', 2000000)
    """
    from neuralqx_struct.manifest import Limits  # few calls raise a limit

    names = [each.name for each in fields(Limits)]
    name, _, number = text.partition("=")
    if name not in names:
        hint = did_you_mean(name, names) or f"known: {', '.join(names)}"
        raise ValueError(f"expected a limit such as nodes=2000000, got {text!r}; {hint}")
    if not number.replace("_", "").isdecimal() or len(number) > 18:
        raise ValueError(f"expected a whole number after {name}=, got {number!r}")
    return name, int(number)


def parse_limits(words: Iterable[str]) -> Any:
    """The limits of ``--limits``; None without it."""
    if not words:
        return None
    from neuralqx_struct.manifest import Limits

    return Limits(**dict(map(parse_limit, words)))


def parse_value(text: str) -> tuple[str, Any]:
    """The name and value of a field that a foreign file lacks: JSON, or else text; raises ValueError for other words.

    Example:
        >>> parse_value("n_heads=12"), parse_value("activation=gelu")
        (('n_heads', 12), ('activation', 'gelu'))
    """
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise ValueError(f"expected a value such as n_heads=12, got {text!r}")
    try:
        return name, json.loads(value)
    except (ValueError, RecursionError):
        return name, value


def parse_bytes(text: str) -> int:
    """A number of bytes, such as ``500MB``; raises ValueError for other text.

    Example:
        >>> parse_bytes("2GB"), parse_bytes("4096")
        (2000000000, 4096)
    """
    match = re.fullmatch(r"([0-9]{1,15})(|KB|MB|GB|TB)", text)
    if match is None or not int(match[1]):
        raise ValueError(f"expected a size such as 5GB, got {text!r}")
    power: int = ("", "KB", "MB", "GB", "TB").index(match[2])
    return int(match[1]) * int(1000**power)


_GIVEN = re.compile(r"\b([a-z_]+)=(\[[^\]]*\]|\{[^{}]*\}|'[^']*'|True\b)?(?![=\w])")
_WORD = re.compile(r"'([^']*)'(?:: *'?([^',}]*)'?)?")


def in_options(hint: str, arguments: Iterable[Argument]) -> str:
    """A hint about arguments of Python functions as one about the options of a command.

    Example:
        >>> in_options("pass trust=['lab.steps'], or values={'n': 12}", [TRUST, VALUES])
        'pass --trust lab.steps, or --value n=12'
    """
    flags = {argument.name: argument for argument in arguments if argument.flag}

    def option_of(found: re.Match[str]) -> str:
        argument = flags.get(found[1])
        if argument is None:
            return found[0]
        if argument.type is bool:
            return argument.flag
        given = _WORD.findall(found[2] or "")
        words = [f"{name}={value}" if value else name for name, value in given]
        return " ".join(
            f"{argument.flag} {shell_word(word)}" for word in words or [argument.metavar]
        )

    return _GIVEN.sub(option_of, hint)


_BUNDLES = "Bundles: folders, zips or manifest.json files."
PATHS = Argument("paths", _BUNDLES, "PATH", many=True, reads=True)
SCHEMA = option(
    "schema",
    "Schema folder, file, ID or ID@3; without it, the project's or the bundle's own.",
    "SCHEMA",
    type=Path,
    reads=True,
    schema=True,
    project="own_schemas",
)
OUT = option("out", "A new file; printed if left out.", "DST", type=Path)
OVERWRITE = switch("overwrite", "Replace what is at --out.")
_FORMS = "A schema folder (its newest version), file, ID or ID@3."
SCHEMA_PATH = Argument("path", _FORMS, "SCHEMA", reads=True, schema=True)
SCHEMA_FOLDER = replace(
    SCHEMA_PATH, reads=False
)  # something is written beside it, or read from git
TRUST = option(
    "trust",
    "Import it and run its python steps.",
    "MODULE",
    default=None,
    many=True,
    imports=True,
    project="trust",
)
SCHEMA_PATHS = Argument(
    "paths",
    "Schema files, folders or IDs; the folder of all schemas if left out.",
    "SCHEMA",
    default=(),
    many=True,
    reads=True,
    schema=True,
    project="schemas",
)
FOLDER = Argument("folder", "The folder of all schemas.", "FOLDER", default=None, project="schemas")
MODE = option(
    "mode",
    "Such as full-transitive; by default each schema's own.",
    "MODE",
    check=check_mode,
    project="mode",
)
WAIVERS = option(
    "waivers",
    "Findings accepted for a reason.",
    "FILE",
    type=Path,
    reads=True,
    project="waivers",
)
STORE = option(
    "store",
    "npz, safetensors or orbax; as in SRC if left out.",
    "STORE",
    check=check_store,
    project="store",
)
VALUES = option(
    "values",
    "A value that the foreign file lacks, such as n_heads=12.",
    "NAME=VALUE",
    flag="--value",
    default=(),
    many=True,
    check=lambda text: parse_value(text) and None,
)
JSON_SCHEMA = option(
    "json_schema",
    "JSON Schema that manifests must match too.",
    "FILE",
    flag="--json-schema",
    type=Path,
    reads=True,
)
LAYOUT = option(
    "layout",
    "Names and forms of a foreign file: a name in the schema's layouts/, or a file.",
    "LAYOUT",
)
SHARDS = option(
    "max_shard_size",
    "Write a folder of files of this size, such as 5GB.",
    "SIZE",
    flag="--max-shard-size",
    check=lambda text: parse_bytes(text) and None,
)
FOREIGN = option(
    "file", "Foreign file whose header is checked, too.", "FILE", type=Path, reads=True
)
LIMITS = option(
    "limits",
    "Raise a limit on sizes, such as nodes=2000000.",
    "NAME=N",
    default=(),
    many=True,
    check=lambda text: parse_limit(text) and None,
)
