"""The tree of the names in a foreign file, and the forms in it: its structs and lists, and the names of their fields there.

Numbered names of one form are a list, parts that are no names of fields get one like them, and a struct with one field
is that field.

Example:
    >>> arrays = {f"h.{i}.proj.{name}": ForeignArray("float32", shape, lambda: None)
    ...           for i in range(2) for name, shape in [("weight", (4, 3)), ("bias", (3,))]}
    >>> tree = name_tree(arrays, {}, separator_of(arrays))
    >>> compare(tree)
    >>> root = ForeignForms(".", lists=True).root(tree)
    >>> root.labels, root.inside["h"].inside[0].name
    ({'h': 'h.{i}.proj'}, 'Dense')
"""

from __future__ import annotations

import re
from collections.abc import Container, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from neuralqx_struct.formats import ForeignArray
from neuralqx_struct.layouts import NUMBER
from neuralqx_struct.layouts.names import ABSOLUTE
from neuralqx_struct.manifest.kinds import ARRAY
from neuralqx_struct.schema.fitting import numbered, numbered_names
from neuralqx_struct.tools.tree_structs import Form, Forms, is_field

#: The separator with which files are opened, if no other is asked for.
DEFAULT_SEPARATOR = "."
#: Characters that separate the parts of names; the last one only where all names have it.
_SEPARATORS = (".", "/", "-")
#: The last parts of a longer name stay together: walks of structs end at some depth.
_DEEPEST = 40


class Branch(dict[str, Any]):
    """The parts of names below one part: branches, and the nodes of arrays and values.

    Attributes:
        likes: Facts about each part that equal parts share; made by :func:`compare`.
        like: A number that branches with equal parts share, in this order.
    """

    likes: Mapping[str, Hashable]
    like: int


def separator_of(names: Iterable[str]) -> str:
    """The character that separates the parts of names."""
    known = [*names]
    counts = {each: sum(each in name for name in known) for each in _SEPARATORS}
    *usual, rare = _SEPARATORS
    best = max(usual, key=counts.__getitem__)
    return rare if known and counts[best] == 0 and counts[rare] == len(known) else best


def name_tree(
    arrays: Mapping[str, ForeignArray], values: Mapping[str, Any], separator: str
) -> Branch:
    """The tree of the parts of names, whose leaves are nodes."""
    tree = Branch()
    for name, array in arrays.items():
        node = ARRAY.node(name=name, dtype=array.dtype, shape=[*array.shape])
        _insert(tree, _parts(name, separator), node)
    for name, value in values.items():
        if name not in arrays:
            _insert(tree, _parts(name, separator), value)
    return tree


def compare(tree: Branch) -> None:
    """Numbers the branches of a tree, so that those with the same names, dtypes, shapes and values have one number."""
    _compare(tree, {})


def _compare(tree: Branch, known: dict[Hashable, int]) -> int:
    likes: dict[str, Hashable] = {}
    for part, inside in tree.items():
        if isinstance(inside, Branch):
            likes[part] = _compare(inside, known)
        elif ARRAY.matches(inside):
            likes[part] = (inside["dtype"], *inside["shape"])
        else:
            likes[part] = (type(inside), inside)
    tree.likes = likes
    tree.like = known.setdefault(tuple(likes.items()), len(known))
    return tree.like


def _parts(name: str, separator: str) -> list[str]:
    """The parts of a name; the whole name as one absolute part where it has an empty one."""
    parts = name.split(separator, _DEEPEST)
    some = "" in parts or ABSOLUTE in name
    if some and any(not part or part.startswith(ABSOLUTE) for part in parts):
        return [f"{ABSOLUTE}{name}"]
    return parts


def _insert(tree: Branch, parts: list[str], node: Any) -> None:
    *outer, last = parts
    for part in outer:
        inside = tree.setdefault(part, Branch())
        if not isinstance(inside, Branch):  # the name of another array
            inside = tree[part] = Branch({"": inside})
        tree = inside
    if isinstance(tree.get(last), Branch):
        tree, last = tree[last], ""
    tree[last] = node


#: The names of structs that hold the arrays of one layer, by the number of axes of its weight.
_LAYERS = {1: "Norm", 2: "Dense", 4: "Conv"}
_WEIGHTS = frozenset(["weight", "kernel", "scale"])


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
    """The forms in a tree of names that was compared.

    Equal branches have one form. Items of a list behind the last one that is like none before it change nothing in a
    draft, and are left out: a file can have very many layers.

    Attributes:
        prefix: The beginning of all names.
        parts: The parts by the number of their branch.
        left_out: The names of the items that are left out, by the number of the branch around them.
    """

    def __init__(self, separator: str, *, lists: bool) -> None:
        super().__init__()
        self.separator = separator
        self.lists = lists
        self.prefix = ""
        self.parts: dict[int, _Part] = {}
        self.left_out: dict[int, set[str]] = {}

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
        known = self.parts.get(tree.like)
        if known is None:
            known = self.parts[tree.like] = self.branch(tree, is_root=is_root)
        return known

    def branch(self, tree: Branch, *, is_root: bool) -> _Part:
        """The form of a branch."""
        inside = {part: self.part(below) for part, below in tree.items()}
        keys = numbered(inside) if self.lists else None
        if keys is not None and self.alike([inside[key] for key in keys]):
            return self.listed([inside[key] for key in self.different(tree, keys)])
        fields = self.grouped(tree, inside)
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

    def different(self, tree: Branch, names: list[str]) -> list[str]:
        """The names of the items of a list up to the last one that is like none before it, two at least."""
        firsts: dict[Hashable, int] = {}
        for number, name in enumerate(names):
            firsts.setdefault(tree.likes[name], number)
        count = max(2, 1 + max(firsts.values()))
        self.left_out.setdefault(tree.like, set()).update(names[count:])
        return names[:count]

    def drafted(self, tree: Branch) -> Iterator[str]:
        """Yields the names of the arrays that are not left out."""
        left_out = self.left_out.get(tree.like, ())
        for part, inside in tree.items():
            if part in left_out:
                continue
            if isinstance(inside, Branch):
                yield from self.drafted(inside)
            elif ARRAY.matches(inside):
                yield inside["name"]

    def grouped(self, tree: Branch, inside: dict[str, _Part]) -> dict[str, _Part]:
        """Parts with numbered names as lists, by the text in the file; ``{i}`` is the number."""
        groups: dict[str, str] = {}
        found = dict(inside)
        candidates = numbered_names(inside) if self.lists else {}
        digits = numbered(name for name in inside if name.isdecimal())
        if self.lists and digits is not None:
            candidates[""] = digits
        for prefix, names in candidates.items():
            parts = [inside[name] for name in names]
            first = parts[0]
            whole = first.form.sort == "struct" or bool(first.label)
            if len(names) > 1 and whole and self.alike(parts):
                groups |= dict.fromkeys(names, prefix)
                items = [inside[name].form for name in self.different(tree, names)]
                form = self.form("list", (first.form.id, first.label), dict(enumerate(items)))
                found[names[0]] = _Part(form, first.label, True)
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
