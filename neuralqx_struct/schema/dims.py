"""Dims: the symbolic sizes of one instance tree, found by unification over all its arrays.

Owns :class:`Dim` (a declared size) and :class:`Solver`, which is told the declared and the actual shape of every
array, one after the other, and says which sizes disagree and what fixed them. Names that the document declares are one
size for the whole tree, all others belong to one struct instance (:meth:`Solver.scope`). Does not walk trees and does
not look at dtypes.

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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from types import EllipsisType, MappingProxyType
from typing import Any

from neuralqx_struct.errors import Diagnostic, SchemaError
from neuralqx_struct.schema.expressions import Expression, evaluate, linear_form

__all__ = ["Binding", "Dim", "Solver"]

ANY = "_"
MAX_REASONS = 8

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


@dataclass(frozen=True, slots=True, eq=False)
class _Seen:
    """An array that was unified: what a message about it needs."""

    shape: Sequence[Expression | EllipsisType]
    actual: Sequence[int]
    where: str
    dtype: str
    slots: Mapping[str, _Slot]


@dataclass(slots=True, eq=False)
class _Slot:
    """The place of one size; it is filled once."""

    name: str
    size: int | None = None
    because: str = ""
    where: str = ""
    seen: _Seen | None = None  # the array it was read off or solved from
    given: bool = False  # stated by know(): an int of the user's may be negative
    derivation: str = ""  # what stands behind its name in an explanation; empty for a size that was read off
    premises: Mapping[str, _Slot] = field(default_factory=dict)
    waiting: list[_Claim] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _Claim:
    """``expression == target``, where the target is a dim or the size of an axis."""

    expression: Expression
    slots: Mapping[str, _Slot]
    target: _Slot | int
    seen: _Seen | None = None
    axis: int = 0
    settled: bool = False

    @property
    def size(self) -> int | None:
        return self.target.size if isinstance(self.target, _Slot) else self.target

    @property
    def equation(self) -> str:
        """``2 * n = 8`` for an axis, ``m = 2 * n`` for a dim."""
        text = self.expression.text
        return f"{self.target.name} = {text}" if isinstance(self.target, _Slot) else f"{text} = {self.target}"

    def open(self) -> list[_Slot]:
        """The sizes that are still unknown, each once."""
        slots = [*self.slots.values(), *([self.target] if isinstance(self.target, _Slot) else [])]
        return list({id(slot): slot for slot in slots if slot.size is None}.values())


@dataclass(frozen=True, slots=True, eq=False)
class _Conflict:
    claim: _Claim
    reason: str
    wanted: int | None = None  # what the target should have been, where there is such a size


class _Tree:
    """What all scopes of one instance tree share."""

    __slots__ = ("dims", "judged", "negative", "queue", "root", "shared", "started", "stated")

    def __init__(self, dims: Mapping[str, Dim]) -> None:
        self.dims = dims
        self.shared = {name: _Slot(name) for name in dims}
        self.root: dict[str, _Slot] = {}
        self.queue: deque[_Claim] = deque()
        self.stated: list[Diagnostic] = []  # statements of know() that disagree
        self.negative: list[_Slot] = []
        self.judged: set[str] = set()  # declared dims whose bounds were looked at
        self.started = False  # whether `equals` takes part

    def slot(self, own: dict[str, _Slot], name: str) -> _Slot:
        return own.get(name) or self.shared.get(name) or own.setdefault(name, _Slot(name))

    def fix(self, slot: _Slot, size: int, because: str, where: str, seen: _Seen | None = None) -> None:
        slot.size, slot.because, slot.where, slot.seen = size, because, where, seen
        if size < 0:
            self.negative.append(slot)
        self.queue.extend(slot.waiting)
        slot.waiting = []

    def claim(self, claim: _Claim) -> None:
        for slot in claim.open():
            slot.waiting.append(claim)
        self.queue.append(claim)

    def settle(self) -> list[_Conflict]:
        """Draw every conclusion there is; each claim is looked at once per size that it learns."""
        found: list[_Conflict] = []
        while self.queue:
            claim = self.queue.popleft()
            if claim.settled:
                continue
            unknown = claim.open()
            if not unknown:
                conflict = _check(claim)
                claim.settled = True
            elif len(unknown) == 1:
                conflict = self.conclude(claim, unknown[0])
            else:
                continue
            if conflict:
                found.append(conflict)
        return found

    def conclude(self, claim: _Claim, unknown: _Slot) -> _Conflict | None:
        """Find the one size of a claim that is unknown; where that cannot be done now, the claim goes on waiting."""
        names = frozenset(name for name, slot in claim.slots.items() if slot is unknown)
        if unknown is claim.target:
            if names:  # n = 2 * n - 4: left to be checked
                return None
            claim.settled = True
            size, shown = _compute(claim)
            if size is None:
                return _Conflict(claim, _because(shown, claim.slots))
            where = next((slot.where for slot in claim.slots.values() if slot.where), "")
            self.fix(unknown, size, claim.expression.text, where)
            unknown.derivation, unknown.premises = shown, claim.slots
            return None
        form = linear_form(claim.expression, names, _known(claim.slots))
        if form is None or claim.size is None:
            return None
        claim.settled = True
        slope, offset = form
        others = {name: slot for name, slot in claim.slots.items() if slot is not unknown}
        if slope == 0:
            differs = offset != claim.size
            return _Conflict(claim, _because(f"{claim.expression.text} = {offset}", others)) if differs else None
        solution = (claim.size - offset) / slope
        if isinstance(claim.target, _Slot):
            others[claim.target.name] = claim.target
        if solution.denominator != 1:
            return _Conflict(
                claim, _because(f"{claim.equation} has no whole solution for {', '.join(sorted(names))}", others)
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

    __slots__ = ("_own", "_tree")

    def __init__(self, dims: Mapping[str, Dim]) -> None:
        self._tree = _Tree(dims)
        self._own = self._tree.root

    @classmethod
    def _inside(cls, tree: _Tree, own: dict[str, _Slot]) -> Solver:
        self = object.__new__(cls)
        self._tree, self._own = tree, own
        return self

    def scope(self, parameters: Mapping[str, Expression] = _NOTHING) -> Solver:
        """The same tree from inside another struct instance.

        Args:
            parameters: What the struct's own size names are here, in terms of this scope, as in ``Dense[d, 4 * d]``.

        Returns:
            A solver that shares the declared dims with this one; every other name is its own.

        Example:
            >>> from neuralqx_struct.schema.expressions import parse
            >>> layer = Solver({}).scope({"width": parse("4 * 2")})
            >>> print(layer.unify([parse("width")], [9], "$.w", "int8")[0].message.splitlines()[0])
            expected int8[width=8], got int8[9]
        """
        tree, own = self._tree, dict[str, _Slot]()
        for name, expression in parameters.items():
            if _is_name(expression):
                own[name] = tree.slot(self._own, expression.text)
            else:
                own[name] = _Slot(name)
                self._claim(expression, own[name])
        tree.stated += _report(tree.settle())
        return self._inside(tree, own)

    def know(self, name: str, size: int, because: str) -> None:
        """State a size that is not read off an array, such as a static int.

        A statement that does not agree with what is known is reported by :meth:`solve`.

        Args:
            name: The dim or static int.
            size: Its value.
            because: What says so: the path of the field.
        """
        slot = self._tree.slot(self._own, name)
        if slot.size is None:
            self._tree.fix(slot, size, because, because)
        if slot.size == size:
            slot.given = True
            return
        message = f"expected {name} = {slot.size}, got {size}"
        self._tree.stated.append(_diagnostic("NQX413", message, _explain({name: slot}), because))

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
        slots = {name: tree.slot(self._own, name) for name in names if name != ANY}
        seen = _Seen(tuple(shape), tuple(actual), where, dtype, slots)
        axes = _align(seen)
        if axes is None:
            return [_mismatch("NQX412", seen)]
        code = ""
        blamed: dict[str, _Slot] = {}
        for axis, extent in axes:
            size = seen.actual[axis]
            if not extent.names:
                if _exact(extent, {}) != size:
                    code = "NQX412"
            elif _is_name(extent):
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
            return _report(found)
        own = [conflict for conflict in found if conflict.claim.seen is seen]
        others = [conflict for conflict in found if conflict.claim.seen is not seen]
        reasons = [*_explain(blamed), *(line for conflict in own for line in _reasons(conflict))]
        return [_mismatch(code, seen, reasons), *_report(others)]

    def solve(self) -> list[Diagnostic]:
        """Decide what had to wait until every array was seen: ``equals`` and the bounds of dims.

        Returns:
            NQX413 for every size that disagrees; sizes that nothing decides are left open. What was returned once is
            not returned again.
        """
        tree = self._tree
        if not tree.started:
            tree.started = True
            root = self._inside(tree, tree.root)
            for dim in tree.dims.values():
                if dim.equals is not None:
                    root._claim(dim.equals, tree.shared[dim.name])  # noqa: SLF001 - the same class
        stated, tree.stated = tree.stated, []
        return [*stated, *_report(tree.settle()), *_out_of_bounds(tree)]

    def sizes(self) -> dict[str, Binding]:
        """Every size that is known here, by name.

        Example:
            >>> solver = Solver({})
            >>> solver.know("alpha", 2, "$.alpha")
            >>> solver.sizes()
            {'alpha': Binding(size=2, because='$.alpha')}
        """
        visible = {**self._tree.shared, **self._own}
        return {name: Binding(slot.size, slot.because) for name, slot in visible.items() if slot.size is not None}

    def _claim(self, expression: Expression, target: _Slot | int, seen: _Seen | None = None, axis: int = 0) -> None:
        if ANY not in expression.names:
            slots = {name: self._tree.slot(self._own, name) for name in sorted(expression.names)}
            self._tree.claim(_Claim(expression, slots, target, seen, axis))


# ---------------------------------------------------------------------------------------------------------------------
# Sizes of expressions, in exact arithmetic as long as there is one.


def _is_name(expression: Expression) -> bool:
    return expression.text in expression.names and expression.text != ANY


def _known(slots: Mapping[str, _Slot]) -> dict[str, int]:
    return {name: slot.size for name, slot in slots.items() if slot.size is not None}


def _value(expression: Expression, names: Mapping[str, int]) -> Any:
    form = linear_form(expression, frozenset(), names)
    return evaluate(expression, names) if form is None else form[1]


def _exact(expression: Expression, names: Mapping[str, int]) -> int | None:
    """The size that the expression has, or None if it has none: a fraction, an unknown name, a division by zero."""
    try:
        value = _value(expression, names)
    except SchemaError:
        return None
    return int(value) if type(value) in {int, float, Fraction} and value == value // 1 else None


def _compute(claim: _Claim) -> tuple[int | None, str]:
    """The size that the expression has, and what to say about it behind the name of a dim."""
    text, names = claim.expression.text, _known(claim.slots)
    size = _exact(claim.expression, names)
    if size is not None:
        return size, f"= {text}" if text == str(size) else f"= {text} = {size}"
    try:
        return None, f"{text} = {_value(claim.expression, names)} is not a size"
    except SchemaError as error:
        return None, error.diagnostics[0].message.replace("\n", " ")


def _check(claim: _Claim) -> _Conflict | None:
    size, shown = _compute(claim)
    if size is not None and size == claim.size:
        return None
    if size is not None:
        shown = f"{claim.target.name} {shown}" if isinstance(claim.target, _Slot) else shown.removeprefix("= ")
    return _Conflict(claim, _because(shown, claim.slots), size)


def _align(seen: _Seen) -> list[tuple[int, Expression]] | None:
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


# ---------------------------------------------------------------------------------------------------------------------
# Messages.


def _diagnostic(code: str, message: str, reasons: Iterable[str], path: str) -> Diagnostic:
    lines = list(dict.fromkeys(reasons))
    if len(lines) > MAX_REASONS:
        lines[MAX_REASONS:] = ["and so on"]
    return Diagnostic(code, "error", "\n".join([message, *lines]), path=path, hint=_HINTS[code])


_HINTS = {
    "NQX412": "give it the declared shape, or change the shape in the schema",
    "NQX413": "make the sizes agree, or use another name in the schema where they are meant to differ",
}


def _because(text: str, premises: Mapping[str, _Slot]) -> str:
    return ", ".join([text, *(f"{name} from {slot.because}" for name, slot in premises.items() if slot.because)])


def _explain(slots: Mapping[str, _Slot]) -> list[str]:
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
            lines.append(_because(f"{label} {slot.derivation}", slot.premises))
            queue.extend((inner, premise) for inner, premise in slot.premises.items() if premise.derivation)
        else:
            lines.append(f"{label} = {slot.size} was fixed by {slot.because}")
    return lines


def _reasons(conflict: _Conflict) -> list[str]:
    derived = {name: slot for name, slot in conflict.claim.slots.items() if slot.derivation}
    return [conflict.reason, *_explain(derived)]


def _mismatch(
    code: str, seen: _Seen, reasons: Iterable[str] = (), instead: Mapping[str, int] = MappingProxyType({})
) -> Diagnostic:
    names = {**_known(seen.slots), **instead}
    expected = ", ".join(_axis(extent, names) for extent in seen.shape)
    got = ", ".join(map(str, seen.actual))
    return _diagnostic(code, f"expected {seen.dtype}[{expected}], got {seen.dtype}[{got}]", reasons, seen.where)


def _axis(extent: Expression | EllipsisType, names: Mapping[str, int]) -> str:
    if isinstance(extent, EllipsisType):
        return "..."
    size = _exact(extent, names) if extent.names else None
    return extent.text if size is None else f"{extent.text}={size}"


def _report(conflicts: Iterable[_Conflict]) -> list[Diagnostic]:
    """One finding for each array, and one for each dim that no array fixed."""
    arrays: dict[int, tuple[_Seen, dict[str, int], list[str]]] = {}
    found: list[Diagnostic] = []
    for conflict in conflicts:
        claim, target = conflict.claim, conflict.claim.target
        seen = claim.seen or (target.seen if isinstance(target, _Slot) and conflict.wanted is not None else None)
        if seen is not None:
            _, instead, reasons = arrays.setdefault(id(seen), (seen, {}, []))
            reasons += _reasons(conflict)
            if isinstance(target, _Slot) and conflict.wanted is not None:
                instead.update((name, conflict.wanted) for name, slot in seen.slots.items() if slot is target)
                reasons += _explain({target.name: target}) if target.derivation else []
        elif isinstance(target, _Slot):
            wanted = f"{target.name} = {claim.expression.text if conflict.wanted is None else conflict.wanted}"
            got = "no such size" if target.size is None else str(target.size)
            where = target.where or next((slot.where for slot in claim.slots.values() if slot.where), "")
            reasons = [*_reasons(conflict), *_explain({target.name: target})]
            found.append(_diagnostic("NQX413", f"expected {wanted}, got {got}", reasons, where))
    return [_mismatch("NQX413", seen, reasons, instead) for seen, instead, reasons in arrays.values()] + found


def _out_of_bounds(tree: _Tree) -> list[Diagnostic]:
    found: list[Diagnostic] = []
    for name, dim in tree.dims.items():
        slot = tree.shared[name]
        if slot.size is None or name in tree.judged:
            continue
        tree.judged.add(name)
        low, high = max(dim.minimum or 0, 0), dim.maximum
        if slot.size < low or (high is not None and slot.size > high):
            wanted = f">= {low}" if slot.size < low else f"<= {high}"
            found.append(
                _diagnostic("NQX413", f"expected {name} {wanted}, got {slot.size}", _explain({name: slot}), slot.where)
            )
    negative, tree.negative = tree.negative, []
    shared = set(map(id, tree.shared.values()))
    for slot in negative:
        if not slot.given and id(slot) not in shared:
            message = f"expected {slot.name} >= 0, got {slot.size}"
            found.append(_diagnostic("NQX413", message, _explain({slot.name: slot}), slot.where))
    return found
