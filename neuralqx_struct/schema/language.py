"""The JSON Schema of schema files, for editors and other validators, the members that each place may have, and drafts.

Owns the published files ``schemas/struct-schema/*.json``, which are generated from the models of ``model.py``, and
:func:`new_schema`, which writes the first file of a new schema. That file is sound as it is, shows the most used members
with a comment each, and starts with the line that names the JSON Schema which completes it in editors.

Example:
    >>> member_names(model_at(("structs", "A", "constraints", 0)))
    ['expr', 'message']
"""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

from neuralqx_struct.dtypes import DTYPES
from neuralqx_struct.errors import Hint, Keyword, SchemaError
from neuralqx_struct.references import IDENTITY
from neuralqx_struct.schema.migration import Declaration, Migration, StepItem
from neuralqx_struct.schema.model import (
    TYPE_EXAMPLES,
    Constraint,
    DimDeclaration,
    Document,
    DtypeDeclaration,
    EnumDeclaration,
    FieldDeclaration,
    StructDeclaration,
)
from neuralqx_struct.schema.text import KeyPath
from neuralqx_struct.schema.text.loader import replace_text

LANGUAGE_SCHEMA_ID = "https://neuralqx.github.io/neuralqx-struct/schemas/struct-schema/1.json"
#: The first line of a schema file, from which editors find the JSON Schema.
MODELINE = f"# yaml-language-server: $schema={LANGUAGE_SCHEMA_ID}\n"

_SHORTHANDS: dict[str, dict[str, Any]] = {
    "FieldDeclaration": {
        "type": "string",
        "description": "A type, such as float32[n].",
        "examples": TYPE_EXAMPLES,
    },
    "EnumDeclaration": {"type": "array", "items": {"type": "string"}, "minItems": 1},
    "DtypeDeclaration": {"type": "array", "items": {"enum": [*DTYPES]}, "minItems": 1},
}
#: Matches everything except a :data:`~neuralqx_struct.schema.migration.Name`.
_NO_NAME = "^$|^[0-9]|[^A-Za-z0-9_]"


def language_schema() -> dict[str, Any]:
    """The JSON Schema of schema files, published as ``schemas/struct-schema/1.json``.

    Written in the keywords that draft-07 and 2020-12 share, because many editors read the older one.
    """
    schema = Document.model_json_schema(by_alias=True, mode="validation")
    definitions = schema["$defs"]
    for name, shorthand in _SHORTHANDS.items():
        long = definitions[name]
        description = long.get("description", "")
        definitions[name] = {"description": description, "anyOf": [shorthand, long]}
    steps = definitions["StepItem"]["properties"]
    for name, step in steps.items():  # a file leaves a step out: null is not a step
        (steps[name],) = (option for option in step["anyOf"] if option.get("type") != "null")
    tidy(schema)
    draft = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": draft, "$id": LANGUAGE_SCHEMA_ID, **schema}


def language_schema_twin() -> dict[str, Any]:
    """The same in draft-07, published as ``schemas/struct-schema/1.draft-07.json``."""
    text = json.dumps(language_schema())
    schema = json.loads(
        text.replace('"$defs"', '"definitions"').replace("#/$defs/", "#/definitions/")
    )
    schema["$schema"] = "http://json-schema.org/draft-07/schema#"
    schema["$id"] = LANGUAGE_SCHEMA_ID.replace("1.json", "1.draft-07.json")
    return schema  # type: ignore[no-any-return]


def tidy(schema: Any) -> None:
    """Removes generated titles and nulls, which editors show and insert, and refuses other names than those allowed."""
    if isinstance(schema, list):
        for value in schema:
            tidy(value)
    if not isinstance(schema, dict):
        return
    if "anyOf" in schema and schema.get("default", ...) is None:
        del schema["default"]
    if isinstance(schema.get("title"), str):
        del schema["title"]
    if "patternProperties" in schema:
        # The other way around, because editors complete the values of additional properties only.
        (value,) = schema["patternProperties"].values()
        schema |= {"patternProperties": {_NO_NAME: False}, "additionalProperties": value}
    for value in schema.values():
        tidy(value)


