"""Claims: what arrays and declarations say about sizes, one equation each.

Owns the records that unification works on (:class:`Slot` for a size, :class:`Claim` for an equation, :class:`Seen` for
an array, :class:`Conflict` for what does not hold) and the sizes of expressions, in exact arithmetic as long as there is
one. Which claims there are and what follows from them is ``dims.py``.

Example:
    >>> from neuralqx_struct.schema.expressions import parse
    >>> check(Claim(parse("2 * n"), {"n": Slot("n", 4, "$.w axis 0")}, 9)).reason
    '2 * n = 8, n from $.w axis 0'
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from types import EllipsisType
from typing import Any

from neuralqx_struct.decimals import brief_integer
from neuralqx_struct.errors import SchemaError
from neuralqx_struct.schema.evaluation import evaluate
from neuralqx_struct.schema.expressions import Expression
from neuralqx_struct.schema.linear import linear_form

__all__ = ["ANY", "Claim", "Conflict", "Seen", "Slot", "because_of", "check", "compute", "exact", "is_name", "known"]

ANY = "_"
_LONGEST = 2**63  # no axis is longer


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """An array that was unified: what a message about it needs."""

    shape: Sequence[Expression | EllipsisType]
    actual: Sequence[int]
    where: str
    dtype: str
    slots: Mapping[str, Slot]


@dataclass(slots=True, eq=False)
class Slot:
    """The place of one size; it is filled once."""

    name: str
    size: int | None = None
    because: str = ""
    where: str = ""
    seen: Seen | None = None  # the array it was read off or solved from
    given: bool = False  # stated by know(): an int of the user's may be negative
    derivation: str = ""  # what stands behind its name in an explanation; empty for a size that was read off
    premises: Mapping[str, Slot] = field(default_factory=dict)
    waiting: list[Claim] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Claim:
    """``expression == target``, where the target is a dim or the size of an axis."""

    expression: Expression
    slots: Mapping[str, Slot]
    target: Slot | int
    seen: Seen | None = None
    axis: int = 0
    settled: bool = False

    @property
    def size(self) -> int | None:
        """The size of the target, if it is known."""
        return self.target.size if isinstance(self.target, Slot) else self.target

    @property
    def equation(self) -> str:
        """``2 * n = 8`` for an axis, ``m = 2 * n`` for a dim."""
        text = self.expression.text
        return f"{self.target.name} = {text}" if isinstance(self.target, Slot) else f"{text} = {self.target}"

    def open(self) -> list[Slot]:
        """The sizes that are still unknown, each once."""
        slots = [*self.slots.values(), *([self.target] if isinstance(self.target, Slot) else [])]
        return list({id(slot): slot for slot in slots if slot.size is None}.values())


@dataclass(frozen=True, slots=True, eq=False)
class Conflict:
    """A claim that does not hold."""

    claim: Claim
    reason: str
    wanted: int | None = None  # what the target should have been, where there is such a size


def is_name(expression: Expression) -> bool:
    """True for an expression that is one name, such as ``n``."""
    return expression.text in expression.names and expression.text != ANY


def known(slots: Mapping[str, Slot]) -> dict[str, int]:
    """The sizes that are known, by name."""
    return {name: slot.size for name, slot in slots.items() if slot.size is not None}


def _value(expression: Expression, names: Mapping[str, int]) -> Any:
    form = linear_form(expression, frozenset(), names)
    return evaluate(expression, names) if form is None else form[1]


def exact(expression: Expression, names: Mapping[str, int]) -> int | None:
    """The size that the expression has, or None if it has none: a fraction, an unknown name, a division by zero."""
    try:
        value = _value(expression, names)
    except SchemaError:
        return None
    # Sizes that follow from each other could grow until nothing else is done: what is too long for an axis is no size.
    is_size = type(value) in {int, float, Fraction} and abs(value) <= _LONGEST and value == value // 1
    return int(value) if is_size else None


def compute(claim: Claim) -> tuple[int | None, str]:
    """The size that the expression has, and what to say about it behind the name of a dim."""
    text, names = claim.expression.text, known(claim.slots)
    size = exact(claim.expression, names)
    if size is not None:
        return size, f"= {text}" if text == str(size) else f"= {text} = {size}"
    try:
        value = _value(claim.expression, names)
        whole = type(value) in {int, Fraction} and value == value // 1
        return None, f"{text} = {brief_integer(int(value)) if whole else value} is not a size"
    except SchemaError as error:
        return None, error.diagnostics[0].message.replace("\n", " ")


def check(claim: Claim) -> Conflict | None:
    """Compare both sides of a claim without unknowns."""
    size, shown = compute(claim)
    if size is not None and size == claim.size:
        return None
    if size is not None:
        shown = f"{claim.target.name} {shown}" if isinstance(claim.target, Slot) else shown.removeprefix("= ")
    return Conflict(claim, because_of(shown, claim.slots), size)


def because_of(text: str, premises: Mapping[str, Slot]) -> str:
    """A reason, and where each size in it comes from."""
    return ", ".join([text, *(f"{name} from {slot.because}" for name, slot in premises.items() if slot.because)])
