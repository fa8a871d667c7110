"""neuralqx_struct.tools.inference: drafts of schema and layout that adopt their own file without an edit."""

import equinox as eqx
import flax.linen as nn
import fsspec
import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
import yaml
from flax.serialization import to_bytes
from flax.training.train_state import TrainState
from hypothesis import given
from hypothesis import strategies as st

import neuralqx_struct as s
from neuralqx_struct import formats
from neuralqx_struct.errors import SchemaError, SerializationError, has_errors
from neuralqx_struct.formats import ForeignArray, ForeignFile
from neuralqx_struct.layouts.lint import lint_layout
from neuralqx_struct.layouts.payloads import adopted, released
from neuralqx_struct.schema.series import load_series
from neuralqx_struct.tools.foreign_forms import separator_of
from neuralqx_struct.tools.inference import drafted
from neuralqx_struct.tools.linting import lint_series
from tests.builders import bounded, every, invoke, refused


def dense(name, i, o, *, kernel="weight"):
    return {f"{name}.{kernel}": (o, i), f"{name}.bias": (o,)}


def norm(name, d):
    return {f"{name}.weight": (d,), f"{name}.bias": (d,)}


def bert(d=8, ff=16):
    found = {
        "embeddings.word_embeddings.weight": (20, d),
        "embeddings.position_embeddings.weight": (10, d),
        **norm("embeddings.LayerNorm", d),
    }
    for i in range(2):
        layer = f"encoder.layer.{i}"
        for part in ("query", "key", "value"):
            found |= dense(f"{layer}.attention.self.{part}", d, d)
        found |= dense(f"{layer}.attention.output.dense", d, d)
        found |= norm(f"{layer}.attention.output.LayerNorm", d)
        found |= dense(f"{layer}.intermediate.dense", d, ff)
        found |= dense(f"{layer}.output.dense", ff, d) | norm(f"{layer}.output.LayerNorm", d)
    return found | dense("pooler.dense", d, d)


def gpt2(d=12):
    found = {"wte.weight": (20, d), "wpe.weight": (6, d)}
    for i in range(3):
        found |= norm(f"h.{i}.ln_1", d) | dense(f"h.{i}.attn.c_attn", 3 * d, d)
        found |= dense(f"h.{i}.mlp.c_fc", 4 * d, d) | {f"h.{i}.attn.bias": (1, 1, 6, 6)}
    return {f"transformer.{name}": shape for name, shape in (found | norm("ln_f", d)).items()}


def held(shapes, values=()):
    """An open file of arrays of these shapes."""
    arrays = {}
    for place, (name, shape) in enumerate(shapes.items()):
        array = np.full(shape, place, "float32")
        arrays[name] = ForeignArray("float32", array.shape, lambda array=array: array)
    return ForeignFile(path="", format="npz", arrays=arrays, values=dict(values))


def assert_sound(schema, layout, file):
    """Both lint, the schema adopts the file, and the inverse gives the same arrays in the same order."""
    series = load_series(schema)
    assert not has_errors(lint_series(series))
    payload = adopted(series, layout, file)
    back = released(payload, series, layout, like=file.arrays)
    assert list(back) == list(file.arrays)
    for name, array in file.arrays.items():
        made = back[name].read()
        assert made.dtype == array.read().dtype and np.array_equal(made, array.read())
    return series.head


def outline(shapes, values=()):
    """The fields of each struct of a draft, and its layout."""
    file = held(shapes, values)
    schema, layout = drafted(file, separator_of(file.arrays), "lab.net", "net.npz")
    document = assert_sound(schema, layout, file)
    types = {
        name: {field: declared.text for field, declared in struct.fields.items()}
        for name, struct in document.structs.items()
    }
    return types, yaml.safe_load(layout)


def test_a_transformer_as_bert_names_it():
    types, layout = outline(bert())
    assert list(types) == [
        "Model",
        "Embeddings",
        "Norm",
        "Encoder",
        "Attention",
        "Self",
        "Dense",
        "Output",
    ]
    assert types["Model"] == {
        "embeddings": "Embeddings",
        "encoder": "list[Encoder]",
        "pooler": "Dense",
    }
    assert types["Embeddings"] == {
        "word_embeddings": "float32[vocab, embed]",
        "position_embeddings": "float32[positions, embed]",
        "LayerNorm": "Norm",
    }
    assert types["Self"] == dict.fromkeys(("query", "key", "value"), "Dense")
    assert types["Dense"] == {
        "weight": "float32[n_weight_0, n_weight_1]",
        "bias": "float32[n_weight_0]",
    }
    assert types["Norm"] == {"weight": "float32[embed]", "bias": "float32[embed]"}
    assert layout["of"] == "lab.net@1" and "prefix" not in layout
    assert layout["structs"]["Model"] == {"encoder": "encoder.layer", "pooler": "pooler.dense"}


