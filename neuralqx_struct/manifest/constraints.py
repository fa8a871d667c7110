"""Constraints of members of a manifest, which Pydantic reads from the annotations of the models.

Pydantic calls their methods when it builds validators and JSON Schemas; it is imported only then.

Example:
    >>> validator(Annotated[str, Text("digits", "^[0-9]+$")]).isinstance_python("12")
    True
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache, partial
from typing import Annotated, Any, Final, NamedTuple

from typing_extensions import TypeAliasType

NODE_MODELS: Final[dict[str, tuple[type, ...]]] = {}
"""The models of each node kind by tag, filled from the table in ``kinds.py``; several differ by their member ``mode``."""

# How Pydantic's errors name the two choices of a union: nodes by their kind, and plain values.
LABEL: Final = "__kind__"
PLAIN: Final = "plain"


class Exactly(NamedTuple):
    """Requires the type as well: a ``Literal`` alone compares by equality, and 1 equals True."""

    words: str
    type: type

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        named = core_schema.custom_error_schema(
            handler(source), "NQX612", custom_error_message=self.words
        )
        return core_schema.no_info_before_validator_function(self._require, named)

    def _require(self, value: Any) -> Any:
        return value if type(value) is self.type else _refuse(self.words, {}, value)


class Text(NamedTuple):
    """Text of a pattern: a description, the pattern, a largest length, and the code of its diagnostic."""

    words: str
    pattern: str
    max_length: int | None = None
    code: str = "NQX614"

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        text = core_schema.str_schema(pattern=self.pattern, max_length=self.max_length)
        return core_schema.custom_error_schema(text, self.code, custom_error_message=self.words)

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> Any:
        # Some validators, Python's among them, let `$` match before a line break at the end.
        return {"not": {"pattern": "\n"}, **handler(schema)}


# That the length is a multiple of 4 is checked in payload.py: Python's engine would take 30 bytes for each character.
Base64 = Annotated[str, Text("base64 text", "^[A-Za-z0-9+/]*={0,2}$")]
# Reading decimal digits takes time that grows with the square of their number.
Decimal = Annotated[
    str, Text("an integer in at most 100,000 decimal digits", "^-?[0-9]+$", 100_001)
]
Digest = Annotated[str, Text("'sha256:' and 64 hexadecimal digits", "^sha256:[0-9a-f]{64}$")]
#: Control characters and those that change the direction of text: names have none, as messages show them.
_STEERING = "\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff"
Name = Annotated[str, Text("a name without control characters", f"^[^{_STEERING}]*$")]
ClassRef = Annotated[
    str,
    Text("a class reference without control characters", f"^[^{_STEERING}]*$", code="NQX501"),
]
ClassName = Annotated[
    str,
    Text(
        "'module:Class', or 'schema@version:Struct' with a version of at most 18 digits",
        f"^([^@{_STEERING}]*|[^@:{_STEERING}]+@[1-9][0-9]{{0,17}}:[^@:{_STEERING}]+)$",
        code="NQX501",
    ),
]
FileName = Annotated[
    str,
    Text(
        "the plain name of a file beside the manifest",
        "^[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}$",
        code="NQX503",
    ),
]


class _Finite:
    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.float_schema(allow_inf_nan=False)


Finite = Annotated[float, _Finite()]


class Place:
    """The nodes that may be at a place: plain JSON values of some types, and nodes of some kinds.

    Args:
        name: The name of the definition in the JSON Schema.
        words: A description for messages.
        plain: Types of plain values.
        models: Models of nodes; None allows nodes of every kind.
    """

    def __init__(
        self, name: str, words: str, plain: tuple[Any, ...], models: tuple[type, ...] | None
    ) -> None:
        self.words = words
        self.plain = plain
        self.models = models
        # Only through an alias can a schema of Pydantic refer to itself.
        self._alias = TypeAliasType(name, Annotated[Any, _Union(self)])

    @property
    def kinds(self) -> Mapping[str, tuple[type, ...]]:
        """The models that are allowed, by tag."""
        if self.models is None:
            return NODE_MODELS
        return {tag_of(model): (model,) for model in self.models}

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return handler.generate_schema(self._alias)


class _Union:
    def __init__(self, place: Place) -> None:
        self._place = place

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        plain = [handler.generate_schema(kind) for kind in self._place.plain]
        words, context = self._place.words, {"tags": " ".join(self._place.kinds)}
        other: Any
        if plain:
            union = core_schema.union_schema(plain, mode="left_to_right")
            other = core_schema.custom_error_schema(
                union, "NQX612", custom_error_message=words, custom_error_context=context
            )
        else:
            other = core_schema.no_info_plain_validator_function(partial(_refuse, words, context))
        kinds: dict[Any, Any] = {}
        for tag, models in self._place.kinds.items():
            schemas = [handler.generate_schema(model) for model in models]
            kinds[tag] = schemas[0]
            if len(models) > 1:
                modes = dict(zip(map(mode_of, models), schemas, strict=True))
                kinds[tag] = core_schema.tagged_union_schema(modes, "mode")
        if not kinds:
            return other
        tagged = core_schema.tagged_union_schema(kinds, "__kind__")
        return core_schema.union_schema([(tagged, LABEL), (other, PLAIN)], mode="left_to_right")


def _refuse(words: Any, context: dict[str, Any], value: Any) -> Any:  # noqa: ARG001 - the signature of a validator
    from pydantic_core import PydanticCustomError

    # By itself: a custom_error_schema around a Python function takes an interrupt of it for a wrong value too.
    raise PydanticCustomError("NQX612", words, context)


@cache
def validator(model: Any) -> Any:
    """Returns Pydantic's validator of a model; imports Pydantic on first use."""
    from pydantic import TypeAdapter
    from pydantic_core import SchemaValidator

    # Looking up each text in a cache takes a fifth of the time of a large manifest, and finds few.
    return SchemaValidator(TypeAdapter(model).core_schema, {"cache_strings": "keys"})


def valid_json(data: bytes, model: Any) -> dict[str, Any] | None:
    """The object of a JSON text that a model accepts, or None; members that occur twice are not found."""
    from pydantic import ValidationError

    judge = validator(model)
    document: dict[str, Any]
    try:
        document = judge.validate_json(data, strict=True)
    except ValidationError as error:
        if error.error_count() > 1 or error.errors()[0]["type"] != "json_invalid":
            return None
    else:
        return document
    if b"\\u" in data:  # half of a surrogate pair is no text
        return None
    try:  # it may be too deep for that parser alone
        document = judge.validate_python(json.loads(data.decode()), strict=True)
    except (ValueError, RecursionError):
        return None
    return document


def tag_of(model: type) -> str:
    """The tag of a node model: the value of its ``__kind__``."""
    return str(model.__annotations__["__kind__"].__args__[0])


def mode_of(model: type) -> str:
    """The ``mode`` of a model of a kind that has several."""
    return str(model.__annotations__["mode"].__args__[0])
