"""Families and choices of dtypes: construction, load, validation, examples, lint, differences and migrations."""

import json
import pickle

import jax
import jax.numpy as jnp
import jsonschema
import numpy as np
import pytest

import neuralqx_struct as s
from neuralqx_struct.evolution.compatibility import verdict
from neuralqx_struct.evolution.diff import diff_documents
from neuralqx_struct.evolution.proof import prove
from neuralqx_struct.schema.export import payload_schema
from neuralqx_struct.schema.lock import full_fingerprint, payload_fingerprint
from neuralqx_struct.schema.reading import document_from_data
from neuralqx_struct.schema.series import series_of
from neuralqx_struct.tools.linting import lint_series
from tests.builders import every, refused

CHOICES = {"compute": ["float32", "bfloat16"]}
FIELDS = {
    "kernel": "compute[n, m]",
    "bias": {"type": "array", "dtype": "compute", "shape": ["m"]},
    "parts": "list[Part]",
    "moments": "floating[n] | null",
    "counts": "integer[...]",
    "scale": {"type": "number[]", "default": 2},
}


def document(fields=FIELDS, dtypes=CHOICES, version=1, steps=None, **members):
    structs = {"A": {"fields": fields}, "Part": {"fields": {"w": "compute[..., 2]"}}}
    if not any("Part" in str(each) for each in fields.values()):
        del structs["Part"]
    data = {"language": "1", "schema": "tests.choices", "version": version, "root": "A"}
    data |= {"structs": structs, **({"dtypes": dtypes} if dtypes else {}), **members}
    if steps is not None:
        data["migrations"] = [{"from": version - 1, "steps": steps}]
    return data


def read(*args, **options):
    return document_from_data(document(*args, **options), "<test>")


def schema(data, tmp_path):
    folder = tmp_path / "choices"
    folder.mkdir(exist_ok=True)
    (folder / f"v{data['version']}.json").write_text(json.dumps(data))
    return s.load_schema(folder)


@pytest.fixture
def state(tmp_path):
    return s.example(schema(document(), tmp_path).A)


def test_an_example_has_the_first_dtype_of_each(state):
    parts = [part.w for part in state.parts]
    assert {each.dtype for each in (state.kernel, state.bias, *parts)} == {jnp.dtype("float32")}
    assert state.scale.dtype == "float32"


def test_an_example_has_the_dtypes_that_are_asked_for(state):
    made = s.example(type(state), dtypes={"compute": "bfloat16", "number": "int8"})
    assert (made.kernel.dtype, made.bias.dtype, made.scale.dtype) == ("bfloat16",) * 2 + ("int8",)


@pytest.mark.parametrize(
    ("dtypes", "named"),
    [
        ({"compute": "float64"}, ["compute", "'float64'"]),
        ({"floating": "int8"}, ["floating", "'int8'"]),
        ({"compte": "float32"}, ["'compte'", "'compute'"]),
    ],
)
def test_an_example_of_other_dtypes_is_refused(state, dtypes, named):
    with refused(s.SchemaError, "NQX102", "dtypes", *named):
        s.example(type(state), dtypes=dtypes)


def test_a_copy_in_another_dtype_is_saved_and_loaded(state, tmp_path):
    floats = lambda leaf: jnp.issubdtype(leaf.dtype, jnp.floating)  # noqa: E731
    half = jax.tree.map(lambda leaf: leaf.astype("bfloat16") if floats(leaf) else leaf, state)
    path = half.export(tmp_path / "half")
    assert s.validate(path) == []
    assert type(state).load(path) == half
    assert pickle.loads(pickle.dumps(half)) == half
    again = type(state).load(state.export(tmp_path / "whole"), dtype="bfloat16")
    assert again == half


def test_a_mix_names_both_fields(state, tmp_path):
    named = ("NQX411", "$.bias", "float32", "bfloat16", "compute", "$.kernel")
    with refused(s.ValidationError, *named):
        state.replace(bias=state.bias.astype("bfloat16"))
    with refused(s.ValidationError, *named):
        jax.eval_shape(lambda x: x.replace(bias=x.bias.astype("bfloat16")), state)
    mixed = jax.tree.map(
        lambda leaf: leaf.astype("bfloat16") if leaf is state.bias else leaf, state
    )
    path = mixed.export(tmp_path / "mixed", check=False)
    with refused(s.SerializationError, *named):
        type(state).load(path)
    assert [each.path for each in s.validate(path)] == ["$.bias"]


