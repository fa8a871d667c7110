"""Arrays that are spread over devices: each shard is written, checked and read by itself."""

import json
import zlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import neuralqx_struct as s
from neuralqx_struct import bundle
from neuralqx_struct.errors import IntegrityError
from neuralqx_struct.formats import orbax_store as orbax
from neuralqx_struct.formats.orbax_layout import Pieces, extent
from neuralqx_struct.manifest.text import format_manifest
from tests.builders import every, refused

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:orbax", "ignore::DeprecationWarning")


def layout(*axes, mesh=(2, 2)):
    return NamedSharding(
        Mesh(np.array(jax.devices()).reshape(mesh), ("x", "y")), PartitionSpec(*axes)
    )


def sharded(*shape, spec=("x", "y"), dtype=jnp.float32):
    """An array of different values, spread over four devices."""
    return jax.device_put(np.arange(np.prod(shape)).reshape(shape).astype(dtype), layout(*spec))


def test_each_shard_has_a_checksum_of_its_own(tmp_path):
    w, whole = sharded(4, 6), sharded(4, 6, spec=())
    path = s.export(
        {"w": w, "copied": whole, "rows": sharded(4, 6, spec=("y",))}, tmp_path / "a", store="orbax"
    )
    records = bundle.read_manifest(path)["arrays"]
    crc = [
        zlib.crc32(np.asarray(w)[i : i + 2, j : j + 3].tobytes()) for i in (0, 2) for j in (0, 3)
    ]
    assert records["w"]["chunk"] == [2, 3] and records["w"]["chunk_crc32"] == crc
    pieces = b"".join(np.asarray(w)[i : i + 2, j : j + 3].tobytes() for i in (0, 2) for j in (0, 3))
    assert records["w"]["crc32"] == zlib.crc32(pieces)
    assert records["rows"]["chunk"] == [2, 6] and len(records["rows"]["chunk_crc32"]) == 2
    assert records["copied"].keys() == {"dtype", "shape", "crc32", "nbytes", "file"}
    assert s.verify(path) == s.validate(path) == []


# How an array was written, and how it is wanted.
LAYOUTS = [("x", "y"), ("y", "x"), ("x",), (None, "y"), (("x", "y"),), (None, ("y", "x")), ()]


@every("verify", [True, False])
@every("written", LAYOUTS)
def test_every_layout_is_read_in_every_other(tmp_path, written, verify):
    w = sharded(8, 4, spec=written)
    path = s.export({"w": w}, tmp_path / "a", store="orbax")
    for wanted in LAYOUTS:
        found = s.load(path, shardings=layout(*wanted), verify=verify)["w"]
        assert found.sharding == layout(*wanted)
        for shard in found.addressable_shards:
            assert np.array_equal(shard.data, np.asarray(w)[shard.index])
    assert np.array_equal(s.load(path, verify=verify)["w"], w)


@pytest.fixture
def asked(monkeypatch):
    """The shapes that are read from checkpoints, in order."""
    seen, original = [], orbax._asked
    monkeypatch.setattr(
        orbax, "_asked", lambda store, part: seen.append(extent(part)) or original(store, part)
    )
    return seen


def test_no_host_has_a_whole_copy_of_what_is_read_in_shards(tmp_path, asked):
    path = s.export({"w": sharded(8, 4)}, tmp_path / "a", store="orbax")
    s.load(path, shardings=layout("x", "y"))
    assert asked == [(4, 2)] * 4
    asked.clear()
    s.load(path, shardings=layout("x"))  # each is wanted on two devices, and read once
    assert asked == [(4, 2)] * 4
    asked.clear()
    s.load(path, shardings=layout(None, None, mesh=(4, 1)))
    assert asked == [(4, 2)] * 4
    asked.clear()
    s.load(path, shardings=layout(("x", "y")), verify=False)  # nothing but what is wanted
    assert asked == [(2, 4)] * 4


def test_shards_of_another_layout_are_read_once_each(tmp_path, asked):
    path = s.export({"w": sharded(8, 4, spec=(("x", "y"),))}, tmp_path / "a", store="orbax")
    found = s.load(path, shardings=layout(None, ("x", "y")))["w"]
    assert asked == [(2, 4)] * 4 and np.array_equal(found, np.arange(32).reshape(8, 4))


