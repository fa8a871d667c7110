"""Shardings by the names of axes: of objects, schemas and loads, on meshes of virtual devices."""

import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import neuralqx_struct as s
from tests.builders import refused
from tests.preloaded import PROGRAMS, python

TEXT = """
language: "1"
schema: lab.meshes
version: 1
root: Net
structs:
  Block:
    fields:
      up: {type: "float32[d, f]", axes: [embed, mlp]}
      down: {type: "float32[f, d]", axes: [mlp, embed]}
  Net:
    fields:
      table: {type: "float32[v, d]", axes: [vocab, embed]}
      named: {type: "Block[][layers]", axes: [layers]}
      stacked: {type: "Block[][layers]"}
      listed: "list[Block]"
      maybe: {type: "float32[f] | null", axes: [mlp], default: null}
      key: {type: prng_key, impl: threefry2x32}
      free: "float32[...]"
      step: int
"""
SIZES = {"d": 8, "f": 16, "v": 32, "layers": 4}
RULES = {"vocab": ("data", "model"), "mlp": "model", "layers": "data", "embed": None, "other": "x"}


@pytest.fixture(scope="module")
def net():
    schema = s.load_schema(TEXT)
    return schema, s.example(schema.root, dims=SIZES, key=jax.random.key(0))


def mesh_of(*shape):
    return Mesh(np.array(jax.devices()).reshape(shape), ("data", "model"))


def specs(tree):
    return {
        jax.tree_util.keystr(path): tuple(leaf.spec)
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }


def test_each_name_has_its_axis_of_the_mesh(net):
    _, state = net
    rules = {name: axes for name, axes in RULES.items() if name != "other"}
    found = specs(s.shardings(state.replace(maybe=jnp.ones(16)), mesh_of(2, 2), rules))
    assert found[".table"] == (("data", "model"), None)
    assert found[".named.up"] == ("data", None, "model")
    assert found[".named.down"] == ("data", "model", None)
    assert found[".stacked.up"] == (None, None, "model")
    assert found[".listed[0].down"] == ("model", None)
    assert found[".maybe"] == ("model",)
    assert found[".key"] == found[".free"] == found[".step"] == ()


def test_the_tree_is_that_of_the_object(net):
    schema, state = net
    mesh, rules = mesh_of(1, 4), {"mlp": "model"}
    found = s.shardings(state, mesh, rules)
    assert type(found) is schema.root
    placed = jax.device_put(state, found)
    assert placed.named.up.sharding == found.named.up
    assert placed.named.up.addressable_shards[0].data.shape == (4, 8, 4)
    assert placed.named == state.named
    shapes = jax.eval_shape(lambda: state)
    assert specs(s.shardings(shapes, mesh, rules)) == specs(found)
    made = jax.jit(lambda: state.named, out_shardings=found.named)()
    assert made.up.sharding.is_equivalent_to(found.named.up, 3)
    plain = s.shardings({"w": np.ones(3), "n": 2}, mesh, rules)
    assert specs(plain) == {"['w']": (), "['n']": ()}


