"""Params against those of jax-blox: the same models, paths, values, keys, splits and merges.

Their own layers run on our core, random sequences of operations end in the same state or the same error, and what differs
on purpose is said in the last test.
"""

import ast
import functools
import inspect
import re
import sys
import types

import blox
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import neuralqx_struct as s
from tests.builders import ROOT, every, refused

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
            b, params = self.get_param(
                params, "b", (self.size,), normal, jnp.bfloat16, rng=self.rng
            )
            return x @ w + b, params

    class Net(lib.Module):
        def __init__(self, graph, rng):
            super().__init__(graph)
            self.rng = rng
            self.first, self.second = (
                Dense(graph / "first", 4, rng),
                Dense(graph.child("second"), 2, rng),
            )

        def __call__(self, params, x):
            x, params = self.first(params, x)
            seen, params = self.get_param(
                params,
                "seen",
                (),
                jax.nn.initializers.zeros,
                jnp.int32,
                trainable=False,
                rng=self.rng,
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
    return str(array.dtype), array.astype(
        np.float64 if array.dtype.kind == "V" else array.dtype
    ).tolist()


@pytest.mark.parametrize("steps", [1, 3])
def test_the_same_model_has_the_same_paths_values_metadata_and_output(steps):
    ours, theirs = initialised(s, steps), initialised(blox, steps)
    assert entries(ours[1]) == entries(theirs[1])
    assert ours[0].tolist() == theirs[0].tolist()


def test_graphs_walk_alike():
    ours, theirs = (
        [(path, type(module).__name__) for path, module in library(lib)[0].walk()]
        for lib in (s, blox)
    )
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


@given(
    states,
    st.sampled_from([None, lambda path, p: "a" in path, lambda path, p: p.value > 4]),
    st.booleans(),
)
def test_splits_are_the_same(state, predicate, locked):
    ours, theirs = (
        built(lib, state, locked=locked).split(*[predicate] * (predicate is not None))
        for lib in (s, blox)
    )
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
    module = (
        lib.Module
        if lib is s
        else type("M", (lib.Module,), {"__call__": lambda self, params: (None, params)})
    )
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
        "no such parameter to set": lambda: module(graph / "m").set_param(
            lib.Params(), "w", jnp.ones(2)
        ),
        "nothing to set": lambda: _initialised_module(lib, module, graph, rng),
        "trainable": lambda: lib.Param(1.0, trainable="yes"),
        "metadata": lambda: lib.Param(1.0, metadata=[3]),
        "nothing to seed with": lambda: rng.seed(lib.Params()),
        "a counter without a seed": lambda: rng.seed(lib.Params(), counter=3),
        "neither seed nor counter": lambda: rng.seed(rng.seed(lib.Params(), seed=0)),
        "a seed for locked params": lambda: rng.seed(lib.Params().locked(), seed=0),
    }[what]


def _initialised_module(lib, module, graph, rng):
    m = module(graph / "m")
    _, params = m.get_param(rng.seed(lib.Params(), seed=0), "w", (), normal, rng=rng)
    m.set_param(params, "w", None)


@every(
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
        ("metadata", TypeError),
        ("nothing to seed with", ValueError),
        ("a counter without a seed", ValueError),
        ("neither seed nor counter", ValueError),
        ("a seed for locked params", KeyError),
    ],
)
def test_misuse_raises_the_same(what, error):
    for lib in (s, blox):
        with pytest.raises(error):
            misuse(lib, what)()


# --- random sequences of operations --------------------------------------------------------------------------------

NAMES = st.sampled_from("wvu")
VALUES = st.integers(0, 9)
PREDICATES = {
    "by name": lambda path, param: path[-1] < "v",
    "by module": lambda path, param: "first" in path,
    "by tag": lambda path, param: param.metadata.get("tag") == "x",
    "none": lambda path, param: False,
}
WAYS = {
    "map": lambda params: jax.tree.map(lambda leaf: leaf, params),
    "jit": jax.jit(lambda params: params),
    "flatten": lambda params: jax.tree.unflatten(*jax.tree.flatten(params)[::-1]),
}
NOTED = st.none() | st.dictionaries(
    st.sampled_from(["tag", "sharding"]), st.sampled_from(["x", "y"])
)


