"""Results of commands: the report, the options of its printing, and the report of an error.

Example:
    >>> failure("NQX400", "expected a folder, got none").exit_code
    2
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
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
        layout: How ``text`` is printed: as lines; as a verdict, which ``--quiet`` leaves out; as an outline, which
            terminals show as a tree; or as a document, which may go into a file, so the findings go to stderr.
    """

    text: str = ""
    diagnostics: tuple[Diagnostic, ...] = ()
    members: Mapping[str, Any] = field(default_factory=dict)
    failures: tuple[Diagnostic, ...] = ()
    layout: Literal["lines", "verdict", "outline", "document"] = "lines"

    @property
    def exit_code(self) -> int:
        """0 clean, 1 findings of severity error, 2 could not run."""
        if self.failures:
            return 2
        return 1 if has_errors(self.diagnostics) else 0

    def with_hints(self, reworded: Callable[[str], str]) -> Report:
        """The report with other words in its hints."""

        def changed(found: Diagnostic) -> Diagnostic:
            return found if found.hint is None else replace(found, hint=reworded(found.hint))

        return self._with_each(changed)

    def in_files(self, renamed: Mapping[str, str]) -> Report:
        """The report with other names for files."""

        def changed(found: Diagnostic) -> Diagnostic:
            name = renamed.get(found.file or "")
            return found if name is None else replace(found, file=name)

        return self._with_each(changed) if renamed else self

    def _with_each(self, changed: Callable[[Diagnostic], Diagnostic]) -> Report:
        findings, failures = (
            tuple(map(changed, each)) for each in (self.diagnostics, self.failures)
        )
        return replace(self, diagnostics=findings, failures=failures)

    @property
    def everything(self) -> tuple[Diagnostic, ...]:
        """Findings and failures."""
        return (*self.diagnostics, *self.failures)


@dataclass(frozen=True, slots=True)
class Output:
    """The options of every command.

    Attributes:
        format: One of :data:`FORMATS`.
        color: ``auto``, ``always`` or ``never``.
        quiet: True to leave out verdicts, counts and progress.
        verbose: True to print tracebacks and the time that a command took.
    """

    format: str = "text"
    color: str = "auto"
    quiet: bool = False
    verbose: bool = False


def could_not_run(error: BaseException) -> bool:
    """True for errors that are not about the content of the input: it or a package is missing, or the target exists."""
    refused = isinstance(error, StructError) and error.code in ("NQX400", "NQX615")
    return refused or isinstance(error, OSError) or isinstance(error.__cause__, OSError)


def failure(
    code: str,
    message: str,
    hint: str | None = None,
    file: str | None = None,
    line: int | None = None,
) -> Report:
    """The report of a command that could not do its work."""
    column = None if line is None else 1
    return Report(failures=(Diagnostic(code, "error", message, "", file, line, column, hint),))


def of_error(command: str, error: Exception, line: str = "") -> Report:
    """The report of a command that an error ended.

    Args:
        command: Its name.
        error: The error.
        line: The whole command line, for the report of an error that nothing expects.
    """
    if isinstance(error, StructError):
        if could_not_run(error):
            return Report(failures=error.diagnostics)
        return Report(diagnostics=error.diagnostics)
    if isinstance(error, OSError):
        file = None if error.filename is None else os.fsdecode(error.filename)
        message = f"expected a file that can be used, got: {error.strerror or error}"
        return failure("NQX400", message, file=file)
    if isinstance(error, ImportError):
        return _of_import(command, error)
    from neuralqx_struct.cli.crashes import crash  # rare

    return Report(failures=(crash(line or command, error),))


def _of_import(command: str, error: ImportError) -> Report:
    """The report of an import that failed: in this package, or in a module of the user, whose error is shown as it is."""
    import traceback  # few imports fail

    places = []
    for frame, line in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_name == "find_spec":  # a finder, which only looks for the module
            break
        module = frame.f_globals.get("__name__", "")
        if not module.startswith(("importlib", "_frozen")):  # the import system itself
            places.append((module, frame.f_code.co_filename, line))
    shown = f"{type(error).__name__}: {error}"
    module, file, line = places[-1] if places else (__name__, "", 0)
    if module.partition(".")[0] != __name__.partition(".")[0]:
        message = f"{shown}\nraised in the module {module}"
        hint = "fix the module, or install the package that it imports"
        return failure("NQX400", message, hint, file, line)
    if error.name in ("jax", "jaxlib"):
        message = f"expected the package {error.name}, which {command} needs, got none"
        return failure("NQX400", message, "install it: pip install jax")
    return failure("NQX400", shown, "install it, or check --trust")
