"""What a parameter says of its value, as tags for filters: that it is trainable, and the tags that its metadata note.

Read from a Param and from the node of one in a manifest, so that a filter chooses the same of both. Imports nothing: the
command line filters bundles without JAX.

Example:
    >>> sorted(param_tags(trainable=True, metadata={"tag": "lora", "tags": ("adapter", "small")}))
    ['adapter', 'lora', 'small', 'trainable']
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["TRAINABLE", "node_tags", "param_tags"]

TRAINABLE = "trainable"
_ONLY_TRAINABLE = frozenset({TRAINABLE})
_NONE = frozenset[str]()


def param_tags(*, trainable: object, metadata: Mapping[str, Any]) -> frozenset[str]:
    """The tags of a parameter.

    Args:
        trainable: Whether gradients change it; the tag ``trainable`` says so.
        metadata: Its members ``tag`` and ``tags`` are a tag or several.
    """
    if not metadata:  # as most have none
        return _ONLY_TRAINABLE if trainable is True else _NONE
    noted = [metadata.get("tag", ()), metadata.get("tags", ())]
    tags = {tag for value in noted for tag in ([value] if isinstance(value, str) else _several(value))}
    return frozenset(tags | ({TRAINABLE} if trainable is True else set()))


def _several(value: object) -> Iterator[str]:
    if isinstance(value, (list, tuple, frozenset, set)):
        yield from (tag for tag in value if isinstance(tag, str))


def node_tags(node: Mapping[str, Any]) -> frozenset[str]:
    """The tags of the parameter that a struct node stands for; none for nodes of other structs."""
    fields = node["fields"]
    metadata = fields.get("metadata")
    if type(metadata) is not dict or metadata.get("type") != "neuralqx_struct.params:Metadata":
        return frozenset()
    noted = _members(_members(metadata.get("payload")).get("items"))
    return param_tags(
        trainable=fields.get("trainable"),
        metadata={name: _plain(noted[name]) for name in ("tag", "tags") if name in noted},
    )


def _members(node: Any) -> dict[str, Any]:
    """The items of a dict node that have text as keys."""
    items = node.get("items", ()) if type(node) is dict and node.get("__kind__") == "dict" else ()
    return {key: value for key, value in items if isinstance(key, str)}


def _plain(node: Any) -> Any:
    return node.get("items", ()) if type(node) is dict else node
