"""Suggestions for fields that became the values of one list, tuple, dict or stacked struct, and for such values as fields.

Example:
    >>> [*numbered(["layer_1", "norm", "layer_0", "layer_10"])]
    [('layer_0', 'layer_1', 'layer_10')]
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from neuralqx_struct.evolution.proposals import Fields, Pairing, Way, are
from neuralqx_struct.evolution.sizes import same_type
from neuralqx_struct.evolution.steps.containers import CONTAINERS, whole_type
from neuralqx_struct.schema.migration import Inline, Merge, Move, Rename, Split, Step
from neuralqx_struct.types import Named, Type, walk_type

_NUMBERED = re.compile(r"(.*?)_?(\d{1,9})")


def numbered(names: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """Yields the names that differ in a number at their end alone, in the order of the numbers."""
    groups: dict[str, dict[int, str]] = {}
    for name in names:
        found = _NUMBERED.fullmatch(name)
        if found:
            groups.setdefault(found[1], {}).setdefault(int(found[2]), name)
    for group in groups.values():
        if len(group) > 1:
            yield tuple(group[number] for number in sorted(group))


def collected(pairing: Pairing, *, named: bool = False) -> Iterator[Way]:
    """Yields the steps for fields that became the values of a collection, and for values that became fields.

    Args:
        pairing: The fields that only one version has.
        named: Look for fields of one type whatever their names, not for numbered ones.
    """
    for wholes, others, merges in (
        (pairing.come, pairing.gone, True),
        (pairing.gone, pairing.come, False),
    ):
        for whole, declaration in [*wholes.items()]:
            for how in _hows(declaration.declared):
                # Arrays that are parts of another one are those of `partings.py`.
                whole_array = bool(declaration.declared.element)
                some = {n: d for n, d in others.items() if not (whole_array and d.declared.element)}
                groups = _of_one_type(how, some, pairing) if named else numbered(some)
                for parts in [*groups]:
                    ends = (parts, (whole,)) if merges else ((whole,), parts)
                    if whole in parts or not pairing.has(*ends):
                        continue  # another way took one of them
                    way = (_merged if merges else _split)(whole, parts, how, pairing)
                    if way is not None and pairing.settles(way):
                        yield way


_NUMBER_INSIDE = re.compile(r"(.*?)_?(\d{1,9})_?(.*)")


def _rows(names: Iterable[str], leaves: Iterable[str]) -> Iterator[list[dict[str, str]]]:
    """Yields the fields that are those of numbered structs, such as ``w0`` and ``b0``: by their names in each struct."""
    wanted = {*leaves}
    groups: dict[str, dict[int, dict[str, str]]] = {}
    for name in names:
        found = _NUMBER_INSIDE.fullmatch(name)
        leaf = (found[3] or found[1]) if found else ""
        if found and leaf in wanted:
            stem = found[1] if found[3] else ""
            groups.setdefault(stem, {}).setdefault(int(found[2]), {}).setdefault(leaf, name)
    for rows in groups.values():
        whole = [rows[number] for number in sorted(rows)]
        if all(row.keys() == wanted for row in whole):
            yield whole


def layered(pairing: Pairing) -> Iterator[Way]:
    """Yields the steps for numbered fields that became a list of structs, or a stacked one, and for the way back."""
    work = pairing.work
    for wholes, others, merges in (
        (pairing.come, pairing.gone, True),
        (pairing.gone, pairing.come, False),
    ):
        here, there = (work.want, work.have) if merges else (work.have, work.want)
        for whole, declaration in [*wholes.items()]:
            struct = next((t.refers for t in walk_type(declaration.declared) if t.refers), "")
            how = next(_hows(declaration.declared), "")
            if how != "list" or struct not in here.structs or struct in there.structs:
                continue
            for rows in [*_rows(others, here.structs[struct].stored)]:
                parts = [name for row in rows for name in row.values()]
                ends = (parts, (whole,)) if merges else ((whole,), parts)
                layers = [f"{whole}_{place}" for place in range(len(rows))]
                if pairing.has(*ends):
                    make = _into_layers if merges else _out_of_layers
                    steps = make(whole, struct, [*zip(layers, rows, strict=True)], pairing)
                    words = f"{are(ends[0])} gone and {are(ends[1])} new: are they fields of its items, in this order?"
                    if steps is not None:
                        yield Way(tuple(ends[0]), tuple(ends[1]), tuple(steps), words)


def _into_layers(
    whole: str, struct: str, layers: Sequence[tuple[str, Mapping[str, str]]], pairing: Pairing
) -> list[Step] | None:
    """The steps that move numbered fields into structs, and these into a list."""
    within = pairing.work.within(pairing.name)
    steps: list[Step] = []
    for layer, row in layers:
        renamed = [(name, leaf) for leaf, name in row.items() if name != leaf]
        steps += [Rename(field=name, to=leaf, within=within) for name, leaf in renamed]
        steps.append(Move(fields=[*row], into=layer, struct=struct, within=within))
    steps.append(
        Merge(fields=[layer for layer, _ in layers], into=whole, how="list", within=within)
    )
    chain = pairing.chain(whole, pairing.come[whole], pairing.work.after(steps))
    return None if chain is None else [*steps, *chain]


def _out_of_layers(
    whole: str, struct: str, layers: Sequence[tuple[str, Mapping[str, str]]], pairing: Pairing
) -> list[Step] | None:
    """The inverse of :func:`_into_layers`."""
    declaration, within = pairing.gone[whole], pairing.work.within(pairing.name)
    steps: list[Step] | None = []
    if declaration.declared.sort != "list":
        wanted = declaration.with_type(whole_type("list", [Named(struct)] * len(layers)))
        steps = pairing.chain(whole, wanted, pairing.work.have)
    if steps is None:
        return None
    steps = [
        *steps,
        Split(field=whole, into=[layer for layer, _ in layers], how="list", within=within),
    ]
    for layer, row in layers:
        steps.append(Inline(field=layer, fields=[*row], within=within))
        renamed = [(leaf, name) for leaf, name in row.items() if name != leaf]
        steps += [Rename(field=leaf, to=name, within=within) for leaf, name in renamed]
    return steps


def _hows(declared: Type) -> Iterator[str]:
    """Yields the collections that a type is, or is made of."""
    for option in declared.solid[:1]:
        if option.sort in CONTAINERS:
            yield option.sort
        elif option.listed is not None:
            yield option.listed.sort


def _of_one_type(how: Any, fields: Fields, pairing: Pairing) -> Iterator[tuple[str, ...]]:
    """Yields the fields of one type, in the order of their declarations; all of them where types may differ."""
    groups: list[list[str]] = []
    for name, declaration in fields.items():
        for group in groups:
            first = fields[group[0]].declared
            alike = same_type(first, declaration.declared, pairing.known)
            if alike or CONTAINERS[how].mixed:
                group.append(name)
                break
        else:
            groups.append([name])
    for group in groups:
        declared = fields[group[0]].declared
        # A number or a text alone shows too little.
        shown = declared.refers or declared.axes or declared.key_impl
        if len(group) > 1 or (how == "list" and shown and len(groups) == 1):
            yield tuple(group)


def _merged(whole: str, parts: Sequence[str], how: Any, pairing: Pairing) -> Way | None:
    """The steps that gather the values and give the collection its type."""
    work = pairing.work
    within = work.within(pairing.name)
    step = Merge(fields=[*parts], into=whole, how=how, within=within)
    chain = pairing.chain(whole, pairing.come[whole], work.after([step]))
    question = f"{are(parts)} gone and {whole} is new: are they its values, {_order(how)}?"
    return None if chain is None else Way(tuple(parts), (whole,), (step, *chain), question)


def _split(whole: str, parts: Sequence[str], how: Any, pairing: Pairing) -> Way | None:
    """The steps that make a collection of the values, take it apart, and give the values their types."""
    work, declaration = pairing.work, pairing.gone[whole]
    before: list[Step] | None = []
    if declaration.declared.sort != how:
        types = [pairing.come[name].declared for name in parts]
        wanted = declaration.with_type(whole_type(how, types))
        before = pairing.chain(whole, wanted, work.have)
    if before is None:
        return None
    within = work.within(pairing.name)
    steps: list[Step] = [*before, Split(field=whole, into=[*parts], how=how, within=within)]
    after = work.after(steps)
    for name in parts:
        chain = pairing.chain(name, pairing.come[name], after)
        if chain is None:
            return None
        steps += chain
        after = work.after(chain, after)
    question = f"{whole} is gone and {are(parts)} new: are they its values, {_order(how)}?"
    return Way((whole,), tuple(parts), tuple(steps), question)


def _order(how: Any) -> str:
    return "under these keys" if how == "dict" else "in this order"
