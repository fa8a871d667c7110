"""Reports: what a command found, printed as text, JSON or GitHub annotations, and the exit code.

Owns :class:`Report`, the three formats (a table), and :func:`run`, which every command's body passes: whatever is raised
becomes a report, so that no command ends in a traceback. Results go to stdout, everything else to stderr.

Example:
    >>> report = Report("validate", text="ckpt: valid")
    >>> FORMATS["json"](report)
    '{"version": 1, "command": "validate", "ok": true, "diagnostics": []}'
"""

from __future__ import annotations

import enum
import json
import math
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from neuralqx_struct.errors import Diagnostic, StructError, has_errors

__all__ = ["FORMATS", "Format", "Report", "could_not_run", "could_not_write", "each", "run"]

REPORT_VERSION = 1


class Format(enum.StrEnum):
    """How a report is printed."""

    TEXT = "text"
    JSON = "json"
    GITHUB = "github"


@dataclass(frozen=True, slots=True)
class Report:
    """What a command has to say.

    Attributes:
        command: Its name, such as ``schema lint``.
        diagnostics: What it found.
        text: Its result in words.
        members: Its result as JSON members, beside those that every report has.
        failures: Why it could not do its work, or a part of it.
        layout: What ``text`` is: lines; an outline, indented by what belongs to what, which terminals show as a tree; or
            a document, which may go into a file: what was found on the way is then told on stderr.
    """

    command: str
    diagnostics: tuple[Diagnostic, ...] = ()
    text: str = ""
    members: Mapping[str, Any] = field(default_factory=dict)
    failures: tuple[Diagnostic, ...] = ()
    layout: Literal["lines", "outline", "document"] = "lines"

    @property
    def exit_code(self) -> int:
        """0 clean, 1 findings of severity error, 2 could not run."""
        return 2 if self.failures else 1 if has_errors(self.diagnostics) else 0

    @property
    def everything(self) -> tuple[Diagnostic, ...]:
        """Findings and failures."""
        return (*self.diagnostics, *self.failures)


# ---------------------------------------------------------------------------------------------------------------------
# The formats.

_COLOURS = {"error": "31", "warning": "33", "info": "36"}
#: Control characters, and those that change the direction of text: a name in a file must not steer a terminal.
_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def _printable(text: str) -> str:
    return _STEERING.sub(lambda found: found.group().encode("unicode_escape").decode(), text)


def _coloured() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _line(finding: Diagnostic, *, colour: bool) -> str:
    # With a position the severity stands in the text already.
    prefix = f"{finding.severity}: " if finding.line is None and finding.severity != "error" else ""
    text = _printable(f"{prefix}{finding}")
    if not colour:
        return text
    first, newline, rest = text.partition("\n")
    return f"\x1b[{_COLOURS[finding.severity]}m{first}\x1b[0m{newline}{rest}"


def _lines(findings: Iterable[Diagnostic]) -> list[str]:
    colour = _coloured()
    return [_line(finding, colour=colour) for finding in findings]


def _text(report: Report) -> str:
    text = _printable(report.text)
    shown = _tree(text) if report.layout == "outline" and _coloured() else text
    found = () if report.layout == "document" else report.diagnostics
    return "\n".join([*_lines(found), *([shown] if shown else [])])


def _tree(text: str) -> str:
    """Indented lines as a tree whose root is the first."""
    from rich.console import Console
    from rich.text import Text
    from rich.tree import Tree

    first, *rest = text.splitlines()
    root = Tree(Text(first, style="bold"), guide_style="dim")
    branches = [root]
    for line in rest:
        word, space, more = line.strip().partition(" ")
        depth = (len(line) - len(line.lstrip())) // 2
        label = Text.assemble((word, "cyan"), space, more)
        del branches[depth + 1 :]
        branches.append(branches[-1].add(label))
    console = Console(force_terminal=True, highlight=False)
    with console.capture() as captured:
        console.print(root)
    return captured.get().rstrip("\n")


def _json(report: Report) -> str:
    data = {
        "version": REPORT_VERSION,
        "command": report.command,
        "ok": report.exit_code == 0,
        "diagnostics": [finding.to_json() for finding in report.everything],
        **report.members,
    }
    return json.dumps(_strict(data), allow_nan=False)


