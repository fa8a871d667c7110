"""Suggestions: the steps between two versions that need no question, and the questions that only the author can answer.

Messages show them as hints (:func:`explained`), and revisions write them into files. A step is sure where both
declarations together determine it: a default, an alias, a dtype, a field that is found again in a nested struct. Where
there are several ways, such as a rename or a new field, or where a value has to be chosen, there is a question with the
possible answers. Every step was applied to the declaration first, so none is refused when it is pasted into a file.

Each kind of step brings its candidates (``steps/operations.py``, and beside the steps), so a new kind of step needs no change
here. The search tries them, the likely ones first, takes those whose steps apply and lead to the fields that the new version
declares, and places what it finds at messages. ``flat.py`` lays fields of nested structs beside each other before; ``work.py``
holds what was found.

Example:
    >>> suggest(v1, v1)
    ()
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from neuralqx_struct.dtypes import best_dtype
from neuralqx_struct.evolution import steps as build
from neuralqx_struct.evolution.declared_sizes import held_arrays, mixed_dtypes
from neuralqx_struct.evolution.differences import Difference, differences, renamed_structs
from neuralqx_struct.evolution.steps.fields import mappings
from neuralqx_struct.evolution.steps.operations import Candidate, are
from neuralqx_struct.evolution.suggestions.flat import Flat, Group
from neuralqx_struct.evolution.suggestions.pairs import choose
from neuralqx_struct.evolution.suggestions.questions import (
    ask_change,
    ask_one_by_one,
    ask_whether,
    ask_which,
)
from neuralqx_struct.evolution.suggestions.work import Place, Suggestion, Work, place_of
from neuralqx_struct.schema.graph import graph_of
from neuralqx_struct.schema.migration import Step
from neuralqx_struct.schema.model import Document, FieldDeclaration
from neuralqx_struct.schema.sizes.comparison import same_type
from neuralqx_struct.schema.sizes.scopes import start_of

_MOST_ROUNDS = 3  # after a move, fields may move on into the next struct


def suggest(old: Document, new: Document) -> tuple[Suggestion, ...]:
    """The steps from one version to the next, and questions about the others, in the order of a migration.

    Args:
        old: The version that payloads have.
        new: The version that is wanted; its own migrations are ignored.
    """
    work = Work(start_of(old, new), new)
    _rename_structs(work)
    for _ in range(_MOST_ROUNDS):
        before = len(work.found)
        for name in _in_both(work):
            _pair_fields(name, work)
        if len(work.found) == before:
            break
    for name in _in_both(work):
        ask_one_by_one(name, work)
    _rename_members(work)
    _unite_dtypes(work)
    _rename_entries(work)
    _ask_the_rest(work)
    return tuple(work.found)


def _in_both(work: Work) -> list[str]:
    """The structs of both versions that payloads hold, each behind one that holds it."""
    held = graph_of(work.have).structs
    return [name for name in graph_of(work.want).outside_in() if name in held]


# ---------------------------------------------------------------------------------------------------------------------
# Structs under other names.


def _rename_structs(work: Work) -> None:
    old, new = work.have, work.want
    stored = {*graph_of(old).structs}, {*graph_of(new).structs}
    for former, name in renamed_structs(old, new):
        if former in stored[0] and name in stored[1]:
            _rename_struct(former, name, work)
    for former, name in [*_alike(work)]:
        _rename_struct(former, name, work)


def _rename_struct(former: str, name: str, work: Work) -> None:
    steps = [build.rename_struct(struct=former, to=name)]
    about = [*_users(former, work.have)]
    is_root = (former, name) == (work.have.root, work.want.root)
    if is_root or former in work.want.structs[name].aliases:
        work.take(about, steps)
    else:
        question = f"{former} is gone and {name} is new: was it renamed?"
        ask_whether(question, about, steps, work)


def _alike(work: Work) -> Iterator[tuple[str, str]]:
    """Yields structs of which one is gone and the other new, with most of the fields of the smaller one in both."""
    old, new = work.have.structs, work.want.structs
    gone = [name for name in graph_of(work.have).structs if name not in new]
    come = [name for name in graph_of(work.want).structs if name not in old]
    for former in gone:
        for name in come:
            fields = old[former].stored.keys(), new[name].stored.keys()
            if 2 * len(fields[0] & fields[1]) >= max(min(map(len, fields)), 1):
                yield former, name
                come.remove(name)
                break


def _users(struct: str, document: Document) -> Iterator[Place]:
    """Yields the places where a struct is used."""
    if struct == document.root:
        yield ("root",)
    for use in graph_of(document).users(struct):
        yield place_of(use.struct, use.field)


# ---------------------------------------------------------------------------------------------------------------------
# Fields: which became which.


def _pair_fields(name: str, work: Work) -> None:
    """Adds suggestions for fields of a struct, and of those nested in it, that became others or changed their type."""
    flat = Flat.of(name, work)
    choice = choose(name, flat.flat)
    work.budget = flat.flat.budget
    for group in flat.groups(choice.taken):
        steps = flat.steps(group)
        if steps is not None:
            rivals = choice.rivals(group.candidates[0]) if group.is_single else ()
            applied = [rival for rival in rivals if work.after(rival.steps) is not None]
            _suggest_group(group, steps, applied, name, work)


def _suggest_group(
    group: Group, steps: list[Step], rivals: Sequence[Candidate], name: str, work: Work
) -> None:
    """Adds the suggestion of a group in a struct."""
    first = group.candidates[0]
    places = [*group.places(name)]
    gone, come = group.names
    if group.is_single and first.gone == first.come:
        ask_change(name, first.gone[0], work)
    elif not any(candidate.question for candidate in group.candidates):
        work.take(places, steps)
    elif rivals:
        ask_which(first, rivals, name, work)
    elif group.is_flat:
        ask_whether(first.asked, places, steps, work)
    elif len(gone) == len(come) == 1:
        question = f"{gone[0]} is gone and {come[0]} is new: did it move there, under another name?"
        ask_whether(question, places, steps, work)
    else:
        question = f"{are(gone)} gone and {are(come)} new: did they become these, in this order?"
        ask_whether(question, places, steps, work)


# ---------------------------------------------------------------------------------------------------------------------
# What is not about one field: members of enums, choices of dtypes, entries of dicts and trees.


def _rename_members(work: Work) -> None:
    held = graph_of(work.have).enums
    for name in graph_of(work.want).enums:
        if name not in held:
            continue
        old, new = work.have.enums[name].members, work.want.enums[name].members
        left = {*new}
        gone = [member for member in old if member not in left]
        if not gone or work.want.enums[name].default is not None:
            continue
        answers = []
        for given in mappings(old, new):
            merged = "undo" in given
            words = (
                "they become a member that was there before" if merged else "they have other names"
            )
            answers.append((words, [build.map_enum(enum=name, **given)]))
        question = f"{are(gone)} no longer in {name}: what do old payloads mean by it?"
        otherwise = "If not, keep the members, or give the enum a `default:` member."
        if not answers:
            question += " Keep the members, or give the enum a `default:` member."
        otherwise = otherwise if len(answers) == 1 else ""
        work.ask([("enums", name)], question, *answers, otherwise=otherwise)


def _unite_dtypes(work: Work) -> None:
    """Casts the arrays of a choice to one of its dtypes, which holds the values of all of them if one does."""
    for (*_, name), _, _ in mixed_dtypes(work.have, work.want):
        held = held_arrays(work.have, work.want).get(name, [])  # some have another dtype by now
        dtypes = [dtype for _, _, array in held for dtype in array.dtypes]
        wanted = best_dtype(work.want.dtypes[name].members, dtypes)
        others = dict.fromkeys((s, field) for s, field, a in held if a.dtypes != (wanted,))
        steps = [
            build.cast(field=field, dtype=wanted, within=work.within(struct))
            for struct, field in others
        ]
        after = work.after(steps)
        if after is not None and len(differences(after, work.want)) < len(
            differences(work.have, work.want)
        ):
            work.take([("dtypes", name)], steps)


def _rename_entries(work: Work) -> None:
    """Asks about entries of dicts and trees, whose names defaults and examples alone show."""
    for name in graph_of(work.want).structs:
        before = work.have.structs[name].stored if name in work.have.structs else {}
        for each, wanted in work.want.structs[name].stored.items():
            held = before.get(each)
            if held is None or not same_type(held.declared, wanted.declared, work.known_in()):
                continue
            values = zip(_values_in(held), _values_in(wanted), strict=False)
            renames = dict.fromkeys(path for old, new in values for path in _renamed_keys(old, new))
            for path, to in renames:
                step = build.rename_path(field=each, path=path, to=to, within=work.within(name))
                question = f"{each} has an entry {to} in place of {path}: was it renamed?"
                work.ask([place_of(name, each)], question, ("yes", [step]), ("no", []))


def _values_in(declaration: FieldDeclaration) -> list[Any]:
    """The default of a field and its examples."""
    return [declaration.default, *(declaration.examples or ())]


def _renamed_keys(old: Any, new: Any, at: str = "") -> Iterator[tuple[str, str]]:
    """Yields the paths of entries that differ in their last name alone, where one is gone and one is new."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return
    gone, come = ([key for key in a if key not in b] for a, b in ((old, new), (new, old)))
    alike = len(gone) == len(come) == 1 and type(old[gone[0]]) is type(new[come[0]])
    if alike and "/" not in gone[0] + come[0]:
        yield at + gone[0], at + come[0]
    for key in old.keys() & new.keys():
        if "/" not in key:
            yield from _renamed_keys(old[key], new[key], f"{at}{key}/")


