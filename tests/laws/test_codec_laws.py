"""Whatever is saved comes back as what it was: in memory and from every kind of file, in every place, in any nest."""

import collections
import datetime as dt
import enum
import functools
import math
import pathlib
import subprocess
import sys
import types
from dataclasses import InitVar, dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import neuralqx_struct as s
from neuralqx_struct.dtypes import ML_DTYPES
from neuralqx_struct.manifest import DEFAULT_LIMITS
from tests.builders import cases, every, refused


class Point(NamedTuple):
    x: Any
    y: Any = None


class Color(enum.Enum):
    RED = "r"
    BLUE = (1, 2)


class Level(enum.IntEnum):
    LOW = 1


class Word(enum.StrEnum):
    A = "a"


class Access(enum.Flag):
    READ = 1
    WRITE = 2


@dataclass
class Plain:
    a: Any
    b: Any = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Slotted:
    a: Any
    made: Any = field(init=False, default=0)

    def __post_init__(self):
        object.__setattr__(self, "made", (self.a,))


@dataclass
class Initialised:
    n: Any
    scale: InitVar[int] = 2
    label: str = field(default="l", compare=False)

    def __post_init__(self, scale):
        self.n = (self.n, scale)


class State(s.Struct):
    node: Any = None
    static: Any = s.field(static=True, default=None)
    more: Any = None


@jax.tree_util.register_pytree_node_class
class Foreign:
    """As a library registers its class with JAX, knowing nothing of ours."""

    def __init__(self, parts, name):
        raise AssertionError("constructors do not run on load")

    @classmethod
    def make(cls, parts, name):
        self = object.__new__(cls)
        self.parts, self.name = parts, name
        return self

    def tree_flatten(self):
        return (self.parts,), self.name

    @classmethod
    def tree_unflatten(cls, name, children):
        return cls.make(children[0], name)

    def __eq__(self, other):
        return same(self.parts, other.parts) and same(self.name, other.name)

    __hash__ = None


def same(a, b):
    """Exactly the same: types at every place, orders of dicts, bits of arrays; NaN equal to NaN."""
    if type(a) is not type(b):
        return False
    if isinstance(a, (np.ndarray, np.generic)):
        if a.dtype != b.dtype or a.shape != b.shape:
            return False
        return np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes()
    if isinstance(a, jax.Array):
        if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            return a.dtype == b.dtype and same(jax.random.key_data(a), jax.random.key_data(b))
        return a.weak_type == b.weak_type and same(np.asarray(a), np.asarray(b))
    if isinstance(a, (float, complex)):
        return repr(a) == repr(b)
    if isinstance(a, s.Struct):
        return all(same(getattr(a, name), getattr(b, name)) for name in a.fields())
    if isinstance(a, (Plain, Slotted, Initialised)):
        names = a.__dataclass_fields__
        return all(same(getattr(a, n), getattr(b, n)) for n in names if n != "scale")
    if isinstance(a, collections.defaultdict) and a.default_factory is not b.default_factory:
        return False
    if isinstance(a, collections.deque) and a.maxlen != b.maxlen:
        return False
    if isinstance(a, (dict, types.MappingProxyType)):
        return same([list(item) for item in a.items()], [list(item) for item in b.items()])
    if isinstance(a, (list, tuple, collections.deque)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, (set, frozenset)):
        return len(a) == len(b) and all(any(same(x, y) for y in b) for x in a)
    if isinstance(a, functools.partial):
        return same([a.func, list(a.args), a.keywords], [b.func, list(b.args), b.keywords])
    return bool(a == b)


