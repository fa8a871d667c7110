"""JSON Schemas of manifests, so that tools which know nothing of us can check them.

Owns :func:`manifest_schema`, the published one, generated from the models, and :func:`payload_schema`, which narrows it to
the structs that one version of one schema declares.
It is written in the keywords that draft-07 and 2020-12 share, and decides by ``if`` and ``then`` rather than by
``anyOf``, so that a validator names the place that is wrong. Beyond any JSON Schema, and left to ``validate``: that
sizes agree with each other, expressions, and the numbers in arrays.

Example:
    >>> from neuralqx_struct.schema.series import load_series
    >>> made = payload_schema(load_series("schemas/vmc_state").head)
    >>> made["definitions"]["neuralqx.vmc_state@3:Sampler"]["properties"]["fields"]["required"]
    ['sigma', 'key']
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from neuralqx_struct.manifest import SCHEMA_URL
from neuralqx_struct.manifest.models import Manifest
from neuralqx_struct.schema.lock import payload_fingerprint
from neuralqx_struct.schema.model import Document, FieldDeclaration
from neuralqx_struct.types.records import Rule
from neuralqx_struct.types.scalars import ANY_NODE, kind_rule

#: Kinds of nodes whose items have a length.
_COLLECTIONS = ["list", "tuple", "dict", "ordered-dict"]
#: Plain text, numbers and truth values, to which constraints of fields apply.
_PLAIN: Rule = {"type": ["string", "number", "boolean"]}


def manifest_schema() -> dict[str, Any]:
    """The published JSON Schema of ``manifest.json``.

    It uses only keywords that mean the same in draft-07 and in 2020-12. The tag of a node selects its model by ``if`` and
    ``then``, so that validators report errors of that model alone.
    """
    from pydantic import TypeAdapter
    from pydantic.json_schema import GenerateJsonSchema

    class Generator(GenerateJsonSchema):
        def union_schema(self, schema: Any) -> Any:
            choices = [c[0] if type(c) is tuple else c for c in schema["choices"]]
            parts = [self.generate_inner(choice) for choice in choices]
            merged: dict[str, Any] = {"type": _joined_types(parts)}
            for part in parts:
                if "allOf" in part:
                    merged |= {"if": {"type": "object"}, "then": part}
            return merged

        def function_plain_schema(self, schema: Any) -> Any:  # noqa: ARG002
            return {"type": []}  # no value at all

        def tagged_union_schema(self, schema: Any) -> Any:
            name = schema["discriminator"]
            rules = []
            for tag, choice in schema["choices"].items():
                condition = {"required": [name], "properties": {name: {"const": tag}}}
                rules.append({"if": condition, "then": self.generate_inner(choice)})
            tags = {"enum": list(schema["choices"])}
            return {
                "type": "object",
                "required": [name],
                "properties": {name: tags},
                "allOf": rules,
            }

    made = TypeAdapter(Manifest).json_schema(
        schema_generator=Generator, ref_template="#/definitions/{model}"
    )
    definitions = made.pop("$defs")
    for definition in (made, *definitions.values()):
        _drop_titles(definition)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA_URL,
        "title": "neuralqx-struct manifest.json, format version 1",
        **made,
        "definitions": definitions,
    }


def _joined_types(schemas: list[dict[str, Any]]) -> list[str]:
    """The JSON types of several schemas, each once; integers are numbers."""
    types: list[str] = []
    for schema in schemas:
        types += [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
    return [name for name in dict.fromkeys(types) if name != "integer" or "number" not in types]


def _drop_titles(schema: Any) -> None:
    """Drops the titles that Pydantic gives to everything."""
    stack = [schema]
    while stack:
        item = stack.pop()
        if isinstance(item, list):
            stack.extend(item)
        elif isinstance(item, dict):
            if isinstance(item.get("title"), str):
                del item["title"]
            stack.extend(item.values())


# ---------------------------------------------------------------------------------------------------------------------
# One version of a schema.


def payload_schema(document: Document) -> dict[str, Any]:
    """The JSON Schema that manifests of a document's version conform to.

    Args:
        document: One version of a schema, linked to those that it uses.

    Returns:
        A JSON Schema. It refuses another schema, version or fingerprint, a missing or unknown field, another dtype,
        another number of axes, another type, a name that is no member of its enum, and numbers out of their bounds.
    """
    made = manifest_schema()
    owners = document.closure()
    identity = {
        "id": {"const": document.id},
        "version": {"const": document.version},
        "fingerprint": {"const": payload_fingerprint(document)},
    }
    made["properties"] |= {
        "schema": {"allOf": [made["properties"]["schema"], {"properties": identity}]},
        "manifest": {"$ref": f"#/definitions/{document.ref(document.root)}"},
    }
    made["required"] = [*made["required"], "schema"]
    made["definitions"] |= {
        owner.ref(name): _struct(owner, name) for owner in owners for name in owner.structs
    }
    made["title"] = f"manifest.json of {document.id} version {document.version}"
    made["$id"] = f"{made['$id'].removesuffix('.json')}/{document.id}@{document.version}.json"
    return made


def _struct(document: Document, name: str) -> Rule:
    declared = document.structs[name]
    fields = {
        # Readers accept any value of a field that is not stored.
        field: _field(document, member) if member.stored else ANY_NODE
        for field, member in declared.fields.items()
    }
    inside = {
        "type": "object",
        "properties": fields,
        "required": list(declared.stored),
        "additionalProperties": False,
    }
    node = kind_rule("struct", type={"const": document.ref(name)}, fields=inside)
    return node | ({"description": declared.doc} if declared.doc else {})


# ---------------------------------------------------------------------------------------------------------------------
# Fields.


def _field(document: Document, member: FieldDeclaration) -> Rule:
    declared = member.declared
    rule = ANY_NODE if member.type is None else declared.record.rule(declared, document)
    conditions = [*_bounds(member)]
    whole = {"allOf": [rule, *conditions]} if conditions else rule
    return {"description": member.doc, "allOf": [whole]} if member.doc else whole


def _bounds(member: FieldDeclaration) -> Iterable[Rule]:
    """The rules of constraints; each keyword concerns one JSON type only, so that null and nodes pass."""
    numbers = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
    numeric = {
        keyword: getattr(member, name)
        for name, keyword in numbers.items()
        if getattr(member, name) is not None
    }
    if (
        isinstance(member.multiple_of, int) and member.multiple_of > 0
    ):  # of fractions, validators disagree
        numeric["multipleOf"] = member.multiple_of
    if numeric:
        yield numeric
    strings: Rule = _lengths(member, "Length")
    if member.pattern is not None and not re.search(r"\(\?|\\[AZdDsSwWbB]", member.pattern):
        strings["pattern"] = f"^(?:{member.pattern})$"  # what is left means the same in ECMA 262
    if strings:
        yield strings
    if items := _lengths(member, "Items"):
        containers = {
            "type": "object",
            "properties": {"__kind__": {"enum": _COLLECTIONS}},
        }
        yield {"if": containers, "then": {"properties": {"items": items}}}
    if member.choices is not None:
        yield {"if": _PLAIN, "then": {"enum": member.choices}}
    if member.finite:
        yield {
            "if": {"type": "object"},
            "then": {"properties": {"__kind__": {"not": {"const": "float"}}}},
        }


def _lengths(member: FieldDeclaration, what: str) -> Rule:
    bounds = {f"min{what}": member.min_length, f"max{what}": member.max_length}
    return {keyword: bound for keyword, bound in bounds.items() if bound is not None}
