"""Inference: the steps between two versions that need no asking, and the questions that only the author can answer.

Owns :func:`infer`. A step is inferred where both declarations together say what is meant: a default, an alias, a dtype, a
field that is found again in a nested struct. Where there are two ways, such as a rename or a new field, or where a value
has to be thought of, there is a question with the answers that would do. Every step was applied to the declaration
first. How questions are written into files and found again is for ``revision.py``.

Example:
    >>> [step.field for step in infer(v1, v1).items]
    []
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from itertools import permutations, product

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.evolution import steps as build
from neuralqx_struct.evolution.diff import probable_renames
from neuralqx_struct.evolution.differences import differences
from neuralqx_struct.evolution.hints import (
    Pairing,
    Versions,
    candidates,
    moves,
    renames,
    renaming,
    root_hint,
    values_for,
)
from neuralqx_struct.evolution.sizes import equations, readable_as, same_type
from neuralqx_struct.evolution.steps import apply_to_document
from neuralqx_struct.schema.fingerprint import reachable
from neuralqx_struct.schema.migration import Fill, MapEnum, Reshape, Step, Transpose
from neuralqx_struct.schema.model import Document, FieldDeclaration, StructDeclaration
from neuralqx_struct.schema.types import Array, LiteralOf, Type, format_type, walk_type

__all__ = ["Answer", "Inference", "Question", "infer"]


@dataclass(frozen=True, slots=True)
class Answer:
    """One way to answer a question: words, and the steps to write then."""

    words: str
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """What only the author knows; without answers there is no step that could be proposed."""

    text: str
    answers: tuple[Answer, ...] = ()


@dataclass(frozen=True, slots=True)
class Inference:
    """Steps and questions in the order in which they belong into a file."""

    items: tuple[Step | Question, ...]

    @property
    def steps(self) -> tuple[Step, ...]:
        """What was inferred."""
        return tuple(item for item in self.items if isinstance(item, Step))

    @property
    def questions(self) -> tuple[Question, ...]:
        """What is to be answered."""
        return tuple(item for item in self.items if isinstance(item, Question))


def infer(old: Document, new: Document) -> Inference:
    """Find the steps from one version to the next, as far as nothing has to be guessed.

    Args:
        old: The version that payloads have.
        new: The version that is wanted; migrations that it declares are not looked at.
    """
    work = _Work(old, new)
    _renamed_structs(work)
    _moved_fields(work)
    names = [name for name in reachable(new)[0] if name in work.have.structs]
    for name in names:
        _fields(name, work)
    for name in names:
        _types(name, work)
    _enums(work)
    _rest(work)
    return Inference(tuple(work.items))


@dataclass(slots=True)
class _Work:
    """The declaration behind the steps so far; questions are looked at as if their first answer were given."""

    have: Document
    want: Document
    items: list[Step | Question] = field(default_factory=list)

    @property
    def versions(self) -> Versions:
        """What steps are tried on."""
        return Versions(self.have, self.want, equations(self.want, self.have))

    def take(self, *steps: Step) -> bool:
        """Write steps down, if they apply."""
        after = self.versions.after(steps)
        if after is None:
            return False
        self.have = after
        self.items += steps
        return True

    def ask(self, text: str, *answers: tuple[str, Sequence[Step]]) -> None:
        """Write a question down, with those answers that apply."""
        sound = [Answer(words, tuple(steps)) for words, steps in answers if self.versions.after(steps) is not None]
        self.items.append(Question(text, tuple(sound)))
        if sound:
            self.have = self.versions.after(sound[0].steps) or self.have


# ---------------------------------------------------------------------------------------------------------------------
# Structs, and fields that moved between them.


def _renamed_structs(work: _Work) -> None:
    old, new = work.have, work.want
    gone = [name for name in reachable(old)[0] if name not in new.structs]
    for name in [name for name in reachable(new)[0] if name not in old.structs]:
        struct = new.structs[name]
        aliases = [alias for alias in struct.aliases if alias in gone]
        twins = [former for former in gone if _same_fields(old.structs[former], struct)]
        if aliases and work.take(build.rename_struct(struct=aliases[0], to=name)):
            gone.remove(aliases[0])
        elif twins and not aliases:
            words = f"is the struct {name} the former {twins[0]}? It has the same fields."
            work.ask(words, ("yes", [build.rename_struct(struct=twins[0], to=name)]))
            gone.remove(twins[0])


def _same_fields(a: StructDeclaration, b: StructDeclaration) -> bool:
    forms = [{name: format_type(d.declared) for name, d in struct.stored.items()} for struct in (a, b)]
    return forms[0] == forms[1] and bool(forms[0]) and a.params == b.params


def _moved_fields(work: _Work) -> None:
    for _ in range(len(work.have.structs) + len(work.want.structs)):
        names = [name for name in reachable(work.want)[0] if name in work.have.structs]
        found = next(iter(moves(work.versions, names)), None)
        if found is None or not work.take(found[0]):
            return


# ---------------------------------------------------------------------------------------------------------------------
# Fields that only one version has.


def _fields(name: str, work: _Work) -> None:
    old, new = work.have.structs[name], work.want.structs[name]
    gone = {f: d for f, d in old.stored.items() if f not in new.stored}
    come = {f: d for f, d in new.stored.items() if f not in old.stored}
    pairing = Pairing(name, old, new, gone, come)
    _said_renames(pairing, work)
    for a, b, _ in probable_renames(old, new, work.versions.known):
        if a in gone and b in come and (steps := renaming(name, a, b, work.versions)):
            _ask_renamed(pairing, a, b, steps, work)
    for fields, made, step, words in _combined(pairing, work):
        question = f"{_are(fields)} gone and {_are(made)} new: is {words}?"
        _ask_one(question, [step], pairing, fields, made, work)
    for a, (b, steps) in renames(pairing, work.versions).items():
        _ask_renamed(pairing, a, b, steps, work)
    for a in list(gone):
        _removed(pairing, a, work)
    for b in list(come):
        _added(pairing, b, work)


def _ask_renamed(pairing: Pairing, a: str, b: str, steps: Sequence[Step], work: _Work) -> None:
    shown = format_type(pairing.gone[a].declared)
    words = f"{a} is gone and {b} is new, of type {shown}: is it one field under another name?"
    _ask_one(words, steps, pairing, [a], [b], work)


def _ask_one(  # noqa: PLR0917 - what is gone, what is new, and what may be meant
    words: str, steps: Sequence[Step], pairing: Pairing, gone: Sequence[str], come: Sequence[str], work: _Work
) -> None:
    """Ask whether what is gone and what is new are one thing."""
    apart = _apart(pairing, gone, come, work)
    if apart is None:
        work.ask(
            f"{words} If not, write a step that gives {' and '.join(come)} a value; no constant is one.", ("yes", steps)
        )
    else:
        work.ask(words, ("yes", steps), ("no", apart))
    _settled(pairing, gone, come)


def _settled(pairing: Pairing, gone: Sequence[str], come: Sequence[str]) -> None:
    for a in gone:
        del pairing.gone[a]
    for b in come:
        del pairing.come[b]


def _are(names: Sequence[str]) -> str:
    return f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'}"


def _said_renames(pairing: Pairing, work: _Work) -> None:
    """Renames that the new version declares itself, by an alias."""
    for b, declaration in list(pairing.come.items()):
        a = next((alias for alias in declaration.aliases if alias in pairing.gone), None)
        if a is not None and work.take(build.rename(field=a, to=b, within=work.versions.within(pairing.name))):
            _settled(pairing, [a], [b])


_MOST = 12  # fields that come or go at once in one struct; more pairs are not looked at


def _combined(pairing: Pairing, work: _Work) -> Iterator[tuple[list[str], list[str], Step, str]]:
    """Two arrays that became one, or one that became two: real and imaginary part, or parts along an axis."""
    if len(pairing.gone) > _MOST or len(pairing.come) > _MOST:
        return
    within = work.versions.within(pairing.name)
    ways: list[tuple[list[str], list[str], Step, str]] = []
    for c, (a, b) in product(pairing.come, permutations(pairing.gone, 2)):
        step: Step = build.merge(fields=[a, b], into=c, how="complex", within=within)
        ways.append(([a, b], [c], step, f"{a} the real and {b} the imaginary part of {c}"))
    for a, (b, c) in product(pairing.gone, permutations(pairing.come, 2)):
        ways += [([a], [b, c], step, words) for step, words in _splits(a, b, c, pairing, within)]
    for way in sorted((way for way in ways if _gives(way[2], pairing, way[1], work)), key=_unlikeness):
        if set(way[0]) <= pairing.gone.keys() and set(way[1]) <= pairing.come.keys():
            yield way


#: What names say of the parts of a complex array.
_PART = re.compile(r"_?(re|im|real|imag)$|^(re|im|real|imag)_")


def _unlikeness(way: tuple[list[str], list[str], Step, str]) -> tuple[bool, float, bool]:
    """Names that belong together come first: w_re and w_im, before any others; what has most in common, before less."""
    alike = [SequenceMatcher(None, a, b).ratio() for a in way[0] for b in way[1]]
    first, second = max(way[0], way[1], key=len)
    parts = _PART.search(first), _PART.search(second)
    same = all(parts) and _PART.sub("", first) == _PART.sub("", second)
    return not same, -sum(alike), parts[0] is not None and "im" in parts[0].group()


def _splits(a: str, b: str, c: str, pairing: Pairing, within: str | None) -> Iterator[tuple[Step, str]]:
    yield (
        build.split(field=a, into=[b, c], how="complex", within=within),
        f"{b} the real and {c} the imaginary part of {a}",
    )
    first, second = pairing.come[b].declared, pairing.come[c].declared
    if not (isinstance(first, Array) and isinstance(second, Array) and ... not in (*first.shape, *second.shape)):
        return
    for axis in range(min(len(first.shape), len(second.shape))):
        sizes = {name: _size(t.shape[axis].text) for name, t in ((b, first), (c, second))}  # type: ignore[union-attr]  # no ... in it
        words = f"{a} joined from {b} and then {c}, along axis {axis}"
        yield build.split(field=a, into=sizes, axis=axis, within=within), words


def _size(text: str) -> str | int:
    return int(text) if text.isdecimal() else text


def _gives(step: Step, pairing: Pairing, names: Sequence[str], work: _Work) -> bool:
    """Whether a step leads to fields as the new version declares them."""
    after = work.versions.after([step])
    if after is None:
        return False
    made = after.structs[pairing.name].stored
    known = equations(work.want, work.have)
    return all(same_type(made[name].declared, pairing.come[name].declared, known) for name in names)


def _apart(pairing: Pairing, gone: Sequence[str], come: Sequence[str], work: _Work) -> list[Step] | None:
    """The steps for fields that have nothing to do with each other; None where no value can be written for a new one."""
    added = [_additions(pairing, b, work)[:1] for b in come]
    steps = [_removals(pairing, a, work)[0] for a in gone] + [step for steps in added for step in steps]
    return steps if all(added) else None


def _removals(pairing: Pairing, name: str, work: _Work) -> list[Step]:
    within = work.versions.within(pairing.name)
    undo: list[Step] = [
        build.remove(field=name, undo_default=v, within=within) for v in values_for(pairing.gone[name], work.have)
    ]
    steps = [*undo, build.remove(field=name, lossy=True, within=within)]
    return [step for step in steps if work.versions.after([step]) is not None] or steps[-1:]


def _additions(pairing: Pairing, name: str, work: _Work) -> list[Step]:
    within = work.versions.within(pairing.name)
    steps = [build.add(field=name, default=v, within=within) for v in values_for(pairing.come[name], work.want)]
    return [step for step in steps if work.versions.after([step]) is not None]


def _removed(pairing: Pairing, name: str, work: _Work) -> None:
    declaration = pairing.gone[name]
    steps = _removals(pairing, name, work)
    alike = _alike(declaration, pairing.come, work)
    if declaration.has_default and not alike and work.take(steps[0]):
        return
    kept = (
        [("the value that a downgrade puts in its place", [steps[0]])]
        if steps[0].model_dump().get("lossy") is False
        else []
    )
    lost = ("no downgrade", [build.remove(field=name, lossy=True, within=work.versions.within(pairing.name))])
    maybe = f" (if it became {' or '.join(alike)}, write a rename)" if alike else ""
    work.ask(f"{name}, {format_type(declaration.declared)}, is gone: may its values be lost?{maybe}", *kept, lost)


def _added(pairing: Pairing, name: str, work: _Work) -> None:
    declaration = pairing.come[name]
    steps = _additions(pairing, name, work)
    alike = _alike(declaration, pairing.gone, work)
    if declaration.has_default and steps and not alike and work.take(steps[0]):
        return
    shown = format_type(declaration.declared)
    words = f"{name}, {shown}, is new: what do old payloads get?"
    if not steps:
        words += f" No value of {shown} can be written: let it be `{shown} | null`, or write a step that computes it."
    work.ask(words, *(("this value, or another", [step]) for step in steps[:1]))


def _alike(declaration: FieldDeclaration, others: Mapping[str, FieldDeclaration], work: _Work) -> list[str]:
    known = equations(work.want, work.have)
    return [name for name, d in others.items() if same_type(d.declared, declaration.declared, known)][:4]


# ---------------------------------------------------------------------------------------------------------------------
# Fields of another type, and members of enums.


def _types(name: str, work: _Work) -> None:
    for each, declaration in work.want.structs[name].stored.items():
        if each in work.have.structs[name].stored:
            have = work.have.structs[name].fields[each].declared
            if not readable_as(have, declaration.declared, equations(work.want, work.have)):
                _type(name, each, have, declaration, work)


def _type(name: str, each: str, have: Type, wanted: FieldDeclaration, work: _Work) -> None:
    ways = list(_ways(name, each, wanted, work))
    fills = any(isinstance(step, Fill) for way in ways for step in way)
    named = any(isinstance(step, MapEnum) for way in ways for step in way)
    shown = f"{each} was {format_type(have)} and is {format_type(wanted.declared)}"
    if len(ways) == 1 and not named and (wanted.has_default or not fills):
        work.take(*ways[0])
    elif named:
        work.ask(
            f"{shown}: what becomes of the strings that are gone?", *(("these names, or others", way) for way in ways)
        )
    elif fills:
        work.ask(f"{shown}: what becomes of null?", *(("this value, or another", way) for way in ways[:1]))
    elif ways:
        words: dict[type[Step], str] = {
            Transpose: "axes in another order",
            Reshape: "the same elements in the same order, in another shape",
        }
        answers = [(next((words[type(s)] for s in way if type(s) in words), "this way"), way) for way in ways]
        work.ask(f"{shown}: what is meant?", *answers)
    else:
        hint = "give the new field another name, or write a `python` step"
        work.ask(f"{shown}: no step turns one into the other; {hint}.")


def _ways(name: str, each: str, wanted: FieldDeclaration, work: _Work) -> Iterator[list[Step]]:
    """Steps, or two of them, that turn one type into the other; one of each sort."""
    versions = work.versions
    within = versions.within(name)
    sorts: set[tuple[type[Step], ...]] = set()

    def options(document: Document) -> Iterator[Step]:
        now = document.structs[name].fields[each].declared
        if wanted.has_default:
            yield build.fill(field=each, value=wanted.default, within=within)
        yield from candidates(each, now, wanted.declared, replace(versions, have=document), within)
        yield from _renamed_literals(each, now, wanted.declared, within)

    def reached(document: Document) -> bool:
        now = document.structs[name].stored[each].declared
        return readable_as(now, wanted.declared, equations(work.want, document))

    firsts = []
    for step in options(work.have):
        after = _applied(work.have, step, work.want)
        if after is not None and (type(step),) not in sorts:
            if reached(after):
                sorts.add((type(step),))
                yield [step]
            else:
                firsts.append((step, after))
    for first, after in firsts if not sorts else ():
        for step in options(after):
            last = _applied(after, step, work.want)
            kinds = tuple(sorted((type(first), type(step)), key=lambda kind: kind.__name__))
            if last is not None and reached(last) and kinds not in sorts:
                sorts.add(kinds)
                yield [first, step]


def _applied(document: Document, step: Step, want: Document) -> Document | None:
    try:
        return apply_to_document(document, step, want)
    except SchemaError:
        return None


def _renamed_literals(each: str, have: Type, want: Type, within: str | None) -> Iterator[Step]:
    old, new = (
        [v for inner in walk_type(t) if isinstance(inner, LiteralOf) for v in inner.values if isinstance(v, str)]
        for t in (have, want)
    )
    for values, undo in _mappings(old, new):
        yield build.map_enum(field=each, values=values, undo=undo, within=within)


def _mappings(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[dict[str, str], dict[str, str]]]:
    """Ways to give members that are gone another name: new names in their order, or one that was there before."""
    gone, come = [m for m in old if m not in new], [m for m in new if m not in old]
    kept = [m for m in old if m in new]
    if gone and len(gone) <= len(come):
        yield dict(zip(gone, come, strict=False)), {}
    if gone and kept:
        yield dict.fromkeys(gone, kept[0]), {kept[0]: kept[0]}


def _enums(work: _Work) -> None:
    for name in [name for name in reachable(work.want)[1] if name in work.have.enums]:
        old, new = work.have.enums[name], work.want.enums[name]
        gone = [member for member in old.members if member not in new.members]
        if not gone or new.default is not None:
            continue
        ways = [
            ("they have other names" if not undo else "they become a member that was there before", values, undo)
            for values, undo in _mappings(old.members, new.members)
        ]
        answers = [(words, [build.map_enum(enum=name, values=values, undo=undo)]) for words, values, undo in ways]
        work.ask(f"{_are(gone)} no longer in {name}: what do old payloads mean by it?", *answers)


def _rest(work: _Work) -> None:
    """What is still otherwise: nothing is left to be found later."""
    if work.have.root != work.want.root:
        work.ask(f"the root {work.have.root} became {work.want.root}: {root_hint(work.have, work.want)}.")
        return
    asked = " ".join(item.text for item in work.items if isinstance(item, Question) and not item.answers)
    for left in differences(work.have, work.want):
        if not left.field or left.field not in asked.replace(",", " ").split():
            work.ask(f"{'.'.join(left.path)}: {left.message}: {left.hint or 'no step mends it'}.")
