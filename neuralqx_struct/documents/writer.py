"""The schema writer: Struct classes -> one schema document.

Owns the walk over classes: fields, defaults, docs and tags; annotations become types in ``annotations.py``. Python can
express more than the schema language: the rest becomes ``pytree`` or is left out, with a note NQX134 for each place. No
code of the user runs. ``documents.py`` has the public functions.

Example:
    >>> plain_value((1, "a")), plain_value(object()) is MISSING
    ([1, 'a'], True)
"""

from __future__ import annotations

import contextlib
import enum
import inspect
import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, cast

from neuralqx_struct.documents.annotations import type_of
from neuralqx_struct.documents.binding import ClassDocument, SchemaBinding
from neuralqx_struct.documents.hints import annotation_of
from neuralqx_struct.errors import Diagnostic, SchemaError
from neuralqx_struct.fieldspec import MISSING, FieldKind, FieldSpec
from neuralqx_struct.references import SchemaRef, stored_class
from neuralqx_struct.schema.lint.document import CHECKS
from neuralqx_struct.schema.lint.values import VALUE_CHECKS
from neuralqx_struct.schema.lock import same_payloads
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.reading import document_from_data
from neuralqx_struct.schema.text import path_keys
from neuralqx_struct.schema.uses import among, link
from neuralqx_struct.types import Named, Type, type_names
from neuralqx_struct.types.builders import NodeBuilder
from neuralqx_struct.types.records import type_of_class, walk_type
from neuralqx_struct.types.text import format_type, plain_value

#: Returns the document of a class that is a version of a schema, else None.
DocumentOf = Callable[[type], Document | None]


def write_document(cls: type, binding: SchemaBinding, document_of: DocumentOf) -> ClassDocument:
    """The document of a class as a version of a schema.

    Args:
        cls: The class, which becomes the root.
        binding: Identity, version and migrations.
        document_of: For the classes that it uses.

    Raises:
        SchemaError: The document is not valid.
    """
    writer = _Writer(document_of)
    root = writer.name_of(cls)
    data: dict[str, Any] = {
        "language": "1",
        "schema": binding.id,
        "version": binding.version,
        "root": root,
    }
    if writer.used:
        data["uses"] = [str(SchemaRef(used.id, used.version)) for used in writer.used.values()]
    if writer.enums:
        data["enums"] = writer.enums
    data["structs"] = writer.structs
    if binding.migrations:
        data["migrations"] = [
            migration.model_dump(mode="json", by_alias=True, exclude_unset=True)
            for migration in binding.direct_migrations()
        ]
    document = writer.checked(data, f"schema_of({cls.__name__})")
    classes = {name: known for known, name in writer.names.items()}
    structs = {known: name for name, known in classes.items() if name in document.structs}
    refs = {known: document.ref(name) for known, name in structs.items()}
    enums = {known: _enums_of(document, name, classes) for known, name in structs.items()}
    return ClassDocument(document, classes, refs, enums, tuple(writer.notes))


def _enums_of(
    document: Document, struct: str, classes: dict[str, type]
) -> dict[str, type[enum.Enum]]:
    """The Enum classes of the fields of a struct."""
    found: dict[str, type[enum.Enum]] = {}
    for field, declaration in document.structs[struct].stored.items():
        name = _named_option(declaration.declared)
        if name in document.enums:
            found[field] = cast("type[enum.Enum]", classes[name])
    return found


def _named_option(declared: Type) -> str:
    """The name that a type is, apart from null."""
    return declared.solid[0].refers if len(declared.solid) == 1 else ""


