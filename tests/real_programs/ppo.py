"""An agent that learns by PPO to balance a pole, with the environments in its state."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

import neuralqx_struct as s  # +


class Rollout(NamedTuple):
    seen: jax.Array
    action: jax.Array
    log_prob: jax.Array
    reward: jax.Array
    done: jax.Array


class Agent(s.Struct, schema="lab.ppo", version=1):  # +
    params: dict
    opt_state: object
    poles: jax.Array
    key: jax.Array
    updates: int


OPTIMIZER = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(1e-3))


def logits_and_value(params, seen):
    hidden = jnp.tanh(seen @ params["hidden"])
    return hidden @ params["policy"], (hidden @ params["value"])[..., 0]


def create():
    keys = jax.random.split(jax.random.key(0), 4)
    shapes = {"hidden": (4, 16), "policy": (16, 2), "value": (16, 1)}
    pairs = zip(shapes.items(), keys, strict=False)
    params = {name: 0.3 * jax.random.normal(key, shape) for (name, shape), key in pairs}
    poles = jnp.zeros((8, 4))
    return Agent(
        params=params, opt_state=OPTIMIZER.init(params), poles=poles, key=keys[3], updates=0
    )


def push(poles, action, key):
    """One step of all poles; those that fell start again."""
    x, v, angle, turn = poles.T
    force = 2.0 * action - 1.0
    poles = jnp.stack([x + 0.1 * v, v + force, angle + 0.1 * turn, turn + angle - force], axis=1)
    done = (jnp.abs(poles[:, 2]) > 0.5) | (jnp.abs(poles[:, 0]) > 3.0)
    return jnp.where(done[:, None], 0.05 * jax.random.normal(key, (8, 4)), poles), done


def loss_of(params, rollout, returns, advantages):
    logits, value = logits_and_value(params, rollout.seen)
    chosen = jax.nn.log_softmax(logits)
    log_prob = jnp.take_along_axis(chosen, rollout.action[..., None], -1)[..., 0]
    ratio = jnp.exp(log_prob - rollout.log_prob)
    clipped = jnp.clip(ratio, 0.8, 1.2)
    policy = -jnp.minimum(ratio * advantages, clipped * advantages).mean()
    return policy + 0.5 * ((value - returns) ** 2).mean()


@jax.jit
def update(params, opt_state, poles, key):
    def act(carry, key):
        poles = carry
        draw, noise = jax.random.split(key)
        logits, _ = logits_and_value(params, poles)
        action = jax.random.categorical(draw, logits)
        log_prob = jnp.take_along_axis(jax.nn.log_softmax(logits), action[:, None], 1)[:, 0]
        after, done = push(poles, action, noise)
        return after, Rollout(poles, action, log_prob, 1.0 - done, done)

    key, draw = jax.random.split(key)
    poles, rollout = jax.lax.scan(act, poles, jax.random.split(draw, 16))
    _, last = logits_and_value(params, poles)
    _, value = logits_and_value(params, rollout.seen)

    def back(following, step):
        reward, done = step
        following = reward + 0.95 * following * (1.0 - done)
        return following, following

    _, returns = jax.lax.scan(back, last, (rollout.reward, rollout.done), reverse=True)
    for _ in range(3):
        gradient = jax.grad(loss_of)(params, rollout, returns, returns - value)
        updates, opt_state = OPTIMIZER.update(gradient, opt_state, params)
        params = optax.apply_updates(params, updates)
    return params, opt_state, poles, key, rollout.reward.mean()


def main(until):
    run = s.Series("run", keep_last=2, keep_best=("reward", "max"))  # +
    agent = create() if run.latest() is None else run.load(load_cls=Agent)  # +
    while agent.updates < until:
        params, opt_state, poles, key, reward = update(
            agent.params, agent.opt_state, agent.poles, agent.key
        )
        agent = agent.replace(
            params=params, opt_state=opt_state, poles=poles, key=key, updates=agent.updates + 1
        )
        run.save(agent.updates, agent, {"reward": reward})  # +
    return agent, logits_and_value(agent.params, jnp.ones((1, 4)))


CHANGED = "a field gets another name, one is added"
EDITS = {
    "class Agent(": """\
MIGRATION = s.steps.migration(  # +
    1, [s.steps.rename(field="poles", to="envs"), s.steps.add(field="episodes", default=0)]  # +
)  # +


class Agent(""",
    'schema="lab.ppo", version=1': 'schema="lab.ppo", version=2, migrations=[MIGRATION]',
    "    poles: jax.Array\n": "    envs: jax.Array\n    episodes: int\n",
    "poles=poles, key=keys[3], updates=0": "envs=poles, key=keys[3], updates=0, episodes=0",
    "agent.poles": "agent.envs",
    "poles=poles, key=key, updates": "envs=poles, key=key, updates",
}
