"""Types of fields: frozen records, and their text form ``complex64[n_sites, n_hidden]``, ``float | null``, ``list[Layer]``.

Owns the records, the table of dtypes, :func:`parse_type` and :func:`format_type` (inverse to each other). A name that is
no built-in type stays a :class:`Named` until the document resolves it to a struct or an enum. A new type is a record
here, a row in ``_PARSERS`` or ``_SCALARS``, a branch of :func:`format_type`, and a row in ``conform.py``.

Example:
    >>> t = parse_type("complex64[n_sites, 2*n_hidden] | null")
    >>> format_type(t)
    'complex64[n_sites, 2 * n_hidden] | null'
"""

from __future__ import annotations

import ast
import functools
import keyword
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import EllipsisType

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.schema.expressions import Expression, from_ast

__all__ = [
    "DTYPES",
    "TYPE_NAMES",
    "Array",
    "DictOf",
    "Extent",
    "Key",
    "ListOf",
    "LiteralOf",
    "Named",
    "Null",
    "PyTree",
    "Scalar",
    "TupleOf",
    "Type",
    "Union",
    "format_type",
    "parse_type",
    "walk_type",
]

#: One axis of a shape: a size expression, or ``...`` for any number of axes.
Extent = Expression | EllipsisType


@dataclass(frozen=True, slots=True)
class Dtype:
    """What is known of a dtype without numpy: its family, its size in bits, and what it represents exactly.

    Attributes:
        family: ``bool``, ``integer``, ``unsigned``, ``floating`` or ``complex``.
        bits: Size of one element in bits (4 for int4, although memory holds it in one byte).
        significand: Bits of precision, the hidden one included (of each part, for complex numbers).
        exponents: Smallest and largest exponent of a finite value, as powers of two; None for integers.
    """

    family: str
    bits: int
    significand: int
    exponents: tuple[int, int] | None = None


# Significands and exponent ranges: IEEE 754-2019 table 3.5, the OCP 8-bit and microscaling formats, and ml_dtypes'
# documentation of the variants; smallest exponents include subnormal numbers.
DTYPES: Mapping[str, Dtype] = {
    "bool": Dtype("bool", 8, 1),
    **{f"int{n}": Dtype("integer", n, n - 1) for n in (2, 4, 8, 16, 32, 64)},
    **{f"uint{n}": Dtype("unsigned", n, n) for n in (2, 4, 8, 16, 32, 64)},
    "float4_e2m1fn": Dtype("floating", 4, 2, (-1, 2)),
    "float8_e3m4": Dtype("floating", 8, 5, (-6, 3)),
    "float8_e4m3": Dtype("floating", 8, 4, (-9, 7)),
    "float8_e4m3b11fnuz": Dtype("floating", 8, 4, (-13, 4)),
    "float8_e4m3fn": Dtype("floating", 8, 4, (-9, 8)),
    "float8_e4m3fnuz": Dtype("floating", 8, 4, (-10, 7)),
    "float8_e5m2": Dtype("floating", 8, 3, (-16, 15)),
    "float8_e5m2fnuz": Dtype("floating", 8, 3, (-17, 15)),
    "float8_e8m0fnu": Dtype("floating", 8, 1, (-127, 127)),
    "bfloat16": Dtype("floating", 16, 8, (-133, 127)),
    "float16": Dtype("floating", 16, 11, (-24, 15)),
    "float32": Dtype("floating", 32, 24, (-149, 127)),
    "float64": Dtype("floating", 64, 53, (-1074, 1023)),
    "complex64": Dtype("complex", 64, 24, (-149, 127)),
    "complex128": Dtype("complex", 128, 53, (-1074, 1023)),
}


@dataclass(frozen=True, slots=True)
class Scalar:
    """A Python value: bool, int, float, complex, str, bytes, path or dtype."""

    name: str


@dataclass(frozen=True, slots=True)
class Null:
    """None."""


@dataclass(frozen=True, slots=True)
class PyTree:
    """Any tree of values that the codecs know."""


@dataclass(frozen=True, slots=True)
class Array:
    """An array of one dtype; the shape ``(...,)`` is any shape, ``()`` an array without axes."""

    dtype: str
    shape: tuple[Extent, ...] = (...,)


@dataclass(frozen=True, slots=True)
class Key:
    """Typed random keys of one implementation (None: any), usually a single one."""

    impl: str | None = None
    shape: tuple[Extent, ...] = ()


