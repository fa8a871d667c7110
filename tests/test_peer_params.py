"""Params against those of jax-blox: the same models, paths, values, keys, splits and merges.

What differs on purpose is said in the last test.
"""

import blox
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import neuralqx_struct as s

normal = jax.nn.initializers.normal(0.5)


def library(lib):
    """The same little models, written once for both libraries."""

    class Dense(lib.Module):
        def __init__(self, graph, size, rng):
            super().__init__(graph)
            self.size, self.rng = size, rng

        def __call__(self, params, x):
            shape = (x.shape[-1], self.size)
            noted = {"sharding": (None, "model"), "tag": "weights"}
            w, params = self.get_param(params, "w", shape, normal, metadata=noted, rng=self.rng)
            b, params = self.get_param(params, "b", (self.size,), normal, jnp.bfloat16, rng=self.rng)
            return x @ w + b, params

    class Net(lib.Module):
        def __init__(self, graph, rng):
            super().__init__(graph)
            self.rng = rng
            self.first, self.second = Dense(graph / "first", 4, rng), Dense(graph.child("second"), 2, rng)

        def __call__(self, params, x):
            x, params = self.first(params, x)
            seen, params = self.get_param(
                params, "seen", (), jax.nn.initializers.zeros, jnp.int32, trainable=False, rng=self.rng
            )
            params = self.set_param(params, "seen", seen + 1)
            key, params = self.rng(params)
            return self.second(params, x + jax.random.normal(key, x.shape))

    graph = lib.Graph("net")
    rng = lib.Rng(graph / "rng")
    return graph, rng, Net(graph / "model", rng)


def initialised(lib, steps=1, seed=42):
    _, rng, model = library(lib)
    params = rng.seed(lib.Params(), seed=seed)
    for _ in range(steps):
        out, params = model(params, jnp.ones((3, 5)))
    return out, params.locked()


def entries(params):
    """What both libraries can be compared by; keys as their words."""
    return {
        path: (_plain(param.value), param.trainable, dict(param.metadata), param.sharding)
        for path, param in params.items()
    }


def _plain(value):
    key = hasattr(value, "dtype") and jnp.issubdtype(value.dtype, jax.dtypes.prng_key)
    array = np.asarray(jax.random.key_data(value) if key else value)
    return str(array.dtype), array.astype(np.float64 if array.dtype.kind == "V" else array.dtype).tolist()


@pytest.mark.parametrize("steps", [1, 3])
def test_the_same_model_has_the_same_paths_values_metadata_and_output(steps):
    ours, theirs = initialised(s, steps), initialised(blox, steps)
    assert entries(ours[1]) == entries(theirs[1])
    assert ours[0].tolist() == theirs[0].tolist()


def test_graphs_walk_alike():
    ours, theirs = ([(path, type(module).__name__) for path, module in library(lib)[0].walk()] for lib in (s, blox))
    assert ours == theirs


def test_leaves_come_in_the_same_order():
    ours, theirs = (map(_plain, jax.tree.leaves(initialised(lib)[1])) for lib in (s, blox))
    assert list(ours) == list(theirs)


@given(st.integers(0, 2**31 - 1), st.integers(0, 5), st.integers(0, 100))
def test_keys_are_the_same(seed, draws, counter):
    drawn = []
    for lib in (s, blox):
        _, rng, _ = library(lib)
        params = rng.seed(lib.Params(), seed=seed)
        params = rng.seed(params, counter=counter)
        keys = []
        for _ in range(draws):
            key, params = rng(params)
            keys.append(_plain(key))
        drawn.append((keys, int(rng.get_counter(params)), _plain(rng.get_seed(params))))
    assert drawn[0] == drawn[1]


paths = st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map(tuple)
states = st.dictionaries(paths, st.tuples(st.integers(0, 9), st.booleans()), max_size=6)


def built(lib, state, *, locked=False):
    params = lib.Params()
    for path, (value, trainable) in state.items():
        param = lib.Param(value, trainable=trainable)
        if lib is s:
            params = params.set(path, param)
        else:
            params[path] = param
    return params.locked() if locked else params