def outcome(operation):
    """What an operation gives, or the error that it raises."""
    try:
        return operation(), None
    except (KeyError, ValueError, TypeError) as error:
        return None, error


class Sides(RuleBasedStateMachine):
    """The same operations on both libraries, each on what the one before has left."""

    def __init__(self):
        super().__init__()
        self.libs = (s, blox)
        self.held = []
        for lib in self.libs:
            graph = lib.Graph("net")
            made = type("M", (lib.Module,), {"__call__": lambda self, params: (None, params)})
            modules = {
                "first": made(graph / "first"),
                "second": made(graph.child("second") / "deep"),
            }
            self.held.append(
                {
                    "rng": lib.Rng(graph / "rng"),
                    "params": lib.Params(),
                    "kept": lib.Params(),
                    **modules,
                }
            )

    def do(self, operation):
        """Apply ``operation(lib, held, params) -> (value, params)`` to both, which must agree in value or in error."""
        ours, theirs = (
            outcome(lambda: operation(lib, held, held["params"]))
            for lib, held in zip(self.libs, self.held)
        )
        if theirs[1] is not None:
            assert isinstance(ours[1], type(theirs[1])), (ours, theirs)
            return
        assert ours[1] is None, (ours[1], theirs[0])
        assert _plain(ours[0][0]) == _plain(theirs[0][0])
        for held, (_, params) in zip(self.held, (ours[0], theirs[0]), strict=True):
            held["params"] = params

    @initialize(seeded=st.booleans())
    def start(self, seeded):
        for held in self.held if seeded else ():
            held["params"] = held["rng"].seed(held["params"], seed=42)

    @rule(seed=st.none() | VALUES, counter=st.none() | VALUES)
    def seed(self, seed, counter):
        self.do(lambda lib, held, params: (0, held["rng"].seed(params, seed=seed, counter=counter)))

    @rule()
    def draw(self):
        self.do(lambda lib, held, params: held["rng"](params))

    @rule(
        module=st.sampled_from(["first", "second"]),
        name=NAMES,
        made=st.sampled_from([None, "zeros", "keyed zeros", "normal"]),
        trainable=st.booleans(),
        noted=NOTED,
    )
    def get_param(self, module, name, made, trainable, noted):
        init = normal if made == "normal" else jax.nn.initializers.zeros

        def get(lib, held, params):
            if made is None:
                return held[module].get_param(params, name)
            rng = None if made == "zeros" else held["rng"]
            return held[module].get_param(
                params, name, (2,), init, jnp.float32, trainable, noted, rng
            )

        self.do(get)

    @rule(
        module=st.sampled_from(["first", "second"]),
        name=NAMES,
        value=st.none() | VALUES,
        trainable=st.none() | st.booleans(),
        noted=NOTED,
    )
    def set_param(self, module, name, value, trainable, noted):
        array = None if value is None else jnp.full(2, float(value))
        self.do(
            lambda lib, held, params: (
                0,
                held[module].set_param(params, name, array, trainable, noted),
            )
        )

    @rule(locked=st.booleans())
    def lock(self, locked):
        self.do(lambda lib, held, params: (0, params.locked() if locked else params.unlocked()))

    @rule(kept=st.booleans())
    def keep_or_merge_what_was_kept(self, kept):
        for held in self.held if kept else ():
            held["kept"] = held["params"]
        self.do(lambda lib, held, params: (0, params.merge(held["kept"])))

    @rule(
        predicate=st.none() | st.sampled_from(sorted(PREDICATES)),
        swapped=st.booleans(),
        lost=st.booleans(),
    )
    def split_and_merge(self, predicate, swapped, lost):
        def regroup(lib, held, params):
            parts = params.split(*([] if predicate is None else [PREDICATES[predicate]]))
            first, second = reversed(parts) if swapped else parts
            return len(first), first if lost else first.merge(second)

        self.do(regroup)

    @rule(way=st.sampled_from(sorted(WAYS)))
    def go_through_jax(self, way):
        self.do(lambda lib, held, params: (0, WAYS[way](params)))

    @rule(
        path=st.sampled_from(
            [
                ("net", "first", "w"),
                ("net", "second", "deep", "v"),
                ("net", "rng", "seed"),
                ("net",),
            ]
        )
    )
    def look_up(self, path):
        self.do(lambda lib, held, params: (path in params, params))
        self.do(lambda lib, held, params: (params[path].value, params))

    @invariant()
    def hold_the_same(self):
        ours, theirs = (held["params"] for held in self.held)
        assert entries(ours) == entries(theirs)
        assert (len(ours), ours.is_locked, list(ours)) == (
            len(theirs),
            theirs.is_locked,
            sorted(theirs.keys()),
        )
        assert [*map(_plain, jax.tree.leaves(ours))] == [*map(_plain, jax.tree.leaves(theirs))]