FORMS = {
    "memory": lambda value, path: s.from_state_dict(s.to_state_dict(value)),
    "directory": lambda value, path: s.load(s.export(value, path / "ckpt", overwrite=True)),
    "zip": lambda value, path: s.load(s.export(value, path / "ckpt.zip", overwrite=True)),
    "safetensors": lambda value, path: s.load(
        s.export(value, path / "tensors", store="safetensors", overwrite=True)
    ),
    "compressed": lambda value, path: s.load(
        s.export(value, path / "small", compress=True, overwrite=True)
    ),
}
INTS = [0, -1, 2**53 + 1, 2**63 - 1, -(2**63), 2**63, -(2**64), 10**5000, -(7**9000)]
FLOATS = [0.0, -0.0, 5e-324, 1.7976931348623157e308, 0.1, math.nan, math.inf, -math.inf]
HASHABLE = [
    None, True, *INTS, *FLOATS, *(complex(re, im) for re in FLOATS for im in (-0.0, math.nan, 1.0)),
    b"", bytes(range(256)), "", "a\x00b", "\u2028\ud7ff\ue000\U0010ffff", "e\u0301", "\ufeffx",
    (), (1, (2, "x", None)), frozenset(), frozenset({1, "a", (2, frozenset({3}))}), Point(1, "y"), Color.RED, Color.BLUE, Level.LOW, Word.A, Access.READ, Access.READ | Access.WRITE, Access(0),
    np.dtype("float32"), np.dtype(">i4"), np.dtype("<U5"), np.dtype("datetime64[ns]"), np.dtype(ml_dtypes.int4), range(0), range(10, -5, -3),
    dt.datetime(2026, 1, 2, 3, 4, 5, 6),  # noqa: DTZ001
    dt.datetime(1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=-3, minutes=30))), dt.date(9999, 12, 31), dt.time(23, 59, 59, 999999), dt.timedelta(-999999999), dt.timedelta.max,
    pathlib.Path("a b/ü"), pathlib.PurePosixPath("/x"), pathlib.PureWindowsPath("C:/x\\y"), Slotted(a=(1,)),
    np.float32(0.1), np.float16(65504), np.int8(-128), np.uint64(2**64 - 1), np.complex64(1 - 2j), np.bool_(True), np.str_("ü\x00"), np.bytes_(b"\xff\x00"),
    np.datetime64("2026-01-01T00:00:01", "s"), np.datetime64("NaT", "ns"), np.timedelta64(-3, "D"), np.float64("nan"), np.float32("-inf"),
    *(getattr(ml_dtypes, name)(1) for name in sorted(ML_DTYPES) if hasattr(ml_dtypes, name) and "complex" not in name),
    jnp.float32, np.int8, int, jax.nn.relu,
]  # fmt: skip
UNHASHABLE = [
    [], [1, [2]], {}, {"z": 1, "a": 2, 1: 3, (1, "b"): 4, None: 5, b"k": 6, Color.RED: 7, 2.5: 8}, set(), {"b", "a", 3}, bytearray(b"\x00x"), slice(None), slice(1, (2,), "s"),
    collections.OrderedDict(z=1, a=2), collections.defaultdict(list, z=[1]), collections.defaultdict(None), collections.defaultdict(collections.Counter),
    collections.Counter("abba"), collections.deque([1, [2]], 5), types.MappingProxyType({"z": [1], "a": 2}), Plain([1]), Initialised(3), Foreign.make([1, {"w": 2}], ("n", 1)), Point([], {}),
    jnp.arange(3), jnp.asarray(1.5), jnp.asarray(2.0, jnp.float32), jnp.zeros((0, 2), jnp.bfloat16), jnp.ones((), bool), jax.tree_util.Partial(jnp.add, 1, k=2),
    *(jax.random.key(3, impl=impl) for impl in ("threefry2x32", "rbg", "unsafe_rbg")), jax.random.split(jax.random.key(0), (2, 3)),
]  # fmt: skip


def same_nan(value):
    return isinstance(value, (float, complex, np.generic)) and value != value  # noqa: PLR0124


def placed(value, *, static):
    """One value at every kind of place."""
    held = {
        "alone": value, "list": [value], "tuple": (1, value), "dict": {"k": value}, "ordered": collections.OrderedDict(k=value), "named": Point(value, value),
        "struct": State(node=value), "nested": State(node=State(more=[value])), "plain": Plain(value), "registered": Foreign.make(value, "n"),
    }  # fmt: skip
    if static:
        held |= {
            "static": State(static=value),
            "in a static tuple": State(static=(1, value)),
            "key": {("k", value): 1},
        }
    return held


def identified(values):
    return [pytest.param(value, id=f"{i}-{type(value).__name__}") for i, value in enumerate(values)]


@pytest.mark.parametrize("form", FORMS)
def test_every_value_at_every_place(form, tmp_path):
    values = {
        f"{static}{i}": placed(value, static=static)
        for static, group in ((True, HASHABLE), (False, UNHASHABLE))
        for i, value in enumerate(group)
    }
    again = FORMS[form](values, tmp_path)
    lost = [
        (name, place)
        for name, places in values.items()
        for place in places
        if not same(again[name][place], places[place])
    ]
    assert lost == []


