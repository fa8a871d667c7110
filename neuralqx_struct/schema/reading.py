"""Reading documents: from the values of a file to a validated document, or to everything that is wrong with it.

Owns the translation of Pydantic's findings into positioned diagnostics, and the parsing of every type and expression, so
that one reading tells all structural problems. Files become values in ``loader.py``; what the members are is
``model.py``; what a document means as a whole is ``lint.py``.

Example:
    >>> data = {"language": "1", "schema": "lab.point", "version": 1, "root": "Point"}
    >>> document_from_data({**data, "structs": {"Point": {"fields": {"x": "float32[n]"}}}}, "<data>").ref("Point")
    'lab.point@1:Point'
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from neuralqx_struct.errors import Diagnostic, SchemaError, did_you_mean
from neuralqx_struct.schema import limits
from neuralqx_struct.schema.migration import Declaration
from neuralqx_struct.schema.model import Constraint, DimDeclaration, Document, FieldDeclaration, language_schema
from neuralqx_struct.schema.source import Source

__all__ = ["document_from_data", "parse_document"]


def parse_document(source: Source) -> Document:
    """Validate what a file holds.

    Args:
        source: The file as read by ``loader.read_file`` or ``loader.read_text``.

    Returns:
        The document. Names in it are not resolved yet; ``lint`` does that.

    Raises:
        SchemaError: Every structural problem at once: unknown and missing members, wrong types, malformed types and
            expressions, each with file, line and column.

    Example:
        >>> from neuralqx_struct.schema.loader import read_text
        >>> parse_document(read_text("language: '1'"))
        Traceback (most recent call last):
        neuralqx_struct.errors.SchemaError: <text>:1:1: NQX010 expected a member 'schema', got none...
    """
    document: Document | None = None
    problems: list[Diagnostic] = []
    try:
        document = Document.model_validate(source.data)
    except ValidationError as error:
        problems = _positioned(error, source)
    problems += _malformed(source, document)
    if document is None or problems:
        problems.sort(key=lambda d: (d.line or 0, d.column or 0))
        if len(problems) > limits.MAX_PROBLEMS:
            message = f"expected at most {limits.MAX_PROBLEMS} problems, got more"
            hint = "mend these first; the others are not listed"
            problems[limits.MAX_PROBLEMS :] = [source.diagnostic("NQX005", (), message, hint=hint)]
        raise SchemaError(problems)
    return document


def document_from_data(data: Any, name: str) -> Document:
    """Validate a document that travels as plain values, such as the ones inside a manifest."""
    return parse_document(Source(name=name, data=data, marks={}))


def _malformed(source: Source, document: Document | None) -> list[Diagnostic]:
    """Parse every type and expression of the file, collecting what is wrong with them.

    Where there is no document, each part is validated for itself, so that a mistake elsewhere in the file does not hide
    what is wrong with it.
    """
    found: list[Diagnostic] = []
    different: set[str] = set()
    for path, model, attribute in _expressions(source.data):
        raw: Any = source.data
        for key in path:
            raw = raw[key]
        text = raw.get(_WRITTEN_AS[attribute]) if isinstance(raw, dict) else raw
        if isinstance(text, str) and not text.isidentifier():
            different.add(text)
        if len(found) > limits.MAX_PROBLEMS or len(different) > limits.MAX_EXPRESSIONS:
            break
        try:
            getattr(model.model_validate(raw) if document is None else _declaration(document, path), attribute)
        except SchemaError as error:
            where = path if isinstance(raw, str) else (*path, _WRITTEN_AS[attribute])
            found += [source.diagnostic(d.code, where, d.message, hint=d.hint) for d in error.diagnostics]
        except ValidationError:
            continue
    if len(different) > limits.MAX_EXPRESSIONS:
        message = f"expected at most {limits.MAX_EXPRESSIONS} different types and expressions, got more"
        found.append(source.diagnostic("NQX005", (), message, hint="split the schema: `uses:` names others"))
    return found


def _declaration(document: Document, path: tuple[Any, ...]) -> Declaration:
    """What stands at one of the paths of :func:`_expressions`."""
    if path[0] == "dims":
        return document.dims[path[1]]
    struct = document.structs[path[1]]
    return struct.fields[path[3]] if path[2] == "fields" else struct.constraints[path[3]]


#: The member that holds the text of a parsed attribute.
_WRITTEN_AS = {"equation": "equals", "declared": "type", "derivation": "derived", "expression": "expr"}


def _expressions(data: Any) -> Iterator[tuple[tuple[str | int, ...], type[Declaration], str]]:
    """Where a file holds types and expressions: path, the model that stands there, its parsed attribute."""
    for name in _mapping(data, "dims"):
        yield ("dims", name), DimDeclaration, "equation"
    for struct_name, struct in _mapping(data, "structs").items():
        for name, field in _mapping(struct, "fields").items():
            yield ("structs", struct_name, "fields", name), FieldDeclaration, "declared"
            if isinstance(field, dict) and "derived" in field:
                yield ("structs", struct_name, "fields", name), FieldDeclaration, "derivation"
        constraints = struct.get("constraints") if isinstance(struct, dict) else None
        for i in range(len(constraints) if isinstance(constraints, list) else 0):
            yield ("structs", struct_name, "constraints", i), Constraint, "expression"


def _mapping(data: Any, member: str) -> Mapping[str, Any]:
    value = data.get(member) if isinstance(data, dict) else None
    return value if isinstance(value, dict) else {}


def _positioned(error: ValidationError, source: Source) -> list[Diagnostic]:
    """Pydantic's findings as diagnostics; alternatives of one place are reported once."""
    found: dict[tuple[Any, ...], Diagnostic] = {}
    # One more than is told, so that it can be told that there are more.
    told = error.errors(include_url=False)[: limits.MAX_PROBLEMS + 1]
    items = [(item, _path_in(source.data, item["loc"])) for item in told]
    sorts: dict[tuple[str | int, ...], list[str]] = {}
    for item, path in items:
        if item["type"] in _SORT_WANTED:
            sorts.setdefault(path, []).append(_SORT_WANTED[item["type"]])
    for item, path in items:
        code, message, hint, on_key = _explain(item, path, sorts.get(path, ()))
        where = path[:-1] if item["type"] == "missing" else path
        found.setdefault((where, message), source.diagnostic(code, where, message, hint=hint, key=on_key))
    return list(found.values())


