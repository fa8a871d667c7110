"""Checks of one schema document: its names, migrations and style, and the table of all checks of a document.

Owns :data:`CHECKS`, in the order of their findings. A new check is a generator of findings and a row of one of the tables
in this package. Checks of two versions are in ``tools/linting.py``.

Example:
    >>> from neuralqx_struct.schema.text.loader import read_text
    >>> from neuralqx_struct.schema.reading import parse_document
    >>> text = '{"language": "1", "schema": "a", "version": 1, "root": "B", "structs": {"A": {"fields": {}}}}'
    >>> [finding.code for check in CHECKS for finding in check(parse_document(read_text(text)))]
    ['NQX101']
"""

from __future__ import annotations

import keyword
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import partial

from neuralqx_struct.dtypes import DTYPES
from neuralqx_struct.fieldspec import RESERVED_NAMES
from neuralqx_struct.schema.lint import Check, Findings, Speller, fields_of, finding
from neuralqx_struct.schema.lint.expressions import EXPRESSION_CHECKS, SIZE_CHECKS
from neuralqx_struct.schema.lint.types import TYPE_CHECKS
from neuralqx_struct.schema.lint.values import VALUE_CHECKS
from neuralqx_struct.schema.migration import MODES
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.text import KeyPath
from neuralqx_struct.types import type_names, walk_type
from neuralqx_struct.types.text import format_type


def _check_root(document: Document) -> Findings:
    if document.root not in document.structs:
        hint = Speller().hint(document.root, document.structs, label="structs")
        message = f"expected one of the structs, got {document.root!r}"
        yield finding("NQX101", ("root",), message, hint)


def _check_names(document: Document) -> Findings:
    types = type_names()
    for path, name in _named(document):
        section = path[0] if len(path) == 2 else path[2]
        reason = objection_to_field(name) if section == "fields" else ""
        if keyword.iskeyword(name):
            reason = "a keyword of Python"
        elif section in {"structs", "enums", "dtypes"} and name in types:
            reason = "a built-in type"
        elif section in {"enums", "dtypes"} and name in document.structs:
            reason = "the name of a struct too"
        elif section == "dtypes" and name in document.enums:
            reason = "the name of an enum too"
        elif section == "dtypes" and name in document.dims:
            reason = "the name of a dim too"
        if reason:
            yield finding("NQX118", path, not_free(name, reason), "rename it")


def not_free(name: str, reason: str) -> str:
    """The message about a name that cannot be taken."""
    return f"expected a name that is free, got {name!r}, which is {reason}"


def objection_to_field(name: str) -> str:
    """The reason why no field can have a name; empty if one can.

    Example:
        >>> objection_to_field("class"), objection_to_field("kernel")
        ('a keyword of Python', '')
    """
    if keyword.iskeyword(name):
        return "a keyword of Python"
    if name in RESERVED_NAMES:
        return "a method of every Struct"
    return "one of Struct's own names" if name.startswith(("__", "_nqx")) else ""


def _named(document: Document) -> Iterator[tuple[KeyPath, str]]:
    """Yields every name that a document declares, with its path."""
    for section in ("structs", "enums", "dims", "dtypes"):
        yield from (((section, name), name) for name in getattr(document, section))
    yield from ((path, name) for path, _, name, _ in fields_of(document))
    for struct_name, struct in document.structs.items():
        for index, name in enumerate(struct.params):
            yield ("structs", struct_name, "params", index), name


def _check_similar_names(document: Document) -> Findings:
    groups: dict[KeyPath, Iterable[str]] = {
        ("structs",): document.structs,
        ("enums",): document.enums,
        ("dims",): document.dims,
        ("dtypes",): document.dtypes,
    }
    for name, struct in document.structs.items():
        groups["structs", name, "fields"] = struct.fields
    for path, names in groups.items():
        first: dict[str, str] = {}
        for name in names:
            other = first.setdefault(name.lower(), name)
            if other != name:
                message = (
                    f"expected names that differ in more than case, got {other!r} and {name!r}"
                )
                yield finding("NQX119", (*path, name), message, "rename one of the two", "warning")


