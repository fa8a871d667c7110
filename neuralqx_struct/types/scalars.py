"""Field types of Python scalars, each one row of data."""

from __future__ import annotations

import ast
import functools
import sys
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from neuralqx_struct.dtypes import DTYPES, dtype_named
from neuralqx_struct.fieldspec import MISSING
from neuralqx_struct.types.records import NO_VALUE, TYPES, Node, Rule, Type
from neuralqx_struct.types.text import (
    Builder,
    not_a_value,
    number_node,
    number_of,
    number_text,
    number_value,
    spelling,
    wrong,
)

_LARGEST = int(sys.float_info.max)

#: The rule of any node.
ANY_NODE: Rule = {"$ref": "#/definitions/Node"}


def kind_rule(*kinds: str, **members: Rule) -> Rule:
    """The rule of a node of one of some kinds, with rules for its members."""
    kind = {"const": kinds[0]} if len(kinds) == 1 else {"enum": list(kinds)}
    properties = {"__kind__": kind, **members}
    return {"type": "object", "required": list(properties), "properties": properties}


def _same(value: Any) -> Any:
    return value


def _always(_: Any) -> bool:
    return True


def _in_table(name: str) -> Any:
    return TYPES[name]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Scalar(Type):
    """A Python scalar; the one instance of each is in the table.

    Attributes:
        name: The word in files.
        plain: Types of the values that represent it in files.
        valid: Whether such a value represents one.
        fits: Whether a Python value of an accepted record is one, where not all are.
        is_class: Whether the values of a class are such scalars.
        takes: Records whose scalars are accepted.
        families: Families of the dtypes whose arrays without axes are such scalars, as jit makes them of numbers.
            Those of the records in ``takes`` are accepted too.
        letter: The letter of numpy's dtypes whose scalars are accepted.
        meaning: The sort in views.
        json: JSON types in manifests.
        kinds: Kinds of nodes in manifests.
        node: Makes the node of a plain value.
        live: Makes the Python value of a plain value.
        stored: Makes the Python value of a node of one of the kinds.
        written: Makes the plain value of a Python value, or MISSING; the inverse of ``live``.
        source: Annotation in stubs: a builtin, or a name with the module that it needs.
        suggestion: A plain value to propose as default.
        spelling: How to write a value in a file, for messages.
        few: All values, where they are few.
        draw: Makes a random value, given a sample.
        bounds: Groups of constraints.
    """

    name: str
    plain: tuple[type, ...]
    is_class: Callable[[type], bool]
    takes: tuple[str, ...]
    families: tuple[str, ...] = ()
    letter: str = ""
    meaning: str
    json: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    node: Callable[[Any], Node]
    live: Callable[[Any], Any]
    stored: Callable[[Node], Any] = number_value
    written: Callable[[Any], Any]
    source: str
    suggestion: Any
    spelling: str | None = None
    few: tuple[Any, ...] = ()
    draw: Callable[[Any], Any]
    valid: Callable[[Any], bool] = _always
    fits: Callable[[Any], bool] = _always
    bounds: tuple[str, ...] = ()

    @property
    def sort(self) -> str:  # type: ignore[override]
        return self.name

    @property
    def words(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.name,)

    @property
    def axes(self) -> int | None:  # type: ignore[override]
        return 0 if self.families else None

    @property
    def number_dtypes(self) -> list[str]:
        """The dtypes of the arrays without axes, and numpy's scalars, that are such scalars."""
        return [name for name, dtype in DTYPES.items() if dtype.family in self.families]

    @property
    def own_dtypes(self) -> Rule:
        """The JSON Schema of the dtypes of numpy's scalars that are such scalars."""
        if self.letter:
            return {"type": "string", "pattern": f"^[<>=|]?{self.letter}[0-9]+$"}
        return {"enum": self.number_dtypes}

    def __reduce__(self) -> Any:
        return _in_table, (self.name,)

    def __repr__(self) -> str:
        return self.name

    def parse(self, word: str, args: list[ast.expr] | None, text: str) -> Type:  # type: ignore[override]
        if args is None:
            return self
        if word in DTYPES:
            array: Type = TYPES["array"].parse(word, args, text)
            return array
        dtype = "float32" if word == "float" else f"{word}32"
        raise wrong(
            text,
            f"expected {word} without [...]",
            f"for an array write its dtype: {dtype}[...]",
        )

    def format(self) -> str:
        return self.name

    def accepts(self, document: Any, seen: Any) -> bool:
        if self.letter and seen.single is not None:
            return self.letter in seen.dtype
        if seen.sort == "array":
            return seen.shape == () and seen.dtype in _accepted_dtypes(self)
        is_taken = seen.sort == "scalar" and seen.type_name in self.takes
        return is_taken and self.fits(seen.value)

    def picks(self, document: Any) -> bool:
        return self.fits is not _always

    def spelled(self, document: Any) -> Mapping[str, Any] | None:
        return {spelling(value): value for value in self.few} or None

    def outside_jax(self, document: Any) -> bool:
        return not self.families

    def read(self, value: Any, builder: Builder) -> Any:
        if type(value) not in self.plain or not self.valid(value):
            raise not_a_value(value, self, self.spelling)
        return builder.scalar(self, value)

    def holds(self, value_class: type) -> bool:  # type: ignore[override]
        return self.is_class(value_class)

    def to_plain(self, value: Any) -> Any:
        return self.written(value)

    def rule(self, document: Any) -> Rule:
        if self.letter:
            rules: list[Rule] = [{"type": each} for each in self.json]
            rules += [kind_rule(*self.kinds)] if self.kinds else []
            return {"anyOf": [*rules, kind_rule("numpy-scalar", dtype=self.own_dtypes)]}
        if not self.json and len(self.kinds) == 1:
            return kind_rule(*self.kinds)
        objects = ("object",) if self.kinds or self.families else ()
        rule: Rule = {"type": [*self.json, *objects]}
        if not self.families:
            return rule
        dtypes = {"enum": [*_accepted_dtypes(self)]}
        without_axes = {"properties": {"dtype": dtypes, "shape": {"const": []}}}
        kinds = ("array", "full", "numpy-scalar", *self.kinds)
        node = {"allOf": [kind_rule(*kinds), without_axes]}
        return rule | {"if": {"type": "object"}, "then": node}

    def annotation(self, owner: Any, stub: Any) -> str:
        return str(stub.source(self.source))

    def example(self, sample: Any) -> Any:
        return self.draw(sample)


