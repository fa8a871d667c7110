"""neuralqx_struct.params: the document that it follows as tests, then saving, filters and misuse."""

import copy
import functools
import pickle
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from neuralqx_struct import checkpoint
from neuralqx_struct.checkpoint.jax_export import paths_from_bytes, register_jax_export
from neuralqx_struct.errors import SerializationError, StructError, ValidationError
from neuralqx_struct.fieldspec import field
from neuralqx_struct.filters import FilterError, PathContains, WithTag
from neuralqx_struct.params import Metadata, Param, Params, ParamsError
from neuralqx_struct.params.modules import Graph, GraphError, Module, Rng
from neuralqx_struct.paths import format_path
from neuralqx_struct.struct import Struct
from neuralqx_struct.tools.inspection import inspect
from neuralqx_struct.trees import merge, partition, split
from tests.builders import refused

normal = jax.nn.initializers.normal(0.1)
zeros = jax.nn.initializers.zeros


class Linear(Module):
    def __init__(self, graph, size, rng=None):
        super().__init__(graph, rng)
        self.size = size

    def __call__(self, params, x):
        kernel, params = self.get_param(params, "kernel", (x.shape[-1], self.size), normal)
        bias, params = self.get_param(params, "bias", (self.size,), zeros)
        return x @ kernel + bias, params


class MLP(Module):
    def __init__(self, graph, hidden_size, output_size, rng=None):
        super().__init__(graph, rng)
        self.hidden = Linear(graph.child("hidden"), hidden_size, rng)
        self.output = Linear(graph.child("output"), output_size, rng)

    def __call__(self, params, x):
        x, params = self.hidden(params, x)
        return self.output(params, jax.nn.tanh(x))


class Dropout(Module):
    def __init__(self, graph, rate, rng):
        super().__init__(graph, rng)
        self.rate = rate

    def __call__(self, params, x, is_training):
        if not is_training:
            return x, params
        key, params = self.rng(params)
        return jnp.where(jax.random.bernoulli(key, self.rate, x.shape), 0.0, x), params


class Mean(Module):
    def __call__(self, params, x):
        mean, params = self.get_param(params, "mean", (), zeros, trainable=False)
        return x, self.set_param(params, "mean", 0.9 * mean + 0.1 * jnp.mean(x))


def net():
    graph = Graph("net")
    rng = Rng(graph.child("rng"))
    return graph, rng, MLP(graph.child("mlp"), hidden_size=5, output_size=2, rng=rng)


def initialised(model, rng, x):
    params = rng.seed(Params(), seed=42)
    _, params = model(params, x)
    return params.locked()


# --- Graph ---------------------------------------------------------------------------------------------------------


def test_a_graph_gives_paths_as_tuples_of_any_characters():
    graph = Graph("net")
    node = graph.child("mlp") / "dense/1 ü"
    assert node.path == ("net", "mlp", "dense/1 ü")
    assert (node.name, node.parent.name, node.root is graph, graph.root is graph) == (
        "dense/1 ü",
        "mlp",
        True,
        True,
    )
    assert graph.parent is None
    assert list(graph.children) == ["mlp"]


def test_walk_gives_all_descendant_modules_with_their_paths():
    graph, rng, model = net()
    assert dict(graph.walk()) == {
        ("net", "rng"): rng,
        ("net", "mlp"): model,
        ("net", "mlp", "hidden"): model.hidden,
        ("net", "mlp", "output"): model.output,
    }
    assert [path for path, _ in model.graph.walk()] == [
        ("net", "mlp", "hidden"),
        ("net", "mlp", "output"),
    ]


def test_nodes_carry_metadata_and_cannot_be_changed():
    node = Graph("net", metadata={"a": 1}).child("x", metadata={"role": "head"})
    assert node.metadata == {"role": "head"}
    assert node.root.metadata == {"a": 1}
    with pytest.raises(TypeError):
        node.metadata["role"] = "tail"
    with pytest.raises(AttributeError):
        node.name = "y"
    with pytest.raises(AttributeError):
        node.extra = 1


def test_nodes_are_compared_by_identity():
    assert Graph("net") != Graph("net")
    assert len({Graph("net"), Graph("net")}) == 2


def test_a_duplicate_child_is_refused_with_its_path():
    graph = Graph("net")
    graph.child("mlp").child("a")
    with refused(ValueError, "NQX118", "$['net']['mlp']"):
        graph / "mlp"


@pytest.mark.parametrize("name", ["", 3, None, ("a",)])
def test_names_are_text(name):
    with refused(GraphError, "NQX118", "$['net']"):
        Graph("net").child(name)
    with refused(GraphError, "NQX118"):
        Graph(name)


@pytest.mark.parametrize(
    "duplicate", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))]
)
def test_models_copy_and_pickle_with_their_graphs(duplicate):
    graph, rng, model = net()
    again = duplicate((graph, rng, model))
    params = initialised(model, rng, jnp.ones((1, 3)))
    assert again[2].graph.root is again[0] is not graph
    assert [path for path, _ in again[0].walk()] == [path for path, _ in graph.walk()]
    assert initialised(again[2], again[1], jnp.ones((1, 3))) == params
    with refused(GraphError, "NQX118", "$['net']['mlp']"):
        again[0].child("mlp")


def test_modules_cannot_bind_to_a_root():
    with refused(ValueError, "NQX118", "$['net']", "Module"):
        Module(Graph("net"))


def test_modules_cannot_bind_twice():
    _, rng, _ = net()
    with refused(ValueError, "NQX118", "$['net']['rng']", "Mean", "Rng"):
        Mean(rng.graph)


