r"""The syntax of filters as text, as command lines and YAML write them: tokens, quotes, precedence.

From what binds most to what binds least::

    tag:NAME  path:GLOB  kind:node|static|opaque  dtype:NAME  type:NAME  all  none  ( ... )
    !a        a & b      a | b

A NAME with blanks or any of ``& | ( ) ' " \`` stands in quotes, where a backslash protects the next character. Owns how
text is cut up and put together, not the words and what they mean: ``text.py`` hands them over as a :class:`Language`.

Example:
    >>> sets = Language({"in": lambda v: {v}}, {"none": set}, lambda s: s, set.intersection, set.union, StructError)
    >>> sorted(read("in:a | (in:'b c' & !in:'b c') | none", sets))
    ['a', 'b c']
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar

from neuralqx_struct.errors import Diagnostic, StructError, did_you_mean

__all__ = ["Language", "quoted", "read"]

_T = TypeVar("_T")

_BARE: Final = r"""[^\s&|()'"\\]+"""
_QUOTED: Final = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_TOKEN: Final = re.compile(
    rf"""(?P<symbol>[!&|()])|(?P<word>[^\s&|()!:'"\\]+)(?P<colon>:)?(?(colon)(?P<value>{_QUOTED}|{_BARE})?)""",
    re.DOTALL,
)
_BLANK: Final = re.compile(r"\s+")
_OPERATOR_WORDS: Final = {"and": "&", "not": "!", "or": "|"}
_MAX_DEPTH: Final = 64
_EXAMPLE: Final = "tag:trainable & !path:**/bias"


@dataclass(frozen=True, slots=True)
class Language(Generic[_T]):
    """What the words and operators of a text mean.

    Attributes:
        terms: What ``word:value`` makes; raises ``error`` for a value that cannot be.
        constants: What a word alone makes; ``none`` also stands for a term that is wrong, until all of the text is read.
        negation: What ``!`` makes.
        conjunction: What ``&`` makes of two and more.
        disjunction: What ``|`` makes of two and more.
        error: The class of errors in a text.
    """

    terms: Mapping[str, Callable[[str], _T]]
    constants: Mapping[str, Callable[[], _T]]
    negation: Callable[[_T], _T]
    conjunction: Callable[..., _T]
    disjunction: Callable[..., _T]
    error: type[StructError]


def quoted(name: str) -> str:
    """A name as it stands behind a colon, in quotes where it must."""
    return name if re.fullmatch(_BARE, name) else "'" + re.sub(r"(['\\])", r"\\\1", name) + "'"


def _unquoted(value: str) -> str:
    return re.sub(r"\\(.)", r"\1", value[1:-1], flags=re.DOTALL) if value[0] in "'\"" else value


def read(text: str, language: Language[_T]) -> _T:
    """What a text means in a language.

    Args:
        text: Such as ``tag:trainable & !path:*/bias``.
        language: The words and what they make.

    Raises:
        StructError: Of the class ``language.error``: all unknown names, and the first place where the grammar breaks.
    """
    if not text.strip():
        hint = f"as in {_EXAMPLE}; `all` is for every leaf"
        raise language.error(
            [Diagnostic("NQX010", "error", "expected a filter, got an empty text", path="filter", hint=hint)]
        )
    parser = _Parser(text, language)
    meaning = parser.disjunction(_MAX_DEPTH)
    parser.finish()
    return meaning


class _Token(NamedTuple):
    position: int
    symbol: str  # an operator or parenthesis, "term", or "" at the end
    shown: str
    word: str = ""
    value: str | None = None  # what follows the colon; empty if nothing readable does


def _skip_blanks(text: str, position: int) -> int:
    found = _BLANK.match(text, position)
    return found.end() if found else position


def _tokens(text: str) -> Iterator[_Token]:
    position = 0
    while (position := _skip_blanks(text, position)) < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            yield _Token(position, "?", text[position : position + 20])
            return
        value = (found["value"] or "") if found["colon"] else None
        yield _Token(position, found["symbol"] or "term", found.group(), found["word"] or "", value)
        position = found.end()
    yield _Token(len(text), "", "the end")


class _Parser(Generic[_T]):
    """Recursive descent; one token of lookahead in ``token``."""

    def __init__(self, text: str, language: Language[_T]) -> None:
        self.language = language
        self.where = text if len(text) <= 200 else f"{text[:197]}..."
        self.tokens = _tokens(text)
        self.token = next(self.tokens)
        self.problems: list[Diagnostic] = []

    def note(self, message: str, hint: str | None = None) -> None:
        place = f"character {self.token.position + 1}"
        self.problems.append(Diagnostic("NQX010", "error", f"{place}: {message}", path=self.where, hint=hint))

    def stop(self, expected: str, hint: str | None = None) -> StructError:
        shown = repr(self.token.shown) if self.token.symbol else self.token.shown
        self.note(f"expected {expected}, got {shown}", hint)
        return self.language.error(self.problems)

    def finish(self) -> None:
        if self.token.symbol:
            meant = _OPERATOR_WORDS.get(self.token.word)
            raise self.stop("&, | or the end", f"write {meant}" if meant else None)
        if self.problems:
            raise self.language.error(self.problems)

    def disjunction(self, depth: int) -> _T:
        filters = [self.conjunction(depth)]
        while self.token.symbol == "|":
            self.token = next(self.tokens)
            filters.append(self.conjunction(depth))
        return filters[0] if len(filters) == 1 else self.language.disjunction(*filters)

    def conjunction(self, depth: int) -> _T:
        filters = [self.operand(depth)]
        while self.token.symbol == "&":
            self.token = next(self.tokens)
            filters.append(self.operand(depth))
        return filters[0] if len(filters) == 1 else self.language.conjunction(*filters)

    def operand(self, depth: int) -> _T:
        if depth == 0:
            raise self.stop(f"at most {_MAX_DEPTH} nested ! and (")
        match self.token.symbol:
            case "!":
                self.token = next(self.tokens)
                return self.language.negation(self.operand(depth - 1))
            case "(":
                self.token = next(self.tokens)
                inside = self.disjunction(depth - 1)
                if self.token.symbol != ")":
                    raise self.stop("&, | or )")
                self.token = next(self.tokens)
                return inside
            case "term":
                term = self.term()
                self.token = next(self.tokens)
                return term
        raise self.stop("a filter", f"as in {_EXAMPLE}")

    def term(self) -> _T:
        """The filter of the current token; a name that is wrong is noted, so that reading can go on."""
        _, _, shown, word, value = self.token
        terms, constants = self.language.terms, self.language.constants
        if value is None:
            if word in constants:
                return constants[word]()
            meant = _OPERATOR_WORDS.get(word)
            raise self.stop(
                "a filter",
                f"write {meant}" if meant else did_you_mean(word, constants) or f"for a tag write tag:{shown}",
            )
        if word not in terms:
            expected = ", ".join(f"{name}:" for name in terms)
            self.note(f"expected one of {expected}, got {word + ':'!r}", did_you_mean(word, terms))
            return constants["none"]()
        if not value:
            raise self.stop(f"a name behind {word}:", "a name with blanks or any of & | ( ) ' \" \\ stands in quotes")
        try:
            return terms[word](_unquoted(value))
        except self.language.error as error:
            for problem in error.diagnostics:
                self.note(problem.message, problem.hint)
            return constants["none"]()
