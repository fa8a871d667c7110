"""Text of field types, such as ``complex64[n_sites, n_hidden]`` and ``float | null``, and of their values.

Owns :func:`parse_type` and :func:`format_type`, inverse to each other. A name that is no built-in type stays a struct
name until the document resolves it.

Example:
    >>> format_type(parse_type("complex64[n_sites, 2*n_hidden] | null"))
    'complex64[n_sites, 2 * n_hidden] | null'

A *plain* value is one of YAML or JSON, as in schema files and steps. :func:`read_value` reads it under a declared type; a
:class:`Builder` decides the form of the result: :class:`Builder` checks alone, those of ``builders.py`` make manifest nodes
and Python values. :func:`plain_value` is the inverse.
"""

from __future__ import annotations

import ast
import enum
import functools
import keyword
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.expressions import Expression, from_ast
from neuralqx_struct.expressions.evaluation import evaluate
from neuralqx_struct.expressions.operators import parse_tree
from neuralqx_struct.fieldspec import MISSING
from neuralqx_struct.printing import brief_json, cut, read_decimal, write_decimal
from neuralqx_struct.types.records import TYPES, Extent, Node, Type, type_of_class

_LONGEST = 1000
_NO_TYPE = "expected a type such as `float | null` or `float32[n, 3]`"

#: Notations of other languages, and ours, with the groups of the pattern in their places.
_ELSEWHERE: tuple[tuple[str, str], ...] = (
    (r"(.+?)\s*\?", r"write \1 | null"),
    (r"(\w+)\s*\((.*)\)", r"write \1[\2]"),
    (r"(\w+)\s*<(.*)>", r"write \1[\2]"),
)

#: Choices of dtypes by name; only a document knows its own.
Choices = tuple[tuple[str, tuple[str, ...]], ...]


class ChoiceName(ast.Name):
    """The name of a choice of dtypes before the sizes of an array."""

    def __init__(self, name: str, dtypes: tuple[str, ...]) -> None:
        super().__init__(name)
        self.dtypes = dtypes


class _ChoiceMarks(ast.NodeTransformer):
    """Marks the names before sizes that stand for one of several dtypes."""

    def __init__(self, choices: Choices) -> None:
        self.choices = dict(choices)

    def visit_Subscript(self, node: ast.Subscript) -> ast.Subscript:
        name = node.value
        if isinstance(name, ast.Name) and name.id in self.choices:
            node.value = ChoiceName(name.id, self.choices[name.id])
        node.slice = self.visit(node.slice)
        return node


# Hundreds of fields share a few types, and so do all versions.
@functools.lru_cache(maxsize=4096)
def parse_type(text: str, choices: Choices = ()) -> Type:
    """Reads the text form of a type.

    Args:
        text: Such as ``float | null``, ``complex64[n_sites, n_hidden]``, ``list[Layer]``, ``prng_key[threefry2x32]``.
        choices: Choices of dtypes, of which arrays may have the names.

    Returns:
        The type; names that are not built in stay :class:`Named`.

    Raises:
        SchemaError: NQX101 with an example.

    Example:
        >>> parse_type("dict[str, Expert]")
        DictOf(value=Named(name='Expert', args=()))
    """
    if len(text) > _LONGEST:
        raise wrong(cut(text, 43), f"expected a type of at most {_LONGEST} characters")
    if text.isascii() and text.isidentifier() and not keyword.iskeyword(text):
        return type_of_tree(ast.Name(text), text)  # most types: the parser of Python is slower
    try:
        # `T[]` is an array without axes; Python's grammar writes the empty index as ().
        tree = parse_tree(re.sub(r"\[\s*\]", "[()]", text.strip()))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise wrong(text, _NO_TYPE, _meant(text)) from None
    try:
        if choices:
            tree = _ChoiceMarks(choices).visit(tree)
        return type_of_tree(tree, text)
    except RecursionError:
        raise wrong(cut(text, 43), "expected a type of fewer levels") from None


def format_type(declared: Type) -> str:
    """The canonical text of a type; the inverse of :func:`parse_type`."""
    return declared.format()


def wrong(text: str, message: str, hint: str | None = None) -> SchemaError:
    """The error NQX101 for the text of a type."""
    return SchemaError(f"{message}, got {text!r}", code="NQX101", hint=hint)


