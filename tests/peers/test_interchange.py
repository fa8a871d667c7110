"""Bundles of the published neuraLQX load here, and bundles of ours that keep to its kinds of values load there."""

import importlib
import json
import pathlib
import re
import sys
import zipfile

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import neuralqx_struct as s
from neuralqx_struct.references import alias_class
from tests.builders import cases, every, refused
from tests.programs import neuralqx

peer = neuralqx.load()
their_io = importlib.import_module(f"{neuralqx.PACKAGE}.io")


class Pair:
    """Known to both packages by its flatten functions."""

    def __init__(self, left, right):
        self.left, self.right = left, right


class Edge:
    """Known to both packages by its attributes, and saved by a serializer."""

    def __init__(self, flux, source):
        self.flux, self.source = flux, source


for package in (s, peer):  # ours first: theirs passes over what JAX knows already
    package.register_pytree_type(
        Pair,
        flatten=lambda p: ([p.left], p.right),
        unflatten=lambda aux, children: Pair(children[0], aux),
    )
    package.register_attrs_type(Edge, node_fields=("flux",), static_fields=("source",))


class TheirLayer(peer.Struct):
    kernel: object
    name: str = peer.field(static=True, default="dense")
    cache: object = peer.field(pytree=False, default=None)
    kept: object = peer.field(pytree=False, serialize=True, default=None)
    size: int = peer.field(static=True, init=False, derived=lambda self: 7)


class TheirState(peer.Struct):
    layers: object
    options: object = None
    skipped: object = peer.field(serialize=False, default=3)


class OurLayer(s.Struct):
    kernel: object
    name: str = s.field(static=True, default="dense")
    cache: object = s.field(pytree=False, default=None)
    kept: object = s.field(pytree=False, serialize=True, default=None)
    size: int = s.field(static=True, init=False, derived=lambda self: 7)


class OurState(s.Struct):
    layers: object
    options: object = None
    skipped: object = s.field(serialize=False, default=3)


OURS_AND_THEIRS = ((OurLayer, TheirLayer), (OurState, TheirState))
known_there = sys.modules[f"{neuralqx.PACKAGE}._internals.class_registry"]
for ours, theirs in OURS_AND_THEIRS:
    alias_class(f"{__name__}:{theirs.__name__}", ours)
    known_there.register_class(s.class_ref(ours), theirs)


def described(value):
    """A value in a form that compares exactly, by whichever package it is held."""
    if isinstance(value, (OurLayer, TheirLayer, OurState, TheirState)):
        names = [name for name in type(value).__annotations__ if name != "cache"]
        return type(value).__name__.removeprefix("Our").removeprefix("Their"), {
            n: described(getattr(value, n)) for n in names
        }
    if isinstance(value, (Pair, Edge)):
        return type(value).__name__, {name: described(item) for name, item in vars(value).items()}
    if isinstance(value, (np.ndarray, jax.Array)):
        array = np.asarray(value)
        return "array", str(array.dtype), array.shape, array.tobytes()
    if isinstance(value, np.generic):
        return described(value.item())
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [described(item) for item in value]
    if isinstance(value, dict):
        return "dict", [(described(key), described(item)) for key, item in value.items()]
    if isinstance(value, (set, frozenset)):
        return type(value).__name__, sorted(map(repr, map(described, value)))
    return type(value).__name__, repr(value)


