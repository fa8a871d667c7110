"""Results of commands: the report, the options of its printing, the report of an error, and the files written.

Example:
    >>> hidden("s3://key:secret@host/run?signature=abc")
    's3://***@host/run?***'
    >>> failure("NQX400", "expected a folder, got none").exit_code
    2
    >>> written("lab.state", None).text
    'lab.state'
"""

from __future__ import annotations

import os
import platform
import re
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Any, Final, Literal

from neuralqx_struct.errors import Diagnostic, StructError, has_errors, printable

#: The name of a package at the start of a requirement.
_REQUIRED: Final = re.compile(r"[A-Za-z0-9._-]+")
_FRAMES = 6
_SECRETS = (
    (re.compile(r"(?<=://)[^/@\s]+(?=@)"), "***"),
    (re.compile(r"(://[^\s?]*)\?[^\s'\"]+"), r"\1?***"),
    (re.compile(r"(?i)\b(password|secret|token|key)=[^\s,'\")]+"), r"\1=***"),
)


def crash(line: str, error: BaseException) -> Diagnostic:
    """The finding for an error that no part of the program expects.

    Args:
        line: The command line.
        error: The error.
    """
    facts = [
        f"expected no failure inside the program, got {type(error).__name__}: {error}",
        f"command: {line}",
        f"versions: {_versions()}",
        f"packages: {_packages()}",
        "raised at:",
        *(f"  {frame}" for frame in _frames(error)),
    ]
    hint = "please report these lines with the input that led to them; --verbose prints the whole traceback"
    return Diagnostic("NQX000", "error", hidden("\n".join(facts)), hint=hint)


def hidden(text: str) -> str:
    """A text without the passwords and keys in its URLs and words, and without the path of the home folder."""
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    home = str(Path("~").expanduser())
    return text.replace(home, "~") if len(home) > 1 else text


def _versions() -> str:
    from neuralqx_struct import __version__

    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"neuralqx-struct {__version__}, {python}, {system}"


def _packages() -> str:
    """The packages that this one names as its requirements, as far as they are installed."""
    try:
        wanted = metadata.requires("neuralqx-struct") or []
    except metadata.PackageNotFoundError:  # run from its source
        wanted = []
    found = dict.fromkeys(name[0] for each in wanted if (name := _REQUIRED.match(each)))
    versions = ((name, _version(name)) for name in sorted(found))
    return ", ".join(f"{name} {version}" for name, version in versions if version)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _frames(error: BaseException) -> list[str]:
    """The innermost frames: the file below the folder that Python imports it from, the line and the function."""
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
    return [f"{_relative(frame.filename)}:{frame.lineno} in {frame.name}" for frame in frames]


def _relative(file: str) -> str:
    folders = sorted((folder for folder in sys.path if folder), key=len, reverse=True)
    for folder in folders:
        if file.startswith(f"{folder}/"):
            return file[len(folder) + 1 :]
    return file


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
        most: The number of findings that are printed as text; the others are counted.
    """

    text: str = ""
    diagnostics: tuple[Diagnostic, ...] = ()
    members: Mapping[str, Any] = field(default_factory=dict)
    failures: tuple[Diagnostic, ...] = ()
    layout: Literal["lines", "verdict", "outline", "document"] = "lines"
    most: int | None = None

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
        got = error.strerror or str(error)
        if error.args and isinstance(
            error.args[0], list
        ):  # shutil.Error: of every file of a folder
            _, file, got = error.args[0][0]
        message = f"expected a file that can be used, got: {got}"
        return failure("NQX400", message, file=file)
    if isinstance(error, ImportError):
        return _of_import(command, error)

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


def require_free(out: Path | None, *, overwrite: bool) -> None:
    """Raises an error if ``--out`` names what exists and may not be replaced."""
    # Behind a URL the writer looks itself; a device or a pipe takes every text.
    if overwrite or not isinstance(out, Path) or not os.path.lexists(out):
        return
    if out.is_file() or out.is_dir() or out.is_symlink():
        from neuralqx_struct.bundle import BundleExistsError

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
