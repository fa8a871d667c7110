"""Printing of a command's report: the results on stdout, everything else on stderr, and the exit code.

Every error of a command becomes a report, so no command ends in a traceback.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from neuralqx_struct.cli.formats import COLOURS, FORMATS, finding_lines
from neuralqx_struct.cli.report import Report, UsageError, of_error
from neuralqx_struct.cli.terminal import OUTPUT, Output
from neuralqx_struct.errors import Diagnostic, Hint, Keyword


def show(
    command: str,
    output: Output,
    body: Callable[[], Report],
    *,
    line: str = "",
    renamed: Mapping[str, str] = {},
    written: Callable[[Keyword], str] = str,
) -> int:
    """Runs a command and prints its report.

    Args:
        command: Its name.
        output: How to print it.
        body: Does the work; its errors become a report.
        line: The command line, for the report of an error that nothing expects.
        renamed: Texts to replace in the printed results.
        written: The words of hints for an argument.

    Returns:
        The exit code.
    """
    token = OUTPUT.set(output)
    try:
        began = time.perf_counter()
        report = _reported(body, line).with_each(partial(_worded, renamed, written))
        results = FORMATS[output.format](command, report)
        aside = _aside(report)
        if output.verbose:
            aside.append(f"{command}: {time.perf_counter() - began:.2f} s")
        for text, stream in ((results, sys.stdout), ("\n".join(aside), sys.stderr)):
            shown = text
            for old, new in renamed.items():
                shown = shown.replace(old, new)
            if shown:
                print(shown, file=stream, flush=True)
        return report.exit_code
    finally:
        OUTPUT.reset(token)


def _worded(
    renamed: Mapping[str, str], written: Callable[[Keyword], str], found: Diagnostic
) -> Diagnostic:
    """A finding in the words of the call: the names of files, and options in its hint."""
    hint = found.hint.written(written) if isinstance(found.hint, Hint) else found.hint
    return replace(found, file=renamed.get(found.file or "", found.file), hint=hint)


def _reported(body: Callable[[], Report], line: str) -> Report:
    """The report of a command, or of the error that ended it."""
    try:
        return body()
    except (BrokenPipeError, UsageError):
        raise
    except Exception as error:  # noqa: BLE001 - the outermost frame: unexpected errors become a report
        if OUTPUT.get().verbose:
            import traceback

            traceback.print_exception(error)
        return of_error(error, line)


def _aside(report: Report) -> list[str]:
    """Lines for stderr beside results in text: counts, and reasons why there are no results."""
    output = OUTPUT.get()
    if output.format != "text":
        return []
    findings = report.diagnostics if report.layout == "document" else ()
    lines = finding_lines((*findings, *report.failures), sys.stderr)
    counts = Counter[str](finding.severity for finding in report.diagnostics)
    if counts and not output.quiet:
        counted = [_counted(each, counts[each]) for each in COLOURS if counts[each]]
        if left := len(report.diagnostics) - len(report.shown(verbose=output.verbose)):
            counted.append(f"{left} of them with -v only")
        lines.append(", ".join(counted))
    return lines


def _counted(severity: str, number: int) -> str:
    plural = "" if number == 1 or severity == "info" else "s"
    return f"{number} {severity}{plural}"
