"""Reading documents: from the values of a file to a validated document, or to all of its errors.

Owns the translation of Pydantic's errors into diagnostics, and the parsing of every type and expression, so that one
reading reports all structural errors. ``text/`` reads files, ``model.py`` has the models, ``lint/`` checks the meaning.

Example:
    >>> data = {"language": "1", "schema": "lab.point", "version": 1, "root": "Point"}
    >>> document_from_data({**data, "structs": {"Point": {"fields": {"x": "float32[n]"}}}}, "<data>").ref("Point")
    'lab.point@1:Point'
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from neuralqx_struct.errors import Diagnostic, SchemaError, did_you_mean
from neuralqx_struct.schema import text
from neuralqx_struct.schema.language import member_names, model_at
from neuralqx_struct.schema.model import (
    Constraint,
    DimDeclaration,
    Document,
    FieldDeclaration,
    StructDeclaration,
)
from neuralqx_struct.schema.text import KeyPath, Source

#: Returns the model of the declaration at a path of a file, if there is one.
ModelAt = Callable[[KeyPath], Any]


def parse_document(source: Source) -> Document:
    """Validates the content of a file.

    Args:
        source: The file as read by ``loader.read_file`` or ``loader.read_text``.

    Returns:
        The document. Names in it are not resolved yet; lint does that.

    Raises:
        SchemaError: Every structural error at once: unknown and missing members, wrong types, malformed types and
            expressions, each with file, line and column.

    Example:
        >>> from neuralqx_struct.schema.text.loader import read_text
        >>> parse_document(read_text("language: '1'"))
        Traceback (most recent call last):
        neuralqx_struct.errors.SchemaError: <text>:1:1: NQX010 expected a member 'schema', got none...
    """
    document: Document | None = None
    problems: list[Diagnostic] = []
    try:
        document = Document.model_validate(source.data)
    except ValidationError as error:
        problems = structural(error, source)
    problems += _malformed(source, document)
    if document is not None and not problems:
        return document
    raise all_of(problems, source)


def all_of(problems: Iterable[Diagnostic], source: Source) -> SchemaError:
    """The error with the problems of a file in their order; of very many with the first ones."""
    ordered = sorted(problems, key=lambda d: (d.line or 0, d.column or 0))
    most = text.MAX_PROBLEMS
    if len(ordered) > most:
        message = f"expected at most {most} problems, got more"
        hint = text.FIX_THESE_FIRST
        ordered[most:] = [source.diagnostic("NQX005", (), message, hint=hint)]
    return SchemaError(ordered)


def document_from_data(data: Any, name: str) -> Document:
    """Validates a document in plain values, such as those inside a manifest."""
    return parse_document(Source(name, data))


# ---------------------------------------------------------------------------------------------------------------------
# Types and expressions.

#: Model -> the members that are parsed, and the attributes that hold the result.
_PARSED: Mapping[Any, Mapping[str, str]] = {
    DimDeclaration: {"equals": "equation"},
    FieldDeclaration: {"type": "declared", "derived": "derivation"},
    Constraint: {"expr": "expression"},
}


def _malformed(source: Source, document: Document | None) -> list[Diagnostic]:
    """Parses every type and expression of the file, and returns the errors.

    Without a document each declaration is validated by itself, so that an error elsewhere does not hide its own.
    """
    found: list[Diagnostic] = []
    different: set[str] = set()
    for path in _declarations(source.data):
        raw = _value_at(source.data, path)
        model: Any = model_at(path)
        members = _PARSED[model]
        given = [raw.get(member) for member in members] if isinstance(raw, dict) else [raw]
        different.update(t for t in given if isinstance(t, str) and not t.isidentifier())
        if len(different) > text.MAX_EXPRESSIONS:
            message = (
                f"expected at most {text.MAX_EXPRESSIONS} different types and expressions, got more"
            )
            hint = "split the schema: `uses:` names others"
            return [*found, source.diagnostic("NQX005", (), message, hint=hint)]
        try:
            declaration = (
                model.model_validate(raw) if document is None else _value_at(document, path)
            )
        except ValidationError:
            continue
        if document is None and model is FieldDeclaration:
            # Of a choice only the name counts here, and its own errors are reported at its place.
            declaration.choosing(dict.fromkeys(_mapping(source.data, "dtypes"), ("float32",)))
        for member, attribute in members.items():
            try:
                getattr(declaration, attribute)
            except SchemaError as error:
                where = path if isinstance(raw, str) else (*path, member)
                found += [
                    source.diagnostic(d.code, where, d.message, hint=d.hint)
                    for d in error.diagnostics
                ]
        if len(found) > text.MAX_PROBLEMS:
            break
    return found


def _declarations(data: Any) -> Iterator[KeyPath]:
    """Yields the paths of the declarations with types and expressions."""
    for name in _mapping(data, "dims"):
        yield "dims", name
    for struct_name, struct in _mapping(data, "structs").items():
        path = ("structs", struct_name)
        for name in _mapping(struct, "fields"):
            yield (*path, "fields", name)
        constraints = struct.get("constraints") if isinstance(struct, dict) else None
        for index in range(len(constraints) if isinstance(constraints, list) else 0):
            yield (*path, "constraints", index)


def _mapping(data: Any, member: str) -> Mapping[str, Any]:
    value = data.get(member) if isinstance(data, dict) else None
    return value if isinstance(value, dict) else {}


def _value_at(here: Any, path: Iterable[Any]) -> Any:
    """The value at a path of plain values or of a document."""
    for part in path:
        here = here[part] if isinstance(here, (dict, list)) else getattr(here, str(part))
    return here


# ---------------------------------------------------------------------------------------------------------------------
# Pydantic's errors.

#: Pydantic's errors about the sort of a value -> the sort that is expected.
_EXPECTED = {
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), "a mapping"),
    "list_type": "a list",
    "string_type": "text",
    "bool_type": "true or false",
    "int_type": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
}
#: Python types -> the sorts of values in messages.
_SORTS = {
    dict: "a mapping",
    list: "a list",
    str: "text",
    bool: "a boolean",
    int: "an integer",
    float: "a number",
}
#: Members of other schema languages -> their equivalents.
_ELSEWHERE: Mapping[str, str] = {
    "optional": "write the type as `T | null`, or give a default",
    "nullable": "write the type as `T | null`",
    "required": "every field without a default is required; give a default where it is not",
    "static": "write `kind: static`",
    "opaque": "write `kind: opaque`",
    **dict.fromkeys(("description", "help", "title", "comment"), "write `doc:`"),
    **dict.fromkeys(
        ("enum", "values", "options"), 'write `choices: [...]`, or type: literal["a", "b"]'
    ),
    **dict.fromkeys(("minimum", "min"), "write `ge:`"),
    **dict.fromkeys(("maximum", "max"), "write `le:`"),
}


def structural(
    error: ValidationError, source: Source, models: ModelAt = model_at
) -> list[Diagnostic]:
    """Returns Pydantic's errors as diagnostics; the alternatives of one place are reported once.

    Args:
        error: The errors.
        source: The file.
        models: Returns the model of the declaration at a path.
    """
    items = error.errors(include_url=False)[: text.MAX_PROBLEMS + 1]
    paths = [_path_in(source.data, item["loc"]) for item in items]
    expected: dict[KeyPath, set[str]] = {}
    for item, path in zip(items, paths, strict=True):
        if item["type"] in _EXPECTED:
            expected.setdefault(path, set()).add(_EXPECTED[item["type"]])
    found: dict[tuple[KeyPath, str], Diagnostic] = {}
    for item, path in zip(items, paths, strict=True):
        code, message, hint = _explain(item, path, expected.get(path, set()), models)
        where = path[:-1] if item["type"] == "missing" else path
        if (where, message) not in found:
            key = code == "NQX009" or "[key]" in item["loc"]
            located = source.diagnostic(code, where, message, hint=hint, key=key)
            found[where, message] = located
    return list(found.values())


def _path_in(data: Any, loc: Sequence[str | int]) -> KeyPath:
    """Returns Pydantic's location without the names of union members and validators between the keys."""
    path: list[str | int] = []
    for part in loc:
        if part == "[key]":
            break
        in_dict = isinstance(data, dict) and part in data
        in_list = isinstance(data, list) and isinstance(part, int) and part < len(data)
        if in_dict or in_list:
            path.append(part)
            data = data[part]
        elif isinstance(data, dict) and part is loc[-1]:
            path.append(part)
    return tuple(path)