def test_a_module_that_has_not_called_its_base_says_so():
    class Forgetful(Module):
        def __init__(self, graph, size):
            self.size = size

    forgetful = Forgetful(Graph("net") / "m", 3)
    with refused(ValueError, "NQX118", "Forgetful", "super().__init__(graph)"):
        forgetful.get_param(Params(), "w", (), normal)
    with pytest.raises(AttributeError, match="'grape'"):
        forgetful.grape


def test_modules_bind_to_graphs_only():
    with refused(GraphError, "NQX118", "Graph", "str"):
        Module("net")


def test_reprs_say_where_things_are():
    _, _, model = net()
    assert (repr(model.hidden.graph), repr(model.hidden)) == (
        "Graph('net/mlp/hidden')",
        "Linear('net/mlp/hidden')",
    )


# --- Params --------------------------------------------------------------------------------------------------------


def sample():
    return Params(
        {
            ("net", "b"): Param(jnp.ones(2), metadata={"sharding": ("model",)}),
            ("net", "a", "kernel"): Param(jnp.zeros((2, 3))),
            ("net", "a"): Param(jnp.int32(1), trainable=False),
            ("net", "rng", "seed"): Param(jax.random.key(0), trainable=False),
        }
    )


SORTED = [("net", "a"), ("net", "a", "kernel"), ("net", "b"), ("net", "rng", "seed")]


def test_params_are_a_mapping_in_sorted_order():
    params = sample()
    assert list(params) == list(params.keys()) == [path for path, _ in params.items()] == SORTED
    assert [p.trainable for p in params.values()] == [False, True, True, False]
    assert len(params) == 4
    assert ("net", "b") in params
    assert ("net",) not in params
    assert "net" not in params
    assert params[("net", "b")].value.tolist() == [1.0, 1.0]
    assert params.get(("net", "x")) is None
    assert not Params()
    assert isinstance(params, Mapping)
    assert not isinstance({}, Params)
    assert dict(params).keys() == set(SORTED)


def test_params_flatten_in_sorted_path_order_with_readable_keys():
    paths = [
        jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_flatten_with_path(sample())[0]
    ]
    assert paths == [
        ".tree['net']['a'][''].value",
        ".tree['net']['a']['kernel'].value",
        ".tree['net']['b'].value",
        ".tree['net']['rng']['seed'].value",
    ]


def test_the_order_of_insertion_does_not_matter():
    forwards, backwards = Params(), Params()
    for path, param in sample().items():
        forwards = forwards.set(path, param)
    for path, param in reversed(sample().items()):
        backwards = backwards.set(path, param)
    assert forwards == backwards == sample()
    assert hash(forwards) == hash(backwards)
    assert jax.tree.structure(forwards) == jax.tree.structure(backwards)


def test_set_changes_a_copy():
    params = sample()
    changed = params.set(("net", "b"), Param(0.0)).set(("net", "rng"), Param(1))
    assert changed[("net", "b")].value == 0.0
    assert changed[("net", "rng")].value == 1
    assert ("net", "rng", "seed") in changed
    assert params == sample()


def test_params_do_not_change_with_the_dict_they_were_made_from():
    entries = {"net": {"w": Param(1)}}
    params = Params(entries)
    entries["net"]["v"] = Param(2)
    assert list(params) == [("net", "w")]


def test_a_missing_path_is_a_key_error_that_suggests_one():
    with refused(KeyError, "NQX414", "$['net']['a']['kernal']", "net/a/kernel") as caught:
        sample()[("net", "a", "kernal")]
    assert isinstance(caught.value, StructError)
    with refused(ParamsError, "NQX414", "$['net']"):
        sample()["net"]


def test_locked_params_refuse_new_paths_and_take_new_values():
    params = sample().locked()
    assert params.is_locked
    assert not params.unlocked().is_locked
    assert params.set(("net", "b"), Param(2.0)).is_locked
    with refused(KeyError, "NQX414", "$['net']['c']"):
        params.set(("net", "c"), Param(2.0))
    assert ("net", "c") in params.unlocked().set(("net", "c"), Param(2.0))


@pytest.mark.parametrize("path", [(), "net", ("net", 3), ("net", ""), None])
def test_what_is_no_path_is_refused(path):
    with refused(ValidationError, "NQX411"):
        Params().set(path, Param(1.0))


@pytest.mark.parametrize("value", [1.0, {}, None])
def test_what_is_no_param_is_refused(value):
    with refused(ValidationError, "NQX411", "$['net']['w']", "Param"):
        Params().set(("net", "w"), value)


def test_all_wrong_entries_are_told_at_once():
    with pytest.raises(ValidationError) as caught:
        Params({("a",): 1, ("b", 3): Param(1), "c": {"d": None, "e": Param(1)}})
    assert {d.path for d in caught.value.diagnostics} == {"$['a']", "$['b'][3]", "$['c']['d']"}
    with refused(ValidationError, "NQX416", "Params"):
        Params([Param(1)])


def test_split_separates_trainable_from_non_trainable_state():
    trainable, other = sample().locked().split()
    assert list(trainable) == [("net", "a", "kernel"), ("net", "b")]
    assert list(other) == [("net", "a"), ("net", "rng", "seed")]
    assert trainable.is_locked
    assert other.is_locked
    assert trainable.merge(other) == sample().locked()


def test_split_takes_filters():
    kernels, rest = sample().split(PathContains("kernel"), ...)
    assert list(kernels) == [("net", "a", "kernel")]
    assert len(rest) == 3
    tagged = Params({("w",): Param(1, metadata={"tags": ["big"]}), ("v",): Param(2)})
    assert [list(group) for group in tagged.split("big", ...)] == [[("w",)], [("v",)]]
    assert sample().split(PathContains("kernel")) == (kernels, rest), "one filter makes two groups"
    assert [len(group) for group in sample().split(...)] == [4, 0]
    assert [len(group) for group in sample().split(PathContains("rng"), "trainable", ...)] == [
        1,
        2,
        1,
    ]
    with refused(FilterError, "NQX428", "$['net']['a']", "Param"):
        sample().split(PathContains("kernel"), PathContains("b"))


