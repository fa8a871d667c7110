r"""Filters: choose leaves of a tree by literals, by classes that combine with ``& | ~``, or by text.

A predicate is any ``(path, value) -> bool``; a filter is a predicate or one of the literals that :func:`to_predicate`
converts to one. The literals and classes of Flax NNX keep their meaning; :class:`PathGlob`, :class:`Kind`,
:class:`DType`, :class:`TypeName`, tags of fields, operators and text are added.

Command lines and YAML write filters as text (:func:`parse`). From the tightest to the loosest operator::

    tag:NAME  path:GLOB  kind:node|static|opaque  dtype:NAME  type:NAME  all  none  ( ... )
    !a        a & b      a | b

A NAME with blanks or any of ``& | ( ) ' " \`` needs quotes, inside which a backslash protects the next character. The
words and operators are those of the table of filters.

Example:
    >>> trained = parse("tag:trainable & !path:**/bias")
    >>> trained
    All(WithTag('trainable'), Not(PathGlob('**/bias')))
    >>> trained == WithTag("trainable") & ~PathGlob("**/bias")
    True
    >>> str(trained), str(parse("(tag:a | !kind:static)"))
    ('tag:trainable & !path:**/bias', 'tag:a | !kind:static')
"""

from __future__ import annotations

import re
import typing
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple, cast

import neuralqx_struct.filters.table  # noqa: F401 - fills the table of filters
from neuralqx_struct.errors import Diagnostic, did_you_mean
from neuralqx_struct.filters.predicates import (
    DType,
    Everything,
    Kind,
    Nothing,
    OfType,
    PathContains,
    PathGlob,
    PathIn,
    TypeName,
    WithTag,
)
from neuralqx_struct.filters.records import (
    BARE,
    FILTERS,
    All,
    Any,
    Filter,
    FilterError,
    Matcher,
    Not,
    Predicate,
    filters_to_predicates,
    to_predicate,
    type_error,
)
from neuralqx_struct.printing import cut

__all__ = [
    "All",
    "Any",
    "DType",
    "Everything",
    "Filter",
    "FilterError",
    "Kind",
    "Matcher",
    "Not",
    "Nothing",
    "OfType",
    "PathContains",
    "PathGlob",
    "PathIn",
    "Predicate",
    "TypeName",
    "WithTag",
    "axes",
    "filters_to_predicates",
    "parse",
    "to_predicate",
]


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
        text: Such as ``tag:trainable & !path:*/bias``; see :mod:`neuralqx_struct.filters`.

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
        self.where = cut(text, 200)
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


def axes(
    obj: typing.Any,
    groups: Mapping[Filter, typing.Any] | Iterable[tuple[Filter, typing.Any]],
    *,
    report: list[Diagnostic] | None = None,
) -> typing.Any:
    """Builds ``in_axes`` or ``out_axes`` of :func:`jax.vmap` for an object: each leaf gets the axis of its first filter.

    Args:
        obj: A Struct or any pytree, as it will be given to the mapped function.
        groups: An axis, or None for leaves that are not mapped, by filter, as a mapping or as pairs; ``...`` last is for
            the rest. For other transformations any value will do, such as a ``PartitionSpec``.
        report: Gets filters that matched nothing and filters that overlap.

    Returns:
        An object of the same structure with the axes in place of the leaves.

    Raises:
        ValueError: A leaf matches no filter; names all such paths.
        TypeError: ``groups`` is neither a mapping nor pairs.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> model = {"w": jnp.ones((3, 2)), "scale": jnp.ones(2)}
        >>> in_axes = axes(model, {PathContains("w"): 0, ...: None})
        >>> in_axes
        {'scale': None, 'w': 0}
        >>> jax.vmap(lambda m: m["w"] * m["scale"], in_axes=(in_axes,))(model).shape
        (3, 2)
    """
    # The public functions on trees need JAX; the root package imports them when they are first used.
    from neuralqx_struct import merge, split

    items = groups.items() if isinstance(groups, Mapping) else groups
    pairs = list(items) if isinstance(items, Iterable) else [None]
    if not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
        raise TypeError(
            "axes(): expected a mapping from filters to axes, {A: 0, ...: None}, or such pairs, "
            f"got a {type(groups).__name__}"
        )
    definition, *states = split(obj, *(given for given, _ in pairs), report=report)
    values = [axis for _, axis in pairs]
    return merge(definition, *map(dict.fromkeys, states, values))
