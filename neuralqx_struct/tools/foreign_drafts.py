"""Drafts of schemas and layouts for foreign files: the structs in the names of arrays, and the names of their fields there.

A draft is tried on the header of its own file before it is returned.

Example:
    >>> arrays = {f"h.{i}.w": ForeignArray("float32", (3,), lambda: None) for i in range(2)}
    >>> file = ForeignFile(path="net.npz", format="npz", arrays=arrays)
    >>> print(drafted(file, ".", "lab.net", "net.npz")[1].partition("structs:")[2])
    <BLANKLINE>
      Model: {h: "h.{i}.w"}
    <BLANKLINE>
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from glob import escape
from typing import Any

from neuralqx_struct.bundle.urls import Place, place_of
from neuralqx_struct.dtypes import DTYPES
from neuralqx_struct.errors import (
    Diagnostic,
    SchemaError,
    SerializationError,
    StructError,
    has_errors,
)
from neuralqx_struct.formats import ForeignArray, ForeignFile, opened
from neuralqx_struct.layouts.adoption import AdoptionPlan
from neuralqx_struct.layouts.lint import check_layout
from neuralqx_struct.layouts.model import KEY, NUMBER
from neuralqx_struct.layouts.names import ABSOLUTE
from neuralqx_struct.layouts.places import Values
from neuralqx_struct.layouts.reading import parse_layout
from neuralqx_struct.manifest import Limits, collector_paused
from neuralqx_struct.references import identity_like
from neuralqx_struct.schema import text as limits
from neuralqx_struct.schema.fitting import numbered_names
from neuralqx_struct.schema.text.loader import dump_yaml, read_text
from neuralqx_struct.tools.drafts import draft_of_structs
from neuralqx_struct.tools.foreign_forms import ForeignForms
from neuralqx_struct.tools.name_trees import (
    DEFAULT_SEPARATOR,
    Branch,
    compare,
    name_tree,
    separator_of,
)
from neuralqx_struct.tools.tree_structs import Form, StructNames

#: Each field is a key and a value in the text of a schema.
_MOST_FIELDS = limits.MAX_NODES // 2
_TOO_LARGE = "NQX005"
_CONTROL = re.compile(r"[\x00-\x1f]")
_CONVERT = "write numbers in its place, or keep it in a file of its own"


def draft_foreign(
    path: str | Place,
    schema: str | None = None,
    *,
    like: Any = None,
    limits: Limits | None = None,
    storage_options: Mapping[str, Any] | None = None,
    report: list[Diagnostic] | None = None,
) -> tuple[str, str]:
    """The texts of a first schema and of a first layout for a foreign file.

    Args:
        path: The file or folder, or its URL; its header is read.
        schema: Identity; by default from the name of the file.
        like: An object of its structure, for formats that have none of their own.
        limits: Sizes above which it is refused.
        storage_options: Options of fsspec for a URL, such as keys.
        report: Receives a warning for every array that the layout ignores, as no schema declares its dtype.

    Raises:
        SerializationError: It cannot be read.
        SchemaError: No layout can have the names of its arrays, such as one with a control character.
    """
    path = place_of(path, storage_options)
    name = path.name
    identity = schema or identity_like(name.split(".")[0])
    options: dict[str, Any] = {
        "like": like,
        "limits": limits,
        "storage_options": storage_options,
    }
    with opened(path, **options) as file:
        separator = separator_of(file.arrays)
        if separator == DEFAULT_SEPARATOR:
            return drafted(file, separator, identity, name, report)
    with opened(path, separator=separator, **options) as file:
        return drafted(file, separator, identity, name, report)


@collector_paused()
def drafted(
    file: ForeignFile,
    separator: str,
    identity: str,
    name: str,
    report: list[Diagnostic] | None = None,
) -> tuple[str, str]:
    """As :func:`draft_foreign`, for an open file whose names have a separator."""
    refused = [*_refused_names(file)]
    if refused:
        raise SchemaError(refused)
    left = [*_undeclarable(file)]
    kept = {name: each for name, each in file.arrays.items() if each.dtype in DTYPES}
    if left and not kept and not file.values:
        raise SchemaError(
            replace(found, severity="error", message=found.message.partition("\n")[0])
            for found in left
        )
    if report is not None:
        report += left
    tree = name_tree(kept, file.values, separator)
    compare(tree)
    try:
        return _draft(file, tree, separator, identity, name, lists=True)
    except StructError as error:
        if error.code == _TOO_LARGE:
            raise
        # Other names have numbers at the same places as a list.
        return _draft(file, tree, separator, identity, name, lists=False)


def _refused_names(file: ForeignFile) -> Iterator[Diagnostic]:
    """Yields the names that no layout can write."""
    for name in (*file.arrays, *file.values):
        if NUMBER in name or KEY in name or _CONTROL.search(name):
            message = f"expected a name that a layout can write, got {name[:200]!r}"
            hint = f"{NUMBER}, {KEY} and control characters mean something else there: rename it"
            yield Diagnostic("NQX702", "error", message, hint=hint)


def _undeclarable(file: ForeignFile) -> Iterator[Diagnostic]:
    """Yields the arrays of dtypes that no schema declares, such as text, which the layout ignores."""
    for name, array in file.arrays.items():
        if array.dtype not in DTYPES:
            got = f"{array.dtype[:60]}\nthe layout ignores the array"
            message = f"expected a dtype that schemas declare, got {got}"
            where, hint = name[:200], _fix(array)
            yield Diagnostic("NQX411", "warning", message, where, file.path or None, hint=hint)


def _fix(array: ForeignArray) -> str:
    """The fix of an array that no schema declares: that of its format, if it cannot be read either."""
    if not array.readable:
        try:
            array.read()
        except SerializationError as error:
            return error.diagnostics[0].hint or _CONVERT
    return _CONVERT


def _draft(
    file: ForeignFile, tree: Branch, separator: str, identity: str, name: str, *, lists: bool
) -> tuple[str, str]:
    _require_few(_most_unlisted(tree, lists=lists))
    forms = ForeignForms(separator, lists=lists)
    root = forms.root(tree)
    structs = [*_structs_below(root)]
    _require_few(sum(len(form.inside) for form in structs))
    names = StructNames()
    made = names.tree(root, "Model")
    text, document = draft_of_structs(made, identity, name)
    layout = {
        "language": "1",
        "layout": file.format,
        "of": f"{document.id}@{document.version}",
        "prefix": [forms.prefix],
        "separator": separator,
        "ignore": [
            f"{ABSOLUTE}{escape(n)}" for n, a in file.arrays.items() if a.dtype not in DTYPES
        ],
        "structs": _rules(structs, names),
    }
    usual: tuple[Any, ...] = ([""], [], {}, DEFAULT_SEPARATOR)
    shown = {key: value for key, value in layout.items() if value not in usual}
    written = f"# A first layout, inferred from {name!r}.\n{dump_yaml(shown)}"
    source = read_text(written)
    read = parse_layout(source)
    found = check_layout(read, source, document)
    if has_errors(found):
        raise SchemaError(each for each in found if each.severity == "error")
    tried = {name: each for name, each in file.arrays.items() if each.dtype not in DTYPES}
    tried |= {name: file.arrays[name] for name in forms.drafted(tree)}
    AdoptionPlan(document, read, tried, Values([read.values], file.values))
    return text, written


def _require_few(count: int) -> None:
    if count > _MOST_FIELDS:
        message = f"expected arrays that make at most {_MOST_FIELDS} fields, got {count}"
        raise SchemaError(message, code=_TOO_LARGE, hint=limits.LARGE_DATA)


def _most_unlisted(tree: Branch, *, lists: bool) -> int:
    """The most parts in one large branch that are items of no list, so that each is a field; known before any form."""
    most = 0
    todo = [tree]
    while todo:
        branch = todo.pop()
        todo += [each for each in branch.values() if isinstance(each, Branch)]
        if len(branch) > _MOST_FIELDS:
            digits = [name for name in branch if name.isdecimal()]
            groups = [*numbered_names(branch).values(), digits] if lists else []
            most = max(most, len(branch) - sum(map(len, groups)))
    return most


def _structs_below(root: Form) -> Iterator[Form]:
    """Yields the different structs of a form, itself first."""
    todo = deque([root])
    seen = set[int]()
    while todo:
        form = todo.popleft()
        if form.id in seen:
            continue
        seen.add(form.id)
        todo += form.inside.values()
        if form.sort == "struct":
            yield form


def _rules(structs: Iterable[Form], names: StructNames) -> dict[str, dict[str, str]]:
    """The rules of all structs, of fields with another name in the file."""
    found: dict[str, dict[str, str]] = {}
    for form in structs:
        rules = {field: label for field, label in form.labels.items() if field != label}
        if rules:
            found[names.struct(form, "")] = rules
    return found