Sides.TestCase.settings = settings(max_examples=30, stateful_step_count=20, deadline=None)
TestRandomSequences = Sides.TestCase


# --- their layers on our core --------------------------------------------------------------------------------------

CORE = ("Graph", "Module", "Param", "Params", "Rng")


@functools.cache
def their_layers():
    """The layers of jax-blox with the imported names of the core changed, and nothing else."""
    package, interfaces, layers = (
        types.ModuleType(f"ported{name}") for name in ("", ".interfaces", ".layers")
    )
    package.interfaces = interfaces
    sys.modules |= {module.__name__: module for module in (package, interfaces, layers)}
    vars(interfaces).update({name: getattr(s, name) for name in CORE})
    source = ast.parse(inspect.getsource(sys.modules["blox.interfaces"]))
    source.body = [
        part
        for part in source.body
        if not (isinstance(part, ast.ClassDef) and part.name in CORE)
        and not (isinstance(part, ast.Expr) and "register_pytree_node" in ast.unparse(part))
    ]
    exec(compile(source, "interfaces", "exec"), vars(interfaces))
    layers.__package__ = "ported"
    exec(compile(inspect.getsource(sys.modules["blox.blocks"]), "layers", "exec"), vars(layers))
    return layers


LAYERS = {
    "Linear": lambda b, g, rng: b.Linear(g, 3, rng, kernel_metadata={"sharding": (None, "model")}),
    "Embed": lambda b, g, rng: b.Embed(g, 5, 3, rng),
    "Sequential": lambda b, g, rng: b.Sequential(
        g, [b.Linear(g / "a", 4, rng), jnp.tanh, b.Linear(g / "b", 2, rng)]
    ),
    "Dropout": lambda b, g, rng: b.Dropout(g, 0.5, rng),
    "LayerNorm": lambda b, g, rng: b.LayerNorm(g),
    "RMSNorm": lambda b, g, rng: b.RMSNorm(g, rng=rng),
    "BatchNorm": lambda b, g, rng: b.BatchNorm(g),
    "Conv": lambda b, g, rng: b.Conv(g, 2, 3, rng),
    "ConvTranspose": lambda b, g, rng: b.ConvTranspose(g, 2, 3, rng),
    "LSTM, static": lambda b, g, rng: b.LSTM(g, 3, rng, is_static=True),
    "LSTM, dynamic": lambda b, g, rng: b.LSTM(g, 3, rng, is_static=False),
    "GRU": lambda b, g, rng: b.GRU(g, 3, rng),
}


@every("name", LAYERS)
def test_their_layers_run_on_our_core(name):
    x = (
        jnp.ones((2, 4), jnp.int32)
        if name == "Embed"
        else jax.random.normal(jax.random.key(1), (2, 6, 4))
    )
    results = []
    for lib, layers in ((s, their_layers()), (blox, blox)):
        graph = lib.Graph("net")
        rng = lib.Rng(graph / "rng")
        layer, last = (
            LAYERS[name](layers, graph / "layer", rng),
            layers.Linear(graph / "last", 2, rng),
        )
        apply = getattr(layer, "apply", layer)

        def step(params, x, apply=apply, last=last):
            out, params = apply(params, x)
            return last(params, jax.tree.leaves(out)[0].astype(jnp.float32))

        _, params = step(rng.seed(lib.Params(), seed=7), x)
        params = params.locked()
        trainable, rest = params.split()
        grads, (out, after) = jax.jit(
            jax.grad(lambda t, r, x: (lambda y: (y[0].sum(), y))(step(t.merge(r), x)), has_aux=True)
        )(trainable, rest, x)
        results.append(
            (
                [path for path, _ in graph.walk()],
                entries(params),
                entries(grads),
                entries(after),
                out.tolist(),
            )
        )
    assert results[0] == results[1]


