"""Comparisons of versions: which of them were compared, how many payloads were tried, and why no more.

Example:
    >>> print(Comparison("lab.net", 1, 2, proved=True, tried=25))
    lab.net: version 2 reads version 1: structure proved, 25 payloads tried
"""

from __future__ import annotations

from typing import Any, NamedTuple

from neuralqx_struct.errors import Diagnostic


class Comparison(NamedTuple):
    """The comparison of what one version of a schema writes with what another one reads.

    Attributes:
        schema: The identity.
        writer: The version whose payloads are read; None if there is none to compare with.
        reader: The version that reads them.
        proved: True if the two agree in structure, once the steps were applied.
        tried: How many payloads were tried.
        reason: The reason why none was tried, or no more.
    """

    schema: str
    writer: int | None
    reader: int
    proved: bool = False
    tried: int = 0
    reason: str | None = None

    @property
    def direction(self) -> str | None:
        """``backward`` if a newer version reads an older one, ``forward`` the other way; None if there are no two."""
        if self.writer in (None, self.reader):
            return None
        return "backward" if self.reader > (self.writer or 0) else "forward"

    def to_dict(self) -> dict[str, Any]:
        """The comparison as JSON members."""
        structure = None if self.writer is None else "proved" if self.proved else "differs"
        return {
            "schema": self.schema,
            "direction": self.direction,
            "writer": self.writer,
            "reader": self.reader,
            "structure": structure,
            "tried": self.tried,
            "reason": self.reason,
        }

    def __str__(self) -> str:
        if self.writer is None:
            return f"{self.schema}: version {self.reader} was not compared: {self.reason}"
        count = f"{self.tried} payload{'' if self.tried == 1 else 's'}" if self.tried else "nothing"
        why = f": {self.reason}" if self.reason else ""
        structure = f"structure {'proved' if self.proved else 'differs'}, {count} tried{why}"
        return f"{self.schema}: version {self.reader} reads version {self.writer}: {structure}"


class Compared(list[Diagnostic]):
    """Findings about versions, and the comparisons that led to them.

    Attributes:
        comparisons: One for each two versions and direction.
    """

    def __init__(self) -> None:
        super().__init__()
        self.comparisons: list[Comparison] = []