@given(states, st.sampled_from([None, lambda path, p: "a" in path, lambda path, p: p.value > 4]), st.booleans())
def test_splits_are_the_same(state, predicate, locked):
    ours = built(s, state, locked=locked).split(*([] if predicate is None else [predicate, ...]))
    theirs = built(blox, state, locked=locked).split(predicate)
    assert [entries(part) for part in ours] == [entries(part) for part in theirs]
    assert [part.is_locked for part in ours] == [part.is_locked for part in theirs]
    assert entries(ours[0].merge(ours[1])) == entries(theirs[0].merge(theirs[1]))


@given(states, states, st.booleans(), st.booleans())
def test_merges_are_the_same(first, second, one, other):
    merged = []
    for lib in (s, blox):
        try:
            params = built(lib, first, locked=one).merge(built(lib, second, locked=other))
        except ValueError:
            merged.append(ValueError)
        else:
            merged.append((entries(params), params.is_locked))
    assert merged[0] == merged[1]


@given(states, paths)
def test_lookups_are_the_same(state, path):
    found = []
    for lib in (s, blox):
        params = built(lib, state, locked=True)
        try:
            value = params[path].value
        except KeyError:
            value = KeyError
        found.append((value, path in params, len(params), sorted(params.keys())))
    assert found[0] == found[1]


def misuse(lib, what):
    graph = lib.Graph("net")
    rng = lib.Rng(graph / "rng")
    module = lib.Module if lib is s else type("M", (lib.Module,), {"__call__": lambda self, params: (None, params)})
    return {
        "a duplicate child": lambda: graph / "rng",
        "a root": lambda: module(graph),
        "a node that is bound": lambda: module(rng.graph),
        "an empty name": lambda: lib.Graph(""),
        "an Rng without seed": lambda: rng(lib.Params()),
        "a seed that was not set": lambda: rng.get_seed(lib.Params()),
        "no such parameter": lambda: module(graph / "m").get_param(lib.Params(), "w"),
        "locked": lambda: module(graph / "m").get_param(
            rng.seed(lib.Params(), seed=0).locked(), "w", (), normal, rng=rng
        ),
        "no such parameter to set": lambda: module(graph / "m").set_param(lib.Params(), "w", jnp.ones(2)),
        "nothing to set": lambda: _initialised_module(lib, module, graph, rng),
        "trainable": lambda: lib.Param(1.0, trainable="yes"),
    }[what]


def _initialised_module(lib, module, graph, rng):
    m = module(graph / "m")
    _, params = m.get_param(rng.seed(lib.Params(), seed=0), "w", (), normal, rng=rng)
    m.set_param(params, "w", None)


@pytest.mark.parametrize(
    ("what", "error"),
    [
        ("a duplicate child", ValueError),
        ("a root", ValueError),
        ("a node that is bound", ValueError),
        ("an empty name", ValueError),
        ("an Rng without seed", KeyError),
        ("a seed that was not set", KeyError),
        ("no such parameter", KeyError),
        ("locked", KeyError),
        ("no such parameter to set", KeyError),
        ("nothing to set", ValueError),
        ("trainable", TypeError),
    ],
)
def test_misuse_raises_the_same(what, error):
    for lib in (s, blox):
        with pytest.raises(error):
            misuse(lib, what)()


def test_what_differs_on_purpose():
    theirs, ours = blox.Params(), s.Params()
    theirs[("w",)] = blox.Param(jnp.ones(2))
    with pytest.raises(TypeError):  # theirs can be changed in place
        ours[("w",)] = s.Param(jnp.ones(2))
    ours = ours.set(("w",), s.Param(jnp.ones(2)))
    # A predicate that leaves parameters over is an error here: the rest is asked for with `...`.
    assert len(theirs.split(lambda path, p: False)[1]) == 1
    with pytest.raises(ValueError, match=r"\['w'\]"):
        ours.split(lambda path, p: False)
    # A parameter of another shape than the model asks for is refused here.
    module = s.Module(s.Graph("net") / "m")
    with pytest.raises(TypeError, match="expected shape"):
        module.get_param(s.Params({module.param_path("w"): s.Param(jnp.ones(2))}), "w", (3,), normal)
    # The default draws keys from the one Rng of the graph, as if each call said rng=.
    _, rng, _ = library(s)
    free = s.Module(rng.graph.root / "free")
    _, params = free.get_param(rng.seed(s.Params(), seed=0), "w", (), normal)
    assert int(rng.get_counter(params)) == 1
