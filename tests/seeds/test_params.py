"""Every code block and every sentence of the document that Graph, Params and Rng follow, with nothing changed but names.

Layers are not part of the library: those that the document's blocks use are written here, with the arguments that the
blocks give them.
"""

import functools
import textwrap
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuralqx_struct as s
from neuralqx_struct.formats import ranges
from neuralqx_struct.places import checksums
from tests.builders import refused

uniform = jax.nn.initializers.uniform(0.5)
zeros = jax.nn.initializers.zeros


class Linear(s.Module):
    def __init__(self, graph, size, rng, sharding=()):
        super().__init__(graph)
        self.size, self.rng, self.sharding = size, rng, sharding

    def __call__(self, params, x):
        noted = {"sharding": self.sharding} if self.sharding else None
        kernel, params = self.get_param(
            params, "kernel", (x.shape[-1], self.size), uniform, metadata=noted
        )
        bias, params = self.get_param(params, "bias", (self.size,), zeros)
        return x @ kernel + bias, params


class MLP(s.Module):
    def __init__(self, graph, hidden_size, output_size, rng, sharding=()):
        super().__init__(graph)
        self.dense1 = Linear(graph.child("dense1"), hidden_size, rng, sharding)
        self.dense2 = Linear(graph.child("dense2"), output_size, rng)

    def __call__(self, params, x):
        x, params = self.dense1(params, x)
        return self.dense2(params, jax.nn.relu(x))


class Dropout(s.Module):
    def __init__(self, graph, rate, rng):
        super().__init__(graph)
        self.rate, self.rng = rate, rng

    def __call__(self, params, x, is_training):
        if not is_training:
            return x, params
        key, params = self.rng(params)
        return jnp.where(jax.random.bernoulli(key, self.rate, x.shape), 0.0, x), params


class Average(s.Module):
    """A moving average: state that is not trainable and changes during the forward pass."""

    def __call__(self, params, x):
        mean, params = self.get_param(params, "mean", (x.shape[-1],), zeros, trainable=False)
        return x - mean, self.set_param(params, "mean", 0.9 * mean + 0.1 * x.mean(axis=0))


class LSTM(s.Module):
    def __init__(self, graph, hidden_size, rng, is_static):
        super().__init__(graph)
        self.gates, self.hidden_size, self.is_static = (
            Linear(graph / "gates", 4 * hidden_size, rng),
            hidden_size,
            is_static,
        )

    def __call__(self, params, inputs, prev_state):
        hidden, cell = prev_state
        gates, params = self.gates(params, jnp.concatenate([inputs, hidden], axis=-1))
        i, g, f, o = jnp.split(gates, 4, axis=-1)
        cell = jax.nn.sigmoid(f) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
        hidden = jax.nn.sigmoid(o) * jnp.tanh(cell)
        return (hidden, (hidden, cell)), params

    def apply(self, params, inputs, prev_state):
        if self.is_static or not params.is_locked:
            outputs, state = [], prev_state
            for t in range(inputs.shape[1]):
                (out, state), params = self(params, inputs[:, t], state)
                outputs.append(out)
            return (jnp.stack(outputs, axis=1), state), params

        def step(carry, x):
            params, state = carry
            (out, state), params = self(params, x, state)
            return (params, state), out

        (params, state), outputs = jax.lax.scan(step, (params, prev_state), inputs.swapaxes(0, 1))
        return (outputs.swapaxes(0, 1), state), params


def data(key):
    return jax.random.key_data(key).tolist()


# --- the mental model ----------------------------------------------------------------------------------------------


@pytest.fixture
def net():
    """The block of lazy initialisation."""
    dummy_input = jnp.ones((4, 3))
    # Define structure.
    graph = s.Graph("net")
    rng = s.Rng(graph.child("rng"))
    model = MLP(graph.child("mlp"), hidden_size=128, output_size=10, rng=rng)

    # Initialize.
    params = s.Params()
    params = rng.seed(params, seed=42)
    _, params = model(params, dummy_input)
    params = params.locked()
    return SimpleNamespace(graph=graph, rng=rng, model=model, params=params, inputs=dummy_input)


