"""Counterexamples: payloads of one version that another one does not read.

``schema/sizes/proofs.py`` proves facts about sizes, but not every one that is true. :func:`counterexample` tries payloads: a
load compares sizes that are polynomials of the free sizes of a payload. Two that differ have the same value at few points
(Schwartz, J. ACM 27 (1980), lemma 1), so random sizes far from zero show it, and bounds are met by small ones. The payloads
have shapes, but no bytes.

Example:
    >>> counterexample(series, series.at(1), series.at(3), "error")
    []
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple, TypeAlias

from neuralqx_struct.errors import Diagnostic, StructError
from neuralqx_struct.evolution.migrations import resolve
from neuralqx_struct.evolution.plans import Unknown
from neuralqx_struct.expressions.polynomials import polynomial
from neuralqx_struct.schema.conformance import conform_node
from neuralqx_struct.schema.field_paths import once
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.samples import Place, places_of, samples_of
from neuralqx_struct.schema.series import Series
from neuralqx_struct.schema.sizes.scopes import given_sizes
from neuralqx_struct.types import walk_type


class _Effort(NamedTuple):
    """How much is tried.

    Attributes:
        payloads: How many payloads have to be read.
        tries: How many may be drawn for them.
        work: The structs and arrays in all of them.
        each: The payloads that have to show each size.
    """

    payloads: int
    tries: int
    work: int
    each: int


_CHECK = _Effort(25, 100, 2_000, 0)  # of a proof
_DECISION = _Effort(100, 400, 32_000, 5)  # where there is none
_HIGHEST = 12  # bound of a dim that random sizes are sure to pass

_Key: TypeAlias = tuple[tuple[int, ...], int, int, bool, Unknown]
_TRIED: dict[_Key, tuple[list[Document], list[Diagnostic] | None]] = {}
_MOST_TRIED = 64


def counterexample(
    known: Series, writer: Document, reader: Document, unknown: Unknown, *, proved: bool = False
) -> list[Diagnostic] | None:
    """The problems of a payload that is not read; none if all of many are, with each size of the writer in several of them.

    A payload that a step refuses because of its values is none: lint names such steps.

    Args:
        known: The versions with their steps.
        writer: The version whose payloads are drawn.
        reader: The version that reads them.
        unknown: The load policy for stored fields that the reader lacks.
        proved: Whether a proof found that all payloads are read: fewer are tried.

    Returns:
        None where drawing decides nothing: sizes that are no polynomials, high bounds, pytrees, functions, and constraints
        that few values keep.
    """
    others = (each for series in known.others.values() for each in series.documents.values())
    documents = [*known.documents.values(), *others]
    pair = (tuple(map(id, documents)), writer.version, reader.version, proved)
    strict = _TRIED.get((*pair, "error"), (documents, None))[1]
    if strict is not None:  # the same for the other policies, where nothing is left out
        return strict
    kept = _TRIED.get((*pair, unknown))
    if kept is None:
        decidable = all(map(_is_decidable, documents))
        effort = _CHECK if proved else _DECISION
        found = _try(known, writer, reader, unknown, effort) if decidable else None
        kept = documents, found  # no others have their ids
        if len(_TRIED) >= _MOST_TRIED:
            _TRIED.clear()
        _TRIED[*pair, unknown] = kept
    return kept[1]


def _try(
    known: Series, writer: Document, reader: Document, unknown: Unknown, effort: _Effort
) -> list[Diagnostic] | None:
    samples = samples_of(writer)
    places = places_of(writer)
    shown: Counter[Place] = Counter()
    read = work = 0
    for number in range(effort.tries):
        sample = samples.at(number)
        work += sample.size
        if work > effort.work:
            break
        if sample.payload is None:
            continue
        shown.update(sample.places)
        try:
            result = resolve(sample.payload, known, to=reader.version, unknown=unknown)
        except StructError:
            continue
        refused = [
            found
            for found in conform_node(reader, result.document["manifest"])
            if found.severity == "error" and found.code != "NQX115"
        ]
        if refused:
            return refused
        read += 1
        if read >= effort.payloads and all(shown[place] >= effort.each for place in places):
            return []
    return None


@once
def sized_facts(document: Document) -> dict[object, object]:
    """The sizes, dims and parameters of a document by place, for comparison with another one."""
    facts: dict[object, object] = {"": given_sizes(document)}
    facts |= {(name,): (dim.equals, dim.min, dim.max) for name, dim in document.dims.items()}
    for name, struct in document.structs.items():
        facts[name] = struct.params
        for key, declaration in struct.stored.items():
            if any(part.extents or part.arguments for part in walk_type(declaration.declared)):
                facts[name, key] = declaration.declared
    return facts


@once
def _is_decidable(document: Document) -> bool:
    """True if payloads can be drawn, and have only sizes that random ones tell apart."""
    bounds = [bound or 0 for dim in document.dims.values() for bound in (dim.min, dim.max)]
    sizes = [dim.equation for dim in document.dims.values() if dim.equation is not None]
    for struct in document.structs.values():
        for declaration in struct.stored.values():
            for part in walk_type(declaration.declared):
                named = not part.refers or document.is_struct(part.refers)
                if part.takes_all or not (named or document.members_of(part.refers)):
                    return False
                sizes += [s for s in (*part.extents, *part.arguments) if s is not ...]
    forms = (polynomial(size, {}) for size in sizes)
    atoms = {atom for form in forms for atoms in form for atom in atoms}
    return max(bounds, default=0) <= _HIGHEST and all(map(str.isidentifier, atoms))
