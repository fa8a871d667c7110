"""The steps stack and unstack: a list of structs becomes one struct with a leading axis, and back."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import neuralqx_struct as s
from neuralqx_struct.errors import MigrationError, SchemaError
from neuralqx_struct.evolution import steps
from neuralqx_struct.evolution.plans import apply, plan
from neuralqx_struct.evolution.proof import prove
from neuralqx_struct.evolution.suggestions import suggest
from neuralqx_struct.manifest.kinds import FULL
from neuralqx_struct.schema.series import series_of
from tests.builders import conforms, doc, payload, refused, same, value

LAYER = {
    "w": "float32[i, o]",
    "b": "float32[o] | null",
    "rate": {"type": "float", "kind": "static"},
    "inner": "list[Inner]",
    "by_name": "dict[str, int8[o]]",
}
STRUCTS = {"Layer": LAYER, "Inner": {"x": "float64[]"}}
STACK = steps.stack(field="layers", size="n")
UNSTACK = steps.unstack(field="layers")


def versions(old, new, step, structs=STRUCTS):
    return doc({"layers": old}, structs=structs), doc({"layers": new}, 2, [step], structs=structs)


def layer(fill, i=2, o=3, **changes):
    fields = {
        "w": np.full((i, o), fill, "f4"),
        "b": np.full(o, fill, "f4"),
        "rate": 0.5,
        "inner": [("Inner", {"x": np.array(float(fill))})],
        "by_name": {"x": np.full(o, fill, "i1")},
    }
    return ("Layer", {**fields, **changes})


def moved(old, new, held):
    """A payload of the other version."""
    series = series_of([old, new])
    after = apply(held, plan(series, 1, 2))
    assert conforms(new, after) == []
    return after


def test_layers_are_stacked_and_come_back_bit_by_bit():
    old, new = versions("list[Layer]", "Layer[][n]", STACK)
    held = payload(old, {"layers": [layer(1), layer(2), layer(3)]})
    after = moved(old, new, held)
    fields = value(after.document["manifest"], after.arrays)["layers"]
    assert fields["w"].shape == (3, 2, 3) and fields["w"][1].tolist() == [[2] * 3] * 2
    assert fields["inner"][0]["x"].tolist() == [1, 2, 3] and fields["rate"] == 0.5
    assert fields["by_name"]["x"].shape == (3, 3)
    back = apply(after, plan(series_of([old, new]), 2, 1))
    assert conforms(old, back) == []
    assert same(
        value(back.document["manifest"], back.arrays), value(held.document["manifest"], held.arrays)
    )


def test_a_stack_becomes_a_list_of_its_length():
    old, new = versions("Layer[][n] | null", "list[Layer, n] | null", UNSTACK)
    assert prove(old, new) == [] or {d.code for d in prove(old, new)} == {"NQX320"}
    stacked = layer(0)[1] | {
        "w": np.arange(12, dtype="f4").reshape(2, 2, 3),
        "b": None,
        "inner": [],
        "by_name": {},
    }
    after = moved(old, new, payload(old, {"layers": ("Layer", stacked)}))
    first, second = value(after.document["manifest"], after.arrays)["layers"]
    assert second["w"].tolist() == [[6, 7, 8], [9, 10, 11]] and first["b"] is None
    nothing = moved(old, new, payload(old, {"layers": None}))
    assert nothing.document["manifest"]["fields"] == {"layers": None}


def test_constant_arrays_and_shared_arrays():
    structs = {"Layer": {"w": "float32[i]"}}
    old, new = versions("list[Layer]", "Layer[][n]", STACK, structs)
    constant = FULL.node(dtype="float32", shape=[4], value=0.0)
    held = payload(old, {"layers": [("Layer", {"w": constant})] * 3})
    node = moved(old, new, held).document["manifest"]["fields"]["layers"]["fields"]["w"]
    assert node == FULL.node(dtype="float32", shape=[3, 4], value=0.0)
    mixed = payload(
        old, {"layers": [("Layer", {"w": constant}), ("Layer", {"w": np.ones(4, "f4")})]}
    )
    after = moved(old, new, mixed)
    assert value(after.document["manifest"], after.arrays)["layers"]["w"].tolist() == [
        [0] * 4,
        [1] * 4,
    ]


def test_stacks_inside_of_stacks():
    structs = {"Block": {"layers": "list[Layer, 2]"}, "Layer": {"w": "float32[i]"}}
    wanted = {**structs, "Block": {"layers": "Layer[][2]"}}
    step = steps.stack(field="layers", within="Block")
    old = doc({"blocks": "Block[][n]"}, structs=structs)
    new = doc({"blocks": "Block[][n]"}, 2, [step], structs=wanted)
    arrays = [np.arange(12, dtype="f4").reshape(3, 4) + 100 * k for k in range(2)]
    held = payload(old, {"blocks": ("Block", {"layers": [("Layer", {"w": a}) for a in arrays]})})
    after = moved(old, new, held)
    made = value(after.document["manifest"], after.arrays)["blocks"]["layers"]["w"]
    assert np.array_equal(made, np.stack(arrays, axis=1))
    back = apply(after, plan(series_of([old, new]), 2, 1))
    assert same(
        value(back.document["manifest"], back.arrays), value(held.document["manifest"], held.arrays)
    )


SINGLE = {"Layer": {"w": "float32[i]"}, "Static": {"rate": "float"}}
REFUSED = [
    (steps.stack(field="layers"), "list[Layer]", "NQX304", "size:"),
    (steps.stack(field="layers", size="m"), "list[Layer, n]", "NQX309", "n"),
    (steps.stack(field="layers", size="n"), "list[float]", "NQX304", "list[float]"),
    (steps.stack(field="layers", size="n"), "list[E]", "NQX304", "list[E]"),
    (steps.stack(field="layers", size="n"), "list[Static]", "NQX137", "Static.rate"),
    (steps.stack(field="layers", size="2 * n"), "list[Layer]", "NQX105", "n"),
    (steps.unstack(field="layers"), "list[Layer]", "NQX304", "list[Layer]"),
]


@pytest.mark.parametrize(("step", "declared", "code", "word"), REFUSED)
def test_declarations_that_are_refused(step, declared, code, word):
    old = doc({"layers": declared}, structs=SINGLE, enums={"E": ["a"]})
    with pytest.raises(SchemaError) as caught:
        steps.apply_to_document(old, step, old)
    assert (caught.value.code, word in caught.value.diagnostics[0].message) == (code, True)


DIFFER = [
    ([layer(1), layer(2, i=4)], "NQX432", "float32"),
    ([layer(1), layer(2, rate=0.25)], "NQX432", "0.5 and 0.25"),
    ([layer(1), layer(2, b=None)], "NQX432", "null"),
    ([layer(1), layer(2, inner=[])], "NQX432", "$.layers['inner']"),
    ([layer(1), layer(2, by_name={})], "NQX432", "$.layers['by_name']"),
    ([], "NQX432", "$.layers.w"),
]


@pytest.mark.parametrize(("layers", "code", "word"), DIFFER)
def test_layers_that_cannot_be_stacked(layers, code, word):
    old, new = versions("list[Layer]", "Layer[][n]", STACK)
    assert "NQX320" in {d.code for d in prove(old, new)}
    with pytest.raises(MigrationError) as caught:
        apply(payload(old, {"layers": layers}), plan(series_of([old, new]), 1, 2))
    assert (caught.value.code, word in str(caught.value)) == (code, True)


WRONG = [
    (STACK, "list[Layer]", "Layer[][n]", 3, "NQX411"),
    (STACK, "list[Layer]", "Layer[][n]", [("Other", {"w": np.zeros(2, "f4")})], "NQX411"),
    (UNSTACK, "Layer[][n]", "list[Layer, n]", 3, "NQX411"),
    (UNSTACK, "Layer[][n]", "list[Layer, n]", ("Layer", {"w": np.zeros((), "f4")}), "NQX412"),
    (UNSTACK, "Layer[][n]", "list[Layer, n]", ("Layer", {"w": FULL.node(dtype="float32", shape=[10**9, 2], value=0.0)}), "NQX412"),
]  # fmt: skip


@pytest.mark.parametrize(("step", "old", "new", "held", "code"), WRONG)
def test_payloads_that_cannot_be_changed(step, old, new, held, code):
    first, second = versions(old, new, step, {"Layer": {"w": "float32[i]"}})
    with refused(MigrationError, code):
        apply(payload(first, {"layers": held}), plan(series_of([first, second]), 1, 2))


def test_another_array_shows_the_number_of_layers():
    structs = {"Layer": {"w": "float32[i]"}}
    fields = {"layers": "list[Layer]", "scale": "float32[n]"}
    old = doc(fields, structs=structs)
    new = doc({**fields, "layers": "Layer[][n]"}, 2, [STACK], structs=structs)
    held = {"layers": [("Layer", {"w": np.zeros(1, "f4")})], "scale": np.zeros(2, "f4")}
    with refused(MigrationError, "NQX412", 2, 1):
        apply(payload(old, held), plan(series_of([old, new]), 1, 2))


SUGGESTED = [
    ("list[Layer]", "Layer[][n]", '- stack: {field: layers, size: "n"}'),
    ("list[Layer, 3] | null", "Layer[][3] | null", "- stack: {field: layers}"),
    ("Layer[][n]", "list[Layer, n]", "- unstack: {field: layers}"),
    ("Layer[][n]", "list[Layer]", "- unstack: {field: layers}"),
]


@pytest.mark.parametrize(("old", "new", "step"), SUGGESTED)
def test_they_are_suggested(old, new, step):
    structs = {"Layer": {"w": "float32[i]"}}
    first, second = doc({"layers": old}, structs=structs), doc({"layers": new}, 2, structs=structs)
    (found,) = suggest(first, second)
    assert [steps.step_text(each) for each in found.steps] == [step]


@given(
    st.integers(1, 4), st.integers(0, 3), st.sampled_from(["float32", "int8", "complex64", "bool"])
)
def test_law_stack_and_unstack_are_inverse(count, size, dtype):
    structs = {"Layer": {"w": f"{dtype}[i]"}}
    old, new = versions("list[Layer]", "Layer[][n]", STACK, structs)
    arrays = [(np.arange(size) * (k + 1)).astype(dtype) for k in range(count)]
    held = payload(old, {"layers": [("Layer", {"w": array}) for array in arrays]})
    after = apply(held, plan(series_of([old, new]), 1, 2))
    assert same(value(after.document["manifest"], after.arrays)["layers"]["w"], np.stack(arrays))
    back = apply(after, plan(series_of([old, new]), 2, 1))
    assert same(
        value(back.document["manifest"], back.arrays), value(held.document["manifest"], held.arrays)
    )


HEADER = 'language: "1"\nschema: lab.net\nversion: {}\nroot: Net\nstructs:\n  Layer:\n    params: [d]\n    fields: {{w: "float32[d, d]", key: "prng_key[threefry2x32]"}}\n  Net:\n    fields:\n      layers: {}\n'


def test_bundles_are_loaded_and_migrated_up_and_down(tmp_path):
    folder = tmp_path / "net"
    folder.mkdir()
    (folder / "v1.yaml").write_text(HEADER.format(1, '"list[Layer[d], n]"'))
    steps_of = "migrations:\n  - from: 1\n    steps:\n      - stack: {field: layers}\n"
    (folder / "v2.yaml").write_text(HEADER.format(2, "Layer[d][n]") + steps_of)
    schema = s.load_schema(folder)
    one = schema.at(1)
    layers = [one.Layer(w=jnp.full((2, 2), k, "float32"), key=jax.random.key(k)) for k in range(3)]
    one.Net(layers=layers).export(tmp_path / "old")
    new = schema.load(tmp_path / "old")
    assert new.layers.w.shape == (3, 2, 2) and new.layers.key.shape == (3,)
    assert jax.random.key_data(new.layers.key[2]).tolist() == [0, 2]
    done = s.migrate(tmp_path / "old", tmp_path / "new", schema=folder)
    assert done.plan.cost == "streaming"
    assert s.validate(tmp_path / "new", schema=folder) == []
    s.migrate(tmp_path / "new", tmp_path / "back", schema=folder, to=1)
    assert one.load(tmp_path / "back") == one.Net(layers=layers)
