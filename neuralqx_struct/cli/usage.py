"""Wrong arguments: said in plain words on stderr, and as a report on stdout where the call asks for JSON.

Owns the group of all commands, for what the parser refuses; what a command refuses is ``reporters.py``'s.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import typer
from typer.core import TyperGroup

from neuralqx_struct.cli.reporters import FORMATS, Format, Report
from neuralqx_struct.errors import Diagnostic

__all__ = ["Commands"]

#: The parser's error about a call; typer makes only its subclass public.
_UsageError: type[Any] = typer.BadParameter.__mro__[1]
_NO_CHOICE = re.compile(r"(?:Value error, )?('.*') is not one of (.*?)\.?\Z", re.DOTALL)


class Commands(TyperGroup):
    """The group of all commands; tells what is wrong with a call in the format that the caller reads."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Parse and run; exits, unless ``standalone_mode`` is off."""
        try:
            code = super().main(args, prog_name, complete_var, False, windows_expand_args, **extra)
        except _UsageError as error:
            if not standalone_mode:
                raise
            code = _refuse(error, sys.argv[1:] if args is None else args)
        if standalone_mode:
            sys.exit(code)
        return code


def _refuse(error: Any, words: Sequence[str]) -> int:
    """Say what is wrong with a call; the exit code."""
    error.message = _NO_CHOICE.sub(_choice, error.message)
    # The parser cannot say which format a call asks for that it refuses.
    if "--format=json" not in words and ("--format", "json") not in pairwise(words):
        error.show()
        return int(error.exit_code)
    command = "" if error.ctx is None else error.ctx.command_path.partition(" ")[2]
    finding = Diagnostic("NQX400", "error", error.format_message(), hint="--help tells the arguments")
    report = Report(command, failures=(finding,))
    print(FORMATS[Format.JSON](report), flush=True)  # noqa: T201 - results go to stdout
    return report.exit_code


def _choice(found: re.Match[str]) -> str:
    *most, last = found[2].replace("'", "").split(", ")
    return f"expected {', '.join(most)} or {last}, got {found[1]}" if most else f"expected {last}, got {found[1]}"