def test_parameters_go_in_and_outputs_and_updated_parameters_come_out(net):
    before = net.params
    outputs, params = net.model(net.params, net.inputs)
    assert outputs.shape == (4, 10)
    assert params == before


def test_modules_are_stateless_and_functions_have_no_side_effects(net):
    held = dict(vars(net.model))
    first, _ = net.model(net.params, net.inputs)
    second, _ = net.model(net.params, net.inputs)
    assert first.tolist() == second.tolist()
    assert vars(net.model) == held


# --- core abstractions ---------------------------------------------------------------------------------------------


def test_graph_is_the_hierarchy_of_names_and_its_paths_are_unique():
    graph = s.Graph("net")
    dense = graph.child("mlp") / "dense1"
    assert dense.path == ("net", "mlp", "dense1")
    with refused(ValueError, "NQX118", "$['net']['mlp']"):
        graph.child("mlp")


def test_paths_are_tuples_of_names_with_any_characters():
    odd = s.Graph("a/b") / "c.d" / "e f\n"
    assert odd.path == ("a/b", "c.d", "e f\n")
    module = s.Module(odd)
    _, params = module.get_param(s.Params(), "ü/*", (), zeros)
    assert list(params) == [("a/b", "c.d", "e f\n", "ü/*")]


def test_modules_bind_to_nodes_and_not_to_roots():
    graph = s.Graph("net")
    with refused(ValueError, "NQX118", "$['net']"):
        s.Rng(graph)
    assert s.Rng(graph.child("rng")).graph.path == ("net", "rng")


def test_walk_iterates_over_all_descendant_modules(net):
    assert [(path, type(module).__name__) for path, module in net.graph.walk()] == [
        (("net", "rng"), "Rng"),
        (("net", "mlp"), "MLP"),
        (("net", "mlp", "dense1"), "Linear"),
        (("net", "mlp", "dense2"), "Linear"),
    ]


def test_params_are_flat_and_immutable_and_hold_all_state_by_path(net):
    assert set(net.params) == {
        ("net", "rng", "seed"),
        ("net", "rng", "counter"),
        *(
            ("net", "mlp", layer, name)
            for layer in ("dense1", "dense2")
            for name in ("kernel", "bias")
        ),
    }
    with pytest.raises(AttributeError):
        net.params.tree = {}
    with pytest.raises(TypeError):
        net.params[("net", "x")] = s.Param(1.0)


def test_all_state_is_param_objects_with_a_trainable_flag(net):
    assert all(isinstance(param, s.Param) for param in net.params.values())
    frozen = [path for path, param in net.params.items() if not param.trainable]
    assert frozen == [("net", "rng", "counter"), ("net", "rng", "seed")]


def test_locked_prevents_accidental_creation(net):
    assert net.params.is_locked
    with refused(KeyError, "NQX414", "$['net']['late']['kernel']"):
        Linear(net.graph / "late", 3, net.rng)(net.params, net.inputs)
    late = Linear(net.graph / "later", 3, net.rng)
    assert ("net", "later", "kernel") in late(net.params.unlocked(), net.inputs)[1]


def test_split_separates_trainable_from_non_trainable(net):
    trainable, non_trainable = net.params.split()
    assert {path[1] for path in trainable} == {"mlp"}
    assert {path[1] for path in non_trainable} == {"rng"}
    assert trainable.merge(non_trainable) == net.params


# --- Rng -----------------------------------------------------------------------------------------------------------


def test_rng_must_be_seeded_first(net):
    with refused(KeyError, "NQX414", "$['net']['rng']['counter']"):
        net.rng(s.Params())


def test_rng_keeps_seed_and_counter_in_the_params_and_folds_the_counter_in():
    graph = s.Graph("net")
    rng = s.Rng(graph.child("rng"))
    params = rng.seed(s.Params(), seed=42)
    assert list(params) == [("net", "rng", "counter"), ("net", "rng", "seed")]
    for counter in range(3):
        key, params = rng(params)
        assert data(key) == data(jax.random.fold_in(jax.random.key(42), counter))
        assert int(rng.get_counter(params)) == counter + 1
    assert data(rng.get_seed(params)) == data(jax.random.key(42))


