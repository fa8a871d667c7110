"""The steps rename and rename_path: a field, or an entry inside one, gets another name. They read no array.

Example:
    >>> step = rename(field="h", to="field")
    >>> "field" in RENAME.declare(step, Scope.of(step, v1, v2)).structs["VMCState"].fields
    True
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice, product

from neuralqx_struct.errors import Diagnostic
from neuralqx_struct.evolution.payload_tree import Place, at_each, holds_only, is_params, put, taken
from neuralqx_struct.evolution.steps.operations import (
    LIKELY,
    MOST_PAIRS,
    Candidate,
    Edit,
    Scope,
    StepKind,
    builder,
    instances_of,
    keys_of,
    likeness,
    may_stop,
    refuse,
    refuse_same,
    type_inside,
)
from neuralqx_struct.paths import Path
from neuralqx_struct.schema.migration import Rename, RenamePath, Step
from neuralqx_struct.schema.model import Document, FieldDeclaration
from neuralqx_struct.schema.sizes.comparison import same_type
from neuralqx_struct.types import Node, walk_type
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


# ---------------------------------------------------------------------------------------------------------------------
# rename_path


def _rename_path(step: RenamePath, scope: Scope) -> Document:
    """The declaration itself: the types at both paths must be equal."""
    first, second = (type_inside(step, scope, member) for member in ("path", "to"))
    if keys_of(step.path) == keys_of(step.to):
        refuse("NQX306", "to", "expected another path, got the same", "remove the step")
    if first != second:
        message = f"expected a path to {format_type(first)}, as the other is, got one to {format_type(second)}"
        refuse("NQX306", "to", message)
    return scope.document


def _rename_path_payload(step: RenamePath, place: Place) -> Node:
    path, to = keys_of(step.path), keys_of(step.to)

    def change(node: Node, at: Path) -> Node:
        moved, rest = taken(node, path, place, at)
        if path[: len(to)] == to and not is_params(node):
            around, left = taken(rest, to, place, at)
            if holds_only(around, path[len(to) : -1]):  # the value takes its place
                rest = left
        return put(rest, to, moved, place, at)

    return at_each(step, place, change)


def _review_path(step: RenamePath, _: Scope) -> Iterator[Diagnostic]:
    """Yields NQX320: the declaration does not have the paths."""
    path, to = ("/".join(keys_of(each)) for each in (step.path, step.to))
    where = f"without {instances_of(step)}{path}, or with {to}"
    yield may_stop(where, "path")


rename_path = builder(RenamePath)
RENAME_PATH = StepKind(
    model=RenamePath,
    declare=_rename_path,
    rewrite=_rename_path_payload,
    inverse=lambda step, *_: [step.model_copy(update={"path": step.to, "to": step.path})],
    cost="manifest",
    review=_review_path,
)
