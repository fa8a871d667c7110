"""Coverage: that each array of a file has one field, or each of its parts one, and the axes of the lists around it.

Both are found in the table of a layout, without a file. Fields of different options of a union never exclude each other.

Example:
    >>> from neuralqx_struct.layouts import Layout
    >>> layout = Layout(language="1", layout="x", of="neuralqx.vmc_state@1", structs={"VMCState": {"W_im": "W_re"}})
    >>> [found.path for found in claim_findings(Table(v1, layout))]
    ['$.structs.VMCState.W_im']
"""

from __future__ import annotations

from collections.abc import Iterator

from neuralqx_struct.errors import Diagnostic
from neuralqx_struct.layouts import Rule
from neuralqx_struct.layouts.names import shown
from neuralqx_struct.layouts.table import ArrayEntry, Row, Table
from neuralqx_struct.schema.text import path_text


def claim_findings(table: Table) -> Iterator[Diagnostic]:
    """Yields NQX703 for every array of a file that two fields take, and for parts that none takes.

    And NQX702 for axes that an array does not have.
    """
    arrays = [entry for entry in table.entries if isinstance(entry, ArrayEntry)]
    yield from {found.path: found for entry in arrays for found in _misfits(table, entry)}.values()
    if not table.is_whole:
        return  # a field can be anywhere: the arrays of a real file decide
    claims: dict[str, list[Row]] = {}
    for entry in arrays:
        for name in entry.bases:
            claims.setdefault(name, []).append(entry.row)
    reported = set[str]()
    for name, rows in claims.items():
        for path, message, hint in _clashes(table, shown(name), rows):
            if path not in reported:
                reported.add(path)
                yield Diagnostic("NQX703", "error", message, path=path, hint=hint)


def _clashes(table: Table, name: str, rows: list[Row]) -> Iterator[tuple[str, str, str]]:
    """Yields the place, the message and the fix of each problem of one array of the file."""
    first, *others = rows
    for later in others:
        clash = later.rule.parts == 1 or _division(later.rule) != _division(first.rule)
        if (clash or later.rule.place == first.rule.place) and not _excludes(later, first):
            ruled = later.field in table.rules(later.owner, later.struct)
            one, other = (first, later) if ruled else (later, first)
            message = f"expected one field for each array, got two for {name!r}\nthe other is {table.label(one.owner, one.struct)}.{one.field}"
            hint = "give one of them another name, or both a `part` of the array"
            yield _path(table, other), message, hint
    missing = sorted({*range(first.rule.parts)} - {row.rule.place for row in rows})
    if missing:
        message = f"expected fields for all {first.rule.parts} parts of {name!r}, got none for part {missing[0]}"
        yield _path(table, first), message, "parts are counted from 0"


def _path(table: Table, row: Row) -> str:
    return path_text(("structs", table.label(row.owner, row.struct), row.field))


def _division(rule: Rule) -> tuple[object, ...]:
    """The parts of the array that a rule is about one of."""
    return (rule.parts, rule.split, rule.axis, str(rule.sizes), str(rule.blocks))


def _excludes(one: Row, other: Row) -> bool:
    """True if no payload has both fields."""
    mine, theirs = dict(one.choices), dict(other.choices)
    return any(mine[path] != theirs[path] for path in mine.keys() & theirs.keys())


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