def test_merge_overrides_or_refuses():
    first = Params({("a",): Param(1), ("b",): Param(2)})
    second = Params({("b",): Param(3), ("c",): Param(4)})
    assert {path[0]: p.value for path, p in first.merge(second).items()} == {"a": 1, "b": 3, "c": 4}
    with refused(FilterError, "NQX429", "$['b']"):
        first.merge(second, on_conflict="error")
    assert first.merge(Params({("c",): Param(4)}), on_conflict="error")[("c",)].value == 4
    with refused(ValueError, "on_conflict=", "'keep'"):
        first.merge(second, on_conflict="keep")
    with refused(TypeError, "merge()", "Params"):
        first.merge({})
    with refused(ValueError, "merge()", "other.locked()"):
        first.locked().merge(second)


def test_merge_takes_nothing_away_where_a_filter_left_holes():
    params = sample()
    for tag in ("trainable", PathContains("rng")):
        kept, rest = partition(params, tag)
        assert (
            kept.merge(rest) == rest.merge(kept) == kept.merge(rest, on_conflict="error") == params
        )
        assert params.merge(kept) == params


names = st.text(min_size=1, max_size=2)
states = st.dictionaries(
    st.lists(names, min_size=1, max_size=3).map(tuple),
    st.builds(Param, st.integers(), st.booleans()),
    max_size=8,
)


@given(states)
def test_params_hold_what_was_put_in(entries):
    params = Params(entries)
    assert dict(params) == entries
    assert list(params) == sorted(entries)
    assert jax.tree.leaves(params) == [entries[path].value for path in sorted(entries)]
    assert Params(params.tree) == Params(params) == params
    assert jax.tree.map(lambda x: x, params) == params


@given(states)
def test_split_and_merge_are_inverse(entries):
    params = Params(entries)
    trainable, other = params.split()
    assert all(p.trainable for p in trainable.values())
    assert not any(p.trainable for p in other.values())
    assert trainable.merge(other, on_conflict="error") == params
    assert jax.tree.structure(trainable.merge(other)) == jax.tree.structure(params)


@given(states, states)
def test_merge_is_the_union_of_dicts(first, second):
    assert dict(Params(first).merge(Params(second))) == first | second


def test_params_show_paths_shapes_and_lock():
    assert repr(Params()) == "Params(unlocked)"
    text = repr(sample().locked())
    assert "    net/a/kernel: float32[2, 3]" in text
    assert "net/rng/seed: key<fry>[] (frozen)" in text
    assert text.endswith("locked)")


def test_params_and_parts_copy_and_pickle():
    params = Params({("a",): Param(1, metadata={"n": 1})}).locked()
    assert copy.deepcopy(params) == pickle.loads(pickle.dumps(params)) == params


# --- Param ---------------------------------------------------------------------------------------------------------


def test_metadata_is_a_canonical_hashable_mapping():
    metadata = Metadata({"sharding": ["model", None], "a": {"b": {1, 2}}})
    assert metadata["sharding"] == ("model", None)
    assert metadata["a"] == {"b": frozenset({1, 2})}
    assert list(metadata) == ["a", "sharding"]
    assert metadata == {"a": {"b": {1, 2}}, "sharding": ("model", None)}
    assert hash(metadata) == hash(Metadata(reversed(list(metadata.items()))))
    assert Metadata({"n": 1}) != Metadata({"n": True})
    assert Metadata({"n": float("nan")}) == Metadata({"n": float("nan")})
    assert Metadata() != 3
    assert repr(Metadata({"n": 1})) == "{'n': 1}"


def test_metadata_refuses_what_has_no_hash():
    with pytest.raises(ValidationError) as caught:
        Metadata({"a": np.ones(2), "b": bytearray(), 3: 1})
    assert [d.path for d in caught.value.diagnostics] == [
        "metadata['a']",
        "metadata['b']",
        "metadata[3]",
    ]


def test_trainable_and_metadata_are_part_of_the_cache_key():
    traces = []

    @jax.jit
    def f(param):
        traces.append(param.metadata.get("n"))
        return param.value

    for n in (1, 1, True, 2):
        f(Param(1.0, metadata={"n": n}))
    assert traces == [1, True, 2]


def test_sharding_reads_metadata():
    assert Param(1.0).sharding == ()
    assert Param(1.0, metadata={"sharding": P("model")}).sharding == P("model")


def test_trainable_is_a_truth_value_and_metadata_may_be_none():
    with refused(ValidationError, "NQX411", "Param.trainable"):
        Param(1.0, trainable="no")
    assert Param(1.0, trainable=np.bool_(False), metadata=None) == Param(1.0, trainable=False)


# --- Modules -------------------------------------------------------------------------------------------------------


def test_the_first_call_creates_and_later_calls_use():
    _, rng, model = net()
    params = rng.seed(Params(), seed=42)
    first, params = model(params, jnp.ones((1, 3)))
    assert [path[2:] for path in params if path[1] == "mlp"] == [
        ("hidden", "bias"),
        ("hidden", "kernel"),
        ("output", "bias"),
        ("output", "kernel"),
    ]
    second, again = model(params, jnp.ones((1, 3)))
    assert (first == second).all()
    assert again == params
    assert int(rng.get_counter(params)) == 2, "constants draw no key"


def test_get_param_takes_dtype_trainable_and_metadata():
    graph, rng, _ = net()
    module = Module(graph / "m")
    value, params = module.get_param(
        rng.seed(Params(), 0),
        "w",
        (2,),
        normal,
        jnp.bfloat16,
        trainable=False,
        metadata={"sharding": ("x",)},
    )
    assert value.dtype == jnp.bfloat16
    param = params[("net", "m", "w")]
    assert (param.trainable, param.sharding) == (False, ("x",))