def _meant(text: str) -> str | None:
    """The likely fix of text that is no type."""
    if text.count("[") != text.count("]"):
        return "close every [ with a ]"
    for pattern, answer in _ELSEWHERE:
        match = re.fullmatch(pattern, text.strip())
        if match is not None:
            return match.expand(answer)
    return None


def type_of_tree(node: ast.expr, text: str) -> Type:
    """The type that a parsed expression writes; ``text`` is the whole, for messages."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return union_of((type_of_tree(node.left, text), type_of_tree(node.right, text)))
    if isinstance(node, ast.Constant) and node.value is None:
        return union_of(())
    args = None
    if isinstance(node, ast.Subscript):
        args = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
        node = node.value
        if isinstance(node, ast.Subscript):
            item = type_of_tree(node, text)
            return TYPES["stacked"].around(item, args, text)  # type: ignore[no-any-return]
    if isinstance(node, ChoiceName):
        array: Any = TYPES["array"].of(node.id, args or [], text)
        chosen: Type = replace(array, choice=node.dtypes)
        return chosen
    if isinstance(node, ast.Name):
        return _record_of(node.id).parse(node.id, args, text)  # type: ignore[no-any-return]
    if isinstance(node, ast.Attribute):
        return Type.parse(_dotted(node, text), args, text)
    raise wrong(text, _NO_TYPE, _meant(text))


def _record_of(word: str) -> Any:
    """The record that a word names: the one of structs for a word that no other has."""
    record = TYPES.get(word)
    if record is not None and word in record.words:
        return record
    named = (record for record in TYPES.values() if word in record.words)
    return next(named, TYPES["struct"])


def _dotted(node: ast.expr, text: str) -> str:
    """The name of a struct or enum of another schema, behind its identity: ``lab.optim.Adam``."""
    name = ast.unparse(node)
    if re.fullmatch(r"\w+(\.\w+)+", name):
        return name
    expected = "expected the name of a struct behind the identity of its schema"
    raise wrong(text, f"{expected}, such as lab.optim.Adam")


def parse_extent(node: ast.expr) -> Extent:
    """One axis of a shape."""
    return ... if isinstance(node, ast.Constant) and node.value is ... else from_ast(node)


def constant_size(size: Expression) -> int | None:
    """The number that a size without names is; None for others, and where it is no size."""
    try:
        found = None if size.names else evaluate(size, {})
    except SchemaError:
        return None
    return found if type(found) is int and found >= 0 else None


def format_extents(extents: tuple[Extent, ...]) -> str:
    """The axes of a shape as text."""
    return ", ".join("..." if extent is ... else extent.text for extent in extents)


def union_of(options: Iterable[Type]) -> Type:
    """The union of some types, flat and without repetitions: the type itself if only one is left."""
    flat: dict[Type, None] = {}
    for option in options:
        flat |= dict.fromkeys(option.branches)
    if len(flat) == 1:
        return next(iter(flat))
    made: Type = TYPES["union"](tuple(flat)) if flat else TYPES["null"]()
    return made


_NONFINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def number_node(value: Any) -> Node:
    """A bool, int, float or complex as a node."""
    if isinstance(value, complex):
        parts = {"real": number_node(value.real), "imag": number_node(value.imag)}
        return {"__kind__": "complex", **parts}
    if isinstance(value, float) and not math.isfinite(value):
        return {"__kind__": "float", "value": repr(value)}
    return value


def number_value(node: Node) -> complex:
    """The number of a node; the inverse of :func:`number_node`."""
    if not isinstance(node, dict):
        return node  # type: ignore[no-any-return]
    if node["__kind__"] == "complex":
        return complex(number_value(node["real"]).real, number_value(node["imag"]).real)
    return (
        read_decimal(node["value"]) if node["__kind__"] == "bigint" else _NONFINITE[node["value"]]
    )


#: A real number in the text of a complex one; the numbers that files write as text are spelled as in YAML 1.2.
_PART = r"[-+]?(?:[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?|\.inf|\.nan)"
_COMPLEX = re.compile(rf"(?:(?P<real>{_PART})(?=[-+]))?(?P<imag>{_PART})j")
_SPELLED = {f"{word[:-3]}.{word[-3:]}": number for word, number in _NONFINITE.items()}


def number_text(value: complex) -> Any:
    """A float or complex number as a file holds it: a finite float, or text such as ``-.inf`` and ``1+2j``."""
    if isinstance(value, float) and math.isfinite(value):
        return value
    return re.sub("inf|nan", r".\g<0>", repr(value).strip("()"))


def number_of(value: Any) -> Any:
    """The number that a plain value is or writes, the inverse of :func:`number_text`; other values as they are.

    Example:
        >>> number_of("-.inf"), number_of("1-.nanj"), number_of("one")
        (-inf, (1+nanj), 'one')
    """
    if not isinstance(value, str):
        return value
    if value in _SPELLED:
        return _SPELLED[value]
    match = _COMPLEX.fullmatch(value) if len(value) <= _LONGEST else None
    if match is None:
        return value
    texts = [text or "0" for text in match.group("real", "imag")]
    real, imag = (float(re.sub(r"\.(?=[in])", "", text)) for text in texts)
    is_rounded = any(
        math.isinf(part) and "inf" not in text
        for part, text in zip((real, imag), texts, strict=True)
    )
    return value if is_rounded else complex(real, imag)


def spelling(value: str | int) -> str:
    """The text of text, an integer or a boolean, as a file holds it without quotes."""
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else write_decimal(value)


def is_nonfinite(value: Any) -> bool:
    """True for the text of an infinity or NaN."""
    return isinstance(value, str) and value in _SPELLED


def not_a_value(value: Any, declared: Type, hint: str | None = None) -> SchemaError:
    """The error NQX107: a value is not one of the type."""
    if value is None:
        hint = "a field may be null only where its type says `| null`"
    message = f"expected a value of type {format_type(declared)}, got {brief_json(value)}"
    return SchemaError(message, code="NQX107", hint=hint)


def read_value(value: Any, declared: Type, builder: Builder) -> Any:
    """Reads a plain value under a declared type.

    Args:
        value: As YAML or JSON hold it; a number for an array fills it.
        declared: The type.
        builder: Makes the result.

    Raises:
        SchemaError: NQX107: the value is not one of the type.
    """
    return declared.read(value, builder)


@dataclass(eq=False)
class Builder:
    """Checks values and returns them as they are.

    Attributes:
        document: Declares the structs and enums that types name.
        structs: True if a dict may be the value of a struct.
    """

    document: Any
    structs: bool = False

    def scalar(self, record: Any, value: Any) -> Any:
        """A scalar of a record."""
        return value

    def number(self, value: Any) -> Any:
        """A value inside a pytree that is no list and no dict."""
        return value

    def sequence(self, kind: str, items: list[Any]) -> Any:
        """A list or a tuple."""
        return items

    def mapping(self, items: dict[str, Any]) -> Any:
        """A dict."""
        return items

    def array(self, declared: Any, value: Any) -> Any:
        """An array: of the numbers in nested lists, or filled with one number."""
        return value

    def inside(self, struct: str) -> Builder:
        """The builder for the fields of a struct, whose sizes are its own."""
        return self

    def stacked(self, axes: tuple[Expression, ...]) -> Builder:
        """The builder for a struct whose arrays have these axes in front."""
        return self

    def struct(self, name: str, fields: dict[str, Any]) -> Any:
        """An instance of a struct."""
        return fields


def numbers_in(value: Any) -> Iterator[Any]:
    """Yields the items of nested lists; the value itself if it is no list."""
    if isinstance(value, list):
        for item in value:
            yield from numbers_in(item)
    else:
        yield value


def plain_value(value: Any) -> Any:
    """A Python value as a file holds it, or MISSING; the inverse of :func:`read_value`."""
    if value is None:
        return None
    if isinstance(value, enum.Enum):
        return value.name
    if type(value) in (list, tuple):
        items = [plain_value(item) for item in value]
        return MISSING if MISSING in items else items
    if type(value) is dict and all(type(key) is str for key in value):
        members = {key: plain_value(item) for key, item in value.items()}
        return MISSING if MISSING in members.values() else members
    cls: type = type(value)
    record = type_of_class(cls)
    return MISSING if record is None else record.to_plain(value)