def _check_enums(document: Document) -> Findings:
    speller = Speller()
    forward = "forward" in MODES[document.compatibility].directions
    for name, enum in document.enums.items():
        path = ("enums", name)
        repeated = [member for member, count in Counter(enum.members).items() if count > 1]
        if repeated:
            message = f"expected each member once, got {', '.join(map(repr, repeated))} again"
            yield finding("NQX002", path, message, "remove the repetition")
        if enum.default is not None and enum.default not in enum.members:
            message = f"expected one of {', '.join(enum.members)}, got {enum.default!r}"
            hint = speller.hint(enum.default, enum.members)
            yield finding("NQX107", (*path, "default"), message, hint)
        elif enum.default is None and forward:
            message = f"expected a default of enum {name}, got none\nolder readers cannot read members that are added later"
            hint = "add `default:` with one of the members"
            yield finding("NQX133", path, message, hint, "warning")


def _check_reserved(document: Document) -> Findings:
    for path, struct_name, name, _ in fields_of(document):
        if name in document.structs[struct_name].reserved:
            message = f"expected a name that is not reserved, got {name!r}\nold payloads hold it with another meaning"
            yield finding("NQX125", path, message, "choose another name")


def _check_aliases(document: Document) -> Findings:
    speller = Speller()
    owners = {name: struct.aliases for name, struct in document.structs.items()}
    yield from _aliases(owners, owners, "a struct", lambda name: ("structs", name, "aliases"))
    for name, struct in document.structs.items():
        fields = ("structs", name, "fields")
        owners = {field: declaration.aliases for field, declaration in struct.fields.items()}
        where = partial(_alias_path, fields)
        yield from _aliases(owners, owners, "a field", where)
    for name, enum in document.enums.items():
        path = ("enums", name, "aliases")
        for member in enum.aliases.keys() - {*enum.members}:
            message = f"expected aliases of a member of {name}, got those of {member!r}"
            hint = speller.hint(member, enum.members)
            yield finding("NQX124", (*path, member), message, hint)
        yield from _aliases(enum.aliases, {*enum.members}, "a member", partial(_member_path, path))


def _member_path(aliases: KeyPath, name: str) -> KeyPath:
    return (*aliases, name)


def _alias_path(fields: KeyPath, name: str) -> KeyPath:
    return (*fields, name, "aliases")


def _aliases(
    owners: Mapping[str, Sequence[str]],
    present: Container[str],
    label: str,
    where: Callable[[str], KeyPath],
) -> Findings:
    """Checks that former names are neither present names nor given twice."""
    taken: dict[str, tuple[str, int]] = {}
    for owner, aliases in owners.items():
        for index, alias in enumerate(aliases):
            path = (*where(owner), index)
            first = taken.setdefault(alias, (owner, index))
            if alias in present:
                message = f"expected a former name, got {alias!r}, which is {label} of this version"
                yield finding("NQX124", path, message, "remove the alias")
            elif first != (owner, index):
                message = f"expected each alias once, got {alias!r}, which {first[0]} has too"
                yield finding("NQX123", path, message, "remove one of the two")


def _check_migrations(document: Document) -> Findings:
    seen: set[int] = set()
    previous = document.version - 1
    has_previous = document.migration_from(previous) is not None
    for index, migration in enumerate(document.migrations):
        path, origin = ("migrations", index, "from"), migration.from_version
        message = f"expected a migration from version {previous}, got one from {origin}"
        if origin in seen:
            message = f"expected one migration from each version, got another from {origin}"
            yield finding("NQX303", path, message, "join the two lists of steps")
        elif origin >= document.version:
            hint = "migrations lead from the version before to this one"
            yield finding("NQX302", path, message, hint)
        elif not has_previous:  # others may replace versions that are not available
            hint = "payloads move one version at a time; put it in that version's file"
            yield finding("NQX301", path, message, hint)
        seen.add(origin)


# ---------------------------------------------------------------------------------------------------------------------
# Style: declarations that work, and are likely mistakes or fail in some setups. These checks never refuse a document.

_SHARE = 10  # a missing doc is reported if at most one field in so many lacks it


