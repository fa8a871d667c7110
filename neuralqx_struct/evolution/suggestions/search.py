"""The search for the steps between two versions: candidates are generated, tried, and taken, the likely ones first.

Every kind of step brings its candidates (``evolution/steps``); a candidate is taken if its steps apply and lead to the
fields that the new version declares. So every suggestion lints, and a new kind of step needs no change here.

Example:
    >>> suggest(v1, v1)
    ()
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import Any

from neuralqx_struct.dtypes import best_dtype
from neuralqx_struct.errors import SchemaError
from neuralqx_struct.evolution import steps as build
from neuralqx_struct.evolution.declared_sizes import facing_sizes, held_arrays, mixed_dtypes
from neuralqx_struct.evolution.differences import differences, renamed_structs
from neuralqx_struct.evolution.sizes import readable_as, same_type, substitute
from neuralqx_struct.evolution.steps import apply_to_document, inverse, kind
from neuralqx_struct.evolution.steps.additions import additions, removals
from neuralqx_struct.evolution.steps.candidates import MOST_FIELDS, Candidate, Edit, Fields, are
from neuralqx_struct.evolution.steps.fields import mappings
from neuralqx_struct.evolution.steps.structs import is_renamed
from neuralqx_struct.evolution.suggestions.flat import Flat, Group, with_fields
from neuralqx_struct.evolution.suggestions.work import Place, Suggestion, Work, place_of
from neuralqx_struct.expressions import Expression, parse
from neuralqx_struct.schema.migration import Step
from neuralqx_struct.schema.model import Document, FieldDeclaration
from neuralqx_struct.schema.sizes.scopes import reachable, sizes_of_struct, start_of
from neuralqx_struct.types import Array, Type, walk_type
from neuralqx_struct.types.text import format_type

_MOST_ROUNDS = 3  # after a move, fields may move on into the next struct
_MOST_FACING = 1000  # pairs of fields that may hold a struct under two names


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
        _ask_one_by_one(name, work)
    _rename_members(work)
    _unite_dtypes(work)
    _rename_entries(work)
    _ask_the_rest(work)
    return tuple(work.found)


def _in_both(work: Work) -> list[str]:
    """The structs of both versions that payloads hold, each behind one that holds it."""
    document, held = work.want, reachable(work.have)[0]
    found = [document.root]
    for name in found:
        for declaration in document.structs[name].stored.values():
            for inner in walk_type(declaration.declared):
                if inner.refers in document.structs and inner.refers not in found:
                    found.append(inner.refers)
    return [name for name in found if name in held]


# ---------------------------------------------------------------------------------------------------------------------
# Structs under other names.


def _rename_structs(work: Work) -> None:
    old, new = work.have, work.want
    stored = {*reachable(old)[0]}, {*reachable(new)[0]}
    for former, name in renamed_structs(old, new):
        if former in stored[0] and name in stored[1]:
            _rename_struct(former, name, work)
    for former, name in [*_in_one_place(work)]:
        _rename_struct(former, name, work)


def _rename_struct(former: str, name: str, work: Work) -> None:
    steps = [build.rename_struct(struct=former, to=name)]
    about = [*_users(former, work.have)]
    if former in work.want.structs[name].aliases:
        work.take(about, steps)
    else:
        work.ask(about, f"{former} is gone and {name} is new: was it renamed?", ("yes", steps))


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


# ---------------------------------------------------------------------------------------------------------------------
# Fields: which became which.


def _pair_fields(name: str, work: Work) -> None:
    """Adds suggestions for fields of a struct, and of those nested in it, that became others or changed their type."""
    flat = Flat.of(name, work)
    choice = _chosen(name, flat.flat)
    work.budget = flat.flat.budget
    for group in flat.groups(choice.taken):
        steps = flat.steps(group)
        if steps is not None:
            rivals = [*choice.rivals(group.candidates[0])] if group.is_single else []
            _suggest_group(group, steps, rivals, name, work)


def _suggest_group(
    group: Group, steps: list[Step], rivals: Sequence[Candidate], name: str, work: Work
) -> None:
    """Adds the suggestion of a group in a struct."""
    first = group.candidates[0]
    places = [*group.places(name)]
    gone, come = group.names
    if group.is_single and first.gone == first.come:
        _ask_change(name, first.gone[0], work)
    elif not any(candidate.question for candidate in group.candidates):
        work.take(places, steps)
    elif rivals:
        _ask_which(first, rivals, name, work)
    elif group.is_flat:
        _ask(first.question, places, steps, work)
    elif len(gone) == len(come) == 1:
        question = f"{gone[0]} is gone and {come[0]} is new: did it move there, under another name?"
        _ask(question, places, steps, work)
    else:
        question = f"{are(gone)} gone and {are(come)} new: did they become these, in this order?"
        _ask(question, places, steps, work)


def _ask(question: str, places: Sequence[Place], steps: Sequence[Step], work: Work) -> None:
    """Asks whether fields became others; the other answer is always that they have nothing to do with each other."""
    apart = _apart(places, work, work.have)
    answers: list[tuple[str, Sequence[Step]]] = [("yes", steps)]
    if apart is None:
        come = [at[3] for at in places if _is_new(at, work)]
        values = f"{' and '.join(come)} a value; no constant is one"
        question = f"{question} If not, write a step that gives {values}."
    else:
        answers.append(("no", apart))
    work.ask(places, question, *answers)


def _ask_which(
    first: Candidate, rivals: Sequence[Candidate], name: str, work: Work
) -> None:
    """Asks which field became which, where several may have; those that did not are added and removed."""
    found = [first, *rivals]
    gone = [*dict.fromkeys(each for c in found for each in c.gone)]
    come = [*dict.fromkeys(each for c in found for each in c.come)]
    places = [place_of(name, each) for each in (*gone, *come)]
    answers: list[tuple[str, Sequence[Step]]] = []
    for candidate in found:
        after = work.after(candidate.steps)
        others = after and _apart(places, work, after)
        if others is not None:
            words = f"{candidate.gone[0]} is {candidate.come[0]} now"
            answers.append((words, [*candidate.steps, *others]))
    apart = _apart(places, work, work.have)
    if apart is not None:
        answers.append(("none of them", apart))
    question = f"{are(gone)} gone and {are(come)} new: which of them was renamed?"
    work.ask(places, question, *answers)


def _is_new(at: Place, work: Work) -> bool:
    """True for a field that only the new version has, in a struct that both have."""
    struct, name = at[1], at[3]
    both = struct in work.have.structs and struct in work.want.structs
    return both and name in work.want.structs[struct].stored.keys() - work.have.structs[
        struct
    ].stored.keys()


def _apart(places: Sequence[Place], work: Work, have: Document) -> list[Step] | None:
    """The steps that add and remove fields as unrelated ones; None if no constant is a value of a new one.

    Additions come first: only an array that goes may show a size that a new one has.
    """
    steps: list[Step] = []
    for adds in (True, False):
        for _, struct, _, name in dict.fromkeys(places):
            if struct not in have.structs or struct not in work.want.structs:
                continue  # a struct that is gone or new is the value of a field of another one
            edit = _edit_of(struct, work, have)
            found: list[Iterable[tuple[str, Step]]] = []
            if name in edit.gone and adds == (name in edit.come):
                found.append(removals(edit, name))
            if name in edit.come and adds:
                found.append(additions(edit, name))
            for options in found:
                step = next((step for _, step in _sound(options, work, have)), None)
                after = None if step is None else work.after([step], have)
                if step is None or after is None:
                    return None
                steps.append(step)
                have = after
    return steps


def _sound(
    found: Iterable[tuple[str, Step]], work: Work, have: Document
) -> Iterator[tuple[str, Step]]:
    """Yields the steps that apply, with their words."""
    return (each for each in found if work.after([each[1]], have) is not None)


@dataclass(slots=True)
class _Choice:
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
        if len(taken.gone) > 1 or len(taken.come) > 1:
            return
        for other in self.left:
            ends = (*other.gone, *other.come)
            same_gone, same_come = other.gone == taken.gone, other.come == taken.come
            free = [*self.edit.gone] if same_come else [*self.edit.come]
            end = other.gone if same_come else other.come
            if len(ends) == 2 and same_gone != same_come and end[0] in free:
                yield other


def _chosen(name: str, work: Work) -> _Choice:
    """What became of the fields of a struct, those that both versions have first; takes the steps."""
    taken, left = [*_kept(name, work)], list[Candidate]()
    for candidate in taken:
        work.have = work.after(candidate.steps) or work.have
    edit = _edit_of(name, work)
    for named in (True, False):
        found = [*build.candidates(edit, named=named), *_undone(edit, work, named=named)]
        for candidate in sorted(found, key=lambda each: each.cost):
            if _leads_there(candidate, edit, work):
                work.have = work.after(candidate.steps) or work.have
                _settle(candidate, edit, work)
                taken.append(candidate)
            else:
                left.append(candidate)
    return _Choice(edit, taken, left)


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
    for candidate in build.candidates(_edit_of(edit.name, back), named=named, undone=True):
        steps = _inverted(candidate.steps, start, edit.have)
        if steps is not None:
            question = _turned_question(candidate)
            yield Candidate(candidate.come, candidate.gone, steps, candidate.cost, question)
    work.budget = back.budget


def _inverted(
    steps: Iterable[Step], start: Document, target: Document
) -> tuple[Step, ...] | None:
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


def _turned_question(candidate: Candidate) -> str:
    before = f"{are(candidate.gone)} gone and {are(candidate.come)} new"
    after = f"{are(candidate.come)} gone and {are(candidate.gone)} new"
    return candidate.question.replace(before, after)


# ---------------------------------------------------------------------------------------------------------------------
# Edits.


def _edit_of(name: str, work: Work, have: Document | None = None) -> Edit:
    """A struct with the fields that only one version has, or to whose type in the other no steps lead."""
    start = have or work.have
    old, new = start.structs[name].stored, work.want.structs[name].stored
    gone = {field: d for field, d in old.items() if field not in new}
    come = {field: d for field, d in new.items() if field not in old}
    if len(gone) + len(come) <= MOST_FIELDS:
        stuck = [each for each in old if each in new and not _is_reached(name, each, work, start)]
        gone |= {each: old[each] for each in stuck}
        come |= {each: new[each] for each in stuck}
    known = {**_renamed_sizes(name, work, start), **work.known_after(start, name)}

    def change(
        field: str, wanted: FieldDeclaration, before: Sequence[Step]
    ) -> Iterator[list[Step]]:
        after = work.after(before)
        if after is None or field not in after.structs[name].stored:
            return
        if work.has(after, name, field, wanted):
            yield []
        else:
            yield from work.ways_to(name, field, wanted, after)

    return Edit(
        name=name,
        have=start,
        want=work.want,
        gone=gone,
        come=come,
        known=known,
        apply=work.after,
        change=change,
    )


def _is_reached(name: str, each: str, work: Work, have: Document) -> bool:
    """True if a field has the wanted type, or steps lead there."""
    wanted = work.want.structs[name].stored[each]
    if work.has(have, name, each, wanted):
        return True
    return next(work.ways_to(name, each, wanted, have), None) is not None


def _renamed_sizes(name: str, work: Work, have: Document) -> dict[str, Expression]:
    """Sizes that are new as those that are gone, in the order of their first places."""
    old, new = ([*sizes_of_struct(document, name)] for document in (have, work.want))
    known = work.known_after(have, name)
    settled = {name for size in known.values() for name in size.names}
    taken = {*new, *work.want.dims, *settled}, {*old, *have.dims, *known}
    gone = [name for name in old if name not in taken[0]]
    come = [name for name in new if name not in taken[1]]
    return {name: parse(size) for name, size in zip(come, gone, strict=False)}


# ---------------------------------------------------------------------------------------------------------------------
# Fields of another type.


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


def _ask_change(name: str, each: str, work: Work) -> None:
    """Adds the steps that change the type of a field; asks where there are several ways."""
    declaration, wanted = (d.structs[name].stored[each] for d in (work.have, work.want))
    have, want = declaration.declared, wanted.declared
    words = have.solid[0].spelled(work.have) and want.solid[0].spelled(work.want)
    most = 3 if words else 2  # words become literal strings, then others, and then what is wanted
    ways = [*work.ways_to(name, each, wanted, work.have, most)]
    questions = [kind(step).question(wanted) for way in ways for step in way]
    question = next(filter(None, questions), "")
    shown = f"{each} was {format_type(have)} and is {format_type(want)}"
    about = [place_of(name, each)]
    if len(ways) == 1 and not question:
        work.take(about, ways[0])
    elif ways:
        answers = [(" and ".join(dict.fromkeys(kind(s).answer for s in way)), way) for way in ways]
        work.ask(about, f"{shown}: {question or 'how did it change?'}", *answers)
    else:
        work.ask(about, f"{shown}: {_no_step(have, want, work)}.")


def _no_step(have: Type, want: Type, work: Work) -> str:
    """The reason why no step turns one type into another, and the way out."""
    if isinstance(have, Array) and isinstance(want, Array) and have.dtype == want.dtype:
        names = {name: size for size, name in facing_sizes(have, want)}
        renamed = readable_as(have, substitute(want, names), work.known_in())
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


# ---------------------------------------------------------------------------------------------------------------------
# Fields that came from nowhere, or went there.


def _ask_one_by_one(name: str, work: Work) -> None:
    """Adds suggestions for fields that are alone: additions first, as only an array that goes may show a size of a new one."""
    old, new = work.have.structs[name].stored, work.want.structs[name].stored
    for each in [each for each in new if each not in old]:
        shown = format_type(new[each].declared)
        question = f"{each}, {shown}, is new: what do old payloads get?"
        lacking = f" No value of {shown} can be written: let it be `{shown} | null`, or write a step that computes it."
        found = _sound(additions(_edit_of(name, work), each), work, work.have)
        _ask_alone(place_of(name, each), new[each], (question, lacking), found, work)
    for each in [each for each in old if each not in new]:
        question = f"{each}, {format_type(old[each].declared)}, is gone: may its values be lost?"
        found = _sound(removals(_edit_of(name, work), each), work, work.have)
        _ask_alone(place_of(name, each), old[each], (question, ""), found, work)
    for each in [each for each in new if each in old]:
        if not work.has(work.have, name, each, new[each]):
            _ask_change(name, each, work)


def _ask_alone(
    about: Place,
    declaration: FieldDeclaration,
    words: tuple[str, str],
    found: Iterable[tuple[str, Step]],
    work: Work,
) -> None:
    """Adds the suggestion for a field that only one version has; its default is an answer that needs no question.

    Args:
        about: The field.
        declaration: Its declaration.
        words: The question, and what to add to it if there is no step.
        found: The steps that resolve it, with words.
        work: Both versions.
    """
    answers: dict[str, Sequence[Step]] = {}
    for label, step in found:
        answers.setdefault(label, (step,))
    first = next(iter(answers.values()), None)
    keeps = first is not None and not getattr(first[0], "lossy", False)
    if declaration.has_default and keeps and work.take([about], first or ()):
        return
    question, lacking = words
    work.ask([about], question if answers else question + lacking, *answers.items())


# ---------------------------------------------------------------------------------------------------------------------
# What is not about one field: members of enums, choices of dtypes, entries of dicts and trees.


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
            work.take([("dtypes", name)], steps)


def _rename_entries(work: Work) -> None:
    """Asks about entries of dicts and trees, whose names defaults and examples alone show."""
    for name in reachable(work.want)[0]:
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
