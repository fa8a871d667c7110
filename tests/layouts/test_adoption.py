"""Files that do not fit their layout, values that no array shows, versions, unions, and other sources than mappings."""

import io
import json

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import neuralqx_struct as s
from neuralqx_struct import formats
from neuralqx_struct.errors import SerializationError
from neuralqx_struct.formats import ForeignArray
from neuralqx_struct.layouts.payloads import adopted
from neuralqx_struct.manifest.payload import HeldArrays
from neuralqx_struct.schema.series import load_series
from tests.builders import bounded, every, refused

SCHEMA = """
language: "1"
schema: lab.net
version: 1
root: Net
dims: {d: {}}
structs:
  Norm: {fields: {scale: "float32[d]", eps: {type: float, kind: static, default: 0.5}}}
  Head: {fields: {w: "float32[d, c]"}}
  Other: {fields: {v: "float32[d]"}}
  Net:
    fields:
      n_heads: {type: int, kind: static}
      words: "float32[v, d]"
      norms: list[Norm]
      head: "Head | Other | null"
      bias: "float32[d] | null"
      key: "prng_key[threefry2x32] | null"
      loss: {type: "float | null", default: null}
"""
HEAD = 'language: "1"\nlayout: hf\nof: lab.net@1\n'
LAYOUT = HEAD + "values: {n_heads: 2}\n"


def f(*shape):
    return np.arange(np.prod(shape), dtype="float32").reshape(shape)


def source(**more):
    found = {"words": f(3, 4), "norms.0.scale": f(4), "norms.1.scale": f(4)}
    return {name: array for name, array in (found | more).items() if array is not None}


def adopt(arrays, layout=LAYOUT, schema=SCHEMA, **options):
    return s.load_schema(schema).from_layout(arrays, layout, **options)


def problems(arrays, layout=LAYOUT, **options):
    """Code, path and text of all problems."""
    with pytest.raises(SerializationError) as caught:
        adopt(arrays, layout, **options)
    return [
        (each.code, each.path, f"{each.message}\n{each.hint}") for each in caught.value.diagnostics
    ]


#: Changes of the file -> the codes, paths and words of all problems.
WRONG = {
    "missing": ({"words": None}, [("NQX705", "$.words", "'words' in the file, got nothing")]),
    "misnamed": (
        {"words": None, "wrods": f(3, 4)},
        [("NQX705", "$.words", "did you mean 'wrods'?"), ("NQX706", "$", "got 'wrods'")],
    ),
    "extra": ({"norms.1.scaled": f(4)}, [("NQX706", "$", "did you mean 'norms.1.scale'?")]),
    "a gap": (
        {"norms.3.scale": f(4)},
        [
            ("NQX705", "$.norms", "got no 'norms.2'"),
            ("NQX705", "$.norms[2].scale", "did you mean 'norms.3.scale'?"),
            ("NQX706", "$", "'norms.3.scale'"),
        ],
    ),
    "a size": ({"norms.1.scale": f(5)}, [("NQX413", "norms.1.scale", "$.norms[1].scale has it")]),
    "a rank": ({"words": f(3)}, [("NQX412", "words", "expected float32[v, d], got float32[3]")]),
    "a dtype": (
        {"words": f(3, 4).astype("float64")},
        [("NQX411", "$.words", "write `cast: float64` in its rule, with `exact: false`")],
    ),
    "a smaller dtype": (
        {"words": f(3, 4).astype("float16")},
        [("NQX411", "$.words", "write `cast: float16` in its rule\n")],
    ),
    "several": (
        {"words": f(3), "more": f(1), "norms.0.scale": f(4).astype("int8")},
        [
            ("NQX706", "$", "'more'"),
            ("NQX412", "words", "float32[3]"),
            ("NQX411", "$.norms[0].scale", "got int8"),
        ],
    ),
    "half of an option": (
        {"head.w": f(4, 2), "head.v": f(4)},
        [("NQX706", "$", "got 'head.v'")],
    ),
}


@every("case", WRONG)
def test_all_problems_of_a_file_at_once(case):
    changes, expected = WRONG[case]
    found = problems(source(**changes))
    assert [each[:2] for each in found] == [each[:2] for each in expected]
    for (_, _, text), (_, _, words) in zip(found, expected, strict=True):
        assert words in f"{text}\n"


def test_optional_fields_are_null_without_arrays():
    model = adopt(source())
    assert (model.head, model.bias, model.key, model.loss) == (None, None, None, None)
    full = adopt(source(bias=f(4), key=np.array([0, 7], "uint32")))
    assert full.bias.shape == (4,)
    assert full.key == jax.random.key(7)


