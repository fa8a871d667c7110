"""Flat declarations: fields of nested structs beside those of the struct that holds them.

Fields move between a struct and those in it under any names and with any other change. So both declarations are flattened:
the fields of a nested struct that only one version has lie beside those of the struct. The steps between the flat
declarations are found as for any struct; ``inline`` steps go before them and ``move`` steps behind.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.evolution import steps as build
from neuralqx_struct.evolution.steps.operations import Candidate
from neuralqx_struct.evolution.suggestions.work import Place, Work, place_of, with_fields
from neuralqx_struct.expressions import Expression
from neuralqx_struct.schema.migration import Step
from neuralqx_struct.schema.model import Document, FieldDeclaration
from neuralqx_struct.schema.sizes.comparison import (
    binding,
    equations,
    readable_as,
    same_type,
    substitute,
)
from neuralqx_struct.schema.sizes.scopes import sizes_in, sizes_of_struct
from neuralqx_struct.types import Type, walk_type

_MOST_HOLDERS = 16  # nested structs that are flattened at once


@dataclass(slots=True, eq=False)
class Holder:
    """A field that holds a struct, and the fields of that struct which lie beside it in a flat declaration.

    Attributes:
        name: The field; one of a flattened struct has its name in the flat declaration.
        struct: The struct.
        declared: The type of the field.
        whole: True if the other version has no such field.
        leaves: The fields of the struct.
        outer: The holder in whose struct the field is, and its name there; None for a field of the flattened struct.
        flat: The names of ``leaves``, and those that they have in the flat declaration.
    """

    name: str
    struct: str
    declared: Type
    whole: bool
    leaves: list[str]
    outer: tuple[Holder, str] | None = None
    flat: dict[str, str] = field(default_factory=dict)

    @property
    def around(self) -> list[Holder]:
        """The holder, and those that it lies in."""
        return [self, *(self.outer[0].around if self.outer else ())]

    def types(self, document: Document) -> dict[str, Type]:
        """The types of ``leaves`` where the field is; without those whose sizes become too long."""
        struct = document.structs[self.struct]
        bind = binding(document, self.declared)
        found = {}
        for leaf in self.leaves:
            with contextlib.suppress(SchemaError):
                found[leaf] = substitute(struct.stored[leaf].declared, bind)
        return found

    def inlined(self, names: Sequence[str], there: Iterable[str], within: str | None) -> list[Step]:
        """The steps that lay some fields of the struct beside it, past others of the same names."""
        inline = build.inline(field=self.name, fields=names, within=within)
        flat = [(leaf, self.flat[leaf]) for leaf in names if self.flat[leaf] != leaf]
        steps = [inline, *(build.rename(field=a, to=b, within=within) for a, b in flat)]
        return self._past_others(names, there, steps, within)

    def moved(self, names: Sequence[str], there: Iterable[str], within: str | None) -> list[Step]:
        """The steps that undo :meth:`inlined`."""
        flat = [(self.flat[leaf], leaf) for leaf in names if self.flat[leaf] in {*there} - {leaf}]
        move = build.move(fields=names, into=self.name, struct=self.struct, within=within)
        steps = [*(build.rename(field=a, to=b, within=within) for a, b in flat), move]
        return self._past_others([leaf for _, leaf in flat], there, steps, within)

    def _past_others(
        self, names: Iterable[str], there: Iterable[str], steps: Iterable[Step], within: str | None
    ) -> list[Step]:
        """Steps that need some names, with the fields that have these names put aside before and put back behind."""
        aside = [(name, f"{name}_before_{self.name}") for name in {*there}.intersection(names)]
        return [
            *(build.rename(field=a, to=b, within=within) for a, b in sorted(aside)),
            *steps,
            *(build.rename(field=b, to=a, within=within) for a, b in sorted(aside)),
        ]


@dataclass(slots=True)
class Group:
    """Candidates between flat declarations that have to be taken together, as they share structs."""

    candidates: list[Candidate]
    leaving: list[Holder]
    coming: list[Holder]

    @property
    def is_flat(self) -> bool:
        """True if no nested struct has a part in it."""
        return not self.leaving and not self.coming

    @property
    def is_single(self) -> bool:
        """True for a candidate of one field to one, both in the struct itself."""
        (first, *others) = self.candidates
        return self.is_flat and not others and len(first.gone) == len(first.come) == 1

    def shares(self, other: Group) -> bool:
        """True if one struct has a part in both."""
        holders = {*self.leaving, *self.coming}
        return not holders.isdisjoint((*other.leaving, *other.coming))

    def join(self, other: Group) -> Group:
        """Both as one."""
        return Group(
            [*other.candidates, *self.candidates],
            [*dict.fromkeys([*self.leaving, *other.leaving])],
            [*dict.fromkeys([*self.coming, *other.coming])],
        )

    @property
    def names(self) -> tuple[list[str], list[str]]:
        """The fields that are gone and those that are new, those of nested structs with the fields that hold these."""
        old = {flat: f"{h.name}.{leaf}" for h in self.leaving for leaf, flat in h.flat.items()}
        new = {flat: f"{h.name}.{leaf}" for h in self.coming for leaf, flat in h.flat.items()}
        gone = [old.get(each, each) for c in self.candidates for each in c.gone]
        come = [new.get(each, each) for c in self.candidates for each in c.come]
        return gone, come

    def places(self, name: str) -> Iterator[Place]:
        """Yields the places of the fields that a group in a struct is about."""
        holders = (*self.leaving, *self.coming)
        inside = [(h, leaf, flat) for h in holders for leaf, flat in h.flat.items()]
        for candidate in self.candidates:
            for each in (*candidate.gone, *candidate.come):
                yield place_of(name, each)
                yield from (place_of(h.struct, leaf) for h, leaf, flat in inside if flat == each)
        yield from (place_of(name, holder.name) for holder in holders if holder.whole)


@dataclass(slots=True)
class Flat:
    """A struct of two versions, each flattened.

    Attributes:
        name: The struct.
        work: The versions.
        flat: The flat declarations.
        leaving: The fields of the older version that hold the structs which were flattened.
        coming: Those of the newer one.
    """

    name: str
    work: Work
    flat: Work
    leaving: list[Holder]
    coming: list[Holder]

    @classmethod
    def of(cls, name: str, work: Work) -> Flat:
        """Flattens a struct."""
        held = work.have.structs[name].stored, work.want.structs[name].stored
        stuck = {
            each
            for each, declaration in held[0].items()
            if each in held[1]
            and declaration.declared.refers in work.have.structs
            and not work.is_reached(name, each)
        }
        leaving = _holders(name, work.have, work.want, stuck)
        coming = _holders(name, work.want, work.have, stuck)
        have, leaving = _flattened(name, work.have, leaving, work.want)
        want, coming = _flattened(name, work.want, coming, work.have)
        return cls(name, work, Work(have, want, budget=work.budget), leaving, coming)

    def groups(self, candidates: Iterable[Candidate]) -> list[Group]:
        """The candidates, those that share structs together; all others each in a group of its own."""
        groups: list[Group] = []
        for candidate in candidates:
            ends = [*_around(self.leaving, candidate.gone)]
            joined = Group([candidate], ends, [*_around(self.coming, candidate.come)])
            for group in [group for group in groups if joined.shares(group)]:
                groups.remove(group)
                joined = joined.join(group)
            groups.append(joined)
        for group in groups:
            group.leaving.sort(key=self.leaving.index)
            group.coming.sort(key=lambda holder: (-len(holder.around), self.coming.index(holder)))
        return [group for group in groups if not group.is_flat or group.candidates[0].steps]

    def steps(self, group: Group) -> list[Step] | None:
        """The steps of a group between the declarations that are not flat, or None if one of them is refused."""
        within = self.work.within(self.name)
        gone = {each for candidate in group.candidates for each in candidate.gone}
        come = {each for candidate in group.candidates for each in candidate.come}
        steps: list[Step] = []

        def there() -> Mapping[str, FieldDeclaration]:
            after = self.work.after(steps)
            return after.structs[self.name].stored if after else {}

        for holder in group.leaving:
            # A struct that goes away leaves its other fields beside it, where they are removed one by one.
            used = [leaf for leaf, flat in holder.flat.items() if holder.whole or flat in gone]
            steps += holder.inlined(used, there(), within)
        steps += [step for candidate in group.candidates for step in candidate.steps]
        for holder in group.coming:
            used = [leaf for leaf, flat in holder.flat.items() if flat in come]
            steps += holder.moved(used, there(), within)
            come.add(holder.name)  # and goes on into the struct around it
        for way in (_shortened(steps), steps):
            if self.work.after(way) is not None:
                return way
        return None


# ---------------------------------------------------------------------------------------------------------------------
# The structs that are flattened.


def _holders(name: str, here: Document, there: Document, stuck: Container[str]) -> list[Holder]:
    """The fields of a struct that hold structs with fields which the other version does not have in that place.

    Args:
        name: The struct.
        here: The version.
        there: The other one.
        stuck: The fields that both versions have, with types of which no step turns one into the other.
    """
    own, others = here.structs[name].stored, there.structs[name].stored
    known = equations(here, there)
    elsewhere = [*_other_types(name, here, there, known)]
    found: list[Holder] = []
    todo: list[tuple[str, Type, tuple[Holder, str] | None]] = [
        (each, declaration.declared, None) for each, declaration in own.items()
    ]
    for each, declared, outer in todo:
        struct = declared.refers
        if struct not in here.structs or struct == name or len(found) == _MOST_HOLDERS:
            continue
        nested = None if outer or each in stuck else _struct_of(others.get(each), there)
        leaves = [*here.structs[struct].stored]
        if nested is None and any(readable_as(other, declared, known) for other in elsewhere):
            continue  # it has another name, or is in another struct or a collection
        if nested not in (None, struct):
            continue  # the struct has another name
        if nested is not None:
            inside = there.structs[nested].stored
            lost = inside.keys() - {*leaves}
            leaves = [leaf for leaf in leaves if leaf not in inside]
            if lost:  # a rename inside of the struct is likelier
                leaves = [leaf for leaf in leaves if leaf in others and leaf not in own]
        if leaves:
            found.append(Holder(each, struct, declared, nested is None, leaves, outer))
            if nested is None:
                leaves_of = found[-1].types(here).items()
                todo += [(leaf, inner, (found[-1], leaf)) for leaf, inner in leaves_of]
    return found


def _struct_of(declaration: FieldDeclaration | None, document: Document) -> str | None:
    """The struct that a field holds, or None."""
    struct = "" if declaration is None else declaration.declared.refers
    return struct if struct in document.structs else None


def _other_types(
    name: str, here: Document, there: Document, known: Mapping[str, Expression]
) -> Iterator[Type]:
    """Yields the types in the fields of a struct that only the other version has, and in the structs that these hold."""
    own, others = here.structs[name].stored, there.structs[name].stored
    todo = [
        declaration.declared
        for each, declaration in others.items()
        if each not in own or not same_type(own[each].declared, declaration.declared, known)
    ]
    seen: set[str] = set()
    for declared in todo:
        for inner in walk_type(declared):
            yield inner
            if inner.refers in there.structs and inner.refers not in seen:
                seen.add(inner.refers)
                struct = there.structs[inner.refers]
                bind = dict(zip(struct.params, inner.arguments, strict=False))
                with contextlib.suppress(SchemaError):
                    todo += [substitute(each.declared, bind) for each in struct.stored.values()]


def _name_leaves(holders: Iterable[Holder], own: Iterable[str]) -> None:
    """Gives the fields of nested structs the names that they have beside those of the struct."""
    counts = Counter(leaf for holder in holders for leaf in holder.leaves)
    taken = {*own, *counts}
    for holder in holders:
        if holder.outer is not None:
            outer, leaf = holder.outer
            holder.name = outer.flat[leaf]
        for leaf in holder.leaves:
            flat = leaf
            if counts[leaf] > 1 or leaf in own:
                flat = f"{holder.name}_{leaf}"
                while flat in taken:
                    flat += "_"
                taken.add(flat)
            holder.flat[leaf] = flat


def _flattened(
    name: str, document: Document, holders: Sequence[Holder], other: Document
) -> tuple[Document, list[Holder]]:
    """The declaration with the fields of nested structs beside those of the struct, and the holders where that is possible.

    Args:
        name: The struct.
        document: The declaration.
        holders: The fields that hold the nested structs.
        other: The other version.
    """
    _name_leaves(holders, document.structs[name].stored)
    trial, found = Work(document, document), list[Holder]()
    within = None if name == document.root == other.root else name
    for holder in holders:
        there = trial.have.structs[name].stored
        after = trial.after(holder.inlined(holder.leaves, there, within))
        if after is not None:
            trial.have = _with_own_sizes(after, name, holder, document, other)
            found.append(holder)
    return trial.have, found


def _with_own_sizes(
    document: Document, name: str, holder: Holder, before: Document, other: Document
) -> Document:
    """The declaration with the names that sizes had inside of a struct, as far as the other version has no others."""
    wanted = sizes_of_struct(other, name).keys()
    fields, types = dict(document.structs[name].fields), holder.types(before)
    for leaf, flat in holder.flat.items():
        apart = {size for size, _ in sizes_in(fields[flat].declared)}
        if leaf in types and wanted.isdisjoint(apart - {s for s, _ in sizes_in(types[leaf])}):
            fields[flat] = fields[flat].with_type(types[leaf])
    return with_fields(document, name, fields)


def _around(holders: Iterable[Holder], names: Iterable[str]) -> Iterator[Holder]:
    """Yields the holders of some fields, and those around them."""
    around = [
        h
        for holder in holders
        if not {*holder.flat.values()}.isdisjoint(names)
        for h in holder.around
    ]
    yield from dict.fromkeys(around)


def _shortened(steps: Sequence[Step]) -> list[Step]:
    """The steps with one rename in place of two of the same field."""
    found: list[Any] = []
    for step in steps:
        kept: Any = step
        if build.kind(step).renames_field:
            renames = (each for each in found if build.kind(each).renames_field)
            named = (each for each in renames if each.to == kept.field)
            before = next((each for each in named if each.field != kept.to), None)
            if before is not None:
                found.remove(before)
                kept = kept.model_copy(update={"field": before.field})
        found.append(kept)
    return found
