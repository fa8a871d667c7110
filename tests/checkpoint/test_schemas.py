"""neuralqx_struct.checkpoint.schemas: a schema of any tree, to which its bundle conforms."""

import collections
import dataclasses
import typing

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from flax.training.train_state import TrainState

import neuralqx_struct as s
from neuralqx_struct.errors import SerializationError, has_errors
from neuralqx_struct.tools.linting import lint_document
from tests.builders import every, refused

PARAMS = {
    "layers": [{"w": np.ones((2, 3)), "b": np.ones(3)}, {"w": np.ones((3, 4)), "b": np.ones(4)}],
    "scale": np.float32(2),
}


class Pair(typing.NamedTuple):
    left: object
    right: object


@dataclasses.dataclass
class Point:
    x: float
    y: object = None


class Boxed:
    def __init__(self, held):
        self.held = held


s.register_pytree_type(Boxed, flatten=lambda b: ((b.held,), None), unflatten=lambda _, c: Boxed(*c))


class Net(nnx.Module):
    def __init__(self, rngs):
        self.layers = nnx.List([nnx.Linear(2, 2, rngs=rngs) for _ in range(3)])
        self.norm = nnx.BatchNorm(2, rngs=rngs)


class State(s.Struct):
    w: jax.Array
    steps: list


class Bound(s.Struct, schema="lab.bound", version=3):
    n: int


TREES = {
    "dict": lambda: {"params": PARAMS, "step": 3, "key": jax.random.key(0)},
    "list": lambda: [np.ones(3), np.ones(4)],
    "tuple": lambda: (PARAMS, PARAMS),
    "array": lambda: jnp.ones((2, 3)),
    "empty": dict,
    "none": lambda: None,
    "namedtuple": lambda: Pair(1, [Pair(2, None)]),
    "dataclass": lambda: Point(1.5, np.ones(3)),
    "registered": lambda: {"a": Boxed(np.ones(2)), "b": Boxed(PARAMS)},
    "ordered": lambda: collections.OrderedDict(b=1, a=np.ones(2)),
    "adam": lambda: optax.adamw(1e-3).init(PARAMS),
    "chain": lambda: optax.chain(optax.clip(1.0), optax.sgd(0.1, 0.9)).init(PARAMS),
    "nnx state": lambda: nnx.state(Net(nnx.Rngs(0))),
    "nnx optimizer": lambda: nnx.state(
        nnx.Optimizer(Net(nnx.Rngs(0)), optax.adam(0.1), wrt=nnx.Param)
    ),
    "equinox": lambda: eqx.filter(eqx.nn.MLP(2, 3, 4, 2, key=jax.random.key(0)), eqx.is_array),
    "struct": lambda: State(jnp.ones(3), [1, 2]),
    "struct inside": lambda: {"state": State(jnp.ones(3), [1, 2]), "loss": None},
    "bound": lambda: Bound(3),
}


@every("name", TREES)
def test_the_bundle_conforms(tmp_path, name):
    tree = TREES[name]()
    document = s.schema_of(tree)
    assert not has_errors(lint_document(document))
    assert s.validate(s.export(tree, tmp_path / "ckpt"), document) == []


def texts(document):
    return {
        name: [field.text for field in struct.fields.values()]
        for name, struct in document.structs.items()
    }


def test_a_state_of_training_has_the_schema_of_its_data(tmp_path):
    state = TrainState.create(apply_fn=lambda _: 0, params=PARAMS, tx=optax.adam(1e-3))
    data = {"step": state.step, "params": PARAMS, "opt_state": state.opt_state}
    report = []
    document = s.schema_of({"train": [state], "best": np.ones(3)}, report=report)
    assert document == s.schema_of({"train": [data], "best": np.ones(3)})
    assert not has_errors(lint_document(document))
    assert [(each.code, each.path) for each in report] == [("NQX134", "$['train'][0]")]
    assert "TrainState" in report[0].message and "apply_fn, tx" in report[0].message
    path = s.export(data, tmp_path / "ckpt")
    assert s.validate(path, s.schema_of(state)) == []
    assert s.schema_of(jax.eval_shape(lambda: state)).structs["State"].fields.keys() == {*data}


def test_a_module_has_the_schema_of_its_state():
    net = Net(nnx.Rngs(0))
    assert s.schema_of(net) == s.schema_of(nnx.state(net))
    document = s.schema_of({"model": net, "step": 3}, schema="lab.net", version=2)
    assert (document.id, document.version, document.root) == ("lab.net", 2, "State")
    assert texts(document) == {
        "State": ["Model", "int"],
        "Model": ["list[Layer]", "Norm"],
        "Layer": ["float32[size_2]", "float32[size_2, size_2]"],
        "Norm": ["float32[size_2]"] * 4,
    }


def test_abstract_arrays_need_no_memory():
    def made():
        return {
            "w": jnp.ones((10**6, 10**6), "bfloat16"),
            "keys": jax.random.split(jax.random.key(0)),
        }

    assert texts(s.schema_of(jax.eval_shape(made))) == {
        "State": ["prng_key[threefry2x32, n_keys]", "bfloat16[size_1000000, size_1000000]"]
    }


def test_functions_of_modules_are_left_out_with_a_note():
    report = []
    document = s.schema_of({"act": lambda x: x, "w": np.ones(2)}, report=report)
    assert texts(document) == {"State": ["float64[n_w]"]}
    assert [(d.code, d.severity, d.path) for d in report] == [("NQX134", "info", "$['act']")]
    for wrong in (lambda x: x, object()):
        with refused(SerializationError, "NQX430"):
            s.schema_of(wrong)


def test_structs_with_a_document_have_theirs():
    assert s.schema_of(Bound(2)) is s.schema_of(Bound)
    assert texts(s.schema_of(State(jnp.ones(2), [1]))) == {"State": ["float32[n_w]", "list[int]"]}
    assert s.schema_of(Bound(2), schema="lab.other").id == "lab.other"
