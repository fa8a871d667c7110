r"""The text form of filters, as command lines and YAML write them.

From the tightest to the loosest operator::

    tag:NAME  path:GLOB  kind:node|static|opaque  dtype:NAME  type:NAME  all  none  ( ... )
    !a        a & b      a | b

A NAME with blanks or any of ``& | ( ) ' " \`` needs quotes, inside which a backslash protects the next character. The
words and operators are those of the table of filters.

Example:
    >>> str(parse("(tag:a | !kind:static)"))
    'tag:a | !kind:static'
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple, cast

from neuralqx_struct.errors import Diagnostic, did_you_mean
from neuralqx_struct.filters.predicates import Nothing
from neuralqx_struct.filters.records import (
    BARE,
    FILTERS,
    FilterError,
    Matcher,
    type_error,
)

_QUOTED: Final = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_TOKEN: Final = re.compile(
    rf"""(?P<symbol>[!&|()])|(?P<word>[^\s&|()!:'"\\]+)(?P<colon>:)?(?(colon)(?P<value>{_QUOTED}|{BARE})?)""",
    re.DOTALL,
)
_BLANK: Final = re.compile(r"\s*")
_MAX_DEPTH: Final = 64
_LONGEST: Final = 200_000
_MOST_TERMS: Final = 1_000  # each is tested on every leaf
_EXAMPLE: Final = "tag:trainable & !path:**/bias"


def parse(text: str) -> Matcher:
    """Parses the text form of a filter; the inverse of ``str`` for filters that have one.

    Args:
        text: Such as ``tag:trainable & !path:*/bias``; see :mod:`neuralqx_struct.filters.text`.

    Returns:
        The filter.

    Raises:
        FilterError: ``text`` is not a filter, or has over 1,000 terms; all unknown names, and the first place where the
            grammar breaks.
            It is a ValueError.
        TypeError: ``text`` is not a str.

    Example:
        >>> parse("dtype:floating | kind:static")
        Any(DType('floating'), Kind('static'))
    """
    if not isinstance(text, str):
        raise type_error("parse", "the text of a filter (str)", text)
    if not text.strip():
        raise FilterError(
            "expected a filter, got an empty text",
            path="filter",
            hint=f"as in {_EXAMPLE}; `all` is for every leaf",
        )
    if len(text) > _LONGEST:
        message = f"expected a text of at most {_LONGEST:,} characters, got {len(text):,}"
        raise FilterError(message, path="filter", hint="join filters in Python by | and &")
    parser = _Parser(text)
    filter = parser.joined(_MAX_DEPTH)  # noqa: A001
    parser.finish()
    return filter


def _unquoted(value: str) -> str:
    if value[0] not in "'\"":
        return value
    return re.sub(r"\\(.)", r"\1", value[1:-1], flags=re.DOTALL)


class _Token(NamedTuple):
    position: int
    symbol: str  # an operator or parenthesis, "term", or "" at the end
    shown: str
    word: str = ""
    value: str | None = None  # the text behind the colon; empty if it cannot be read


def _tokens(text: str) -> Iterator[_Token]:
    position = 0
    while True:
        blank = _BLANK.match(text, position)
        position = position if blank is None else blank.end()
        if position == len(text):
            yield _Token(position, "", "the end")
            return
        found = _TOKEN.match(text, position)
        if found is None:
            yield _Token(position, "?", text[position : position + 20])
            return
        value = (found["value"] or "") if found["colon"] else None
        yield _Token(position, found["symbol"] or "term", found.group(), found["word"] or "", value)
        position = found.end()


class _Parser:
    """Recursive descent; one token of lookahead in ``token``."""

    def __init__(self, text: str) -> None:
        self.classes = {(k.text.shape, k.text.symbol): k.cls for k in FILTERS.values() if k.text}
        forms = [kind.text for kind in FILTERS.values() if kind.text]
        self.spoken = {form.english: form.symbol for form in forms if form.english}
        binary = [form for form in forms if form.shape == "binary"]
        self.levels = [form.symbol for form in sorted(binary, key=lambda form: form.binds)]
        self.where = text if len(text) <= 200 else f"{text[:197]}..."
        self.tokens = _tokens(text)
        self.token = next(self.tokens)
        self.problems: list[Diagnostic] = []
        self.terms = 0

    def words(self, shape: str) -> list[str]:
        return sorted(word for kind, word in self.classes if kind == shape)

    def note(self, message: str, hint: str | None = None) -> None:
        message = f"character {self.token.position + 1}: {message}"
        self.problems.append(Diagnostic("NQX010", "error", message, path=self.where, hint=hint))

    def stop(self, expected: str, hint: str | None = None) -> FilterError:
        shown = repr(self.token.shown) if self.token.symbol else self.token.shown
        self.note(f"expected {expected}, got {shown}", hint)
        return FilterError(self.problems)

    def finish(self) -> None:
        if self.token.symbol:
            raise self.stop("&, | or the end", self.operator_hint())
        if self.problems:
            raise FilterError(self.problems)

    def operator_hint(self) -> str | None:
        symbol = self.spoken.get(self.token.word)
        return f"write {symbol}" if symbol else None

    def joined(self, depth: int, level: int = 0) -> Matcher:
        """The filter of operands joined by the operator of a level, or by tighter ones."""
        if level == len(self.levels):
            return self.operand(depth)
        symbol = self.levels[level]
        filters = [self.joined(depth, level + 1)]
        while self.token.symbol == symbol:
            self.token = next(self.tokens)
            filters.append(self.joined(depth, level + 1))
        if len(filters) == 1:
            return filters[0]
        return cast("Matcher", self.classes["binary", symbol](*filters))

    def operand(self, depth: int) -> Matcher:
        if depth == 0:
            raise self.stop(f"at most {_MAX_DEPTH} nested ! and (")
        symbol = self.token.symbol
        cls = self.classes.get(("unary", symbol))
        if cls is not None:
            self.token = next(self.tokens)
            operand: Matcher = cls(self.operand(depth - 1))
        elif symbol == "(":
            self.token = next(self.tokens)
            operand = self.joined(depth - 1)
            if self.token.symbol != ")":
                raise self.stop("&, | or )")
            self.token = next(self.tokens)
        elif symbol == "term":
            operand = self.term()
            self.token = next(self.tokens)
        else:
            raise self.stop("a filter", f"as in {_EXAMPLE}")
        return operand

    def term(self) -> Matcher:
        """The filter of the current token; notes a wrong name and goes on with a placeholder."""
        word, value = self.token.word, self.token.value
        self.terms += 1
        if self.terms > _MOST_TERMS:
            raise self.stop(
                f"at most {_MOST_TERMS:,} terms", "for many whole paths use PathIn in Python"
            )
        cls = self.classes.get(("constant" if value is None else "term", word))
        if value is None and cls is None:
            hint = self.operator_hint() or did_you_mean(word, self.words("constant"))
            raise self.stop("a filter", hint or f"for a tag write tag:{self.token.shown}")
        if cls is None:
            words = self.words("term")
            expected = ", ".join(f"{name}:" for name in words)
            self.note(f"expected one of {expected}, got {word + ':'!r}", did_you_mean(word, words))
            return Nothing()
        if value == "":
            hint = "a name with blanks or any of & | ( ) ' \" \\ needs quotes"
            raise self.stop(f"a name behind {word}:", hint)
        try:
            made: Matcher = cls() if value is None else cls(_unquoted(value))
        except FilterError as error:
            for problem in error.diagnostics:
                self.note(problem.message, problem.hint)
            return Nothing()
        return made
