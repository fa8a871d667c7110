"""The words of the text form: what ``tag:``, ``path:`` and the others make; their grammar is ``syntax.py``.

Example:
    >>> str(parse("(tag:a | !kind:static)"))
    'tag:a | !kind:static'
"""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Final

from neuralqx_struct.filters.algebra import All, Any, Everything, FilterError, Matcher, Not, Nothing, type_error
from neuralqx_struct.filters.places import PathGlob
from neuralqx_struct.filters.syntax import Language, read
from neuralqx_struct.filters.values import DType, Kind, TypeName, WithTag

__all__ = ["parse"]

_TERMS: Final = typing.cast(
    "dict[str, Callable[[str], Matcher]]", {term.word: term for term in (DType, Kind, PathGlob, WithTag, TypeName)}
)
_LANGUAGE: Final = Language(
    terms=_TERMS,
    constants={"all": Everything, "none": Nothing},
    negation=Not,
    conjunction=All,
    disjunction=Any,
    error=FilterError,
)


def parse(text: str) -> Matcher:
    """Read the text form of a filter; the inverse of ``str`` for filters that have one.

    Args:
        text: Such as ``tag:trainable & !path:*/bias``; :mod:`~neuralqx_struct.filters.syntax` says more.

    Raises:
        FilterError: ``text`` is not a filter; all unknown names, and the first place where the grammar breaks.
            It is a ValueError.
        TypeError: ``text`` is not a str.

    Example:
        >>> parse("dtype:floating | kind:static")
        Any(DType('floating'), Kind('static'))
    """
    if not isinstance(text, str):
        raise type_error("parse", "the text of a filter (str)", text)
    return read(text, _LANGUAGE)
