"""Names that systems and editors give to files of their own: ignored wherever a folder is read.

They go with a folder that is replaced, but for the records of version control.

Example:
    >>> [name for name in ("v1.yaml", "._v1.yaml", "v1.yaml~", "#v1.yaml#", ".nfs0001", "Thumbs.db") if not is_hidden(name)]
    ['v1.yaml']
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_OF_WINDOWS: Final = frozenset({"thumbs.db", "ehthumbs.db", "desktop.ini"})
#: Nothing removes these with a bundle: they are the work of people.
KEPT: Final = frozenset({".git", ".hg", ".svn", ".jj", ".bzr"})


def is_hidden(name: str) -> bool:
    """True for a name with a dot in front or a tilde behind, between two ``#``, or of a file that Windows makes."""
    return (
        name.startswith(".")
        or name.endswith("~")
        or (name.startswith("#") and name.endswith("#"))
        or name.lower() in _OF_WINDOWS
    )


def shown_names(names: Iterable[str]) -> list[str]:
    """The names that are not hidden, sorted."""
    return sorted(name for name in names if not is_hidden(name))


def entries(folder: Path) -> list[Path]:
    """The files and folders in a folder that are not hidden, in the order of their names."""
    return [folder / name for name in shown_names(os.listdir(folder))]  # noqa: PTH208 - names alone