def model_at(path: KeyPath) -> type[Declaration] | None:
    """The model of the declaration at a path of a document, if there is one."""
    match path:
        case ():
            return Document
        case ("dims", _):
            return DimDeclaration
        case ("enums", _):
            return EnumDeclaration
        case ("dtypes", _):
            return DtypeDeclaration
        case ("structs", _):
            return StructDeclaration
        case ("structs", _, "fields", _):
            return FieldDeclaration
        case ("structs", _, "constraints", _):
            return Constraint
        case ("migrations", _):
            return Migration
        case ("migrations", _, "steps", _):
            return StepItem
        case ("migrations", _, "steps", _, str(step)) if step in StepItem.model_fields:
            return get_args(StepItem.model_fields[step].annotation)[0]  # type: ignore[no-any-return]
    return None


def member_names(model: type[Declaration] | None) -> list[str]:
    """The members that a model allows, sorted."""
    fields = model.model_fields if model is not None else {}
    return sorted(str(field.validation_alias or name) for name, field in fields.items())


#: Names that are no text in YAML or no name in Python, and the other struct of the draft.
_TAKEN = ("Null", "True", "False", "None", "Layer")
_DRAFT = """\
# yaml-language-server: $schema={modeline}
language: "1"
schema: {identity}  # the identity: the same in every version
version: 1
doc: What checkpoints of this schema are.
root: {root}  # the struct that a checkpoint is

dims:  # sizes that several arrays share
  n_in: {{min: 1, doc: input features}}
  n_out: {{min: 1, doc: output features}}

structs:
  Layer:
    fields:
      kernel: float32[n_in, n_out]  # dtype and sizes
      bias: {{type: "float32[n_out]", tags: [trainable], doc: Added to the product.}}
  {root}:
    doc: Everything that training needs to go on.
    fields:
      layer: Layer
      key: prng_key[threefry2x32]
      step: {{type: int, default: 0, ge: 0, doc: Finished optimisation steps.}}
      loss: {{type: float | null, default: null}}  # null: not known yet
      learning_rate: {{type: float, kind: static, default: 0.001}}  # static: no leaf, jit compiles for each value
    constraints:
      - {{expr: learning_rate > 0, message: the learning rate must be positive}}
"""


def new_schema(identity: str, folder: str | Path = "schemas") -> Path:
    """Write the first version of a new schema: ``<folder>/<last part of the identity>/v1.yaml``.

    Args:
        identity: Such as ``lab.train_state``.
        folder: Where the folders of schemas lie.

    Returns:
        The file.

    Raises:
        SchemaError: NQX400: the identity is none; there is something at the place.
    """
    if not IDENTITY.fullmatch(identity):
        message = f"expected an identity of names joined by dots, got {identity!r}"
        raise SchemaError(message, code="NQX400", hint="such as lab.train_state")
    name = identity.rpartition(".")[2]
    place = Path(folder) / name
    if os.path.lexists(place):
        message = "expected a new folder, got one that exists"
        hint = Hint(
            "choose another identity, or pass ",
            Keyword("folder"),
            "; a new version is a new file, such as v2.yaml",
        )
        raise SchemaError(message, code="NQX400", file=str(place), hint=hint)
    words = re.split(r"_+|(?<=[a-z0-9])(?=[A-Z])", name)
    root = "".join(word[:1].upper() + word[1:] for word in words) or "State"
    if not root[0].isalpha() or root in _TAKEN:
        root = f"{root}State" if root[0].isalpha() else f"State{root}"
    published = Path(folder) / "struct-schema" / "1.json"
    modeline = "../struct-schema/1.json" if published.is_file() else LANGUAGE_SCHEMA_ID
    file = place / "v1.yaml"
    try:
        replace_text(file, _DRAFT.format(modeline=modeline, identity=identity, root=root))
    except OSError:
        with suppress(OSError):  # another attempt wants a new folder too
            place.rmdir()
        raise
    return file
