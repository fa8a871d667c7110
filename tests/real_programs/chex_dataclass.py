"""A simulation whose state is a dataclass of chex."""

import chex
import jax
import jax.numpy as jnp

import neuralqx_struct as s  # +


@chex.dataclass
class Body:
    position: chex.Array
    velocity: chex.Array


@chex.dataclass
class World:
    bodies: Body
    key: chex.PRNGKey
    time: chex.Array


def create():
    first, key = jax.random.split(jax.random.key(0))
    bodies = Body(position=jax.random.normal(first, (5, 2)), velocity=jnp.zeros((5, 2)))
    return World(bodies=bodies, key=key, time=jnp.zeros((), "int32"))


@jax.jit
def advance(world):
    key, draw = jax.random.split(world.key)
    noise = 0.01 * jax.random.normal(draw, (5, 2))
    velocity = world.bodies.velocity - 0.1 * world.bodies.position + noise
    bodies = Body(position=world.bodies.position + 0.1 * velocity, velocity=velocity)
    return world.replace(bodies=bodies, key=key, time=world.time + 1)


def main(until):
    world = create()
    run = s.Series("run", keep_last=2)  # +
    if run.latest() is not None:  # +
        world = run.load("latest", like=world)  # +
    while world.time < until:
        world = advance(world)
        run.save(world.time, world)  # +
    return world, world.bodies.position


CHANGED = "a field is added, with a default"
EDITS = {
    "    time: chex.Array\n": "    time: chex.Array\n    drag: float = 0.0\n",
    "velocity=velocity)": "velocity=(1.0 - world.drag) * velocity)",
}
