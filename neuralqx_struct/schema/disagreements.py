"""Disagreements: what is said about sizes that do not fit, and why each of them was expected.

Owns the messages about arrays and dims, and the explanation of a size back to what fixed it. Finds nothing itself:
``dims.py`` does.

Example:
    >>> explain({"n": Slot("n", 12, "$.kernel axis 0")})
    ['n = 12 was fixed by $.kernel axis 0']
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from types import EllipsisType, MappingProxyType

from neuralqx_struct.decimals import brief_integer
from neuralqx_struct.errors import Diagnostic
from neuralqx_struct.schema.claims import Conflict, Seen, Slot, because_of, exact, known
from neuralqx_struct.schema.expressions import Expression

__all__ = ["disagreement", "explain", "mismatch", "reasons_of", "report"]

MAX_REASONS = 8

_HINTS = {
    "NQX412": "give it the declared shape, or change the shape in the schema",
    "NQX413": "make the sizes agree, or use another name in the schema where they are meant to differ",
}


def disagreement(code: str, message: str, reasons: Iterable[str], path: str) -> Diagnostic:
    """A finding about sizes, with the first of its reasons."""
    lines = list(dict.fromkeys(reasons))
    if len(lines) > MAX_REASONS:
        lines[MAX_REASONS:] = ["and so on"]
    return Diagnostic(code, "error", "\n".join([message, *lines]), path=path, hint=_HINTS[code])


def explain(slots: Mapping[str, Slot]) -> list[str]:
    """Where sizes come from, one a line, back to what was read off an array or stated."""
    lines: list[str] = []
    queue = deque(slots.items())
    told: set[int] = set()
    while queue and len(lines) <= MAX_REASONS:
        name, slot = queue.popleft()
        if id(slot) in told or slot.size is None:
            continue
        told.add(id(slot))
        label = name if name == slot.name else f"{name} = {slot.name}"
        if slot.derivation:
            lines.append(because_of(f"{label} {slot.derivation}", slot.premises))
            queue.extend((inner, premise) for inner, premise in slot.premises.items() if premise.derivation)
        else:
            lines.append(f"{label} = {brief_integer(slot.size)} was fixed by {slot.because}")
    return lines


def reasons_of(conflict: Conflict) -> list[str]:
    """Why a claim does not hold, one reason a line."""
    derived = {name: slot for name, slot in conflict.claim.slots.items() if slot.derivation}
    return [conflict.reason, *explain(derived)]


def mismatch(
    code: str, seen: Seen, reasons: Iterable[str] = (), instead: Mapping[str, int] = MappingProxyType({})
) -> Diagnostic:
    """A finding about one array: its declaration with the sizes worked in, and its shape."""
    names = {**known(seen.slots), **instead}
    expected = ", ".join(_axis(extent, names) for extent in seen.shape)
    got = ", ".join(map(str, seen.actual))
    return disagreement(code, f"expected {seen.dtype}[{expected}], got {seen.dtype}[{got}]", reasons, seen.where)


def _axis(extent: Expression | EllipsisType, names: Mapping[str, int]) -> str:
    if isinstance(extent, EllipsisType):
        return "..."
    size = exact(extent, names) if extent.names else None
    return extent.text if size is None else f"{extent.text}={size}"


def report(conflicts: Iterable[Conflict]) -> list[Diagnostic]:
    """One finding for each array, and one for each dim that no array fixed."""
    arrays: dict[int, tuple[Seen, dict[str, int], list[str]]] = {}
    found: list[Diagnostic] = []
    for conflict in conflicts:
        claim, target = conflict.claim, conflict.claim.target
        seen = claim.seen or (target.seen if isinstance(target, Slot) and conflict.wanted is not None else None)
        if seen is not None:
            _, instead, reasons = arrays.setdefault(id(seen), (seen, {}, []))
            reasons += reasons_of(conflict)
            if isinstance(target, Slot) and conflict.wanted is not None:
                instead.update((name, conflict.wanted) for name, slot in seen.slots.items() if slot is target)
                reasons += explain({target.name: target}) if target.derivation else []
        elif isinstance(target, Slot):
            wanted = f"{target.name} = {claim.expression.text if conflict.wanted is None else conflict.wanted}"
            got = "no such size" if target.size is None else brief_integer(target.size)
            where = target.where or next((slot.where for slot in claim.slots.values() if slot.where), "")
            reasons = [*reasons_of(conflict), *explain({target.name: target})]
            found.append(disagreement("NQX413", f"expected {wanted}, got {got}", reasons, where))
    return [mismatch("NQX413", seen, reasons, instead) for seen, instead, reasons in arrays.values()] + found
