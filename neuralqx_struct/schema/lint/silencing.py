"""Comments that silence warnings, such as ``# nqx: ignore[NQX104]`` on the line of one. Errors cannot be silenced."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from neuralqx_struct.errors import Diagnostic
from neuralqx_struct.schema.text import Source

#: File, line and code of a finding, or of a comment that silences it.
Place = tuple[str | None, int | None, str]


def place_of(found: Diagnostic) -> Place:
    """The place of a finding."""
    return found.file, found.line, found.code


def comments_in(sources: Iterable[Source]) -> set[Place]:
    """The comments of some files that silence findings."""
    return {
        (source.name, line, code)
        for source in sources
        for line, codes in source.suppressions.items()
        for code in codes
    }


def without_silenced(found: Iterable[Diagnostic], comments: set[Place]) -> Iterator[Diagnostic]:
    """Yields the findings that no comment silences."""
    for each in found:
        if place_of(each) not in comments:
            yield each
        elif each.severity == "error":
            reason = "errors cannot be ignored by a comment"
            yield replace(each, hint=f"{each.hint}; {reason}" if each.hint else reason)


def unused_comment(comment: Place) -> Diagnostic:
    """The warning about a comment that silences nothing."""
    file, line, code = comment
    message = f"expected {code} on this line, which the comment ignores, got no such finding"
    hint = "remove the comment, or move it to the line of the finding"
    return Diagnostic("NQX015", "warning", message, "", file, line, 1, hint)


def in_order(found: Iterable[Diagnostic]) -> list[Diagnostic]:
    """The findings by file and line."""
    return sorted(
        found, key=lambda d: (d.file or "", d.line or 0, d.column or 0, d.code, d.path, d.message)
    )
