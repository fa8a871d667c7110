"""neuralqx_struct.tools.inference: first schemas that have no errors and to which their bundle conforms."""

import enum
import json
import math
import pathlib
import subprocess
import sys
import typing
import zipfile

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import neuralqx_struct as s
from neuralqx_struct.bundle import BundleExistsError
from neuralqx_struct.errors import SchemaError, has_errors
from neuralqx_struct.schema.series import load_series
from neuralqx_struct.tools.linting import lint_series
from tests.builders import ROOT, bounded, every, invoke, refused


class Mode(enum.Enum):
    FAST = 1
    SLOW = 2


class Layer(s.Struct):
    w: jax.Array
    b: jax.Array
    act: str = s.field(static=True, default="relu")


class State(s.Struct):
    layers: list
    table: dict
    key: jax.Array
    opt: object
    mode: Mode
    loss: float | None
    path: pathlib.Path
    rate: list
    n: int = 8


@pytest.fixture
def ckpt(tmp_path):
    layers = [Layer(jnp.ones((4, 8)), jnp.zeros(8)), Layer(jnp.ones((8, 8)), jnp.zeros(8))]
    table = {"a": Layer(jnp.ones((4, 8)), jnp.zeros(8)), "b": None}
    opt = optax.adam(1e-3).init({"w": jnp.ones((4, 8))})
    state = State(
        layers, table, jax.random.key(0), opt, Mode.FAST, None, pathlib.Path("x"), [1, 2.5]
    )
    return state.export(tmp_path / "ckpt")


def write(tmp_path, node):
    """A manifest by itself."""
    records, todo = {}, [node]
    while todo:
        inner = todo.pop()
        if isinstance(inner, dict):
            if inner.get("__kind__") == "array":
                records[inner["name"]] = {"dtype": inner["dtype"], "shape": inner["shape"]}
            todo += inner.values()
        elif isinstance(inner, list):
            todo += inner
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps({"version": 1, "manifest": node, "arrays": records}))
    return path


def struct(name, **fields):
    return {"__kind__": "struct", "type": name, "fields": fields}


def array(*shape, dtype="float32", name="a"):
    return {
        "__kind__": "array",
        "name": f"{name}{dtype}{shape}",
        "dtype": dtype,
        "shape": list(shape),
    }


def assert_sound(text, path):
    series = load_series(text)
    assert not has_errors(lint_series(series)), lint_series(series)
    assert s.validate(path, series) == []
    return series.head


def field_of(tmp_path, *values):
    """The type that a field of several instances gets, and the line that says so."""
    path = write(
        tmp_path,
        struct(
            "lab:Root",
            items={"__kind__": "list", "items": [struct("lab:Part", x=v) for v in values]},
        ),
    )
    text = s.infer(path)
    document = assert_sound(text, path)
    line = next(line for line in text.splitlines() if line.startswith("      x:"))
    return document.structs["Part"].fields["x"].text, line


def test_a_checkpoint_of_plain_classes(ckpt):
    text = s.infer(ckpt)
    document = assert_sound(text, ckpt)
    fields = {name: said.text for name, said in document.structs["State"].fields.items()}
    assert fields == {
        "layers": "list[Layer]",
        "table": "dict[str, Layer | null]",
        "key": "prng_key[threefry2x32]",
        "opt": "tuple[pytree, pytree]",
        "mode": "Mode",
        "loss": "pytree",
        "path": "path",
        "rate": "list[float]",
        "n": "int",
    }
    layer = document.structs["Layer"].fields
    assert (layer["w"].text, layer["b"].text, layer["act"].kind) == (
        "float32[n_w_0, size_8]",
        "float32[size_8]",
        "static",
    )
    assert document.dims["size_8"].doc == "8 in the bundle"
    assert "# TODO: perhaps {equals: n}" in text
    assert document.enums["Mode"].members == ["FAST"]
    assert document.id.endswith("test_inference.state") and text.count("TODO") >= 7


def test_the_schema_tells_what_no_longer_fits(ckpt, tmp_path):
    file = tmp_path / "v1.yaml"
    file.write_text(s.infer(ckpt, schema="lab.state"))
    assert s.validate(ckpt, file) == []
    file.write_text(file.read_text().replace("float32[size_8]", "float64[size_8]"))
    found = s.validate(ckpt, file)
    assert {(d.code, d.path) for d in found} == {
        ("NQX411", f"$.{p}.b") for p in ("layers[0]", "layers[1]", "table['a']")
    }
    file.write_text(file.read_text().replace("float64[size_8]", "float65[size_8]"))
    assert {d.code for d in s.validate(ckpt, file)} <= {"NQX101", "NQX102"}


