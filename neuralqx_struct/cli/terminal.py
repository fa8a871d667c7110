"""The streams that a command prints to: its options of printing, colours, remarks and progress bars.

Results go to stdout, everything else to stderr.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, NamedTuple, TextIO

from neuralqx_struct.errors import printable, printable_lines

_WIDEST: Final = 100
_NARROWEST: Final = 40


class Output(NamedTuple):
    """The options of every command.

    Attributes:
        format: A member of :data:`~neuralqx_struct.cli.formats.FORMATS`.
        color: ``auto``, ``always`` or ``never``.
        quiet: True to leave out verdicts, counts and progress.
        verbose: True to print tracebacks and the time that a command took.
    """

    format: str = "text"
    color: str = "auto"
    quiet: bool = False
    verbose: bool = False


#: The options of the command that runs.
OUTPUT: Final = ContextVar("output", default=Output())  # noqa: B039 - it is frozen


def plain(text: str) -> str:
    """Lines none of which is a command of GitHub's runner, which reads the output in every format."""
    return re.sub(r"(?m)^[^\S\n]*:(?=:)|##(?=\[)", r"\g<0> ", printable_lines(text))


def columns() -> int:
    """Columns of help and of prose: those of the terminal, within bounds."""
    return max(_NARROWEST, min(_WIDEST, shutil.get_terminal_size((80, 24)).columns))


def hanging(line: str) -> str:
    """A line of a table as several, broken between words, on a terminal that is narrower; else the line."""
    if not sys.stdout.isatty():
        return line
    indent = " " * (len(line) - len(line.lstrip()) + 4)
    return textwrap.fill(
        line,
        columns(),
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def is_coloured(stream: TextIO) -> bool:
    """True if a stream gets colours."""
    color = OUTPUT.get().color
    if color != "auto":
        return color == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return os.environ.get("TERM") != "dumb" and stream.isatty()


def narrate(line: str) -> None:
    """Prints a line while a command runs: on stdout, or on stderr where results are for programs."""
    output = OUTPUT.get()
    if not output.quiet:
        stream = sys.stdout if output.format == "text" else sys.stderr
        print(plain(line), file=stream, flush=True)


def remark(line: str) -> None:
    """Prints a line on stderr, also where ``--quiet`` leaves out verdicts: one about trust."""
    sys.stderr.write(f"{printable(line)}\n")


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[int, int], None] | None]:
    """Shows a bar on stderr while a block runs; gives the function ``(done, total)``, or None outside a terminal."""
    if OUTPUT.get().quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(escape(printable(title)), total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
