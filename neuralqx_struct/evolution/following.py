"""Following declared steps: the former paths of fields that were renamed or moved, and the fields that steps make.

A comparison of two versions asks where a field was before (:func:`follow_steps`): limits on a renamed or moved field are
those on one value, and old limits on a field do not hold for one that a step computes.

Example:
    >>> found = Changes({})
    >>> ("structs", "VMCState", "fields", "kernel") in follow_steps(found, v1, v2, [])
    True
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.evolution.changes import ANY_LENGTH, Changes, LengthRange, Path
from neuralqx_struct.evolution.differences import renamed_structs
from neuralqx_struct.evolution.proof import resolved
from neuralqx_struct.evolution.renamed_words import Words, reworded
from neuralqx_struct.evolution.sizes import constant
from neuralqx_struct.evolution.steps import apply_to_document, kind, renamed_text, require_bounded
from neuralqx_struct.expressions import Expression, parse
from neuralqx_struct.expressions.grammar import head_of
from neuralqx_struct.schema.field_paths import PathError, moved, reach
from neuralqx_struct.schema.migration import Step
from neuralqx_struct.schema.model import Document, StructDeclaration
from neuralqx_struct.types import walk_type


def follow_steps(
    found: Changes, old: Document, new: Document, between: Iterable[Document]
) -> set[Path]:
    """Adds the renames of declared steps, and returns the paths of all structs and fields that steps change."""
    known = {d.version: d for d in between if d.id == new.id and d.version > old.version}
    versions = {**known, new.version: new}
    ahead = [versions[version] for version in sorted(versions) if version <= new.version]
    here, changed = old, set[Path]()
    for name in old.structs:
        for expression in (*constraints_of(old, name), *inner_constraints(old, name)):
            found.paths |= {(name, path): (name, path) for path in expression.names}
    while ahead:
        after = next((d for d in ahead if d.migration_from(here.version)), ahead[0])
        ahead = ahead[ahead.index(after) + 1 :]
        migration = after.migration_from(here.version)
        steps = [] if migration is None else [item.step for item in migration.steps]
        if migration is None and (here is not old or after is not new):
            steps = _undeclared(here, after)  # two versions alone are compared by names and aliases
        document = here
        for step in steps:
            try:
                require_bounded(len(steps), here, after)
                made = apply_to_document(document, step, after)
            except SchemaError:  # lint reports it
                continue
            paths = [*_changed_paths(document, made)]
            if migration is not None:
                changed.update(paths)
            if any(kind(step).spreads(step)):
                found.before[id(step)] = step.within or document.root, dict(_same_values(found))
            for (struct, name), words in kind(step).words(step, document, made):
                at = ("structs", struct, "fields", name)
                found.words[at] = [*found.words.get(at, ()), (step, words)]
            if kind(step).layers:
                _count_layers(found, step, (document, made), (old, new))
            if kind(step).puts(step)[1]:
                _follow_put_back(found, step, document)
            spread = _follow_parts(found, step, document)
            _follow_renames(found, step, document, made, paths)
            found.spread |= spread
            _follow_paths(found, step, document)
            document = made
        here = after
    return changed


def _same_values(found: Changes) -> Iterator[tuple[tuple[str, str], tuple[str, str]]]:
    """Yields the paths of old constraints with the places that have the old values."""
    for key, (struct, path) in found.paths.items():
        at = ("structs", struct, "fields", head_of(path))
        if at not in found.made and at not in found.fresh:
            yield key, (struct, path)


def _undeclared(old: Document, new: Document) -> list[Step]:
    """The steps of a hop without declared ones, by a reader that drops fields."""
    try:
        return resolved(old, new, drop=True).steps
    except SchemaError:  # lint reports it
        return []


def _changed_paths(before: Document, after: Document) -> Iterator[Path]:
    """Yields the paths of structs and fields that a step changes."""
    nothing = StructDeclaration(fields={})
    for name in {**before.structs, **after.structs}:
        a, b = before.structs.get(name, nothing), after.structs.get(name, nothing)
        if a is not b:
            yield ("structs", name)
            for field in {**a.fields, **b.fields}:
                if a.fields.get(field) is not b.fields.get(field):
                    yield ("structs", name, "fields", field)


def _follow_renames(
    found: Changes, step: Step, before: Document, after: Document, paths: Sequence[Path]
) -> None:
    """Adds the former paths of structs and fields that a step renames or moves, and the fields that it makes anew.

    Args:
        found: Where to; the paths of what the step removes leave it.
        step: The step.
        before: The declaration before it.
        after: The declaration after it.
        paths: The paths of the structs and fields that differ.
    """
    given: Any = step
    record = kind(step)
    owner = ("structs", step.within or before.root, "fields")
    renamed: dict[Path, Path] = {}
    if record.renames_struct:
        renamed["structs", given.to] = "structs", given.struct
    elif record.renames_field:
        renamed[*owner, given.to] = *owner, given.field
    elif any(record.carried(step)):
        gone = _gone(before, after, paths)
        for path in paths:
            if len(path) == 4 and path[-1] in gone and not holds(before, path):
                renamed[path] = gone[path[-1]]
    elif not record.checks_values or getattr(step, "lossy", False):
        # A constraint on a value at its new place is one on the same value.
        same = [(*owner, each) for each in record.spreads(step)[1]] if record.places(step) else []
        made = [path for path in paths if len(path) == 4]
        made = [path for path in made if path not in same or holds(before, path)]
        words = {path for path, by in found.words.items() if by[-1][0] is step}
        kept = {path for path, by in found.made.items() if any(kind(by).functions(by))}
        kept |= words & found.made.keys()
        found.made |= {path: step for path in made if path not in kept}
    come = [path for path in paths if len(path) == 4 and not holds(before, path)]
    fresh = [path for path in come if renamed.keys().isdisjoint({path, path[:2]})]
    found.fresh |= dict.fromkeys(fresh, step)
    tracked = (found.former, found.made, found.fresh, found.words, found.spread)
    for there, here in renamed.items():
        found.former[there] = found.former.get(here, here)
        for known in tracked:
            _rename_paths(known, here, there)
    for path in paths:
        if not holds(after, path):
            for known in tracked:
                known.pop(path, None)


def items_of(step: Step) -> tuple[LengthRange, LengthRange]:
    """How many items a collection has that a step parts into fields, and one that it makes of fields."""
    sources, results = kind(step).spreads(step)
    given: Any = step
    if not sources or not kind(step).spares_arrays(step):
        return ANY_LENGTH, ANY_LENGTH
    if results == [given.into]:
        return ANY_LENGTH, (len(sources), len(sources))
    return (len(results), len(results)), ANY_LENGTH


def _follow_parts(
    found: Changes, step: Step, before: Document
) -> dict[Path, tuple[Step, dict[Path, LengthRange]]]:
    """The fields that a step makes of others by parting or joining them, for :attr:`Changes.spread`."""
    owner = ("structs", step.within or before.root, "fields")
    sources, results = kind(step).spreads(step)
    origins: dict[Path, LengthRange] = {}
    for at in ((*owner, source) for source in sources):
        if at in found.spread:
            origins |= found.spread[at][1]
        elif at not in found.fresh:
            origins[found.former_path(at)] = items_of(step)[0]
    return {(*owner, result): (step, origins) for result in results}


def _follow_put_back(found: Changes, step: Step, before: Document) -> None:
    """Adds the field to which the inverse of a step gives a value, if it was there in the old version."""
    given: Any = step
    at = ("structs", step.within or before.root, "fields", given.field)
    if at not in found.made and at not in found.fresh:
        found.put_back[found.former_path(at)] = step


def _count_layers(
    found: Changes, step: Step, both: Sequence[Document], versions: Sequence[Document]
) -> None:
    """Adds the number of layers that a step makes of the items of a list, or that become such items.

    Args:
        found: Where to.
        step: The step.
        both: The declarations before and after it.
        versions: The old and the new version, and so the writer.
    """
    given: Any = step
    at = ("structs", step.within or both[0].root, "fields", given.field)
    structs = [document.structs[at[1]] for document in both]
    held, made = (struct.fields[at[3]].declared.solid[0] for struct in structs)
    size = (held if held.listed is not None else made).extents[0]
    count = constant(size)
    least, most = 1, None  # without layers the step refuses a payload
    if count is not None:
        least = most = count
    elif size is not ... and size.text not in structs[0].params:
        dims = [document.dims.get(size.text) for document in (*both, *versions)]
        least = max(1, min((dim.min or 0) if dim else 0 for dim in dims))
        ends = [dim.max if dim else None for dim in dims]
        most = None if None in ends else max(filter(None, ends), default=0)
    if held.listed is not None:
        found.unstacked[id(step)] = least, most
    elif at not in found.made and at not in found.fresh:
        found.stacked[found.former_path(at)] = least, most


def constraints_of(document: Document, struct: str) -> list[Expression]:
    """The constraints of a struct."""
    return [constraint.expression for constraint in document.structs[struct].constraints]


def inner_constraints(
    document: Document, struct: str, among: Container[str] | None = None
) -> Iterator[Expression]:
    """Yields the constraints on the structs, or some of them, that fields of a struct always hold, as they are from there."""
    for name, field in document.structs[struct].fields.items():
        if field.type is None or field.declared.refers not in document.structs:
            continue
        if among is not None and field.declared.refers not in among:
            continue
        inner = document.structs[field.declared.refers]
        for expression in constraints_of(document, field.declared.refers):
            names = {path: f"{name}.{path}" for path in expression.names}
            if {head_of(path) for path in names} <= inner.fields.keys():
                yield parse(renamed_text(expression, names))


def _follow_paths(found: Changes, step: Step, before: Document) -> None:
    """Leads the paths of old constraints to the new places of fields."""
    given: Any = step
    record = kind(step)
    owner, places = step.within or before.root, record.places(step)
    for key, (struct, path) in found.paths.items():
        if record.renames_struct and struct == given.struct:
            found.paths[key] = given.to, path
        elif places:
            found.paths[key] = struct, moved(before, struct, path, owner, places)


def known_words(steps: Iterable[tuple[Step, Words | None]]) -> list[Words] | None:
    """The names that steps give the strings of a field, in order; None if those of a step are not known."""
    names = [words for _, words in steps if words is not None]
    return names if len(names) == len([*steps]) else None


def reworded_constraint(
    found: Changes, name: str, reader: Document, text: str
) -> tuple[str, tuple[str, Step] | None]:
    """An old constraint by the names that strings have now, and a field and a step if it may be another one.

    Args:
        found: What steps changed.
        name: The struct of the constraint.
        reader: The new version.
        text: The constraint, by the names that its fields have now.
    """
    if not found.words:
        return text, None
    expression = parse(text)
    known: dict[str, list[Words] | None] = {}
    texts: set[str] = set()
    renamed_by: list[tuple[str, Step]] = []
    for path in sorted(expression.names):
        try:
            reached = reach(reader, name, path)
        except (KeyError, PathError):  # a size, or lint reports it
            continue
        owner, struct, field = reached.owners[-1]
        steps = found.words.get(("structs", struct, "fields", field), [])
        if owner is reader and steps:
            known[path] = known_words(steps)
            texts |= set() if reached.is_collection else {path}
            renamed_by.append((field, steps[-1][0]))
    new = reworded(expression, lambda path: known.get(path, []), texts)
    return (text, renamed_by[0]) if new is None else (new, None)


def _gone(before: Document, after: Document, paths: Iterable[Path]) -> dict[str, Path]:
    """The places of the fields that a step takes from where they were, by name; also in structs that nothing holds now."""
    found: dict[str, Path] = {}
    for path in paths:
        if len(path) < 4 or holds(after, path) or not holds(before, path):
            continue
        found[path[-1]] = path
        for inner in walk_type(before.structs[path[1]].fields[path[3]].declared):
            nested = before.structs.get(inner.refers)
            for name in nested.fields if nested else ():
                found.setdefault(name, ("structs", inner.refers, "fields", name))
    return found


def _rename_paths(known: dict[Path, Any], here: Path, there: Path) -> None:
    """Moves the entries of one path, and of those below it, to another."""
    below = len(here) == 2  # a struct, whose fields are below it
    for path in [path for path in known if path[:2] == here] if below else [here]:
        if path in known:
            known[(*there, *path[len(here) :])] = known.pop(path)


def holds(document: Document, path: Path) -> bool:
    """True if a declaration has a struct or field."""
    struct = document.structs.get(path[1])
    return struct is not None and {*path[3:]} <= struct.fields.keys()


def follow_structs(found: Changes, old: Document, new: Document) -> None:
    """Adds the former names of structs that were probably renamed."""
    for before, name in renamed_structs(old, new):
        found.former.setdefault(("structs", name), ("structs", before))


def follow_aliases(
    found: Changes, at: Path, old: StructDeclaration, new: StructDeclaration
) -> dict[str, str]:
    """Adds the former paths of fields by their aliases; returns the former names of all that were renamed."""
    gone = {name for name in old.fields if name not in new.fields}
    owner = found.former_path(at)
    followed: dict[str, str] = {}
    for name in new.fields:
        if name in old.fields:
            continue
        here = (*at, name)
        aliases = [(*owner, alias) for alias in new.fields[name].aliases if alias in gone]
        was = found.former.get(here, (aliases or [here])[0])
        if was[:-1] == owner and was[-1] in gone:
            found.former[here] = was
            followed[name] = was[-1]
            gone.remove(was[-1])
    return followed
