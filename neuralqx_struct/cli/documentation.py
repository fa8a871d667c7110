"""The pages of codes, which travel with the package.

Example:
    >>> page_of("NQX101").name
    'unknown-type'
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from neuralqx_struct.references import shipped

#: The address of the documentation.
SITE: Final = "https://neuralqx.github.io/neuralqx-struct"


class Page(NamedTuple):
    """The page about a code.

    Attributes:
        name: The name of the diagnostic.
        summary: The first sentence.
        url: The address on the site.
    """

    name: str
    summary: str
    url: str


def page_of(code: str) -> Page:
    """The page about a code that has one."""
    text = shipped(f"docs/diagnostics/{code}.md").read_text(encoding="utf-8")
    title, _, rest = text.partition("\n")
    first = rest.strip().partition("\n\n")[0]
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)|\s+", lambda found: found[1] or " ", first)
    name = title.removeprefix("# ").partition(" ")[2]
    summary = re.split(r"(?<=\.) ", plain)[0]
    return Page(name, summary, f"{SITE}/diagnostics/{code}.html")