@pytest.mark.parametrize(("name", "kind"), [("head.w", "Head"), ("head.v", "Other")])
def test_the_option_of_a_union_is_the_one_with_arrays(name, kind):
    arrays = source(**{name: f(4, 2) if kind == "Head" else f(4)})
    model = adopt(arrays)
    assert type(model.head).__name__ == kind
    assert [*s.load_schema(SCHEMA).to_layout(model, LAYOUT, like=arrays)] == [*arrays]


# ---------------------------------------------------------------------------------------------------------------------
# Values.


def test_values_of_the_caller_win_over_those_of_the_layout():
    report = []
    model = adopt(source(), values={"n_heads": 3, "norms.eps": 0.25, "loss": 1.5}, report=report)
    assert (model.n_heads, model.norms[1].eps, model.loss) == (3, 0.25, 1.5)
    assert adopt(source(), report=report).norms[0].eps == 0.5
    assert [each.path for each in report] == ["$.norms[0].eps", "$.norms[1].eps", "$.loss"]
    assert {each.code for each in report} == {"NQX425"}


@pytest.mark.parametrize(
    ("values", "code", "words"),
    [
        ({}, "NQX707", "pass values={'n_heads': ...}"),
        ({"n_heads": "two"}, "NQX107", "int"),
        ({"n_heads": 2, "n_head": 2}, "NQX701", "'n_heads'"),
        ({2: 2}, "NQX701", "values"),
    ],
)
def test_values_that_are_none(values, code, words):
    (found,) = problems(source(), HEAD, values=values)
    assert found[0] == code
    assert words in found[2]


def test_an_array_in_place_of_a_value():
    (found,) = problems(source(n_heads=np.int64(2)), HEAD)
    assert found[0] == "NQX707" and "got the array 'n_heads' of type int64[]" in found[2]
    assert "declare the field as `int64[]` in the schema" in found[2]
    declared = SCHEMA.replace("{type: int, kind: static}", "int64[]")
    assert adopt(source(n_heads=np.int64(2)), HEAD, declared, as_numpy=True).n_heads == 2
    assert "under `ignore:`, and pass values={'n_heads': ...}" in found[2]
    assert adopt(source(n_heads=np.int64(2)), f"{HEAD}ignore: [n_heads]\nvalues: {{n_heads: 2}}")


def test_a_size_of_inner_structs_that_is_a_static_field_of_the_root():
    schema = SCHEMA.replace('w: "float32[d, c]"', 'w: "float32[n_heads, c, d]"')
    layout = f"{LAYOUT}structs: {{Head: {{w: {{reshape: [n_heads * c, d]}}}}}}\n"
    arrays = source(**{"head.w": f(6, 4)})
    (found,) = problems(arrays, layout, schema=schema)
    assert found[0] == "NQX707" and "write `dims: {n_heads: {}}` in the schema" in found[2]
    schema = schema.replace("dims: {d: {}}", "dims: {d: {}, n_heads: {}}")
    assert adopt(arrays, layout, schema).head.w.shape == (2, 3, 4)


def test_values_from_a_file_beside_the_source(tmp_path):
    layout = HEAD + "values_from: {config.json: {n_heads: model.heads, loss: nowhere}}\n"
    path = formats.write(tmp_path / "model.npz", "npz", source())
    with refused(SerializationError, "NQX707"):
        adopt(path, layout)
    (tmp_path / "config.json").write_text(json.dumps({"model": {"heads": 7}}))
    assert adopt(path, layout).n_heads == 7
    (tmp_path / "config.json").write_text("{")
    with refused(SerializationError, "NQX001", "config.json:1"):
        adopt(path, layout)


# ---------------------------------------------------------------------------------------------------------------------
# Sources and results.


def test_an_array_without_an_operation_stays_a_map_of_the_file(tmp_path):
    path = formats.write(tmp_path / "model.safetensors", "safetensors", source())
    model = adopt(path, as_numpy=True)
    assert not model.words.flags.writeable
    assert not model.words.flags.owndata


def test_arrays_of_jax_and_of_other_dtypes():
    schema = SCHEMA.replace("float32[v, d]", "floating[v, d]")
    model = adopt(source(words=jnp.ones((3, 4), "bfloat16")), schema=schema)
    assert model.words.dtype == jnp.bfloat16
    layout = LAYOUT + "structs: {Net: {words: {cast: bfloat16}}}\n"
    arrays = source(words=f(3, 4).astype(ml_dtypes.bfloat16))
    model = adopt(arrays, layout)
    assert model.words.dtype == jnp.float32
    again = s.load_schema(SCHEMA).to_layout(model, layout)
    assert again["words"].tobytes() == arrays["words"].tobytes()
    changed = s.load_schema(SCHEMA).to_layout(model.replace(words=model.words + 1e-6), layout)
    assert [*changed] == [*arrays]
    with refused(SerializationError, "NQX213"):
        changed["words"]


