"""Suggestions: the steps between two versions that need no question, and the questions that only the author can answer.

Messages show them as hints (:func:`explained`), and revisions write them into files. A step is sure where both
declarations together determine it: a default, an alias, a dtype, a field that is found again in a nested struct. Where
there are several ways, such as a rename or a new field, or where a value has to be chosen, there is a question with the
possible answers. Every step was applied to the declaration first, so none is refused when it is pasted into a file.

Example:
    >>> suggest(v1, v1)
    ()
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import product
from typing import Any

from neuralqx_struct.dtypes import best_dtype
from neuralqx_struct.evolution import steps as build
from neuralqx_struct.evolution.declared_sizes import facing_sizes, held_arrays, mixed_dtypes
from neuralqx_struct.evolution.differences import Difference, differences, renamed_structs
from neuralqx_struct.evolution.gathering import gather_fields
from neuralqx_struct.evolution.pairings import pair_fields
from neuralqx_struct.evolution.proposals import (
    Fields,
    Place,
    Suggestion,
    Work,
    are,
    place_of,
    ways_to,
)
from neuralqx_struct.evolution.sizes import readable_as, same_type, substitute
from neuralqx_struct.evolution.steps import kind
from neuralqx_struct.evolution.steps.fields import mappings
from neuralqx_struct.evolution.steps.structs import is_renamed
from neuralqx_struct.schema.migration import Step
from neuralqx_struct.schema.model import Document, FieldDeclaration
from neuralqx_struct.schema.sizes.scopes import reachable, start_of
from neuralqx_struct.types import Array, Type, walk_type
from neuralqx_struct.types.text import format_type

_MOST_ROUNDS = 3  # after a move, fields may move on into the next struct
_COMPARED = 10  # comparing the fields of two versions takes so many times the work of copying them
_MOST_FACING = 1000  # pairs of fields that may hold a struct under two names


def explained(have: Document, want: Document, found: Iterable[Difference]) -> list[Difference]:
    """Returns differences with hints that resolve them.

    Args:
        have: The version that payloads have.
        want: The version of their reader. The steps of a migration lead from the older to the newer one.
        found: Differences between them, or the remaining ones.
    """
    old, new = sorted((have, want), key=lambda document: document.version)
    found = list(found)
    shown = [each.path for each in found]
    places = set(shown)
    first: dict[Place, Place] = {}
    given: dict[Place, list[Suggestion]] = {}
    last = shown[:1]
    renamed: dict[str, Place] = {}
    trial = Work(old, new)  # one budget for all steps that are tried

    def applied_after(steps: list[Step]) -> list[Place]:
        """The last place after whose steps these can be applied, if there is one."""
        for at in (*last[:1], *reversed(given)):
            before = _first_steps(given.get(first.get(at, at), ()))
            if trial.after([*before, *steps]) is not None:
                return [at]
        return []

    for suggestion in suggest(old, new) if found else ():
        about = [at for at in suggestion.about if at in places]
        fresh = [at for at in about if at not in first]
        steps: list[Any] = _first_steps([suggestion])
        # A suggestion that no message is about, a difference that another suggestion leaves, and steps that need a
        # struct to be renamed before follow the step that renames it, or else the last one after which they apply.
        before = [renamed[at[1]] for at in suggestion.about if at[1:2] and at[1] in renamed]
        late = before if before and trial.after(steps) is None else []
        last = late or fresh or about or before or applied_after(steps) or last
        first |= dict.fromkeys(fresh, last[0])
        start = first.setdefault(last[0], last[0])
        given.setdefault(start, []).append(suggestion)
        renamed |= {step.to: start for step in steps if kind(step).renames_struct}
    remaining = len(differences(old, new))
    hints: dict[Place, str] = {}
    for at, start in first.items():
        chosen = given[start]
        if at == start and not _is_nearer(chosen, trial, remaining):
            chosen = [suggestion for suggestion in chosen if not suggestion.answers]
        shortened = chosen if at == start else chosen[:1]
        hints[at] = "; then ".join(suggestion.hint(at, start) for suggestion in shortened)
    return [replace(each, hint=hints.get(each.path) or each.hint) for each in found]


def _first_steps(found: Iterable[Suggestion]) -> list[Step]:
    """The steps of some suggestions, with the first answer to each question."""
    return [step for each in found for answer in each.answers[:1] for step in answer.steps]


def _is_nearer(found: Iterable[Suggestion], trial: Work, remaining: int) -> bool:
    """False if suggestions that rename a struct leave as many differences as there were."""
    steps = _first_steps(found)
    if not any(kind(step).renames_struct for step in steps):
        return True
    after = trial.after(steps)
    trial.budget -= _COMPARED * sum(len(struct.fields) for struct in trial.have.structs.values())
    return after is not None and len(differences(after, trial.want)) < remaining


def suggest(old: Document, new: Document) -> tuple[Suggestion, ...]:
    """The steps from one version to the next, and questions about the others, in the order of a migration.

    Args:
        old: The version that payloads have.
        new: The version that is wanted; its own migrations are ignored.
    """
    work = Work(start_of(old, new), new)
    _rename_structs(work)
    _move_fields(work)
    seen: set[str] = set()
    while names := [n for n in reachable(new)[0] if n in reachable(work.have)[0] and n not in seen]:
        for name in names:
            pair_fields(name, work)
        for name in names:
            _convert_fields(name, work)
        seen.update(names)  # converting a field may rename a struct, whose fields are compared next
    _rename_members(work)
    _unite_dtypes(work)
    _rename_entries(work)
    _ask_the_rest(work)
    return tuple(work.found)


# ---------------------------------------------------------------------------------------------------------------------
# Structs, and fields that moved between them.


def _rename_structs(work: Work) -> None:
    old, new = work.have, work.want
    stored = {*reachable(old)[0]}, {*reachable(new)[0]}
    for former, name in renamed_structs(old, new):
        if former in stored[0] and name in stored[1]:
            _rename_struct(former, name, work)
    for former, name in [*_in_one_place(work)]:
        _rename_struct(former, name, work)


def _rename_struct(former: str, name: str, work: Work) -> None:
    step = build.rename_struct(struct=former, to=name)
    about = [*_users(former, work.have)]
    if former in work.want.structs[name].aliases:
        work.take(about, step)
    else:
        question = f"{former} is gone and {name} is new: was it renamed?"
        work.ask(about, question, ("yes", [step]))


def _in_one_place(work: Work) -> Iterator[tuple[str, str]]:
    """Yields structs of which one took the place of the other in a field, with some of its fields."""
    old, new = work.have.structs, work.want.structs
    found: dict[str, str] = {}
    for owner in [name for name in reachable(work.want)[0] if name in old]:
        for have, want in _facing(old[owner].stored, new[owner].stored):
            for a, b in zip(walk_type(have), walk_type(want), strict=False):
                if is_renamed(a.refers, b.refers, work.have, work.want):
                    common = old[a.refers].stored.keys() & new[b.refers].stored.keys()
                    if common and a.refers not in found and b.refers not in found.values():
                        found[a.refers] = b.refers
    yield from found.items()


def _facing(old: Fields, new: Fields) -> Iterator[tuple[Type, Type]]:
    """Yields the types of fields in both versions, then those of fields that only one has."""
    for name, declaration in old.items():
        if name in new:
            yield declaration.declared, new[name].declared
    pairs = product(old.keys() - new.keys(), new.keys() - old.keys())
    for a, b in sorted(pairs)[:_MOST_FACING]:
        yield old[a].declared, new[b].declared


def _users(struct: str, document: Document) -> Iterator[Place]:
    """Yields the places where a struct is used."""
    if struct == document.root:
        yield ("root",)
    for owner, declaration in document.structs.items():
        for name, stored in declaration.stored.items():
            if any(inner.refers == struct for inner in walk_type(stored.declared)):
                yield place_of(owner, name)


def _move_fields(work: Work) -> None:
    """Takes fields into nested structs and out of them, from the root inwards."""
    for _ in range(_MOST_ROUNDS):
        found = [gather_fields(name, work) for name in _outermost_first(work.want)]
        if not any(found):
            return


def _outermost_first(document: Document) -> list[str]:
    """The structs of a document, each behind one that holds it."""
    found = [document.root]
    for name in found:
        for declaration in document.structs[name].stored.values():
            for inner in walk_type(declaration.declared):
                if inner.refers in document.structs and inner.refers not in found:
                    found.append(inner.refers)
    return found


# ---------------------------------------------------------------------------------------------------------------------
# Fields of another type, and members of enums.


def _convert_fields(name: str, work: Work) -> None:
    for each, wanted in work.want.structs[name].stored.items():
        stored = work.have.structs[name].stored
        known = work.known_in(name)
        if each in stored and not readable_as(stored[each].declared, wanted.declared, known):
            _convert(name, each, wanted, work)


def _convert(name: str, each: str, wanted: FieldDeclaration, work: Work) -> None:
    have, want = work.have.structs[name].fields[each].declared, wanted.declared
    words = have.solid[0].spelled(work.have) and want.solid[0].spelled(work.want)
    most = 3 if words else 2  # words become literal strings, then others, and then what is wanted
    ways = list(ways_to(name, each, wanted, work, most=most))
    questions = [kind(step).question(wanted) for way in ways for step in way]
    question = next(filter(None, questions), "")
    shown = f"{each} was {format_type(have)} and is {format_type(want)}"
    about = [place_of(name, each)]
    if len(ways) == 1 and not question:
        work.take(about, *ways[0])
    elif ways:
        answers = [(" and ".join(dict.fromkeys(kind(s).answer for s in way)), way) for way in ways]
        work.ask(about, f"{shown}: {question or 'how did it change?'}", *answers)
    else:
        work.ask(about, f"{shown}: {_no_step(have, want, work)}.")


def _no_step(have: Type, want: Type, work: Work) -> str:
    """The reason why no step turns one type into another, and the way out."""
    if isinstance(have, Array) and isinstance(want, Array) and have.dtype == want.dtype:
        names = {name: size for size, name in facing_sizes(have, want)}
        renamed = readable_as(have, substitute(want, names), work.known)
        return (
            "no step turns one shape into the other, as they are not of one size for all dims; "
            f"{f'write `{format_type(have)}`, or ' if renamed else ''}"
            "declare them under dims of both versions, with `equals:`, if they are"
        )
    if have.refers in work.have.enums and want.refers in work.want.enums:
        return (
            f"they have other members: rename those of {have.refers} with `map_enum`, "
            f"then `convert` the field to {want.refers}"
        )
    return "no step turns one into the other; give the new field another name, or write a `python` step"


def _rename_members(work: Work) -> None:
    held = reachable(work.have)[1]
    for name in reachable(work.want)[1]:
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
        if not answers:
            question += " Keep the members, or give the enum a `default:` member."
        work.ask([("enums", name)], question, *answers)


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
            work.take([("dtypes", name)], *steps)


def _rename_entries(work: Work) -> None:
    """Asks about entries of dicts and trees, whose names defaults and examples alone show."""
    for name in reachable(work.want)[0]:
        before = work.have.structs[name].stored if name in work.have.structs else {}
        for each, wanted in work.want.structs[name].stored.items():
            held = before.get(each)
            if held is None or not same_type(held.declared, wanted.declared, work.known):
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
