"""Questions to the author: which field became which, how a type changed, what old payloads get, whether values may be lost.

A question has all answers that make sense, each with steps that apply. Whatever became of two fields, one answer is that they
have nothing to do with each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from neuralqx_struct.evolution.declared_sizes import facing_sizes
from neuralqx_struct.evolution.steps import kind
from neuralqx_struct.evolution.steps.additions import additions, removals
from neuralqx_struct.evolution.steps.operations import Candidate, Edit, are
from neuralqx_struct.evolution.suggestions.work import Place, Work, edit_of, loses_values, place_of
from neuralqx_struct.schema.migration import Step
from neuralqx_struct.schema.model import Document, FieldDeclaration
from neuralqx_struct.schema.sizes.comparison import readable_as, substitute
from neuralqx_struct.types import Array, Type
from neuralqx_struct.types.text import format_type


def ask_whether(question: str, places: Sequence[Place], steps: Sequence[Step], work: Work) -> None:
    """Asks whether fields became others; the other answer is always that they have nothing to do with each other."""
    apart, lacking = unrelated(places, work, work.have)
    answers: list[tuple[str, Sequence[Step]]] = [("yes", steps)]
    if not lacking:
        answers.append(("no", apart))
    work.ask(places, f"{question}{_if_not(lacking)}", *answers, otherwise=_no_value(lacking))


def ask_which(first: Candidate, rivals: Sequence[Candidate], name: str, work: Work) -> None:
    """Asks which field became which, where several may have; those that did not are added and removed."""
    found = [first, *rivals]
    gone = [*dict.fromkeys(each for c in found for each in c.gone)]
    come = [*dict.fromkeys(each for c in found for each in c.come)]
    places = [place_of(name, each) for each in (*gone, *come)]
    answers: list[tuple[str, Sequence[Step]]] = []
    for candidate in found:
        after = work.after(candidate.steps)
        if after is None:
            continue
        others, lacking = unrelated(places, work, after)
        if not lacking:
            words = f"{candidate.gone[0]} is {candidate.come[0]} now"
            answers.append((words, [*candidate.steps, *others]))
    apart, lacking = unrelated(places, work, work.have)
    if not lacking:
        answers.append(("none of them", apart))
    question = f"{are(gone)} gone and {are(come)} new: which of them was renamed?"
    work.ask(places, f"{question}{_if_not(lacking)}", *answers, otherwise=_no_value(lacking))


def _is_kept(at: Place, have: Document, work: Work) -> bool:
    """True for a field that payloads have as the new version declares it."""
    _, struct, _, name = at
    wanted = work.want.structs[struct].stored.get(name)
    has = wanted is not None and name in have.structs[struct].stored
    return wanted is not None and has and work.has(have, struct, name, wanted)


def _is_in_both(at: Place, have: Document, work: Work) -> bool:
    """True for a place in a struct of both versions; another struct is the value of a field of one of these."""
    return len(at) > 1 and at[1] in have.structs and at[1] in work.want.structs


def _is_wanted(at: Place, have: Document, work: Work) -> bool:
    """True for a field that the new version has, and payloads have not, or with another type."""
    in_both = _is_in_both(at, have, work)
    return in_both and at[3] in work.want.structs[at[1]].stored and not _is_kept(at, have, work)


def _is_left(at: Place, have: Document, work: Work) -> bool:
    """True for a field that payloads have, and the new version has not, or with another type."""
    in_both = _is_in_both(at, have, work)
    return in_both and at[3] in have.structs[at[1]].stored and not _is_kept(at, have, work)


def unrelated(
    places: Iterable[Place], work: Work, have: Document
) -> tuple[list[Step], dict[str, str]]:
    """The steps that add and remove fields as unrelated ones, and the new ones that no constant is a value of, with why.

    Additions come first, except that of a field that has another type: only an array that goes may show a size that a
    new one has.
    """
    steps: list[Step] = []
    lacking: dict[str, str] = {}
    for adds in (True, False):
        for at in dict.fromkeys(places):
            wanted = _is_wanted(at, have, work)
            ways: list[Callable[[Edit, str], Iterator[tuple[str, Step]]]] = []
            if _is_left(at, have, work) and adds == wanted:
                ways.append(removals)
            if wanted and adds:
                ways.append(additions)
            for option in ways:
                found = [step for _, step in option(edit_of(at[1], work, have), at[3])]
                tried = ((step, work.after([step], have)) for step in found)
                step, after = next((each for each in tried if each[1] is not None), (None, None))
                if step is not None and after is not None:
                    steps.append(step)
                    have = after
                elif adds:
                    shown = format_type(work.want.structs[at[1]].stored[at[3]].declared)
                    no_sizes = "payloads do not show the sizes of its arrays"
                    lacking[at[3]] = no_sizes if found else f"files hold no {shown}"
    return steps, lacking


def _if_not(lacking: Mapping[str, str]) -> str:
    """The end of a question without the answer that new fields have nothing to do with the former ones."""
    names = " and ".join(lacking)
    return f" If not, write a step that gives {names} a value." if names else ""


def _no_value(lacking: Mapping[str, str]) -> str:
    """Why no answer gives new fields a value, and what the author can do."""
    if not lacking:
        return ""
    reasons = " and ".join(dict.fromkeys(lacking.values()))
    shown = " or ".join(lacking)
    return (
        f"If unrelated: no constant is a value of {shown}, as {reasons}. Write a `python` step, or let "
        "it be null (`| null`)."
    )


def _sound(
    found: Iterable[tuple[str, Step]], work: Work, have: Document
) -> Iterator[tuple[str, Step]]:
    """Yields the steps that apply, with their words."""
    return (each for each in found if work.after([each[1]], have) is not None)


def ask_change(name: str, each: str, work: Work) -> None:
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
        return
    if not ways:
        work.ask(about, f"{shown}: {_no_step(have, want, work)}.")
        return
    answers: list[tuple[str, Sequence[Step]]] = []
    for way in ways:
        rounded = ", rounded" if any(map(loses_values, way)) else ""
        words_of = " and ".join(dict.fromkeys(kind(step).answer for step in way))
        answers.append((f"{words_of}{rounded}", way))
    apart, lacking = unrelated(about, work, work.have)
    if not lacking:
        answers.append(("unrelated", apart))
    asked = f"{shown}: {question or 'how did it change?'}"
    work.ask(about, asked, *answers, otherwise=_no_value(lacking))


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


def ask_one_by_one(name: str, work: Work) -> None:
    """Adds suggestions for fields that are alone: additions first, as only an array that goes may show a size of a new one."""
    old, new = work.have.structs[name].stored, work.want.structs[name].stored
    edit = edit_of(name, work)
    for each in [each for each in new if each not in old]:
        if work.budget < 0:
            return
        edit.have = work.have
        shown = format_type(new[each].declared)
        question = f"{each}, {shown}, is new: what do old payloads get?"
        found = [*_sound(additions(edit, each), work, work.have)]
        if not found:
            question += f" No value of {shown} can be written: let it be `{shown} | null`, or write a step that computes it."
        _ask_alone(place_of(name, each), new[each], (question, ""), found, work)
    for each in [each for each in old if each not in new]:
        edit.have = work.have
        question = f"{each}, {format_type(old[each].declared)}, is gone: may its values be lost?"
        found = [*_sound(removals(edit, each), work, work.have)]
        lacking = "For downgrades, keep the field, or write a value of it as `undo_default:`."
        otherwise = lacking if len(found) == 1 else ""
        _ask_alone(place_of(name, each), old[each], (question, otherwise), found, work)
    for each in [each for each in new if each in old]:
        if not work.has(work.have, name, each, new[each]):
            ask_change(name, each, work)


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
        words: The question, and why an answer is missing.
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
    question, otherwise = words
    work.ask([about], question, *answers.items(), otherwise=otherwise)
