"""Values in payloads: changes inside of nodes, and real arrays as complex ones, bit-exact in both directions.

:func:`map_leaves` changes the values inside of a node by its declared type, :func:`shown_node` is its text in messages.

Example:
    >>> shown_node({"__kind__": "full", "dtype": "int8", "shape": [2], "value": 7})
    'int8[2], all 7'
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from neuralqx_struct.errors import Diagnostic, MigrationError
from neuralqx_struct.manifest.kinds import ENUM, NUMPY_SCALAR, show
from neuralqx_struct.paths import FieldName, Path, format_path
from neuralqx_struct.schema.conformance import see_node
from neuralqx_struct.schema.model import Document, once
from neuralqx_struct.types import Node, Type, walk_type


def map_leaves(
    node: Node, declared: Type, change: Callable[[Node, Type, Path], Node], at: Path = ()
) -> Node:
    """A node with every node in it changed that contains no others.

    Args:
        node: The node.
        declared: Its type.
        change: Called with the inner node, its type and its path.
        at: The path of the node.
    """
    children = declared.children(node)
    if children:
        made = [map_leaves(each, part, change, (*at, key)) for key, part, each in children]
        return declared.with_children(node, made)
    return change(node, declared, at)


def map_texts(
    node: Node, declared: Type, change: Callable[[str, Type, Path], str], at: Path = ()
) -> Node:
    """As :func:`map_leaves`, for strings, those of numpy too, and for the names of enum members."""

    def changed(node: Node, declared: Type, at: Path) -> Node:
        if isinstance(node, str):
            return change(node, declared, at)
        if ENUM.matches(node):  # a member of a Python class; schemas write its name
            return {**node, "name": change(node["name"], declared, at)}
        if NUMPY_SCALAR.matches(node) and isinstance(node["value"], str):
            text = change(node["value"], declared, at)
            return {**node, "dtype": f"<U{max(len(text), 1)}", "value": text}
        return node

    return map_leaves(node, declared, changed, at)


def marks_of(node: Node, marks: Iterable[str] = ("leaf", "weak_type")) -> dict[str, Node]:
    """Those of the marks of an array that its node has; a scalar of numpy is an array of numpy."""
    held = {"leaf": "numpy"} if NUMPY_SCALAR.matches(node) else node
    return {mark: held[mark] for mark in marks if mark in held}


def shown_node(node: Node) -> str:
    """A node as messages show it: the value of a scalar, the type and size of others."""
    shown = show(node)
    if shown.value and shown.array is None:
        return shown.value
    return f"{shown.text}, all {shown.value}" if shown.value else shown.text


def finished_fields(
    fields: Mapping[str, Any],
    struct: str,
    documents: tuple[Document, Document],
    path: Path,
    report: list[Diagnostic],
) -> dict[str, Any]:
    """Returns fields in the order of their declaration, with the default of an enum for unknown members.

    Args:
        fields: The fields of an instance.
        struct: The name of its struct.
        documents: The declaration that the values have, and the one that they get.
        path: The path of the instance.
        report: Receives a diagnostic for each member that became a default.

    Raises:
        MigrationError: NQX421: a member is unknown, and its enum has no default.
    """
    stored = documents[1].structs[struct].stored
    ordered = {name: fields[name] for name in stored if name in fields} | dict(fields)

    def known(text: str, declared: Type, at: Path) -> str:
        return _known_member(text, declared, documents, at, report)

    for name in _fields_with_enums(documents[1])[struct]:
        if name in ordered:
            at = (*path, FieldName(name))
            ordered[name] = map_texts(ordered[name], stored[name].declared, known, at)
    return ordered


@once
def _fields_with_enums(document: Document) -> dict[str, list[str]]:
    """The stored fields of each struct whose values may be members of an enum."""
    return {
        name: [
            key
            for key, each in struct.stored.items()
            if any(document.members_of(part.refers) for part in walk_type(each.declared))
        ]
        for name, struct in document.structs.items()
    }


def _known_member(
    text: str,
    declared: Type,
    documents: tuple[Document, Document],
    at: Path,
    report: list[Diagnostic],
) -> str:
    """The text, or the default of the first enum that has lost it as a member."""
    before, document = documents
    names = [branch.refers for branch in declared.branches if document.members_of(branch.refers)]
    if not names or declared.accepts(document, see_node(text)):
        return text
    names = [name for name in names if text in (before.members_of(name) or ())] or names
    places = [document.place_of(name) for name in names]
    enums = [owner.enums[name] for owner, name in places]
    path, enum = format_path(at), enums[0]
    if enum.default is None or any(each.default is None for each in enums):
        members = [member for each in enums for member in each.members]
        message = f"expected one of {', '.join(members)}, got {text!r}"
        raise MigrationError(message, code="NQX421", path=path)
    message = f"{text!r} is no member of {names[0]}, its default {enum.default!r} was taken"
    report.append(Diagnostic("NQX425", "info", message, path=path))
    return enum.default


if TYPE_CHECKING:
    import numpy as np


#: The complex dtype whose parts are of a real dtype, and back.
COMPLEX_OF = {"float32": "complex64", "float64": "complex128"}
PART_OF = {whole: part for part, whole in COMPLEX_OF.items()}


def join_complex(real: np.ndarray, imaginary: np.ndarray, dtype: str) -> np.ndarray:
    """One complex array of two real ones, bit by bit; the inverse of :func:`part_complex`.

    Copied into the parts, never added: ``a + 1j * b`` would turn -0.0 into 0.0 and spread NaN and infinity.
    """
    import numpy as np

    result = np.empty(real.shape, dtype)
    result.real[...] = real
    result.imag[...] = imaginary
    return result


def part_complex(array: np.ndarray, imaginary: bool) -> np.ndarray:
    """The real or the imaginary part of a complex array, bit by bit and C-contiguous."""
    import numpy as np

    # ascontiguousarray would make a 0-d array 1-d.
    return np.array(array.imag if imaginary else array.real, order="C")
