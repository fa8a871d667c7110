"""A class that names itself in its body, where Python evaluates annotations when they are read (3.14)."""

import sys
import types

import pytest

import neuralqx_struct as s

pytestmark = pytest.mark.skipif(
    sys.version_info < (3, 14), reason="earlier Pythons evaluate annotations in the class body"
)

SOURCE = """
import neuralqx_struct as s
class Tree(s.Struct, schema="lab.own_tree"):
    child: Tree | None = None
    size: int = s.field(static=True, default=0)
"""


@pytest.fixture
def tree(monkeypatch):
    module = types.ModuleType("own_tree_module")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(SOURCE, vars(module))
    return module.Tree


def test_it_is_made_saved_and_loaded(tree, tmp_path):
    made = tree(tree(), size=1)
    assert s.schema_of(tree).structs["Tree"].fields["child"].text == "Tree | null"
    assert tree.load(made.export(tmp_path / "ckpt")) == made
