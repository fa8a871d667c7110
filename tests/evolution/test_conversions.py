"""The step convert: numbers change between int, float, lists and arrays, exactly or with a declared loss."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import neuralqx_struct as s
from neuralqx_struct.dtypes.casts import LOSES
from neuralqx_struct.errors import MigrationError, SchemaError
from neuralqx_struct.evolution import steps
from neuralqx_struct.evolution.compatibility import verdict
from neuralqx_struct.evolution.plans import apply, plan
from neuralqx_struct.evolution.proof import prove
from neuralqx_struct.evolution.steps import conversions
from neuralqx_struct.evolution.suggestions import suggest
from neuralqx_struct.manifest.kinds import FULL, LIST
from neuralqx_struct.schema.series import series_of
from neuralqx_struct.tools.linting import lint_series
from neuralqx_struct.types.text import number_node
from tests.builders import conforms, doc, every, payload, refused, same, up, value


def versions(old, new, **step):
    """Two versions with one field, and the step between them."""
    return doc({"a": old}), doc({"a": new}, 2, [steps.convert(field="a", **step)])


def converted(old, new, node, **step):
    """The field after the step."""
    first, second = versions(old, new, **{"to": new, **step})
    after = up(first, second, {"a": node})
    return value(after.document["manifest"], after.arrays)["a"]


# ---------------------------------------------------------------------------------------------------------------------
# Declarations.

REFUSED = [
    ("float", {"to": "float[n]"}, "NQX101", "without [...]"),
    ("float", {"to": "str"}, "NQX304", "text"),
    ("float", {"to": "float32[n, m]"}, "NQX304", "axis"),
    ("float", {"to": "list[list[int]]"}, "NQX304", "axis"),
    ("float", {"to": "compute[]"}, "NQX304", "dtype"),
    ("str", {"to": "float"}, "NQX304", "numbers"),
    ("float", {"to": "float32[n]"}, "NQX304", "numbers"),
    ("float32[..., 3]", {"to": "list[float]"}, "NQX304", "numbers"),
    ("float", {"to": "float"}, "NQX306", "effect"),
    ("float32[n]", {"to": "float64[n]"}, "NQX306", "arrays"),
    ("int | str", {"to": "float"}, "NQX304", "number | null"),
    ("list[float]", {"to": "float32[2 * n]"}, "NQX105", "n"),
    ("float", {"to": "int", "exact": False}, "NQX308", "lossy"),
]


@every(("old", "step", "code", "word"), REFUSED)
def test_declarations_that_are_refused(old, step, code, word):
    with pytest.raises(SchemaError) as caught:
        steps.apply_to_document(doc({"a": old}), steps.convert(field="a", **step), doc({}, 2))
    (found,) = caught.value.diagnostics
    assert (found.code, word in found.message) == (code, True)


def test_two_types_that_become_one_cannot_be_undone():
    old, new = versions("tuple[int, float]", "tuple[float, float]", to="float")
    (found,) = [d for d in prove(old, new) if d.code == "NQX307"]
    assert "int, float" in found.message


def test_a_size_that_only_the_array_shows_cannot_be_restored():
    fields = {"a": "float32[2 * n]", "b": "float32[2 * n]"}
    old = doc(fields)
    new = doc({**fields, "a": "list[float]"}, 2, [steps.convert(field="a", to="list[float]")])
    assert [d.code for d in prove(old, new) if d.code == "NQX307"] == []
    alone = versions("float32[n * m]", "list[float]", to="list[float]")
    assert "NQX307" in {d.code for d in prove(*alone)}


STOPS = [
    ("int", "float", True),
    ("float", "int", True),
    ("float", "float64[]", True),
    ("float", "float32[]", True),
    ("int8[]", "int", False),
    ("uint64[]", "int", False),
    ("int32[n]", "list[float]", False),
    ("int64[n]", "list[float]", True),
    ("list[float]", "float64[n]", True),
    ("list[float]", "float64[_]", True),
    ("list[float]", "float64[3]", True),
    ("list[list[float]]", "list[float64[n]]", True),
]


@every(("old", "new", "stops"), STOPS)
def test_lint_names_numbers_and_lists_that_may_not_fit(old, new, stops):
    to = new.removeprefix("list[").removesuffix("]]") + "]" if old.startswith("list[list") else new
    found = [d for d in prove(*versions(old, new, to=to)) if "on a downgrade" not in d.message]
    assert ("NQX320" in {d.code for d in found}) is stops
    assert all(d.code == "NQX320" for d in found)


#: Fields of the root before, those that it has after, members of the documents, and whether a downgrade may stop.
BACK = {
    "a size of its own": ({"a": "float64[n]"}, {"a": "list[float]"}, {}, {}, False),
    "a dim": ({"a": "float64[n]"}, {"a": "list[float]"}, {"dims": {"n": {}}}, {}, False),
    "an argument of a struct": (
        {"a": "float64[n]", "b": "B[n]"},
        {"a": "list[float]", "b": "B[n]"},
        {"raw": {"B": {"params": ["d"], "fields": {"w": "int8[d]"}}}},
        {},
        True,
    ),
    "an int of the root": (
        {"a": "float64[n]", "n": {"type": "int", "kind": "static"}},
        {"a": "list[float]", "n": {"type": "int", "kind": "static"}},
        {},
        {},
        True,
    ),
    "a parameter": (
        {"b": "B[n]", "c": "B[n]"},
        {"b": "B[n]", "c": "B[n]"},
        {"raw": {"B": {"params": ["d"], "fields": {"a": "float64[d]"}}}},
        {"raw": {"B": {"params": ["d"], "fields": {"a": "list[float]"}}}},
        True,
    ),
}


@pytest.mark.parametrize("name", BACK)
def test_verdicts_name_lists_that_may_not_have_the_size_of_the_array_before(name):
    old, new, first, second, stops = BACK[name]
    within = None if "a" in old else "B"
    step = steps.convert(field="a", to="list[float]", within=within)
    series = series_of([doc(old, **first), doc(new, 2, [step], **{**first, **second})])
    found = verdict(series.at(1), series, "forward")
    assert bool(found) is stops


def test_a_list_beside_an_array_of_the_same_size_may_stop():
    fields = {"a": "list[float]", "b": "int8[n]"}
    new = doc({**fields, "a": "float64[n]"}, 2, [steps.convert(field="a", to="float64[n]")])
    (found,) = verdict(doc(fields), series_of([doc(fields), new]), "backward")
    assert (found.code, found.path) == ("NQX320", "$.structs.A.fields.a")
    with refused(MigrationError, "NQX412", 2, "float64") as caught:
        up(doc(fields), new, {"a": [1.0], "b": np.zeros(2, "i1")})
    assert (caught.value.code, caught.value.diagnostics[0].path) == ("NQX412", "$.a")


SUGGESTED = [
    ("int", "float", "- convert: {field: a, to: float}"),
    ("list[float] | null", "float64[n] | null", '- convert: {field: a, to: "float64[n]"}'),
    ("float32[n]", "list[float]", '- convert: {field: a, to: "list[float]"}'),
    ("dict[str, list[int]]", "dict[str, list[float]]", '- convert: {field: a, to: "list[float]"}'),
    ("float32[]", "float", "- convert: {field: a, to: float}"),
    ("complex", "complex64[]", '- convert: {field: a, to: "complex64[]"}'),
]


@pytest.mark.parametrize(("old", "new", "step"), SUGGESTED)
def test_it_is_suggested(old, new, step):
    (found,) = suggest(doc({"a": old}), doc({"a": new}, 2))
    assert [steps.step_text(each) for each in found.answers[0].steps] == [step]


def test_the_number_is_converted_and_null_filled():
    (found,) = suggest(doc({"a": "int | null"}), doc({"a": {"type": "float", "default": 0.5}}, 2))
    assert [step.name for step in found.answers[0].steps] == ["convert", "fill"]


# ---------------------------------------------------------------------------------------------------------------------
# Payloads.

INEXACT = [
    ("float", "int", 0.5),
    ("float", "int", -0.0),
    ("float", "int", {"__kind__": "float", "value": "nan"}),
    ("int", "float", 2**53 + 1),
    ("int", "int8[]", 128),
    ("list[float]", "float32[n]", [1.0, 0.1]),
    ("float", "float64[]", 2**53 + 1),
    ("float", "int", 2**53 + 1),
    ("list[float]", "float64[n]", [1.0, -(2**53) - 1]),
    ("list[int]", "int64[n]", [1, {"__kind__": "bigint", "value": str(2**70)}]),
]


@every(("old", "new", "node"), INEXACT)
def test_a_number_that_does_not_fit_stops(old, new, node):
    if isinstance(node, list):
        node = LIST.node(items=node)
    with pytest.raises(MigrationError) as caught:
        converted(old, new, node)
    assert (caught.value.code, caught.value.diagnostics[0].path) == ("NQX213", "$.a")


def test_a_declared_loss_rounds():
    lossy = {"exact": False, "lossy": True}
    assert converted("float", "int", 1.75, **lossy) == 1
    assert same(converted("float", "float64[]", 2**53 + 1, **lossy), np.array(2.0**53))
    assert same(converted("float", "float16[]", 0.1, **lossy), np.array(0.1, "f2"))


def test_large_integers_are_exact_in_arrays():
    made = converted("list[int]", "uint64[n]", [2**64 - 1])
    assert made.tolist() == [2**64 - 1]
    assert converted("uint64[]", "int", np.array(2**63, "u8")) == {
        "__kind__": "bigint",
        "value": str(2**63),
    }


def test_a_number_that_jit_made_an_array_is_read():
    old, new = versions("list[int]", "list[float]", to="float")
    held = payload(old, {"a": [np.array(3, "i4"), 4]})
    after = apply(held, plan(series_of([old, new]), 1, 2))
    assert conforms(new, after) == []
    assert value(after.document["manifest"], after.arrays) == {"a": [3.0, 4.0]}
    array = versions("list[int]", "int8[n]", to="int8[n]")
    after = apply(payload(array[0], {"a": [np.array(3, "i4"), 4]}), plan(series_of(array), 1, 2))
    assert value(after.document["manifest"], after.arrays)["a"].tolist() == [3, 4]


def test_an_integer_in_a_float_field_is_a_float():
    assert same(converted("list[float]", "float64[n]", [1, 2.5]), np.array([1, 2.5]))
    assert same(converted("float", "float64[]", 2**60), np.array(2.0**60))


def test_an_integer_that_no_float_is_stops_with_its_place():
    with pytest.raises(MigrationError) as caught:
        converted("list[float]", "float64[n]", LIST.node(items=[1.5, 2**53 + 1]))
    (found,) = caught.value.diagnostics
    assert "[1]" in found.message and "9007199254740993" in found.message
    assert found.hint == LOSES


def test_a_constant_array_becomes_a_list_of_bounded_length():
    constant = FULL.node(dtype="float32", shape=[3], value=0.5)
    assert converted("float32[n]", "list[float]", constant) == [0.5] * 3
    huge = FULL.node(dtype="float32", shape=[10**12], value=0.5)
    series = series_of(versions("float32[n]", "list[float]", to="list[float]"))
    with refused(MigrationError, "NQX412", "1,000,000"):
        apply(payload(series.at(1), {"a": huge}), plan(series, 1, 2))


WRONG = [
    ("float32[n]", "list[float]", [0.5], "NQX411"),
    ("float32[n]", "list[float]", np.zeros((2, 2), "f4"), "NQX412"),
    ("list[float]", "float32[n]", np.zeros(2, "f4"), "NQX411"),
    ("list[float]", "float32[n]", ["x"], "NQX411"),
    ("float", "int", "x", "NQX411"),
]


@pytest.mark.parametrize(("old", "new", "held", "code"), WRONG)
def test_payloads_that_are_not_of_their_version(old, new, held, code):
    series = series_of(versions(old, new, to=new))
    with refused(MigrationError, code):
        apply(payload(series.at(1), {"a": held}), plan(series, 1, 2))


def test_lists_become_arrays_when_they_are_read(monkeypatch):
    read = []
    exact = conversions.cast_array
    monkeypatch.setattr(
        conversions, "cast_array", lambda array, *a, **k: read.append(1) or exact(array, *a, **k)
    )
    old, new = versions("list[float]", "float64[n]", to="float64[n]")
    after = apply(payload(old, {"a": [0.5] * 4}), plan(series_of([old, new]), 1, 2))
    assert read == [] and after.document["arrays"]["a"] == {"dtype": "float64", "shape": [4]}
    assert after.arrays["a"].tolist() == [0.5] * 4 and read == [1]


NUMBERS = {
    "float": st.floats(width=16),
    "int": st.integers(-(2**10), 2**10),
    "bool": st.booleans(),
}


@given(
    st.data(),
    st.sampled_from([*NUMBERS]),
    st.sampled_from(["int16", "float16", "float64", "bfloat16", "complex64"]),
)
def test_law_lists_and_arrays_are_inverse(data, kind, dtype):
    """What a conversion takes, it gives back; it refuses the rest."""
    old, new = versions(f"list[{kind}]", f"{dtype}[n]", to=f"{dtype}[n]")
    numbers = data.draw(st.lists(NUMBERS[kind], max_size=4))
    nodes = [number_node(number) for number in numbers]
    series = series_of([old, new])
    there = apply(payload(old, {"a": nodes}), plan(series, 1, 2))
    try:
        there.arrays["a"]
    except MigrationError as error:
        assert error.code == "NQX213"
        return
    back = apply(there, plan(series, 2, 1))
    made = value(back.document["manifest"], back.arrays)["a"]
    assert list(map(repr, made)) == list(map(repr, nodes))


# ---------------------------------------------------------------------------------------------------------------------
# Files, in all stores.

HEADER = 'language: "1"\nschema: lab.fit\nversion: {}\nroot: Fit\nstructs:\n  Fit:\n    fields:\n'
V1 = HEADER.format(1) + (
    "      step: int\n      betas: list[float]\n      rate: float\n      spectrum: float32[n]\n"
)
V2 = HEADER.format(2) + (
    "      step: float\n      betas: float64[k]\n      rate: float32[]\n      spectrum: list[float]\n"
    "migrations:\n  - from: 1\n    steps:\n"
    "      - convert: {field: step, to: float}\n"
    '      - convert: {field: betas, to: "float64[k]"}\n'
    '      - convert: {field: rate, to: "float32[]"}\n'
    '      - convert: {field: spectrum, to: "list[float]"}\n'
)


def test_bundles_are_loaded_and_migrated_up_and_down(tmp_path):
    folder = tmp_path / "fit"
    folder.mkdir()
    (folder / "v1.yaml").write_text(V1)
    (folder / "v2.yaml").write_text(V2)
    schema = s.load_schema(folder)
    old = schema.at(1).Fit(step=3, betas=[0.9, 0.999], rate=0.5, spectrum=jnp.arange(3.0))
    old.export(tmp_path / "old")
    new = schema.load(tmp_path / "old")
    assert (new.step, type(new.step)) == (3.0, float)
    assert (new.betas.tolist(), new.spectrum) == ([0.9, 0.999], [0.0, 1.0, 2.0])
    assert new.rate.dtype == "float32"
    done = s.migrate(tmp_path / "old", tmp_path / "new", schema=folder)
    assert done.plan.cost == "streaming"
    assert s.validate(tmp_path / "new", schema=folder) == []
    s.migrate(tmp_path / "new", tmp_path / "back", schema=folder, to=1)
    back = schema.at(1).load(tmp_path / "back")
    assert (back.step, back.betas, back.rate) == (3, [0.9, 0.999], 0.5)
    assert type(back.step) is int and back.spectrum.tolist() == [0, 1, 2]


def test_a_number_of_any_dtype_has_no_way_back_and_a_hint():
    first = doc({"a": "floating[]"})
    second = doc({"a": "float"}, 2, [steps.convert(field="a", to="float")])
    (found,) = [d for d in lint_series(series_of([first, second])) if d.code == "NQX307"]
    assert "floating[]" in found.message
    assert "`python` step with `inverse:`" in found.hint