def test_targets_are_shardings_abstract_arrays_or_arrays(tmp_path, asked):
    state = {"w": sharded(8, 4), "b": sharded(4, spec=("x",)), "n": np.arange(3), "step": 3}
    path = s.export(state, tmp_path / "a", store="orbax")
    abstract = jax.eval_shape(lambda: {"w": jnp.zeros((8, 4)), "b": jnp.zeros(4)})
    abstract = {
        name: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=layout("y"))
        for name, x in abstract.items()
    }
    for target in (
        {"w": layout("y"), "b": layout("y"), "n": None, "step": None},
        {**abstract, "n": None, "step": None},
        lambda path, leaf: layout("y"),
        {
            **{name: jax.device_put(state[name], layout("y")) for name in "wb"},
            "n": state["n"],
            "step": 3,
        },
    ):
        asked.clear()
        found = s.load(path, shardings=target)
        assert found["w"].sharding == found["b"].sharding == layout("y")
        assert isinstance(found["n"], np.ndarray) and asked.count((2,)) == 2
        assert np.array_equal(found["w"], state["w"]) and found["step"] == 3


@pytest.mark.parametrize("store", ["npz", "safetensors", "orbax"])
def test_what_is_shared_weak_or_of_no_common_dtype_is_placed_from_every_store(tmp_path, store):
    w, key = sharded(4, 4), jax.random.key(3)
    state = {
        "a": w,
        "b": w,
        "h": sharded(4, 4, dtype=jnp.float8_e4m3fn),
        "i": sharded(4, 4, dtype=jnp.int4),
    }
    state |= {
        "weak": jax.device_put(jax.lax.full((4, 4), 2.0), layout("x")),
        "key": key,
        "full": jnp.zeros((4, 4)),
    }
    path = s.export(state, tmp_path / "a", store=store)
    found = s.load(path, shardings=lambda path, leaf: layout("x") if leaf.ndim == 2 else None)
    assert found["a"] is found["b"]
    for name in ("a", "h", "i", "weak", "full"):
        assert found[name].sharding == layout("x") and found[name].dtype == state[name].dtype, name
        assert found[name].weak_type == state[name].weak_type
        assert np.asarray(found[name]).tobytes() == np.asarray(state[name]).tobytes()
    assert (jax.random.key_data(found["key"]) == jax.random.key_data(key)).all()
    apart = s.load(
        path,
        shardings=lambda path, leaf: (
            layout("x") if path[-1] == "a" else layout("y") if path[-1] == "b" else None
        ),
    )
    assert (apart["a"].sharding, apart["b"].sharding) == (layout("x"), layout("y"))


def test_what_a_hook_of_the_class_makes_is_placed_at_last(tmp_path):
    class Halved(s.Struct):
        w: jax.Array = s.field(
            converter=lambda w: jnp.asarray(w) if w.shape[0] < 8 else jnp.asarray(w)[:4]
        )

    class Whole(s.Struct):
        w: jax.Array

    s.export({"w": sharded(8, 4)}, tmp_path / "a", store="orbax")
    document = bundle.read(tmp_path / "a")
    tree = {
        "__kind__": "struct",
        "type": s.class_ref(Halved),
        "fields": {"w": document.document["manifest"]["items"][0][1]},
    }
    bundle.write(
        tmp_path / "b",
        type(document)({**document.document, "manifest": tree}, document.arrays),
        store="orbax",
    )
    found = Halved.load(tmp_path / "b", shardings=layout("x"))
    assert found.w.shape == (4, 4) and found.w.sharding == layout("x")


def test_wrong_shardings_are_told_after_all(tmp_path):
    path = s.export({"w": sharded(6, 4)}, tmp_path / "a", store="orbax")
    with refused(ValueError, "$['w']", "shardings="):
        s.load(path, shardings=layout(("x", "y")))
    with refused(ValueError, "shardings="):
        s.load(path, shardings={"v": layout("x")})


