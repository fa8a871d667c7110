"""Structs of a schema that payloads of another schema hold, beside its root: its own verdict is about trees from the root on.

Example:
    >>> sorted(held_structs(v3, v3))  # where the schema is its own user
    ['Optimizer', 'Sampler']
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import zip_longest

from neuralqx_struct.errors import Diagnostic, MigrationError, SchemaError
from neuralqx_struct.evolution.differences import differences, unproved
from neuralqx_struct.evolution.plans import Unknown, plan
from neuralqx_struct.evolution.proof import result_of
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.series import Series
from neuralqx_struct.schema.sizes.scopes import named_from_root, reachable
from neuralqx_struct.types import walk_type


def held_structs(
    document: Document, used: Document, roots: Iterable[str] | None = None
) -> set[str]:
    """The structs of a used document that payloads of its user hold in fields; in a pytree, all."""
    found: set[str] = set()
    for holder in named_from_root(document, pytrees=True, roots=roots)[0]:
        for declaration in document.structs[holder].stored.values():
            for inner in walk_type(declaration.declared):
                owner, name = document.place_of(inner.refers)
                if inner.takes_all:
                    found |= used.structs.keys()
                elif owner is used and name in used.structs:
                    found.add(name)
    return found


def beyond_root(
    known: Series, writer: Document, reader: Document, unknown: Unknown, held: Iterable[str]
) -> Iterator[Diagnostic]:
    """Yields the findings about structs that other schemas hold: aliases, defaults and promotion do not reach all of them.

    Each instance has sizes of its own.

    Args:
        known: The versions with their steps.
        writer: The version that wrote.
        reader: The version that reads.
        unknown: The load policy for stored fields that the reader lacks.
        held: The structs of the reader that payloads of its user hold.
    """
    try:
        hops = plan(known, writer.version, reader.version, unknown=unknown).hops
    except (MigrationError, SchemaError):
        return  # reported by its own versions
    limit = "NQX270" if reader.version > writer.version else "NQX271"
    for hop, following in zip_longest(hops, hops[1:]):
        result = result_of(hop.stages, hop.old)
        seen = reachable(hop.new)[0]
        for name in sorted({*held} & result.structs.keys() & hop.new.structs.keys()):
            have, want = (each.model_copy(update={"root": name}) for each in (result, hop.new))
            # The schema's own verdict is about the parameters that it gives, others may give other sizes.
            compared = name in seen and not hop.new.structs[name].params
            for problem in () if compared else differences(have, want):
                if not problem.extra or unknown == "error":
                    hint = f"write a step `in: {problem.struct or name}` of {reader.id}"
                    yield replace(problem, hint=hint).to_diagnostic("NQX301")
            if name != hop.new.root and (following is None or following.stages):
                for fact in unproved(have, want):
                    if fact.path[:1] == ("dims",):
                        yield fact.to_diagnostic(limit)
