"""New fields that are a copy of another field, or its structure filled with a number."""

import numpy as np
import pytest

import neuralqx_struct as s
from neuralqx_struct.errors import SchemaError, has_errors
from neuralqx_struct.evolution import steps
from neuralqx_struct.evolution.plans import apply, plan
from neuralqx_struct.evolution.proof import prove
from neuralqx_struct.evolution.steps import apply_to_document, cost, step_text
from neuralqx_struct.schema.series import series_of
from tests.builders import doc, every, payload, refused, value

P = {"P": {"w": "float32[n]", "layers": "list[L]"}, "L": {"b": "float64[k]", "seed": "int"}}
OLD = doc({"params": "P"}, structs=P)
W, B = np.array([1, 2], "f4"), np.array([3.0])


def held(document):
    params = ("P", {"w": W, "layers": [("L", {"b": B, "seed": 7})]})
    return payload(document, {"params": params})


def upgraded(step, declared="P"):
    new = doc({"params": "P", "ema": declared}, 2, [step], structs=P)
    assert not has_errors(prove(OLD, new))
    series = series_of([OLD, new])
    there = apply(held(OLD), plan(series, 1, 2))
    return there, apply(there, plan(series, 2, 1))


@pytest.mark.parametrize("declared", ["P", "P | null"])
def test_a_copy_of_a_struct_shares_its_arrays(declared):
    there, back = upgraded(steps.add(field="ema", copy_of="params"), declared)
    fields = there.document["manifest"]["fields"]
    assert fields["ema"] == fields["params"]
    assert there.arrays.keys() == held(OLD).arrays.keys()
    assert value(back.document["manifest"], back.arrays) == value(
        held(OLD).document["manifest"], held(OLD).arrays
    )


def test_a_filled_structure_has_constant_arrays_and_keeps_other_values():
    there, back = upgraded(steps.add(field="ema", like="params", default=0))
    ema = there.document["manifest"]["fields"]["ema"]["fields"]
    layer = ema["layers"]["items"][0]["fields"]
    constant = {"__kind__": "full", "leaf": "numpy", "value": 0.0}
    assert ema["w"] == {**constant, "dtype": "float32", "shape": [2]}
    assert layer["b"] == {**constant, "dtype": "float64", "shape": [1]}
    assert layer["seed"] == 7
    assert back.document["manifest"]["fields"].keys() == {"params"}


@pytest.mark.parametrize(
    "step",
    [
        steps.add(field="ema", copy_of="params"),
        steps.add(field="ema", like="params", default=0),
        steps.remove(field="ema", undo_copy="params"),
        steps.remove(field="ema", like="params", undo_default=0),
    ],
)
def test_no_array_is_read(step):
    assert cost(step) == "manifest"


def test_a_removal_is_undone_by_a_copy():
    old = doc({"params": "P", "ema": "P"}, structs=P)
    new = doc({"params": "P"}, 2, [steps.remove(field="ema", undo_copy="params")], structs=P)
    assert not has_errors(prove(old, new))
    there = held(doc({"params": "P"}, 2, structs=P))
    back = apply(there, plan(series_of([old, new]), 2, 1))
    fields = back.document["manifest"]["fields"]
    assert fields["ema"] == fields["params"]


@every("declared", ["list[A]", "A | null", "P"])
@every("made_of", [{"copy_of": "inner"}, {"like": "inner", "default": 0}])
def test_a_field_that_holds_structs_of_the_kind_that_gets_the_copy_is_refused(declared, made_of):
    """Those inside the copy would lack the new field; also behind another struct, and where no payload can be tried."""
    structs = {"P": {"a": "A | null"}}
    old = doc({"inner": declared}, structs=structs)
    added = [steps.add(field="ema", **made_of)]
    new = doc({"inner": declared, "ema": declared}, 2, added, structs=structs)
    (found,) = prove(old, new)
    assert found.code == "NQX304" and "holds no A" in found.message


def test_files_write_copy_and_like():
    assert (
        step_text(steps.add(field="ema", copy_of="params")) == "- add: {field: ema, copy: params}"
    )
    like = steps.add(field="ema", like="params", default=0)
    assert step_text(like) == "- add: {field: ema, like: params, default: 0}"


REFUSED = {
    "another type": (steps.add(field="n", copy_of="params"), "NQX304", "int"),
    "no such field": (steps.add(field="ema", copy_of="param"), "NQX304", "'param'"),
    "no value": (steps.add(field="ema"), "NQX304", "copy"),
    "both": (steps.add(field="ema", copy_of="params", like="params"), "NQX304", "like"),
    "no number": (steps.add(field="ema", like="params", default="x"), "NQX107", "like"),
    "a number beyond a dtype": (steps.add(field="small", like="int8s", default=300), "NQX107", "int8"),
    "beyond the limits": (steps.add(field="limited", copy_of="int8s"), "NQX107", "limited"),
    "itself": (steps.remove(field="params", undo_copy="params"), "NQX304", "undo_copy"),
}  # fmt: skip


@every("name", REFUSED)
def test_declarations_refuse(name):
    step, code, named = REFUSED[name]
    old = doc({"params": "P", "int8s": "int8[2]"}, structs=P)
    fields = {"ema": "P", "n": "int", "small": "int8[2]", "limited": {"type": "int8[2]", "ge": 0}}
    new = doc({"params": "P", "int8s": "int8[2]", **fields}, 2, structs=P)
    with refused(SchemaError, code, named):
        apply_to_document(old, step, new)