def _check_docs(document: Document) -> Findings:
    """Reports fields without ``doc`` where nearly all have one."""
    fields = [*fields_of(document)]
    bare = [(path, name) for path, _, name, declaration in fields if not declaration.doc]
    for path, name in bare if len(bare) * _SHARE <= len(fields) else ():
        message = f"expected a doc as the other fields have, got none for {name!r}"
        yield finding("NQX120", path, message, "describe it in a few words: `doc: ...`", "info")


def _check_tags(document: Document) -> Findings:
    """Warns about a tag that is used once and looks like a misspelt other one: filters would miss it."""
    yield from _misspelt(document, "tags", "a tag")


def _check_axes(document: Document) -> Findings:
    """Warns likewise about the name of an axis, which rules of meshes would miss."""
    yield from _misspelt(document, "axes", "the name of an axis")


def _misspelt(document: Document, member: str, noun: str) -> Findings:
    tags: list[tuple[KeyPath, str]] = [
        ((*path, member, place), tag)
        for path, _, _, declaration in fields_of(document)
        for place, tag in enumerate(getattr(declaration, member) or ())
    ]
    count = Counter(tag for _, tag in tags)
    common = [tag for tag in count if count[tag] > 1]
    speller = Speller(most=100)
    for path, tag in tags:
        near = speller.closest(tag, common, cutoff=0.85) if count[tag] == 1 else None
        if near is not None and not _numbered(tag, near):
            message = (
                f"expected {noun} that other fields have, got {tag!r}, which no other field has"
            )
            yield finding("NQX121", path, message, f"did you mean {near!r}?", "warning")


def _numbered(one: str, other: str) -> bool:
    """True for names that differ in their number, as layer_1 and layer_2 do."""
    return one.rstrip("0123456789") == other.rstrip("0123456789")


def _check_x64(document: Document) -> Findings:
    """Reports defaults of 64-bit numbers: without jax_enable_x64 JAX cannot hold them and construction fails."""
    for path, _, _, declaration in fields_of(document):
        if not declaration.has_default or declaration.default is None:
            continue
        for inner in walk_type(declaration.declared):
            if len(inner.dtypes) == 1 and DTYPES[inner.dtypes[0]].wide:
                message = (
                    f"expected a default that JAX always holds, got one of {format_type(inner)}\n"
                    "without jax_enable_x64 JAX makes 32-bit numbers of it, which the field does not take"
                )
                hint = "declare a 32-bit dtype, allow null in place of the default, or ignore this where x64 is on"
                yield finding("NQX128", (*path, "default"), message, hint, "info")


def _check_texts(document: Document) -> Findings:
    """Warns about text in a node field: it can be saved and mapped over, but jit refuses the struct."""
    for path, _, name, declaration in fields_of(document):
        if declaration.kind != "node" or declaration.derived is not None:
            continue
        parts = [part for part in walk_type(declaration.declared) if not part.parts]
        texts = [part for part in parts if part.outside_jax(document)]
        if not texts or any(part.only_in_nodes(document) for part in parts):
            continue
        message = (
            f"expected a node of arrays and numbers, got {format_type(texts[0])} in {name!r}\n"
            "jax.jit and other transformations refuse a leaf that is not a number"
        )
        hint = "write `kind: static`"
        held = [part for part in walk_type(declaration.declared) if part.unhashable]
        fixed = [part for part in held if not part.hashable_form]
        if fixed:
            words = fixed[0].unhashable.format(format_type(fixed[0]))
            hint = f"write `kind: opaque` and `serialize: true`, as no static value is {words}"
        elif held:
            hint += f" and {held[0].hashable_form} in place of {held[0].unhashable}"
        yield finding("NQX136", (*path, "type"), message, hint, "warning")


#: Checks without which a document has no meaning.
CHECKS: tuple[Check, ...] = (
    _check_root,
    _check_names,
    _check_similar_names,
    _check_enums,
    _check_reserved,
    _check_aliases,
    *TYPE_CHECKS,
    *SIZE_CHECKS,
    _check_migrations,
)
_STYLE_CHECKS: tuple[Check, ...] = (
    _check_docs,
    _check_tags,
    _check_axes,
    _check_x64,
    _check_texts,
)
ALL_CHECKS: tuple[Check, ...] = (*CHECKS, *EXPRESSION_CHECKS, *VALUE_CHECKS, *_STYLE_CHECKS)