def test_a_transformer_as_gpt2_names_it():
    types, layout = outline(gpt2())
    assert types["Model"] == {
        "wte": "float32[vocab, embed]",
        "wpe": "float32[positions, embed]",
        "h": "list[H]",
        "ln_f": "Norm",
    }
    assert layout["prefix"] == ["transformer."]
    assert layout["structs"] == {
        "Model": {"wte": "wte.weight", "wpe": "wpe.weight"},
        "H": {"mlp": "mlp.c_fc"},
    }


@every(
    ("names", "fields", "rules"),
    [
        (["w"], "w", {}),
        (["a.b.c", "a.b.d"], "c d", {}),
        (["a.w", "b.w"], "a b", {"a": "a.w", "b": "b.w"}),
        (["0", "1"], "items", {"items": "{i}"}),
        (["l.0.w", "l.0.v", "l.1.w", "l.1.v"], "l", {}),
        (["0.w", "0.v", "1.w", "1.v", "x"], "items x", {"items": "{i}"}),
        (["x", "l.0.w", "l.1.w"], "x l", {"l": "l.{i}.w"}),
        (["l.0.w", "l.2.w"], "item_0 item_2", {"item_0": "0.w", "item_2": "2.w"}),
        (["l.0.w", "l.0.v", "l.1.w"], "l", {}),
        (["d_0.w", "d_0.v", "d_1.w", "d_1.v"], "d", {"d": "d_{i}"}),
        (["d0.w", "d0.v", "d1.w", "d1.v", "x"], "d x", {"d": "d{i}"}),
        (["d_0.w", "d_0.v", "d_1.w", "d_1.v", "d_7-b"], "d_0 d_1 d_7_b", {"d_7_b": "d_7-b"}),
        (["d_0", "d_1"], "d_0 d_1", {}),
        (["d_0.w", "d_1.w", "x"], "d x", {"d": "d_{i}.w"}),
        (["a", "a.b"], "a", {}),
        (
            ["class", "export", "1a"],
            "class_ export_ item_1a",
            {"class_": "class", "export_": "export", "item_1a": "1a"},
        ),
        (["a-b", "a b", "größe", "."], "a_b a_b_2 gr_e value", None),
        (["a-b", "a-c", "b-a"], "a b", {"b": "b-a"}),
        (["/w", "x..y", "z"], "w x_y z", {"w": "//w", "x_y": "/x..y"}),
    ],
)
def test_names(names, fields, rules):
    types, layout = outline(dict.fromkeys(names, (2, 3)))
    assert [*types["Model"]] == fields.split()
    assert rules is None or layout.get("structs", {}).get("Model", {}) == rules


@every("sizes", ["aaaa", "abaa", "aaab", "abab", "a", "abc"])
@every("layer", ["l.{}.w", "l_{}.w", "l.{}"])
def test_items_that_differ_in_their_sizes(layer, sizes):
    """The file is adopted with its last item, although equal items are drafted once."""
    shapes = {layer.format(i): (ord(size), 3) for i, size in enumerate(sizes)}
    inner = {f"m.{i}.{name}": shape for i in range(3) for name, shape in shapes.items()}
    types, _ = outline(shapes | inner)
    assert any(declared.startswith("list[") for declared in types["Model"].values())
    values = {f"m.{i}.step": i % 2 for i in range(3)}
    types, _ = outline(inner, values)
    assert types["Model"] == {"m": "list[M]"}


def test_values_beside_the_arrays():
    values = {"step": 3, "opt.lr": 0.5, "opt.name": "adam", "opt.w": None, "on": True}
    types, _ = outline({"opt.mu": (2,), "x": ()}, values)
    assert types["Model"] == {"opt": "Opt", "x": "float32[]", "step": "int", "on": "bool"}
    assert types["Opt"] == {"mu": "float32[n_mu]", "lr": "float", "name": "str", "w": "pytree"}
    schema, layout = drafted(held({"opt.mu": (2,)}, values), ".", "lab.net", "x")
    made = adopted(load_series(schema), layout, held({"opt.mu": (2,)}, values))
    fields = made.document["manifest"]["fields"]
    assert fields["step"] == 3 and fields["opt"]["fields"]["name"] == "adam"


