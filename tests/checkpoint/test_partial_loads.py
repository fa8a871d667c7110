"""A load with a filter touches the bytes that the filter chose, in every store and form: counted in three ways."""

import gc
from pathlib import Path
from typing import NamedTuple

import equinox
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neuralqx_struct as s
from neuralqx_struct import container
from neuralqx_struct.formats import files as store_files
from neuralqx_struct.formats import ranges
from neuralqx_struct.paths import parse_path
from neuralqx_struct.places import checksums
from neuralqx_struct.trees import leaves_with_paths

MIB = 1 << 20


class Layer(s.Struct):
    w: jax.Array = s.field(metadata={"tags": ["trainable"]})
    bias: jax.Array = s.field(metadata={"tags": ["trainable"]})
    mask: object = None


class Net(s.Struct, schema="tests.partial", version=1):
    layers: list[Layer]
    key: jax.Array
    step: int = 0


def net(size):
    drawn = np.random.default_rng(0)
    layers = [
        Layer(
            jnp.asarray(drawn.random(size, np.float32)),
            jnp.asarray(drawn.random(8, np.float32)),
            drawn.integers(0, 2**15, size, dtype=np.int16),
        )
        for _ in range(4)
    ]
    return Net(layers, jax.random.key(3), step=9)


FORMS = [("npz", "ckpt"), ("npz", "ckpt.zip"), ("safetensors", "ckpt"), ("safetensors", "ckpt.zip")]
IDS = [f"{store}-{'zip' if name.endswith('zip') else 'folder'}" for store, name in FORMS]
SIZE = 3000
# A filter in each of its forms, and how many bytes the arrays have that it chooses.
ASKED = [
    ("tag:trainable & path:**/bias", 4 * 32),
    (s.filters.PathContains("w"), 4 * 4 * SIZE),
    (s.filters.parse("dtype:int16 & path:layers/2/**"), 2 * SIZE),
    (lambda path, leaf: path[-1] == "bias" and path[1] == 0, 32),
    (s.filters.DType("key<fry>"), 8),
    ("dtype:prng_key", 8),
    (s.filters.Not(("trainable", s.filters.DType("integer"))), 8),
    ((s.filters.PathIn(("layers", 1, "bias")), False), 32),
    ("none", 0),
]


@pytest.fixture(params=FORMS, ids=IDS)
def ckpt(tmp_path, request):
    store, name = request.param
    return net(SIZE).export(tmp_path / name, store=store)


def chosen_bytes(part):
    leaves = jax.tree.leaves(part)
    return sum(
        jax.random.key_data(x).nbytes if x.dtype == jax.random.key(0).dtype else x.nbytes
        for x in leaves[:-1]
    )


@pytest.mark.parametrize(
    ("select", "nbytes"), ASKED, ids=[str(number) for number in range(len(ASKED))]
)
def test_the_bytes_that_are_checked_are_those_that_are_chosen(ckpt, select, nbytes, monkeypatch):
    seen = []
    count = lambda data, tick=None: seen.append(len(data)) or checksums.checksum(data, tick)  # noqa: E731
    monkeypatch.setattr(ranges, "checksum", count)
    part = Net.load(ckpt, select=select)
    assert sum(seen) == chosen_bytes(part) == nbytes
    assert part.step == 9
    seen.clear()
    Net.load(ckpt, select=select, verify=False)
    Net.load(ckpt, select=select, abstract=True)
    assert seen == []


@pytest.mark.parametrize(
    ("select", "nbytes"), ASKED, ids=[str(number) for number in range(len(ASKED))]
)
def test_the_bytes_that_are_read_are_those_that_are_chosen(ckpt, select, nbytes, monkeypatch):
    monkeypatch.setattr(store_files, "_COPIED", 0)  # smaller files are read whole
    reads = []
    original = store_files._PrivateBytes.fill
    monkeypatch.setattr(
        store_files._PrivateBytes,
        "fill",
        lambda self, out, start: reads.append(len(out)) or original(self, out, start),
    )
    part = Net.load(ckpt, select=select, mmap=False)
    assert chosen_bytes(part) == nbytes
    assert sum(reads) == nbytes


@container.derive(containers=["mean"], keep=["name"])
class Estimate:
    def __init__(self, mean=0.0, name="energy"):
        self.mean, self.name = mean, name


class Pair(NamedTuple):
    first: object
    second: object


