"""Errors and diagnostics: the problem, its place, its reason and the fix.

Owns the record of one finding (:class:`Diagnostic`) and the exception tree that carries findings. The codes and
their meaning are documented in ``docs/diagnostics/``. Nothing here formats for a terminal: reporters in
``cli/`` choose between text, JSON and GitHub annotations; ``str()`` of a record is the text form.

Example:
    >>> d = Diagnostic("NQX411", "error", "expected float32[4], got float64[4]", path="$.w", file="ckpt")
    >>> print(d)
    ckpt: $.w: expected float32[4], got float64[4] [NQX411]
      export it again with arrays of the declared dtype, or declare the dtype that it has
"""

from __future__ import annotations

import difflib
import functools
import itertools
import os
import re
import shlex
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, ParamSpec, Self, TypeVar

__all__ = [
    "LIMITS",
    "OVERWRITE",
    "READ_MORE",
    "REMEDIES",
    "Diagnostic",
    "FrozenStructError",
    "Hint",
    "IntegrityError",
    "Keyword",
    "MigrationError",
    "SchemaError",
    "SerializationError",
    "Severity",
    "StructError",
    "UntrustedError",
    "ValidationError",
    "closest",
    "closest_version",
    "did_you_mean",
    "has_errors",
    "path_meant",
    "printable",
    "printable_lines",
    "shell_word",
    "warn_deprecated",
    "within_stack",
]

Severity = Literal["error", "warning", "info"]
P = ParamSpec("P")
T = TypeVar("T")

#: Characters of a message or a hint: one that lists all names of a file may occur once for each name.
_LONGEST = 20_000


#: The fix of findings that always have the same, used where a finding has no better hint.
REMEDIES: Mapping[str, str] = MappingProxyType(
    {
        "NQX401": "check the path; a bundle is a folder or .zip with manifest.json and its arrays",
        "NQX402": "upgrade neuralqx-struct to a release that reads it",
        "NQX407": "restore the bundle from a copy; `neuralqx-struct verify` lists everything that is damaged",
        "NQX408": "restore the file from a copy: a download or a write was cut off",
        "NQX409": "restore the file from a copy, or export the checkpoint again",
        "NQX411": "export it again with arrays of the declared dtype, or declare the dtype that it has",
        "NQX412": "export it again with arrays of the declared shape, or declare the shape that it has",
        "NQX610": "add the member, or export the checkpoint again; schemas/manifest/1.json describes each member",
        "NQX611": "remove the member; free values of your own belong under `metadata`",
        "NQX612": "write the value in the type that schemas/manifest/1.json declares",
        "NQX614": "write a value that schemas/manifest/1.json allows",
    }
)


#: Characters that steer a terminal, begin a line, change the direction of text, are invisible, or are no characters.
_STEERING = re.compile(
    "[\x00-\x08\x0a-\x1f\x7f-\x9f\u00ad\u061c\u115f\u1160\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164"
    "\ud800-\udfff\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff]"
)


def printable(text: object) -> str:
    r"""Text of a file as one line that steers no terminal: its control and invisible characters are escaped.

    Example:
        >>> print(printable("a\n::error::b"))
        a\n::error::b
    """
    return _STEERING.sub(lambda found: found.group().encode("unicode_escape").decode(), str(text))


def printable_lines(text: str) -> str:
    """Text of several lines, each of them :func:`printable`."""
    return "\n".join(map(printable, text.split("\n")))


def shell_word(path: object) -> str:
    r"""A path as one word of a command that a message proposes, quoted for a POSIX shell.

    Example:
        >>> print(shell_word("my run"), shell_word("a\nb"))
        'my run' $'a\nb'
    """
    text = str(path)
    if _STEERING.search(text):
        escaped = text.replace("\\", "\\\\").replace("'", "\\'")
        return f"$'{printable(escaped)}'"
    return shlex.quote(text)


class Keyword(NamedTuple):
    """An argument that a hint proposes to pass; its text is that of a call in Python.

    Attributes:
        name: The name of the argument.
        value: The value to pass, or None if the user chooses it.
    """

    name: str
    value: Any = None

    def __str__(self) -> str:
        if self.value is None:
            return f"{self.name}="
        return f"{self.name}={self.value!r}".replace(
            "Ellipsis", "..."
        )  # for a part that the user chooses


class Hint(str):
    """A fix that passes arguments; it is the text for callers in Python, and has the parts for other texts.

    Example:
        >>> Hint("pass ", Keyword("limits"), " to read more")
        'pass limits= to read more'
    """

    __slots__ = ("parts",)

    parts: tuple[str | Keyword, ...]

    def __new__(cls, *parts: str | Keyword) -> Self:
        """Makes the text of Python from the parts; those of another hint become its own."""
        made = super().__new__(cls, "".join(map(str, parts)))
        each = (part.parts if isinstance(part, Hint) else (part,) for part in parts)
        made.parts = tuple(itertools.chain.from_iterable(each))
        return made

    def written(self, argument: Callable[[Keyword], str]) -> str:
        """The hint with its arguments in the words of a function, such as options of a command."""
        return "".join(part if isinstance(part, str) else argument(part) for part in self.parts)


