"""Warm starts: what a fresh model takes from a bundle, and the receipt."""

import dataclasses

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from flax.training.train_state import TrainState

import neuralqx_struct as s
from neuralqx_struct.trees import leaves_with_paths
from tests.builders import refused


def arrays(**shapes):
    return {name: jnp.full(shape, 2.0) for name, shape in shapes.items()}


def fresh(**shapes):
    return {name: jnp.zeros(shape) for name, shape in shapes.items()}


def test_a_new_head_is_kept_and_the_rest_loaded(tmp_path):
    path = s.export(arrays(w=(2,), old=(3,), other=(5,)), tmp_path / "ckpt")
    model, receipt = s.warm_start(path, fresh(w=(2,), head=(4,), other=(6,)))
    sums = {name: float(leaf.sum()) for name, leaf in model.items()}
    assert sums == {"w": 4.0, "head": 0.0, "other": 0.0}
    assert (receipt.loaded, receipt.kept, receipt.dropped) == (("w",), ("head", "other"), ("old",))
    assert str(receipt).splitlines() == [
        "         path   model       bundle      note",
        "kept     head   float32[4]              not in the bundle",
        "kept     other  float32[6]  float32[5]  another shape",
        "loaded   w      float32[2]  float32[2]",
        "dropped  old                float32[3]",
    ]


def test_paths_name_where_parts_are_stored(tmp_path):
    stored = {"backbone": {"encoder": arrays(w=(2,), b=(1,))}, "head": arrays(w=(3,))}
    path = s.export(stored, tmp_path / "ckpt")
    like = {"encoder": fresh(w=(2,), b=(1,)), "head": fresh(w=(3,))}
    rules = {"paths": {"encoder": "backbone/encoder", "head": None}}
    model, receipt = s.warm_start(path, like, rules)
    assert float(model["encoder"]["w"].sum()) == 4.0 and float(model["head"]["w"].sum()) == 0.0
    assert receipt.loaded == ("encoder/b", "encoder/w")
    assert (receipt.kept, receipt.dropped) == (("head/w",), ("head/w",))
    assert receipt.lines[0].note == "from backbone/encoder/b"


@pytest.mark.parametrize(
    ("how", "old", "new", "total"),
    [
        ("pad", (2, 3), (4, 3), 12.0),
        ("cut", (4, 3), (2, 3), 12.0),
        ("repeat", (2, 3), (4, 3), 24.0),
    ],
)
def test_sizes_are_adapted_by_rules(how, old, new, total, tmp_path):
    path = s.export({"embed": arrays(words=old)}, tmp_path / "ckpt")
    rules = {"sizes": {"embed/*": how}}
    model, receipt = s.warm_start(path, {"embed": fresh(words=new)}, rules)
    assert float(model["embed"]["words"].sum()) == total and receipt.resized == ("embed/words",)
    with refused(s.SerializationError, "NQX412", how):
        s.warm_start(path, {"embed": fresh(words=(5, 2))}, rules)


def test_shapes_without_values_have_nothing_to_pad_with(tmp_path):
    path = s.export(arrays(w=(2,)), tmp_path / "ckpt")
    with refused(s.SerializationError, "NQX414", "w", "float32[3]"):
        s.warm_start(path, jax.eval_shape(lambda: fresh(w=(3,))), {"sizes": {"w": "pad"}})


def test_rules_that_match_nothing_are_errors(tmp_path):
    path = s.export(arrays(w=(2,)), tmp_path / "ckpt")
    rules = {"paths": {"hed": None, "w": "v"}, "sizes": {"q": "pad"}}
    with pytest.raises(s.SerializationError) as caught:
        s.warm_start(path, fresh(w=(2,)), rules)
    assert len(caught.value.diagnostics) == 3
    with refused(s.SchemaError, "NQX010", "$.sizes.w", "pad", "stretch"):
        s.warm_start(path, fresh(w=(2,)), {"sizes": {"w": "stretch"}})


