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

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from neuralqx_struct.errors import Diagnostic
from neuralqx_struct.layouts import NUMBER, Layout, Rule
from neuralqx_struct.layouts.forms import Form
from neuralqx_struct.layouts.places import Place
from neuralqx_struct.layouts.walk import LAYER, Walk
from neuralqx_struct.manifest.kinds import ARRAY
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.text import path_text
from neuralqx_struct.types import Extent, Node, Type

#: Structs that are looked at, and structs inside structs.
_MOST, _DEEPEST = 5_000, 16


@dataclass(frozen=True, slots=True)
class Claim:
    """One field that takes an array of the file.

    Attributes:
        struct: Its struct, as layouts name it.
        field: Its name.
        rule: Its rule.
        choices: The options of unions around it, by the path of the union.
    """

    struct: str
    field: str
    rule: Rule
    choices: tuple[tuple[str, int], ...]

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
    walk = SchemaWalk(document, layout)
    walk.run()
    yield from walk.misfits.values()
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


class SchemaWalk(Walk):
    """A walk over all fields, without a file: one item of each list, and every option of each union."""

    def __init__(self, document: Document, layout: Layout) -> None:
        super().__init__(document, layout)
        self.claims: dict[str, list[Claim]] = {}
        self.misfits: dict[str, Diagnostic] = {}
        self._choices: tuple[tuple[str, int], ...] = ()

    def fields_of(self, owner: Document, name: str, place: Place) -> Mapping[str, Any]:
        """The fields of a struct; none behind the last one that is looked at."""
        if self.visits >= _MOST or len(place.keys) >= _DEEPEST:
            return {}
        return super().fields_of(owner, name, place)

    def plain(self, declared: Type, place: Place) -> None:
        """The node of a value without arrays."""

    def nodes_of(self, declared: Type, place: Place, base: str) -> Sequence[Any]:  # noqa: ARG002
        """One item of a list, all of a tuple."""
        return [None] * max(len(declared.parts), 1)

    def number(self, index: int, place: Place, declared: Type) -> str:
        """The number of an item in names: the same for all of a list."""
        fixed = len(declared.parts) > 1
        return str(index) if fixed else f"{{{len(place.keys)}}}"

    def pairs_of(self, place: Place, base: str, *, whole: bool) -> Mapping[str, Any]:  # noqa: ARG002
        """One key for all."""
        return {f"{{{len(place.keys)}}}": None}

    def options(self, declared: Type, place: Place) -> Node:
        """The last option, after all others."""
        before, path, node = self._choices, ".".join(place.keys), None
        for number, option in enumerate(declared.solid):
            self._choices = (*before, (path, number))
            node = self.value(option, place)
        self._choices = before
        return node

    def layers(self, place: Place) -> None:
        """The number of layers, which no schema shows."""

    def array(
        self, dtypes: tuple[str, ...], shape: tuple[Extent, ...], place: Place
    ) -> dict[str, Any]:
        """Adds the claims of an array, and checks that it has the axes of the lists around it."""
        struct = self.label(place.owner, place.struct)
        claim = Claim(struct, place.field, place.rule, self._choices)
        bases = self.bases_of(place)
        for base in bases:
            self.claims.setdefault(base.replace(LAYER, NUMBER), []).append(claim)
        shape = shape[len(place.axes) :]
        frames = [frame for frame in place.frames if frame.axis is not None]
        if frames and ... not in shape:
            merged = len(bases) > 1 or NUMBER in bases[0]
            rank = len(Form.of(place.rule, shape, len(bases) if merged else None).files[0])
            for frame in reversed(frames):
                if not -rank - 1 <= (frame.axis or 0) <= rank:
                    self._misfit(claim, frame.member, rank + 1, frame.axis)
                rank += 1
        return ARRAY.node(name="", dtype=dtypes[0], shape=[])

    def _misfit(self, claim: Claim, member: Sequence[str], rank: int, axis: int | None) -> None:
        where, field = path_text((*member,)), f"{claim.struct}.{claim.field}"
        message = f"expected an axis of {field}, which has {rank} axes with it, got {axis}"
        self.misfits[where] = Diagnostic("NQX702", "error", message, path=where)