def test_arrays_of_a_file_are_computed_when_they_are_asked_for(monkeypatch):
    schema, model = s.load_schema(SCHEMA), adopt(source())
    fetched = []
    fetch = HeldArrays.fetch
    monkeypatch.setattr(HeldArrays, "fetch", lambda *given: fetched.append(1) or fetch(*given))
    arrays = schema.to_layout(model, LAYOUT)
    assert len(arrays) == 3
    assert repr(arrays) == "<3 arrays of a file: words, norms.0.scale, norms.1.scale>"
    assert not fetched
    assert np.array_equal(arrays["words"], model.words)
    assert len(fetched) == 1
    made = io.BytesIO()
    np.savez(made, **arrays)
    made.seek(0)
    assert {*np.load(made)} == {*arrays}


def test_shards_are_read_straight_to_their_devices():
    sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    model = adopt(source(), shardings=sharding)
    assert model.words.sharding == sharding
    assert adopt(source(), like=model) == model


def test_a_part_of_an_array_reads_that_part_alone():
    wide, read = f(3, 4, 5), []

    def part(region):
        read.append(region)
        return wide[region]

    series = load_series(
        SCHEMA.partition("dims:")[0] + 'structs: {Net: {fields: {words: "float32[a, b, c]"}}}'
    )
    layout = HEAD + "structs: {Net: {words: {transpose: [1, 2, 0]}}}\n"
    array = ForeignArray("float32", wide.shape, lambda: pytest.fail("reads all"), part)
    found = adopted(series, layout, {"words": array}).arrays
    region = (slice(1, 3), slice(0, 5), slice(2, 3))
    (made,) = found.parts("words", [region])
    assert np.array_equal(made, wide.transpose(1, 2, 0)[region])
    assert read == [(slice(2, 3), slice(1, 3), slice(0, 5))]


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        (3, "mapping"),
        ({"words": object()}, "numpy"),
        ({"words": np.array(["a"], dtype=object)}, "numpy"),
    ],
)
def test_sources_that_are_none(arrays, words):
    assert words in problems(arrays)[0][2]


def test_errors_name_the_file(tmp_path):
    path = formats.write(tmp_path / "model.npz", "npz", source(extra=f(1)))
    with refused(SerializationError, "NQX706", "model.npz"):
        adopt(path)


def test_only_instances_of_the_root_are_written():
    schema = s.load_schema(SCHEMA)
    with refused(SerializationError, "NQX401", "lab.net@1:Net"):
        schema.to_layout({"words": 1}, LAYOUT)


def test_the_prefix_under_which_most_arrays_are():
    layout = LAYOUT + 'prefix: ["", "bert.", "model."]\nignore: ["norms.*.x", "/cls.*"]\n'
    arrays = {f"model.{name}": array for name, array in source(**{"norms.0.x": f(1)}).items()}
    report = []
    model = adopt(arrays | {"cls.w": f(2)}, layout, report=report)
    assert [each.message.split("'")[1] for each in report if "ignores" in each.message] == [
        "model.norms.0.x",
        "cls.w",
    ]
    schema = s.load_schema(SCHEMA)
    assert [*schema.to_layout(model, layout)] == [*source()]
    assert [*schema.to_layout(model, layout, like=arrays)] == [f"model.{name}" for name in source()]


# ---------------------------------------------------------------------------------------------------------------------
# Versions.

OLD = """
language: "1"
schema: lab.net
version: 1
root: Net
structs: {Net: {fields: {w: "float32[n, m]"}}}
"""
NEW = """
language: "1"
schema: lab.net
version: 2
root: Net
structs: {Net: {fields: {kernel: "float32[m, n]"}}}
migrations: [{from: 1, steps: [{transpose: {field: w}}, {rename: {field: w, to: kernel}}]}]
"""


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "schemas" / "net"
    place.mkdir(parents=True)
    (place / "v1.yaml").write_text(OLD.lstrip())
    (place / "v2.yaml").write_text(NEW.lstrip())
    return place