def test_structs_inside_have_the_same_dtype(state):
    part = type(state.parts[0])(w=jnp.zeros((1, 2), "bfloat16")) if state.parts else None
    part = part or s.example(type(state), key=3).parts[0].replace(w=jnp.zeros((1, 2), "bfloat16"))
    with refused(s.ValidationError, "NQX411", "$.parts[0].w", "float32"):
        state.replace(parts=[part])


@pytest.mark.parametrize(
    ("field", "value", "declared"),
    [
        ("kernel", "float16", "compute[n, m]"),
        ("moments", "int32", "floating[n] | null"),
        ("scale", "bool", "number[]"),
    ],
)
def test_other_dtypes_are_refused(state, field, value, declared):
    held = getattr(state, field)
    held = jnp.zeros(state.kernel.shape[0]) if held is None else held
    with refused(s.ValidationError, "NQX411", f"$.{field}", declared, value):
        state.replace(**{field: held.astype(value)})


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float8_e5m2", "float64"])
def test_any_member_of_a_family_is_a_value(state, dtype):
    moments = np.zeros(state.kernel.shape[0], jnp.dtype(dtype))
    assert state.replace(moments=moments).moments.dtype == dtype


def test_the_json_schema_lists_the_dtypes(state, tmp_path):
    rules = payload_schema(read())
    path = state.export(tmp_path / "ckpt")
    manifest = json.loads((path / "manifest.json").read_text())
    jsonschema.validate(manifest, rules)
    manifest["manifest"]["fields"]["kernel"]["dtype"] = "int8"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(manifest, rules)


def test_dumps_read_back():
    first = read(dtypes={"compute": {"members": ["float32", "bfloat16"], "doc": "Of the layers."}})
    again = s.load_schema(s.dump_schema(first)).document
    assert full_fingerprint(again) == full_fingerprint(first)
    assert again.structs["A"].fields["kernel"].declared.choice == ("float32", "bfloat16")


def test_fingerprints_have_the_members_and_no_order():
    first = payload_fingerprint(read())
    assert payload_fingerprint(read(dtypes={"compute": ["bfloat16", "float32"]})) == first
    assert payload_fingerprint(read(dtypes={"compute": ["float32"]})) != first


# ---------------------------------------------------------------------------------------------------------------------
# Lint.

PLAIN = {"x": "compute[n]"}
WRONG = [
    (PLAIN, {"compute": ["float33"]}, "NQX102", "'float33'"),
    (PLAIN, {"compute": ["floating"]}, "NQX102", "'floating'"),
    (PLAIN, {"compute": ["int8", "int8"]}, "NQX002", "int8 again"),
    ({"x": "compute"}, CHOICES, "NQX101", "shape"),
    ({"x": "floating"}, {}, "NQX101", "floating"),
    ({"x": "compute[n] | bfloat16[m]"}, CHOICES, "NQX132", "compute[n] and bfloat16[m]"),
    ({"x": "floating[n] | number[m]"}, {}, "NQX132", "floating[n] and number[m]"),
    (
        {"x": {"type": "compute[2]", "default": 0.5}},
        {"compute": ["float32", "int8"]},
        "NQX107",
        "0.5",
    ),
    ({"x": {"type": "integer[2]", "default": 0.5}}, {}, "NQX107", "0.5"),
    (PLAIN, {"compute": ["int8"], "float32": ["int8"]}, "NQX118", "'float32'"),
    (PLAIN, {"compute": ["int8"], "floating": ["int8"]}, "NQX118", "'floating'"),
    (PLAIN, {"compute": ["int8"], "A": ["int8"]}, "NQX118", "'A'"),
    (PLAIN, {"compute": ["int8"], "n": ["int8"]}, "NQX118", "'n'"),
    (PLAIN, {"compute": ["int8"], "E": ["int8"]}, "NQX118", "'E'"),
    (PLAIN, {"compute": ["int8"], "other": ["int8"]}, "NQX104", "other"),
    ({"x": {"type": "array", "dtype": "compte", "shape": []}}, CHOICES, "NQX102", "got 'compte'"),
]


