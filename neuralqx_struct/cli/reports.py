"""Reports: the results of a command, printed as text, JSON or GitHub annotations, and the exit code.

:func:`run` turns every error of a command into a report, so no command ends in a traceback. Results go to stdout,
everything else to stderr.

Example:
    >>> FORMATS["json"]("validate", Report("ckpt: valid"))
    '{"version": 1, "command": "validate", "ok": true, "diagnostics": []}'
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from neuralqx_struct.errors import Diagnostic, StructError, has_errors

REPORT_VERSION = 1


class ArgumentError(ValueError):
    """Arguments that do not fit together; ``flag`` is the option to change."""

    def __init__(self, message: str, flag: str) -> None:
        super().__init__(message)
        self.flag = flag


@dataclass(frozen=True, slots=True)
class Report:
    """The results of a command.

    Attributes:
        text: The result in words.
        diagnostics: The findings.
        members: The result as JSON members, besides those of every report.
        failures: Reasons why the command could not do its work, or a part of it.
        layout: How ``text`` is printed: as lines; as an outline, which terminals show as a tree; or as a document, which
            may go into a file, so the findings go to stderr.
    """

    text: str = ""
    diagnostics: tuple[Diagnostic, ...] = ()
    members: Mapping[str, Any] = field(default_factory=dict)
    failures: tuple[Diagnostic, ...] = ()
    layout: Literal["lines", "outline", "document"] = "lines"

    @property
    def exit_code(self) -> int:
        """0 clean, 1 findings of severity error, 2 could not run."""
        if self.failures:
            return 2
        return 1 if has_errors(self.diagnostics) else 0

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
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return sys.stdout.isatty()


def _lines(findings: Iterable[Diagnostic]) -> list[str]:
    coloured = _coloured()
    lines: list[str] = []
    for finding in findings:
        text = str(finding)
        if (
            finding.line is None and finding.severity != "error"
        ):  # a position has the severity behind it
            text = f"{finding.severity}: {text}"
        first, newline, rest = _printable(text).partition("\n")
        if coloured:
            first = f"\x1b[{_COLOURS[finding.severity]}m{first}\x1b[0m"
        lines.append(f"{first}{newline}{rest}")
    return lines


def _text(_command: str, report: Report) -> str:
    text = _printable(report.text)
    if report.layout == "outline" and _coloured():
        text = _tree(text)
    lines = [] if report.layout == "document" else _lines(report.diagnostics)
    return "\n".join([*lines, text] if text else lines)


def _tree(text: str) -> str:
    """Returns indented lines as a tree whose root is the first."""
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


def _json(command: str, report: Report) -> str:
    data = {
        "version": REPORT_VERSION,
        "command": command,
        "ok": report.exit_code == 0,
        "diagnostics": [finding.to_json() for finding in report.everything],
        **report.members,
    }
    return json.dumps(_strict(data), allow_nan=False)


def _strict(value: Any) -> Any:
    """The value with NaN and infinities as text: metadata of neuraLQX bundles can have them."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _strict(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_strict(item) for item in value]
    return value


_ANNOTATIONS = {"error": "error", "warning": "warning", "info": "notice"}


def _github(_command: str, report: Report) -> str:
    lines = [_annotation(finding) for finding in report.everything]
    if report.text:  # no line of plain output may look like a command of the runner
        lines.append(re.sub(r"(?m)^(\s*)::", r"\1: :", _escaped(_printable(report.text))))
    return "\n".join(lines)


def _annotation(finding: Diagnostic) -> str:
    places = {
        "file": finding.file,
        "line": finding.line,
        "col": finding.column,
        "title": finding.code,
    }
    known = [f"{name}={_property(value)}" for name, value in places.items() if value is not None]
    message = f"{finding.path}: {finding.message}" if finding.path else finding.message
    if finding.hint:
        message += f"\n{finding.hint}"
    return f"::{_ANNOTATIONS[finding.severity]} {','.join(known)}::{_line_escaped(message)}"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D")


def _line_escaped(text: str) -> str:
    return _escaped(text).replace("\n", "%0A")