def test_a_rule_file_names_the_version_of_the_bundle(tmp_path):
    first = """
        language: "1"
        schema: lab.small
        version: 1
        root: Small
        structs: {Small: {fields: {w: "float32[n]"}}}
    """
    second = first.replace("version: 1", "version: 2").replace("{w:", "{kernel:") + (
        "    migrations: [{from: 1, steps: [{rename: {field: w, to: kernel}}]}]\n"
    )
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / "v1.yaml").write_text(first)
    (tmp_path / "small" / "v2.yaml").write_text(second)
    schema = s.load_schema(tmp_path / "small")
    path = schema.at(1).root(w=jnp.ones(3)).export(tmp_path / "ckpt")
    (tmp_path / "warm.yaml").write_text(
        'language: "1"\nwarm_start: large\nof: lab.small@2\npaths: {encoder: kernel}\n'
    )
    model, receipt = s.warm_start(path, fresh(encoder=(3,)), tmp_path / "warm.yaml", schema=schema)
    assert float(model["encoder"].sum()) == 3.0 and receipt.dropped == ()
    assert s.warm_start(path, schema.root(kernel=jnp.zeros(3))).receipt.loaded == ("kernel",)


class Net(s.Struct):
    w: object
    depth: int = s.field(static=True, default=2)


def test_classes_need_not_be_the_same(tmp_path):
    path = Net(jnp.ones(2), depth=3).export(tmp_path / "ckpt")
    model, receipt = s.warm_start(path, Net(jnp.zeros(2)))
    assert model == Net(jnp.ones(2)) and receipt.dropped == ("depth",)
    assert "static" in receipt.lines[-1].note
    assert s.warm_start(path, Net(jnp.zeros(2), depth=3)).receipt.dropped == ()
    assert s.warm_start(path, fresh(w=(2,))).receipt.loaded == ("w",)


def test_modules_of_equinox_with_their_optimiser(tmp_path):
    def new(seed, out):
        model = eqx.nn.MLP(2, out, 4, 1, key=jax.random.key(seed))
        return {"model": model, "opt": optax.adam(1e-3).init(eqx.filter(model, eqx.is_array))}

    old, wanted = new(0, 1), new(1, 3)
    model, receipt = s.warm_start(s.export(old, tmp_path / "ckpt"), wanted)
    assert np.array_equal(model["model"].layers[0].weight, old["model"].layers[0].weight)
    assert np.array_equal(model["model"].layers[1].weight, wanted["model"].layers[1].weight)
    assert "model/layers/1/weight" in receipt.kept and "opt/0/count" in receipt.loaded
    assert receipt.dropped == (
        "model/layers/1/out_features",
        "model/out_size",
        *tuple(
            f"opt/0/{moment}/{name}"
            for moment in ("mu", "nu")
            for name in ("layers/1/out_features", "out_size")
        ),
    )


def test_dtypes_and_shardings_are_those_of_the_model(tmp_path):
    path = s.export({"w": jnp.ones(2), "n": jnp.ones(2, int)}, tmp_path / "ckpt")
    shard = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    like = {"w": jax.device_put(jnp.zeros(2, jnp.bfloat16), shard), "n": np.zeros(2)}
    model, receipt = s.warm_start(path, like)
    assert model["w"].dtype == jnp.bfloat16 and model["w"].sharding == shard
    assert receipt.loaded == ("w",) and receipt.kept == ("n",)
    with refused(s.SerializationError, "NQX414", "v"):
        s.warm_start(path, {"v": jax.ShapeDtypeStruct((2,), jnp.float32)})


def test_numbers_of_python_and_arrays_without_axes_are_alike(tmp_path):
    stored = {"step": jnp.int32(7), "rate": 0.5, "key": jax.random.key(3)}
    path = s.export(stored, tmp_path / "ckpt")
    like = {"step": np.int64(0), "rate": jnp.zeros(()), "key": jax.random.key(0)}
    model, receipt = s.warm_start(path, like)
    assert type(model["step"]) is np.int64
    assert (model["step"], float(model["rate"])) == (7, 0.5) and len(receipt.loaded) == 3
    assert jax.random.key_data(model["key"]).tolist() == jax.random.key_data(stored["key"]).tolist()


def test_whole_numbers_have_to_fit(tmp_path):
    path = s.export({"n": np.array([300])}, tmp_path / "ckpt")
    with pytest.raises(s.MigrationError):
        s.warm_start(path, {"n": np.zeros(1, "int8")})


def train_state(layers, width):
    class Net(nn.Module):
        @nn.compact
        def __call__(self, x):
            for _ in range(layers):
                x = nn.Dense(width)(x)
            return x

    net = Net()
    params = net.init(jax.random.key(layers), jnp.ones((1, 3)))["params"]
    return TrainState.create(apply_fn=net.apply, params=params, tx=optax.adam(1e-3))