def test_locked_params_refuse_accidental_creation():
    _, rng, model = net()
    params = rng.seed(Params(), seed=42).locked()
    with refused(KeyError, "NQX414", "$['net']['mlp']['hidden']['kernel']"):
        model(params, jnp.ones((1, 3)))


def test_a_parameter_of_another_shape_is_refused():
    _, rng, model = net()
    params = initialised(model, rng, jnp.ones((1, 3)))
    with refused(ValidationError, "NQX412", "[4, 5]", "float32[3, 5]"):
        model(params, jnp.ones((1, 4)))


def test_set_param_updates_state_that_is_there():
    graph, rng, _ = net()
    mean = Mean(graph / "mean")
    _, params = mean(rng.seed(Params(), 0), jnp.ones(4))
    assert params[("net", "mean", "mean")].value == pytest.approx(0.1)
    with refused(KeyError, "NQX414", "$['net']['mean']['variance']"):
        mean.set_param(params, "variance", 1.0)


def test_set_param_freezes_and_notes():
    graph, rng, _ = net()
    module = Module(graph / "m", rng)
    _, params = module.get_param(rng.seed(Params(), 0), "w", (), zeros, metadata={"a": 1})
    params = module.set_param(params, "w", trainable=False, metadata={"tag": "lora"})
    param = params[module.param_path("w")]
    assert (param.value, param.trainable, param.metadata) == (0.0, False, {"a": 1, "tag": "lora"})
    with refused(ValueError, "['w']"):
        module.set_param(params, "w")


def test_without_exactly_one_rng_none_is_guessed():
    graph = Graph("net")
    module = Module(graph / "m")
    with refused(ParamsError, "NQX414", "Rng", 0) as caught:
        module.get_param(Params(), "w", (), normal)
    assert isinstance(caught.value.__cause__, TypeError)
    value, params = module.get_param(Params(), "w", (), zeros)
    assert (value, list(params)) == (0.0, [("net", "m", "w")]), "a constant needs no key"
    first, second = Rng(graph / "first"), Rng(graph / "second")
    with refused(ParamsError, "NQX414", "$['net']['m']['w']", "2"):
        module.get_param(first.seed(Params(), 0), "w", (), normal)
    module.rng = second
    _, params = module.get_param(second.seed(Params(), 0), "w", (), normal)
    assert int(second.get_counter(params)) == 1
    _, params = module.get_param(
        first.seed(params, 0), "v", (), zeros, rng=first
    )  # an Rng that is named is used
    assert (int(first.get_counter(params)), int(second.get_counter(params))) == (1, 1)


def test_the_error_of_an_initialiser_is_its_own():
    graph, rng, _ = net()
    with pytest.raises(TypeError, match="mine"):
        Module(graph / "m").get_param(rng.seed(Params(), 0), "w", (), lambda *_: jnp.zeros("mine"))


def test_a_parameter_that_is_there_needs_no_shape():
    graph, rng, _ = net()
    module = Module(graph / "m", rng)
    with refused(KeyError, "NQX414", "$['net']['m']['w']"):
        module.get_param(rng.seed(Params(), 0), "w")
    value, params = module.get_param(rng.seed(Params(), 0), "w", (2,), normal)
    again, same = module.get_param(params.locked(), "w")
    assert again is value
    assert same == params.locked()


# --- Rng -----------------------------------------------------------------------------------------------------------


def test_keys_are_folded_from_seed_and_counter():
    _, rng, _ = net()
    params = rng.seed(Params(), seed=42)
    first, params = rng(params)
    second, params = rng(params)
    expected = [jax.random.fold_in(jax.random.key(42), n) for n in (0, 1)]
    assert [jax.random.key_data(k).tolist() for k in (first, second)] == [
        jax.random.key_data(k).tolist() for k in expected
    ]
    assert int(rng.get_counter(params)) == 2


def test_the_seed_must_be_set_first():
    _, rng, _ = net()
    for use in (rng, rng.get_seed, rng.get_counter):
        with refused(KeyError, "NQX414", "$['net']['rng']"):
            use(Params())


@pytest.mark.parametrize("seed", [7, np.int64(7), jnp.uint32(7), jax.random.key(7)])
def test_seeds_are_integers_or_keys(seed):
    _, rng, _ = net()
    assert jax.random.key_data(rng.get_seed(rng.seed(Params(), seed))).tolist() == [0, 7]


@pytest.mark.parametrize("seed", [1.5, "x", True, np.zeros(2, np.uint32)])
def test_other_seeds_are_refused(seed):
    _, rng, _ = net()
    with refused(ValidationError, "NQX420", "$['net']['rng']['seed']"):
        rng.seed(Params(), seed)


def test_seeding_again_goes_on_counting():
    _, rng, _ = net()
    _, params = rng(rng.seed(Params(), 0))
    assert int(rng.get_counter(rng.seed(params.locked(), 1))) == 1


def test_the_counter_can_be_set():
    _, rng, _ = net()
    params = rng.seed(Params(), 0, counter=5)
    assert int(rng.get_counter(params)) == 5
    assert int(rng.get_counter(rng.seed(params, counter=2))) == 2
    for error in (KeyError, ValueError):
        with refused(error, "NQX414", "$['net']['rng']['seed']"):
            rng.seed(Params(), counter=2)
        with refused(error, "NQX414", "$['net']['rng']['seed']"):
            rng.seed(params)


def folded(rng, dropout, params, x, index):
    original_seed = rng.get_seed(params)
    params = rng.seed(params, seed=jax.random.fold_in(original_seed, index))
    out, params = dropout(params, x, is_training=True)
    return out, rng.seed(params, seed=original_seed)


