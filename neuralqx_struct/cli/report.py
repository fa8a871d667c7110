"""The report of a command: its result, its findings, or the error that ended it; and the files that it writes.

Example:
    >>> failure("NQX400", "expected a folder, got none").exit_code
    2
    >>> written("lab.state", None).text
    'lab.state'
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

from neuralqx_struct.errors import Diagnostic, StructError, has_errors, printable

#: The version of the JSON results; ``schemas/report/1.json`` is their schema.
REPORT_VERSION: Final = 1


class UsageError(ValueError):
    """Arguments that are wrong, or do not fit together."""


class Report(NamedTuple):
    """The results of a command.

    Attributes:
        text: The result in words.
        diagnostics: The findings.
        members: The result as JSON members, besides those of every report.
        failures: Reasons why the command could not do its work, or a part of it.
        layout: How ``text`` is printed: as lines; as a verdict, which ``--quiet`` leaves out; or as a document, which
            may go into a file, so the findings go to stderr.
        most: The number of findings that are printed as text; the others are counted.
        known: Codes of findings for information that text has with ``--verbose`` only, as the author knows them.
    """

    text: str = ""
    diagnostics: tuple[Diagnostic, ...] = ()
    members: Mapping[str, Any] = MappingProxyType({})
    failures: tuple[Diagnostic, ...] = ()
    layout: Literal["lines", "verdict", "document"] = "lines"
    most: int | None = None
    known: frozenset[str] = frozenset()

    @property
    def exit_code(self) -> int:
        """0 clean, 1 findings of severity error, 2 could not run."""
        if self.failures:
            return 2
        return 1 if has_errors(self.diagnostics) else 0

    def shown(self, *, verbose: bool) -> tuple[Diagnostic, ...]:
        """The findings that are printed as text."""
        known = frozenset[str]() if verbose else self.known
        return tuple(d for d in self.diagnostics if d.code not in known or d.severity != "info")

    @property
    def everything(self) -> tuple[Diagnostic, ...]:
        """Findings and failures."""
        return (*self.diagnostics, *self.failures)

    def with_each(self, changed: Callable[[Diagnostic], Diagnostic]) -> Report:
        """The report with each of its findings changed by a function."""
        findings, failures = (
            tuple(map(changed, each)) for each in (self.diagnostics, self.failures)
        )
        return self._replace(diagnostics=findings, failures=failures)


def each(paths: Iterable[Path], check: Callable[[Path], list[Diagnostic]], good: str) -> Report:
    """The report about every path, also after one that cannot be read."""
    found: list[Diagnostic] = []
    failures: list[Diagnostic] = []
    verdicts: list[str] = []
    for path in paths:
        try:
            own = check(path)
        except (StructError, OSError) as error:
            report = of_error(error)
            found += report.diagnostics
            failures += report.failures
            continue
        found += own
        if not has_errors(own):
            verdicts.append(f"{printable(path)}: {good}")
    members = {"paths": [*paths]}
    return Report("\n".join(verdicts), tuple(found), members, tuple(failures), "verdict")


# --- errors -------------------------------------------------------------------------------------------------------


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


def could_not_run(error: BaseException) -> bool:
    """True for errors that are not about the content of the input: it or a package is missing, or the target exists."""
    refused = isinstance(error, StructError) and error.code in ("NQX400", "NQX615")
    return refused or isinstance(error, OSError) or isinstance(error.__cause__, OSError)


def of_error(error: Exception, line: str = "") -> Report:
    """The report of a command that an error ended.

    Args:
        error: The error.
        line: The command line, for the report of an error that nothing expects.
    """
    if isinstance(error, StructError):
        if could_not_run(error):
            return Report(failures=error.diagnostics)
        return Report(diagnostics=error.diagnostics)
    if isinstance(error, OSError):
        return _of_system(error)
    if isinstance(error, ImportError):
        return _of_import(error)
    from neuralqx_struct.cli.crash import crash  # no call needs it

    return Report(failures=(crash(line, error),))


def _of_system(error: OSError) -> Report:
    file = None if error.filename is None else os.fsdecode(error.filename)
    got = error.strerror or str(error)
    if error.args and isinstance(error.args[0], list):  # shutil.Error: of every file of a folder
        _, file, got = error.args[0][0]
    return failure("NQX400", f"expected a file that can be used, got: {got}", file=file)


def _of_import(error: ImportError) -> Report:
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
        message = f"expected the package {error.name}, which this command needs, got none"
        return failure("NQX400", message, "install it: pip install jax")
    return failure("NQX400", shown, "install it, or check --trust")


# --- files that commands write ------------------------------------------------------------------------------------


def require_free(out: Path | None, *, overwrite: bool) -> None:
    """Raises an error if ``--out`` names what exists and may not be replaced."""
    # Behind a URL the writer looks itself; a device or a pipe takes every text.
    if overwrite or not isinstance(out, Path) or not os.path.lexists(out):
        return
    if out.is_file() or out.is_dir() or out.is_symlink():
        from neuralqx_struct.bundle import BundleExistsError
        from neuralqx_struct.places.atomic import is_free

        if is_free(out):
            return
        message = "expected a new path, got one that exists"
        hint = "pass --overwrite, or choose another --out"
        raise BundleExistsError(message, file=str(out), hint=hint)


def written(
    text: str, out: Path | None, *, found: Sequence[Diagnostic] = (), **members: Any
) -> Report:
    """Writes a text into a file, or prints it; returns the report."""
    members = {"text": text, "out": out, **members}
    if out is None:
        return Report(text.rstrip("\n"), tuple(found), members, layout="document")
    out.parent.mkdir(parents=True, exist_ok=True)
    if out.exists() and not out.is_file():  # a device or a pipe
        out.write_text(text, encoding="utf-8")
    else:
        from neuralqx_struct.schema.text.loader import replace_text

        replace_text(out, text)
    return Report(f"written to {printable(out)}", tuple(found), members, layout="verdict")
