"""Repairs: the hints about texts that are no expressions, each with an expression that passes the checks of its place.

Example:
    >>> Repairs(v3).hint(("structs", "VMCState", "constraints", 0, "expr"), "alpha > 0 && x.alpha < 8")
    'write `alpha > 0 and alpha < 8`'
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from itertools import islice

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.expressions import Expression, parse, parse_equation
from neuralqx_struct.expressions.functions import FUNCTIONS
from neuralqx_struct.expressions.nearest import nearest
from neuralqx_struct.schema.field_paths import PathError
from neuralqx_struct.schema.lint import Speller
from neuralqx_struct.schema.lint.equations import EquationNames
from neuralqx_struct.schema.lint.expressions import names_of
from neuralqx_struct.schema.lint.paths import Names
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.text import KeyPath

_MOST = 30  # texts of one file that are repaired
_MOST_READINGS = 6


class Repairs:
    """Finds the expressions that texts of one document may mean.

    Args:
        document: The document without these texts.
    """

    def __init__(self, document: Document) -> None:
        self.document = document
        self._left = _MOST
        self._speller = Speller()

    def hint(self, path: KeyPath, text: str) -> str | None:
        """The hint about the text of an expression; None if nothing better than the parser's is known.

        Args:
            path: The place of the text: the `equals` of a dim, the `derived` of a field, the `expr` of a constraint.
            text: The text.
        """
        self._left -= 1
        if self._left < 0:
            return None
        with contextlib.suppress(SchemaError, PathError, KeyError):  # other parts have faults too
            found = self._equation(text) if path[0] == "dims" else self._of_fields(path, text)
            return found and f"write `{found}`"
        return None

    def names(self, path: KeyPath) -> str:
        """The names and functions that an expression at a place may have."""
        functions = f"functions: {', '.join(FUNCTIONS)}"
        with contextlib.suppress(SchemaError, PathError, KeyError):
            if path[0] == "dims":
                return f"{EquationNames(self.document, self._speller).known()}; {functions}"
            return f"{self._names(path).known_names()}; {functions}"
        return functions

    def _names(self, path: KeyPath) -> Names:
        whole = "" if path[-1] == "derived" else "all"
        return names_of(self.document, str(path[1]), self._speller, whole=whole)

    def _of_fields(self, path: KeyPath, text: str) -> str | None:
        names = self._names(path)
        return self._first(text, names, names.repaired)

    def _equation(self, text: str) -> str | None:
        values = EquationNames(self.document, self._speller)
        known = {*self.document.dims, *values.ints}

        def repaired(expression: Expression) -> str | None:
            equation = parse_equation(expression.text)
            plain = {name for name in equation.names if not values.knows(name)}
            fine = plain <= known and not any(values.problems(equation))
            return equation.text if fine else None

        return self._first(text, values.names, repaired)

    def _first(
        self, text: str, names: Names, repaired: Callable[[Expression], str | None]
    ) -> str | None:
        """The first reading of a text that can be repaired."""

        def count(path: str) -> int | None:
            if not names.is_field(path):
                return None
            counts = {len(option.fixed_parts) for _, option in names.reach(path).options}
            return counts.pop() if len(counts) == 1 else None

        readings = map(parse, islice(nearest(text, count), _MOST_READINGS))
        return next(filter(None, map(repaired, readings)), None)
