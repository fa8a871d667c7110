"""Arguments of commands: their record, functions that read their words, and those that several commands share.

Example:
    >>> choice("format", "The format.", "text", "json").read("json")
    'json'
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final, NamedTuple

from neuralqx_struct.cli.formats import FORMATS
from neuralqx_struct.errors import Keyword, did_you_mean, shell_word
from neuralqx_struct.manifest import Limits

REQUIRED: Final[Any] = object()


class Argument(NamedTuple):
    """One argument or option of a command.

    Attributes:
        name: The parameter of the command's function.
        help: Help in one sentence.
        metavar: The value in help and errors; empty for a switch.
        flag: The option, such as ``--schema``; empty for an argument by position.
        short: The option in one letter, such as ``-q``.
        parse: Returns the value of a word; raises ValueError for one that is refused.
        default: The value if it is left out, or ``REQUIRED``.
        many: True if it may be given several times.
        collect: Makes one value of the values of an argument that may be given several times.
        choices: The only values, if they are fixed.
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
    parse: Callable[[str], Any] = str
    default: Any = REQUIRED
    many: bool = False
    collect: Callable[[Any], Any] | None = None
    choices: tuple[str, ...] = ()
    reads: bool = False
    imports: bool = False
    project: str = ""
    schema: bool = False
    also: tuple[str, ...] = ()

    @property
    def is_switch(self) -> bool:
        """True for an option without a value."""
        return not self.metavar

    @property
    def is_required(self) -> bool:
        """True if it may not be left out."""
        return self.default is REQUIRED

    @property
    def flags(self) -> tuple[str, ...]:
        """Its options in full; a switch that the project file can set has a second one that is off."""
        if not self.flag:
            return ()
        if self.is_switch and self.project:
            return self.flag, f"--no-{self.flag.removeprefix('--')}"
        return (self.flag,)

    @property
    def in_usage(self) -> str:
        """The argument in the usage of its command: in brackets if it may be left out."""
        words = " ".join(filter(None, ["|".join(self.flags), self.metavar]))
        if self.many and not self.flag:
            words = f"{self.metavar}..."
        return words if self.is_required else f"[{words}]"

    def read(self, word: str) -> Any:
        """The value of a word; raises ValueError if it is refused."""
        if self.choices:
            require_known(word, self.choices)
        return self.parse(word)

    def words(self, value: Any) -> str:
        """The option with a value, as a command line has it; with its metavar for None."""
        if self.is_switch:
            return self.flag
        given = value if isinstance(value, list) else [self.metavar if value is None else value]
        if isinstance(value, Mapping):
            given = [f"{name}={'...' if each is ... else each}" for name, each in value.items()]
        return " ".join(f"{self.flag} {shell_word(each)}" for each in given)


def in_options(keyword: Keyword, arguments: Iterable[Argument]) -> str:
    """An argument of a Python function as the option of a command that has it.

    Example:
        >>> in_options(Keyword("trust", ["lab.steps"]), [TRUST]), in_options(Keyword("limits"), [LIMITS])
        ('--trust lab.steps', '--limits NAME=N')
    """
    for argument in arguments:
        if argument.name == keyword.name and argument.flag:
            return argument.words(keyword.value)
    return str(keyword)


# --- words and their values ---------------------------------------------------------------------------------------


def path_or_url(word: str) -> Path | str:
    """A path; a URL stays a text until the command runs."""
    return word if "://" in word else Path(word)


def require_known(text: str, known: Iterable[str]) -> None:
    """Raises ValueError for text that is none of the known names; the message lists them and the likely one."""
    names = [*known]
    if text in names:
        return
    *most, last = names
    meant = did_you_mean(text, names)
    hint = f"; {meant}" if meant else ""
    raise ValueError(f"expected {', '.join(most)} or {last}, got {text!r}{hint}")


def parse_version(text: str) -> str | int:
    """A version to migrate to: ``head``, its number, or how many to go back."""
    if text == "head":
        return text
    if text.removeprefix("-").isdecimal():
        return int(text)
    meant = did_you_mean(text, ["head"])
    hint = f"; {meant}" if meant else ""
    raise ValueError(f"expected a version, 'head' or a negative number, got {text!r}{hint}")


def parse_mode(text: str) -> str:
    """The name of a compatibility mode."""
    from neuralqx_struct.schema.migration import MODES  # it imports Pydantic

    require_known(text, MODES)
    return text


def parse_store(text: str) -> str:
    """The name of a store."""
    from neuralqx_struct.formats.store import STORES  # few calls name one

    require_known(text, STORES)
    return text


def parse_depth(text: str) -> str | int:
    """The depth of a tree: ``all``, or a number."""
    if text == "all":
        return text
    if not text.isdecimal() or len(text) > 9:
        raise ValueError(f"expected a number or 'all', got {text!r}")
    return int(text)


def parse_tries(text: str) -> int:
    """A number of payloads."""
    if not text.isdecimal() or len(text) > 6 or int(text) < 1:
        raise ValueError(f"expected a number of payloads, such as 100, got {text!r}")
    return int(text)


def parse_rtol(text: str) -> float:
    """A relative tolerance."""
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found < float("inf"):
        raise ValueError(f"expected a tolerance such as 1e-6, got {text!r}")
    return found