@dataclass(frozen=True, slots=True)
class Named:
    """A struct or an enum, with sizes for the struct's parameters; of another schema with its identity before it."""

    name: str
    args: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class LiteralOf:
    """One of some strings, numbers or booleans."""

    values: tuple[str | int | float | bool, ...]


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list of any length."""

    item: Type


@dataclass(frozen=True, slots=True)
class TupleOf:
    """A tuple: one type for each item, or with ``variadic`` one type for any number of items."""

    items: tuple[Type, ...]
    variadic: bool = False


@dataclass(frozen=True, slots=True)
class DictOf:
    """A dict with str keys."""

    value: Type


@dataclass(frozen=True, slots=True)
class Union:
    """One of several types; ``T | null`` is optional."""

    options: tuple[Type, ...]


Type = Scalar | Null | PyTree | Array | Key | Named | LiteralOf | ListOf | TupleOf | DictOf | Union

_SCALARS = ("bool", "int", "float", "complex", "str", "bytes", "path", "dtype")
#: Every word that names a built-in type, for suggestions.
TYPE_NAMES = (*_SCALARS, "null", "pytree", "prng_key", "array", "list", "tuple", "dict", "literal", *DTYPES)


@functools.lru_cache(maxsize=4096)  # the same few types stand in hundreds of fields, and in every version
def parse_type(text: str) -> Type:
    """Read the text form of a type.

    Args:
        text: Such as ``float | null``, ``complex64[n_sites, n_hidden]``, ``list[Layer]``, ``prng_key[threefry2x32]``.

    Returns:
        The type record; names that are not built in stay :class:`Named`.

    Raises:
        SchemaError: NQX101 with what was expected and an example.

    Example:
        >>> parse_type("dict[str, Expert]")
        DictOf(value=Named(name='Expert', args=()))
    """
    if len(text) > 1000:
        raise _wrong(text[:40] + "...", "expected a type of at most 1000 characters")
    if text.isascii() and text.isidentifier() and not keyword.iskeyword(text):  # as most are: parsing takes longer
        return _from_ast(ast.Name(text), text)
    try:
        # `T[]` is an array without axes; Python's grammar writes the empty index as ().
        tree = ast.parse(re.sub(r"\[\s*\]", "[()]", text.strip()), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise _wrong(text, _NO_TYPE, _meant(text)) from None
    return _from_ast(tree, text)


_NO_TYPE = "expected a type such as `float | null` or `float32[n, 3]`"

#: How other languages write types, and what to write here, with the groups of the pattern in their places.
_ELSEWHERE: tuple[tuple[str, str], ...] = (
    (r"(.+?)\s*\?", r"write \1 | null"),
    (r"(\w+)\s*\((.*)\)", r"write \1[\2]"),
    (r"(\w+)\s*<(.*)>", r"write \1[\2]"),
)


def _meant(text: str) -> str | None:
    """What is likely meant by text that is no type."""
    if text.count("[") != text.count("]"):
        return "close every [ with a ]"
    matches = ((re.fullmatch(pattern, text.strip()), answer) for pattern, answer in _ELSEWHERE)
    return next((match.expand(answer) for match, answer in matches if match is not None), None)


def _wrong(text: str, message: str, hint: str | None = None) -> SchemaError:
    return SchemaError(f"{message}, got {text!r}", code="NQX101", hint=hint)


def _from_ast(node: ast.expr, text: str) -> Type:
    match node:
        case ast.BinOp(op=ast.BitOr()):
            options: dict[Type, None] = {}
            for side in (node.left, node.right):
                side_type = _from_ast(side, text)
                options |= dict.fromkeys(side_type.options if isinstance(side_type, Union) else (side_type,))
            return Union(tuple(options)) if len(options) > 1 else next(iter(options))
        case ast.Constant(value=None) | ast.Name(id="null"):
            return Null()
        case ast.Name(id=name):
            return _plain(name, text)
        case ast.Attribute():
            return Named(_dotted(node, text))
        case ast.Subscript(value=ast.Attribute() as owner, slice=index):
            args = list(index.elts) if isinstance(index, ast.Tuple) else [index]
            return Named(_dotted(owner, text), tuple(from_ast(arg) for arg in args))
        case ast.Subscript(value=ast.Name(id=name), slice=index):
            args = list(index.elts) if isinstance(index, ast.Tuple) else [index]
            if name in _PARSERS:
                return _PARSERS[name](args, text)
            if name in DTYPES:
                return Array(name, tuple(_extent(arg) for arg in args))
            if name in _SCALARS:
                hint = f"for an array write its dtype: {'float32' if name == 'float' else name + '32'}[...]"
                raise _wrong(text, f"expected {name} without [...]", hint)
            return Named(name, tuple(from_ast(arg) for arg in args))
    raise _wrong(text, _NO_TYPE, _meant(text))


def _dotted(node: ast.expr, text: str) -> str:
    """The name of a struct or enum of another schema, behind its identity: ``lab.optim.Adam``."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        raise _wrong(text, "expected the name of a struct behind the identity of its schema, such as lab.optim.Adam")
    return ".".join([node.id, *reversed(parts)])