@pytest.fixture
def dropping():
    graph = Graph("net")
    rng = Rng(graph.child("rng"))
    return rng, Dropout(graph.child("dropout"), 0.5, rng), rng.seed(Params(), seed=42).locked()


def test_vmap_lanes_draw_the_same_by_default(dropping):
    _, dropout, params = dropping
    out, _ = jax.vmap(lambda p, x: dropout(p, x, is_training=True), in_axes=(None, 0))(
        params, jnp.ones((4, 32))
    )
    assert (out == out[0]).all()


def test_vmap_with_an_explicit_index_draws_differently_and_keeps_params_replicated(dropping):
    rng, dropout, params = dropping
    apply = jax.vmap(
        functools.partial(folded, rng, dropout), in_axes=(None, 0, 0), out_axes=(0, None)
    )
    x = jnp.ones((4, 32))
    first, params = apply(params, x, jnp.arange(4))
    second, params = apply(params, x, jnp.arange(4))
    rows = np.concatenate([first, second])
    assert len(np.unique(rows, axis=0)) == 8, "neither lanes nor steps repeat each other"
    assert int(rng.get_counter(params)) == 2
    assert (
        jax.random.key_data(rng.get_seed(params)) == jax.random.key_data(jax.random.key(42))
    ).all()


def test_vmap_with_axis_index_draws_differently(dropping):
    rng, dropout, params = dropping

    def apply(params, x):
        return folded(rng, dropout, params, x, jax.lax.axis_index("batch"))

    out, _ = jax.vmap(apply, in_axes=(None, 0), axis_name="batch")(params, jnp.ones((4, 32)))
    assert len(np.unique(np.asarray(out), axis=0)) == 4


# --- training ------------------------------------------------------------------------------------------------------


def test_the_training_pattern_lowers_the_loss_and_advances_the_other_state():
    graph = Graph("net")
    rng = Rng(graph / "rng")
    mlp = MLP(graph / "mlp", 8, 1, rng)
    dropout = Dropout(graph / "dropout", 0.1, rng)

    def model(params, inputs):
        hidden, params = dropout(params, inputs, is_training=True)
        return mlp(params, hidden)

    @functools.partial(jax.jit, donate_argnames="params")
    def train_step(params, inputs, targets):
        trainable, non_trainable = params.split()

        def loss_fn(t, nt):
            preds, new_params = model(t.merge(nt), inputs)
            _, new_nt = new_params.split()
            return jnp.mean((preds - targets) ** 2), new_nt

        (loss, new_non_trainable), grads = jax.value_and_grad(loss_fn, has_aux=True)(
            trainable, non_trainable
        )
        new_trainable = jax.tree.map(lambda w, g: w - 0.05 * g, trainable, grads)
        return loss, new_trainable.merge(new_non_trainable)

    x = jax.random.normal(jax.random.key(1), (16, 3))
    y = x.sum(axis=1, keepdims=True)
    params = initialised(model, rng, x)
    before = int(rng.get_counter(params))
    losses = []
    for _ in range(30):
        loss, params = train_step(params, x, y)
        losses.append(float(loss))
    assert np.mean(losses[-5:]) < 0.5 * np.mean(losses[:5])
    assert int(rng.get_counter(params)) == before + 30
    assert train_step._cache_size() == 1
    assert params.is_locked


def test_gradients_have_the_structure_of_the_trainable_params():
    _, rng, model = net()
    trainable, other = initialised(model, rng, jnp.ones((1, 3))).split()
    grads = jax.grad(lambda t: model(t.merge(other), jnp.ones((1, 3)))[0].sum())(trainable)
    assert jax.tree.structure(grads) == jax.tree.structure(trainable)
    assert grads[("net", "mlp", "output", "bias")].value.tolist() == [1.0, 1.0]


def test_two_models_share_the_same_params():
    def create(*, is_static):
        graph = Graph("model")
        rng = Rng(graph.child("rng"))
        cell = Linear(graph.child("cell"), 3, rng)

        def apply(params, h, steps=4):
            if is_static:
                for _ in range(steps):
                    h, params = cell(params, h)
                return h, params
            params = cell(params, h)[1]
            return jax.lax.scan(lambda h, _: (cell(params, h)[0], None), h, length=steps)[0], params

        return rng, apply

    rng, looped = create(is_static=True)
    _, scanned = create(is_static=False)
    _, params = looped(rng.seed(Params(), 0), jnp.ones(3))
    params = params.locked()
    np.testing.assert_allclose(
        looped(params, jnp.ones(3))[0], scanned(params, jnp.ones(3))[0], rtol=1e-6
    )


def test_checkpointing_of_activations_works():
    _, rng, model = net()
    params = initialised(model, rng, jnp.ones((1, 3)))
    trainable, other = params.split()

    def loss(t, wrap):
        return wrap(lambda t: model(t.merge(other), jnp.ones((1, 3)))[0].sum())(t)

    plain, kept = (jax.grad(loss)(trainable, wrap) for wrap in (lambda f: f, jax.checkpoint))
    assert jax.tree.all(jax.tree.map(jnp.allclose, plain, kept))


def test_structure_without_memory_and_initialisation_with_shardings():
    graph = Graph("net")
    rng = Rng(graph / "rng")
    module = Module(graph / "m", rng)

    def init():
        params = rng.seed(Params(), seed=42)
        _, params = module.get_param(
            params, "w", (8, 2), normal, metadata={"sharding": ("model", None)}
        )
        return params.locked()

    abstract = jax.eval_shape(init)
    assert isinstance(abstract[("net", "m", "w")].value, jax.ShapeDtypeStruct)
    mesh = jax.make_mesh((4,), ("model",), axis_types=(jax.sharding.AxisType.Auto,))
    shardings = jax.tree.map(
        lambda p: NamedSharding(mesh, P(*(p.sharding or ()))),
        abstract,
        is_leaf=lambda x: isinstance(x, Param),
    )
    params = jax.jit(init, out_shardings=shardings)()
    assert params[("net", "m", "w")].value.sharding.spec == P("model", None)
    assert len(params[("net", "m", "w")].value.addressable_shards) == 4
    assert params[("net", "rng", "counter")].value.sharding.is_fully_replicated