@pytest.fixture
def lanes():
    graph = s.Graph("net")
    rng = s.Rng(graph.child("rng"))
    dropout = Dropout(graph.child("dropout"), rate=0.5, rng=rng)
    params = rng.seed(s.Params(), seed=42).locked()
    return SimpleNamespace(rng=rng, dropout=dropout, params=params, x=jnp.ones((4, 64)))


def different(rows):
    return len(np.unique(np.asarray(rows), axis=0))


def test_all_lanes_get_identical_keys_by_default(lanes):
    apply = jax.vmap(
        lambda params, x: lanes.dropout(params, x, is_training=True)[0], in_axes=(None, 0)
    )
    assert different(apply(lanes.params, lanes.x)) == 1


def test_randomness_per_lane_with_an_explicit_index(lanes):
    rng, dropout, params, x = lanes.rng, lanes.dropout, lanes.params, lanes.x

    def apply_with_explicit_index(params, x, batch_idx):
        original_seed = rng.get_seed(params)
        folded_seed = jax.random.fold_in(original_seed, batch_idx)
        params = rng.seed(params, seed=folded_seed)
        out, params = dropout(params, x, is_training=True)
        params = rng.seed(params, seed=original_seed)  # Restore for replicated params
        return out, params

    # Pass jnp.arange(batch_size) as the batch indices
    out, _ = jax.vmap(apply_with_explicit_index, in_axes=(None, 0, 0))(params, x, jnp.arange(4))
    assert different(out) == 4


def apply_with_axis_index_of(rng, dropout):
    def apply_with_axis_index(params, x):
        original_seed = rng.get_seed(params)
        folded_seed = jax.random.fold_in(original_seed, jax.lax.axis_index("batch"))
        params = rng.seed(params, seed=folded_seed)
        out, params = dropout(params, x, is_training=True)
        params = rng.seed(params, seed=original_seed)
        return out, params

    return apply_with_axis_index


def test_randomness_per_lane_with_axis_index(lanes):
    apply_with_axis_index = apply_with_axis_index_of(lanes.rng, lanes.dropout)
    out, _ = jax.vmap(apply_with_axis_index, in_axes=(None, 0), axis_name="batch")(
        lanes.params, lanes.x
    )
    assert different(out) == 4


def test_the_restored_seed_lets_params_be_replicated_on_the_way_out(lanes):
    apply = apply_with_axis_index_of(lanes.rng, lanes.dropout)
    mapped = jax.vmap(apply, in_axes=(None, 0), out_axes=(0, None), axis_name="batch")
    first, params = mapped(lanes.params, lanes.x)
    second, params = mapped(params, lanes.x)
    assert different(np.concatenate([first, second])) == 8, (
        "the counter goes on: no step repeats another"
    )
    assert int(lanes.rng.get_counter(params)) == 2
    assert data(lanes.rng.get_seed(params)) == data(jax.random.key(42))

    def forgetful(params, x):
        params = lanes.rng.seed(
            params, seed=jax.random.fold_in(lanes.rng.get_seed(params), jax.lax.axis_index("batch"))
        )
        return lanes.dropout(params, x, is_training=True)

    with pytest.raises(ValueError, match="out_axes"):
        jax.vmap(forgetful, in_axes=(None, 0), out_axes=(0, None), axis_name="batch")(
            lanes.params, lanes.x
        )


