"""The finding about an error that no part of the program expects, with the facts that its developers need.

Example:
    >>> hidden("s3://key:secret@host/run?signature=abc")
    's3://***@host/run?***'
"""

from __future__ import annotations

import platform
import re
import sys
import traceback
from importlib import metadata
from pathlib import Path
from typing import Final

from neuralqx_struct.errors import Diagnostic

#: The name of a package at the start of a requirement.
_REQUIRED: Final = re.compile(r"[A-Za-z0-9._-]+")
_FRAMES: Final = 6
_SECRETS: Final = (
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