def test_classes_of_another_name_are_still_no_bundle_of_the_schema(ckpt, vmc_folder):
    assert [d.code for d in s.validate(ckpt, vmc_folder)] == ["NQX404"]


@every(
    ("values", "text"),
    [
        ((1, 2), "int"),
        ((1, 2.5), "float"),
        ((1, None), "int | null"),
        ((None,), "pytree"),
        ((True, 1), "pytree"),
        (("a",), "str"),
        (({"__kind__": "bigint", "value": "1" * 30},), "int"),
        (({"__kind__": "float", "value": "nan"}, 1.0), "float"),
        (({"__kind__": "complex", "real": 1, "imag": 2},), "complex"),
        (({"__kind__": "dtype", "value": "float32"},), "dtype"),
        ((array(3), array(3)), "float32[n_x]"),
        ((array(3), array(4)), "float32[n_x]"),
        ((array(3), array(3, 3)), "float32[...]"),
        ((array(),), "float32[]"),
        ((array(1), array(1)), "float32[n_x]"),
        ((array(2), array(2, dtype="int8")), "pytree"),
        ((array(2, 3, 2), array(4, 3, 4)), "float32[n_x_0, n_x_1, n_x_0]"),
        (({"__kind__": "list", "items": []},), "list[pytree]"),
        (({"__kind__": "list", "items": [array(2), array(3)]},), "list[float32[_]]"),
        (({"__kind__": "tuple", "items": [1, "a"]},), "tuple[int, str]"),
        (({"__kind__": "tuple", "items": []},), "tuple[]"),
        (
            ({"__kind__": "tuple", "items": [1]}, {"__kind__": "tuple", "items": [1, 2]}),
            "tuple[int, ...]",
        ),
        (
            (
                {"__kind__": "tuple", "items": [array(2), array(3)]},
                {"__kind__": "tuple", "items": [array(4), array(3)]},
            ),
            "tuple[float32[n_x], float32[n_x_1]]",
        ),
        (({"__kind__": "dict", "items": [["a", 1], ["b", None]]},), "dict[str, int | null]"),
        (({"__kind__": "dict", "items": [[1, 1]]},), "pytree"),
        (({"__kind__": "set", "items": [1]},), "pytree"),
        (({"__kind__": "namedtuple", "type": "lab:P", "fields": {"a": 1}},), "pytree"),
        ((struct("lab:A", a=1), struct("lab:B", b=1)), "A | B"),
        ((struct("lab:A", a=1), struct("lab:A", b=1)), "pytree"),
        ((struct("lab:A", a=1), struct("bal:A", a=1)), "pytree"),
        ((struct("lab:int", a=1),), "pytree"),
        ((struct("lab.other@2:A", a=1),), "pytree"),
        ((struct("lab:Outer.Inner", a=1),), "Inner"),
        (
            (
                {"__kind__": "enum", "type": "lab:E", "name": "a"},
                {"__kind__": "enum", "type": "lab:E", "name": "b"},
            ),
            "E",
        ),
        (({"__kind__": "enum", "type": "lab:E", "name": "a|b"},), "pytree"),
        (({"__kind__": "enum", "type": "lab:Part", "name": "a"},), "pytree"),
        (
            (
                {"__kind__": "enum", "type": "lab:E", "name": "a"},
                {"__kind__": "enum", "type": "bal:E", "name": "a"},
            ),
            "pytree",
        ),
    ],
)
def test_types(tmp_path, values, text):
    found, line = field_of(tmp_path, *values)
    assert found == text
    assert ("TODO" in line) == ("pytree" in text)


def test_names_of_sizes_are_those_of_nothing_else(tmp_path):
    path = write(
        tmp_path,
        struct(
            "lab:A", w=array(5, 6), w_0=array(7), n_w_1=8, size_9=array(9), y=array(9, name="y")
        ),
    )
    document = assert_sound(s.infer(path), path)
    texts = {name: said.text for name, said in document.structs["A"].fields.items()}
    assert texts == {
        "w": "float32[n_w_0, n_w_1_1]",
        "w_0": "float32[n_w_0_1]",
        "n_w_1": "int",
        "size_9": "float32[size_9_1]",
        "y": "float32[size_9_1]",
    }


