"""Files that travel with the package: schemas, examples, documentation.

In an installed wheel they lie under ``neuralqx_struct/shipped``, in a checkout at the top of the repository.

Example:
    >>> shipped("schemas/manifest/1.json").name
    '1.json'
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["shipped"]

_PACKAGE = Path(__file__).resolve().parent.parent


def shipped(name: str) -> Path:
    """The place of a shipped file or folder.

    Args:
        name: Path as in the repository, such as ``schemas/vmc_state``.

    Raises:
        FileNotFoundError: It is in neither place: the installation is incomplete.
    """
    for top in (_PACKAGE / "shipped", _PACKAGE.parent):
        if (top / name).exists():
            return top / name
    raise FileNotFoundError(f"{name}: expected it beside the package {_PACKAGE}, got nothing; install the package anew")
