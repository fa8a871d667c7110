"""Checks of the values that equations of dims take from fields: static ints of the root, of structs and tuples in it, and of all items.

Other values would be traced under transformations of JAX, where sizes have to be numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.expressions import Expression, parse
from neuralqx_struct.expressions.functions import names_read
from neuralqx_struct.expressions.operators import cut
from neuralqx_struct.expressions.paths import is_given
from neuralqx_struct.printing import listed
from neuralqx_struct.schema.field_paths import PathError, single_types
from neuralqx_struct.schema.lint import Speller, root_ints
from neuralqx_struct.schema.lint.paths import MOST_TRIED, Names, Problem
from neuralqx_struct.schema.model import Document
from neuralqx_struct.types import INT

MOST_LISTED = 20  # values that a hint lists


class EquationNames:
    """The values that equations of dims may take from the fields of the root: static ints, and numbers of items.

    Args:
        document: The document.
        speller: Suggests corrections.
    """

    def __init__(self, document: Document, speller: Speller) -> None:
        self.document, self.speller = document, speller
        root = document.structs.get(document.root)
        self.fields = root.fields if root else {}
        self.ints = root_ints(document)
        listed = (self.fields,)
        self.names = Names(document, document.root, (), listed, "a field", speller, "sum")

    def knows(self, name: str) -> bool:
        """True if :meth:`problems` judges a name of an equation."""
        if is_given(name) or name not in self.fields or name in self.document.dims:
            return is_given(name)
        return name not in self.ints or self.names.reach(name).is_collection

    def problems(self, equation: Expression) -> Iterator[Problem]:
        """Yields the problems of the values in an equation."""
        for name in sorted(filter(self.knows, equation.names)):
            expression = parse(name)
            found = [*self.names.problems(expression)]
            yield from found
            if not found and not self.is_number(expression):
                got = self.names.reach(name).text if self.names.is_path(name) else "another value"
                message = f"expected a static int in an equation, got {cut(got)} in `{cut(name)}`"
                yield "NQX103", message, self.hint(name), "error"

    def near(self, name: str) -> str:
        """The hint about an unknown name: a value inside a field of the root that has it."""
        tried = (path for path in self.names.paths if path.endswith(f".{name}"))
        found = next(filter(self.fits, tried), None)
        return f"did you mean {found!r}?" if found else f"declare it under `dims:`; {self.known()}"

    def known(self) -> str:
        """The names of numbers that an equation may have."""
        ints = islice(filter(self.fits, self.names.paths), MOST_LISTED)
        groups = {"dims": self.document.dims, "static ints": ints}
        shown = [f"{label}: {listed(names)}" for label, names in groups.items()]
        return "; ".join(text for text in shown if not text.endswith(": "))

    def is_number(self, expression: Expression) -> bool:
        """True if an expression of fields is a whole number, and the same under transformations of JAX."""
        measured, others = names_read(expression.tree)
        if any(not self.names.reach(name).static for name in others - measured):
            return False
        if self.names.is_path(expression.text):
            return self.names.reach(expression.text).is_int
        if any(map(self.has_other_numbers, others - measured)):
            return False
        return self.names.is_single(expression)

    def has_other_numbers(self, path: str) -> bool:
        """True if a path does not reach ints alone."""
        options = [*single_types(self.names.reach(path).options)]
        return not options or any(option != INT for _, option in options)

    def hint(self, name: str) -> str | None:
        """The nearest value that an equation may have instead."""
        if self.speller.is_done or not self.names.is_path(name):
            return None
        near = self.speller.closest(name, (p for p in self.names.paths if self.fits(p)))
        found = self.names.reach(name)
        tried = [near or ""]
        if found.is_collection:
            tried = [f"{name}[0]", f"sum({name})", f"len({name})", *tried]
        if any(option.extents for _, option in found.options):
            tried = [f"shape({name})[0]", *tried]
        inside = [path for path in self.names.paths if path.startswith(f"{name}.")]
        meant = (text for text in (*inside[:MOST_TRIED], *tried) if text and self.fits(text))
        proposal = next((f"write `{cut(text)}`" for text in meant), None)
        if found.text == INT.format():
            return "give the field `kind: static`" + (f", or {proposal}" if proposal else "")
        return proposal or self.known()

    def fits(self, text: str) -> bool:
        """True if an expression may be in an equation."""
        try:
            expression = parse(text)
            return not any(self.names.problems(expression)) and self.is_number(expression)
        except (PathError, SchemaError):
            return False