def zoo():
    """Leaves of all kinds at paths of all kinds."""
    params = s.Params(
        {
            ("net", "w"): s.Param(jnp.ones(2)),
            ("b",): s.Param(jnp.ones(3), False, metadata={"tag": "bias"}),
        }
    )
    return {
        "params": params,
        "net": net(4),
        "pair": Pair(np.ones(2, np.complex64), [jax.random.split(jax.random.key(0), 3)]),
        "adam": optax.adam(0.1).init({"w": jnp.ones(2, jnp.bfloat16)}),
        "dense": equinox.nn.Linear(2, 3, key=jax.random.key(1)),
        "estimate": Estimate(jnp.ones(2, jnp.float16)),
        "flags": (np.array([True]), {"3": np.arange(3, dtype=np.uint8)}),
    }


ZOO = zoo()
WORDS = st.sampled_from(
    [
        *(f"tag:{tag}" for tag in ("trainable", "bias", "x")),
        *(
            f"dtype:{dtype}"
            for dtype in (
                "floating",
                "integer",
                "prng_key",
                "bool",
                "complex64",
                "bfloat16",
                "uint32",
            )
        ),
        *(f"kind:{kind}" for kind in ("node", "static")),
        *(
            f"path:{glob}"
            for glob in (
                "**/w/**",
                "net/**",
                "*/*",
                "pair/second/0",
                "adam/0/mu/w",
                "**/b*",
                "estimate/*",
            )
        ),
    ]
)
TEXTS = st.recursive(
    WORDS,
    lambda inner: st.one_of(
        inner.map(lambda text: f"!({text})"),
        st.tuples(inner, st.sampled_from("&|"), inner).map(
            lambda parts: "({}) {} ({})".format(*parts)
        ),
    ),
    max_leaves=4,
)


ARRAYS = "(dtype:floating | dtype:integer | dtype:complexfloating | dtype:bool | dtype:prng_key)"


@given(TEXTS)
@settings(max_examples=60)
def test_a_load_chooses_what_split_chooses_and_inspect_shows(zoo_file, text):
    """One filter means the same on the object, on its bundle, and on the command line."""
    chosen = s.split(ZOO, s.filters.parse(text), ...)[1]
    wanted = {path for path, leaf in chosen.items() if hasattr(leaf, "shape")}
    if not wanted:
        return
    rows = s.inspect(zoo_file, f"({text}) & {ARRAYS}").rows
    assert {parse_path(row.path) for row in rows} == wanted
    part = s.load(zoo_file, select=text)
    held = {path for path, leaf in leaves_with_paths(part) if hasattr(leaf, "shape")}
    assert held == wanted


@pytest.fixture(scope="module")
def zoo_file(tmp_path_factory):
    return s.export(ZOO, tmp_path_factory.mktemp("zoo") / "ckpt")


@pytest.mark.parametrize("mmap", [True, False])
def test_what_is_not_chosen_may_be_damaged(ckpt, mmap):
    """Every byte of what is not asked for is turned over, and nobody notices."""
    wanted = (
        Net.load(ckpt, select="path:layers/1/bias", as_numpy=True, mmap=False)
        .layers[1]
        .bias.tobytes()
    )
    file = ckpt if ckpt.suffix else next(ckpt.glob("arrays.*"))
    data = bytearray(file.read_bytes())
    whole = net(SIZE)
    for array in (leaf for layer in whole.layers for leaf in (layer.w, layer.mask)):
        held = np.asarray(array).tobytes()
        at = data.find(held)
        assert at >= 0
        data[at : at + len(held)] = bytes(255 - byte for byte in held)
    file.write_bytes(data)
    part = Net.load(ckpt, select="path:layers/1/bias", as_numpy=True, mmap=mmap)
    assert part.layers[1].bias.tobytes() == wanted
    with pytest.raises(s.IntegrityError):
        Net.load(ckpt, select="path:layers/1/w", mmap=mmap)


@pytest.mark.parametrize(("store", "name"), FORMS, ids=IDS)
def test_pages_of_what_is_not_chosen_are_never_mapped_in(tmp_path, store, name):
    """What the system says: of a file of 48 MiB the pages of one array of 8 MiB are in memory, and few besides."""
    path = net(2 * MIB).export(tmp_path / name, store=store)
    part = Net.load(path, select="path:layers/1/w", as_numpy=True)
    assert np.array_equal(part.layers[1].w, net(2 * MIB).layers[1].w)
    gc.collect()
    assert 8 * MIB <= resident(path) <= 10 * MIB


def resident(path: Path) -> int:
    """Bytes of a file that this process has mapped in."""
    total, mine = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.partition(" ")[0]:
            mine = str(path) in line
        elif mine and line.startswith("Rss:"):
            total += int(line.split()[1]) * 1024
    return total
