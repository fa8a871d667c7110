"""Exports: JSON Schemas of manifests, and an outline of a schema in lines.

:func:`manifest_schema` is the published JSON Schema of manifests, generated from the models; :func:`payload_schema` narrows
it to the declarations of one document. Both have the keywords that draft-07 and 2020-12 share, and ``if`` and ``then``
rather than ``anyOf``, so that a validator names the place. ``validate`` alone checks sizes, expressions and arrays.

Example:
    >>> from neuralqx_struct.schema.series import load_series
    >>> made = payload_schema(load_series("schemas/vmc_state").head)
    >>> made["definitions"]["neuralqx.vmc_state@3:Sampler"]["properties"]["fields"]["required"]
    ['sigma', 'key']
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from neuralqx_struct.dtypes import CODED_DTYPES, ML_DTYPES, NUMPY_DTYPES
from neuralqx_struct.expressions import Expression, parse
from neuralqx_struct.manifest import SCHEMA_URL
from neuralqx_struct.manifest.kinds import KINDS
from neuralqx_struct.manifest.models import Manifest
from neuralqx_struct.printing import columns, padded
from neuralqx_struct.schema.bounds import whole_range
from neuralqx_struct.schema.lock import payload_fingerprints
from neuralqx_struct.schema.model import Document, FieldDeclaration
from neuralqx_struct.types import Rule, Type, walk_type
from neuralqx_struct.types.scalars import ANY_NODE, kind_rule
from neuralqx_struct.types.stacked import stacked_ref

__all__ = ["manifest_schema", "outline", "payload_schema"]

#: Kinds of nodes whose items have a length.
_COLLECTIONS = [tag for tag, kind in KINDS.items() if kind.sort in ("list", "tuple", "dict")]
#: Plain text, numbers and truth values, to which constraints of fields apply.
_PLAIN: Rule = {"type": ["string", "number", "boolean"]}
#: Any node but that of nan or an infinity.
_NO_FLOAT: Rule = {"properties": {"__kind__": {"not": {"const": "float"}}}}
_LARGE = 10**19  # the first integer of 20 digits; of 64 bits, some of 19 are beyond
#: The dtypes that a bundle can hold: by name, and with a byte order, of text and of dates, as numpy writes them.
_STORED_DTYPE: Rule = {
    "anyOf": [
        {"enum": sorted(NUMPY_DTYPES | ML_DTYPES)},
        {"pattern": f"^(?:{CODED_DTYPES.pattern})$"},
    ]
}


def manifest_schema() -> dict[str, Any]:
    """The published JSON Schema of ``manifest.json``.

    The tag of a node selects its model, so that validators report errors of that model alone.
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
        "fingerprint": {"enum": payload_fingerprints(document)},
    }
    made["properties"] |= {
        "schema": {"allOf": [made["properties"]["schema"], {"properties": identity}]},
        "manifest": {"$ref": f"#/definitions/{document.ref(document.root)}"},
    }
    made["required"] = [*made["required"], "schema"]
    for definition in made["definitions"].values():
        if "dtype" in definition.get("properties", {}):  # also of arrays that no field declares
            definition["properties"]["dtype"] |= _STORED_DTYPE
    made["definitions"] |= _structs(owners)
    made["title"] = f"manifest.json of {document.id} version {document.version}"
    made["$id"] = f"{made['$id'].removesuffix('.json')}/{document.id}@{document.version}.json"
    return made


def _structs(owners: Iterable[Document]) -> dict[str, Rule]:
    """The definitions of all structs, and of those that some type stacks, by their numbers of leading axes."""
    todo = [(owner, name, 0) for owner in owners for name in owner.structs]
    made: dict[str, Rule] = {}
    for owner, name, axes in todo:
        ref = stacked_ref(owner, name, axes)
        if ref in made or name not in owner.structs:
            continue
        types = _types(owner, name, (parse("_"),) * axes)
        made[ref] = _struct(owner, name, types)
        inside = (inner for declared in types.values() for inner in walk_type(declared))
        for inner in (each for each in inside if each.stacks):
            todo.append((*owner.place_of(inner.parts[0].refers), len(inner.extents)))  # noqa: PERF401
    return made


def _types(document: Document, name: str, axes: tuple[Expression, ...]) -> dict[str, Type]:
    """The types of the stored fields of a struct whose arrays have axes in front."""
    stored = document.structs[name].stored
    types = {field: member.declared for field, member in stored.items()}
    nodes = [field for field in types if axes and stored[field].kind == "node"]
    return types | {field: types[field].with_axes(axes) for field in nodes}