def _ask_the_rest(work: Work) -> None:
    """Asks about all differences that remain."""
    open_ends = {at for each in work.found if not each.answers for at in each.about}
    for left in differences(work.have, work.want):
        if left.path not in open_ends:
            reason = left.hint or "no step resolves it"
            work.ask([left.path], f"{'.'.join(left.path)}: {left.message}: {reason}.")


# ---------------------------------------------------------------------------------------------------------------------
# Suggestions as hints of messages: each at the first message that it is about.


def explained(have: Document, want: Document, found: Iterable[Difference]) -> list[Difference]:
    """Returns differences with hints that resolve them.

    Args:
        have: The version that payloads have.
        want: The version of their reader. The steps of a migration lead from the older to the newer one.
        found: Differences between them, or the remaining ones.
    """
    old, new = sorted((have, want), key=lambda document: document.version)
    found = list(found)
    if not found:
        return []
    trial = Work(old, new)
    shown = dict.fromkeys(each.path for each in found)
    given: dict[Place, list[Suggestion]] = {}  # what a message shows in full
    first: dict[Place, Place] = {}  # the message that shows what another place is about
    for suggestion in suggest(old, new):
        about = [at for at in suggestion.about if at in shown]
        fresh = [at for at in about if at not in first]
        own = [first.get(at, at) for at in (fresh or about)[:1]]
        start = _start(suggestion, own, given, trial) or next(iter(own or given or shown))
        given.setdefault(start, []).append(suggestion)
        first.update(dict.fromkeys([*fresh, start], start))
    hints = {
        at: "; then ".join(
            each.hint(at, start) for each in given[start][: None if at == start else 1]
        )
        for at, start in first.items()
    }
    return [each._replace(hint=hints.get(each.path) or each.hint) for each in found]


def _start(
    suggestion: Suggestion, own: list[Place], given: dict[Place, list[Suggestion]], trial: Work
) -> Place | None:
    """The message whose steps a suggestion can follow: its own, or the last one after which it applies.

    Each message is read alone, so steps inside of a struct that has to be renamed before follow that step.
    """
    steps = _first_steps([suggestion])
    for place in (*own, *reversed(given)):
        if trial.after([*_first_steps(given.get(place, ())), *steps]) is not None:
            return place
    return None


def _first_steps(found: Iterable[Suggestion]) -> list[Step]:
    """The steps of some suggestions, with the first answer to each question."""
    return [step for each in found for answer in each.answers[:1] for step in answer.steps]
