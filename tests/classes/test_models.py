"""The schemas of real models that ship: each holds a state that was trained, and instances made from the schema alone.

Every state is trained for some steps, checked as the command line would, saved, loaded, and trained on: the loaded one
must do what the one in memory does, bit by bit. Then it goes from version 1 to version 2 and back, and both versions must
compute the same thing.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen

import neuralqx_struct as s
from neuralqx_struct.tools.linting import lint_series
from tests.builders import cases, every, refused
from tests.shipped import (
    check_with_others_tools,
    identical,
    moved,
    quick,
    run,
    saved_and_loaded,
    schema,
)

NAMES = ["transformer", "resnet", "mc_state", "lattice_gauge"]
NEEDS_X64 = {"mc_state", "lattice_gauge"}


# ---------------------------------------------------------------------------------------------------------------------
# All of them.


@pytest.mark.parametrize("name", NAMES)
def test_lint_finds_nothing_and_each_version_leads_to_the_next_and_back(name):
    assert [d for d in lint_series(schema(name).series) if d.severity != "info"] == []
    assert schema(name).versions[:2] == (1, 2)


@every("key", range(cases(3)))
@every("name", NAMES)
def test_instances_made_from_the_schema(name, key, tmp_path):
    with jax.enable_x64(name in NEEDS_X64):
        old = s.example(schema(name, 1).root, key=key)
        if name == "resnet":  # a count that version 2 does not keep; a downgrade starts it anew
            zeros = jnp.zeros((), jnp.int32)
            old = s.map_where(old, s.filters.parse("path:**/num_batches_tracked"), lambda _: zeros)
        if name == "mc_state":  # version 2 has a number for null, which a downgrade keeps
            old = old.replace(n_discard=old.n_discard or 0)
        saved_and_loaded(old, tmp_path / "one")
        new = moved(tmp_path / "one", tmp_path / "two", name, 2)
        assert moved(tmp_path / "two", tmp_path / "back", name, 1) == old
        saved_and_loaded(new, tmp_path / "again")
        saved_and_loaded(s.example(schema(name).root, key=key), tmp_path / "made")


WRONG_SIZES = [
    ("transformer", lambda state: state.params, "position_embedding", "d_model"),
    ("resnet", lambda state: state.params.head, "bias", "n_out"),
    ("mc_state", lambda state: state.sampler, "n_accepted", "n_chains"),
    ("lattice_gauge", lambda state: state, "energy_errors", "n_trajectories"),
]


@pytest.mark.parametrize(("name", "owner", "field", "size"), WRONG_SIZES, ids=NAMES)
def test_a_size_that_does_not_fit_is_named(name, owner, field, size):
    with jax.enable_x64(name in NEEDS_X64):
        held = owner(s.example(schema(name).root, key=1))
        old = getattr(held, field)
        wrong = jnp.zeros((*old.shape[:-1], old.shape[-1] + 1), old.dtype)
        with refused(s.ValidationError, "NQX413", size):
            held.replace(**{field: wrong})


# ---------------------------------------------------------------------------------------------------------------------
# Transformer: JAX functions on the schema's classes, trained with optax.adamw.

VOCAB, CONTEXT, HEADS, HEAD_DIM, LAYERS = 11, 8, 2, 4, 2
WIDTH = HEADS * HEAD_DIM


def norm(scale, bias, x):
    centred = x - x.mean(-1, keepdims=True)
    return scale * centred / jnp.sqrt((centred**2).mean(-1, keepdims=True) + 1e-6) + bias


def heads_of(attention, x):
    """Query, key and value of version 1 or 2, each [batch, time, head, width]."""
    if hasattr(attention, "qkv_kernel"):
        parts = jnp.split(x @ attention.qkv_kernel + attention.qkv_bias, 3, axis=-1)
        return [part.reshape(*part.shape[:-1], HEADS, HEAD_DIM) for part in parts]
    dense = (attention.query, attention.key, attention.value)
    return [jnp.einsum("btd,dhk->bthk", x, each.kernel) + each.bias for each in dense]


def logits_of(params, tokens):
    def affine(layer, x):
        return x @ layer.kernel + layer.bias

    def normed(layer, x):
        return norm(
            *((layer.gamma, layer.beta) if hasattr(layer, "gamma") else (layer.scale, layer.bias)),
            x,
        )

    x = params.token_embedding[tokens] + params.position_embedding[: tokens.shape[-1]]
    mask = jnp.tril(jnp.ones((tokens.shape[-1],) * 2, bool))
    for layer in params.layers:
        query, key, value = heads_of(layer.attention, normed(layer.ln_1, x))
        scores = jnp.where(mask, jnp.einsum("bthk,bshk->bhts", query, key) / HEAD_DIM**0.5, -1e9)
        mixed = jnp.einsum("bhts,bshk->bthk", jax.nn.softmax(scores), value).reshape(x.shape)
        out = layer.attention
        x += (
            affine(out.out, mixed) if hasattr(out, "out") else mixed @ out.out_kernel + out.out_bias
        )
        x += affine(layer.mlp_out, jax.nn.gelu(affine(layer.mlp_in, normed(layer.ln_2, x))))
    last = params.token_embedding.T if params.unembedding is None else params.unembedding
    return normed(params.ln_f, x) @ last


def language_loss(params, tokens):
    return optax.softmax_cross_entropy_with_integer_labels(
        logits_of(params, tokens)[:, :-1], tokens[:, 1:]
    ).mean()


def adamw(params, peak, warmup, total):
    decayed, rest = s.partition(params, "decay")
    mask = s.combine(jax.tree.map(lambda _: True, decayed), jax.tree.map(lambda _: False, rest))
    return optax.adamw(
        optax.warmup_cosine_decay_schedule(0.0, peak, warmup, total), weight_decay=0.01, mask=mask
    )


def sequences(key):
    """Each counts upwards from somewhere, by one or by two."""
    start, stride = jax.random.randint(key, (2, 16, 1), 0, VOCAB)
    return (start + (1 + stride % 2) * jnp.arange(CONTEXT)) % VOCAB


def first_transformer():
    lm, rng = schema("transformer", 1), np.random.default_rng(0)

    def weights(*shape):
        return jnp.asarray(rng.normal(size=shape) * 0.2, jnp.float32)

    def dense(n_in, n_out):
        return lm.Dense(kernel=weights(n_in, n_out), bias=jnp.zeros(n_out))

    def layer_norm():
        return lm.LayerNorm(gamma=jnp.ones(WIDTH), beta=jnp.zeros(WIDTH))

    params = lm.Params(
        token_embedding=weights(VOCAB, WIDTH),
        position_embedding=weights(CONTEXT, WIDTH),
        layers=[
            lm.Layer(
                ln_1=layer_norm(),
                attention=lm.Attention(
                    qkv_kernel=weights(WIDTH, 3 * WIDTH),
                    qkv_bias=jnp.zeros(3 * WIDTH),
                    out_kernel=weights(WIDTH, WIDTH),
                    out_bias=jnp.zeros(WIDTH),
                ),
                ln_2=layer_norm(),
                mlp_in=dense(WIDTH, 4 * WIDTH),
                mlp_out=dense(4 * WIDTH, WIDTH),
            )
            for _ in range(LAYERS)
        ],
        ln_f=layer_norm(),
    )
    adam, _, scheduled = adamw(params, 0.02, 5, 200).init(params)
    return lm.TrainState(
        n_heads=HEADS,
        params=params,
        adam_m=adam.mu,
        adam_v=adam.nu,
        adam_count=adam.count,
        schedule_count=scheduled.count,
        step=jnp.zeros((), jnp.int32),
        rng=jax.random.key_data(jax.random.key(5)),
        peak_rate=0.02,
        warmup_steps=5,
        total_steps=200,
        losses=jnp.zeros(0),
    )


def optax_state(adam):
    counts = adam.count, adam.mu, adam.nu
    return (
        optax.ScaleByAdamState(*counts),
        optax.MaskedState(optax.EmptyState()),
        optax.ScaleByScheduleState(adam.schedule_count),
    )


@quick
def transformer_step_1(state):
    key, draw = jax.random.split(jax.random.wrap_key_data(state.rng))
    rate = state.peak_rate, state.warmup_steps, state.total_steps
    loss, grads = jax.value_and_grad(language_loss)(state.params, sequences(draw))
    optimiser = adamw(state.params, *rate)
    before = (
        optax.ScaleByAdamState(state.adam_count, state.adam_m, state.adam_v),
        optax.MaskedState(optax.EmptyState()),
        optax.ScaleByScheduleState(state.schedule_count),
    )
    updates, (adam, _, scheduled) = optimiser.update(grads, before, state.params)
    return state.replace(
        params=optax.apply_updates(state.params, updates),
        adam_m=adam.mu,
        adam_v=adam.nu,
        adam_count=adam.count,
        schedule_count=scheduled.count,
        step=state.step + 1,
        rng=jax.random.key_data(key),
    ), loss


@quick
def transformer_step_2(state):
    key, draw = jax.random.split(state.key)
    rate = state.schedule.peak_rate, state.schedule.warmup_steps, state.schedule.total_steps
    loss, grads = jax.value_and_grad(language_loss)(state.params, sequences(draw))
    updates, (adam, _, scheduled) = adamw(state.params, *rate).update(
        grads, optax_state(state.optimizer), state.params
    )
    optimizer = type(state.optimizer)(
        count=adam.count, mu=adam.mu, nu=adam.nu, schedule_count=scheduled.count
    )
    params = optax.apply_updates(state.params, updates)
    return state.replace(params=params, optimizer=optimizer, step=state.step + 1, key=key), loss


def test_transformer(tmp_path):
    old, losses = run(transformer_step_1, first_transformer(), 40)
    assert losses[-5:].mean() < 0.6 * losses[:5].mean()
    old = old.replace(losses=losses)
    loaded = saved_and_loaded(old, tmp_path / "one")
    check_with_others_tools(tmp_path / "one")
    assert identical(run(transformer_step_1, loaded, 3), run(transformer_step_1, old, 3))

    new = moved(tmp_path / "one", tmp_path / "two", "transformer", 2)
    tokens = sequences(jax.random.key(1))
    logits = quick(logits_of)
    assert jnp.allclose(logits(new.params, tokens), logits(old.params, tokens), atol=1e-5)
    assert new.optimizer.count == 40 and new.activation == "gelu"
    assert new.n_parameters == sum(leaf.size for leaf in jax.tree.leaves(old.params))
    assert new.n_parameters == sum(leaf.size for leaf in jax.tree.leaves(new.params))
    (old_on, old_losses), (new_on, new_losses) = (
        run(transformer_step_1, old, 10),
        run(transformer_step_2, new, 10),
    )
    assert jnp.allclose(old_losses, new_losses, rtol=1e-3)
    assert jnp.array_equal(jax.random.key_data(new_on.key), old_on.rng)

    loaded = saved_and_loaded(new_on, tmp_path / "three")
    check_with_others_tools(tmp_path / "three")
    assert identical(run(transformer_step_2, loaded, 3), run(transformer_step_2, new_on, 3))
    assert identical(moved(tmp_path / "two", tmp_path / "back", "transformer", 1), old)


def test_filters_take_the_model_apart(tmp_path):
    state = s.example(schema("transformer").root, key=3)
    weights = s.load(
        state.export(tmp_path / "ckpt"), select=s.filters.parse("tag:model & tag:decay")
    )
    assert weights.params.layers[0].attention.query.kernel is not None
    assert (
        weights.params.layers[0].attention.query.bias is None
        and weights.optimizer.mu.layers[0].mlp_in.kernel is None
    )


# ---------------------------------------------------------------------------------------------------------------------
# ResNet: modules of Flax on the schema's weights, trained with optax.sgd.

WIDTH_1, CLASSES = 4, 3


def resnet_of(params, stats, images, *, train, names):
    """Logits and new statistics; ``names`` says how the version calls what Flax knows as scale, mean and var."""
    scale, mean, var, layout = names

    def conv(layer, x, stride=1):
        axes = jax.lax.conv_dimension_numbers(x.shape, layer.kernel.shape, ("NHWC", layout, "NHWC"))
        return jax.lax.conv_general_dilated(
            x, layer.kernel, (stride, stride), "SAME", dimension_numbers=axes
        )

    def batch_norm(layer, state, x):
        variables = {
            "params": {"scale": getattr(layer, scale), "bias": layer.bias},
            "batch_stats": {"mean": getattr(state, mean), "var": getattr(state, var)},
        }
        module = linen.BatchNorm(use_running_average=not train, momentum=0.9)
        out, updated = module.apply(variables, x, mutable=["batch_stats"])
        running = updated.get("batch_stats", variables["batch_stats"])
        return out, state.replace(**{mean: running["mean"], var: running["var"]})

    def block(layer, state, x, stride=1):
        y, norm_1 = batch_norm(layer.norm_1, state.norm_1, conv(layer.conv_1, x, stride))
        y, norm_2 = batch_norm(layer.norm_2, state.norm_2, conv(layer.conv_2, linen.relu(y)))
        shortcut = None
        if layer.shortcut is not None:
            x, shortcut = batch_norm(
                layer.shortcut.norm, state.shortcut, conv(layer.shortcut.conv, x, stride)
            )
        return linen.relu(x + y), state.replace(norm_1=norm_1, norm_2=norm_2, shortcut=shortcut)

    def stage(layer, state, x, stride):
        x, first = block(layer.first, state.first, x, stride)
        rest = []
        for inner, inner_state in zip(layer.rest, state.rest, strict=True):
            x, updated = block(inner, inner_state, x)
            rest.append(updated)
        return x, state.replace(first=first, rest=rest)

    x, stem_norm = batch_norm(params.stem_norm, stats.stem_norm, conv(params.stem, images))
    x, stage_1 = stage(params.stage_1, stats.stage_1, linen.relu(x), 1)
    x, stage_2 = stage(params.stage_2, stats.stage_2, x, 2)
    x, stage_3 = stage(params.stage_3, stats.stage_3, x, 2)
    stats = stats.replace(stem_norm=stem_norm, stage_1=stage_1, stage_2=stage_2, stage_3=stage_3)
    return x.mean((1, 2)) @ params.head.kernel + params.head.bias, stats


TORCH = ("weight", "running_mean", "running_var", "OIHW")
FLAX = ("scale", "mean", "var", "HWIO")


def pictures(key):
    """Stripes of three directions under noise."""
    angle, noise = jax.random.split(key)
    labels = jax.random.randint(angle, (24,), 0, CLASSES)
    grid = jnp.stack(jnp.meshgrid(jnp.arange(8), jnp.arange(8)), -1)
    stripes = jnp.sin(grid @ jnp.array([[1.5, 0.0], [0.0, 1.5], [1.1, 1.1]]).T)
    images = jnp.moveaxis(stripes[..., labels], -1, 0)[..., None]
    return images + 0.3 * jax.random.normal(noise, images.shape), labels


def first_resnet():
    net, rng = schema("resnet", 1), np.random.default_rng(1)

    def conv(size, n_in, n_out):
        kernel = rng.normal(size=(n_out, n_in, size, size)) * (2 / (size * size * n_in)) ** 0.5
        return net.Conv(kernel=jnp.asarray(kernel, jnp.float32))

    def batch_norm(n):
        return net.BatchNorm(weight=jnp.ones(n), bias=jnp.zeros(n))

    def batch_stats(n):
        return net.BatchStats(running_mean=jnp.zeros(n), running_var=jnp.ones(n))

    def block(n_in, n_out):
        shortcut = (
            None
            if n_in == n_out
            else net.Shortcut(conv=conv(1, n_in, n_out), norm=batch_norm(n_out))
        )
        weights = net.Block(
            conv_1=conv(3, n_in, n_out),
            norm_1=batch_norm(n_out),
            conv_2=conv(3, n_out, n_out),
            norm_2=batch_norm(n_out),
            shortcut=shortcut,
        )
        stats = net.BlockStats(
            norm_1=batch_stats(n_out),
            norm_2=batch_stats(n_out),
            shortcut=shortcut and batch_stats(n_out),
        )
        return weights, stats

    def stage(n_in, n_out, more):
        (first, first_stats), rest = block(n_in, n_out), [block(n_out, n_out) for _ in range(more)]
        return (
            net.Stage(first=first, rest=[weights for weights, _ in rest]),
            net.StageStats(first=first_stats, rest=[stats for _, stats in rest]),
        )

    w = WIDTH_1
    stages = [stage(w, w, 0), stage(w, 2 * w, 1), stage(2 * w, 4 * w, 0)]
    names = ("stage_1", "stage_2", "stage_3")
    params = net.Params(
        stem=conv(3, 1, w),
        stem_norm=batch_norm(w),
        **dict(zip(names, [weights for weights, _ in stages], strict=True)),
        head=net.Head(
            kernel=jnp.asarray(rng.normal(size=(4 * w, CLASSES)) * 0.1, jnp.float32),
            bias=jnp.zeros(CLASSES),
        ),
    )
    stats = net.Stats(
        stem_norm=batch_stats(w),
        **dict(zip(names, [running for _, running in stages], strict=True)),
    )
    return net.TrainState(
        params=params,
        buffers=stats,
        momentum_buffer=jax.tree.map(jnp.zeros_like, params),
        step=jnp.zeros((), jnp.int32),
        rng=jax.random.key_data(jax.random.key(7)),
        train_loss=jnp.zeros(0),
        accuracy=jnp.zeros(0),
        learning_rate=0.05,
    )


def resnet_update(state, params, stats, trace, key, names):  # noqa: PLR0917
    def loss_of(weights):
        logits, updated = resnet_of(weights, stats, images, train=True, names=names)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean(), updated

    images, labels = pictures(key)
    (loss, stats), grads = jax.value_and_grad(loss_of, has_aux=True)(params)
    optimiser = optax.sgd(state.learning_rate, momentum=state.momentum)
    before = (optax.TraceState(trace), optax.EmptyState())
    updates, (traced, _) = optimiser.update(grads, before, params)
    return optax.apply_updates(params, updates), stats, traced.trace, loss


@quick
def resnet_step_1(state):
    key, draw = jax.random.split(jax.random.wrap_key_data(state.rng))
    params, stats, trace, loss = resnet_update(
        state, state.params, state.buffers, state.momentum_buffer, draw, TORCH
    )
    new = {
        "params": params,
        "buffers": stats,
        "momentum_buffer": trace,
        "rng": jax.random.key_data(key),
    }
    return state.replace(**new, step=state.step + 1), loss


@quick
def resnet_step_2(state):
    key, draw = jax.random.split(state.key)
    params, stats, trace, loss = resnet_update(
        state, state.params, state.batch_stats, state.optimizer.trace, draw, FLAX
    )
    optimizer = state.optimizer.replace(trace=trace)
    return state.replace(
        params=params, batch_stats=stats, optimizer=optimizer, key=key, step=state.step + 1
    ), loss


def test_resnet(tmp_path):
    old, losses = run(resnet_step_1, first_resnet(), 25)
    assert losses[-5:].mean() < 0.6 * losses[:5].mean()
    images, labels = pictures(jax.random.key(99))
    evaluated = quick(resnet_of, static_argnames=("train", "names"))
    before, _ = evaluated(old.params, old.buffers, images, train=False, names=TORCH)
    assert (before.argmax(-1) == labels).mean() > 0.5
    old = old.replace(
        train_loss=losses.mean()[None], accuracy=(before.argmax(-1) == labels).mean()[None]
    )
    loaded = saved_and_loaded(old, tmp_path / "one")
    assert identical(run(resnet_step_1, loaded, 2), run(resnet_step_1, old, 2))

    new = moved(tmp_path / "one", tmp_path / "two", "resnet", 2)
    assert new.params.stem.kernel.shape == (3, 3, 1, WIDTH_1)
    assert new.n_parameters == sum(leaf.size for leaf in jax.tree.leaves(new.params))
    after, _ = evaluated(new.params, new.batch_stats, images, train=False, names=FLAX)
    assert jnp.allclose(after, before, atol=1e-4)
    (_, old_losses), (new_on, new_losses) = run(resnet_step_1, old, 3), run(resnet_step_2, new, 3)
    assert jnp.allclose(old_losses, new_losses, rtol=1e-2)

    loaded = saved_and_loaded(new_on, tmp_path / "three")
    check_with_others_tools(tmp_path / "three")
    assert identical(run(resnet_step_2, loaded, 2), run(resnet_step_2, new_on, 2))
    assert identical(moved(tmp_path / "two", tmp_path / "back", "resnet", 1), old)

    statistics, rest = s.partition(new, "batch_stats")
    assert len(jax.tree.leaves(statistics)) == len(jax.tree.leaves(new.batch_stats))
    assert s.combine(statistics, rest) == new
    with refused(s.ValidationError, "NQX416", "all(accuracy_history <= 1)"):
        new.replace(accuracy_history=jnp.array([1.5]))


# ---------------------------------------------------------------------------------------------------------------------
# Lattice gauge theory: hybrid Monte Carlo of SU(3) in four dimensions and U(1) in two, in double precision.

GENERATORS = np.zeros((8, 3, 3), complex)  # half the Gell-Mann matrices
for number, (row, column) in enumerate([(0, 1), (0, 2), (1, 2)]):
    GENERATORS[2 * number, row, column] = GENERATORS[2 * number, column, row] = 0.5
    GENERATORS[2 * number + 1, row, column], GENERATORS[2 * number + 1, column, row] = -0.5j, 0.5j
GENERATORS[6], GENERATORS[7] = np.diag([0.5, -0.5, 0]), np.diag([1, 1, -2]) / (2 * 3**0.5)


def plaquette_su3(links):
    """The mean of Re tr P / 3 over all plaquettes; axes of the lattice are x, y, z, t."""
    total = 0.0
    for mu in range(4):
        for nu in range(mu):
            a, b = links[..., mu, :, :], links[..., nu, :, :]
            corner = a @ jnp.roll(b, -1, mu)
            other = b @ jnp.roll(a, -1, nu)
            total += jnp.mean(jnp.einsum("...ij,...ij->...", corner, other.conj()).real) / 3
    return total / 6


def plaquette_u1(angles):
    x, t = angles[..., 0], angles[..., 1]
    return jnp.mean(jnp.cos(x + jnp.roll(t, -1, 0) - jnp.roll(x, -1, 1) - t))


def algebra(momenta):
    return jnp.tensordot(momenta, GENERATORS, 1)


def turned_su3(links, momenta):
    """exp(i P) U by the eigenvalues of P."""
    values, vectors = jnp.linalg.eigh(algebra(momenta))
    return (vectors * jnp.exp(1j * values)[..., None, :]) @ vectors.conj().swapaxes(-1, -2) @ links


def trajectory(links, beta, n_steps, step_size, key, group):  # noqa: PLR0917
    """One trajectory of molecular dynamics and the decision about it."""
    draw, accept = jax.random.split(key)
    if group == "SU3":
        n_plaquettes, plaquette, turn = 6 * links[..., 0, 0, 0].size, plaquette_su3, turned_su3
        momenta = jax.random.normal(draw, (*links.shape[:-2], 8))
    else:
        n_plaquettes, plaquette, turn = links[..., 0].size, plaquette_u1, jnp.add
        momenta = jax.random.normal(draw, links.shape)

    def force(links):
        """The gradient at zero, where this is exp(i a) U to first order."""

        def nearby(a):
            return plaquette(links + (1j * algebra(a) @ links if group == "SU3" else a))

        return beta * n_plaquettes * jax.grad(nearby)(jnp.zeros_like(momenta))

    def kinetic(p):
        return jnp.sum(p**2) / 2

    def step(state, _):
        links, p = state
        p = p + step_size / 2 * force(links)
        links = turn(links, step_size * p)
        return (links, p + step_size / 2 * force(links)), None

    energy = kinetic(momenta) - beta * n_plaquettes * plaquette(links)
    (new, p), _ = jax.lax.scan(step, (links, momenta), None, n_steps)
    error = kinetic(p) - beta * n_plaquettes * plaquette(new) - energy
    taken = jnp.log(jax.random.uniform(accept)) < -error
    links = jnp.where(taken, new, links)
    return links, taken, plaquette(links), error


trajectory = quick(trajectory, static_argnames=("n_steps", "group"))


def simulated(state, count):
    """The state behind some trajectories, of version 2."""
    for _ in range(count):
        key, draw = jax.random.split(state.key)
        group = type(state.gauge).__name__
        (name,) = type(state.gauge).fields()
        links, taken, plaquette, error = trajectory(
            getattr(state.gauge, name),
            state.beta,
            state.trajectory.n_steps,
            state.trajectory.step_size,
            draw,
            group,
        )
        state = state.replace(
            gauge=state.gauge.replace(**{name: links}),
            n_accepted=state.n_accepted + int(taken),
            n_proposed=state.n_proposed + 1,
            plaquette_history=jnp.append(state.plaquette_history, plaquette),
            energy_errors=jnp.append(state.energy_errors, error),
            key=key,
        )
    return state


def cold_start(group):
    lattice = schema("lattice_gauge")
    if group == "SU3":
        eye = jnp.broadcast_to(jnp.eye(3, dtype=complex), (2, 2, 2, 3, 4, 3, 3))
        gauge, beta, step_size = lattice.SU3(links=eye), 5.7, 0.04
    else:
        gauge, beta, step_size = lattice.U1(angles=jnp.zeros((4, 6, 2))), 2.0, 0.1
    return lattice.Ensemble(
        gauge=gauge,
        beta=beta,
        trajectory=lattice.Trajectory(n_steps=8, step_size=step_size),
        plaquette_history=jnp.zeros(0),
        energy_errors=jnp.zeros(0),
        key=jax.random.key(2),
    )


@pytest.mark.parametrize("group", ["SU3", "U1"])
def test_lattice_gauge(group, tmp_path):
    with jax.enable_x64(True):
        state = simulated(cold_start(group), 15)
        assert state.n_proposed == 15 and state.acceptance > 0.5
        assert state.trajectory.length == pytest.approx(8 * state.trajectory.step_size)
        assert (
            abs(state.energy_errors).max() < 2 and 0.2 < state.plaquette_history[-5:].mean() < 0.95
        )
        if group == "SU3":
            links = state.gauge.links
            assert jnp.allclose(links @ links.conj().swapaxes(-1, -2), jnp.eye(3), atol=1e-12)

        loaded = saved_and_loaded(state, tmp_path / "two")
        check_with_others_tools(tmp_path / "two")
        assert identical(simulated(loaded, 3), simulated(state, 3))

        old = moved(tmp_path / "two", tmp_path / "one", "lattice_gauge", 1)
        if group == "SU3":
            assert old.gauge.links_re.shape == (3, 2, 2, 2, 4, 3, 3)
            assert jnp.array_equal(
                old.gauge.links_re[2, 1, 0, 1], state.gauge.links[1, 0, 1, 2].real
            )
        else:
            assert jnp.array_equal(old.gauge.angles[5, 3], state.gauge.angles[3, 5])
        saved_and_loaded(old, tmp_path / "old")
        again = moved(tmp_path / "old", tmp_path / "back", "lattice_gauge", 2)
        assert identical(again, state)
        assert identical(simulated(again, 2), simulated(state, 2))
        with refused(s.ValidationError, "NQX416", "n_accepted"):
            state.replace(n_accepted=99)
    with refused(s.SerializationError, "NQX417", "x64"):
        s.load(tmp_path / "two")


# ---------------------------------------------------------------------------------------------------------------------
# A Monte Carlo state: a complex RBM by stochastic gradient descent with momentum, and NetKet's own.


def log_psi(rbm, sigma):
    hidden = sigma @ rbm.kernel + rbm.hidden_bias
    return jnp.log(jnp.cosh(hidden)).sum(-1) + sigma @ rbm.visible_bias


@quick
def vmc_step(state):
    """A sweep over all chains, the energy of the transverse-field Ising chain, and an update of the parameters."""
    rbm, sampler = state.parameters, state.sampler
    key, draw = jax.random.split(sampler.key)
    n_chains, n_sites = sampler.sigma.shape

    def move(carry, key):
        sigma, accepted = carry
        where, chance = jax.random.split(key)
        site = jax.random.randint(where, (n_chains,), 0, n_sites)
        other = sigma * (1 - 2 * jax.nn.one_hot(site, n_sites, dtype=sigma.dtype))
        ratio = sampler.machine_pow * (log_psi(rbm, other) - log_psi(rbm, sigma)).real
        taken = jnp.log(jax.random.uniform(chance, (n_chains,))) < ratio
        return (jnp.where(taken[:, None], other, sigma), accepted + taken), None

    moves = jax.random.split(draw, sampler.sweep_size)
    (sigma, accepted), _ = jax.lax.scan(move, (sampler.sigma, sampler.n_accepted), moves)
    flips = 1 - 2 * jnp.eye(n_sites, dtype=sigma.dtype)
    flipped = jax.vmap(lambda flip: log_psi(rbm, sigma * flip), out_axes=-1)(flips)
    local = -(sigma * jnp.roll(sigma, 1, -1)).sum(-1) - jnp.exp(
        flipped - log_psi(rbm, sigma)[:, None]
    ).sum(-1)

    def objective(rbm):
        return 2 * jnp.mean((local - local.mean()).conj() * log_psi(rbm, sigma)).real

    grads = jax.tree.map(jnp.conj, jax.grad(objective)(rbm))
    optimiser = optax.sgd(state.optimizer.learning_rate, momentum=0.8)
    updates, (traced, _) = optimiser.update(
        grads, (optax.TraceState(state.optimizer.trace), optax.EmptyState())
    )
    n_steps = sampler.n_steps + sampler.sweep_size * n_chains
    return state.replace(
        parameters=optax.apply_updates(rbm, updates),
        sampler=sampler.replace(sigma=sigma, key=key, n_accepted=accepted, n_steps=n_steps),
        optimizer=state.optimizer.replace(trace=traced.trace),
    ), local.mean()


def test_mc_state(tmp_path):
    with jax.enable_x64(True):
        mc, rng, n, chains = schema("mc_state"), np.random.default_rng(4), 6, 64

        def weights(*shape):
            return jnp.asarray(0.05 * (rng.normal(size=shape) + 1j * rng.normal(size=shape)))

        rbm = mc.RBM(kernel=weights(n, n), hidden_bias=weights(n), visible_bias=weights(n))
        state = mc.MCState(
            parameters=rbm,
            sampler=mc.Sampler(
                sigma=jnp.asarray(rng.choice([-1, 1], (chains, n)), jnp.int8),
                key=jax.random.key(1),
                n_steps=jnp.zeros((), jnp.int64),
                n_accepted=jnp.zeros(chains, jnp.int64),
                sweep_size=2 * n,
            ),
            sr=mc.StochasticReconfiguration(),
            optimizer=mc.Optimizer(trace=jax.tree.map(jnp.zeros_like, rbm), learning_rate=0.02),
            n_samples=chains,
            energy_history=jnp.zeros(0, complex),
        )
        state, energies = run(vmc_step, state, 150)
        exact = -7.727406610312547  # six spins at the critical field
        assert (
            abs(energies[-20:].mean().real / exact - 1) < 0.05 < abs(energies[0].real / exact - 1)
        )
        state = state.replace(energy_history=energies, step=150)
        assert state.n_parameters == n * n + 2 * n

        loaded = saved_and_loaded(state, tmp_path / "two")
        check_with_others_tools(tmp_path / "two")
        assert identical(run(vmc_step, loaded, 3), run(vmc_step, state, 3))
        old = moved(tmp_path / "two", tmp_path / "one", "mc_state", 1)
        assert old.solver == "Cholesky" and jnp.array_equal(
            old.rng, jax.random.key_data(state.sampler.key)
        )
        assert identical(moved(tmp_path / "one", tmp_path / "back", "mc_state", 2), state)
        with refused(s.ValidationError, "NQX416"):
            state.replace(n_samples=100)