def test_migrated_arrays_are_read_in_shards_too(tmp_path, asked):
    old = 'language: "1"\nschema: orbax.moved\nversion: 1\nroot: State\nstructs:\n  State:\n    fields:\n'
    new = old.replace("version: 1", "version: 2")
    steps = "migrations:\n  - from: 1\n    steps:\n      - rename: {field: a, to: w}\n      - transpose: {field: b, axes: [1, 0]}\n"
    for name, text in {
        "v1": old + '      a: "float32[n, m]"\n      b: "float32[n, m]"\n',
        "v2": new + '      w: "float32[n, m]"\n      b: "float32[m, n]"\n' + steps,
    }.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    schema = s.load_schema(tmp_path)
    path = (
        schema.at(1).State(a=sharded(8, 4), b=sharded(8, 4)).export(tmp_path / "a", store="orbax")
    )
    found = schema.load(path, shardings=layout("x", "y"))
    assert asked == [(4, 2)] * 8
    assert found.w.sharding == found.b.sharding == layout("x", "y")
    assert np.array_equal(found.w, np.arange(32).reshape(8, 4)) and np.array_equal(
        found.b, found.w.T
    )


def edit(path, change):
    file = path / "manifest.json"
    document = json.loads(file.read_text())
    document.pop("digest")
    change(document["arrays"]["w"])
    file.write_bytes(format_manifest(document))


@pytest.mark.parametrize(
    ("change", "wanted", "got"),
    [
        (lambda r: r.update(chunk=[3, 2]), [8, 4], [3, 2]),
        (lambda r: r.update(chunk=[0, 2]), [8, 4], [0, 2]),
        (lambda r: r.update(chunk=[4]), [8, 4], [4]),
        (lambda r: r.update(chunk=[16, 2]), [8, 4], [16, 2]),
        (lambda r: r.update(chunk=[2, 2]), 8, 4),
        (lambda r: r.pop("chunk"), 1, 4),
        (lambda r: r.pop("chunk_crc32"), 4, 1),
    ],
)
def test_records_whose_chunks_cannot_be(tmp_path, change, wanted, got):
    path = s.export({"w": sharded(8, 4)}, tmp_path / "a", store="orbax")
    edit(path, change)
    with refused(IntegrityError, "NQX408", "$.arrays.w", wanted, got):
        s.load(path)
    assert [(d.code, d.path) for d in s.verify(path)] == [("NQX408", "$.arrays.w")]


@pytest.mark.parametrize(
    "change", [lambda r: r.update(crc32=5), lambda r: r["chunk_crc32"].reverse()]
)
def test_checksums_of_chunks_make_that_of_the_array(tmp_path, change):
    path = s.export({"w": sharded(8, 4)}, tmp_path / "a", store="orbax")
    edit(path, change)
    assert [(d.code, d.path) for d in s.verify(path)] == [("NQX408", "$.arrays.w")]


def test_a_damaged_shard_is_named_and_others_are_read(tmp_path):
    path = s.export({"w": sharded(8, 4)}, tmp_path / "a", store="orbax")

    def spoil(record):
        record["chunk_crc32"][1] ^= 1
        record["crc32"] = Pieces.of(record).whole(4)

    edit(path, spoil)
    with refused(IntegrityError, "NQX407", "$.arrays.w", "crc32", "[0:4, 2:4]"):
        s.load(path, shardings=layout("x", "y"))
    (found,) = s.verify(path)
    assert found.code == "NQX407" and "[0:4, 2:4]" in found.message
    arrays = bundle.read(path).arrays
    (part,) = arrays.parts("w", [(slice(1, 5), slice(0, 2))])
    assert np.array_equal(part, np.arange(32).reshape(8, 4)[1:5, :2]) and not part.flags.writeable
    with refused(IntegrityError, "NQX407", "$.arrays.w", "arrays.orbax"):
        list(arrays.parts("w", [(slice(3, 4), slice(3, 4))]))
    (part,) = bundle.read(path, verify=False).arrays.parts("w", [(slice(3, 4), slice(3, 4))])
    assert part.tolist() == [[15]]


