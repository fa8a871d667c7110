import collections
import dataclasses
import enum
import functools
import sys
import types
from dataclasses import dataclass
from typing import Any, NamedTuple

import attrs
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import optax
import pytest

import neuralqx_struct as s
from neuralqx_struct.codecs.jax import DecodeOptions, StructDecoder, StructEncoder
from neuralqx_struct.errors import SerializationError, UntrustedError
from tests.builders import every, refused


class Point(NamedTuple):
    x: Any
    y: Any


class Color(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    LOW = 1


class Word(enum.StrEnum):
    A = "a"


@dataclass
class Plain:
    a: Any
    b: int = 2

    def __post_init__(self):
        assert self.b == 2, "constructors do not run on load"


class Model(s.Struct):
    w: object
    inner: object = None
    tag: str = s.field(static=True, default="t")
    cache: object = s.field(pytree=False, default=None)
    kept: object = s.field(pytree=False, serialize=True, default=None)
    size: int = s.field(static=True, init=False, derived=lambda self: self.w.size)


class Pair:
    def __init__(self, left, right):
        self.left, self.right = left, right

    def __eq__(self, other):
        return (self.left, self.right) == (other.left, other.right)

    __hash__ = None


s.register_pytree_type(
    Pair, flatten=lambda p: ([p.left], p.right), unflatten=lambda aux, c: Pair(c[0], aux)
)


class Edge:
    def __init__(self, flux, source):
        self.flux, self.source = flux, source


s.register_attrs_type(Edge, node_fields=("flux",), static_fields=("source",))


def encode(value):
    encoder = StructEncoder()
    node = encoder.encode(value)
    encoder.finish()
    return node, {name: np.asarray(array) for name, array in encoder.arrays.items()}


def round_trip(value, **reading):
    node, arrays = encode(value)
    decoder = StructDecoder(arrays, DecodeOptions(**reading))
    again = decoder.decode(node)
    decoder.finish()
    return again


VALUES = [
    Color.RED, Level.LOW, Word.A, Point(1, "b"), Plain([1]), Pair(1, ("a", 2)), Model(w=np.zeros(2), inner=Model(np.ones(1)), tag="x"),
    [Point(Color.RED, {"k": Level.LOW})], Plain(Pair(Point(1, 2), 3)),
]  # fmt: skip


@every("value", VALUES)
def test_what_they_were(value):
    again = round_trip(value)
    assert type(again) is type(value) and again == value


def test_jax_arrays_come_back_as_jax_with_their_weak_type():
    strong, weak = jnp.arange(3.0), jnp.asarray(2.0)
    again = round_trip([strong, weak, np.arange(2)])
    assert (
        isinstance(again[0], jax.Array)
        and not again[0].weak_type
        and again[1].weak_type
        and isinstance(again[2], np.ndarray)
    )
    assert isinstance(round_trip(strong, as_numpy=True), np.ndarray)


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg", "unsafe_rbg"])
def test_random_keys_keep_their_implementation(impl):
    keys = jax.random.split(jax.random.key(3, impl=impl), 4)
    again = round_trip({"k": keys})["k"]
    assert str(jax.random.key_impl(again)) == impl and again.shape == (4,)
    assert np.array_equal(jax.random.key_data(again), jax.random.key_data(keys))


def test_one_array_stays_one_array():
    array = jnp.ones(3)
    first, second = round_trip([array, array])
    assert first is second


def test_real_optimiser_state():
    params = {"w": jnp.ones(3)}
    optimizer = optax.adam(1e-3)
    state = optimizer.init(params)
    _, state = optimizer.update({"w": jnp.ones(3)}, state, params)
    again = round_trip(state)
    assert jax.tree.structure(again) == jax.tree.structure(state)
    optimizer.update({"w": jnp.ones(3)}, again, params)


def test_what_is_stored_of_a_struct():
    node, _ = encode(Model(w=np.zeros(2), cache=object(), kept=3))
    assert sorted(node["fields"]) == ["inner", "kept", "tag", "w"]
    again = round_trip(Model(w=np.zeros(2), kept=3))
    assert again.kept == 3 and again.cache is None and again.size == 2


def test_attrs_types_and_two_argument_deserializers():
    edge = round_trip(Edge(jnp.ones(2), 3))
    assert edge.source == 3 and edge.flux.shape == (2,)

    class Node:
        def __init__(self, data, tag):
            self.data, self.tag = data, tag

    module = types.ModuleType("nodes_of_a_test")
    module.Node = Node
    Node.__module__, Node.__qualname__ = "nodes_of_a_test", "Node"
    s.register_pytree_type(
        Node,
        flatten=lambda obj: ([obj.data], obj.tag),
        unflatten=lambda aux, children: Node(children[0], aux),
        serializer=lambda obj: {"tag": obj.tag},
        deserializer=lambda payload, children: Node(children[0], payload["tag"]),
    )
    again = round_trip(Node(jnp.ones(3), "x"))
    assert again.tag == "x" and again.data.shape == (3,)


def test_abstract_reads_no_array():
    class Untouchable(dict):
        def __getitem__(self, name):
            raise AssertionError("an array was read")

    node, arrays = encode(Model(w=jnp.ones((2, 3)), inner=jax.random.key(0)))
    model = StructDecoder(Untouchable(arrays), DecodeOptions(abstract=True)).decode(node)
    assert model.w == jax.ShapeDtypeStruct((2, 3), jnp.float32) and jnp.issubdtype(
        model.inner.dtype, jax.dtypes.prng_key
    )


def test_select_leaves_holes():
    node, arrays = encode(Model(w=jnp.ones(2), inner=jax.random.key(0)))
    model = StructDecoder(arrays, DecodeOptions(select=lambda path, leaf: path == ("w",))).decode(
        node
    )
    assert model.w.shape == (2,) and model.inner is None


def test_x64_off_is_an_error_that_says_so():
    node = {"__kind__": "array", "name": "a", "dtype": "float64", "shape": [1], "leaf": "jax"}
    decoder = StructDecoder({"a": np.zeros(1)}, DecodeOptions())
    decoder.decode(node)
    with refused(SerializationError, "NQX417", "jax_enable_x64", "as_numpy=True"):
        decoder.finish()
    assert (
        StructDecoder({"a": np.zeros(1)}, DecodeOptions(as_numpy=True)).decode(node).dtype
        == "float64"
    )
    unmarked = {k: v for k, v in node.items() if k != "leaf"}
    assert isinstance(
        StructDecoder({"a": np.zeros(1)}, DecodeOptions()).decode(unmarked), np.ndarray
    )


class TestEvolvingClasses:
    def read(self, fields, **reading):
        node = {"__kind__": "struct", "type": s.class_ref(Model), "fields": fields}
        decoder = StructDecoder({}, DecodeOptions(**reading))
        value = decoder.decode(node)
        decoder.finish()
        return value

    W = {"__kind__": "full", "dtype": "float32", "shape": [2], "value": 0}

    def test_defaults_are_reported(self):
        report = []
        assert self.read({"w": self.W}, report=report).tag == "t"
        assert {(d.code, d.path) for d in report} == {
            ("NQX425", "$.inner"),
            ("NQX425", "$.tag"),
            ("NQX425", "$.kept"),
        }

    def test_missing_and_unknown_fields_together(self):
        with pytest.raises(SerializationError) as caught:
            self.read({"v": self.W, "tag": "x"})
        assert {d.code for d in caught.value.diagnostics} == {"NQX414", "NQX415"}
        assert "aliases" in str(caught.value) or "fill" in str(caught.value)

    @pytest.mark.parametrize(("unknown", "severity"), [("warn", "warning"), ("drop", "info")])
    def test_unknown_fields_on_request(self, unknown, severity):
        report = []
        self.read(
            {"w": self.W, "old": 1, "inner": None, "tag": "", "kept": None},
            unknown=unknown,
            report=report,
        )
        assert [(d.code, d.severity) for d in report] == [("NQX415", severity)]

    def test_fill(self):
        assert self.read({}, fill={"w": jnp.ones(3)}).w.shape == (3,)

    def test_aliases(self):
        class Renamed(s.Struct):
            kernel: object = s.field(aliases=["w"])

        node = {"__kind__": "struct", "type": s.class_ref(Renamed), "fields": {"w": 3}}
        assert StructDecoder({}, DecodeOptions()).decode(node).kernel == 3

    def test_a_check_that_fails_names_the_place(self):
        class Checked(s.Struct):
            x: int = s.field(validator=lambda v: v > 0)

        decoder = StructDecoder({}, DecodeOptions())
        decoder.decode(
            {
                "__kind__": "list",
                "items": [
                    {"__kind__": "struct", "type": s.class_ref(Checked), "fields": {"x": -1}}
                ],
            }
        )
        with pytest.raises(SerializationError) as caught:
            decoder.finish()
        assert caught.value.diagnostics[0].path == "$[0].x"


class Trap:
    __nqx_fields__ = property(lambda self: 1 / 0)

    @classmethod
    def tree_unflatten(cls, *args):
        raise AssertionError("called")


UNTRUSTED = [
    {"__kind__": "struct", "type": "os:system", "fields": {}},
    {"__kind__": "struct", "type": "subprocess:Popen", "fields": {}},
    {"__kind__": "struct", "type": f"{__name__}:Color", "fields": {}},
    {"__kind__": "enum", "type": "builtins:dict", "name": "fromkeys"},
    {"__kind__": "namedtuple", "type": "builtins:tuple", "fields": {}},
    {"__kind__": "pytree-dataclass", "type": "builtins:dict", "fields": {}},
    {
        "__kind__": "registered-pytree",
        "type": f"{__name__}:Trap",
        "mode": "flatten",
        "children": [],
        "aux": None,
    },
    {"__kind__": "struct", "type": "planted_module_of_a_test:X", "fields": {}},
    {"__kind__": "struct", "type": "lab.unknown@3:State", "fields": {}},
]


@every("node", UNTRUSTED)
def test_nothing_untrusted_is_used(node, tmp_path, monkeypatch):
    (tmp_path / "planted_module_of_a_test.py").write_text("raise SystemExit")
    monkeypatch.syspath_prepend(tmp_path)
    decoder = StructDecoder({}, DecodeOptions())
    assert decoder.decode(node) is None
    assert decoder.problems[0].code == "NQX501" and decoder.problems[0].hint
    assert "planted_module_of_a_test" not in sys.modules
    with pytest.raises((SerializationError, UntrustedError)):
        decoder.finish()


class Access(enum.Flag):
    READ = 1
    WRITE = 2
    BOTH = 3


@dataclass
class Broken(Exception):
    a: int


class Mask(enum.IntFlag):
    A = 1
    B = 2


@dataclass
class Extra:
    a: int

    def __post_init__(self):
        self.more = 1


def local_class():
    @dataclass
    class Local:
        a: int

    return Local


@jax.tree_util.register_static
class Whole:
    def __init__(self, x):
        self.x = x

    __eq__ = object.__eq__
    __hash__ = object.__hash__


Stray = collections.namedtuple("Elsewhere", "x")


STRAY = Stray(1)


@dataclass
class Timed:
    a: int

    @functools.cached_property
    def twice(self):
        return 2 * self.a


@dataclass
class Holey:
    a: int

    def __init__(self):
        pass


class Filled(s.Struct):
    w: object
    cache: object = s.field(pytree=False, init=False, serialize=False)

    def __post_init__(self):
        self.cache = {}


def key_node(impl, name="k", shape=(3,)):
    return {
        "__kind__": "prng-key",
        "impl": impl,
        "data": {"__kind__": "array", "name": name, "dtype": "uint32", "shape": list(shape)},
    }


UNREADABLE = [Mask(5), Broken(1), Holey(), Extra(1), local_class()(1), Whole(1), STRAY]


@pytest.mark.parametrize("value", UNREADABLE, ids=lambda v: type(v).__name__)
def test_what_could_not_be_read_again_is_not_written(value):
    with pytest.raises(SerializationError) as caught:
        encode([value])
    assert [(d.code, d.path) for d in caught.value.diagnostics] == [
        ("NQX430", "$[0]")
    ] and caught.value.diagnostics[0].hint


def test_flags_with_names_come_back():
    flags = [Access.READ, Access.READ | Access.WRITE, Access(0), Mask.A | Mask.B, Mask(0)]
    again = round_trip(flags)
    assert again == flags and [type(flag) for flag in again] == [type(flag) for flag in flags]


def test_the_wrong_class_is_told_before_a_wrong_fill(tmp_path):
    path = Filled(1).export(tmp_path / "ckpt")
    with refused(SerializationError, "NQX401", "Model", "Filled"):
        Model.load(path, fill={"cache": 1, "nothing": 2})


def test_a_value_for_a_field_that_no_class_has_is_refused(tmp_path):
    path = Filled(1).export(tmp_path / "ckpt")
    with refused(SerializationError, "NQX415", "fill=", "cash") as caught:
        Filled.load(path, fill={"cache": 5, "cash": 2})
    assert "cache" in caught.value.diagnostics[0].hint
    assert Filled.load(path, fill={"cache": 5}).cache == 5


@pytest.mark.parametrize("reading", [{}, {"abstract": True}, {"select": lambda path, leaf: True}])
def test_a_field_without_any_value_is_asked_for(reading):
    with refused(SerializationError, "NQX414", "$.cache", "fill="):
        round_trip(Filled(1), **reading)
    assert round_trip(Filled(1), fill={"cache": 5}, **reading).cache == 5


def test_abstract_keys_of_unknown_kinds():
    decoder = StructDecoder({}, DecodeOptions(abstract=True))
    decoder.decode(key_node("zzz"))
    assert [d.code for d in decoder.problems] == ["NQX420"]


def test_other_byte_orders_stay_numpy():
    node = {"__kind__": "array", "name": "big", "dtype": ">f4", "shape": [1]}
    again = StructDecoder(ARRAYS, DecodeOptions()).decode(node)
    assert isinstance(again, np.ndarray) and again.dtype == ">f4"


def test_one_key_stays_one_key():
    key = jax.random.key(3)
    node, arrays = encode([key, key])
    first, second = StructDecoder(arrays, DecodeOptions()).decode({**node})
    assert first is second and len(arrays) == 1


def test_failures_of_registered_functions_keep_their_cause():
    decoder = StructDecoder({}, DecodeOptions())
    pair = {
        "__kind__": "registered-pytree",
        "type": f"{__name__}:Pair",
        "mode": "flatten",
        "children": [],
        "aux": 1,
    }
    decoder.decode({"__kind__": "list", "items": [pair]})
    with refused(SerializationError, "NQX414", "$[0]", "IndexError") as caught:
        decoder.finish()
    assert (
        isinstance(caught.value.__cause__, IndexError)
        and caught.value.diagnostics[0].path == "$[0]"
    )


def test_errors_of_the_library_in_registered_functions_stay_what_they_are():
    class Strict:
        pass

    def refuse(aux, children):
        raise UntrustedError("expected another", code="NQX501")

    s.register_pytree_type(Strict, flatten=lambda v: ([], None), unflatten=refuse)
    node, arrays = encode(Strict())
    decoder = StructDecoder(arrays, DecodeOptions())
    decoder.decode(node)
    assert [d.code for d in decoder.problems] == ["NQX501"]


BAD = [
    ({"__kind__": "enum", "type": f"{__name__}:Color", "name": "REDD"}, "NQX421"),
    ({"__kind__": "namedtuple", "type": f"{__name__}:Point", "fields": {"x": 1}}, "NQX414"),
    (
        {"__kind__": "pytree-dataclass", "type": f"{__name__}:Plain", "fields": {"a": 1, "c": 2}},
        "NQX415",
    ),
    (
        {
            "__kind__": "registered-pytree",
            "type": f"{__name__}:Pair",
            "mode": "serializer",
            "payload": 1,
        },
        "NQX414",
    ),
    (
        {
            "__kind__": "prng-key",
            "impl": "threefry2x32",
            "data": {
                "__kind__": "array",
                "name": "k",
                "dtype": "uint32",
                "shape": [3],
                "leaf": "jax",
            },
        },
        "NQX420",
    ),
    (key_node("zzz"), "NQX420"),
    (key_node("threefry2x32", "scalar", []), "NQX420"),
    ({"__kind__": "array", "name": "text", "dtype": "<U2", "shape": [1], "leaf": "jax"}, "NQX411"),
    ({"__kind__": "array", "name": "big", "dtype": ">f4", "shape": [1], "leaf": "jax"}, "NQX411"),
    (
        {"__kind__": "array", "name": "day", "dtype": "datetime64[D]", "shape": [1], "leaf": "jax"},
        "NQX411",
    ),
    ({"__kind__": "pytree-dataclass", "type": f"{__name__}:Broken", "fields": {"a": 1}}, "NQX414"),
    (
        {
            "__kind__": "registered-pytree",
            "type": f"{__name__}:Pair",
            "mode": "flatten",
            "children": [],
            "aux": 1,
        },
        "NQX414",
    ),
    (
        {
            "__kind__": "registered-pytree",
            "type": f"{__name__}:Pair",
            "mode": "flatten",
            "children": [{"__kind__": "float", "value": "nan"}],
            "aux": {"__kind__": "enum", "type": f"{__name__}:Color", "name": "REDD"},
        },
        "NQX421",
    ),
    ({"__kind__": "struct", "type": f"{__name__}:Filled", "fields": {"w": 1}}, "NQX414"),
]
ARRAYS = {
    "k": np.zeros(3, "uint32"),
    "scalar": np.zeros((), "uint32"),
    "text": np.array(["a"], "<U2"),
    "big": np.ones(1, ">f4"),
    "day": np.zeros(1, "datetime64[D]"),
    "odd": np.zeros(1, ml_dtypes.float6_e2m3fn),
}


@every(("node", "code"), BAD)
def test_nodes_that_do_not_fit_their_class(node, code):
    decoder = StructDecoder(ARRAYS, DecodeOptions())
    decoder.decode(node)
    assert [d.code for d in decoder.problems] == [code]


def test_a_dtype_that_only_newer_releases_of_jax_have():
    """JAX takes the 6-bit floats of ml_dtypes from 0.12 on; before, reading them as JAX arrays is a finding."""
    node = {"__kind__": "array", "name": "odd", "dtype": "float6_e2m3fn", "shape": [1]}
    decoder = StructDecoder(ARRAYS, DecodeOptions())
    array = decoder.decode({**node, "leaf": "jax"})
    try:
        jnp.asarray(ARRAYS["odd"])
    except (TypeError, RuntimeError):
        assert [d.code for d in decoder.problems] == ["NQX411"]
    else:
        assert decoder.problems == [] and array.dtype == ml_dtypes.float6_e2m3fn


def test_tracers_are_refused():
    def inside(x):
        encoder = StructEncoder()
        encoder.encode({"a": x})
        assert encoder.problems[0].code == "NQX430" and "outside of jit" in encoder.problems[0].hint
        return x

    jax.jit(inside)(1.0)


class Strict:
    """Takes arrays alone as its leaf."""

    def __init__(self, w):
        self.w = w.reshape(-1)


jax.tree_util.register_pytree_node(
    Strict, lambda strict: ((strict.w,), None), lambda _, leaves: Strict(*leaves)
)


def test_a_structure_that_does_not_take_any_leaf_is_refused():
    structure = jax.tree.structure([Strict(jnp.ones(2))])
    with refused(SerializationError, "NQX430", "$['structure']", "Strict"):
        s.to_state_dict({"structure": structure})


def test_what_like_has_calculated_stays_its_own(tmp_path):
    like = Timed(a=2)
    assert like.twice == 4
    again = s.load(s.export(Timed(a=5), tmp_path / "ckpt"), like=like)
    assert (again, again.twice) == (Timed(a=5), 10)


def test_code_that_like_lacks_is_asked_for(tmp_path):
    path = s.export({"a": {"f": abs, "g": test_tracers_are_refused}}, tmp_path / "ckpt")
    for a in (3.0, object(), [], {}):
        with refused(SerializationError, "NQX414", "$['a']['g']"):
            s.load(path, like={"a": a})


# --- classes that declare their attributes ---------------------------------------------------------------------------------


@attrs.define
class Declared:
    w: object
    n: int = attrs.field(metadata={"static": True})


@dataclasses.dataclass
class DeclaredToo:
    w: object
    b: object
    n: int = dataclasses.field(default=0, metadata={"static": True})


def test_the_attributes_of_attrs_and_dataclasses_are_read_from_them():
    s.register_attrs_type(Declared)
    again = s.from_state_dict(s.to_state_dict([Declared(np.ones(2), 3)]))[0]
    assert type(again) is Declared and again.n == 3 and np.array_equal(again.w, [1, 1])
    s.register_attrs_type(DeclaredToo, static_fields=["b"])
    assert jax.tree.leaves(DeclaredToo(1.5, "name", 2)) == [1.5]


def test_a_class_that_declares_nothing_needs_names():
    with refused(TypeError, "Undeclared", "node_fields=", "static_fields="):
        s.register_attrs_type(type("Undeclared", (), {}))
    assert s.register_attrs_type(type("Static", (), {}), static_fields=["n"])
