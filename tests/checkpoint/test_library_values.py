"""Values of the libraries around JAX are saved as what they are, or refused with what to do instead."""

import argparse
import collections
import dataclasses
import functools
import inspect
import logging
import sys
from typing import Generic, TypeVar

import attrs
import equinox as eqx
import flax.core
import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pydantic
import pytest
from flax import nnx
from flax.training.train_state import TrainState
from jax.example_libraries import optimizers

import neuralqx_struct as s
from neuralqx_struct.trees import leaves_with_paths
from tests.builders import every, refused

T = TypeVar("T")


class Holder(s.Struct):
    v: object


class Net(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.Linear(2, 3, rngs=rngs)
        self.norm = nnx.BatchNorm(3, rngs=rngs)
        self.drop = nnx.Dropout(0.5, rngs=rngs)
        self.rest = nnx.List([nnx.Linear(3, 3, rngs=rngs)])

    def __call__(self, x):
        return self.rest[0](self.norm(self.first(x), use_running_average=True))


@flax.struct.dataclass
class Settings:
    w: jax.Array
    name: str = flax.struct.field(pytree_node=False, default="n")


class Dense(eqx.Module):
    w: jax.Array
    activation: object = eqx.field(static=True, default=jax.nn.gelu)


NET = Net(nnx.Rngs(0))
GRAPH, STATE = nnx.split(NET)
NORM, NORM_STATE = eqx.nn.make_with_state(eqx.nn.BatchNorm)(3, "b", mode="batch")
PARAMS = {"w": jnp.ones(3), "b": jnp.zeros((), jnp.bfloat16)}


class Box(eqx.Module, Generic[T]):
    held: T


def own(x):
    return x


@dataclasses.dataclass
class Made:
    code: object = dataclasses.field(default_factory=lambda: own)


class Sometimes(eqx.Module):
    w: jax.Array
    norm: eqx.nn.LayerNorm | None = None
    scale: float = eqx.field(static=True, default=1.0)

    def __init__(self, w, norm=None, scale=None):
        self.w = w
        if norm is not None:
            self.norm = norm
        if scale is not None:
            self.scale = scale


KEY = jax.random.key(0)
MODEL = eqx.nn.Linear(2, 2, key=KEY)
OPTIMISER = optax.chain(optax.clip(1.0), optax.adamw(1e-3), optax.ema(0.9))
VALUES = {
    "FrozenDict": flax.core.FrozenDict({"b": jnp.ones(2), "a": {"c": 2}}),
    "nnx state": STATE,
    "nnx variable": STATE["first"]["kernel"],
    "flax dataclass": Settings(jnp.ones(2), "x"),
    "linen partitioned": nn.Partitioned(jnp.ones(2), names=("a", None)),
    "equinox state": NORM_STATE,
    "equinox norm": NORM,
    "equinox module": Dense(jnp.ones(2)),
    "equinox mlp": eqx.nn.MLP(2, 2, 4, 1, final_activation=jax.nn.sigmoid, key=jax.random.key(0)),
    "optax": OPTIMISER.init(PARAMS),
    "optax with hyperparameters": optax.inject_hyperparams(optax.adam)(learning_rate=0.1).init(
        PARAMS
    ),
    "partial": jax.tree_util.Partial(jnp.multiply, jnp.ones(2), 3),
    "state of an optimiser of JAX": optimizers.adam(0.1)[0](PARAMS),
    "structure": jax.tree.structure({"a": (1, None), "model": MODEL, "struct": Holder(2)}),
}


@every("form", ["memory", "disk"])
@every("name", VALUES)
def test_it_comes_back_as_what_it_was(name, form, tmp_path):
    value = Holder(VALUES[name])
    again = (
        s.from_state_dict(s.to_state_dict(value))
        if form == "memory"
        else s.load(s.export(value, tmp_path / "ckpt"))
    )
    assert type(again.v) is type(value.v)
    assert jax.tree.structure(again) == jax.tree.structure(value)
    for ours, theirs in zip(jax.tree.leaves(again), jax.tree.leaves(value), strict=True):
        ours, theirs = (
            jax.random.key_data(x) if eqx.is_array(x) and "key" in str(x.dtype) else x
            for x in (ours, theirs)
        )
        assert type(ours) is type(theirs) and np.array_equal(ours, theirs)


def test_what_came_back_works(tmp_path):
    path = s.export(
        {"nnx": STATE, "opt": VALUES["optax"], "mlp": VALUES["equinox mlp"]}, tmp_path / "ckpt"
    )
    held = s.load(path)
    x = jnp.ones((1, 2))
    assert np.array_equal(nnx.merge(GRAPH, held["nnx"])(x), NET(x))
    assert np.array_equal(held["mlp"](x[0]), VALUES["equinox mlp"](x[0]))
    OPTIMISER.update(PARAMS, held["opt"], PARAMS)


class Keeper:
    def __init__(self):
        self.held = {"w": [np.ones(2)]}

    def read(self):
        return self.held


class Checked(pydantic.BaseModel):
    x: int


@jax.tree_util.register_pytree_node_class
class Exact:
    def __init__(self, w):
        self.w = w

    def tree_flatten(self):
        return (self.w,), None

    @classmethod
    def tree_unflatten(cls, _, children):
        return cls(*children) if hasattr(children[0], "shape") else children[0]


class Plain:
    def run(self): ...


DENSE = nn.Dense(3)
REFUSED = {
    "nnx module": (NET, "nnx.state"),
    "nnx random streams": (nnx.Rngs(0), "nnx.state"),
    "partial with arrays": (functools.partial(len, np.ones(2)), "tree_util.Partial"),
    "partial with a module": (functools.partial(len, x=[MODEL]), "tree_util.Partial"),
    "partial of a method with arrays": (functools.partial(MODEL.__call__), "tree_util.Partial"),
    "method of a module": (MODEL.__call__, "save the object"),
    "method of an object with arrays": (Keeper().read, "save the object"),
    "bound linen module": (DENSE.bind(DENSE.init(jax.random.key(0), np.ones((1, 2)))), ""),
    "partition": (jax.sharding.PartitionSpec("x"), "tuple(spec)"),
    "structure of what takes no 0": (jax.tree.structure(Exact(np.ones(2))), "a tree of that"),
    "random numbers": (np.random.default_rng(), "bit_generator.state"),
    "old random numbers": (np.random.RandomState(1), "get_state()"),
    "arguments": (argparse.Namespace(x=1), "vars(value)"),
    "settings of pydantic": (Checked(x=1), "model_dump()"),
    "attrs": (attrs.make_class("Attrs", ["x"])(1), "register_attrs_type"),
    "mapping": (collections.UserDict(a=1), "dict(value)"),
    "view": (memoryview(b"x"), "bytes(value)"),
    "reference": (jax.new_ref(jnp.ones(2)), "ref[...]"),
    "sharding": (jax.sharding.SingleDeviceSharding(jax.devices()[0]), "shardings="),
    "shape": (jax.ShapeDtypeStruct((2,), np.float32), "abstract=True"),
}


# Values that are no data, and their names in the manifest.
EXTERNAL = {
    "nnx graph": (GRAPH, "flax.nnx.graphlib:GraphDef"),
    "linen module": (nn.Dense(3), "flax.linen.linear:Dense"),
    "optimiser": (OPTIMISER, "optax._src.base:GradientTransformationExtraArgs"),
    "function": (own, f"{__name__}:own"),
    "lambda": (lambda x: x, f"{__name__}:<lambda>"),
    "jitted": (jax.jit(own), f"{__name__}:own"),
    "custom derivative": (jax.custom_jvp(own), f"{__name__}:own"),
    "bound method": (nn.Dense(3).apply, "flax.linen.module:Module.apply"),
    "method without arrays": (Plain().run, f"{__name__}:Plain.run"),
    "method of a builtin": ([].append, "builtins:list.append"),
    "partial": (functools.partial(own, 3), f"{__name__}:own"),
    "partial of keys without order": (functools.partial(own, {1: 2, "a": 3}), f"{__name__}:own"),
    "partial of an iterator": (functools.partial(own, iter([1])), f"{__name__}:own"),
    "several steps": (optax.MultiSteps(OPTIMISER, 2), "optax.transforms._accumulation:MultiSteps"),
    "signature": (inspect.signature(own), "inspect:Signature"),
    "place of a shared node": (eqx.nn._shared.SharedNode(), "equinox.nn._shared:SharedNode"),
    "class": (Holder, f"{__name__}:Holder"),
    "module": (np.linalg, "numpy.linalg"),
    "logger": (logging.getLogger("lab"), "logging:Logger"),
}


@every("name", EXTERNAL)
def test_code_is_saved_by_name_and_given_back_by_the_caller(name, tmp_path):
    value, shown = EXTERNAL[name]
    tree = {"code": [value], "w": np.ones(2)}
    path = s.export(tree, tmp_path / "ckpt")
    [node] = s.load(path, raw=True)["code"]
    assert node == shown and s.validate(path) == [] and shown in str(s.inspect(path))
    with refused(s.SerializationError, "NQX414", "$['code'][0]", "like=", shown):
        s.load(path)
    again = s.load(path, like=tree)
    assert again["code"][0] is value and np.array_equal(again["w"], [1, 1])
    assert s.load(path, select="path:w")["code"] == [None]


def test_a_train_state_of_flax_loads_like_a_new_one(tmp_path):
    def new():
        return TrainState.create(apply_fn=nn.Dense(1).apply, params=PARAMS, tx=OPTIMISER)

    old = new().apply_gradients(grads=PARAMS)
    fresh = new()
    again = s.load(s.export(old, tmp_path / "ckpt"), like=fresh)
    assert type(again) is TrainState and int(again.step) == 1
    assert again.tx is fresh.tx and again.apply_fn is fresh.apply_fn
    for ours, theirs in zip(jax.tree.leaves(again), jax.tree.leaves(old), strict=True):
        assert np.array_equal(ours, theirs)
    abstract = s.load(tmp_path / "ckpt", like=fresh, abstract=True)
    assert abstract.tx is fresh.tx and abstract.params["w"].shape == (3,)


def test_a_module_of_equinox_loads_like_a_new_one(tmp_path):
    model, fresh = (eqx.nn.MLP(2, 1, 8, 2, key=jax.random.key(seed)) for seed in (0, 1))
    again = s.load(s.export({"model": model}, tmp_path / "ckpt"), like={"model": fresh})
    assert np.array_equal(again["model"](jnp.ones(2)), model(jnp.ones(2)))
    assert again["model"].final_activation is fresh.final_activation


def test_wrapped_modules_and_shared_weights_load_like_new_ones(tmp_path):
    def new(seed):
        table, last = eqx.nn.Embedding(4, 2, key=jax.random.key(seed)), eqx.nn.Linear(2, 4, key=KEY)
        tied = eqx.nn.Shared(
            (table, last), lambda both: both[1].weight, lambda both: both[0].weight
        )
        layer = eqx.nn.Linear(2, 4, key=jax.random.key(seed))
        return tied, eqx.filter_jit(layer), eqx.filter_vmap(layer), Box[int](seed)

    model, fresh = new(0), new(1)
    again = s.load(s.export(model, tmp_path / "ckpt"), like=fresh)
    assert jax.tree.structure(again) == jax.tree.structure(fresh)
    tied, jitted, mapped, box = again
    assert np.array_equal(tied()[1].weight, model[0]()[0].weight)
    assert np.array_equal(jitted(jnp.ones(2)), model[1](jnp.ones(2)))
    assert np.array_equal(mapped(jnp.ones((1, 2))), model[2](jnp.ones((1, 2)))) and box.held == 0


@every("given", [{}, {"norm": eqx.nn.LayerNorm(2)}, {"scale": 1.0}, {"scale": 2.0}])
def test_a_module_that_sets_a_field_in_some_cases_loads_like_a_new_one(given, tmp_path):
    model, fresh = (Sometimes(jnp.full(2, seed), **given) for seed in (1.0, 0.0))
    again = s.load(s.export([model], tmp_path / "ckpt"), like=[fresh])
    assert jax.tree.structure(again) == jax.tree.structure([fresh])
    assert eqx.tree_equal(again, [model])


def test_code_in_auxiliary_data_is_that_of_like(tmp_path):
    model, fresh = (jax.tree_util.Partial(own, jnp.full(2, seed)) for seed in (1, 0))
    again = s.load(s.export([model], tmp_path / "ckpt"), like=[fresh])
    assert again[0].func is own and np.array_equal(again[0].args[0], [1, 1])


def test_code_of_a_field_with_a_factory_is_made_again(tmp_path):
    assert s.load(s.export(Made(), tmp_path / "ckpt")).code is own


def test_code_in_the_structure_of_a_tree_is_that_of_like(tmp_path):
    structure = jax.tree.structure(Dense(jnp.ones(2), own))
    again = s.load(s.export([structure], tmp_path / "ckpt"), like=[structure])
    assert again == [structure]


def test_a_bundle_without_the_code_of_a_module_loads_like_a_new_one(tmp_path):
    model, fresh = (eqx.nn.MLP(2, 1, 8, 2, key=jax.random.key(seed)) for seed in (0, 1))
    path = s.export({"model": eqx.filter(model, eqx.is_array)}, tmp_path / "ckpt")
    report = []
    again = s.load(path, like={"model": fresh}, report=report)
    assert np.array_equal(again["model"](jnp.ones(2)), model(jnp.ones(2)))
    assert [each.path for each in report if each.code == "NQX425"] == [
        "$['model'].activation",
        "$['model'].final_activation",
    ]
    with refused(s.SerializationError, "NQX411", "$['model']", "like="):
        s.load(path, like={"model": fresh, "more": fresh.activation})


class WithDefault(s.Struct):
    w: object
    loss: object = s.field(static=True, default=own)


@flax.struct.dataclass
class DataWithDefault:
    w: jax.Array
    loss: object = own


def test_code_may_be_a_default_or_filled_in(tmp_path):
    report = []
    path = WithDefault(jnp.ones(2), loss=len).export(tmp_path / "a")
    assert WithDefault.load(path, report=report).loss is own
    assert [(each.code, each.path) for each in report] == [("NQX425", "$.loss")]
    assert WithDefault.load(path, fill={"loss": max}).loss is max
    data = s.export(DataWithDefault(jnp.ones(2), len), tmp_path / "b")
    assert s.load(data).loss is own


def named(fields):
    """A namedtuple, a dataclass, one of JAX, one of Flax and a module of Equinox, with some fields."""
    body = {"__module__": __name__, "__qualname__": "Changing", "__annotations__": {}}
    for name, default in fields.items():
        body["__annotations__"][name] = object
        if default is not None:
            body[name] = default
    defaults = [default for default in fields.values() if default is not None]
    plain = type("Changing", (), dict(body))
    return {
        "namedtuple": collections.namedtuple(
            "Changing", fields, defaults=defaults, module=__name__
        ),
        "dataclass": dataclasses.dataclass(plain),
        "jax": jax.tree_util.register_dataclass(
            dataclasses.dataclass(type("Changing", (), dict(body))), [*fields], []
        ),
        "flax": flax.struct.dataclass(type("Changing", (), dict(body))),
        "equinox": type(eqx.Module)("Changing", (eqx.Module,), dict(body)),
    }


@pytest.mark.parametrize("kind", named({"x": None}))
def test_a_class_that_gained_or_lost_fields(kind, tmp_path, monkeypatch):
    def define(**fields):
        cls = named(fields)[kind]
        monkeypatch.setattr(sys.modules[__name__], "Changing", cls, raising=False)
        return cls

    old = define(x=None, y=2.5)
    path = s.export([old(x=jnp.ones(2), y=3.5)], tmp_path / "ckpt")
    new = define(x=None, y=2.5, z=7)
    report = []
    [loaded] = s.load(path, report=report)
    assert type(loaded) is new and (loaded.y, loaded.z) == (3.5, 7)
    assert [(each.code, each.path) for each in report] == [("NQX425", "$[0].z")]
    assert s.load(path, like=[new(jnp.zeros(2), 0.0, 9)])[0].z == 9
    assert s.load(path, fill={"z": 8})[0].z == 8

    define(x=None, w=None)
    with pytest.raises(s.SerializationError) as caught:
        s.load(path)
    found = {(each.code, each.path) for each in caught.value.diagnostics}
    assert found == {("NQX414", "$[0].w"), ("NQX415", "$[0].y")}
    assert s.load(path, fill={"w": 1}, unknown="drop")[0].w == 1

    define(x=None)
    report = []
    assert not hasattr(s.load(path, unknown="warn", report=report)[0], "y")
    assert [(each.code, each.severity) for each in report] == [("NQX415", "warning")]


@every("name", REFUSED)
def test_code_is_refused_in_one_message_that_says_what_to_save(name):
    value, remedy = REFUSED[name]
    with pytest.raises(s.SerializationError) as caught:
        s.to_state_dict(Holder([value]))
    [found] = caught.value.diagnostics
    assert (found.code, found.path) == ("NQX430", "$.v[0]") and remedy in found.hint


@pytest.mark.parametrize(
    "name",
    [
        "os:system",
        "jax.nn:initializers",
        "jax.nn:relu.__globals__",
        "builtins:eval",
        "jax.numpy:save",
        "x",
    ],
)
def test_a_file_can_name_no_other_function(name):
    held = s.to_state_dict([jax.nn.relu])
    assert s.from_state_dict(held)[0] is jax.nn.relu
    held["manifest"]["items"][0]["name"] = name
    with refused(s.UntrustedError, "NQX501"):
        s.from_state_dict(held, trust=["os", "jax", "builtins"])


def test_registration_is_what_makes_a_class_usable():
    held = s.to_state_dict([flax.core.FrozenDict({"a": 1})])
    for ref in ("subprocess:Popen", "builtins:dict", f"{__name__}:Net.first", "no.module:X"):
        held["manifest"]["items"][0]["type"] = ref
        with pytest.raises(s.UntrustedError):
            s.from_state_dict(held)


class Keyed:
    """Registered with keys; takes anything for its children, as JAX asks."""

    def __init__(self, a, b):
        self.a, self.b = a, b


class Strict(Keyed):
    """Registered with keys as well, and cannot be made without real children."""

    def __init__(self, a, b):
        super().__init__(a + 0, b)


def _with_keys(value):
    return ((jax.tree_util.GetAttrKey("a"), value.a), (jax.tree_util.DictKey("b"), value.b)), None


class Attributes:
    def __init__(self, w, n):
        self.w, self.n = w, n


class Positions(Keyed):
    """Registered without keys."""


for _cls in (Keyed, Strict):
    jax.tree_util.register_pytree_with_keys(
        _cls, _with_keys, lambda _, children, cls=_cls: cls(*children)
    )
jax.tree_util.register_pytree_node(
    Positions, lambda v: ((v.a, v.b), None), lambda _, children: Positions(*children)
)
s.register_attrs_type(Attributes, node_fields=("w",), static_fields=("n",))


@pytest.mark.parametrize(
    ("value", "saved", "loaded"),
    [
        (
            flax.core.FrozenDict({"l": np.ones(2), "b": {"c": np.ones(3)}}),
            ["b/c", "l"],
            [("b", "c"), ("l",)],
        ),
        (Keyed(np.ones(1), [np.ones(2)]), ["a", "b/0"], [("a",), ("b", 0)]),
        (Attributes(np.ones(1), 3), ["w"], [("w",)]),
        (Positions(np.ones(1), np.ones(2)), ["0", "1"], [(0,), (1,)]),
        # A file does not say the keys, and this type cannot be asked before it is read.
        (Strict(np.ones(1), np.ones(2)), ["a", "b"], [(0,), (1,)]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_children_of_registered_types_have_the_keys_that_jax_gives_them(value, saved, loaded):
    payload = s.to_state_dict(value)
    assert list(payload["arrays"]) == saved
    seen = []
    s.from_state_dict(payload, select=lambda path, _: seen.append(path) or True)
    assert list(dict.fromkeys(seen)) == loaded
    assert type(value) is Strict or [path for path, _ in leaves_with_paths(value)] == loaded


def test_messages_name_the_keys_of_children():
    with refused(s.SerializationError, "NQX430", "$['l']"):
        s.to_state_dict(flax.core.FrozenDict({"l": object()}))
    payload = s.to_state_dict(flax.core.FrozenDict({"l": jax.random.key(1)}))
    payload["manifest"]["children"][0]["impl"] = "rot13"
    with refused(s.SerializationError, "NQX420", "$['l']", "rot13"):
        s.from_state_dict(payload)
