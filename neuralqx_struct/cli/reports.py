"""Printing of reports as text, JSON, GitHub annotations or SARIF, and the exit code; ``results.py`` has the record.

:func:`run` turns every error of a command into a report, so no command ends in a traceback. Results go to stdout,
everything else to stderr.

Example:
    >>> FORMATS["json"]("validate", Report("ckpt: valid"))
    '{"version": 1, "command": "validate", "ok": true, "diagnostics": []}'
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final

from neuralqx_struct.cli.results import (
    REPORT_VERSION,
    ArgumentError,
    Output,
    Report,
    of_error,
)
from neuralqx_struct.errors import Diagnostic, StructError, has_errors, printable, printable_lines

_DEFAULT: Final = Output()
_OUTPUT: Final = ContextVar("output", default=_DEFAULT)

# ---------------------------------------------------------------------------------------------------------------------
# The formats.

_COLOURS = {"error": "31", "warning": "33", "info": "36"}


def plain(text: str) -> str:
    """Lines none of which is a command of GitHub's runner, which reads the output in every format."""
    return re.sub(r"(?m)^[^\S\n]*:(?=:)|##(?=\[)", r"\g<0> ", printable_lines(text))


def _coloured(stream: Any) -> bool:
    color = _OUTPUT.get().color
    if color != "auto":
        return color == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return os.environ.get("TERM") != "dumb" and bool(stream.isatty())


def _lines(findings: Iterable[Diagnostic], stream: Any) -> list[str]:
    coloured = _coloured(stream)
    lines: list[str] = []
    for finding in findings:
        text = str(finding)
        # A position has the severity behind it.
        if finding.line is None and finding.severity != "error":
            text = f"{finding.severity}: {text}"
        first, newline, rest = plain(text).partition("\n")
        if coloured:
            first = f"\x1b[{_COLOURS[finding.severity]}m{first}\x1b[0m"
        lines.append(f"{first}{newline}{rest}")
    return lines


_LONGEST_TREE = 5000  # lines; rich is slow


def _text(_command: str, report: Report) -> str:
    if report.layout == "document":
        return printable_lines(report.text)
    text = plain(report.text)
    is_short = text.count("\n") < _LONGEST_TREE
    if report.layout == "outline" and is_short and _coloured(sys.stdout):
        text = _tree(text)
    if report.layout == "verdict" and _OUTPUT.get().quiet:
        text = ""
    lines = _lines(report.diagnostics[: report.most], sys.stdout)
    if left := len(report.diagnostics[len(lines) :]):
        lines.append(f"and {left} more; --format json lists all")
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
    text = json.dumps(data, default=str)
    if "NaN" in text or "Infinity" in text:  # metadata of neuraLQX bundles can have them
        text = json.dumps(json.loads(text, parse_constant=str))
    return text


_ANNOTATIONS = {"error": "error", "warning": "warning", "info": "notice"}


def _github(_command: str, report: Report) -> str:
    lines = [_annotation(finding) for finding in report.everything]
    if report.text:
        lines.append(_escaped(plain(report.text)))
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
    text = _line_escaped(plain(message))
    return f"::{_ANNOTATIONS[finding.severity]} {','.join(known)}::{text}"


def _escaped(text: str) -> str:
    return text.replace("%", "%25")


def _line_escaped(text: str) -> str:
    return _escaped(text).replace("\n", "%0A")


def _property(value: object) -> str:
    return _line_escaped(plain(printable(value))).replace(":", "%3A").replace(",", "%2C")


def _sarif(command: str, report: Report) -> str:
    from neuralqx_struct.cli.sarif import sarif  # few calls ask for it

    return sarif(command, report)


#: The formats of results: each prints a report under the name of its command.
FORMATS: dict[str, Callable[[str, Report], str]] = {
    "text": _text,
    "json": _json,
    "github": _github,
    "sarif": _sarif,
}

