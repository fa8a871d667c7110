"""Field paths: what the paths of expressions, such as ``layers.width`` and ``extent[0]``, reach in the structs of a document.

Example:
    >>> from neuralqx_struct.types.text import format_type
    >>> reached = reach(v3, "VMCState", "sampler.sigma")
    >>> [format_type(option) for _, option in reached.options], reached.many
    (['int8[n_chains, n_sites]'], False)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from neuralqx_struct.expressions import Expression, parse
from neuralqx_struct.expressions.grammar import PathStep, head_of, is_given, path_of, steps_of
from neuralqx_struct.printing import cut
from neuralqx_struct.schema.model import Document, FieldDeclaration, once
from neuralqx_struct.types import INT, Type, walk_type
from neuralqx_struct.types.text import format_type

_Part = TypeVar("_Part", bound=tuple[Any, ...])

_DEEPEST = 4
_MOST = 400  # paths of one struct that are suggested


class Reached(NamedTuple):
    """The values that a path reaches.

    Attributes:
        options: The types that its values may have, null excluded, each with the document that declares its names. Empty where
            nothing is known of them.
        many: True if it goes through a list, a tuple or a dict: it has a value for each item.
        static: True if it goes through a static field.
        owners: Document, struct and field of every field on the way, one entry for each option.
        stacked: True if it goes through a stacked struct, whose arrays have axes in front.
    """

    options: tuple[tuple[Document, Type], ...]
    many: bool
    static: bool
    owners: tuple[tuple[Document, str, str], ...] = ()
    stacked: bool = False

    @property
    def is_int(self) -> bool:
        """True if it is one static int."""
        ints = all(option == INT for _, option in self.options)
        return self.static and not self.many and bool(self.options) and ints

    @property
    def is_collection(self) -> bool:
        """True if each of its values is a list, a tuple or a dict."""
        return bool(self.options) and all(option.many for _, option in self.options)

    @property
    def text(self) -> str:
        """The types in messages."""
        known = dict.fromkeys(format_type(option) for _, option in self.options)
        return " | ".join(known) or "a value of any type"


class PathError(Exception):
    """A path that reaches nothing.

    Attributes:
        wanted: The description of the expected value.
        got: The description of the value that is there.
        prefix: The path up to the step that fails.
        step: That step.
        known: The fields that are there.
    """

    def __init__(
        self, wanted: str, got: str, prefix: str, step: PathStep, known: tuple[str, ...] = ()
    ) -> None:
        super().__init__(f"expected {wanted}, got {cut(got)}")
        self.prefix, self.step, self.known = prefix, step, known


def reach(document: Document, struct: str, path: str) -> Reached:
    """The values that a path reaches from a struct.

    Args:
        document: The document.
        struct: The struct whose expression names the path.
        path: The path; its first name is a field of the struct.

    Raises:
        PathError: A step of it fails in every value, or in one option of a union.
    """
    head, steps = head_of(path), steps_of(path)
    found = _entered(document, struct, document.structs[struct].fields[head], head)
    for place, step in enumerate(steps):
        prefix = path_of(head, steps[:place])
        found = _stepped(found, step, prefix)
    return found


def _stepped(found: Reached, step: PathStep, prefix: str) -> Reached:
    return _field(found, step, prefix) if isinstance(step, str) else _item(found, step, prefix)


def single_types(options: tuple[tuple[Document, Type], ...]) -> Iterator[tuple[Document, Type]]:
    """Yields the types of single values, those in collections at any depth."""
    for owner, option in options:
        if not option.many:
            yield owner, option
        for part in option.parts if option.many else ():
            yield from single_types(_options(owner, part))


def _entered(owner: Document, struct: str, field: FieldDeclaration, name: str) -> Reached:
    options = () if field.type is None else _options(owner, field.declared)
    stacked = field.type is not None and any(inner.stacks for inner in walk_type(field.declared))
    path = ((owner, struct, name),)
    return Reached(options, False, field.kind == "static", path, stacked)


def _options(owner: Document, declared: Type) -> tuple[tuple[Document, Type], ...]:
    return tuple((owner, branch.parts[0] if branch.stacks else branch) for branch in declared.solid)


def _field(found: Reached, name: str, prefix: str) -> Reached:
    """The field of a struct, or of each struct in a collection."""
    many = found.many or any(option.many for _, option in found.options)
    made: list[Reached] = []
    for owner, option in single_types(found.options):
        where, struct = owner.place_of(option.refers)
        if struct not in where.structs:
            wanted = f"a struct with a field {cut(name)!r} at {cut(prefix)}"
            raise PathError(wanted, found.text, prefix, name)
        fields = where.structs[struct].fields
        if name not in fields:
            wanted = f"a field of {struct}"
            raise PathError(wanted, repr(cut(name)), prefix, name, tuple(fields))
        made.append(_entered(where, struct, fields[name], name))
    if not made:
        wanted = f"a struct with a field {cut(name)!r} at {cut(prefix)}"
        raise PathError(wanted, found.text, prefix, name)
    return Reached(
        _once(option for each in made for option in each.options),
        many,
        found.static or all(each.static for each in made),
        _once((*found.owners, *(owner for each in made for owner in each.owners))),
        found.stacked or any(each.stacked for each in made),
    )


def _once(parts: Iterable[_Part]) -> tuple[_Part, ...]:
    """Each once: unions of structs with unions in their fields would have very many options."""
    return tuple({(id(part[0]), *part[1:]): part for part in parts}.values())


def _item(found: Reached, index: int, prefix: str) -> Reached:
    """The item of a list or a tuple."""
    made: list[tuple[Document, Type]] = []
    if not found.options:
        raise PathError(f"a list or a tuple at {cut(prefix)}", "a value of any type", prefix, index)
    for owner, option in found.options:
        item = option.item_at(index)
        if item is None and option.fixed_parts:
            wanted = f"an item {cut(str(index))} of {cut(prefix)}"
            raise PathError(wanted, f"{len(option.fixed_parts)} items", prefix, index)
        if item is None:
            raise PathError(
                f"a list or a tuple at {cut(prefix)}", format_type(option), prefix, index
            )
        made += _options(owner, item)
    return Reached(_once(made), found.many, found.static, found.owners, found.stacked)


#: The names and positions on the way from a struct to a field of it after a step, by those before it.
Places = Mapping[tuple[PathStep, ...], tuple[PathStep, ...]]


def moved(document: Document, struct: str, path: str, owner: str, places: Places) -> str:
    """A path after a step gave fields of one struct other places.

    Args:
        document: The document before the step.
        struct: The struct whose expression names the path.
        path: The path.
        owner: The struct whose fields have other places.
        places: These places.

    Returns:
        The same path where it reaches nothing, or goes through unions of that struct with others.
    """
    head = head_of(path)
    parts = (head, *steps_of(path))
    if not any(key[0] in parts for key in places):
        return path
    made: list[PathStep] = []
    found: Reached | None = None
    structs = {struct}
    place = 0
    try:
        while place < len(parts):
            keys = [key for key in places if parts[place : place + len(key)] == key]
            is_moved = bool(keys) and owner in structs
            if is_moved and len(structs) > 1:
                return path
            here = keys[0] if is_moved else parts[place : place + 1]
            made += places[keys[0]] if is_moved else here
            for step in here:
                if found is None:
                    field = document.structs[struct].fields[head]
                    found = _entered(document, struct, field, "")
                else:
                    found = _stepped(found, step, "")
            place += len(here)
            options = found.options if found else ()
            structs = {option.refers for _, option in single_types(options)}
    except (KeyError, PathError):
        return path
    return path_of(str(made[0]), made[1:])


def paths_from(document: Document, struct: str) -> list[str]:
    """The paths that expressions of a struct can name, short ones first, up to a number and a depth."""
    return [*islice(_paths(document, struct), _MOST)]


def _paths(document: Document, struct: str) -> Iterator[str]:
    declared = document.structs.get(struct)  # lint reports a root that is none of them
    fields = {} if declared is None else declared.fields
    waiting: list[tuple[str, Reached]] = [
        (name, _entered(document, struct, field, name)) for name, field in fields.items()
    ]
    for _ in range(_DEEPEST):
        yield from (path for path, _ in waiting)
        deeper: list[tuple[str, Reached]] = []
        for path, found in waiting[:_MOST]:
            for step in _next_steps(found):
                try:
                    made = _stepped(found, step, path)
                except PathError:  # another option of a union has no such part
                    continue
                deeper.append((path_of(path, (step,)), made))
        waiting = deeper


def _next_steps(found: Reached) -> Iterator[PathStep]:
    for owner, option in found.options[:1]:
        yield from range(len(option.fixed_parts))
        for inner_owner, inner in single_types(((owner, option),)):
            where, name = inner_owner.place_of(inner.refers)
            if name in where.structs:
                yield from where.structs[name].fields


@once
def given_values(document: Document) -> dict[str, Expression]:
    """The values that the fields of the root give to equations of dims, such as ``config.n_heads``, by their text."""
    found: dict[str, Expression] = {}
    for dim in document.dims.values():
        names = [] if dim.equation is None else filter(is_given, dim.equation.names)
        found |= {name: parse(name) for name in names}
    return found


def given_fields(document: Document, target: Document | None = None) -> dict[str, FieldDeclaration]:
    """The declarations of the fields on the way to the values that a target, or the document itself, names, by path."""
    found: dict[str, FieldDeclaration] = {}
    for expression in given_values(target or document).values():
        for path in expression.names:
            found |= fields_on(document, path)
    return found


def fields_on(document: Document, path: str) -> dict[str, FieldDeclaration]:
    """The declarations of the fields on the way of one path from the root."""
    found: dict[str, FieldDeclaration] = {}
    head, steps = head_of(path), steps_of(path)
    for end in range(len(steps) + 1):
        prefix = path_of(head, steps[:end])
        try:
            owners = reach(document, document.root, prefix).owners
        except (KeyError, PathError):  # lint reports it
            break
        for place, (owner, struct, name) in enumerate(owners):
            found[f"{prefix} {place}"] = owner.structs[struct].fields[name]
    return found
