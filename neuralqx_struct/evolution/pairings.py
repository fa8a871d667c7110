"""Suggestions for fields that only one version has: renames, splits and merges, removals and additions.

Example:
    >>> work = Work(v1, v1)
    >>> pair_fields("VMCState", work)
    >>> work.found, work.within("VMCState")
    ([], None)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations, islice, product

from neuralqx_struct.evolution import steps as build
from neuralqx_struct.evolution.differences import LIKELY, MOST_PAIRS, likeness, probable_renames
from neuralqx_struct.evolution.partings import combined
from neuralqx_struct.evolution.proposals import Pairing, Way, Work, place_of, ways_to
from neuralqx_struct.evolution.sequences import collected, layered
from neuralqx_struct.evolution.sizes import readable_as, same_type
from neuralqx_struct.evolution.steps import kind
from neuralqx_struct.schema.migration import Step
from neuralqx_struct.types import walk_type
from neuralqx_struct.types.text import format_type

_MOST = 12  # fields that come or go at once in one struct; with more, parts of arrays are not looked for


def pair_fields(name: str, work: Work) -> None:
    """Adds suggestions for the fields of a struct that only one version has."""
    pairing = _pairing(name, work)
    gone, come = [*pairing.gone], [*pairing.come]
    for way in _ways(pairing):
        if not pairing.settles(way):
            continue
        if way.words:
            _ask_one(way, pairing)
        else:
            work.take(pairing.settle(way.gone, way.come), *way.steps)
    # Additions first: only an array that goes may show a size that a new one has.
    for added in come:
        if added in pairing.come and added not in gone:
            _ask_added(pairing, added)
    for removed in gone:
        if removed in pairing.gone and removed not in come:
            _ask_removed(pairing, removed)


def rename_holders(name: str, work: Work) -> None:
    """Asks about fields with another name that hold a struct with other fields, as these are compared in their place."""
    pairing = _pairing(name, work)
    few = len(pairing.gone) * len(pairing.come) <= _MOST * _MOST
    for (a, old), (b, new) in [*product(pairing.gone.items(), pairing.come.items())] if few else ():
        struct = new.declared.refers
        if struct != old.declared.refers or not {struct} <= work.want.structs.keys():
            continue
        have, want = work.have.structs[struct].stored, work.want.structs[struct].stored
        if have.keys() != want.keys():
            for way in filter(pairing.settles, _renamed(pairing, a, b, most=1)):
                _ask_one(way, pairing)


def pair_all(name: str, work: Work) -> list[Way]:
    """The ways in which fields of a struct became others, also those that kept their names; takes their steps."""
    found = [*_kept(name, work)]
    for way in found:
        work.have = work.after(way.steps) or work.have
    pairing = _pairing(name, work)
    for way in _ways(pairing):
        if pairing.settles(way):
            work.have = work.after(way.steps) or work.have
            pairing.settle(way.gone, way.come)
            found.append(way)
    return found


def _pairing(name: str, work: Work) -> Pairing:
    """A struct with the fields that only one version has, or to whose type in the other no steps lead."""
    old, new = work.have.structs[name].stored, work.want.structs[name].stored
    gone = {field: d for field, d in old.items() if field not in new}
    come = {field: d for field, d in new.items() if field not in old}
    if len(gone) + len(come) <= _MOST:
        kept = {each for each in old if each in new and _is_reached(name, each, work)}
        gone = {field: d for field, d in old.items() if field not in kept}
        come = {field: d for field, d in new.items() if field not in kept}
    return Pairing(name, work, gone, come)


def _is_reached(name: str, each: str, work: Work) -> bool:
    """True if a field has the wanted type, or steps lead there."""
    have, want = work.have.structs[name].stored[each], work.want.structs[name].stored[each]
    readable = readable_as(have.declared, want.declared, work.known_in(name))
    return readable or next(ways_to(name, each, want, work), None) is not None


def _kept(name: str, work: Work) -> Iterator[Way]:
    """Yields fields that both versions have, with the steps that change their type."""
    old, new = work.have.structs[name].stored, work.want.structs[name].stored
    for each, wanted in new.items():
        if each not in old:
            continue
        if readable_as(old[each].declared, wanted.declared, work.known_in(name)):
            yield Way((each,), (each,), ())
            continue
        ways = [*ways_to(name, each, wanted, work)]
        if ways:
            asked = any(kind(step).question(wanted) for step in ways[0]) or len(ways) > 1
            yield Way((each,), (each,), tuple(ways[0]), "how did it change?" if asked else "")


def _ways(pairing: Pairing) -> Iterator[Way]:
    """Yields the ways in which fields may have become others, the likely ones first; sees those that were settled."""
    work, name = pairing.work, pairing.name
    for b, declaration in list(pairing.come.items()):
        for alias in declaration.aliases:
            for way in _renamed(pairing, alias, b):
                yield replace(way, words="")  # the alias answers the question
    yield from collected(pairing)
    yield from layered(pairing)
    yield from _swapped(pairing)
    likely = probable_renames(work.have.structs[name], work.want.structs[name], pairing.known)
    for a, b, _ in likely:
        yield from _renamed(pairing, a, b)
    if max(len(pairing.gone), len(pairing.come)) <= _MOST:
        yield from combined(pairing)
    if len(pairing.gone) * len(pairing.come) <= MOST_PAIRS:
        yield from _partners(pairing)
    else:  # in the order of their declarations
        for (a, old), (b, new) in zip(
            [*pairing.gone.items()], [*pairing.come.items()], strict=False
        ):
            if same_type(old.declared, new.declared, pairing.known):
                yield from _renamed(pairing, a, b)
    yield from collected(pairing, named=True)


def _swapped(pairing: Pairing) -> Iterator[Way]:
    """Yields the renames of two fields of which each has the former type of the other."""
    work, known = pairing.work, pairing.known
    both = [name for name in pairing.gone if name in pairing.come]
    for a, b in islice(combinations(both, 2), MOST_PAIRS):
        pairs = ((a, b), (b, a))
        if a not in pairing.gone or b not in pairing.gone:
            continue  # swapped with another one
        types = [(pairing.gone[x].declared, pairing.come[y].declared) for x, y in pairs]
        if all(readable_as(have, want, known) for have, want in types):
            aside, within = f"{a}_before_{b}", work.within(pairing.name)
            names = ((a, aside), (b, a), (aside, b))
            steps = [build.rename(field=old, to=new, within=within) for old, new in names]
            words = f"{a} and {b} have each the type of the other: did they swap their names?"
            yield Way((a, b), (a, b), tuple(steps), words)


def _renamed(pairing: Pairing, a: str, b: str, most: int = 2) -> Iterator[Way]:
    """Yields the steps that rename a field, and at most ``most`` others where the types differ."""
    if a not in pairing.gone or b not in pairing.come:
        return
    name, work, wanted = pairing.name, pairing.work, pairing.come[b]
    have = pairing.gone[a].declared
    rename = build.rename(field=a, to=b, within=work.within(name))
    after = work.after([rename])
    if after is None:
        return
    found: Iterable[list[Step]] = [[]]
    if not readable_as(have, wanted.declared, pairing.known):
        found = ways_to(name, b, wanted, work, have=after, most=most)
    for more in found:
        became = f", now {format_type(wanted.declared)}" if more else ""
        words = f"{a} is gone and {b} is new, of type {format_type(have)}{became}: was it renamed?"
        yield Way((a,), (b,), (rename, *more), words)


def _partners(pairing: Pairing) -> Iterator[Way]:
    """Yields renames of fields that go and come with similar names, of one type, and with types that steps connect."""
    known, pairs = pairing.known, [*product(pairing.gone.items(), pairing.come.items())]
    few = len(pairs) <= _MOST * _MOST
    scored = [(likeness(a, old, b, new), a, b) for (a, old), (b, new) in pairs if few]
    for score, a, b in sorted(scored, key=lambda each: -each[0]):
        if score >= LIKELY:
            yield from _renamed(pairing, a, b)
    for (a, old), (b, new) in pairs:
        if same_type(old.declared, new.declared, known):
            yield from _renamed(pairing, a, b)
    pairs = [*product(pairing.gone.items(), pairing.come.items())] if few else []
    changed = []
    for (a, old), (b, new) in pairs:
        # Numbers and texts are common; only their names show which one it was.
        both = (old.declared, new.declared)
        structs = [{inner.refers for inner in walk_type(each)} - {""} for each in both]
        numbers = [any(inner.axes for inner in walk_type(each)) for each in both]
        shown = all(numbers) or not structs[0].isdisjoint(structs[1])
        shown = shown or any(each.key_impl for each in both) or _share_a_word(a, b)
        if shown and next(_renamed(pairing, a, b, most=1), None) is not None:
            changed.append((a, b))
    for a, b in changed:
        if sum(a in pair or b in pair for pair in changed) == 1:
            yield from _renamed(pairing, a, b, most=1)


def _share_a_word(a: str, b: str) -> bool:
    """True for names such as ``step_count`` and ``n_steps``."""
    words = [
        {word.rstrip("s") for word in name.lower().split("_") if len(word) > 2} for name in (a, b)
    ]
    return not words[0].isdisjoint(words[1])


def _ask_one(way: Way, pairing: Pairing) -> None:
    """Asks whether the fields that go and those that come are the same data."""
    question = way.words
    apart = [pairing.additions(name)[:1] for name in way.come]
    apart += [pairing.removals(name)[:1] for name in way.gone]
    answers: list[tuple[str, Sequence[Step]]] = [("yes", way.steps)]
    if all(apart):
        answers.append(("no", [step for steps in apart for step in steps]))
    else:
        values = f"{' and '.join(way.come)} a value; no constant is one"
        question = f"{question} If not, write a step that gives {values}."
    pairing.work.ask(pairing.settle(way.gone, way.come), question, *answers)


def _ask_removed(pairing: Pairing, name: str) -> None:
    declaration, work = pairing.gone[name], pairing.work
    steps = pairing.removals(name)
    kept, lossy = steps[:-1], steps[-1:]
    about = [place_of(pairing.name, name)]
    if declaration.has_default and kept and work.take(about, kept[0]):
        return
    question = f"{name}, {format_type(declaration.declared)}, is gone: may its values be lost?"
    answers = [("the value that a downgrade puts in its place", [step]) for step in kept[:1]]
    work.ask(about, question, *answers, ("no downgrade", lossy))


def _ask_added(pairing: Pairing, name: str) -> None:
    declaration, work = pairing.come[name], pairing.work
    steps = pairing.additions(name)
    about = [place_of(pairing.name, name)]
    if declaration.has_default and steps and work.take(about, steps[0]):
        return
    shown = format_type(declaration.declared)
    question = f"{name}, {shown}, is new: what do old payloads get?"
    if not steps:
        question += f" No value of {shown} can be written: let it be `{shown} | null`, or write a step that computes it."
    work.ask(about, question, *(("this value, or another", [step]) for step in steps[:1]))