# --- as a pytree ---------------------------------------------------------------------------------------------------


@pytest.fixture
def odd():
    """Paths of several lengths, one the beginning of another, and a value that is a tree itself."""
    return Params(
        {
            ("net", "a"): Param(1.0),
            ("net", "a", "b/c"): Param({"x": 2.0, "y": (3.0,)}, metadata={"tag": "lora"}),
            ("net", "a%2Fb"): Param(4.0, trainable=False),
            ("net", "a/b"): Param(5.0),
        }
    ).locked()


ODD_KEYS = [
    ".tree['net']['a'][''].value",
    ".tree['net']['a']['b/c'].value['x']",
    ".tree['net']['a']['b/c'].value['y'][0]",
    ".tree['net']['a%2Fb'].value",
    ".tree['net']['a/b'].value",
]


def test_keys_are_printed_as_the_nested_dicts_would_be(odd):
    pairs, structure = jax.tree_util.tree_flatten_with_path(odd)
    assert [jax.tree_util.keystr(path) for path, _ in pairs] == ODD_KEYS
    assert len(dict(pairs)) == 5, "no two keys are equal"
    assert structure == jax.tree.structure(odd)
    simple = [jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in pairs]
    assert simple == [
        "tree/net/a//value",
        "tree/net/a/b%2Fc/value/x",
        "tree/net/a/b%2Fc/value/y/0",
        "tree/net/a%252Fb/value",
        "tree/net/a%2Fb/value",
    ]
    named = jax.tree_util.tree_map_with_path(lambda path, _: jax.tree_util.keystr(path), odd)
    assert jax.tree.leaves(named) == ODD_KEYS


def test_jax_visits_two_nodes_for_a_parameter_however_deep_it_stands():
    names = [f"layer{i}" for i in range(20)]
    params = Params({(*names[:depth], "w"): Param(1.0) for depth in range(20)})
    assert jax.tree.structure(params).num_nodes == 2 + 2 * len(params)
    again = jax.tree.map(lambda x: x, params)
    assert again.tree.pair[1] is params.tree.pair[1], "a tree with other leaves shares the paths"


def test_filters_see_every_name_of_a_path(odd):
    definition, chosen, rest = split({"model": odd}, PathContains("b/c"), ...)
    assert [*chosen] == [
        ("model", "tree", "net", "a", "b/c", "value", "x"),
        ("model", "tree", "net", "a", "b/c", "value", "y", 0),
    ]
    assert merge(definition, chosen, rest) == {"model": odd}
    assert [format_path(path)[1:] for path in [*split(odd, ...)[1]]] == ODD_KEYS


@pytest.mark.parametrize(
    "leaf", [None, object(), 3, jax.ShapeDtypeStruct((2,), jnp.float32), P("model")]
)
def test_anything_may_stand_for_a_leaf(odd, leaf):
    leaves, structure = jax.tree.flatten(odd)
    other = structure.unflatten([leaf] * len(leaves))
    assert list(other) == list(odd)
    assert other[("net", "a/b")].value is leaf
    assert other.is_locked
    assert jax.tree.leaves(other, is_leaf=lambda x: x is leaf) == [leaf] * 5
    assert jax.tree.structure(other, is_leaf=lambda x: x is leaf) == structure


def test_params_of_something_else_than_parameters(odd):
    marks = jax.tree.map(lambda param: P(*param.tags), odd, is_leaf=lambda x: isinstance(x, Param))
    assert marks[("net", "a/b")] == P("trainable")
    assert pickle.loads(pickle.dumps(marks)) == copy.deepcopy(marks) == marks
    assert list(
        jax.tree.map(lambda mark, param: mark, marks, odd, is_leaf=lambda x: isinstance(x, P))
    ) == list(odd)


def test_what_makes_a_structure_another_one(odd):
    structure = jax.tree.structure(odd)
    path = ("net", "a/b")
    assert jax.tree.structure(odd.set(path, Param(0.0))) == structure
    assert hash(jax.tree.structure(odd.set(path, Param(0.0)))) == hash(structure)
    others = [
        odd.unlocked(),
        odd.set(path, Param(5.0, trainable=False)),
        odd.set(path, Param(5.0, metadata={"n": 1})),
        odd.set(path, Param(5.0, metadata={"n": True})),
        odd.unlocked().set(("net", "new"), Param(5.0)).locked(),
        odd.split(lambda path, _: path[-1] != "a", ...)[0],
    ]
    structures = [structure, *map(jax.tree.structure, others)]
    assert all((a == b) == (a is b) for a in structures for b in structures)


