"""Field types without types inside: Python scalars, null, literals and pytrees.

A scalar is one row of data (:class:`ScalarRecord`).
"""

from __future__ import annotations

import ast
import math
import sys
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from neuralqx_struct.dtypes import DTYPES, dtype_named
from neuralqx_struct.fieldspec import MISSING
from neuralqx_struct.types.records import (
    NO_VALUE,
    TYPES,
    Node,
    Rule,
    Scalar,
    Type,
    TypeRecord,
)
from neuralqx_struct.types.text import Builder, not_a_value, number_node, number_value, wrong

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


@dataclass(frozen=True, kw_only=True)
class ScalarRecord(TypeRecord):
    """A Python scalar.

    Attributes:
        plain: Types of the values that represent it in files.
        valid: Whether such a value represents one.
        fits: Whether a Python value of an accepted record is one, where not all are.
        is_class: Whether the values of a class are such scalars.
        takes: Records whose scalars are accepted.
        families: Families of the dtypes whose arrays without axes are accepted, as jit makes them of numbers.
        meaning: The sort in expressions.
        json: JSON types in manifests.
        kinds: Kinds of nodes in manifests.
        node: Makes the node of a plain value.
        live: Makes the Python value of a plain value.
        stored: Makes the Python value of a node of one of the kinds.
        written: Makes the plain value of a Python value, or MISSING; the inverse of ``live``.
        source: Annotation in stubs: a builtin, or a name with the module that it needs.
        suggestion: A plain value to propose as default.
        draw: Makes a random value, given a sample and the declaration of a field.
        bounds: Groups of constraints.
    """

    plain: tuple[type, ...]
    is_class: Callable[[type], bool]
    takes: tuple[str, ...]
    families: tuple[str, ...] = ()
    meaning: str  # type: ignore[misc]
    json: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    node: Callable[[Any], Node]
    live: Callable[[Any], Any]
    stored: Callable[[Node], Any] = number_value
    written: Callable[[Any], Any]
    source: str
    suggestion: Any  # type: ignore[misc]
    draw: Callable[[Any, Any], Any]
    valid: Callable[[Any], bool] = _always
    fits: Callable[[Any], bool] = _always
    bounds: tuple[str, ...] = ()  # type: ignore[misc]

    def parse(
        self,
        word: str,
        args: list[ast.expr] | None,
        text: str,
    ) -> Type:
        """The scalar; takes no brackets, unless the word is a dtype too."""
        if args is None:
            return Scalar(self.name)
        if word in DTYPES:
            return TYPES["array"].parse(word, args, text)
        dtype = "float32" if word == "float" else f"{word}32"
        raise wrong(
            text,
            f"expected {word} without [...]",
            f"for an array write its dtype: {dtype}[...]",
        )

    def format(self, declared: Scalar) -> str:
        """The name."""
        return self.name

    def accepts(
        self,
        declared: Scalar,
        document: Any,
        seen: Any,
    ) -> bool:
        """True for a scalar of an accepted sort, and for an array without axes of an accepted dtype."""
        if seen.sort == "array":
            dtype = DTYPES.get(seen.dtype)
            return seen.shape == () and dtype is not None and dtype.family in self.families
        is_taken = seen.sort == "scalar" and seen.type_name in self.takes
        return is_taken and self.fits(seen.value)

    def picks(self, declared: Scalar, document: Any) -> bool:
        """True if ``fits`` decides."""
        return self.fits is not _always

    def read(
        self,
        declared: Scalar,
        value: Any,
        builder: Builder,
    ) -> Any:
        """The scalar of a plain value."""
        if type(value) not in self.plain or not self.valid(value):
            raise not_a_value(value, declared)
        return builder.scalar(self, value)

    def holds(self, cls: type) -> bool:
        """True if the instances of a class are such scalars."""
        return self.is_class(cls)

    def to_plain(self, value: Any) -> Any:
        """The plain value."""
        return self.written(value)

    def rule(self, declared: Scalar, document: Any) -> Rule:
        """The rule of JSON types, kinds of nodes, and arrays without axes."""
        if not self.json and len(self.kinds) == 1:
            return kind_rule(*self.kinds)
        objects = ("object",) if self.kinds or self.families else ()
        rule: Rule = {"type": [*self.json, *objects]}
        if not self.families:
            return rule
        dtypes = [name for name, dtype in DTYPES.items() if dtype.family in self.families]
        is_array = {"properties": {"__kind__": {"enum": ["array", "full"]}}}
        without_axes = {"properties": {"dtype": {"enum": dtypes}, "shape": {"const": []}}}
        array = {"if": is_array, "then": without_axes}
        node = {"allOf": [kind_rule("array", "full", *self.kinds), array]}
        return rule | {"if": {"type": "object"}, "then": node}

    def annotation(
        self,
        declared: Scalar,
        owner: Any,
        stub: Any,
    ) -> str:
        """The Python type."""
        return str(stub.source(self.source))

    def example(
        self,
        declared: Scalar,
        sample: Any,
        field: Any,
        local: Any,
        depth: int,
    ) -> Any:
        """One of the choices or examples of the field, else a random value."""
        given = field.choices or field.examples
        if given:
            return self.live(sample.one_of(given))
        return self.draw(sample, field)


