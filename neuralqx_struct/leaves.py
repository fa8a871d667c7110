"""Groups of leaves: split and merge by filters, partition and combine with None where a leaf went elsewhere.

Works on what a tree was flattened to, ``(path, leaf)`` pairs, and knows no tree itself: JAX pytrees, plain containers
and manifests are handed in alike. Inverse functions stand side by side. What a filter means is decided by
``filters.py``; taking trees apart and rebuilding them is left to the caller.

Example:
    >>> leaves = [(("params", "w"), 1.5), (("params", "b"), 0.5), (("step",), 7)]
    >>> floats, rest = split_leaves(leaves, float, ...)
    >>> floats
    [(('params', 'w'), 1.5), (('params', 'b'), 0.5)]
    >>> dict(merge_leaves(floats, rest)) == dict(leaves)
    True
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, combinations
from typing import TypeVar

from neuralqx_struct.errors import Diagnostic, Severity
from neuralqx_struct.filters import (
    Everything,
    Filter,
    FilterError,
    Nothing,
    Predicate,
    filters_to_predicates,
    to_predicate,
)
from neuralqx_struct.filters.algebra import shown
from neuralqx_struct.filters.misses import misses
from neuralqx_struct.paths import Path, format_path

__all__ = ["Selection", "combine_leaves", "match_leaves", "merge_leaves", "partition_leaves", "split_leaves"]

T = TypeVar("T")

_SHOWN_PROBLEMS = 20  # a forgotten filter leaves thousands of leaves over; the first ones tell the story


def split_leaves(
    pairs: Iterable[tuple[Path, T]], *filters: Filter, report: list[Diagnostic] | None = None
) -> tuple[list[tuple[Path, T]], ...]:
    """Sort leaves into one group per filter; the first filter that matches a leaf gets it.

    Args:
        pairs: The leaves with their paths; their order is kept within each group.
        *filters: What :func:`~neuralqx_struct.filters.to_predicate` takes, ``...`` last; none at all means ``...``.
        report: A list that gets NQX426 for each filter that ends up without leaves and NQX427 for each two filters
            that match the same leaves. Every filter is then asked about every leaf. ``...`` and None are never
            reported: they say that they take the rest and nothing.

    Returns:
        The groups, one for each filter.

    Raises:
        FilterError: A leaf matches no filter, or a filter stands behind ``...``; it is a ValueError.
        TypeError: One of ``filters`` is not a filter.
    """
    leaves = list(pairs)
    filters = filters or (...,)
    groups: tuple[list[tuple[Path, T]], ...] = tuple([] for _ in filters)
    for pair, which in zip(leaves, match_leaves(leaves, *filters, report=report), strict=True):
        groups[which].append(pair)
    return groups


def match_leaves(
    pairs: Iterable[tuple[Path, object]], *filters: Filter, report: list[Diagnostic] | None = None
) -> list[int]:
    """For each leaf the position of the first filter that matches it; arguments and errors as :func:`split_leaves`.

    Example:
        >>> match_leaves([(("w",), 1.5), (("step",), 7)], float, ...)
        [0, 1]
    """
    leaves = list(pairs)
    predicates = tuple(enumerate(filters_to_predicates(filters)))
    found: list[int] = []
    unmatched: list[tuple[Path, object]] = []
    for path, leaf in leaves:
        for which, predicate in predicates:
            if predicate(path, leaf):
                found.append(which)
                break
        else:
            unmatched.append((path, leaf))
    if report is not None:
        report.extend(_findings(leaves, [predicate for _, predicate in predicates]))
    if unmatched:
        told = ", ".join(shown(predicate) for _, predicate in predicates)
        raise _all_problems(
            [
                Diagnostic(
                    "NQX428",
                    "error",
                    f"expected a leaf that one of the filters matches, got a {type(leaf).__name__} that none does",
                    path=format_path(path),
                )
                for path, leaf in unmatched[:_SHOWN_PROBLEMS]
            ],
            len(unmatched),
            hint=f"the filters are {told}; add `...` behind them for the rest",
        )
    return found


class Selection:
    """A filter that chooses from leaves one by one, as a reader meets them, and tells afterwards what it did not find.

    Example:
        >>> selection = Selection("tag")
        >>> selection(("w",), 1.5)
        False
        >>> [finding.hint for finding in selection.findings("select=")]
        ['no leaf here has a tag']
    """

    def __init__(self, filter: Filter) -> None:  # noqa: A002
        self.predicate = to_predicate(filter)
        self.asked: list[tuple[Path, object]] = []
        self.found = False

    def __call__(self, path: Path, leaf: object) -> bool:
        """True if the leaf is chosen."""
        self.asked.append((path, leaf))
        chosen = bool(self.predicate(path, leaf))
        self.found = self.found or chosen
        return chosen

    def findings(self, where: str, *, nothing: Severity = "error") -> list[Diagnostic]:
        """NQX426 for each part of the filter that looked in vain: for information, where other parts chose something.

        Nothing is said of a filter that was asked for no leaf, and of None and False, which mean to choose nothing.

        Args:
            where: What the filter was given as.
            nothing: How bad it is if the filter has chosen nothing.
        """
        if not self.asked or isinstance(self.predicate, Nothing):
            return []
        return [
            Diagnostic(
                "NQX426",
                "info" if self.found else nothing,
                f"expected {miss.expected}, got none among {len(self.asked):,}",
                path=where,
                hint=miss.hint,
            )
            for miss in misses(self.predicate, self.asked)
            if self.found or not miss.excluded
        ]


def merge_leaves(*states: Iterable[tuple[Path, T]]) -> list[tuple[Path, T]]:
    """The leaves of several groups as one; the inverse of :func:`split_leaves` up to the order of the leaves.

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
        raise _all_problems(
            [
                Diagnostic(
                    "NQX429", "error", "expected one leaf, got one from each of several states", path=format_path(p)
                )
                for p in list(twice)[:_SHOWN_PROBLEMS]
            ],
            len(twice),
            hint="merge states that come from one split, each of them once",
        )
    return pairs