@pytest.mark.parametrize("store", ["npz", "safetensors"])
def test_loads_divide_arrays(net, tmp_path, store):
    schema, state = net
    path = state.export(tmp_path / "a", store=store)
    for shape in ((1, 4), (2, 2), (4, 1)):
        mesh = mesh_of(*shape)
        rules = {"mlp": "model", "embed": "data", "vocab": "model"}
        loaded = schema.load(path, mesh=mesh, rules=rules)
        assert loaded == state
        wanted = specs(s.shardings(state, mesh, rules))
        for where, leaf in jax.tree_util.tree_leaves_with_path(loaded):
            if isinstance(leaf, jax.Array):
                assert tuple(leaf.sharding.spec) == wanted[jax.tree_util.keystr(where)]
        up = loaded.stacked.up.addressable_shards[0].data
        assert up.shape == (4, 8 // shape[0], 16 // shape[1])
        for target in (schema, schema.root):
            function = s.shardings(target, mesh, rules)
            again = schema.load(path, shardings=function, abstract=True)
            assert again.table.sharding == loaded.table.sharding


def test_loads_without_rules_are_on_every_device(net, tmp_path):
    schema, state = net
    loaded = schema.load(state.export(tmp_path / "a"), mesh=mesh_of(2, 2))
    assert loaded.table.is_fully_replicated and len(loaded.table.devices()) == 4
    assert loaded.free.sharding == NamedSharding(mesh_of(2, 2), PartitionSpec())


def test_python_classes(tmp_path):
    class Dense(s.Struct):
        kernel: jax.Array = s.field(metadata={"axes": ("embed", "mlp")})
        rate: float = s.field(static=True, default=0.5)

    layers = s.stack([Dense(kernel=jnp.ones((4, 8))) for _ in range(3)])
    found = s.shardings(layers, mesh_of(1, 4), {"mlp": "model"})
    assert tuple(found.kernel.spec) == (None, None, "model")
    path = s.export({"layers": [Dense(kernel=jnp.ones((4, 8)))]}, tmp_path / "a")
    loaded = s.load(path, mesh=mesh_of(1, 4), rules={"mlp": "model"})
    assert tuple(loaded["layers"][0].kernel.sharding.spec) == (None, "model")


# -- errors


def test_rules_that_do_not_fit(net):
    schema, state = net
    mesh = mesh_of(1, 4)
    cases = [
        ({"mlp": "modle"}, ValueError, ["data", "model", "'mlp'", "'modle'"]),
        ({"mlp": ("data", 3)}, ValueError, ["'mlp'"]),
        ({"mpl": "model"}, ValueError, ["'mpl'", "'mlp'"]),
        ({"mlp": "model", "embed": "model"}, ValueError, ["'model'", "'embed'", "'mlp'"]),
        ([("mlp", "model")], TypeError, ["rules="]),
    ]
    for rules, kind, named in cases:
        with refused(kind, *named):
            s.shardings(state, mesh, rules)
    with refused(ValueError, "rules=", "'mpl'", "'mlp'"):
        s.shardings(schema, mesh, {"mpl": "model"})
    with refused(TypeError, "mesh=", "jax.sharding.Mesh"):
        s.shardings(state, jax.devices(), {})
    with refused(TypeError, "shardings()"):
        s.shardings(int, mesh, {})


def test_every_array_that_does_not_fit_is_named(net, tmp_path):
    schema, state = net
    small = state.replace(table=jnp.ones((30, 8)), maybe=jnp.ones(16))
    rules = {"vocab": "model", "mlp": "model", "layers": ("model", "data")}
    with refused(
        ValueError, "$.table", "'vocab'", 30, "$.named.up", "'model'", "$.named.down"
    ) as caught:
        s.shardings(small, mesh_of(1, 4), rules)
    assert "$.maybe" not in str(caught.value)
    path = small.export(tmp_path / "a")
    with refused(ValueError, "$.table", "'vocab'", 30, "$.named.down"):
        schema.load(path, mesh=mesh_of(1, 4), rules=rules)


def test_arrays_with_fewer_axes_than_names():
    class Dense(s.Struct):
        kernel: jax.Array = s.field(metadata={"axes": ["embed", "mlp"]})

    with refused(ValueError, "embed, mlp", "(3,)"):
        s.shardings(Dense(kernel=jnp.ones(3)), mesh_of(1, 4), {"mlp": "model"})


@pytest.mark.parametrize("axes", ["embed", [1], {"a": 1}.values(), 3])
def test_names_of_axes_that_are_none(axes):
    class Dense(s.Struct):
        kernel: jax.Array = s.field(metadata={"axes": axes})

    with refused(TypeError, "kernel"):
        s.shardings(Dense(kernel=jnp.ones(3)), mesh_of(1, 4), {"mlp": "model"})


def test_arguments_of_loads_that_exclude_each_other(net, tmp_path):
    schema, state = net
    path = state.export(tmp_path / "a")
    mesh = mesh_of(1, 4)
    with refused(ValueError, "mpl", "mlp"):
        schema.load(path, mesh=mesh, rules={"mpl": "model"})
    loaded = schema.load(path, mesh=mesh, rules={"mpl": "model", "mlp": None})
    assert loaded.table.is_fully_replicated
    with refused(ValueError, "rules=", "mesh="):
        schema.load(path, rules={})
    with refused(ValueError, "mesh=", "shardings="):
        schema.load(path, mesh=mesh, shardings=NamedSharding(mesh, PartitionSpec()))


# -- a transformer of the shipped schemas on eight devices

PROGRAM = """
import sys
import jax, numpy as np
from jax.sharding import Mesh
import neuralqx_struct as s

folder, root = sys.argv[1:]
schema = s.load_schema(f"{root}/schemas/gpt2")
dims = {"vocab": 64, "context": 8, "head_dim": 4, "heads": 8, "n_layers": 2}
state = s.example(schema.root, dims=dims, key=jax.random.key(1))
rules = {"outputs": "model", "inputs": "data", "embed": "model", "vocab": "data"}


def mesh_of(*shape):
    return Mesh(np.array(jax.devices()).reshape(shape), ("data", "model"))


divided = jax.device_put(state, s.shardings(state, mesh_of(2, 4), rules))
divided.export(f"{folder}/ckpt")
for shape in ((1, 8), (2, 4), (8, 1)):
    mesh = mesh_of(*shape)
    loaded = schema.load(f"{folder}/ckpt", mesh=mesh, rules=rules)
    wanted = jax.tree.leaves(s.shardings(state, mesh, rules))
    leaves = jax.tree.leaves(loaded)
    assert all(leaf.sharding == sharding for leaf, sharding in zip(leaves, wanted, strict=True))
    kernel = loaded.params.blocks.mlp.up.kernel
    assert kernel.shape == (2, 32, 128)
    assert kernel.addressable_shards[0].data.shape == (2, 32 // shape[0], 128 // shape[1])
    assert len(kernel.addressable_shards) == 8
    assert loaded == state
print("done")
"""


def test_a_shipped_transformer_on_three_meshes(tmp_path, root):
    flags = "--xla_force_host_platform_device_count=8"
    environment = {**os.environ, "XLA_FLAGS": flags}
    done = python(*PROGRAMS).run("-c", PROGRAM, str(tmp_path), str(root), env=environment)
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr
