"""Migration steps: declarations, payloads, inverses, and that the three agree."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neuralqx_struct.dtypes import DTYPES, dtype_named, promotes
from neuralqx_struct.dtypes.casts import cast, join_complex
from neuralqx_struct.errors import MigrationError, SchemaError
from neuralqx_struct.evolution import steps as s
from neuralqx_struct.evolution.differences import differences
from neuralqx_struct.evolution.plans import apply, plan
from neuralqx_struct.evolution.proof import prove
from neuralqx_struct.evolution.steps import stages_of, undone
from neuralqx_struct.expressions import parse
from neuralqx_struct.manifest.payload import HeldArrays, Payload, check
from neuralqx_struct.schema.migration import StepItem
from neuralqx_struct.schema.reading import document_from_data
from neuralqx_struct.schema.series import series_of
from neuralqx_struct.schema.sizes.comparison import readable_as, same_size, substitute
from neuralqx_struct.tools.linting import lint_series
from neuralqx_struct.types.text import format_type, parse_type
from tests.builders import (
    F4,
    STEPS,
    bounded,
    cases,
    conforms,
    doc,
    every,
    payload,
    refused,
    same,
    up,
    value,
)

# Each step: what it is applied to, and what comes out.


@every("case", STEPS.values())
def test_step(case):
    fields, wanted, step, values, expected = case
    if isinstance(values.get("a"), dict) and values["a"].get("__kind__") == "prng-key":
        words = values["a"]["data"]
        key = {
            **values["a"],
            "data": {"__kind__": "array", "name": "a", "dtype": "uint32", "shape": [4]},
        }
        old, new = doc(fields), doc(wanted, 2, [step])
        held = payload(old, {"a": key})
        held = Payload(
            {**held.document, "arrays": {"a": {"dtype": "uint32", "shape": [4]}}}, {"a": words}
        )
        assert conforms(old, held) == []
        after = apply(held, plan(series_of([old, new]), 1, 2))
        assert conforms(new, after) == []
    else:
        after = up(doc(fields), doc(wanted, 2, [step]), values)
    assert same(value(after.document["manifest"], after.arrays), expected)
    assert list(after.document["manifest"]["fields"]) == list(wanted)


@every("case", STEPS.values())
def test_inverse_on_declarations(case):
    fields, wanted, step, _, _ = case
    old, new = doc(fields), doc(wanted, 2, [step])
    stages = stages_of(old, [step], new)
    assert differences(stages[-1].after, new) == []
    back = undone(stages, new)
    result = back[-1].after if back else new
    if step != s.fill(field="a", value=4):  # T is stored as `T | null` is: the way back is no step
        assert differences(result, old) == []
    assert differences(old, result) == [] or not back


@every("name", [n for n in STEPS if n not in ("fill", "unwrap_key")])
def test_inverse_on_payloads(name):
    fields, wanted, step, values, _ = STEPS[name]
    old, new = doc(fields), doc(wanted, 2, [step])
    there = up(old, new, values)
    back = apply(there, plan(series_of([old, new]), 2, 1))
    assert conforms(old, back) == []
    assert same(
        value(back.document["manifest"], back.arrays),
        value(payload(old, values).document["manifest"], payload(old, values).arrays),
    )


NESTED = {
    "A": {"layers": "list[Layer]", "named": "dict[str, Layer]", "n": "int"},
    "Layer": {"w": "float32[i, o]", "b": "float32[o]"},
}


def layer(i, o):
    return ("Layer", {"w": np.full((i, o), i, "f4"), "b": np.full(o, o, "f4")})


def test_step_reaches_every_instance_with_its_own_sizes():
    old = doc(NESTED["A"], structs={"Layer": NESTED["Layer"]})
    changed = {"wt": "float32[o, i]", "b": "float32[o]", "scale": "float32[i]"}
    steps = [s.transpose(field="w", within="Layer"), s.rename(field="w", to="wt", within="Layer")]
    steps.append(s.add(field="scale", default=1, within="Layer"))
    new = doc(NESTED["A"], 2, steps, structs={"Layer": changed})
    after = up(
        old, new, {"layers": [layer(2, 3), layer(3, 4)], "named": {"x": layer(5, 1)}, "n": 1}
    )
    fields = value(after.document["manifest"], after.arrays)
    assert [x["wt"].shape for x in (*fields["layers"], fields["named"]["x"])] == [
        (3, 2),
        (4, 3),
        (1, 5),
    ]
    assert [x["scale"]["shape"] for x in (*fields["layers"], fields["named"]["x"])] == [
        [2],
        [3],
        [5],
    ]
    assert list(after.document["arrays"]) == list(after.arrays)


def test_rename_struct_and_reference():
    old = doc(NESTED["A"], structs={"Layer": NESTED["Layer"]})
    wanted = {"layers": "list[Dense]", "named": "dict[str, Dense]", "n": "int"}
    new = doc(
        wanted, 2, [s.rename_struct(struct="Layer", to="Dense")], structs={"Dense": NESTED["Layer"]}
    )
    values = {"layers": [layer(2, 3)], "named": {}, "n": 1}
    after = up(old, new, values)
    assert after.document["manifest"]["fields"]["layers"]["items"][0]["type"] == "lab.a@2:Dense"
    back = apply(after, plan(series_of([old, new]), 2, 1))
    assert back.document["manifest"] == payload(old, values).document["manifest"]


MOVES = {
    "into a new struct": (
        {"x": "int", "y": "str"},
        {},
        {"in": "In"},
        {"In": {"x": "int", "y": "str"}},
        ["x", "y"],
    ),
    "some of them": (
        {"x": "int", "y": "str"},
        {},
        {"in": "In", "y": "str"},
        {"In": {"x": "int"}},
        ["x"],
    ),
    "into one that is there": (
        {"in": "In", "x": "int", "y": "str"},
        {"In": {"z": "int"}},
        {"in": "In"},
        {"In": {"x": "int", "y": "str", "z": "int"}},
        ["x", "y"],
    ),
}


@pytest.mark.parametrize("case", MOVES.values(), ids=MOVES)
def test_move_and_inline(case):
    fields, structs, wanted, inner, moved = case
    old = doc(fields, structs=structs)
    new = doc(wanted, 2, [s.move(fields=moved, into="in", struct="In")], structs=inner)
    values = {"x": 1, "y": "two", "in": ("In", {"z": 3})}
    values = {name: values[name] for name in fields}
    after = up(old, new, values)
    series = series_of([old, new])
    assert value(after.document["manifest"], {})["in"] == {
        k: {"x": 1, "y": "two", "z": 3}[k] for k in inner["In"]
    }
    back = apply(after, plan(series, 2, 1))
    assert back.document["manifest"] == payload(old, values).document["manifest"]
    # the other way round: inline is the step, move its inverse
    inlined = doc(fields, 2, [s.inline(field="in", fields=moved)], structs=structs)
    start = doc(wanted, structs=inner)
    down = series_of([start, inlined])
    there = apply(payload(start, _instance(after.document["manifest"])), plan(down, 1, 2))
    assert conforms(inlined, there) == []
    again = apply(there, plan(down, 2, 1))
    assert conforms(start, again) == []


def _instance(tree):
    return {
        k: (v["type"].rpartition(":")[2], v["fields"]) if isinstance(v, dict) else v
        for k, v in tree["fields"].items()
    }


def test_parameters_of_a_struct_are_bound_where_it_moves():
    old = doc({"w": "float32[n, m]", "b": "float32[m]"})
    data = {
        "fields": {"dense": "Dense[n, m]"},
        "structs": {
            "A": {"fields": {"dense": "Dense[n, m]"}},
            "Dense": {"params": ["i", "o"], "fields": {"w": "float32[i, o]", "b": "float32[o]"}},
        },
    }
    move = s.move(fields=["w", "b"], into="dense", struct="Dense")
    new = doc(data["fields"], 2, [move])
    new = new.model_copy(
        update={
            "structs": document_from_data(
                {**doc({}).to_data(), "structs": data["structs"]}, "t"
            ).structs
        }
    )
    after = up(old, new, {"w": F4, "b": F4[0]})
    assert differences(undone(stages_of(old, [move], new), new)[-1].after, old) == []
    assert value(after.document["manifest"], after.arrays)["dense"]["w"].shape == (2, 3)


# ---------------------------------------------------------------------------------------------------------------------
# Arrays: sharing, laziness, constants.


class Counting(dict):
    reads = 0

    def __getitem__(self, name):
        self.reads += 1
        return super().__getitem__(name)


def test_arrays_are_read_when_asked_for_and_not_kept():
    old = doc({"a": "float32[n]", "b": "float32[n]"})
    new = doc(
        {"x": "complex64[n]", "k": "int"},
        2,
        [s.merge(fields=["a", "b"], into="x", how="complex"), s.add(field="k", default=1)],
    )
    held = payload(old, {"a": np.ones(3, "f4"), "b": np.zeros(3, "f4")})
    counting = Counting(held.arrays)
    after = apply(Payload(held.document, counting), plan(series_of([old, new]), 1, 2))
    assert check(after) == []
    assert counting.reads == 0
    first, second = after.arrays["x"], after.arrays["x"]
    assert counting.reads == 4
    assert first is not second
    assert first.tobytes() == second.tobytes()
    assert list(after.arrays) == ["x"]
    assert len(after.arrays) == 1
    assert "a" not in after.arrays
    with pytest.raises(KeyError):
        after.arrays["a"]


def test_untouched_arrays_are_the_same_objects_under_their_names():
    old, new = doc({"a": "float32[n]"}), doc({"z": "float32[n]"}, 2, [s.rename(field="a", to="z")])
    held = payload(old, {"a": np.ones(3, "f4")})
    after = apply(held, plan(series_of([old, new]), 1, 2))
    assert after.arrays["a"] is held.arrays["a"]
    assert after.document["arrays"]["a"] is held.document["arrays"]["a"]
    assert isinstance(after.arrays, HeldArrays)
    assert after.arrays.verify("a") is None


def shared(fields, array):
    old = doc(fields)
    held = payload(old, dict.fromkeys(fields, array))
    tree = {
        **held.document["manifest"],
        "fields": {k: {**v, "name": "a"} for k, v in held.document["manifest"]["fields"].items()},
    }
    return old, Payload(
        {**held.document, "manifest": tree, "arrays": {"a": held.document["arrays"]["a"]}},
        {"a": array},
    )


def test_a_change_of_one_of_two_shared_arrays_leaves_the_other():
    old, held = shared({"a": "float32[2]", "b": "float32[2]"}, np.array([1, 2], "f4"))
    new = doc({"a": "float64[2]", "b": "float32[2]"}, 2, [s.cast(field="a", dtype="float64")])
    after = apply(held, plan(series_of([old, new]), 1, 2))
    got = value(after.document["manifest"], after.arrays)
    assert (got["a"].dtype, got["b"].dtype) == (np.float64, np.float32)
    assert got["b"] is held.arrays["a"]
    assert check(after) == []


def test_shared_arrays_that_change_alike_stay_shared():
    old, held = shared({"a": "float32[2]", "b": "float32[2]"}, np.array([1, 2], "f4"))
    steps = [s.cast(field=name, dtype="float64") for name in "ab"]
    after = apply(
        held, plan(series_of([old, doc({"a": "float64[2]", "b": "float64[2]"}, 2, steps)]), 1, 2)
    )
    names = {after.document["manifest"]["fields"][k]["name"] for k in "ab"}
    assert len(names) == 1 == len(after.document["arrays"])


def full(dtype, shape, number):
    return {"__kind__": "full", "dtype": dtype, "shape": shape, "value": number, "leaf": "jax"}


FULL = {
    "cast": (s.cast(field="a", dtype="int8"), "int8[2, 3]", full("int8", [2, 3], 2)),
    "cast to bfloat16": (
        s.cast(field="a", dtype="bfloat16"),
        "bfloat16[2, 3]",
        full("bfloat16", [2, 3], 2.0),
    ),
    "transpose": (s.transpose(field="a"), "float32[3, 2]", full("float32", [3, 2], 2.0)),
    "reshape": (s.reshape(field="a", shape=[6]), "float32[6]", full("float32", [6], 2.0)),
}


@pytest.mark.parametrize("case", FULL.values(), ids=FULL)
def test_constant_arrays_stay_constant(case):
    step, wanted, expected = case
    after = up(
        doc({"a": "float32[2, 3]"}),
        doc({"a": wanted}, 2, [step]),
        {"a": full("float32", [2, 3], 2.0)},
    )
    assert after.document["manifest"]["fields"]["a"] == expected
    assert after.document["arrays"] == {}


def test_constant_arrays_are_split_and_merged():
    zero, nan = (
        full("float32", [2], -0.0),
        full("float32", [2], {"__kind__": "float", "value": "nan"}),
    )
    old = doc({"a": "float32[2]", "b": "float32[2]"})
    merge = s.merge(fields=["a", "b"], into="c", how="complex")
    new = doc({"c": "complex64[2]"}, 2, [merge])
    after = up(old, new, {"a": zero, "b": nan})
    assert (
        after.arrays["c"].tobytes()
        == join_complex(np.full(2, -0.0, "f4"), np.full(2, np.nan, "f4"), "complex64").tobytes()
    )
    part = s.split(field="c", into=["x", "y"], how="complex")
    constant = full(
        "complex64",
        [2],
        {"__kind__": "complex", "real": 1.5, "imag": {"__kind__": "float", "value": "inf"}},
    )
    after = up(
        doc({"c": "complex64[2]"}),
        doc({"x": "float32[2]", "y": "float32[2]"}, 2, [part]),
        {"c": constant},
    )
    fields = after.document["manifest"]["fields"]
    assert (fields["x"]["value"], fields["y"]["value"]) == (
        1.5,
        {"__kind__": "float", "value": "inf"},
    )


def test_a_constant_key_gets_words_of_its_own():
    new = doc({"a": "prng_key[threefry2x32]"}, 2, [s.wrap_key(field="a", impl="threefry2x32")])
    after = up(doc({"a": "uint32[2]"}), new, {"a": full("uint32", [2], 3)})
    assert after.document["manifest"]["fields"]["a"]["data"]["leaf"] == "jax"
    assert [after.arrays[name].tolist() for name in after.arrays] == [[3, 3]]


def test_numpy_scalars_are_cast():
    scalar = {"__kind__": "numpy-scalar", "dtype": "float32", "value": 2.5}
    old, new = (
        doc({"a": "float32[]"}),
        doc({"a": "float64[]"}, 2, [s.cast(field="a", dtype="float64")]),
    )
    after = apply(payload(old, {"a": scalar}), plan(series_of([old, new]), 1, 2))
    assert after.document["manifest"]["fields"]["a"] == {**scalar, "dtype": "float64"}


def test_weak_type_is_dropped_by_a_cast_and_kept_by_a_reshape():
    old = doc({"a": "float32[1]"})
    held = payload(old, {"a": np.ones(1, "f4")})
    held.document["manifest"]["fields"]["a"] |= {"leaf": "jax", "weak_type": True}
    for step, wanted, kept in (
        (s.cast(field="a", dtype="float64"), "float64[1]", False),
        (s.reshape(field="a", shape=[]), "float32[]", True),
    ):
        after = apply(held, plan(series_of([old, doc({"a": wanted}, 2, [step])]), 1, 2))
        made = after.document["manifest"]["fields"]["a"]
        assert made["leaf"] == "jax"
        assert ("weak_type" in made) is kept


# ---------------------------------------------------------------------------------------------------------------------
# What is refused.

BASE = {
    "a": "float32[n]",
    "b": "float32[n, 3]",
    "c": "complex64[n]",
    "k": "uint32[2]",
    "o": "int | null",
    "i": "int",
    "key": "prng_key",
}
REFUSED = [
    (s.rename(field="aa", to="x"), "NQX304", "field"),
    (s.rename(field="a", to="b"), "NQX304", "free"),
    (s.rename(field="a", to="a"), "NQX306", "name"),
    (s.rename(field="op", to="x"), "NQX306", "stored"),
    (s.rename(field="a", to="x", within="B"), "NQX304", "version 1"),
    (s.add(field="nope", default=1), "NQX304", "version 2"),
    (s.add(field="new", default="text"), "NQX107", "float"),
    (s.add(field="new", default=None), "NQX107", "null"),
    (s.add(field="a", default=0), "NQX304", "free"),
    (s.add(field="sized", default=0), "NQX105", "new_dim"),
    (s.reshape(field="b", shape=["new_dim"]), "NQX105", "new_dim"),
    (s.remove(field="a"), "NQX308", "undo_default"),
    (s.remove(field="i", undo_default="x"), "NQX107", "int"),
    (s.cast(field="a", dtype="float46"), "NQX102", "dtype"),
    (s.cast(field="a", dtype="float32"), "NQX306", "effect"),
    (s.cast(field="i", dtype="float32"), "NQX304", "array"),
    (s.cast(field="a", dtype="int8", exact=False), "NQX308", "lossy"),
    (s.transpose(field="b", axes=[0, 0]), "NQX304", "axes"),
    (s.transpose(field="b", axes=[0, 1]), "NQX306", "order"),
    (s.transpose(field="a"), "NQX306", "order"),
    (s.transpose(field="any", axes=[1, 0]), "NQX304", "rank"),
    (s.reshape(field="b", shape=["n", 4]), "NQX305", "elements"),
    (s.reshape(field="b", shape=["n", 3]), "NQX306", "effect"),
    (s.split(field="b", axis=1, into={"x": 1, "y": 1}), "NQX309", "sum"),
    (s.split(field="a", into={"x": "m", "y": 1}), "NQX105", "m"),
    (s.split(field="a", into={"x": "n", "y": 1}), "NQX309", "sum"),
    (s.split(field="b", axis=1, into=["x", "y"]), "NQX309", "size"),
    (s.split(field="b", axis=1, into=["x", "y"], how="stack"), "NQX309", "names"),
    (s.split(field="b", axis=2, into=["x", "y"], how="stack"), "NQX304", "axis"),
    (s.split(field="a", into=["x", "y"], how="complex"), "NQX310", "complex"),
    (s.split(field="i", into=["x", "y"], how="complex"), "NQX304", "array"),
    (s.split(field="c", into=["x", "x"], how="complex"), "NQX304", "distinct"),
    (s.split(field="any", into={"x": 1}), "NQX304", "rank"),
    (s.merge(fields=["a", "c"], into="x", how="concat"), "NQX310", "dtype"),
    (s.merge(fields=["a", "b"], into="x", how="stack"), "NQX310", "shape"),
    (s.merge(fields=["c", "c2"], into="x", how="complex"), "NQX310", "float32"),
    (s.merge(fields=["a", "a"], into="x", how="stack"), "NQX304", "distinct"),
    (s.merge(fields=["a", "an"], into="x", how="stack"), "NQX310", "null"),
    (s.merge(fields=["a", "z"], into="x", how="stack"), "NQX304", "field"),
    (s.fill(field="i", value=1), "NQX306", "null"),
    (s.fill(field="o", value="x"), "NQX107", "int"),
    (s.wrap_key(field="k", impl="threefry"), "NQX420", "implementation"),
    (s.wrap_key(field="k", impl="rbg"), "NQX420", "words"),
    (s.wrap_key(field="a", impl="rbg"), "NQX420", "words"),
    (s.unwrap_key(field="key"), "NQX420", "implementation"),
    (s.unwrap_key(field="a"), "NQX304", "prng_key"),
    (s.move(fields=["a"], into="i", struct="In"), "NQX304", "type In"),
    (s.move(fields=["a"], into="x", struct="In"), "NQX304", "differs"),
    (s.move(fields=["i"], into="s1", struct="In"), "NQX304", "place"),
    (s.inline(field="a", fields=["z"]), "NQX304", "struct"),
    (s.inline(field="s1", fields=["z"]), "NQX304", "place"),
    (s.inline(field="s3", fields=["zz", "y"]), "NQX304", "Solo"),
    (s.rename_struct(struct="Inn", to="X"), "NQX304", "version 1"),
    (s.rename_struct(struct="In", to="In"), "NQX306", "same"),
    (s.rename_struct(struct="In", to="A"), "NQX304", "free"),
]


@every(("step", "code", "word"), REFUSED)
def test_declaration_refuses(step, code, word):
    more = {
        "c2": "complex64[n]",
        "an": "float32[n] | null",
        "any": "float32[..., 3]",
        "s3": "Solo",
        "op": {"kind": "opaque", "default": None},
    }
    old = doc(
        {**BASE, **more, "s1": "In", "s2": "In"},
        structs={"In": {"z": "int", "y": "int"}, "Solo": {"z": "int", "y": "int"}},
    )
    new = doc({"new": "float", "sized": "float32[new_dim]"}, 2)
    with pytest.raises(SchemaError) as caught:
        s.apply_to_document(old, step, new)
    (found,) = caught.value.diagnostics
    assert found.code == code
    assert word in found.message


def test_refusals_suggest_the_name_that_was_meant():
    with pytest.raises(SchemaError) as caught:
        s.apply_to_document(doc({"kernel": "int"}), s.rename(field="kernal", to="x"), doc({}, 2))
    assert caught.value.diagnostics[0].hint == "did you mean 'kernel'?"
    new = doc({"box": "Box"}, 2, structs={"Box": {"rule": "int"}})
    with pytest.raises(SchemaError) as caught:
        s.apply_to_document(doc({"a": "int"}), s.add(field="rule", default=1), new)
    assert caught.value.diagnostics[0].hint.startswith("Box has it there: write `in: Box`")


BAD_PAYLOADS = {
    "missing field": ({"a": "int"}, {"b": "int"}, s.rename(field="a", to="b"), {}, "NQX414"),
    "field in the way": (
        {"a": "int"},
        {"b": "int"},
        s.rename(field="a", to="b"),
        {"a": 1, "b": 2},
        "NQX415",
    ),
    "no array": (
        {"a": "complex64[]"},
        {"x": "float32[]", "y": "float32[]"},
        s.split(field="a", into=["x", "y"], how="complex"),
        {"a": 1},
        "NQX411",
    ),
    "not complex": (
        {"a": "complex64[]"},
        {"x": "float32[]", "y": "float32[]"},
        s.split(field="a", into=["x", "y"], how="complex"),
        {"a": np.zeros((), "f4")},
        "NQX411",
    ),
    "another rank": (
        {"a": "int8[2, 3]"},
        {"a": "int8[3, 2]"},
        s.transpose(field="a", axes=[1, 0]),
        {"a": np.zeros(3, "i1")},
        "NQX412",
    ),
    "another size": (
        {"a": "int8[4]"},
        {"a": "int8[2, 2]"},
        s.reshape(field="a", shape=[2, 2]),
        {"a": np.zeros(3, "i1")},
        "NQX412",
    ),
    "sizes do not sum": (
        {"a": "int8[4]"},
        {"x": "int8[1]", "y": "int8[3]"},
        s.split(field="a", into={"x": 1, "y": 3}),
        {"a": np.zeros(3, "i1")},
        "NQX412",
    ),
    "operands differ": (
        {"a": "float32[2]", "b": "float32[2]"},
        {"c": "complex64[2]"},
        s.merge(fields=["a", "b"], into="c", how="complex"),
        {"a": np.zeros(2, "f4"), "b": np.zeros(3, "f4")},
        "NQX310",
    ),
    "one null": (
        {"a": "float32[2] | null", "b": "float32[2] | null"},
        {"c": "complex64[2] | null"},
        s.merge(fields=["a", "b"], into="c", how="complex"),
        {"a": np.zeros(2, "f4"), "b": None},
        "NQX310",
    ),
    "three words": (
        {"k": "uint32[2]"},
        {"k": "prng_key[threefry2x32]"},
        s.wrap_key(field="k", impl="threefry2x32"),
        {"k": np.zeros(3, "u4")},
        "NQX420",
    ),
    "no key": (
        {"k": "prng_key[rbg]"},
        {"k": "uint32[4]"},
        s.unwrap_key(field="k"),
        {"k": 1},
        "NQX420",
    ),
}


@every("case", BAD_PAYLOADS.values())
def test_payload_that_is_not_of_its_version(case):
    fields, wanted, step, values, code = case
    old, new = doc(fields), doc(wanted, 2, [step])
    with refused(MigrationError, code) as caught:
        apply(payload(old, values), plan(series_of([old, new]), 1, 2))
    assert caught.value.diagnostics[0].path.startswith("$")


def test_nested_struct_that_is_not_there():
    old, new = (
        doc({"in": "In"}, structs={"In": {"x": "int", "y": "int"}}),
        doc({"x": "int", "y": "int"}, 2, [s.inline(field="in", fields=["x", "y"])]),
    )
    way = plan(series_of([old, new]), 1, 2)
    for bad in (None, ("In", {"x": 1})):
        with refused(MigrationError, "NQX414"):
            apply(payload(old, {"in": bad}), way)
    old = doc({"in": "In", "x": "int"}, structs={"In": {"y": "int"}})
    new = doc(
        {"in": "In"},
        2,
        [s.move(fields=["x"], into="in", struct="In")],
        structs={"In": {"x": "int", "y": "int"}},
    )
    way = plan(series_of([old, new]), 1, 2)
    for bad, code in ((3, "NQX414"), (("In", {"x": 1, "y": 1}), "NQX415")):
        with refused(MigrationError, code):
            apply(payload(old, {"in": bad, "x": 1}), way)


def test_no_way_back():
    old = doc(
        {
            "a": "float32[...]",
            "b": "list[float32[n] | float64[n]]",
            "c": "int",
            "d": "int8[p, m]",
            "e": "int8[i]",
            "f": "int8[j]",
        }
    )
    target = doc({"a": "float32[4]", "b": "list[float64[n]]"}, 2)
    for step, code in (
        (s.reshape(field="a", shape=[4]), "NQX307"),
        (s.cast(field="b", dtype="float64"), "NQX307"),
        (s.reshape(field="d", shape=["p * m"]), "NQX307"),
        (s.merge(fields=["e", "f"], into="g", how="concat"), "NQX307"),
        (s.remove(field="c", lossy=True), "NQX423"),
    ):
        after = s.apply_to_document(old, step, target)
        with refused(SchemaError, code):
            s.inverse(step, old, after)


# ---------------------------------------------------------------------------------------------------------------------
# Values in steps, and sizes that they need.

INF = {"__kind__": "float", "value": "inf"}
VALUES = [
    ("bool", True, True),
    ("int", 3, 3),
    ("float", 3, 3.0),
    ("complex", 2, {"__kind__": "complex", "real": 2.0, "imag": 0.0}),
    ("str", "a", "a"),
    ("path", "a/b", {"__kind__": "path", "value": "a/b"}),
    ("dtype", "int8", {"__kind__": "dtype", "value": "int8"}),
    ("bytes", "a", {"__kind__": "bytes", "base64": "YQ=="}),
    ('literal["a", 1]', 1, 1),
    ("E", "up", "up"),
    ("list[int]", [1, 2], {"__kind__": "list", "items": [1, 2]}),
    ("tuple[int, str]", [1, "a"], {"__kind__": "tuple", "items": [1, "a"]}),
    ("tuple[int, ...]", [1, 2], {"__kind__": "tuple", "items": [1, 2]}),
    ("dict[str, float]", {"a": 1}, {"__kind__": "dict", "items": [["a", 1.0]]}),
    (
        "pytree",
        [1.5, {"a": None}],
        {"__kind__": "list", "items": [1.5, {"__kind__": "dict", "items": [["a", None]]}]},
    ),
    ("int | str | null", "a", "a"),
    ("bool[]", False, {"__kind__": "full", "dtype": "bool", "shape": [], "value": False}),
    (
        "complex64[2]",
        1,
        {
            "__kind__": "full",
            "dtype": "complex64",
            "shape": [2],
            "value": {"__kind__": "complex", "real": 1.0, "imag": 0.0},
        },
    ),
    ("In", {"z": 1}, {"__kind__": "struct", "type": "lab.a@1:In", "fields": {"z": 1, "d": 5}}),
]
IN = {
    "structs": {"In": {"z": "int", "d": {"type": "int", "default": 5}}},
    "enums": {"E": ["up", "down"]},
}


@every(("declared", "default", "expected"), VALUES)
def test_added_values_become_what_the_type_says(declared, default, expected):
    new = doc({"b": declared}, 2, [s.add(field="b", default=default)], **IN)
    after = up(doc({}, **IN), new, {})
    if isinstance(expected, dict) and expected.get("type"):
        expected = {**expected, "type": "lab.a@2:In"}
    assert same(after.document["manifest"]["fields"]["b"], expected)
    assert conforms(doc({}, **IN), apply(after, plan(series_of([doc({}, **IN), new]), 2, 1))) == []


WRONG_VALUES = [
    ("bool", 1),
    ("int", True),
    ("int", 1.5),
    ("float", "x"),
    ("E", "left"),
    ('literal["a"]', "b"),
    ("list[int]", ["a"]),
    ("tuple[int, int]", [1]),
    ("dict[str, int]", [1]),
    ("int | str", 1.5),
    ("int8[2]", 1.5),
    ("bool[2]", 1),
    ("int8[...]", 1),
    ("int8[2]", ["a", "b"]),
    ("int8[2]", [1000, 1]),
    ("In", {"y": 1}),
    ("In", {}),
    ("prng_key", 1),
    ("null", 1),
]


@every(("declared", "default"), WRONG_VALUES)
def test_added_values_that_do_not_fit(declared, default):
    with pytest.raises(SchemaError) as caught:
        s.apply_to_document(
            doc({}, **IN), s.add(field="b", default=default), doc({"b": declared}, 2, **IN)
        )
    assert (caught.value.code, caught.value.diagnostics[0].path) == ("NQX107", "default")


#: Sizes that some payloads do not show: a value that needs them could not be loaded from those.
NOT_SHOWN = {
    "a union": ({"a": "int8[n, 1] | int8[n]"}, "int8[n]", 0, "NQX105"),
    "null": ({"a": "int8[n] | null"}, "int8[n]", 0, "NQX105"),
    "an int that is no static field": ({"k": "int"}, "int8[k]", 0, "NQX105"),
    "any size": ({"a": "int8[_]"}, "int8[_]", 0, "NQX105"),
    "two unknown factors": ({"b": "int8[k * n]"}, "int8[n]", 0, "NQX105"),
    "a list of one length": ({"a": "int8[n]"}, "int8[n]", [1, 2], "NQX107"),
    "a list of two lengths": ({}, "int8[n, n]", [[1, 2]], "NQX107"),
    "a list with too few axes": ({}, "int8[n, m]", [1, 2], "NQX107"),
    "a struct with a size of this name": ({"a": "int8[n]"}, "In", {"x": 0}, "NQX105"),
}


@every("case", NOT_SHOWN.values())
def test_a_value_needs_sizes_that_every_payload_shows(case):
    fields, declared, default, code = case
    structs = {"structs": {"In": {"x": "int8[n]"}}}
    new = doc({**fields, "v": declared}, 2, **structs)
    with pytest.raises(SchemaError) as caught:
        s.apply_to_document(doc(fields, **structs), s.add(field="v", default=default), new)
    assert (caught.value.code, caught.value.diagnostics[0].path) == (code, "default")


SIZES = {
    "equals": ({"a": "int8[n]"}, {"a": np.zeros(3, "i1")}, "2 * m", 14),
    "equals, solved backwards": ({"a": "int8[m]"}, {"a": np.zeros(7, "i1")}, "n", 3),
    "a static int of the root": ({"k": {"type": "int", "kind": "static"}}, {"k": 4}, "k + 1", 5),
    "a key": (
        {"a": {"type": "prng_key", "impl": "rbg", "shape": ["n"]}},
        {"a": {"__kind__": "prng-key", "impl": "rbg", "data": full("uint32", [6, 4], 0)}},
        "n",
        6,
    ),
    "a list": ({"a": "list[int8[n]]"}, {"a": [np.zeros(2, "i1")]}, "n", 2),
    "a tuple": (
        {"a": "tuple[int, int8[n]]"},
        {"a": {"__kind__": "tuple", "items": [1, full("int8", [2], 0)]}},
        "n",
        2,
    ),
    "dots": ({"a": "int8[n, ..., 3]"}, {"a": np.zeros((2, 5, 5, 3), "i1")}, "n", 2),
}


@pytest.mark.parametrize("case", SIZES.values(), ids=SIZES)
def test_sizes_are_read_off_the_payload(case):
    fields, values, size, expected = case
    dims = {"dims": {"m": {"equals": "2 * n + 1"}}}
    old, new = (
        doc(fields, **dims),
        doc(
            {**fields, "b": {"type": "array", "dtype": "int8", "shape": [size]}},
            2,
            [s.add(field="b", default=0)],
            **dims,
        ),
    )
    after = apply(payload(old, values), plan(series_of([old, new]), 1, 2))
    assert after.document["manifest"]["fields"]["b"]["shape"] == [expected]


def test_sizes_inside_a_tuple():
    old, new = (
        doc({"a": "tuple[int8[n], int]"}),
        doc({"a": "tuple[int8[n], int]", "b": "int8[n]"}, 2, [s.add(field="b", default=0)]),
    )
    held = payload(old, {"a": {"__kind__": "tuple", "items": [full("int8", [3], 0), 1]}})
    assert apply(held, plan(series_of([old, new]), 1, 2)).document["manifest"]["fields"]["b"][
        "shape"
    ] == [3]


def test_optional_keys_and_free_shapes():
    old = doc({"k": {"type": "uint32[2] | null"}, "a": "int8[..., 2]", "b": "int8[...]"})
    steps = [
        s.wrap_key(field="k", impl="threefry2x32"),
        s.transpose(field="a"),
        s.transpose(field="b", axes=[1, 0]),
    ]
    new = doc(
        {"k": "prng_key[threefry2x32] | null", "a": "int8[2, ...]", "b": "int8[...]"}, 2, steps
    )
    array = np.arange(4, dtype="i1").reshape(2, 2)
    after = up(old, new, {"k": None, "a": array, "b": array})
    back = apply(after, plan(series_of([old, new]), 2, 1))
    assert conforms(old, back) == []
    assert same(value(back.document["manifest"], back.arrays), {"k": None, "a": array, "b": array})


def test_a_cast_skips_arrays_that_are_of_the_dtype_already():
    old, new = (
        doc({"a": "float32[n] | float64[n]"}),
        doc({"a": "float64[n]"}, 2, [s.cast(field="a", dtype="float64")]),
    )
    held = payload(old, {"a": np.ones(2)})
    after = apply(held, plan(series_of([old, new]), 1, 2))
    assert after.arrays["a"] is held.arrays["a"]


def test_move_into_a_field_that_only_looks_like_a_struct():
    old = doc({"in": "E", "x": "int"}, enums={"E": ["a"]})
    with refused(SchemaError, "NQX304"):
        s.apply_to_document(old, s.move(fields=["x"], into="in", struct="E"), doc({}, 2))


# ---------------------------------------------------------------------------------------------------------------------
# Casts.


SMALL = [name for name, known in DTYPES.items() if known.bits <= 8 and known.family != "bool"]


def every_value(dtype):
    """An array of all values of a small dtype."""
    bits, named = DTYPES[dtype].bits, dtype_named(dtype)
    if bits == 8 or DTYPES[dtype].family == "floating":
        return np.arange(2**bits, dtype="u1").view(named)
    return np.arange(2**bits).astype(named)


def is_same(old, new):
    """Whether two numbers of Python are the same one, with the sign of zero."""
    if math.isnan(old) or math.isnan(new):
        return math.isnan(old) and math.isnan(new)
    return old == new and math.copysign(1, old) == math.copysign(1, new)


@every("new", SMALL)
@every("old", SMALL)
def test_an_exact_cast_keeps_each_number_or_refuses_it(old, new):
    for number in every_value(old):
        one = np.array([number])
        try:
            made = cast(one, new, exact=True, path="$")[0]
        except MigrationError:
            made = cast(one, new, exact=False, path="$")[0]
            overflows = DTYPES[new].exponents is None and not -128 <= float(number) <= 255
            assert overflows or not is_same(float(number), float(made))
        else:
            assert is_same(float(number), float(made))


@every("new", [name for name in DTYPES if name != "bool"])
@every("old", SMALL)
def test_promotion_is_what_a_cast_of_every_value_says(old, new):
    every = every_value(old)
    try:
        cast(every, new, exact=True, path="$")
    except MigrationError:
        exact = False
    else:
        exact = True
    assert promotes(old, new) is exact


def test_promotions_are_the_published_table():
    floats = "float32 float64 complex64 complex128"
    table = {
        "int8": f"int16 int32 int64 float16 bfloat16 {floats}",
        "int16": f"int32 int64 {floats}",
        "int32": "int64 float64 complex128",
        "int64": "",
        "uint64": "",
        "uint8": f"int16 int32 int64 uint16 uint32 uint64 float16 bfloat16 {floats}",
        "uint16": f"int32 int64 uint32 uint64 {floats}",
        "uint32": "int64 uint64 float64 complex128",
        "float8_e4m3fn": f"float16 bfloat16 {floats}",
        "float8_e5m2": f"float16 bfloat16 {floats}",
        "float16": floats,
        "bfloat16": floats,
        "float32": "float64 complex64 complex128",
        "float64": "complex128",
        "complex64": "complex128",
        "bool": "",
    }
    for old, targets in table.items():
        known = [
            n for n in DTYPES if not n.startswith(("float8", "float4")) and DTYPES[n].bits >= 8
        ]
        assert {n for n in known if n != old and promotes(old, n)} == set(targets.split()), old
    assert not promotes("float32", "no such dtype")


INEXACT = [
    (np.array([1.0, 0.5]), "int8", "[1]", "NQX213"),
    (np.array([[1.0], [np.nan]]), "int8", "[1, 0]", "NQX213"),
    (np.array([np.inf]), "int64", "[0]", "NQX213"),
    (np.array([-0.0]), "int8", "[0]", "NQX213"),
    (np.array([300.0]), "int8", "[0]", "NQX213"),
    (np.array(2**63, "u8"), "int64", "[]", "NQX213"),
    (np.array([2**64 - 1], "u8"), "float64", "[0]", "NQX213"),
    (np.array([2**63 - 1], "i8"), "float64", "[0]", "NQX213"),
    (np.array([2**53 + 1], "i8"), "float64", "[0]", "NQX213"),
    (np.array([16777217], "i4"), "float32", "[0]", "NQX213"),
    (np.array([1e300]), "float32", "[0]", "NQX213"),
    (np.array([0.1], "f8"), "float32", "[0]", "NQX213"),
    (np.array([257.0], "f4"), "bfloat16", "[0]", "NQX213"),
    (np.array([200], "u1"), "int4", "[0]", "NQX213"),
    (np.array([-1], "i1"), "uint8", "[0]", "NQX213"),
    (np.array([2], "i1"), "bool", "[0]", "NQX213"),
    (np.array([1, 1 + 2j]), "float64", "[1]", "NQX214"),
    (np.array([1 - 0.0j]).conj(), "float64", "[0]", "NQX214"),
    (np.array([1 + 0j, 1.5]), "int8", "[1]", "NQX214"),
]


@every(("array", "dtype", "index", "code"), INEXACT)
def test_exact_cast_refuses(array, dtype, index, code):
    with pytest.raises(MigrationError) as caught:
        cast(array, dtype, exact=True, path="$.x")
    (found,) = caught.value.diagnostics
    assert (found.code, found.path) == (code, "$.x")
    assert f"index {index}" in found.message
    assert cast(array, dtype, exact=False, path="$.x").dtype == dtype_named(dtype)


EXACT = [
    (np.array([np.nan, -0.0, np.inf, 1e-45], "f4"), "float64"),
    (np.array([1.0, -128.0, 127.0]), "int8"),
    (np.array([2**53, -(2**63)], "i8"), "float64"),
    (np.array([np.nan, 1.0]), "float32"),
    (np.array([True, False]), "int8"),
    (np.array([0, 1], "i4"), "bool"),
    (np.array([1.5 + 0j, complex(np.nan, 0), complex(-0.0, 0)]), "float32"),
    (np.array([-8, 7], "i1"), "int4"),
    (np.array([1.0, -2.0], "f4"), "float8_e4m3fn"),
    (np.array([7], "u1").astype(dtype_named("uint4")), "complex64"),
    (np.zeros((0, 3)), "int8"),
    (np.arange(600_000, dtype="f8"), "int32"),
]


@every(("array", "dtype"), EXACT)
def test_exact_cast_keeps_every_value(array, dtype):
    there = cast(array, dtype, exact=True, path="$")
    assert there.shape == array.shape
    assert there.dtype == dtype_named(dtype)
    back = cast(there, array.dtype.name, exact=True, path="$")
    nan = np.not_equal(back, back)
    assert back[~nan].tobytes() == array[~nan].tobytes()
    assert (nan == np.not_equal(array, array)).all()


def test_cast_names_an_index_behind_the_first_chunk():
    array = np.zeros((3, 200_000))
    array[2, 7] = 0.5
    with refused(MigrationError, "NQX213", "[2, 7]"):
        cast(array, "int8", exact=True, path="$")


# ---------------------------------------------------------------------------------------------------------------------
# Sizes.


@every(
    ("a", "b", "known", "equal"),
    [
        ("2 * (n + 1)", "n + n + 2", {}, True),
        ("n * m", "m * n", {}, True),
        ("n - n", "0", {}, True),
        ("-n + 3 * n", "2 * n", {}, True),
        ("(4 * n) // 2", "2 * n", {}, True),
        ("n // 2 * 2", "n", {}, False),
        ("n_bias", "n + m", {"n_bias": "m + n"}, True),
        ("a", "c", {"a": "b", "b": "c"}, True),
        ("a", "b", {"a": "b", "b": "a"}, True),
        ("a", "b", {"a": "b + 1", "b": "a - 1"}, False),
        ("a", "c + 1", {"a": "b + 1", "b": "c", "c": "d"}, True),
        ("n", "m", {}, False),
        ("min(n, m)", "min(n, m)", {}, True),
    ],
)
def test_same_size(a, b, known, equal):
    known = {name: parse(text) for name, text in known.items()}
    assert same_size(parse(a), parse(b), known) is equal
    assert same_size(parse(b), parse(a), known) is equal


def tower(operation, leaf, levels=40, repeats=8):
    """Equations of dims that each combine several of the next: written out they have `repeats ** levels` parts."""
    known = {f"d{i}": parse(operation.join([f"d{i + 1}"] * repeats)) for i in range(levels)}
    return {**known, f"d{levels}": parse(leaf)}


@every("operation", [" + ", " * ", " - ", " // "])
@every("leaf", ["n", "9", "n + m", "n * m + k", "2 ** 60 * n"])
def test_same_size_of_towers_ends(operation, leaf):
    known = tower(operation, leaf)
    with bounded():
        assert same_size(parse("d0"), parse("d0 + 0"), known)
        assert not same_size(parse("d0"), parse("d0 + 1"), known)


def test_same_size_of_many_long_sums_ends():
    names = [f"n{i}" for i in range(1000)]
    known = {f"d{i}": parse(" + ".join([f"d{i + 1}", *names[i:][:200]])) for i in range(300)}
    long = " * ".join(f"({' + '.join(f'{a}{i}' for i in range(25))})" for a in "abcdefgh")
    known |= {f"p{i}": parse(f"{long} + p{i + 1}") for i in range(300)}
    with bounded(20):
        for i in range(100):
            assert not same_size(parse(f"d{i}"), parse(f"p{i}"), known)


def test_same_size_of_a_long_chain():
    known = {f"d{i}": parse(f"d{i + 1} + 1") for i in range(4000)}
    assert same_size(parse("d0"), parse("d4000 + 4000"), known)


@every(
    ("have", "want", "readable"),
    [
        ("int", "int | null", True),
        ("int | null", "int", False),
        ("int | str", "str | null | int", True),
        ("float32[n]", "float32[...]", True),
        ("float32[n, 3]", "float32[..., 3]", True),
        ("float32[n, 3]", "float32[..., 4]", False),
        ("float32[..., 3]", "float32[..., 3]", True),
        ("float32[3]", "float64[3]", False),
        ("prng_key[rbg]", "prng_key", True),
        ("prng_key", "prng_key[rbg]", False),
        ('literal["a"]', 'literal["a", "b"]', True),
        ('literal["a"]', "str", True),
        ("literal[1]", "literal[True]", False),
        ("list[int]", "list[int | null]", True),
        ("dict[str, int | null]", "dict[str, int]", False),
        ("tuple[int, int]", "tuple[int, ...]", True),
        ("tuple[int, ...]", "tuple[int, int]", False),
        ("tuple[int, str]", "tuple[int, str | null]", True),
        ("Dense[n + 0]", "Dense[n]", True),
        ("Dense[n]", "Other[n]", False),
        ("list[int]", "pytree", True),
        ("pytree", "int", False),
    ],
)
def test_readable_as(have, want, readable):
    assert readable_as(parse_type(have), parse_type(want), {}) is readable


def test_substitute_binds_names_everywhere():
    declared = parse_type("list[float32[a, ..., 2] | Dense[a * 2] | prng_key[rbg, a]] | null")
    expected = "list[float32[n + 1, ..., 2] | Dense[(n + 1) * 2] | prng_key[rbg, n + 1]] | null"
    assert format_type(substitute(declared, {"a": parse("n + 1")})) == expected
    bound = substitute(parse_type("float32[min(min, 2)]"), {"min": parse("n")})
    assert format_type(bound) == "float32[min(n, 2)]"


def test_substitute_refuses_a_size_that_becomes_too_long():
    declared, long = parse_type(f"float32[{' + '.join('a' * 200)}]"), parse(" + ".join("n" * 200))
    with bounded(), refused(SchemaError, "NQX117"):
        substitute(declared, {"a": long})


# ---------------------------------------------------------------------------------------------------------------------
# The table and the builders.


def test_every_declared_step_is_implemented():
    declared = {name: item.annotation for name, item in StepItem.model_fields.items()}
    assert {name: kind.model | None for name, kind in s.STEPS.items()} == declared


@every("case", STEPS.values())
def test_step_text_is_what_a_schema_file_says(case):
    import yaml

    step = case[2]
    (item,) = yaml.safe_load(s.step_text(step))
    assert StepItem.model_validate(item).step == step


def test_migration_builder():
    made = s.migration(
        3, [s.rename(field="a", to="b", within="B"), s.remove(field="c", lossy=True)]
    )
    assert made.from_version == 3
    assert [item.name for item in made.steps] == ["rename", "remove"]
    assert made.steps[0].step == s.rename(field="a", to="b", within="B")


def test_cost_is_manifest_exactly_where_no_array_is_made():
    for fields, wanted, step, values, _ in STEPS.values():
        if s.cost(step) == "manifest" and s.step_name(step) not in ("unwrap_key", "add"):
            after = up(doc(fields), doc(wanted, 2, [step]), values)
            assert set(after.document["arrays"]) <= set(
                payload(doc(fields), values).document["arrays"]
            )


# ---------------------------------------------------------------------------------------------------------------------
# Laws.

DTYPE = st.sampled_from(["float32", "float64", "complex64", "int8", "uint32"])


@st.composite
def histories(draw):
    """A struct of arrays, and steps that apply to it one after the other."""
    shapes = [
        [draw(st.sampled_from([1, 2, 3, "n", "m"])) for _ in range(draw(st.integers(0, 3)))]
        for _ in range(3)
    ]
    dtypes = [draw(DTYPE) for _ in range(3)]
    if draw(st.booleans()):  # alike, so that they can be merged
        shapes, dtypes = shapes[:1] * 3, dtypes[:1] * 3
    old = {
        f"f{i}": {"type": "array", "dtype": d, "shape": x}
        for i, (d, x) in enumerate(zip(dtypes, shapes, strict=True))
    }
    old["fix"] = "int8[n, m]"
    document, done, target = doc(old), [], doc({"added": "float32[n, m]"}, 2)
    for number in range(draw(st.integers(1, 6))):
        fields = sorted(
            document.structs["A"].stored.keys() - {"added"}
        )  # what is added is declared under its final name
        a, b = draw(st.permutations(fields))[:2] if len(fields) > 1 else fields * 2
        name = f"s{number}"
        shape = draw(st.permutations(range(3)))
        step = draw(
            st.sampled_from(
                [
                    s.rename(field=a, to=name),
                    s.transpose(field=a),
                    s.transpose(field=a, axes=list(shape)),
                    s.cast(field=a, dtype="complex128"),
                    s.cast(field=a, dtype="float64"),
                    s.split(field=a, into=[name, f"{name}x"], how="complex"),
                    s.split(field=a, into={name: 1, f"{name}x": 2}, axis=draw(st.integers(-2, 1))),
                    s.split(
                        field=a, into=[name, f"{name}x"], how="stack", axis=draw(st.integers(-2, 1))
                    ),
                    s.merge(fields=[a, b], into=name, how="complex"),
                    s.merge(fields=[a, b], into=name, how="stack", axis=draw(st.integers(-2, 2))),
                    s.merge(fields=[a, b], into=name, how="concat", axis=draw(st.integers(-2, 1))),
                    s.reshape(field=a, shape=["n", "m"]),
                    s.reshape(field=a, shape=["n * m"]),
                    s.wrap_key(field=a, impl="threefry2x32"),
                    s.unwrap_key(field=a),
                    s.move(fields=[a], into=name, struct=f"S{number}"),
                    s.add(field="added", default=0.5),
                ]
            )
        )
        try:
            after = s.apply_to_document(document, step, target)
            s.inverse(step, document, after)
        except SchemaError:
            continue
        document = after
        done.append(step)
    sizes = {"n": draw(st.integers(1, 3)), "m": draw(st.integers(1, 3))}
    return old, done, document, sizes, draw(st.integers(0, 2**32 - 1))


@settings(max_examples=cases(100), deadline=None)
@given(histories())
def test_laws(history):
    """Payloads follow declarations step by step, and the inverse chain gives back every bit."""
    fields, done, result, sizes, seed = history
    old = doc(fields)
    new = result.model_copy(update={"version": 2, "migrations": [s.migration(1, done)]})
    random = np.random.default_rng(seed)
    values = {}
    for name, declaration in old.structs["A"].fields.items():
        shape = [
            e if isinstance(e, int) else sizes[e]
            for e in (
                int(x.text) if x.text.isdigit() else x.text for x in declaration.declared.shape
            )
        ]
        values[name] = random.integers(0, 5, shape).astype(declaration.declared.dtype)
    after = up(old, new, values)
    assert [after.arrays[name].shape for name in after.arrays] == [
        tuple(r["shape"]) for r in after.document["arrays"].values()
    ]
    series = series_of([old, new])
    try:
        way = plan(series, 2, 1)
    except MigrationError:  # its steps cannot be undone, of which lint warns
        assert "NQX307" in {found.code for found in lint_series(series)}
        return
    back = apply(after, way)
    assert conforms(old, back) == []
    assert same(value(back.document["manifest"], back.arrays), values)


@every(
    ("build", "message"),
    {
        "no text": (
            lambda: s.rename(field=1, to="x y"),
            (
                "steps.rename(): field=: expected text, got 1\n"
                "steps.rename(): to=: expected a name (letters, digits, _, not starting with a digit), got 'x y'"
            ),
        ),
        "within": (
            lambda: s.rename(field="a", to="b", within=3),
            "steps.rename(): within=: expected text, got 3",
        ),
        "choice": (
            lambda: s.merge(fields=["a", "b"], into="c", how="glue"),
            "steps.merge(): how=: expected 'concat', 'stack', 'complex', 'list', 'tuple' or 'dict', got 'glue'",
        ),
        "text is no list": (
            lambda: s.move(fields="lr", into="x", struct="Y"),
            "steps.move(): fields=: expected a list, got 'lr'",
        ),
        "no list": (
            lambda: s.reshape(field="a", shape=3),
            "steps.reshape(): shape=: expected a list, got 3",
        ),
        "one of two": (
            lambda: s.split(field="a", into="bc"),
            "steps.split(): into=: expected a mapping or a list, got 'bc'",
        ),
        "no mapping": (
            lambda: s.map_enum(values=["p"]),
            "steps.map_enum(): values=: expected a mapping, got ['p']",
        ),
        "no truth": (
            lambda: s.cast(field="a", dtype="int8", exact="no"),
            "steps.cast(): exact=: expected True or False, got 'no'",
        ),
        "unknown": (
            lambda: s.remove(field="a", undo=3),
            "steps.remove(): undo=: expected a known argument, got 'undo'; known are within, field, path, like, of, undo_default, undo_copy, lossy",
        ),
        "too few": (
            lambda: s.merge(fields=[], into="c", how="stack"),
            "steps.merge(): fields=: expected more entries, got []",
        ),
    }.values(),
)
def test_builders_refuse_in_words(build, message):
    with pytest.raises(TypeError) as caught:
        build()
    assert str(caught.value) == message


# ---------------------------------------------------------------------------------------------------------------------
# Values that are held as an OrderedDict.


def ordered(made):
    """The payload with its dicts as ordered ones."""
    text = json.dumps(made.document).replace('"__kind__": "dict"', '"__kind__": "ordered-dict"')
    return Payload(json.loads(text), made.arrays)


def test_map_enum_renames_members_in_an_ordered_dict():
    old = doc({"a": "dict[str, E]"}, enums={"E": ["p", "q"]})
    step = s.map_enum(enum="E", values={"p": "r"})
    new = doc({"a": "dict[str, E]"}, 2, [step], enums={"E": ["r", "q"]})
    there = apply(
        ordered(payload(old, {"a": {"x": "p", "y": "q"}})), plan(series_of([old, new]), 1, 2)
    )
    assert there.document["manifest"]["fields"]["a"]["items"] == [["x", "r"], ["y", "q"]]
    assert conforms(new, there) == []
    back = apply(there, plan(series_of([old, new]), 2, 1))
    assert back.document["manifest"]["fields"]["a"]["items"] == [["x", "p"], ["y", "q"]]


def test_cast_reaches_arrays_in_an_ordered_dict():
    old = doc({"a": "dict[str, float32[n]]"})
    step = s.cast(field="a", dtype="float64")
    new = doc({"a": "dict[str, float64[n]]"}, 2, [step])
    there = apply(
        ordered(payload(old, {"a": {"x": np.ones(3, "float32")}})),
        plan(series_of([old, new]), 1, 2),
    )
    assert [array.dtype for array in there.arrays.values()] == ["float64"]
    assert conforms(new, there) == []


def test_an_unknown_member_in_an_ordered_dict_becomes_the_default():
    old = doc({"a": "dict[str, E]"}, enums={"E": ["p", "q"]})
    new = doc({"a": "dict[str, E]"}, 2, [], enums={"E": {"members": ["q"], "default": "q"}})
    there = apply(ordered(payload(old, {"a": {"x": "p"}})), plan(series_of([old, new]), 1, 2))
    assert there.document["manifest"]["fields"]["a"]["items"] == [["x", "q"]]


@pytest.mark.parametrize(
    ("shape", "into", "hint"),
    [
        ("h, 3 * h", {"b": "h", "c": "2 * h"}, "axis 1 is that long: write `axis: 1`"),
        ("h, m", {"b": "h", "c": "h"}, "write sizes that sum to h"),
        (
            "n, h",
            {"b": "h", "c": 2},
            "declare `{h: {}, n: {equals: h + 2}}` under dims of both versions, if it is so",
        ),
        ("h + 3, h", {"b": "h", "c": 2}, "write sizes that sum to h + 3"),
    ],
)
def test_a_split_on_the_wrong_axis_is_given_one_that_fits(shape, into, hint):
    old = doc({"a": f"float32[{shape}]", "sizes": "int8[h, m, n]"})
    split = s.split(field="a", into=into)
    with pytest.raises(SchemaError) as caught:
        s.apply_to_document(old, split, old)
    (found,) = caught.value.diagnostics
    assert (found.code, found.hint) == ("NQX309", hint)


LIMITED = {"type": "int", "ge": 0}


@pytest.mark.parametrize(
    ("fields", "wanted", "step"),
    [
        ({"a": "int"}, {"a": "int", "b": LIMITED}, s.add(field="b", default=-1)),
        ({"a": "int | null"}, {"a": LIMITED}, s.fill(field="a", value=-1)),
        ({"a": "int", "b": LIMITED}, {"a": "int"}, s.remove(field="b", undo_default=-1)),
    ],
)
def test_values_in_steps_keep_the_limits_of_their_fields(fields, wanted, step):
    (found,) = prove(doc(fields), doc(wanted, 2, [step]))
    assert (found.code, found.severity) == ("NQX107", "error")
    assert "expected >= 0, got -1" in found.message
