"""Loads of older versions onto several devices: a shard of a migrated array reads the parts of the file that it needs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import neuralqx_struct as s
from neuralqx_struct.formats import orbax_store, ranges
from neuralqx_struct.places.urls import RemotePath
from tests.builders import every

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:orbax", "ignore::DeprecationWarning")

VERSION_1 = """\
language: "1"
schema: lab.spread
version: 1
root: State
structs:
  State:
    fields:
      kernel: float32[i, o]
      fused: float32[16, m]
"""
VERSION_2 = """\
language: "1"
schema: lab.spread
version: 2
root: State
structs:
  State:
    fields:
      kernel: bfloat16[o, i]
      query: float32[8, m]
      key: float32[8, m]
migrations:
  - from: 1
    steps:
      - cast: {field: kernel, dtype: bfloat16, exact: false, lossy: true}
      - transpose: {field: kernel}
      - split: {field: fused, axis: 0, how: concat, into: {query: 8, key: 8}}
"""
KERNEL = np.arange(8 * 32, dtype="f4").reshape(8, 32)
FUSED = np.arange(16 * 64, dtype="f4").reshape(16, 64)


@pytest.fixture
def schema(tmp_path):
    folder = tmp_path / "schema"
    folder.mkdir()
    (folder / "v1.yaml").write_text(VERSION_1)
    (folder / "v2.yaml").write_text(VERSION_2)
    return s.load_schema(folder)


def over(*axes):
    mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("x", "y"))
    return NamedSharding(mesh, PartitionSpec(*axes))


def state(schema, *axes):
    made = {"kernel": jnp.array(KERNEL), "fused": jnp.array(FUSED)}
    if axes:
        made = {name: jax.device_put(array, over(*axes)) for name, array in made.items()}
    return schema.at(1).State(**made)


def require_same(loaded, *axes):
    assert np.array_equal(np.asarray(loaded.kernel, "f4"), KERNEL.T)
    assert np.array_equal(np.concatenate([loaded.query, loaded.key]), FUSED)
    assert {each.sharding for each in (loaded.kernel, loaded.query, loaded.key)} == {over(*axes)}


@every("verify", [True, False])
@every("wanted", [("x", "y"), ("y", "x"), (None, "x"), ()])
def test_each_piece_of_the_file_is_read_once(schema, tmp_path, monkeypatch, wanted, verify):
    path = state(schema, "x", "y").export(tmp_path / "a", store="orbax")
    asked = []
    real = orbax_store._asked

    def logged(store, region):
        asked.append(tuple(each.stop - each.start for each in region))
        return real(store, region)

    monkeypatch.setattr(orbax_store, "_asked", logged)
    loaded = schema.at(2).State.load(path, shardings=over(*wanted), verify=verify)
    require_same(loaded, *wanted)
    if verify:  # a piece has a checksum
        assert sorted(asked) == [(4, 16)] * 4 + [(8, 32)] * 4
    else:  # a shard has elements of several pieces
        assert sum(map(np.prod, asked)) == KERNEL.size + FUSED.size
    if wanted == ("x", "y") and not verify:
        assert set(asked) == {(4, 16), (4, 32)}


def test_a_compressed_array_is_expanded_once_for_all_that_is_made_of_it(
    schema, tmp_path, monkeypatch
):
    path = state(schema).export(tmp_path / "a", compress=True)
    expanded = []
    real = ranges.inflated

    def logged(data, size):
        expanded.append(size)
        return real(data, size)

    monkeypatch.setattr(ranges, "inflated", logged)
    require_same(schema.at(2).State.load(path, shardings=over("x", "y")), "x", "y")
    assert len(expanded) == 2  # the two arrays that are stored


@every("verify", [True, False])
def test_behind_a_url_each_byte_is_fetched_once(schema, monkeypatch, verify):
    path = state(schema).export(f"memory://migrated/shards-{verify}")
    fetched = []
    real = RemotePath.fetched

    def logged(self, start, end):
        fetched.append((start, end))
        return real(self, start, end)

    monkeypatch.setattr(RemotePath, "fetched", logged)
    loaded = schema.at(2).State.load(path, shardings=over("x", "y"), verify=verify)
    require_same(loaded, "x", "y")
    assert len(fetched) == 1  # both arrays, which are neighbours


def test_shards_of_a_private_copy_are_copied_alone(schema, tmp_path, monkeypatch):
    wide = np.zeros((1024, 256), "f4")
    path = schema.at(1).State(kernel=KERNEL, fused=jnp.array(FUSED)).export(tmp_path / "small")
    assert schema.at(2).State.load(path, mmap=False).query.shape == (8, 64)
    path = schema.at(1).State(kernel=jnp.array(wide), fused=jnp.array(FUSED)).export(tmp_path / "a")
    copied = []
    real = ranges._aligned

    def logged(size, lead=0):
        copied.append(size)
        return real(size, lead)

    monkeypatch.setattr(ranges, "_aligned", logged)
    options = {"mmap": False, "verify": False, "shardings": over(None, "x")}
    loaded = schema.at(2).State.load(path, **options)
    assert loaded.kernel.shape == (256, 1024)
    assert copied.count(wide.nbytes // 2) == 2 and max(copied) == wide.nbytes // 2