# --- the guide -----------------------------------------------------------------------------------------------------


def public(thing):
    return [name for name in dir(thing) if not name.startswith("_")]


def test_the_guide_says_what_becomes_of_every_public_name():
    guide = (ROOT / "docs" / "from_blox.md").read_text()
    table = "\n".join(line.split("|")[1] for line in guide.splitlines() if line.startswith("| `"))
    said = set(re.findall(r"[A-Za-z_]\w*", table))
    names = [name for name in public(blox) if not inspect.ismodule(getattr(blox, name))]
    names += blox.__all__
    for kind in (*(getattr(blox, name) for name in CORE), blox.SequenceBase, blox.RecurrenceBase):
        names += public(kind) + list(inspect.signature(kind).parameters)
        for method in public(kind):
            if inspect.isfunction(function := getattr(kind, method)):
                names += list(inspect.signature(function).parameters)[1:]
    names += public(blox.Param(1.0)) + public(blox.Graph("x"))
    assert {name for name in names if name not in said} == set()


def test_every_public_method_of_the_core_is_here_under_its_name():
    renamed = {"tree_flatten", "tree_unflatten"}  # JAX's own: call jax.tree.flatten
    for name in CORE:
        theirs, ours = getattr(blox, name), getattr(s, name)
        known = {*public(ours), *getattr(ours, "__nqx_fields__", ())}
        missing = {*public(theirs)} - known - renamed
        assert not missing, name
        for method in set(public(theirs)) - renamed:
            if inspect.isfunction(function := getattr(theirs, method)):
                known = inspect.signature(getattr(ours, method)).parameters
                kinds = {parameter.kind for parameter in known.values()}
                if not {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD} & kinds:
                    assert (
                        list(inspect.signature(function).parameters)
                        == list(known)[: len(inspect.signature(function).parameters)]
                    ), (name, method)


def test_what_differs_on_purpose():
    theirs, ours = blox.Params(), s.Params()
    theirs[("w",)] = blox.Param(jnp.ones(2))
    with pytest.raises(TypeError):  # theirs can be changed in place
        ours[("w",)] = s.Param(jnp.ones(2))
    ours = ours.set(("w",), s.Param(jnp.ones(2)))
    # Theirs refuse every change once they are locked, ours only new paths.
    with pytest.raises(RuntimeError):
        theirs.locked()[("w",)] = blox.Param(jnp.ones(2))
    assert ours.locked().set(("w",), s.Param(jnp.zeros(2))).is_locked
    # A parameter of another shape than the model asks for is refused here.
    module = s.Module(s.Graph("net") / "m")
    with refused(TypeError, "NQX412", "$['net']['m']['w']"):
        module.get_param(
            s.Params({module.param_path("w"): s.Param(jnp.ones(2))}), "w", (3,), normal
        )
    # An initialiser that needs a key and was given none takes it from the one Rng of the graph.
    for lib in (s, blox):
        _, rng, _ = library(lib)
        free = type("Free", (lib.Module,), {"__call__": lambda self, params: (None, params)})(
            rng.graph.root / "free"
        )
        seeded = rng.seed(lib.Params(), seed=0)
        _, params = free.get_param(seeded, "b", (), jax.nn.initializers.zeros)
        assert int(rng.get_counter(params)) == 0, "constants need none, in both"
        if lib is blox:
            with pytest.raises(TypeError):
                free.get_param(seeded, "w", (), normal)
        else:
            assert int(rng.get_counter(free.get_param(seeded, "w", (), normal)[1])) == 1
