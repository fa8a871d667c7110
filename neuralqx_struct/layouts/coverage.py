"""Coverage: that each array of a file has one field, or each of its parts one, and the axes of the lists around it.

The table of a layout shows it for all files, but for numbers and keys that only a file has: the arrays of one are checked in the
same way. Fields of different options of a union never exclude each other.

Example:
    >>> from neuralqx_struct.layouts import Layout
    >>> layout = Layout(language="1", layout="x", of="neuralqx.vmc_state@1", structs={"VMCState": {"W_im": "W_re"}})
    >>> [found.path for found in claim_findings(Table(v1, layout))]
    ['$.structs.VMCState.W_im']
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import NamedTuple

from neuralqx_struct.errors import Diagnostic
from neuralqx_struct.layouts import Rule
from neuralqx_struct.layouts.names import shown
from neuralqx_struct.layouts.places import Leaf
from neuralqx_struct.layouts.table import ArrayEntry, Table
from neuralqx_struct.schema.text import path_text

#: The arrays of the schema that each array of the file is in, with the place of its name among theirs.
Claims = Mapping[str, Sequence[tuple[Leaf, int]]]


class _Claim(NamedTuple):
    """A field that takes an array of a file, or a part of it.

    Attributes:
        rule: Its rule.
        path: Its path in findings.
        name: Its name in those about others.
        items: Its items in lists that have one array for all.
        choices: The options of unions around it, by the path of the union.
    """

    rule: Rule
    path: str
    name: str
    items: tuple[int | None, ...] = ()
    choices: tuple[tuple[str, int], ...] = ()

    @property
    def division(self) -> tuple[object, ...]:
        """The parts of the array that the rule is about one of."""
        rule = self.rule
        return (rule.parts, rule.split, rule.axis, str(rule.sizes), str(rule.blocks))

    def excludes(self, other: _Claim) -> bool:
        """True if no payload has both fields."""
        mine, theirs = dict(self.choices), dict(other.choices)
        return any(mine[path] != theirs[path] for path in mine.keys() & theirs.keys())


def _problems(name: str, claims: Iterable[_Claim], items: int = 1) -> Iterator[Diagnostic]:
    """Yields NQX703 for an array that two fields take, and for parts that none takes."""
    taken: dict[tuple[int | None, ...], dict[int, _Claim]] = {}
    sound = True
    for claim in claims:
        places = taken.setdefault(claim.items, {})
        other = places.setdefault(claim.rule.place, claim)
        first = next(iter(places.values()))
        other = other if claim.division == first.division else first
        if other is not claim and not claim.excludes(other):
            sound = False
            message = (
                f"expected one field for the array {name!r}, got two\nthe other is {other.name}"
            )
            hint = "give one of the two another name, or both a `part` of it"
            yield Diagnostic("NQX703", "error", message, path=claim.path, hint=hint)
    (first, *_), *_ = (list(places.values()) for places in taken.values())
    have, parts = sum(map(len, taken.values())), first.rule.parts
    if sound and have < items * parts:
        missing = (part for held in taken.values() for part in range(parts) if part not in held)
        got = next((f"none for part {part}" for part in missing), str(have))
        message = f"expected fields for all {items * parts} parts of the array {name!r}, got {got}"
        hint = (
            "each part needs one field, with the same `axis` and `sizes`; they are counted from 0"
        )
        yield Diagnostic("NQX703", "error", message, path=first.path, hint=hint)


# ---------------------------------------------------------------------------------------------------------------------
# Of a file.


def claims_of(leaves: Iterable[Leaf]) -> Claims:
    """The claims of all arrays of the schema."""
    found: dict[str, list[tuple[Leaf, int]]] = {}
    for leaf in leaves:
        for place, name in enumerate(leaf.names):
            found.setdefault(name, []).append((leaf, place))
    return found


def claim_problems(claims: Claims) -> Iterator[Diagnostic]:
    """Yields NQX703 for arrays of the file that two fields take, and for parts that none takes."""
    for name, each in claims.items():
        first = each[0][0]
        frames = [frame for frame in first.place.frames if frame.axis is not None]
        items = prod(frame.count or 0 for frame in frames if frame.index is not None)
        if len(each) > 1 or items * first.form.rule.parts > 1:
            yield from _problems(name, map(_claim_of, (leaf for leaf, _ in each)), items)


def _claim_of(leaf: Leaf) -> _Claim:
    items = tuple(frame.index for frame in leaf.place.frames if frame.axis is not None)
    return _Claim(leaf.form.rule, leaf.place.text, leaf.place.text, items)


# ---------------------------------------------------------------------------------------------------------------------
# Of all files.


def claim_findings(table: Table) -> Iterator[Diagnostic]:
    """Yields the same for all files, and NQX702 for axes that an array does not have."""
    arrays = [entry for entry in table.entries if isinstance(entry, ArrayEntry)]
    yield from {found.path: found for entry in arrays for found in _misfits(table, entry)}.values()
    if not table.is_whole:
        return  # a field can be anywhere: the arrays of a real file decide
    claims: dict[str, list[tuple[bool, _Claim]]] = {}
    for entry in arrays:
        row = entry.row
        struct = table.label(row.owner, row.struct)
        path = path_text(("structs", struct, row.field))
        claim = _Claim(row.rule, path, f"{struct}.{row.field}", choices=row.choices)
        is_ruled = row.field in table.rules(row.owner, row.struct)
        for name in entry.bases:
            claims.setdefault(name, []).append((is_ruled, claim))
    found: dict[str, Diagnostic] = {}
    for name, each in claims.items():
        each.sort(key=lambda claim: claim[0])  # a finding is best about a rule that can be changed
        for problem in _problems(shown(name), (claim for _, claim in each)):
            found.setdefault(problem.path, problem)
    yield from found.values()


def _misfits(table: Table, entry: ArrayEntry) -> Iterator[Diagnostic]:
    """Yields NQX702 for each list or stacked struct whose axis an array does not have."""
    row = entry.row
    if not row.frames or ... in entry.form().declared:
        return
    rank = len(entry.form().files[0])
    for axis, where in reversed(row.frames):
        rank += 1
        if not -rank <= axis < rank:
            field = f"{table.label(row.owner, row.struct)}.{row.field}"
            message = f"expected an axis of {field}, which has {rank} axes with it, got {axis}"
            yield Diagnostic("NQX702", "error", message, path=path_text(where))