def test_a_bundle_that_brings_its_schema_gives_that(tmp_path, vmc_folder):
    schema = s.load_schema(vmc_folder)
    s.example(schema.root).export(tmp_path / "ckpt")
    text = s.infer(tmp_path / "ckpt")
    assert load_series(text).head == schema.document and text.startswith("# yaml-language-server")


def test_bundles_of_neuralqx(tmp_path):
    node = {
        "__kind__": "struct",
        "type": "neuralqx.vqs:State",
        "fields": {"w": array(2, 3, dtype="float64"), "e": float("nan")},
    }
    document = {
        "version": 1,
        "manifest": node,
        "arrays": {node["fields"]["w"]["name"]: {"dtype": "float64", "shape": [2, 3]}},
    }
    with zipfile.ZipFile(tmp_path / "theirs.zip", "w") as archive:
        archive.writestr("manifest.json", json.dumps(document))
        with archive.open("arrays.npz", "w") as file:
            np.savez(file, **{node["fields"]["w"]["name"]: np.zeros((2, 3))})
    document = assert_sound(s.infer(tmp_path / "theirs.zip"), tmp_path / "theirs.zip")
    assert document.id == "neuralqx.vqs.state"
    assert document.structs["State"].fields["w"].text == "float64[n_w_0, n_w_1]"


@pytest.mark.parametrize(
    "name",
    ["lambda", "größe"],
)
def test_what_has_no_schema(tmp_path, name):
    with refused(SchemaError, "NQX118", repr(name)):
        s.infer(write(tmp_path, struct("lab:A", **{name: 1})))


words = st.sampled_from("abcdwxyz")
shapes = st.lists(st.integers(0, 4), max_size=3)
leaves = (
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text("ab'\"#: ", max_size=4)
    | st.builds(
        lambda shape, dtype: array(*shape, dtype=dtype),
        shapes,
        st.sampled_from(["float32", "int8"]),
    )
    | st.sampled_from([{"__kind__": "bytes", "base64": ""}, {"__kind__": "path", "value": "x"}])
    | st.builds(
        lambda shape: {
            "__kind__": "prng-key",
            "impl": "rbg",
            "data": array(*shape, 4, dtype="uint32"),
        },
        shapes,
    )
    | st.builds(lambda n: {"__kind__": "enum", "type": "lab:E", "name": n}, words)
)
nodes = st.recursive(
    leaves,
    lambda inner: (
        st.builds(
            lambda k, i: {"__kind__": k, "items": i},
            st.sampled_from(["list", "tuple", "set"]),
            st.lists(inner, max_size=3),
        )
        | st.builds(
            lambda i: {"__kind__": "dict", "items": [list(p) for p in i.items()]},
            st.dictionaries(words, inner, max_size=3),
        )
        | st.builds(
            lambda n, f: struct(f"lab:{n}", **f),
            st.sampled_from(["A", "B", "C"]),
            st.dictionaries(words, inner, max_size=2),
        )
        | st.builds(lambda x, y: struct("lab:D", x=x, y=y), inner, inner)
    ),
    max_leaves=12,
)


@given(st.dictionaries(words, nodes, max_size=4))
def test_whatever_is_in_it_conforms(tmp_path_factory, fields):
    path = write(tmp_path_factory.mktemp("bundle"), struct("lab:Root", **fields))
    assert_sound(s.infer(path), path)


names = words | st.sampled_from(["l_0", "l_1", "0", "1", "class", "a b", "größe", "export"])


@st.composite
def registered(draw, inner):
    children = draw(st.lists(inner, max_size=2))
    keys = st.sampled_from(["x", "y", 0, 1, 2.5])
    aux = st.none() | st.builds(lambda items: {"__kind__": "tuple", "items": items}, st.lists(keys))
    flat = {"mode": "flatten", "children": children, "aux": draw(aux)}
    boxed = {"mode": "serializer", "payload": draw(inner)}
    return {
        "__kind__": "registered-pytree",
        "type": "lab:R",
        **draw(st.sampled_from([flat, boxed])),
    }


trees = st.recursive(
    nodes,
    lambda inner: (
        st.builds(
            lambda items: {"__kind__": "dict", "items": [list(pair) for pair in items.items()]},
            st.dictionaries(names | st.integers(0, 2), inner, max_size=4),
        )
        | st.builds(
            lambda kind, name, fields: {"__kind__": kind, "type": f"lab:{name}", "fields": fields},
            st.sampled_from(["namedtuple", "pytree-dataclass"]),
            st.sampled_from(["N", "Part", "State"]),
            st.dictionaries(names, inner, max_size=3),
        )
        | st.builds(
            lambda items: {"__kind__": "tuple", "items": items}, st.lists(inner, max_size=3)
        )
        | registered(inner)
    ),
    max_leaves=12,
)