class _Writer:
    """One walk over classes: collects their declarations, and notes of the facts that the language cannot express."""

    def __init__(self, document_of: DocumentOf) -> None:
        self.document_of = document_of
        self.structs: dict[str, dict[str, Any]] = {}
        self.enums: dict[str, dict[str, Any]] = {}
        self.used: dict[str, Document] = {}
        self.names: dict[type, str] = {}
        self.notes: list[Diagnostic] = []
        self.defaults: dict[tuple[str, str], Any] = {}
        self._where = ""

    def note(self, message: str, hint: str | None = None) -> None:
        self.notes.append(Diagnostic("NQX134", "info", message, path=self._where, hint=hint))

    def name_of(self, cls: type) -> str:
        """The name of a struct or enum in the document; declares it the first time."""
        if cls not in self.names:
            taken = {*self.names.values(), *type_names()}
            numbered = (f"{cls.__name__}{number}" for number in itertools.count(2))
            candidates = itertools.chain([cls.__name__], numbered)
            name = next(each for each in candidates if each not in taken)
            self.names[cls] = name
            if issubclass(cls, enum.Enum):
                self.enums[name] = {"members": [member.name for member in cls], **written_doc(cls)}
            else:
                self.structs[name] = {**written_doc(cls), "fields": {}}
                self._declare_fields(cls, name)
        return self.names[cls]

    def _declare_fields(self, cls: Any, struct: str) -> None:
        fields = self.structs[struct]["fields"]
        docs = documented_fields(cls)
        outer = self._where
        for spec in cls.__nqx_fields__.values():
            self._where = f"{cls.__name__}.{spec.name}"
            if spec.is_derived:
                self.note(
                    "left out: a field that Python code derives",
                    "derive it in the schema: derived: size(w)",
                )
            else:
                fields[spec.name] = self._field(cls, spec, docs.get(spec.name, ""))
                self.defaults[struct, spec.name] = spec.default
        self._where = outer

    def _field(self, cls: type, spec: FieldSpec, doc: str) -> dict[str, Any]:
        data: dict[str, Any] = {}
        if spec.kind is not FieldKind.OPAQUE or spec.should_serialize:
            data["type"] = format_type(type_of(annotation_of(cls, spec), self))
        if spec.kind is not FieldKind.NODE:
            data["kind"] = spec.kind.value
        if spec.has_default:
            default = plain_default(spec)
            typed = data.get("type", "pytree") != "pytree"
            if default is MISSING or not (typed or _is_plain(spec.make_default(), default)):
                self.note(
                    "left out: a default that a schema cannot write",
                    "every call of the constructor must give it",
                )
            else:
                data["default"] = default
        if spec.serialize is not None:
            data["serialize"] = spec.serialize
        if spec.reset and "default" in data:
            data["reset"] = True
        hooks = [getattr(hook, "__name__", repr(hook)) for _, hook in spec.value_hooks()]
        if hooks:
            self.note(
                f"left out: checks and conversions by Python code ({', '.join(hooks)})",
                "register it with register_hook",
            )
        return data | described_field(spec, doc)

    def struct(self, cls: Any) -> Type | None:
        """The type of a Struct class: one of this document, or of the other one whose version it is."""
        own = None if cls in self.names else self.document_of(cls)
        if own is None:
            return Named(self.name_of(cls))
        known = self.used.setdefault(own.id, own)
        if not same_payloads(known, own):
            return None  # a document uses one version of another
        bound = "__nqx_binding__" in vars(stored_class(cls))
        return Named(f"{own.id}.{own.root if bound else name_in_schema(cls)}")

    def checked(self, data: dict[str, Any], name: str) -> Document:
        """The document; types and defaults that fail the checks of the language are left out.

        Raises:
            SchemaError: Other checks fail.
        """
        find = among(self.used.values())
        document = link(document_from_data(data, name), find)
        wrong = list(_errors(document))
        if wrong:
            for finding in wrong:
                self._leave_out(finding)
            document = link(document_from_data(data, name), find)
            wrong = list(_errors(document))
        if wrong:
            raise SchemaError(replace(found, path="", file=name) for found in wrong)
        dropped = [self._leave_out_ambiguous(document, *each) for each in self.defaults.items()]
        return link(document_from_data(data, name), find) if any(dropped) else document

    def _leave_out_ambiguous(self, document: Document, key: tuple[str, str], value: Any) -> bool:
        """Leaves out a default whose text another option of the type reads; returns True if it did."""
        struct, field = key
        declaration = document.structs[struct].stored.get(field)
        if declaration is None or not declaration.has_default or value is MISSING:
            return False
        unions = [part for part in walk_type(declaration.declared) if len(part.solid) > 1]
        leaves = list(_leaves(value))
        if all(reads_back(union, leaf, document) for union in unions for leaf in leaves):
            return False
        self._where = f"{struct}.{field}"
        self._drop_default(
            struct, field, "left out: a default that a file holds as another option's value"
        )
        return True

    def _drop_default(self, struct: str, field: str, reason: str, hint: str | None = None) -> None:
        declared = self.structs[struct]["fields"][field]
        declared.pop("default", None)
        declared.pop("reset", None)
        self.note(reason, hint)

    def _leave_out(self, finding: Diagnostic) -> None:
        match path_keys(finding.path):
            case ("structs", str(struct), "fields", str(field), str(member), *_):
                declared = self.structs[struct]["fields"][field]
                self._where = f"{struct}.{field}"
                if member == "default":
                    reason = f"left out: a default\n{finding.message}"
                    self._drop_default(struct, field, reason, finding.hint)
                elif member == "axes":
                    declared.pop("axes")
                    self.note(f"left out: names of axes\n{finding.message}", finding.hint)
                elif member == "type":
                    declared.pop("axes", None)
                    declared["type"] = "pytree"
                    expected = "expected a type that the schema language has, got pytree instead"
                    self.note(f"{expected}\n{finding.message}")