#: The argument of readers and writers that raises their limits on sizes.
LIMITS = Keyword("limits")
READ_MORE = Hint("pass ", LIMITS, " to read more")
WHOLE_PATH = "write the whole path, as os.path.expanduser(path) gives it: ~ is the home folder to shells alone, outside of quotes"
OVERWRITE = Hint("pass ", Keyword("overwrite", value=True), " to replace it")


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding about a schema, a bundle or a value.

    Attributes:
        code: Stable identifier such as ``NQX411``; ``neuralqx-struct explain CODE`` describes it.
        severity: ``error``, ``warning`` or ``info``.
        message: ``expected X, got Y``; further lines give the reason.
        path: Key path inside the document, such as ``$.params.kernel``; empty where there is none.
        file: The file or bundle, as the user named it.
        line: 1-based line in ``file``.
        column: 1-based column in ``file``.
        hint: The likely fix; a :class:`Hint` if it passes an argument.
    """

    code: str
    severity: Severity
    message: str
    path: str = ""
    file: str | None = None
    line: int | None = None
    column: int | None = None
    hint: str | None = None

    def __post_init__(self) -> None:
        for member in ("message", "hint"):
            text = getattr(self, member)
            if text and len(text) > _LONGEST:
                object.__setattr__(self, member, f"{text[:_LONGEST]} ... ({len(text)} characters)")

    def __str__(self) -> str:
        """Text form: ``file:line:column: CODE message`` or ``file: path: message [CODE]``, then the hint."""
        file = printable(self.file or "")
        if self.line is not None:
            severity = "" if self.severity == "error" else f"{self.severity}: "
            head = f"{file}:{self.line}:{self.column}: {self.code} {severity}{self.message}"
        else:
            where = "".join(f"{part}: " for part in (file, printable(self.path)) if part)
            first, newline, rest = self.message.partition("\n")
            head = f"{where}{first} [{self.code}]{newline}{rest}"
        text = printable_lines(f"{head}\n{self.remedy or ''}".rstrip())
        return text.replace("\n", "\n  ")

    @property
    def remedy(self) -> str | None:
        """The hint, or the fix that findings of this code always have."""
        return self.hint or REMEDIES.get(self.code)

    def in_file(self, file: str) -> Diagnostic:
        """The finding with ``file`` filled in, unless it already names one."""
        return self if self.file is not None else replace(self, file=file)

    def to_json(self) -> dict[str, Any]:
        """The record as plain JSON values, as every command prints it with ``--format json``."""
        return {**asdict(self), "hint": self.remedy}


def has_errors(diagnostics: Iterable[Diagnostic]) -> bool:
    """True if any finding is of severity ``error``."""
    return any(d.severity == "error" for d in diagnostics)


_MOST_COMPARED = 100
_LONGEST_COMPARED = 200
_MOST_SHOWN = 100
#: Problems of one input after which names that are like a wrong one are no longer looked for.
MOST_HINTS = 50


def closest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known word that is most like ``word``, or None; a larger cutoff demands more likeness."""
    names = list(known)
    if len(word) > _LONGEST_COMPARED:  # comparing takes time by the square of the length
        return word if word in names else None
    if len(names) > _MOST_COMPARED:  # comparing texts is slow, and a file can have many wrong names
        similar = [n for n in names if n[:1] == word[:1] and abs(len(n) - len(word)) < 3]
        names = [word] * (word in names) + similar[:32]
    close = difflib.get_close_matches(word, names, n=1, cutoff=cutoff)
    if close:
        return close[0]
    return {name.lower(): name for name in names}.get(word.lower())


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """A hint with the known word that is most like ``word``, or None.

    Example:
        >>> did_you_mean("kernal", ["kernel", "bias"])
        "did you mean 'kernel'?"
    """
    meant = closest(word, known)
    return None if meant is None else f"did you mean {meant!r}?"


def closest_version(version: object, known: Iterable[int]) -> int:
    """The known version that is nearest to another one; the newest for anything but a number.

    Example:
        >>> closest_version(9, [1, 2, 3])
        3
    """
    wanted = version if isinstance(version, int) else 2**63
    return min(known, key=lambda each: abs(each - wanted))


_MOST_BESIDE = 10_000