def test_randomness_per_device_in_shard_map(lanes):
    mesh = jax.make_mesh((4,), ("batch",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec
    apply = apply_with_axis_index_of(lanes.rng, lanes.dropout)
    mapped = jax.shard_map(
        apply, mesh=mesh, in_specs=(spec(), spec("batch")), out_specs=(spec("batch"), spec())
    )
    out, params = mapped(lanes.params, lanes.x)
    assert different(out) == 4
    assert int(lanes.rng.get_counter(params)) == 1
    assert data(lanes.rng.get_seed(params)) == data(jax.random.key(42))
    same = jax.shard_map(
        functools.partial(lanes.dropout, is_training=True),
        mesh=mesh,
        in_specs=(spec(), spec("batch")),
        out_specs=(spec("batch"), spec()),
    )
    assert different(same(lanes.params, lanes.x)[0]) == 1


def test_is_locked_tells_init_from_runtime(lanes):
    folded = []

    def apply(params, x):
        folded.append(params.is_locked)
        return lanes.dropout(params, x, is_training=params.is_locked)

    jax.jit(apply)(lanes.params.unlocked(), lanes.x)
    jax.jit(apply)(lanes.params, lanes.x)
    assert folded == [False, True]


# --- sharding ------------------------------------------------------------------------------------------------------


def test_initialisation_by_jit_with_shardings_from_metadata():
    dummy_input = jnp.ones((2, 8))
    graph = s.Graph("net")
    rng = s.Rng(graph.child("rng"))
    model = MLP(
        graph.child("mlp"), hidden_size=16, output_size=4, rng=rng, sharding=(None, "model")
    )

    mesh = jax.make_mesh((4,), ("model",), axis_types=(jax.sharding.AxisType.Auto,))

    def structure():
        _, params = model(rng.seed(s.Params(), seed=42), dummy_input)
        return params.locked()

    def placed(param):
        return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*param.sharding))

    # Build from param metadata
    params_sharding = jax.tree.map(
        placed, jax.eval_shape(structure), is_leaf=lambda x: isinstance(x, s.Param)
    )

    @jax.jit(out_shardings=params_sharding)
    def init():
        params = rng.seed(s.Params(), seed=42)
        _, params = model(params, dummy_input)
        return params.locked()

    params = init()  # JIT handles sharding automatically

    kernel = params[("net", "mlp", "dense1", "kernel")]
    assert kernel.sharding == (None, "model")
    assert {shard.data.shape for shard in kernel.value.addressable_shards} == {(8, 4)}
    assert params[("net", "mlp", "dense2", "kernel")].value.sharding.is_fully_replicated
    assert params[("net", "rng", "seed")].value.sharding.is_fully_replicated
    plain = structure()
    assert jax.tree.structure(plain) == jax.tree.structure(params)
    np.testing.assert_allclose(
        kernel.value, plain[("net", "mlp", "dense1", "kernel")].value, rtol=1e-6
    )


def test_shard_map_with_specs_from_metadata():
    spec = jax.sharding.PartitionSpec
    mesh = jax.make_mesh((4,), ("model",), axis_types=(jax.sharding.AxisType.Auto,))
    graph = s.Graph("net")
    rng = s.Rng(graph / "rng")
    model = Linear(graph / "dense", 8, rng, sharding=(None, "model"))
    x = jnp.ones((2, 3))
    _, params = model(rng.seed(s.Params(), seed=0), x)
    params = params.locked()
    specs = jax.tree.map(
        lambda param: spec(*param.sharding), params, is_leaf=lambda x: isinstance(x, s.Param)
    )
    assert specs[("net", "dense", "kernel")] == spec(None, "model")

    def halves(params, x):
        kernel = params[("net", "dense", "kernel")].value
        return x @ kernel, params

    mapped = jax.shard_map(
        halves, mesh=mesh, in_specs=(specs, spec()), out_specs=(spec(None, "model"), specs)
    )
    out, after = mapped(params, x)
    np.testing.assert_allclose(out, x @ params[("net", "dense", "kernel")].value, rtol=1e-6)
    assert after == params


def test_eval_shape_gives_the_structure_without_memory(net):
    def init():
        params = net.rng.seed(s.Params(), seed=42)
        return net.model(params, jnp.ones((1, 10**7)))[1].locked()

    abstract = jax.eval_shape(init)
    kernel = abstract[("net", "mlp", "dense1", "kernel")]
    assert (kernel.value.shape, kernel.trainable) == ((10**7, 128), True), "which would be 5 GB"
    assert all(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree.leaves(abstract))
    assert abstract.keys() == net.params.keys()


# --- Params with JAX -----------------------------------------------------------------------------------------------


