"""Cells that run again: the newest class is loaded, instances of older ones go on working, nothing piles up that JAX does not keep."""

import copy
import gc
import pickle
import sys
import types
import weakref

import jax
import jax.numpy as jnp
import pytest
from jax.tree_util import register_pytree_node

import neuralqx_struct as s
from neuralqx_struct.references import _CLASSES
from tests.builders import refused

CELL = """
import collections, enum
import neuralqx_struct as s

class Mode(enum.Enum):
    FAST = 1

Pair = collections.namedtuple("Pair", "a b")

class Net(s.Struct):
    w: object
    mode: object = s.field(static=True, default=None)
    total: object = s.field(pytree=False, derived=lambda self: self.w.sum())

@s.register_class
class Promoted:
    x: object

class Edge:
    def __init__(self, x):
        self.x = x

s.register_attrs_type(Edge, node_fields=("x",))

class Node:
    def __init__(self, x):
        self.x = x

s.register_pytree_type(Node, flatten=lambda n: ((n.x,), None), unflatten=lambda _, xs: Node(*xs))
"""
NAMES = ("Net", "Promoted", "Edge", "Node")


@pytest.fixture(params=["__main__", "a_module"])
def notebook(request, monkeypatch):
    """A module whose namespace the cells share, as IPython puts it in the place of __main__."""
    module = types.ModuleType(request.param)
    monkeypatch.setitem(sys.modules, request.param, module)
    return module


def run(cell, notebook):
    exec(compile(cell, "<cell>", "exec"), vars(notebook))
    return types.SimpleNamespace(**vars(notebook))


def made(cells):
    return {
        "Net": cells.Net(jnp.ones(2)),
        "Promoted": cells.Promoted(1.0),
        "Edge": cells.Edge(2.0),
        "Node": cells.Node(3.0),
    }


def test_the_newest_class_is_what_is_loaded(notebook, tmp_path):
    first = run(CELL, notebook)
    values = made(first) | {"Mode": first.Mode.FAST, "Pair": first.Pair(1, 2)}
    for name, value in values.items():
        s.export(value, tmp_path / name)
    second = run(CELL, notebook)
    for name in values:
        loaded = s.load(tmp_path / name)
        assert type(loaded) is getattr(second, name) is not getattr(first, name)
        assert s.resolve_class(f"{notebook.__name__}:{name}") is getattr(second, name)
    assert second.Net.load(tmp_path / "Net").total == 2.0


def test_instances_of_older_classes_go_on_working(notebook, tmp_path):
    first = run(CELL, notebook)
    old = first.Net(jnp.ones(2), mode=first.Mode.FAST)
    step = jax.jit(lambda net: jax.tree.map(lambda x: 2 * x, net))
    step(old)
    second = run(CELL, notebook)
    assert isinstance(old, first.Net) and not isinstance(old, second.Net)
    assert (
        type(step(old))
        is type(old.replace(w=jnp.zeros(2)))
        is type(copy.deepcopy(old))
        is first.Net
    )
    assert step(old).total == 4.0 and copy.deepcopy(old) == old
    assert old != second.Net(jnp.ones(2), mode=first.Mode.FAST)
    assert type(step(second.Net(jnp.ones(2)))) is second.Net
    for name, value in made(first).items():
        with pytest.raises(pickle.PicklingError, match="Can't pickle"):
            pickle.dumps(value)
        s.export(value, tmp_path / name)
        assert type(s.load(tmp_path / name)) is getattr(second, name)
        # The unflatten function of Node looks its class up by name when it runs.
        assert type(jax.tree.map(lambda x: x, value)) is getattr(
            second if name == "Node" else first, name
        )


def test_values_that_would_come_back_as_another_are_refused_with_the_reason(notebook, tmp_path):
    first = run(CELL, notebook)
    run(CELL, notebook)
    for value in (first.Mode.FAST, first.Pair(1, 2), first.Net(jnp.ones(2), mode=first.Mode.FAST)):
        with refused(s.SerializationError, "NQX430") as caught:
            s.export(value, tmp_path / "ckpt")
        assert "make the value anew" in str(caught.value)


def test_nothing_piles_up_beyond_what_jax_keeps(notebook):
    refs, kept = {name: [] for name in (*NAMES, "Mode", "Pair")}, []
    for _ in range(10):
        cells = run(CELL, notebook)
        jax.tree.map(lambda x: x, made(cells))
        for name in refs:
            refs[name].append(weakref.ref(getattr(cells, name)))
        bare = type("Bare", (), {})
        register_pytree_node(bare, lambda _: ((), None), lambda _, __: None)
        kept.append(weakref.ref(bare))
    del cells, bare
    gc.collect()
    alive = {name: sum(ref() is not None for ref in found) for name, found in refs.items()}
    jax_keeps = sum(ref() is not None for ref in kept)
    assert all(alive[name] <= max(jax_keeps, 1) for name in NAMES)
    assert alive["Mode"] == alive["Pair"] == 1
    assert (
        len(
            [
                ref
                for ref in _CLASSES
                if ref.partition(":")[0] == notebook.__name__ and ref.partition(":")[2] in NAMES
            ]
        )
        == 4
    )


def test_a_cell_that_only_registers_may_run_again(notebook):
    run(
        "class Edge:\n    def __init__(self, x, n=0):\n        self.x, self.n = x, n\nclass Node(Edge): ...",
        notebook,
    )
    attrs = "import neuralqx_struct as s\ns.register_attrs_type(Edge, node_fields=('x',), constructor={})"
    both = (
        attrs
        + "\ns.register_pytree_type(Node, flatten=lambda n: ((n.x,), None), unflatten=lambda _, xs: Node({}xs))"
    )
    for _ in range(2):
        cells = run(both.format("lambda d: Edge(**d)", "*"), notebook)
    assert jax.tree.map(lambda x: x + 1, cells.Edge(1)).x == 2
    for constructor, star in (
        ("lambda d: Edge(d['x'])", "*"),
        ("lambda d: Edge(**d)", "*list"),
        ("None", "*"),
    ):
        with pytest.raises(ValueError, match="Edge|Node"):
            run(both.format(constructor, star).replace("*listxs", "*list(xs)"), notebook)


def test_two_classes_of_one_name_in_one_module(tmp_path):
    def first():
        class Twin(s.Struct):
            __qualname__ = "Twin"
            x: int

        return Twin

    def second():
        class Twin(s.Struct):
            __qualname__ = "Twin"
            x: int
            y: int = 0

        return Twin

    old, new = first(), second()
    s.export(old(1), tmp_path / "ckpt")
    assert s.load(tmp_path / "ckpt", report=[]) == new(1) and old(1).replace(x=2).x == 2


def test_load_on_an_older_definition_says_so():
    def cell(default):
        module = {"s": s, "__name__": "__main__"}
        exec(f"class Redefined(s.Struct):\n    x: int = {default}", module)
        return module["Redefined"]

    older, newer = cell(1), cell(2)
    payload = older(5).to_state_dict()
    assert newer.from_state_dict(payload).x == 5
    with refused(s.SerializationError, "NQX401", "Redefined"):
        older.from_state_dict(payload)
    for like, at in ((older(5), "$"), ({"a": [older(5)]}, "$['a'][0]")):
        saved = s.to_state_dict(like)
        with pytest.raises(s.SerializationError) as caught:
            s.from_state_dict(saved, like=like)
        [found] = caught.value.diagnostics
        assert found.path == at and "Redefined was defined again" in found.hint
