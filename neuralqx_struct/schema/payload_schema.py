"""A JSON Schema for one version of one schema, so that tools which know nothing of us can check its manifests.

Owns :func:`payload_schema`: the published JSON Schema of manifests, narrowed to what the structs of a document declare.
It is written in the keywords that draft-07 and 2020-12 share, and decides by ``if`` and ``then`` rather than by
``anyOf``, so that a validator names the place that is wrong. What no JSON Schema can say is left to ``validate``: that
sizes agree with each other, expressions, and the numbers in arrays.

Example:
    >>> from neuralqx_struct.schema.series import load_series
    >>> made = payload_schema(load_series("schemas/vmc_state").head)
    >>> made["definitions"]["neuralqx.vmc_state@3:Sampler"]["properties"]["fields"]["required"]
    ['sigma', 'key']
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from neuralqx_struct.manifest_schema import manifest_schema
from neuralqx_struct.schema.evaluation import evaluate
from neuralqx_struct.schema.fingerprint import payload_fingerprint
from neuralqx_struct.schema.model import Document, FieldDeclaration
from neuralqx_struct.schema.types import (
    DTYPES,
    Array,
    DictOf,
    Extent,
    Key,
    ListOf,
    LiteralOf,
    Named,
    Null,
    PyTree,
    Scalar,
    TupleOf,
    Type,
    Union,
)

__all__ = ["payload_schema"]

Rule = dict[str, Any]

_NODE: Rule = {"$ref": "#/definitions/Node"}
#: Plain text, numbers and truth values: what constraints of fields are about.
_PLAIN: Rule = {"type": ["string", "number", "boolean"]}
#: What a scalar of each type may be in a manifest: JSON types, kinds of nodes, families of arrays without axes.
_SCALARS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    "bool": (("boolean",), (), ("bool",)),
    "int": (("integer",), ("bigint",), ("integer", "unsigned")),
    "float": (("number",), ("float", "bigint"), ("floating",)),
    "complex": (("number",), ("complex", "float", "bigint"), ("complex",)),
    "str": (("string",), (), ()),
    "bytes": ((), ("bytes",), ()),
    "path": ((), ("path",), ()),
    "dtype": ((), ("dtype",), ()),
}


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
        "manifest": _reference(document, document.root),
    }
    made["required"] = [*made["required"], "schema"]
    made["definitions"] |= {owner.ref(name): _struct(owner, name) for owner in owners for name in owner.structs}
    made["title"] = f"manifest.json of {document.id} version {document.version}"
    made["$id"] = f"{made['$id'].removesuffix('.json')}/{document.id}@{document.version}.json"
    return made


def _reference(document: Document, name: str) -> Rule:
    return {"$ref": f"#/definitions/{document.ref(name)}"}


def _struct(document: Document, name: str) -> Rule:
    declared = document.structs[name]
    fields = {
        # Payloads that hold what is not stored are taken by every reader, which asks nothing of it.
        field: _field(document, said) if said.stored else _NODE
        for field, said in declared.fields.items()
    }
    inside = {
        "type": "object",
        "properties": fields,
        "required": list(declared.stored),
        "additionalProperties": False,
    }
    node = _kind("struct", type={"const": document.ref(name)}, fields=inside)
    return node | ({"description": declared.doc} if declared.doc else {})


def _kind(*kinds: str, **members: Rule) -> Rule:
    """A node of one of some kinds with members."""
    kind = {"const": kinds[0]} if len(kinds) == 1 else {"enum": list(kinds)}
    return {
        "type": "object",
        "required": ["__kind__", *members],
        "properties": {"__kind__": kind, **members},
    }


# ---------------------------------------------------------------------------------------------------------------------
# Fields.


def _field(document: Document, said: FieldDeclaration) -> Rule:
    rule = _NODE if said.type is None else _rule(document, said.declared)
    conditions = [*_bounds(said)]
    whole = {"allOf": [rule, *conditions]} if conditions else rule
    return {"description": said.doc, "allOf": [whole]} if said.doc else whole


def _bounds(said: FieldDeclaration) -> Iterable[Rule]:
    """What constraints ask of a value; each keyword concerns one JSON type only, so that null and nodes pass."""
    numbers = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
    numeric = {keyword: getattr(said, name) for name, keyword in numbers.items() if getattr(said, name) is not None}
    if isinstance(said.multiple_of, int) and said.multiple_of > 0:  # of fractions, validators disagree
        numeric["multipleOf"] = said.multiple_of
    if numeric:
        yield numeric
    strings: Rule = _lengths(said, "Length")
    if said.pattern is not None and not re.search(r"\(\?|\\[AZdDsSwWbB]", said.pattern):
        strings["pattern"] = f"^(?:{said.pattern})$"  # what is left means the same in ECMA 262
    if strings:
        yield strings
    if items := _lengths(said, "Items"):
        containers = {"type": "object", "properties": {"__kind__": {"enum": ["list", "tuple", "dict", "ordered-dict"]}}}
        yield {"if": containers, "then": {"properties": {"items": items}}}
    if said.choices is not None:
        yield {"if": _PLAIN, "then": {"enum": said.choices}}
    if said.finite:
        yield {"if": {"type": "object"}, "then": {"properties": {"__kind__": {"not": {"const": "float"}}}}}


def _lengths(said: FieldDeclaration, what: str) -> Rule:
    bounds = {f"min{what}": said.min_length, f"max{what}": said.max_length}
    return {keyword: bound for keyword, bound in bounds.items() if bound is not None}


# ---------------------------------------------------------------------------------------------------------------------
# Types.


def _rule(document: Document, declared: Type) -> Rule:
    return _RULES[type(declared)](document, declared)


def _shape(extents: tuple[Extent, ...], more: int = 0) -> Rule:
    """The list of sizes; ``more`` axes follow those that are declared."""
    sizes = [None if size is ... or size.names else int(evaluate(size, {})) for size in extents]
    if None not in sizes and not more:
        return {"const": sizes}
    named = len(extents) - extents.count(...) + more
    rule: Rule = {"type": "array", "minItems": named}
    return rule if ... in extents else rule | {"maxItems": named}


def _array(_: Document, declared: Array) -> Rule:
    return _kind("array", "full", dtype={"const": declared.dtype}, shape=_shape(declared.shape))


def _key(_: Document, declared: Key) -> Rule:
    impl: Rule = {"type": "string"} if declared.impl is None else {"const": declared.impl}
    return _kind(
        "prng-key", impl=impl, data=_kind("array", dtype={"const": "uint32"}, shape=_shape(declared.shape, more=1))
    )


def _scalar(_: Document, declared: Scalar) -> Rule:
    types, kinds, families = _SCALARS[declared.name]
    if not types and len(kinds) == 1:
        return _kind(*kinds)
    nodes = list(kinds)
    rule: Rule = {"type": [*types, "object"] if kinds or families else list(types)}
    if not families:
        return rule
    arrays = [name for name, dtype in DTYPES.items() if dtype.family in families]
    without_axes = {"properties": {"dtype": {"enum": arrays}, "shape": {"const": []}}}
    inside = _kind("array", "full", *nodes)
    is_array = {"properties": {"__kind__": {"enum": ["array", "full"]}}}
    return rule | {"if": {"type": "object"}, "then": {"allOf": [inside, {"if": is_array, "then": without_axes}]}}


def _literal(_: Document, declared: LiteralOf) -> Rule:
    return {"enum": list(declared.values)}


def _named(document: Document, declared: Named) -> Rule:
    members = document.members_of(declared.name)
    if members is None:
        return _reference(document, declared.name)
    # Members are text, or members of an Enum of Python, which manifests name.
    member = {"enum": list(members)}
    return {"if": {"type": "object"}, "then": _kind("enum", name=member), "else": member}


def _list(document: Document, declared: ListOf) -> Rule:
    return _kind("list", items={"type": "array", "items": _rule(document, declared.item)})


def _tuple(document: Document, declared: TupleOf) -> Rule:
    # Drafts do not share a keyword for the items of a tuple one by one: each may be any of them.
    rules = list({str(rule): rule for rule in (_rule(document, item) for item in declared.items)}.values())
    items: Rule = {"type": "array"}
    if rules:
        items["items"] = rules[0] if len(rules) == 1 else {"anyOf": rules}
    if not declared.variadic:
        items |= {"minItems": len(declared.items), "maxItems": len(declared.items)}
    return _kind("tuple", items=items)


def _dict(document: Document, declared: DictOf) -> Rule:
    value = _rule(document, declared.value)
    # A pair is the key, which is text, and the value: what is not text must be a value, and there is one.
    pair = {
        "type": "array",
        "minItems": 2,
        "maxItems": 2,
        "items": {"if": {"type": "string"}, "else": value},
        "contains": value,
    }
    return _kind("dict", "ordered-dict", items={"type": "array", "items": pair})


def _union(document: Document, declared: Union) -> Rule:
    """The first option whose sort a value has is the one that is meant, as for every reader."""
    rules = [_rule(document, option) for option in declared.options]
    whole: Rule = {"anyOf": rules}
    if Null() in declared.options and len(rules) == 2:
        whole = next(rule for option, rule in zip(declared.options, rules, strict=True) if option != Null())
        return {"if": {"type": "null"}, "else": whole}
    for option, rule in reversed([*zip(declared.options, rules, strict=True)]):
        whole = {"if": _sort(document, option, rule), "then": rule, "else": whole}
    return whole


def _sort(document: Document, option: Type, rule: Rule) -> Rule:
    """What tells that a value is meant to be of an option, right or wrong inside."""
    match option:
        case Named(name) if document.is_struct(name):
            return _kind("struct", type={"const": document.ref(name)})
        case ListOf():
            return _kind("list")
        case TupleOf():
            return _kind("tuple")
        case DictOf():
            return _kind("dict", "ordered-dict")
        case Key():
            return _kind("prng-key")
        case _:
            return rule


_RULES: Mapping[type, Callable[[Document, Any], Rule]] = {
    Array: _array,
    Key: _key,
    Scalar: _scalar,
    Null: lambda *_: {"type": "null"},
    LiteralOf: _literal,
    Named: _named,
    ListOf: _list,
    TupleOf: _tuple,
    DictOf: _dict,
    Union: _union,
    PyTree: lambda *_: _NODE,
}
