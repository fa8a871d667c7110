"""The document of a page: its style and script, its sections, and the policy that lets it load nothing.

Example:
    >>> page("a < b", "", [Section("First part", "text")]).count('id="first-part"')
    1
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

from neuralqx_struct.printing import escaped, tag

_PLACE: Final = files(__package__)


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a page.

    Attributes:
        title: Its heading.
        content: Its HTML.
    """

    title: str
    content: str

    @property
    def anchor(self) -> str:
        """The name that links use."""
        return self.title.lower().replace(" ", "-")


def page(title: str, lead: str, sections: Iterable[Section]) -> str:
    """The document.

    Args:
        title: Its title, as text.
        lead: HTML below the title.
        sections: Its parts, which the navigation lists.
    """
    parts = [*sections]
    style = _PLACE.joinpath("page.css").read_text(encoding="utf-8")
    script = _PLACE.joinpath("page.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    links = "".join(tag("a", escaped(each.title), href=f"#{each.anchor}") for each in parts)
    body = "".join(
        tag("section", tag("h2", escaped(each.title)) + each.content, id=each.anchor)
        for each in parts
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{escaped(policy)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escaped(title)}</title><style>{style}</style></head>\n"
        f"<body><header><h1>{escaped(title)}</h1>{lead}<nav>{links}</nav></header>\n"
        f"<main>{body}</main>\n<script>{script}</script></body></html>\n"
    )
