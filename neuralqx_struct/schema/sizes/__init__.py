"""Sizes: the variables and equations behind symbolic shapes, and the messages about those that disagree.

Owns :class:`SizeVariable`, :class:`SizeEquation`, linear forms of expressions, and the explanation of a size back to the
array that fixed it, in exact arithmetic as long as possible. ``solver.py`` makes the equations and solves them.

Example:
    >>> from neuralqx_struct.expressions import parse
    >>> check(SizeEquation(parse("2 * n"), {"n": SizeVariable("n", 4, "$.w axis 0")}, 9)).reason
    '2 * n = 8, n from $.w axis 0'
"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from types import EllipsisType
from typing import Any, Final

from neuralqx_struct.errors import Diagnostic, SchemaError
from neuralqx_struct.expressions import Expression, parse
from neuralqx_struct.expressions.evaluation import evaluate, evaluate_tree
from neuralqx_struct.expressions.operators import Form, operator_of, spine
from neuralqx_struct.printing import brief_integer, cut

Shape = Sequence[Expression | EllipsisType]
Variables = Mapping[str, "SizeVariable"]
Sizes = Mapping[str, int]

#: The name of a size that may be anything, and the size.
ANY = "_"
ANY_SIZE: Final = parse(ANY)
_LONGEST = 2**63  # no axis is longer
_MAX_REASONS = 8
_LONGEST_LINE = 500
_HINTS = {
    "NQX412": "give it the declared shape, or change the shape in the schema",
    "NQX413": "make the sizes agree, or use another name in the schema where they are meant to differ",
}


@dataclass(slots=True, eq=False)
class SizedArray:
    """An array with its declared and its actual shape, for messages."""

    shape: Shape
    actual: Sequence[int]
    where: str
    dtype: str
    variables: Variables


@dataclass(slots=True, eq=False)
class SizeVariable:
    """One size; it is set once.

    Attributes:
        name: Its name.
        size: Its value, once known.
        because: The source of the value: an axis, a field or an equation.
        where: The path of that source.
        array: The array it was read from or solved with.
        given: True if a field gives it; such an int may be negative.
        derivation: The text after its name in an explanation; empty for a size read from an axis.
        premises: The variables that it was computed from, by the names in ``derivation``.
        waiting: Equations to look at again when it is set.
    """

    name: str
    size: int | None = None
    because: str = ""
    where: str = ""
    array: SizedArray | None = None
    given: bool = False
    derivation: str = ""
    premises: Variables = field(default_factory=dict)
    waiting: list[SizeEquation] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class SizeEquation:
    """``expression == target``, where the target is a dim or the size of an axis."""

    expression: Expression
    variables: Variables
    target: SizeVariable | int
    array: SizedArray | None = None
    axis: int = 0
    missing: int = 0
    settled: bool = False

    @property
    def size(self) -> int | None:
        """The size of the target, if it is known."""
        return self.target.size if isinstance(self.target, SizeVariable) else self.target

    @property
    def text(self) -> str:
        """``2 * n = 8`` for an axis, ``m = 2 * n`` for a dim."""
        if isinstance(self.target, SizeVariable):
            return f"{self.target.name} = {self.expression.text}"
        return f"{self.expression.text} = {self.target}"

    def unknowns(self) -> list[SizeVariable]:
        """The variables without a size, each once."""
        both = [*self.variables.values(), self.target]
        variables = (each for each in both if isinstance(each, SizeVariable))
        return list({id(each): each for each in variables if each.size is None}.values())


@dataclass(slots=True, eq=False)
class SizeConflict:
    """An equation that does not hold; ``wanted`` is the size that its target should have, if there is one."""

    equation: SizeEquation
    reason: str
    wanted: int | None = None


def is_name(expression: Expression) -> bool:
    """True for an expression that is one name, such as ``n``."""
    return expression.text in expression.names and expression.text != ANY


def known(variables: Variables) -> dict[str, int]:
    """The sizes that are known, by name."""
    return {name: each.size for name, each in variables.items() if each.size is not None}


def place_of(variables: Iterable[SizeVariable]) -> str:
    """The path of the first variable that has one."""
    return next((each.where for each in variables if each.where), "")


def _value(expression: Expression, names: Sizes) -> Any:
    form = linear_form(expression, frozenset(), names)
    return evaluate(expression, names) if form is None else form[1]


def exact(expression: Expression, names: Sizes) -> int | None:
    """The size of an expression; None for a fraction, an unknown name or a division by zero."""
    try:
        value = _value(expression, names)
    except SchemaError:
        return None
    return whole_size(value) if type(value) in {int, float, Fraction} else None


@lru_cache(maxsize=1024)
def fixed_size(expression: Expression) -> int | None:
    """As :func:`exact`, of an expression without names."""
    return exact(expression, {})


def whole_size(value: Any) -> int | None:
    """A number as a size; None for fractions, and for more than the longest axis, to which sizes must not grow."""
    return int(value) if abs(value) <= _LONGEST and value == value // 1 else None


def number_text(value: Any) -> str:
    """A number in messages."""
    if type(value) is int:
        return brief_integer(value)
    if isinstance(value, Fraction):
        whole, parts = value.numerator, value.denominator
        return (
            brief_integer(whole) if parts == 1 else f"{brief_integer(whole)}/{brief_integer(parts)}"
        )
    return str(value)


def shown_size(text: str, size: int) -> str:
    """An expression with its number, after the name of a dim that it explains."""
    return f"= {text}" if text == str(size) else f"= {text} = {size}"


def compute(equation: SizeEquation) -> tuple[int | None, str]:
    """The size of the expression, and the text after the name of a dim that explains it."""
    text, names = equation.expression.text, known(equation.variables)
    size = exact(equation.expression, names)
    if size is not None:
        return size, shown_size(text, size)
    try:
        value = _value(equation.expression, names)
    except SchemaError as error:
        return None, error.diagnostics[0].message.replace("\n", " ")
    return None, f"{text} = {number_text(value)} is not a size"


def check(equation: SizeEquation) -> SizeConflict | None:
    """Compares both sides of an equation without unknowns."""
    size, reason = compute(equation)
    if size is not None and size == equation.size:
        return None
    if size is not None:
        reason = reason.removeprefix("= ")
        if isinstance(equation.target, SizeVariable):
            reason = f"{equation.target.name} = {reason}"
    return SizeConflict(equation, because_of(reason, equation.variables), size)


def because_of(reason: str, premises: Variables) -> str:
    """A reason with the source of each size in it."""
    sources = [f"{name} from {each.because}" for name, each in premises.items() if each.because]
    if len(sources) > _MAX_REASONS:
        sources[_MAX_REASONS:] = ["and so on"]
    return ", ".join([reason, *(cut(each, _LONGEST_LINE) for each in sources)])


# ---------------------------------------------------------------------------------------------------------------------
# Linear equations.


def linear_form(
    expression: Expression, unknown: frozenset[str], names: Mapping[str, Any]
) -> Form | None:
    """An expression as ``slope * x + offset``, exactly.

    Args:
        expression: A dim expression.
        unknown: The names that are ``x``; empty for the exact value of a known expression.
        names: The values of its other names.

    Returns:
        Slope and offset; None where the expression is not linear, not exact (floats) or cannot be computed.

    Example:
        >>> from neuralqx_struct.expressions import parse
        >>> linear_form(parse("n / 2 + k"), frozenset({"n"}), {"k": 3})
        (Fraction(1, 2), Fraction(3, 1))
    """
    return _linear(expression.tree, unknown, names)


def _linear(node: ast.expr, unknown: frozenset[str], names: Mapping[str, Any]) -> Form | None:
    match node:
        case ast.Name(id=name) if name in unknown:
            return Fraction(1), Fraction(0)
        # Most sizes are numbers and names of numbers.
        case ast.Name(id=name) if type(value := names.get(name)) is int:
            return Fraction(0), Fraction(value)
        case ast.Constant(value=int(value)) if type(value) is int:
            return Fraction(0), Fraction(value)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            form = _linear(operand, unknown, names)
            return form and (-form[0], -form[1])
        case ast.BinOp():
            first, steps = spine(node)
            form = _linear(first, unknown, names)
            for step in steps:
                right = form and _linear(step.right, unknown, names)
                form = operator_of(step).linear(form, right) if form and right else None
            return form
    if unknown and any(isinstance(n, ast.Name) and n.id in unknown for n in ast.walk(node)):
        return None
    try:
        value = evaluate_tree(node, names)
    except SchemaError:  # reported by evaluate(), if the value is needed
        return None
    return (Fraction(0), Fraction(value)) if type(value) is int else None


# ---------------------------------------------------------------------------------------------------------------------
# Size errors.


def size_error(code: str, message: str, reasons: Iterable[str], path: str) -> Diagnostic:
    """A finding about sizes, with the first of its reasons."""
    lines = list(dict.fromkeys(cut(each, _LONGEST_LINE) for each in reasons))
    if len(lines) > _MAX_REASONS:
        lines[_MAX_REASONS:] = ["and so on"]
    text = "\n".join([cut(message, _LONGEST_LINE), *lines])
    return Diagnostic(code, "error", text, path=path, hint=_HINTS[code])


def wrong_size(variable: SizeVariable, expected: str, got: int) -> Diagnostic:
    """A finding about one variable, with the source of its size."""
    message = f"expected {expected}, got {brief_integer(got)}"
    return size_error("NQX413", message, explain({variable.name: variable}), variable.where)


def explain(variables: Variables) -> list[str]:
    """The sources of sizes, one per line, back to an array or a field.

    Example:
        >>> explain({"n": SizeVariable("n", 12, "$.kernel axis 0")})
        ['n = 12 was fixed by $.kernel axis 0']
    """
    lines: list[str] = []
    queue = deque(variables.items())
    done: set[int] = set()
    while queue and len(lines) <= _MAX_REASONS:
        name, each = queue.popleft()
        if id(each) in done or each.size is None:
            continue
        done.add(id(each))
        label = name if name == each.name else f"{name} = {each.name}"
        if each.derivation:
            lines.append(because_of(f"{label} {each.derivation}", each.premises))
            queue.extend(_derived(each.premises).items())
        else:
            lines.append(f"{label} = {brief_integer(each.size)} was fixed by {each.because}")
    return lines


def _derived(variables: Variables) -> Variables:
    return {name: each for name, each in variables.items() if each.derivation}


def reasons_of(conflict: SizeConflict) -> list[str]:
    """Returns why an equation does not hold, one reason per line."""
    return [conflict.reason, *explain(_derived(conflict.equation.variables))]


def wrong_shape(
    code: str,
    array: SizedArray,
    reasons: Iterable[str] = (),
    instead: Sizes | None = None,
) -> Diagnostic:
    """A finding about one array: its declared shape with the known sizes, and its actual shape."""
    names = known(array.variables) | dict(instead or {})
    expected = ", ".join(_axis(extent, names) for extent in array.shape)
    got = ", ".join(map(str, array.actual))
    message = f"expected {array.dtype}[{expected}], got {array.dtype}[{got}]"
    return size_error(code, message, reasons, array.where)


def _axis(extent: Expression | EllipsisType, names: Sizes) -> str:
    if isinstance(extent, EllipsisType):
        return "..."
    size = exact(extent, names) if extent.names else None
    written = extent.text.replace(
        "'", ""
    )  # marks of stacks, where the name has another meaning inside
    return written if size is None else f"{written}={size}"


def size_errors(conflicts: Iterable[SizeConflict]) -> list[Diagnostic]:
    """One finding for each array, and one for each dim that no array fixed."""
    arrays: dict[SizedArray, list[SizeConflict]] = {}
    others: list[Diagnostic] = []
    for conflict in conflicts:
        array, target = conflict.equation.array, conflict.equation.target
        if isinstance(target, SizeVariable) and conflict.wanted is not None:
            array = array or target.array
        if array is not None:
            arrays.setdefault(array, []).append(conflict)
        elif isinstance(target, SizeVariable):
            others.append(_dim_error(conflict, target))
    return [*(_array_error(*each) for each in arrays.items()), *others]


def _dim_error(conflict: SizeConflict, target: SizeVariable) -> Diagnostic:
    equation = conflict.equation
    wanted = equation.expression.text if conflict.wanted is None else conflict.wanted
    got = "no such size" if target.size is None else brief_integer(target.size)
    where = place_of([target, *equation.variables.values()])
    reasons = [*reasons_of(conflict), *explain({target.name: target})]
    return size_error("NQX413", f"expected {target.name} = {wanted}, got {got}", reasons, where)


def _array_error(array: SizedArray, conflicts: Iterable[SizeConflict]) -> Diagnostic:
    instead: dict[str, int] = {}
    reasons: list[str] = []
    for conflict in conflicts:
        target = conflict.equation.target
        reasons += reasons_of(conflict)
        if isinstance(target, SizeVariable) and conflict.wanted is not None:
            names = [name for name, each in array.variables.items() if each is target]
            instead |= dict.fromkeys(names, conflict.wanted)
            reasons += explain(_derived({target.name: target}))
    return wrong_shape("NQX413", array, reasons, instead)
