"""PathTree: leaves by path, against dicts of dicts and dicts of paths."""

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuralqx_struct.paths import HERE, PathTree, is_tree_path
from tests.builders import every

names = st.one_of(st.sampled_from(["a", "b", "a\0", "aa"]), st.text(min_size=1, max_size=2))
paths = st.lists(names, min_size=1, max_size=3).map(tuple)
leaves = st.dictionaries(paths, st.integers(), max_size=8)


def nested(entries):
    """What a tree must read as, made the plain way."""
    tree = {}
    for path, leaf in sorted(entries.items()):
        here = tree
        for part in path[:-1]:
            inner = here.setdefault(part, {})
            if not isinstance(inner, dict):
                inner = here[part] = {HERE: inner}
            here = inner
        here[path[-1]] = leaf
    return tree


@given(leaves)
def test_a_tree_holds_its_leaves_in_sorted_order(entries):
    tree = PathTree(entries)
    assert list(tree.entries()) == sorted(entries.items())
    assert all(tree.find(path) == leaf for path, leaf in entries.items())
    assert PathTree.of(*reversed(tree.pair)) == tree


@given(leaves)
def test_a_tree_reads_as_dicts_of_dicts(entries):
    def opened(tree):
        return {
            name: opened(below) if isinstance(below, PathTree) else below
            for name, below in tree.items()
        }

    tree = PathTree(entries)
    assert tree == nested(entries)
    assert opened(tree) == nested(entries)
    assert list(opened(tree)) == list(tree) == list(nested(entries))
    assert len(tree) == len(nested(entries))
    assert repr(tree) == repr(nested(entries))


@given(leaves)
def test_places_are_the_keys_of_the_nested_dicts(entries):
    tree = PathTree(entries)
    for place, (_, leaf) in zip(tree.places(), tree.entries(), strict=True):
        here = nested(entries)
        for key in place:
            here = here[key]
        assert here == leaf


@given(leaves, paths, st.integers())
def test_one_more_entry_leaves_the_old_tree_alone(entries, path, leaf):
    tree = PathTree(entries)
    more = tree.with_entry(path, leaf)
    assert dict(more.entries()) == {**entries, path: leaf}
    assert list(more.entries()) == sorted({**entries, path: leaf}.items())
    assert dict(tree.entries()) == entries
    assert (more.pair[1] is tree.pair[1]) == (path in entries), (
        "a tree with other leaves shares the paths"
    )


@given(leaves, st.integers())
def test_where_keeps_the_order(entries, above):
    tree = PathTree(entries)
    kept = [leaf > above for _, leaf in tree.entries()]
    assert dict(tree.where(kept).entries()) == {
        path: leaf for path, leaf in entries.items() if leaf > above
    }


@given(leaves)
def test_trees_copy_and_pickle(entries):
    tree = PathTree(entries)
    assert copy.copy(tree) == copy.deepcopy(tree) == pickle.loads(pickle.dumps(tree)) == tree


@every("path", [None, "a", 3, (), ("b",), ("a", 3), ("a", "b", "c"), [("a", "b")]])
def test_what_has_no_leaf_is_not_found(path):
    assert PathTree({("a", "b"): 1}).find(path) is None


@pytest.mark.parametrize("name", ["b", "", 3, None, ("a", "b")])
def test_what_is_no_name_of_the_first_level_is_a_key_error(name):
    with pytest.raises(KeyError):
        PathTree({("a", "b"): 1})[name]
    assert name not in PathTree({("a", "b"): 1})


def test_trees_cannot_be_changed():
    tree = PathTree({("a", "b"): 1})
    with pytest.raises(TypeError):
        tree["a"]["b"] = 2
    with pytest.raises(TypeError):
        tree["c"] = 2
    assert tree != {"a": {"b": 2}}
    assert tree["a"] == {"b": 1}


@pytest.mark.parametrize("path", [(), "net", ("net", 3), ("net", ""), ["net"], None])
def test_what_is_no_path(path):
    assert not is_tree_path(path)
    assert is_tree_path(("net", "ü/*"))