def _strict(value: Any) -> Any:
    """The value with NaN and infinities as text: bundles of neuraLQX may hold them in their metadata."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _strict(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_strict(item) for item in value]
    return value


_ANNOTATIONS = {"error": "error", "warning": "warning", "info": "notice"}


def _github(report: Report) -> str:
    lines = [_annotation(finding) for finding in report.everything]
    return "\n".join([*lines, *([_data(_printable(report.text), keep="\n")] if report.text else [])])


def _annotation(finding: Diagnostic) -> str:
    places = {"file": finding.file, "line": finding.line, "col": finding.column, "title": finding.code}
    properties = ",".join(f"{name}={_property(str(value))}" for name, value in places.items() if value is not None)
    where = f"{finding.path}: " if finding.path else ""
    message = f"{where}{finding.message}" + (f"\n{finding.hint}" if finding.hint else "")
    return f"::{_ANNOTATIONS[finding.severity]} {properties}::{_data(message)}"


def _data(text: str, keep: str = "") -> str:
    escaped = text.replace("%", "%25").replace("\r", "%0D")
    if keep:  # lines of plain output: none may be taken for a command of the runner
        return re.sub(r"(?m)^(\s*)::", r"\1: :", escaped)
    return escaped.replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


FORMATS: Mapping[str, Callable[[Report], str]] = {
    Format.TEXT: _text,
    Format.JSON: _json,
    Format.GITHUB: _github,
}


# ---------------------------------------------------------------------------------------------------------------------
# Running a command.


def could_not_run(error: BaseException) -> bool:
    """True for errors that say nothing about the input: it is not there, cannot be read, or the target is taken."""
    refused = isinstance(error, StructError) and error.code == "NQX400"
    return refused or isinstance(error, OSError) or isinstance(error.__cause__, OSError)


def could_not_write(finding: Diagnostic) -> bool:
    """True for a finding that says nothing about the input: the system refused the target."""
    return finding.code == "NQX406"


def _of_error(command: str, error: Exception) -> Report:
    if isinstance(error, StructError):
        return (
            Report(command, failures=error.diagnostics) if could_not_run(error) else Report(command, error.diagnostics)
        )
    if isinstance(error, OSError):
        file = None if error.filename is None else os.fsdecode(error.filename)
        message = f"expected a file that can be used, got: {error.strerror or error}"
        return Report(command, failures=(Diagnostic("NQX400", "error", message, file=file),))
    message = f"expected no failure inside the program, got {type(error).__name__}: {error}"
    hint = "please report this with the input that led to it; NQX_DEBUG=1 shows where it happened"
    return Report(command, failures=(Diagnostic("NQX000", "error", message, hint=hint),))


def each(command: str, paths: Sequence[Path], check: Callable[[Path], list[Diagnostic]], good: str) -> Report:
    """Check every path, whatever is wrong with the others."""
    found: list[Diagnostic] = []
    failures: list[Diagnostic] = []
    verdicts: list[str] = []
    for path in paths:
        try:
            own = check(path)
        except (StructError, OSError) as error:
            report = _of_error(command, error)
            found += report.diagnostics
            failures += report.failures
            continue
        found += own
        verdicts += [] if has_errors(own) else [f"{path}: {good}"]
    members = {"paths": [str(path) for path in paths]}
    return Report(command, tuple(found), "\n".join(verdicts), members, tuple(failures))


def run(command: str, style: Format, body: Callable[[], Report]) -> int:
    """Run a command's body and print its report.

    Args:
        command: Its name.
        style: How to print.
        body: Does the work; what it raises is reported.

    Returns:
        The exit code.
    """
    try:
        report = body()
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        raise
    except Exception as error:  # noqa: BLE001 - the outermost frame: what nobody expected is reported, in one line
        if os.environ.get("NQX_DEBUG") and not isinstance(error, (StructError, OSError)):
            import traceback

            traceback.print_exception(error)
        report = _of_error(command, error)
    _emit(report, style)
    return report.exit_code


def _emit(report: Report, style: Format) -> None:
    if text := FORMATS[style](report):
        print(text, flush=True)  # noqa: T201 - results go to stdout
    if style is Format.TEXT:
        # Findings are results; why there are none is not, nor is how many there are.
        aside = report.diagnostics if report.layout == "document" else ()
        for line in (*_lines(aside), *_lines(report.failures), *_summary(report.diagnostics)):
            print(line, file=sys.stderr)  # noqa: T201


def _summary(diagnostics: Iterable[Diagnostic]) -> Iterator[str]:
    counts = Counter[str](finding.severity for finding in diagnostics)
    words = [f"{counts[s]} {s}{'' if counts[s] == 1 or s == 'info' else 's'}" for s in _COLOURS if counts[s]]
    yield from [", ".join(words)] if words else []
