"""The manifest for other tools: strict Pydantic models, and the JSON Schema that is published.

Owns :func:`models` and :func:`manifest_schema`, both made from the tables of ``manifest_grammar.py``. Readers do not use
them: ``manifest.py`` checks the same tables without importing Pydantic, and says what is wrong in better words.

Example:
    >>> manifest_schema()["properties"]["version"]
    {'const': 1, 'type': 'integer'}
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from neuralqx_struct.manifest import SCHEMA_URL
from neuralqx_struct.manifest_grammar import (
    CHOICES,
    LENGTHS,
    MODES,
    MOST_DIMS,
    NODE_KINDS,
    PATTERNS,
    PLACES,
    PLAIN,
    RANGES,
    RECORDS,
)

if TYPE_CHECKING:
    from pydantic import BaseModel

__all__ = ["manifest_schema", "models"]


@cache
def models() -> Mapping[str, type[BaseModel]]:
    """Strict Pydantic models: one a node kind (a union told apart by ``__kind__``), and ``Manifest`` for the document.

    Built when first asked for: importing Pydantic takes longer than checking a manifest.

    Example:
        >>> models()["Manifest"].model_validate({"version": 1, "manifest": None, "arrays": {}}).version_
        1
    """
    from typing import Annotated, Literal, Union

    from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, create_model
    from typing_extensions import TypeAliasType

    number = Union[Annotated[int, Field(strict=True)], Annotated[float, Field(allow_inf_nan=False)]]  # noqa: UP007
    size = Annotated[int, Field(ge=0, le=RANGES["size"][1])]

    # To some validators, Python's among them, the end that a pattern asks for may have a line break behind it.
    one_line: dict[str, Any] = {"not": {"pattern": "\n"}}

    def exactly(kind: type) -> Any:
        """Literals compare by equality, and True equals 1: ask for the type as well."""

        def judge(value: Any) -> Any:
            if type(value) is not kind:
                raise ValueError(f"expected {kind.__name__}")
            return value

        return BeforeValidator(judge)

    class Extension(BaseModel):
        """A member that a reader may pass over."""

        model_config = ConfigDict(extra="allow", strict=True)
        must_understand: Annotated[Literal[False], exactly(bool)]

    class Record(BaseModel):
        model_config = ConfigDict(extra="allow", strict=True, protected_namespaces=())
        __pydantic_extra__: dict[str, Extension] = Field(init=False)

    namespace: dict[str, Any] = {}

    def names(annotation: str) -> Any:
        return annotation

    annotations: dict[str, Any] = {
        "text": str,
        "true": Annotated[Literal[True], exactly(bool)],
        "shape": Annotated[list[size], Field(max_length=MOST_DIMS)],
        "checksums": list[Annotated[int, Field(ge=0, le=2**32 - 1)]],
        "object": dict[str, Any],
        "documents": list[dict[str, Any]],
        "version": Annotated[Literal[1], exactly(int)],
        "fields": names("dict[str, Node]"),
        "nodes": names("list[Node]"),
        "pairs": names("list[Pair]"),
        **{place: names(_camel(place)) for place in PLACES},
        "identity": names("SchemaIdentity"),
        "writer": names("Writer"),
        "records": names("dict[str, ArrayRecord]"),
        **{name: Literal[known] for name, known in CHOICES.items()},
        **{
            name: Annotated[str, Field(pattern=pattern, max_length=LENGTHS.get(name), json_schema_extra=one_line)]
            for name, (_, pattern) in PATTERNS.items()
        },
        **{name: Annotated[int, Field(ge=low, le=high)] for name, (low, high) in RANGES.items()},
    }

    def model(name: str, members: Mapping[str, str], **tags: str) -> type[BaseModel]:
        fields: dict[str, Any] = {}
        for member, rule in members.items():
            key = member.rstrip("?")
            field = Field(None, alias=key) if member.endswith("?") else Field(alias=key)
            attribute = re.sub(r"\W", "", key) + "_"
            annotation = Literal[tags[key]] if key in tags else annotations[rule]
            fields["dollar_schema" if key == "$schema" else attribute] = (annotation, field)
        if "__kind__" in tags:
            fields["kind"] = (Literal[tags["__kind__"]], Field(alias="__kind__"))
        return create_model(name, __base__=Record, **fields)

    def titled(kind: str) -> str:
        return _camel(kind) + "Node"

    kinds = {
        kind: model(titled(kind), members, __kind__=kind)
        for kind, members in NODE_KINDS.items()
        if kind != "registered-pytree"
    }
    for mode, members in MODES.items():
        tag = f"registered-pytree/{mode}"
        pytree = {**NODE_KINDS["registered-pytree"], **members}
        kinds[tag] = model(titled(tag), pytree, __kind__="registered-pytree", mode=mode)
    plain: dict[str, Any] = {"null": None, "boolean": bool, "number": number, "string": str}

    def tag_of(value: Any) -> str | None:
        if type(value) is not dict:
            return PLAIN.get(type(value))
        kind = value.get("__kind__")
        if kind == "registered-pytree":
            return f"{kind}/{value.get('mode')}"
        return kind if type(kind) is str and kind not in plain else None

    def union(name: str, allowed: frozenset[str]) -> Any:
        choices = [Annotated[annotation, Tag(tag)] for tag, annotation in plain.items() if tag in allowed]
        choices += [Annotated[cls, Tag(tag)] for tag, cls in kinds.items() if tag.partition("/")[0] in allowed]
        return TypeAliasType(name, Annotated[Union[tuple(choices)], Discriminator(tag_of)])  # noqa: UP007

    records = {name: model(name, members) for name, members in RECORDS.items()}
    for place, allowed in PLACES.items():
        namespace[_camel(place)] = union(_camel(place), allowed)
    namespace["Pair"] = TypeAliasType("Pair", Annotated[list["Node"], Field(min_length=2, max_length=2)])  # type: ignore[name-defined]  # noqa: F821
    namespace |= records
    for built in (*kinds.values(), *records.values()):
        built.model_rebuild(_types_namespace=namespace)
    return {**kinds, **records}


def _camel(words: str) -> str:
    return "".join(part.capitalize() for part in re.split(r"[-/]", words))


def manifest_schema() -> dict[str, Any]:
    """The published JSON Schema of ``manifest.json``, generated from :func:`models`.

    It uses only keywords that mean the same in draft-07 and in 2020-12. Nodes are dispatched on their tag by ``if`` and
    ``then``, so that a validator reports what is wrong with the one kind that was meant.
    """
    from pydantic.json_schema import GenerateJsonSchema

    class Generator(GenerateJsonSchema):
        def tagged_union_schema(self, schema: Any) -> Any:
            types: list[str] = []
            branches: dict[str, Any] = {}
            for tag, choice in schema["choices"].items():
                if tag in NODE_KINDS or "/" in tag:
                    branches[tag] = self.generate_inner(choice)
                else:
                    types.append(tag)
            whole: dict[str, Any] = {"type": [*types, "object"] if branches else types}
            if branches:
                whole |= {"if": {"type": "object"}, "then": dispatch(branches)}
            return whole

    def dispatch(branches: dict[str, Any]) -> dict[str, Any]:
        kinds = list(dict.fromkeys(tag.partition("/")[0] for tag in branches))
        rules = []
        for tag, target in branches.items():
            kind, _, mode = tag.partition("/")
            tags: dict[str, Any] = {"__kind__": {"const": kind}} | ({"mode": {"const": mode}} if mode else {})
            rules.append({"if": {"required": list(tags), "properties": tags}, "then": target})
        modes = {"mode": {"enum": list(MODES)}}
        if "registered-pytree" in kinds:
            pytree = {"__kind__": {"const": "registered-pytree"}}
            then = {"required": ["mode"], "properties": modes}
            rules.append({"if": {"required": ["__kind__"], "properties": pytree}, "then": then})
        return {"required": ["__kind__"], "properties": {"__kind__": {"enum": kinds}}, "allOf": rules}

    made = models()["Manifest"].model_json_schema(
        schema_generator=Generator, ref_template="#/definitions/{model}", mode="validation"
    )
    definitions = made.pop("$defs")
    for definition in (made, *definitions.values()):
        _tidy(definition)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA_URL,
        "title": "neuralqx-struct manifest.json, format version 1",
        **made,
        "definitions": definitions,
    }


def _tidy(schema: Any) -> None:
    """Drop the titles and null defaults that Pydantic puts everywhere: an absent member is not a null."""
    stack = [schema]
    while stack:
        item = stack.pop()
        if isinstance(item, list):
            stack.extend(item)
        elif isinstance(item, dict):
            if isinstance(item.get("title"), str):
                del item["title"]
            if item.get("default", 0) is None:
                del item["default"]
            stack.extend(item.values())