def test_everything_is_in_one_place():
    graph = s.Graph("net")
    rng = s.Rng(graph / "rng")
    average, dropout = Average(graph / "average", rng), Dropout(graph / "dropout", 0.5, rng)
    params = rng.seed(s.Params(), seed=0)
    x, params = average(params, jnp.ones((2, 3)))
    before = int(rng.get_counter(params))
    _, params = dropout(params, x, is_training=True)
    assert int(rng.get_counter(params)) == before + 1, "drawing a key is a change of state"
    trainable, non_trainable = params.split()
    assert not trainable
    assert ("net", "average", "mean") in non_trainable


def test_jit_grad_vmap_and_checkpoint_need_no_wrappers(net):
    def loss(t, nt, x):
        return net.model(t.merge(nt), x)[0].sum()

    trainable, other = net.params.split()
    plain = jax.grad(loss)(trainable, other, net.inputs)
    jitted = jax.jit(jax.grad(loss))(trainable, other, net.inputs)
    kept = jax.grad(jax.checkpoint(loss))(trainable, other, net.inputs)
    for other_way in (jitted, kept):
        assert jax.tree.all(
            jax.tree.map(lambda a, b: jnp.allclose(a, b, rtol=1e-5), plain, other_way)
        )
    replicated = jax.vmap(lambda params, x: net.model(params, x)[0], in_axes=(None, 0))(
        net.params, net.inputs
    )
    batched = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), net.params)
    assert jax.vmap(lambda params: net.model(params, net.inputs)[0])(batched).shape == (2, 4, 10)
    np.testing.assert_allclose(replicated, net.model(net.params, net.inputs)[0], rtol=1e-5)


def test_the_training_step_with_donation():
    graph = s.Graph("net")
    rng = s.Rng(graph.child("rng"))
    mlp = MLP(graph.child("mlp"), hidden_size=16, output_size=1, rng=rng)
    average = Average(graph.child("average"), rng)
    dropout = Dropout(graph.child("dropout"), rate=0.1, rng=rng)

    def model(params, inputs):
        inputs, params = average(params, inputs)
        inputs, params = dropout(params, inputs, is_training=True)
        return mlp(params, inputs)

    @jax.jit(donate_argnames="params")
    def train_step(params, inputs, targets):
        # Split into trainable (weights) and non-trainable (RNG, etc).
        trainable, non_trainable = params.split()

        def loss_fn(t, nt):
            # Merge to run the forward pass.
            preds, new_params = model(t.merge(nt), inputs)
            loss = jnp.mean((preds - targets) ** 2)

            # Extract non-trainable parameters updated during the forward pass.
            _, new_nt = new_params.split()
            return loss, new_nt

        # Gradients for trainable, updated state for non-trainable.
        grads, new_non_trainable = jax.grad(loss_fn, has_aux=True)(trainable, non_trainable)

        # Update the trainable parameters using SGD.
        new_trainable = jax.tree.map(lambda w, g: w - 0.01 * g, trainable, grads)

        # Merge updated trainable and updated non-trainable parameters.
        return new_trainable.merge(new_non_trainable)

    inputs = jax.random.normal(jax.random.key(1), (16, 3)) + 2.0
    targets = inputs.sum(axis=1, keepdims=True) - 9.0
    params = rng.seed(s.Params(), seed=42)
    _, params = model(params, inputs)
    params = params.locked()

    def error(params):
        return float(jnp.mean((mlp(params, average(params, inputs)[0])[0] - targets) ** 2))

    first, counter = error(params), int(rng.get_counter(params))
    donated = params
    for _ in range(60):
        params = train_step(params, inputs, targets)
    assert donated[("net", "mlp", "dense1", "kernel")].value.is_deleted()
    assert error(params) < 0.5 * first
    assert int(rng.get_counter(params)) == counter + 60
    np.testing.assert_allclose(
        params[("net", "average", "mean")].value, inputs.mean(axis=0), rtol=0.02
    )
    assert train_step._cache_size() == 1


# --- params and graph are decoupled --------------------------------------------------------------------------------


