"""Former names for the comparison of two versions: of structs and fields that declared steps, or aliases, rename or move.

Example:
    >>> found = Changes({})
    >>> ("structs", "VMCState", "fields", "kernel") in follow_steps(found, v1, v2, [])[1]
    True
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.evolution.changes import Changes, Path
from neuralqx_struct.evolution.differences import renamed_structs
from neuralqx_struct.evolution.origins import Following, followed
from neuralqx_struct.evolution.plans import resolution
from neuralqx_struct.evolution.steps import require_bounded, staged
from neuralqx_struct.evolution.steps.operations import Stage
from neuralqx_struct.schema.migration import Step
from neuralqx_struct.schema.model import Document, StructDeclaration


def follow_steps(
    found: Changes, old: Document, new: Document, between: Iterable[Document]
) -> tuple[Following, set[Path]]:
    """Adds the renames of steps; returns the origins of fields, and the paths of structs and fields that declared steps change."""
    stages: list[Stage] = []
    changed: set[Path] = set()
    for here, after in _hops(old, new, between):
        migration = after.migration_from(here.version)
        steps = _undeclared(here, after)
        if migration is not None:
            steps = [item.step for item in migration.steps]
        for stage in _applied(here, steps, after):
            stages.append(stage)
            if migration is not None:
                changed.update(_changed_paths(stage.before, stage.after))
    following = followed(old, stages)
    for struct, former in following.structs.items():
        found.former["structs", struct] = "structs", former
    for struct, origins in following.origins.items():
        for name, origin in origins.items():
            if origin.place is not None and origin.place != (struct, name):
                place = ("structs", origin.place[0], "fields", origin.place[1])
                found.former["structs", struct, "fields", name] = place
    return following, changed


def _hops(
    old: Document, new: Document, between: Iterable[Document]
) -> Iterator[tuple[Document, Document]]:
    """Yields the versions from one to another one, in pairs, as the declared migrations lead."""
    known = {d.version: d for d in between if d.id == new.id and d.version > old.version}
    versions = {**known, new.version: new}
    ahead = [versions[version] for version in sorted(versions) if version <= new.version]
    here = old
    while ahead:
        after = next((d for d in ahead if d.migration_from(here.version)), ahead[0])
        ahead = ahead[ahead.index(after) + 1 :]
        yield here, after
        here = after


def _undeclared(old: Document, new: Document) -> list[Step]:
    """The steps of a hop without declared ones, by a reader that drops fields."""
    try:
        return [stage.step for stage in resolution(old, new, drop=True).stages]
    except SchemaError:  # lint reports it
        return []


def _applied(document: Document, steps: list[Step], target: Document) -> Iterator[Stage]:
    """Yields the steps that apply to a declaration; lint reports the others."""
    for step in steps:
        try:
            require_bounded(len(steps), document, target)
            stage = staged(document, step, target)
        except SchemaError:
            continue
        yield stage
        document = stage.after


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