@functools.cache
def _accepted_dtypes(record: Scalar) -> tuple[str, ...]:
    """The dtypes of the arrays without axes that a record accepts, as it accepts the scalars of others."""
    return tuple(dtype for name in record.takes for dtype in TYPES[name].number_dtypes)


def _is_dtype(cls: type) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and issubclass(cls, numpy.dtype)


def _is_float(value: Any) -> bool:
    """True if a plain number or text is a float; none is as large as some integers."""
    number = number_of(value)
    return isinstance(number, float) or (isinstance(number, int) and abs(number) <= _LARGEST)


def _is_complex(value: Any) -> bool:
    return isinstance(number_of(value), complex) or _is_float(value)


def _base64(value: bytes) -> dict[str, str]:
    return {"base64": b64encode(value).decode()}


def _bytes_of(value: Any) -> bytes | None:
    """The bytes that a plain value writes: the UTF-8 of text, or those of ``{base64: ...}``; None for others."""
    if isinstance(value, str):
        return value.encode()
    try:
        decoded = b64decode(value["base64"], validate=True)
    except (KeyError, TypeError, ValueError):
        return None
    return decoded if _base64(decoded) == value else None  # one spelling, without other members


BOOL = Scalar(
    name="bool",
    plain=(bool,),
    is_class=lambda cls: cls is bool,
    takes=("bool",),
    families=("bool",),
    meaning="bool",
    json=("boolean",),
    node=_same,
    live=_same,
    written=_same,
    source="bool",
    suggestion=False,
    few=(False, True),
    draw=lambda sample: sample.one_of((False, True)),
)
INT = Scalar(
    name="int",
    plain=(int,),
    is_class=lambda cls: cls is int,
    takes=("int",),
    families=("integer", "unsigned"),
    meaning="int",
    json=("integer",),
    kinds=("bigint",),
    node=_same,
    live=_same,
    written=_same,
    source="int",
    suggestion=0,
    draw=lambda sample: sample.integer(),
    bounds=("number",),
)
FLOAT = Scalar(
    name="float",
    plain=(int, float, str),
    valid=_is_float,
    is_class=lambda cls: cls is float,
    takes=("float", "int"),
    families=("floating",),
    meaning="float",
    json=("number",),
    kinds=("float", "bigint"),
    node=lambda value: number_node(float(number_of(value))),
    live=lambda value: float(number_of(value)),
    written=number_text,
    source="float",
    suggestion=0.0,
    spelling="write a number, or one of .inf, -.inf and .nan",
    draw=lambda sample: sample.floating(),
    bounds=("number",),
)
COMPLEX = Scalar(
    name="complex",
    plain=(int, float, str),
    valid=_is_complex,
    is_class=lambda cls: cls is complex,
    takes=("complex", "float", "int"),
    families=("complex",),
    meaning="complex",
    json=("number",),
    kinds=("complex", "float", "bigint"),
    node=lambda value: number_node(complex(number_of(value))),
    live=lambda value: complex(number_of(value)),
    written=number_text,
    source="complex",
    suggestion=0,
    spelling="write a number, or text such as 1+2j, -2.5j and .inf-.nanj",
    draw=lambda sample: complex(sample.floating(), sample.floating()),
)
STR = Scalar(
    name="str",
    plain=(str,),
    is_class=lambda cls: cls is str,
    takes=("str",),
    letter="U",
    meaning="text",
    json=("string",),
    node=_same,
    live=_same,
    written=_same,
    source="str",
    suggestion="",
    draw=lambda sample: sample.text(),
    bounds=("text", "length"),
)
BYTES = Scalar(
    name="bytes",
    plain=(str, dict),
    valid=lambda value: _bytes_of(value) is not None,
    is_class=lambda cls: cls is bytes,
    takes=("bytes",),
    letter="S",
    meaning="bytes",
    kinds=("bytes",),
    node=lambda value: {"__kind__": "bytes", **_base64(_bytes_of(value) or b"")},
    live=_bytes_of,
    stored=lambda node: b64decode(node["base64"]),
    written=_base64,
    source="bytes",
    suggestion=NO_VALUE,
    spelling="write text, which is taken as UTF-8, or {base64: /wA=}",
    draw=lambda sample: sample.text().encode(),
    bounds=("length",),
)
PATH = Scalar(
    name="path",
    plain=(str,),
    is_class=lambda cls: issubclass(cls, PurePath),
    takes=("path",),
    meaning="path",
    kinds=("path",),
    node=lambda value: {"__kind__": "path", "value": value},
    live=Path,
    stored=lambda node: PurePath(node["value"]),
    written=str,
    source="pathlib.Path",
    suggestion=".",
    draw=lambda sample: Path(sample.text()),
)
DTYPE = Scalar(
    name="dtype",
    plain=(str,),
    valid=lambda value: value in DTYPES,
    is_class=_is_dtype,
    takes=("dtype",),
    meaning="dtype",
    kinds=("dtype",),
    node=lambda value: {"__kind__": "dtype", "value": value},
    live=dtype_named,
    stored=lambda node: dtype_named(node["value"]),
    written=lambda value: value.name if value.name in DTYPES else MISSING,
    source="np.dtype[typing.Any]",
    suggestion="float32",
    draw=lambda sample: dtype_named(sample.one_of(("float32", "int32", "complex64"))),
)


def scalar_of_kind(kind: str) -> Scalar | None:
    """The scalar type whose values are the nodes of a kind."""
    for record in TYPES.values():
        if isinstance(record, Scalar) and kind in record.kinds:
            return record
    return None
