"""The step rename: a field gets another name. It reads no array.

Example:
    >>> step = rename(field="h", to="field")
    >>> "field" in RENAME.declare(step, Scope.of(step, v1, v2)).structs["VMCState"].fields
    True
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice, product

from neuralqx_struct.evolution.sizes import same_type
from neuralqx_struct.evolution.steps.operations import (
    LIKELY,
    MOST_PAIRS,
    Candidate,
    Edit,
    Scope,
    StepKind,
    builder,
    likeness,
    refuse_same,
)
from neuralqx_struct.schema.migration import Rename, Step
from neuralqx_struct.schema.model import Document, FieldDeclaration
from neuralqx_struct.types import walk_type
from neuralqx_struct.types.text import format_type


def _rename(step: Rename, scope: Scope) -> Document:
    declaration = scope.field(step.field)
    if step.field == step.to:
        refuse_same("to", step.field)
    scope.require_free(step.to, "to")
    renamed = scope.adopt(step.to, declaration.declared, declaration)
    return scope.replaced((step.field,), {step.to: renamed}).retied(declaration, renamed)


rename = builder(Rename)

# ---------------------------------------------------------------------------------------------------------------------
# Candidates.


def _candidates(edit: Edit, *, named: bool) -> Iterator[Candidate]:
    """Yields renames: with ``named`` those that the names show, else those of one type whatever the names."""
    gone, come = [*edit.gone.items()], [*edit.come.items()]
    if len(gone) * len(come) > MOST_PAIRS:  # some of them, in the order of their declarations
        most = MOST_PAIRS // max(len(gone), len(come))
        pairs = [*islice(zip(gone, come, strict=False), most)]
        pairs = [(a, b) for a, b in pairs if same_type(a[1].declared, b[1].declared, edit.known)]
    else:
        pairs = [(a, b) for a, b in product(gone, come) if a[0] != b[0]]
    if named:
        for (a, old), (b, new) in pairs:
            is_alias = a in new.aliases
            alike = 1.0 if is_alias else likeness(a, old, b, new)
            if alike >= LIKELY:
                same = same_type(old.declared, new.declared, edit.known)
                cost = 0.0 if is_alias else (0.3 if same else 0.5) + (1 - alike) / 10
                for candidate in _renamed(edit, a, b, cost):
                    yield candidate if not is_alias else _sure(candidate)
        return
    changed: list[Candidate] = []
    for (a, old), (b, new) in pairs:
        if same_type(old.declared, new.declared, edit.known):
            yield from _renamed(edit, a, b, 0.6)
        elif edit.is_small and _is_shown(a, old, b, new):
            changed += islice(_renamed(edit, a, b, 0.7, most=1), 1)
    counts = Counter(name for each in changed for name in (*each.gone, *each.come))
    yield from (c for c in changed if counts[c.gone[0]] == counts[c.come[0]] == 1)


def _sure(candidate: Candidate) -> Candidate:
    """The candidate without a question: an alias answers it."""
    return Candidate(candidate.gone, candidate.come, candidate.steps, candidate.cost)


def _renamed(edit: Edit, a: str, b: str, cost: float, most: int = 2) -> Iterator[Candidate]:
    """Yields the steps that rename a field, and at most ``most`` others where the types differ."""
    step = rename(field=a, to=b, **edit.place)
    old, wanted = edit.gone[a], edit.come[b]
    same = same_type(old.declared, wanted.declared, edit.known)
    # Most of many pairs lose one of their fields to a likelier one, so the step is not tried here.
    ways: Iterable[list[Step]] = [[]] if same else edit.change(b, wanted, (step,))
    for more in ways:
        if len(more) > most:
            return
        became = f", now {format_type(wanted.declared)}" if more else ""
        question = f", of type {format_type(old.declared)}{became}: was it renamed?"
        yield Candidate((a,), (b,), (step, *more), cost, question)


def _is_shown(a: str, old: FieldDeclaration, b: str, new: FieldDeclaration) -> bool:
    """True if two types show that a field may have become another; numbers and texts are too common for that."""
    both = (old.declared, new.declared)
    structs = [{inner.refers for inner in walk_type(each)} - {""} for each in both]
    arrays = [any(inner.axes for inner in walk_type(each)) for each in both]
    shared = not structs[0].isdisjoint(structs[1]) or any(each.key_impl for each in both)
    words = [{w.rstrip("s") for w in name.lower().split("_") if len(w) > 2} for name in (a, b)]
    return all(arrays) or shared or not words[0].isdisjoint(words[1])


RENAME = StepKind(
    model=Rename,
    declare=_rename,
    rewrite=lambda step, place: place.swapped((step.field,), {step.to: place.field(step.field)}),
    inverse=lambda step, *_: [Rename(field=step.to, to=step.field)],
    cost="manifest",
    carried=lambda step: (step.field, step.to),
    places=lambda step: {(step.field,): (step.to,)},
    renames_field=True,
    candidates=_candidates,
)