parts = st.sampled_from(
    [
        "layers",
        "a",
        "0",
        "1",
        "w_0",
        "w_1",
        "w0",
        "kernel",
        "bias",
        "class",
        "x-y",
        "größe",
        "",
        "/q",
        "W",
    ]
)
names = st.lists(parts, min_size=1, max_size=4)
plain = st.none() | st.booleans() | st.integers(-3, 3) | st.text("ab", max_size=3)


@given(
    st.sampled_from("./"),
    st.lists(st.tuples(names, st.lists(st.integers(0, 3), max_size=3)), min_size=1, max_size=10),
    st.lists(st.tuples(names, plain), max_size=3),
)
def test_any_names_are_adopted(separator, shapes, values):
    arrays = {separator.join(name): tuple(shape) for name, shape in shapes}
    others = {separator.join(name): value for name, value in values}
    outline(arrays, {name: value for name, value in others.items() if name not in arrays})


# --- files -----------------------------------------------------------------------------------------------------------


class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.Conv(4, (3,))(nn.Embed(7, 8)(jnp.zeros((1, 3), int)))
        x = nn.BatchNorm(use_running_average=True)(nn.Dense(4)(x))
        return nn.LayerNorm()(nn.Dense(5)(x))


@pytest.fixture(scope="module")
def variables():
    shapes = jax.eval_shape(Net().init, jax.random.key(0), jnp.ones((1, 3)))
    return jax.tree.map(lambda leaf: np.ones(leaf.shape, leaf.dtype), shapes)


def safetensors(path, _):
    shapes = gpt2()
    formats.write(path, "safetensors", {n: np.ones(s, "float32") for n, s in shapes.items()})


def linen(path, variables):
    path.write_bytes(to_bytes(variables))


def state_of(variables):
    return TrainState.create(apply_fn=None, params=variables["params"], tx=optax.adamw(1e-3))


def trained(path, variables):
    path.write_bytes(to_bytes(state_of(variables)))


def orbax(path, variables):
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(path, state_of(variables))


FILES = {
    "gpt2.safetensors": (safetensors, "list[H]"),
    "gpt2.npz": (
        lambda path, _: np.savez(path, **{"a/w": np.ones(3), "a/b": np.ones(2)}),
        "float64[n_w]",
    ),
    "one.npy": (lambda path, _: np.save(path, np.ones(3)), "float64[n_arr_0]"),
    "linen.msgpack": (linen, "list[Dense]"),
    "trained.msgpack": (trained, "Params"),
    "trained": (orbax, "list[Dense]"),
}


@pytest.mark.parametrize("name", FILES)
def test_files(tmp_path, variables, name):
    write, expected = FILES[name]
    write(tmp_path / name, variables)
    found = s.infer(tmp_path / name)
    separator = yaml.safe_load(found.layout).get("separator", ".")
    with formats.opened(tmp_path / name, separator=separator) as file:
        document = assert_sound(found, found.layout, file)
    types = [field.text for struct in document.structs.values() for field in struct.fields.values()]
    assert expected in types
    made = s.load_schema(found).from_layout(tmp_path / name, found.layout)
    assert type(made).__name__ == document.root


def test_files_of_equinox(tmp_path):
    model = eqx.filter_eval_shape(eqx.nn.MLP, 2, 2, 4, 2, key=jax.random.key(0))
    arrays, static = eqx.partition(model, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))
    model = eqx.combine(jax.tree.map(lambda leaf: np.ones(leaf.shape, leaf.dtype), arrays), static)
    eqx.tree_serialise_leaves(tmp_path / "net.eqx", model)
    like = {}
    for i, layer in enumerate(model.layers):
        like |= {f"layers.{i}.weight": layer.weight, f"layers.{i}.bias": layer.bias}
    found = s.infer(tmp_path / "net.eqx", like=like, schema="lab.mlp")
    assert found == s.infer(tmp_path / "net.eqx", like=model, schema="lab.mlp")
    assert s.load_schema(found).from_layout(tmp_path / "net.eqx", found.layout, like=model)
    with formats.opened(tmp_path / "net.eqx", like=like) as file:
        document = assert_sound(found, found.layout, file)
    assert document.id == "lab.mlp"
    assert document.structs["Model"].fields["layers"].text == "list[Dense]"
    assert s.infer(tmp_path / "net.eqx").layout  # by the positions of the leaves


