"""The published JSON Schema of ``manifest.json``, generated from the models.

Example:
    >>> manifest_schema()["properties"]["version"]
    {'const': 1, 'type': 'integer'}
"""

from __future__ import annotations

from typing import Any

from neuralqx_struct.manifest.check import SCHEMA_URL
from neuralqx_struct.manifest.models import Manifest


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