# --- running a command --------------------------------------------------------------------------------------------


def each(paths: Sequence[Path], check: Callable[[Path], list[Diagnostic]], good: str) -> Report:
    """Checks every path, also after one that cannot be read."""
    found: list[Diagnostic] = []
    failures: list[Diagnostic] = []
    verdicts: list[str] = []
    for path in paths:
        try:
            own = check(path)
        except (StructError, OSError) as error:
            report = of_error("", error)
            found += report.diagnostics
            failures += report.failures
            continue
        found += own
        if not has_errors(own):
            verdicts.append(f"{printable(path)}: {good}")
    members = {"paths": [*paths]}
    return Report("\n".join(verdicts), tuple(found), members, tuple(failures), "verdict")


def run(
    command: str,
    output: Output,
    body: Callable[[], Report],
    reworded: Callable[[str], str] = str,
    renamed: Mapping[str, str] = {},
    *,
    line: str = "",
) -> int:
    """Runs a command and prints its report.

    Args:
        command: Its name.
        output: How to print it.
        body: Does the work; its errors become a report.
        reworded: Gives the hint to print for one of a Python function.
        renamed: Texts to replace in the printed results.
        line: The command line, for the report of a failure inside the program.

    Returns:
        The exit code.
    """
    token = _OUTPUT.set(output)
    try:
        return _printed(
            command, output, lambda: _report(command, body, line).with_hints(reworded), renamed
        )
    except KeyboardInterrupt:
        return 130
    finally:
        _OUTPUT.reset(token)


def _printed(
    command: str, output: Output, body: Callable[[], Report], renamed: Mapping[str, str]
) -> int:
    began = time.perf_counter()
    report = body().in_files(renamed)
    results = [FORMATS[output.format](command, report)]
    aside: list[str] = []
    if output.format == "text":  # counts, and reasons why there are no results, go to stderr
        if report.layout == "document":
            aside += _lines(report.diagnostics, sys.stderr)
        aside += _lines(report.failures, sys.stderr)
        if not output.quiet:
            aside.append(_summary(report.diagnostics))
    if output.verbose:
        aside.append(f"{command}: {time.perf_counter() - began:.2f} s")
    for lines, stream in ((results, sys.stdout), (aside, sys.stderr)):
        text = "\n".join(filter(None, lines))
        for old, new in renamed.items():
            text = text.replace(old, new)
        if text:
            print(text, file=stream, flush=True)
    return report.exit_code


def _report(command: str, body: Callable[[], Report], line: str) -> Report:
    """The report of a command, or of the error that ended it."""
    try:
        return body()
    except (BrokenPipeError, ArgumentError):
        raise
    except Exception as error:  # noqa: BLE001 - the outermost frame: unexpected errors become a report
        if _OUTPUT.get().verbose:
            import traceback

            traceback.print_exception(error)
        return of_error(command, error, line)


def _summary(diagnostics: Iterable[Diagnostic]) -> str:
    counts = Counter[str](finding.severity for finding in diagnostics)
    words = []
    for severity in filter(counts.get, _COLOURS):
        plural = "" if counts[severity] == 1 or severity == "info" else "s"
        words.append(f"{counts[severity]} {severity}{plural}")
    return ", ".join(words)


def narrate(line: str) -> None:
    """Prints a line while a command runs: on stdout, or on stderr where results are for programs."""
    output = _OUTPUT.get()
    if not output.quiet:
        stream = sys.stdout if output.format == "text" else sys.stderr
        print(plain(line), file=stream, flush=True)


def remark(line: str) -> None:
    """Prints a line on stderr, also where ``--quiet`` leaves out verdicts: one about trust."""
    sys.stderr.write(f"{printable(line)}\n")


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[int, int], None] | None]:
    """Shows a bar on stderr while a block runs; gives the function ``(done, total)``, or None outside a terminal."""
    if _OUTPUT.get().quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(escape(printable(title)), total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