@pytest.mark.parametrize(("layers", "width"), [(3, 4), (1, 4), (2, 6), (2, 2)])
def test_a_train_state_of_flax_with_more_fewer_and_other_layers(layers, width, tmp_path):
    old, fresh = train_state(2, 4), train_state(layers, width)
    old = old.apply_gradients(grads=old.params)
    how = "pad" if width > 4 else "cut"
    rules = None if width == 4 else {"sizes": {"**/kernel": how, "**/bias": how}}
    started, receipt = s.warm_start(s.export(old, tmp_path / "ckpt"), fresh, rules)
    assert type(started) is TrainState and started.tx is fresh.tx and int(started.step) == 1
    stored, wanted = (
        {
            "/".join(map(str, path))
            for path, leaf in leaves_with_paths(tree)
            if hasattr(leaf, "dtype")
        }
        for tree in (old, fresh)
    )
    taken = {*receipt.loaded, *receipt.resized} - {"step"}
    assert taken == stored & wanted - {"step"} and {*receipt.kept} == wanted - stored
    assert {*receipt.dropped} == stored - wanted
    kernel = np.array(fresh.params["Dense_0"]["kernel"])
    held = np.array(old.params["Dense_0"]["kernel"])
    part = (slice(None), slice(min(4, width)))
    kernel[part] = held[part]
    assert np.array_equal(started.params["Dense_0"]["kernel"], kernel)
    if layers > 2:
        new = "Dense_2"
        assert np.array_equal(started.params[new]["kernel"], fresh.params[new]["kernel"])


def test_the_state_of_a_module_of_nnx(tmp_path):
    def state(width):
        return nnx.state(nnx.Linear(2, width, rngs=nnx.Rngs(width)))

    path = s.export(state(3), tmp_path / "ckpt")
    started, receipt = s.warm_start(path, state(5), {"sizes": {"kernel/**": "pad"}})
    assert [each.split("/")[0] for each in receipt.resized] == ["kernel"]
    assert [each.split("/")[0] for each in receipt.kept] == ["bias"]
    assert np.array_equal(
        jax.tree.leaves(started["kernel"])[0][:, :3], jax.tree.leaves(state(3)["kernel"])[0]
    )


@jax.tree_util.register_pytree_node_class
@dataclasses.dataclass
class Named:
    """A dataclass whose registration gives its fields no names, as haliax has them."""

    array: object
    label: str

    def tree_flatten(self):
        return (self.array,), self.label

    @classmethod
    def tree_unflatten(cls, label, children):
        return cls(*children, label)


def test_fields_of_dataclasses_have_their_names_where_jax_numbers_them(tmp_path):
    s.export({"net": [Named(jnp.ones(2), "x")]}, tmp_path / "ckpt")
    model, receipt = s.warm_start(tmp_path / "ckpt", {"net": [Named(jnp.zeros(2), "x")]})
    assert receipt.loaded == ("net/0/array",) and not receipt.kept
    assert model["net"][0].array.tolist() == [1, 1]


class Packed:
    """A class whose serializer gives its state a name that JAX does not know."""

    def __init__(self, held):
        self.held = held


def test_what_a_serializer_gave_has_the_paths_of_its_payload(tmp_path):
    s.register_pytree_type(
        Packed,
        flatten=lambda packed: ((packed.held,), None),
        unflatten=lambda _, children: Packed(*children),
        serializer=lambda packed: {"w": packed.held},
        deserializer=lambda payload: Packed(payload["w"]),
    )
    path = s.export({"net": Packed(jnp.ones(2))}, tmp_path / "ckpt")
    model, receipt = s.warm_start(path, {"net": {"w": jnp.zeros(2)}})
    assert receipt.loaded == ("net/w",) and model["net"]["w"].tolist() == [1, 1]


def test_text_and_code_of_a_model_stay_without_a_line(tmp_path):
    s.export({"w": jnp.ones(2), "axis": "batch"}, tmp_path / "ckpt")
    model, receipt = s.warm_start(tmp_path / "ckpt", {"w": jnp.zeros(2), "axis": "rows", "f": abs})
    assert (model["axis"], model["f"], len(receipt.lines)) == ("rows", abs, 1)
