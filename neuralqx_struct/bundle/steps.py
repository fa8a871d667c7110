"""Folders of steps: a bundle for each step of a run, or of Orbax's manager, a folder of bundles for each.

``series.py`` saves, loads and retires the steps of a series, ``integrations/orbax.py`` is for managers; readers of one
bundle name the steps when they are given the folder.

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
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from neuralqx_struct.errors import printable
from neuralqx_struct.stores.orbax_layout import UNFINISHED

# The second form is a step whose writer was stopped between the two renames that replace it.
_STEP: Final = re.compile(r"(?P<name>0|[1-9][0-9]{0,17})|\.(?P<moved>0|[1-9][0-9]{0,17})\.old-.+")
_NUMBER: Final = re.compile(r"[0-9]{1,18}\Z")
_FIRST: Final = 3
_LAST: Final = 2


def step_paths(root: Path) -> dict[int, Path]:
    """The paths in a folder that have the name of a step, by number; whether there are bundles is not checked.

    Raises:
        OSError: The folder cannot be read.
    """
    return {number: root / str(number) for number in numbers_of(os.listdir(root))}  # noqa: PTH208 - names alone


def numbers_of(names: Iterable[str]) -> list[int]:
    """The numbers of the steps among the names in a folder, in their order."""
    found = map(_STEP.fullmatch, names)
    return sorted({int(match["name"] or match["moved"]) for match in found if match})


class Contents(NamedTuple):
    """The bundles in a folder that is none itself.

    Attributes:
        text: Their names for a message, after "got".
        last: One of them, of the last step.
        series: True if the steps are those of a series.
    """

    text: str
    last: object
    series: bool


def contents(root: Path, manifest: str) -> Contents | None:
    """The bundles in a folder, or in the folders in it; None if there are none.

    Args:
        root: The folder.
        manifest: The file that each bundle has.
    """
    inside = [name for name in sorted(os.listdir(root)) if Path(root, name, manifest).is_file()]  # noqa: PTH208 - names alone
    steps = [number for number, path in step_paths(root).items() if path.name in inside]
    if steps:
        return Contents(
            f"a series of the steps {listed(steps)}", root / str(steps[-1]), series=True
        )
    if inside:
        return Contents(
            f"a folder of the bundles {listed(inside)}", root / inside[-1], series=False
        )
    items = {step: _items(root / step, manifest) for step in sorted(os.listdir(root), key=_order)}  # noqa: PTH208 - names alone
    found = {step: names for step, names in items.items() if names}
    if not found:
        return None
    last = [*found][-1]
    names = sorted({name for names in found.values() for name in names})
    text = f"a folder of the steps {listed([*found])}, which hold the bundles {listed(names)}"
    return Contents(text, root / last / found[last][0], series=False)


def _items(step: Path, manifest: str) -> list[str]:
    """The names of the bundles in the folder of a finished step; none in folders that cannot be read, and in hidden ones."""
    if step.name.startswith(".") or UNFINISHED in step.name or not step.is_dir():
        return []
    try:
        names = os.listdir(step)  # noqa: PTH208 - names alone
    except OSError:
        return []
    return [name for name in sorted(names) if Path(step, name, manifest).is_file()]


def _order(name: str) -> tuple[int, str]:
    number = _NUMBER.search(name)
    return (int(number[0]) if number else -1, name)


def listed(steps: Sequence[object]) -> str:
    """The numbers of steps, or names, for a message; those in the middle are left out."""
    if len(steps) <= _FIRST + _LAST:
        return ", ".join(map(printable, steps))
    return f"{listed(steps[:_FIRST])}, ..., {listed(steps[-_LAST:])}"