@every("value", identified([*HASHABLE, *UNHASHABLE]))
def test_every_value_as_the_root(value):
    assert same(FORMS["memory"](value, None), value)


NUMPY = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16", "U3", "S4", "M8[D]", "M8[ns]", "m8[25s]", "m8"]  # fmt: skip
DTYPES = [np.dtype(code) for code in NUMPY] + [np.dtype(getattr(ml_dtypes, n)) for n in sorted(ML_DTYPES) if hasattr(ml_dtypes, n)]  # fmt: skip


def layouts(dtype):
    """Arrays of one dtype: random bits where all are values, in every layout that numpy has."""
    bits = np.random.default_rng(7).integers(0, 2, 24) if dtype.kind in "?b" else np.arange(24) % 4
    whole = bits.astype("i8").astype(dtype) if dtype.kind not in "SU" else bits.astype(dtype)
    if dtype.kind in "fc" and dtype.name not in ML_DTYPES:
        whole[:4] = [math.nan, -math.inf, -0.0, math.inf]
    whole = whole.reshape(2, 3, 4)
    frozen = whole.copy()
    frozen.flags.writeable = False
    made = {
        "whole": whole, "0-d": whole[0, 0, 0].reshape(()) if isinstance(whole[0, 0, 0], np.ndarray) else np.array(whole[0, 0, 0], dtype),
        "empty": whole[:0], "empty inside": np.zeros((2, 0, 3), dtype), "fortran": np.asfortranarray(whole), "strided": whole[:, ::-1, ::2],
        "transposed": whole.T, "broadcast": np.broadcast_to(whole[0, 0, 0], (3, 2)), "read-only": frozen, "unaligned": whole.reshape(-1)[1:].reshape(-1),
    }  # fmt: skip
    if dtype.name not in ML_DTYPES and dtype.itemsize > 1 and dtype.kind != "S":
        made["big-endian"] = whole.astype(dtype.newbyteorder(">"))
    return made


@pytest.mark.parametrize("form", FORMS)
def test_every_dtype_in_every_layout(form, tmp_path):
    arrays = {str(dtype): layouts(dtype) for dtype in DTYPES}
    again = FORMS[form](State(node=arrays), tmp_path).node
    lost = [
        (d, name)
        for d, held in arrays.items()
        for name in held
        if not same(again[d][name], held[name])
    ]
    assert lost == [] and len(arrays) > 30


def in_jax(dtype):
    try:
        return jnp.asarray(np.zeros(2, dtype)).dtype == dtype
    except (TypeError, RuntimeError):
        return False


@pytest.mark.parametrize("form", FORMS)
def test_every_dtype_of_jax(form, tmp_path):
    dtypes = [dtype for dtype in DTYPES if dtype.kind not in "SUmM" and in_jax(dtype)]
    arrays = [
        jnp.asarray((np.arange(6) % 2).astype(dtype).reshape(shape))
        for dtype in dtypes
        for shape in ((2, 3), (6,))
    ]
    assert len(dtypes) > 20 and same(FORMS[form](arrays, tmp_path), arrays)


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.complex_numbers(), st.binary(max_size=8),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=5), st.dates(), st.timedeltas(), st.sampled_from([v for v in HASHABLE if not (same_nan(v) or (isinstance(v, int) and abs(v) > 2**200))]),
)  # fmt: skip
KEYS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=3),
    st.integers(),
    st.tuples(st.integers(0, 3)),
)
LEAVES = st.one_of(
    SCALARS,
    st.sampled_from(DTYPES).map(lambda dtype: layouts(dtype)["strided"]),
    st.sampled_from(UNHASHABLE),
    st.builds(lambda n: jnp.arange(n), st.integers(0, 3)),
)
HASHED = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3).map(tuple) | st.frozensets(inner, max_size=3), max_leaves=4)  # fmt: skip
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.lists(inner, max_size=3).map(collections.deque),
        st.dictionaries(KEYS, inner, max_size=3),
        st.dictionaries(KEYS, inner, max_size=3).map(collections.OrderedDict),
        st.dictionaries(KEYS, inner, max_size=3).map(types.MappingProxyType),
        st.dictionaries(KEYS, inner, max_size=3).map(lambda d: collections.defaultdict(dict, d)),
        st.sets(SCALARS, max_size=3),
        st.builds(Point, inner, inner),
        st.builds(Plain, inner, inner),
        st.builds(Slotted, a=inner),
        st.builds(lambda part, aux: Foreign.make(part, aux), inner, HASHED),
        st.builds(State, node=inner, static=HASHED, more=inner),
    ),
    max_leaves=15,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("laws")