def partition_leaves(
    pairs: Iterable[tuple[Path, T]],
    filter: Filter,  # noqa: A002
    *,
    report: list[Diagnostic] | None = None,
) -> tuple[list[T | None], list[T | None]]:
    """The leaves that match and the others, each list as long as the input, with None where the other has the leaf.

    Args:
        pairs: The leaves with their paths.
        filter: What :func:`~neuralqx_struct.filters.to_predicate` takes.
        report: A list that gets NQX426 for the parts of the filter that match no leaf.

    Raises:
        TypeError: ``filter`` is not a filter.

    Example:
        >>> partition_leaves([(("w",), 1.5), (("step",), 7)], float)
        ([1.5, None], [None, 7])
    """
    predicate = to_predicate(filter) if report is None else Selection(filter)
    kept: list[T | None] = []
    rest: list[T | None] = []
    for path, leaf in pairs:
        matches = predicate(path, leaf)
        kept.append(leaf if matches else None)
        rest.append(None if matches else leaf)
    if isinstance(predicate, Selection) and report is not None:
        report.extend(predicate.findings("filter", nothing="warning"))
    return kept, rest


def combine_leaves(*parts: Sequence[T | None], paths: Callable[[], Sequence[Path]] | None = None) -> list[T | None]:
    """Fill the holes: at each position the one leaf that is not None; the inverse of :func:`partition_leaves`.

    Args:
        *parts: Lists of equal length with None as holes; where all have a hole, so has the result.
        paths: Called for the paths of the positions when an error is to name them.

    Raises:
        FilterError: Two parts have a leaf at one position, or the lengths differ; it is a ValueError.

    Example:
        >>> combine_leaves([1.5, None], [None, 7])
        [1.5, 7]
    """
    if len({len(part) for part in parts}) > 1:
        lengths = ", ".join(str(len(part)) for part in parts)
        raise FilterError(
            f"expected parts of one length, got {lengths}",
            code="NQX429",
            path="combine",
            hint="combine parts that come from one partition",
        )
    combined: list[T | None] = []
    clashes: list[int] = []
    for position, candidates in enumerate(zip(*parts, strict=True)):
        present = [leaf for leaf in candidates if leaf is not None]
        combined.append(present[0] if present else None)
        if len(present) > 1:
            clashes.append(position)
    if clashes:
        names = None if paths is None else paths()
        raise _all_problems(
            [
                Diagnostic(
                    "NQX429",
                    "error",
                    "expected a leaf in one part and None in the others, got several leaves",
                    path=f"leaf {position}" if names is None else format_path(names[position]),
                )
                for position in clashes[:_SHOWN_PROBLEMS]
            ],
            len(clashes),
            hint="combine parts that come from one partition, each of them once",
        )
    return combined


def _all_problems(first: list[Diagnostic], total: int, *, hint: str) -> FilterError:
    """One error for all problems; the hint stands at the end, for it is the same for all."""
    last = first[-1]
    more = f"\n{total - len(first)} more have the same problem" if total > len(first) else ""
    return FilterError([*first[:-1], Diagnostic(last.code, "error", last.message + more, path=last.path, hint=hint)])


def _findings(leaves: Sequence[tuple[Path, object]], predicates: Sequence[Predicate]) -> list[Diagnostic]:
    """What makes filters suspicious: those that get no leaf, and those that want the same leaves."""
    judged = [i for i, predicate in enumerate(predicates) if not isinstance(predicate, (Everything, Nothing))]
    matched, taken = [0] * len(predicates), [0] * len(predicates)
    shared: dict[tuple[int, int], list[Path]] = {pair: [] for pair in combinations(judged, 2)}
    for path, leaf in leaves:
        hits = [i for i, predicate in enumerate(predicates) if predicate(path, leaf)]
        for i in hits:
            matched[i] += 1
        for i in hits[:1]:
            taken[i] += 1
        for pair in combinations(hits, 2):
            if pair in shared:
                shared[pair].append(path)
    findings = [
        Diagnostic(
            "NQX426",
            "warning",
            f"expected leaves for {shown(predicates[i])}, got none"
            + (f"\nall that it matches ({matched[i]}) went to filters before it" if matched[i] else ""),
            path=f"filters[{i}]",
            hint="put the more specific filter first"
            if matched[i]
            else next((miss.hint for miss in misses(predicates[i], leaves)), "leave it out"),
        )
        for i in judged
        if not taken[i]
    ]
    findings += [
        Diagnostic(
            "NQX427",
            "info",
            f"expected leaves of its own for {shown(predicates[second])}, got {len(paths)} that filters[{first}] "
            f"({shown(predicates[first])}) matches too\nthe first of them is {format_path(paths[0])}",
            path=f"filters[{second}]",
            hint=f"filters[{first}] stands first and gets them",
        )
        for (first, second), paths in shared.items()
        if paths
    ]
    return findings