def test_static_and_dynamic_recurrence_share_params():
    # Create two LSTM variants with the same parameter structure
    def create_lstm(is_static: bool):
        graph = s.Graph("model")
        rng = s.Rng(graph.child("rng"))
        return rng, LSTM(graph.child("lstm"), hidden_size=64, rng=rng, is_static=is_static)

    rng, lstm_static = create_lstm(is_static=True)  # Python loop (debuggable)
    _, lstm_dynamic = create_lstm(is_static=False)  # lax.scan (fast)

    inputs = jax.random.normal(jax.random.key(1), (2, 5, 3))
    state = (jnp.zeros((2, 64)), jnp.zeros((2, 64)))

    # Initialize params once
    _, params = lstm_static.apply(rng.seed(s.Params(), seed=0), inputs, prev_state=state)
    params = params.locked()

    # Both models work with the same params!
    (out_static, _), params_static = lstm_static.apply(params, inputs, prev_state=state)
    (out_dynamic, _), params_dynamic = lstm_dynamic.apply(params, inputs, prev_state=state)
    assert out_static.shape == (2, 5, 64)
    np.testing.assert_allclose(out_static, out_dynamic, rtol=1e-5, atol=1e-6)
    assert params_static == params_dynamic == params


def test_train_and_eval_variants_share_params():
    def create(is_training):
        graph = s.Graph("model")
        rng = s.Rng(graph.child("rng"))
        dense, dropout = Linear(graph / "dense", 4, rng), Dropout(graph / "dropout", 0.5, rng)

        def model(params, x):
            x, params = dropout(params, x, is_training=is_training)
            return dense(params, x)

        return rng, model

    (rng, train), (_, evaluate) = create(is_training=True), create(is_training=False)
    _, params = train(rng.seed(s.Params(), seed=0), jnp.ones((2, 3)))
    params = params.locked()
    out, after = evaluate(params, jnp.ones((2, 3)))
    assert after == params, "evaluation draws no key"
    kernel, bias = (params[("model", "dense", name)].value for name in ("kernel", "bias"))
    np.testing.assert_allclose(out, jnp.ones((2, 3)) @ kernel + bias, rtol=1e-6)
    assert train(params, jnp.ones((2, 3)))[1] != params


def test_an_actor_and_a_learner_share_params():
    def create(*heads):
        graph = s.Graph("agent")
        rng = s.Rng(graph / "rng")
        torso = Linear(graph / "torso", 8, rng)
        named = {name: Linear(graph / name, size, rng) for name, size in heads}

        def model(params, x):
            x, params = torso(params, x)
            outputs = {}
            for name, head in named.items():
                outputs[name], params = head(params, x)
            return outputs, params

        return rng, model

    _, actor = create(("policy", 3))
    rng, learner = create(("policy", 3), ("value", 1))
    x = jnp.ones((2, 4))
    _, params = learner(rng.seed(s.Params(), seed=0), x)
    params = params.locked()
    assert actor(params, x)[0]["policy"].tolist() == learner(params, x)[0]["policy"].tolist()
    # The actor needs no more than what it reads.
    small, _ = params.split(lambda path, _: path[1] in ("torso", "policy"), ...)
    assert actor(small, x)[0]["policy"].shape == (2, 3)


# --- what Params gain here -----------------------------------------------------------------------------------------


def network(rank=0):
    """A backbone and a head, with a low-rank adapter beside the backbone."""
    graph = s.Graph("net")
    rng = s.Rng(graph / "rng")
    backbone, head = Linear(graph / "backbone", 64, rng), Linear(graph / "head", 2, rng)
    adapter = graph / "adapter"
    down, up = Linear(adapter / "down", rank, rng), Linear(adapter / "up", 64, rng)

    def model(params, x):
        hidden, params = backbone(params, x)
        if rank:
            low, params = down(params, x)
            more, params = up(params, low)
            hidden = hidden + more
        return head(params, hidden)

    return rng, model


