"""Which fields became which: the candidates of all kinds of steps, tried one after the other, the likely ones first.

Example:
    >>> choose("VMCState", Work(v1, v1)).left
    []
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.evolution import steps as build
from neuralqx_struct.evolution.steps import apply_to_document, inverse, kind
from neuralqx_struct.evolution.steps.operations import MOST_FIELDS, Candidate, Edit
from neuralqx_struct.evolution.suggestions.work import Work, edit_of, with_fields
from neuralqx_struct.schema.migration import Step
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.sizes.comparison import substitute
from neuralqx_struct.schema.sizes.scopes import sizes_of_struct


@dataclass
class Choice:
    """The candidates that were taken, and the others.

    Attributes:
        edit: The fields for which there is none.
        taken: The candidates that say what became of the other fields.
        left: Those that lost against likelier ones.
    """

    edit: Edit
    taken: list[Candidate]
    left: list[Candidate]

    def rivals(self, taken: Candidate) -> Iterator[Candidate]:
        """Yields the renames from the same field, or to it, of which the other end has no other candidate."""
        near = {*self._renames.get(taken.gone, ()), *self._renames.get(taken.come, ())}
        for other in map(self.left.__getitem__, sorted(near)):
            from_another = other.come == taken.come and other.gone[0] in self.edit.gone
            to_another = other.gone == taken.gone and other.come[0] in self.edit.come
            if from_another or to_another:
                yield other

    @cached_property
    def _renames(self) -> dict[tuple[str, ...], list[int]]:
        """The places in `left` of the renames from a field or to it; there may be tens of thousands."""
        places = dict[tuple[str, ...], list[int]]()
        for place, other in enumerate(self.left):
            if len(other.gone) == len(other.come) == 1:
                places.setdefault(other.gone, []).append(place)
                places.setdefault(other.come, []).append(place)
        return places


def choose(name: str, work: Work) -> Choice:
    """What became of the fields of a struct, those that both versions have first; takes the steps."""
    taken, left = [*_kept(name, work)], list[Candidate]()
    for candidate in taken:
        work.have = work.after(candidate.steps) or work.have
    edit = _with_stuck(edit_of(name, work), work)
    for named in (True, False):
        found = [*build.candidates(edit, named=named), *_undone(edit, work, named=named)]
        for candidate in sorted(found, key=lambda each: each.cost):
            if _leads_there(candidate, edit, work):
                work.have = work.after(candidate.steps) or work.have
                _settle(candidate, edit, work)
                taken.append(candidate)
            else:
                left.append(candidate)
    return Choice(edit, taken, left)


def _leads_there(candidate: Candidate, edit: Edit, work: Work) -> bool:
    """True if the steps apply, and lead from fields that are gone to fields as the new version declares them."""
    if not ({*candidate.gone} <= edit.gone.keys() and {*candidate.come} <= edit.come.keys()):
        return False  # a likelier candidate took one of them
    after = work.after(candidate.steps)
    if after is None:
        return False
    stored = after.structs[edit.name].stored
    return all(
        name in stored and work.has(after, edit.name, name, edit.come[name])
        for name in candidate.come
    )


def _settle(candidate: Candidate, edit: Edit, work: Work) -> None:
    """Takes the fields of a candidate out of an edit."""
    for name in candidate.gone:
        del edit.gone[name]
    for name in candidate.come:
        del edit.come[name]
    edit.have = work.have


def _undone(edit: Edit, work: Work, *, named: bool) -> Iterator[Candidate]:
    """Yields the candidates from the new fields to the old ones, undone: a split is a merge that is undone."""
    struct = edit.have.structs[edit.name]
    if not edit.gone or not edit.come:
        return
    kept = {name: d for name, d in struct.fields.items() if name not in edit.gone}
    own = {*edit.have.dims, *sizes_of_struct(edit.have, edit.name)}
    names = {name: size for name, size in edit.known.items() if name not in own}
    turned = {n: d.with_type(substitute(d.declared, names)) for n, d in edit.come.items()}
    start = with_fields(edit.have, edit.name, {**kept, **turned})
    back = Work(start, edit.have, budget=work.budget)
    turned_edit = _with_stuck(edit_of(edit.name, back), back)
    for candidate in build.candidates(turned_edit, named=named, undone=True):
        steps = _inverted(candidate.steps, start, edit.have)
        if steps is not None:
            ends = (candidate.come, candidate.gone)
            yield Candidate(*ends, steps, candidate.cost, candidate.question)
    work.budget = back.budget


def _inverted(steps: Iterable[Step], start: Document, target: Document) -> tuple[Step, ...] | None:
    """The steps that undo some steps; None where one of them cannot be undone."""
    found: list[Step] = []
    try:
        for step in steps:
            after = apply_to_document(start, step, target)
            found = [*inverse(step, start, after), *found]
            start = after
    except SchemaError:
        return None
    return tuple(found)


def _kept(name: str, work: Work) -> Iterator[Candidate]:
    """Yields fields that both versions have, with the steps that change their type."""
    old, new = work.have.structs[name].stored, work.want.structs[name].stored
    for each, wanted in new.items():
        if each not in old:
            continue
        if work.has(work.have, name, each, wanted):
            yield Candidate((each,), (each,), ())
            continue
        ways = [*islice(work.ways_to(name, each, wanted, work.have), 2)]
        if ways:
            asked = len(ways) > 1 or any(kind(step).question(wanted) for step in ways[0])
            question = "how did it change?" if asked else ""
            yield Candidate((each,), (each,), tuple(ways[0]), question=question)


# ---------------------------------------------------------------------------------------------------------------------
# Edits.


def _with_stuck(edit: Edit, work: Work) -> Edit:
    """The edit with the fields, too, that both versions have, and to whose type in the new one no steps lead."""
    old, new = edit.have.structs[edit.name].stored, work.want.structs[edit.name].stored
    if len(edit.gone) + len(edit.come) <= MOST_FIELDS:
        for each in [each for each in old if each in new]:
            if not work.is_reached(edit.name, each):
                edit.gone[each], edit.come[each] = old[each], new[each]
    return edit
