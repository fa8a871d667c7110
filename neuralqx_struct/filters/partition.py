"""Groups of leaves: split and merge by filters, and selection with a report of unmatched parts.

Works on the ``(path, leaf)`` pairs of a flattened tree: JAX pytrees, plain containers and manifests alike.

Example:
    >>> leaves = [(("params", "w"), 1.5), (("params", "b"), 0.5), (("step",), 7)]
    >>> floats, rest = split_leaves(leaves, float, ...)
    >>> floats
    [(('params', 'w'), 1.5), (('params', 'b'), 0.5)]
    >>> dict(merge_leaves(floats, rest)) == dict(leaves)
    True
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, combinations
from typing import Final, TypeVar

from neuralqx_struct.errors import Diagnostic, Severity
from neuralqx_struct.filters.records import (
    Filter,
    FilterError,
    Leaves,
    Predicate,
    filters_to_predicates,
    is_constant,
    kind_of,
    shown,
    to_predicate,
)
from neuralqx_struct.filters.table import unmatched_parts
from neuralqx_struct.paths import Path, format_path

T = TypeVar("T")
Report = list[Diagnostic] | None

SHOWN_PROBLEMS = 20  # a forgotten filter leaves thousands of leaves over
_MOST_TESTS: Final = 20_000_000  # about 20 seconds


def split_leaves(
    pairs: Iterable[tuple[Path, T]], *filters: Filter, report: Report = None
) -> tuple[list[tuple[Path, T]], ...]:
    """Sorts leaves into one group per filter; the first filter that matches a leaf gets it.

    Args:
        pairs: The leaves with their paths; their order is kept within each group.
        *filters: Filters as in :func:`~neuralqx_struct.filters.to_predicate`, ``...`` last; none at all means ``...``.
        report: A list that gets NQX426 for each filter that ends up without leaves and NQX427 for each two filters
            that match the same leaves. Every filter is then tested on every leaf. ``...`` and None are never
            reported.

    Returns:
        The groups, one for each filter.

    Raises:
        FilterError: A leaf matches no filter, or a filter follows ``...``; it is a ValueError.
        TypeError: One of ``filters`` is not a filter.
    """
    leaves = list(pairs)
    filters = filters or (...,)
    groups: tuple[list[tuple[Path, T]], ...] = tuple([] for _ in filters)
    for pair, which in zip(leaves, match_leaves(leaves, *filters, report=report), strict=True):
        groups[which].append(pair)
    return groups


def match_leaves(
    pairs: Iterable[tuple[Path, object]], *filters: Filter, report: Report = None
) -> list[int]:
    """Returns for each leaf the position of the first filter that matches; otherwise as :func:`split_leaves`.

    Example:
        >>> match_leaves([(("w",), 1.5), (("step",), 7)], float, ...)
        [0, 1]
    """
    leaves = list(pairs)
    predicates = filters_to_predicates(filters)
    numbered = tuple(enumerate(predicates))
    found: list[int] = []
    unmatched: list[tuple[Path, object]] = []
    for path, leaf in leaves:
        for which, predicate in numbered:
            if predicate(path, leaf):
                found.append(which)
                break
        else:
            unmatched.append((path, leaf))
    if report is not None:
        report += _suspicious(leaves, predicates)
    if unmatched:
        names = ", ".join(map(shown, predicates))
        raise all_problems(
            "NQX428",
            [
                (
                    format_path(path),
                    f"expected a leaf that one of the filters matches, got a {type(leaf).__name__} that none does",
                )
                for path, leaf in unmatched[:SHOWN_PROBLEMS]
            ],
            len(unmatched),
            f"the filters are {names}; add `...` behind them for the rest",
        )
    return found


def _size(predicate: Predicate) -> int:
    """The number of filters that a filter is made of, itself included."""
    return 1 + sum(map(_size, kind_of(predicate).parts(predicate)))


class Selection:
    """A filter for leaves that a reader meets one by one; reports its unmatched parts at the end.

    Example:
        >>> selection = Selection("tag")
        >>> selection(("w",), 1.5)
        False
        >>> [finding.hint for finding in selection.findings("select=")]
        ['no leaf here has a tag']
    """

    def __init__(self, filter: Filter) -> None:  # noqa: A002
        self.predicate = to_predicate(filter)
        self.most = _MOST_TESTS // _size(self.predicate)
        self.asked: list[tuple[Path, object]] = []
        self.found = False

    def __call__(self, path: Path, leaf: object) -> bool:
        """True if the leaf is selected.

        Raises:
            FilterError: The parts of the filter were tested on too many leaves.
        """
        if len(self.asked) >= self.most:
            message = f"expected at most {_MOST_TESTS:,} tests of parts on leaves, got more"
            raise FilterError(
                message, path="filter", hint="for many paths use PathIn, which is one part"
            )
        self.asked.append((path, leaf))
        selected = bool(self.predicate(path, leaf))
        self.found = self.found or selected
        return selected

    def findings(self, where: str, *, nothing: Severity = "error") -> list[Diagnostic]:
        """Returns NQX426 for each part of the filter that matched nothing: as info if other parts matched.

        Empty if no leaf was tested, and for None and False, which select nothing by intention.

        Args:
            where: The name of the filter for messages.
            nothing: The severity if the filter has selected nothing.
        """
        if not self.asked:
            return []
        return [
            Diagnostic(
                "NQX426",
                "info" if self.found else nothing,
                f"expected {part.expected}, got none among {len(self.asked):,}",
                path=where,
                hint=part.hint,
            )
            for part in unmatched_parts(self.predicate, self.asked)
            if self.found or not part.excluded
        ]


def merge_leaves(*states: Iterable[tuple[Path, T]]) -> list[tuple[Path, T]]:
    """Joins several groups of leaves; the inverse of :func:`split_leaves` up to the order of the leaves.

    Raises:
        FilterError: Two leaves have the same path; it is a ValueError.
    """
    pairs = list(chain.from_iterable(states))
    seen: set[Path] = set()
    twice: dict[Path, None] = {}
    for path, _ in pairs:
        if path in seen:
            twice[path] = None
        seen.add(path)
    if twice:
        message = "expected one leaf, got one from each of several states"
        raise all_problems(
            "NQX429",
            [(format_path(path), message) for path in list(twice)[:SHOWN_PROBLEMS]],
            len(twice),
            "merge states that come from one split, each of them once",
        )
    return pairs


def matches(
    pairs: Iterable[tuple[Path, object]],
    filter: Filter,  # noqa: A002
    report: Report,
) -> list[bool]:
    """Returns for each leaf whether a filter matches it; reports the parts that match no leaf.

    Example:
        >>> matches([(("w",), 1.5), (("step",), 7)], float, None)
        [True, False]
    """
    if report is None:
        predicate = to_predicate(filter)
        return [predicate(path, leaf) for path, leaf in pairs]
    selection = Selection(filter)
    hits = [selection(path, leaf) for path, leaf in pairs]
    report += selection.findings("filter", nothing="warning")
    return hits


def all_problems(code: str, problems: list[tuple[str, str]], total: int, hint: str) -> FilterError:
    """One error for all problems (path and message); the last has the hint, which is the same for all."""
    found = [Diagnostic(code, "error", message, path=path) for path, message in problems]
    path, message = problems[-1]
    if total > len(problems):
        message += f"\n{total - len(problems)} more have the same problem"
    found[-1] = Diagnostic(code, "error", message, path=path, hint=hint)
    return FilterError(found)


def _suspicious(leaves: Leaves, predicates: Sequence[Predicate]) -> Iterator[Diagnostic]:
    """Yields NQX426 for filters that get no leaf, then NQX427 for every two that match the same leaves."""
    hits = [[bool(predicate(*pair)) for pair in leaves] for predicate in predicates]
    first = [found.index(True) if True in found else None for found in zip(*hits, strict=True)]
    judged = [i for i, predicate in enumerate(predicates) if not is_constant(predicate)]
    for i in judged:
        if i in first:
            continue
        message = f"expected leaves for {shown(predicates[i])}, got none"
        hint = "put the more specific filter first"
        if any(hits[i]):
            message += f"\nall that it matches ({sum(hits[i])}) went to filters before it"
        else:
            part = next(unmatched_parts(predicates[i], leaves), None)
            hint = "leave it out" if part is None else part.hint
        yield Diagnostic("NQX426", "warning", message, path=f"filters[{i}]", hint=hint)
    for one, other in combinations(judged, 2):
        both = [
            path for (path, _), *hit in zip(leaves, hits[one], hits[other], strict=True) if all(hit)
        ]
        if both:
            yield Diagnostic(
                "NQX427",
                "info",
                f"expected leaves of its own for {shown(predicates[other])}, got {len(both)} that filters[{one}] "
                f"({shown(predicates[one])}) matches too\nthe first of them is {format_path(both[0])}",
                path=f"filters[{other}]",
                hint=f"filters[{one}] comes first and gets them",
            )