def _struct(document: Document, name: str, types: Mapping[str, Type]) -> Rule:
    declared = document.structs[name]
    fields = {
        # Readers accept any value of a field that is not stored.
        field: _field(document, member, types[field]) if field in types else ANY_NODE
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


def _field(document: Document, member: FieldDeclaration, declared: Type) -> Rule:
    rule = ANY_NODE if member.type is None else declared.rule(document)
    conditions = [*_bounds(member)]
    if conditions:
        inside = {"properties": {"value": {"allOf": conditions}}}
        conditions = [*conditions, {"if": kind_rule("numpy-scalar"), "then": inside}]
    whole = {"allOf": [rule, *conditions]} if conditions else rule
    return {"description": member.doc, "allOf": [whole]} if member.doc else whole


def _bounds(member: FieldDeclaration) -> Iterable[Rule]:
    """The rules of constraints; each keyword concerns one JSON type only, so that null and nodes pass."""
    numbers = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
    numeric = _given({keyword: getattr(member, name) for name, keyword in numbers.items()})
    multiple = member.multiple_of
    if isinstance(multiple, int) and multiple > 0:  # of fractions, validators disagree
        numeric["multipleOf"] = multiple
    if numeric:
        yield numeric
        yield from _bounds_as_text(member, numbers)
    shortest, longest = member.min_length, member.max_length
    strings = _given({"minLength": shortest, "maxLength": longest})
    if member.pattern is not None and _is_portable(member.pattern):
        strings["pattern"] = f"^(?:{member.pattern})$"
    if strings:
        yield strings
    items = _given({"minItems": shortest, "maxItems": longest})
    if items:
        collection = {"type": "object", "properties": {"__kind__": {"enum": _COLLECTIONS}}}
        yield {"if": collection, "then": {"properties": {"items": items}}}
    if member.choices is not None:
        yield {"if": _PLAIN, "then": {"enum": member.choices}}
    if member.finite and not numeric:
        yield {"if": {"type": "object"}, "then": _NO_FLOAT}


def _bounds_as_text(member: FieldDeclaration, names: Iterable[str]) -> Iterator[Rule]:
    """The rules for numbers that JSON has as text: nan, the infinities, and integers beyond 64 bits."""
    low, high = whole_range({name: getattr(member, name) for name in names})
    fits = {"inf": high == math.inf, "-inf": low == -math.inf}
    values = [] if member.finite else [value for value, is_fit in fits.items() if is_fit]
    if member.multiple_of is not None or not values:
        yield {"if": {"type": "object"}, "then": _NO_FLOAT}
    else:
        yield {"if": kind_rule("float"), "then": {"properties": {"value": {"enum": values}}}}
    for is_refused, sign in ((low > -_LARGE, "-"), (high < _LARGE, "")):
        if is_refused:
            others = {"not": {"pattern": f"^{sign}[1-9][0-9]{{19}}"}}
            yield {"if": kind_rule("bigint"), "then": {"properties": {"value": others}}}


#: Flags and groups with names, escapes but those of controls, operators of classes, repeated groups, and repeated repeats.
_FOREIGN = re.compile(r"\(\?|\\[^\W_fnrtv]|\\[<>]|&&|--|~~|\[[^\]]+\[|\)[*+?{]|[*+?}][*+]")


def _is_portable(pattern: str) -> bool:
    """True for a pattern that means the same in ECMA 262, and has few repeats, none of groups: other engines may try all their ways."""
    return _FOREIGN.search(pattern) is None and len(re.findall(r"[*+?{|]", pattern)) <= 3


def _given(rules: Rule) -> Rule:
    return {keyword: value for keyword, value in rules.items() if value is not None}


# ---------------------------------------------------------------------------------------------------------------------
# Text.


def outline(document: Document) -> list[str]:
    """A version in lines, indented by their parents: sizes, enums, structs with their fields, steps.

    Example:
        >>> from neuralqx_struct.schema.series import load_series
        >>> outline(load_series("schemas/vmc_state").head)[:2]
        ['dim n_sites: min 2; lattice sites', 'dim n_hidden: = alpha * n_sites; hidden units']
    """
    lines: list[str] = []
    for name, dim in document.dims.items():
        given = {"=": dim.equation, "min": dim.min, "max": dim.max}
        facts = [f"{word} {value}" for word, value in given.items() if value is not None]
        facts += [dim.doc] if dim.doc else []
        lines.append(f"dim {name}: {'; '.join(facts)}".rstrip(": "))
    lines += [f"enum {name}: {', '.join(enum.members)}" for name, enum in document.enums.items()]
    for name, struct in document.structs.items():
        params = f"[{', '.join(struct.params)}]" if struct.params else ""
        lines.append(f"struct {name}{params}{' (root)' if name == document.root else ''}")
        width = max(map(columns, struct.fields), default=0)
        types = {field: declaration.text for field, declaration in struct.fields.items()}
        type_width = min(max(map(columns, types.values()), default=0), 40)
        for field, declaration in struct.fields.items():
            text = f"  {padded(field, width)}  {padded(types[field], type_width)}  "
            lines.append(f"{text}{'; '.join(_facts(declaration))}".rstrip())
        lines += [f"  constraint {constraint.expr}" for constraint in struct.constraints]
        lines += [f"  reserved {', '.join(struct.reserved)}"] if struct.reserved else []
    for migration in document.migrations:
        steps = ", ".join(item.name for item in migration.steps)
        lines.append(f"migration from {migration.from_version}: {steps}")
    return [line.replace("\n", " ") for line in lines]


def _facts(declaration: FieldDeclaration) -> list[str]:
    facts: list[str] = []
    if declaration.kind != "node":
        facts.append(declaration.kind)
    if declaration.derived is not None:
        facts.append(f"= {declaration.derived}")
    if declaration.has_default:
        facts.append(f"default {json.dumps(declaration.default)}")
    for word, names in (("tags", declaration.tags), ("axes", declaration.axes)):
        facts += [f"{word} {', '.join(names)}"] if names else []
    return [*facts, declaration.doc] if declaration.doc else facts