@every(("fields", "dtypes", "code", "message"), WRONG)
def test_wrong_declarations_have_a_finding(fields, dtypes, code, message):
    try:
        found = lint_series(series_of([read(fields, dtypes, dims={"n": {}}, enums={"E": ["a"]})]))
    except s.SchemaError as error:
        found = error.diagnostics
    assert any(each.code == code and message in each.message for each in found), found


def test_a_structural_error_hides_no_choice():
    data = document({"x": "compute[...]", "y": "compute[n"})
    data["feilds"] = 1
    with pytest.raises(s.SchemaError) as error:
        document_from_data(data, "<test>")
    assert sorted(each.code for each in error.value.diagnostics) == ["NQX009", "NQX101"]


def test_a_choice_without_dtypes_is_refused():
    with refused(s.SchemaError, "NQX010", "$.dtypes.compute"):
        read(PLAIN, {"compute": []})


# ---------------------------------------------------------------------------------------------------------------------
# Defaults have the dtype that the other arrays of the instance tree have.

DEFAULTS = {
    "x": "compute[n]",
    "y": {"type": "compute[2]", "default": {"fill": 0.5}},
    "z": {"type": "compute[n, n] | null", "default": {"eye": "n"}},
    "w": {"type": "compute[2]", "default": [1, 2]},
}
#: The second version has the last two fields, with and without steps.
FIRST = {name: DEFAULTS[name] for name in ("x", "y")}
ADDS = [
    {"add": {"field": "z", "default": {"eye": "n"}}},
    {"add": {"field": "w", "default": [1, 2]}},
]


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("steps", [ADDS, None])
def test_defaults_have_the_dtype_of_the_tree(tmp_path, dtype, steps):
    old = schema(document(FIRST), tmp_path)
    path = old.A(x=jnp.arange(2).astype(dtype)).export(tmp_path / "old")
    new = schema(document(DEFAULTS, version=2, steps=steps), tmp_path)
    assert lint_series(new.series) == []
    loaded = new.load(path)
    made = new.A(x=jnp.arange(2).astype(dtype))
    for state in (loaded, made):
        assert {each.dtype for each in (state.x, state.y, state.z, state.w)} == {jnp.dtype(dtype)}
        assert (state.y[0], state.w.tolist()) == (0.5, [1, 2])
        assert (state.z == jnp.eye(2)).all()
    assert s.example(new.A, dtypes={"compute": dtype}).y.dtype == dtype


def test_defaults_have_the_first_dtype_where_no_array_shows_one(tmp_path):
    made = schema(document(FIRST | {"x": "compute[n] | null"}), tmp_path).A(x=None)
    assert made.y.dtype == "float32"


def test_defaults_inside_structs_are_made_before_the_tree_is_known(tmp_path):
    fields = {"x": "compute[2]", "part": "Part"}
    data = document(fields)
    data["structs"]["Part"]["fields"]["w"] = {"type": "compute[2]", "default": 0}
    made = schema(data, tmp_path)
    with refused(s.ValidationError, "NQX411", "$.part.w", "compute"):
        made.A(x=jnp.zeros(2, "bfloat16"), part=made.Part())
    part = made.Part(w=jnp.zeros(2, "bfloat16"))
    assert made.A(x=jnp.zeros(2, "bfloat16"), part=part).part == part