def test_params_go_through_every_transformation():
    params = Params(
        {("a", "w"): Param(jnp.arange(4.0)), ("a",): Param(jnp.ones(4), trainable=False)}
    )

    def total(params):
        return sum(jnp.sum(param.value**2) for param in params.values())

    def twice(params, _=None):
        return jax.tree.map(lambda x: 2 * x, params)

    mesh = jax.make_mesh((4,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    doubled = twice(params)
    ways = [
        jax.jit(twice)(params),
        jax.grad(total)(params),
        jax.vmap(twice)(params),
        jax.pmap(twice)(params),
        jax.shard_map(twice, mesh=mesh, in_specs=P("d"), out_specs=P("d"))(params),
        jax.lax.scan(lambda carry, _: (twice(carry), None), params, length=1)[0],
        jax.lax.cond(True, twice, lambda params: params, params),
        jax.jvp(twice, (params,), (params,))[1],
        jax.vjp(twice, params)[1](params)[0],
        jax.device_get(doubled),
    ]
    for way in ways:
        assert jax.tree.structure(way) == jax.tree.structure(params)
        assert jax.tree.map(np.asarray, way) == jax.tree.map(np.asarray, doubled)
    axes = {("a", "w"): Param(0), ("a",): Param(None, trainable=False)}
    assert jax.vmap(total, in_axes=(Params(axes),))(params).shape == (4,)


def test_what_does_not_match_is_told_by_its_path():
    params = Params({("net", "w"): Param(jnp.ones(4)), ("net", "b"): Param(jnp.ones(3))})
    with pytest.raises(ValueError, match=r"\['net'\]\['w'\]"):
        jax.vmap(lambda params: params)(params)


def test_functions_of_params_can_be_exported():
    class Wide(Params):
        label: str = field(static=True, default="x")

    for cls in (Param, Wide):
        register_jax_export(cls, name=f"test.{cls.__name__}")
    params = Wide(
        {("a",): Param(jnp.ones(2)), ("a", "b"): Param(jnp.ones(3), metadata={"n": 1})}
    ).locked()
    exported = jax.export.export(jax.jit(lambda params: jax.tree.map(lambda x: 2 * x, params)))(
        params
    )
    again = jax.export.deserialize(exported.serialize())
    doubled = again.call(params)
    assert type(doubled) is Wide
    assert doubled == jax.tree.map(lambda x: 2 * x, params)


@pytest.mark.parametrize(
    "data",
    [b"", b"[3]", b'["a"]', b'[["a"], ["a", 3]]', b'{"a": 1}', b'[["b"], ["a"]]', b"[" * 10**5],
)
def test_paths_of_an_exported_function_are_checked(data):
    assert paths_from_bytes(b'[["a"], ["a", "b"]]') == (("a",), ("a", "b"))
    with refused(SerializationError, "NQX401", "PathTree"):
        paths_from_bytes(data)


def test_optimisers_take_params_as_they_are(odd):
    def is_param(x):
        return isinstance(x, Param)

    params = jax.tree.map(lambda x: jnp.full(3, x), odd)
    trainable, _ = params.split()
    ones = jax.tree.map(jnp.ones_like, trainable)
    by_tag = jax.tree.map(
        lambda p: "lora" if "lora" in p.tags else "rest", trainable, is_leaf=is_param
    )
    by_path = jax.tree_util.tree_map_with_path(
        lambda path, _: "lora" if "['b/c']" in jax.tree_util.keystr(path) else "rest", trainable
    )
    for labels in (by_tag, by_path):
        optimiser = optax.multi_transform(
            {"lora": optax.sgd(1.0), "rest": optax.set_to_zero()}, labels
        )
        updates, _ = optimiser.update(ones, optimiser.init(trainable), trainable)
        changed = optax.apply_updates(trainable, updates)
        assert [path for path in changed if changed[path] != trainable[path]] == [
            ("net", "a", "b/c")
        ]
    adam = optax.adam(0.1)
    updates, state = jax.jit(adam.update)(ones, adam.init(trainable))
    assert (
        jax.tree.structure(updates)
        == jax.tree.structure(state[0].mu)
        == jax.tree.structure(trainable)
    )


def test_orbax_saves_params_by_itself(odd, tmp_path):
    params = jax.tree.map(lambda x: jnp.full(3, x), odd)
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "orbax", params)
        checkpointer.wait_until_finished()
        assert checkpointer.restore(tmp_path / "orbax", params) == params


def test_a_subclass_may_have_fields_of_its_own(tmp_path):
    class Counted(Params):
        step: int = 0
        label: str = field(static=True, default="x")

    params = Counted({("a",): Param(1.0)}, step=3, label="y")
    made = [params.locked(), *params.split(), params.merge(params), params.set(("b",), Param(2.0))]
    assert {(type(p), p.step, p.label) for p in made} == {(Counted, 3, "y")}
    assert repr(params).startswith("Counted(")
    assert Counted.load(params.export(tmp_path / "ckpt")) == params


def test_the_tree_reads_as_nested_dicts(odd):
    plain = {
        "net": {
            "a": {"": odd[("net", "a")], "b/c": odd[("net", "a", "b/c")]},
            "a%2Fb": odd[("net", "a%2Fb")],
        }
    }
    plain["net"]["a/b"] = odd[("net", "a/b")]
    assert odd.tree == plain
    assert Params(plain) == Params(odd.tree) == odd.unlocked()
    assert Params(odd.tree["net"]["a"]["b/c"].replace(value=odd.tree).value) == odd.unlocked()
    assert checkpoint.to_state_dict({"x": odd.tree}) == checkpoint.to_state_dict({"x": plain})
    assert odd.to_dict(recursive=True)["tree"]["net"]["a/b"]["value"] == 5.0
    with refused(ValidationError, "NQX411", "()"):
        Params(odd.tree["net"]["a"])
    with pytest.raises(TypeError):
        odd.tree["net"]["a"]["b/c"] = Param(0.0)


def test_pickles_with_nested_dicts_are_read(odd):
    make, (cls, fields) = odd.__reduce__()
    assert (
        make(cls, {**fields, "tree": {"net": {"a": Param(1)}}})
        == Params({("net", "a"): Param(1)}).locked()
    )


def test_files_do_not_tell_in_which_order_parameters_were_made(odd):
    backwards = Params()
    for path, param in reversed(odd.items()):
        backwards = backwards.set(path, param)
    assert checkpoint.to_state_dict(backwards.locked()) == checkpoint.to_state_dict(odd)


# --- saving --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "metadata",
    [{}, {"sharding": ("model", None), "n": 1.5}, {"sharding": P("model", None), "a": {}}],
)
def test_params_are_saved_and_loaded_like_any_struct(tmp_path, metadata):
    params = sample().set(("net", "b"), Param(jnp.ones(2), metadata=metadata)).locked()
    path = params.export(tmp_path / "ckpt")
    assert Params.load(path) == params
    assert checkpoint.load(path)[("net", "b")].metadata == metadata