@pytest.mark.parametrize("store", ["npz", "orbax"])
def test_parts_without_elements(tmp_path, store):
    path = s.export(
        {"w": sharded(8, 4), "e": np.zeros((0, 3), np.int8)}, tmp_path / "a", store=store
    )
    arrays = bundle.read(path).arrays
    assert [
        part.shape
        for part in arrays.parts("w", [(slice(2, 2), slice(0, 3)), (slice(0, 1), slice(1, 2))])
    ] == [
        (0, 3),
        (1, 1),
    ]
    assert [part.shape for part in arrays.parts("e", [(slice(0, 0), slice(1, 3))])] == [(0, 2)]


def test_a_flipped_bit_in_a_shard_is_found_or_harmless(tmp_path):
    path = s.export({"w": sharded(64, 32)}, tmp_path / "a", store="orbax")
    wanted, refused = s.load(path)["w"], 0
    generator = np.random.default_rng(0)
    for file in sorted(
        file for file in (path / "arrays.orbax").rglob("*") if file.parent.name == "d"
    ):
        data = file.read_bytes()
        for position in generator.choice(len(data), 20):
            changed = bytearray(data)
            changed[position] ^= 1 << int(generator.integers(8))
            file.write_bytes(changed)
            try:
                assert np.array_equal(s.load(path, shardings=layout("y", "x"))["w"], wanted)
                assert s.verify(path) == []
            except s.IntegrityError:
                refused += 1
                assert s.verify(path)
        file.write_bytes(data)
    assert refused > 10


def test_chunks_are_kept_where_files_are_linked_and_made_anew_where_arrays_are_written(tmp_path):
    path = s.export({"w": sharded(8, 4)}, tmp_path / "a", store="orbax")
    record = bundle.read_manifest(path)["arrays"]["w"]
    assert s.convert(path, tmp_path / "b").linked
    assert bundle.read_manifest(tmp_path / "b")["arrays"]["w"] == record
    for store in ("npz", "orbax"):
        out = tmp_path / f"c.{store}"
        s.convert(
            path, out, store=store, compact=True, overwrite=True
        ) if store == "npz" else s.convert(tmp_path / "c.npz", out, store=store)
        written = bundle.read_manifest(out)["arrays"]["w"]
        assert not {"chunk", "chunk_crc32"} & written.keys()
        assert written["crc32"] == zlib.crc32(np.asarray(sharded(8, 4)).tobytes())
        assert s.verify(out) == []


@every("devices", [1, 4])
def test_placed_arrays_share_no_memory_with_a_state_dict(devices):
    """JAX may share the memory of any aligned array, so many lengths are tried."""
    mesh = Mesh(np.array(jax.devices()[:devices]), ("x",))
    target = NamedSharding(mesh, PartitionSpec("x"))
    given = [np.ones(4096 + 16 * n, np.float32) for n in range(24)]
    payload = s.to_state_dict([*map(jnp.asarray, given)])
    payload["array_data"] = dict(zip(payload["array_data"], given, strict=True))
    found = s.from_state_dict(payload, shardings=target)
    for array in given:
        array[:] = 7
    assert all(each.sharding == target and float(each.max()) == 1 for each in found)


def test_a_tree_is_decoded_once(tmp_path):
    """Functions of the user run once: those that make objects, and the one that returns shardings."""
    made, asked = [], []

    class Box:
        def __init__(self, w):
            self.w = w

    def opened(children):
        made.append(children)
        return Box(*children)

    s.register_pytree_type(
        Box,
        flatten=lambda box: ((box.w,), None),
        unflatten=lambda _, children: opened(children),
    )
    state = {"box": Box(jnp.zeros((8, 4))), "w": jnp.ones((8, 4))}
    path = s.export(state, tmp_path / "a", store="orbax")
    made.clear()
    found = s.load(path, shardings=lambda path, _: asked.append(path) or layout("x"))
    assert found["box"].w.sharding == found["w"].sharding == layout("x")
    assert asked == [("box", 0), ("w",)]
    assert len([children for children in made if children != (None,)]) == 2  # read, and placed
