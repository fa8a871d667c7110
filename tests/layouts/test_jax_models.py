"""Layouts on checkpoints of JAX's libraries: Flax Linen, Flax NNX and optax in Orbax, and Equinox."""

import json

import equinox as eqx
import flax
import flax.linen as nn
import jax
import numpy as np
import optax
import orbax.checkpoint as ocp
from flax import nnx
from flax.training.train_state import TrainState

import neuralqx_struct as s

NET = """
language: "1"
schema: lab.net
version: 1
root: Net
structs:
  Dense: {params: [i, o], fields: {kernel: "float32[i, o]", bias: "float32[o]"}}
  Net: {fields: {hidden: "Dense[i, h]", last: "Dense[h, o]"}}
"""
TRAINING = """
language: "1"
schema: lab.training
version: 1
root: Training
structs:
  Dense: {params: [i, o], fields: {kernel: "float32[i, o]", bias: "float32[o]"}}
  Net: {params: [i, h, o], fields: {hidden: "Dense[i, h]", last: "Dense[h, o]"}}
  Training:
    fields:
      step: int
      params: "Net[i, h, o]"
      count: "int32[]"
      mean: "Net[i, h, o]"
      square: "Net[i, h, o]"
"""


def layout(of, structs, **members):
    head = {"language": "1", "layout": "file", "of": of, "structs": structs}
    return json.dumps(head | members, indent=1)


class Linen(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Dense(8)(x))
        return nn.Dense(3)(x)


def inputs():
    return np.random.default_rng(0).standard_normal((5, 4)).astype("float32")


def output(net, x):
    hidden = jax.nn.relu(x @ net.hidden.kernel + net.hidden.bias)
    return hidden @ net.last.kernel + net.last.bias


def check(net, expected):
    assert np.allclose(output(net, inputs()), expected, atol=1e-6)


def saved(path, tree):
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(path, tree)
    return path


def linen():
    return Linen().init(jax.random.key(0), inputs())


def test_linen_variables_in_msgpack(tmp_path):
    variables = linen()
    source = tmp_path / "net.msgpack"
    source.write_bytes(flax.serialization.to_bytes(variables))
    schema = s.load_schema(NET)
    names = {"Net": {"hidden": "Dense_0", "last": "Dense_1"}}
    text = layout("lab.net@1", names, prefix=["params/"], separator="/")
    net = schema.from_layout(source, text)
    check(net, Linen().apply(variables, inputs()))
    found = schema.to_layout(net, text, like=source)
    assert [*found] == [
        f"params/{layer}/{leaf}" for layer in ("Dense_0", "Dense_1") for leaf in ("kernel", "bias")
    ]
    folder = schema_folder(tmp_path, NET, text)
    bundle = s.convert(source, tmp_path / "bundle", schema=folder, layout="file").out
    assert s.load(bundle) == net
    back = s.convert(bundle, tmp_path / "back.msgpack", schema=folder, layout="file").out
    assert back.read_bytes() == source.read_bytes()


def schema_folder(tmp_path, schema, text):
    folder = tmp_path / "schema"
    (folder / "layouts").mkdir(parents=True)
    (folder / "v1.yaml").write_text(schema)
    (folder / "layouts/file.json").write_text(text)
    return folder


def test_nnx_state_in_orbax(tmp_path):
    class Net(nnx.Module):
        def __init__(self, rngs):
            self.hidden = nnx.Linear(4, 8, rngs=rngs)
            self.last = nnx.Linear(8, 3, rngs=rngs)

        def __call__(self, x):
            return self.last(nnx.relu(self.hidden(x)))

    net = Net(nnx.Rngs(0))
    source = saved(tmp_path / "orbax", nnx.split(net)[1])
    rules = {"Dense": {"kernel": "kernel.value", "bias": "bias.value"}}
    check(s.load_schema(NET).from_layout(source, layout("lab.net@1", rules)), net(inputs()))


def test_a_train_state_of_optax_in_orbax(tmp_path):
    variables = linen()
    state = TrainState.create(
        apply_fn=Linen().apply, params=variables["params"], tx=optax.adamw(1e-2)
    )
    grads = jax.grad(lambda p: (state.apply_fn({"params": p}, inputs()) ** 2).mean())(state.params)
    state = state.apply_gradients(grads=grads)
    source = saved(tmp_path / "orbax", state)
    rules = {
        "Net": {"hidden": "Dense_0", "last": "Dense_1"},
        "Training": {
            "count": "opt_state.0.count",
            "mean": "opt_state.0.mu",
            "square": "opt_state.0.nu",
        },
    }
    found = s.load_schema(TRAINING).from_layout(source, layout("lab.training@1", rules))
    check(found.params, state.apply_fn({"params": state.params}, inputs()))
    assert (found.step, found.count) == (1, 1)
    adam = state.opt_state[0]
    for moment, expected in ((found.mean, adam.mu), (found.square, adam.nu)):
        assert np.array_equal(moment.last.kernel, expected["Dense_1"]["kernel"])


def test_an_equinox_model_in_the_order_of_its_leaves(tmp_path):
    model = eqx.nn.MLP(4, 3, 8, 1, key=jax.random.key(0))
    source = tmp_path / "model.eqx"
    eqx.tree_serialise_leaves(source, model)
    rules = {
        "Dense": {"kernel": {"name": "weight", "transpose": True}},
        "Net": {"hidden": "layers.0", "last": "layers.1"},
    }
    text = layout("lab.net@1", rules)
    net = s.load_schema(NET).from_layout(source, text, like=model)
    check(net, jax.vmap(model)(inputs()))


def test_names_for_a_file_of_equinox_keep_their_order(tmp_path):
    class Pair(eqx.Module):
        b: jax.Array
        a: jax.Array

    pair = Pair(b=np.full(3, 2.0, "float32"), a=np.full(3, 1.0, "float32"))
    source = tmp_path / "pair.eqx"
    eqx.tree_serialise_leaves(source, pair)
    schema = s.load_schema(
        NET.partition("root:")[0]
        + 'root: Pair\nstructs: {Pair: {fields: {a: "float32[n]", b: "float32[n]"}}}\n'
    )
    text = layout("lab.net@1", {"Pair": {"a": "n.a"}})
    found = schema.from_layout(source, text, like={"b": pair.b, "n.a": pair.a})
    assert (found.a.tolist(), found.b.tolist()) == ([1, 1, 1], [2, 2, 2])
    assert schema.from_layout(source, layout("lab.net@1", {}), like=pair) == found
    assert schema.from_layout(source, text, like={"b": pair.b, "n": {"a": pair.a}}) == found
