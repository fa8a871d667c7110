"""The table of node kinds, and walks over nodes."""

import pytest

from neuralqx_struct.manifest.kinds import (
    ARRAY as ARRAY_KIND,
)
from neuralqx_struct.manifest.kinds import KINDS, NodeKind, Shown, children, register_kind, show
from neuralqx_struct.manifest.models import BytesNode
from tests.builders import ARRAY, EVERY_KIND, every


def test_the_builders_have_every_kind():
    kinds = {node["__kind__"] for node in EVERY_KIND if isinstance(node, dict)}
    assert kinds | {"tuple"} == set(KINDS)  # the tuple is inside the list


def test_children():
    node = {"__kind__": "dict", "items": [["k", ARRAY]]}
    assert list(children(node)) == [(("items", 0, 0), "k"), (("items", 0, 1), ARRAY)]
    assert list(children(5)) == list(children(ARRAY)) == []
    key = {"__kind__": "prng-key", "impl": "x", "data": ARRAY}
    assert list(children(key)) == [(("data",), ARRAY)]
    struct = {"__kind__": "struct", "type": "a:B", "fields": {"x": 1}}
    assert list(children(struct)) == [(("fields", "x"), 1)]
    saved = {"__kind__": "registered-pytree", "type": "a:B", "mode": "serializer", "payload": 7}
    assert list(children({**saved, "aux": {"must_understand": False}})) == [(("payload",), 7)]


@every("node", EVERY_KIND)
def test_every_node_can_be_shown(node):
    assert show(node).text


def test_a_record_lacks_nothing_and_its_tag_is_free():
    with pytest.raises(TypeError, match="show"):
        NodeKind(BytesNode)
    with pytest.raises(ValueError, match="'bytes'"):
        register_kind(NodeKind(BytesNode, lambda _: Shown("bytes"), leaf=True))
    assert KINDS["array"] is ARRAY_KIND