ADDED = [
    # New fields beside x, which joins the choice, and their values.
    ({"y": {"type": "compute[n]", "default": 0}}, None),
    ({"y": "compute[n]", "part": "Part"}, {"y": 0, "part": {"w": [[1, 2]]}}),
]


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("added", ADDED)
def test_arrays_that_are_added_to_a_new_choice_have_its_dtype(tmp_path, dtype, added):
    fields, values = added
    steps = values and [{"add": {"field": f, "default": v}} for f, v in values.items()]
    old = schema(document({"x": f"{dtype}[n]"}, {}), tmp_path)
    before = old.A(x=jnp.ones(3, dtype))
    path = before.export(tmp_path / "old")
    new = schema(document({"x": "compute[n]"} | fields, version=2, steps=steps), tmp_path)
    assert all(each.severity == "warning" for each in lint_series(new.series))
    state = new.load(path)
    assert {each.dtype for each in jax.tree.leaves(state)} == {jnp.dtype(dtype)}
    if steps:
        path = state.export(tmp_path / "new")
        s.migrate(path, tmp_path / "back", schema=tmp_path / "choices", to=1)
        assert old.load(tmp_path / "back") == before


MIXES = [
    # Old fields, new fields, steps, the step of the hint.
    ({"x": "float32[n]"}, {"z": "compute[n]", "b": "compute[n]"},
     [{"add": {"field": "b", "default": 0}}, {"rename": {"field": "x", "to": "z"}}], {"field": "b", "dtype": "float32"}),
    ({"x": "float32[n]", "b": "bfloat16[n]"}, {"x": "compute[n]", "b": "compute[n]"},
     [], {"field": "b", "dtype": "float32"}),
    ({"x": "float32[n]", "b": "floating[n]"}, {"x": "compute[n]", "b": "compute[n]"},
     [{"cast": {"field": "b", "dtype": "bfloat16", "exact": False, "lossy": True}}], {"field": "b", "dtype": "float32"}),
]  # fmt: skip


@pytest.mark.parametrize("case", MIXES)
def test_arrays_of_several_dtypes_are_cast_as_the_hint_shows(case):
    before, after, steps, wanted = case
    a, b = read(before, {}), read(after, version=2, steps=steps)
    (found,) = [each for each in prove(a, b) if each.severity == "error"]
    members = ", ".join(f"{name}: {value}" for name, value in wanted.items())
    assert (found.code, found.hint) == ("NQX305", f"write `- cast: {{{members}}}`")
    fixed = read(after, version=2, steps=[*steps, cast(**wanted)])
    assert [each for each in prove(a, fixed) if each.severity == "error"] == []


# ---------------------------------------------------------------------------------------------------------------------
# Two versions.

TWO = {"x": "compute[n]", "y": "compute[n]"}
ONE = {"x": "compute[n]", "y": "int8[n]"}
WIDE = {"compute": ["float32", "bfloat16", "float64"]}
CHANGES = [
    # Old fields and choices, new ones, codes of the diff; whether new reads old, and old reads new.
    (ONE, CHOICES, ONE, WIDE, {"NQX234", "NQX261"}, True, False),
    (ONE, WIDE, ONE, CHOICES, {"NQX234", "NQX260"}, False, True),
    (ONE, CHOICES, ONE, {"compute": ["bfloat16", "float32"]}, {"NQX234"}, True, True),
    ({"x": "float32[n]"}, {}, {"x": "floating[n]"}, {}, {"NQX261"}, True, False),
    ({"x": "int8[n]"}, {}, {"x": "floating[n]"}, {}, {"NQX210"}, False, False),
    ({"x": "float32[n]"}, {}, {"x": "compute[n]"}, CHOICES, {"NQX261", "NQX284"}, True, True),
    (
        {"x": "float32[n]", "y": "float32[n]"},
        {},
        TWO,
        CHOICES,
        {"NQX261", "NQX284"},
        True,
        True,
    ),
    (
        {"x": "float32[n]", "y": "bfloat16[n]"},
        {},
        TWO,
        CHOICES,
        {"NQX260", "NQX261", "NQX284"},
        False,
        False,
    ),
    (
        TWO,
        CHOICES,
        {"x": "compute[n]", "y": "other[n]"},
        {**CHOICES, "other": CHOICES["compute"]},
        {"NQX221", "NQX261", "NQX284"},
        True,
        False,
    ),
]


@every("case", CHANGES)
def test_changes_have_directions_and_verdicts(case):
    old, before, new, after, codes, back, forth = case
    a, b = read(old, before), read(new, after, version=2)
    assert {change.code for change in diff_documents(a, b)} == codes
    assert (verdict(a, b, "backward", steps=False) == []) is back
    assert (verdict(a, b, "forward", steps=False) == []) is forth