def _errors(document: Document) -> Iterator[Diagnostic]:
    for check in (*CHECKS, *VALUE_CHECKS):
        for finding in check(document):
            if finding.severity == "error":
                yield finding


# ---------------------------------------------------------------------------------------------------------------------
# Names, docs and defaults of Python, as a schema file holds them.


def name_in_schema(cls: type) -> str:
    """The name of a schema-made class, or of the one that a class inherits from."""
    return next(base.__name__ for base in cls.__mro__ if "__nqx_document__" in vars(base))


def plain_default(spec: FieldSpec) -> Any:
    """The default as a file can hold it, or MISSING; of factories only ``dict`` and ``list`` are called."""
    if spec.default_factory is MISSING:
        return plain_value(spec.default)
    makers: tuple[Any, ...] = (dict, list)
    return spec.default_factory() if spec.default_factory in makers else MISSING


def reads_back(union: Type, value: Any, document: Document) -> bool:
    """True if a union reads the plain value of one of its values as that value.

    A path in ``str | path`` becomes text, and a member of ``Phase | str`` has no sign that it was one.
    """
    builder = NodeBuilder(document)
    plain = plain_value(value)
    nodes: list[Any] = []
    for option in union.branches:
        with contextlib.suppress(SchemaError):
            nodes.append(option.read(plain, builder))
    if isinstance(value, enum.Enum):
        return len(nodes) < 2
    cls: type = type(value)
    record = type_of_class(cls)
    return record is None or not nodes or repr(nodes[0]) == repr(record.read(plain, builder))


def _leaves(value: Any) -> Iterator[Any]:
    """Yields the items of nested tuples; the value itself if it is no tuple."""
    if isinstance(value, tuple):
        for item in value:
            yield from _leaves(item)
    else:
        yield value


def _is_plain(value: Any, plain: Any) -> bool:
    """True if a value is the same as its plain value, so that a file needs no type to hold it."""
    return repr(value) == repr(plain)


def described_field(spec: FieldSpec, doc: str = "") -> dict[str, Any]:
    """The members of a field for people and tools; ``doc`` is the fallback for the field's own."""
    members = {
        "doc": spec.doc or doc,
        "unit": spec.metadata.get("unit"),
        "tags": sorted(spec.tags),
        "axes": _axes_of(spec),
        "aliases": list(spec.aliases),
        "deprecated": spec.metadata.get("deprecated"),
        "examples": plain_value(list(spec.metadata.get("examples", ()))),
    }
    return {name: value for name, value in members.items() if value and value is not MISSING}


def _axes_of(spec: FieldSpec) -> list[str] | None:
    """The names of the axes of a field, if its metadata hold such."""
    axes = spec.metadata.get("axes")
    if not isinstance(axes, (list, tuple)):
        return None
    return [*axes] if all(isinstance(name, str) and name.isidentifier() for name in axes) else None


def written_doc(cls: type) -> dict[str, str]:
    """The docstring of a class, unless it was generated or inherited."""
    doc = cls.__dict__.get("__doc__")
    if not isinstance(doc, str):
        return {}
    if doc.startswith(f"{cls.__name__}(") or doc == "An enumeration.":
        return {}
    text = inspect.cleandoc(doc)
    return {"doc": text} if text else {}


def documented_fields(cls: type) -> dict[str, str]:
    """The docs of fields in the section ``Attributes:`` of a docstring, as Google's style and napoleon have it."""
    _, _, section = f"\n{written_doc(cls).get('doc', '')}\n".partition("\nAttributes:\n")
    found: dict[str, str] = {}
    name, margin = "", ""
    for line in section.splitlines():
        if line.strip() and not line[0].isspace():
            break  # the next section, or text
        entry = re.match(r"(\s+)(\w+)(?: \([^)]*\))?:(?: +|$)(.*)", line)
        if entry and (not margin or entry[1] == margin):
            margin, name, text = entry.groups()
            found[name] = text.strip()
        elif name and line.strip():
            found[name] = f"{found[name]} {line.strip()}".strip()
    return {field: text for field, text in found.items() if text}