def _explain(
    item: Any, path: KeyPath, expected: set[str], models: ModelAt
) -> tuple[str, str, str | None]:
    """Returns code, message and hint of one of Pydantic's errors.

    Args:
        item: The error.
        path: Its place.
        expected: The sorts of value that are allowed there, for an error about the sort.
        models: As for :func:`structural`.
    """
    kind, value = item["type"], item["input"]
    got = "nothing" if value is None else f"{_SORTS.get(type(value), type(value).__name__)}"
    if value is not None and not isinstance(value, (dict, list)):
        got = f"{got} {repr(value)[:60]}"
    hint: str | None = None
    match kind:
        case "extra_forbidden":
            hint = _hint_for_member(path, value, models)
            return "NQX009", f"expected a known member, got {path[-1]!r}", hint
        case "missing":
            name = item["loc"][-1]
            return "NQX010", f"expected a member {name!r}, got none", f"add `{name}:` here"
        case "string_pattern_mismatch" if path[:1] == ("uses",):
            hint = "write the identity of the schema and the version, such as lab.optim@2"
            return "NQX010", f"expected another schema, got {got}", hint
        case "string_pattern_mismatch" if path == ("schema",):
            hint = "write names with dots between them, such as lab.optim"
            return "NQX118", f"expected an identity, got {got}", hint
        case "string_pattern_mismatch":
            wanted = "a name (letters, digits, _, not starting with a digit)"
            return "NQX118", f"expected {wanted}, got {value!r}", None
        case _ if path == ("version",):
            wanted = "a whole number from 1 on, such as `version: 3`"
            return "NQX008", f"expected {wanted}, got {got}", None
        case _ if path == ("language",):
            code = "NQX012" if isinstance(value, (int, float)) else "NQX008"
            return code, f'expected language: "1", got {got}', None
        case "literal_error":
            wanted = item["ctx"]["expected"]
            hint = did_you_mean(str(value), re.findall(r"'([^']*)'", wanted))
            return "NQX010", f"expected {wanted}, got {got}", hint
        case "value_error":
            return "NQX010", f"expected {item['ctx']['error']}", None
        case "too_short":
            return "NQX010", "expected at least one entry, got none", None
        case "too_long":
            most = item["ctx"]["max_length"]
            return "NQX010", f"expected at most {most} entries, got {len(value)}", None
        case "greater_than_equal":
            wanted = f"a number >= {item['ctx']['ge']}"
        case _ if kind not in _EXPECTED:
            wanted = item["msg"].removeprefix("Input should be ")
        case _ if models(path) is FieldDeclaration:
            wanted = "a type or a mapping"
        case _:
            if "a number" in expected:  # which every whole number is
                expected = expected - {"a whole number"}
            wanted = " or ".join(sorted(expected))
    return "NQX010", f"expected {wanted}, got {got}", _in_place_of(wanted, models(path), value)