def test_objects_of_one_class_with_different_fields_beside_dicts_of_its_name(tmp_path):
    parts = {
        "a": struct("lab:B", x=1),
        "0": struct("lab:B"),
        "b": {"__kind__": "dict", "items": [["n", 1]]},
        "c": struct("lab:C", y=1),
        "d": {"__kind__": "dict", "items": [["c", {"__kind__": "dict", "items": [["z", 1]]}]]},
    }
    root = {"__kind__": "namedtuple", "type": "lab:N", "fields": parts}
    path = write(tmp_path, root)
    assert_sound(s.infer(path), path)


@given(trees)
@settings(max_examples=60)
def test_any_tree_conforms(tmp_path_factory, root):
    assume(not isinstance(root, dict) or root["__kind__"] != "struct")
    path = write(tmp_path_factory.mktemp("bundle"), root)
    assert_sound(s.infer(path), path)


def test_the_command(ckpt, tmp_path):
    run = lambda *words: invoke("infer", *words)  # noqa: E731
    printed = run(ckpt, "--id", "lab.state")
    assert yaml.safe_load(printed.stdout)["schema"] == "lab.state"
    assert run(ckpt, "--id", "lab.state", "--out", tmp_path / "v1.yaml").exit_code == 0
    assert (tmp_path / "v1.yaml").read_text() == printed.stdout
    assert run(tmp_path / "nope").exit_code == 2
    assert run(ckpt, "--id", "not an id").exit_code == 1


