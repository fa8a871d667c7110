"""Files of the documentation and the schemas that travel with the package, and the pages of codes.

Example:
    >>> page_of("NQX101").name
    'unknown-type'
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

#: The address of the documentation.
SITE: Final = "https://neuralqx.github.io/neuralqx-struct"
_PACKAGE = Path(__file__).resolve().parent.parent


class Page(NamedTuple):
    """The page about a code: the name of its diagnostic, the first sentence, and the address."""

    name: str
    summary: str
    url: str


def shipped(name: str) -> Path:
    """The path of a file that is installed with the package: in a wheel below it, in a checkout beside it.

    Example:
        >>> shipped("schemas/manifest/1.json").name
        '1.json'

    Raises:
        FileNotFoundError: It is in neither place: the installation is incomplete.
    """
    for top in (_PACKAGE / "shipped", _PACKAGE.parent):
        if (top / name).exists():
            return top / name
    raise FileNotFoundError(f"{name}: expected it beside {_PACKAGE}, got nothing; install it again")


def page_of(code: str) -> Page:
    """The page about a code that has one."""
    text = shipped(f"docs/diagnostics/{code}.md").read_text(encoding="utf-8")
    title, _, rest = text.partition("\n")
    first = rest.strip().partition("\n\n")[0]
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)|\s+", lambda found: found[1] or " ", first)
    name = title.removeprefix("# ").partition(" ")[2]
    summary = re.split(r"(?<=\.) ", plain)[0]
    return Page(name, summary, f"{SITE}/diagnostics/{code}.html")
