"""Dims: the symbolic sizes of one instance tree, found by unification over all its arrays.

Owns :class:`Solver`, which takes the declared and the actual shape of each array and
reports the sizes that disagree. Names that the document declares are one size for the whole tree, all others belong to
one struct instance (:meth:`Solver.scope`). Does not walk trees and does not look at dtypes.

The result does not depend on the order of the arrays: a size follows from another in the same way whichever came
first. Only which of two arrays is called the wrong one does.

Example:
    >>> from neuralqx_struct.expressions import parse
    >>> from neuralqx_struct.schema.model import DimDeclaration
    >>> solver = Solver({"n": DimDeclaration()})
    >>> solver.unify([parse("n"), parse("2 * n")], [12, 24], "$.kernel", "float32")
    []
    >>> print(solver.unify([parse("n")], [10], "$.bias", "float32")[0].message)
    expected float32[n=12], got float32[10]
    n = 12 was fixed by $.kernel axis 0
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import EllipsisType, MappingProxyType
from typing import TYPE_CHECKING

from neuralqx_struct.errors import Diagnostic
from neuralqx_struct.expressions import Expression
from neuralqx_struct.printing import brief_integer
from neuralqx_struct.schema.sizes import (
    ANY,
    Shape,
    SizeConflict,
    SizedArray,
    SizeEquation,
    SizeVariable,
    because_of,
    check,
    compute,
    exact,
    explain,
    is_name,
    known,
    linear_form,
    place_of,
    reasons_of,
    size_error,
    size_errors,
    wrong_shape,
    wrong_size,
)

if TYPE_CHECKING:
    from neuralqx_struct.schema.model import DimDeclaration

_Dims = Mapping[str, "DimDeclaration"]
_Own = dict[str, SizeVariable]


@dataclass(frozen=True, slots=True)
class Binding:
    """A size that is known.

    Attributes:
        size: The size.
        because: Its source: ``$.kernel axis 0``, ``$.alpha`` or ``alpha * n_sites``.
    """

    size: int
    because: str


class _Declared:
    """The declared dims of one document, for one instance of a struct of it and everything inside."""

    def __init__(self, dims: _Dims, root: _Own) -> None:
        self.dims = dims
        self.shared = {name: SizeVariable(name) for name in dims}
        self.root = root
        self.checked: set[str] = set()  # declared dims whose bounds were checked
        self.started = False  # whether the `equals` are equations yet

    def variable(self, own: _Own, name: str) -> SizeVariable:
        return own.get(name) or self.shared.get(name) or own.setdefault(name, SizeVariable(name))

    def out_of_bounds(self) -> Iterator[Diagnostic]:
        """Yields the dims outside their bounds, each once."""
        for name, dim in self.dims.items():
            variable = self.shared[name]
            if variable.size is None or name in self.checked:
                continue
            self.checked.add(name)
            low, high = dim.min or 0, dim.max
            if variable.size < low:
                yield wrong_size(variable, f"{name} >= {low}", variable.size)
            elif high is not None and variable.size > high:
                yield wrong_size(variable, f"{name} <= {high}", variable.size)


class _Equations:
    """The equations of one instance tree, shared by all its scopes."""

    def __init__(self) -> None:
        self.declared: list[_Declared] = []
        self.queue: deque[SizeEquation] = deque()
        self.errors: list[Diagnostic] = []  # found outside unify(), for the next solve()
        self.negative: list[SizeVariable] = []

    def set(
        self,
        variable: SizeVariable,
        size: int,
        because: str,
        where: str,
        array: SizedArray | None = None,
    ) -> None:
        variable.size, variable.array = size, array
        variable.because, variable.where = because, where
        if size < 0:
            self.negative.append(variable)
        self.queue.extend(variable.waiting)
        variable.waiting = []

    def add(self, equation: SizeEquation) -> None:
        for variable in equation.unknowns():
            variable.waiting.append(equation)
        self.queue.append(equation)

    def settle(self) -> list[SizeConflict]:
        """Draws every conclusion; each equation is looked at once per size that becomes known."""
        found: list[SizeConflict | None] = []
        while self.queue:
            equation = self.queue.popleft()
            unknowns = [] if equation.settled else equation.unknowns()
            if len(unknowns) == 1:
                found.append(self._solve(equation, unknowns[0]))
            elif not unknowns and not equation.settled:
                equation.settled = True
                found.append(check(equation))
        return [conflict for conflict in found if conflict is not None]

    def _solve(self, equation: SizeEquation, unknown: SizeVariable) -> SizeConflict | None:
        """Sets the one unknown of an equation; an equation that cannot be solved now goes on waiting."""
        names = frozenset(n for n, each in equation.variables.items() if each is unknown)
        others = {n: each for n, each in equation.variables.items() if each is not unknown}
        if unknown is equation.target:
            if not names:  # else as in n = 2 * n - 4, which is checked once n is known
                return self._evaluate(equation, unknown)
            return None
        form = linear_form(equation.expression, names, known(equation.variables))
        if form is None or equation.size is None:
            return None
        equation.settled = True
        slope, offset = form
        if slope == 0:
            reason = because_of(f"{equation.expression.text} = {offset}", others)
            return SizeConflict(equation, reason) if offset != equation.size else None
        solution = (equation.size - offset) / slope
        if isinstance(equation.target, SizeVariable):
            others[equation.target.name] = equation.target
        if solution.denominator != 1:
            reason = f"{equation.text} has no whole solution for {', '.join(sorted(names))}"
            return SizeConflict(equation, because_of(reason, others))
        size = int(solution)
        derivation = f"= {size} solves {equation.text}"
        if equation.array is None:
            self.set(unknown, size, equation.text, place_of(others.values()))
        else:
            where = equation.array.where
            because = f"{where} axis {equation.axis}"
            derivation = f"{derivation} at {because}"
            self.set(unknown, size, because, where, equation.array)
        unknown.derivation, unknown.premises = derivation, others
        return None

    def _evaluate(self, equation: SizeEquation, target: SizeVariable) -> SizeConflict | None:
        """Sets the target of an equation whose expression is known."""
        equation.settled = True
        size, shown = compute(equation)
        if size is None:
            return SizeConflict(equation, because_of(shown, equation.variables))
        where = place_of(equation.variables.values())
        self.set(target, size, equation.expression.text, where)
        target.derivation, target.premises = shown, equation.variables
        return None

    def out_of_bounds(self) -> Iterator[Diagnostic]:
        """Yields the sizes outside their bounds, each once."""
        for declared in self.declared:
            yield from declared.out_of_bounds()
        shared = {id(each) for declared in self.declared for each in declared.shared.values()}
        for variable in self.negative:
            if variable.size is not None and not variable.given and id(variable) not in shared:
                yield wrong_size(variable, f"{variable.name} >= 0", variable.size)
        self.negative = []


class Solver:
    """The sizes known so far for one instance tree, seen from one struct of it.

    Args:
        dims: The declared dims of the document.

    Example:
        >>> from neuralqx_struct.expressions import parse
        >>> from neuralqx_struct.schema.model import DimDeclaration
        >>> solver = Solver({"n": DimDeclaration(), "m": DimDeclaration(equals="alpha * n")})
        >>> solver.know("alpha", 2, "$.alpha")
        >>> solver.unify([parse("n")], [12], "$.bias", "float32") + solver.solve()
        []
        >>> solver.sizes()["m"]
        Binding(size=24, because='alpha * n')
    """

    def __init__(self, dims: _Dims) -> None:
        self._equations = _Equations()
        self._own: _Own = {}
        self._declare(dims)

    def _declare(self, dims: _Dims) -> None:
        self._declared = _Declared(dims, self._own)
        self._equations.declared.append(self._declared)

    def _inside(self, declared: _Declared, own: _Own) -> Solver:
        inside = object.__new__(Solver)
        inside._equations, inside._declared, inside._own = self._equations, declared, own
        return inside

    def scope(
        self,
        parameters: Mapping[str, Expression] = MappingProxyType({}),
        dims: _Dims | None = None,
    ) -> Solver:
        """A solver for another struct instance of the same tree.

        Args:
            parameters: The sizes of the struct's own parameters, in names of this scope, as in ``Dense[d, 4 * d]``.
            dims: For a struct of another document, the dims that it declares: they are one size inside this instance.

        Returns:
            A solver that shares the declared dims with this one; every other name is its own.

        Example:
            >>> from neuralqx_struct.expressions import parse
            >>> layer = Solver({}).scope({"width": parse("4 * 2")})
            >>> print(layer.unify([parse("width")], [9], "$.w", "int8")[0].message.splitlines()[0])
            expected int8[width=8], got int8[9]
        """
        own: _Own = {}
        for name, expression in parameters.items():
            if expression.text == ANY:
                own[name] = SizeVariable(name)
            elif is_name(expression):
                own[name] = self._declared.variable(self._own, expression.text)
            else:
                own[name] = SizeVariable(name)
                self._add(expression, own[name])
        self._equations.errors += size_errors(self._equations.settle())
        inside = self._inside(self._declared, own)
        if dims is not None:
            inside._declare(dims)  # noqa: SLF001 - the same class
        return inside

    def know(self, name: str, size: int, because: str) -> None:
        """States a size that is not read from an array, such as a static int.

        A size that does not agree with a known one is reported by :meth:`solve`.

        Args:
            name: The dim or static int.
            size: Its value.
            because: The path of the field that holds it.
        """
        variable = self._declared.variable(self._own, name)
        if variable.size is None:
            self._equations.set(variable, size, because, because)
        elif variable.size != size:
            message = f"expected {name} = {brief_integer(variable.size)}, got {brief_integer(size)}"
            reasons = explain({name: variable})
            self._equations.errors.append(size_error("NQX413", message, reasons, because))
            return
        variable.given = True

    def unify(
        self, shape: Shape, actual: Sequence[int], where: str, dtype: str
    ) -> list[Diagnostic]:
        """Compares the shape of one array with its declaration, and learns sizes from it.

        Args:
            shape: The declared axes; ``...`` matches any number of axes, the name ``_`` any size.
            actual: The shape that the array has.
            where: Path of the array.
            dtype: Its dtype, for messages.

        Returns:
            NQX412 where the number of axes or a fixed size is wrong, NQX413 where sizes disagree; also about earlier
            arrays whose sizes depend on this one.

        Example:
            >>> from neuralqx_struct.expressions import parse
            >>> print(Solver({}).unify([parse("n"), parse("3")], [5, 4], "$.w", "float32")[0].message)
            expected float32[n=5, 3], got float32[5, 4]
        """
        equations = self._equations
        sized = [extent for extent in shape if not isinstance(extent, EllipsisType)]
        names = dict.fromkeys(name for extent in sized for name in extent.names if name != ANY)
        variables = {name: self._declared.variable(self._own, name) for name in names}
        array = SizedArray(tuple(shape), tuple(actual), where, dtype, variables)
        axes = _align(array)
        if axes is None:
            return [wrong_shape("NQX412", array)]
        code = ""
        wrong: _Own = {}
        for axis, extent in axes:
            size = actual[axis]
            if not extent.names:
                if exact(extent, {}) != size:
                    code = "NQX412"
            elif not is_name(extent):
                self._add(extent, size, array, axis)
            elif (variable := variables[extent.text]).size is None:
                equations.set(variable, size, f"{where} axis {axis}", where, array)
            elif variable.size != size:
                code = code or "NQX413"
                wrong[extent.text] = variable
        conflicts = equations.settle()
        if not code:
            return size_errors(conflicts)
        reasons = explain(wrong)
        others = []
        for conflict in conflicts:
            if conflict.equation.array is array:
                reasons += reasons_of(conflict)
            else:
                others.append(conflict)
        return [wrong_shape(code, array, reasons), *size_errors(others)]

    def solve(self) -> list[Diagnostic]:
        """Decides everything that needs all arrays: ``equals`` and the bounds of dims.

        Returns:
            NQX413 for every size that disagrees, each once; sizes that nothing decides are left open.
        """
        equations = self._equations
        for declared in equations.declared:
            if not declared.started:
                declared.started = True
                root = self._inside(declared, declared.root)
                for name, dim in declared.dims.items():
                    if dim.equation is not None:
                        root._add(dim.equation, declared.shared[name])  # noqa: SLF001 - the same class
        errors, equations.errors = equations.errors, []
        return [*errors, *size_errors(equations.settle()), *equations.out_of_bounds()]

    def sizes(self) -> dict[str, Binding]:
        """Every size that is known here, by name.

        Example:
            >>> solver = Solver({})
            >>> solver.know("alpha", 2, "$.alpha")
            >>> solver.sizes()
            {'alpha': Binding(size=2, because='$.alpha')}
        """
        visible = {**self._declared.shared, **self._own}
        return {
            name: Binding(each.size, each.because)
            for name, each in visible.items()
            if each.size is not None
        }

    def size(self, extent: Expression) -> int | None:
        """The number that an expression is here; None if a size is unknown.

        Example:
            >>> from neuralqx_struct.expressions import parse
            >>> solver = Solver({})
            >>> solver.know("alpha", 2, "$.alpha")
            >>> solver.size(parse("alpha + 1")), solver.size(parse("_"))
            (3, None)
        """
        return exact(extent, {name: known.size for name, known in self.sizes().items()})

    def _add(
        self,
        expression: Expression,
        target: SizeVariable | int,
        array: SizedArray | None = None,
        axis: int = 0,
    ) -> None:
        if ANY not in expression.names:
            names = sorted(expression.names)
            variables = {name: self._declared.variable(self._own, name) for name in names}
            self._equations.add(SizeEquation(expression, variables, target, array, axis))


def _align(array: SizedArray) -> list[tuple[int, Expression]] | None:
    """The axes that have a declared size; None if the number of axes is wrong."""
    rank = len(array.actual)
    fixed = [extent for extent in array.shape if not isinstance(extent, EllipsisType)]
    if len(fixed) == len(array.shape):
        return list(enumerate(fixed)) if len(fixed) == rank else None
    if len(fixed) > rank:
        return None
    head = array.shape.index(...)
    tail = array.shape[::-1].index(...)
    behind = fixed[len(fixed) - tail :]
    return [*enumerate(fixed[:head]), *enumerate(behind, start=rank - len(behind))]