def made(layer, state):
    """The same values in the classes of one package."""
    nested = layer(np.arange(6, dtype="float32").reshape(2, 3), name="first", kept=(1, [2, None]))
    return {
        "nested structs": state([nested, layer(jnp.ones((2, 0), "int32"))], {"inner": state((), layer(np.int8([1])))}),
        "a dict with keys of many types": {"z": 1, "a": 2, 3: "x", (1, "b"): 4, None: 5, True: 6, 2.5: 7},
        "sets": [{"b", "a", "c"}, frozenset({1, 2, (3, "x")}), set(), {1.5, 2j}],
        "complex": [1 - 2j, complex(0.0, -0.0), -1.5j],
        "paths": [pathlib.Path("a/b.txt"), pathlib.Path("/")],
        "numpy scalars": [np.float32(1.5), np.int64(-(2**53)), np.bool_(True), np.uint8(7), np.float16(0.1), np.str_("x")],
        "plain values": [None, True, -5, 2**62, 0.1, -0.0, 1e300, "", "ü\U0001f600\x00\n", [], (), {}],
        "registered by functions": [Pair(np.arange(2.0, dtype="float32"), ("tag", 2)), Pair(Pair(1, 2), None)],
        "registered by attributes": state([Edge(np.ones(3, "float32"), "out")], Edge(None, (1, 2))),
        "arrays": [
            *(np.arange(4).astype(t) for t in ("bool", "int8", "uint16", "int32", "float16", "float32", "complex64")),
            np.float32(2) * np.ones(()), np.zeros((0, 3), "float32"), np.asfortranarray(np.arange(6.0, dtype="float32").reshape(2, 3)),
            np.arange(10, dtype="int32")[::3],
        ],
    }  # fmt: skip


THEIRS, OURS = made(TheirLayer, TheirState), made(OurLayer, OurState)
SUFFIXES = ["", ".zip"]


@every("suffix", SUFFIXES)
@every("case", THEIRS)
def test_their_bundles_load_here(case, suffix, tmp_path):
    path = their_io.export(THEIRS[case], tmp_path / f"ckpt{suffix}")
    assert described(s.load(path)) == described(OURS[case])
    assert [d for d in s.validate(path) + s.verify(path) if d.severity == "error"] == []


@every("suffix", SUFFIXES)
@every("case", OURS)
def test_our_bundles_load_there(case, suffix, tmp_path):
    path = s.export(OURS[case], tmp_path / f"ckpt{suffix}")
    assert described(their_io.load(path)) == described(THEIRS[case])


@every("case", THEIRS)
def test_state_dicts_go_both_ways(case):
    assert described(s.from_state_dict(their_io.to_state_dict(THEIRS[case]))) == described(
        OURS[case]
    )
    assert described(their_io.from_state_dict(s.to_state_dict(OURS[case]))) == described(
        THEIRS[case]
    )


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_their_bare_tokens(suffix, tmp_path):
    values = [
        float("nan"),
        float("inf"),
        -float("inf"),
        complex("nan+infj"),
        np.float32("nan"),
        {float("inf"): 2**300},
    ]
    path = their_io.export(values, tmp_path / f"ckpt{suffix}")
    text = (
        zipfile.ZipFile(path).read("manifest.json")
        if suffix
        else (path / "manifest.json").read_bytes()
    )
    assert b"NaN" in text and b"-Infinity" in text
    assert described(s.load(path)) == described(values)


# What .npy says of dtypes that numpy does not know; neuraLQX itself reads none of them.
RAW = {
    "bfloat16": "[|<]V2", "float8_e4m3fn": "[|<]V1", "float8_e4m3b11fnuz": "[|<]V1", "float8_e5m2": "<f1", "float8_e5m2fnuz": "[|<]V1",
    "float8_e4m3fnuz": "[|<]V1", "float8_e3m4": "[|<]V1", "float8_e4m3": "[|<]V1", "float8_e8m0fnu": "[|<]V1", "float4_e2m1fn": "[|<]V1",
    "int4": "[|<]V1", "uint4": "[|<]V1", "int2": "[|<]V1", "uint2": "[|<]V1",
}  # fmt: skip


