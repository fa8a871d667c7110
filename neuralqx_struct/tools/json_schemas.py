"""Manifests against JSON Schemas of the user, by the package jsonschema, in bounded time.

A JSON Schema can take exponential time by its references and patterns. So checking stops after a time that depends on the
size of the manifest, and patterns are matched by :mod:`neuralqx_struct.schema.patterns`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import jsonschema
from referencing import Registry
from referencing.exceptions import Unresolvable

from neuralqx_struct.errors import Diagnostic, SchemaError, SerializationError
from neuralqx_struct.manifest import MOST_FINDINGS
from neuralqx_struct.manifest.text import parse_manifest
from neuralqx_struct.schema.patterns import objection_to, occurs
from neuralqx_struct.schema.text import path_text

__all__ = ["check"]

_LEAST_SECONDS = 3.0  # of this process
#: For each value of the manifest; the published JSON Schema takes a third of it.
_SECONDS_EACH = 0.0003
_MOST_COMPARED = 1000  # items of a list; jsonschema compares each with each other


class _CostlyError(Exception):
    """Checking takes too long."""


def check(data: bytes, file: Path) -> list[Diagnostic]:
    """The errors that the package jsonschema reports for a manifest.

    Args:
        data: The content of ``manifest.json``.
        file: The JSON Schema.

    Raises:
        SchemaError: NQX616: it is no JSON Schema, refers to another file, or is too costly to check.
    """
    try:
        schema = json.loads(file.read_text(encoding="utf-8"))
        declared = jsonschema.validators.validator_for(schema)
        declared.check_schema(schema)
    except (OSError, ValueError, RecursionError, jsonschema.SchemaError) as error:
        reason = getattr(error, "message", error)
        raise _refused(file, f"expected a JSON Schema, got: {reason}") from error
    try:
        document = parse_manifest(data)
    except SerializationError:
        return []  # the check of the format has reported it
    for inner in _inside(schema):  # it would be checked without bounds
        if isinstance(inner.get("$schema"), str):
            del inner["$schema"]
    # An empty registry: nothing is fetched from the net.
    seconds = _LEAST_SECONDS + _SECONDS_EACH * sum(1 for _ in _values(document))
    errors = _bounded(declared, seconds)(schema, registry=Registry()).iter_errors(document)
    try:
        return [
            Diagnostic("NQX616", "error", problem.message, path_text(problem.absolute_path))
            for problem in islice(errors, MOST_FINDINGS)
        ]
    except Unresolvable as error:
        message = f"expected references inside the JSON Schema, got {error.ref!r}"
        raise _refused(file, message) from error
    except (_CostlyError, RecursionError) as error:
        reason = str(error) if isinstance(error, _CostlyError) else "it refers to itself"
        message = f"expected a JSON Schema that is checked in bounded time, got another\n{reason}"
        raise _refused(file, message) from error


def _refused(file: Path, message: str) -> SchemaError:
    return SchemaError(message, code="NQX616", file=str(file))


def _bounded(declared: Any, seconds: float) -> Any:
    """A class of validators that stops where checking takes too long."""
    rules = declared.VALIDATORS
    deadline = time.process_time() + seconds

    def timed(rule: Any) -> Any:
        def checked(*arguments: Any) -> Any:
            if time.process_time() > deadline:
                raise _CostlyError(f"it takes more than {seconds:.0f} seconds for this manifest")
            return rule(*arguments)

        return checked

    def found(pattern: str, text: str) -> bool:
        objection = objection_to(pattern)
        if objection is not None:
            raise _CostlyError(objection[1].partition("\n")[2] or objection[1])
        return occurs(pattern, text)

    def pattern(_validator: Any, pattern: str, value: Any, _schema: Any) -> Iterator[Any]:
        if isinstance(value, str) and not found(pattern, value):
            message = f"{value!r} does not match {pattern!r}"
            yield jsonschema.ValidationError(message)

    def pattern_properties(validator: Any, given: Any, value: Any, _schema: Any) -> Iterator[Any]:
        if isinstance(value, dict):
            for pattern, schema in given.items():
                for key, item in value.items():
                    if found(pattern, key):
                        yield from validator.descend(item, schema, path=key, schema_path=pattern)

    def unique_items(validator: Any, wanted: Any, value: Any, schema: Any) -> Iterator[Any]:
        if isinstance(value, list) and len(value) > _MOST_COMPARED:
            raise _CostlyError(f"`uniqueItems` compares more than {_MOST_COMPARED:,} items")
        yield from rules["uniqueItems"](validator, wanted, value, schema)

    bounded = {
        "pattern": pattern,
        "patternProperties": pattern_properties,
        "uniqueItems": unique_items,
    }
    timely = {name: timed(rule) for name, rule in {**rules, **bounded}.items()}
    return jsonschema.validators.extend(declared, timely)


def _inside(schema: Any) -> Iterator[dict[str, Any]]:
    """Yields the objects in a JSON Schema."""
    return (inner for inner in _values(schema) if isinstance(inner, dict))


def _values(data: Any) -> Iterator[Any]:
    """Yields a JSON value, and the values in it."""
    todo = [data]
    while todo:
        inner = todo.pop()
        yield inner
        if isinstance(inner, dict):
            todo += inner.values()
        elif isinstance(inner, list):
            todo += inner