def _path_in(data: Any, loc: Sequence[str | int]) -> tuple[str | int, ...]:
    """Pydantic's location without the names of union members and validators that it puts between the keys."""
    path: list[str | int] = []
    for part in loc:
        if part == "[key]":
            break
        known = (isinstance(data, Mapping) and part in data) or (
            isinstance(data, list) and isinstance(part, int) and part < len(data)
        )
        if known:
            path.append(part)
            data = data[part]
        elif isinstance(data, Mapping) and part is loc[-1]:
            path.append(part)
    return tuple(path)


#: The sort of value that is missed by each of Pydantic's findings about sorts, in the words of the schema language.
_SORT_WANTED = {
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), "a mapping"),
    "list_type": "a list",
    "string_type": "text",
    "bool_type": "true or false",
    "int_type": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
}

#: JSON names of Python types, for "got a mapping" instead of "got dict".
_SORTS = {dict: "a mapping", list: "a list", str: "text", bool: "a boolean", int: "an integer", float: "a number"}


def _explain(item: Any, path: tuple[str | int, ...], sorts: Sequence[str]) -> tuple[str, str, str | None, bool]:
    """Code, message, hint and whether the key itself is at fault, for one of Pydantic's findings.

    ``sorts`` are the sorts of value that may stand here, where the finding is that none of them does.
    """
    kind, value, context = item["type"], item["input"], item.get("ctx", {})
    got = "nothing" if value is None else f"{_SORTS.get(type(value), type(value).__name__)} {_short(value)}".strip()
    if kind == "extra_forbidden":
        known = _members(path[:-1])
        # `{doc: sites, along x}`: YAML takes what stands behind the comma for a member without a value.
        comma = "inside {...} a comma ends a value: put text that holds one in quotes\n" if value is None else ""
        elsewhere = _ELSEWHERE.get(str(path[-1])) if _is_field(path[:-1]) else None
        if len(path) == 3 and path[0] == "structs":
            elsewhere = "fields stand one level deeper, under `fields:`"
        if path[0] == "dims" and isinstance(value, int):
            elsewhere = f"write {{equals: {value}}}, or bounds such as {{min: 1, max: 64}}"
        hint = did_you_mean(str(path[-1]), known) or elsewhere or f"{comma}{_one_of(known) or ''}" or None
        return "NQX009", f"expected a known member, got {path[-1]!r}", hint, True
    if kind == "missing":
        return "NQX010", f"expected a member {item['loc'][-1]!r}, got none", f"add `{item['loc'][-1]}:` here", False
    if kind == "string_pattern_mismatch" and path[:1] == ("uses",):
        hint = "write the identity of the schema and the version, such as lab.optim@2"
        return "NQX010", f"expected another schema, got {got}", hint, False
    if kind == "string_pattern_mismatch" and path == ("schema",):
        hint = "write names with dots between them, such as lab.optim"
        return "NQX118", f"expected an identity, got {got}", hint, False
    if kind == "string_pattern_mismatch":
        message = f"expected a name (letters, digits, _, not starting with a digit), got {value!r}"
        return "NQX118", message, None, "[key]" in item["loc"]
    if path in {("language",), ("version",)}:
        wanted = 'language: "1"' if path == ("language",) else "a whole number from 1 on, such as `version: 3`"
        unquoted = path == ("language",) and isinstance(value, (int, float))
        return ("NQX012" if unquoted else "NQX008"), f"expected {wanted}, got {got}", None, False
    if kind == "literal_error":
        expected = context["expected"]
        return (
            "NQX010",
            f"expected {expected}, got {got}",
            did_you_mean(str(value), re.findall(r"'([^']*)'", expected)),
            False,
        )
    if kind == "value_error":
        return "NQX010", f"expected {context['error']}", None, False
    if kind == "too_short":
        return "NQX010", "expected at least one entry, got none", None, False
    if kind in _SORT_WANTED:
        # Every whole number is a number; one message tells all alternatives of a place.
        wider = [sort for sort in sorts if sort != "a whole number" or "a number" not in sorts]
        wanted = "a type or a mapping" if _is_field(path) else " or ".join(sorted(set(wider)))
    elif kind == "greater_than_equal":
        wanted = f"a number >= {context['ge']}"
    else:
        wanted = item["msg"].removeprefix("Input should be ")
    return "NQX010", f"expected {wanted}, got {got}", _in_place_of(wanted, path, value), False