def parse_limit(text: str) -> tuple[str, int]:
    """The name and value of a limit.

    Example:
        >>> parse_limit("nodes=2_000_000")
        ('nodes', 2000000)
    """
    names = [each.name for each in fields(Limits)]
    name, _, number = text.partition("=")
    if name not in names:
        hint = did_you_mean(name, names) or f"known: {', '.join(names)}"
        raise ValueError(f"expected a limit such as nodes=2000000, got {text!r}; {hint}")
    if not number.replace("_", "").isdecimal() or len(number) > 18:
        raise ValueError(f"expected a whole number after {name}=, got {number!r}")
    return name, int(number)


def limits_of(pairs: Iterable[tuple[str, int]]) -> Limits | None:
    """The limits of names and values; None without one."""
    return Limits(**dict(pairs)) if pairs else None


def parse_value(text: str) -> tuple[str, Any]:
    """The name and value of a field that a foreign file lacks: JSON, or else text.

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
    """A number of bytes, such as ``500MB``.

    Example:
        >>> parse_bytes("2GB"), parse_bytes("4096")
        (2000000000, 4096)
    """
    match = re.fullmatch(r"([0-9]{1,15})(|KB|MB|GB|TB)", text)
    if match is None or not int(match[1]):
        raise ValueError(f"expected a size such as 5GB, got {text!r}")
    power: int = ("", "KB", "MB", "GB", "TB").index(match[2])
    return int(match[1]) * int(1000**power)


# --- frequent kinds -----------------------------------------------------------------------------------------------


def path(name: str, help: str, metavar: str, **more: Any) -> Argument:  # noqa: A002
    """An argument by position that is the path of what is read."""
    return Argument(name, help, metavar, **{"parse": path_or_url, "reads": True, **more})


def option(name: str, help: str, metavar: str, **more: Any) -> Argument:  # noqa: A002
    """An option with a value, a text unless it is parsed; its flag is ``--name``."""
    facts = {"flag": f"--{name.replace('_', '-')}", "default": None, **more}
    return Argument(name, help, metavar, **facts)


def choice(name: str, help: str, *choices: str) -> Argument:  # noqa: A002
    """An option with fixed values, of which the first is the default."""
    return option(name, help, "|".join(choices), default=choices[0], choices=choices)


def switch(name: str, help: str, short: str = "", project: str = "") -> Argument:  # noqa: A002
    """An option without a value; one that the project file can set has a second flag, such as ``--no-golden``."""
    default = None if project else False
    return option(name, help, "", short=short, default=default, project=project)


# --- shared arguments ---------------------------------------------------------------------------------------------

#: The options of every command; their names are the members of :class:`~neuralqx_struct.cli.terminal.Output`.
COMMON: Final = (
    choice("format", "How to print the results.", *FORMATS),
    choice(
        "color", "Colours; NO_COLOR and FORCE_COLOR decide for auto.", "auto", "always", "never"
    ),
    switch("quiet", "Leave out verdicts, counts and progress bars.", "-q"),
    switch("verbose", "Print tracebacks and the time taken.", "-v"),
)

LIMITS = option(
    "limits",
    "Raise a limit on sizes, such as nodes=2000000.",
    "NAME=N",
    parse=parse_limit,
    default=(),
    many=True,
    collect=limits_of,
)
OUT = option("out", "A new file; printed if left out.", "DST", parse=path_or_url)
OVERWRITE = switch("overwrite", "Replace what is at --out.")
VALUES = option(
    "values",
    "A value that the foreign file lacks, such as n_heads=12.",
    "NAME=VALUE",
    flag="--value",
    parse=parse_value,
    default=(),
    many=True,
    collect=dict,
)
TRIES = option(
    "tries",
    "Payloads tried for each two versions and direction.",
    "N",
    parse=parse_tries,
)
TRUST = option(
    "trust",
    "Import it and run its python steps.",
    "MODULE",
    many=True,
    imports=True,
    project="trust",
)
IDENTITY = option("identity", "Identity of the schema, such as lab.state.", "ID", flag="--id")

BUNDLES = path("paths", "Bundles: folders, zips or manifest.json files.", "PATH", many=True)
SOURCE = path("source", "A bundle, or a file of another program.", "SRC")
SCHEMA = option(
    "schema",
    "Schema folder, file, ID or ID@3; without it, the project's or the bundle's own.",
    "SCHEMA",
    parse=path_or_url,
    reads=True,
    schema=True,
    project="own_schemas",
)
SCHEMA_PATH = path(
    "path", "A schema folder (its newest version), file, ID or ID@3.", "SCHEMA", schema=True
)
#: Something is written beside it, or read from git.
SCHEMA_FOLDER = SCHEMA_PATH._replace(reads=False)
SCHEMA_PATHS = path(
    "paths",
    "Schema files, folders or IDs; the folder of all schemas if left out.",
    "SCHEMA",
    default=(),
    many=True,
    schema=True,
    project="schemas",
)
FOLDER = Argument(
    "folder",
    "The folder of all schemas.",
    "FOLDER",
    parse=path_or_url,
    default=None,
    project="schemas",
)
