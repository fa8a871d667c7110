"""Origins: where the values of a field come from, and what becomes of constraints, along a chain of steps.

A limit is on a value, not on a name. :func:`followed` leads every field of the last declaration back to the place in the first
one whose values it has, and every constraint of the first declaration on to the struct and the names that it has in the last.

Example:
    >>> from neuralqx_struct.evolution.plans import plan
    >>> following = followed(v1, plan(series, 1, 2).hops[0].stages)
    >>> following.origin("VMCState", "transverse_field").place
    ('VMCState', 'h')
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from neuralqx_struct.evolution.steps.operations import Stage, StepKind
from neuralqx_struct.expressions import Expression, parse
from neuralqx_struct.expressions.grammar import PathStep, head_of
from neuralqx_struct.expressions.renamed_words import Words, renamed_text, reworded
from neuralqx_struct.schema.field_paths import PathError, moved, reach
from neuralqx_struct.schema.migration import Step
from neuralqx_struct.schema.model import Document

#: A struct and a field of it.
FieldPlace = tuple[str, str]
#: The constraints of a declaration, by struct and text, and the struct and text of each after some steps; None if it is lost.
Constraints = dict[tuple[str, str], tuple[str, str] | None]


class Origin(NamedTuple):
    """Where the values of a field come from.

    Attributes:
        place: The place of the field in the first declaration; None for a field that a step made.
        step: The last step that gave it other values, if one did.
        written: The values that steps wrote into it, beside those that it had.
        words: The other values, if they are known: the names that steps gave its strings, in order.
    """

    place: FieldPlace | None
    step: Step | None = None
    written: tuple[Any, ...] = ()
    words: tuple[Words, ...] = ()

    @property
    def is_lost(self) -> bool:
        """True if nothing is known of its values."""
        return self.step is not None and not self.words


_UNKNOWN = Origin(None)


@dataclass(slots=True, eq=False)
class Following:
    """The origins of fields, and the constraints of the first declaration, after the steps that were followed.

    Attributes:
        origins: The origins by struct and field.
        structs: The former names of renamed structs.
        constraints: The constraints; one on a value that is gone, or another one now, is lost.
    """

    origins: dict[str, dict[str, Origin]]
    structs: dict[str, str] = field(default_factory=dict)
    constraints: Constraints = field(default_factory=dict)

    def origin(self, struct: str, name: str) -> Origin:
        """The origin of a field; of one that no step and no payload has, unknown."""
        return self.origins.get(struct, {}).get(name, _UNKNOWN)

    def constraints_on(self, struct: str) -> set[str]:
        """The constraints that the values of a struct keep, by its names."""
        return {now[1] for now in self.constraints.values() if now and now[0] == struct}

    def follow(self, stage: Stage) -> None:
        """Takes account of one step."""
        step, record = stage.step, stage.record
        moves = dict(_moves(stage))
        if record.renames_struct:
            given: Any = step
            self.structs[given.to] = self.structs.pop(given.struct, given.struct)
        origins: dict[str, dict[str, Origin]] = {}
        for struct, declaration in stage.after.structs.items():
            held, before = self.origins.get(struct, {}), stage.before.structs.get(struct)
            if declaration is before:
                origins[struct] = held
                continue
            was = {} if before is None else before.fields
            made = origins[struct] = {**held}
            for name in held.keys() - declaration.fields.keys():
                del made[name]
            # A step changes few of the fields, of which there may be a thousand.
            for name in [n for n, each in declaration.fields.items() if was.get(n) is not each]:
                place = moves.get((struct, name))
                made[name] = self.origin(*place) if place else self._changed(stage, struct, name)
        words = dict(record.words(step, stage.before))
        for (struct, name), names in words.items():
            known = self.origin(struct, name)
            if not known.is_lost:
                known = known._replace(step=step, words=(*known.words, names))
            origins[struct][name] = known
        gone = {*_gone(stage, moves)}
        self.constraints = _led(self.constraints, stage, gone - words.keys(), words)
        self.origins = origins

    def _changed(self, stage: Stage, struct: str, name: str) -> Origin:
        """The origin of a field that a step changed, at the place where it was before."""
        known, before = self.origin(struct, name), stage.before.structs.get(struct)
        step, record = stage.step, stage.record
        here = (struct, name) == (step.within or stage.before.root, getattr(step, "field", None))
        writes = tuple(record.writes(step))
        # A step may add what was declared, but not stored.
        if before is None or name not in (before.stored if here else before.fields):
            source = record.copied(step) if here else None
            if source is not None:
                return self.origin(struct, source)
            return Origin(None, None if writes else step, writes if here else ())
        if writes:
            return known._replace(written=(*known.written, *writes))
        kept = record.renames_struct or _keeps_values(step, record)
        return known if kept else known._replace(step=step, words=())


def followed(first: Document, stages: Iterable[Stage]) -> Following:
    """The origins after a chain of steps that starts from a declaration."""
    origins = {
        struct: {name: Origin((struct, name)) for name in declaration.fields}
        for struct, declaration in first.structs.items()
    }
    texts = [(struct, text) for struct in origins for text in conditions(first, struct)]
    found = Following(origins, constraints=dict(zip(texts, texts, strict=True)))
    for stage in stages:
        found.follow(stage)
    return found


def conditions(document: Document, struct: str) -> Iterator[str]:
    """Yields the constraints of a struct, and those of the structs that its fields hold, as they are from there."""
    declaration = document.structs[struct]
    for constraint in declaration.constraints:
        yield constraint.expression.text
    for name, each in declaration.stored.items():
        inner = document.structs.get(each.declared.refers)
        for constraint in inner.constraints if inner else ():
            text = seen_from(name, constraint.expression, inner.fields if inner else ())
            if text is not None:
                yield text


def seen_from(field_name: str, condition: Expression, fields: Container[str]) -> str | None:
    """A constraint of a struct, as it is from one that holds it in a field; None if it names sizes of its own."""
    if not all(head_of(path) in fields for path in condition.names):
        return None
    return renamed_text(condition, {path: f"{field_name}.{path}" for path in condition.names})


def _keeps_values(step: Step, record: StepKind[Any]) -> bool:
    """True for a step that refuses a value rather than change it, as an exact cast does."""
    return record.checks_values and not getattr(step, "lossy", False)


def _moves(stage: Stage) -> Iterator[tuple[FieldPlace, FieldPlace]]:
    """Yields the places of fields that a step gives other names or structs, the new one first."""
    given: Any = stage.step
    record, before = stage.record, stage.before
    if record.renames_struct:
        for name in before.structs[given.struct].fields:
            yield (given.to, name), (given.struct, name)
    owner = stage.step.within or before.root
    for old, new in record.places(stage.step).items():
        here, there = _field_at(before, owner, old), _field_at(stage.after, owner, new)
        if here and there:
            yield there, here


def _field_at(document: Document, struct: str, parts: tuple[PathStep, ...]) -> FieldPlace | None:
    """The field at the end of a way through structs; None for an item of a collection."""
    *through, last = parts
    for part in through:
        declaration = document.structs[struct].fields.get(str(part))
        struct = "" if declaration is None else declaration.declared.refers
        if struct not in document.structs:
            return None
    return (struct, last) if isinstance(last, str) else None


def _gone(stage: Stage, moves: Mapping[FieldPlace, FieldPlace]) -> Iterator[FieldPlace]:
    """Yields the fields before a step that are not there any more, or that it gives other values."""
    record = stage.record
    if record.renames_struct or _keeps_values(stage.step, record):
        return
    leading = {part[0] for part in record.places(stage.step)}
    owner, kept = stage.step.within or stage.before.root, {*moves.values()}
    for struct, declaration in stage.before.structs.items():
        after = stage.after.structs.get(struct)
        if after is declaration:
            continue
        now = {} if after is None else after.fields
        changed = [n for n, each in declaration.fields.items() if now.get(n) is not each]
        for name in [n for n in changed if declaration.fields[n].stored]:
            if (struct, name) not in kept and not (struct == owner and name in leading):
                yield struct, name


def _led(
    known: Constraints, stage: Stage, gone: set[FieldPlace], words: Mapping[FieldPlace, Words]
) -> Constraints:
    """The constraints after a step."""
    given: Any = stage.step
    record, before = stage.record, stage.before
    owner, places = stage.step.within or before.root, record.places(stage.step)
    if not (places or gone or words or record.renames_struct):
        return known
    found: Constraints = {}
    for old, now in known.items():
        found[old] = None
        if now is None:
            continue
        struct, condition = now[0], parse(now[1])
        ways = {path: _way(before, struct, path) for path in condition.names}
        if any(not gone.isdisjoint(way) for way in ways.values()):
            continue
        names = {path: moved(before, struct, path, owner, places) for path in ways if places}
        renames = {path: words[way[-1]] for path, way in ways.items() if way and way[-1] in words}
        text = reworded(condition, renames) if renames else condition.text
        if text is not None:
            is_renamed = record.renames_struct and struct == given.struct
            found[old] = given.to if is_renamed else struct, renamed_text(parse(text), names)
    return found


def _way(document: Document, struct: str, path: str) -> list[FieldPlace]:
    """The fields on the way of a path in a constraint; none for a size."""
    if struct not in document.structs:
        return []
    try:
        owners = reach(document, struct, path).owners
    except (KeyError, PathError):
        return []
    return [(each, name) for owner, each, name in owners if owner is document]