def _in_place_of(wanted: str, path: tuple[str | int, ...], value: Any) -> str | None:
    """What to write in place of a value of the wrong sort."""
    if value is None or isinstance(value, (dict, list)):
        return None
    if wanted == "text":
        return "quote it"
    if wanted == "a list":
        return f"write [{value}]"
    if path[:1] == ("dims",) and len(path) == 2:
        return f"write {{equals: {value}}}, or bounds such as {{min: 1, max: 64}}"
    if path[-2:-1] == ("constraints",):
        return f'write {{expr: "{value}"}}'
    return None


def _is_field(path: Sequence[str | int]) -> bool:
    """True for the place of a field's declaration, which may be written as the text of a type."""
    return len(path) == 4 and path[0] == "structs" and path[2] == "fields"


def _short(value: Any) -> str:
    return "" if isinstance(value, (dict, list)) else repr(value)[:60]


#: What members of other schema languages are called here.
_ELSEWHERE: Mapping[str, str] = {
    "optional": "write the type as `T | null`, or give a default",
    "nullable": "write the type as `T | null`",
    "required": "every field without a default is required; give a default where it is not",
    "static": "write `kind: static`",
    "opaque": "write `kind: opaque`",
    **dict.fromkeys(("description", "help", "title", "comment"), "write `doc:`"),
    **dict.fromkeys(("enum", "values", "options"), 'write `choices: [...]`, or type: literal["a", "b"]'),
    **dict.fromkeys(("minimum", "min"), "write `ge:`"),
    **dict.fromkeys(("maximum", "max"), "write `le:`"),
}


def _one_of(names: Sequence[str]) -> str | None:
    return f"known members: {', '.join(names)}" if names else None


_language = functools.cache(language_schema)


def _members(path: tuple[str | int, ...]) -> list[str]:
    """The member names that the model allows at ``path``: what a misspelt one may have been meant to be."""
    schema = _language()
    here: Any = schema
    for part in path:
        here = _step_into(schema, here, part)
    return sorted({name for option in _options(schema, here) for name in option.get("properties", {})})


def _options(schema: Any, here: Any) -> list[Any]:
    while isinstance(here, dict) and "$ref" in here:
        here = schema["$defs"][here["$ref"].rsplit("/", 1)[1]]
    if not isinstance(here, dict):
        return []
    return [leaf for option in here["anyOf"] for leaf in _options(schema, option)] if "anyOf" in here else [here]


def _step_into(schema: Any, here: Any, part: str | int) -> Any:
    for option in _options(schema, here):
        if isinstance(part, int) and "items" in option:
            return option["items"]
        if part in option.get("properties", {}):
            return option["properties"][part]
        if isinstance(option.get("additionalProperties"), dict):
            return option["additionalProperties"]
    return {}
