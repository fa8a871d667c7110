import datetime as dt
import enum
import json
import math
import pathlib
import types
import zoneinfo
from collections import ChainMap, Counter, OrderedDict, defaultdict, deque

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuralqx_struct.codecs.nodes import Codec, Decoder, Encoder
from neuralqx_struct.codecs.plain import PLAIN_CODECS
from neuralqx_struct.errors import SerializationError
from neuralqx_struct.manifest.check import check_manifest
from neuralqx_struct.manifest.kinds import KINDS
from neuralqx_struct.printing import MOST_BITS
from tests.builders import every, refused


def round_trip(value):
    encoder = Encoder(PLAIN_CODECS)
    node = encoder.encode(value)
    encoder.finish()
    node = json.loads(json.dumps(node, allow_nan=False))
    arrays = {
        name: {"dtype": str(a.dtype), "shape": list(a.shape)} for name, a in encoder.arrays.items()
    }
    assert check_manifest({"version": 1, "manifest": node, "arrays": arrays}) == []
    decoder = Decoder(PLAIN_CODECS, encoder.arrays)
    again = decoder.decode(node)
    decoder.finish()
    return again


VALUES = [
    None, True, 0, -(2**63), 2**63, -(2**200), 10**5000, -(10**5000) + 7, 1.5, -0.0, float("inf"), float("-inf"), 1 + 2j, complex("-inf+1j"),
    "", "ü\ud7ff\U0001f600\x00", b"", b"\x00\xff", [], (), {}, set(), frozenset({1, "a"}), [1, [2, (3,)]], {"z": 1, "a": 2, 3: 4, (1, 2): 5},
    OrderedDict(b=1, a=2), pathlib.Path("a/b"), np.dtype("float32"), np.dtype(ml_dtypes.bfloat16), slice(1, None, 2),
    dt.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=dt.UTC), dt.date(2026, 1, 2), dt.time(1, 2, 3), dt.timedelta(-3, 4, 5),
    np.float32(1.5), np.int64(2**62), np.uint64(2**64 - 1), np.complex64(1 + 2j), np.bool_(True), np.str_("x"), np.bytes_(b"x"), np.str_("hello" * 9), np.bytes_(b"x" * 50),
    np.bytes_(b"x\x00"), np.str_("x\x00"), np.str_(""), np.float64(-0.0), ml_dtypes.int4(-3), ml_dtypes.float4_e2m1fn(1.5), ml_dtypes.float8_e8m0fnu(2),
    bytearray(b"\x00a"), range(5), range(10**30, 0, -3), deque([1, (2,)]), deque([1], 3), Counter("abba"), types.MappingProxyType({"b": 1, "a": [2]}),
    defaultdict(list, {"z": [1], "a": []}), defaultdict(None, {1: 2}), defaultdict(Counter), pathlib.PurePosixPath("a\\b"), pathlib.PureWindowsPath("c:\\d\\e"),
    {frozenset({"a"}): 1, b"k": 2, None: 3, 1.5: 4, (1, ("x",)): 5, 10**5000: 6},
    np.datetime64("2026-01-01", "s"), np.timedelta64(5, "ms"), ml_dtypes.bfloat16(1.5),
]  # fmt: skip


@every("value", VALUES)
def test_every_plain_value(value):
    again = round_trip(value)
    assert type(again) is type(value) and again == value
    if isinstance(value, dict):
        assert list(again) == list(value)
    if isinstance(value, float):
        assert math.copysign(1, again) == math.copysign(1, value)
    if isinstance(value, np.generic):
        assert again.dtype == value.dtype


def test_nan():
    assert math.isnan(round_trip(float("nan"))) and math.isnan(round_trip(complex("nan")).real)
    assert np.isnan(round_trip(np.float16("nan")))


ARRAYS = [
    np.arange(3), np.zeros(()), np.zeros((0, 3)), np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.arange(3, dtype=">i4"),
    np.array(["a", "bc"]), np.array([b"x"]), np.array(["2026-01-01"], "datetime64[D]"), np.array([True]), np.arange(10)[::2],
    np.arange(4).astype(ml_dtypes.float8_e4m3fn), np.arange(4).astype(ml_dtypes.int4), np.array([1 + 2j], "complex64"),
]  # fmt: skip


@every("array", ARRAYS)
def test_arrays(array):
    again = round_trip({"a": array})["a"]
    assert (
        again.dtype == array.dtype and again.shape == array.shape and np.array_equal(again, array)
    )