def test_urls(tmp_path):
    safetensors(tmp_path / "net.safetensors", None)
    memory = fsspec.filesystem("memory")
    memory.pipe_file("/drafts/net.safetensors", (tmp_path / "net.safetensors").read_bytes())
    found = s.infer("memory://drafts/net.safetensors")
    assert found.layout == s.infer(tmp_path / "net.safetensors").layout


def test_the_command(tmp_path):
    file = tmp_path / "gpt-2.safetensors"
    safetensors(file, None)
    printed = invoke("infer", file)
    assert "schema: gpt_2 " in printed.stdout and "layout: safetensors" in printed.stdout
    done = invoke("infer", file, "--id", "lab.gpt2", "--out", tmp_path / "gpt2")
    assert done.exit_code == 0 and "v1.yaml" in done.stdout
    series = load_series(tmp_path / "gpt2")
    assert lint_layout(tmp_path / "gpt2" / "layouts" / "safetensors.yaml", series) == []
    made = s.load_schema(tmp_path / "gpt2").from_layout(file, "safetensors")
    assert made.wte.shape == (20, 12) and len(made.h) == 3
    again = invoke("infer", file, "--out", tmp_path / "gpt2")
    assert again.exit_code == 2 and "expected a new file, got one that exists" in again.stderr
    single = invoke("infer", file, "--out", tmp_path / "v1.yaml")
    assert single.exit_code == 2 and "expected a folder" in single.stderr


def test_names_that_no_layout_can_write():
    file = held(dict.fromkeys(["a\nb", "{key}", "l.{i}", "w"], (2,)))
    with pytest.raises(SchemaError) as caught:
        drafted(file, ".", "lab.net", "x")
    assert [d.code for d in caught.value.diagnostics] == ["NQX702"] * 3


def test_arrays_that_no_schema_can_have():
    odd = ForeignArray("float6", (2,), lambda: None)
    file = ForeignFile(path="", format="npz", arrays={"w": odd})
    with refused(SchemaError, "NQX411", "w", "float6"):
        drafted(file, ".", "lab.net", "x")
    with refused(SerializationError, "NQX620", __file__):
        s.infer(__file__)


def test_arrays_of_other_dtypes_are_left_out(tmp_path):
    arrays = {"w": np.ones((2, 3)), "wide": np.arange(3, dtype=">f4"), "phase": np.ones(1, ">c8")}
    others = {"a[0]": np.array(["x"]), "when": np.array(["2024-01-01"], "M8[D]")}
    np.savez(tmp_path / "net.npz", **arrays, **others)
    found = s.infer(tmp_path / "net.npz")
    codes = [(d.code, d.severity, d.path) for d in found.findings]
    assert codes == [("NQX411", "warning", name) for name in others]
    assert "float32[" in found and "complex64[" in found
    schema = s.load_schema(found)
    made = schema.from_layout(tmp_path / "net.npz", found.layout, as_numpy=True)
    assert made.wide.tolist() == [0, 1, 2] and made.wide.dtype == np.dtype("float32")
    back = schema.to_layout(made, found.layout)
    assert list(back) == list(arrays)
    done = invoke("infer", tmp_path / "net.npz", "--out", tmp_path / "net")
    assert done.exit_code == 0 and "when: expected a dtype that schemas declare" in done.stdout
    assert invoke("schema", "lint", tmp_path / "net").exit_code == 0
    np.savez(tmp_path / "text.npz", **others)
    with pytest.raises(SchemaError) as caught:
        s.infer(tmp_path / "text.npz")
    assert [d.severity for d in caught.value.diagnostics] == ["error"] * 2


def test_more_fields_than_a_schema_has():
    arrays = {f"w{n}x": ForeignArray("float32", (0,), lambda: None) for n in range(100_000)}
    file = ForeignFile(path="", format="npz", arrays=arrays)
    with bounded(), refused(SchemaError, "NQX005", "32768", "100000"):
        drafted(file, ".", "lab.net", "x")


SLOW = {
    "deep": lambda: {".".join("a" * n + "b"): (1,) for n in range(1, 100)},
    "wide": lambda: {f"w{n}x": (n, 2) for n in range(2000)},
    "layers": lambda: {f"l.{n}.{k}": (n,) for n in range(500) for k in "ab"},
    "equal layers": lambda: {f"l.{n}.{k}.w": (1,) for n in range(10_000) for k in "ab"},
}


@pytest.mark.parametrize("name", SLOW)
def test_drafts_of_files_take_bounded_time(name):
    file = held(SLOW[name]())
    with bounded():
        drafted(file, ".", "lab.net", "x")