@every("suffix", SUFFIXES)
@every("name", RAW)
def test_small_number_formats_that_they_write_and_cannot_read(name, suffix, tmp_path):
    array = np.array([0, 1, 1, 0]).astype(getattr(ml_dtypes, name)).reshape(2, 2)
    written = TheirState([array, np.float32([7])], array[0])
    their_io.export(written, tmp_path / "there")
    with zipfile.ZipFile(tmp_path / "there" / "arrays.npz") as members:
        assert re.search(rf"'descr': '{RAW[name]}'".encode(), members.read("arr_000000.npy")[:80])
    with pytest.raises((peer_error, ValueError)):
        their_io.load(tmp_path / "there")
    again = s.load(their_io.export(written, tmp_path / f"ckpt{suffix}"))
    assert isinstance(again, OurState) and described(again.layers[0]) == described(array)
    assert described(again.options) == described(array[0]) and again.layers[1].tolist() == [7]


peer_error = sys.modules["neuralqx.utils.errors"].SerializationError


def test_what_x64_would_cut_stays_numpy(tmp_path):
    path = their_io.export({"w": np.array([2**40, 1]), "x": np.array([1e300])}, tmp_path / "ckpt")
    held = s.load(path)
    assert held["w"].tolist() == [2**40, 1] and held["x"].tolist() == [1e300]
    assert held["w"].dtype == "int64" and held["x"].dtype == "float64"


def test_what_is_ours_alone_is_marked_by_tags_that_they_do_not_know(tmp_path):
    for value in (float("nan"), b"x", 2**70, range(3)):
        (tmp_path / "ckpt").mkdir(exist_ok=True)
        path = s.export([value], tmp_path / "ckpt" / type(value).__name__)
        with pytest.raises(peer_error, match="Unknown serialized payload kind"):
            their_io.load(path)


def test_their_classes_must_be_known_here(tmp_path):
    path = their_io.export(TheirLayer(np.zeros(1)), tmp_path / "ckpt")
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["manifest"]["type"] = "lab.gone:Layer"
    (path / "manifest.json").write_text(json.dumps(manifest))
    with refused(s.UntrustedError, "NQX501", "alias_class", "lab.gone:Layer"):
        s.load(path)
    alias_class("lab.gone:Layer", OurLayer)
    assert isinstance(s.load(path), OurLayer)


KEYS = st.one_of(
    st.text(), st.integers(-(2**62), 2**62), st.none(), st.tuples(st.integers(0, 9), st.text())
)
LEAVES = st.one_of(
    KEYS,
    st.booleans(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.complex_numbers(allow_nan=False, allow_infinity=False),
    st.sampled_from([np.float32(0.1), np.int16(-3), pathlib.Path("x/y"), np.arange(3, dtype="int32"), np.ones((2, 1), "complex64")]),
    st.sets(st.text(max_size=3)),
    st.frozensets(st.integers(0, 99)),
)  # fmt: skip
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(KEYS, inner, max_size=4),
        st.tuples(inner, inner).map(
            lambda pair: Pair(*pair) if not isinstance(pair[1], np.ndarray) else pair
        ),
        inner.map(lambda value: Layers(value)),
    ),
    max_leaves=12,
)


class Layers:
    """Stands for a struct of either package."""

    def __init__(self, value):
        self.value = value


def dressed(value, layer):
    if isinstance(value, Layers):
        return layer(dressed(value.value, layer), kept=1)
    if isinstance(value, Pair):
        return Pair(dressed(value.left, layer), dressed(value.right, layer))
    if type(value) in (list, tuple):
        return type(value)(dressed(item, layer) for item in value)
    return (
        {key: dressed(item, layer) for key, item in value.items()} if type(value) is dict else value
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("both")


@settings(max_examples=cases(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(tree=TREES)
def test_any_value_of_their_kinds_goes_both_ways(tree, folder):
    theirs, ours = dressed(tree, TheirLayer), dressed(tree, OurLayer)
    there, here = (
        their_io.export(theirs, folder / "there", overwrite=True),
        s.export(ours, folder / "here", overwrite=True),
    )
    assert described(s.load(there)) == described(ours) == described(s.load(here))
    assert described(their_io.load(here)) == described(theirs)