def path_meant(path: object) -> str | None:
    """A hint with the file or folder beside a missing path whose name is most like it, or None.

    Example:
        >>> path_meant("schemas/vmc_stat")
        "did you mean 'schemas/vmc_state'?"
    """
    place = Path(str(path))
    if str(path).startswith("~"):
        return WHOLE_PATH
    try:
        with os.scandir(place.parent) as entries:
            names = [entry.name for entry in itertools.islice(entries, _MOST_BESIDE)]
    except (OSError, ValueError):
        return None
    meant = closest(place.name, names, 0.75)
    return None if meant is None else f"did you mean {str(place.with_name(meant))!r}?"


class StructError(Exception):
    """Root of all errors of this package; carries every problem of one input at once.

    Args:
        problems: One message, one :class:`Diagnostic`, or several diagnostics.
        code: The code of a plain message.
        hint: The likely fix, for a plain message.

    Attributes:
        diagnostics: The problems as records.
    """

    default_code = "NQX000"

    def __init__(
        self,
        problems: str | Diagnostic | Iterable[Diagnostic] = (),
        *,
        code: str | None = None,
        path: str = "",
        file: str | None = None,
        hint: str | None = None,
    ) -> None:
        if isinstance(problems, str):
            problems = Diagnostic(
                code or self.default_code, "error", problems, path=path, file=file, hint=hint
            )
        if isinstance(problems, Diagnostic):
            problems = (problems,)
        self.diagnostics: tuple[Diagnostic, ...] = tuple(problems)
        super().__init__(self.diagnostics)

    @property
    def code(self) -> str:
        """The code of the first problem."""
        return self.diagnostics[0].code if self.diagnostics else self.default_code

    def __str__(self) -> str:
        """The problems, one below the other; of very many the first ones, all are in ``diagnostics``."""
        shown = [str(d) for d in self.diagnostics[:_MOST_SHOWN]]
        if rest := len(self.diagnostics) - len(shown):
            shown.append(f"and {rest} more problems")
        return "\n".join(shown)

    def in_file(self, file: str) -> StructError:
        """The error with ``file`` in every problem that names none."""
        if all(d.file is not None for d in self.diagnostics):
            return self
        return type(self)(d.in_file(file) for d in self.diagnostics)


def warn_deprecated(
    name: str, *, since: str, removed_in: str, instead: str, stacklevel: int = 2
) -> None:
    """Warns of a name, an argument or an option that a later release removes.

    Functions and classes are marked with ``typing_extensions.deprecated`` instead, which editors understand, and with a
    message of the same form. ``tests/test_deprecations.py`` fails when the version reaches ``removed_in``.

    Args:
        name: What is deprecated, such as ``load(strict=)``.
        since: The version that deprecates it.
        removed_in: The version that removes it.
        instead: What to use.
        stacklevel: As of ``warnings.warn``, counted from the caller.

    Example:
        >>> with warnings.catch_warnings(record=True) as found:
        ...     warnings.simplefilter("always")
        ...     warn_deprecated("load(strict=)", since="0.2", removed_in="0.4", instead="unknown=")
        >>> print(found[0].message)
        load(strict=) is deprecated since 0.2 and removed in 0.4; use unknown=
    """
    message = f"{name} is deprecated since {since} and removed in {removed_in}; use {instead}"
    warnings.warn(message, DeprecationWarning, stacklevel=stacklevel + 1)


class FrozenStructError(StructError, AttributeError):
    """An attribute of a frozen Struct was assigned or deleted."""

    default_code = "NQX601"


class ValidationError(StructError, TypeError):
    """A value does not satisfy its field, its class or its schema."""

    default_code = "NQX416"


class SerializationError(StructError):
    """A value cannot be saved, or a payload cannot be read."""

    default_code = "NQX401"


class SchemaError(SerializationError):
    """A schema document is wrong, or a payload does not fit its schema."""

    default_code = "NQX010"


class MigrationError(SerializationError):
    """A payload cannot be brought from one schema version to another."""

    default_code = "NQX422"


class IntegrityError(SerializationError):
    """Stored bytes are damaged: a digest, checksum or size does not agree."""

    default_code = "NQX407"


class UntrustedError(SerializationError):
    """A file names something that reading it may not use: an unknown class, a pickle, a path outside."""

    default_code = "NQX501"


def within_stack(function: Callable[P, T]) -> Callable[P, T]:
    """Names the problem where a function walks an object that is nested too deeply for the stack of this thread.

    The function then raises SerializationError NQX005.
    """

    @functools.wraps(function)
    def call(*args: P.args, **options: P.kwargs) -> T:
        try:
            return function(*args, **options)
        except RecursionError as error:
            raise _too_deep() from error
        except SystemError as error:  # what JAX makes of a RecursionError in lists
            if isinstance(error.__cause__, RecursionError):
                raise _too_deep() from error
            raise

    return call


def _too_deep() -> SerializationError:
    message = "expected a nest that fits the stack of this thread, got a deeper one"
    hint = "make it flatter, call at a lower level of calls, or raise sys.setrecursionlimit"
    return SerializationError(message, code="NQX005", path="$", hint=hint)
