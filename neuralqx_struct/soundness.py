"""Soundness: the straight Python that shows a whole instance of a schema's struct to be sound.

Owns the proofs of instances: their fields, the sizes that have to agree, the static ints that are sizes, what the
constraints say, and the structs inside. What is true of one value is ``conditions.py``'s, when all this runs is
``instances.py``'s. :func:`proof_of_arguments` is built into the generated constructor.

Example:
    >>> from neuralqx_struct.schema.loader import read_text
    >>> from neuralqx_struct.schema.reading import parse_document
    >>> from neuralqx_struct.schema.seen import see_node
    >>> text = '{"language": "1", "schema": "a", "version": 1, "root": "A", "structs": {"A": {"fields": {"n": "int"}}}}'
    >>> proof = proof_of_arguments(parse_document(read_text(text)), "A", see_node)
    >>> proof.text.partition(" or ")[0]
    '(_nqx_type(n) is _nqx_int_10'
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from neuralqx_struct.agreement import Agreement, Reading, UnprovableError, agreement
from neuralqx_struct.conditions import Code, field_condition
from neuralqx_struct.pytree import Layout
from neuralqx_struct.registry import class_ref, stored_class
from neuralqx_struct.schema.conform import Condition
from neuralqx_struct.schema.expressions import Expression, parse
from neuralqx_struct.schema.fingerprint import full_fingerprint
from neuralqx_struct.schema.model import Document, StructDeclaration
from neuralqx_struct.schema.seen import Reader
from neuralqx_struct.schema.syntax import BOOLEAN, COMPARISONS
from neuralqx_struct.schema.types import Named, Null, Scalar, Union, walk_type

__all__ = ["Proof", "proof_of_arguments", "proof_of_pairs"]


class Proof(NamedTuple):
    """An expression that is true of sound instances only, and the objects that it names."""

    text: str
    namespace: Mapping[str, Any]


def proof_of_arguments(document: Document, struct: str, read: Reader) -> Proof | None:
    """The proof of an instance from its fields, which are local names of the constructor.

    Args:
        document: The schema.
        struct: The struct.
        read: How values are read for constraints that no simple comparison decides.

    Returns:
        The proof; None where some declaration has no straight code.
    """
    book = _Book(read)
    code = Code(document, book.inside)
    declaration = document.structs[struct]
    try:
        made = _instance(book, code, declaration, {name: name for name in declaration.fields}, outermost=True)
    except UnprovableError:
        return None
    return Proof(" and ".join(made.terms) or "True", code.namespace)


def proof_of_pairs(document: Document, struct: str, layout: Layout, read: Reader) -> Callable[[Any], Any]:
    """The same from the pair of an instance, as a function that gives () for a sound one, else None.

    Args:
        document: The schema.
        struct: The struct.
        layout: Where the class has its fields.
        read: As for :func:`proof_of_arguments`.
    """
    return _Book(read).function(document, struct, layout, (), outermost=True)


class _Book:
    """The proofs that belong together: of one class, and of all structs that may be inside its instances."""

    def __init__(self, read: Reader) -> None:
        self.read = read
        self._inside: dict[tuple[int, str, bool], _Inside] = {}

    def inside(self, document: Document, struct: str, apart: bool) -> _Inside:
        """The proof of a struct inside; one for each, as structs may hold their like."""
        key = (id(document), struct, apart)
        if key not in self._inside:
            self._inside[key] = _Inside(self, document, struct, apart=apart)
        return self._inside[key]

    def function(
        self, document: Document, struct: str, layout: Layout, names: tuple[str, ...], *, outermost: bool
    ) -> Callable[[Any], Any]:
        """A function of the pair of an instance that gives the sizes of ``names``, or None."""
        code = Code(document, self.inside)
        places = {name: name for name in (*layout.nodes, *layout.statics)}
        places |= {name: f"{name}.value" for name in layout.opaques}
        try:
            made = _instance(self, code, document.structs[struct], places, outermost=outermost)
            sizes = [made.sizes[name] for name in names]
        except (UnprovableError, KeyError):  # KeyError: a size that nothing here shows
            return _never
        nodes = "".join(f"{name}, " for name in layout.nodes)
        held = "".join(f"{name}, " for name in (*layout.statics, *layout.opaques))
        return code.function("pair", made.terms, sizes, f"({nodes}), (_nqx_keys, {held}) = pair")  # type: ignore[no-any-return]


def _never(_pair: Any) -> None:
    """The proof of a struct for which there is no straight code."""


def _instance(
    book: _Book, code: Code, declaration: StructDeclaration, places: Mapping[str, str], *, outermost: bool
) -> Agreement:
    """The conditions of one instance; ``places`` says where the source finds its fields."""
    fields = {name: field for name, field in declaration.fields.items() if field.derived is None}
    terms = [field_condition(code, field, places.get(name)) for name, field in fields.items()]
    if outermost:
        terms += _static_sizes(code, declaration, places)
    made = agreement(code.readings, code.document.dims if outermost else None)
    made.terms[:0] = filter(None, terms)
    conditions = [Condition(declaration, each, book.read) for each in declaration.constraints]
    made.terms += [_constraint(code, each, places, made) for each in conditions]
    return made


def _static_sizes(code: Code, declaration: StructDeclaration, places: Mapping[str, str]) -> list[str]:
    """Static ints of the outermost struct are sizes too, where something of their name is one."""
    dims = code.document.dims
    sizes = {*dims} | {name for reading in code.readings for name in reading.extent.names}
    sizes |= {name for dim in dims.values() if dim.equation is not None for name in dim.equation.names}
    terms: list[str] = []
    for name, field in declaration.fields.items():
        if field.kind != "static" or field.derived is not None or name not in sizes:
            continue
        if field.declared not in (Scalar("int"), Union((Scalar("int"), Null()))):
            raise UnprovableError(name)
        loose = isinstance(field.declared, Union)
        code.readings.append(Reading(places[name], parse(name), f"{places[name]} is not None" if loose else ""))
        if name in dims:
            terms.append(f"({places[name]} is None or {places[name]} >= 0)" if loose else f"{places[name]} >= 0")
    return terms


# ---------------------------------------------------------------------------------------------------------------------
# Structs inside.


class _Inside:
    """A struct inside another one. Its proof is made when the first instance is met, and gives the sizes it shares.

    Args:
        book: Where the proofs of structs inside this one are.
        document: That which declares it.
        struct: Its name there.
        apart: Whether the struct around it is of another document: then its dims are its own.
    """

    __slots__ = ("_apart", "_book", "_document", "_layout", "_struct", "classes", "names", "prove")

    def __init__(self, book: _Book, document: Document, struct: str, *, apart: bool) -> None:
        self._book, self._document, self._struct, self._apart = book, document, struct, apart
        self._layout: Layout | None = None
        self.classes: set[type] = set()
        self.prove: Callable[[Any], Any] = _never
        params = tuple(document.structs[struct].params)
        self.names = params if apart else (*params, *_shared(document, struct))

    def admits(self, value: Any) -> bool:
        """Whether the class of the value is that of the struct, with the fields where they are expected."""
        cls: Any = type(value)
        document = vars(cls).get("__nqx_document__")
        if document is None or class_ref(stored_class(cls)) != self._document.ref(self._struct):
            return False
        if document is not self._document and full_fingerprint(document) != full_fingerprint(self._document):
            return False
        if self._layout is None:
            self._layout = cls.__nqx_layout__
            self.prove = self._book.function(
                self._document, self._struct, self._layout, self.names, outermost=self._apart
            )
        if self._layout == cls.__nqx_layout__:
            self.classes.add(cls)
        return cls in self.classes


def _shared(document: Document, struct: str) -> tuple[str, ...]:
    """The dims of the document that instances of a struct show, themselves or by what is inside them."""
    shared: set[str] = set()
    seen: set[str] = set()
    todo = [struct]
    while todo:
        name = todo.pop()
        if name in seen or name not in document.structs:
            continue
        seen.add(name)
        if not document.dims.keys().isdisjoint(document.structs[name].params):
            raise UnprovableError(f"a parameter of {name} has the name of a dim")
        for field in document.structs[name].fields.values():
            for inner in walk_type(field.declared) if field.derived is None else ():
                if isinstance(inner, Named):
                    todo.append(inner.name)
                extents = inner.args if isinstance(inner, Named) else getattr(inner, "shape", ())
                shared |= {n for extent in extents if isinstance(extent, Expression) for n in extent.names}
    return tuple(name for name in document.dims if name in shared)


# ---------------------------------------------------------------------------------------------------------------------
# Constraints.

_PLAIN = frozenset({int, float, bool, str})


def _constraint(code: Code, condition: Condition, places: Mapping[str, str], made: Agreement) -> str:
    """The condition of a constraint: a comparison of plain values as such, else what the evaluation of it says."""
    fields = {name: places[name] for name in condition.fields if name in places}
    if not condition.names <= fields.keys() | made.sizes.keys():
        raise UnprovableError(condition.expression.text)
    sizes = {name: made.sizes[name] for name in condition.names - fields.keys()}
    values = ["".join(f"{name!r}: {text}, " for name, text in sorted(each.items())) for each in (fields, sizes)]
    asked = f"{code.hold('condition', condition)}({{{values[0]}}}, {{{values[1]}}})"
    names = {name: text for name, text in (fields | sizes).items() if name in condition.expression.names}
    try:
        plain = _truth(code, condition.expression.tree, names)
    except UnprovableError:
        return asked
    kinds = code.hold("plain", _PLAIN)
    return f"({' and '.join([*(f'_nqx_type({text}) in {kinds}' for text in names.values()), plain])} or {asked})"


def _truth(code: Code, tree: ast.expr, names: Mapping[str, str]) -> str:
    """The source of comparisons of names and constants, and of what ``and`` and ``or`` make of them."""
    match tree:
        case ast.BoolOp(op=op, values=values):
            return f"({f' {BOOLEAN[type(op)].symbol} '.join(_truth(code, value, names) for value in values)})"
        case ast.Compare(left=left, ops=ops, comparators=others) if not {*map(type, ops)} & {ast.In, ast.NotIn}:
            symbols = [COMPARISONS[type(each)].symbol for each in ops]
            pairs = zip(symbols, (_operand(code, other, names) for other in others), strict=True)
            return f"({' '.join([_operand(code, left, names), *(part for pair in pairs for part in pair)])})"
        case _:
            raise UnprovableError("no comparison")


def _operand(code: Code, tree: ast.expr, names: Mapping[str, str]) -> str:
    match tree:
        case ast.Name(id=name) if name in names:
            return names[name]
        case ast.Constant(value=value) if type(value) in _PLAIN:
            return code.hold("constant", value)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return code.hold("constant", -value)
        case _:
            raise UnprovableError("no plain operand")
