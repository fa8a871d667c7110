"""Loads with ``dtype=``: which arrays become another dtype, what is reported, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import neuralqx_struct as s
from neuralqx_struct.checkpoint.options import conversions
from neuralqx_struct.dtypes import DTYPES, FAMILIES, dtype_named, dtypes_of
from tests.builders import refused


class Convertible(s.Struct):
    w: jax.Array
    n: jax.Array
    key: jax.Array
    table: object
    shared: object = None
    step: int = 0
    rate: float = 0.1


def state():
    w = jnp.arange(8.0) / 3
    return Convertible(w, jnp.arange(3), jax.random.key(1), np.arange(4.0) / 3, shared=w)


@pytest.fixture(params=["npz", "safetensors", "npz-zip"])
def ckpt(tmp_path, request):
    store, _, form = request.param.partition("-")
    return state().export(tmp_path / f"ckpt{'.zip' if form else ''}", store=store)


@pytest.mark.parametrize("wanted", ["bfloat16", jnp.bfloat16, np.dtype("bfloat16")])
def test_one_dtype_is_for_all_floating_arrays(ckpt, wanted):
    report = []
    loaded = Convertible.load(ckpt, dtype=wanted, report=report)
    assert [loaded.w.dtype, loaded.table.dtype, loaded.n.dtype] == ["bfloat16", "bfloat16", "int32"]
    np.testing.assert_array_equal(loaded.w, state().w.astype("bfloat16"))
    np.testing.assert_array_equal(loaded.table, state().table.astype("bfloat16"))
    assert loaded.shared is loaded.w, "one array of the file stays one"
    assert (loaded.step, loaded.rate) == (0, 0.1)
    assert jnp.array_equal(jax.random.key_data(loaded.key), jax.random.key_data(state().key))
    assert [str(each) for each in report] == [
        "$.w: was cast from float32 to bfloat16 [NQX425]",
        "$.table: was cast from float64 to bfloat16 [NQX425]",
        "$.shared: was cast from float32 to bfloat16 [NQX425]",
    ]


MAPPINGS = [
    ({"float64": "float32"}, ["float32", "float32", "int32"]),
    ({"floating": "float16", "float64": "bfloat16"}, ["float16", "bfloat16", "int32"]),
    ({"float64": "float32", "floating": "float64"}, ["float64", "float32", "int32"]),
    ({"integer": "int8"}, ["float32", "float64", "int8"]),
    ({"uint32": "int32", "float32": "float32"}, ["float32", "float64", "int32"]),
]


@pytest.mark.parametrize(("wanted", "dtypes"), MAPPINGS)
def test_a_mapping_converts_the_dtypes_that_it_names(ckpt, wanted, dtypes):
    for options in ({"as_numpy": True}, {"abstract": True}):
        loaded = Convertible.load(ckpt, dtype=wanted, **options)
        assert [str(leaf.dtype) for leaf in (loaded.w, loaded.table, loaded.n)] == dtypes
    assert np.shape(loaded.key) == (), "its words are no array of the user"
    held = s.to_state_dict(state())
    again = s.from_state_dict(held, load_cls=Convertible, dtype=wanted, as_numpy=True)
    assert [str(leaf.dtype) for leaf in (again.w, again.table, again.n)] == dtypes
    raw = s.load(ckpt, raw=True, dtype=wanted, as_numpy=True)
    assert [str(raw[name].dtype) for name in ("w", "table", "n")] == dtypes


def test_filters_see_the_arrays_as_they_were_saved(ckpt):
    part = Convertible.load(ckpt, select="dtype:float64", dtype="float16")
    assert part.w is None and part.n is None
    assert part.table.dtype == "float16"


def test_shards_are_converted_one_by_one(ckpt):
    rows = NamedSharding(Mesh(np.array(jax.devices()), ("x",)), PartitionSpec("x"))
    spread = lambda path, leaf: rows if leaf.shape == (8,) else None  # noqa: E731
    loaded = Convertible.load(ckpt, dtype="bfloat16", shardings=spread)
    assert loaded.w.sharding == rows and loaded.w.dtype == "bfloat16"
    np.testing.assert_array_equal(loaded.w, state().w.astype("bfloat16"))


def test_wide_arrays_load_without_64_bits_as_narrow_ones(tmp_path):
    with jax.enable_x64(True):
        path = s.export([jnp.arange(3.0)], tmp_path / "wide")
    with refused(s.SerializationError, "NQX417"):
        s.load(path)
    assert s.load(path, dtype={"float64": "float32"})[0].dtype == "float32"


def test_constant_arrays_are_converted_too():
    full = {"__kind__": "full", "dtype": "float32", "shape": [2], "value": 1.5, "leaf": "jax"}
    held = s.to_state_dict([jnp.zeros(2)])
    held = {**held, "manifest": {"__kind__": "list", "items": [full]}, "arrays": {}}
    (made,) = s.from_state_dict({**held, "array_data": {}}, dtype="bfloat16")
    assert made.dtype == "bfloat16" and made.tolist() == [1.5, 1.5]


def test_whole_numbers_have_to_fit(tmp_path):
    path = s.export([np.array([1, 300])], tmp_path / "whole")
    with refused(s.SerializationError, "NQX213", "$[0]", "int8"):
        s.load(path, dtype={"integer": "int8"})
    assert s.load(path, dtype={"integer": "uint16"})[0].tolist() == [1, 300]


REFUSED = [
    ("int8", ValueError, "int8"),
    ("float33", ValueError, "float33"),
    ({"float32": "int8"}, ValueError, "int8"),
    ({"complex64": "float32"}, ValueError, "complex64"),
    ({"number": "float32"}, ValueError, "number"),
    ({"float32": "floating"}, ValueError, "floating"),
    ({"flaoting": "float32"}, ValueError, "flaoting"),
    (3, TypeError, "3"),
]


@pytest.mark.parametrize(("wanted", "error", "named"), REFUSED)
def test_other_conversions_are_refused(ckpt, wanted, error, named):
    with refused(error, "dtype=", named):
        Convertible.load(ckpt, dtype=wanted)


def test_conversions_run_after_the_steps_of_migrations(tmp_path):
    first = "language: '1'\nschema: tests.conversions\nversion: {}\nroot: A\nstructs:\n  A: {{fields: {{{}}}}}\n"
    folder = tmp_path / "conversions"
    folder.mkdir()
    (folder / "v1.yaml").write_text(first.format(1, 'x: "float64[n]"'))
    old = s.load_schema(folder)
    path = old.A(x=np.arange(3) / 3).export(tmp_path / "old")
    steps = "migrations:\n  - {from: 1, steps: [{cast: {field: x, dtype: float32, exact: false, lossy: true}}]}\n"
    (folder / "v2.yaml").write_text(first.format(2, 'x: "float32[n]"') + steps)
    report = []
    with refused(s.SerializationError, "NQX411", "float32[n]", "bfloat16[3]"):
        s.load_schema(folder).A.load(path, dtype="bfloat16", report=report)
    casts = [each.message for each in report if "cast" in each.message]
    assert [text.split("\n")[0] for text in casts] == [
        "was cast from float64 to float32",
        "was cast from float32 to bfloat16",
    ]
    loaded = s.load_schema(folder).load(path, dtype="bfloat16", abstract=True)
    assert loaded.x.dtype == "bfloat16"


@pytest.mark.parametrize("name", FAMILIES)
def test_families_are_those_of_jax(name):
    parent = getattr(jnp, name)
    known = [each for each in DTYPES if jnp.issubdtype(dtype_named(each), parent)]
    assert [*dtypes_of(name)] == known
    assert FAMILIES[name].usual in known
    assert dtypes_of("int8") == ("int8",)
    assert dtypes_of("bfloat17") == ()


def test_no_conversion_is_left_for_a_dtype_that_stays():
    assert conversions({"float32": "float32"}) == {}


@pytest.mark.parametrize("wanted", ["bfloat16", {"float32": "bfloat16"}])
def test_a_schema_of_one_dtype_refuses_another_and_names_the_option(tmp_path, wanted):
    schema = s.load_schema("""
language: "1"
schema: tests.fixed
version: 1
root: A
structs: {A: {fields: {x: "float32[]", n: {type: int, default: 0}}}}
""")
    path = schema.A(x=jnp.float32(1)).export(tmp_path / "ckpt")
    with refused(s.SerializationError, "NQX411", "float32[]", "bfloat16") as error:
        schema.load(path, dtype=wanted)
    assert "dtype= made it so" in error.value.diagnostics[0].hint
    assert s.load(path, dtype=wanted, raw=True)["x"].dtype == "bfloat16"


def test_a_choice_that_lacks_a_dtype_is_shown_with_it(tmp_path):
    schema = s.load_schema("""
language: "1"
schema: tests.chosen
version: 1
root: A
dtypes: {compute: [float32, bfloat16]}
structs: {A: {fields: {x: "compute[n]"}}}
""")
    path = schema.A(x=jnp.ones(2)).export(tmp_path / "ckpt")
    with refused(s.SerializationError, "NQX411", "compute[n]", "float16") as error:
        schema.load(path, dtype="float16")
    (found,) = error.value.diagnostics
    assert found.hint.endswith("add the dtype: `dtypes: {compute: [float32, bfloat16, float16]}`")
