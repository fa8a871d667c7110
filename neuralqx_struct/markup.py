r"""HTML: escaped text, elements, tables and lists, for reports and notebooks.

Everything that comes from a file goes through :func:`text`.

Example:
    >>> print(text("<b>\u202e"))
    &lt;b&gt;\u202e
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from neuralqx_struct.errors import printable


def text(value: object) -> str:
    """Text as HTML: markup has no meaning, and characters that steer or reorder text are escaped."""
    return html.escape(printable(str(value)))


def tag(name: str, content: str, **attributes: object) -> str:
    """An element around HTML; ``class_`` is the attribute ``class``."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{text(value)}"'
        for key, value in attributes.items()
        if value not in (None, "")
    )
    return f"<{name}{given}>{content}</{name}>"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "") -> str:
    """A table; its cells are HTML, and a wide one scrolls inside its own frame."""
    title = tag("caption", text(caption)) if caption else ""
    header = "".join(tag("th", text(cell), scope="col") for cell in head)
    body = "".join(tag("tr", "".join(tag("td", cell) for cell in row)) for row in rows)
    inside = f"{title}<thead><tr>{header}</tr></thead><tbody>{body}</tbody>"
    return tag("div", tag("table", inside), class_="wide")


def items(lines: Iterable[str]) -> str:
    """A list of HTML lines."""
    return tag("ul", "".join(tag("li", line) for line in lines))
