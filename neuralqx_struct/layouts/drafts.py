"""Drafts of layouts, and the JSON Schema of layout files for editors.

A draft gives every field its own name; edit it until ``schema lint LAYOUT --file FILE`` finds nothing.

Example:
    >>> print(draft_layout(v1, "hf").splitlines()[1])
    language: "1"
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.layouts import KEY, NUMBER, Layout
from neuralqx_struct.layouts.table import Table, holds_arrays
from neuralqx_struct.schema.graph import graph_of
from neuralqx_struct.schema.language import tidy
from neuralqx_struct.schema.migration import NAME
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.series import Series, layout_folder
from neuralqx_struct.schema.text import quoted
from neuralqx_struct.schema.text.loader import replace_text
from neuralqx_struct.types import Type, walk_type

LAYOUT_SCHEMA_ID = "https://neuralqx.github.io/neuralqx-struct/schemas/layout-schema/1.json"

_DRAFT = """\
# yaml-language-server: $schema={modeline}
language: "1"
layout: {name}
of: {of}
prefix: [""]  # in front of all names; the one that fits is taken
separator: "."
ignore: []  # names of arrays that are left out, such as pooler.*
{values}structs:  # a name, or an operation as in {{name: weight, transpose: true}}
{structs}"""


def layout_schema() -> dict[str, Any]:
    """The JSON Schema of layout files, published as ``schemas/layout-schema/1.json``."""
    schema = Layout.model_json_schema(by_alias=True, mode="validation")
    rule = schema["$defs"]["Rule"]
    names = {"type": "array", "items": {"type": "string"}}
    short = [{"type": "string", "description": "The name."}, names]
    description = rule.get("description", "")
    schema["$defs"]["Rule"] = {"description": description, "anyOf": [*short, rule]}
    tidy(schema)
    draft = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": draft, "$id": LAYOUT_SCHEMA_ID, **schema}


def draft_layout(document: Document, name: str, modeline: str = LAYOUT_SCHEMA_ID) -> str:
    """A layout in which every field has its own name.

    Args:
        document: The version of the schema.
        name: The name of the layout.
        modeline: Where editors find the JSON Schema.
    """
    of = f"{document.id}@{document.version}"
    layout = Layout(language="1", layout=name, of=of)
    missing = Table(document, layout).missing_values
    lines = [f"# {path}: a value of type {missing[path].text}" for path in missing]
    values = "".join(f"{line}\n" for line in ["# values:  # that no file shows", *lines])
    structs = []
    for struct in graph_of(document).structs:
        rules = [
            f"    {field}: {_name(field, declaration.declared)}\n"
            for field, declaration in document.structs[struct].stored.items()
            if declaration.kind == "node" and holds_arrays(declaration.declared, document)
        ]
        if rules:
            structs.append(f"  {struct}:\n{''.join(rules)}")
    text = "".join(structs) or "  {}\n"
    return _DRAFT.format(
        modeline=modeline, name=name, of=of, values=values if missing else "", structs=text
    )


def _name(field: str, declared: Type) -> str:
    inner = [*walk_type(declared)]
    if any(each.below is not None for each in inner):
        return quoted(f"{field}.{KEY}")
    if any(each.stacks or each.item_at(0) is not None for each in inner):
        return quoted(f"{field}.{NUMBER}")
    return field


def new_layout(series: Series, name: str) -> Path:
    """Writes a draft of a layout for the newest version of a schema.

    Args:
        series: The schema, from its folder.
        name: The name of the layout.

    Returns:
        The file.

    Raises:
        SchemaError: NQX400: the name is none, the schema has no folder, or there is something at the place.
    """
    if not NAME.fullmatch(name):
        message = f"expected a name of letters, digits and _, got {name!r}"
        raise SchemaError(message, code="NQX400", hint="such as hf")
    if series.folder is None:
        message = f"expected the folder of {series.id}, got its text"
        raise SchemaError(message, code="NQX400", hint="name the folder of the schema")
    folder = layout_folder(series.folder)
    file = folder / f"{name}.yaml"
    if os.path.lexists(file):
        message = "expected a new file, got one that exists"
        raise SchemaError(message, code="NQX400", file=str(file), hint="choose another name")
    published = series.folder.parent / "layout-schema" / "1.json"
    modeline = "../../layout-schema/1.json" if published.is_file() else LAYOUT_SCHEMA_ID
    text = draft_layout(series.head, name, modeline)
    replace_text(file, text)
    return file
