"""Inference: a first schema from one bundle without a schema, or from a file of another program with a layout.

The structs of such a file are those in the names of its arrays. A draft is tried on the header of its own file before
it is returned.

A file determines names, types, dtypes and sizes; it does not determine the names of sizes, static fields and the
values of other files. Equal sizes become a suggested dim, unknown parts a TODO, and values without a type in the
language ``pytree``. The text is written in :mod:`neuralqx_struct.tools.drafts`.

Example:
    >>> arrays = {f"h.{i}.w": ForeignArray("float32", (3,), lambda: None) for i in range(2)}
    >>> file = ForeignFile(path="net.npz", format="npz", arrays=arrays)
    >>> print(drafted(file, ".", "lab.net", "net.npz")[1].partition("structs:")[2])
    <BLANKLINE>
      Model: {h: "h.{i}.w"}
    <BLANKLINE>
    >>> from neuralqx_struct import bundle
    >>> from neuralqx_struct.manifest.payload import Payload
    >>> import tempfile
    >>> node = {"__kind__": "struct", "type": "lab.model:State", "fields": {"step": 7, "loss": None}}
    >>> path = bundle.write(f"{tempfile.mkdtemp()}/ckpt", Payload({"version": 1, "manifest": node, "arrays": {}}, {}))
    >>> print(infer(path).partition("structs:")[2], end="")
    <BLANKLINE>
      State:
        fields:
          step: int
          loss: pytree  # TODO: only null was saved; add its other types, such as float | null
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from glob import escape
from pathlib import Path
from typing import Any, Self

from neuralqx_struct import bundle
from neuralqx_struct.dtypes import DTYPES
from neuralqx_struct.errors import (
    Diagnostic,
    Hint,
    Keyword,
    SchemaError,
    SerializationError,
    StructError,
    has_errors,
)
from neuralqx_struct.formats import ForeignArray, ForeignFile, is_foreign, opened
from neuralqx_struct.layouts import KEY, NUMBER, parse_layout
from neuralqx_struct.layouts.adoption import AdoptionPlan
from neuralqx_struct.layouts.lint import check_layout
from neuralqx_struct.layouts.names import ABSOLUTE
from neuralqx_struct.layouts.places import Values
from neuralqx_struct.layouts.table import Table
from neuralqx_struct.manifest import Limits, collector_paused
from neuralqx_struct.places.urls import Place, place_of
from neuralqx_struct.references import identity_like
from neuralqx_struct.schema import text as limits
from neuralqx_struct.schema.fitting import numbered_names
from neuralqx_struct.schema.language import MODELINE
from neuralqx_struct.schema.series import carried_series
from neuralqx_struct.schema.text.loader import dump_yaml, read_text, replace_text
from neuralqx_struct.tools.drafts import draft, draft_of_structs
from neuralqx_struct.tools.foreign_forms import (
    DEFAULT_SEPARATOR,
    Branch,
    ForeignForms,
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


@collector_paused()
def drafted(
    file: ForeignFile,
    separator: str,
    identity: str,
    name: str,
    report: list[Diagnostic] | None = None,
) -> tuple[str, str]:
    """The texts of a first schema and of a first layout for an open foreign file, whose names have a separator.

    Args:
        file: The file, whose header alone is read.
        separator: The character between the parts of its names.
        identity: The identity of the schema.
        name: The name of the file.
        report: Receives a warning for every array that the layout ignores, as no schema declares its dtype.

    Raises:
        SchemaError: No layout can have the names of its arrays, such as one with a control character.
    """
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
    table = Table(document, read)
    found = check_layout(table, source)
    if has_errors(found):
        raise SchemaError(each for each in found if each.severity == "error")
    tried = {name: each for name, each in file.arrays.items() if each.dtype not in DTYPES}
    tried |= {name: file.arrays[name] for name in forms.drafted(tree)}
    AdoptionPlan(table, tried, Values([read.values], file.values))
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


__all__ = ["Inferred", "infer"]


class Inferred(str):
    """The text of a first schema, with the layout of a foreign file.

    Attributes:
        layout: The text of a layout that reads the file under the schema; empty for bundles.
        findings: Warnings about the arrays that the layout ignores, as no schema declares their dtype.

    Example:
        >>> found = Inferred("schema: lab.net", "layout: hf")
        >>> found.upper(), found.layout, found.schema
        ('SCHEMA: LAB.NET', 'layout: hf', 'schema: lab.net')
    """

    __slots__ = ("findings", "layout")
    layout: str
    findings: tuple[Diagnostic, ...]

    def __new__(cls, schema: str, layout: str = "", findings: Iterable[Diagnostic] = ()) -> Self:
        """Makes the text of a schema, with that of a layout."""
        made = super().__new__(cls, schema)
        made.layout, made.findings = layout, tuple(findings)
        return made

    @property
    def schema(self) -> str:
        """The text of the schema, as plain text."""
        return str(self)

    def write(self, folder: str | Path, *, overwrite: bool = False) -> list[Path]:
        """Writes ``v1.yaml``, and beside it ``layouts/NAME.yaml``; returns the files.

        Raises:
            BundleExistsError: One of them exists, and ``overwrite`` is false; or the folder is a bundle.
        """
        place = Path(folder)
        if place.is_file() or (place / "manifest.json").exists():
            message = (
                f"expected a folder for a schema, got a {'file' if place.is_file() else 'bundle'}"
            )
            hint = "name a new folder, or that of the schema"
            raise bundle.BundleExistsError(message, file=str(place), hint=hint)
        document: Any = read_text(self.schema).data
        texts = {place / f"v{document['version']}.yaml": self.schema}
        if self.layout:
            layout: Any = read_text(self.layout).data
            texts[place / "layouts" / f"{layout['layout']}.yaml"] = self.layout
        for path in texts:
            if os.path.lexists(path) and not overwrite:
                hint = Hint("pass ", Keyword("overwrite", value=True), ", or name another folder")
                message = "expected a new file, got one that exists"
                raise bundle.BundleExistsError(message, file=str(path), hint=hint)
        for path, text in texts.items():
            replace_text(path, text)
        return [*texts]


def infer(
    path: str | Place,
    *,
    schema: str | None = None,
    like: Any = None,
    limits: Limits | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Inferred:
    """Writes a first schema for a bundle or a foreign file: one that has no errors, and that the file conforms to.

    Args:
        path: A bundle, ours or neuraLQX's, a ``manifest.json``, or a file of another program such as
            ``model.safetensors``. No array is read.
        schema: Identity of the schema; by default from the module and name of the root's class, or the name of the file.
        like: An object of the structure of a foreign file, for formats that have none of their own.
        limits: Sizes above which it is refused.
        storage_options: Options of fsspec for a URL, such as keys.

    Returns:
        YAML text with a TODO for everything that the file does not determine. If the bundle has its schema inside, that.
        For a foreign file, ``layout`` is the text of a layout by which the schema reads it, and ``findings`` names the
        arrays that it leaves out: text, dates and objects have no type in schemas.

    Raises:
        SerializationError: It is no bundle and no foreign file of a known kind, or damaged.
        SchemaError: A name is not possible in the language.
    """
    path = place_of(path, storage_options)
    if is_foreign(path):
        left: list[Diagnostic] = []
        identity = schema or identity_like(path.name.split(".")[0])
        opening = partial(opened, path, like=like, limits=limits, storage_options=storage_options)
        with opening() as file:
            separator = separator_of(file.arrays)
            if separator == DEFAULT_SEPARATOR:
                return Inferred(*drafted(file, separator, identity, path.name, left), left)
        with opening(separator=separator) as file:
            return Inferred(*drafted(file, separator, identity, path.name, left), left)
    manifest = bundle.read_manifest(path, limits=limits)
    stored = manifest.get("schema")
    if stored is not None:
        series = carried_series(manifest).get(stored["id"])
        if series is not None:
            return Inferred(MODELINE + dump_yaml(series.at(stored["version"]).to_data()))
    return Inferred(draft(manifest["manifest"], schema, path.name)[0])
