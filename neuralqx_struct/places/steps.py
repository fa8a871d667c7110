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
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from neuralqx_struct.errors import printable
from neuralqx_struct.places.names import is_hidden, shown_names
from neuralqx_struct.places.urls import Place, RemotePath

#: A part of the names of folders that Orbax has not finished.
UNFINISHED: Final = ".orbax-checkpoint-tmp"
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


def contents(root: Place, manifest: str) -> Contents | None:
    """The bundles in a folder, or in the folders in it; None if there are none.

    Args:
        root: The folder.
        manifest: The file that each bundle has.
    """
    names = _names_in(root, manifest) if isinstance(root, Path) else _names_below(root, manifest)
    found = sorted(names, key=lambda name: (name.count("/"), *map(_order, name.split("/"))))
    inside = sorted(name for name in found if "/" not in name)
    steps = [number for number in numbers_of(inside) if str(number) in inside]
    if steps:
        return Contents(
            f"a series of the steps {listed(steps)}", root / str(steps[-1]), series=True
        )
    if inside:
        return Contents(
            f"a folder of the bundles {listed(inside)}", root / inside[-1], series=False
        )
    if not found:
        return None
    pairs = [name.split("/") for name in found]
    items = sorted({item for _, item in pairs})
    text = f"a folder of the steps {listed([*dict(pairs)])}, which hold the bundles {listed(items)}"
    last = next(name for name in found if name.startswith(f"{pairs[-1][0]}/"))
    return Contents(text, root / last, series=False)


def _names_in(root: Path, manifest: str) -> Iterator[str]:
    """Yields the bundles in a folder on a disk, and in the finished steps in it; folders that cannot be read have none."""
    for name in os.listdir(root):  # noqa: PTH208 - names alone
        if is_hidden(name):
            continue
        if Path(root, name, manifest).is_file():
            yield name
        elif _is_finished(name) and Path(root, name).is_dir():
            with suppress(OSError):
                inner = shown_names(os.listdir(root / name))  # noqa: PTH208 - names alone
                yield from (
                    f"{name}/{item}" for item in inner if Path(root, name, item, manifest).is_file()
                )


def _names_below(root: RemotePath, manifest: str) -> Iterator[str]:
    """Yields the same behind a URL, of one listing of all files."""
    for file in root.files_below():
        name, _, last = file.rpartition("/")
        if name and last == manifest and name.count("/") < 2 and _is_finished(name):
            yield name


def _is_finished(step: str) -> bool:
    """False for hidden folders, and for those of steps that Orbax has not finished."""
    return not is_hidden(step.partition("/")[0]) and UNFINISHED not in step.partition("/")[0]


def _order(name: str) -> tuple[int, str]:
    number = _NUMBER.search(name)
    return (int(number[0]) if number else -1, name)


def listed(steps: Sequence[object]) -> str:
    """The numbers of steps, or names, for a message; those in the middle are left out."""
    if len(steps) <= _FIRST + _LAST:
        return ", ".join(map(printable, steps))
    return f"{listed(steps[:_FIRST])}, ..., {listed(steps[-_LAST:])}"
