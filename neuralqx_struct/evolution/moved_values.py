"""Values that steps move: equations of dims and constraints that name them, between the steps of a migration.

``rename``, ``move``, ``inline`` and ``rename_struct`` change no value. After ``rename: {field: config, to: settings}`` an equation
``n: {equals: 4 * config.n_heads}`` names ``settings.n_heads``, as the new version does.

Example:
    >>> from neuralqx_struct.expressions import parse
    >>> renamed_text(parse("4 * config.n_heads"), {"config.n_heads": "settings.n_heads"})
    '4 * settings.n_heads'
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from neuralqx_struct.expressions import Expression, parse
from neuralqx_struct.expressions.operators import format_tree
from neuralqx_struct.expressions.paths import is_given, replaced, steps_of
from neuralqx_struct.schema.declarations import DimDeclaration
from neuralqx_struct.schema.field_paths import Places, fields_on, moved
from neuralqx_struct.schema.model import Document, FieldDeclaration
from neuralqx_struct.schema.sizes.scopes import int_fields, sizes_of_struct


def renamed_text(expression: Expression, names: Mapping[str, str]) -> str:
    """The text of an expression with other names and paths."""
    if not names.keys() & expression.names:
        return expression.text
    trees: dict[str, ast.expr] = {name: ast.Name(other) for name, other in names.items()}
    return format_tree(replaced(expression.tree, trees))


def with_moved_values(before: Document, after: Document, owner: str, places: Places) -> Document:
    """The declaration after a step, with equations that name values at their new places.

    Args:
        before: The declaration before the step.
        after: The one that the step declares.
        owner: The struct whose fields have other places.
        places: The places.
    """
    if all(dim.equals is None for dim in before.dims.values()):
        return after
    names = {path: moved(before, before.root, path, owner, places) for path in _paths(before)}
    names = {path: new for path, new in names.items() if _is_free(before, path, new)}
    if not names:
        return after
    dims = dict(after.dims)
    for name, dim in before.dims.items():
        if dim.equals is not None:
            text = renamed_text(parse(str(dim.equals)), names)
            if text != str(dim.equals):
                dims[name] = DimDeclaration.model_validate({**dim.model_dump(), "equals": text})
    made = after.model_copy(update={"dims": dims})
    if before.tied is None or after.tied is None:
        return made
    tied = dict(after.tied)
    for path, new in names.items():
        known = _fields(before, path)
        if known and all(before.tied.get(key) is field for key, field in known.items()):
            tied |= _fields(made, new)
    return made.stage({}, tied)


def _paths(document: Document) -> Iterator[str]:
    """Yields the paths, and the static ints of the root, that equations of dims name."""
    ints = int_fields(document).keys() - document.dims.keys()
    for dim in document.dims.values():
        for name in dim.equation.names if dim.equation else ():
            if is_given(name):
                yield from parse(name).names
            elif name in ints:
                yield name


def _is_free(document: Document, path: str, new: str) -> bool:
    """True if equations may name a value by its new path: names of sizes have a meaning, and keep it."""
    if steps_of(new):
        return True
    return bool(steps_of(path)) and new not in {
        *sizes_of_struct(document, document.root),
        *document.dims,
        *_paths(document),
    }


def _fields(document: Document, path: str) -> dict[str, FieldDeclaration]:
    """The declarations of the fields on the way of a path; of a static int of the root under the name of its size."""
    ints = int_fields(document)
    return {path: ints[path]} if path in ints else fields_on(document, path)