JSONISH = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(allow_nan=False),
        st.text(),
        st.binary(),
        st.complex_numbers(allow_nan=False),
    ),
    lambda inner: st.one_of(
        st.lists(inner),
        st.lists(inner).map(tuple),
        st.dictionaries(st.one_of(st.text(), st.integers()), inner),
        st.frozensets(st.integers()),
    ),
    max_leaves=20,
)


@given(JSONISH)
def test_decode_inverts_encode(value):
    assert round_trip(value) == value


def test_names_are_key_paths_and_unique():
    encoder = Encoder(PLAIN_CODECS)
    encoder.encode({"a": {"b": np.zeros(1)}, "1": np.ones(1), 1: np.ones(2), "a/b": np.zeros(2)})
    assert sorted(encoder.arrays) == ["1", "1~2", "a%2Fb", "a/b"]


def test_a_shared_array_is_stored_once():
    array = np.arange(3)
    encoder = Encoder(PLAIN_CODECS)
    node = encoder.encode([array, array])
    assert len(encoder.arrays) == 1
    first, second = Decoder(PLAIN_CODECS, encoder.arrays).decode(node)
    assert first is second


def test_a_copy_is_a_snapshot():
    array = np.zeros(2)
    encoder = Encoder(PLAIN_CODECS, copy=True)
    encoder.encode(array)
    array[:] = 7
    assert encoder.arrays["value"].tolist() == [0, 0]


def test_sets_have_one_order():
    nodes = [
        Encoder(PLAIN_CODECS).encode(set(order)) for order in (["b", "a", "c"], ["c", "b", "a"])
    ]
    assert nodes[0] == nodes[1]


class Color(enum.Enum):
    RED = 1


class Below(pathlib.PurePosixPath):
    pass


class Units(np.ndarray):
    pass


class Word(str):
    __slots__ = ()


class Unhashable:
    __hash__ = None

    def __call__(self):
        return 0


class Boxed(tuple):
    __slots__ = ()


LOOP: list = []
LOOP.append(LOOP)
DEEP: list = []
for _ in range(300):
    DEEP = [DEEP]
BOX = Codec(
    KINDS["list"],
    (Boxed,),
    lambda v, encoder: {"items": [encoder.encode(np.zeros(1), "w")]},
    lambda node, d: Boxed(),
)
REFUSED = {
    "object": (object(), "builtins.object"),
    "function": (len, "len"),
    "array of objects": (np.array([object()]), "object"),
    "structured": (np.zeros(1, [("a", "i4")]), "<i4"),
    "longdouble": (np.zeros(1, np.longdouble), np.dtype(np.longdouble)),
    "longdouble scalar": (np.longdouble(1), np.dtype(np.longdouble)),
    "void array": (np.zeros(1, "V3"), "V3"),
    "void scalar": (np.void(b"abc"), "V3"),
    "masked": (np.ma.array([1], mask=[True]), "value.mask"),
    "loop": (LOOP, "$['a'][1][0]"),
    "deep": (DEEP, 200),
    "zone": (dt.datetime(2026, 1, 1, tzinfo=zoneinfo.ZoneInfo("UTC")), "UTC"),
    "fold": (dt.time(1, fold=1), "fold=1"),
    "path of another kind": (Below("a"), "Below"),
    "half a surrogate pair": ("\ud800", r"\ud800"),
    "key without text": ({"\udfff": np.zeros(1)}, r"\udfff"),
    "file name without text": (pathlib.Path("a\udcff"), r"a\udcff"),
    "matrix": (np.zeros(2).view(Units), "Units"),
    "factory": (defaultdict(lambda: 0), "<lambda>"),
    "factory without hash": (defaultdict(Unhashable()), "Unhashable"),
    "arrays in a set": ({Boxed()}, "set"),
    "chain of maps": (ChainMap({}), "ChainMap"),
    "text of another kind": (Word("a"), "Word"),
    "enum without classes": (Color.RED, "Color"),
}


@every("case", REFUSED)
def test_what_cannot_be_saved_is_refused_with_its_path(case):
    value, named = REFUSED[case]
    encoder = Encoder(PLAIN_CODECS.extended([BOX]))
    encoder.encode({"a": [1, value]})
    with refused(SerializationError, "NQX430", named) as caught:
        encoder.finish()
    assert caught.value.diagnostics[0].path.startswith("$['a'][1]")


