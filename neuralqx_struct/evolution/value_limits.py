"""Limits on values: bounds, patterns, choices and constraints that two versions of a schema do not share.

No step removes such a difference: a value of one version may be refused by the other one. :func:`compare_limits` adds the
changes for ``diff.py``, and :func:`broken_limits` yields those that stop a reader.

Example:
    >>> [*broken_limits(v1, v2, "backward")]
    []
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from itertools import chain

from neuralqx_struct.errors import Diagnostic
from neuralqx_struct.evolution.changes import (
    ANY_LENGTH,
    LIMITS,
    Changes,
    Direction,
    Entry,
    LengthRange,
    Path,
)
from neuralqx_struct.evolution.declared_sizes import new_sizes
from neuralqx_struct.evolution.following import (
    constraints_of,
    follow_aliases,
    follow_steps,
    follow_structs,
    holds,
    inner_constraints,
    items_of,
    known_words,
    reworded_constraint,
)
from neuralqx_struct.evolution.implied_limits import (
    bounded_fields,
    for_items,
    passed_on,
    refused_words,
    refuses,
)
from neuralqx_struct.evolution.sizes import equations
from neuralqx_struct.evolution.steps import kind, renamed_text
from neuralqx_struct.expressions import Expression, parse
from neuralqx_struct.expressions.grammar import head_of
from neuralqx_struct.schema.bounds import field_limits, is_limited, plain_misses
from neuralqx_struct.schema.field_paths import PathError, reach, renamed
from neuralqx_struct.schema.migration import Step
from neuralqx_struct.schema.model import Document, FieldDeclaration
from neuralqx_struct.schema.sizes.scopes import named_from_root
from neuralqx_struct.schema.text import path_keys


def broken_limits(
    old: Document,
    new: Document,
    direction: Direction,
    between: Iterable[Document] = (),
    roots: Iterable[str] | None = None,
) -> Iterator[Diagnostic]:
    """Yields the limits that one version has for values, and payloads of the other need not keep.

    Args:
        old: The older version.
        new: The newer one.
        direction: ``backward`` if the newer one reads, ``forward`` if the older one does.
        between: The versions whose declared steps count.
        roots: The structs of the reader that payloads hold; by default its root.
    """
    reader = new if direction == "backward" else old
    structs, _ = named_from_root(reader, pytrees=True, roots=roots)
    if not structs:
        return
    found = Changes(equations(new, old), new_sizes(old, new), new_sizes(new, old))
    follow_steps(found, old, new, between)
    follow_structs(found, old, new)
    for name, struct in new.structs.items():
        former = found.former_path(("structs", name))[1]
        if former in old.structs:
            follow_aliases(found, ("structs", name, "fields"), old.structs[former], struct)
    compare_limits(found, old, new, roots)
    for change in found.changes:
        if change.code in LIMITS and change.breaks(direction):
            keys = path_keys(change.path if reader is new else change.old_path)
            if keys[0] == "structs" and keys[1] not in structs:
                continue
            hint = "values outside are refused: keep the limit, or waive it with a reason"
            yield change.to_diagnostic(hint)


def compare_limits(
    found: Changes, old: Document, new: Document, roots: Iterable[str] | None = None
) -> None:
    """Adds changes of the limits on fields and structs, once all renames are known; ``roots`` as for :func:`broken_limits`."""
    source: dict[str, str] = {}
    bounds = bounded_fields(old, roots), bounded_fields(new, roots)
    for name, struct in new.structs.items():
        former = found.former_path(("structs", name))[1]
        if former in old.structs:
            source[name] = former
        for field in struct.fields:
            here: Path = ("structs", name, "fields", field)
            was = found.former_path(here)
            if holds(old, was) and here not in found.fresh:
                source.setdefault(name, was[1])
            step = found.made.get(here) or found.fresh.get(here)
            if step and _makes_values(step):  # the constraints of a new struct are on them
                owner = step.within or old.root
                source.setdefault(name, owner if owner in old.structs else old.root)
            _compare_field(found, here, (old, new), bounds)
    for path, step in found.put_back.items():
        if holds(old, path):
            for message in _refused_values(old, path, step, 1):
                found.add("NQX271", path, message)
    for name, former in source.items():
        _compare_constraints(found, name, old, former, new)


def _compare_field(
    found: Changes,
    here: Path,
    documents: tuple[Document, Document],
    bounds: tuple[Callable[[Path], FieldDeclaration], Callable[[Path], FieldDeclaration]],
) -> None:
    """Adds changes of the limits on one field of the new version."""
    old, new = documents
    was, declaration = found.former_path(here), new.structs[here[1]].fields[here[3]]
    steps = [by[here] for by in (found.made, found.fresh) if here in by]
    step, spread = next(iter(steps), None), found.spread.get(here)
    made = for_items(declaration, items_of(spread[0])[1]) if spread else declaration
    computed = any(any(kind(step).functions(step)) for step in steps)
    beyond = (computed or spread is not None) and is_limited(made)
    if step and beyond:
        message = f"the step {step.name} may give a value beyond the limits of the field"
        direction: Direction = "both" if computed else "backward"
        found.add("NQX270", here, message, direction=direction)
    for message in _refused_values(new, here, step, 0) if step else ():
        found.add("NQX270", here, message)
    if spread:
        _lost_limits(found, here, spread, old)
    if spread or beyond or not holds(old, was) or here in found.fresh:
        return
    before = old.structs[was[1]].fields[was[3]]
    if here in found.words:
        _compare_words_of(found, here, documents, before)
    elif field_limits(before) != field_limits(declaration):
        items = found.stacked.get(was, ANY_LENGTH), found.unstacked.get(id(step), ANY_LENGTH)
        readers = for_items(before, items[0]), for_items(declaration, items[1])
        writers = bounds[0](was), bounds[1](here)
        _compare_limits_of(found, here, (before, declaration), readers, writers)


def _makes_values(step: Step) -> bool:
    """True if the fields that a step makes have values that depend on those before."""
    return any(kind(step).spreads(step)) or kind(step).cost != "manifest"


def _lost_limits(
    found: Changes, here: Path, spread: tuple[Step, Mapping[Path, LengthRange]], old: Document
) -> None:
    """Adds a change for each limit on a field whose value is only a part of another one now, or has become several."""
    step, origins = spread
    for path, items in origins.items():
        if not holds(old, path):
            continue
        declaration = old.structs[path[1]].fields[path[3]]
        if is_limited(
            for_items(for_items(declaration, items), found.stacked.get(path, ANY_LENGTH))
        ):
            message = f"the limits of {path[3]} are gone, whose value the step {step.name} puts into {here[-1]}"
            found.add("NQX271", here, message)


def _refused_values(document: Document, at: Path, step: Step, back: int) -> Iterator[str]:
    """Yields a message for each value of a step, or of its inverse, that the limits of a field refuse."""
    declaration = document.structs[at[1]].fields[at[3]]
    values = [value for value in kind(step).puts(step)[back] if value is not None]
    for miss in chain.from_iterable(plain_misses(declaration, value) for value in values):
        yield f"the step {step.name} puts a value into {at[3]}: {miss}"


_Both = tuple[FieldDeclaration, FieldDeclaration]


def _compare_limits_of(
    found: Changes,
    at: Path,
    fields: _Both,
    readers: _Both,
    writers: _Both,
) -> None:
    """Adds changes of the limits on the values of a field.

    Args:
        found: Where to.
        at: Its place.
        fields: Its old and its new declaration.
        readers: The same without limits that all values keep.
        writers: The same with the bounds that constraints give them.
    """
    (old, new), (had, wanted) = fields, readers
    for name, limit in field_limits(new).items():
        tighter, looser = refuses(name, wanted, writers[0]), refuses(name, had, writers[1])
        found.limit(at, name, getattr(old, name), limit, tighter=tighter, looser=looser)


def _compare_words_of(
    found: Changes, at: Path, documents: tuple[Document, Document], old: FieldDeclaration
) -> None:
    """Adds the limits on a field that refuse values after steps that rename its strings, or on the way back.

    Args:
        found: Where to.
        at: Its place.
        documents: The old and the new version.
        old: Its old declaration.
    """
    new = documents[1].structs[at[1]].fields[at[3]]
    names = known_words(found.words[at])
    forth = None if names is None else [each.forth for each in names]
    back = None if names is None else [each.back for each in reversed(names)]
    ahead = refused_words(new, old, documents[0], forth)
    behind = refused_words(old, new, documents[1], back)
    for name, limit in field_limits(new).items():
        tighter, looser = name in ahead, name in behind
        found.limit(at, name, getattr(old, name), limit, tighter=tighter, looser=looser)
        if limit == getattr(old, name):
            message = (
                f"{name} {limit} is on strings that the step {found.words[at][0][0].name} renames"
            )
            for code in ["NQX270"] * tighter + ["NQX271"] * looser:
                found.add(code, at, message)


def _compare_constraints(
    found: Changes, name: str, document: Document, former: str, reader: Document
) -> None:
    at = ("structs", name, "constraints")
    old, new = document.structs[former], reader.structs[name]
    # The constraints of another struct from which fields moved here are compared there.
    kept = found.former_path(at[:2])[1] == former
    inner = [*inner_constraints(document, former)] if kept else []
    names = {size.text: each for each, size in found.sizes.items()}
    now = {(path[1], path[-1]): here[-1] for here, path in found.former.items() if len(path) == 4}
    for expression in (*constraints_of(document, former), *inner):
        for path in expression.names:
            if head_of(path) in old.fields:
                names[path] = renamed(document, former, path, lambda *it: now.get(it, it[1]))
                struct, place = found.paths.get((former, path), (former, path))
                if kept and struct == name and place != path:
                    names[path] = place
    lost_to: dict[str, tuple[str, Step]] = {}

    def now_called(expression: Expression) -> str:
        text, step = reworded_constraint(found, name, reader, renamed_text(expression, names))
        if step is not None:
            lost_to[text] = step
        return text

    before = {now_called(c.expression): c.message for c in old.constraints}
    emptied = _emptied(found, document, reader) if kept else ()
    lost = {now_called(e) for e in inner_constraints(document, former, emptied)}
    implied = {now_called(expression) for expression in inner}
    after = {c.expression.text: c.message for c in new.constraints}
    spread, spread_back = _spread(found, name, document, reader)
    for text in sorted(after.keys() & before.keys()):
        if after[text] != before[text]:
            message = f"the message of constraint {text} changed"
            found.add("NQX234", at, message, before[text], after[text])
    for constraint in new.constraints:
        text = constraint.expression.text
        made = _made_in(found, name, reader, constraint.expression) or lost_to.get(text)
        if made and text in {*before, *implied}:
            message = f"constraint {text} is on {made[0]}, which the step {made[1].name} makes"
            for code, follows in (("NQX270", spread), ("NQX271", spread_back)):
                if text not in follows:
                    found.add(code, at, message)
    gone: Entry = ("NQX271", "constraint {} was removed", {})
    added: Entry = ("NQX270", "constraint {} was added", {})
    left: set[str] = set()
    if kept:
        inside = inner_constraints(reader, name)
        held = {e.text for e in inside if not _made_in(found, name, reader, e)}
        left = {*before, *lost} - after.keys() - (held - lost_to.keys()) - spread_back
    fresh = after.keys() - before.keys() - implied - spread
    found.entries(at, sorted(left), sorted(fresh), gone, added)


def _emptied(found: Changes, document: Document, reader: Document) -> set[str]:
    """The structs that are gone, and whose values are in others now: nothing else compares their constraints."""
    steps = (found.fresh | found.made).values()
    used = {path[1] for path in found.former.values()} | {step.within for step in steps}
    for (struct, path), (_, place) in found.paths.items():
        field = document.structs[struct].fields.get(head_of(path))
        if place != path and field is not None and field.type is not None:
            used.add(field.declared.refers)
    known = {found.former_path(("structs", name))[1] for name in reader.structs}
    return {name for name in document.structs if name in used and name not in known}


def _made_in(
    found: Changes, name: str, reader: Document, expression: Expression
) -> tuple[str, Step] | None:
    """A field on the way of a constraint to which a step gives other values, and the step."""
    for path in sorted(expression.names):
        try:
            owners = reach(reader, name, path).owners
        except (KeyError, PathError):  # a size, or lint reports it
            continue
        for owner, struct, field in owners:
            at = ("structs", struct, "fields", field)
            step = found.made.get(at)
            if any(by is step for by, _ in found.words.get(at, ())):
                step = None  # limits follow it
            come = found.fresh.get(at)
            if step is None and come and _makes_values(come) and not kind(come).places(come):
                step = come
            if step is not None and owner is reader:
                return field, step
    return None


def _spread(
    found: Changes, name: str, document: Document, reader: Document
) -> tuple[set[str], set[str]]:
    """The constraints that follow from old ones on the parts of a value, or on the whole, and those from new ones back.

    Those of the structs that fields hold are among them, as they are from there.
    """
    there, back = set[str](), set[str]()
    inner = {
        f"{field}.": declaration.declared.refers
        for field, declaration in reader.structs[name].fields.items()
        if declaration.type is not None and declaration.declared.refers in reader.structs
    }
    for prefix, struct in {"": name, **inner}.items():
        new = reader.structs[struct]
        after = [constraint.expression for constraint in new.constraints]
        made = {path[-1]: step for path, step in found.made.items() if path[1] == struct}
        fresh = {path[-1]: step for path, step in found.fresh.items() if path[1] == struct}
        for step in {id(s): s for s in (*fresh.values(), *made.values())}.values():
            record = kind(step)
            sources, results = record.spreads(step)
            now = {
                each for each, by in fresh.items() if by is step and made.get(each, step) is step
            }
            now |= {each for each in results if made.get(each) is step}
            if not sources or len(now) != len(results):
                continue
            ends, items = sorted(now), record.spares_arrays(step)
            known = {*new.fields, *sources}
            held = _held(found, struct, step, document)
            there |= _inside(prefix, known, passed_on(held, sources, ends, new, items=items))
            texts = _inside(prefix, known, passed_on(after, ends, sources, new, items=items))
            _, paths = found.before.get(id(step), ("", {}))
            final = {place: found.paths[key][1] for key, (_, place) in paths.items()}
            back |= texts | {renamed_text(parse(text), final) for text in texts}
    return there, back


def _inside(prefix: str, fields: Container[str], texts: Iterable[str]) -> set[str]:
    """The texts of constraints on fields of an inner struct, as they are from the struct that holds it."""
    return {
        renamed_text(e, {path: prefix + path for path in e.names if head_of(path) in fields})
        for e in map(parse, texts)
    }


def _held(found: Changes, name: str, step: Step, document: Document) -> Iterator[Expression]:
    """Yields the old constraints that hold where a step begins, by the names there.

    Args:
        found: What steps changed.
        name: The struct with the results; the other names of a constraint are the same in it.
        step: A step that parts or joins values.
        document: The old version.
    """
    owner, paths = found.before.get(id(step), ("", {}))
    sources, _ = kind(step).spreads(step)
    for struct, declaration in document.structs.items():
        for expression in (*constraints_of(document, struct), *inner_constraints(document, struct)):
            places = {size.text: each for each, size in found.sizes.items()}
            for path in expression.names:
                if head_of(path) in declaration.fields:
                    there, place = paths.get((struct, path), ("", path))
                    at = ("structs", name, "fields", head_of(place))
                    kept = at not in found.made and at not in found.fresh
                    kept = kept and found.paths[struct, path] == (name, place)
                    if there != owner or (head_of(place) not in sources and not kept):
                        break
                    places[path] = place
            else:
                yield parse(renamed_text(expression, places))