def _property(value: object) -> str:
    return _line_escaped(str(value)).replace(":", "%3A").replace(",", "%2C")


#: The formats of results: each prints a report under the name of its command.
FORMATS: dict[str, Callable[[str, Report], str]] = {
    "text": _text,
    "json": _json,
    "github": _github,
}

# --- running a command --------------------------------------------------------------------------------------------


def could_not_run(error: BaseException) -> bool:
    """True for errors that are not about the content of the input: it is missing, unreadable, or the target exists."""
    refused = isinstance(error, StructError) and error.code == "NQX400"
    return refused or isinstance(error, OSError) or isinstance(error.__cause__, OSError)


def could_not_write(finding: Diagnostic) -> bool:
    """True for a finding that is not about the input: the system refused the target."""
    return finding.code == "NQX406"


def failure(code: str, message: str, hint: str | None = None, file: str | None = None) -> Report:
    """The report of a command that could not do its work."""
    return Report(failures=(Diagnostic(code, "error", message, file=file, hint=hint),))


def _of_error(command: str, error: Exception) -> Report:
    if isinstance(error, StructError):
        if could_not_run(error):
            return Report(failures=error.diagnostics)
        return Report(diagnostics=error.diagnostics)
    if isinstance(error, OSError):
        file = None if error.filename is None else os.fsdecode(error.filename)
        message = f"expected a file that can be used, got: {error.strerror or error}"
        return failure("NQX400", message, file=file)
    if isinstance(error, ModuleNotFoundError) and error.name in ("jax", "jaxlib"):
        message = f"expected the package {error.name}, which {command} needs, got none"
        return failure("NQX400", message, "install it: pip install jax")
    message = f"expected no failure inside the program, got {type(error).__name__}: {error}"
    hint = "please report this with the input that led to it; NQX_DEBUG=1 shows where it happened"
    return failure("NQX000", message, hint)


def each(paths: Sequence[Path], check: Callable[[Path], list[Diagnostic]], good: str) -> Report:
    """Checks every path, also after one that cannot be read."""
    found: list[Diagnostic] = []
    failures: list[Diagnostic] = []
    verdicts: list[str] = []
    for path in paths:
        try:
            own = check(path)
        except (StructError, OSError) as error:
            report = _of_error("", error)
            found += report.diagnostics
            failures += report.failures
            continue
        found += own
        if not has_errors(own):
            verdicts.append(f"{path}: {good}")
    members = {"paths": [str(path) for path in paths]}
    return Report("\n".join(verdicts), tuple(found), members, tuple(failures))


def run(command: str, style: str, body: Callable[[], Report]) -> int:
    """Runs a command and prints its report.

    Args:
        command: Its name.
        style: The format.
        body: Does the work; its errors become a report.

    Returns:
        The exit code.
    """
    try:
        report = body()
    except KeyboardInterrupt:
        return 130
    except (BrokenPipeError, ArgumentError):
        raise
    except Exception as error:  # noqa: BLE001 - the outermost frame: unexpected errors are reported in one line
        if os.environ.get("NQX_DEBUG") and not isinstance(error, (StructError, OSError)):
            import traceback

            traceback.print_exception(error)
        report = _of_error(command, error)
    if text := FORMATS[style](command, report):
        print(text, flush=True)  # noqa: T201 - results go to stdout
    if style == "text":  # counts, and reasons why there are no results, go to stderr
        aside = report.diagnostics if report.layout == "document" else ()
        for line in (*_lines(aside), *_lines(report.failures), *_summary(report.diagnostics)):
            print(line, file=sys.stderr)  # noqa: T201
    return report.exit_code


def _summary(diagnostics: Iterable[Diagnostic]) -> list[str]:
    counts = Counter[str](finding.severity for finding in diagnostics)
    words = []
    for severity in _COLOURS:
        count = counts[severity]
        if count:
            plural = "" if count == 1 or severity == "info" else "s"
            words.append(f"{count} {severity}{plural}")
    return [", ".join(words)] if words else []


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[int, int], None] | None]:
    """Shows a bar on stderr while a block runs; gives the function ``(done, total)``, or None outside a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
