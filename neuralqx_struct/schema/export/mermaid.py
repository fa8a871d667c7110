"""Drawings: a schema as a Mermaid diagram, which GitHub, GitLab and Sphinx show as a picture, and as an outline.

A diagram shows structs with their fields, or versions with the steps between them. Mermaid has no escapes in class
bodies: its special characters become entities.

Example:
    >>> from neuralqx_struct.schema.series import load_series
    >>> print(version_diagram(load_series("schemas/vmc_state")))
    flowchart LR
      v1["version 1"]
      v2["version 2"]
      v3["version 3"]
      v1 -->|"merge, merge, rename, rename, cast, rename, rename, rename, rename, rename, add, remove"| v2
      v2 -->|"split, split, wrap_key, rename, move, move, add, remove"| v3
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from neuralqx_struct.schema.model import Document, FieldDeclaration
from neuralqx_struct.schema.series import Series
from neuralqx_struct.types.records import walk_type

__all__ = ["outline", "struct_diagram", "version_diagram"]

# ---------------------------------------------------------------------------------------------------------------------
# Mermaid.

_ENTITIES = str.maketrans(
    {c: f"#{ord(c)};" for c in "#;(){}<>~\"'`\\%[]|*$\n\r\t&"} | {"\n": " ", "\r": " ", "\t": " "}
)
_KEPT = str.maketrans({c: c for c in "[]|*'"})
#: Words that begin a statement of Mermaid; names of the schema are unquoted there alone.
_WORDS = frozenset(
    {
        "accDescr",
        "accTitle",
        "call",
        "callback",
        "class",
        "classDef",
        "click",
        "cssClass",
        "default",
        "direction",
        "end",
    }
    | {"graph", "href", "link", "linkStyle", "namespace", "note", "style", "subgraph", "title"}
)


def _label(text: str) -> str:
    """Text as Mermaid shows it, whatever is in it."""
    return text.translate(_ENTITIES)


def _member(text: str) -> str:
    """The same in the body of a class, where brackets mean nothing."""
    return text.translate({**_ENTITIES, **_KEPT})


def struct_diagram(document: Document) -> str:
    """A class diagram: structs with their fields, enums with their members, and which struct holds which.

    Args:
        document: One version of a schema.
    """
    lines = ["classDiagram"]
    for owner in document.closure():
        for name, struct in owner.structs.items():
            marks = ["  <<root>>"] if owner is document and name == document.root else []
            fields = [
                f"  {_member(_field(field, member))}" for field, member in struct.fields.items()
            ]
            lines += _box(
                _node(document, owner, name), _title(document, owner, name), [*marks, *fields]
            )
        for name, enum in owner.enums.items():
            members = [f"  {member}" for member in enum.members]
            lines += _box(
                _node(document, owner, name),
                _title(document, owner, name),
                ["  <<enumeration>>", *members],
            )
    lines += dict.fromkeys(link for owner in document.closure() for link in _links(document, owner))
    return "\n".join([lines[0], *(f"  {line}" for line in lines[1:])])


def _node(document: Document, owner: Document, name: str) -> str:
    word = name if owner is document else f"{owner.id.replace('.', '_')}_{owner.version}_{name}"
    return f"{word}_" if word in _WORDS else word


def _title(document: Document, owner: Document, name: str) -> str:
    return name if owner is document else f"{owner.id}.{name}"


def _box(node: str, title: str, members: list[str]) -> list[str]:
    head = f"class {node}" if node == title else f'class {node}["{_label(title)}"]'
    return [f"{head} {{", *members, "}"] if members else [head]


def _field(name: str, member: FieldDeclaration) -> str:
    kind = f" {member.kind}" if member.kind != "node" else ""
    origin = f" = {member.derived}" if member.derived is not None else ""
    return f"{name}: {member.text}{kind}{origin}"


def _links(document: Document, owner: Document) -> Iterator[str]:
    for name, struct in owner.structs.items():
        for field, member in struct.fields.items():
            if member.type is None:
                continue
            for inner in walk_type(member.declared):
                if inner.refers:
                    home, word = owner.place_of(inner.refers)
                    arrow = "..>" if word in home.enums else "*--"
                    optional = '"0..1" ' if member.declared.nullable else ""
                    many = member.declared.record.many or optional
                    target = _node(document, home, word)
                    yield f"{_node(document, owner, name)} {arrow} {many}{target} : {_label(field)}"


def version_diagram(series: Series) -> str:
    """A flow of the versions, each arrow with the steps of its migration.

    Args:
        series: The versions.
    """
    lines = ["flowchart LR", *(f'  v{version}["version {version}"]' for version in series.versions)]
    for older, newer in pairwise(series.documents.values()):
        migration = newer.migration_from(older.version)
        steps = ", ".join(item.name for item in migration.steps) if migration else "no steps"
        lines.append(f'  v{older.version} -->|"{_label(steps)}"| v{newer.version}')
    return "\n".join(lines)


# ---------------------------------------------------------------------------------------------------------------------
# Text.


def outline(document: Document) -> list[str]:
    """A version in lines, indented by their parents: sizes, enums, structs with their fields, steps.

    Example:
        >>> from neuralqx_struct.schema.series import load_series
        >>> outline(load_series("schemas/vmc_state").head)[:2]
        ['dim n_sites: min 2; lattice sites', 'dim n_hidden: = alpha * n_sites; hidden units']
    """
    lines: list[str] = []
    for name, dim in document.dims.items():
        bounds = [
            f"min {dim.min}" if dim.min is not None else "",
            f"max {dim.max}" if dim.max is not None else "",
        ]
        facts = "; ".join(
            filter(None, [f"= {dim.equation}" if dim.equation else "", *bounds, dim.doc])
        )
        lines.append(f"dim {name}: {facts}".rstrip(": "))
    lines += [f"enum {name}: {', '.join(enum.members)}" for name, enum in document.enums.items()]
    for name, struct in document.structs.items():
        params = f"[{', '.join(struct.params)}]" if struct.params else ""
        lines.append(f"struct {name}{params}{' (root)' if name == document.root else ''}")
        width = max(map(len, struct.fields), default=0)
        types = {field: declaration.text for field, declaration in struct.fields.items()}
        type_width = min(max(map(len, types.values()), default=0), 40)
        for field, declaration in struct.fields.items():
            facts = "; ".join(_facts(declaration))
            lines.append(f"  {field:<{width}}  {types[field]:<{type_width}}  {facts}".rstrip())
        lines += [f"  constraint {constraint.expr}" for constraint in struct.constraints]
        lines += [f"  reserved {', '.join(struct.reserved)}"] if struct.reserved else []
    for migration in document.migrations:
        lines.append(
            f"migration from {migration.from_version}: {', '.join(item.name for item in migration.steps)}"
        )
    return [line.replace("\n", " ") for line in lines]


def _facts(declaration: FieldDeclaration) -> list[str]:
    facts: list[Any] = [declaration.kind if declaration.kind != "node" else ""]
    facts += [f"= {declaration.derived}"] if declaration.derived is not None else []
    facts += [f"default {json.dumps(declaration.default)}"] if declaration.has_default else []
    facts += [f"tags {', '.join(declaration.tags)}"] if declaration.tags else []
    return [str(fact) for fact in (*facts, declaration.doc) if fact]