@every("base", [str, int, float, complex, bytes, dict, list, tuple])
def test_a_value_of_a_derived_class_is_saved_as_its_hint_says(base):
    kind = type("Kind", (base,), {})
    encoder = Encoder(PLAIN_CODECS)
    encoder.encode(kind())
    with pytest.raises(SerializationError) as caught:
        encoder.finish()
    (found,) = caught.value.diagnostics
    assert found.code == "NQX430" and f" {base.__name__}(value) " in str(found.hint)
    encoder = Encoder(PLAIN_CODECS)
    encoder.encode(base(kind()))
    encoder.finish()


def test_all_refusals_at_once():
    encoder = Encoder(PLAIN_CODECS)
    encoder.encode([object(), 1, len])
    with pytest.raises(SerializationError) as caught:
        encoder.finish()
    assert [d.path for d in caught.value.diagnostics] == ["$[0]", "$[2]"]


BAD_NODES = [
    {"__kind__": "datetime", "type": "date", "value": "yesterday"},
    {"__kind__": "datetime", "type": "timedelta", "value": "1"},
    {"__kind__": "numpy-scalar", "dtype": "float32", "value": "x"},
    {"__kind__": "numpy-scalar", "dtype": "int8", "value": 1000},
    {"__kind__": "numpy-scalar", "dtype": "object", "value": 1},
    {"__kind__": "numpy-scalar", "dtype": "|S3", "value": 1},
    {"__kind__": "deque", "items": [1, 2], "maxlen": 1},
    {"__kind__": "deque", "items": [1], "maxlen": 2.5},
    {"__kind__": "range", "start": 0, "stop": 5, "step": 0},
    {"__kind__": "range", "start": 0.5, "stop": 5, "step": 1},
    {"__kind__": "dict", "items": [[{"__kind__": "list", "items": []}, 1]]},
]


@every("node", BAD_NODES)
def test_nodes_without_meaning(node):
    decoder = Decoder(PLAIN_CODECS, {})
    decoder.decode({"__kind__": "list", "items": [node]})
    with pytest.raises(SerializationError) as caught:
        decoder.finish()
    assert caught.value.diagnostics[0].path.startswith("$[0]")


def test_full_is_read_and_never_written():
    node = {"__kind__": "full", "dtype": "float32", "shape": [2, 2], "value": 1.5}
    assert Decoder(PLAIN_CODECS, {}).decode(node).tolist() == [[1.5, 1.5], [1.5, 1.5]]
    with refused(TypeError, 1):
        PLAIN_CODECS.by_kind["full"].encode(1, Encoder(PLAIN_CODECS))


def test_bare_lists_of_other_writers():
    assert Decoder(PLAIN_CODECS, {}).decode([1, [2]]) == [1, [2]]


WIDE = {"__kind__": "full", "dtype": "float32", "shape": [], "value": 1}


def test_full_takes_no_memory():
    whole = Decoder(PLAIN_CODECS, {}).decode({**WIDE, "shape": [1 << 28]})
    assert whole.shape == (1 << 28,) and whole.base.nbytes == 4 and not whole.flags.writeable


@every(
    "node",
    [
        {**WIDE, "shape": [0, 1 << 63]},
        {**WIDE, "shape": [1 << 70]},
        {**WIDE, "shape": [1] * 100},
        {**WIDE, "value": "a"},
        {**WIDE, "value": None},
        {"__kind__": "numpy-scalar", "dtype": "float32", "value": None},
        {"__kind__": "numpy-scalar", "dtype": "datetime64[s]", "value": "a"},
        {"__kind__": "set", "items": [{"__kind__": "list", "items": []}]},
        {"__kind__": "frozenset", "items": [{"__kind__": "dict", "items": []}]},
        {"__kind__": "dict", "items": [["a", 1], ["a", 2]]},
        {"__kind__": "ordered-dict", "items": [[1, 1], [1, 2]]},
    ],
)
def test_what_the_grammar_allows_and_no_value_can_be(node):
    decoder = Decoder(PLAIN_CODECS, {})
    decoder.decode({"__kind__": "list", "items": [node]})
    with pytest.raises(SerializationError) as caught:
        decoder.finish()
    assert [(d.code, d.path) for d in caught.value.diagnostics] == [("NQX612", "$[0]")]


def test_integers_have_a_largest_size():
    encoder = Encoder(PLAIN_CODECS)
    assert (
        check_manifest(
            {"version": 1, "manifest": encoder.encode(-(2**MOST_BITS) + 1), "arrays": {}}
        )
        == []
    )
    encoder.encode([2**MOST_BITS])
    with refused(SerializationError, "NQX430", "$[0]", "332192"):
        encoder.finish()