def _plain(name: str, text: str) -> Type:
    if name in _SCALARS:
        return Scalar(name)
    if name == "pytree":
        return PyTree()
    if name == "prng_key":
        return Key()
    if name in DTYPES:
        raise _wrong(
            text,
            f"expected a shape behind the dtype {name}",
            f"write {name}[] for a single number, {name}[n] for a vector",
        )
    if name in _PARSERS:
        raise _wrong(text, f"expected {name}[...]", "say what it holds, as in list[Layer] or dict[str, Expert]")
    return Named(name)


def _extent(node: ast.expr) -> Extent:
    return ... if isinstance(node, ast.Constant) and node.value is ... else from_ast(node)


def _parse_list(args: list[ast.expr], text: str) -> Type:
    if len(args) != 1:
        raise _wrong(text, "expected list[T] with one type")
    return ListOf(_from_ast(args[0], text))


def _parse_dict(args: list[ast.expr], text: str) -> Type:
    if len(args) != 2 or not (isinstance(args[0], ast.Name) and args[0].id == "str"):
        raise _wrong(text, "expected dict[str, T]", "keys of a dict are always str")
    return DictOf(_from_ast(args[1], text))


def _parse_tuple(args: list[ast.expr], text: str) -> Type:
    if len(args) == 2 and isinstance(args[1], ast.Constant) and args[1].value is ...:
        return TupleOf((_from_ast(args[0], text),), variadic=True)
    return TupleOf(tuple(_from_ast(arg, text) for arg in args))


_TRUTH = {"true": True, "false": False}  # as YAML and JSON write them; Python's words are read too


def _parse_literal(args: list[ast.expr], text: str) -> Type:
    hint = 'quote strings: literal["a", "b"]'
    try:
        values = [
            _TRUTH[arg.id] if isinstance(arg, ast.Name) and arg.id in _TRUTH else ast.literal_eval(arg) for arg in args
        ]
    except ValueError:
        raise _wrong(text, "expected literal[...] of strings, numbers or booleans", hint) from None
    if not all(isinstance(value, (str, int, float)) for value in values):
        raise _wrong(text, "expected literal[...] of strings, numbers or booleans", hint)
    return LiteralOf(tuple(values))


def _parse_key(args: list[ast.expr], text: str) -> Type:
    if not args or not isinstance(args[0], ast.Name):
        raise _wrong(text, "expected prng_key[impl] or prng_key[impl, axes]", "such as prng_key[threefry2x32]")
    return Key(None if args[0].id == "_" else args[0].id, tuple(_extent(arg) for arg in args[1:]))


_PARSERS: Mapping[str, Callable[[list[ast.expr], str], Type]] = {
    "list": _parse_list,
    "dict": _parse_dict,
    "tuple": _parse_tuple,
    "literal": _parse_literal,
    "prng_key": _parse_key,
}


def _format_extents(extents: tuple[Extent, ...]) -> str:
    return ", ".join("..." if extent is ... else extent.text for extent in extents)


def format_type(declared: Type) -> str:
    """The canonical text of a type; the inverse of :func:`parse_type`."""
    match declared:
        case Scalar(name):
            return name
        case Null():
            return "null"
        case PyTree():
            return "pytree"
        case Array(dtype, shape):
            return f"{dtype}[{_format_extents(shape)}]"
        case Key(None, ()):
            return "prng_key"
        case Key(impl, shape):
            return f"prng_key[{', '.join(filter(None, [impl or '_', _format_extents(shape)]))}]"
        case Named(name, args):
            return f"{name}[{', '.join(arg.text for arg in args)}]" if args else name
        case LiteralOf(values):
            return f"literal[{', '.join(map(repr, values))}]"
        case ListOf(item):
            return f"list[{format_type(item)}]"
        case DictOf(value):
            return f"dict[str, {format_type(value)}]"
        case TupleOf(items, variadic):
            return f"tuple[{', '.join(map(format_type, items))}{', ...' if variadic else ''}]"
        case Union(options):
            return " | ".join(map(format_type, options))


def walk_type(declared: Type) -> Iterator[Type]:
    """The type and every type inside it, outermost first."""
    yield declared
    match declared:
        case ListOf(inner) | DictOf(inner):
            yield from walk_type(inner)
        case TupleOf(items) | Union(items):
            for item in items:
                yield from walk_type(item)
        case _:
            pass
