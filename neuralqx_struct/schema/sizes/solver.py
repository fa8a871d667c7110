"""Dims: the symbolic sizes of one instance tree, found by unification over all its arrays.

Owns :class:`Solver`, which takes the declared and the actual shape of each array and reports the sizes that disagree.
Names that the document declares are one size for the whole tree, all others belong to one struct instance.

The result does not depend on the order of the arrays; only which of two is called the wrong one does.

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
from types import EllipsisType, MappingProxyType
from typing import TYPE_CHECKING

from neuralqx_struct.errors import Diagnostic
from neuralqx_struct.expressions import Expression
from neuralqx_struct.paths import Path
from neuralqx_struct.printing import brief_integer
from neuralqx_struct.schema.sizes import (
    ANY,
    Shape,
    SizeConflict,
    SizedArray,
    SizeEquation,
    SizeVariable,
    Variables,
    because_of,
    check,
    compute,
    exact,
    explain,
    fixed_size,
    is_name,
    known,
    linear_form,
    number_text,
    place_of,
    reasons_of,
    shown_size,
    size_error,
    size_errors,
    whole_size,
    wrong_shape,
    wrong_size,
)

if TYPE_CHECKING:
    from neuralqx_struct.schema.model import DimDeclaration

# The author of a schema is not trusted, and one long size can be that of many small arrays.
_WORK = 2_000_000  # characters
_WORK_OF_ARRAY = 100

_Dims = Mapping[str, "DimDeclaration"]
_Own = dict[str, SizeVariable]


class _Declared:
    """The declared dims of one document, for one instance of a struct of it and everything inside."""

    def __init__(self, dims: _Dims, root: _Own) -> None:
        self.dims = dims
        self.shared = {name: SizeVariable(name) for name in dims}
        self.root = root
        self.checked: set[str] = set()  # declared dims whose bounds were checked
        equations = {name: dim.equation for name, dim in dims.items()}
        self.waiting = {n: e for n, e in equations.items() if e and ANY not in e.names}

    def variable(self, own: _Own, name: str) -> SizeVariable:
        return own.get(name) or self.shared.get(name) or own.setdefault(name, SizeVariable(name))

    def variables(self, own: _Own, expression: Expression) -> Variables:
        return {name: self.variable(own, name) for name in sorted(expression.names)}

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
        self.work = _WORK
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
        for equation in variable.waiting:
            equation.missing -= 1
            self.look_at(equation)
        variable.waiting = []

    def spend(self, work: int, where: str) -> bool:
        """True while the work is within the budget; the first time that it is not is an error."""
        before, self.work = self.work, self.work - work
        if before >= 0 > self.work:
            message = "expected sizes that are checked within the budget, got more equations"
            hint = "shorten the sizes of arrays that occur often"
            self.errors.append(Diagnostic("NQX507", "error", message, path=where, hint=hint))
        return self.work >= 0

    def declare(self, dims: _Dims, root: _Own) -> _Declared:
        """The dims of a document, for one instance of a struct of it."""
        declared = _Declared(dims if self.spend(len(dims), "") else {}, root)
        self.declared.append(declared)
        return declared

    def start(self) -> None:
        """Adds the equations of dims."""
        for declared in self.declared:
            waiting, declared.waiting = declared.waiting, {}
            for name, expression in waiting.items():
                variables = declared.variables(declared.root, expression)
                self.add(SizeEquation(expression, variables, declared.shared[name]))

    def add(self, equation: SizeEquation) -> None:
        unknowns = equation.unknowns()
        equation.missing = len(unknowns)
        for variable in unknowns:
            variable.waiting.append(equation)
        self.look_at(equation)

    def look_at(self, equation: SizeEquation) -> None:
        if equation.missing < 2:
            self.queue.append(equation)

    def settle(self) -> list[SizeConflict]:
        """Draws every conclusion; each equation is looked at when one unknown or none is left."""
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
            reason = because_of(f"{equation.expression.text} = {number_text(offset)}", others)
            return SizeConflict(equation, reason) if offset != equation.size else None
        size = whole_size((equation.size - offset) / slope)
        if isinstance(equation.target, SizeVariable):
            others[equation.target.name] = equation.target
        if size is None:
            reason = f"{equation.text} has no whole solution for {', '.join(sorted(names))}"
            return SizeConflict(equation, because_of(reason, others))
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
        >>> solver.sizes()["m"], solver.size(parse("n + 1"))
        (24, 13)
    """

    axes: tuple[Expression, ...] = ()  # in front of those that arrays of the struct declare
    chosen: Mapping[str, tuple[str, Path]] = MappingProxyType({})  # dtype, array of each choice

    def __init__(self, dims: _Dims) -> None:
        self._equations = _Equations()
        self._own: _Own = {}
        self._declared = self._equations.declare(dims, self._own)

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
                size = None if expression.names else fixed_size(expression)
                if size is None:
                    self._relate(expression, own[name])
                elif self._equations.spend(len(expression.text), ""):
                    self._equations.set(own[name], size, expression.text, "")
                    own[name].derivation = shown_size(expression.text, size)
        if self._equations.queue:
            self._equations.errors += size_errors(self._equations.settle())
        inside = object.__new__(Solver)
        inside._equations, inside._own, inside._declared = self._equations, own, self._declared
        if dims is not None:
            inside._declared = self._equations.declare(dims, own)
        return inside

    def know(self, name: str, size: int, because: str) -> None:
        """Gives a dim or an int a size from a field; a conflict is reported by :meth:`solve`."""
        variable = self._declared.variable(self._own, name)
        if variable.size is None:
            self._equations.set(variable, size, because, because)
        elif variable.size != size:
            message = f"expected {name} = {brief_integer(variable.size)}, got {brief_integer(size)}"
            reasons = explain({name: variable})
            self._equations.errors.append(size_error("NQX413", message, reasons, because))
            return
        variable.given = True

    def confirms(self, shape: Shape, actual: Sequence[int]) -> bool:
        """True for an array that only has sizes which are known, so that there is nothing to learn from it."""
        equations = self._equations
        if len(shape) != len(actual) or equations.queue:
            return False
        for extent, size in zip(shape, actual, strict=True):
            if isinstance(extent, EllipsisType):
                return False
            if not extent.names:
                if fixed_size(extent) != size:
                    return False
                continue
            known_here = is_name(extent) and self._declared.variable(self._own, extent.text).size
            if known_here is False or known_here != size:
                return False
        equations.work += _WORK_OF_ARRAY if equations.work >= 0 else 0
        return True

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
        equations.work += _WORK_OF_ARRAY if equations.work >= 0 else 0
        if axes is None:
            return [wrong_shape("NQX412", array)]
        code = ""
        wrong: _Own = {}
        for axis, extent in axes:
            size = actual[axis]
            if not extent.names:
                if fixed_size(extent) != size:
                    code = "NQX412"
            elif not is_name(extent):
                self._relate(extent, size, array, axis)
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
        equations.start()
        conflicts = equations.settle()
        errors, equations.errors = equations.errors, []
        return [*errors, *size_errors(conflicts), *equations.out_of_bounds()]

    def sizes(self) -> dict[str, int]:
        """Every size that is known here, by name."""
        return known({**self._declared.shared, **self._own})

    def size(self, extent: Expression) -> int | None:
        """The number that an expression is here; None if a size is unknown."""
        return exact(extent, self.sizes())

    def _relate(
        self,
        expression: Expression,
        target: SizeVariable | int,
        array: SizedArray | None = None,
        axis: int = 0,
    ) -> None:
        where = "" if array is None else array.where
        if ANY in expression.names or not self._equations.spend(len(expression.text), where):
            return
        variables = self._declared.variables(self._own, expression)
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
