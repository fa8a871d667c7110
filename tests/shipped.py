"""Shared by the tests of the schemas that ship: saving, loading and moving a state between versions."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

import neuralqx_struct as s
from tests.builders import ROOT
from tests.preloaded import check_jsonschema

#: Compiled in a hurry: these functions run a few dozen times.
quick = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


@functools.cache
def schema(name, version=2):
    return s.load_schema(ROOT / "schemas" / name).at(version)


def check_with_others_tools(bundle):
    """What a tool that knows only the published JSON Schema says of a manifest."""
    published = ROOT / "schemas" / "manifest" / "1.json"
    done = check_jsonschema("--schemafile", published, bundle / "manifest.json")
    assert done.returncode == 0, done.stdout + done.stderr


def identical(a, b):
    """Equal bit by bit, leaf types and structure included."""
    one, other = jax.tree.leaves(a), jax.tree.leaves(b)
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(one, other, strict=True):
        assert isinstance(x, jax.Array) == isinstance(y, jax.Array)
        if isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            x, y = jax.random.key_data(x), jax.random.key_data(y)
        assert np.asarray(x).dtype == np.asarray(y).dtype
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes()
    return True


def saved_and_loaded(state, bundle):
    state.export(bundle)
    assert s.validate(bundle) == []
    assert s.verify(bundle) == []
    loaded = type(state).load(bundle)
    assert type(loaded) is type(state)
    assert loaded == state
    assert identical(state, loaded)
    return loaded


def moved(bundle, out, name, to):
    """A bundle of another version; what it holds must be sound."""
    s.migrate(bundle, out, to=to, schema=ROOT / "schemas" / name)
    assert [found for found in s.validate(out) if found.severity != "info"] == []
    return schema(name, to).root.load(out)


def run(step, state, count):
    """Repeats a training step; returns the state and the losses."""
    losses = []
    for _ in range(count):
        state, loss = step(state)
        losses.append(loss)
    return state, jnp.asarray(losses)