def test_a_layout_of_an_older_version_leads_to_the_newest(folder):
    schema, layout = s.load_schema(folder), HEAD + "structs: {Net: {w: weight}}\n"
    arrays = {"weight": f(2, 3)}
    model = schema.from_layout(arrays, layout)
    assert type(model) is schema.Net
    assert model.kernel.shape == (3, 2)
    np.testing.assert_array_equal(schema.to_layout(model, layout)["weight"], arrays["weight"])
    assert schema.at(1).from_layout(arrays, layout).w.shape == (2, 3)


# ---------------------------------------------------------------------------------------------------------------------
# Names that lead to the same array, and hostile files.


@pytest.mark.parametrize(
    ("layout", "words"),
    [
        (
            'structs: {Net: {norms: "n.{i}", bias: n.0.scale}}\n',
            "$.norms[0].scale",
        ),
        ("structs: {Net: {bias: {name: fused, part: [0, 2]}}}\n", "part 1"),
    ],
)
def test_an_array_of_two_fields(layout, words):
    name = "fused" if "fused" in layout else "n.0.scale"
    arrays = {"words": f(3, 4), name: f(4)}
    (found,) = problems(arrays, LAYOUT + layout)
    assert found[0] == "NQX703"
    assert words in found[2]


def test_keys_that_could_not_be_read_again():
    schema = s.load_schema(SCHEMA.replace("list[Norm]", "dict[str, Norm]"))
    norm = schema.Norm(scale=jnp.ones(4))
    model = schema.Net(
        n_heads=1, words=jnp.ones((3, 4)), norms={"a.b": norm}, head=None, bias=None, key=None
    )
    with refused(SerializationError, "NQX709"):
        schema.to_layout(model, LAYOUT)


def test_a_file_of_many_names_is_bounded():
    arrays = {f"x{i}": f(1) for i in range(20_000)}
    with bounded(), pytest.raises(SerializationError) as caught:
        adopt(source() | arrays)
    assert len(caught.value.diagnostics) <= 1001


@pytest.mark.parametrize(
    "patterns",
    [
        [f"*b{i}*" for i in range(3000)],
        ["*a" * 3000 + "b"],
        [f"{'[!b]' * 2000}*{i}" for i in range(20)],
    ],
)
def test_patterns_of_ignored_names_are_bounded(patterns):
    arrays = {"a" * 3000 + str(i): f(1) for i in range(5000)}
    layout = LAYOUT + f"ignore: {json.dumps(patterns)}\n"
    with bounded(), pytest.raises(SerializationError) as caught:
        adopt(source() | arrays, layout)
    assert [d.code for d in caught.value.diagnostics] == ["NQX507"]


def test_very_many_names_may_be_ignored():
    arrays = {f"x{i}": f(1) for i in range(20_000)}
    layout = LAYOUT + f"ignore: {json.dumps([*arrays, '*.nothing'])}\n"
    with bounded():
        adopt(source() | arrays, layout)


def test_names_in_messages_steer_no_terminal():
    (found,) = problems(source(**{"a\x1b[31m\nb": f(1)}))
    with pytest.raises(SerializationError) as caught:
        adopt(source(**{"a\x1b[31m\nb": f(1)}))
    assert "\x1b" not in str(caught.value)
    assert found[0] == "NQX706"


def test_a_size_that_nothing_shows():
    schema = SCHEMA.replace("float32[v, d]", "float32[v, h, k]")
    layout = LAYOUT + "structs: {Net: {words: {reshape: [v, h * k]}}}\n"
    with refused(SerializationError, "NQX707", "h, k"):
        adopt(source(), layout, schema=schema)
    model = adopt(source(), layout, schema=schema, values={"h": 2})
    assert model.words.shape == (3, 2, 2)


# ---------------------------------------------------------------------------------------------------------------------
# Structs of other schemas, constant and shared arrays, stacked structs without layers.

OPTIM = """
language: "1"
schema: lab.optim
version: 1
root: Adam
structs: {Adam: {fields: {mu: "float32[n, m]", count: {type: int, kind: static, default: 0}}}}
"""


def test_structs_of_another_schema_have_rules_under_their_identity(tmp_path):
    for name, text in {"optim": OPTIM, "net": SCHEMA}.items():
        (tmp_path / name).mkdir()
        used = "root: Net\nuses: [lab.optim@1]"
        text = text.replace("root: Net", used).replace("bias:", "adam: lab.optim.Adam\n      bias:")
        (tmp_path / name / "v1.yaml").write_text(text.lstrip())
    rule = "{lab.optim.Adam: {mu: {name: m, transpose: true}}}"
    layout = f"{LAYOUT}structs: {rule}\n"
    schema = s.load_schema(tmp_path / "net")
    arrays = source(**{"adam.m": f(2, 5)})
    model = schema.from_layout(arrays, layout, {"adam.count": 4})
    assert (model.adam.mu.shape, model.adam.count) == ((5, 2), 4)
    back = schema.to_layout(model, layout, like=arrays)
    np.testing.assert_array_equal(back["adam.m"], arrays["adam.m"])
    with refused(SerializationError, "NQX701", "lab.optim.Adam"):
        schema.from_layout(arrays, layout.replace("optim.Adam", "optim.Adm"))


