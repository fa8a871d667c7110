"""The schema of any object that can be saved: :func:`schema_of` for Struct classes, instances and trees.

Classes are written by ``documents/writer.py``; trees are encoded without data and drafted by ``tools/drafts.py``.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neuralqx_struct.classes.documents import class_schema
from neuralqx_struct.codecs.external import external_name
from neuralqx_struct.codecs.jax import StructEncoder
from neuralqx_struct.codecs.nodes import unsaveable
from neuralqx_struct.documents.bound import document_of
from neuralqx_struct.errors import Diagnostic, within_stack
from neuralqx_struct.manifest.kinds import EXTERNAL
from neuralqx_struct.paths import FieldName, format_path
from neuralqx_struct.schema.model import Document
from neuralqx_struct.struct.pytree import path_parts
from neuralqx_struct.tools.drafts import draft
from neuralqx_struct.trees import children_of

__all__ = ["schema_of"]


@within_stack
def schema_of(
    obj: Any,
    *,
    schema: str | None = None,
    version: int = 1,
    report: list[Diagnostic] | None = None,
) -> Document:
    """The schema document of a Struct class, with every Struct and Enum that its fields name, or of any tree.

    For a class that was built from a schema file it is that document, and for a class with ``schema=`` its declared
    version with its migrations; other arguments give another document.

    A tree has a schema that its bundle conforms to: ``validate(export(tree, path), schema_of(tree))`` finds nothing. Dicts with names as
    keys, namedtuples, dataclasses and objects of registered classes are structs, equal ones the same struct; ``layers_0``,
    ``layers_1``, ... and lists of equal structs are a ``list[Layer]``; equal sizes are dims. Modules of Flax NNX have the schema of
    ``nnx.state(module)``, a TrainState of Flax that of its step, parameters and optimiser, and trees of
    ``jax.ShapeDtypeStruct`` that of their arrays.

    Args:
        obj: The class, which becomes the root; or an instance or any tree of values that can be saved.
        schema: Identity; by default the class's own, or one of its module and name.
        version: Version, beside ``schema``.
        report: A list that gets an NQX134 for everything that the schema language cannot express.

    Raises:
        TypeError: It is a class, but no Struct class.
        SchemaError: The document is not valid, such as for a name with letters outside of ASCII; with every problem.
        SerializationError: It is no tree, but one value that cannot be saved.

    Example:
        >>> document = schema_of({"layers": [{"w": np.ones((2, 3)), "b": np.ones(3)}]})
        >>> {name: field.text for struct in document.structs.values() for name, field in struct.fields.items()}
        {'layers': 'list[Layer]', 'w': 'float64[n_w_0, size_3]', 'b': 'float64[size_3]'}
    """
    if isinstance(obj, type):
        return class_schema(obj, schema=schema, version=version, report=report)
    if document_of(type(obj)) is not None:
        return class_schema(type(obj), schema=schema, version=version, report=report)
    encoder = StructEncoder(check=False)
    left: list[Diagnostic] = []
    node = encoder.encode(_concrete(obj, left))
    if EXTERNAL.matches(node):
        raise unsaveable(f"expected data, got {node['name']}, which is code", "pass its data")
    if node is None and encoder.problems:
        encoder.finish()
    for path, code in EXTERNAL.within(node):
        message = f"expected data, got {code['name']}, which is code; left out"
        left.append(Diagnostic("NQX134", "info", message, format_path(path)))
    if report is not None:
        report += left
        report += [replace(each, code="NQX134", severity="info") for each in encoder.problems]
    return draft(node, schema, "tree", version)[1]


def _concrete(tree: Any, left: list[Diagnostic]) -> Any:
    """The tree with arrays of one element for abstract ones, and other objects for those that are code in part.

    The state of each NNX module is in its place, and the nodes of each dataclass such as a TrainState of Flax, whose static
    fields are code; ``left`` receives a finding about these.
    """
    nnx = sys.modules.get("flax.nnx")  # imported by whoever has made a module
    modules: Any = () if nnx is None else getattr(nnx, "Pytree", nnx.Module)

    def is_leaf(value: Any) -> bool:
        return isinstance(value, modules) or _is_code_in_part(value)

    def concrete(keys: Any, leaf: Any) -> Any:
        if isinstance(leaf, jax.ShapeDtypeStruct):
            return _array(leaf)
        if nnx is not None and isinstance(leaf, modules):
            return nnx.state(leaf)
        if not _is_code_in_part(leaf):
            return leaf
        nodes = _nodes_of(leaf)
        code = ", ".join(_code_beside(leaf, nodes))
        message = (
            f"expected data, got the {type(leaf).__qualname__} with {code}, which is code; left out"
        )
        left.append(Diagnostic("NQX134", "info", message, format_path(path_parts(keys))))
        return {name: _concrete(node, left) for name, node in nodes.items()}

    jax.tree.leaves(tree)  # too deep a tree fails here; see trees.flattened
    leaves = jax.tree.leaves(tree, is_leaf=is_leaf)
    if not any(isinstance(leaf, jax.ShapeDtypeStruct) or is_leaf(leaf) for leaf in leaves):
        return tree
    return jax.tree_util.tree_map_with_path(concrete, tree, is_leaf=is_leaf)


def _is_code_in_part(value: Any) -> bool:
    """True for dataclasses that have nodes for JAX, and code beside them."""
    if not is_dataclass(value) or isinstance(value, type):
        return False
    nodes = _nodes_of(value)
    return bool(nodes) and bool(_code_beside(value, nodes))


def _code_beside(value: Any, nodes: Mapping[str, Any]) -> list[str]:
    """The fields of a dataclass that hold code and are no nodes."""
    others = [each.name for each in fields(value) if each.name not in nodes]
    return [name for name in others if external_name(getattr(value, name, None)) is not None]


def _nodes_of(value: Any) -> dict[str, Any]:
    """The fields of a registered dataclass that are nodes."""
    inside = (children_of(value) or {}).items()
    return {str(name): node for (name, *_), node in inside if isinstance(name, FieldName)}


def _array(abstract: jax.ShapeDtypeStruct) -> Any:
    """An array of a shape and dtype that takes no memory; keys take theirs."""
    if not jnp.issubdtype(abstract.dtype, jax.dtypes.prng_key):
        return np.broadcast_to(np.zeros((), abstract.dtype), abstract.shape)
    found: list[Any] = []
    jax.eval_shape(lambda key: found.append(jax.random.key_impl(key)), abstract)
    return jnp.broadcast_to(jax.random.key(0, impl=found[0]), abstract.shape)
