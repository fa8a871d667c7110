"""Refusals: the reasons why payloads of one version cannot be loaded by another one.

They follow from the plans of loading (``plans.py``) and the declarations after each step, without any payload.

Example:
    >>> [*refusals(series, series.at(1), series.at(3), "error", steps=True)]
    []
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import zip_longest

from neuralqx_struct.errors import Diagnostic, MigrationError, SchemaError
from neuralqx_struct.evolution.changes import LIMITS, Direction
from neuralqx_struct.evolution.diff import diff_documents
from neuralqx_struct.evolution.differences import differ_in_sizes, differences, unproved
from neuralqx_struct.evolution.held_structs import beyond_root, held_structs
from neuralqx_struct.evolution.plans import Hop, Unknown, plan
from neuralqx_struct.evolution.proof import defaulted, resolved, result_of, settled
from neuralqx_struct.evolution.steps import apply_to_document
from neuralqx_struct.evolution.value_limits import broken_limits
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.series import Series
from neuralqx_struct.schema.sizes.scopes import start_of


def refusals(
    known: Series,
    writer: Document,
    reader: Document,
    unknown: Unknown,
    *,
    steps: bool,
    roots: Iterable[str] | None = None,
) -> Iterator[Diagnostic]:
    """Yields the reasons why payloads of one version cannot be loaded by another one.

    Args:
        known: The versions with their steps.
        writer: The version that wrote.
        reader: The version that reads.
        unknown: The load policy for stored fields that the reader lacks.
        steps: Count declared steps.
        roots: The structs of the reader that payloads hold; by default its root.
    """
    old, new = sorted((writer, reader), key=lambda document: document.version)
    direction: Direction = "backward" if new is reader else "forward"
    code = "NQX270" if new is reader else "NQX271"
    try:
        if steps:
            yield from _by_steps(known, writer, reader, unknown, code)
        else:
            yield from _alone(writer, reader, unknown, code)
    except (MigrationError, SchemaError) as error:
        yield from error.diagnostics
    between = known.documents.values() if steps else ()
    yield from broken_limits(old, new, direction, between, roots)
    for identity, used in reader.used.items():
        start = writer.used.get(identity)
        if start is not None and start.version != used.version and identity in known.others:
            own, held = known.others[identity], held_structs(reader, used, roots)
            for each in (
                *refusals(own, start, used, unknown, steps=steps, roots=held),
                *beyond_root(own, start, used, unknown, held),
            ):
                message = f"{each.path} of {identity}: {each.message}"
                yield replace(each, path="$.uses", file=None, line=None, message=message)


def _by_steps(
    known: Series, writer: Document, reader: Document, unknown: Unknown, limit: str
) -> Iterator[Diagnostic]:
    hops = plan(known, writer.version, reader.version, unknown=unknown).hops
    have = start = writer
    for hop, following in zip_longest(hops, hops[1:]):
        # Sizes that were not checked go on.
        result = result_of(hop.stages, start) if start is hop.old else _carried(start, hop)
        last = following is None or not following.only_renames
        if following is not None and following.ignores_sizes and last:
            last = not differ_in_sizes(result, hop.new)
        have = result_of(hop.stages, have) if have is hop.old else _carried(have, hop)
        found = [*_of_hop(result, hop.new, last=last)]
        start = hop.new if last else settled(result, hop.new)
        if following is None or not following.ignores_sizes:  # nothing checks the sizes in between
            found += [fact.to_diagnostic(limit) for fact in unproved(have, hop.new)]
            have = hop.new
        source = known.sources.get(max(hop.old.version, hop.new.version))
        for each in found:
            yield each if source is None else source.located(each)


def _carried(have: Document, hop: Hop) -> Document:
    """The declaration after a hop that starts from less than its version; only sizes matter, which its steps ignore."""
    made = start_of(have, hop.new) if hop.steps else have
    for step in hop.steps:
        with suppress(SchemaError):  # it renames members that no payload has
            made = apply_to_document(made, step, hop.new)
    return made


def _of_hop(result: Document, wanted: Document, *, last: bool) -> Iterator[Diagnostic]:
    """Yields the findings about the result of one hop, with paths in the newer of its versions."""
    yield from defaulted(result, wanted)
    # A downgrade may still be refused by the data, where the newer version allows more values. Between two hops nothing
    # checks them but for the members of enums, unless a step needs the declaration.
    for problem in differences(result, wanted):
        if not last and problem.path[:1] != ("enums",):
            continue
        hint = "a downgrade is refused where a payload makes use of the difference"
        yield replace(problem, hint=hint).to_diagnostic("NQX307")


def _alone(
    writer: Document, reader: Document, unknown: Unknown, limit: str
) -> Iterator[Diagnostic]:
    """Yields the findings about two documents without any steps: Avro's resolution, with exact promotion alone."""
    old, new = sorted((writer, reader), key=lambda document: document.version)
    codes: dict[str, str] = {}
    for change in diff_documents(old, new):
        if change.direction != "none" and change.code not in LIMITS:
            codes.setdefault(change.path, change.code)
    made = resolved(writer, reader, drop=unknown != "error")
    yield from defaulted(made.document, reader)
    for problem in made.problems:
        code = "NQX210"
        if problem.missing:
            code = "NQX202" if reader is new else "NQX203"
        found = problem.to_diagnostic("NQX415")
        yield found if problem.extra else replace(found, code=codes.get(found.path, code))
    for fact in unproved(made.document, reader):
        yield fact.to_diagnostic(limit)