@pytest.fixture
def adapted(tmp_path):
    """Pretrained without an adapter, saved, loaded, and made longer by one."""
    x = jnp.full((4, 16), 0.02)
    rng, model = network()
    pretrained = model(rng.seed(s.Params(), seed=42), x)[1].locked()
    loaded = s.Params.load(pretrained.export(tmp_path / "pretrained"))
    _, longer = network(rank=2)
    params = longer(loaded.unlocked(), x)[1].locked()
    assert params.split(lambda path, _: path in loaded)[0] == loaded.set(
        ("net", "rng", "counter"), params[("net", "rng", "counter")]
    )
    return SimpleNamespace(
        model=longer, params=params, x=x, path=params.export(tmp_path / "adapted")
    )


def test_a_frozen_backbone_with_adapters(adapted):
    adapters, frozen = adapted.params.split(s.filters.PathContains("adapter"))
    assert {path[1] for path in adapters} == {"adapter"}

    @jax.jit
    def step(adapters, frozen, x):
        def loss(adapters):
            return jnp.mean((adapted.model(adapters.merge(frozen), x)[0] - 1.0) ** 2)

        value, grads = jax.value_and_grad(loss)(adapters)
        return value, jax.tree.map(lambda w, g: w - 0.003 * g, adapters, grads)

    losses = []
    for _ in range(20):
        loss, adapters = step(adapters, frozen, adapted.x)
        losses.append(float(loss))
    assert losses[-1] < 0.5 * losses[0]
    trained = adapters.merge(frozen)
    assert trained.split(s.filters.PathContains("adapter"))[1] == frozen
    assert trained.keys() == adapted.params.keys()


@pytest.mark.parametrize("select", ["path:**/adapter/**", s.filters.PathContains("adapter")])
def test_a_partial_load_touches_the_bytes_of_its_parameters_alone(adapted, monkeypatch, select):
    touched = []
    monkeypatch.setattr(
        ranges,
        "checksum",
        lambda data, tick=None: touched.append(len(data)) or checksums.checksum(data, tick),
    )
    part = s.Params.load(adapted.path, select=select)
    wanted = adapted.params.split(s.filters.PathContains("adapter"))[0]
    assert sum(touched) == sum(leaf.nbytes for leaf in jax.tree.leaves(wanted))
    assert part.split(s.filters.PathContains("adapter"))[0] == wanted
    assert part.keys() == adapted.params.keys()
    assert all(param.value is None for path, param in part.items() if "adapter" not in path)
    assert (
        jax.tree.map(jnp.zeros_like, adapted.params)
        .merge(part)
        .split(lambda path, _: path in wanted)[0]
        == wanted
    )


def test_params_are_validated_by_a_schema_and_a_subtree_is_renamed_by_one_step(adapted, tmp_path):
    head = """
        language: "1"
        schema: lab.train
        version: {}
        root: Train
        structs: {{Train: {{fields: {{params: pytree, step: int}}}}}}
    """
    folder = tmp_path / "lab.train"
    folder.mkdir()
    (folder / "v1.yaml").write_text(textwrap.dedent(head.format(1)))
    moved = "migrations: [{from: 1, steps: [{rename_path: {field: params, path: net/backbone, to: net/encoder}}]}]\n"
    (folder / "v2.yaml").write_text(textwrap.dedent(head.format(2)) + moved)
    schema = s.load_schema(folder)
    run = schema.at(1).Train(params=adapted.params, step=10).export(tmp_path / "run")
    assert s.validate(run) == s.validate(run, schema) == []
    params = schema.load(run).params
    assert isinstance(params, s.Params) and params.is_locked
    renamed = {
        ("net", "encoder", *path[2:]) if path[1] == "backbone" else path: p
        for path, p in adapted.params.items()
    }
    assert params == s.Params(renamed).locked()
    bad = s.to_state_dict(schema.at(1).Train(params=adapted.params, step=10))
    bad["manifest"]["fields"]["step"] = "ten"
    with refused(s.SerializationError, "NQX411", "$.step", "ten"):
        s.from_state_dict(bad)


def test_params_are_inspected_by_path(adapted):
    rows = {row.path: row for row in s.inspect(adapted.path, "path:**/adapter/**/value").rows}
    assert list(rows) == [
        f"$.tree['net']['adapter']['{part}']['{name}'].value"
        for part in ("down", "up")
        for name in ("bias", "kernel")
    ]
    assert s.verify(adapted.path) == []
