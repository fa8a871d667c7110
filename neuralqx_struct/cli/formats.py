"""The formats of results: text for people, JSON, annotations of GitHub, and SARIF.

Example:
    >>> FORMATS["json"]("validate", Report("ckpt: valid"))
    '{"version": 1, "command": "validate", "ok": true, "diagnostics": []}'
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from typing import Final, TextIO

from neuralqx_struct.cli.report import REPORT_VERSION, Report
from neuralqx_struct.cli.terminal import OUTPUT, is_coloured, plain
from neuralqx_struct.errors import Diagnostic, printable, printable_lines

#: The colours of severities, the worst first.
COLOURS: Final = {"error": "31", "warning": "33", "info": "36"}


def finding_lines(findings: Iterable[Diagnostic], stream: TextIO) -> list[str]:
    """Findings as text for a stream, in colour if it takes them."""
    coloured = is_coloured(stream)
    lines: list[str] = []
    for finding in findings:
        text = str(finding)
        # A position has the severity behind it.
        if finding.line is None and finding.severity != "error":
            text = f"{finding.severity}: {text}"
        first, newline, rest = plain(text).partition("\n")
        if coloured:
            first = f"\x1b[{COLOURS[finding.severity]}m{first}\x1b[0m"
        lines.append(f"{first}{newline}{rest}")
    return lines


def _text(_command: str, report: Report) -> str:
    if report.layout == "document":
        return printable_lines(report.text)
    shown = report.shown(verbose=OUTPUT.get().verbose)
    lines = finding_lines(shown[: report.most], sys.stdout)
    if left := len(shown[len(lines) :]):
        lines.append(f"and {left} more; --format json lists all")
    if report.text and not (report.layout == "verdict" and OUTPUT.get().quiet):
        lines.append(plain(report.text))
    return "\n".join(lines)


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


_ANNOTATIONS: Final = {"error": "error", "warning": "warning", "info": "notice"}


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


#: Each prints a report under the name of its command.
FORMATS: Final[dict[str, Callable[[str, Report], str]]] = {
    "text": _text,
    "json": _json,
    "github": _github,
    "sarif": _sarif,
}