def test_constant_and_shared_arrays_are_written_in_full():
    schema = s.load_schema(SCHEMA)
    one = jnp.ones(4)
    norms = [schema.Norm(scale=one), schema.Norm(scale=one)]
    model = schema.Net(
        n_heads=1, words=jnp.zeros((3, 4)), norms=norms, head=None, bias=None, key=None
    )
    found = schema.to_layout(model, LAYOUT)
    assert [*found] == ["words", "norms.0.scale", "norms.1.scale"]
    np.testing.assert_array_equal(found["norms.1.scale"], np.ones(4, "float32"))
    again = schema.from_layout(found, LAYOUT, {"n_heads": 1})
    assert again == model


def test_a_stacked_struct_needs_a_layer():
    schema = SCHEMA.replace("list[Norm]", "Norm[][m]")
    layout = LAYOUT + 'structs: {Net: {norms: "h.{i}"}}\n'
    (found,) = problems({"words": f(3, 4)}, layout, schema=schema)
    assert found[:2] == ("NQX705", "$.norms.scale")


def test_layers_have_one_shape():
    schema = SCHEMA.replace("list[Norm]", "Norm[][m]").replace(
        '"float32[d]", eps', '"float32[_]", eps'
    )
    layout = LAYOUT + 'structs: {Net: {norms: "norms.{i}"}}\n'
    (found,) = problems(source(**{"norms.1.scale": f(7)}), layout, schema=schema)
    assert found[0] == "NQX412"


def test_merged_arrays_of_several_sizes_need_them():
    layout = LAYOUT + "structs: {Net: {words: [a, b]}}\n"
    arrays = source(words=None, a=f(1, 4), b=f(2, 4))
    (found,) = problems(arrays, layout)
    assert found[0] == "NQX702"
    assert "write their `sizes`" in found[2]
    sized = layout.replace("[a, b]", "{name: [a, b], sizes: [1, 2]}")
    assert adopt(arrays, sized).words.shape == (3, 4)
    found = problems(source(words=None, a=f(1, 4), b=f(2, 4).astype("int8")), sized)
    assert [each[0] for each in found] == ["NQX411", "NQX411"]


#: Type of a field -> rule, arrays of the file, and code and words of the one problem.
FIELDS = {
    "tuple[float32[2], int8[2]]": ("x", {"x.0": f(2)}, "NQX412", "items"),
    "prng_key": ("x", {"x": np.zeros(2, "uint32")}, "NQX420", "prng_key[threefry2x32]"),
    "list[float32[_], 3]": ("x", {"x.0": f(2)}, "NQX412", "3"),
    "float32[a, b]": ("{reshape: [a, b, 2]}", {"x": f(2, 3, 2)}, "NQX702", "as many"),
    "float32[a, 2]": ("{reshape: [n]}", {"x": f(3)}, "NQX412", "sizes"),
}


@pytest.mark.parametrize("declared", FIELDS)
def test_fields_that_do_not_fit(declared):
    rule, arrays, code, words = FIELDS[declared]
    fields = f'structs: {{Net: {{fields: {{x: "{declared}"}}}}}}'
    schema = f'language: "1"\nschema: lab.net\nversion: 1\nroot: Net\n{fields}\n'
    found = problems(arrays, f"{HEAD}structs: {{Net: {{x: {rule}}}}}\n", schema=schema)
    assert code in [each[0] for each in found], found
    assert any(words in each[2] for each in found), found


def test_searches_of_names_have_a_budget(monkeypatch):
    monkeypatch.setattr("neuralqx_struct.layouts.names._MOST_LOOKS", 1)
    assert problems(source())[0][0] == "NQX507"


def test_arrays_that_do_not_split_are_not_written():
    schema = s.load_schema(SCHEMA)
    norm = schema.Norm(scale=jnp.ones(4))
    model = schema.Net(
        n_heads=1, words=jnp.ones((3, 4)), norms=[norm], head=None, bias=None, key=None
    )
    for rule in ("[a, b]", "{name: [a, b], sizes: [1, 1]}"):
        with refused(SerializationError, "NQX412", "$.words"):
            schema.to_layout(model, f"{LAYOUT}structs: {{Net: {{words: {rule}}}}}\n")
