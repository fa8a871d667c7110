"""Checks of the values in a document: defaults, choices, examples and bounds that do not fit the types of their fields.

Equations of dims take their values from static ints of the root, of structs and tuples in it, and of all items
(:class:`EquationNames`). Other values would be traced under transformations of JAX, where sizes have to be numbers.

Example:
    >>> from neuralqx_struct.schema.text.loader import read_text
    >>> from neuralqx_struct.schema.reading import parse_document
    >>> text = '{"language": "1", "schema": "a", "version": 1, "root": "A", "structs": {"A": {"fields": %s}}}'
    >>> document = parse_document(read_text(text % '{"n": {"type": "int", "default": 0.5}}'))
    >>> [finding.message for check in VALUE_CHECKS for finding in check(document)]
    ['expected a default of type int, got 0.5']
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from itertools import islice
from typing import Any

from neuralqx_struct.errors import Diagnostic, SchemaError
from neuralqx_struct.expressions import Expression, parse
from neuralqx_struct.expressions.functions import names_read
from neuralqx_struct.expressions.grammar import is_given
from neuralqx_struct.printing import brief_json, cut, listed
from neuralqx_struct.schema.bounds import plain_misses
from neuralqx_struct.schema.field_paths import PathError, given_values, single_types
from neuralqx_struct.schema.lint import (
    Findings,
    Problem,
    Speller,
    arguments_of,
    extents_of,
    fields_of,
    fields_without_value,
    finding,
    root_ints,
    shown_by,
    solve_dims,
)
from neuralqx_struct.schema.lint.names import Names
from neuralqx_struct.schema.lint.samples import UndecidedError
from neuralqx_struct.schema.model import Document, FieldDeclaration
from neuralqx_struct.schema.patterns import objection_to
from neuralqx_struct.types import INT, Array, Type, walk_type
from neuralqx_struct.types.builders import require_room
from neuralqx_struct.types.text import (
    Builder,
    constant_size,
    format_type,
    number_of,
    numbers_in,
    read_value,
)

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
        self.names = Names(document, document.root, (), listed, "a field", speller)

    def knows(self, name: str) -> bool:
        """True if :meth:`problems` judges a name of an equation."""
        if is_given(name) or name not in self.fields or name in self.document.dims:
            return is_given(name)
        return name not in self.ints or self.names.reach(name).is_collection

    def problems(self, equation: Expression) -> Iterator[Problem]:
        """Yields the problems of the values in an equation."""
        for name in sorted(filter(self.knows, equation.names)):
            expression = parse(name)
            found = [*self.names.problems(expression, single=False)]
            yield from found
            if found or self.is_number(expression):
                continue
            if self.is_path(name) and self.names.reach(name).many:
                message = f"expected one value, got one for each item in `{cut(name)}`"
                yield Problem("NQX115", message, f"write sum({name})")
            else:
                got = self.names.reach(name).text if self.is_path(name) else "another value"
                message = f"expected a static int in an equation, got {cut(got)} in `{cut(name)}`"
                hint = "give the field `kind: static`" if got == INT.format() else self.known()
                yield Problem("NQX103", message, hint)

    def known(self) -> str:
        """The names of numbers that an equation may have."""
        ints = islice(filter(self.is_int, self.names.paths), MOST_LISTED)
        groups = {"dims": self.document.dims, "static ints": ints}
        shown = [f"{label}: {listed(names)}" for label, names in groups.items()]
        return "; ".join(text for text in shown if not text.endswith(": "))

    def elsewhere(self, name: str) -> str | None:
        """The hint with a static int of the same name in another place."""
        path = self.names.elsewhere(name)
        return f"did you mean {path!r}?" if path is not None and self.is_int(path) else None

    def is_int(self, path: str) -> bool:
        """True if a path reaches one static int."""
        try:
            return self.names.reach(path).is_int
        except PathError:
            return False

    @staticmethod
    def is_path(text: str) -> bool:
        """True for the text of a path."""
        return "(" not in text

    def is_number(self, expression: Expression) -> bool:
        """True if an expression of fields is a whole number, and the same under transformations of JAX."""
        measured, others = names_read(expression.tree)
        if any(not self.names.reach(name).static for name in others - measured):
            return False
        if self.is_path(expression.text):
            return self.is_int(expression.text)
        try:
            return type(self.names.samples.value(expression.tree)) is int
        except (SchemaError, UndecidedError):
            return not any(map(self.has_other_numbers, others - measured))

    def has_other_numbers(self, path: str) -> bool:
        """True if a path does not reach ints alone."""
        options = [*single_types(self.names.reach(path).options)]
        return not options or any(option != INT for _, option in options)


_MANY = 1000


def _refusal(
    document: Document, declared: Type, value: Any, *, structs: bool = False
) -> Diagnostic | None:
    """Why a value of a file is none of the type; the shapes of arrays are checked apart."""
    try:
        read_value(value, declared, Builder(document, structs))
    except SchemaError as error:
        return error.diagnostics[0]
    return None


def _shape_of(value: Any) -> tuple[int, ...] | None:
    """The shape of nested lists; None where they are ragged."""
    if not isinstance(value, list):
        return ()
    inner = {_shape_of(item) for item in value}
    below = next(iter(inner), ())
    return None if len(inner) > 1 or below is None else (len(value), *below)


def _check_defaults(document: Document) -> Findings:
    for path, _, _, declaration in fields_of(document):
        declared, where = declaration.declared, (*path, "default")
        typed = declaration.type is not None and declaration.derived is None
        if declaration.has_default and typed:
            arrays = [option for option in declared.branches if isinstance(option, Array)]
            value = declaration.default
            refusal = _refusal(document, declared, value)
            if refusal is not None:
                hint = refusal.hint
                if value is None:
                    hint = f'write type: "{declaration.text} | null"'
                if value is not None and arrays:
                    hint = (
                        refusal.hint
                        or "write zeros, ones, {eye: n}, a number that fills it, {fill: 0.5}, or its numbers as [1, 2, 3]"
                    )
                texts = [option.texts(document) for option in declared.branches]
                members = [text for each in texts for text in each or ()]
                if isinstance(value, str) and members:
                    hint = declared.meant(value, document) or refusal.hint
                    hint = hint or f"one of {listed(members)}"
                message = f"expected a default of type {declaration.text}, got {brief_json(value)}"
                yield finding("NQX107", where, message, hint)
            elif (
                value is not None
                and _can_be_asked(declaration)
                and (misses := plain_misses(declaration, value))
            ):
                hint = "nobody can leave the field out: change the default or the bound"
                yield finding("NQX107", where, "; ".join(misses), hint, "warning")
            elif sum(1 for _ in numbers_in(value)) > _MANY:
                message = f"expected a default of at most {_MANY} numbers, got more"
                yield finding("NQX109", where, message, "set it in Python", "warning")
            if value is not None and arrays and not isinstance(number_of(value), str):
                known = _fixed_sizes(document, *path[1::2])
                yield from _default_shape(where, arrays[0], value, known)
        for index, choice in enumerate(declaration.choices or ()):
            refusal = _refusal(document, declared, choice)
            if refusal is not None:
                message = f"expected a choice of type {declaration.text}, got {brief_json(choice)}"
                yield finding("NQX107", (*path, "choices", index), message, refusal.hint)


def _check_examples(document: Document) -> Findings:
    for path, _, _, declaration in fields_of(document):
        for index, message, hint in wrong_examples(document, declaration):
            yield finding("NQX107", (*path, "examples", index), message, hint, "warning")


def wrong_examples(
    document: Document, declaration: FieldDeclaration
) -> Iterator[tuple[int, str, str]]:
    """Yields the position of each example that its field refuses, the reason and a hint."""
    for index, value in enumerate(declaration.examples):
        refusal = _refusal(document, declaration.declared, value, structs=True)
        if refusal is not None or not _has_shape(declaration.declared, value):
            message = f"expected an example of type {declaration.text}, got {brief_json(value)}"
            hint = "write a value of the type, or remove the example"
            yield index, message, (refusal and refusal.hint) or hint
        elif value is not None and _can_be_asked(declaration):
            misses = plain_misses(declaration, value)
            if misses:
                yield index, "; ".join(misses), "change the example or the bound"


def _has_shape(declared: Type, value: Any) -> bool:
    """True unless all options are arrays, and the lists of a value have none of their shapes."""
    arrays = [option for option in declared.solid if isinstance(option, Array)]
    if not isinstance(value, list) or len(arrays) < len(declared.solid):
        return True
    shape = _shape_of(value)
    return shape is not None and any(_is_of(shape, array) for array in arrays)


def _is_of(shape: tuple[int, ...], array: Array) -> bool:
    if ... in array.shape:
        return True
    sizes = [constant_size(size) for size in array.shape if isinstance(size, Expression)]
    same = [size in (None, got) for size, got in zip(sizes, shape, strict=False)]
    return len(sizes) == len(shape) and all(same)


def _can_be_asked(declaration: FieldDeclaration) -> bool:
    """False where a bound is itself a finding, or a pattern would take long."""
    pattern, multiple = declaration.pattern, declaration.multiple_of
    return (multiple is None or multiple > 0) and (pattern is None or not objection_to(pattern))


def _fixed_sizes(document: Document, struct: str, field: str) -> set[str]:
    """The names of the sizes that the other fields of an instance may fix."""
    others = document.structs[struct].fields
    found = set[str]()
    if struct == document.root:
        given = given_values(document).items()
        found = root_ints(document) | {name for name, each in given if field not in each.heads}
    for name, other in others.items():
        sized = other.has_default and any(option.element for option in other.declared.branches)
        if name != field and other.stored and not (sized and other.default is not None):
            sizes = (*extents_of(other), *arguments_of(other, document.is_struct))
            found = found.union(*(size.names for size in sizes))
            for inner in walk_type(other.declared):
                if inner.refers in document.structs:
                    found |= shown_by(document, inner.refers) & document.dims.keys()
    solve_dims(document, found)
    return found


def _default_shape(
    where: tuple[str | int, ...], array: Array, value: Any, known: Container[str]
) -> Findings:
    sizes = [extent for extent in array.shape if isinstance(extent, Expression)]
    open_sizes = [size.text for size in sizes if any(name not in known for name in size.names)]
    if isinstance(value, list):
        open_sizes = [size.text for size in sizes if size.names]
    if open_sizes:
        message = f"expected a default whose sizes are numbers, or those of other fields, got one for {format_type(array)}"
        hint = f"{open_sizes[0]} is known only from an instance; remove the default, or allow null"
        yield finding("NQX108", where, message, hint)
    elif (problem := _too_large(array)) is not None:
        yield finding("NQX109", where, problem.message, problem.hint)
    elif isinstance(value, list) and ... not in array.shape:
        shape = _shape_of(value)
        if shape is None or [str(size) for size in shape] != [
            e.text for e in array.shape if isinstance(e, Expression)
        ]:
            got = "lists of different lengths" if shape is None else f"shape {list(shape)}"
            yield finding(
                "NQX108", where, f"expected a default for {format_type(array)}, got {got}"
            )


def _too_large(array: Array) -> Diagnostic | None:
    """A finding about an array whose sizes without names alone make it too large."""
    sizes = [constant_size(size) for size in array.shape if isinstance(size, Expression)]
    try:
        require_room(array, [size for size in sizes if size is not None])
    except SchemaError as error:
        return error.diagnostics[0]
    return None


#: The group of each constraint, and the types that have it, in words.
_BOUNDS: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(("ge", "gt", "le", "lt", "multiple_of", "finite"), ("number", "a number")),
    "pattern": ("text", "text"),
    **dict.fromkeys(
        ("min_length", "max_length"), ("length", "text, bytes, a list, a tuple or a dict")
    ),
}
#: A bound of a number as a condition on all numbers of an array.
_CONDITIONS: Mapping[str, str] = {
    "ge": "all({name} >= {value})",
    "gt": "all({name} > {value})",
    "le": "all({name} <= {value})",
    "lt": "all({name} < {value})",
    "multiple_of": "all({name} % {value} == 0)",
    "finite": "all(isfinite({name}))",
}


#: The kinds of operands that hold several values.
_SEVERAL = frozenset({"array", "key", "list", "tuple", "dict", "struct"})


def _holds_single(document: Document, declaration: FieldDeclaration) -> bool:
    """True if a value of a field may be a single one, of which choices are checked."""
    if declaration.type is None:
        return True
    options = declaration.declared.solid
    kinds = (option.operands(document) for option in options if "number" not in option.bounds)
    return len(options) > len([kind for kind in kinds if kind and kind <= _SEVERAL])


def _check_bounds(document: Document) -> Findings:
    for path, _, _, declaration in fields_of(document):
        branches = declaration.declared.branches
        given = {member: getattr(declaration, member) for member in _BOUNDS}
        for member in (m for m, value in given.items() if value is not None and value is not False):
            group, wanted = _BOUNDS[member]
            if any(group in branch.bounds for branch in branches):
                continue
            message = f"expected {member} on {wanted}, got it on {declaration.text}"
            if group == "number" and any(isinstance(b, Array) for b in branches):
                why = "\na bound does not check the numbers of an array"
                condition = _CONDITIONS[member].format(name=path[-1], value=given[member])
                hint = f"put a condition under `constraints:` of the struct, such as `{{expr: {condition}}}`"
                yield finding("NQX131", (*path, member), message + why, hint, "warning")
            else:
                yield finding("NQX115", (*path, member), message, "remove it")
        if declaration.choices is not None and not _holds_single(document, declaration):
            message = f"expected choices on a single value, got them on {declaration.text}"
            why = "\nchoices check no items and no numbers of an array"
            hint = "put a condition under `constraints:` of the struct"
            yield finding("NQX131", (*path, "choices"), message + why, hint, "warning")
        if declaration.multiple_of is not None and declaration.multiple_of <= 0:
            message = f"expected a positive number, got {declaration.multiple_of}"
            yield finding("NQX115", (*path, "multiple_of"), message)
        lows = [bound for bound in (declaration.ge, declaration.gt) if bound is not None]
        highs = [bound for bound in (declaration.le, declaration.lt) if bound is not None]
        if lows and highs and max(lows) > min(highs):
            message = f"expected bounds that some number keeps, got {max(lows)} to {min(highs)}"
            yield finding("NQX115", path, message, "exchange the bounds")
        shortest, longest = declaration.min_length, declaration.max_length
        if shortest is not None and longest is not None and shortest > longest:
            message = f"expected lengths that some value has, got {shortest} to {longest}"
            yield finding(
                "NQX115", (*path, "min_length"), message, "exchange min_length and max_length"
            )
        if declaration.pattern is not None and (objection := objection_to(declaration.pattern)):
            code, message = objection
            hint = "write a pattern without references and lookaround; `{` alone is `\\{`, and the whole text is matched anyway"
            yield finding(code, (*path, "pattern"), message, hint)


VALUE_CHECKS: tuple[Callable[[Document], Findings], ...] = (
    _check_defaults,
    _check_examples,
    _check_bounds,
    fields_without_value,
)
