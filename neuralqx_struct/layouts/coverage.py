"""Coverage: that each array of a file has one field, or each of its parts one, and the axes of the lists around it.

Both are found from a layout and its schema alone.

Names are compared with ``{i}`` and ``{key}`` in place of numbers and keys. Fields of different options of a union never
exclude each other.

Example:
    >>> layout = Layout(language="1", layout="x", of="neuralqx.vmc_state@1", structs={"VMCState": {"W_im": "W_re"}})
    >>> [found.path for found in claim_findings(layout, v1)]
    ['$.structs.VMCState.W_im']
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from neuralqx_struct.errors import Diagnostic
from neuralqx_struct.evolution.sizes import extent
from neuralqx_struct.layouts import KEY, NUMBER, Layout, Rule
from neuralqx_struct.layouts.forms import Form, Shape
from neuralqx_struct.layouts.names import joined
from neuralqx_struct.layouts.places import holds_arrays, of_items
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.text import KeyPath, path_text
from neuralqx_struct.types import Type

#: The axis in the file of a list or a stacked struct, with the place of its rule in the layout.
Axes = tuple[tuple[int, KeyPath], ...]
#: Fields that are looked at, and structs inside structs.
_MOST, _DEEPEST = 20_000, 16


@dataclass(frozen=True, slots=True)
class Claim:
    """One field that takes an array of the file.

    Attributes:
        owner: The document of its struct.
        struct: Its struct, as layouts name it.
        field: Its name.
        rule: Its rule.
        base: The name in the file.
        choices: The options of unions around it, by the path of the union.
        path: The names of the fields on the way.
        axes: The axes of the lists and stacked structs around it that have one array for all items.
    """

    owner: Document
    struct: str
    field: str
    rule: Rule
    base: str
    choices: tuple[tuple[str, int], ...]
    path: tuple[str, ...]
    axes: Axes = ()

    def excludes(self, other: Claim) -> bool:
        """True if no payload has both fields."""
        mine, theirs = dict(self.choices), dict(other.choices)
        return any(mine[path] != theirs[path] for path in mine.keys() & theirs.keys())

    @property
    def division(self) -> tuple[object, ...]:
        """The parts of the array that the rule is about one of."""
        rule = self.rule
        return (rule.parts, rule.split, rule.axis, str(rule.sizes), str(rule.blocks))


def claim_findings(layout: Layout, document: Document) -> Iterator[Diagnostic]:
    """Yields NQX703 for every array of a file that two fields take, and for parts that none takes.

    And NQX702 for axes that an array does not have.
    """
    walk = _Walk(layout, document)
    walk.struct(document, document.root, Claim(document, "", "", Rule(), "", (), ()))
    yield from walk.found.values()
    if walk.visits >= _MOST:
        return  # a field can be anywhere: the arrays of a real file decide
    reported = set[tuple[str, str]]()
    for name, claims in walk.claims.items():
        first = claims[0]
        for later in claims[1:]:
            clash = later.rule.parts == 1 or later.division != first.division
            same = later.rule.place == first.rule.place
            if (clash or same) and not later.excludes(first):
                ruled = later.field in layout.rules(later.struct)
                one, other = (first, later) if ruled else (later, first)
                if (other.struct, other.field) not in reported:
                    reported.add((other.struct, other.field))
                    yield _twice(name, one, other)
        places = {claim.rule.place for claim in claims}
        missing = sorted({*range(first.rule.parts)} - places)
        if missing and (first.struct, first.field) not in reported:
            reported.add((first.struct, first.field))
            message = f"expected fields for all {first.rule.parts} parts of {name!r}, got none for part {missing[0]}"
            yield Diagnostic(
                "NQX703", "error", message, path=_path(first), hint="parts are counted from 0"
            )


def _twice(name: str, first: Claim, later: Claim) -> Diagnostic:
    message = f"expected one field for each array, got two for {name!r}\nthe other is {first.struct}.{first.field}"
    hint = "give one of them another name, or both a `part` of the array"
    return Diagnostic("NQX703", "error", message, path=_path(later), hint=hint)


def _path(claim: Claim) -> str:
    return path_text(("structs", claim.struct, claim.field))


class _Walk:
    """A walk over all fields with their names in the file."""

    def __init__(self, layout: Layout, document: Document) -> None:
        self.layout, self.document = layout, document
        self.claims: dict[str, list[Claim]] = {}
        self.found: dict[str, Diagnostic] = {}
        self.visits = 0

    def struct(self, owner: Document, name: str, claim: Claim) -> None:
        """Looks at the fields of a struct."""
        label = name if owner is self.document else f"{owner.id}.{name}"
        rules = self.layout.rules(label)
        for field, declaration in owner.structs[name].stored.items():
            self.visits += 1
            if self.visits >= _MOST or len(claim.path) >= _DEEPEST:
                return
            if declaration.kind != "node" or not holds_arrays(declaration.declared, owner):
                continue
            rule = rules.get(field) or Rule()
            path = (*claim.path, field)
            inside = replace(claim, owner=owner, struct=label, field=field, rule=rule, path=path)
            bases = [joined(claim.base, part, self.layout.separator) for part in rule.names(field)]
            for base in bases:
                self.value(declaration.declared, replace(inside, base=base))

    def value(self, declared: Type, claim: Claim) -> None:
        """Looks at a value of a type."""
        owner = claim.owner
        if len(declared.branches) > 1:
            path = ".".join(claim.path)
            for option, branch in enumerate(declared.solid):
                self.value(branch, replace(claim, choices=(*claim.choices, (path, option))))
        elif declared.element or declared.key_impl:
            self.claims.setdefault(claim.base, []).append(claim)
            if claim.axes and ... not in declared.extents:
                words = [extent(0)] if declared.key_impl else []
                self.axes((*declared.extents, *words), claim)
        elif owner.is_struct(declared.refers):
            self.struct(*owner.place_of(declared.refers), claim)
        elif declared.below is not None or declared.item_at(0) is not None:
            self.items(declared, claim)
        else:
            if declared.stacks and NUMBER not in claim.base:
                claim = _with_axis(claim, "stack", claim.rule.stack or 0)
            for part in declared.parts:  # of a stacked struct
                self.value(part, claim)

    def axes(self, shape: Shape, claim: Claim) -> None:
        """Checks that an array has the axes of the lists around it."""
        rule = claim.rule
        several = isinstance(rule.name, list) or NUMBER in claim.base
        count = len(rule.name) if isinstance(rule.name, list) else 1
        rank = len(Form.of(rule, shape, count if several else None).files[0])
        for axis, path in reversed(claim.axes):
            if not -rank - 1 <= axis <= rank:
                where = path_text(path)
                field = f"{claim.struct}.{claim.field}"
                message = (
                    f"expected an axis of {field}, which has {rank + 1} axes with it, got {axis}"
                )
                self.found[where] = Diagnostic("NQX702", "error", message, path=where)
            rank += 1

    def items(self, declared: Type, claim: Claim) -> None:
        """Looks at the items of a list, a tuple or a dict."""
        mark = KEY if declared.below is not None else NUMBER
        base = claim.base
        if claim.rule.unstack is None and mark not in base:
            base = joined(base, mark, self.layout.separator)
        if claim.rule.unstack is not None:
            claim = _with_axis(claim, "unstack", claim.rule.unstack)
        inside = replace(claim, rule=of_items(claim.rule))
        fixed = declared.fixed_parts if len(declared.parts) > 1 else ()
        for index, part in enumerate(fixed or declared.parts[:1]):
            shown = str(index) if fixed else f"{{{len(claim.path)}}}"
            self.value(part, replace(inside, base=base.replace(mark, shown, 1)))


def _with_axis(claim: Claim, member: str, axis: int) -> Claim:
    path = ("structs", claim.struct, claim.field, member)
    return replace(claim, axes=(*claim.axes, (axis, path)))