@settings(max_examples=cases(150), deadline=None, suppress_health_check=list(HealthCheck))
@given(value=VALUES, form=st.sampled_from(sorted(FORMS)))
def test_load_inverts_export_as_from_state_dict_inverts_to_state_dict(value, form, folder):
    assert same(FORMS["memory"](value, folder), value)
    assert same(FORMS[form](value, folder), value)


def test_sharing_is_by_identity(tmp_path):
    base, weak, key = np.arange(6), jnp.asarray(2.0), jax.random.key(1)
    view = base[:]
    held = State(node=[base, base, view, weak, weak, key], more={"again": (base, weak, key)})
    for form in FORMS:
        again = FORMS[form](held, tmp_path)
        first, second, third, weak_1, weak_2, key_1 = again.node
        assert first is second is again.more["again"][0] and third is not first
        assert weak_1 is weak_2 is again.more["again"][1] and key_1 is again.more["again"][2]
    assert len(s.to_state_dict(held)["array_data"]) == 4


CHILD = """
import sys, pathlib, collections, types, jax.numpy as jnp, numpy as np, neuralqx_struct as s
class Inner(s.Struct):
    tags: object = s.field(static=True)
names = {"alpha", "beta", "gamma", "delta", 1, 2.5, None, (1, "x"), frozenset({"p", "q", "r"}), b"raw"}
value = {"set": names, "frozen": frozenset(names), "nested": {frozenset({"a", "b"}), frozenset({"c", "d", "e"})}, "struct": Inner(frozenset({"u", "v", "w"})),
    "w": np.arange(5), "j": jnp.ones(3, "bfloat16"), "keys": {frozenset({"m", "n"}): np.zeros(2), frozenset({"o"}): np.ones(3)}, "count": collections.Counter("mississippi")}
for name, options in {"d": {}, "z.zip": {}, "t": {"store": "safetensors"}, "c.zip": {"compress": True}}.items():
    s.export(value, pathlib.Path(sys.argv[1]) / name, **options)
"""


def test_equal_values_give_identical_bytes_in_every_process(tmp_path, monkeypatch):
    (tmp_path / "child.py").write_text(CHILD)
    found = []
    for seed in ("1", "4242"):
        monkeypatch.setenv("PYTHONHASHSEED", seed)
        (tmp_path / seed).mkdir()
        monkeypatch.setenv("PYTHONPATH", str(pathlib.Path(s.__file__).parents[1]))
        # A minute passes between the runs, by the clock that files are stamped with.
        monkeypatch.setenv("TZ", f"UTC-{int(seed) % 7}")
        subprocess.run([sys.executable, tmp_path / "child.py", tmp_path / seed], check=True)
        files = sorted(p for p in (tmp_path / seed).rglob("*") if p.is_file())
        found.append({str(p.relative_to(tmp_path / seed)): p.read_bytes() for p in files})
    assert len(found[0]) == 6 and found[0] == found[1]


def test_names_of_arrays_are_bounded_and_stay_inside(tmp_path):
    keys = [
        "..",
        ".",
        "",
        "a/b",
        "k" * 100_000,
        10**5000,
        frozenset({1}),
        (1, ".."),
        2.5,
        b"\x00",
        Color.RED,
        None,
        True,
    ]
    held = {key: np.full(2, i) for i, key in enumerate(keys)}
    names = list(s.to_state_dict(held)["array_data"])
    assert max(map(len, names)) < 1100 and len(set(names)) == len(keys)
    assert not any(part in {"", ".", ".."} for name in names for part in name.split("/"))
    for form in FORMS:
        assert same(FORMS[form](held, tmp_path), held)


def nest(make, depth):
    value: Any = 1
    for _ in range(depth):
        value = make(value)
    return value


