"""Drafts of schemas and layouts for foreign files: the structs in the names of arrays, and the names of their fields there.

Names are split at their separator. Numbered names of one form are a list, parts that are no names of fields get one like
them, and a struct with one field is that field. A draft is tried on the header of its own file before it is returned.

Example:
    >>> from neuralqx_struct.formats import ForeignArray
    >>> arrays = {f"h.{i}.proj.{name}": ForeignArray("float32", shape, lambda: None)
    ...           for i in range(2) for name, shape in [("weight", (4, 3)), ("bias", (3,))]}
    >>> forms = ForeignForms(".", lists=True)
    >>> root = forms.root(name_tree(arrays, {}, "."))
    >>> root.labels, root.inside["h"].inside[0].name
    ({'h': 'h.{i}.proj'}, 'Dense')
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from glob import escape
from typing import Any, NamedTuple

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
from neuralqx_struct.manifest import collector_paused
from neuralqx_struct.manifest.kinds import ARRAY
from neuralqx_struct.references import identity_like
from neuralqx_struct.schema import text as limits
from neuralqx_struct.schema.fitting import numbered, numbered_names
from neuralqx_struct.schema.text.loader import dump_yaml, read_text
from neuralqx_struct.tools.drafts import draft_of_structs
from neuralqx_struct.tools.name_trees import DEFAULT_SEPARATOR, Branch, name_tree, separator_of
from neuralqx_struct.tools.tree_structs import Form, Forms, StructNames, is_field

#: Each field is a key and a value in the text of a schema.
_MOST_FIELDS = limits.MAX_NODES // 2
_TOO_LARGE = "NQX005"
_CONTROL = re.compile(r"[\x00-\x1f]")
_CONVERT = "write numbers in its place, or keep it in a file of its own"
#: The names of structs that hold the arrays of one layer, by the number of axes of its weight.
_LAYERS = {1: "Norm", 2: "Dense", 4: "Conv"}
_WEIGHTS = frozenset(["weight", "kernel", "scale"])


def draft_foreign(
    path: str | Place,
    schema: str | None = None,
    like: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    report: list[Diagnostic] | None = None,
) -> tuple[str, str]:
    """The texts of a first schema and of a first layout for a foreign file.

    Args:
        path: The file or folder, or its URL; its header is read.
        schema: Identity; by default from the name of the file.
        like: An object of its structure, for formats that have none of their own.
        storage_options: Options of fsspec for a URL, such as keys.
        report: Receives a warning for every array that the layout ignores, as no schema declares its dtype.

    Raises:
        SerializationError: It cannot be read.
        SchemaError: No layout can have the names of its arrays, such as one with a control character.
    """
    path = place_of(path, storage_options)
    name = path.name
    identity = schema or identity_like(name.split(".")[0])
    options: dict[str, Any] = {"like": like, "storage_options": storage_options}
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
    AdoptionPlan(document, read, file.arrays, Values([read.values], file.values))
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


# ---------------------------------------------------------------------------------------------------------------------
# Forms.


class _Part(NamedTuple):
    """A part of the tree.

    Attributes:
        form: Its form.
        label: The rest of the name, behind its part.
        is_listed: Whether numbers in names show how many there are: it has an array.
    """

    form: Form
    label: str
    is_listed: bool


class ForeignForms(Forms):
    """The forms in a tree of names.

    Attributes:
        prefix: The beginning of all names.
    """

    def __init__(self, separator: str, *, lists: bool) -> None:
        super().__init__()
        self.separator = separator
        self.lists = lists
        self.prefix = ""

    def root(self, tree: Branch) -> Form:
        """The form of the root, which is a struct."""
        while len(tree) == 1:
            ((part, inside),) = tree.items()
            if not isinstance(inside, Branch) or "" in inside:
                break
            if self.lists and numbered(inside) is not None:
                break
            self.prefix += f"{part}{self.separator}"
            tree = inside
        found = self.part(tree, is_root=True)
        if found.form.sort == "struct":
            return found.form
        label = found.label or NUMBER
        return self.struct({"items": found.form}, labels={"items": label})

    def part(self, tree: Any, *, is_root: bool = False) -> _Part:
        """The form of a branch or a leaf."""
        if not isinstance(tree, Branch):
            return _Part(self.value(tree), "", ARRAY.matches(tree))
        inside = {part: self.part(below) for part, below in tree.items()}
        keys = numbered(inside) if self.lists else None
        if keys is not None and self.alike([inside[key] for key in keys]):
            return self.listed([inside[key] for key in keys])
        fields = self.grouped(inside)
        if len(fields) == 1 and not is_root:
            ((part, only),) = fields.items()
            return only._replace(label=self.joined(part, only.label))
        return self.struct_of(fields)

    def joined(self, part: str, label: str) -> str:
        """A part of a name with the rest of the name."""
        return self.separator.join(filter(None, [part, label]))

    def alike(self, parts: Sequence[_Part]) -> bool:
        """True if parts can be the items of a list."""
        return len({(part.form.id, part.label) for part in parts}) == 1 and parts[0].is_listed

    def listed(self, parts: Sequence[_Part]) -> _Part:
        """The form of a list."""
        first = parts[0]
        inside = dict(enumerate(part.form for part in parts))
        form = self.form("list", (first.form.id, first.label), inside)
        return _Part(form, self.joined(NUMBER, first.label) if first.label else "", True)

    def grouped(self, inside: dict[str, _Part]) -> dict[str, _Part]:
        """Parts with numbered names as lists, by the text in the file; ``{i}`` is the number."""
        groups: dict[str, str] = {}
        found = dict(inside)
        candidates = numbered_names(inside) if self.lists else {}
        digits = numbered(name for name in inside if name.isdecimal())
        if self.lists and digits is not None:
            candidates[""] = digits
        for prefix, names in candidates.items():
            parts = [inside[name] for name in names]
            if len(names) > 1 and parts[0].form.sort == "struct" and self.alike(parts):
                groups |= dict.fromkeys(names, prefix)
                form = self.form(
                    "list", (parts[0].form.id, ""), dict(enumerate(part.form for part in parts))
                )
                found[names[0]] = _Part(form, "", True)
        made: dict[str, _Part] = {}
        for name, part in found.items():
            if name not in groups:
                made[name] = part
            elif part.form.sort == "list" and part is not inside[name]:
                made[f"{name[:-1]}{NUMBER}"] = part
        return made

    def struct_of(self, parts: Mapping[str, _Part]) -> _Part:
        """The form of a struct, whose fields have names like the parts."""
        fields: dict[str, Form] = {}
        labels: dict[str, str] = {}
        for text, part in parts.items():
            name = field_like(text, fields)
            fields[name] = part.form
            labels[name] = self.joined(text, part.label)
        form = self.struct(fields, labels=labels)
        has_arrays = any(part.is_listed for part in parts.values())
        return _Part(form._replace(name=_layer(fields)), "", has_arrays)


def field_like(text: str, taken: Container[str]) -> str:
    """The name of a field that is like a part of the name of an array.

    Example:
        >>> field_like("layers_{i}", ()), field_like("0", ()), field_like("class", ()), field_like("a-b", ["a_b"])
        ('layers', 'item_0', 'class_', 'a_b_2')
    """
    name = re.sub(r"_?\{i\}$", "", text) or "items"
    name = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_") or "value"
    if name[0].isdigit():
        name = f"item_{name}"
    while not is_field(name):
        name = f"{name}_"
    made, count = name, 1
    while made in taken:
        count += 1
        made = f"{name}_{count}"
    return made


def _layer(fields: Mapping[str, Form]) -> str:
    """The name of a struct of a weight with a bias or statistics; empty for others."""
    axes = {name: _axes(form) for name, form in fields.items()}
    weights = [count for name, count in axes.items() if name in _WEIGHTS]
    others = [count for name, count in axes.items() if name not in _WEIGHTS]
    single = len(weights) == 1 and None not in weights and {*others} <= {0, 1}
    return _LAYERS.get(weights[0] or 0, "") if single else ""


def _axes(form: Form) -> int | None:
    """The number of axes of an array; None for anything else."""
    return len(form.node["shape"]) if ARRAY.matches(form.node) else None