def test_arrays_are_named_by_their_paths():
    state = checkpoint.to_state_dict(sample())
    assert "tree/net/a/kernel/value" in state["arrays"]


def test_params_are_loaded_by_filter_and_abstractly(tmp_path):
    path = sample().export(tmp_path / "ckpt")
    some = checkpoint.load(path, select=PathContains("kernel"))
    assert some[("net", "a", "kernel")].value.shape == (2, 3)
    assert some[("net", "b")].value is None
    assert checkpoint.load(path, abstract=True)[("net", "b")].value == jax.ShapeDtypeStruct(
        (2,), jnp.float32
    )


def adapters():
    frozen = {
        ("net", "enc", "w"): Param(jnp.ones((2, 3)), trainable=False),
        ("net", "enc", "b"): Param(jnp.ones(3), False),
    }
    lora = Param(
        jnp.ones((2, 1)),
        metadata={"tag": "lora", "tags": ["adapter", "small"], "sharding": P("model")},
    )
    return Params(
        {**frozen, ("net", "enc", "down"): lora, ("net", "head"): Param(jnp.ones(2))}
    ).locked()


TAGGED = [
    ("trainable", [("net", "enc", "down"), ("net", "head")]),
    ("lora", [("net", "enc", "down")]),
    ("adapter", [("net", "enc", "down")]),
]


@pytest.mark.parametrize(("tag", "paths"), TAGGED)
def test_filters_see_the_tags_of_parameters_everywhere(tag, paths, tmp_path):
    params = adapters()
    assert list(params.split(tag, ...)[0]) == paths
    definition, chosen, rest = split({"model": params, "step": 1}, tag, ...)
    assert [path[2:-1] for path in chosen] == paths
    assert merge(definition, chosen, rest)["model"] == params
    kept, _ = partition(params, tag)
    assert [path for path, param in kept.items() if param.value is not None] == paths
    bundle = checkpoint.export({"model": params}, tmp_path / "ckpt")
    part = checkpoint.load(bundle, select=f"tag:{tag}")["model"]
    assert [path for path, param in part.items() if param.value is not None] == paths
    rows = inspect(bundle, f"tag:{tag} & path:**/value").rows
    assert [row.path for row in rows] == [
        f"$['model'].tree{format_path(path)[1:]}.value" for path in paths
    ]


def test_inspect_shows_the_tags_of_parameters(tmp_path):
    rows = {row.path: row.tags for row in inspect(adapters().export(tmp_path / "ckpt")).rows}
    assert rows["$.tree['net']['enc']['down'].value"] == ("adapter", "lora", "small", "trainable")
    assert rows["$.tree['net']['enc']['w'].value"] == ()
    assert rows["$.tree['net']['enc']['down'].trainable"] == ()


def test_tags_of_fields_and_of_parameters_add_up():
    class State(Struct):
        params: Params = field(metadata={"tags": ["model"]})

    _, lora, model = split(State(adapters()), WithTag("lora") & WithTag("model"), "model")
    assert (len(lora), len(model)) == (1, 3)


def test_a_partial_load_changes_only_what_was_selected(tmp_path):
    path = adapters().export(tmp_path / "ckpt")
    fresh = jax.tree.map(jnp.zeros_like, adapters())
    both = fresh.merge(Params.load(path, select="path:**/enc/**"))
    assert {path: float(param.value.sum()) for path, param in both.items()} == {
        ("net", "enc", "b"): 3.0,
        ("net", "enc", "down"): 2.0,
        ("net", "enc", "w"): 6.0,
        ("net", "head"): 0.0,
    }


def test_params_inside_a_struct_are_saved():
    state = checkpoint.to_state_dict({"params": sample(), "step": 3})
    assert checkpoint.from_state_dict(state) == {"params": sample(), "step": 3}


def test_stored_params_are_checked_on_the_way_in():
    state = checkpoint.to_state_dict(Params({("a", "b"): Param(1.0)}))
    state["manifest"]["fields"]["tree"]["items"][0][1]["items"][0][1] = 7
    with refused(SerializationError, "NQX411", "$['a']['b']", "Param"):
        checkpoint.from_state_dict(state)


def test_stored_metadata_is_checked_on_the_way_in():
    state = checkpoint.to_state_dict(Metadata({"a": 1}))
    state["manifest"]["payload"] = 7
    with refused(SerializationError, "NQX401", "Metadata", "items", "partition_specs"):
        checkpoint.from_state_dict(state)


def test_shardings_that_name_devices_cannot_be_saved():
    mesh = jax.make_mesh((1,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    with refused(SerializationError, "NQX430", "$.metadata['items']['sharding']", "NamedSharding"):
        checkpoint.to_state_dict(Param(1.0, metadata={"sharding": NamedSharding(mesh, P())}))


def test_a_path_that_is_given_twice_is_refused_and_not_dropped():
    with refused(ValidationError, "NQX411", "$['a']['b']", "Param"):
        Params({("a", "b"): Param(1), "a": {"b": Param(2)}})


def test_what_is_no_metadata_and_no_truth_is_told_with_what_to_write():
    with refused(ValidationError, "NQX411", "Param.metadata", "lora"):
        Param(1, metadata="lora")
    with refused(ValidationError, "NQX411", "Param.trainable", "'lora'", "tags"):
        Param(1, trainable="lora")