def _draw_text(sample: Any, field: Any) -> Any:
    return sample.text(field)


def _is_dtype(cls: type) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and issubclass(cls, numpy.dtype)


def _node_of_bytes(text: str) -> Node:
    return {"__kind__": "bytes", "base64": b64encode(text.encode()).decode()}


BOOL = ScalarRecord(
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
    draw=lambda sample, _: bool(sample.random.integers(2)),
)
INT = ScalarRecord(
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
    draw=lambda sample, field: sample.integer(field),
    bounds=("number",),
)
FLOAT = ScalarRecord(
    name="float",
    plain=(int, float),
    is_class=lambda cls: cls is float,
    takes=("float", "int"),
    families=("floating",),
    meaning="float",
    json=("number",),
    kinds=("float", "bigint"),
    node=lambda value: number_node(float(value)),
    live=_same,
    written=lambda value: value if math.isfinite(value) else MISSING,
    source="float",
    suggestion=0.0,
    draw=lambda sample, field: sample.floating(field),
    bounds=("number",),
)
COMPLEX = ScalarRecord(
    name="complex",
    plain=(int, float),
    is_class=lambda cls: cls is complex,
    takes=("complex", "float", "int"),
    families=("complex",),
    meaning="complex",
    json=("number",),
    kinds=("complex", "float", "bigint"),
    node=lambda value: number_node(complex(value)),
    live=complex,
    written=lambda _: MISSING,
    source="complex",
    suggestion=0,
    draw=lambda sample, field: complex(sample.floating(field), sample.floating(field)),
)
STR = ScalarRecord(
    name="str",
    plain=(str,),
    is_class=lambda cls: cls is str,
    takes=("str",),
    meaning="text",
    json=("string",),
    node=_same,
    live=_same,
    written=_same,
    source="str",
    suggestion="",
    draw=_draw_text,
    bounds=("text", "length"),
)
BYTES = ScalarRecord(
    name="bytes",
    plain=(str,),
    is_class=lambda cls: cls is bytes,
    takes=("bytes",),
    meaning="bytes",
    kinds=("bytes",),
    node=_node_of_bytes,
    live=str.encode,
    stored=lambda node: b64decode(node["base64"]),
    written=lambda _: MISSING,
    source="bytes",
    suggestion=NO_VALUE,
    draw=lambda sample, field: sample.text(field).encode(),
    bounds=("length",),
)
PATH = ScalarRecord(
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
    draw=lambda sample, field: Path(sample.text(field)),
)
DTYPE = ScalarRecord(
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
    draw=lambda sample, _: dtype_named(sample.one_of(("float32", "int32", "complex64"))),
)


def scalar_of_kind(kind: str) -> ScalarRecord | None:
    """The record whose values are the nodes of a kind."""
    for record in TYPES.values():
        if isinstance(record, ScalarRecord) and kind in record.kinds:
            return record
    return None