def _hint_for_member(path: KeyPath, value: Any, models: ModelAt) -> str | None:
    """The likely fix of an unknown member."""
    *holder, name = path
    model = models(tuple(holder))
    known = member_names(model)
    meant = did_you_mean(str(name), known)
    if meant is not None:
        return meant
    if model is StructDeclaration:
        return "fields are one level deeper, under `fields:`"
    if model is DimDeclaration and isinstance(value, int):
        return _equals_hint(value)
    if model is FieldDeclaration and name in _ELSEWHERE:
        return _ELSEWHERE[str(name)]
    # `{doc: sites, along x}`: YAML reads the text after the comma as a member without a value.
    comma = "inside {...} a comma ends a value: put text that holds one in quotes\n"
    listed = f"known members: {', '.join(known)}" if known else ""
    return f"{comma if value is None else ''}{listed}" or None


def _in_place_of(wanted: str, model: Any, value: Any) -> str | None:
    """The likely fix of a value of the wrong sort."""
    if value is None or isinstance(value, (dict, list)):
        return None
    if wanted == "text":
        return "quote it"
    if wanted == "a list":
        return f"write [{value}]"
    if model is DimDeclaration:
        return _equals_hint(value)
    return f'write {{expr: "{value}"}}' if model is Constraint else None


def _equals_hint(value: Any) -> str:
    return f"write {{equals: {value}}}, or bounds such as {{min: 1, max: 64}}"
