"""The folder of a series: a bundle for each step of a run, named by its number.

``series.py`` saves, loads and retires steps; readers of one bundle name them when they are given the folder.

Example:
    >>> import tempfile
    >>> root = Path(tempfile.mkdtemp())
    >>> for name in ("20", "100", "logs"):
    ...     (root / name).mkdir()
    >>> [path.name for path in step_paths(root).values()], listed([5, 10, 15, 20, 25, 30, 35, 40])
    (['20', '100'], '5, 10, 15, ..., 35, 40')
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

# The second form is a step whose writer was stopped between the two renames that replace it.
_STEP: Final = re.compile(r"(?P<name>0|[1-9][0-9]{0,17})|\.(?P<moved>0|[1-9][0-9]{0,17})\.old-.+")
_FIRST: Final = 3
_LAST: Final = 2


def step_paths(root: Path) -> dict[int, Path]:
    """The paths in a folder that have the name of a step, by number; whether there are bundles is not checked.

    Raises:
        OSError: The folder cannot be read.
    """
    found = map(_STEP.fullmatch, os.listdir(root))  # noqa: PTH208 - names alone
    numbers = {int(match["name"] or match["moved"]) for match in found if match}
    return {number: root / str(number) for number in sorted(numbers)}


def listed(steps: Sequence[int]) -> str:
    """The numbers of steps for a message, those in the middle left out."""
    if len(steps) <= _FIRST + _LAST:
        return ", ".join(map(str, steps))
    return f"{listed(steps[:_FIRST])}, ..., {listed(steps[-_LAST:])}"