def test_a_bundle_in_place(tmp_path):
    folder = tmp_path / "ema"
    folder.mkdir()
    (folder / "v1.yaml").write_text(s.dump_schema(OLD))
    step = steps.add(field="ema", copy_of="params")
    new = doc({"params": "P", "ema": "P"}, 2, [step], structs=P)
    (folder / "v2.yaml").write_text(s.dump_schema(new))
    schema = s.load_schema(folder)
    s.example(schema.at(1).root).export(tmp_path / "old")
    loaded = schema.load(tmp_path / "old")
    assert loaded.ema == loaded.params
    s.migrate(tmp_path / "old", tmp_path / "new", schema=folder)
    assert schema.load(tmp_path / "new") == loaded


# ---------------------------------------------------------------------------------------------------------------------
# In every store, and wherever a struct may lie.


STEPS = {
    "copy": (steps.add(field="ema", copy_of="params"), lambda x: x),
    "like": (steps.add(field="ema", like="params", default=2), lambda x: np.full_like(x, 2)),
}
#: How the root holds `T`, which has the parameters: the type, a value, and whether `T` itself is stacked.
PLACES = {
    "nested": ("T", lambda made: made),
    "a list": ("list[T]", lambda made: [made, made.replace(own=5)]),
    "an empty dict": ("dict[str, T]", lambda _: {}),
    "optional": ("T | null", lambda made: made),
    "stacked": ("T[][n]", lambda made: s.stack([made, made, made])),
}


def schema_of_versions(folder, declared, step, *, stacked=False):
    """Two versions: the second one has a field more in `T`."""
    parts = {"Part": {"w": "float32[k]", "b": "int8[2, k]"}}
    fields = {"params": "Part", "own": "int32[]"} if stacked else {"params": "Part", "own": "int"}
    old = doc({"held": declared}, structs={"T": fields, **parts})
    structs = {"T": {**fields, "ema": "Part"}, **parts}
    new = doc({"held": declared}, 2, [step.model_copy(update={"within": "T"})], structs=structs)
    assert not has_errors(prove(old, new))
    folder.mkdir()
    for version, document in ((1, old), (2, new)):
        (folder / f"v{version}.yaml").write_text(s.dump_schema(document))
    return s.load_schema(folder)


@every("store", ["npz", "safetensors", "orbax"])
@every(("place", "name"), [("nested", "copy"), ("stacked", "copy"), ("stacked", "like"), ("a list", "like"), ("a list", "copy"), ("an empty dict", "copy"), ("optional", "copy")])  # fmt: skip
def test_copies_in_every_store(place, name, store, tmp_path):
    (step, change), (declared, hold) = STEPS[name], PLACES[place]
    stacked = place == "stacked"
    schema = schema_of_versions(tmp_path / "lab", declared, step, stacked=stacked)
    old = schema.at(1)
    part = old.Part(w=np.array([1, 2], "f4"), b=np.ones((2, 2), "i1"))
    own = np.array(7, "i4") if stacked else 7
    before = old.A(held=hold(old.T(params=part, own=own)))
    before.export(tmp_path / "old", store=store)
    after = schema.load(tmp_path / "old")
    held = after.held if isinstance(after.held, list) else [after.held] if after.held else []
    for each in held:
        for leaf in ("w", "b"):
            made, source = (np.asarray(getattr(x, leaf)) for x in (each.ema, each.params))
            assert np.array_equal(made, change(source)) and made.dtype == source.dtype
    s.migrate(tmp_path / "old", tmp_path / "new", schema=tmp_path / "lab")
    assert schema.load(tmp_path / "new") == after
    assert s.validate(tmp_path / "new") == s.verify(tmp_path / "new") == []
    files = [sorted(p for p in (tmp_path / at).rglob("*") if p.is_file() and p.name != "manifest.json") for at in ("old", "new")]  # fmt: skip
    inodes = [{p.stat().st_ino for p in each} for each in files]
    if declared[:4] != "dict":  # without an array there is no file to share
        assert inodes[0] == inodes[1] != set()
    s.convert(tmp_path / "new", tmp_path / "small", compact=True)
    assert schema.load(tmp_path / "small") == after
    s.migrate(tmp_path / "small", tmp_path / "back", to=1, schema=tmp_path / "lab")
    assert old.load(tmp_path / "back") == before


def test_a_copy_outlives_its_source(tmp_path):
    fields = {"params": "Part", "own": "int"}
    parts = {"Part": {"w": "float32[k]"}}
    moved = [
        steps.add(field="ema", copy_of="params"),
        steps.remove(field="params", undo_copy="ema"),
    ]
    old = doc(fields, structs=parts)
    new = doc({"ema": "Part", "own": "int"}, 2, moved, structs=parts)
    assert not has_errors(prove(old, new))
    held = payload(old, {"params": ("Part", {"w": W}), "own": 1})
    there = apply(held, plan(series_of([old, new]), 1, 2))
    assert value(there.document["manifest"], there.arrays)["ema"]["w"] is W
    back = apply(there, plan(series_of([old, new]), 2, 1))
    assert back.document["manifest"] == held.document["manifest"]


def test_the_number_is_checked_in_structs_of_a_used_schema():
    used = doc({"mask": "bool[2]"}, schema="lab.u")
    step = steps.add(field="b", like="a", default=1)
    old, new = (
        doc(fields, version, more, uses=["lab.u@1"]).linked({"lab.u": used}, {})
        for version, fields, more in (
            (1, {"a": "lab.u.A"}, None),
            (2, {"a": "lab.u.A", "b": "lab.u.A"}, [step]),
        )
    )
    assert {each.code for each in prove(old, new) if each.severity == "error"} == {"NQX107"}
