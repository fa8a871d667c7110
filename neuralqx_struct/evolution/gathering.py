"""Suggestions for fields that move between a struct and those in it, under any names and with any other change.

Both declarations are flattened first: the fields of a nested struct that only one version has lie beside those of the
struct. The steps between the flat declarations are those of ``pairings.py``; ``inline`` steps go before them and ``move``
steps behind.

Example:
    >>> gather_fields("VMCState", Work(v1, v1))
    False
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.evolution import steps as build
from neuralqx_struct.evolution.pairings import pair_all, rename_holders
from neuralqx_struct.evolution.proposals import Place, Way, Work, are, place_of, with_name
from neuralqx_struct.evolution.sizes import equations, readable_as, same_type, substitute
from neuralqx_struct.expressions import Expression
from neuralqx_struct.schema.migration import Step
from neuralqx_struct.schema.model import Document, FieldDeclaration
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
        bind = dict(zip(struct.params, self.declared.arguments, strict=False))
        found = {}
        for leaf in self.leaves:
            with contextlib.suppress(SchemaError):
                found[leaf] = substitute(struct.stored[leaf].declared, bind)
        return found


def gather_fields(name: str, work: Work) -> bool:
    """Adds suggestions for fields of a struct that came from, or went to, the structs in it; True if there are some."""
    if name not in work.have.structs:
        return False
    rename_holders(name, work)
    leaving, coming = _holders(name, work.have, work.want), _holders(name, work.want, work.have)
    leaving = _apart(leaving, _leaves(coming, work.want), work)
    coming = _apart(coming, _leaves(leaving, work.have), work)
    if not leaving and not coming:
        return False
    for holders, document in ((leaving, work.have), (coming, work.want)):
        _name_leaves(holders, document.structs[name].stored)
    flat = Work(work.have, _flat(name, work.want, coming), budget=work.budget)
    inlined = []
    for holder in leaving:
        after = flat.after(_inlined(holder, work.within(name)))
        if after is not None:
            flat.have = _with_own_sizes(after, name, holder, work)
            inlined.append(holder)
    ways = pair_all(name, flat)
    work.budget = flat.budget
    before = len(work.found)
    for group in _groups(ways, inlined, coming):
        _suggest(group, name, work)
    return len(work.found) > before


# ---------------------------------------------------------------------------------------------------------------------
# Flat declarations.


def _holders(name: str, here: Document, there: Document) -> list[Holder]:
    """The fields of a struct that hold structs with fields which the other version does not have in that place.

    Args:
        name: The struct.
        here: The version.
        there: The other one.
    """
    own, others = here.structs[name].stored, there.structs[name].stored
    known = equations(here, there)
    unmatched = [
        inner
        for other, declaration in others.items()
        if other not in own or not same_type(own[other].declared, declaration.declared, known)
        for inner in walk_type(declaration.declared)
    ]
    tops = [declaration.declared for declaration in others.values()]
    inside = [inner.refers for inner in unmatched if all(inner is not top for top in tops)]
    found: list[Holder] = []
    todo: list[tuple[str, Type, tuple[Holder, str] | None]] = [
        (each, declaration.declared, None) for each, declaration in own.items()
    ]
    for each, declared, outer in todo:
        struct = declared.refers
        if struct not in here.structs or struct == name or len(found) == _MOST_HOLDERS:
            continue
        whole = outer is not None or not _is_struct(others.get(each), there)
        whole = whole or _is_around(struct, here, others[each].declared, known)
        if whole and any(readable_as(other, declared, known) for other in unmatched):
            continue  # it was renamed, or went into a collection
        if whole and any(_share_fields(struct, other, here, there) for other in inside):
            continue  # likewise, where the struct was renamed, too
        if not whole and others[each].declared.refers != struct:
            continue
        leaves = [*here.structs[struct].stored]
        if not whole:
            nested = there.structs[struct].stored
            lost = nested.keys() - {*leaves}
            leaves = [leaf for leaf in leaves if leaf not in nested]
            if lost:  # a rename inside of the struct is likelier
                leaves = [leaf for leaf in leaves if leaf in others and leaf not in own]
        if leaves:
            found.append(Holder(each, struct, declared, whole, leaves, outer))
            if whole:
                leaves_of = found[-1].types(here).items()
                todo += [(leaf, inner, (found[-1], leaf)) for leaf, inner in leaves_of]
    return found


def _share_fields(struct: str, other: str, here: Document, there: Document) -> bool:
    """True if one struct may be the other under a new name, as they have fields of one name."""
    if struct in there.structs or other in here.structs or other not in there.structs:
        return False
    return not here.structs[struct].stored.keys().isdisjoint(there.structs[other].stored)


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


def _is_struct(declaration: FieldDeclaration | None, document: Document) -> bool:
    """True for a field that holds a struct."""
    return declaration is not None and declaration.declared.refers in document.structs


def _is_around(
    struct: str, document: Document, inner: Type, known: Mapping[str, Expression]
) -> bool:
    """True if a struct has a field of some type: it may have come around what was in its place."""
    fields = document.structs[struct].stored.values()
    return any(readable_as(inner, field.declared, known) for field in fields)


def _leaves(holders: Iterable[Holder], document: Document) -> list[Type]:
    """The types of the fields that nested structs bring into a flat declaration."""
    return [declared for holder in holders for declared in holder.types(document).values()]


def _apart(holders: Iterable[Holder], others: Sequence[Type], work: Work) -> list[Holder]:
    """The holders without those that the other version may have whole in a nested struct."""
    found: list[Holder] = []
    for holder in holders:
        outer = holder.outer is None or any(each is holder.outer[0] for each in found)
        inside = (inner for other in others for inner in walk_type(other))
        same = (readable_as(holder.declared, inner, work.known) for inner in inside)
        if outer and not (holder.whole and any(same)):
            found.append(holder)
    return found


def _flat(name: str, document: Document, holders: Iterable[Holder]) -> Document:
    """The declaration with the fields of nested structs beside those of the struct that holds them."""
    struct = document.structs[name]
    fields = dict(struct.fields)
    for holder in holders:
        inner = document.structs[holder.struct].stored
        for leaf, declared in holder.types(document).items():
            fields[holder.flat[leaf]] = inner[leaf].with_type(declared)
        if holder.whole:
            del fields[holder.name]
    made = struct.model_copy(update={"fields": fields})
    return document.model_copy(update={"structs": {**document.structs, name: made}})


def _with_own_sizes(document: Document, name: str, holder: Holder, work: Work) -> Document:
    """The declaration with the names that sizes had inside of a struct, as far as the new version has no others."""
    struct, wanted = document.structs[name], sizes_of_struct(work.want, name).keys()
    fields, types = dict(struct.fields), holder.types(work.have)
    for leaf, flat in holder.flat.items():
        apart = {size for size, _ in sizes_in(fields[flat].declared)}
        if leaf in types and wanted.isdisjoint(apart - {s for s, _ in sizes_in(types[leaf])}):
            fields[flat] = fields[flat].with_type(types[leaf])
    made = struct.model_copy(update={"fields": fields})
    return document.model_copy(update={"structs": {**document.structs, name: made}})


def _inlined(holder: Holder, within: str | None, leaves: Sequence[str] = ()) -> list[Step]:
    """The steps that lay fields of a nested struct beside it."""
    names = [leaf for leaf in holder.flat if not leaves or leaf in leaves]
    others = [(leaf, holder.flat[leaf]) for leaf in names if holder.flat[leaf] != leaf]
    inline: Step = build.inline(field=holder.name, fields=names, within=within)
    return [inline, *(build.rename(field=leaf, to=flat, within=within) for leaf, flat in others)]


# ---------------------------------------------------------------------------------------------------------------------
# Steps on flat declarations, with those that lead there and back.


@dataclass(slots=True)
class _Group:
    """Ways between flat declarations that have to be taken together, as they share structs."""

    ways: list[Way] = field(default_factory=list)
    leaving: list[Holder] = field(default_factory=list)
    coming: list[Holder] = field(default_factory=list)


def _groups(
    ways: Iterable[Way], leaving: Sequence[Holder], coming: Sequence[Holder]
) -> Iterator[_Group]:
    """Yields the ways that nested structs have a part in."""
    groups: list[_Group] = []
    for way in ways:
        ends = [*_around(leaving, way.gone)]
        starts = [*_around(coming, way.come)]
        if not ends and not starts:
            continue
        joined = _Group([way], ends, starts)
        for group in [*groups]:
            shared = any(h in ends for h in group.leaving) or any(h in starts for h in group.coming)
            if shared:
                groups.remove(group)
                joined.ways = [*group.ways, *joined.ways]
                joined.leaving += [h for h in group.leaving if h not in joined.leaving]
                joined.coming += [h for h in group.coming if h not in joined.coming]
        groups.append(joined)
    for group in groups:
        group.leaving.sort(key=leaving.index)
        group.coming.sort(key=lambda holder: (-len(holder.around), coming.index(holder)))
        yield group


def _around(holders: Iterable[Holder], names: Iterable[str]) -> Iterator[Holder]:
    """Yields the holders of some fields, and those around them."""
    around = [
        h
        for holder in holders
        if not {*holder.flat.values()}.isdisjoint(names)
        for h in holder.around
    ]
    yield from dict.fromkeys(around)


def _suggest(group: _Group, name: str, work: Work) -> None:
    """Adds the suggestion of a group, if its steps apply."""
    steps = _steps(group, name, work)
    if steps is None:
        return
    places = [*_places(group, name)]
    if not any(way.words for way in group.ways):
        work.take(places, *steps)
        return
    old = {flat: f"{h.name}.{leaf}" for h in group.leaving for leaf, flat in h.flat.items()}
    new = {flat: f"{h.name}.{leaf}" for h in group.coming for leaf, flat in h.flat.items()}
    gone = [old.get(each, each) for way in group.ways for each in way.gone]
    come = [new.get(each, each) for way in group.ways for each in way.come]
    question = f"{are(gone)} gone and {are(come)} new: did they become these, in this order?"
    work.ask(places, question, ("yes", steps))


def _places(group: _Group, name: str) -> Iterator[Place]:
    """Yields the places of the fields that a group is about."""
    inside = [
        (h, leaf, flat) for h in (*group.leaving, *group.coming) for leaf, flat in h.flat.items()
    ]
    for way in group.ways:
        for each in (*way.gone, *way.come):
            yield place_of(name, each)
            yield from (place_of(h.struct, leaf) for h, leaf, flat in inside if flat == each)
    for holder in (*group.leaving, *group.coming):
        if holder.whole:
            yield place_of(name, holder.name)


def _steps(group: _Group, name: str, work: Work) -> list[Step] | None:
    """The steps of a group, or None if one of them is refused."""
    within = work.within(name)
    gone = {each for way in group.ways for each in way.gone}
    come = {each for way in group.ways for each in way.come}
    steps: list[Step] = []
    for holder in group.leaving:
        # A struct that goes away leaves its other fields beside it, where they are removed one by one.
        used = [leaf for leaf, flat in holder.flat.items() if holder.whole or flat in gone]
        steps += _inlined(holder, within, used)
    after = work.after(steps)
    left = [*group.ways]
    for holder in group.coming:
        names = {leaf: flat for leaf, flat in holder.flat.items() if flat in come}
        for way in [way for way in left if not {*names.values()}.isdisjoint(way.come)]:
            left.remove(way)
            if after is None:
                return None
            added, after = _taken(way, names, work, after)
            steps += added
        come.add(holder.name)  # and goes on into the struct around it
        moved = _moved(holder, names, within, () if after is None else after.structs[name].stored)
        after = None if after is None else work.after(moved, after)
        steps += moved
    for way in left:
        after = None if after is None else work.after(way.steps, after)
        steps += way.steps
    return None if after is None else steps


def _moved(
    holder: Holder, names: Mapping[str, str], within: str | None, there: Iterable[str]
) -> list[Step]:
    """The steps that move fields into a struct, past others of the same name."""
    there = {*there}

    def renamed(old: str, new: str) -> Step:
        return build.rename(field=old, to=new, within=within)

    ours = [(flat, leaf) for leaf, flat in names.items() if flat != leaf and flat in there]
    in_the_way = [(leaf, f"{leaf}_before_{holder.name}") for _, leaf in ours if leaf in there]
    move = build.move(fields=[*names], into=holder.name, struct=holder.struct, within=within)
    return [
        *(renamed(leaf, aside) for leaf, aside in in_the_way),
        *(renamed(flat, leaf) for flat, leaf in ours),
        move,
        *(renamed(aside, leaf) for leaf, aside in in_the_way),
    ]


def _taken(
    way: Way, names: dict[str, str], work: Work, have: Document
) -> tuple[Sequence[Step], Document | None]:
    """The steps of a way and the declaration after them, with the names that the fields of the struct have in it."""
    for leaf, flat in names.items():
        if way.come == (flat,) and flat != leaf and way.steps:
            steps = [with_name(step, flat, leaf) for step in way.steps]
            after = work.after(steps, have)
            if after is not None:
                return steps, after
    return way.steps, work.after(way.steps, have)