def test_a_doc_of_a_choice_is_a_change_without_effect():
    a = read(ONE, {"compute": {"members": CHOICES["compute"], "doc": "one"}})
    b = read(ONE, {"compute": {"members": CHOICES["compute"], "doc": "two"}}, version=2)
    assert [(change.code, change.path) for change in diff_documents(a, b)] == [
        ("NQX234", "$.dtypes.compute")
    ]


def cast(**members):
    return {"cast": members}


PROOFS = [
    # Old fields, choices, new fields, choices, steps, codes.
    (ONE, CHOICES, {"x": "float32[n]", "y": "int8[n]"}, {}, [cast(field="x", dtype="float32")], ["NQX307"]),
    ({"x": "float64[n]"}, {}, {"x": "compute[n]"}, CHOICES, [cast(field="x", dtype="float32")], ["NQX320"]),
    ({"x": "float64[n]"}, {}, {"x": "compute[n]"}, CHOICES, [cast(field="x", dtype="compute")], ["NQX102"]),
    ({"x": "int8[n]"}, {}, {"x": "floating[n]"}, {}, [cast(field="x", dtype="floating")], ["NQX102"]),
    ({"x": "float32[n]", "y": "bfloat16[n]"}, {}, TWO, CHOICES, [], ["NQX305"]),
    ({"x": "float32[n]", "y": "bfloat16[n]"}, {}, TWO, CHOICES, [cast(field="y", dtype="float32")], ["NQX307", "NQX320"]),
    ({"x": "floating[n]", "y": "floating[n]"}, {}, {"z": "floating[2, n]"}, {}, [{"merge": {"fields": ["x", "y"], "into": "z", "how": "stack"}}], ["NQX310"]),
    (TWO, CHOICES, {"z": "compute[2, n]"}, CHOICES, [{"merge": {"fields": ["x", "y"], "into": "z", "how": "stack"}}], []),
    ({"z": "floating[2, n]"}, {}, {"x": "floating[n]", "y": "floating[n]"}, {}, [{"split": {"field": "z", "into": ["x", "y"], "how": "stack"}}], ["NQX307"]),
    ({"x": "compute[n, 2]"}, CHOICES, {"x": "compute[2, n]"}, CHOICES, [{"transpose": {"field": "x"}}], []),
    ({"x": "compute[n, 2]"}, CHOICES, {"x": "compute[2 * n]"}, CHOICES, [{"reshape": {"field": "x", "shape": ["2 * n"]}}], []),
    (ONE, CHOICES, {"z": "compute[n]", "y": "int8[n]"}, CHOICES, [{"rename": {"field": "x", "to": "z"}}], []),
]  # fmt: skip


@every("case", PROOFS)
def test_proofs_know_the_dtypes(case):
    old, before, new, after, steps, codes = case
    a, b = read(old, before), read(new, after, version=2, steps=steps)
    assert sorted(each.code for each in prove(a, b)) == codes


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_payload_of_any_dtype_of_a_choice_is_cast(tmp_path, dtype):
    old = schema(document(PLAIN), tmp_path)
    made = old.A(x=jnp.arange(3).astype(dtype))
    path = made.export(tmp_path / "old")
    steps = [cast(field="x", dtype="float32", lossy=True)]
    new = schema(document({"x": "float32[n]"}, {}, version=2, steps=steps), tmp_path)
    assert new.load(path).x.dtype == "float32"
    assert new.load(path).x.tolist() == [0, 1, 2]


def test_a_dtype_that_no_member_holds_is_promoted_if_one_of_the_reader_does():
    a, b = read({"x": "compute[n]"}), read({"x": "float64[n]"}, {}, version=2)
    assert verdict(a, b, "backward", steps=False) == []


def test_revisions_cast_to_the_dtype_that_loses_nothing():
    a = read({"x": "float16[n]"}, {})
    b = read({"x": "compute[n]"}, {"compute": ["bfloat16", "float32"]}, version=2)
    (found,) = [each for each in prove(a, b) if each.code == "NQX301"]
    assert "dtype: float32" in found.hint
