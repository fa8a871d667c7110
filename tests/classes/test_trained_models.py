"""More schemas of real models: a language model with scanned layers, a normalising flow, a diffusion model, and an agent.

Each state is trained for some steps under version 1, saved and loaded, migrated to version 2, and trained on there: the
steps after the migration must be those that version 1 makes.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import neuralqx_struct as s
from neuralqx_struct.tools.linting import lint_series
from tests.shipped import (
    check_with_others_tools,
    identical,
    moved,
    quick,
    run,
    saved_and_loaded,
    schema,
)

NAMES = ["gpt2", "normalising_flow", "diffusion_unet", "ppo_agent"]


@pytest.mark.parametrize("name", NAMES)
def test_lint_finds_nothing(name):
    found = [d for d in lint_series(schema(name).series) if d.severity != "info"]
    assert found == []
    assert schema(name).versions == (1, 2)


@pytest.mark.parametrize("name", NAMES)
def test_instances_made_from_the_schema(name, tmp_path):
    old = s.example(schema(name, 1).root, key=1)
    saved_and_loaded(old, tmp_path / "one")
    new = moved(tmp_path / "one", tmp_path / "two", name, 2)
    assert moved(tmp_path / "two", tmp_path / "back", name, 1) == old
    saved_and_loaded(new, tmp_path / "again")
    saved_and_loaded(s.example(schema(name).root, key=1), tmp_path / "made")


def check_training(name, step, old, tmp_path):
    """Saves a state of version 1, loads and migrates it, and trains on; returns what version 2 recorded."""
    loaded = saved_and_loaded(old, tmp_path / "one")
    check_with_others_tools(tmp_path / "one")
    assert identical(run(step, loaded, 2), run(step, old, 2))
    new = moved(tmp_path / "one", tmp_path / "two", name, 2)
    assert new.n_parameters == sum(leaf.size for leaf in jax.tree.leaves(weights_of(new)))
    # A few steps: an agent that acts by chance soon does something else where numbers are rounded otherwise.
    (old_on, old_record), (new_on, new_record) = run(step, old, 3), run(step, new, 3)
    assert jnp.allclose(old_record, new_record, rtol=1e-3, atol=1e-4)
    assert jnp.array_equal(jax.random.key_data(new_on.key), old_on.rng)
    loaded = saved_and_loaded(new_on, tmp_path / "three")
    check_with_others_tools(tmp_path / "three")
    assert identical(run(step, loaded, 2), run(step, new_on, 2))
    assert identical(moved(tmp_path / "two", tmp_path / "back", name, 1), old)
    return new_record


def weights_of(state):
    return state.flow if hasattr(state, "flow") else getattr(state, "params", None) or state.model


def optimised(state, grads, optimiser, names):
    """The weights and the fields of the optimizer after a step, in the layout of the state's version.

    Of the chain that is the optimizer, the first one is Adam, and the others keep nothing.
    """
    weights = weights_of(state)
    if hasattr(state, "optimizer"):
        adam = optax.ScaleByAdamState(*(getattr(state.optimizer, n) for n in ("count", "mu", "nu")))
    else:
        adam = optax.ScaleByAdamState(*(getattr(state, name) for name in names))
    _, *rest = optimiser.init(weights)
    updates, (adam, *_) = optimiser.update(grads, (adam, *rest), weights)
    weights = optax.apply_updates(weights, updates)
    if hasattr(state, "optimizer"):
        moments = {"count": adam.count, "mu": adam.mu, "nu": adam.nu}
        return weights, {"optimizer": state.optimizer.replace(**moments)}
    return weights, dict(zip(names, adam, strict=True))


def next_key(state):
    """A key to draw with, and the field that keeps the next one."""
    if hasattr(state, "key"):
        key, draw = jax.random.split(state.key)
        return draw, {"key": key}
    key, draw = jax.random.split(jax.random.wrap_key_data(state.rng))
    return draw, {"rng": jax.random.key_data(key)}


def first_adam(names, weights):
    return dict(zip(names, optax.scale_by_adam().init(weights), strict=True))


def random_words():
    return jax.random.key_data(jax.random.key(5))


def zero():
    return jnp.zeros((), jnp.int32)


def normals(seed):
    rng = np.random.default_rng(seed)

    def draw(*shape, scale=None):
        scale = 1 / np.sqrt(np.prod(shape[:-1])) if scale is None else scale
        return jnp.asarray(rng.normal(size=shape) * scale, jnp.float32)

    return draw


def part(holder, *names):
    """The field that has one of the names: the first is that of version 2."""
    return getattr(holder, next(name for name in names if hasattr(holder, name)))


def linear(layer, x):
    return x @ part(layer, "kernel", "weight") + layer.bias


ADAM = ("adam_count", "adam_m", "adam_v")
TORCH_ADAM = ("opt_step", "exp_avg", "exp_avg_sq")

# ---------------------------------------------------------------------------------------------------------------------
# The language model learns to count.

VOCAB, CONTEXT, HEADS, HEAD_DIM, LAYERS = 17, 12, 2, 8, 3
WIDTH = HEADS * HEAD_DIM


def layer_normed(layer, x):
    x = (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)
    return x * part(layer, "scale", "weight") + layer.bias


def block_applied(x, block):
    """One block, as ``jax.lax.scan`` calls it with a slice of every array."""
    attention, mlp = getattr(block, "attention", block), getattr(block, "mlp", block)
    fused = linear(part(attention, "qkv", "c_attn"), layer_normed(block.ln_1, x))
    query, key, value = (
        each.reshape(*x.shape[:-1], HEADS, HEAD_DIM) for each in jnp.split(fused, 3, axis=-1)
    )
    mask = jnp.tril(jnp.ones((x.shape[1],) * 2, bool))
    scores = jnp.where(mask, jnp.einsum("bthk,bshk->bhts", query, key) / HEAD_DIM**0.5, -1e9)
    mixed = jnp.einsum("bhts,bshk->bthk", jax.nn.softmax(scores), value).reshape(x.shape)
    x += linear(part(attention, "out", "c_proj"), mixed)
    hidden = jax.nn.gelu(linear(part(mlp, "up", "c_fc"), layer_normed(block.ln_2, x)))
    return x + linear(part(mlp, "down", "c_out"), hidden), None


def next_token_loss(params, tokens):
    embedding = part(params, "token_embedding", "wte")
    x = embedding[tokens] + part(params, "position_embedding", "wpe")[: tokens.shape[1]]
    blocks = part(params, "blocks", "h")
    for block in blocks if isinstance(blocks, list) else ():
        x, _ = block_applied(x, block)
    if not isinstance(blocks, list):
        x, _ = jax.lax.scan(block_applied, x, blocks)
    logits = layer_normed(params.ln_f, x) @ embedding.T
    losses = optax.softmax_cross_entropy_with_integer_labels(logits[:, :-1], tokens[:, 1:])
    return losses.mean()


def counted(key):
    """Sequences that count upwards from somewhere, by one or by two."""
    start, stride = jax.random.randint(key, (2, 16, 1), 0, VOCAB)
    return (start + (1 + stride % 2) * jnp.arange(CONTEXT)) % VOCAB


@quick
def gpt2_step(state):
    draw, keys = next_key(state)
    settings = getattr(state, "optimizer", state)
    decayed, rest = s.partition(state.params, "decay")
    mask = s.combine(jax.tree.map(lambda _: True, decayed), jax.tree.map(lambda _: False, rest))
    optimiser = optax.adamw(settings.learning_rate, weight_decay=settings.weight_decay, mask=mask)
    loss, grads = jax.value_and_grad(next_token_loss)(state.params, counted(draw))
    params, optimizer = optimised(state, grads, optimiser, TORCH_ADAM)
    return state.replace(params=params, step=state.step + 1, **optimizer, **keys), loss


def first_gpt2():
    classes, draw = schema("gpt2", 1), normals(0)

    def dense(n_in, n_out):
        return classes.Linear(weight=draw(n_in, n_out), bias=jnp.zeros(n_out))

    def norm():
        return classes.LayerNorm(weight=jnp.ones(WIDTH), bias=jnp.zeros(WIDTH))

    blocks = [
        classes.Block(
            ln_1=norm(),
            c_attn=dense(WIDTH, 3 * WIDTH),
            c_proj=dense(WIDTH, WIDTH),
            ln_2=norm(),
            c_fc=dense(WIDTH, 4 * WIDTH),
            c_out=dense(4 * WIDTH, WIDTH),
        )
        for _ in range(LAYERS)
    ]
    params = classes.Params(
        wte=draw(VOCAB, WIDTH, scale=0.1),
        wpe=draw(CONTEXT, WIDTH, scale=0.1),
        h=blocks,
        ln_f=norm(),
    )
    return classes.TrainState(
        n_head=HEADS,
        params=params,
        learning_rate=0.01,
        weight_decay=0.01,
        step=zero(),
        rng=random_words(),
        losses=jnp.zeros(0),
        **first_adam(TORCH_ADAM, params),
    )


@pytest.mark.slow
def test_gpt2(tmp_path):
    state, losses = run(gpt2_step, first_gpt2(), 60)
    assert losses[-5:].mean() < 0.6 * losses[:5].mean()
    check_training("gpt2", gpt2_step, state.replace(losses=losses), tmp_path)
    blocks = s.unstack(schema("gpt2").root.load(tmp_path / "two").params.blocks)
    assert [type(block) for block in blocks] == [schema("gpt2").Block] * LAYERS


# ---------------------------------------------------------------------------------------------------------------------
# The flow learns two moons.


def moons(key):
    turn, noise = jax.random.split(key)
    angle = jnp.pi * jax.random.uniform(turn, (128,))
    upper = jnp.stack([jnp.cos(angle), jnp.sin(angle)], 1)
    lower = jnp.stack([1 - jnp.cos(angle), 0.5 - jnp.sin(angle)], 1)
    points = jnp.where(jnp.arange(128)[:, None] % 2 == 0, upper, lower)
    return points + 0.05 * jax.random.normal(noise, points.shape)


def scale_and_shift(coupling, x):
    if hasattr(coupling, "hidden"):
        hidden = jnp.tanh(x @ coupling.hidden.kernel + coupling.hidden.bias)
        heads = (coupling.log_scale, coupling.shift)
        return [hidden @ head.kernel + head.bias for head in heads]
    hidden = jnp.tanh(x @ coupling.w_in + coupling.b_in)
    return jnp.split(hidden @ coupling.w_out + coupling.b_out, 2, axis=1)


def log_likelihood(flow, x):
    total = jnp.zeros(len(x))
    for coupling in flow.couplings:
        moves = jnp.arange(x.shape[1]) % 2 == (0 if coupling.half == "even" else 1)
        log_scale, shift = scale_and_shift(coupling, jnp.where(moves, 0.0, x))
        log_scale = jnp.where(moves, jnp.tanh(log_scale), 0.0)
        x = x * jnp.exp(log_scale) + jnp.where(moves, shift, 0.0)
        total += log_scale.sum(1)
    last = getattr(flow, "last", flow)
    x = x * jnp.exp(last.log_scale) + last.shift
    return total + last.log_scale.sum() + jax.scipy.stats.norm.logpdf(x).sum(1)


@quick
def flow_step(state):
    draw, keys = next_key(state)
    loss, grads = jax.value_and_grad(lambda flow: -log_likelihood(flow, moons(draw)).mean())(
        state.flow
    )
    flow, optimizer = optimised(state, grads, optax.adam(state.learning_rate), ADAM)
    return state.replace(flow=flow, step=state.step + 1, **optimizer, **keys), loss


def first_flow():
    classes, draw = schema("normalising_flow", 1), normals(0)
    couplings = [
        classes.Coupling(
            half=half,
            w_in=draw(2, 16),
            b_in=jnp.zeros(16),
            w_out=draw(16, 4, scale=0.01),
            b_out=jnp.zeros(4),
        )
        for half in ("even", "odd", "even", "odd")
    ]
    flow = classes.Flow(couplings=couplings, log_scale=jnp.zeros(2), shift=jnp.zeros(2))
    return classes.FlowState(
        flow=flow,
        learning_rate=0.01,
        step=zero(),
        rng=random_words(),
        nll=jnp.zeros(0),
        **first_adam(ADAM, flow),
    )


@pytest.mark.slow
def test_normalising_flow(tmp_path):
    state, losses = run(flow_step, first_flow(), 60)
    assert losses[-5:].mean() < losses[:5].mean() - 0.4
    check_training("normalising_flow", flow_step, state.replace(nll=losses), tmp_path)


# ---------------------------------------------------------------------------------------------------------------------
# The diffusion model learns squares.

SIDE, CHANNELS, TIMES = 8, 4, 20


def torch_linear(layer, x):
    kernel = layer.kernel if hasattr(layer, "kernel") else layer.weight.T
    return x @ kernel + layer.bias


def convolved(layer, x, stride=1):
    kernel = layer.kernel if hasattr(layer, "kernel") else layer.weight.transpose(2, 3, 1, 0)
    out = jax.lax.conv_general_dilated(
        x, kernel, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    return out + layer.bias


def normed(layer, x):
    groups = x.reshape(*x.shape[:-1], 2, -1)
    mean = groups.mean((1, 2, 4), keepdims=True)
    variance = groups.var((1, 2, 4), keepdims=True)
    scaled = ((groups - mean) / jnp.sqrt(variance + 1e-5)).reshape(x.shape)
    return scaled * getattr(layer, "scale", getattr(layer, "weight", None)) + layer.bias


def residual(block, x, time):
    out = convolved(
        part(block, "conv_1", "conv1"), jax.nn.silu(normed(part(block, "norm_1", "norm1"), x))
    )
    out += torch_linear(part(block, "time", "emb"), time)[:, None, None]
    out = convolved(
        part(block, "conv_2", "conv2"), jax.nn.silu(normed(part(block, "norm_2", "norm2"), out))
    )
    return out + (x if block.skip is None else torch_linear(block.skip, x))


def attended(layer, x):
    flat = normed(layer.norm, x).reshape(len(x), -1, x.shape[-1])
    query, key, value = jnp.split(torch_linear(layer.qkv, flat), 3, axis=-1)
    weights = jax.nn.softmax(query @ key.swapaxes(1, 2) / x.shape[-1] ** 0.5)
    return x + torch_linear(layer.out, weights @ value).reshape(x.shape)


def denoised(model, x, times):
    angles = times[:, None] * 2.0 ** jnp.arange(CHANNELS // 2)
    time = jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=1)
    time = jax.nn.silu(torch_linear(part(model, "time_in", "time1"), time))
    time = jax.nn.silu(torch_linear(part(model, "time_out", "time2"), time))
    high = residual(model.down, convolved(model.conv_in, x), time)
    low = high.reshape(len(x), SIDE // 2, 2, SIDE // 2, 2, -1).mean((2, 4))
    low = attended(model.attention, residual(part(model, "middle_in", "middle1"), low, time))
    low = residual(part(model, "middle_out", "middle2"), low, time)
    low = low.repeat(2, axis=1).repeat(2, axis=2)
    out = residual(model.up, jnp.concatenate([high, low], axis=-1), time)
    return convolved(model.conv_out, jax.nn.silu(normed(model.norm_out, out)))


def squares(key):
    corner = jax.random.randint(key, (16, 2, 1), 0, SIDE - 3)
    inside = (jnp.arange(SIDE) >= corner) & (jnp.arange(SIDE) < corner + 4)
    return 2.0 * (inside[:, 0, :, None] & inside[:, 1, None, :])[..., None] - 1.0


def noise_loss(model, betas, key):
    images, times, noises = jax.random.split(key, 3)
    t = jax.random.randint(times, (16,), 0, TIMES)
    kept = jnp.cumprod(1 - betas)[t][:, None, None, None]
    noise = jax.random.normal(noises, (16, SIDE, SIDE, 1))
    noisy = jnp.sqrt(kept) * squares(images) + jnp.sqrt(1 - kept) * noise
    return ((denoised(model, noisy, t / TIMES) - noise) ** 2).mean()


@quick
def diffusion_step(state):
    draw, changes = next_key(state)
    model = weights_of(state)
    loss, grads = jax.value_and_grad(noise_loss)(model, state.betas, draw)
    model, optimizer = optimised(state, grads, optax.adam(0.003), TORCH_ADAM)
    if hasattr(state, "average"):
        params = optax.incremental_update(model, state.average.params, 1 - state.average.decay)
        changes |= {"params": model, "average": state.average.replace(params=params)}
        changes |= {"step": state.step + 1}
    else:
        ema = optax.incremental_update(model, state.ema, 1 - state.ema_decay)
        changes |= {"model": model, "ema": ema, "global_step": state.global_step + 1}
    return state.replace(**changes, **optimizer), loss


def first_diffusion():
    classes, draw = schema("diffusion_unet", 1), normals(0)

    def conv(n_in, n_out):
        return classes.Conv(
            weight=draw(n_out, n_in, 3, 3, scale=(9 * n_in) ** -0.5), bias=jnp.zeros(n_out)
        )

    def dense(n_in, n_out):
        return classes.Linear(weight=draw(n_out, n_in, scale=n_in**-0.5), bias=jnp.zeros(n_out))

    def norm(width):
        return classes.Norm(weight=jnp.ones(width), bias=jnp.zeros(width))

    def block(n_in, n_out):
        return classes.ResBlock(
            norm1=norm(n_in),
            conv1=conv(n_in, n_out),
            emb=dense(4 * CHANNELS, n_out),
            norm2=norm(n_out),
            conv2=conv(n_out, n_out),
            skip=None if n_in == n_out else dense(n_in, n_out),
        )

    wide = 2 * CHANNELS
    model = classes.UNet(
        time1=dense(CHANNELS, 4 * CHANNELS),
        time2=dense(4 * CHANNELS, 4 * CHANNELS),
        conv_in=conv(1, CHANNELS),
        down=block(CHANNELS, CHANNELS),
        middle1=block(CHANNELS, wide),
        attention=classes.Attention(
            norm=norm(wide), qkv=dense(wide, 3 * wide), out=dense(wide, wide)
        ),
        middle2=block(wide, CHANNELS),
        up=block(wide, CHANNELS),
        norm_out=norm(CHANNELS),
        conv_out=conv(CHANNELS, 1),
    )
    return classes.DiffusionState(
        model=model,
        ema=model,
        ema_decay=0.9,
        betas=jnp.linspace(0.001, 0.3, TIMES),
        global_step=zero(),
        rng=random_words(),
        **first_adam(TORCH_ADAM, model),
    )


@pytest.mark.slow
def test_diffusion_unet(tmp_path):
    first = first_diffusion()
    old, losses = run(diffusion_step, first, 40)
    assert losses[-10:].mean() < 0.7 * losses[:5].mean()
    key = jax.random.key(9)
    averaged, plain = (noise_loss(m, old.betas, key) for m in (old.ema, first.model))
    assert averaged < plain  # the average has followed the weights
    check_training("diffusion_unet", diffusion_step, old, tmp_path)


# ---------------------------------------------------------------------------------------------------------------------
# The agent learns to balance a pole.

ENVS, STEPS, EPOCHS = 16, 64, 4


def pole_moved(env, action):
    """One step of 20 ms of the cart and the pole, as in Barto, Sutton and Anderson (1983)."""
    _, speed, angle, angular_speed = env.T
    force = jnp.where(action == 1, 10.0, -10.0)
    pushed = (force + 0.05 * angular_speed**2 * jnp.sin(angle)) / 1.1
    turned = (9.8 * jnp.sin(angle) - jnp.cos(angle) * pushed) / (
        0.5 * (4 / 3 - 0.1 * jnp.cos(angle) ** 2 / 1.1)
    )
    pulled = pushed - 0.05 * turned * jnp.cos(angle) / 1.1
    moves = (speed, pulled, angular_speed, turned)
    env = jnp.stack([x + 0.02 * dx for x, dx in zip(env.T, moves, strict=True)], axis=1)
    return env, (abs(env[:, 0]) > 2.4) | (abs(env[:, 2]) > 0.21)


def answer(network, x):
    if hasattr(network, "first"):
        layers = [
            (each.kernel, each.bias) for each in (network.first, network.second, network.head)
        ]
    else:
        layers = [(getattr(network, f"w{n}"), getattr(network, f"b{n}")) for n in range(3)]
    for kernel, bias in layers[:-1]:
        x = jnp.tanh(x @ kernel + bias)
    return x @ layers[-1][0] + layers[-1][1]


def played(params, scaled, env, time, key):
    """Plays in all environments; returns their state, and everything seen."""

    def play(carry, key):
        env, time = carry
        act, start = jax.random.split(key)
        seen = scaled(env)
        logits = jax.nn.log_softmax(answer(params.actor, seen))
        action = jax.random.categorical(act, logits)
        chance = jnp.take_along_axis(logits, action[:, None], 1)[:, 0]
        moved_env, fell = pole_moved(env, action)
        done = fell | (time >= 200)
        fresh = jax.random.uniform(start, env.shape, minval=-0.05, maxval=0.05)
        after = jnp.where(done[:, None], fresh, moved_env), jnp.where(done, 0, time + 1)
        return after, (env, seen, action, chance, done, time + 1)

    return jax.lax.scan(play, (env, time), jax.random.split(key, STEPS))


def advantages_of(values, last, done, gamma, weight):
    def back(carry, step):
        ahead, following = carry
        value, done = step
        error = 1.0 + gamma * following * (1 - done) - value
        advantage = error + gamma * weight * (1 - done) * ahead
        return (advantage, value), advantage

    return jax.lax.scan(back, (jnp.zeros_like(last), last), (values, done), reverse=True)[1]


def environment_of(state):
    """Environments, statistics and settings, in the layout of version 1."""
    if hasattr(state, "statistics"):
        env, seen, rule = state.env, state.statistics, state.settings
        numbers = jnp.stack([env.position, env.speed, env.angle, env.angular_speed], axis=1)
        return numbers, env.time, (seen.mean, seen.variance, seen.count), rule
    seen = state.obs_mean, state.obs_var, state.obs_count
    return state.env, state.env_time, seen, state


def environment_fields(state, env, time, seen):
    """The inverse of :func:`environment_of`."""
    if hasattr(state, "statistics"):
        position, speed, angle, angular_speed = env.T
        pole = state.env.replace(
            position=position, speed=speed, angle=angle, angular_speed=angular_speed, time=time
        )
        statistics = dict(zip(("mean", "variance", "count"), seen, strict=True))
        return {"env": pole, "statistics": state.statistics.replace(**statistics)}
    names = ("obs_mean", "obs_var", "obs_count")
    return {"env": env, "env_time": time, **dict(zip(names, seen, strict=True))}


@quick
def agent_step(state):
    draw, keys = next_key(state)
    env, time, (mean, variance, count), rule = environment_of(state)

    def scaled(x):
        return (x - mean) / jnp.sqrt(variance + 1e-4)

    (env, time), (raw, seen, action, chance, done, lengths) = played(
        state.params, scaled, env, time, draw
    )
    values = answer(state.params.critic, seen)[..., 0]
    last = answer(state.params.critic, scaled(env))[..., 0]
    gained = advantages_of(values, last, done, rule.gamma, rule.gae_lambda)
    goal, gained = gained + values, (gained - gained.mean()) / (gained.std() + 1e-6)

    def loss(params):
        logits = jax.nn.log_softmax(answer(params.actor, seen))
        ratio = jnp.exp(jnp.take_along_axis(logits, action[..., None], -1)[..., 0] - chance)
        clipped = jnp.clip(ratio, 1 - rule.clip, 1 + rule.clip)
        policy = -jnp.minimum(ratio * gained, clipped * gained).mean()
        critic = answer(params.critic, seen)[..., 0]
        return policy + 0.005 * ((critic - goal) ** 2).mean()

    for _ in range(EPOCHS):
        params, optimizer = optimised(state, jax.grad(loss)(state.params), optax.adam(0.01), ADAM)
        state = state.replace(params=params, **optimizer)
    flat = raw.reshape(-1, 4)
    total = count + len(flat)
    shift = flat.mean(0) - mean
    spread = variance * count + flat.var(0) * len(flat) + shift**2 * count * len(flat) / total
    statistics = mean + shift * len(flat) / total, spread / total, total
    fields = environment_fields(state, env, time, statistics)
    length = (lengths * done).sum() / jnp.maximum(done.sum(), 1)
    return state.replace(iteration=state.iteration + 1, **fields, **keys), length


def first_agent():
    classes, draw = schema("ppo_agent", 1), normals(0)

    def network(n_out):
        return classes.Network(
            w0=draw(4, 16),
            b0=jnp.zeros(16),
            w1=draw(16, 16),
            b1=jnp.zeros(16),
            w2=draw(16, n_out, scale=0.01),
            b2=jnp.zeros(n_out),
        )

    params = classes.Params(actor=network(2), critic=network(1))
    return classes.AgentState(
        params=params,
        obs_mean=jnp.zeros(4),
        obs_var=jnp.ones(4),
        obs_count=jnp.ones(()),
        env=draw(ENVS, 4, scale=0.02),
        env_time=jnp.zeros(ENVS, jnp.int32),
        iteration=zero(),
        rng=random_words(),
        returns=jnp.zeros(0),
        **first_adam(ADAM, params),
    )


@pytest.mark.slow
def test_ppo_agent(tmp_path):
    state, lengths = run(agent_step, first_agent(), 20)
    after = check_training("ppo_agent", agent_step, state.replace(returns=lengths), tmp_path)
    assert after.mean() > 1.5 * lengths[:3].mean()