NESTS = {
    "list": lambda v: [v], "tuple": lambda v: (v,), "dict": lambda v: {"k": v}, "struct": lambda v: State(node=v), "named": lambda v: Point(v), "plain": lambda v: Plain(v, 0),
    "deque": lambda v: collections.deque([v]), "registered": lambda v: Foreign.make(v, None), "frozenset": lambda v: frozenset({v}), "default": lambda v: collections.defaultdict(None, k=v),
}  # fmt: skip


@every("make", NESTS)
def test_nests_as_deep_as_readers_go(make, tmp_path):
    deepest = nest(NESTS[make], DEFAULT_LIMITS.depth - 1)
    for form in ("memory", "zip"):
        again = FORMS[form](deepest, tmp_path)
        assert (
            type(again) is type(deepest)
            and s.to_state_dict(again)["manifest"] == s.to_state_dict(deepest)["manifest"]
        )
    with refused(s.SerializationError, "NQX430", DEFAULT_LIMITS.depth) as caught:
        s.to_state_dict(nest(NESTS[make], DEFAULT_LIMITS.depth))
    assert [d.code for d in caught.value.diagnostics] == ["NQX430"]


def test_nests_beyond_the_stack_are_an_error_of_ours():
    deepest = nest(NESTS["tuple"], DEFAULT_LIMITS.depth - 1)
    held = s.to_state_dict(deepest)

    def below(frames, act):
        return act() if frames == 0 else below(frames - 1, act)

    for act in (lambda: s.to_state_dict(deepest), lambda: s.from_state_dict(held)):
        with refused(s.SerializationError, "NQX005"):
            below(sys.getrecursionlimit() - 300, act)


def test_a_container_that_contains_itself_is_refused_with_its_path():
    inner: list[Any] = [1]
    loop = {"a": [inner]}
    inner.append(loop)
    with refused(s.SerializationError, "NQX430", "$.node['a'][0][1]") as caught:
        s.to_state_dict(State(node=loop))
    assert (
        caught.value.diagnostics[0].path == "$.node['a'][0][1]" and caught.value.diagnostics[0].hint
    )


@pytest.mark.slow
def test_containers_met_very_often_end_in_an_error():
    value: Any = ["x"]
    for _ in range(60):
        value = [value, value]
    with refused(s.SerializationError, "NQX430", 1_000_000):
        s.to_state_dict(value)


def test_what_cannot_be_saved_is_told_at_once_with_paths_and_remedies():
    masked = np.ma.array([1], mask=[True])
    held = State(
        node=[
            masked,
            np.array([{}]),
            {"r": np.zeros(1, [("a", "i4")])},
            np.zeros(1, np.longdouble),
        ],
        static=(iter(()), "\ud800"),
        more=Plain(object(), collections.ChainMap()),
    )
    with pytest.raises(s.SerializationError) as caught:
        s.to_state_dict(held)
    found = {d.path: d for d in caught.value.diagnostics}
    assert list(found) == ["$.node[0]", "$.node[1]", "$.node[2]['r']", "$.node[3]", "$.static[0]", "$.static[1]", "$.more.a", "$.more.b"]  # fmt: skip
    words = [
        "masked",
        "objects",
        "structured",
        "float128",
        "tuple_iterator",
        "Unicode",
        "builtins.object",
        "collections.ChainMap",
    ]
    assert all(word in found[path].message for path, word in zip(found, words, strict=True))
    assert all(d.code == "NQX430" and d.hint for d in found.values())


@pytest.mark.parametrize("leaf", [jnp.arange(8.0), np.arange(8.0)], ids=["jax", "numpy"])
def test_a_snapshot_stays_what_it_was(leaf):
    held = s.to_state_dict(leaf)
    if isinstance(leaf, jax.Array):
        jax.jit(lambda x: x * 0 - 1, donate_argnums=0)(leaf).block_until_ready()
    else:
        leaf[:] = -1
    assert np.asarray(s.from_state_dict(held)).tolist() == list(range(8))
    loaded = s.from_state_dict(held)
    for array in held["array_data"].values():
        if array.flags.writeable:
            array[:] = 5
    assert np.asarray(loaded).tolist() == list(range(8))


def test_donated_arrays_are_refused():
    array = jnp.arange(4.0)
    array.delete()
    with refused(s.SerializationError, "NQX430", "$[0]") as caught:
        s.to_state_dict([array])
    assert caught.value.diagnostics[0].path == "$[0]"