def test_it_needs_neither_jax_nor_numpy(ckpt):
    code = (
        f"import sys, neuralqx_struct as s; s.infer({str(ckpt)!r});"
        "assert not {'jax', 'numpy'} & sys.modules.keys(), 'imported'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_root_that_lacks_fields_where_it_stands_inside_itself(tmp_path):
    path = write(tmp_path, struct("m:A", x=struct("m:A", y=1), n=2))
    text = s.infer(path)
    assert "TODO" in field_of_root(text)["x"] + text and field_of_root(text)["n"] == "int"


def field_of_root(text):
    return yaml.safe_load(text)["structs"]["A"]["fields"]


# --- every bundle and every type -------------------------------------------------------------------------------------

GOLDEN = sorted((ROOT / "tests" / "golden").glob("*/*/manifest.json"))


@pytest.mark.parametrize("manifest", GOLDEN, ids=lambda path: path.parent.name)
def test_golden_bundles(manifest):
    assert_sound(s.infer(manifest.parent), manifest.parent)


class Point(typing.NamedTuple):
    x: int


class Flags(enum.Flag):
    A = 1
    B = 2


class Everything(s.Struct):
    array: jax.Array
    numpy: np.ndarray
    low: jax.Array
    key: jax.Array
    keys: jax.Array
    numbers: list
    modes: list[Mode]
    named: dict[str, Mode]
    pair: tuple[Mode, int]
    point: object
    anything: object
    layers: dict[str, Layer]
    optional: Layer | None
    scalar: np.float32
    big: int
    number: complex
    mode: Mode = s.field(static=True)
    flags: Flags = s.field(static=True)
    text: str = s.field(static=True)
    data: bytes = s.field(static=True)
    place: pathlib.Path = s.field(static=True)
    dtype: np.dtype = s.field(static=True)
    names: tuple[str, ...] = s.field(static=True)
    some: frozenset = s.field(static=True)
    ratio: float = s.field(static=True)
    on: bool = s.field(static=True)
    nothing: None = s.field(static=True, default=None)


class Reserved(enum.Enum):
    null = 1
    true = 2


class Words(s.Struct):
    words: list[Reserved]


def everything():
    layer = Layer(jnp.ones((4, 8)), jnp.zeros(8))
    return Everything(
        array=jnp.ones((2, 3)),
        numpy=np.zeros(5, "int8"),
        low=jnp.ones(3, "bfloat16"),
        key=jax.random.key(0),
        keys=jax.random.split(jax.random.key(0), 3),
        numbers=[1, 2.0, math.nan],
        modes=[Mode.FAST, Mode.SLOW],
        named={"a": Mode.FAST},
        pair=(Mode.SLOW, 3),
        point=Point(3),
        anything={1: {2, 3}},
        layers={"a": layer, "b": layer},
        optional=None,
        scalar=np.float32(3),
        big=10**40,
        number=1j,
        mode=Mode.FAST,
        flags=Flags.A | Flags.B,
        text="x",
        data=b"x",
        place=pathlib.Path("x"),
        dtype=np.dtype("int8"),
        names=("a", "b"),
        some=frozenset({1}),
        ratio=math.inf,
        on=True,
    )


def test_every_type_of_field(tmp_path):
    path = everything().export(tmp_path / "ckpt")
    fields = assert_sound(s.infer(path), path).structs["Everything"].fields
    texts = {name: declared.text for name, declared in fields.items()}
    assert texts == {
        "array": "float32[n_array_0, size_3]",
        "numpy": "int8[n_numpy]",
        "low": "bfloat16[size_3]",
        "key": "prng_key[threefry2x32]",
        "keys": "prng_key[threefry2x32, size_3]",
        "numbers": "list[float]",
        "modes": "list[Mode]",
        "named": "dict[str, Mode]",
        "pair": "tuple[Mode, int]",
        "point": "pytree",
        "anything": "pytree",
        "layers": "dict[str, Layer]",
        "optional": "pytree",
        "scalar": "float32[]",
        "big": "int",
        "number": "complex",
        "mode": "Mode",
        "flags": "pytree",
        "text": "str",
        "data": "bytes",
        "place": "path",
        "dtype": "dtype",
        "names": "tuple[str, str]",
        "some": "pytree",
        "ratio": "float",
        "on": "bool",
        "nothing": "pytree",
    }


def test_members_of_an_enum_with_words_of_yaml(tmp_path):
    path = Words([Reserved.null, Reserved.true]).export(tmp_path / "ckpt")
    document = assert_sound(s.infer(path), path)
    assert document.enums["Reserved"].members == ["null", "true"]


# --- bundles that were made to be slow -------------------------------------------------------------------------------


def nested(kind, depth, inner):
    for _ in range(depth):
        inner = {"__kind__": kind, "items": [inner]}
    return inner


SLOW = {
    "names": lambda: {"x" * 60 + f"{n:05}": array(n + 2, name=n) for n in range(4000)},
    "underscores": lambda: {f"n_x{'_' * n}": 1 for n in range(3000)} | {"x": array(5)},
    "tuples": lambda: {"x": {"__kind__": "tuple", "items": [array(2, 3)] * 20_000}},
    "deep": lambda: {"x": nested("tuple", 190, array(2, 3))},
    "instances": lambda: {
        "x": {"__kind__": "list", "items": [struct("m:A", a=array(n, 2)) for n in range(5000)]}
    },
    "fields of one class": lambda: {f"f{n}": struct("m:A", a=n) for n in range(8000)},
    "classes": lambda: {
        "x": {"__kind__": "list", "items": [struct(f"m:A{n}", a=n) for n in range(5000)]}
    },
    "members": lambda: {
        "x": {
            "__kind__": "list",
            "items": [{"__kind__": "enum", "type": "m:E", "name": f"a{n}"} for n in range(5000)],
        }
    },
}


@every("name", SLOW)
def test_drafts_take_bounded_time(tmp_path, name):
    path = write(tmp_path, struct("m:Root", **SLOW[name]()))
    with bounded():
        assert "root: Root" in s.infer(path)


def test_a_schema_is_not_written_into_a_bundle(tmp_path):
    ckpt = s.export({"w": np.zeros(2)}, tmp_path / "ckpt")
    found = s.infer(ckpt)
    with refused(BundleExistsError, "NQX431", ckpt):
        found.write(ckpt, overwrite=True)
    with refused(BundleExistsError, "NQX431", ckpt / "manifest.json"):
        found.write(ckpt / "manifest.json")
    assert s.verify(ckpt) == [] and not (ckpt / "v1.yaml").exists()


def test_the_reason_for_a_field_without_a_type_is_in_words_of_users(tmp_path):
    s.export({"loss": assert_sound, "kinds": {1, 2}}, tmp_path / "ckpt")
    text = s.infer(tmp_path / "ckpt")
    assert "# loss: left out, code is no data" in text
    assert s.load_schema(text).load(tmp_path / "ckpt").kinds == {1, 2}
    assert "kinds: pytree  # TODO: the language has no type for set" in text
