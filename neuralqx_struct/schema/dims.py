"""Dims: the symbolic sizes of one instance tree, found by unification over all its arrays.

Owns :class:`Dim` (a declared size) and :class:`Solver`, which is told the declared and the actual shape of every
array, one after the other, and says which sizes disagree and what fixed them. Names that the document declares are one
size for the whole tree, all others belong to one struct instance (:meth:`Solver.scope`). Does not walk trees and does
not look at dtypes; the equations are ``claims.py``, the messages ``disagreements.py``.

What is found does not depend on the order of the arrays: a size follows from another in the same way whichever came
first. Only which of two arrays is called the wrong one does.

Example:
    >>> from neuralqx_struct.schema.expressions import parse
    >>> solver = Solver({"n": Dim("n")})
    >>> solver.unify([parse("n"), parse("2 * n")], [12, 24], "$.kernel", "float32")
    []
    >>> print(solver.unify([parse("n")], [10], "$.bias", "float32")[0].message)
    expected float32[n=12], got float32[10]
    n = 12 was fixed by $.kernel axis 0
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import EllipsisType, MappingProxyType

from neuralqx_struct.decimals import brief_integer
from neuralqx_struct.errors import Diagnostic
from neuralqx_struct.schema.claims import (
    ANY,
    Claim,
    Conflict,
    Seen,
    Slot,
    because_of,
    check,
    compute,
    exact,
    is_name,
    known,
)
from neuralqx_struct.schema.disagreements import disagreement, explain, mismatch, reasons_of, report
from neuralqx_struct.schema.expressions import Expression
from neuralqx_struct.schema.linear import linear_form

__all__ = ["Binding", "Dim", "Solver"]

_NOTHING: Mapping[str, Expression] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Dim:
    """A size that a document declares for the whole tree.

    Attributes:
        name: Its name.
        minimum: The smallest size allowed; a size is never negative.
        maximum: The largest size allowed.
        equals: What it is equal to, in terms of dims and of static ints of the root.
        doc: What it means.
    """

    name: str
    minimum: int | None = None
    maximum: int | None = None
    equals: Expression | None = None
    doc: str = ""


@dataclass(frozen=True, slots=True)
class Binding:
    """A size that is known.

    Attributes:
        size: The size.
        because: What fixed it: ``$.kernel axis 0``, ``$.alpha`` or ``alpha * n_sites``.
    """

    size: int
    because: str


class _Family:
    """The declared dims of one document, for one instance of a struct of it and all that is inside."""

    __slots__ = ("dims", "judged", "root", "shared", "started")

    def __init__(self, dims: Mapping[str, Dim], root: dict[str, Slot]) -> None:
        self.dims = dims
        self.shared = {name: Slot(name) for name in dims}
        self.root = root
        self.judged: set[str] = set()  # declared dims whose bounds were looked at
        self.started = False  # whether `equals` takes part

    def slot(self, own: dict[str, Slot], name: str) -> Slot:
        return own.get(name) or self.shared.get(name) or own.setdefault(name, Slot(name))


class _Tree:
    """What all scopes of one instance tree share."""

    __slots__ = ("families", "negative", "queue", "stated")

    def __init__(self) -> None:
        self.families: list[_Family] = []
        self.queue: deque[Claim] = deque()
        self.stated: list[Diagnostic] = []  # statements of know() that disagree
        self.negative: list[Slot] = []

    def family(self, dims: Mapping[str, Dim], root: dict[str, Slot]) -> _Family:
        self.families.append(_Family(dims, root))
        return self.families[-1]

    def fix(self, slot: Slot, size: int, because: str, where: str, seen: Seen | None = None) -> None:
        slot.size, slot.because, slot.where, slot.seen = size, because, where, seen
        if size < 0:
            self.negative.append(slot)
        self.queue.extend(slot.waiting)
        slot.waiting = []

    def claim(self, claim: Claim) -> None:
        for slot in claim.open():
            slot.waiting.append(claim)
        self.queue.append(claim)

    def settle(self) -> list[Conflict]:
        """Draw every conclusion there is; each claim is looked at once per size that it learns."""
        found: list[Conflict] = []
        while self.queue:
            claim = self.queue.popleft()
            if claim.settled:
                continue
            unknown = claim.open()
            if not unknown:
                conflict = check(claim)
                claim.settled = True
            elif len(unknown) == 1:
                conflict = self.conclude(claim, unknown[0])
            else:
                continue
            if conflict:
                found.append(conflict)
        return found

    def conclude(self, claim: Claim, unknown: Slot) -> Conflict | None:
        """Find the one size of a claim that is unknown; where that cannot be done now, the claim goes on waiting."""
        names = frozenset(name for name, slot in claim.slots.items() if slot is unknown)
        if unknown is claim.target:
            if names:  # n = 2 * n - 4: left to be checked
                return None
            claim.settled = True
            size, shown = compute(claim)
            if size is None:
                return Conflict(claim, because_of(shown, claim.slots))
            where = next((slot.where for slot in claim.slots.values() if slot.where), "")
            self.fix(unknown, size, claim.expression.text, where)
            unknown.derivation, unknown.premises = shown, claim.slots
            return None
        form = linear_form(claim.expression, names, known(claim.slots))
        if form is None or claim.size is None:
            return None
        claim.settled = True
        slope, offset = form
        others = {name: slot for name, slot in claim.slots.items() if slot is not unknown}
        if slope == 0:
            differs = offset != claim.size
            return Conflict(claim, because_of(f"{claim.expression.text} = {offset}", others)) if differs else None
        solution = (claim.size - offset) / slope
        if isinstance(claim.target, Slot):
            others[claim.target.name] = claim.target
        if solution.denominator != 1:
            return Conflict(
                claim, because_of(f"{claim.equation} has no whole solution for {', '.join(sorted(names))}", others)
            )
        if claim.seen is not None:
            where = claim.seen.where
            because = f"{where} axis {claim.axis}"
            shown = f"= {int(solution)} solves {claim.equation} at {because}"
        else:
            because, where = claim.equation, next((slot.where for slot in others.values() if slot.where), "")
            shown = f"= {int(solution)} solves {claim.equation}"
        self.fix(unknown, int(solution), because, where, claim.seen)
        unknown.derivation, unknown.premises = shown, others
        return None


class Solver:
    """The sizes known so far for one instance tree, seen from one struct of it.

    Args:
        dims: The declared dims of the document.

    Example:
        >>> from neuralqx_struct.schema.expressions import parse
        >>> solver = Solver({"n": Dim("n"), "m": Dim("m", equals=parse("alpha * n"))})
        >>> solver.know("alpha", 2, "$.alpha")
        >>> solver.unify([parse("n")], [12], "$.bias", "float32") + solver.solve()
        []
        >>> solver.sizes()["m"]
        Binding(size=24, because='alpha * n')
    """

    __slots__ = ("_family", "_own", "_tree")

    def __init__(self, dims: Mapping[str, Dim]) -> None:
        self._tree = _Tree()
        self._own: dict[str, Slot] = {}
        self._family = self._tree.family(dims, self._own)

    @classmethod
    def _inside(cls, tree: _Tree, family: _Family, own: dict[str, Slot]) -> Solver:
        self = object.__new__(cls)
        self._tree, self._family, self._own = tree, family, own
        return self

    def scope(self, parameters: Mapping[str, Expression] = _NOTHING, dims: Mapping[str, Dim] | None = None) -> Solver:
        """The same tree from inside another struct instance.

        Args:
            parameters: What the struct's own size names are here, in terms of this scope, as in ``Dense[d, 4 * d]``.
            dims: For a struct of another document, the dims that it declares: they are one size inside this instance.

        Returns:
            A solver that shares the declared dims with this one; every other name is its own.

        Example:
            >>> from neuralqx_struct.schema.expressions import parse
            >>> layer = Solver({}).scope({"width": parse("4 * 2")})
            >>> print(layer.unify([parse("width")], [9], "$.w", "int8")[0].message.splitlines()[0])
            expected int8[width=8], got int8[9]
        """
        tree, own = self._tree, dict[str, Slot]()
        for name, expression in parameters.items():
            if is_name(expression):
                own[name] = self._family.slot(self._own, expression.text)
            else:
                own[name] = Slot(name)
                self._claim(expression, own[name])
        tree.stated += report(tree.settle())
        return self._inside(tree, self._family if dims is None else tree.family(dims, own), own)

    def know(self, name: str, size: int, because: str) -> None:
        """State a size that is not read off an array, such as a static int.

        A statement that does not agree with what is known is reported by :meth:`solve`.

        Args:
            name: The dim or static int.
            size: Its value.
            because: What says so: the path of the field.
        """
        slot = self._family.slot(self._own, name)
        if slot.size is None:
            self._tree.fix(slot, size, because, because)
        elif slot.size != size:
            message = f"expected {name} = {brief_integer(slot.size)}, got {brief_integer(size)}"
            self._tree.stated.append(disagreement("NQX413", message, explain({name: slot}), because))
            return
        slot.given = True

    def unify(
        self, shape: Sequence[Expression | EllipsisType], actual: Sequence[int], where: str, dtype: str
    ) -> list[Diagnostic]:
        """Compare the shape of one array with its declaration, and learn sizes from it.

        Args:
            shape: The declared axes; ``...`` stands for any number of axes, the name ``_`` for any size.
            actual: The shape that the array has.
            where: Path of the array.
            dtype: Its dtype, for messages.

        Returns:
            NQX412 where the number of axes or a fixed size is wrong, NQX413 where sizes disagree; also about earlier
            arrays, where this one decides about them.

        Example:
            >>> from neuralqx_struct.schema.expressions import parse
            >>> print(Solver({}).unify([parse("n"), parse("3")], [5, 4], "$.w", "float32")[0].message)
            expected float32[n=5, 3], got float32[5, 4]
        """
        tree = self._tree
        names = dict.fromkeys(name for extent in shape if not isinstance(extent, EllipsisType) for name in extent.names)
        slots = {name: self._family.slot(self._own, name) for name in names if name != ANY}
        seen = Seen(tuple(shape), tuple(actual), where, dtype, slots)
        axes = _align(seen)
        if axes is None:
            return [mismatch("NQX412", seen)]
        code = ""
        blamed: dict[str, Slot] = {}
        for axis, extent in axes:
            size = seen.actual[axis]
            if not extent.names:
                if exact(extent, {}) != size:
                    code = "NQX412"
            elif is_name(extent):
                slot = slots[extent.text]
                if slot.size is None:
                    tree.fix(slot, size, f"{where} axis {axis}", where, seen)
                elif slot.size != size:
                    code = code or "NQX413"
                    blamed[extent.text] = slot
            elif ANY not in extent.names:
                self._claim(extent, size, seen, axis)
        found = tree.settle()
        if not code:
            return report(found)
        own = [conflict for conflict in found if conflict.claim.seen is seen]
        others = [conflict for conflict in found if conflict.claim.seen is not seen]
        reasons = [*explain(blamed), *(line for conflict in own for line in reasons_of(conflict))]
        return [mismatch(code, seen, reasons), *report(others)]

    def solve(self) -> list[Diagnostic]:
        """Decide what had to wait until every array was seen: ``equals`` and the bounds of dims.

        Returns:
            NQX413 for every size that disagrees; sizes that nothing decides are left open. What was returned once is
            not returned again.
        """
        tree = self._tree
        for family in tree.families:
            if not family.started:
                family.started = True
                root = self._inside(tree, family, family.root)
                for dim in family.dims.values():
                    if dim.equals is not None:
                        root._claim(dim.equals, family.shared[dim.name])  # noqa: SLF001 - the same class
        stated, tree.stated = tree.stated, []
        return [*stated, *report(tree.settle()), *_out_of_bounds(tree)]

    def sizes(self) -> dict[str, Binding]:
        """Every size that is known here, by name.

        Example:
            >>> solver = Solver({})
            >>> solver.know("alpha", 2, "$.alpha")
            >>> solver.sizes()
            {'alpha': Binding(size=2, because='$.alpha')}
        """
        visible = {**self._family.shared, **self._own}
        return {name: Binding(slot.size, slot.because) for name, slot in visible.items() if slot.size is not None}

    def _claim(self, expression: Expression, target: Slot | int, seen: Seen | None = None, axis: int = 0) -> None:
        if ANY not in expression.names:
            slots = {name: self._family.slot(self._own, name) for name in sorted(expression.names)}
            self._tree.claim(Claim(expression, slots, target, seen, axis))


def _align(seen: Seen) -> list[tuple[int, Expression]] | None:
    """The axes that have a declared size, or None if there are too few or too many of them."""
    fixed = [extent for extent in seen.shape if not isinstance(extent, EllipsisType)]
    rank = len(seen.actual)
    if len(fixed) == len(seen.shape):
        return list(enumerate(fixed)) if len(fixed) == rank else None
    if len(fixed) > rank:
        return None
    head = seen.shape.index(...)
    tail = len(seen.shape) - 1 - seen.shape[::-1].index(...)
    behind = [extent for extent in seen.shape[tail + 1 :] if not isinstance(extent, EllipsisType)]
    return [*enumerate(fixed[:head]), *enumerate(behind, start=rank - len(behind))]


def _out_of_bounds(tree: _Tree) -> list[Diagnostic]:
    found: list[Diagnostic] = []
    for family, name, dim in [(each, *item) for each in tree.families for item in each.dims.items()]:
        slot = family.shared[name]
        if slot.size is None or name in family.judged:
            continue
        family.judged.add(name)
        low, high = max(dim.minimum or 0, 0), dim.maximum
        if slot.size < low or (high is not None and slot.size > high):
            wanted = f">= {low}" if slot.size < low else f"<= {high}"
            found.append(
                disagreement(
                    "NQX413",
                    f"expected {name} {wanted}, got {brief_integer(slot.size)}",
                    explain({name: slot}),
                    slot.where,
                )
            )
    negative, tree.negative = tree.negative, []
    shared = {id(slot) for family in tree.families for slot in family.shared.values()}
    for slot in negative:
        if slot.size is not None and not slot.given and id(slot) not in shared:
            message = f"expected {slot.name} >= 0, got {brief_integer(slot.size)}"
            found.append(disagreement("NQX413", message, explain({slot.name: slot}), slot.where))
    return found
