"""Records of commands and their arguments, and functions that make the frequent kinds of arguments.

The records themselves are in ``table.py``.

Example:
    >>> choice("of", "The drawing.", "structs", "versions").convert("versions")
    'versions'
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from neuralqx_struct.cli.reports import FORMATS, Report, run

EXIT_CODES: Final = {0: "clean", 1: "findings of severity error", 2: "could not run"}
REQUIRED: Final[Any] = object()


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument or option of a command.

    Attributes:
        name: The parameter of the command's function.
        help: Help in one sentence.
        metavar: The value in help and errors.
        flag: The option, such as ``--schema``; empty for an argument by position.
        type: ``Path``, ``str`` or ``bool``.
        default: The value if it is left out, or ``REQUIRED``.
        many: True if it may be given several times.
        choices: The only values, if they are fixed.
        check: Raises ValueError for a value that is refused.
    """

    name: str
    help: str
    metavar: str = ""
    flag: str = ""
    type: Any = Path
    default: Any = REQUIRED
    many: bool = False
    choices: tuple[str, ...] = ()
    check: Callable[[str], None] | None = None

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
        arguments: Its arguments and options, besides ``--format``.
        members: The members of its JSON results, besides those of every report.
        needs_jax: True if it always imports JAX.
        prints: True if it prints while it runs; it then also gets the format.
    """

    name: str
    function: str
    run: Callable[..., Report]
    help: str
    arguments: tuple[Argument, ...]
    members: tuple[str, ...]
    needs_jax: bool = False
    prints: bool = False

    @property
    def all_arguments(self) -> tuple[Argument, ...]:
        """The arguments of the command and of every command."""
        return (*self.arguments, FORMAT)

    @property
    def anchor(self) -> str:
        """The anchor of its section in ``docs/cli.md``."""
        return self.name.replace(" ", "-")

    def call(self, values: dict[str, Any]) -> int:
        """Runs the command and prints its report; returns the exit code."""
        style = values.pop("format")
        if self.prints:
            values["format"] = style

        def body() -> Report:
            if self.needs_jax:  # reported by name if it is missing
                importlib.import_module("jax")
            return self.run(**values)

        return run(self.name, style, body)


# --- frequent arguments -------------------------------------------------------------------------------------------


def word(name: str, help: str, metavar: str, **more: Any) -> Argument:  # noqa: A002
    """An argument by position that is no path."""
    return Argument(name, help, metavar, type=str, **more)


def option(
    name: str,
    help: str,  # noqa: A002
    metavar: str,
    *,
    type: Any = str,  # noqa: A002
    default: Any = None,
    **more: Any,
) -> Argument:
    """An option with one value; its flag is ``--name`` unless another is given."""
    flag = more.pop("flag", f"--{name}")
    return Argument(name, help, metavar, flag, type, default, **more)


def choice(name: str, help: str, *choices: str) -> Argument:  # noqa: A002
    """An option with fixed values, of which the first is the default."""
    metavar = f"[{'|'.join(choices)}]"
    return option(name, help, metavar, default=choices[0], choices=choices)


def switch(name: str, help: str) -> Argument:  # noqa: A002
    """An option without a value."""
    return option(name, help, "", flag="--" + name.replace("_", "-"), type=bool, default=False)


FORMAT: Final = choice("format", "How to print the results.", *FORMATS)
